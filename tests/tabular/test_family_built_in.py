"""What holds for finite worlds that have names, above all linear ones and mixtures."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import tacit.gym  # noqa: F401  (registers ours)
from tacit.linear import simplex, two_state
from tacit.mixture import hard_mixture, mixture_of_models
from tacit.tabular import deep_sea, grid, health_coach, random_mdp, riverswim

TABULAR = (riverswim, grid, deep_sea, random_mdp, health_coach)
OTHERS = (two_state, simplex, hard_mixture, mixture_of_models)


@pytest.mark.parametrize("build", [*TABULAR, *OTHERS])
def test_docstrings_have_the_headings(build):
    lines = [line.strip() for line in build.__doc__.splitlines()]
    places = [
        lines.index(f"{word}:") for word in ("State", "Actions", "Reward", "Optimum", "Source")
    ]
    assert places == sorted(places)


@pytest.mark.parametrize("name", ["TwoState", "Simplex", "HardMixture", "MixtureOfModels"])
def test_registered_worlds_pass_gymnasiums_checker(name):
    env = gymnasium.make(f"tacit/{name}-v0").unwrapped
    # Warnings are errors here.
    check_env(env)
    assert env.spec.to_json()


@pytest.mark.parametrize(
    ("name", "options", "steps"),
    [("TwoState", {"horizon": 3}, 3), ("HardMixture", {"per_step": True}, 6)],
)
def test_an_environment_plays_its_world(name, options, steps):
    env = gymnasium.make(f"tacit/{name}-v0", **options).unwrapped
    policy = env.world.optimal_policy
    rng = np.random.default_rng(0)
    returns = []
    for user in range(2000):
        state, _ = env.reset(seed=0 if user == 0 else None)
        earned = 0.0
        for step in range(steps):
            state, reward, _, over, _ = env.step(policy.act(step, int(state), rng))
            earned += reward
        assert over
        returns.append(earned)
    # Five standard errors: a false alarm in a million.
    assert abs(np.mean(returns) - env.world.optimal_value) < 5 * np.std(returns) / np.sqrt(2000)
