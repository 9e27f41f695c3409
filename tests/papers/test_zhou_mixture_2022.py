"""Zhou: the compiled loops against the paper's text, and what is promised."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.mixture import hard_mixture
from tacit.mixture.worlds import MixtureWorld
from tacit.papers import zhou_mixture_2022 as paper
from tacit.papers.result import Proof, Sizes
from tacit.privacy.budget import Budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.tabular.model import evaluate
from tacit.tabular.policy import Policy
from tacit.tabular.simulate_loops import roll_out

CORRECTED = [(False, "private"), (False, "local")]
# Width of symmetric noise of two rows: K = 9, H = 2, a third of 0.3 over 4 K H statements.
LOCAL = math.sqrt(4) + math.sqrt(2 * math.log(2 * 4 * 9 * 2 / 0.1))


def groups(given):
    """Z of both regressions, and z."""
    return given[::2], given[1::2]


def in_python(monkeypatch):
    """Loops without their compiler, so that a test can call one of them."""
    for module in (paper, paper.loops):
        for name, found in vars(module).copy().items():
            monkeypatch.setattr(module, name, getattr(found, "py_func", found))


def small_world(known=False):
    """Two states, two actions, two models to be mixed, two steps."""
    models = [
        [[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.6, 0.4]]],
        [[[0.8, 0.2], [0.1, 0.9]], [[0.5, 0.5], [0.0, 1.0]]],
    ]
    if known:
        return MixtureWorld(models, [[0.7, 0.3]], [[[0.1, 0.0], [0.5, 0.4]]], 2)
    features = [[[0.1, 0.2], [0.3, 0.1]], [[0.2, 0.4], [0.5, 0.3]]]
    means = [[np.array(features) @ [0.6, 0.9]], [np.array(features) @ [0.2, 0.5]]]
    rewards = np.concatenate(means)
    weights = [[0.7, 0.3], [0.4, 0.6]]
    return MixtureWorld(models, weights, rewards, 2, reward_features=features, known_rewards=False)


class Wavering:
    """A REGULARIZER of somebody's own, with Z and z that change from episode to episode."""

    def __init__(self, sizes):
        rng, (K, H) = np.random.default_rng(8), (sizes.episodes, sizes.horizon)
        self.levels = paper.Level(0.02, 0.04, 0.05), paper.Level(0.02, 0.04, 0.01)
        self.proof = Proof("nothing", None, "an example")
        matrices = []
        for d in sizes.shape:
            A = rng.normal(size=(K, H, d, d))
            spread = 0.01 * (A + A.swapaxes(2, 3)) / np.abs(A).sum(axis=(2, 3), keepdims=True)
            matrices.append(0.03 * np.eye(d) + spread)
        zp, zr = (0.01 * rng.normal(size=(K, H, d)) for d in sizes.shape)
        self.all = paper.Regularizers(matrices[0], zp, matrices[1], zr)

    def regularize(self, first, n):
        return [part[first : first + n] for part in self.all]


