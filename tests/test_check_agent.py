"""``check_agent``: every agent passes it, and agents with a slip do not.

Each mutant is an agent that someone could write in good faith. What it does wrong is in its
docstring; the check must find it, and say so under the right name.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytest

from tacit import JointDP, LocalDP, NonPrivate
from tacit.audit.check_agent import AgentReport, check_agent
from tacit.finite.policy import Policy
from tacit.finite.visits import VisitCounts
from tacit.privacy.budget import Budget
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block
from tacit.tabular import riverswim
from tacit.tabular.ldpob import LDPOB
from tacit.tabular.pucb import PUCB
from tacit.tabular.ucbpo import UCBPO
from tacit.tabular.ucbvi import UCBVI

WORLD = riverswim(3, 4)
JOINT = JointDP(1.0, 1e-6)
FEW = "fixed:size=60"

NAMES = {
    "protocol",
    "chunks",
    "refusals",
    "sensitivity",
    "budget",
    "noise",
    "data flow",
    "hostile users",
    "resume",
    "real resume",
    "ties",
    "labels",
}

AGENTS: dict[str, Callable[..., Any]] = {
    "ucbvi, stationary": partial(UCBVI, privacy=JOINT, schedule=FEW),
    "ucbvi, per step": partial(UCBVI, privacy=JOINT, schedule=FEW, stationary=False),
    "ucbvi, pure": partial(UCBVI, privacy=JointDP(1.0, 0.0), schedule=FEW),
    "ucbvi, tree": partial(UCBVI, privacy=JOINT, schedule=FEW, counter="binary tree"),
    "ucbvi, theory": partial(UCBVI, privacy=JOINT, schedule=FEW, stationary=False, bonus="theory"),
    "ucbvi, local": partial(UCBVI, privacy=LocalDP(4.0, 1e-6), schedule=FEW),
    "ucbvi, local, pure": partial(UCBVI, privacy=LocalDP(4.0, 0.0), schedule=FEW),
    "ucbvi, no privacy": partial(UCBVI, privacy=NonPrivate(), schedule=FEW),
    "ucbpo": partial(UCBPO, privacy=JOINT, schedule=FEW),
    "pucb": partial(PUCB, privacy=JOINT, schedule=FEW),
    "ldpob": partial(LDPOB, privacy=LocalDP(4.0, 0.0), schedule=FEW),
}


def check(make: Callable[..., Any], **options: Any) -> AgentReport:
    return check_agent(make, WORLD, **{"users": 300, "seeds": 40} | options)


@pytest.mark.parametrize("name", AGENTS)
def test_agents_pass(name: str) -> None:
    report = check(AGENTS[name], users=240, seeds=16)
    assert set(report.passed) | set(report.skipped) == NAMES
    assert set(report.skipped) == ({"budget", "noise", "real resume"} if "no p" in name else set())
    assert report.releases == 4
    assert max(report.tightness) > 0.8
    assert str(report).count("passed  ") == len(report.passed)


def test_as_printed_passes_with_what_is_proven_of_it() -> None:
    make = partial(UCBVI, privacy=JOINT, stationary=False, calibration="as_printed")
    proven = Budget(2 * 5 / math.log2(16), 0.0)
    assert check(make, users=16, seeds=4, budget=proven).releases == 16
    with pytest.raises(CheckFailed, match=r"^budget: the guarantee states"):
        check(make, users=16, seeds=4)


def test_users_who_may_return_count_as_often_as_they_may() -> None:
    privacy = JointDP(1.0, 1e-6, episodes_per_user=2)
    report = check(partial(UCBVI, privacy=privacy, schedule=FEW), users=240, seeds=8)
    assert "budget" in report.passed


class WithoutAutosave(UCBVI):
    """Its constructor has what the check asks for, and no more."""

    def __init__(
        self, spec: Any, users: int, *, seed: int, noise_seed: int | None, ledger: Any = None
    ) -> None:
        options: dict[str, Any] = {"seed": seed, "noise_seed": noise_seed, "ledger": ledger}
        super().__init__(spec, users, JOINT, schedule=FEW, **options)

    def __repr__(self) -> str:
        # Where it is in memory, as objects say by default.
        return object.__repr__(self)


def test_agents_need_not_offer_autosave() -> None:
    report = check(WithoutAutosave, users=240, seeds=8)
    assert {"real resume", "data flow"} <= set(report.passed)


def test_the_check_asks_for_enough_releases() -> None:
    with pytest.raises(InvalidArgument, match="publishes 2 times"):
        check(AGENTS["ucbvi, stationary"], users=120)


# Noise and budget.


class Halved:
    """A simulation with half the noise."""

    simulation = True

    def __init__(self, seed: int) -> None:
        self._noise = Noise(seed)

    def normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return 0.5 * self._noise.normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> np.ndarray:
        return 0.5 * self._noise.laplace(shape)


class HalfTheNoise(UCBVI):
    """Its noise is half of what its budget demands."""

    def __init__(self, *args: Any, noise_seed: int | None = None, **options: Any) -> None:
        super().__init__(*args, noise_seed=noise_seed, **options)
        if noise_seed is not None:
            self._curator._source = Halved(noise_seed)
            if self._stream is not None:
                self._stream.counter.source = self._curator._source


class TwiceTheBudget(UCBVI):
    """Its curator has more than it was given, and says nothing."""

    def __init__(self, *args: Any, noise_seed: int | None = None, **options: Any) -> None:
        super().__init__(*args, noise_seed=noise_seed, **options)
        double = JointDP(2.0 * self.privacy.epsilon, self.privacy.delta)
        self._curator = double.curator(users=self.users, noise_seed=noise_seed)
        self._told = self.privacy.curator(users=self.users, noise_seed=noise_seed)

    @property
    def guarantee(self) -> Any:
        return self._told.guarantee


class ReusesWarmUp(UCBVI):
    """The users of the first block teach the second one again, under a new number."""

    def _release(self, block: Block, user_ids: Any) -> None:
        self._curator.declared_users = None
        if self.releases == 0:
            self._warm_up = (block, user_ids)
        if self.releases == 1:
            first, ids = self._warm_up
            both = (first, block)
            user_ids = None if ids is None else [*ids, *user_ids]
            arrays = {k: np.concatenate([b[k] for b in both]) for k in block.arrays}
            block = Block(sum(b.users for b in both), arrays)
            self.served -= first.users
        super()._release(block, user_ids)


class CountsReturningUsers(UCBVI):
    """Ids are for its own files: the gate never hears of them."""

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, None)


class CountsTheLatest(UCBVI):
    """Of users who come twice in a block the later episode counts."""

    def _release(self, block: Block, user_ids: Any) -> None:
        if user_ids is None:
            super()._release(block, None)
            return
        arrays = {name: array[::-1] for name, array in block.arrays.items()}
        super()._release(Block(block.users, arrays), [*user_ids][::-1])


# Data flow.


class RawWidth(UCBVI):
    """How much it explores depends on the true spread of the users' rewards."""

    def _release(self, block: Block, user_ids: Any) -> None:
        self._spread = float(np.clip(np.nan_to_num(block["rewards"]), 0.0, 1.0).std())
        super()._release(block, user_ids)

    def _plan_in_practice(self, counts: Any) -> Any:
        scale, self.scale = self.scale, self.scale * (1.0 + self._spread)
        try:
            return super()._plan_in_practice(counts)
        finally:
            self.scale = scale


