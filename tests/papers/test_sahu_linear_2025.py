"""Sahu: the compiled loop against the paper's text, and what is promised."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.linear import two_state
from tacit.linear.worlds import LinearWorld
from tacit.papers import sahu_linear_2025 as paper
from tacit.privacy.budget import Budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.tabular.model import evaluate
from tacit.tabular.policy import Policy
from tacit.tabular.simulate_loops import roll_out


def in_python(monkeypatch):
    """Loops without their compiler, so that a test can call one of them."""
    for module in (paper, paper.loops):
        for name, found in vars(module).copy().items():
            monkeypatch.setattr(module, name, getattr(found, "py_func", found))


def small_world():
    """Two states, three actions that mix two factors, two steps."""
    features = [[[0.9, 0.1], [0.4, 0.6], [0.1, 0.9]], [[0.8, 0.2], [0.5, 0.5], [0.0, 1.0]]]
    return LinearWorld(features, [[[0.9, 0.1], [0.2, 0.8]]], [[0.2, 0.6], [0.9, 0.1]], 2)


def sizes(K, H, d):
    return paper.Sizes(K, H, (5, d), 1.0, 1e-6, 0.1, True, Noise(0))


def printed(world, K, of, once, seed):
    """Algorithm 1 in plain loops over all users, misprints corrected; k, h count from 0."""
    model, phi = world.model, world.features
    H, S, A, d = model.horizon, model.states, model.actions, phi.shape[2]
    triangle, source = d * (d + 1) // 2, Noise(seed)
    grams = source.normal((1 if once else K, H * triangle))
    vectors = source.normal((1 if once else K, H, 3, d))
    rng = np.random.default_rng([seed, 1])

    def K1(k, h):
        """(Z + Z') / sqrt 2: diagonal s, off the diagonal s / sqrt 2."""
        drawn = iter(grams[0 if once else k, h * triangle : (h + 1) * triangle])
        matrix = np.zeros((d, d))
        for i in range(d):
            matrix[i, i] = of.gram_noise * next(drawn)
            for j in range(i + 1, d):
                matrix[i, j] = matrix[j, i] = of.gram_noise * next(drawn) / math.sqrt(2)
        return matrix

    scales = [of.vector_noise, of.vector_noise, of.square_noise]
    Qhat, Qcheck = np.full((H, S, A), float(H)), np.zeros((H, S, A))
    past = [[] for _ in range(H)]
    last_det = [(2 * of.lambda_) ** d] * H
    switches = 0
    rows = []
    for k in range(K):
        Lambda = []
        for h in range(H):
            matrix = 2 * of.lambda_ * np.eye(d)
            for x, _, weight in past[h]:
                matrix = matrix + weight * np.outer(x, x)
            Lambda.append(matrix + K1(k, h) if k > 0 else matrix)
        dets = [float(np.linalg.det(matrix)) for matrix in Lambda]
        switch = any(dets[h] >= 2 * last_det[h] for h in range(H))
        Vhat, Vcheck = np.zeros((H + 1, S)), np.zeros((H + 1, S))
        w = np.zeros((H, 3, d))
        for h in reversed(range(H)):
            for i in range(3):
                b = scales[i] * vectors[0 if once else k, h, i]
                for x, after, weight in past[h]:
                    value = (Vhat, Vcheck, Vhat**2)[i][h + 1, after]
                    b = b + weight * x * value
                w[h, i] = np.linalg.solve(Lambda[h], b)
            if switch:
                for s in range(S):
                    for a in range(A):
                        x = phi[s, a]
                        width = of.beta * math.sqrt(x @ np.linalg.solve(Lambda[h], x))
                        r = model.mean_rewards_at(h)[s, a]
                        Qhat[h, s, a] = max(min(r + w[h, 0] @ x + width, Qhat[h, s, a], H), 0)
                        Qcheck[h, s, a] = min(max(r + w[h, 1] @ x - width, Qcheck[h, s, a], 0), H)
            Vhat[h], Vcheck[h] = Qhat[h].max(axis=1), Qcheck[h].max(axis=1)
        if switch:
            last_det, switches = dets, switches + 1
        best = Qhat == Qhat.max(axis=2, keepdims=True)
        pi = best / best.sum(axis=2, keepdims=True)
        value = evaluate(model, Policy.stochastic(pi))
        rows.append([value, model.start @ Vhat[0], model.start @ Vcheck[0], switches])
        states, actions, rewards = (
            np.zeros((1, H + 1), int),
            np.zeros((1, H), int),
            np.zeros((1, H)),
        )
        choices = np.cumsum(best, axis=2) / best.sum(axis=2, keepdims=True)
        told = (False, states[np.newaxis], choices[np.newaxis], np.zeros(1, int))
        roll_out(rng, *model.chances, *told, states, actions, rewards)
        for h in range(H):
            x = phi[states[0, h], actions[0, h]]
            norm = math.sqrt(x @ np.linalg.solve(Lambda[h], x))
            variance = np.clip(w[h, 2] @ x, 0, H**2) - np.clip(w[h, 0] @ x, 0, H) ** 2
            E = min(of.beta_bar * norm, H**2) + min(2 * H * of.beta * norm, H**2)
            gap = (w[h, 0] - w[h, 1]) @ x + 2 * of.beta * norm
            D = min(4 * d**3 * H**2 * gap, d**3 * H**3)
            sigma = math.sqrt(max(0.0, variance + E + D + H))
            sigma = max(sigma, of.least_sigma, 2 * d**3 * H**2 * math.sqrt(norm))
            past[h].append((x, int(states[0, h + 1]), sigma**-2))
    return np.array(rows).T


def gentle(every_episode=True):
    """Constants with which something happens within a few episodes."""
    return paper.LSVIConstants(
        1e-6, 5e-4, 5e-4, 1e-7, 2e-8, 2e-8, 2.0, 60, every_episode, False, 64.0
    )


@pytest.mark.parametrize("noise", ["fresh", "once"])
def test_algorithm_is_the_papers_text(noise):
    world, K, seed = small_world(), 60, 5
    given = {"episodes": K, "epsilon": 1.0, "delta": 1e-6, "noise": noise, "seed": seed}
    result = paper.dp_lsvi_ucb_plus_plus(world, constants=gentle(), **given)
    values, estimates, lower, switches = printed(world, K, gentle(), noise == "once", seed)
    np.testing.assert_allclose(result.more["switches"], switches)
    np.testing.assert_allclose(result.estimates, estimates, rtol=1e-8)
    np.testing.assert_allclose(result.more["lower"], lower, rtol=1e-8)
    np.testing.assert_allclose(result.values, values, rtol=1e-9)
    assert switches[-1] >= 5
    assert len(np.unique(estimates)) > 1
    assert len(np.unique(lower)) > 1


@pytest.mark.parametrize("lambda_", [1e-6, 1.0])
def test_without_noise_and_bonus_there_is_no_switch_either(lambda_):
    """Weights are at most 1 / (4 d^6 H^4 |phi|) by line 25: no determinant doubles."""
    world, K = two_state(horizon=20), 2000
    none = dict.fromkeys(("beta", "beta_bar", "gram_noise", "vector_noise", "square_noise"), 0.0)
    bare = paper.printed_constants(sizes(K, 20, 10), 1.0)._replace(lambda_=lambda_, **none)
    given = {"episodes": K, "epsilon": 1.0, "delta": 1e-6}
    made = paper.dp_lsvi_ucb_plus_plus(world, constants=bare, **given)
    assert (made.more["switches"] == 0).all()
    assert (made.values == made.values[0]).all()


def test_printed_constants_are_the_printed_ones():
    """Line 1, Lemma A.1 and Theorem 3.2 with K = 100, H = 3, d = 2, rho = 0.5, delta = 0.1."""
    of, rho0 = paper.printed_constants(sizes(100, 3, 2), 0.5), 0.5 / 1200
    L = 12 * math.sqrt(1200 * math.log(60000))
    lam = math.sqrt(9600) * (2 + (math.log(150) / 2) ** (2 / 3))
    log = math.log(3 * 100**4 * L**2 * 2 / (0.1 * lam))
    assert of.lambda_ == pytest.approx(lam)
    assert of.beta == pytest.approx(3 * L * math.sqrt(2 * lam) + math.sqrt(8 * 9 * log**2))
    assert of.beta_bar == pytest.approx(9 * L**2 * math.sqrt(2 * lam) + math.sqrt(8 * 81 * log**2))
    assert of.vector_noise**2 == pytest.approx(18 / rho0)
    assert of.square_noise**2 == pytest.approx(162 / rho0)
    assert of.gram_noise**2 == pytest.approx(2 / (4 * rho0))
    assert of.least_sigma == 3


def test_printed_cost_is_that_of_the_worst_pair():
    """Two users with orthogonal features and values of opposite ends, in every later release."""
    K, H, d, rho = 50, 4, 3, 0.2
    of, c = paper.printed_constants(sizes(K, H, d), rho), 1 / H**2
    one, other = np.eye(d)[0], np.eye(d)[1]
    gram = np.linalg.norm(c * np.outer(one, one) - c * np.outer(other, other))
    vector = np.linalg.norm(c * one * H - c * -one * H)
    squares = [gram / of.gram_noise, vector / of.vector_noise, vector / of.vector_noise]
    squares.append(H * vector / of.square_noise)
    total = H * (K - 1) * sum(s**2 for s in squares)
    assert paper.cost(of, H, K - 1, K - 1) == pytest.approx(math.sqrt(total))


def test_corrected_cost_is_the_budget():
    K, H, d, mu = 1000, 4, 3, Budget(1.0, 1e-6).mu
    of, c, nodes = paper.corrected_constants(sizes(K, H, d), 1.0), 1 / H, 10
    gram = nodes * 2 * c**2 / of.gram_noise**2
    vectors = 2 * (2 * c * H / of.vector_noise) ** 2 + (2 * c * H**2 / of.square_noise) ** 2
    assert H * (gram + of.most_switches * vectors) == pytest.approx(mu**2)
    assert paper.cost(of, H, of.most_switches, nodes) == pytest.approx(mu)
    assert of.least_sigma == math.sqrt(H)


@pytest.mark.slow
def test_corrected_bounds_hold_the_optimum():
    """In every episode, though the bounds are far from 0 and H at the end."""
    world = small_world()
    result = paper.dp_lsvi_ucb_plus_plus(
        world, episodes=800_000, epsilon=1e5, delta=1e-6, printed=False, seed=0
    )
    assert (result.estimates >= world.optimal_value).all()
    assert (result.more["lower"] <= world.optimal_value).all()
    assert result.estimates[-1] < 1.95
    assert result.more["lower"][-1] > 0.3
    assert 1 < result.more["switches"][-1] <= result.constants["most_switches"]


def test_switches_are_capped():
    world, few = small_world(), gentle(False)._replace(most_switches=3)
    given = {"episodes": 200, "epsilon": 1.0, "delta": 1e-6}
    result = paper.dp_lsvi_ucb_plus_plus(world, constants=few, **given)
    assert result.more["switches"].max() == 3


def test_every_switch_has_noise_of_its_own(monkeypatch):
    """As drawn for the run, row after row; noise that is used twice hides nothing."""
    used = []
    in_python(monkeypatch)
    monkeypatch.setattr(paper, "_regress", lambda h, of, work, units: used.append(units.copy()))
    given = {"episodes": 60, "epsilon": 1.0, "delta": 1e-6, "seed": 3}
    of = gentle(False)
    made = paper.dp_lsvi_ucb_plus_plus(small_world(), constants=of, **given)
    drawn = Noise(3).normal((of.most_switches, 2, 3, 2))
    switches = int(made.more["switches"][-1])
    assert switches >= 5
    np.testing.assert_array_equal(used, np.repeat(drawn[:switches], 2, axis=0))


def test_guarantees():
    world, given = two_state(horizon=2), {"episodes": 50, "epsilon": 1.0, "delta": 1e-6}
    fresh = paper.dp_lsvi_ucb_plus_plus(world, **given)
    assert fresh.guarantee is not None
    assert fresh.guarantee.mu == pytest.approx(
        math.sqrt(10 / 16 * fresh.constants["rho"] * 49 / 200)
    )
    once = paper.dp_lsvi_ucb_plus_plus(world, noise="once", **given)
    assert once.guarantee is None
    assert "no noise" in once.reason
    right = paper.dp_lsvi_ucb_plus_plus(world, printed=False, **given)
    assert right.guarantee is not None
    assert right.guarantee.mu == pytest.approx(Budget(1.0, 1e-6).mu)
    assert right.guarantee.epsilon == pytest.approx(1.0)
    # With the printed radii nothing is ever learnt: ties of all actions, broken at random.
    assert (fresh.values == fresh.values[0]).all()


def test_corrected_constants_by_hand():
    """K = 1000, H = 4, S = 5, d = 3, epsilon 1, failure 0.1, |sum mu v| <= 1.5."""
    of, mu = paper.corrected_constants(sizes(1000, 4, 3), 1.5), Budget(1.0, 1e-6).mu
    assert of.gram_noise == pytest.approx(math.sqrt(2) / 4 * math.sqrt(2 * 4 * 10) / mu)
    width = math.sqrt(6) + math.sqrt(2 * math.log(2 * 3 * 4 * 1000 / 0.1))
    lam = of.gram_noise * math.sqrt(10) * width
    assert of.lambda_ == pytest.approx(lam)
    switches = math.ceil(12 * math.log2(1 + 250 / (6 * lam))) + 4
    assert of.most_switches == switches
    vector = 2 * math.sqrt(6 * 4 * switches) / mu
    assert (of.vector_noise, of.square_noise) == pytest.approx((vector, 4 * vector))
    sampling = 2 * math.log(9 * 4 / 0.1) + 2 * 5 * math.log(1001)
    sampling = math.sqrt(sampling + 3 * math.log(1 + 250 / (3 * lam)))
    long = math.sqrt(3) + math.sqrt(2 * math.log(9 * 4 * switches / 0.1))
    for R, noise, radius in ((4, vector, of.beta), (16, 4 * vector, of.beta_bar)):
        small = (noise * long + 2 * R / 4) / math.sqrt(lam)
        assert radius == pytest.approx(R / 4 * sampling + small + 4.5 * math.sqrt(lam) * R)


@pytest.mark.parametrize("printed_", [True, False])
def test_noise_that_is_drawn_has_the_scales_that_are_accounted(printed_, monkeypatch):
    """What reaches the loop, in units of the seed's normals; the guarantee is of these scales."""
    world, K, seen = small_world(), 40, []
    monkeypatch.setattr(paper, "_learn", lambda *given: seen.append(given))
    given = {"episodes": K, "epsilon": 1.0, "delta": 1e-6, "printed": printed_, "seed": 3}
    result = paper.dp_lsvi_ucb_plus_plus(world, **given)
    of, grams, targets = seen[0][5], seen[0][7], seen[0][8]
    source, H, d = Noise(3), 2, 2
    first = source.normal((0 if printed_ else of.most_switches, H, 3, d))
    units = source.normal((K, H * 3))[1].reshape(H, 3)
    fresh = source.normal((K, H, 3, d)) if printed_ else first
    np.testing.assert_array_equal(targets, fresh)
    for h in range(H):
        a, b, c = of.gram_noise * units[h] * (1, math.sqrt(0.5), 1)
        np.testing.assert_allclose(grams[1, h], [[a, b], [b, c]])
    in_python(monkeypatch)
    work = paper._work(K, H, 2, 3, d, of)
    work.factor[:] = np.eye(d)
    paper._regress(0, of, work, np.ones((H, 3, d)))
    scales = work.w[0, :, 0].tolist()
    assert scales == pytest.approx([of.vector_noise, of.vector_noise, of.square_noise])
    # mu of the worst pair of users in each release, from these scales.
    c, often = of.least_sigma**-2, K - 1 if printed_ else of.most_switches
    total = H * (K - 1 if printed_ else 6) * (math.sqrt(2) * c / of.gram_noise) ** 2
    total += (
        H * often * sum((2 * c * H**n / x) ** 2 for n, x in zip((1, 1, 2), scales, strict=True))
    )
    assert result.guarantee is not None
    assert result.guarantee.mu == pytest.approx(math.sqrt(total))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("printed_", [True, False])
def test_hostile_users_and_any_noise_keep_the_sensitivities(sign, printed_, monkeypatch):
    """Whatever was released: values in [0, H], weights at most c, Gram terms c, cross terms c."""
    in_python(monkeypatch)
    world, H, d = small_world(), 2, 2
    at = sizes(100, H, d)
    of = paper.printed_constants(at, 0.5) if printed_ else paper.corrected_constants(at, 1.0)
    of, c = of._replace(coefficient=2.0 * d**3 * H**2), of.least_sigma**-2
    work = paper._work(100, H, 2, 3, d, of)
    assert c == pytest.approx(1 / H ** (2 if printed_ else 1))
    for factor in (1e9, 1e-9):
        work.factor[:] = work.held[:] = factor * np.eye(d)
        for other in (1.0, -1.0):
            work.w[:, :2], work.w[:, 2] = sign * 1e12, other * 1e12
            users = paper.loops.users_of(world.model)
            for h in (1, 0):
                paper._update(h, users, world.features, of._replace(beta=0.0), work)
            assert work.V.min() >= 0
            assert work.V.max() <= H
            for s in (0, 1):
                for a in range(3):
                    work.at.states[:], work.at.actions[:] = s, a
                    work.gram[:] = work.moves[:] = 0.0
                    paper._insert(world.features, of, work)
                    assert np.linalg.norm(work.gram, axis=(1, 2)).max() <= c * (1 + 1e-12)
                    assert np.linalg.norm(work.moves, axis=(1, 2)).max() <= c * (1 + 1e-12)


@pytest.mark.parametrize("K", [3, 40, 130])
def test_corrected_gram_matrices_have_the_noise_of_their_trees_nodes(K, monkeypatch):
    """Those of [1, k - 1]: each node's noise is drawn once, and no prefix has less than one."""
    seen = []
    monkeypatch.setattr(paper, "_learn", lambda *given: seen.append(given[7]))
    given = {"episodes": K, "epsilon": 1.0, "delta": 1e-6, "printed": False, "seed": 3}
    of = paper.dp_lsvi_ucb_plus_plus(small_world(), **given).constants
    source = Noise(3)
    source.normal((int(of["most_switches"]), 2, 3, 2))
    units = np.concatenate([source.normal((len(part), 6)) for part in seen])
    grams = np.concatenate(seen)
    for k in range(1, K):
        covers, end = [], k
        while end > 0:
            covers.append(end)
            end -= end & -end
        a, b, c = of["gram_noise"] * units[covers].sum(axis=0)[:3] * (1, math.sqrt(0.5), 1)
        np.testing.assert_allclose(grams[k, 0], [[a, b], [b, c]], rtol=1e-9)


def test_the_budget_of_the_printed_noise_is_lemma_2_1s():
    """epsilon = rho + 2 sqrt(rho ln(1 / delta)); other constants than these prove nothing."""
    given = {"episodes": 10, "epsilon": 3.0, "delta": 1e-5}
    rho = paper.dp_lsvi_ucb_plus_plus(small_world(), **given).constants["rho"]
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(3.0)
    for printed_ in (True, False):
        own = paper.dp_lsvi_ucb_plus_plus(
            small_world(), constants=gentle(printed_), printed=printed_, **given
        )
        assert own.guarantee is None
        assert own.reason == "constants are the caller's own"


def test_a_worlds_weight_bounds_lemma_g_1s():
    """The norms of mu(s') over states, added up; sum mu(s') v(s') with v of +-1 is below."""
    measures = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.5], [0.0, 1.0]]])
    found = paper.weight_of(SimpleNamespace(measures=measures))
    assert found == pytest.approx(math.hypot(0.9, 0.2) + math.hypot(0.1, 0.8))
    signs = [np.array([a, b]) for a in (1, -1) for b in (1, -1)]
    attained = max(float(np.linalg.norm(mu @ v)) for mu in measures for v in signs)
    assert 0.8 * found < attained <= found


def test_longer_features_are_refused():
    world = small_world()
    long = np.array(world.features)
    long[0, 0] = 1.1, 0.0
    with pytest.raises(InvalidArgument, match="norm at most 1"):
        paper.unit_features(SimpleNamespace(features=long))


@pytest.mark.parametrize("printed_", [True, False])
def test_coefficient_of_line_25_and_of_the_variance(printed_, monkeypatch):
    seen = []
    monkeypatch.setattr(paper, "_learn", lambda *given: seen.append(given))
    given = {"episodes": 10, "epsilon": 1.0, "delta": 1e-6, "printed": printed_}
    paper.dp_lsvi_ucb_plus_plus(small_world(), **given)
    assert seen[0][5].coefficient == 2 * 2**3 * 2**2
