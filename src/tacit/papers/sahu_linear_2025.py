r"""Sahu: DP-LSVI-UCB++ for linear MDPs.

Sharan Sahu, Exploring Differential Privacy in Reinforcement Learning: Towards Optimal Regret Bounds
in Linear MDPs (arXiv 2504.09339, 2025). Algorithm 1, DP-LSVI-UCB++.

K episodes, H steps, features phi(s, a) of dimension d and norm at most 1, known rewards r_h(s, a):
a world's mean rewards. Worlds have finitely many states, so sums over users of phi V(s') are kept
as sums of phi e_s' and multiplied by V: the same numbers.

``printed=False`` releases the Gram matrices by a binary tree and the regression vectors at switches
alone, whose number is capped, with radii that are proven for finitely many states. A simulation,
whose loop sees raw trajectories. ``docs/papers/sahu_linear_2025.md`` has the paper's lines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

import tacit.papers.finite_loops as loops
from tacit.numerics.compiled import Floats, compiled, inner
from tacit.papers.counters import (
    operator_width,
    prefixes,
    symmetric_noise,
    tree_nodes,
    vector_width,
)
from tacit.papers.result import PaperResult, Proof, Sizes, proven
from tacit.privacy.budget import Budget, checked_delta
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.validation import one_of, whole_number
from tacit.tabular.policy import Policy

if TYPE_CHECKING:
    from tacit.linear.worlds import LinearWorld

ERRATA = (
    "line 9 clips w phi to [0, H^2] and squares it; Lemma B.3 clips to [0, H]",
    "lines 11, 12: Q-hat may fall below 0, Q-check rise above H; sensitivities need both in [0, H]",
    "line 12 prints min{r + w phi + beta |phi|, Q, 0} for max{r + w phi - beta |phi|, Q, 0}",
    "line 13 sets k_last within the loop over h; the test is made once per episode",
    "line 24: the root is read as that of the whole sum",
    "line 26 adds K_1 to what holds it already; Lemma B.1 has 2 lambda I + sum + K_1",
)
"""Misprints without whose correction there is nothing to run."""


class LSVIConstants(NamedTuple):
    """Constants of a run."""

    lambda_: float  # Lambda is 2 lambda I + sum + noise
    beta: float  # beta-hat and beta-check
    beta_bar: float
    gram_noise: float  # of Frobenius-isotropic noise: standard deviation on the diagonal
    vector_noise: float  # of phi_1 and phi_2
    square_noise: float  # of phi_3
    least_sigma: float  # H in line 25; its proof has sqrt(H)
    most_switches: int
    every_episode: bool  # vectors are released in every episode, not at switches alone
    tree: bool  # Gram matrices come from a tree
    coefficient: float = math.nan  # of line 25, and twice that of D in Lemma B.3: 2 d^3 H^2


class LSVIWork(NamedTuple):
    """Arrays of a run, which the loops below overwrite."""

    gram: Floats  # sum sigma^-2 phi phi', (H, d, d)
    moves: Floats  # sum sigma^-2 phi e_s'', (H, d, S)
    above: Floats  # noise of the tree's nodes, (levels, H d (d + 1) / 2)
    factor: Floats  # Cholesky factors of Lambda, (H, d, d)
    held: Floats  # those of the episode whose weights are used, (H, d, d)
    log_det: Floats  # ln det Lambda, now and at the last switch, (2, H)
    w: Floats  # w-hat, w-check, w-bar, (H, 3, d)
    Q: Floats  # Q-hat and Q-check, (2, H, S, A)
    V: Floats  # V-hat and V-check, (2, H + 1, S)
    at: loops.Room  # policies, and a user
    buffer: Floats  # (d, d)
    curves: Floats  # true values, V-hat_1, V-check_1, switches so far, (4, K)
    kept: Floats  # the last true value, and how many switches there were, (2,)


# Theorem 3.2 and Lemma A.1: the printed constants.


def printed_constants(sizes: Sizes, rho: float) -> LSVIConstants:
    """Line 1, Lemma A.1 and Theorem 3.2, whose O is read as 1, as are its c1 and c2."""
    K, H, (_, d), failure = sizes.episodes, sizes.horizon, sizes.shape, sizes.failure
    # Alg. 1, line 1.
    rho0 = rho / (4.0 * H * K)
    L = 4.0 * H * math.sqrt(d * H * K / rho * math.log(10.0 * d * K * H / failure))
    lambda_ = math.sqrt(8.0 * d * H * K / rho) * (
        2.0 + (math.log(5.0 * H / failure) / d) ** (2.0 / 3.0)
    )
    log_term = math.log(H * float(K) ** 4 * L**2 * d / (failure * lambda_))
    beta = H * L * math.sqrt(d * lambda_) + math.sqrt(d**3 * H**2) * log_term
    beta_bar = H**2 * L**2 * math.sqrt(d * lambda_) + math.sqrt(d**3 * H**4) * log_term
    gram_noise = math.sqrt(1.0 / (2.0 * rho0))  # K_1 = (Z + Z') / sqrt 2, Z of variance 1/(4 rho_0)
    noises = gram_noise, math.sqrt(2.0 * H**2 / rho0), math.sqrt(2.0 * H**4 / rho0)
    return LSVIConstants(lambda_, beta, beta_bar, *noises, float(H), K, True, False)


def cost(of: LSVIConstants, H: int, releases: int, nodes: int) -> float:
    """The mu of the noise of a run, replace-one.

    Weights are at most c = 1 / least_sigma^2 (line 25). Two users' terms of a step are sqrt(2) c
    apart in the Gram matrix, 2 c H, 2 c H and 2 c H^2 in the vectors.

    Args:
        of: standard deviations, and the least sigma.
        H: how many steps there are.
        releases: how often the vectors of a step are released at most.
        nodes: in how many released Gram matrices of a step, or nodes of them, a user is.
    """
    c = of.least_sigma**-2
    vectors = 2.0 / of.vector_noise**2 + (H / of.square_noise) ** 2
    gram = nodes * 2.0 / of.gram_noise**2
    return c * math.sqrt(H * (gram + releases * (2.0 * H) ** 2 * vectors))


class Regressions(NamedTuple):
    """Regressions on values of K users, for their radii; see :func:`corrected_constants`."""

    K: int
    d: int
    lambda_: float
    c: float  # the largest weight
    log_term: float
    weight: float

    def radius(self, R: float, noise: float) -> float:
        """That of a regression on values in [0, R] with noise of a norm of at most ``noise``."""
        K, d, lambda_, c, log_term, weight = self
        spread = d * math.log(1.0 + K * c / (d * lambda_))
        sampling = R / 2.0 * math.sqrt(c) * math.sqrt(2.0 * log_term + spread)
        small = (noise + 2.0 * R * c) / math.sqrt(lambda_)
        return sampling + small + 3.0 * math.sqrt(lambda_) * R * weight


def corrected_constants(sizes: Sizes, weight: float) -> LSVIConstants:
    """Noise that costs the budget's mu, replace-one, and radii that hold but for ``failure``.

    Half of mu^2 is for the Gram matrices, a sixth for each vector; weights are at most c = 1 / H.
    A user is in m nodes: s_G = sqrt(2) c sqrt(2 H m) / mu. N switches: s = 2 c H sqrt(6 H N) / mu,
    and H times more for squares. lambda bounds the noise of the Gram matrices, so that on this
    event lambda I + sum <= Lambda <= 3 lambda I + sum, and with w of norm at most R weight
    |(w^ - w)' phi| <= (|z| / sqrt(lambda) + 3 sqrt(lambda) R weight + sampling) |phi| in Lambda^-1.
    Sampling is the self-normalised bound for (R/2)-subgaussian noise with weights sqrt(c), a union
    over the K^S values V on a grid of step R / K, and 2 R c / sqrt(lambda) for those between.
    """
    K, H, (S, d), failure = sizes.episodes, sizes.horizon, sizes.shape, sizes.failure
    nodes, c, mu = tree_nodes(max(1, K - 1)), 1.0 / H, sizes.budget.mu
    gram_noise = math.sqrt(2.0) * c * math.sqrt(2.0 * H * nodes) / mu
    lambda_ = gram_noise * math.sqrt(nodes) * operator_width(d, failure / (3.0 * H * K))
    switches = math.ceil(d * H * math.log2(1.0 + K * c / (2.0 * d * lambda_))) + H
    vector_noise = 2.0 * c * H * math.sqrt(6.0 * H * switches) / mu
    width = vector_width(d, failure / (9.0 * H * switches))
    log_term = math.log(9.0 * H / failure) + S * math.log(K + 1.0)
    each = Regressions(K, d, lambda_, c, log_term, weight)
    beta, beta_bar = (each.radius(H**n, H ** (n - 1) * vector_noise * width) for n in (1, 2))
    noises = gram_noise, vector_noise, H * vector_noise
    return LSVIConstants(lambda_, beta, beta_bar, *noises, math.sqrt(H), switches, False, True)


def unit_features(world: LinearWorld) -> Floats:
    """Features phi (S, A, d), if their norms are at most 1."""
    phi = np.ascontiguousarray(world.features, dtype=np.float64)
    if (np.linalg.norm(phi, axis=2) > 1.0 + 1e-12).any():
        raise InvalidArgument("features must have norm at most 1: the sensitivities stand on it")
    return phi


def weight_of(world: LinearWorld) -> float:
    """A bound of |sum mu(s') v(s')| for |v| <= 1."""
    return float(np.linalg.norm(world.measures, axis=1).sum(axis=1).max())


# Algorithm 1.


def dp_lsvi_ucb_plus_plus(
    world: LinearWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float,
    noise: Literal["fresh", "once"] = "fresh",
    failure: float = 0.1,
    printed: bool = True,
    constants: LSVIConstants | None = None,
    seed: int = 0,
) -> PaperResult:
    """Algorithm 1, DP-LSVI-UCB++. Ties are broken at random.

    Args:
        world: a linear MDP; its mean rewards are known.
        episodes: K.
        epsilon: with ``delta``, the budget; rho follows by Lemma 2.1 (printed) or exactly.
        delta: the paper's delta'.
        noise: drawn "fresh" for every episode and step, or "once" as in line 1 (printed only).
        failure: the paper's delta.
        printed: the paper's constants, or those that are proven.
        constants: other constants than those of ``printed``, for a tuned reading: no guarantee.
        seed: of the users, and of the noise (that of a simulation).

    >>> from tacit.linear import two_state
    >>> world = two_state(horizon=3)
    >>> print(dp_lsvi_ucb_plus_plus(world, episodes=500, epsilon=1.0, delta=1e-6).reason)
    weights are at most 1 / H^2 where the paper counts 1, and Gram matrices move by sqrt(2)
    """
    K, noise = whole_number("episodes", episodes, 2, 10**8), one_of("noise", noise, _READINGS)
    phi, once = unit_features(world), noise == "once"
    H, S, A = world.model.horizon, world.model.states, world.model.actions
    d, budget, source = phi.shape[2], Budget(epsilon, delta), Noise(seed)
    sizes = Sizes(K, H, (S, d), budget.epsilon, budget.delta, failure, printed, source)
    if once and not printed:
        raise InvalidArgument('noise must be "fresh" where constants are corrected: drawn once')
    # epsilon = rho + 2 sqrt(rho log(1 / delta)), solved for rho (Bun and Steinke, 2016).
    L = math.log(1.0 / checked_delta(delta))
    rho = (epsilon / (math.sqrt(L + epsilon) + math.sqrt(L))) ** 2
    of, nodes = constants or printed_constants(sizes, rho), tree_nodes(K - 1)
    claim, reason, how = f"{budget}-JDP", _WEIGHTS, "Gaussian noise on every release"
    told = K - 1, K - 1
    if constants is None and not printed:
        of, claim = corrected_constants(sizes, weight_of(world)), _CLAIM
        told = of.most_switches, nodes
        how = "binary tree of Gram matrices, capped releases of vectors, Gaussian noise"
        reason = f"exact accounting of {nodes} nodes and {of.most_switches} switches"
    if math.isnan(of.coefficient):
        of = of._replace(coefficient=2.0 * d**3 * H**2)
    if constants is not None:
        proof = Proof(_CLAIM, None, "constants are the caller's own")
    elif once:
        proof = Proof(_CLAIM, None, "differences of releases carry no noise when it is drawn once")
    else:
        words = {"mu": cost(of, H, *told), "delta": budget.delta, "releases": K - 1}
        proof = proven(claim, reason, mechanism=how, **words)
    work, rng = _work(K, H, S, A, d, of), np.random.default_rng([seed, 1])
    users = loops.users_of(world.model)
    vectors = 1 if once else of.most_switches
    units = source.normal((1, work.above.shape[1])) if once else np.zeros((0, 0))
    targets = source.normal((0 if of.every_episode and not once else vectors, H, 3, d))
    for first in range(0, K, _CHUNK):
        n = min(_CHUNK, K - first)
        if not once:
            units = source.normal((n, work.above.shape[1]))
            if of.every_episode:
                targets = source.normal((n, H, 3, d))
            if of.tree:
                prefixes(first, units[first == 0 :].copy(), work.above, False, units)
        upper = units.reshape(len(units), H, -1)
        grams = of.gram_noise * symmetric_noise(upper)
        _learn(first, n, rng, users, phi, of, work, grams, targets)
    values, estimates, lower, switches = work.curves
    named = {"rho": rho, "lambda": of.lambda_} | of._asdict()
    numbers = {name: float(value) for name, value in named.items() if name != "coefficient"}
    what = "DP-LSVI-UCB++", printed, world.optimal_value, values, estimates
    more = {"lower": lower, "switches": switches}
    rest = Policy.stochastic(work.at.pi), proof, numbers, ERRATA, more
    return PaperResult(*what, *rest, baseline_value=world.baseline_value)


_READINGS = ("fresh", "once")
_CLAIM = "(eps, delta')-JDP"
_WEIGHTS = "weights are at most 1 / H^2 where the paper counts 1, and Gram matrices move by sqrt(2)"
_CHUNK = 64  # episodes whose noise is drawn at once


def _work(K: int, H: int, S: int, A: int, d: int, of: LSVIConstants) -> LSVIWork:
    Q, V = np.zeros((2, H, S, A)), np.zeros((2, H + 1, S))
    # Alg. 1, line 2.
    Q[0], V[0, :H] = H, H
    triangle, log_det = H * d * (d + 1) // 2, np.full((2, H), d * math.log(2.0 * of.lambda_))
    above = np.zeros((tree_nodes(K) if of.tree else 1, triangle))
    gram, moves, factor, held = map(np.zeros, ((H, d, d), (H, d, S), (H, d, d), (H, d, d)))
    w, buffer, kept = map(np.zeros, ((H, 3, d), (d, d), (2,)))
    sums = gram, moves, above, factor, held, log_det, w
    return LSVIWork(*sums, Q, V, loops.room_of(H, S, A), buffer, np.empty((4, K)), kept)


@inner
def _regress(h: int, of: LSVIConstants, work: LSVIWork, units: Floats) -> None:
    """The three weight vectors of a step."""
    d, S = work.moves.shape[1:]
    for i in range(3):
        w = work.w[h, i]
        for j in range(d):
            w[j] = (of.square_noise if i == 2 else of.vector_noise) * units[h, i, j]
            for s in range(S):
                V = work.V[1 if i == 1 else 0, h + 1, s]
                w[j] += work.moves[h, j, s] * (V * V if i == 2 else V)
        # Alg. 1, line 6; Alg. 1, line 7; Alg. 1, line 8.
        loops.solved(work.factor[h], w)


@inner
def _update(h: int, users: loops.Users, phi: Floats, of: LSVIConstants, work: LSVIWork) -> None:
    """Bounds from above and below, which only tighten."""
    S, A = phi.shape[:2]
    H = work.gram.shape[0]
    r = users.mean_rewards[min(h, users.mean_rewards.shape[0] - 1)]
    for s in range(S):
        for a in range(A):
            width = of.beta * loops.inverse_norm(work.factor[h], phi[s, a], work.buffer[0])
            # Alg. 1, line 11.
            high = r[s, a] + loops.dot(work.w[h, 0], phi[s, a]) + width
            work.Q[0, h, s, a] = max(min(high, work.Q[0, h, s, a], float(H)), 0.0)
            # Alg. 1, line 12.
            low = r[s, a] + loops.dot(work.w[h, 1], phi[s, a]) - width
            work.Q[1, h, s, a] = min(max(low, work.Q[1, h, s, a], 0.0), float(H))
        # Alg. 1, line 18; Alg. 1, line 19.
        work.V[0, h, s], work.V[1, h, s] = work.Q[0, h, s].max(), work.Q[1, h, s].max()


@inner
def _sigma(h: int, x: Floats, of: LSVIConstants, work: LSVIWork) -> float:
    """sigma-bar of a user's step."""
    H, c = len(work.gram), of.coefficient
    now = loops.inverse_norm(work.factor[h], x, work.buffer[0])
    norm = now if of.every_episode else loops.inverse_norm(work.held[h], x, work.buffer[0])
    # Alg. 1, line 9.
    second = min(max(loops.dot(work.w[h, 2], x), 0.0), float(H * H))
    first = min(max(loops.dot(work.w[h, 0], x), 0.0), float(H))
    variance = second - first * first
    # Lemma B.3.
    E = min(of.beta_bar * norm, float(H * H)) + min(2.0 * H * of.beta * norm, float(H * H))
    gap = loops.dot(work.w[h, 0], x) - loops.dot(work.w[h, 1], x) + 2.0 * of.beta * norm
    D = min(2.0 * c * gap, c * H / 2.0)
    # Alg. 1, line 24.
    sigma = math.sqrt(max(variance + E + D + H, 0.0))
    # Alg. 1, line 25.
    return float(max(sigma, of.least_sigma, c * math.sqrt(now)))


