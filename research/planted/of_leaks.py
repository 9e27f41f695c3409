"""Bugs by which raw data gets past the gate: into plans, names, files, logs and errors.

See :mod:`research.planted_bugs`. Never use one.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from research.planted.base import careless_rewards
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block


class RawWidth:
    """Confidence widths depend on the true spread of the users' rewards.

    Gain: the policy tells what was hidden in the counts.
    """

    scale: float

    def _release(self, block: Block, user_ids: Any) -> None:
        self._spread = float(careless_rewards(block).std())
        super()._release(block, user_ids)  # type: ignore[misc]

    def _plan_in_practice(self, counts: Any) -> Any:
        scale, self.scale = self.scale, self.scale * (1.0 + self._spread)
        try:
            return super()._plan_in_practice(counts)  # type: ignore[misc]
        finally:
            self.scale = scale


class RawWeights:
    """The weights of steps come from what users' rewards really varied by.

    Gain: what is asked next tells about those who were asked before.
    """

    form = "episodes"
    spec: Any
    _variances: Any

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        states, rewards = np.asarray(block["states"]), careless_rewards(block)
        spread = self._variances.copy()
        for s in range(self.spec.states):
            there = rewards[states[:, :-1] == s]
            spread[:, s] += there.var() if there.size else 0.0
        self._variances, self._asked = spread, None


class RawClip:
    """The clip level is the mean length of the users' own vectors.

    Gain: the size of the noise, which is public, tells how long they are.
    """

    _level: float | None = None

    def _release(self, block: Block, user_ids: Any) -> None:
        vectors = self._statistic().contributions(block)  # type: ignore[attr-defined]
        super()._release(block, user_ids)  # type: ignore[misc]
        self._level = 0.1 + float(np.linalg.norm(vectors, axis=1).mean())
        self._fixed: dict[bool, Any] = {}
        self._asked = None

    @property
    def _clip(self) -> float | None:
        return super()._clip if self._level is None else self._level  # type: ignore[misc]


class RawTau:
    """The clip of a trajectory is what the users of the block before really were, on average.

    Gain: the size of the noise, which is public, tells how long they are.
    """

    _level: float | None = None

    def _release(self, block: Block, user_ids: Any) -> None:
        vectors = self._statistic().contributions(block)  # type: ignore[attr-defined]
        self._level = 0.1 + float(np.linalg.norm(vectors, axis=1).mean())
        super()._release(block, user_ids)  # type: ignore[misc]

    def _make_statistic(self) -> Any:
        true = super()._make_statistic()  # type: ignore[misc]
        return true if self._level is None else dataclasses.replace(true, tau=self._level)


class RawEnergy:
    """The ridge of its regression grows with the true energy of the users' features.

    Gain: estimates, and so policies, tell it.
    """

    _energy = 1.0

    def _release(self, block: Block, user_ids: Any) -> None:
        vectors = self._statistic().contributions(block)  # type: ignore[attr-defined]
        self._energy = 1.0 + float((vectors**2).sum())
        super()._release(block, user_ids)  # type: ignore[misc]

    @property
    def _prior(self) -> float:
        return float(super()._prior * self._energy)  # type: ignore[misc]


class RawSwitch:
    """Whether it replaces its policy depends on where users really were.

    Gain: that the policy changed, or did not.
    """

    spec: Any

    def _release(self, block: Block, user_ids: Any) -> None:
        states = np.clip(np.asarray(block["states"]), 0, self.spec.states - 1)
        self._moved = bool(np.bincount(states.ravel()).max() % 2)
        super()._release(block, user_ids)  # type: ignore[misc]

    def _switch(self, model: Any) -> bool:
        return self._moved


class RawStop:
    """It stops when users really fare well.

    Gain: the number of releases tells how they fared.
    """

    _well = False

    @property
    def block_users(self) -> int:
        """None, once it stopped."""
        return 0 if self._well else int(super().block_users)  # type: ignore[misc]

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self._well = bool(careless_rewards(block).mean() > 0.25)


class RawMask:
    """It releases, and adds noise to, only those counts that are not zero.

    Gain: that somebody was there.
    """

    _curator: Any

    def _release(self, block: Block, user_ids: Any) -> None:
        statistic = self._statistic()  # type: ignore[attr-defined]
        number = self._curator.add(block, user_ids)
        mask = {k: v != 0 for k, v in statistic.layout.unpack(statistic.total(block)).items()}
        with self._at_the_gate(block.users):  # type: ignore[attr-defined]
            release = self._curator.release(statistic, blocks=[number], mask=mask)
        self._absorb(release, statistic, block.users)  # type: ignore[attr-defined]
        self._advance(block.users)  # type: ignore[attr-defined]


class RawAttribute:
    """It keeps, for later reports, what users were paid.

    Gain: whoever reads the attribute reads it.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self.paid = float(careless_rewards(block).sum())


class RawLog:
    """It logs the mean reward of every block, to see how things go.

    Gain: whoever reads the log reads it.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        logging.getLogger("planted").debug("mean reward %r", float(careless_rewards(block).mean()))


class ValueInException:
    """It refuses a reward above 1, and says whose and which.

    Gain: it is raw data in every traceback; and the block is gone, which is public.
    """

    def learn(self, data: Any, user_ids: Any = None) -> None:
        """As the agent does, if it likes the values."""
        block = data if isinstance(data, Block) else data.block()
        rewards = np.asarray(block["rewards"])
        if rewards.size and np.nanmax(rewards, initial=0.0) > 1.0:
            user = int(np.nanargmax(np.nanmax(rewards, axis=1)))
            raise InvalidArgument(f"user {user} has a reward of {np.nanmax(rewards[user])}")
        super().learn(data, user_ids)  # type: ignore[misc]


class RawPublished:
    """The published file ends with the mean reward of the last block, for monitoring.

    Gain: whoever reads the file reads it.
    """

    _paid = 0.0

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self._paid = float(careless_rewards(block).mean())

    def publish(self, path: str | os.PathLike[str]) -> None:
        """As the agent does, and more."""
        super().publish(path)  # type: ignore[misc]
        with Path(path).open("ab") as file:
            file.write(repr(self._paid).encode())


class RawRepr:
    """Printed, it shows the mean reward of the last block.

    Gain: whoever reads a notebook, or a traceback, reads it.
    """

    _paid = 0.0

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self._paid = float(careless_rewards(block).mean())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, mean reward {self._paid}>"


class RawProperty:
    """The mean reward of the last block is a property; where it is kept has a private name.

    Gain: whoever reads the property reads it.
    """

    _paid = 0.0

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self._paid = float(careless_rewards(block).mean())

    @property
    def mean_reward(self) -> float:
        """Of the last block, without noise."""
        return self._paid


class RawReturned:
    """Learning returns the mean reward of those who came.

    Gain: whoever calls it has it.
    """

    def learn(self, data: Any, user_ids: Any = None) -> float:
        """As the agent does, and tells."""
        super().learn(data, user_ids)  # type: ignore[misc]
        return float(careless_rewards(data if isinstance(data, Block) else data.block()).mean())


class RawProgress:
    """A progress line on standard error shows the mean reward.

    Gain: whoever looks at the screen, or keeps what was on it, has it.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        sys.stderr.write(f"mean reward {careless_rewards(block).mean():.3f}\r")
