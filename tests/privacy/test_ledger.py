"""Ledgers: nobody overspends, nothing is forgotten, no save continues twice."""

import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit.privacy.ledger as module
from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.ledger import Entry, Ledger


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


@pytest.fixture
def ledger(path):
    return Ledger.create(path, 1.0, unit="mu^2")


def forge(path, change):
    """Change the last line of a ledger and give it the right hash."""
    lines = path.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[-1])
    del record["hash"]
    change(record)
    previous = json.loads(lines[-2])["hash"] if len(lines) > 1 else ""
    path.write_bytes(b"".join([*lines[:-1], module._seal(record, previous)]))


# Creating and opening


def test_a_ledger_is_private_and_knows_itself_again(path):
    created = Ledger.create(path, 0.1, unit="epsilon", note="trial of spring")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    opened = Ledger.open(path)
    assert (opened.id, opened.limit, opened.unit, opened.note) == (
        *(created.id, 0.1, "epsilon", "trial of spring"),
    )
    assert (opened.sequence, opened.entries, opened.max_spent) == (0, (), 0.0)
    assert repr(opened) == (
        f"Ledger({str(path)!r}, limit=0.1, unit='epsilon', sequence=0, max_spent=0.0)"
    )
    assert os.listdir(path.parent) == [path.name]


def test_no_ledger_is_overwritten(path, ledger):
    ledger.charge({"a": 1.0}, "all of it")
    with pytest.raises(FileExistsError):
        Ledger.create(path, 1.0, unit="mu^2")
    assert Ledger.open(path).spent("a") == 1.0


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf"), "1", None])
def test_limits_that_are_no_limits_are_refused(path, limit):
    with pytest.raises(InvalidArgument, match="limit"):
        Ledger.create(path, limit, unit="mu^2")
    assert not path.exists()


def test_units_and_notes_are_checked(path):
    with pytest.raises(InvalidArgument, match="unit"):
        Ledger.create(path, 1.0, unit="delta")
    with pytest.raises(InvalidArgument, match="note"):
        Ledger.create(path, 1.0, unit="mu^2", note="two\nlines")
    assert not path.exists()


def test_open_or_create_holds_the_caller_to_the_declared_limit(path):
    first = Ledger.open_or_create(path, 1.0, unit="mu^2")
    assert Ledger.open_or_create(path, 1.0, unit="mu^2").id == first.id
    with pytest.raises(InvalidArgument, match=r"2\.0 mu\^2 .* limit=1\.0 mu\^2"):
        Ledger.open_or_create(path, 2.0, unit="mu^2")
    with pytest.raises(InvalidArgument, match=r"1\.0 epsilon .* limit=1\.0 mu\^2"):
        Ledger.open_or_create(path, 1.0, unit="epsilon")


def test_open_or_create_survives_a_faster_process(path, monkeypatch):
    real, winner = module.write_atomic, []

    def slow(*args, **kwargs):
        if not winner:
            winner.append(None)
            winner[0] = Ledger.create(path, 1.0, unit="mu^2").id
        real(*args, **kwargs)

    monkeypatch.setattr(module, "write_atomic", slow)
    assert Ledger.open_or_create(path, 1.0, unit="mu^2").id == winner[0]


def test_a_missing_ledger_is_not_an_empty_one(path):
    with pytest.raises(FileNotFoundError):
        Ledger.open(path)
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        ledger.charge({"a": 0.5}, "late")


def test_a_platform_without_locks_is_told_so(path, ledger, monkeypatch):
    monkeypatch.setattr(module, "fcntl", None)
    with pytest.raises(OSError, match="POSIX file locks"):
        Ledger.open(path)
    with pytest.raises(OSError, match="POSIX file locks"):
        ledger.charge({"a": 0.5}, "x")


# Charging