@inner
def _insert(phi: Floats, of: LSVIConstants, work: LSVIWork) -> None:
    """A user's terms of the sums; weights are at most 1 / least_sigma^2."""
    # Alg. 1, line 22.
    for h in range(len(work.gram)):
        x = phi[work.at.states[0, h], work.at.actions[0, h]]
        weight = _sigma(h, x, of, work) ** -2
        # Alg. 1, line 26; the next state enters the sums of lines 6 to 8.
        work.moves[h, :, work.at.states[0, h + 1]] += weight * x
        work.gram[h] += np.outer(weight * x, x)


@inner
def _grams(k: int, noise: Floats, of: LSVIConstants, work: LSVIWork) -> bool:
    """Lambda of episode k + 1, factorised; whether line 10 says that enough was learnt."""
    switch, shift = False, 2.0 * of.lambda_ * np.eye(work.gram.shape[1])
    for h in range(len(work.gram)):
        work.buffer[:] = work.gram[h] + shift + (noise[h] if k > 0 else 0.0 * noise[h])
        work.log_det[0, h] = loops.cholesky(work.buffer, 1e-6 * of.lambda_, work.factor[h])
        # Alg. 1, line 10.
        switch = switch or work.log_det[0, h] >= math.log(2.0) + work.log_det[1, h]
    return switch


