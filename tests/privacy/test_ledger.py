"""Ledgers: nobody overspends, nothing is forgotten, no save continues twice."""

import base64
import json
import math
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit
from tacit import Block, JointDP, Relation
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.ledger import Entry, Ledger, Terms, chain, header, journal
from tacit.privacy.pseudonyms import name_of
from tacit.privacy.standard import ClippedSum
from tacit.testing.mechanisms import audit_linear

NOON = "2026-01-02T12:00:00+00:00"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """It is always noon, so that equal entries are equal lines."""
    monkeypatch.setattr(journal, "_now", lambda: NOON)


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
    path.write_bytes(b"".join([*lines[:-1], chain.seal(record, previous)]))


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
    real, winner = header.write_atomic, []

    def slow(*args, **kwargs):
        if not winner:
            winner.append(None)
            winner[0] = Ledger.create(path, 1.0, unit="mu^2").id
        real(*args, **kwargs)

    monkeypatch.setattr(header, "write_atomic", slow)
    assert Ledger.open_or_create(path, 1.0, unit="mu^2").id == winner[0]


def test_a_missing_ledger_is_not_an_empty_one(path):
    with pytest.raises(FileNotFoundError):
        Ledger.open(path)
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        ledger.charge({"a": 0.5}, "late")


def test_a_platform_without_locks_is_told_so(path, ledger, monkeypatch):
    monkeypatch.setattr(chain, "fcntl", None)
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
            Entry(1, "charge", "one", {"a": 0.5, "b": 0.25}, time=NOON),
            Entry(2, "pending", "two", {"a": 0.25}, time=NOON),
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


def race(code, arguments, timeout=30):
    """What processes that run a code at the same time print, one for each of the arguments."""
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for given in arguments
    ]
    for racer in racers:  # all have started by the time they read this
        racer.stdin.write(b"go\n")
        racer.stdin.flush()
    return [racer.communicate(timeout=timeout)[0] for racer in racers]


def test_racing_processes_never_overspend(path):
    answers = race(SPENDER, [[str(path), f"worker {i}"] for i in range(4)])
    done = [int(answer) for answer in answers]
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
        lambda header: header.update(version=3),
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


def refused(run, why, *file):
    """A save is not resumed, for a reason."""
    with pytest.raises(DoubleSpend, match=why):
        run.crash_and_resume(*file)


def unrecorded(run):
    """Pays and writes a state that is not recorded; the file before it."""
    old = run.file
    run.charge()
    run.write("save 2")
    return old


def test_crash_between_state_and_record(run):
    run.charge()
    run.write("save 2")
    resumed = run.crash_and_resume()
    assert resumed.count == 2  # nothing is lost: the result is in the state and can be published
    refused(run, "already resumed")


def test_crash_between_record_and_publication(run):
    old = unrecorded(run)
    run.record()
    refused(run, "older", old)
    assert run.crash_and_resume().count == 2


def test_crash_after_publication(run):
    old = run.file
    run.release("save 2")
    refused(run, "older", old)
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
    refused(run, "already resumed")


def test_of_two_saves_of_one_moment_only_one_goes_on(run):
    """The recorded and the unrecorded state of one moment would be a fork."""
    old = unrecorded(run)
    new = run.file
    run.crash_and_resume(old)
    refused(run, "older", new)


def test_of_two_saves_of_one_moment_only_one_goes_on_the_other_way(run):
    old = unrecorded(run)
    run.crash_and_resume()
    refused(run, "older", old)


def test_a_copy_of_the_state_written_after_a_save_is_no_second_life(run):
    run.write("copy")
    copy = run.file
    run.write("save 2")
    run.record()
    refused(run, "older", copy)


def test_a_published_charge_ends_older_saves(run):
    run.ledger.charge({"x": 0.5}, "published at once")
    refused(run, "older")


