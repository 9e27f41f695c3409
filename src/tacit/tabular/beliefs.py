"""What return sums say about values and actions: normal beliefs, state by state.

R is the largest return. Steps fall into F phases. A state's value in a phase has a normal belief;
so has each action's advantage over the others there. Sums of n visits with noise of standard
deviation s and a variance v per visit are n times what they measure, with variance s^2 + n v, so
they weigh n^2 / (s^2 + n v).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.asks import Arrays
from tacit.finite.policy import softmax

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BeliefConstants:
    """Chosen on sparse_mdp with 100 to 700 states, seeds 300 to 314; in units of R where it fits.

    They say what is expected before anything is known, and how fast it is forgotten.
    """

    values: float = 0.2  # standard deviation of states' values around their mean
    value_drift: float = 0.05  # and of what a new policy changes
    spread: float = 0.45  # of a single return
    advantages: float = 0.03  # standard deviation of advantages
    advantage_drift: float = 0.003  # and of what a new policy changes
    value_split: float = 0.05  # of what tells phases apart that were one: values
    advantage_split: float = 0.005  # and advantages
    residual: float = 0.15  # standard deviation of what followed a single step
    sharpness: float = 1.0  # how fast an action is given up, by standard deviations


class Beliefs:
    """Values and advantages, and how sure they are. All of it is made of releases.

    Attributes:
        values: V(s), (F, S).
        visits: of the last block's users, by state, (F, S).
        advantages: of actions within a state, (F, S, A), up to a constant.
        precision: one over their variance.
    """

    _ARRAYS = ("values", "value_precision", "visits", "advantages", "precision")

    def __init__(self, allowed: Bools, largest: float, constants: BeliefConstants) -> None:
        self.allowed, self.largest, self.constants = allowed, largest, constants
        self.values = np.full((1, len(allowed)), largest / 2.0)
        self.value_precision = np.zeros((1, len(allowed)))
        self.visits = np.ones((1, len(allowed)))
        self.advantages = np.zeros((1, *allowed.shape))
        self.precision = np.full((1, *allowed.shape), (constants.advantages * largest) ** -2.0)

    def split(self, times: int) -> None:
        """Each phase becomes several, about which the same is believed, a little less surely."""
        for name in self._ARRAYS:
            setattr(self, name, np.repeat(getattr(self, name), times, axis=0))
        R, constants = self.largest, self.constants
        self.value_precision = _drifted(self.value_precision, constants.value_split * R)
        self.precision = _drifted(self.precision, constants.advantage_split * R)

    # What is heard.

    def hear_values(self, returns: Floats, visits: Floats, noise: float) -> None:
        """Sums of returns less R / 2, and of visits, by phase and state, (F, S)."""
        R, constants = self.largest, self.constants
        n = np.maximum(visits, 1.0)
        if not self.value_precision.any():
            self.values[:] = np.clip(R / 2.0 + returns.sum() / n.sum(), 0.0, R)
            self.value_precision[:] = (constants.values * R) ** -2.0
        variance = noise**2 + n * (constants.spread * R) ** 2
        self.value_precision = self.value_precision + n**2 / variance
        missing = n * (returns - n * (self.values - R / 2.0)) / variance
        self.values = np.clip(self.values + missing / self.value_precision, 0.0, R)
        self.visits = n

    def hear_advantages(self, sums: Floats, behaviour: Floats, noise: float) -> None:
        """Sums of what followed each action, (F, S, A), under a behaviour's probabilities.

        A state's own offset, by which all its actions are off alike, is unknown. Its best estimate
        weighs each action by how much is known of it, before and now, and is taken off.
        """
        n = self.visits[..., np.newaxis] * behaviour
        variance = noise**2 + n * (self.constants.residual * self.largest) ** 2
        heard = np.divide(n**2, variance, out=np.zeros(n.shape), where=self.allowed & (n > 0))
        means = np.divide(sums, n, out=np.zeros(n.shape), where=heard > 0)
        gap = means - self.advantages
        weights = heard * self.precision / (heard + self.precision)
        total = weights.sum(axis=-1, keepdims=True)
        offset = (weights * gap).sum(axis=-1, keepdims=True) / np.where(total > 0, total, 1.0)
        self.precision = self.precision + heard
        self.advantages = self.advantages + heard * (gap - offset) / self.precision

    # What follows.

    def greedy(self, ties: Floats) -> Ints:
        """The best actions, (F, S); random numbers ``ties`` (F, S, A) decide between equals."""
        scores = np.where(self.allowed, self.advantages, -np.inf)
        top = scores == scores.max(axis=-1, keepdims=True)
        best: Ints = np.where(top, ties, -1.0).argmax(axis=-1)
        return best

    def exploring(self, best: Ints) -> Floats:
        """Actions with probabilities that fall with how surely they are worse than the best."""
        at = best[..., np.newaxis]
        lead = self.advantages - np.take_along_axis(self.advantages, at, axis=-1)
        variance: Floats = 1.0 / self.precision
        deviation = np.sqrt(variance + np.take_along_axis(variance, at, axis=-1))
        return softmax(np.where(self.allowed, self.constants.sharpness * lead / deviation, -np.inf))

    def follow(self, old: Floats, new: Floats) -> None:
        """Users follow another policy from now on: values change, and are less sure."""
        R, constants = self.largest, self.constants
        gained = ((new - old) * self.advantages).sum(axis=-1)
        self.values = np.clip(self.values + gained, 0.0, R)
        self.value_precision = _drifted(self.value_precision, constants.value_drift * R)
        self.precision = _drifted(self.precision, constants.advantage_drift * R)

    # Save and resume.

    def dump(self) -> Arrays:
        """For a save."""
        return {name: np.array(getattr(self, name)) for name in self._ARRAYS}

    def restore(self, arrays: Arrays) -> None:
        """The inverse of :meth:`dump`."""
        for name in self._ARRAYS:
            mine, saved = getattr(self, name), np.array(arrays[name], dtype=np.float64)
            if saved.ndim != mine.ndim or saved.shape[1:] != mine.shape[1:]:
                raise ValueError(f"{name} has shape {saved.shape}, and not that of {mine.shape}")
            setattr(self, name, saved)


def _drifted(precision: Floats, deviation: float) -> Floats:
    """The precision after a change of that standard deviation; nothing known stays so."""
    drifted: Floats = precision / (1.0 + precision * deviation**2)
    return drifted
