"""Everything that takes arguments: functions and classes, curators, worlds, agents.

A call gets good arguments of which some become junk. A refusal must name the argument and change
nothing; what makes no sense anywhere must be refused. That users' values are never refused is
another matter: ``tacit.check_agent`` has a check of it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tacit
from research.hostile.fuzzing import Broken, EntryPoint, Stranger, Strategy
from research.worlds import build
from tacit import registry
from tacit.continuous import BoxWorld, QPolicy
from tacit.continuous.features import Grid
from tacit.core.problem import Schedule
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.linear.worlds import LinearWorld
from tacit.lq import GainPolicy, LQWorld
from tacit.mixture import MixtureWorld
from tacit.privacy.errors import TacitError
from tacit.privacy.statistic import Block
from tacit.simulation.plan import plan
from tacit.tabular import TabularWorld
from tacit.tabular.spec import FiniteSpec
from tacit.testing.recording import snapshot
from tacit.testing.sample_users import raw_block

JOINT = tacit.JointDP(epsilon=1.0, delta=1e-6)
"""Joint privacy of what is attacked, where it has that."""

LOCAL = tacit.LocalDP(epsilon=1.0, delta=1e-6)
"""Local privacy of what is attacked, where it has that."""

_WORLDS = {
    "tabular": "riverswim:states=3,horizon=3",
    "linear": "two_state:horizon=3",
    "mixture": "mixture_of_models:dimension=2,states=3,actions=2,horizon=3",
    "lq": "double_integrator:horizon=3",
    "continuous": "line:horizon=4",
    "trial": "micro_randomised:decisions=20,contexts=3",
    "centred_improvement": "riverswim:states=3,horizon=6",
    # Its features must be shares.
    "linear_posterior": "simplex:dimension=3,states=6,actions=2,horizon=3",
    # Their models must be simulators.
    "linopt_sampled": "currents:rows=10,columns=10,dimension=2,horizon=3,samples=4",
}
_USERS = 400


@cache
def small_world(name: str) -> Any:
    """One small world of each family, or of an agent that needs another."""
    return build(_WORLDS[name])


@dataclass(frozen=True)
class Small:
    """A small agent that can be made again and again."""

    name: str
    make: Callable[..., Any]
    family: str
    privacy: Any

    def arguments(self) -> dict[str, Any]:
        """What it is made with."""
        return {
            "spec": self.world.spec,
            "users": _USERS,
            "privacy": self.privacy,
            "seed": 0,
            "noise_seed": 1,
        }

    @property
    def world(self) -> Any:
        """What it is for."""
        return small_world(self.name if self.name in _WORLDS else self.family)

    def __call__(self, **changed: Any) -> Any:
        """A fresh one, with some arguments changed."""
        return self.make(**self.arguments() | changed)

    @property
    def options(self) -> dict[str, Any]:
        """All parameters of its constructor, with defaults that are the same as not given."""
        parameters = inspect.signature(registry.agent_entry(self.name).make).parameters
        found = {name: parameter.default for name, parameter in parameters.items()}
        return {k: v for k, v in found.items() if v is not inspect.Parameter.empty}

    def all_arguments(self) -> dict[str, Any]:
        """What it is made with, and everything else it takes."""
        return self.options | self.arguments()

    def episodes(self, agent: Any, users: int) -> Block:
        """Raw episodes of users whom its policy served."""
        rng = np.random.default_rng(0)
        return raw_block(self.world.simulate(agent.policy, users, rng, "episodes"))


@cache
def small_agents() -> tuple[Small, ...]:
    """One of every agent of the registry that is there and can be made."""
    found = []
    for name in registry.BUILT_IN:
        try:
            make = registry.agent_entry(name).make
        except TacitError:
            continue  # one of its dependencies is not installed
        family = vars(make)["algorithm"].__module__.split(".")[1]
        for privacy in (JOINT, LOCAL, tacit.NonPrivate()):
            small = Small(name, make, family, privacy)
            with contextlib.suppress(TacitError):
                small()
                found.append(small)
                break
    return tuple(found)


@cache
def local_agents() -> tuple[Small, ...]:
    """Those that take reports of devices, with local privacy."""
    found = []
    for small in small_agents():
        local = dataclasses.replace(small, privacy=LOCAL)
        with contextlib.suppress(TacitError):
            agent = local()
            if hasattr(agent, "learn_reports") and agent.statistic is not None:
                found.append(local)
    return tuple(found)


def small_ucbvi(**changed: Any) -> Any:
    """A fresh agent, where any agent will do."""
    small = next(small for small in small_agents() if small.name == "ucbvi")
    return small(**changed)


@cache
def small_result() -> tacit.Result:
    """What comes of a few users."""
    agent = small_ucbvi(users=5, privacy=tacit.NonPrivate())
    return tacit.run(agent, small_world("tabular"), progress=False)


def small_curator(privacy: Any = JOINT) -> Any:
    """A fresh curator that holds two blocks of pairs of numbers."""
    curator = privacy.curator(users=100, noise_seed=0)
    curator.add(Block(10, {"values": np.ones((10, 2))}))
    curator.add(Block(10, {"values": np.ones((10, 2))}))
    return curator


PAIRS = tacit.ClippedSum(2)
"""A statistic of what the small curator holds."""


def small_log() -> dict[str, list[Any]]:
    """A log of two users, a row per step."""
    return {
        "user": ["a", "b", "a"],
        "step": [0, 0, 1],
        "state": [0, 0, 1],
        "action": [1, 0, 1],
        "reward": [0.0, 1.0, 1.0],
        "next_state": [1, 2, 2],
    }


# Junk.

# What every argument of every function refuses.
_NOTHING_SENSIBLE: tuple[Any, ...] = (Stranger(), 1j, {"a": 1}, object)

# Stands for a file in the folder of the input, where an argument is one.
_A_FILE = "abc"
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1.0, 1.5, -0.0, math.nan, math.inf, -math.inf),
    *(5e-324, 1e-300, 1e300, 1.7e308, 2**31, 2**53 + 1, 2**63, 2**64, 10**18, -(10**18), 10**400),
    *(10**9, "", _A_FILE, "no", "1", "nan", "auto", "every", "\x00", "\ud800", "é" * 50),
    *("geometric", "fixed:size=0", "geometric:growth=1", "geometric:growth=1.0000000001"),
    *("geometric:first=-1", "fixed:size=1e9", "geometric:growth=nan", "geometric:growth=inf"),
    "fixed:size=" + "9" * 5000,
    *(b"\xff", [], (), [1], [[]], [1, "a"], [None], [math.nan], ["x"], (0,), (10**9,), (-1,)),
    *(np.int64(3), np.float32(0.5), np.bool_(True), np.array(3), np.array([1.0, math.nan])),
    *(np.zeros((2, 0)), np.zeros((2, 2, 2)), np.array(["a"]), np.array([1j]), np.array([None])),
    *(np.array([10**6] * 3), np.datetime64("2020-01-01"), tacit.NonPrivate(), tacit.Budget(1, 0)),
    *(*_NOTHING_SENSIBLE, {1, 2}, {}, range(3), range(10**12), Ellipsis, len),
)


def junk() -> Strategy:
    """Values of any type, most of them wrong anywhere."""
    return st.one_of(
        st.sampled_from(_ODD),
        st.sampled_from(_NOTHING_SENSIBLE),
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
        fixed: arguments that stay good: whom the others go to.
        free: arguments that take anything, such as a name that is only shown.
        watched: gives what must not change if the call is refused.
        paths: arguments that are files; they may be refused with an ``OSError``.
        absurd: sizes that are large and yet possible become absurd ones.
    """

    function: Callable[..., Any]
    good: Callable[[], dict[str, Any]]
    fixed: tuple[str, ...] = ()
    free: tuple[str, ...] = ("name", "progress", "text", "note")
    watched: Callable[[dict[str, Any]], Any] = lambda arguments: None
    paths: tuple[str, ...] = ("ledger", "autosave", "path")
    absurd: bool = False

    def entry(self, name: str) -> EntryPoint:
        """The entry point at which such junk goes."""
        return EntryPoint(name, self.inputs, self.attempt)

    def inputs(self) -> Strategy:
        """Which arguments become what."""
        names = sorted(set(self.good()).difference(self.fixed))

        @st.composite
        def changed(draw: Any) -> dict[str, Any]:
            most = 2 if draw(st.integers(0, 4)) == 0 else 1
            several = st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True)
            chosen = draw(several)
            return {name: draw(junk()) for name in chosen}

        return changed()

    def attempt(self, changed: dict[str, Any], folder: Path) -> None:
        """Calls it, and checks what it makes of the junk."""
        arguments = self.good()
        changed = {name: self._given(name, value, folder) for name, value in changed.items()}
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

    def _given(self, name: str, value: Any, folder: Path) -> Any:
        """What an argument becomes: what was drawn, but for files and sizes."""
        if name in self.paths and value is _A_FILE:
            return str(folder / "file")
        size = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if self.absurd and size and 50 < value < 10**9:
            return 10**9  # sizes in between are no mistakes, they only take their time
        return value

    def _senseless(self, name: str, value: Any) -> bool:
        if any(value is wrong for wrong in _NOTHING_SENSIBLE):
            return True
        if name not in self._flags:
            return False
        return not isinstance(value, (bool, np.bool_, type(None)))

    @property
    def _flags(self) -> set[str]:
        """The arguments that are true or false, by their annotations."""
        functions = [self.function]
        if inspect.isclass(self.function):
            constructors = [vars(base).get("__init__") for base in self.function.__mro__[:-1]]
            functions = [function for function in constructors if function is not None]
        found = set()
        for function in functions:
            with contextlib.suppress(TypeError, ValueError):
                for parameter in inspect.signature(function).parameters.values():
                    if str(parameter.annotation) in ("bool", "bool | None", "<class 'bool'>"):
                        found.add(parameter.name)
        return found


