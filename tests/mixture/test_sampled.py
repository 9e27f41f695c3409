"""Mixtures given as simulators: the world, what is asked, the plan, and what is learnt."""

from functools import partial

import numpy as np
import pytest

from research.worlds import currents
from tacit import Block, JointDP, LinOptSampled, LocalDP, NonPrivate, Relation, check_statistic
from tacit.mixture import SampledSpec, mixture_of_models
from tacit.mixture.linopt_sampled import StateTargets, TargetedSums
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.testing.check_agent import check_agent

SMALL = currents(rows=10, columns=20, dimension=3, horizon=5, samples=8)
JOINT = JointDP(1.0, 1e-6)


def stays(states, actions, rng):
    return states


def steps_on(states, actions, rng):
    return (states + 1 + actions) % 4


def spec(**changes):
    given = {"models": (stays, steps_on), "samples": 3}
    given["known_rewards"] = np.repeat(np.eye(4)[np.newaxis, 2, :, np.newaxis], 2, axis=2)
    return SampledSpec(4, 2, 6, True, **given | changes)


class TestSpec:
    def test_draws_are_public_and_the_same_for_everybody(self):
        first, second = spec(), spec()
        assert (first.draws != second.draws).nnz == 0
        assert first.expected(np.arange(4.0))[3, 1].tolist() == [3.0, 1.0]
        assert repr(first) == repr(second)
        assert repr(first) != repr(spec(sampling_seed=1, models=(stays, stays)))

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"models": (stays,)}, "models must be two functions"),
            ({"models": (stays, lambda s, a, rng: s + 1)}, r"models\[1\] must return .* of 0..3"),
            ({"models": (stays, lambda s, a, rng: s / 2)}, r"models\[1\] must return 12 states"),
            ({"known_rewards": np.full((1, 4, 2), 2.0)}, "known_rewards must be in"),
            ({"samples": 0}, "samples must be an integer"),
        ],
    )
    def test_mistakes_are_named(self, changes, words):
        with pytest.raises(InvalidArgument, match=words):
            _ = spec(**changes).draws


class TestWorld:
    def test_values_are_those_of_a_dense_model(self):
        P = np.stack([[SMALL.model.transitions_at(0)[s, a] for a in range(4)] for s in range(200)])
        V = np.zeros(200)
        for _ in range(5):
            V = (SMALL.spec.known_rewards[0] + P @ V).max(axis=1)
        assert SMALL.optimal_value == pytest.approx(V.mean())
        assert SMALL.baseline_value < SMALL.uninformed_value < SMALL.optimal_value


