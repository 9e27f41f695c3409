"""Wang and Hegde: the algorithm against the paper's text, its noise, and what is promised."""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from tacit.continuous import line
from tacit.papers import wang_functional_2019 as paper
from tacit.privacy.budget import mu_from_budget
from tacit.privacy.noise import Noise


class Process:
    """Paths by the definition: every new point from the covariance matrix of all points."""

    def __init__(self, beta, sigma, actions, source):
        self.beta, self.sigma, self.actions, self.source = beta, sigma, actions, source
        self.points, self.values = [], []

    def __call__(self, s):
        if s in self.points:
            return self.values[self.points.index(s)]
        mean, variance = np.zeros(self.actions), 1.0
        if self.points:
            known = np.array(self.points)
            K = np.exp(-self.beta * np.abs(known[:, None] - known))
            weights = np.linalg.solve(K, np.exp(-self.beta * np.abs(known - s)))
            mean = weights @ np.array(self.values)
            variance = 1.0 - weights @ np.exp(-self.beta * np.abs(known - s))
        unit = self.source.normal((self.actions,))
        self.points.append(s)
        self.values.append(mean + self.sigma * math.sqrt(max(variance, 0.0)) * unit)
        return self.values[-1]


def forward(theta, layers, s):
    """A network of ReLU units, layer by layer: weights of a layer, then its biases."""
    units, at = np.array([s]), 0
    for i, (a, b) in enumerate(itertools.pairwise(layers)):
        W, at = theta[at : at + a * b].reshape(b, a), at + a * b
        units = W @ units + theta[at : at + b]
        at += b
        if i < len(layers) - 2:
            units = np.maximum(units, 0.0)
    return units


