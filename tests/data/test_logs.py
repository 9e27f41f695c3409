"""Logs as people have them: pandas, Polars, Arrow, dictionaries and Parquet give one result."""

import datetime
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tacit
from tacit.data.episodes import Episodes
from tacit.data.logs import LogFormat, joined, whole_users
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.noise import grid_total
from tacit.tabular.spec import FiniteSpec
from tacit.tabular.visits import VisitCounts
from tests.refusals import refusals

STATES, ACTIONS = ["idle", "busy", "away"], ["wait", "ask"]
SPEC = FiniteSpec.named(STATES, ACTIONS, horizon=3, stationary=True)
MINUTE = datetime.timedelta(minutes=1)

# Two sessions of ann, with bob in between; carl has an unknown state, no reward and a time that is
# missing.
NOON = datetime.datetime(2026, 1, 2, 12, 0)
ROWS = [
    ("ann", 1, NOON, "idle", "wait", 0.0, False),
    ("ann", 1, NOON + MINUTE, "busy", "ask", 1.0, False),
    ("bob", 1, NOON, "away", "ask", 0.5, True),
    ("ann", 2, NOON + 60 * MINUTE, "busy", "wait", 1.0, False),
    ("bob", 1, NOON + MINUTE, "idle", "wait", 1.0, False),
    ("carl", 1, NOON, "asleep", "ask", None, False),
    ("carl", 1, None, "idle", "ask", 1.0, False),
    ("carl", 1, NOON + MINUTE, "busy", "jump", 1.0, False),
]
NAMES = ("user", "session", "when", "state", "action", "reward", "over")
LOG = {name: [row[i] for row in ROWS] for i, name in enumerate(NAMES)}
OPTIONS = {
    "spec": SPEC,
    "time": "when",
    "next_state": None,
    "terminal": "over",
    "end": "away",
    "episode": "session",
}
EXPECTED = {
    "user_ids": ("ann", "bob", "ann", "carl"),
    # After bob's terminal step he is away for good; his entry after it is left out.
    "states": [[0, 1, -1, -1], [2, 2, 2, 2], [1, -1, -1, -1], [-2, 1, -1, -1]],
    "actions": [[0, 1, -1], [1, -1, -1], [0, -1, -1], [1, -2, -1]],
}


def arrow_table():
    return pa.table(LOG | {"when": pa.array(LOG["when"], pa.timestamp("us"))})


def frames():
    categories = pd.DataFrame(LOG)
    categories["state"] = categories["state"].astype("category")
    enums = pl.DataFrame(LOG).with_columns(
        pl.col("state").cast(pl.Enum([*STATES, "asleep"])), pl.col("action").cast(pl.Categorical)
    )
    table = arrow_table()
    coded = table.set_column(3, "state", table["state"].dictionary_encode())
    zoned = pd.DataFrame(LOG)
    zoned["when"] = zoned["when"].dt.tz_localize("UTC")
    return {
        "lists": LOG,
        "pandas": pd.DataFrame(LOG),
        "pandas, objects": pd.DataFrame(LOG).astype({"state": object, "user": object}),
        "pandas, categories": categories,
        "pandas, a time zone": zoned,
        "Polars": pl.DataFrame(LOG),
        "Polars, lazy": pl.DataFrame(LOG).lazy(),
        "Polars, enums": enums,
        "Arrow": table,
        "Arrow, a batch": table.combine_chunks().to_batches()[0],
        "Arrow, a dictionary": coded,
    }


@pytest.mark.parametrize("kind", frames())
def test_every_kind_of_table_gives_the_same_episodes(kind):
    made = Episodes.from_frame(frames()[kind], **OPTIONS)
    assert made.user_ids == EXPECTED["user_ids"]
    assert made.states.tolist() == EXPECTED["states"]
    assert made.actions.tolist() == EXPECTED["actions"]
    assert np.array_equal(
        made.rewards,
        [[0, 1, np.nan], [0.5, np.nan, np.nan], [1, np.nan, np.nan], [np.nan, 1, np.nan]],
        equal_nan=True,
    )


def test_validate_finds_entries_that_are_there_twice():
    table = {"user": ["a", "b"] * 2 + ["a", "a"], "at": [1, 1, 2, 2, 1, 3], "state": [0] * 6}
    table |= {"action": [0, 0, 1, 1, 0, 1], "reward": [1.0] * 6}
    spec = FiniteSpec(3, 2, 3, stationary=True)
    log = Episodes.from_frame(table, spec=spec, time="at", next_state=None)
    assert tacit.validate(log, spec)["repeated"] == 1


