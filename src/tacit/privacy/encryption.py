"""Encryption of saved states: what lies on a disk, or in a backup, tells nothing without the key.

A key is 32 random bytes. Where one is given, every secret state is encrypted by it; there is one
of

* ``key=`` of :func:`tacit.privacy.storage.write_state` and ``read_state``;
* the environment variable ``TACIT_STATE_KEY_FILE``: the path of a key file, as
  :meth:`StateKey.create` makes it;
* the environment variable ``TACIT_STATE_KEY``: the key itself, in 64 hexadecimal digits.

By the environment all saves and autosaves of agents, curators and counters are encrypted, and
read again. A state that is not encrypted is read as before, so that one can begin with a key at any
time: the next save is encrypted.

The file is

    magic | version | key's fingerprint | salt (32 bytes) | sealed parts

A fresh key for each file comes from the key and a random salt (keyed BLAKE2b), and seals parts of
16 MiB by ChaCha20-Poly1305. The nonce of a part is its number and whether it is the last, and all
that is before the parts is bound to each as associated data. So no part can be changed, left out,
moved, cut off the end, or taken from another file, and a nonce is never used twice with one key.

**Guaranteed** (by ChaCha20-Poly1305 and BLAKE2b): without the key the file tells its size, the
salt, and which files have the same key; an encrypted file that was changed is refused. **Not
guaranteed:** an older file in the place of a newer one is refused by the ledger, not by this; who
can write to the folder can put a file there that is not encrypted; and keys and states are in the
memory of the process, as long as it runs, and in what the system swaps out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import struct
from collections.abc import Iterator
from typing import Any, NoReturn, Self

from tacit.privacy.arguments import FilePath
from tacit.privacy.errors import CorruptFile, MissingExtra, WrongKey
from tacit.privacy.files import open_regular
from tacit.privacy.owner import Uncopyable

KEY_FILE_VARIABLE = "TACIT_STATE_KEY_FILE"
KEY_VARIABLE = "TACIT_STATE_KEY"

MAGIC = b"\x89TACIX\r\n"
"""How an encrypted state begins."""

_VERSION = 1
_KEY_BYTES = 32
_HEADER = struct.Struct("<8sI16s32s")
_NONCE = struct.Struct("<QI")
_PART = 1 << 24
_TAG = 16


class StateKey(Uncopyable):
    """A key for states. It prints, copies and pickles nothing of itself."""

    why_single = "a key is not copied or pickled: give the path of its file"

    def __init__(self, secret: bytes) -> None:
        if type(secret) is not bytes or len(secret) != _KEY_BYTES:
            raise WrongKey(f"a key has {_KEY_BYTES} bytes")
        self._secret = secret

    @classmethod
    def create(cls, path: FilePath) -> Self:
        """Makes a new key and its file, of mode 0600 and over no other file."""
        text = secrets.token_hex(_KEY_BYTES)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(path, flags, 0o600), "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        return cls(bytes.fromhex(text))

    @classmethod
    def read(cls, path: FilePath) -> Self:
        """The key in a file, in 64 hexadecimal digits; the file must be nobody else's to read."""
        with open(open_regular(path), "rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                raise WrongKey(f"{os.fspath(path)!r}: others can read this key (chmod 600 it)")
            text = file.read(4 * _KEY_BYTES)
        return cls(_decoded(text, os.fspath(path)))

    @classmethod
    def from_environment(cls) -> Self | None:
        """The key that the environment names, if it names one."""
        path, text = os.environ.get(KEY_FILE_VARIABLE), os.environ.get(KEY_VARIABLE)
        if path and text:
            raise WrongKey(f"{KEY_FILE_VARIABLE} and {KEY_VARIABLE} are both set: which key?")
        if path:
            try:
                return cls.read(path)
            except (OSError, CorruptFile) as error:
                raise WrongKey(f"{KEY_FILE_VARIABLE}: the key cannot be read ({error})") from error
        return cls(_decoded(text.encode(errors="replace"), KEY_VARIABLE)) if text else None

    def __repr__(self) -> str:
        return "StateKey()"

    def encrypt(self, data: bytes) -> bytes:
        """The bytes of an encrypted file."""
        header = _HEADER.pack(MAGIC, _VERSION, self._derived(b""), os.urandom(32))
        cipher, parts = self._cipher(header), [header]
        for number, start in enumerate(range(0, max(1, len(data)), _PART)):
            last = start + _PART >= len(data)
            part = data[start : start + _PART]
            parts.append(cipher.encrypt(_NONCE.pack(number, last), part, header))
        return b"".join(parts)

    def decrypt(self, data: bytes, name: str) -> bytes:
        """What was encrypted; ``name`` is that of the file, for the errors."""
        if len(data) < _HEADER.size + _TAG:
            raise CorruptFile(f"{name!r}: the file is truncated")
        header = data[: _HEADER.size]
        _, version, fingerprint, _ = _HEADER.unpack(header)
        if version != _VERSION:
            raise CorruptFile(f"{name!r}: encryption of version {version}, not {_VERSION}")
        if fingerprint != self._derived(b""):
            raise WrongKey(f"{name!r} was encrypted with another key")
        cipher, parts = self._cipher(header), []
        starts = range(_HEADER.size, len(data), _PART + _TAG)
        for number, start in enumerate(starts):
            part = data[start : start + _PART + _TAG]
            with _refused(name):
                nonce = _NONCE.pack(number, number == len(starts) - 1)
                parts.append(cipher.decrypt(nonce, part, header))
        return b"".join(parts)

    def _derived(self, salt: bytes) -> bytes:
        """A key for one file; without a salt, what tells keys apart."""
        size, person = (_KEY_BYTES, b"tacit-state-file") if salt else (16, b"tacit-state-name")
        return hashlib.blake2b(salt, key=self._secret, digest_size=size, person=person).digest()

    def _cipher(self, header: bytes) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ImportError:
            _missing()
        return ChaCha20Poly1305(self._derived(header[-32:]))


@contextlib.contextmanager
def _refused(name: str) -> Iterator[None]:
    from cryptography.exceptions import InvalidTag

    try:
        yield
    except InvalidTag:
        # Not from the error, whose frames hold the key.
        raise CorruptFile(f"{name!r}: it was damaged or changed since it was encrypted") from None


def is_encrypted(data: bytes) -> bool:
    """Whether these are the bytes of an encrypted state."""
    return data.startswith(MAGIC)


def decrypted(data: bytes, key: StateKey | None, name: str) -> bytes:
    """The bytes of a state, decrypted if they are encrypted: with a key, or the environment's."""
    if not is_encrypted(data):
        return data
    key = key or StateKey.from_environment()
    if key is None:
        raise WrongKey(
            f"{name!r} is encrypted: give key=, or set {KEY_FILE_VARIABLE} to the path of its key"
        )
    return key.decrypt(data, name)


def encrypted(data: bytes, key: StateKey | None) -> bytes:
    """The bytes of a state, encrypted if there is a key: this one, or the environment's."""
    key = key or StateKey.from_environment()
    return data if key is None else key.encrypt(data)


def _decoded(text: bytes, name: str) -> bytes:
    """A key in hexadecimal digits. The error does not repeat what it was given."""
    with contextlib.suppress(ValueError):
        key = bytes.fromhex(text.decode("ascii").strip())
        if len(key) == _KEY_BYTES:
            return key
    raise WrongKey(f"{name}: a key has {2 * _KEY_BYTES} hexadecimal digits") from None


def _missing() -> NoReturn:
    raise MissingExtra(
        "encrypted states need the package cryptography: pip install 'tacit[encrypt]'"
    ) from None
