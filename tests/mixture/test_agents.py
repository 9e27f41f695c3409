"""Mixture agents: what they promise, choose, refuse and learn; and slips that are found."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import (
    Agent,
    AgentKind,
    JointDP,
    LinOptPO,
    LinOptVI,
    LocalDP,
    NonPrivate,
    Relation,
)
from tacit.core.asks import Ask, Asks
from tacit.mixture import MixtureWorld, hard_mixture, mixture_from_tabular, mixture_of_models
from tacit.mixture.base import MixtureConstants
from tacit.mixture.linopt_vi import LinOptVI as LinOptVIAlgorithm
from tacit.mixture.model_sums import ModelSums
from tacit.mixture.path_counts import PathCounts
from tacit.numerics.block_sums import BlockSums
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.statistic import Block
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed
from tacit.tabular import riverswim
from tacit.testing.check_agent import check_agent
from tacit.testing.watched_gate import Passage, WatchedGate, difference, snapshot
from tests.finite import agent_checks as shared
from tests.finite.agent_checks import DrawnOnce, Halved, Source

Floats = NDArray[np.float64]

KNOWN = mixture_of_models(3, 4, 4, 4, seed=700)
UNKNOWN = mixture_of_models(3, 4, 4, 4, seed=700, known_rewards=False)
HARD = hard_mixture(3, 3)
HARD_UNKNOWN = hard_mixture(3, 3, known_rewards=False)
JOINT = JointDP(10.0, 1e-6)
PURE = JointDP(10.0, 0.0)
LOCAL = LocalDP(20.0, 1e-6)
LAPLACE = LocalDP(20.0, 0.0)
BITS = LocalDP(20.0, 0.0, mechanism="randomised response")
FEW = "fixed:size=60"

AGENTS: dict[str, Any] = {"vi": LinOptVI, "po": LinOptPO}


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


# The conformance check.

Case = tuple[str, MixtureWorld, dict[str, Any]]


def every_case() -> dict[str, Case]:
    """Every agent with everything that can be asked under every privacy."""
    cases: dict[str, Case] = {}
    for rewards, world in (("known", KNOWN), ("unknown", UNKNOWN)):
        for privacy in (NonPrivate(), JOINT, LOCAL):
            for agent in ("vi", "po"):
                name = f"{agent}, model, {rewards}, {privacy}"
                cases[name] = (agent, world, {"statistic": "model", "privacy": privacy})
    for rewards, world in (("known", HARD), ("unknown", HARD_UNKNOWN)):
        for privacy in (NonPrivate(), JOINT, PURE, LOCAL, LAPLACE, BITS):
            options = {"statistic": "counts", "privacy": privacy}
            cases[f"vi, counts, {rewards}, {privacy}"] = ("vi", world, options)
    per_step: dict[str, Any] = {"statistic": "model", "privacy": JOINT, "stationary": False}
    for agent in ("vi", "po"):
        cases[f"{agent}, model, per step"] = (agent, UNKNOWN, per_step)
    relation = {"statistic": "model", "privacy": JointDP(5.0, 1e-6, Relation.ZERO_OUT)}
    cases["vi, zero-out"] = ("vi", UNKNOWN, relation)
    return cases


CASES = every_case()
SOME = [
    f"vi, model, unknown, {JOINT}",
    f"po, model, known, {JOINT}",
    f"po, model, known, {LOCAL}",
    f"vi, model, unknown, {NonPrivate()}",
    f"vi, counts, unknown, {PURE}",
    f"vi, counts, known, {LAPLACE}",
    f"vi, counts, unknown, {BITS}",
    "po, model, per step",
]


def check(case: Case, **options: Any) -> Any:
    name, world, own = case
    few = {"schedule": FEW} | ({"steps": 2} if name == "po" else {})
    make = partial(AGENTS[name], **few | own)
    return check_agent(make, world, users=240, **options)


def assert_checked(case: Case) -> None:
    report = check(case)
    shared.assert_report(report, case[2]["privacy"])
    assert max(report.tightness) <= 1.0 + 1e-9


@pytest.mark.parametrize("name", SOME)
def test_agents_pass_the_check(name: str) -> None:
    assert_checked(CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_agent_passes_the_check(name: str) -> None:
    assert_checked(CASES[name])


# What is chosen.


def made(world: Any = UNKNOWN, users: int = 240, cls: Any = LinOptVI, **options: Any) -> Any:
    spec = getattr(world, "spec", world)
    return cls(spec, users, **{"privacy": JOINT, "noise_seed": 0} | options)


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({}, "model", "every transition informs on all weights"),
        ({"privacy": NonPrivate()}, "model", "every transition"),
        ({"privacy": LOCAL}, "model", "every transition"),
        ({"privacy": PURE}, "counts", "1-norm"),
        ({"privacy": LAPLACE}, "counts", "1-norm"),
        ({"privacy": BITS}, "counts", "1-norm"),
        ({"world": HARD}, "counts", "few next states inform"),
        ({"world": HARD, "privacy": NonPrivate()}, "model", "every transition"),
        ({"world": HARD, "privacy": LOCAL}, "model", "every transition"),
        ({"world": HARD, "cls": LinOptPO}, "counts", "few next states inform"),
        ({"statistic": "counts"}, "counts", "as asked"),
    ],
    ids=str,
)
def test_it_says_what_it_chose(options: Any, kind: str, reason: str) -> None:
    agent = made(schedule="fixed:size=80", **options)
    assert agent.statistic_kind == kind
    kinds = {"model": ModelSums, "counts": PathCounts}
    assert isinstance(agent.statistic, kinds[kind])
    assert f"statistic {kind!r}: " in agent.why
    assert reason in agent.why
    assert "3 releases (fixed:size=80)" in agent.why


def test_users_are_summed_one_by_one_only_where_a_clip_needs_it() -> None:
    assert made(privacy=NonPrivate()).form == "counts"
    assert made(statistic="counts").form == "occupancy"
    assert made(statistic="model").form == "episodes"
    large = made(users=10**9, statistic="model", schedule="fixed:size=1000000")
    assert large.form == "counts"
    small = made(users=10**9, statistic="model", schedule="fixed:size=10")
    assert small.statistic.l2(Relation.REPLACE_ONE) < large.statistic.l2(Relation.REPLACE_ONE)


def test_growth_decides_how_many_releases_there_are() -> None:
    shared.growth_decides(made, "model", "counts")


def test_smaller_budgets_begin_with_larger_blocks() -> None:
    shared.smaller_budgets_begin_larger(made, "model", "counts")


def test_known_rewards_are_not_asked_for() -> None:
    for statistic in ("model", "counts"):
        known, unknown = (made(world, statistic=statistic).statistic for world in (KNOWN, UNKNOWN))
        more = {part.name for part in unknown.layout.parts} - {
            part.name for part in known.layout.parts
        }
        assert more == ({"rewards"} if statistic == "counts" else {"rewards", "reward_gram"})


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *shared.MISTAKES,
        ({"world": riverswim(3, 4).spec}, "MixtureSpec"),
        ({"statistic": "sums"}, "auto, model or counts"),
        ({"privacy": LOCAL, "autosave": "somewhere"}, "belong to JointDP"),
        # What does not go together.
        ({"statistic": "model", "privacy": PURE}, "needs Gaussian noise: delta > 0"),
        ({"statistic": "model", "privacy": LAPLACE}, "Gaussian mechanism under LocalDP"),
        ({"statistic": "model", "privacy": BITS}, "Gaussian mechanism under LocalDP"),
        ({"bonus": "theory"}, "tacit.papers has what a paper prints and proves"),
        ({"calibration": "as_printed"}, "tacit.papers"),
        ({"regulariser": None}, "tacit.papers"),
        # Policy optimisation.
        ({"cls": LinOptPO, "eta": 0.0}, "eta must be > 0"),
        ({"cls": LinOptPO, "eta": math.nan}, "eta must be > 0"),
        ({"cls": LinOptPO, "steps": 0}, "steps must be an integer >= 1"),
        ({"cls": LinOptPO, "steps": 2.5}, "steps must be an integer >= 1"),
        ({"cls": LinOptPO, "steps": True}, "steps must be an integer >= 1"),
        # What went.
        ({"statistic": "values"}, "auto, model or counts"),
        ({"misspecification": 0.1}, "misspecification"),
    ],
    ids=str,
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        made(**options)


def test_wrong_data_changes_nothing() -> None:
    shared.wrong_data_changes_nothing(made(schedule=FEW), UNKNOWN, "counts")


# Users.


@pytest.mark.parametrize("statistic", ["model", "counts"])
def test_somebody_who_comes_again_counts_as_nobody(statistic: str) -> None:
    shared.who_comes_again_counts_as_nobody(made, UNKNOWN, statistic)


@pytest.mark.parametrize(
    ("cls", "statistic", "privacy"),
    [
        (LinOptVI, "model", LOCAL),
        (LinOptPO, "model", LOCAL),
        (LinOptVI, "counts", LAPLACE),
        (LinOptVI, "counts", BITS),
    ],
    ids=str,
)
def test_devices_report_what_agents_ask(cls: Any, statistic: Any, privacy: Any) -> None:
    world = HARD_UNKNOWN if statistic == "counts" else UNKNOWN
    agent = cls(world.spec, 60, privacy, schedule="fixed:size=20", statistic=statistic)
    shared.devices_report_what_is_asked(agent, world, privacy)


def values_are_truncated(agent: Any, world: MixtureWorld) -> None:
    """Q is in [0, H - h]."""
    rng, H = np.random.default_rng(0), world.spec.horizon
    left = np.arange(H, 0, -1.0)[:, np.newaxis]
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
        assert (agent.q_values >= 0.0).all()
        assert (agent.q_values <= left[..., np.newaxis] + 1e-12).all(), "longer than an episode"


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_values_are_truncated(cls: Any) -> None:
    for epsilon in (0.01, 100.0):
        options: dict[str, Any] = {"statistic": "model", "scale": 5.0}
        privacy = JointDP(epsilon, 1e-6)
        values_are_truncated(
            made(cls=cls, users=80, schedule="fixed:size=20", privacy=privacy, **options), UNKNOWN
        )


# Slips.


class SeesRawData(LinOptVIAlgorithm):
    """Has the episodes of all users, which only a hole in the wall can give it."""

    raw: list[Block]


def through_a_hole(algorithm: type[SeesRawData]) -> Any:
    """A kind of agents that tells its algorithm what it must not be told."""

    def make(*args: Any, **options: Any) -> Agent:
        agent = AgentKind(algorithm)(*args, **options)
        waiting, raw = agent._session.waiting, []
        joined = waiting.joined

        def telling(*given: Any) -> Any:
            found = joined(*given)
            raw.append(found[0])
            return found

        waiting.joined = telling
        agent.algorithm.raw = raw
        return agent

    return make


class RecomputesOldUsers(SeesRawData):
    """The same behind the gate's back: new noise for the new block only."""

    def asks(self) -> Asks:
        statistic = self.statistic()
        release = yield Ask(statistic)
        self._sums = BlockSums()
        for old in self.raw[:-1]:
            parts = statistic.layout.unpack(statistic.total(old))
            self._sums.add(parts, dict.fromkeys(parts, 0.0), 1.0, old.users)
        self.take_in(release, statistic)


