"""Many explorers beside a greedy policy: what it asks, plans, keeps and learns."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from research.worlds import habit
from tacit import ConcurrentPSRL, InvalidArgument, JointDP, LocalDP, NonPrivate, check_agent
from tacit.tabular import concurrent_psrl, grid, riverswim
from tacit.tabular.concurrent_psrl import ExplorationPlanner, GreedyPolicy
from tacit.tabular.first_visits import FirstVisits
from tacit.tabular.posterior import LENT, SpikeSlabPosterior, VisitEstimate

SMALL, RNG = riverswim(3, 4), np.random.default_rng


def learnt(privacy, users=3000, world=SMALL, **options):
    agent = ConcurrentPSRL(world.spec, users, privacy, noise_seed=1, **options)
    tacit.run(agent, world, seed=1, progress=False)
    return agent


@pytest.mark.parametrize(
    ("privacy", "stationary", "running"),
    [
        pytest.param(JointDP(1.0, 1e-6), True, 24, marks=pytest.mark.slow),
        pytest.param(JointDP(1.0, 1e-6), True, 0, marks=pytest.mark.slow),
        pytest.param(JointDP(2.0, 0.0), False, 24, marks=pytest.mark.slow),
        pytest.param(JointDP(2.0, 0.0), True, 0, marks=pytest.mark.slow),
        pytest.param(NonPrivate(), True, 24, marks=pytest.mark.slow),
    ],
    ids=["blocks", "running", "pure, per step", "pure, running", "no"],
)
def test_it_conforms(privacy, stationary, running, monkeypatch):
    monkeypatch.setattr(concurrent_psrl, "EXPLORERS", 4)
    monkeypatch.setattr(concurrent_psrl, "PATHS", 50)
    monkeypatch.setattr(concurrent_psrl, "WORLDS", 2)

    def make(spec, users, **options):
        given = {"schedule": "fixed:size=40", "stationary": stationary, "running": running}
        given |= options
        return ConcurrentPSRL(spec, users, privacy, **given)

    check_agent(make, SMALL, users=160)


def test_devices_are_refused():
    with pytest.raises(InvalidArgument, match="JointDP or NonPrivate"):
        ConcurrentPSRL(SMALL.spec, 100, LocalDP(1.0, 1e-6))


def test_first_everybody_explores_and_later_few():
    world = riverswim(4, 8)
    agent = ConcurrentPSRL(world.spec, 30_000, JointDP(4.0, 1e-6), noise_seed=1)
    assert agent.policy.weights[0] == 0.0
    tacit.run(agent, world, seed=1, progress=False)
    memory = agent.plan.memory
    late = concurrent_psrl._LATE * memory.changed_at / agent.served
    assert late < 1.0
    assert 1.0 - 0.03 * late / concurrent_psrl.LEAST_COST - 1e-9 <= agent.policy.weights[0] < 1.0
    given = (memory, agent.progress, True, memory.greedy_value, 0.0)
    assert agent.algorithm._exploration_budget(*given)[0] == pytest.approx(0.03 * late)
    assert world.value(agent.greedy_policy) > 0.95 * world.optimal_value
    assert (agent.policy.tables[0] == agent.greedy_policy.actions).all()


@pytest.mark.parametrize(("horizon", "users", "seeds"), [(140, 300, (0, 1, 2)), (20, 1000, (109,))])
def test_few_people_are_not_harmed(horizon, users, seeds):
    """Explorers gave half of what uniform actions give; the last seed's first worlds mislead."""
    world = habit(horizon)
    for seed in seeds:
        agent = ConcurrentPSRL(world.spec, users, JointDP(1.0, 1e-6), noise_seed=seed, seed=seed)
        result = tacit.run(agent, world, seed=seed, progress=False)
        assert result.served_value > 0.97 * world.baseline_value
        assert result.greedy_value == pytest.approx(world.baseline_value)
        assert agent.algorithm.needed > 2 * users


