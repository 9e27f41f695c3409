import copy
import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import tacit
from tacit import InvalidArgument
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.linear import LinearSpec, LinearWorld, linear_from_tabular
from tacit.simulation.run import run

# Every statistical test here has a fixed seed and would alarm falsely with about this probability.
ALARM = 1e-6


def factors(seed=0, states=3, actions=2, dimension=4, horizon=3, steps=(1, 1)):
    """Features on the simplex, measures that are distributions, and rewards in [0, 1]."""
    rng = np.random.default_rng(seed)
    return {
        "features": rng.dirichlet(np.ones(dimension), (states, actions)),
        "measures": rng.dirichlet(np.ones(states), (steps[0], dimension)),
        "rewards": rng.random((steps[1], dimension)),
        "horizon": horizon,
    }


def random_world(*args, **options):
    return LinearWorld(**factors(*args, **options))


def all_policies(spec):
    H, S, A = spec.horizon, spec.states, spec.actions
    for actions in itertools.product(range(A), repeat=H * S):
        yield Policy.deterministic(np.reshape(actions, (H, S)), A)


def brute_value(world, policy):
    """Over all paths of states, from features and factors alone."""
    H, S, _ = world.spec.horizon, world.spec.states, world.spec.actions
    total = 0.0
    for path in itertools.product(range(S), repeat=H):
        p, earned = float(world.model.start[path[0]]), 0.0
        for h, s in enumerate(path):
            phi = world.features[s, policy.actions[h, s]]
            earned += phi @ world.rewards[min(h, len(world.rewards) - 1)]
            if h + 1 < H:
                p *= phi @ world.measures[min(h, len(world.measures) - 1), :, path[h + 1]]
        total += p * earned
    return total


# Worlds.


@pytest.mark.parametrize("steps", [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_values_are_those_of_all_paths_and_the_optimum_that_of_all_policies(steps):
    world = random_world(1, states=2, steps=steps)
    values = [brute_value(world, policy) for policy in all_policies(world.spec)]
    for policy, value in zip(all_policies(world.spec), values, strict=True):
        assert world.value(policy) == pytest.approx(value, abs=1e-12)
    assert world.optimal_value == pytest.approx(max(values), abs=1e-12)
    assert world.value(world.optimal_policy) == pytest.approx(max(values), abs=1e-12)
    # Acting uniformly is a uniformly drawn deterministic policy.
    assert world.baseline_value == pytest.approx(np.mean(values), abs=1e-12)
    assert world.reference_value == 0.0
    assert world.spec.stationary_transitions == (steps[0] == 1)
    assert world.spec.stationary_rewards == (steps[1] == 1)
    assert world.spec.stationary == (steps == (1, 1))


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    states=st.integers(1, 6),
    actions=st.integers(1, 4),
    dimension=st.integers(1, 6),
    horizon=st.integers(1, 4),
    per_step=st.tuples(st.booleans(), st.booleans()),
)
def test_the_model_is_linear_in_whatever_basis(seed, states, actions, dimension, horizon, per_step):
    """Another basis of the features makes measures signed, and the world no different."""
    steps = tuple(horizon if one else 1 for one in per_step)
    given = factors(seed, states, actions, dimension, horizon, steps)
    world = LinearWorld(**given)
    P = np.einsum("sad,hdt->hsat", given["features"], given["measures"])
    R = np.einsum("sad,hd->hsa", given["features"], given["rewards"])
    np.testing.assert_allclose(world.model.transitions, P, atol=1e-12)
    np.testing.assert_allclose(world.model.mean_rewards, R, atol=1e-12)
    # A rotation, so that nothing is lost to rounding.
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))
    turned = LinearWorld(
        given["features"] @ basis.T, basis @ given["measures"], given["rewards"] @ basis.T, horizon
    )
    np.testing.assert_allclose(turned.model.transitions, P, atol=1e-9)
    assert turned.optimal_value == pytest.approx(world.optimal_value, abs=1e-9)


