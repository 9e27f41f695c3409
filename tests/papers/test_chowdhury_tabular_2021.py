"""Chowdhury and Zhou: the compiled loops against the paper's text, and what is promised."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from tacit import papers
from tacit.papers import chowdhury_tabular_2021 as paper
from tacit.privacy.budget import epsilon_from_mu, mu_from_budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.tabular import TabularWorld
from tacit.tabular.model import evaluate
from tacit.tabular.policy import Policy
from tacit.tabular.simulate_loops import roll_out

MAKERS = ("central", "local", "local-gaussian", "none")


def small_world():
    """Two states, two actions, two steps; moves and rewards differ by the step."""
    moves = [[[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]]] * 2
    return TabularWorld(np.array(moves), [[[0.1, 0.0], [0.3, 0.2]], [[0.1, 0.0], [0.4, 0.2]]], 2)


def make_units(law, episodes, cells, seed):
    """The noise of a run, drawn as the run draws it."""
    noise, parts = Noise(seed), []
    for first in range(0, episodes, paper._CHUNK):
        shape = (min(paper._CHUNK, episodes - first), cells)
        parts.append(noise.laplace_sum(1, shape) if law == "laplace" else noise.normal(shape))
    return np.concatenate(parts)


class Tree:
    """Counters of Section 5.1: noisy P-sums of nodes, each drawn once, and their prefix sums."""

    def __init__(self):
        self.leaves = []
        self.nodes = {}

    def insert(self, leaf, noise):
        self.leaves.append(leaf)
        total, end = np.zeros(len(leaf)), len(self.leaves)
        while end > 0:  # the nodes that cover [1, t], from the right
            first = end - (end & -end)
            if (first, end) not in self.nodes:
                self.nodes[first, end] = np.sum(self.leaves[first:end], axis=0) + noise
            total += self.nodes[first, end]
            end = first
        return total


def corrected_noise(which, H, K, eps, delta, share):
    """Law, scale and precisions by hand: 6H in L1 and in squared L2, m nodes, Chernoff's bound."""
    m, quantile, log = (
        math.ceil(math.log2(K)),
        -NormalDist().inv_cdf(share / 2),
        math.log(2 / share),
    )

    def chernoff(n):
        return (log + n * math.log(1 + log / n)) * math.sqrt((log + n) / log)

    if which == "central" and not delta:
        size = 6 * H * m / eps
        return "laplace", size, [size * chernoff(m)] * K
    if which == "central":
        size = math.sqrt(6 * H * m) / mu_from_budget(eps, delta)
        return "gaussian", size, [size * math.sqrt(m) * quantile] * K
    if which == "local":
        size = 6 * H / eps
        return "laplace", size, [0.0, *(size * chernoff(k) for k in range(1, K))]
    size = math.sqrt(6 * H) / mu_from_budget(eps, delta)
    return "gaussian", size, [size * math.sqrt(k) * quantile for k in range(K)]


