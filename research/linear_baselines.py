"""What Sahu (2025) compares with in linear MDPs, reconstructed: no text of theirs was at hand.

* :func:`batched_lsvi_ucb`: Luyo, Garcelon, Lazaric and Pirotta (2021), joint DP.
* :func:`adaptive_lsvi_ucb`: Ngo, Vietri and Wu (2022), joint DP.

They are rebuilt from memory and from what the paper says of them. Constants could not be checked;
those here are valid bounds, and the noise has exactly the privacy that was asked for. What they
reach says nothing about what their authors reached.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.numerics.compiled import Floats
from tacit.papers import sahu_linear_2025 as linear
from tacit.papers.counters import (
    operator_width,
    prefixes,
    symmetric_noise,
    tree_nodes,
    vector_width,
)
from tacit.papers.result import PaperResult, proven
from tacit.privacy.budget import Budget
from tacit.privacy.noise import Noise
from tacit.privacy.validation import checked_number, whole_number
from tacit.tabular.policy import Policy
from tacit.tabular.simulate import simulate_episodes

if TYPE_CHECKING:
    from tacit.linear.worlds import LinearWorld

RECONSTRUCTED = ("reconstructed from memory and from descriptions: constants are not the text's",)
"""In the place of errata."""
_CHUNK = 64  # episodes whose noise is drawn at once


def batched_lsvi_ucb(
    world: LinearWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float,
    failure: float = 0.1,
    adaptive: bool = False,
    seed: int = 0,
) -> PaperResult:
    """Private LSVI-UCB with batches, after Luyo et al. (2021), reconstructed.

    A policy serves a batch of users, of which there are K^(2/5), to balance delay and noise; after
    each, Gram matrices are released by a binary tree over batches, and all regression vectors anew.
    Two users' Gram matrices are sqrt(2) apart at every step and in every node of the tree, their
    vectors 2 H at every step and update: mu^2 = 2 H nodes / s_G^2 + 4 H^3 updates / s^2.

    Args:
        world: a linear MDP; its mean rewards are known.
        episodes: K.
        epsilon: with ``delta``, the budget, half of it (of mu^2) for Gram matrices.
        delta: see ``epsilon``.
        failure: the probability with which radii may be too small.
        adaptive: batches of one user, and updates by determinants: :func:`adaptive_lsvi_ucb`.
        seed: of the users, and of the noise (that of a simulation).

    >>> from tacit.linear import two_state
    >>> world = two_state(horizon=3)
    >>> print(batched_lsvi_ucb(world, episodes=500, epsilon=1.0, delta=1e-6).reason)
    exact accounting of 4 nodes and 12 updates
    """
    K = whole_number("episodes", episodes, 2, 10**8)
    batch = 1 if adaptive else math.ceil(K / max(2, math.ceil(K**0.4)))
    budget, H, S = Budget(epsilon, delta), world.model.horizon, world.model.states
    checked_number("failure", failure, "above 0 and at most 1", lambda f: 0 < f <= 1)
    source, phi = Noise(seed), linear.unit_features(world)
    d, looks = phi.shape[2], math.ceil(K / batch) - 1
    nodes = tree_nodes(looks)
    gram_noise = math.sqrt(4.0 * H * nodes) / budget.mu
    width = operator_width(d, failure / (3.0 * H * looks))
    shift = max(1.0, gram_noise * math.sqrt(nodes) * width)  # without noise, the usual ridge
    doublings = math.ceil(d * H * math.log2(1.0 + K / (2.0 * d * shift))) + H
    updates = min(looks, doublings) if batch == 1 else looks
    vector_noise = math.sqrt(8.0 * H**3 * updates) / budget.mu
    mu = math.sqrt(2.0 * H * nodes / gram_noise**2 + 4.0 * H**3 * updates / vector_noise**2)
    width = vector_noise * vector_width(d, failure / (3.0 * H * updates))
    log_term = math.log(3.0 * H / failure) + S * math.log(K + 1.0)
    regressions = linear.Regressions(K, d, shift, 1.0, log_term, linear.weight_of(world))
    beta, rng = regressions.radius(float(H), width), np.random.default_rng([seed, 1])
    above = np.zeros((nodes, H * d * (d + 1) // 2))
    counts, sums, steps = np.zeros((H, S, phi.shape[1], S)), np.zeros((H, d, d)), np.arange(H)
    held = np.full(H, d * math.log(2.0 * shift))
    Q = np.broadcast_to(np.arange(H, 0.0, -1.0)[:, None, None], counts.shape[:3])
    policy = _best(Q)
    values, estimates, switches = np.full(K, world.value(policy)), np.full(K, H), np.zeros(K)
    look, chunk = 0, _CHUNK if batch == 1 else 1
    while look < looks:
        n, done = min(chunk, looks - look), 0
        total = np.zeros((n, above.shape[1]))
        prefixes(look + 1, source.normal(total.shape), above, False, total)
        upper = total.reshape(n, H, -1)
        noise = gram_noise * symmetric_noise(upper) + 2.0 * shift * np.eye(d)
        while done < n:
            users = simulate_episodes(world.model, policy, batch * (n - done), rng)
            s, a = users.states, users.actions
            x = phi[s[:, :-1], a].reshape(n - done, batch, H, d)
            grams = sums + np.cumsum(np.einsum("lbhi,lbhj->lhij", x, x), axis=0)
            now = np.linalg.slogdet(grams + noise[done:])[1]
            fires = (now >= held + math.log(2.0)).any(axis=1) | (batch > 1)
            fires &= switches[-1] < updates
            # Users after a switch follow another policy: those who were drawn do not count.
            last = int(fires.argmax()) if fires.any() else n - done - 1
            some = slice(0, batch * (last + 1))
            np.add.at(counts, (steps, s[some, :-1], a[some], s[some, 1:]), 1.0)
            sums, gram, done = grams[last], grams[last] + noise[done + last], done + last + 1
            if not fires[last]:
                continue
            held, rest = now[last], slice((look + done) * batch, K)
            Q = _planned(world, phi, gram, counts, vector_noise * source.normal((H, d)), beta)
            policy = _best(Q)
            values[rest], switches[rest] = world.value(policy), switches[-1] + 1
            estimates[rest] = world.model.start @ Q[0].max(axis=1)
        look += n
    mechanism = "binary tree of Gram matrices, vectors at every update, Gaussian noise"
    reason = f"exact accounting of {nodes} nodes and {updates} updates"
    words = {"mu": mu, "delta": budget.delta, "releases": looks, "mechanism": mechanism}
    proof = proven(f"{budget}-JDP", reason, **words)
    constants = {"lambda": shift, "beta": beta, "gram_noise": gram_noise, "updates": updates}
    name = f"LSVI-UCB{', adaptive' if adaptive else ' in batches'}, reconstructed"
    what = name, False, world.optimal_value, values, estimates, policy, proof
    return PaperResult(*what, constants, RECONSTRUCTED, {"switches": switches})


def adaptive_lsvi_ucb(world: LinearWorld, **options: Any) -> PaperResult:
    """Private LSVI-UCB with adaptive batches, after Ngo et al. (2022), reconstructed.

    Gram matrices are released after every episode by a binary tree. Only when the determinant of
    one has doubled is the policy replaced and are the vectors released, as often at most as was
    paid for. Options as in :func:`batched_lsvi_ucb`.
    """
    return batched_lsvi_ucb(world, adaptive=True, **options)


def _planned(
    world: LinearWorld, phi: Floats, gram: Floats, counts: Floats, noise: Floats, beta: float
) -> Floats:
    """Optimistic action values by least squares, from the last step to the first."""
    H, rewards = len(gram), world.model.mean_rewards
    Q, V = np.zeros((H, *phi.shape[:2])), np.zeros(len(phi))
    for h in range(H - 1, -1, -1):
        inverse = np.linalg.inv(gram[h])
        sums = np.einsum("sat,t,sai->i", counts[h], V, phi, optimize=True) + noise[h]
        lengths = np.einsum("sai,ij,saj->sa", phi, inverse, phi, optimize=True)
        widths = beta * np.sqrt(np.maximum(lengths, 0.0))
        means = rewards[min(h, len(rewards) - 1)] + phi @ (inverse @ sums)
        Q[h] = np.clip(means + widths, 0.0, float(H - h))
        V = Q[h].max(axis=1)
    return Q


def _best(Q: Floats) -> Policy:
    """One of the actions that have the largest Q (H, S, A), all of them alike."""
    best = Q.max(axis=2, keepdims=True) == Q
    return Policy.stochastic(best / best.sum(axis=2, keepdims=True))
