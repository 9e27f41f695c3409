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
from tacit.privacy.curators.entries import Entries
from tacit.privacy.errors import require
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic


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

    gate: Curator
    stream: Stream | None
    statistic: Statistic
    blocks: tuple[int, ...]
    options: str
    release: Release
    drawn: tuple[Draw, ...] = ()

    @property
    def request(self) -> tuple[Any, ...]:
        """All that must not depend on anybody's data, given the releases before."""
        return (self.statistic.fingerprint, self.blocks, self.options, self.release.users)


@dataclass(eq=False)
class WatchedGate:
    """Watches all curators; plays ``script`` back in place of what they release."""

    script: Sequence[Release] = ()
    passages: list[Passage] = field(default_factory=list)
    blocks: dict[tuple[Curator, int], Block] = field(default_factory=dict)
    inside: bool = False
    drawn: list[Draw] = field(default_factory=list)

    @contextlib.contextmanager
    def open(self) -> Iterator[WatchedGate]:
        """Replaces the methods of all curators and streams for a while."""
        originals: list[tuple[type, str, Any]] = [(Entries, "_join", Entries._join)]
        originals += [(cls, "release", cls.__dict__["release"]) for cls in _with_release()]
        watchers: dict[str, Callable[[Any], Any]] = {
            "_join": self._joining,
            "release": self._out,
            "steps": self._drawing,
            "laplace_sum": self._drawing,
        }
        originals += [(Noise, name, getattr(Noise, name)) for name in ("steps", "laplace_sum")]
        try:
            for cls, name, original in originals:
                setattr(cls, name, watchers[name](original))
            yield self
        finally:
            for cls, name, original in originals:
                setattr(cls, name, original)

    def _joining(self, original: Callable[..., int]) -> Callable[..., int]:
        @wraps(original)
        def join(curator: Curator, block: Block, ids: Any, keep: Callable[..., None]) -> int:
            def noted(number: int, admitted: Block) -> None:
                self.blocks[curator, number] = admitted
                keep(number, admitted)

            return original(curator, block, ids, noted)

        return join

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
        def release(gate: Curator | Stream, *args: Any, **options: Any) -> Release:
            # A stream may ask its curator for the release: it is one.
            if self.inside:
                return original(gate, *args, **options)
            self.inside = True
            self.drawn.clear()
            try:
                result = original(gate, *args, **options)
            finally:
                self.inside = False
            return self._write_down(gate, args, options, result)

        return release

    def _write_down(
        self,
        gate: Curator | Stream,
        args: tuple[Any, ...],
        options: dict[str, Any],
        result: Release,
    ) -> Release:
        curator = gate if isinstance(gate, Curator) else gate._curator
        if isinstance(gate, Stream):
            block = args[0] if args else options.get("block")
            statistic, stated = gate.statistic, f"stream {gate.name}"
        else:
            statistic = args[0] if args else options["statistic"]
            block, stated = options.get("block"), f"mu {options.get('mu')!r}"
        number = block if isinstance(block, int) else curator.entered - 1
        place = len(self.passages)
        if place < len(self.script):
            result = curator.last_release = self.script[place]
        stream = gate if isinstance(gate, Stream) else None
        self.passages.append(
            Passage(curator, stream, statistic, (number,), stated, result, (*self.drawn,))
        )
        return result

    def contributions(self, passage: Passage) -> dict[int, Floats]:
        """The vectors of the users of every block that was asked."""
        return {
            number: passage.statistic.contributions(self.blocks[passage.gate, number])
            for number in passage.blocks
        }


def _with_release() -> list[type]:
    """Every class of curators and streams that releases in a way of its own."""
    found: list[type] = []
    waiting: list[type] = [Curator, Stream]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        method = cls.__dict__.get("release")
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
    """Values, arrays, and the public attributes of objects; generators and gates are left out."""
    digest.update(type(value).__name__.encode())
    if isinstance(value, (str, bytes, int, float, complex, np.generic, type(None))):
        digest.update(repr(value).encode())
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    elif callable(value) or isinstance(value, (Curator, Stream, np.random.Generator)):
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


_NAMES = ("policy", "greedy_policy", "block_users", "form", "releases", "users")


def snapshot(agent: Any) -> dict[str, str]:
    """All that is public of an agent and its algorithm, by name."""
    public = {name: digest_of(getattr(agent, name)) for name in _NAMES}
    for part in _parts(agent):
        # Of a setting the seed may be another one: that of a resumed run comes from its save.
        shown = [pair for pair in _attributes(part) if pair[0] != "setting"]
        public |= {name: digest_of(value) for name, value in shown}
    return public


def _parts(agent: Any) -> list[Any]:
    """An agent, and who learns for it."""
    algorithm = getattr(agent, "algorithm", None)
    return [agent] if algorithm is None else [agent, algorithm]


# Where in memory an object is says nothing of anybody.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def on_show(agent: Any) -> dict[str, str]:
    """What else whoever holds the agent can see: its texts and its public properties."""
    found: dict[str, str] = {}
    names: set[str] = set()
    for part in _parts(agent):
        for text in (repr, str):
            shown = f"{text.__name__} of {type(part).__name__}"
            found[shown] = _ADDRESS.sub("", text(part))
        for cls in type(part).__mro__:
            kinds = property, cached_property
            names |= {name for name, value in vars(cls).items() if isinstance(value, kinds)}
    # Those that no snapshot has.
    for name in sorted(name for name in names - {*_NAMES} if not name.startswith("_")):
        try:
            found[name] = digest_of(getattr(agent, name))
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
