"""Damaged ledgers: every kind of damage, then repair; budget never comes back."""

import hashlib
import json
import os
import re

import pytest

from tacit import JointDP
from tacit.privacy.errors import BudgetExceeded, CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.ledger import Ledger, Terms, journal
from tacit.privacy.ledger.repair import Repair, repair
from tacit.privacy.pseudonyms import name_of

WHOLE, HALF, TENTH = (JointDP(epsilon, 1e-6) for epsilon in (1.0, 0.5, 0.1))
PEOPLE = [*range(8), "never seen"]


@pytest.fixture(autouse=True)
def no_disk(monkeypatch):
    """Files are small and nothing loses power here."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


def joined(ledger, *users):
    return ledger.join([name_of(user, ledger.key) for user in users])


def of_people(path):
    """A small ledger of people with two runs; the object that speaks for the second."""
    Ledger.create_for_people(path, WHOLE)
    first, second = Ledger.open(path), Ledger.open(path)
    first.record_start("first", Terms.of(HALF))
    joined(first, 0, 1)
    first.charge({"block": 1e-4}, "release", pending=True)
    first.record_save("save 1")
    second.record_start("second", Terms.of(TENTH))
    joined(second, 1, 2)
    joined(first, 3)
    joined(second, 4)
    second.record_save("save 2")
    return second


def of_one_run(path):
    ledger = Ledger.create(path, 1.0, unit="mu^2")
    ledger.record_start("run")
    for number in range(3):
        ledger.charge({f"block {number}": 0.5, "all": 0.25}, "release", pending=True)
        ledger.record_save(f"save {number}")
    return ledger


def check_never_more(path, before, what):
    """Opens a repaired ledger and compares it with what the whole one said."""
    ledger = Ledger.open(path, every_line=True)
    if before.people:
        for user in PEOPLE:
            assert ledger.spent_by(user) >= before.spent_by(user), (what, user)
    if ledger.entries[-1].ended:
        for run in ["", *ledger.runs] if before.people else [""]:
            with pytest.raises((DoubleSpend, InvalidArgument)):
                ledger.record_resume("fresh", after=ledger.sequence, run=run)
        if not before.people:
            with pytest.raises(DoubleSpend, match="repaired"):
                ledger.charge({"new": 0.1}, "x")
            with pytest.raises(DoubleSpend):
                ledger.record_start("again")
        return
    # Nothing was lost: all that was there is there.
    assert [(e.event, e.label) for e in ledger.entries[: before.sequence]] == before.events
    for key in ("all", "block", *(f"block {i}" for i in range(3))):
        assert ledger.spent_exactly(key) == before.spent_exactly(key), (what, key)


class Whole:
    """What a ledger said before it was damaged, and its bytes."""

    def __init__(self, path):
        ledger = Ledger.open(path)
        self.data, self.head, self.people = path.read_bytes(), ledger.head, ledger.people
        self.sequence = ledger.sequence
        self.events = [(entry.event, entry.label) for entry in ledger.entries]
        self.spent_exactly = ledger.spent_exactly
        self.people_spent = {u: ledger.spent_by(u) for u in PEOPLE} if ledger.people else {}

    def spent_by(self, user):
        return self.people_spent[user]


def damaged_and_repaired(path, before, data, what, *, index=None):
    """Puts damage in the place of a ledger, repairs it, and checks all that was promised."""
    for found in path.parent.iterdir():
        found.unlink()
    path.write_bytes(data)
    if index is not None:
        path.with_name(path.name + ".index").write_bytes(index)
    header = before.data[: before.data.index(b"\n") + 1]
    if header not in data.replace(b"\0", b""):
        # Of the first line only the line end may be another.
        try:
            done = repair(path, expect=before.head)
        except CorruptFile:
            assert path.read_bytes() == data
            return None
        assert header[:-1] in data
    else:
        done = repair(path, expect=before.head)
    if not done.problem:
        check_never_more(path, before, what)
        assert len(Ledger.open(path).entries) == before.sequence, what
        return done
    check_never_more(path, before, what)
    assert re.search(r"\.damaged-\d{8}T\d{6}Z(-\d+)?$", done.original)
    with open(done.original, "rb") as file:
        assert file.read() == data
    ledger = Ledger.open(path)
    last = ledger.entries[-1]
    assert (last.event, last.label) == ("repair", hashlib.sha256(data).hexdigest())
    assert (last.everybody, last.ended) == (done.everybody, done.ended)
    assert (path.stat().st_mode & 0o777) == 0o600
    assert repair(path) == Repair()
    return done


def flips(data, step):
    for place in range(0, len(data), step):
        changed = bytearray(data)
        changed[place] ^= 1 << (place // step + place) % 8
        yield f"flip at {place}", bytes(changed)


def holes(data, step, size):
    for place in range(0, len(data), step):
        yield (
            f"hole at {place}",
            data[:place] + b"\0" * min(size, len(data) - place) + (data[place + size :]),
        )


def moved(data):
    lines = data.splitlines(keepends=True)
    for i in range(len(lines)):
        yield f"line {i} doubled", b"".join([*lines[: i + 1], *lines[i:]])
        yield f"line {i} removed", b"".join([*lines[:i], *lines[i + 1 :]])
        yield f"line {i} at the end", b"".join([*lines[:i], *lines[i + 1 :], lines[i]])
        for j in range(max(0, i - 2), i):
            swapped = [*lines]
            swapped[i], swapped[j] = lines[j], lines[i]
            yield f"lines {i} and {j} swapped", b"".join(swapped)
            yield f"line {j} over {i}", b"".join([*lines[:i], lines[j], *lines[i + 1 :]])


def cuts(data, step):
    for size in range(0, len(data), step):
        yield f"cut to {size}", data[:size]


def all_damage(data, step):
    yield from flips(data, step)
    yield from holes(data, 4 * step, 40)
    yield from holes(data, 20 * step, 700)
    yield from cuts(data, step)
    yield from moved(data)


@pytest.mark.parametrize("make", [of_people, of_one_run])
def test_budget_never_comes_back(path, make):
    make(path)
    before = Whole(path)
    damage = all_damage(before.data, 211)
    done = [damaged_and_repaired(path, before, data, what) for what, data in damage]
    found = [one for one in done if one is not None]
    # All outcomes occur: nothing lost, everything known, one line lost, and more.
    assert {one.lost_lines for one in found} == {0, 1, 2}
    assert any(one.problem and not one.ended for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("make", [of_people, of_one_run])
def test_budget_never_comes_back_wherever_the_damage_is(path, make):
    make(path)
    before = Whole(path)
    for what, data in all_damage(before.data, 1):
        damaged_and_repaired(path, before, data, what)


@pytest.mark.parametrize("step", [617, pytest.param(3, marks=pytest.mark.slow)])
def test_an_index_knows_what_lines_are_lost(path, monkeypatch, step):
    """With it, whatever happens to lines that it has seen, nobody pays for what is not known."""
    monkeypatch.setattr(journal, "INDEX_LINES", 1)
    of_people(path)
    before = Whole(path)
    index = path.with_name(path.name + ".index").read_bytes()
    header = before.data.index(b"\n") + 1
    for what, data in all_damage(before.data, step):
        done = damaged_and_repaired(path, before, data, what, index=index)
        if done is not None and data[:header] == before.data[:header]:
            assert done.everybody == 0.0, what
            ledger = Ledger.open(path)
            spent = {user: ledger.spent_by(user) for user in PEOPLE}
            assert spent == before.people_spent, what


def test_lines_in_disorder_lose_nothing_and_the_run_goes_on(path):
    ledger = of_one_run(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[4], lines[3], lines[3], *lines[5:]]))
    with pytest.raises(CorruptFile):
        Ledger.open(path)
    done = repair(path)
    assert (done.ended, done.lost_lines, done.kept) == (False, 0, 7)
    ledger.charge({"new": 0.1}, "x", pending=True)  # whoever had it open goes on as well
    again = Ledger.open(path)
    again.record_resume("save 2")
    again.charge({"new": 0.1}, "x")
    assert again.entries[7].event == "repair"


def test_one_lost_line_costs_everybody_the_dearest_run(path):
    of_people(path)
    lines = path.read_bytes().splitlines(keepends=True)
    place = lines[7].index(b'"people"')  # a join of the first run; its hash can still be read
    lines[7] = lines[7][:place] + b"\0" * 40 + lines[7][place + 40 :]
    path.write_bytes(b"".join(lines))
    done = repair(path)
    dearest = Terms.of(HALF).user_limit
    assert (done.lost_lines, done.kept, done.people, done.ended) == (1, 6, 1, True)
    assert done.everybody == dearest
    ledger = Ledger.open(path)
    limit, cheap = ledger.limit, Terms.of(TENTH).user_limit
    expected = {0: 2 * dearest, 2: cheap + dearest, 4: cheap + dearest, "new": dearest}
    spent = {user: ledger.spent_by(user) for user in expected}
    assert spent == pytest.approx({u: min(s, limit) for u, s in expected.items()})
    # Those who can still pay take part in new runs; the old ones are over.
    third = Ledger.open(path)
    third.record_start("third", Terms.of(HALF))
    can = [2 * dearest <= limit, 2 * dearest + cheap <= limit]
    assert joined(third, "new", 4) == can
    with pytest.raises(DoubleSpend, match="repaired"):
        Ledger.open(path).record_resume("save 2", after=9, run="second")


def test_more_than_one_lost_line_costs_everybody_everything(path):
    of_people(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:6], *lines[8:]]))
    done = repair(path)
    ledger = Ledger.open(path)
    assert (done.lost_lines, done.everybody) == (2, ledger.limit)
    assert {ledger.spent_by(user) for user in PEOPLE} == {ledger.limit}
    with pytest.raises(BudgetExceeded):
        ledger.record_start("third", Terms.of(TENTH))


@pytest.mark.parametrize("hole", [(0, 40), (0, 10_000), (60, 100)])
def test_a_lost_repair_does_not_give_back_what_it_charged(path, hole):
    of_people(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:6], *lines[8:]]))
    repair(path)
    *lines, last = path.read_bytes().splitlines(keepends=True)
    start, end = hole
    size = len(last[start:end].rstrip(b"\n"))
    path.write_bytes(b"".join([*lines, last[:start] + b"\0" * size + last[start + size :]]))
    assert repair(path).everybody == Ledger.open(path).limit


def test_lines_cut_off_the_end_need_a_witness(path):
    of_people(path)
    before = Whole(path)
    cut = b"".join(before.data.splitlines(keepends=True)[:-2])
    path.write_bytes(cut)
    assert repair(path) == Repair()  # by itself it is a valid, older ledger
    assert path.read_bytes() == cut
    with pytest.raises(CorruptFile, match="older than its witness"):
        Ledger.open(path, expect=before.head)
    done = repair(path, expect=before.head[:12])
    assert (done.ended, done.everybody) == (True, Ledger.open(path).limit)
    # What was noted before the repair is still there.
    assert Ledger.open(path, expect=json.loads(cut.splitlines()[-1])["hash"]).sequence == 8
    with pytest.raises(InvalidArgument, match="hexadecimal"):
        repair(path, expect="nonsense")


def test_a_well_ledger_and_a_torn_line_need_no_repair(path):
    of_people(path)
    torn = path.read_bytes() + b'{"costs": {}, "eve'
    path.write_bytes(torn)
    assert repair(path) == Repair()
    assert path.read_bytes() == torn
    assert os.listdir(path.parent) == [path.name]


def test_a_repair_after_a_crash_in_a_repair(path, monkeypatch):
    """The index is removed last: until then the ledger is refused, and repaired once more."""
    monkeypatch.setattr(journal, "INDEX_LINES", 1)
    of_people(path)
    before = Whole(path)
    cut = b"".join(before.data.splitlines(keepends=True)[:-2])
    path.write_bytes(cut)
    index = path.with_name(path.name + ".index")
    kept = index.read_bytes()
    repair(path)
    index.write_bytes(kept)
    with pytest.raises(CorruptFile, match="its index has seen"):
        Ledger.open(path)
    repair(path)
    check_never_more(path, before, "twice")
    assert Ledger.open(path).spent_by("never seen") == 0.0
