"""``tacit ledger``: what a store's ledger says, whether it is whole, and what an operator may do.

What a store says of people is what the curator knows: these commands are for whoever keeps it. For
others there are ``tacit ledger export`` and ``tacit report``.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import defaultdict
from contextlib import ExitStack
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command, given, open_store
from tacit.cli.output import at_most, counted, print_help_if_alone, print_json
from tacit.options import number
from tacit.privacy.errors import CorruptFile, InvalidArgument

if TYPE_CHECKING:
    from tacit.store.ledger import Entry
    from tacit.store.store import Store

app = typer.Typer(
    callback=print_help_if_alone,
    invoke_without_command=True,
    help="Read, check and repair the ledger of a store: what was spent, before it was published.",
)

_Expect = Annotated[
    str,
    asked(
        "HASH|POLICY",
        "A hash that an entry must have, or 8 digits of it or more, or a published policy that has "
        "it.",
    ),
]


@command(app, "ledger")
def _show(store: options.Store, as_json: options.Json = False) -> None:
    with open_store(store) as opened:
        found = summary(opened)
    if as_json:
        print_json(found)
        return
    people, most = found["people"], found["most"]
    limit = "no limit over all runs" if most is None else f"of {at_most(most, 6)} over all runs"
    if found["closed"]:
        limit = "nobody takes part any more: see the entry of its repair"
    spent = (f"{name} {at_most(people[name], 6)} {found['unit']}" for name in ("max", "median"))
    repaired = f", repaired {counted(found['repairs'], 'time')}" if found["repairs"] else ""
    typer.echo(f"{found['store']}: {found['kind']}, {found['entries']:,} entries{repaired}")
    typer.echo(f"head: {found['head']}")
    typer.echo(f"accounts: {people['count']:,}, {', '.join(spent)}; {limit}")
    for run in found["runs"]:
        words = [f"{counted(run['releases'], 'release')} about {counted(run['blocks'], 'block')}"]
        words += [f"{run['served']:,} of {run['users']:,} users", f"version {run['version']}"]
        words += [f"{run['waiting']:,} wait"] * bool(run["waiting"])
        words += ["has ended"] * run["ended"] + ["simulation only"] * run["simulation"]
        typer.echo(f"{run['name']}: {', '.join(words)}")


@command(app, "ledger")
def _verify(store: options.Store, expect: _Expect = "", as_json: options.Json = False) -> None:
    wanted = witness(expect)  # here: a damaged witness is not the ledger's fault
    with open_store(store) as opened:
        problems = checked(opened, wanted)
        found = summary(opened)
    said = [f"bad: {problem}" for problem in problems] or [
        f"well: {counted(found['entries'], 'entry')}, the chain is whole, "
        f"{found['people']['count']:,} accounts are what people paid"
    ]
    if found["kind"] == "simulations":
        said.append("Its noise has a known seed: what was paid for protects nobody.")
    if as_json:
        facts = {name: found[name] for name in ("store", "entries", "head", "kind")}
        print_json({"well": not problems, "problems": problems} | facts)
    else:
        typer.echo("\n".join([*said, f"head: {found['head']}"]))
    raise typer.Exit(1 if problems else 0)


@command(app, "ledger")
def _export(
    store: options.Store,
    output: Annotated[str, asked("FILE", "Where to write it; by default it is printed.")] = "",
) -> None:
    from tacit.store import ledger

    options.check_writable("--output", output or None)
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(store))
        db = stack.enter_context(opened.read())
        file = stack.enter_context(open(output, "w")) if output else sys.stdout
        for entry in ledger.read(db):
            file.write(f"{entry.line()}\n")


@command(app, "ledger")
def _limit(
    store: Annotated[str, given("STORE", "A store; it is made if there is none.")],
    epsilon: Annotated[str, asked("NUMBER", "Budget of one person.")],
    delta: Annotated[str, asked("NUMBER", "Budget of one person, 0 for pure.")],
) -> None:
    from sqlalchemy import func, select, update

    from tacit.privacy.models import JointDP
    from tacit.store import ledger, schema
    from tacit.store.runs import UNIT

    privacy = JointDP(number("epsilon", epsilon), number("delta", delta))
    unit = "epsilon" if privacy.pure else "mu^2"
    cost = privacy.epsilon if privacy.pure else privacy.budget.mu**2
    most = -int(-Fraction(cost) * UNIT // 1)
    with open_store(store, make=True) as opened, opened.write() as db:
        row = db.execute(select(schema.stores)).one()
        if row.most:
            raise InvalidArgument("the store has a limit, which stays as it is")
        if row.unit not in ("", unit, f"{unit} (zero-out)"):
            raise InvalidArgument(f"accounts of this store are in {row.unit}, not in {unit}")
        held = schema.accounts.c.spent + schema.accounts.c.reserved
        if (db.scalar(select(func.max(held))) or 0) > most:
            raise InvalidArgument("somebody has spent more than that already")
        db.execute(update(schema.stores).values(most=most, unit=row.unit or unit))
        body = {"epsilon": privacy.epsilon, "delta": privacy.delta, "unit": unit, "most": most}
        ledger.append(db, "", "limit", **body)
    most_words = f"{at_most(cost, 6)} {unit} over all runs"
    typer.echo(f"{options.store_name(store)}: one person may spend {most_words}")


@command(app, "ledger")
def _repair(store: options.Store, expect: _Expect = "", as_json: options.Json = False) -> None:
    from tacit.store.repair import repair

    wanted = witness(expect)
    with open_store(store) as opened:
        done = repair(opened, _whole(opened, wanted))
        closed = summary(opened)["closed"]
    if as_json:
        print_json({"store": options.store_name(store), "closed": closed} | done)
    elif not done["problems"]:
        typer.echo(f"{options.store_name(store)} is well: nothing was changed")
    else:
        said = [f"was: {problem}" for problem in done["problems"]]
        said.append(f"accounts that changed: {done['accounts']:,}; none went down")
        if done["ended"]:
            ended = f"ended, and successors may go on from them: {', '.join(done['ended'])}"
            said.append(f"{ended}. Whoever waited in them has paid.")
        said += ["Nobody takes part any more: who has paid is not known."] * closed
        said += [f"left, and cannot be repaired: {problem}" for problem in done["left"]]
        typer.echo("\n".join(said))
    raise typer.Exit(1 if done["left"] else 0)


# What a ledger says.


def checked(store: Store, expect: str = "") -> list[str]:
    """Problems of a store's ledger, which must have an entry whose hash begins so."""
    from tacit.store import ledger

    return ledger.verify(store, _whole(store, expect))


