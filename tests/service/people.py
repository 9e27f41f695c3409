"""People with tokens of their own, which a key of the tests signs."""

import json
import time
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.service.client import Client

AUDIENCE = "tests"
KEY = Ed25519PrivateKey.from_private_bytes(b"tests of a service of nobody....")
ISSUER = f'jwks = "people.json"\naudience = "{AUDIENCE}"\nperson_rate = 1000000'


def public(key: Any = KEY, kid: str = "one") -> dict[str, Any]:
    """A key as a JWKS has it."""
    return {**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key())), "kid": kid}


def signed(user: str, key: Any = KEY, kid: str = "one", alg: str = "EdDSA", **more: Any) -> str:
    """A person's token."""
    said = {"sub": user, "aud": AUDIENCE, "exp": int(time.time()) + 3600} | more
    return jwt.encode(said, key, alg, headers={"kid": kid})


def as_person(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {signed(user)}"}


class Device(Client):
    """One device of many people: policies by the app's token, episodes by theirs."""

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Any:
        given = dict(headers or {})
        if path in ("/v1/episodes", "/v1/reports", "/v1/decisions", "/v1/outcomes") and body:
            try:
                user = json.loads(body)["user"]
                given = as_person(user if isinstance(user, str) else "somebody") | given
            except (ValueError, KeyError, TypeError, RecursionError):
                pass
        return super().request(method, path, given, body)
