"""Verdicts: the control learns from noise alone, and words follow from values."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.privacy.standard import OneHotCounts
from tacit.simulation.result import Result
from tacit.simulation.verdict import SilentUsers, users_needed, verdict

WORLD = "riverswim:states=3,horizon=5"


def made(values, greedy, best=1.0, random=0.0, **control):
    return Result(
        agent="toy",
        world="coin",
        privacy="joint",
        seed=0,
        served=[0, 10, 100, 1000],
        values=values,
        greedy_values=greedy,
        optimal_value=best,
        baseline_value=random,
        reference_value=0.0,
        control=control,
    )


@pytest.mark.parametrize("privacy", [tacit.JointDP(1.0, 1e-6), tacit.LocalDP(1.0, 1e-6)])
def test_silent_users_are_sums_of_zero_with_the_noise_of_all(privacy):
    counts = OneHotCounts(steps=2, cells=3)
    zero = tacit.Block(50, {"cells": np.full((50, 2), -1)})  # no cell: nothing counts
    released = []
    for block in (SilentUsers(50), zero):
        curator = privacy.curator(noise_seed=3)
        curator.add(block)
        released.append(curator.release(counts))
    for name, sums in released[0].parts.items():
        assert np.array_equal(sums, released[1].parts[name])
        assert np.abs(sums).max() > 0.0


def test_a_control_steps_no_user_and_changes_nothing_else():
    world, steps = tacit.world(WORLD), []

    class Counted:
        def __getattr__(self, name):
            return getattr(world, name)

        def simulate(self, policy, users, rng, form):
            steps.append(users)
            return world.simulate(policy, users, rng, form)

    runs = []
    for control in (False, True):
        agent = tacit.UCBVI(world.spec, 20_000, tacit.JointDP(10.0, 1e-6), noise_seed=1)
        runs.append(tacit.run(agent, Counted(), progress=False, control=control))
    assert sum(steps) == 2 * 20_000
    assert not runs[0].control
    assert set(runs[1].control) == {"served_value", "greedy_value", "best_value"}
    assert np.array_equal(runs[0].values, runs[1].values)
    assert runs[1].verdict == "better than random, the first policy and noise"


def test_too_small_a_budget_is_said_with_the_users_that_it_needs():
    given = {"users": 2000, "progress": False}
    poor = tacit.run("ucbvi", WORLD, privacy=tacit.JointDP(0.01, 1e-9), **given)
    assert poor.verdict.partition(";")[0].endswith("noise")
    assert "too few users" in poor.verdict
    assert tacit.Result.from_dict(poor.to_dict()) == poor
    assert poor.to_frame()["noise_value"].tolist()[0] == poor.control["served_value"]
    assert not tacit.run("ucbvi", WORLD, privacy=tacit.NonPrivate(), **given).control


def test_words_follow_from_values():
    assert (
        verdict([made([0, 0, 0.5, 1], [0, 0, 0.5, 1])]) == "better than random and the first policy"
    )
    noisy = {"served_value": 0.1, "greedy_value": 0.6, "best_value": 0.6}
    worse = made([0.3, 0.3, 0.2, 0.2], [0, 0, 0, 0], random=0.25, **noisy)
    assert verdict([worse]) == "not better than random, the first policy or noise"
    batch = made([0.1] * 4, [0.1, 0.2, 0.3, 0.5], **noisy, users_needed=12_345)
    assert verdict([batch]) == (
        "the first policy served everybody, and the greedy one is not better than noise; "
        "too few users: about 12,000 are needed"
    )
    # Near the optimum it has learnt, though noise may be lucky in a small world.
    assert "not" not in verdict([made([0, 0, 0.95, 1], [0] * 4, **noisy | {"best_value": 1.0})])
    # Medians over seeds, with the control of one of them.
    three = [made([0, 0, got, got], [0] * 4) for got in (0.5, 0.7, 0.8)]
    three[0] = replace(three[0], control=noisy)
    assert verdict(three) == "better than random, the first policy and noise"


def test_users_needed_follow_from_a_run_with_less_noise():
    few = made([0.0] * 4, [0.0] * 4, served_value=0.0, greedy_value=0.0, best_value=0.2)
    other = made([0.0, 0.1, 0.95, 1.0], [0.0, 0.95, 0.95, 1.0])
    late = replace(few, values=[0.0, 0.0, 0.1, 0.1])
    assert users_needed(late, other, 50.0) == {"users_needed": 5000}
    assert users_needed(few, other, 50.0) == {}  # a batch: 500 of 1,000 would be enough
    assert users_needed(few, few, 50.0) == {"users_too_few": 50_000}
    unknown = replace(late, optimal_value=None)
    assert users_needed(unknown, replace(other, optimal_value=None), 50.0) == {"users_needed": 5000}
