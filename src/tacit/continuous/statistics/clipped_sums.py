"""Sums over a user's steps that are clipped as a whole: compiled on grids, by NumPy elsewhere."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.features import is_grid
from tacit.continuous.statistics.steps import Steps, finite_array, parts_of, shaped, steps_of
from tacit.privacy.bounds.balls import ACUTE, InBall, ball, scaled_back
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, Part, Statistic
from tacit.privacy.symmetric import pack

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap, Grid
    from tacit.continuous.spec import BoxSpec


# Users of a block on a grid that are summed at a time.
_AT_ONCE = 1024


class ClippedSums(InBall):
    """What statistics of steps on features share; their own fields have these and ``clip``.

    On a grid of one coordinate a state is first rounded to the nearest of 64 places in its cell, of
    which the points are two, so that values are looked up in a table. It is of that user alone and
    before the clip, so no sensitivity changes.

    The compiled total scales each user back to ``clip``, which is the declared bound, before it
    adds her, and adds nothing of one who is not finite.
    """

    _adds_bounded = True
    spec: BoxSpec
    features: FeatureMap

    def vectors(self, block: Block) -> Floats:
        """Each user's sums, scaled back."""
        vectors = np.zeros((block.users, self.layout.size))
        for rows, sums in self._users(block):
            vectors[rows] = scaled_back(sums, self.clip)
        return vectors

    def total(self, block: Block) -> Floats:
        """The sum over users, compiled on grids."""
        if block.aggregate or not is_grid(self.features):
            return super().total(block)
        from tacit.continuous.sum_loops import add_clipped

        total = np.zeros(self.layout.size)
        for _, sums in self._users(block):
            add_clipped(sums, self.clip, total)
        return total

    def _users(self, block: Block) -> Iterator[tuple[slice, Floats]]:
        """Some users after the other, and their sums, which are not scaled back."""
        if not is_grid(self.features):
            numbers = (self.spec.horizon + 1) * (self.features.size + self.layout.size)
            for rows, part in parts_of(block, numbers):
                yield rows, self._sums(steps_of(part, self.spec))
            return
        of = self.features, self.spec.actions, self.spec.reward_range
        where = block.once(("places", *of), partial(places, spec=self.spec, grid=self.features))
        some = min(block.users, _AT_ONCE)
        by_point = np.empty((some, self.spec.actions * self.features.size))
        sums = np.empty((some, self.layout.size))
        for start in range(0, block.users, _AT_ONCE):
            rows = slice(start, min(block.users, start + _AT_ONCE))
            users = rows.stop - rows.start
            self._add(tuple(column[rows] for column in where), by_point[:users], sums[:users])
            yield rows, sums[:users]

    @abstractmethod
    def _sums(self, steps: Steps) -> Floats:
        """Users' sums, not scaled back."""

    @abstractmethod
    def _add(self, where: Any, by_point: Floats, sums: Floats) -> None:
        """Writes the same to ``sums`` on a grid, compiled, by way of (users, actions x points)."""


