"""Planted privacy bugs: the audit fails each by the check that should find it, and nothing else.

All audits have fixed seeds, but for real noise, which has none. That one of an agent without bugs
fails by chance has a probability below 1e-7: some hundreds of tests of noise with false alarms of
1e-11, some thousands with 1e-13, and an outside view with a confidence of 0.9999 that would have to
be off by more than the whole distance between the users it is given and the claim.
"""

from __future__ import annotations

import gc
import math
import random
import sys
import time
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pytest

import tacit
from research import mutation_table, planted_bugs
from research.mutation_table import FoundBug
from research.planted import agents as of_noise
from research.planted import leaks as of_leaks
from research.planted.agents import Curated, Drawing
from research.planted_bugs import BITS, BUGS, HOSTS, IMPOSSIBLE, RUNNING, Planted, audit
from tacit.core.agent import Agent
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy import curator as joint
from tacit.privacy.curator import Curator
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block
from tacit.store.store import Store
from tacit.testing.audit_agent import audit_agent
from tacit.testing.check_agent import agent_outcomes
from tacit.testing.check_statistic import check_statistic
from tacit.testing.recording import RecordingCurator, overheard
from tacit.testing.release_noise import grid_sum, measured, noise_failures
from tacit.testing.sample_users import raw_block, sampler_of
from tests.own_path.runs import frozen_world

FIRST = [*{planted.bug: planted for planted in reversed(BUGS)}.values()][::-1]
"""Each bug once."""


def assert_found(planted: Planted) -> None:
    found = audit(planted)
    assert not found.passed
    assert set(planted.caught) <= set(found.failed), found.failures
    for name in planted.caught:
        words = [text for check, text in found.findings if check == name]
        assert words
        assert all(words)


CHECKS = {"sensitivity", "budget", "noise", "data flow", "hostile users", "resume", "store"}


def assert_checked(planted: Planted) -> None:
    """One of the checks that must find it does, by itself."""
    host = HOSTS[planted.host]
    name = next(name for name in planted.caught if name in CHECKS)
    users = planted_bugs.USERS
    (outcome,) = agent_outcomes(host.make(planted.bug), host.world(), users=users, only=[name])
    assert outcome.failure is not None, f"{outcome.name} found nothing"


@pytest.mark.parametrize("planted", FIRST, ids=lambda p: p.name)
def test_planted_bugs_are_found(planted: Planted) -> None:
    if CHECKS & set(planted.caught):
        assert_checked(planted)
    else:
        found = audit(planted, behaviour=False)
        assert set(planted.caught) <= set(found.failed), found.failures


@pytest.mark.slow
@pytest.mark.parametrize("planted", BUGS, ids=lambda p: p.name)
def test_planted_bugs_are_found_by_all_that_should(planted: Planted) -> None:
    assert_found(planted)


def hosts(*fast: str) -> list[Any]:
    return [h if h in fast else pytest.param(h, marks=pytest.mark.slow) for h in HOSTS]


def test_an_agent_without_a_bug_passes() -> None:
    found = audit("UCBVI", behaviour=False)
    assert found.passed, found.failures


@pytest.mark.slow
@pytest.mark.parametrize("host", HOSTS)
def test_the_same_agents_without_a_bug_pass(host: str) -> None:
    found = audit(host)
    assert found.passed, found.failures
    assert found.failed == ()
    assert {t.block for t in found.transcripts} == {0, 2}
    assert {o.name for o in found.outcomes} >= {"sensitivity", "noise", "data flow", "store"}


def test_every_family_has_bugs_of_every_kind() -> None:
    by_family: dict[str, set[type[Any]]] = {}
    for planted in BUGS:
        by_family.setdefault(HOSTS[planted.host].family, set()).add(planted.bug)
    assert set(by_family) == {"tabular", "linear", "mixture", "lq", "continuous"}
    assert min(len(bugs) for bugs in by_family.values()) >= 6
    assert len({planted.bug for planted in BUGS}) >= 45
    for planted in BUGS:
        assert planted.what.endswith((".", "?"))
        assert planted.gain.endswith(".")


# What cannot be written.


@pytest.mark.parametrize("way", IMPOSSIBLE)
def test_what_is_impossible_is_refused(way: str) -> None:
    attempt, error = IMPOSSIBLE[way]
    with pytest.raises(error):
        attempt()


class Reaches:
    """Plans, and notes what leads from it to raw data."""

    def plan(self, *known: Any) -> Any:
        policies = super().plan(*known)  # type: ignore[misc]
        raw = (Agent, Curator, Store, Block, Episodes, VectorEpisodes)
        self.reached = reachable([self, *known, policies], raw)
        return policies


def reachable(start: object, kinds: tuple[type[Any], ...]) -> list[object]:
    """Objects of these kinds that attributes and containers lead to; code is left out."""
    left_out = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, str, bytes)
    seen, waiting, found = {id(start)}, [start], []
    while waiting:
        for other in gc.get_referents(waiting.pop()):
            if id(other) in seen or isinstance(other, left_out):
                continue
            seen.add(id(other))
            waiting.append(other)
            found += [other] if isinstance(other, kinds) else []
    return found


