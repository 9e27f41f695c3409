"""Statistics of returns after a cell, of gains over what people did, and of actions in a log.

Bounds of :func:`mean_bounds`: x is one of the numbers in [0, 1] of :class:`RobustGains`, n
users are independent, and the release has sums A of x and B of x (1 - x), with Gaussian noise of
known deviations. With probability 1 - f the mean of x is at least

    (A - z a - g) / n - sqrt(2 V L / n) - 7 L / (3 (n - 1)),    L = log(2 / f'),

the empirical Bernstein bound (Maurer and Pontil, 2009) at the noise's exact quantile z a, with g
for the rounding of sums, and with V, the largest variance that the noise leaves possible: m (1 - m)
less the mean spread, at the end of its range, for the m within its range that is nearest 1/2. The
noise of A (both sides) and that of B may fail with f / 10 each, sampling with the rest, f'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from tacit.privacy.budget import Relation
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import StepColumns, UserSteps, read_rewards
from tacit.privacy.statistic import Block, Floats, Layout, LoopSums, Part, Statistic
from tacit.privacy.validation import positive, whole_number
from tacit.tabular.policy import settle

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReturnSums(LoopSums):
    """Returns after users' first visits of a cell, less a public centre, bounded.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A *cell* is what a step
    is summed under: ``cells`` (S, A), or (H, S, A) by step, says which, -1 for none. An episode
    ends at its first step with an invalid state, action or reward, and is worth nothing from there
    on; rewards are cut to [0, 1].

    With the centre V, (H, S), a step's residual is d_t = r_t + V_{t+1}(s_{t+1}) - V_t(s_t),
    where V is 0 after the last step, and what followed a step is e_t = d_t + trace e_{t+1}. With
    trace 1 that is the return from the step on, less V_t(s_t); with trace 0 it is one step of it,
    as good on average if V is right, and with far less variance. The entry of each of a user's
    first ``first`` different cells is e_t at her first step there, cut to [-most, most]; then all
    of them are scaled to a length of at most ``length``. Which steps count is decided by the past.
    Parts: ``returns`` (C,) and, with ``weight`` w > 0, ``visits`` (C,), 1 for each of those cells.

    Formal guarantees:
        - Sensitivity: Let k = min(first, H, C), b = most, L = min(length, b sqrt(k)), and let two
          users have entries x, y in cells A and B, j of them in common. Outside of those j the
          products x_c y_c are 0, and within them each has a squared length of at most min(L^2, j
          b^2), so |x - y|^2 <= 2 L^2 + 2 min(L^2, j b^2). Their visits differ in at most
          min(2 (k - j), C - j) cells. So L2^2 = max over j = 0..k of 2 L^2 + 2 min(L^2, j
          b^2) + w^2 min(2 (k - j), C - j) for replace-one, attained by opposite entries in common
          cells; and L^2 + w^2 k against zero.
    """

    cells: Ints
    centre: Floats
    trace: float = 1.0
    first: int = 8
    most: float = 0.5
    length: float = math.inf
    weight: float = 0.0

    def __post_init__(self) -> None:
        cells, centre = np.array(self.cells), np.array(self.centre, dtype=np.float64)
        cells = cells[np.newaxis] if cells.ndim == 2 else cells
        if cells.ndim != 3 or cells.dtype.kind not in "iu" or cells.size == 0 or cells.max() < 0:
            raise InvalidArgument(
                "cells must be whole numbers of shape (S, A) or (H, S, A), some of them >= 0"
            )
        steps, right = len(centre), centre.shape == (len(centre), cells.shape[1])
        if (
            not right
            or len(cells) not in (1, steps)
            or not ((centre >= 0) & (centre <= steps)).all()
        ):
            raise InvalidArgument("centre must be from 0 to H, of shape (H, S), and cells be for H")
        if not (0.0 <= self.trace <= 1.0 and 0.0 <= self.weight < math.inf and self.length > 0.0):
            raise InvalidArgument("trace must be in [0, 1], weight >= 0 and length > 0")
        positive("most", self.most)
        whole_number("first", self.first)
        settle(self, name="return sums", cells=cells.astype(np.int64), centre=centre)

    @property
    def horizon(self) -> int:
        """H, steps of an episode."""
        return len(self.centre)

    @cached_property
    def size(self) -> int:
        """C, how many cells there are."""
        return int(self.cells.max()) + 1

    @cached_property
    def layout(self) -> Layout:
        """``returns`` and perhaps ``visits``."""
        parts = [Part("returns", (self.size,))]
        if self.weight > 0.0:
            parts.append(Part("visits", (self.size,), weight=self.weight))
        return Layout(tuple(parts))

    @property
    def _kept(self) -> int:
        return min(self.first, self.horizon, self.size)

    @property
    def _longest(self) -> float:
        return min(self.length, self.most * math.sqrt(self._kept))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        k, w2, L2 = self._kept, self.weight**2, self._longest**2
        if relation is Relation.ZERO_OUT:
            return math.sqrt(L2 + w2 * k)
        apart = max(
            2.0 * min(L2, j * self.most**2) + w2 * min(2 * (k - j), self.size - j)
            for j in range(k + 1)
        )
        return math.sqrt(2.0 * L2 + apart)

    def monitored(self, release: Any) -> dict[str, tuple[Floats, Floats]]:
        """First visits of each state, where they are asked for."""
        if self.weight == 0.0:
            return {}
        S = self.cells.shape[1]
        state = np.zeros(self.size, dtype=np.int64)
        _, states, _ = np.nonzero(self.cells >= 0)
        state[self.cells[self.cells >= 0]] = states
        noise = float(np.max(release.std["visits"]))
        found: Floats = np.bincount(state, release["visits"], minlength=S).astype(np.float64)
        return {
            "partial": (np.ones(()), np.zeros(())),
            "visits": (found, noise * np.sqrt(np.bincount(state, minlength=S))),
        }

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of all users; the last reward counts."""
        return StepColumns(self.horizon, np.zeros(self.cells.shape[1:], dtype=np.int64))

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.tabular.return_loops import sum_returns

        rows, limits = len(steps.states) if separate else 1, (self._kept, self.most, self._longest)
        sums, visits = np.zeros((2, rows, self.size))
        cut, public = steps[:3], (self.cells, self.centre, self.trace)
        sum_returns(*cut, *public, *limits, separate, sums, visits)
        return self.layout.pack({"returns": sums, "visits": visits}, users=rows)


