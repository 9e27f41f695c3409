"""Files of published policies: their bytes, their limits, and what they hold."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .policies import (
    Arrays,
    Published,
    PublishedGains,
    PublishedMixed,
    PublishedPolicy,
    PublishedValues,
    corner_name,
)
from .simulators import PublishedSimulator, simulator_of
from .trials import PublishedTrial

FORMAT = 1
File = str | os.PathLike[str] | bytes
Loaded = Published | PublishedTrial | PublishedSimulator

MOST_BYTES = 1 << 27
"""What the arrays of a file, and acting by it, may take in memory, by default: 128 MiB each."""

_HEADERS = 1 << 16  # what names and shapes may add to the arrays themselves
_TOO_LARGE = "too large: its arrays take more than {} bytes (see most_bytes)"
_MOST_ARRAYS, _MOST_COMPONENTS, _MOST_COORDINATES = 64, 4096, 4096
_TOLERANCE = 1e-8


def load(file: File, most_bytes: int = MOST_BYTES) -> Loaded:
    """Reads a published file and checks it.

    Args:
        file: its path, or what is in it.
        most_bytes: how much its arrays, and acting by it, may take in memory. Archives can be
            compressed a thousandfold: a small file of a stranger could fill a device.

    Raises:
        ValueError: it is damaged, foreign, too large, no regular file, or of another format.
        OSError: it cannot be opened; a missing one is a FileNotFoundError.
    """
    return _loaded(file, most_bytes)[0]


def about(file: File, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The facts of a published file besides its policy; it is checked, and refused, as by load."""
    return _loaded(file, most_bytes)[1]


def _loaded(file: File, most_bytes: int) -> tuple[Loaded, dict[str, Any]]:
    data = file if isinstance(file, bytes) else contents(file, most_bytes)
    try:
        text = data.lstrip()[:1] == b"{"
        stored = _from_json(data, most_bytes) if text else _arrays(data, most_bytes)
        if "hash" in stored and str(stored["hash"]) != digest(stored):
            raise ValueError("its hash is not that of what it holds: it was changed")
        return _decode(stored, most_bytes), _facts(stored)
    except Exception as error:  # NumPy and zipfile may raise anything; the file is to blame
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        short = (reason or type(error).__name__)[:500]
        name = "this" if isinstance(file, bytes) else repr(os.fspath(file))
        raise ValueError(f"{name} is no published policy: {short}") from error


