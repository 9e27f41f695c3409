"""Names of worlds and agents: ``name:key=value,key=value`` as a command line or a file has it.

The options of a name, their types and their defaults are those of the function or class behind it,
read from its signature; nothing is listed twice. Modules are imported when a name is used.

Besides the built-in names there are, for worlds, files that describe one (``mine.toml``,
``mine.json``) and Gymnasium's environments (``gym:FrozenLake-v1,horizon=20``); and for both, the
dotted path of what makes them (``my_package.my_module.MyAgent:option=3``).
"""

from __future__ import annotations

import collections.abc
import contextlib
import difflib
import importlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import PurePath
from typing import Any, Literal, TypeVar, Union

from tacit.core.kinds import maker
from tacit.core.world import World
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.agents import AnyAgent
from tacit.simulation.seeds import noise_seed

T = TypeVar("T")

_WORLDS = {
    "cartpole": "tacit.continuous.worlds:cartpole",
    "deep_sea": "tacit.tabular.worlds:deep_sea",
    "dosing": "tacit.lq.worlds:dosing",
    "double_integrator": "tacit.lq.worlds:double_integrator",
    "grid": "tacit.tabular.worlds:grid",
    "hard_mixture": "tacit.mixture.worlds:hard_mixture",
    "health_coach": "tacit.tabular.worlds:health_coach",
    "keyboard": "tacit.mixture.worlds:keyboard",
    "line": "tacit.continuous.worlds:line",
    "mixture_of_models": "tacit.mixture.worlds:mixture_of_models",
    "plane": "tacit.continuous.worlds:plane",
    "random_mdp": "tacit.tabular.worlds:random_mdp",
    "random_system": "tacit.lq.worlds:random_system",
    "riverswim": "tacit.tabular.worlds:riverswim",
    "simplex": "tacit.linear.worlds:simplex",
    "trap": "tacit.continuous.worlds:trap",
    "two_state": "tacit.linear.worlds:two_state",
}
_AGENTS = {
    "adaptive_lsvi_ucb": "tacit.linear.adaptive_lsvi_ucb:AdaptiveLSVIUCB",
    "batched_lsvi_ucb": "tacit.linear.batched_lsvi_ucb:BatchedLSVIUCB",
    "certainty_equivalence": "tacit.lq.certainty_equivalence:CertaintyEquivalence",
    "deep_q": "tacit.continuous.deep_q:DeepQ",
    "fitted_functional_q": "tacit.continuous.fitted_functional_q:FittedFunctionalQ",
    "functional_q": "tacit.continuous.functional_q:FunctionalQ",
    "input_perturbation": "tacit.continuous.input_perturbation:InputPerturbation",
    "ldp_ucrl_vtr": "tacit.mixture.ldp_ucrl_vtr:LDPUCRLVTR",
    "ldpob": "tacit.tabular.ldpob:LDPOB",
    "linopt_po": "tacit.mixture.linopt_po:LinOptPO",
    "linopt_vi": "tacit.mixture.linopt_vi:LinOptVI",
    "lsvi_ucb": "tacit.linear.lsvi_ucb:LSVIUCB",
    "lsvi_ucb_plus_plus": "tacit.linear.lsvi_ucb_plus_plus:LSVIUCBPlusPlus",
    "ofu": "tacit.lq.ofu:OFU",
    "output_perturbation": "tacit.continuous.output_perturbation:OutputPerturbation",
    "printed_functional_q": "tacit.continuous.printed_functional_q:PrintedFunctionalQ",
    "private_policy_evaluation": "tacit.continuous.policy_evaluation:PolicyEvaluation",
    "pucb": "tacit.tabular.pucb:PUCB",
    "ucbpo": "tacit.tabular.ucbpo:UCBPO",
    "ucbvi": "tacit.tabular.ucbvi:UCBVI",
}

GYM = ("gym", "gymnasium")
"""What the names of imported environments begin with; the second is the one in their names."""

WORLD_FILES = (".toml", ".json")
"""How the names of files that describe a world end."""

# What a run decides, and not the text that names an agent; and files that belong to real users.
_GIVEN = ("spec", "users", "privacy", "seed", "noise_seed", "ledger", "autosave")
_LARGEST_DIGITS = 18


