"""Hostile files that were made by hand: what is no file, what is too large, what explodes."""

from __future__ import annotations

import io
import json
import os
import socket
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Put: TypeAlias = Callable[[Path], Path]
"""Puts a file into a folder, and says where."""


def hand_made(loader: str, suffix: str) -> dict[str, Put]:
    """All hostile files for a loader, by name."""
    found = _no_files(f"file{suffix}")
    contents: dict[str, bytes] = dict(_TEXTS)
    if suffix == ".toml":
        contents |= _tomls()
    if suffix == ".json":
        contents |= _worlds()
    if loader.startswith(("published", "Policy")):
        contents |= _archives()
    return found | {name: _content(f"file{suffix}", data) for name, data in contents.items()}


def _content(name: str, data: bytes) -> Put:
    def put(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return put


# For every loader: what is no regular file, and what is too large.


def _no_files(name: str) -> dict[str, Put]:
    def linked(target: str) -> Put:
        def put(folder: Path) -> Path:
            (folder / name).symlink_to(target)
            return folder / name

        return put

    def fifo(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    def linked_fifo(folder: Path) -> Path:
        if not (folder / "fifo").exists():
            os.mkfifo(folder / "fifo")
        return linked("fifo")(folder)

    def bound(folder: Path) -> Path:
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(name)  # the folder is the current one: such names are short
        return folder / name

    def sparse(folder: Path) -> Path:
        (folder / name).touch()
        os.truncate(folder / name, 20 << 30)
        return folder / name

    devices = ("/dev/zero", "/dev/null", "/dev/full", "/dev/urandom", "/dev/tty", "/proc/self/maps")
    return {
        "a FIFO": fifo,
        "a link to a FIFO": linked_fifo,
        "a socket": bound,
        "20 GiB of nothing": sparse,
        "a directory": linked("/"),
        "a link to nothing": linked("missing"),
        "a link to itself": linked(name),
    } | {f"a link to {device}": linked(device) for device in devices}


_TEXTS: Mapping[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(1 << 20),
    "nested lists": b"[" * 100_000,
    "nested lists that end": b"[" * 50_000 + b"]" * 50_000,
    "nested tables": b'{"a":' * 50_000,
    "nested in UTF-16": ("[" * 50_000).encode("utf-16"),
    "nested behind a text": b'["\\\\", "\\"", ' + b"[" * 50_000,
    "empty lists": b"[" + b"[]," * 300_000 + b"0]",
    "a long number": b"9" * 1_000_000,
    "a long text": b'"' + b"x" * 1_000_000,
    "quotes": b'"\\' * 500_000,
    "a byte order mark": b"\xef\xbb\xbf{}",
}


# Worlds.


@cache
def _tomls() -> dict[str, bytes]:
    world = b"transitions = [[[1.0], [1.0]]]\nrewards = [[0.1, 0.9]]\nhorizon = 2\n"
    found = {
        "a key of many parts": b"a." * 30_000 + b"a = 1",
        "a quoted key of many parts": b'"a".' * 15_000 + b"a = 1",
        "a spaced key of many parts": b"a . " * 15_000 + b"a = 1",
        "a header of many parts": b"[" + b"a." * 30_000 + b"a]",
        "an inner key of many parts": b"x = {" + b"a." * 30_000 + b"a = 1}",
        "many keys of some parts": b"".join(
            b"k%d." % i + b"a." * 14 + b"a=1\n" for i in range(2000)
        ),
        "many headers": b"".join(b"[k%d.a.a.a.a.a.a.a]\n" % i for i in range(3000)),
        "many tables of a list": b"[[a]]\n" * 10_000,
        "nested lists of a key": b"x = " + b"[" * 30_000,
        "nested tables of a key": b"x = " + b"{a=" * 20_000,
        "nested behind five quotes": b'x = ["""a""""", ' + b"[" * 30_000,
        "nested behind five apostrophes": b"x = ['''a''''', " + b"[" * 30_000,
        "nested behind a comment": b"# ' \"\nx = " + b"[" * 30_000,
        "nested behind an escape": b'x = ["\\"", ' + b"[" * 30_000,
        "a long hexadecimal": b"horizon = 0x" + b"f" * 50_000,
        "a long date": b"horizon = 1979-05-27T07:32:00." + b"9" * 50_000,
        "long texts": b"rewards = ['" + b"x" * 30_000 + b"'" + b",''" * 10_000 + b"]\n",
        "unknown keys": world + b"".join(b"k%d = 1\n" % i for i in range(900)),
        "a long key": world + b"k" * 1_000_000 + b" = 1",
    }
    return found | {
        f"a horizon of {h!r}": world.replace(b"2", h) for h in (b"0", b"-1", b"1" + b"0" * 30)
    }


def _worlds() -> dict[str, bytes]:
    good: dict[str, Any] = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2}
    long = ["x" * 30_000, *[""] * 10_000]
    changes: list[dict[str, Any]] = [
        {"rewards": long},
        {"rewards": {"values": long, "probabilities": [0]}},
        {"transitions": [[long]]},
        {"start": long},
        {"horizon": 10**30},
        {"horizon": 1e300},
        {"horizon": 10**12},
        {"start": 10**30},
        {"start": -1},
        {"rewards": [[10**400, 0]]},
        {"rewards": {"values": [], "probabilities": []}},
        {"transitions": []},
        {"transitions": [[[]]] * 1000},
        {"name": long},
        {"x" * 1_000_000: 1},
    ]
    return {f"world {i}": json.dumps(good | change).encode() for i, change in enumerate(changes)}


# Published policies.


def _packed(method: int = zipfile.ZIP_DEFLATED, /, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in ({"format": 1, "version": 0} | arrays).items():
            entry = io.BytesIO()
            np.save(entry, np.asarray(array))
            archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else entry.getvalue())
    return buffer.getvalue()


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@cache
def _archives() -> dict[str, bytes]:
    q: dict[str, Any] = {"kind": "q", "epsilon": 0.0, "preference": [0, 1]}
    two, ones = np.zeros((2, 1)), np.ones(12)
    scaled = q | {"features": "polynomial", "clip": 1.0, "scales": ones}
    grid = q | {"features": "grid", "lows": -ones, "highs": ones}
    table: dict[str, Any] = {"n_actions": 2, "actions": np.zeros((2, 2), np.int64)}
    many = {f"a{i}": 0 for i in range(2000)}
    shapes = ("(1000000000000,)", "(-1,)", "(1,) * 9", "(((((((((1,),),),),),),),),)", "(2**70,)")
    headers = {
        f"the shape {shape}": _packed(
            **table
            | {"actions": _header(f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}")}
        )
        for shape in shapes
    }
    depth = _header("(" * 9000)
    return headers | {
        "degree 60 in 12 dimensions": _packed(**scaled, degree=60, weights=two),
        "a degree of 2^62": _packed(**scaled, degree=2**62, weights=two),
        "a degree below 0": _packed(**scaled, degree=-1, weights=two),
        "one long monomial": _packed(
            **scaled | {"scales": np.ones(1)}, degree=29_999, weights=np.zeros((2, 30_000))
        ),
        "a scale for all": _packed(**scaled | {"scales": 1.0}, degree=3, weights=two),
        "scales of nothing": _packed(**scaled | {"scales": np.zeros(0)}, degree=3, weights=two),
        "a grid of 10^12": _packed(**grid, shape=[10] * 12, weights=two),
        "a grid of 2^62": _packed(**grid, shape=[2**62] * 12, weights=two),
        "a grid of less": _packed(**grid, shape=[-1] * 12, weights=two),
        "a million coordinates": _packed(
            **grid | {"lows": np.zeros(10**6), "highs": np.ones(10**6)}, shape=[1], weights=two
        ),
        "a point for a box": _packed(**grid | {"lows": ones}, shape=[1] * 12, weights=two),
        "no features": _packed(**q, features="none", weights=two),
        "a preference of floats": _packed(
            **scaled | {"preference": [0.0, 1.0]}, degree=0, weights=two
        ),
        "gains of nothing": _packed(kind="gains", gains=np.zeros((2, 0, 3)), noise=0.0),
        "gains with no number": _packed(kind="gains", gains=np.full((1, 1, 1), np.nan), noise=0.0),
        "noise that is none": _packed(kind="gains", gains=np.ones((1, 1, 1)), noise=np.nan),
        "a thousandfold": _packed(**table, junk=np.zeros(150_000_000, np.int8)),
        "many arrays": _packed(**table, **many),
        "packed by LZMA": _packed(zipfile.ZIP_LZMA, **table),
        "packed by bzip2": _packed(zipfile.ZIP_BZIP2, **table),
        "a deep header": _packed(**table | {"actions": depth}),
        "a header that is none": _packed(**table | {"actions": b"\x93NUMPY\x09\x09"}),
        "fields": _packed(**table | {"actions": np.zeros(2, [("a", "i8"), ("b", "f8")])}),
        "text for a number": _packed(**table | {"version": "one"}),
        "numbers for a number": _packed(**table | {"version": [1]}),
        "an array alone": _header("{'descr': '<i8', 'fortran_order': False, 'shape': ()}")
        + bytes(8),
    }
