"""What comes of learning from a log: a policy, where its value is, and whether it is better."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tacit.finite.policy import Policy
from tacit.finite.value_interval import Interval
from tacit.privacy.guarantee import Guarantee


@dataclass(frozen=True, eq=False)
class Recommendation:
    """A policy with its evidence, or today's with the reason. Public, all of it.

    Attributes:
        policy: what to do: a new policy if it is surely better, else what is done today (as far as
            it is known).
        better: whether a policy was found whose value is surely above today's.
        value: the interval of the best policy that was found, recommended or not.
        today: the interval of what is done today.
        confidence: with which probability, over users and noise, both intervals hold, and those
            of all ``candidates``.
        candidates: the intervals of all policies that were judged, from careful to bold.
        found: the policy that ``value`` is about.
        learnt: how many users it was learnt from.
        judged: how many other users it was judged by.
        behaviour: ``"known"``, ``"logged"`` (propensities of every step), or ``"unknown"``.
        guarantee: what is proven for every user of the log; ``None`` without privacy.
    """

    policy: Policy
    better: bool
    value: Interval
    today: Interval
    confidence: float
    candidates: tuple[Interval, ...] = field(repr=False)
    found: Policy = field(repr=False)
    learnt: int
    judged: int
    behaviour: str
    guarantee: Guarantee | None = field(default=None, repr=False)

    @property
    def verdict(self) -> str:
        """In words."""
        sides = f"{_shown(self.value)} against {_shown(self.today)} today"
        if self.better:
            return f"Better than today with probability {self.confidence:g}: {sides}."
        return (
            f"No recommendation: nothing is better than today with probability "
            f"{self.confidence:g} (the best that was found has {sides})."
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tables, as JSON values."""
        return {
            "better": self.better,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "value": _numbers(self.value),
            "today": _numbers(self.today),
            "candidates": [_numbers(one) for one in self.candidates],
            "learnt": self.learnt,
            "judged": self.judged,
            "behaviour": self.behaviour,
            "guarantee": None if self.guarantee is None else self.guarantee.short,
        }

    def __str__(self) -> str:
        people = f"Learnt from {self.learnt:,} users and judged by {self.judged:,} others"
        how = f"what people do today was {self.behaviour}"
        proven = "No guarantee." if self.guarantee is None else str(self.guarantee)
        return f"{self.verdict} {people}; {how}. {proven}"


def _shown(interval: Interval) -> str:
    return f"a value of {interval.estimate:.4g}, in [{interval.low:.4g}, {interval.high:.4g}],"


def _numbers(interval: Interval) -> dict[str, float]:
    return {name: getattr(interval, name) for name in ("estimate", "low", "high")}
