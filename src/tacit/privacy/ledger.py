"""What was spent, on disk, before it is published.

A ledger is an append-only text file, one JSON object per line. Its first line declares a limit;
every later line is a start, a charge, a save or a resume, numbered from 1. Costs are charged to
*keys*: a key is a block of users, a user is in one block, so what a user has spent is what her key
has.

**Guarantees.** No key is ever charged more than the limit (up to a relative 1e-9, for rounding),
whichever processes use the ledger and wherever they crash: a charge is on disk before
:meth:`Ledger.charge` returns, and it is decided under a lock, on what the file says then.
Each line is chained to the one before by SHA-256, so an edited, deleted or reordered line is
detected. A saved state continues once: a second continuation would put the same noise on two data
sets, and their difference is noise-free.

**Not guaranteed.** The chain detects accidents, not a forger who recomputes it. Lines cut off
the end leave a valid, older ledger; this is noticed only by a saved state that is ahead of it.
Whoever copies the ledger together with a state has made a fork that neither copy can see. The
ledger speaks of one run: several processes may charge it, but only one run saves and resumes.

**The order of a release** in a run that can be resumed:

1. ``charge(costs, label, pending=True)``: the cost is on disk, the result is not;
2. write the state file, which holds the noisy result, a fresh random token, and the ledger's
   ``id`` and ``sequence`` at that moment;
3. ``record_save(token)``: the result is settled, and earlier saves are void;
4. publish.

**A save can be resumed** if it was not resumed before, and if everything recorded since it was
written is pending charges, which by this order were never published. A save that step 3 did not
reach is placed by the sequence number that its file holds (``after=``). What a crash leaves:

=====================  ===========================================================================
crash                  what is safe, what is lost
=====================  ===========================================================================
before 1               Nothing was spent. The last save is resumed; lost is only what was learned
                       since it was written.
between 1 and 2        The last save is resumed. The charge stays, though nothing was published
                       for it: a key that was charged its whole limit cannot be released again.
between 2 and 3        The new state is resumed, with ``after``. Nothing is lost; it publishes.
between 3 and 4        The new state is resumed. Nothing is lost; it publishes.
after 4                The new state is resumed. Publishing the same result again costs nothing.
during 1 or 3          The line is whole and counts, or is torn and is dropped: as after or before.
during 2               The state file is the old or the new one, whole: as before or after.
after a resume         Until the next state is written, the token is used up and the run is lost:
                       write a state (steps 2 and 3) at once after a resume.
=====================  ===========================================================================

A process that did not crash, but whose save another one resumed, can record nothing more: its
next charge or save is refused, so it has nothing that it may publish.

Ledgers need POSIX file locks, on a file system that honours them.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.storage import write_atomic

try:
    import fcntl
except ImportError:  # not POSIX; every operation then says so
    fcntl = None  # type: ignore[assignment]

Unit: TypeAlias = Literal["mu^2", "epsilon"]
"""What is counted: squared Gaussian-DP parameters, or epsilons of pure DP. Both add."""

Event: TypeAlias = Literal["start", "charge", "pending", "save", "resume"]
"""What a line records; ``pending`` is a charge whose result was not yet on disk."""

FORMAT_VERSION = 1

_FORMAT = "tacit-ledger"
_UNITS = ("mu^2", "epsilon")
_EVENTS = ("start", "charge", "pending", "save", "resume")
# A budget divided into n parts must be spendable in n parts, in spite of rounding.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Attributes:
        sequence: Its number, from 1.
        event: What it records.
        label: The label of a charge, the token of a start, a save or a resume.
        costs: The cost per key; empty unless it is a charge.
    """

    sequence: int
    event: Event
    label: str
    costs: Mapping[str, float]


