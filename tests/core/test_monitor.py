"""Monitoring: equal to what releases hold, honest about its errors, kept by saves, and free."""

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument, JointDP, LocalDP, NonPrivate
from tacit.core.monitor import _monitoring
from tacit.core.stored_run import Record
from tacit.privacy.curator import Release
from tacit.privacy.statistic import Block
from tacit.store import ledger
from tacit.tabular.first_visits import FirstVisits
from tacit.tabular.model import policy_values

WORLD = tacit.tabular.riverswim(4, 6)
HARD = tacit.mixture.hard_mixture(dimension=3, horizon=4)
NO_NOISE = {"transitions": 0.0, "rewards": 0.0, "first_paid": 0.0}


def served(kind=tacit.UCBVI, privacy=None, users=4000, world=WORLD, **options):
    privacy = NonPrivate() if privacy is None else privacy
    agent = kind(world.spec, users, privacy, noise_seed=3, **options)
    rng, blocks = np.random.default_rng(0), []
    while agent.block_users:
        data = world.simulate(agent.policy, agent.block_users, rng)
        blocks.append((agent.policy, data))
        agent.learn(data)
    return agent, blocks


def test_without_noise_it_is_what_users_got():
    agent, blocks = served(stationary=False, schedule="fixed:size=1000")
    found = tacit.monitor(agent)
    assert found.versions == (0, 1, 2, 3)
    assert found.users == (1000,) * 4
    for i, (_, data) in enumerate(blocks):
        assert found.returns[i] == pytest.approx(data.rewards.sum() / 1000)
        visits = np.bincount(data.states[:, :-1].ravel(), minlength=4) / 1000
        assert found.occupancy[i] == pytest.approx(visits)
    assert np.isnan(found.return_drift[0])
    assert found.partial == (False,) * 4


@pytest.mark.parametrize("privacy", [JointDP(1.0, 1e-6), LocalDP(8.0, 1e-6)])
def test_errors_are_as_large_as_they_say(privacy):
    """Of the true value: 5 versions, none off by 5 standard errors (3e-6 if they are normal)."""
    options = {"stationary": False, "schedule": "fixed:size=10000"}
    agent, blocks = served(privacy=privacy, users=50_000, **options)
    found = tacit.monitor(agent)
    values = [policy_values(WORLD.model, policy)[0, 0] for policy, _ in blocks]
    errors = (found.returns - values) / found.return_errors
    assert np.abs(errors).max() < 5.0
    assert (found.return_errors > 0).all()
    assert found.occupancy.sum(axis=1) == pytest.approx(
        6.0, abs=6 * 4 * found.occupancy_errors.max()
    )


def test_a_store_keeps_it_and_it_costs_nothing(tmp_path):
    budget, where = JointDP(1.0, 1e-6), tmp_path / "runs.db"
    options = {"noise_seed": 0, "schedule": "fixed:size=1000", "store": where}
    agent = tacit.UCBVI(WORLD.spec, 3000, budget, **options)
    rng = np.random.default_rng(0)
    agent.learn(WORLD.simulate(agent.policy, 1000, rng))
    agent.learn(WORLD.simulate(agent.policy, 1000, rng))
    before = tacit.monitor(agent)
    again = tacit.UCBVI(WORLD.spec, 3000, budget, **options)
    assert (tacit.monitor(again).returns == before.returns).all()
    again.learn(WORLD.simulate(again.policy, 1000, rng))
    assert tacit.monitor(again).versions == (0, 1, 2)
    assert (tacit.monitor(again).returns[:2] == before.returns).all()
    with again.store.read() as db:
        assert [entry.event for entry in ledger.read(db)].count("release") == 3


@pytest.mark.parametrize(
    ("kind", "world", "options"),
    [
        (tacit.LSVIUCB, tacit.linear.simplex(dimension=3, states=10, actions=4, horizon=5), {}),
        (
            tacit.LinOptVI,
            tacit.mixture.mixture_of_models(
                states=6, actions=3, horizon=5, known_rewards=False, seed=1
            ),
            {"statistic": "model"},
        ),
    ],
)
def test_sums_of_features_are_as_far_off_as_they_say(kind, world, options):
    """Five versions; none off by 5 standard errors (3e-6 if they are normal)."""
    agent, blocks = served(
        kind, JointDP(1.0, 1e-6), 20_000, world, schedule="fixed:size=4000", **options
    )
    found = tacit.monitor(agent)
    values = np.array([world.value(policy) for policy, _ in blocks])
    whole = ~np.array(found.partial)
    errors = (found.returns - values)[whole] / found.return_errors[whole]
    assert whole.any()
    assert np.abs(errors).max() < 5.0


def test_running_sums_of_changing_questions_are_told_apart():
    """What one visit adds changes from block to block, and running sums have all of it."""
    rng, running = np.random.default_rng(0), 0.0
    policy, record = np.zeros((1, 6, 4), dtype=np.int64), Record()
    expected = []
    for version, most in enumerate((1, 3, 2)):
        asked = FirstVisits(np.ones((1, 4, 2), dtype=bool), most, policy, version)
        states = rng.integers(0, 4, (50, 7))
        arrays = {"states": states, "actions": np.zeros((50, 6), dtype=np.int64)}
        arrays |= {"rewards": np.ones((50, 6)), "versions": np.full(50, version)}
        own = asked.total(Block(50, arrays | {"components": np.zeros(50, dtype=np.int64)}))
        running = running + own
        parts = asked.layout.unpack(running)
        release = Release(0, "", parts, NO_NOISE, 50, 1.0)
        record = record.extended(version, 50, [asked], [release], True, FirstVisits.monitored)
        first = [len(set(row[:6])) for row in states]
        expected.append(np.minimum(first, most).mean())
    found = _monitoring(record.rows)
    assert found.returns == pytest.approx(expected), "each of a user's visits paid 1"
    assert found.occupancy.sum(axis=1) == pytest.approx(expected)


def test_control_tells_costs_and_energies():
    world = tacit.lq.double_integrator(5)
    agent, blocks = served(tacit.CertaintyEquivalence, users=600, world=world)
    found = tacit.monitor(agent)
    spec = world.spec
    for i, (_, data) in enumerate(blocks):
        x, u = data.states[:, :-1], data.actions
        cost = np.einsum("uhi,ij,uhj->", x, spec.state_cost, x)
        cost += np.einsum("uhi,ij,uhj->", u, spec.control_cost, u)
        assert found.returns[i] == pytest.approx(-cost / len(x))
        energy = (np.concatenate([x, u], axis=2) ** 2).sum(axis=(0, 1)) / len(x)
        assert found.occupancy[i] == pytest.approx(energy)
    # With noise: of the value, which may lack what is clipped.
    agent, blocks = served(tacit.CertaintyEquivalence, JointDP(3.0, 1e-6), 5000, world)
    found = tacit.monitor(agent)
    values = np.array([world.value(policy) for policy, _ in blocks])
    assert ((values - found.returns) / found.return_errors < 5.0).all()
    assert all(found.partial)


def test_vectors_are_counted_on_a_grid_and_residuals_tell_nothing():
    world = tacit.continuous.line()
    agent, _ = served(tacit.FittedFunctionalQ, users=40, world=world)
    found = tacit.monitor(agent)
    assert found.occupancy.sum() == pytest.approx(world.spec.horizon)
    assert np.isnan(found.returns).all()
    assert "No release tells returns" in str(found)
    agent, _ = served(tacit.FittedFunctionalQ, users=40, world=world, serve="all")
    with pytest.raises(InvalidArgument, match="tell neither returns nor where people are"):
        tacit.monitor(agent)
