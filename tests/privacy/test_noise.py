"""Noise: one sampler for people and simulations; real noise is never repeated, a seed's always."""

import copy
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise


def test_simulations_repeat_and_real_noise_does_not():
    assert np.array_equal(Noise(3).normal((5,)), Noise(3).normal((5,)))
    assert not np.array_equal(Noise().normal((5,)), Noise().normal((5,)))


def test_real_noise_cannot_be_copied():
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="repeat"):
            copier(Noise())
    twin = copy.deepcopy(Noise(3))
    assert np.array_equal(twin.normal((4,)), Noise(3).normal((4,)))


def _draw(noise, queue):
    queue.put(noise.normal((4,)).tolist())


def test_a_forked_process_does_not_repeat_its_parents_noise():
    context = multiprocessing.get_context("fork")
    noise, queue = Noise(), context.Queue()
    children = [context.Process(target=_draw, args=(noise, queue)) for _ in range(2)]
    for child in children:
        child.start()
    draws = [tuple(queue.get(timeout=600)) for _ in children] + [tuple(noise.normal((4,)))]
    for child in children:
        child.join()
    assert len(set(draws)) == 3


def test_every_real_draw_asks_the_operating_system(monkeypatch):
    """There is no key and no state: with the same bytes the same numbers come again."""
    asked = []

    def bytes_of(count):
        asked.append(count)
        return np.random.default_rng(count).bytes(count)

    monkeypatch.setattr(os, "urandom", bytes_of)
    noise = Noise()
    before = vars(noise).copy()
    first = noise.normal((1000,)), noise.laplace((1000,)), noise.uniform((10,))
    # Two words of 64 bits for every number, and one for a uniform.
    assert sum(asked) >= 16 * 2000 + 8 * 10
    again = noise.normal((1000,)), noise.laplace((1000,)), noise.uniform((10,))
    assert all(np.array_equal(x, y) for x, y in zip(first, again, strict=True))
    assert vars(noise) == before == {"_rng": None}


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("scale", [0.7, 54_321.5, 2.0**50])
def test_real_and_simulated_noise_are_one_sampler(pure, scale, monkeypatch):
    """The same bits give the same numbers, and every number is asked for in the same way."""
    simulated, bits = Noise(9), Noise(9)
    monkeypatch.setattr(os, "urandom", bits._bytes)
    real = Noise()
    assert simulated.simulation
    assert not real.simulation
    for count in (1, 3, 1000):
        drawn = simulated.steps(pure, scale, count)
        assert drawn.dtype == np.int64
        assert np.array_equal(real.steps(pure, scale, count), drawn)
    assert np.array_equal(real.words(5), simulated.words(5))


def test_sums_of_devices_are_for_simulations():
    for draw in (lambda n: n.laplace_sum(3, (2,)), lambda n: n.binomial(np.array([3]), 0.5)):
        assert draw(Noise(1)).size
        with pytest.raises(InvalidArgument, match="user by user"):
            draw(Noise())


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1"])
def test_bad_seeds_are_refused(seed):
    with pytest.raises(InvalidArgument, match="noise_seed"):
        Noise(seed)


# Each Kolmogorov-Smirnov test below rejects a true hypothesis with probability 1e-6.


@pytest.mark.parametrize("count", [1, 2, 30])
def test_laplace_sums_in_one_draw(count):
    noise = Noise(2)
    one_by_one = noise.laplace((20_000, count)).sum(axis=1)
    at_once = noise.laplace_sum(count, (20_000,))
    assert stats.ks_2samp(one_by_one, at_once).pvalue > 1e-6
