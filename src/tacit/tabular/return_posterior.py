"""What return sums say about values and actions: a normal posterior, state by state.

R is the largest return. Steps fall into F phases. A state's value in a phase is normal; so is each
action's advantage over the others there. Sums of n visits with noise of standard deviation s and a
variance v per visit are n times what they measure, with variance s^2 + n v, so they weigh
n^2 / (s^2 + n v).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.finite.policy import softmax

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PosteriorConstants:
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


@dataclass(frozen=True, eq=False)
class ReturnPosterior:
    """Values and advantages, and how sure they are. All of it is made of releases.

    Attributes:
        allowed: Which actions states allow, (S, A).
        largest: R.
        constants: Of the prior, and of what is forgotten.
        values: V(s), (F, S).
        value_precision: One over their variance; 0 before any release.
        visits: Of the last block's users, by state, (F, S).
        advantages: Of actions within a state, (F, S, A), up to a constant.
        precision: One over their variance.
    """

    allowed: Bools
    largest: float
    constants: PosteriorConstants
    values: Floats
    value_precision: Floats
    visits: Floats
    advantages: Floats
    precision: Floats

    @classmethod
    def prior(
        cls, allowed: Bools, largest: float, constants: PosteriorConstants
    ) -> ReturnPosterior:
        """Before any release, of one phase."""
        of_states, of_actions = (1, len(allowed)), (1, *allowed.shape)
        return cls(
            allowed,
            largest,
            constants,
            values=np.full(of_states, largest / 2.0),
            value_precision=np.zeros(of_states),
            visits=np.ones(of_states),
            advantages=np.zeros(of_actions),
            precision=np.full(of_actions, (constants.advantages * largest) ** -2.0),
        )

    @property
    def informed(self) -> bool:
        """Whether there was a release."""
        return bool(self.value_precision.any())

    # With a release.

    def with_values(self, returns: Floats, visits: Floats, noise: float) -> ReturnPosterior:
        """With sums of returns less R / 2, and of visits, by phase and state, (F, S)."""
        R, constants = self.largest, self.constants
        n = np.maximum(visits, 1.0)
        values, precision = self.values, self.value_precision
        if not self.informed:
            mean = np.clip(R / 2.0 + returns.sum() / n.sum(), 0.0, R)
            values = np.full(values.shape, mean)
            precision = np.full(precision.shape, (constants.values * R) ** -2.0)
        variance = noise**2 + n * (constants.spread * R) ** 2
        precision = precision + n**2 / variance
        missing = n * (returns - n * (values - R / 2.0)) / variance
        values = np.clip(values + missing / precision, 0.0, R)
        return replace(self, values=values, value_precision=precision, visits=n)

    def with_advantages(self, sums: Floats, behaviour: Floats, noise: float) -> ReturnPosterior:
        """With sums of what followed each action, (F, S, A), under a behaviour's probabilities.

        A state's own offset, by which all its actions are off alike, is unknown. Its best estimate
        weighs each action by how much is known of it, before and now, and is taken off.
        """
        n = self.visits[..., np.newaxis] * behaviour
        variance = noise**2 + n * (self.constants.residual * self.largest) ** 2
        new = np.divide(n**2, variance, out=np.zeros(n.shape), where=self.allowed & (n > 0))
        means = np.divide(sums, n, out=np.zeros(n.shape), where=new > 0)
        gap = means - self.advantages
        weights = new * self.precision / (new + self.precision)
        total = weights.sum(axis=-1, keepdims=True)
        offset = (weights * gap).sum(axis=-1, keepdims=True) / np.where(total > 0, total, 1.0)
        precision = self.precision + new
        advantages = self.advantages + new * (gap - offset) / precision
        return replace(self, advantages=advantages, precision=precision)

    # Policies.

    def greedy(self, ties: Floats) -> Ints:
        """The best actions, (F, S); random numbers ``ties`` (F, S, A) decide between equals."""
        scores = np.where(self.allowed, self.advantages, -np.inf)
        top = scores == scores.max(axis=-1, keepdims=True)
        best: Ints = np.where(top, ties, -1.0).argmax(axis=-1)
        return best

    def exploring(self) -> Floats:
        """Actions with probabilities that fall with how surely they are worse than the best."""
        at = self.greedy(np.zeros(self.advantages.shape))[..., np.newaxis]
        lead = self.advantages - np.take_along_axis(self.advantages, at, axis=-1)
        variance: Floats = 1.0 / self.precision
        deviation = np.sqrt(variance + np.take_along_axis(variance, at, axis=-1))
        return softmax(np.where(self.allowed, self.constants.sharpness * lead / deviation, -np.inf))

    def under(self, old: Floats, new: Floats) -> ReturnPosterior:
        """When users follow another behaviour: values change, and are less sure.

        Args:
            old: Probabilities (F, S, A) that it is about.
            new: Those of the next block, in as many phases or in several times as many, each of
                which knows what the whole did, a little less surely.
        """
        R, c, times = self.largest, self.constants, len(new) // len(old)
        gained = ((new[::times] - old) * self.advantages).sum(axis=-1)
        arrays = {
            "values": np.clip(self.values + gained, 0.0, R),
            "value_precision": _drifted(self.value_precision, c.value_drift * R),
            "visits": self.visits,
            "advantages": self.advantages,
            "precision": _drifted(self.precision, c.advantage_drift * R),
        }
        if times > 1:
            arrays = {name: np.repeat(array, times, axis=0) for name, array in arrays.items()}
            for name, drift in (
                ("value_precision", c.value_split),
                ("precision", c.advantage_split),
            ):
                arrays[name] = _drifted(arrays[name], drift * R)
        return replace(self, **arrays)


def _drifted(precision: Floats, deviation: float) -> Floats:
    """The precision after a change of that standard deviation; nothing known stays so."""
    drifted: Floats = precision / (1.0 + precision * deviation**2)
    return drifted
