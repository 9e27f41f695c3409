"""Every agent does what it did, to the bit; on other machines, to a millionth."""

from __future__ import annotations

from functools import partial

import pytest

import tacit
from tests.golden import record
from tests.golden.experiments import EXPERIMENTS, SLOW
from tests.golden.rows import ROWS

_STORED = record.load()


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=[pytest.mark.slow] if row.slow else []) for row in ROWS],
)
def test_agent(row):
    _compare(row.name, partial(record.record, row))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in EXPERIMENTS],
)
def test_experiment(name):
    _compare(f"experiment {name}", partial(record.record_experiment, name))


def test_everything_is_recorded():
    names = [row.name for row in ROWS] + [f"experiment {name}" for name in EXPERIMENTS]
    assert sorted(_STORED["rows"]) == sorted(names)


def _compare(name, make):
    old = _STORED["rows"][name]
    try:
        new = make()
    except tacit.MissingExtra as error:
        pytest.skip(str(error))
    assert old.get("refused") == new.get("refused")
    if "refused" in old:
        return
    assert new["numbers"] == pytest.approx(old["numbers"], rel=1e-6, abs=1e-9, nan_ok=True)
    # Rows were recorded on several machines; the first one's do not say so.
    there = _STORED["machines"][old.get("machine", 0)]
    if (here := record.machine()) != there:
        differing = [key for key, value in here.items() if value != there.get(key)]
        pytest.skip(f"hashes are of another machine: {', '.join(differing)} differ")
    assert new["hashes"] == old["hashes"]
