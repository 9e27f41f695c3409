"""Specs of trials: decisions of a person, actions with their chances, and times of reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import checked_number, numbers, positive, whole_number

LOOKS = (0.4, 1.0)
"""Usual times of a person's reports, as shares of her decisions."""


@dataclass(frozen=True)
class TrialSpec:
    """Public knowledge of a trial: people who each make many decisions, drawn with known chances.

    A person's episode is her whole history so far. At each look, after a fixed number of decisions,
    she sends all of it; a look is a block, with one place for each person. Features need no bound,
    and rewards need no range: what counts of a person is a vector of length at most 1.

    Attributes:
        horizon: decisions of a person, H.
        dimension: numbers that describe a decision, d; contexts are one-hot. What is to have an
            average effect needs a one among them.
        actions: how many there are, numbered from 0.
        probabilities: least and largest chance of an action. With more than two actions each has
            the least one at least.
        looks: when people report, as shares of their decisions; the last one is 1.
        gram: guessed mean of f f', (d, d); by default features are equally large and unrelated.
        memory: for so many decisions an action may matter: rewards of these count for it.
        usual_reward: public guess of a reward, for a person's first decisions.
        reward_scale: public guess of the range of rewards; intervals alone need it.

    >>> spec = TrialSpec(horizon=140, dimension=8)
    >>> spec.edges
    (56, 140)
    """

    horizon: int
    dimension: int
    actions: int = 2
    probabilities: tuple[float, float] = (0.2, 0.8)
    looks: tuple[float, ...] = LOOKS
    gram: tuple[tuple[float, ...], ...] | None = None
    memory: int = 1
    usual_reward: float = 0.5
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("horizon", 1), ("dimension", 1), ("actions", 2)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least))
        memory = whole_number("memory", self.memory, most=self.horizon)
        object.__setattr__(self, "memory", memory)
        usual = checked_number("usual_reward", self.usual_reward, "a finite number", np.isfinite)
        object.__setattr__(self, "usual_reward", usual)
        object.__setattr__(self, "reward_scale", positive("reward_scale", self.reward_scale))
        object.__setattr__(self, "probabilities", _range(self.probabilities, self.actions))
        object.__setattr__(self, "looks", _looks(self.looks, self.horizon))
        if self.gram is not None:
            found = numbers("gram", self.gram).astype(np.float64)
            square = found.shape == (self.dimension, self.dimension)
            if not square or not np.isfinite(found).all() or not np.allclose(found, found.T):
                raise InvalidArgument(f"gram must be a symmetric matrix of {self.dimension} rows")
            if np.linalg.eigvalsh(found)[0] < 0.0 or np.trace(found) <= 0.0:
                raise InvalidArgument("gram must be positive semidefinite, and not zero")
            object.__setattr__(self, "gram", tuple(tuple(row) for row in found.tolist()))

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """Decisions that a person has made at each look."""
        return tuple(max(1, round(look * self.horizon)) for look in self.looks)

    @property
    def design(self) -> Floats:
        """Guessed mean of f f', of trace 1: only its shape matters."""
        gram = np.eye(self.dimension) if self.gram is None else np.array(self.gram)
        return np.asarray(gram / np.trace(gram))


def _range(given: Sequence[float], actions: int) -> tuple[float, float]:
    """Least and largest chance of an action."""
    found, even = numbers("probabilities", given).tolist(), 1.0 / actions
    right = np.shape(found) == (2,) and 0.0 < found[0] <= even <= found[1] < 1.0
    if not right or (actions == 2 and abs(sum(found) - 1.0) > 1e-9):
        raise InvalidArgument(
            f"probabilities must be (least, largest) around {even:.3g}, and of two actions add up "
            f"to 1, got {given}"
        )
    return found[0], found[1]


def _looks(given: Sequence[float], horizon: int) -> tuple[float, ...]:
    """Shares of a history, increasing to 1, each with more decisions than the one before."""
    looks = numbers("looks", given).astype(np.float64)
    edges = np.maximum(1, np.round(looks * horizon))
    right = looks.ndim == 1 and looks.size and looks[-1] == 1.0 and looks[0] > 0.0
    if not right or not (np.diff(edges) > 0).all():
        raise InvalidArgument(
            f"looks must increase to 1, each with more of {horizon} decisions, as {LOOKS}: "
            f"got {given}"
        )
    return tuple(looks.tolist())
