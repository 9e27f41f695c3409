"""How a privacy bug gets into an agent; see :mod:`research.planted_bugs`.

An agent is final and hands its algorithm nothing but releases, so there are three ways left:

* the curator of an agent is tampered with, after it is made and again after it is loaded
  (:class:`Tampered`),
* an algorithm asks for another statistic than it should (:class:`Asking`),
* a statistic remembers whom it summed, and its algorithm looks (:class:`Leaking`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, ClassVar

import numpy as np

from tacit.core.asks import Ask, Asks
from tacit.core.kinds import AgentKind
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.statistic import Block, Floats, Statistic


def plant(bug: type[Any], kind: AgentKind) -> Callable[..., Any]:
    """What makes the agent with the bug."""
    if issubclass(bug, Tampered):
        return bug.planted(kind)
    return AgentKind(type(bug.__name__, (bug, kind.algorithm), {"__doc__": bug.__doc__}))


# Curators.


class Tampered:
    """Tampers with an agent's curator."""

    @classmethod
    def planted(cls, kind: AgentKind) -> Callable[..., Any]:
        """What makes such agents."""

        @wraps(kind)
        def make(*args: Any, **options: Any) -> Any:
            agent: Any = kind(*args, **options)
            true = agent.load

            def load(*args: Any, **options: Any) -> Any:
                true(*args, **options)
                cls.tamper(agent, loaded=True)
                return agent

            agent.load = load
            cls.tamper(agent, loaded=False)
            return agent

        return make

    @classmethod
    def tamper(cls, agent: Any, loaded: bool) -> None:
        """Does it to an agent that was just made, or loaded."""
        raise NotImplementedError


class Curated(Tampered):
    """Has another curator."""

    curator: ClassVar[type[Any]]

    @classmethod
    def tamper(cls, agent: Any, loaded: bool) -> None:
        """Gives it this one."""
        agent._curator.__class__ = cls.curator


class Admitting(Tampered):
    """Lets other users, or other ids, in than those who came."""

    @classmethod
    def tamper(cls, agent: Any, loaded: bool) -> None:
        """Changes every block on its way in."""
        curator, earlier = agent._curator, list[tuple[Block, Any]]()

        def add(block: Block, user_ids: Sequence[Any] | None = None) -> int:
            admitted = cls.admitted(earlier, block, user_ids)
            earlier.append((block, user_ids))
            number: int = type(curator).add(curator, *admitted)
            return number

        curator.add = add

    @classmethod
    def admitted(
        cls, earlier: Sequence[tuple[Block, Any]], block: Block, user_ids: Any
    ) -> tuple[Block, Any]:
        """Who goes in, given all blocks before."""
        raise NotImplementedError


# Statistics.


class Asking:
    """An algorithm that asks a wrong statistic in place of every right one."""

    _instead: ClassVar[type[Any]]

    def asks(self) -> Asks:
        """As the algorithm does, but for what is asked."""
        right: Asks = super().asks()  # type: ignore[misc]
        return _with_statistics(right, self.wrong)

    def wrong(self, right: Statistic) -> Statistic:
        """What is asked instead."""
        wrong: Statistic = recast(right, self._instead)
        return wrong


def _with_statistics(right: Asks, wrong: Callable[[Statistic], Statistic]) -> Asks:
    """The same questions, of other statistics."""
    try:
        ask: Ask = next(right)
        while True:
            try:
                answer = yield replace(ask, statistic=wrong(ask.statistic))
            except BudgetExceeded as error:
                ask = right.throw(error)
            else:
                ask = right.send(answer)
    except StopIteration:
        return
    finally:
        right.close()


def recast(right: Any, mixin: type[Any]) -> Any:
    """A copy of a statistic, or of a policy, with some of its methods replaced."""
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
        return 0.0 if self._seen is None else float(careless_rewards(self._seen).mean())


def careless_rewards(block: Block) -> Floats:
    """What a careless programmer reads: whatever is there, cut to [0, 1]."""
    name = "rewards" if "rewards" in block.arrays else "states"
    values: Floats = np.clip(np.nan_to_num(np.asarray(block[name], dtype=float)), 0.0, 1.0)
    return values
