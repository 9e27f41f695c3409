"""Chowdhury, Zhou and Shroff: the loop against the paper's text, and what is promised."""

import math

import numpy as np
import pytest

from tacit.lq import dosing
from tacit.lq.world import Ball, LQWorld
from tacit.papers import chowdhury_lq_2021 as paper
from tacit.papers.result import Proof
from tacit.privacy.budget import mu_from_budget
from tacit.privacy.noise import Noise


def small_world():
    """Two states and a control, as Assumption 1 has it."""
    A, B = [[0.5, 0.1], [0.0, 0.4]], [[0.3], [0.2]]
    noise, start = 0.1, Ball(0.8, (0.0, 0.0), surface=True)
    Q, R = np.eye(2), [[0.05]]
    return LQWorld(A, B, Q, R, horizon=4, noise=noise, start=start, norm_bound=1.0)


class Wavering:
    """Regularizers of somebody's own."""

    def __init__(self, sizes):
        rng, K, p = np.random.default_rng(2), sizes.episodes, sum(sizes.shape)
        self.levels = (paper.Level(0.3, 0.7, 0.1),)
        self.proof = Proof("nothing", None, "an example")
        noise = rng.normal(size=(K, p, p))
        self.H = 0.5 * np.eye(p) + 0.02 * (noise + noise.swapaxes(1, 2))
        self.L = 0.02 * rng.normal(size=(K, p, sizes.shape[0]))

    def regularize(self, first, n):
        return self.H[first : first + n], self.L[first : first + n]


def gains_of(theta, Q, R, H):
    """(3) with P_(h+1), (4), and what noise adds in (5)."""
    n = theta.shape[1]
    A, B = theta[:n].T, theta[n:].T
    P, gains = [np.zeros((n, n))], []
    for _ in range(H):
        inner = np.linalg.inv(R + B.T @ P[0] @ B)
        gains.insert(0, -inner @ B.T @ P[0] @ A)
        P.insert(0, Q + A.T @ P[0] @ A - A.T @ P[0] @ B @ inner @ B.T @ P[0] @ A)
    return np.array(gains), P


def cost_of(gains, theta, x, noise, Q, R):
    """(2) by moments of the state, step by step."""
    n = theta.shape[1]
    A, B, S, total = theta[:n].T, theta[n:].T, np.outer(x, x), 0.0
    for K in gains:
        total += np.trace(Q @ S) + np.trace(R @ K @ S @ K.T)
        closed = A + B @ K
        S = closed @ S @ closed.T + noise
    return total


def test_algorithm_is_the_papers_text():
    world, K, alpha, gamma = small_world(), 25, 0.2, 0.4
    Q, R, H, true = world.Q, world.R, world.horizon, world.theta
    cov, p, n = world.spec.noise_covariance, 3, 2
    sizes = paper.Sizes(K, H, (n, 1), 1.0, 1e-6, alpha, True, Noise(0))
    made = Wavering(sizes)
    lmin, lmax, nu = made.levels[0]
    bound = n * p * math.log(1 + H * K * (1 + gamma) ** 2 / (p * lmin))
    beta = 0.1 * math.sqrt(2 * math.log(2 / alpha) + bound) + math.sqrt(lmax) + nu
    assert paper.radius(sizes, made.levels[0], (gamma, 0.1, 1.0)) == pytest.approx(beta)
    learner = paper.Learner(world, made.levels[0], beta, gamma, 0)
    rng, users = np.random.default_rng(3), np.random.default_rng(4)
    starts, noises = paper._users(world, K, users)
    gram, cross = np.zeros((p, p)), np.zeros((p, n))
    for k in range(K):
        V, U = gram + made.H[k], cross + made.L[k]
        hat = np.linalg.inv(V) @ U
        row = learner.episode(starts[k].copy(), noises[k], made.H[k], made.L[k])
        value, estimate, best, inside = row
        assert inside == float(np.trace((true - hat).T @ V @ (true - hat)) <= beta**2)
        # The model is one of C_k and S, and none of many others there is better.
        theta = learner.theta
        assert np.trace((theta - hat).T @ V @ (theta - hat)) <= beta**2 * (1 + 1e-9)
        assert np.linalg.norm(theta) <= 1 + 1e-9
        gains, P = gains_of(theta, Q, R, H)
        np.testing.assert_allclose(learner.gains, gains, atol=1e-10)
        x = starts[k]
        least = x @ P[0] @ x + sum(np.trace(cov @ later) for later in P[1:])
        assert -estimate == pytest.approx(least)
        root = np.linalg.inv(np.linalg.cholesky(V)).T
        for _ in range(40):
            way = rng.normal(size=(p, n))
            other = hat + beta * rng.random() ** 0.2 * root @ way / np.linalg.norm(way)
            if np.linalg.norm(other) <= 1:
                _, Ps = gains_of(other, Q, R, H)
                cost = x @ Ps[0] @ x + sum(np.trace(cov @ later) for later in Ps[1:])
                assert least <= cost + 1e-6
        assert -value == pytest.approx(cost_of(gains, true, x, cov, Q, R))
        optimal, Ps = gains_of(true, Q, R, H)
        assert -best == pytest.approx(cost_of(optimal, true, x, cov, Q, R))
        for h in range(H):
            u = gains[h] @ x
            after = true.T @ np.concatenate([x, u]) + noises[k, h]
            lengths = np.linalg.norm(x), np.linalg.norm(u) / gamma, np.linalg.norm(after)
            factor = min(1.0, *(1 / max(length, 1e-300) for length in lengths))
            z = factor * np.concatenate([x, u])
            gram, cross = gram + np.outer(z, z), cross + np.outer(z, factor * after)
            x = after
        np.testing.assert_allclose(learner.gram, gram, atol=1e-12)
        np.testing.assert_allclose(learner.cross, cross, atol=1e-12)