def test_old_users_are_never_asked_again() -> None:
    mutant = through_a_hole(RecomputesOldUsers)
    make = partial(mutant, privacy=JOINT, statistic="model", schedule=FEW)
    with pytest.raises(CheckFailed, match=r"^(data flow|hostile users|resume): "):
        check_agent(make, UNKNOWN, users=240)


class ForgetsSums(LinOptVIAlgorithm):
    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(meta, arrays)
        self._sums.top *= 2.0


def test_what_is_not_saved_is_found() -> None:
    kind = AgentKind(ForgetsSums)
    make = partial(kind, privacy=JointDP(100.0, 1e-6), statistic="model", schedule=FEW)
    with pytest.raises(CheckFailed, match=r"^resume: .*differ"):
        check_agent(make, UNKNOWN, users=240)


class NoTruncation(LinOptVIAlgorithm):
    """Optimism without end: every step adds its whole width."""

    def optimistic_values(self, model: Any) -> tuple[Floats, Floats]:
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        Q, V = np.zeros((H, S, A)), np.zeros(S)
        for h in reversed(range(H)):
            rewards, widths = model.rewards(h)
            Q[h] = rewards + widths
            if h < H - 1:
                means, spread = model.next_values(h, V[np.newaxis])
                Q[h] += means[0] + spread[0]
            V = Q[h].max(axis=1)
        self.q_values = Q
        return Q, Q


