"""Episodes: exact from logs, indifferent to hostile values, silent about what they hold."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.data.episodes import Episodes, VectorEpisodes, validate_episodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import StreamedBlock

SPEC = SimpleNamespace(states=4, actions=3, horizon=3, reward_values=(0.0, 0.5, 1.0))
COLUMNS = ("user", "step", "state", "action", "reward", "next_state")
HOSTILE = [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.5, -7.0, 99.0, 5e-324]


def random_episodes(rng, users, horizon=3):
    return Episodes(
        states=rng.integers(0, 4, (users, horizon + 1)),
        actions=rng.integers(0, 3, (users, horizon)),
        rewards=rng.choice(SPEC.reward_values, (users, horizon)),
        versions=rng.integers(0, 5, users),
        user_ids=[f"user {i}" for i in rng.permutation(users)],
    )


def to_log(episodes):
    """One entry per step, in order."""
    users, horizon = episodes.actions.shape
    return {
        "user": [name for name in episodes.user_ids for _ in range(horizon)],
        "step": np.tile(np.arange(horizon), users),
        "state": episodes.states[:, :-1].ravel(),
        "action": episodes.actions.ravel(),
        "reward": episodes.rewards.ravel(),
        "next_state": episodes.states[:, 1:].ravel(),
        "version": np.repeat(episodes.versions, horizon),
    }


def shuffled(log, order):
    return {name: [column[i] for i in order] for name, column in log.items()}


def rows(episodes):
    """By user, everything that is known of her, in a form that compares NaN as equal."""
    arrays = (episodes.states, episodes.actions, episodes.rewards, episodes.versions)
    return {
        name: tuple(array[i].tobytes() for array in arrays)
        for i, name in enumerate(episodes.user_ids)
    }


def test_right_arrays_are_not_copied_and_cannot_be_changed_here():
    states = np.zeros((2, 3), dtype=np.int64)
    episodes = Episodes(states, np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2)))
    assert np.shares_memory(states, episodes.states)
    with pytest.raises(ValueError, match="read-only"):
        episodes.states[0, 0] = 1
    states[0, 0] = 1  # the caller's own array is still hers


def test_take_keeps_everything_of_the_rows_it_takes():
    episodes = random_episodes(np.random.default_rng(1), 6)
    everybody = rows(episodes)
    for some in (slice(1, 4), np.array([True, False] * 3), np.array([5, 0])):
        taken = rows(episodes.take(some))
        assert taken == {name: everybody[name] for name in taken}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"states": np.zeros((2, 3))}, r"states has shape \(2, 3\), but must have \(2, 4\)"),
        ({"states": np.zeros((3, 4))}, "states has shape"),
        ({"actions": np.zeros(2)}, "actions has shape"),
        ({"actions": np.zeros((2, 0)), "states": np.zeros((2, 1))}, "actions has shape"),
        ({"rewards": np.zeros((2, 4))}, "rewards has shape"),
        ({"rewards": [[1.0], [1.0, 2.0]]}, "different lengths"),
        ({"rewards": np.zeros((2, 3), dtype=complex)}, "must be numeric"),
        ({"versions": np.zeros(3)}, "versions has shape"),
        ({"user_ids": ["ann"]}, "2 users need as many ids"),
        ({"user_ids": [1.0, 2.0]}, "user_ids must be integers or strings"),
    ],
)
def test_wrong_shapes_and_types_are_refused(change, words):
    arguments = {
        "states": np.zeros((2, 4)),
        "actions": np.zeros((2, 3)),
        "rewards": np.zeros((2, 3)),
    }
    with pytest.raises(InvalidArgument, match=words):
        Episodes(**(arguments | change))


def test_what_is_no_state_becomes_one_that_is_visibly_invalid():
    odd = [0.0, 3.0, 0.5, np.nan, np.inf, -np.inf, 1e308, -2.0, 99.0]
    kept = [0, 3, -1, -1, -1, -1, -1, -2, 99]
    for values in (np.array(odd), np.array(odd, dtype=object), np.array(odd, dtype=np.longdouble)):
        episodes = Episodes(values[np.newaxis], np.zeros((1, 8)), np.zeros((1, 8)))
        assert episodes.states.tolist() == [kept]
    objects = np.array([["1", None, "one", 2**70, object(), b"3"]], dtype=object)
    episodes = Episodes(objects, np.zeros((1, 5)), objects[:, 1:])
    assert episodes.states.tolist() == [[1, -1, -1, -1, -1, 3]]
    assert np.isnan(episodes.rewards[0, [0, 1, 3]]).all()
    unsigned = np.array([[2**63, 2**64 - 1, 5]], dtype=np.uint64)
    assert Episodes(unsigned, [[0, 0]], [[0, 0]]).states.tolist() == [[-1, -1, 5]]
    small = np.array([[200, 7]], dtype=np.uint8)
    assert Episodes(small, [[0]], [[0]]).states.tolist() == [[200, 7]]


def read_log(log, horizon):
    named = {name: name for name in ("version", "episode") if name in log}
    return Episodes.from_frame(log, horizon=horizon, **named)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), users=st.integers(1, 8))
def test_a_log_in_any_order_gives_back_the_episodes(seed, users):
    rng = np.random.default_rng(seed)
    episodes = random_episodes(rng, users)
    log = shuffled(to_log(episodes), rng.permutation(users * 3))
    again = read_log(log, horizon=3)
    assert rows(again) == rows(episodes)
    assert list(again.user_ids) == list(dict.fromkeys(log["user"])), "order of first occurrence"


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_one_users_log_changes_nobody_elses_row(seed):
    rng = np.random.default_rng(seed)
    log = to_log(random_episodes(rng, 4))
    before = rows(read_log(log, horizon=3))
    victim = log["user"][0]
    changed = {name: list(column) for name, column in log.items()}
    for i in range(len(changed["user"])):
        if changed["user"][i] == victim:
            for name in ("step", "state", "action", "reward", "next_state", "version"):
                if rng.random() < 0.5:
                    changed[name][i] = rng.choice(HOSTILE)
    after = rows(read_log(changed, horizon=3))
    assert after.keys() == before.keys(), "nobody appears or disappears"
    del before[victim], after[victim]
    assert after == before


def test_gaps_doubles_disagreements_and_late_steps_are_invalid():
    def states(step, state, next_state):
        log = {"user": [0] * len(step), "step": step, "state": state, "next_state": next_state}
        rest = {"action": [0] * len(step), "reward": [0] * len(step)}
        return read_log(log | rest, horizon=3).states.tolist()[0]

    assert states([0, 2], [1, 2], [3, 0]) == [1, 3, 2, 0]  # step 1 has no action
    assert states([0, 1, 1, 2], [1, 2, 2, 0], [2, 0, 0, 3]) == [1, 2, 0, 3]  # nor here
    assert states([0, 1, 2], [1, 2, 0], [2, 3, 3]) == [1, 2, -3, 3]  # 3 or 0?
    assert states([0, 3, 4, -1], [1, 2, 2, 2], [2, 3, 3, 3]) == [1, 2, -1, -1]
    assert states([5], [1], [1]) == [-1, -1, -1, -1]
    doubled = read_log({name: [0, 0] for name in COLUMNS} | {"step": [1, 1]}, horizon=2)
    assert doubled.actions.tolist() == [[-1, -3]]


def test_ids_of_text_and_integers_stay_apart():
    episodes = read_log({name: [0, 0] for name in COLUMNS} | {"user": [7, "7"]}, horizon=1)
    assert episodes.user_ids == (7, "7")
    arrays = read_log(dict.fromkeys(COLUMNS, np.array([3, 3, 4])), horizon=9)
    assert arrays.user_ids == (3, 4)
    assert all(type(user) is int for user in arrays.user_ids)


def test_a_table_is_read_by_the_names_of_its_columns():
    episodes = random_episodes(np.random.default_rng(3), 4)
    log = to_log(episodes)
    assert rows(Episodes.from_frame(log, horizon=3, version="version")) == rows(episodes)
    changed = log | {"version": [7] * 11 + [8]}
    assert read_log(changed, horizon=3).versions.tolist() == [7, 7, 7, -1], "of two none is known"
    renamed = {f"my {name}": column for name, column in log.items()}
    names = {name: f"my {name}" for name in (*COLUMNS, "version")}
    assert rows(Episodes.from_frame(renamed, horizon=3, **names)) == rows(episodes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": 0}, "horizon must be an integer"),
        ({"state": [0]}, r"state has shape \(1,\), but must have \(2,\)"),
        ({"user": ["a"]}, "step has shape"),
        ({"user": ["a", 1.5]}, "user holds a float"),
        ({"user": ["a", None]}, "user holds a NoneType"),
        ({"reward": [[0, 1]]}, "reward has shape"),
    ],
)
def test_wrong_logs_are_refused(change, words):
    log = {name: [0, 1] for name in COLUMNS} | {"horizon": 2} | change
    with pytest.raises(InvalidArgument, match=words):
        read_log(log, log.pop("horizon"))


def test_neither_repr_nor_errors_tell_what_users_did():
    secret = 424242
    episodes = Episodes(np.full((3, 4), secret), np.full((3, 3), secret), np.full((3, 3), secret))
    assert str(secret) not in repr(episodes) + str(episodes)
    with pytest.raises(InvalidArgument) as refusal:
        Episodes(np.full((3, 5), secret), np.full((3, 3), secret), np.full((3, 3), secret))
    assert str(secret) not in str(refusal.value)
    with pytest.raises(InvalidArgument) as refusal:
        Episodes(np.zeros((1, 2)), [[0]], [[0]], user_ids=[float(secret)])
    assert str(secret) not in str(refusal.value)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), users=st.integers(0, 6))
def test_the_report_counts_like_somebody_who_looks_at_every_entry(seed, users):
    rng = np.random.default_rng(seed)
    values = [*HOSTILE, *[0.0, 1.0, 2.0, 3.0] * 8]
    states, actions, rewards = (rng.choice(values, (users, n)) for n in (4, 3, 3))
    # Without action and reward there is no step, which is no mistake.
    rewards = np.where(np.isnan(rewards), np.inf, rewards)
    report = validate_episodes(Episodes(states, actions, rewards), SPEC)
    bad, affected = [0, 0, 0], 0
    for i in range(users):
        # What is no number at all is missing at the end.
        last = int(states[i][3] in (-7, 99))
        found = (
            sum(float(s) not in (0, 1, 2, 3) for s in states[i][:3]) + last,
            sum(float(a) not in (0, 1, 2) for a in actions[i]),
            sum(not 0 <= float(r) <= 1 for r in rewards[i]),
        )
        bad = [have + more for have, more in zip(bad, found, strict=True)]
        affected += any(found)
    told = {name: report[name] for name in ("users", "steps", "affected_users")}
    assert told == {"users": users, "steps": 3 * users, "affected_users": affected}
    assert [report[f"invalid_{kind}"] for kind in ("states", "actions", "rewards")] == bad
    with pytest.raises(InvalidArgument, match="actions has shape"):
        validate_episodes(Episodes(np.zeros((1, 3)), np.zeros((1, 2)), np.zeros((1, 2))), SPEC)


# States that are vectors.


def vectors(users=4, steps=3):
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, (users, steps))
    return VectorEpisodes(
        rng.normal(size=(users, steps + 1, 2)), actions, rng.random((users, steps))
    )


def test_vector_episodes_become_a_block_and_come_back():
    episodes = vectors()
    again = VectorEpisodes(**episodes.block().arrays, user_ids=["a", "b", "c", "d"])
    for name in ("states", "actions", "rewards", "lengths", "versions"):
        assert np.array_equal(getattr(again, name), getattr(episodes, name))
    assert again.take(np.array([2, 0])).user_ids == ("c", "a")
    assert (episodes.actions.dtype, episodes.lengths.tolist()) == (np.int64, [4] * 4)
    controls = VectorEpisodes(np.zeros((2, 4, 1)), np.full((2, 3, 2), 0.5), lengths=[1, 3])
    assert (controls.actions.dtype, controls.lengths.tolist()) == (np.float64, [1, 3])
    assert set(controls.block().arrays) == {"states", "actions", "lengths", "versions"}
    with pytest.raises(ValueError, match="read-only"):
        episodes.states[0, 0, 0] = 1.0


def test_values_of_vectors_never_raise_and_shapes_do():
    odd = VectorEpisodes([[["x", 1.0], [None, np.inf]]], [["no label"]], [["?"]])
    assert np.isnan(odd.states[0, 0, 0])
    assert odd.actions.tolist() == [[-1]]
    assert np.isnan(odd.rewards).all()
    right = {"states": np.zeros((2, 4, 1)), "actions": np.zeros((2, 3))}
    for wrong in (
        {"states": np.zeros((2, 4))},
        {"states": np.zeros((2, 1, 1)), "actions": np.zeros((2, 0))},
        {"actions": np.zeros((2, 4))},
        {"actions": np.zeros(2)},
        {"actions": [[0, 1], [0]]},
        {"rewards": np.zeros((2, 2))},
        {"lengths": [1]},
        {"user_ids": [1]},
    ):
        with pytest.raises(InvalidArgument):
            VectorEpisodes(**right | wrong)


def test_blocks_that_are_made_part_by_part_are_for_simulations():
    rng = np.random.default_rng(1)
    blocks = [tacit.Block(n, {"values": 3.0 * rng.normal(size=(n, 2))}) for n in (3, 5, 2)]
    parts = StreamedBlock(10, lambda: iter(blocks))
    whole = tacit.Block(10, {"values": np.concatenate([b["values"] for b in blocks])})
    statistic = tacit.ClippedSum(2, radius=1.5)
    # Clipping matters here, so that adding before it would differ.
    assert np.linalg.norm(whole["values"], axis=1).max() > 1.5
    np.testing.assert_allclose(statistic.total(parts), statistic.total(whole), rtol=1e-12)
    tacit.JointDP(1.0, 1e-6).curator(noise_seed=0).add(parts)
    with pytest.raises(InvalidArgument, match="simulations"):
        tacit.JointDP(1.0, 1e-6).curator().add(parts)
    with pytest.raises(InvalidArgument, match="parts of 10"):
        statistic.total(StreamedBlock(11, lambda: iter([whole])))
    with pytest.raises(InvalidArgument, match="shape"):
        tacit.ClippedSum(3).check(parts)


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start


def test_minari_datasets_become_episodes():
    """By what Minari's datasets have; one whose observations are vectors is refused by its type."""
    rows = [([3, 4, 5], [1, 0], [0.5, 1.0]), ([4, 3, 3, 5, 5], [0, 1, 1, 0], [0, 0, 1, 7])]
    names = ("observations", "actions", "rewards")
    episodes = [
        SimpleNamespace(**dict(zip(names, map(np.array, row), strict=True))) for row in rows
    ]
    dataset = SimpleNamespace(observation_space=Discrete(3, 3), action_space=Discrete(2))
    dataset.total_episodes, dataset.iterate_episodes = 2, lambda: iter(episodes)
    made = Episodes.from_minari(dataset, horizon=3)
    assert made.states.tolist() == [[0, 1, 2, -1], [1, 0, 0, 2]]
    assert made.actions.tolist() == [[1, 0, -1], [0, 1, 1]]
    np.testing.assert_array_equal(made.rewards, [[0.5, 1.0, np.nan], [0, 0, 1]])
    dataset.observation_space = SimpleNamespace(low=0)
    with pytest.raises(InvalidArgument, match="must be Discrete"):
        Episodes.from_minari(dataset, horizon=3)