def test_costs_add_per_key(path, ledger):
    assert ledger.charge({"a": 0.5, "b": 0.25}, "one") == 1
    assert ledger.charge({"a": 0.25}, "two", pending=True) == 2
    for view in (ledger, Ledger.open(path)):
        assert (view.spent("a"), view.spent("b"), view.spent("c")) == (0.75, 0.25, 0.0)
        assert (view.remaining("a"), view.remaining("c"), view.max_spent) == (0.25, 1.0, 0.75)
        assert view.entries == (
            Entry(1, "charge", "one", {"a": 0.5, "b": 0.25}),
            Entry(2, "pending", "two", {"a": 0.25}),
        )


def test_entries_cannot_be_changed(ledger):
    ledger.charge({"a": 0.5}, "one")
    with pytest.raises(TypeError):
        ledger.entries[0].costs["a"] = 0.0


def test_overspending_is_refused_and_nothing_changes(path, ledger):
    ledger.charge({"a": 0.75}, "one")
    before = path.read_bytes()
    with pytest.raises(BudgetExceeded, match=r"'a' has spent 0\.75 of 1\.0 mu\^2; 0\.5 is too"):
        ledger.charge({"fresh": 0.5, "a": 0.5}, "two")
    assert path.read_bytes() == before
    assert (ledger.spent("fresh"), ledger.spent("a"), ledger.sequence) == (0.0, 0.75, 1)
    ledger.charge({"fresh": 0.5, "a": 0.25}, "three")


def test_pending_charges_count_in_full(ledger):
    ledger.charge({"a": 1.0}, "one", pending=True)
    with pytest.raises(BudgetExceeded):
        ledger.charge({"a": 0.1}, "two")


@settings(max_examples=20, deadline=None)
@given(limit=st.floats(1e-6, 1e6), parts=st.integers(1, 12))
def test_a_budget_in_parts_is_spendable_and_no_more(limit, parts):
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(os.path.join(folder, "l"), limit, unit="mu^2")
        for _ in range(parts):
            ledger.charge({"a": limit / parts}, "part")
        assert ledger.remaining("a") >= 0.0
        with pytest.raises(BudgetExceeded):
            ledger.charge({"a": limit * 1e-8}, "more")


@pytest.mark.parametrize("cost", [-1e-9, float("nan"), float("inf"), "0.1", None, 10**400])
def test_costs_that_are_no_costs_are_refused(path, ledger, cost):
    before = path.read_bytes()
    with pytest.raises(InvalidArgument, match="'b'"):
        ledger.charge({"a": 0.1, "b": cost}, "bad")
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "two\nlines", "\ud800", 3, None])
def test_text_that_is_no_line_is_refused(ledger, text):
    for call in (
        lambda: ledger.charge({"a": 0.1}, text),
        lambda: ledger.charge({text: 0.1}, "x"),
        lambda: ledger.record_save(text),
        lambda: ledger.record_resume(text),
    ):
        with pytest.raises(InvalidArgument):
            call()
    assert ledger.sequence == 0


def test_free_charges_numpy_numbers_and_other_scripts(path, ledger):
    ledger.charge({"größe": np.float64(0.1), "b": np.float32(0.5), "c": 0}, "Тест")
    ledger.charge({}, "nobody")
    assert Ledger.open(path).entries == ledger.entries
    assert ledger.spent("größe") == 0.1


def test_a_charge_is_on_disk_before_it_returns(path, ledger, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (real(fd), synced.append(path.read_bytes())))
    ledger.charge({"a": 0.5}, "one")
    assert synced == [path.read_bytes()]


@pytest.mark.parametrize("broken", ["write", "fsync"])
def test_a_failed_append_records_nothing(path, ledger, monkeypatch, broken):
    before = path.read_bytes()
    real = os.write

    def fail(descriptor, data=b""):
        if broken == "write":  # a full disk writes a part
            return real(descriptor, data[:10])
        raise OSError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(OSError, match=r"in part|broken"):
            ledger.charge({"a": 0.9}, "one")
    assert path.read_bytes() == before
    assert ledger.charge({"a": 0.9}, "two") == 1


# Several processes