def transcribed(world, K, alpha, eta, seed):
    """Algorithms 1 (eta is None) and 2 with the REGULARIZER above; k, h count from 0."""
    model, psi = world.model, world.transition_features
    H, S, A, d1 = model.horizon, model.states, model.actions, psi.shape[2]
    known = world.reward_features is None
    varphi = world.rewards[0][..., None] if known else world.reward_features
    d2 = varphi.shape[2]
    sizes = paper.Sizes(K, H, (d1, d2), 1.0, 1e-6, alpha, True, Noise(seed))
    made, rng = Wavering(sizes), np.random.default_rng([seed, 1])
    lmin, lmax, nu = made.levels[0]
    beta_p = H / 2 * math.sqrt(2 * math.log(H / alpha) + d1 * math.log(1 + K * H**2 / lmin))
    beta_p += math.sqrt(d1 * lmax) + nu
    lmin, lmax, nu = made.levels[1]
    beta_r = 0.5 * math.sqrt(2 * math.log(H / alpha) + d2 * math.log(1 + K / (d2 * lmin)))
    beta_r += math.sqrt(d2 * lmax) + nu
    pi = np.full((H, S, A), 1 / A)
    data = [[] for _ in range(H)]
    rows = []
    for k in range(K):
        V, Q, phi = np.zeros((H + 1, S)), np.zeros((H, S, A)), np.zeros((H, S, A, d1))
        for h in reversed(range(H)):
            Lp, up = made.all.Zp[k, h].copy(), made.all.zp[k, h].copy()
            Lr, ur = made.all.Zr[k, h].copy(), made.all.zr[k, h].copy()
            for x, target, y, reward in data[h]:
                Lp, up = Lp + np.outer(x, x), up + x * target
                Lr, ur = Lr + np.outer(y, y), ur + y * reward
            theta_p, theta_r = np.linalg.solve(Lp, up), np.linalg.solve(Lr, ur)
            for s in range(S):
                for a in range(A):
                    x = sum(psi[s, a, :, after] * V[h + 1, after] for after in range(S))
                    y = varphi[s, a]
                    gamma_p = beta_p * math.sqrt(x @ np.linalg.solve(Lp, x))
                    gamma_r = beta_r * math.sqrt(y @ np.linalg.solve(Lr, y))
                    total = y @ theta_r + x @ theta_p + gamma_p + gamma_r
                    Q[h, s, a], phi[h, s, a] = max(0, min(H - h, total)), x
                V[h, s] = max(Q[h, s]) if eta is None else sum(Q[h, s] * pi[h, s])
        if eta is None:
            best = Q.max(axis=2, keepdims=True) == Q
            pi = best / best.sum(axis=2, keepdims=True)
        rows.append([evaluate(model, Policy.stochastic(pi)), model.start @ V[0]])
        states, actions, rewards = (
            np.zeros((1, H + 1), int),
            np.zeros((1, H), int),
            np.zeros((1, H)),
        )
        choices = np.cumsum(pi, axis=2)
        choices[choices > 1 - 1e-12] = 1.0
        told = (False, states[np.newaxis], choices[np.newaxis], np.zeros(1, int))
        roll_out(rng, *model.chances, *told, states, actions, rewards)
        for h in range(H):
            s, a, after = states[0, h], actions[0, h], states[0, h + 1]
            data[h].append((phi[h, s, a], V[h + 1, after], varphi[s, a], rewards[0, h]))
        if eta is not None:
            weights = pi * np.exp(eta * Q)
            pi = weights / weights.sum(axis=2, keepdims=True)
    return np.array(rows).T


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("eta", [None, 0.05])
def test_algorithms_are_the_papers_text(eta, known):
    world, K = small_world(known), 150
    given = {"episodes": K, "epsilon": 1.0, "delta": 1e-6, "failure": 0.5, "seed": 4}
    if eta is None:
        result = paper.lin_opt_vi(world, regularizer=Wavering, **given)
    else:
        result = paper.lin_opt_po(world, regularizer=Wavering, eta=eta, **given)
    values, estimates = transcribed(world, K, 0.5, eta, 4)
    np.testing.assert_allclose(result.values, values, rtol=1e-8)
    np.testing.assert_allclose(result.estimates, estimates, rtol=1e-8)
    assert len(np.unique(np.round(estimates, 6))) > 50
    assert result.guarantee is None
    assert result.reason == "an example"


def nodes_of(t):
    """When the nodes were made that cover the first t users."""
    found = []
    while t > 0:
        found.append(t - 1)
        t -= t & -t
    return found


@pytest.mark.parametrize("printed", [True, False])
def test_counters_are_the_papers_text(printed):
    K, H, d1, d2, eps, delta, alpha = 100, 2, 3, 2, 1.5, 1e-5, 0.1
    sizes = paper.Sizes(K, H, (d1, d2), eps, delta, alpha, printed, Noise(1))
    made = paper.private(sizes)
    parts = [made.regularize(first, 50) for first in (0, 50)]
    source = Noise(1)  # drawn in the same parts: the stream depends on them
    units = np.concatenate([source.normal((n, H * (6 + 3 + 3 + 2))) for n in (49, 50)])
    Zp, zp, Zr, zr = (np.concatenate(both) for both in zip(*parts, strict=True))
    m = 7  # ceil(log2 100)
    if printed:
        t = H / eps * math.sqrt(32 * m * math.log(4 * H / delta))
        widths = [4 * math.sqrt(d) + math.sqrt(8 * math.log(8 * K * H / alpha)) for d in (3, 2)]
        third, half = alpha, 1.0
    else:
        t, third, half = math.sqrt(9 * H * m) / made.proof.guarantee.mu, alpha / 3, math.sqrt(0.5)
        widths = [math.sqrt(2 * d) + math.sqrt(2 * math.log(8 * K * H / third)) for d in (3, 2)]
    sigmas = {"p": (t * d1 * H**2, t * math.sqrt(d1) * H**2), "r": (t, t)}
    at = 0
    for Z, z, d, name, width in ((Zp, zp, d1, "p", widths[0]), (Zr, zr, d2, "r", widths[1])):
        gram, vector = sigmas[name]
        Sigma = gram * math.sqrt(m) * width
        nu = vector * math.sqrt(m / Sigma)
        nu *= math.sqrt(d) + math.sqrt(2 * math.log(4 * K * H / third))
        assert made.levels["pr".index(name)] == pytest.approx((Sigma, 3 * Sigma, nu))
        for k in (0, 1, 2, 37, 99):
            for h in range(H):
                noise = units[nodes_of(k)].sum(axis=0).reshape(H, -1)[h]
                expected = 2 * Sigma * np.eye(d)
                drawn = iter(noise[at:])
                for i in range(d):
                    for j in range(i, d):
                        value = gram * next(drawn) * (1 if i == j else half)
                        expected[i, j] += value
                        expected[j, i] += value if i != j else 0
                np.testing.assert_allclose(Z[k, h], expected, rtol=1e-9, atol=1e-6)
                vectors = [vector * next(drawn) for _ in range(d)]
                np.testing.assert_allclose(z[k, h], vectors, rtol=1e-9, atol=1e-9)
        at += d * (d + 1) // 2 + d


