"""Budgets: how much may be learnt about one user, and between which inputs that is compared.

A person states a wish as ``Budget(epsilon, delta)``. Everything Tacit releases with Gaussian noise
is accounted in one number, mu, and converted to epsilon and delta once, at the end.

**Gaussian differential privacy: the exact arithmetic of mu, epsilon and delta.**

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

**Guarantees: what was proven about the users' privacy, in numbers and in words.**

**Local.** Every user's report is randomised on her own device before the curator sees it. For any
two episodes she may have had and every set E of reports,

    P(report in E)  <=  e^epsilon P'(report in E) + delta.

**Distributed.** Devices add shares of the noise and a secure sum opens the sum; E is any set of
opened sums. It rests on the secure sum, and on how many devices are honest.

**Joint.** The curator is trusted with raw episodes. Let user k's episode change to any other that
the relation allows, and let E be any set of outcomes of all that is seen by everybody except her:
the published policies and all *other* users' experience. Then

    P(outcome in E)  <=  e^epsilon P'(outcome in E) + delta.

What she sees herself is left out of it, and has to be: her actions fit her own states. The
billboard lemma gives it in one line. What is published is (epsilon, delta)-private in her data, and
every other user's experience is a function of what is published and of that user's own data, so it
is post-processing (Hsu et al., 2014, "Private matchings and allocations").

Neither says that nothing is learnt. What the data of everybody teaches (that a drug works) is
learnt, also about her; what her own data was makes almost no difference. That she took part is not
hidden: how many users came, and who was in which block, is public.
"""

from __future__ import annotations

import dataclasses
import decimal
import enum
import functools
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import erfcx, ndtr

from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.validation import checked_number, flag, instance_of, one_of, whole_number

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


_FORMAT = "tacit-guarantee"
_VERSION = 1
_ITEM = "one user's contribution to one item"
_MODELS = {"joint": "JDP", "local": "LDP", "distributed": "distributed DP"}
_REACH = {
    "joint": (
        "A trusted curator holds the raw data. What the user herself receives depends on her own "
        "data and is not covered."
    ),
    "local": "Nobody has to be trusted with the raw data: the curator sees noisy reports only.",
    "distributed": (
        "Nobody has to be trusted with the raw data, if the secure sums show nothing but sums and "
        "as many devices are honest as is said below."
    ),
}
_TAKING_PART = "That she took part, when and how often, is not hidden."
_SAMPLERS = {
    "bits": (
        "What is published are random bits, drawn in whole numbers: the proof covers every one."
    ),
    "exact": (
        "The noise is drawn in whole numbers, by an exact sampler: the proof covers every bit that "
        "is published."
    ),
}


def _up(value: float) -> str:
    """Six digits, rounded up, so that what is printed is never a stronger claim than the number."""
    up = decimal.Context(prec=6, rounding=decimal.ROUND_CEILING)
    return f"{float(up.create_decimal(repr(value))):.6g}"


