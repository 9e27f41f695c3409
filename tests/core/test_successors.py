"""Successors: every family's agents go on after the last declared user, from all that was released.

A successor's first greedy policy is as good as its predecessor's, what its own users say is added
to that and not put in its place.
"""

import numpy as np
import pytest

import tacit
from tacit.core.intake import Receipt
from tacit.privacy.errors import HorizonExceeded, InvalidArgument
from tacit.registry import agent_entry
from tacit.store import ledger

PRIVACY = tacit.JointDP(epsilon=1.0, delta=1e-6)

RIVER = tacit.tabular.riverswim(4, 6)
SIMPLEX = tacit.linear.simplex(dimension=3, states=10, actions=4, horizon=5)
MODELS = tacit.mixture.mixture_of_models(states=6, actions=3, horizon=5)
HARD = tacit.mixture.hard_mixture(dimension=3, horizon=4)
SYSTEM = tacit.lq.double_integrator(5)
LINE = tacit.continuous.line()

ROWS = [
    ("ucbvi", RIVER, 20_000, {}),
    ("ucbpo", RIVER, 20_000, {}),
    ("concurrent_psrl", RIVER, 2_000, {}),
    ("concurrent_psrl", RIVER, 2_000, {"running": 0}),
    ("policy_improvement", RIVER, 20_000, {}),
    ("lsvi_ucb", SIMPLEX, 4_000, {"statistic": "features"}),
    ("lsvi_ucb", SIMPLEX, 4_000, {"statistic": "counts"}),
    ("lsvi_ucb_plus_plus", SIMPLEX, 4_000, {}),
    ("linear_posterior", SIMPLEX, 500, {}),
    ("linopt_vi", MODELS, 4_000, {}),
    ("certainty_equivalence", SYSTEM, 2_000, {}),
    ("fitted_functional_q", LINE, 300, {}),
    ("fitted_functional_q", LINE, 2_000, {"serve": "all"}),
]


def make(name, world, users, **options):
    privacy = tacit.JointDP(options.pop("epsilon", 1.0), 1e-6)
    given = {"noise_seed": 0} | options
    return agent_entry(name).make(world.spec, users=users, privacy=privacy, **given)


def score(world, policy):
    """0 for acting at random, 1 for the optimum."""
    least = world.baseline_value
    return float((world.value(policy) - least) / (world.optimal_value - least))


def serve(agent, world, blocks, seed=0):
    """Some blocks of simulated users."""
    rng = np.random.default_rng(seed)
    for _ in range(blocks):
        if not agent.block_users:
            return
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.data_format))


@pytest.mark.parametrize(("name", "world", "users", "options"), ROWS)
def test_a_successor_knows_what_its_predecessor_knew(name, world, users, options):
    agent = make(name, world, users, **options)
    serve(agent, world, 10**6)
    heir = agent.successor(2 * users, noise_seed=1)
    assert (heir.served, heir.users, heir.progress.inherited) == (0, 2 * users, users)
    first_version = agent.policy.version + int(agent.algorithm.ends_greedy)
    assert heir.policy.version == heir.greedy_policy.version == first_version
    known = score(world, agent.greedy_policy)
    first = score(world, heir.greedy_policy)
    assert first == pytest.approx(known, abs=0.02), "it plans from the same releases"
    # Its own users add to that: one small block does not put it in question.
    serve(heir, world, 1, seed=1)
    assert heir.policy.version == first_version + 1
    assert score(world, heir.greedy_policy) > known - 0.2


def test_answers_are_read_in_the_units_of_the_successor():
    """Where discounts differ, a predecessor's targets d P V are d' P W of the successor's."""
    agent = make("fitted_functional_q", LINE, 30)
    serve(agent, LINE, 1)
    heir = agent.successor(10**6, noise_seed=1)
    assert heir.state.ahead.discount > agent.state.ahead.discount
    ratio = agent.state.ahead.discount / heir.state.ahead.discount
    for mine, other in zip(heir.state.evidence.answers, agent.state.evidence.answers, strict=True):
        np.testing.assert_allclose(mine.value, ratio * other.value)
        np.testing.assert_array_equal(mine.sums, other.sums)


def night(agent, names, seed):
    """Sessions of people who follow what an agent serves."""
    rng, (H, S) = np.random.default_rng(seed), (RIVER.spec.horizon, RIVER.spec.states)
    states = rng.integers(0, S, (len(names), H + 1))
    actions = agent.policy.actions[np.arange(H), states[:, :H]]
    versions = np.full(len(names), agent.policy.version)
    return tacit.Episodes(states, actions, rng.integers(0, 2, (len(names), H)), versions, names)


