"""Agents with one slip each, and what finds it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tacit import JointDP
from tacit.audit.check_agent import check_agent
from tacit.lq import random_system
from tacit.lq.certainty_equivalence import CertaintyEquivalence
from tacit.lq.ofu import OFU
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.budget import Relation
from tacit.privacy.errors import BudgetExceeded, CheckFailed
from tacit.privacy.statistic import Block, Floats, Statistic

WORLD = random_system(2, 1, 4, seed=500)
JOINT = JointDP(1.0, 1e-6)


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
        def _make_statistic(self) -> TrajectorySums:
            own = super()._make_statistic()
            fields = ("states", "controls", "steps", "clip", "tau", "weight", "centre", "inputs")
            given: dict[str, Any] = {name: getattr(own, name) for name in fields}
            return mutant(**given, floor=own.floor, spread=own.spread)

    return Asking


@pytest.mark.parametrize("mutant", [HalfTheNoise, FactorsOfTheirOwn])
def test_wrong_sensitivities_are_found(mutant: type[TrajectorySums]) -> None:
    with pytest.raises(CheckFailed, match=r"^(sensitivity|noise)"):
        check(asking(mutant))


class TauFromRawEnergies(CertaintyEquivalence):
    """Takes the next tau from what users really did."""

    seen = 1.0

    def learn(self, data: Any, user_ids: Any = None) -> None:
        block = data if isinstance(data, Block) else data.block()
        states = np.nan_to_num(np.asarray(block["states"]), posinf=0.0, neginf=0.0)
        type(self).seen = float(np.clip(np.mean(np.clip(states, -1e3, 1e3) ** 2), 1e-3, 1e3))
        super().learn(data, user_ids)

    def _make_statistic(self) -> TrajectorySums:
        own = super()._make_statistic()
        fields = ("states", "controls", "steps", "weight", "centre", "inputs", "floor", "spread")
        given: dict[str, Any] = {name: getattr(own, name) for name in fields}
        return TrajectorySums(**given, tau=(own.tau or 1.0) * (1.0 + self.seen))


def test_a_tau_from_raw_data_is_found() -> None:
    with pytest.raises(CheckFailed, match=r"^(chunks|data flow|refusals|resume)"):
        check(TauFromRawEnergies)


class RadiusFromRawData(OFU):
    """The radius as printed, with the log-determinant of the users' own steps."""

    raw = 0.0

    def _release(self, block: Block, user_ids: Any) -> None:
        states = np.nan_to_num(np.asarray(block["states"]), posinf=0.0, neginf=0.0)
        self.raw = float(np.log1p(np.clip(states**2, 0.0, 1e6).sum()))
        super()._release(block, user_ids)

    @property
    def confidence_set(self) -> Any:
        """See :class:`OFU`."""
        models = super().confidence_set
        return None if models is None else type(models)(models.centre, models.V, self.raw)


def test_a_radius_from_raw_data_is_found() -> None:
    with pytest.raises(CheckFailed, match=r"^data flow"):
        check(partial(RadiusFromRawData, bonus="theory"), JointDP(1e4, 1e-6))


class AskedTwice(CertaintyEquivalence):
    """Asks every block a second time, as if the first had been for free."""

    def _release(self, block: Block, user_ids: Any) -> None:
        number = self._curator.add(block, user_ids)
        statistic = self._statistic()
        mu = JOINT.budget.mu
        self._curator.release(statistic, blocks=[number], mu=0.9 * mu)
        release = self._curator.release(statistic, blocks=[number], mu=0.9 * mu)
        self._absorb(release, statistic, block.users)
        self._advance(block.users)


def test_asking_twice_is_refused() -> None:
    agent = AskedTwice(WORLD.spec, 60, JOINT, schedule="fixed:size=20", noise_seed=0)
    with pytest.raises(BudgetExceeded, match="too much"):
        agent.learn(WORLD.simulate(agent.policy, 20, np.random.default_rng(0)))


class WarmUpReused(CertaintyEquivalence):
    """Lets the users of the histogram in again, among those of the next block."""

    kept: Block | None = None

    def _release(self, block: Block, user_ids: Any) -> None:
        if self.releases == 0:
            self.kept = block
        elif self.kept is not None:
            self._curator.declared_users = None
            joined = {
                name: np.concatenate([array, self.kept[name]])
                for name, array in block.arrays.items()
            }
            block, self.kept = Block(block.users + self.kept.users, joined), None
        super()._release(block, user_ids)


def test_warm_up_users_who_are_asked_again_are_found() -> None:
    agent = partial(WarmUpReused, level="private")
    with pytest.raises(CheckFailed, match=r"^(protocol|budget)"):
        check_agent(
            partial(agent, privacy=JOINT, schedule="fixed:size=20"), WORLD, users=100, seeds=2
        )


class ForgetsTrust(CertaintyEquivalence):
    """A save without what was learnt."""

    def _set_state(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        super()._set_state(meta, arrays)
        self._known = self._regression.prior


@pytest.mark.slow
def test_what_is_not_saved_is_found() -> None:
    with pytest.raises(CheckFailed, match=r"^resume"):
        check(ForgetsTrust, JointDP(1e3, 1e-6))
