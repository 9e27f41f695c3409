"""Recorded runs of an agent: what curators were asked, drew and released, and what is public.

``check_agent`` and ``audit_agent`` start from them.
"""

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
from functools import cached_property, partial, wraps
from pathlib import Path
from typing import Any, Literal, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tacit.core.agent import Agent
from tacit.core.world import Data, World
from tacit.privacy.curator import Curator, Release, Stream
from tacit.privacy.errors import CheckFailed, TacitError, require
from tacit.privacy.files import read_file
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.store import ledger
from tacit.store.store import Store
from tacit.testing.sample_users import raw_block


@dataclass(frozen=True, eq=False)
class NoiseDraw:
    """One draw of the sampler: its law, scale in steps (or how many were added up) and values."""

    pure: bool
    scale: float
    values: NDArray[Any]
    seeded: bool


@dataclass(frozen=True, eq=False)
class ReleaseRecord:
    """One release: the curator, the statistic and block that were asked, and what came out.

    Its public facts, beside its noisy sums, are those it had before a script replaced it.
    """

    curator: Curator[Any]
    stream: Stream | None
    statistic: Statistic
    block: int
    options: str
    release: Release
    drawn: tuple[NoiseDraw, ...] = ()
    facts: str = ""

    @property
    def request(self) -> tuple[Any, ...]:
        """All that must not depend on data, given the releases before."""
        return (self.statistic.fingerprint, self.block, self.options, self.facts)


@dataclass(eq=False)
class RecordingCurator:
    """Records all releases of all curators; plays ``script`` back in place of them.

    Blocks of a curator are numbered as they are asked for the first time.
    """

    script: Sequence[Release] = ()
    records: list[ReleaseRecord] = field(default_factory=list)
    blocks: dict[tuple[Curator[Any], int], Block] = field(default_factory=dict)
    inside: bool = False
    drawn: list[NoiseDraw] = field(default_factory=list)

    @contextlib.contextmanager
    def open(self) -> Iterator[RecordingCurator]:
        """Replaces the methods of all curators and streams for a while."""
        originals = [
            (cls, "release_block", cls.__dict__["release_block"]) for cls in _that_release()
        ]
        originals += [(Noise, name, getattr(Noise, name)) for name in ("steps", "laplace_sum")]
        try:
            for cls, name, original in originals:
                watcher = self._out if name == "release_block" else self._drawing
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
            self.drawn.append(NoiseDraw(bool(pure), float(scale), np.array(values), seeded))
            return values

        return draw

    def _out(self, original: Callable[..., Release]) -> Callable[..., Release]:
        @wraps(original)
        def release_block(of: Curator[Any] | Stream, *asked: Any, **options: Any) -> Release:
            # One that asks another one, of whom it inherits, makes one release.
            if self.inside:
                return original(of, *asked, **options)
            self.inside = True
            self.drawn.clear()
            try:
                result = original(of, *asked, **options)
            finally:
                self.inside = False
            curator, stream = (of._curator, of) if isinstance(of, Stream) else (of, None)
            # How noisy flipped bits are is estimated from them.
            known = None if getattr(curator.privacy, "reports_bits", False) else result.std
            facts = digest_of((result.statistic, result.users, result.cost, known))
            if (place := len(self.records)) < len(self.script):
                result = self.script[place]
            statistic = asked[0] if stream is None else stream.statistic
            number, how = self._number(curator, asked[-1]), repr(options)
            drawn = (*self.drawn,)
            self.records.append(
                ReleaseRecord(curator, stream, statistic, number, how, result, drawn, facts)
            )
            return result

        return release_block

    def _number(self, asked: Curator[Any], raw: Block) -> int:
        """Of a block, which is the next one if it was not asked before."""
        mine = [number for curator, number in self.blocks if curator is asked]
        here = [number for number in mine if self.blocks[asked, number] is raw]
        number = here[0] if here else len(mine)
        self.blocks[asked, number] = raw
        return number

    def contributions(self, record: ReleaseRecord) -> Floats:
        """The vectors of the users of the block that was asked."""
        return record.statistic.contributions(self.blocks[record.curator, record.block])


