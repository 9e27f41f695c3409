"""The command of the campaign; see :mod:`research.campaign`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from research.campaign import histories, library
from research.campaign.servers import KINDS

STORED = Path(__file__).parents[1] / "campaign.json"
DATABASES = ("sqlite", "postgresql")
Found = tuple[dict[str, int], list[str]]


def rows(given: argparse.Namespace) -> Iterator[tuple[str, Callable[[], Found]]]:
    """Name of each row that is asked for, and what computes its counts and all that is wrong."""
    known = library.everything(given.rounds, given.stride)
    seed = f", seed {given.seed}" if given.seed else ""  # another history, kept beside the first
    for what in given.what or [*histories.CASES, *histories.NAMED, *known]:
        if parts := [name for name in known if what in (name, name.partition(", ")[0])]:
            for name in parts:
                yield name, partial(_of_library, known[name], given.stride)
        elif what in histories.CASES:
            case = histories.CASES[what]
            for database in given.database or case.databases:
                for kind in set(given.kind or case.kinds) & {*case.kinds}:
                    args = database, kind, what, given.kills, given.seed
                    name = f"{what}{seed}, {database}, {kind}"
                    yield name, partial(_of, histories.history, *args)
        else:
            name = f"{what}{seed}, postgresql, on-policy"
            yield name, partial(_of, histories.NAMED[what], given.kills, given.seed)


def _of(case: Callable[..., histories.History], *args: Any) -> Found:
    told = case(*args)
    return dict(told.counts), told.wrong


def _of_library(part: Callable[[], library.Tally], stride: int) -> Found:
    counts = asdict(part()) | {"stride": stride}
    wrong = counts.pop("problems")
    return counts, wrong


def table(held: dict[str, Any]) -> list[str]:
    """A line for each row, and one for all kills."""
    found, kills, wrong = [], dict[str, int](), 0
    for name, row in sorted(held.items()):
        counts = row["counts"]
        said = ", ".join(f"{value:,} {key}" for key, value in counts.items() if value)
        found.append(f"{name}: {len(row['wrong'])} wrong; {said}; {row['seconds']} s")
        wrong += len(row["wrong"])
        _, *where = name.split(", ", 1)
        of = ", ".join(where[0].split(", ")[-2:]) if where else "library"
        kills[of] = kills.get(of, 0) + counts.get("kills", 0)
    found += [f"kills, {of}: {count:,}" for of, count in sorted(kills.items()) if count]
    return [*found, f"all: {sum(kills.values()):,} kills, {wrong} wrong"]


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns how many things are wrong."""
    parser = argparse.ArgumentParser(description="A campaign against runs and services.")
    parser.add_argument("--what", nargs="+", default=[], help="cases; all by default")
    parser.add_argument("--database", choices=DATABASES, action="append")
    parser.add_argument("--kind", choices=[*KINDS], action="append")
    parser.add_argument("--kills", type=int, default=20, help="of each history, and of leaders")
    parser.add_argument("--rounds", type=int, default=200, help="blocks of threads, and the rest")
    parser.add_argument("--stride", type=int, default=1, help="every so many lines, and changes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", action="store_true", help="keep what was found")
    parser.add_argument("--show", action="store_true", help="print what is kept, and do nothing")
    given = parser.parse_args(arguments)
    held = json.loads(STORED.read_text()) if STORED.exists() else {}
    if given.show:
        print(*table(held), sep="\n")
        return 0
    all_wrong = 0
    for name, computed in rows(given):
        start = time.monotonic()
        counts, wrong = computed()
        seconds = round(time.monotonic() - start)
        row = {name: {"counts": counts, "wrong": wrong, "seconds": seconds}}
        print(table(row)[0], *wrong[:20], sep="\n", flush=True)
        all_wrong += len(wrong)
        if given.store:
            held = json.loads(STORED.read_text()) if STORED.exists() else {}
            STORED.write_text(json.dumps(held | row, indent=1, sort_keys=True) + "\n")
    return all_wrong


if __name__ == "__main__":
    sys.exit(min(main(), 1))