# Of a bound's failure probability, what each of two noises may take.
_NOISE_SHARE = 0.1
SPREAD_WEIGHT = 3.3
"""W: up to 3.33 a spread costs nothing beside the number that it is about; see the class."""


@dataclass(frozen=True, eq=False)
class RobustGains(Statistic):
    """How much better K policies are than what people did: paired, by a model and what it missed.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). Let V and Q be a
    model's values of a policy (any tables), and w_t how much likelier she was to come to step t,
    and to act as she did, under the policy. A user's number for it is

        v = V_0(s_0) + sum_t [w_t (r_t + V_{t+1}(s_{t+1}) - Q_t(s_t, a_t)) - r_t],

    cut to a range with 0 in it. Tables have a row for each step, or one for all. An episode ends at
    its first step with an invalid action, next state or reward; there r + V = 0, and an invalid
    action has the last column of ``weights`` and Q. Without a valid first state v = 0.

    - *By a model*, w_t is ``weights`` at (s_t, a_t), of its occupancies. In a Markov world the mean
      of v before the cut is the gain if the model's values are right, or its weights are: an error
      needs errors in both (doubly robust; Kallus and Uehara, 2020).
    - *By paths*, w_t is the product of ``weights`` up to step t, probabilities under the policy
      over those in the log, and V = Q = 0. With ``logged`` they are divided by ``propensities``
      (users, H), in (0, 1], what a log says of its own steps, and one that is none ends the
      episode. There are K numbers more, v = (1 - w)(R - G) with the last weight, the return G and
      R = ``largest``: by what is missed, the mean is the gain again. No model is needed: if weights
      are at most what they should be, the mean of the first is at most the gain, and that of the
      second at least, and cutting them above -R, and below R, only adds to that.

    Parts: ``sums`` of y = v / (high - low), and of G / R at the end; ``spreads`` of how much less
    x (1 - x) is than where v = 0, with weight W, where x = y + x_0 is in [0, 1].

    Formal guarantees:
        - Sensitivity: Let x, x' have d = |x - x'| and s = |x + x' - 1| <= 1 - d. In this pair users
          differ by d^2 + W^2 d^2 s^2 <= (1 - s)^2 (1 + W^2 s^2), at most 1 while W^2 <= min over s
          of (2 - s) / (s (1 - s)^2) = 11.08. Zero is a user with v = 0. So for n numbers and
          returns L2 = sqrt(n + 1), for both relations.
    """

    weights: Floats
    values: Floats
    q_values: Floats
    ranges: Floats  # (K, 2), or (2 K, 2) by paths
    largest: float
    horizon: int
    paths: bool = False
    logged: bool = False

    def __post_init__(self) -> None:
        names = "weights", "values", "q_values", "ranges"
        held = {n: np.ascontiguousarray(getattr(self, n), dtype=np.float64) for n in names}
        w, values, q, ranges = held.values()
        shapes = (len(w), w.shape[2], w.shape[3]), (len(q), q.shape[2], q.shape[3])
        if shapes[0] != shapes[1] or values.shape[::2] != w.shape[:3:2]:
            raise InvalidArgument("weights, q_values: (K, H, S, A + 1); values: (K, H + 1, S)")
        if not all(np.isfinite(array).all() for array in held.values()) or (w < 0).any():
            raise InvalidArgument("weights must be >= 0, and all of it finite")
        low, high = np.broadcast_to(ranges, (len(w) * (1 + self.paths), 2)).T
        if not ((low <= 0) & (high >= 0) & (low < high)).all():
            raise InvalidArgument(f"ranges must have 0 in them, got {ranges!r}")
        positive("largest", self.largest)
        settle(self, name="gains over what people did", **held)

    @cached_property
    def _ends(self) -> tuple[Floats, Floats]:
        """Lengths of ranges, that of returns last, and where 0 is in them."""
        low, high = np.append(self.ranges, [[0.0, self.largest]], axis=0).T
        return high - low, -low / (high - low)

    @cached_property
    def layout(self) -> Layout:
        """``sums`` and ``spreads``."""
        size = (len(self.ranges) + 1,)
        return Layout((Part("sums", size), Part("spreads", size, weight=SPREAD_WEIGHT)))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        return math.sqrt(len(self.ranges) + 1.0)

    def vectors(self, block: Block) -> Floats:
        """One row per user; her propensities divide, so users are summed one by one."""
        from tacit.tabular.return_loops import robust_gains

        _, _, states, cells = self.weights.shape
        follows = np.zeros((states, cells - 1), dtype=np.int64)
        steps, chances = StepColumns(self.horizon, follows).read(block), np.ones((1, 1))
        if self.logged:
            chances = read_rewards(block, "propensities", steps[1].shape)
        (lengths, zero), found = self._ends, np.zeros((block.users, len(self.ranges) + 1))
        how = (self.largest, self.paths, self.logged)
        robust_gains(*steps[:3], chances, self.weights, self.values, self.q_values, *how, found)
        # What overflows is cut like the rest; what is no number counts as 0.
        with np.errstate(over="ignore"):
            y = np.clip(np.nan_to_num(found) / lengths, -zero, 1.0 - zero)
        x = y + zero
        spreads = zero * (1.0 - zero) - x * (1.0 - x)
        return self.layout.pack({"sums": y, "spreads": spreads}, users=block.users)

    def intervals(self, release: Release, failure: float, slack: float = 0.0) -> list[Interval]:
        """Intervals of each policy's gain, and at the end of the mean of G; all at once.

        Any is wrong with probability ``failure`` at most; sums may be off by ``slack``. By paths
        the estimate is the noisy mean of what was not cut, so on average at most the gain.
        """
        noise = float(np.max(release.std["sums"])), float(np.max(release.std["spreads"]))
        K, n, (lengths, zero) = len(self.weights), release.users, self._ends
        sums = release["sums"] + n * zero
        spreads = n * zero * (1.0 - zero) - release["spreads"]
        each = failure / (2.0 * (K + 1))
        low = mean_bounds(sums, spreads, noise, n, each, slack)
        high = 1.0 - mean_bounds(n - sums, spreads, noise, n, each, slack)
        ends = [lengths * (end - zero) for end in (sums / max(n, 1), low, high)]
        if self.paths:
            firsts, seconds = [*range(K), 2 * K], [*range(K, 2 * K + 1)]
            ends = [ends[0][firsts], ends[1][firsts], ends[2][seconds]]
        means, low, high = ends[0], ends[1], np.maximum(ends[1], ends[2])
        made = zip(np.clip(means, low, high), low, high, strict=True)
        return [Interval(*map(float, three)) for three in made]