def test_values_that_are_not_truncated_are_found() -> None:
    options = {"statistic": "model", "privacy": JointDP(0.01, 1e-6), "scale": 5.0}
    mutant = partial(
        made, cls=AgentKind(NoTruncation), users=80, schedule="fixed:size=20", **options
    )
    with pytest.raises(AssertionError, match="longer than an episode"):
        values_are_truncated(mutant(), UNKNOWN)


# Noise: users who all stay at home leave nothing else.

WORLD_OF_NOISE = UNKNOWN


def played(make: Any, seed: int, releases: int = 6) -> list[Passage]:
    agent = make(WORLD_OF_NOISE.spec, 10 * releases, noise_seed=seed)
    with WatchedGate().open() as gate:
        while agent.block_users:
            users = min(10, agent.block_users)
            block = WORLD_OF_NOISE.simulate(
                agent.policy, users, np.random.default_rng(0), "episodes"
            ).block()
            nobody = np.full_like(block["states"], -1)
            agent.learn(Block(users, {**block.arrays, "states": nobody}))
    return gate.passages


def scaled(passage: Passage) -> dict[str, Floats]:
    """Noise by part and row, each entry in units of its standard deviation."""
    parts = {}
    for part in passage.statistic.layout.parts:
        noise = passage.release[part.name] / float(np.max(passage.release.std[part.name]))
        if part.symmetric:
            rows, columns = np.triu_indices(noise.shape[-1])
            noise = noise[..., rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0))
        parts[part.name] = noise.reshape(len(noise), -1)
    return parts