class RawCount(UCBVI):
    """It keeps, for later reports, how many users were paid anything."""

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)
        self.paid = int((block["rewards"] > 0).any(axis=1).sum())


class RawBlocks(UCBVI):
    """A block ends early if its users fared badly."""

    @property
    def block_users(self) -> int:
        size = super().block_users
        return size if getattr(self, "_well", True) else min(size, 59)

    def _release(self, block: Block, user_ids: Any) -> None:
        self._well = bool((block["states"] >= 0).all())
        super()._release(block, user_ids)


# Statistics.


class Counted(UCBVI):
    """An agent with statistics of its own."""

    statistics: type[VisitCounts]

    def _statistic(self, cap: int | None = None) -> VisitCounts:
        true = super()._statistic(cap)
        options = {f.name: getattr(true, f.name) for f in fields(true) if f.init}
        return self.statistics(**options)


@dataclass(frozen=True, eq=False)
class Uncapped(VisitCounts):
    """Declares the sensitivity of capped counts, and counts everything."""

    def _sums(self, block: Block, separate: bool) -> np.ndarray:
        all_steps = VisitCounts(
            self.states,
            self.actions,
            self.horizon,
            pooled=True,
            weight=self.weight,
            policy=self.policy,
            version=self.version,
        )
        return all_steps._sums(block, separate)


