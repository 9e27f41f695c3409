"""One process's view of a ledger: what it has read, for which run it speaks, how it appends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from tacit.privacy.errors import CorruptFile, DoubleSpend
from tacit.privacy.files import MALFORMED, remove_orphans
from tacit.privacy.ledger.books import Books
from tacit.privacy.ledger.chain import ChainedFile
from tacit.privacy.ledger.header import Header
from tacit.privacy.ledger.records import Event


class Journal:
    """The file of a ledger and its books, which never differ while the lock is held.

    It speaks for one ``run``, whose name is empty in a ledger of one run.
    """

    books: Books

    def __init__(self, path: str) -> None:
        self.path = path
        self.run = ""
        self._file = ChainedFile(path)
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
        return len(self.books.entries) if self._ended is None else self._ended

    @contextlib.contextmanager
    def locked(self, *, append: bool = True) -> Iterator[int]:
        """Hold the file's lock, with everything read that other processes appended."""
        with self._file.locked(append=append) as descriptor:
            self._catch_up(descriptor, append)
            yield descriptor

    def go_on_for(self, other: Journal) -> None:
        """Speaks for the run of another view of the file, which may have stopped half-way."""
        self.run, self._ended = other.run, other._ended
        self._note_resumes(len(other.books.entries))

    def check_going_on(self) -> None:
        """Refuses if no run has started, or another process took this one over."""
        self.books.check_started(self.run)
        if self._ended is not None:
            raise DoubleSpend(
                f"another process resumed a save of this run from {self.path!r}; "
                "only that process can go on"
            )

    def append(
        self, descriptor: int, event: Event, label: str, costs: Mapping[str, float], **more: Any
    ) -> None:
        """Put an entry on disk and into the books."""
        record = {
            "sequence": len(self.books.entries) + 1,
            "event": event,
            "label": label,
            "costs": dict(costs),
            "time": _now(),
        }
        if self.books.header.terms is not None:
            record["run"] = self.run
        self._absorb(self._file.append(descriptor, record | more))

    def begin(self, run: str, descriptor: int, event: Event, token: str, **more: Any) -> None:
        """Append an entry with which this object begins to speak for a run."""
        before, self.run = self.run, run
        try:
            self.append(descriptor, event, token, {}, **more)
        except BaseException:
            self.run = before
            raise
        self._ended = None

    def _catch_up(self, descriptor: int, append: bool) -> None:
        """Read what was appended since this object last read, and drop a torn last line."""
        lines, torn = self._file.unread(descriptor)
        known = max(0, self._file.lines - 1)
        for line in lines:
            self._absorb(line)
        if not self._file.lines:
            raise CorruptFile(f"{self.path!r}: not a Tacit ledger")
        self._note_resumes(known)
        # The writer of a torn line crashed before its append returned, as we hold the lock; so
        # nothing was published on the strength of that line.
        if torn and append:
            self._file.cut(descriptor)

    def _note_resumes(self, known: int) -> None:
        """Where this run ended, if another process resumed it after the entries that are known."""
        resumes = [
            entry.sequence
            for entry in self.books.entries[known:]
            if entry.event == "resume" and entry.run == self.run
        ]
        if resumes and self._ended is None:
            self._ended = resumes[0] - 1

    def _absorb(self, line: bytes) -> None:
        """Check one line against the chain and take it into the books."""
        where = self._file.where
        record, digest = self._file.record(line)
        try:
            if self._file.lines:
                self.books.enter(record, where)
            else:
                self.books = Books(self.path, Header.of(record))
        except MALFORMED as error:
            raise CorruptFile(f"{where} cannot be read by this release") from error
        self._file.accept(line, digest)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
