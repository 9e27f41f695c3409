"""``tacit learn``: from logs and a small file to a published policy, night after night."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, flag, given
from tacit.cli.output import print_json, say
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitWarning
from tacit.privacy.files import MALFORMED, parse_json, read_file

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.service.app_file import App


def learn_command(
    file: Annotated[str, given("APP.toml", "The file of the app.")],
    dry_run: Annotated[bool, flag("Say what would be done, and do nothing.", "--dry-run")] = False,
    after: Annotated[
        str, asked("OLD.toml", "Begin as the successor of this app, after its last user.")
    ] = "",
    roll_back: Annotated[
        str, asked("POLICY", "Serve this policy again, which the app published.")
    ] = "",
    pin: Annotated[
        bool | None, flag("Serve it whatever is learnt; or no longer.", "--pin/--unpin")
    ] = None,
    allow_code: options.AllowCode = False,
    as_json: options.Json = False,
) -> None:
    """Learns from what is new, and publishes."""
    from tacit.service.app_file import read_app

    app, old = read_app(file, allow_code=allow_code), None
    if after and not app.files["state"].exists():
        old = read_app(after, allow_code=allow_code)
    for kind, path in app.files.items():
        options.check_writable(f"[files] {kind}", os.fspath(path))
    known = _known(app)
    if old is not None:  # by their names here
        known |= {_name(app, os.path.join(old.folder, name)) for name in _known(old)}
    new = [name for name in app.log_files() if _name(app, name) not in known]
    _check_component(app)
    if dry_run:
        _show_plan(app, known, new, as_json)
        return
    agent = _opened(app.agent if old is None else lambda: app.successor(old))
    if old is not None:
        if not as_json:
            say(f"It goes on with version {agent.policy.version}, after {agent.before:,} users.")
        for name in sorted(known):
            _note(app, os.path.join(app.folder, name), {})
    told = [_learn_file(app, agent, name, as_json) for name in new]
    if roll_back or pin is not None:
        _reinstate(app, agent, roll_back, pin)
    policy = app.files["policy"]
    agent.publish(policy)
    if "report" in app.files:
        from tacit.cli.report import report_command

        names = (os.fspath(app.files[kind]) for kind in ("ledger", "policy", "report"))
        ledger, paid, output = names
        report_command(ledger, policy=[paid], output=output, delta=None, expect="", as_json=False)
    content = {
        "policy": os.fspath(policy),
        "version": agent.policy.version,
        "users": agent.served,
        "waiting": agent.taken - agent.served,
        "left": app.users - agent.taken,
        "files": told,
    }
    if as_json:
        print_json(content)
        return
    say(
        f"{policy.name}: version {content['version']} after {content['users']:,} users; "
        f"{content['waiting']:,} wait for their block, {content['left']:,} may still come."
    )
    say(str(agent.guarantee))


def _check_component(app: App) -> None:
    """Refuses a log that does not say what its agent needs to know, before anything is touched."""
    from tacit.core.session import users_draw

    if app.log is None or app.log.component is not None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TacitWarning)  # they are said when it is opened
        draws = users_draw(app.agent(files=False).algorithm)
    if draws:
        raise InvalidArgument(
            f"[log] component is missing: policies of {app.choice.text} are mixed, and an episode "
            "counts if it says which component was drawn for it"
        )


def _reinstate(app: App, agent: Agent, path: str, pin: bool | None) -> None:
    """Serves an older policy again, after the users of the last one were learnt from."""
    from tacit.finite.policy import Policy

    if path:
        agent.roll_back(Policy.load(path), pin=bool(pin))
    elif pin:
        agent.roll_back(agent.policy, pin=True)
    else:
        agent.unpin()
    agent.save(app.files["state"])


def _opened(make: Callable[[], Agent]) -> Agent:
    """The agent; what it warns of is a line each."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TacitWarning)
        agent = make()
    for warning in said:
        typer.echo(f"tacit: warning: {warning.message}", err=True)
    return agent


def _learn_file(app: App, agent: Agent, name: str, quiet: bool) -> dict[str, Any]:
    """All episodes of one file; it is noted when their state is on disk."""
    totals: Counter[str] = Counter()
    for episodes in app.episodes(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)  # the receipt says the same
            counts = asdict(agent.learn(episodes))
        totals.update({what: counts[what] for what in counts if what not in _NOT_COUNTED})
    agent.save(app.files["state"])
    _note(app, name, totals)
    if not quiet:
        words = ", ".join(f"{count:,} {what}" for what, count in totals.items() if count)
        say(f"{_name(app, name)}: {words or 'nobody'}")
    return {"file": _name(app, name)} | totals


_NOT_COUNTED = ("version", "published")


# Which files were learnt from: a line for each, beside the state.


def _journal(app: App) -> str:
    return f"{os.fspath(app.files['state'])}.files"


def _name(app: App, name: str) -> str:
    return os.path.relpath(name, app.folder)


def _known(app: App) -> set[str]:
    path = _journal(app)
    if not os.path.exists(path):
        return set()
    try:
        lines = read_file(path, "result").splitlines()
        return {str(parse_json(line)["file"]) for line in lines}
    except MALFORMED:
        raise CorruptFile(f"{path!r} does not say which files were read") from None


def _note(app: App, name: str, totals: dict[str, Any]) -> None:
    descriptor = os.open(_journal(app), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "a") as file:
        file.write(json.dumps({"file": _name(app, name)} | totals) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _show_plan(app: App, known: set[str], new: list[str], as_json: bool) -> None:
    """What would be done."""
    agent = _opened(lambda: app.agent(files=False))
    content = {
        "agent": app.choice.text,
        "users": app.users,
        "epsilon": app.privacy.epsilon,
        "delta": app.privacy.delta,
        "resumes": app.files["state"].exists(),
        "learnt": len(known),
        "new": [_name(app, name) for name in new],
        "blocks": agent.schedule.releases,
        "first_block": agent.schedule.blocks[0],
        "why": agent.why,
        "guarantee": agent.guarantee.to_dict() if agent.guarantee else None,
        "files": {kind: os.fspath(path) for kind, path in app.files.items()},
    }
    if as_json:
        print_json(content)
        return
    how = "goes on from its saved state" if content["resumes"] else "begins"
    say(f"{app.choice.text} for {app.users:,} users {how}. Chosen: {agent.why}.")
    say(f"A block has at least {content['first_block']:,} users; then a policy is published.")
    learnt = f"{len(known)} {'file was' if len(known) == 1 else 'files were'} learnt from"
    names = f": {', '.join(content['new'])}" if new else ""
    say(f"{learnt}, {len(new)} {'is' if len(new) == 1 else 'are'} new{names}")
    say(f"It would promise: {agent.guarantee}")
