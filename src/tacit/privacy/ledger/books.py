"""What the lines of a ledger add up to, what may still be spent, and which save resumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.ledger.header import Header
from tacit.privacy.ledger.index import Rows
from tacit.privacy.ledger.people import People, Run
from tacit.privacy.ledger.records import (
    EVENTS,
    TOLERANCE,
    Terms,
    above,
    checked_terms,
    number_of,
    text_of,
)

# What publishes nothing: a save that was written before may still be resumed.
_UNPUBLISHED = ("join", "pending")
_NOTHING = Fraction(0)
# How the keys of rows begin: what a key has spent, a run, a save; and what everybody has spent.
_SPENT, _RUN, _TOKEN, _EVERYBODY = b"k", b"r", b"t", b"e"


@dataclass
class _Save:
    """A save: its run and its place if it was recorded, and what became of it.

    ``only_named`` is one that only the resume before it has recorded.
    """

    run: str = ""
    place: int | None = None
    only_named: bool = False
    resumed: bool = False


class SavePoints:
    """The saves of all runs of a ledger, and what was recorded since; see there for the rules."""

    def __init__(self, rows: Rows, runs: Mapping[str, Run]) -> None:
        self._rows, self._runs = rows, runs

    def enter_save(
        self, run: str, token: str, sequence: int, where: str, *, only_named: bool = False
    ) -> None:
        """A line that records a save, or names with a resume the save that follows it."""
        save = self._find(token)
        if save.place is not None and not save.only_named:
            raise CorruptFile(f"{where} records a save that was recorded before")
        self._put(token, _Save(run, sequence, only_named, save.resumed))

    def enter_resume(self, token: str, where: str) -> None:
        """A line that records a resume."""
        save = self._find(token)
        if save.resumed:
            raise CorruptFile(f"{where} resumes a save that was resumed before")
        save.resumed = True
        self._put(token, save)

    def check_new(self, token: str) -> None:
        """Refuses a save under a token that was used before."""
        save = self._find(token)
        if save.resumed or (save.place is not None and not save.only_named):
            raise InvalidArgument(f"token={token!r} was used before; each save needs its own")

    def place(self, token: str, run: str, after: int | None) -> tuple[str, int | None]:
        """The run and the place of a save, as its file says if a crash kept it from the ledger.

        One that was resumed before is refused.
        """
        save = self._find(token)
        if save.resumed:
            raise DoubleSpend(f"save {token!r} was already resumed; a save is resumed once")
        return (run, after) if save.place is None else (save.run, save.place)

    def check_newest(self, token: str, run: str, moment: int, successor: str | None) -> None:
        """Refuses a save older than what its run has published, or a successor's used token."""
        if self._runs[run].published > moment:
            raise DoubleSpend(
                f"save {token!r} is older than what was published or resumed since; "
                "only the newest save can be resumed"
            )
        if successor is not None and (successor == token or self._find(successor) != _Save()):
            raise InvalidArgument(f"successor={successor!r} was used before")

    def _find(self, token: str) -> _Save:
        found = self._rows.get(_TOKEN + token.encode())
        return _Save() if found is None else _Save(*json.loads(found))

    def _put(self, token: str, save: _Save) -> None:
        row = [save.run, save.place, save.only_named, save.resumed]
        self._rows.put(_TOKEN + token.encode(), json.dumps(row).encode())


