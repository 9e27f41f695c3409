"""Names of worlds and agents: ``name:key=value,key=value`` as a command line or a file has it.

The options of a name, their types and their defaults are those of the function or class behind it,
read from its signature; nothing is listed twice. Modules are imported when a name is used.

Besides the built-in names there are, for worlds, files that describe one (``mine.toml``,
``mine.json``) and Gymnasium's environments (``gym:FrozenLake-v1,horizon=20``); and for both, what
makes them, by its module (``my_package.my_module.MyAgent:option=3``) or its file
(``my_file.py:MyAgent:option=3``). That is code: a text which stands in a file may not name it, see
:func:`names_of`.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from pathlib import PurePath
from typing import Any, Literal

from tacit.core.algorithm import Algorithm
from tacit.core.constructors import constructor
from tacit.core.world import World
from tacit.names.targets import load, split, target_of
from tacit.names.texts import Option, annotation_of, hint, settable
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.seeds import noise_seed

BUILT_IN = {
    "actor_critic": "tacit.continuous.actor_critic:ActorCritic",
    "certainty_equivalence": "tacit.lq.certainty_equivalence:CertaintyEquivalence",
    "concurrent_psrl": "tacit.tabular.concurrent_psrl:ConcurrentPSRL",
    "fitted_functional_q": "tacit.continuous.fitted_functional_q:FittedFunctionalQ",
    "kernel_lsvi": "tacit.continuous.kernel_lsvi:KernelLSVI",
    "linear_posterior": "tacit.linear.linear_posterior:LinearPosterior",
    "linopt_po": "tacit.mixture.linopt_po:LinOptPO",
    "linopt_sampled": "tacit.mixture.linopt_sampled:LinOptSampled",
    "linopt_vi": "tacit.mixture.linopt_vi:LinOptVI",
    "lsvi_ucb": "tacit.linear.lsvi_ucb:LSVIUCB",
    "lsvi_ucb_plus_plus": "tacit.linear.lsvi_ucb_plus_plus:LSVIUCBPlusPlus",
    "model_posterior": "tacit.continuous.model_posterior:ModelPosterior",
    "pessimistic_improvement": "tacit.tabular.pessimistic_improvement:PessimisticImprovement",
    "pessimistic_lsvi": "tacit.linear.pessimistic_lsvi:PessimisticLSVI",
    "pessimistic_vi": "tacit.tabular.pessimistic_vi:PessimisticVI",
    "policy_improvement": "tacit.tabular.policy_improvement:PolicyImprovement",
    "ucbpo": "tacit.tabular.ucbpo:UCBPO",
    "ucbvi": "tacit.tabular.ucbvi:UCBVI",
}
"""Algorithms of the built-in agents, by name."""

_FAMILIES = ("tabular", "linear", "mixture", "lq", "continuous")

AGENTS, WORLDS = "tacit.agents", "tacit.worlds"
"""Groups of entry points: another package names its own agents and worlds in them."""

GYM = ("gym", "gymnasium")
"""What the names of imported environments begin with; the second is the one in their names."""

WORLD_FILES = (".toml", ".json")
"""How the names of files that describe a world end."""

AUTO = "auto"
"""For an agent: the one of :data:`tacit.which_agent.RULES`."""
_AUTO_TARGET = "tacit.which_agent:agent"

# The file whose texts are read, if it may not have code imported.
_READ: ContextVar[str] = ContextVar("_READ", default="")

# What a run decides, and not the text that names an agent; and the store, which is of real users.
_GIVEN = ("spec", "users", "privacy", "seed", "noise_seed", "store", "name")


@dataclass(frozen=True)
class NamedMaker:
    """A name and what it stands for."""

    name: str  # as it is written
    target: str  # ``module:attribute`` of the function or class, or ``file.py:attribute``
    given: tuple[str, ...] = ()  # parameters that are no options

    @property
    def make(self) -> Callable[..., Any]:
        """The function or class, imported."""
        found: Callable[..., Any] = load(self.target, repr(self.name))
        if not callable(found):
            raise InvalidArgument(f"{self.name!r} must be a class or a function, got {found!r}")
        algorithm = isinstance(found, type) and issubclass(found, Algorithm)
        return constructor(found) if algorithm else found

    @property
    def options(self) -> dict[str, Option]:
        """What can be set, by name, in the order of the signature."""
        found: dict[str, Option] = {}
        for function, parameter in self._parameters():
            plain = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if not plain or parameter.name in (*self.given, *found):
                continue
            annotation = annotation_of(function, parameter)
            if settable(annotation):
                found[parameter.name] = Option(parameter.name, annotation, parameter.default)
        return found

    @property
    def takes_more(self) -> bool:
        """Whether it passes options on that its signature does not name."""
        return any(parameter.kind is parameter.VAR_KEYWORD for _, parameter in self._parameters())

    def _parameters(self) -> list[tuple[Callable[..., Any], inspect.Parameter]]:
        """What it can be called with, each with the function that says so.

        A constructor that passes ``**options`` on to its base class takes what that one takes.
        """
        make = self.make
        if not inspect.isclass(make):
            return [(make, p) for p in inspect.signature(make).parameters.values()]
        found: list[tuple[Callable[..., Any], inspect.Parameter]] = []
        for function in (vars(base).get("__init__") for base in make.__mro__[:-1]):
            if inspect.isfunction(function):
                found = [(f, p) for f, p in found if p.kind is not p.VAR_KEYWORD]
                own = list(inspect.signature(function).parameters.values())[1:]  # without self
                found += [(function, p) for p in own]
                if not any(p.kind is p.VAR_KEYWORD for p in own):
                    break
        return found

    @property
    def document(self) -> str:
        """Its documentation, without the examples that are tests."""
        lines = (inspect.getdoc(self.make) or "").splitlines()
        ends = [i for i, line in enumerate(lines) if line.lstrip().startswith(">>>")]
        return "\n".join(lines[: ends[0]] if ends else lines).strip()

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return self.document.partition("\n")[0]

    def read(self, text: str, extra: Mapping[str, Option] | None = None) -> dict[str, Any]:
        """Options from ``key=value,key=value``, checked against the signature.

        A value may have options of its own, as a schedule does: what follows a value with a colon
        and is no option here belongs to that value. ``extra`` options are allowed besides.
        """
        allowed = ", ".join(map(str, self.options.values())) or "no options"
        if extra:
            allowed += f"; and {', '.join(extra)}"
        options = self.options | dict(extra or {})
        values: dict[str, str] = {}
        last = ""
        for part in text.split(",") if text else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if last and ":" in values[last] and key not in options and not self.takes_more:
                values[last] += f",{part.strip()}"
                continue
            if not equals or not key:
                raise InvalidArgument(f"{part!r} in {self.name}:{text} must be key=value")
            if key not in options and not self.takes_more:
                raise InvalidArgument(
                    f"{self.name} has no option {key!r}{hint(key, options)}; it takes {allowed}"
                )
            if key in values:
                raise InvalidArgument(f"{key} is given twice in {self.name}:{text}")
            values[key] = value
            last = key
        missing = [o.name for o in options.values() if o.required and o.name not in values]
        if missing:
            raise InvalidArgument(
                f"{self.name} needs {', '.join(missing)}; it takes {allowed}, as in "
                f"{self.name}:{','.join(f'{name}=...' for name in missing)}"
            )
        guessed = {key: Option(key, Any, None) for key in values}
        return {k: (guessed | options)[k].read(v, self.name) for k, v in values.items()}


# What files may name.


@contextlib.contextmanager
def names_of(file: str, allow_code: bool = False) -> Iterator[None]:
    """While texts of a file are read: names are registered ones, unless code is allowed.

    Whoever gets a file from somebody else wants it read, and not run.
    """
    token = _READ.set("" if allow_code else file)
    try:
        yield
    finally:
        _READ.reset(token)


def _check_code(name: str, module: str) -> None:
    """Refuses code that a file names, and names that can only be a mistake or worse."""
    if _READ.get():
        raise InvalidArgument(
            f"{_READ.get()!r} names {name!r}, which would import {module!r}: files name what "
            "tacit show has, and gym: ids; with --allow-code it is imported, and run"
        )
    if not module.endswith(".py") and module.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidArgument(
            f"{name!r} is of Python's own library, which makes no worlds and no agents; it was "
            "not called"
        )


def _code(name: str) -> str | None:
    """The target of a name that is that of a module's or a file's own; ``None`` for other names."""
    if (target := target_of(name)) is not None:
        _check_code(name, target.rpartition(":")[0])
    return target


# Worlds.


def world_names() -> list[str]:
    """The built-in worlds, and those of other packages."""
    built_in = [name for family in _FAMILIES for name in _worlds_of(family)]
    return sorted({*built_in, *_plugged(WORLDS)})


def _worlds_of(family: str) -> tuple[str, ...]:
    names: tuple[str, ...] = importlib.import_module(f"tacit.{family}.worlds").WORLDS
    return names


def _world_target(name: str) -> str | None:
    for family in _FAMILIES:
        if name in _worlds_of(family):
            return f"tacit.{family}.worlds:{name}"
    return _plugged(WORLDS).get(name)


def world_entry(name: str) -> NamedMaker:
    """What a world's name stands for."""
    if name in GYM:
        return _gym_entry()
    if (target := _world_target(name) or _code(name)) is not None:
        return NamedMaker(name, target)
    raise InvalidArgument(
        f"world is {name!r}, but must be one of {', '.join(names := world_names())}"
        f"{hint(name, names)}; or a .toml or .json file, gym:ID for an environment of Gymnasium, "
        "or what makes one, as my_file.py:make"
    )