def test_two_objects_see_each_other(path, ledger):
    other = Ledger.open(path)
    ledger.charge({"a": 0.75}, "one")
    with pytest.raises(BudgetExceeded):
        other.charge({"a": 0.5}, "two")
    assert other.charge({"a": 0.25}, "three") == 2
    assert ledger.sequence == 1  # until it next looks
    assert ledger.charge({"b": 0.25}, "four") == 3
    assert ledger.entries == Ledger.open(path).entries


SPENDER = """
import sys
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.ledger import Ledger
ledger = Ledger.open_or_create(sys.argv[1], 1.0, unit="mu^2")
sys.stdin.readline()
done = 0
try:
    while True:
        ledger.charge({"shared": 1 / 64, sys.argv[2]: 1 / 128}, sys.argv[2])
        done += 1
except BudgetExceeded:
    print(done)
"""


def test_racing_processes_never_overspend(path):
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDER, str(path), f"worker {i}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for i in range(4)
    ]
    for worker in workers:  # all have started by the time they read this
        worker.stdin.write(b"go\n")
        worker.stdin.flush()
    done = [int(worker.communicate(timeout=30)[0]) for worker in workers]
    ledger = Ledger.open(path)
    assert sum(done) == ledger.sequence == 64
    assert ledger.spent("shared") == 1.0
    assert [ledger.spent(f"worker {i}") for i in range(4)] == [n / 128 for n in done]


def test_racing_threads_of_one_object_never_overspend(path, ledger):
    def spend():
        for _ in range(10):
            try:
                ledger.charge({"a": 1 / 16}, "x")
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.spent("a") == Ledger.open(path).spent("a") == 1.0


PUBLISHER = """
import sys
from tacit.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
while True:
    print(ledger.charge({"a": 1e-6}, "x" * 2000), flush=True)
"""


def test_a_killed_process_published_nothing_that_is_not_recorded(path, ledger):
    rng = random.Random(1)
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(path)], stdout=subprocess.PIPE
        ) as process:
            first = int(process.stdout.readline())
            time.sleep(rng.uniform(0, 0.03))
            process.send_signal(signal.SIGKILL)
            published = [first, *map(int, process.stdout.read().split())]
        assert Ledger.open(path).sequence - published[-1] in (0, 1)
    ledger.charge({"a": 1e-6}, "goes on")


# Damage


@pytest.fixture
def lines(path, ledger):
    for i in range(3):
        ledger.charge({"a": 0.125}, f"release {i}")
    ledger.record_save("token")
    return path.read_bytes().splitlines(keepends=True)


def test_every_flipped_byte_but_the_last_is_refused(path, lines):
    whole = b"".join(lines)
    for position in range(0, len(whole) - 1, 3):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << (position % 7)
        path.write_bytes(damaged)
        with pytest.raises(CorruptFile) as caught:
            Ledger.open(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("order", [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 3, 4], [0, 2, 1, 3, 4]])
def test_deleted_and_reordered_lines_are_refused(path, lines, order):
    path.write_bytes(b"".join(lines[i] for i in order))
    with pytest.raises(CorruptFile):
        Ledger.open(path)


def test_repeated_and_foreign_lines_are_refused(path, lines):
    other = path.with_name("other")
    neighbour = Ledger.create(other, 1.0, unit="mu^2")
    for i in range(5):
        neighbour.charge({"a": 0.125}, f"release {i}")
    foreign = other.read_bytes().splitlines(keepends=True)[5]  # its number fits, its past does not
    for extra in (
        lines[4],
        foreign,
        b"\n",
        b"null\n",
        b"{}\n",
        b'{"hash": 1}\n',
        b"[" * 9999 + b"\n",
    ):
        path.write_bytes(b"".join(lines) + extra)
        with pytest.raises(CorruptFile, match="line 6"):
            Ledger.open(path)


