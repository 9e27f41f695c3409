"""Base of algorithms for finite worlds, whose policies are tables of states and actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from tacit.core.algorithm import Algorithm, Floats, S
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import check_bytes, positive

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.core.public_file import ReleasedModel
    from tacit.tabular.policy import MixedPolicy, Policy
    from tacit.tabular.spec import FiniteSpec

P = TypeVar("P", "Policy", "MixedPolicy")


class FiniteAlgorithm(Algorithm[S]):
    """An algorithm whose policies are tables."""

    knows_admissible: ClassVar[bool] = False
    """Whether it chooses only what states allow; others are for specs that allow everything."""

    def __init__(self, problem: Problem, options: Any) -> None:
        if getattr(problem.spec, "admissible", None) is not None and not self.knows_admissible:
            raise InvalidArgument(f"{self.name} ignores admissible: use policy_improvement")
        super().__init__(problem, options)

    def first_policy(self, rng: np.random.Generator) -> Policy:
        """Before anything is known: random actions, drawn once."""
        from tacit.tabular.policy import Policy

        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        return Policy.planned(rng.integers(0, A, (H, S)), self.spec)

    def best(self, q_values: Floats, rng: np.random.Generator) -> Policy:
        """The best actions by (H, S, A) values, ties broken at random, once."""
        from tacit.tabular.policy import Policy

        top = q_values == q_values.max(axis=-1, keepdims=True)
        ties = np.where(top, rng.random(q_values.shape), -1.0)
        return Policy.planned(ties.argmax(axis=-1), self.spec)

    def uniform(self) -> Policy:
        """All actions that a state allows alike."""
        from tacit.tabular.policy import uniform_policy

        return uniform_policy(self.spec)

    def held(self, policy: Policy, least: float, most: float) -> Policy:
        """Actions that a state allows, each with a chance in the range, if it allows several."""
        even = (uniform := self.uniform()).table()
        few = even.max(axis=-1, keepdims=True)  # one over how many actions there are
        part = np.maximum(least / few, (1.0 - most) / np.maximum(1.0 - few, 1e-9))
        part = np.where(few < 1.0, np.minimum(part, 1.0), 0.0)
        return uniform.stochastic(part * even + (1.0 - part) * policy.table())

    def mixture(self, policies: Sequence[Policy], chances: Floats) -> MixedPolicy:
        """A mixed policy."""
        from tacit.tabular.policy import MixedPolicy

        return self.named(MixedPolicy(policies, chances / chances.sum()))

    def named(self, policy: P) -> P:
        """The policy with the spec's labels, if it has any."""
        labels = [getattr(self.spec, f"{part}_labels", None) for part in ("state", "action")]
        return policy if labels == [None, None] else policy.labelled(*labels)


class CountingAlgorithm(FiniteAlgorithm[S]):
    """An algorithm that counts transitions, of all steps together or of each."""

    spec: FiniteSpec

    def __init__(self, problem: Problem, options: Any) -> None:
        spec: FiniteSpec = problem.spec
        if not hasattr(spec, "last_state"):
            raise InvalidArgument(f"spec must be FiniteSpec, got {spec!r}")
        self.stationary = spec.stationary if options.stationary is None else options.stationary
        self.shape = (spec.rows(self.stationary), spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*self.shape, spec.states))
        self.start = spec.first_states
        # In which form sums of simulated users come.
        self.sums_format = "pooled" if self.stationary and spec.last_state else "counts"
        super().__init__(problem, options)

    def simulator(self, state: S, draws: int, rng: np.random.Generator) -> ReleasedModel:
        """Draws of the world: transitions, and mean rewards, of all cells."""
        from tacit.core.public_file import ReleasedModel, published

        size, most = 8 * draws * self.spec.states * int(np.prod(self.shape)), published().MOST_BYTES
        if size > most // 2:
            raise InvalidArgument(
                f"{draws} draws of the world take {size:,} bytes, and may take {most // 2:,}"
            )
        P, r = zip(*(self.drawn_world(state, rng) for _ in range(draws)), strict=True)
        arrays = {"transitions": np.stack(P), "rewards": np.stack(r), "start": self.start}
        arrays["known"] = np.asarray(self.known_cells(state), dtype=np.float64)
        return ReleasedModel("finite", arrays, self.spec.horizon, self.spec.actions)

    @abstractmethod
    def drawn_world(self, state: S, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Transitions (L, S, A, S) and mean rewards (L, S, A) that may be true."""

    @abstractmethod
    def known_cells(self, state: S) -> Floats:
        """How far cells were visited, (L, S, A), from 0 to 1; the others are guesses."""


@dataclass(frozen=True, kw_only=True)
class OptimismOptions:
    """Options of optimistic algorithms: ``scale`` multiplies the bonus."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)