def transcribed(world, setting, sigma, seed):
    """Algorithm 1 with its misprints corrected; gradients by differences."""
    m, layers = 2, (1, *setting.hidden, 2)
    rng = np.random.default_rng([seed, 1])
    parts = [rng.uniform(-1.0, 1.0, (a + 1) * b) / math.sqrt(a) for a, b in ((1, 3), (3, 2))]
    theta, source = np.concatenate(parts), Noise(seed)
    s, total, returns, t = float(rng.random()), 0.0, [], 0
    for j in range(setting.T // setting.B):
        if j % (setting.T // setting.B // setting.J) == 0:
            g = Process(setting.beta, sigma, m, source)
        losses = []
        for _ in range(setting.B):
            a = int(np.argmax(forward(theta, layers, s) + g(s)))
            step = 0.25 * rng.random()
            after = min(max(s + (step if a == 1 else -step), 0.0), 1.0)
            r = 0.5 - abs(after - 0.5)
            y = r + setting.discount * max(forward(theta, layers, after) + g(after))
            losses.append((s, a, g(s)[a], y))
            s, t, total = after, t + 1, total + r
            if t % world.spec.horizon == 0:
                returns.append(total)
                s, total = float(rng.random()), 0.0

        def loss(theta, losses=tuple(losses)):
            terms = [(forward(theta, layers, s)[a] + g - y) ** 2 for s, a, g, y in losses]
            return 0.5 * sum(terms)

        gradient = np.zeros_like(theta)
        for i in range(len(theta)):
            e = 1e-6 * np.eye(len(theta))[i]
            gradient[i] = (loss(theta + e) - loss(theta - e)) / 2e-6
        theta = theta - setting.alpha / setting.B * gradient
    return theta, np.array(returns)


def test_algorithm_is_the_papers_text():
    world = line(horizon=5)
    setting = paper.Setting(T=60, B=6, alpha=0.05, k=24.0, J=5, hidden=(3,))
    assert setting.beta == pytest.approx(1.2)
    given = {"epsilon": 0.9, "delta": 1e-4, "setting": setting, "seed": 2}
    result = paper.functional_q(world, sigma=0.3, **given)
    theta, returns = transcribed(world, setting, 0.3, 2)
    np.testing.assert_allclose(result.values, returns, rtol=1e-9)
    np.testing.assert_allclose(result.policy.theta, theta, atol=1e-7)
    assert len(returns) == 12
    assert result.guarantee is None
    assert "without noise" in result.reason


def test_sigma_is_theorem_5s():
    """With alpha = 3e-4, B = 64, T = 5000, L^2 = 16: the table of docs/errata.md."""
    for eps, k, theorem, proof in (
        (0.9, 2.3, 0.043, 1.37),
        (0.9, 23.0, 0.313, 3.69),
        (0.45, 2.3, 0.083, 2.64),
        (0.45, 23.0, 0.604, 7.11),
    ):
        v = 4 * 3e-4 * (k + 1) / 64
        C = (v**2 + v) * 16
        setting = paper.Setting(k=k)
        exact = math.sqrt(2 * (5000 / 64) * math.log(math.e + eps / 5e-5)) * C / eps
        assert paper.theorem_5_sigma(eps, 5e-5, setting) == pytest.approx(exact)
        assert exact == pytest.approx(theorem, abs=6e-4)
        assert paper.proof_sigma(eps, 5e-5, setting) == pytest.approx(proof, abs=6e-3)
        # The side condition fails for the reported noise, and for the proof's own.
        assert math.isnan(paper.theorem_5_delta(0.32, 5e-5, setting))
    easy = paper.Setting(alpha=100.0, k=10.0)
    room = 2 * 10.0 - 8.68 * math.sqrt(easy.beta) * 0.1
    expected = 1e-5 + 78 * math.exp(-(room**2) / 2)
    assert paper.theorem_5_delta(0.1, 1e-5, easy) == pytest.approx(expected)
    given = {"epsilon": 0.9, "delta": 1e-4, "setting": paper.Setting(T=200)}
    result = paper.functional_q(line(), **given)
    printed = paper.theorem_5_sigma(0.9, 5e-5, paper.Setting(T=200))
    assert result.constants["sigma"] == printed


def test_paths_have_the_law_of_the_process():
    """Covariance at three points in a random order, 20,000 paths: within 5 standard errors."""
    noise, beta, points = Noise(4), 2.0, [0.7, 0.1, 0.4]
    drawn = np.array(
        [
            [paths.at(s)[0] for s in points]
            for paths in (paper.Paths(beta, 1.5, 1, noise) for _ in range(20_000))
        ]
    )
    expected = 2.25 * np.exp(-beta * np.abs(np.subtract.outer(points, points)))
    assert np.abs(np.cov(drawn.T) - expected).max() < 5 * 2.25 * math.sqrt(2 / 20_000)
    paths = paper.Paths(beta, 1.5, 2, noise)
    assert (paths.at(0.3) == paths.at(0.3)).all()
    before = paths.at(0.3)
    paths.forget()
    assert (paths.at(0.3) != before).all()


def test_grid_paths_have_the_law_of_the_process():
    F = paper.GridFunction(4, 1, 3.0)
    drawn = np.array([F.path(u)[0] for u in Noise(5).normal((20_000, 1, 5))])
    expected = np.exp(-3.0 * np.abs(np.subtract.outer(F.points, F.points)))
    assert np.abs(np.cov(drawn.T) - expected).max() < 5 * math.sqrt(2 / 20_000)


def norm(F, change):
    """Of functions that are known on the grid: the least norm of any that has these values."""
    K = np.exp(-F.beta * np.abs(np.subtract.outer(F.points, F.points)))
    return math.sqrt(sum(row @ np.linalg.solve(K, row) for row in change))


def test_two_reward_functions_move_an_update_by_alpha_eta_at_most():
    """The bound is attained by a batch that stands in a point of the grid."""
    rng, alpha, eta = np.random.default_rng(6), 0.7, 0.8
    setting = paper.Setting(alpha=alpha)
    F = paper.GridFunction(10, 2, 1.0)
    F.values = rng.normal(size=F.values.shape)
    largest = 0.0
    for case in range(200):
        states, actions = rng.random(8), rng.integers(2, size=8).tolist()
        if case == 0:
            states, actions = np.full(8, 0.3), [1] * 8
        steps = paper.StepBatch(states, actions, rng.random(8), rng.random(8))
        moved = eta if case == 0 else eta * rng.uniform(-1, 1, 8)
        others = steps._replace(rewards=steps.rewards + moved)
        change = paper.functional_update(F, steps, setting)
        distance = norm(F, change - paper.functional_update(F, others, setting))
        assert distance <= alpha * eta * (1 + 1e-9)
        largest = max(largest, distance)
    assert largest == pytest.approx(alpha * eta)


@pytest.mark.parametrize(("protect", "distance"), [("reward function", 5.0), ("episode", 0.25)])
def test_corrected_noise_is_the_budgets(protect, distance):
    """alpha eta sqrt(T / B) = 5 with 25 batches, or alpha R / U = .5 / 2 with two users a batch."""
    setting = paper.Setting(T=250, B=10, alpha=1.0)
    given = {"epsilon": 0.9, "delta": 1e-4, "setting": setting, "printed": False}
    result = paper.functional_q(line(horizon=5), protect=protect, **given)
    mu = mu_from_budget(0.9, 1e-4)
    assert result.constants["sigma"] == pytest.approx(distance / mu)
    assert result.guarantee is not None
    assert (result.guarantee.mu, result.guarantee.epsilon) == pytest.approx((mu, 0.9))
    assert protect.split()[-1] in result.guarantee.unit or "rewards" in result.guarantee.unit
    assert len(result.values) == 50


class Users:
    """A world whose users' rewards are ours to choose: one reward after another."""

    def __init__(self, rewards):
        self._world, self._rewards = line(horizon=5), iter(rewards)

    def __getattr__(self, name):
        return getattr(self._world, name)

    def rewards(self, states):
        return np.array([next(self._rewards)])


@pytest.mark.parametrize("hostile", [0.5, 7.0, -1e9, math.inf, math.nan])
@pytest.mark.parametrize("make", [paper.functional_q, paper.network_q])
def test_one_users_rewards_move_the_state_by_what_the_noise_is_for(make, hostile):
    """Whole runs of one batch of two users, with the same noise; bounds are alpha R / U, R G / U.

    Without rewards the functional state is its noise: that of sigma = alpha R / (U mu).
    """
    mu, alpha = mu_from_budget(0.9, 1e-4), 0.8
    given = {"epsilon": 0.9, "delta": 1e-4, "setting": paper.Setting(T=10, B=10, alpha=alpha)}
    functional = make is paper.functional_q
    if functional:
        given |= {"printed": False, "protect": "episode"}
    quiet, loud = (make(Users([0.0] * 5 + [r] * 5), **given).policy for r in (0.0, hostile))
    if functional:
        drawn = quiet.path(Noise(0).normal(quiet.values.shape))
        np.testing.assert_allclose(quiet.values, alpha * 0.5 / 2 / mu * drawn, atol=1e-12)
        moved, bound = norm(quiet, loud.values - quiet.values), alpha * 0.5 / 2
    else:
        moved, bound = float(np.linalg.norm(loud.theta - quiet.theta)) / alpha, 0.5 / 2
    assert moved <= bound * (1 + 1e-9)
    if hostile > 0:
        assert moved > 0.3 * bound


@pytest.mark.parametrize("clip", [1e-3, 30.0])
def test_gradients_are_cut_to_the_length_the_noise_is_for(clip):
    """One batch, the same states and actions, rewards R apart: the mean moves by G R at most.

    Gradients of the last layer's biases are 1 long or longer, so that a small G is attained.
    """
    given = {"epsilon": 0.9, "delta": 1e-4, "setting": paper.Setting(T=10, B=10, alpha=1.0)}
    made = [paper.network_q(Users([r] * 10), clip=clip, **given) for r in (0.0, 0.5)]
    low, high = (run.policy.theta for run in made)
    moved, bound = float(np.linalg.norm(high - low)), 0.5 * clip
    assert moved <= bound * (1 + 1e-9)
    assert (moved > 0.5 * bound) == (clip < 1.0)
    sigma = 0.5 * clip / 2 / mu_from_budget(0.9, 1e-4)
    assert made[0].constants["sigma"] == pytest.approx(sigma)
    # Where gradients are nothing, what is added is the noise of which the guarantee is.
    noisy = paper.network_q(Users([0.0] * 10), clip=1e-12, sigma=clip, **given)
    start = paper.Network((1, 16, 16, 2), np.random.default_rng([0, 1])).theta
    drawn = start - clip * Noise(0).normal(start.shape)
    np.testing.assert_allclose(noisy.policy.theta, drawn, atol=1e-9)
    assert noisy.guarantee.mu == pytest.approx(0.5 * 1e-12 / 2 / clip)


@pytest.mark.parametrize("sigma", [0.3, 300.0])
def test_no_sigma_hides_rewards_in_what_algorithm_1_returns(sigma):
    """Given the evaluations of a batch, theta is a function of its rewards: no noise is left in it.

    Two reward functions a tenth apart, one batch, the same evaluations: theta differs by alpha / 10
    times the mean gradient, which for the last biases is 1 in all, at every sigma.
    """
    setting = paper.Setting(T=10, B=10, alpha=0.1, hidden=(3,))
    given = {"epsilon": 0.9, "delta": 1e-4, "setting": setting, "sigma": sigma}
    low, high = (paper.functional_q(Users([r] * 10), **given).policy.theta for r in (0.0, 0.1))
    assert (high - low)[-2:].sum() == pytest.approx(0.1 * 0.1, rel=1e-6)


@pytest.mark.slow
def test_corrected_state_learns_from_many_users():
    """One user's rewards at epsilon = 10: better than at random, which has 10.86 of 20.71."""
    setting = paper.Setting(T=20_000, B=1000, alpha=1.0)
    given = {"epsilon": 10.0, "delta": 1e-4, "setting": setting, "printed": False}
    result = paper.functional_q(line(), protect="episode", **given)
    assert result.values[-100:].mean() > 15.0


def decimal_bridge(rate, x, left, right):
    """Weights and variance from the 2 x 2 matrix conditional, to 700 digits."""
    with localcontext() as context:
        context.prec = 700
        context.Emin = -999999999

        def K(s, t):
            return (-Decimal(rate) * abs(Decimal(s) - Decimal(t))).exp()

        to_left, to_right, across = K(x, left), K(x, right), K(left, right)
        determinant = 1 - across * across
        on_left = (to_left - to_right * across) / determinant
        on_right = (to_right - to_left * across) / determinant
        variance = 1 - on_left * to_left - on_right * to_right
        return float(on_left), float(on_right), float(variance)


@pytest.mark.parametrize(
    ("rate", "left", "x", "right"),
    [
        (5.0, 0.1, 0.3, 0.8),
        (1e-6, 0.0, 0.4, 1.0),
        (1.0, 0.0, 1e-9, 1.0),
        (1.0, 0.0, 1e-160, 1e-150),
        (1.0, 0.3, math.nextafter(0.3, 1.0), math.nextafter(math.nextafter(0.3, 1.0), 1.0)),
        (3.0, 0.0, 1e-12, 200.0),
        (40.0, 0.0, 5.0, 15.0),
    ],
)
def test_bridges_have_all_their_digits(rate, left, x, right):
    assert paper.bridge(rate * (x - left), rate * (right - x)) == pytest.approx(
        decimal_bridge(rate, x, left, right), rel=1e-12
    )