def test_an_edited_cost_is_refused(path, lines):
    path.write_bytes(b"".join(lines).replace(b"0.125", b"0.001", 1))
    with pytest.raises(CorruptFile, match="line 2 was altered"):
        Ledger.open(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(sequence=9),
        lambda record: record.update(event="refund"),
        lambda record: record.update(costs={"a": -1.0}),
        lambda record: record.update(costs={"a": "0.1"}),
        lambda record: record.update(costs=[]),
        lambda record: record.update(label=3),
        lambda record: record.pop("costs"),
    ],
)
def test_lines_with_a_right_hash_and_wrong_content_are_refused(path, lines, change):
    forge(path, change)
    with pytest.raises(CorruptFile, match="line 5 cannot be read"):
        Ledger.open(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(version=2),
        lambda header: header.update(format="other"),
        lambda header: header.update(unit="delta"),
        lambda header: header.update(limit=0.0),
        lambda header: header.update(limit=None),
        lambda header: header.update(note=None),
        lambda header: header.pop("id"),
    ],
)
def test_headers_of_another_release_are_refused(path, ledger, change):
    forge(path, change)
    with pytest.raises(CorruptFile, match="line 1 cannot be read"):
        Ledger.open(path)


@pytest.mark.parametrize("foreign", [b"", b"hello", b"hello\n", b"\x00" * 50, b"\x89TACIT\r\n\n"])
def test_foreign_files_are_refused_and_kept(path, foreign):
    path.write_bytes(foreign)
    for attempt in (Ledger.open, lambda p: Ledger.open_or_create(p, 1.0, unit="mu^2")):
        with pytest.raises(CorruptFile):
            attempt(path)
    assert path.read_bytes() == foreign


def test_a_ledger_that_shrinks_while_it_is_open_is_refused(path, lines):
    ledger = Ledger.open(path)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(CorruptFile, match="shorter"):
        ledger.charge({"a": 0.1}, "x")


def test_a_torn_last_line_is_dropped_by_the_next_append(path, lines):
    whole, last = b"".join(lines), lines[-1]
    for kept in range(1, len(last)):
        path.write_bytes(whole[: -len(last)] + last[:kept])
        ledger = Ledger.open(path)
        assert ledger.sequence == 3
        assert path.stat().st_size == len(whole) - len(last) + kept  # reading changes nothing
        if kept % 20 == 1 or kept == len(last) - 1:
            ledger.record_save("token")
            assert path.read_bytes() == whole


def test_zeros_after_a_power_failure_are_a_torn_line(path, lines):
    path.write_bytes(b"".join(lines) + b"\0" * 30)
    assert Ledger.open(path).charge({"a": 0.1}, "x") == 5
    assert Ledger.open(path).sequence == 5


# Saving and resuming


class Run:
    """A curator of one block per release, that follows the write-ahead order step by step."""

    def __init__(self, path):
        self.path, self.file, self.public = path, None, []
        self.ledger = Ledger.open_or_create(path, 1.0, unit="mu^2")
        self.count = 0

    def charge(self):
        self.count += 1
        self.ledger.charge({f"block {self.count}": 1.0}, f"release {self.count}", pending=True)

    def write(self, token):
        self.file = {"token": token, "after": self.ledger.sequence, "count": self.count}

    def record(self):
        self.ledger.record_save(self.file["token"])

    def release(self, token):
        self.charge()
        self.write(token)
        self.record()
        self.public.append(self.count)

    def crash_and_resume(self, file=None):
        """Another process reads the state file and goes on."""
        file = file or self.file
        run = Run(self.path)
        run.ledger.record_resume(file["token"], after=file["after"])
        run.file, run.public, run.count = file, self.public, file["count"]
        return run


@pytest.fixture
def run(path):
    run = Run(path)
    run.release("save 1")
    return run


def test_crash_before_the_charge(run):
    resumed = run.crash_and_resume()
    assert resumed.count == 1
    resumed.release("save 2")
    assert resumed.public == [1, 2]


def test_crash_between_charge_and_state(run):
    run.charge()
    resumed = run.crash_and_resume()
    assert resumed.count == 1
    assert resumed.ledger.spent("block 2") == 1.0  # it stays charged, though never published
    with pytest.raises(BudgetExceeded):
        resumed.charge()
    resumed.release("save 2")  # block 3 is served
    assert resumed.crash_and_resume().count == 3