def test_a_published_charge_between_pending_ones_ends_older_saves(run):
    run.charge()
    run.ledger.charge({"x": 0.5}, "published at once")
    run.charge()
    refused(run, "older")


def test_unknown_saves_are_refused(run, path):
    for after in (None, run.ledger.sequence + 1):
        with pytest.raises(DoubleSpend, match="unknown"):
            Ledger.open(path).record_resume("never seen", after=after)
    with pytest.raises(DoubleSpend, match="older"):
        Ledger.open(path).record_resume("never seen", after=0)


def test_a_file_of_the_same_length_does_not_pass_for_the_one_that_was_read(ledger, path):
    """An older copy, on which somebody else went on: what it forgot must not be spent again."""
    older = path.read_bytes()
    ledger.charge({"block 1": 0.5}, label="release")
    path.write_bytes(older)
    other = Ledger.open(path)
    other.charge({"block 2": 0.5}, label="release")
    assert path.stat().st_size == ledger._journal._file.end
    before = path.read_bytes()
    for act in (
        lambda: ledger.charge({"block 2": 0.75}, label="release"),
        lambda: ledger.record_save("token"),
    ):
        with pytest.raises(CorruptFile, match="not the file that was last read"):
            act()
    assert path.read_bytes() == before
    other.charge({"block 2": 0.5}, label="release")
    assert Ledger.open(path).spent("block 2") == 1.0


def test_who_waits_for_the_lock_does_not_write_to_a_file_that_is_gone(ledger, path, monkeypatch):
    """A copy that is moved into place between opening and locking would never hear of a charge."""
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    flock = chain.fcntl.flock

    def locked_late(descriptor, operation):
        if copy.exists():
            copy.replace(path)
        flock(descriptor, operation)

    monkeypatch.setattr(chain.fcntl, "flock", locked_late)
    with pytest.raises(CorruptFile, match="took its place"):
        ledger.charge({"block 1": 1.0}, label="release")
    assert ledger.charge({"block 1": 0.25}, label="release") == 1
    assert Ledger.open(path).spent("block 1") == 0.25


def test_no_save_takes_the_place_of_a_ledger(tmp_path, path):
    """One wrong name, and what people spent in other runs would be forgotten."""
    Ledger.create_for_people(path, JointDP(1.0, 1e-6))
    model, block = JointDP(0.5, 1e-6), Block(2, {"values": np.ones((2, 1))})
    model.curator(ledger=path).add(block, [1, 2])
    before = path.read_bytes()
    agent = tacit.UCBVI(tacit.tabular.riverswim(states=4, horizon=5).spec, 40, model)
    for act in (
        lambda: model.curator(autosave=path),
        lambda: model.curator().save(path),
        lambda: agent.save(path),
        lambda: agent.publish(path),
    ):
        with pytest.raises(InvalidArgument, match="no ledger is ever overwritten"):
            act()
    assert path.read_bytes() == before
    both = tmp_path / "both"
    with pytest.raises(InvalidArgument, match="no ledger is ever overwritten"):
        model.curator(ledger=both, autosave=both)
    assert Ledger.open(both).sequence == 1


def test_a_ledger_restored_from_an_older_copy_is_noticed_by_the_state(run, path):
    backup = path.read_bytes()
    run.release("save 2")
    path.write_bytes(backup)
    refused(run, "older copy")


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
    answers = race(RESUMER, [[str(path)]] * 4)
    assert sorted(answer.strip() for answer in answers) == [b"refused"] * 3 + [b"resumed"]


def test_a_state_that_an_ended_run_still_writes_cannot_be_resumed(run):
    run.crash_and_resume()
    with pytest.raises(DoubleSpend, match="another process"):
        run.charge()  # from here on it knows, and may try to rescue what it has
    run.write("rescue")
    refused(run, "older")


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


