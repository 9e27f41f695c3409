"""``tacit offline``: from a log that is there already to a policy that is surely better."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from tacit.cli import terminal
from tacit.cli.terminal import amount, asked, command, count, given, print_json, say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.data.episodes import Episodes
    from tacit.service.app_file import App
    from tacit.tabular.offline import Recommendation

_WORDS = ("uniform", "logged", "unknown")
_BEHAVIOUR = "What the log's users were served: uniform, logged, unknown, or a published policy."


@command()
def _offline(
    file: Annotated[str, given("APP.toml", "The file of the app.")],
    behaviour: Annotated[str, asked("uniform|logged|unknown|POLICY", _BEHAVIOUR)] = "unknown",
    trial: Annotated[str | None, asked("FILE", "Write the boldest policy, for a trial.")] = None,
    confidence: Annotated[float, amount("With which probability all intervals hold.")] = 0.95,
    seed: Annotated[int, count("Of who is learnt from and who judges; public.", least=0)] = 0,
    as_json: terminal.Json = False,
) -> None:
    from tacit.service.app_file import policy_of, read_app
    from tacit.tabular.offline import learn_offline

    app = read_app(file)
    target = os.fspath(app.files["policy"])
    for option, path in (("--trial", trial), ("[files] policy", target)):
        terminal.check_writable(option, path)
    log = _joined([part for name in app.log_files() for part in app.episodes(name)])
    known = behaviour in _WORDS
    people: Any = behaviour if known else policy_of("--behaviour", behaviour, app.spec)
    with app.open() as store:
        given: dict[str, Any] = {"store": store, "name": f"{app.name} offline", "seed": seed}
        given |= {"behaviour": people, "confidence": confidence}
        found = learn_offline(log, app.spec, app.privacy, **given)
        written = {target: found.policy} if found.better else {}
        written |= {trial: found.trial} if trial else {}
        for path, policy in written.items():
            _publish(policy, path, app, found, store)
    if as_json:
        intervals = {name: asdict(getattr(found, name)) for name in ("gain", "value", "today")}
        plain = {name: getattr(found, name) for name in ("better", "verdict", "learnt", "judged")}
        promise = found.guarantee.to_dict() if found.guarantee else None
        more = {"fit": found.fit, "guarantee": promise, "files": [*written]}
        print_json(plain | intervals | more)
        return
    say(str(found))
    for path in written:
        say(f"Written: {path}{', for a trial' * (path == trial)}")


def _joined(parts: Sequence[Episodes]) -> Episodes:
    """All episodes of a log."""
    if not parts:
        raise InvalidArgument("[log] path: there is no episode in it")
    names = parts[0].block().arrays
    columns: Any = {n: np.concatenate([getattr(part, n) for part in parts]) for n in names}
    ids = [user for part in parts for user in part.user_ids or ()]
    return type(parts[0])(**columns, user_ids=ids)


def _publish(policy: Any, path: str, app: App, found: Recommendation, store: Any) -> None:
    from tacit.core.algorithm import Progress
    from tacit.core.public_file import facts_of, publish_with
    from tacit.store import ledger

    about = SimpleNamespace(name="learn_offline", spec=app.spec)
    facts = facts_of(about, found.guarantee, Progress(2, found.learnt + found.judged))
    with store.read() as db:
        facts["ledger_line"], facts["ledger_head"] = ledger.head(db)
    publish_with(policy, path, facts)