@dataclass(frozen=True)
class Interval:
    """A value and where it surely is, in the units of returns.

    >>> Interval(0.5, 0.25, 0.625)
    Interval(0.5 in [0.25, 0.625])
    """

    estimate: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """From end to end."""
        return self.high - self.low

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __repr__(self) -> str:
        return f"Interval({self.estimate:.4g} in [{self.low:.4g}, {self.high:.4g}])"


def mean_bounds(
    sums: Floats,
    spreads: Floats,
    noise: tuple[float, float],
    users: int,
    failure: float,
    slack: float,
) -> Floats:
    """Lower bounds of means of numbers in [0, 1], each of which fails with ``failure``.

    Args:
        sums: noisy sums over users.
        spreads: noisy sums of x (1 - x).
        noise: the standard deviations of both.
        users: how many.
        failure: how probable a wrong bound may be.
        slack: how far sums can be from what they are of, by rounding.
    """
    if users < 2:
        return np.zeros(np.shape(sums))
    share = _NOISE_SHARE if max(noise) > 0 else 0.0
    reach = [0.0, 0.0]
    if share:
        quantiles = -ndtri(share * failure / 2.0), -ndtri(share * failure)
        reach = [float(z) * s for z, s in zip(quantiles, noise, strict=True)]
    reach = [r + slack for r in reach]
    low, high = (np.clip((sums + sign * reach[0]) / users, 0.0, 1.0) for sign in (-1.0, 1.0))
    middle = np.clip(0.5, low, high)
    variance = middle * (1.0 - middle) - (spreads - reach[1]) / users
    variance = np.clip(variance, 0.0, 0.25) * users / (users - 1.0)
    log = math.log(2.0 / ((1.0 - 2.0 * share) * failure))
    bounds = low - np.sqrt(2.0 * variance * log / users) - 7.0 * log / (3.0 * (users - 1.0))
    positive: Floats = np.maximum(bounds, 0.0)
    return positive