@pytest.mark.parametrize("steps", [(1, 1), (3, 3)])
def test_the_forms_have_the_exact_means(steps):
    """Counts per step, over all steps and without actions, and episodes, by a z-test per cell."""
    world = random_world(2, steps=steps)
    policy = world.optimal_policy
    rng = np.random.default_rng(3)
    n = 200_000
    occupied = np.zeros((3, 3))
    occupied[0, 0] = 1.0
    everywhere = np.arange(3)
    moves = np.stack(
        [world.model.transitions_at(h)[everywhere, policy.actions[h]] for h in (0, 1, 2)]
    )
    for h in (0, 1):
        occupied[h + 1] = occupied[h] @ moves[h]
    expected = occupied[:, :, np.newaxis] * moves
    episodes = world.simulate(policy, n, rng)
    counted = np.zeros((3, 3, 3))
    at = np.broadcast_to(np.arange(3), episodes.actions.shape)
    np.add.at(counted, (at, episodes.states[:, :-1], episodes.states[:, 1:]), 1)
    per_step = world.simulate(policy, n, rng, "counts")["transitions"].sum(axis=2)
    pooled = world.simulate(policy, n, rng, "pooled")["transitions"].sum(axis=(0, 2))
    occupancy = world.simulate(policy, n, rng, "occupancy")["transitions"]
    for counts in (counted, per_step, occupancy):
        z = (counts - n * expected) / np.sqrt(n * expected * (1 - expected) + 1e-9)
        assert ndtr(-np.abs(z).max()) * 2 * z.size > ALARM
    # Visits of one user are dependent over steps, so the variance has three times the sum's.
    p = expected.sum(axis=0)
    z = (pooled - n * p) / np.sqrt(3 * n * p + 1e-9)
    assert ndtr(-np.abs(z).max()) * 2 * z.size > ALARM


def test_rewards_have_the_mean_that_features_say():
    world = random_world(4, steps=(1, 3))
    n = 10**9
    block = world.simulate(world.optimal_policy, n, np.random.default_rng(5), "occupancy")
    assert set(block.arrays) == {"actions", "transitions", "rewards"}
    assert (block["actions"] == world.optimal_policy.actions).all()
    # A return is in [0, 3], so its deviation is at most 1.5; five of them are a false alarm in a
    # million.
    assert abs(block["rewards"].sum() / n - world.optimal_value) < 5 * 1.5 / np.sqrt(n)


def test_actions_keep_their_labels():
    world = random_world(6)
    assert not world.exchangeable_actions

    class Watching(LinearWorld):
        def simulate(self, policy, users, rng, form="episodes"):
            served.append(policy)
            return super().simulate(policy, users, rng, form)

    served = []
    agent = tacit.UCBVI(world.spec, users=1000, privacy=tacit.NonPrivate(), noise_seed=0)
    first = agent.policy
    run(agent, Watching(**factors(6)), seed=1)
    assert (served[0].table() == first.table()).all()


def test_tabular_agents_run_on_linear_worlds(tmp_path):
    world = random_world(7, states=4, actions=3, horizon=4)
    privacy = tacit.JointDP(epsilon=1.0, delta=1e-6)

    def agent(spec):
        return tacit.UCBVI(spec, users=300_000, privacy=privacy, seed=0, noise_seed=1)

    learnt = agent(world.spec)
    result = tacit.run(learnt, world, seed=2)
    assert result.values[-1] > (world.baseline_value + world.optimal_value) / 2
    # What it knows of the world can be less.
    small = FiniteSpec(states=4, actions=3, horizon=4, stationary=True)
    assert tacit.run(agent(small), world, seed=2).optimal_value == world.optimal_value
    learnt.save(tmp_path / "agent")
    other = random_world(8, states=4, actions=3, horizon=4)
    assert agent(world.spec).load(tmp_path / "agent").served == 300_000
    stranger = agent(other.spec)
    with pytest.raises(InvalidArgument, match="spec"):
        stranger.load(tmp_path / "agent")


def test_an_agent_for_other_features_is_refused():
    world, other = random_world(9), random_world(10)
    agent = tacit.UCBVI(other.spec, users=100, privacy=tacit.NonPrivate(), noise_seed=0)
    with pytest.raises(InvalidArgument, match="agent is for a world with features"):
        tacit.run(agent, world)


def test_it_says_what_it_is():
    world = random_world(11)
    assert world.name == "linear"
    assert repr(world) == "<LinearWorld 'linear': 3 states, 2 actions, 3 steps>"
    for array in (world.features, world.measures, world.rewards, world.model.transitions):
        assert not array.flags.writeable