def build_world(name: str) -> World:
    """The world of a text; an InvalidArgument says what is allowed.

    It is as ``riverswim:states=6,horizon=20``, ``mine.toml``, ``gym:FrozenLake-v1,horizon=20`` or
    ``my_module.my_world:size=3``. The names that worlds have are such texts.

    >>> build_world("riverswim:states=8").name
    'riverswim:states=8,horizon=20'
    >>> build_world("riverswim:depth=8")
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: riverswim has no option 'depth'; it takes states=6, \
horizon=20
    """
    imported = name.partition(":")[0].strip() in GYM
    if PurePath(name).suffix.lower() in WORLD_FILES and not imported:
        from tacit.tabular.world import load_world

        return load_world(name)
    kind, options = split(name)
    entry = world_entry(kind)
    if imported:
        return _imported(entry, options)
    own = _world_target(entry.name) is not None
    # What makes an environment takes, besides its own options, those of any environment.
    more = {} if own or not options else _environment_options(entry)
    given = entry.read(options, more)
    later = {key: given.pop(key) for key in more if key in given}
    with _refused(f"world {name!r}", own=own):
        made = entry.make(**given)
    return _world_of(made, f"world is {name!r}, which makes no world, but {made!r}", later)


def world(what: Any) -> World:
    """A world of a text, see :func:`build_world`, or of an environment of Gymnasium; or itself.

    >>> round(world("gym:CliffWalking-v1").optimal_value, 6)
    -13.0
    """
    if isinstance(what, str):
        return build_world(what)
    return _world_of(what, f"world must be a world, an environment or a text, got {what!r}", {})