@dataclass(frozen=True)
class Option:
    """One option of a world or an agent.

    Attributes:
        name: its key.
        annotation: its type.
        default: its value if not given; ``inspect.Parameter.empty`` if it must be given.
    """

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def kind(self) -> str:
        """What it may be, in words."""
        return _words(self.annotation)

    @property
    def shown(self) -> str:
        """The default as a text that stands for it; empty if there is none."""
        return "" if self.required else _text(self.default)

    def read(self, text: str, owner: str) -> Any:
        """The value that a text stands for.

        Raises:
            InvalidArgument: It is not of this option's type; the message names all of it.
        """
        try:
            return _convert(self.annotation, text)
        except _Unfit:
            raise InvalidArgument(
                f"{self.name} of {owner} is {text!r}, but must be {self.kind}"
            ) from None

    def __str__(self) -> str:
        return self.name if self.required else f"{self.name}={self.shown}"


@dataclass(frozen=True)
class Entry:
    """A name and what it stands for.

    Attributes:
        name: as it is written.
        target: ``module:attribute`` of the function or class.
        given: parameters that are no options.
    """

    name: str
    target: str
    given: tuple[str, ...] = ()

    @property
    def make(self) -> Callable[..., Any]:
        """The function or class, imported.

        Raises:
            InvalidArgument: It cannot be imported.
        """
        module, _, attribute = self.target.partition(":")
        try:
            made: Callable[..., Any] = maker(getattr(importlib.import_module(module), attribute))
        except (ImportError, AttributeError) as error:
            raise InvalidArgument(f"{self.name!r} cannot be imported: {error}") from error
        if not callable(made):
            raise InvalidArgument(f"{self.name!r} must be a class or a function, got {made!r}")
        return made

    @property
    def options(self) -> dict[str, Option]:
        """What can be set, by name, in the order of the signature."""
        found: dict[str, Option] = {}
        for function, parameter in self._parameters():
            plain = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            if not plain or parameter.name in (*self.given, *found):
                continue
            annotation = _annotation(function, parameter)
            if _settable(annotation):
                found[parameter.name] = Option(parameter.name, annotation, parameter.default)
        return found

    @property
    def takes_more(self) -> bool:
        """Whether it passes options on that its signature does not name."""
        last = [parameter for _, parameter in self._parameters()][-1:]
        return any(parameter.kind is parameter.VAR_KEYWORD for parameter in last)

    def _parameters(self) -> list[tuple[Callable[..., Any], inspect.Parameter]]:
        """What it can be called with, each with the function that says so.

        A constructor that passes ``**options`` on to its base class takes what that one takes.
        """
        make = self.make
        functions = [make]
        if inspect.isclass(make):
            constructors = [vars(base).get("__init__") for base in make.__mro__[:-1]]
            functions = [function for function in constructors if inspect.isfunction(function)]
        found = []
        for function in functions:
            parameters = list(inspect.signature(function).parameters.values())
            passes = [p for p in parameters if p.kind is p.VAR_KEYWORD]
            start = 1 if inspect.isclass(make) else 0  # without self
            found += [(function, p) for p in parameters[start:] if p not in passes]
            if not passes:
                return found
        return found + [(function, p) for p in passes] if functions else found

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
        and is no option here belongs to that value.

        Args:
            text: what is behind the name's colon.
            extra: options that are allowed besides.

        Raises:
            InvalidArgument: A key is unknown, twice or missing, or a value of another type.
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
                    f"{self.name} has no option {key!r}{_hint(key, options)}; it takes {allowed}"
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


# Worlds.


def world_names() -> list[str]:
    """The built-in worlds and those that were registered."""
    return sorted(_WORLDS)


def register_world(name: str, target: str) -> None:
    """Gives a world a name, for this process.

    Args:
        name: a word.
        target: ``module:function`` that makes it; it must be importable.
    """
    _WORLDS[_checked_name(name)] = target


