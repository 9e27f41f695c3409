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
from tacit.mixture import MixtureSpec, MixtureWorld, mixture_from_tabular
from tacit.simulation.run import run

# Every statistical test here has a fixed seed and would alarm falsely with about this probability.
ALARM = 1e-6


def parts(seed=0, states=3, actions=2, dimension=4, horizon=3, steps=(1, 1)):
    """Base models, weights on the simplex, and rewards in [0, 1]."""
    rng = np.random.default_rng(seed)
    return {
        "transition_features": rng.dirichlet(np.ones(states), (states, actions, dimension)),
        "weights": rng.dirichlet(np.ones(dimension), steps[0]),
        "rewards": rng.random((steps[1], states, actions)),
        "horizon": horizon,
    }


def random_world(*args, **options):
    return MixtureWorld(**parts(*args, **options))


def all_policies(spec):
    H, S, A = spec.horizon, spec.states, spec.actions
    for actions in itertools.product(range(A), repeat=H * S):
        yield Policy.deterministic(np.reshape(actions, (H, S)), A)


def brute_value(world, policy):
    """Over all paths of states, from features and weights alone."""
    H, S = world.spec.horizon, world.spec.states
    total = 0.0
    for path in itertools.product(range(S), repeat=H):
        p, earned = float(world.model.start[path[0]]), 0.0
        for h, s in enumerate(path):
            a = policy.actions[h, s]
            earned += world.rewards[min(h, len(world.rewards) - 1), s, a]
            if h + 1 < H:
                theta = world.weights[min(h, len(world.weights) - 1)]
                p *= world.transition_features[s, a, :, path[h + 1]] @ theta
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
    """Another basis makes features and weights signed, and the world no different."""
    steps = tuple(horizon if one else 1 for one in per_step)
    made = parts(seed, states, actions, dimension, horizon, steps)
    world = MixtureWorld(**made)
    P = np.einsum("sait,hi->hsat", made["transition_features"], made["weights"])
    np.testing.assert_allclose(world.model.transitions, P, atol=1e-12)
    np.testing.assert_allclose(world.model.mean_rewards, made["rewards"], atol=1e-12)
    # A rotation, so that nothing is lost to rounding.
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dimension, dimension)))
    turned = MixtureWorld(
        np.einsum("ji,sait->sajt", basis, made["transition_features"]),
        made["weights"] @ basis.T,
        made["rewards"],
        horizon,
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


def test_rewards_have_their_mean_in_every_form():
    world = random_world(4, steps=(1, 3))
    n = 10**9
    rng = np.random.default_rng(5)
    block = world.simulate(world.optimal_policy, n, rng, "occupancy")
    assert set(block.arrays) == {"actions", "transitions", "rewards"}
    assert (block["actions"] == world.optimal_policy.actions).all()
    counts = world.simulate(world.optimal_policy, n, rng, "counts")
    # A return is in [0, 3], so its deviation is at most 1.5; five of them are a false alarm in a
    # million.
    for summed in (block["rewards"].sum(), counts["rewards"].sum()):
        assert abs(summed / n - world.optimal_value) < 5 * 1.5 / np.sqrt(n)
    few = 10**5
    episodes = world.simulate(world.optimal_policy, few, rng)
    assert set(np.unique(episodes.rewards)) == {0.0, 1.0}
    mean = episodes.rewards.sum() / few
    assert abs(mean - world.optimal_value) < 5 * 1.5 / np.sqrt(few)
    with pytest.raises(InvalidArgument, match="form must be one of"):
        world.simulate(world.optimal_policy, 10, rng, "table")


def test_actions_keep_their_labels():
    world = random_world(6)
    assert not world.exchangeable_actions

    class Watching(MixtureWorld):
        def simulate(self, policy, users, rng, form="episodes"):
            served.append(policy)
            return super().simulate(policy, users, rng, form)

    served = []
    agent = tacit.UCBVI(world.spec, users=1000, privacy=tacit.NonPrivate(), noise_seed=0)
    first = agent.policy
    run(agent, Watching(**parts(6)), seed=1)
    assert (served[0].table() == first.table()).all()


def test_tabular_agents_run_on_mixture_worlds(tmp_path):
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
    assert agent(world.spec).load(tmp_path / "agent").served == 300_000
    stranger = agent(random_world(8, states=4, actions=3, horizon=4).spec)
    with pytest.raises(InvalidArgument, match="spec"):
        stranger.load(tmp_path / "agent")


def test_an_agent_for_other_features_is_refused():
    world, other = random_world(9), random_world(10)
    agent = tacit.UCBVI(other.spec, users=100, privacy=tacit.NonPrivate(), noise_seed=0)
    with pytest.raises(InvalidArgument, match="agent is for a world with transition_features"):
        tacit.run(agent, world)


def test_it_says_what_it_is():
    world = random_world(11)
    assert world.name == "mixture"
    assert repr(world) == "<MixtureWorld 'mixture': 3 states, 2 actions, 3 steps>"
    arrays = (
        *(world.transition_features, world.weights, world.rewards, world.coordinates),
        world.model.transitions,
    )
    for array in arrays:
        assert not array.flags.writeable
    made = parts(11)
    world = MixtureWorld(**made)
    made["transition_features"][:] = 0.0
    assert (world.transition_features > 0).all()


GOOD = {
    "transition_features": [[np.eye(2)] * 2] * 2,
    "weights": [[0.25, 0.75]],
    "rewards": [[[0.0, 0.5], [1.0, 0.5]]],
    "horizon": 3,
}
BROKEN = np.array(GOOD["transition_features"])
BROKEN[0, 1, 1, 0] = np.inf
SHORT = np.array(GOOD["transition_features"])
SHORT[1, 0, 1] = 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"transition_features": [[1.0]]},
            r"transition_features must have shape \(S, A, d, S\), got \(1, 1\)",
        ),
        ({"transition_features": np.zeros((2, 2, 3, 1))}, "transition_features must have shape"),
        ({"transition_features": np.zeros((2, 2, 0, 2))}, "transition_features must have shape"),
        ({"transition_features": [[[["a"]]]]}, "transition_features must be an array of numbers"),
        (
            {"transition_features": BROKEN},
            "transition_features at state 0, action 1 must be finite, but entry 1, 0 is inf",
        ),
        ({"weights": [0.25, 0.75]}, r"weights must have shape \(1 or 3, 2\), got \(2,\)"),
        ({"weights": [[0.25, 0.75]] * 2}, r"weights must have shape \(1 or 3, 2\), got \(2, 2\)"),
        ({"weights": [[0.25, np.nan]]}, "weights at step 0 must be finite, but entry 1 is nan"),
        (
            {"weights": [[0.25, 0.75], [0.5, 0.5], [0.25, 0.5]]},
            "<transition_features, weights> at step 2, state 0, action 0 must be probabilities "
            "with sum 1, but the sum is 0.75",
        ),
        (
            {"weights": [[1.25, -0.25]]},
            "<transition_features, weights> at step 0, state 0, action 0 must be probabilities, "
            "but entry 1 is -0.25",
        ),
        (
            {"transition_features": SHORT},
            "step 0, state 1, action 0 must be probabilities with sum 1, but the sum is 0.25",
        ),
        (
            {"rewards": [[0.0, 1.0]]},
            r"rewards must have shape \(1 or 3, 2, 2\), got \(1, 2\)",
        ),
        ({"rewards": np.zeros((2, 2, 2))}, r"rewards must have shape \(1 or 3, 2, 2\)"),
        (
            {"rewards": [[[0.0, 0.5], [1.0, np.nan]]]},
            r"rewards at step 0, state 1, action 1 must be in \[0, 1\], got nan",
        ),
        ({"rewards": [[[0.0, 1.5], [1.0, 0.5]]]}, "step 0, state 0, action 1 must be in .* 1.5"),
        ({"reward_features": np.zeros((2, 2))}, r"reward_features must have shape \(2, 2, m\)"),
        ({"reward_features": np.zeros((2, 2, 0))}, r"reward_features must have shape"),
        (
            {"reward_features": np.full((2, 2, 1), np.nan)},
            "reward_features at state 0, action 0 must be finite, but entry 0 is nan",
        ),
        (
            {"reward_features": np.ones((2, 2, 1))},
            "rewards at step 0, state 0, action 0 must be <reward_features, omega> for an omega "
            "of that step, but the nearest is 0.5 and not 0",
        ),
        ({"known_rewards": False}, "reward_features must be given where known_rewards is False"),
        ({"center": [0.5]}, r"center must be 2 finite numbers, .* got shape \(1,\)"),
        ({"center": [0.5, np.inf]}, "center must be 2 finite numbers"),
        ({"directions": np.eye(3)}, r"directions must be .* shape \(2, k\), got shape \(3, 3\)"),
        ({"directions": np.zeros((2, 0))}, "directions must be finite numbers of shape"),
        ({"radius": 0.0}, "radius must be a number > 0 and finite, got 0.0"),
        ({"radius": "wide"}, "radius must be a number > 0 and finite, got 'wide'"),
        ({"radius": float("nan")}, "radius must be a number > 0 and finite, got nan"),
        (
            {"center": [0.5, 0.5], "directions": [[1.0], [1.0]]},
            r"weights at step 0 must be center \+ directions @ eta for some eta, but the nearest "
            "differ by 0.25",
        ),
        (
            {"weights": [[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]], "center": [0.5, 0.5]}
            | {"directions": [[1.0], [-1.0]], "radius": 0.4},
            r"weights at step 2 must be center .* radius = 0.4, but \|eta\| is 0.5",
        ),
        ({"radius": 0.5}, r"weights at step 0 .* \|eta\| is 0.790569"),
        ({"horizon": 0}, "horizon must be an integer >= 1, got 0"),
        ({"start": 2}, "start must be a state in 0..1, got 2"),
        ({"start": [0.5, 0.4]}, "start must be probabilities with sum 1"),
    ],
)
def test_mistakes_are_named(arguments, message):
    MixtureWorld(**GOOD)
    with pytest.raises(InvalidArgument, match=message):
        MixtureWorld(**GOOD | arguments)


