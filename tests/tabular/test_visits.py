"""Visit counts: by hand, attacked, and equal to their slow definition."""

import itertools
from collections import Counter

import numpy as np
import pytest

from tacit import Block, Relation, check_statistic
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import read_codes, read_rewards
from tacit.tabular.visits import VisitCounts

H, S, A = 4, 3, 2


def sample_of(H, S, A):
    """Random users, and users who stay in one cell or walk through all of them."""

    def sample(rng, users):
        states = rng.integers(0, S, (users, H + 1))
        actions = rng.integers(0, A, (users, H))
        rewards = rng.choice([0.0, 0.4, 1.0], (users, H))
        lazy = rng.random(users) < 0.3
        states[lazy] = rng.integers(0, S, (lazy.sum(), 1))
        actions[lazy] = rng.integers(0, A, (lazy.sum(), 1))
        rewards[lazy] = 1.0
        busy = rng.random(users) < 0.4
        walk = (np.arange(H + 1) + rng.integers(0, S, (busy.sum(), 1))) % S
        states[busy] = np.where(rng.random((busy.sum(), 1)) < 0.5, walk, walk[:, ::-1])
        actions[busy] = (np.arange(H) // S + rng.integers(0, A, (busy.sum(), 1))) % A
        rewards[busy] = rng.integers(0, 2, (busy.sum(), 1))
        return Block(
            users,
            {
                "states": states,
                "actions": actions,
                "rewards": rewards,
                "versions": np.zeros(users, dtype=np.int64),
            },
        )

    return sample


POLICY = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0], [0, 1, 1]])

DESIGNS = [
    {},
    {"weight": 0.5},
    {"policy": POLICY},
    {"pooled": True},
    {"pooled": True, "weight": 0.3},
    {"pooled": True, "cap": 1},
    {"pooled": True, "cap": 2, "weight": 0.5},
    {"pooled": True, "cap": 3, "policy": POLICY},
    {"apart": True, "pooled": True},
    {"apart": True, "pooled": True, "cap": 2, "weight": 0.5},
]


def made(options):
    """The statistic of a design; some have the last step apart."""
    given = {name: value for name, value in options.items() if name != "apart"}
    return VisitCounts(S, A, H, apart="apart" in options, **given)


@pytest.mark.parametrize("options", DESIGNS, ids=str)
def test_sensitivities_hold_and_are_attained(options):
    statistic = made(options)
    report = check_statistic(statistic, sample_of(H, S, A), users=400, rounds=80)
    masked = "policy" in options
    assert report.tightness["replace-one l2"] > (0.85 if masked else 0.95), report.tightness
    assert report.tightness["zero-out l2"] > (0.85 if masked else 0.95), report.tightness


def test_the_papers_numbers():
    two = VisitCounts(S, A, 20)
    assert two.l1(Relation.REPLACE_ONE) == 4 * 20
    assert two.l1(Relation.ZERO_OUT) == 2 * 20
    assert two.l2(Relation.REPLACE_ONE) ** 2 == pytest.approx(4 * 20)
    pooled = VisitCounts(30, 4, 20, pooled=True)
    assert pooled.l2(Relation.REPLACE_ONE) ** 2 == pytest.approx(4 * 20**2)
    once = VisitCounts(30, 4, 20, pooled=True, cap=1)
    assert once.l2(Relation.REPLACE_ONE) ** 2 == pytest.approx(4 * 20)


@pytest.mark.parametrize("users", [VisitCounts(S, A, H), made({"apart": 1, "pooled": True})])
def test_the_reward_of_the_last_step_counts_whatever_follows(users):
    """One user whose log ends with her last step; a gap before it is a gap."""
    block = Block(
        2,
        {
            "states": np.array([[0, 1, 2, 1, -1], [0, 1, -1, 1, -1]]),
            "actions": np.zeros((2, H), dtype=np.int64),
            "rewards": np.ones((2, H)),
            "versions": np.zeros(2, dtype=np.int64),
        },
    )
    for row, steps in zip(users.vectors(block), (4, 2), strict=True):
        parts = users.layout.unpack(row)
        assert parts["rewards"].sum() == parts["transitions"].sum() == steps
    alone = VisitCounts(S, A, 1)
    last = Block(1, {name: a[:1, 3:] for name, a in block.arrays.items() if name != "versions"})
    assert alone.layout.unpack(alone.total(last))["rewards"].sum() == 1.0


def slow(statistic, block):
    """Transitions by (row, s, a, s'), obviously."""
    counts = Counter()
    for user in range(block.users):
        seen = Counter()
        if statistic.policy is not None and block["versions"][user] != statistic.version:
            continue
        for h in range(statistic.horizon):
            s, t = block["states"][user, h], block["states"][user, h + 1]
            a, r = block["actions"][user, h], block["rewards"][user, h]
            last = h == statistic.horizon - 1 and (statistic.apart or not statistic.pooled)
            t = 0 if last and not 0 <= t < S else t
            if not (0 <= s < S and 0 <= t < S and 0 <= a < A and np.isfinite(r)):
                continue
            if statistic.policy is not None and statistic.policy[h, s] != a:
                continue
            row = int(last) if statistic.pooled else h
            seen[row, s, a] += 1
            if statistic.cap is None or seen[row, s, a] <= statistic.cap:
                counts[row, s, a, t] += 1
                counts[row, s, a, "reward"] += min(max(r, 0.0), 1.0)
    return counts