def _world_of(what: Any, mistake: str, options: Mapping[str, Any]) -> World:
    made: World = what
    if hasattr(what, "reset") and hasattr(what, "unwrapped"):
        entry = _gym_entry()
        if unknown := options.keys() - entry.options.keys():
            raise InvalidArgument(f"{', '.join(sorted(unknown))} means nothing to {what}")
        made = entry.make(what, **options)
    elif not hasattr(made, "simulate"):
        raise InvalidArgument(mistake)
    elif options:
        raise InvalidArgument(f"{', '.join(options)} is for environments, and {made.name} is none")
    return made


def _environment_options(maker: NamedMaker) -> dict[str, Option]:
    """What an environment's world takes besides what its maker does, unless that takes all."""
    if maker.takes_more:
        return {}
    every = _gym_entry().options
    return {name: option for name, option in every.items() if name not in maker.options}


@contextlib.contextmanager
def _refused(what: str, own: bool) -> Iterator[None]:
    """Anything can be the dotted path of something: what is no world or agent fails somehow."""
    try:
        yield
    except TypeError as error:
        if own:
            raise
        raise InvalidArgument(f"{what} cannot be made: {error}") from error


def _imported(entry: NamedMaker, text: str) -> World:
    """An environment: its id comes first, or as ``id=``; then options, behind a comma or colon."""
    first, _, rest = re.sub(r":(?=\w+=)", ",", text, count=1).partition(",")
    key, equals, value = first.partition("=")
    if not first or (equals and key != "id"):
        raise InvalidArgument(
            f"{entry.name}:{text} must begin with the environment's id, as in "
            "gym:FrozenLake-v1,horizon=20"
        )
    name = value if equals else first
    # Gymnasium imports what stands before a colon; in options of ours there are numbers around it.
    for word in (name, *re.split("[,=]", rest)):
        if _READ.get() and ":" in word and (word is name or re.search(r"[^-+.\de:]", word)):
            _check_code(word, word.partition(":")[0])
    try:
        made: World = entry.make(name, **entry.read(rest))
    except InvalidArgument:
        raise
    except (ImportError, LookupError, ValueError, AssertionError, AttributeError) as error:
        # What an environment says about its own arguments.
        raise InvalidArgument(f"no environment {name!r} with {rest!r}: {error!r}") from error
    return made


