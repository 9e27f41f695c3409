"""Mixed policies: drawn as their weights say, published, masked, simulated and saved."""

import numpy as np
import pytest
from scipy.special import chdtrc

from tacit import Episodes, InvalidArgument, NonPrivate, published, tabular
from tacit.core.agent import Agent
from tacit.core.algorithm import BlockSizes, NoOptions, Plan
from tacit.core.problem import Problem
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.policy import MixedPolicy, Policy
from tacit.tabular.visits import VisitCounts
from tests.refusals import refusals

WEIGHTS = np.array([0.5, 0.0, 0.3, 0.2])


def parts(count=4, horizon=3, states=4, actions=3, seed=0, version=0):
    rng = np.random.default_rng(seed)
    tables = rng.integers(0, actions, (count, horizon, states))
    return [Policy.deterministic(table, actions, version) for table in tables]


def stochastic(count=3, horizon=3, states=4, actions=3):
    rng = np.random.default_rng(1)
    tables = rng.dirichlet(np.ones(actions), (count, horizon, states))
    return [Policy.stochastic(table) for table in tables]


def world(horizon=3):
    return tabular.random_mdp(states=4, actions=3, horizon=horizon, seed=5)


test_refusals = refusals(
    lambda make: make(),
    (lambda: MixedPolicy([], [1.0]), "at least one"),
    (lambda: MixedPolicy(parts(), [0.5, 0.5]), "4 non-negative numbers"),
    (lambda: MixedPolicy(parts(), [1.5, -0.5, 0, 0]), "non-negative"),
    (lambda: MixedPolicy(parts(), [np.nan, 1, 0, 0]), "non-negative"),
    (lambda: MixedPolicy([*parts(1), *parts(1, states=2)], [0.5, 0.5]), "one world"),
)


def test_draws_have_the_weights():
    mixed, n = MixedPolicy(parts(), WEIGHTS), 4000
    rng = np.random.default_rng(3)
    for drawn in ([mixed.draw(rng) for _ in range(n)], mixed.drawn(n, rng)):
        counts = np.bincount(drawn, minlength=4)
        assert counts[1] == 0
        expected = n * WEIGHTS[[0, 2, 3]]
        # A false alarm in one of a million runs of each.
        assert chdtrc(2, ((counts[[0, 2, 3]] - expected) ** 2 / expected).sum()) > 1e-6


@pytest.mark.parametrize(
    "mixed",
    [
        MixedPolicy(parts(), WEIGHTS, version=4),
        MixedPolicy(stochastic(), [0.2, 0.3, 0.5], version=1),
        MixedPolicy([*stochastic(1), *parts(1)], [0.4, 0.6]),
    ],
    ids=["drawn", "stochastic", "both"],
)
def test_published_file(mixed, tmp_path):
    path = tmp_path / "policy.npz"
    mixed.publish(path)
    device = published.load(path)
    assert device.version == mixed.version
    assert np.array_equal(device.weights, mixed.weights)
    for seed in range(20):
        first, second = np.random.default_rng(seed), np.random.default_rng(seed)
        component, drawn = mixed.draw(first), device.drawn(second)
        assert drawn.component == component
        assert mixed.components[component].act(1, 2, first) == drawn.act(1, 2, second)


def test_value_is_the_mean_of_values():
    mixed, w = MixedPolicy(parts(), WEIGHTS), world()
    values = [w.value(part) for part in mixed.components]
    assert w.value(mixed) == pytest.approx(WEIGHTS @ values)


@pytest.mark.parametrize("policies", [parts(), stochastic(4)], ids=["deterministic", "stochastic"])
def test_episodes_follow_their_components(policies):
    mixed, w, n = MixedPolicy(policies, WEIGHTS, version=2), world(), 20_000
    data = w.simulate(mixed, n, np.random.default_rng(0))
    assert (data.versions == 2).all()
    chance = np.stack([part.table() for part in mixed.components])
    rows = data.components[:, np.newaxis], np.arange(3), data.states[:, :-1], data.actions
    assert (chance[rows] > 0).all()
    # Six standard errors of a mean of returns in [0, 3]: never by chance.
    mean = data.rewards.sum(axis=1).mean()
    assert abs(mean - w.value(mixed)) < 6 * 1.5 / np.sqrt(n)


def test_counts_are_those_of_episodes_in_distribution():
    mixed, w, n = MixedPolicy(parts(), WEIGHTS), world(), 30_000
    rng = np.random.default_rng(1)
    data = w.simulate(mixed, n, rng)
    visits = np.zeros((3, 4, 3, 4))
    steps = np.broadcast_to(np.arange(3), data.actions.shape)
    np.add.at(visits, (steps, data.states[:, :-1], data.actions, data.states[:, 1:]), 1)
    for form in ("counts", "pooled"):
        block = w.simulate(mixed, n, rng, form)
        drawn, other = block["transitions"], visits
        if form == "pooled":
            other = visits.sum(axis=0, keepdims=True)
        assert drawn.sum() == 3 * n
        assert not drawn[other.sum(axis=-1) == 0].any() or form == "counts"
        # Both have variance below 3 n p: seven standard deviations of their difference.
        assert (np.abs(drawn - other) < 7 * np.sqrt(6 * np.maximum(other, 10))).all()
    assert w.simulate(mixed, 0, rng, "pooled")["transitions"].sum() == 0


