"""Stored trials: what pages promise of them, and rows that can be measured again."""

import pytest

from research import trials
from research.study import load, world_of


def test_rows_have_names_and_worlds_of_their_own():
    found = [(section, trial) for section, make in trials.SECTIONS.items() for trial in make()]
    keys = [trials.key_of(section, t, epsilon) for section, t in found for epsilon in t.epsilons]
    assert len(keys) == len({*keys})
    assert {*load("trials")} <= {*keys}
    assert all(world_of(trial.world).spec.horizon >= 20 for _, trial in found)


def test_a_row_is_measured(tmp_path):
    trial = trials.Trial(("a",), "micro_randomised:decisions=20,contexts=2", 40, seeds=2)
    found = trial.measure(5.0)
    assert found["runs"] == 2
    assert -1.0 <= found["final"][0] <= 1.0
    assert -0.6 < found["served"][0] < 1.0


# Of 200 trials the mean is 0.90; the prototype had 0.93 in 40.
MISSED = pytest.mark.xfail(strict=True, reason="0.90 in place of 0.93")


@pytest.mark.parametrize(
    ("place", "least"),
    [(0, 0.92), pytest.param(1, 0.93, marks=MISSED), (2, 0.95), (3, 0.87), (4, 0.98)],
)
def test_one_release_at_epsilon_one_reaches_what_prototypes_did(place, least):
    mean, error = [row[1.0]["final"] for _, row in trials.rows("end")][place]
    assert mean + 2.0 * error >= least


def test_intervals_cover_and_no_effect_is_found_where_none_is():
    found = [(trial, row) for trial, by in trials.rows("intervals") for row in by.values()]
    assert len(found) == 8
    for trial, row in found:
        spare = 2.0 * (0.05 * 0.95 / row["runs"]) ** 0.5
        assert 0.93 - spare <= row["covers"] <= 0.97 + spare
        if trial.cells[-1] == "none":
            assert row["finds"] <= 0.06 + spare


def test_plans_and_simulations_agree():
    away = [
        abs(row["plan"] - row["final"][0]) <= max(0.05, 3.0 * row["final"][1])
        for _, by in trials.rows("plan")
        for row in by.values()
    ]
    assert sum(away) >= 0.9 * len(away)


def test_nobody_is_served_below_a_coin_by_more_than_noise():
    served = [row[1.0]["served"] for _, row in trials.rows("harm")]
    assert all(mean > -3.0 * error - 0.01 for mean, error in served)
