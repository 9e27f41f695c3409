"""Budgets: how much may be learnt about one user, and between which inputs that is compared.

A person states a wish as ``Budget(epsilon, delta)``. Everything Tacit releases with Gaussian noise
is accounted in one number, mu, and converted to epsilon and delta once, at the end:
:mod:`tacit.privacy.gaussian_dp`.
"""

import enum
import functools
import math
from dataclasses import dataclass

from tacit.privacy.arguments import checked_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import TINY, ULP, mu_from_budget


class Relation(enum.Enum):
    """Which two inputs count as neighbours, that is, what is hidden about a user.

    A stream of users has slots; user k sits in slot k, and that somebody sits there is public.

    * ``REPLACE_ONE``: the two streams are equal except for user k's whole behaviour, which may be
      anything in both. Whether her data is *this* or *that* is hidden. The default of the software,
      and what the definitions of joint and local privacy ask for.
    * ``ZERO_OUT``: in one of the two streams user k contributes the zero statistic, her slot kept.
      Whether her data *is used at all* is hidden.

    Neither is converted to the other silently. Replacing is two steps of zeroing out, so mu for
    replace-one is at most twice mu for zero-out; a sensitivity derived for replace-one directly is
    never worse and often better (two orthogonal contributions of norm 1 are sqrt(2) apart, not 2).
    Adding or removing a user would move all later users into other slots; it is not offered.

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


def ways(relation: Relation | str) -> int:
    """How many radii two neighbours in a ball are apart: 2, or 1 where one of them is zero."""
    return 2 if checked_relation(relation) is Relation.REPLACE_ONE else 1


@dataclass(frozen=True)
class Budget:
    """How much may be learnt about one user, over everything that is ever published.

    Neither number has a default. epsilon is the log of the largest factor by which the probability
    of anything may change, delta what may be added on top. A usual delta is well below one over the
    number of users. delta = 0 is pure differential privacy: no Gaussian noise gives it, Laplace
    noise does where the L1 sensitivity is known.

    >>> budget = Budget(epsilon=1.0, delta=1e-6)
    >>> print(budget)
    (1, 1e-06)
    >>> round(budget.mu, 4), round(1.0 / budget.mu, 4)  # and noise per unit of sensitivity
    (0.2367, 4.2247)
    >>> Budget(epsilon=1.0, delta=1.0)
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: delta is 1.0, but must be 0, or from 2.3e-308 to below 1
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon, delta = self.epsilon, self.delta
        epsilon = checked_number("epsilon", epsilon, "a positive finite number", lambda e: e > 0)
        allowed = "0, or from 2.3e-308 to below 1"
        delta = checked_number("delta", delta, allowed, lambda d: d == 0 or TINY <= d < 1)
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
        """The largest mu of Gaussian differential privacy that fits; a pure budget has none."""
        if self.pure:
            raise InvalidArgument(
                "delta is 0.0, but Gaussian noise never gives pure privacy: use Laplace noise "
                "where the statistic has an L1 sensitivity, or a positive delta such as 1e-6"
            )
        return mu_from_budget(self.epsilon, self.delta)

    def split(self, *shares: float) -> tuple[float, ...]:
        """The mus of several releases that spend this budget together, mu_i^2 in these shares.

        Sums of squares round; the parts are therefore smaller by 4 parts in 10^15, and composing
        them never gives more than ``mu``.

        >>> from tacit.privacy.gaussian_dp import compose
        >>> first, second = Budget(1.0, 1e-6).split(3, 1)
        >>> round(first / second, 9), compose(first, second) <= Budget(1.0, 1e-6).mu
        (1.732050808, True)
        """
        if not shares:
            raise InvalidArgument("shares is empty, but must be one or more positive numbers")
        parts = [checked_number("share", s, "a positive number", lambda s: s > 0) for s in shares]
        largest = max(parts)  # scaled by it, no sum of huge or tiny shares overflows or vanishes
        total = math.fsum(part / largest for part in parts)
        return tuple(self.mu * math.sqrt(part / largest / total) * (1 - 16 * ULP) for part in parts)
