"""Learning from logs: plans by hand, splits, verdicts, and the gate."""

import dataclasses
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import tacit
from research.worlds import sparse_mdp
from tacit import InvalidArgument, JointDP, LocalDP, NonPrivate, Policy, check_agent
from tacit.store import ledger
from tacit.store.store import Store
from tacit.tabular import TabularWorld, random_mdp, riverswim
from tacit.tabular.model import check_policy
from tacit.tabular.offline import _split
from tacit.tabular.pessimistic_vi import CountPolicies, LogCounts, _values
from tacit.tabular.return_statistics import RobustGains

BUDGET = JointDP(1.0, 1e-6)
SMALL = sparse_mdp(states=12, actions=4, horizon=4)
START = np.eye(4)[0]
KINDS = (tacit.PessimisticImprovement, tacit.PessimisticVI)


def bandit(contexts=4):
    means = np.tile([0.2, 0.5, 0.9], (contexts, 1))
    moves = np.full((contexts, 3, contexts), 1.0 / contexts)
    return TabularWorld(moves, means, 1, start=np.full(contexts, 1.0 / contexts))


def learnt(kind, world, users=20_000, privacy=BUDGET, seed=0, **options):
    agent = kind(world.spec, users=users, privacy=privacy, noise_seed=seed, **options)
    rng = np.random.default_rng(seed)
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng))
    return agent


def planned(agent, counts):
    return CountPolicies(agent.algorithm, dataclasses.replace(agent.state, learnt=counts))


def recommended(agent):
    return agent.algorithm.recommendation(agent.state)


def test_value_iteration_is_the_empirical_optimum_at_no_price_and_without_caution():
    """Of exact counts: 600 users in every cell, moved and paid as the world has it on average."""
    world = random_mdp(states=4, actions=3, horizon=3, seed=2)
    agent = tacit.PessimisticVI(world.spec, 100, NonPrivate(), caution=0.0)
    moves = 600.0 * world.model.transitions_at(0)[np.newaxis]
    counts = LogCounts(moves, 600.0 * world.model.mean_rewards_at(0)[np.newaxis], START, 0.0, 0.0)
    plans = planned(agent, counts)
    # at a high price nobody leaves what people do
    assert plans.tilted(1e-6) == pytest.approx(np.full((3, 4, 3), 1 / 3), abs=1e-5)
    # in between a policy is the better the less its price; and its weights vary the more
    tables = [plans.tilted(beta) for beta in (1e-6, 3.0, 10.0, 30.0, 1e6)]
    values = [world.value(Policy.stochastic(table)) for table in tables]
    assert values[-1] == pytest.approx(world.optimal_value, rel=1e-4)
    moments = [plans.moment(table) for table in tables[:-1]]
    assert values == sorted(values)
    assert moments == sorted(moments)
    assert moments[0] == pytest.approx(1.0)


def test_a_price_of_relative_entropy_is_paid_for():
    """One step, two actions worth 0 and 1 of R = 1, price 1 / beta: the known closed form."""
    world = TabularWorld(np.ones((1, 2, 1)), np.array([[0.0, 1.0]]), 1)
    agent = tacit.PessimisticVI(world.spec, 100, NonPrivate(), caution=0.0)
    rewards = np.array([[[0.0, 1e9]]])
    plans = planned(agent, LogCounts(np.full((1, 1, 2, 1), 1e9), rewards, np.ones(1), 0.0, 0.0))
    e = np.exp(2.0)
    assert plans.tilted(2.0)[0, 0] == pytest.approx([1 / (1 + e), e / (1 + e)])
    chance = e / (1 + e)
    square = (chance**2 + (1 - chance) ** 2) / 0.5
    assert plans.moment(plans.tilted(2.0)) == pytest.approx(square)


