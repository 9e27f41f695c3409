"""The file of an app: which log, which agent, which budget, and where its files are."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.files import parse_toml, read_file
from tacit.privacy.validation import flag, one_of, whole_number
from tacit.service.identity import networks
from tacit.service.sealing import secret
from tacit.store import runs

if TYPE_CHECKING:
    from tacit.core.agent import Agent
    from tacit.core.arms import Arms
    from tacit.data.episodes import Episodes
    from tacit.data.logs import LogFormat
    from tacit.privacy.models import JointDP, LocalDP
    from tacit.registry import AgentChoice
    from tacit.store.store import Store
    from tacit.tabular.policy import Policy

_FILES = {"store": "app.db", "name": "run", "policy": "policy.npz", "report": ""}
_FILES |= {"key": "", "signing": ""}  # secrets, apart from the store
ABOUT = ["app", "controller", "contact", "purpose", "fields", "retention", "encryption", "region"]
ABOUT += ["sector", "why_epsilon", "actors", "tuning", "groups", "today"]
_TRIAL = ("holdout", "share", "alpha", "explore", "returns", "looks", "probabilities", "rule")
# Keys of a table that must be there, and those that may.
_TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "world": (
        ("states", "actions", "horizon"),
        ("stationary", "reward_values", "start", "admissible", "last_state"),
    ),
    "agent": (("users",), ("name", "schedule", "successor")),
    "privacy": (("epsilon", "delta"), ("episodes_per_user", "model")),
    "files": ((), tuple(_FILES)),
    "schedule": ((), ("every",)),
    "late": ((), ("default_reward",)),
    "trial": ((), ("baseline", *_TRIAL)),
    "about": ((), tuple(ABOUT)),
}
_OF_TRIAL = ("probabilities", "looks", "gram", "memory", "usual_reward", "reward_scale")
_NEEDED = ("world", "agent", "privacy", "log")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@dataclass(frozen=True)
class Serving:
    """The table [serve]: how ``tacit serve`` listens, and what it allows."""

    host: str = "127.0.0.1"
    port: int = 8321
    workers: int = 1  # processes that answer
    window: int = 86400  # seconds from a device's reading of the policy to its episode
    rate: int = 100  # requests per second of one token from one address
    body: int = 65536  # bytes of a request at most
    seconds: int = 10  # in which a request must have come
    certificate: str = ""  # files of TLS
    certificate_key: str = ""
    origins: str = ""  # of web pages whose scripts may ask, "https://app.example.org ..."
    jwks: str = ""  # keys that sign people's tokens: a file, or https://...
    issuer: str = ""  # of those tokens; without jwks it says where its keys are
    audience: str = ""  # whom they are for: this app
    person_rate: int = 5  # requests per second of one person
    proxies: str = ""  # networks whose X-Forwarded-For and -Proto are believed, "10.0.0.0/8 ..."

    @property
    def identifies(self) -> bool:
        """Whether people have tokens of their own."""
        return bool(self.jwks or self.issuer)


@dataclass(frozen=True)
class App:
    """Configuration of an app, as its file has it, checked."""

    folder: Path
    spec: Any  # of a finite world, or a TrialSpec
    choice: AgentChoice
    arms: Arms | None  # of its trial, if there is one
    users: int
    schedule: str
    privacy: JointDP | LocalDP
    log: LogFormat | None
    logs: Path
    grouped: bool
    store: str  # a file, or postgresql://...
    name: str  # of the run in its store
    files: Mapping[str, Path]  # the policy, and the report if there is one
    serving: Serving
    every: float  # seconds after which a block with places closes; 0: by count alone
    successor: bool  # whether a run goes on past its declared users, by one for as many
    default_reward: float  # of a step whose outcome never comes; NaN: it does not count
    key: str  # of the store's secrets, as tacit.service.sealing reads it
    signing: str  # keys that sign policies
    about: Mapping[str, str]  # what only the operator knows, for pages and reports

    def open(self, **options: Any) -> Store:
        """The store, with its key."""
        from tacit.store.store import Store

        key = secret(self.key, self.folder) if self.key else None
        return Store(self.store, secret=key, **options)

    def agent(
        self, store: Store | str | None = None, *, files: bool = True, after: App | None = None
    ) -> Agent:
        """The agent: a new one at the first start, perhaps after another's; or one in memory."""
        opened = (self.open() if store is None else store) if files else ""
        if after is not None and not self.begun:
            self.check_after(after)
            serving = {"schedule": self.schedule, "name": self.name}
            made: Agent = after.agent(opened).successor(self.users, self.privacy, **serving)
        else:
            options = {**self.choice.options, "schedule": self.schedule, "name": self.name}
            options |= {} if self.arms is None else {"baseline": self.arms}
            if self.successor and opened:
                options["name"] = self.chain(opened)[0]
            made = self.choice.make(self.spec, self.users, self.privacy, **options, store=opened)
        if self.every and made.algorithm.counter != "blocks":
            raise InvalidArgument("[schedule] every: this agent's releases are planned by count")
        made.intake.every, made.intake.default_reward = self.every, self.default_reward
        made.intake.window = float(self.serving.window)
        return made

    def chain(self, store: Any) -> list[str]:
        """Names of its runs, the newest first."""
        with store.read() as db:
            return runs.chain(db, self.name) if self.successor else [self.name]

    def heir(self, agent: Agent) -> Agent:
        """The successor of a run, for as many users; made, if it is not there."""
        if not agent.run_row().succeeded:
            given = {"schedule": self.schedule, "name": f"{agent.run_name}+"}
            agent.successor(self.users, self.privacy, **given)
        return self.agent(agent.store)

    def check_after(self, old: App) -> None:
        """Refuses an app that cannot go on after another; nothing is touched."""
        if (old.store, old.folder) != (self.store, self.folder) or old.name == self.name:
            words = "a successor has its predecessor's folder and store, and a name of its own"
            raise InvalidArgument(f"[files] {words}")
        if not old.begun:
            raise InvalidArgument(f"the store has no run {old.name!r} to go on from")

    @property
    def stored(self) -> bool:
        """Whether it has a store; makes none."""
        return "://" in self.store or os.path.exists(self.store)

    @property
    def begun(self) -> bool:
        """Whether its run is in its store."""
        if self.stored:
            with self.open(readonly=True) as store, store.read() as db:
                return runs.find(db, self.name) is not None
        return False

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
        assert self.log is not None  # noqa: S101
        return self.log.file_episodes(name, 1 << 18, self.grouped)


