"""Bounded sums over users' steps on vectors: visits, residuals of values, mean rewards."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.features import Grid, finite_array
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sensitivity import ACUTE, InBall, scaled_back
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Part, pack

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec

_CHUNK = 1 << 22  # numbers of features that are in memory at a time
_AT_ONCE = 1024  # users of a block on a grid that are summed at a time


class Steps(NamedTuple):
    """Users' steps, made safe: whatever the values are, nothing raises."""

    states: Floats  # (users, H + 1, D); zero where they are not finite
    actions: Ints  # (users, H); zero where there is none
    rewards: Floats  # (users, H), cut to their range
    valid: Bools  # which steps count
    ended: Bools  # which of them are the last of an episode that ended


def steps_of(block: Block, spec: BoxSpec) -> Steps:
    """Steps of a block's users, valid ones before the end. Wrong shapes, public, are refused."""
    H, arrays = spec.horizon, {}
    shapes = {"states": (H + 1, len(spec.lows)), "actions": (H,), "rewards": (H,), "lengths": ()}
    for name, shape in shapes.items():
        if name not in block.arrays:
            raise InvalidArgument(f"this block has no array {name!r}: {list(block.arrays)}")
        arrays[name] = np.asarray(block.arrays[name], dtype=np.float64)
        if arrays[name].shape != (block.users, *shape):
            raise InvalidArgument(
                f"{name!r} must have shape {(block.users, *shape)}, got {arrays[name].shape}"
            )
    states, labels, paid = arrays["states"], arrays["actions"], arrays["rewards"]
    lengths = arrays["lengths"][:, np.newaxis]
    finite = np.asarray(np.isfinite(states).all(axis=-1))
    valid = finite[:, :-1] & finite[:, 1:] & np.isfinite(paid)
    valid &= (labels >= 0) & (labels < spec.actions) & (labels == np.floor(labels))
    valid &= np.arange(H) < lengths
    return Steps(
        states=np.where(finite[..., np.newaxis], states, 0.0),
        actions=np.where(valid, labels, 0.0).astype(np.int64),
        rewards=np.where(valid, np.clip(paid, *spec.reward_range), 0.0),
        valid=valid,
        ended=valid & (np.arange(H) + 1 == lengths),
    )


