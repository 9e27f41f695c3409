"""Control with a model: the page shows what is stored, and a row is what it says."""

from __future__ import annotations

from research.smooth_control import ROWS, WORLDS, Row, load, measured, table


def test_rows_are_of_worlds_that_exist_and_have_names_of_their_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {row.world for row in ROWS} == set(WORLDS)
    assert set(load()) <= {row.name for row in ROWS}


def test_a_run_is_found_again_bit_for_bit() -> None:
    row = next(row for row in ROWS if row.name == "Pendulum, none, 128")
    assert measured(row, 1000) == load()[row.name]["1000"]
    assert "-200: yes" in table({row.name: load()[row.name]}, learnt=False)


def test_a_target_that_is_missed_says_so() -> None:
    row = Row("Pendulum", None, 128, -200.0, runs=5)
    stored = {row.name: {"1000": {"greedy": -500.0, "before": -1.0, "served": -2.0}}}
    assert "-200: no" in table(stored, learnt=False)
