"""The checks of people and stores, healthy and with defects."""

import pytest

from research.planted.real_path import REAL_PATH
from tests.own_path.check_store import accounts_outcomes, store_outcomes, words_outcomes
from tests.own_path.runs import MODELS, failures, trial_of


@pytest.mark.parametrize(
    "model",
    ["local", *(pytest.param(m, marks=pytest.mark.slow) for m in ("joint", "pure", "three"))],
)
def test_healthy_runs_pass(model, tmp_path):
    trial = trial_of(tmp_path, MODELS[model], runs=4)
    for check in (store_outcomes, accounts_outcomes, words_outcomes):
        assert failures(check(trial)) == {}


DEFECTS = {
    "IdsForgotten": "people",
    "TwiceInOneBlock": "people",
    "WaitingSavedTwice": "people",
    "ReleasedEpisodesKept": "store",
    "StoreReadable": "store",
    "BlocksSpilled": "store",
    "LimitGenerous": "accounts",
}
"""Bugs of the real path, and the check that finds each in a short run."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_defects_of_stores_are_found(defect, tmp_path):
    (row,) = (row for row in REAL_PATH if row.name == defect)
    check = accounts_outcomes if DEFECTS[defect] == "accounts" else store_outcomes
    with row.plant():
        assert DEFECTS[defect] in failures(check(trial_of(tmp_path, runs=2)))
