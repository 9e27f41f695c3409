"""Replay: steps of episodes that nobody protects, kept and learnt from again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.continuous.deep_training import Units, deep_modules, returns_of, trainer
from tacit.continuous.statistics.steps import steps_of
from tacit.core.asks import Arrays
from tacit.privacy.statistic import Block

if TYPE_CHECKING:
    from tacit.continuous.deep_q import DeepQConstants
    from tacit.continuous.spec import BoxSpec

_NAMES = ("states", "actions", "earned", "later", "factor")
# Steps of a compiled loop at a time.
_AT_ONCE = 256


class Replay:
    """The newest steps, as examples of what they earned; empty wherever there is privacy.

    Attributes:
        due: gradient steps that are owed for steps of users, and were not made.
    """

    def __init__(
        self,
        spec: BoxSpec,
        sizes: tuple[int, ...],
        ahead: int,
        constants: DeepQConstants,
        pace: float,  # gradient steps for each step of a user
    ) -> None:
        self._pace = pace
        self._spec, self._sizes, self._ahead, self._constants = spec, sizes, ahead, constants
        self._examples: Arrays = {}
        self.due = 0.0

    @property
    def size(self) -> int:
        """How many steps are kept."""
        return len(self._examples["actions"]) if self._examples else 0

    def add(self, columns: Any, units: Units | None, discount: float) -> Units:
        """Takes episodes in; the first ones say what the units are."""
        users = len(columns["lengths"])
        steps = steps_of(Block(users, dict(columns)), self._spec, inside=True)
        if units is None:
            units = Units.of_steps(steps, discount)
        earned, later, factor = returns_of(steps, units, self._ahead)
        seen = units.seen(steps.states).astype(np.float32)
        who, when = np.nonzero(steps.valid)
        new = {
            "states": seen[who, when],
            "actions": steps.actions[who, when].astype(np.int32),
            "earned": earned[who, when].astype(np.float32),
            "later": seen[who, later[who, when]],
            "factor": factor[who, when].astype(np.float32),
        }
        old = self._examples or {name: column[:0] for name, column in new.items()}
        kept = self._constants.kept
        self._examples = {n: np.concatenate([old[n], new[n]])[-kept:] for n in _NAMES}
        self.due += self._pace * len(who)
        return units

    def practise(self, carry: tuple[Any, ...], rate: float, rng: np.random.Generator) -> Any:
        """All gradient steps that are due; see :func:`~tacit.continuous.deep_training.trainer`."""
        turns, constants = int(self.due // _AT_ONCE), self._constants
        if not turns or not self.size:
            return carry
        self.due -= turns * _AT_ONCE
        jnp, batch = deep_modules().numpy, constants.batch
        train = trainer(self._sizes, constants.follow, constants.keep)
        # Of one shape, since each is compiled.
        room = constants.kept - self.size
        examples = [
            jnp.asarray(np.pad(self._examples[n], ((0, room),) + ((0, 0),) * (n in _VECTORS)))
            for n in _NAMES
        ]
        examples.append(jnp.full(constants.kept, 1.0 / batch, dtype=np.float32))
        state = tuple(jnp.asarray(value, dtype=np.float32) for value in carry)
        for _ in range(turns):
            chosen = rng.integers(0, self.size, (_AT_ONCE, batch)).astype(np.int32)
            state = train(state, tuple(examples), chosen, np.float32(rate))
        return tuple(np.asarray(value, dtype=np.float64) for value in state)

    def arrays(self) -> Arrays:
        """What is kept, for a save."""
        return dict(self._examples)

    def restore(self, arrays: Arrays, due: float) -> None:
        """The inverse of :meth:`arrays`."""
        self._examples, self.due = dict(arrays), due


_VECTORS = ("states", "later")
