"""The ledger as its users see it; what it guarantees is in :mod:`tacit.privacy.ledger`."""

import base64
import contextlib
import errno
import hashlib
import json
import os
import secrets
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tacit.privacy.arguments import file_name
from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.ledger.people import People
from tacit.privacy.ledger.records import (
    EVENTS,
    TOLERANCE,
    UNITS,
    Entry,
    Event,
    Terms,
    Unit,
    above,
    checked_terms,
    number_of,
    text_of,
)
from tacit.privacy.models import JointDP
from tacit.privacy.pseudonyms import NAME_BYTES, name_of
from tacit.privacy.statistic import WHOLE_EPISODE
from tacit.privacy.storage import write_atomic

try:
    import fcntl
except ImportError:  # not POSIX; every operation then says so
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 1
"""Of a ledger of one run."""
PEOPLE_VERSION = 2
"""Of a ledger of people."""

_FORMAT = "tacit-ledger"
# What publishes nothing: a save that was written before may still be resumed.
_UNPUBLISHED = ("join", "pending")
_NOTHING = Fraction(0)


class Ledger:
    """The record of one budget. Make it with ``create``, ``open`` or ``open_or_create``.

    The properties and ``spent`` tell what this object last read: when it was opened, or at its
    last charge, save or resume. Decisions are always made on what the file says at that moment.
    No file stays open between operations.

    Agents and curators take the path of a ledger or an opened one. A path that is wrong makes a
    new ledger, of one run; an opened one is there, so nothing is ever made in its place.

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
        self._path = os.fspath(file_name("path", path))
        self._header: dict[str, Any] = {}
        self._entries: list[Entry] = []
        self._spent: dict[str, Fraction] = {}
        self._run = ""  # which run this object speaks for; always "" in a ledger of one run
        self._people = People(limit=0.0)  # of a ledger of people, once its header is read
        self._saves: dict[str, tuple[str, int]] = {}  # token -> its run and its place
        self._successors: set[str] = set()  # saves that only the resume before them recorded
        self._resumed: set[str] = set()
        self._published: dict[str, int] = {}  # run -> its last entry that may be seen outside
        self._ended: int | None = None  # where this run ended, because another process resumed it
        self._end = 0  # the length of the lines read so far
        self._last = b""  # the last of them
        self._hash = ""  # and its hash
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
        limit = number_of("limit", limit)
        if limit == 0:
            raise InvalidArgument("limit=0.0 must be positive")
        if not isinstance(unit, str) or unit not in UNITS:
            raise InvalidArgument(f"unit={unit!r} must be one of {UNITS}")
        return cls._create(path, FORMAT_VERSION, limit, unit, note)

    @classmethod
    def create_for_people(
        cls,
        path: str | os.PathLike[str],
        privacy: JointDP,
        *,
        protects: str = WHOLE_EPISODE,
        note: str = "",
    ) -> "Ledger":
        """Create a ledger for several runs on one population; the file gets mode 0600.

        Args:
            path: Where to create it.
            privacy: What one person may spend over all runs. Each run has its own, which is what
                everybody pays who takes part in it.
            protects: What is protected; see :attr:`tacit.Statistic.protects`.
            note: A line of text for whoever reads the file.

        Raises:
            InvalidArgument: The model or the note is not allowed.
            FileExistsError: There is a file; no ledger is ever overwritten.
        """
        if not isinstance(privacy, JointDP):
            raise InvalidArgument(f"privacy must be a JointDP, got {privacy!r}")
        if privacy.episodes_per_user != 1:
            raise InvalidArgument(
                f"episodes_per_user={privacy.episodes_per_user} is for each run to say; a "
                "population's budget is one person's"
            )
        terms = Terms.of(privacy, text_of("protects", protects))
        people = {"key": secrets.token_hex(16), "terms": asdict(terms)}
        return cls._create(path, PEOPLE_VERSION, terms.user_limit, terms.unit, note, people=people)

    @classmethod
    def _create(
        cls,
        path: str | os.PathLike[str],
        version: int,
        limit: float,
        unit: Unit,
        note: str,
        **more: Any,
    ) -> "Ledger":
        header = {
            "format": _FORMAT,
            "version": version,
            "id": secrets.token_hex(16),
            "limit": limit,
            "unit": unit,
            "note": note if note == "" else text_of("note", note),
        }
        write_atomic(
            file_name("path", path), _seal(header | more, previous=""), 0o600, replace=False
        )
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
        if ledger.people:
            raise InvalidArgument(f"{ledger._path!r} is a ledger of people, not of one run")
        ledger._check_declared(limit, unit)
        return ledger

    def _check_declared(self, limit: float, unit: Unit) -> None:
        if (self.limit, self.unit) != (limit, unit):
            raise InvalidArgument(
                f"limit={limit!r} {unit} was declared, but {self._path!r} has "
                f"limit={self.limit!r} {self.unit}"
            )

    @classmethod
    def open_for(cls, path: "str | os.PathLike[str] | Ledger", terms: Terms) -> "Ledger":
        """The ledger for a run with these terms: one of people if it is there, else one of its own.

        Args:
            path: Where it is; without a file there, one of one run is made. Or an opened ledger,
                which must still be there: then nothing is made. It is opened anew, as an object
                speaks for one run.
            terms: Of the run.

        Raises:
            InvalidArgument: The file is of one run and declares another limit or unit.
            CorruptFile: The file is foreign, newer than this release, or was altered; or it is
                not the ledger that was opened.
            FileNotFoundError: The ledger that was opened is gone.
        """
        if isinstance(path, Ledger):
            ledger = cls.open_again(path)
            if not ledger.people:
                ledger._check_declared(terms.episode_limit, terms.unit)
            return ledger
        with contextlib.suppress(FileNotFoundError):
            ledger = cls(path)
            if ledger.people:
                return ledger
        return cls.open_or_create(path, terms.episode_limit, unit=terms.unit)

    @classmethod
    def open_again(cls, ledger: "str | os.PathLike[str] | Ledger") -> "Ledger":
        """Another object for the same ledger, which must be there; by its path, or by one object.

        Raises:
            CorruptFile: Another ledger took its place; or as for :meth:`open`.
            FileNotFoundError: There is no file.
        """
        found = cls.open(ledger)
        if isinstance(ledger, Ledger) and found.id != ledger.id:
            raise CorruptFile(f"{ledger._path!r}: another ledger took its place meanwhile")
        return found

    def __fspath__(self) -> str:
        """Where it is; so an opened ledger can stand wherever a path can."""
        return self._path

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
    def people(self) -> bool:
        """Whether it is a ledger of people, which may have several runs."""
        return "people" in self._header

    @property
    def terms(self) -> Terms | None:
        """What a ledger of people promises each person over all runs."""
        return Terms(**self._header["people"]["terms"]) if self.people else None

    @property
    def run(self) -> str:
        """Which run this object speaks for, for a saved state; empty in a ledger of one run."""
        return self._run

    @property
    def runs(self) -> Mapping[str, Terms]:
        """The runs of a ledger of people, oldest first, by the token of their start."""
        return MappingProxyType(self._people.runs)

    @property
    def accounts(self) -> Counter[float]:
        """How many have spent how much: people, or keys in a ledger of one run."""
        if not self.people:
            return Counter(map(above, self._spent.values()))
        return self._people.accounts

    @property
    def key(self) -> bytes:
        """The key of the hashes that stand for people; see :func:`name_of`."""
        return bytes.fromhex(self._header["people"]["key"]) if self.people else b""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def max_spent(self) -> float:
        """What the person (in a ledger of one run: the key) who spent most has spent."""
        return max(self.accounts, default=0.0)

    def spent(self, key: str) -> float:
        """What ``key`` has spent, rounded up; 0 for a key that was never charged."""
        return above(self.spent_exactly(key))

    def spent_exactly(self, key: str) -> Fraction:
        """What ``key`` has spent."""
        return self._spent.get(key, _NOTHING)

    def remaining(self, key: str) -> float:
        """What ``key`` may still spend."""
        return max(0.0, self.limit - self.spent(key))

    def spent_by(self, user: int | str) -> float:
        """What a person has spent over all runs, in a ledger of people; 0 if she never joined."""
        if not self.people:
            raise InvalidArgument("a ledger of one run knows blocks, not people")
        return self._people.spent(name_of(user, self.key))

    def join(self, people: Sequence[bytes]) -> list[bool]:
        """Charge people the whole budget of this run, each once; who cannot pay is not admitted.

        Args:
            people: Their names, by :func:`name_of` with this ledger's ``key``. Who joined this
                run before is admitted and pays nothing more.

        Returns:
            Who is admitted. When this returns, it is on disk.

        Raises:
            DoubleSpend: Another process resumed a save of this run, so this one has ended.
            InvalidArgument: It is a ledger of one run, no run has started, or a name is none.
        """
        if any(type(name) is not bytes or len(name) != NAME_BYTES for name in people):
            raise InvalidArgument(f"people must be names of {NAME_BYTES} bytes each")
        with self._locked() as descriptor:
            self._refuse_if_ended()
            if not self.people:
                raise InvalidArgument("a ledger of one run knows blocks, not people")
            # Sorted, so that the file does not say in which order they came.
            able = self._people.able(people, self._run)
            if able:
                text = base64.b64encode(b"".join(able)).decode()
                self._append(descriptor, "join", self._run, {}, people=text)
            return self._people.who_joined(people, self._run)

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
        label = text_of("label", label)
        costs = {text_of("key", key): number_of(f"costs[{key!r}]", costs[key]) for key in costs}
        with self._locked() as descriptor:
            self._refuse_if_ended()
            limit = self._key_limit(self._run)
            for key, cost in costs.items():
                if self._after(key, cost) > limit * (1 + TOLERANCE):
                    raise BudgetExceeded(
                        f"{key!r} has spent {self.spent(key)} of {limit} {self.unit}; "
                        f"{cost} is too much"
                    )
            self._append(descriptor, "pending" if pending else "charge", label, costs)
            return self.sequence

    def record_start(self, token: str, terms: Terms | None = None) -> None:
        """Record that a run begins; a ledger has one, unless it is a ledger of people.

        Args:
            token: A name for the run that no other has.
            terms: What it promises; a ledger of people needs them.

        Raises:
            DoubleSpend: The ledger has entries already: another run's, which its users paid for.
            BudgetExceeded: The run costs a person more than the population's whole budget.
            InvalidArgument: The run protects something else than the population was promised.
        """
        token = text_of("token", token)
        with self._locked() as descriptor:
            if self.people:
                self._check_terms(token, terms)
            elif self._entries:
                idle = all(entry.event == "start" for entry in self._entries)
                raise DoubleSpend(
                    f"{self._path!r} has the accounts of another run: "
                    + (
                        "it has not spent or saved anything yet; if it crashed, delete the file"
                        if idle
                        else "resume that run, or give users who never took part a new ledger; "
                        "several runs on the same people need a ledger of people "
                        "(Ledger.create_for_people)"
                    )
                )
            more = {} if terms is None else {"terms": asdict(terms)}
            run, self._run = self._run, token if self.people else ""
            try:
                self._append(descriptor, "start", token, {}, **more)
            except BaseException:
                self._run = run
                raise
            self._ended = None  # this object now speaks for the run

    def _check_terms(self, token: str, terms: Terms | None) -> None:
        mine = self.terms
        if terms is None or mine is None:
            raise InvalidArgument("a run on a ledger of people needs terms")
        if token in self._people.runs:
            raise InvalidArgument(f"token={token!r} was used before; each run needs its own")
        # A Gaussian mechanism of mu has rho = mu^2 / 2; nothing is known in the other direction.
        units = {mine.unit, "mu^2"} if mine.unit == "2 rho" else {mine.unit}
        if terms.unit not in units:
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
        if not self._people.can_ever_pay(terms.user_limit):
            raise BudgetExceeded(
                f"this run costs everybody {terms.user_limit:.6g} {terms.unit}, and "
                f"{self._path!r} allows {self.limit:.6g} over all runs"
            )

    def record_save(self, token: str, write: Callable[[int], None] | None = None) -> None:
        """Record that the state file with this token is on disk, whole.

        It settles the pending charges: their results may be published. From now on this is the
        only save that can be resumed.

        Args:
            token: The token in the state file.
            write: Writes the state file, with the sequence number it is given. It is called if
                the save is allowed, before that is recorded, and under the ledger's lock: so a
                run that another process took over never overwrites the state of that process.

        Raises:
            InvalidArgument: The token was recorded or resumed before, or is no line of text.
            DoubleSpend: Another process resumed a save of this run, so this one has ended.
        """
        token = text_of("token", token)
        with self._locked() as descriptor:
            self._refuse_if_ended()
            known = token in self._saves and token not in self._successors
            if known or token in self._resumed:
                raise InvalidArgument(f"token={token!r} was used before; each save needs its own")
            if write is not None:
                write(len(self._entries))
            self._append(descriptor, "save", token, {})

    def record_resume(
        self,
        token: str,
        after: int | None = None,
        *,
        run: str = "",
        successor: str | None = None,
        write: Callable[[int], None] | None = None,
    ) -> None:
        """Record that the run goes on from the save with this token; only then use its state.

        Args:
            token: The token in the state file.
            after: ``sequence`` of the ledger when the state file was written, from that file. It
                is used only if the save itself was not recorded, because of a crash.
            run: ``run`` of the ledger at that moment, from that file.
            successor: The token of the next save, which is recorded in the same line. So there is
                no moment at which a crash would leave nothing to resume.
            write: Writes the state file of the successor, with the sequence number it is given.
                It is called if the resume is allowed, before that is recorded, and under the
                ledger's lock: so a refused resume never overwrites the state of a run that goes on.

        Raises:
            DoubleSpend: The save was resumed before, or is older than what was recorded since,
                or is unknown to this ledger. Nothing was recorded.
            InvalidArgument: An argument is not allowed.
        """
        token = text_of("token", token)
        if after is not None and (type(after) is not int or after < 0):
            raise InvalidArgument(f"after={after!r} must be an integer of at least 0")
        if successor is not None:
            successor = text_of("successor", successor)
        with self._locked() as descriptor:
            if token in self._resumed:
                raise DoubleSpend(f"save {token!r} was already resumed; a save is resumed once")
            run, moment = self._saves.get(token, (run, after))
            if moment is None or moment > len(self._entries) or not self._knows(run):
                raise DoubleSpend(
                    f"save {token!r} is unknown to this ledger; it belongs to another one, or "
                    f"{self._path!r} is an older copy"
                )
            if self._published.get(run, 0) > moment:
                raise DoubleSpend(
                    f"save {token!r} is older than what was published or resumed since; "
                    "only the newest save can be resumed"
                )
            if successor is not None and (
                successor == token or successor in self._saves or successor in self._resumed
            ):
                raise InvalidArgument(f"successor={successor!r} was used before")
            if write is not None:
                write(len(self._entries))
            more = {} if successor is None else {"successor": successor}
            before, self._run = self._run, run
            try:
                self._append(descriptor, "resume", token, {}, **more)
            except BaseException:
                self._run = before
                raise
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
                # Whoever waited for the lock may hold that of a file which is no longer there.
                if not os.path.samestat(os.fstat(descriptor), os.stat(self._path)):
                    raise CorruptFile(f"{self._path!r}: another file took its place meanwhile")
                self._catch_up(descriptor, append)
                yield descriptor
            finally:
                # Closing alone would not unlock if another thread has forked meanwhile.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _catch_up(self, descriptor: int, append: bool) -> None:
        """Read what was appended since this object last read, and drop a torn last line."""
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise CorruptFile(f"{self._path!r}: not a file, so not a Tacit ledger")
        if found.st_size < self._end:
            raise CorruptFile(f"{self._path!r}: shorter than when it was last read")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(self._end - len(self._last))
            # By the chain of hashes it stands for all lines before it.
            if file.read(len(self._last)) != self._last:
                raise CorruptFile(f"{self._path!r}: not the file that was last read")
            *lines, torn = file.read().split(b"\n")
        known = len(self._entries)
        for line in lines:
            self._absorb(line + b"\n")
        if not self._header:
            raise CorruptFile(f"{self._path!r}: not a Tacit ledger")
        resumes = [
            entry.sequence
            for entry in self._entries[known:]
            if entry.event == "resume" and entry.run == self._run
        ]
        if resumes and self._ended is None:
            self._ended = resumes[0] - 1
        # The writer of a torn line crashed before its append returned, as we hold the lock; so
        # nothing was published on the strength of that line.
        if torn and append:
            os.ftruncate(descriptor, self._end)

    def _append(
        self, descriptor: int, event: Event, label: str, costs: Mapping[str, float], **more: Any
    ) -> None:
        record = {
            "sequence": len(self._entries) + 1,
            "event": event,
            "label": label,
            "costs": dict(costs),
            "time": _now(),
        }
        if self.people:
            record["run"] = self._run
        line = _seal(record | more, self._hash)
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
                self._book(record, where)
            else:
                self._header = _checked_header(record)
                self._people = People(self.limit)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise CorruptFile(f"{where} cannot be read by this release") from error
        self._hash, self._last = digest, line
        self._end += len(line)

    def _book(self, record: dict[str, Any], where: str) -> None:
        """Enter a record whose hash is right; any exception means that it is malformed."""
        sequence, event, label = record["sequence"], record["event"], record["label"]
        costs = {key: number_of("cost", cost) for key, cost in record["costs"].items()}
        if sequence != len(self._entries) + 1 or event not in EVENTS or type(label) is not str:
            raise ValueError("malformed")
        run = record["run"] if self.people else ""
        time = record.get("time", "")
        if type(run) is not str or type(time) is not str:
            raise ValueError("malformed")
        terms = checked_terms(record["terms"]) if "terms" in record else None
        if event == "start" and self.people:
            if run in self._people.runs or run != label or terms is None:
                raise ValueError("malformed")
            self._people.runs[run] = terms
        elif not self._knows(run):
            raise CorruptFile(f"{where} belongs to a run that never started")
        self._enter_costs(run, costs, where)
        people = self._people.enter(run, record["people"], where) if event == "join" else 0
        successor = ""
        if event == "save":
            self._enter_save(run, label, sequence, where)
        elif event == "resume":
            if label in self._resumed:
                raise CorruptFile(f"{where} resumes a save that was resumed before")
            self._resumed.add(label)
            if "successor" in record:
                successor = text_of("successor", record["successor"])
                self._enter_save(run, successor, sequence, where)
                self._successors.add(successor)
        if event not in _UNPUBLISHED:
            self._published[run] = sequence
        books = MappingProxyType(costs)
        self._entries.append(
            Entry(sequence, event, label, books, run, time, people, terms, successor)
        )

    def _enter_costs(self, run: str, costs: Mapping[str, float], where: str) -> None:
        for key, cost in costs.items():
            spent = self._after(key, cost)
            if spent > self._key_limit(run) * (1 + TOLERANCE):
                raise CorruptFile(
                    f"{where} brings {key!r} to {above(spent)} {self.unit}, above its limit of "
                    f"{self._key_limit(run)}"
                )
            self._spent[key] = spent

    def _after(self, key: str, cost: float) -> Fraction:
        """What a key will have spent, exactly."""
        return self.spent_exactly(key) + Fraction(cost)

    def _enter_save(self, run: str, token: str, sequence: int, where: str) -> None:
        if token in self._saves and token not in self._successors:
            raise CorruptFile(f"{where} records a save that was recorded before")
        self._successors.discard(token)
        self._saves[token] = (run, sequence)

    # People and runs.

    def _knows(self, run: str) -> bool:
        return run in self._people.runs if self.people else run == ""

    def _key_limit(self, run: str) -> float:
        """What a block of this run may spend."""
        if not self.people:
            return self.limit
        self._check_started(run)
        return self._people.runs[run].episode_limit

    def _check_started(self, run: str) -> None:
        if run not in self._people.runs:
            raise InvalidArgument(f"{self._path!r} is of people: start or resume a run first")

    def _refuse_if_ended(self) -> None:
        if self.people:
            self._check_started(self._run)
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


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _checked_header(record: dict[str, Any]) -> dict[str, Any]:
    if record["format"] != _FORMAT:
        raise ValueError("another format")
    if record["version"] not in (FORMAT_VERSION, PEOPLE_VERSION):
        raise ValueError("another version")
    if record["unit"] not in UNITS or not number_of("limit", record["limit"]) > 0:
        raise ValueError("malformed")
    text_of("id", record["id"])
    record["note"].encode()
    if (record["version"] == PEOPLE_VERSION) != ("people" in record):
        raise ValueError("malformed")
    if "people" in record:
        terms = checked_terms(record["people"]["terms"])
        key = bytes.fromhex(record["people"]["key"])
        if len(key) < 16 or (terms.user_limit, terms.unit) != (record["limit"], record["unit"]):
            raise ValueError("malformed")
    return record