def test_validate_tells_ends_gaps_unknown_labels_and_numbers_apart():
    report = tacit.validate(Episodes.from_frame(LOG, **OPTIONS), SPEC)
    assert report["unknown_states"] == report["unknown_actions"] == report["invalid_rewards"] == 1
    assert (report["ended"], report["gaps"], report["affected_users"]) == (1 + 2 + 2 + 1, 0, 1)
    steps = {"user": [1, 1, 1], "step": [0, 2, 2], "state": [0, 9, 1], "action": [0, 1, 1]}
    log = Episodes.from_frame(steps | {"reward": [7.0, 1.0, 1.0]}, horizon=5, next_state=None)
    found = tacit.validate(log, FiniteSpec(3, 2, 5, stationary=True))
    # Step 1 is a gap, step 2 was given twice, steps 3 and 4 are after the end; 7 is no reward.
    assert (found["gaps"], found["ended"], found["unknown_states"]) == (1, 2, 0)
    assert (found["invalid_actions"], found["invalid_rewards"]) == (1, 2)


@pytest.mark.parametrize("kind", [kind for kind in frames() if kind != "lists"])
def test_text_without_a_vocabulary_is_refused_by_its_type(kind):
    with pytest.raises(
        InvalidArgument, match=r"'state' is .* by its type, but must be numbers.* states=\[...\]"
    ):
        Episodes.from_frame(frames()[kind], horizon=3, time="when", next_state=None)


def test_types_are_refused_and_values_never():
    """One user's entry changes nobody's fate, whatever it is."""
    numbers = {name: np.zeros(2, dtype=np.int64) for name in ("step", "state", "action")}
    numbers |= {"user": np.arange(2), "reward": np.zeros(2), "next_state": np.zeros(2)}
    with pytest.raises(InvalidArgument, match="'state' is int64 by its type, but must be text"):
        Episodes.from_frame(numbers, horizon=1, states=STATES)
    frame = pd.DataFrame(LOG).astype({"when": str})
    with pytest.raises(InvalidArgument, match=r"'when' is str.* by its type, but must be time"):
        Episodes.from_frame(frame, **OPTIONS)
    clean = Episodes.from_frame(LOG, **OPTIONS)
    for name in ("when", "state", "action", "reward", "over"):
        for odd in (None, "x", 1, -1.5, {}, object(), float("nan"), 10**400, b"\xff"):
            changed = LOG | {name: [*LOG[name][:5], odd, *LOG[name][6:]]}
            made = Episodes.from_frame(changed, **OPTIONS)
            assert made.user_ids == clean.user_ids
            assert np.array_equal(made.states[:3], clean.states[:3])
            assert np.array_equal(made.rewards[:3], clean.rewards[:3], equal_nan=True)


def test_types_that_few_tables_have():
    """Integers that may be missing are ids, views of texts are texts; a time of day is no time."""
    table = {"user": [7, 7, 8], "step": [0, 1, 0], "action": [0, 1, 0], "reward": [0.0, 1.0, 0.0]}
    table |= {"state": ["idle", "busy", None]}
    frame = pd.DataFrame(table).convert_dtypes()
    views = pa.table(table | {"state": pa.array(table["state"], pa.string_view())})
    options = {"horizon": 2, "next_state": None, "states": STATES}
    for given in (frame, views):
        made = Episodes.from_frame(given, **options)
        assert (made.user_ids, made.states[:, 0].tolist()) == ((7, 8), [0, -3])
    day = pa.table(table | {"at": pa.array([1, 2, 3], pa.time32("s"))})
    with pytest.raises(InvalidArgument, match=r"'at' is .* by its type, but must be time"):
        Episodes.from_frame(day, **options, time="at")


test_public_mistakes_are_named = refusals(
    lambda change: Episodes.from_frame(LOG, **(OPTIONS | change)),
    ({"step": "step"}, "give step or time"),
    ({"terminal": None}, "end needs terminal"),
    ({"end": "gone"}, "end is 'gone', but must be one of .'idle'"),
    ({"states": ["busy", "idle", "away"]}, "given twice"),
    ({"spec": None}, "horizon is missing"),
    ({"states": ["a", "a"], "spec": None, "horizon": 3}, "'a' is there twice"),
    ({"reward": "rewards"}, "no column 'rewards'"),
    ({"colour": "red"}, "a log has no colour"),
)