def test_a_resume_names_its_successor_in_one_line(run, path):
    """There is no moment at which a crash leaves nothing to resume."""
    old, next_file = dict(run.file), {}
    again = Ledger.open(path)

    def write_and_look(sequence):
        assert json.loads(path.read_bytes().splitlines()[-1])["event"] == "save"  # not yet
        next_file.update({"token": "save 2", "after": sequence, "count": 1})

    again.record_resume(old["token"], after=old["after"], successor="save 2", write=write_and_look)
    assert again.entries[-1].successor == "save 2"
    refused(run, "already resumed", old)
    # Killed here, before the successor is recorded by a line of its own.
    run.crash_and_resume(next_file)


def test_a_successor_written_by_a_resume_that_was_not_recorded_goes_on(run, path):
    ledger = Ledger.open(path)
    files = []

    def killed(sequence):
        files.append({"token": "save 2", "after": sequence, "count": 1})
        raise KeyboardInterrupt

    old = dict(run.file)
    with pytest.raises(KeyboardInterrupt):
        ledger.record_resume(old["token"], after=old["after"], successor="save 2", write=killed)
    run.crash_and_resume(files[0])
    refused(run, "older", old)


def test_a_refused_resume_writes_no_state(run, path):
    old = dict(run.file)
    run.crash_and_resume()
    with pytest.raises(DoubleSpend):
        Ledger.open(path).record_resume(
            old["token"], after=old["after"], successor="mine", write=lambda _: pytest.fail("wrote")
        )


@pytest.mark.parametrize("successor", ["save 1", "", "two\nlines"])
def test_successors_are_new_lines_of_text(run, path, successor):
    with pytest.raises(InvalidArgument, match="successor"):
        Ledger.open(path).record_resume("save 1", successor=successor)


def test_a_start_that_spent_nothing_says_how_to_begin_again(path):
    Ledger.create(path, 1.0, unit="mu^2").record_start("first")
    with pytest.raises(DoubleSpend, match=r"another run.*delete the file"):
        Ledger.open(path).record_start("second")


# What no honest process writes


def test_a_line_that_overspends_is_refused_though_its_hash_is_right(path, lines):
    ledger = Ledger.open(path)
    ledger.charge({"a": 0.5}, "more")
    forge(path, lambda record: record.update(costs={"a": 0.7}))
    with pytest.raises(CorruptFile, match=r"line 6 brings 'a' to 1.07.*above its limit of 1.0"):
        Ledger.open(path)


def test_lines_that_save_or_resume_twice_are_refused(path, lines):
    ledger = Ledger.open(path)
    ledger.record_save("other")
    forge(path, lambda record: record.update(label="token"))
    with pytest.raises(CorruptFile, match="line 6 records a save that was recorded before"):
        Ledger.open(path)
    path.write_bytes(b"".join(lines))
    ledger = Ledger.open(path)
    ledger.record_resume("token")
    ledger.record_save("second")
    ledger.record_resume("second")
    forge(path, lambda record: record.update(label="token"))
    with pytest.raises(CorruptFile, match="line 8 resumes a save that was resumed before"):
        Ledger.open(path)


# People: several runs, one budget

ZERO_OUT = {"delta": 1e-6, "relation": Relation.ZERO_OUT}
TOGETHER = JointDP(1.0, **ZERO_OUT)
HALF = math.sqrt(0.5)


def part_of(share, model=TOGETHER):
    """A run's model whose mu^2 is this share of the population's."""
    mu = model.budget.mu * math.sqrt(share)
    return JointDP(epsilon_from_mu(mu, 1e-6) * (1 - 1e-9), **ZERO_OUT)


@pytest.fixture
def people(path):
    return Ledger.create_for_people(path, TOGETHER, note="the ward")


def ones(users):
    return Block(users, {"values": np.ones((users, 1))})


def counted(curator):
    """How many episodes of the last block count."""
    return curator._blocks[max(curator._blocks)].users


