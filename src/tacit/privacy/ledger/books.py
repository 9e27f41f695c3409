"""What the lines of a ledger add up to, what may still be spent, and which save resumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.ledger.header import Header
from tacit.privacy.ledger.people import People
from tacit.privacy.ledger.records import (
    EVENTS,
    TOLERANCE,
    Entry,
    Terms,
    above,
    checked_terms,
    number_of,
    text_of,
)

# What publishes nothing: a save that was written before may still be resumed.
_UNPUBLISHED = ("join", "pending")
_NOTHING = Fraction(0)


class SavePoints:
    """The saves of all runs of a ledger, and what was recorded since; see there for the rules."""

    def __init__(self) -> None:
        self._saves: dict[str, tuple[str, int]] = {}  # token -> its run and its place
        self._successors: set[str] = set()  # saves that only the resume before them recorded
        self._resumed: set[str] = set()
        self._published: dict[str, int] = {}  # run -> its last entry that may be seen outside

    def enter_save(self, run: str, token: str, sequence: int, where: str) -> None:
        """A line that records a save."""
        if token in self._saves and token not in self._successors:
            raise CorruptFile(f"{where} records a save that was recorded before")
        self._successors.discard(token)
        self._saves[token] = (run, sequence)

    def enter_resume(self, token: str, where: str) -> None:
        """A line that records a resume."""
        if token in self._resumed:
            raise CorruptFile(f"{where} resumes a save that was resumed before")
        self._resumed.add(token)

    def enter_successor(self, run: str, token: str, sequence: int, where: str) -> None:
        """A line that records, with a resume, the save that follows it."""
        self.enter_save(run, token, sequence, where)
        self._successors.add(token)

    def enter_published(self, run: str, sequence: int) -> None:
        """A line after which something may be seen outside: older saves are void."""
        self._published[run] = sequence

    def check_new(self, token: str) -> None:
        """Refuses a save under a token that was used before."""
        known = token in self._saves and token not in self._successors
        if known or token in self._resumed:
            raise InvalidArgument(f"token={token!r} was used before; each save needs its own")

    def place(self, token: str, run: str, after: int | None) -> tuple[str, int | None]:
        """The run and the place of a save, as its file says if a crash kept it from the ledger.

        One that was resumed before is refused.
        """
        if token in self._resumed:
            raise DoubleSpend(f"save {token!r} was already resumed; a save is resumed once")
        return self._saves.get(token, (run, after))

    def check_newest(self, token: str, run: str, moment: int, successor: str | None) -> None:
        """Refuses a save older than what its run has published, or a successor's used token."""
        if self._published.get(run, 0) > moment:
            raise DoubleSpend(
                f"save {token!r} is older than what was published or resumed since; "
                "only the newest save can be resumed"
            )
        if successor is not None and successor in {token, *self._saves, *self._resumed}:
            raise InvalidArgument(f"successor={successor!r} was used before")


