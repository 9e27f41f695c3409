"""The checks of people and stores, healthy and with defects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.core.intake import EpisodeIntake
from tacit.privacy.models import JointDP
from tacit.store import runs, store
from tacit.store.store import Store
from tests.own_path.check_store import accounts_outcomes, store_outcomes, words_outcomes
from tests.own_path.runs import JOINT, MODELS, failures, planted, trial_of


@pytest.mark.parametrize(
    "model",
    ["local", *(pytest.param(m, marks=pytest.mark.slow) for m in ("joint", "pure", "three"))],
)
def test_healthy_runs_pass(model: str, tmp_path: Path) -> None:
    trial = trial_of(tmp_path, MODELS[model], runs=4)
    for check in (store_outcomes, accounts_outcomes, words_outcomes):
        assert failures(check(trial)) == {}


def twice(f: Any, db: Any, run: Any, block: int, names: Any) -> Any:
    """Whoever is there may come again within her block."""
    answers = dict(zip(names, f(db, run, block, names), strict=True))
    return [max(0, answers[name]) for name in names]


DEFECTS = {
    "names of a process": (
        Store,
        "keyed",
        lambda f, self, *words: f(self, *words[:-1], f"{id(self)} {words[-1]}"),
        "people",
    ),
    "twice in a block": (runs, "admit", twice, "people"),
    "episodes are kept": (runs, "erase", lambda f, db, run, block: None, "store"),
    "readable": (store.Path, "touch", lambda f, self, mode=0: f(self, mode=0o644), "store"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_defects_of_stores_are_found(defect: str, tmp_path: Path) -> None:
    owner, name, change, check = DEFECTS[defect]
    trial = trial_of(tmp_path, runs=2)
    with planted(owner, name, change):
        assert check in failures(store_outcomes(trial))


def test_rows_that_are_written_twice_are_found(tmp_path: Path) -> None:
    def write(f: Any, self: Any, db: Any, run: Any, block: int, rows: Any, *more: Any) -> None:
        kept = np.maximum(np.arange(rows.users) - 1, 0)
        arrays = {name: array[kept] for name, array in rows.arrays.items()}
        f(self, db, run, block, type(rows)(rows.users, arrays), *more)

    trial = trial_of(tmp_path, runs=2)
    with planted(EpisodeIntake, "_write", write):
        assert "people" in failures(store_outcomes(trial))


def test_a_generous_limit_is_found(tmp_path: Path) -> None:
    trial = trial_of(tmp_path, JOINT, runs=2)
    with planted(JointDP, "episode_limit", lambda f, self: 1.02 * f(self)):
        assert "accounts" in failures(accounts_outcomes(trial))
