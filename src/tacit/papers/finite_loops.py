"""Compiled loops that the papers on finite worlds share: users, values of policies, regression."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tacit.numerics.compiled import Floats, Ints, compiled, inner
from tacit.tabular.model import FiniteModel
from tacit.tabular.simulate_loops import roll_out


class Users(NamedTuple):
    """A finite world as compiled loops take it: what users are drawn from, and what is true."""

    chances: tuple[Any, Any, Any, Any, Any, Any]  # of first states, moves and rewards
    first: Floats  # distribution of the first state, (S,)
    transitions: Floats  # (L, S, A, S)
    mean_rewards: Floats  # (L, S, A)
    move_rewards: Floats  # (S, A, S) where the transition decides the reward, else empty


def users_of(model: FiniteModel) -> Users:
    """The users of a finite world."""
    table = model.transition_rewards
    empty = np.zeros((0, 0, 0)) if table is None else np.array(table)
    return Users(model.chances, model.start, model.transitions, model.mean_rewards, empty)


class Room(NamedTuple):
    """Where policies are planned and users live, over and over."""

    Q: Floats  # (H, S, A)
    V: Floats  # (H + 1, S)
    logits: Floats  # sums of eta Q, of mirror descent, (H, S, A)
    pi: Floats  # pi_h(a | s), (H, S, A); uniform in the beginning
    choices: Floats  # the same, added up over actions
    greedy: Ints  # actions of deterministic policies, (H, S)
    true: Floats  # the true V of pi, (H + 1, S)
    states: Ints  # of a user, (1, H + 1)
    actions: Ints  # (1, H)
    rewards: Floats  # (1, H)


def room_of(H: int, S: int, A: int) -> Room:
    """Room for a run."""
    Q, V, logits, true = (np.zeros(shape) for shape in ((H, S, A), (H + 1, S)) * 2)
    pi, choices = np.full((H, S, A), 1.0 / A), np.tile(np.arange(1.0, A + 1.0) / A, (H, S, 1))
    greedy, states, actions = (np.zeros(shape, np.int64) for shape in ((H, S), (1, H + 1), (1, H)))
    return Room(Q, V, logits, pi, choices, greedy, true, states, actions, np.zeros((1, H)))


@inner
def roll_out_one(rng: np.random.Generator, users: Users, deterministic: bool, at: Room) -> None:
    """One user's trajectory."""
    greedy, choices = at.greedy[np.newaxis], at.choices[np.newaxis]
    of, room = np.zeros(1, np.int64), (at.states, at.actions, at.rewards)
    roll_out(rng, *users.chances, deterministic, greedy, choices, of, *room)
    if users.move_rewards.shape[0] > 0:
        for h in range(at.actions.shape[1]):
            s, a, after = at.states[0, h], at.actions[0, h], at.states[0, h + 1]
            at.rewards[0, h] = users.move_rewards[s, a, after]


@compiled
def dot(x: Floats, y: Floats) -> float:
    """The inner product of vectors."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@inner
def policy_value(users: Users, at: Room) -> float:
    """The expected rewards of an episode under pi, exactly."""
    pi, V = at.pi, at.true
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
    return dot(users.first, V[0])


@inner
def uniform_over_best(Q: Floats, at: Room) -> None:
    """One of the actions that have the largest Q (H, S, A), all of them alike."""
    for h in range(Q.shape[0]):
        for s in range(Q.shape[1]):
            best = np.where(Q[h, s] == Q[h, s].max(), 1.0, 0.0)
            at.pi[h, s] = best / best.sum()
            at.choices[h, s] = np.cumsum(best) / best.sum()


@inner
def mirror_step(eta: float, at: Room) -> None:
    """Makes pi (H, S, A) proportional to pi exp(eta Q), in logarithms."""
    logits, choices, (H, S, A) = at.logits, at.choices, at.Q.shape
    for h in range(H):
        for s in range(S):
            largest, total = -math.inf, 0.0
            for a in range(A):
                logits[h, s, a] += eta * at.Q[h, s, a]
                largest = max(largest, logits[h, s, a])
            for a in range(A):
                total += math.exp(logits[h, s, a] - largest)
                choices[h, s, a] = total
            before = 0.0
            for a in range(A):
                choices[h, s, a] /= total
                at.pi[h, s, a] = choices[h, s, a] - before
                before = choices[h, s, a]


@inner
def cholesky(M: Floats, floor: float, L: Floats) -> float:
    """Lower L with L L' = M, but for its diagonal, which is inverted; returns ln det M.

    Pivots below ``floor`` are raised to it.
    """
    d, log_det = M.shape[0], 0.0
    for j in range(d):
        pivot = M[j, j]
        for k in range(j):
            pivot -= L[j, k] * L[j, k]
        pivot = max(pivot, floor)
        log_det += math.log(pivot)
        inverse = 1.0 / math.sqrt(pivot)
        L[j, j] = inverse
        for i in range(j + 1, d):
            value = M[i, j]
            for k in range(j):
                value -= L[i, k] * L[j, k]
            L[i, j] = value * inverse
    return log_det


@inner
def solved(L: Floats, x: Floats) -> None:
    """Puts (L L')^-1 x in the place of x; L is what :func:`cholesky` gives."""
    d = len(x)
    for i in range(d):
        value = x[i]
        for k in range(i):
            value -= L[i, k] * x[k]
        x[i] = value * L[i, i]
    for i in range(d - 1, -1, -1):
        value = x[i]
        for k in range(i + 1, d):
            value -= L[k, i] * x[k]
        x[i] = value * L[i, i]


@inner
def inverse_norm(L: Floats, x: Floats, work: Floats) -> float:
    """The norm of x in (L L')^-1, sqrt(x' (L L')^-1 x)."""
    total = 0.0
    for i in range(len(x)):
        value = x[i]
        for k in range(i):
            value -= L[i, k] * work[k]
        value *= L[i, i]
        work[i] = value
        total += value * value
    return math.sqrt(total)