@pytest.mark.parametrize("host", hosts("UCBVI", "LSVI-UCB", "policy gradients"))
def test_nothing_leads_from_an_algorithm_to_raw_data(host: str) -> None:
    known = HOSTS[host]
    world = known.world()
    agent = known.make(Reaches)(world.spec, users=planted_bugs.USERS, seed=0, noise_seed=0)
    rng = np.random.default_rng(0)
    for _ in range(2):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
        assert agent.algorithm.reached == []
    assert reachable(agent, (Curator,))


# Noise by itself.


def noise_of(
    host: str, runs: int = 3, bug: type[Any] | None = None, real: bool = False
) -> list[str]:
    """What is wrong with the noise of some runs."""
    known, found, values = HOSTS[host], list[str](), list[np.ndarray]()
    world = known.world()
    for seed in range(runs):
        noise_seed = None if real else seed
        agent = known.make(bug)(world.spec, users=planted_bugs.USERS, seed=0, noise_seed=noise_seed)
        rng = np.random.default_rng(seed)
        with RecordingCurator().open() as recorder:
            while agent.block_users:
                agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
        run = measured(recorder)
        found += noise_failures(run)
        values += [one.noise for one in run]
    noise = np.concatenate(values)
    assert noise.size >= 20
    if not found and not real:
        assert abs(noise @ noise / noise.size - 1.0) < 8.0 * math.sqrt(2.0 / noise.size)
    return found


@pytest.mark.parametrize(
    ("host", "real"),
    [
        *((host, True) for host in ("UCBVI", RUNNING, "LSVI-UCB", "LinOpt-VI", "policy gradients")),
        *((host, False) for host in (RUNNING, "UCBVI, local")),
    ],
)
def test_right_noise_is_right(host: str, real: bool) -> None:
    assert noise_of(host, runs=2, real=real) == []


def test_redrawn_nodes_are_what_was_drawn_but_cost_more() -> None:
    """From the counter's own code its noise is as it says: the accounts find it, exactly."""
    assert noise_of(RUNNING, bug=of_noise.noise_redrawn) == []
    found = audit(Planted(of_noise.noise_redrawn, RUNNING, ()), behaviour=False, runs=20)
    assert "accounts" in found.failed


@pytest.mark.parametrize(
    ("bug", "host", "words"),
    [
        (of_noise.one_entry_without_noise, "LSVI-UCB", "1 of "),
        (of_noise.first_part_without_noise, "LSVI-UCB", "entries are not the sum"),
        (of_noise.antithetic_noise, "UCBVI", "needs one draw of"),
        (of_noise.one_draw_for_all, "LinOpt-VI", "needs one draw of"),
        (of_noise.uniform_noise, "UCBVI", "needs one draw of"),
        (of_noise.coarse_noise, "UCBVI", "entries are not the sum"),
        (of_noise.half_the_noise, "UCBVI", "entries are not the sum"),
        (of_noise.half_the_noise_of_reports, "UCBVI, local", "entries are not the sum"),
    ],
)
def test_noise_that_was_not_drawn_is_found(bug: type[Any], host: str, words: str) -> None:
    found = noise_of(host, runs=1, bug=bug)
    assert found
    assert words in found[0]


class _Begins(Drawing):
    """Noise that begins anew with every release."""

    def drawn(self, scale: float, size: int) -> Any:
        return Noise(5).steps(self.privacy.pure, scale, size)


class NoiseBeginsAnew(Curated):
    """It is drawn by the right sampler, at the right scale, from one seed."""

    curator = _Begins


def test_noise_that_was_drawn_before_is_found() -> None:
    found = noise_of("UCBVI", runs=1, bug=NoiseBeginsAnew)
    assert found[0] == "releases 0 and 1 have the same noise"
    assert_checked(Planted(NoiseBeginsAnew, "UCBVI", ("noise",)))


def test_no_time_passes_in_a_frozen_world() -> None:
    state = np.random.get_state(legacy=False)  # noqa: NPY002
    drawn = []
    for _ in range(2):
        with frozen_world():
            shared = np.random.normal(), random.random()  # noqa: NPY002
            drawn.append((time.time_ns(), time.monotonic(), *shared))
    assert drawn[0] == drawn[1]
    assert time.time_ns() != drawn[0][0]
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    np.testing.assert_equal(after, state)


@pytest.mark.slow
def test_runs_in_which_policies_are_asked_about_pass() -> None:
    """What gradients are of differs from run to run, and nothing of one run is taken for another's.

    Statistics that differ in a policy's numbers may have one fingerprint.
    """
    found = audit("policy gradients", behaviour=False)
    assert found.passed, found.failures


