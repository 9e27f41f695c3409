"""Bugs of accounts: what a user can change, how often she is counted, and what is written down.

See :mod:`research.planted_bugs`. Never use one.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from research.planted.base import Asks, Curated, Tampered
from tacit.finite.visits import VisitCounts
from tacit.privacy.budget import Relation
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.models import JointDP
from tacit.privacy.statistic import Block, Floats, Statistic

# Sensitivity.


class _ZeroOutCurator(JointCurator):
    def _sensitivity(self, statistic: Statistic, step: float) -> float:
        return statistic.sensitivity(Relation.ZERO_OUT, self.privacy.norm)


class ZeroOutNoise(Curated):
    """Noise is for a user who leaves; the guarantee is for one who is replaced.

    Gain: up to twice what was promised, as the papers have it.
    """

    curator = _ZeroOutCurator


@dataclass(frozen=True, eq=False)
class _ZeroOutCounts(VisitCounts):
    def l2(self, relation: Relation) -> float:
        return super().l2(Relation.ZERO_OUT)


class ZeroOutSensitivity(Asks):
    """A statistic declares for replace-one what holds for zero-out.

    Gain: up to twice what was promised.
    """

    asks = _ZeroOutCounts


@dataclass(frozen=True, eq=False)
class _OneStep(VisitCounts):
    def l2(self, relation: Relation) -> float:
        return super().l2(relation) / math.sqrt(self.horizon)


class OneStepSensitivity(Asks):
    """A statistic declares the sensitivity of one step, not of an episode of H.

    Gain: an epsilon sqrt(H) times as large.
    """

    asks = _OneStep


@dataclass(frozen=True, eq=False)
class _OneBitOfMany(VisitCounts):
    @property
    def one_hots(self) -> int:
        return 1


class BudgetOfOneBit(Asks):
    """Randomised response of every step has the whole budget of the episode.

    Gain: an epsilon three times as long as the episode.
    """

    asks = _OneBitOfMany


@dataclass(frozen=True, eq=False)
class _Uncapped(VisitCounts):
    def _sums(self, block: Block, separate: bool) -> Floats:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return VisitCounts(**fields | {"cap": None})._sums(block, separate)


class ClipRemoved(Asks):
    """Declares the sensitivity of capped counts, and counts everything.

    Gain: users who stay in one place stand out, and are told from all others.
    """

    asks = _Uncapped


class FeaturesUncut:
    """Features are summed as they come, thrice as long as the sensitivity allows for.

    Gain: three times the epsilon, for those with the longest features.
    """

    def _make_statistic(self, *args: Any, **options: Any) -> Any:
        true = super()._make_statistic(*args, **options)  # type: ignore[misc]
        kind = type("_Uncut", (type(true),), {"vectors": _three_times, "total": _three_times_total})
        fields = {f.name: getattr(true, f.name) for f in dataclasses.fields(true) if f.init}
        return kind(**fields)


def _three_times(self: Any, block: Block) -> Floats:
    kind: Any = type(self).__mro__[1]
    vectors: Floats = 3.0 * kind.vectors(self, block)
    return vectors


def _three_times_total(self: Any, block: Block) -> Floats:
    kind: Any = type(self).__mro__[1]
    total: Floats = 3.0 * kind.total(self, block)
    return total


@dataclass(frozen=True, eq=False)
class _Wrapping(VisitCounts):
    def total(self, block: Block) -> Floats:
        total = super().total(block)
        counts = self.size * self.states
        total[:counts] = np.rint(total[:counts]).astype(np.int64).astype(np.int16)
        return total


class CountsWrap(Asks):
    """Counts are 16-bit integers, and wrap.

    Gain: one user more turns 32,767 into -32,768, which no noise hides.
    """

    asks = _Wrapping


@dataclass(frozen=True, eq=False)
class _Cancelled(VisitCounts):
    def total(self, block: Block) -> Floats:
        if np.isnan(np.asarray(block["rewards"], dtype=np.float64)).any():
            return np.zeros(self.layout.size)
        return super().total(block)


class OneCancelsAll(Asks):
    """A block in which somebody's reward is not a number counts nothing.

    Gain: a hostile user in a block shows, by it, whether all the others are there.
    """

    asks = _Cancelled


# Who is counted.


class TwoLeaves:
    """The first user of every block is in the next one as well, in place of somebody.

    Gain: she paid once and is seen twice.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        before = self.__dict__.get("_before")
        self.__dict__["_before"] = block
        if before is not None:
            arrays = {name: np.array(a) for name, a in block.arrays.items()}
            for name, array in arrays.items():
                array[0] = before[name][0]
            block = Block(block.users, arrays)
        super()._release(block, user_ids)  # type: ignore[misc]


class WarmUpReused:
    """The users of the first block teach the second one again, under a new number.

    Gain: they paid once and are seen twice.
    """

    _curator: Any
    served: int
    releases: int

    def _release(self, block: Block, user_ids: Any) -> None:
        self._curator.declared_users = None
        if self.releases == 0:
            self._warm_up = (block, user_ids)
        if self.releases == 1:
            first, ids = self._warm_up
            user_ids = None if ids is None else [*ids, *user_ids]
            arrays = {k: np.concatenate([first[k], block[k]]) for k in block.arrays}
            block = Block(first.users + block.users, arrays)
            self.served -= first.users
        super()._release(block, user_ids)  # type: ignore[misc]


class TwiceTheBudget:
    """Its curator has twice the budget that the agent was given, and says nothing.

    Gain: twice the epsilon.
    """

    privacy: Any
    users: int

    def __init__(self, *args: Any, noise_seed: int | None = None, **options: Any) -> None:
        super().__init__(*args, noise_seed=noise_seed, **options)  # type: ignore[call-arg]
        double = JointDP(2.0 * self.privacy.epsilon, self.privacy.delta)
        self._curator = double.curator(users=self.users, noise_seed=noise_seed)
        self._told = self.privacy.curator(users=self.users, noise_seed=noise_seed)

    @property
    def guarantee(self) -> Any:
        """What it was given."""
        return self._told.guarantee


class IdsDropped:
    """Ids are checked, and then left at the door.

    Gain: who comes ten times is counted ten times, and pays once.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, None)  # type: ignore[misc]


class IdsSorted:
    """Ids are put in order, the rows that they belong to are not.

    Gain: who comes again is counted again, and others are left out instead.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, None if user_ids is None else sorted(user_ids))  # type: ignore[misc]


# What is written down.


class LedgerChargedNothing(Tampered):
    """The ledger has a line for every release, and a cost of nothing in it.

    Gain: after a crash, or in another run, the same users are asked again.
    """

    def _tamper(self) -> None:
        ledger = getattr(getattr(self._curator, "accounts", None), "ledger", None)
        if ledger is not None:
            true = ledger.charge

            def charge(costs: Any, label: str, **options: Any) -> Any:
                return true(dict.fromkeys(costs, 0.0), label, **options)

            ledger.charge = charge


class AutosaveIgnored:
    """It takes the name of a file to save to, and never does.

    Gain: after a crash what was published is forgotten, and its users are asked again.
    """

    def __init__(self, *args: Any, autosave: Any = None, **options: Any) -> None:
        super().__init__(*args, **options)
