"""The ledger as its users see it; what it guarantees is in :mod:`tacit.privacy.ledger`."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction

from tacit.privacy.arguments import FilePath, file_name
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.ledger.books import Books
from tacit.privacy.ledger.header import write_header, write_people_header
from tacit.privacy.ledger.journal import Journal
from tacit.privacy.ledger.locks import checked_timeout
from tacit.privacy.ledger.people import text_of_names
from tacit.privacy.ledger.records import Entry, Terms, Unit, above, checked_hash, number_of, text_of
from tacit.privacy.models import JointDP
from tacit.privacy.pseudonyms import NAME_BYTES, name_of
from tacit.privacy.statistic import WHOLE_EPISODE


class Ledger:
    """The record of one budget. Make it with ``create``, ``open`` or ``open_or_create``.

    The properties and ``spent`` tell what this object last read: when it was opened, or at its last
    charge, save or resume. Decisions are always made on what the file says at that moment. No file
    stays open between operations. What its ``header`` declares is here too.

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

    def __init__(
        self, path: FilePath, *, timeout: float | None = None, every_line: bool = False
    ) -> None:
        name = os.fspath(file_name("path", path))
        self._journal = Journal(name, checked_timeout(timeout), indexed=not every_line)
        self.timeout = self._journal.timeout
        self.header = header = self._books.header
        self.id, self.limit, self.unit = header.id, header.limit, header.unit
        self.note, self.terms, self.key = header.note, header.terms, header.key
        self.people = header.terms is not None

    @classmethod
    def create(cls, path: FilePath, limit: float, *, unit: Unit, note: str = "") -> "Ledger":
        """Create a ledger, of mode 0600 and over no other file; each key may spend the limit."""
        write_header(path, limit, unit, note)
        return cls(path)

    @classmethod
    def create_for_people(
        cls, path: FilePath, privacy: JointDP, *, protects: str = WHOLE_EPISODE, note: str = ""
    ) -> "Ledger":
        """Create a ledger for several runs on one population, of mode 0600 and over no other file.

        ``privacy`` is what one person may spend over all runs. Each run has its own, which is what
        everybody pays who takes part in it. For ``protects`` see :attr:`tacit.Statistic.protects`.
        """
        write_people_header(path, privacy, protects, note)
        return cls(path)

    @classmethod
    def open(
        cls,
        path: FilePath,
        *,
        timeout: float | None = None,
        expect: str = "",
        every_line: bool = False,
    ) -> "Ledger":
        """Open an existing ledger and check its lines.

        Args:
            path: Where it is.
            timeout: How many seconds to wait for its lock, now and later, also in the runs that are
                made with this object. By default what TACIT_LEDGER_TIMEOUT says, or 60.
            expect: The hash of a line, or how it begins (8 characters at least), which somebody
                noted elsewhere: a ledger without that line is an older copy and is refused.
            every_line: Whether to check all lines. A long ledger has an index of those that were
                checked before, and only the rest is read.

        Raises:
            LockTimeout: Somebody else held the lock all the while.
            CorruptFile: It is damaged, or lacks lines that its index or ``expect`` have seen.
        """
        ledger = cls(path, timeout=timeout, every_line=every_line)
        if expect and not ledger.has(expect):
            raise CorruptFile(
                f"{os.fspath(path)!r} has no line with the hash {expect!r}: it is older than its "
                "witness, or another ledger. Put the newest copy back, or see tacit ledger repair"
            )
        return ledger

    def has(self, expect: str) -> bool:
        """Whether a line has this hash, or one that begins so (8 hexadecimal digits at least)."""
        checked_hash(expect)
        return any(found.startswith(expect) for found in self._journal.hashes())

    @classmethod
    def open_or_create(
        cls, path: FilePath, limit: float, *, unit: Unit, note: str = ""
    ) -> "Ledger":
        """Open the ledger if it exists, else create it; either way it has this limit and unit."""
        try:
            ledger = cls(path)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another process was faster
                return cls.create(path, limit, unit=unit, note=note)
            ledger = cls(path)
        ledger.header.check_declared(path, limit, unit)
        return ledger

    def __fspath__(self) -> str:
        """Where it is; so an opened ledger can stand wherever a path can."""
        return self._journal.path

    @property
    def _books(self) -> Books:
        return self._journal.books

    @property
    def head(self) -> str:
        """The hash of the last line: keep it elsewhere, and an older copy will be noticed."""
        return self._journal.head

    @property
    def sequence(self) -> int:
        """The number of the last entry, 0 if there is none; a saved state keeps it."""
        return self._journal.sequence

    @property
    def run(self) -> str:
        """Which run this object speaks for, for a saved state; empty in a ledger of one run."""
        return self._journal.run

    @property
    def runs(self) -> Mapping[str, Terms]:
        """The runs of a ledger of people, oldest first, by the token of their start."""
        runs = self._books.runs.items()
        return {name: run.terms for name, run in runs if self.people and run.terms is not None}

    @property
    def accounts(self) -> Counter[float]:
        """How many have spent how much: people, or keys in a ledger of one run."""
        return self._books.accounts

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first, as far as this object has read; from the file, checked."""
        return tuple(self._journal.entries())

    @property
    def max_spent(self) -> float:
        """What the person (in a ledger of one run: the key) who spent most has spent."""
        return max(self.accounts, default=0.0)

    def spent(self, key: str) -> float:
        """What ``key`` has spent, rounded up; 0 for a key that was never charged."""
        return above(self.spent_exactly(key))

    def spent_exactly(self, key: str) -> Fraction:
        """What ``key`` has spent."""
        return self._books.spent(key)

    def remaining(self, key: str) -> float:
        """What ``key`` may still spend."""
        return max(0.0, self.limit - self.spent(key))

    def spent_by(self, user: int | str) -> float:
        """What a person has spent over all runs, in a ledger of people; 0 if she never joined."""
        if not self.people:
            raise InvalidArgument("a ledger of one run knows blocks, not people")
        return self._books.people.spent(name_of(user, self.key))

    def join(self, people: Sequence[bytes]) -> list[bool]:
        """Charge people the whole budget of this run, each once; who cannot pay is not admitted.

        They come by their names, by :func:`name_of` with this ledger's ``key``. Who joined this run
        before is admitted and pays nothing more. When this returns who is, it is on disk.
        """
        if any(type(name) is not bytes or len(name) != NAME_BYTES for name in people):
            raise InvalidArgument(f"people must be names of {NAME_BYTES} bytes each")
        with self._journal.locked() as descriptor:
            self._journal.check_going_on()
            if not self.people:
                raise InvalidArgument("a ledger of one run knows blocks, not people")
            able, admitted = self._books.people.admitted(people, self._journal.run)
            if able:
                text = text_of_names(able)
                self._journal.append(descriptor, "join", self._journal.run, {}, people=text)
            return admitted

    def charge(self, costs: Mapping[str, float], label: str, *, pending: bool = False) -> int:
        """Charge every key its cost, finite and at least 0, or refuse and charge none.

        When this returns the number of its line, the charge is on disk, and what it paid for, as
        the label says, may be published. With ``pending`` the result is not on disk yet: it may be
        published once :meth:`record_save` has recorded the save that holds it.

        Raises:
            BudgetExceeded: A key would have spent more than the limit. Nothing was charged.
            DoubleSpend: Another process resumed a save of this run, so this one has ended.
        """
        label = text_of("label", label)
        costs = {text_of("key", key): number_of(f"costs[{key!r}]", costs[key]) for key in costs}
        with self._journal.locked() as descriptor:
            self._journal.check_going_on()
            self._books.check_costs(self._journal.run, costs)
            self._journal.append(descriptor, "pending" if pending else "charge", label, costs)
            return self.sequence

    def record_start(self, token: str, terms: Terms | None = None) -> None:
        """Record that a run begins, under a token that no other has, with what it promises.

        Raises:
            DoubleSpend: The ledger has entries already: another run's, which its users paid for.
            BudgetExceeded: The run costs a person more than the population's whole budget.
            InvalidArgument: The run protects something else than the population was promised.
        """
        token = text_of("token", token)
        with self._journal.locked() as descriptor:
            self._books.check_start(token, terms)
            more = {} if terms is None else {"terms": asdict(terms)}
            self._journal.begin(token if self.people else "", descriptor, "start", token, **more)

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
            DoubleSpend: Another process resumed a save of this run, so this one has ended.
        """
        token = text_of("token", token)
        with self._journal.locked() as descriptor:
            self._journal.check_going_on()
            self._books.saves.check_new(token)
            if write is not None:
                self._journal.flush(descriptor)
                write(self._books.sequence)
            self._journal.append(descriptor, "save", token, {})

    def record_resume(
        self,
        token: str,
        after: int | None = None,
        *,
        run: str = "",
        head: str = "",
        successor: str | None = None,
        write: Callable[[int], None] | None = None,
    ) -> None:
        """Record that the run goes on from the save with this token; only then use its state.

        Args:
            token: The token in the state file.
            after: ``sequence`` of the ledger when the state file was written, from that file. It
                is used only if the save itself was not recorded, because of a crash.
            run: ``run`` of the ledger at that moment, from that file.
            head: ``head`` of the ledger at that moment, from that file: if the line ``after`` has
                another hash now, an older copy of the ledger was put in its place and went on.
            successor: The token of the next save, which is recorded in the same line. So there is
                no moment at which a crash would leave nothing to resume.
            write: As in :meth:`record_save`, for the successor: a refused resume never overwrites
                the state of a run that goes on.

        Raises:
            DoubleSpend: The save was resumed before, or is older than what was recorded since,
                or is unknown to this ledger. Nothing was recorded.
        """
        token = text_of("token", token)
        if after is not None and (type(after) is not int or after < 0):
            raise InvalidArgument(f"after={after!r} must be an integer of at least 0")
        successor = None if successor is None else text_of("successor", successor)
        with self._journal.locked() as descriptor:
            run = self._books.check_resume(token, run, after, successor)
            if head and after is not None and after <= self._books.sequence:
                self._journal.check_head(descriptor, after, head)
            if write is not None:
                self._journal.flush(descriptor)
                write(self._books.sequence)
            more = {} if successor is None else {"successor": successor}
            self._journal.begin(run, descriptor, "resume", token, **more)

    def record_succession(self, heir: str) -> None:
        """Record that another run takes users in place of this one, which ends with all its saves.

        Args:
            heir: The id of that run's ledger, or words where it has none.

        Raises:
            DoubleSpend: Another process resumed a save of this run, or it has a successor.
        """
        heir = text_of("heir", heir)
        with self._journal.locked() as descriptor:
            self._journal.check_going_on()
            self._journal.append(descriptor, "succession", heir, {})

    def __repr__(self) -> str:
        return (
            f"Ledger({self._journal.path!r}, limit={self.limit}, unit={self.unit!r}, "
            f"sequence={self.sequence}, max_spent={self.max_spent})"
        )


