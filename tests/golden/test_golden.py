"""Every agent, and every algorithm of a paper, does what it did, on any processor."""

import numpy as np
import pytest

import tacit
from tests.golden import record
from tests.golden.rows import ROWS

_STORED = record.load()
_RESUMED = {
    *(row.name for row in ROWS if row.model == "reports"),
    "ucbvi | riverswim:states=4,horizon=6 | 100000 | local",
    "concurrent_psrl | riverswim:states=4,horizon=6 | 5000 | joint",
    "certainty_equivalence | random_system:n=2,d=1,horizon=5,seed=500 | 1000 | ids",
    "fitted_functional_q | plane:horizon=10 | 64 | joint",
}
"""Of these the tests resume a store too; ``python -m tests.golden.record`` does of all."""


@pytest.mark.parametrize("name", record.WORK)
def test_it_does_what_it_did(name):
    rows, stored = {row.name: row for row in ROWS}, _STORED[name]
    try:
        if name in rows and name not in _RESUMED:
            found = record.record(rows[name], resume=False)
            stored = {key: stored[key] for key in stored if not key.startswith("resumed ")}
        else:
            found = record.WORK[name]()
    except tacit.MissingExtra as error:
        pytest.skip(str(error))
    assert not record.differences(stored, found)


def test_everything_is_recorded():
    assert list(_STORED) == list(record.WORK)
    assert set(record.WORK) >= _RESUMED


def numbers(values):
    seen = record.Seen()
    seen.add("x", values)
    return seen.numbers()


@pytest.mark.parametrize("place", [0, 1, 999])
def test_every_entry_counts_and_last_bits_do_not(place):
    values = np.random.default_rng(0).normal(size=1000)
    old = {name: number for name, (number, _) in numbers(values).items()}
    for change, differs in ((1e-13, False), (1e-6, True), (np.nan, True), (np.inf, True)):
        new = values.copy()
        new[place] += change
        assert bool(record.differences(old, numbers(new))) == differs
    assert record.differences(old, numbers(values[::-1]))
    assert record.differences(old, {})
    assert record.differences({}, numbers(values))
    whole = np.arange(1000)
    old = {name: number for name, (number, _) in numbers(whole).items()}
    assert not record.differences(old, numbers(whole))
    whole[place] += 1
    assert record.differences(old, numbers(whole))
