"""People by tokens of their own: JWT signed with a local key, or by an issuer of OpenID Connect.

The keys (a JWKS) come from a file or over HTTPS. A key has one algorithm, and a token no say in it;
``sub`` is the person, and ``tacit_role`` makes her a curator or an officer. Keys are fetched by the
thread that watches, so that no request waits for a server of somebody else.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import math
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tacit.privacy.errors import InvalidArgument, MissingExtra

if TYPE_CHECKING:
    from tacit.service.app_file import Serving

ROLES = ("device", "curator", "officer")
_LONGEST, _BYTES = 8192, 1 << 20
_OFTEN, _SELDOM = 10.0, 300.0  # seconds between fetches: for a key that is not known, and anyway


@dataclass(frozen=True)
class Caller:
    """A person by her own token, or whoever has a shared one, in a role."""

    name: str
    role: str
    person: bool = False
    until: float = 0.0


def fetched(where: str) -> bytes:
    """Bytes at an address; unencrypted ones are of this machine alone."""
    parts = urlsplit(where)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InvalidArgument(f"{where!r} must begin with https://")
    with urllib.request.urlopen(where, timeout=5) as answer:  # noqa: S310
        return bytes(answer.read(_BYTES))


class Identity:
    """Keys that sign people's tokens, as a table [serve] says where they are."""

    def __init__(self, folder: Path, serving: Serving) -> None:
        try:
            import jwt
        except ImportError:
            raise MissingExtra("people's tokens need more: pip install 'tacit[serve]'") from None
        self._jwt, self._serving, self._folder = jwt, serving, folder
        self._keys: dict[str, Any] = {}
        self._fetched, self._asked = -_SELDOM, False
        self.refresh()

    def refresh(self) -> None:
        """Reads the keys where that is due; those that were there stay if nobody answers."""
        if time.monotonic() - self._fetched < (_OFTEN if self._asked else _SELDOM):
            return
        self._fetched, self._asked, where = time.monotonic(), False, self._serving.jwks
        if not where:
            said = f"{self._serving.issuer.rstrip('/')}/.well-known/openid-configuration"
            where = json.loads(fetched(said))["jwks_uri"]
        local = "://" not in where
        held = json.loads((self._folder / where).read_bytes() if local else fetched(where))
        found = {}
        for key in held["keys"]:
            # A secret that both sides share is no key that a server could publish.
            if key.get("use", "sig") == "sig" and (local or key.get("kty") != "oct"):
                with contextlib.suppress(self._jwt.PyJWTError):  # of a kind that we do not know
                    made = self._jwt.PyJWK.from_dict(key)
                    prepared = made.Algorithm.prepare_key(made.key)
                    found[str(key.get("kid", ""))] = made.algorithm_name, made.Algorithm, prepared
        self._keys = found

    def caller(self, token: str) -> Caller | None:
        """Bearer of a token; None if it is forged, too old, or meant for others."""
        with contextlib.suppress(Exception):  # whatever is wrong with it, it is nobody's
            return self._verified(token) if len(token) <= _LONGEST else None
        return None

    def _verified(self, token: str) -> Caller | None:
        signed, _, mark = token.encode().rpartition(b".")
        head, body = signed.split(b".")
        said, serving, now = json.loads(_bytes(head)), self._serving, time.time()
        if (found := self._keys.get(str(said.get("kid", "")))) is None:
            self._asked = True
            return None
        name, algorithm, key = found
        right = said["alg"] == name and algorithm.verify(signed, key, _bytes(mark))
        if not right or not said.keys().isdisjoint(("crit", "b64")):  # extensions we do not have
            return None
        held = json.loads(_bytes(body))
        sub, role, until = held["sub"], held.get("tacit_role", "device"), float(held["exp"])
        since, whom = max(int(held.get(at, 0)) for at in ("nbf", "iat")), held["aud"]
        here = whom == serving.audience or (isinstance(whom, list) and serving.audience in whom)
        here = here and (not serving.issuer or held["iss"] == serving.issuer)
        well = 0 < len(sub) <= 200 and sub.isprintable() and role in ROLES
        here = here and since <= now < until < math.inf
        return Caller(sub, role, True, until) if here and well else None


def _bytes(part: bytes) -> bytes:
    """A part of a token; whatever is no letter of its alphabet is an error."""
    return base64.b64decode(part + b"=" * (-len(part) % 4), b"-_", validate=True)


def networks(text: str) -> list[Any]:
    """Addresses and networks, as "10.0.0.0/8 ::1" names them."""
    return [ipaddress.ip_network(word, strict=False) for word in text.split()]


def client_of(hops: Sequence[str], proxies: list[Any]) -> str:
    """The last address on a way that no proxy of ours has; those of one site are one.

    The connection is the last hop, and those before it are as X-Forwarded-For says.
    """
    for hop in reversed(hops):
        try:
            found = ipaddress.ip_address(hop.strip())
        except ValueError:
            break
        if not any(found in network for network in proxies):
            # Whoever has one address of version 6 has 2^64.
            wide = ipaddress.ip_network((found, 64), strict=False) if found.version == 6 else found
            return str(wide)
    return hops[-1]
