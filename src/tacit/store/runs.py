"""Runs: who is taken into which block, and the two commits that move a block on.

Every function works in a transaction of its caller (``db``), on the row of the run that it read.
Stages of a block: *open* (places are taken), *closed* (those who have a place may still send),
*sealed* (its users are known), *released* (what it was asked is on record and its episodes are
erased), *done* (its policy is published).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func, insert, select, update

from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.store.ledger import append, digest, released
from tacit.store.schema import (
    accounts,
    blocks,
    events,
    packets,
    people,
    releases,
    runs,
    stores,
    versions,
)
from tacit.store.store import Conflict, Store, parts

UNIT = 10**12
"""Parts of one mu^2 (or epsilon, under pure DP) in accounts."""


@dataclass(frozen=True)
class Terms:
    """Under which terms people take part in a run."""

    unit: str  # "mu^2" or "epsilon"; "" without accounts
    limit: float  # that one episode may spend, in this unit
    cost: float  # that a person pays who takes part, with all her episodes
    episodes: int  # of one person, at most; 0: any number
    once: bool  # whether nobody is in a block twice
    users: int  # declared
    promise: Mapping[str, Any] | None = None  # the guarantee, as JSON values
    simulation: bool = False
    max_age: int = 0  # versions that an episode may be behind what serves; -1: any
    window: int = 0  # seconds between reading a policy and sending an episode


def create(db: sa.Connection, run: str, fingerprint: str, terms: Terms, text: str) -> Any:
    """Row of a new run.

    Raises:
        InvalidArgument: There is one, or the store is of another kind.
    """
    if find(db, run) is not None:
        raise InvalidArgument(f"the store has a run {run!r}: tacit.open goes on with it")
    store = db.execute(select(stores)).one()
    begun = db.scalar(select(func.count()).select_from(runs))
    if begun and bool(store.simulation) != terms.simulation:
        kind = "simulations" if store.simulation else "people"
        raise InvalidArgument(f"this store is one of {kind}, for ever")
    if store.unit and terms.unit and store.unit != terms.unit:
        raise InvalidArgument(f"accounts of this store are in {store.unit}, not in {terms.unit}")
    db.execute(
        update(stores).values(simulation=int(terms.simulation), unit=terms.unit or store.unit)
    )
    row = {"run": run, "fingerprint": fingerprint, "terms": text, "version": -1, "latest": -1}
    row |= {"cost": -int(-Fraction(terms.cost) * UNIT // 1), "users": terms.users}
    row |= {"episodes": terms.episodes, "once": int(terms.once), "max_age": terms.max_age}
    db.execute(insert(runs).values(**row, window=terms.window))
    append(db, run, "start", fingerprint=fingerprint, **{**vars(terms)})
    return find(db, run)


def find(db: sa.Connection, run: str) -> Any:
    """Row of a run, or None."""
    return db.execute(select(runs).where(runs.c.run == run)).first()


def block_of(db: sa.Connection, run: str, block: int) -> Any:
    """Row of a block, or None."""
    return db.execute(select(blocks).where(blocks.c.run == run, blocks.c.block == block)).first()


def fence(db: sa.Connection, run: Any, **values: Any) -> None:
    """Lets one of two writers on; comes first in a commit.

    Raises:
        Conflict: The run has moved on since ``run`` was read.
    """
    unmoved = update(runs).where(runs.c.run == run.run, runs.c.epoch == run.epoch)
    if db.execute(unmoved.values(epoch=run.epoch + 1, **values)).rowcount != 1:
        raise Conflict("the run has moved on")


# Users.


def admit(db: sa.Connection, run: Any, block: int, names: Sequence[str]) -> list[int]:
    """What each person pays who takes part now, and -1 of those who are refused.

    Args:
        db: A write transaction.
        run: The run's row.
        block: In which they take part.
        names: Their pseudonyms, one for each episode.
    """
    found, held = dict[str, tuple[int, int]](), dict[str, int]()
    counts = select(people.c.person, func.count(), func.max(people.c.block))
    counts = counts.where(people.c.run == run.run, people.c.fate != "forgotten")
    for some in parts([*set(names)]):
        rows = counts.where(people.c.person.in_(some)).group_by(people.c.person)
        found |= {who: (int(n), int(last)) for who, n, last in db.execute(rows)}
        for row in db.execute(select(accounts).where(accounts.c.person.in_(some))):
            held[row.person] = row.spent + row.reserved
    most, answers = db.scalar(select(stores.c.most)), list[int]()
    for name in names:
        count, last = found.get(name, (0, -1))
        pays = 0 if count else run.cost
        late = (run.episodes and count >= run.episodes) or (run.once and last >= block)
        if late or (most and held.get(name, 0) + pays > most):
            answers.append(-1)
            continue
        found[name], held[name] = (count + 1, block), held.get(name, 0) + pays
        answers.append(pays)
    return answers


def put(
    db: sa.Connection,
    store: Store,
    run: Any,
    packet: tuple[int, int, int, bytes],
    who: Sequence[tuple[str, int]] = (),
) -> int:
    """Puts users into a block, and reserves what they pay; the packet's number.

    Args:
        db: A write transaction.
        store: Whose transaction it is.
        run: The run's row.
        packet: Block, version, number of users, and their data.
        who: Pseudonym of each of them, and what she pays; or nothing, if they have no names.
    """
    block, version, users, data = packet
    row = {"run": run.run, "block": block, "version": version, "users": users}
    number = db.execute(insert(packets).values(**row, data=store.closed(data)))
    identity = int(number.inserted_primary_key[0])  # type: ignore[index]
    here = (blocks.c.run == run.run, blocks.c.block == block)
    db.execute(update(blocks).where(*here).values(users=blocks.c.users + users))
    db.execute(update(runs).where(runs.c.run == run.run).values(taken=runs.c.taken + users))
    if who:
        of = {"run": run.run, "block": block, "packet": identity, "fate": "waiting"}
        rows = [of | {"person": p, "place": i, "pays": c} for i, (p, c) in enumerate(who)]
        db.execute(insert(people), rows)
        _pay(db, {p: c for p, c in who if c}, reserved=1, spent=0)
    return identity


def _pay(db: sa.Connection, costs: Mapping[str, int], *, reserved: int, spent: int) -> None:
    """Moves costs on accounts, which are made for those who have none."""
    if not costs:
        return
    known = set[str]()
    for some in parts([*costs]):
        known |= set(db.scalars(select(accounts.c.person).where(accounts.c.person.in_(some))))
    new = [{"person": p, "spent": 0, "reserved": 0} for p in sorted(costs) if p not in known]
    if new:
        db.execute(insert(accounts), new)
    move = update(accounts).where(accounts.c.person == bindparam("who"))
    cost = bindparam("cost", type_=accounts.c.spent.type)
    move = move.values(
        reserved=accounts.c.reserved + reserved * cost, spent=accounts.c.spent + spent * cost
    )
    db.execute(move, [{"who": p, "cost": c} for p, c in sorted(costs.items())])


def forget(db: sa.Connection, store: Store, person: str) -> dict[str, int]:
    """Erases what waits of a person, in all runs; how much was, and what was released before.

    A block that is sealed has another revision then: what was summed of it is not committed.
    """
    mine = (people.c.person == person, people.c.fate == "waiting")
    rows = db.execute(select(people, runs.c.cost).join(runs, runs.c.run == people.c.run)
                      .where(*mine)).all()  # fmt: skip
    for row in rows:
        _drop(db, store, row)
        db.execute(
            update(blocks)
            .where(blocks.c.run == row.run, blocks.c.block == row.block)
            .values(revision=blocks.c.revision + 1, users=blocks.c.users - 1)
        )
        db.execute(update(runs).where(runs.c.run == row.run).values(taken=runs.c.taken - 1))
    freed = sum(row.pays for row in rows)
    if freed:
        _pay(db, {person: freed}, reserved=-1, spent=0)
    if rows:
        db.execute(update(people).where(*mine).values(fate="forgotten", person="", pays=0))
        gone = (events.c.person == person, events.c.fate == "waiting")
        db.execute(update(events).where(*gone).values(fate="forgotten", person=""))
    kept = select(func.count()).where(people.c.person == person, people.c.fate == "released")
    return {"removed": len(rows), "released": int(db.scalar(kept) or 0)}


def _drop(db: sa.Connection, store: Store, row: Any) -> None:
    """Takes one person's row out of her packet."""
    from tacit.store.values import dump, load

    packet = db.execute(select(packets).where(packets.c.id == row.packet)).one()
    if packet.users == 1:
        db.execute(packets.delete().where(packets.c.id == row.packet))
        return
    arrays = {
        name: array[[i for i in range(len(array)) if i != row.place]]
        for name, array in load(store.opened(packet.data)).items()
    }
    new = {"users": packet.users - 1, "data": store.closed(dump(arrays))}
    db.execute(update(packets).where(packets.c.id == row.packet).values(**new))
    behind = (people.c.packet == row.packet, people.c.place > row.place)
    db.execute(update(people).where(*behind).values(place=people.c.place - 1))


