"""Names that stand for user ids, so that no file shows who took part."""

import hashlib

import numpy as np

from tacit.privacy.errors import InvalidArgument

NAME_BYTES = 16
"""The length of a name."""


class Name(str):
    """A name, in hex, that stands for an id: where a save holds users who were not admitted yet."""

    __slots__ = ()


def name_of(user: int | str, key: bytes) -> bytes:
    """A user's name: a keyed hash of her id, so that no file shows ids."""
    if isinstance(user, Name):
        return bytes.fromhex(user)
    if isinstance(user, (bool, float)) or not isinstance(user, (int, str, np.integer)):
        raise InvalidArgument(f"user ids must be integers or strings, got {type(user)}")
    text = user if isinstance(user, str) else hex(int(user))
    kind = b"s" if isinstance(user, str) else b"i"
    name = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(kind + name, key=key, digest_size=NAME_BYTES).digest()
