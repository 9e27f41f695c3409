"""How a privacy bug gets into an agent; see :mod:`research.planted_bugs`.

An agent is final and hands its algorithm nothing but releases, so there are three ways left:

* an agent is tampered with, whenever it is made for a run that begins or goes on
  (:class:`Tampered`),
* an algorithm asks for another statistic than it should (:class:`Asking`),
* a statistic remembers whom it summed, and its algorithm looks (:class:`Leaking`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tacit.core.constructors import make_agent
from tacit.privacy.curator import JointCurator
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic


def plant(bug: type[Any], algorithm: type[Any]) -> Callable[..., Any]:
    """Constructor of the agent with the bug."""
    if issubclass(bug, Tampered):
        return bug.planted(algorithm)
    return partial(make_agent, type(bug.__name__, (bug, algorithm), {"__doc__": bug.__doc__}))


# Agents.


class Tampered:
    """Tampers with an agent."""

    @classmethod
    def planted(cls, algorithm: type[Any]) -> Callable[..., Any]:
        """Constructor of such agents."""

        def make(*args: Any, **options: Any) -> Any:
            agent: Any = make_agent(algorithm, *args, **options)
            cls.tamper(agent)
            return agent

        return make

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Does it to an agent that was just made, for a new run or for one that goes on."""
        raise NotImplementedError


class Curated(Tampered):
    """Has another curator."""

    curator: ClassVar[type[Any]]

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Gives it this one."""
        agent._run.curator.__class__ = cls.curator


class Drawing(JointCurator):
    """A curator that changes what is drawn."""

    @property
    def source(self) -> Any:
        """Of noise, as it is changed."""
        return _Changed(self)

    @source.setter
    def source(self, source: Any) -> None:
        self.__dict__["source"] = source

    @property
    def simulated(self) -> bool:
        """Whether noise is."""
        return bool(self.__dict__["source"].simulation)

    def drawn(self, scale: float, size: int) -> Any:
        """Noise in whole steps."""
        return self.__dict__["source"].steps(self.privacy.pure, scale, size)


class _Changed(Noise):
    """A source of noise, as a curator changes it."""

    def __init__(self, curator: Drawing) -> None:
        self._curator = curator

    @property
    def _rng(self) -> Any:  # type: ignore[override]
        return self._curator.__dict__["source"]._rng

    def steps(self, pure: bool, scale: float, count: int) -> Any:
        return self._curator.drawn(scale, count)


class Admitting(Tampered):
    """Lets other users, or other ids, in than those who came."""

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Changes everybody on their way into the store, and every block on its way out."""
        take, raw, earlier = agent.intake.take, agent._loop.read_block, list[Block]()

        def summed(*which: Any) -> Block:
            block = raw(*which)
            found = cls.summed(earlier, block)
            earlier.append(block)
            return found

        agent.intake.take = lambda part, ids, *rest: take(*cls.admitted(part, ids), *rest)
        agent._loop.read_block = summed

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        """Who goes in."""
        return block, user_ids

    @classmethod
    def summed(cls, earlier: Sequence[Block], block: Block) -> Block:
        """Who is summed, given all blocks before."""
        return block


# Statistics.


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
        """What is asked instead."""
        wrong: Statistic = recast(right, self._instead)
        return wrong


def recast(right: Any, mixin: type[Any]) -> Any:
    """A copy of a statistic with some of its methods replaced."""
    changed: Any = object.__new__(type("Changed", (mixin, type(right)), {}))
    changed.__dict__.update(vars(right))
    return changed


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
        return careless_rewards(self._seen)


def careless_rewards(block: Block) -> Floats:
    """What a careless programmer reads: whatever is there, cut to [0, 1]."""
    name = "rewards" if "rewards" in block.arrays else "states"
    values: Floats = np.clip(np.nan_to_num(np.asarray(block[name], dtype=float)), 0.0, 1.0)
    return values
