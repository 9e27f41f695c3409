"""What mixture agents ask: attacked, enumerated, unbiased, and equal however it is computed."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tacit import Block, Relation, check_statistic
from tacit.mixture import statistics
from tacit.mixture.statistics import ModelSums, PathCounts
from tacit.privacy import sensitivity as walks
from tacit.privacy.errors import InvalidArgument
from tests.tabular.samples import bounds, check_extent, everyone, extent, largest_gap, users_of

S, A, k, H = 3, 2, 2, 4


def random_world(S, A, k, m=2, seed=0, holes=0.3):
    """Features of all sizes and signs, p0 a distribution, some transitions impossible."""
    rng = np.random.default_rng(seed)
    support = rng.random((S, A, S)) > holes
    support[..., 0] |= ~support.any(axis=-1)
    mean = rng.random((S, A, S)) * support
    mean /= mean.sum(axis=-1, keepdims=True)
    features = rng.normal(size=(S, A, k, S)) * support[:, :, np.newaxis]
    features /= np.sqrt((features**2).sum(axis=(2, 3), keepdims=True)) / rng.random((S, A, 1, 1))
    return {
        "features": features,
        "mean": mean,
        "support": support,
        "reward_features": rng.normal(size=(S, A, m)) / 2.0,
    }


def model_sums(world, horizon, rewards, **options):
    own = {**world, "reward_features": world["reward_features"] if rewards else None}
    return ModelSums(**own, horizon=horizon, **options)


def sample_of(S, A, H):
    """Random users, users who stay where they are, and users who drop every other step."""

    def sample(rng, users):
        arrays = users_of(rng, users, S, A, H)
        return Block(users, {**arrays, "versions": (rng.random(users) < 0.05).astype(int)})

    return sample


WORLD = random_world(S, A, k, seed=2)
FULL = random_world(S, A, k, seed=3, holes=0.0)
# Two cells that oppose each other, in which users can stay.
OPPOSED = {
    "features": np.array([[[[0.5, -0.5]]], [[[0.5, -0.5]]]]) * math.sqrt(2.0),
    "mean": np.full((2, 1, 2), 0.5),
    "support": np.ones((2, 1, 2), dtype=bool),
    "reward_features": np.array([[[1.0, 0.0]], [[0.0, 1.0]]]),
}

ATTACKED = [
    ("per step", model_sums(FULL, H, True), 0.95),
    ("per step, known rewards", model_sums(FULL, H, False), 0.92),
    ("per step, holes", model_sums(WORLD, H, True), None),
    ("per step, clipped", model_sums(OPPOSED, H, True, clip=1.2), 0.95),
    ("pooled", model_sums(FULL, H, True, pooled=True), 0.95),
    ("pooled, opposed", model_sums(OPPOSED, H, False, pooled=True), 0.99),
    ("pooled, clipped", model_sums(FULL, H, True, pooled=True, clip=1.0), 0.9),
]


@pytest.mark.parametrize(
    ("statistic", "attained"), [row[1:] for row in ATTACKED], ids=[row[0] for row in ATTACKED]
)
def test_sensitivities_hold(statistic, attained):
    sizes = np.shape(statistic.support)[:2]
    sample = sample_of(*sizes, H)
    report = check_statistic(statistic, sample, users=150, rounds=60, attained=attained)
    assert min(report.tightness.values()) > 0.3


@st.composite
def tiny(draw):
    """A world with few possible users."""
    S, A, H = draw(st.sampled_from([(1, 1, 2), (1, 2, 2), (2, 1, 3), (2, 2, 1), (3, 1, 2)]))
    k, m = draw(st.integers(1, 2)), draw(st.integers(1, 2))

    def table(*shape):
        entry = st.sampled_from([-3.0, -0.5, 0.0, 0.2, 0.6, 1.0])
        size = math.prod(shape)
        return np.reshape(draw(st.lists(entry, min_size=size, max_size=size)), shape)

    world = {
        "features": table(S, A, k, S),
        "mean": table(S, A, S),
        "support": table(S, A, S) > -1.0,
        "reward_features": table(S, A, m),
    }
    return world, H


def made(maker, *arguments, **options):
    """A statistic, or None where there is nothing to learn."""
    try:
        statistic = maker(*arguments, **options)
        bounds(statistic)
    except InvalidArgument:
        return None
    return statistic


@settings(max_examples=120, deadline=None)
@given(
    case=tiny(),
    rewards=st.booleans(),
    pooled=st.booleans(),
    share=st.sampled_from([None, 0.1, 0.5, 0.9]),
)
def test_model_sums_are_enumerated(case, rewards, pooled, share):
    world, horizon = case
    options = {"pooled": pooled}
    statistic = made(model_sums, world, horizon, rewards, **options)
    if statistic is None:
        return
    if share is not None:
        options["clip"] = share * statistic.bound
        statistic = model_sums(world, horizon, rewards, **options)
    block = everyone(*world["mean"].shape[:2], horizon)
    of_zero, of_replace = check_extent(statistic, block)
    if of_zero > 0 and (horizon == 1 or (share is None and not pooled)):
        # The exact diameter, zero included.
        assert of_zero == pytest.approx(1.0, rel=1e-8)
        if share is None:
            assert of_replace == pytest.approx(1.0, rel=1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_MOST_STEPS", 0)
        many = model_sums(world, horizon, rewards, **options)
        assert bounds(many)[0] == bounds(statistic)[0]
        assert bounds(statistic)[1] <= bounds(many)[1] * (1 + 1e-12)
        assert many.sensitivity(Relation.REPLACE_ONE, "l2") == bounds(many)[1]


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(1, 12),
    dimension=st.integers(1, 4),
    tilt=st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0]),
)
def test_no_sums_oppose_each_other_more(seed, size, dimension, tilt):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(size, dimension)) * 10.0 ** rng.uniform(-3, 3, (size, 1))
    rows += tilt * np.linalg.norm(rows, axis=1, keepdims=True)
    theta = walks.opposed(np.vstack([rows, np.zeros((1, dimension))]))
    assert 0.0 <= theta <= 1.0
    units = [row / np.linalg.norm(row) for row in rows if row.any()]
    first = units[0] if units else None
    for _ in range(20 if units else 0):
        # The best partner of a sum is the projection of its opposite to all sums.
        second = np.transpose(units) @ nnls(np.transpose(units), -first)[0]
        if np.linalg.norm(second) < 1e-6:
            break
        second /= np.linalg.norm(second)
        assert -float(first @ second) <= theta + 1e-9
        first = second
    weights = rng.random((200, size)) * (rng.random((200, size)) < 0.3)
    sums = weights @ rows
    lengths = np.linalg.norm(sums, axis=1)
    assert (sums @ sums.T >= -(theta + 1e-9) * np.outer(lengths, lengths) - 1e-12).all()


def cone(angle, rows=24):
    """Rows all around an axis."""
    around = np.linspace(0.0, 2.0 * math.pi, rows, endpoint=False)
    aside = math.sin(angle) * np.stack([np.cos(around), np.sin(around)], axis=1)
    return np.hstack([np.full((rows, 1), math.cos(angle)), aside])


@pytest.mark.parametrize("angle", [0.3, 0.78, 0.9, 1.2, 1.5])
def test_what_opposes_is_exact_for_cones_and_for_pairs(angle):
    exact = max(0.0, -math.cos(2.0 * angle))
    assert walks.opposed(cone(angle)) == pytest.approx(exact, abs=2e-3)
    assert walks.opposed(cone(angle)) >= exact
    assert walks.opposed(3.0 * cone(angle, 2)) == pytest.approx(exact, abs=2e-3)


SUPPORT = np.array(
    [[[1, 1, 0], [1, 0, 0]], [[0, 1, 1], [1, 0, 1]], [[0, 0, 1], [1, 1, 1]]], dtype=bool
)
INFORMS = SUPPORT.copy()
INFORMS[0, 1] = INFORMS[2, 0] = False
START = np.array([True, True, False])
POLICY = np.array([[0, 1, 0], [0, 0, 1], [1, 1, 1], [0, 1, 0]])
PATHS = [
    PathCounts(SUPPORT, INFORMS, START, H, POLICY),
    PathCounts(SUPPORT, INFORMS, START, H, POLICY, rewards=True),
    PathCounts(SUPPORT, SUPPORT, START, H, POLICY, rewards=True),
]


def followers(statistic):
    """Users most of whom do what the policy says, and some of whom do not."""

    def sample(rng, users):
        H, S = statistic.policy.shape
        states = rng.integers(0, S, (users, H + 1))
        states[:, 0] = rng.choice(np.flatnonzero(statistic.start), users)
        actions, rewards = np.zeros((users, H), dtype=int), rng.integers(0, 2, (users, H)) * 1.0
        for user, h in itertools.product(range(users), range(H)):
            actions[user, h] = statistic.policy[h, states[user, h]]
            allowed = np.flatnonzero(statistic.support[states[user, h], actions[user, h]])
            if len(allowed) and rng.random() < 0.97:
                states[user, h + 1] = rng.choice(allowed)
        actions[rng.random((users, H)) < 0.02] += 1
        versions = np.where(rng.random(users) < 0.05, statistic.version + 1, statistic.version)
        arrays = {"states": states, "actions": actions, "rewards": rewards}
        return Block(users, {**arrays, "versions": versions})

    return sample


@pytest.mark.parametrize("statistic", PATHS)
def test_paths_are_attacked(statistic):
    check_statistic(statistic, followers(statistic), users=150, rounds=30, attained=0.95)


@st.composite
def mazes(draw):
    S, A, H = draw(st.sampled_from([(1, 1, 1), (1, 2, 3), (2, 1, 3), (2, 2, 2), (3, 1, 2)]))

    def marks(*shape):
        size = math.prod(shape)
        return np.reshape(draw(st.lists(st.booleans(), min_size=size, max_size=size)), shape)

    start = marks(S)
    start[draw(st.integers(0, S - 1))] = True
    table = draw(st.lists(st.integers(0, A - 1), min_size=H * S, max_size=H * S))
    rewards = draw(st.booleans())
    support = marks(S, A, S) | marks(S, A, S)
    return PathCounts(support, marks(S, A, S), start, H, np.reshape(table, (H, S)), rewards=rewards)


@settings(max_examples=150, deadline=None)
@given(statistic=mazes())
def test_paths_are_enumerated(statistic):
    S, A, _ = statistic.support.shape
    vectors = statistic.vectors(everyone(S, A, statistic.horizon))
    for power, declared in ((2, bounds(statistic)), (1, bounds(statistic, "l1"))):
        found = extent(vectors, power)
        # Exact, but never less than 1.
        assert np.maximum(found, 1.0) == pytest.approx(declared, rel=1e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_MOST_PAIRS", -1)
        fields = ("support", "informs", "start", "horizon", "policy", "version", "rewards")
        rough = PathCounts(*(getattr(statistic, name) for name in fields))
        for norm, exact in (("l2", bounds(statistic)), ("l1", bounds(statistic, "l1"))):
            assert rough.sensitivity(Relation.ZERO_OUT, norm) == exact[0]
            assert rough.sensitivity(Relation.REPLACE_ONE, norm) >= exact[1] * (1 - 1e-12)


def test_paths_by_hand():
    # Policy: 0 -> {0, 1}, 1 -> {0, 2} at the first step; the last transition teaches nothing.
    statistic = PATHS[1]
    good = {"states": [[0, 1, 2, 0, 0]], "actions": [[0, 0, 1, 0]], "rewards": [[1, 0.5, 1, 0]]}
    block = Block(1, {**{n: np.array(v) for n, v in good.items()}, "versions": np.array([0])})
    counts, sums = statistic.dense(*statistic.layout.unpack(statistic.total(block)).values())
    assert sorted(zip(*np.nonzero(counts), strict=True)) == [(0, 0, 1), (1, 1, 2), (2, 2, 0)]
    assert sums[[0, 1, 2], [0, 1, 2]] == pytest.approx([1.0, 0.5, 1.0])
    assert counts.sum() == 3.0


def test_invalid_steps_end_paths():
    statistic = PATHS[2]
    good = {
        "states": np.array([[0, 1, 2, 0, 0]]),
        "actions": np.array([[0, 0, 1, 0]]),
        "rewards": np.ones((1, H)),
        "versions": np.array([0]),
    }
    prefix = [0.0, 2.0, 4.0, 6.0, 7.0]
    assert statistic.total(Block(1, good)).sum() == prefix[H]
    wrong = [
        ("states", 0, 2, 0),  # nobody starts there
        ("states", 2, 0, 1),  # impossible
        ("states", 2, -1, 1),
        ("states", 2, S, 1),
        ("states", 2, 0.5, 1),
        ("states", 2, math.nan, 1),
        ("actions", 1, 1, 1),
        ("actions", 2, -1, 2),
        ("actions", 2, 2**40, 2),
        ("rewards", 2, math.nan, 2),
        ("rewards", 0, math.inf, 0),
        ("versions", 0, 1, 0),
    ]
    for name, column, value, lived in wrong:
        array = good[name].astype(float)
        array[(0, column) if array.ndim == 2 else 0] = value
        found = statistic.total(Block(1, {**good, name: array})).sum()
        assert found == prefix[lived], (name, column, value)
    # Nobody starts there, even if all that follows is possible.
    path = {"states": np.array([[2, 2, 0, 0, 0]]), "actions": np.array([[0, 1, 1, 0]])}
    assert statistic.total(Block(1, {**good, **path})).sum() == 0.0


def test_a_policy_that_teaches_nothing_has_a_release():
    for support in (SUPPORT, SUPPORT & False):
        statistic = PathCounts(support, SUPPORT & False, START, H, POLICY)
        assert statistic.layout.size == 1
        assert bounds(statistic) == bounds(statistic, "l1") == (1.0, 1.0)
        block = followers(PATHS[0])(np.random.default_rng(0), 20)
        assert not statistic.vectors(block).any()
        counts, sums = statistic.dense(np.ones(1), None)
        assert not counts.any()
        assert not sums.any()


def test_many_steps_do_not_add_up_to_rounding_errors():
    steps = 400
    block = sample_of(2, 1, steps)(np.random.default_rng(4), 60)
    for clip in (1e-3, 0.5, 20.0):
        statistic = model_sums(OPPOSED, steps, True, pooled=True, clip=clip)
        assert statistic.clips
        assert np.linalg.norm(statistic.vectors(block), axis=1).max() <= clip


def test_impossible_transitions_are_dropped():
    world = random_world(S, A, k, seed=2)
    states, actions = np.indices((S, A)).reshape(2, -1)
    for t in range(S):
        block = Block(
            S * A,
            {
                "states": np.stack([states, np.full(S * A, t), states], axis=1),
                "actions": np.stack([actions, np.full(S * A, -1)], axis=1),
                "rewards": np.ones((S * A, 2)),
            },
        )
        possible = world["support"][states, actions, t]
        for statistic in (
            model_sums(world, 2, True),
            model_sums(world, 2, True, pooled=True, clip=0.1),
        ):
            assert np.array_equal(statistic.vectors(block).any(axis=1), possible)
    # After a dropped step others still count.
    hole = tuple(int(i) for i in np.argwhere(~world["support"])[0])
    path, taken = np.array([[hole[0], hole[2], 0, 0]]), np.array([[hole[1], 0, 0]])
    one = Block(1, {"states": path, "actions": taken, "rewards": np.ones((1, 3))})
    late = Block(1, {"states": path, "actions": taken, "rewards": np.array([[math.nan, 1.0, 1.0]])})
    statistic = model_sums(world, 3, True)
    assert np.array_equal(statistic.total(one), statistic.total(late))


CHANCES = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.5, 0.5], [0.9, 0.1]]])
ALONG = np.array([[[[0.6, -0.6]], [[-0.3, 0.3]]], [[[0.2, -0.2]], [[0.7, -0.7]]]])
ETA = np.array([0.1])
PAYING = np.array([[[1.0, 0.0], [0.6, -0.3]], [[0.0, 1.0], [-0.2, 0.9]]])
PAID = np.array([0.9, 0.5])


def bias(pooled, clip):
    """The largest entries of E[cross - gram eta] and E[rewards - gram theta]: exact."""
    steps = 3
    world = {
        "features": ALONG,
        "mean": CHANCES,
        "support": np.ones((2, 2, 2), dtype=bool),
        "reward_features": PAYING,
    }
    statistic = model_sums(world, steps, True, pooled=pooled, clip=clip)
    assert statistic.clips
    block = everyone(2, 2, steps, rewards=(0.0, 1.0))
    states, actions = np.asarray(block["states"]), np.asarray(block["actions"])
    chances = np.full(block.users, 0.5)
    moves, pays = CHANCES + np.einsum("sakt,k->sat", ALONG, ETA), PAYING @ PAID
    assert min(moves.min(), pays.min(), 1.0 - pays.max()) > 0
    for h in range(steps):
        at = states[:, h], actions[:, h]
        reward = np.asarray(block["rewards"])[:, h]
        chances *= 0.5 * moves[(*at, states[:, h + 1])]
        chances *= np.where(reward == 1.0, pays[at], 1.0 - pays[at])
    assert chances.sum() == pytest.approx(1.0)
    parts = statistic.layout.unpack(chances @ statistic.vectors(block))
    free = model_sums(world, steps, True, pooled=pooled)
    whole = free.layout.unpack(chances @ free.vectors(block))
    assert parts["reward_gram"].trace(axis1=1, axis2=2).sum() < 0.9 * (
        whole["reward_gram"].trace(axis1=1, axis2=2).sum()
    )
    return largest_gap(
        (parts["cross"], parts["gram"] @ ETA), (parts["rewards"], parts["reward_gram"] @ PAID)
    )


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("clip", [0.3, 1.3, 2.1])
def test_what_follows_a_clipped_step_is_unbiased(pooled, clip):
    assert bias(pooled, clip) < 1e-12


def by_hand(statistic):
    """The sums of some users, room for them, and the steps that count: (h, s, a, r, s')."""
    block = sample_of(S, A, H)(np.random.default_rng(5), 40)
    parts = statistic.layout.unpack(statistic.total(block))
    expected = {name: np.zeros_like(part) for name, part in parts.items()}
    steps = []
    for user, h in itertools.product(range(40), range(H)):
        s, t = block["states"][user, h : h + 2]
        a, r = block["actions"][user, h], block["rewards"][user, h]
        if not np.isnan(r) and WORLD["support"][s, a, t]:
            steps.append((h, s, a, r, t))
    return parts, expected, steps


@pytest.mark.parametrize("pooled", [False, True])
def test_model_sums_by_hand(pooled):
    statistic = model_sums(WORLD, H, True, pooled=pooled)
    parts, expected, steps = by_hand(statistic)
    for h, s, a, r, t in steps:
        row, x, v = 0 if pooled else h, WORLD["features"][s, a], statistic.reward_features[s, a]
        if pooled or h < H - 1:
            expected["gram"][row] += x @ x.T
            expected["cross"][row] += x @ (np.eye(S)[t] - WORLD["mean"][s, a])
        expected["reward_gram"][row] += np.outer(v, v)
        expected["rewards"][row] += r * v
    for name, part in parts.items():
        assert np.allclose(part, expected[name], atol=1e-12)


def walk(world, policy, users):
    """Users who follow a policy: as episodes, as counts and as what followed it."""
    rng, (H, S) = np.random.default_rng(7), policy.shape
    A = world["mean"].shape[1]
    states, rewards = np.zeros((users, H + 1), dtype=int), rng.random((users, H))
    states[:, 0] = rng.integers(0, S, users)
    counts, sums = np.zeros((H, S, A, S), dtype=int), np.zeros((H, S, A))
    actions = np.zeros((users, H), dtype=int)
    for h in range(H):
        actions[:, h] = policy[h, states[:, h]]
        for user in range(users):
            chances = world["mean"][states[user, h], actions[user, h]]
            states[user, h + 1] = rng.choice(S, p=chances)
        at = states[:, h], actions[:, h]
        np.add.at(counts[h], (*at, states[:, h + 1]), 1)
        np.add.at(sums[h], at, rewards[:, h])
    arrays = {"states": states, "actions": actions, "rewards": rewards}
    return (
        Block(users, {**arrays, "versions": np.zeros(users, dtype=int)}),
        Block(users, {"transitions": counts, "rewards": sums}, aggregate=True),
    )


@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("horizon", [1, 3])
def test_aggregates_equal_episodes(rewards, horizon):
    policy = np.random.default_rng(8).integers(0, A, (horizon, S))
    episodes, counts = walk(WORLD, policy, 80)
    for statistic in (
        model_sums(WORLD, horizon, rewards),
        model_sums(WORLD, horizon, rewards, pooled=True),
    ):
        total = statistic.total(episodes)
        assert np.allclose(statistic.total(counts), total)
        assert np.allclose(statistic.vectors(episodes).sum(axis=0), total)
    for informs in (WORLD["support"], WORLD["support"] & SUPPORT):
        everywhere = np.ones(S, dtype=bool)
        paths = PathCounts(WORLD["support"], informs, everywhere, horizon, policy, rewards=rewards)
        total = paths.total(episodes)
        assert total.sum() > 0
        assert np.allclose(paths.total(counts), total)
        assert np.allclose(paths.vectors(episodes).sum(axis=0), total)
        with pytest.raises(InvalidArgument, match="another policy"):
            paths.total(walk(WORLD, 1 - policy, 80)[1])
    clipped = model_sums(WORLD, 3, rewards, clip=0.1)
    with pytest.raises(InvalidArgument, match="one by one"):
        clipped.total(counts)
    wide = model_sums(WORLD, horizon, rewards, pooled=True, clip=1e3)
    assert not wide.clips
    assert np.allclose(wide.total(counts), wide.total(episodes))


def test_aggregates_drop_impossible_transitions():
    policy = np.zeros((2, S), dtype=int)
    _, counts = walk(WORLD, policy, 30)
    more = np.array(counts["transitions"])
    more[:, ~WORLD["support"]] += 5
    kept, all_of_them = np.asarray(counts["transitions"]).sum(axis=-1), more.sum(axis=-1)
    rewards = np.asarray(counts["rewards"]) * all_of_them / np.maximum(kept, 1)
    wild = Block(30, {"transitions": more, "rewards": rewards}, aggregate=True)
    statistic = model_sums(WORLD, 2, True, pooled=True)
    assert np.allclose(statistic.total(wild), statistic.total(counts))


def test_a_release_of_nothing_has_its_noise():
    # Nothing follows the only step.
    alone = model_sums(OPPOSED, 1, False)
    assert bounds(alone)[0] > 0
    assert not alone.vectors(everyone(2, 1, 1)).any()
    # The last step is not paid for twice.
    assert bounds(model_sums(OPPOSED, 2, False))[0] == bounds(alone)[0]
    nothing = {**OPPOSED, "features": 0.0 * OPPOSED["features"]}
    with pytest.raises(InvalidArgument, match="nothing to learn"):
        bounds(model_sums(nothing, 1, False))


def test_blocks_of_other_shapes_are_refused():
    wrong = Block(1, {name: np.zeros((1, H)) for name in ("states", "actions", "rewards")})
    for statistic in (model_sums(WORLD, H, True), PATHS[0]):
        with pytest.raises(InvalidArgument, match="states"):
            statistic.vectors(wrong)