def random_log(rng, users, shuffled):
    """Users with 1 to 6 entries each."""
    counts = rng.integers(1, 7, users)
    user = np.repeat([f"user {i:02d}" for i in range(users)], counts)
    step = np.concatenate([np.arange(n) for n in counts])
    n = len(user)
    table = pa.table(
        {
            "user": user,
            "step": step,
            "state": rng.choice([*STATES, "asleep"], n),
            "action": rng.choice(ACTIONS, n),
            "reward": rng.random(n),
        }
    )
    return table.take(pa.array(rng.permutation(n))) if shuffled else table


def by_user(parts):
    return {
        user: (part.states[i].tolist(), part.actions[i].tolist(), part.rewards[i].tobytes())
        for part in parts
        for i, user in enumerate(part.user_ids or ())
    }


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("batch", [1, 7, 64, 10**6])
def test_parquet_is_read_batch_by_batch_and_nobody_is_cut(batch, shuffled, tmp_path):
    table = random_log(np.random.default_rng(0), 40, shuffled)
    (tmp_path / "logs").mkdir()
    for part, start in enumerate(range(0, len(table), 50)):
        pq.write_table(table.slice(start, 50), tmp_path / "logs" / f"part {part}.parquet")
    options = {"spec": SPEC, "next_state": None}
    parts = [
        *Episodes.from_parquet(tmp_path / "logs", batch=batch, grouped=not shuffled, **options)
    ]
    whole = Episodes.from_frame(table, **options)
    assert sum(part.users for part in parts) == whole.users == 40
    assert by_user(parts) == by_user([whole])
    if batch == 7 and not shuffled:
        assert max(part.users for part in parts) <= 7


def joined_users(log):
    """All entries, and where each user's begin."""
    parts = [*whole_users([log])]
    firsts = np.cumsum([0] + [len(part["user"]) for part, _ in parts])
    starts = [first + start for first, (_, start) in zip(firsts, parts, strict=False)]
    return joined([part for part, _ in parts]), np.concatenate(starts)


@pytest.mark.parametrize("seed", range(8))
def test_entries_that_are_neighbours_give_what_those_in_any_order_give(seed):
    """Doubles, gaps, contradictions, late and negative steps."""
    rng, n = np.random.default_rng(seed), 60
    log = {
        "user": np.sort(rng.integers(0, 9, n)),
        "step": rng.integers(-1, 6, n),
        "state": rng.integers(-1, 4, n),
        "action": rng.integers(0, 2, n),
        "reward": rng.random(n),
        "over": rng.random(n) < 0.1,
    }
    if seed % 2:
        log["next_state"] = rng.integers(0, 2, n)
    made = LogFormat(
        horizon=4, next_state="next_state" if seed % 2 else None, terminal="over", end=1
    )
    entries, starts = joined_users(made.read(log))
    fast = made.episodes(entries, starts)
    mixed = np.append(np.unique(log["user"], return_index=True)[1], rng.permutation(n))
    mixed = mixed[np.sort(np.unique(mixed, return_index=True)[1])]
    slow = made.episodes(made.read({name: column[mixed] for name, column in log.items()}))
    assert np.array_equal(fast.states, slow.states)
    assert np.array_equal(fast.actions, slow.actions)
    assert np.array_equal(fast.rewards, slow.rewards, equal_nan=True)
    assert fast.user_ids == slow.user_ids


def test_a_wrong_table_says_what_to_do(tmp_path):
    """Names and types of columns are schema: what is wrong with them is said, with a way out."""
    table = random_log(np.random.default_rng(1), 5, shuffled=True)
    frame, given = table.to_pandas(), {"spec": SPEC, "next_state": None}
    wrong = [
        (r"no column 'state'; it has user", frame.rename(columns={"state": "State"}), {}),
        ("or next_state=None to take the state of the next", frame, {"next_state": "next_state"}),
        ("'reward' is str.* by its type", frame.assign(reward=pd.array(["x"] * len(frame))), {}),
        ("no column 'user'", "log.parquet", {}),
        ("no column 'user'", frame.to_dict("records"), {}),
    ]
    for message, log, options in wrong:
        with pytest.raises(InvalidArgument, match=message):
            Episodes.from_frame(log, **given | options)
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(InvalidArgument, match="not sorted by user, over all files"):
        list(Episodes.from_parquet(tmp_path / "log.parquet", **given))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidArgument, match=r"no \.parquet file"):
        Episodes.from_parquet(tmp_path / "empty", spec=SPEC)


