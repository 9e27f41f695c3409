"""The file format of saved states: versioned, checksummed, written atomically, never pickled.

A state is a kind (which class wrote it), JSON metadata and named arrays. The file is

    magic | format version | header length | header (UTF-8 JSON) | array bytes | SHA-256

with little-endian integers, arrays in C order and little-endian, and the digest taken over
everything before it. Reading a file executes nothing that the file contains.

**Guarantees.** Whoever reads a path sees the old file or the new one, whole, also after a crash
or a power failure during the write. A damaged, truncated or foreign file is refused before it is
parsed. A secret file (the default: a save holds raw sums and noise) is never readable by others,
not even while it is being written.

**Not guaranteed.** The checksum detects damage, not a forger: whoever can write the file can
also compute its checksum, unless the file is encrypted (:mod:`tacit.privacy.encryption`). A process
killed during a write can leave a temporary file ``.tacit-*.tmp`` (as private as the file itself) in
the directory. It is removed when the file is next written or read on the same machine; see
:mod:`tacit.privacy.files`.
"""

import contextlib
import hashlib
import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import FilePath
from tacit.privacy.encryption import MAGIC, StateKey, decrypted, encrypted
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.files import (
    MALFORMED,
    open_regular,
    parse_json,
    read_file,
    remove_orphans,
    temporary_name,
)

JSON: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None
"""What metadata may hold. Integers have any size; NaN and infinities are refused."""

FORMAT_VERSION = 3

# The line ending and the high bit make a transfer in text mode visible at once, as in PNG.
_MAGIC = b"\x89TACIT\r\n"
_PREFIX = struct.Struct("<8sIQ")
_DIGEST_BYTES = 32
# How every ledger begins (see tacit.privacy.ledger, whose keys are sorted).
_LEDGER = b'{"format": "tacit-ledger"'
_DTYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64", "float32", "float64"),
    )
}


@dataclass(frozen=True, eq=False)
class State:
    """What a state file held: its kind, version, metadata, and arrays, owned and writable."""

    kind: str
    version: int
    meta: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_state(
    path: FilePath,
    kind: str,
    meta: Mapping[str, JSON],
    arrays: Mapping[str, NDArray[Any]],
    *,
    secret: bool = True,
    key: StateKey | None = None,
) -> None:
    """Write a state to ``path``, atomically and durably.

    When this returns, the whole state is on disk. When it raises, ``path`` holds what it held
    before (only a failure to make the *directory* durable leaves the new file, whole, in place).
    Equal states give equal bytes. :func:`read_state` must ask for the ``kind`` to read it back.
    With a ``key``, or one in the environment, a secret state is encrypted: see
    :mod:`tacit.privacy.encryption`.

    Metadata are values that JSON represents exactly, as it does integers of 128 bits and more.
    Arrays are boolean, integer, float32 or float64, of any shape and content. A secret file gets
    mode 0600, also if it replaces one that others could read; another 0644 less the umask.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "counter.state")
    ...     write_state(path, "counter", {"step": 2**100}, {"sums": np.array([1.5, -0.0])})
    ...     state = read_state(path, "counter")
    >>> state.meta["step"] == 2**100, state.arrays["sums"]
    (True, array([ 1.5, -0. ]))
    """
    data = _encode(kind, meta, arrays)
    write_atomic(path, encrypted(data, key) if secret else data, 0o600 if secret else 0o644)


def read_state(path: FilePath, kind: str, *, key: StateKey | None = None) -> State:
    """Read the state of the given kind that :func:`write_state` wrote to ``path``.

    The checksum is compared before anything is parsed. It detects damage, not a forger. A file that
    is foreign, damaged, of another kind or newer is a CorruptFile. One that is encrypted needs its
    ``key``, here or in the environment; else it is a WrongKey.
    """
    # A foreign file, however large, is refused before it is loaded.
    data = decrypted(read_file(path, "state", _MAGIC, MAGIC), key, os.fspath(path))
    try:
        return _decode(data, kind)
    except ValueError as error:
        raise CorruptFile(f"{os.fspath(path)!r}: {error}") from error
    except MALFORMED as error:
        raise CorruptFile(f"{os.fspath(path)!r}: the header is malformed") from error


def write_atomic(path: FilePath, data: bytes, mode: int, *, replace: bool = True) -> None:
    """Make ``path`` a file with exactly these bytes, or change nothing.

    A temporary file in the same directory is created with the final mode (less the process's
    umask), written, flushed to disk, and renamed. No reader ever sees a part of ``data`` under
    ``path``. Without ``replace`` two processes that create the same path cannot both succeed (this
    needs a file system with hard links). A ledger is never replaced: nothing that was spent is ever
    overwritten.
    """
    if replace and _is_ledger(path):
        raise InvalidArgument(
            f"path={os.fspath(path)!r} is a ledger, and no ledger is ever overwritten: choose "
            "another name"
        )
    _put_in_place(path, data, mode, replace)


def replace_file(path: FilePath, data: bytes, mode: int) -> None:
    """As :func:`write_atomic`, and over a ledger too: for a repair, which keeps the old one."""
    _put_in_place(path, data, mode, replace=True)


