"""Zero-concentrated privacy (zCDP), and the published conversions from it and to it.

Exact noise is accounted in rho: whole numbers are not Gaussian, but have the same Renyi divergences
at most. For Gaussian noise itself :mod:`tacit.privacy.gaussian_dp` is exact, and better.

Sources: Bun and Steinke (2016), "Concentrated differential privacy"; Canonne, Kamath and Steinke
(2020), "The discrete Gaussian for differential privacy".
"""

import math
from typing import Literal, cast

from tacit.privacy.arguments import checked_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import (
    MAX_EPSILON,
    TINY,
    checked_delta,
    checked_mu,
    last_true,
    mu_from_budget,
)

Method = Literal["bun-steinke", "canonne-kamath-steinke"]


def rho_from_mu(mu: float) -> float:
    """The rho of zero-concentrated privacy (zCDP) of a mu-GDP mechanism: mu^2 / 2.

    The Renyi divergence of order a between N(0, 1) and N(mu, 1) is a mu^2 / 2, and rho-zCDP asks
    that it is at most a rho for every a > 1. The way back loses: a rho-zCDP mechanism need not be
    Gaussian. A positive mu whose square vanishes gives the smallest normal number.

    >>> rho_from_mu(0.2)
    0.020000000000000004
    """
    mu = checked_mu(mu)
    return 0.0 if mu == 0 else max(TINY, mu * mu / 2)


def _checked_method(method: str) -> Method:
    if method not in ("bun-steinke", "canonne-kamath-steinke"):
        raise InvalidArgument(
            f"method is {method!r}, but must be 'bun-steinke' or 'canonne-kamath-steinke'"
        )
    return cast(Method, method)


def _delta_from_rho(rho: float, epsilon: float) -> float:
    """Canonne, Kamath and Steinke's delta for a rho-zCDP mechanism.

    For every order a = 1 + b, b > 0,

        log delta = b (a rho - epsilon) + b log(b / a) - log a

    is valid (their bound, rearranged). It is convex in a with derivative

        (1 + 2b) rho - epsilon + log(b / a),

    which is positive at b = 1 + (epsilon + 1) / (2 rho), so the best b is found by bisection. An
    inexact b costs tightness, not validity.
    """

    def log_delta(b: float) -> float:
        return b * ((1 + b) * rho - epsilon) - b * math.log1p(1 / b) - math.log1p(b)

    def is_left_of_best(b: float) -> bool:
        return (1 + 2 * b) * rho - epsilon - math.log1p(1 / b) <= 0

    lowest, highest = 1e-18, 1 + (epsilon + 1) / (2 * rho)
    best = last_true(is_left_of_best, lowest, highest) if is_left_of_best(lowest) else lowest
    return math.exp(min(0.0, log_delta(best)))


def epsilon_from_rho(rho: float, delta: float, method: Method = "canonne-kamath-steinke") -> float:
    """A published epsilon of a rho-zCDP mechanism; for Gaussian noise the exact one is smaller.

    ``"bun-steinke"`` is epsilon = rho + 2 sqrt(rho log(1/delta)). ``"canonne-kamath-steinke"``
    inverts

        delta = inf over a > 1 of  exp((a-1)(a rho - epsilon)) / (a-1) * (1 - 1/a)^a,

    which is never larger: Bun and Steinke's bound is the same infimum without the last two factors,
    and their product (1 - 1/a)^(a-1) / a is below 1.

    >>> [round(epsilon_from_rho(0.5, 1e-6, m), 3)
    ...  for m in ("bun-steinke", "canonne-kamath-steinke")]
    [5.757, 5.222]
    """
    allowed = "0, or from 1e-200 to 5e13"
    rho = checked_number("rho", rho, allowed, lambda r: r == 0 or 1e-200 <= r <= 5e13)
    delta, method = checked_delta(delta), _checked_method(method)
    if rho == 0:
        return 0.0
    bun_steinke = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    if method == "bun-steinke":
        return bun_steinke
    if _delta_from_rho(rho, 0.0) <= delta:
        return 0.0
    return last_true(lambda e: _delta_from_rho(rho, e) <= delta, bun_steinke, 0.0)


def rho_from_budget(
    epsilon: float, delta: float, method: Method = "canonne-kamath-steinke"
) -> float:
    """The largest rho that a published conversion can turn into this budget.

    The inverse of :func:`epsilon_from_rho`. For Bun and Steinke, with L = log(1/delta), it is
    (sqrt(L + epsilon) - sqrt(L))^2, written below so that nothing cancels. For Canonne, Kamath and
    Steinke it lies between that and the exact mu^2 / 2, since their bound holds for Gaussians too.

    >>> [round(rho_from_budget(1.0, 1e-6, m), 5)
    ...  for m in ("bun-steinke", "canonne-kamath-steinke")]
    [0.01747, 0.02436]
    """
    epsilon = checked_number(
        "epsilon", epsilon, "a number from 1e-50 to 1e13", lambda e: 1e-50 <= e <= MAX_EPSILON
    )
    delta, method = checked_delta(delta), _checked_method(method)
    L = math.log(1 / delta)
    bun_steinke = (epsilon / (math.sqrt(L + epsilon) + math.sqrt(L))) ** 2
    if method == "bun-steinke":
        return bun_steinke
    too_large = 1.001 * rho_from_mu(mu_from_budget(epsilon, delta))
    return last_true(lambda rho: _delta_from_rho(rho, epsilon) <= delta, bun_steinke, too_large)