def test_lists_of_text_need_a_vocabulary_as_frames_do():
    """A list whose entries are all texts is text; one text among numbers is somebody's slip."""
    log = {"user": [1, 1, 2], "step": [0, 1, 0], "reward": [0, 1, 0]}
    log |= {"state": ["idle", None, "busy"], "action": [0, 1, 0], "next_state": [0, 1, 1]}
    for given in (log, log | {"state": [0, 1, 0], "action": ("wait", "ask", "wait")}):
        with pytest.raises(InvalidArgument, match=r"is a list of texts by its type"):
            Episodes.from_frame(given, horizon=2)
    odd = Episodes.from_frame(log | {"state": [0, "idle", 1]}, horizon=2)
    assert odd.states[:, 0].tolist() == [0, 1]
    assert Episodes.from_frame(log | {"state": [None] * 3}, horizon=2).states[0, 0] == -3


def sorted_files(folder, table, files):
    """The same log, sorted by user, in several files."""
    folder.mkdir()
    ordered = table.sort_by([("user", "ascending"), ("step", "ascending")])
    people = np.asarray(ordered["user"]).tolist()
    cuts = [people.index(people[len(people) * k // files]) for k in range(files)] + [len(people)]
    for k, (start, end) in enumerate(pairwise(cuts)):
        pq.write_table(ordered.slice(start, end - start), folder / f"{k}.parquet")
    return folder


@pytest.mark.parametrize("batch", [3, 10**6])
def test_files_are_summed_as_their_users_are(batch, tmp_path):
    table = random_log(np.random.default_rng(1), 60, shuffled=True)
    path = sorted_files(tmp_path / "logs", table, 4)
    assert len(list(path.iterdir())) == 4
    whole = Episodes.from_frame(table, spec=SPEC, next_state=None).block()
    statistics = [
        VisitCounts(3, 2, 3, pooled=True, cap=1),
        VisitCounts(3, 2, 3),
        VisitCounts(3, 2, 3, pooled=True),
    ]
    with ThreadPoolExecutor(2) as threads:
        for executor in (None, threads):
            options = {"executor": executor, "batch": batch, "next_state": None}
            block = Episodes.parquet_block(path, spec=SPEC, **options)
            assert block.users == whole.users == 60
            for statistic in statistics:
                assert np.allclose(statistic.total(block), statistic.total(whole))
                exact = [grid_total(statistic, data, 2.0**-20) for data in (block, whole)]
                assert np.abs(exact[0] - exact[1]).max() <= 60


def released_by(executor, path):
    """Users, sums at the gate, and a release with known noise, if an executor sums the files."""
    block = Episodes.parquet_block(path, spec=SPEC, next_state=None, executor=executor)
    statistic = VisitCounts(3, 2, 3, pooled=True, cap=1)
    curator = tacit.JointDP(1.0, 1e-6).curator(noise_seed=0)
    curator.add(block)
    total = grid_total(statistic, block, 2.0**-20)
    return block.users, total, curator.release(statistic)["transitions"]


def test_pieces_go_to_other_processes(tmp_path):
    """What a new process is sent is a file's name and the query; what comes back are sums."""
    table = random_log(np.random.default_rng(1), 20, shuffled=True)
    path = sorted_files(tmp_path / "logs", table, 3)
    block = Episodes.parquet_block(path, spec=SPEC, next_state=None)
    assert len(pickle.dumps(block.pieces)) < 10_000
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        there = released_by(executor, path)
    for mine, other in zip(released_by(None, path), there, strict=True):
        assert np.array_equal(mine, other)


def test_a_real_curator_takes_files_of_one_episode_per_user(tmp_path):
    log = {name: np.zeros(20, dtype=np.int64) for name in ("state", "action", "next_state")}
    log |= {"user": np.repeat(np.arange(10), 2), "step": np.tile([0, 1], 10), "reward": np.ones(20)}
    pq.write_table(pa.table(log), tmp_path / "log.parquet")
    block = Episodes.parquet_block(tmp_path / "log.parquet", horizon=2, batch=7)
    statistic = VisitCounts(1, 1, 2, pooled=True)
    curator = tacit.JointDP(1e6, 1e-6).curator()
    curator.add(block)
    assert curator.release(statistic)["rewards"][0] == pytest.approx(20, abs=1)
    with pytest.raises(InvalidArgument, match="one episode of a user"):
        Episodes.parquet_block(tmp_path / "log.parquet", horizon=2, episode="step")


def test_an_agent_learns_from_files(tmp_path):
    table = random_log(np.random.default_rng(2), 50, shuffled=False)
    path = sorted_files(tmp_path / "logs", table, 2)
    block = Episodes.parquet_block(path, spec=SPEC, next_state=None)
    agent = tacit.UCBPO(SPEC, 50, tacit.JointDP(1.0, 1e-6), schedule="fixed:size=50")
    assert (agent.learn(block).counted, (agent.releases, agent.policy.version)) == (50, (1, 1))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (pa.array(["b", "a", "b"]).dictionary_encode(), None),
        (pa.array([2, 1, None]), "user holds a float"),
        (pa.array([[2], [1], [2]]), "user holds a"),
    ],
)
def test_ids_are_read_or_refused_by_their_type(ids, words, tmp_path):
    columns = {name: [0, 0, 1] for name in ("step", "state", "action", "reward", "next_state")}
    pq.write_table(pa.table({"user": ids} | columns), tmp_path / "log.parquet")
    read = Episodes.from_parquet(tmp_path / "log.parquet", horizon=2, grouped=False, batch=2)
    if words is None:
        assert [part.user_ids for part in read] == [("b", "a")]
    else:
        with pytest.raises(InvalidArgument, match=words):
            list(read)


def test_users_who_are_in_two_places_are_noticed(tmp_path):
    table = random_log(np.random.default_rng(3), 12, shuffled=False)
    for name, order in (("twice", [0, 1, 0]), ("back", [1, 0])):
        half = len(table) // 2
        parts = [table.slice(0, half), table.slice(half)]
        pq.write_table(pa.concat_tables([parts[i] for i in order]), tmp_path / f"{name}.parquet")
        with pytest.raises(InvalidArgument, match="not sorted by user"):
            Episodes.parquet_block(tmp_path / f"{name}.parquet", spec=SPEC, next_state=None)
    ordered = table.sort_by("user")
    for name in ("a", "b"):
        pq.write_table(ordered, tmp_path / f"{name}.parquet")
    both = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    with pytest.raises(InvalidArgument, match="does not begin after the last user before"):
        Episodes.parquet_block(both, spec=SPEC, next_state=None)


def test_damaged_parquet_is_a_corrupt_file(tmp_path):
    """Whatever bytes there are: an error of ours, or episodes."""
    columns = {"user": [1, 1, 2], "state": [0, 1, 0], "action": [0, 0, 1]}
    columns["reward"] = [0.0, 1.0, 0.5]
    whole = tmp_path / "whole.parquet"
    pq.write_table(pa.table(columns), whole)
    held, rng, broken = whole.read_bytes(), np.random.default_rng(0), 0
    for trial in range(90):
        changed = bytearray(held)
        if trial % 3 == 0:
            del changed[rng.integers(len(changed)) :]
        for place in rng.integers(0, max(len(changed), 1), 1 + trial % 5):
            if len(changed):
                changed[place % len(changed)] = int(rng.integers(256))
        path = tmp_path / "changed.parquet"
        path.write_bytes(changed)
        try:
            for part in Episodes.from_parquet(path, horizon=2, grouped=bool(trial % 2)):
                part.block()
        except (CorruptFile, InvalidArgument) as error:
            broken += isinstance(error, CorruptFile)
    assert broken > 20


@pytest.mark.parametrize("column", ["step", "when"])
@pytest.mark.parametrize("seed", range(3))
def test_a_place_is_by_the_start_and_never_by_the_end(column, seed):
    """Rows after everybody's first come in any order: who ended when moves nobody."""
    rng, users = np.random.default_rng(seed), ["dora", "ann", "carl", "bob"]
    later = [(user, step) for user in users for step in (1, 2)]
    rows = [(user, 0) for user in users] + [later[i] for i in rng.permutation(len(later))]
    # Of some the last row is missing, of others the time: what they did decides nothing either.
    kept = [row for row in rows if row[1] < 2 or rng.random() < 0.5]
    table = {"user": [user for user, _ in kept]}
    times = [None if step and rng.random() < 0.3 else float(step) for _, step in kept]
    table[column] = [step for _, step in kept] if column == "step" else times
    table |= {name: [0] * len(kept) for name in ("state", "action", "reward")}
    order = {"time": "when"} if column == "when" else {}
    log = LogFormat(horizon=3, next_state=None, **{"step": None, **order} if order else {})
    assert log.episodes(log.read(table)).user_ids == tuple(users)
