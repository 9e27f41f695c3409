r"""Zhou: private reinforcement learning in linear mixture MDPs.

Xingyu Zhou, Differentially Private Reinforcement Learning with Linear Function Approximation, Proc.
ACM Meas. Anal. Comput. Syst. 6(1), 2022. LinOpt-VI-Reg (Algorithm 1) and LinOpt-PO-Reg (Algorithm
2) with any REGULARIZER: the paper's PRIVATIZER of four binary counters, which makes them
Private-LinOpt-VI and Private-LinOpt-PO; its local form (Remark 6.9); a fixed ridge, which is not
private; or your own.

P_h(s' | s, a) = <psi(s' | s, a), theta_p>, d1 weights; mean rewards <varphi(s, a), theta_r>, d2
weights. Known rewards without features are their own varphi, with one weight. A simulation, whose
loop sees raw trajectories. ``docs/papers/zhou_mixture_2022.md`` has the paper's lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tacit.papers.finite_loops as loops
from tacit.numerics.compiled import Floats, compiled, inner
from tacit.papers.counters import (
    Counters,
    Level,
    NoisySums,
    Regularizer,
    Ridge,
    operator_width,
    tree_nodes,
    vector_width,
)
from tacit.papers.result import PaperResult, Sizes, proven
from tacit.privacy.budget import Budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.validation import checked_number, one_of, positive, whole_number
from tacit.tabular.policy import Policy

if TYPE_CHECKING:
    from tacit.mixture.worlds import MixtureWorld

ERRATA = (
    "phi_h^k(s_h^j, a_h^j) in the sums over users j is phi_h^j, as in the P-sums of Section 6.1",
    "line 1: Lambda^1 = 0 has no inverse; it is the shift 2 Sigma I",
    "Section 5: varphi' theta_p is varphi' theta_r",
    "Theorem 6.5: the second nu_p is nu_r",
)
"""Misprints without whose correction there is nothing to run."""


class Regularizers(NamedTuple):
    """Z and z of some episodes, one after another, which are added to the sums."""

    Zp: Floats  # (n, H, d1, d1)
    zp: Floats  # (n, H, d1)
    Zr: Floats  # (n, H, d2, d2)
    zr: Floats  # (n, H, d2)


Make = Callable[[Sizes], Regularizer]


def private(sizes: Sizes, local: bool = False, norm: float | None = None) -> Counters:
    """Section 6.1, the PRIVATIZER: noise of four counters per step, and a shift.

    As printed: standard deviations (H Delta / eps) sqrt(32 m ln(4H / delta)) on every node, on the
    whole upper triangle of Gram matrices, with Delta = d1 H^2, sqrt(d1) H^2, 1, 1 and m =
    ceil(log2 K). Per step the Gram matrix and vector of two users, |p| <= B and |q| <= X, in units
    of their noise s and s / w, have a squared distance of at most 2 (B^2 + w^2 X^2 / 2)^2 / s^2;
    mu^2 is its sum over steps, nodes and both regressions: 9 H m / t^2, t the multiplier of Delta.
    Corrected: t = sqrt(9 H m) / mu, halved variances off the diagonal, and Sigma from the bound for
    such noise. ``local``: each device adds its own noise to its report, t = sqrt(9 H) / mu, and
    sums have that of all reports (Remark 6.9, which prints no noise). ``norm`` bounds |phi| / H:
    sqrt(d1) by default; Remark 6.6 has 1.
    """
    if local and sizes.printed:
        raise InvalidArgument("printed must be False: Remark 6.9 prints no local noise")
    K, H, (d1, d2) = sizes.episodes, sizes.horizon, sizes.shape
    norm = math.sqrt(d1) if norm is None else norm
    nodes = 1 if local else tree_nodes(max(1, K - 1))
    if sizes.printed:
        t = H / sizes.epsilon * math.sqrt(32.0 * nodes * math.log(4.0 * H / sizes.delta))
        log_term = math.log(8.0 * K * H / sizes.failure)
        widths = [4.0 * math.sqrt(d) + math.sqrt(8.0 * log_term) for d in (max(d1, d2), d2)]
        share = sizes.failure / (4.0 * K * H)
    else:
        t = math.sqrt(9.0 * H * nodes) / sizes.budget.mu
        share = sizes.failure / 3.0 / (4.0 * K * H)
        widths = [operator_width(d, share) for d in (d1, d2)]
    # Standard deviations of the nodes of Gram matrices and vectors, for p and for r.
    scales = (t * norm**2 * H**2, t * norm * H**2), (t, t)
    made = [
        NoisySums.shifted((d, 1), two, K if local else nodes, width, vector_width(d, share))
        for two, width, d in zip(scales, widths, (d1, d2), strict=True)
    ]
    # Bounds that are enforced, of |phi| and V, of |varphi| and rewards.
    bounds = (norm * H, float(H)), (1.0, 1.0)
    pairs = zip(made, bounds, strict=True)
    parts = [(B**2 + (one.gram / one.cross * X) ** 2 / 2.0) / one.gram for one, (B, X) in pairs]
    proof = proven(
        f"O{sizes.budget}-JDP" if sizes.printed else "nothing more precise than O(eps, delta)",
        "all steps and counters of a user are accounted for together",
        mechanism="reports" if local else "binary trees, Gaussian noise",
        model="local" if local else "joint",
        mu=math.sqrt(2.0 * H * nodes * sum(part**2 for part in parts)),
        delta=sizes.delta,
        releases=1 if local else max(1, K - 1),
    )
    return Counters(sizes, made, proof, H, local)


def ridge(sizes: Sizes) -> Ridge:
    """Z = I and z = 0: without privacy."""
    return Ridge([(d, 1) for d in sizes.shape], sizes.horizon)


REGULARIZERS: dict[str, Make] = {
    "private": private,  # Definitions 6.2 and 6.3
    "local": partial(private, local=True),  # Remark 6.9
    "ridge": ridge,
}


# Algorithms 1 and 2.


def lin_opt_vi(world: MixtureWorld, **options: Any) -> PaperResult:
    """Algorithm 1, LinOpt-VI-Reg; options as in :func:`lin_opt_po`, without ``eta``.

    It is Private-LinOpt-VI with ``regularizer="private"``.

    >>> from tacit.mixture import hard_mixture
    >>> result = lin_opt_vi(hard_mixture(), episodes=200, epsilon=1.0, delta=1e-6)
    >>> result.algorithm, round(result.guarantee.epsilon, 3)
    ('LinOpt-VI-Reg', 0.199)
    """
    if "eta" in options:
        raise InvalidArgument("eta is a step of LinOpt-PO-Reg")
    return lin_opt_po(world, eta=0.0, **options)


def lin_opt_po(
    world: MixtureWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float,
    regularizer: str | Make = "private",
    failure: float = 0.1,
    eta: float | None = None,
    printed: bool = True,
    seed: int = 0,
) -> PaperResult:
    """Algorithm 2, LinOpt-PO-Reg; Private-LinOpt-PO with ``regularizer="private"``.

    Args:
        world: a linear mixture MDP.
        episodes: K.
        epsilon: with ``delta``, the privacy level.
        delta: see ``epsilon``.
        regularizer: "private", "local", "ridge" (not private), or what makes a
            :class:`Regularizer` from :class:`Sizes`.
        failure: the paper's alpha.
        eta: step size; sqrt(2 log A / (H^2 K)) by default, as in the proof of Theorem 5.1. With 0
            it is Algorithm 1.
        printed: the paper's constants, or those that are proven.
        seed: of the users, and of the noise (that of a simulation).
    """
    psi, varphi = _features(world)
    (_, A, d1, _), d2, H = psi.shape, varphi.shape[2], world.model.horizon
    K, budget = whole_number("episodes", episodes, most=10**8), Budget(epsilon, delta)
    if eta is None:
        eta = positive("eta", math.sqrt(2.0 * math.log(A) / (H**2 * K)))
    eta = checked_number("eta", eta, "at least 0", lambda x: 0.0 <= x < math.inf)
    levels = budget.epsilon, budget.delta, failure, printed
    sizes = Sizes(K, H, (d1, d2), *levels, Noise(seed))
    if not callable(regularizer):
        regularizer = REGULARIZERS[one_of("regularizer", regularizer, list(REGULARIZERS))]
    made = regularizer(sizes)
    p, r = made.levels
    of = LinOptConstants(*radii(sizes, p, r), eta)
    work = _work(K, H, psi, varphi)
    rng, users = np.random.default_rng([seed, 1]), loops.users_of(world.model)
    for first in range(0, K, _CHUNK):
        given = made.regularize(first, min(_CHUNK, K - first))
        add = Regularizers(*(np.array(part, dtype=np.float64, order="C") for part in given))
        _learn(first, rng, users, add, of, work)
    values, estimates = work.curves
    last, best = Policy.stochastic(work.at.pi), world.optimal_value
    named = {"lambda_p": p.lambda_min, "lambda_r": r.lambda_min, "nu_p": p.nu, "nu_r": r.nu}
    constants, name = of._asdict() | named, "LinOpt-PO-Reg" if eta else "LinOpt-VI-Reg"
    run = name, printed, best, values, estimates, last, made.proof, constants, ERRATA
    return PaperResult(*run, baseline_value=world.baseline_value)


class LinOptWork(NamedTuple):
    """Arrays of a run, which the loops below overwrite."""

    psi: Floats  # (S, A, d1, S)
    varphi: Floats  # (S, A, d2)
    Gp: Floats  # sums over users: (H, d1, d1)
    gp: Floats  # (H, d1)
    Gr: Floats  # (H, d2, d2)
    gr: Floats  # (H, d2)
    phi: Floats  # phi_h^k(s, a), (H, S, A, d1)
    theta: Floats  # theta_p and theta_r, (2, d), d the larger of d1 and d2
    matrix: Floats  # Lambda and its factor, (2, d, d)
    at: loops.Room  # the Q and V of episodes, and a user
    buffer: Floats  # (d,)
    curves: Floats  # true values and estimates, (2, K)


class LinOptConstants(NamedTuple):
    """Lemma 3.1's radii, and the step size, 0 for Algorithm 1."""

    beta_p: float
    beta_r: float
    eta: float


