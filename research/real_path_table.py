"""Which bugs of the real path our own tests find, and by which check.

``python -m research.real_path_table`` puts the agent of every row of
:mod:`research.planted.of_real_path` to the checks of ``tests/own_path``, and to those of
``tacit.check_agent`` where these find nothing: without the bug, where they must pass, and with it.
It prints a line for each, and stores the table as ``research/real_path_table.json``.
``--only NAME`` is for one bug, and stores nothing, or with ``--store`` its row. Real noise has no
seed, so a bug may be found by luck: ``--repeat 3`` looks three times, and a bug counts as caught
if it is found each time.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from research.planted.in_tacit import InTacit
from research.planted.of_real_path import REAL_PATH, RealPathBug
from research.study import Parser, whole
from tests.own_path.suite import real_outcomes

TABLE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class FoundInRealPath:
    """What came of one bug.

    Attributes:
        name: of the bug.
        kind: its letter.
        agent: that was audited.
        clean: whether the checks passed without the bug; otherwise the row says nothing.
        caught: whether it was found each time.
        failures: how often it was.
        audits: how often it was looked for.
        checks: which of them failed, in any audit.
        words: what the first of them said.
        seconds: of processor time for looking once.
        what: the bug does.
        gain: of an attacker.
    """

    name: str
    kind: str
    agent: str
    clean: bool
    caught: bool
    failures: int
    audits: int
    checks: tuple[str, ...]
    words: str
    seconds: float
    what: str
    gain: str

    @property
    def line(self) -> str:
        """For the screen."""
        found = f"by {', '.join(self.checks)}" if self.failures else ""
        verdict = "caught" if self.caught else "not caught"
        if 0 < self.failures < self.audits:
            verdict = f"{self.failures} of {self.audits} times"
        if not self.clean:
            verdict, found = "fails without it", ""
        return f"{self.kind}  {self.name:24} {verdict:17} {self.seconds:5.1f} s  {found}".rstrip()


def _failed(row: RealPathBug) -> dict[str, str]:
    """The checks that fail, and what they say."""
    from tacit.cli.audit import audited
    from tacit.registry import build_world, choose_agent
    from tacit.testing.check_agent import agent_outcomes

    world = build_world(row.world)
    make, users = audited(choose_agent(row.agent), world, row.privacy, row.users)
    # Some bugs talk.
    with contextlib.redirect_stderr(io.StringIO()):
        own = real_outcomes(make, world, users=users, quick=True)
        found = {o.name: str(o.failure) for some in own for o in some if o.failure is not None}
        if not found:
            others = agent_outcomes(make, world, users=users)
            found = {o.name: str(o.failure) for o in others if o.failure is not None}
    return found


def rows(bugs: Sequence[RealPathBug], repeat: int = 1) -> Iterator[FoundInRealPath]:
    """All of them, one after the other; an agent without a bug is looked at once."""

    @cache
    def clean(row: RealPathBug) -> bool:
        return not _failed(row)

    for row in bugs:
        # What differs between two rows of one agent is not part of the checks without a bug.
        passed = clean(row._replace(name="", kind="", plant=InTacit))
        start, made = time.process_time(), list[dict[str, str]]()
        for _ in range(repeat):
            with row.plant():
                made.append(_failed(row))
        seconds = (time.process_time() - start) / repeat
        failures = sum(map(bool, made))
        yield FoundInRealPath(
            name=row.name,
            kind=row.kind,
            agent=row.agent,
            clean=passed,
            caught=failures == repeat,
            failures=failures,
            audits=repeat,
            checks=tuple(dict.fromkeys(name for found in made for name in found)),
            words=next((next(iter(found.values())) for found in made if found), ""),
            seconds=round(seconds, 1),
            what=row.what,
            gain=row.gain,
        )


def _bug(known: dict[str, RealPathBug]) -> Callable[[str], RealPathBug]:
    """A type for names of bugs."""

    def bug(text: str) -> RealPathBug:
        if text not in known:
            from argparse import ArgumentTypeError

            raise ArgumentTypeError(f"is {text!r}, but must be one of {', '.join(known)}")
        return known[text]

    return bug


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns how many bugs were not found."""
    parser = Parser("research.real_path_table", __doc__)
    known = {row.name: row for row in REAL_PATH}
    parser.add_argument("--only", type=_bug(known), metavar="NAME", help="one bug alone")
    parser.add_argument("--store", action="store_true", help="of one bug, its row too")
    parser.add_argument("--repeat", type=whole(1), default=1, metavar="N", help="times each")
    chosen = parser.parse_args(arguments)
    made = []
    bugs = REAL_PATH if chosen.only is None else (chosen.only,)
    for row in rows(bugs, chosen.repeat):
        made.append(row)
        print(row.line, flush=True)
        if chosen.only is not None and row.words:
            print(row.words)
    caught = sum(row.caught and row.clean for row in made)
    print(f"{caught} of {len(made)} bugs of the real path found.")
    if chosen.only is None or chosen.store:
        found = {row.name: asdict(row) for row in made}
        stored = json.loads(TABLE.read_text()) if chosen.store else [*found.values()]
        table = [found.get(row["name"], row) for row in stored]
        TABLE.write_text(json.dumps(table, indent=1) + "\n")
    return len(made) - caught


if __name__ == "__main__":
    sys.exit(min(main(), 1))
