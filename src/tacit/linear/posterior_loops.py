"""Compiled sums of outcomes, and samples of the posterior given them."""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from tacit.numerics.compiled import Floats, Ints, compiled, inner

# Of so many values, one of them the old one, a leap takes one.
_TRIES = 24
# Where the log likelihood differs by less than this, one value from the prior is enough.
_FLAT = 1.0


@inner
def _pick(rng: Generator, scores: Floats) -> int:
    """An index with probability proportional to exp(score); scores are used up."""
    top, total = scores[0], 0.0
    for g in range(1, len(scores)):
        top = max(top, scores[g])
    for g in range(len(scores)):
        scores[g] = math.exp(scores[g] - top)
        total += scores[g]
    left, g = rng.random() * total, 0
    while g < len(scores) - 1 and left >= scores[g]:
        left -= scores[g]
        g += 1
    return g


@inner
def _share(
    rng: Generator, u: float, slope: float, bend: float, draws: Floats, shape: float, scores: Floats
) -> float:
    """A new u in (0, 1) by its prior Beta(shape, shape) times exp(slope u - bend u^2 / 2).

    Two moves that leave this invariant. One leaps: of u and some ``draws`` from the prior one is
    taken by its likelihood. The other is fine: a Metropolis step that proposes by the likelihood.
    Where releases say little, as of the many next states that hardly occur, a Metropolis step that
    proposes by the prior does for both.
    """
    if abs(slope) + 0.5 * bend < _FLAT:
        new = draws[rng.integers(0, len(draws))]
        odds = slope * (new - u) - 0.5 * bend * (new * new - u * u)
        return new if math.log(1.0 - rng.random()) < odds else u
    first = rng.integers(0, len(draws) - len(scores))
    for g in range(len(scores)):
        v = draws[first + g] if g > 0 else u
        scores[g] = slope * v - 0.5 * bend * v * v
    g = _pick(rng, scores)
    if g > 0:
        u = draws[first + g]
    if bend <= 0.0:
        return u
    new = slope / bend + rng.standard_normal() / math.sqrt(bend)
    if 0.0 < new < 1.0:
        odds = (shape - 1.0) * (math.log(new * (1.0 - new)) - math.log(u * (1.0 - u)))
        if math.log(1.0 - rng.random()) < odds:
            u = new
    return u


@inner
def _permute(rng: Generator, order: Ints) -> None:
    """A permutation, as ``Generator.permutation`` draws it, which is slow to compile."""
    for i in range(len(order)):
        order[i] = i
    for i in range(len(order) - 1, 0, -1):
        mask = 1
        while mask < i:
            mask = 2 * mask + 1
        j = rng.integers(0, 1 << 32) & mask
        while j > i:
            j = rng.integers(0, 1 << 32) & mask
        order[i], order[j] = order[j], order[i]


@compiled
def sample_distributions(
    rng: Generator,
    precision: Floats,
    linear: Floats,
    draws: Floats,
    shape: float,
    skip: int,
    current: Floats,
    samples: Floats,
) -> None:
    """Samples X (L, d, S), rows of distributions, from prior times exp(tr X'B - tr X'Lambda X / 2).

    The prior of a row is Dirichlet(shape, ..., shape). Two entries at a time share anew what they
    have together, one u of it and the other the rest; u is Beta(shape, shape) before anything is
    known. ``current`` is where the chain begins and ends. A sample is taken after every sweep but
    the first ``skip``; ``samples`` (K, L, d, S) decides how many.
    """
    steps, dimension, states = current.shape
    scores, order = np.empty(_TRIES), np.empty(states, dtype=np.int64)
    gradient = np.empty((dimension, states))
    for at in range(steps):
        x, lam = current[at], precision[at]
        for i in range(dimension):
            for j in range(states):
                gradient[i, j] = linear[at, i, j]
                for m in range(dimension):
                    gradient[i, j] -= lam[i, m] * x[m, j]
        for sweep in range(skip + len(samples)):
            for i in range(dimension):
                _permute(rng, order)
                for p in range(states):
                    j, k = order[p], order[(p + 1) % states]
                    both = x[i, j] + x[i, k]
                    if j == k or both <= 1e-12:
                        continue
                    old = x[i, j]
                    # In u = x_j / both, the log likelihood is slope u - bend u^2 / 2.
                    bend = 2.0 * lam[i, i] * both * both
                    slope = both * (gradient[i, j] - gradient[i, k]) + bend * old / both
                    u = min(max(old / both, 1e-12), 1.0 - 1e-12)
                    new = both * _share(rng, u, slope, bend, draws, shape, scores)
                    x[i, j], x[i, k] = new, both - new
                    for m in range(dimension):
                        gradient[m, j] -= (new - old) * lam[m, i]
                        gradient[m, k] += (new - old) * lam[m, i]
            if sweep >= skip:
                for i in range(dimension):
                    for j in range(states):
                        samples[sweep - skip, at, i, j] = x[i, j]


