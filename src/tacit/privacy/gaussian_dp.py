r"""Gaussian differential privacy: the exact arithmetic of mu, epsilon and delta.

**Definitions.** A mechanism M is (epsilon, delta)-differentially private if for all neighbouring
inputs D, D' (see :class:`~tacit.privacy.budget.Relation`) and every event E

    P(M(D) in E)  <=  e^epsilon P(M(D') in E) + delta.

It is mu-Gaussian differentially private (mu-GDP) if telling M(D) from M(D') is at least as hard as
telling N(0, 1) from N(mu, 1). A statistic of L2 sensitivity s, released with N(0, sigma^2) noise in
every coordinate, is mu-GDP with mu = s / sigma, and no better: only the direction from one value to
the other carries information, and there the two outputs are N(0, 1) and N(mu, 1) after scaling.

**Exact conversion.** The event E that makes the inequality tight is a threshold on the likelihood
ratio, which for N(0, 1) and N(mu, 1) is a threshold on the line. Its probabilities are

    delta(mu, epsilon) = Phi(-x) - e^epsilon Phi(-y),   x = epsilon/mu - mu/2,
                                                        y = epsilon/mu + mu/2,

with Phi the normal distribution function and phi its density. delta rises with mu and falls with
epsilon, so each of the three numbers is a function of the other two: :func:`delta_from_mu`,
:func:`epsilon_from_mu` and :func:`mu_from_budget`.

**Computing it.** The formula subtracts two numbers that may agree in all their digits. Because
y^2 - x^2 = 2 epsilon we have phi(x) = e^epsilon phi(y), hence

    delta = phi(x) (R(x) - R(y)),   R(t) = Phi(-t) / phi(t) = sqrt(pi/2) erfcx(t / sqrt 2),

where Mills' ratio R is tame. For mu >= 1/2 the remaining difference is harmless. For smaller mu it
is the integral of g = -R' over [x, y], an interval of length mu; g(t) = 1 - t R(t) is positive and
smooth, so eight Gauss-Legendre nodes give it to the last digits and nothing cancels.

**The safe side.** delta_from_mu adds its own rounding error, a few units in the last place times
1 + (1 + x) y, and is therefore an upper bound; for mu <= 100 it exceeds the truth by less than one
part in 10^11. What is smaller than the smallest normal number, 2.2e-308, is reported as that number
and never as zero, since delta = 0 would claim pure privacy. The inverse functions return the last
floating-point number for which the upper bound still holds.

Sources: Balle and Wang (2018), "Improving the Gaussian mechanism"; Dong, Roth and Su (2022),
"Gaussian differential privacy".
"""

import functools
import math
import sys
from collections.abc import Callable

import numpy as np
from scipy.special import erfcx, ndtr

from tacit.privacy.arguments import checked_number

TINY = sys.float_info.min
"""The smallest normal number, 2.2e-308."""
ULP = sys.float_info.epsilon
"""A unit in the last place of 1."""

_SQRT_2PI = math.sqrt(2 * math.pi)
_FAR = 39.0  # phi(39) < 1e-330: beyond, delta is below TINY whatever mu is
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_MAX_MU = 1e7  # x and y keep eight digits after the point up to here


def checked_mu(mu: float) -> float:
    """A mu that can be converted."""
    return checked_number("mu", mu, "a number from 0 to 1e7", lambda m: 0 <= m <= _MAX_MU)


def checked_delta(delta: float) -> float:
    """A delta that Gaussian noise can have."""
    return checked_number(
        "delta", delta, "a number of at least 2.3e-308 and below 1", lambda d: TINY <= d < 1
    )


def last_true(is_true: Callable[[float], bool], good: float, bad: float) -> float:
    """Returns the floating-point number next to where ``is_true`` turns false.

    Bisection between ``good``, where it holds, and ``bad``, where it does not, until no number is
    left between them. It needs no derivative and no tolerance, and what it returns was tested.
    """
    while True:
        middle = (good + bad) / 2
        if middle in (good, bad):
            return good
        if is_true(middle):
            good = middle
        else:
            bad = middle


def _mills(t: float) -> float:
    return math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))


