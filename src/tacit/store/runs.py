"""Runs: who is taken into which block, and the two commits that move a block on.

Every function works in a transaction of its caller (``db``). A ``run`` is a row as it was read, and
``name`` its key; a *place* is one in a block, a ``position`` that of a person's row in a packet.
Stages of a block: *open* (places are taken), *closed* (those who have a place may still send),
*sealed* (its users are known), *released* (its query is answered on record and its episodes are
erased), *done* (its policy is published).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy import bindparam, func, insert, select, update

from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.store.ledger import released
from tacit.store.schema import (
    accounts,
    blocks,
    events,
    packets,
    people,
    problems,
    releases,
    runs,
    stores,
    versions,
)
from tacit.store.store import Conflict, append, change_rows, delete_rows, digest, parts, rows_of
from tacit.store.values import dump, load

UNIT = 10**12  # parts of one mu^2 (or epsilon, under pure DP) in accounts
_MOST = 2**62  # whatever it is, it hides nothing


@dataclass(frozen=True)
class Terms:
    """Under which terms people take part in a run."""

    unit: str  # "mu^2" or "epsilon", perhaps "(zero-out)"; "" without accounts
    limit: float  # that one episode may spend, in this unit
    cost: float  # that a person pays who takes part, with all her episodes
    episodes: int  # of one person, at most; 0: any number
    once: bool  # whether nobody is in a block twice
    users: int  # declared
    promise: Mapping[str, Any] | None = None  # the guarantee, as JSON values
    simulation: bool = False


def create(db: sa.Connection, name: str, terms: Terms, **values: Any) -> Any:
    """Row of a new run; ``values`` are columns beside its terms, the ``fingerprint`` among them.

    Raises:
        InvalidArgument: There is one of this name, or the store is of another kind.
    """
    if find(db, name) is not None:
        raise InvalidArgument(f"the store has a run {name!r}: tacit.open goes on with it")
    store = db.execute(select(stores)).one()
    if rows_of(db, runs).first() and bool(store.simulation) != terms.simulation:
        kind = "simulations" if store.simulation else "people"
        raise InvalidArgument(f"this store is one of {kind}, for ever")
    if store.unit and terms.unit and store.unit != terms.unit:
        raise InvalidArgument(f"accounts of this store are in {store.unit}, not in {terms.unit}")
    unit = terms.unit or store.unit
    db.execute(update(stores).values(simulation=int(terms.simulation), unit=unit))
    row = {"run": name, "made": b"", "block": -1}
    row |= {"version": -1, "latest": -1, "users": terms.users, "episodes": terms.episodes} | values
    cost = min(-int(-Fraction(terms.cost) * UNIT // 1), _MOST)
    db.execute(insert(runs).values(**row, cost=cost, once=int(terms.once)))
    append(db, name, "start", fingerprint=values["fingerprint"], parts=cost, **vars(terms))
    return find(db, name)


def find(db: sa.Connection, name: str) -> Any:
    """Row of a run, or None."""
    return _plain(runs, rows_of(db, runs, run=name).first())


def chain(db: sa.Connection, name: str) -> list[str]:
    """Names of a run and of those that go on from it, the newest first."""
    found = [name]
    while heir := db.scalar(select(runs.c.run).where(runs.c.predecessor == found[0])):
        found.insert(0, heir)
    return found


def block_of(db: sa.Connection, name: str, block: int) -> Any:
    """Row of a block, or None."""
    return _plain(blocks, rows_of(db, blocks, run=name, block=block).first())


def _plain(table: sa.Table, row: Any) -> Any:
    """A row, if any, whose columns are read often: SQLAlchemy's attributes are ten times slower."""
    return None if row is None else SimpleNamespace(**dict(zip(table.c.keys(), row, strict=True)))


def set_run(db: sa.Connection, name: str, **values: Any) -> None:
    """Changes columns of a run that need no fence."""
    change_rows(db, runs, {"run": name}, **values)


def fence(db: sa.Connection, run: Any, **values: Any) -> None:
    """Lets one of two writers on, who changes these columns; comes first in a commit.

    Raises:
        Conflict: The run has moved on since ``run`` was read.
    """
    seen = {"run": run.run, "epoch": run.epoch}
    if change_rows(db, runs, seen, epoch=run.epoch + 1, **values) != 1:
        raise Conflict("the run has moved on")


