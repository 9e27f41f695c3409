"""What is asked of users for a model of how states move: how far, moments of steps, and ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.continuous.statistics.steps import parts_of, steps_of
from tacit.privacy.bounds.balls import ACUTE, ball
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Ints, Layout, Part, Statistic
from tacit.privacy.symmetric import pack

if TYPE_CHECKING:
    from tacit.continuous.monomials import Monomials
    from tacit.continuous.spec import BoxSpec

FIRST_POWER, POWERS = -24, 36
"""Bins are powers of two, of which the first and so many are told apart."""

# Steps of a user that count, spread over her episode: more add little but work.
_COUNTED = 64
# A residual beyond so many scales is cut there: products must stay finite.
_FARTHEST = 1e6
# A length below this counts as none: its square has lost digits, and ratios could exceed one.
_SHORTEST = 1e-140


class _Moves(NamedTuple):
    """Users' steps that count, one after the other."""

    users: Ints  # whose they are, in increasing order
    states: Floats
    actions: Ints
    targets: Floats  # what changed, (n, D), and the reward, if that is asked for


def _moves(block: Block, spec: BoxSpec, rewards: bool) -> _Moves:
    """Steps that count: valid, and none that ends on the edge of the box, where states are cut."""
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
    return _Moves(users, here, steps.actions[users, at], targets)


def angles_of(spec: BoxSpec) -> Bools:
    """Which coordinates are angles, (D,)."""
    found = np.zeros(spec.dimension, dtype=np.bool_)
    found[list(getattr(spec, "angles", ()))] = True
    return found


