"""Releases of different kinds about the same user, composed.

Gaussian releases alone compose exactly: :func:`tacit.privacy.budget.compose`.
"""

import collections
import functools
import math
from collections.abc import Iterable

from tacit.privacy.budget import checked_delta, compose, epsilon_from_mu
from tacit.privacy.errors import MissingExtra
from tacit.privacy.validation import checked_number


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

    >>> 3.0 < compose_mixed(mus=[0.5], laplace=[1.0], delta=1e-6) < 3.2
    True
    """
    delta = checked_delta(delta)
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
