"""Compiled loops that the papers on finite worlds share: users, values of policies, regression."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.finite.model import FiniteModel
from tacit.finite.simulate_loops import roll_out
from tacit.numerics.compiled import Floats, Ints, inner


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
        actions.reshape((1, *actions.shape)),
        choices.reshape((1, *choices.shape)),
        np.zeros(1, np.int64),
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


@inner
def uniform_over_best(Q: Floats, pi: Floats, choices: Floats) -> None:
    """One of the actions that have the largest Q (H, S, A), all of them alike."""
    H, S, A = Q.shape
    for h in range(H):
        for s in range(S):
            best, equals = Q[h, s, 0], 0
            for a in range(A):
                best = max(best, Q[h, s, a])
            for a in range(A):
                equals += 1 if Q[h, s, a] == best else 0
            found = 0
            for a in range(A):
                chosen = Q[h, s, a] == best
                found += 1 if chosen else 0
                pi[h, s, a] = 1.0 / equals if chosen else 0.0
                choices[h, s, a] = found / equals


@inner
def mirror_step(eta: float, Q: Floats, logits: Floats, pi: Floats, choices: Floats) -> None:
    """Makes pi (H, S, A) proportional to pi exp(eta Q), in logarithms."""
    H, S, A = Q.shape
    for h in range(H):
        for s in range(S):
            largest, total = -math.inf, 0.0
            for a in range(A):
                logits[h, s, a] += eta * Q[h, s, a]
                largest = max(largest, logits[h, s, a])
            for a in range(A):
                total += math.exp(logits[h, s, a] - largest)
                choices[h, s, a] = total
            before = 0.0
            for a in range(A):
                choices[h, s, a] /= total
                pi[h, s, a] = choices[h, s, a] - before
                before = choices[h, s, a]


@inner
def symmetric(upper: Floats, size: float, d: int, out: Floats) -> None:
    """Adds size times a symmetric matrix of noise that is isotropic in the Frobenius norm.

    ``upper`` has its d (d + 1) / 2 unit normals, row by row; off the diagonal variances are halved.
    """
    at = 0
    for i in range(d):
        out[i, i] += size * upper[at]
        at += 1
        for j in range(i + 1, d):
            value = size * upper[at] * math.sqrt(0.5)
            out[i, j] += value
            out[j, i] += value
            at += 1


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


@inner
def dot(x: Floats, y: Floats) -> float:
    """The inner product of vectors."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total
