"""Rounds: the questions about one block, taken to the gate, recorded, and replayed after a crash.

Answers are recorded with the algorithm's state from before the first of them. A run that was killed
in mid-round asks for the questions again, and those that were answered are answered from the
record: nobody pays twice, and no family does this by itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.privacy.curator import Curator, Release
from tacit.privacy.curator import JointStream
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Statistic

if TYPE_CHECKING:
    from tacit.core.algorithm import Algorithm


class Round:
    """The questions of an algorithm about one block, in progress."""

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self._asks: Asks | None = algorithm.asks()
        self.asked: list[Statistic] = []
        # Up to its first question an algorithm changes nothing of what it knows.
        self._first = next(self._asks)

    @property
    def statistic(self) -> Statistic:
        """What is asked first; devices need it for their reports."""
        return self._first.statistic

    def run(
        self, gate: Gate, answers: list[Release], *, resumed: bool = False
    ) -> BaseException | None:
        """Asks everything, and first takes what is on record, which grows.

        If ``resumed``, users may already have paid for an answer that nobody saw: then it is no
        error that they cannot pay for the rest.

        Returns:
            What ended the round early, if the algorithm has a use for the answers before it;
            otherwise it is raised, and the algorithm may have taken in a part of them.
        """
        asks, ask = self._asks, self._first
        assert asks is not None  # noqa: S101
        self._asks = None
        told = 0
        try:
            while True:
                if told == len(answers):
                    try:
                        answers.append(gate.answer(ask))
                    except BaseException as error:
                        if not told or not _ends_with_less(asks):
                            raise
                        return None if resumed and isinstance(error, BudgetExceeded) else error
                told += 1
                self.asked.append(ask.statistic)
                ask = asks.send(answers[told - 1])
        except StopIteration:
            return None
        finally:
            asks.close()


def _ends_with_less(asks: Asks) -> bool:
    """Whether an algorithm takes it that nobody answers any more.

    It is told by an error of its own: the real one's traceback would lead it to people's data.
    """
    try:
        asks.throw(BudgetExceeded("there are no more answers to this round"))
    except StopIteration:
        return True
    except BudgetExceeded:
        return False
    return False


class Gate:
    """Where questions are answered: a block's way through its curator, or a counter over all."""

    def __init__(
        self, curator: Curator, stream: JointStream | None, number: int, privacy: Privacy
    ) -> None:
        self._curator, self._stream = curator, stream
        self._number, self._privacy = number, privacy

    def answer(self, ask: Ask) -> Release:
        """A release: charged, drawn, saved and only then returned."""
        curator, stream = self._curator, self._stream
        if stream is not None:
            if ask.statistic.fingerprint != stream.statistic.fingerprint:
                stream.ask(ask.statistic)
            return stream.release(self._number)
        mu = ask.mu if ask.share is None else math.sqrt(ask.share) * self._privacy.episode_mu
        if mu is not None and not math.isfinite(mu):
            # Without privacy nothing costs anything.
            mu = None
        return curator.release(ask.statistic, block=self._number, mu=mu)


class NotRecorded(Exception):
    """A question that has no answer yet."""


class RecordedGate(Gate):
    """A gate that asks nobody: for trying whether a save can be gone on with."""

    def answer(self, ask: Ask) -> Release:
        """There is none."""
        raise NotRecorded


def state_of(algorithm: Algorithm[Any]) -> State:
    """What an algorithm knows, and its randomness."""
    meta, arrays = algorithm.state()
    return meta | {"rng": algorithm.rng.bit_generator.state}, arrays


def restore(algorithm: Algorithm[Any], meta: dict[str, Any], arrays: Arrays) -> None:
    """The inverse of :func:`state_of`."""
    algorithm.restore(meta, arrays)
    algorithm.rng.bit_generator.state = meta["rng"]


def dump_answers(answers: list[Release]) -> State:
    """Recorded answers for a save."""
    arrays: Arrays = {}
    for i, answer in enumerate(answers):
        arrays |= {f"answers/{i}/{name}": array for name, array in answer.parts.items()}
    return {"answers": [_facts(answer) for answer in answers]}, arrays


def revive_answers(meta: dict[str, Any], arrays: Arrays) -> list[Release]:
    """The inverse of :func:`dump_answers`."""
    return [
        Release(parts=below(arrays, f"answers/{i}/"), **facts)
        for i, facts in enumerate(meta["answers"])
    ]


def _facts(release: Release) -> dict[str, Any]:
    return {
        "index": release.index,
        "statistic": release.statistic,
        "std": {name: float(np.max(value)) for name, value in release.std.items()},
        "users": release.users,
        "cost": release.cost,
    }