def _put_in_place(path: FilePath, data: bytes, mode: int, replace: bool) -> None:
    directory, temporary = os.path.dirname(os.fspath(path)) or ".", temporary_name(path)
    # O_BINARY exists on Windows alone, where line endings would be translated without it.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    finally:
        # After a rename there is nothing left to remove.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_directory(directory)
    remove_orphans(path)


def _is_ledger(path: FilePath) -> bool:
    return _begins(path, _LEDGER)


def is_state(path: FilePath) -> bool:
    """Whether a state is there, encrypted or not, as far as its first bytes tell."""
    return _begins(path, _MAGIC) or _begins(path, MAGIC)


def _begins(path: FilePath, text: bytes) -> bool:
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(len(text)) == text
    except (OSError, CorruptFile):  # what we cannot read is none of ours; the rename will say so
        return False


def sync_directory(directory: str) -> None:
    """Make a rename in ``directory`` survive a power failure."""
    if os.name != "posix":  # elsewhere a directory cannot be opened
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(kind: str, meta: Mapping[str, JSON], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    if not all(isinstance(name, str) for name in (kind, *arrays)):
        raise InvalidArgument("kind and the names of arrays must be text")
    table, chunks, offset = [], [], 0
    for name in sorted(arrays):
        array = arrays[name]
        # A subclass may carry more than its elements (a mask, for one), which would be lost.
        if type(array) is not np.ndarray or array.dtype.name not in _DTYPES:
            raise InvalidArgument(
                f"arrays[{name!r}] is a {type(array).__name__} of dtype "
                f"{getattr(array, 'dtype', None)}; allowed are plain NumPy arrays of {[*_DTYPES]}"
            )
        dtype = array.dtype.name
        chunk = array.astype(_DTYPES[dtype].newbyteorder("<")).tobytes(order="C")
        table.append({"name": name, "dtype": dtype, "shape": list(array.shape), "offset": offset})
        chunks.append(chunk)
        offset += len(chunk)
    header = _header_bytes({"kind": kind, "meta": dict(meta), "arrays": table})
    body = b"".join([_PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header)), header, *chunks])
    return body + hashlib.sha256(body).digest()


def _header_bytes(header: dict[str, Any]) -> bytes:
    # The messages do not repeat the metadata: it may be as secret as the file.
    try:
        text = json.dumps(header, sort_keys=True, allow_nan=False, ensure_ascii=False)
        # json.dumps turns tuples into lists and keys into strings without a word.
        encoded = text.encode()
        exact = parse_json(encoded) == header
    except UnicodeEncodeError as error:
        raise InvalidArgument("meta holds text with unpaired surrogates") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"meta is not JSON: {error}") from error
    if not exact:
        raise InvalidArgument("meta holds a tuple or a key that is not text; use lists and text")
    return encoded


def _decode(data: bytes, kind: str) -> State:
    """Parse a whole file; a ValueError's text is the reason for refusing it."""
    end = len(data) - _DIGEST_BYTES
    if end < _PREFIX.size:
        raise ValueError("the file is truncated")
    if hashlib.sha256(memoryview(data)[:end]).digest() != data[end:]:
        raise ValueError("the checksum does not match; the file is damaged or truncated")
    _, version, length = _PREFIX.unpack_from(data)
    if version != FORMAT_VERSION:
        raise ValueError(f"format version {version}; this release reads {FORMAT_VERSION}")
    start = _PREFIX.size + length
    if start > end:
        raise ValueError("the header reaches beyond the end of the file")
    header = parse_json(data[_PREFIX.size : start])
    if header["kind"] != kind:
        raise ValueError(f"it holds a state of kind {header['kind']!r}, not {kind!r}")
    if type(header["meta"]) is not dict:
        raise ValueError("the header is malformed")
    arrays: dict[str, NDArray[Any]] = {}
    position = start
    for row in header["arrays"]:
        # The arrays follow one another without gaps, so an offset is either right or refused.
        if start + row["offset"] != position or row["name"] in arrays:
            raise ValueError("the table of arrays does not fit the file")
        array = _decode_array(data, position, end, row["dtype"], row["shape"])
        arrays[row["name"]] = array
        position += array.nbytes
    if position != end:
        raise ValueError("the table of arrays does not fit the file")
    return State(kind, version, header["meta"], arrays)


def _decode_array(
    data: bytes, position: int, end: int, name: str, shape: list[int]
) -> NDArray[Any]:
    if name not in _DTYPES:
        raise ValueError(f"an array has dtype {name!r}, which is not allowed")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("an array has a shape that is not a list of sizes")
    dtype, count = _DTYPES[name], math.prod(shape)
    # Python integers do not overflow, so an absurd size is seen here, before any allocation.
    if count * dtype.itemsize > end - position:
        raise ValueError("an array reaches beyond the end of the file")
    stored = np.frombuffer(data, dtype.newbyteorder("<"), count=count, offset=position)
    return stored.reshape(shape).astype(dtype)  # a copy: owned, writable, native byte order
