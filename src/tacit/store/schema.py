"""Tables of a store. Columns of the type :class:`Secret` are encrypted where it has a key."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Float, Integer, LargeBinary, String, Table
from sqlalchemy.schema import CreateIndex, CreateTable

from tacit.privacy.errors import InvalidArgument

VERSION = 3
"""Of the schema; files of release 0.1 had none."""
MIGRATIONS: dict[int, tuple[str, ...]] = {
    2: ("ALTER TABLE packets ADD COLUMN missing BIGINT DEFAULT 0 NOT NULL",)
}
"""Statements, in words that both databases know, from a version of the schema to the next."""

tables = sa.MetaData()
Number = sa.BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by INTEGER alone


class Secret(sa.TypeDecorator[bytes]):
    """Bytes that lie encrypted in the database, by the cipher of its dialect, if there is one."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: Any) -> bytes | None:
        """The bytes as they are written."""
        cipher = getattr(dialect, "cipher", None)
        return value if cipher is None or value is None else bytes(cipher.encrypt(value))

    def process_result_value(self, value: bytes | None, dialect: Any) -> bytes | None:
        """The bytes as they are read."""
        cipher = getattr(dialect, "cipher", None)
        if cipher is None or value is None:
            return value
        from cryptography.fernet import InvalidToken

        try:
            return bytes(cipher.decrypt(value))
        except InvalidToken:
            raise InvalidArgument("the store's secrets were closed with another key") from None


def _table(name: str, *columns: Any) -> Table:
    return Table(name, tables, *columns)


def _key(name: str, kind: Any = String) -> Column[Any]:
    return Column(name, kind, primary_key=True)


def _whole(name: str, default: int = 0) -> Column[Any]:
    return Column(name, Number, nullable=False, default=default)


def _text(name: str) -> Column[Any]:
    return Column(name, String, nullable=False)


def _real(name: str) -> Column[Any]:
    return Column(name, Float, nullable=False, default=0.0)


# One row. Its lock is the store's; ``seq`` and ``head`` are of the ledger's last entry. ``unit`` is
# that of all accounts, and ``most`` what one person may spend over all runs (0: no account).
stores = _table(
    "stores",
    _key("id", Integer),
    *map(_whole, ("schema_version", "seq", "simulation", "most")),
    *map(_text, ("head", "unit", "witness")),
)
# ``epoch`` grows with every commit of a run, and is the fence: a process that read an older one
# commits nothing. ``block`` is the one that fills, ``version`` serves, ``latest`` was planned last.
# ``made`` is the dump of its algorithm's arguments. Until ``lease`` its ``leader`` computes, and
# until ``hold`` nobody is forgotten: both are economies, in seconds since 1970.
runs = _table(
    "runs",
    _key("run"),
    _text("fingerprint"),
    Column("made", LargeBinary, nullable=False),
    Column("after", String, key="predecessor", nullable=False, default=""),
    *map(_whole, ("epoch", "version", "latest", "block", "users", "taken", "served", "cost")),
    *map(_whole, ("releases", "episodes", "once", "stopped", "pinned", "succeeded")),
    Column("leader", String, nullable=False, default=""),
    *map(_real, ("lease", "hold")),
)
versions = _table(
    "versions",
    _key("run"),
    _key("version", Number),
    Column("state", Secret),
    Column("policy", LargeBinary, nullable=False),
    *map(_text, ("etag", "head")),
    *map(_whole, ("seq", "users")),
    _real("at"),
)
# A place is taken by reading a policy, or by coming with an episode; ``places`` are those that
# were, by version in ``versions`` (JSON), ``users`` those that are filled, ``size`` is the plan.
blocks = _table(
    "blocks",
    _key("run"),
    _key("block", Number),
    _text("stage"),  # open, closed, sealed, released, done
    *map(_whole, ("size", "places", "users", "revision")),
    Column("versions", String, nullable=False, default="{}"),
    _real("at"),  # when it was opened, and from then on when it was closed
)
# Of an episode whose decisions and outcomes come apart ``missing`` steps lack some of them.
packets = _table(
    "packets",
    _key("id", Number),
    _text("run"),
    *map(_whole, ("block", "version", "users", "missing")),
    Column("data", Secret, nullable=False),
    sa.Index("packets_of_block", "run", "block"),
)
# Who took part, for ever; ``pays`` is what she pays with this episode: the run's cost with her
# first one, and nothing with others. ``position`` is that of her row in the packet.
people = _table(
    "people",
    _key("id", Number),
    *map(_text, ("run", "person")),
    *map(_whole, ("block", "packet", "pays")),
    Column("place", Number, key="position", nullable=False, default=0),
    _text("fate"),  # waiting, released, forgotten, unreadable
    sa.Index("people_by_person", "run", "person"),
    sa.Index("people_by_block", "run", "block"),
)
accounts = _table("accounts", _key("person"), _whole("spent"), _whole("reserved"))
# An episode that was sent is told the same again; ``ticket`` is the place that it filled.
events = _table(
    "events",
    _key("run"),
    _key("event"),
    *map(_whole, ("block", "version", "packet")),
    *map(_text, ("person", "ticket")),
    _text("fate"),  # waiting, counted, forgotten, unreadable
    sa.Index("events_by_block", "run", "block"),
    sa.Index("events_by_ticket", "run", "ticket"),
)
releases = _table(
    "releases",
    _key("run"),
    _key("block", Number),
    _key("number", Number),
    Column("value", LargeBinary, nullable=False),
    _text("cost"),  # an exact fraction
)
secrets = _table("secrets", _key("run"), _key("name"), Column("value", Secret, nullable=False))
entries = _table(
    "entries",
    _key("seq", Number),
    _real("at"),
    *map(_text, ("run", "event", "body", "hash")),
)
tokens = _table(
    "tokens",
    _key("name"),
    *map(_text, ("role", "digest")),
    _real("at"),
    _whole("revoked"),
)
problems = _table(
    "problems",
    _key("run"),
    _key("problem"),
    *map(_real, ("since", "last")),
    _whole("times", 1),
)

_APPEND_ONLY = {
    "sqlite": (
        "CREATE TRIGGER IF NOT EXISTS entries_{verb} BEFORE {VERB} ON entries "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    ),
    "postgresql": (
        "CREATE OR REPLACE FUNCTION tacit_append_only() RETURNS trigger AS "
        "'BEGIN RAISE EXCEPTION ''the ledger is append-only''; END' LANGUAGE plpgsql",
        "CREATE OR REPLACE TRIGGER entries_{verb} BEFORE {VERB} ON entries "
        "EXECUTE FUNCTION tacit_append_only()",
    ),
}


@cache
def statements(dialect: sa.Dialect) -> list[str]:
    """Statements that make what a database lacks of all this."""
    made: list[Any] = [CreateTable(t, if_not_exists=True) for t in tables.sorted_tables]
    made += [CreateIndex(i, if_not_exists=True) for t in tables.sorted_tables for i in t.indexes]
    texts = [str(each.compile(dialect=dialect)) for each in made]
    verbs = [(text, verb) for text in _APPEND_ONLY[dialect.name] for verb in ("update", "delete")]
    return texts + [text.format(verb=verb, VERB=verb.upper()) for text, verb in verbs]