def noise_is_as_announced_and_fresh(make: Any, runs: int = 12) -> None:
    found: dict[str, list[Floats]] = {}
    between: list[Floats] = []
    for seed in range(runs):
        passages = played(make, seed)
        assert len(passages) == 6
        for i, passage in enumerate(passages):
            cost, own = passage.release.cost, scaled(passage)
            assert cost is not None
            demanded = passage.statistic.sensitivity(JOINT.relation, "l2") / cost
            for part in passage.statistic.layout.parts:
                std = float(np.max(passage.release.std[part.name]))
                assert std == pytest.approx(demanded / part.weight, rel=3e-4)
            for name, noise in own.items():
                found.setdefault(name, []).append(noise.ravel())
                # No row has anything of another one, nor any release of one before.
                between += [(a * b).ravel() for a, b in zip(noise[1:], noise[:-1], strict=True)]
                for earlier in passages[:i]:
                    before = scaled(earlier)[name]
                    if before.shape == noise.shape:
                        between.append((noise * before).ravel())
    for name, values in found.items():
        squares = np.concatenate(values) ** 2
        width = 6.0 * math.sqrt(2.0 / squares.size)
        assert abs(squares.mean() - 1.0) < width, f"{name}: of variance {squares.mean():.3f}"
    products = np.concatenate(between)
    width = 6.0 / math.sqrt(products.size)
    assert abs(products.mean()) < width, f"products of mean {products.mean():.3f}"


def noisy(statistic: str, **options: Any) -> Any:
    return partial(
        LinOptVI, privacy=JOINT, statistic=statistic, schedule="fixed:size=10", **options
    )


@pytest.mark.parametrize(
    ("statistic", "options"),
    [
        ("model", {}),
        ("model", {"stationary": False}),
        ("counts", {}),
    ],
    ids=str,
)
def test_noise_is_what_it_should_be(statistic: str, options: Any) -> None:
    noise_is_as_announced_and_fresh(noisy(statistic, **options))


class SameForAllSteps(Source):
    """Every step has the noise of the first: parts are rows of these lengths, one per step."""

    def normal(self, shape: tuple[int, ...]) -> Floats:
        k, m, steps = WORLD_OF_NOISE.spec.free, 4, 4
        sizes = (k * (k + 1) // 2, k, m * (m + 1) // 2, m)
        assert math.prod(shape) == steps * sum(sizes)
        rows = [np.tile(self._noise.normal((size,)), steps) for size in sizes]
        return np.concatenate(rows).reshape(shape)


def with_source(kind: type[Source], make: Any) -> Any:
    def mutant(*args: Any, noise_seed: int, **options: Any) -> Any:
        agent = make(*args, noise_seed=noise_seed, **options)
        agent._curator._source = kind(noise_seed)
        return agent

    return mutant


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (Halved, r"of variance 0\.2"),
        (DrawnOnce, r"products of mean (0\.[2-9]|1\.)"),
        (SameForAllSteps, r"products of mean (0\.[2-9]|1\.)"),
    ],
)
def test_noise_with_a_slip_is_found(slip: type[Source], message: str) -> None:
    make = noisy("model", stationary=False)
    with pytest.raises(AssertionError, match=message):
        noise_is_as_announced_and_fresh(with_source(slip, make))


