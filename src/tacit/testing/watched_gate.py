"""What passes the gate while an agent runs, written down or played back; for ``check_agent``."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.curator import Curator, Release, Stream
from tacit.privacy.errors import require
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.store.store import Store


@dataclass(frozen=True, eq=False)
class Draw:
    """What the sampler was asked for, and drew: the scale in steps, or how many were added up."""

    pure: bool
    scale: float
    values: NDArray[Any]
    seeded: bool


@dataclass(frozen=True, eq=False)
class Passage:
    """One release: who asked for what, about whom, and what came out."""

    gate: Curator[Any]
    stream: Stream | None
    statistic: Statistic
    block: int
    options: str
    release: Release
    drawn: tuple[Draw, ...] = ()

    @property
    def request(self) -> tuple[Any, ...]:
        """All that must not depend on anybody's data, given the releases before."""
        return (self.statistic.fingerprint, self.block, self.options, self.release.users)


@dataclass(eq=False)
class WatchedGate:
    """Watches all curators; plays ``script`` back in place of what they release.

    Blocks of a curator are numbered as they are asked for the first time.
    """

    script: Sequence[Release] = ()
    passages: list[Passage] = field(default_factory=list)
    blocks: dict[tuple[Curator[Any], int], Block] = field(default_factory=dict)
    inside: bool = False
    drawn: list[Draw] = field(default_factory=list)

    @contextlib.contextmanager
    def open(self) -> Iterator[WatchedGate]:
        """Replaces the methods of all curators and streams for a while."""
        originals = [(cls, "answer", cls.__dict__["answer"]) for cls in _that_answer()]
        originals += [(Noise, name, getattr(Noise, name)) for name in ("steps", "laplace_sum")]
        try:
            for cls, name, original in originals:
                watcher = self._out if name == "answer" else self._drawing
                setattr(cls, name, watcher(original))
            yield self
        finally:
            for cls, name, original in originals:
                setattr(cls, name, original)

    def _drawing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def draw(noise: Noise, *asked: Any) -> Any:
            values = original(noise, *asked)
            # Law, scale and number; or of how many Laplace variables the sum.
            pure, scale = asked[:2] if len(asked) == 3 else (True, asked[0])
            seeded = noise._rng is not None
            self.drawn.append(Draw(bool(pure), float(scale), np.array(values), seeded))
            return values

        return draw

    def _out(self, original: Callable[..., Release]) -> Callable[..., Release]:
        @wraps(original)
        def answer(gate: Curator[Any] | Stream, *asked: Any, **options: Any) -> Release:
            # One that asks another one, of whom it inherits, makes one release.
            if self.inside:
                return original(gate, *asked, **options)
            self.inside = True
            self.drawn.clear()
            try:
                result = original(gate, *asked, **options)
            finally:
                self.inside = False
            if (place := len(self.passages)) < len(self.script):
                result = self.script[place]
            curator, stream = (gate._curator, gate) if isinstance(gate, Stream) else (gate, None)
            statistic = asked[0] if stream is None else stream.statistic
            number, how = self._number(curator, asked[-1]), repr(options)
            drawn = (*self.drawn,)
            self.passages.append(Passage(curator, stream, statistic, number, how, result, drawn))
            return result

        return answer

    def _number(self, gate: Curator[Any], raw: Block) -> int:
        """Of a block, which is the next one if it was not asked before."""
        mine = [number for curator, number in self.blocks if curator is gate]
        here = [number for number in mine if self.blocks[gate, number] is raw]
        number = here[0] if here else len(mine)
        self.blocks[gate, number] = raw
        return number

    def contributions(self, passage: Passage) -> Floats:
        """The vectors of the users of the block that was asked."""
        return passage.statistic.contributions(self.blocks[passage.gate, passage.block])


def _that_answer() -> list[type]:
    """Every class of curators and streams that answers in a way of its own."""
    found: list[type] = []
    waiting: list[type] = [Curator, Stream]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        method = cls.__dict__.get("answer")
        if method is not None and not getattr(method, "__isabstractmethod__", False):
            found.append(cls)
    return found


# What is public of an agent, bit for bit.


def digest_of(value: object) -> str:
    """A hash of everything in a value, arrays to the last bit."""
    digest = hashlib.sha256()
    _feed(digest, value, set())
    return digest.hexdigest()


