"""Names of worlds and agents: ``name:key=value,key=value`` as a command line or a file has it.

The options of a name, their types and their defaults are those of the function or class behind it,
read from its signature; nothing is listed twice. Modules are imported when a name is used.

Besides the built-in names there are, for worlds, files that describe one (``mine.toml``,
``mine.json``) and Gymnasium's environments (``gym:FrozenLake-v1,horizon=20``); and for both, a
class or function of your own, by its module (``my_package.my_module.MyAgent:option=3``) or its file
(``my_file.py:MyAgent:option=3``). That is code: a text which stands in a file may not name it, see
:func:`tacit.imports.names_of`.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions
from pathlib import PurePath
from typing import Any, Literal

from tacit.core.algorithm import Algorithm
from tacit.core.constructors import constructor, hint
from tacit.core.world import World
from tacit.imports import check_environment, load, split, target_of
from tacit.options import Option, option_of
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import noise_seed

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

AUTO = "auto"
"""Name of the agent that :mod:`tacit.auto` chooses."""

AGENTS, WORLDS = "tacit.agents", "tacit.worlds"
"""Groups of entry points: another package names its own agents and worlds in them."""

GYM = ("gym", "gymnasium")
"""Beginnings of the names of imported environments; the first is the one in their names."""

WORLD_FILES = (".toml", ".json")
"""Endings of the files that describe a world."""

_FAMILIES = ("tabular", "linear", "mixture", "lq", "continuous")
_AUTO_TARGET = "tacit.auto:agent"
# What a run decides, and not the text that names an agent; and the store, which is of real users.
_GIVEN = ("spec", "users", "privacy", "seed", "noise_seed", "store", "name")


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
    def options(self) -> dict[str, Option]:
        """Options that a text can set, by name, in the order of the signature."""
        make = self.make
        function = make.__init__ if inspect.isclass(make) else make
        found = [
            option_of(function, parameter)
            for parameter in inspect.signature(make).parameters.values()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        ]
        return {o.name: o for o in found if o.kind and o.name not in self.given}

    @property
    def takes_more(self) -> bool:
        """Whether it takes options that its signature does not name."""
        parameters = inspect.signature(self.make).parameters.values()
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)

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
        values, last = dict[str, str](), ""
        for part in text.split(",") if text else ():
            key, equals, value = (piece.strip() for piece in part.partition("="))
            unknown = key not in options and not self.takes_more
            if last and ":" in values[last] and unknown:
                values[last] += f",{part.strip()}"
                continue
            if not equals or not key:
                raise InvalidArgument(f"{part!r} in {self.name}:{text} must be key=value")
            if unknown:
                raise InvalidArgument(
                    f"{self.name} has no option {key!r}{hint(key, options)}; it takes {allowed}"
                )
            if key in values:
                raise InvalidArgument(f"{key} is given twice in {self.name}:{text}")
            values[key], last = value, key
        missing = [o.name for o in options.values() if o.required and o.name not in values]
        if missing:
            raise InvalidArgument(
                f"{self.name} needs {', '.join(missing)}; it takes {allowed}, as in "
                f"{self.name}:{','.join(f'{name}=...' for name in missing)}"
            )
        guessed = {key: Option(key, Any, None) for key in values}
        return {k: (guessed | options)[k].read(v, self.name) for k, v in values.items()}


def _plugged(group: str) -> dict[str, str]:
    """Targets by name of what installed packages bring; what lies in a current folder is not."""
    found = distributions(path=[path for path in sys.path if path not in ("", os.getcwd())])
    points = [point for packet in found for point in packet.entry_points.select(group=group)]
    return {point.name: point.value for point in reversed(points)}  # the first, as imports are


def _made(what: str, make: Callable[..., Any], *given: Any, **options: Any) -> Any:
    """Anything can be the dotted path of something: what is no world or agent fails somehow."""
    try:
        return make(*given, **options)
    except TypeError as error:
        raise InvalidArgument(f"{what} cannot be made: {error}") from error


# Worlds.


def _worlds() -> dict[str, str]:
    """Targets by name of all worlds that have one."""
    modules = [f"tacit.{family}.worlds" for family in _FAMILIES]
    own = [(name, m) for m in modules for name in importlib.import_module(m).WORLDS]
    return _plugged(WORLDS) | {name: f"{module}:{name}" for name, module in own}


def world_names() -> list[str]:
    """Names of the built-in worlds, and of those of other packages."""
    return sorted(_worlds())


def world_entry(name: str) -> NamedMaker:
    """The maker of a world's name."""
    if name in GYM:
        return NamedMaker("gym", "tacit.gym:from_gymnasium", ("env_or_id",))
    if (target := _worlds().get(name) or target_of(name)) is not None:
        return NamedMaker(name, target)
    raise InvalidArgument(
        f"world is {name!r}, but must be one of {', '.join(names := world_names())}"
        f"{hint(name, names)}; or a .toml or .json file, gym:ID for an environment of Gymnasium, "
        "or a function or class of yours that makes one, as my_file.py:make"
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
        return _environment(entry, options)
    more = dict[str, Option]()
    if options and kind not in _worlds() and not entry.takes_more:
        # What makes an environment takes, besides its own options, those of any environment.
        more = {k: o for k, o in world_entry("gym").options.items() if k not in entry.options}
    given = entry.read(options, more)
    later = {key: given.pop(key) for key in more if key in given}
    made = _made(f"world {name!r}", entry.make, **given)
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
        made = world_entry("gym").make(what, **options)
    elif not hasattr(made, "simulate"):
        raise InvalidArgument(mistake)
    elif options:
        raise InvalidArgument(f"{', '.join(options)} is for environments, and {made.name} is none")
    return made


def _environment(entry: NamedMaker, text: str) -> World:
    """The world of an environment: its id, then options, behind a comma or colon."""
    name, _, rest = re.sub(r":(?=\w+=)", ",", text, count=1).partition(",")
    if not name or "=" in name:
        raise InvalidArgument(
            f"gym:{text} must begin with the environment's id, as in gym:FrozenLake-v1,horizon=20"
        )
    check_environment(name, rest)
    try:
        made: World = entry.make(name, **entry.read(rest))
    except InvalidArgument:
        raise
    except (ImportError, LookupError, ValueError, AssertionError, AttributeError) as error:
        # What an environment says about its own arguments.
        raise InvalidArgument(f"no environment {name!r} with {rest!r}: {error!r}") from error
    return made


# Agents.


def agent_names() -> list[str]:
    """Names of the built-in agents, and of those of other packages."""
    return sorted({*BUILT_IN, *_plugged(AGENTS)})


def agent_entry(name: str) -> NamedMaker:
    """The constructor of an agent's name."""
    known = _plugged(AGENTS) | BUILT_IN | {AUTO: _AUTO_TARGET}
    if (target := known.get(name) or target_of(name)) is not None:
        return NamedMaker(name, target, _GIVEN)
    raise InvalidArgument(
        f"agent is {name!r}, but must be {AUTO} or one of {', '.join(names := agent_names())}"
        f"{hint(name, names)}; or a class of yours, as my_file.py:MyAgent or my_module.MyAgent"
    )


_MODELS = Literal["joint", "local", "none"]
_BUDGET = {
    name: Option(name, kind, None)
    for name, kind in {"privacy": _MODELS, "epsilon": float, "delta": float}.items()
}


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

    @property
    def make(self) -> Callable[..., Any]:
        """The constructor of its agents."""
        return NamedMaker(self.text, self.target).make

    def settled(self, spec: Any, users: int, privacy: Any) -> AgentChoice:
        """Itself; of :data:`AUTO` the agent for a spec and a budget, with the reason."""
        if self.target != _AUTO_TARGET:
            return self
        from tacit.auto import choose

        chosen = choose(spec, users, privacy)
        name, options = split(chosen.agent)
        more = ",".join(filter(None, (options, split(self.text)[1])))
        return replace(choose_agent(f"{name}:{more}" if more else name), why=chosen.why)

    @property
    def offline(self) -> bool:
        """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
        algorithm = getattr(self.make, "algorithm", None)
        offline: bool = getattr(algorithm, "offline", False)
        return offline and self.options.get("serve", "nobody") == "nobody"

    def build(self, spec: Any, users: int, privacy: Any, seed: int = 0, **serving: Any) -> Any:
        """The agent of one seed, with simulated noise.

        Args:
            spec: What is known of the world.
            users: How many users are declared.
            privacy: The trust model with its budget.
            seed: Of the agent; that of its noise follows from it, as in runs of several seeds.
            **serving: Further options of :func:`tacit.make_agent`.
        """
        given = {"users": users, "privacy": privacy, "seed": seed, **self.options, **serving}
        given["noise_seed"] = noise_seed(seed)
        made = _made(f"agent {self.text!r}", self.make, spec, **given)
        if not hasattr(made, "learn"):
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