def _factor(epsilon: float) -> str:
    """E to the power of epsilon in three digits, rounded up; nothing where it is no float."""
    if epsilon > 700:
        return ""
    up = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)
    return f" = {float(up.create_decimal(decimal.Decimal(epsilon).exp())):.3g}"


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A proven statement: who is protected, how much, against whom.

    The numbers must not contradict each other: ``mu``, if given, has to imply (epsilon, delta).

    Attributes:
        model: ``"joint"`` (a trusted curator), ``"local"`` (noise is added on the device) or
            ``"distributed"`` (shares of noise on devices, behind a secure sum).
        epsilon: At least 0; the log of the largest factor on a probability.
        delta: From 0 (pure) to below 1; what is added on top of the factor.
        mu: The same in Gaussian differential privacy, or None if not all noise is Gaussian.
        relation: What counts as a neighbouring input.
        unit: What of a user is hidden.
        releases: How often private statistics are published at most; None if there is no limit.
        mechanism: The kind of releases, such as "square-root counter, Gaussian noise".
        sampler: what is drawn: ``"exact"``, noise in whole numbers, or ``"bits"``.
        simulation_only: Whether the noise came from a known seed and hides nothing.
        episodes_per_user: With how many episodes a user is covered at most.

    >>> guarantee = Guarantee(
    ...     model="joint", epsilon=1.0, delta=1e-6, mu=0.2367, relation=Relation.REPLACE_ONE,
    ...     releases=75, mechanism="square-root counter, Gaussian noise")
    >>> guarantee.short
    '(1, 1e-06)-JDP per user, replace-one, 75 releases'
    >>> print(str(guarantee)[:71])
    (1, 1e-06)-joint differential privacy for one user's whole episode, rep
    >>> Guarantee.from_dict(guarantee.to_dict()) == guarantee
    True
    """

    model: Literal["joint", "local", "distributed"]
    epsilon: float
    delta: float
    mu: float | None
    relation: Relation
    unit: str = "one user's whole episode"
    releases: int | None
    mechanism: str
    sampler: Literal["exact", "bits"] = "exact"
    simulation_only: bool = False
    episodes_per_user: int = 1

    def __post_init__(self) -> None:
        one_of("model", self.model, [*_MODELS])
        one_of("sampler", self.sampler, [*_SAMPLERS])
        instance_of("relation", self.relation, Relation)
        flag("simulation_only", self.simulation_only)
        for name in ("unit", "mechanism"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise InvalidArgument(f"{name} is {text!r}, but must be a text that is not empty")
        self._check_proven()
        store = object.__setattr__  # numbers are stored as Python's own, whatever type they came in
        epsilon, delta = self.epsilon, self.delta
        epsilon = checked_number("epsilon", epsilon, "a number of at least 0", lambda e: e >= 0)
        delta = checked_number("delta", delta, "from 0 to below 1", lambda d: 0 <= d < 1)
        store(self, "epsilon", epsilon)
        store(self, "delta", delta)
        store(self, "episodes_per_user", whole_number("episodes_per_user", self.episodes_per_user))
        if self.releases is not None:
            store(self, "releases", whole_number("releases", self.releases))
        if self.mu is not None:
            store(self, "mu", self._checked_mu(self.mu))

    def _check_proven(self) -> None:
        """Refuses combinations for which nothing was proven."""
        if not self._whole and self.relation is Relation.ZERO_OUT:
            raise InvalidArgument(
                f"zero-out hides whether a user's data is used at all, but {self.unit!r} is not "
                f"all of it: the rest is used. Take replace-one"
            )
        whole = self._whole and self.relation is Relation.REPLACE_ONE
        if self.model != "joint" and not whole:
            raise InvalidArgument(
                f"{self.model} privacy is replace-one for all that a device holds, not "
                f"{self.relation.value} for {self.unit!r}: what is public would have to leave the "
                f"device without noise"
            )
        if self.sampler == "bits" and (self.model != "local" or self.delta != 0):
            raise InvalidArgument("random bits are reports of local privacy with delta = 0")

    def _checked_mu(self, mu: float) -> float:
        mu = checked_number("mu", mu, "a number of at least 0, or None", lambda m: m >= 0)
        implied = delta_from_mu(mu, self.epsilon)
        # Another machine's exponential function may differ in its last digits.
        if implied > self.delta * (1 + 1e-9):
            raise InvalidArgument(
                f"mu is {mu!r}, but must be small enough for ({self.epsilon!r}, {self.delta!r}): "
                f"at this epsilon it implies delta = {implied!r} only"
            )
        return mu

    @property
    def short(self) -> str:
        """One line: numbers, model, relation, number of releases."""
        whom = "per user" if self._whole else f"for {self.unit.partition(';')[0]}"
        parts = [f"{self._budget}-{_MODELS[self.model]} {whom}", self.relation.value, self._count()]
        if self.episodes_per_user > 1:
            parts.append(f"at most {self.episodes_per_user:,} episodes each")
        if self.simulation_only:
            parts.append("simulation only")
        return ", ".join(parts)

    def __str__(self) -> str:
        name = f"{'pure ' if self.delta == 0 else ''}{self.model} differential privacy"
        claim = f"{self._budget}-{name} for {self.unit}, {self.relation.value}."
        sentences = [claim, self._bound(), _REACH[self.model], _TAKING_PART, self._releases()]
        if self.episodes_per_user > 1:
            sentences.append(
                f"It covers a user who takes part up to {self.episodes_per_user:,} times, all her "
                "episodes together."
            )
        noise = _SAMPLERS[self.sampler]
        sentences.append(noise.replace("The noise", "Its noise") if self.simulation_only else noise)
        if self.simulation_only:
            warning = (
                "Simulation only: the noise seed is known, so this protects nobody. Of a real run "
                "it is proven:"
            )
            sentences.insert(0, warning)
        return " ".join(sentences)

    def _count(self) -> str:
        if self.releases is None:
            return "any number of releases"
        return f"{self.releases:,} release{'' if self.releases == 1 else 's'}"

    @property
    def _budget(self) -> str:
        return f"({_up(self.epsilon)}, {_up(self.delta)})"

    @property
    def _whole(self) -> bool:
        """Whether all of a user's data is protected, not only what the unit names."""
        several = self.unit.startswith("one user with") and "(" not in self.unit
        return several or self.unit in ("one user's whole episode", _ITEM)

    def _bound(self) -> str:
        changed = {
            Relation.REPLACE_ONE: "Had this user's data been any other"
            if self._whole
            else "Had that, and nothing else, been any other",
            Relation.ZERO_OUT: "Had this user's data not been used, her place in the stream kept",
        }[self.relation]
        seen = {
            "joint": "all that is published and all that all other users see or receive",
            "local": "all that leaves her device and all that anybody computes from it",
            "distributed": "all opened sums and all that anybody computes from them",
        }[self.model]
        factor = f"e^{_up(self.epsilon)}{_factor(self.epsilon)}"
        added = "" if self.delta == 0 else f", plus at most {_up(self.delta)}"
        # No "almost": for a large epsilon it would be false.
        warning = " A factor this large protects little." if self.epsilon > 10 else ""
        return (
            f"{changed}, the probability of any event in {seen} would differ by at most a factor "
            f"{factor}{added}.{warning}"
        )

    def _releases(self) -> str:
        if self.releases is None:
            limit = f"It holds for any number of releases ({self.mechanism})"
        else:
            limit = f"It holds for up to {self._count()} together ({self.mechanism})"
        if self.mu is None:
            return f"{limit}."
        return f"{limit}, which are {_up(self.mu)}-Gaussian differentially private."

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, with the name and version of the format."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"format": _FORMAT, "version": _VERSION} | fields | {"relation": self.relation.value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Guarantee:
        """The inverse of :meth:`to_dict`; every field has to be there and no other."""
        if not isinstance(values, Mapping):
            raise CorruptFile(f"a guarantee is a set of named values, not {type(values).__name__}")
        fields = dict(values)
        if fields.pop("format", None) != _FORMAT:
            raise CorruptFile(f"this is not a guarantee: format must be {_FORMAT!r}")
        version = fields.pop("version", None)
        if type(version) is not int or version != _VERSION:
            raise CorruptFile(f"version is {version!r}, but this release reads {_VERSION} only")
        expected = {field.name for field in dataclasses.fields(cls)}
        if wrong := sorted(map(str, expected ^ fields.keys())):
            raise CorruptFile(f"missing or unknown in a guarantee: {', '.join(wrong)}")
        try:
            relation = Relation(fields.pop("relation"))
            return cls(relation=relation, **fields)
        except ValueError as error:
            raise CorruptFile(f"a guarantee holds a value that is not valid: {error}") from error
