"""Hostile input on every public entry point: wrong arguments, corrupted files.

``python -m research.hostile_campaign --examples 200`` draws inputs with Hypothesis and
prints a line per entry point: how many inputs were tried, how many were refused with an error of
Tacit's own, how many were accepted, and how many broke something. The last number must be 0.

What breaks an entry point:

* a public mistake raises anything but a :class:`tacit.TacitError` (or an ``OSError``, for files),
  does not name the argument, or changes something although it is refused;
* a wrong type is accepted where no reading of it makes sense;
* a file that was corrupted, forged or holds a pickle is read as if it were whole, or executed;
* after a failure a file is half-written, a temporary one is left, or a secret one is readable;
* an absurd size takes memory or time before it is refused.

What is tried, and where, is in :mod:`research.hostile`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from research.hostile.arguments import argument_entries
from research.hostile.files import file_entries
from research.hostile.fuzzing import HEADING, EntryPoint, fuzz
from research.study import Parser, whole


def entry_points() -> list[EntryPoint]:
    """Everything that is attacked."""
    return [*argument_entries(), *file_entries()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the campaign."""
    parser = Parser("research.hostile_campaign", __doc__)
    parser.add_argument("--examples", type=whole(1), default=100, help="per entry point")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the inputs")
    parser.add_argument("--only", default="", help="entry points whose names hold this")
    options = parser.parse_args(arguments)
    print(HEADING)
    broken = 0
    for entry in entry_points():
        if options.only in entry.name:
            tally = fuzz(entry, options.examples, options.seed)
            print(tally, *tally.broken[:3], sep="\n    ", flush=True)
            broken += len(tally.broken)
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