@pytest.mark.parametrize("options", DESIGNS, ids=str)
def test_totals_equal_the_slow_definition(options):
    """Also of users whose state after the last step is not known."""
    statistic = made(options)
    rng = np.random.default_rng(1)
    block = sample_of(H, S, A)(rng, 200)
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    arrays["states"][::7, 2] = 99
    arrays["states"][::3, H] = -1
    arrays["states"][1::9, H] = S
    arrays["actions"][::5, 1] = -1
    arrays["rewards"][::3, 0] = np.nan
    arrays["rewards"][1::3, 1] = 7.0
    arrays["versions"][::11] = 3
    block = Block(200, arrays)
    parts = statistic.layout.unpack(statistic.total(block))
    expected = slow(statistic, block)
    for cell, (row, s, a) in enumerate(zip(*statistic.where, strict=True)):
        for t in range(S):
            assert parts["transitions"][cell, t] == expected[row, s, a, t]
        assert parts["rewards"][cell] == pytest.approx(expected[row, s, a, "reward"])
    assert parts["transitions"].sum() == sum(v for k, v in expected.items() if k[3] != "reward")


AGGREGATES = [{}, {"pooled": True}, {"policy": POLICY}, {"apart": True, "pooled": True}]


@pytest.mark.parametrize("options", AGGREGATES, ids=str)
def test_aggregates_equal_episodes(options):
    statistic = made(options)
    block = sample_of(H, S, A)(np.random.default_rng(2), 100)
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    if statistic.policy is not None:
        arrays["actions"] = np.take_along_axis(
            POLICY[np.newaxis], arrays["states"][:, :H, np.newaxis], axis=2
        )[:, :, 0]
    transitions, rewards = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A))
    for user, h in itertools.product(range(100), range(H)):
        s, a = arrays["states"][user, h], arrays["actions"][user, h]
        transitions[h, s, a, arrays["states"][user, h + 1]] += 1
        rewards[h, s, a] += arrays["rewards"][user, h]
    summed = Block(100, {"transitions": transitions, "rewards": rewards}, aggregate=True)
    assert np.allclose(statistic.total(summed), statistic.total(Block(100, arrays)))


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("i8", [0, 7, -3, 2**62, -(2**63)], [0, 7, -3, 2**62, -(2**63)]),
        ("i1", [0, 1, -1, 127, -128], [0, 1, -1, 127, -128]),
        (">i4", [0, 1, 2, 3, -4], [0, 1, 2, 3, -4]),
        ("u1", [0, 1, 2, 3, 255], [0, 1, 2, 3, 255]),
        ("u8", [0, 1, 2**53, 2**63, 2**64 - 1], [0, 1, 2**53, -1, -1]),
        ("?", [False, True, True, False, True], [0, 1, 1, 0, 1]),
        ("f8", [1.0, -0.0, 0.5, 2.0**53, -(2.0**52)], [1, 0, -1, 2**53, -(2**52)]),
        ("f8", [np.nan, np.inf, -np.inf, 1e308, 5e-324], [-1] * 5),
        ("f4", [2.0, 1.5, np.nan, 3e38, np.inf], [2, -1, -1, -1, -1]),
    ],
)
def test_codes_are_whole_numbers_or_invalid(dtype, values, expected):
    array = np.array(values, dtype=dtype)
    codes = read_codes(Block(5, {"codes": array}), "codes", (5,))
    assert codes.tolist() == expected
    assert codes.dtype == np.int64
    # Every other one: what loops get has no holes.
    assert read_codes(Block(3, {"codes": array[::2]}), "codes", (3,)).flags.c_contiguous


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("f8", [0.3, -0.1, 1.1, 1e308, -1e308], [0.3, 0.0, 1.0, 1.0, 0.0]),
        ("f8", [np.nan, np.inf, -np.inf, 5e-324, -0.0], [np.nan, np.nan, np.nan, 5e-324, 0.0]),
        ("f4", [0.5, 2.0, np.inf, np.nan, -3e38], [0.5, 1.0, np.nan, np.nan, 0.0]),
        ("i8", [0, 1, 2, -(2**63), 2**62], [0.0, 1.0, 1.0, 0.0, 1.0]),
        ("u1", [0, 1, 2, 254, 255], [0.0, 1.0, 1.0, 1.0, 1.0]),
        ("?", [False, True, True, False, True], [0.0, 1.0, 1.0, 0.0, 1.0]),
    ],
)
def test_rewards_are_cut_or_invalid(dtype, values, expected):
    rewards = read_rewards(Block(5, {"r": np.array(values, dtype=dtype)}), "r", (5,))
    assert np.array_equal(rewards, expected, equal_nan=True)
    assert rewards.dtype == np.float64


def test_refusals():
    for options in (
        {"cap": 1},
        {"pooled": True, "cap": 0},
        {"weight": 0.0},
        {"policy": POLICY + 1},
    ):
        with pytest.raises(InvalidArgument):
            VisitCounts(S, A, H, **options)
    block = Block(1, {"transitions": np.zeros((1, S, A, S)), "rewards": np.zeros((1, S, A))}, True)
    with pytest.raises(InvalidArgument, match="one by one"):
        VisitCounts(S, A, H, pooled=True, cap=1).total(block)
    with pytest.raises(InvalidArgument, match="steps"):
        VisitCounts(S, A, H).total(block)
