"""Every agent, and every algorithm of a paper, does what it did, on any processor."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tests.golden import record

_STORED = record.load()


@pytest.mark.parametrize("name", record.WORK)
def test_it_does_what_it_did(name):
    try:
        found = record.WORK[name]()
    except tacit.MissingExtra as error:
        pytest.skip(str(error))
    assert not record.differences(_STORED[name], found)


def test_everything_is_recorded():
    assert list(_STORED) == list(record.WORK)


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