def _feed(digest: Any, value: object, above: set[int]) -> None:
    """Values, arrays, and the public attributes of objects; gates, stores and the like are not."""
    digest.update(type(value).__name__.encode())
    if isinstance(value, (str, bytes, int, float, complex, np.generic, type(None))):
        digest.update(repr(value).encode())
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif callable(value) or isinstance(value, (Curator, Stream, Store, np.random.Generator)):
        return
    elif id(value) not in above:
        if isinstance(value, Mapping):
            items = [(repr(key), item) for key, item in value.items()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            items = [("", item) for item in value]
        else:
            items = _attributes(value)
        for name, item in items:
            digest.update(name.encode())
            _feed(digest, item, above | {id(value)})


def _attributes(value: object) -> list[tuple[str, object]]:
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
    else:
        names = sorted(getattr(value, "__dict__", {}))
    return [(name, getattr(value, name)) for name in names if not name.startswith("_")]


_NAMES = {"policy", "greedy_policy", "block_users", "form", "releases", "users", "state"}
_NAMES |= {"record", "guarantee"}


def snapshot(agent: Any) -> dict[str, str]:
    """All that is public of an agent and its algorithm, by name."""
    public = {name: digest_of(getattr(agent, name)) for name in sorted(_NAMES)}
    # What is computed when it is asked for may not be yet; of a run's seed its store knows.
    kind, shown = type(agent.algorithm), dict(_attributes(agent.algorithm))
    once = {n for n in shown if isinstance(getattr(kind, n, None), cached_property)}
    return public | {n: digest_of(v) for n, v in shown.items() if n not in {"problem", *once}}


# Where in memory an object is says nothing of anybody.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def on_show(agent: Any) -> dict[str, str]:
    """What else whoever holds the agent can see: its texts and its public properties."""
    found: dict[str, str] = {}
    for part in (agent, agent.algorithm):
        for text in (repr, str):
            shown = f"{text.__name__} of {type(part).__name__}"
            found[shown] = _ADDRESS.sub("", text(part))
        named = {n: v for cls in type(part).__mro__ for n, v in vars(cls).items()}
        kinds = property, cached_property
        for name in sorted(n for n, v in named.items() if isinstance(v, kinds) and n[0] != "_"):
            if name in _NAMES:  # a snapshot has it
                continue
            try:
                found[name] = digest_of(getattr(part, name))
            except Exception as error:
                found[name] = repr(error)
    return found


def difference(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """What differs between two snapshots."""
    return [name for name in first if first[name] != second.get(name)]


def require_same(
    first: dict[str, str], second: dict[str, str], where: str, how: str = "differ"
) -> None:
    """Fails with the names of what differs between two snapshots."""
    differing = difference(first, second)
    require(not differing, f"{where} {', '.join(differing)} {how}")


# Libraries that talk of themselves.
_OTHERS = ("numba", "matplotlib", "PIL", "asyncio")


@contextlib.contextmanager
def overheard() -> Iterator[list[str]]:
    """All that is logged, at any level, warned of, or printed meanwhile, on either stream."""
    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name.split(".")[0] not in _OTHERS:
                said.append(f"{record.name}: {record.getMessage()}")

    def warned(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        said.append(f"{category.__name__}: {message}")

    root, listener, printed = logging.getLogger(), Listener(), io.StringIO()
    level, quiet = root.level, [logging.getLogger(name) for name in _OTHERS]
    levels = [logger.level for logger in quiet]
    shown, warnings.showwarning = warnings.showwarning, warned
    root.addHandler(listener)
    root.setLevel(logging.DEBUG)
    try:
        for logger in quiet:
            logger.setLevel(max(logger.level, logging.WARNING))
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield said
    finally:
        warnings.showwarning = shown
        root.removeHandler(listener)
        root.setLevel(level)
        for logger, before in zip(quiet, levels, strict=True):
            logger.setLevel(before)
        if printed.getvalue():
            said.append(printed.getvalue())


_NOW = 1_700_000_000
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


@contextlib.contextmanager
def frozen_clock() -> Iterator[None]:
    """All clocks of :mod:`time` stand still for a while."""
    with contextlib.ExitStack() as stack:
        for name in _CLOCKS:
            if hasattr(time, name):
                stack.enter_context(mock.patch.object(time, name, return_value=float(_NOW)))
                stack.enter_context(
                    mock.patch.object(time, f"{name}_ns", return_value=_NOW * 10**9)
                )
        yield
