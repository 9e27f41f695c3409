"""What the lines of a ledger say, and the numbers and words that they may hold."""

import base64
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP
from tacit.privacy.pseudonyms import NAME_BYTES
from tacit.privacy.statistic import WHOLE_EPISODE

Unit: TypeAlias = Literal["mu^2", "epsilon"]
"""What is counted, and adds: squared Gaussian-DP parameters; twice the parameters of zero-
concentrated DP (exact noise), which a Gaussian mechanism's mu^2 is too; or epsilons of pure DP."""

Event: TypeAlias = Literal[
    "start", "join", "charge", "pending", "save", "resume", "succession", "repair"
]
"""What a line records; ``pending`` is a charge whose result was not yet on disk."""

UNITS = ("mu^2", "epsilon")
EVENTS = ("start", "join", "charge", "pending", "save", "resume", "succession", "repair")

TOLERANCE = 1e-9
"""A budget divided into n parts must be spendable in n parts, in spite of rounding."""


@dataclass(frozen=True)
class Terms:
    """What is promised to a user: by one run, or by a population's ledger over all runs.

    Attributes:
        user_limit: What it may cost one user, in ``unit``; ``epsilon`` and ``delta`` as declared.
        episode_limit: What the releases about one episode may cost; less, if users return.
        episodes_per_user: For users with at most so many episodes in the run.
        disjoint: Whether they are in different releases.
        simulation: Whether the noise has a known seed, and so protects nobody.
    """

    unit: Unit
    user_limit: float
    episode_limit: float
    epsilon: float
    delta: float
    relation: str
    protects: str
    episodes_per_user: int = 1
    disjoint: bool = False
    simulation: bool = False

    @classmethod
    def of(
        cls, privacy: JointDP, protects: str = WHOLE_EPISODE, *, simulation: bool = False
    ) -> Self:
        """The terms of a model."""
        g, episode = privacy.episodes_per_user, privacy.episode_limit
        return cls(
            unit="epsilon" if privacy.pure else "mu^2",
            # Episodes in one release may add up, which is g^2 in squares.
            user_limit=episode * (g if privacy.pure or privacy.disjoint else g * g),
            episode_limit=episode,
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            relation=privacy.relation.value,
            protects=protects,
            episodes_per_user=g,
            disjoint=privacy.disjoint,
            simulation=simulation,
        )


@dataclass(frozen=True)
class Entry:
    """One line of a ledger, numbered from 1.

    Attributes:
        label: The label of a charge, the token of a start, a save or a resume, the ledger of a
            successor, the SHA-256 of a file that was repaired.
        costs: The cost per key; empty unless it is a charge.
        run: Which run of a ledger of people it belongs to; empty in a ledger of one run.
        time: When it was written (UTC), if the file says so.
        people: How many people a join admitted, or a repair charged again.
        terms: What a starting run promised, if the file says so.
        successor: The token of the save that a resume recorded with it, if it did.
        everybody: What a repair charged everybody, since it could not tell whom to charge.
        ended: Whether a repair ended all runs before it.
    """

    sequence: int
    event: Event
    label: str
    costs: Mapping[str, float]
    run: str = ""
    time: str = ""
    people: int = 0
    terms: Terms | None = None
    successor: str = ""
    everybody: float = 0.0
    ended: bool = False


def entry_of(record: Mapping[str, Any]) -> Entry:
    """A line that was entered into the books, as its readers see it."""
    people = record.get("people", "")
    names = [people] if isinstance(people, str) else people.values()
    return Entry(
        sequence=record["sequence"],
        event=record["event"],
        label=record["label"],
        costs=MappingProxyType({key: float(cost) for key, cost in record["costs"].items()}),
        run=record.get("run", ""),
        time=record.get("time", ""),
        people=sum(len(base64.b64decode(text)) // NAME_BYTES for text in names),
        terms=checked_terms(record["terms"]) if "terms" in record else None,
        successor=record.get("successor", ""),
        everybody=float(record.get("everybody", 0.0)),
        ended=record.get("ended", False),
    )


def above(number: Fraction) -> float:
    """The smallest float that is at least this number."""
    nearest = float(number)
    return nearest if nearest >= number else math.nextafter(nearest, math.inf)


def checked_terms(record: dict[str, Any]) -> Terms:
    """Terms as a line has them; any exception means that it is malformed."""
    terms = Terms(**record)
    limits = (terms.user_limit, terms.episode_limit)
    if terms.unit not in UNITS or not all(number_of("limit", limit) > 0 for limit in limits):
        raise ValueError("malformed")
    number_of("epsilon", terms.epsilon), number_of("delta", terms.delta)
    text_of("relation", terms.relation), text_of("protects", terms.protects)
    return terms


def number_of(name: str, value: float) -> float:
    """A finite number that is at least 0, or an InvalidArgument that names it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not (math.isfinite(number) and number >= 0):
        raise InvalidArgument(f"{name}={value!r} must be a finite number of at least 0")
    return number


def text_of(name: str, value: str) -> str:
    """One line of printable text, or an InvalidArgument that names it."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidArgument(f"{name}={value!r} must be a line of printable text")
    return value


def checked_hash(value: str) -> str:
    """A hash, or the first 8 hexadecimal digits of it or more, or an InvalidArgument."""
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{8,64}", value):
        raise InvalidArgument(f"expect={value!r} must be 8 to 64 hexadecimal digits")
    return value
