"""Files that somebody else may have made: opened, measured and scanned before they are believed."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import tomllib
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tacit.privacy.storage import read_state, write_atomic, write_state

import tacit
from tacit.privacy import files
from tacit.privacy.counters import Counter
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError
from tacit.privacy.files import parse_json, parse_toml, read_file, remove_orphans, temporary_name
from tacit.registry import build_world
from tacit.simulation.tables import load_results
from tacit.tabular.world import load_world

LOADERS: dict[str, Callable[[Path], Any]] = {
    "state": lambda path: read_state(path, "k"),
    "counter": Counter.load,
    "curator": JointCurator.load,
    "ledger": tacit.Ledger.open,
    "result": tacit.Result.load,
    "results": load_results,
    "world.toml": load_world,
    "world.json": load_world,
    "policy": tacit.Policy.load,
}
WORLD = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2}


def peak(call: Callable[[], Any]) -> int:
    """What a call that is refused takes of memory."""
    tracemalloc.start()
    try:
        with pytest.raises(TacitError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# What is opened.


@pytest.mark.parametrize("name", LOADERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
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
def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name in ("state", "counter", "curator"):
        write_state(path, "k", {}, {})
    else:
        path.touch()
    os.truncate(path, 20 << 30)  # takes no place on the disk
    assert peak(lambda: LOADERS[name](path)) < 1_000_000


def test_limits_are_stated_and_can_be_changed(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "s"
    write_state(path, "k", {}, {"a": np.zeros(1000)})
    monkeypatch.setitem(files.MOST_BYTES, "state", 5000)
    with pytest.raises(
        CorruptFile, match=r"'.*s': 8,\d+ bytes, and a state may have 5,000 .*MOST_"
    ):
        read_state(path, "k")
    monkeypatch.setitem(files.MOST_BYTES, "state", 10_000)
    assert read_state(path, "k").arrays["a"].shape == (1000,)


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    write_state(tmp_path / "s", "k", {"x": 1}, {})
    (tmp_path / "link").symlink_to("s")
    assert read_state(tmp_path / "link", "k").meta == {"x": 1}


def test_what_has_no_size_is_not_read() -> None:
    if os.path.exists("/proc/self/maps"):
        with pytest.raises(CorruptFile, match="grew"):
            read_file("/proc/self/maps", "world")


# What is parsed.


def test_deep_texts_are_refused_by_all(tmp_path: Path) -> None:
    deep = "[" * 30_000
    for name in ("world.json", "world.toml", "result", "results", "ledger"):
        path = tmp_path / name
        path.write_text(f"x = {deep}" if name.endswith("toml") else deep + "\n")
        with pytest.raises(TacitError, match=name):
            LOADERS[name](path)
    with pytest.raises(CorruptFile, match="64 levels"):
        tacit.Guarantee.from_json(deep)
    nested: list[Any] = []
    for _ in range(100):
        nested = [nested]
    with pytest.raises(InvalidArgument, match="64 levels"):
        write_state(tmp_path / "s", "k", {"x": nested}, {})


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
def test_a_small_world_takes_little_memory(tmp_path: Path, text: bytes) -> None:
    """60 KB of dotted keys took 2.9 GB: the parser keeps every beginning of a key."""
    path = tmp_path / "w.toml"
    path.write_bytes(text)
    assert peak(lambda: load_world(path)) < 5_000_000


def test_a_long_text_among_numbers_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text(json.dumps(WORLD | {"rewards": ["x" * 30_000, *[""] * 10_000]}))
    assert peak(lambda: load_world(path)) < 5_000_000


def depth(value: Any) -> int:
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
def test_brackets_in_texts_do_not_count_and_others_do(tree: Any, more: int) -> None:
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


def lists_in_lists(value: Any, within: int = 0) -> int:
    """How many lists hold each other directly, which is how many brackets are open at once."""
    if isinstance(value, dict):
        return max(map(lists_in_lists, value.values()), default=0)
    if not isinstance(value, list):
        return within
    return max((lists_in_lists(inner, within + 1) for inner in value), default=within + 1)


def check_levels(text: str) -> None:
    """The scan lets pass what the parser takes, and sees at least as many levels."""
    parsed = tomllib.loads(text)
    assert parse_toml(text.encode()) == parsed
    if levels := lists_in_lists(parsed):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "MOST_LEVELS", levels - 1)
            with pytest.raises(ValueError, match="nested"):
                parse_toml(text.encode())


soup = [*"[]{}\"'\\#\n=.,a1", '"""', "'''", "a = [", "[[", "]]", ", ", "\r\n"]


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.sampled_from(soup), max_size=20), st.integers(0, 3))
def test_no_toml_is_deeper_than_the_scan_says(parts: list[str], brackets: int) -> None:
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
def test_toml_with_brackets_in_texts_is_as_deep_as_it_is(tree: str) -> None:
    text = f"x = [{tree}\n] # [[["
    check_levels(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_LEVELS", lists_in_lists(tomllib.loads(text)))
        parse_toml(text.encode())


def test_worlds_in_toml_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "w.toml"
    path.write_text(
        "# a [world] = {\ntransitions = [\n  [[1.0], # it's\n [1.0]],\n]\nhorizon = 2\r\n"
        "name = '''a [[[ \"world\"'''\n[rewards]\nvalues = [0, 1]\n"
        "probabilities = [[[0.5, 0.5], [0.1, 0.9]]]\n"
    )
    assert load_world(path).name == 'a [[[ "world"'


def test_files_of_runs_are_refused_in_our_words(tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    for results in (None, [], {"a": 3}, {"a": [3]}, {"a": [{}]}):
        path.write_text(json.dumps({"format": "tacit-runs", "version": 1, "results": results}))
        with pytest.raises(CorruptFile, match=r"runs\.json"):
            load_results(path)


def test_a_counter_of_another_size_is_refused(tmp_path: Path) -> None:
    """A forged shape takes no memory."""
    path = tmp_path / "c"
    tacit.counter(tacit.Budget(1.0, 1e-6), 1.0, 8, (2,), noise_seed=0).save(path)
    state = read_state(path, "counter")
    for shape in ([10**9], [10**18], [3], [1], [-2], ["a"], None):
        write_state(path, "counter", state.meta | {"shape": shape}, state.arrays)
        assert peak(lambda: Counter.load(path)) < 1_000_000
        with pytest.raises(CorruptFile, match="c': not a saved counter"):
            Counter.load(path)


def test_a_round_after_the_last_one_is_refused(tmp_path: Path) -> None:
    """And the agent is as it was."""
    privacy = tacit.JointDP(epsilon=1.0, delta=1e-6)
    path, world = tmp_path / "a", build_world("riverswim:states=3,horizon=3")

    def make() -> Any:
        return tacit.UCBVI(world.spec, users=100, privacy=privacy, noise_seed=0)

    agent = make()
    rng = np.random.default_rng(0)
    agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
    agent.save(path)
    assert make().load(path).served == agent.served
    state = read_state(path, "curator")
    extra = state.meta["extra"] | {"served": 100, "seen": 0}
    extra["releases"] = agent.schedule.releases
    write_state(path, "curator", state.meta | {"extra": extra}, state.arrays)
    fresh = make()
    with pytest.raises(CorruptFile, match="a round after the last one"):
        fresh.load(path)
    assert (fresh.served, fresh.releases, fresh.block_users) == (0, 0, make().block_users)


# Temporary files of those who died.


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_dead_writer_left_is_removed(tmp_path: Path) -> None:
    """And nothing else: not of the living, not of other files, not what is not ours."""
    path = tmp_path / "s"
    mine = Path(temporary_name(path)).name
    left = mine.replace(f"-{os.getpid()}-", f"-{dead_process()}-")
    other = Path(temporary_name(tmp_path / "t")).name.replace(
        f"-{os.getpid()}-", f"-{dead_process()}-"
    )
    before_us = mine.replace(files._PROCESS, "0" * 8)  # a process that had our number
    living = mine.replace(f"-{os.getpid()}-", f"-{os.getppid()}-")
    linked = left.replace(".tmp", "0.tmp")
    for name in (mine, left, other, before_us, living, ".tacit-1.tmp", f"{left}.bak"):
        (tmp_path / name).touch()
    (tmp_path / linked).symlink_to(mine)
    write_atomic(path, b"x", 0o600)
    kept = {"s", mine, other, living, ".tacit-1.tmp", f"{left}.bak", linked}
    assert set(os.listdir(tmp_path)) == kept
    (tmp_path / left).touch()
    read_file(path, "world")
    assert set(os.listdir(tmp_path)) == kept


def test_a_killed_writers_file_is_gone_after_the_next(tmp_path: Path) -> None:
    script = (
        "import os, sys; from tacit.privacy import storage\n"
        "os.fsync = lambda descriptor: os.kill(os.getpid(), 9)\n"
        "storage.write_atomic(sys.argv[1], b'x', 0o600)\n"
    )
    path = tmp_path / "s"
    subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert len(os.listdir(tmp_path)) == 1
    write_atomic(path, b"x", 0o600)
    assert os.listdir(tmp_path) == ["s"]
    ledger = tmp_path / "ledger"
    tacit.Ledger.create(ledger, 1.0, unit="mu^2")
    name = temporary_name(ledger).replace(f"-{os.getpid()}-", f"-{dead_process()}-")
    os.link(ledger, name)  # what a crash between making the name and removing the other leaves
    tacit.Ledger.open(ledger)
    assert sorted(os.listdir(tmp_path)) == ["ledger", "s"]


def test_a_folder_that_is_gone_is_no_trouble(tmp_path: Path) -> None:
    remove_orphans(tmp_path / "missing" / "s")


# Agents.


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_agent_is_not_copied(act: Callable[[Any], Any]) -> None:
    """A shallow copy would share its curator, and serve the same users twice."""
    world = build_world("riverswim:states=3,horizon=3")
    privacy = tacit.JointDP(epsilon=1.0, delta=1e-6)
    agent = tacit.UCBVI(world.spec, users=100, privacy=privacy, noise_seed=0)
    with pytest.raises(TypeError, match="an agent cannot be copied"):
        act(agent)