def _gym_entry() -> NamedMaker:
    return NamedMaker("gym", "tacit.gym.worlds:from_gymnasium", ("env_or_id",))


# Agents.


def agent_names() -> list[str]:
    """The built-in agents, and those of other packages."""
    return sorted({*BUILT_IN, *_plugged(AGENTS)})


def _agent_target(name: str) -> str | None:
    return BUILT_IN.get(name) or _plugged(AGENTS).get(name)


def _plugged(group: str) -> dict[str, str]:
    """Targets by name of what installed packages bring; what lies in a current folder is not."""
    found = distributions(path=[path for path in sys.path if path not in ("", os.getcwd())])
    points = [point for packet in found for point in packet.entry_points.select(group=group)]
    return {point.name: point.value for point in reversed(points)}  # the first, as imports are


def agent_entry(name: str) -> NamedMaker:
    """What an agent's name stands for."""
    target = _AUTO_TARGET if name == AUTO else _agent_target(name) or _code(name)
    if target is not None:
        return NamedMaker(name, target, _GIVEN)
    raise InvalidArgument(
        f"agent is {name!r}, but must be {AUTO} or one of {', '.join(names := agent_names())}"
        f"{hint(name, names)}; or a class of yours, as my_file.py:MyAgent or my_module.MyAgent"
    )


_KINDS = {"privacy": Literal["joint", "local", "none"], "epsilon": float, "delta": float}
_BUDGET = {name: Option(name, kind, None) for name, kind in _KINDS.items()}


@dataclass(frozen=True)
class AgentChoice:
    """An agent with its options, but without users, budget and seed."""

    text: str  # as it was written
    target: str  # ``module:class``
    options: Mapping[str, Any] = field(default_factory=dict)  # what the text sets of the class
    # what the text sets of ``privacy``, ``epsilon`` and ``delta``, so that agents
    # under different models can be compared
    budget: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""  # in words, where it was not named

    def settled(self, spec: Any, users: int, privacy: Any) -> AgentChoice:
        """Itself; of :data:`AUTO` the agent for a spec and a budget, with the reason."""
        if self.target != _AUTO_TARGET:
            return self
        from tacit.which_agent import choose

        chosen = choose(spec, users, privacy)
        name, options = split(chosen.agent)
        more = ",".join(filter(None, (options, split(self.text)[1])))
        return replace(choose_agent(f"{name}:{more}" if more else name), why=chosen.why)

    @property
    def batch(self) -> bool:
        """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
        algorithm = getattr(NamedMaker(self.text, self.target).make, "algorithm", None)
        offline: bool = getattr(algorithm, "offline", False)
        return offline and self.options.get("serve", "nobody") == "nobody"

    def build(self, spec: Any, users: int, privacy: Any, seed: int = 0, **serving: Any) -> Any:
        """The agent of one seed, the same as in a run of several; its noise is simulated."""
        make = NamedMaker(self.text, self.target).make
        own = _agent_target(split(self.text)[0]) is not None
        with _refused(f"agent {self.text!r}", own=own):
            given = {"users": users, "privacy": privacy, "seed": seed, **self.options, **serving}
            made: Any = make(spec, noise_seed=noise_seed(seed), **given)
        if not own and not hasattr(made, "learn"):
            raise InvalidArgument(f"agent is {self.text!r}, which makes no agent, but {made!r}")
        return made


def choose_agent(text: str) -> AgentChoice:
    """The agent of a text, as ``ucbvi`` or ``ucbvi:stationary=true,scale=0.5``.

    Besides the agent's own options a text may set ``privacy``, ``epsilon`` and ``delta``. Which
    agent :data:`AUTO` is depends on spec and budget; see :meth:`AgentChoice.settled`.
    """
    kind, rest = split(text)
    entry = agent_entry(kind)
    values = entry.read(rest, extra=_BUDGET)
    return AgentChoice(
        text=text.strip(),
        target=entry.target,
        options={key: value for key, value in values.items() if key not in _BUDGET},
        budget={key: value for key, value in values.items() if key in _BUDGET},
    )