def test_users_of_the_last_policy_are_the_successors():
    """A night too many for the old agent is learnt from by the new one, and nobody is lost."""
    agent = make("ucbvi", RIVER, 60, schedule="fixed:size=50")
    agent.learn(night(agent, [f"user {i}" for i in range(50)], 0))
    late = night(agent, [f"late {i}" for i in range(30)], 1)
    with pytest.raises(HorizonExceeded, match=r"agent\.successor"):
        agent.learn(late)
    heir = agent.successor(100, noise_seed=1, schedule="fixed:size=30")
    np.testing.assert_array_equal(heir.policy.actions, agent.policy.actions)
    assert (heir.learn(late).counted, heir.policy.version) == (30, 2)


def test_a_successor_of_a_pinned_policy_serves_the_newest():
    agent = make("ucbvi", RIVER, 200, schedule="fixed:size=50")
    agent.learn(night(agent, [f"user {i}" for i in range(50)], 0))
    agent.roll_back(0, pin=True)
    agent.learn(night(agent, [f"more {i}" for i in range(50)], 1))
    heir = agent.successor(100, noise_seed=1)
    assert (agent.policy.version, heir.policy.version) == (2, 3)


def test_nobody_is_in_two_agents_at_once():
    """Who waits is released first, and counts in the successor; the old agent takes nobody."""
    agent = make("ucbvi", RIVER, 100, schedule="fixed:size=50")
    agent.learn(night(agent, [f"user {i}" for i in range(60)], 0))
    agent.learn(night(agent, ["late 1", "late 2"], 1))
    assert (agent.served, agent.taken) == (60, 62)
    heir = agent.successor(100, noise_seed=1, schedule="fixed:size=4")
    assert (agent.served, agent.taken, heir.progress.inherited) == (62, 62, 62)
    with pytest.raises(HorizonExceeded, match="has a successor"):
        agent.learn(night(agent, ["new 0"], 2))
    names = ["late 1", "user 3", "new 1", "new 2", "new 3", "new 4"]
    assert heir.learn(night(heir, names, 3)) == Receipt(6, 4, 0, 0, 2, 3, (3,), 0)
    third = heir.successor(100, noise_seed=2, schedule="fixed:size=2")
    assert (third.progress.inherited, third.policy.version) == (66, 3)
    assert third.learn(night(third, ["late 1", "new 1"], 4)).refused == 2


def test_the_accounts_of_both_add_up():
    """Two episodes each are declared: whoever had one with the first agent has one left."""
    privacy = tacit.JointDP(1.0, 1e-6, episodes_per_user=2)
    agent = tacit.UCBVI(RIVER.spec, 3, privacy, schedule="fixed:size=3")
    agent.learn(night(agent, ["a", "a", "b"], 0))
    heir = agent.successor(6, schedule="fixed:size=3")
    receipt = heir.learn(night(heir, ["a", "b", "b"], 1))
    assert (receipt.waiting, receipt.refused) == (1, 2), "b has one left, a has none"


def test_what_users_of_both_are_promised_must_be_known():
    agent = make("ucbvi", RIVER, 100)
    for other in (
        tacit.JointDP(1.0, 1e-6, episodes_per_user=2),
        tacit.JointDP(1.0, 0.0),
        tacit.JointDP(1.0, 1e-6, relation=tacit.Relation.ZERO_OUT),
        tacit.LocalDP(1.0, 1e-6),
        tacit.NonPrivate(),
    ):
        with pytest.raises(InvalidArgument, match="another epsilon or delta at most"):
            agent.successor(100, other, noise_seed=1)
    assert agent.successor(100, tacit.JointDP(0.5, 1e-7), noise_seed=1).guarantee.epsilon == 0.5


def test_there_is_one_successor_and_the_old_run_takes_nobody(tmp_path):
    options = {"schedule": "fixed:size=2", "store": tmp_path / "runs.db"}
    agent = tacit.UCBVI(RIVER.spec, 10, PRIVACY, **options)
    agent.learn(night(agent, ["a", "b"], 0))
    heir = agent.successor(10, schedule="fixed:size=2")
    with pytest.raises(HorizonExceeded, match="has a successor"):
        agent.successor(10)
    again = tacit.open(tmp_path / "runs.db", "run")
    with pytest.raises(HorizonExceeded, match="has a successor"):
        again.learn(night(again, ["c", "d"], 1))
    assert heir.learn(night(heir, ["c", "a"], 1)).refused == 1
    assert tacit.open(tmp_path / "runs.db", heir.run_name).taken == 1
    with heir.store.read() as db:
        assert [entry.event for entry in ledger.read(db, "run")][-1] == "successor"
    assert ledger.verify(heir.store) == []