# What is added to Gram matrices.


def test_a_ridge_grows_with_the_noise() -> None:
    agent = made().algorithm
    prior = 1e-3 / (agent.public.radius * agent.public.scale) ** 2
    gram = np.diag([-5.0, 0.0, 2.0, 7.0])
    for noise in (0.0, 3.0):
        expected = np.diag([0.0, 0.0, 2.0, 7.0]) + (prior + 2.0 * noise) * np.eye(4)
        np.testing.assert_allclose(agent.regularised(gram, noise, 1), expected, atol=1e-12)


# Save and resume.


@pytest.mark.parametrize(
    "other",
    [
        *shared.OTHERS,
        {"constants": MixtureConstants(bonus=0.5)},
        {"schedule": "fixed:size=30"},
        {"cls": LinOptPO},
        {"world": KNOWN},
    ],
    ids=str,
)
def test_a_save_of_another_agent_is_refused_and_stays_loadable(other: Any, tmp_path: Any) -> None:
    base = {"schedule": FEW, "statistic": "model", "noise_seed": None}
    shared.save_of_another_is_refused(made, UNKNOWN, base, other, tmp_path)


@pytest.mark.parametrize(
    ("cls", "statistic"),
    [
        (LinOptVI, "model"),
        (LinOptVI, "counts"),
        (LinOptPO, "model"),
        (LinOptPO, "counts"),
    ],
)
def test_a_killed_process_resumes_from_its_autosave(
    cls: Any, statistic: str, tmp_path: Any
) -> None:
    path = tmp_path / "state"
    options: dict[str, Any] = {"statistic": statistic, "schedule": FEW, "cls": cls}
    agent = made(**options, autosave=path)
    shared.serve(agent, UNKNOWN)
    resumed: Agent = made(**options, seed=5, noise_seed=7).load(path)
    assert not difference(snapshot(agent), snapshot(resumed))
    np.testing.assert_array_equal(resumed.q_values, agent.q_values)
    assert resumed._curator.blocks == ()


# That they learn.


def learnt(world: MixtureWorld, cls: Any, users: int, privacy: Any, **options: Any) -> list[float]:
    """Value of the last policy over the optimum, in some runs."""
    found = []
    for seed in range(2):
        agent = cls(world.spec, users, privacy, seed=seed, noise_seed=noise_seed(seed), **options)
        run(agent, world, seed, progress=False)
        found.append(world.value(agent.policy) / world.optimal_value)
    return found


@pytest.mark.parametrize(
    ("cls", "statistic", "users"),
    [
        (LinOptVI, "model", 5_000),
        (LinOptVI, "counts", 100_000),
        (LinOptPO, "model", 5_000),
        (LinOptPO, "counts", 100_000),
    ],
)
def test_private_agents_learn(cls: Any, statistic: str, users: int) -> None:
    world = mixture_of_models(seed=500)
    assert world.baseline_value < 0.5 * world.optimal_value
    found = learnt(world, cls, users, JointDP(10.0, 1e-6), statistic=statistic)
    assert min(found) > 0.9


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_rewards_are_learnt_too(cls: Any) -> None:
    world = mixture_of_models(seed=500, known_rewards=False)
    assert min(learnt(world, cls, 20_000, JointDP(10.0, 1e-6))) > 0.9


def test_local_agents_learn() -> None:
    world = mixture_of_models(seed=500)
    assert min(learnt(world, LinOptVI, 10**6, LocalDP(10.0, 1e-6))) > 0.9


def test_finite_worlds_are_learnt_as_mixtures() -> None:
    world = mixture_from_tabular(riverswim(3, 6))
    assert min(learnt(world, LinOptVI, 200_000, JointDP(10.0, 1e-6))) > 0.9


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_chance_alone_explains_no_learning(cls: Any) -> None:
    """The same run at a budget that drowns everything in noise."""
    world = mixture_of_models(seed=500)
    assert np.median(learnt(world, cls, 5_000, JointDP(1e-4, 1e-6))) < 0.9
