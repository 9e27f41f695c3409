"""One owner: threads, signals and exceptions at any line lose no run and put nobody in twice.

The work is done by ``python -m research.hostile.owner``, in a process of its own: it forks, and
limits its memory. Here it is run, and run again with broken code, which it must notice.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit.privacy.curators import id_files
from tacit.privacy.storage import read_state, write_state

import tacit
from research.hostile.owner_run import CELLS, PRIVACY, SPEC, Run, users_of
from tacit.privacy.errors import Busy, CorruptFile

ROOT = Path(__file__).parents[2]
COUNTED = ("lost_runs", "users_twice", "unpaid", "wrong_receipts")


def harness(*options: str) -> dict[str, dict[str, Any]]:
    """What the command prints, by name."""
    return called("from research.hostile.owner import main\nmain()", *options)


def called(code: str, *options: str) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", code, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["what"]: line for line in told}


def check(found: dict[str, dict[str, Any]]) -> None:
    for name, tally in found.items():
        assert not any(tally[counted] for counted in COUNTED), (name, tally["problems"])
        assert tally["hit"] > 0 or name in ("threads", "power"), name


def test_an_agent_under_fire_loses_nothing() -> None:
    what = ("threads", "learn", "save", "load", "term", "disk", "power", "families")
    check(harness("--what", *what, "--rounds", "4", "--stride", "503"))


def test_an_agent_under_fire_whose_ids_are_in_a_file_of_their_own() -> None:
    check(harness("--what", "learn", "load", "disk", "--stride", "211", "--beside"))


@pytest.mark.slow
@pytest.mark.parametrize("what", ["learn", "stream", "save", "load"])
@pytest.mark.parametrize("beside", [False, True])
def test_an_exception_at_every_line(what: str, beside: bool) -> None:
    if not (beside and what == "stream"):  # which has no ids
        check(harness("--what", what, *(["--beside"] if beside else [])))


@pytest.mark.slow
def test_many_threads_and_faults() -> None:
    """2, 4 and 8 threads, 200 blocks each; 500 times SIGTERM."""
    what = ("threads", "term", "memory", "disk", "power", "families")
    check(harness("--what", *what, "--rounds", "200"))


@pytest.mark.slow
def test_ten_thousand_signals() -> None:
    """A tenth of what ``--store`` sends."""
    check(harness("--what", "signals", "--rounds", "20"))


BROKEN = {
    "nobody waits": (
        "class Free:\n"
        "    def __enter__(self): pass\n"
        "    def __exit__(self, *_): pass\n"
        "    def _is_owned(self): return False\n"
        "import threading\n"
        "threading.RLock = Free\n",
        "threads",
    ),
    "nothing is settled": (
        "from tacit.core.desk import Desk\nDesk._settle = lambda self, **_: None\n",
        "signals",
    ),
    "nobody says who was taken": (
        "import tacit.core.desk as d\n"
        "right = d._say_who\n"
        "d._say_who = lambda error, taken, given: right(error, 0, given)\n",
        "signals",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_broken_code_is_noticed(broken: str) -> None:
    patch, what = BROKEN[broken]
    code = "import research.hostile.owner as o\n" + patch + "o.main()"
    tally = called(code, "--what", what, "--rounds", "30")[what]
    assert any(tally[counted] for counted in COUNTED), tally


# Calls within calls.


def test_a_save_from_a_signal_handler_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    run = Run(tmp_path, 12)
    agent, caught = run.make(files=True), list[BaseException]()

    def handler(*_: object) -> None:
        for call in (lambda: agent.save(tmp_path / "x"), lambda: agent.load(tmp_path / "state")):
            try:
                call()
            except Busy as error:
                caught.append(error)

    right, before = agent._curator._publish, signal.signal(signal.SIGUSR1, handler)

    def publish(release: Any) -> Any:
        os.kill(os.getpid(), signal.SIGUSR1)
        return right(release)

    agent._curator._publish = publish
    try:
        run.learn(agent, 0, 5)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(caught) == 2
    assert "signal handler" in str(caught[0])
    assert (agent.taken, agent.releases, agent.block_users) == (5, 1, 3)
    assert not (tmp_path / "x").exists()


def test_another_thread_waits(tmp_path: Path) -> None:
    run = Run(tmp_path, 12)
    agent = run.make(files=True)
    right, inside, go = agent._curator._publish, threading.Event(), threading.Event()

    def publish(release: Any) -> Any:
        inside.set()
        assert go.wait(60)
        return right(release)

    agent._curator._publish = publish
    first = threading.Thread(target=run.learn, args=(agent, 0, 4))
    second = threading.Thread(target=run.learn, args=(agent, 4, 3))
    first.start()
    assert inside.wait(60)
    second.start()
    # The policy can be read meanwhile.
    assert agent.policy.version == 0
    go.set()
    first.join(60)
    second.join(60)
    assert (agent.taken, agent.releases, agent.block_users) == (7, 1, 1)


# What a save holds, and a refused load.


def test_a_refused_load_changes_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, 12)
    agent = run.make(files=True)
    run.learn(agent, 0, 6)
    agent.save(tmp_path / "saved")
    state = read_state(tmp_path / "saved", "curator")
    ledger = (tmp_path / "ledger").read_bytes()
    forged = {
        "served": {"extra": {**state.meta["extra"], "served": 10**9}},
        "pending": {"extra": {**state.meta["extra"], "pending": 1}},
        "answers": {"extra": {**state.meta["extra"], "seen": 0, "answers": [{"index": 0}]}},
        "last": {"extra": {**state.meta["extra"], "seen": 0}, "last": {**state.meta["last"]}},
        "ids": {"ids": {"key": "no"}},
    }
    arrays = {**state.arrays, "last/counts": np.zeros(3)}
    fresh = run.make(files=False)
    for name, change in forged.items():
        path = tmp_path / name
        write_state(path, "curator", state.meta | change, arrays)
        with pytest.raises((CorruptFile, tacit.InvalidArgument)):
            fresh.load(path, **run.files)
        assert (tmp_path / "ledger").read_bytes() == ledger
        assert (fresh.taken, fresh.releases, fresh.policy.version) == (0, 0, 0)
    fresh.load(tmp_path / "saved", **run.files)
    assert (fresh.taken, fresh.releases) == (6, 1)


@pytest.mark.parametrize("counter", ["blocks", "smooth tree"])
def test_raw_data_of_a_block_leaves_the_autosave_with_it(counter: str, tmp_path: Path) -> None:
    agent = CELLS(SPEC, 4000, PRIVACY, counter=counter, size=4, autosave=tmp_path / "state")
    data = users_of(3000, 4)
    agent.learn(data)
    arrays = read_state(tmp_path / "state", "curator").arrays
    assert agent.releases == 1
    assert not [name for name in arrays if name.startswith("block/") or name.endswith("cells")]
    assert data["cells"].tobytes() not in (tmp_path / "state").read_bytes()


# Ids beside an autosave.


def served(run: Run, users: int) -> Any:
    agent = run.make(files=True)
    for first in range(0, users, 2):
        run.learn(agent, first, 2)
    return agent


def test_ids_are_appended_and_found_again(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(id_files, "INLINE", 0)
    run = Run(tmp_path, 24)
    served(run, 8)
    (beside,) = tmp_path.glob("state.*.ids")
    assert beside.stat().st_mode & 0o777 == 0o600
    assert beside.stat().st_size == 8 * 24
    with open(beside, "ab") as file:
        file.write(b"torn")
    agent = run.make(files=False).load(tmp_path / "state", **run.files)
    # The first four come again and count as nothing; four others are new.
    agent.learn(users_of(8, 4), [0, 1, 2, 3])
    agent.learn(users_of(12, 4), [12, 13, 14, 15])
    assert agent.sums.round().astype(int).tolist() == [1] * 8 + [0] * 4 + [1] * 4 + [0] * 8
    assert [*tmp_path.glob("state.*.ids")] == [beside]
    assert beside.stat().st_size == 12 * 24
    assert read_state(tmp_path / "state", "curator").meta["ids"]["bytes"] == 12 * 24
    # A save under another name is whole by itself.
    agent.save(tmp_path / "saved")
    beside.unlink()
    again = run.make(files=False).load(tmp_path / "saved", **run.files)
    assert again._curator._participants.people == 12


def test_a_damaged_or_missing_file_of_ids_is_refused(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(id_files, "INLINE", 0)
    run = Run(tmp_path, 24)
    served(run, 8)
    (beside,) = tmp_path.glob("state.*.ids")
    whole = beside.read_bytes()
    for damaged in (whole[:-1], whole[:5] + b"\0" + whole[6:]):
        beside.write_bytes(damaged)
        with pytest.raises(CorruptFile, match="damaged"):
            run.make(files=False).load(tmp_path / "state", **run.files)
    beside.unlink()
    with pytest.raises(CorruptFile, match="copy both files"):
        run.make(files=False).load(tmp_path / "state", **run.files)
    beside.write_bytes(whole)
    assert run.make(files=False).load(tmp_path / "state", **run.files).taken == 8
