"""Repairs a damaged ledger: what verifies is kept, and what is lost never becomes budget again.

Lines are put into the order of their numbers and chained from the first; copies of a line count
once. Where a line is missing the chain ends. Lines behind that are *intact* if their hash fits the
hash of the line before them, which may be all that is left of it; and the index, if there is one,
knows what all lines up to its own end added up to. Both tell who paid for what. They cannot be
chained again, so a **repair** line behind what was kept says it in their place:

* Runs whose lines are lost are ended, all of them: a line that is lost may have resumed a save.
* Who paid by an intact line, or by the index, has paid.
* A line that is neither may have been anybody's payment. If it is one, by the numbers of the others
  and by the bytes that nobody can read, and was no repair itself, it can have been one join of a
  run that is known: everybody, known or not, pays what the dearest run costs. If it may be more,
  which can have started a run too, or a witness knows of lines that are not there at all,
  everybody has spent everything. That it was no repair is said by what is left of it, or by a run
  that went on behind it.

The damaged file is kept under another name. A ledger whose first line is damaged is not repaired:
what might be spent is not known.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tacit.privacy.arguments import FilePath, file_name
from tacit.privacy.errors import CorruptFile
from tacit.privacy.files import MALFORMED, check_size, parse_json
from tacit.privacy.ledger.books import Books
from tacit.privacy.ledger.chain import ChainedFile, seal
from tacit.privacy.ledger.header import Header
from tacit.privacy.ledger.index import Index, Position, Rows, Unusable
from tacit.privacy.ledger.journal import index_file, new_record
from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.locks import checked_timeout
from tacit.privacy.ledger.people import Run, names_of, text_of_names
from tacit.privacy.ledger.records import above, checked_hash, checked_terms, number_of
from tacit.privacy.storage import replace_file

# How every line begins; keys are sorted, and a quotation mark within a text is escaped.
_BEGINNING = re.compile(rb'(?=\{"(?:costs|format)": )')
_HASH = re.compile(rb'"hash": "([0-9a-f]{64})"')
_EVENT = re.compile(rb'"event": "(?:start|join|charge|pending|save|resume|succession)"')
# Shorter than the start of a run and a join together can be.
_TWO_LINES = 600


@dataclass(frozen=True)
class Repair:
    """What was repaired.

    Attributes:
        problem: what was wrong; empty if nothing was, and then nothing was changed.
        kept: how many entries verify and were kept.
        lost_lines: how many lines are neither kept nor known from elsewhere; 2 for two or more.
        people: of how many people the accounts are known though their lines are not kept.
        everybody: what everybody was charged for what is lost, known or not.
        ended: whether all runs were ended.
        original: where the damaged file is.
    """

    problem: str = ""
    kept: int = 0
    lost_lines: int = 0
    people: int = 0
    everybody: float = 0.0
    ended: bool = False
    original: str = ""


@dataclass
class _Payments:
    """Who paid for what by lines that are not kept: runs and what they promised, and names."""

    runs: dict[str, Any] = field(default_factory=dict)
    people: dict[str, set[bytes]] = field(default_factory=dict)
    everybody: float = 0.0

    def join(self, run: str, names: Iterable[bytes]) -> None:
        self.people.setdefault(run, set()).update(names)


def repair(path: FilePath, *, expect: str = "", timeout: float | None = None) -> Repair:
    """Repairs a ledger, if it is damaged; see :mod:`tacit.privacy.ledger.repair`.

    Args:
        path: Where it is.
        expect: The hash of a line that it had, or how that begins: see :meth:`Ledger.open`.
        timeout: How many seconds to wait for its lock.

    Raises:
        CorruptFile: Its first line is damaged.
    """
    if expect:
        checked_hash(expect)
    problem = _problem(path, expect, timeout)
    if not problem:
        return Repair()
    name = os.fspath(file_name("path", path))
    with ChainedFile(name, checked_timeout(timeout)).locked(append=True) as descriptor:
        size = check_size(name, os.fstat(descriptor).st_size, "ledger")
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            return _Wreck(name, file.read(size)).repaired(problem, expect)


def _problem(path: FilePath, expect: str, timeout: float | None) -> str:
    """Why a ledger is refused; empty if it is well."""
    try:
        for every_line in (True, False):  # once by its lines alone, once by its index
            Ledger.open(path, timeout=timeout, expect=expect, every_line=every_line)
    except CorruptFile as error:
        return str(error)
    return ""


class _Wreck:
    """The lines of a damaged ledger, as far as they can be told."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path, self.data = path, data
        self.pieces = [piece for piece in _BEGINNING.split(data) if piece]
        # By number, and where they were found. The first line has none.
        self.found: dict[int, dict[bytes, int]] = {}
        for place, piece in enumerate(self.pieces):
            for line in _readings(piece):
                number = _number(line)
                if number is not None:
                    self.found.setdefault(number, {})[line] = place
        self.file = ChainedFile(path, 0.0)
        self.kept: list[bytes] = []
        self.hashes: set[str] = set()
        self.books = self._first()
        while self._next():
            pass
        self.chained, self.seen = frozenset(self.hashes), self.books.sequence
        self.payments = _Payments()
        self.intact: dict[int, bytes] = {}
        for number, lines in sorted(self.found.items()):
            if number > self.books.sequence:
                self._look_at(number, lines)

    def repaired(self, problem: str, expect: str) -> Repair:
        """Writes what was kept and a line about the rest."""
        index = Index(index_file(self.path), self.books.header.id)
        covered = self._ask_index(index)
        lost = self._lost_lines(covered or 0)
        missed = bool(expect) and not any(known.startswith(expect) for known in self.hashes)
        done = Repair(
            problem=problem,
            kept=len(self.kept) - 1,
            lost_lines=lost,
            people=len({*self._new_names()}),
            everybody=self._charge(lost, missed),
            ended=bool(lost or missed or self.intact or covered is not None),
            original=_beside(self.path),
        )
        self._write(done)
        index.remove()
        return done

    # Which lines there are.

    def _first(self) -> Books:
        for line in self.found.get(0, {}):
            with contextlib.suppress(CorruptFile, *MALFORMED):
                record, digest = self.file.record(line)
                books = Books(self.path, Header.of(record), Rows(None, dict))
                self._keep(line, digest)
                return books
        raise CorruptFile(
            f"{self.path!r}: its first line is damaged, which says what may be spent: it cannot be "
            "repaired. Put that line back from a copy of the ledger, and repair it then"
        )

    def _next(self) -> bool:
        """Keeps one more line, if there is one that continues the chain."""
        for line in self.found.get(self.books.sequence + 1, {}):
            with contextlib.suppress(CorruptFile, *MALFORMED):
                record, digest = self.file.record(line)
                self.books.enter(record, self.file.where)
                self._keep(line, digest)
                return True
        return False

    def _keep(self, line: bytes, digest: str) -> None:
        self.file.accept(line, digest)
        self.kept.append(line)
        self.hashes.add(digest)

    def _look_at(self, number: int, lines: Mapping[bytes, int]) -> None:
        """Takes over what an intact line says."""
        before = {found for line in self.found.get(number - 1, {}) for found in _hashes(line)}
        for line, place in lines.items():
            near = _hashes(self.pieces[place - 1]) if place else []
            record = parse_json(line)
            digest = record.pop("hash", "")
            with contextlib.suppress(*MALFORMED):
                if any(seal(record, previous) == line for previous in {*before, *near}):
                    self._take(record)
                    self.intact[number] = line
                    self.hashes.add(digest)

    def _take(self, record: Mapping[str, Any]) -> None:
        event, payments = record["event"], self.payments
        if event == "start" and "terms" in record and "run" in record:
            payments.runs[record["run"]] = asdict(checked_terms(record["terms"]))
        elif event == "join":
            payments.join(record["run"], names_of(record["people"]))
        elif event == "repair":
            payments.runs |= record.get("runs", {})
            for run, names in record.get("people", {}).items():
                payments.join(run, names_of(names))
            payments.everybody += number_of("everybody", record["everybody"])

    # What the index knows besides.

    def _ask_index(self, index: Index) -> int | None:
        """Takes over accounts; how many bytes of lines that are not here it has seen, if any."""
        position = index.position()
        if position is None or position.hash in self.chained:
            return None
        try:
            rows = Rows(index, dict)
            books = Books(self.path, self.books.header, rows, position.lines - 1)
            members = {run: set[bytes]() for run in books.runs}
            for name, joined in books.people.members():
                for run, known in books.runs.items():
                    if joined >> known.place & 1:
                        members[run].add(name)
        except (Unusable, *MALFORMED):
            return None
        if rows.index is None:  # it was given up: some row is damaged
            return None
        for run, known in books.runs.items():
            if known.terms is not None:
                self.payments.runs.setdefault(run, asdict(known.terms))
                self.payments.join(run, members[run])
        more = above(books.people.everybody - self.books.people.everybody)
        self.payments.everybody += more  # some of it twice, rather than any not at all
        self.hashes.add(position.hash)
        self.seen = max(self.seen, position.lines - 1)
        self._go_on_from(position)
        here = sum(map(len, self.kept))
        here += sum(len(line) for number, line in self.intact.items() if number < position.lines)
        return max(0, position.end - here)

    def _go_on_from(self, position: Position) -> None:
        """The line after the index's last is intact if it fits that one's hash."""
        for line in self.found.get(position.lines, {}):
            record = parse_json(line)
            digest = record.pop("hash", "")
            with contextlib.suppress(*MALFORMED):
                if position.lines not in self.intact and seal(record, position.hash) == line:
                    self._take(record)
                    self.intact[position.lines] = line
                    self.hashes.add(digest)

    # What it comes to.

    def _lost_lines(self, covered: int) -> int:
        """How many lines may be lost: by the numbers of the others, and by bytes that are none."""
        last = max(self.found)
        beyond = {*range(self.seen + 1, last + 1)} if last - self.seen < len(self.data) else {0, 1}
        missing = len(beyond - {*self.intact})
        explained = {*self.kept, *self.intact.values()}
        waste, tail = 0, 0
        for piece in self.pieces:
            lines = _readings(piece)
            sizes = [len(line) for line in lines if line in explained]
            wasted = len(piece) - min(len(piece), max(sizes, default=0))
            if not sizes and any(_number(line) in beyond for line in lines):
                wasted = 0  # it is one of the missing
            waste, tail = waste + wasted, wasted + (0 if sizes else tail)
        # Where lines are missing, what cannot be read before the last good line is what they were.
        unread = max(0, (tail if missing else waste) - covered)
        return min(2, missing + (unread > 0) + (unread >= _TWO_LINES))

    def _was_no_repair(self) -> bool:
        """Whether a line that is lost cannot have charged everybody."""
        explained = {*self.kept, *self.intact.values()}
        rests = [
            piece.partition(b"\n")[2] if {*_readings(piece)} & explained else piece
            for piece in self.pieces
        ]
        if any(map(_EVENT.search, rests)):
            return True
        going = {run for run, known in self.books.runs.items() if not known.ended}
        return any(str(parse_json(line).get("run")) in going for line in self.intact.values())

    def _runs(self) -> dict[str, Any]:
        """Runs whose starts are not kept."""
        return {run: t for run, t in self.payments.runs.items() if run not in self.books.runs}

    def _new_names(self) -> Iterable[tuple[str, bytes]]:
        """Who paid for which run by lines that are not kept."""
        for run, names in self.payments.people.items():
            known: Run | None = self.books.runs.get(run)
            joined = self.books.people.joined(names)
            for name in names:
                if known is None or not joined[name] >> known.place & 1:
                    yield run, name

    def _charge(self, lost: int, missed: bool) -> float:
        """What everybody pays for what is lost."""
        limit, new = self.books.header.limit, self._runs()
        if self.books.header.terms is None:
            return 0.0  # of one run: that has ended, and nobody can be charged any more
        unknown = {*self.payments.people} - {*self.books.runs, *new}
        if missed or unknown or lost > 1 or (lost and not self._was_no_repair()):
            return limit
        costs = [terms["user_limit"] for terms in new.values()]
        costs += [run.terms.user_limit for run in self.books.runs.values() if run.terms is not None]
        dearest = max(costs, default=0.0) if lost else 0.0
        return min(limit, self.payments.everybody + dearest)

    def _write(self, done: Repair) -> None:
        """Puts the repaired ledger in the place of the damaged one, which gets another name."""
        label = hashlib.sha256(self.data).hexdigest()
        record = new_record(self.books, "repair", label, "", {})
        record |= {"everybody": done.everybody, "ended": done.ended, "lost": done.lost_lines}
        if self.books.header.terms is not None:
            names: dict[str, list[bytes]] = {}
            known = {*self.books.runs, *self._runs()}
            for run, name in self._new_names():
                if run in known:
                    names.setdefault(run, []).append(name)
            record["runs"] = self._runs()
            record["people"] = {run: text_of_names(names[run]) for run in sorted(names)}
        line = seal(record, self.file.head)
        self.books.enter(parse_json(line), self.file.where)  # it must be readable
        os.link(self.path, done.original)
        replace_file(self.path, b"".join([*self.kept, line]), 0o600)


def _beside(path: str) -> str:
    """A new name for a damaged file."""
    stamp, number = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), 0
    while True:
        name = f"{path}.damaged-{stamp}" + (f"-{number}" if number else "")
        if not os.path.lexists(name):
            return name
        number += 1


def _readings(piece: bytes) -> list[bytes]:
    """The lines that a piece may be: whole, without its line end, or with another in its place."""
    head, newline, _ = piece.partition(b"\n")
    return [head + b"\n"] if newline else [piece + b"\n", piece[:-1] + b"\n"]


def _number(line: bytes) -> int | None:
    """The number of a line, 0 for the first; nothing if it cannot be read."""
    try:
        record = parse_json(line)
        number = 0 if "format" in record else record["sequence"]
        readable = type(number) is int and type(record["hash"]) is str
    except MALFORMED:
        return None
    return number if readable else None


def _hashes(piece: bytes) -> list[str]:
    """Hashes that can be read in a piece."""
    return [found.decode() for found in _HASH.findall(piece)]