def tables(most=2.0, clip=3.0):
    """Cell (0, 0) and cell (1, 0) have orthogonal inputs, and targets that can be zero."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(3, 4, 2, 2))
    inputs[:, 0, 0], inputs[:, 1, 0] = [2.0, 0.0], [0.0, 2.0]
    values, means = rng.normal(size=(3, 4)), rng.normal(size=(3, 4, 2))
    means[:, 0, 0], means[:, 1, 0] = values[:, 0], values[:, 1]
    weight, tables = np.sqrt(2.0) / most, {"inputs": inputs, "means": means, "values": values}
    return TargetedSums(2, 1, 3, weight, clip, **tables)


def users(rng, count):
    states = rng.integers(-1, 5, (count, 5))
    home = rng.random(count) < 0.5
    states[home] = rng.integers(0, 2, (home.sum(), 1))
    actions = np.where(home[:, np.newaxis], 0, rng.integers(-1, 3, (count, 4)))
    return Block(count, {"states": states, "actions": actions, "rewards": rng.random((count, 4))})


class TestStatistic:
    def test_sensitivity_holds_and_is_attained(self):
        check_statistic(tables(clip=100.0), users, users=120, rounds=30)
        check_statistic(tables(), users, users=120, rounds=30, attained=0.97)
        assert tables().l2(Relation.REPLACE_ONE) == pytest.approx(3.0 * np.sqrt(2.0))
        assert tables().l2(Relation.ZERO_OUT) == pytest.approx(3.0)

    def test_it_is_the_sum_that_a_slow_loop_finds(self):
        statistic, block = tables(clip=5.0), users(np.random.default_rng(1), 40)
        found = statistic.vectors(block)
        for i in range(40):
            gram, cross, trace = np.zeros((2, 2)), np.zeros((2, 1)), 0.0
            for t in range(3):
                s, a, after = block["states"][i, t], block["actions"][i, t], None
                after = block["states"][i, t + 1]
                if not (0 <= s < 4 and 0 <= after < 4 and 0 <= a < 2):
                    continue
                p = statistic.inputs[t, s, a]
                q = statistic.values[t, after] - statistic.means[t, s, a]
                gram += np.outer(p, p)
                cross += (p * q)[:, np.newaxis]
                trace += p @ p + q * q / 4.0
            factor = min(1.0, 5.0 / max(trace, 1e-12))
            expected = statistic.layout.pack({"gram": factor * gram, "cross": factor * cross})
            assert found[i] == pytest.approx(expected)


class TestAgent:
    def test_with_models_without_chance_the_plan_is_exact(self):
        """At the centre of the weights the world is a half of each model."""
        P = np.zeros((4, 2, 4))
        for s in range(4):
            for a in range(2):
                P[s, a, s] += 0.5
                P[s, a, (s + 1 + a) % 4] += 0.5
        told = spec()
        agent = LinOptSampled(told, 10, NonPrivate())
        V = np.zeros(4)
        for h in range(5, -1, -1):
            Q = told.known_rewards[0] + P @ V
            best = Q.max(axis=1, keepdims=True)
            chosen = agent.greedy_policy.actions[h]
            assert np.take_along_axis(Q, chosen[:, np.newaxis], axis=1) == pytest.approx(best)
            V = best[:, 0]

    def test_it_asks_what_the_models_expect_of_the_planned_values(self):
        agent = LinOptSampled(SMALL.spec, 1_000, JOINT, noise_seed=0)
        asked, drawn = agent.statistic, SMALL.spec.draws.toarray()
        phi = (drawn @ asked.values[2]).reshape(200, 4, 3)
        targets = StateTargets(SMALL.spec)
        assert asked.inputs[2] == pytest.approx(phi @ targets.directions)
        assert asked.means[2] == pytest.approx(phi.mean(axis=-1))

    def test_weights_are_found(self):
        """Up to what 64 draws of each model leave open."""
        world = currents(rows=10, columns=20, dimension=3, horizon=5, samples=64)
        agent = LinOptSampled(world.spec, 5_000, NonPrivate())
        result = run(agent, world, progress=False)
        true = world.weights @ StateTargets(world.spec).directions
        found = agent.algorithm.fit(agent.state)[0]
        assert np.linalg.norm(found - true) < 0.15 * np.linalg.norm(true)
        assert result.values[-1] > 0.98 * world.optimal_value

    def test_it_learns_privately(self):
        world = currents(rows=20, columns=30, dimension=4, horizon=8, samples=16, seed=1)
        result = run(LinOptSampled(world.spec, 10_000, JOINT, noise_seed=1), world, progress=False)
        gap = world.optimal_value - world.uninformed_value
        assert result.values[-1] > world.uninformed_value + 0.8 * gap

    def test_what_it_cannot_do_is_refused(self):
        with pytest.raises(InvalidArgument, match="spec must be a SampledSpec"):
            LinOptSampled(mixture_of_models().spec, 10, NonPrivate())
        with pytest.raises(InvalidArgument, match="no 1-norm"):
            LinOptSampled(SMALL.spec, 10, JointDP(1.0, 0.0), noise_seed=0)

    @pytest.mark.slow
    @pytest.mark.parametrize("privacy", [JOINT, LocalDP(1.0, 1e-6)])
    def test_it_passes_check_agent(self, privacy):
        make = partial(LinOptSampled, privacy=privacy, schedule="fixed:size=40")
        check_agent(make, currents(5, 6, 3, 4, samples=4), users=120)