def test_what_is_not_known_is_worth_nothing():
    world = random_mdp(states=4, actions=3, horizon=3, seed=2)
    agent = tacit.PessimisticVI(world.spec, 100, BUDGET, noise_seed=0)
    nothing = LogCounts(np.zeros((1, 4, 3, 4)), np.zeros((1, 4, 3)), START, 1.0, 1.0)
    plans = planned(agent, nothing)
    assert plans.tilted(100.0) == pytest.approx(np.full((3, 4, 3), 1 / 3))
    with pytest.raises(InvalidArgument, match="pessimistic_improvement is for many states"):
        tacit.PessimisticVI(sparse_mdp(states=800).spec, 100, BUDGET)


@pytest.mark.parametrize("kind", KINDS)
def test_no_policy_leaves_what_is_allowed_and_was_done(kind):
    table = np.where(SMALL.spec.allowed, 1.0, 0.0)
    table[3] = np.eye(4)[np.flatnonzero(SMALL.spec.allowed[3])[0]]
    table /= table.sum(axis=1, keepdims=True)
    people = Policy.stochastic(np.broadcast_to(table, (4, *table.shape)))
    agent = learnt(kind, SMALL, 3000, behaviour=people)
    for beta in (1.0, 1e3, 1e6):
        table_of = agent.algorithm.policies(agent.algorithm, agent.state).tilted(beta)
        policy = agent.algorithm._policy(table_of)
        check_policy(SMALL.spec, policy)
        assert policy.table()[:, 3] == pytest.approx(np.tile(table[3], (4, 1)))


def gains_of(world, policy, model_values, weights, episodes, most=50.0):
    H = policy.horizon
    P, r = (
        np.array(x(0))[np.newaxis]
        for x in (world.model.transitions_at, world.model.mean_rewards_at)
    )
    values, q = _values(P, r, policy.table())
    values, q = values * model_values, q * model_values
    q = np.concatenate([q, values[:-1, :, np.newaxis]], axis=2)
    tables = weights[np.newaxis], values[np.newaxis], q[np.newaxis]
    statistic = RobustGains(*tables, np.array([[-most, most]]), float(H), H)
    y = statistic.vectors(episodes.block())
    return 2.0 * most * y[:, 0], y[:, 1] * H


def test_gains_are_right_where_values_are_right_or_weights_are():
    """By exact expectations over all episodes of a small world, each weighed by its probability."""
    world = TabularWorld(
        np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]]),
        np.array([[0.0, 1.0], [1.0, 0.0]]),
        3,
        start=np.array([0.6, 0.4]),
    )
    people = np.tile([[0.7, 0.3], [0.4, 0.6]], (3, 1, 1))
    policy = Policy.stochastic(np.tile([[0.1, 0.9], [0.8, 0.2]], (3, 1, 1)))
    P, r = world.model.transitions_at(0), world.model.mean_rewards_at(0)
    paths = np.array(list(np.ndindex(*(2,) * 7)))
    states, actions = paths[:, :4], paths[:, 4:]
    chance = world.model.start[states[:, 0]]
    for h in range(3):
        s, a = states[:, h], actions[:, h]
        chance = chance * people[h, s, a] * P[s, a, states[:, h + 1]]
    assert chance.sum() == pytest.approx(1.0)
    episodes = tacit.Episodes(states, actions, r[states[:, :3], actions])
    gain = world.value(policy) - world.value(Policy.stochastic(people))

    def occupied(table):
        found, now = np.zeros((3, 2, 2)), world.model.start
        for h in range(3):
            found[h] = now[:, np.newaxis] * table[h]
            now = np.tensordot(found[h], P, 2)
        return np.concatenate([found, found.sum(axis=2, keepdims=True)], axis=2)

    right = occupied(policy.table()) / occupied(people)
    for scale, weights in ((1.0, right), (0.3, right), (1.0, 0.5 * right)):
        found, returns = gains_of(world, policy, scale, weights, episodes)
        assert chance @ found == pytest.approx(gain)
        assert chance @ returns == pytest.approx(world.value(Policy.stochastic(people)))
    wrong, _ = gains_of(world, policy, 0.3, 0.5 * right, episodes)
    assert chance @ wrong != pytest.approx(gain, rel=0.05)


