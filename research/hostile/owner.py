"""An agent under fire: threads, exceptions at every line, signals, full memory, a failing disk.

    python -m research.hostile.owner --what learn stream save load --stride 1
    python -m research.hostile.owner --what threads signals term memory disk power --rounds 200

Every user has a cell of her own and the noise is far below one, so a release shows who is in it and
how often. Agents have a ledger and an autosave. After whatever happened a run goes on: in memory,
from a save that is made then, or from its autosave as after a kill. Four things are counted, and
all must be 0: runs that could not go on, users who are in more than one release or twice in one,
releases that nobody paid for, and receipts (``users_taken``) that were wrong.

Exceptions come at the n-th line of Tacit that a call runs, by tracing, for every n. Left out are
the end of a ``with`` statement and the word ``try`` itself, where CPython handles no signal.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict

from research.hostile.owner_faults import disk, memory, power
from research.hostile.owner_lines import lines
from research.hostile.owner_run import Tally
from research.hostile.owner_signals import signals, terminated, threads
from tacit.privacy.curators import id_files


def everything(rounds: int, stride: int) -> dict[str, Callable[[], Tally]]:
    """All of it, by name."""

    def of(parts: list[Tally]) -> Tally:
        whole = Tally()
        for part in parts:
            whole.add(part)
        return whole

    return {
        "threads": lambda: of([threads(n, rounds, seed=n // 2) for n in (2, 4, 8)]),
        "learn": lambda: lines("learn", stride=stride),
        "stream": lambda: lines("learn", stride=stride, ids=False, counter="binary tree"),
        "save": lambda: lines("save", stride=stride),
        "load": lambda: lines("load", stride=stride),
        "signals": lambda: signals(500 * rounds),
        "term": lambda: terminated(5 * rounds // 2),
        "memory": lambda: memory(rounds // 4),
        "disk": lambda: disk(stride=max(1, stride // 8)),
        "power": lambda: power(stride=max(1, stride // 8)),
    }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", nargs="+", default=[*everything(1, 1)])
    parser.add_argument("--rounds", type=int, default=200, help="of a run of threads, and the rest")
    parser.add_argument("--stride", type=int, default=1, help="every so many lines or calls")
    parser.add_argument("--beside", action="store_true", help="ids are in a file of their own")
    options = parser.parse_args()
    if options.beside:
        id_files.INLINE = 0
    for name in options.what:
        tally = everything(options.rounds, options.stride)[name]()
        print(json.dumps({"what": name} | asdict(tally)), flush=True)


if __name__ == "__main__":
    main()
