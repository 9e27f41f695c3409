"""One process's view of a ledger: what it has read, for which run it speaks, how it appends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tacit.privacy.errors import CorruptFile, DoubleSpend
from tacit.privacy.files import MALFORMED, remove_orphans
from tacit.privacy.ledger.books import Books
from tacit.privacy.ledger.chain import ChainedFile, hash_of
from tacit.privacy.ledger.header import Header
from tacit.privacy.ledger.index import Index, Position, Rows, Unusable
from tacit.privacy.ledger.records import Entry, Event, entry_of

# The index is written again when it lacks so many lines or so many bytes of them. A large one waits
# for more, up to a limit, as who opens the ledger reads them: names fall anywhere in it, and a page
# that is written should be for more than one of them.
INDEX_LINES = 128
INDEX_BYTES = 1 << 16
_INDEX_SHARE = 1 / 32
_MOST_INDEX_BYTES = 1 << 19
_MOST_HEADER = 1 << 20


class Journal:
    """The file of a ledger and its books, which never differ while the lock is held.

    It speaks for one ``run``, whose name is empty in a ledger of one run. With ``indexed`` it reads
    only what the ledger's index lacks, if there is one; else every line.
    """

    books: Books

    def __init__(self, path: str, timeout: float, *, indexed: bool = True) -> None:
        self.path = path
        self.run = ""
        self._file = ChainedFile(path, timeout)
        self._indexed = indexed
        self._index: Index | None = None
        self._base: Position | None = None  # up to where the rows are in the index
        self._index_at = 0  # not to be written before there are so many lines
        self._foreign = False  # whether lines were read that others may not have flushed
        self._ended: int | None = None  # where this run ended, because another process resumed it
        with self.locked(append=False):
            pass
        remove_orphans(path)
        self._ended = None  # resumes of the past are not the end of this object's run

    @property
    def sequence(self) -> int:
        """The number of the last entry, 0 if there is none.

        If another process resumed a save of this run, it stays at the entry before that resume,
        so that no state which this run still writes can pass for the continuation.
        """
        return self.books.sequence if self._ended is None else self._ended

    @property
    def timeout(self) -> float:
        """How many seconds it waits for the lock."""
        return self._file.timeout

    @property
    def head(self) -> str:
        """The hash of the last line that was read."""
        return self._file.head

    @property
    def lines(self) -> int:
        """How many lines were read."""
        return self._file.lines

    @contextlib.contextmanager
    def locked(self, *, append: bool = True) -> Iterator[int]:
        """Hold the file's lock, with everything read that other processes appended."""
        with self._file.locked(append=append) as descriptor, contextlib.ExitStack() as stack:
            self._follow_index(descriptor, stack)
            self._catch_up(descriptor, append)
            yield descriptor
            stack.close()
            if append:
                self._write_index(descriptor)

    def entries(self) -> list[Entry]:
        """All entries as far as they were read, from the file; each is checked."""
        return [entry_of(record) for record, _ in self._read_again()[1:]]

    def hashes(self) -> list[str]:
        """The hashes of all lines."""
        return [digest for _, digest in self._read_again()]

    def _read_again(self) -> list[tuple[dict[str, Any], str]]:
        with self._file.locked(append=False) as descriptor:
            file = ChainedFile(self.path, self.timeout)
            found = [
                (record, digest) for _, record, digest in _records(file, descriptor, self._file.end)
            ]
        if file.position != self._file.position:
            raise CorruptFile(f"{self.path!r}: not the file that was last read")
        return found

    def check_head(self, descriptor: int, sequence: int, head: str) -> None:
        """Refuses a save that was written after another line of this number."""
        if self.hash_at(descriptor, sequence) != head:
            raise DoubleSpend(
                f"line {sequence + 1} of {self.path!r} is not the one after which this save was "
                "written: an older copy was put in the ledger's place, and others went on"
            )

    def hash_at(self, descriptor: int, sequence: int) -> str:
        """The hash of an entry; of the header for 0."""
        if sequence == self.books.sequence:
            return self.head
        return hash_of(self._file.line(descriptor, sequence))

    def go_on_for(self, other: Journal) -> None:
        """Speaks for the run of another view of the file, which may have stopped half-way."""
        self.run, self._ended = other.run, other._ended
        known, run = other.books.sequence, self.books.runs.get(self.run)
        if run is not None and run.resumed > known and self._ended is None:
            self._ended = known

    def check_going_on(self) -> None:
        """Refuses if no run has started, or another process took this one over."""
        self.books.check_started(self.run)
        if self._ended is not None:
            raise DoubleSpend(
                f"another process resumed a save of this run from {self.path!r}; "
                "only that process can go on"
            )

    def flush(self, descriptor: int) -> None:
        """Makes sure that all lines are on the disk, also those of processes that crashed."""
        if self._foreign:
            os.fsync(descriptor)
            self._foreign = False

    def append(
        self, descriptor: int, event: Event, label: str, costs: Mapping[str, float], **more: Any
    ) -> None:
        """Put an entry on disk and into the books."""
        record = new_record(self.books, event, label, self.run, costs)
        line = self._file.append(descriptor, record | more)
        self._foreign = False
        self._absorb(line)

    def begin(self, run: str, descriptor: int, event: Event, token: str, **more: Any) -> None:
        """Append an entry with which this object begins to speak for a run."""
        before, self.run = self.run, run
        try:
            self.append(descriptor, event, token, {}, **more)
        except BaseException:
            self.run = before
            raise
        self._ended = None

    # Reading.

    def _catch_up(self, descriptor: int, append: bool) -> None:
        """Read what was appended since this object last read, and drop a torn last line."""
        lines, torn = self._file.unread(descriptor)
        for line in lines:
            known = self.books.runs.get(self.run) if self._file.lines else None
            resumed = 0 if known is None else known.resumed
            self._absorb(line)
            self._foreign = True
            if known is not None and known.resumed > resumed and self._ended is None:
                self._ended = known.resumed - 1
        if not self._file.lines:
            raise CorruptFile(f"{self.path!r}: not a Tacit ledger")
        if torn:
            self._check_torn(torn)
        # The writer of a torn line crashed before its append returned, as we hold the lock; so
        # nothing was published on the strength of that line.
        if torn and append:
            self._file.cut(descriptor)

    def _check_torn(self, torn: bytes) -> None:
        """Refuses a line that is whole but for its line end: no crash leaves another byte there."""
        try:
            self._file.record(torn[:-1] + b"\n")
        except CorruptFile:
            return
        raise CorruptFile(f"{self._file.where} has a damaged line end")

    def _absorb(self, line: bytes) -> None:
        """Check one line against the chain and take it into the books."""
        where = self._file.where
        record, digest = self._file.record(line)
        try:
            if self._file.lines:
                self.books.enter(record, where)
            else:
                self.books = Books(self.path, Header.of(record), Rows(None, dict))
        except MALFORMED as error:
            raise CorruptFile(f"{where} cannot be read by this release") from error
        self._file.accept(line, digest)

    # The index.

    def _follow_index(self, descriptor: int, stack: contextlib.ExitStack) -> None:
        """Goes to where the index is, if that is further than this object, or not as far as it was.

        In between, rows of the index are as old as what this object last read, or it has changed
        them itself since.
        """
        if not self._indexed:
            return
        if self._index is None:
            if not os.path.lexists(index_file(self.path)):
                return
            self._index = Index(index_file(self.path), self._header(descriptor).id)
        with contextlib.suppress(Unusable):
            stack.enter_context(self._index.open())
        position = self._index.position()
        if position is None:
            if self._base is not None:  # it was deleted, or is damaged: begin again
                self._file, self._base = ChainedFile(self.path, self.timeout), None
            return
        behind = self._base is not None and position.lines < self._base.lines
        if position.lines > self._file.lines or behind:
            self._go_to(descriptor, self._index, position)

    def _go_to(self, descriptor: int, index: Index, position: Position) -> None:
        known = self.books.sequence if self._file.lines else 0
        if not self._file.go_to(descriptor, position):
            raise CorruptFile(
                f"{self.path!r} lacks lines that its index has seen ({position.lines:,} lines, "
                f"hash {position.hash[:16]}...): an older copy was put in its place, or it was "
                "damaged. Put the newest copy back, or see tacit ledger repair"
            )
        self._base = position
        rows = Rows(index, lambda: self._replay(position))
        self.books = Books(self.path, self._header(descriptor), rows, position.lines - 1)
        run = self.books.runs.get(self.run)
        if run is not None and run.resumed > known and self._ended is None:
            self._ended = known

    def _header(self, descriptor: int) -> Header:
        """What the first line declares."""
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            line = file.readline(_MOST_HEADER)
        first = ChainedFile(self.path, self.timeout)
        record, _ = first.record(line)
        try:
            return Header.of(record)
        except MALFORMED as error:
            raise CorruptFile(f"{first.where} cannot be read by this release") from error

    def _replay(self, position: Position) -> Mapping[bytes, bytes]:
        """All rows, by the chain up to where a damaged index was; it is made anew later."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            file = ChainedFile(self.path, self.timeout)
            books: Books | None = None
            for where, record, _ in _records(file, descriptor, position.end):
                if books is None:
                    books = Books(self.path, Header.of(record), Rows(None, dict))
                else:
                    books.enter(record, where)
        except MALFORMED as error:
            raise CorruptFile(f"{file.where} cannot be read by this release") from error
        finally:
            os.close(descriptor)
        if books is None or file.position != position:
            raise CorruptFile(f"{self.path!r}: not the file that was last read")
        self._base = None
        return books.rows.changed

    def _write_index(self, descriptor: int) -> None:
        """Writes the index again where it lacks much. It is derived: if it fails, later will do."""
        base = self._base or Position(0, 0, 0, "")
        lines, size = self._file.lines - base.lines, self._file.end - base.end
        enough = max(INDEX_BYTES, min(_INDEX_SHARE * base.end, _MOST_INDEX_BYTES))
        if not self._indexed or (lines < INDEX_LINES and size < enough):
            return
        if self._file.lines < self._index_at:
            return
        if self._index is None:
            self._index = Index(index_file(self.path), self.books.header.id)
        try:
            # It must never know a line that the disk does not have.
            self.flush(descriptor)
            anew = self._base is None
            self._index.write(self.books.rows.changed, self._file.position, anew=anew)
        except (OSError, Unusable):
            self._index_at = 2 * self._file.lines
            return
        self._base, self._index_at = self._file.position, 0
        base = self._base
        self.books.rows.index = self._index
        self.books.rows.changed = {}
        self.books.rows.replay = lambda: self._replay(base)


def _records(
    file: ChainedFile, descriptor: int, end: int
) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Which line it is in words, what it says, and its hash; of all lines up to a place."""
    lines, _ = file.unread(descriptor)
    for line in lines:
        if file.end >= end:
            return
        where = file.where
        record, digest = file.record(line)
        yield where, record, digest
        file.accept(line, digest)


def index_file(path: str) -> str:
    """Where the index of a ledger is."""
    return f"{path}.index"


def new_record(
    books: Books, event: Event, label: str, run: str, costs: Mapping[str, float]
) -> dict[str, Any]:
    """What the next line says."""
    record = {
        "sequence": books.sequence + 1,
        "event": event,
        "label": label,
        "costs": dict(costs),
        "time": _now(),
    }
    if books.header.terms is not None:
        record["run"] = run
    return record


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
