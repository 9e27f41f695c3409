"""Statistics for a model of transitions: scales and moments of steps, and where episodes end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.features import finite_array
from tacit.continuous.statistics import steps_of, vectors_by_part
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sensitivity import ACUTE, InBall, ball
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, Part, Statistic, pack

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec
    from tacit.continuous.transition_model import PolynomialFeatures

FIRST_POWER, POWERS = -24, 36
"""Bins are powers of two: the first, and how many."""
BINS, GOING = 32, 0.5
"""Bins of a coordinate, for where episodes end; weight of steps that go on, beside an end's."""

_COUNTED = 64  # steps of a user that count, spread over her episode: more add little but work
_FARTHEST = 1e6  # A residual beyond so many scales is cut there: products must stay finite
# A length below this counts as none: its square has lost digits, and ratios could exceed one.
_SHORTEST = 1e-140


def _moves(block: Block, spec: BoxSpec, rewards: bool) -> tuple[Ints, Floats, Ints, Floats]:
    """Users, states, actions, and what changed, (n, D), with the reward if that is asked for.

    Of steps that count, in the order of users: valid ones, of which none ends on the edge of the
    box, where states are cut.
    """
    steps = steps_of(block, spec)
    lows, highs, angles = np.array(spec.lows), np.array(spec.highs), angles_of(spec)
    inside = (steps.states > lows) & (steps.states < highs) | angles
    counted = steps.valid & inside[:, 1:].all(axis=-1)
    of_user = counted.sum(axis=1, keepdims=True)
    stride = np.maximum(1, -(-of_user // _COUNTED))
    counted &= (np.cumsum(counted, axis=1) - 1) % stride == 0
    users, at = np.nonzero(counted)
    here = steps.states[users, at]
    with np.errstate(all="ignore"):
        targets = steps.states[users, at + 1] - here
        targets[:, angles] = (targets[:, angles] + math.pi) % (2.0 * math.pi) - math.pi
    if rewards:
        paid = steps.rewards[users, at] - 0.5 * sum(spec.reward_range)
        targets = np.concatenate([targets, paid[:, np.newaxis]], axis=1)
    return users, here, steps.actions[users, at], targets


def angles_of(spec: BoxSpec) -> Bools:
    """Which coordinates are angles, (D,)."""
    found = np.zeros(spec.dimension, dtype=np.bool_)
    found[list(getattr(spec, "angles", ()))] = True
    return found


@dataclass(frozen=True, eq=False)
class ScaleHistogram(Statistic):
    """Histograms of how far users' states move in a step, and of their sizes in an open box.

    Part ``moves`` (outputs, 36): for every coordinate, and for the reward if ``rewards``, one 1 at
    the power of two nearest to the root mean square of what changes in a step, from 2^-24 on. Part
    ``sizes``: for every coordinate that the box leaves open, one 1 at the power of two above the
    largest value. A user without any valid step has zeros.

    Formal guarantees:
        Sensitivity sqrt(2 g), and sqrt(g) against zero. Each of g groups holds one 1 at most: two
        users differ by at most sqrt(2) in each, as users do who are different everywhere.
    """

    spec: BoxSpec
    rewards: bool = False
    nonnegative = True
    name = "scales of moves"

    @property
    def outputs(self) -> int:
        """Coordinates that a step changes, and the reward if that is asked for."""
        return self.spec.dimension + int(self.rewards)

    @cached_property
    def unbounded(self) -> Bools:
        """Coordinates that the box leaves open, (D,)."""
        return np.asarray(~np.isfinite([self.spec.lows, self.spec.highs]).all(axis=0))

    @cached_property
    def layout(self) -> Layout:
        """``moves``, and ``sizes`` where they are needed."""
        parts = [Part("moves", (self.outputs, POWERS))]
        if self.unbounded.any():
            parts.append(Part("sizes", (int(self.unbounded.sum()), POWERS)))
        return Layout(tuple(parts))

    def l2(self, relation: Relation) -> float:
        """Sensitivity, as the class derives it."""
        groups = self.outputs + int(self.unbounded.sum())
        return ball(math.sqrt(groups), relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """One-hot rows."""
        users, states, _, targets = _moves(block, self.spec, self.rewards)
        counts = np.bincount(users, minlength=block.users)
        with np.errstate(all="ignore"):
            squares = np.zeros((block.users, self.outputs))
            np.add.at(squares, users, np.clip(targets, -1e100, 1e100) ** 2)
            means = np.sqrt(squares / np.maximum(counts, 1)[:, np.newaxis])
        powers: Floats = np.rint(np.log2(np.maximum(means, 1e-300)))
        parts = {"moves": _one_hot(powers - FIRST_POWER, counts > 0)}
        if self.unbounded.any():
            largest = np.zeros((block.users, self.spec.dimension))
            np.maximum.at(largest, users, np.abs(states))
            powers = np.ceil(np.log2(np.maximum(largest[:, self.unbounded], 1e-300)))
            parts["sizes"] = _one_hot(powers - FIRST_POWER, counts > 0)
        return self.layout.pack(parts, users=block.users)


def _one_hot(bins: Floats, known: Bools) -> Floats:
    hot = np.clip(bins, 0, POWERS - 1).astype(np.int64)[..., np.newaxis] == np.arange(POWERS)
    return np.where(known[:, np.newaxis, np.newaxis], hot, 0.0)


@dataclass(frozen=True, eq=False)
class TransitionMoments(InBall):
    """Second moments of users' steps, of length one for each user.

    A step is y = (metric f, (t - model' f) / scales), with f its features and t what it changed:
    every coordinate, and the reward from the middle of its range if ``rewards``. It is divided by
    its length, and the part ``moments`` is the mean Y of y y' over the steps of a user that count,
    divided by its Frobenius norm: at most 64, evenly spread, none that ends on the edge of the box;
    zeros if there is none. So users are weighed, those the most whose steps are the most diverse,
    and nobody is clipped: a mean of real users has a norm of a quarter to a half.

    Formal guarantees:
        Sensitivity sqrt(2), and 1 against zero. Y is positive semi-definite, and of norm 1 or zero;
        of two such matrices <Y, Y'> >= 0, so that |Y - Y'|^2 <= |Y|^2 + |Y'|^2 <= 2, whatever the
        horizon is. Attained by users whose steps are all orthogonal to the other's.
    """

    spec: BoxSpec
    features: PolynomialFeatures
    metric: Floats  # (p, p)
    model: Floats  # (p, outputs)
    scales: Floats  # (outputs,), > 0
    rewards: bool = False
    clip, apart = 1.0, ACUTE

    def __post_init__(self) -> None:
        p, n = self.features.size, self.spec.dimension + int(self.rewards)
        for name, shape in (("metric", (p, p)), ("model", (p, n)), ("scales", (n,))):
            object.__setattr__(self, name, finite_array(name, getattr(self, name), *shape))
        self._sums_to(Part("moments", (p + n, p + n), symmetric=True))

    def vectors(self, block: Block) -> Floats:
        """One matrix for each user."""
        K, m = min(self.spec.horizon, _COUNTED), self.features.size + len(self.scales)
        numbers = max((self.spec.horizon + 1) * 8, 4 * K * m)
        return vectors_by_part(block, numbers, self._matrices)

    def _matrices(self, block: Block) -> Floats:
        """Moments of users' steps, of which each user has 64, zero where there is none.

        How a product of matrices is rounded depends on its shape, and must not on what others did.
        """
        n, p, K = block.users, self.features.size, min(self.spec.horizon, _COUNTED)
        users, states, actions, targets = _moves(block, self.spec, self.rewards)
        counts = np.bincount(users, minlength=n)
        at = users, np.arange(len(users)) - (np.cumsum(counts) - counts)[users]
        own, told = np.zeros((n, K, p)), np.zeros((n, K, len(self.scales)))
        own[at], told[at] = self.features(states, actions), targets
        f, t = own.reshape(-1, p), told.reshape(-1, len(self.scales))
        with np.errstate(all="ignore"):
            y = np.concatenate([f @ self.metric.T, (t - f @ self.model) / self.scales], axis=1)
            y = np.clip(y, -_FARTHEST, _FARTHEST)
            lengths = np.sqrt((y**2).sum(axis=1) * np.repeat(np.maximum(counts, 1), K))
        good = np.isfinite(lengths) & (lengths > _SHORTEST)
        y = np.where(good[:, np.newaxis], y, 0.0) / np.where(good, lengths, 1.0)[:, np.newaxis]
        y = y.reshape(n, K, y.shape[1])
        return _of_length_one(y.swapaxes(1, 2) @ y)


@dataclass(frozen=True, eq=False)
class StartMoments(InBall):
    """Second moments of first states: z z' / |z|^2 with z = (1, scaled state).

    A coordinate is scaled to [-1, 1] in the box from ``lows`` to ``highs``, and cut there.

    Formal guarantees:
        Sensitivity sqrt(2), and 1 against zero, as of :class:`TransitionMoments`: matrices are
        positive semi-definite and of length 1. Attained by users who begin in opposite corners of
        a plane.
    """

    spec: BoxSpec
    lows: Floats  # (D,), finite
    highs: Floats
    clip, apart = 1.0, ACUTE

    def __post_init__(self) -> None:
        size = self.spec.dimension + 1
        self._sums_to(Part("moments", (size, size), symmetric=True))

    def vectors(self, block: Block) -> Floats:
        """One matrix for each user; zeros if her first step is none."""
        steps = steps_of(block, self.spec)
        z = (steps.states[:, 0] - self.lows) / (0.5 * (self.highs - self.lows)) - 1.0
        z = np.concatenate([np.ones((len(z), 1)), np.clip(z, -1.0, 1.0)], axis=1)
        z = z * steps.valid[:, :1]
        return _of_length_one(z[:, :, np.newaxis] * z[:, np.newaxis, :])

    def distribution(self, moments: Floats, std: float) -> tuple[Floats, Floats]:
        """Mean (D,) and root of the covariance (D, D) of first states, by noisy moments."""
        half, ones = 0.5 * (self.highs - self.lows), max(float(moments[0, 0]), std, 1e-9)
        mean = np.clip(moments[0, 1:] / ones, -1.0, 1.0)
        values, vectors = np.linalg.eigh(moments[1:, 1:] / ones - np.outer(mean, mean))
        values = np.clip(values, 1e-12, 1.0)
        root = vectors * (values / np.sqrt(values + 2.0 * std / ones))  # shrunk, as it is noisy
        return self.lows + half * (mean + 1.0), half[:, np.newaxis] * root


def _of_length_one(matrices: Floats) -> Floats:
    """Packed matrices (n, m, m), each divided by its Frobenius norm; zeros stay."""
    norms = np.sqrt((matrices**2).sum(axis=(1, 2), keepdims=True))
    return pack(matrices / np.where(norms > 0.0, norms, 1.0))


@dataclass(frozen=True, eq=False)
class TerminationMoments(InBall):
    """Second moments of states that steps lead to, and of a sign: whether the episode ended there.

    With z the features of a state that a step leads to, y = (z, 1) if the episode ended there and
    (z, -1) if it went on, divided by its length. The part ``moments`` is the sum of w y y' over a
    user's valid steps, where the end has w = 1/2, and all others share 1/2 evenly: ends are rare,
    and count as much as all that is no end.

    Formal guarantees:
        Sensitivity sqrt(2), and 1 against zero. Weights add up to 1 at most, so that a user's
        matrix is positive semi-definite with trace at most 1; see :class:`TransitionMoments`. It is
        nearly attained by users who stay at one state, far out, where the sign is small beside the
        features, and end there, at two states whose features are orthogonal.
    """

    spec: BoxSpec
    features: PolynomialFeatures
    clip, apart = 1.0, ACUTE

    def __post_init__(self) -> None:
        m = self.features.size + 1
        self._sums_to(Part("moments", (m, m), symmetric=True))

    def vectors(self, block: Block) -> Floats:
        """One matrix for each user."""
        numbers = self.spec.horizon * (self.features.size + self.spec.dimension + 3)
        return vectors_by_part(block, numbers, self._matrices)

    def _matrices(self, block: Block) -> Floats:
        steps = steps_of(block, self.spec)
        flat = steps.states[:, 1:].reshape(-1, self.spec.dimension)
        z = self.features(flat, np.zeros(len(flat), dtype=np.int64))
        signs = np.where(steps.ended, 1.0, -1.0).reshape(-1, 1)
        y = np.concatenate([z, signs], axis=1)
        y /= np.linalg.norm(y, axis=1, keepdims=True)
        others = steps.valid & ~steps.ended
        shares = 0.5 / np.maximum(others.sum(axis=1, keepdims=True), 1)
        weights = np.where(steps.ended, 0.5, np.where(others, shares, 0.0))
        y = y.reshape(*weights.shape, y.shape[1]) * np.sqrt(weights)[..., np.newaxis]
        return pack(y.swapaxes(1, 2) @ y)


@dataclass(frozen=True, eq=False)
class TerminationHistogram(Statistic):
    """Histograms, along every coordinate, of states at which episodes end, and go on.

    The box from ``lows`` to ``highs`` is cut into 32 bins along each coordinate that is no angle,
    c of them; states outside count for the outermost. Part ``ends`` (c, 32): a 1 at the bin of the
    state at which her episode ended, in every coordinate. Part ``going`` (c, 32): the share of her
    other valid steps that led to a bin, which weighs a half. Part ``lengths``: a 1 at the power of
    two below the length of her episode, if it ended, from 1 to the horizon.

    Formal guarantees:
        Sensitivity sqrt(2.5 c + 2), and sqrt(1.25 c + 1) against zero. A user's entries are >= 0,
        so that two of them are at no obtuse angle, and their squares, as weighed, add up to c for
        ends, at most c / 4 for shares, and 1. Attained by users who stay at different places, end
        at others, and after different times.
    """

    spec: BoxSpec
    lows: Floats  # (D,), finite
    highs: Floats
    nonnegative = True
    name = "places of ends"

    def __post_init__(self) -> None:
        for name in ("lows", "highs"):
            array = finite_array(name, getattr(self, name), self.spec.dimension)
            object.__setattr__(self, name, array)
        if not (self.lows < self.highs).all():
            raise InvalidArgument(f"lows must be below highs, got {self.lows} and {self.highs}")

    @cached_property
    def coordinates(self) -> Ints:
        """Those that are no angles, (c,)."""
        return np.flatnonzero(~angles_of(self.spec))

    @cached_property
    def layout(self) -> Layout:
        """``ends``, ``going``, ``lengths``."""
        c, powers = len(self.coordinates), self.spec.horizon.bit_length()
        going = Part("going", (c, BINS), weight=GOING)
        return Layout((Part("ends", (c, BINS)), going, Part("lengths", (powers,))))

    def l2(self, relation: Relation) -> float:
        """Sensitivity, as the class derives it."""
        return ball(math.sqrt((1.0 + GOING**2) * len(self.coordinates) + 1.0), relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """Histograms of each user."""
        c, H = len(self.coordinates), self.spec.horizon
        numbers = H * (self.spec.dimension + 4 * c) + 2 * self.layout.size
        return vectors_by_part(block, numbers, self._histograms)

    def _histograms(self, block: Block) -> Floats:
        steps = steps_of(block, self.spec)
        with np.errstate(all="ignore"):
            low, size = (part[self.coordinates] for part in (self.lows, self.highs - self.lows))
            along = (steps.states[:, 1:, self.coordinates] - low) / size * BINS
        bins = np.clip(np.nan_to_num(along), 0, BINS - 1).astype(np.int64)
        others = steps.valid & ~steps.ended
        shares = 1.0 / np.maximum(others.sum(axis=1), 1)
        users, at = np.nonzero(steps.ended)
        lengths = np.zeros((block.users, self.spec.horizon.bit_length()))
        lengths[users, np.floor(np.log2(at + 1.0)).astype(np.int64)] = 1.0
        going = _counts(others, bins) * shares[:, np.newaxis, np.newaxis]
        parts = {"ends": _counts(steps.ended, bins), "going": going, "lengths": lengths}
        return self.layout.pack(parts, users=block.users)


def _counts(chosen: Bools, bins: Ints) -> Floats:
    """Counts of each user's (row's) chosen steps into each bin of a coordinate, (n, c, 32)."""
    n, _, c = bins.shape
    users, at = np.nonzero(chosen)
    cells = (users[:, np.newaxis] * c + np.arange(c)) * BINS + bins[users, at]
    counts = np.bincount(cells.ravel(), minlength=n * c * BINS)
    return counts.reshape(n, c, BINS).astype(np.float64)
