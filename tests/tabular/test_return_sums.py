"""Return sums: by hand, attacked, and equal to their slow definition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Block, Relation, check_statistic
from tacit.tabular.return_statistics import ReturnSums
from tests.refusals import refusals

H, S, A = 4, 5, 2
CELLS = np.arange(S * A).reshape(S, A)
STATES = np.repeat(np.arange(S)[:, np.newaxis], A, axis=1)
HALF = np.full((H, S), 0.5)


def block_of(states, actions, rewards):
    states, actions = np.array(states, dtype=np.int64), np.array(actions, dtype=np.int64)
    return Block(
        len(states), {"states": states, "actions": actions, "rewards": np.array(rewards, float)}
    )


def sample(rng, users):
    """Random users, and walks of those who die at once or survive at the end, on the same way."""
    states = rng.integers(0, S, (users, H + 1))
    actions = rng.integers(0, A, (users, H))
    rewards = rng.choice([0.0, 0.3, 1.0], (users, H))
    walk = rng.random(users) < 0.6
    start = rng.integers(0, 2, (walk.sum(), 1))
    states[walk] = (np.arange(H + 1) + start) % S
    actions[walk] = 0
    rewards[walk] = 0.0
    rewards[walk, -1] = rng.integers(0, 2, walk.sum())
    return block_of(states, actions, rewards)


DESIGNS = [
    {"cells": STATES, "centre": HALF, "most": 0.5, "weight": 0.5},
    {"cells": STATES, "centre": HALF, "most": 0.5, "weight": 2.0, "first": 2},
    {"cells": CELLS, "centre": HALF, "most": 0.5},
    {"cells": CELLS, "centre": HALF, "most": 0.4, "length": 0.4, "trace": 0.5},
    {"cells": CELLS, "centre": HALF, "most": 0.3, "length": 0.5, "weight": 0.1},
    {"cells": np.where(CELLS < 4, CELLS, -1), "centre": HALF, "most": 0.5, "first": 3},
]


@pytest.mark.parametrize("options", DESIGNS, ids=range(len(DESIGNS)))
def test_sensitivities_hold_and_are_attained(options):
    report = check_statistic(ReturnSums(**options), sample, users=300, rounds=40)
    assert report.tightness["zero-out l2"] > 0.95, report.tightness
    assert report.tightness["replace-one l2"] > 0.95, report.tightness


def test_visits_are_free_beside_returns_cut_to_the_same_size():
    """Half a visit adds nothing: on the same states visits cancel, on others returns do not add."""
    alone, both = (
        ReturnSums(np.repeat(np.arange(50)[:, np.newaxis], 2, 1), np.full((20, 50), 0.5), weight=w)
        for w in (0.0, 0.5)
    )
    assert alone.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(8))
    assert both.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(8))
    more = ReturnSums(both.cells, both.centre, weight=0.6)
    assert more.l2(Relation.REPLACE_ONE) > math.sqrt(8) + 0.2


def test_an_episode_ends_at_its_first_invalid_step():
    whole = block_of([[0, 1, 2, -1, -1]], [[0, 0, -1, -1]], [[0.0, 0.3, np.nan, np.nan]])
    found = ReturnSums(STATES, HALF, weight=1.0).vectors(whole)[0]
    assert found == pytest.approx([-0.2, -0.2, 0, 0, 0, 1, 1, 0, 0, 0])
    late = block_of([[0, 7, 0, 1, 1]], [[0, 0, 0, 0]], [[1.0] * 4])
    assert not ReturnSums(STATES, HALF, weight=1.0).vectors(late).any()
    # What follows the last step makes no difference, known or not.
    both = block_of([[0, 1, 2, 1, 1], [0, 1, 2, 1, -1]], [[0] * 4] * 2, [[0.1, 0.2, 0.3, 0.9]] * 2)
    one, two = ReturnSums(STATES, HALF, weight=1.0).vectors(both)
    assert one.any()
    assert (one == two).all()


def slow(statistic, states, actions, rewards):
    """As the docstring says it, one user at a time."""
    found = []
    for s, a, r in zip(states, actions, rewards, strict=True):
        V = np.vstack([statistic.centre, np.zeros(S)])
        d = [r[t] + (V[t + 1][s[t + 1]] if t < H - 1 else 0.0) - V[t][s[t]] for t in range(H)]
        e = [sum(statistic.trace ** (u - t) * d[u] for u in range(t, H)) for t in range(H)]
        entries = {}
        for t in range(H):
            cell = int(statistic.cells[min(t, len(statistic.cells) - 1), s[t], a[t]])
            if cell >= 0 and cell not in entries and len(entries) < statistic.first:
                entries[cell] = float(np.clip(e[t], -statistic.most, statistic.most))
        norm = math.sqrt(sum(x * x for x in entries.values()))
        row = np.zeros(statistic.size)
        for cell, x in entries.items():
            row[cell] = x * min(1.0, statistic.length / norm if norm else 1.0)
        found.append(row)
    return np.array(found)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(1, 6),
    st.sampled_from([0.3, 0.7, math.inf]),
)
def test_it_is_its_slow_definition(seed, trace, first, length):
    rng = np.random.default_rng(seed)
    cells = rng.integers(-1, 6, (S, A) if seed % 2 else (H, S, A))
    cells[..., 0, 0] = 5
    statistic = ReturnSums(cells, rng.random((H, S)), trace, first, 0.6, length)
    block = sample(rng, 20)
    expected = slow(statistic, block["states"], block["actions"], block["rewards"])
    assert statistic.vectors(block) == pytest.approx(expected)
    assert statistic.total(block) == pytest.approx(expected.sum(axis=0))


test_mistakes_are_named = refusals(
    lambda wrong: ReturnSums(**{"cells": CELLS, "centre": HALF, **wrong}),
    ({"cells": np.full((S, A), -1)}, "cells"),
    ({"centre": np.full((H, S), H + 1.0)}, "centre must be from 0 to H"),
    ({"length": math.nan}, "length"),
)