def world_entry(name: str) -> Entry:
    """What a world's name stands for.

    Raises:
        InvalidArgument: There is no such world.
    """
    if name in GYM:
        return Entry(name, "tacit.tabular.gym:from_gymnasium", ("env_or_id",))
    if name in _WORLDS:
        return Entry(name, _WORLDS[name])
    if (target := _dotted(name)) is not None:
        return Entry(name, target)
    raise InvalidArgument(
        f"world is {name!r}, but must be one of {', '.join(world_names())}{_hint(name, _WORLDS)}; "
        "or a .toml or .json file, or gym:ID for an environment of Gymnasium"
    )


def build_world(name: str) -> World:
    """The world of a text.

    Args:
        name: as ``riverswim:states=6,horizon=20``, ``mine.toml``, ``gym:FrozenLake-v1,horizon=20``
            or ``my_module.my_world:size=3``. The names that worlds have are such texts.

    Raises:
        InvalidArgument: It stands for nothing; the message says what is allowed.
        OSError: The file cannot be read.

    >>> build_world("riverswim:states=8").name
    'riverswim:states=8,horizon=20'
    >>> build_world("riverswim:depth=8")
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: riverswim has no option 'depth'; it takes states=6, \
horizon=20
    """
    imported = name.partition(":")[0] in GYM
    if PurePath(name).suffix.lower() in WORLD_FILES and not imported:
        from tacit.tabular.world import load_world

        return load_world(name)
    kind, options = _parts(name)
    entry = world_entry(kind)
    if imported:
        return _imported(entry, options)
    given = entry.read(options)
    with _refused(f"world {name!r}", own=kind in _WORLDS):
        world: World = entry.make(**given)
    if not hasattr(world, "simulate"):
        raise InvalidArgument(f"world is {name!r}, which makes no world, but {world!r}")
    return world


@contextlib.contextmanager
def _refused(what: str, own: bool) -> Iterator[None]:
    """Anything can be the dotted path of something: what is no world or agent fails somehow."""
    try:
        yield
    except TypeError as error:
        if own:
            raise
        raise InvalidArgument(f"{what} cannot be made: {error}") from error


def _imported(entry: Entry, text: str) -> World:
    """An environment: its id comes first, or as ``id=``."""
    first, _, rest = text.partition(",")
    key, equals, value = first.partition("=")
    if not first or (equals and key != "id"):
        raise InvalidArgument(
            f"{entry.name}:{text} must begin with the environment's id, as in "
            "gym:FrozenLake-v1,horizon=20"
        )
    name = value if equals else first
    try:
        entry = _entry_of_environment(entry, name)
        options = entry.read(rest)
        world: World = entry.make(name, **options)
    except InvalidArgument:
        raise
    except (ImportError, LookupError, ValueError, AssertionError) as error:
        # What an environment says about its own arguments.
        raise InvalidArgument(f"no environment {name!r} with {rest!r}: {error!r}") from error
    return world


def _entry_of_environment(entry: Entry, name: str) -> Entry:
    """The family that an environment belongs to: finite, or with vectors for states."""
    import gymnasium

    try:
        made = gymnasium.make(name)
    except gymnasium.error.Error as error:
        raise InvalidArgument(f"no environment {name!r}: {error}") from error
    with contextlib.closing(made) as env:
        vectors = isinstance(env.observation_space, gymnasium.spaces.Box)
    if not vectors:
        return entry
    return Entry(entry.name, "tacit.continuous.gym:from_gymnasium", entry.given)


# Agents.


def agent_names() -> list[str]:
    """The built-in agents and those that were registered."""
    return sorted(_AGENTS)


def register_agent(name: str, target: str) -> None:
    """Gives an agent a name, for this process.

    Args:
        name: a word.
        target: ``module:class``; called with the spec, ``users=``, ``privacy=``, ``seed=``,
            ``noise_seed=`` and its options. It must be importable in other processes too.
    """
    _AGENTS[_checked_name(name)] = target


def agent_entry(name: str) -> Entry:
    """What an agent's name stands for.

    Raises:
        InvalidArgument: There is no such agent.
    """
    if name in _AGENTS:
        return Entry(name, _AGENTS[name], _GIVEN)
    if (target := _dotted(name)) is not None:
        return Entry(name, target, _GIVEN)
    raise InvalidArgument(
        f"agent is {name!r}, but must be one of {', '.join(agent_names())}{_hint(name, _AGENTS)}; "
        "or the dotted path of a class, as my_module.MyAgent"
    )


