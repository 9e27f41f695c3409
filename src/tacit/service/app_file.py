"""The file of an app: which log, which agent, which budget, and where its files are."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.files import parse_toml, read_file

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.core.episodes import Episodes
    from tacit.core.logs import LogFormat
    from tacit.finite.spec import FiniteSpec
    from tacit.privacy.models import JointDP, LocalDP
    from tacit.registry import AgentChoice

_BATCH = 1 << 18
_TABLES = {
    "world": (
        *("states", "actions", "horizon", "stationary", "reward_values", "start", "admissible"),
        "last_state",
    ),
    "agent": ("name", "users", "schedule"),
    "privacy": ("epsilon", "delta", "episodes_per_user", "model"),
    "files": ("state", "ledger", "policy", "report"),
}


@dataclass(frozen=True)
class Serving:
    """The table [serve]: how ``tacit serve`` listens, and what it allows."""

    database: str = "service.db"  # a file, or postgresql://...
    host: str = "127.0.0.1"
    port: int = 8321
    workers: int = 1  # processes that answer
    curator: bool = True  # whether this machine has the ledger and may release
    window: int = 86400  # seconds from a device's reading of the policy to its episode; 0: any
    rate: int = 100  # requests per second of one token from one address
    body: int = 65536  # bytes of a request at most
    seconds: int = 10  # in which a request must have come
    certificate: str = ""  # files of TLS
    certificate_key: str = ""
    origins: str = ""  # of web pages whose scripts may ask, "https://app.example.org ..."
    sandbox: bool = False  # whether simulated users may be played, who take places of real ones


@dataclass(frozen=True)
class App:
    """What a file of an app says, checked."""

    folder: Path
    spec: FiniteSpec
    choice: AgentChoice
    users: int
    schedule: str
    privacy: JointDP | LocalDP
    log: LogFormat | None
    logs: Path
    grouped: bool
    files: Mapping[str, Path]
    serving: Serving

    def agent(self, *, files: bool = True) -> Agent:
        """The agent: a new one at the first start, else the one that was there."""
        from tacit.registry import NamedMaker

        make = NamedMaker(self.choice.text, self.choice.target).make
        options = dict(self.choice.options) | {"schedule": self.schedule}
        state, ledger = self.files["state"], self.files["ledger"]
        if not files:
            made: Agent = make(self.spec, self.users, self.privacy, **options)
            return made
        kept = {} if self.privacy.local else {"ledger": ledger, "autosave": state}
        if state.exists():
            made = make(self.spec, self.users, self.privacy, **options)
            return made.load(state, **kept)
        made = make(self.spec, self.users, self.privacy, **options, **kept)
        return made  # noqa: RET504

    def successor(self, old: App) -> Agent:
        """The agent that goes on where another app's stops, with files of its own."""
        from tacit.privacy.ledger import Ledger

        for kind in ("state", "ledger"):
            mine, other = self.files[kind].resolve(), old.files[kind].resolve()
            if mine == other and not (kind == "ledger" and other.exists() and Ledger(other).people):
                raise InvalidArgument(
                    f"[files] {kind}: {os.fspath(mine)!r} is the predecessor's; a successor needs "
                    "one of its own"
                )
        if not old.files["state"].exists():
            raise InvalidArgument(f"there is no {os.fspath(old.files['state'])!r} to go on from")
        kept = {"ledger": self.files["ledger"], "autosave": self.files["state"]}
        return old.agent().successor(self.users, self.privacy, schedule=self.schedule, **kept)

    @property
    def database(self) -> str:
        """Where the service's database is: a connection string, or the path of a file."""
        where = self.serving.database
        return where if "://" in where else os.fspath(self.folder / where)

    def log_files(self) -> list[str]:
        """The log's files, in the order of their names."""
        if not self.logs.exists():
            raise InvalidArgument(f"[log] path: there is no {os.fspath(self.logs)!r}")
        if self.logs.is_file():
            return [os.fspath(self.logs)]
        kinds = (".parquet", ".csv")
        inside = (p for p in self.logs.rglob("*") if p.is_file() and p.suffix.lower() in kinds)
        return sorted(map(os.fspath, inside))

    def episodes(self, name: str) -> Iterator[Episodes]:
        """The episodes of one file, batch by batch."""
        from tacit.core.logs import batches_of, csv_batches

        assert self.log is not None  # noqa: S101
        if name.lower().endswith(".csv"):
            parts = csv_batches([name], self.log, _BATCH, self.grouped)
        else:
            parts = batches_of(name, self.log, _BATCH, self.grouped)
        return map(self.log.episodes, parts)


def read_app(path: str, *, logs: bool = True, allow_code: bool = False) -> App:
    """Reads and checks the file of an app; every mistake names the table and the key.

    With ``logs`` it must say where they are; a service needs none. Its agent is a registered one,
    unless it may name code that is imported.
    """
    from tacit.registry import names_of

    try:
        held = parse_toml(read_file(path, "world"))
    except ValueError as error:
        raise InvalidArgument(f"{path!r} is no TOML: {error}") from None
    unknown = sorted(set(held) - {*_TABLES, "log", "serve"})
    if unknown:
        raise InvalidArgument(f"{path!r} has no table [{unknown[0]}]; it has {_words()}")
    folder = Path(path).resolve().parent
    needed = (*_TABLES, "log") if logs or "log" in held else tuple(_TABLES)
    tables = {name: _table(held, name) for name in needed}
    # A log that has no column of next states has none after the last step.
    unseen = tables.get("log", {}).get("next_state") == ""
    spec = _spec({"last_state": not unseen} | tables["world"])
    with names_of(path, allow_code):
        choice, users, schedule = _agent(tables["agent"])
    made = _log(tables["log"], spec) if "log" in tables else (None, "", False)
    files = {
        kind: folder / _text(f"[files] {kind}", tables["files"].get(kind, default))
        for kind, default in _FILES.items()
        if kind in tables["files"] or default
    }
    budget = _privacy(tables["privacy"])
    if logs and budget.local:
        raise InvalidArgument("[privacy] model: logs hold raw data; devices report to tacit serve")
    return App(
        *(folder, spec, choice, users, schedule, budget),
        *(made[0], folder / made[1], made[2], files, _serving(held.get("serve", {}))),
    )