def test_rounding_is_forgiven():
    """Rows that are right to nine digits become exact probabilities."""
    almost = 1.0 + 1e-12
    world = MixtureWorld(**GOOD | {"weights": [[almost, 1.0 - almost]]})
    assert (world.model.transitions >= 0).all()
    assert (world.model.transitions.sum(axis=-1) == 1).all()


def test_impossible_policies_are_refused():
    world = random_world(12)
    uniform = Policy.uniform(3, 3, 2)
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidArgument, match="policy must be deterministic"):
        world.simulate(uniform, 10, rng, "occupancy")
    with pytest.raises(InvalidArgument, match="policy is for another world"):
        world.value(Policy.uniform(3, 4, 2))


@pytest.mark.parametrize("directions", [[[1.0], [-1.0]], [[2.0, 1.0], [-2.0, -1.0]], np.eye(2)])
def test_coordinates_make_the_weights(directions):
    """Also where directions are neither orthonormal nor independent; then they are the shortest."""
    world = MixtureWorld(**GOOD, center=[0.5, 0.5], directions=directions)
    np.testing.assert_allclose(
        world.spec.center + world.coordinates @ world.spec.directions.T, world.weights
    )
    shortest = np.linalg.pinv(np.array(directions)) @ [-0.25, 0.25]
    np.testing.assert_allclose(world.coordinates[0], shortest, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3])
