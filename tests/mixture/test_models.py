"""What mixture agents make of sums, against slow plain loops and against plain frequencies."""

import math

import numpy as np
import pytest

from tacit import LinOptPO, LinOptVI, NonPrivate
from tacit.mixture import MixtureWorld
from tacit.mixture.estimate import PathEstimator, SumEstimator
from tacit.numerics.regression import BlockSums

KINDS = [
    # Stationary transitions, stationary rewards, known rewards, weights known to add up to 1.
    (True, True, True, True),
    (True, False, False, False),
    (False, True, False, True),
    (False, False, True, True),
]


def random_world(seed, fixed=True, fixed_rewards=True, known=True, sum_known=True, long=1.0):
    """Three base models of 4 states and 2 actions, over 3 steps; reward features so long."""
    rng = np.random.default_rng(seed)
    S, A, d, H = 4, 2, 3, 3
    varphi = rng.dirichlet(np.ones(2), (S, A))
    omega = rng.random((1 if fixed_rewards else H, 2))
    directions = np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, -2.0]])
    about = {"center": np.ones(d) / d, "directions": directions, "radius": 1.0}
    return MixtureWorld(
        rng.dirichlet(np.ones(S), (S, A, d)),
        rng.dirichlet(np.ones(d), 1 if fixed else H),
        np.einsum("sam,hm->hsa", varphi, omega),
        H,
        reward_features=long * varphi,
        known_rewards=known,
        **about if sum_known else {},
    )


def model_of(agent):
    return agent.algorithm.estimator.model(agent.state)


def values_of(agent):
    """Optimistic values of what is known."""
    return agent.algorithm.optimistic_values(model_of(agent))[0]


# The whole of planning, in plain loops from the definitions.