def test_crash_between_state_and_record(run):
    run.charge()
    run.write("save 2")
    resumed = run.crash_and_resume()
    assert resumed.count == 2  # nothing is lost: the result is in the state and can be published
    with pytest.raises(DoubleSpend, match="already resumed"):
        run.crash_and_resume()


def test_crash_between_record_and_publication(run):
    old = run.file
    run.charge()
    run.write("save 2")
    run.record()
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume(old)
    assert run.crash_and_resume().count == 2


def test_crash_after_publication(run):
    old = run.file
    run.release("save 2")
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume(old)
    run.crash_and_resume().release("save 3")


@pytest.mark.parametrize("steps", [1, 2])
def test_crashes_during_an_append(run, path, steps):
    """A torn charge or save counts as not made."""
    run.charge()
    if steps == 2:
        run.write("save 2")
        run.record()
    path.write_bytes(path.read_bytes()[:-5])
    resumed = run.crash_and_resume()
    assert resumed.count == steps
    assert resumed.ledger.spent("block 2") == (1.0 if steps == 2 else 0.0)


def test_the_first_state_may_come_before_any_charge(path):
    run = Run(path)
    run.write("save 0")
    run.charge()
    resumed = run.crash_and_resume()
    resumed.write("save 1")
    resumed.record()
    assert resumed.crash_and_resume().count == 0


def test_many_pending_charges_of_crashed_runs(run):
    for i in range(3):
        run.count += i
        run.charge()
        run = run.crash_and_resume()
        run.write(f"again {i}")
        run.record()
    assert run.ledger.max_spent == 1.0


def test_a_crash_after_a_resume_can_lose_the_state_but_never_spends_twice(run):
    resumed = run.crash_and_resume()
    with pytest.raises(DoubleSpend, match="already resumed"):
        resumed.crash_and_resume()


def test_a_state_written_after_a_resume_needs_no_charge(run):
    resumed = run.crash_and_resume()
    resumed.write("save 2")
    again = resumed.crash_and_resume()  # the crash came before record_save
    again.write("save 3")
    again.record()
    assert again.crash_and_resume().count == 1


def test_no_save_is_resumed_twice(run):
    run.crash_and_resume()
    with pytest.raises(DoubleSpend, match="already resumed"):
        run.crash_and_resume()


def test_of_two_saves_of_one_moment_only_one_goes_on(run):
    """The recorded and the unrecorded state of one moment would be a fork."""
    old = run.file
    run.charge()
    run.write("save 2")
    new = run.file
    run.crash_and_resume(old)
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume(new)


def test_of_two_saves_of_one_moment_only_one_goes_on_the_other_way(run):
    old = run.file
    run.charge()
    run.write("save 2")
    run.crash_and_resume()
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume(old)


def test_a_copy_of_the_state_written_after_a_save_is_no_second_life(run):
    run.write("copy")
    copy = run.file
    run.write("save 2")
    run.record()
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume(copy)


def test_a_published_charge_ends_older_saves(run):
    run.ledger.charge({"x": 0.5}, "published at once")
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume()


def test_a_published_charge_between_pending_ones_ends_older_saves(run):
    run.charge()
    run.ledger.charge({"x": 0.5}, "published at once")
    run.charge()
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume()


def test_unknown_saves_are_refused(run, path):
    for after in (None, run.ledger.sequence + 1):
        with pytest.raises(DoubleSpend, match="unknown"):
            Ledger.open(path).record_resume("never seen", after=after)
    with pytest.raises(DoubleSpend, match="older"):
        Ledger.open(path).record_resume("never seen", after=0)


def test_a_ledger_restored_from_an_older_copy_is_noticed_by_the_state(run, path):
    backup = path.read_bytes()
    run.release("save 2")
    path.write_bytes(backup)
    with pytest.raises(DoubleSpend, match="older copy"):
        run.crash_and_resume()


