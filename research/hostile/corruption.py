"""Damage to files: cut, bits flipped, swapped for others, pickles, and forged with care.

A forger knows the format: what is forged has the checksum that belongs to it, where anybody can
compute that.
"""

from __future__ import annotations

import copy
import io
import json
import math
import pickle
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from tacit.simulation.tables import digest

Forger: TypeAlias = Callable[[bytes, int, Any, bool], bytes]
"""Replaces one entry of a file: its bytes, which entry, by what, or whether it is left out."""


class _Bomb:
    """A pickle that leaves a trace when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("executed", "w"))


def _bombs() -> list[bytes]:
    """Pickles, plain and in the clothes of NumPy."""
    plain = pickle.dumps(_Bomb())
    array = np.empty(1, dtype=object)
    array[0] = _Bomb()
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, array, allow_pickle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(npz, format=np.int64(1), version=np.int64(0), actions=array, allow_pickle=True)
    return [plain, npy.getvalue(), npz.getvalue()]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


@st.composite
def corruption(draw: Any) -> tuple[Any, ...]:
    """What is done to a file, as :func:`corrupted` takes it: how, where, and with what."""
    how = draw(
        st.sampled_from(["cut", "flip", "insert", "zero", "whole", "other", "forge", "forge"])
    )
    where = draw(st.floats(0.0, 1.0, exclude_max=True))
    if how == "flip":
        return how, where, draw(st.integers(0, 7))
    if how == "insert":
        return how, where, draw(st.binary(min_size=1, max_size=8))
    if how == "whole":
        return how, where, draw(st.binary(max_size=40) | st.sampled_from(_bombs()))
    if how == "forge":
        return how, where, draw(st.integers(0, 10**6)), draw(_JSON), draw(st.booleans())
    return how, where, draw(st.integers(0, 100))


def corrupted(data: bytes, done: tuple[Any, ...], others: Sequence[bytes], forge: Forger) -> bytes:
    """A file after it was corrupted.

    Args:
        data: what it holds.
        done: what :func:`corruption` drew.
        others: files that it may be swapped for.
        forge: how a file of this kind is forged.
    """
    how, where, what, *more = done
    place = int(where * max(1, len(data)))
    if how == "cut":
        return data[:place]
    if how == "flip":
        changed = bytearray(data)
        changed[place] ^= 1 << what
        return bytes(changed)
    if how == "insert":
        return data[:place] + bytes(what) + data[place:]
    if how == "zero":
        return data[:place] + bytes(min(what, len(data) - place)) + data[place + what :]
    if how == "whole":
        return bytes(what)
    if how == "other":
        return others[int(what) % len(others)]
    new, drop = more
    return forge(data, what, new, drop)


# Forgers.


def not_forged(data: bytes, pick: int, new: Any, drop: bool) -> bytes:
    """For files that nobody forges."""
    return data


def forged_text(data: bytes, pick: int, new: Any, drop: bool) -> bytes:
    """A file of JSON with another entry."""
    return json.dumps(_forged(json.loads(data), pick, new, drop)).encode()


def forged_result(data: bytes, pick: int, new: Any, drop: bool) -> bytes:
    """A result with another entry and the checksum that belongs to it."""
    content = json.loads(data)
    content.pop("sha256")
    content = _forged(content, pick, new, drop)
    return json.dumps(content | {"sha256": digest(content)}).encode()


def forged_archive(data: bytes, pick: int, new: Any, drop: bool) -> bytes:
    """A published policy with another array."""
    stored = dict(np.load(io.BytesIO(data)))
    stored.pop("hash", None)  # a forger would leave it out
    name = sorted(stored)[pick % len(stored)]
    if drop:
        del stored[name]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                stored[name] = np.array(new if new is not None else [math.nan])
            except (ValueError, OverflowError):
                stored[name] = np.zeros((0, 3))
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=True, **stored)
    return buffer.getvalue()


def _forged(value: Any, pick: int, new: Any, drop: bool) -> Any:
    """A JSON value with one of its entries replaced or left out."""
    changed = copy.deepcopy(value)
    spots = _spots(changed)
    if not spots:
        return new
    holder, key = spots[pick % len(spots)]
    if drop:
        del holder[key]
    else:
        holder[key] = new
    return changed


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every entry at any depth: what holds it, and its key in there."""
    if not isinstance(value, (dict, list)):
        return []
    found: list[tuple[Any, Any]] = []
    for key in value if isinstance(value, dict) else range(len(value)):
        found += [(value, key), *_spots(value[key])]
    return found
