"""The tests of noise themselves: noise of other shapes is found, and right noise seldom is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.own_path import noise_tests
from tests.own_path.noise_tests import Shape


def noise_of(kind: str, count: int) -> np.ndarray:
    """Noise with a variance of 1, or nearly so, that is wrong in the way of its name."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal(count)
    return {
        "normal": normal,
        "laplace": rng.laplace(size=count),
        "uniform": rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), count),
        "signs": rng.choice([-1.0, 1.0], count),
        "clipped": np.clip(normal, -3.0, 3.0),
        "clipped far out": np.clip(normal, -4.0, 4.0),
        "truncated": normal[np.abs(normal) < 3.0],
        "grid": np.round(normal, 1),
        "fine grid": np.round(normal, 5),
        "heavy": normal * np.where(rng.random(count) < 0.05, 3.0, 0.77),
        "one-sided": np.abs(normal),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "count", "words"),
    [
        ("uniform", 2000, "are beyond"),
        ("uniform", 6000, "away from what is claimed"),
        ("signs", 100, "repeat another one"),
        ("clipped", 4000, "repeat another one"),
        ("clipped", 20_000, "are beyond 3.03 times their scale"),
        ("clipped far out", 300_000, "repeat another one"),
        ("truncated", 20_000, "are beyond 3.03 times their scale"),
        ("grid", 500, "repeat another one"),
        ("fine grid", 20_000, "repeat another one"),
        ("heavy", 5000, "are beyond"),
        ("laplace", 3000, "are beyond"),
        ("one-sided", 500, "away from what is claimed"),
    ],
)
def test_noise_of_another_shape_is_found(kind: str, count: int, words: str) -> None:
    shape = Shape("normal")
    for some in np.array_split(noise_of(kind, count), 7):
        shape.add(some, 1e-15)
    found = shape.wrong()
    assert any(words in text for text in found), found


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_noise_of_the_right_shape_passes(law: Any) -> None:
    """By chance it fails with a probability below 1e-10."""
    shape = Shape(law)
    shape.add(noise_of(law, 300_000), 1e-15)
    assert shape.wrong() == []
    # Exact noise is on a grid, and may be off by what users were rounded by.
    rounded = Shape(law)
    rounded.add(np.round(noise_of(law, 100_000), 3) + 4e-4, 1e-3)
    assert rounded.wrong() == []
    assert Shape(law).wrong() == []


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_false_alarms_are_as_rare_as_stated(law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a level of 0.02, of 400 samples each, for the distance and for four tails together.

    Means are 8 and 32 at most: more than 36 and more than 78 have chances below 1e-11.
    """
    monkeypatch.setattr(noise_tests, "_ALARM", 0.02)
    rng = np.random.default_rng(5)
    far = tails = repeats = 0
    for _ in range(400):
        values = np.sort(rng.standard_normal(700) if law == "normal" else rng.laplace(size=700))
        shape = Shape(law)
        far += bool(shape._distance(values))
        tails += bool(shape._tails(values))
        repeats += bool(shape._repeats(values))
    assert 0 < far <= 36
    assert 0 < tails <= 78
    assert repeats == 0