class PlainLoops:
    """LinOptVI (and the evaluation of a policy) without privacy, one episode after the other."""

    def __init__(self, agent, ridge):
        self.spec, self.agent, self.ridge = agent.spec, agent, ridge
        spec = self.spec
        S, A, k = spec.states, spec.actions, spec.free
        self.x, self.p0 = np.zeros((S, A, k, S)), np.zeros((S, A, S))
        for s, a, t in np.ndindex(S, A, S):
            psi = spec.transition_features[s, a, :, t]
            self.p0[s, a, t] = sum(psi[i] * spec.center[i] for i in range(spec.dimension))
            for j in range(k):
                self.x[s, a, j, t] = psi @ spec.directions[:, j]
        self.size = max(math.sqrt((self.x[s, a] ** 2).sum()) for s, a in np.ndindex(S, A))
        self.steps = []

    def add(self, block):
        for u in range(block.users):
            for h in range(self.spec.horizon):
                s, t = block["states"][u, h], block["states"][u, h + 1]
                action = int(block["actions"][u, h])
                self.steps.append((h, int(s), action, int(t), block["rewards"][u, h]))

    def fitted(self, row):
        """Lambda and weights, from all steps or those of one."""
        k, H = self.spec.free, self.spec.horizon
        last = H if self.agent.estimator.pooled else H - 1
        matrix, cross = self.ridge * np.eye(k), np.zeros(k)
        for h, s, a, t, _ in self.steps:
            if h >= last or row not in (None, h):
                continue
            x = self.x[s, a] / self.size
            matrix += x @ x.T
            cross += x @ (np.eye(len(V0 := self.p0[s, a]))[t] - V0)
        return matrix, np.linalg.solve(matrix, cross)

    def next_value(self, h, s, a, V):
        agent = self.agent
        matrix, w = self.fitted(None if agent.stationary else h)
        middle, half = (V.max() + V.min()) / 2, max((V.max() - V.min()) / 2, 1e-9)
        x = self.x[s, a] @ (V - middle)
        mean = middle + self.p0[s, a] @ (V - middle) + x @ (w / self.size)
        leverage = x @ np.linalg.solve(matrix, x) / self.size**2
        width = 0.3 * agent.options.scale * math.sqrt(0.5) * half * math.sqrt(leverage)
        return min(max(mean, V.min()), V.max()), width

    def reward(self, h, s, a):
        spec, agent = self.spec, self.agent
        if spec.known_rewards is not None:
            return spec.known_rewards[min(h, len(spec.known_rewards) - 1), s, a], 0.0
        pooled, m = spec.stationary_rewards, spec.reward_features.shape[2]
        norms = np.linalg.norm(spec.reward_features, axis=2)
        varphi = spec.reward_features / norms.max()
        matrix, cross = self.ridge * np.eye(m), np.zeros(m)
        for step, state, action, _, r in self.steps:
            if pooled or step == h:
                v = varphi[state, action]
                matrix += np.outer(v, v)
                cross += r * v
        v = varphi[s, a]
        leverage = v @ np.linalg.solve(matrix, v)
        width = 0.3 * agent.options.scale * math.sqrt(0.25 * leverage)
        return float(v @ np.linalg.solve(matrix, cross)), width

    def q_values(self):
        """Optimistic and greedy Q."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        Q, greedy = np.zeros((H, S, A)), np.zeros((H, S, A))
        V, G = np.zeros(S), np.zeros(S)
        for h in reversed(range(H)):
            for s, a in np.ndindex(S, A):
                r, r_width = self.reward(h, s, a)
                r, r_width = min(max(r, 0.0), 1.0), min(r_width, 1.0)
                mean, width = self.next_value(h, s, a, V) if h < H - 1 else (0.0, 0.0)
                rest = self.next_value(h, s, a, G)[0] if h < H - 1 else 0.0
                Q[h, s, a] = min(max(r + r_width + min(mean + width, V.max()), 0.0), H - h)
                greedy[h, s, a] = min(max(r + rest, 0.0), H - h)
            V, G = Q[h].max(axis=1), greedy[h].max(axis=1)
        return Q, greedy

    def chances(self, h, s, a):
        """Estimated next states: the nearest distribution, by halving the number to subtract."""
        _, w = self.fitted(None if self.agent.stationary else h)
        raw = self.p0[s, a] + (w / self.size) @ self.x[s, a]
        raw = raw / raw.sum()
        low, high = raw.min() - 1.0, raw.max()
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if np.maximum(raw - middle, 0).sum() > 1 else (low, middle)
        return np.maximum(raw - low, 0.0)

    def q_in_one_world(self, best, policy):
        """Q of a policy where bonuses are what make ``best`` the values of the best policy."""
        H, S, A = best.shape
        Q, V = np.zeros((H, S, A)), np.zeros(S)
        for h in reversed(range(H)):
            after = best[h + 1].max(axis=1) if h < H - 1 else np.zeros(S)
            for s, a in np.ndindex(S, A):
                q = best[h, s, a] + self.chances(h, s, a) @ (V - after)
                Q[h, s, a] = min(max(q, 0.0), H - h)
            V = (policy[h] * Q[h]).sum(axis=1)
        return Q


@pytest.fixture
def ridge(monkeypatch):
    """One that is large enough to matter, without privacy as well."""

    def regularised(self, gram, noise):
        return gram + 0.7 * np.eye(len(gram))

    monkeypatch.setattr(SumEstimator, "regularised", regularised)
    return 0.7


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_q_values_are_those_of_plain_loops(kind, ridge):
    seed = KINDS.index(kind)
    world = random_world(seed, *kind)
    agent = LinOptVI(
        world.spec,
        24,
        NonPrivate(),
        statistic="model",
        schedule="fixed:size=12",
        scale=0.4,
        seed=seed,
    )
    plain, rng = PlainLoops(agent.algorithm, ridge), np.random.default_rng(seed)
    while agent.block_users:
        block = world.simulate(agent.policy, 12, rng, "episodes").block()
        plain.add(block)
        agent.learn(block)
        Q, greedy = plain.q_values()
        np.testing.assert_allclose(values_of(agent), Q, atol=1e-9)
        best = np.take_along_axis(Q, np.asarray(agent.policy.actions)[..., None], axis=2)[..., 0]
        np.testing.assert_allclose(best, Q.max(axis=2), atol=1e-9)
        chosen = np.asarray(agent.greedy_policy.actions)[..., None]
        np.testing.assert_allclose(
            np.take_along_axis(greedy, chosen, axis=2)[..., 0], greedy.max(axis=2), atol=1e-9
        )


def test_policy_optimisation_is_that_of_plain_loops(ridge):
    """Two mirror steps in the world of which the best policy has the values of LinOptVI."""
    world, eta = random_world(9, known=False), 0.3
    agent = LinOptPO(
        world.spec,
        24,
        NonPrivate(),
        statistic="model",
        schedule="fixed:size=12",
        eta=eta,
        error=1e-9,
        steps=2,
    )
    plain, rng = PlainLoops(agent.algorithm, ridge), np.random.default_rng(0)
    policy = np.full((3, 4, 2), 0.5)
    while agent.block_users:
        block = world.simulate(agent.policy, 12, rng, "episodes").block()
        plain.add(block)
        agent.learn(block)
        best, _ = plain.q_values()
        np.testing.assert_allclose(values_of(agent), best, atol=1e-9)
        for step in range(2):
            Q = plain.q_in_one_world(best, policy)
            policy = policy * np.exp(eta * 1.1**step * Q)
            policy /= policy.sum(axis=2, keepdims=True)
        np.testing.assert_allclose(agent.plan.memory, policy, atol=1e-9)
        np.testing.assert_allclose(agent.policy.table(), policy, atol=1e-9)
        greedy = np.asarray(agent.greedy_policy.actions)
        assert greedy.shape == (3, 4)
    optimum = plain.q_in_one_world(best, np.eye(2)[best.argmax(axis=2)])
    np.testing.assert_allclose(optimum, best, atol=1e-9)


@pytest.mark.parametrize("statistic", ["model", "counts"])
def test_units_of_reward_features_do_not_matter(statistic):
    """A world whose reward features are longer, with weights that are smaller by as much."""
    tables = []
    for length in (1.0, 30.0):
        world = random_world(3, known=False, long=length)
        agent = LinOptVI(
            world.spec, 40, NonPrivate(), statistic=statistic, schedule="fixed:size=20", seed=1
        )
        rng = np.random.default_rng(0)
        while agent.block_users:
            agent.learn(world.simulate(agent.policy, 20, rng, "episodes"))
        tables.append(values_of(agent))
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-9)


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_counts_are_regressed_on_as_in_plain_loops(seed, pooled):
    world = random_world(seed, fixed=pooled)
    spec, rng, (along, unit) = world.spec, np.random.default_rng(seed), world.spec.along
    H, S, A, k = 3, 4, 2, world.spec.free
    counts = rng.poisson(20.0, (H, S, A, S)) * (rng.random((H, S, A, 1)) < 0.7) + 0.0
    noise = rng.choice([0.0, 3.0, 30.0], (H, S, A))
    counts += noise[..., None] * rng.normal(size=counts.shape)
    sums = BlockSums().added({"counts": counts}, {"counts": noise}, 0.0, 1)
    model = PathEstimator(spec, pooled, 0.8).model(sums)
    V = rng.random(S) * 2
    for h in range(H - 1):
        w = np.zeros(k)
        for _ in range(2):
            precision = np.eye(k) * k / (spec.radius * unit) ** 2
            target = np.zeros(k)
            for step, s, a in np.ndindex(H, S, A):
                n = counts[step, s, a].sum()
                out = n <= noise[step, s, a] * math.sqrt(S) or n <= 0
                if out or (not pooled and step != h):
                    continue
                for t in range(S):
                    x, p = along[s, a, :, t], spec.mean[s, a, t]
                    chance = min(max(p + x @ w, 1e-3), 1.0)
                    weight = 1.0 / (max(n, 1.0) * chance + noise[step, s, a] ** 2)
                    precision = precision + weight * n * n * np.outer(x, x)
                    target = target + weight * n * (counts[step, s, a, t] - n * p) * x
            w = np.linalg.solve(precision, target)
        means, widths = model.next_value(h, V), model.width(h, V)
        for s, a in np.ndindex(S, A):
            x = along[s, a] @ V
            mean = np.clip(spec.mean[s, a] @ V + x @ w, V.min(), V.max())
            assert means[s, a] == pytest.approx(mean, abs=1e-9)
            width = 0.8 * math.sqrt(x @ np.linalg.solve(precision, x))
            assert widths[s, a] == pytest.approx(width, abs=1e-9)