@dataclass(frozen=True, eq=False)
class MoveScales(Statistic):
    """How far users' states move in a step, and how large they get where no box says so.

    Part ``moves`` (outputs, 36): for every coordinate, and for the reward if ``rewards``, one 1 at
    the power of two that is nearest to the root mean square of what changes in a step, from 2^-24
    on. Part ``sizes`` (D, 36): for every coordinate that the box leaves open, one 1 at the power of
    two above the largest value. A user without any valid step has zeros.

    Sensitivity. Each of g groups holds one 1 at most: two users differ by at most sqrt(2) in each,
    sqrt(2 g) together, as users do who are different everywhere; zero is sqrt(g) away.
    """

    spec: BoxSpec
    rewards: bool = False
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "scales of moves")

    @property
    def outputs(self) -> int:
        """What a step changes: coordinates, and the reward if that is asked for."""
        return self.spec.dimension + int(self.rewards)

    @cached_property
    def unbounded(self) -> Bools:
        """Coordinates that the box leaves open, (D,)."""
        found: Bools = ~np.isfinite(np.array([self.spec.lows, self.spec.highs])).all(axis=0)
        return found

    @cached_property
    def layout(self) -> Layout:
        """``moves``, and ``sizes`` where they are needed."""
        parts = [Part("moves", (self.outputs, POWERS))]
        if self.unbounded.any():
            parts.append(Part("sizes", (int(self.unbounded.sum()), POWERS)))
        return Layout(tuple(parts))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        groups = self.outputs + int(self.unbounded.sum())
        return ball(math.sqrt(groups), relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """One-hot rows."""
        moves = _moves(block, self.spec, self.rewards)
        counts = np.bincount(moves.users, minlength=block.users)
        with np.errstate(all="ignore"):
            cut = np.clip(moves.targets, -1e100, 1e100)
            squares = _by_user(moves.users, cut**2, block.users)
            means = np.sqrt(squares / np.maximum(counts, 1)[:, np.newaxis])
        powers: Floats = np.rint(np.log2(np.maximum(means, 1e-300)))
        parts = {"moves": _one_hot(powers - FIRST_POWER, counts > 0)}
        if self.unbounded.any():
            largest = np.zeros((block.users, self.spec.dimension))
            np.maximum.at(largest, moves.users, np.abs(moves.states))
            powers = np.ceil(np.log2(np.maximum(largest[:, self.unbounded], 1e-300)))
            parts["sizes"] = _one_hot(powers - FIRST_POWER, counts > 0)
        return self.layout.pack(parts, users=block.users)


def _one_hot(bins: Floats, known: Bools) -> Floats:
    whole = np.clip(bins, 0, POWERS - 1).astype(np.int64)
    hot: Floats = (whole[..., np.newaxis] == np.arange(POWERS)).astype(np.float64)
    return np.where(known[:, np.newaxis, np.newaxis], hot, 0.0)


def _by_user(users: Ints, rows: Floats, count: int) -> Floats:
    sums = np.zeros((count, rows.shape[1]))
    np.add.at(sums, users, rows)
    return sums


@dataclass(frozen=True, eq=False)
class MoveMoments(Statistic):
    """Second moments of users' steps, of length one each, averaged over a user's steps.

    A step is y = (metric f, (t - model' f) / scales), with f its features and t what it changed:
    every coordinate, and the reward from the middle of its range if ``rewards``. It is divided by
    its length, and the part ``moments`` (p + outputs, p + outputs) is the mean of y y' over the
    steps of a user that count: at most 64, evenly spread, none that ends on the edge of the box.
    A user without any has zeros.

    Sensitivity. A mean of y y' with |y| = 1 is positive semi-definite with trace 1, so its
    Frobenius norm is at most 1, and of two such matrices <Y, Y'> >= 0, so that |Y - Y'|^2 <=
    |Y|^2 + |Y'|^2 <= 2: they are at most sqrt(2) apart, without any clip, whatever the horizon is.
    Attained by users each of whom makes one step over and over again, with y orthogonal to each
    other. The zero matrix is at most 1 away.
    """

    spec: BoxSpec
    features: Monomials
    metric: Floats  # (p, p)
    model: Floats  # (p, outputs)
    scales: Floats  # (outputs,), > 0
    rewards: bool = False

    def __post_init__(self) -> None:
        p, n = self.features.size, self.spec.dimension + int(self.rewards)
        for name, shape in (("metric", (p, p)), ("model", (p, n)), ("scales", (n,))):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if not (self.scales > 0.0).all():
            raise InvalidArgument(f"scales must be > 0, got {self.scales}")
        object.__setattr__(self, "name", "moments of moves")

    @cached_property
    def layout(self) -> Layout:
        """``moments``."""
        m = self.features.size + len(self.scales)
        return Layout((Part("moments", (m, m), symmetric=True),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(1.0, relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """One matrix for each user."""
        found = np.zeros((block.users, self.layout.size))
        for rows, y in self._steps(block):
            found[rows] = pack(y.swapaxes(1, 2) @ y)
        return found

    def _steps(self, block: Block) -> Iterator[tuple[slice, Floats]]:
        """Users' steps, (users, 64, m), with lengths whose squares add up to one for each user.

        Every user has as many rows, zero where there is no step: how a product of matrices is
        rounded depends on its shape, and must not depend on what others did.
        """
        p, K = self.features.size, min(self.spec.horizon, _COUNTED)
        m = p + len(self.scales)
        for rows, part in parts_of(block, max((self.spec.horizon + 1) * 8, 4 * K * m)):
            moves = _moves(part, self.spec, self.rewards)
            counts = np.bincount(moves.users, minlength=part.users)
            first = np.cumsum(counts) - counts
            at = moves.users, np.arange(len(moves.users)) - first[moves.users]
            own, told = np.zeros((part.users, K, p)), np.zeros((part.users, K, len(self.scales)))
            own[at], told[at] = self.features(moves.states, moves.actions), moves.targets
            f, t = own.reshape(-1, p), told.reshape(-1, len(self.scales))
            y = np.empty((len(f), m))
            with np.errstate(all="ignore"):
                y[:, :p] = f @ self.metric.T
                y[:, p:] = (t - f @ self.model) / self.scales
                y = np.clip(y, -_FARTHEST, _FARTHEST)
                lengths = np.sqrt((y**2).sum(axis=1) * np.repeat(np.maximum(counts, 1), K))
            good = np.isfinite(lengths) & (lengths > _SHORTEST)
            y = np.where(good[:, np.newaxis], y, 0.0) / np.where(good, lengths, 1.0)[:, np.newaxis]
            yield slice(rows.start, rows.start + part.users), y.reshape(part.users, K, m)


@dataclass(frozen=True, eq=False)
class EndMoments(Statistic):
    """At which states episodes end: second moments of states that steps lead to, and of a sign.

    With z the features of a state that a step leads to, y = (z, 1) if the episode ended there and
    (z, -1) if it went on, divided by its length. The part ``moments`` is the sum of w y y' over a
    user's valid steps, where the end has w = 1/2, and all others share 1/2 evenly: ends are rare,
    and count as much as all that is no end.

    Sensitivity: sqrt(2), and 1 against zero. Weights add up to 1 at most, so that a user's matrix
    is positive semi-definite with trace at most 1; see :class:`MoveMoments`. It is nearly attained
    by users who stay at one state, far out, where the sign is small beside the features, and end
    there, at two states whose features are orthogonal.
    """

    spec: BoxSpec
    features: Monomials

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "moments of ends")

    @cached_property
    def layout(self) -> Layout:
        """``moments``."""
        m = self.features.size + 1
        return Layout((Part("moments", (m, m), symmetric=True),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return ball(1.0, relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """One matrix for each user."""
        m, H = self.features.size + 1, self.spec.horizon
        found = np.zeros((block.users, self.layout.size))
        for rows, part in parts_of(block, H * (m + self.spec.dimension + 2)):
            steps = steps_of(part, self.spec)
            flat = steps.states[:, 1:].reshape(-1, self.spec.dimension)
            z = self.features(flat, np.zeros(len(flat), dtype=np.int64))
            signs = np.where(steps.ended, 1.0, -1.0).reshape(-1, 1)
            y = np.concatenate([z, signs], axis=1)
            y /= np.linalg.norm(y, axis=1, keepdims=True)
            others = steps.valid & ~steps.ended
            shares = 0.5 / np.maximum(others.sum(axis=1, keepdims=True), 1)
            weights = np.where(steps.ended, 0.5, np.where(others, shares, 0.0))
            y = y.reshape(part.users, H, m) * np.sqrt(weights)[..., np.newaxis]
            found[rows] = pack(y.swapaxes(1, 2) @ y)
        return found
