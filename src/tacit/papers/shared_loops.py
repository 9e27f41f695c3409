"""Compiled loops that several papers need: the binary tree, and exact values of policies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.finite.model import FiniteModel
from tacit.finite.simulate_loops import roll_out
from tacit.numerics.compiled import Floats, Ints, inner


def tree_nodes(releases: int) -> int:
    """In how many nodes a user is at most: floor(log2 n) + 1 of n released prefixes.

    >>> [tree_nodes(n) for n in (1, 2, 3, 4, 127, 128)]
    [1, 2, 2, 3, 7, 8]
    """
    return releases.bit_length()


@inner
def grow_tree(t: int, fresh: Floats, above: Floats) -> int:
    """Draws the one new node of prefix t = 1, 2, ...; returns the level of its total noise.

    ``above`` (levels, cells) has, at the level of each bit of t that is set, the sum of the noise
    of the nodes at that level and higher. The new node of prefix t is at the level of its lowest
    bit: it takes the place of all nodes below, and the prefix's noise is its own plus what is at
    the next higher bit. Every node's noise is drawn once.
    """
    level = 0
    while (t >> level) & 1 == 0:
        level += 1
    higher = level + 1
    while higher < above.shape[0] and (t >> higher) & 1 == 0:
        higher += 1
    for c in range(len(fresh)):
        above[level, c] = fresh[c]
        if higher < above.shape[0]:
            above[level, c] += above[higher, c]
    return level


class Users(NamedTuple):
    """A finite world as compiled loops take it: what users are drawn from, and what is true."""

    start_states: NDArray[np.int32]
    start: Floats
    successors: NDArray[np.int32]
    moves: Floats
    rewards: Floats
    reward_values: Floats
    first: Floats  # distribution of the first state, (S,)
    transitions: Floats  # (L, S, A, S)
    mean_rewards: Floats  # (L, S, A)
    move_rewards: Floats  # (S, A, S) where the transition decides the reward, else empty


def users_of(model: FiniteModel) -> Users:
    """The users of a finite world."""
    table = model.transition_rewards
    empty = np.zeros((0, 0, 0)) if table is None else np.array(table)
    return Users(*model.chances, model.start, model.transitions, model.mean_rewards, empty)


@inner
def roll_out_one(
    rng: np.random.Generator,
    users: Users,
    deterministic: bool,
    actions: Ints,
    choices: Floats,
    out_states: Ints,
    out_actions: Ints,
    out_rewards: Floats,
) -> None:
    """One user's trajectory into the ``out`` arrays, (1, H + 1), (1, H) and (1, H)."""
    roll_out(
        rng,
        users.start_states,
        users.start,
        users.successors,
        users.moves,
        users.rewards,
        users.reward_values,
        deterministic,
        actions,
        choices,
        out_states,
        out_actions,
        out_rewards,
    )
    if users.move_rewards.shape[0] > 0:
        for h in range(out_actions.shape[1]):
            s, a, after = out_states[0, h], out_actions[0, h], out_states[0, h + 1]
            out_rewards[0, h] = users.move_rewards[s, a, after]


@inner
def policy_value(users: Users, pi: Floats, V: Floats) -> float:
    """The expected rewards of an episode under pi (H, S, A), exactly; fills V (H + 1, S)."""
    H, S, A = pi.shape
    for s in range(S):
        V[H, s] = 0.0
    for h in range(H - 1, -1, -1):
        P = users.transitions[min(h, users.transitions.shape[0] - 1)]
        r = users.mean_rewards[min(h, users.mean_rewards.shape[0] - 1)]
        for s in range(S):
            total = 0.0
            for a in range(A):
                if pi[h, s, a] > 0.0:
                    value = float(r[s, a])
                    for after in range(S):
                        value += P[s, a, after] * V[h + 1, after]
                    total += pi[h, s, a] * value
            V[h, s] = total
    start = 0.0
    for s in range(S):
        start += users.first[s] * V[0, s]
    return start
