"""Finite worlds: exact values by dynamic programming, and exact simulation of blocks of users.

All simulators draw from the same distribution. :func:`simulate_episodes` follows users one by
one. :func:`simulate_counts` draws how many of a block's users go where, which is all that
statistics linear in the counts need: while a policy is fixed, users are independent, so the users
in a state split over actions, rewards and next states by multinomials. Its cost does not grow
with the number of users. :func:`simulate_occupancy` does the same for policies that leave no choice
of action, and keeps no counts of the others.

L is the number of different steps: 1 for what does not depend on the step, else the horizon H.
S, A and m are the numbers of states, actions and reward values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.finite.policy import Policy
from tacit.privacy.arguments import fitting, flag
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block

if TYPE_CHECKING:
    from tacit.core.episodes import Episodes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Arrays above this are refused before they are allocated.
MOST_BYTES = 4 * 2**30
MOST_SIZE = 10**12
# Within this, samplers of binomials and sums in float64 are exact to the last user.
MOST_USERS = 10**12

_TOLERANCE = 1e-8

# In place of the table that a policy does not have. Read-only as policies are, so that kernels are
# compiled once.
_NO_ACTIONS = np.zeros((1, 1), dtype=np.int64)
_NO_ACTIONS.setflags(write=False)
_NO_CHOICES = np.zeros((1, 1, 1))


@dataclass(frozen=True)
class FiniteSpec:
    """What an agent may know of a finite world.

    Attributes:
        states: how many.
        actions: how many.
        horizon: steps of an episode.
        stationary: whether transitions and rewards are the same at every step.
        reward_values: the values that a reward can have, in [0, 1].
        start: the distribution of the first state, or ``None`` if it is not known.

    >>> FiniteSpec(states=6, actions=2, horizon=20, stationary=True).reward_values
    (0.0, 1.0)
    """

    states: int
    actions: int
    horizon: int
    stationary: bool
    reward_values: tuple[float, ...] = (0.0, 1.0)
    start: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("states", "actions", "horizon"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        values = tuple(_reward_values(self.reward_values).tolist())
        object.__setattr__(self, "reward_values", values)
        if self.start is not None:
            start = check_distributions("start", self.start, (self.states,))
            object.__setattr__(self, "start", tuple(start.tolist()))


@dataclass(frozen=True, eq=False, repr=False)
class FiniteModel:
    """A finite world's probabilities, checked, as read-only arrays.

    Attributes:
        transitions: (L, S, A, S), with L = 1 or the horizon.
        reward_probabilities: (L, S, A, m), with its own L.
        reward_values: (m,), in [0, 1].
        start: (S,).
        horizon: steps of an episode.
        transition_rewards: (S, A, S), where the reward is decided by the transition, or ``None``
            where it is independent of the next state. It is for stationary models, and
            ``reward_probabilities`` are still what it implies for a state and an action.
    """

    transitions: Floats
    reward_probabilities: Floats
    reward_values: Floats
    start: Floats
    horizon: int
    transition_rewards: Floats | None = None

    def __post_init__(self) -> None:
        horizon = check_size("horizon", self.horizon)
        shape = np.shape(self.transitions)
        if len(shape) != 4 or shape[1] != shape[3] or shape[0] not in (1, horizon) or 0 in shape:
            raise InvalidArgument(
                f"transitions must have shape (1 or {horizon}, S, A, S), got {shape}"
            )
        values = _reward_values(self.reward_values)
        given = np.shape(self.reward_probabilities)
        if (
            len(given) != 4
            or given[0] not in (1, horizon)
            or given[1:] != (*shape[1:3], len(values))
        ):
            raise InvalidArgument(
                f"reward_probabilities must have shape (1 or {horizon}, "
                f"{shape[1]}, {shape[2]}, {len(values)}), got {given}"
            )
        check_bytes("transitions", shape)
        check_bytes("values of all steps (horizon)", (horizon + 1, shape[1]))
        fields = {
            "transitions": check_distributions("transitions", self.transitions, shape),
            "reward_probabilities": check_distributions(
                "reward_probabilities", self.reward_probabilities, given
            ),
            "reward_values": values,
            "start": check_distributions("start", self.start, (shape[1],)),
        }
        for name, array in fields.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "horizon", horizon)
        if self.transition_rewards is not None:
            table = _transition_rewards(self, self.transition_rewards)
            object.__setattr__(self, "transition_rewards", table)

    @property
    def states(self) -> int:
        """How many states."""
        return int(self.transitions.shape[1])

    @property
    def actions(self) -> int:
        """How many actions."""
        return int(self.transitions.shape[2])

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
        return FiniteSpec(
            states=self.states,
            actions=self.actions,
            horizon=self.horizon,
            stationary=self.stationary,
            reward_values=tuple(self.reward_values.tolist()),
            start=tuple(self.start.tolist()),
        )

    def transitions_at(self, step: int) -> Floats:
        """(S, A, S) at a step."""
        table: Floats = self.transitions[min(step, len(self.transitions) - 1)]
        return table

    def mean_rewards_at(self, step: int) -> Floats:
        """(S, A) at a step."""
        table: Floats = self.mean_rewards[min(step, len(self.mean_rewards) - 1)]
        return table

    @cached_property
    def _moves(self) -> _Outcomes:
        return _Outcomes(self.transitions, "the simulator's transitions")

    @cached_property
    def _first(self) -> _Outcomes:
        return _Outcomes(self.start[np.newaxis], "the simulator's first states")

    @cached_property
    def _conditional_rewards(self) -> Floats:
        return _conditional(self.reward_probabilities)

    @cached_property
    def _cumulative_rewards(self) -> Floats:
        return _cumulative(self.reward_probabilities)

    def __repr__(self) -> str:
        kind = "stationary" if self.stationary else "not stationary"
        return (
            f"<FiniteModel: {self.states} states, {self.actions} actions, "
            f"{self.horizon} steps, {kind}>"
        )


# Dynamic programming.


def optimal(model: FiniteModel) -> tuple[Floats, Policy]:
    """The optimal values, (H + 1, S), and a deterministic policy that has them.

    Of equally good actions the policy takes the first.
    """
    H, S, A = model.horizon, model.states, model.actions
    V = np.zeros((H + 1, S))
    actions = np.zeros((H, S), dtype=np.int64)
    for h in range(H - 1, -1, -1):
        Q = model.mean_rewards_at(h) + model.transitions_at(h) @ V[h + 1]
        actions[h] = Q.argmax(axis=1)
        V[h] = Q.max(axis=1)
    return V, Policy.deterministic(actions, A)


def policy_values(model: FiniteModel, policy: Policy) -> Floats:
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


def evaluate(model: FiniteModel, policy: Policy) -> float:
    """The expected sum of rewards of one episode under a policy, exactly."""
    return float(model.start @ policy_values(model, policy)[0])


def occupancy(model: FiniteModel, policy: Policy) -> Floats:
    """The probability to be in each state at each step, (H, S)."""
    check_policy(model, policy)
    H, S = model.horizon, model.states
    d = np.zeros((H, S))
    d[0] = model.start
    everywhere = np.arange(S)
    for h in range(H - 1):
        P = model.transitions_at(h)
        if policy.actions is not None:
            d[h + 1] = d[h] @ P[everywhere, policy.actions[h]]
        else:
            taken = d[h][:, np.newaxis] * policy.table()[h]
            d[h + 1] = taken.reshape(-1) @ P.reshape(-1, S)
    return d


# Simulation.


def simulate_counts(
    model: FiniteModel,
    policy: Policy,
    users: int,
    rng: np.random.Generator,
    pooled: bool = False,
) -> Block:
    """How often a block's users did what: exact in distribution, at a cost free of ``users``.

    Args:
        model: the world.
        policy: what every user of the block follows.
        users: how many, at most 10^12.
        rng: the randomness of users and world.
        pooled: sum over steps, without making the array of every step.

    Returns:
        An aggregate block of ``transitions``, (H, S, A, S) int64, how many users went from s by a
        to s' at a step, and ``rewards``, (H, S, A) float64, the sum of their rewards there. The
        first axis has length 1 when ``pooled``.
    """
    from tacit.finite.simulate_loops import sum_rewards

    check_policy(model, policy)
    steps = 1 if pooled else model.horizon
    shape = (steps, model.states, model.actions, model.states)
    check_bytes("transitions of a block (pooled=True makes them smaller)", shape)
    transitions = np.zeros(shape, dtype=np.int64)
    visits = _count_moves(model, policy, users, rng, transitions)
    rewards = np.zeros(shape[:3])
    if model.transition_rewards is not None:
        for step in range(steps):
            rewards[step] = (transitions[step] * model.transition_rewards).sum(axis=2)
    else:
        if pooled and len(model.reward_probabilities) == 1:
            # The sum of binomials with one probability is a binomial.
            visits = visits.sum(axis=0, keepdims=True)
        sum_rewards(rng, visits, model._conditional_rewards, model.reward_values, rewards)
    return Block(int(users), {"transitions": transitions, "rewards": rewards}, aggregate=True)


def simulate_occupancy(
    model: FiniteModel, policy: Policy, users: int, rng: np.random.Generator
) -> Block:
    """How often a block's users did what, where a deterministic policy says what they do.

    What :func:`simulate_counts` draws, without the actions that nobody takes: an array smaller by
    the number of actions, at a cost free of ``users``.

    Args:
        model: the world.
        policy: what every user of the block follows; deterministic.
        users: how many, at most 10^12.
        rng: the randomness of users and world.

    Returns:
        An aggregate block of ``actions``, (H, S) int64, those of the policy; ``transitions``,
        (H, S, S) int64, how many users went from s by the policy's action to s' at a step; and
        ``rewards``, (H, S) float64, the sum of their rewards there.

    Raises:
        InvalidArgument: the policy is stochastic.
    """
    from tacit.finite.simulate_loops import sum_rewards

    check_policy(model, policy)
    actions = check_deterministic(policy)
    H, S = model.horizon, model.states
    check_bytes("transitions of a block", (H, S, S))
    transitions = np.zeros((H, S, 1, S), dtype=np.int64)
    visits = _count_moves(model, policy, users, rng, transitions)
    rewards = np.zeros((H, S, 1))
    everywhere = np.arange(S)
    if model.transition_rewards is not None:
        for step, taken in enumerate(actions):
            paid = model.transition_rewards[everywhere, taken]
            rewards[step, :, 0] = (transitions[step, :, 0] * paid).sum(axis=1)
    else:
        paying = np.minimum(np.arange(H), len(model.reward_probabilities) - 1)[:, np.newaxis]
        table = model._conditional_rewards[paying, everywhere, actions]
        sum_rewards(rng, visits, table[:, :, np.newaxis], model.reward_values, rewards)
    return occupancy_block(users, actions, transitions, rewards)


def occupancy_block(users: int, actions: Ints, transitions: Ints, rewards: Floats) -> Block:
    """What users of a deterministic policy did, from arrays with an axis of only one action."""
    arrays = {
        "actions": actions,
        "transitions": transitions[:, :, 0],
        "rewards": rewards[:, :, 0],
    }
    return Block(int(users), arrays, aggregate=True)


def simulate_episodes(
    model: FiniteModel, policy: Policy, users: int, rng: np.random.Generator
) -> Episodes:
    """Users one by one: states (n, H + 1), actions and rewards (n, H), with the policy's version.

    The distribution is that of :func:`simulate_counts`. The loop is compiled on first use.
    """
    from tacit.core.episodes import Episodes
    from tacit.finite.simulate_loops import roll_out

    check_policy(model, policy)
    users = check_users(users)
    H = model.horizon
    check_bytes("episodes of a block", (users, 3 * H + 2))
    states = np.empty((users, H + 1), dtype=np.int64)
    actions = np.empty((users, H), dtype=np.int64)
    rewards = np.empty((users, H))
    deterministic = policy.actions is not None
    roll_out(
        rng,
        model._first.successors[0],
        model._first.cumulative[0],
        model._moves.successors,
        model._moves.cumulative,
        model._cumulative_rewards,
        model.reward_values,
        deterministic,
        _NO_ACTIONS if policy.actions is None else policy.actions,
        _NO_CHOICES if deterministic else _cumulative(policy.table()),
        states,
        actions,
        rewards,
    )
    if model.transition_rewards is not None:
        rewards = model.transition_rewards[states[:, :-1], actions, states[:, 1:]]
    versions = np.full(users, policy.version, dtype=np.int64)
    return Episodes(states=states, actions=actions, rewards=rewards, versions=versions)


def _count_moves(
    model: FiniteModel,
    policy: Policy,
    users: int,
    rng: np.random.Generator,
    transitions: Ints,
) -> Ints:
    """Fills transitions, (H or 1, S, A or 1, S); returns visits, (H, S, A or 1)."""
    from tacit.finite.simulate_loops import count_moves

    users = check_users(users)
    visits = np.zeros((model.horizon, *transitions.shape[1:3]), dtype=np.int64)
    deterministic = policy.actions is not None
    count_moves(
        rng,
        users,
        model._first.successors[0],
        model._first.conditional[0],
        model._moves.successors,
        model._moves.conditional,
        deterministic,
        _NO_ACTIONS if policy.actions is None else policy.actions,
        _NO_CHOICES if deterministic else _conditional(policy.table()),
        visits,
        transitions,
    )
    return visits


class _Outcomes:
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
        return _cumulative(self._sorted)

    @cached_property
    def conditional(self) -> Floats:
        """P(this outcome | none of the earlier ones)."""
        return _conditional(self._sorted)


def _conditional(probabilities: Floats) -> Floats:
    # Tails are summed from the end, so that the last possible outcome has exactly 1.
    tails = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    conditional: Floats = np.divide(
        probabilities, tails, out=np.zeros(probabilities.shape), where=tails > 0
    )
    return conditional


def _cumulative(probabilities: Floats) -> Floats:
    cumulative = np.minimum(np.cumsum(probabilities, axis=-1), 1.0)
    possible = probabilities > 0
    last = probabilities.shape[-1] - 1 - np.argmax(possible[..., ::-1], axis=-1)
    cumulative[np.arange(probabilities.shape[-1]) >= last[..., np.newaxis]] = 1.0
    return cumulative


# Checks.


def check_policy(model: FiniteModel | FiniteSpec, policy: Policy) -> None:
    """Raises unless a policy is one for this world."""
    if not isinstance(policy, Policy):
        raise InvalidArgument(f"policy must be a tacit Policy, got {type(policy).__name__}")
    has = (policy.horizon, policy.states, policy.n_actions)
    needs = (model.horizon, model.states, model.actions)
    if has != needs:
        raise InvalidArgument(
            f"policy is for another world: it has (horizon, states, actions) = {has}, "
            f"this world has {needs}"
        )


def check_deterministic(policy: Policy) -> Ints:
    """The actions of a policy, (H, S), which must be deterministic."""
    if policy.actions is None:
        raise InvalidArgument(
            "policy must be deterministic where only its own actions are counted, "
            "but it is stochastic"
        )
    return policy.actions


def check_users(users: int) -> int:
    """A number of users, at most 10^12."""
    if isinstance(users, bool) or not isinstance(users, (int, np.integer)):
        raise InvalidArgument(f"users must be an integer, got {users!r}")
    if not 0 <= users <= MOST_USERS:
        raise InvalidArgument(f"users must be in 0..{MOST_USERS}, got {users!r}")
    return int(users)


def check_size(name: str, value: int) -> int:
    """An integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InvalidArgument(f"{name} must be an integer >= 1, got {value!r}")
    if value > MOST_SIZE:
        raise InvalidArgument(f"{name} must be at most {MOST_SIZE:,}, got {value!r}")
    return int(value)


