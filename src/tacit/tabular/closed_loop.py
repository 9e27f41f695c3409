"""Agent and users in one compiled loop, for the baseline that plans after every user.

Without privacy and with a release after each episode, a run is nothing but short steps: an episode,
its counts, a plan. Through :meth:`~tacit.tabular.ucbvi.UCBVI.learn` each of them passes the gate,
which costs more than the work itself. Here all of them run in one loop, with the same estimates,
bonus and random ties; what differs is the order in which sums are rounded and ties are drawn.

The users are those of :func:`tacit.finite.simulate.simulate_episodes`, one by one. After each part
of the run its counts pass the gate as one block, and the agent itself plans the policy that comes
next, so that it stands where it would stand had it learnt step by step.

Cells are ordered by action, then state, and labels of actions are the world's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from tacit.core.schedule import every_episode
from tacit.finite.model import FiniteModel, check_policy
from tacit.finite.policy import Policy
from tacit.finite.simulate_loops import roll_out
from tacit.finite.spec import MOST_BYTES
from tacit.finite.visits import VisitCounts
from tacit.numerics.compiled import compiled
from tacit.privacy.models import NonPrivate
from tacit.privacy.statistic import Block
from tacit.simulation.run import PermutedWorld
from tacit.tabular.ucbvi import UCBVI
from tacit.tabular.world import TabularWorld

if TYPE_CHECKING:
    from tacit.simulation.run import World

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Actions = NDArray[np.int16]
F = TypeVar("F", bound=Callable[..., object])

# A part of a run keeps the policies of all its users: at most so many bytes, and so many users.
_PART_BYTES = 1 << 25
_PART_USERS = 4096
# Once more than one next state in so many was seen, whole rows are faster than lists.
_DENSE = 6
# Policies that are evaluated at once; more would only take memory.
_AT_ONCE = 128
_NO_TABLE = np.zeros((1, 1, 1))


@dataclass(frozen=True, eq=False)
class Part:
    """Users who were served in one go, each by a policy of her own.

    Attributes:
        model: their world.
        policies: (n, H, S), the policy that served each user, in the world's own labels.
        greedy: (n, H, S), the greedy policy that was published beside it.
    """

    model: FiniteModel
    policies: Actions
    greedy: Actions

    @property
    def users(self) -> int:
        """How many."""
        return len(self.policies)

    def values(self) -> tuple[Floats, Floats]:
        """The exact values of ``policies`` and of ``greedy``."""
        return values_of(self.model, self.policies), values_of(self.model, self.greedy)


def values_of(model: FiniteModel, policies: NDArray[Any]) -> Floats:
    """The exact value of each of many deterministic policies, (n, H, S).

    As :func:`tacit.finite.model.evaluate`, for all of them at once; what repeats the policy before
    it is not evaluated again.
    """
    n, H, S = policies.shape
    fresh = np.ones(n, dtype=bool)
    fresh[1:] = (policies[1:] != policies[:-1]).any(axis=(1, 2))
    different = np.flatnonzero(fresh)
    found = np.empty(len(different))
    first_cells = model.actions * np.arange(S)[:, np.newaxis]
    for begin in range(0, len(different), _AT_ONCE):
        some = different[begin : begin + _AT_ONCE]
        V = np.zeros((S, len(some)))
        for h in range(H - 1, -1, -1):
            cells = first_cells + policies[some, h].T
            Q = model.transitions_at(h).reshape(-1, S) @ V
            Q += model.mean_rewards_at(h).reshape(-1, 1)
            V = Q[cells, np.arange(len(some))]
        found[begin : begin + _AT_ONCE] = model.start @ V
    values: Floats = found[np.cumsum(fresh) - 1]
    return values


def play(agent: UCBVI, world: World, rng: np.random.Generator) -> Iterator[Part] | None:
    """Serves all users that are left, part by part; ``None`` where only single steps will do.

    It will not do unless the agent is :class:`UCBVI` itself, not private, with the practical bonus
    and a release after every user, and the users are those of a :class:`FiniteModel`.

    Args:
        agent: is up to date with every part that was yielded.
        world: the users, perhaps with other labels of actions.
        rng: the users' randomness; that of ties is the agent's.
    """
    labels = np.arange(agent.spec.actions)
    if isinstance(world, PermutedWorld):
        labels, world = np.array(world.permutation), world.world
    # Somebody's own agent or world may do more at every step than is done here.
    if (
        type(agent) is not UCBVI
        or not isinstance(agent.privacy, NonPrivate)
        or agent.bonus != "practical"
        or agent.calibration != "tight"
        or agent.schedule.blocks != every_episode(agent.users)
        or agent._with_ids
        or not isinstance(world, TabularWorld)
        or type(world).simulate is not TabularWorld.simulate
        or type(world).value is not TabularWorld.value
        or agent.spec.actions > np.iinfo(np.int16).max
        # Counts by cell and the estimates from them, beside the agent's own.
        or 8 * agent.evidence.transitions.nbytes > MOST_BYTES
    ):
        return None
    check_policy(world.model, agent.policy)
    return _parts(agent, world.model, labels, rng)


def _parts(
    agent: UCBVI, model: FiniteModel, labels: Ints, rng: np.random.Generator
) -> Iterator[Part]:
    H, S = agent.spec.horizon, agent.spec.states
    size = min(_PART_USERS, max(1, _PART_BYTES // (4 * H * S)))
    while (left := agent.users - agent.served) > 0:
        policies = np.empty((min(size, left), H, S), dtype=np.int16)
        greedy = np.empty_like(policies)
        _serve(agent, model, labels, rng, policies, greedy)
        yield Part(model, policies, greedy)


def _serve(
    agent: UCBVI,
    model: FiniteModel,
    labels: Ints,
    rng: np.random.Generator,
    policies: Actions,
    greedy: Actions,
) -> None:
    """Serves as many users as ``policies`` has room for, and brings the agent up to date."""
    evidence, constants = agent.evidence, agent.constants
    L, S, A = evidence.rewards.shape
    of_world = np.argsort(labels)  # the agent's label of the world's action
    before = evidence.transitions[:, :, of_world], evidence.rewards[:, :, of_world]
    # (L, A S, S) and (L, A S), contiguous, since the loop is compiled for that.
    counts = np.array(before[0].transpose(0, 2, 1, 3), order="C").reshape(L, A * S, S)
    sums = np.array(before[1].transpose(0, 2, 1), order="C").reshape(L, A * S)
    reached = np.zeros((L, A * S), dtype=bool)
    policies[0] = labels[_actions(agent.policy)]
    greedy[0] = labels[_actions(agent.greedy_policy)]
    # What was learnt elsewhere may be impossible in this world.
    room = int(np.count_nonzero(counts, axis=-1).max()) + model.moves.successors.shape[-1]
    table = model.transition_rewards
    log_term = math.log(sums.size / 0.05)
    serve(
        rng,
        agent._rng,
        model.first_states.successors[0],
        model.first_states.cumulative[0],
        model.moves.successors,
        model.moves.cumulative,
        model.cumulative_rewards,
        model.reward_values,
        table is not None,
        _NO_TABLE if table is None else np.array(table),  # compiled for what can be written
        agent.scale * constants.sampling * math.sqrt(2.0 * log_term),
        agent.scale * constants.range_term,
        min(S, room),
        counts,
        sums,
        reached,
        policies,
        greedy,
    )
    after = (
        counts.reshape(L, A, S, S).transpose(0, 2, 1, 3),
        sums.reshape(L, A, S).transpose(0, 2, 1),
    )
    transitions, rewards = (b - a for a, b in zip(before, after, strict=True))
    seen = evidence.reached | reached.reshape(L, A, S).transpose(0, 2, 1)[:, :, labels]
    _learn(agent, len(policies), transitions[:, :, labels], rewards[:, :, labels], seen)


def _actions(policy: Policy) -> Ints:
    assert policy.actions is not None  # noqa: S101  (this agent's policies are deterministic)
    return policy.actions


def _learn(
    agent: UCBVI, users: int, transitions: Floats, rewards: Floats, reached: NDArray[np.bool_]
) -> None:
    """The users' counts through the gate as one block, and the agent's own plan after the last."""
    spec = agent.spec
    statistic = VisitCounts(spec.states, spec.actions, spec.horizon, pooled=agent.stationary)
    block = Block(users, {"transitions": transitions, "rewards": rewards}, aggregate=True)
    number = agent._curator.add(block)
    release = agent._curator.release(statistic, blocks=[number])
    agent._curator.forget(number)
    agent.evidence.add(release, statistic, users)
    agent.evidence.reached = reached
    agent.served += users
    agent.releases += users
    agent._policy, agent._greedy = agent._plan()


# The loop.


def _fused(function: F) -> F:
    """As :func:`compiled`, with products and sums rounded once."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True, fastmath={"contract"})(function))
    except RuntimeError:
        return cast(F, numba.njit(nogil=True, fastmath={"contract"})(function))