@dataclass(frozen=True, eq=False)
class ActionCounts(LoopSums):
    """How many users took which action at their first visit of a state.

    Reads ``states`` (users, H + 1), ``actions`` and the shape of ``rewards`` (users, H).
    ``allowed`` (S, A) says which pairs are counted; an episode ends at its first step that is none
    of them. Of a user only her first ``first`` different states count. Whether a visit counts is
    decided before its action, so given how many counted in a state, actions there are independent
    draws of what people do in it. With ``logged`` there must be ``propensities`` (users, H) too,
    for later questions.

    Formal guarantees:
        - Sensitivity: A user has at most k = min(first, H, S) ones, in different states. Two users
          differ in at most 2 k entries, by 1 each, and have k each in different cells: L2^2 = 2 k
          for replace-one, attained by other actions in the same states or by other states (if there
          is only one cell, they cannot: 1), and k against zero.
    """

    allowed: NDArray[np.bool_]
    horizon: int
    first: int = 8
    logged: bool = False
    nonnegative = True

    def __post_init__(self) -> None:
        allowed = np.array(self.allowed, dtype=bool)
        if allowed.ndim != 2 or not allowed.any():
            raise InvalidArgument(f"allowed must be a table (S, A), got shape {allowed.shape}")
        whole_number("horizon", self.horizon)
        whole_number("first", self.first)
        settle(self, name="action counts", allowed=allowed)

    @cached_property
    def layout(self) -> Layout:
        """``counts``, of the pairs that are allowed, row by row."""
        return Layout((Part("counts", (int(self.allowed.sum()),)),))

    @cached_property
    def _kept(self) -> int:
        return min(self.first, self.horizon, int(self.allowed.any(axis=1).sum()))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        several = min(2 * self._kept, int(self.allowed.sum()))
        return math.sqrt(self._kept if relation is Relation.ZERO_OUT else several)

    @property
    def columns(self) -> StepColumns:
        """Steps of all users, and propensities if later questions need them."""
        return StepColumns(self.horizon, propensities=self.logged)

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.tabular.return_loops import count_first_actions

        rows = len(steps.states) if separate else 1
        cells = np.where(self.allowed, np.cumsum(self.allowed).reshape(self.allowed.shape) - 1, -1)
        counts = np.zeros((rows, self.layout.size))
        count_first_actions(*steps[:2], cells, self._kept, separate, counts)
        return counts