# Blocks.


def open_block(db: sa.Connection, run: Any, block: int, size: int) -> None:
    """The block that fills from now on."""
    row = {"run": run.run, "block": block, "size": size, "at": 0.0, "stage": "open"}
    db.execute(insert(blocks).values(**row))
    db.execute(update(runs).where(runs.c.run == run.run).values(block=block))


def resize(db: sa.Connection, run: Any, size: int) -> None:
    """Closes the block that fills with so many users."""
    here = (blocks.c.run == run.run, blocks.c.block == run.block)
    db.execute(update(blocks).where(*here).values(size=size))


def pin(db: sa.Connection, run: Any, on: bool) -> None:
    """Lets the version that serves go on serving whatever is learnt, or not any more."""
    db.execute(update(runs).where(runs.c.run == run.run).values(pinned=int(on)))


def next_block(db: sa.Connection, run: Any) -> Any:
    """Row of the oldest block that is not done, or None."""
    undone = (blocks.c.run == run.run, blocks.c.stage != "done")
    return db.execute(select(blocks).where(*undone).order_by(blocks.c.block).limit(1)).first()


def set_stage(db: sa.Connection, run: Any, block: int, stage: str) -> None:
    """Moves a block on."""
    here = (blocks.c.run == run.run, blocks.c.block == block)
    at = {"at": time.time()} if stage == "closed" else {}
    db.execute(update(blocks).where(*here).values(stage=stage, **at))