def summary(store: Store) -> dict[str, Any]:
    """Facts about a store's runs, ledger and accounts, as JSON values."""
    from sqlalchemy import func, select

    from tacit.store import ledger, schema
    from tacit.store.runs import UNIT

    with store.read() as db:
        row = db.execute(select(schema.stores)).one()
        lines = [*ledger.read(db)]
        spent = schema.accounts.c.spent
        count, most = db.execute(select(func.count(), func.max(spent))).one()
        middle = select(spent).order_by(spent).offset(max(0, (count - 1) // 2)).limit(1)
        median, runs = db.scalar(middle), [*db.execute(select(schema.runs))]
        full = select(schema.blocks.c.run).where(schema.blocks.c.stage == "open")
        over = {*db.scalars(full.where(schema.blocks.c.size == 0))}
    entries = defaultdict[str, list["Entry"]](list)
    for entry in lines:
        entries[entry.run].append(entry)
    runs.sort(key=lambda run: min((entry.seq for entry in entries[run.run]), default=0))
    return {
        "store": options.store_name(store.where),
        "kind": "simulations" if row.simulation else "people",
        "unit": row.unit,
        "most": row.most / UNIT if row.most > 0 else None,
        "closed": row.most < 0,
        "limit": next((e.body for e in lines if e.event == "limit"), None),
        "entries": row.seq,
        "head": row.head,
        "repairs": sum(entry.event == "repair" for entry in lines),
        "people": {"count": count, "max": (most or 0) / UNIT, "median": (median or 0) / UNIT},
        "runs": [_run(run, entries[run.run], run.run in over) for run in runs],
    }


def _run(row: Any, entries: list[Entry], over: bool) -> dict[str, Any]:
    terms = next((entry.body for entry in entries if entry.event == "start"), {})
    blocks = defaultdict[int, Fraction](Fraction)
    for entry in entries:
        if entry.event == "release":
            blocks[entry.body["block"]] += Fraction(entry.body["cost"])
    each, most = float(terms.get("limit", 0.0)), float(max(blocks.values(), default=0))
    days = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.at)) for entry in entries]
    return {name: getattr(row, name) for name in ("episodes", "users", "served", "version")} | {
        "name": row.run,
        "unit": terms.get("unit", ""),
        "promise": terms.get("promise"),
        "episode_limit": each,
        "user_limit": float(terms.get("cost", 0.0)),
        # A block's cost is one episode's; a user with several may pay more.
        "user_cost": most * float(terms["cost"]) / each if each else 0.0,
        "simulation": bool(terms.get("simulation", False)),
        "first": min(days, default=None),
        "last": max(days, default=None),
        "waiting": 0 if over else row.taken - row.served,
        "blocks": len(blocks),
        "releases": sum(entry.event == "release" for entry in entries),
        "ended": over or bool(row.succeeded),
    }


# Witnesses.


def witness(expect: str) -> str:
    """The hash that is expected: as it is, or from a published policy."""
    if not expect or re.fullmatch("[0-9a-f]{8,64}", expect):
        return expect
    if not os.path.lexists(expect):
        raise InvalidArgument(
            f"expect={expect!r} must be 8 to 64 hexadecimal digits, or the file of a policy"
        )
    from tacit.published import about

    try:
        found = about(expect)
    except ValueError as error:
        raise CorruptFile(str(error)) from None
    if "ledger_head" not in found:
        raise InvalidArgument(f"expect={expect!r}: it names no ledger, so it is no witness")
    return str(found["ledger_head"])


def _whole(store: Store, expect: str) -> str:
    """The hash of which these are the first digits, if the ledger has it."""
    from tacit.store import ledger

    with store.read() as db:
        found = (entry.hash for entry in ledger.read(db) if entry.hash.startswith(expect))
        return next(found, expect) if expect else ""
