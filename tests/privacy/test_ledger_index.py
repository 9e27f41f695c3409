"""Long ledgers: their index, what it proves and witnesses, and disks and power that fail."""

import contextlib
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth_ledger
from research.hostile import ledgers
from tacit import Block, JointDP
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import CorruptFile, DoubleSpend
from tacit.privacy.ledger import Ledger, Terms, journal
from tacit.privacy.ledger import index as module
from tacit.privacy.ledger.index import Index, Position, Unusable
from tacit.privacy.standard import ClippedSum

ROOT = Path(__file__).parents[2]
WHOLE, HALF = JointDP(1.0, 1e-6), JointDP(0.5, 1e-6)


@pytest.fixture
def quick(monkeypatch):
    """An index after every few lines, and no waiting for the disk."""
    monkeypatch.setattr(journal, "INDEX_LINES", 4)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def name(number):
    return hashlib.sha256(b"%d" % number).digest()[:16]


def people(path, joins, each=3):
    """A ledger on which so many times a few people joined a run; the object that speaks for it."""
    ledger = Ledger.create_for_people(path, WHOLE)
    ledger.record_start("run", Terms.of(HALF))
    for first in range(0, joins * each, each):
        assert all(ledger.join([name(first + i) for i in range(each)]))
    return ledger


def index_of(path):
    return path.with_name(path.name + ".index")


# The map


def test_the_map_is_a_dictionary_whatever_is_written(tmp_path):
    rng, kept = random.Random(3), {}
    index = Index(str(tmp_path / "i"), "ledger")
    assert index.position() is None
    for turn in range(30):
        rows = {
            rng.choice([b"a", b"n", b"t"]) + rng.randbytes(rng.choice([0, 1, 2])): rng.randbytes(3)
            for _ in range(rng.choice([1, 5, 60]))
        }
        kept |= rows
        index.write(rows, Position(turn, 0, 0, "hash"), anew=turn == 0)
        assert index.position() == Position(turn, 0, 0, "hash")
        asked = [b"n", *kept, *(b"n" + rng.randbytes(2) for _ in range(20))]
        assert index.get(asked) == {key: kept.get(key) for key in asked}
        for prefix in (b"a", b"n", b"t", b"z"):
            expected = {key: kept[key] for key in sorted(kept) if key.startswith(prefix)}
            assert index.scan(prefix) == expected
    assert os.stat(tmp_path / "i").st_mode & 0o777 == 0o600
    assert Index(str(tmp_path / "i"), "another ledger").position() is None