class Books:
    """Accounts, runs and saves: all that a ledger knows, as far as it was read.

    It is in ``rows``, but for the runs, which are few. ``sequence`` is the number of the last line.
    """

    def __init__(self, path: str, header: Header, rows: Rows, sequence: int = 0) -> None:
        self.header = header
        self.rows = rows
        self.sequence = sequence
        self.runs: dict[str, Run] = {}
        self._of_people = header.terms is not None
        self._path = path
        found = [(key[1:].decode(), json.loads(value)) for key, value in rows.scan(_RUN)]
        for name, (place, terms, *rest) in sorted(found, key=lambda row: row[1][0]):
            self.runs[name] = Run(place, None if terms is None else checked_terms(terms), *rest)
        if not self._of_people:
            self.runs.setdefault("", Run(0, None))
        self.people = People(header.limit, rows, self.runs)
        self.people.everybody = _fraction(rows.get(_EVERYBODY))
        self.saves = SavePoints(rows, self.runs)

    @property
    def accounts(self) -> Counter[float]:
        """How many have spent how much: people, or keys in a ledger of one run."""
        if self._of_people:
            return self.people.accounts
        return Counter(above(_fraction(spent)) for _, spent in self.rows.scan(_SPENT))

    def spent(self, key: str) -> Fraction:
        """What a key has spent, exactly."""
        return _fraction(self.rows.get(_SPENT + key.encode()))

    # A line comes in.

    def enter(self, record: dict[str, Any], where: str) -> None:
        """Enter a record whose hash is right; any exception means that it is malformed."""
        sequence, event, label = record["sequence"], record["event"], record["label"]
        costs = {key: number_of("cost", cost) for key, cost in record["costs"].items()}
        if sequence != self.sequence + 1 or event not in EVENTS or type(label) is not str:
            raise ValueError("malformed")
        run = record["run"] if self._of_people else ""
        if type(run) is not str or type(record.get("time", "")) is not str:
            raise ValueError("malformed")
        terms = checked_terms(record["terms"]) if "terms" in record else None
        if event == "repair":
            self._enter_repair(record, sequence)
        elif event == "start" and self._of_people:
            if run != label or terms is None:
                raise ValueError("malformed")
            self._enter_run(run, terms)
        elif run not in self.runs:
            raise CorruptFile(f"{where} belongs to a run that never started")
        elif self.runs[run].ended or self.runs[run].succeeded:
            raise CorruptFile(f"{where} belongs to a run that had ended")
        self._enter_costs(run, costs, where)
        if event == "join":
            self.people.enter(run, record["people"], where)
        elif event == "save":
            self.saves.enter_save(run, label, sequence, where)
        elif event == "resume":
            self.saves.enter_resume(label, where)
            if "successor" in record:
                named = text_of("successor", record["successor"])
                self.saves.enter_save(run, named, sequence, where, only_named=True)
        if event != "repair":
            self._enter_moment(run, event, sequence)
        self.sequence = sequence

    def _enter_run(self, run: str, terms: Terms) -> None:
        if run in self.runs:
            raise ValueError("malformed")
        self.runs[run] = Run(len(self.runs), terms)

    def _enter_moment(self, run: str, event: str, sequence: int) -> None:
        """What a line means for its run."""
        known = self.runs[run]
        before = (known.published, known.used)
        known.used = known.used or event != "start"
        if event not in _UNPUBLISHED:
            known.published = sequence
        known.succeeded = event == "succession"
        if event == "resume":
            known.resumed = sequence
        if before != (known.published, known.used):
            self._keep_run(run)

    def _enter_repair(self, record: dict[str, Any], sequence: int) -> None:
        """What lines had said that are lost, and what is charged for those that nobody can read."""
        for run, terms in record.get("runs", {}).items():
            self._enter_run(run, checked_terms(terms))
        for run, names in record.get("people", {}).items():
            self.people.enter_again(run, names)
        self.people.everybody += Fraction(number_of("everybody", record["everybody"]))
        self.rows.put(_EVERYBODY, _text(self.people.everybody))
        if type(record["ended"]) is not bool:
            raise ValueError("malformed")
        for run, known in self.runs.items():
            known.ended = known.ended or record["ended"]
            known.published = sequence if record["ended"] else known.published
            self._keep_run(run)

    def _keep_run(self, run: str) -> None:
        known = self.runs[run]
        terms = None if known.terms is None else asdict(known.terms)
        row = [known.place, terms, known.published, known.resumed, known.used, known.ended]
        row.append(known.succeeded)
        self.rows.put(_RUN + run.encode(), json.dumps(row).encode())

    def _enter_costs(self, run: str, costs: Mapping[str, float], where: str) -> None:
        for key, cost in costs.items():
            spent = self.spent(key) + Fraction(cost)
            if spent > self._key_limit(run) * (1 + TOLERANCE):
                raise CorruptFile(
                    f"{where} brings {key!r} to {above(spent)} {self.header.unit}, above its "
                    f"limit of {self._key_limit(run)}"
                )
            self.rows.put(_SPENT + key.encode(), _text(spent))

    # What may be recorded next.

    def check_started(self, run: str) -> None:
        """Refuses to go on without a run, in a ledger of people, or with one that has ended."""
        if run not in self.runs:
            raise InvalidArgument(f"{self._path!r} is of people: start or resume a run first")
        if self.runs[run].ended:
            raise DoubleSpend(
                f"{self._path!r} was repaired, and lines of it are lost: no run from before the "
                "repair can go on"
            )
        if self.runs[run].succeeded:
            raise DoubleSpend(
                f"this run has a successor, as {self._path!r} says: neither it nor any save of it "
                "can go on"
            )

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
        elif self.sequence:
            advice = "it has not spent or saved anything yet; if it crashed, delete the file"
            if self.runs[""].used or self.runs[""].ended:
                advice = (
                    "resume that run, or give users who never took part a new ledger; several runs "
                    "on the same people need a ledger of people (Ledger.create_for_people)"
                )
            raise DoubleSpend(f"{self._path!r} has the accounts of another run: {advice}")

    def check_resume(self, token: str, run: str, after: int | None, successor: str | None) -> str:
        """Refuses to resume a save that is not the newest of its run; returns the run."""
        run, moment = self.saves.place(token, run, after)
        if moment is None or moment > self.sequence or run not in self.runs:
            raise DoubleSpend(
                f"save {token!r} is unknown to this ledger; it belongs to another one, or "
                f"{self._path!r} is an older copy"
            )
        self.check_started(run)
        self.saves.check_newest(token, run, moment, successor)
        return run

    def _key_limit(self, run: str) -> float:
        """What a block of this run may spend."""
        terms = self.runs[run].terms if self._of_people and run in self.runs else None
        return self.header.limit if terms is None else terms.episode_limit

    def _check_terms(self, token: str, terms: Terms | None) -> None:
        mine = self.header.terms
        if terms is None or mine is None:
            raise InvalidArgument("a run on a ledger of people needs terms")
        if token in self.runs:
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
        if not self.people.can(0, terms.user_limit):
            raise BudgetExceeded(
                f"this run costs everybody {terms.user_limit:.6g} {terms.unit}, and "
                f"{self._path!r} allows {self.header.limit:.6g} over all runs"
            )


def _fraction(text: bytes | None) -> Fraction:
    return _NOTHING if text is None else Fraction(text.decode())


def _text(number: Fraction) -> bytes:
    return f"{number.numerator}/{number.denominator}".encode()
