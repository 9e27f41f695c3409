"""Secrets that lie apart from the store, and signatures under published policies.

A secret is in the environment (``env:NAME``), in a file that others cannot read, or at an address
of a key service. Policies are signed with Ed25519 by every key that is given, so that keys rotate:
devices trust some public keys, and one of them is enough (:func:`tacit.published.signer`).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit import published
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.files import write_atomic
from tacit.service.identity import fetched

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def secret(where: str, folder: Path) -> bytes:
    """A secret: ``env:NAME``, an address, or a file that is its owner's alone."""
    if where.startswith("env:"):
        held = os.environ.get(where[4:], "").encode()
    elif "://" in where:
        held = fetched(where)
    else:
        held = (folder / where).read_bytes()
        if stat.S_IMODE(os.stat(folder / where).st_mode) & 0o077:
            raise InvalidArgument(f"others can read {where!r}: chmod 600")
    if not held.strip():
        raise InvalidArgument(f"there is no secret at {where!r}")
    return held.strip()


def signing_keys(where: str, folder: Path) -> list[Ed25519PrivateKey]:
    """Private keys, PEM, at each of these places."""
    if not where:
        return []
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise MissingExtra("signatures need more: pip install 'tacit[encrypt]'") from None
    held = [secret(each, folder) for each in where.split()]
    try:
        keys: Any = [load_pem_private_key(each, None) for each in held]
        public_keys(keys)  # keys of other kinds have no such bytes
    except (ValueError, TypeError, AttributeError):
        raise InvalidArgument("signing: a key is no PEM file of Ed25519") from None
    return list(keys)


def public_keys(keys: Sequence[Ed25519PrivateKey]) -> list[str]:
    """Public keys as devices have them, 64 hexadecimal digits each."""
    return [key.public_key().public_bytes_raw().hex() for key in keys]


def signed(data: bytes, keys: Sequence[Ed25519PrivateKey]) -> bytes:
    """A published file, of JSON, with signatures in place of those that it had."""
    text = f"tacit policy {published.about(data)['hash']}".encode()
    marks = [f"{p}:{key.sign(text).hex()}" for p, key in zip(public_keys(keys), keys, strict=True)]
    held: dict[str, Any] = json.loads(data)
    held["arrays"]["signatures"] = {"dtype": "text", "shape": [len(marks)], "data": marks}
    return json.dumps(held).encode()


def sign_file(file: Path, where: str, folder: Path) -> None:
    """Signs a published file, by the keys at these places."""
    if file.suffix != ".json":
        raise InvalidArgument("policies are signed as JSON: set policy = 'policy.json'")
    write_atomic(file, signed(file.read_bytes(), signing_keys(where, folder)), 0o644)
