"""Hostile input on every public entry point: wrong arguments, strange users, damaged files.

``python -m tacit.experiments.hostile_campaign --examples 200`` draws inputs with Hypothesis and
prints a line per entry point: how many inputs were tried, how many were refused with an error of
Tacit's own, how many were accepted, and how many broke something. The last number must be 0.

What breaks an entry point:

* a public mistake raises anything but a :class:`tacit.TacitError` (or an ``OSError``, for files),
  does not name the argument, or changes something although it is refused;
* a wrong type is accepted where no reading of it makes sense;
* a user's *values* raise or warn, or change what anybody else contributes;
* a file that was damaged, forged or holds a pickle is read as if it were whole, or executed;
* after a failure a file is half-written, a temporary one is left, or a secret one is readable;
* the command line shows a traceback, or says a mistake in anything but one line with exit code 2;
* an absurd size takes memory or time before it is refused.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import importlib
import inspect
import io
import json
import math
import os
import pickle
import signal
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import tacit
from tacit import registry
from tacit.episodes import Episodes
from tacit.experiments.arguments import Parser, whole
from tacit.made_up_users import raw_block
from tacit.privacy import storage
from tacit.privacy.errors import MissingExtra, TacitError
from tacit.privacy.statistic import Block
from tacit.vector_episodes import VectorEpisodes
from tacit.watched_gate import difference, snapshot

try:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as hypothesis_seed
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtra(
        "the campaign draws its inputs with Hypothesis, which is not installed; the extra dev "
        "brings it: pip install 'tacit[dev]'"
    ) from error

Strategy: TypeAlias = "st.SearchStrategy[Any]"
Attempt: TypeAlias = Callable[[Any, Path], None]

# What a whole call may take of memory on top of what is there, and of time.
_MEMORY = 2 << 30
_SECONDS = 30


class Broken(Exception):
    """Something that must not happen; not an error of Tacit's own, so never mistaken for one."""


class Stranger:
    """What no argument of anything is."""

    def __repr__(self) -> str:
        return "<a stranger>"


@dataclass(frozen=True)
class EntryPoint:
    """One public entry point and what is thrown at it.

    Attributes:
        name: how it is called in the report.
        inputs: makes the strategy; called when it is needed.
        attempt: gives one input to it, in a folder of its own. It returns if the input was
            accepted, and raises one of ``typed`` if it was refused.
        typed: with which errors it may refuse. Users' values may not be refused at all.
    """

    name: str
    inputs: Callable[[], Strategy]
    attempt: Attempt
    typed: tuple[type[Exception], ...] = (TacitError,)


@dataclass
class Tally:
    """What came of the inputs of one entry point."""

    name: str
    tried: int = 0
    refused: int = 0
    accepted: int = 0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.name:<44}{self.tried:>7}{self.refused:>9}{self.accepted:>10}"
            f"{len(self.broken):>8}"
        )


HEADING = f"{'entry point':<44}{'tried':>7}{'refused':>9}{'accepted':>10}{'broken':>8}"


def throw(entry: EntryPoint, examples: int, seed: int = 0) -> Tally:
    """Throws so many inputs at an entry point; collects what broke in place of stopping."""
    tally = Tally(entry.name)

    @hypothesis_seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(entry.inputs())
    def one(value: Any) -> None:
        tally.tried += 1
        try:
            accepted = _outcome(entry, value)
        except Broken as found:
            tally.broken.append(str(found))
            return
        tally.accepted += accepted
        tally.refused += not accepted

    one()
    return tally


