"""Arguments of continuous agents that are of no use: refused in words, before anything changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit import FittedFunctionalQ, FunctionalQ, JointDP, NonPrivate
from tacit.continuous import (
    BoxSpec,
    Grid,
    InputPerturbation,
    OutputPerturbation,
    Polynomial,
    PrivatePolicyEvaluation,
    line,
)
from tacit.continuous.constants import FunctionalConstants
from tacit.continuous.printed_functional_q import PrintedFunctionalQ
from tacit.continuous.printed_state import PrintedSettings
from tacit.core.vector_episodes import VectorEpisodes
from tacit.linear import two_state
from tacit.linear.spec import LinearSpec
from tacit.lq import double_integrator, random_system
from tacit.mixture import mixture_of_models
from tacit.mixture.spec import MixtureSpec
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.storage import read_state, write_state

JOINT = JointDP(1.0, 1e-5)
WORLD = line(horizon=4)
NO_NUMBER = ("much", 1j, None, True, float("nan"), object(), [1.0])


@pytest.mark.parametrize(
    ("make", "name", "values"),
    [
        (FittedFunctionalQ, "clip", ("much", 0.0, -1.0, 1j, True, np.ones(2))),
        (FittedFunctionalQ, "releases", ("many", 0, 1.5, 1j, True, np.ones(2))),
        (FittedFunctionalQ, "discount", ("much", 1.0, -0.1, 1j, True)),
        (FittedFunctionalQ, "ends", ("no", 0, 1.0, [])),
        (FittedFunctionalQ, "constants", ({}, 0, "grid", FunctionalConstants)),
        (FittedFunctionalQ, "kernel", (1.0, "smooth", [], np.ones(2))),
        (FittedFunctionalQ, "protect", ("all", 1, [], np.ones(2))),
        (FittedFunctionalQ, "radius", (1.0,)),
        (FunctionalQ, "batch", ("many", 0, 2.5, 1j, True)),
        (FunctionalQ, "epsilon", (*NO_NUMBER, 0.0, 1.5)),
        (FunctionalQ, "discount", ("much", 1.0, 1j)),
        (InputPerturbation, "features", (0, "grid", [], Grid, Grid((0, 0), (1, 1), (3, 3)))),
        (InputPerturbation, "ridge", (*NO_NUMBER, 0.0)),
        (InputPerturbation, "discount", ("much", 1.0, 1j)),
        (InputPerturbation, "protect", ("all", 1, [])),
        (OutputPerturbation, "features", (0, "grid", [], Grid)),
        (OutputPerturbation, "radius", ("much", 0.0, 1j, True)),
        (OutputPerturbation, "ridge", (*NO_NUMBER, 0.0)),
        (PrivatePolicyEvaluation, "features", (0, "grid", [], Polynomial((1.0,), 1.0, 2))),
        (PrivatePolicyEvaluation, "rounds", (*NO_NUMBER, 0, 1.5)),
        (PrivatePolicyEvaluation, "epsilon", (*NO_NUMBER, -0.1, 1.1)),
        (PrivatePolicyEvaluation, "radius", ("much", 0.0, 1j, True)),
    ],
)
def test_options_are_refused_in_words(make, name, values, tmp_path: Path) -> None:
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            make(WORLD.spec, 10, JOINT, ledger=tmp_path / "ledger", **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_deep_options_are_refused_in_words() -> None:
    pytest.importorskip("optax")
    deep = pytest.importorskip("tacit.continuous")
    for name in ("steps", "target_every", "rate", "radius", "users", "seed"):
        for value in (*NO_NUMBER, -1):
            with pytest.raises(InvalidArgument, match=name):
                deep.DeepQ(**{"spec": WORLD.spec, "users": 5, "privacy": JOINT} | {name: value})
    for value in ("wide", 3, (), (0,), (2.5,), (10**9, 10**9)):
        with pytest.raises(InvalidArgument, match=r"hidden|theta"):
            deep.DeepQ(WORLD.spec, 5, JOINT, hidden=value)
    for value in ("much", 1.0, 1j):
        with pytest.raises(InvalidArgument, match="discount"):
            deep.DeepQ(WORLD.spec, 5, JOINT, discount=value)
    with pytest.raises(InvalidArgument, match="privacy"):
        deep.DeepQ(WORLD.spec, 5, "private")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("users", (*NO_NUMBER, 0, 2.5)),
        ("sigma", (*NO_NUMBER, -1.0)),
        ("resets", ("many", 0, 2.5, 41, 1j, True)),
        ("settings", (None, 1.0, [], "best")),
        ("seed", (*NO_NUMBER, -1, 0.5)),
        ("noise_seed", ("a", -1, 0.5, 1j, True)),
        ("privacy", (JOINT, "none")),
    ],
)
def test_printed_options_are_refused_in_words(name, values) -> None:
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            PrintedFunctionalQ(**{"spec": WORLD.spec, "users": 10} | {name: value})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("hidden", ((), 3, (0,), "ab", (1.5,))),
        ("batch", ("many", 0, 1j)),
        ("replay", ("many", 1)),
        ("target_every", (0, "never")),
        ("optimiser", ("adam", 1, [])),
        ("loss", ("none", 1, [])),
        ("rate", (*NO_NUMBER, 0.0)),
        ("discount", (*NO_NUMBER, 1.1)),
        ("exploration", (0.5, (0.5, 0.1), (2.0, 0.1, 5.0), (0.5, 0.1, 0.0), "abc")),
        ("worth_nothing", (1, "no", None)),
    ],
)
def test_printed_settings_are_refused_in_words(name, values) -> None:
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            PrintedSettings(**{name: value})


def test_specs_and_worlds_are_refused_in_words() -> None:
    for value in (-1, "x", {"x"}, ("x", "y"), (1,)):
        with pytest.raises(InvalidArgument, match="names"):
            BoxSpec((0.0,), (1.0,), actions=2, horizon=3, names=value)
    spec = two_state().spec
    sizes = {name: getattr(spec, name) for name in ("states", "actions", "horizon", "features")}
    moves = mixture_of_models(3, 4, 4, 4).spec
    names = ("states", "actions", "horizon", "transition_features", "known_rewards")
    other = {name: getattr(moves, name) for name in (*names, "reward_features")}
    for kind, own in ((LinearSpec, sizes), (MixtureSpec, other)):
        kind(**own, stationary_transitions=True, stationary_rewards=np.True_)
        for name in ("stationary_transitions", "stationary_rewards"):
            flags = {"stationary_transitions": True, "stationary_rewards": True}
            for value in ("no", 0, None, []):
                with pytest.raises(InvalidArgument, match=name):
                    kind(**own, **flags | {name: value})
    for options in ({"n": 10**6}, {"d": 10**6}, {"horizon": 10**10}):
        with pytest.raises(InvalidArgument, match="would need"):
            random_system(**options)
    with pytest.raises(InvalidArgument, match=r"horizon .* would need"):
        double_integrator(horizon=10**10)


# What learns without a gate.


def printed(users: int = 10) -> PrintedFunctionalQ:
    return PrintedFunctionalQ(WORLD.spec, users, NonPrivate(), seed=1, noise_seed=2)


def state_of(agent: PrintedFunctionalQ, path: Path) -> tuple[dict, dict]:
    agent.save(path)
    state = read_state(path, "printed agent")
    return dict(state.meta), {name: array.copy() for name, array in state.arrays.items()}


def assert_same(one: tuple[dict, dict], other: tuple[dict, dict]) -> None:
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, other[1][name])


def test_printed_refuses_what_is_no_episode_and_ids_that_are_none(tmp_path: Path) -> None:
    agent = printed()
    before = state_of(agent, tmp_path / "a")
    episodes = WORLD.simulate(agent.policy, 3, np.random.default_rng(0))
    for data in (1j, "episodes", [episodes], None, {}):
        with pytest.raises(InvalidArgument, match="data"):
            agent.learn(data)
    for ids in ("abc", 3, [1, 2], np.zeros((3, 1)), {1, 2, 3}):
        with pytest.raises(InvalidArgument, match="ids"):
            agent.learn(episodes, ids)
    assert_same(state_of(agent, tmp_path / "b"), before)
    agent.learn(episodes, ["a", "b", "c"])
    assert agent.served == 3


def test_printed_takes_strange_values_as_none() -> None:
    episodes = WORLD.simulate(printed().policy, 3, np.random.default_rng(0))
    block = episodes.block()
    assert isinstance(episodes, VectorEpisodes)
    arrays = {name: np.array(array, dtype=np.float64) for name, array in block.arrays.items()}
    for name, value in (
        *(("actions", np.nan), ("actions", 1e300), ("actions", -5.0), ("lengths", np.nan)),
        *(("lengths", np.inf), ("rewards", np.inf), ("states", np.nan), ("states", 1e308)),
    ):
        strange = {key: array.copy() for key, array in arrays.items()}
        strange[name][1] = value
        agent = printed()
        agent.learn(type(block)(3, strange))
        assert agent.served == 3
        assert np.isfinite(agent.policy.theta).all()


def forged(meta: dict, arrays: dict) -> list[tuple[dict, dict]]:
    """Saves whose checksum is right and that no agent wrote."""
    places = {"path/0/1": np.full_like(arrays["path/0/1"], 10**6)}
    return [
        (meta, arrays | {"theta": arrays["theta"][:-1]}),
        (meta, arrays | {"squares": np.zeros(1)}),
        (meta, arrays | {"replay/1": np.full_like(arrays["replay/1"], 7)}),
        (meta, arrays | places),
        (meta, arrays | {"path/1/3": np.full_like(arrays["path/1/3"], 10**6)}),
        (meta, arrays | {"preference": np.array([5, 6])}),
        (meta, {name: array for name, array in arrays.items() if name != "published"}),
        (meta | {"served": 99}, arrays),
        (meta | {"steps": "many"}, arrays),
        (meta | {"noise": {"bit_generator": "none"}}, arrays),
        (meta | {"rng": 3}, arrays),
        (meta | {"identity": []}, arrays),
        ({key: value for key, value in meta.items() if key != "exploration"}, arrays),
    ]


def test_a_save_that_is_none_leaves_the_agent_as_it_was(tmp_path: Path) -> None:
    saved, agent = printed(), printed()
    rng = np.random.default_rng(0)
    saved.learn(WORLD.simulate(saved.policy, 5, rng))
    agent.learn(WORLD.simulate(agent.policy, 2, rng))
    good = state_of(saved, tmp_path / "good")
    before = state_of(agent, tmp_path / "before")
    for meta, arrays in forged(*good):
        write_state(tmp_path / "forged", "printed agent", meta, arrays)
        with pytest.raises((CorruptFile, InvalidArgument)):
            agent.load(tmp_path / "forged")
        assert_same(state_of(agent, tmp_path / "after"), before)
        assert agent.policy.version == 2
    assert_same(state_of(agent.load(tmp_path / "good"), tmp_path / "after"), good)
