"""Several processes on one ledger: each has its turns, and who waits too long is told for whom."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

import tacit
from research.hostile import ledgers
from tacit.privacy.errors import Busy, InvalidArgument, LockTimeout
from tacit.privacy.ledger import Ledger, chain, locks
from tacit.privacy.ledger.ledger import open_again

HOLDER = """
import sys, time
from tacit.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
with ledger._journal.locked():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


@pytest.fixture
def holder(path):
    """A process that holds the lock of a ledger, and is stopped."""
    Ledger.create(path, 1.0, unit="mu^2")
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        yield process
        process.kill()


def test_who_waits_too_long_is_told_for_whom(path, holder):
    with pytest.raises(LockTimeout) as caught:
        Ledger.open(path, timeout=0.05)
    text = str(caught.value)
    assert f"process {holder.pid} on {socket.gethostname()!r} since 20" in text
    assert re.search(r"locked for 0\.05 seconds", text)
    assert isinstance(caught.value, TimeoutError)
    holder.kill()
    holder.wait()
    # A dead process holds no lock, whatever is left of it.
    ledger = Ledger.open(path, timeout=5)
    assert ledger.charge({"a": 0.5}, "x") == 1
    assert not os.path.exists(f"{path}.holder")


def test_the_time_is_settable_and_goes_with_the_object(path, holder, monkeypatch):
    monkeypatch.setenv("TACIT_LEDGER_TIMEOUT", "0.02")
    with pytest.raises(LockTimeout, match=r"0\.02 seconds"):
        Ledger.open(path)
    holder.kill()
    holder.wait()
    ledger = Ledger.open(path)
    assert (ledger.timeout, Ledger.open(path, timeout=3).timeout) == (0.02, 3.0)
    assert open_again(Ledger.open(path, timeout=3)).timeout == 3.0
    monkeypatch.delenv("TACIT_LEDGER_TIMEOUT")
    assert Ledger.open(path).timeout == locks.TIMEOUT == 60.0
    for wrong in (-1.0, float("nan"), "1", True):
        with pytest.raises(InvalidArgument, match="number of seconds"):
            Ledger.open(path, timeout=wrong)
    monkeypatch.setenv("TACIT_LEDGER_TIMEOUT", "soon")
    with pytest.raises(InvalidArgument, match="TACIT_LEDGER_TIMEOUT"):
        Ledger.open(path)


def test_a_stopped_process_in_the_queue_stops_nobody(path):
    """Who queues and was stopped holds the queue, not the ledger."""
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    queue = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    locks.fcntl.flock(queue, locks.fcntl.LOCK_EX)
    try:
        assert ledger.charge({"a": 0.5}, "x") == 1
    finally:
        os.close(queue)


def test_notes_about_the_holder_decide_nothing(path):
    """Neither a folder, nor nonsense, nor a link to another file in their place."""
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    other = path.with_name("other")
    other.write_text("precious")
    os.symlink(other, f"{path}.holder")
    assert ledger.charge({"a": 0.5}, "x") == 1
    assert other.read_text() == "precious"
    os.mkdir(f"{path}.holder")
    assert ledger.charge({"a": 0.1}, "x") == 2
    assert os.path.isdir(f"{path}.holder")


def test_each_of_four_processes_has_its_turns():
    """By the time the first had its 30, each had 8 at least; in turn it would be 30."""
    turns = ledgers.take_turns(joins=30)
    assert max(turns) == 30
    assert min(turns) >= 8


def test_killed_agents_on_one_ledger_of_people_never_overspend():
    check_kills(4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_killed_agents_on_one_ledger_of_people_never_overspend(seed):
    told = check_kills(60, seed)
    assert told["runs"] > 6
    assert told["people"] > 100


def check_kills(kills, seed=0):
    """In a process of its own: it forks, which a test process with threads must not."""
    code = (
        "import json, dataclasses, research.hostile.ledgers as l\n"
        f"print(json.dumps(dataclasses.asdict(l.kill_many({kills}, seed={seed}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = tacit.privacy.files.parse_json(done.stdout)
    assert told["problems"] == []
    assert told["kills"] == kills
    return told


def test_a_lock_within_a_lock_of_one_thread_is_refused_at_once(path):
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    ledger.record_start("run")
    with ledger._journal.locked() as descriptor:
        with pytest.raises(Busy, match="this thread has the lock"):
            Ledger.open(path, timeout=30)
        with pytest.raises(Busy, match="already"):
            ledger.charge({"a": 0.5}, "within")
        os.fstat(descriptor)  # the outer one is as it was
    assert ledger.charge({"a": 0.5}, "after") == 2
    assert Ledger.open(path).spent("a") == 0.5


def test_what_a_signal_handler_reads_of_a_locked_ledger_does_no_harm(path, monkeypatch):
    ledger, told = Ledger.create(path, 1.0, unit="mu^2"), []
    ledger.record_start("run")

    def handler(*_):
        try:
            told.append(Ledger.open(path).max_spent)
        except Busy as error:
            told.append(error)

    right, before = os.fsync, signal.signal(signal.SIGUSR1, handler)
    monkeypatch.setattr(
        os, "fsync", lambda file: (os.kill(os.getpid(), signal.SIGUSR1), right(file))
    )
    try:
        ledger.charge({"a": 0.5}, "one")
    finally:
        signal.signal(signal.SIGUSR1, before)
    monkeypatch.undo()
    assert [type(one) for one in told] == [Busy]
    assert Ledger.open(path, every_line=True).spent("a") == 0.5


def test_a_signal_into_giving_a_lock_back_leaves_it_to_others(path, monkeypatch):
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    ledger.record_start("run")
    right, first = chain.give_back, [True]

    def give_back(*args, **options):
        if first.pop() if first else False:
            raise KeyboardInterrupt
        right(*args, **options)

    monkeypatch.setattr(chain, "give_back", give_back)
    with pytest.raises(KeyboardInterrupt):
        ledger.charge({"a": 0.5}, "one")
    with ThreadPoolExecutor(1) as other:  # which has none of our locks to give back
        assert other.submit(Ledger.open, path, timeout=0).result().spent("a") == 0.5
