"""Callers who mean no harm and do some: files of other runs, ids with code, folders that change."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tacit.core.desk import Desk

import tacit
from research.hostile.owner_run import CELLS, HOW, PRIVACY, SPEC, Run, Tally, users_of
from research.hostile.owner_signals import threads
from tacit.core.schedule import Schedule
from tacit.privacy.arguments import steady_repr
from tacit.privacy.errors import Busy, InvalidArgument

ROOT = Path(__file__).parents[2]


def make(**files: Any) -> Any:
    return CELLS(SPEC, 12, PRIVACY, size=4, schedule="fixed:size=4", **files)


def clean(tally: Tally) -> bool:
    assert tally.clean, tally.problems
    return True


# Files.


@pytest.mark.parametrize("people", [False, True])
def test_an_autosave_is_never_written_over_the_save_of_another_run(
    people: bool, tmp_path: Path
) -> None:
    state, files = tmp_path / "state", dict[str, Path]()
    if people:
        files = {"ledger": tmp_path / "people"}
        tacit.Ledger.create_for_people(tmp_path / "people", tacit.JointDP(1e6, 1e-6))
    agent = make(autosave=state, **files)
    agent.learn(users_of(0, 4), [0, 1, 2, 3])
    with pytest.raises(InvalidArgument, match="save of a run, which would be lost"):
        make(autosave=state, **files)
    with pytest.raises(InvalidArgument, match="go on with it by load"):
        PRIVACY.curator(autosave=state)
    assert make().load(state, autosave=state, **files).taken == 4
    PRIVACY.curator(autosave=state, noise_seed=0)  # a simulation is nobody's


@pytest.mark.parametrize("wrong", ["folder", "none/state"])
def test_a_wrong_autosave_leaves_no_ledger_behind(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=wrong):
        make(ledger=tmp_path / "ledger", autosave=tmp_path / wrong)
    with pytest.raises(OSError, match=wrong):
        PRIVACY.curator(ledger=tmp_path / "ledger", autosave=tmp_path / wrong)
    assert not (tmp_path / "ledger").exists()


def test_nothing_is_published_over_a_state_or_a_ledger(tmp_path: Path) -> None:
    run = Run(tmp_path, 12)
    agent = run.make(files=True)
    for file, words in (("state", "is a saved state"), ("ledger", "is a ledger")):
        before = (tmp_path / file).read_bytes()
        with pytest.raises(InvalidArgument, match=words):
            agent.publish(tmp_path / file)
        assert (tmp_path / file).read_bytes() == before


def test_files_stay_where_they_are_when_the_folder_changes(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = make(ledger="ledger", autosave="state")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    agent.learn(users_of(0, 5), [0, 1, 2, 3, 4])
    monkeypatch.chdir(tmp_path)
    agent = make().load("state", ledger="ledger", autosave="state")
    monkeypatch.chdir(tmp_path / "other")
    agent.learn(users_of(5, 7), [*range(5, 12)])
    assert (agent.taken, agent.releases, os.listdir()) == (12, 3, [])


def test_a_ledger_that_is_away_for_a_while_loses_a_block_at_most(tmp_path: Path) -> None:
    run = Run(tmp_path, 12)
    with run.overheard():
        agent = run.make(files=True)
        run.learn(agent, 0, 4)
        (tmp_path / "ledger").rename(tmp_path / "away")
        with pytest.raises(FileNotFoundError) as caught:
            run.learn(agent, 4, 4)
        assert caught.value.users_taken == agent.taken - 4  # type: ignore[attr-defined]
        with pytest.raises(FileNotFoundError):
            agent.save(tmp_path / "state")
        (tmp_path / "away").rename(tmp_path / "ledger")
        run.finish(agent)
        assert clean(run.judge(agent, "away"))


# What callers bring.


def test_ids_with_code_of_their_own_cannot_stop_a_block(tmp_path: Path) -> None:
    class Text(str):
        def encode(self, *_: Any) -> bytes:
            raise ValueError("this id has no bytes")

        def __hash__(self) -> int:
            raise ValueError("nor a hash")

    agent = make(ledger=tmp_path / "ledger", autosave=tmp_path / "state")
    agent.learn(users_of(0, 2), ["a", Text("b")])
    agent.save(tmp_path / "state")
    agent.learn(users_of(2, 2), ["b", "c"])  # who is the same one
    assert (agent.taken, agent._curator.participants.people) == (4, 3)


def test_a_list_of_ids_that_changes_meanwhile_counts_as_it_was(tmp_path: Path) -> None:
    ids: list[int] = [0, 1]
    agent = make()
    agent.learn(users_of(0, 2), ids)
    ids[:] = [2, 3]
    agent.learn(users_of(2, 2), ids)
    assert agent._curator.participants.people == 4


def test_an_error_that_cannot_be_written_to_is_raised_as_it_is(
    monkeypatch: Any, tmp_path: Path
) -> None:
    @dataclass(frozen=True)
    class Frozen(Exception):
        code: int

    def fails(_: Any) -> Any:
        raise Frozen(7)

    run = Run(tmp_path, 12)
    agent = run.make(files=True)
    with monkeypatch.context() as patch:
        patch.setattr(agent._curator, "_publish", fails)
        with pytest.raises(Frozen):
            run.learn(agent, 0, 5)
    assert agent.taken == 4


def test_a_note_that_a_signal_left_in_repr_ends_no_run(tmp_path: Path) -> None:
    """By Python's own guard a dataclass is "..." within itself, or if its mark was left behind."""
    agent = make(ledger=tmp_path / "ledger", autosave=tmp_path / "state")
    right, function = repr(agent.schedule), Schedule.__repr__
    marks = next(c.cell_contents for c in function.__closure__ if type(c.cell_contents) is set)
    mark = (id(agent.schedule), threading.get_ident())
    marks.add(mark)
    try:
        assert repr(agent.schedule) == "..."
        assert steady_repr(agent.schedule) == right
        agent.learn(users_of(0, 4), [0, 1, 2, 3])
    finally:
        marks.discard(mark)
    files = {"ledger": tmp_path / "ledger", "autosave": tmp_path / "state"}
    assert make().load(tmp_path / "state", **files).taken == 4