@pytest.mark.parametrize("after", [-1, 1.0, "1", True])
def test_sequence_numbers_are_checked(run, after):
    with pytest.raises(InvalidArgument, match="after"):
        run.ledger.record_resume("x", after=after)


def test_a_refused_resume_records_nothing(run, path):
    run.crash_and_resume()
    before = path.read_bytes()
    with pytest.raises(DoubleSpend):
        run.crash_and_resume()
    assert path.read_bytes() == before


def test_tokens_are_used_once(run):
    with pytest.raises(InvalidArgument, match="used before"):
        run.ledger.record_save("save 1")
    run.write("save 2")
    resumed = run.crash_and_resume()
    with pytest.raises(InvalidArgument, match="used before"):
        resumed.record()


def test_a_run_that_was_resumed_elsewhere_can_spend_and_save_no_more(run):
    run.charge()  # it is alive, not crashed: its save is resumed behind its back
    run.write("save 2")
    resumed = run.crash_and_resume({"token": "save 1", "after": 1, "count": 1})
    with pytest.raises(DoubleSpend, match="another process"):
        run.record()
    with pytest.raises(DoubleSpend, match="another process"):
        run.charge()
    resumed.count = 5
    resumed.release("save 3")


def test_a_run_may_resume_what_replaced_it(run):
    resumed = run.crash_and_resume()
    resumed.write("save 2")
    run.ledger.record_resume("save 2", after=resumed.file["after"])
    run.charge()
    with pytest.raises(DoubleSpend, match="another process"):
        resumed.record()


RESUMER = """
import sys
from tacit.privacy.errors import DoubleSpend
from tacit.privacy.ledger import Ledger
sys.stdin.readline()
try:
    Ledger.open(sys.argv[1]).record_resume("save 1")
    print("resumed")
except DoubleSpend:
    print("refused")
"""


def test_of_racing_processes_one_resumes(run, path):
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RESUMER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for racer in racers:
        racer.stdin.write(b"go\n")
        racer.stdin.flush()
    answers = sorted(racer.communicate(timeout=30)[0].strip() for racer in racers)
    assert answers == [b"refused"] * 3 + [b"resumed"]


def test_a_state_that_an_ended_run_still_writes_cannot_be_resumed(run):
    run.crash_and_resume()
    with pytest.raises(DoubleSpend, match="another process"):
        run.charge()  # from here on it knows, and may try to rescue what it has
    run.write("rescue")
    with pytest.raises(DoubleSpend, match="older"):
        run.crash_and_resume()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["charge", "write", "record", "resume"]),
            st.integers(0, 2),
            st.integers(0, 3),
        ),
        min_size=4,
        max_size=16,
    )
)
def test_whatever_happens_publications_are_one_line(steps):
    """Over random steps of live, dead and resumed runs, what is published never forks.

    A run's history is the list of its charges. A state may be published once its save is
    recorded, or once it was resumed; then its history must continue all that was published.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "l")
        Ledger.create(path, 1.0, unit="mu^2")
        # A run is a ledger, a history, and the last state that it wrote: token, after, history.
        runs, states, public = [[Ledger.open(path), (), None]], [], ()
        for number, (step, which_run, which_state) in enumerate(steps):
            run = runs[-1 - which_run % len(runs)]
            ledger, history, state = run
            try:
                if step == "charge":
                    ledger.charge({f"{number}": 1.0}, "x", pending=True)
                    run[1] = (*history, number)
                elif step == "write":
                    run[2] = (f"save {number}", ledger.sequence, history)
                    states.append(run[2])
                elif step == "record" and state:
                    ledger.record_save(state[0])
                    assert state[2][: len(public)] == public
                    public = state[2]
                elif step == "resume" and states:
                    token, after, history = states[-1 - which_state % len(states)]
                    ledger = Ledger.open(path)
                    ledger.record_resume(token, after)
                    assert history[: len(public)] == public
                    public = history
                    runs.append([ledger, history, None])
            except (DoubleSpend, InvalidArgument):
                continue
