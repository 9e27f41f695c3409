"""Names of worlds and agents: ``name:key=value,key=value`` as a command line or a file has it.

The options of a name, their types and defaults are those of the signature behind it. Besides the
built-in names there are, for worlds, files (``mine.toml``, ``mine.json``) and Gymnasium's
environments (``gym:FrozenLake-v1,horizon=20``); and for both a class or function of your own, by
its module (``my_module.MyAgent:option=3``) or its file (``my_file.py:MyAgent:option=3``). That is
code: a text which stands in a file may not name it, see :func:`names_of`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import distributions
from pathlib import Path, PurePath
from types import ModuleType, NoneType
from typing import Any, TypeAlias

from tacit.core.algorithm import Algorithm
from tacit.core.constructors import constructor, hint
from tacit.core.world import World
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import MOST_USERS, checked_number, flag, whole_number
from tacit.simulation.run import noise_seed

BUILT_IN = {
    "action_centred": "tacit.trial.action_centred:ActionCentred",
    "centred_improvement": "tacit.trial.centred_improvement:CentredImprovement",
    "certainty_equivalence": "tacit.lq.certainty_equivalence:CertaintyEquivalence",
    "concurrent_psrl": "tacit.tabular.concurrent_psrl:ConcurrentPSRL",
    "fitted_functional_q": "tacit.continuous.fitted_functional_q:FittedFunctionalQ",
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

Options: TypeAlias = dict[str, inspect.Parameter]
WORLD_FILES = (".toml", ".json")
AGENTS, WORLDS = "tacit.agents", "tacit.worlds"  # entry points of other packages

_FAMILIES = ("tabular", "linear", "mixture", "lq", "continuous", "trial")
_AUTO_TARGET = "tacit.auto:agent"
_GIVEN = ("spec", "users", "privacy", "seed", "noise_seed", "store", "name")


# Code that a text names: ``my_module.attribute``, or ``my_file.py:attribute`` of a file.

# A name, perhaps of what a file has, and options: my_file.py:MyAgent:size=3.
_OF_FILE = r".+\.py:\w+"
_NAMED = re.compile(rf"({_OF_FILE}|[^:]*)(?::(.*))?", re.DOTALL)
# The file whose texts are read, if it may not have code imported.
_READ: ContextVar[str] = ContextVar("_READ", default="")


def split(text: str) -> tuple[str, str]:
    """A name and its options, from ``name:options``.

    >>> split("ucbvi:scale=2"), split("mine.py:MyAgent:size=3"), split("riverswim")
    (('ucbvi', 'scale=2'), ('mine.py:MyAgent', 'size=3'), ('riverswim', ''))
    """
    found = _NAMED.fullmatch(text.strip())
    assert found is not None  # noqa: S101  # any text is one
    if found[2] == "":
        raise InvalidArgument(f"{text.strip()!r} has a colon, but no options behind it")
    return found[1].strip(), (found[2] or "").strip()


@contextlib.contextmanager
def names_of(file: str, allow_code: bool = False) -> Iterator[None]:
    """Within it texts are those of a file, which may name code only if that is allowed."""
    token = _READ.set("" if allow_code else file)
    try:
        yield
    finally:
        _READ.reset(token)


def _check_code(name: str, module: str) -> None:
    """Refuses code that a file names, and names that can only be a mistake or worse."""
    if _READ.get():
        raise InvalidArgument(
            f"{_READ.get()!r} names {name!r}, which would import {module!r}: with --allow-code it "
            "is imported, and run"
        )
    if not module.endswith(".py") and module.partition(".")[0] in sys.stdlib_module_names:
        raise InvalidArgument(f"{name!r} is of Python's own library; it was not called")


def check_environment(name: str, options: str) -> None:
    """Refuses an environment's id or options, of a file, by which Gymnasium would import code."""
    for word in (name, *re.split("[,=]", options)) if _READ.get() else ():
        # It imports what stands before a colon; in options of ours there are numbers around it.
        if ":" in word and (word is name or re.search(r"[^-+.\de:]", word)):
            _check_code(word, word.partition(":")[0])