def test_a_gain_is_over_uniform_actions():
    """The second action pays more: uniform actions are beaten in every world."""
    posterior = posterior_of(np.stack([np.eye(2), np.eye(2)], axis=1), visits=60.0)
    planner = ExplorationPlanner(paying(posterior, [0.2, 0.9]), np.array([1.0, 0.0]), 4, RNG(0))
    assert planner.greedy(None).shown == 1.0
    # 4000 draws of one half, within six deviations.
    drawn = np.stack(planner.uniform(500))
    assert drawn.shape == (500, 4, 2)
    assert abs(drawn.mean() - 0.5) < 6.0 * 0.5 / np.sqrt(4000.0)


def test_the_sensitivity_that_is_paid_for():
    """What is asked of the gate is 1.3 k + 0.3 squared, and its noise is what the plan expects."""
    agent = ConcurrentPSRL(riverswim(6, 20).spec, 10_000, JointDP(1.0, 1e-6), noise_seed=1)
    statistic = agent.statistic
    assert isinstance(statistic, FirstVisits)
    l2 = statistic.sensitivity(agent.privacy.relation, "l2") / statistic.unit
    assert l2**2 == pytest.approx(2.0 * (1.3 * statistic.most + 0.3))
    noise = agent.algorithm.noise_of(None, agent.progress, statistic.most)
    assert noise == pytest.approx(l2 * 4.2247, rel=1e-4)


def test_what_is_asked_later_costs_no_more():
    """Whatever is wanted, of however many cells, and whole: nobody is longer than 1."""
    agent = ConcurrentPSRL(grid(4, 8).spec, 10_000, JointDP(1.0, 1e-6), noise_seed=1)
    assert agent.algorithm.counter != "blocks"
    tables = agent.policy.tables
    for most, whole in ((2, False), (8, False), (8, True)):
        asked = agent.algorithm._first_visits(np.ones((1, 16, 4), bool), most, tables, 0, whole)
        assert asked.layout == agent.statistic.layout
        assert asked.sensitivity(agent.privacy.relation, "l2") == pytest.approx(np.sqrt(2.0))


@pytest.mark.slow
def test_large_blocks_are_counted_whole():
    world = riverswim(4, 8)
    agent = ConcurrentPSRL(world.spec, 10**9, JointDP(1.0, 1e-6), noise_seed=1)
    result = tacit.run(agent, world, seed=1, progress=False)
    assert agent.data_format == "pooled"
    assert agent.statistic.whole
    assert result.losses[-1] < 0.1
    assert world.value(agent.greedy_policy) > 0.999 * world.optimal_value


def empty(shape):
    return SpikeSlabPosterior.prior(VisitEstimate.empty(shape))


def added(estimate, moves, noise, expected):
    cells = np.zeros(moves.shape[:3])
    parts = {"transitions": moves, "rewards": cells, "first_paid": cells}
    std = {"transitions": noise, "first_paid": noise}
    return estimate.added(parts, std, (expected, cells, cells))


def posterior_of(rows, visits, noise=1.0):
    rows = np.array(rows, dtype=float)[np.newaxis]
    prior = empty(rows.shape[:3])
    expected = np.full(rows.shape[:3], visits)
    return prior.after(added(prior.estimate, visits * rows, noise, expected))


def paying(posterior, means):
    """The same after actions paid so much on average."""
    paid = posterior.estimate.moves.sum(axis=-1) * means
    for _ in range(3):
        posterior = posterior.after(replace(posterior.estimate, paid=paid))
    return posterior


