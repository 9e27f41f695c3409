"""Studies: cases are run as they say, stored row by row, and shown as they are stored."""

from dataclasses import replace

import pytest

from research import study
from research.studies import DECILES, STUDIES, middle, ninth, of, ratio, serving
from research.study import PLAIN, Case, Study, joint, run_all, study_main
from tacit.registry import choose_agent
from tacit.simulation.result import Result
from tests.research.commands import refused_in_one_line

SMALL = Case(("w",), "simplex:states=4,actions=3,horizon=3,seed=SEED", "lsvi_ucb", PLAIN, 20, 2)


def result(until, users=1_000):
    """A run that is bad until so many users and optimal from then on; never, if ``None``."""
    good = 0.0 if until is None else 1.0
    return Result(
        **{"agent": "a", "world": "w", "privacy": "p", "seed": 0},
        served=[0, users // 2 if until is None else until, users],
        values=[0.0, good, good],
        greedy_values=[0.0, good, good],
        **{"optimal_value": 1.0, "baseline_value": 0.2, "reference_value": 0.0},
    )


def test_every_seed_has_a_world_of_its_own_and_workers_change_nothing():
    (runs,) = run_all([SMALL], Case.run, 2, workers=1).values()
    assert [run.seed for run in runs] == [0, 1]
    assert runs[0].optimal_value != runs[1].optimal_value
    (again,) = run_all([SMALL], Case.run, 2, workers=2).values()
    assert [run.values.tolist() for run in again] == [run.values.tolist() for run in runs]


def test_columns_show_medians_and_what_was_not_reached():
    runs = {"": [result(n) for n in (*range(10, 90, 10), 90, None)], "not private": [result(5)]}
    assert of(serving, DECILES)(SMALL, runs) == "55 [20, 90]"
    assert (of(serving, None)(SMALL, runs), of(serving, name="other")(SMALL, runs)) == ("55", "-")
    assert (ninth(serving)(SMALL, runs), ratio(SMALL, runs)) == ("55 (90)", "11")
    assert (ratio(SMALL, runs | {"": [result(None)]}), middle([3, None, 4])) == ("-", 4)


def test_a_row_is_stored_and_shown_as_it_was_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(study, "HERE", tmp_path)
    both = replace(SMALL, beside={"not private": SMALL})
    table = Study("my table", ("world",), (both,), {"users": of(serving), "ratio": ratio})
    main = study_main("research.mine", "About.", {"my_table": table})
    assert main(["my_table", "--runs", "1"]) == 0
    row = study.load("my_table")["w"]
    assert (row["cells"][2], len(row["runs"]["not private"]["users_to_90"])) == ("1", 1)
    study.store("my_table", {"w": row | {"cells": ["w", "7", "8"]}})
    capsys.readouterr()
    assert main(["my_table"]) == 0  # what is stored is not run again
    assert capsys.readouterr().out.splitlines()[-1] == "| w | 7 | 8 |"


def test_bad_arguments_are_refused_in_one_line(capsys):
    main = study_main("research.mine", "About.", dict(STUDIES))
    refused_in_one_line(main, ["nothing"], capsys)
    refused_in_one_line(main, ["control", "--runs=0"], capsys)


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_names_its_rows_and_agents(name):
    found = STUDIES[name]
    keys = [study.key_of(case) for case in found.cases]
    assert len(set(keys)) == len(keys)
    assert set(study.load(name)) == set(keys)
    for case in found.cases:
        assert len(case.cells) == len(found.heads)
        for one in (case, *case.beside.values()):
            assert one.agent == "auto" or choose_agent(one.agent)


def test_budgets_are_those_of_the_names():
    for case in STUDIES["mixture_agents"].cases:
        assert case.privacy == joint(float(case.cells[3]))
        assert case.beside["not private"] == replace(case, privacy=PLAIN, users=20_000, beside={})