def test_a_load_that_was_cut_off_twice_is_undone_when_it_is_read(
    monkeypatch: Any, tmp_path: Path
) -> None:
    from tacit.core.session import Moment

    agent = make(autosave=tmp_path / "state")
    agent.learn(users_of(0, 5), [0, 1, 2, 3, 4])
    agent.save(tmp_path / "state")
    fresh = make()

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("tacit.core.agent._rehearse", interrupted)
        patch.setattr(Moment, "put_back", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fresh.load(tmp_path / "state")
    assert (fresh.taken, fresh.block_users, fresh.served, fresh.policy.version) == (0, 4, 0, 0)
    assert fresh.load(tmp_path / "state").taken == 5


def test_devices_are_asked_the_next_question_after_a_policy_that_was_cut_off(
    monkeypatch: Any,
) -> None:
    """The next statistic may be another one: reports of the old one would be spent for nothing."""
    world = tacit.tabular.riverswim(3, 4)

    def devices() -> Any:
        agent = tacit.UCBVI(world.spec, 30, tacit.LocalDP(1.0, 1e-6), schedule="fixed:size=10")
        return agent, np.zeros((10, agent.statistic.layout.size))

    agent, reports = devices()
    twin, _ = devices()
    twin.learn_reports(reports)
    assert twin.statistic.layout.size != reports.shape[1]

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(agent.algorithm), "plan", fails)
        with pytest.raises(KeyboardInterrupt) as caught:
            agent.learn_reports(reports)
    assert caught.value.users_taken == 10  # type: ignore[attr-defined]
    assert agent.statistic.fingerprint == twin.statistic.fingerprint
    assert (agent.taken, agent.block_users, agent.releases) == (10, 10, 1)
    agent.learn_reports(np.zeros((10, agent.statistic.layout.size)))
    assert agent.releases == 2


# Moments.


def test_a_full_stack_is_no_damaged_ledger(tmp_path: Path) -> None:
    """A RecursionError at any depth, also in what is done about it, is as any other exception."""

    def deep(levels: int, call: Any) -> None:
        call() if levels == 0 else deep(levels - 1, call)

    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back  # type: ignore[assignment]
    hit = 0
    for left in range(5, 50, 4):
        (tmp_path / str(left)).mkdir()
        run = Run(tmp_path / str(left), 12, ids=left % 8 == 1)
        with run.overheard():
            agent = run.make(files=True)
            run.learn(agent, 0, 2)
            right = True
            try:
                deep(
                    sys.getrecursionlimit() - depth - left, lambda r=run, a=agent: r.learn(a, 2, 5)
                )
            except RecursionError as error:
                hit += 1
                right = getattr(error, "users_taken", agent.taken - 2) == agent.taken - 2
            assert right
            agent = run.go_on(agent, HOW[left % 3])
            run.finish(agent)
            assert clean(run.judge(agent, f"{left} left"))
    assert hit > 4