# Users.


_last = func.max(sa.case((people.c.run == bindparam("run"), people.c.block), else_=-1))
_came = (
    select(people.c.person, func.count(), _last)
    .where(people.c.run.in_(bindparam("chain", expanding=True)))
    .where(people.c.fate.in_(("waiting", "released")))
    .group_by(people.c.person)
)
_these_came = _came.where(people.c.person.in_(bindparam("who", expanding=True)))


def came(db: sa.Connection, run: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """How often people took part in a run and those before it, and in which block of it last."""
    chain, before = [run.run], run.predecessor
    while before:  # people of a predecessor took part
        chain, before = [*chain, before], find(db, before).predecessor
    found, of = dict[str, Any](), {"run": run.run, "chain": chain}
    given = [of] if names is None else [of | {"who": some} for some in parts([*set(names)])]
    for each in given:
        rows = db.execute(_came if names is None else _these_came, each)
        found |= {who: (int(n), int(block)) for who, n, block in rows}
    return found


def admit(db: sa.Connection, run: Any, block: int, names: Sequence[str]) -> list[int]:
    """Cost of each person who takes part now, and -1 of those who are refused.

    Args:
        db: A write transaction.
        run: The run's row.
        block: In which they take part.
        names: Their pseudonyms, one for each episode.
    """
    found, held = came(db, run, [name for name in names if name]), dict[str, int]()
    most = db.scalar(select(stores.c.most))
    if most and not all(names):
        raise InvalidArgument("people of this store have a limit over all runs: give user_ids")
    for some in parts([*set(names)]) if most else ():
        for row in rows_of(db, accounts, person=some):
            held[row.person] = row.spent + row.reserved
    answers = list[int]()
    for name in names:
        pays = 0 if not name or name in found else run.cost
        within = not most or held.get(name, 0) + pays <= most
        taken = not name or (within and visit(run, block, found, name))
        held[name] = held.get(name, 0) + pays * taken
        answers.append(pays if taken else -1)
    return answers


def visit(run: Any, block: int, visits: dict[str, tuple[int, int]], name: str) -> bool:
    """Whether a person may come to a block once more; then her visits are one more.

    Args:
        run: The run's row.
        block: In which she takes part.
        visits: How often people came, and in which block last.
        name: Her pseudonym.
    """
    count, last = visits.get(name, (0, -1))
    if (run.episodes and count >= run.episodes) or (run.once and last >= block):
        return False
    visits[name] = count + 1, max(block, last)
    return True


@dataclass(frozen=True)
class Packet:
    """Users who come together into one block."""

    users: int
    data: bytes  # of all of them; empty where the process holds it
    versions: Mapping[int, int]  # of them, by the version that they followed
    # Pseudonym of each, or none, and what she pays; or nobody's.
    people: Sequence[tuple[str, int]] = ()
    events: Sequence[tuple[str, str]] = ()  # event of each, and the ticket of her place
    missing: int = 0  # steps of which something is still to come, of one user's


def put(db: sa.Connection, run: Any, block: Any, packet: Packet) -> int:
    """Number of a packet that is put into a block now; its users reserve what they pay.

    Args:
        db: A write transaction.
        run: The run's row.
        block: The row of the block, read in this transaction; it is kept as it is from then on.
        packet: Users with all that is known of them.
    """
    row = {"run": run.run, "block": block.block, "users": packet.users, "data": packet.data}
    row |= {"version": min(packet.versions, default=0), "missing": packet.missing}
    done = db.execute(insert(packets), row)
    number = int(done.inserted_primary_key[0])  # type: ignore[index]
    shares, version = packet.versions, row["version"]  # without tickets they take places now
    if any(ticket for _, ticket in packet.events):  # a place that a process lost is written now
        here = (packets.c.run == run.run, packets.c.block == block.block)
        filled = select(func.sum(packets.c.users)).where(*here, packets.c.version == version)
        places = json.loads(block.versions).get(str(version), 0)
        lost = block.users + packet.users - places  # at most
        lost = int(db.scalar(filled) or 0) - places if lost > 0 else 0
        shares = {version: lost} if lost > 0 else {}
    take_places(db, run, block, shares, users=block.users + packet.users)
    of = {"run": run.run, "block": block.block, "packet": number, "fate": "waiting"}
    if packet.people:
        mine = [{"position": i, "person": p, "pays": c} for i, (p, c) in enumerate(packet.people)]
        db.execute(insert(people), [of | row for row in mine if row["person"]])
        _pay(db, {p: c for p, c in packet.people if p and c}, reserved=1, spent=0)
    if packet.events:
        of |= {"version": version}
        names = [name for name, _ in packet.people] or [""] * packet.users
        both = zip(packet.events, names, strict=True)
        rows = [of | {"event": e, "ticket": t, "person": p} for (e, t), p in both]
        db.execute(insert(events), rows)
    return number


_take = update(runs).where(runs.c.run == bindparam("of_run"))
_take = _take.values(taken=runs.c.taken + bindparam("more"))


def take_places(
    db: sa.Connection, run: Any, block: Any, taken: Mapping[int, int], **values: Any
) -> None:
    """Counts places of a block that were taken, by version.

    Args:
        db: A write transaction.
        run: The run's row.
        block: The row of the block, read in this transaction; both rows are kept as they are.
        taken: How many, by the version that was read with them.
        **values: Other columns of the block.
    """
    if new := sum(taken.values()):
        shares = json.loads(block.versions)
        for version, count in taken.items():
            shares[str(version)] = shares.get(str(version), 0) + count
        values |= {"places": block.places + new, "versions": json.dumps(shares)}
        db.execute(_take, {"of_run": run.run, "more": new})
        run.taken += new
    set_block(db, block, **values)


def known(db: sa.Connection, run: Any, **values: Sequence[str]) -> dict[str, Any]:
    """Rows of events that came before, by their ``event`` or by the ``ticket`` that they used."""
    ((column, given),) = values.items()
    of: Any = ({"run": run.run, column: some} for some in parts([*given]))
    return {getattr(row, column): row for each in of for row in rows_of(db, events, **each)}


@dataclass(frozen=True)
class Answer:
    """Answer to a device that came with a ticket."""

    status: str  # waiting, counted, late, refused, used, forgotten, unreadable, unknown, stopped;
    # of decisions and outcomes also closed (their episode is) and undecided (it has no place)
    block: int = -1
    version: int = -1

    @property
    def accepted(self) -> bool:
        """Whether it has a place in a block."""
        return self.status in ("waiting", "counted", "closed")


def by_ticket(db: sa.Connection, run: Any, block: int) -> bool:
    """Whether somebody in a block came with a ticket."""
    here = (events.c.run == run.run, events.c.block == block, events.c.ticket != "")
    return db.scalar(select(events.c.event).where(*here).limit(1)) is not None


def incomplete(db: sa.Connection, run: Any, block: int) -> bool:
    """Whether decisions or outcomes are missing of somebody in a block."""
    here = (packets.c.run == run.run, packets.c.block == block, packets.c.missing > 0)
    return db.scalar(select(packets.c.id).where(*here).limit(1)) is not None


_by: dict[str, Any] = {name: bindparam(f"{name}_by") for name in ("reserved", "spent")}
_moved = {name: accounts.c[name] + by for name, by in _by.items()}
_move = update(accounts).where(accounts.c.person == bindparam("who")).values(**_moved)
_make = insert(accounts).values(person=bindparam("who"), **_by)


def _pay(db: sa.Connection, costs: Mapping[str, int], *, reserved: int, spent: int) -> None:
    """Moves costs on accounts, which are made for those who have none."""
    found = [rows_of(db, accounts, person=some) for some in parts([*costs])]
    there, rows = {row.person for some in found for row in some}, dict[Any, list[Any]]()
    for who, cost in sorted(costs.items()):
        row = {"who": who, "reserved_by": reserved * cost, "spent_by": spent * cost}
        rows.setdefault(_move if who in there else _make, []).append(row)
    for statement, some in rows.items():
        db.execute(statement, some)


def forget(db: sa.Connection, person: str) -> dict[str, int] | None:
    """Erases what waits of a person, in all runs; how much was, and what was released before.

    Her place stays, and is empty. A sealed block has another revision then: what was summed of it
    is not committed. None while a block is held, after several of its sums were in vain.
    """
    held = select(people, runs.c.hold).join(runs, runs.c.run == people.c.run)
    rows = db.execute(held.where(people.c.person == person, people.c.fate == "waiting")).all()
    if any(0.0 < row.hold - time.time() < 60.0 for row in rows):  # longer: a clock was ahead
        return None
    for row in rows:
        _drop(db, row)
        _shrink(db, row, 1)
    freed = sum(row.pays for row in rows)
    if freed:
        _pay(db, {person: freed}, reserved=-1, spent=0)
    if rows:
        of = {"person": person, "fate": "waiting"}
        change_rows(db, people, of, fate="forgotten", person="", pays=0)
        change_rows(db, events, of, fate="forgotten", person="")
    kept = select(func.count()).where(people.c.person == person, people.c.fate == "released")
    return {"removed": len(rows), "released": int(db.scalar(kept) or 0)}


def _drop(db: sa.Connection, row: Any) -> None:
    """Takes one person's row out of her packet."""
    packet = rows_of(db, packets, id=row.packet).one()
    # Another row of hers in the packet may have moved it.
    position = int(rows_of(db, people, id=row.id).one().position)
    if packet.users == 1:
        delete_rows(db, packets, id=row.packet)
        return
    aggregate, arrays = load(packet.data)
    rest = {name: np.delete(array, position, axis=0) for name, array in arrays.items()}
    new = {"users": packet.users - 1, "data": dump((aggregate, rest))}
    change_rows(db, packets, {"id": row.packet}, **new)
    behind = (people.c.packet == packet.id, people.c.position > position)
    db.execute(update(people).where(*behind).values(position=people.c.position - 1))


def _shrink(db: sa.Connection, row: Any, users: int) -> None:
    """Takes users out of a block, which has another revision then."""
    here = (blocks.c.run == row.run, blocks.c.block == row.block)
    new = {"revision": blocks.c.revision + 1, "users": blocks.c.users - users}
    db.execute(update(blocks).where(*here).values(**new))


def set_aside(db: sa.Connection, run: Any, packet: int) -> None:
    """Erases a packet that cannot be read as its run's schema: its users neither pay nor count."""
    why = "rows that are no episodes of this run"
    row = rows_of(db, packets, id=packet).first()
    if row is None:
        return
    mine = (people.c.packet == packet, people.c.fate == "waiting")
    sums = select(people.c.person, func.sum(people.c.pays)).where(*mine).group_by(people.c.person)
    _pay(db, {who: int(pays) for who, pays in db.execute(sums) if pays}, reserved=-1, spent=0)
    of = {"packet": packet, "fate": "waiting"}
    change_rows(db, people, of, fate="unreadable", pays=0)
    change_rows(db, events, of, fate="unreadable")
    delete_rows(db, packets, id=packet)
    _shrink(db, row, row.users)
    append(db, row.run, "set aside", block=row.block, users=row.users, why=why)
    report_problem(db, run.run, f"set aside: {why}")


def report_problem(db: sa.Connection, name: str, problem: str) -> None:
    """Notes a problem of a run, in public words, for every process to tell."""
    of, now = {"run": name, "problem": problem}, time.time()
    if (row := rows_of(db, problems, **of).first()) is not None:
        change_rows(db, problems, of, last=now, times=row.times + 1)
    else:
        db.execute(insert(problems), of | {"since": now, "last": now, "times": 1})


def open_block(db: sa.Connection, run: Any, block: int, size: int) -> None:
    """Opens the block that fills from now on.

    Args:
        db: A write transaction.
        run: The run's row.
        block: Number of the block.
        size: Users that it takes; 0 at the end of a run.
    """
    row = {"run": run.run, "block": block, "size": size, "stage": "open", "at": time.time()}
    db.execute(insert(blocks), row)
    set_run(db, run.run, block=block)


def set_block(db: sa.Connection, block: Any, **values: Any) -> None:
    """Changes columns of a block, as its stage, and of its row here."""
    change_rows(db, blocks, {"run": block.run, "block": block.block}, **values)
    vars(block).update(values)


def undone(db: sa.Connection, run: Any) -> list[Any]:
    """Rows of the blocks that are not done, the oldest first."""
    here = select(blocks).where(blocks.c.run == run.run, blocks.c.stage != "done")
    return [_plain(blocks, row) for row in db.execute(here.order_by(blocks.c.block))]


def data_of(db: sa.Connection, run: Any, block: int) -> list[tuple[int, int, bytes]]:
    """Number, users and data of each packet of a block, in the order in which they came."""
    found = rows_of(db, packets, "id", run=run.run, block=block)
    return [(row.id, row.users, row.data) for row in found]


def recorded(db: sa.Connection, run: Any, block: int) -> list[Any]:
    """Releases of a block that are on record, in their order."""
    return [*rows_of(db, releases, "number", run=run.run, block=block)]


@dataclass(frozen=True)
class Draw:
    """A release that was drawn and is not yet seen by anybody."""

    number: int  # of the block's releases
    value: bytes
    cost: Fraction  # of each user
    spent: Fraction  # by each of them before
    limit: Fraction
    last: bool  # whether the block is asked nothing else


def release(db: sa.Connection, run: Any, block: Any, drawn: Draw) -> None:
    """The first commit: charges a block, records its release, erases its episodes after the last.

    Args:
        db: A write transaction.
        run: The run's row, which is fenced here.
        block: The row of its block, whose revision is fenced, too.
        drawn: The release and its cost.

    Raises:
        Conflict: The run has moved on, or somebody in the block was forgotten.
        BudgetExceeded: The block's users have not so much left.
    """
    fence(db, run, hold=0.0, releases=run.releases + 1)
    seen = {"run": run.run, "block": block.block, "revision": block.revision, "stage": "sealed"}
    if change_rows(db, blocks, seen, stage="released" if drawn.last else "sealed") != 1:
        raise Conflict("the block has changed")
    if drawn.spent + drawn.cost > drawn.limit * Fraction(1 + 1e-12):
        raise BudgetExceeded(
            f"block {block.block} has spent {float(drawn.spent):.6g} of {float(drawn.limit):.6g}"
        )
    who = _charge(db, run, block) if not drawn.number else released(db, run.run, block.block)
    row = {"run": run.run, "block": block.block, "number": drawn.number, "cost": str(drawn.cost)}
    db.execute(insert(releases), row | {"value": drawn.value})
    body = {"block": block.block, "number": drawn.number, "users": block.places}
    body |= {"people": digest(who), "limit": str(drawn.limit)}
    append(db, run.run, "release", **body, cost=str(drawn.cost))
    if drawn.last:
        erase(db, run, block.block)


def _charge(db: sa.Connection, run: Any, block: Any) -> list[str]:
    """Charges the users of a block what they reserved; their pseudonyms."""
    here = {"run": run.run, "block": block.block, "fate": "waiting"}
    found = [(row.person, int(row.pays)) for row in rows_of(db, people, "id", **here)]
    if found:
        paid = dict[str, int]()
        for who, pays in found:
            paid[who] = paid.get(who, 0) + pays
        _pay(db, {who: pays for who, pays in paid.items() if pays}, reserved=-1, spent=1)
        change_rows(db, people, here, fate="released")
    change_rows(db, events, here, fate="counted")
    return [who for who, _ in found]


def erase(db: sa.Connection, run: Any, block: int) -> None:
    """Erases a block's episodes: all that it was asked is on record."""
    delete_rows(db, packets, run=run.run, block=block)


def publish(
    db: sa.Connection, run: Any, state: bytes, served: int, keep: int, **values: Any
) -> None:
    """The second commit: the next version, which serves from now on unless another is pinned.

    Args:
        db: A write transaction.
        run: The run's row, which is fenced here.
        state: Checkpoint of the version; secret.
        served: Users who were served when it was planned.
        keep: Oldest version of which the checkpoint is kept; that of the pinned one is, too.
        **values: Other columns of the run.
    """
    version = run.latest + 1
    serves = run.version if values.get("pinned", run.pinned) else version
    fence(db, run, **{"latest": version, "version": serves, "served": served} | values)
    seq, head = db.info["ledger"]
    row = {"run": run.run, "version": version, "state": state, "policy": b""}
    row |= {"etag": "", "seq": seq, "head": head, "users": served, "at": time.time()}
    db.execute(insert(versions), row)
    kept = (serves, run.version)  # devices may have tickets of it that are not yet written
    old = (versions.c.run == run.run, versions.c.version < keep, versions.c.version.not_in(kept))
    db.execute(update(versions).where(*old, versions.c.state.is_not(None)).values(state=None))


def version_of(db: sa.Connection, name: str, version: int) -> Any:
    """Row of a version, or None."""
    return rows_of(db, versions, run=name, version=version).first()
