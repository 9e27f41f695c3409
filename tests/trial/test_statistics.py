"""Scores: their bound, whatever a person does, and their mean where actions have no effect."""

import numpy as np
import pytest

from tacit import check_statistic
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.trial import CentredScores


def people(n, horizon, contexts, chance, usual, seed, effect=0.0):
    """Rewards of 0 and 1 in contexts at random, with one effect everywhere."""
    rng = np.random.default_rng(seed)
    where = rng.integers(contexts, size=(n, horizon + 1))
    actions = (rng.random((n, horizon)) < chance).astype(np.int64)
    rewards = (rng.random((n, horizon)) < usual + effect * (actions - 0.5)).astype(float)
    logged = np.where(actions == 1, chance, 1.0 - chance)
    arrays = {"states": np.eye(contexts)[where], "actions": actions, "rewards": rewards}
    return Block(n, arrays | {"propensities": logged, "lengths": np.full(n, horizon)})


def several(n, horizon, rng, *, states=0):
    """Three actions with logged chances of all; states are numbers, or vectors."""
    chances = rng.dirichlet(np.full(3, 5.0), size=(n, horizon))
    arrays = {
        "states": rng.integers(states, size=(n, horizon + 1))
        if states
        else rng.standard_normal((n, horizon + 1, 2)),
        "actions": rng.integers(3, size=(n, horizon)),
        "rewards": rng.standard_normal((n, horizon)),
        "propensities": chances,
    }
    return Block(n, arrays)


STATISTICS = {
    "two actions": (CentredScores(6, 2, 2, 0.2), lambda r, n: people(n, 6, 2, 0.3, 0.5, 1)),
    "three actions": (CentredScores(5, 2, 3, 0.1), lambda r, n: several(n, 5, r)),
    "states": (
        CentredScores(5, 4, 3, 0.1, discount=0.9, linear=False),
        lambda r, n: several(n, 5, r, states=4),
    ),
}


@pytest.mark.parametrize("kind", STATISTICS)
def test_nobody_counts_for_more_than_one(kind):
    statistic, sample = STATISTICS[kind]
    report = check_statistic(statistic, lambda rng, n: sample(rng, n), users=60, rounds=15)
    assert max(report.tightness.values()) > 0.9


def test_opposite_people_attain_the_bound():
    statistic, block = CentredScores(40, 1, 2, 0.5), people(1, 40, 1, 0.5, 0.5, 3)
    other = dict(block.arrays) | {"actions": 1 - np.asarray(block["actions"])}
    apart = statistic.vectors(block) - statistic.vectors(Block(1, other))
    assert abs(np.linalg.norm(apart) - 2.0) < 1e-12


@pytest.mark.parametrize("chance", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("contexts", [1, 8])
def test_without_an_effect_rare_rewards_show_none(chance, contexts):
    # Divided by its length alone, V would have a mean of -0.05 in a single context at p = 0.2.
    found = CentredScores(60, contexts, 2, 0.2).vectors(people(6000, 60, contexts, chance, 0.05, 4))
    error = 1.0 / np.sqrt(6000 * contexts)
    assert np.abs(found.mean(axis=0)).max() < 7.0 * error
    assert abs(found.mean()) < 6.5 * error / np.sqrt(contexts)


def test_an_effect_shows_whatever_the_scale_of_rewards():
    block = people(400, 100, 2, 0.3, 0.5, 5, effect=0.3)
    statistic = CentredScores(100, 2, 2, 0.2)
    found = statistic.vectors(block)
    assert found.mean(axis=0).min() > 0.3
    larger = dict(block.arrays) | {"rewards": 1024.0 * np.asarray(block["rewards"])}
    scaled = CentredScores(100, 2, 2, 0.2, usual=512.0).vectors(Block(400, larger))
    assert (found == scaled).all()


def test_decisions_beyond_a_history_do_not_count():
    block = people(20, 30, 2, 0.3, 0.5, 6)
    statistic, short = CentredScores(30, 2, 2, 0.2), np.full(20, 10)
    arrays = dict(block.arrays) | {"lengths": short}
    before = statistic.vectors(Block(20, arrays))
    for name in ("states", "rewards", "propensities"):
        changed = np.array(block[name], dtype=float)
        changed[:, 10:] = np.nan
        arrays[name] = changed
    assert (statistic.vectors(Block(20, arrays)) == before).all()
    arrays["propensities"] = np.full((20, 30), np.nan)
    assert not statistic.vectors(Block(20, arrays)).any()


def test_later_rewards_count_where_actions_last():
    # The reward of a decision is the action before it.
    block = people(300, 50, 1, 0.5, 0.5, 7)
    taken = np.asarray(block["actions"])
    delayed = np.concatenate([np.zeros((300, 1)), taken[:, :-1]], axis=1)
    later = Block(300, dict(block.arrays) | {"rewards": delayed})
    assert CentredScores(50, 1, 2, 0.5, window=2).vectors(later).mean() > 0.9
    assert abs(CentredScores(50, 1, 2, 0.5).vectors(later).mean()) < 0.4


def test_a_missing_chance_is_refused_by_its_name():
    block = people(3, 10, 2, 0.3, 0.5, 8)
    arrays = {name: array for name, array in block.arrays.items() if name != "propensities"}
    with pytest.raises(InvalidArgument, match="propensities"):
        CentredScores(10, 2, 2, 0.2).check(Block(3, arrays))


def test_chances_of_a_table_are_those_that_are_logged():
    rng = np.random.default_rng(9)
    table = rng.dirichlet(np.full(3, 5.0), size=4)
    block = several(30, 12, rng, states=4)
    logged = table[np.asarray(block["states"])[:, :-1]]
    same = Block(30, dict(block.arrays) | {"propensities": logged})
    given = CentredScores(12, 4, 3, 0.01, linear=False, table=table)
    assert (given.vectors(block) == CentredScores(12, 4, 3, 0.01, linear=False).vectors(same)).all()
