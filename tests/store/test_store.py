"""Stores: transactions, accounts, blocks, forgetting, and the ledger that says what happened."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from tacit.privacy.errors import BudgetExceeded, CorruptFile, InvalidArgument
from tacit.store import ledger, runs, schema
from tacit.store.store import Conflict, Store
from tacit.store.values import dump, load

TERMS = runs.Terms("mu^2", 1.0, 1.0, episodes=1, once=False, users=100)


@pytest.fixture(scope="module")
def server():
    pgserver = pytest.importorskip("pgserver")
    # Not in pytest's folder: other runs of pytest close that to the user of a server.
    with tempfile.TemporaryDirectory() as folder:
        started = pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete")
        yield started
        started.cleanup()


@pytest.fixture(params=["memory", "file", "postgresql"])
def store(request, tmp_path):
    if request.param == "postgresql":
        where = request.getfixturevalue("server").get_uri()
        with Store(where) as opened:
            yield opened
            with opened._engine.begin() as db:
                schema.tables.drop_all(db)
        return
    with Store(tmp_path / "runs.db" if request.param == "file" else "") as opened:
        yield opened


def begin(store, name="nudges", terms=TERMS, size=3):
    with store.write() as db:
        run = runs.create(db, name, terms, fingerprint="fingerprint")
        runs.open_block(db, run, 0, size)
        return runs.find(db, name)


def take(store, names, run="nudges"):
    """Puts people into the block that fills; what each pays, -1 if she was refused."""
    with store.write() as db:
        row = runs.find(db, run)
        who = store.pseudonyms(names)
        pays = runs.admit(db, row, row.block, who)
        if kept := [(name, cost) for name, cost in zip(who, pays, strict=True) if cost >= 0]:
            data = dump((False, {"rows": np.arange(len(kept))}))
            block = runs.block_of(db, run, row.block)
            runs.put(db, row, block, runs.Packet(len(kept), data, {0: len(kept)}, kept))
        return pays


def seal(store, run="nudges"):
    with store.write() as db:
        row = runs.find(db, run)
        runs.fence(db, row)
        runs.set_block(db, runs.block_of(db, run, row.block), stage="sealed")
        runs.open_block(db, row, row.block + 1, 3)
        return runs.find(db, run), runs.block_of(db, run, row.block)


def drawn(cost, number=0, spent=0):
    return runs.Draw(number, b"noisy", cost, Fraction(spent), Fraction(1), last=number == 0)


def release(store, run, block, cost=Fraction(1)):
    with store.write() as db:
        runs.release(db, run, block, drawn(cost))


def test_a_block_is_charged_recorded_and_erased_at_once(store):
    begin(store)
    assert take(store, ["ann", "bob", "cat"]) == [runs.UNIT] * 3
    run, block = seal(store)
    release(store, run, block)
    with store.read() as db:
        assert runs.data_of(db, run, 0) == []
        assert [row.value for row in runs.recorded(db, run, 0)] == [b"noisy"]
        spent = db.execute(sa.select(schema.accounts)).all()
    assert {(row.spent, row.reserved) for row in spent} == {(runs.UNIT, 0)}
    assert ledger.verify(store) == []


def test_whatever_is_raised_nothing_happened(store):
    begin(store)
    with pytest.raises(ZeroDivisionError), store.write() as db:  # noqa: PT012
        run, block = runs.find(db, "nudges"), runs.block_of(db, "nudges", 0)
        runs.put(db, run, block, runs.Packet(1, b"", {0: 1}, [("x", 5)]))
        raise ZeroDivisionError
    with store.read() as db:
        assert runs.find(db, "nudges").taken == 0
        assert db.execute(sa.select(schema.people)).all() == []
    assert ledger.verify(store) == []


def test_nobody_comes_more_often_than_declared(store):
    begin(store)
    assert take(store, ["ann", "ann"]) == [runs.UNIT, -1]
    assert take(store, ["ann", "bob"]) == [-1, runs.UNIT]


def test_two_runs_share_a_persons_account(store):
    begin(store)
    begin(store, "doses")
    with store.write() as db:
        db.execute(sa.update(schema.stores).values(most=runs.UNIT))
    assert take(store, ["ann"]) == [runs.UNIT]
    assert take(store, ["ann", "bob"], "doses") == [-1, runs.UNIT]
    with store.write() as db:
        runs.forget(db, *store.pseudonyms(["ann"]))
    assert take(store, ["ann"], "doses") == [runs.UNIT]
    assert ledger.verify(store) == []


def test_forgetting_takes_one_row_out_and_frees_her_budget(store):
    begin(store)
    take(store, ["ann", "bob", "cat"])
    with store.write() as db:
        told = runs.forget(db, *store.pseudonyms(["bob"]))
    assert told == {"removed": 1, "released": 0}
    with store.read() as db:
        ((_, users, data),) = runs.data_of(db, runs.find(db, "nudges"), 0)
        assert (users, load(data)[1]["rows"].tolist()) == (2, [0, 2])
    with store.write() as db:
        runs.forget(db, *store.pseudonyms(["cat"]))
        ((_, _, data),) = runs.data_of(db, runs.find(db, "nudges"), 0)
    assert (load(data)[1]["rows"].tolist(), ledger.verify(store)) == ([0], [])


def test_a_forget_between_summing_and_the_commit_is_a_conflict(store):
    begin(store)
    take(store, ["ann", "bob", "cat"])
    run, block = seal(store)
    with store.write() as db:
        runs.forget(db, *store.pseudonyms(["bob"]))
    with pytest.raises(Conflict):
        release(store, run, block)
    with store.read() as db:
        assert runs.recorded(db, run, 0) == []
        run, block = runs.find(db, "nudges"), runs.block_of(db, "nudges", 0)
    release(store, run, block)
    with store.write() as db:
        told = runs.forget(db, *store.pseudonyms(["ann"]))
    assert told == {"removed": 0, "released": 1}
    assert ledger.verify(store) == []


def test_of_two_leaders_one_commits(store):
    begin(store)
    take(store, ["ann", "bob", "cat"])
    run, block = seal(store)
    release(store, run, block)
    with pytest.raises(Conflict):
        release(store, run, block)
    assert ledger.verify(store) == []


def test_nobody_is_overspent(store):
    begin(store)
    take(store, ["ann", "bob", "cat"])
    run, block = seal(store)
    half = Fraction(1, 2)
    with store.write() as db:
        runs.release(db, run, block, replace(drawn(half), last=False))
        run = runs.find(db, "nudges")
    with pytest.raises(BudgetExceeded), store.write() as db:
        runs.release(db, run, block, drawn(Fraction(51, 100), 1, half))
    assert ledger.verify(store) == []


def test_entries_cannot_be_changed(store):
    begin(store)
    for change in (sa.update(schema.entries).values(body="{}"), sa.delete(schema.entries)):
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), store.write() as db:
            db.execute(change)


def test_a_store_of_people_takes_no_simulation(store):
    begin(store)
    with pytest.raises(InvalidArgument, match="one of people"):
        begin(store, "more", runs.Terms("mu^2", 1.0, 1.0, 1, False, 9, simulation=True))


def test_another_file_is_refused(tmp_path):
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE people (name TEXT)")
    other.close()
    with pytest.raises(InvalidArgument, match="something else"):
        Store(tmp_path / "other.db")


def test_a_store_is_not_used_after_a_fork(tmp_path):
    store = Store(tmp_path / "runs.db")
    child = os.fork()
    if child == 0:
        try:
            with store.read():
                pass
        except InvalidArgument:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    store.close()


def test_a_store_of_schema_2_is_brought_on(tmp_path):
    where = tmp_path / "runs.db"
    with Store(where) as store:
        begin(store)
        with store.write() as db:
            db.exec_driver_sql("ALTER TABLE packets DROP COLUMN missing")
            db.execute(sa.update(schema.stores).values(schema_version=2))
    with Store(where) as store, store.read() as db:
        assert db.scalar(sa.select(schema.stores.c.schema_version)) == 3
        assert db.execute(sa.select(schema.packets.c.missing)).all() == []


def test_secrets_are_closed_with_a_key(tmp_path):
    fernet = pytest.importorskip("cryptography.fernet")
    key = fernet.Fernet.generate_key()
    with Store(tmp_path / "runs.db", secret=key) as store, store.write() as db:
        store.put_secrets(db, "nudges", {"stream": b"drawn noise"})
        assert store.secret(db, "nudges", "stream") == b"drawn noise"
    assert b"drawn noise" not in (tmp_path / "runs.db").read_bytes()
    with pytest.raises(InvalidArgument, match="another key"):
        Store(tmp_path / "runs.db", secret=fernet.Fernet.generate_key())


# Witnesses.


def test_an_older_copy_is_not_opened_where_a_witness_saw_more(tmp_path):
    where, witness = tmp_path / "runs.db", tmp_path / "elsewhere"
    with Store(where, witness=str(witness)) as store:
        begin(store)
    shutil.copy(where, tmp_path / "backup.db")
    with Store(where) as store:
        take(store, ["ann", "bob", "cat"])
        release(store, *seal(store))
        with store.read() as db:
            assert witness.read_text() == ledger.head(db)[1]
    Store(where).close()
    with pytest.raises(CorruptFile, match="an older copy"):
        Store(tmp_path / "backup.db")
    with Store(tmp_path / "backup.db", check=False) as told:
        assert ledger.verify(told, witness.read_text()) != []


def test_a_store_of_a_later_release_is_refused_and_an_older_one_is_brought_on(
    tmp_path, monkeypatch
):
    where = tmp_path / "runs.db"
    with Store(where) as store:
        begin(store)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(InvalidArgument, match=f"this release {schema.VERSION}"):
        Store(where)
    change = ("ALTER TABLE problems ADD COLUMN words VARCHAR",)
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION - 1: change})
    with Store(where) as store, store.read() as db:
        assert db.scalar(sa.select(schema.stores.c.schema_version)) == schema.VERSION
        db.exec_driver_sql("SELECT words FROM problems")
    monkeypatch.undo()
    with pytest.raises(InvalidArgument, match=f"has schema {schema.VERSION + 1}, this"):
        Store(where)