class Ledger:
    """The record of one budget. Make it with ``create``, ``open`` or ``open_or_create``.

    The properties and ``spent`` tell what this object last read: when it was opened, or at its
    last charge, save or resume. Decisions are always made on what the file says at that moment.
    No file stays open between operations.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "budget.ledger")
    >>> ledger = Ledger.create(path, limit=1.0, unit="mu^2")
    >>> ledger.charge({"block 0": 0.75}, label="release 0")
    1
    >>> ledger.charge({"block 0": 0.5}, label="release 1")
    Traceback (most recent call last):
    tacit.privacy.errors.BudgetExceeded: 'block 0' has spent 0.75 of 1.0 mu^2; 0.5 is too much
    >>> Ledger.open(path).remaining("block 0")
    0.25
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._header: dict[str, Any] = {}
        self._entries: list[Entry] = []
        self._spent: dict[str, float] = {}
        self._saves: dict[str, int] = {}
        self._resumed: set[str] = set()
        self._ended: int | None = None  # where this run ended, because another process resumed it
        self._end = 0  # the length of the lines read so far
        self._hash = ""  # the hash of the last of them
        with self._locked(append=False):
            pass
        self._ended = None  # resumes of the past are not the end of this object's run

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], limit: float, *, unit: Unit, note: str = ""
    ) -> "Ledger":
        """Create a ledger; the file gets mode 0600.

        Args:
            path: Where to create it.
            limit: What each key may spend, finite and positive.
            unit: What is counted.
            note: A line of text for whoever reads the file.

        Raises:
            InvalidArgument: The limit, the unit or the note is not allowed.
            FileExistsError: There is a file; no ledger is ever overwritten.
        """
        limit = _number("limit", limit)
        if limit == 0:
            raise InvalidArgument("limit=0.0 must be positive")
        if unit not in _UNITS:
            raise InvalidArgument(f"unit={unit!r} must be one of {_UNITS}")
        header = {
            "format": _FORMAT,
            "version": FORMAT_VERSION,
            "id": secrets.token_hex(16),
            "limit": limit,
            "unit": unit,
            "note": note if note == "" else _text("note", note),
        }
        write_atomic(path, _seal(header, previous=""), 0o600, replace=False)
        return cls(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Ledger":
        """Open an existing ledger and check every line of it.

        Raises:
            CorruptFile: The file is foreign, newer than this release, or was altered.
            FileNotFoundError: There is no file.
        """
        return cls(path)

    @classmethod
    def open_or_create(
        cls, path: str | os.PathLike[str], limit: float, *, unit: Unit, note: str = ""
    ) -> "Ledger":
        """Open the ledger if it exists, else create it; either way it has this limit and unit.

        Raises:
            InvalidArgument: The file declares another limit or unit; nothing was changed.
            CorruptFile: The file is foreign, newer than this release, or was altered.
        """
        try:
            ledger = cls(path)
        except FileNotFoundError:
            try:
                return cls.create(path, limit, unit=unit, note=note)
            except FileExistsError:  # another process was faster
                ledger = cls(path)
        if (ledger.limit, ledger.unit) != (limit, unit):
            raise InvalidArgument(
                f"limit={limit!r} {unit} was declared, but {ledger._path!r} has "
                f"limit={ledger.limit!r} {ledger.unit}"
            )
        return ledger

    @property
    def id(self) -> str:
        """The random name of this ledger; a saved state keeps it, to know its ledger again."""
        return str(self._header["id"])

    @property
    def limit(self) -> float:
        """What each key may spend."""
        return float(self._header["limit"])

    @property
    def unit(self) -> Unit:
        """What is counted."""
        unit: Unit = self._header["unit"]
        return unit

    @property
    def note(self) -> str:
        """The text that was given when the ledger was created."""
        return str(self._header["note"])

    @property
    def sequence(self) -> int:
        """The number of the last entry, 0 if there is none; a saved state keeps it.

        If another process resumed a save of this run, it stays at the entry before that resume,
        so that no state which this run still writes can pass for the continuation.
        """
        return len(self._entries) if self._ended is None else self._ended

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def max_spent(self) -> float:
        """What the key that spent most has spent."""
        return max(self._spent.values(), default=0.0)

    def spent(self, key: str) -> float:
        """What ``key`` has spent; 0 for a key that was never charged."""
        return self._spent.get(key, 0.0)

    def remaining(self, key: str) -> float:
        """What ``key`` may still spend."""
        return max(0.0, self.limit - self.spent(key))

    def charge(self, costs: Mapping[str, float], label: str, *, pending: bool = False) -> int:
        """Charge every key its cost, or refuse and charge none.

        When this returns, the charge is on disk, and what it paid for may be published (with
        ``pending``: once the save that holds it is recorded).

        Args:
            costs: The cost per key, finite and at least 0.
            label: What is paid for, a line of text.
            pending: The result is not on disk yet; :meth:`record_save` will settle it.

        Returns:
            The sequence number of the charge.

        Raises:
            BudgetExceeded: A key would have spent more than the limit. Nothing was charged.
            DoubleSpend: Another process resumed a save of this run, so this one has ended.
            InvalidArgument: A cost, a key or the label is not allowed.
        """
        label = _text("label", label)
        costs = {_text("key", key): _number(f"costs[{key!r}]", costs[key]) for key in costs}
        with self._locked() as descriptor:
            self._refuse_if_ended()
            for key, cost in costs.items():
                if self.spent(key) + cost > self.limit * (1 + _TOLERANCE):
                    raise BudgetExceeded(
                        f"{key!r} has spent {self.spent(key)} of {self.limit} {self.unit}; "
                        f"{cost} is too much"
                    )
            self._append(descriptor, "pending" if pending else "charge", label, costs)
            return self.sequence

    def record_start(self, token: str) -> None:
        """Record that a run begins; a ledger has one.

        Raises:
            DoubleSpend: The ledger has entries already: another run's, which its users paid for.
        """
        token = _text("token", token)
        with self._locked() as descriptor:
            if self._entries:
                raise DoubleSpend(
                    f"{self._path!r} has the accounts of another run: resume that run, or give "
                    "users who never took part a new ledger"
                )
            self._append(descriptor, "start", token, {})

    def record_save(self, token: str) -> None:
        """Record that the state file with this token is on disk, whole.

        It settles the pending charges: their results may be published. From now on this is the
        only save that can be resumed.

        Raises:
            InvalidArgument: The token was recorded or resumed before, or is no line of text.
            DoubleSpend: Another process resumed a save of this run, so this one has ended.
        """
        token = _text("token", token)
        with self._locked() as descriptor:
            self._refuse_if_ended()
            if token in self._saves or token in self._resumed:
                raise InvalidArgument(f"token={token!r} was used before; each save needs its own")
            self._append(descriptor, "save", token, {})

    def record_resume(self, token: str, after: int | None = None) -> None:
        """Record that the run goes on from the save with this token; only then use its state.

        Args:
            token: The token in the state file.
            after: ``sequence`` of the ledger when the state file was written, from that file. It
                is used only if the save itself was not recorded, because of a crash.

        Raises:
            DoubleSpend: The save was resumed before, or is older than what was recorded since,
                or is unknown to this ledger. Nothing was recorded.
            InvalidArgument: An argument is not allowed.
        """
        token = _text("token", token)
        if after is not None and (type(after) is not int or after < 0):
            raise InvalidArgument(f"after={after!r} must be an integer of at least 0")
        with self._locked() as descriptor:
            if token in self._resumed:
                raise DoubleSpend(f"save {token!r} was already resumed; a save is resumed once")
            moment = self._saves.get(token, after)
            if moment is None or moment > len(self._entries):
                raise DoubleSpend(
                    f"save {token!r} is unknown to this ledger; it belongs to another one, or "
                    f"{self._path!r} is an older copy"
                )
            # Entry n is at index n - 1, so these are the entries after the moment.
            if any(entry.event != "pending" for entry in self._entries[moment:]):
                raise DoubleSpend(
                    f"save {token!r} is older than what was published or resumed since; "
                    "only the newest save can be resumed"
                )
            self._append(descriptor, "resume", token, {})
            self._ended = None  # this object now speaks for the run

    def __repr__(self) -> str:
        return (
            f"Ledger({self._path!r}, limit={self.limit}, unit={self.unit!r}, "
            f"sequence={self.sequence}, max_spent={self.max_spent})"
        )

    @contextlib.contextmanager
    def _locked(self, *, append: bool = True) -> Iterator[int]:
        """Hold the file's lock, with everything read that other processes appended."""
        if fcntl is None:
            raise OSError(errno.ENOTSUP, "a ledger needs POSIX file locks (fcntl.flock)")
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND if append else os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if append else fcntl.LOCK_SH)
            try:
                self._catch_up(descriptor, append)
                yield descriptor
            finally:
                # Closing alone would not unlock if another thread has forked meanwhile.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _catch_up(self, descriptor: int, append: bool) -> None:
        """Read what was appended since this object last read, and drop a torn last line."""
        if os.fstat(descriptor).st_size < self._end:
            raise CorruptFile(f"{self._path!r}: shorter than when it was last read")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(self._end)
            *lines, torn = file.read().split(b"\n")
        known = len(self._entries)
        for line in lines:
            self._absorb(line + b"\n")
        if not self._header:
            raise CorruptFile(f"{self._path!r}: not a Tacit ledger")
        resumes = [entry.sequence for entry in self._entries[known:] if entry.event == "resume"]
        if resumes and self._ended is None:
            self._ended = resumes[0] - 1
        # The writer of a torn line crashed before its append returned, as we hold the lock; so
        # nothing was published on the strength of that line.
        if torn and append:
            os.ftruncate(descriptor, self._end)

    def _append(
        self, descriptor: int, event: Event, label: str, costs: Mapping[str, float]
    ) -> None:
        record = {
            "sequence": len(self._entries) + 1,
            "event": event,
            "label": label,
            "costs": dict(costs),
        }
        line = _seal(record, self._hash)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, "a line was written in part", self._path)
            os.fsync(descriptor)
        except OSError:
            # The caller is told that nothing was recorded; if this fails too, it may be recorded
            # after all, which charges too much and never too little.
            os.ftruncate(descriptor, self._end)
            raise
        self._absorb(line)

    def _absorb(self, line: bytes) -> None:
        """Check one line against the chain and take it into the books."""
        where = f"{self._path!r}: line {len(self._entries) + 1 + bool(self._header)}"
        try:
            record = json.loads(line)
            digest = record.pop("hash")
            # Compared as bytes, so that not even white space can be edited.
            intact = _seal(record, self._hash) == line
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise CorruptFile(f"{where} is not a line of a Tacit ledger") from error
        if not intact:
            raise CorruptFile(f"{where} was altered, or a line before it was removed or moved")
        try:
            if self._header:
                self._book(record)
            else:
                self._header = _checked_header(record)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise CorruptFile(f"{where} cannot be read by this release") from error
        self._hash = digest
        self._end += len(line)

    def _book(self, record: dict[str, Any]) -> None:
        """Enter a record whose hash is right; any exception means that it is malformed."""
        sequence, event, label = record["sequence"], record["event"], record["label"]
        costs = {key: _number("cost", cost) for key, cost in record["costs"].items()}
        if sequence != len(self._entries) + 1 or event not in _EVENTS or type(label) is not str:
            raise ValueError("malformed")
        self._entries.append(Entry(sequence, event, label, MappingProxyType(costs)))
        for key, cost in costs.items():
            self._spent[key] = self.spent(key) + cost
        if event == "save":
            self._saves[label] = sequence
        elif event == "resume":
            self._resumed.add(label)

    def _refuse_if_ended(self) -> None:
        if self._ended is not None:
            raise DoubleSpend(
                f"another process resumed a save of this run from {self._path!r}; "
                "only that process can go on"
            )


def _seal(record: Mapping[str, Any], previous: str) -> bytes:
    """The line for a record: its JSON, with a hash over the previous hash and that JSON."""
    body = json.dumps(record, sort_keys=True, allow_nan=False)
    digest = hashlib.sha256((previous + body).encode()).hexdigest()
    return json.dumps({**record, "hash": digest}, sort_keys=True).encode() + b"\n"


def _checked_header(record: dict[str, Any]) -> dict[str, Any]:
    if (record["format"], record["version"]) != (_FORMAT, FORMAT_VERSION):
        raise ValueError("another format or version")
    if record["unit"] not in _UNITS or not _number("limit", record["limit"]) > 0:
        raise ValueError("malformed")
    _text("id", record["id"])
    record["note"].encode()
    return record


def _number(name: str, value: float) -> float:
    """A finite number that is at least 0, or an InvalidArgument that names it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not (math.isfinite(number) and number >= 0):
        raise InvalidArgument(f"{name}={value!r} must be a finite number of at least 0")
    return number


def _text(name: str, value: str) -> str:
    """One line of printable text, or an InvalidArgument that names it."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidArgument(f"{name}={value!r} must be a line of printable text")
    return value