def read_app(path: str, *, logs: bool = True, allow_code: bool = False) -> App:
    """Reads and checks the file of an app; every mistake names the table and the key.

    With ``logs`` it must say where they are; only with ``allow_code`` it may name code.
    """
    from tacit.data.logs import LogFormat
    from tacit.privacy.models import JointDP, LocalDP
    from tacit.registry import names_of

    try:
        held = parse_toml(read_file(path, "world"))
    except ValueError as error:
        raise InvalidArgument(f"{path!r} is no TOML: {error}") from None
    log, serve = (tuple(item.name for item in fields(kind)) for kind in (LogFormat, Serving))
    known = _TABLES | {"log": (("path",), ("grouped", *log)), "serve": ((), serve)}
    if isinstance(held.get("world"), dict) and "dimension" in held["world"]:
        known["world"] = ("horizon", "dimension"), _OF_TRIAL
    words = ", ".join(f"[{name}]" for name in known)
    if unknown := sorted(set(held) - set(known)):
        raise InvalidArgument(f"{path!r} has no table [{unknown[0]}]; it has {words}")
    for name in known:
        found = held.setdefault(name, None if name in _NEEDED else {})
        if name == "log" and found is None and not logs:
            continue
        if not isinstance(found, dict):
            raise InvalidArgument(f"the table [{name}] is missing; an app's file has {words}")
        _check_keys(name, found, *known[name])
    folder, world = Path(path).resolve().parent, held["world"]
    with _of("world"):
        # A log that has no column of next states has none after the last step.
        spec = _spec({"last_state": (held["log"] or {}).get("next_state") != ""} | world)
    with names_of(path, allow_code), _of("agent"):
        choice, users, schedule = _agent(held["agent"])
        successor = flag("successor", held["agent"].get("successor", False))
    with _of("log"):
        log_format, logs_at, grouped = _log(held["log"], spec)
    with _of("files"):
        names = _FILES | {kind: _text(kind, name) for kind, name in held["files"].items()}
        store = names["store"] if "://" in names["store"] else os.fspath(folder / names["store"])
        files = {kind: folder / names[kind] for kind in ("policy", "report") if names[kind]}
    with _of("privacy"):
        model = one_of("model", held["privacy"].pop("model", "joint"), ("joint", "local"))
        budget = (JointDP if model == "joint" else LocalDP)(**held["privacy"])
    if logs and budget.local:
        raise InvalidArgument("[privacy] model: logs hold raw data; devices report to tacit serve")
    with _of("serve"):
        serving = _serving(held["serve"])
    with _of("schedule"):
        every = _seconds(held["schedule"].get("every", "0 seconds"))
    default = held["late"].get("default_reward", math.nan)
    if type(default) not in (int, float):
        raise InvalidArgument(f"[late] default_reward is {default!r}, but must be a number")
    with _of("about"):
        about = {name: _text(name, text) for name, text in held["about"].items()}
    with _of("trial"):
        arms = _arms(held["trial"], spec, folder) if held["trial"] else None
    what = folder, spec, choice, arms, users, schedule, budget, log_format, folder / logs_at
    more = serving, every, successor, float(default), names["key"], names["signing"], about
    return App(*what, grouped, store, names["name"], files, *more)


