"""``tacit policy`` and ``tacit simulate``: published files, and private simulators of runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import asked, command, count, flag, given, print_facts, print_json, say
from tacit.privacy.errors import CorruptFile

_File = Annotated[str, given("POLICY", "A published policy.")]


@command("policy")
def _show(file: _File, as_json: terminal.Json = False) -> None:
    from tacit.privacy.budget import Guarantee

    loaded, said = _read(file)
    said |= {"file": file, "kind": _kind(loaded)}
    if as_json:
        print_json(said)
        return
    promise = said.pop("guarantee", None)
    print_facts(said)
    say(str(Guarantee.from_dict(promise)) if promise else "No privacy: it promises nothing.")


@command("policy")
def _verify(
    file: _File,
    key: Annotated[
        list[str] | None, asked("KEY", "A public key that is trusted; may be given several times.")
    ] = None,
) -> None:
    from tacit import published

    by = ""
    try:
        by = f", signed by {published.signer(file, key)[:16]}..." if key else ""
    except ValueError as error:
        raise CorruptFile(f"{file!r}: {error}") from None
    say(f"{file}: well, {_read(file)[1]['hash'][:16]}...{by}")


@command("policy")
def _diff(
    first: _File,
    second: Annotated[str, given("POLICY", "Another.")],
    as_json: terminal.Json = False,
) -> None:
    one, two = _read(first)[0], _read(second)[0]
    found, versions = differences(one, two), f"versions {one.version} and {two.version}"
    if as_json:
        print_json({"versions": [one.version, two.version]} | found)
    elif "cells" not in found or found["same"]:
        say(f"{versions} act alike" if found["same"] else f"{versions} differ: {found['words']}")
    else:
        say(f"{versions} differ in {len(found['cells'])} of {found['of']} steps and states:")
        titles = ("step", "state", "first", "second")
        cells = found["cells"][:40]
        terminal.print_table(titles, [[str(cell[title]) for title in titles] for cell in cells])
    if not found["same"]:
        raise typer.Exit(1)


@command()
def _simulate(
    store: terminal.Store,
    out: Annotated[str, asked("FILE", "Where to write the simulator, an npz archive.", "--out")],
    run: Annotated[str, asked("NAME", "Which run of the store; needed if it has several.")] = "",
    draws: Annotated[int, count("Models of the posterior.")] = 64,
    seed: Annotated[int, count("Seed of the draws.", least=0)] = 0,
    force: Annotated[bool, flag("Also of a simulation, which protects nobody.", "--force")] = False,
) -> None:
    import tacit
    from tacit.store import schema
    from tacit.store.store import rows_of

    terminal.check_writable("--out", out)
    with terminal.open_store(store) as opened:
        with opened.read() as db:
            names = [row.run for row in rows_of(db, schema.runs, "run")]
        name = run or (names[0] if len(names) == 1 else "run")
        env = tacit.open(opened, name).simulator(draws, seed)
        env.save(out, force=force)
    users, found = env.facts["users"], env.facts["hash"][:16]
    say(f"{out}: {draws} draws of a model of {users:,} users, {found}...")
    say(str(env.guarantee) if env.guarantee else "No privacy: it promises nothing.")


def _read(file: str) -> tuple[Any, dict[str, Any]]:
    from tacit import published

    try:
        said = published.about(file)
        if "hash" not in said:
            raise ValueError(f"{file!r} has no hash, so no change of it can be noticed")
        return published.load(file), said
    except ValueError as error:
        raise CorruptFile(str(error)) from None


def _kind(loaded: Any) -> str:
    """Kind of a policy: a table, mixed, gains, values or draws."""
    name = type(loaded).__name__.removeprefix("Published").lower()
    return "table" if name == "policy" else name


def differences(one: Any, two: Any) -> dict[str, Any]:
    """Where tables differ, by label; of other kinds, whether they do."""
    import numpy as np

    if _kind(one) != _kind(two):
        return {"same": False, "words": f"{_kind(one)} and {_kind(two)}"}
    if _kind(one) != "table":
        ours, theirs = _arrays(one), _arrays(two)
        changed = [name for name in ours if not np.array_equal(ours[name], theirs.get(name, ()))]
        return {"same": not changed, "words": ", ".join(changed)}
    tables = [p.probabilities if p.actions is None else p.actions for p in (one, two)]
    if tables[0].shape != tables[1].shape or one.n_actions != two.n_actions:
        return {"same": False, "words": f"tables of shape {tables[0].shape}, {tables[1].shape}"}
    different = (tables[0] != tables[1]).reshape(*tables[0].shape[:2], -1).any(axis=2)
    cells = [
        {
            "step": step,
            "state": state if one.state_labels is None else one.state_labels[state],
            "first": _action(one, step, state),
            "second": _action(two, step, state),
        }
        for step, state in np.argwhere(different).tolist()
    ]
    return {"same": not cells, "cells": cells, "of": different.size}


def _arrays(policy: Any) -> dict[str, Any]:
    """Arrays that a policy acts by, without its metadata."""
    said = ("version", "about", "hash", "ledger_line", "ledger_head", "stored")
    held = vars(policy) | getattr(policy, "stored", {})
    for i, part in enumerate(held.pop("components", ())):
        held |= {f"{name} of {i}": value for name, value in _arrays(part).items()}
    return {name: value for name, value in held.items() if name not in said}


def _action(policy: Any, step: int, state: int) -> Any:
    """An action by its label, or the chances of all."""
    if policy.actions is None:
        return [round(float(chance), 4) for chance in policy.probabilities[step, state]]
    action = int(policy.actions[step, state])
    return action if policy.action_labels is None else policy.action_labels[action]
