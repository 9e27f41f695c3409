r"""Budgets, and the exact arithmetic of Gaussian privacy.

A person states a wish as ``Budget(epsilon, delta)``. Everything Tacit releases with Gaussian noise
is accounted in one number, mu, and converted to epsilon and delta once, at the end.

**Definitions.** A mechanism M is (epsilon, delta)-differentially private if for all neighbouring
inputs D, D' (see :class:`Relation`) and every event E

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
"Gaussian differential privacy"; Bun and Steinke (2016), "Concentrated differential privacy";
Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy"; Dwork and Roth
(2014), "The algorithmic foundations of differential privacy".
"""

import collections
import enum
import functools
import math
import numbers
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from scipy.special import erfcx, ndtr

from tacit.privacy.errors import InvalidArgument, MissingExtra

Method = Literal["bun-steinke", "canonne-kamath-steinke"]

_TINY = sys.float_info.min  # the smallest normal number, 2.2e-308
_ULP = sys.float_info.epsilon
_SQRT_2PI = math.sqrt(2 * math.pi)
_FAR = 39.0  # phi(39) < 1e-330: beyond, delta is below _TINY whatever mu is
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_MAX_MU = 1e7  # x and y keep eight digits after the point up to here
_MAX_EPSILON = 1e13  # its mu is below _MAX_MU for every delta


class Relation(enum.Enum):
    """Which two inputs count as neighbours, that is, what is hidden about a user.

    A stream of users has slots; user k sits in slot k, and that somebody sits there is public.

    * ``REPLACE_ONE``: the two streams are equal except for user k's whole behaviour, which may be
      anything in both. Whether her data is *this* or *that* is hidden. The default of the software,
      and what the definitions of joint and local privacy ask for.
    * ``ZERO_OUT``: in one of the two streams user k contributes the zero statistic, her slot kept.
      Whether her data *is used at all* is hidden.

    Neither is converted to the other silently. Replacing is two steps of zeroing out, so mu for
    zero-out is at most 2 mu for replace-one; a sensitivity derived for replace-one directly is
    never worse and often better (two orthogonal contributions of norm 1 are sqrt(2) apart, not 2).
    Adding or removing a user would move everybody after her into another slot; it is not offered.

    >>> Relation("replace-one")
    <Relation.REPLACE_ONE: 'replace-one'>
    """

    REPLACE_ONE = "replace-one"
    ZERO_OUT = "zero-out"


def checked_relation(relation: Relation | str) -> Relation:
    """The relation, given as itself or by its name.

    >>> checked_relation("zero-out")
    <Relation.ZERO_OUT: 'zero-out'>
    """
    try:
        return Relation(relation)
    except ValueError:
        names = [member.value for member in Relation]
        raise InvalidArgument(f"relation must be one of {names}, got {relation!r}") from None


