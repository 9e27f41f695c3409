"""Regularisers: what they promise, which one is chosen, and one of your own."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from tacit import LDPUCRLVTR, JointDP, LinOptPO, LinOptVI, LocalDP, NonPrivate
from tacit.audit.check_agent import check_agent
from tacit.audit.watched_gate import difference, snapshot
from tacit.core.agent import Agent
from tacit.mixture import mixture_of_models
from tacit.mixture.regularisers import FixedRidge, NoiseRidge, NoiseShift, Regularised
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]

WORLD = mixture_of_models(3, 4, 4, 4, seed=700, known_rewards=False)
JOINT = JointDP(10.0, 1e-6)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def noisy(rng: np.random.Generator, k: int, rows: int, std: float) -> tuple[Floats, Floats]:
    """A Gram matrix, and noise of equal size in all directions of the Frobenius norm."""
    x, n = rng.normal(size=(rows, k)), rng.normal(0.0, std, (k, k))
    return x.T @ x, (n + n.T) / 2.0


CASES = st.tuples(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 9))


@given(CASES, st.floats(1e-3, 1e3))
@settings(max_examples=40, deadline=None)
def test_a_fixed_ridge_is_what_it_is(case: tuple[int, int, int], ridge: float) -> None:
    seed, k, rows = case
    gram, _ = noisy(np.random.default_rng(seed), k, rows, 0.0)
    found = FixedRidge(ridge)(gram, 0.0, 0.0, 0.1)
    np.testing.assert_allclose(found.matrix, gram + ridge * np.eye(k), atol=1e-9 * (1 + gram.max()))
    assert (found.smallest, found.largest, found.shift) == (ridge, ridge, 0.0)


@given(CASES, st.sampled_from([0.0, 0.01, 3.0, 100.0]), st.sampled_from([0.0, 5.0]))
@settings(max_examples=60, deadline=None)
def test_all_of_them_can_be_inverted(
    case: tuple[int, int, int], std: float, cross_noise: float
) -> None:
    """Also where the noise is larger than was promised."""
    seed, k, rows = case
    gram, noise = noisy(np.random.default_rng(seed), k, rows, std)
    for regulariser in (FixedRidge(), NoiseShift(), NoiseRidge(), NoiseShift(0.1)):
        found = regulariser(gram + 10.0 * noise, std, cross_noise, 0.1)
        assert np.array_equal(found.matrix, found.matrix.T) or np.allclose(
            found.matrix, found.matrix.T
        )
        assert np.linalg.eigvalsh(found.matrix).min() >= found.smallest * (1 - 1e-6) > 0.0
        assert found.largest >= found.smallest
        assert found.shift >= 0.0


@pytest.mark.parametrize("failure", [0.5, 0.05])
@pytest.mark.parametrize(("std", "cross"), [(2.0, 3.0), (30.0, 1.0), (0.01, 0.5)])
def test_a_shift_keeps_its_promise(std: float, cross: float, failure: float) -> None:
    """smallest I <= M <= largest I and |z| in the norm of Lambda^-1, with their probability."""
    rng, runs, k, wrong = np.random.default_rng(0), 1500, 4, 0
    for _ in range(runs):
        gram, noise = noisy(rng, k, 6, std)
        z = rng.normal(0.0, cross, k)
        found = NoiseShift()(gram + noise, std, cross, failure)
        M = np.linalg.eigvalsh(found.matrix - gram)
        far = math.sqrt(z @ np.linalg.solve(found.matrix, z))
        good = M.min() >= found.smallest - 1e-9 and M.max() <= found.largest + 1e-9
        wrong += not good or far > found.shift + 1e-12
    assert wrong <= binom.ppf(1.0 - 1e-6, runs, failure)


def test_shifts_grow_with_noise_and_certainty() -> None:
    levels = [NoiseShift()(np.eye(2), std, 0.0, 0.1).smallest for std in (0.0, 0.1, 1.0, 10.0)]
    assert levels[:2] == [1.0, 1.0]
    assert levels[1] < levels[2] < levels[3]
    sure, rather = (NoiseShift()(np.eye(2), 1.0, 1.0, p) for p in (1e-9, 0.1))
    assert sure.smallest > rather.smallest
    ridges = [NoiseRidge(0.5, 2.0)(np.eye(4), std, 0.0, 0.1).smallest for std in (0.0, 3.0)]
    assert ridges == [0.5, 0.5 + 2.0 * 3.0 * 2.0]


# Which one is used.


def made(cls: Any = LinOptVI, privacy: Any = JOINT, **options: Any) -> Agent:
    agent: Agent = cls(
        WORLD.spec, 240, privacy, **{"noise_seed": 0, "schedule": "fixed:size=60"} | options
    )
    return agent


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_defaults_follow_bonus_and_privacy(cls: Any) -> None:
    local = LocalDP(20.0, 1e-6)
    assert made(cls, NonPrivate(), bonus="theory").algorithm.chosen_regulariser == FixedRidge()
    for privacy in (JOINT, local):
        assert made(cls, privacy, bonus="theory").algorithm.chosen_regulariser == NoiseShift()
    for privacy in (NonPrivate(), JOINT, local):
        chosen = made(cls, privacy).algorithm.chosen_regulariser
        assert isinstance(chosen, NoiseRidge)
        # Beside what one user shows, next to nothing.
        assert 0.0 < chosen.ridge < 0.1
    assert made(cls, regulariser=FixedRidge(3.0)).algorithm.chosen_regulariser == FixedRidge(3.0)
    assert made(LDPUCRLVTR, local).algorithm.chosen_regulariser == NoiseShift()


# One of your own, as the documentation shows it.


@dataclass(frozen=True)
class DoubleShift:
    """Twice the operator norm that is typical of the noise, whatever the failure."""

    least: float = 0.1

    def __call__(
        self, gram: Floats, gram_noise: float, cross_noise: float, failure: float
    ) -> Regularised:
        k = len(gram)
        level = self.least + 2.0 * gram_noise * math.sqrt(2.0 * k)
        values, vectors = np.linalg.eigh(gram)
        matrix = (vectors * (np.maximum(values, 0.0) + level)) @ vectors.T
        shift = 2.0 * cross_noise * math.sqrt(k / level)
        return Regularised(matrix, smallest=level, largest=3.0 * level, shift=shift)


@pytest.mark.parametrize("statistic", ["model", "values"])
@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_a_regulariser_of_your_own(cls: Any, statistic: str) -> None:
    make = partial(
        cls,
        privacy=JOINT,
        regulariser=DoubleShift(),
        statistic=statistic,
        schedule="fixed:size=60",
        **{"steps": 2} if cls is LinOptPO else {},
    )
    check_agent(make, WORLD, users=240)


@pytest.mark.parametrize("bonus", ["practical", "theory"])
@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_it_is_asked_for_every_matrix(cls: Any, bonus: str) -> None:
    """With what is true of it: noise that was added, and a failure that adds up to what is left."""
    calls: list[tuple[int, float, float, float]] = []

    def mine(gram: Floats, gram_noise: float, cross_noise: float, failure: float) -> Regularised:
        calls.append((len(gram), gram_noise, cross_noise, failure))
        return NoiseShift()(gram, gram_noise, cross_noise, failure)

    agent = made(cls, regulariser=mine, bonus=bonus, statistic="values", stationary=False)
    rng, releases = np.random.default_rng(0), 0
    while agent.block_users:
        agent.learn(WORLD.simulate(agent.policy, 60, rng, "episodes"))
        releases += 1
        # A row for each step, and one for the rewards, which are the same at every step.
        assert sorted(k for k, *_ in calls) == sorted([WORLD.spec.free] * 4 + [4])
        noise = {k: g for k, g, _, _ in calls}
        assert noise[4] == pytest.approx(2.0 * noise[WORLD.spec.free])
        assert noise[4] > 0
        assert sum(failure for *_, failure in calls) <= agent.failure / agent.schedule.releases
        calls.clear()
    assert releases == 4


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_it_is_part_of_what_a_save_is_for(cls: Any, tmp_path: Any) -> None:
    path, rng = tmp_path / "state", np.random.default_rng(0)
    users = WORLD.simulate(made(cls).policy, 240, rng, "episodes").block()
    agent = made(cls, regulariser=DoubleShift())
    agent.learn(users.take(slice(0, 90)))
    agent.save(path)
    for other in (DoubleShift(0.2), NoiseShift(), None):
        with pytest.raises(InvalidArgument, match="another agent: regulariser"):
            made(cls, regulariser=other).load(path)
    again = made(cls, regulariser=DoubleShift()).load(path)
    for each in (agent, again):
        each.learn(users.take(slice(90, 240)))
    assert agent.releases == 4
    assert not difference(snapshot(agent), snapshot(again))


def test_what_cannot_be_called_is_refused() -> None:
    for wrong in (1.0, "shift", np.eye(2)):
        with pytest.raises(InvalidArgument, match="regulariser must be callable"):
            made(regulariser=wrong)
    for name, value in (("regulariser", FixedRidge()), ("statistic", "model")):
        with pytest.raises(InvalidArgument, match=f"a {name} of its own"):
            made(LDPUCRLVTR, LocalDP(20.0, 1e-6), **{name: value})
