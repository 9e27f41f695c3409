"""Exact Gaussian accounting against dp-accounting: the same numbers, and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from benchmarks.row import Row, at_most, noted
from benchmarks.timing import ratio
from tacit.privacy.budget import mu_from_budget

GRID = tuple(product(np.geomspace(0.01, 20.0, 9).tolist(), np.logspace(-12, -2, 6).tolist()))


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    from dp_accounting import get_sigma_gaussian

    ours = [1.0 / mu_from_budget(*budget) for budget in GRID]
    theirs = [float(get_sigma_gaussian(*budget)) for budget in GRID]
    apart = max(abs(o - t) / t for o, t in zip(ours, theirs, strict=True))
    name = "mu_from_budget"
    what = f"largest relative difference to dp-accounting, {len(GRID)} budgets"
    yield at_most(name, what, apart, 1e-6, digits=".1e")
    factor = ratio(
        lambda: [mu_from_budget(*budget) for budget in GRID],
        lambda: [get_sigma_gaussian(*budget) for budget in GRID],
        calls=1,
        repetitions=15,
    )
    yield noted(name, "time / dp-accounting's get_sigma_gaussian", factor, "x")