def _delta(mu: float, epsilon: float) -> float:
    """delta(mu, epsilon) of the module docstring for mu > 0, rounded up; arguments unchecked."""
    x = epsilon / mu - mu / 2
    y = epsilon / mu + mu / 2
    if x > _FAR:
        return TINY
    density = math.exp(-x * x / 2) / _SQRT_2PI
    if mu < 0.5:
        t = epsilon / mu + mu / 2 * _NODES
        g = 1 - t * math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2))
        delta = density * mu / 2 * float(_WEIGHTS @ g)
    elif x < 0:
        # R(x) overflows far to the left, where Phi(-x) is nearly 1 and nothing cancels.
        delta = float(ndtr(-x)) - density * _mills(y)
    else:
        delta = density * (_mills(x) - _mills(y))
    # x and y are off by half a unit in the last place of y, and log delta moves by at most 1 + x
    # per unit of x; g loses another factor t^2, which is about x y.
    error = 4 * ULP * (4 + (1 + max(x, 0.0)) * y)
    return min(1.0, max(TINY, delta * (1 + error)))


def delta_from_mu(mu: float, epsilon: float) -> float:
    """The smallest delta for which every mu-GDP mechanism is (epsilon, delta)-private.

    mu = 0 is a release that does not depend on the user; its delta is 0. At epsilon = 0 the result
    is the total variation distance. It is an upper bound, for mu <= 100 within 1e-11 of delta
    (relative), and at least 2.2e-308 unless mu is 0.

    >>> f"{delta_from_mu(1.0, 1.0):.6f}"
    '0.126937'
    >>> delta_from_mu(1e-9, 1.0)  # the truth is about 10^(-2 10^17)
    2.2250738585072014e-308
    """
    mu = checked_mu(mu)
    epsilon = checked_number("epsilon", epsilon, "a number of at least 0", lambda e: e >= 0)
    return 0.0 if mu == 0 else _delta(mu, epsilon)


def epsilon_from_mu(mu: float, delta: float) -> float:
    """The smallest epsilon for which every mu-GDP mechanism is (epsilon, delta)-private.

    The search ends at epsilon = mu (40 + mu/2), where x = 40 and delta is below 2.2e-308. The
    result is rounded up; it is 0.0 if delta is at least the total variation distance.

    >>> round(epsilon_from_mu(1.0, 1e-6), 4)
    4.8866
    >>> epsilon_from_mu(1.0, 0.5)
    0.0
    """
    mu, delta = checked_mu(mu), checked_delta(delta)
    if mu == 0 or _delta(mu, 0.0) <= delta:
        return 0.0
    return last_true(lambda epsilon: _delta(mu, epsilon) <= delta, mu * (40 + mu / 2), 0.0)


def mu_from_budget(epsilon: float, delta: float) -> float:
    """The largest mu for which every mu-GDP mechanism is (epsilon, delta)-private.

    At mu = 20 + 2 sqrt(epsilon) we have x <= sqrt(epsilon)/2 - 10 - sqrt(epsilon) <= -10, where
    delta is 1 to all digits; at the smallest positive mu it is as small as delta can be. The
    answer is between them.

    It is rounded down.

    >>> round(1 / mu_from_budget(1.0, 1e-6), 4)  # noise per unit of sensitivity
    4.2247
    """
    allowed = "a number from 0 to 1e13"  # beyond, mu would be too large for some delta
    epsilon = checked_number("epsilon", epsilon, allowed, lambda e: 0 <= e <= 1e13)
    return _largest_mu(epsilon, checked_delta(delta))


@functools.lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float) -> float:
    """The search of :func:`mu_from_budget`, made once per budget; arguments unchecked."""
    return last_true(lambda mu: _delta(mu, epsilon) <= delta, TINY, 20 + 2 * math.sqrt(epsilon))


def compose(*mus: float) -> float:
    """The mu of several Gaussian releases about the same user together: sqrt(sum of mu_i^2).

    The releases may be adaptive: what is asked next, and with which mu_i, may depend on all earlier
    answers, as long as the squares never add up to more than a sum declared in advance. Given the
    past, release i is N(0, I) against N(v_i, I), where |v_i| <= mu_i and both are known from the
    past. So the log-likelihood ratio grows by Gaussian increments of variance |v_i|^2 and mean
    -|v_i|^2/2 or +|v_i|^2/2: it is a Brownian motion with drift -1/2 or +1/2, watched at the times
    sum |v_i|^2, which never pass T, the declared sum of the mu_i^2. Watching it on all of [0, T]
    tells at least as much, and all that it tells is its end point, N(-T/2, T) against N(T/2, T):
    this is sqrt(T)-GDP.

    >>> compose(0.3, 0.4)
    0.5
    >>> compose()
    0.0
    """
    return math.hypot(*(checked_mu(mu) for mu in mus))
