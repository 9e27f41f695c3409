"""Ways to plant a bug: in Tacit itself for a while, or in an algorithm.

An agent is final and hands its algorithm nothing but releases, so there are two ways left:

* other code stands for Tacit's own while a context is entered, so that every agent made within it
  has the bug (:class:`Patched`, and what is made of :func:`patching`),
* an algorithm has a class more: it asks for another statistic than it should (:class:`Asking`), or
  its statistics remember whom they summed, and it looks (:class:`Leaking`).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from inspect import getattr_static
from typing import Any, ClassVar, TypeAlias
from unittest import mock

import numpy as np

from tacit.core.agent import Agent
from tacit.core.constructors import make_agent
from tacit.core.intake import EpisodeIntake
from tacit.core.release_loop import ReleaseLoop
from tacit.privacy.curator import JointCurator
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.testing import release_noise

Patch: TypeAlias = tuple[Any, str, Any]
"""Whose attribute, its name, and what stands there instead."""
Plant: TypeAlias = Callable[[], AbstractContextManager[None]]
Wrong: TypeAlias = Callable[..., Any]
"""Takes what it stands for as its first argument."""


class Patched:
    """A bug that is planted in Tacit itself."""

    plant: ClassVar[Plant]


def patched(by: Callable[[Wrong], Plant]) -> Callable[[Wrong], type[Any]]:
    """A bug by the name of a function, as ``half_the_noise`` is ``HalfTheNoise``."""

    def made(wrong: Wrong) -> type[Any]:
        held = {"__doc__": wrong.__doc__, "plant": staticmethod(by(wrong))}
        return type(camel(wrong), (Patched,), held)

    return made


def camel(function: Any) -> str:
    """The name of a function as that of a bug."""
    return "".join(map(str.capitalize, function.__name__.split("_")))


@contextmanager
def planted(bug: type[Any] | None, algorithm: type[Any]) -> Iterator[Callable[..., Any]]:
    """A context with a constructor of agents that have the bug."""
    if bug is None or issubclass(bug, Patched):
        with ExitStack() as entered:
            if bug is not None:  # what audits keep of counters is of right ones
                entered.enter_context(mock.patch.object(release_noise, "_inverses", {}))
                entered.enter_context(bug.plant())
            yield partial(make_agent, algorithm)
    else:
        yield plant(bug, algorithm)


def plant(bug: type[Any], algorithm: type[Any]) -> Callable[..., Any]:
    """Constructor of agents whose algorithm has a class more."""
    return partial(make_agent, type(bug.__name__, (bug, algorithm), {"__doc__": bug.__doc__}))


# In Tacit.


def patching(patches: Callable[[], Iterator[Patch]]) -> Plant:
    """A context in which some attributes are others."""

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, wrong in patches():
                stack.enter_context(mock.patch.object(owner, name, wrong, create=True))
            yield

    return entered


def instead(owner: Any, name: str) -> Callable[[Wrong], Plant]:
    """A context in which a function or property is another, which is given the right one first."""

    def made(wrong: Wrong) -> Plant:
        def patches() -> Iterator[Patch]:
            right: Any = getattr_static(owner, name)
            if isinstance(right, property):
                yield owner, name, property(lambda self: wrong(right.fget, self))
            elif isinstance(right, staticmethod):
                yield owner, name, staticmethod(lambda *given: wrong(right.__func__, *given))
            else:
                yield owner, name, lambda *given, **more: wrong(right, *given, **more)

        return patching(patches)

    return made


def everywhere(owner: Any, name: str) -> Callable[[Wrong], Plant]:
    """The same of a function in every module that has it, also of those that test it."""

    def made(wrong: Wrong) -> Plant:
        def patches() -> Iterator[Patch]:
            right, packages = getattr(owner, name), ("tacit", "tests")
            for module in [m for key, m in sys.modules.items() if key.split(".")[0] in packages]:
                if vars(module).get(name) is right:
                    yield module, name, lambda *given, **more: wrong(right, *given, **more)

        return patching(patches)

    return made


def tampers(tamper: Callable[[Any], None]) -> Plant:
    """Something is done to every agent that was just made, for a new run or one that goes on."""

    def made(right: Any, agent: Any, *given: Any, **more: Any) -> None:
        right(agent, *given, **more)
        tamper(agent)

    return instead(Agent, "__init__")(made)


def drawn(wrong: Callable[[Any, Callable[..., Any], float, int], Any]) -> Plant:
    """Joint curators get other noise: ``wrong`` has one, the right way, the scale and the size."""

    class Changed(Noise):
        def __init__(self, curator: Any, source: Any) -> None:
            self._curator, self._source = curator, source

        @property
        def _rng(self) -> Any:  # type: ignore[override]
            return self._source._rng

        @property
        def simulation(self) -> bool:
            return bool(self._source.simulation)

        def steps(self, pure: bool, scale: float, count: int) -> Any:
            return wrong(self._curator, partial(self._source.steps, pure), scale, count)

    def patches() -> Iterator[Patch]:
        held = property(
            lambda curator: Changed(curator, vars(curator)["source"]),
            lambda curator, source: vars(curator).__setitem__("source", source),
        )
        yield JointCurator, "source", held

    return patching(patches)


def admits(wrong: Callable[[Block, Any], tuple[Block, Any]]) -> Plant:
    """Others go in, or by other ids, than those who came."""

    def take(right: Any, intake: Any, part: Block, ids: Any, *rest: Any) -> Any:
        return right(intake, *wrong(part, ids), *rest)

    return instead(EpisodeIntake, "take")(take)


def sums(wrong: Callable[[Sequence[Block], Block], Block]) -> Plant:
    """Others are summed than those of the block; ``wrong`` has all blocks before as well."""

    def read(right: Any, loop: Any, *which: Any) -> Block:
        earlier: list[Block] = vars(loop).setdefault("_earlier", [])
        block = right(loop, *which)
        found = wrong(earlier, block)
        earlier.append(block)
        return found

    return instead(ReleaseLoop, "read_block")(read)


# In an algorithm.


class Asking:
    """An algorithm that asks a wrong statistic in place of every right one."""

    _instead: ClassVar[type[Any]]

    def learn(self, *known: Any) -> Any:
        """As the algorithm does, but for what is asked."""
        right: Any = super().learn(*known)  # type: ignore[misc]
        try:
            query = next(right)
            while True:
                answer = yield replace(query, statistic=self.wrong(query.statistic))
                query = right.send(answer)
        except StopIteration as end:
            return end.value

    def wrong(self, right: Statistic) -> Statistic:
        """What is asked instead: a copy with some of its methods replaced."""
        changed: Any = object.__new__(type("Changed", (self._instead, type(right)), {}))
        changed.__dict__.update(vars(right))
        found: Statistic = changed
        return found


# Whom a statistic saw last, by who asked. No copy of the statistic takes that away.
_SEEN: dict[int, Block] = {}
_NUMBERS = itertools.count()


class _Remembers:
    def vectors(self, block: Block) -> Floats:
        # Shapes are checked with nobody in the block.
        if block.users:
            _SEEN[self.__dict__["asked_by"]] = block
        vectors: Floats = super().vectors(block)  # type: ignore[misc]
        return vectors


class Leaking(Asking):
    """An algorithm whose statistics remember whom they summed."""

    _instead = _Remembers

    def wrong(self, right: Statistic) -> Statistic:
        """The right one, with a memory."""
        wrong = super().wrong(right)
        wrong.__dict__["asked_by"] = self._number
        return wrong

    @property
    def _number(self) -> int:
        if "_own_number" not in self.__dict__:
            self.__dict__["_own_number"] = next(_NUMBERS)
        number: int = self.__dict__["_own_number"]
        return number

    @property
    def _seen(self) -> Any:
        """The users of the last block, with nothing added; ``None`` before there are any."""
        return _SEEN.get(self._number)

    @property
    def _mean_reward(self) -> float:
        return 0.0 if self._seen is None else float(self._raw_rewards.mean())

    @property
    def _raw_rewards(self) -> Floats:
        """What a careless programmer reads: whatever is there, cut to [0, 1]."""
        name = "rewards" if "rewards" in self._seen.arrays else "states"
        values: Floats = np.nan_to_num(np.asarray(self._seen[name], dtype=float))
        return np.clip(values, 0.0, 1.0)
