"""The ledger: what was spent and done, in entries that are only ever added.

Each entry is hashed over the one before it, so the hash of the last one stands for all. It says how
many users a release had, what it cost each of them and a hash over their pseudonyms; who they are
is in the table of people, which outlives their episodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func, select

from tacit.store.schema import accounts, blocks, entries, people, releases, runs, stores
from tacit.store.store import Store, append, digest, rows_of

__all__ = ["Entry", "append", "digest", "head", "read", "released", "verify"]


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    seq: int
    run: str
    event: str
    at: float
    body: dict[str, Any]
    hash: str

    def line(self) -> str:
        """The entry as a line of JSON, for an auditor."""
        return json.dumps({**vars(self)}, sort_keys=True)


def head(db: sa.Connection) -> tuple[int, str]:
    """Number and hash of the last entry."""
    row = db.execute(select(stores.c.seq, stores.c.head)).one()
    return row.seq, row.head


def read(db: sa.Connection, run: str | None = None) -> Iterator[Entry]:
    """Entries in their order, of one run or of all."""
    query = select(entries).order_by(entries.c.seq)
    for row in db.execute(query if run is None else query.where(entries.c.run == run)):
        yield Entry(row.seq, row.run, row.event, row.at, json.loads(row.body), row.hash)


def released(db: sa.Connection, run: str, block: int) -> list[str]:
    """Pseudonyms of who is in a released block, in the order in which they came."""
    return [row.person for row in rows_of(db, people, "id", run=run, block=block, fate="released")]


def taken(db: sa.Connection, run: Any) -> int:
    """How many places its blocks say that a run has given away."""
    return int(db.scalar(select(func.sum(blocks.c.places)).where(blocks.c.run == run.run)) or 0)


def verify(store: Store, expect: str = "") -> list[str]:
    """Problems of a store's ledger and accounts, recomputed from the first entry; [] if none.

    Args:
        store: Which one.
        expect: Head that was seen before, as in a policy: an older copy of the store lacks it.
    """
    with store.read() as db:
        return [*_problems(db, expect)]


def _problems(db: sa.Connection, expect: str) -> Iterator[str]:
    last, seen, count = "", not expect, 0
    terms, spent = dict[str, Any](), dict[tuple[str, int], Fraction]()
    for entry in db.execute(select(entries).order_by(entries.c.seq)):
        count += 1
        chained = digest(last, count, entry.run, entry.event, entry.at, entry.body)
        if (entry.seq, entry.hash) != (count, chained):
            yield f"entry {entry.seq} does not continue the ledger"
        last, seen = entry.hash, seen or entry.hash == expect
        try:
            body = json.loads(entry.body)
        except ValueError:
            yield f"entry {entry.seq} cannot be read"
            continue
        terms |= {entry.run: body} if entry.event == "start" else {}
        if entry.event == "release":
            key = entry.run, body["block"]
            spent[key] = spent.get(key, Fraction(0)) + Fraction(body["cost"])
            who = released(db, *key)
            if body["people"] != digest(who):
                yield f"entry {entry.seq}: block {key[1]} of {key[0]} has other people"
            if spent[key] > Fraction(body["limit"]) * Fraction(1 + 1e-12):
                yield f"entry {entry.seq}: block {key[1]} of {key[0]} is overspent"
    row = db.execute(select(stores)).one()
    if (row.seq, row.head) != (count, last):
        yield "the ledger was cut off, or added to by something else"
    if not seen:
        yield "the ledger lacks an entry that was seen before: this is an older copy, or another"
    costs = dict[tuple[str, int], Fraction]()
    for run, block, cost in db.execute(select(releases.c.run, releases.c.block, releases.c.cost)):
        costs[run, block] = costs.get((run, block), Fraction(0)) + Fraction(cost)
    if costs != spent:
        yield "releases were recorded that are not in the ledger, or are missing"
    for run in db.execute(select(runs)):
        mine = {"users": run.users, "episodes": run.episodes, "parts": run.cost}
        if any(terms.get(run.run, mine).get(name, is_) != is_ for name, is_ in mine.items()):
            yield f"{run.run} has other terms than the ledger says"
        if run.taken != taken(db, run):
            yield f"the blocks of {run.run} have other users than it has taken"
    yield from _accounts(db, row.most)


def _accounts(db: sa.Connection, most: int) -> Iterator[str]:
    def paid(fate: str) -> dict[str, int]:
        rows = select(people.c.person, func.sum(people.c.pays)).where(people.c.fate == fate)
        return {who: int(sum_) for who, sum_ in db.execute(rows.group_by(people.c.person)) if sum_}

    spent, reserved = paid("released"), paid("waiting")
    for row in db.execute(select(accounts)):
        mine = spent.pop(row.person, 0), reserved.pop(row.person, 0)
        if (row.spent, row.reserved) != mine:
            yield f"the account of {row.person} differs from what its episodes paid"
        if most > 0 and sum(mine) > most:
            yield f"{row.person} has spent more than anybody may"
    if spent or reserved:
        yield "people have paid who have no account"
