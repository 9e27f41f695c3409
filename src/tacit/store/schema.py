"""Tables of a store. Secret columns are ``packets.data``, ``secrets.value`` and ``versions.state``."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Float, Integer, LargeBinary, String, Table

VERSION = 2
"""Of the schema; files of release 0.1 had none."""

tables = sa.MetaData()
Number = sa.BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by INTEGER alone


def _table(name: str, *columns: Any) -> Table:
    return Table(name, tables, *columns)


def _key(name: str, kind: Any = String) -> Column[Any]:
    return Column(name, kind, primary_key=True)


def _whole(name: str, default: int = 0) -> Column[Any]:
    return Column(name, Number, nullable=False, default=default)


# One row. Its lock is the store's; ``seq`` and ``head`` are of the ledger's last entry. ``unit`` is
# that of all accounts, and ``most`` what one person may spend over all runs (0: no account).
stores = _table(
    "stores",
    _key("id", Integer),
    _whole("schema_version"),
    _whole("seq"),
    Column("head", String, nullable=False),
    _whole("simulation"),
    Column("unit", String, nullable=False),
    _whole("most"),
    Column("witness", String, nullable=False),
)
# ``epoch`` grows with every change of a run, and is the fence: whoever read an older one commits
# nothing. ``block`` is the one that fills, ``version`` serves, ``latest`` was planned last.
runs = _table(
    "runs",
    _key("run"),
    Column("fingerprint", String, nullable=False),
    Column("terms", String, nullable=False),
    *map(_whole, ("epoch", "version", "latest", "block", "users", "taken", "served", "cost")),
    *map(_whole, ("episodes", "once", "max_age", "window", "stopped", "pinned", "succeeded")),
    Column("facts", String, nullable=False, default="{}"),
)
versions = _table(
    "versions",
    _key("run"),
    _key("version", Number),
    Column("state", LargeBinary),
    Column("policy", LargeBinary, nullable=False),
    Column("etag", String, nullable=False),
    Column("head", String, nullable=False),
    *map(_whole, ("seq", "users")),
    Column("at", Float, nullable=False),
)
blocks = _table(
    "blocks",
    _key("run"),
    _key("block", Number),
    Column("stage", String, nullable=False),  # open, closed, sealed, released, done
    *map(_whole, ("size", "places", "users", "revision")),
    Column("at", Float, nullable=False),  # when it was closed
    Column("key", LargeBinary),
)
packets = _table(
    "packets",
    _key("id", Number),
    Column("run", String, nullable=False),
    *map(_whole, ("block", "version", "users")),
    Column("data", LargeBinary, nullable=False),
    sa.Index("packets_of_block", "run", "block"),
)
# Who took part, for ever; ``pays`` is what she pays with this episode: the run's cost with her
# first one, and nothing with others. ``place`` is her row in the packet.
people = _table(
    "people",
    _key("id", Number),
    Column("run", String, nullable=False),
    Column("person", String, nullable=False),
    *map(_whole, ("block", "packet", "place", "pays")),
    Column("fate", String, nullable=False),  # waiting, released, forgotten
    sa.Index("people_by_person", "run", "person"),
    sa.Index("people_by_block", "run", "block"),
)
accounts = _table("accounts", _key("person"), _whole("spent"), _whole("reserved"))
events = _table(
    "events",
    _key("run"),
    _key("event"),
    *map(_whole, ("block", "version")),
    Column("person", String, nullable=False),
    Column("fate", String, nullable=False),
)
releases = _table(
    "releases",
    _key("run"),
    _key("block", Number),
    _key("number", Number),
    Column("value", LargeBinary, nullable=False),
    Column("cost", String, nullable=False),  # an exact fraction
)
secrets = _table("secrets", _key("run"), _key("name"), Column("value", LargeBinary, nullable=False))
entries = _table(
    "entries",
    _key("seq", Number),
    Column("run", String, nullable=False),
    Column("event", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", String, nullable=False),
    Column("hash", String, nullable=False),
)
tokens = _table(
    "tokens",
    _key("name"),
    Column("role", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("at", Float, nullable=False),
    _whole("revoked"),
)
commands = _table(
    "commands",
    _key("id", Number),
    Column("run", String, nullable=False),
    Column("verb", String, nullable=False),
    _whole("version"),
    Column("by", String, nullable=False),
    Column("at", Float, nullable=False),
    Column("stage", String, nullable=False),  # asked, done, refused
    Column("answer", String, nullable=False, default=""),
)
problems = _table(
    "problems",
    _key("run"),
    _key("problem"),
    Column("since", Float, nullable=False),
    Column("last", Float, nullable=False),
    _whole("times", 1),
)

APPEND_ONLY = {
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
