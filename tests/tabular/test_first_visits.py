"""First visits: by hand, attacked, attained, and equal to their slow definition."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Block, InvalidArgument, Relation, check_statistic
from tacit.tabular.first_visits import FirstVisits

H, S, A = 5, 4, 2
TABLES = np.random.default_rng(0).integers(0, A, (3, H, S))
EVERYWHERE = np.ones((1, S, A), dtype=bool)
SOME = EVERYWHERE.copy()
SOME[0, 1] = False
STEPS = np.random.default_rng(1).random((H, S, A)) < 0.7
OF_EACH = np.random.default_rng(2).random((3, 1, S, A)) < 0.6

DESIGNS = [
    FirstVisits(EVERYWHERE, 2, TABLES, 3, 0.5, 0.6),
    FirstVisits(SOME, 3, TABLES),
    FirstVisits(EVERYWHERE, 9, TABLES, weight=2.0),
    FirstVisits(STEPS, 2, TABLES, 1),
    FirstVisits(EVERYWHERE, 2, TABLES, 1, 0.5, 0.6, "l1"),
    FirstVisits(SOME, 1, TABLES, weight=0.5, whole=True),
    FirstVisits(STEPS, 1, TABLES, whole=True),
    FirstVisits(OF_EACH, 2, TABLES, 1, 0.5, 0.6),
    FirstVisits(np.stack([STEPS, ~STEPS, STEPS]), 3, TABLES),
    FirstVisits(STEPS[:2], 2, TABLES, 1),
    FirstVisits(STEPS[:2], 1, TABLES, whole=True),
]


def sample_of(statistic):
    """Users who follow one of the components, users who claim to, and strangers."""

    def sample(rng, users):
        states = rng.integers(0, S, (users, H + 1))
        walk = (np.arange(H + 1) + rng.integers(0, S, (users, 1))) % S
        states = np.where(rng.random((users, 1)) < 0.6, walk, states)
        components = rng.integers(-1, 4, users)
        drawn = np.where((components < 0) | (components > 2), 0, components)
        told = statistic.policy[drawn[:, np.newaxis], np.arange(H), states[:, :H]]
        other = rng.integers(0, A, (users, H))
        actions = np.where(rng.random((users, 1)) < 0.7, told, other)
        paid = rng.choice([0.0, 0.4, 1.0], (users, H))
        rewards = np.where(rng.random((users, 1)) < 0.5, 1.0, paid)
        arrays = {
            "states": states,
            "actions": actions,
            "rewards": rewards,
            "versions": np.full(users, statistic.version),
            "components": components,
        }
        return Block(users, arrays)

    return sample


@pytest.mark.parametrize("statistic", DESIGNS, ids=range(len(DESIGNS)))
def test_attacked(statistic):
    check_statistic(statistic, sample_of(statistic))


def slow(statistic, block, user):
    """The definition, step by step."""
    parts = {part.name: np.zeros(part.shape) for part in statistic.layout.parts}
    component = block["components"][user]
    if block["versions"][user] != statistic.version or not 0 <= component < 3:
        return parts
    wanted = statistic.wanted if statistic.wanted.ndim == 3 else statistic.wanted[component]
    seen, paid = set(), False
    for h in range(H):
        s, a, t, r = (
            block[name][user, h + later]
            for name, later in (("states", 0), ("actions", 0), ("states", 1), ("rewards", 0))
        )
        last = h == H - 1 and len(wanted) > 1
        t = 0 if last and t < 0 else t
        if a != statistic.policy[component, h, s] or t < 0:
            continue
        cell = (h if len(wanted) == H else int(last), s, a)
        if r > 0 and not paid and not statistic.whole:
            parts["first_paid"][cell], paid = statistic.unit, True
        new = statistic.whole or (cell not in seen and len(seen) < statistic.most)
        if wanted[cell] and new:
            seen.add(cell)
            parts["transitions"][(*cell, t)] += statistic.unit
            parts["rewards"][cell] += statistic.unit * r
    return parts


@pytest.mark.parametrize("statistic", DESIGNS, ids=range(len(DESIGNS)))
def test_equals_its_definition(statistic):
    block = sample_of(statistic)(np.random.default_rng(7), 60)
    states = np.array(block["states"])
    states[::3, H] = -1  # what follows the last step is needed where other steps share its cells
    block = Block(60, dict(block.arrays) | {"states": states})
    rows = statistic.vectors(block)
    for user, row in enumerate(rows):
        expected = statistic.layout.pack(slow(statistic, block, user))
        np.testing.assert_allclose(row, expected, atol=1e-12)
    np.testing.assert_allclose(statistic.total(block), rows.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize(
    "statistic", [d for d in DESIGNS if d.whole], ids=["pooled", "per step", "last"]
)
def test_sums_of_a_simulation_are_those_of_its_users(statistic):
    block = sample_of(statistic)(np.random.default_rng(3), 50)
    told = statistic.policy[0][np.arange(H), block["states"][:, :H]]
    obedient = {"actions": told, "components": np.zeros(50, dtype=int)}
    block = Block(50, dict(block.arrays) | obedient)
    L = len(statistic.wanted)
    counts, sums = np.zeros((L, S, A, S)), np.zeros((L, S, A))
    at = np.maximum(np.arange(H) - (H - L), 0)
    where = (np.broadcast_to(at, told.shape), block["states"][:, :H], told)
    np.add.at(counts, (*where, block["states"][:, 1:]), 1)
    np.add.at(sums, where, block["rewards"])
    simulated = Block(50, {"transitions": counts, "rewards": sums}, aggregate=True)
    np.testing.assert_allclose(statistic.total(simulated), statistic.total(block), atol=1e-9)


@settings(max_examples=60)
@given(st.integers(1, 6), st.floats(0.1, 3.0), st.floats(0.1, 3.0))
def test_the_bound_is_attained(most, weight, paid_weight):
    """Two users in different cells, each paid everywhere, are as far apart as declared."""
    horizon, states = 6, 14
    table = np.stack([np.zeros((horizon, states)), np.ones((horizon, states))]).astype(int)
    everywhere = np.ones((1, states, 2), dtype=bool)
    statistic = FirstVisits(everywhere, most, table, 0, weight, paid_weight)
    path = np.arange(horizon + 1)
    block = Block(
        2,
        {
            "states": np.stack([path, path + 7]),
            "actions": np.zeros((2, horizon), dtype=int),
            "rewards": np.ones((2, horizon)),
            "versions": np.zeros(2, dtype=int),
            "components": np.zeros(2, dtype=int),
        },
    )
    first, second = statistic.contributions(block)
    squared = most * (1.0 + weight**2) + paid_weight**2
    assert math.dist(first, second) / statistic.unit == pytest.approx(math.sqrt(2.0 * squared))
    assert statistic.l2(Relation.REPLACE_ONE) == pytest.approx(math.sqrt(2.0))
    assert statistic.l2(Relation.ZERO_OUT) == pytest.approx(np.linalg.norm(first))
    assert statistic.l1(Relation.REPLACE_ONE) == pytest.approx(np.abs(first - second).sum())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"wanted": np.ones((3, S, A), dtype=bool)}, "wanted must be"),
        ({"wanted": OF_EACH[:2]}, "one for each component"),
        ({"policy": TABLES + 5}, "actions 0..1"),
        ({"most": 0}, "most"),
    ],
)
def test_refusals(change, message):
    given = {"wanted": EVERYWHERE, "most": 2, "policy": TABLES} | change
    with pytest.raises(InvalidArgument, match=message):
        FirstVisits(**given)


def test_whole_is_attained_by_a_user_who_stays():
    statistic = FirstVisits(EVERYWHERE, 1, np.zeros((1, H, S), dtype=int), weight=0.5, whole=True)
    stays = {
        "states": np.array([[0] * (H + 1), [1] * (H + 1)]),
        "actions": np.zeros((2, H), dtype=int),
        "rewards": np.ones((2, H)),
        "versions": np.zeros(2, dtype=int),
        "components": np.zeros(2, dtype=int),
    }
    first, second = statistic.contributions(Block(2, stays))
    assert math.dist(first, second) == pytest.approx(statistic.l2(Relation.REPLACE_ONE))
    assert np.abs(first - second).sum() == pytest.approx(statistic.l1(Relation.REPLACE_ONE))