def counts_of(mixed, horizon=3):
    return VisitCounts(
        4, 3, horizon, pooled=True, cap=2, policy=mixed.tables, version=mixed.version
    )


def test_masks_check_the_drawn_policy():
    mixed = MixedPolicy(parts(), WEIGHTS, version=2)
    data = world().simulate(mixed, 50, np.random.default_rng(0))
    statistic = counts_of(mixed)
    own = statistic.contributions(data.block())
    assert own.any(axis=1).all()
    # Out of range, of another version, or not said: nothing counts, and nothing is raised.
    for components in (np.full(50, 4), np.full(50, -1), np.full(50, np.iinfo(np.int64).min)):
        claimed = Episodes(
            data.states, data.actions, data.rewards, data.versions, components=components
        )
        assert not statistic.contributions(claimed.block()).any()
    old = Episodes(
        data.states, data.actions, data.rewards, data.versions + 1, components=data.components
    )
    assert not statistic.contributions(old.block()).any()
    # A step counts if its action is that of the component that the user claims.
    claimed = Episodes(data.states, data.actions, data.rewards, data.versions, components=[0] * 50)
    told = mixed.tables[0][np.arange(3), data.states[:, :-1]]
    steps = statistic.layout.unpack(statistic.contributions(claimed.block()).sum(axis=0))
    uncapped = VisitCounts(4, 3, 3, policy=mixed.tables, version=2)
    total = uncapped.contributions(claimed.block()).sum(axis=0)
    assert uncapped.layout.unpack(total)["transitions"].sum() == (data.actions == told).sum()
    assert steps["transitions"].sum() <= (data.actions == told).sum()


class Mixes(FiniteAlgorithm):
    """Serves a mixed policy, and knows the counts of the last block."""

    name = "mixes"

    def init(self):
        return np.zeros(0)

    def plan(self, state, last, at, rng):
        return Plan(MixedPolicy(parts(seed=at.releases), WEIGHTS), parts(1)[0])

    def query(self, state, plan, block):
        mixed = plan.policy
        return VisitCounts(4, 3, 3, policy=mixed.tables, version=mixed.version)

    def update(self, state, plan, release, block, rng):
        return release["transitions"]

    def on_policy(self, plan):
        return True

    def _block_sizes(self):
        return BlockSizes(size=40)


def agent_of(kind, store=""):
    problem = Problem(world().spec, 80, NonPrivate(), "auto", 0)
    return Agent(kind(problem, NoOptions()), store=store)


def silent(data):
    """The same episodes without the components that were drawn."""
    return Episodes(data.states, data.actions, data.rewards, data.versions)


def test_a_batch_that_does_not_say_what_was_drawn_is_refused_before_anybody_is_taken():
    w, agent = world(), agent_of(Mixes)
    data = w.simulate(agent.policy, 40, np.random.default_rng(0))
    agent.learn(data.take(slice(0, 5)))
    for batch in (silent(data), silent(data).block(), silent(data).take(slice(0, 1))):
        with pytest.raises(InvalidArgument, match=r"policy 0 is mixed.*component=") as raised:
            agent.learn(batch)
        assert "\n" not in str(raised.value)
        assert (agent.taken, agent.served) == (5, 0)
    # What one user says is hers: it raises nothing, and what is no component counts as nothing.
    drawn = np.where(np.arange(40) < 10, -1, data.components)
    agent.learn(Episodes(data.states, data.actions, data.rewards, data.versions, None, drawn))
    assert agent.state.sum() == 3 * 35


class One(Mixes):
    """A mixed policy of one component."""

    def plan(self, state, last, at, rng):
        return Plan(MixedPolicy(parts()[:1], [1.0]), parts(1)[0])


class Alike(Mixes):
    """Whose sums do not depend on what anybody followed."""

    def on_policy(self, plan):
        return False

    def query(self, state, plan, block):
        return VisitCounts(4, 3, 3)


@pytest.mark.parametrize("kind", [One, Alike])
def test_nobody_is_asked_for_a_component_that_decides_nothing(kind):
    w, agent = world(), agent_of(kind)
    data = w.simulate(agent.policy, 40, np.random.default_rng(0))
    agent.learn(silent(data).take(slice(0, 10)))
    agent.learn(data.take(slice(10, 20)))
    agent.learn(silent(data).take(slice(20, 40)))
    assert agent.state.sum() == 3 * 40
