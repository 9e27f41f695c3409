"""What the authors' public code adds to Algorithm 1."""

from __future__ import annotations

import numpy as np
import pytest

from research.functional_noise import returns
from research.wang_public_code import Code, NoisePath, public_code
from tacit.continuous import line


@pytest.fixture(autouse=True)
def _values_are_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("research.wang_public_code._greedy_value", lambda *_: 0.0)


def late(seed: int, sigma: float, **options) -> float:
    """The mean return of the last ten of a hundred users."""
    result = public_code(line(), sigma=sigma, seed=seed, noise_seed=seed + 1, **options)
    return float(result.values[-10:].mean())


def test_returns_of_the_public_code() -> None:
    """Without noise 20.3 (.2), with sigma .8 only 12 (4): the bands hold every seed."""
    for seed in (500, 501):
        assert 19.5 < late(seed, 0.0) < 20.8
    assert late(500, 0.8) < 18.0


def test_what_the_paper_states_does_not_learn() -> None:
    """78 gradient steps of 3e-4 hardly move the network."""
    assert np.mean(returns((100, 0.32, None, True), 500)[-10:]) < 15.0


def test_nothing_is_guaranteed() -> None:
    result = public_code(line(), users=2)
    assert result.guarantee is None
    assert "without noise" in result.reason


def test_labels_are_names_of_actions() -> None:
    """With the labels the other way round, and the network's outputs too, users do the same."""
    one = public_code(line(), users=3, sigma=0.0, code=Code(exploration=(1.0, 1.0, 1.0)))
    other = public_code(
        line(), users=3, sigma=0.0, code=Code(exploration=(1.0, 1.0, 1.0)), labels=(1, 0)
    )
    # Where somebody is pushed to the right she is now pushed to the left.
    assert not np.allclose(one.values, other.values)
    assert (one.values > 0).all()


def test_noise_on_rewards_is_for_learning_only() -> None:
    """Returns are what users got."""
    given = {"users": 4, "sigma": 0.0, "code": Code(exploration=(1.0, 1.0, 1.0))}
    plain, noisy = (public_code(line(), reward_noise=std, **given) for std in (0.0, 100.0))
    np.testing.assert_allclose(plain.values, noisy.values)
    assert np.abs(plain.policy.theta - noisy.policy.theta).max() > 0.0


def test_resets_do_not_matter_without_noise() -> None:
    one, two = (public_code(line(), users=4, sigma=0.0, resets=j) for j in (1, 7))
    np.testing.assert_array_equal(one.values, two.values)
    one, two = (public_code(line(), users=4, sigma=0.5, resets=j) for j in (1, 7))
    assert not np.array_equal(one.values, two.values)


def test_paths_have_the_covariance_of_the_kernel_and_keep_their_values() -> None:
    rng, runs, beta, sigma = np.random.default_rng(6), 4000, 2.0, 0.5
    points, values = rng.random(7), np.empty((runs, 8, 2))
    points = np.append(points, points[1])
    for run in range(runs):
        values[run] = NoisePath(2, 20)(rng, (beta, sigma), points)
    np.testing.assert_array_equal(values[:, 7], values[:, 1])
    kernel = sigma**2 * np.exp(-beta * np.abs(points[:, np.newaxis] - points))
    for action in range(2):
        found = values[..., action].T @ values[..., action] / runs
        # An entry's standard deviation is at most sigma^2 sqrt(2 / runs).
        assert np.abs(found - kernel).max() < 7 * sigma**2 * np.sqrt(2 / runs)
    cross = values[..., 0].T @ values[..., 1] / runs
    assert np.abs(cross).max() < 7 * sigma**2 / np.sqrt(runs)
