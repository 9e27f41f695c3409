"""``tacit ledger``: what a store's ledger says, whether it is whole, and what a curator may do."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import amount, asked, at_most, command, given, open_store, print_json
from tacit.privacy.errors import CorruptFile, InvalidArgument

if TYPE_CHECKING:
    from tacit.store.ledger import Entry
    from tacit.store.store import Store

_Expect = Annotated[str, asked("HASH|POLICY", "A hash of an entry, or a policy that has it.")]


@command("ledger")
def _show(store: terminal.Store, as_json: terminal.Json = False) -> None:
    with open_store(store) as opened:
        found = summary(opened)
    if as_json:
        print_json(found)
        return
    people = f"{found['people']['count']:,}, max {at_most(found['people']['max'])} {found['unit']}"
    limit = "closed" if found["closed"] else at_most(found["most"]) if found["most"] else "none"
    typer.echo(f"{found['store']}: {found['kind']}, {found['entries']:,} entries")
    typer.echo(f"accounts: {people}; limit over all runs: {limit}\nhead: {found['head']}")
    for run in found["runs"]:
        words = [f"{run[name]:,} {name}" for name in ("releases", "blocks", "served", "waiting")]
        words += [f"{run['users']:,} users declared", f"version {run['version']}"]
        words += ["has ended"] * run["ended"] + ["simulation only"] * run["simulation"]
        typer.echo(f"{run['name']}: {', '.join(words)}")


@command("ledger")
def _verify(store: terminal.Store, expect: _Expect = "", as_json: terminal.Json = False) -> None:
    from tacit.store import ledger

    wanted = witness(expect)  # here: a damaged witness is not the ledger's fault
    with open_store(store) as opened:
        problems, found = ledger.verify(opened, wanted), summary(opened)
    well = f"well: {found['entries']:,} entries, {found['people']['count']:,} accounts"
    said = [f"bad: {problem}" for problem in problems] or [well]
    if as_json:
        facts = {name: found[name] for name in ("store", "entries", "head", "kind")}
        print_json({"well": not problems, "problems": problems} | facts)
    else:
        typer.echo("\n".join([*said, f"of {found['kind']}; head: {found['head']}"]))
    raise typer.Exit(1 if problems else 0)


@command("ledger")
def _export(
    store: terminal.Store,
    output: Annotated[str, asked("FILE", "Where to write it; by default it is printed.")] = "",
) -> None:
    from tacit.store import ledger

    terminal.check_writable("--output", output or None)
    with open_store(store) as opened, opened.read() as db:
        text = "".join(f"{entry.line()}\n" for entry in ledger.read(db))
    if output:
        Path(output).write_text(text)
    else:
        typer.echo(text, nl=False)


@command("ledger")
def _limit(
    store: Annotated[str, given("STORE", "A store; it is made if there is none.")],
    epsilon: Annotated[float, amount("Budget of one person.")],
    delta: Annotated[float, amount("Budget of one person, 0 for pure.")],
) -> None:
    from sqlalchemy import func, select, update

    from tacit.privacy.models import JointDP
    from tacit.store import ledger, schema
    from tacit.store.runs import UNIT

    privacy = JointDP(epsilon, delta)
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
    typer.echo(f"one person may spend {at_most(cost)} {unit} over all runs")


@command("ledger")
def _repair(store: terminal.Store, expect: _Expect = "", as_json: terminal.Json = False) -> None:
    from tacit.store.repair import repair

    wanted = witness(expect)
    with open_store(store) as opened:
        done = repair(opened, wanted)
        done["closed"] = summary(opened)["closed"]
    if as_json:
        print_json({"store": terminal.store_name(store)} | done)
    elif not done["problems"]:
        typer.echo(f"{terminal.store_name(store)} is well: nothing was changed")
    else:  # accounts that went up, runs that ended, problems that are left
        typer.echo("\n".join(f"{name}: {value}" for name, value in done.items()))
    raise typer.Exit(1 if done["left"] else 0)


# What a ledger says.


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
        runs = [*db.execute(select(schema.runs))]
        full = select(schema.blocks.c.run).where(schema.blocks.c.stage == "open")
        over = {*db.scalars(full.where(schema.blocks.c.size == 0))}
        who = schema.people.c
        of = select(who.run, func.count(who.person.distinct())).where(who.fate == "released")
        named = {run: int(n) for run, n in db.execute(of.group_by(who.run))}
    entries = defaultdict[str, list["Entry"]](list)
    for entry in lines:
        entries[entry.run].append(entry)
    runs.sort(key=lambda run: min((entry.seq for entry in entries[run.run]), default=0))
    return {
        "store": terminal.store_name(store.where),
        "kind": "simulations" if row.simulation else "people",
        "unit": row.unit,
        "most": row.most / UNIT if row.most > 0 else None,
        "closed": row.most < 0,
        "limit": next((e.body for e in lines if e.event == "limit"), None),
        "entries": row.seq,
        "head": row.head,
        "repairs": sum(entry.event == "repair" for entry in lines),
        "people": {"count": count, "max": (most or 0) / UNIT},
        "runs": [_run(run, entries[run.run], run.run in over, named) for run in runs],
    }


def _run(row: Any, entries: list[Entry], over: bool, named: Mapping[str, int]) -> dict[str, Any]:
    terms = next((entry.body for entry in entries if entry.event == "start"), {})
    releases = [entry.body for entry in entries if entry.event == "release"]
    blocks = defaultdict[int, Fraction](Fraction)
    for body in releases:
        blocks[body["block"]] += Fraction(body["cost"])
    each, most = float(terms.get("limit", 0.0)), float(max(blocks.values(), default=0))
    days = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.at)) for entry in entries]
    return {name: terms.get(name, 0) for name in ("episodes", "users", "fingerprint")} | {
        "name": row.run,
        "people": named.get(row.run, 0),
        "version": row.version,
        "served": sum({body["block"]: body["users"] for body in releases}.values()),
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
        "releases": len(releases),
        "ended": over or bool(row.succeeded),
    }


def witness(expect: str) -> str:
    """The hash that is expected: as it is, or from a published policy."""
    from tacit.published import about

    if not expect or re.fullmatch("[0-9a-f]{64}", expect):
        return expect
    try:
        return str(about(expect)["ledger_head"])
    except FileNotFoundError:
        raise InvalidArgument(f"{expect!r} is neither a hash of 64 digits nor a policy") from None
    except (ValueError, KeyError) as error:
        raise CorruptFile(f"{expect!r} is no witness: {error}") from None
