"""Sums over a user's steps that are clipped as a whole: compiled on grids, by NumPy elsewhere."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.feature_map import is_grid
from tacit.continuous.statistics.steps import Ints, Steps, parts_of, shaped, steps_of
from tacit.privacy.bounds.balls import InBall, scaled_back
from tacit.privacy.statistic import Block, Floats

if TYPE_CHECKING:
    from tacit.continuous.feature_map import FeatureMap
    from tacit.continuous.spec import BoxSpec


class ClippedSums(InBall):
    """What statistics of steps on features share; their own fields have these and ``clip``."""

    spec: BoxSpec
    features: FeatureMap

    def vectors(self, block: Block) -> Floats:
        """Each user's sums, scaled back."""
        vectors = np.zeros((block.users, self.layout.size))
        if is_grid(self.features):
            self._add(block, separate=True, out=vectors)
            return vectors
        for rows, part in parts_of(block, self._in_memory):
            vectors[rows] = self._sums(steps_of(part, self.spec))
        return scaled_back(vectors, self.clip)

    def total(self, block: Block) -> Floats:
        """The sum over users, compiled on grids."""
        if block.aggregate or not is_grid(self.features):
            return super().total(block)
        out: Floats = np.zeros((1, self.layout.size))
        self._add(block, separate=False, out=out)
        return out.reshape(-1)

    @property
    @abstractmethod
    def _in_memory(self) -> int:
        """How many numbers there are of a user while she is summed up."""

    @abstractmethod
    def _sums(self, steps: Steps) -> Floats:
        """Users' sums, not scaled back."""

    @abstractmethod
    def _add(self, block: Block, separate: bool, out: Floats) -> None:
        """Compiled, for grids: users one by one, scaled back, or their sum."""


def raw_steps(block: Block, spec: BoxSpec) -> tuple[Floats, Ints, Floats, Ints]:
    """The user arrays as compiled loops take them; -1 and 0 where there is no such integer."""
    arrays = shaped(block, spec)
    integers = []
    for name in ("actions", "lengths"):
        array = np.asarray(arrays[name])
        if array.dtype != np.int64:
            numbers = np.asarray(array, dtype=np.float64)
            with np.errstate(all="ignore"):
                whole = (np.abs(numbers) < 2.0**53) & (numbers == np.floor(numbers))
                array = np.where(whole, numbers, -1.0).astype(np.int64)
        integers.append(np.ascontiguousarray(array))
    states = np.ascontiguousarray(arrays["states"], dtype=np.float64)
    rewards = np.ascontiguousarray(arrays["rewards"], dtype=np.float64)
    return states, integers[0], rewards, integers[1]