_BUDGET = {
    option.name: option
    for option in (
        Option("privacy", Literal["joint", "local", "none"], None),
        Option("epsilon", float, None),
        Option("delta", float, None),
        Option("sampler", Literal["floating-point", "exact"], None),
    )
}


@dataclass(frozen=True)
class AgentChoice:
    """An agent with its options, but without users, budget and seed.

    Attributes:
        text: as it was written.
        target: ``module:class``.
        options: what the text sets of the class.
        budget: what the text sets of ``privacy``, ``epsilon``, ``delta`` and ``sampler``, so that
            agents under different models can be compared.
    """

    text: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    budget: Mapping[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> bool:
        """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
        return bool(getattr(Entry(self.text, self.target).make, "batch", False))

    def describe(self, users: int, privacy: Any) -> dict[str, Any]:
        """The description that :func:`tacit.simulation.seeds.run_seeds` makes agents from."""
        return {"make": self.target, "users": users, "privacy": privacy, **self.options}

    def build(self, spec: Any, users: int, privacy: Any, seed: int = 0) -> AnyAgent:
        """The agent of one seed, the same as in a run of several; its noise is simulated."""
        make = Entry(self.text, self.target).make
        own = self.text.partition(":")[0] in _AGENTS
        with _refused(f"agent {self.text!r}", own=own):
            made: AnyAgent = make(
                spec,
                users=users,
                privacy=privacy,
                seed=seed,
                noise_seed=noise_seed(seed),
                **self.options,
            )
        if not own and not hasattr(made, "learn"):
            raise InvalidArgument(f"agent is {self.text!r}, which makes no agent, but {made!r}")
        return made


def choose_agent(text: str) -> AgentChoice:
    """The agent of a text, as ``ucbvi`` or ``ucbvi:stationary=true,bonus=theory``.

    Besides the agent's own options a text may set ``privacy``, ``epsilon``, ``delta`` and
    ``sampler``.

    Raises:
        InvalidArgument: It stands for nothing; the message says what is allowed.
    """
    kind, rest = _parts(text)
    entry = agent_entry(kind)
    values = entry.read(rest, extra=_BUDGET)
    return AgentChoice(
        text=text.strip(),
        target=entry.target,
        options={key: value for key, value in values.items() if key not in _BUDGET},
        budget={key: value for key, value in values.items() if key in _BUDGET},
    )


# Texts.


def whole_number(name: str, text: str, least: int = 1) -> int:
    """A whole number, also as ``1e6`` or ``1_000_000``.

    >>> whole_number("users", "1e6"), whole_number("users", "2.5e3")
    (1000000, 2500)
    """
    try:
        value = _whole(text)
    except _Unfit:
        value = least - 1
    if value < least:
        raise InvalidArgument(
            f"{name} is {text!r}, but must be a whole number from {least} to below "
            f"1e{_LARGEST_DIGITS}, as 1000 or 1e6"
        )
    return value


def number(name: str, text: str) -> float:
    """A finite number.

    >>> number("epsilon", "1e-6")
    1e-06
    """
    try:
        return _number(text)
    except _Unfit:
        raise InvalidArgument(f"{name} is {text!r}, but must be a number, as 0.1 or 1e-6") from None


def _parts(text: str) -> tuple[str, str]:
    name, colon, rest = text.strip().partition(":")
    if colon and not rest:
        raise InvalidArgument(f"{text!r} has a colon, but no options behind it")
    return name.strip(), rest.strip()


def _checked_name(name: str) -> str:
    if not name.isidentifier() or name in GYM:
        raise InvalidArgument(f"name is {name!r}, but must be a word that is still free")
    return name


def _dotted(name: str) -> str | None:
    """``module.attribute`` as a target."""
    module, dot, attribute = name.rpartition(".")
    parts = [*module.split("."), attribute]
    return f"{module}:{attribute}" if dot and all(p.isidentifier() for p in parts) else None


def _hint(name: str, known: collections.abc.Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f" (did you mean {near[0]!r}?)" if near else ""


# Types.


class _Unfit(Exception):
    """A text that is not of the type."""


def _annotation(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """A parameter's type; what cannot be resolved is judged by the default."""

    def holder() -> None: ...

    # One at a time: a type that is imported for type checkers only must not hide the others.
    holder.__annotations__ = {"value": parameter.annotation}
    try:
        resolved = typing.get_type_hints(holder, getattr(function, "__globals__", {}))["value"]
    except (NameError, TypeError, AttributeError, SyntaxError):
        resolved = parameter.empty
    if resolved is not parameter.empty:
        return resolved
    default = parameter.default
    return type(default) if isinstance(default, (bool, int, float, str)) else Any


def _members(annotation: Any) -> list[Any]:
    """The parts of a union that a text can stand for, the strictest first."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        parts = [part for a in typing.get_args(annotation) for part in _members(a)]
    else:
        parts = [annotation]
    known = [part for part in parts if _rank(part) is not None]
    return sorted(known, key=lambda part: _rank(part) or 0)


def _rank(annotation: Any) -> int | None:
    order = (None, type(None), bool, int, float)
    if annotation in order:
        return order.index(annotation)
    if typing.get_origin(annotation) is Literal:
        return 0
    if typing.get_origin(annotation) in (tuple, collections.abc.Sequence, list):
        return 6
    return {str: 7, Any: 8}.get(annotation)


def _settable(annotation: Any) -> bool:
    return any(part not in (None, type(None)) for part in _members(annotation))


def _convert(annotation: Any, text: str) -> Any:
    for part in _members(annotation):
        try:
            return _convert_one(part, text)
        except _Unfit:
            continue
    raise _Unfit


def _convert_one(part: Any, text: str) -> Any:
    simple: dict[Any, Callable[[str], Any]] = {
        type(None): _none,
        bool: _boolean,
        int: _whole,
        float: _number,
        str: str,
        Any: _guess,
    }
    if part in simple:
        return simple[part](text)
    if typing.get_origin(part) is Literal:
        return _one_of({_text(value): value for value in typing.get_args(part)}, text)
    items = text.split(":")
    kinds = typing.get_args(part)
    if typing.get_origin(part) is not tuple or (len(kinds) == 2 and kinds[1] is Ellipsis):
        return tuple(_convert(kinds[0], item) for item in items)
    if len(kinds) != len(items):
        raise _Unfit
    return tuple(_convert(kind, item) for kind, item in zip(kinds, items, strict=True))


def _one_of(allowed: Mapping[str, T], text: str) -> T:
    if text not in allowed:
        raise _Unfit
    return allowed[text]


def _none(text: str) -> None:
    _one_of({"none": None}, text.lower())


def _boolean(text: str) -> bool:
    return _one_of({"true": True, "false": False}, text.lower())


def _whole(text: str) -> int:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise _Unfit from None
    # The size first: 1e999999999 is a valid decimal, but as an integer it fills the memory.
    if not value.is_finite() or value.adjusted() >= _LARGEST_DIGITS or value != int(value):
        raise _Unfit
    return int(value)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _Unfit from None
    if not math.isfinite(value):
        raise _Unfit
    return value


def _guess(text: str) -> Any:
    for read in (_none, _boolean, _integer, _number):
        try:
            return read(text)
        except _Unfit:
            continue
    return text


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise _Unfit from None


def _words(annotation: Any) -> str:
    """A type in words."""
    return " or ".join(dict.fromkeys(_words_one(part) for part in _members(annotation)))


def _words_one(part: Any) -> str:
    simple = {
        type(None): "none",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        Any: "a value",
    }
    if part in simple:
        return simple[part]
    kinds = typing.get_args(part)
    if typing.get_origin(part) is Literal:
        return " or ".join(_text(value) for value in kinds)
    if len(kinds) == 1 or kinds[1] is Ellipsis:
        return f"a list as 1:2:3, each {_words(kinds[0])}"
    return f"{len(kinds)} values as {':'.join(str(i) for i in range(len(kinds)))}"


def _text(value: Any) -> str:
    """A value as a text that stands for it."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ":".join(map(_text, value))
    return value if isinstance(value, str) else repr(value)