def propensities(
    counts: Floats, noise: float, allowed: NDArray[np.bool_], failure: float
) -> tuple[Floats, Floats]:
    """Estimates of the probabilities of actions in a log, (S, A), and upper bounds of them.

    Args:
        counts: noisy numbers of users by allowed pair.
        noise: standard deviation of each.
        allowed: which pairs are allowed, (S, A).
        failure: how probable a wrong bound may be.

    The bounds hold all at once with probability 1 - ``failure``, if actions depend on the state
    alone: of a binomial's probability (Clopper and Pearson), for the largest count and the fewest
    visits that the noise leaves possible. Each cell may fail by its share: half of it by sampling,
    a quarter by the noise of its count, a quarter by that of its state's.
    """
    x = np.zeros(allowed.shape)
    x[allowed] = counts
    share = failure / int(allowed.sum())
    reach = -float(ndtri(share / 4.0)) * noise if noise > 0 else 0.0
    several = allowed.sum(axis=1, keepdims=True)
    visits = np.maximum(x.sum(axis=1, keepdims=True) - reach * np.sqrt(several), 0.0)
    most = np.clip(x + reach, 0.0, visits)
    sure = most >= visits - 0.5
    bounds = np.where(
        sure, 1.0, betaincinv(most + 1.0, np.maximum(visits - most, 0.5), 1 - share / 2)
    )
    # Drawn to the uniform by as many users as the noise is worth.
    prior = (1.0 + noise) * allowed / several
    raw = np.where(allowed, np.maximum(x, 0.0), 0.0) + prior
    estimates = raw / raw.sum(axis=1, keepdims=True)
    return estimates, np.where(allowed, np.maximum(bounds, 1e-12), 0.0)


def fit_of(counts: Floats, noise: float, allowed: NDArray[np.bool_], behaviour: Floats) -> float:
    """Chance that users of a behaviour (S, A) would have counts as far from what it says.

    Args:
        counts: noisy numbers of users by allowed pair.
        noise: standard deviation of each.
        allowed: which pairs are allowed, (S, A).
        behaviour: said probabilities.

    By the farthest of m cells, in standard deviations of sampling and noise: m times as likely.
    """
    x, b = np.zeros(allowed.shape), behaviour
    x[allowed] = counts
    n, several = x.sum(axis=1, keepdims=True), allowed.sum(axis=1, keepdims=True)
    sampling = np.maximum(n, 0.0) * b * (1.0 - b)
    variance = sampling + noise**2 * ((1.0 - b) ** 2 + (several - 1) * b**2) + 1.0
    far = float(np.abs(np.where(allowed, (x - b * n) / np.sqrt(variance), 0.0)).max())
    return min(1.0, 2.0 * int(allowed.sum()) * float(ndtr(-far)))