def vectors_by_part(block: Block, numbers: int, of: Callable[[Block], Floats]) -> Floats:
    """Vectors of a block's users, each of whom takes so many floats, 4 million floats at a time."""
    users = max(1, _CHUNK // max(1, numbers))
    parts = (slice(i, min(block.users, i + users)) for i in range(0, max(1, block.users), users))
    return np.concatenate([of(block.take(part)) for part in parts])


class ClippedSums(InBall):
    """Base of statistics that sum a function of features over a user's steps, clipped as a whole.

    On a grid of one coordinate a state is first rounded to the nearest of 64 places in its cell, so
    that values are looked up in a table: of that user alone and before the clip, so no sensitivity
    changes.
    """

    # The compiled total scales each user back to ``clip``, which is the declared bound, before it
    # adds her, and adds nothing of one who is not finite.
    _adds_bounded = True
    spec: BoxSpec
    features: FeatureMap

    def vectors(self, block: Block) -> Floats:
        """Each user's sums, scaled back."""
        if not isinstance(self.features, Grid):
            numbers = (self.spec.horizon + 1) * (self.features.size + self.layout.size)
            return vectors_by_part(block, numbers, self._scaled)
        vectors = np.zeros((block.users, self.layout.size))
        for rows, sums in self._on_grid(block):
            vectors[rows] = scaled_back(sums, self.clip)
        return vectors

    def total(self, block: Block) -> Floats:
        """The sum over users, compiled on grids."""
        if block.aggregate or not isinstance(self.features, Grid):
            return super().total(block)
        from tacit.continuous.sum_loops import add_clipped

        total = np.zeros(self.layout.size)
        for _, sums in self._on_grid(block):
            add_clipped(sums, self.clip, total)
        return total

    def _scaled(self, block: Block) -> Floats:
        return scaled_back(self._sums(steps_of(block, self.spec)), self.clip)

    def _on_grid(self, block: Block) -> Iterator[tuple[slice, Floats]]:
        """Some users after the other, and their sums, which are not scaled back."""
        grid = self.features
        assert isinstance(grid, Grid)  # noqa: S101
        of = grid, self.spec.actions, self.spec.reward_range
        where = block.once(("places", *of), partial(places, spec=self.spec, grid=grid))
        by_point = np.empty((_AT_ONCE, self.spec.actions * grid.size))
        sums = np.empty((_AT_ONCE, self.layout.size))
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
    """Cells of a grid that users' steps are in: ``Placed``, or ``OnLine``."""
    from tacit.continuous.sum_loops import FINE, placed, placed_on_line

    steps = steps_of(block, spec)
    if spec.dimension == 1:
        # Short numbers where they fit: all of them are read again at every sweep.
        kind = np.int16 if spec.actions * grid.size * FINE < 1 << 15 else np.int32
        at, now = (np.empty((block.users, spec.horizon + i), dtype=kind) for i in (1, 0))
        placed_on_line(steps, grid.for_loops(), at, now)
        return at, now, steps.rewards
    return *placed(steps, grid.for_loops()), steps.rewards


@dataclass(frozen=True, eq=False)
class VisitSums(ClippedSums):
    """Sums over steps of the features of states, or of their outer products.

    On a grid the part ``visits`` (m,) is a histogram, the sums of the weights of points; on any
    other map a Gram matrix (m, m). A user is scaled back to length ``clip``.

    Formal guarantees:
        Sensitivity sqrt(2) clip, and clip against zero. Histograms have no negative entry and Gram
        matrices no negative eigenvalue, so two users are never at an obtuse angle: of length at
        most clip, they are at most sqrt(2) clip apart. Two users at different points of the grid
        attain it.
    """

    spec: BoxSpec
    features: FeatureMap
    clip: float
    apart: ClassVar[float] = ACUTE

    def __post_init__(self) -> None:
        m, on_grid = self.features.size, isinstance(self.features, Grid)
        self._sums_to(Part("visits", (m,) if on_grid else (m, m), symmetric=not on_grid))

    @property
    def nonnegative(self) -> bool:
        """True of histograms; a Gram matrix has negative entries."""
        return isinstance(self.features, Grid)

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Visits of each point of a grid; no user has more than its length or the horizon."""
        if not isinstance(self.features, Grid):
            return {}
        noise, H = float(np.max(release.std["visits"])), float(self.spec.horizon)
        visits = release["visits"], np.full(self.features.size, noise)
        found = {"visits": visits, "reach": (min(self.clip, H), 0.0)}
        return found if self.clip >= H else found | {"partial": (1.0, 0.0)}

    def _sums(self, steps: Steps) -> Floats:
        here = self.features(steps.states[:, :-1]) * steps.valid[..., np.newaxis]
        return pack(here.swapaxes(1, 2) @ here)

    def _add(self, where: Any, by_point: Floats, sums: Floats) -> None:
        from tacit.continuous.sum_loops import add_visits, visits_on_line

        assert isinstance(self.features, Grid)  # noqa: S101
        if self.spec.dimension == 1:
            visits_on_line(where, sums)
        else:
            sums[:] = 0.0
            add_visits(where[:3], self.features.corners, sums)


@dataclass(frozen=True)
class Units:
    """Centre and unit of rewards, the value of an end, if any, and the range of values."""

    centre: float
    unit: float
    ending: float | None
    value_range: tuple[float, float]

    @classmethod
    def of(cls, spec: BoxSpec, discount: float, ends: bool) -> Units:
        """Centred rewards where nothing ends; else values are measured from the best that can be.

        So an end, which is worth 0, is one unit below it if rewards are positive.
        """
        low, high = spec.reward_range
        if not ends:
            most = 1.0 / (1.0 - discount)
            return cls(0.5 * (low + high), high - low, None, (-most, most))
        unit = max(high - low, abs(high)) / (1.0 - discount)
        ending = -high / (1.0 - discount) / unit
        return cls(high, unit, ending, (min(-1.0, ending), max(0.0, ending)))


@dataclass(frozen=True, eq=False)
class ResidualSums(ClippedSums):
    """Sums of users' residuals: rewards and next values less what public values predict.

    A step has the residual e = (r - centre) / unit + discount V(s') - predictions[a] @ features(s)
    with V(s) = max_b values[b] @ features(s) - offset, cut to the range of values; where the
    episode ended, the value of an end takes the place of V(s'), and the step is dropped if there is
    none. A user's function is the sum over steps of e times K(s, .) for the action that was taken.
    The part ``residuals`` has its coordinates features(s) @ root, (actions, k), in which Euclidean
    length is its norm, so that the curator's noise is that of a Gaussian process
    (:func:`tacit.continuous.estimate.root_of`). A user is scaled back to norm ``clip``.

    Formal guarantees:
        Sensitivity 2 clip, and clip against zero: the clipped user lies in a ball of radius clip.
    """

    spec: BoxSpec
    features: FeatureMap
    root: Floats  # (m, k), from features to the coordinates that are released
    values: Floats  # (actions, m)
    predictions: Floats  # (actions, m)
    clip: float  # c
    discount: float  # of the next value
    units: Units  # of rewards and values
    offset: float = 0.0  # what values are measured from

    def __post_init__(self) -> None:
        m, A = self.features.size, self.spec.actions
        root = (m, *np.shape(self.root)[1:2])
        for name, shape in (("root", root), ("values", (A, m)), ("predictions", (A, m))):
            object.__setattr__(self, name, finite_array(name, getattr(self, name), *shape))
        self._sums_to(Part("residuals", (A, self.root.shape[1])))

    def _sums(self, steps: Steps) -> Floats:
        A, units, features = self.spec.actions, self.units, self.features(steps.states)
        here, there, valid = features[:, :-1], features[:, 1:], steps.valid
        ahead = np.clip((there @ self.values.T).max(axis=-1) - self.offset, *units.value_range)
        if units.ending is None:
            valid = valid & ~steps.ended
        else:
            ahead = np.where(steps.ended, units.ending, ahead)
        own = steps.actions[..., np.newaxis]
        predicted = np.take_along_axis(here @ self.predictions.T, own, axis=-1)[..., 0]
        rewards = (steps.rewards - units.centre) / units.unit
        residuals = (rewards + self.discount * ahead - predicted)[..., np.newaxis]
        shares = np.where((own == np.arange(A)) & valid[..., np.newaxis], residuals, 0.0)
        sums = (shares.swapaxes(1, 2) @ here) @ self.root
        return sums.reshape(len(sums), A * self.root.shape[1])

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats]:
        """Values, predictions and numbers as the compiled loops take them."""
        from tacit.continuous.sum_loops import tables_of

        ending = math.nan if self.units.ending is None else self.units.ending
        rewards, values = (self.units.unit, self.units.centre), self.units.value_range
        if self.spec.dimension == 1:
            tables = tables_of(self.values, self.predictions, self.discount, self.offset, *values)
            return *tables, np.array([*rewards, self.discount * ending])
        about = np.array([*rewards, ending, self.discount, self.offset, *values])
        return self.values.T.copy(), self.predictions.reshape(-1), about

    def _add(self, where: Any, by_point: Floats, sums: Floats) -> None:
        from tacit.continuous.sum_loops import residuals_on_grid, residuals_on_line

        assert isinstance(self.features, Grid)  # noqa: S101
        if self.spec.dimension == 1:
            residuals_on_line(where, *self._tables, by_point)
        else:
            by_point[:] = 0.0
            residuals_on_grid(where, *self._tables, self.features.corners, by_point)
        m, k = self.root.shape
        np.matmul(by_point.reshape(-1, m), self.root, out=sums.reshape(-1, k))


@dataclass(frozen=True)
class MeanRewards(InBall):
    """A user's mean reward in a step, over the horizon; nothing after an end.

    One part, ``earned``: the sum of a user's rewards over H, from the middle of the rewards' range
    and in units of it. Steps that are not valid have earned the middle.

    Formal guarantees:
        Sensitivity 1, and 1/2 against zero. A number in [-1/2, 1/2]: two users differ by at most 1,
        as those do who always earn the least and the most.
    """

    spec: BoxSpec
    clip = 0.5

    def __post_init__(self) -> None:
        self._sums_to(Part("earned", (1,)))

    def vectors(self, block: Block) -> Floats:
        """One number for each user."""
        steps, (low, high) = steps_of(block, self.spec), self.spec.reward_range
        units = np.where(steps.valid, (steps.rewards - low) / (high - low) - 0.5, 0.0)
        return np.asarray(np.clip(units.mean(axis=1, keepdims=True), -0.5, 0.5))
