"""Tokens of devices, curators and officers, kept as keyed hashes, and sessions of who logged in.

A session is a row of the same table, so it ends in all processes when somebody logs out, or when
the token is revoked that it was begun with.
"""

from __future__ import annotations

import hmac
import secrets
import time

import sqlalchemy as sa
from sqlalchemy import delete, insert, select, update

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import one_of
from tacit.service.identity import ROLES, Caller
from tacit.store.schema import tokens
from tacit.store.store import Store

_SESSION = "session"  # role of rows whose digest says who it is


class Keys:
    """Keyed hashes by a store's secret, and who has which token."""

    def __init__(self, store: Store, db: sa.Connection) -> None:
        self.mark = store.keyed  # a MAC of texts
        rows = db.execute(select(tokens).where(tokens.c.revoked == 0, tokens.c.role != _SESSION))
        self._tokens = {row.name: (row.role, row.digest) for row in rows}
        ends = select(tokens).where(tokens.c.role == _SESSION, tokens.c.at > time.time())
        self._sessions = {row.name: (row.digest, row.at) for row in db.execute(ends)}
        self._known: dict[str, str] = {}  # roles of whole tokens that were right

    def marked(self, mark: str, *words: str) -> bool:
        """Whether a mark is ours."""
        return hmac.compare_digest(mark.encode(), self.mark(*words).encode())

    def role_of(self, token: str) -> str | None:
        """Role of a token; of one that is wrong, after the same work whatever is wrong with it."""
        if token in self._known or not token.startswith("tacit-"):
            return self._known.get(token)
        parts = token.split("-", 3)
        name, secret = (parts[2], parts[3]) if len(parts) == 4 else ("", token)
        role, digest = map(str, self._tokens.get(name, ("", "0" * 32)))
        if not self.marked(digest, "token", secret) or not role:
            return None
        return self._known.setdefault(token, role)

    def session_of(self, cookie: str) -> str:
        """Name of the session that a cookie is of, perhaps of one that ended; "" if of none."""
        name, _, mark = cookie.partition(".")
        return name if self.marked(mark, "session", name) else ""

    def caller_in(self, session: str) -> Caller | None:
        """Caller who logged in, if that session goes on."""
        who, until = self._sessions.get(session, ("", 0.0))
        kind, role, name = (*who.split(" ", 2), "", "")[:3]
        token_is_there = self._tokens.get(name, ("",))[0] == role
        if until < time.time() or not (kind == "person" or token_is_there):
            return None
        return Caller(name, role, kind == "person", until)


def new_token(store: Store, role: str) -> str:
    """A new token, which is shown once; the store keeps a hash of it."""
    one_of("role", role, ROLES)
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    with store.write() as db:
        named = {"name": name, "role": role, "digest": store.keyed("token", secret)}
        db.execute(insert(tokens).values(**named, at=time.time(), revoked=0))
    return f"tacit-{role}-{name}-{secret}"


def begin_session(store: Store, caller: Caller, seconds: float) -> str:
    """The cookie of a new session, which ends no later than the token of who begins it."""
    name, now = secrets.token_hex(8), time.time()
    who = f"{'person' if caller.person else 'token'} {caller.role} {caller.name}"
    until = min(now + seconds, caller.until or now + seconds)
    with store.write() as db:
        db.execute(delete(tokens).where(tokens.c.role == _SESSION, tokens.c.at < now))
        row = {"name": name, "role": _SESSION, "digest": who, "at": until, "revoked": 0}
        db.execute(insert(tokens).values(**row))
    return f"{name}.{store.keyed('session', name)}"


def end_session(store: Store, name: str) -> None:
    """The session is over, whoever has its cookie."""
    with store.write() as db:
        db.execute(delete(tokens).where(tokens.c.name == name, tokens.c.role == _SESSION))


def revoke_token(store: Store, name: str) -> None:
    """From now on it opens nothing, also in other processes, within a second."""
    with store.write() as db:
        done = db.execute(update(tokens).where(tokens.c.name == name).values(revoked=1))
        if done.rowcount != 1:
            raise InvalidArgument(f"there is no token {name!r}")