def transcribed(world, vi, K, eps, delta, which, seed, printed):
    """Algorithms 1 and 2 in plain loops; h, k, s, a count from 0."""
    model = world.model
    H, S, A = model.horizon, model.states, model.actions
    T, conf, n_cells = K * H, 0.5, model.horizon * model.states * model.actions * (2 + model.states)
    share, each = conf / 3 / (n_cells * K), [0.0] * K
    E1 = E2 = 0.0
    if not printed:
        law, size, each = corrected_noise(which, H, K, eps, delta, share)
    elif which == "central":
        law, size = "laplace", 3 * H * math.log2(K) / eps
        E1 = 3 * H / eps * math.sqrt(8 * math.log2(K) ** 3 * math.log(6 * S * A * T / conf))
        E2 = 3 * H / eps * math.sqrt(8 * math.log2(K) ** 3 * math.log(6 * S**2 * A * T / conf))
    elif which == "local":
        law, size = "laplace", 3 * H / eps
        E1 = 3 * H / eps * math.sqrt(8 * K * math.log(6 * S * A * T / conf))
        E2 = 3 * H / eps * math.sqrt(8 * K * math.log(6 * S**2 * A * T / conf))
    elif which == "local-gaussian":
        law, size = "gaussian", math.sqrt(3 * H) / mu_from_budget(eps, delta)
        E1 = E2 = size * math.sqrt(K) * -NormalDist().inv_cdf(share / 2)
    else:
        law, size = "none", 0.0
    units = make_units(law, K, n_cells, seed) if law != "none" else np.zeros((K, n_cells))
    tree, private = Tree(), np.zeros(n_cells)
    fails = conf if printed else conf / 3
    Lc = math.sqrt(2 * math.log(4 * S * A * T / fails))
    Lp = math.sqrt(4 * S * math.log(6 * S * A * T / fails))
    eta = math.sqrt(2 * math.log(A) / (H**2 * K))
    rng = np.random.default_rng([seed, 1])
    pi = np.full((H, S, A), 1 / A)
    values, estimates = [], []
    for k in range(K):
        N = private[: H * S * A].reshape(H, S, A)
        C = private[H * S * A : 2 * H * S * A].reshape(H, S, A)
        M = private[2 * H * S * A :].reshape(H, S, A, S)
        if not printed:
            M, E1, E2 = np.maximum(M, 0), each[k], each[k]
        V = np.zeros((H + 1, S))
        Q = np.zeros((H, S, A))
        for h in reversed(range(H)):
            for s in range(S):
                for a in range(A):
                    n = max(1, N[h, s, a] + E1)
                    c_tilde = C[h, s, a] / n
                    beta_c = Lc / math.sqrt(n) + 3 * E1 / n
                    beta_p = Lp / math.sqrt(n) + (S * E2 + 2 * E1) / n
                    beta_pv = H * Lc / math.sqrt(n) + H * (S * E2 + 2 * E1) / n
                    beta = beta_c + (beta_pv if vi else H * beta_p)
                    PV = sum(V[h + 1, after] * M[h, s, a, after] / n for after in range(S))
                    Q[h, s, a] = min(H - h, max(0, c_tilde + PV - beta))
                V[h, s] = min(Q[h, s]) if vi else sum(Q[h, s] * pi[h, s])
        if vi:
            for h in range(H):
                for s in range(S):
                    best, equals = 0, 1
                    for a in range(1, A):
                        if Q[h, s, a] < Q[h, s, best]:
                            best, equals = a, 1
                        elif Q[h, s, a] == Q[h, s, best]:
                            equals += 1
                            best = a if rng.random() * equals < 1 else best
                    pi[h, s] = np.eye(A)[best]
        values.append(evaluate(model, Policy.stochastic(pi / pi.sum(axis=2, keepdims=True))))
        estimates.append(H - V[0] @ model.start)
        states, actions, rewards = (
            np.zeros((1, H + 1), int),
            np.zeros((1, H), int),
            np.zeros((1, H)),
        )
        sums = np.cumsum(pi, axis=2)
        sums[..., -1] = 1.0
        told = (vi, pi.argmax(axis=2)[np.newaxis], sums[np.newaxis], np.zeros(1, int))
        roll_out(rng, *model.chances, *told, states, actions, rewards)
        sigma = np.zeros(n_cells)
        for h in range(H):
            s, a, after = states[0, h], actions[0, h], states[0, h + 1]
            cell = (h * S + s) * A + a
            sigma[cell] = 1
            sigma[H * S * A + cell] = 1 - rewards[0, h]
            sigma[2 * H * S * A + cell * S + after] = 1
        if which == "central":
            private = tree.insert(sigma, size * units[k])
        else:
            private = private + sigma + size * units[k]
        if not vi:
            for h in range(H):
                for s in range(S):
                    weights = [pi[h, s, a] * math.exp(-eta * Q[h, s, a]) for a in range(A)]
                    pi[h, s] = [w / sum(weights) for w in weights]
    return np.array(values), np.array(estimates)


@pytest.mark.parametrize(
    ("algorithm", "which", "K", "delta", "printed"),
    [
        # Where moves are sure, counts of none go below 0: cut where corrected, not as printed.
        *((paper.ucb_vi, "central", 1301, 0.0, printed) for printed in (False, True)),
        *((paper.ucb_vi, which, 1300, 1e-6 * (which == MAKERS[2]), True) for which in MAKERS),
        (paper.ucb_po, "central", 3000, 0.0, True),
        *((paper.ucb_vi, which, 1300, 1e-6 * (which == MAKERS[2]), False) for which in MAKERS[:3]),
        (paper.ucb_vi, "central", 1300, 1e-6, False),
        (paper.ucb_po, "central", 3000, 0.0, False),
    ],
)
def test_algorithms_are_the_papers_text(algorithm, which, K, delta, printed):
    """Printed and corrected: every noise, radius and step is the one computed by hand."""
    world, seed, vi = small_world(), 3, algorithm is paper.ucb_vi
    if K == 1301:
        world = TabularWorld([[[1.0, 0.0], [0.0, 1.0]]] * 2, [[0.1, 0.0], [0.4, 0.2]], 2)
    # With an enormous epsilon noise is small beside the counts and the bonus leaves room to learn.
    values, estimates = transcribed(world, vi, K, 1e5, delta, which, seed, printed)
    options = {"privatizer": which, "failure": 0.5, "seed": seed, "printed": printed}
    result = algorithm(world, episodes=K, epsilon=1e5, delta=delta, **options)
    np.testing.assert_allclose(result.values, values, rtol=1e-9)
    np.testing.assert_allclose(result.estimates, estimates, rtol=1e-7)
    assert len(np.unique(np.round(estimates, 9))) > 20, "the estimates say nothing"
    np.testing.assert_allclose(
        result.regret, np.cumsum(world.optimal_value - values), rtol=1e-6, atol=1e-9
    )


