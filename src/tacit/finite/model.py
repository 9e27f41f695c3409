"""Finite worlds: their probabilities, and exact values by dynamic programming.

L is the number of different steps: 1 for what does not depend on the step, else the horizon H.
S, A and m are the numbers of states, actions and reward values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.data.sizes import Floats, check_bytes, check_size
from tacit.finite.mixed_policy import AnyPolicy, MixedPolicy
from tacit.finite.policy import Policy
from tacit.finite.spec import (
    TOLERANCE,
    FiniteSpec,
    check_distributions,
    check_reward_values,
    settle,
)
from tacit.privacy.arguments import fitting
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.finite.sparse import SparseModel


@dataclass(frozen=True, eq=False, repr=False)
class FiniteModel:
    """A finite world's probabilities, checked, as read-only arrays."""

    transitions: Floats  # (L, S, A, S), with L = 1 or the horizon
    reward_probabilities: Floats  # (L, S, A, m), with its own L
    reward_values: Floats  # (m,), in [0, 1]
    start: Floats  # (S,)
    horizon: int  # steps of an episode
    # (S, A, S), where the reward is decided by the transition, or ``None`` where it is independent
    # of the next state. It is for stationary models, and ``reward_probabilities`` are still what it
    # implies for a state and an action
    transition_rewards: Floats | None = None
    states: int = field(init=False)
    actions: int = field(init=False)

    def __post_init__(self) -> None:
        horizon = check_size("horizon", self.horizon)
        shape = np.shape(self.transitions)
        if len(shape) != 4 or shape[1] != shape[3] or shape[0] not in (1, horizon) or 0 in shape:
            raise InvalidArgument(
                f"transitions must have shape (1 or {horizon}, S, A, S), got {shape}"
            )
        values = check_reward_values(self.reward_values)
        given = np.shape(self.reward_probabilities)
        rows = (*shape[1:3], len(values))
        if len(given) != 4 or given[0] not in (1, horizon) or given[1:] != rows:
            raise InvalidArgument(
                f"reward_probabilities must have shape (1 or {horizon}, "
                f"{shape[1]}, {shape[2]}, {len(values)}), got {given}"
            )
        check_bytes("transitions", shape)
        check_bytes("values of all steps (horizon)", (horizon + 1, shape[1]))
        shapes = {"transitions": shape, "reward_probabilities": given, "start": (shape[1],)}
        fields = {n: check_distributions(n, getattr(self, n), of) for n, of in shapes.items()}
        sizes = {"horizon": horizon, "states": int(shape[1]), "actions": int(shape[2])}
        settle(self, reward_values=values, **fields, **sizes)
        if self.transition_rewards is not None:
            settle(self, transition_rewards=_transition_rewards(self, self.transition_rewards))

    @property
    def allowed(self) -> None:
        """All states allow all actions."""
        return None

    @property
    def stationary(self) -> bool:
        """Whether transitions and rewards are the same at every step."""
        return len(self.transitions) == 1 and len(self.reward_probabilities) == 1

    @cached_property
    def mean_rewards(self) -> Floats:
        """(L, S, A)."""
        means: Floats = self.reward_probabilities @ self.reward_values
        means.setflags(write=False)
        return means

    @cached_property
    def spec(self) -> FiniteSpec:
        """What an agent may know of it."""
        values, start = (tuple(array.tolist()) for array in (self.reward_values, self.start))
        return FiniteSpec(self.states, self.actions, self.horizon, self.stationary, values, start)

    def transitions_at(self, step: int) -> Floats:
        """(S, A, S) at a step."""
        table: Floats = self.transitions[min(step, len(self.transitions) - 1)]
        return table

    def mean_rewards_at(self, step: int) -> Floats:
        """(S, A) at a step."""
        table: Floats = self.mean_rewards[min(step, len(self.mean_rewards) - 1)]
        return table

    @cached_property
    def moves(self) -> Outcomes:
        """Next states, for samplers."""
        return Outcomes(self.transitions, "the simulator's transitions")

    @cached_property
    def first_states(self) -> Outcomes:
        """First states, for samplers, in one row."""
        return Outcomes(self.start[np.newaxis], "the simulator's first states")

    @cached_property
    def conditional_rewards(self) -> Floats:
        """(L, S, A, m), the probabilities of rewards given that they are no earlier one."""
        return conditional_chances(self.reward_probabilities)

    @property
    def chances(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """What samplers of single users draw from: first states, next states and rewards."""
        first, moves = self.first_states, self.moves
        states = first.successors[0], first.cumulative[0], moves.successors, moves.cumulative
        return *states, self.cumulative_rewards, self.reward_values

    @cached_property
    def cumulative_rewards(self) -> Floats:
        """(L, S, A, m), the probabilities of rewards and those before them."""
        return cumulative_chances(self.reward_probabilities)

    def __repr__(self) -> str:
        kind = "stationary" if self.stationary else "not stationary"
        return (
            f"<FiniteModel: {self.states} states, {self.actions} actions, "
            f"{self.horizon} steps, {kind}>"
        )


def optimal(model: FiniteModel | SparseModel) -> tuple[Floats, Policy]:
    """The optimal values, (H + 1, S), and a deterministic policy: of equals it takes the first."""
    H, S, A = model.horizon, model.states, model.actions
    V = np.zeros((H + 1, S))
    actions = np.zeros((H, S), dtype=np.int64)
    for h in range(H - 1, -1, -1):
        Q = model.mean_rewards_at(h) + model.transitions_at(h) @ V[h + 1]
        if model.allowed is not None:
            Q = np.where(model.allowed, Q, -np.inf)
        actions[h] = Q.argmax(axis=1)
        V[h] = Q.max(axis=1)
    return V, Policy.deterministic(actions, A)


def policy_values(model: FiniteModel | SparseModel, policy: Policy) -> Floats:
    """The values of a policy from each step and state on, (H + 1, S)."""
    check_policy(model, policy)
    H, S = model.horizon, model.states
    V = np.zeros((H + 1, S))
    everywhere = np.arange(S)
    for h in range(H - 1, -1, -1):
        P, R = model.transitions_at(h), model.mean_rewards_at(h)
        if policy.actions is not None:
            taken = policy.actions[h]
            V[h] = R[everywhere, taken] + P[everywhere, taken] @ V[h + 1]
        else:
            V[h] = ((R + P @ V[h + 1]) * policy.table()[h]).sum(axis=1)
    return V


def evaluate(model: FiniteModel | SparseModel, policy: AnyPolicy) -> float:
    """The expected sum of rewards of one episode under a policy, exactly."""
    if isinstance(policy, MixedPolicy):
        parts = zip(policy.weights.tolist(), policy.components, strict=True)
        return float(sum(weight * evaluate(model, part) for weight, part in parts if weight > 0))
    return float(model.start @ policy_values(model, policy)[0])


def uniform_policy(spec: FiniteSpec, version: int = 0) -> Policy:
    """All actions that a state allows with the same probability."""
    if spec.allowed is None:
        return Policy.uniform(spec.horizon, spec.states, spec.actions, version)
    rows = spec.allowed / spec.allowed.sum(axis=1, keepdims=True)
    return Policy.stochastic(np.broadcast_to(rows, (spec.horizon, *rows.shape)), version)


def check_policy(model: FiniteModel | SparseModel | FiniteSpec, policy: AnyPolicy) -> None:
    """Raises unless a policy is one for this world, and chooses only what states allow."""
    if not isinstance(policy, (Policy, MixedPolicy)):
        raise InvalidArgument(f"policy must be a tacit Policy, got {type(policy).__name__}")
    has = (policy.horizon, policy.states, policy.n_actions)
    needs = (model.horizon, model.states, model.actions)
    if has != needs:
        raise InvalidArgument(
            f"policy is for another world: it has (horizon, states, actions) = {has}, "
            f"this world has {needs}"
        )
    allowed = model.allowed
    if allowed is None:
        return
    if isinstance(policy, MixedPolicy):
        for part in policy.components:
            check_policy(model, part)
        return
    if policy.actions is not None:
        bad = np.asarray(~allowed[np.arange(model.states), policy.actions])
    else:
        bad = np.asarray((policy.table() * ~allowed).any(axis=2))
    if bad.any():
        step, state = np.argwhere(bad)[0].tolist()
        raise InvalidArgument(
            f"policy must choose actions that states allow, but not at step {step} in state {state}"
        )


def _transition_rewards(model: FiniteModel, values: ArrayLike) -> Floats:
    """A copy that says the same as the model's reward probabilities."""
    shape = (model.states, model.actions, model.states)
    table = np.array(fitting("transition_rewards", values), dtype=np.float64)
    if not model.stationary or table.shape != shape:
        raise InvalidArgument(
            f"transition_rewards must have shape {shape} and belong to a stationary model, "
            f"got shape {table.shape}"
        )
    P = model.transitions[0]
    for value, probability in zip(
        model.reward_values, np.moveaxis(model.reward_probabilities[0], -1, 0), strict=True
    ):
        bad = np.argwhere(np.abs((P * (table == value)).sum(axis=2) - probability) > TOLERANCE)
        if len(bad):
            state, action = bad[0].tolist()
            raise InvalidArgument(
                f"transition_rewards at state {state}, action {action} must be distributed as "
                f"reward_probabilities say, but the probability of {value} differs"
            )
    return table


# Probabilities in the form that samplers need.


class Outcomes:
    """Sparse rows of probabilities in the form that samplers need.

    ``successors`` (..., K) are the K most probable outcomes of every row, all that are possible
    among them, in falling order: a draw then seldom looks at more than a few. No sampler ever
    returns an outcome of probability zero, whatever the rounding: it would be an impossible
    transition, and a billion users find every gap.
    """

    def __init__(self, probabilities: Floats, name: str) -> None:
        self._probabilities = probabilities
        K = int(np.count_nonzero(probabilities, axis=-1).max())
        self._shape = (*probabilities.shape[:-1], K)
        check_bytes(name, self._shape, 20)
        self.successors = np.empty(self._shape, dtype=np.int32)
        self._sorted = np.empty(self._shape)
        # Row by row of the first axes: the sort's temporary arrays are as large as their input.
        for index in np.ndindex(probabilities.shape[:-2]):
            rows = probabilities[index]
            order = np.argsort(-rows, axis=-1, kind="stable")[..., :K]
            self.successors[index] = order
            self._sorted[index] = np.take_along_axis(rows, order, axis=-1)

    @cached_property
    def cumulative(self) -> Floats:
        """P(this or an earlier outcome)."""
        return cumulative_chances(self._sorted)

    @cached_property
    def conditional(self) -> Floats:
        """P(this outcome | none of the earlier ones)."""
        return conditional_chances(self._sorted)


def conditional_chances(probabilities: Floats) -> Floats:
    """P(this outcome | none of the earlier ones), along the last axis."""
    # Tails are summed from the end, so that the last possible outcome has exactly 1.
    tails = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    conditional: Floats = np.divide(
        probabilities, tails, out=np.zeros(probabilities.shape), where=tails > 0
    )
    return conditional


def cumulative_chances(probabilities: Floats) -> Floats:
    """P(this or an earlier outcome), along the last axis; 1 from the last possible one on."""
    cumulative = np.minimum(np.cumsum(probabilities, axis=-1), 1.0)
    possible = probabilities > 0
    last = probabilities.shape[-1] - 1 - np.argmax(possible[..., ::-1], axis=-1)
    cumulative[np.arange(probabilities.shape[-1]) >= last[..., np.newaxis]] = 1.0
    return cumulative