@dataclass(frozen=True, eq=False)
class MaskWithoutDropping(VisitCounts):
    """Has the cells of the policy's actions only, and counts every other action as them."""

    @cached_property
    def cells(self) -> np.ndarray:
        true = self._true.cells
        return np.broadcast_to(true.max(axis=2, keepdims=True), true.shape).copy()

    @cached_property
    def where(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._true.where

    @cached_property
    def _true(self) -> VisitCounts:
        return VisitCounts(**{f.name: getattr(self, f.name) for f in fields(self) if f.init})


@dataclass(frozen=True, eq=False)
class AnyVersion(VisitCounts):
    """Masked by a policy, but counts those who followed another one."""

    def _sums(self, block: Block, separate: bool) -> np.ndarray:
        versions = np.full(block.users, self.version, dtype=np.int64)
        changed = Block(block.users, dict(block.arrays) | {"versions": versions})
        return super()._sums(changed, separate)


class CountsUncapped(Counted):
    statistics = Uncapped


class CountsOtherActions(Counted):
    statistics = MaskWithoutDropping


class CountsAnyVersion(Counted):
    statistics = AnyVersion


# Protocol and hostile users.


class TakesTooMany(UCBVI):
    """Takes one user more than it was declared for."""

    def learn(self, data: Any, user_ids: Any = None) -> None:
        if self.block_users == 0:
            return
        super().learn(data, user_ids)


class EveryCallIsABlock(UCBVI):
    """Publishes whenever somebody comes."""

    def learn(self, data: Any, user_ids: Any = None) -> None:
        rows = np.arange(self.block_users) % max(data.users, 1)
        block = data if isinstance(data, Block) else data.block()
        super().learn(Block(len(rows), {k: a[rows] for k, a in block.arrays.items()}))


class SameVersion(UCBVI):
    """All its policies have one version."""

    @property
    def policy(self) -> Policy:
        return Policy.deterministic(self._policy.actions, self.spec.actions)


class RaisesOnValues(UCBVI):
    """Refuses a block in which somebody's reward is not finite."""

    def learn(self, data: Any, user_ids: Any = None) -> None:
        if not np.isfinite(
            data.block()["rewards"] if hasattr(data, "block") else data["rewards"]
        ).all():
            raise InvalidArgument("rewards must be finite")
        super().learn(data, user_ids)


class WarnsOnValues(UCBVI):
    """Says aloud that somebody's state is out of range."""

    def _release(self, block: Block, user_ids: Any) -> None:
        if (block["states"] >= self.spec.states).any():
            warnings.warn("a state is out of range", stacklevel=2)
        super()._release(block, user_ids)


class WarnsOfLowRewards(UCBVI):
    """Says aloud that users fare badly, whoever is there to hear it."""

    def _release(self, block: Block, user_ids: Any) -> None:
        if np.nan_to_num(block["rewards"]).mean() < 0.1:
            warnings.warn("users fare badly", stacklevel=2)
        super()._release(block, user_ids)


class ChangedByRefusals(UCBVI):
    """Counts users before it looks at them."""

    def learn(self, data: Any, user_ids: Any = None) -> None:
        self.came = getattr(self, "came", 0) + data.users
        super().learn(data, user_ids)


# Save and resume.


class ForgetsTies(UCBVI):
    """After loading, ties are broken by the seed it was made with."""

    def _restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        state = copy.deepcopy(self._rng.bit_generator.state)
        super()._restore(meta, arrays)
        self._rng.bit_generator.state = state


class ForgetsWaiting(UCBVI):
    """Users whose block was not full are not in the save."""

    def _dump(self) -> Any:
        waiting, self._pending = self._pending, []
        try:
            return super()._dump()
        finally:
            self._pending = waiting


class RepeatsNoise(UCBVI):
    """Real noise goes on from a seed."""

    def load(self, path: Any, **options: Any) -> Any:
        super().load(path, **options)
        if isinstance(self._curator, JointCurator) and not self._curator._source.simulation:
            self._curator._source = Noise(0)
        return self


class LoadsTwice(UCBVI):
    """Keeps its ledger to itself."""

    def __init__(self, *args: Any, ledger: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)

    def load(self, path: Any, *, ledger: Any = None, autosave: Any = None) -> Any:
        return super().load(path, autosave=autosave)


# Labels.


class FirstAction(UCBVI):
    """Ties go to the action with the smallest number."""

    def _plan(self) -> tuple[Policy, Policy]:
        _, greedy = super()._plan()
        best = self.q_values.argmax(axis=-1)
        return Policy.deterministic(best, self.spec.actions, version=self.releases), greedy


class LikesNumbers(UCBVI):
    """Later on it follows the action with the largest number."""

    def _plan(self) -> tuple[Policy, Policy]:
        policy, greedy = super()._plan()
        if self.releases < 3:
            return policy, greedy
        last = np.full(policy.actions.shape, self.spec.actions - 1)
        return Policy.deterministic(last, self.spec.actions, version=self.releases), greedy


MUTANTS: list[tuple[type[UCBVI], dict[str, Any], str]] = [
    (HalfTheNoise, {}, r"^noise: the variance of \d+ noise values is 0\.2"),
    (HalfTheNoise, {"privacy": JointDP(1.0, 0.0)}, r"^noise: the variance"),
    (HalfTheNoise, {"counter": "binary tree"}, r"^noise: the variance"),
    (TwiceTheBudget, {}, r"^budget: block 0 has spent"),
    (ReusesWarmUp, {}, r"^budget: .*entered twice"),
    (CountsReturningUsers, {}, r"^budget: .*ids do not reach the gate"),
    (CountsReturningUsers, {"privacy": LocalDP(4.0, 1e-6)}, r"^budget: .*do not reach the gate"),
    (CountsTheLatest, {}, r"^budget: .*other episodes are counted than the first"),
    (RawWidth, {}, r"^data flow: .*everybody replaced: .*differ at release"),
    (RawCount, {}, r"^data flow: .*paid differ"),
    (RawBlocks, {}, r"^hostile users: .*block_users differ"),
    (CountsUncapped, {}, r"^sensitivity: .*was found"),
    (CountsOtherActions, {}, r"^hostile users: .*actions that it never takes"),
    (CountsAnyVersion, {}, r"^hostile users: .*followed another version"),
    (TakesTooMany, {}, r"^refusals: .*HorizonExceeded, but was accepted"),
    (EveryCallIsABlock, {}, r"^chunks: "),
    (SameVersion, {}, r"^protocol: versions of published policies must increase"),
    (RaisesOnValues, {}, r"^hostile users: .*rewards must be finite"),
    (WarnsOnValues, {}, r"^hostile users: .*a state is out of range"),
    (ChangedByRefusals, {}, r"^refusals: .*refused, and yet came changed"),
    (ForgetsTies, {}, r"^resume: "),
    (ForgetsWaiting, {}, r"^resume: right after loading, block_users"),
    (RepeatsNoise, {}, r"^real resume: .*the same noise twice"),
    (LoadsTwice, {}, r"^real resume: a save with a ledger was resumed"),
    (FirstAction, {}, r"^ties: .*not broken at random"),
    (LikesNumbers, {}, r"^labels: "),
]


@pytest.mark.parametrize(("mutant", "options", "message"), MUTANTS)
def test_mutants_are_caught(mutant: type[UCBVI], options: dict[str, Any], message: str) -> None:
    make = partial(mutant, **{"privacy": JOINT, "schedule": FEW} | options)
    with pytest.raises(CheckFailed, match=message):
        check(make)


def test_warnings_that_depend_on_users_are_caught() -> None:
    """Also where whoever runs the check has switched warnings off."""
    make = partial(WarnsOfLowRewards, privacy=JOINT, schedule=FEW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckFailed, match=r"^data flow: .*what was logged or printed differs"):
            check(make)
