"""Intervals of policies' values from one private release. Public from end to end.

What is proven: x is one of the numbers in [0, 1] of :class:`~tacit.finite.weighted_returns.
WeightedReturns`, n users are independent, and the release has sums A of x and B of x (1 - x), with
Gaussian noise of known deviations. With probability 1 - f the mean of x is at least

    (A - z a - g) / n - sqrt(2 V L / n) - 7 L / (3 (n - 1)),    L = log(2 / f'),

the empirical Bernstein bound (Maurer and Pontil, 2009) at the noise's exact quantile z a, with g
for the rounding of sums, and with V, the largest variance that the noise leaves possible: m (1 - m)
less the mean spread, at the end of its range, for the m within its range that is nearest 1/2. The
noise of A (both sides) and that of B may fail with f / 10 each, sampling with the rest, f'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from tacit.finite.weighted_returns import WeightedReturns
from tacit.privacy.curators.gate import Release
from tacit.privacy.statistic import Floats

# Of a bound's failure probability, what each of two noises may take.
_NOISE_SHARE = 0.1


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
