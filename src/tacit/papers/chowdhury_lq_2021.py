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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from tacit.lq.riccati_loops import cost_gradient, expected_costs, riccati, times
from tacit.numerics.compiled import Floats, compiled
from tacit.papers.counters import (
    Level,
    level_of,
    noise_of_sums,
    operator_width,
    symmetric_noise,
    tree_nodes,
    vector_width,
)
from tacit.papers.result import NO_NOISE, PaperResult, Proof, failure_of, gaussian_proof
from tacit.privacy.arguments import flag, one_of, positive, whole_number
from tacit.privacy.budget import Budget
from tacit.privacy.noise import Noise

if TYPE_CHECKING:
    from tacit.lq.world import LQWorld

ERRATA = (
    "(3) prints P_h in the gains for P_(h+1)",
    "the P-sums of the counter B_2 print z z' for z x_next'",
    "the noise covariance that (5) needs is missing from the inputs of Algorithm 1",
)
"""Misprints without whose correction there is nothing to run."""


@dataclass(frozen=True)
class Sizes:
    """What regularizers are made for."""

    episodes: int  # K
    horizon: int  # H
    states: int  # n
    controls: int  # d
    gamma: float
    epsilon: float
    delta: float
    failure: float  # alpha of the paper
    printed: bool
    noise: Noise = field(repr=False)

    @property
    def rows(self) -> int:
        """Rows of Theta, n + d."""
        return self.states + self.controls


class Regularizer(Protocol):
    """Regularizers H_k and L_k of Section III-A: bring your own, made from :class:`Sizes`.

    Attributes:
        level: the constants of Assumption 2.
        proof: what is proven about its privacy.
    """

    level: Level
    proof: Proof

    def regularize(self, first: int, n: int) -> tuple[Floats, Floats]:
        """H_k (n, p, p) and L_k (n, p, states), p = n + d, of episodes first + 1, first + 2, ..."""


Make = Callable[[Sizes], Regularizer]


class Ridge:
    """H_k = lambda I and L_k = 0: what is not private."""

    def __init__(self, sizes: Sizes, ridge: float = 1.0) -> None:
        self.sizes, self.level = sizes, Level(ridge, ridge, 0.0)
        self.proof = NO_NOISE

    def regularize(self, first: int, n: int) -> tuple[Floats, Floats]:
        """The same for every episode."""
        p = self.sizes.rows
        ridge = np.tile(self.level.lambda_min * np.eye(p), (n, 1, 1))
        return ridge, np.zeros((n, p, self.sizes.states))