def test_anyone_can_bring_regularizers():
    given = {"episodes": 30, "epsilon": 1.0, "delta": 1e-6}
    result = paper.private_ofu_rl(small_world(), regularizer=Wavering, **given)
    assert result.guarantee is None
    assert result.reason == "an example"
    assert (np.diff(result.regret) >= -1e-9).all()


@pytest.mark.parametrize("printed", [True, False])
def test_counters_are_the_papers_text(printed):
    K, H, n, d, gamma, eps, delta, alpha = 20, 4, 2, 1, 0.5, 1.5, 1e-5, 0.1
    sizes = paper.Sizes(K, H, (n, d), eps, delta, alpha, printed, Noise(1))
    made = paper.private(sizes, gamma)
    parts = made.regularize(0, 9), made.regularize(9, 11)
    Hk, Lk = (np.concatenate(both)[:, 0] for both in zip(*parts, strict=True))
    units, m, p = Noise(1).normal((K - 1, 6 + 6)), 5, 3
    if printed:
        t = math.sqrt(8 * m * math.log(2 / delta)) / eps
        s1, s2, half = t * H * (1 + gamma) ** 2, t * H * (1 + gamma), 1.0
        Lambda = s1 * math.sqrt(m) * (4 * math.sqrt(p) + math.sqrt(8 * math.log(4 * K / alpha)))
        length = math.sqrt(2 * n * p) + math.sqrt(4 * math.log(2 * K / alpha))
    else:
        s1 = math.sqrt(2 * m) * H * 1.5 * (1 + gamma**2) / mu_from_budget(eps, delta)
        s2, half = s1 / math.sqrt(1 + gamma**2), math.sqrt(0.5)
        Lambda = s1 * math.sqrt(m) * (math.sqrt(2 * p) + math.sqrt(2 * math.log(8 * K / alpha)))
        length = math.sqrt(n * p) + math.sqrt(2 * math.log(4 * K / alpha))
    nu = s2 * math.sqrt(m / Lambda) * length
    assert made.levels[0] == pytest.approx((Lambda, 3 * Lambda, nu))
    apart = math.sqrt(2) * H * (1 + gamma**2 + (s1 / s2) ** 2 / 2)
    assert made.proof.guarantee.mu == pytest.approx(math.sqrt(m) * apart / s1)
    # |z|^2 is bounded by (1 + gamma)^2 in the paper; half of alpha is for Assumption 2.
    square = (1 + gamma) ** 2 if printed else 1 + gamma**2
    spread = n * p * math.log(1 + H * K * square / (p * Lambda))
    beta = 0.3 * math.sqrt(2 * math.log(2 / alpha) + spread) + 0.7 * math.sqrt(3 * Lambda) + nu
    assert paper.radius(sizes, made.levels[0], (gamma, 0.3, 0.7)) == pytest.approx(beta)
    for k in (0, 1, 6, 19):
        total, t = np.zeros(12), k
        while t > 0:
            total, t = total + units[t - 1], t - (t & -t)
        expected, drawn = 2 * Lambda * np.eye(p), iter(total)
        for i in range(p):
            for j in range(i, p):
                value = s1 * next(drawn) * (1 if i == j else half)
                expected[i, j] += value
                expected[j, i] += value if i != j else 0
        np.testing.assert_allclose(Hk[k], expected, rtol=1e-9)
        np.testing.assert_allclose(Lk[k], s2 * total[6:], rtol=1e-9, atol=1e-12)


def test_theorem_3_by_hand():
    """H = 4, K = 100, n = 2, d = 1, alpha = 0.1, (2, 1e-5); the cost falls like 1 / sqrt(eps)."""
    sizes = paper.Sizes(100, 4, (2, 1), 2.0, 1e-5, 0.1, True, Noise(0))
    exact, cost = paper.theorem_3(sizes)
    assert exact == pytest.approx(8 * 10 * (6 * math.log(100) + math.log(10)))
    level = math.log(1e5) ** 0.25 / math.sqrt(2)
    by_hand = 8 * 10 * math.log(100) * (6 + math.sqrt(math.log(1000))) * level
    assert cost == pytest.approx(by_hand)
    more = paper.Sizes(100, 4, (2, 1), 8.0, 1e-5, 0.1, True, Noise(0))
    assert paper.theorem_3(more)[1] == pytest.approx(cost / 2)


