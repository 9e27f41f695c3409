"""Agents with one slip each, and what finds it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from research.worlds import random_system
from tacit import Agent, AgentKind, JointDP
from tacit.core.algorithm import Algorithm
from tacit.core.asks import Ask, Asks
from tacit.lq.certainty_equivalence import CertaintyEquivalence
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.budget import Relation
from tacit.privacy.errors import BudgetExceeded, CheckFailed
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.testing.check_agent import check_agent

WORLD = random_system(2, 1, 4, seed=500)
JOINT = JointDP(1.0, 1e-6)


def through(hole: Any, algorithm: type[Algorithm[Any]]) -> Any:
    """A kind of agents whose algorithm is told, through a hole in the wall, what it must not be."""

    def make(*args: Any, **options: Any) -> Agent:
        agent = AgentKind(algorithm)(*args, **options)
        hole(agent)
        return agent

    return make


def check(agent: Any, privacy: JointDP = JOINT) -> None:
    check_agent(partial(agent, privacy=privacy, schedule="fixed:size=20"), WORLD, users=60)


class HalfTheNoise(TrajectorySums):
    """Declares half of its sensitivity."""

    def l2(self, relation: Relation) -> float:
        return 0.5 * super().l2(relation)

    def contributions(self, block: Block) -> Floats:
        return self.vectors(block)


class FactorsOfTheirOwn(TrajectorySums):
    """The Gram is clipped at tau, and the cross sums at tau again."""

    def vectors(self, block: Block) -> Floats:
        wide = TrajectorySums(
            self.states,
            self.controls,
            self.steps,
            tau=1e9,
            weight=self.weight,
            centre=self.centre,
            inputs=self.inputs,
            floor=1e3,
        )
        vectors = wide.vectors(block)
        gram = self.rows * (self.rows + 1) // 2
        for part in (vectors[:, :gram], vectors[:, gram:]):
            norms = np.linalg.norm(part, axis=1, keepdims=True)
            part *= np.minimum(1.0, (self.tau or 0.0) / np.maximum(norms, 1e-300))
        return vectors

    def contributions(self, block: Block) -> Floats:
        return self.vectors(block)

    def total(self, block: Block) -> Floats:
        return Statistic.total(self, block)


def asking(mutant: type[TrajectorySums]) -> Any:
    """An agent that asks a mutant of its statistic."""

    class Asking(CertaintyEquivalence):
        def statistic(self) -> TrajectorySums:
            own = super().statistic()
            fields = ("states", "controls", "steps", "tau", "weight", "centre", "inputs")
            given: dict[str, Any] = {name: getattr(own, name) for name in fields}
            return mutant(**given, floor=own.floor, spread=own.spread)

    return AgentKind(Asking)


@pytest.mark.parametrize("mutant", [HalfTheNoise, FactorsOfTheirOwn])
def test_wrong_sensitivities_are_found(mutant: type[TrajectorySums]) -> None:
    with pytest.raises(CheckFailed, match=r"^(sensitivity|noise)"):
        check(asking(mutant))


class TauFromRawEnergies(CertaintyEquivalence):
    """Takes the next tau from what users really did."""

    seen = 1.0

    def statistic(self) -> TrajectorySums:
        own = super().statistic()
        fields = ("states", "controls", "steps", "weight", "centre", "inputs", "floor", "spread")
        given: dict[str, Any] = {name: getattr(own, name) for name in fields}
        return TrajectorySums(**given, tau=(own.tau or 1.0) * (1.0 + self.seen))


def tell_energies(agent: Any) -> None:
    learn = agent.learn

    def telling(data: Any, user_ids: Any = None) -> None:
        block = data if isinstance(data, Block) else data.block()
        states = np.nan_to_num(np.asarray(block["states"]), posinf=0.0, neginf=0.0)
        seen = float(np.clip(np.mean(np.clip(states, -1e3, 1e3) ** 2), 1e-3, 1e3))
        TauFromRawEnergies.seen = seen
        learn(data, user_ids)

    agent.learn = telling


def test_a_tau_from_raw_data_is_found() -> None:
    with pytest.raises(CheckFailed, match=r"^(data flow|resume)"):
        check(through(tell_energies, TauFromRawEnergies))


class AskedTwice(CertaintyEquivalence):
    """Asks every block a second time, as if the first had been for free."""

    def asks(self) -> Asks:
        statistic, mu = self.statistic(), JOINT.budget.mu
        yield Ask(statistic, mu=0.9 * mu)
        release = yield Ask(statistic, mu=0.9 * mu)
        self.take_in(release, statistic)


def test_asking_twice_is_refused() -> None:
    agent = AgentKind(AskedTwice)(WORLD.spec, 60, JOINT, schedule="fixed:size=20", noise_seed=0)
    with pytest.raises(BudgetExceeded, match="too much"):
        agent.learn(WORLD.simulate(agent.policy, 20, np.random.default_rng(0)))


class ForgetsTrust(CertaintyEquivalence):
    """A save without what was learnt."""

    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super().restore(meta, arrays)
        self._known = self.regression.prior


@pytest.mark.slow
def test_what_is_not_saved_is_found() -> None:
    with pytest.raises(CheckFailed, match=r"^resume"):
        check(AgentKind(ForgetsTrust), JointDP(1e3, 1e-6))