def test_people_add_up_over_runs_and_the_third_turns_them_away(path, people):
    ann = "ann, whom no key and no hash spell"
    first, second, third = (part_of(s).curator(ledger=path) for s in (0.5, 0.5, 0.25))
    first.add(ones(3), [ann, "bob", "cy"])
    assert counted(first) == 3
    second.add(ones(3), [ann, "bob", "dee"])
    assert counted(second) == 3
    third.add(ones(4), [ann, "cy", "dee", 7])
    assert counted(third) == 3
    assert (first.turned_away, second.turned_away, third.turned_away) == (0, 0, 1)
    release = third.release(ClippedSum(1))
    assert release.users == 4  # her slot is public and stays
    ledger = Ledger.open(path)
    spent = [ledger.spent_by(user) / ledger.limit for user in (ann, "cy", 7, "7", "eve")]
    assert spent == pytest.approx([1.0, 0.75, 0.25, 0.0, 0.0], rel=1e-6)
    assert sorted(ledger.accounts.values()) == [1, 2, 2]
    assert ledger.max_spent <= ledger.limit * (1 + 1e-9)
    assert ann.encode() not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_whole_transcript_of_several_runs_is_within_the_budget():
    """The exact mu of everything published, for a user in three runs who can afford two."""

    def mechanism(inputs, source):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "l")
            Ledger.create_for_people(path, TOGETHER)
            out = []
            for place, share in enumerate((0.5, 0.5, 0.5)):
                curator = JointCurator(part_of(share), source=source, ledger=path)
                block = Block(2, {"values": np.array([[inputs[place]], [0.5]])})
                curator.add(block, ["ann", f"other {place}"])
                for cost in (0.6, 0.8):
                    mu = cost * math.sqrt(curator.accounts.limit)
                    out.append(curator.release(ClippedSum(1), mu=mu)["sum"])
            return np.concatenate(out)

    differences = [*np.eye(3), np.ones(3)]
    audit = audit_linear(mechanism, differences, claimed=TOGETHER.budget.mu)
    assert audit.passed
    mu = TOGETHER.budget.mu
    # A little less, for what rounding to the grid can add.
    assert audit.costs == pytest.approx([mu * HALF, mu * HALF, 0.0, mu], rel=1e-4)


def test_whoever_joined_a_run_pays_it_once(path, people):
    curator = JointDP(0.9, episodes_per_user=3, **ZERO_OUT).curator(ledger=path)
    for _ in range(4):
        curator.add(ones(2), ["ann", "ann"])
    assert [curator._blocks[b].users for b in curator.blocks] == [2, 1, 0, 0]
    assert curator.turned_away == 0
    ledger = Ledger.open(path)
    assert [entry.people for entry in ledger.entries if entry.event == "join"] == [1]
    mine = ledger.runs[curator.accounts.ledger.run]
    assert ledger.spent_by("ann") == pytest.approx(mine.user_limit)
    # What a block may cost is less, as she may be in three.
    assert mine.episode_limit == pytest.approx(ledger.spent_by("ann") / 9)


def test_who_is_turned_away_depends_on_names_alone(path, people):
    part_of(0.8).curator(ledger=path).add(ones(2), [1, 2])
    rows = []
    for value in (np.nan, 1e300, -1.0):
        curator = part_of(0.3).curator(ledger=path)
        curator.add(Block(3, {"values": np.full((3, 1), value)}), [1, 2, 3])
        rows.append((curator.turned_away, counted(curator)))
    assert rows == [(2, 1)] * 3


def test_a_ledger_of_people_needs_ids(path, people):
    curator = part_of(0.5).curator(ledger=path, noise_seed=0)
    assert curator.needs_ids
    with pytest.raises(InvalidArgument, match="give user_ids"):
        curator.add(ones(2))
    with pytest.raises(InvalidArgument, match="user_ids"):
        curator.stream(ClippedSum(1), releases=2).release(ones(2))
    assert not part_of(0.5).curator().needs_ids
    assert Ledger.open(path).sequence == 1