def test_corrected_sets_hold_the_truth():
    """Theta_* in C_k and optimism in every episode of 2 runs, though the sets become small."""
    for seed in range(2):
        result = paper.private_ofu_rl(
            small_world(), episodes=1500, epsilon=1e6, delta=1e-6, printed=False, seed=seed
        )
        assert result.more["inside"].all()
        assert (result.estimates >= result.optimal_value - 1e-6).all()
        gaps = result.estimates - result.optimal_value
        assert gaps[-100:].mean() < 0.8 * gaps[:20].mean()


@pytest.mark.parametrize(("gamma", "epsilon"), [(1e-6, 0.81), (0.5, 0.56), (1.0, 0.53)])
def test_printed_guarantee(gamma, epsilon):
    """What docs/errata.md states for a claimed (1, 1e-6)."""
    given = {"episodes": 1024, "epsilon": 1.0, "delta": 1e-6, "gamma": gamma}
    sizes = paper.Sizes(1024, 5, (2, 1), 1.0, 1e-6, 0.1, True, Noise(0))
    assert paper.private(sizes, gamma).proof.guarantee.epsilon == pytest.approx(epsilon, abs=0.012)
    right = paper.private_ofu_rl(dosing(), printed=False, **given | {"episodes": 3})
    assert right.guarantee is not None
    assert right.guarantee.epsilon == pytest.approx(1.0)


def sums_of(H, gamma, x, gains, noise):
    """What one user adds to both sums, by the run's own code; the system is x' = noise."""
    gram, cross = np.zeros((3, 3)), np.zeros((3, 2))
    start = np.stack([x, x]).astype(float)
    paper._roll_out(np.zeros((3, 2)), np.array(noise), gains, gamma, start, gram, cross)
    return gram, cross


@pytest.mark.parametrize("printed", [True, False])
@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_no_two_users_are_farther_apart_than_is_accounted(gamma, printed):
    """In units of the noise that is drawn; hostile ones included, who obey no assumption.

    Constant against alternating trajectories come within a fifth of the bound.
    """
    K, H, rng = 9, 6, np.random.default_rng(1)
    sizes = paper.Sizes(K, H, (2, 1), 1.0, 1e-6, 0.1, printed, Noise(0))
    made = paper.private(sizes, gamma)
    (one,), off = made.of, made.off
    drawn = np.stack([made.regularize(1, 1)[0][0, 0] for _ in range(400)])
    drawn = drawn - 2 * one.level.lambda_min * np.eye(3)
    assert drawn[:, 0, 0].std() / one.gram == pytest.approx(1.0, abs=0.2)
    assert drawn[:, 0, 1].std() / (one.gram * off) == pytest.approx(1.0, abs=0.2)
    users = []
    for angle in np.linspace(0, math.pi, 19):
        e = np.array([math.cos(angle), math.sin(angle)])
        for sign in (1, -1):
            K_h = np.tile(gamma * e, (H, 1, 1))
            users.append(sums_of(H, gamma, e, K_h, [sign ** (h + 1) * e for h in range(H)]))
    for size in (1.0, 3.0, 1e3, 1e200, math.inf, math.nan):
        for part in range(3):  # long first states, long controls, long next states
            x, gains, noise = (
                rng.normal(size=2),
                rng.normal(size=(H, 1, 2)),
                rng.normal(size=(H, 2)),
            )
            part_of = (x, gains, noise)[part]
            part_of *= size
            users.append(sums_of(H, gamma, x, gains, noise))
    users = [(np.asarray(G), np.asarray(C)) for G, C in users]
    assert all(np.isfinite(G).all() and np.isfinite(C).all() for G, C in users)
    # Every part of a step is cut on its own: |x| and |x'| at 1, |u| at gamma.
    for G, C in users:
        assert max(np.trace(G[:2, :2]), G[2, 2] / gamma**2) <= H * (1 + 1e-9)
        assert np.linalg.norm(C[:2]) <= H * (1 + 1e-9)
        assert np.linalg.norm(C[2]) <= gamma * H * (1 + 1e-9)
    off_diagonal = ~np.eye(3, dtype=bool)

    def mu(here, there):
        G, C = here[0] - there[0], here[1] - there[1]
        total = (np.diag(G) ** 2).sum() + (G[off_diagonal] ** 2).sum() / (2 * off**2)
        return math.sqrt(4 * (total / one.gram**2 + (C**2).sum() / one.cross**2))  # 4 nodes

    farthest = max(mu(here, there) for here in users for there in users)
    proven = made.proof.guarantee.mu
    assert farthest <= proven * (1 + 1e-12)
    assert farthest > (0.5 if printed else 0.8) * proven