@contextlib.contextmanager
def _of(table: str) -> Iterator[None]:
    """Mistakes name the table that they are in."""
    try:
        yield
    except InvalidArgument as error:
        raise InvalidArgument(f"[{table}] {error}") from None


def _check_keys(
    table: str, held: Mapping[str, Any], needed: tuple[str, ...], more: tuple[str, ...]
) -> None:
    if wrong := sorted(set(held) - {*needed, *more}):
        allowed = ", ".join((*needed, *more))
        raise InvalidArgument(f"[{table}] has no key {wrong[0]!r}; it has {allowed}")
    if missing := [key for key in needed if key not in held]:
        raise InvalidArgument(f"[{table}] {missing[0]} is missing")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} is {value!r}, but must be a text")
    return value


def _spec(held: dict[str, Any]) -> Any:
    from tacit.tabular.spec import FiniteSpec
    from tacit.trial.spec import TrialSpec

    if "dimension" in held:
        return TrialSpec(**{name: value for name, value in held.items() if name != "last_state"})
    given: dict[str, Any] = {"stationary": True} | held
    for key in ("states", "actions"):
        if isinstance(held[key], list):
            given |= {key: len(held[key]), f"{key[:-1]}_labels": tuple(held[key])}
    for key in ("reward_values", "start"):
        if isinstance(held.get(key), list):
            given[key] = tuple(held[key])
    return FiniteSpec(**given)


def _agent(held: dict[str, Any]) -> tuple[AgentChoice, int, str]:
    from tacit.registry import choose_agent

    users = whole_number("users", held["users"])
    choice = choose_agent(_text("name", held.get("name", "ucbvi")))
    if choice.budget:
        raise InvalidArgument("name: the budget belongs to [privacy]")
    return choice, users, _text("schedule", held.get("schedule", "auto"))


def _arms(held: dict[str, Any], spec: Any, folder: Path) -> Arms:
    from tacit.core.arms import Arms

    given = held.pop("baseline", "uniform")
    if given != "uniform":
        place = given if isinstance(given, dict) else os.fspath(folder / _text("baseline", given))
        held["baseline"] = policy_of("baseline", place, spec)
    return Arms(**held | {k: tuple(x) for k, x in held.items() if isinstance(x, list)})


def policy_of(name: str, given: str | Mapping[str, str], spec: Any) -> Policy:
    """A published file's policy, or a rule's, an action for each state; errors say the name."""
    from tacit import published
    from tacit.tabular.policy import Policy

    states, actions = spec.state_labels or (), spec.action_labels or ()
    if not isinstance(given, str):
        if {*given} != {*states} or not {*given.values()} <= {*actions}:
            raise InvalidArgument(f"{name} must name an action of the world for each of its states")
        row = [actions.index(given[state]) for state in states]
        return Policy.deterministic([row] * spec.horizon, spec.actions)
    try:
        held: Any = published.load(given)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{name}: {error}") from None
    sizes = spec.horizon, spec.states, spec.actions
    if isinstance(held, published.PublishedPolicy):
        found = Policy(held.probabilities, held.actions, 0, held.n_actions)
        if found.sizes == sizes:
            return found
    raise InvalidArgument(f"{name}: one table of sizes {sizes} is known; others are logged")


def _log(held: dict[str, Any] | None, spec: Any) -> tuple[LogFormat | None, str, bool]:
    from tacit.data.logs import format_of

    if held is None:
        return None, "", False
    if hasattr(spec, "looks"):
        raise InvalidArgument("people of a trial send their histories to tacit serve")
    path, grouped = _text("path", held.pop("path")), flag("grouped", held.pop("grouped", False))
    # TOML has no word for nothing.
    if held.get("next_state") == "":
        held["next_state"] = None
    return format_of(spec, held), path, grouped


def _seconds(text: Any) -> float:
    count, _, unit = _text("every", text).partition(" ")
    if not count.isdecimal() or unit.removesuffix("s") not in _SECONDS:
        raise InvalidArgument(f"every is {text!r}, but must be like '1 day' or '12 hours'")
    return float(count) * _SECONDS[unit.removesuffix("s")]


def _serving(held: dict[str, Any]) -> Serving:
    for key, value in held.items():
        if isinstance(getattr(Serving, key), int):
            whole_number(key, value, least=0 if key == "port" else 1)
        else:
            _text(key, value)
    made = Serving(**held)
    if bool(made.certificate) != bool(made.certificate_key):
        raise InvalidArgument("certificate and certificate_key go together")
    if made.identifies != bool(made.audience):
        raise InvalidArgument("audience goes together with jwks or issuer")
    try:
        networks(made.proxies)
    except ValueError as error:
        raise InvalidArgument(f"proxies: {error}") from None
    return made
