"""Learning curves of the functional comparison: the page has what is stored."""

from __future__ import annotations

import math

import numpy as np
import pytest

from research import functional_curves
from research.figure_names import FIGURES
from tacit.privacy.budget import epsilon_from_mu


def test_every_curve_has_ten_runs_of_a_hundred_users() -> None:
    stored = functional_curves.load()
    assert FIGURES["functional-curves"] == "research.functional_curves"
    for rows in stored["curves"].values():
        assert len(rows) == 10
        assert {len(row) for row in rows} == {100}


def test_noise_on_rewards_is_what_the_budget_buys() -> None:
    """T rewards that each move by at most 1: mu of all of them is that of the budget."""
    for epsilon in functional_curves.CLAIMS:
        mu = math.sqrt(100 * 50) / functional_curves.reward_noise(epsilon)
        assert epsilon_from_mu(mu, 1e-4) == pytest.approx(epsilon, rel=1e-6)


def test_runs_are_stored_as_they_are() -> None:
    stored = functional_curves.load()
    found = functional_curves.returns("functional state", 0.9, 0)
    assert stored["curves"]["functional state, 0.9"][0] == pytest.approx(found, abs=1e-4)
    rows = functional_curves.rows_of(stored, "Algorithm 1", 0.45)
    assert functional_curves.smoothed(rows).shape == (10, 10)


def test_the_error_of_values_by_hand() -> None:
    """Where nobody moves every value is off by its noise over 1 - discount."""
    rng = np.random.default_rng(3)
    found = functional_curves.value_error(50, 2.0, 0.9, moves=False, rng=rng)
    noise = 2.0 * np.random.default_rng(3).standard_normal((1, 50))
    assert found == pytest.approx(np.abs(noise).mean() / 0.1, rel=1e-6)
    assert functional_curves.proposition_10(100, 1.0, 0.9) == pytest.approx(1.596, abs=1e-3)


def test_the_proposition_does_not_hold() -> None:
    for errors in functional_curves.load()["values"].values():
        for n, error in zip(functional_curves.SIZES, errors, strict=True):
            assert error > functional_curves.proposition_10(n, 1.0, 0.9)