@inner
def _estimate(G: Floats, Z: Floats, g: Floats, z: Floats, work: LinOptWork, which: int) -> float:
    """Solves Lambda theta = u for a step; the factor of Lambda stays in ``work.matrix[1]``."""
    d = len(g)
    for i in range(d):
        for j in range(d):
            work.matrix[0, i, j] = G[i, j] + Z[i, j]
        work.theta[which, i] = g[i] + z[i]
    log_det = loops.cholesky(work.matrix[0, :d, :d], 1e-9, work.matrix[1, :d, :d])
    loops.solved(work.matrix[1, :d, :d], work.theta[which, :d])
    return log_det


@inner
def _plan(i: int, add: Regularizers, of: LinOptConstants, work: LinOptWork) -> None:
    """Q and V of one episode: lines 3 to 11 of Algorithm 1, 4 to 12 of Algorithm 2."""
    H, S, A, d1 = work.phi.shape
    d2 = work.varphi.shape[2]
    # Alg. 1, line 3; Alg. 2, line 4.
    work.at.V[H] = 0.0
    # Alg. 1, line 4; Alg. 2, line 5. Here h counts from 0, so H - h + 1 is H - h.
    for h in range(H - 1, -1, -1):
        # Alg. 1, line 6; Alg. 2, line 7.
        _estimate(work.Gr[h], add.Zr[i, h], work.gr[h], add.zr[i, h], work, 1)
        for s in range(S):
            for a in range(A):
                x = work.varphi[s, a]
                # Alg. 1, line 9; Alg. 2, line 10.
                bonus = of.beta_r * loops.inverse_norm(work.matrix[1, :d2, :d2], x, work.buffer)
                work.at.Q[h, s, a] = loops.dot(work.theta[1, :d2], x) + bonus
        # Alg. 1, line 5; Alg. 2, line 6.
        _estimate(work.Gp[h], add.Zp[i, h], work.gp[h], add.zp[i, h], work, 0)
        for s in range(S):
            for a in range(A):
                x = work.phi[h, s, a]
                # Alg. 1, line 7; Alg. 2, line 8.
                for j in range(d1):
                    x[j] = loops.dot(work.psi[s, a, j], work.at.V[h + 1])
                # Alg. 1, line 8; Alg. 2, line 9.
                bonus = of.beta_p * loops.inverse_norm(work.matrix[1, :d1, :d1], x, work.buffer)
                # Alg. 1, line 10; Alg. 2, line 11.
                total = work.at.Q[h, s, a] + loops.dot(work.theta[0, :d1], x) + bonus
                work.at.Q[h, s, a] = max(0.0, min(float(H - h), total))
            # Alg. 1, line 11; Alg. 2, line 12.
            Q = work.at.Q[h, s]
            work.at.V[h, s] = Q.max() if of.eta == 0.0 else loops.dot(Q, work.at.pi[h, s])


