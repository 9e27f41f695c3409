r"""Chowdhury, Zhou and Shroff: private adaptive control of linear quadratic systems.

Sayak Ray Chowdhury, Xingyu Zhou and Ness Shroff, Adaptive Control of Differentially Private Linear
Quadratic Systems, ISIT 2021. OFU-RL with changing regularizers H_k and L_k (Section III-A; anyone
can bring them); in Private-OFU-RL (Algorithm 1) they are the noise of two binary counters.

States x in R^n, controls u in R^d, z = (x, u), x' = Theta' z + w with Theta = [A, B]'. The paper
minimises costs; values here are minus costs, given each user's first state, as regret (6) has it.

What Assumption 1 assumes of users (norms of states at most 1, of controls at most gamma) is
enforced for the statistics: a step enters them with the factor min(1, 1/|x|, gamma/|u|, 1/|x'|),
which keeps x' = Theta' z + w true and is 1 where the assumption holds. Controls are not cut.

A simulation, whose loop sees raw trajectories and plans with the sums with H_k and L_k; it is not
compiled, only what it calls. ``docs/papers/chowdhury_lq_2021.md`` has the paper's lines beside the
code's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tacit.lq.control_loops import cost_gradient, expected_costs, riccati, times
from tacit.numerics.compiled import Floats, compiled
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
from tacit.privacy.noise import Noise
from tacit.privacy.validation import one_of, positive, whole_number

if TYPE_CHECKING:
    from tacit.lq.world import LQWorld

ERRATA = (
    "(3) prints P_h in the gains for P_(h+1)",
    "the P-sums of the counter B_2 print z z' for z x_next'",
    "the noise covariance that (5) needs is missing from the inputs of Algorithm 1",
)
"""Misprints without whose correction there is nothing to run."""


Make = Callable[[Sizes], Regularizer]


def distance(sizes: Sizes, gamma: float, w: float) -> float:
    """How far two users are apart in sum z z' and w sum z x', together: sqrt(2) H (B^2 + w^2 / 2).

    B^2 = 1 + gamma^2 bounds |z|^2, and 1 bounds |x'|. With y = (z, w x' / sqrt(2)) the norm is at
    most that of sum y y', which is positive semidefinite with a trace of at most H (B^2 + w^2 / 2).
    """
    return math.sqrt(2.0) * sizes.horizon * (1.0 + gamma**2 + w**2 / 2.0)


def private(sizes: Sizes, gamma: float = 1.0) -> Counters:
    """The counters B_1 and B_2 of Algorithm 1, with the shift eta = 2 Lambda.

    As printed: sigma = Delta sqrt(8 m ln(2 / delta)) / eps on every node, the whole upper triangle
    in B_1, with Delta_1 = H (1 + gamma)^2 and Delta_2 = H (1 + gamma), m = ceil(log2 K). Proven is
    what :func:`distance` by sigma_1 gives on m nodes, w = sigma_1 / sigma_2. Corrected: w = B,
    sigma_1 by the budget, variances off the diagonal halved, Lambda and nu bounds of such noise.
    """
    K, H, (n, d), alpha = sizes.episodes, sizes.horizon, sizes.shape, sizes.failure
    p, nodes, square = n + d, tree_nodes(max(1, K - 1)), 1.0 + gamma**2
    if sizes.printed:
        t = math.sqrt(8.0 * nodes * math.log(2.0 / sizes.delta)) / sizes.epsilon
        gram, cross = t * H * (1.0 + gamma) ** 2, t * H * (1.0 + gamma)
        size = 4.0 * math.sqrt(p) + math.sqrt(8.0 * math.log(4.0 * K / alpha))
        length = math.sqrt(2.0 * n * p) + math.sqrt(4.0 * math.log(2.0 * K / alpha))
    else:
        w = math.sqrt(square)
        gram = math.sqrt(nodes) * distance(sizes, gamma, w) / sizes.budget.mu
        cross = gram / w
        size, length = operator_width(p, alpha / (4.0 * K)), vector_width(n * p, alpha / (4.0 * K))
    made = NoisySums.shifted((p, n), (gram, cross), nodes, size, length)
    proof = proven(
        f"{sizes.budget}-JDP",
        "both counters are accounted for together, under replace-one",
        mechanism="two binary trees, Gaussian noise",
        mu=math.sqrt(nodes) * distance(sizes, gamma, gram / cross) / gram,
        delta=sizes.delta,
        releases=max(1, K - 1),
    )
    return Counters(sizes, [made], proof)


def radius(sizes: Sizes, level: Level, bounds: tuple[float, float, float]) -> float:
    """Lemma 1's beta with the data-free bound on ln det that the proof of Theorem 1 has.

    ``bounds`` are gamma, C_w of the noise, and S of |Theta|, which multiplies sqrt(lambda_max); it
    is 1 in Assumption 1. As printed |z|^2 is (1 + gamma)^2, else 1 + gamma^2, and alpha is halved
    for Assumption 2.
    """
    (n, d), (gamma, noise_bound, norm_bound) = sizes.shape, bounds
    square = (1.0 + gamma) ** 2 if sizes.printed else 1.0 + gamma**2
    steps = sizes.horizon * sizes.episodes
    spread = n * (n + d) * math.log(1.0 + steps * square / ((n + d) * level.lambda_min))
    sampling = noise_bound * math.sqrt(2.0 * math.log(2.0 / sizes.failure) + spread)
    return sampling + norm_bound * math.sqrt(level.lambda_max) + level.nu


def theorem_3(sizes: Sizes) -> tuple[float, float]:
    """Theorem 3's two terms with O read as 1: regret without privacy, and its cost."""
    K, (n, d), alpha, log = sizes.episodes, sizes.shape, sizes.failure, math.log(sizes.episodes)
    scale, size = sizes.horizon**1.5 * math.sqrt(K), n * (n + d)
    level = math.log(1.0 / sizes.delta) ** 0.25 / math.sqrt(sizes.epsilon)
    cost = scale * log * (size + math.sqrt(math.log(K / alpha))) * level
    return scale * (size * log + math.log(1.0 / alpha)), cost