@compiled
def sample_box(
    rng: Generator,
    precision: Floats,
    linear: Floats,
    draws: Floats,
    shape: float,
    skip: int,
    current: Floats,
    samples: Floats,
) -> None:
    """Samples x (M, d) in [0, 1]^d from prior times exp(b'x - x'Lambda x / 2), entry by entry.

    Entries are Beta(shape, shape) before anything is known.
    """
    rows, dimension = current.shape
    scores, gradient = np.empty(_TRIES), np.empty(dimension)
    for at in range(rows):
        x, lam = current[at], precision[at]
        for i in range(dimension):
            gradient[i] = linear[at, i]
            for m in range(dimension):
                gradient[i] -= lam[i, m] * x[m]
        for sweep in range(skip + len(samples)):
            for i in range(dimension):
                old, bend = x[i], lam[i, i]
                slope = gradient[i] + bend * old
                x[i] = _share(rng, old, slope, bend, draws, shape, scores)
                for m in range(dimension):
                    gradient[m] -= (x[i] - old) * lam[m, i]
            if sweep >= skip:
                for i in range(dimension):
                    samples[sweep - skip, at, i] = x[i]


@inner
def _room(most: float, length: float, used: float, limit: float) -> float:
    """The largest w <= 1 with used + 2 w most + w^2 length <= limit, without cancellation."""
    if used + 2.0 * most + length <= limit:
        return 1.0
    room = max(limit - used, 0.0)
    bound = most + math.sqrt(most * most + length * room)
    return min(1.0, room / bound) if bound > 0.0 else 0.0


@compiled
def sum_outcomes(
    states: Ints,
    actions: Ints,
    rewards: Floats,
    features: Floats,
    weights: Floats,
    lengths: Floats,
    limit: float,
    reward_limit: float,
    separate: bool,
    following: Floats,
    paid: Floats,
    visits: Floats,
    paying: Floats,
) -> None:
    """Adds users' weighted steps; see :class:`tacit.linear.posterior.OutcomeSums`.

    ``following`` (rows, L, d, S) takes weight times feature under the next state and ``paid``
    (rows, M, d) weight times feature times reward; row 0 takes all users, or each user her own row
    when ``separate``. ``visits`` (L, S, A) and ``paying`` (M, S, A) take the weights. The limits
    are squared lengths.
    """
    users, horizon = actions.shape
    n_states, n_actions, dimension = features.shape
    last, last_paid = len(weights) - 1, len(paying) - 1
    own = np.zeros((last + 1, dimension, n_states))
    own_paid = np.zeros((last_paid + 1, dimension))
    for user in range(users):
        row = user if separate else 0
        used, used_paid = 0.0, 0.0
        for step in range(horizon):
            state, action = states[user, step], actions[user, step]
            after, reward = states[user, step + 1], rewards[user, step]
            if state < 0 or state >= n_states or after < 0 or after >= n_states:
                continue
            if action < 0 or action >= n_actions or np.isnan(reward):
                continue
            phi, q = features[state, action], lengths[state, action]
            at, at_paid = min(step, last), min(step, last_paid)
            # Inner products with the sums so far: the largest of any next state, and the actual.
            most, actual = 0.0, 0.0
            for there in range(n_states):
                dot = 0.0
                for k in range(dimension):
                    dot += phi[k] * own[at, k, there]
                most = max(most, dot)
                if there == after:
                    actual = dot
            c = weights[at]
            weight = c * _room(c * most, c * c * q, used, limit)
            used += 2.0 * weight * actual + weight * weight * q
            visits[at, state, action] += weight
            of_paid = 0.0
            for k in range(dimension):
                of_paid += phi[k] * own_paid[at_paid, k]
            pay = _room(of_paid, q, used_paid, reward_limit)
            used_paid += 2.0 * pay * reward * of_paid + pay * pay * reward * reward * q
            paying[at_paid, state, action] += pay
            for k in range(dimension):
                own[at, k, after] += weight * phi[k]
                own_paid[at_paid, k] += pay * reward * phi[k]
        # Entry by entry: that compiles much faster than sums of arrays.
        for at in range(last + 1):
            for k in range(dimension):
                for there in range(n_states):
                    following[row, at, k, there] += own[at, k, there]
                    own[at, k, there] = 0.0
        for at in range(last_paid + 1):
            for k in range(dimension):
                paid[row, at, k] += own_paid[at, k]
                own_paid[at, k] = 0.0
