"""Sums of features: attacked, enumerated, unbiased, and equal however they are computed."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Block, check_statistic
from tacit.linear.statistics import FeatureSums, unit_features
from tacit.privacy.errors import InvalidArgument
from tests.tabular.samples import bounds, check_extent, everyone, largest_gap, users_of

# Three states, two actions, two dimensions: without negative features, with, and with short ones.
PLAIN = np.array([[[1, 0], [0.6, 0.4]], [[0, 1], [0.3, 0.7]], [[0.2, 0.8], [0.9, 0.1]]])
SIGNED = np.array([[[0.6, 0.8], [-0.6, -0.8]], [[1, 0], [-0.8, 0.6]], [[0, -1], [0.5, 0.5]]])
SHORT = 0.2 * SIGNED
S, A, d, H = 3, 2, 2, 4

STEPWISE = np.linspace(0.2, 1.0, H * S * A).reshape(H, S, A)


def sample_of(S, A, H):
    """Random users, users who stay where they are, and users who drop every other step."""

    def sample(rng, users):
        arrays = users_of(rng, users, S, A, H)
        hops = rng.random(users) < 0.2
        arrays["rewards"][hops, :: 1 + rng.integers(2)] = np.nan
        return Block(users, arrays)

    return sample


DESIGNS = [
    ("per step", FeatureSums(PLAIN, H)),
    ("per step, signed", FeatureSums(SIGNED, H)),
    ("per step, weighted", FeatureSums(SIGNED, H, weights=STEPWISE, gram=0.4, reward=2.0)),
    ("per step, no rewards", FeatureSums(SIGNED, H, reward=0.0)),
    ("per step, clipped", FeatureSums(PLAIN, H, clip=1.5)),
    ("per step, signed, clipped", FeatureSums(SIGNED, H, clip=1.5)),
    ("per step, signed, clipped hard", FeatureSums(SIGNED, H, clip=0.2)),
    ("pooled", FeatureSums(PLAIN, H, pooled=True)),
    ("pooled, signed", FeatureSums(SIGNED, H, pooled=True)),
    ("pooled, weighted", FeatureSums(SIGNED, H, pooled=True, weights=STEPWISE[:1])),
    ("pooled, clipped", FeatureSums(PLAIN, H, pooled=True, clip=3.0)),
    ("pooled, clipped hard", FeatureSums(PLAIN, H, pooled=True, clip=0.5, gram=0.3)),
    ("pooled, signed, hardly clipped", FeatureSums(SIGNED, H, pooled=True, clip=6.5)),
    ("pooled, short, clipped", FeatureSums(SHORT, H, pooled=True, clip=0.3)),
]


@pytest.mark.parametrize("statistic", [s for _, s in DESIGNS], ids=[name for name, _ in DESIGNS])
def test_sensitivities_hold_and_are_attained(statistic):
    check_statistic(statistic, sample_of(S, A, H), users=150, rounds=80, attained=0.95)


def test_numbers_by_hand():
    one_hot = np.eye(6).reshape(3, 2, 6)
    per_step = FeatureSums(one_hot, H)
    assert bounds(per_step) == pytest.approx((math.sqrt(3 * H), math.sqrt(6 * H)))
    assert bounds(FeatureSums(one_hot, H, pooled=True))[1] == pytest.approx(math.sqrt(6) * H)
    assert bounds(FeatureSums(one_hot, H, clip=2.0)) == pytest.approx((2.0, 2.0 * math.sqrt(2.0)))
    opposite = np.array([[[1.0], [-1.0]]])
    assert bounds(FeatureSums(opposite, H)) == pytest.approx((math.sqrt(3 * H), math.sqrt(8 * H)))
    # A step that never counts opposes nobody.
    masked = FeatureSums(opposite, H, clip=1.0, weights=np.array([[[1.0, 0.0]]]))
    assert bounds(masked)[1] <= math.sqrt(2.0) + 1e-12
    # Negative entries alone oppose nobody either.
    turned = FeatureSums(-PLAIN, H, pooled=True, clip=1.0)
    assert bounds(turned) == pytest.approx((1.0, math.sqrt(2.0)))
    # One cell and one next state: nobody is farther from anybody than from nobody.
    assert bounds(FeatureSums([[[1.0]]], H)) == pytest.approx((math.sqrt(3 * H),) * 2)


@st.composite
def tiny(draw):
    """Features, a horizon and options of a statistic with few possible users."""
    S, A, H = draw(st.sampled_from([(1, 1, 2), (1, 3, 2), (2, 1, 3), (2, 2, 1), (3, 1, 2)]))
    d = draw(st.integers(1, 3))
    entry = st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.1, 0.6, 1.0])
    sizes = draw(st.lists(entry, min_size=S * A * d, max_size=S * A * d))
    pooled = draw(st.booleans())
    rows = 1 if pooled else draw(st.sampled_from([1, H]))
    entry = st.sampled_from([0.0, 0.3, 1.0, 5.0])
    weights = draw(st.lists(entry, min_size=rows * S * A, max_size=rows * S * A))
    options = {
        "pooled": pooled,
        "gram": draw(st.sampled_from([0.01, 1.0, 4.0])),
        "reward": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "weights": np.reshape(weights, (rows, S, A)),
    }
    return np.reshape(sizes, (S, A, d)), H, options


def made(features, horizon, **options):
    """A statistic, or None where there is nothing to learn."""
    try:
        return FeatureSums(features, horizon, **options)
    except InvalidArgument:
        return None


@settings(max_examples=120, deadline=None)
@given(case=tiny(), share=st.sampled_from([None, 0.1, 0.5, 0.9]))
def test_enumeration(case, share):
    features, horizon, options = case
    statistic = made(features, horizon, **options)
    if statistic is None:
        return
    if share is not None:
        statistic = FeatureSums(features, horizon, clip=share * statistic.bound, **options)
    of_zero, of_replace = check_extent(statistic, everyone(*features.shape[:2], horizon))
    assert of_zero == pytest.approx(1.0, rel=1e-8)
    if horizon == 1 or not (statistic.pooled or statistic.clips):
        assert of_replace == pytest.approx(1.0, rel=1e-8)


def test_many_steps_do_not_add_up_to_rounding_errors():
    steps = 400
    rng = np.random.default_rng(4)
    sample = sample_of(2, 2, steps)(rng, 60)
    features = np.array([[[1.0, 0.0], [-1.0, 0.0]], [[0.6, 0.8], [-0.6, -0.8]]])
    for gram, clip in ((1e-12, 1e-3), (1e-12, 0.5), (1.0, 20.0), (1e9, 1e3)):
        statistic = FeatureSums(features, steps, pooled=True, gram=gram, clip=clip)
        assert statistic.clips
        assert np.linalg.norm(statistic.vectors(sample), axis=1).max() <= clip


MEASURES = np.array([[0.8, 0.2], [0.1, 0.9]])
THETA = np.array([0.9, 0.2])
MIXED = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.2, 0.8], [0.0, 1.0]]])


def bias(pooled, clip):
    """The largest entries of E[next - gram measures] and E[rewards - gram theta]: exact.

    They are the expected errors of next states and rewards around their means given the present,
    in a linear MDP of two states and actions where users choose uniformly.
    """
    steps = 3
    statistic = FeatureSums(MIXED, steps, pooled=pooled, clip=clip)
    assert statistic.clips
    block = everyone(2, 2, steps, rewards=(0.0, 1.0))
    states, actions = np.asarray(block["states"]), np.asarray(block["actions"])
    chances = np.full(block.users, 0.5)
    for h in range(steps):
        phi = MIXED[states[:, h], actions[:, h]]
        paid = phi @ THETA
        reward = np.asarray(block["rewards"])[:, h]
        moves = (phi @ MEASURES)[np.arange(block.users), states[:, h + 1]]
        chances *= 0.5 * moves * np.where(reward == 1.0, paid, 1.0 - paid)
    assert chances.sum() == pytest.approx(1.0)
    parts = statistic.layout.unpack(chances @ statistic.vectors(block))
    free = FeatureSums(MIXED, steps, pooled=pooled)
    whole = free.layout.unpack(chances @ free.vectors(block))
    assert np.trace(parts["gram"].sum(axis=0)) < 0.9 * np.trace(whole["gram"].sum(axis=0))
    gram = parts["gram"]
    return largest_gap((parts["next"], gram @ MEASURES), (parts["rewards"], gram @ THETA))


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("clip", [0.3, 1.3, 2.1])
def test_what_follows_a_clipped_step_is_unbiased(pooled, clip):
    assert bias(pooled, clip) < 1e-12


@pytest.mark.parametrize("options", [{}, {"pooled": True}, {"weights": STEPWISE}], ids=str)
def test_sums_by_hand(options):
    statistic = FeatureSums(3.0 * SIGNED, H, gram=0.5, reward=2.0, **options)
    block = sample_of(S, A, H)(np.random.default_rng(5), 40)
    parts = statistic.layout.unpack(statistic.total(block))
    expected = {name: np.zeros_like(part) for name, part in parts.items()}
    weights = options.get("weights", np.ones((H, S, A)))
    phi = 3.0 * SIGNED / np.linalg.norm(3.0 * SIGNED, axis=-1, keepdims=True).clip(1.0)
    for user, h in itertools.product(range(40), range(H)):
        s, t = block["states"][user, h : h + 2]
        a, r = block["actions"][user, h], block["rewards"][user, h]
        if np.isnan(r):
            continue
        row, w = 0 if options.get("pooled") else h, weights[h, s, a]
        expected["gram"][row] += w * np.outer(phi[s, a], phi[s, a])
        expected["next"][row, :, t] += w * phi[s, a]
        expected["rewards"][row] += w * r * phi[s, a]
    for name, part in parts.items():
        assert np.allclose(part, expected[name], atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"pooled": True}, {"weights": STEPWISE}], ids=str)
@pytest.mark.parametrize("form", [{}, {"reward": 0.0}])
def test_aggregates_equal_episodes(options, form):
    rng = np.random.default_rng(6)
    policy = rng.integers(0, A, (H, S))
    states = rng.integers(0, S, (80, H + 1))
    rewards = rng.random((80, H))
    actions = policy[np.arange(H), states[:, :H]]
    episodes = Block(80, {"states": states, "actions": actions, "rewards": rewards})
    counts, sums = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A))
    for h in range(H):
        np.add.at(counts[h], (states[:, h], actions[:, h], states[:, h + 1]), 1)
        np.add.at(sums[h], (states[:, h], actions[:, h]), rewards[:, h])
    summed = Block(80, {"transitions": counts, "rewards": sums}, aggregate=True)
    statistic = FeatureSums(SIGNED, H, **options, **form)
    assert np.allclose(statistic.total(summed), statistic.total(episodes))
    clipped = FeatureSums(SIGNED, H, clip=0.5, **options, **form)
    with pytest.raises(InvalidArgument, match="one by one"):
        clipped.total(summed)
    # A clip that nobody reaches is none.
    wide = FeatureSums(SIGNED, H, clip=1e3, **options, **form)
    assert not wide.clips
    assert np.allclose(wide.total(summed), statistic.total(summed))


def test_long_features_are_cut():
    statistic = FeatureSums(3.0 * PLAIN, H)
    assert bounds(statistic)[0] == pytest.approx(math.sqrt(3 * H))
    arrays = {"states": [[0, 1, 0, 1, 0]], "actions": [[0] * H], "rewards": [[1.0] * H]}
    one = Block(1, {name: np.array(values) for name, values in arrays.items()})
    assert np.linalg.norm(statistic.vectors(one)) == pytest.approx(math.sqrt(3 * H))
    assert np.linalg.norm(unit_features(3.0 * SIGNED), axis=-1) == pytest.approx(np.ones((S, A)))
    # Short ones are left alone, and no size is too much.
    assert np.array_equal(unit_features(SHORT), SHORT)
    huge = unit_features([[[1.7e308, -1.7e308], [5e-324, 0.0], [0.0, 0.0]]])
    assert huge[0, 0] == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)])
    assert np.array_equal(huge[0, 1:], [[5e-324, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    "options",
    [
        {"clip": 0.0},
        {"gram": math.inf},
        {"reward": math.nan},
        {"weights": np.ones((H + 1, S, A))},
        {"weights": np.zeros((1, S, A))},
        {"weights": STEPWISE, "pooled": True},
        {"horizon": 0},
        {"features": SIGNED[0]},
        {"features": np.full((S, A, d), np.inf)},
    ],
)
def test_refusals(options):
    with pytest.raises(InvalidArgument):
        FeatureSums(**{"features": SIGNED, "horizon": H, **options})
