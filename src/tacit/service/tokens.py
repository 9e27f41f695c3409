"""Tokens of devices, curators and officers: shown once, and kept as keyed hashes."""

from __future__ import annotations

import hmac
import secrets
import time

import sqlalchemy as sa
from sqlalchemy import insert, select, update

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import one_of
from tacit.store.schema import tokens
from tacit.store.store import Store

ROLES = ("device", "curator", "officer")


class Keys:
    """Keyed hashes by a store's secret, and who has which token."""

    def __init__(self, store: Store, db: sa.Connection) -> None:
        self.mark = store.keyed  # a MAC of texts
        rows = db.execute(select(tokens).where(tokens.c.revoked == 0))
        self._tokens = {row.name: (row.role, row.digest) for row in rows}
        self._known: dict[str, str] = {}  # roles of whole tokens that were right

    def marked(self, mark: str, *words: str) -> bool:
        """Whether a mark is ours."""
        return hmac.compare_digest(mark.encode(), self.mark(*words).encode())

    def role_of(self, token: str) -> str | None:
        """Role of a token; of one that is wrong, after the same work whatever is wrong with it."""
        if token in self._known:
            return self._known[token]
        parts = token.split("-", 3)
        name, secret = (parts[2], parts[3]) if len(parts) == 4 else ("", token)
        role, digest = map(str, self._tokens.get(name, ("", "0" * 32)))
        if not self.marked(digest, "token", secret) or not role:
            return None
        return self._known.setdefault(token, role)

    def role_named(self, name: str) -> str:
        """Role of the token that has this name; "" if there is none any more."""
        return str(self._tokens.get(name, ("", ""))[0])


def new_token(store: Store, role: str) -> str:
    """A new token, which is shown once; the store keeps a hash of it."""
    one_of("role", role, ROLES)
    name, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    with store.write() as db:
        named = {"name": name, "role": role, "digest": store.keyed("token", secret)}
        db.execute(insert(tokens).values(**named, at=time.time(), revoked=0))
    return f"tacit-{role}-{name}-{secret}"


def revoke_token(store: Store, name: str) -> None:
    """From now on it opens nothing, also in other processes, within a second."""
    with store.write() as db:
        done = db.execute(update(tokens).where(tokens.c.name == name).values(revoked=1))
        if done.rowcount != 1:
            raise InvalidArgument(f"there is no token {name!r}")
