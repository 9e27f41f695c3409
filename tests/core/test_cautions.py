"""Warnings where a privacy engineer would expect them, before anything has happened."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.privacy.errors import InvalidArgument, TacitWarning

SPEC = tacit.tabular.riverswim(states=3, horizon=4).spec


def said(*arguments: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tacit.UCBVI(SPEC, *arguments, **options)
    return [str(one.message) for one in found if one.category is TacitWarning]


def test_budgets_that_promise_little_are_named() -> None:
    (words,) = said(1000, tacit.JointDP(11.0, 1e-6))
    assert words.startswith("epsilon is 11: above 10")
    (words,) = said(1_000_000, tacit.JointDP(1.0, 1e-6))
    assert words.startswith("delta is 1e-06 for 1,000,000 users")
    assert "at most 1e-07" in words
    assert said(100_000, tacit.JointDP(10.0, 1e-6)) == []
    assert said(1_000_000, tacit.JointDP(1.0, 0.0)) == []
    assert said(10**9, tacit.NonPrivate()) == []
    # Nobody is promised anything in a simulation.
    assert said(1_000_000, tacit.JointDP(99.0, 1e-3), noise_seed=0) == []


def test_nothing_is_made_where_warnings_are_errors(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TacitWarning):
            tacit.UCBVI(SPEC, 10**6, tacit.JointDP(1.0, 1e-6), store=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_what_is_given_twice_is_named() -> None:
    agent = tacit.UCBVI(SPEC, 1000, tacit.JointDP(1.0, 1e-6))
    data = tacit.Episodes(np.zeros((1, 5)), np.zeros((1, 4)), np.zeros((1, 4)), [0], ["ann"])
    with pytest.raises(InvalidArgument, match="user_ids are given twice"):
        agent.learn(data, ["bob"])
    assert agent.learn(data, ["ann"]).waiting == 1