@compiled
def _learn(
    first: int,
    n: int,
    rng: np.random.Generator,
    users: loops.Users,
    phi: Floats,
    of: LSVIConstants,
    work: LSVIWork,
    grams: Floats,
    targets: Floats,
) -> None:
    """Episodes first + 1, first + 2, ...; noise of one row is used for all."""
    # Alg. 1, line 3.
    for i in range(n):
        k = first + i
        switch = _grams(k, grams[min(i, len(grams) - 1)], of, work)
        switch = switch and work.kept[1] < of.most_switches
        row = min(i, len(targets) - 1) if of.every_episode else int(work.kept[1])
        # Alg. 1, line 5.
        for h in range(len(work.gram) - 1, -1, -1):
            if of.every_episode or switch:
                _regress(h, of, work, targets[row])
            if switch and not of.every_episode:
                work.held[h] = work.factor[h]
            # Alg. 1, line 14 to 17: else Q stays as it is.
            if switch:
                _update(h, users, phi, of, work)
                # Alg. 1, line 13: the determinants that the next test compares with.
                work.log_det[1, h] = work.log_det[0, h]
        if k == 0:
            work.held[:] = work.factor
        if switch or k == 0:
            work.kept[1] += 1.0 if switch else 0.0
            # Alg. 1, line 20; Alg. 1, line 21.
            loops.uniform_over_best(work.Q[0], work.at)
            work.kept[0] = loops.policy_value(users, work.at)
        work.curves[0, k], work.curves[3, k] = work.kept[0], work.kept[1]
        for j in range(2):
            work.curves[1 + j, k] = loops.dot(users.first, work.V[j, 0])
        # Alg. 1, line 4; Alg. 1, line 23; Alg. 1, line 27.
        loops.roll_out_one(rng, users, False, work.at)
        # Alg. 1, line 28; Alg. 1, line 29: both loops end after this.
        _insert(phi, of, work)
