"""People with tokens of their own, which a key of the tests signs."""

import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.service.client import Client

AUDIENCE = "tests"
KEY = Ed25519PrivateKey.from_private_bytes(b"tests of a service of nobody....")
ISSUER = f'jwks = "people.json"\naudience = "{AUDIENCE}"\nperson_rate = 1000000'


def public(key=KEY, kid="one"):
    """A key as a JWKS has it."""
    return {**json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key())), "kid": kid}


def signed(user, key=KEY, kid="one", alg="EdDSA", **more):
    """A person's token."""
    said = {"sub": user, "aud": AUDIENCE, "exp": int(time.time()) + 3600} | more
    return jwt.encode(said, key, alg, headers={"kid": kid})


def as_person(user):
    return {"Authorization": f"Bearer {signed(user)}"}


class Device(Client):
    """One device of many people: policies by the app's token, episodes by theirs."""

    def request(self, method, path, headers=None, body=b""):
        given = dict(headers or {})
        if path in ("/v1/episodes", "/v1/reports", "/v1/decisions", "/v1/outcomes") and body:
            try:
                user = json.loads(body)["user"]
                given = as_person(user if isinstance(user, str) else "somebody") | given
            except (ValueError, KeyError, TypeError, RecursionError):
                pass
        return super().request(method, path, given, body)
