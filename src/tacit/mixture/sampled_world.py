"""Mixtures of simulators: simulated users in worlds with many states, of which no table is made."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tacit.core.sizes import Floats
from tacit.finite.sparse import SparseModel
from tacit.finite.world import FiniteWorld
from tacit.mixture.sampled_spec import SampledSpec


class SampledWorld(FiniteWorld):
    """A world of possible transitions, and base models that agents have as simulators only.

    Args:
        model: what users do.
        spec: what agents know.
        weights: theta, (d,), which they do not.
        name: what it is called.
    """

    exchangeable_actions = False
    model: Any

    def __init__(self, model: SparseModel, spec: SampledSpec, weights: Floats, name: str) -> None:
        dense: Any = model
        super().__init__(dense, name)
        self._spec, self.weights = spec, weights

    @property
    def spec(self) -> SampledSpec:
        """What an agent may know."""
        return self._spec

    @cached_property
    def uninformed_value(self) -> float:
        """The value of the best policy for the centre of the weights: of learning nothing."""
        from tacit.core.algorithm import Progress
        from tacit.core.problem import Problem
        from tacit.mixture.linopt_sampled import LinOptSampled, LinOptSampledOptions
        from tacit.privacy.models import NonPrivate

        problem = Problem(self.spec, 1, NonPrivate())
        algorithm = LinOptSampled(problem, LinOptSampledOptions())
        first = algorithm.plan(algorithm.init(), None, Progress(), problem.rng())
        return self.value(first.greedy)
