"""The checks of resumed runs, people, files, accounts and words: healthy, and with defects."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.core.session import Session, Waiting
from tacit.privacy import gaussian_dp, storage
from tacit.privacy.budget import Budget
from tacit.privacy.curators.accounts import BlockAccounts
from tacit.privacy.curator import JointCurator
from tacit.privacy.curators.participants import Participants
from tacit.privacy.errors import TacitError
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.chain import ChainedFile
from tacit.privacy.models import JointDP, LocalDP
from tacit.privacy.noise import Noise
from tacit.privacy.standard import ClippedSum
from tests.own_path import check_accounts, check_files, check_people, check_resume, check_words
from tests.own_path import own_rules as own
from tests.own_path.trials import MODELS, failures, planted, trial_of

Change = Callable[..., Any]
CHECKS = (check_resume, check_people, check_files, check_accounts, check_words)


@pytest.mark.parametrize("model", MODELS)
def test_a_healthy_agent_passes(model: str, tmp_path: Path) -> None:
    trial = trial_of(tmp_path, MODELS[model], runs=4)
    for check in CHECKS:
        assert failures(check.outcomes(trial)) == {}


def found(check: Any, path: Path, *defect: Any, model: str = "joint") -> dict[str, str]:
    with planted(*defect):
        try:
            return failures(check.outcomes(trial_of(path, MODELS[model], runs=4)))
        except TacitError as error:  # an audit ends in a failure then
            return dict.fromkeys(("accounts", "real resume: crashes"), str(error))


# Resumed runs.


def test_noise_that_a_save_brings_back_is_found(tmp_path: Path) -> None:
    """The first draw of every process that loads is the same."""
    kept: dict[int, Any] = {}

    def steps(f: Change, self: Noise, pure: bool, scale: float, count: int) -> Any:
        if getattr(self, "loaded", False):
            return kept.setdefault(count, f(self, pure, scale, count)).copy()
        return f(self, pure, scale, count)

    def restart(f: Change, self: JointCurator, users: int, source: Any) -> None:
        source.loaded = True
        f(self, users, source)

    with planted(Noise, "steps", steps):
        wrong = found(check_resume, tmp_path, JointCurator.__mro__[1], "restart", restart)
    assert "real resume: saves" in wrong


@pytest.mark.parametrize(
    "defect",
    [
        (Waiting, "restore", lambda f, self, users, names, arrays: f(self, 0, None, {})),
        (Waiting, "dump", lambda f, self, p: ({"pending": 0, "pending_names": None}, {})),
        (Participants, "restore", lambda f, self, meta, arrays: None),
    ],
    ids=["those who wait are dropped", "they are not saved", "ids are forgotten"],
)
def test_people_lost_by_a_save_are_found(defect: Any, tmp_path: Path) -> None:
    assert "real resume: saves" in found(check_resume, tmp_path, *defect)


@pytest.mark.parametrize(
    "defect",
    [
        (BlockAccounts, "restore", lambda f, self, meta: f(self, meta | {"spent": [[0, 1]] * 9})),
        (BlockAccounts, "follow", lambda f, self, ledger, people: setattr(self, "ledger", ledger)),
        (Session, "saw", lambda f, self, last: False),
        (BlockAccounts, "charge", lambda f, self, costs, label, pending: self.check(costs)),
    ],
    ids=["accounts are empty", "the ledger is not asked", "the release is lost", "no charge"],
)
def test_what_a_crash_loses_is_found(defect: Any, tmp_path: Path) -> None:
    assert {"real resume: saves", "real resume: crashes"} & set(
        found(check_resume, tmp_path, *defect)
    )


def test_a_save_that_can_be_resumed_twice_is_found(tmp_path: Path) -> None:
    def reopen(f: Change, curator: Any, ledger: Any, mark: Any, autosave: Any) -> None:
        if ledger is not None:
            curator.accounts.ledger = None
        if autosave is not None:
            curator.autosave = autosave

    from tacit.privacy.curators import joint

    wrong = found(check_resume, tmp_path, joint, "reopen", reopen)
    assert "real resume: crashes" in wrong


# People.


@pytest.mark.parametrize(
    "defect",
    [
        (Participants, "admit", lambda f, self, block, ids: block),
        (JointDP, "episode_limit", lambda f, self: f(self) * self.episodes_per_user**0.5),
        (JointDP, "episode_limit", lambda f, self: self.budget.mu**2 / self.episodes_per_user),
    ],
    ids=["everybody counts", "less for more episodes", "as if they were disjoint"],
)
def test_people_who_count_too_often_are_found(defect: Any, tmp_path: Path) -> None:
    assert "people" in found(check_people, tmp_path, *defect)


def test_ids_of_two_kinds_that_are_one_are_found(tmp_path: Path) -> None:
    from tacit.privacy.curators import participants

    defect = (participants, "name_of", lambda f, user, key: f(str(user).strip(), key))
    assert "people" in found(check_people, tmp_path, *defect)


def test_last_episodes_in_place_of_first_ones_are_found(tmp_path: Path) -> None:
    def admit(f: Change, self: Participants, block: Any, ids: Any) -> Any:
        if ids is None:
            return f(self, block, ids)
        back = {name: array[::-1] for name, array in block.arrays.items()}
        return f(self, dataclasses.replace(block, arrays=back), list(ids)[::-1])

    assert "people" in found(check_people, tmp_path, Participants, "admit", admit)


def test_reports_of_those_who_return_are_found(tmp_path: Path) -> None:
    for defect in (
        (Participants, "admit", lambda f, self, block, ids: block),
        (LocalDP, "report_cost", lambda f, self: self.budget.mu),
    ):
        assert "people" in found(check_people, tmp_path, *defect, model="local")


# Files.


def test_files_that_others_can_read_are_found(tmp_path: Path) -> None:
    def readable(f: Change, path: Any, data: bytes, mode: int, **more: Any) -> None:
        f(path, data, 0o644, **more)

    def late(f: Change, path: Any, data: bytes, mode: int, **more: Any) -> None:
        f(path, data, 0o666, **more)
        os.chmod(path, mode)

    for change in (readable, late):
        assert "files" in found(check_files, tmp_path, storage, "write_atomic", change)


def test_other_files_are_found(tmp_path: Path) -> None:
    def backup(f: Change, curator: Any, path: Any) -> None:
        f(curator, path)
        with open(f"{path}.bak", "wb", opener=lambda p, n: os.open(p, n, 0o600)) as file:
            file.write(Path(path).read_bytes())

    def elsewhere(f: Change, curator: Any, path: Any) -> None:
        f(curator, path)
        (tmp_path / "debug.txt").write_text("x")

    from tacit.privacy.curators import joint

    for change in (backup, elsewhere):
        assert "files" in found(check_files, tmp_path, joint, "save_curator", change)


def test_late_writes_are_found(tmp_path: Path) -> None:
    def later(f: Change, self: JointCurator, release: Any) -> Any:
        path, self.autosave = self.autosave, None
        try:
            return f(self, release)
        finally:
            self.autosave = path

    def uncharged(f: Change, self: BlockAccounts, costs: Any, label: str, pending: bool) -> None:
        ledger, self.ledger = self.ledger, None
        f(self, costs, label, pending=pending)
        self.ledger = ledger

    def unflushed(f: Change, self: ChainedFile, descriptor: int, record: Any) -> bytes:
        from tacit.privacy.ledger.chain import seal

        os.write(descriptor, line := seal(record, self._hash))
        return line

    for defect in (
        (JointCurator, "_publish", later),
        (BlockAccounts, "charge", uncharged),
        (ChainedFile, "append", unflushed),
    ):
        assert "files" in found(check_files, tmp_path, *defect)


def test_raw_values_and_ids_in_files_are_found(tmp_path: Path) -> None:
    def label(f: Change, self: JointCurator, costs: Any, label: str) -> None:
        raw = self._blocks[next(iter(costs))]
        f(self, costs, f"{label} {np.asarray(raw['rewards'])[0, 0]!r}")

    def names(f: Change, self: Participants, block: Any, ids: Any) -> Any:
        self.last = None if ids is None else list(ids)  # type: ignore[attr-defined]
        return f(self, block, ids)

    def dump(f: Change, self: Participants, meta: Any) -> Any:
        arrays = f(self, meta)
        meta["ids"]["last"] = getattr(self, "last", None)
        return arrays

    assert "files" in found(check_files, tmp_path, JointCurator, "_charge", label)
    with planted(Participants, "admit", names):
        assert "files" in found(check_files, tmp_path, Participants, "dump", dump)


# Accounts.


@pytest.mark.parametrize(
    "defect",
    [
        (gaussian_dp, "_delta", lambda f, mu, epsilon: f(mu, epsilon) * (1 - 1e-7)),
        (
            BlockAccounts,
            "charge",
            lambda f, self, costs, label, pending: f(
                self, {b: float(f"{c:.6g}") for b, c in costs.items()}, label, pending=pending
            ),
        ),
        (
            BlockAccounts,
            "charge",
            lambda f, self, costs, label, pending: f(
                self, {b: c * (c > 1e-12) for b, c in costs.items()}, label, pending=pending
            ),
        ),
        (BlockAccounts, "check", lambda f, self, costs: None),
        (
            Ledger,
            "charge",
            lambda f, self, costs, label, pending: f(
                self, {k: c * 0.9 for k, c in costs.items()}, label, pending=pending
            ),
        ),
    ],
    ids=["delta", "rounded costs", "tiny costs are free", "no limit", "the ledger is charged less"],
)
def test_accounts_that_are_off_are_found(defect: Any, tmp_path: Path) -> None:
    gaussian_dp._largest_mu.cache_clear()
    try:
        assert "accounts" in found(check_accounts, tmp_path, *defect)
    finally:
        gaussian_dp._largest_mu.cache_clear()


def test_a_budget_off_by_a_millionth_is_found(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, runs=4)
    assert check_accounts._conversions(trial) == []
    with planted(
        gaussian_dp, "_largest_mu", lambda f, epsilon, delta: f(epsilon, delta) * (1 + 1e-6)
    ):
        assert check_accounts._conversions(trial)


# Words.


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.9},
        {"delta": 1e-5},
        {"episodes_per_user": 2},
        {"unit": "one user's contribution to one item"},
        {"mechanism": "Laplace noise, of a counter"},
        {"simulation_only": True},
        {"mu": None},
        {"mu": 0.1},
        {"releases": 7},
    ],
    ids=str,
)
def test_words_that_are_not_true_are_found(changes: dict[str, Any], tmp_path: Path) -> None:
    def said(f: Change, self: JointCurator) -> Guarantee:
        more = {"mu": None} if "epsilon" in changes else {}
        return dataclasses.replace(f(self), **more, **changes)

    assert "words" in found(check_words, tmp_path, JointCurator, "guarantee", said)


def test_texts_that_round_down_are_found(tmp_path: Path) -> None:
    def text(f: Change, self: Guarantee) -> str:
        return f(self).replace("= 2.72", "= 2.71")

    assert "words" in found(check_words, tmp_path, Guarantee, "__str__", text)


# Our own accountant.


def test_the_own_accountant_agrees_with_what_is_known() -> None:
    assert float(own.hockey_stick(1.0, 1.0)) == pytest.approx(0.12693673750664397, rel=1e-14)
    assert own.largest_mu(1.0, 1e-6) == pytest.approx(Budget(1.0, 1e-6).mu, rel=1e-11)
    assert float(own._upper(own.Decimal(8))) == pytest.approx(6.220960574271785e-16, rel=1e-13)
    assert own.exact_sum([0.1, 0.2], 1) == Fraction(0.1) + Fraction(0.2)
    kept = own.counted([["7", 7, 7], [7, "a"]], 1, False)
    assert [k.tolist() for k in kept] == [[True, True, False], [False, True]]
    assert own.step_of(ClippedSum(1), "l2") == 2.0**-14