def _outcome(entry: EntryPoint, value: Any) -> bool:
    """Whether an input was accepted; raises :class:`Broken` if it did anything but that."""
    shown = _shown(value)
    limits = mock.patch("tacit.finite.MOST_BYTES", _MEMORY // 4)
    with tempfile.TemporaryDirectory() as name, limits, _limited(), warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = Path(name)
        here = os.getcwd()
        os.chdir(folder)  # so that names of files that are drawn stay among themselves
        try:
            entry.attempt(value, folder)
            accepted = True
        except entry.typed as refusal:
            accepted = False
            if not str(refusal).strip():
                raise Broken(f"{shown} is refused without a word") from refusal
        except Broken as found:
            raise Broken(f"{shown}: {found}") from found
        except Exception as error:
            raise Broken(f"{shown} raises {type(error).__name__}: {_short(error)}") from error
        finally:
            os.chdir(here)
        left = [file.name for file in folder.rglob("*") if file.name.endswith(".tmp")]
        if left:
            raise Broken(f"{shown} leaves temporary files: {left}")
    return accepted


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Little memory and little time, where the system can say so: absurd sizes must show."""
    try:
        import resource
    except ImportError:  # not POSIX
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    main = threading.current_thread() is threading.main_thread()

    def late(number: int, frame: FrameType | None) -> None:
        raise Broken(f"takes more than {_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late) if main else None
    try:
        wanted = used + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (min(wanted, hard) if hard > 0 else wanted, hard))
        if main:
            signal.setitimer(signal.ITIMER_REAL, _SECONDS)
        yield
    finally:
        if main:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 300 else f"{text[:300]}..."


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


# Arguments.

NOTHING_SENSIBLE: tuple[Any, ...] = (Stranger(), 1j, {"a": 1}, object)
"""What every argument of every function refuses."""

_A_FILE = "abc"
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1.0, 1.5, -0.0, math.nan, math.inf, -math.inf),
    *(5e-324, 1e-300, 1e300, 1.7e308, 2**31, 2**53 + 1, 2**63, 2**64, 10**18, -(10**18), 10**400),
    *(
        10**9,
        "",
        _A_FILE,
        "no",
        "1",
        "nan",
        "auto",
        "every",
        "\x00",
        "\ud800",
        "é" * 50,
        "geometric",
    ),
    *("fixed:size=0", "geometric:growth=1", "geometric:growth=1.0000000001", "geometric:first=-1"),
    *("fixed:size=1e9", "geometric:growth=nan", "geometric:growth=inf", "fixed:size=" + "9" * 5000),
    *(b"\xff", [], (), [1], [[]], [1, "a"], [None], [math.nan], ["x"], (0,), (10**9,), (-1,)),
    *(np.int64(3), np.float32(0.5), np.bool_(True), np.array(3), np.array([1.0, math.nan])),
    *(np.zeros((2, 0)), np.zeros((2, 2, 2)), np.array(["a"]), np.array([1j]), np.array([None])),
    *(np.array([10**6] * 3), np.datetime64("2020-01-01"), tacit.NonPrivate(), tacit.Budget(1, 0)),
    *(*NOTHING_SENSIBLE, {1, 2}, {}, range(3), range(10**12), Ellipsis, len),
)


def junk() -> Strategy:
    """Values of any type, most of them wrong anywhere."""
    return st.one_of(
        st.sampled_from(_ODD),
        st.sampled_from(NOTHING_SENSIBLE),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.lists(st.integers() | st.floats() | st.none() | st.text(max_size=3), max_size=4),
    )


@dataclass(frozen=True)
class Call:
    """A call with good arguments, some of which become junk.

    Attributes:
        function: what is called.
        good: makes the arguments, afresh.
        free: arguments that take anything, such as a name that is only shown.
        watched: gives what must not change if the call is refused.
        paths: arguments that are files; they may be refused with an ``OSError``.
        strange: what some arguments become besides.
        absurd: sizes that are large and yet possible become absurd ones.
    """

    function: Callable[..., Any]
    good: Callable[[], dict[str, Any]]
    free: tuple[str, ...] = ("name", "progress", "text", "note")
    watched: Callable[[dict[str, Any]], Any] = lambda arguments: None
    paths: tuple[str, ...] = ("ledger", "autosave", "path")
    strange: Mapping[str, Strategy] = field(default_factory=dict)
    absurd: bool = False

    def inputs(self) -> Strategy:
        """Which arguments become what."""
        names = sorted(set(self.good()) | set(self.strange))

        @st.composite
        def changed(draw: Any) -> dict[str, Any]:
            several = draw(st.integers(0, 4)) == 0
            chosen = draw(
                st.lists(
                    st.sampled_from(names), min_size=1, max_size=2 if several else 1, unique=True
                )
            )
            return {name: draw(self.strange.get(name, st.nothing()) | junk()) for name in chosen}

        return changed()

    def attempt(self, changed: dict[str, Any], folder: Path) -> None:
        """Calls it, and checks what it makes of the junk."""
        arguments = self.good()
        if self.absurd:
            # Sizes in between are no mistakes, they only take their time.
            changed = {k: _absurd(value) for k, value in changed.items()}
        changed = {
            name: str(folder / "file") if name in self.paths and value is _A_FILE else value
            for name, value in changed.items()
        }
        before = self.watched(arguments)
        try:
            self.function(**arguments | changed)
        except OSError as error:
            if not set(changed) & set(self.paths):
                raise Broken(f"raises {error!r}") from error
            raise tacit.InvalidArgument(str(error)) from error
        except TacitError as refusal:
            if self.watched(arguments) != before:
                raise Broken(f"was refused, and yet something changed ({refusal})") from refusal
            if len(changed) == 1 and not _names(next(iter(changed)), str(refusal)):
                raise Broken(f"the refusal does not name the argument: {refusal}") from refusal
            raise
        for name, value in changed.items():
            if name not in self.free and self._senseless(name, value):
                raise Broken(f"{name} was accepted")

    def _senseless(self, name: str, value: Any) -> bool:
        if any(value is wrong for wrong in NOTHING_SENSIBLE):
            return True
        if name not in self.flags:
            return False
        return not isinstance(value, (bool, np.bool_, type(None)))

    @property
    def flags(self) -> set[str]:
        """The arguments that are true or false, by their annotations."""
        functions = [self.function]
        if inspect.isclass(self.function):
            functions = [
                b.__dict__["__init__"]
                for b in self.function.__mro__[:-1]
                if "__init__" in b.__dict__
            ]
        found = set()
        for function in functions:
            with contextlib.suppress(TypeError, ValueError):
                for parameter in inspect.signature(function).parameters.values():
                    if str(parameter.annotation) in ("bool", "bool | None", "<class 'bool'>"):
                        found.add(parameter.name)
        return found


def _absurd(value: Any) -> Any:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 50 < value < 10**9:
        return 10**9
    return value


# Words by which a message may name an argument.
_WORDS = {
    "spec": ("this agent needs", "is for"),
    "user_ids": ("ids",),
    "noise_seed": ("seed",),
    "path": ("file", "name"),
    "data": ("episodes", "block", "array", "versions", "must have shape", "must be numbers"),
    "statistic": ("this curator protects", "of its own"),
    "mu": ("cost", "budget"),
    "epsilon": ("cost", "budget"),
    "make_agent": ("make is", "failed"),
    "seeds": ("seed",),
    "n_actions": ("actions",),
    "counter": ("kind",),
    "arrays": ("array",),
    "shape": ("stack of matrices",),
    "make_world": ("make is", "world"),
    "ledger": ("accounts",),
    "actions": ("states",),
    "states": ("actions",),
    "users": ("user", "releases"),
    "text": ("schedule", "growth", "first", "size"),
    "frame": ("table", "horizon"),
    "user": ("column",),
}


def _names(argument: str, message: str) -> bool:
    if "would need" in message:  # so much memory: which sizes make it is in the shape
        return True
    words = (argument, argument.replace("_", " "), *_WORDS.get(argument, ()))
    return any(word.lower() in message.lower() for word in words)


# Small worlds and agents.

_WORLDS = {
    "tabular": "riverswim:states=3,horizon=3",
    "linear": "two_state:horizon=3",
    "mixture": "mixture_of_models:dimension=2,states=3,actions=2,horizon=3",
    "lq": "double_integrator:horizon=3",
    "continuous": "line:horizon=4",
}
_JOINT = tacit.JointDP(epsilon=1.0, delta=1e-6)
_LOCAL = tacit.LocalDP(epsilon=1.0, delta=1e-6)
_USERS = 400


@cache
def small_world(family: str) -> Any:
    """One small world of each family."""
    return registry.build_world(_WORLDS[family])


@dataclass(frozen=True)
class Small:
    """A small agent that can be made again and again."""

    name: str
    make: Callable[..., Any]
    family: str
    privacy: Any

    @property
    def world(self) -> Any:
        """What it is for."""
        return small_world(self.family)

    def arguments(self) -> dict[str, Any]:
        """What it is made with."""
        return {
            "spec": self.world.spec,
            "users": _USERS,
            "privacy": self.privacy,
            "seed": 0,
            "noise_seed": 1,
        }

    def __call__(self, **changed: Any) -> Any:
        """A fresh one, with some arguments changed."""
        return self.make(**self.arguments() | changed)

    @property
    def options(self) -> dict[str, Any]:
        """All parameters of its constructor, with defaults that are the same as not given."""
        entry = registry.agent_entry(self.name)
        found = {p.name: p.default for _, p in entry._parameters() if p.name != "args"}
        return {k: v for k, v in found.items() if v is not inspect.Parameter.empty}

    def episodes(self, agent: Any, users: int, seed: int = 0) -> Block:
        """Raw episodes of users whom its policy served."""
        rng = np.random.default_rng(seed)
        data = self.world.simulate(agent.policy, users, rng, "episodes")
        return raw_block(data)


@cache
def small_agents() -> tuple[Small, ...]:
    """One of every agent of the registry that is there and can be made."""
    found = []
    for name in registry.agent_names():
        try:
            make = registry.agent_entry(name).make
        except TacitError:
            continue  # not written yet, or one of its dependencies is not installed
        family = make.__module__.split(".")[1]
        for privacy in (_JOINT, _LOCAL, tacit.NonPrivate()):
            small = Small(name, make, family, privacy)
            try:
                agent = small()
            except TacitError:
                continue
            if hasattr(agent, "learn"):
                found.append(small)
                break
    return tuple(found)


# Entry points that take arguments.


def _entry(name: str, call: Call, **options: Any) -> EntryPoint:
    return EntryPoint(name, call.inputs, call.attempt, **options)


def _constant(**arguments: Any) -> Callable[[], dict[str, Any]]:
    return lambda: dict(arguments)


def _state_of(curator: Any) -> tuple[Any, ...]:
    """What a refused call must leave alone."""
    spent = tuple(getattr(curator, "_spent", {}).items())
    return (spent, curator.releases, curator.users, curator.blocks, tuple(curator._block_users))


def _curator(privacy: Any = _JOINT) -> Any:
    curator = privacy.curator(users=100, noise_seed=0)
    curator.add(Block(10, {"values": np.ones((10, 2))}))
    curator.add(Block(10, {"values": np.ones((10, 2))}))
    return curator


_SUM = tacit.ClippedSum(2)


def _release_call(privacy: Any) -> Call:
    private = not isinstance(privacy, tacit.NonPrivate)

    def release(curator: Any, **options: Any) -> None:
        curator.release(**options)

    def good() -> dict[str, Any]:
        names = ("weights", "mask", "decay", *(("mu", "epsilon") if private else ()))
        options = dict.fromkeys(names)
        return {"curator": _curator(privacy), "statistic": _SUM, "blocks": [0, 1], **options}

    return _WithoutFirst(release, good, watched=lambda a: _state_of(a["curator"]))


def _stream_call(privacy: Any) -> Call:
    private = not isinstance(privacy, tacit.NonPrivate)

    def stream(curator: Any, block: Any, **options: Any) -> None:
        curator.stream(**options).release(block)

    def good() -> dict[str, Any]:
        options: dict[str, Any] = {"name": "stream", "kind": "auto"}
        if private:
            options |= {"mu": None, "epsilon": None}
        curator = _curator(privacy)
        return {"curator": curator, "statistic": _SUM, "releases": 5, "block": 0, **options}

    # What other models do without a counter they do for any kind of one.
    free = ("name",) if privacy is _JOINT else ("name", "kind")
    return _WithoutFirst(stream, good, watched=lambda a: _state_of(a["curator"]), free=free)


def _add_call(privacy: Any) -> Call:
    def add(curator: Any, **options: Any) -> None:
        curator.add(**options)

    def good() -> dict[str, Any]:
        block = Block(3, {"values": np.ones((3, 2))})
        return {"curator": privacy.curator(users=5, noise_seed=0), "block": block, "user_ids": None}

    return _WithoutFirst(add, good, watched=lambda a: _state_of(a["curator"]))


@dataclass(frozen=True)
class _WithoutFirst(Call):
    """The first argument is whom the rest is thrown at."""

    def inputs(self) -> Strategy:
        good = self.good()
        first = next(iter(good))
        rest = {name: value for name, value in good.items() if name != first}
        return Call(self.function, lambda: rest, strange=self.strange).inputs()


def _frame() -> dict[str, list[Any]]:
    return {
        "user": ["a", "b", "a"],
        "step": [0, 0, 1],
        "state": [0, 0, 1],
        "action": [1, 0, 1],
        "reward": [0.0, 1.0, 1.0],
        "next_state": [1, 2, 2],
    }


def _learn_call(small: Small) -> Call:
    def learn(agent: Any, data: Any, user_ids: Any) -> None:
        agent.learn(data, user_ids)

    def good() -> dict[str, Any]:
        agent = small()
        users = min(20, agent.block_users)
        return {"agent": agent, "data": small.episodes(agent, users), "user_ids": None}

    return _WithoutFirst(
        learn,
        good,
        watched=lambda a: snapshot(a["agent"]),
        strange={"data": _misshapen(small)},
    )


def _misshapen(small: Small) -> Strategy:
    """Blocks whose shapes, names or types are not what the agent asks for."""
    agent = small()
    block = small.episodes(agent, 5)

    @st.composite
    def damaged(draw: Any) -> Any:
        arrays: dict[str, NDArray[Any]] = {k: np.array(a) for k, a in block.arrays.items()}
        name = draw(st.sampled_from(sorted(arrays)))
        how = draw(st.integers(0, 6))
        array = arrays[name]
        if how == 0:
            del arrays[name]
        elif how == 1:
            arrays[name] = array[:, :-1] if array.ndim > 1 else array[:, np.newaxis]
        elif how == 2:
            arrays[name] = array[..., np.newaxis]
        elif how == 3:
            arrays[name] = np.repeat(array, 2, axis=-1) if array.ndim > 1 else array.astype(float)
        elif how == 4:
            arrays[name] = array.reshape(len(array), -1)[:, :0]
        elif how == 5:
            return draw(st.sampled_from([block.arrays, [block], "episodes", None, 3]))
        else:
            arrays["versions"] = np.full(5, draw(st.integers(1, 2**62)))
        return Block(5, arrays)

    return damaged()


def _reports_call(small: Small) -> Call:
    def learn_reports(agent: Any, reports: Any, user_ids: Any) -> None:
        agent.learn_reports(reports, user_ids)

    def good() -> dict[str, Any]:
        agent = small()
        rows = np.zeros((agent.block_users, agent.statistic.layout.size))
        return {"agent": agent, "reports": rows, "user_ids": None}

    return _WithoutFirst(learn_reports, good, watched=lambda a: snapshot(a["agent"]))


def _local_agents() -> list[Small]:
    found = []
    for small in small_agents():
        local = dataclasses.replace(small, privacy=_LOCAL)
        with contextlib.suppress(TacitError):
            agent = local()
            if hasattr(agent, "learn_reports") and agent.statistic is not None:
                found.append(local)
    return found


def argument_entries() -> list[EntryPoint]:
    """Functions and classes, called with arguments of which some are junk."""
    from tacit.experiments.compare import Entry, compare
    from tacit.experiments.plan import Sizes, plan
    from tacit.finite import FiniteSpec
    from tacit.schedule import Schedule

    budget = {"epsilon": 1.0, "delta": 1e-6}
    episodes = {
        "states": [[0, 1, 2]] * 2,
        "actions": [[1, 0]] * 2,
        "rewards": [[0.0, 1.0]] * 2,
        "versions": [0, 0],
        "user_ids": ["a", 7],
    }
    vectors = episodes | {"states": np.zeros((2, 3, 1)), "lengths": [2, 2]}
    joint = budget | {
        "relation": "replace-one",
        "episodes_per_user": 1,
        "disjoint": False,
        "sampler": "floating-point",
    }
    local = budget | {"mechanism": None, "episodes_per_user": 1, "sampler": "floating-point"}
    counter = {
        "budget": tacit.Budget(1.0, 1e-6),
        "sensitivity": 1.0,
        "releases": 5,
        "shape": (2,),
        "symmetric": False,
        "kind": "auto",
        "relation": "replace-one",
        "noise_seed": 1,
    }
    choice = registry.choose_agent("ucbvi")
    world = small_world("tabular")
    calls: dict[str, Call] = {
        "Budget": Call(tacit.Budget, _constant(**budget)),
        "JointDP": Call(tacit.JointDP, _constant(**joint)),
        "LocalDP": Call(tacit.LocalDP, _constant(**local)),
        "counter": Call(tacit.counter, _constant(**counter)),
        "Block": Call(Block, _constant(users=2, arrays={"a": np.zeros(2)}, aggregate=False)),
        "Part": Call(tacit.Part, _constant(name="a", shape=(2, 2), symmetric=True, weight=1.0)),
        "ClippedSum": Call(tacit.ClippedSum, _filled(tacit.ClippedSum, dimension=2)),
        "GramCross": Call(tacit.GramCross, _filled(tacit.GramCross, rows=2, columns=2, steps=2)),
        "OneHotCounts": Call(tacit.OneHotCounts, _filled(tacit.OneHotCounts, steps=2, cells=3)),
        "Schedule.parse": Call(Schedule.parse, _constant(text="geometric", users=100), free=()),
        "FiniteSpec": Call(
            FiniteSpec,
            _constant(
                states=2,
                actions=2,
                horizon=2,
                stationary=True,
                reward_values=(0.0, 1.0),
                start=None,
            ),
        ),
        "Episodes": Call(Episodes, _constant(**episodes)),
        "VectorEpisodes": Call(VectorEpisodes, _constant(**vectors)),
        "Episodes.from_records": Call(
            Episodes.from_records, lambda: _frame() | {"horizon": 2, "version": None}
        ),
        "Episodes.from_frame": Call(
            Episodes.from_frame, lambda: {"frame": _frame(), "horizon": 2, "user": "user"}
        ),
        "Policy.deterministic": Call(
            tacit.Policy.deterministic, _constant(actions=[[0, 1]], n_actions=2, version=0)
        ),
        "Policy.stochastic": Call(
            tacit.Policy.stochastic, _constant(probabilities=[[[0.5, 0.5]]], version=0)
        ),
        "Policy.uniform": Call(
            tacit.Policy.uniform, _constant(horizon=2, states=2, actions=2, version=0)
        ),
        "Guarantee": Call(
            tacit.Guarantee,
            _constant(
                model="joint",
                mu=0.2,
                relation=tacit.Relation.REPLACE_ONE,
                releases=3,
                mechanism="blocks",
                unit="a user",
                sampler="floating-point",
                simulation_only=False,
                episodes_per_user=1,
                **budget,
            ),
        ),
        "JointDP.curator": Call(
            _JOINT.curator,
            _constant(users=10, noise_seed=1, protects="a user", ledger=None, autosave=None),
            free=("protects",),
        ),
        "LocalDP.curator": Call(
            _LOCAL.curator, _constant(users=10, noise_seed=1, protects="a user"), free=("protects",)
        ),
        "local.report": Call(
            tacit.local.report,
            _constant(
                statistic=_SUM,
                data=Block(1, {"values": np.ones((1, 2))}),
                privacy=_LOCAL,
                noise_seed=1,
            ),
        ),
        "run": Call(
            tacit.run,
            lambda: {
                "agent": _small("ucbvi")(users=5, privacy=tacit.NonPrivate()),
                "world": world,
                "seed": 0,
                "progress": False,
            },
            free=(),
        ),
        "run_seeds": Call(
            tacit.run_seeds,
            lambda: {
                "make_agent": {"make": "tacit:UCBVI", "users": 5, "privacy": tacit.NonPrivate()},
                "make_world": world,
                "seeds": [0],
                "workers": 1,
                "progress": False,
            },
            free=(),
        ),
        "compare": Call(
            compare,
            lambda: {
                "world": world,
                "entries": [Entry("one", choice, tacit.NonPrivate())],
                "users": 5,
                "seeds": [0],
                "workers": 1,
                "progress": False,
            },
        ),
        "plan": Call(
            plan,
            lambda: {
                "world": Sizes(states=2, actions=2, horizon=2),
                "agent": choice,
                "privacy": tacit.NonPrivate(),
                "users": 5,
                "seeds": [0],
                "workers": 1,
                "progress": False,
            },
        ),
        "Sizes": Call(Sizes, _constant(states=2, actions=2, horizon=2)),
        "Ledger.create": Call(
            lambda path, **o: tacit.Ledger.create(path, **o),
            lambda: {
                "path": os.path.join(tempfile.mkdtemp(), "ledger"),
                "limit": 1.0,
                "unit": "mu^2",
                "note": "",
            },
            free=(),
        ),
    }
    entries = [_entry(name, call) for name, call in calls.items()]
    for name, model in (("joint", _JOINT), ("local", _LOCAL), ("no", tacit.NonPrivate())):
        entries += [
            _entry(f"{name} curator: add", _add_call(model)),
            _entry(f"{name} curator: release", _release_call(model)),
            _entry(f"{name} curator: stream", _stream_call(model)),
        ]
    return entries + _world_entries() + _agent_entries()


def _filled(make: Any, **given_: Any) -> Callable[[], dict[str, Any]]:
    """Good arguments: those given, and every default."""
    defaults = {
        p.name: p.default
        for p in inspect.signature(make).parameters.values()
        if p.default is not p.empty
    }
    return lambda: defaults | given_


def _small(name: str) -> Small:
    return next(small for small in small_agents() if small.name == name)


def _world_entries() -> list[EntryPoint]:
    from tacit.continuous import BoxWorld, QPolicy
    from tacit.continuous.features import Grid
    from tacit.linear.world import LinearWorld
    from tacit.lq import GainPolicy, LQWorld
    from tacit.mixture import MixtureWorld
    from tacit.tabular import TabularWorld

    entries = []
    for name in registry.world_names():
        entry = registry.world_entry(name)
        needed = {"states": 3, "actions": 2, "horizon": 3, "seed": 0}
        good = {
            option.name: needed.get(option.name) if option.required else option.default
            for option in entry.options.values()
        }
        if good:
            entries.append(
                _entry(f"world {name}", Call(entry.make, _constant(**good), absurd=True))
            )
    line, lq = small_world("continuous"), small_world("lq")
    mixture, linear = small_world("mixture"), small_world("linear")
    stay = np.eye(2)[:, np.newaxis].repeat(2, axis=1)
    calls = {
        "TabularWorld": Call(
            TabularWorld,
            _constant(transitions=stay, rewards=[[0.1, 0.2]] * 2, horizon=2, start=0, name="w"),
        ),
        "LinearWorld": Call(
            LinearWorld,
            _constant(
                features=linear.features,
                measures=linear.measures,
                rewards=linear.rewards,
                horizon=3,
                start=0,
                known_rewards=False,
            ),
        ),
        "MixtureWorld": Call(
            MixtureWorld,
            _constant(
                transition_features=mixture.transition_features,
                weights=mixture.weights,
                rewards=mixture.rewards,
                horizon=3,
                start=0,
                known_rewards=True,
                center=None,
                radius=None,
            ),
        ),
        "LQWorld": Call(
            LQWorld,
            _constant(
                A=lq.A,
                B=lq.B,
                Q=lq.Q,
                R=lq.R,
                horizon=3,
                noise=lq.noise,
                start=lq.start,
                norm_bound=None,
                gain_bound=None,
            ),
        ),
        "BoxWorld": Call(
            BoxWorld,
            _constant(
                reward=line._reward,
                dimension=1,
                name="w",
                horizon=4,
                reward_range=(0.0, 0.5),
                discount=0.95,
                features=None,
                names=None,
            ),
            free=("name", "reward"),  # any function may be a reward
        ),
        "GainPolicy": Call(GainPolicy, _constant(gains=np.zeros((2, 1, 2)), noise=0.0, version=0)),
        "QPolicy": Call(
            QPolicy,
            _constant(
                features=Grid((0.0,), (1.0,), (2,)),
                weights=np.eye(2),
                epsilon=0.0,
                version=0,
                preference=(0, 1),
            ),
        ),
    }
    return entries + [_entry(name, call) for name, call in calls.items()]


def _agent_entries() -> list[EntryPoint]:
    entries = []
    for small in small_agents():
        whole_call = Call(small.make, partial(_all_arguments, small))
        entries.append(_entry(f"{small.name}: made", whole_call))
        entries.append(_entry(f"{small.name}: learn", _learn_call(small)))
    for small in _local_agents():
        entries.append(_entry(f"{small.name}: learn_reports", _reports_call(small)))
    return entries


def _all_arguments(small: Small) -> dict[str, Any]:
    own = {} if small.name != "ldp_ucrl_vtr" else {"statistic": None}
    return small.options | small.arguments() | own


# Users' values: nothing of them is ever refused.

_FLOATS = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 2.0, -1.0, 1e-300, 0.3)
_INTEGERS = (-1, -(2**63), 2**63 - 1, 10**9, 0, 1, 2, 3, 255)
_ENTRIES: tuple[Any, ...] = (
    *(None, "x", "", "1", True, 1j, 10**400, -(10**400), b"\xff", {}, Ellipsis, Stranger()),
    *(np.datetime64("2020-01-01"), np.float16(1), np.int8(-1), np.uint64(2**64 - 1), 2**63),
    *_FLOATS,
)


def _hostile_row(block: Block) -> Strategy:
    """Which user is hostile, and what her arrays hold."""
    arrays = [name for name in block.arrays if name != "versions"]
    values = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)
    return st.tuples(
        st.integers(0, block.users - 1), st.fixed_dictionaries(dict.fromkeys(arrays, values))
    )


def _with_hostile(block: Block, value: tuple[int, Mapping[str, Sequence[int]]]) -> Block:
    row, held = value
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    for name, picks in held.items():
        array = arrays[name]
        pool = _FLOATS if array.dtype.kind == "f" else _INTEGERS
        chosen = [pool[pick % len(pool)] for pick in picks]
        array[row] = np.resize(np.array(chosen, dtype=array.dtype), array[row].shape)
    return Block(block.users, arrays)


def _values_entry(small: Small) -> EntryPoint:
    users = small().block_users
    clean = small.episodes(small(), users)

    def attempt(value: Any, folder: Path) -> None:
        agent = small()
        hostile = _with_hostile(clean, value)
        statistic = getattr(agent, "statistic", None)
        if statistic is not None:
            before, after = statistic.contributions(clean), statistic.contributions(hostile)
            changed = set(np.flatnonzero((before != after).any(axis=1)).tolist())
            if changed - {value[0]}:
                raise Broken(f"changes what {len(changed)} users contribute")
        agent.learn(hostile)
        if agent.served != users:
            raise Broken("the hostile user's slot does not count")

    return EntryPoint(f"{small.name}: users' values", partial(_hostile_row, clean), attempt, ())


def _table_entry(
    name: str, make: Callable[[dict[str, Any]], Any], good: dict[str, Any]
) -> EntryPoint:
    """Tables of lists in which one user's entries are anything at all."""
    clean = make(copy.deepcopy(good)).block()
    columns = [key for key, value in good.items() if key not in ("user", "user_ids", "horizon")]

    def attempt(value: dict[str, int], folder: Path) -> None:
        table = copy.deepcopy(good)
        for key, pick in value.items():
            entry = _ENTRIES[pick % len(_ENTRIES)]
            column = table[key]
            if isinstance(column[0], list):
                column[0] = _all(column[0], entry)
            else:
                for place, user in enumerate(table.get("user", [0])):
                    if user == "a" or "user" not in table:
                        column[place] = entry
        made = make(table).block()
        for array in clean.arrays:
            if array == "versions" and "versions" not in value and "version" not in value:
                continue
            if not np.array_equal(made[array][1:], clean[array][1:], equal_nan=True):
                raise Broken(f"changes the {array} of other users")

    picks = {key: st.integers(0, 10**4) for key in columns}
    return EntryPoint(name, lambda: st.fixed_dictionaries({}, optional=picks), attempt, ())


def _all(nested: Any, entry: Any) -> Any:
    return [_all(one, entry) for one in nested] if isinstance(nested, list) else entry


def _report_values_entry(small: Small) -> EntryPoint:
    def attempt(value: list[int], folder: Path) -> None:
        agents = small(), small()
        rows, size = agents[0].block_users, agents[0].statistic.layout.size
        reports = np.random.default_rng(0).normal(size=(rows, size)).tolist()
        chosen = [_ENTRIES[pick % len(_ENTRIES)] for pick in value]
        reports[0] = [chosen[place % len(chosen)] for place in range(size)]
        agents[0].learn_reports(reports)
        numbers = [_number(entry) for entry in reports[0]]
        honest = all(abs(number) < _MOST_HONEST for number in numbers)  # not NaN either
        reports[0] = numbers if honest else [0.0] * size
        agents[1].learn_reports(reports)
        if differing := difference(*map(snapshot, agents)):
            raise Broken(f"a report that is none does not count as zero: {differing} differ")

    lists = st.lists(st.integers(0, 10**4), min_size=1, max_size=5)
    return EntryPoint(f"{small.name}: reports' values", lambda: lists, attempt, ())


# No noise of the small agents' reports is that large.
_MOST_HONEST = 1e9


def _number(entry: Any) -> float:
    with contextlib.suppress(Exception):
        return float(entry)
    return math.nan


def value_entries() -> list[EntryPoint]:
    """What users' devices and logs may hold."""
    episodes = {
        "states": [[0, 1, 2], [1, 0, 2], [2, 2, 1]],
        "actions": [[1, 0], [0, 0], [1, 1]],
        "rewards": [[0.0, 1.0], [True, 0.5], [1, 1]],
    }
    vectors = episodes | {"states": [[[0.1], [0.2], [0.3]]] * 3, "lengths": [2, 1, 2]}
    log = _frame() | {"version": [0, 0, 0], "horizon": 2}
    entries = [
        _table_entry("Episodes: users' values", lambda t: Episodes(**t), episodes),
        _table_entry("VectorEpisodes: users' values", lambda t: VectorEpisodes(**t), vectors),
        _table_entry("from_records: users' values", lambda t: Episodes.from_records(**t), log),
    ]
    entries += [_values_entry(small) for small in small_agents()]
    return entries + [_report_values_entry(small) for small in _local_agents()]


# Files.


class _Bomb:
    """A pickle that leaves a trace when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("executed", "w"))


def _bombs() -> list[bytes]:
    """Pickles, plain and in the clothes of NumPy."""
    plain = pickle.dumps(_Bomb())
    array = np.empty(1, dtype=object)
    array[0] = _Bomb()
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, array, allow_pickle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(npz, format=np.int64(1), version=np.int64(0), actions=array, allow_pickle=True)
    return [plain, npy.getvalue(), npz.getvalue()]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def _damage(draw: Any) -> tuple[Any, ...]:
    how = draw(
        st.sampled_from(["cut", "flip", "insert", "zero", "whole", "other", "forge", "forge"])
    )
    where = draw(st.floats(0.0, 1.0, exclude_max=True))
    if how == "flip":
        return how, where, draw(st.integers(0, 7))
    if how == "insert":
        return how, where, draw(st.binary(min_size=1, max_size=8))
    if how == "whole":
        return how, where, draw(st.binary(max_size=40) | st.sampled_from(_bombs()))
    if how == "forge":
        return how, where, draw(st.integers(0, 10**6)), draw(_JSON), draw(st.booleans())
    return how, where, draw(st.integers(0, 100))


def _damaged(data: bytes, damage: tuple[Any, ...], others: Sequence[bytes], forge: Any) -> bytes:
    how, where, what, *more = damage
    place = int(where * max(1, len(data)))
    if how == "cut":
        return data[:place]
    if how == "flip":
        changed = bytearray(data)
        changed[place] ^= 1 << what
        return bytes(changed)
    if how == "insert":
        return data[:place] + bytes(what) + data[place:]
    if how == "zero":
        return data[:place] + bytes(min(what, len(data) - place)) + data[place + what :]
    if how == "whole":
        return bytes(what)
    if how == "other":
        return others[int(what) % len(others)]
    return bytes(forge(data, what, more[0], more[1]))


def _forged_json(value: Any, pick: int, junk_: Any, drop: bool) -> Any:
    """A JSON value with one of its entries replaced or left out."""
    spots: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        for key in inner if isinstance(inner, dict) else range(len(inner)):
            spots.append((inner, key))
            if isinstance(inner[key], (dict, list)):
                walk(inner[key])

    changed = copy.deepcopy(value)
    if isinstance(changed, (dict, list)):
        walk(changed)
    if not spots:
        return junk_
    holder, key = spots[pick % len(spots)]
    if drop:
        del holder[key]
    else:
        holder[key] = junk_
    return changed


def _forged_state(data: bytes, pick: int, junk_: Any, drop: bool) -> bytes:
    """A state file with another header and the checksum that belongs to it."""
    prefix = storage._PREFIX
    magic, version, length = prefix.unpack_from(data)
    header = json.loads(data[prefix.size : prefix.size + length])
    text = json.dumps(_forged_json(header, pick, junk_, drop), sort_keys=True).encode()
    body: bytes = prefix.pack(magic, version, len(text)) + text + data[prefix.size + length : -32]
    return body + hashlib.sha256(body).digest()


def _forged_text(data: bytes, pick: int, junk_: Any, drop: bool) -> bytes:
    return json.dumps(_forged_json(json.loads(data), pick, junk_, drop)).encode()


def _forged_result(data: bytes, pick: int, junk_: Any, drop: bool) -> bytes:
    from tacit.result import _digest

    content = json.loads(data)
    content.pop("sha256")
    content = _forged_json(content, pick, junk_, drop)
    return json.dumps(content | {"sha256": _digest(content)}).encode()


def _forged_archive(data: bytes, pick: int, junk_: Any, drop: bool) -> bytes:
    stored = dict(np.load(io.BytesIO(data)))
    name = sorted(stored)[pick % len(stored)]
    if drop:
        del stored[name]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                stored[name] = np.array(junk_ if junk_ is not None else [math.nan])
            except (ValueError, OverflowError):
                stored[name] = np.zeros((0, 3))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **stored)
    return buffer.getvalue()


def _forged_ledger(data: bytes, pick: int, junk_: Any, drop: bool) -> bytes:
    """One line changed; its hash no longer fits, and nobody has computed another."""
    lines = data.splitlines(keepends=True)
    place = pick % len(lines)
    with contextlib.suppress(ValueError):
        line = _forged_json(json.loads(lines[place]), pick, junk_, drop)
        lines[place] = json.dumps(line).encode() + b"\n"
    return b"".join(lines)


@dataclass(frozen=True)
class FileCase:
    """A file that is read, with what is written into it."""

    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], Any]
    forge: Callable[[bytes, int, Any, bool], bytes]
    typed: tuple[type[Exception], ...] = (TacitError, OSError)
    exact: bool = True
    suffix: str = ""

    @property
    def entry(self) -> EntryPoint:
        """Damaged copies of the file, read again."""
        return EntryPoint(self.name, _damage, self.attempt, self.typed)

    def attempt(self, damage: tuple[Any, ...], folder: Path) -> None:
        """Writes, damages and reads."""
        whole_ = _written(self)
        others = [_written(case) for case in _file_cases() if case.name != self.name]
        data = _damaged(whole_, damage, others, self.forge)
        path = folder / f"file{self.suffix}"
        path.write_bytes(data)
        try:
            self.read(path)
        finally:
            if (folder / "executed").exists():
                raise Broken("a pickle was executed")
        # Bytes that mean nothing may change; a different file may not pass for the whole one.
        if self.exact and damage[0] in ("cut", "flip", "insert", "zero") and data != whole_:
            raise Broken("a damaged file was read")


@cache
def _written(case: FileCase) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{case.suffix}"
        case.write(path)
        return path.read_bytes()


def _agent_case(small: Small) -> FileCase:
    def write(path: Path) -> None:
        agent = small()
        agent.learn(small.episodes(agent, agent.block_users))
        agent.save(path)
        if stat.S_IMODE(path.stat().st_mode) != 0o600:
            raise Broken("a save can be read by others")

    def read(path: Path) -> None:
        agent = small()
        before, curator = snapshot(agent), getattr(agent, "_curator", None)
        try:
            agent.load(path)
        except TacitError as refusal:
            differing = difference(before, snapshot(agent))
            if differing or getattr(agent, "_curator", None) is not curator:
                raise Broken(f"was refused, and yet {differing} changed ({refusal})") from refusal
            raise

    return FileCase(f"{small.name}: load", write, read, _forged_state)


def _write_ledger(path: Path) -> None:
    ledger = tacit.Ledger.create(path, 1.0, unit="mu^2")
    for place in range(3):
        ledger.charge({f"block {place}": 0.5}, label="release")


def _write_world(path: Path) -> None:
    table = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2, "name": "w"}
    path.write_text(json.dumps(table))


def _write_toml(path: Path) -> None:
    path.write_text(
        'transitions = [[[1.0], [1.0]]]\nrewards = [[0.1, 0.9]]\nhorizon = 2\nname = "w"\n'
    )


def _write_result(path: Path) -> None:
    agent = _small("ucbvi")(users=5, privacy=tacit.NonPrivate())
    tacit.run(agent, small_world("tabular"), progress=False).save(path)


@cache
def _file_cases() -> tuple[FileCase, ...]:
    from tacit import published
    from tacit.tabular.world import load_world

    guarantee = _JOINT.curator(noise_seed=0).guarantee
    flat = tacit.Policy.deterministic([[0, 1], [1, 0]], 2)
    cases = [
        FileCase("Ledger.open", _write_ledger, tacit.Ledger.open, _forged_ledger, exact=False),
        FileCase("Result.load", _write_result, tacit.Result.load, _forged_result, exact=False),
        FileCase(
            "Guarantee.from_json",
            lambda path: _nothing(path.write_text(guarantee.to_json())),
            lambda path: tacit.Guarantee.from_json(path.read_text(errors="surrogateescape")),
            _forged_text,
            exact=False,
        ),
        FileCase(
            "load_world: .json", _write_world, load_world, _forged_text, exact=False, suffix=".json"
        ),
        FileCase(
            "load_world: .toml",
            _write_toml,
            load_world,
            lambda d, *_: d,
            exact=False,
            suffix=".toml",
        ),
    ]
    policies = {"table": flat}
    for family in ("lq", "continuous"):
        for small in small_agents():
            if small.family == family:
                policies[family] = small().policy
                break
    for name, policy in policies.items():
        # ValueError: the loader needs NumPy alone, and so has no errors of ours.
        typed = (ValueError, OSError)
        cases.append(
            FileCase(
                f"published.load: {name}",
                policy.publish,
                partial(_act, published.load),
                _forged_archive,
                typed,
                exact=False,
            )
        )
    seen: set[tuple[str, str]] = set()
    for small in small_agents():
        kind = (small.family, type(small.privacy).__name__)
        if kind not in seen and hasattr(small.make, "save"):
            seen.add(kind)
            cases.append(_agent_case(small))
    return tuple(cases)


def _nothing(value: object) -> None:
    """For functions that return what nobody needs."""


def _act(load: Callable[[Path], Any], path: Path) -> None:
    """What a device does with a file: it acts in some state."""
    policy = load(path)
    rng = np.random.default_rng(0)
    if hasattr(policy, "n_actions"):
        policy.act(0, 0, rng)
    elif hasattr(policy, "gains"):
        policy.act(0, np.zeros(policy.gains.shape[2]), rng)
    else:
        policy.act(0, np.zeros(1), rng)


def file_entries() -> list[EntryPoint]:
    """Files that are read back, damaged, forged or swapped."""
    return [case.entry for case in _file_cases()] + [
        EntryPoint("writes that fail", _failures, _attempt_write, (OSError, TacitError))
    ]


def _failures() -> Strategy:
    writers = st.integers(0, len(_writers()) - 1)
    calls = st.sampled_from(["os.replace", "os.fsync", "os.link", "os.open", "none", "folder"])
    return st.tuples(writers, calls, st.integers(1, 2), st.booleans())


@cache
def _writers() -> tuple[tuple[str, Callable[[Path], Any], int | None], ...]:
    agent = _small("ucbvi")()
    plain = _small("ucbvi")(users=5, privacy=tacit.NonPrivate())
    result = tacit.run(plain, small_world("tabular"), progress=False)
    curator = _curator()
    return (
        ("agent.save", agent.save, 0o600),
        ("agent.publish", agent.publish, None),
        ("curator.save", curator.save, 0o600),
        ("result.save", result.save, None),
        ("Ledger.create", lambda path: tacit.Ledger.create(path, 1.0, unit="mu^2"), 0o600),
    )


def _attempt_write(value: tuple[int, str, int, bool], folder: Path) -> None:
    """A write during which the system fails: the old file is there, or none, and nothing else."""
    which, call, when, old = value
    name, write, mode = _writers()[which]
    path = folder / "file"
    if old:
        path.write_bytes(b"old")
    if call == "folder":
        write(folder / "missing" / "file")
        return
    count = 0
    module, _, attribute = call.partition(".")
    original = getattr(importlib.import_module(module), attribute) if attribute else None

    def fails(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == when and original is not None:
            raise OSError(28, "No space left on device", str(path))
        return original(*arguments, **options)  # type: ignore[misc]

    patched = mock.patch(call, fails) if attribute else contextlib.nullcontext()
    try:
        with patched:
            write(path)
    except OSError:
        held = path.read_bytes() if path.exists() else None
        late = call in ("os.fsync", "os.open") and when == 2  # making the folder durable
        if held != (b"old" if old else None) and not late:
            raise Broken(f"{name} failed and left {held!r:.60}") from None
        raise
    if mode is not None and stat.S_IMODE(path.stat().st_mode) != mode:
        raise Broken(f"{name} made a file with mode {stat.S_IMODE(path.stat().st_mode):o}")


# The command line.

_TEXTS = (
    *("", " ", "0", "-1", "1", "20", "1e3", "1e999999999", "nan", "inf", "-inf", "1e-400", "0x10"),
    *(
        "none",
        "true",
        "abc",
        "ä\n\nö",
        "\x00",
        "--",
        "-h-",
        "=",
        ":",
        ",",
        "a=b",
        "a:b=c",
        "1_0",
        "١",
    ),
    *("riverswim:states=3,horizon=3", "riverswim:states=1e9", "riverswim:states=-1", "riverswim:"),
    *("riverswim:horizon=1e17", "grid:side=1e5", "missing.toml", "missing.json", ".toml", "/", "~"),
    *("math.sqrt:x=3", "os.getcwd", "json.loads:s=1", "tacit.Budget:epsilon=1,delta=0", "a.b.c"),
    *("gym:", "gym:Nothing-v0,horizon=3", "gym:id=,horizon=3", "ucbvi:schedule=fixed:size=0"),
    *("ucbvi:privacy=none", "ucbvi:scale=-1", "ucbvi:scale=nan", "ucbvi:users=3", "pucb", "ldpob"),
    *("ucbvi:schedule=geometric:growth=1.0000000001", "joint", "local", "exact", "x" * 300),
    *("/nowhere/x.png", "x.png", "x.json", "folder", "/dev/full", "/dev/null"),
)


def _texts() -> Strategy:
    return st.sampled_from(_TEXTS) | st.text(max_size=12)


_SMALL_RUN = {
    "--world": "riverswim:states=3,horizon=3",
    "--agent": "ucbvi",
    "--epsilon": "1",
    "--delta": "1e-6",
    "--users": "30",
    "--seeds": "1",
    "--workers": "1",
}
# Commands, with options that are good, and others that may be given.
_COMMANDS: tuple[tuple[tuple[str, ...], dict[str, str], tuple[str, ...]], ...] = (
    (("run",), _SMALL_RUN, ("--privacy", "--sampler", "--seed", "--save", "--plot", "--nothing")),
    (("compare",), _SMALL_RUN, ("--privacy", "--sampler", "--seed", "--save", "--plot")),
    (
        ("plan",),
        {"--states": "2", "--actions": "2", "--horizon": "2", "--users": "20", "--seeds": "1"}
        | {"--epsilon": "1", "--delta": "1e-6"},
        ("--world", "--most", "--privacy"),
    ),
    (("list",), {}, ("--json=", "--kind")),
    (("show", "world", "riverswim"), {}, ()),
    (("show", "agent", "ucbvi"), {}, ()),
    (("figure", "nothing"), {}, ("--output",)),
    (("figure", "tabular-orders"), {"--output": "x.txt"}, ()),
    (("figure", "tabular-orders"), {"--output": "missing/x.png"}, ()),
    (("ledger", "verify", "ledger"), {}, ("--json=",)),
    (("ledger", "show", "ledger"), {}, ()),
    (("ledger", "report", "ledger"), {}, ("--delta",)),
    (("ledger", "create", "new"), {"--epsilon": "1", "--delta": "1e-6"}, ("--relation", "--note")),
)


@st.composite
def _command_lines(draw: Any) -> list[str]:
    words, good, more = draw(st.sampled_from(_COMMANDS))
    changed = list(words)
    if len(words) > 1 and words[0] != "figure" and draw(st.integers(0, 2)) > 0:
        changed[-1] = draw(_texts())
    options = dict(good)
    names = [*good, *more]
    if names and words[0] != "figure":
        for name in draw(st.lists(st.sampled_from(names), min_size=0, max_size=2, unique=True)):
            if draw(st.integers(0, 5)) == 0:
                options.pop(name, None)
            else:
                options[name] = draw(_texts())
    line = [*changed, *(part for item in options.items() for part in item)]
    if draw(st.integers(0, 8)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(_texts()))
    return line


def _attempt_command(line: list[str], folder: Path) -> None:
    """Runs it here; a ledger, perhaps damaged, lies about."""
    (folder / "folder").mkdir()
    _write_ledger(folder / "ledger")
    code, error, raised = command(line)
    if raised:
        raise Broken(f"raises {raised}")
    if "Traceback" in error:
        raise Broken(f"shows a traceback: {error[-200:]}")
    if code not in (0, 2):
        raise Broken(f"exits with {code}: {error[-300:]}")
    if code == 2:
        if len(error.splitlines()) != 1 or not error.startswith("tacit:"):
            raise Broken(f"says more or less than a line: {error[:300]!r}")
        raise tacit.InvalidArgument(error)


def command(line: Sequence[str]) -> tuple[int, str, str]:
    """The exit code, what is on standard error, and what was raised, of a command in here."""
    from typer.testing import CliRunner

    from tacit import cli

    ran = CliRunner().invoke(cli.app, list(line))
    raised = ran.exception
    fine = raised is None or isinstance(raised, SystemExit)
    return ran.exit_code, ran.stderr, "" if fine else repr(raised)


def _attempt_damaged_ledger(damage: tuple[Any, ...], folder: Path) -> None:
    whole_ = _written(_file_cases()[0])
    (folder / "ledger").write_bytes(_damaged(whole_, damage, [b"x"], _forged_ledger))
    for words in (["ledger", "verify", "ledger"], ["ledger", "report", "ledger"]):
        code, error, raised = command(words)
        if raised or "Traceback" in error or code not in (0, 1, 2):
            raise Broken(f"{words} exits with {code}: {raised} {error[-200:]}")
        if len(error.splitlines()) > 1:
            raise Broken(f"{words} says more than a line: {error!r}")
    if code:
        raise tacit.InvalidArgument(error or "refused")


def command_entries() -> list[EntryPoint]:
    """The command line, in this process."""
    return [
        EntryPoint("command line", _command_lines, _attempt_command),
        EntryPoint("tacit ledger on damaged files", _damage, _attempt_damaged_ledger),
    ]


# All of them.


def entry_points() -> list[EntryPoint]:
    """Everything that is attacked."""
    return [*argument_entries(), *value_entries(), *file_entries(), *command_entries()]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line of the campaign."""
    parser = Parser(
        prog="python -m tacit.experiments.hostile_campaign",
        description="Hostile input on every public entry point; none may break.",
    )
    parser.add_argument("--examples", type=whole(1), default=100, help="per entry point")
    parser.add_argument("--seed", type=whole(0), default=0, help="of the inputs")
    parser.add_argument("--only", default="", help="entry points whose names hold this")
    options = parser.parse_args(arguments)
    print(HEADING)
    total = Tally("all")
    for entry in entry_points():
        if options.only not in entry.name:
            continue
        tally = throw(entry, options.examples, options.seed)
        print(tally, flush=True)
        for found in tally.broken[:3]:
            print(f"    {found}")
        total.tried += tally.tried
        total.refused += tally.refused
        total.accepted += tally.accepted
        total.broken += tally.broken
    print(total)
    return 1 if total.broken else 0


if __name__ == "__main__":
    sys.exit(main())
