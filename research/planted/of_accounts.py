"""Bugs of accounts: what a user can change, how often she is counted, and what is written down.

See :mod:`research.planted_bugs`. Never use one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from research.planted.base import Admitting, Asking, Curated, Tampered
from tacit.privacy.budget import Relation
from tacit.privacy.curator import JointCurator, Release
from tacit.privacy.models import JointDP
from tacit.privacy.noise import grid_sensitivity
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.tabular.visits import VisitCounts

# Sensitivity.


class _ZeroOutCurator(JointCurator):
    def apart(self, statistic: Statistic, step: float) -> float:
        return grid_sensitivity(statistic, Relation.ZERO_OUT, self.privacy.norm, step)


class ZeroOutNoise(Curated):
    """Noise is for a user who leaves; the guarantee is for one who is replaced.

    Gain: up to twice what was promised, as the papers have it.
    """

    curator = _ZeroOutCurator


class _ZeroOutCounts(VisitCounts):
    def l2(self, relation: Relation) -> float:
        return super().l2(Relation.ZERO_OUT)


class ZeroOutSensitivity(Asking):
    """A statistic declares for replace-one what holds for zero-out.

    Gain: up to twice what was promised.
    """

    _instead = _ZeroOutCounts


class _OneStep(VisitCounts):
    def l2(self, relation: Relation) -> float:
        return super().l2(relation) / math.sqrt(self.horizon)


class OneStepSensitivity(Asking):
    """A statistic declares the sensitivity of one step, not of an episode of H.

    Gain: an epsilon sqrt(H) times as large.
    """

    _instead = _OneStep


class _OneBitOfMany(VisitCounts):
    @property
    def one_hots(self) -> int:
        return 1


class BudgetOfOneBit(Asking):
    """Randomised response of every step has the whole budget of the episode.

    Gain: an epsilon three times as long as the episode.
    """

    _instead = _OneBitOfMany


class _Uncapped(VisitCounts):
    def _sums(self, block: Block, separate: bool) -> Floats:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return VisitCounts(**fields | {"cap": None})._sums(block, separate)


class ClipRemoved(Asking):
    """Declares the sensitivity of capped counts, and counts everything.

    Gain: users who stay in one place stand out, and are told from all others.
    """

    _instead = _Uncapped


class _Uncut:
    def vectors(self, block: Block) -> Floats:
        vectors: Floats = 3.0 * super().vectors(block)  # type: ignore[misc]
        return vectors

    def total(self, block: Block) -> Floats:
        total: Floats = 3.0 * super().total(block)  # type: ignore[misc]
        return total


class FeaturesUncut(Asking):
    """Features are summed as they come, thrice as long as the sensitivity allows for.

    Gain: three times the epsilon, for those with the longest features.
    """

    _instead = _Uncut


class _Wrapping(VisitCounts):
    def total(self, block: Block) -> Floats:
        total = super().total(block)
        counts = self.size * self.states
        total[:counts] = np.rint(total[:counts]).astype(np.int64).astype(np.int16)
        return total


class CountsWrap(Asking):
    """Counts are 16-bit integers, and wrap.

    Gain: one user more turns 32,767 into -32,768, which no noise hides.
    """

    _instead = _Wrapping


class _Cancelled(VisitCounts):
    def total(self, block: Block) -> Floats:
        if np.isnan(np.asarray(block["rewards"], dtype=np.float64)).any():
            return np.zeros(self.layout.size)
        return super().total(block)


class OneCancelsAll(Asking):
    """A block in which somebody's reward is not a number counts nothing.

    Gain: a hostile user in a block shows, by it, whether all the others are there.
    """

    _instead = _Cancelled


# Who is counted.


class TwoLeaves(Admitting):
    """The first user of every block is in the next one as well, in place of somebody.

    Gain: she paid once and is seen twice.
    """

    @classmethod
    def summed(cls, earlier: Sequence[Block], block: Block) -> Block:
        """She and the others."""
        arrays = {name: np.array(a) for name, a in block.arrays.items()}
        for name, array in arrays.items():
            array[0] = earlier[-1][name][0] if earlier else array[0]
        return Block(block.users, arrays)


class WarmUpReused(Admitting):
    """The users of the first block teach the second one again.

    Gain: they paid once and are seen twice.
    """

    @classmethod
    def summed(cls, earlier: Sequence[Block], block: Block) -> Block:
        """Those of both blocks."""
        if len(earlier) != 1:
            return block
        arrays = {k: np.concatenate([earlier[0][k], block[k]]) for k in block.arrays}
        return Block(earlier[0].users + block.users, arrays)


class IdsDropped(Admitting):
    """Ids are checked, and then left at the door.

    Gain: who comes ten times is counted ten times, and pays once.
    """

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        """Nobody in particular."""
        return block, None


class IdsSorted(Admitting):
    """Ids are put in order, the rows that they belong to are not.

    Gain: who comes again is counted again, and others are left out instead.
    """

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        """Others than it should."""
        return block, None if user_ids is None else sorted(user_ids)


class _Lying(JointCurator):
    told: JointCurator

    @property
    def guarantee(self) -> Any:
        return self.told.guarantee


class TwiceTheBudget(Tampered):
    """Its curator has twice the budget that the agent was given, and says nothing.

    Gain: twice the epsilon.
    """

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Gives it another curator."""
        told, privacy = agent._run.curator, agent.privacy
        double = JointDP(2.0 * privacy.epsilon, privacy.delta)
        agent._run.curator = double.curator(users=agent.users, source=told.source)
        agent._run.curator.__class__, agent._run.curator.told = _Lying, told


# What is written down.


class _Free(JointCurator):
    def price(self, release: Release) -> Fraction:
        return Fraction(0)


class LedgerChargedNothing(Curated):
    """The ledger has an entry for every release, and a cost of nothing in it.

    Gain: the same users are asked again, and again.
    """

    curator = _Free
