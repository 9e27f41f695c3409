"""``tacit policy``: what a published file says of itself, whether it is whole, and what changed."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked
from tacit.cli.output import print_help_if_alone, print_json, print_table, say
from tacit.privacy.errors import CorruptFile, TacitError

app = typer.Typer(help="Show, verify and compare published policies.")

FileArgument = Annotated[str, typer.Argument(metavar="POLICY", help="A published policy.")]
_MOST_ROWS = 40


@app.callback(invoke_without_command=True)
def policy(context: typer.Context) -> None:
    """Says which commands there are."""
    print_help_if_alone(context)


@app.command(
    name="show",
    help="Say what a published policy is, who made it when, and what is guaranteed.\n\n"
    "\b\nExample:\n  tacit policy show policy.npz",
)
def show(file: FileArgument, as_json: options.Json = False) -> None:
    """Says what a file says of itself."""
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
        rows.append(("ledger", f"line {said['ledger_line']}, {said['ledger_head']}"))
    print_table(("", ""), rows)
    say(_promise(said))


@app.command(
    name="verify",
    help="Check that a published policy is as it was written: its hash, its numbers.\n\n"
    "With --ledger also that the ledger has the line that the policy names, and is not an older "
    "copy. Exit code 0 if all is well, 1 if not.\n\n"
    "\b\nExample:\n  tacit policy verify policy.npz --ledger budget.ledger",
)
def verify(
    file: FileArgument,
    ledger: Annotated[str | None, asked("FILE", "The ledger of its agent.")] = None,
) -> None:
    """Checks a file."""
    from tacit.privacy.ledger import Ledger

    problem, said = "", dict[str, Any]()
    try:
        said = _read(file)[1]
        if "hash" not in said:
            problem = "it has no hash, so nobody can tell whether it was changed"
        elif ledger is not None and "ledger_head" not in said:
            problem = "its agent had no ledger"
        elif ledger is not None:
            Ledger.open(ledger, expect=said["ledger_head"], every_line=True)
    except TacitError as error:
        problem = str(error)
    if problem:
        typer.echo(f"tacit: {file}: {' '.join(problem.split())}", err=True)
        raise typer.Exit(1)
    more = "" if ledger is None else f", and {ledger} has its line {said['ledger_line']}"
    say(f"{file}: well, {said['hash'][:16]}...{more}")


@app.command(
    name="diff",
    help="Say where two published policies act differently.\n\n"
    "Exit code 0 if they act alike, 1 if not.\n\n"
    "\b\nExample:\n  tacit policy diff yesterday.npz today.npz",
)
def diff(
    first: FileArgument,
    second: Annotated[str, typer.Argument(metavar="POLICY", help="Another one.")],
    as_json: options.Json = False,
) -> None:
    """Compares two policies."""
    one, two = _read(first)[0], _read(second)[0]
    found = differences(one, two)
    if as_json:
        print_json({"versions": [one.version, two.version]} | found)
    elif found["same"]:
        say(f"versions {one.version} and {two.version} act alike")
    elif "cells" not in found:
        say(f"versions {one.version} and {two.version} differ: {found['words']}")
    else:
        say(
            f"versions {one.version} and {two.version} differ in {len(found['cells'])} of "
            f"{found['of']} steps and states:"
        )
        rows = [
            (str(cell["step"]), str(cell["state"]), str(cell["first"]), str(cell["second"]))
            for cell in found["cells"][:_MOST_ROWS]
        ]
        print_table(("step", "state", "first", "second"), rows)
    if not found["same"]:
        raise typer.Exit(1)


def _read(file: str) -> tuple[Any, dict[str, Any]]:
    from tacit import published

    try:
        return published.load(file), published.about(file)
    except ValueError as error:
        raise CorruptFile(str(error)) from None


def _kind(loaded: Any) -> str:
    kinds = {
        "PublishedPolicy": "table",
        "PublishedMixed": "mixed",
        "PublishedGains": "gains",
        "PublishedValues": "values",
    }
    return kinds[type(loaded).__name__]


def _promise(said: dict[str, Any]) -> str:
    from tacit.privacy.guarantee import Guarantee

    if "guarantee" not in said:
        return "It says nothing of a guarantee."
    if said["guarantee"] is None:
        return "No privacy: it promises nothing to anybody."
    return str(Guarantee.from_dict(said["guarantee"]))


def differences(one: Any, two: Any) -> dict[str, Any]:
    """Where tables differ, by label; of other kinds, whether they do."""
    import numpy as np

    if _kind(one) != _kind(two):
        return {"same": False, "words": f"{_kind(one)} and {_kind(two)}"}
    if _kind(one) != "table":
        arrays = [
            {name: value for name, value in vars(p).items() if name not in ("version", "stored")}
            | getattr(p, "stored", {})
            for p in (one, two)
        ]
        for held in arrays:
            for name in ("version", "about", "hash", "ledger_line", "ledger_head"):
                held.pop(name, None)
        changed = [name for name in arrays[0] if not _equal(arrays[0][name], arrays[1].get(name))]
        return {"same": not changed, "words": ", ".join(changed)}
    tables = [p.probabilities if p.actions is None else p.actions for p in (one, two)]
    if tables[0].shape != tables[1].shape or one.n_actions != two.n_actions:
        sizes = " and ".join(str(table.shape) for table in tables)
        return {"same": False, "words": f"tables of shape {sizes}"}
    different = tables[0] != tables[1]
    if different.ndim == 3:
        different = different.any(axis=2)
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
