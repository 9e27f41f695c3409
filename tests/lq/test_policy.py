import os
import stat

import numpy as np
import pytest

from tacit import InvalidArgument
from tacit.lq import GainPolicy


def policy(noise=0.25, version=7):
    gains = np.random.default_rng(0).normal(size=(3, 2, 4))
    return GainPolicy(gains, noise, version)


def test_act_is_the_gain_times_the_state_plus_signs():
    p, rng = policy(), np.random.default_rng(1)
    x = np.arange(4.0)
    seen = set()
    for _ in range(200):
        away = (p.act(2, x, rng) - p.gains[2] @ x) / p.noise
        np.testing.assert_allclose(np.abs(away), 1.0, rtol=1e-12)
        seen.add(tuple(np.sign(away)))
    # Each of the four is missed with probability .75^200.
    assert len(seen) == 4
    quiet = policy(noise=0.0)
    np.testing.assert_array_equal(quiet.act(0, x, rng), quiet.gains[0] @ x)


def test_act_without_noise_draws_nothing():
    first, second = np.random.default_rng(3), np.random.default_rng(3)
    policy(noise=0.0).act(0, np.zeros(4), first)
    assert first.random() == second.random()


@pytest.mark.parametrize(
    ("step", "state", "words"),
    [
        (3, np.zeros(4), "step must be in 0..2"),
        (-1, np.zeros(4), "step must be in 0..2"),
        (1.0, np.zeros(4), "step must be an integer"),
        (True, np.zeros(4), "step must be an integer"),
        (0, np.zeros(3), r"state must have shape \(4,\)"),
    ],
)
def test_act_refuses_other_steps_and_shapes(step, state, words):
    with pytest.raises(InvalidArgument, match=words):
        policy().act(step, state, np.random.default_rng(0))


def test_gains_are_a_copy_that_nobody_can_change():
    gains = np.zeros((1, 1, 1))
    p = GainPolicy(gains)
    gains[:] = 1.0
    assert p.gains[0, 0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        p.gains[0, 0, 0] = 1.0


def test_published_file_holds_plain_arrays_for_everybody(tmp_path):
    p, path = policy(), tmp_path / "policy.npz"
    p.publish(path)
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    assert set(arrays) == {"format", "kind", "version", "gains", "noise", "hash"}
    assert str(arrays["kind"]) == "gains"
    assert int(arrays["version"]) == 7
    np.testing.assert_array_equal(arrays["gains"], p.gains)
    assert float(arrays["noise"]) == p.noise


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gains": np.zeros((2, 2))}, "gains must have shape"),
        ({"gains": np.zeros((0, 1, 1))}, "gains must have shape"),
        ({"gains": [[[np.inf]]]}, "gains must be finite"),
        ({"gains": [[["a"]]]}, "gains must be an array of numbers"),
        ({"noise": -0.1}, "noise must be a finite number >= 0"),
        ({"noise": np.nan}, "noise must be a finite number >= 0"),
        ({"noise": True}, "noise must be a finite number >= 0"),
        ({"noise": "1"}, "noise must be a finite number >= 0"),
        ({"version": -1}, "version must be an integer >= 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(InvalidArgument, match=words):
        GainPolicy(**({"gains": np.zeros((1, 1, 1))} | arguments))