def check_seed(name: str, value: int) -> int:
    """An integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InvalidArgument(f"{name} must be an integer >= 0, got {value!r}")
    return int(value)


def check_bytes(name: str, shape: tuple[int, ...], itemsize: int = 8) -> None:
    """Refuses an array that would not fit, before it is allocated."""
    needed = math.prod(shape) * itemsize
    if needed > MOST_BYTES:
        raise InvalidArgument(
            f"{name} of shape {tuple(shape)} would need {needed:,} bytes "
            f"({(needed >> 20) / 1024 if needed < 2**90 else math.inf:.1f} GiB); at most "
            f"{MOST_BYTES:,} are allowed"
        )


def _reward_values(values: ArrayLike) -> Floats:
    try:
        array = np.array(fitting("reward_values", values), dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.zeros(0)
    good = array.ndim == 1 and bool(((array >= 0) & (array <= 1)).all())
    if not good or not 0 < len(array) == len(set(array.tolist())):
        raise InvalidArgument(f"reward_values must be different numbers in [0, 1], got {values!r}")
    return array


def check_distributions(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """A copy whose last axis holds probabilities, with the rounding of their sums removed."""
    array = np.asarray(fitting(name, values))
    if array.shape != shape or array.dtype.kind not in "iuf":
        raise InvalidArgument(
            f"{name} must be numbers of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    sums = array.sum(axis=-1, dtype=np.float64)
    # A row with a NaN fails the comparison of its sum.
    good = (array.min(axis=-1) >= 0) & (np.abs(sums - 1.0) <= _TOLERANCE)
    if not good.all():
        index = tuple(np.argwhere(~good)[0].tolist()) if good.ndim else ()
        raise InvalidArgument(_bad_row(name, index, array[index], float(sums[index])))
    # Samplers take rows for granted that lie one behind the other.
    result: Floats = np.divide(array, sums[..., np.newaxis], order="C")
    return result


def _bad_row(name: str, index: tuple[int, ...], row: NDArray[Any], total: float) -> str:
    words = ("step", "state", "action") if index else ()
    where = ", ".join(f"{word} {i}" for word, i in zip(words, index, strict=True))
    place = f"{name} at {where}" if where else name
    negative = np.flatnonzero(row < 0)
    if len(negative):
        first = int(negative[0])
        return f"{place} must be probabilities, but entry {first} is {float(row[first])}"
    return f"{place} must be probabilities with sum 1, but the sum is {total}"


def _transition_rewards(model: FiniteModel, values: ArrayLike) -> Floats:
    """A read-only copy that says the same as the model's reward probabilities."""
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
        bad = np.argwhere(np.abs((P * (table == value)).sum(axis=2) - probability) > _TOLERANCE)
        if len(bad):
            state, action = bad[0].tolist()
            raise InvalidArgument(
                f"transition_rewards at state {state}, action {action} must be distributed as "
                f"reward_probabilities say, but the probability of {value} differs"
            )
    table.setflags(write=False)
    return table
