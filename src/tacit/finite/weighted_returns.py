"""What other policies than theirs would have got from users of a log: statistic and intervals.

What is proven: x is one of the numbers in [0, 1] of :class:`WeightedReturns`, n users are
independent, and the release has sums A of x and B of x (1 - x), with Gaussian noise of known
deviations. With probability 1 - f the mean of x is at least

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

import numpy as np
from scipy.special import ndtri

from tacit.data.reading import read_rewards, read_steps
from tacit.finite.spec import settle
from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

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

    Sensitivity. Two users with x, x' and d = |x - x'|, s = |x + x' - 1| <= 1 - d differ in this
    pair by d^2 + W^2 d^2 s^2 <= (1 - s)^2 (1 + W^2 s^2), which is at most 1 while W^2 <= min over s
    of (2 - s) / (s (1 - s)^2) = 11.08. Zero is the user x = 0. So L2 = sqrt(2 K) for both
    relations: replace-one is attained by two users with large weights, one of whom got R and the
    other nothing; zero-out by one with v = M where u is also M, with half of R and large weights.
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
        """See the class."""
        checked_relation(relation)
        return math.sqrt(2.0 * self.policies)

    def vectors(self, block: Block) -> Floats:
        """One row per user; her propensities divide, so users are summed one by one."""
        from tacit.finite.sum_loops import weigh_returns

        steps = read_steps(block, self.horizon, np.zeros(self.ratios.shape[2:], dtype=np.int64))
        chances = np.ones((1, 1))
        if self.logged:
            chances = read_rewards(block, "propensities", steps[1].shape)
        sums, spreads = np.zeros((2, block.users, self.policies, 2))
        K, R = self.logged, self.largest
        weigh_returns(*steps, chances, K, self.ratios, self.most, R, sums, spreads)
        return self.layout.pack({"sums": sums, "spreads": spreads}, users=block.users)


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
