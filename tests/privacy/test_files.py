"""Files that somebody else may have made: opened, measured and scanned before they are believed."""

import json
import os
import tomllib
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit.privacy import files
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError
from tacit.privacy.files import parse_json, parse_toml, write_atomic
from tacit.simulation.tables import load_results
from tacit.tabular.world import load_world

LOADERS = {
    "result": tacit.Result.load,
    "results": load_results,
    "world.toml": load_world,
    "world.json": load_world,
}
WORLD = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2}


def peak(call):
    """What a call that is refused takes of memory."""
    tracemalloc.start()
    try:
        with pytest.raises(TacitError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, name):
    """A FIFO would wait for ever, a device would fill the memory."""
    fifo, zeros = tmp_path / f"fifo-{name}", tmp_path / f"zeros-{name}"
    os.mkfifo(fifo)
    zeros.symlink_to("/dev/zero")
    for path in (fifo, zeros):
        with pytest.raises(TacitError, match=f"{path.name}.* no(t a)? regular file"):
            LOADERS[name](path)
    folder = tmp_path / f"folder-{name}"
    folder.mkdir()
    with pytest.raises((IsADirectoryError, CorruptFile), match=f"folder-{name}"):
        LOADERS[name](folder)


@pytest.mark.parametrize("name", LOADERS)
def test_a_large_file_is_refused_before_it_is_read(tmp_path, name):
    path = tmp_path / name
    path.touch()
    os.truncate(path, 20 << 30)  # takes no place on the disk
    assert peak(lambda: LOADERS[name](path)) < 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        b"a." * 30_000 + b"a = 1",
        b'"a" . ' * 10_000 + b"a = 1",
        b"[" + b"a." * 30_000 + b"a]",
        b"x = {" + b"a." * 30_000 + b"a = 1}",
        b"".join(b"[k%d.a.a.a.a.a.a.a]\n" % i for i in range(3000)),
        b"".join(b"k%d." % i + b"a." * 14 + b"a=1\n" for i in range(1500)),
        b"x = " + b"{a=" * 20_000,
        b'x = ["""a""""", ' + b"[" * 30_000,
        b"rewards = ['" + b"x" * 30_000 + b"'" + b",''" * 10_000 + b"]\ntransitions=0\nhorizon=1",
    ],
    ids=range(9),
)
def test_a_small_world_takes_little_memory(tmp_path, text):
    """60 KB of dotted keys took 2.9 GB: the parser keeps every beginning of a key."""
    path = tmp_path / "w.toml"
    path.write_bytes(text)
    assert peak(lambda: load_world(path)) < 5_000_000


def test_a_long_text_among_numbers_takes_little_memory(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(WORLD | {"rewards": ["x" * 30_000, *[""] * 10_000]}))
    assert peak(lambda: load_world(path)) < 5_000_000


def depth(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, (dict, list)) else 0


texts = st.text("[]{}\"'\\#\n=.,ax", max_size=12)
trees = st.recursive(
    texts | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(tree=trees, more=st.integers(0, 8))
def test_brackets_in_texts_do_not_count_and_others_do(tree, more):
    for _ in range(more):
        tree = [tree]
    data = json.dumps([tree, *[[]] * 70], ensure_ascii=False).encode()
    with pytest.MonkeyPatch.context() as patch:
        levels = depth(json.loads(data))
        patch.setattr(files, "MOST_LEVELS", levels)
        assert parse_json(data) == json.loads(data)
        patch.setattr(files, "MOST_LEVELS", levels - 1)
        with pytest.raises(ValueError, match="nested"):
            parse_json(data)


def lists_in_lists(value, within=0):
    """How many lists hold each other directly, which is how many brackets are open at once."""
    if isinstance(value, dict):
        return max(map(lists_in_lists, value.values()), default=0)
    if not isinstance(value, list):
        return within
    return max((lists_in_lists(inner, within + 1) for inner in value), default=within + 1)


def check_levels(text):
    """The scan lets pass what the parser takes, and sees at least as many levels."""
    parsed = tomllib.loads(text)
    assert parse_toml(text.encode()) == parsed
    if levels := lists_in_lists(parsed):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "MOST_LEVELS", levels - 1)
            with pytest.raises(ValueError, match="nested"):
                parse_toml(text.encode())


soup = [*"[]{}\"'\\#\n=.,a1", '"""', "'''", "a = [", "[[", "]]", ", ", "\r\n"]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(soup), max_size=20), st.integers(0, 3))
def test_no_toml_is_deeper_than_the_scan_says(parts, brackets):
    """What the parser takes for brackets is never hidden from the scan by quotes or comments."""
    text = "x = " + "[" * brackets + "".join(parts) + "[[0]]" + "]" * brackets
    try:
        tomllib.loads(text)
    except ValueError:
        return
    check_levels(text)


quoted = [
    *('"[{"', "'[{'", '"""[\n{"""', "'''[\n'{'''", '"\\"["', '"""a""""', "'''a'''''", '"\\\\"'),
    *("'\\'", '"""\\""""', '"""[""" #"', "0.5", "''", '""', '"#"', "# [ ' \"\n 1"),
]
toml_trees = st.recursive(
    st.sampled_from(quoted),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda values: "[" + "\n, ".join(values) + "\n]"
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(toml_trees)
def test_toml_with_brackets_in_texts_is_as_deep_as_it_is(tree):
    text = f"x = [{tree}\n] # [[["
    check_levels(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_LEVELS", lists_in_lists(tomllib.loads(text)))
        parse_toml(text.encode())


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "policy"
    write_atomic(path, b"old", 0o640)
    assert path.stat().st_mode & 0o777 == 0o640
    write_atomic(path, b"new", 0o644)
    for call in ("replace", "fsync", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _disk_full)
            with pytest.raises(OSError, match="full"):
                write_atomic(path, b"newer", 0o644)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"new", ["policy"])


def _disk_full(*args, **options):
    raise OSError("disk full")


def test_a_store_is_never_replaced(tmp_path):
    """What was spent would be forgotten."""
    path = tmp_path / "app.db"
    tacit.store.store.Store(path)
    before = path.read_bytes()
    with pytest.raises(InvalidArgument, match="is a store"):
        write_atomic(path, b"a policy", 0o644)
    assert path.read_bytes() == before


# Agents.
