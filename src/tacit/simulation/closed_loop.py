"""Agent and users in one compiled loop, for the baseline that plans after every user.

Without privacy and with a release after each episode, a run is nothing but short steps, and the
gate costs more than the work itself. Here all of them run in one loop, with the same estimates,
bonus and random ties; what differs is the order in which sums are rounded and ties are drawn.

After each part of the run its counts pass the gate as one block, and the agent itself plans the
policy that comes next, so that it stands where it would stand had it learnt step by step.

Cells are ordered by action, then state, and labels of actions are the world's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.agent import Agent
from tacit.core.permuted import PermutedWorld
from tacit.core.schedule import every_episode
from tacit.core.sizes import MOST_BYTES, Floats
from tacit.core.world import AnyAgent, World
from tacit.finite.model import FiniteModel, check_policy
from tacit.finite.policy import Policy
from tacit.finite.visits import VisitCounts
from tacit.privacy.statistic import Block
from tacit.tabular.ucbvi import UCBVI
from tacit.tabular.world import TabularWorld

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
    """Users who were served in one go, by ``policies`` (n, H, S); ``greedy`` were beside them."""

    world: TabularWorld
    policies: Actions
    greedy: Actions

    @property
    def users(self) -> int:
        """How many."""
        return len(self.policies)

    def values(self) -> tuple[Floats, Floats]:
        """The exact values of ``policies`` and of ``greedy``."""
        model, returns = self.world.valued, self.world.returns
        return returns(values_of(model, self.policies)), returns(values_of(model, self.greedy))


def values_of(model: FiniteModel, policies: NDArray[Any]) -> Floats:
    """The exact value of each of many deterministic policies, (n, H, S); repeated ones once."""
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

    It will not do unless the agent is :class:`UCBVI` itself, not private, with a release
    after every user, and the users are those of a :class:`FiniteModel`, perhaps with
    other labels of actions. The agent is up to date with every part that was yielded. The
    randomness is the users'; that of ties is the agent's.
    """
    # Somebody's own algorithm or world may do more at every step than is done here.
    if not isinstance(agent, Agent) or type(agent.algorithm) is not UCBVI:
        return None
    algorithm = agent.algorithm
    labels = np.arange(algorithm.spec.actions)
    if isinstance(world, PermutedWorld):
        labels, world = np.array(world.permutation), world.world
    if (
        algorithm.privacy.private
        or algorithm.schedule.blocks != every_episode(algorithm.users)
        or agent._session.with_ids
        or not algorithm.spec.last_state
        or not isinstance(world, TabularWorld)
        or type(world).simulate is not TabularWorld.simulate
        or type(world).value is not TabularWorld.value
        or algorithm.spec.actions > np.iinfo(np.int16).max
        # Counts by cell and the estimates from them, beside the agent's own.
        or 8 * algorithm.evidence.transitions.nbytes > MOST_BYTES
    ):
        return None
    check_policy(world.model, algorithm.policy)
    return _parts(agent, algorithm, world, labels, rng)


def _parts(
    agent: Agent, ucbvi: UCBVI, world: TabularWorld, labels: Ints, rng: np.random.Generator
) -> Iterator[ServedUsers]:
    H, S = ucbvi.spec.horizon, ucbvi.spec.states
    size = min(_PART_USERS, max(1, _PART_BYTES // (4 * H * S)))
    while (left := ucbvi.users - ucbvi.served) > 0:
        policies = np.empty((min(size, left), H, S), dtype=np.int16)
        greedy = np.empty_like(policies)
        counted = _serve(ucbvi, world.model, labels, rng, policies, greedy)
        _learn(agent, ucbvi, len(policies), *counted)
        yield ServedUsers(world, policies, greedy)


def _serve(
    ucbvi: UCBVI,
    model: FiniteModel,
    labels: Ints,
    rng: np.random.Generator,
    policies: Actions,
    greedy: Actions,
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Serves all that ``policies`` has room for: transitions, reward sums, what was reached."""
    from tacit.simulation.serve_loops import serve

    evidence, constants = ucbvi.evidence, ucbvi.options.constants
    L, S, A = evidence.rewards.shape
    of_world = np.argsort(labels)  # the agent's label of the world's action
    before = evidence.transitions[:, :, of_world], evidence.rewards[:, :, of_world]
    # (L, A S, S) and (L, A S), contiguous, since the loop is compiled for that.
    counts = np.array(before[0].transpose(0, 2, 1, 3), order="C").reshape(L, A * S, S)
    sums = np.array(before[1].transpose(0, 2, 1), order="C").reshape(L, A * S)
    reached = np.zeros((L, A * S), dtype=bool)
    policies[0] = labels[_actions(ucbvi.policy)]
    greedy[0] = labels[_actions(ucbvi.greedy_policy)]
    # What was learnt elsewhere may be impossible in this world.
    room = int(np.count_nonzero(counts, axis=-1).max()) + model.moves.successors.shape[-1]
    table = model.transition_rewards
    log_term = math.log(sums.size / 0.05)
    serve(
        rng,
        ucbvi.rng,
        *model.chances,
        table is not None,
        _NO_TABLE if table is None else np.array(table),  # compiled for what can be written
        ucbvi.options.scale * constants.sampling * math.sqrt(2.0 * log_term),
        ucbvi.options.scale * constants.range_term,
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
    return transitions[:, :, labels], rewards[:, :, labels], seen


def _actions(policy: Policy) -> Ints:
    assert policy.actions is not None  # noqa: S101  (this agent's policies are deterministic)
    return policy.actions


def _learn(
    agent: Agent,
    ucbvi: UCBVI,
    users: int,
    transitions: Floats,
    rewards: Floats,
    reached: NDArray[np.bool_],
) -> None:
    """The users' counts through the gate as one block, and the algorithm's own plan at the end.

    Nobody is protected here, so that this may reach behind the agent's desk.
    """
    spec, curator = ucbvi.spec, agent._curator
    statistic = VisitCounts(spec.states, spec.actions, spec.horizon, pooled=ucbvi.stationary)
    block = Block(users, {"transitions": transitions, "rewards": rewards}, aggregate=True)
    number = curator.add(block)
    release = curator.release(statistic, blocks=[number])
    curator.forget(number)
    agent._session.end_round(curator.releases)
    agent._session.waiting.clear(curator.entered)
    ucbvi.evidence.add(release, statistic, users)
    ucbvi.evidence.reached = reached
    ucbvi.served += users
    ucbvi.releases += users
    ucbvi.policy, ucbvi.greedy_policy = ucbvi.plan()
