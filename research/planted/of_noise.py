"""Bugs of noise: too small, too seldom drawn, of another shape, or known to somebody.

See :mod:`research.planted_bugs`. Never use one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import numpy as np

from research.planted.base import Curated, Drawing, Tampered
from tacit.privacy.counters.dense import Optimal
from tacit.privacy.curator import JointCurator, Release
from tacit.privacy.local import LocalCurator
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic

_UNIT = 2.0**30


class _HalfCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        return super().drawn(scale, size) // 2


class HalfTheNoise(Curated):
    """Noise has half the size that its budget demands.

    Gain: everybody is told apart twice as well as promised; at (1, 1e-6) the true epsilon is 2.1.
    """

    curator = _HalfCurator


class _HalfReports(LocalCurator):
    def _simulate(self, statistic: Statistic, block: Block) -> Floats:
        total = statistic.total(block)
        return total + 0.5 * (super()._simulate(statistic, block) - total)


class HalfTheNoiseOfReports(Curated):
    """Devices add half the noise that the model demands.

    Gain: whoever reads a report knows its sender twice as well as promised.
    """

    curator = _HalfReports


class _OnceCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        drawn: dict[int, Any] = self.__dict__.setdefault("_drawn", {})
        if size not in drawn:
            drawn[size] = super().drawn(_UNIT, size) / _UNIT
        return np.rint(scale * drawn[size]).astype(np.int64)


class NoiseDrawnOnce(Curated):
    """For every shape noise is drawn once, and used in every release.

    Gain: the difference of two releases has no noise at all.
    """

    curator = _OnceCurator


class _AntitheticCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        half = super().drawn(scale, (size + 1) // 2)
        return np.stack([half, -half], axis=1).reshape(-1)[:size]


class AntitheticNoise(Curated):
    """Noise is drawn in pairs of opposite signs, so that it adds up to nothing.

    Gain: every entry has the right noise, and sums of entries have none.
    """

    curator = _AntitheticCurator


class _Redrawn(Optimal):
    def _released(self, steps: Any, fresh: Any) -> Floats:
        rows = [*(self._draw() for _ in range(self.released - 1)), fresh]
        noise = np.ldexp(np.array(rows, dtype=np.float64), -self._places())
        row = self.factor.inverse[self.released - 1, : self.released]
        published: Floats = self._sum + row @ noise
        return published


class NoiseRedrawn(Tampered):
    """All noise of a running sum is drawn anew in every release that it is part of.

    Gain: an early user is in many releases; their mean has less noise than was paid for.
    """

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Gives it another counter, whenever it is read."""
        revive = agent._run.revive

        def redrawn(*known: Any) -> None:
            revive(*known)
            agent._run.stream.counter.__class__ = _Redrawn

        agent._run.stream.counter.__class__, agent._run.revive = _Redrawn, redrawn


class _BareCurator(JointCurator):
    bare = 0

    def release_block(self, statistic: Statistic, block: Block, **options: Any) -> Release:
        released = super().release_block(statistic, block, **options)
        true = statistic.layout.unpack(statistic.total(block))
        name = statistic.layout.parts[self.bare].name
        return dataclasses.replace(released, parts={**released.parts, name: true[name]})


class _BareLast(_BareCurator):
    bare = -1


class FirstPartWithoutNoise(Curated):
    """One statistic of several is released as it is: Grams are of public features, are they not?

    Gain: where users went, exactly.
    """

    curator = _BareCurator


class LastPartWithoutNoise(Curated):
    """One statistic of several is released as it is: sums of rewards say little.

    Gain: what users were paid, exactly.
    """

    curator = _BareLast


class _BroadcastCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        return np.full(size, super().drawn(scale, 1)[0])


class OneDrawForAll(Curated):
    """A release adds one random number to all of its entries.

    Gain: differences of entries have no noise.
    """

    curator = _BroadcastCurator


class _CellCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        noise = super().drawn(scale, size)
        noise[0] = 0.0
        return noise


class OneEntryWithoutNoise(Curated):
    """A loop over entries begins at 1.

    Gain: the first count, exactly.
    """

    curator = _CellCurator


class _Disguised(Noise):
    """Noise from a seed that calls itself real."""

    @property
    def simulation(self) -> bool:
        return False

    def state(self) -> None:
        return None


class NoiseOfPublicSeed(Tampered):
    """Real noise comes from the public seed, for runs that can be repeated.

    Gain: whoever knows the seed subtracts the noise.
    """

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Seeds real noise."""
        if not agent._run.curator.source.simulation:
            agent._run.curator.source = _Disguised(agent.algorithm.problem.seed)


class NoiseReplayed(Tampered):
    """A run that is opened again goes on with the generator that was kept.

    Gain: two copies of one store put the same noise on two sets of users.
    """

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Seeds real noise of a run that goes on."""
        if agent.taken and not agent._run.curator.source.simulation:
            agent._run.curator.source = _Disguised(0)


class _UniformCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        from scipy.special import ndtr

        evenly = ndtr(super().drawn(_UNIT, size) / _UNIT) - 0.5
        return np.rint(scale * math.sqrt(12.0) * evenly).astype(np.int64)


class UniformNoise(Curated):
    """Noise is uniform, of the right variance.

    Gain: what is too far from a release to be its noise is ruled out for certain.
    """

    curator = _UniformCurator


class _CutCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        most = int(3.0 * scale)
        return np.clip(super().drawn(scale, size), -most, most)


class CutNoise(Curated):
    """Noise is cut at three standard deviations, for no count to look absurd.

    Gain: delta is a thousand times what was promised, for it is in the tails.
    """

    curator = _CutCurator


class _CoarseCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        coarse = max(1, int(scale / 4.0))
        return coarse * np.rint(super().drawn(scale, size) / coarse).astype(np.int64)


class CoarseNoise(Curated):
    """Noise is on a coarser grid than what it is added to, for whole numbers to look neat.

    Gain: what is left of a sum when multiples of that grid are taken away, exactly.
    """

    curator = _CoarseCurator


class _UnscaledCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        if self.simulated:
            return super().drawn(scale, size)
        return super().drawn(1.0, size)


class RealNoiseUnscaled(Curated):
    """Simulations have the right noise; real runs forget its scale.

    Gain: nobody tests with real users, and they have almost no protection.
    """

    curator = _UnscaledCurator


class _SharedCurator(Drawing):
    def drawn(self, scale: float, size: int) -> Any:
        if self.simulated:
            return super().drawn(scale, size)
        return np.rint(scale * np.random.normal(size=size)).astype(np.int64)  # noqa: NPY002


class NoiseOfSharedGenerator(Curated):
    """Real noise comes from the generator that NumPy shares with everybody.

    Gain: where a script begins with a seed, as most do, the noise is known.
    """

    curator = _SharedCurator


class NoiseOfTheClock(Tampered):
    """Real noise comes from a generator that the clock has seeded.

    Gain: whoever knows about when a run began tries all seeds.
    """

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Seeds real noise."""
        if not agent._run.curator.source.simulation:
            agent._run.curator.source = _Disguised(time.time_ns())
