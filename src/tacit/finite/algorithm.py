"""What algorithms for finite worlds share: policies that are tables of states and actions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit.core.algorithm import Algorithm, Floats
from tacit.core.asks import Arrays
from tacit.finite.policy import Policy


class FiniteAlgorithm(Algorithm[Policy]):
    """An algorithm whose policies are tables."""

    deterministic: ClassVar[bool] = True

    def _first_policies(self) -> tuple[Policy, Policy]:
        """Before anything is known: random actions, drawn once, or all with the same chance."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        first = Policy.uniform(H, S, A)
        if self.deterministic:
            first = Policy.deterministic(self.rng.integers(0, A, (H, S)), A, version=0)
        return first, first

    def best(self, q_values: Floats) -> Policy:
        """The best actions by (H, S, A) values, ties broken at random, once."""
        ties = np.where(
            q_values == q_values.max(axis=-1, keepdims=True), self.rng.random(q_values.shape), -1.0
        )
        return Policy.deterministic(ties.argmax(axis=-1), self.spec.actions, version=self.releases)

    # Save and resume.

    def policy_arrays(self, policy: Policy) -> Arrays:
        """The table, or the actions where there is one for each state."""
        return {"table": np.array(policy.table() if policy.actions is None else policy.actions)}

    def policy_of(self, arrays: Arrays, version: int) -> Policy:
        """The inverse, to the bit."""
        table = arrays["table"]
        if table.ndim == 2:
            return Policy.deterministic(table, self.spec.actions, version=version)
        # Not Policy.stochastic, which divides by the sums again: it must be the same to the bit.
        return Policy(table, None, version)