GOOD = {
    "features": [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]],
    "measures": [[[1.0, 0.0], [0.0, 1.0]]],
    "rewards": [[0.0, 1.0]],
    "horizon": 3,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": [[1.0]]}, r"features must have shape \(S, A, d\), got \(1, 1\)"),
        ({"features": [[["a"]]]}, "features must be an array of numbers"),
        ({"features": np.zeros((2, 2, 0))}, "features must have shape"),
        (
            {"features": [[[1.0, 0.0], [0.0, np.inf]], [[0.5, 0.5], [0.5, 0.5]]]},
            "features at state 0, action 1 must be finite, but entry 1 is inf",
        ),
        ({"measures": np.eye(2)}, r"shape \(1 or horizon=3, 2, 2\), got \(2, 2\)"),
        ({"measures": [np.eye(2)] * 2}, r"measures must have shape \(1 or horizon=3, 2, 2\)"),
        ({"measures": [[[1.0, 0.0], [np.nan, 1.0]]]}, "measures at step 0, factor 1 must be fin"),
        (
            {"measures": [np.eye(2), np.eye(2), [[1.0, 0.0], [0.5, 0.25]]]},
            "<features, measures> at step 2, state 0, action 1 must be probabilities with sum 1, "
            "but the sum is 0.75",
        ),
        (
            {"measures": [[[1.0, 0.0], [1.25, -0.25]]]},
            "<features, measures> at step 0, state 0, action 1 must be probabilities, "
            "but entry 1 is -0.25",
        ),
        ({"rewards": [0.0, 1.0]}, r"rewards must have shape \(1 or horizon=3, 2\), got \(2,\)"),
        ({"rewards": [[0.0, np.nan]]}, "rewards at step 0, factor 1 must be finite, got nan"),
        (
            {"rewards": [[0.0, 1.0], [0.0, 1.5], [0.0, 0.0]]},
            r"<features, rewards> at step 1, state 0, action 1 must be in \[0, 1\], got 1.5",
        ),
        ({"rewards": [[-0.5, 1.0]]}, "step 0, state 0, action 0 must be in .* got -0.5"),
        ({"horizon": 0}, "horizon must be an integer >= 1, got 0"),
        ({"start": 2}, "start must be a state in 0..1, got 2"),
        ({"start": [0.5, 0.4]}, "start must be probabilities with sum 1"),
    ],
)
def test_mistakes_are_named(arguments, message):
    LinearWorld(**GOOD)
    with pytest.raises(InvalidArgument, match=message):
        LinearWorld(**GOOD | arguments)


def test_rounding_is_forgiven():
    """Rows that are right to nine digits become exact probabilities."""
    almost = 1.0 + 1e-12
    world = LinearWorld(
        GOOD["features"], [[[almost, 1.0 - almost], [0.0, 1.0]]], [[-1e-12, almost]], 3
    )
    assert (world.model.transitions >= 0).all()
    assert (world.model.transitions.sum(axis=-1) == 1).all()
    assert (world.model.mean_rewards[0, 0] == [0, 1]).all()


def test_impossible_policies_are_refused():
    world = random_world(12)
    uniform = Policy.uniform(3, 3, 2)
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidArgument, match="policy must be deterministic"):
        world.simulate(uniform, 10, rng, "occupancy")
    with pytest.raises(InvalidArgument, match="policy is for another world"):
        world.value(Policy.uniform(3, 4, 2))


# Specs.


def test_what_an_agent_may_know():
    world = LinearWorld(**factors(13), start=[0.5, 0.5, 0.0])
    spec = world.spec
    assert isinstance(spec, FiniteSpec)
    assert (spec.states, spec.actions, spec.horizon, spec.dimension) == (3, 2, 3, 4)
    assert (spec.reward_values, spec.start) == ((0.0, 1.0), (0.5, 0.5, 0.0))
    assert spec.nonnegative
    assert spec.known_rewards is None
    assert (spec.features == world.features).all()
    assert not spec.features.flags.writeable
    told = LinearWorld(**factors(13), start=[0.5, 0.5, 0.0], known_rewards=True).spec
    assert (told.known_rewards == world.model.mean_rewards).all()
    assert told != spec
    assert replace(told, known_rewards=None) == spec
    signed = LinearWorld([[[-1.0]]], [[[-1.0]]], [[-0.5]], 1)
    assert not signed.spec.nonnegative
    assert signed.optimal_value == 0.5


