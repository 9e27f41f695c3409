"""Asking for rewards and planning, where states and actions are public."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.statistics.clipped_sums import RewardSums
from tacit.continuous.statistics.steps import parts_of, steps_of
from tacit.core.asks import Arrays
from tacit.privacy.curators.gate import Release
from tacit.privacy.statistic import Block, Floats

if TYPE_CHECKING:
    from tacit.continuous.fitted_functional_q import FittedFunctionalQ


# Sweeps of values, at most, and when they stop.
_SWEEPS = 500
_STILL = 1e-6


class PublicTransitions:
    """Users' rewards with noise, and plans on transitions that everybody can see.

    Attributes:
        columns: what users leave public.
        known: sums: ``counts``, ``moves`` and ``ends`` of what everybody can see, and ``rewards``,
            noisy, with the ``variance`` of that noise.
    """

    columns = ("states", "actions", "lengths")

    def __init__(self, algorithm: FittedFunctionalQ) -> None:
        self._algorithm = algorithm
        self.known: Arrays = {}

    @property
    def protects(self) -> str:
        """A user's rewards, or one reward function that is to look like another nearby."""
        return self.statistic().protects

    def statistic(self) -> RewardSums:
        """Users' rewards alone."""
        of, H = self._algorithm, self._algorithm.spec.horizon
        everybody = of.options.protect == "reward_function"
        clip = of.constants.reward_clip * math.sqrt(H)
        if everybody or not math.isfinite(of.mu):
            # Nobody is longer than that.
            clip = H * float(np.linalg.norm(of.basis.root, axis=1).max())
        if of.options.clip != "auto":
            clip = of.options.clip
        zeros = np.zeros_like(of.weights)
        return RewardSums(
            of.spec,
            of.features,
            of.basis.root,
            zeros,
            zeros,
            clip=clip,
            discount=0.0,
            centre=of.units.centre,
            unit=of.units.unit,
            ending=0.0 if of.ends else None,
            radius=of.options.radius,
            group_size=of.users if everybody else 1,
        )

    def take_in(self, release: Release) -> Floats:
        """Adds a block; Q for what is known then."""
        variance = np.array(float(np.max(release.std["residuals"])) ** 2)
        new = self._moments(release.public)
        new |= {"rewards": np.array(release["residuals"]), "variance": variance}
        # A sum of arrays without axes is no array.
        self.known = {name: np.asarray(self.known.get(name, 0.0) + new[name]) for name in new}
        return self._plan(self.belief()[0])

    def _moments(self, public: Mapping[str, NDArray[Any]]) -> Arrays:
        """Sums over public steps, by action, of features times features, and times the next ones.

        At an end the next ones are zero, and features are summed by themselves.
        """
        spec, features = self._algorithm.spec, self._algorithm.features
        A, m = spec.actions, features.size
        counts, moves, ends = np.zeros((A, m, m)), np.zeros((A, m, m)), np.zeros((A, m))
        users = len(public["states"])
        # Rewards are private: not even whether they are numbers is known here.
        blind = np.full((users, spec.horizon), spec.reward_range[0])
        block = Block(users, {**public, "rewards": blind})
        for _, part in parts_of(block, spec.horizon * m):
            steps = steps_of(part, spec)
            here_and_there = features(steps.states)
            for action in range(A):
                own = steps.valid & (steps.actions == action)
                going, over = own & ~steps.ended, own & steps.ended & self._algorithm.ends
                here, there = here_and_there[:, :-1], here_and_there[:, 1:]
                moves[action] += here[going].T @ there[going]
                counts[action] += here[going].T @ here[going] + here[over].T @ here[over]
                ends[action] += here[over].sum(axis=0)
        return {"counts": counts, "moves": moves, "ends": ends}

    def belief(self) -> tuple[Floats, Floats]:
        """The posterior mean and standard deviation of expected rewards, each (actions, m)."""
        known, constants = self.known, self._algorithm.constants
        root, prior = self._algorithm.basis.root, self._algorithm.basis.prior
        shape = (len(known["counts"]), len(root))
        means, stds = np.zeros(shape), np.zeros(shape)
        for action, counts in enumerate(known["counts"]):
            across = constants.prior_reward * root.T @ counts @ prior
            noise = constants.noise**2 * root.T @ counts @ root
            noise += (float(known["variance"]) + 1e-6) * np.eye(root.shape[1])
            gain = np.linalg.solve(noise + across @ across.T, across).T
            scaled = constants.prior_reward * prior
            means[action] = scaled @ (gain @ known["rewards"][action])
            left = np.eye(prior.shape[1]) - gain @ across
            stds[action] = np.sqrt(np.maximum(((scaled @ left) * scaled).sum(axis=1), 0.0))
        return means, stds

    def _plan(self, rewards: Floats) -> Floats:
        """Q for the rewards that are believed and the transitions that everybody can see."""
        basis, discount = self._algorithm.basis, self._algorithm.discount
        prior = basis.prior
        grams = prior.T @ self.known["counts"] @ prior + np.eye(prior.shape[1])
        changed = prior.T @ (self.known["moves"] - self.known["counts"])
        changes = prior @ np.linalg.solve(grams, changed)
        if self._algorithm.units.ending is not None:
            ended = prior @ np.linalg.solve(grams, (self.known["ends"] @ prior)[..., np.newaxis])
            rewards = rewards + discount * self._algorithm.units.ending * ended[..., 0]
        value, weights = np.zeros(len(prior)), np.zeros_like(rewards)
        for _ in range(_SWEEPS):
            weights = rewards + discount * (value + changes @ value)
            new = np.clip(basis.value(weights)[0], *self._algorithm.units.value_range)
            moved, value = float(np.abs(new - value).max()), new
            if moved < _STILL:
                break
        return weights
