"""Linear agents with a slip: each is what somebody could write, and a named check finds it.

Some slips are the papers' own: noise that is drawn once, noise that adds up, features longer than
the sensitivity allows for.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import LSVIUCB, JointDP, LSVIUCBPlusPlus, check_statistic
from tacit.core.agent import Agent
from tacit.core.kinds import AgentKind
from tacit.linear import LinearWorld, simplex, statistics, two_state
from tacit.linear.estimate import feature_sums
from tacit.linear.statistics import FeatureSums
from tacit.linear.tables import check_features
from tacit.numerics.block_sums import BlockSums
from tacit.privacy.curator import Release
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import CheckFailed
from tacit.privacy.exact import grid_step, grid_total
from tacit.privacy.statistic import Block, Statistic
from tacit.testing.check_agent import check_agent
from tacit.testing.made_up_users import sampler_of
from tacit.testing.watched_gate import Passage, WatchedGate
from tests.finite.agent_checks import DrawnOnce, Halved, Source

Floats = NDArray[np.float64]

WORLD = simplex(dimension=3, states=8, actions=3, horizon=4)
JOINT = JointDP(10.0, 1e-6)
FEW = "fixed:size=60"
STATISTICS = ("features", "counts")


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def check(cls: Any, world: LinearWorld = WORLD, **options: Any) -> None:
    make = partial(cls, **{"privacy": JOINT, "schedule": FEW, "scale": 0.1} | options)
    check_agent(make, world, users=240)


# Noise, part by part. ``check_agent`` looks at all parts together, and only for too little.


def played(cls: Any, statistic: str, seed: int, releases: int = 6, **options: Any) -> Any:
    """An agent whose users all stayed at home, and all that went through its gate: noise alone."""
    agent = cls(
        WORLD.spec,
        10 * releases,
        JOINT,
        statistic=statistic,
        schedule="fixed:size=10",
        noise_seed=seed,
        **options,
    )
    with WatchedGate().open() as gate:
        while agent.block_users:
            block = WORLD.simulate(agent.policy, 10, np.random.default_rng(0), "episodes").block()
            nobody = np.full_like(block["states"], -1)
            agent.learn(Block(10, {**block.arrays, "states": nobody}))
    return agent, gate.passages


def entries(part: Floats, symmetric: bool) -> dict[str, Floats]:
    """Numbers that have one standard deviation each, in units of that of the diagonal."""
    if not symmetric:
        return {"all": part.ravel()}
    rows, columns = np.triu_indices(part.shape[-1], 1)
    return {
        "diagonal": np.diagonal(part, axis1=-2, axis2=-1).ravel(),
        "beside it": part[..., rows, columns].ravel() * math.sqrt(2.0),
    }


def assert_variance(what: str, values: Floats) -> None:
    """It is 1, up to six standard deviations of chance."""
    ratio, width = float((values**2).mean()), 6.0 * math.sqrt(2.0 / values.size)
    assert abs(ratio - 1.0) < width, f"{what}: {values.size} values of variance {ratio:.3f}"


def noise_is_as_announced(cls: Any, statistic: str, runs: int = 15, **options: Any) -> None:
    """In every part of every release, neither smaller nor larger."""
    found: dict[str, list[Floats]] = {}
    for seed in range(runs):
        _, passages = played(cls, statistic, seed, **options)
        for passage in passages:
            demanded = demanded_std(passage)
            for part in passage.statistic.layout.parts:
                std = float(np.max(passage.release.std[part.name]))
                assert std == pytest.approx(demanded / part.weight, rel=3e-4)
                noise = entries(passage.release[part.name] / std, part.symmetric)
                for name, values in noise.items():
                    found.setdefault(f"{part.name}, {name}", []).append(values)
    assert found
    for what, values in found.items():
        assert_variance(what, np.concatenate(values))


def demanded_std(passage: Passage) -> float:
    """Sensitivity over cost, of an entry of weight 1."""
    cost = passage.release.cost
    assert cost is not None
    return passage.statistic.sensitivity(JOINT.relation, "l2") / cost


def noise_is_fresh(cls: Any, statistic: str, runs: int = 15, **options: Any) -> None:
    """No release has anything of the noise of another one."""
    products: list[Floats] = []
    for seed in range(runs):
        _, passages = played(cls, statistic, seed, **options)
        vectors = [
            passage.statistic.layout.pack(passage.release.parts) / demanded_std(passage)
            for passage in passages
        ]
        for i, one in enumerate(vectors):
            for other in vectors[:i]:
                if len(one) == len(other):
                    products.append(one * other)
    values = np.concatenate(products)
    mean, width = float(values.mean()), 6.0 / math.sqrt(values.size)
    assert abs(mean) < width, f"{values.size} products of mean {mean:.3f}"


def sums_have_the_noise_they_state(cls: Any, runs: int = 30, **options: Any) -> None:
    """What planning reads: sums over all blocks, and how far off they may be."""
    found: dict[str, list[Floats]] = {}
    for seed in range(runs):
        agent, _ = played(cls, "features", seed, **options)
        sums = feature_sums(agent.algorithm.way.known)
        parts = {
            "gram": entries(sums.gram / sums.gram_noise, symmetric=True),
            "next": entries(sums.following / sums.noise, symmetric=False),
            "rewards": entries(sums.rewards / sums.reward_noise, symmetric=False),
        }
        for part, of_part in parts.items():
            for name, values in of_part.items():
                found.setdefault(f"{part}, {name}", []).append(values)
    for what, values in found.items():
        assert_variance(what, np.concatenate(values))


NOISE_CHECKS: dict[str, Callable[..., None]] = {
    "as announced": noise_is_as_announced,
    "fresh": noise_is_fresh,
}


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("name", NOISE_CHECKS)
def test_noise_is_what_it_should_be(name: str, statistic: str) -> None:
    for cls in (LSVIUCB, LSVIUCBPlusPlus):
        NOISE_CHECKS[name](cls, statistic)


def test_sums_over_blocks_have_the_noise_they_state() -> None:
    sums_have_the_noise_they_state(LSVIUCB)
    sums_have_the_noise_they_state(LSVIUCBPlusPlus)


class AddsUp(Source):
    """As the paper's line 26 reads: the noise of before is still in there."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._sums: dict[tuple[int, ...], Floats] = {}

    def normal(self, shape: tuple[int, ...]) -> Floats:
        self._sums[shape] = self._sums.get(shape, 0.0) + self._noise.normal(shape)
        return self._sums[shape]


