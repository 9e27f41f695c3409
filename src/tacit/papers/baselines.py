r"""Systems that the papers compare with, RECONSTRUCTED from memory and from the papers' remarks.

* :func:`pucb`: PUCB of Vietri, Balle, Krishnamurthy and Wu (2020), joint DP, finite worlds.
* :func:`ldp_ob`: LDP-OB of Garcelon, Perchet, Pike-Burke and Pirotta (2020), local DP.
* :func:`batched_lsvi_ucb`: Luyo, Garcelon, Lazaric and Pirotta (2021), joint DP, linear MDPs.
* :func:`adaptive_lsvi_ucb`: Ngo, Vietri and Wu (2022), joint DP, linear MDPs.
* :func:`ldp_ucrl_vtr`: LDP-UCRL-VTR of Liao, He and Gu (2021), local DP, linear mixtures.

No text of theirs was at hand. Constants are valid bounds, the noise has exactly the requested
privacy, and results say nothing about what their authors reached. Simulations, for figures alone.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.numerics.compiled import Floats, compiled, inner
from tacit.papers import chowdhury_tabular_2021 as tabular
from tacit.papers import sahu_linear_2025 as linear
from tacit.papers import zhou_mixture_2022 as mixture
from tacit.papers.counters import (
    laplace_width,
    operator_width,
    prefixes,
    symmetric_noise,
    tree_nodes,
    vector_width,
)
from tacit.papers.finite_loops import Users, dot, users_of
from tacit.papers.result import PaperResult, Sizes, proven
from tacit.privacy.budget import Budget
from tacit.privacy.noise import Noise
from tacit.privacy.validation import checked_number, whole_number
from tacit.tabular.policy import Policy
from tacit.tabular.world import simulate_episodes

if TYPE_CHECKING:
    from tacit.linear.worlds import LinearWorld
    from tacit.mixture.worlds import MixtureWorld
    from tacit.tabular.world import FiniteWorld

RECONSTRUCTED = ("reconstructed from memory and from descriptions: constants are not the text's",)
"""In the place of errata."""
_CHUNK = 64  # episodes whose noise is drawn at once


# Finite worlds: three counts of every step, with the noise of tacit.papers.chowdhury_tabular_2021.


@inner
def _optimism(E: float, row: float, local: bool, L: float, work: tabular.CountWork) -> None:
    """Optimistic costs; E bounds the noise of a count, ``row`` that of all moves of a cell."""
    H, S, A = work.at.Q.shape
    pairs = work.at.Q.size
    work.at.V[H] = 0.0
    for h in range(H - 1, -1, -1):
        left = float(H - h)
        for s in range(S):
            for a in range(A):
                pair = (h * S + s) * A + a
                n, cost = work.cells[pair], work.cells[pairs + pair]
                moved = work.cells[2 * pairs + pair * S :][:S]
                moves, ahead = moved.sum(), dot(moved, work.at.V[h + 1])
                if local:
                    # Denominators are raised by twice their noise's bound; any alpha > 1 will do.
                    n, m = max(1.0, n + 2.0 * E), max(1.0, moves + 2.0 * row)
                    bonus = math.sqrt(2.0 * L / n) + 4.0 * E / n
                    bonus += left * (math.sqrt(14.0 * S * L / m) + (S * E + 3.0 * row) / m)
                    Q = cost / n + ahead / m - bonus
                elif n >= max(1.0, 2.0 * E):
                    bonus = (H + 1.0) * math.sqrt(2.0 * L / max(n - E, 1.0))
                    bonus += (1.0 + S * H) * (3.0 * E / n + 2.0 * (E / n) ** 2)
                    Q = (cost + ahead) / n - bonus
                else:
                    Q = 0.0  # not known: as good as can be
                work.at.Q[h, s, a] = min(left, max(0.0, Q))
            work.at.V[h, s] = work.at.Q[h, s].min()


@compiled
def _serve(
    first: int,
    rng: np.random.Generator,
    users: Users,
    E: Floats,
    local: bool,
    L: float,
    work: tabular.CountWork,
    scale: float,
    units: Floats,
) -> None:
    """Episodes first + 1, first + 2, ..., each with a policy of its own."""
    for i in range(len(units)):
        _optimism(E[0, first + i], E[1, first + i], local, L, work)
        tabular.choose(rng, work)
        tabular.follow(first + i, rng, users, True, work)
        tabular.privatise(first + i, not local, scale, units[i], work)


def pucb(
    world: FiniteWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float = 0.0,
    failure: float = 0.1,
    local: bool = False,
    seed: int = 0,
) -> PaperResult:
    """PUCB after Vietri et al. (2020), reconstructed: Hoeffding bonuses on counts in binary trees.

    A cell is unknown, and worth all it could be, until its noisy count reaches twice the bound E
    of the noise. From then on the bonus is (H + 1) sqrt(2 L / (n - E)) and
    (1 + S H) (3 E / n + 2 E^2 / n^2) for the noise, L = ln(4 S A H K / failure).

    Args:
        world: a finite world; its rewards become costs 1 - reward.
        episodes: K.
        epsilon: the privacy level.
        delta: Laplace noise for 0, else Gaussian.
        failure: the probability with which the bonus may be too small.
        local: LDP-OB instead, see :func:`ldp_ob`.
        seed: of the users, and of the noise (that of a simulation).
    """
    model, K = world.model, whole_number("episodes", episodes, most=10**8)
    H, S, A = model.horizon, model.states, model.actions
    sizes = Sizes(K, H, (S, A), epsilon, delta, failure, False, Noise(seed))
    gaussian = sizes.delta > 0.0
    device = tabular.local_gaussian if gaussian else tabular.local
    made = (device if local else tabular.central)(sizes)
    E = made.E1
    rows = math.sqrt(S) * E
    if local and not gaussian:
        served = np.arange(1.0, K)
        rows = made.scale * np.append(0.0, laplace_width(S * served, tabular.share(sizes)))
    L = math.log((6.0 if local else 4.0) * S * A * H * K / failure)
    work, users = tabular.work_of(sizes), users_of(model)
    rng, bounds = np.random.default_rng([seed, 1]), np.stack([E, rows])
    for first in range(0, K, _CHUNK):
        units = made.units(min(_CHUNK, K - first))
        _serve(first, rng, users, bounds, local, L, work, made.scale, units)
    values, estimates = map(world.returns, work.curves)
    name = f"{'LDP-OB' if local else 'PUCB'}, reconstructed"
    last, constants = Policy.deterministic(work.at.greedy, A), {"E": float(E[-1]), "L": L}
    claim = f"{sizes.epsilon:g}-{'LDP' if local else 'JDP'}"
    reason = "two users are 6H apart in their counts of all steps together"
    proof = dataclasses.replace(made.proof, claim=claim, reason=reason)
    what = name, False, world.optimal_value, values, estimates, last
    base = world.baseline_value
    return PaperResult(*what, proof, constants, RECONSTRUCTED, baseline_value=base)


def ldp_ob(world: FiniteWorld, **options: Any) -> PaperResult:
    """LDP-OB after Garcelon et al. (2020), reconstructed; options as in :func:`pucb`.

    Devices add noise to their counts. Denominators are raised until they are positive for sure; the
    bonus has the noise of the sums, Hoeffding's bound for rewards and Weissman's for next states.
    """
    return pucb(world, local=True, **options)


# Linear MDPs: LSVI-UCB, with noise on Gram matrices in a tree and on the vectors of every update.


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
    more, base = {"switches": switches}, world.baseline_value
    return PaperResult(*what, constants, RECONSTRUCTED, more, baseline_value=base)


def adaptive_lsvi_ucb(world: LinearWorld, **options: Any) -> PaperResult:
    """Private LSVI-UCB with adaptive batches, after Ngo et al. (2022), reconstructed.

    Gram matrices are released after every episode. When a determinant has doubled, the vectors are
    released and the policy replaced, as often as was paid for. Options: :func:`batched_lsvi_ucb`.
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


# Linear mixtures.


def ldp_ucrl_vtr(
    world: MixtureWorld, *, epsilon: float, delta: float, **options: Any
) -> PaperResult:
    """LDP-UCRL-VTR after Liao et al. (2021), reconstructed: value-targeted regression on reports.

    LinOpt-VI-Reg of :mod:`~tacit.papers.zhou_mixture_2022` with Gaussian noise on the devices;
    arguments as there.
    """
    given = {"epsilon": epsilon, "delta": delta, **options}
    found = mixture.lin_opt_vi(world, regularizer="local", printed=False, **given)
    proof = dataclasses.replace(found.proof, claim=f"{Budget(epsilon, delta)}-LDP")
    name = "LDP-UCRL-VTR, reconstructed"
    return dataclasses.replace(found, algorithm=name, proof=proof, errata=RECONSTRUCTED)