def places(block: Block, spec: BoxSpec, grid: Grid) -> tuple[NDArray[Any], ...]:
    """Where users' steps are on a grid, with which all queries about them begin.

    As ``Placed`` of the compiled loops; of one coordinate, rounded, with places and taken of
    ``OnLine`` beside it.
    """
    from tacit.continuous.sum_loops import FINE, placed

    where = placed(raw_steps(block, spec), spec.actions, grid.for_loops(), *spec.reward_range)
    if spec.dimension > 1:
        return where
    cells, parts, taken, rewards = where
    fine = (parts[..., 0] * (FINE - 1) + 0.5).astype(np.int32)
    at = np.where(cells < 0, -1, cells * FINE + fine)
    now = np.where(taken < 0, -1, taken * FINE + fine[:, :-1])
    return cells, (fine / (FINE - 1))[..., np.newaxis], taken, rewards, at, now


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
    def nonnegative(self) -> bool:
        """Histograms are; a Gram matrix has negative entries."""
        return is_grid(self.features)

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Visits of each point of a grid; nobody has more than its length or the horizon."""
        if not is_grid(self.features):
            return {}
        noise, m = float(np.max(release.std["visits"])), self.features.size
        whole = self.clip >= self.spec.horizon
        return ({} if whole else {"partial": (1.0, 0.0)}) | {
            "visits": (release["visits"], np.full(m, noise)),
            "reach": (min(self.clip, float(self.spec.horizon)), 0.0),
        }

    def _sums(self, steps: Steps) -> Floats:
        here = self.features(steps.states[:, :-1]) * steps.valid[..., np.newaxis]
        return pack(here.swapaxes(1, 2) @ here)

    def _add(self, where: Any, by_point: Floats, sums: Floats) -> None:
        from tacit.continuous.sum_loops import add_visits

        assert is_grid(self.features)  # noqa: S101
        sums[:] = 0.0
        add_visits(where[:4], self.features.corners, sums)


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
    """

    spec: BoxSpec
    features: FeatureMap
    root: Floats  # (m, k), from features to the coordinates that are released
    values: Floats  # (actions, m)
    predictions: Floats  # (actions, m)
    clip: float  # c
    discount: float  # of the next value
    centre: float  # what rewards are measured from
    unit: float  # what rewards are measured in
    offset: float = 0.0  # what values are measured from
    value_range: tuple[float, float] = (-math.inf, math.inf)  # of values
    ending: float | None = None  # the value of an end, or ``None``

    def __post_init__(self) -> None:
        m, A = self.features.size, self.spec.actions
        root = (m, *np.shape(self.root)[1:2])
        for name, shape in (("root", root), ("values", (A, m)), ("predictions", (A, m))):
            object.__setattr__(self, name, finite_array(name, getattr(self, name), *shape))
        self._sums_to(Part("residuals", (A, self.root.shape[1])))

    def _sums(self, steps: Steps) -> Floats:
        A = self.spec.actions
        features = self.features(steps.states)
        residuals, valid = self._residuals(steps, features)
        taken = (steps.actions[..., np.newaxis] == np.arange(A)) & valid[..., np.newaxis]
        shares = np.where(taken, residuals[..., np.newaxis], 0.0)
        sums = (shares.swapaxes(1, 2) @ features[:, :-1]) @ self.root
        return sums.reshape(len(sums), A * self.root.shape[1])

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats]:
        """Values, predictions and numbers as the compiled loops take them."""
        from tacit.continuous.sum_loops import tables_of

        ending = math.nan if self.ending is None else self.ending
        rewards, values = (self.unit, self.centre), (self.offset, *self.value_range)
        if self.spec.dimension == 1:
            tables = tables_of(self.values, self.predictions, self.discount, *values)
            return *tables, np.array([*rewards, self.discount * ending])
        about = np.array([*rewards, ending, self.discount, *values])
        return self.values.T.copy(), self.predictions.reshape(-1), about

    def _add(self, where: Any, by_point: Floats, sums: Floats) -> None:
        from tacit.continuous.sum_loops import residuals_on_grid, residuals_on_line

        assert is_grid(self.features)  # noqa: S101
        if self.spec.dimension == 1:
            residuals_on_line((where[4], where[5], where[3]), *self._tables, by_point)
        else:
            by_point[:] = 0.0
            residuals_on_grid(where, *self._tables, self.features.corners, by_point)
        m, k = self.root.shape
        np.matmul(by_point.reshape(-1, m), self.root, out=sums.reshape(-1, k))

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


@dataclass(frozen=True)
class MeanRewards(Statistic):
    """What users earn in a step, on average over the horizon; nothing after an end.

    One part, ``earned``: the sum of a user's rewards over H, from the middle of the rewards' range
    and in units of it. Steps that are not valid have earned the middle.

    Sensitivity. A number in [-1/2, 1/2]: two users differ by at most 1, as those do who always earn
    the least and the most, and zero is at most 1/2 away.
    """

    spec: BoxSpec
    name = "mean rewards"

    @cached_property
    def layout(self) -> Layout:
        """``earned``."""
        return Layout((Part("earned", (1,)),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(0.5, relation)

    def vectors(self, block: Block) -> Floats:
        """One number for each user."""
        steps, (low, high) = steps_of(block, self.spec), self.spec.reward_range
        units = np.where(steps.valid, (steps.rewards - low) / (high - low) - 0.5, 0.0)
        means: Floats = units.mean(axis=1, keepdims=True)
        return np.clip(means, -0.5, 0.5)