def with_source(kind: type[Source], base: Any = LSVIUCB) -> Any:
    def mutant(*args: Any, noise_seed: int | None = None, **options: Any) -> Agent:
        agent: Agent = base(*args, noise_seed=noise_seed, **options)
        if noise_seed is not None:
            agent._curator._source = kind(noise_seed)
        return agent

    return mutant


@pytest.mark.parametrize("statistic", STATISTICS)
def test_half_the_noise_is_found(statistic: str) -> None:
    mutant = with_source(Halved)
    with pytest.raises(AssertionError, match=r"variance 0\.2"):
        noise_is_as_announced(mutant, statistic)
    with pytest.raises(CheckFailed, match=r"^noise: .*entries are not the sum|needs one draw"):
        check(mutant, statistic=statistic)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_noise_that_is_drawn_once_is_found(statistic: str) -> None:
    with pytest.raises(AssertionError, match=r"products of mean (0\.[2-9]|1\.)"):
        noise_is_fresh(with_source(DrawnOnce), statistic)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_noise_that_adds_up_is_found(statistic: str) -> None:
    mutant = with_source(AddsUp)
    with pytest.raises(AssertionError, match=r"values of variance [1-9]\."):
        noise_is_as_announced(mutant, statistic)
    with pytest.raises(AssertionError, match="products of mean"):
        noise_is_fresh(mutant, statistic)