@pytest.mark.parametrize(
    ("model", "protects", "error", "words"),
    [
        (JointDP(1.1, **ZERO_OUT), None, BudgetExceeded, "allows .* over all runs"),
        (JointDP(0.5, 1e-6), None, InvalidArgument, "relation='replace-one'.*zero-out"),
        (JointDP(0.5, 0.0, relation=Relation.ZERO_OUT), None, InvalidArgument, "counts mu"),
        (JointDP(0.5, **ZERO_OUT), "her rewards", InvalidArgument, "protects='her rewards'"),
    ],
)
def test_runs_that_do_not_add_up_are_refused(path, people, model, protects, error, words):
    options = {} if protects is None else {"protects": protects}
    with pytest.raises(error, match=words):
        model.curator(ledger=path, **options)
    assert Ledger.open(path).sequence == 0


def test_a_run_that_protects_less_cannot_join(path):
    Ledger.create_for_people(path, JointDP(1.0, 1e-6))
    with pytest.raises(InvalidArgument, match="protects='her rewards'"):
        JointDP(0.5, 1e-6).curator(ledger=path, protects="her rewards")


def test_populations_are_declared_for_one_person(path):
    with pytest.raises(InvalidArgument, match="episodes_per_user=2"):
        Ledger.create_for_people(path, JointDP(1.0, 1e-6, episodes_per_user=2))
    with pytest.raises(InvalidArgument, match="must be a JointDP"):
        Ledger.create_for_people(path, 1.0)
    assert not path.exists()


def test_the_two_kinds_of_ledger_are_not_confused(path, people, tmp_path):
    with pytest.raises(InvalidArgument, match="of people"):
        Ledger.open_or_create(path, people.limit, unit="mu^2")
    with pytest.raises(InvalidArgument, match="start or resume a run first"):
        Ledger.open(path).charge({"a": 0.1}, "x")
    with pytest.raises(InvalidArgument, match="start or resume a run first"):
        Ledger.open(path).join([bytes(16)])
    with pytest.raises(InvalidArgument, match="needs terms"):
        Ledger.open(path).record_start("run")
    one = Ledger.create(tmp_path / "one", 1.0, unit="mu^2")
    for attempt in (lambda: one.join([bytes(16)]), lambda: one.spent_by("ann")):
        with pytest.raises(InvalidArgument, match="knows blocks"):
            attempt()


def test_ledgers_of_one_run_of_the_first_release_are_read_and_go_on(path):
    """As they were written before entries had times."""
    header = {"format": "tacit-ledger", "version": 1, "id": "a" * 32, "limit": 1.0}
    records = [header | {"unit": "mu^2", "note": ""}]
    for number, (event, label, costs) in enumerate(
        [("start", "t", {}), ("charge", "x", {"0-ab": 0.5}), ("save", "s", {})], 1
    ):
        records.append({"sequence": number, "event": event, "label": label, "costs": costs})
    lines, previous = [], ""
    for record in records:
        lines.append(chain.seal(record, previous))
        previous = json.loads(lines[-1])["hash"]
    path.write_bytes(b"".join(lines))
    ledger = Ledger.open(path)
    ledger.record_resume("s")
    ledger.charge({"0-ab": 0.5}, "y")
    with pytest.raises(BudgetExceeded):
        Ledger.open(path).charge({"0-ab": 0.1}, "z")