def test_rewards_are_linear_in_their_features(steps):
    rng = np.random.default_rng(13)
    varphi, omega = rng.dirichlet(np.ones(3), (3, 2)), rng.random((steps, 3))
    made = parts(13) | {"rewards": np.einsum("sam,hm->hsa", varphi, omega)}
    world = MixtureWorld(**made, reward_features=varphi, known_rewards=False)
    np.testing.assert_allclose(world.reward_weights, omega)
    np.testing.assert_allclose(world.model.mean_rewards, made["rewards"])
    assert world.spec.known_rewards is None
    assert (world.spec.reward_features == varphi).all()


# Specs.


def test_what_an_agent_may_know():
    options = {"reward_features": np.eye(6).reshape(3, 2, 6), "start": [0.5, 0.5, 0.0]}
    world = MixtureWorld(**parts(14), **options)
    spec = world.spec
    assert isinstance(spec, FiniteSpec)
    assert (spec.states, spec.actions, spec.horizon) == (3, 2, 3)
    assert (spec.dimension, spec.free, spec.radius) == (4, 4, 2.0)
    assert (spec.center == 0).all()
    assert (spec.directions == np.eye(4)).all()
    assert (spec.reward_values, spec.start) == ((0.0, 1.0), (0.5, 0.5, 0.0))
    assert (spec.known_rewards == world.model.mean_rewards).all()
    assert (spec.transition_features == world.transition_features).all()
    for name in ("transition_features", "reward_features", "known_rewards", "center", "directions"):
        assert not getattr(spec, name).flags.writeable
    untold = MixtureWorld(**parts(14), **options, known_rewards=False).spec
    assert untold != spec
    assert replace(spec, known_rewards=None) == untold
    # Large features are shared and not copied.
    assert spec.transition_features is world.transition_features


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
        replace(spec, reward_features=np.ones((3, 2, 1))),
        replace(spec, reward_values=(0.0, 0.5, 1.0)),
        replace(spec, center=np.ones(4)),
        replace(spec, directions=np.eye(4)[:, :3]),
        replace(spec, radius=1.0),
    ]
    assert len({*others, spec}) == len({repr(one) for one in (*others, spec)}) == 10
    assert spec != FiniteSpec(3, 2, 3, stationary=True, start=spec.start)
    # Zeros are equal whatever their sign.
    zeros = [MixtureSpec(**SMALL | {"center": [0.5, zero]}) for zero in (0.0, -0.0)]
    assert zeros[0] == zeros[1]
    assert hash(zeros[0]) == hash(zeros[1])
    large = random_world(16, states=40, dimension=40).spec
    assert len(repr(large)) < 250


