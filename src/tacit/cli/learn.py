"""``tacit learn``: from logs and a small file to a published policy, night after night.

The ledger has an entry for each file that was learnt from, and the store an id for each episode: a
night that was cut off is given again, and nobody counts twice.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import options
from tacit.cli.options import asked, command, flag, given
from tacit.cli.output import print_json, say
from tacit.options import whole_number
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitWarning

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.data.episodes import Episodes
    from tacit.service.app_file import App
    from tacit.store.store import Store


@command()
def _learn(
    file: Annotated[str, given("APP.toml", "The file of the app.")],
    dry_run: Annotated[bool, flag("Say what would be done, and do nothing.", "--dry-run")] = False,
    after: Annotated[
        str, asked("OLD.toml", "Begin as the successor of this app, after its last user.")
    ] = "",
    roll_back: Annotated[
        str | None, asked("VERSION", "Serve this version again, under a new number.")
    ] = None,
    pin: Annotated[
        bool | None, flag("Serve it whatever is learnt; or no longer.", "--pin/--unpin")
    ] = None,
    allow_code: options.AllowCode = False,
    as_json: options.Json = False,
) -> None:
    from tacit.service.app_file import read_app
    from tacit.store.store import Store

    app = read_app(file, allow_code=allow_code)
    old = read_app(after, allow_code=allow_code) if after and not app.begun else None
    if old is not None:
        app.check_after(old)
    version = None if roll_back is None else whole_number("roll-back", roll_back, least=0)
    for kind, path in app.files.items():
        options.check_writable(f"[files] {kind}", os.fspath(path))
    files, plain = app.log_files(), _opened(lambda: app.agent(files=False))
    _check_component(app, plain)
    known = _known(app, old)
    if dry_run:
        _show_plan(app, plain, known, files, as_json)
        return
    with Store(app.store) as store:
        agent = app.agent(store, after=old)
        if old is not None and not as_json:
            say(f"It goes on with version {agent.policy.version} of {old.name}.")
        new = [name for name in files if _name(app, name) not in known]
        told = [_learn_file(app, agent, name, as_json) for name in new]
        if version is not None or pin:
            agent.roll_back(agent.policy.version if version is None else version, pin=bool(pin))
        elif pin is False:
            agent.unpin()
        _publish(app, agent, store)
        content = {
            "policy": os.fspath(app.files["policy"]),
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
        f"{app.files['policy'].name}: version {content['version']} after {content['users']:,} "
        f"users; {content['waiting']:,} wait for their block, {content['left']:,} may still come."
    )
    say(str(agent.guarantee))


def _opened(make: Callable[[], Agent]) -> Agent:
    """The agent; what it warns of is a line each."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TacitWarning)
        agent = make()
    for warning in said:
        typer.echo(f"tacit: warning: {warning.message}", err=True)
    return agent


def _check_component(app: App, agent: Agent) -> None:
    """Refuses a log that does not say what its agent needs to know, before anything is touched."""
    mixed = len(getattr(agent.policy, "components", ())) > 1
    if mixed and agent.algorithm.on_policy(agent.plan) and app.log and app.log.component is None:
        raise InvalidArgument(
            f"[log] component is missing: policies of {app.choice.text} are mixed, and an episode "
            "counts if it says which component was drawn for it"
        )


def _publish(app: App, agent: Agent, store: Store) -> None:
    policy = app.files["policy"]
    agent.publish(policy)
    if "report" in app.files:
        from tacit.cli.report import write_report

        write_report(store, [os.fspath(policy)], os.fspath(app.files["report"]))


def _learn_file(app: App, agent: Agent, name: str, quiet: bool) -> dict[str, Any]:
    """Learns from all episodes of one file, and notes it in the ledger."""
    from tacit.store import ledger

    totals, short = Counter[str](), _name(app, name)
    for episodes in app.episodes(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)  # the receipt says the same
            try:
                counts = asdict(agent.learn(episodes, events=_events(short, episodes)))
            except HorizonExceeded as error:
                words = f"{error}; here: tacit learn NEXT.toml --after OLD.toml"
                raise HorizonExceeded(words) from error
        totals.update({what: counts[what] for what in counts if what not in _NOT_COUNTED})
    with agent.store.write() as db:
        ledger.append(db, agent.run_name, "log", file=short, **totals)
    if not quiet:
        words = ", ".join(f"{count:,} {what}" for what, count in totals.items() if count)
        say(f"{short}: {words or 'nobody'}")
    return {"file": short} | totals


_NOT_COUNTED = ("version", "published")


def _events(file: str, episodes: Episodes) -> list[str]:
    """Names of episodes, each among its person's: the file, and how many of hers came before."""
    seen, found = Counter[int | str](), list[str]()
    for user in episodes.user_ids or ():
        found.append(f"{file} {seen[user]}")
        seen[user] += 1
    return found


def _name(app: App, name: str) -> str:
    return os.path.relpath(name, app.folder)


def _known(app: App, old: App | None) -> set[str]:
    """Files that this run, or one before it, has learnt from; makes no store."""
    from tacit.store import ledger
    from tacit.store.store import Store

    if not app.stored:
        return set()
    with Store(app.store) as store, store.read() as db:
        lines = [*ledger.read(db)]
    runs = {app.name, app.name if old is None else old.name}
    for entry in reversed(lines):
        if entry.event == "successor" and runs & {*map(str, entry.body.values())}:
            runs.add(entry.run)
    return {str(e.body["file"]) for e in lines if e.event == "log" and e.run in runs}


def _show_plan(app: App, agent: Agent, known: set[str], files: list[str], as_json: bool) -> None:
    """Says what would be done."""
    new = [name for name in (_name(app, file) for file in files) if name not in known]
    content: Mapping[str, Any] = {
        "agent": app.choice.text,
        "users": app.users,
        "epsilon": app.privacy.epsilon,
        "delta": app.privacy.delta,
        "resumes": app.begun,
        "learnt": len(known),
        "new": new,
        "blocks": agent.schedule.releases,
        "first_block": agent.schedule.blocks[0],
        "why": agent.why,
        "guarantee": agent.guarantee.to_dict() if agent.guarantee else None,
        "store": options.store_name(app.store),
        "name": app.name,
        "files": {kind: os.fspath(path) for kind, path in app.files.items()},
    }
    if as_json:
        print_json(content)
        return
    how = "goes on" if content["resumes"] else "begins"
    say(f"{app.choice.text} for {app.users:,} users {how}. Chosen: {agent.why}.")
    say(f"A block has at least {content['first_block']:,} users; then a policy is published.")
    learnt = f"{len(known)} {'file was' if len(known) == 1 else 'files were'} learnt from"
    names = f": {', '.join(new)}" if new else ""
    say(f"{learnt}, {len(new)} {'is' if len(new) == 1 else 'are'} new{names}")
    say(f"It would promise: {agent.guarantee}")