def witness_of(ledger: Ledger) -> tuple[int, str]:
    """The number of the last line, from 1, and its hash; a ledger without it is older."""
    return ledger._journal.lines, ledger.head


def open_for(path: FilePath | Ledger, terms: Terms) -> Ledger:
    """The ledger for a run with these terms: one of people if it is there, else one of its own.

    Without a file at ``path`` one of one run is made. An opened ledger must still be there, and is
    opened anew, as an object speaks for one run.
    """
    if not isinstance(path, Ledger):
        path = os.path.abspath(path)  # whatever folder is entered later
    else:
        ledger = open_again(path)
        if not ledger.people:
            ledger.header.check_declared(path, terms.episode_limit, terms.unit)
        return ledger
    with contextlib.suppress(FileNotFoundError):
        ledger = Ledger.open(path)
        if ledger.people:
            return ledger
    return Ledger.open_or_create(path, terms.episode_limit, unit=terms.unit)


def open_again(ledger: FilePath | Ledger) -> Ledger:
    """Another object for the same ledger, which must be there; by its path, or by one object."""
    found = Ledger.open(
        os.path.abspath(ledger), timeout=ledger.timeout if isinstance(ledger, Ledger) else None
    )
    if isinstance(ledger, Ledger) and found.id != ledger.id:
        raise CorruptFile(f"{os.fspath(ledger)!r}: another ledger took its place meanwhile")
    return found


def opened_again(ledger: Ledger) -> Ledger:
    """Another object for the same run, in place of one that an exception may have stopped."""
    fresh = open_again(ledger)
    fresh._journal.go_on_for(ledger._journal)
    return fresh