def test_only_arrays_that_cannot_change_are_shared():
    features = np.ones((1, 1, 2, 1))
    view = features[:]
    view.setflags(write=False)
    spec = MixtureSpec(**SMALL | {"transition_features": view})
    features[:] = 5.0
    assert (spec.transition_features == 1).all()


SMALL = {
    "states": 1,
    "actions": 1,
    "horizon": 2,
    "transition_features": [[[[1.0], [1.0]]]],
    "known_rewards": [[[0.5]]],
    "stationary_transitions": True,
    "stationary_rewards": True,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actions": 2}, r"transition_features must have shape \(1, 2, d, 1\), got \(1, 1, 2, 1\)"),
        ({"transition_features": [[[[np.nan]]]]}, "transition_features at state 0, action 0 must"),
        ({"known_rewards": None}, "reward_features and known_rewards must not both be None"),
        ({"known_rewards": [[0.5]]}, r"known_rewards must have shape \(1 or 2, 1, 1\)"),
        ({"known_rewards": [[[1.5]]]}, r"known_rewards must be in \[0, 1\]"),
        ({"known_rewards": [[[np.nan]]]}, r"known_rewards must be in \[0, 1\]"),
        ({"reward_features": [[0.5]]}, r"reward_features must have shape \(1, 1, m\)"),
        ({"center": [0.0]}, "center must be 2 finite numbers"),
        ({"directions": [[1.0]]}, r"directions must be finite numbers of shape \(2, k\)"),
        ({"radius": -1.0}, "radius must be a number > 0"),
        ({"radius": True}, "radius must be a number > 0"),
        ({"horizon": 0}, "horizon"),
    ],
)
def test_mistakes_in_specs_are_named(arguments, message):
    assert MixtureSpec(**SMALL).stationary
    with pytest.raises(InvalidArgument, match=message):
        MixtureSpec(**SMALL | arguments)


# Tabular worlds as linear mixtures.


