"""Finite worlds: simulated users whose probabilities, and so whose optimum, are known exactly.

What the families with finitely many states and actions have in common. Their worlds differ in how
they are described and in what an agent may know of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.core.world import Form
from tacit.data.episodes import Episodes
from tacit.data.sizes import Floats, check_bytes, numbers
from tacit.finite.mixed_policy import AnyPolicy
from tacit.finite.model import FiniteModel, evaluate, optimal, uniform_policy
from tacit.finite.policy import Policy
from tacit.finite.simulate import (
    simulate_counts,
    simulate_episodes,
    simulate_occupancy,
    simulate_streamed,
)
from tacit.finite.sparse import SparseModel
from tacit.finite.spec import FiniteSpec, check_distributions
from tacit.privacy.arguments import fitting
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.statistic import Block


FORMS: tuple[str, ...] = get_args(Form)
"""What such a world hands over."""

SPARSE_FORMS = ("episodes", "streamed")
"""The same where only possible transitions are stored: sums would have S A S entries."""


ROUNDING = 1e-9
"""What an exact product of features and weights may lack by rounding."""

BERNOULLI: Floats = np.array([0.0, 1.0])
BERNOULLI.setflags(write=False)


class FiniteWorld:
    """A world with finitely many states and actions; built-in ones have names that rebuild them."""

    _reference = 0.0
    _valued: FiniteModel | None = None
    units = (0.0, 1.0)
    """What a value of the model is in the world's own units: the first, plus the second times it;
    they differ where rewards were rescaled."""

    def __init__(self, model: FiniteModel, name: str) -> None:
        self.model = model
        self.name = name

    def _become(self, world: Any) -> None:
        """Has the users of another world, however its rewards are drawn."""
        self.model, self._valued = model_of(world), getattr(world, "_valued", None)
        self._reference = float(getattr(world, "reference_value", 0.0))
        self.units = getattr(world, "units", self.units)

    def _sizes(self) -> dict[str, Any]:
        """What all specs of finite worlds say."""
        names = ("states", "actions", "horizon", "reward_values", "start")
        return {name: getattr(self.model.spec, name) for name in names}

    @property
    def spec(self) -> FiniteSpec:
        """What an agent may know."""
        return self.model.spec

    @property
    def valued(self) -> FiniteModel:
        """The model that values are of: the one that users live in, unless agents see another."""
        return self._valued or self.model

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """See :class:`~tacit.core.world.World`; what sums cost does not grow with the users."""
        forms = SPARSE_FORMS if isinstance(self.model, SparseModel) else FORMS
        if form not in forms:
            raise InvalidArgument(f"form must be one of {forms} in this world, got {form!r}")
        if form == "episodes":
            return simulate_episodes(self.model, policy, users, rng)
        if form == "streamed":
            return simulate_streamed(self.model, policy, users, rng)
        if form == "occupancy":
            return simulate_occupancy(self.model, policy, users, rng)
        return simulate_counts(self.model, policy, users, rng, pooled=form == "pooled")

    def value(self, policy: AnyPolicy) -> float:
        """The expected sum of rewards of an episode under a policy, exactly."""
        return float(self.returns(evaluate(self.valued, policy)))

    def returns(self, values: Any) -> Any:
        """Values of the model in the world's own units."""
        return self.units[0] + self.units[1] * values

    @property
    def optimal_value(self) -> float:
        """The largest value that any policy has."""
        return self._optimal[0]

    @property
    def optimal_policy(self) -> Policy:
        """A policy that has it."""
        return self._optimal[1]

    @property
    def reference_value(self) -> float:
        """The zero point of losses: no reward at all."""
        return self._reference

    @cached_property
    def baseline_value(self) -> float:
        """The value of acting uniformly at random, as far as states allow."""
        return self.value(uniform_policy(self.spec))

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"<{type(self).__name__} {self.name!r}: {spec.states} states, {spec.actions} actions, "
            f"{spec.horizon} steps>"
        )

    @cached_property
    def _optimal(self) -> tuple[float, Policy]:
        V, policy = optimal(self.valued)
        return float(self.returns(self.valued.start @ V[0])), policy


# What descriptions of worlds consist of.


def model_of(world: Any) -> FiniteModel:
    """The probabilities of a world, or a world's probabilities themselves."""
    model = world if isinstance(world, FiniteModel) else getattr(world, "model", None)
    if not isinstance(model, FiniteModel):
        raise InvalidArgument(
            f"world must be a FiniteModel or have one, got {type(world).__name__}"
        )
    return model


def weighed(name: str, steps: Iterable[Floats], shape: tuple[int, ...]) -> Floats:
    """Transitions that features and weights make, step by step, but for what rounding adds."""
    check_bytes("transitions", shape)
    P = np.empty(shape)
    for h, step in enumerate(steps):
        P[h] = step
    P[(P < 0) & (P >= -ROUNDING)] = 0.0
    return check_distributions(name, P, shape)


def bernoulli(name: str, means: Floats) -> Floats:
    """The probabilities of the rewards 0 and 1, (L, S, A, 2), from their means, (L, S, A)."""
    bad = np.argwhere(~((means >= 0) & (means <= 1)))
    if len(bad):
        step, state, action = bad[0].tolist()
        raise InvalidArgument(
            f"{name} at step {step}, state {state}, action {action} must be in [0, 1], "
            f"got {means[step, state, action]}"
        )
    return np.stack([1.0 - means, means], axis=-1)


def start_distribution(start: Any, states: int) -> NDArray[Any]:
    """The distribution of the first state, from itself or from a single state."""
    if np.ndim(fitting("start", start)) > 0:
        return numbers("start", start)
    if isinstance(start, bool) or not isinstance(start, (int, np.integer)):
        raise InvalidArgument(f"start must be a state or a distribution of states, got {start!r}")
    if not 0 <= start < states:
        raise InvalidArgument(f"start must be a state in 0..{states - 1}, got {start!r}")
    distribution = np.zeros(states)
    distribution[start] = 1.0
    return distribution
