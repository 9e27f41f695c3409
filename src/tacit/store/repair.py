"""Repair of a store that is damaged or an older copy, on an operator's word.

Nothing that was spent comes back. Accounts only go up; costs of releases that the ledger lacks are
entered; a run of which releases are missing or unpaid ends. An older copy would draw the noise of
its blocks again: there all runs end, users who wait have paid, and where people have a limit over
all runs no one takes part any more, since payments in the lost part are not known. Entries are
never changed: a chain that is broken in its middle stays so for :func:`tacit.store.ledger.verify`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import sqlalchemy as sa
from sqlalchemy import func, insert, select, update

from tacit.store import ledger, schema
from tacit.store.runs import open_block
from tacit.store.schema import accounts, blocks, entries, people, releases, runs, stores
from tacit.store.store import Store, change_rows, delete_rows, rows_of

CLOSED = -1
"""Limit of people in a store that takes no one in any more."""


def repair(store: Store, expect: str = "") -> dict[str, Any]:
    """Repairs what can be; says what was wrong, and what was done.

    Args:
        store: Which one.
        expect: Head that was seen before, as in a policy.

    Returns:
        The ``problems`` found, the runs that ``ended``, how many ``accounts`` changed, and the
        problems that are ``left``. Without problems nothing is changed.
    """
    found, ended, changed = ledger.verify(store, expect), list[str](), 0
    if found:
        with store.write() as db:
            last = db.execute(select(entries).order_by(entries.c.seq.desc()).limit(1)).first()
            before, now = ledger.head(db), (0, "") if last is None else (last.seq, last.hash)
            db.info["ledger"] = now
            db.execute(update(stores).values(seq=now[0], head=now[1]))
            seen = select(func.count()).where(entries.c.hash == expect)
            older, wrong = bool(expect) and not db.scalar(seen), _enter(db)
            for run in db.execute(select(runs).order_by(runs.c.run)).all():
                if older or run.run in wrong or run.taken != ledger.taken(db, run):
                    _end(db, run)
                    ended.append(run.run)
            if older:
                db.execute(update(stores).where(stores.c.most > 0).values(most=CLOSED))
            changed = _raise_accounts(db)
            body = {"problems": len(found), "before": before, "expected": expect, "ended": ended}
            ledger.append(db, "", "repair", **body, accounts=changed)
    left = ledger.verify(store) if found else []
    return {"problems": found, "ended": ended, "accounts": changed, "left": left}


def _enter(db: sa.Connection) -> set[str]:
    """Enters what releases cost, in the ledger and in the table; runs in which these differed."""
    known, wrong, limits = set[tuple[str, int, int]](), set[str](), dict[str, str]()
    for entry in [*ledger.read(db)]:
        if entry.event == "start":
            limits[entry.run] = str(Fraction(entry.body["limit"] or 1))
        if entry.event != "release":
            continue
        cost, key = entry.body["cost"], (entry.run, entry.body["block"], entry.body["number"])
        known.add(key)
        row = dict(zip(("run", "block", "number"), key, strict=True))
        was = rows_of(db, releases, **row).first()
        if was is None or Fraction(was.cost) != Fraction(cost):
            wrong.add(entry.run)
            delete_rows(db, releases, **row)
            db.execute(insert(releases).values(**row, cost=cost, value=b""))
    for each in db.execute(select(releases)).all():
        if (each.run, each.block, each.number) not in known:
            wrong.add(each.run)
            who = ledger.released(db, each.run, each.block)
            body = {"block": each.block, "number": each.number, "cost": each.cost}
            body |= {"limit": limits.get(each.run, each.cost), "people": ledger.digest(who)}
            ledger.append(db, each.run, "release", **body, users=len(who))
    return wrong


def _end(db: sa.Connection, run: Any) -> None:
    """Ends a run: whoever waits has paid, her episode is erased, and no block has room any more."""
    for table, fate in ((people, "released"), (schema.events, "forgotten")):
        change_rows(db, table, {"run": run.run, "fate": "waiting"}, fate=fate)
    delete_rows(db, schema.packets, run=run.run)
    change_rows(db, blocks, {"run": run.run}, stage="done")
    last = db.scalar(select(func.max(blocks.c.block)).where(blocks.c.run == run.run))
    open_block(db, run, 0 if last is None else last + 1, 0)
    change_rows(db, runs, {"run": run.run}, epoch=run.epoch + 1, taken=ledger.taken(db, run))


def _raise_accounts(db: sa.Connection) -> int:
    """Brings accounts up to what people paid, and people up to their accounts; how many changed."""
    sums = select(people.c.person, people.c.fate, func.sum(people.c.pays))
    rows = db.execute(sums.where(people.c.person != "").group_by(people.c.person, people.c.fate))
    paid = {(who, fate): int(total) for who, fate, total in rows}
    held = {row.person: (row.spent, row.reserved) for row in db.execute(select(accounts))}
    changed = 0
    for who in sorted({*held, *(person for person, _ in paid)}):
        owes, waits = (paid.get((who, fate), 0) for fate in ("released", "waiting"))
        spent, reserved = held.get(who, (0, 0))
        if (spent, reserved) != (owes, waits):
            changed += 1
            spent = max(spent + max(0, reserved - waits), owes)
            delete_rows(db, accounts, person=who)
            db.execute(insert(accounts).values(person=who, spent=spent, reserved=waits))
        if spent > owes:  # by what no episode shows
            row = {"run": "", "person": who, "block": -1, "fate": "released"}
            db.execute(insert(people).values(**row, pays=spent - owes))
    return changed
