"""The one door through which the package opens files that somebody else may have made.

Only regular files are read (by way of symbolic links, too). A FIFO, a device, a directory or a
socket is refused at once, a file larger than the limit of its kind before it is read, and text that
is nested too deeply, or has more keys than any of our files, before it is parsed. So what a small
file can take of memory and time is a small multiple of its size.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import stat
import tomllib
from typing import Any

import numpy as np

from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.privacy.validation import FilePath

MOST_BYTES = {"result": 256 << 20, "world": 64 << 20}
"""How large a file of each kind may be. Whoever has larger ones may change the numbers."""

MOST_LEVELS = 64
"""How deeply lists and tables may be nested."""

MOST_KEYS = 1000
"""Of a TOML file, headers of tables included."""

MOST_KEY_PARTS = 16
"""Of a dotted key in TOML: what its parser keeps grows with the square of them."""

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
"""What a file can raise whose form is right, but which no release of ours wrote.

No RecursionError: how deep a file is was limited, so it is the caller's stack that is full.
"""

# Strings, also those that never end: what is in them is no bracket.
_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_TOML_QUIET = re.compile(
    rb'"""(?:[^"\\]++|\\.|"(?!""))*+"{0,5}'
    rb"|'''(?:[^']++|'(?!''))*+'{0,5}"
    rb'|"(?:[^"\\\n]++|\\[^\n])*+"?'
    rb"|'[^'\n]*+'?"
    rb"|#[^\n]*+",
    re.DOTALL,
)
_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_BUT_MARKS = bytes(set(range(256)) - set(b"[]{}=.,\n"))
_DEEP = f"it is nested more than {MOST_LEVELS} levels deep"


def open_regular(path: FilePath, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file; never waits for anybody, as opening a FIFO would."""
    for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"):  # as far as there are such
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        raise CorruptFile(f"{os.fspath(path)!r}: not a regular file")
    return descriptor


def read_file(path: FilePath, kind: str) -> bytes:
    """All of a regular file of a kind; nothing is read of one that is too large."""
    name, most = os.fspath(path), MOST_BYTES[kind]
    with open(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise CorruptFile(
                f"{name!r}: {size:,} bytes, and a {kind} may have {most:,} "
                f"(see tacit.privacy.files.MOST_BYTES)"
            )
        # It may be no file on a disk, whose size is only known when it is read.
        data = file.read(size + 1) or b""
    if len(data) > size:
        raise CorruptFile(f"{name!r}: it grew while it was read")
    return data


# Text.


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text in UTF-8; a ValueError where it is none, or nested too deeply."""
    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if data.count(b"[") + data.count(b"{") > MOST_LEVELS:
        levels = _levels(_JSON_STRING.sub(b"", data).translate(None, _BUT_BRACKETS))
        if levels.max(initial=0) > MOST_LEVELS:
            raise ValueError(_DEEP)
    # Decoded here: the parser would guess an encoding, in which strings may end elsewhere.
    return json.loads(data.decode() if isinstance(text, bytes) else text)


def parse_toml(data: bytes) -> dict[str, Any]:
    """The table of a TOML text; a ValueError where it is none, too deep, or has too many keys."""
    marks = _TOML_QUIET.sub(b"", data.replace(b"\r\n", b"\n")).translate(None, _BUT_MARKS)
    levels, codes = _levels(marks), np.frombuffer(marks, np.uint8)
    if levels.max(initial=0) > MOST_LEVELS:
        raise ValueError(_DEEP)
    if b"." * MOST_KEY_PARTS in marks:
        raise ValueError(f"it has a key of more than {MOST_KEY_PARTS} parts")
    # A bracket at the top that follows no "=" begins the header of a table.
    before = np.concatenate([[ord("\n")], codes])[:-1]
    headers = np.count_nonzero((codes == ord("[")) & (levels == 1) & (before != ord("=")))
    if marks.count(b"=") + headers > MOST_KEYS:
        raise ValueError(f"it has more than {MOST_KEYS} keys")
    return tomllib.loads(data.decode())


def _levels(marks: bytes) -> np.ndarray[Any, np.dtype[np.int32]]:
    """How deep the text is after each mark."""
    steps = np.zeros(256, dtype=np.int8)
    steps[list(b"[{")], steps[list(b"]}")] = 1, -1
    return np.cumsum(steps[np.frombuffer(marks, np.uint8)], dtype=np.int32)


def only_numbers(value: Any) -> bool:
    """Whether nested lists hold numbers alone: one long text would be as long in every entry."""
    if isinstance(value, list):
        return all(map(only_numbers, value))
    return isinstance(value, (int, float))


# Writing.


def write_atomic(path: FilePath, data: bytes, mode: int) -> None:
    """Makes ``path`` a file with exactly these bytes, or changes nothing.

    A temporary file in the same directory is created with the final mode (less the process's
    umask), written, flushed to disk, and renamed. No reader ever sees a part of ``data`` under
    ``path``. A store is never replaced: what was spent is never overwritten. What is written is
    public, so a temporary file of a killed process reveals nothing.
    """
    if _is_store(path):
        raise InvalidArgument(f"path={os.fspath(path)!r} is a store: choose another name")
    directory = os.path.dirname(os.fspath(path)) or "."
    temporary = os.path.join(directory, f".tacit-{secrets.token_hex(8)}.tmp")
    # O_BINARY exists on Windows alone, where line endings would be translated without it.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(temporary, flags, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        # After a rename there is nothing left to remove.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
    if os.name == "posix":  # elsewhere a directory cannot be opened
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_store(path: FilePath) -> bool:
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(15) == b"SQLite format 3"
    except (OSError, CorruptFile):  # unreadable: the rename will say so
        return False