def test_no_flipped_bit_changes_what_the_map_says(tmp_path):
    """Neither a value nor who is missing: it says the truth, or that it cannot say it."""
    path = tmp_path / "i"
    rows = {b"n" + name(i): b"%d" % i for i in range(40)}
    Index(str(path), "ledger").write(rows, Position(9, 8, 7, "hash"), anew=True)
    data, refused = path.read_bytes(), 0
    asked = [*rows, *(b"n" + name(i) for i in range(40, 80))]
    used = [i for i in range(len(data)) if data[i]]
    for place in used[:: len(used) // 250]:
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        index = Index(str(path), "ledger")
        try:
            assert index.get(asked) == {key: rows.get(key) for key in asked}
            assert index.scan(b"n") == {key: rows[key] for key in sorted(rows)}
        except Unusable:
            refused += 1
    assert refused > 200


def test_a_row_that_is_gone_or_old_is_noticed(tmp_path):
    path = tmp_path / "i"
    rows = {b"n" + name(i): b"%d" % i for i in range(10)}
    index = Index(str(path), "ledger")
    index.write(rows, Position(1, 1, 1, "h"), anew=True)
    gone = sorted(rows)[4]
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM rows WHERE key = ?", (gone,))
        database.commit()
    with pytest.raises(Unusable):
        index.get([gone])
    with pytest.raises(Unusable):
        index.scan(b"n")


# Ledgers with one


def test_a_long_ledger_opens_by_its_index(path, quick, monkeypatch):
    people(path, 20)
    read = []
    real = journal.ChainedFile.record
    monkeypatch.setattr(
        journal.ChainedFile, "record", lambda self, line: (read.append(line), real(self, line))[1]
    )
    ledger = Ledger.open(path)
    assert len(read) < 8  # the header twice, and what the index lacks
    assert (ledger.sequence, [*ledger.accounts.values()]) == (21, [60])
    assert len(ledger.entries) == 21
    again = Ledger.open(path)
    again.record_start("other", Terms.of(HALF))
    assert again.join([name(0), name(1000)]) == [True, True]


def test_the_index_of_a_long_ledger_is_written_less_often(path, quick, monkeypatch):
    """When it lacks a fourth of the ledger, but 200 bytes at least, and 3,000 at most."""
    monkeypatch.setattr(journal, "INDEX_LINES", 10**6)
    monkeypatch.setattr(journal, "INDEX_BYTES", 200)
    monkeypatch.setattr(journal, "_INDEX_SHARE", 1 / 4)
    monkeypatch.setattr(journal, "_MOST_INDEX_BYTES", 3_000)
    written, real = [0], Index.write
    monkeypatch.setattr(
        Index,
        "write",
        lambda self, rows, position, *, anew: (
            written.append(position.end),
            real(self, rows, position, anew=anew),
        )[1],
    )
    ledger = people(path, 60)
    line = max(map(len, path.read_bytes().splitlines(keepends=True)))
    # A ledger is made without an index, so the first one has two lines at once.
    for before, after in itertools.pairwise(written[1:]):
        enough = max(200, min(before / 4, 3_000))
        assert enough <= after - before < enough + line
    assert 8 < len(written) < 40
    assert written[-1] > 15_000  # where a fourth would be more than 3,000
    assert Ledger.open(path).accounts == ledger.accounts


def test_what_is_read_does_not_depend_on_the_index(path, quick):
    """Objects that opened it before, within and without the index say the same."""
    first = people(path, 7)
    second = Ledger.open(path)
    second.record_start("second", Terms.of(HALF))
    for number in range(40):
        (first, second)[number % 2].join([name(number + 10), name(5000 + number)])
        if number == 20:
            index_of(path).unlink()
        if number == 30:
            index_of(path).write_bytes(b"no database")
    views = [Ledger.open(path), Ledger.open(path, every_line=True)]
    index_of(path).unlink()
    views.append(Ledger.open(path))
    assert views[0].accounts == views[1].accounts == views[2].accounts
    for number in (0, 9, 10, 30, 5001, 9999):
        spent = {view._books.people.spent(name(number)) for view in views}
        assert len(spent) == 1
    # A person is charged once for a run, by either object.
    before = Ledger.open(path).sequence
    assert first.join([name(10)]) == [True]
    assert Ledger.open(path).sequence == before


def test_a_damaged_row_is_read_from_the_chain(path, quick):
    ledger = people(path, 8)
    with contextlib.closing(sqlite3.connect(index_of(path))) as database:
        database.execute("UPDATE rows SET checksum = x'00' WHERE key = ?", (b"n" + name(1),))
        database.commit()
    before = path.read_bytes()
    assert ledger.join([name(1)]) == [True]
    assert path.read_bytes() == before  # she has paid
    assert ledger.join([name(100)]) == [True]
    # The index was made anew.
    fresh = Index(str(index_of(path)), ledger.id)
    assert fresh.get([b"n" + name(1)]) == {b"n" + name(1): b"\x01"}


def test_an_older_copy_is_refused_by_the_index(path, quick):
    people(path, 3)
    backup = path.read_bytes()
    ledger = Ledger.open(path)
    ledger.record_start("second", Terms.of(HALF))
    for number in range(8):
        ledger.join([name(100 + number)])
    path.write_bytes(backup)
    for act in (lambda: Ledger.open(path), lambda: ledger.join([name(0)])):
        with pytest.raises(CorruptFile, match=r"older copy|shorter"):
            act()
    # Also where somebody goes on with the old copy elsewhere and brings it back.
    index_of(path).rename(index_of(path).with_suffix(".kept"))
    other = Ledger.open(path)
    other.record_start("fork", Terms.of(HALF))
    for number in range(40):
        other.join([name(200 + number)])
    index_of(path).with_suffix(".kept").rename(index_of(path))
    with pytest.raises(CorruptFile, match="its index has seen"):
        Ledger.open(path)


def test_an_older_copy_on_which_others_went_on_is_refused_by_a_save(tmp_path, path):
    """The numbers of its lines fit; the hash in the save does not."""
    ledger = Ledger.create_for_people(path, WHOLE)
    backup = path.read_bytes()
    block = Block(2, {"values": np.ones((2, 1))})
    curator = HALF.curator(ledger=path, autosave=tmp_path / "state")
    curator.add(block, [1, 2])
    curator.release(ClippedSum(1))
    run = curator.accounts.ledger.run
    path.write_bytes(backup)
    fork = Ledger.open(path)
    fork.record_start(run, Terms.of(HALF))
    for number in range(9):
        fork.join([name(number)])
    with pytest.raises(DoubleSpend, match="older copy was put in the ledger's place"):
        JointCurator.load(tmp_path / "state", ledger=path)
    assert ledger.id == fork.id


def test_the_line_of_a_number_is_found(path):
    ledger = people(path, 40, each=1)
    ledger.join([name(number) for number in range(100, 2000)])
    ledger.join([name(5000)])
    hashes = [json.loads(line)["hash"] for line in path.read_bytes().splitlines()]
    with ledger._journal.locked(append=False) as descriptor:
        assert [ledger._journal.hash_at(descriptor, n) for n in range(len(hashes))] == hashes


def test_an_auditor_needs_no_code_of_ours(path):
    """As the page on operations says: cut the hash out of each line, put the last one before it."""
    people(path, 5)
    previous = ""
    for line in path.read_text().splitlines():
        digest = json.loads(line)["hash"]
        body = line.replace(f'"hash": "{digest}", ', "", 1)
        assert hashlib.sha256((previous + body).encode()).hexdigest() == digest
        previous = digest
    assert previous == Ledger.open(path).head


def test_the_script_of_the_page_verifies(path):
    if shutil.which("sha256sum") is None:
        pytest.skip("sha256sum is not installed")
    page = (ROOT / "docs" / "operations.md").read_text()
    (script,) = (b for b in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "sha256sum" in b)
    ledger = people(path, 2)
    ledger.charge({"a \\ key": 1e-4}, 'a "hash": "' + "0" * 64 + '", label')

    def said():
        run = {"cwd": path.parent, "capture_output": True, "text": True}
        return subprocess.run(["sh", "-c", script], **run).stdout  # noqa: S607

    assert said() == f"head: {ledger.head}\n"
    path.write_bytes(path.read_bytes().replace(b"join", b"Join", 1))
    assert said().startswith("bad: ")


def test_threads_of_one_object_share_the_index(path, quick):
    ledger = people(path, 6)

    def work(first):
        for number in range(first, first + 12):
            ledger.join([name(number)])
            ledger.spent_by(number)

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Ledger.open(path, every_line=True).accounts == Ledger.open(path).accounts
    assert sum(Ledger.open(path).accounts.values()) == 18 + 36


# Disks that fail


class Full(OSError):
    pass


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_whichever_call_fails_nobody_pays_less(path, monkeypatch, step):
    """Each n-th call to the system fails once; the ledger is whole, and goes on."""
    monkeypatch.setattr(journal, "INDEX_LINES", 3)
    calls = ("open", "write", "fsync", "pread", "ftruncate", "unlink", "fstat", "stat")
    failed = 0
    for n in range(1, 200, step):
        for found in path.parent.iterdir():
            found.unlink()
        ledger = people(path, 3)
        count = [0]

        def failing(*args, real, count=count, n=n, **options):
            count[0] += 1
            if count[0] == n:
                raise Full("disk fault")
            return real(*args, **options)

        admitted = set(range(9))
        with monkeypatch.context() as patch:
            for call in calls:
                original = getattr(os, call)
                patch.setattr(os, call, lambda *a, r=original, f=failing, **o: f(*a, real=r, **o))
            for number in range(20, 26):
                try:
                    if ledger.join([name(number)]) == [True]:
                        admitted.add(number)
                except (Full, CorruptFile, FileNotFoundError):
                    failed += 1
        for view in (Ledger.open(path), Ledger.open(path, every_line=True)):
            paid = {i for i in [*range(9), *range(20, 26)] if view._books.people.spent(name(i))}
            assert admitted <= paid, n
        assert ledger.join([name(50)]) == [True]
        assert Ledger.open(path, every_line=True).accounts == Ledger.open(path).accounts
        if count[0] < n:
            break
    assert failed > 5


@pytest.mark.parametrize(("joins", "step"), [(9, 9), pytest.param(30, 1, marks=pytest.mark.slow)])
def test_power_may_fail_after_every_write(joins, step):
    """All that was acknowledged is there, whichever files kept what was not flushed."""
    if shutil.which("strace") is None:
        pytest.skip("strace, which records the writes, is not installed")
    told = ledgers.lose_power(joins, step)
    assert told.problems == []
    assert told.points > 20


@pytest.mark.slow
def test_whichever_call_of_sqlite_fails_nobody_pays_less():
    """As above, by strace: it reaches the calls that no Python makes."""
    if shutil.which("strace") is None:
        pytest.skip("strace, which makes calls fail, is not installed")
    told = ledgers.fail_calls(joins=10)
    assert told.problems == []
    assert told.points > 10


def test_the_index_never_knows_a_line_that_the_disk_may_lack(path, monkeypatch):
    """A killed process leaves a line that was not flushed; who goes on flushes it first."""
    monkeypatch.setattr(journal, "INDEX_LINES", 4)
    ledger = people(path, 1)
    steps = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        ledger.join([name(30)])  # written, not flushed: its process is killed here
    real_sync, real_write = os.fsync, module.Index.write
    monkeypatch.setattr(os, "fsync", lambda d: (steps.append("flush"), real_sync(d))[1])

    def write(self, rows, position, *, anew):
        steps.append("index")
        real_write(self, rows, position, anew=anew)

    monkeypatch.setattr(module.Index, "write", write)
    other = Ledger.open(path)
    monkeypatch.setattr(journal, "INDEX_LINES", 1)
    other.record_start("second", Terms.of(HALF))
    assert steps == ["flush", "index"]


def test_the_benchmark_of_growth_has_rows():
    table = growth_ledger.rows((400, 800), step=20)
    assert [row.ok for row in table[:2]] == [None, None]
    assert table[-1].what == "opening at 800"


def test_an_index_knows_which_run_has_a_successor(path, quick):
    """One run of two ended; opened again, by the index or by every line, it still has."""
    ledger = people(path, 3)
    ledger.record_save("save")
    ledger.record_succession("another ledger")
    other = Ledger.open(path)
    other.record_start("other", Terms.of(HALF))
    for number in range(5):
        assert all(other.join([name(100 + number)]))
    assert index_of(path).exists()
    for every_line in (False, True):
        again = Ledger.open(path, every_line=every_line)
        with pytest.raises(DoubleSpend, match="has a successor"):
            again.record_resume("save", run="run")
    with pytest.raises(DoubleSpend, match="has a successor"):
        ledger.join([name(1000)])
    assert other.join([name(1000)]) == [True]