def test_an_episode_that_ends_earns_nothing_more():
    weights = np.full((1, 2, 3, 3), 2.0)
    tables = weights, np.ones((1, 3, 3)), np.ones((1, 2, 3, 3))
    statistic = RobustGains(*tables, np.array([[-10.0, 10.0]]), 2.0, 2)
    rows = (
        ([0, 1, 2], [0, 1], [1.0, 1.0]),  # 1 + 2 (1 + 1 - 1) - 1 + 2 (1 + 1 - 1) - 1
        ([0, 1, -1], [0, -1], [1.0, np.nan]),  # 1 + 2 - 1 + 2 (0 - 1)
        ([0, -1, -1], [0, -1], [np.nan, np.nan]),  # 1 + 2 (0 - 1)
        ([-1, -1, -1], [-1, -1], [np.nan, np.nan]),
    )
    block = tacit.Episodes(*map(list, zip(*rows, strict=True))).block()
    x = statistic.vectors(block)[:, :2]
    assert 20.0 * x[:, 0] == pytest.approx([3.0, 0.0, -1.0, 0.0])
    assert x[:, 1] == pytest.approx([1.0, 0.5, 0.0, 0.0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behaviour", ["uniform", "unknown"])
def test_a_clear_gain_is_found_and_proven(kind, behaviour):
    world = bandit()
    found = recommended(learnt(kind, world, 40_000, behaviour=behaviour))
    assert found.better
    assert found.verdict.startswith("Better than today with probability 0.95: Interval(0.")
    value, today = world.value(found.policy), world.baseline_value
    assert found.value.low <= value <= found.value.high
    assert today in found.today
    assert value - today > found.gain.low > 0.0
    assert found.policy is found.found
    assert len(found.gains) >= 2
    assert found.behaviour == ("known" if behaviour == "uniform" else "unknown")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_gain_is_no_recommendation(kind):
    world = TabularWorld(np.full((2, 2, 2), 0.5), np.full((2, 2), 0.5), 2)
    people = Policy.stochastic(np.tile([0.3, 0.7], (2, 2, 1)))
    found = recommended(learnt(kind, world, 5000, behaviour=people))
    assert not found.better
    assert found.policy.table() == pytest.approx(people.table())
    assert found.verdict.startswith("No recommendation: nothing is better than today")
    assert 1.0 in found.today


def test_one_call_splits_users_and_keeps_one_budget(tmp_path):
    world, n = bandit(), 3000
    log = world.simulate(Policy.uniform(1, 4, 3), n, np.random.default_rng(0))
    ids = [f"p{i % 2000}" for i in range(n)]
    log = tacit.Episodes(log.states, log.actions, log.rewards, user_ids=ids)
    learn, judges = _split(log, np.random.default_rng([0, 5]), 0.25)
    people = np.array([i % 2000 for i in range(n)])
    assert not set(people[learn]) & set(people[judges])
    assert len(set(people[judges])) == len(judges) == 500
    assert len(set(people[learn])) == 1500
    assert (judges < 2000).all()  # their first episodes
    budget, path = JointDP(1.0, 1e-6, episodes_per_user=2), tmp_path / "log.db"
    found = tacit.learn_offline(log, world.spec, budget, "uniform", store=path)
    assert (found.learnt, found.judged) == (len(learn), 500)
    assert found.guarantee.epsilon == 1.0
    assert found.guarantee.episodes_per_user == 2
    assert not found.guarantee.simulation_only
    # two blocks, of which each spent all that an episode has, and no more
    with Store(path) as store, store.read() as db:
        spent = [e.body for e in ledger.read(db) if e.event == "release"]
    for block in (0, 1):
        paid = sum(Fraction(body["cost"]) for body in spent if body["block"] == block)
        assert paid <= budget.episode_limit * (1 + 1e-9)
        assert paid > 0.9 * budget.episode_limit
    assert str(found).count("joint differential privacy") == 1


def test_mistakes_are_refused_in_words():
    world = bandit()
    log = world.simulate(Policy.uniform(1, 4, 3), 100, np.random.default_rng(0))
    for change, match in (
        ({"privacy": JointDP(1.0, 0.0)}, "delta > 0"),
        ({"privacy": LocalDP(1.0, 1e-6)}, "JointDP"),
        ({"behaviour": "random"}, "behaviour must be a Policy"),
        ({"behaviour": Policy.uniform(2, 4, 3)}, "another world"),
        ({"agent": tacit.UCBVI}, "agent must be one that learns from logs"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"seed": -1}, "seed must be"),
        ({"episodes": log.take(slice(0, 3))}, "at least 4 users"),
    ):
        given = {"episodes": log, "privacy": BUDGET, "behaviour": "uniform"} | change
        with pytest.raises(InvalidArgument, match=match):
            tacit.learn_offline(spec=world.spec, noise_seed=0, **given)
    with pytest.raises(InvalidArgument, match="schedule means nothing"):
        tacit.PessimisticVI(world.spec, 100, BUDGET, schedule="every")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behaviour", ["uniform", "unknown"])
def test_agents_pass_all_checks(kind, behaviour):
    make = partial(kind, privacy=BUDGET, behaviour=behaviour)
    assert not check_agent(make, riverswim(3, 4), users=300).skipped


@pytest.mark.parametrize("kind", KINDS)
def test_one_record_with_a_tiny_propensity_changes_no_interval(kind):
    """Hers says that she did what no policy may, and then something that was all but impossible."""
    world = random_mdp(states=5, actions=3, horizon=3, seed=1)
    spec = dataclasses.replace(world.spec, admissible=((0, 1),) * 5)
    served = Policy.stochastic(np.tile([0.5, 0.5, 0.0], (3, 5, 1)))
    log = world.simulate(served, 4000, np.random.default_rng(0))
    chances = np.full(log.actions.shape, 0.5)
    _, judges = _split(log, np.random.default_rng([0, 5]), kind.algorithm.judging)
    actions, strange = log.actions.copy(), chances.copy()
    actions[judges[0], 0], strange[judges[0], 1] = 2, 5e-324
    other = tacit.Episodes(log.states, actions, log.rewards)
    call = partial(tacit.learn_offline, spec=spec, privacy=JointDP(20.0, 1e-6), agent=kind)
    plain = call(log, behaviour=chances, noise_seed=0)
    found = call(other, behaviour=strange, noise_seed=0)
    for one, two in zip(plain.gains, found.gains, strict=True):
        assert (two.low, two.high) == pytest.approx((one.low, one.high), abs=0.05)
    # Real noise, of which the most careful policy's interval, up to 0.45, has a thirtieth.
    assert call(other, behaviour=strange).gains[0].high < 1.5


def test_logged_propensities_are_as_good_as_the_policy():
    """What was served depended on a coin that no state shows; the log has the probabilities."""
    world, n = bandit(), 40_000
    rng = np.random.default_rng(0)
    coin = rng.random(n) < 0.5
    first = Policy.stochastic(np.tile([0.6, 0.2, 0.2], (1, 4, 1)))
    second = Policy.stochastic(np.tile([0.2, 0.2, 0.6], (1, 4, 1)))
    logs = [world.simulate(policy, n, rng) for policy in (first, second)]
    states, actions, rewards = (
        np.where(coin[:, np.newaxis], getattr(logs[0], name), getattr(logs[1], name))
        for name in ("states", "actions", "rewards")
    )
    log = tacit.Episodes(states, actions, rewards)
    chances = np.where(
        coin[:, np.newaxis], np.array([0.6, 0.2, 0.2])[actions], np.array([0.2, 0.2, 0.6])[actions]
    )
    call = partial(tacit.learn_offline, log, world.spec, BUDGET, noise_seed=0)
    found = call(behaviour=chances)
    assert found.behaviour == "logged"
    assert found.better
    assert world.value(found.policy) in found.value
    assert 0.5 * (world.value(first) + world.value(second)) in found.today
    # nonsense in a log spoils nobody's bound, and is no error
    broken = np.where(rng.random(chances.shape) < 0.5, np.nan, chances)
    spoilt = call(behaviour=broken)
    assert spoilt.value.low <= world.value(spoilt.found)
    with pytest.raises(InvalidArgument, match="behaviour has shape"):
        call(behaviour=chances[:5])