class Books:
    """Entries, accounts, runs and saves: all that a ledger knows, as far as it was read."""

    def __init__(self, path: str, header: Header) -> None:
        self.header = header
        self.entries: list[Entry] = []
        self.people = People(header.limit)
        self.saves = SavePoints()
        self._of_people = header.terms is not None
        self._path = path
        self._spent: dict[str, Fraction] = {}

    @property
    def accounts(self) -> Counter[float]:
        """How many have spent how much: people, or keys in a ledger of one run."""
        if self._of_people:
            return self.people.accounts
        return Counter(map(above, self._spent.values()))

    def spent(self, key: str) -> Fraction:
        """What a key has spent, exactly."""
        return self._spent.get(key, _NOTHING)

    def knows(self, run: str) -> bool:
        """Whether a run has started; the one run of its own ledger always has."""
        return run in self.people.runs if self._of_people else run == ""

    # A line comes in.

    def enter(self, record: dict[str, Any], where: str) -> None:
        """Enter a record whose hash is right; any exception means that it is malformed."""
        sequence, event, label = record["sequence"], record["event"], record["label"]
        costs = {key: number_of("cost", cost) for key, cost in record["costs"].items()}
        if sequence != len(self.entries) + 1 or event not in EVENTS or type(label) is not str:
            raise ValueError("malformed")
        run = record["run"] if self._of_people else ""
        time = record.get("time", "")
        if type(run) is not str or type(time) is not str:
            raise ValueError("malformed")
        terms = checked_terms(record["terms"]) if "terms" in record else None
        if event == "start" and self._of_people:
            if run in self.people.runs or run != label or terms is None:
                raise ValueError("malformed")
            self.people.runs[run] = terms
        elif not self.knows(run):
            raise CorruptFile(f"{where} belongs to a run that never started")
        self._enter_costs(run, costs, where)
        people = self.people.enter(run, record["people"], where) if event == "join" else 0
        successor = ""
        if event == "save":
            self.saves.enter_save(run, label, sequence, where)
        elif event == "resume":
            self.saves.enter_resume(label, where)
            if "successor" in record:
                successor = text_of("successor", record["successor"])
                self.saves.enter_successor(run, successor, sequence, where)
        if event not in _UNPUBLISHED:
            self.saves.enter_published(run, sequence)
        entry = (sequence, event, label, MappingProxyType(costs), run, time, people, terms)
        self.entries.append(Entry(*entry, successor))

    def _enter_costs(self, run: str, costs: Mapping[str, float], where: str) -> None:
        for key, cost in costs.items():
            spent = self.spent(key) + Fraction(cost)
            if spent > self._key_limit(run) * (1 + TOLERANCE):
                raise CorruptFile(
                    f"{where} brings {key!r} to {above(spent)} {self.header.unit}, above its "
                    f"limit of {self._key_limit(run)}"
                )
            self._spent[key] = spent

    # What may be recorded next.

    def check_started(self, run: str) -> None:
        """Refuses to go on without a run, in a ledger of people."""
        if self._of_people and run not in self.people.runs:
            raise InvalidArgument(f"{self._path!r} is of people: start or resume a run first")

    def check_costs(self, run: str, costs: Mapping[str, float]) -> None:
        """Refuses what some key cannot pay."""
        limit = self._key_limit(run)
        for key, cost in costs.items():
            if self.spent(key) + Fraction(cost) > limit * (1 + TOLERANCE):
                raise BudgetExceeded(
                    f"{key!r} has spent {above(self.spent(key))} of {limit} {self.header.unit}; "
                    f"{cost} is too much"
                )

    def check_start(self, token: str, terms: Terms | None) -> None:
        """Refuses a run that this ledger cannot have."""
        if self._of_people:
            self._check_terms(token, terms)
        elif self.entries:
            advice = "it has not spent or saved anything yet; if it crashed, delete the file"
            if any(entry.event != "start" for entry in self.entries):
                advice = (
                    "resume that run, or give users who never took part a new ledger; several runs "
                    "on the same people need a ledger of people (Ledger.create_for_people)"
                )
            raise DoubleSpend(f"{self._path!r} has the accounts of another run: {advice}")

    def check_resume(self, token: str, run: str, after: int | None, successor: str | None) -> str:
        """Refuses to resume a save that is not the newest of its run; returns the run."""
        run, moment = self.saves.place(token, run, after)
        if moment is None or moment > len(self.entries) or not self.knows(run):
            raise DoubleSpend(
                f"save {token!r} is unknown to this ledger; it belongs to another one, or "
                f"{self._path!r} is an older copy"
            )
        self.saves.check_newest(token, run, moment, successor)
        return run

    def _key_limit(self, run: str) -> float:
        """What a block of this run may spend."""
        if not self._of_people:
            return self.header.limit
        self.check_started(run)
        return self.people.runs[run].episode_limit

    def _check_terms(self, token: str, terms: Terms | None) -> None:
        mine = self.header.terms
        if terms is None or mine is None:
            raise InvalidArgument("a run on a ledger of people needs terms")
        if token in self.people.runs:
            raise InvalidArgument(f"token={token!r} was used before; each run needs its own")
        if terms.unit != mine.unit:
            raise InvalidArgument(
                f"{self._path!r} counts {mine.unit}, and a run that costs {terms.unit} cannot be "
                "added to that"
            )
        for name in ("relation", "protects"):
            promised, given = getattr(mine, name), getattr(terms, name)
            if given != promised:
                raise InvalidArgument(
                    f"{name}={given!r}, but {self._path!r} promises {promised!r} to everybody"
                )
        if not self.people.who_can(terms.user_limit)[0]:
            raise BudgetExceeded(
                f"this run costs everybody {terms.user_limit:.6g} {terms.unit}, and "
                f"{self._path!r} allows {self.header.limit:.6g} over all runs"
            )