@_fused
def _moments(
    table: Floats,
    value: Floats,
    square: Floats,
    plain: Floats,
    mean: Floats,
    second: Floats,
    mean_plain: Floats,
) -> None:
    """Expectations of three functions of the next state, by cell, from ``table`` (S, cells).

    Four states at a time, so that the sums are loaded and stored less often.
    """
    states, cells = table.shape
    mean[:] = 0.0
    second[:] = 0.0
    mean_plain[:] = 0.0
    whole = states - states % 4
    for j in range(0, whole, 4):
        v0, v1, v2, v3 = value[j], value[j + 1], value[j + 2], value[j + 3]
        w0, w1, w2, w3 = square[j], square[j + 1], square[j + 2], square[j + 3]
        g0, g1, g2, g3 = plain[j], plain[j + 1], plain[j + 2], plain[j + 3]
        for c in range(cells):
            p0, p1, p2, p3 = table[j, c], table[j + 1, c], table[j + 2, c], table[j + 3, c]
            mean[c] = mean[c] + p0 * v0 + p1 * v1 + p2 * v2 + p3 * v3
            second[c] = second[c] + p0 * w0 + p1 * w1 + p2 * w2 + p3 * w3
            mean_plain[c] = mean_plain[c] + p0 * g0 + p1 * g1 + p2 * g2 + p3 * g3
    for j in range(whole, states):
        for c in range(cells):
            mean[c] += table[j, c] * value[j]
            second[c] += table[j, c] * square[j]
            mean_plain[c] += table[j, c] * plain[j]