@pytest.mark.parametrize("which", ["private", "local"])
def test_corrected_regularizers_keep_assumption_2(which):
    """With 1 - failure / 3; 10 runs of 100 episodes, and bounds that are not beyond all noise."""
    K, largest = 100, 0.0
    for seed in range(10):
        sizes = paper.Sizes(K, 2, (3, 2), 1.0, 1e-5, 0.3, False, Noise(seed))
        made = paper.REGULARIZERS[which](sizes)
        Zp, zp, Zr, zr = made.regularize(0, K)
        for Z, z, level in zip((Zp, Zr), (zp, zr), made.levels, strict=True):
            ends = np.linalg.eigvalsh(Z)
            assert ends.min() >= level.lambda_min
            assert ends.max() <= level.lambda_max
            assert np.sqrt((z * np.linalg.solve(Z, z[..., None])[..., 0]).sum(-1)).max() <= level.nu
            largest = max(largest, np.abs(ends / level.lambda_min - 2.0).max())
    assert largest > 0.3


@pytest.mark.parametrize("algorithm", [paper.lin_opt_vi, paper.lin_opt_po])
def test_corrected_estimates_are_optimistic(algorithm):
    world = small_world()
    for seed in range(3):
        result = algorithm(world, episodes=6000, epsilon=1e5, delta=1e-6, printed=False, seed=seed)
        below = world.optimal_value if algorithm is paper.lin_opt_vi else result.values
        assert (result.estimates >= below).all()
        assert result.estimates[-1] < 1.7, "H is 2: nothing was learnt"


@pytest.mark.parametrize(
    ("printed", "which", "epsilon"),
    [(True, "private", None), (False, "private", 1), (False, "local", 1)],
)
def test_guarantees(printed, which, epsilon):
    world = hard_mixture()
    given = {"episodes": 1000, "epsilon": 1.0, "delta": 1e-6, "regularizer": which}
    guarantee = paper.lin_opt_vi(world, printed=printed, **given).guarantee
    assert guarantee is not None
    if epsilon is None:
        # mu^2 = 9 H m / t^2 with t = (H / eps) sqrt(32 m ln(4 H / delta)), H = 6.
        assert guarantee.mu == pytest.approx(math.sqrt(9 / (32 * 6 * math.log(24e6))))
        assert guarantee.epsilon < 1.0
    else:
        assert guarantee.epsilon == pytest.approx(epsilon)
    assert guarantee.model == ("local" if which == "local" else "joint")


class Ones(Noise):
    """Noise of which every draw is 1, to see what multiplies it."""

    def normal(self, shape):
        return np.ones(shape)