def target_of(name: str) -> str | None:
    """``my_module.attribute`` or ``my_file.py:attribute`` as a target; ``None`` for other names."""
    module, dot, attribute = name.rpartition(".")
    file = re.fullmatch(_OF_FILE, name, re.DOTALL)
    if not file and not (dot and all(part.isidentifier() for part in name.split("."))):
        return None
    target = name if file else f"{module}:{attribute}"
    _check_code(name, target.rpartition(":")[0])
    return target


def load(target: str, name: str) -> Any:
    """The object that a target names, imported; complaints have the name that stands for it."""
    module, _, attribute = target.rpartition(":")
    try:
        found = _file(module) if module.endswith(".py") else importlib.import_module(module)
        return getattr(found, attribute)
    except Exception as error:  # whatever code of others raises while it is imported
        raise InvalidArgument(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error


@cache
def _file(path: str) -> ModuleType:
    place = Path(path).resolve()
    # A name that nothing else has: a file may be called random.py.
    name = f"tacit_file_{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if (folder := str(place.parent)) not in sys.path:
        sys.path.append(folder)  # for what stands beside it; last, so that it hides nothing
    spec.loader.exec_module(module)
    return module


# Names with options.


@dataclass(frozen=True)
class NamedMaker:
    """A name, and the function or class that it stands for."""

    name: str  # as it is written
    target: str  # ``module:attribute`` of the function or class, or ``file.py:attribute``
    given: tuple[str, ...] = ()  # parameters that are no options

    @property
    def make(self) -> Callable[..., Any]:
        """The function or class, imported; of an algorithm the constructor of its agents."""
        found: Callable[..., Any] = load(self.target, self.name)
        if not callable(found):
            raise InvalidArgument(f"{self.name!r} must be a class or a function, got {found!r}")
        algorithm = isinstance(found, type) and issubclass(found, Algorithm)
        return constructor(found) if algorithm else found

    @property
    def options(self) -> Options:
        """Options that a text can set, by name, in the order of the signature."""
        found = inspect.signature(self.make).parameters.values()
        named = [p for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        simple = (bool, int, float, str, NoneType, type)  # no default is a class
        return {
            p.name: p for p in named if isinstance(p.default, simple) and p.name not in self.given
        }

    @property
    def document(self) -> str:
        """Its documentation, without the examples that are tests; its first line is a summary."""
        return (inspect.getdoc(self.make) or "").partition(">>>")[0].strip()

    def read(self, text: str, extra: Options | None = None) -> dict[str, Any]:
        """Options from ``key=value,key=value``, checked against the signature.

        A value may have options of its own, as a schedule does: what follows a value with a colon
        and is no option here belongs to that value. ``extra`` options are allowed besides.
        """
        own, values, last = self.options, dict[str, str](), ""
        options, parameters = own | (extra or {}), inspect.signature(self.make).parameters
        more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        takes = f"it takes {', '.join(own) or 'no options'}"
        for part in text.split(",") if text else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            unknown = key not in options and not more
            if last and ":" in values[last] and unknown:
                values[last] += f",{part.strip()}"
            elif not equals or not key or key in values:
                raise InvalidArgument(f"{part!r} in {self.name}:{text} must be key=value, and once")
            elif unknown:
                near = hint(key, options)
                raise InvalidArgument(f"{self.name} has no option {key!r}{near}; {takes}")
            else:
                values[key], last = value, key
        if missing := [k for k, p in own.items() if p.default is p.empty and k not in values]:
            raise InvalidArgument(f"{self.name} needs {', '.join(missing)}; {takes}")
        return {k: _read(options[k], v) if k in options else _value(v) for k, v in values.items()}


def _read(option: inspect.Parameter, text: str) -> Any:
    """The value of an option: of its default's type; whatever else is wrong says who takes it."""
    default, value = option.default, _value(text)
    if isinstance(default, bool):
        return flag(option.name, value)
    if isinstance(default, int):
        return whole_number(option.name, value, least=-MOST_USERS, most=MOST_USERS)
    if isinstance(default, float):
        return checked_number(option.name, value, "a number", math.isfinite)
    return text if isinstance(default, str) else value


def _value(text: str) -> Any:
    """None, a truth value, a number, numbers with colons between them, or the text itself.

    >>> [_value(text) for text in ("none", "true", "1e3", "0.5", "-1:0.5", "geometric:first=2")]
    [None, True, 1000, 0.5, (-1.0, 0.5), 'geometric:first=2']
    """
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    with contextlib.suppress(ValueError):
        found = tuple(map(number, text.split(":")))
        return tuple(map(float, found)) if len(found) > 1 else found[0]
    return text


def number(text: str) -> int | float:
    """A finite number; whole ones are integers, also as ``1e6`` or ``1_000``."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            value = kind(text)
            if abs(value) < MOST_USERS:
                return int(value) if value == int(value) else value
    raise InvalidArgument(f"{text!r} must be a number below 1e18, as 0.1 or 1e6")


# Worlds.


def plugged(group: str) -> dict[str, str]:
    """Targets by name of what installed packages bring; what lies in a current folder is not."""
    found = distributions(path=[path for path in sys.path if path not in ("", os.getcwd())])
    points = [point for packet in found for point in packet.entry_points.select(group=group)]
    return {point.name: point.value for point in reversed(points)}  # the first, as imports are


def worlds() -> dict[str, str]:
    """Targets of the built-in worlds, and of those of other packages, by name."""
    modules = [f"tacit.{family}.worlds" for family in _FAMILIES]
    found = {name: f"{m}:{name}" for m in modules for name in importlib.import_module(m).WORLDS}
    return dict(sorted((plugged(WORLDS) | found).items()))


def world_entry(name: str) -> NamedMaker:
    """The maker of a world's name."""
    if name == "gym":
        return NamedMaker("gym", "tacit.gym:from_gymnasium", ("env_or_id",))
    if (target := worlds().get(name) or target_of(name)) is not None:
        return NamedMaker(name, target)
    raise _unknown("world", name, [*worlds()], "a .toml or .json file, gym:ID, or my_file.py:make")


def build_world(name: str) -> World:
    """The world of a text, as ``riverswim:states=6,horizon=20`` or ``mine.toml``.

    >>> build_world("riverswim:states=8").name
    'riverswim:states=8,horizon=20'
    """
    imported = name.partition(":")[0].strip() == "gym"
    if PurePath(name).suffix.lower() in WORLD_FILES and not imported:
        from tacit.tabular.world import load_world

        return load_world(name)
    kind, options = split(name)
    entry = world_entry(kind)
    if imported:
        return _environment(entry, options)
    # What makes an environment takes, besides its own options, those of any environment.
    known = kind in worlds() or not options
    more = {} if known else world_entry("gym").options
    given = entry.read(options, more)
    later = {key: given.pop(key) for key in more.keys() - entry.options.keys() if key in given}
    return _world_of(entry.make(**given), later)


def world(what: Any, **options: Any) -> World:
    """A world of a text, see :func:`build_world`, or of an environment of Gymnasium; or itself.

    Options are as behind a colon of the text, or those of :func:`tacit.gym.from_gymnasium`.

    >>> round(world("gym:CliffWalking-v1").optimal_value, 6)
    -13.0
    """
    if not isinstance(what, str):
        return _world_of(what, options)
    more = ",".join(f"{name}={value}" for name, value in options.items())
    return build_world(f"{what}{',' if split(what)[1] else ':'}{more}" if more else what)


def _world_of(what: Any, options: Mapping[str, Any]) -> World:
    made: World = what
    if hasattr(what, "reset") and hasattr(what, "unwrapped"):
        made = world_entry("gym").make(what, **options)
    elif not hasattr(made, "simulate"):
        raise InvalidArgument(f"world must be a world, an environment or a text, got {what!r}")
    elif options:
        raise InvalidArgument(f"{', '.join(options)} is for environments, and {made.name} is none")
    return made


def _environment(entry: NamedMaker, text: str) -> World:
    """The world of an environment: its id, and options behind a comma or colon."""
    name, _, rest = re.sub(r":(?=\w+=)", ",", text, count=1).partition(",")
    if not name or "=" in name:
        raise InvalidArgument(f"gym:{text} must begin with an id, as gym:FrozenLake-v1,horizon=20")
    check_environment(name, rest)
    try:
        made: World = entry.make(name, **entry.read(rest))
    except (ImportError, LookupError, ValueError, AssertionError, AttributeError) as error:
        if isinstance(error, InvalidArgument):
            raise
        # What an environment says about its own arguments.
        raise InvalidArgument(f"no environment {name!r} with {rest!r}: {error!r}") from error
    return made


# Agents.


def agent_entry(name: str) -> NamedMaker:
    """The constructor of an agent's name; ``auto`` is the one that :mod:`tacit.auto` chooses."""
    known = plugged(AGENTS) | BUILT_IN | {"auto": _AUTO_TARGET}
    if (target := known.get(name) or target_of(name)) is not None:
        return NamedMaker(name, target, _GIVEN)
    raise _unknown("agent", name, [*known], "a class of yours, as my_file.py:MyAgent")


def _unknown(what: str, name: str, known: Sequence[str], besides: str) -> InvalidArgument:
    words = f"must be one of {', '.join(known)}{hint(name, known)}; or {besides}"
    return InvalidArgument(f"{what} is {name!r}, but {words}")


_BUDGET = {
    name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=usual)
    for name, usual in {"privacy": "joint", "epsilon": 1.0, "delta": 1e-6}.items()
}


@dataclass(frozen=True)
class AgentChoice:
    """An agent with its options, but without users, budget and seed."""

    text: str  # as it was written
    target: str  # ``module:class``
    options: Mapping[str, Any] = field(default_factory=dict)  # what the text sets of the class
    budget: Mapping[str, Any] = field(default_factory=dict)  # what it sets of privacy
    why: str = ""  # in words, where it was not named

    @property
    def make(self) -> Callable[..., Any]:
        """The constructor of its agents."""
        return NamedMaker(self.text, self.target).make

    def settled(self, spec: Any, privacy: Any, users: int | None = None) -> AgentChoice:
        """Itself; of ``auto`` the agent for a spec, a budget and users, with the reason."""
        if self.target != _AUTO_TARGET:
            return self
        from tacit.auto import choose

        chosen = choose(spec, privacy, users)
        name, options = split(chosen.agent)
        more = ",".join(filter(None, (options, split(self.text)[1])))
        return replace(choose_agent(f"{name}:{more}" if more else name), why=chosen.why)

    @property
    def offline(self) -> bool:
        """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
        offline = getattr(getattr(self.make, "algorithm", None), "offline", False)
        return bool(offline) and self.options.get("serve", "later") == "later"

    def build(self, spec: Any, users: int, privacy: Any, seed: int = 0, **serving: Any) -> Any:
        """The agent of one seed; that of its simulated noise follows from it.

        Args:
            spec: What is known of the world.
            users: How many users are declared.
            privacy: The trust model with its budget.
            seed: Of the agent.
            **serving: Further options of :func:`tacit.make_agent`.
        """
        given = {"users": users, "privacy": privacy, "seed": seed, **self.options, **serving}
        return self.make(spec, **given, noise_seed=noise_seed(seed))


def choose_agent(text: str) -> AgentChoice:
    """The agent of a text, as ``ucbvi:scale=0.5``; it may also set privacy, epsilon and delta."""
    kind, rest = split(text)
    entry = agent_entry(kind)
    values = entry.read(rest, _BUDGET)
    budget = {key: values.pop(key) for key in _BUDGET if key in values}
    return AgentChoice(text.strip(), entry.target, values, budget)
