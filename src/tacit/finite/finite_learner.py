"""What the agents of finite worlds share: policies that are tables of states and actions."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from tacit.core.learner import Arrays, Asked, Floats, Learner
from tacit.finite.policy import Policy


class Sizes(Protocol):
    """What every agent knows of a finite world."""

    @property
    def states(self) -> int:
        """How many."""
        ...

    @property
    def actions(self) -> int:
        """How many."""
        ...

    @property
    def horizon(self) -> int:
        """Steps of an episode."""
        ...


class FiniteLearner(Learner[Asked, Policy]):
    """A learner whose policies are tables; see :class:`tacit.core.learner.Learner`."""

    deterministic: ClassVar[bool] = True
    spec: Sizes

    def _first_policy(self) -> Policy:
        """Before anything is known: random actions, drawn once, or all with the same chance."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        if self.deterministic:
            return Policy.deterministic(self._rng.integers(0, A, (H, S)), A, version=0)
        return Policy.uniform(H, S, A)

    def _best(self, q_values: Floats) -> Policy:
        """The best actions by (H, S, A) values, ties broken at random, once."""
        ties = np.where(
            q_values == q_values.max(axis=-1, keepdims=True), self._rng.random(q_values.shape), -1.0
        )
        return Policy.deterministic(ties.argmax(axis=-1), self.spec.actions, version=self.releases)

    # Save and resume.

    def _policy_arrays(self, policy: Policy) -> Arrays:
        return {"table": np.array(policy.table() if policy.actions is None else policy.actions)}

    def _policy_of(self, arrays: Arrays, version: int) -> Policy:
        table = arrays["table"]
        if table.ndim == 2:
            return Policy.deterministic(table, self.spec.actions, version=version)
        # Not Policy.stochastic, which divides by the sums again: it must be the same to the bit.
        return Policy(table, None, version)