def _that_release() -> list[type]:
    """Every class of curators and streams that answers in a way of its own."""
    found: list[type] = []
    waiting: list[type] = [Curator, Stream]
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        method = cls.__dict__.get("release_block")
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
    """Values, arrays, and the public attributes of objects but curators, stores and the like."""
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


_NAMES = {"policy", "greedy_policy", "block_users", "data_format", "releases", "users", "state"}
_NAMES |= {"record", "guarantee"}


def snapshot(agent: Any) -> dict[str, str]:
    """All that is public of an agent and its algorithm, by name."""
    public = {name: digest_of(getattr(agent, name)) for name in sorted(_NAMES)}
    # What is computed when it is asked for may not be yet; of a run's seed its store knows.
    kind, shown = type(agent.algorithm), dict(_attributes(agent.algorithm))
    once = {n for n in shown if isinstance(getattr(kind, n, None), cached_property)}
    return public | {n: digest_of(v) for n, v in shown.items() if n not in {"problem", *once}}


# Where in memory an object is.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def on_show(agent: Any) -> dict[str, str]:
    """The texts and public properties of an agent, which a snapshot lacks."""
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


Snapshot: TypeAlias = dict[str, str]


def difference(first: Snapshot, second: Snapshot) -> list[str]:
    """Names of the values that differ between two snapshots."""
    return [name for name in first if first[name] != second.get(name)]


def require_same(pair: tuple[Snapshot, Snapshot], where: str, how: str = "differ") -> None:
    """Fails with the names of what differs between two snapshots."""
    differing = difference(*pair)
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
    levels = {logger: logger.level for logger in (root, *map(logging.getLogger, _OTHERS))}
    root.addHandler(listener)
    try:
        for logger, level in levels.items():
            logger.setLevel(logging.DEBUG if logger is root else max(level, logging.WARNING))
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(warnings, "showwarning", warned))
            stack.enter_context(contextlib.redirect_stdout(printed))
            stack.enter_context(contextlib.redirect_stderr(printed))
            yield said
    finally:
        root.removeHandler(listener)
        for logger, level in levels.items():
            logger.setLevel(level)
        if printed.getvalue():
            said.append(printed.getvalue())


_NOW = 1_700_000_000
_CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


@contextlib.contextmanager
def frozen_clock() -> Iterator[None]:
    """All clocks of :mod:`time` stand still for a while."""
    with contextlib.ExitStack() as stack:
        for name in filter(partial(hasattr, time), _CLOCKS):
            for clock, now in ((name, float(_NOW)), (f"{name}_ns", _NOW * 10**9)):
                stack.enter_context(mock.patch.object(time, clock, return_value=now))
        yield


# Whole runs.

