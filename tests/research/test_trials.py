"""Stored trials: what pages promise of them, and rows that can be measured again."""

from __future__ import annotations

import pytest

from research import trials
from research.study import load, world_of


def test_rows_have_names_of_their_own():
    keys = [
        trials.key_of(section, trial, epsilon)
        for section, make in trials.SECTIONS.items()
        for trial in make()
        for epsilon in trial.epsilons
    ]
    assert len(keys) == len({*keys})
    assert {*load("trials")} <= {*keys}


def test_worlds_can_be_made():
    for make in trials.SECTIONS.values():
        for trial in make():
            assert world_of(trial.world).spec.horizon >= 20


def test_a_row_is_measured(tmp_path):
    trial = trials.Trial(("a",), "micro_randomised:decisions=20,contexts=2", 40, seeds=2)
    found = trial.measure(5.0)
    assert found["runs"] == 2
    assert -1.0 <= found["final"][0] <= 1.0
    assert -0.6 < found["served"][0] < 1.0


def _final(section: str, name: str, epsilon: float = 1.0) -> tuple[float, float]:
    found = {
        key: row for key, row in load("trials").items() if key.startswith(f"{section}, {name}")
    }
    (row,) = (row for key, row in found.items() if key.endswith(f", {epsilon:g}"))
    return row["final"][0], row["final"][1]


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("MiWaves-like", 0.92),
        ("Oralytics-like", 0.93),
        ("HeartSteps-like", 0.95),
        ("small effect, 120", 0.87),
        ("small effect, more people", 0.98),
    ],
)
def test_one_release_at_epsilon_one_reaches_what_prototypes_did(name, least):
    mean, error = _final("end", name)
    assert mean + 2.0 * error >= least