def released(kind, users, seen, seed=0):
    """Evidence of blocks of users, of whom ``seen`` come to each of 3600 entries."""
    rng, counter = RNG(seed), None
    estimate = VisitEstimate.empty((1, 30, 4), True, (kind or "", len(users) if kind else 0))
    if kind is not None:
        counter = tacit.privacy.counters.KINDS[kind](releases=len(users), mu=1 / 7.0, shape=(3600,))
        counter._source = tacit.privacy.noise.Noise(seed)
    for count, here in zip(users, seen, strict=True):
        block = np.full((1, 30, 4, 30), here)
        if counter is None:
            noise, sums = 7.0, block + rng.normal(0.0, 7.0, block.shape)
        else:
            noise = counter.std_at(counter.released + 1)
            sums = counter.release(block.ravel()).reshape(block.shape)
        estimate = added(estimate, sums, noise, np.full((1, 30, 4), count))
    return estimate


USERS = (10.0, 20.0, 40.0, 5.0, 1000.0)


@pytest.mark.parametrize("kind", [None, "optimal", "normalised square root"])
def test_noise_is_the_unit_of_evidence(kind):
    """Five releases of noise alone have entries of deviation 1, however they are added up."""
    estimate = released(kind, USERS, (0.0,) * 5)
    # 3600 entries: within six standard errors of 1.
    assert abs(estimate.entries.std() - 1.0) < 6.0 / np.sqrt(2.0 * 3600.0)
    assert abs(estimate.entries.mean()) < 6.0 / 60.0


def test_counters_are_told_apart_by_blocks():
    """What all blocks see is worth more than in sums of blocks, what one sees hardly less."""
    every = (100.0,) * 20
    alone = (0.0,) * 10 + (100.0,) + (0.0,) * 9
    found = {}
    for kind in (None, "optimal"):
        for name, seen in (("every", every), ("alone", alone)):
            estimate = released(kind, seen, seen, seed=1)
            found[kind, name] = float(estimate.entries.mean())
    # Without noise in what is expected: 100 sqrt(20) / 7, and 100 / 7 but for the floor.
    assert found[None, "every"] == pytest.approx(63.9, rel=0.02)
    assert found["optimal", "every"] > 2.0 * found[None, "every"]
    assert found["optimal", "alone"] > 0.85 * found[None, "alone"]


def test_explorers_are_asked_what_others_cannot_tell(monkeypatch):
    """On the way of all are eight cells that are known; explorers alone come to the ninth."""
    way = np.eye(11)[np.minimum(np.arange(11) + 1, 10)]
    posterior = posterior_of(np.stack([way, way], axis=1), visits=200.0, noise=5.0)
    posterior.visits[:, :, 1] = 0.0
    monkeypatch.setattr(concurrent_psrl, "VISITS_PER_USER", (4,))
    planner = ExplorationPlanner(posterior, np.eye(11)[0], 10, RNG(0))
    policies = np.zeros((2, 10, 11), dtype=np.int64)
    policies[1, :, 9] = 1
    walks = planner.rollouts(policies, np.array([0.95, 0.05]))
    assert walks.came[0, 9].tolist() == pytest.approx([0.95, 0.05])
    assert walks.visits.sum() == pytest.approx(10.0)
    asked = planner.query(walks, 4000, lambda _: 5.0)
    of_all, of_explorers = asked.wanted[:, 0, :, 0]
    assert of_all.all()
    assert not of_explorers.any()
    assert asked.expected[0, 9, 1] == pytest.approx(0.05)
    assert asked.expected[0, 0, 0] == pytest.approx(0.95)


def test_who_serves_is_replaced_with_care(monkeypatch):
    """Actions that serve stay unless others are better in most worlds that may be true."""
    rows = np.stack([np.eye(2), np.eye(2)], axis=1)  # (2, 2, 2): nothing moves anything
    posterior = posterior_of(rows, visits=60.0)
    known = paying(posterior, [0.5, 0.52])
    start, rng = np.array([1.0, 0.0]), RNG(0)
    monkeypatch.setattr(concurrent_psrl, "CERTAIN", 0.9)
    monkeypatch.setattr(concurrent_psrl, "WORLDS", 200)
    planner = ExplorationPlanner(known, start, 4, rng)
    before = np.zeros((4, 2), dtype=np.int64)
    assert planner.greedy(None).actions[0, 0] == 1
    kept = planner.greedy(before)
    assert np.array_equal(kept.actions, before)
    assert kept.value == pytest.approx(planner.value(*planner._known, before))
    assert kept.values.shape == (2, 200)
    assert (kept.values[0] >= kept.values[1] - 1e-9).all()
    # What the best of these worlds would do instead is what matters.
    assert kept.worth[0, 0].tolist() == pytest.approx([kept.worth[0, 0, 0], 1.0])
    assert kept.worth[0, 0, 0] < 1.0
    planner = ExplorationPlanner(paying(known, [0.2, 0.9]), start, 4, rng)
    assert planner.greedy(before).actions[0, 0] == 1