class Own:
    """A PRIVATIZER of somebody's own, in plain Python: exact counts, or noise of one size."""

    def __init__(self, sizes):
        self.sizes, self.proof = sizes, paper.Proof("nothing", None, "an example")
        self.E1 = self.E2 = np.zeros(sizes.episodes)
        shape = (sizes.horizon, *sizes.shape)
        self.counts = np.zeros(shape), np.zeros(shape), np.zeros((*shape, sizes.shape[0]))

    def receive(self, states, actions, costs):
        steps = np.arange(self.sizes.horizon)
        for table, amount in zip(self.counts, (1.0, costs, 1.0), strict=True):
            where = (steps, states[:-1], actions, states[1:])[: table.ndim]
            np.add.at(table, where, amount)
        return self.counts


@pytest.mark.parametrize("algorithm", [paper.ucb_vi, paper.ucb_po])
def test_anyone_can_bring_a_privatizer(algorithm):
    given = {"episodes": 300, "epsilon": 1.0, "failure": 0.5}
    built_in = algorithm(small_world(), privatizer="none", **given)
    brought = algorithm(small_world(), privatizer=Own, **given)
    np.testing.assert_array_equal(built_in.values, brought.values)
    np.testing.assert_array_equal(built_in.estimates, brought.estimates)
    assert brought.guarantee is None
    assert brought.reason == "an example"


@pytest.mark.parametrize("which", ["central", "central-gaussian", *MAKERS[1:3]])
def test_corrected_precision_holds(which):
    """Assumption 1 with probability 1 - failure / 3: 20 runs, of which none should fail.

    At a failure probability of 0.3 / 3 the chance of more than 8 failures is below 1e-4, and the
    union bound is so loose that none is seen. The widths are no larger than three times the noise.
    """
    K, failed, largest = 200, 0, 0.0
    name, _, gaussian = which.partition("-g")
    delta = 1e-3 if gaussian else 0.0
    for seed in range(20):
        sizes = paper.Sizes(K, 3, (3, 2), 1.0, delta, 0.3, False, Noise(seed))
        made = paper.PRIVATIZERS[which if name == "local" else name](sizes)
        units = made.units(K - 1)
        if made.tree:
            noise = np.zeros_like(units)
            for t in range(1, K):
                end = t
                while end > 0:
                    noise[t - 1] += units[end - 1]
                    end -= end & -end
            noise *= made.scale
        else:
            noise = made.scale * np.cumsum(units, axis=0)
        ratio = np.abs(noise).max(axis=1) / made.E2[1:]
        assert (made.E1 == made.E2).all()
        failed += bool((ratio > 1).any())
        largest = max(largest, float(ratio.max()))
    assert failed <= 2
    assert largest > 1 / 3


def test_bernsteins_part_of_lemma_2_holds():
    """2,000 estimates with errors of any sign within E, none farther off than the width."""
    rng, E = np.random.default_rng(0), np.array([[3.0], [2.0]])
    sizes = paper.Sizes(1000, 2, (4, 2), 1.0, 0.0, 0.1, True, Noise(0))
    made = paper.Additive(sizes, "none", False, 0.0, *E, paper.NO_NOISE)
    log = math.log(6 * 4 * 2 * 2000 / 0.1)
    width = paper.bernstein_width(made, np.array([0.25]), np.array([100.0]))
    assert width == pytest.approx(2 * math.sqrt(log * 0.25 / 100) + (2 * log + 6 + 2) / 100)
    largest = 0.0
    for _ in range(2000):
        P, N = rng.dirichlet(np.full(4, 0.3)), int(rng.integers(1, 500))
        n = max(1.0, N + 3.0 * rng.choice([-1, 1]) + 3.0)
        found = (rng.multinomial(N, P) + 2.0 * rng.choice([-1, 1], 4)) / n
        ratio = np.abs(found - P) / paper.bernstein_width(made, P, np.array(n))
        largest = max(largest, float(ratio.max()))
    assert 0.2 < largest <= 1.0


