"""``tacit report``: a store's ledger and the policies made of it, as a page an officer can sign."""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.ledger import summary
from tacit.cli.terminal import asked, at_most, command, print_json
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.files import write_atomic

if TYPE_CHECKING:
    from tacit.store.store import Store


@command()
def _report(
    store: terminal.Store,
    policy: Annotated[
        list[str] | None, asked("FILE", "A published policy; may be given several times.")
    ] = None,
    app: Annotated[str, asked("APP.toml", "The app's file, whose table [about] is said.")] = "",
    output: Annotated[
        str, asked("FILE", "Where to write it, .html; as .yaml for the registry of deployments.")
    ] = "",
    as_json: terminal.Json = False,
) -> None:
    with terminal.open_store(store) as opened:
        terminal.check_writable("--output", output or None, (".html", ".yaml"))
        found = report(opened, policy or [], app)
    if output:
        write_report(found, output)
        typer.echo(f"{output}: {found['verdict']}")
    elif as_json:
        print_json(found)
    else:
        typer.echo(page(found), nl=False)
    if not found["well"]:
        raise typer.Exit(1)


def write_report(found: Mapping[str, Any], output: str) -> None:
    """Writes a report, of which these are the facts, as a page, or as a record of a registry."""
    text = page(found, "deployment.yaml" if output.endswith(".yaml") else "report.html")
    write_atomic(output, text.encode(), 0o644)


def page(found: Mapping[str, Any], template: str = "report.html") -> str:
    """A report as one file of HTML, without scripts, or as another template has it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
    made.trim_blocks = True
    made.filters |= {"at_most": at_most, "promise": _promise}
    run = next((run for run in reversed(found["runs"]) if run["promise"]), None)
    if template == "deployment.yaml" and (run is None or found["kind"] == "simulations"):
        raise InvalidArgument("--output: there is no run of people to register")
    return made.get_template(template).render({**found, "run": run})


def _promise(said: Mapping[str, Any]) -> str:
    """The words of a guarantee, as the ledger has it."""
    from tacit.privacy.budget import Guarantee

    with suppress(TacitError):
        return str(Guarantee.from_dict(said))
    return "the ledger was changed, and says what is no guarantee."


def report(store: Store, policies: Sequence[str | bytes] = (), app: Any = None) -> dict[str, Any]:
    """All that the page says of a store, of policies and an app, by file or content, as JSON."""
    import tacit
    from tacit.service.app_file import ABOUT, read_app
    from tacit.store import ledger

    found, problems = summary(store), ledger.verify(store)
    app = read_app(app, logs=False) if app and isinstance(app, str) else app
    about = dict.fromkeys(ABOUT, "The operator must say.") | dict(app.about if app else {})
    for run in found["runs"]:
        _add_epsilons(run, run["promise"])
        run["trial"] = _trial(store, run["name"])
    if (people := found["limit"]) is not None:
        people["user_limit"], people["user_cost"] = found["most"] or 0.0, found["people"]["max"]
        _add_epsilons(people, people)
    with store.read() as db:
        known = {entry.hash for entry in ledger.read(db)}
    promises = [run["promise"] for run in found["runs"]]
    found |= {
        "name": os.path.basename(found["store"]),
        "problems": len(problems),
        "policies": [_policy(policy, known, promises) for policy in policies],
        "about": about,
        "tacit": tacit.__version__,
    }
    lacking = [policy["file"] for policy in found["policies"] if not policy["line_is_here"]]
    differ = [policy["file"] for policy in found["policies"] if policy["promises_else"]]
    named = {run["name"]: run["fingerprint"] for run in found["runs"]}
    mine = app and ledger.digest(app.agent(files=False).algorithm.fingerprint)
    if app and named.get(app.name) != mine:
        differ.append("the app's file")
    found |= {"unaccounted": lacking, "differ": differ, "well": not (lacking or differ or problems)}
    return found | {"verdict": _verdict(found)}


def _trial(store: Store, run: str) -> Any:
    """The answer of a run, if it has a trial, and no code that is not ours."""
    from tacit.core.agent import open_run

    with contextlib.suppress(InvalidArgument), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return open_run(store, run).trial().plain()


def _add_epsilons(spent: dict[str, Any], promise: Mapping[str, Any] | None) -> None:
    """Adds what a user may spend, has spent and has left, as epsilons at the declared delta."""
    from tacit.privacy.budget import epsilon_from_mu

    delta = 1e-6 if promise is None else float(promise["delta"])
    if not str(spent["unit"]).startswith("mu^2"):  # pure, or of devices, which pay nothing here
        delta = 0.0

    def epsilon(cost: float) -> float:
        return epsilon_from_mu(cost**0.5, delta) if delta else cost

    limit, cost = spent["user_limit"], min(spent["user_cost"], spent["user_limit"])
    spent |= {"delta": delta, "user_cost": cost, "user_left": limit - cost}
    spent |= {"epsilon_limit": epsilon(limit), "epsilon_cost": epsilon(cost)}
    spent["epsilon_left"] = max(spent["epsilon_limit"] - spent["epsilon_cost"], 0.0)


def _policy(policy: str | bytes, known: Set[str], promises: Sequence[Any]) -> dict[str, Any]:
    """A published policy: what it says of itself, and whether the ledger has its entry."""
    from tacit import published

    try:
        said = published.about(policy)
    except ValueError as error:
        raise InvalidArgument(f"--policy: {error}") from None
    name, data = f"version {said['version']}", policy
    if isinstance(data, str):
        name, data = os.path.basename(data), Path(data).read_bytes()
    return {
        "file": name,
        "version": int(said["version"]),
        "sha256": hashlib.sha256(data).hexdigest(),
        "published": said.get("date"),
        "simulated": said.get("simulated"),
        "after_line": said.get("ledger_line"),
        "line_is_here": said.get("ledger_head") in known,
        "promises_else": "guarantee" in said and said["guarantee"] not in promises,
    }


def _verdict(found: Mapping[str, Any]) -> str:
    if names := ", ".join(found["unaccounted"]):
        return f"NOT accounted for: the ledger lacks the entry after which {names} was published"
    if names := ", ".join(found["differ"]):
        return f"NOT one promise: {names} says another guarantee than the ledger's runs"
    if found["problems"]:
        return f"NOT well: tacit ledger verify names {found['problems']} problems"
    if found["kind"] == "simulations":
        return "a simulation: its noise has a known seed and protects nobody"
    paid = [run for run in found["runs"] if run["user_limit"]]
    if not paid:
        return "nothing to account for: no run, or devices add the noise, or there is no privacy"
    worst = max(paid, key=lambda run: run["epsilon_cost"])
    spent, over = found["limit"] or worst, "all runs" if found["limit"] else f"run {worst['name']}"
    cost, limit = at_most(spent["epsilon_cost"]), at_most(spent["epsilon_limit"])
    return f"within budget: a user of {over} has spent at most epsilon {cost} of {limit}"
