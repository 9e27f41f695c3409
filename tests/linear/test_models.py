"""What linear models predict and linear agents plan, by slow and obvious references.

The references go through episodes one by one and through states and actions one by one, straight
from the formulas in the docstrings. Releases are without noise here: noise that is announced still
enters ridges and widths.
"""

import math
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tacit import LSVIUCB, JointDP, LSVIUCBPlusPlus, NonPrivate, Relation
from tacit.linear import LinearWorld, estimate, lsvi_ucb_plus_plus
from tacit.linear.estimate import Scales, Sums
from tacit.linear.statistics import FeatureSums
from tacit.privacy import noise as exact
from tacit.privacy.noise import Noise
from tacit.tabular.count_estimate import Counts
from tacit.tabular.visits import VisitCounts

Floats = NDArray[np.float64]

JOINT = JointDP(3.0, 1e-6)


def silent(self, pure, scale, count):
    """Noise that is announced and never comes."""
    return np.zeros(count, dtype=np.int64)


@contextmanager
def fine_grid():
    """No noise comes, and sums are rounded so little that the references need not know of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "steps", silent)
        patch.setattr(exact, "ROUNDING", 1e-11)
        patch.setattr(exact, "_SUMMING", 0.0)
        patch.setattr(lsvi_ucb_plus_plus, "enough_was_learnt", lambda old, new: True)
        unclipped(patch)
        yield


def unclipped(patch):
    """Nobody's steps are weighted down: that is the business of the statistics' own tests."""
    patch.setattr(estimate, "_CLIP", 1e9)
    patch.setattr(estimate, "_POOLED_CLIP", 1e9)


def random_world(
    seed, S=3, A=2, d=2, H=3, stationary=(True, True), signed=False, length=1.0, known=False
):
    """A world whose transitions and rewards are each stationary or not."""
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.full(d, 0.5), (S, A))
    measures = rng.dirichlet(np.full(S, 0.5), (1 if stationary[0] else H, d))
    rewards = rng.random((1 if stationary[1] else H, d))
    if signed:
        # Another basis of the same factors.
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        features, rewards = features @ turn.T, rewards @ turn.T
        measures = np.einsum("ij,ljs->lis", turn, measures)
    return LinearWorld(
        features * length, measures / length, rewards / length, H, known_rewards=known
    )


def solved(gram, ridge, right):
    """(max(G, 0) + ridge I)^-1 times a vector."""
    values, vectors = np.linalg.eigh(gram)
    cut = sum(max(v, 0.0) * np.outer(u, u) for v, u in zip(values, vectors.T, strict=True))
    return np.linalg.solve(cut + ridge * np.eye(len(gram)), right)


def nearest_distribution(row):
    """The nearest one to a row, after the same number was added to all for a sum of 1."""
    level = [p + (1.0 - sum(row)) / len(row) for p in row]
    low, high = min(level) - 1.0, max(level)
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(p - middle, 0.0) for p in level) > 1.0:
            low = middle
        else:
            high = middle
    return [max(p - high, 0.0) for p in level]


def middle_of(value):
    """Middle, half range, and the guess at the variance of a value function."""
    middle, half = (min(value) + max(value)) / 2, (max(value) - min(value)) / 2
    half = max(half, 1e-9)
    if len(value) <= 2:
        return middle, half, half**2
    return middle, half, sum((v - middle) ** 2 for v in value) / len(value) + 1e-18


def practical_width(widths, squares, of_ridge):
    """From variances by sampling and noise, and by what the ridge hides."""
    return math.sqrt(widths[0] ** 2 * squares + widths[1] ** 2 * of_ridge)


@dataclass
class Slow:
    """Feature sums of episodes, one after the other."""

    features: Floats
    H: int
    gram: Floats = field(init=False)
    following: Floats = field(init=False)
    rewards: Floats = field(init=False)
    noise: float = 0.0

    def __post_init__(self):
        S, _, d = self.features.shape
        self.gram = np.zeros((self.H, d, d))
        self.following = np.zeros((self.H, d, S))
        self.rewards = np.zeros((self.H, d))

    def add(self, block, factor=1.0, weights=None):
        states, actions, rewards = block["states"], block["actions"], block["rewards"]
        for user in range(block.users):
            for h in range(self.H):
                s, a, after = states[user, h], actions[user, h], states[user, h + 1]
                w = factor if weights is None else factor * weights[min(h, len(weights) - 1), s, a]
                phi = self.features[s, a]
                self.gram[h] += w * np.outer(phi, phi)
                self.following[h, :, after] += w * phi
                self.rewards[h] += w * rewards[user, h] * phi

    def sums(self, pooled, summed_before):
        """As models take them; noise is per row of the release, which may be pooled before."""
        more = math.sqrt(self.H) if pooled and not summed_before else 1.0
        parts = (self.gram, self.following, self.rewards)
        if pooled:
            parts = tuple(part.sum(axis=0, keepdims=True) for part in parts)
        return Sums(*parts, *[self.noise * more] * 3)


@dataclass
class SlowSums:
    """The reference of SumModel."""

    features: Floats
    sums: Sums
    reward_sums: Sums
    widths: Scales
    H: int

    def ridge(self, sums):
        d = self.features.shape[2]
        return 1.0 + sums.gram_noise * math.sqrt(d)

    # Predictions.

    def rewards(self, h):
        S, A, d = self.features.shape
        sums, w = self.reward_sums, self.widths
        row = min(h, len(sums.gram) - 1)
        gram, ridge = sums.gram[row], self.ridge(sums)
        theta = solved(gram, ridge, sums.rewards[row])
        means, widths = np.zeros((S, A)), np.zeros((S, A))
        for s in range(S):
            for a in range(A):
                phi = self.features[s, a]
                x = solved(gram, ridge, phi)
                means[s, a] = phi @ theta
                noise = sums.reward_noise**2 + sums.gram_noise**2 * min(theta @ theta, d)
                known = 0.25 * (phi @ x) + noise * (x @ x)
                widths[s, a] = practical_width(w, known, 0.25 * ridge**2 * (x @ x))
        return means, widths

    def next_values(self, h, values):
        S, A, d = self.features.shape
        sums = self.sums
        row = min(h, len(sums.gram) - 1)
        gram, ridge = sums.gram[row], self.ridge(sums)
        means, widths = np.zeros((2, len(values), S, A))
        for k, value in enumerate(values):
            middle, half, variance = middle_of(value.tolist())
            centred = value - middle
            weights = solved(gram, ridge, sums.following[row] @ centred)
            of_next = sums.noise**2 * (centred @ centred)
            noise = of_next + sums.gram_noise**2 * min(weights @ weights, d * half**2)
            for s in range(S):
                for a in range(A):
                    phi = self.features[s, a]
                    x = solved(gram, ridge, phi)
                    row_of = [float(phi @ solved(gram, ridge, u)) for u in sums.following[row].T]
                    mean = float(np.dot(nearest_distribution(row_of), centred))
                    means[k, s, a] = middle + mean
                    known, hidden = variance * (phi @ x), variance * ridge**2 * (x @ x)
                    widths[k, s, a] = practical_width(self.widths, known + noise * (x @ x), hidden)
        return means, widths


@dataclass
class SlowCells:
    """The reference of CellModel."""

    features: Floats
    counts: Counts
    widths: Scales
    pooled: tuple[bool, bool]
    variances: Floats | None = None

    def cells(self, row):
        """Those that are known, of one row or of all."""
        S = self.features.shape[0]
        found = []
        for index in np.ndindex(self.counts.rewards.shape):
            total = sum(self.counts.transitions[index].tolist())
            noise = float(self.counts.noise[index])
            used = self.counts.reached[index] and total > 0
            if used and total > noise * math.sqrt(S) and row in (None, index[0]):
                found.append(index)
        return found

    def rewards(self, h):
        S, A, d = self.features.shape
        row = None if self.pooled[1] or len(self.counts.rewards) == 1 else h
        precision, right = np.eye(d) * 4.0 / d, np.zeros(d)
        for index in self.cells(row):
            phi, n = self.features[index[1:]], self.counts.transitions[index].sum()
            of_visits = 0.25 * S * self.counts.noise[index] ** 2
            error = 0.25 * n + self.counts.reward_noise[index] ** 2 + of_visits
            precision += n * n / error * np.outer(phi, phi)
            right += n / error * self.counts.rewards[index] * phi
        theta = np.linalg.solve(precision, right)
        means, widths = np.zeros((2, S, A))
        for s in range(S):
            for a in range(A):
                phi = self.features[s, a]
                means[s, a] = phi @ theta
                widths[s, a] = self.width(phi, precision, 4.0 / d)
        return means, widths

    def width(self, phi, precision, ridge):
        """What data leaves open and what the prior does add up to the posterior variance."""
        x = np.linalg.solve(precision, phi)
        of_ridge = ridge * (x @ x)
        return practical_width(self.widths, max(phi @ x - of_ridge, 0.0), of_ridge)

    def next_values(self, h, values):
        S, A, d = self.features.shape
        row = None if self.pooled[0] or len(self.counts.rewards) == 1 else h
        middle, half, guess = middle_of(values[0].tolist())
        centred = values[0] - middle
        precision, right = np.eye(d) / (d * half**2), np.zeros((d, S))
        for index in self.cells(row):
            phi, moves = self.features[index[1:]], self.counts.transitions[index]
            n, variance = moves.sum(), guess
            if self.variances is not None:
                own = self.variances[min(index[0], len(self.variances) - 1), index[1], index[2]]
                variance = max(own, 0.1 * guess)
            error = n * variance + self.counts.noise[index] ** 2 * (centred @ centred)
            precision += n * n / error * np.outer(phi, phi)
            right += n / error * np.outer(phi, moves - n / S)
        weights = np.linalg.solve(precision, right)
        means, widths = np.zeros((2, len(values), S, A))
        for s in range(S):
            for a in range(A):
                phi = self.features[s, a]
                P = nearest_distribution((phi @ weights + 1.0 / S).tolist())
                width = self.width(phi, precision, 1.0 / (d * half**2))
                for k, value in enumerate(values):
                    means[k, s, a] = np.dot(P, value)
                    widths[k, s, a] = width * middle_of(value.tolist())[1] / half
        return means, widths


def plan(model, H, signs, known):
    """Value iteration for every value function, and variances where there is a pessimistic one."""
    S, A = model.features.shape[:2]
    Q, V, variances = (
        np.zeros((len(signs), H, S, A)),
        np.zeros((len(signs), S)),
        np.zeros((H, S, A)),
    )
    for h in reversed(range(H)):
        if known is None:
            rewards, reward_widths = model.rewards(h)
        else:
            rewards, reward_widths = known[min(h, len(known) - 1)], np.zeros((S, A))
        asked = [*V, V[0] ** 2]
        means, widths = model.next_values(h, asked) if h < H - 1 else np.zeros((2, 4, S, A))
        for s, a in np.ndindex(S, A):
            reward = min(max(rewards[s, a], 0.0), 1.0)
            for k, sign in enumerate(signs):
                width = min(reward_widths[s, a], 1.0) + widths[k, s, a]
                Q[k, h, s, a] = min(max(reward + means[k, s, a] + sign * width, 0.0), H - h)
            if h < H - 1 and -1 in signs:
                mean, square = means[0, s, a], means[-1, s, a]
                off = max(mean - means[signs.index(-1), s, a], 0.0)
                variances[h, s, a] = max(square - mean**2, 0.0) + off**2
        V = Q[:, h].max(axis=2)
    return Q, variances


def step_weights(variances):
    """The median over the variance where that is above it, but not below .05."""
    weights = np.ones(variances.shape)
    for row, of_row in enumerate(variances):
        typical = float(np.median(of_row))
        for s, a in np.ndindex(of_row.shape):
            if of_row[s, a] > typical:
                weights[row, s, a] = min(max(typical / of_row[s, a], 0.05), 1.0)
    return weights


SIGNS = {LSVIUCB: (1, 0), LSVIUCBPlusPlus: (1, 0, -1)}
SIZE = 12


def made(world, privacy, statistic, cls=LSVIUCB, **options):
    """An agent for three blocks whose releases have no noise, and which plans after each."""
    defaults = {"scale": 0.8, "noise_seed": 0}
    arguments = defaults | {"schedule": f"fixed:size={SIZE}"} | options
    users = arguments.pop("users", 3 * SIZE)
    return cls(world.spec, users, privacy, statistic=statistic, **arguments)


def values_of(agent, variances=None):
    """Values by what is known, with the variances that the plan before this one left."""
    model = agent.algorithm.estimator.model(agent.state, variances)
    return agent.algorithm.backward_induction(model)[0]


def blocks_of(agent, world, seed):
    """Serves block after block; hands out the raw block, the plan it followed, what was asked."""
    rng = np.random.default_rng(seed)
    while agent.block_users:
        last, statistic = agent.plan, agent.statistic
        episodes = world.simulate(last.policy, agent.block_users, rng, "episodes")
        agent.learn(episodes)
        yield episodes.block(), last, statistic


def is_greedy(policy, Q):
    chosen = np.take_along_axis(Q, policy.actions[..., np.newaxis], axis=2)[..., 0]
    return bool(np.allclose(chosen, Q.max(axis=2), rtol=0, atol=1e-7))


def assert_planned(agent, last, Q):
    found = values_of(agent, last.memory.variances)
    np.testing.assert_allclose(found, Q, rtol=1e-6, atol=1e-7)
    assert is_greedy(agent.policy, Q[0])
    assert is_greedy(agent.greedy_policy, Q[1])


WORLDS = {
    "seed": st.integers(0, 10**6),
    "stationary": st.tuples(st.booleans(), st.booleans()),
    "signed": st.booleans(),
    "length": st.sampled_from([0.5, 1.0, 3.0]),
    "known": st.booleans(),
}
PRIVACY = st.sampled_from([NonPrivate(), JOINT])
KINDS = st.sampled_from([*SIGNS])


def of_all_agents(test):
    """Decorates a test of plans."""
    drawn = given(**WORLDS, privacy=PRIVACY, cls=KINDS)
    return settings(max_examples=25, deadline=None)(drawn(fine_grid()(test)))


@of_all_agents
def test_features_plan_what_the_slow_reference_plans(privacy, cls, length, **options):
    world = random_world(length=length, **options)
    agent = made(world, privacy, "features", cls)
    stationary, same_rewards = options["stationary"]
    pooled, H = stationary and same_rewards, world.spec.horizon
    # Features longer than 1 are all divided by the longest.
    longest = max(1.0, float(np.linalg.norm(world.features, axis=-1).max()))
    features = world.features / longest
    known = world.spec.known_rewards
    table, total, top, variance = None, Slow(features, H), 0.0, 0.0
    for block, last, _ in blocks_of(agent, world, options["seed"]):
        factor = 1.0
        if isinstance(privacy, JointDP):
            # A block weighs as much as it knows: users over the variance of its noise.
            statistic = FeatureSums(
                features, H, pooled=pooled, reward=0.0 if known is not None else 1.0, weights=table
            )
            noise = statistic.l2(Relation.REPLACE_ONE) / privacy.budget.mu
            factor = SIZE / noise**2
            variance += (factor * noise) ** 2
        top = max(top, factor)
        total.add(block, factor, table)
        scaled = Slow(features, H)
        scaled.gram, scaled.following = total.gram / top, total.following / top
        scaled.rewards, scaled.noise = total.rewards / top, math.sqrt(variance) / top
        model = SlowSums(
            features,
            scaled.sums(stationary, pooled),
            scaled.sums(same_rewards, pooled),
            (0.8 * 0.3, 0.8),
            H,
        )
        Q, variances = plan(model, H, SIGNS[cls], known)
        assert_planned(agent, last, Q)
        if cls is LSVIUCBPlusPlus:
            table = step_weights(variances.mean(axis=0, keepdims=True) if pooled else variances)


@of_all_agents
def test_counts_plan_what_the_slow_reference_plans(privacy, cls, length, **options):
    world = random_world(length=length, **options)
    stationary, same_rewards = options["stationary"]
    pooled, H = stationary and same_rewards, world.spec.horizon
    agent = made(world, privacy, "counts", cls)
    S, A, L = world.spec.states, world.spec.actions, 1 if pooled else H
    longest = max(1.0, float(np.linalg.norm(world.features, axis=-1).max()))
    features, known = world.features / longest, world.spec.known_rewards
    moves, paid, variance = np.zeros((L, S, A, S)), np.zeros((L, S, A)), np.zeros((L, S, A))
    reached, guessed, noise = np.zeros((L, S, A), dtype=bool), None, 0.0
    for block, last, statistic in blocks_of(agent, world, options["seed"]):
        assert isinstance(statistic, VisitCounts)
        factor = 1.0
        if isinstance(privacy, JointDP):
            noise = statistic.l2(Relation.REPLACE_ONE) / privacy.budget.mu
            factor = (SIZE + 5.0 * noise * math.sqrt(S)) / noise**2
        of_policy = np.zeros((L, S, A), dtype=bool)
        for h in range(H):
            for s in range(S):
                of_policy[min(h, L - 1), s, last.policy.actions[h, s]] = True
        reached |= of_policy
        variance += (factor * noise) ** 2 * of_policy
        for user in range(block.users):
            seen = np.zeros((L, S, A), dtype=int)
            for h in range(H):
                row = min(h, L - 1)
                s, a = block["states"][user, h], block["actions"][user, h]
                seen[row, s, a] += 1
                if statistic.cap is not None and seen[row, s, a] > statistic.cap:
                    continue
                moves[row, s, a, block["states"][user, h + 1]] += factor
                paid[row, s, a] += factor * block["rewards"][user, h]
        scale = np.ones((L, S, A))
        if noise > 0.0:
            scale = np.where(reached, noise / np.sqrt(np.where(reached, variance, 1.0)), 0.0)
        stds = np.sqrt(variance) * scale
        scaled = moves * scale[..., np.newaxis]
        counts = Counts(scaled, paid * scale, reached, stds, stds)
        model = SlowCells(features, counts, (0.8 * 0.3, 0.8), (stationary, same_rewards), guessed)
        Q, variances = plan(model, H, SIGNS[cls], known)
        assert_planned(agent, last, Q)
        if cls is LSVIUCBPlusPlus:
            guessed = variances.mean(axis=0, keepdims=True) if stationary else variances