def test_sums_that_take_old_noise_again_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = BlockSums.add

    def again(self: BlockSums, *args: Any) -> None:
        if "gram" in self.parts:
            self.parts["gram"] = 2.0 * self.parts["gram"]
        add(self, *args)

    monkeypatch.setattr(BlockSums, "add", again)
    with pytest.raises(AssertionError, match=r"^gram, diagonal: .* of variance [1-9]\d\d\."):
        sums_have_the_noise_they_state(LSVIUCB)


def gram_without_noise(*args: Any, **options: Any) -> Agent:
    """Grams are of features, which are public, are they not?"""
    agent = LSVIUCB(*args, **options)
    agent._curator.__class__ = _LetsGramsThrough
    return agent


class _LetsGramsThrough(JointCurator):
    def release(self, statistic: Statistic, **options: Any) -> Release:
        released = super().release(statistic, **options)
        if not isinstance(statistic, FeatureSums):
            return released
        block, step = options.get("block"), grid_step(statistic, "l2")
        raw = self._blocks[self.entered - 1 if block is None else block]
        true: Mapping[str, Floats] = statistic.layout.unpack(
            step * grid_total(statistic, raw, step).astype(np.float64)
        )
        released = dataclasses.replace(released, parts={**released.parts, "gram": true["gram"]})
        self.last_release = released
        return released


def test_grams_without_noise_are_found() -> None:
    with pytest.raises(AssertionError, match=r"^gram, diagonal: \d+ values of variance 0\.0"):
        noise_is_as_announced(gram_without_noise, "features")


def test_grams_without_noise_are_found_by_the_check() -> None:
    with pytest.raises(CheckFailed, match=r"^noise: .* 6 of 33 entries are not the sum"):
        check(gram_without_noise, statistic="features")


# Sensitivity.


@dataclass(frozen=True, eq=False)
class UncutFeatures(FeatureSums):
    """Bounds are for features of length 1; sums are of features as they come, thrice as long."""

    def _sums(self, block: Block, separate: bool) -> Floats:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statistics, "unit_features", check_features)
            fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
            long = FeatureSums(**fields | {"features": 3.0 * self.features, "clip": None})
        return long._sums(block, separate)


class TakesLongFeatures(LSVIUCB.algorithm):
    def statistic(self) -> Statistic:
        true = super().statistic()
        fields = {f.name: getattr(true, f.name) for f in dataclasses.fields(true) if f.init}
        return UncutFeatures(**fields)


def test_features_that_are_too_long_are_found() -> None:
    users = WORLD.simulate(LSVIUCB(WORLD.spec, 9, JOINT).policy, 50, np.random.default_rng(0))
    sample = sampler_of(users.block(), None)
    for true, mutant in (
        (FeatureSums(WORLD.features, 4), UncutFeatures(WORLD.features, 4)),
        (
            FeatureSums(WORLD.features, 4, pooled=True),
            UncutFeatures(WORLD.features, 4, pooled=True),
        ),
    ):
        check_statistic(true, sample)
        with pytest.raises(CheckFailed):
            check_statistic(mutant, sample)
    with pytest.raises(CheckFailed, match=r"^sensitivity: .*was found"):
        check(AgentKind(TakesLongFeatures), statistic="features", stationary=False)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_long_features_are_cut_by_the_agents_themselves(statistic: str) -> None:
    """The same world with features of length 3, and factors a third as large."""
    check(LSVIUCB, long_world(), statistic=statistic)


def long_world() -> LinearWorld:
    return LinearWorld(3.0 * WORLD.features, WORLD.measures / 3.0, WORLD.rewards / 3.0, 4)


# Data flow.


def shown(cls: Any) -> Any:
    """Agents who let their algorithm see every block on its way to the curator."""

    def mutant(*args: Any, **options: Any) -> Agent:
        agent = AgentKind(cls)(*args, **options)
        curator: Any = agent._curator

        def add(block: Block, user_ids: Any = None) -> int:
            agent.algorithm.seen = block
            number: int = type(curator).add(curator, block, user_ids)
            return number

        curator.add = add
        return agent

    return mutant