class Counters:
    """The counters B_1 and B_2 of Algorithm 1, with the shift eta = 2 Lambda.

    As printed: sigma = Delta sqrt(8 m ln(2 / delta)) / eps on every node, the whole upper triangle
    in B_1, with Delta_1 = H (1 + gamma)^2 and Delta_2 = H (1 + gamma), m = ceil(log2 K). With
    B^2 = 1 + gamma^2 and w = sigma_1 / sigma_2 two users are at most
    sqrt(2) H (B^2 + w^2 / 2) / sigma_1 apart in both counters together, on every node: this is what
    is proven. Corrected: w = B, that mu^2 times m is the budget's, variances off the diagonal are
    halved, and Lambda and nu are bounds for such noise.
    """

    def __init__(self, sizes: Sizes) -> None:
        K, H, n, p = sizes.episodes, sizes.horizon, sizes.states, sizes.rows
        budget, nodes = Budget(sizes.epsilon, sizes.delta), tree_nodes(max(1, K - 1))
        square = 1.0 + sizes.gamma**2
        if sizes.printed:
            t = math.sqrt(8.0 * nodes * math.log(2.0 / sizes.delta)) / sizes.epsilon
            self.scales = t * H * (1.0 + sizes.gamma) ** 2, t * H * (1.0 + sizes.gamma)
            size = 4.0 * math.sqrt(p) + math.sqrt(8.0 * math.log(4.0 * K / sizes.failure))
            length = math.sqrt(2.0 * n * p) + math.sqrt(4.0 * math.log(2.0 * K / sizes.failure))
        else:
            gram = math.sqrt(2.0 * nodes) * H * 1.5 * square / budget.mu
            self.scales = gram, gram / math.sqrt(square)
            size = operator_width(p, sizes.failure / (4.0 * K))
            length = vector_width(n * p, sizes.failure / (4.0 * K))
        self.sizes, self.off = sizes, 1.0 if sizes.printed else math.sqrt(0.5)
        gram, cross = self.scales
        self.level = level_of(gram, cross, nodes, size, length)
        self.above = np.zeros((tree_nodes(K), p * (p + 1) // 2 + p * n))
        mu = math.sqrt(2.0 * nodes) * H * (square + (gram / cross) ** 2 / 2.0) / gram
        mu, epsilon = (mu, None) if sizes.printed else (budget.mu, sizes.epsilon)
        how = "two binary trees, Gaussian noise", _TOGETHER
        proven = mu, sizes.delta, max(1, K - 1), f"{budget}-JDP", *how
        self.proof = gaussian_proof(*proven, epsilon=epsilon)

    def regularize(self, first: int, n: int) -> tuple[Floats, Floats]:
        """Noise of the nodes that cover [1, k - 1], and the shift."""
        p, m = self.sizes.rows, self.sizes.states
        total, split = noise_of_sums(self.sizes.noise, first, n, self.above), p * (p + 1) // 2
        shift, (gram, cross) = 2.0 * self.level.lambda_min, self.scales
        H = symmetric_noise(total[:, :split], gram, self.off, shift)
        return H, cross * total[:, split:].reshape(n, p, m)


REGULARIZERS: dict[str, Make] = {"private": Counters, "ridge": Ridge}


def radius(sizes: Sizes, level: Level, noise_bound: float, norm_bound: float) -> float:
    """Lemma 1's beta with the data-free bound on ln det that the proof of Theorem 1 has.

    |Theta| <= ``norm_bound`` multiplies sqrt(lambda_max); it is 1 in Assumption 1. As printed
    |z|^2 is (1 + gamma)^2, else 1 + gamma^2, and alpha is halved for Assumption 2.
    """
    n, p = sizes.states, sizes.rows
    square = (1.0 + sizes.gamma) ** 2 if sizes.printed else 1.0 + sizes.gamma**2
    steps = sizes.horizon * sizes.episodes
    spread = n * p * math.log(1.0 + steps * square / (p * level.lambda_min))
    log_term = 2.0 * math.log(2.0 / sizes.failure)
    sampling = noise_bound * math.sqrt(log_term + spread)
    return sampling + norm_bound * math.sqrt(level.lambda_max) + level.nu


def private_ofu_rl(
    world: LQWorld,
    *,
    episodes: int,
    epsilon: float,
    delta: float,
    regularizer: str | Make = "private",
    gamma: float = 1.0,
    failure: float = 0.1,
    beta: Literal["bound", "raw"] = "bound",
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
        beta: the radius with a data-free "bound" on ln det, or from "raw" data as Lemma 1 prints
            it, which leaks (printed only; no guarantee).
        printed: the paper's constants, or those that are proven.
        seed: of the users, and of the noise (that of a simulation).

    >>> from tacit.lq import dosing
    >>> result = private_ofu_rl(dosing(), episodes=20, epsilon=1.0, delta=1e-6)
    >>> round(result.guarantee.epsilon, 3), result.more["inside"].min()
    (0.531, np.float64(1.0))
    """
    K, spec = whole_number("episodes", episodes, 2, 10**7), world.spec
    n, d, H = spec.states, spec.controls, spec.horizon
    budget, cap = Budget(epsilon, delta), positive("gamma", gamma)
    raw = one_of("beta", beta, ("bound", "raw")) == "raw"
    levels = (budget.epsilon, budget.delta, failure_of(failure), flag("printed", printed))
    sizes = Sizes(K, H, n, d, cap, *levels, Noise(seed))
    name = "Private-OFU-RL" if regularizer == "private" else "OFU-RL"
    if not callable(regularizer):
        regularizer = REGULARIZERS[one_of("regularizer", regularizer, list(REGULARIZERS))]
    # Alg. 1, line 1.
    made = regularizer(sizes)
    S, bound = spec.norm_bound, spec.noise_bound
    shift = S * math.sqrt(made.level.lambda_max) + made.level.nu
    beta_bound, least = radius(sizes, made.level, bound, S), made.level.lambda_min
    of = Constants(beta_bound, raw, sizes.failure, least, shift, bound, S, cap)
    true = np.ascontiguousarray(np.concatenate([world.A, world.B], axis=1).T)
    system = System(
        true, *(np.array(M) for M in (spec.noise_covariance, spec.state_cost, spec.control_cost))
    )
    learner, curves = Learner(H, system, of, seed), np.empty((5, K))
    rng = np.random.default_rng([seed, 1])
    # Alg. 1, line 2.
    for first in range(0, K, _CHUNK):
        count = min(_CHUNK, K - first)
        users, given = _users(world, count, rng), made.regularize(first, count)
        for k, everything in enumerate(zip(*users, *given, strict=True), first):
            curves[:, k] = learner.episode(*everything)
    proof = made.proof
    if raw and proof.guarantee is not None:
        proof = Proof(proof.claim, None, "beta_k reads raw data, and shapes the policies")
    values, estimates, best, inside, radii = curves
    constants = made.level._asdict() | {"beta": float(radii[-1]), "norm_bound": S}
    more = {"inside": inside, "beta": radii}
    last = learner.gains
    return PaperResult(name, printed, best, values, estimates, last, proof, constants, ERRATA, more)


_TOGETHER = "both counters are accounted for together, under replace-one"
_CHUNK = 256  # episodes whose noise and users are drawn at once
_STEPS = 30  # of the search for an optimistic model, from each place


def _users(world: LQWorld, count: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """First states (count, n) and noise (count, H, n) of users, as the world draws them."""
    from tacit.lq.policy import GainPolicy

    n, d = world.B.shape
    idle = world.simulate(GainPolicy.zero(world.horizon, d, n), count, rng)
    states: Floats = np.asarray(getattr(idle, "states"))  # noqa: B009
    noise = states[:, 1:] - states[:, :-1] @ world.A.T
    return np.ascontiguousarray(states[:, 0]), np.ascontiguousarray(noise)


class Constants(NamedTuple):
    """What a run is set by."""

    beta: float
    raw: bool  # whether beta is computed from raw data
    failure: float  # alpha
    lambda_min: float
    shift: float  # S sqrt(lambda_max) + nu
    noise_bound: float  # C_w
    norm_bound: float  # S, of the set of models
    gamma: float


class System(NamedTuple):
    """What is true, and what is known of costs and noise."""

    true: Floats  # Theta_*, (n + d, n)
    noise: Floats  # covariance of w
    Q: Floats
    R: Floats


class Learner:
    """The sums, and the model and gains of the last episode."""

    def __init__(self, horizon: int, system: System, of: Constants, seed: int) -> None:
        p, n = system.true.shape
        self.system, self.of, self.rng = system, of, np.random.default_rng([seed, 2])
        self.gram, self.cross, self.theta = np.zeros((p, p)), np.zeros((p, n)), np.zeros((p, n))
        self.P, self.gains = np.zeros((horizon + 1, n, n)), np.zeros((horizon, p - n, n))
        self.gradient = np.zeros((p, n))
        riccati(system.true, system.Q, system.R, self.P, self.gains)
        # What an optimal policy costs: from the first state on, and by noise.
        self.first, self.later = self.P[0].copy(), float((self.P[1:] * system.noise).sum())

    def episode(self, x: Floats, w: Floats, Hk: Floats, Lk: Floats) -> tuple[float, ...]:
        """One user: the true value, its estimate, the best value, if Theta_* is in C_k, beta_k."""
        start, system = np.outer(x, x), self.system
        estimate, inside, beta = self.plan(start, Hk, Lk)
        out = np.empty((1, 1))
        models = self.gains[np.newaxis], system.true[np.newaxis], np.zeros(1)
        expected_costs(*models, start, *system[1:], out)
        sums = self.gram, self.cross
        _roll_out(system.true, w, self.gains, self.of.gamma, np.stack([x, x]), *sums)
        best = float((start * self.first).sum()) + self.later
        return -float(out[0, 0]), -estimate, -best, float(inside), beta

    def plan(self, start: Floats, Hk: Floats, Lk: Floats) -> tuple[float, bool, float]:
        """A model of least optimal cost in the confidence set, and its gains."""
        of, system = self.of, self.system
        # Alg. 1, line 3.
        V, U = self.gram + Hk, self.cross + Lk
        # Alg. 1, line 4: (7) and (8), in the basis of V's eigenvectors.
        values, vectors = np.linalg.eigh(V)
        values, basis = np.maximum(values, 1e-9 * of.lambda_min), np.ascontiguousarray(vectors)
        centre = np.ascontiguousarray((basis.T @ U) / values[:, np.newaxis])
        beta = self.beta()
        error = centre - basis.T @ system.true
        inside = float((values[:, np.newaxis] * error**2).sum()) <= beta**2
        # Alg. 1, line 5: (9), by descent from the centre, the last model and a random one. At the
        # centre alone the search may stand still: where B is 0 it is stationary.
        point, costs = np.empty_like(centre), (start, *system[1:])
        if project_both(centre, centre, values, beta, of.norm_bound, point):
            axes = np.minimum(beta / np.sqrt(values), 4.0 * of.norm_bound)[:, np.newaxis]
            way = self.rng.standard_normal(centre.shape)
            places = [point, np.ascontiguousarray(basis.T @ self.theta)]
            places.append(centre + axes * way / np.linalg.norm(way))
            among, work = (centre, values, basis, beta, of.norm_bound), (self.P, self.gains, _STEPS)
            reached = [descend(place, *among, *costs, *work) for place in places]
            point = places[int(np.argmin(reached))]
        else:
            nearest_in_ball(centre, values, of.norm_bound, point)
        self.theta = np.ascontiguousarray(basis @ point)
        cost = cost_gradient(self.theta, *costs, self.P, self.gains, self.gradient)
        return float(cost), inside, beta

    def beta(self) -> float:
        """Lemma 1's radius; from raw data only where it is printed so."""
        of = self.of
        if not of.raw:
            return of.beta
        log_det = np.linalg.slogdet(np.eye(len(self.gram)) + self.gram / of.lambda_min)[1]
        inner = 2.0 * math.log(2.0 / of.failure) + self.cross.shape[1] * float(log_det)
        return of.noise_bound * math.sqrt(inner) + of.shift


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
        longest = max(1.0, (x[0] ** 2).sum(), (x[1] ** 2).sum(), (u**2).sum() / gamma**2)
        square = 1.0 / longest if longest < math.inf else 0.0  # of the common factor
        # Alg. 1, line 9.
        z = np.concatenate((x[0], u))
        gram += np.outer(square * z, z)
        cross += np.outer(square * z, x[1])
        x[0] = x[1]


# The search for the model of least cost among those that are believed possible. Models are given in
# the basis of V's eigenvectors, in which an ellipsoid {|Theta - centre|_V <= beta} has axes and
# Frobenius norms are what they are anyway.

# Projections: how close counts as equal, and how many steps there are at most.
_CLOSE, _NEWTON, _SECANTS = 1e-13, 200, 200
# Descent: Armijo's constant, the relative gain that is none, how often a step is shortened, and how
# many radii a step before the projection may be long.
_ARMIJO, _STATIONARY, _HALVINGS, _FARTHEST = 1e-4, 1e-9, 40, 20.0


@compiled
def project_ellipsoid(
    point: Floats, scale: float, centre: Floats, eigenvalues: Floats, beta: float, out: Floats
) -> None:
    """The nearest model in the ellipsoid to ``scale * point``.

    It is centre + (I + m V)^{-1} (point - centre). The multiplier m comes from Newton's method on
    1 / |.|_V, which is concave in m, so that it climbs to the root without overshooting.
    """
    out[:] = scale * point - centre
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
def project_both(
    point: Floats, centre: Floats, eigenvalues: Floats, beta: float, radius: float, out: Floats
) -> bool:
    """The nearest model in the ellipsoid and in the Frobenius ball; False if there is none.

    With a multiplier for the ball, the nearest model is the projection of a shrunken point on the
    ellipsoid alone. Its norm grows with the factor t in [0, 1], and the right t is its root.
    """
    project_ellipsoid(point, 1.0, centre, eigenvalues, beta, out)
    above = _norm(out) - radius
    if above <= _CLOSE * radius:
        return True
    project_ellipsoid(point, 0.0, centre, eigenvalues, beta, out)
    below = _norm(out) - radius
    if below > _CLOSE * radius:
        return False
    low, high, side = 0.0, 1.0, 0
    if below >= -_CLOSE * radius:
        return True
    for _ in range(_SECANTS):
        # Regula falsi; the end that stays has its value halved (Illinois).
        t = (low * above - high * below) / (above - below)
        project_ellipsoid(point, t, centre, eigenvalues, beta, out)
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
    project_ellipsoid(point, low, centre, eigenvalues, beta, out)
    return True


@compiled
def nearest_in_ball(centre: Floats, eigenvalues: Floats, radius: float, out: Floats) -> None:
    """The model of a Frobenius ball that is nearest to the centre in the V-norm."""
    m = 0.0
    for _ in range(_NEWTON):
        q, slope = 0.0, 0.0
        for i in range(len(centre)):
            # What V does not see costs nothing, so it is zero.
            f = eigenvalues[i] / (eigenvalues[i] + m) if eigenvalues[i] > 0.0 else 0.0
            out[i] = f * centre[i]
            for x in out[i]:
                q += x * x
                slope += x * x / (eigenvalues[i] + m) if f > 0.0 else 0.0
        length = math.sqrt(q)
        if length <= radius * (1.0 + _CLOSE):
            break
        m += (length - radius) / radius * q / slope
    length = _norm(out)
    if length > radius:
        out *= radius / length


@compiled
def descend(
    point: Floats,
    centre: Floats,
    eigenvalues: Floats,
    basis: Floats,
    beta: float,
    radius: float,
    start: Floats,
    noise: Floats,
    Q: Floats,
    R: Floats,
    P: Floats,
    K: Floats,
    iterations: int,
) -> float:
    """Moves ``point`` to a feasible model of locally least optimal cost, which is returned.

    Projected gradients with Barzilai and Borwein's step and Armijo's rule along the segment to the
    projection, on which every model is feasible.
    """
    turned = np.ascontiguousarray(basis.T)
    theta, raw, way = np.empty_like(point), np.empty_like(point), np.empty_like(point)
    gradient, new_gradient = np.empty_like(point), np.empty_like(point)
    project_both(point.copy(), centre, eigenvalues, beta, radius, point)
    times(basis, point, theta)
    cost = cost_gradient(theta, start, noise, Q, R, P, K, raw)
    times(turned, raw, gradient)
    longest = _FARTHEST * radius
    step = math.inf
    for _ in range(iterations):
        size = _norm(gradient)
        if size == 0.0 or not math.isfinite(size):
            break
        step = min(step, longest / size)
        project_both(point - step * gradient, centre, eigenvalues, beta, radius, way)
        way -= point
        slope = (gradient * way).sum()
        if slope >= -_STATIONARY * cost:
            break
        part, new_cost, found, new = 1.0, cost, False, point
        for _ in range(_HALVINGS):
            new = point + part * way
            times(basis, new, theta)
            new_cost = cost_gradient(theta, start, noise, Q, R, P, K, raw)
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
