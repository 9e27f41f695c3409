"""Stores: a database that holds all that must survive, changed by short transactions only.

SQLite in memory, an SQLite file, or PostgreSQL by a URL; one text for all of them. A transaction is
the only event: whatever is raised within one, nothing of it has happened, and there is nothing
beside the database that could disagree with it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sqlite3
import threading
import time
import urllib.request
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import bindparam, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.pool import StaticPool

from tacit.privacy.errors import CorruptFile, InvalidArgument, TacitError
from tacit.privacy.files import write_atomic
from tacit.store import schema
from tacit.store.schema import stores

PEOPLE = 5000  # rows in one statement
_DIALECTS: Any = (sqlite.dialect(), postgresql.dialect())  # type: ignore[no-untyped-call]
_lock = select(stores.c.seq, stores.c.head).with_for_update()


class StoreGone(TacitError):
    """The database does not answer, or its disk is full; whether a change is in is not known."""


class Conflict(TacitError):
    """The run or its block has moved on since it was read; nothing was changed."""


class Store:
    """A database of runs.

    Args:
        where: Path of an SQLite file, a URL (``postgresql://...``), or ``""`` for memory.
        patience: Seconds in which it must answer; after a reboot it may come later than we do.
        secret: Key for secret columns, which then are encrypted (extra ``encrypt``).
        create: Whether a file that is not there is made.
        witness: A file or a URL (GET and PUT) elsewhere, which gets the head of the ledger with
            every entry. A store that lacks what it has seen is an older copy, and is not opened.
        check: Whether the witness is asked; ``tacit ledger repair`` opens without.
        readonly: Whether nothing of it is changed, not even that it is a store.
    """

    def __init__(
        self,
        where: str | os.PathLike[str] = "",
        *,
        patience: float = 0.0,
        secret: bytes | None = None,
        create: bool = True,
        witness: str = "",
        check: bool = True,
        readonly: bool = False,
    ) -> None:
        self.where = os.fspath(where)
        self.durable = bool(self.where)  # whether it outlives this process
        self._pid = os.getpid()
        self.postgres = self.where.startswith(("postgresql", "postgres:"))
        # SQLite: one connection, on which threads take turns. An interrupt inside SQLAlchemy would
        # make a pool lose a connection that holds the write lock, and wait for it for ever.
        self._turn: Any = nullcontext() if self.postgres else threading.RLock()
        self._readonly = readonly
        self._engine = self._postgres() if self.postgres else self._sqlite(create)
        # All of a reading transaction is of one instant: a run and its blocks fit together.
        level = {"isolation_level": "REPEATABLE READ"} if self.postgres else {}
        self._reading = self._engine.execution_options(**level)
        self._writing = self._engine.execution_options(write=True)
        vars(self._engine.dialect)["cipher"] = _cipher(secret)
        self.agents: weakref.WeakSet[Any] = weakref.WeakSet()  # that use it in this process
        end = time.monotonic() + patience
        while True:
            try:
                self._create(witness)
                break
            except StoreGone:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.2)
        if self.witness and check:
            self._check_witness()

    def _check_witness(self) -> None:
        seen = read_witness(self.witness)
        with self.read() as db:
            known = db.scalar(select(schema.entries.c.seq).where(schema.entries.c.hash == seen))
        if seen and known is None:
            raise CorruptFile(
                "this store lacks an entry that its witness has seen: it is an older copy, or "
                "another one. tacit ledger repair goes on with it, once it is known what happened"
            )

    def close(self) -> None:
        """Closes its connections."""
        self._engine.dispose()
        if not self.postgres:
            self._only.really_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Connections.

    def _sqlite(self, create: bool) -> sa.Engine:
        if self.where and not Path(self.where).exists():
            if not create:
                raise InvalidArgument(f"there is no store {self.where!r}")
            try:
                Path(self.where).touch(mode=0o600)
            except OSError as error:
                raise StoreGone(f"{self.where!r} cannot be made: {error.strerror}") from None
        self._only = _Kept.open(self.where or ":memory:", readonly=self._readonly)
        engine = sa.create_engine(
            "sqlite://", poolclass=StaticPool, creator=lambda: self._only, hide_parameters=True
        )
        sa.event.listen(engine, "begin", _begin)
        return engine

    def _postgres(self) -> sa.Engine:
        url = sa.make_url(self.where).set(drivername="postgresql+psycopg")
        limits = "-c lock_timeout=10s -c statement_timeout=60s "
        limits += "-c idle_in_transaction_session_timeout=5s -c tcp_keepalives_idle=10"
        alive = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5}
        given = alive | {"keepalives_count": 3, "options": limits}
        return sa.create_engine(url, pool_pre_ping=True, hide_parameters=True, connect_args=given)

    # Transactions.

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that changes nothing."""
        with self._transaction(write=False) as db:
            yield db

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction alone with the store: all of it happens or, whatever is raised, nothing."""
        with self._transaction(write=True) as db:
            # SQLite has its write lock; on PostgreSQL (read committed) this row is the lock.
            row = db.execute(_lock).one()
            db.info["ledger"] = (row.seq, row.head)
            yield db
            head = db.info["ledger"][1]
        if self.witness and head != row.head:
            write_witness(self.witness, head)

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[sa.Connection]:
        if os.getpid() != self._pid:
            raise InvalidArgument("a store is not used after a fork: open it again in the child")
        with self._turn:
            try:
                with (self._writing if write else self._reading).begin() as db:
                    yield db
            except (sa.exc.OperationalError, sa.exc.InterfaceError, OSError) as error:
                # Of a driver's error the kind: its words may hold values.
                kind = type(getattr(error, "orig", None) or error).__name__
                raise StoreGone(f"the database does not answer: {kind}") from error

    def _create(self, witness: str) -> None:
        with self._transaction(write=not self._readonly) as db:
            if self.postgres and not self._readonly:
                db.execute(sa.text("SELECT pg_advisory_xact_lock(7163946)"))
                for name in ("fsync", "synchronous_commit", "full_page_writes"):
                    if db.scalar(sa.text(f"SHOW {name}")) == "off":
                        raise InvalidArgument(f"PostgreSQL has {name}=off: it may lose a charge")
            names = sa.inspect(db).get_table_names()
            foreign = self._readonly or (names and not self.postgres)
            if foreign and "stores" not in names:
                said = "is a database of something else, or of release 0.1, which is not read"
                raise InvalidArgument(f"{self.where!r} {said}")
            if not (self.postgres or self._readonly) or "stores" not in names:
                for text in schema.statements(_DIALECTS[self.postgres]):  # which wait for writers
                    db.exec_driver_sql(text)
            found = db.scalar(select(stores.c.schema_version))
            if found is None:
                first = {"id": 0, "schema_version": schema.VERSION, "seq": 0, "head": ""}
                rest = {"simulation": 0, "unit": "", "most": 0, "witness": witness}
                db.execute(insert(stores).values(**first, **rest))
                self.put_secrets(db, "", {"people": os.urandom(32)})
            elif witness:
                db.execute(update(stores).values(witness=witness))
            if found is not None and found != schema.VERSION:
                self._migrate(db, found)
            self.witness = str(db.scalar(select(stores.c.witness)))
            self._key = self.secret(db, "", "people") or b""

    def _migrate(self, db: sa.Connection, found: int) -> None:
        """Brings a store of an older release to this one's schema, a version at a time."""
        for version in range(found, found if self._readonly else schema.VERSION):
            if version not in schema.MIGRATIONS:
                break
            for statement in schema.MIGRATIONS[version]:
                db.exec_driver_sql(statement)
            db.execute(update(stores).values(schema_version=version + 1))
        if db.scalar(select(stores.c.schema_version)) != schema.VERSION:
            raise InvalidArgument(f"the store has schema {found}, this release {schema.VERSION}")

    # Secrets.

    def put_secrets(self, db: sa.Connection, run: str, secrets: Mapping[str, bytes]) -> None:
        """Keeps secrets of a run by name, or of the store, in place of those that were there."""
        for name, value in secrets.items():
            of = {"run": run, "name": name}
            if not change_rows(db, schema.secrets, of, value=value):
                db.execute(insert(schema.secrets), of | {"value": value})

    def secret(self, db: sa.Connection, run: str, name: str) -> bytes | None:
        """A secret of a run, if it is there."""
        found = rows_of(db, schema.secrets, run=run, name=name).first()
        return None if found is None else bytes(found.value)

    def pseudonyms(self, names: Sequence[str | int]) -> list[str]:
        """Keyed hashes of people's names."""
        return [self.keyed("person", str(name)) for name in names]

    def keyed(self, *words: str) -> str:
        """Keyed hash of texts; their lengths are in it, so no two lists share one."""
        if len(self._key) != 32:  # as it lies there, which would make another person of everybody
            raise InvalidArgument("this store's secrets are closed: give its key")
        text = "".join([f"{len(word)}:{word}" for word in words])
        found = hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return found.hex()[:32]

    def erase_traces(self) -> bool:
        """Takes what was erased out of the write-ahead log; whether it is out of all files.

        PostgreSQL marks it as free and overwrites it when it needs the room: it never says when.
        """
        if self.postgres or not self.where:
            return not self.postgres
        with self._turn, suppress(sqlite3.OperationalError):  # somebody reads
            return bool(self._only.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0)
        return False


def read_witness(where: str) -> str:
    """The head of the ledger that a witness has seen; empty where it has seen none.

    Raises:
        StoreGone: It does not answer.
    """
    try:
        if where.startswith(("http://", "https://")):
            with urllib.request.urlopen(where, timeout=10) as answer:  # noqa: S310
                return str(answer.read(64).decode("ascii", "replace"))
        return Path(where).read_text().strip() if Path(where).exists() else ""
    except OSError as error:
        raise StoreGone(f"the witness does not answer: {type(error).__name__}") from error


def write_witness(where: str, head: str) -> None:
    """Tells a witness; what it misses, it sees with the next entry."""
    with suppress(OSError):
        if where.startswith(("http://", "https://")):
            asked = urllib.request.Request(where, head.encode(), method="PUT")  # noqa: S310
            urllib.request.urlopen(asked, timeout=10).close()  # noqa: S310
        else:
            write_atomic(where, head.encode(), 0o644)


@cache
def _statement(verb: Any, table: sa.Table, order: str, *columns: tuple[str, bool]) -> Any:
    """A statement about rows by the values of columns; building it costs more than running it."""
    found = verb(table)
    for name, several in columns:
        value: Any = bindparam(f"of_{name}", expanding=several)
        found = found.where(table.c[name].in_(value) if several else table.c[name] == value)
    return found.order_by(table.c[order]) if order else found


def _execute(
    db: sa.Connection, verb: Any, table: sa.Table, of: Mapping[str, Any], order: str = "", **to: Any
) -> Any:
    columns = [(name, isinstance(value, list)) for name, value in of.items()]
    given = {f"of_{name}": value for name, value in of.items()}
    return db.execute(_statement(verb, table, order, *columns), given | to)


def rows_of(db: sa.Connection, table: sa.Table, order: str = "", **of: Any) -> Any:
    """Rows whose columns have these values, or one of a list, in the order of a column."""
    return _execute(db, select, table, of, order)


def change_rows(db: sa.Connection, table: sa.Table, of: Mapping[str, Any], /, **values: Any) -> int:
    """Sets columns of the rows whose columns have the values ``of``; how many they were."""
    return int(_execute(db, update, table, of, **values).rowcount)


def delete_rows(db: sa.Connection, table: sa.Table, **of: Any) -> None:
    """Deletes the rows whose columns have these values."""
    _execute(db, delete, table, of)


def digest(*values: Any) -> str:
    """Hash of JSON values."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def append(db: sa.Connection, run: str, event: str, **body: Any) -> str:
    """Adds an entry, and returns its hash: the ledger's new head."""
    seq, last = db.info["ledger"]
    text, at = json.dumps(body, sort_keys=True), time.time()
    seq += 1
    found = digest(last, seq, run, event, at, text)
    row = {"seq": seq, "run": run, "event": event, "at": at, "body": text, "hash": found}
    db.execute(insert(schema.entries), row)
    change_rows(db, stores, {"id": 0}, seq=seq, head=found)
    db.info["ledger"] = (seq, found)
    return found


def parts(items: Sequence[Any], size: int = PEOPLE) -> Iterator[Sequence[Any]]:
    """Items in pieces that fit into a statement."""
    return (items[start : start + size] for start in range(0, len(items), size))


def _cipher(secret: bytes | None) -> Any:
    if secret is None:
        return None
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        raise InvalidArgument("an encrypted store needs: pip install 'tacit[encrypt]'") from None
    return Fernet(secret)


class _Kept(sqlite3.Connection):
    """A process's only connection to an SQLite database, kept whatever SQLAlchemy does to it.

    On an interrupt SQLAlchemy closes and reopens connections. A memory database would be lost, and
    a closed connection whose cursor somebody still holds keeps its locks.
    """

    @classmethod
    def open(cls, path: str, *, readonly: bool = False) -> _Kept:
        given: dict[str, Any] = {"timeout": 30.0, "check_same_thread": False, "factory": cls}
        try:
            if readonly:  # where nobody writes, no file is made beside it either
                written = os.path.exists(f"{path}-wal")
                name = Path(path).resolve().as_uri() + ("?mode=ro" if written else "?immutable=1")
                only: _Kept = sqlite3.connect(name, uri=True, isolation_level=None, **given)
                return only
            only = sqlite3.connect(path, isolation_level=None, **given)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                only.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            raise StoreGone(f"{path!r} cannot be opened: {error}") from None
        return only

    def close(self) -> None:
        """Rolls back: the connection stays."""
        self.rollback()

    def really_close(self) -> None:
        """Closes the connection."""
        super().close()

    def create_function(self, *args: Any, **options: Any) -> None:
        """Made once; a second time a cursor may be open."""
        with suppress(sqlite3.OperationalError):
            super().create_function(*args, **options)


def _begin(db: sa.Connection) -> None:
    driver: Any = db.connection.dbapi_connection
    if driver.in_transaction:  # left by an interrupt inside the driver
        db.exec_driver_sql("ROLLBACK")
    db.exec_driver_sql("BEGIN IMMEDIATE" if db.get_execution_options().get("write") else "BEGIN")