def contents(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """All of a regular file; a FIFO is not waited for, and a device not read."""
    name, more = os.fspath(path), getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    with open(path, "rb", opener=lambda file, flags: os.open(file, flags | more)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{name!r} is no regular file")
        if status.st_size > most_bytes + _HEADERS:
            raise ValueError(f"{name!r} is {_TOO_LARGE.format(most_bytes)}")
        return file.read(status.st_size)


def _arrays(data: bytes, most_bytes: int) -> Arrays:
    """The arrays of an archive, all of whose sizes are checked before anything is inflated."""
    if not data.startswith(b"PK"):
        raise ValueError("it is no npz archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        # Nothing is inflated beyond what its entry says. Other methods may take any memory.
        if sum(entry.file_size for entry in entries) > most_bytes + _HEADERS:
            raise ValueError(_TOO_LARGE.format(most_bytes))
        methods = {entry.compress_type for entry in entries}
        if len(entries) > _MOST_ARRAYS or methods - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("it has entries that no published policy has")
        return {e.filename.removesuffix(".npy"): _array(archive.read(e)) for e in entries}


def _array(data: bytes) -> NDArray[Any]:
    """One array, if its shape is that of its bytes: else memory is taken for what is not there."""
    file, form = io.BytesIO(data), np.lib.format
    first = form.read_magic(file)[0] == 1
    read = form.read_array_header_1_0 if first else form.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.kind not in "biufU" or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"an array of {dtype} and shape {shape} does not fit its bytes")
    flat = np.frombuffer(data, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _decode(stored: Arrays, most_bytes: int) -> Loaded:
    if (form := whole(stored, "format")) != FORMAT:
        raise ValueError(f"its format is {form}; this loader reads {FORMAT}")
    kind, version = str(stored.get("kind", "table")), whole(stored, "version")
    if kind == "table":
        return _table(stored, version)
    if kind == "mixed":
        name = "actions" if "actions" in stored else "probabilities"
        tables = stored[name]
        if tables.ndim < 1 or not 0 < len(tables) <= _MOST_COMPONENTS:
            raise ValueError(f"there must be 1 to {_MOST_COMPONENTS} components")
        parts = tuple(_table(stored | {name: table}, version) for table in tables)
        return PublishedMixed(parts, check_mixed(len(parts), stored["weights"]), version)
    if kind == "arms":
        texts = stored["parts"].ravel().tolist()[:_MOST_COMPONENTS]
        several: Any = tuple(_loaded(str(text).encode(), most_bytes)[0] for text in texts)
        return PublishedMixed(several, check_mixed(len(several), stored["weights"]), version)
    if kind == "gains":
        gains = numbers(stored, "gains", (-1, -1, -1))
        return PublishedGains(gains, float(numbers(stored, "noise", least=0.0)), version)
    if kind == "trial":
        return _trial(stored, version)
    if kind == "simulator":
        return simulator_of(stored, whole(stored, "horizon"), whole(stored, "n_actions"), version)
    if kind != "q":
        raise ValueError(f"its kind is {kind!r}; this loader does not know it")
    weights = numbers(stored, "weights", (-1, -1))
    check_features(stored, len(weights), most_bytes)
    epsilon = float(numbers(stored, "epsilon", least=0.0, most=1.0))
    order = numbers(stored, "preference", (len(weights),), "iu")
    if not np.array_equal(np.sort(order), np.arange(len(weights))):
        raise ValueError("preference must hold every action once")
    return PublishedValues(weights, epsilon, tuple(order.tolist()), stored, version)


def _trial(stored: Arrays, version: int) -> PublishedTrial:
    """Posterior of effects, and what makes chances of it."""
    mean, actions = numbers(stored, "mean", (-1,)), whole(stored, "n_actions")
    covariance = numbers(stored, "covariance", (len(mean), len(mean)))
    symmetric = np.allclose(covariance, covariance.T)
    if actions < 2 or len(mean) % (1 if actions == 2 else actions) or not symmetric:
        raise ValueError("mean and covariance must be of the effects of two or more actions")
    if not np.linalg.eigvalsh(covariance)[0] > 0.0:
        raise ValueError("covariance must be positive definite")
    low = float(numbers(stored, "low", least=0.0, most=1.0 / actions))
    own, usual = float(numbers(stored, "own", least=0.0)), float(numbers(stored, "usual"))
    return PublishedTrial(
        mean, covariance, actions, low, own, usual, bool(stored["greedy"]), version
    )


def _table(stored: Arrays, version: int) -> PublishedPolicy:
    """One table, with the labels of the file."""
    n_actions = whole(stored, "n_actions")
    chances, actions = stored.get("probabilities"), stored.get("actions")
    check(chances, actions, n_actions)
    states, labels = np.asarray(actions if chances is None else chances).shape[1], list[Any]()
    for name, size in (("state_labels", states), ("action_labels", n_actions)):
        found = stored.get(name)
        texts = () if found is None else tuple(map(str, found.ravel().tolist()))
        kind = None if found is None else (found.dtype.kind, *found.shape, len({*texts}))
        if kind not in (None, ("U", size, size)):
            raise ValueError(f"{name} must be {size} different texts")
        labels.append(texts or None)
    return PublishedPolicy(chances, actions, n_actions, version, *labels)


def signer(file: File, keys: Iterable[str]) -> str:
    """Public key of Ed25519 (hexadecimal), one that is trusted, by which a file is signed.

    It needs cryptography. A ValueError if the file was changed, or is signed by none of them.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    said, trusted = about(file), {*keys}
    for key, _, mark in (str(each).partition(":") for each in said.get("signatures", [])):
        with contextlib.suppress(InvalidSignature):
            if key in trusted:
                text = f"tacit policy {said['hash']}".encode()
                found = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
                found.verify(bytes.fromhex(mark), text)
                return key
    raise ValueError("no key that is trusted has signed this policy")


def digest(stored: Arrays) -> str:
    """The SHA-256 of all arrays but ``hash`` and ``signatures``, by their names, in UTF-8.

    Of each: name, kind (i, f or u) and sizes (with commas), a zero byte behind each of them, and
    the entries in C order: 64 bits, little-endian, or texts with zero bytes between.
    """
    found = hashlib.sha256()
    for name in sorted(set(stored) - {"hash", "signatures"}):
        array = np.asarray(stored[name])
        kind = {"f": "f", "U": "u"}.get(array.dtype.kind, "i")
        found.update(f"{name}\0{kind}\0{','.join(map(str, array.shape))}\0".encode())
        if kind == "u":
            found.update("\0".join(map(str, array.ravel().tolist())).encode())
        else:
            found.update(array.astype("<f8" if kind == "f" else "<i8").tobytes())
    return found.hexdigest()


def _from_json(data: bytes, most_bytes: int) -> Arrays:
    """The arrays of a JSON text."""
    # In memory a number of two letters takes a few dozen bytes.
    if len(data) > most_bytes // 16:
        raise ValueError(_TOO_LARGE.format(most_bytes))
    held = json.loads(data)
    if held.get("tacit") != "policy" or len(held["arrays"]) > _MOST_ARRAYS:
        raise ValueError("it has other entries than a published policy")
    stored = {}
    for name, entry in held["arrays"].items():
        kind, shape, values = entry["dtype"], entry["shape"], entry["data"]
        types = {"int": (int,), "float": (int, float), "text": (str,)}[kind]
        right = all(type(value) in types for value in values)
        if not right or math.prod(map(int, shape)) != len(values):
            raise ValueError(f"{name!r} does not fit its shape or type")
        dtype = {"int": np.int64, "float": np.float64, "text": np.str_}[kind]
        stored[str(name)] = np.array(values, dtype=dtype).reshape(shape)
    return stored


def _facts(stored: Arrays) -> dict[str, Any]:
    """The version, and what the file says of its agent and of its ledger, if anything."""
    said = json.loads(str(stored["about"])) if "about" in stored else {}
    if not isinstance(said, dict):
        raise ValueError("about must be a JSON object")
    found: dict[str, Any] = {**said, "version": whole(stored, "version")}
    for name in {"state_labels", "action_labels", "hash", "signatures"} & set(stored):
        found[name] = stored[name].tolist()
    if "ledger_head" in stored:
        head = str(stored["ledger_head"])
        if not re.fullmatch("[0-9a-f]{64}", head):
            raise ValueError("ledger_head must be 64 hexadecimal digits")
        found |= {"ledger_line": whole(stored, "ledger_line"), "ledger_head": head}
    return found


# Checks of arrays: a ValueError says what is wrong.


def check(
    probabilities: NDArray[np.float64] | None, actions: NDArray[np.int64] | None, n_actions: int
) -> None:
    """Raises a ValueError that names what is wrong with a policy's tables."""
    if (probabilities is None) == (actions is None):
        raise ValueError("give actions or probabilities, and not both")
    name, kinds, axes = "probabilities", "f", "(horizon, states, actions)"
    table: NDArray[Any] = np.asarray(probabilities)
    if actions is not None:
        table, name, kinds, axes = actions, "actions", "iu", "(horizon, states)"
    if table.ndim != axes.count(",") + 1 or table.dtype.kind not in kinds or 0 in table.shape:
        got = f"got {table.dtype} of shape {table.shape}"
        raise ValueError(f"{name} must be of kind {kinds} and shape {axes}, {got}")
    if actions is not None:
        good, must = (actions >= 0) & (actions < n_actions), f"be in 0..{n_actions - 1}"
    elif table.shape[2] != n_actions:
        raise ValueError(f"n_actions must be {table.shape[2]} as in the table, got {n_actions}")
    else:
        # A row with a NaN fails the comparison of its sum.
        good = (table >= 0).all(axis=2) & (np.abs(table.sum(axis=2) - 1.0) <= _TOLERANCE)
        must = "be non-negative and sum to 1"
    if not good.all():
        step, state = map(int, np.unravel_index(int(good.argmin()), good.shape))
        got = f"got {table[step, state].tolist()}"
        raise ValueError(f"{name}[{step}, {state}] must {must}, {got}")


def check_mixed(size: int, weights: NDArray[Any]) -> NDArray[np.float64]:
    """Weights of so many components, read-only; a ValueError says what is wrong."""
    good = weights.shape == (size,) and weights.dtype.kind in "iuf" and bool((weights >= 0).all())
    if not good or not abs(weights.sum() - 1.0) <= _TOLERANCE:
        raise ValueError(f"weights must be {size} non-negative numbers that sum to 1")
    weights = weights.astype(np.float64)
    weights.setflags(write=False)
    return weights


def check_features(stored: Arrays, actions: int, most_bytes: int) -> None:
    """Whether the map has as many features as there are weights, and can be evaluated."""
    kind, count = str(stored["features"]), stored["weights"].shape[1]
    dimension, degree = len(numbers(stored, corner_name(stored), (-1,))), 0
    if dimension > _MOST_COORDINATES:
        raise ValueError(f"a state may have {_MOST_COORDINATES} numbers, got {dimension}")
    if kind == "polynomial":
        if not (stored["scales"] > 0).all():
            raise ValueError("scales must be positive")
        numbers(stored, "clip", least=0.0)
        # There are more features than the degree, so a number beyond them need not be counted.
        degree = min(whole(stored, "degree"), count)
        size = math.comb(dimension + degree, degree)
    elif not (stored["lows"] < numbers(stored, "highs", (dimension,))).all():
        raise ValueError("lows must be less than highs")
    elif kind == "grid":
        points = numbers(stored, "shape", (dimension,), "iu", least=1)
        size = math.prod(points.tolist())
    else:
        raise ValueError(f"its features are {kind!r}; this loader does not know them")
    if (actions, size) != stored["weights"].shape:
        raise ValueError(f"weights of shape {stored['weights'].shape} do not fit the features")
    # Products along each coordinate, and one for each weight; a monomial lists its factors.
    needed = 8 * size * (actions + 4) + (size * (8 * degree + 200) if kind == "polynomial" else 0)
    if needed > most_bytes:
        raise ValueError(f"acting takes {needed} bytes, more than {most_bytes} (see most_bytes)")


def whole(stored: Arrays, name: str) -> int:
    """A whole number of a file, of at least 0."""
    return int(numbers(stored, name, (), "iu", 0))


def numbers(
    stored: Arrays,
    name: str,
    shape: tuple[int, ...] = (),
    kinds: str = "iuf",
    least: float = -math.inf,
    most: float = math.inf,
) -> NDArray[Any]:
    """An array of a file, of finite numbers.

    Args:
        stored: all arrays.
        name: of this one.
        shape: its shape; -1 where any number of entries will do, but not none.
        kinds: of its type, as NumPy calls them; i and u for whole numbers alone.
        least: of its numbers.
        most: of its numbers.
    """
    found = stored[name]
    fits = len(found.shape) == len(shape) and found.dtype.kind in kinds
    fits = fits and all(n == m or m < 0 < n for n, m in zip(found.shape, shape, strict=True))
    if not fits or not (np.isfinite(found) & (least <= found) & (found <= most)).all():
        must = f"be of kind {kinds}, shape {shape} and in [{least:g}, {most:g}]"
        raise ValueError(f"{name} must {must}, got {found.dtype} of shape {found.shape}")
    return found