def constant(**arguments: Any) -> Callable[[], dict[str, Any]]:
    """Good arguments that no call changes."""
    return lambda: dict(arguments)


# Words by which a message may name an argument.
_WORDS = {
    "spec": ("this agent needs", "is for"),
    "user_ids": ("ids",),
    "noise_seed": ("seed",),
    "path": ("file", "name"),
    "data": ("episodes", "block", "array", "versions", "must have shape", "must be numbers"),
    "mu": ("cost", "budget"),
    "epsilon": ("cost", "budget"),
    "make_agent": ("make is", "failed"),
    "seeds": ("seed",),
    "decisions": ("horizon",),
    "looks": ("look",),
    "average": ("effects",),
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


# What is called.

_BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def argument_entries() -> list[EntryPoint]:
    """Functions and classes, called with arguments of which some are junk."""
    calls = {
        **{name: Call(make, constant(**good)) for name, (make, good) in _plain_calls().items()},
        **_other_calls(),
        **_curator_calls(),
        **_world_calls(),
        **_agent_calls(),
    }
    return [call.entry(name) for name, call in calls.items()]


def _filled(make: Any, **needed: Any) -> dict[str, Any]:
    """Good arguments: those needed, and every default but sources of noise, which are internal."""
    parameters = inspect.signature(make).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return {k: v for k, v in (defaults | needed).items() if k != "source"}


def _of(world: Any, names: str) -> dict[str, Any]:
    """What a world was made with."""
    return {name: getattr(world, name) for name in names.split()}


def _plain_calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """What takes good arguments that no call changes."""
    lq, mixture, linear = (small_world(name) for name in ("lq", "mixture", "linear"))
    steps: dict[str, Any] = {"states": [[0, 1, 2]] * 2, "actions": [[1, 0]] * 2}
    steps |= {"rewards": [[0.0, 1.0]] * 2, "versions": [0, 0], "user_ids": ["a", 7]}
    vectors = steps | {"states": np.zeros((2, 3, 1)), "lengths": [2, 2]}
    counted = {"budget": tacit.Budget(1.0, 1e-6), "sensitivity": 1.0, "releases": 5, "shape": (2,)}
    policy = tacit.Policy
    report = {"statistic": PAIRS, "data": Block(1, {"values": np.ones((1, 2))}), "privacy": LOCAL}
    stay = np.eye(2)[:, np.newaxis].repeat(2, axis=1)
    return {
        "Budget": (tacit.Budget, _BUDGET),
        "JointDP": (tacit.JointDP, _filled(tacit.JointDP, **_BUDGET)),
        "LocalDP": (tacit.LocalDP, _filled(tacit.LocalDP, **_BUDGET)),
        "counter": (tacit.counter, _filled(tacit.counter, **counted)),
        "Block": (Block, {"users": 2, "arrays": {"a": np.zeros(2)}, "aggregate": False}),
        "Part": (tacit.Part, {"name": "a", "shape": (2, 2), "symmetric": True, "weight": 1.0}),
        "ClippedSum": (tacit.ClippedSum, _filled(tacit.ClippedSum, dimension=2)),
        "GramCross": (tacit.GramCross, _filled(tacit.GramCross, rows=2, columns=2, steps=2)),
        "OneHotCounts": (tacit.OneHotCounts, _filled(tacit.OneHotCounts, steps=2, cells=3)),
        "FiniteSpec": (
            FiniteSpec,
            {"states": 2, "actions": 2, "horizon": 2, "stationary": True}
            | {"reward_values": (0.0, 1.0), "start": None},
        ),
        "Episodes": (Episodes, steps),
        "VectorEpisodes": (VectorEpisodes, vectors),
        "Policy.deterministic": (
            policy.deterministic,
            {"actions": [[0, 1]], "n_actions": 2, "version": 0},
        ),
        "Policy.stochastic": (policy.stochastic, {"probabilities": [[[0.5, 0.5]]], "version": 0}),
        "Policy.uniform": (policy.uniform, {"horizon": 2, "states": 2, "actions": 2}),
        "Guarantee": (
            tacit.Guarantee,
            _BUDGET
            | {"model": "joint", "mu": 0.2, "relation": tacit.Relation.REPLACE_ONE, "releases": 3}
            | {"mechanism": "blocks", "unit": "a user", "sampler": "exact"}
            | {"simulation_only": False, "episodes_per_user": 1},
        ),
        "JointDP.curator": (JOINT.curator, {"users": 10, "noise_seed": 1}),
        "LocalDP.curator": (LOCAL.curator, {"users": 10, "noise_seed": 1}),
        "local.report": (tacit.local.report, report | {"noise_seed": 1}),
        "TabularWorld": (
            TabularWorld,
            {"transitions": stay, "rewards": [[0.1, 0.2]] * 2, "horizon": 2, "start": 0},
        ),
        "LinearWorld": (
            LinearWorld,
            _of(linear, "features measures rewards")
            | {"horizon": 3, "start": 0, "known_rewards": False},
        ),
        "MixtureWorld": (
            MixtureWorld,
            _of(mixture, "transition_features weights rewards")
            | {"horizon": 3, "start": 0, "known_rewards": True, "center": None, "radius": None},
        ),
        "LQWorld": (
            LQWorld,
            _of(lq, "A B Q R noise start") | {"horizon": 3, "norm_bound": None, "gain_bound": None},
        ),
        "GainPolicy": (GainPolicy, {"gains": np.zeros((2, 1, 2)), "noise": 0.0, "version": 0}),
        "QPolicy": (
            QPolicy,
            {"features": Grid((0.0,), (1.0,), (2,)), "weights": np.eye(2), "epsilon": 0.0}
            | {"version": 0, "preference": (0, 1)},
        ),
    }


def _other_calls() -> dict[str, Call]:
    """What is made afresh, or takes anything in some place."""
    choice, none, world = registry.choose_agent("ucbvi"), tacit.NonPrivate(), small_world("tabular")
    seeds = {"seeds": [0], "workers": 1, "progress": False}
    box: dict[str, Any] = {"reward": small_world("continuous")._reward, "name": "w", "horizon": 4}
    box |= {"reward_range": (0.0, 0.5), "discount": 0.95, "features": None}

    def agent(spec: Any, seed: int) -> Any:
        return tacit.UCBVI(spec, 5, none, seed=seed)

    def run() -> dict[str, Any]:
        made = small_ucbvi(users=5, privacy=none)
        return {"agent": made, "world": world, "seed": 0, "progress": False}

    planned = {"world": world, "agent": choice, "privacy": none, "users": 5, **seeds}
    log = {"frame": small_log(), "horizon": 2, "user": "user"}
    return {
        "Schedule.parse": Call(Schedule.parse, constant(text="geometric", users=100), free=()),
        "Episodes.from_frame": Call(Episodes.from_frame, lambda: copy.deepcopy(log)),
        "run": Call(tacit.run, run, free=()),
        "plan": Call(plan, constant(**planned)),
        # Any function may be a reward.
        "BoxWorld": Call(BoxWorld, constant(**box), free=("name", "reward")),
    }


def _curator_state(arguments: dict[str, Any]) -> tuple[Any, ...]:
    """What a refused call must leave alone: it costs nothing."""
    curator = arguments["curator"]
    return [*curator._spent], curator._count, curator._users, len(curator._blocks)


def _curator_calls() -> dict[str, Call]:
    """Blocks that come in, releases and streams."""

    def add(curator: Any, **options: Any) -> None:
        curator.add(**options)

    def release(curator: Any, **options: Any) -> None:
        curator.release(**options)

    def stream(curator: Any, block: Any, **options: Any) -> None:
        curator.stream(**options).release(block)

    def call(function: Any, good: Callable[[], dict[str, Any]]) -> Call:
        return Call(function, good, fixed=("curator",), watched=_curator_state)

    def comes(model: Any) -> dict[str, Any]:
        block = Block(3, {"values": np.ones((3, 2))})
        return {"curator": model.curator(users=5, noise_seed=0), "block": block, "user_ids": None}

    def asked(model: Any) -> dict[str, Any]:
        cost = {} if isinstance(model, tacit.NonPrivate) else {"mu": None}
        return {"curator": small_curator(model), "statistic": PAIRS, "block": 0, **cost}

    found = {}
    for name, model in (("joint", JOINT), ("local", LOCAL), ("no", tacit.NonPrivate())):
        found[f"{name} curator: add"] = call(add, partial(comes, model))
        found[f"{name} curator: release"] = call(release, partial(asked, model))
    found["joint curator: stream"] = call(
        stream, lambda: asked(JOINT) | {"releases": 5, "kind": "auto"}
    )
    return found


def _world_calls() -> dict[str, Call]:
    """Every world of the registry that has options."""
    needed, found = {"states": 3, "actions": 2, "horizon": 3, "seed": 0}, {}
    for name in registry.worlds():
        entry = registry.world_entry(name)
        good = {
            key: needed.get(key) if option.default is option.empty else option.default
            for key, option in entry.options.items()
        }
        if good:
            found[f"world {name}"] = Call(entry.make, constant(**good), absurd=True)
    return found


def _agent_calls() -> dict[str, Call]:
    """Every agent made and taught, and those of devices with reports.

    One that refuses must be as it was, down to the noise that it would draw next.
    """

    def learn(agent: Any, data: Any, user_ids: Any) -> None:
        agent.learn(data, user_ids)

    def learn_reports(agent: Any, reports: Any, user_ids: Any) -> None:
        agent.learn_reports(reports, user_ids)

    def taught(small: Small) -> dict[str, Any]:
        agent = small()
        data = small.episodes(agent, min(20, agent.block_users))
        return {"agent": agent, "data": data, "user_ids": None}

    def reported(small: Small) -> dict[str, Any]:
        agent = small()
        rows = np.zeros((agent.block_users, agent.statistic.layout.size))
        return {"agent": agent, "reports": rows, "user_ids": None}

    kept: dict[str, Any] = {"fixed": ("agent",), "watched": lambda given: snapshot(given["agent"])}
    found = {}
    for small in small_agents():
        found[f"{small.name}: made"] = Call(small.make, small.all_arguments)
        found[f"{small.name}: learn"] = Call(learn, partial(taught, small), **kept)
    for small in local_agents():
        found[f"{small.name}: learn_reports"] = Call(
            learn_reports, partial(reported, small), **kept
        )
    return found
