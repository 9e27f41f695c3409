"""``tacit learn``: from logs and a small file to a published policy, night after night."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.terminal import asked, command, count, flag, given, print_facts, print_json, say
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitWarning

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.data.episodes import Episodes
    from tacit.service.app_file import App


@command()
def _learn(
    file: Annotated[str, given("APP.toml", "The file of the app.")],
    dry_run: Annotated[bool, flag("Say what would be done, and do nothing.", "--dry-run")] = False,
    after: Annotated[
        str, asked("OLD.toml", "Begin as the successor of this app, after its last user.")
    ] = "",
    roll_back: Annotated[
        int | None, count("Serve this version again, under a new number.", least=0)
    ] = None,
    pin: Annotated[
        bool | None, flag("Serve it whatever is learnt; or no longer.", "--pin/--unpin")
    ] = None,
    allow_code: terminal.AllowCode = False,
    as_json: terminal.Json = False,
) -> None:
    from tacit.service.app_file import read_app
    from tacit.service.sealing import sign_file

    app = read_app(file, allow_code=allow_code)
    old = read_app(after, allow_code=allow_code) if after and not app.begun else None
    if old is not None:
        app.check_after(old)
    for kind, path in app.files.items():
        endings = (".html",) if kind == "report" else ()
        terminal.check_writable(f"[files] {kind}", os.fspath(path), endings)
    plain, known = app.agent(files=False), _known(app, old)
    _check_component(app, plain)
    new = {name: os.path.relpath(name, app.folder) for name in app.log_files()}
    # Those that grew are read again: episodes that came before are known.
    new = {k: v for k, v in new.items() if known.get(v, -1) not in (None, os.path.getsize(k))}
    if dry_run:
        schedule, proven = plain.schedule, plain.guarantee
        content = {"agent": app.choice.text, "users": app.users, "resumes": app.begun}
        content |= {"blocks": schedule.releases, "first_block": schedule.blocks[0]}
        content |= {"why": plain.why, "guarantee": proven.to_dict() if proven else None}
        print_facts(content | {"learnt": len(known), "new": [*new.values()]}, as_json)
        if not as_json:
            say(f"It would promise: {proven}")
        return
    with app.open() as store:
        agent = app.agent(store, after=old)
        if old is not None and not as_json:
            say(f"It goes on with version {agent.policy.version} of {old.name}.")
        told = list[dict[str, Any]]()
        for name, short in new.items():
            agent, counts = _learn_file(app, agent, name, short)
            told.append(counts)
        if roll_back is not None or pin:
            agent.roll_back(agent.policy.version if roll_back is None else roll_back, pin=bool(pin))
        elif pin is False:
            agent.unpin()
        agent.publish(app.files["policy"])
        if app.signing:
            sign_file(app.files["policy"], app.signing, app.folder)
        if "report" in app.files:
            from tacit.cli.report import report, write_report

            facts = report(store, [os.fspath(app.files["policy"])], app)
            write_report(facts, os.fspath(app.files["report"]))
        content = {"policy": os.fspath(app.files["policy"]), "version": agent.policy.version}
        content |= {"users": agent.served, "waiting": agent.taken - agent.served, "files": told}
        content |= {"left": app.users - agent.taken}
        content |= {"trial": None if app.arms is None else agent.trial().plain()}
    lost = sum(each["retired"] + each["refused"] for each in told)
    vain = lost and not any(each["counted"] + each["waiting"] for each in told)
    if vain:
        why = f"of {sum(each['users'] for each in told):,} episodes none was taken, {lost:,} were "
        content["warning"] = f"this night taught nothing: {why}retired or refused"
        typer.echo(f"tacit: {content['warning']}", err=True)
    if as_json:
        print_json(content)
        raise typer.Exit(int(bool(vain)))
    for counts in told:
        words = ", ".join(f"{n:,} {what}" for what, n in counts.items() if what != "file" and n)
        say(f"{counts['file']}: {words or 'nobody'}")
    say(
        f"{app.files['policy'].name}: version {content['version']} after {content['users']:,} "
        f"users; {content['waiting']:,} wait for their block, {content['left']:,} may still come."
    )
    say(str(agent.guarantee))
    raise typer.Exit(int(bool(vain)))


def _check_component(app: App, agent: Agent) -> None:
    """Refuses a log that does not say what its agent needs to know, before anything is touched."""
    mixed = len(getattr(agent.policy, "components", ())) > 1
    if mixed and agent.algorithm.on_policy(agent.plan) and app.log and app.log.component is None:
        raise InvalidArgument(
            f"[log] component is missing: policies of {app.choice.text} are mixed, and an episode "
            "counts if it says which component was drawn for it"
        )


def _learn_file(app: App, agent: Agent, name: str, short: str) -> tuple[Agent, dict[str, Any]]:
    """Learns from all episodes of one file, and notes it in the ledger; who goes on, and counts."""
    from tacit.store import ledger

    fates = ("users", "counted", "waiting", "retired", "refused")
    totals, size = Counter[str](dict.fromkeys(fates, 0)), os.path.getsize(name)
    for episodes in app.episodes(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)  # the receipt says the same
            try:
                counts = asdict(agent.learn(episodes, events=_events(short, episodes)))
            except HorizonExceeded as error:
                if not app.successor:
                    words = f"{error}; here: tacit learn NEXT.toml --after OLD.toml"
                    raise HorizonExceeded(words) from error
                agent = app.heir(agent)
                counts = asdict(agent.learn(episodes, events=_events(short, episodes)))
        totals.update({k: n for k, n in counts.items() if k not in ("version", "published")})
    with agent.store.write() as db:
        ledger.append(db, agent.run_name, "log", file=short, bytes=size, **totals)
    return agent, {"file": short} | totals


def _events(file: str, episodes: Episodes) -> list[str]:
    """Names of episodes, each among its person's: the file, and how many of hers came before."""
    seen, found = Counter[int | str](), list[str]()
    for user in episodes.user_ids or ():
        found.append(f"{file} {seen[user]}")
        seen[user] += 1
    return found


def _known(app: App, old: App | None) -> dict[str, int | None]:
    """Files that this run, or one before it, has learnt from, and their bytes; makes no store."""
    from tacit.store import ledger

    if not app.stored:
        return {}
    with app.open() as store, store.read() as db:
        lines = [*ledger.read(db)]
    newest, runs = app.name, {app.name, app.name if old is None else old.name}
    for entry in reversed(lines):
        if entry.event == "successor" and runs & {*map(str, entry.body.values())}:
            runs.add(entry.run)
    for entry in lines if app.successor else ():
        if entry.event == "successor" and entry.run in runs:
            runs.add(newest := str(entry.body["to"]))
    mine = [e for e in lines if e.event == "log" and e.run in runs]
    # Those of runs before this one are not read on: it does not know their events.
    return {str(e.body["file"]): e.body.get("bytes") if e.run == newest else None for e in mine}
