"""``tacit policy``: what a published file says of itself, whether it is whole, and what changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import command, given
from tacit.cli.output import print_help_if_alone, print_json, print_table, say
from tacit.privacy.errors import CorruptFile, TacitError

app = typer.Typer(
    callback=print_help_if_alone,
    invoke_without_command=True,
    help="Show, verify and compare published policies.",
)

_File = Annotated[str, given("POLICY", "A published policy.")]
_MOST_ROWS = 40


@command(app, "policy")
def _show(file: _File, as_json: options.Json = False) -> None:
    from tacit.privacy.budget import Guarantee

    loaded, said = _read(file)
    if as_json:
        print_json({"file": file, "kind": _kind(loaded)} | said)
        return
    names = ("version", "agent", "users", "releases", "date", "library", "spec", "hash")
    rows = [("kind", _kind(loaded)), *((name, str(said[name])) for name in names if name in said)]
    for name in ("state_labels", "action_labels"):
        if name in said:
            rows.append((name.replace("_", " "), ", ".join(said[name])))
    if "ledger_head" in said:
        rows.append(("ledger", f"entry {said['ledger_line']}, {said['ledger_head']}"))
    print_table(("", ""), rows)
    if "guarantee" not in said:
        say("It says nothing of a guarantee.")
    elif said["guarantee"] is None:
        say("No privacy: it promises nothing to anybody.")
    else:
        say(str(Guarantee.from_dict(said["guarantee"])))


@command(app, "policy")
def _verify(file: _File) -> None:
    try:
        said = _read(file)[1]
        problem = "" if "hash" in said else "it has no hash, so no change of it can be noticed"
    except TacitError as error:
        problem = str(error)
    if problem:
        typer.echo(f"tacit: {file}: {' '.join(problem.split())}", err=True)
        raise typer.Exit(1)
    say(f"{file}: well, {said['hash'][:16]}...")


@command(app, "policy")
def _diff(
    first: _File, second: Annotated[str, given("POLICY", "Another.")], as_json: options.Json = False
) -> None:
    one, two = _read(first)[0], _read(second)[0]
    found, versions = differences(one, two), f"versions {one.version} and {two.version}"
    if as_json:
        print_json({"versions": [one.version, two.version]} | found)
    elif found["same"]:
        say(f"{versions} act alike")
    elif "cells" not in found:
        say(f"{versions} differ: {found['words']}")
    else:
        say(f"{versions} differ in {len(found['cells'])} of {found['of']} steps and states:")
        titles = ("step", "state", "first", "second")
        cells = found["cells"][:_MOST_ROWS]
        print_table(titles, [[str(cell[title]) for title in titles] for cell in cells])
    if not found["same"]:
        raise typer.Exit(1)


def _read(file: str) -> tuple[Any, dict[str, Any]]:
    from tacit import published

    try:
        return published.load(file), published.about(file)
    except ValueError as error:
        raise CorruptFile(str(error)) from None


def _kind(loaded: Any) -> str:
    """Kind of a policy: a table, mixed, gains or values."""
    name = type(loaded).__name__.removeprefix("Published").lower()
    return "table" if name == "policy" else name


def differences(one: Any, two: Any) -> dict[str, Any]:
    """Where tables differ, by label; of other kinds, whether they do."""
    import numpy as np

    if _kind(one) != _kind(two):
        return {"same": False, "words": f"{_kind(one)} and {_kind(two)}"}
    if _kind(one) != "table":
        ours, theirs = _arrays(one), _arrays(two)
        changed = [name for name in ours if not _equal(ours[name], theirs.get(name))]
        return {"same": not changed, "words": ", ".join(changed)}
    tables = [p.probabilities if p.actions is None else p.actions for p in (one, two)]
    if tables[0].shape != tables[1].shape or one.n_actions != two.n_actions:
        sizes = " and ".join(str(table.shape) for table in tables)
        return {"same": False, "words": f"tables of shape {sizes}"}
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
    return {name: value for name, value in held.items() if name not in said}


def _equal(one: Any, two: Any) -> bool:
    import numpy as np

    if isinstance(one, tuple) and one and hasattr(one[0], "actions"):
        pairs = zip(one, two, strict=False)
        return len(one) == len(two) and all(differences(a, b)["same"] for a, b in pairs)
    return bool(np.array_equal(one, two)) if two is not None else one is None


def _action(policy: Any, step: int, state: int) -> Any:
    """An action by its label, or the chances of all."""
    if policy.actions is None:
        return [round(float(chance), 4) for chance in policy.probabilities[step, state]]
    action = int(policy.actions[step, state])
    return action if policy.action_labels is None else policy.action_labels[action]