def test_threads_that_switch_at_every_step() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert clean(threads(8, 10, seed=1))
    finally:
        sys.setswitchinterval(before)


def test_a_finaliser_that_learns_waits_or_is_refused(tmp_path: Path) -> None:
    run, said = Run(tmp_path, 60), list[str]()
    agent = run.make(files=True)

    def collected(phase: str, _: Any) -> None:
        if phase == "start" and len(said) < 20:
            try:
                agent.learn(users_of(0, 1), [0])
                said.append("learnt")
            except Busy:
                said.append("refused")

    threshold = gc.get_threshold()
    gc.callbacks.append(collected)
    gc.set_threshold(5)
    try:
        run.learn(agent, 1, 9)
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*threshold)
    assert "refused" in said
    assert agent.taken == 9 + said.count("learnt")


def test_asyncio_by_threads_and_a_call_that_nobody_waits_for(tmp_path: Path) -> None:
    run = Run(tmp_path, 40)

    async def serve(agent: Any) -> int:
        await asyncio.gather(
            *(asyncio.to_thread(run.learn, agent, first, 2) for first in range(0, 20, 2))
        )
        right = agent._curator._publish
        agent._curator._publish = lambda release: (time.sleep(0.2), right(release))[1]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(run.learn, agent, 20, 4), 0.05)
        # It goes on in its thread; who asks waits for it, and nobody is given again.
        return await asyncio.to_thread(lambda: agent.taken)

    with run.overheard():
        agent = run.make(files=True)
        assert asyncio.run(serve(agent)) == 24
        run.finish(agent)
        assert clean(run.judge(agent, "asyncio"))


def test_published_witnesses_are_right_while_others_learn(tmp_path: Path) -> None:
    run, done = Run(tmp_path, 40), threading.Event()
    agent = run.make(files=True)
    found = list[dict[str, int | str]]()

    def publish() -> None:
        while not done.is_set():
            agent.publish(tmp_path / "policy")
            found.append(tacit.published.about(tmp_path / "policy"))

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        run.finish(agent)
    finally:
        done.set()
        thread.join()
    hashes = tacit.Ledger.open(tmp_path / "ledger")._journal.hashes()
    assert found
    assert all(hashes[int(f["ledger_line"]) - 1] == f["ledger_head"] for f in found)
    assert np.all(np.diff([int(f["version"]) for f in found]) >= 0)


FORKS = """
import os, signal, sys, threading
from pathlib import Path
from research.hostile.owner_run import Run
from tacit.privacy.errors import DoubleSpend

run = Run(Path(sys.argv[1]), 12)
agent, inside, go = run.make(files=True), threading.Event(), threading.Event()
right = agent._curator._publish

def publish(release):
    inside.set()
    go.wait()
    return right(release)

agent._curator._publish = publish
thread = threading.Thread(target=run.learn, args=(agent, 0, 5))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # it would wait for ever
    try:
        run.learn(agent, 5, 1)
    except DoubleSpend:
        os._exit(3)
    os._exit(4)
ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
go.set()
thread.join()
sys.exit(ended if agent.taken == 5 else 5)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_while_a_thread_is_inside_is_refused_and_does_not_wait(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("then", HOW)
def test_a_load_that_is_cut_off_before_its_round_goes_on(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The users of the round that is on record are in, whatever comes next."""
    run = Run(tmp_path, 12)
    agent = run.make(files=True)
    with run.overheard():
        with monkeypatch.context() as patch:
            patch.setattr(type(agent.algorithm), "plan", cut_off)
            with pytest.raises(KeyboardInterrupt):
                agent.learn(users_of(0, 4), [0, 1, 2, 3])
        agent.save(tmp_path / "state")
        fresh = run.make(files=False)
        with monkeypatch.context() as patch:
            patch.setattr(Desk, "_catch_up", cut_off)
            with pytest.raises(KeyboardInterrupt):
                fresh.load(tmp_path / "state", **run.files)
        assert fresh.taken == 4
        fresh = run.go_on(fresh, then)
        assert fresh.taken == 4
        run.finish(fresh)
        assert (fresh.taken, fresh.served, fresh.releases) == (12, 12, 3)
    assert clean(run.judge(fresh, "a load"))


def cut_off(_: object) -> None:
    raise KeyboardInterrupt