@inner
def _insert(work: LinOptWork) -> None:
    """A user's terms of the sums; rewards are cut to [0, 1], and V is in [0, H] by its making."""
    for h in range(work.at.actions.shape[1]):
        s, a, after = work.at.states[0, h], work.at.actions[0, h], work.at.states[0, h + 1]
        x, y = work.phi[h, s, a], work.varphi[s, a]
        reward = min(1.0, max(0.0, work.at.rewards[0, h]))
        for i in range(len(x)):
            work.gp[h, i] += x[i] * work.at.V[h + 1, after]
            for j in range(len(x)):
                work.Gp[h, i, j] += x[i] * x[j]
        for i in range(len(y)):
            work.gr[h, i] += y[i] * reward
            for j in range(len(y)):
                work.Gr[h, i, j] += y[i] * y[j]


@compiled
def _learn(
    first: int,
    rng: np.random.Generator,
    users: loops.Users,
    add: Regularizers,
    of: LinOptConstants,
    work: LinOptWork,
) -> None:
    """Episodes first + 1, first + 2, ..., with what the REGULARIZER adds to their sums."""
    # Alg. 1, line 2; Alg. 2, line 3.
    for i in range(len(add.zp)):
        _plan(i, add, of, work)
        # Alg. 1, line 12.
        if of.eta == 0.0:
            loops.uniform_over_best(work.at.Q, work.at)
        work.curves[0, first + i] = loops.policy_value(users, work.at)
        work.curves[1, first + i] = loops.dot(users.first, work.at.V[0])
        # Alg. 1, line 13; Alg. 2, line 13.
        loops.roll_out_one(rng, users, False, work.at)
        # Alg. 1, line 14; Alg. 2, line 14: the REGULARIZER adds Z and z to these.
        _insert(work)
        # Alg. 2, line 15.
        if of.eta > 0.0:
            loops.mirror_step(of.eta, work.at)


