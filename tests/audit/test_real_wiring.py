"""The real path in audits: by default, in the report, and running sums where counters are exact."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.audit.page import page
from tacit.audit.trial import Trial
from tacit.core.kinds import AgentKind
from tacit.finite.evidence import Evidence
from tacit.privacy.counters.base import Counter
from tacit.privacy.noise import Noise
from tests.audit.real_trials import JOINT, RealTrial, failures, planted
from tests.own_path import check_accounts, check_noise, check_people, check_resume
from tests.own_path.suite import CHECKS, real_outcomes

WORLD = tacit.tabular.riverswim(states=3, horizon=3)
MAKE = partial(tacit.UCBVI, privacy=JOINT, schedule="fixed:size=20")


@pytest.fixture(scope="module")
def audit() -> Any:
    return tacit.audit_agent(
        MAKE, WORLD, users=60, runs=20, rounds=5, behaviour=False, real="quick", progress=False
    )


def test_an_audit_has_the_real_path(audit: Any) -> None:
    assert audit.passed, audit.failures
    names = {o.name.partition(":")[0] for o in audit.real}
    assert names == {*CHECKS, "real flow"}
    assert all(entry["power"] for entry in audit.to_dict()["real_path"])
    assert "Real path" in page(audit)


def test_what_it_finds_is_a_failure_of_the_audit(audit: Any) -> None:
    wrong = dataclasses.replace(audit.real[0], failure=tacit.CheckFailed("real noise: law: off"))
    failed = dataclasses.replace(audit, real=(wrong, *audit.real[1:]))
    assert not failed.passed
    assert failed.failed == (wrong.name,)
    assert "real noise: law: off" in page(failed)


def test_without_behaviour_it_is_left_out_unless_asked_for() -> None:
    made = tacit.audit_agent(
        MAKE, WORLD, users=60, runs=20, rounds=5, behaviour=False, progress=False
    )
    assert made.real == ()


def test_a_check_that_breaks_is_a_failure() -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        if options["noise_seed"] is None:
            raise RuntimeError("no real runs")
        return MAKE(*arguments, **options)

    found = [o for group in real_outcomes(broken, WORLD, users=60, quick=True) for o in group]
    assert len(found) == len(CHECKS)
    assert all("no real runs" in str(o.failure) for o in found)


# Running sums.


def streamed(counter: str) -> AgentKind:
    """Agents all of whose blocks go through one counter."""

    class Streamed(tacit.UCBVI.algorithm):
        masked, cap = False, None

        def _choose_counter(self) -> str:
            return counter

        def take_in(self, release: Any, statistic: Any) -> None:
            """The sums so far take the place of those before."""
            self.evidence = Evidence(self.evidence.rewards.shape, plain=False)
            super().take_in(release, statistic)

    return AgentKind(Streamed)


def trial_of_stream(folder: Path, counter: str) -> RealTrial:
    if not hasattr(Counter, "largest_sum"):
        pytest.skip("these counters are not exact yet")
    make = partial(streamed(counter), privacy=JOINT, schedule="fixed:size=20")
    return RealTrial(Trial(make, WORLD, folder, users=60), quick=True, runs=16)


@pytest.mark.parametrize("counter", ["square root", "binary tree", "blt", "endless"])
def test_healthy_streams_pass(counter: str, tmp_path: Path) -> None:
    trial = trial_of_stream(tmp_path, counter)
    for check in (check_noise, check_people, check_accounts, check_resume):
        assert failures(check.outcomes(trial)) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda f, self: f(self) * (self.released != 1),
        lambda f, self: f(self) // 2 * 2 + 0 * np.resize(f(self), self.size) - 2**20,
        lambda f, self: Noise().steps(False, 0.9 * self.scale, self.size),
    ],
    ids=["a release without noise", "moved", "smaller"],
)
def test_streams_with_other_noise_are_found(change: Any, tmp_path: Path) -> None:
    trial = trial_of_stream(tmp_path, "square root")
    with planted(Counter, "_draw", change):
        assert "real noise: law" in failures(check_noise.outcomes(trial))


def test_a_counter_that_forgets_its_column_norm_is_found(tmp_path: Path) -> None:
    trial_of_stream(tmp_path, "square root")
    from tacit.privacy.counters import SquareRoot

    with planted(SquareRoot, "column_norm", lambda f, self: 1.0):
        trial = trial_of_stream(tmp_path, "square root")
        assert "real noise: law" in failures(check_noise.outcomes(trial))
