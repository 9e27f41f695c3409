"""Schedules: blocks that cover all users, few and growing, and names that rebuild them."""

import math
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import NonPrivate
from tacit.core.algorithm import BlockSizes
from tacit.core.problem import Even, Problem, Schedule, geometric, growing
from tacit.privacy.errors import InvalidArgument

users_counts = st.integers(1, 10**15)


@given(users=users_counts, growth=st.floats(1.01, 1e300), first=st.integers(1, 10**6))
def test_geometric_blocks_cover_all_users_and_grow_by_the_factor(users, growth, first):
    blocks = geometric(users, growth, first)
    ends = list(accumulate(blocks))
    assert ends[-1] == users
    assert all(block >= 1 for block in blocks)
    assert blocks[0] == min(first, users) or len(blocks) == 1
    # Every end but the last is the one before times the factor, rounded up.
    for before, end in pairwise(ends[:-1]):
        assert end == max(before + 1, math.ceil(min(float(users), before * growth)))
    if len(blocks) > 1:
        assert 2 * blocks[-1] >= blocks[-2], "a tiny block at the end"
        assert ends[-2] * growth * 1.5 + 1.5 >= users, "the last block swallows too much"


@given(users=st.integers(1, 10**6), first=st.integers(1, 10**5), growth=st.floats(1.02, 3.0))
def test_growing_blocks_cover_all_users_and_none_is_tiny(users, first, growth):
    blocks = growing(users, first, growth)
    assert sum(blocks) == users
    assert min(blocks) >= min(users, first / 2)


@given(users=st.integers(1, 400), size=st.integers(1, 500))
def test_fixed_blocks_behave_like_the_tuple_they_stand_for(users, size):
    blocks = Even(users, size)
    plain = tuple(min(size, users - start) for start in range(0, users, size))
    schedule = Schedule("fixed", blocks)
    assert tuple(blocks) == plain
    assert len(blocks) == len(plain)
    assert blocks[-1] == plain[-1]
    assert blocks[1:] == plain[1:]
    assert (schedule.users, schedule.releases) == (users, len(plain))
    with pytest.raises(IndexError):
        blocks[len(plain)]


@given(
    users=st.integers(1, 10**9),
    text=st.one_of(
        st.just("every"),
        st.just("geometric"),
        st.builds("fixed:size={}".format, st.integers(1, 10**9)),
        st.builds(
            "geometric:first={},growth={}".format, st.integers(1, 100), st.floats(1.05, 1e10)
        ),
    ),
)
def test_a_name_rebuilds_its_schedule(users, text):
    schedule = Schedule.parse(text, users)
    again = Schedule.parse(schedule.name, users)
    assert schedule == again
    assert again.users == users
    for asked in (schedule, text):
        assert Problem(None, users, NonPrivate(), asked).scheduled(BlockSizes) == schedule


@pytest.mark.parametrize(
    "text",
    [
        *("", "weekly", "geometric:", "geometric:growth", "geometric:growth=x", "every:size=1"),
        *("fixed", "fixed:size=1.5", "fixed:size=0", "geometric:growth=1", "geometric:growth=nan"),
        *("geometric:growth=2,growth=3", "geometric:first=0", "geometric:size=3", 7, None),
    ],
)
def test_other_names_are_refused(text):
    with pytest.raises(InvalidArgument, match="must be"):
        Schedule.parse(text, users=10)
