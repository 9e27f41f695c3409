"""Exact simulation of blocks of users in finite worlds.

Episodes follow users one by one. Counts are how many of a block's users go where, which is all that
statistics linear in the counts need: while a policy is fixed, users are independent, so the users
in a state split over actions, rewards and next states by multinomials, at a cost that does not grow
with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from tacit.core.world import Form
from tacit.data.episodes import Episodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, StreamedBlock
from tacit.privacy.validation import Floats, check_bytes, check_users
from tacit.tabular.model import (
    FiniteModel,
    SparseModel,
    check_policy,
    conditional_chances,
    cumulative_chances,
)
from tacit.tabular.policy import AnyPolicy, MixedPolicy, Policy

Ints = NDArray[np.int64]
# In place of the table that a policy does not have. Read-only as policies are, so that loops are
# compiled once.
_NO_ACTIONS = np.zeros((1, 1), dtype=np.int64)
_NO_ACTIONS.setflags(write=False)
_NO_CHOICES = np.zeros((1, 1, 1))
# Users of a part of a streamed block.
_PART = 1 << 15


FORMS: tuple[Form, ...] = get_args(Form)
"""Forms in which users come."""
SPARSE_FORMS: tuple[Form, ...] = ("episodes", "streamed")
"""The same where only possible transitions are stored: sums would have S A S entries."""


def simulate(
    model: FiniteModel | SparseModel,
    policy: AnyPolicy,
    users: int,
    rng: np.random.Generator,
    form: Form = "episodes",
) -> Episodes | Block:
    """A block of users; see :class:`~tacit.core.world.World` for its forms.

    Args:
        model: the world.
        policy: that they follow.
        users: how many, at most 10^12.
        rng: of what they do.
        form: episodes, all in memory or streamed; or sums, pooled over steps or not.
    """
    forms = SPARSE_FORMS if isinstance(model, SparseModel) else FORMS
    if form not in forms:
        raise InvalidArgument(f"form must be one of {forms} in this world, got {form!r}")
    check_policy(model, policy)
    if form == "streamed":
        return _streamed(model, policy, check_users(users), rng)
    if form == "episodes" or isinstance(model, SparseModel):
        return simulate_episodes(model, policy, users, rng)
    return _counts(model, policy, users, rng, pooled=form == "pooled")


def _counts(
    model: FiniteModel, policy: AnyPolicy, users: int, rng: np.random.Generator, pooled: bool
) -> Block:
    """Transitions and rewards of users; those of a mixed policy are split over its components."""
    from tacit.tabular.simulate_loops import sum_rewards

    if isinstance(policy, MixedPolicy):
        split = rng.multinomial(check_users(users), policy.weights)
        # With no users at all the first component has the zeros.
        some = np.flatnonzero(split) if users else [0]
        parts = [_counts(model, policy.components[m], split[m], rng, pooled) for m in some]
        arrays = {name: np.sum([part[name] for part in parts], axis=0) for name in parts[0].arrays}
        return Block(int(users), arrays, aggregate=True)
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
        sum_rewards(rng, visits, model.conditional_rewards, model.reward_values, rewards)
    return Block(int(users), {"transitions": transitions, "rewards": rewards}, aggregate=True)


def _streamed(
    model: FiniteModel | SparseModel, policy: AnyPolicy, users: int, rng: np.random.Generator
) -> StreamedBlock:
    """Users one by one, some thousand in memory at a time, the same whenever they are made."""
    entropy = rng.integers(2**63, size=2).tolist()

    def parts() -> Iterator[Block]:
        for part, first in enumerate(range(0, max(users, 1), _PART)):
            own = np.random.default_rng(np.random.SeedSequence([*entropy, part]))
            yield simulate_episodes(model, policy, min(_PART, users - first), own).block()

    return StreamedBlock(users, parts)


def simulate_episodes(
    model: FiniteModel | SparseModel, policy: AnyPolicy, users: int, rng: np.random.Generator
) -> Episodes:
    """Users one by one: states (n, H + 1), actions, rewards (n, H), and the policy's version.

    Those of a mixed policy have its ``components``.

    Args:
        model: the world.
        policy: that they follow.
        users: how many.
        rng: of what they do.
    """
    from tacit.tabular.simulate_loops import roll_out, roll_out_sparse

    check_policy(model, policy)
    users = check_users(users)
    H = model.horizon
    check_bytes("episodes of a block", (users, 3 * H + 2))
    states = np.empty((users, H + 1), dtype=np.int64)
    actions = np.empty((users, H), dtype=np.int64)
    rewards = np.empty((users, H))
    components, drawn = None, np.zeros(1, dtype=np.int64)
    deterministic, told, choices = _choices(policy, cumulative_chances)
    if isinstance(policy, MixedPolicy):
        components = drawn = policy.drawn(users, rng)
    else:
        told, choices = told[np.newaxis], choices[np.newaxis]
    following = (deterministic, told, choices, drawn)
    if isinstance(model, SparseModel):
        roll_out_sparse(rng, *model.chances, *following, states, actions, rewards)
    else:
        roll_out(rng, *model.chances, *following, states, actions, rewards)
    if isinstance(model, FiniteModel) and model.transition_rewards is not None:
        rewards = model.transition_rewards[states[:, :-1], actions, states[:, 1:]]
    versions = np.full(users, policy.version, dtype=np.int64)
    return Episodes(states, actions, rewards, versions, components=components)


def _choices(policy: AnyPolicy, chances: Callable[[Floats], Floats]) -> tuple[bool, Ints, Floats]:
    """Whether it is deterministic, its actions, and its choices as a sampler needs them.

    A mixed one's have an axis of components in front.
    """
    if isinstance(policy, MixedPolicy):
        if policy.is_deterministic:
            return True, policy.tables, _NO_CHOICES[np.newaxis]
        return False, _NO_ACTIONS[np.newaxis], chances(policy.tables)
    if policy.actions is not None:
        return True, policy.actions, _NO_CHOICES
    return False, _NO_ACTIONS, chances(policy.table())


def _count_moves(
    model: FiniteModel, policy: Policy, users: int, rng: np.random.Generator, transitions: Ints
) -> Ints:
    """Fills transitions, (H or 1, S, A, S); returns visits, (H, S, A)."""
    from tacit.tabular.simulate_loops import count_moves

    visits = np.zeros((model.horizon, *transitions.shape[1:3]), dtype=np.int64)
    first, moves = model.first_states, model.moves
    drawn = first.successors[0], first.conditional[0], moves.successors, moves.conditional
    chosen = _choices(policy, conditional_chances)
    count_moves(rng, check_users(users), *drawn, *chosen, visits, transitions)
    return visits