def test_specs_are_equal_by_content():
    spec = random_world(14).spec
    again = random_world(14).spec
    assert spec == again
    assert spec is not again
    assert hash(spec) == hash(again)
    assert repr(spec) == repr(again)
    assert copy.deepcopy(spec) == spec
    others = [
        random_world(15).spec,
        replace(spec, stationary_rewards=False),
        replace(spec, start=None),
        replace(spec, known_rewards=np.zeros((1, 3, 2))),
        replace(spec, reward_values=(0.0, 0.5, 1.0)),
    ]
    assert len({*others, spec}) == len({repr(one) for one in (*others, spec)}) == 6
    assert spec != FiniteSpec(3, 2, 3, stationary=True, start=spec.start)
    # Zeros are equal whatever their sign.
    zeros = [LinearSpec(**SMALL | {"features": [[[1.0, zero]]]}) for zero in (0.0, -0.0)]
    assert zeros[0] == zeros[1]
    assert hash(zeros[0]) == hash(zeros[1])
    large = random_world(16, states=40, dimension=40).spec
    assert len(repr(large)) < 250


SMALL = {
    "states": 1,
    "actions": 1,
    "horizon": 2,
    "features": [[[1.0, 0.0]]],
    "stationary_transitions": True,
    "stationary_rewards": True,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": 2}, r"features must have shape \(2, 1, d\), got \(1, 1, 2\)"),
        ({"features": [[[np.nan, 0.0]]]}, "features at state 0, action 0 must be finite"),
        ({"known_rewards": [[0.5]]}, r"known_rewards must have shape \(1 or 2, 1, 1\)"),
        ({"known_rewards": [[[1.5]]]}, r"known_rewards must be in \[0, 1\]"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_mistakes_in_specs_are_named(arguments, message):
    assert LinearSpec(**SMALL).stationary
    with pytest.raises(InvalidArgument, match=message):
        LinearSpec(**SMALL | arguments)


# Tabular worlds as linear ones.


def test_a_tabular_world_is_linear():
    tabular = tacit.tabular.riverswim(states=4, horizon=5)
    world = linear_from_tabular(tabular)
    assert world.spec.dimension == 8
    assert world.spec.stationary_transitions
    assert world.spec.nonnegative
    assert world.name == "linear_from_tabular(riverswim:states=4,horizon=5)"
    assert world.optimal_value == tabular.optimal_value
    assert world.baseline_value == tabular.baseline_value
    np.testing.assert_array_equal(
        np.einsum("sad,hdt->hsat", world.features, world.measures), tabular.model.transitions
    )
    assert linear_from_tabular(tabular.model).optimal_value == tabular.optimal_value
    with pytest.raises(InvalidArgument, match="world must be a FiniteModel or have one, got str"):
        linear_from_tabular("riverswim")


def test_a_tabular_worlds_rewards_need_not_be_bernoulli():
    values, probabilities = [0.0, 0.5, 1.0], np.zeros((2, 1, 3))
    probabilities[..., 1] = 1.0
    tabular = tacit.tabular.TabularWorld(np.full((2, 1, 2), 0.5), (values, probabilities), 3)
    world = linear_from_tabular(tabular)
    assert world.spec.reward_values == (0.0, 0.5, 1.0)
    policy = world.optimal_policy
    episodes = world.simulate(policy, 100, np.random.default_rng(0))
    assert (episodes.rewards == 0.5).all()
    again = tabular.simulate(policy, 100, np.random.default_rng(0))
    assert (episodes.states == again.states).all()


def test_losses_are_those_of_the_imported_world():
    imported = tacit.tabular.from_gymnasium("CliffWalking-v1", horizon=5)
    world = linear_from_tabular(imported)
    assert world.reference_value == imported.reference_value == imported.baseline_value


def test_importing_the_family_is_cheap():
    code = (
        "import sys, tacit; tacit.linear.simplex().optimal_value; "
        "slow = {'numba', 'gymnasium', 'matplotlib', 'scipy.stats', 'scipy.optimize', "
        "'tacit.tabular'}; "
        "print(sorted(slow & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