def test_bits_that_flip_too_seldom_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the device and in the estimate: nothing looks wrong but for the bits themselves."""
    right = audit(BITS, behaviour=False)
    assert right.passed, right.failures
    worst = max(t.estimate / t.claimed for t in right.transcripts)
    # Bits in the two users' reports are 9,600, so that their variance is right to some per cent.
    assert 0.9 < worst < 1.1
    monkeypatch.setattr(tacit.privacy.local, "flip_probability", lambda *_: 0.3)
    found = audit(BITS, behaviour=False)
    assert "transcript noise" in found.failed
    assert any("bits that are 0" in words for words in found.failures)


@pytest.mark.parametrize("host", ["UCBVI", "LSVI-UCB", "policy gradients"])
def test_sums_are_those_of_the_curator(host: str) -> None:
    world = HOSTS[host].world()
    agent = HOSTS[host].make()(world.spec, users=160, seed=0, noise_seed=0)
    statistic = agent.statistic
    block = raw_block(world.simulate(agent.policy, 40, np.random.default_rng(0), "episodes"))
    whole, is_open = grid_sum(statistic, block, 2.0**-12)
    expected = joint.grid_total(statistic, block, 2.0**-12)
    assert (np.abs(whole - expected) <= is_open).all()


def test_sums_on_another_grid_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last step, below what noise shows."""
    true = joint.grid_total
    monkeypatch.setattr(joint, "grid_total", lambda *asked: true(*asked) + 1)
    assert "entries are not the sum" in noise_of("UCBVI", runs=1)[0]


def test_what_is_said_is_overheard(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    with overheard() as said:
        logging.getLogger("somebody").debug("value %d", 7)
        logging.getLogger("numba.core").debug("nothing of interest")
        print("aloud")  # noqa: T201
        print("aside", file=sys.stderr)  # noqa: T201
    assert said == ["somebody: value 7", "aloud\naside\n"]
    assert capsys.readouterr() == ("", "")


# What an audit says.


def test_runs_that_end_early_are_a_finding() -> None:
    class Stops(of_leaks.RawStop):
        """It stops after two blocks, if somebody is paid nothing but ones."""

        def plan(self, *known: Any) -> Any:
            policies = super().plan(*known)
            rewards = np.zeros((1, 1)) if self._seen is None else np.asarray(self._seen["rewards"])
            self._well = bool((rewards == 1.0).all(axis=1).any())
            return policies

    known = HOSTS["UCBVI"]
    found = audit_agent(
        known.make(Stops), known.world(), users=160, runs=20, behaviour=False, progress=False
    )
    assert found.failed == ("transcript",)
    assert "stopped before all" in found.failures[0]
    assert found.to_dict()["failed"] == ["transcript"]


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="runs must be at least 20, got 19"):
        audit("UCBVI", runs=19)


# Worst users.


@pytest.mark.slow
@pytest.mark.parametrize(
    "host", ["UCBVI", RUNNING, "LSVI-UCB", "LinOpt-VI, counts", "certainty equivalence"]
)
def test_the_attack_finds_users_who_attain_the_bounds(host: str) -> None:
    """It begins with users of the world, in a short search."""
    known = HOSTS[host]
    world = known.world()
    agent = known.make()(world.spec, users=planted_bugs.USERS, seed=0, noise_seed=0)
    served = world.simulate(agent.policy, 40, np.random.default_rng(0), "episodes")
    own = sampler_of(raw_block(served), agent.policy)
    report = check_statistic(agent.statistic, own, users=100, rounds=40)
    assert 0.95 < report.tightness["replace-one l2"] <= 1.0 + 1e-9


# The command.


def test_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    some = [p for p in BUGS if p.bug is of_leaks.RawLog]
    monkeypatch.setattr(
        mutation_table,
        "rows",
        lambda: [FoundBug(p, p.caught) for p in some] + [FoundBug(BUGS[0], ())],
    )
    assert mutation_table.main([]) == 1
    out = capsys.readouterr().out
    assert "| It logs the mean reward of every block, to see how things go. |" in out
    assert f"| {'; '.join(p.host for p in some)} | data flow |" in out
    assert "| UCBVI | ; NOT AS IT SHOULD in UCBVI |" in out
    assert f"{len(some)} of {len(some) + 1} planted bugs found: 2 different ones, in " in out


@pytest.mark.slow
def test_few_false_alarms() -> None:
    assert mutation_table.false_alarms(3) == []


@pytest.mark.slow
def test_no_false_alarms() -> None:
    assert mutation_table.false_alarms(200) == []


@pytest.mark.slow
def test_audits_are_tight() -> None:
    """In every family some agent's worst pair, as found by search, costs what is claimed.

    The measured cost has a relative error of 0.5 % at most, six standard deviations.
    """
    best: dict[str, float] = {}
    for host, ratio in mutation_table.tightness().items():
        family = HOSTS[host].family
        best[family] = max(best.get(family, 0.0), ratio)
        assert ratio < 1.02
    assert min(best.values()) > 0.95, best