def test_strong_entries_are_real_and_noise_is_not():
    rows = [[[0.9, 0.1, 0.0]], [[0.5, 0.5, 0.0]], [[0.0, 0.0, 1.0]]]
    posterior = posterior_of(rows, visits=200.0, noise=5.0)
    np.testing.assert_allclose(posterior.known, 1.0, atol=1e-4)
    np.testing.assert_allclose(posterior.transitions[0], rows, atol=2e-2)
    np.testing.assert_allclose(posterior.whole_rows().sum(axis=-1), 1.0, atol=1e-9)
    weak = posterior_of(rows, visits=4.0, noise=5.0)
    assert weak.known.max() < 0.01
    assert weak.transitions.max() < 0.01


def steps_of(rows, visits):
    """What is known of two steps of three states, one action, after exact counts of noise 1."""
    moves = np.stack([np.array(row, dtype=float)[:, np.newaxis] for row in rows])
    count = np.broadcast_to(np.reshape(visits, (2, 1, 1)), (2, 3, 1)).astype(float)
    prior, expected = empty((2, 3, 1)), np.full((2, 3, 1), 20.0)
    return prior.after(added(prior.estimate, count[..., np.newaxis] * moves, 1.0, expected))


def test_steps_that_are_alike_lend_each_other_visits():
    """The step where nobody was is known as well as the other lends; nothing is known of one."""
    turn = np.roll(np.eye(3), 1, axis=1)
    alike = steps_of([turn, turn], [40.0, 0.0])
    np.testing.assert_allclose(alike.transitions[1, :, 0], turn, atol=1e-3)
    lent = alike.visits[1].max()
    assert 20.0 < lent <= LENT
    assert alike.visits[0].min() >= 40.0
    unseen = steps_of([turn, turn], [0.0, 0.0])
    assert unseen.visits.max() < 0.1


def test_steps_that_differ_lend_little():
    turn = np.roll(np.eye(3), 1, axis=1)
    apart = steps_of([turn, turn.T], [40.0, 40.0])
    # They differ by half of a row in each entry, so all of them are worth below a visit.
    np.testing.assert_allclose(apart.transitions[0, :, 0], turn, atol=0.03)
    np.testing.assert_allclose(apart.transitions[1, :, 0], turn.T, atol=0.03)
    assert apart.visits.max() < 42.0


def test_plans_equal_a_slow_reference():
    rng = RNG(3)
    L, n_states, A, H = 1, 4, 3, 6
    P, r = rng.dirichlet(np.ones(n_states), (L, n_states, A)), rng.random((L, n_states, A))
    posterior = empty((L, n_states, A))
    start = np.eye(n_states)[0]
    planner = ExplorationPlanner(posterior, start, H, rng)
    actions, value = planner.best(P, r)
    V = np.zeros(n_states)
    for h in range(H - 1, -1, -1):
        q = r[0] + P[0] @ V
        assert np.array_equal(actions[h], q.argmax(axis=1))
        V = q.max(axis=1)
    assert value == pytest.approx(V[0])
    assert planner.value(P, r, actions) == pytest.approx(V[0])


