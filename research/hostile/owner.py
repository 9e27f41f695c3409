"""An agent under fire: threads, exceptions at every line, signals, full memory, a failing disk.

    python -m research.hostile.owner --store
    python -m research.hostile.owner --what learn save load --stride 100
    python -m research.hostile.owner --what threads signals term memory disk power --rounds 20

Every user has a cell of her own and the noise is far below one, so a release shows who is in it and
how often. Agents have a ledger and an autosave. After whatever happened a run goes on: in memory,
from a save that is made then, or from its autosave as after a kill. Four things are counted, and
all must be 0: runs that could not go on, users who are in more than one release or twice in one,
releases that nobody paid for, and receipts (``users_taken``) that were wrong.

Exceptions come at the n-th line of Tacit that a call runs, by tracing, for every n. Left out are
the end of a ``with`` statement and the word ``try`` itself, where CPython handles no signal.

``--store`` does all of it in parts, and writes what was found to ``research/hostile_owner.json``
after each. Called again it goes on with the part behind the last one; ``--what`` chooses.
``--table`` puts what is stored into ``docs/operations.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from research.hostile import ledgers
from research.hostile.owner_families import FAMILIES, families
from research.hostile.owner_faults import disk, memory, power
from research.hostile.owner_lines import lines
from research.hostile.owner_run import Tally
from research.hostile.owner_signals import signals, terminated, threads
from tacit.privacy.curators import id_files

STORED = Path(__file__).parents[1] / "hostile_owner.json"
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"

_LINES, _SIGNALS, _TERMS, _KILLS, _TIMES = 250, 2_500, 50, 30, 20  # in one part
SIGNALS, TERMS, KILLS, ROUNDS, TIMES = 100_000, 500, 300, 200, 100
"""In all."""
_STREAM: dict[str, Any] = {"ids": False, "counter": "binary tree"}


def everything(rounds: int, stride: int) -> dict[str, Callable[[], Tally]]:
    """All of it, by name."""

    def of(parts: list[Tally]) -> Tally:
        whole = Tally()
        for part in parts:
            whole.add(part)
        return whole

    def at(what: str, **more: Any) -> Callable[[], Tally]:
        return lambda: lines(what, stride=stride, **more)[0]

    return {
        "threads": lambda: of([threads(n, rounds, seed=n // 2) for n in (2, 4, 8)]),
        "learn": at("learn"),
        "stream": at("learn", **_STREAM),
        "save": at("save"),
        "load": at("load"),
        "families": lambda: families(rounds),
        "signals": lambda: signals(500 * rounds),
        "term": lambda: terminated(5 * rounds // 2),
        "memory": lambda: memory(rounds // 4),
        "disk": lambda: disk(stride=max(1, stride // 8)),
        "power": lambda: power(stride=max(1, stride // 8)),
    }


# In parts, stored.

Part = Callable[[int], tuple[Tally, bool]]


def parts() -> dict[str, Part]:
    """All of it at full counts, by name: the n-th part, and whether it is the last."""

    def at(what: str, *, beside: bool = False, **more: Any) -> Part:
        def part(n: int) -> tuple[Tally, bool]:
            inline, id_files.INLINE = id_files.INLINE, 0 if beside else id_files.INLINE
            try:
                return lines(what, start=_LINES * n + 1, stop=_LINES * (n + 1) + 1, **more)
            finally:
                id_files.INLINE = inline

        return part

    def seeded(call: Callable[[int, int], Tally], size: int, whole: int) -> Part:
        return lambda n: (call(size, n), (n + 1) * size >= whole)

    return {
        "threads": lambda n: (threads((2, 4, 8)[n], ROUNDS, seed=n), n == 2),
        "learn": at("learn"),
        "learn, ids beside": at("learn", beside=True),
        "stream": at("learn", **_STREAM),
        "save": at("save"),
        "save, ids beside": at("save", beside=True),
        "load": at("load"),
        "load, ids beside": at("load", beside=True),
        "families": seeded(families, _TIMES, TIMES),
        "signals": seeded(signals, _SIGNALS, SIGNALS),
        "term": seeded(terminated, _TERMS, TERMS),
        "memory": lambda n: (memory(ROUNDS // 2), True),
        "disk": lambda n: (disk(), True),
        "power": lambda n: (power(), True),
        "people": seeded(_killed, _KILLS, KILLS),
    }


def _killed(kills: int, seed: int) -> Tally:
    """Four processes on one ledger of people, killed at random; who never had a turn is lost."""
    told = ledgers.kill_many(kills, seed)
    tally = Tally(tried=told.runs, hit=told.kills, unpaid=len(told.problems))
    tally.lost_runs = sum(turns == 0 for turns in told.turns)
    for problem in told.problems:
        tally.note(problem)
    return tally


def _stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(STORED.read_text()) if STORED.exists() else {}
    return found


def store(names: list[str]) -> None:
    """Does what is missing, part by part."""
    for name, part in parts().items():
        while name in names or not names:
            before = _stored().get(name, {"parts": 0, "done": False} | asdict(Tally()))
            if before["done"]:
                break
            tally = Tally(**{key: before[key] for key in asdict(Tally())})
            found, done = part(before["parts"])
            tally.add(found)
            stored = _stored()  # others may have stored something meanwhile
            stored[name] = {"parts": before["parts"] + 1, "done": done} | asdict(tally)
            STORED.write_text(json.dumps(stored, indent=1) + "\n")
            print(json.dumps({"what": name} | stored[name]), flush=True)


_HEADER = "| what came | times | blocks through | lost | runs lost | users twice | unpaid | wrong |"
_WORDS = {
    "threads": "2, 4 and 8 threads on one agent, 200 blocks each",
    "learn": "an exception at every line of `learn`",
    "learn, ids beside": "the same, ids in a file of their own",
    "stream": "the same, blocks summed by a counter",
    "save": "an exception at every line of `save`",
    "save, ids beside": "the same, ids in a file of their own",
    "load": "an exception at every line of `load`",
    "load, ids beside": "the same, ids in a file of their own",
    "families": f"an exception at random lines of `learn`, and 4 threads; {len(FAMILIES)} agents",
    "signals": "real signals whose handler raises, in `learn`, `save` and `load`",
    "term": "SIGTERM, turned into an exit that saves, in processes",
    "memory": "memory at its limit in `learn`",
    "disk": "a system call that fails (full or broken disk), each in turn",
    "power": "the power fails before each system call",
    "people": "kills of one of four processes on one ledger of people",
}


def table() -> list[str]:
    """What is stored, as the page has it."""
    stored = _stored()
    rows = [_HEADER, "|---|---|---|---|---|---|---|---|"]
    for name, words in _WORDS.items():
        if (row := stored.get(name)) is not None:
            times = row["hit"] or row["tried"] * (1 if name == "power" else 200)
            more = "" if row["done"] else " so far"
            found = (row[key] for key in ("lost_runs", "users_twice", "unpaid", "wrong_receipts"))
            blocks = f"{row['blocks']:,} | {row['lost_blocks']:,}" if row["blocks"] else "- | -"
            rows.append(f"| {words} | {times:,}{more} | {blocks} | {' | '.join(map(str, found))} |")
    return rows


def write_page() -> None:
    """Puts the table into the page, in the place of the old one."""
    before, _, rest = PAGE.read_text().partition(_HEADER)
    _, _, after = rest.partition("\n\n")
    PAGE.write_text(before + "\n".join(table()) + "\n\n" + after)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", nargs="+", default=[])
    parser.add_argument("--store", action="store_true", help="in parts, at full counts")
    parser.add_argument("--rounds", type=int, default=200, help="of a run of threads, and the rest")
    parser.add_argument("--stride", type=int, default=1, help="every so many lines or calls")
    parser.add_argument("--beside", action="store_true", help="ids are in a file of their own")
    parser.add_argument("--table", action="store_true", help="what is stored, onto the page")
    options = parser.parse_args()
    if options.table:
        write_page()
        print("\n".join(table()))
        return
    if options.store:
        store(options.what)
        return
    if options.beside:
        id_files.INLINE = 0
    known = everything(options.rounds, options.stride)
    for name in options.what or known:
        tally = known[name]()
        print(json.dumps({"what": name} | asdict(tally)), flush=True)


if __name__ == "__main__":
    main()