def data_of(db: sa.Connection, store: Store, run: Any, block: int) -> list[tuple[int, int, bytes]]:
    """Number, users and data of each packet of a block, in the order in which they came."""
    here = (packets.c.run == run.run, packets.c.block == block)
    rows = db.execute(select(packets).where(*here).order_by(packets.c.id))
    return [(row.id, row.users, store.opened(row.data)) for row in rows]


def recorded(db: sa.Connection, run: Any, block: int) -> list[Any]:
    """Releases of a block that are on record, in their order."""
    here = (releases.c.run == run.run, releases.c.block == block)
    return [*db.execute(select(releases).where(*here).order_by(releases.c.number))]


def release(
    db: sa.Connection,
    store: Store,
    run: Any,
    block: Any,
    value: bytes,
    cost: Fraction,
    limit: Fraction,
    secrets: Mapping[str, bytes],
    *,
    last: bool,
) -> None:
    """The first commit: charges a block, records its release, erases its episodes if it is the last.

    Raises:
        Conflict: The run has moved on, or somebody in the block was forgotten.
        BudgetExceeded: The block's users have not so much left.
    """
    fence(db, run)
    now = block_of(db, run.run, block.block)
    if (now.revision, now.stage) != (block.revision, "sealed"):
        raise Conflict("the block has changed")
    before = recorded(db, run, block.block)
    spent = sum((Fraction(row.cost) for row in before), Fraction(0))
    if spent + cost > limit * Fraction(1 + 1e-12):
        raise BudgetExceeded(
            f"block {block.block} has spent {float(spent):.6g} of {float(limit):.6g}"
        )
    here = (people.c.run == run.run, people.c.block == block.block)
    if not before:
        waiting = select(people.c.person, people.c.pays).where(*here, people.c.fate == "waiting")
        paid = {who: int(pays) for who, pays in db.execute(waiting) if pays}
        _pay(db, paid, reserved=-1, spent=1)
        db.execute(update(people).where(*here, people.c.fate == "waiting").values(fate="released"))
        of = (events.c.run == run.run, events.c.block == block.block, events.c.fate == "waiting")
        db.execute(update(events).where(*of).values(fate="counted"))
    row = {"run": run.run, "block": block.block, "number": len(before), "cost": str(cost)}
    db.execute(insert(releases).values(**row, value=value))
    for name, secret in secrets.items():
        store.put_secret(db, run.run, name, secret)
    who = digest(released(db, run.run, block.block))
    body = {"block": block.block, "number": len(before), "users": block.users, "people": who}
    append(db, run.run, "release", **body, cost=str(cost), limit=str(limit))
    if last:
        erase(db, run, block.block)


def erase(db: sa.Connection, run: Any, block: int) -> None:
    """Erases a block's episodes: all that it was asked is on record."""
    db.execute(packets.delete().where(packets.c.run == run.run, packets.c.block == block))
    set_stage(db, run, block, "released")


def publish(
    db: sa.Connection, store: Store, run: Any, state: bytes, policy: bytes, served: int, keep: int
) -> None:
    """The second commit: the next version, which serves from now on unless another is pinned.

    Args:
        db: A write transaction, after :func:`fence`.
        store: Whose transaction it is.
        run: The run's row.
        state: Checkpoint of the version; secret, as counters' seeds may be in it.
        policy: Its public file.
        served: Users who were served when it was planned.
        keep: Checkpoints to keep, of the newest versions.
    """
    at = db.execute(select(stores.c.seq, stores.c.head)).one()
    version = run.latest + 1
    row = {"run": run.run, "version": version, "state": store.closed(state), "policy": policy}
    row |= {"etag": digest(policy.hex()), "seq": at.seq, "head": at.head, "users": served}
    db.execute(insert(versions).values(**row, at=time.time()))
    serves = run.version if run.pinned else version
    new = {"latest": version, "version": serves, "served": served}
    db.execute(update(runs).where(runs.c.run == run.run).values(**new))
    old = (versions.c.run == run.run, versions.c.version <= version - keep)
    db.execute(update(versions).where(*old, versions.c.version != serves).values(state=None))


def version_of(db: sa.Connection, run: str, version: int) -> Any:
    """Row of a version, or None."""
    return db.execute(
        select(versions).where(versions.c.run == run, versions.c.version == version)
    ).first()