_FILES = {"state": "agent.state", "ledger": "budget.ledger", "policy": "policy.npz", "report": ""}


def _words() -> str:
    return ", ".join(f"[{name}]" for name in (*_TABLES, "log", "serve"))


def _table(held: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = held.get(name, {})
    if not isinstance(found, dict) or (name not in held and name != "files"):
        raise InvalidArgument(f"the table [{name}] is missing; an app's file has {_words()}")
    if name != "log":
        wrong = sorted(set(found) - {*_TABLES[name]})
        if wrong:
            allowed = ", ".join(_TABLES[name])
            raise InvalidArgument(f"[{name}] has no key {wrong[0]!r}; it has {allowed}")
    return dict(found)


def _needed(table: str, held: Mapping[str, Any], key: str) -> Any:
    if key not in held:
        raise InvalidArgument(f"[{table}] {key} is missing")
    return held[key]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} is {value!r}, but must be a text")
    return value


def _spec(held: dict[str, Any]) -> FiniteSpec:
    from tacit.finite.spec import FiniteSpec

    sizes: dict[str, Any] = {}
    for key in ("states", "actions"):
        given = _needed("world", held, key)
        if isinstance(given, list):
            sizes |= {key: len(given), f"{key[:-1]}_labels": tuple(given)}
        else:
            sizes[key] = given
    rest = {key: held[key] for key in held if key not in sizes}
    for key in ("reward_values", "start"):
        if key in rest:
            rest[key] = tuple(rest[key]) if isinstance(rest[key], list) else rest[key]
    _needed("world", held, "horizon")
    rest.setdefault("stationary", True)
    try:
        return FiniteSpec(**sizes, **rest)
    except TacitError as error:
        raise InvalidArgument(f"[world] {error}") from None


def _agent(held: dict[str, Any]) -> tuple[AgentChoice, int, str]:
    from tacit.privacy.arguments import whole_number
    from tacit.registry import choose_agent

    users = whole_number("[agent] users", _needed("agent", held, "users"))
    choice = choose_agent(_text("[agent] name", held.get("name", "ucbvi")))
    if choice.budget:
        raise InvalidArgument("[agent] name: the budget belongs to [privacy]")
    return choice, users, _text("[agent] schedule", held.get("schedule", "auto"))


def _privacy(held: dict[str, Any]) -> JointDP | LocalDP:
    from tacit.privacy.models import JointDP, LocalDP

    for key in ("epsilon", "delta"):
        _needed("privacy", held, key)
    models = {"joint": JointDP, "local": LocalDP}
    model = held.pop("model", "joint")
    if model not in models:
        raise InvalidArgument(f"[privacy] model is {model!r}, but must be joint or local")
    try:
        return models[model](**held)  # type: ignore[no-any-return]
    except TacitError as error:
        raise InvalidArgument(f"[privacy] {error}") from None


def _log(held: dict[str, Any], spec: FiniteSpec) -> tuple[LogFormat, str, bool]:
    from tacit.core.logs import LogFormat, format_of
    from tacit.privacy.arguments import flag

    path = _text("[log] path", _needed("log", held, "path"))
    grouped = flag("[log] grouped", held.pop("grouped", False))
    del held["path"]
    allowed = [item.name for item in fields(LogFormat)]
    wrong = sorted(set(held) - {*allowed})
    if wrong:
        raise InvalidArgument(f"[log] has no key {wrong[0]!r}; it has {', '.join(allowed)}")
    # TOML has no word for nothing.
    if held.get("next_state") == "":
        held["next_state"] = None
    try:
        return LogFormat(**format_of(spec, held)), path, grouped
    except TacitError as error:
        raise InvalidArgument(f"[log] {error}") from None


def _serving(held: Any) -> Serving:
    from tacit.privacy.arguments import flag, whole_number

    allowed: dict[str, Any] = {item.name: item.default for item in fields(Serving)}
    if not isinstance(held, dict) or set(held) - set(allowed):
        wrong = min(set(held) - set(allowed)) if isinstance(held, dict) else held
        raise InvalidArgument(f"[serve] has no key {wrong!r}; it has {', '.join(allowed)}")
    for key, value in held.items():
        name, kind = f"[serve] {key}", type(allowed[key])
        if kind is bool:
            flag(name, value)
        elif kind is int:
            whole_number(name, value, least=0 if key in ("window", "port") else 1)
        elif not isinstance(value, str):
            raise InvalidArgument(f"{name} is {value!r}, but must be a text")
    made = Serving(**held)
    if bool(made.certificate) != bool(made.certificate_key):
        raise InvalidArgument("[serve] certificate and certificate_key go together")
    return made