@pytest.mark.parametrize(("printed", "which"), [(True, "private"), *CORRECTED])
def test_likelihood_ratio_of_the_worst_pair_is_the_guarantee(printed, which):
    """From the noise that is drawn: p' at 120 degrees of p attains 4.5 B^4 where it is isotropic.

    As printed, noise off the diagonal is larger, so that the pair stays below the guarantee.
    """
    K, H, d = 20, 2, 2
    made = paper.REGULARIZERS[which](Sizes(K, H, (d, d), 1.0, 1e-5, 0.1, printed, Ones(0)))
    assert made.proof.guarantee is not None
    t = math.sqrt(9 * H * (1 if which == "local" else 5)) / Budget(1.0, 1e-5).mu
    Zp, zp, Zr, zr = (part[1] - part[0] for part in made.regularize(0, 3))
    total = 0.0
    for Z, z, B, X in ((Zp, zp, math.sqrt(d) * H, H), (Zr, zr, 1.0, 1.0)):
        if not printed:
            assert (Z[0, 0, 0], z[0, 0]) == pytest.approx((t * B**2, t * B * X))
            assert Z[0, 0, 1] == pytest.approx(t * B**2 / math.sqrt(2))
        here, there = np.array([B, 0.0]), -B * np.array([0.5, math.sqrt(0.75)])
        gram = (np.outer(here, here) - np.outer(there, there)) / Z[0]
        total += np.triu(gram**2).sum() + np.sum(((here - there) * X / z[0]) ** 2)
    mu = math.sqrt(total * H * (1 if which == "local" else 5))
    if printed:
        assert 0.8 * made.proof.guarantee.mu < mu <= made.proof.guarantee.mu
    else:
        assert mu == pytest.approx(made.proof.guarantee.mu, rel=1e-12)
        assert mu == pytest.approx(Budget(1.0, 1e-5).mu)


def test_reports_noise_adds_up():
    """Local: episode k has the noise of k - 1 reports, and the shift bounds that of all of them."""
    made = paper.REGULARIZERS["local"](Sizes(9, 2, (2, 2), 1.0, 1e-5, 0.3, False, Ones(0)))
    t, shift = math.sqrt(18) / Budget(1.0, 1e-5).mu, math.sqrt(9) * LOCAL
    for Z, z, level, size in zip(
        *groups(made.regularize(0, 9)), made.levels, (8.0, 1.0), strict=True
    ):
        assert level.lambda_min == pytest.approx(t * size * shift)
        assert np.diff(Z[:, 0, 0, 0]) == pytest.approx(np.full(8, t * size))
        assert z[8, 0, 0] == pytest.approx(8 * t * (math.sqrt(2) * 4 if size > 1 else 1.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_hostile_users_and_any_noise_keep_the_sensitivities(sign, monkeypatch):
    """Rewards of any size, plans of any noise: sums move by d1 H^2, sqrt(d1) H^2, 1, 1 at most."""
    in_python(monkeypatch)
    world, H, d = small_world(), 2, 2
    psi, varphi = paper._features(world)
    Z, z = np.tile(np.eye(d), (1, H, 1, 1)), np.full((1, H, d), sign * 1e12)
    for eta in (0.0, 0.1):
        work = paper._work(4, H, psi, varphi)
        paper._plan(0, paper.Regularizers(Z, z, Z, z), paper.LinOptConstants(1.0, 1.0, eta), work)
        assert work.at.V.min() >= 0
        assert work.at.V.max() <= H
        work.at.rewards[:] = sign * 1e9
        for s, a in ((0, 0), (0, 1), (1, 0), (1, 1)):
            work.at.states[:], work.at.actions[:] = s, a
            for part in (work.Gp, work.gp, work.Gr, work.gr):
                part[:] = 0.0
            paper._insert(work)
            for part, bound in zip(
                (work.Gp, work.gp, work.Gr, work.gr),
                (d * H**2, math.sqrt(d) * H**2, 1.0, 1.0),
                strict=True,
            ):
                assert np.linalg.norm(part.reshape(H, -1), axis=1).max() <= bound


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("transition_features", r"\|phi\|"),
        ("weights", r"\|theta_p\|"),
        ("reward_features", r"\|varphi\|"),
        ("reward_weights", r"\|theta_r\|"),
    ],
)
def test_worlds_beyond_assumption_1_are_refused(part, words):
    """By a hundredth: the sensitivities stand on norms of features, the radii on those of weights.

    A world with one feature of each kind is at all four bounds.
    """
    chances = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.6, 0.4]]])
    at = {"transition_features": chances[:, :, np.newaxis], "weights": np.ones((1, 1))}
    at |= {"reward_features": np.ones((2, 2, 1)), "reward_weights": np.ones((1, 1))}
    at |= {"rewards": np.ones((1, 2, 2))}
    psi, varphi = paper._features(SimpleNamespace(**at))
    assert (psi.shape, varphi.shape) == ((2, 2, 1, 2), (2, 2, 1))
    with pytest.raises(InvalidArgument, match=words):
        paper._features(SimpleNamespace(**at | {part: 1.01 * at[part]}))
