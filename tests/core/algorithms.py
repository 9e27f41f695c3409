"""A small algorithm of our own, and users for it."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tacit import Block
from tacit.core.algorithm import BlockSizes, Plan
from tacit.core.constructors import make_agent
from tacit.store.values import record
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.spec import FiniteSpec
from tacit.tabular.visits import VisitCounts

SPEC = FiniteSpec(states=3, actions=2, horizon=4, stationary=False)


@dataclass(frozen=True, kw_only=True)
class AddsOptions:
    counter: str = "blocks"


@record
@dataclass(frozen=True, eq=False)
class Sums:
    rewards: Any


class AddsRewards(FiniteAlgorithm[Sums]):
    """Adds up rewards and follows the largest sums."""

    name = "adds"
    Options = AddsOptions
    fails: Any = None  # raised by every plan while it is set

    def init(self):
        return Sums(np.zeros((SPEC.horizon, SPEC.states, SPEC.actions)))

    def query(self, state, plan, block):
        return VisitCounts(SPEC.states, SPEC.actions, SPEC.horizon)

    def update(self, state, plan, release, block, rng):
        sums = state.rewards if self.counter == "blocks" else np.zeros_like(state.rewards)
        sums = sums.copy()
        sums[self.query(state, plan, block).where] += release["rewards"]
        return Sums(sums)

    def plan(self, state, last, at, rng):
        if AddsRewards.fails is not None:
            raise AddsRewards.fails
        best = self.best(state.rewards, rng)
        return Plan(best, best)

    def _choose_counter(self):
        return str(self.options.counter)

    def _block_sizes(self):
        return BlockSizes("fixed:size=10", size=10)


Adds = partial(make_agent, AddsRewards)


def block_of(users, seed=0):
    """Users who did anything."""
    rng, H = np.random.default_rng(seed), SPEC.horizon
    columns = {"states": rng.integers(0, SPEC.states, (users, H + 1))}
    columns |= {"actions": rng.integers(0, SPEC.actions, (users, H))}
    return Block(users, columns | {"rewards": rng.random((users, H))})