def test_runs_save_and_resume_without_each_other(tmp_path, path, people):
    """What one run publishes does not void another's save; a second resume is still refused."""
    files = [tmp_path / "a", tmp_path / "b"]
    runs = [part_of(0.4).curator(ledger=path, autosave=file) for file in files]
    for place in range(3):
        for number, run in enumerate(runs):
            run.add(ones(1), [f"user {place}"])
            release = run.release(ClippedSum(1), block=place)
            assert (release.index, number in (0, 1)) == (place, True)
    again = JointCurator.load(files[0], ledger=path, autosave=files[0])
    runs[1].add(ones(2), ["user 0", "new"])
    assert counted(runs[1]) == 1  # once in each run
    runs[1].release(ClippedSum(1), block=3)
    with pytest.raises(DoubleSpend):
        runs[0].add(ones(1), ["late"])
    again.add(ones(2), ["user 0", "new"])
    assert counted(again) == 1
    again.release(ClippedSum(1), block=3)
    old = tmp_path / "old"
    old.write_bytes(files[1].read_bytes())
    JointCurator.load(files[1], ledger=path)
    with pytest.raises(DoubleSpend, match="already resumed"):
        JointCurator.load(old, ledger=path)
    assert len(Ledger.open(path).runs) == 2


def test_whoever_joined_before_a_crash_may_come_again_for_nothing(tmp_path, path, people):
    state = tmp_path / "state"
    curator = part_of(0.7).curator(ledger=path, autosave=state)
    curator.add(ones(2), ["ann", "bob"])  # killed here: paid, nothing released
    again = JointCurator.load(state, ledger=path, autosave=state)
    again.add(ones(2), ["ann", "bob"])
    assert counted(again) == 2
    again.release(ClippedSum(1))
    # Now it is published and saved: she has had her turn.
    once_more = JointCurator.load(state, ledger=path, autosave=state)
    once_more.add(ones(1), ["ann"])
    assert counted(once_more) == 0
    ledger = Ledger.open(path)
    assert ledger.spent_by("ann") == pytest.approx(0.7 * ledger.limit, rel=1e-6)


def test_a_failed_join_counts_nobody(path, people, monkeypatch):
    curator = part_of(0.5).curator(ledger=path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _fails)
        with pytest.raises(OSError, match="full"):
            curator.add(ones(1), ["ann"])
    assert curator.blocks == ()
    assert Ledger.open(path).spent_by("ann") == 0.0
    curator.add(ones(1), ["ann"])
    assert counted(curator) == 1


def _fails(*args):
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r, one, two: r.update(people=_names(one, one)), "twice for one run"),
        (lambda r, one, two: r.update(people=_names(two)), "twice for one run"),
        (lambda r, one, two: r.update(people="AAAA"), "cannot be read"),
        (lambda r, one, two: r.update(people="not base 64!"), "cannot be read"),
        (lambda r, one, two: r.update(run="unknown"), "never started"),
        (lambda r, one, two: r.pop("run"), "cannot be read"),
        (lambda r, one, two: r.pop("people"), "cannot be read"),
    ],
)
def test_joins_with_a_right_hash_and_wrong_content_are_refused(path, people, change, words):
    curator = part_of(0.5).curator(ledger=path)
    curator.add(ones(1), ["before"])
    curator.add(ones(1), ["ann"])
    names = [name_of(user, people.key) for user in ("ann", "before")]
    forge(path, lambda record: change(record, *names))
    with pytest.raises(CorruptFile, match=f"line 4.*{words}"):
        Ledger.open(path)


def _names(*names):
    return base64.b64encode(b"".join(names)).decode()


def test_a_join_beyond_the_limit_is_refused_on_reading(path, people):
    part_of(0.7).curator(ledger=path).add(ones(1), ["ann"])
    part_of(0.7).curator(ledger=path).add(ones(1), ["bob"])
    ann = name_of("ann", people.key)
    forge(path, lambda record: record.update(people=_names(ann)))
    with pytest.raises(CorruptFile, match="line 5 brings somebody above the limit"):
        Ledger.open(path)


JOINER = """
import sys
from tacit import JointDP
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.pseudonyms import name_of
ledger = Ledger.open(sys.argv[1])
ledger.record_start(sys.argv[2], Terms.of(JointDP(0.3, 1e-6)))
sys.stdin.readline()
for first in range(0, 200, 10):
    names = [name_of(user, ledger.key) for user in range(first, first + 10)]
    print(sum(ledger.join(names)))
"""


