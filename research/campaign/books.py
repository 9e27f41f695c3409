"""Compares a store with the journal of those who used it.

Who was accepted is in exactly one release of a run, waits for one, or was told otherwise; nobody
pays twice, or more than anybody may; the sums that were released are those of exactly the people
who paid: noise is negligible here, and every person's rewards are known to the journal.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from research.campaign.clients import Sent, Told
from tacit.store import ledger
from tacit.store.schema import (
    accounts,
    blocks,
    entries,
    events,
    packets,
    people,
    releases,
    runs,
    stores,
    versions,
)
from tacit.store.store import Store
from tacit.store.values import load

NEAR = 0.25  # sums that are nearer are the same


def audit(store: Store, told: Told, log: Path, counts: Counter[str]) -> list[str]:
    """All that is wrong; counts releases, and those whose sums were compared."""
    wrong = [*told.wrong, *ledger.verify(store)]
    for head in {*told.heads}:
        with store.read() as db:
            known = db.scalar(select(func.count()).where(entries.c.hash == head))
        wrong += [] if known else ["lost: the ledger lacks an entry that somebody has seen"]
    with store.read() as db:
        names = store.pseudonyms([sent.user for sent in told.sent.values()])
        mine = {sent.user: name for sent, name in zip(told.sent.values(), names, strict=True)}
        keys = store.pseudonyms([f"{mine[s.user]} {s.event}" for s in told.sent.values()])
        by_key = dict(zip(keys, told.sent.values(), strict=True))
        stored = db.execute(select(events)).all()
        wrong += _events(told, by_key, stored)
        held = db.execute(select(people).where(people.c.person != "")).all()
        live = [row.event for row in stored if row.fate in ("waiting", "counted")]
        wrong += _people(told, mine, Counter(by_key[e].user for e in live if e in by_key), held)
        wrong += _accounts(db, held)
        wrong += _releases(db, by_key, mine, counts)
        wrong += _versions(db, told)
    text = log.read_text(errors="replace") if log.exists() else ""
    if any(sent.user in text or sent.event in text for sent in told.sent.values()):
        wrong.append("the log names people or events")
    return wrong


def _events(told: Told, sent: dict[str, Sent], stored: Any) -> list[str]:
    """Each event has the fate that its device and those who forgot people were told.

    A device whose first answer was lost with its process may be told "forgotten" and nothing else:
    its event was taken, and has been forgotten since. So what was forgotten is counted in the
    store's events, and not against those that were accepted.
    """
    wrong, rows, gone = list[str](), {row.event: row for row in stored}, Counter[str]()
    for key, one in sent.items():
        row = rows.pop(key, None)
        fate = row.fate if row is not None else ""
        gone[one.user] += fate == "forgotten"
        if one.accepted and not fate:
            wrong.append("lost: an accepted event is not in the store")
        if one.told and not one.accepted and fate not in ("", "forgotten"):
            wrong.append(f"a device that was told {one.told} has an event that is {fate}")
        if "forgotten" in one.told and fate != "forgotten":
            wrong.append("a device was told that it was forgotten, and is not")
        if fate == "unreadable":
            wrong.append("lost: rows were set aside")
    for user, count in gone.items():  # by requests that were not answered, perhaps more
        removed, _ = told.forgotten.get(user, (0, 0))
        if count < removed or (count > removed and not told.unsure[user]):
            wrong.append(f"lost: {count} events are forgotten, and {removed} were asked for")
    if rows:
        wrong.append(f"{len(rows)} events are in the store that nobody sent")
    tickets = Counter(one.ticket for one in sent.values() if one.accepted and one.ticket)
    return wrong + ["twice: a ticket was accepted twice"] * (max(tickets.values(), default=1) > 1)


def _people(told: Told, mine: dict[str, str], live: Counter[str], rows: Any) -> list[str]:
    """Each user has a place for each of her live events, and one in a run and its successors."""
    wrong, count = list[str](), Counter((row.person, row.run[:5] == "night") for row in rows)
    released = Counter(row.person for row in rows if row.fate == "released")
    for user, name in mine.items():
        there = count[name, False] + count[name, True]
        if there != live[user]:
            wrong.append(f"lost: {live[user]} events wait or count, {there} in blocks")
        if max(count[name, False], count[name, True]) > 1:
            wrong.append("twice: somebody has two places")
        if told.forgotten.get(user, (0, 0))[1] > released[name]:
            wrong.append("lost: the curator was told that she was released, and she is not")
    if {name for name, _ in count} - {*mine.values()}:
        wrong.append("people have places who sent nothing")
    return wrong


def _accounts(db: Any, rows: Any) -> list[str]:
    wrong, spent, reserved = list[str](), Counter[str](), Counter[str]()
    costs = {row.run: row.cost for row in db.execute(select(runs))}
    most = db.scalar(select(stores.c.most))
    for row in rows:
        (spent if row.fate == "released" else reserved)[row.person] += row.pays
        if row.pays != costs[row.run]:
            wrong.append("overspent: somebody pays another price than that of the run")
    for row in db.execute(select(accounts)):
        if (row.spent, row.reserved) != (spent.pop(row.person, 0), reserved.pop(row.person, 0)):
            wrong.append("overspent: an account is not what its episodes paid")
        if most and row.spent + row.reserved > most:
            wrong.append("overspent: somebody has paid more than anybody may")
    return wrong + ["overspent: no account of who paid"] * any((spent + reserved).values())


def _releases(
    db: Any, sent: dict[str, Sent], mine: dict[str, str], counts: Counter[str]
) -> list[str]:
    """Sums are those of the people who paid."""
    wrong, seen = list[str](), Counter[tuple[str, int, int]]()
    stages = {(row.run, row.block): row for row in db.execute(select(blocks))}
    before = Counter[str]()
    query = select(releases).order_by(releases.c.run, releases.c.block, releases.c.number)
    for row in db.execute(query):
        block, found = stages[row.run, row.block], load(row.value)
        counts["releases"] += 1
        seen[row.run, row.block, row.number] += 1
        if block.stage not in ("released", "done"):
            wrong.append(f"block {row.block} has a release, and is {block.stage}")
        here = (events.c.run == row.run, events.c.block == row.block, events.c.fate == "counted")
        keys = db.scalars(select(events.c.event).where(*here))
        people_ = [sent[key] for key in keys if key in sent]
        paid = sorted(ledger.released(db, row.run, row.block))
        if sorted(mine[one.user] for one in people_) != paid:
            wrong.append(f"twice or lost: block {row.block} counts others than those who paid")
        of = {"visits": "states"} if "visits" in found.parts else {}
        if found.parts.keys() == {"rewards", "transitions"}:
            of = {"rewards": "rewards", "transitions": "steps"}
        # What was released, and what is due; of an episode with messages that were late, at most.
        sums = {
            name: (float(found[name].sum()), [(getattr(p, own), p.whole) for p in people_])
            for name, own in of.items()
        }
        if "first_paid" in found.parts:  # of a counter, over all blocks so far
            now = block.places + (before[row.run] if found.users > block.places else 0)
            before[row.run] += block.places
            sums["places"] = found.users, [(now, True)]
        counts["sums"] += bool(sums)
        for name, (said, each) in sums.items():
            due, sure = sum(x for x, _ in each), sum(x for x, whole in each if whole)
            if not sure - NEAR <= said <= due + NEAR:
                wrong.append(f"twice or lost: block {row.block} has {name} {said}, not {due}")
    undone = {key for key, row in stages.items() if row.stage not in ("released", "done")}
    raw = {(row.run, row.block) for row in db.execute(select(packets))}
    several = max(seen.values(), default=1) > 1
    return (
        wrong
        + ["raw data of a released block is there"] * (not raw <= undone)
        + (["twice: a block was released twice"] * several)
    )


def _versions(db: Any, told: Told) -> list[str]:
    wrong, run = list[str](), "run"
    of = select(versions).where(versions.c.run == run)
    kept = {row.version: f'"{row.etag}"' for row in db.execute(of)}
    backs = sum(entry.event == "roll back" for entry in ledger.read(db, run))
    query = select(func.count()).select_from(blocks)
    done = db.scalar(query.where(blocks.c.run == run, blocks.c.stage == "done"))
    # A block that is rolled back between its commits has no version of its own.
    dropped = 1 + done + backs - len(kept)
    if not 0 <= dropped <= backs or sorted(kept) != [*range(len(kept))]:
        wrong.append(f"{len(kept)} versions of {done} blocks and {backs} ways back")
    for version, etags in told.policies.items():
        if etags != {kept.get(version)}:
            wrong.append(f"devices read {len(etags)} policies of version {version}, or another one")
    return wrong
