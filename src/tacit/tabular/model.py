"""Finite worlds: their probabilities, and exact values by dynamic programming.

L is the number of different steps: 1 for what does not depend on the step, else the horizon H.
S, A and m are the numbers of states, actions and reward values.

Rows are those of the actions that states allow, one behind the other (compressed rows), so memory
and time go with the number of possible transitions and not with S A S.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import Floats, check_bytes, fitting, numbers, whole_number
from tacit.tabular.policy import AnyPolicy, MixedPolicy, Policy, settle
from tacit.tabular.spec import TOLERANCE, FiniteSpec, check_distributions, check_reward_values


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
        horizon = whole_number("horizon", self.horizon)
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
        """Public facts, for agents."""
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
    def moves(self) -> OutcomeTable:
        """Next states, for samplers."""
        return OutcomeTable(self.transitions, "the simulator's transitions")

    @cached_property
    def first_states(self) -> OutcomeTable:
        """First states, for samplers, in one row."""
        return OutcomeTable(self.start[np.newaxis], "the simulator's first states")

    @cached_property
    def conditional_rewards(self) -> Floats:
        """(L, S, A, m), the probabilities of rewards given that they are no earlier one."""
        return conditional_chances(self.reward_probabilities)

    @property
    def chances(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """Arrays that samplers draw from: first states, next states and rewards."""
        first, moves = self.first_states, self.moves
        states = first.successors[0], first.cumulative[0], moves.successors, moves.cumulative
        return *states, self.cumulative_rewards, self.reward_values

    @cached_property
    def cumulative_rewards(self) -> Floats:
        """(L, S, A, m), the probabilities of rewards and those before them."""
        return cumulative_chances(self.reward_probabilities)


def check_policy(model: FiniteModel | SparseModel | FiniteSpec, policy: AnyPolicy) -> None:
    """Raises unless a policy is one for this world, and chooses only what states allow."""
    if not isinstance(policy, (Policy, MixedPolicy)):
        raise InvalidArgument(f"policy must be a tacit Policy, got {type(policy).__name__}")
    if policy.sizes != (needs := (model.horizon, model.states, model.actions)):
        raise InvalidArgument(
            f"policy is for another world: it has (horizon, states, actions) = {policy.sizes}, "
            f"this world has {needs}"
        )
    if model.allowed is None:
        return
    for step, state in np.argwhere((policy.table() * ~model.allowed).any(axis=2)).tolist():
        raise InvalidArgument(
            f"policy must choose actions that states allow, but not at step {step} in state {state}"
        )


def optimal(model: FiniteModel | SparseModel) -> tuple[Floats, Policy]:
    """The optimal values, (H + 1, S), and a deterministic policy: of equals it takes the first."""
    H, S = model.horizon, model.states
    V = np.zeros((H + 1, S))
    actions = np.zeros((H, S), dtype=np.int64)
    for h in range(H - 1, -1, -1):
        Q = model.mean_rewards_at(h) + model.transitions_at(h) @ V[h + 1]
        if model.allowed is not None:
            Q = np.where(model.allowed, Q, -np.inf)
        actions[h] = Q.argmax(axis=1)
        V[h] = Q.max(axis=1)
    return V, Policy.planned(actions, model)


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
class OutcomeTable:
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


Ints = NDArray[np.int64]


class SparseRows:
    """A table (S, A, S) of which only some entries are stored; what a dense one is asked for.

    >>> rows = SparseRows(csr_matrix([[0.0, 1.0], [0.5, 0.5]]), actions=1)
    >>> rows[1, 0].tolist(), (rows @ np.array([2.0, 4.0])).tolist()
    ([0.5, 0.5], [[4.0], [3.0]])
    """

    def __init__(self, table: Any, actions: int) -> None:
        self._table, self._actions = table, actions

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        """One dense row or number, or the sparse rows of several states and actions."""
        state, action, *target = index
        row = self._table[np.asarray(state) * self._actions + action]
        if np.ndim(state) or np.ndim(action):
            return row
        dense = row.toarray()[0]
        return dense[target[0]] if target else dense

    def __matmul__(self, values: Floats) -> Floats:
        """(S, A)."""
        product: Floats = (self._table @ values).reshape(-1, self._actions)
        return product


@dataclass(frozen=True, eq=False, repr=False)
class SparseModel:
    """A stationary finite world's possible transitions, one entry each, in any order.

    A state allows the actions that have entries. The entries of a state and an action have
    different targets, and their probabilities add up to 1.
    """

    states: int
    actions: int
    horizon: int
    source: Ints  # state before, (n,)
    action: Ints
    target: Ints  # state after
    probability: Floats
    reward: Floats  # of the transition, in [0, 1]
    start: Floats  # (S,)
    largest_return: float | None = None  # see FiniteSpec

    def __post_init__(self) -> None:
        names = ("states", "actions", "horizon")
        sizes = {name: whole_number(name, getattr(self, name)) for name in names}
        S, A = sizes["states"], sizes["actions"]
        check_bytes("values of all steps (horizon)", (sizes["horizon"] + 1, S))
        check_bytes("cells", (S, A))
        codes = {name: _codes(name, getattr(self, name)) for name in ("source", "action", "target")}
        reals = {name: numbers(name, getattr(self, name)) for name in ("probability", "reward")}
        shapes = {array.shape for array in (codes | reals).values()}
        if len(shapes) != 1 or len(shapes.pop()) != 1:
            raise InvalidArgument(f"{', '.join(codes | reals)} must have one entry per transition")
        for name, most in (("source", S), ("action", A), ("target", S)):
            if len(codes[name]) and not 0 <= codes[name].min() <= codes[name].max() < most:
                raise InvalidArgument(f"{name} must be in 0..{most - 1}")
        cells = codes["source"] * A + codes["action"]
        order = np.lexsort((codes["target"], cells))
        same = (np.diff(cells[order]) == 0) & (np.diff(codes["target"][order]) == 0)
        if same.any():
            raise InvalidArgument("a source, an action and a target must occur together only once")
        columns = codes | reals
        for name, column in columns.items():
            kind = np.int64 if name in codes else np.float64
            columns[name] = np.ascontiguousarray(column[order], dtype=kind)
        columns["probability"] = _probabilities(cells[order], columns["probability"], S * A)
        if not ((columns["reward"] >= 0) & (columns["reward"] <= 1)).all():
            raise InvalidArgument("reward must be in [0, 1]")
        columns["start"] = check_distributions("start", self.start, (S,))
        settle(self, **columns, **sizes)
        missing = np.flatnonzero(~self.allowed.any(axis=1))
        if len(missing):
            raise InvalidArgument(f"state {missing[0]} must allow an action: it has no transitions")

    @property
    def stationary(self) -> bool:
        """Always."""
        return True

    @cached_property
    def pointers(self) -> Ints:
        """Where the entries of every state and action begin, and the last ones end, (S A + 1,)."""
        cells = self.source * self.actions + self.action
        return np.searchsorted(cells, np.arange(self.states * self.actions + 1))

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """Whether a state allows an action, (S, A)."""
        table = np.zeros((self.states, self.actions), dtype=bool)
        table[self.source, self.action] = True
        return table

    @cached_property
    def spec(self) -> FiniteSpec:
        """Public facts, for agents."""
        values = check_reward_values(np.unique(np.append(self.reward, 0.0)))
        allowed = None
        if not self.allowed.all():
            allowed = tuple(tuple(np.flatnonzero(row).tolist()) for row in self.allowed)
        known: Any = {"reward_values": tuple(values.tolist()), "start": tuple(self.start.tolist())}
        known |= {"admissible": allowed, "largest_return": self.largest_return}
        return FiniteSpec(self.states, self.actions, self.horizon, stationary=True, **known)

    # What dense models are asked for as well.

    @cached_property
    def _rows(self) -> SparseRows:
        return SparseRows(self._matrix(self.probability), self.actions)

    @cached_property
    def transition_rewards(self) -> SparseRows:
        """The reward of every transition."""
        return SparseRows(self._matrix(self.reward), self.actions)

    @cached_property
    def _means(self) -> Floats:
        cells = self.source * self.actions + self.action
        paid = self.probability * self.reward
        sums = np.bincount(cells, paid, minlength=self.states * self.actions)
        means: Floats = sums.astype(np.float64).reshape(self.states, self.actions)
        return means

    def transitions_at(self, step: int) -> SparseRows:
        """(S, A, S), the same at every step."""
        return self._rows

    def mean_rewards_at(self, step: int) -> Floats:
        """(S, A), the same at every step."""
        return self._means

    @cached_property
    def cumulative(self) -> Floats:
        """P(this target or an earlier one of its row), (n,); exactly 1 at the last one."""
        sums = np.cumsum(self.probability)
        rows = np.flatnonzero(np.diff(self.pointers))
        first, last = self.pointers[rows], self.pointers[rows + 1] - 1
        before = np.repeat(sums[first] - self.probability[first], last - first + 1)
        chances: Floats = np.minimum(sums - before, 1.0)
        chances[last] = 1.0
        return chances

    @cached_property
    def chances(self) -> tuple[Any, Any, Any, Any, Any, Any, Any]:
        """Arrays that samplers of single users draw from."""
        first = np.flatnonzero(self.start).astype(np.int32)
        start: Floats = cumulative_chances(self.start[first])
        begins, ends = (
            np.ascontiguousarray(at.reshape(self.states, self.actions))
            for at in (self.pointers[:-1], self.pointers[1:])
        )
        return first, start, begins, ends, self.target, self.cumulative, self.reward

    def _matrix(self, values: Floats) -> Any:
        shape = (self.states * self.actions, self.states)
        return csr_matrix((values, self.target, self.pointers), shape=shape)


def _codes(name: str, values: ArrayLike) -> NDArray[Any]:
    array = numbers(name, values)
    if array.dtype.kind not in "iu":
        raise InvalidArgument(f"{name} must be whole numbers, got dtype {array.dtype}")
    return array


def _probabilities(cells: Ints, values: Floats, rows: int) -> Floats:
    """With the rounding of their sums removed; entries of probability 0 are refused."""
    if not ((values > 0) & (values <= 1.0 + TOLERANCE)).all():
        raise InvalidArgument("probability must be above 0 and at most 1: leave others out")
    sums = np.bincount(cells, values, minlength=rows)[cells]
    if not (np.abs(sums - 1.0) <= TOLERANCE).all():
        raise InvalidArgument(
            "the probabilities of a state and an action must add up to 1, but for one they add up "
            f"to {float(sums[np.argmax(np.abs(sums - 1.0))])}"
        )
    scaled: Floats = values / sums
    return scaled