def test_a_tabular_world_is_a_mixture():
    tabular = tacit.tabular.riverswim(states=4, horizon=5)
    world = mixture_from_tabular(tabular)
    spec = world.spec
    assert (spec.dimension, spec.free) == (32, 24)
    assert spec.stationary_transitions
    assert spec.known_rewards is None
    assert world.name == "mixture_from_tabular(riverswim:states=4,horizon=5)"
    assert world.optimal_value == tabular.optimal_value
    assert world.baseline_value == tabular.baseline_value
    P = tabular.model.transitions
    assert (np.einsum("sait,hi->hsat", world.transition_features, world.weights) == P).all()
    rewards = np.einsum("sam,hm->hsa", world.reward_features, world.reward_weights)
    np.testing.assert_allclose(rewards, tabular.model.mean_rewards, atol=1e-12)
    # Whatever the coordinates, probabilities of every state and action add up to 1.
    np.testing.assert_allclose(spec.directions.T @ spec.directions, np.eye(24), atol=1e-12)
    any_weights = spec.center + spec.directions @ np.random.default_rng(0).normal(size=24)
    sums = np.einsum("sait,i->sa", spec.transition_features, any_weights)
    np.testing.assert_allclose(sums, 1.0)
    assert mixture_from_tabular(tabular.model).optimal_value == tabular.optimal_value
    told = mixture_from_tabular(tabular, known_rewards=True).spec.known_rewards
    assert (told == tabular.model.mean_rewards).all()


def test_tabular_worlds_without_chance_and_with_steps_fit_too():
    rng = np.random.default_rng(1)
    P = np.eye(3)[rng.integers(3, size=(4, 3, 2))]
    tabular = tacit.tabular.TabularWorld(P, rng.random((4, 3, 2)), 4)
    world = mixture_from_tabular(tabular)
    assert not world.spec.stationary_transitions
    assert not world.spec.stationary_rewards
    np.testing.assert_allclose(np.linalg.norm(world.coordinates, axis=1), world.spec.radius)
    assert world.optimal_value == tabular.optimal_value


def test_a_tabular_worlds_rewards_need_not_be_bernoulli():
    values, probabilities = [0.0, 0.5, 1.0], np.zeros((2, 1, 3))
    probabilities[..., 1] = 1.0
    tabular = tacit.tabular.TabularWorld(np.full((2, 1, 2), 0.5), (values, probabilities), 3)
    world = mixture_from_tabular(tabular)
    assert world.spec.reward_values == (0.0, 0.5, 1.0)
    policy = world.optimal_policy
    episodes = world.simulate(policy, 100, np.random.default_rng(0))
    assert (episodes.rewards == 0.5).all()
    again = tabular.simulate(policy, 100, np.random.default_rng(0))
    assert (episodes.states == again.states).all()


def test_losses_are_those_of_the_imported_world():
    imported = tacit.tabular.from_gymnasium("FrozenLake-v1", horizon=5)
    world = mixture_from_tabular(imported)
    assert world.reference_value == imported.reference_value == imported.baseline_value


def test_tabular_worlds_that_do_not_fit_are_refused():
    with pytest.raises(InvalidArgument, match="world must be a FiniteModel or have one, got str"):
        mixture_from_tabular("riverswim")
    with pytest.raises(InvalidArgument, match=r"80 states and 2 actions.* 12,800 features.* bytes"):
        mixture_from_tabular(tacit.tabular.riverswim(states=80))
    one = tacit.tabular.TabularWorld([[[1.0], [1.0]]], [[0.0, 1.0]], 2)
    with pytest.raises(InvalidArgument, match="at least 2 states"):
        mixture_from_tabular(one)
    with pytest.raises(InvalidArgument, match="known_rewards must be True or False, got 1"):
        mixture_from_tabular(tacit.tabular.riverswim(), known_rewards=1)


def test_importing_the_family_is_cheap():
    code = (
        "import sys, tacit; tacit.mixture.mixture_of_models().optimal_value; "
        "slow = {'numba', 'gymnasium', 'matplotlib', 'scipy.stats', 'scipy.optimize', "
        "'tacit.tabular', 'tacit.linear'}; "
        "print(sorted(slow & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
