"""Mutated files, many and quickly made: what :mod:`~research.hostile.loaders` reads.

Damage is blind (bits, cuts, splices, numbers, headers) or knows the format, and then has the
checksums that belong to it. A mutation is drawn from a seed, so any of them can be made again.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from research.hostile.corruption import Forger
from tacit.simulation.tables import digest

Rng = np.random.Generator

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NUMBERS = (
    *(b"0", b"-1", b"1", b"65536", b"2147483648", b"1000000000", b"9223372036854775807"),
    *(b"18446744073709551616", b"1" + b"0" * 18, b"1" + b"0" * 400, b"9" * 5000),
    *(b"1e308", b"-1e308", b"1e999", b"1e-320", b"NaN", b"-Infinity", b"0.30000000000000004"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 10**9, 2**63 - 1, 2**63, 2**64, 10**18, 10**400),
    *(0.5, -0.0, 1e308, 5e-324, -1e300, "", "a", "nan", "\x00", "x" * 20_000, "é", "[" * 100),
    *(
        [],
        [0],
        [[]],
        [1, [2]],
        ["x" * 5000, *[""] * 2000],
        [0.1] * 3000,
        [10**9] * 3,
        [-1],
        [2**70],
    ),
    *({}, {"a": 1}, {"": {}}, {"x" * 3000: 0}, [None], [True], [{}], [1e308, -1e308], [10**400]),
)


def mutated(data: bytes, others: Sequence[bytes], forge: Forger, rng: Rng) -> bytes:
    """A file after something was done to it."""
    how = int(rng.integers(10))
    if how < 5:
        changed = _BLIND[how](data, others, rng)
        return _resealed(changed) if rng.random() < 0.5 else changed
    if how == 5 and data.startswith(b"PK"):
        return _other_archive(data, rng)
    value = _VALUES[int(rng.integers(len(_VALUES)))]
    with contextlib.suppress(ValueError, OverflowError):
        return forge(data, int(rng.integers(1 << 30)), value, bool(rng.random() < 0.2))
    return data[: int(rng.integers(len(data)))]


# Blind.


def _flip(data: bytes, others: Sequence[bytes], rng: Rng) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(len(data), size=int(rng.integers(1, 9))).tolist():
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _cut(data: bytes, others: Sequence[bytes], rng: Rng) -> bytes:
    return data[: int(rng.integers(len(data)))]


def _splice(data: bytes, others: Sequence[bytes], rng: Rng) -> bytes:
    """A piece of another file, or of this one, anywhere."""
    other = data if rng.random() < 0.5 else others[int(rng.integers(len(others)))]
    start, stop = sorted(rng.integers(len(other) + 1, size=2).tolist())
    here, there = sorted(rng.integers(len(data) + 1, size=2).tolist())
    return data[:here] + other[start : min(stop, start + 5000)] + data[there:]


def _renumber(data: bytes, others: Sequence[bytes], rng: Rng) -> bytes:
    """Numbers in the text become huge ones."""
    found = list(_NUMBER.finditer(data[: 1 << 16]))
    if not found:
        return _flip(data, others, rng)
    for place in sorted(rng.integers(len(found), size=int(rng.integers(1, 4))).tolist())[::-1]:
        new = _NUMBERS[int(rng.integers(len(_NUMBERS)))]
        data = data[: found[place].start()] + new + data[found[place].end() :]
    return data


def _behead(data: bytes, others: Sequence[bytes], rng: Rng) -> bytes:
    """The header of another file."""
    length = int(rng.choice([4, 8, 12, 20, 64, 256]))
    return others[int(rng.integers(len(others)))][:length] + data[length:]


_BLIND = (_flip, _cut, _splice, _renumber, _behead)


# With the checksums that belong to it.


def _resealed(data: bytes) -> bytes:
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(data)
        if isinstance(content, dict) and content.pop("sha256", None):
            return json.dumps(content | {"sha256": digest(content)}).encode()
    return data


def _other_archive(data: bytes, rng: Rng) -> bytes:
    """A published policy with arrays, or headers of arrays, that are not its own."""
    stored = dict(np.load(io.BytesIO(data)))
    stored.pop("hash", None)  # a forger would leave it out
    name, how = sorted(stored)[int(rng.integers(len(stored)))], int(rng.integers(4))
    if how == 0:  # it inflates a thousandfold
        stored[name] = np.zeros(int(rng.choice([10**6, 3 * 10**7])), dtype=np.int8)
    elif how == 1:
        shape = rng.choice([0, 1, 2, 3, 10], size=int(rng.integers(4)))
        stored[name] = np.full(shape, rng.choice([-1.0, 0.0, 1.0, 60.0, 1e9, np.nan]))
    elif how == 2:
        stored[name] = np.array(int(rng.choice([-1, 0, 2, 60, 10**6, 2**62])))
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez_compressed(buffer, **stored)
    return buffer.getvalue() if how < 3 else _repacked(buffer.getvalue(), rng)


def _repacked(data: bytes, rng: Rng) -> bytes:
    """The bytes in some entry changed, and the sums of the archive right."""
    buffer = io.BytesIO()
    method = int(rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w", method) as new:
        for entry in old.namelist():
            content = old.read(entry)
            if rng.random() < 0.5:
                content = _BLIND[int(rng.choice([0, 1, 3]))](content, (), rng)
            new.writestr(entry, content)
    return buffer.getvalue()