class RawWeights(LSVIUCBPlusPlus.algorithm):
    """Weights come from what the users' rewards really varied by."""

    form = "episodes"
    seen: Block

    def plan(self) -> Any:
        policies = super().plan()
        block = self.seen
        states, rewards = np.asarray(block["states"]), np.asarray(block["rewards"])
        spread = self._variances.copy()
        for s in range(self.spec.states):
            there = np.clip(np.nan_to_num(rewards[states[:, :-1] == s]), 0.0, 1.0)
            spread[:, s] += there.var() if there.size else 0.0
        self._variances, self._asked = spread, None
        return policies


class RawSwitch(LSVIUCB.algorithm):
    """Whether it replaces its policy depends on where the users really were."""

    seen: Block

    def switch(self, model: Any) -> bool:
        states = np.clip(np.asarray(self.seen["states"]), 0, self.spec.states - 1)
        return bool(np.bincount(states.ravel()).max() % 2)


class RawScale(LSVIUCB.algorithm):
    """What it expects of values is what users were really paid."""

    seen: Block

    def bounded(self, name: str, step: int, q_values: Floats) -> Floats:
        rewards = np.clip(np.nan_to_num(np.asarray(self.seen["rewards"])), 0.0, 1.0)
        return np.minimum(q_values, float(rewards.sum(axis=1).mean()) + 1.0)


@pytest.mark.parametrize(
    ("mutant", "statistic"),
    [
        (RawWeights, "features"),
        (RawWeights, "counts"),
        (RawSwitch, "features"),
        (RawScale, "features"),
    ],
)
def test_raw_data_beyond_the_gate_is_found(mutant: Any, statistic: str) -> None:
    with pytest.raises(CheckFailed, match=r"^(data flow|hostile users): "):
        check(shown(mutant), statistic=statistic)


def test_the_agents_themselves_pass() -> None:
    """So it is the slips that are found."""
    for statistic in STATISTICS:
        check(LSVIUCBPlusPlus, statistic=statistic)


# Save and resume.


class ForgetsWeights(LSVIUCBPlusPlus.algorithm):
    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(meta, arrays)
        self._variances = None


class ForgetsPrecision(LSVIUCBPlusPlus.algorithm):
    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(meta, arrays)
        self._last_precision = None


class ForgetsBounds(LSVIUCBPlusPlus.algorithm):
    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(meta, arrays)
        self._bounds = self._first_bounds()


class ForgetsHowMuchBlocksWeigh(LSVIUCB.algorithm):
    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(meta, arrays)
        halved = {name: 0.5 * v for name, v in self.way.known.variances.items()}
        self.way.known.variances = halved


@pytest.mark.parametrize(
    ("mutant", "options"),
    [
        (ForgetsWeights, {"statistic": "features"}),
        (ForgetsPrecision, {"statistic": "features", "privacy": JointDP(1e4, 1e-6)}),
        (ForgetsHowMuchBlocksWeigh, {"statistic": "features"}),
    ],
)
def test_what_is_not_saved_is_found(mutant: Any, options: dict[str, Any]) -> None:
    with pytest.raises(CheckFailed, match=r"^resume: .*differ"):
        check(AgentKind(mutant), **options)


def test_bounds_that_are_not_saved_are_found() -> None:
    """Of few users little is known: what a save holds of bounds shows with many."""
    world = two_state(horizon=3)
    for cls, kept in ((LSVIUCBPlusPlus, True), (AgentKind(ForgetsBounds), False)):
        make = partial(
            cls,
            world.spec,
            3 * 10**9,
            JOINT,
            schedule="fixed:size=1000000000",
            noise_seed=0,
        )
        agent, rng = make(), np.random.default_rng(0)
        for _ in range(2):
            agent.learn(world.simulate(agent.policy, 10**9, rng, agent.form))
        meta, arrays = agent._dump()
        fresh = make()
        fresh._session.restore(meta, arrays)
        assert (fresh.lower_values == agent.lower_values).all() == kept
        assert (agent.lower_values > 0.0).any()
