"""States as bytes: what is dumped is loaded again, and nothing else is made."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tacit.privacy.budget import Relation
from tacit.privacy.errors import CorruptFile
from tacit.store.values import dump, load, record
from tacit.tabular.policy import Policy

plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
arrays = hnp.arrays(
    st.sampled_from([np.float64, np.int64, np.bool_, np.uint8]), hnp.array_shapes(max_side=4)
)
values = st.recursive(
    plain | arrays,
    lambda part: st.lists(part) | st.dictionaries(st.text(), part) | st.tuples(part, part),
    max_leaves=8,
)


def same(one, other):
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(
            one, other, equal_nan=one.dtype.kind == "f"
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(values)
def test_everything_comes_back(value):
    assert same(value, load(dump(value)))


def test_records_and_enums_come_back():
    policy = Policy.deterministic([[0, 1], [1, 0]], 2, version=7)
    found = load(dump({"policy": policy, "relation": Relation.ZERO_OUT}))
    assert found["policy"].version == 7
    assert np.array_equal(found["policy"].actions, policy.actions)
    assert found["relation"] is Relation.ZERO_OUT


def test_arrays_cannot_be_written_to():
    found = load(dump(np.zeros(3)))
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1.0


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()]), lambda: None])
def test_what_cannot_be_saved_is_refused(value):
    with pytest.raises(TypeError, match="cannot be saved"):
        dump(value)


@dataclass(frozen=True)
class Mine:
    number: int


def test_classes_of_others_are_registered():
    data = dump(Mine(3))
    with pytest.raises(CorruptFile, match="not registered"):
        load(data)
    record(Mine)
    assert load(data) == Mine(3)


@pytest.mark.parametrize("name", ["os:system", "tacit.core.agent:Agent", "tacit.store.values:dump"])
def test_a_forged_file_makes_nothing_else(name):
    data = dump(Mine(3)).replace(f"{__name__}:Mine".encode(), name.encode())
    size = int.from_bytes(data[:8], "big") + len(name) - len(f"{__name__}:Mine")
    with pytest.raises(CorruptFile):
        load(size.to_bytes(8, "big") + data[8:])


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(values, st.integers(0, 200))
def test_what_is_cut_off_is_refused(value, kept):
    data = dump(value)
    if kept < len(data):
        with pytest.raises(CorruptFile):
            load(data[:kept])