_CHUNK = 64  # episodes whose noise is drawn at once


def radii(sizes: Sizes, p: Level, r: Level) -> tuple[float, float]:
    """Lemma 3.1: beta_p and beta_r; K |phi|^2 / d1 is the K H^2 that the paper prints.

    The lemma holds with 1 - 3 alpha; corrected radii are for a third of it.
    """
    K, H, (d1, d2) = sizes.episodes, sizes.horizon, sizes.shape
    log_term = 2.0 * math.log(H / (sizes.failure if sizes.printed else sizes.failure / 3.0))
    spread_p = d1 * math.log(1.0 + K * H**2 / p.lambda_min)
    spread_r = d2 * math.log(1.0 + K / (d2 * r.lambda_min))
    beta_p = H / 2.0 * math.sqrt(log_term + spread_p) + math.sqrt(d1 * p.lambda_max) + p.nu
    beta_r = math.sqrt(log_term + spread_r) / 2.0 + math.sqrt(d2 * r.lambda_max) + r.nu
    return beta_p, beta_r


def _features(world: MixtureWorld) -> tuple[Floats, Floats]:
    """Features psi and varphi, if the world is as Assumption 1 has it."""
    psi = np.array(world.transition_features, dtype=np.float64, order="C")
    varphi, weights = world.reward_features, world.reward_weights
    if varphi is None or weights is None:
        if len(world.rewards) > 1:
            raise InvalidArgument("a world whose rewards depend on the step needs reward_features")
        varphi, weights = np.array(world.rewards[0])[..., np.newaxis], np.ones((1, 1))
    d1, d2 = psi.shape[2], varphi.shape[2]
    # phi_i is between sums of the negative and of the positive parts of psi_i, times H.
    ends = np.maximum(np.maximum(psi, 0.0).sum(axis=3), np.maximum(-psi, 0.0).sum(axis=3))
    bounds = (
        ("|phi| <= sqrt(d1) H", np.linalg.norm(ends, axis=2).max(), math.sqrt(d1)),
        ("|theta_p| <= sqrt(d1)", np.linalg.norm(world.weights, axis=1).max(), math.sqrt(d1)),
        ("|varphi| <= 1", np.linalg.norm(varphi, axis=2).max(), 1.0),
        ("|theta_r| <= sqrt(d2)", np.linalg.norm(weights, axis=1).max(), math.sqrt(d2)),
    )
    for words, value, bound in bounds:
        if value > bound * (1.0 + 1e-9):
            raise InvalidArgument(f"world must have {words} (Assumption 1), got {value:.6g}")
    return psi, np.array(varphi, dtype=np.float64, order="C")


def _work(K: int, H: int, psi: Floats, varphi: Floats) -> LinOptWork:
    S, A, d1, _ = psi.shape
    d2, d = varphi.shape[2], max(d1, varphi.shape[2])
    # Alg. 1, line 1; Alg. 2, line 1.
    Gp, gp, Gr, gr = map(np.zeros, ((H, d1, d1), (H, d1), (H, d2, d2), (H, d2)))
    phi, theta, matrix = map(np.zeros, ((H, S, A, d1), (2, d), (2, d, d)))
    # Alg. 2, line 2.
    at, buffer, curves = loops.room_of(H, S, A), np.zeros(d), np.empty((2, K))
    return LinOptWork(psi, varphi, Gp, gp, Gr, gr, phi, theta, matrix, at, buffer, curves)
