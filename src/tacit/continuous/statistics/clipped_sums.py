"""Sums over a user's steps that are clipped as a whole: compiled on grids, by NumPy elsewhere."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.continuous.feature_map import is_grid, loop_parameters
from tacit.continuous.statistics.steps import Steps, parts_of, shaped, steps_of
from tacit.privacy.bounds.balls import ACUTE, InBall, scaled_back
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Part
from tacit.privacy.symmetric import pack

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


@dataclass(frozen=True, eq=False)
class VisitSums(ClippedSums):
    """Where users were: sums over steps of features, or of their outer products.

    On a grid the part ``visits`` (m,) holds the sums of the weights of grid points, a
    histogram. On any other map it is a Gram matrix (m, m). A user is scaled back to length
    ``clip``.

    Sensitivity. Histograms have no negative entry and Gram matrices no negative eigenvalue, so two
    users are never at an obtuse angle: of length at most clip, they are at most sqrt(2) clip apart.
    Two users at different points of the grid attain it.
    """

    spec: BoxSpec
    features: FeatureMap
    clip: float
    apart: ClassVar[float] = ACUTE

    def __post_init__(self) -> None:
        m, on_grid = self.features.size, is_grid(self.features)
        self._sums_to(Part("visits", (m,) if on_grid else (m, m), symmetric=not on_grid))

    @property
    def _in_memory(self) -> int:
        return self.spec.horizon * self.features.size

    def _sums(self, steps: Steps) -> Floats:
        here = self.features(steps.states[:, :-1]) * steps.valid[..., np.newaxis]
        return pack(here.swapaxes(1, 2) @ here)

    def _add(self, block: Block, separate: bool, out: Floats) -> None:
        from tacit.continuous.sum_loops import add_visits

        grid = loop_parameters(self.features)
        assert grid is not None  # noqa: S101
        given = *raw_steps(block, self.spec), self.spec.actions, grid.numbers, grid.table
        add_visits(*given, self.clip, separate, out)


@dataclass(frozen=True, eq=False)
class ResidualSums(ClippedSums):
    """How far users' rewards and next states are from what public values predict.

    A step has the residual e = (r - centre) / unit + discount V(s') - predictions[a] @ features(s)
    with V(s) = max_b values[b] @ features(s) - offset, cut to ``value_range``; where the episode
    ended, ``ending`` takes the place of V(s'), and the step is dropped if that is ``None``. A
    user's function is the sum over steps of e times K(s, .) for the action that was taken. One
    part, ``residuals``, of shape (actions, root.shape[1]): its coordinates. A user is scaled back
    to norm ``clip``.

    Sensitivity. The clipped user lies in a ball of radius clip, so two are at most 2 clip apart.

    Attributes:
        root: (m, k), from features to the coordinates that are released.
        values: (actions, m).
        predictions: (actions, m).
        clip: c.
        discount: of the next value.
        centre: what rewards are measured from.
        unit: what rewards are measured in.
        offset: what values are measured from.
        value_range: of values.
        ending: the value of an end, or ``None``.
    """

    spec: BoxSpec
    features: FeatureMap
    root: Floats
    values: Floats
    predictions: Floats
    clip: float
    discount: float
    centre: float
    unit: float
    offset: float = 0.0
    value_range: tuple[float, float] = (-math.inf, math.inf)
    ending: float | None = None

    def __post_init__(self) -> None:
        m, A = self.features.size, self.spec.actions
        for name, lead in (("root", m), ("values", A), ("predictions", A)):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.ndim != 2 or len(array) != lead or not np.isfinite(array).all():
                raise InvalidArgument(f"{name} must be finite, with {lead} rows, got {array.shape}")
            if name != "root" and array.shape[1] != m:
                raise InvalidArgument(f"{name} must have {m} columns, got {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        self._sums_to(Part("residuals", (A, self.root.shape[1])))

    @property
    def _in_memory(self) -> int:
        return (self.spec.horizon + 1) * (self.features.size + int(self.root.shape[1]))

    def _sums(self, steps: Steps) -> Floats:
        A = self.spec.actions
        features = self.features(steps.states)
        residuals, valid = self._residuals(steps, features)
        taken = (steps.actions[..., np.newaxis] == np.arange(A)) & valid[..., np.newaxis]
        shares = np.where(taken, residuals[..., np.newaxis], 0.0)
        sums = (shares.swapaxes(1, 2) @ features[:, :-1]) @ self.root
        return sums.reshape(len(sums), A * self.root.shape[1])

    def _add(self, block: Block, separate: bool, out: Floats) -> None:
        from tacit.continuous.sum_loops import add_residuals

        grid = loop_parameters(self.features)
        assert grid is not None  # noqa: S101
        ending = math.nan if self.ending is None else self.ending
        numbers = [self.clip, self.discount, self.centre, self.unit, self.offset]
        numbers += [*self.value_range, ending, *self.spec.reward_range]
        tables = grid.numbers, grid.table, self.values, self.predictions, self.root
        given = *raw_steps(block, self.spec), *tables, np.array(numbers), separate, out
        add_residuals(*given)

    def _residuals(self, steps: Steps, features: Floats) -> tuple[Floats, Bools]:
        here, there = features[:, :-1], features[:, 1:]
        ahead = np.clip((there @ self.values.T).max(axis=-1) - self.offset, *self.value_range)
        valid = steps.valid
        if self.ending is None:
            valid = valid & ~steps.ended
        else:
            ahead = np.where(steps.ended, self.ending, ahead)
        predicted = np.take_along_axis(
            here @ self.predictions.T, steps.actions[..., np.newaxis], axis=-1
        )[..., 0]
        rewards = (steps.rewards - self.centre) / self.unit
        return rewards + self.discount * ahead - predicted, valid