def test_what_may_improve_the_greedy_policy_is_covered_first():
    """From the start two actions lead to states of which nothing is known; one of them matters."""
    posterior = posterior_of(np.eye(3)[np.array([[1, 2], [1, 1], [2, 2]])], visits=400.0, noise=5.0)
    posterior.known[:, 1:] = 0.0
    posterior.visits[:, 1:] = 0.0
    posterior.transitions[:, 1:] = 0.0
    planner = ExplorationPlanner(posterior, np.eye(3)[0], 2, RNG(0))
    worth = np.zeros((1, 3, 2))
    worth[0, 2] = 1.0
    stays = np.zeros((2, 3), dtype=np.int64)
    serving = GreedyPolicy(stays, 1.0, np.ones((2, 4)), worth, 1.0)
    focused = [actions[0, 0] for actions in planner.covering(4, 1e-6, serving)]
    assert focused == [1, 1, 1, 1]
    anywhere = [actions[0, 0] for actions in planner.covering(40, 1e-6, None)]
    assert 5 < sum(anywhere) < 35


def test_a_way_that_is_taken_not_to_exist_is_tried_again():
    """One step is certain, the other may lead on to what is unknown; the third step earns it."""
    posterior = posterior_of(np.eye(3)[np.array([[0, 1], [0, 0], [2, 2]])], visits=400.0, noise=5.0)
    posterior.known[:] = 1.0
    posterior.known[:, 2] = 0.0
    posterior.entries[0, 1, :, 2], posterior.slab[0, 1, :, 2] = [0.0, 80.0], [0.0, 0.5]
    planner = ExplorationPlanner(posterior, np.eye(3)[0], 3, RNG(0))
    tried = planner.covering(400, 1e-9, None)
    went = [actions[0, 0] == 1 and actions[1, 1] == 1 for actions in tried]
    # By chance one in four; half of the worlds have the way, and who knows it goes there.
    sampled = np.arange(400) % 4 == 3
    assert 40 < sum(np.array(went)[~sampled]) < 110
    assert sum(np.array(went)[sampled]) > 45


def test_visits_overrule_where_first_rewards_seem_to_come_from():
    """A hint of noise pays nothing where many visits paid nothing, and is a draw elsewhere."""
    rows = np.eye(2)[np.array([[0, 1], [0, 1]])]
    chances, worth = [], []
    for visits in (5.0, 400.0):
        posterior = posterior_of(rows, visits=visits, noise=1.0)
        cells = posterior.estimate.paid.shape
        first, risk = np.zeros(cells), np.full(cells, 6.0)
        first[0, 0, 0] = 3.0
        of_first = {"first_paid": first, "first_variance": np.ones(cells)}
        estimate = replace(posterior.estimate, **of_first, at_risk=risk, visits_at_risk=risk)
        posterior = posterior.after(estimate)
        assert 0.0 < posterior.hinted[0, 0, 0] < 1.0
        chances.append(float(posterior.hint[0, 0, 0]))
        worth.append(chances[-1] * float(posterior.hinted[0, 0, 0]))
        drawn = [posterior.sample(RNG(i))[1][0, 0, 0] > 1e-3 for i in range(300)]
        chance = 1.0 - (1.0 - posterior.paying[0, 0, 0]) * (1.0 - posterior.hint[0, 0, 0])
        assert abs(np.mean(drawn) - chance) < 0.12
    alone = 1.0 / (1.0 + np.exp(np.log(4.0) + 0.5 - 3.0**2 / 2.0))
    assert max(chances) < 0.8 < alone
    assert worth[0] > 0.3
    assert worth[1] < 0.02


def test_exploring_costs_what_two_plans_expect_to_be_lost():
    agent = learnt(JointDP(4.0, 1e-6))
    served, value = agent.served, agent.plan.memory.greedy_value
    for before, lost, spent in ((0.2, 0.1, 0.1), (0.1, 0.15, 0.1), (0.15, 0.05, 0.05)):
        known = replace(agent.plan.memory, changed_at=served, suboptimality=before)
        found, _ = agent.algorithm._exploration_budget(known, agent.progress, True, value, lost)
        assert found == pytest.approx(spent)