@_fused
def _listed_moments(
    begin: Ints,
    index: NDArray[np.uint32],
    probability: Floats,
    value: Floats,
    square: Floats,
    plain: Floats,
    mean: Floats,
    second: Floats,
    mean_plain: Floats,
) -> None:
    """The same from lists of the next states that were seen; ``begin`` (cells + 1,) says where."""
    for c in range(len(begin) - 1):
        x, y, z = 0.0, 0.0, 0.0
        for i in range(begin[c], begin[c + 1]):
            # Unsigned: for numba, other indices may be negative and count from the end.
            p, j = probability[np.uint64(i)], np.uint64(index[np.uint64(i)])
            x += p * value[j]
            y += p * square[j]
            z += p * plain[j]
        mean[c], second[c], mean_plain[c] = x, y, z


@compiled
def _best(rng: np.random.Generator, q_values: Floats, value: Floats, actions: Actions) -> None:
    """The best of ``q_values`` (A, S) in every state, and a best action, any with the same chance.

    The loops have no branches until there is a tie.
    """
    n_actions, states = q_values.shape
    for s in range(states):
        value[s] = q_values[0, s]
        actions[s] = 0
    for a in range(1, n_actions):
        for s in range(states):
            actions[s] = a if q_values[a, s] > value[s] else actions[s]
            value[s] = max(value[s], q_values[a, s])
    equal = 0
    for a in range(n_actions):
        for s in range(states):
            equal += q_values[a, s] == value[s]
    if equal == states:
        return
    for s in range(states):
        ties = 0
        for a in range(n_actions):
            ties += q_values[a, s] == value[s]
        if ties == 1:
            continue
        chosen = int(rng.random() * ties)
        for a in range(n_actions):
            if q_values[a, s] == value[s]:
                if chosen == 0:
                    actions[s] = a
                chosen -= 1


