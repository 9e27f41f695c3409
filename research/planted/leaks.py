"""Bugs by which raw data gets past the curator: into plans, names, files, logs and errors.

Statistics are the only code that is shown raw data. Here they remember it, for a count that is
shown somewhere, a test or a clip; see :class:`research.planted.ways.Leaking`. Never use one.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from research.planted.agents import (
    CONTROL,
    FLOW,
    FOUND,
    FUNCTIONAL,
    LSVI,
    MIXTURE,
    UCBVI,
    Planted,
    found,
)
from research.planted.ways import Asking, Leaking
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats
from tacit.tabular.visits import VisitCounts
from tacit.testing.sample_users import of_version


@found(FLOW, UCBVI)
class RawWidth(Leaking):
    """Confidence widths depend on the true spread of the users' rewards.

    Gain: the policy tells what was hidden in the counts.
    """

    options: Any

    def plan(self, *known: Any) -> Any:
        """As the algorithm does, by another scale."""
        options, spread = self.options, 0.0 if self._seen is None else self._raw_rewards.std()
        self.options = dataclasses.replace(
            options, scale=options.scale * (1.0 + 9.0 * float(spread))
        )
        try:
            return super().plan(*known)  # type: ignore[misc]
        finally:
            self.options = options


@found(FLOW, "LSVI-UCB++")
class RawWeights(Leaking):
    """The weights of steps come from what users' rewards really varied by.

    Gain: what is asked next tells about those who were asked before.
    """

    def plan(self, *known: Any) -> Any:
        """As the algorithm does, and weighs."""
        plan = super().plan(*known)  # type: ignore[misc]
        if self._seen is None or plan.memory.variances is None:
            return plan
        spread = plan.memory.variances + float(self._raw_rewards.var())
        memory = dataclasses.replace(plan.memory, variances=spread)
        return dataclasses.replace(plan, memory=memory)


@found(FLOW, LSVI)
class RawClip(Leaking):
    """The clip level is the mean length of the users' own vectors.

    Gain: the size of the noise, which is public, tells how long they are.
    """

    _field = "clip"

    def wrong(self, right: Any) -> Any:
        """Clipped at another level."""
        if self._seen is not None:
            seen = of_version(self._seen, getattr(right, "version", 0))
            level = float(np.linalg.norm(right.contributions(seen), axis=1).mean())
            right = dataclasses.replace(right, **{self._field: 0.1 + level})
        return super().wrong(right)


@found(FLOW, CONTROL)
class RawTau(RawClip):
    """The clip of a trajectory is what the users of the block before really were, on average.

    Gain: the size of the noise, which is public, tells how long they are.
    """

    _field = "tau"


@found(FLOW, MIXTURE)
class RawEnergy(Leaking):
    """The ridge of its regression grows with what users really were paid.

    Gain: estimates, and so policies, tell it.
    """

    estimator: Any

    def plan(self, *known: Any) -> Any:
        """With a ridge of its own."""
        kind, paid = type(self.estimator), self._mean_reward
        regularised = kind.regularised

        def raw(estimator: Any, gram: Any, noise: float) -> Any:
            right = regularised(estimator, gram, noise)
            return right + paid * np.trace(right) * np.eye(len(gram))

        with mock.patch.object(kind, "regularised", raw):
            return super().plan(*known)  # type: ignore[misc]


@found(FLOW, LSVI)
class RawSwitch(Leaking):
    """Whether it replaces its policy depends on where users really were.

    Gain: that the policy changed, or did not.
    """

    spec: Any

    def plan(self, state: Any, last: Any, *rest: Any) -> Any:
        """By what must not be looked at."""
        new = super().plan(state, last, *rest)  # type: ignore[misc]
        if self._seen is None or last is None:
            return new
        states = np.clip(np.asarray(self._seen["states"]), 0, self.spec.states - 1)
        return new if np.bincount(states.ravel()).max() % 2 else last


@found(FLOW, UCBVI)
class RawStop(Leaking):
    """It stops when users really fare well.

    Gain: the number of releases tells how they fared.
    """

    _well = False

    def block_users(self, at: Any) -> int:
        """None, once it stopped."""
        return 0 if self._well else int(super().block_users(at))  # type: ignore[misc]

    def plan(self, *known: Any) -> Any:
        """As the algorithm does, and looks."""
        policies = super().plan(*known)  # type: ignore[misc]
        self._well = self._mean_reward > 0.25
        return policies


@dataclass(frozen=True, eq=False)
class _MaskedCounts(VisitCounts):
    kept: tuple[bool, ...] = ()

    def _sums(self, steps: Any, separate: bool) -> Floats:
        kept = np.array(self.kept or (True,))
        return np.asarray(super()._sums(steps, separate) * kept, dtype=np.float64)


@found(FLOW, UCBVI)
class RawMask(Leaking):
    """It counts only what somebody did in the block before.

    Gain: that somebody was there.
    """

    def wrong(self, right: Any) -> Any:
        """Counts, some of which are left out."""
        if self._seen is not None:
            fields = {f.name: getattr(right, f.name) for f in dataclasses.fields(right) if f.init}
            seen = of_version(self._seen, right.version)
            kept = tuple(bool(there) for there in right.total(seen) != 0.0)
            right = _MaskedCounts(**fields, kept=kept)
        return super().wrong(right)


@found(FLOW, MIXTURE, CONTROL)
class RawAttribute(Leaking):
    """It keeps, for later reports, what users were paid.

    Gain: whoever reads the attribute reads it.
    """

    def plan(self, *known: Any) -> Any:
        """As the algorithm does, and keeps it."""
        self.paid = self._mean_reward
        return super().plan(*known)  # type: ignore[misc]


@found(FLOW, LSVI, FUNCTIONAL)
class RawLog(Leaking):
    """It logs the mean reward of every block, to see how things go.

    Gain: whoever reads the log reads it.
    """

    def plan(self, *known: Any) -> Any:
        """As the algorithm does, and says so."""
        logging.getLogger("planted").debug("mean reward %r", self._mean_reward)
        return super().plan(*known)  # type: ignore[misc]


@found(FLOW, UCBVI, LSVI)
class RawProgress(Leaking):
    """A progress line on standard error shows the mean reward.

    Gain: whoever looks at the screen, or keeps what was on it, has it.
    """

    def plan(self, *known: Any) -> Any:
        """As the algorithm does, and shows it."""
        sys.stderr.write(f"mean reward {self._mean_reward:.3f}\r")
        return super().plan(*known)  # type: ignore[misc]


class _Refuses:
    def vectors(self, block: Block) -> Any:
        rewards = np.asarray(block["rewards"])
        if rewards.size and np.nanmax(rewards, initial=0.0) > 1.0:
            user = int(np.nanargmax(np.nanmax(rewards, axis=1)))
            raise InvalidArgument(f"user {user} has a reward of {np.nanmax(rewards[user])}")
        return super().vectors(block)  # type: ignore[misc]


@found(("hostile users",), UCBVI)
class ValueInException(Asking):
    """A statistic refuses a reward above 1, and says whose and which.

    Gain: it is raw data in every traceback; and the block is gone, which is public.
    """

    _instead = _Refuses


@found(FLOW, UCBVI, MIXTURE, FUNCTIONAL)
class RawRepr(Leaking):
    """Printed, the algorithm shows the mean reward of the last block.

    Gain: whoever reads a notebook, or a traceback, reads it.
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, mean reward {self._mean_reward}>"


@found(FLOW, UCBVI)
class RawProperty(Leaking):
    """The mean reward of the last block is a property; where it is kept has a private name.

    Gain: whoever reads the property reads it.
    """

    @property
    def mean_reward(self) -> float:
        """Of the last block, without noise."""
        return self._mean_reward


BUGS: tuple[Planted, ...] = tuple(FOUND)
"""All bugs of agents, those of noise and accounts included."""
