"""Statistics of returns after a cell, of weighted returns, and of the actions in a log.

Bounds of :func:`mean_bounds`: x is one of the numbers in [0, 1] of :class:`WeightedReturns`, n
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
from scipy.special import betaincinv, ndtri

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
          cells; and L^2 + w^2 k against zero. In the 1-norm, |x| <= m = min(sqrt(k) L, k b): L1 = 2
          m + w min(2 k, C), and m + w k.
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

    def l1(self, relation: Relation) -> float:
        """L1 sensitivity; the class has the proof."""
        k = self._kept
        longest = min(math.sqrt(k) * self._longest, k * self.most)
        if relation is Relation.ZERO_OUT:
            return longest + self.weight * k
        return 2.0 * longest + self.weight * min(2 * k, self.size)

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
class WeightedReturns(Statistic):
    """Weighted returns of K policies and what they miss, cut, with how much both vary.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). ``ratios`` (K, 1 or H,
    S, A) say how much likelier an action is under a policy than it was in the log; w_t is the
    product of the ratios of steps 0 to t. Ratios of the first ``logged`` policies are divided by
    ``propensities`` (users, H), in (0, 1], what a log says of its own steps. An episode ends at its
    first step with an invalid state, action, reward or propensity, and is worth nothing from there
    on, whatever the policy. Rewards are cut to [0, 1], and together to R = ``largest``. With the
    return G and the last weight w, a user has for policy k

        v = min(sum_t w_t r_t, M)  and  u = min(w (R - G), M),    M = ``most[k]``,

    and x = v / M, y = u / M in [0, 1]. Parts: ``sums`` (K, 2), of x and y; ``spreads`` (K, 2), of
    x (1 - x) and y (1 - y), with weight W: the variance of x over users is m (1 - m) less the mean
    spread, where m is the mean. Users without a valid step, and those who do not count, have
    v = u = 0.

    Why both: if ratios are at most what they should be, the mean of v is at most the policy's
    value and the mean of u at most R less that, whatever M is: cutting only lowers what is >= 0.

    Formal guarantees:
        - Sensitivity: Two users with x, x' and d = |x - x'|, s = |x + x' - 1| <= 1 - d differ in
          this pair by d^2 + W^2 d^2 s^2 <= (1 - s)^2 (1 + W^2 s^2), which is at most 1 while
          W^2 <= min over s of (2 - s) / (s (1 - s)^2) = 11.08. Zero is the user x = 0. So
          L2 = sqrt(2 K) for both relations: replace-one is attained by two users with large
          weights, one of whom got R and the other nothing; zero-out by one with v = M where u is
          also M, with half of R and large weights.
    """

    ratios: Floats
    most: Floats
    largest: float
    horizon: int
    logged: int = 0

    def __post_init__(self) -> None:
        ratios = np.ascontiguousarray(self.ratios, dtype=np.float64)
        most = np.array(self.most, dtype=np.float64)
        if ratios.ndim != 4 or ratios.shape[1] not in (1, self.horizon) or ratios.size == 0:
            raise InvalidArgument(
                f"ratios must have shape (K, 1 or {self.horizon}, S, A), got {ratios.shape}"
            )
        if not (np.isfinite(ratios) & (ratios >= 0)).all():
            raise InvalidArgument("ratios must be finite and >= 0")
        if most.shape != ratios.shape[:1] or not (np.isfinite(most) & (most > 0)).all():
            raise InvalidArgument(f"most must be {len(ratios)} numbers > 0, got {most!r}")
        positive("largest", self.largest)
        settle(self, name="weighted returns", ratios=ratios, most=most)

    @property
    def policies(self) -> int:
        """K."""
        return len(self.ratios)

    @cached_property
    def layout(self) -> Layout:
        """``sums`` and ``spreads``."""
        shape = (self.policies, 2)
        return Layout((Part("sums", shape), Part("spreads", shape, weight=SPREAD_WEIGHT)))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        return math.sqrt(2.0 * self.policies)

    def vectors(self, block: Block) -> Floats:
        """One row per user; her propensities divide, so users are summed one by one."""
        from tacit.tabular.return_loops import weigh_returns

        follows = np.zeros(self.ratios.shape[2:], dtype=np.int64)
        steps = StepColumns(self.horizon, follows).read(block)
        chances = np.ones((1, 1))
        if self.logged:
            chances = read_rewards(block, "propensities", steps[1].shape)
        sums, spreads = np.zeros((2, block.users, self.policies, 2))
        K, R = self.logged, self.largest
        weigh_returns(*steps[:3], chances, K, self.ratios, self.most, R, sums, spreads)
        return self.layout.pack({"sums": sums, "spreads": spreads}, users=block.users)


@dataclass(frozen=True, eq=False)
class RobustGains(Statistic):
    """How much better K policies are than what people did, by a model and what it missed.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). Let V and Q be
    a model's values of a policy, and w_t(s, a) how much likelier the policy is to be in a cell at
    step t than people were, by the same model: any tables. A user's number for the policy is

        v = V_0(s_0) + sum_t [w_t(s_t, a_t) (r_t + V_{t+1}(s_{t+1}) - Q_t(s_t, a_t)) - r_t],

    cut to [-M, M], M = ``most[k]``. An episode ends at its first step with an invalid action, next
    state or reward; there r + V = 0, and an invalid action has the last column of w and Q, which
    are those of its state. Without a valid first state v = 0. If the world
    is Markov, the mean of v before the cut is the policy's gain where the model's values are right,
    or its weights are: an error needs errors in both (doubly robust; Kallus and Uehara, 2020).
    Parts: ``sums`` (K + 1,) of y = v / (2 M), and of x = G / R at the end, G being the return and
    R = ``largest``; ``squares`` (K + 1,) of y^2, and of x (1 - x), with weight W.

    Formal guarantees:
        - Sensitivity: For y, y' in [-1/2, 1/2], d = |y - y'| and s = |y + y'| have d + s <= 1, so
          d^2 + W^2 d^2 s^2 <= 1 as of :class:`WeightedReturns`, whose proof is that of the last
          pair, too: L2 = sqrt(K + 1) for replace-one. Against zero a pair has at most 1/4 + W^2 /
          16, the last one 1: L2^2 = K (1/4 + W^2 / 16) + 1.
    """

    weights: Floats
    values: Floats
    q_values: Floats
    most: Floats
    largest: float

    def __post_init__(self) -> None:
        names = "weights", "values", "q_values", "most"
        held = {n: np.ascontiguousarray(getattr(self, n), dtype=np.float64) for n in names}
        w, values, q, most = held.values()
        if (
            w.ndim != 4
            or q.shape != w.shape
            or values.shape != (len(w), w.shape[1] + 1, w.shape[2])
        ):
            raise InvalidArgument("weights, q_values: (K, H, S, A + 1); values: (K, H + 1, S)")
        if not all(np.isfinite(array).all() for array in held.values()):
            raise InvalidArgument("weights and values must be finite")
        if most.shape != (len(w),) or not (most > 0).all():
            raise InvalidArgument(f"most must be {len(w)} numbers > 0, got {most!r}")
        positive("largest", self.largest)
        settle(self, name="gains by a model and its residuals", **held)

    @cached_property
    def layout(self) -> Layout:
        """``sums`` and ``squares``."""
        size = (len(self.most) + 1,)
        return Layout((Part("sums", size), Part("squares", size, weight=SPREAD_WEIGHT)))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        zero_out = relation is Relation.ZERO_OUT
        each = 0.25 + SPREAD_WEIGHT**2 / 16.0 if zero_out else 1.0
        return math.sqrt(len(self.most) * each + 1.0)

    def vectors(self, block: Block) -> Floats:
        """One row per user."""
        from tacit.tabular.return_loops import robust_gains

        _, horizon, states, cells = self.weights.shape
        follows = np.zeros((states, cells - 1), dtype=np.int64)
        steps = StepColumns(horizon, follows).read(block)[:3]
        y = np.zeros((block.users, len(self.most) + 1))
        robust_gains(*steps, self.weights, self.values, self.q_values, self.most, self.largest, y)
        squares = y**2
        squares[:, -1] = y[:, -1] - squares[:, -1]
        return self.layout.pack({"sums": y, "squares": squares}, users=block.users)

    def intervals(self, release: Release, failure: float, slack: float = 0.0) -> list[Interval]:
        """Intervals of the mean of v for each policy, and at the end of the mean of G.

        Args:
            release: of this statistic.
            failure: how probable it may be that any of them is wrong.
            slack: how far sums can be from what they are of, by rounding.
        """
        noise = float(np.max(release.std["sums"])), float(np.max(release.std["squares"]))
        n, sums, spreads = release.users, release["sums"].copy(), release["squares"].copy()
        # Of x = y + 1/2, and x (1 - x) = 1/4 - y^2.
        sums[:-1], spreads[:-1] = sums[:-1] + n / 2.0, n / 4.0 - spreads[:-1]
        each = failure / (2.0 * len(sums))
        low = mean_bounds(sums, spreads, noise, n, each, slack)
        high = 1.0 - mean_bounds(n - sums, spreads, noise, n, each, slack)
        means = np.clip(sums / max(n, 1), low, np.maximum(low, high))
        scale, shift = np.append(2.0 * self.most, self.largest), np.append(self.most, 0.0)
        ends = (scale * each - shift for each in (means, low, np.maximum(low, high)))
        return [Interval(*map(float, three)) for three in zip(*ends, strict=True)]


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


def value_intervals(
    release: Release, statistic: WeightedReturns, failure: float, slack: float = 0.0
) -> list[Interval]:
    """Intervals of all K policies, which hold all at once with probability 1 - ``failure``.

    Args:
        release: of the statistic.
        statistic: weighted returns of K policies.
        failure: how probable a wrong interval may be.
        slack: how far sums can be from what they are of, by rounding.

    The lower end is the bound of what a policy gets, the upper end R less that of what it misses;
    each of the 2 K bounds may fail with its share of ``failure``. The estimate is the noisy mean of
    what was not cut, so on average at most the value.
    """
    noise = float(np.max(release.std["sums"])), float(np.max(release.std["spreads"]))
    each = failure / (2.0 * statistic.policies)
    sums, R = release["sums"], statistic.largest
    bounds = mean_bounds(sums, release["spreads"], noise, release.users, each, slack)
    ends = bounds * statistic.most[:, np.newaxis]
    means = sums * statistic.most[:, np.newaxis] / max(release.users, 1)
    found = []
    for got, (low, gap) in zip(means[:, 0], ends, strict=True):
        high = max(R - gap, low)
        found.append(Interval(float(np.clip(got, low, high)), float(low), float(high)))
    return found


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
          is only one cell, they cannot: 1), and k against zero. L1 = 2 k, and k.
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

    def _apart(self, relation: Relation) -> int:
        zero_out = relation is Relation.ZERO_OUT
        return self._kept if zero_out else min(2 * self._kept, int(self.allowed.sum()))

    def l2(self, relation: Relation) -> float:
        """L2 sensitivity; the class has the proof."""
        return math.sqrt(self._apart(relation))

    def l1(self, relation: Relation) -> float:
        """L1 sensitivity; the class has the proof."""
        return float(self._apart(relation))

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