@compiled
def serve(
    rng: np.random.Generator,
    ties: np.random.Generator,
    start_states: NDArray[np.int32],
    start: Floats,
    successors: NDArray[np.int32],
    moves: Floats,
    rewards: Floats,
    reward_values: Floats,
    by_transition: bool,
    transition_rewards: Floats,
    sampling: float,
    range_term: float,
    room: int,
    counts: Floats,
    sums: Floats,
    reached: NDArray[np.bool_],
    policies: Actions,
    greedy: Actions,
) -> None:
    """Serves n users, with a plan between any two of them.

    Plans are those of :func:`tacit.tabular.plan_loops.plan`.

    The bonus of a cell is ``sampling`` sqrt(variance / n) + ``range_term`` (steps left) / n, and an
    unknown cell is worth the steps left. The first arrays are those of :func:`roll_out`.

    ``counts`` (L, A S, S) and ``sums`` (L, A S), of rewards, grow; ``reached`` (L, A S) is set
    where a policy of these users acts. ``policies`` and ``greedy`` (n, H, S) come with the first
    user's and leave with everybody's. ``room`` is that of a cell's list of next states, in which
    estimates are kept until there are so many of them that whole rows are faster.
    """
    users, horizon, n_states = policies.shape
    steps, cells = sums.shape
    n_actions = cells // n_states
    n = np.zeros((steps, cells))
    mean_reward = np.zeros((steps, cells))
    width = np.zeros((steps, cells))
    range_width = np.zeros((steps, cells))
    unknown = np.ones((steps, cells))
    dense, seen = False, 0
    table = np.zeros((0, 0, 0))
    size = np.zeros((steps, cells), dtype=np.int64)
    index = np.zeros((steps, cells, room), dtype=np.uint32)
    probability = np.zeros((steps, cells, room))
    begin = np.zeros((steps, cells + 1), dtype=np.int64)
    all_indices = np.zeros(index.size, dtype=np.uint32)
    all_probabilities = np.zeros(index.size)
    value, square, plain = np.zeros(n_states), np.zeros(n_states), np.zeros(n_states)
    mean, second, mean_plain = np.zeros(cells), np.zeros(cells), np.zeros(cells)
    q_values, plain_values = np.zeros((n_actions, n_states)), np.zeros((n_actions, n_states))
    q, plain_q = q_values.reshape(-1), plain_values.reshape(-1)
    actions = np.zeros((horizon, n_states), dtype=np.int64)
    no_choices = np.zeros((1, 1, 1))
    states = np.zeros((1, horizon + 1), dtype=np.int64)
    taken = np.zeros((1, horizon), dtype=np.int64)
    paid = np.zeros((1, horizon))
    for at in range(steps):
        for c in range(cells):
            for j in range(n_states):
                if counts[at, c, j] > 0.0:
                    n[at, c] += counts[at, c, j]
                    index[at, c, size[at, c]] = j
                    size[at, c] += 1
                    seen += 1
    for k in range(users):
        for h in range(horizon):
            at = min(h, steps - 1)
            for s in range(n_states):
                actions[h, s] = policies[k, h, s]
                reached[at, policies[k, h, s] * n_states + s] = True
        roll_out(
            rng,
            start_states,
            start,
            successors,
            moves,
            rewards,
            reward_values,
            True,
            actions,
            no_choices,
            states,
            taken,
            paid,
        )
        for h in range(horizon):
            at, j = min(h, steps - 1), states[0, h + 1]
            c = taken[0, h] * n_states + states[0, h]
            if counts[at, c, j] == 0.0:
                index[at, c, size[at, c]] = j
                size[at, c] += 1
                seen += 1
            counts[at, c, j] += 1.0
            n[at, c] += 1.0
            if by_transition:
                sums[at, c] += transition_rewards[states[0, h], taken[0, h], j]
            else:
                sums[at, c] += paid[0, h]
        if k == users - 1:
            break
        # Estimates of what was just visited, or of everything where there are none yet.
        everything = k == 0
        if not dense and _DENSE * seen > counts.size:
            dense, everything = True, True
            table = np.zeros((steps, n_states, cells))
        for visit in range(steps * cells if everything else horizon):
            if everything:
                at, c = visit // cells, visit % cells
            else:
                at = min(visit, steps - 1)
                c = taken[0, visit] * n_states + states[0, visit]
            visits = n[at, c]
            if visits == 0.0:
                continue
            unknown[at, c] = 0.0
            mean_reward[at, c] = min(sums[at, c] / visits, 1.0)
            width[at, c] = sampling / np.sqrt(visits)
            range_width[at, c] = range_term / visits
            for i in range(size[at, c]):
                j = index[at, c, i]
                if dense:
                    table[at, j, c] = counts[at, c, j] / visits
                else:
                    probability[at, c, i] = counts[at, c, j] / visits
        if not dense:
            # Without the room between lists, a plan reads little more than the fastest cache holds.
            end = 0
            for at in range(steps):
                for c in range(cells):
                    begin[at, c] = end
                    for i in range(size[at, c]):
                        all_indices[end] = index[at, c, i]
                        all_probabilities[end] = probability[at, c, i]
                        end += 1
                begin[at, cells] = end
        value[:] = 0.0
        plain[:] = 0.0
        for h in range(horizon - 1, -1, -1):
            at, left = min(h, steps - 1), float(horizon - h)
            total = 0.0
            for s in range(n_states):
                square[s] = value[s] * value[s]
                total += plain[s]
            average = total / n_states
            if h == horizon - 1:  # nothing comes after
                mean[:], second[:], mean_plain[:] = 0.0, 0.0, 0.0
            elif not dense:
                _listed_moments(
                    begin[at],
                    all_indices,
                    all_probabilities,
                    value,
                    square,
                    plain,
                    mean,
                    second,
                    mean_plain,
                )
            else:
                _moments(table[at], value, square, plain, mean, second, mean_plain)
            for c in range(cells):
                variance = max(second[c] - mean[c] * mean[c], 0.0)
                bonus = width[at, c] * np.sqrt(variance) + range_width[at, c] * left
                optimistic = mean_reward[at, c] + mean[c] + bonus + unknown[at, c] * left
                q[c] = min(optimistic, left)
                exact = mean_reward[at, c] + mean_plain[c] + unknown[at, c] * average
                plain_q[c] = min(exact, left)
            _best(ties, q_values, value, policies[k + 1, h])
            _best(ties, plain_values, plain, greedy[k + 1, h])
