"""Kernels as feature maps, what is asked on them, and the agent that learns with them."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.worlds import gusts
from tacit import Block, JointDP, LinOptSampled, NonPrivate
from tacit.continuous import Quadrature, SimulatedSpec, line
from tacit.continuous.vector_targets import TargetedMoves
from tacit.numerics.regression import helmert
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.testing.check_agent import check_agent
from tacit.testing.check_statistic import check_statistic
from tests.continuous.test_statistics import users

JOINT = JointDP(1.0, 1e-6)
MAPS = [
    Quadrature((0.0, -1.0), (1.0, 3.0), lengthscale=0.6, nodes=5),
    Quadrature((0.0,), (2.0,), lengthscale=0.5, nodes=8),
]


class TestMaps:
    def test_quadrature_is_the_squared_exponential(self) -> None:
        features = Quadrature((0.0, 0.0), (1.0, 2.0), lengthscale=0.5, nodes=12)
        rng = np.random.default_rng(0)
        points = rng.random((30, 2)) * [1.0, 2.0]
        z, unit = features(points), points / [1.0, 2.0]
        squares = ((unit[:, np.newaxis] - unit) ** 2).sum(axis=-1)
        assert np.abs(z @ z.T - np.exp(-squares / (2 * 0.25))).max() < 1e-4

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from(MAPS), st.lists(st.floats(), min_size=2, max_size=2))
    def test_no_state_has_features_longer_than_one(self, features: Any, x: Any) -> None:
        z = features(np.array(x[: features.dimension]))
        assert np.isfinite(z).all()
        assert np.linalg.norm(z) <= 1 + 1e-9


Z = Quadrature((0.0,), (1.0,), lengthscale=0.5, nodes=3)


def extreme(rng: np.random.Generator, count: int) -> Block:
    """Half of them stay where they are, with one action for ever and rewards at the middle."""
    block = users(rng, count)
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    rows = rng.random(count) < 0.5
    arrays["states"][rows] = arrays["states"][rows][:, :1]
    arrays["actions"][rows] = arrays["actions"][rows][:, :1]
    arrays["rewards"][rows] = 0.25
    arrays["lengths"][rows] = 5
    return Block(count, arrays)


def moves(clip: float = 2.0) -> TargetedMoves:
    spec = SimulatedSpec(
        (0.0,), (1.0,), 2, 4, models=(lambda s, a, g: s, lambda s, a, g: 1 - s), reward=_paid
    )
    rng = np.random.default_rng(0)
    inputs = 3.0 * rng.normal(size=(2, 3, 2))
    tables = {"inputs": inputs, "means": np.zeros((2, 3)), "values": np.zeros(3)}
    known: Any = {"spec": spec, "features": Z, "discount": 0.9, "unit": 1.0}
    return TargetedMoves(2, 1, 4, np.sqrt(2.0) / 50.0, clip, **known, **tables)


def _paid(states: Any) -> Any:
    return np.clip(states[:, 0], 0.0, 1.0)


class TestTargetedMoves:
    def test_sensitivity_holds_and_is_attained(self) -> None:
        check_statistic(moves(), extreme, users=100, rounds=30, attained=0.95)


class TestSimulators:
    WORLD = gusts(dimension=3, horizon=8, seed=2)

    def test_weights_are_found(self) -> None:
        agent = LinOptSampled(self.WORLD.spec, 5_000, NonPrivate())
        result = run(agent, self.WORLD, progress=False)
        true = (self.WORLD.weights - 1 / 3) @ helmert(3)
        assert np.linalg.norm(agent.algorithm.fit(agent.state)[0] - true) < 0.2
        assert result.score > 0.9

    @pytest.mark.slow
    def test_it_passes_check_agent(self) -> None:
        world = gusts(dimension=2, horizon=4, samples=4)
        make = partial(LinOptSampled, privacy=JOINT, schedule="fixed:size=30")
        check_agent(make, world, users=90)

    def test_specs_are_told_apart_by_what_their_models_do(self) -> None:
        assert gusts().spec == gusts().spec
        assert gusts().spec != gusts(seed=1).spec
        with pytest.raises(InvalidArgument, match="or a SimulatedSpec, got BoxSpec"):
            LinOptSampled(line().spec, 10, NonPrivate())
