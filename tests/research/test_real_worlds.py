"""Worlds that others wrote: their numbers, their logs, and their own simulators' opinion."""

from __future__ import annotations

import contextlib
import io
import warnings
from importlib.util import find_spec

import numpy as np
import pytest

from research.worlds import build, incentives, skill_teaching
from research.worlds import tabular as real_worlds
from tacit import InvalidArgument, JointDP, PessimisticImprovement, learn_offline

pytestmark = [
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("causaldata", "pyRDDLGym", "icu_sepsis")),
        reason="needs the packages of these worlds",
    ),
    pytest.mark.filterwarnings("ignore"),
]


def test_the_trial_by_hand() -> None:
    """Values from the data itself, summed in another way."""
    import causaldata

    data = causaldata.thornton_hiv.load_pandas().data
    data = data.dropna(subset=["got", "distvct", "tinc", "age"])
    world = incentives(cost=0.1)
    assert world.log.users == len(data) == 2829
    assert world.spec.horizon == 1
    assert (world.spec.states, world.spec.actions) == (9, 4)
    far_old = data[(data.distvct >= 2.0) & (data.age >= 40.0)]
    large = far_old[far_old.tinc > 1.2]
    chance = (large.got.sum() + 1) / (len(large) + 2)
    assert world.model.mean_rewards_at(0)[8, 3] == pytest.approx(chance * 0.79)
    assert world.model.start[8] == pytest.approx(len(far_old) / len(data))
    assert world.people[0] == pytest.approx(
        [
            (data.tinc == 0).mean(),
            *(
                ((data.tinc > a) & (data.tinc <= b)).mean()
                for a, b in ((0, 0.5), (0.5, 1.2), (1.2, 9.0))
            ),
        ]
    )
    assert world.optimal_value == pytest.approx(0.7178, abs=1e-4)
    assert world.baseline_value == pytest.approx(0.5936, abs=1e-4)
    assert world.people_value == pytest.approx(0.6047, abs=1e-4)
    # what participants got, on average, is what the randomisation is worth, but for smoothing
    assert world.log.rewards.mean() == pytest.approx(world.people_value, abs=0.01)


def test_the_trial_can_be_learnt_from() -> None:
    world = incentives()
    found = learn_offline(world.log, world.spec, JointDP(5.0, 1e-6), world.behaviour, noise_seed=0)
    assert world.log.rewards.mean() in found.today
    assert world.value(found.found) in found.value
    agent = PessimisticImprovement(
        world.spec, 100_000, JointDP(1.0, 1e-6), behaviour=world.behaviour, noise_seed=0
    )
    rng = np.random.default_rng(0)
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng))
    recommended = agent.algorithm.recommendation(agent.state)
    assert recommended.better
    assert world.value(recommended.policy) > world.people_value + 0.05
    with pytest.raises(InvalidArgument, match="cost is"):
        incentives(cost=0.5)


def test_the_tutor_by_its_own_simulator() -> None:
    """60 students of the package's own simulator: mean return within 5 standard errors."""
    world = skill_teaching()
    assert (world.spec.states, world.spec.actions, world.spec.horizon) == (63, 5, 40)
    assert world.optimal_value == pytest.approx(66.265, abs=1e-3)
    assert world.baseline_value == pytest.approx(30.548, abs=1e-3)
    P = world.model.transitions_at(0)
    assert P.sum(axis=2) == pytest.approx(np.ones((63, 5)))
    # weights of both skills, of which none is known at the start
    assert world.reward_offset == pytest.approx(-(1.1778302 + 1.2346091))
    assert world.reward_scale == pytest.approx(2 * (1.1778302 + 1.2346091))
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        import pyRDDLGym

        env = pyRDDLGym.make("SkillTeaching_MDP_ippc2011", "1")
    names = [f"{kind}___s{i}" for kind in ("askProb", "giveHint") for i in (0, 1)]
    rng, returns = np.random.default_rng(0), []
    for student in range(60):
        env.reset(seed=student)
        total = 0.0
        for _ in range(40):
            choice = rng.integers(0, 5)
            action = {} if choice == 0 else {names[choice - 1]: True}
            _, reward, *_ = env.step(action)
            total += float(reward)
        returns.append(total)
    exact = world.baseline_value
    error = np.std(returns) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - exact) < 5 * error


def test_tables_are_built_once(monkeypatch) -> None:
    skill_teaching()
    monkeypatch.setattr(real_worlds, "_simulator", lambda: 1 / 0)
    assert skill_teaching(horizon=10).spec.horizon == 10
    assert build("skill_teaching:horizon=10").name == "research.worlds.skill_teaching:horizon=10"
    assert build("incentives:cost=0.2").name == "research.worlds.incentives:cost=0.2"


def test_missing_packages_are_named(monkeypatch) -> None:
    real_worlds._participants.cache_clear()
    monkeypatch.setattr(real_worlds, "import_module", _absent)
    with pytest.raises(InvalidArgument, match="causaldata: pip install causaldata"):
        incentives()


def _absent(name: str) -> None:
    raise ImportError(name)
