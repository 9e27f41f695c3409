"""Which bugs of the real path our own tests find, and by which check.

``python -m research.real_path_table`` puts the agent of every row of
:mod:`research.planted.real_path` to the checks of ``tests/own_path``, and to those of
``tacit.check_agent`` where these find nothing: without the bug, where they must pass, and with it.
It prints a line for each. ``--only NAME`` is for one bug. Real noise has no seed, so a bug may be
found by luck: ``--repeat 3`` looks three times, and a bug counts as caught if it is found each
time.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Sequence
from functools import cache

from research.planted.real_path import REAL_PATH, RealPathBug
from research.study import Parser, whole
from tests.own_path.suite import real_outcomes


def failed(row: RealPathBug) -> dict[str, str]:
    """The checks that fail for the agent of a row, and what they say."""
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


@cache
def _clean(row: RealPathBug) -> bool:
    return not failed(row)


def looked(row: RealPathBug, repeat: int = 1) -> tuple[bool, str]:
    """Whether a bug is found each time, and a line about it."""
    # What differs between two rows of one agent is not part of the checks without a bug.
    plain = row._replace(name="", kind="", what="", plant=contextlib.nullcontext)
    if not _clean(plain):
        return False, f"{row.kind}  {row.name:24} fails without it"
    start, made = time.process_time(), list[dict[str, str]]()
    for _ in range(repeat):
        with row.plant():
            made.append(failed(row))
    seconds, times = (time.process_time() - start) / repeat, sum(map(bool, made))
    verdict = "not caught" if not times else f"{times} of {repeat} times"
    if times == repeat:
        verdict = f"caught by {', '.join(dict.fromkeys(n for found in made for n in found))}"
    return times == repeat, f"{row.kind}  {row.name:24} {seconds:5.1f} s  {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns how many bugs were not found."""
    parser = Parser("research.real_path_table", __doc__)
    names = [row.name for row in REAL_PATH]
    parser.add_argument("--only", choices=names, metavar="NAME", help="one bug alone")
    parser.add_argument("--repeat", type=whole(1), default=1, metavar="N", help="times each")
    chosen = parser.parse_args(arguments)
    bugs = [row for row in REAL_PATH if chosen.only in (None, row.name)]
    caught = 0
    for row in bugs:
        found, line = looked(row, chosen.repeat)
        caught += found
        print(line, flush=True)
    print(f"{caught} of {len(bugs)} bugs of the real path found.")
    return len(bugs) - caught


if __name__ == "__main__":
    sys.exit(min(main(), 1))