def checked_number(
    name: str, value: object, allowed: str, is_allowed: Callable[[float], bool]
) -> float:
    """Returns ``value`` as a float, or refuses it in words.

    Truth values are refused although Python counts them as numbers: ``Budget(True, 1e-6)`` is a
    slip, not an epsilon of one.

    >>> checked_number("epsilon", 2, "positive", lambda e: e > 0)
    2.0
    >>> checked_number("epsilon", -1, "positive", lambda e: e > 0)
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: epsilon is -1, but must be positive
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and is_allowed(number):
            return number
    raise InvalidArgument(f"{name} is {value!r}, but must be {allowed}")


def _checked_mu(mu: float) -> float:
    return checked_number("mu", mu, "a number from 0 to 1e7", lambda m: 0 <= m <= _MAX_MU)


def _checked_delta(delta: float) -> float:
    return checked_number(
        "delta", delta, "a number of at least 2.3e-308 and below 1", lambda d: _TINY <= d < 1
    )


def _checked_epsilon(epsilon: float) -> float:
    return checked_number(
        "epsilon", epsilon, "a number from 0 to 1e13", lambda e: 0 <= e <= _MAX_EPSILON
    )


def _last_true(is_true: Callable[[float], bool], good: float, bad: float) -> float:
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
        return _TINY
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
    error = 4 * _ULP * (4 + (1 + max(x, 0.0)) * y)
    return min(1.0, max(_TINY, delta * (1 + error)))


def delta_from_mu(mu: float, epsilon: float) -> float:
    """The smallest delta for which every mu-GDP mechanism is (epsilon, delta)-private.

    Args:
        mu: From 0 to 1e7. mu = 0 is a release that does not depend on the user; its delta is 0.
        epsilon: At least 0. At epsilon = 0 the result is the total variation distance.

    Returns:
        An upper bound on delta, for mu <= 100 within 1e-11 of it (relative); at least 2.2e-308
        unless mu is 0.

    >>> f"{delta_from_mu(1.0, 1.0):.6f}"
    '0.126937'
    >>> delta_from_mu(1e-9, 1.0)  # the truth is about 10^(-2 10^17)
    2.2250738585072014e-308
    """
    mu = _checked_mu(mu)
    epsilon = checked_number("epsilon", epsilon, "a number of at least 0", lambda e: e >= 0)
    return 0.0 if mu == 0 else _delta(mu, epsilon)


def epsilon_from_mu(mu: float, delta: float) -> float:
    """The smallest epsilon for which every mu-GDP mechanism is (epsilon, delta)-private.

    The search ends at epsilon = mu (40 + mu/2), where x = 40 and delta is below 2.2e-308.

    Args:
        mu: From 0 to 1e7; 0 gives 0.
        delta: Positive, at least 2.3e-308, below 1.

    Returns:
        The epsilon, rounded up; 0.0 if delta is at least the total variation distance.

    >>> round(epsilon_from_mu(1.0, 1e-6), 4)
    4.8866
    >>> epsilon_from_mu(1.0, 0.5)
    0.0
    """
    mu, delta = _checked_mu(mu), _checked_delta(delta)
    if mu == 0 or _delta(mu, 0.0) <= delta:
        return 0.0
    return _last_true(lambda epsilon: _delta(mu, epsilon) <= delta, mu * (40 + mu / 2), 0.0)


def mu_from_budget(epsilon: float, delta: float) -> float:
    """The largest mu for which every mu-GDP mechanism is (epsilon, delta)-private.

    At mu = 20 + 2 sqrt(epsilon) we have x <= sqrt(epsilon)/2 - 10 - sqrt(epsilon) <= -10, where
    delta is 1 to all digits; at the smallest positive mu it is as small as delta can be. The
    answer is between them.

    Args:
        epsilon: From 0 to 1e13.
        delta: Positive, at least 2.3e-308, below 1.

    Returns:
        The mu, rounded down.

    >>> round(1 / mu_from_budget(1.0, 1e-6), 4)  # noise per unit of sensitivity
    4.2247
    """
    return _largest_mu(_checked_epsilon(epsilon), _checked_delta(delta))


@functools.lru_cache(maxsize=256)
def _largest_mu(epsilon: float, delta: float) -> float:
    """The search of :func:`mu_from_budget`, made once per budget; arguments unchecked."""
    return _last_true(lambda mu: _delta(mu, epsilon) <= delta, _TINY, 20 + 2 * math.sqrt(epsilon))


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
    return math.hypot(*(_checked_mu(mu) for mu in mus))


@dataclass(frozen=True)
class Budget:
    """How much may be learnt about one user, over everything that is ever published.

    Neither number has a default. epsilon is the log of the largest factor by which the probability
    of anything may change, delta what may be added on top. A usual delta is well below one over the
    number of users. delta = 0 is pure differential privacy: no Gaussian noise gives it, Laplace
    noise does where the L1 sensitivity is known.

    Attributes:
        epsilon: Positive and finite.
        delta: 0, or at least 2.3e-308 and below 1.

    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> print(budget)
    (1, 1e-06)
    >>> round(budget.mu, 4), round(budget.rho, 5), round(budget.noise_multiplier, 4)
    (0.2367, 0.02801, 4.2247)
    >>> Budget(epsilon=1.0, delta=1.0)
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: delta is 1.0, but must be 0, or from 2.3e-308 to below 1
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon = checked_number(
            "epsilon", self.epsilon, "a positive finite number", lambda e: e > 0
        )
        delta = checked_number(
            "delta",
            self.delta,
            "0, or from 2.3e-308 to below 1",
            lambda d: d == 0 or _TINY <= d < 1,
        )
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", abs(delta))  # -0.0 is 0.0

    def __str__(self) -> str:
        return f"({self.epsilon:.6g}, {self.delta:.6g})"

    @property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.delta == 0

    @functools.cached_property
    def mu(self) -> float:
        """The largest mu of Gaussian differential privacy that fits into this budget.

        Raises:
            InvalidArgument: If the budget is pure: no Gaussian mechanism has delta = 0.
        """
        if self.pure:
            raise InvalidArgument(
                "delta is 0.0, but Gaussian noise never gives pure privacy: use Laplace noise "
                "where the statistic has an L1 sensitivity, or a positive delta such as 1e-6"
            )
        return mu_from_budget(self.epsilon, self.delta)

    @property
    def rho(self) -> float:
        """The same in zero-concentrated privacy, mu^2 / 2."""
        return rho_from_mu(self.mu)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of Gaussian noise per unit of L2 sensitivity, 1 / mu, rounded up."""
        return math.nextafter(1 / self.mu, math.inf)

    def split(self, *shares: float) -> tuple[float, ...]:
        """The mus of several releases that spend this budget together, mu_i^2 in these shares.

        Sums of squares round; the parts are therefore smaller by 4 parts in 10^15, and composing
        them never gives more than ``mu``.

        >>> first, second = Budget(1.0, 1e-6).split(3, 1)
        >>> round(first / second, 9), compose(first, second) <= Budget(1.0, 1e-6).mu
        (1.732050808, True)
        """
        if not shares:
            raise InvalidArgument("shares is empty, but must be one or more positive numbers")
        parts = [checked_number("share", s, "a positive number", lambda s: s > 0) for s in shares]
        largest = max(
            parts
        )  # scaled by it, sums of huge or tiny shares neither overflow nor vanish
        total = math.fsum(part / largest for part in parts)
        return tuple(
            self.mu * math.sqrt(part / largest / total) * (1 - 16 * _ULP) for part in parts
        )


def rho_from_mu(mu: float) -> float:
    """The rho of zero-concentrated privacy (zCDP) of a mu-GDP mechanism: mu^2 / 2.

    The Renyi divergence of order a between N(0, 1) and N(mu, 1) is a mu^2 / 2, and rho-zCDP asks
    that it is at most a rho for every a > 1. The way back loses: a rho-zCDP mechanism need not be
    Gaussian. A positive mu whose square vanishes gives the smallest normal number.

    >>> rho_from_mu(0.2)
    0.020000000000000004
    """
    mu = _checked_mu(mu)
    return 0.0 if mu == 0 else max(_TINY, mu * mu / 2)


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
    best = _last_true(is_left_of_best, lowest, highest) if is_left_of_best(lowest) else lowest
    return math.exp(min(0.0, log_delta(best)))


def _checked_rho(rho: float) -> float:
    return checked_number(
        "rho", rho, "0, or from 1e-200 to 5e13", lambda r: r == 0 or 1e-200 <= r <= 5e13
    )


def epsilon_from_rho(rho: float, delta: float, method: Method = "canonne-kamath-steinke") -> float:
    """A published epsilon of a rho-zCDP mechanism; for Gaussian noise the exact one is smaller.

    ``"bun-steinke"`` is epsilon = rho + 2 sqrt(rho log(1/delta)). ``"canonne-kamath-steinke"``
    inverts

        delta = inf over a > 1 of  exp((a-1)(a rho - epsilon)) / (a-1) * (1 - 1/a)^a,

    which is never larger: Bun and Steinke's bound is the same infimum without the last two factors,
    and their product (1 - 1/a)^(a-1) / a is below 1.

    Args:
        rho: 0, or from 1e-200 to 5e13.
        delta: Positive, at least 2.3e-308, below 1.
        method: Whose conversion.

    >>> [round(epsilon_from_rho(0.5, 1e-6, m), 3)
    ...  for m in ("bun-steinke", "canonne-kamath-steinke")]
    [5.757, 5.222]
    """
    rho, delta, method = _checked_rho(rho), _checked_delta(delta), _checked_method(method)
    if rho == 0:
        return 0.0
    bun_steinke = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    if method == "bun-steinke":
        return bun_steinke
    if _delta_from_rho(rho, 0.0) <= delta:
        return 0.0
    return _last_true(lambda e: _delta_from_rho(rho, e) <= delta, bun_steinke, 0.0)


def rho_from_budget(
    epsilon: float, delta: float, method: Method = "canonne-kamath-steinke"
) -> float:
    """The largest rho that a published conversion can turn into this budget.

    The inverse of :func:`epsilon_from_rho`. For Bun and Steinke, with L = log(1/delta), it is
    (sqrt(L + epsilon) - sqrt(L))^2, written below so that nothing cancels. For Canonne, Kamath and
    Steinke it lies between that and the exact mu^2 / 2, since their bound holds for Gaussians too.

    Args:
        epsilon: From 1e-50 to 1e13.
        delta: Positive, at least 2.3e-308, below 1.
        method: Whose conversion.

    >>> [round(rho_from_budget(1.0, 1e-6, m), 5)
    ...  for m in ("bun-steinke", "canonne-kamath-steinke")]
    [0.01747, 0.02436]
    """
    epsilon = checked_number(
        "epsilon", epsilon, "a number from 1e-50 to 1e13", lambda e: 1e-50 <= e <= _MAX_EPSILON
    )
    delta, method = _checked_delta(delta), _checked_method(method)
    L = math.log(1 / delta)
    bun_steinke = (epsilon / (math.sqrt(L + epsilon) + math.sqrt(L))) ** 2
    if method == "bun-steinke":
        return bun_steinke
    too_large = 1.001 * rho_from_mu(mu_from_budget(epsilon, delta))
    return _last_true(lambda rho: _delta_from_rho(rho, epsilon) <= delta, bun_steinke, too_large)


def textbook_noise_multiplier(epsilon: float, delta: float) -> float:
    """The noise of Dwork and Roth's Theorem A.1: sqrt(2 log(1.25 / delta)) / epsilon.

    Its proof needs epsilon <= 1, and beyond the formula is not merely unproven but wrong: at
    (10, 1e-6) it gives 0.530 where 0.541 is needed.

    >>> round(textbook_noise_multiplier(1.0, 1e-6), 3)
    5.299
    """
    epsilon = checked_number(
        "epsilon",
        epsilon,
        "from 1e-50 to 1: the textbook formula is proven there only, and adds too little noise for "
        "large epsilon",
        lambda e: 1e-50 <= e <= 1,
    )
    return math.sqrt(2 * math.log(1.25 / _checked_delta(delta))) / epsilon


def noise_multipliers(budget: Budget) -> dict[str, float]:
    """Gaussian noise per unit of sensitivity that each conversion asks for, smallest first.

    Only the first is used by the software; the others show what looser accounting costs.

    >>> for name, sigma in noise_multipliers(Budget(1.0, 1e-6)).items():
    ...     print(f"{name:24}{sigma:.2f}")
    exact                   4.22
    canonne-kamath-steinke  4.53
    textbook                5.30
    bun-steinke             5.35
    """
    epsilon, delta = budget.epsilon, budget.delta
    multipliers = {"exact": budget.noise_multiplier}
    methods: tuple[Method, ...] = ("canonne-kamath-steinke", "bun-steinke")
    for method in methods:
        multipliers[method] = 1 / math.sqrt(2 * rho_from_budget(epsilon, delta, method))
    if epsilon <= 1:
        multipliers["textbook"] = textbook_noise_multiplier(epsilon, delta)
    return dict(sorted(multipliers.items(), key=lambda item: item[1]))


def compose_mixed(
    *,
    mus: Iterable[float] = (),
    laplace: Iterable[float] = (),
    pure: Iterable[float] = (),
    delta: float,
) -> float:
    """The epsilon, at this delta, of releases of different kinds about the same user.

    Gaussian releases are first composed exactly into one. If there are others, the distributions of
    the privacy loss are convolved on a grid that is rounded to the pessimistic side, by the
    dp-accounting package. Simple addition, epsilon_from_mu(compose(*mus), delta) + sum of the other
    epsilons, is a bound as well (an event's probability grows by the factor of one, then of
    the other), and the smaller of the two is returned.

    Convolution is by fast Fourier transform and leaves rounding noise below 1e-13 in delta. One
    thousandth of delta is set aside for it; for delta below 1e-10 that is no longer enough, and
    simple addition alone is used. So it is where the sum exceeds 500, for want of range.

    Args:
        mus: The mus of Gaussian releases.
        laplace: The epsilons of Laplace releases of one number each, that is, sensitivity / scale.
            For a vector, whose differences may be spread over coordinates, use ``pure``.
        pure: The epsilons of arbitrary pure releases. Each is dominated by randomised response,
            which answers a yes-no question truthfully with odds e^epsilon: any epsilon-private
            mechanism can be simulated from its answer.
        delta: Positive, at least 2.3e-308, below 1.

    Returns:
        An upper bound on epsilon; the exact value if all releases are Gaussian.

    Raises:
        MissingExtra: If distributions have to be convolved and dp-accounting is not installed.

    >>> 3.0 < compose_mixed(mus=[0.5], laplace=[1.0], delta=1e-6) < 3.2
    True
    """
    delta = _checked_delta(delta)
    mu = compose(*mus)
    laplace, pure = (
        [
            checked_number(name, e, "numbers from 1e-50 to 1e13", lambda e: 1e-50 <= e <= 1e13)
            for e in epsilons
        ]
        for name, epsilons in (("laplace", laplace), ("pure", pure))
    )
    gaussian = epsilon_from_mu(mu, delta)
    if not laplace and not pure:
        return gaussian
    added = math.fsum([gaussian, *laplace, *pure])
    if delta < 1e-10 or added > 500:
        return added
    grid = 1e-5 * added + 1e-4 * mu  # some hundred thousand points in either case
    return min(added, _convolved_epsilon(mu, laplace, pure, delta, grid))


def _convolved_epsilon(
    mu: float, laplace: Iterable[float], pure: Iterable[float], delta: float, grid: float
) -> float:
    """Epsilon by convolving privacy loss distributions on a grid of this step; 1e-10 <= delta."""
    try:
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError as error:
        raise MissingExtra(
            "composing Gaussian with other releases needs dp-accounting: pip install dp-accounting "
            "(it is part of the extra tacit[dev])"
        ) from error
    truncated = delta * 1e-6
    parts = []
    if mu > 0:
        sigma = 1 / max(mu, 1e-9)  # a larger mu is a weaker claim, and its square does not vanish
        parts.append(pld.from_gaussian_mechanism(sigma, value_discretization_interval=grid))
    for epsilon, times in collections.Counter(laplace).items():
        part = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=grid)
        parts.append(part if times == 1 else part.self_compose(times, truncated))
    for epsilon, times in collections.Counter(pure).items():
        part = pld.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=grid
        )
        parts.append(part if times == 1 else part.self_compose(times, truncated))
    total = functools.reduce(lambda a, b: a.compose(b, truncated), parts)
    return float(total.get_epsilon_for_delta(delta * (1 - 1e-3)))