def private_ofu_rl(
    world: LQWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float,
    regularizer: str | Make = "private",
    gamma: float = 1.0,
    failure: float = 0.1,
    printed: bool = True,
    seed: int = 0,
) -> PaperResult:
    """Algorithm 1, Private-OFU-RL; OFU-RL (Section III-A) with other regularizers.

    Args:
        world: a linear quadratic world; the paper's Assumption 1 is ||Theta|| <= 1 and more.
        episodes: K.
        epsilon: with ``delta``, the privacy level.
        delta: see ``epsilon``.
        regularizer: "private", "ridge" (not private), or what makes a :class:`Regularizer` from
            :class:`Sizes`.
        gamma: norms of controls are cut to this in the statistics.
        failure: the paper's alpha.
        printed: the paper's constants, or those that are proven.
        seed: of the users, and of the noise (that of a simulation).

    >>> from tacit.lq import dosing
    >>> result = private_ofu_rl(dosing(), episodes=20, epsilon=1.0, delta=1e-6)
    >>> round(result.guarantee.epsilon, 3), result.more["inside"].min()
    (0.531, np.float64(1.0))
    """
    K, spec = whole_number("episodes", episodes, 2, 10**7), world.spec
    n, d, H = spec.states, spec.controls, spec.horizon
    budget, gamma = Budget(epsilon, delta), positive("gamma", gamma)
    levels = budget.epsilon, budget.delta, failure, printed
    sizes = Sizes(K, H, (n, d), *levels, Noise(seed))
    name = "Private-OFU-RL" if regularizer == "private" else "OFU-RL"
    # Alg. 1, line 1.
    made: Regularizer
    if callable(regularizer):
        made = regularizer(sizes)
    elif one_of("regularizer", regularizer, ("private", "ridge")) == "private":
        made = private(sizes, gamma)
    else:
        made = Ridge([(n + d, n)])
    S, level = spec.norm_bound, made.levels[0]
    beta = radius(sizes, level, (gamma, spec.noise_bound, S))
    learner, curves = Learner(world, level, beta, gamma, seed), np.empty((4, K))
    rng = np.random.default_rng([seed, 1])
    # Alg. 1, line 2.
    for first in range(0, K, _CHUNK):
        count = min(_CHUNK, K - first)
        users, (Z, z) = _users(world, count, rng), made.regularize(first, count)
        given = Z.reshape(count, n + d, n + d), z.reshape(count, n + d, n)
        for k, everything in enumerate(zip(*users, *given, strict=True), first):
            curves[:, k] = learner.episode(*everything)
    values, estimates, best, inside = curves
    constants = level._asdict() | {"beta": beta, "norm_bound": S}
    run = name, printed, best, values, estimates, learner.gains, made.proof, constants, ERRATA
    more = {"inside": inside, "beta": np.full(K, beta)}
    return PaperResult(*run, more, baseline_value=world.baseline_value)