SEED = 7
"""Of everything random in a check, beside the caller's own."""


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A whole run: the users' data, and all that became public.

    Attributes:
        blocks: the users' data, by release.
        policies: those that served them, and the last one.
        snapshots: the agent's public values, before anything and after every release.
        recorder: the releases.
        said: log lines and printed text.
        agent: as it is after the last release.
        shown: texts and properties of the agent, after every release; where they were asked for.
    """

    blocks: list[Block]
    policies: list[Any]
    snapshots: list[dict[str, str]]
    recorder: RecordingCurator
    said: list[str]
    agent: Any
    shown: list[dict[str, str]] = field(default_factory=list)

    @property
    def script(self) -> list[Release]:
        """The releases, for a replay."""
        return [record.release for record in self.recorder.records]


@dataclass(eq=False)
class Trial:
    """One trial of one kind of agent; see :func:`tacit.check_agent` for the arguments."""

    make_agent: Callable[..., Any]
    world: World
    folder: Path
    users: int = 1000
    seed: int = 0
    tightness: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        agent = self.make()
        if not isinstance(agent, Agent):
            raise CheckFailed(f"protocol: {agent!r} is not a tacit agent")
        self.privacy: Any = agent.privacy
        self.places: int = agent.users  # of all blocks; more than users who have several

    def make(self, seed: int = 0, real: bool = False, **options: Any) -> Any:
        """A fresh agent, of a simulation or with real noise."""
        noise_seed = None if real else SEED + seed
        return self.make_agent(
            self.world.spec, users=self.users, seed=seed, noise_seed=noise_seed, **options
        )

    def rng(self, stream: int) -> np.random.Generator:
        """Of simulated users; another number, other users."""
        return np.random.default_rng(np.random.SeedSequence([SEED, self.seed, stream]))

    @cached_property
    def first(self) -> RecordedRun:
        """A simulation of the world's own users, which others are compared with."""
        return self.play()

    @cached_property
    def again(self) -> RecordedRun:
        """The same users and the same releases; what is said once in a process was said before."""
        return self.play(users=self.first.blocks, script=self.first.script, show=True)

    def play(
        self,
        agent: Any = None,
        users: Sequence[Data] | None = None,
        script: Sequence[Release] = (),
        stream: int = 0,
        *,
        show: bool = False,
        warn: Literal["always", "error"] = "always",
    ) -> RecordedRun:
        """A fresh agent, or this one, serves a stream of the world's users, or others, by blocks.

        Args:
            agent: a fresh one by default.
            users: blocks of them; simulated by default.
            script: releases in place of those that the curators make.
            stream: of the simulated users' random numbers.
            show: also record texts, properties and files of the agent after every release.
            warn: the filter of warnings.
        """
        rng, seen, shown = self.rng(stream), list[Block](), list[dict[str, str]]()
        with contextlib.ExitStack() as stack:
            recorder = stack.enter_context(RecordingCurator(script).open())
            said = stack.enter_context(overheard())
            stack.enter_context(warnings.catch_warnings())
            if show:  # files and ledgers say when something happened
                stack.enter_context(frozen_clock())
            agent = self.make() if agent is None else agent
            policies, snapshots = [agent.policy], [snapshot(agent)]
            warnings.simplefilter(warn)
            # It depends on when memory is collected.
            warnings.simplefilter("ignore", ResourceWarning)
            while agent.block_users > 0:
                releases = agent.releases
                if users is None:
                    served = self.world.simulate(agent.policy, agent.block_users, rng, "episodes")
                else:
                    served = users[len(seen)]
                returned = agent.learn(served)
                seen.append(raw_block(served))
                require(
                    agent.releases == releases + 1,
                    f"a whole block of {seen[-1].users} users must lead to one release, but "
                    f"releases went from {releases} to {agent.releases}",
                )
                policies.append(agent.policy)
                snapshots.append(snapshot(agent))
                if show:
                    shown.append(on_show(agent) | {"what learn returned": digest_of(returned)})
            if show and shown:
                shown[-1]["the published file"] = self._published(agent)
                with agent.store.read() as db:
                    shown[-1]["the ledger"] = digest_of([*ledger.read(db)])
        return RecordedRun(seen, policies, snapshots, recorder, said, agent, shown)

    def _published(self, agent: Any) -> str:
        """All bytes of the public policy, or why there is none."""
        path = self.folder / "published"
        try:
            agent.publish(path, force=True)
            return digest_of(read_file(path, "result"))
        except (TacitError, OSError) as error:
            return repr(error)

    def same(self, what: str, other: RecordedRun, expected: RecordedRun | None = None) -> None:
        """Everything public at every release is that of the first run."""
        expected = self.first if expected is None else expected
        for r, (mine, theirs) in enumerate(zip(expected.snapshots, other.snapshots, strict=False)):
            require_same((mine, theirs), f"{what}:", f"differ at release {r}")
        releases = len(other.snapshots) - 1, len(expected.snapshots) - 1
        require(releases[0] == releases[1], f"{what}: {releases[0]} releases, not {releases[1]}")
