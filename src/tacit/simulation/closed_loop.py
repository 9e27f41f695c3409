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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.permuted import PermutedWorld
from tacit.core.schedule import every_episode
from tacit.core.world import World
from tacit.finite.model import FiniteModel, check_policy
from tacit.finite.policy import Policy
from tacit.finite.spec import MOST_BYTES
from tacit.finite.visits import VisitCounts
from tacit.privacy.models import NonPrivate
from tacit.privacy.statistic import Block
from tacit.simulation.agents import AnyAgent
from tacit.tabular.ucbvi import UCBVI
from tacit.tabular.world import TabularWorld

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Actions = NDArray[np.int16]

# A part of a run keeps the policies of all its users: at most so many bytes, and so many users.
_PART_BYTES = 1 << 25
_PART_USERS = 4096
# Policies that are evaluated at once; more would only take memory.
_AT_ONCE = 128
_NO_TABLE = np.zeros((1, 1, 1))


@dataclass(frozen=True, eq=False)
class ServedUsers:
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


def play(agent: AnyAgent, world: World, rng: np.random.Generator) -> Iterator[ServedUsers] | None:
    """Serves all users that are left, part by part; ``None`` where only single steps will do.

    It will not do unless the agent is :class:`UCBVI` itself, not private, with the practical bonus
    and a release after every user, and the users are those of a :class:`FiniteModel`.

    Args:
        agent: is up to date with every part that was yielded.
        world: the users, perhaps with other labels of actions.
        rng: the users' randomness; that of ties is the agent's.
    """
    # Somebody's own agent or world may do more at every step than is done here.
    if type(agent) is not UCBVI:
        return None
    labels = np.arange(agent.spec.actions)
    if isinstance(world, PermutedWorld):
        labels, world = np.array(world.permutation), world.world
    if (
        not isinstance(agent.privacy, NonPrivate)
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
) -> Iterator[ServedUsers]:
    H, S = agent.spec.horizon, agent.spec.states
    size = min(_PART_USERS, max(1, _PART_BYTES // (4 * H * S)))
    while (left := agent.users - agent.served) > 0:
        policies = np.empty((min(size, left), H, S), dtype=np.int16)
        greedy = np.empty_like(policies)
        _serve(agent, model, labels, rng, policies, greedy)
        yield ServedUsers(model, policies, greedy)


def _serve(
    agent: UCBVI,
    model: FiniteModel,
    labels: Ints,
    rng: np.random.Generator,
    policies: Actions,
    greedy: Actions,
) -> None:
    """Serves as many users as ``policies`` has room for, and brings the agent up to date."""
    from tacit.simulation.serve_loops import serve

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