_CHUNK = 256  # episodes whose noise and users are drawn at once
_STEPS = 30  # of the search for an optimistic model, from each place


def _users(world: LQWorld, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """First states (count, n) and noise (count, H, n) of users, as the world draws them."""
    from tacit.lq.spec import GainPolicy

    n, d = world.B.shape
    idle = world.simulate(GainPolicy.zero(world.horizon, d, n), count, rng)
    states: Floats = np.asarray(getattr(idle, "states"))  # noqa: B009
    noise = states[:, 1:] - states[:, :-1] @ world.A.T
    return np.ascontiguousarray(states[:, 0]), np.ascontiguousarray(noise)


class Search(NamedTuple):
    """The confidence set of models and their cost, for the search of the least.

    Models are given in the basis of V's eigenvectors, in which an ellipsoid
    {|Theta - centre|_V <= beta} has axes and Frobenius norms are what they are anyway.
    """

    centre: Floats  # (n + d, n)
    eigenvalues: Floats  # of V
    basis: Floats
    beta: float
    radius: float  # S, of the ball of models
    start: Floats  # x_1 x_1'
    noise: Floats  # covariance of w
    Q: Floats
    R: Floats
    P: Floats  # (H + 1, n, n), of the last model whose cost was computed
    gains: Floats  # (H, d, n), the same


class Learner:
    """The sums, and the model and gains of the last episode."""

    def __init__(self, world: LQWorld, level: Level, beta: float, gamma: float, seed: int) -> None:
        spec = world.spec
        self.true = np.ascontiguousarray(np.concatenate([world.A, world.B], axis=1).T)
        self.noise, self.Q = np.array(spec.noise_covariance), np.array(spec.state_cost)
        self.R = np.array(spec.control_cost)
        p, n = self.true.shape
        self.beta, self.norm_bound, self.gamma = beta, spec.norm_bound, gamma
        self.least = 1e-9 * level.lambda_min  # of eigenvalues
        self.gram, self.cross, self.theta = np.zeros((p, p)), np.zeros((p, n)), np.zeros((p, n))
        self.rng, self.gradient = np.random.default_rng([seed, 2]), np.zeros((p, n))
        self.P, self.gains = np.zeros((spec.horizon + 1, n, n)), np.zeros((spec.horizon, p - n, n))
        riccati(self.true, self.Q, self.R, self.P, self.gains)
        # The cost of an optimal policy: from the first state on, and by noise.
        self.first, self.later = self.P[0].copy(), float((self.P[1:] * self.noise).sum())

    def episode(self, x: Floats, w: Floats, Hk: Floats, Lk: Floats) -> tuple[float, ...]:
        """One user: the true value, its estimate, the best value, whether Theta_* is in C_k.

        Args:
            x: her first state.
            w: noise of her steps, (H, n).
            Hk: the regularizer of the Gram matrix.
            Lk: that of the cross terms.
        """
        start = np.outer(x, x)
        estimate, inside = self.plan(start, Hk, Lk)
        out = np.empty((1, 1))
        models = self.gains[np.newaxis], self.true[np.newaxis], np.zeros(1)
        expected_costs(*models, start, self.noise, self.Q, self.R, out)
        sums = self.gram, self.cross
        _roll_out(self.true, w, self.gains, self.gamma, np.stack([x, x]), *sums)
        best = float((start * self.first).sum()) + self.later
        return -float(out[0, 0]), -estimate, -best, float(inside)

    def plan(self, start: Floats, Hk: Floats, Lk: Floats) -> tuple[float, bool]:
        """A model of least optimal cost in the confidence set, and its gains."""
        # Alg. 1, line 3.
        V, U = self.gram + Hk, self.cross + Lk
        # Alg. 1, line 4: (7) and (8), in the basis of V's eigenvectors.
        values, vectors = np.linalg.eigh(V)
        values, basis = np.maximum(values, self.least), np.ascontiguousarray(vectors)
        centre = np.ascontiguousarray((basis.T @ U) / values[:, np.newaxis])
        error = centre - basis.T @ self.true
        inside = float((values[:, np.newaxis] * error**2).sum()) <= self.beta**2
        # Alg. 1, line 5: (9), by descent from the centre, the last model and a random one. At the
        # centre alone the search may stand still: where B is 0 it is stationary.
        among = centre, values, basis, self.beta, self.norm_bound
        costs = start, self.noise, self.Q, self.R, self.P, self.gains
        search = Search(*among, *costs)
        point = np.empty_like(centre)
        if project_both(centre, search, point):
            axes = np.minimum(self.beta / np.sqrt(values), 4.0 * self.norm_bound)[:, np.newaxis]
            way = self.rng.standard_normal(centre.shape)
            places = [point, np.ascontiguousarray(basis.T @ self.theta)]
            places.append(centre + axes * way / np.linalg.norm(way))
            reached = [descend(place, search, _STEPS) for place in places]
            point = places[int(np.argmin(reached))]
        else:
            # The true model is not in both: any is as good.
            point = centre * (self.norm_bound / np.linalg.norm(centre))
        self.theta = np.ascontiguousarray(basis @ point)
        return float(cost_gradient(self.theta, *costs, self.gradient)), inside


@compiled
def _roll_out(
    true: Floats, noise: Floats, gains: Floats, gamma: float, x: Floats, gram: Floats, cross: Floats
) -> None:
    """A user's steps, and her terms of the sums with the common factor that bounds them."""
    H, d, n = gains.shape
    # Alg. 1, line 6.
    for h in range(H):
        # Alg. 1, line 7.
        u = (gains[h] * x[0]).sum(axis=1)
        # Alg. 1, line 8.
        for i in range(n):
            x[1, i] = noise[h, i]
            for j in range(n):
                x[1, i] += true[j, i] * x[0, j]
            for a in range(d):
                x[1, i] += true[n + a, i] * u[a]
        lengths = (x[0] ** 2).sum(), (x[1] ** 2).sum(), (u**2).sum() / gamma**2
        # Alg. 1, line 9. A step that is not finite enters nothing.
        if math.isfinite(lengths[0] + lengths[1] + lengths[2]):
            square = 1.0 / max(1.0, lengths[0], lengths[1], lengths[2])  # of the common factor
            z = np.concatenate((x[0], u))
            gram += np.outer(square * z, z)
            cross += np.outer(square * z, x[1])
        x[0] = x[1]


# The search for the model of least cost in the confidence set.

# Projections: how close counts as equal, and how many steps there are at most.
_CLOSE, _NEWTON, _SECANTS = 1e-13, 200, 200
# Descent: Armijo's constant, the relative gain that is none, how often a step is shortened, and how
# many radii a step before the projection may be long.
_ARMIJO, _STATIONARY, _HALVINGS, _FARTHEST = 1e-4, 1e-9, 40, 20.0


@compiled
def project_ellipsoid(point: Floats, among: Search, out: Floats) -> None:
    """The nearest model in the ellipsoid.

    It is centre + (I + m V)^{-1} (point - centre). The multiplier m comes from Newton's method on
    1 / |.|_V, which is concave in m, so that it climbs to the root without overshooting.
    """
    centre, eigenvalues, beta = among.centre, among.eigenvalues, among.beta
    out[:] = point - centre
    squares = (out * out).sum(axis=1)
    m, length = 0.0, 0.0
    for _ in range(_NEWTON):
        q, slope = 0.0, 0.0
        for i in range(len(squares)):
            f = 1.0 / (1.0 + m * eigenvalues[i])
            e = eigenvalues[i] * squares[i] * f * f
            q += e
            slope += e * eigenvalues[i] * f
        length = math.sqrt(q)
        if length <= beta * (1.0 + _CLOSE):
            break
        m += (length - beta) / beta * q / slope
    rest = beta / length if length > beta else 1.0
    for i in range(len(squares)):
        out[i] = centre[i] + rest / (1.0 + m * eigenvalues[i]) * out[i]


@compiled
def _norm(point: Floats) -> float:
    return math.sqrt((point * point).sum())


@compiled
def project_both(point: Floats, among: Search, out: Floats) -> bool:
    """The nearest model in the ellipsoid and in the Frobenius ball; False if there is none.

    With a multiplier for the ball, the nearest model is the projection of a shrunken point on the
    ellipsoid alone. Its norm grows with the factor t in [0, 1], and the right t is its root.
    """
    radius = among.radius
    project_ellipsoid(point, among, out)
    above = _norm(out) - radius
    if above <= _CLOSE * radius:
        return True
    project_ellipsoid(0.0 * point, among, out)
    below = _norm(out) - radius
    if below > _CLOSE * radius:
        return False
    low, high, side = 0.0, 1.0, 0
    if below >= -_CLOSE * radius:
        return True
    for _ in range(_SECANTS):
        # Regula falsi; the end that stays has its value halved (Illinois).
        t = (low * above - high * below) / (above - below)
        project_ellipsoid(t * point, among, out)
        excess = _norm(out) - radius
        if abs(excess) <= _CLOSE * radius:
            return True
        if excess < 0.0:
            low, below = t, excess
            if side < 0:
                above *= 0.5
            side = -1
        else:
            high, above = t, excess
            if side > 0:
                below *= 0.5
            side = 1
    # The feasible end, exact or not.
    project_ellipsoid(low * point, among, out)
    return True


@compiled
def descend(point: Floats, of: Search, iterations: int) -> float:
    """Moves ``point`` to a feasible model of locally least optimal cost, which is returned.

    Projected gradients with Barzilai and Borwein's step and Armijo's rule along the segment to the
    projection, on which every model is feasible.
    """
    basis, turned = of.basis, np.ascontiguousarray(of.basis.T)
    theta, raw, way = np.empty_like(point), np.empty_like(point), np.empty_like(point)
    gradient, new_gradient = np.empty_like(point), np.empty_like(point)
    project_both(point.copy(), of, point)
    times(basis, point, theta)
    cost = cost_gradient(theta, of.start, of.noise, of.Q, of.R, of.P, of.gains, raw)
    times(turned, raw, gradient)
    longest = _FARTHEST * of.radius
    step = math.inf
    for _ in range(iterations):
        size = _norm(gradient)
        if size == 0.0 or not math.isfinite(size):
            break
        step = min(step, longest / size)
        project_both(point - step * gradient, of, way)
        way -= point
        slope = (gradient * way).sum()
        if slope >= -_STATIONARY * cost:
            break
        part, new_cost, found, new = 1.0, cost, False, point
        for _ in range(_HALVINGS):
            new = point + part * way
            times(basis, new, theta)
            new_cost = cost_gradient(theta, of.start, of.noise, of.Q, of.R, of.P, of.gains, raw)
            if new_cost <= cost + _ARMIJO * part * slope:
                found = True
                break
            # The minimum of the parabola through both costs and the slope.
            bend = new_cost - cost - part * slope
            best = -0.5 * slope * part * part / bend
            part = min(max(best, 0.1 * part), 0.5 * part) if bend > 0.0 else 0.5 * part
        if not found:
            break
        times(turned, raw, new_gradient)
        moved = new - point
        length, curvature = (moved * moved).sum(), (moved * (new_gradient - gradient)).sum()
        point[:], gradient[:] = new, new_gradient
        step = length / curvature if curvature > 0.0 else math.inf
        gained, cost = cost - new_cost, new_cost
        if gained <= _STATIONARY * cost:
            break
    return cost
