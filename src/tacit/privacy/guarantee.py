r"""What was proven about the users' privacy, in numbers and in words.

A :class:`Guarantee` is a public, immutable record. It holds nothing about anybody's data, so it may
be printed, logged and published next to the policies it speaks of.

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

import dataclasses
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tacit.privacy.arguments import checked_number, flag, instance_of, one_of, whole_number
from tacit.privacy.budget import Relation
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.gaussian_dp import delta_from_mu
from tacit.privacy.html import card

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

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        first, _, rest = str(self).partition(". ")
        return card(self.short, [("proven", first), ("that is", rest)])

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
    def from_dict(cls, values: Mapping[str, Any]) -> "Guarantee":
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