@pytest.mark.parametrize("algorithm", [paper.ucb_vi, paper.ucb_po])
def test_corrected_estimates_are_optimistic(algorithm):
    """In every one of 8 runs and every episode, though the estimates are far from H at the end."""
    world = small_world()
    for seed in range(8):
        result = algorithm(world, episodes=4000, epsilon=2e4, printed=False, seed=seed)
        # Algorithm 1 evaluates its own policy, Algorithm 2 the best one.
        below = world.optimal_value if algorithm is paper.ucb_vi else result.values
        assert (result.estimates >= below).all()
        assert result.estimates[-1] < 1.9, "H is 2: nothing was learnt"


@pytest.mark.parametrize(
    ("which", "delta", "printed", "proven"),
    [
        ("central", 0.0, True, 2 * 10 / math.log2(1000)),
        ("central", 0.0, False, 1.0),
        ("central", 1e-6, False, 1.0),
        ("local", 0.0, True, 2.0),
        ("local", 0.0, False, 1.0),
        ("local-gaussian", 1e-6, False, 1.0),
        (
            "local-gaussian",
            1e-6,
            True,
            epsilon_from_mu(math.sqrt(2) * mu_from_budget(1.0, 1e-6), 1e-6),
        ),
    ],
)
def test_guarantee_is_what_is_proven(which, delta, printed, proven):
    result = paper.ucb_vi(
        small_world(), episodes=1000, epsilon=1.0, delta=delta, privatizer=which, printed=printed
    )
    assert result.guarantee is not None
    assert result.guarantee.epsilon == pytest.approx(proven, rel=1e-6)
    assert result.guarantee.delta == delta
    assert result.guarantee.simulation_only
    assert result.guarantee.model == ("joint" if which == "central" else "local")


def counts_of(sizes, states, actions, rewards):
    """What one user adds to the counts, by the run's own code."""
    work = paper.work_of(sizes)
    work.at.states[0], work.at.actions[0], work.at.rewards[0] = states, actions, rewards
    paper._count.py_func(work)
    return work.raw


@pytest.mark.parametrize("printed", [True, False])
@pytest.mark.parametrize(
    ("which", "delta"),
    [("central", 0.0), ("local", 0.0), ("central", 1e-6), ("local-gaussian", 1e-6)],
)
def test_likelihood_ratio_of_the_worst_pair_is_the_guarantee(which, delta, printed):
    """Two users who differ in every entry they can attain what is proven; no hostile pair is worse.

    The ratio is that of the noise which is drawn: units of a seed, times the scale, in every node.
    """
    if printed and which == "central" and delta:
        return  # not in the paper
    K, H, S, A = 17, 3, 2, 2
    sizes = paper.Sizes(K, H, (S, A), 1.0, delta, 0.1, printed, Noise(0))
    made, rng = paper.PRIVATIZERS[which](sizes), np.random.default_rng(0)
    drawn = made.units(2000)
    spread = np.abs(drawn).mean() if made.law == "laplace" else drawn.std()
    assert spread == pytest.approx(1.0, abs=0.02)
    scale, proven = made.scale, made.proof.guarantee
    nodes = sum(1 for length in (1, 2, 4, 8, 16) if length < K) if made.tree else 1
    assert proven is not None

    def ratio(here, there):
        moved = np.abs(here - there)
        if made.law == "laplace":
            return nodes * moved.sum() / scale
        return math.sqrt(nodes * (moved**2).sum()) / scale

    users = [counts_of(sizes, [x] * (H + 1), [x] * H, [-math.inf] * H) for x in (0, 1)]
    for odd in (7.0, -3.0, 1e300, math.inf, math.nan):
        for _ in range(20):
            s, a = rng.integers(0, S, H + 1), rng.integers(0, A, H)
            users.append(counts_of(sizes, s, a, np.where(rng.random(H) < 0.5, odd, rng.random(H))))
    found = [ratio(here, there) for here in users for there in users]
    assert max(found) == ratio(users[0], users[1])
    bound = proven.epsilon if made.law == "laplace" else proven.mu
    assert max(found) == pytest.approx(bound, rel=1e-12)
    if not printed:
        assert proven.epsilon == pytest.approx(1.0, rel=1e-6)


def test_refusals():
    world = small_world()
    with pytest.raises(InvalidArgument, match="privatizer must be"):
        paper.ucb_vi(world, episodes=10, epsilon=1.0, privatizer="nobody")
    with pytest.raises(InvalidArgument, match="delta must be 0"):
        paper.ucb_vi(world, episodes=10, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidArgument, match="at least 2"):
        paper.ucb_po(world, episodes=1, epsilon=1.0)
    with pytest.raises(InvalidArgument, match="epsilon"):
        paper.ucb_po(world, episodes=10, epsilon=0.0)
    with pytest.raises(AttributeError):
        _ = papers.nobody_2021