def test_racing_agents_never_overspend_a_person(path):
    ledger = Ledger.create_for_people(path, JointDP(0.6, 1e-6))
    answers = race(JOINER, [[str(path), f"run {i}"] for i in range(4)], timeout=60)
    admitted = [sum(map(int, answer.split())) for answer in answers]
    cost = Terms.of(JointDP(0.3, 1e-6)).user_limit
    able = int(ledger.limit / cost)  # so many runs can a person afford, and there are more
    assert 1 < able < 4
    assert sum(admitted) == 200 * able
    ledger = Ledger.open(path)
    assert [*ledger.accounts.values()] == [200]
    assert ledger.max_spent == pytest.approx(able * cost)


def test_many_people_join_at_once_and_are_known_again(path, people):
    users = [*range(20_000)]
    part_of(0.6).curator(ledger=path).add(ones(len(users)), users)
    curator = part_of(0.6).curator(ledger=path)
    curator.add(ones(len(users) + 5), [*users, *range(-5, 0)])
    assert (counted(curator), curator.turned_away) == (5, 20_000)
    assert sum(Ledger.open(path).accounts.values()) == 20_005


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "join", "charge", "write", "record", "resume"]),
            st.integers(0, 3),
            st.integers(0, 4),
        ),
        min_size=6,
        max_size=24,
    )
)
def test_whatever_happens_every_run_is_one_line_and_nobody_overspends(steps):
    """As for one run, with several on one population; what one does never forks another."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "l")
        Ledger.create_for_people(path, TOGETHER)
        terms = Terms.of(part_of(0.4))
        lives, states, public, charges = [], [], {}, {}
        for number, (step, which, other) in enumerate([("start", 0, 0), *steps]):
            life = lives[-1 - which % len(lives)] if lives else None
            try:
                if step == "start":
                    ledger = Ledger.open(path)
                    ledger.record_start(f"run {number}", terms)
                    lives.append([ledger, (), None])
                    public[ledger.run] = ()
                elif step == "join":
                    life[0].join([name_of(user, life[0].key) for user in range(other)])
                elif step == "charge":
                    key = f"{life[0].run} {other}"
                    life[0].charge({key: terms.episode_limit / 2}, "x", pending=True)
                    charges[key] = charges.get(key, 0) + 1
                    life[1] = (*life[1], number)
                elif step == "write":
                    life[2] = (f"save {number}", life[0].sequence, life[1], life[0].run)
                    states.append(life[2])
                elif step == "record" and life[2]:
                    life[0].record_save(life[2][0])
                    assert life[2][2][: len(public[life[0].run])] == public[life[0].run]
                    public[life[0].run] = life[2][2]
                elif step == "resume" and states:
                    token, after, history, run = states[-1 - other % len(states)]
                    ledger = Ledger.open(path)
                    ledger.record_resume(token, after, run=run)
                    assert ledger.run == run
                    assert history[: len(public[run])] == public[run]
                    public[run] = history
                    lives.append([ledger, history, None])
            except (DoubleSpend, InvalidArgument, BudgetExceeded):
                continue
        ledger = Ledger.open(path)
        assert max(charges.values(), default=0) <= 2
        assert ledger.max_spent <= ledger.limit * (1 + 1e-9)
        assert all(spent > 0 for spent in ledger.accounts)


def test_two_agents_share_people(path):
    """The second agent hears nothing of those who spent their budget on the first."""
    Ledger.create_for_people(path, JointDP(1e4, 1e-6))
    world = tacit.tabular.riverswim(3, 4)
    heard = []
    for users in ([*range(40)], [*range(30, 70)]):
        agent = tacit.UCBVI(
            world.spec,
            40,
            JointDP(8e3, 1e-6),
            schedule="fixed:size=20",
            ledger=path,
            stationary=True,
        )
        rng = np.random.default_rng(0)
        for first in (0, 20):
            episodes = world.simulate(agent.policy, 20, rng, "episodes")
            agent.learn(episodes, users[first : first + 20])
            heard.append(agent._curator.last_release["transitions"].sum() / 4)
        assert agent.releases == 2
    # A user counts 1 and the noise has a standard deviation of at most 0.1.
    assert heard == pytest.approx([20, 20, 10, 20], abs=0.6)
    assert sum(Ledger.open(path).accounts.values()) == 70


# Opened ledgers


def test_an_opened_ledger_stands_for_its_path_and_is_never_made(tmp_path, path, people):
    wrong = tmp_path / "elsewhere" / path.name
    wrong.parent.mkdir()
    with pytest.raises(FileNotFoundError):
        Ledger.open(wrong)
    assert [*wrong.parent.iterdir()] == []
    for first in (0, 10):  # one object for two runs: each speaks for itself
        curator = part_of(0.4).curator(ledger=people, autosave=tmp_path / f"state{first}")
        assert curator.needs_ids
        curator.add(ones(2), [first, first + 1])
        curator.release(ClippedSum(1))
    assert len(Ledger.open(path).runs) == 2
    assert people.run == ""
    again = JointCurator.load(tmp_path / "state0", ledger=people)
    assert again.needs_ids
    world = tacit.tabular.riverswim(3, 4)
    model = JointDP(0.1, **ZERO_OUT)
    agent = tacit.UCBVI(world.spec, 20, model, ledger=Ledger.open(path), autosave=tmp_path / "s")
    fresh = tacit.UCBVI(world.spec, 20, model)
    fresh.load(tmp_path / "s", ledger=Ledger.open(path))
    assert len(Ledger.open(path).runs) == 3
    assert agent._curator.needs_ids
    assert fresh._curator.needs_ids


def test_an_opened_ledger_of_one_run_keeps_to_what_it_declares(path):
    model = JointDP(1.0, 1e-6)
    made = Ledger.create(path, model.episode_limit, unit="mu^2")
    with pytest.raises(InvalidArgument, match="was declared, but"):
        JointDP(2.0, 1e-6).curator(ledger=made)
    model.curator(ledger=made)
    with pytest.raises(DoubleSpend, match="another run"):
        model.curator(ledger=made)


def test_an_opened_ledger_that_is_gone_or_replaced_is_refused(path, people):
    path.rename(path.with_suffix(".moved"))
    with pytest.raises(FileNotFoundError):
        part_of(0.4).curator(ledger=people)
    assert not path.exists()
    Ledger.create_for_people(path, TOGETHER)
    with pytest.raises(CorruptFile, match="another ledger took its place"):
        part_of(0.4).curator(ledger=people)
    assert Ledger.open(path).entries == ()


def test_every_positive_cost_moves_an_account(path, ledger):
    ledger.charge({"a": 1.0}, label="all")
    tiny = 1e-17  # what a float of 1 does not notice
    for _ in range(3):
        ledger.charge({"a": tiny}, label="less than a digit")
    assert ledger.spent_exactly("a") - 1 == pytest.approx(3e-17, rel=1e-12)
    assert ledger.spent("a") > 1.0
    assert Ledger.open(path).spent("a") == ledger.spent("a")
    # Up to what rounding may add, a relative 1e-9, there is room for five more, and for no sixth.
    left = Fraction(1 + 1e-9) - ledger.spent_exactly("a")
    ledger.charge({"a": float(left) - 5.5 * tiny}, label="most of the tolerance")
    for _ in range(5):
        ledger.charge({"a": tiny}, label="less than a digit")
    with pytest.raises(BudgetExceeded):
        ledger.charge({"a": tiny}, label="less than a digit")
