"""Files that are read: damaged, forged and hand-made ones.

A hostile file must be refused with nothing executed, in two seconds and 200 MB. Damage is blind
(bits, cuts, splices) or knows the format, and then has the checksums that belong to it; it is drawn
from a seed, so that any of it can be made again.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import pickle
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

import tacit
from research.hostile.arguments import small_agents, small_result
from research.hostile.fuzzing import Broken, EntryPoint
from tacit import published
from tacit.privacy.errors import TacitError
from tacit.simulation.tables import digest, load_results, save_results
from tacit.tabular.world import load_world

Rng: TypeAlias = np.random.Generator
Put: TypeAlias = Callable[[Path], Path]
"""Puts a file into a folder, and says where."""


def file_entries() -> list[EntryPoint]:
    """Files that are read back, damaged or made by hand."""
    return [*(case.damaged for case in file_cases()), *(case.hand_made for case in file_cases())]


# Files that are read.


@dataclass(frozen=True)
class FileCase:
    """A file that is read: how a whole one is written, who reads it, and how its name ends."""

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    typed: tuple[type[Exception], ...] = (TacitError, OSError)
    suffix: str = ""

    @property
    def damaged(self) -> EntryPoint:
        """Damaged copies of the file, read again."""

        def attempt(seed: int, folder: Path) -> None:
            path = folder / f"file{self.suffix}"
            path.write_bytes(damaged(self, seed))
            self._read(path)

        return self._entry("damaged", lambda: st.integers(0, 2**32), attempt)

    @property
    def hand_made(self) -> EntryPoint:
        """Files that were made by hand."""
        made = hand_made(self.name, self.suffix)
        return self._entry(
            "made by hand",
            lambda: st.sampled_from(sorted(made)),
            lambda name, folder: self._read(made[name](folder)),
        )

    def _entry(self, how: str, inputs: Any, attempt: Any) -> EntryPoint:
        limits = {"memory": 200_000_000, "seconds": 20}
        return EntryPoint(f"{self.name}: {how}", inputs, attempt, self.typed, **limits)

    def _read(self, path: Path) -> None:
        try:
            self.read(path)
        finally:
            if (path.parent / "executed").exists():
                raise Broken("a pickle was executed")


@cache
def written(case: FileCase) -> bytes:
    """What a whole file of this kind holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{case.suffix}"
        case.write(path)
        return path.read_bytes()


_WORLD = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2, "name": "w"}
_TOML = b'transitions = [[[1.0], [1.0]]]\nrewards = [[0.1, 0.9]]\nhorizon = 2\nname = "w"\n'


@cache
def file_cases() -> tuple[FileCase, ...]:
    """Every kind of file that the package reads."""
    table = tacit.Policy.deterministic([[0, 1], [1, 0]], 2)
    policies: dict[str, Any] = {"table": table}
    for family in ("lq", "continuous"):
        small = next((small for small in small_agents() if small.family == family), None)
        if small is not None:
            policies[family] = small().policy
    # The loader of devices needs NumPy alone, and so has no errors of ours.
    own: tuple[type[Exception], ...] = (ValueError, OSError)
    world = json.dumps(_WORLD).encode()
    results = {"a": [small_result()], "b": [small_result()]}
    return (
        FileCase("Result.load", small_result().save, tacit.Result.load),
        FileCase("load_world: .json", lambda p: p.write_bytes(world), load_world, suffix=".json"),
        FileCase("load_world: .toml", lambda p: p.write_bytes(_TOML), load_world, suffix=".toml"),
        FileCase("load_results", partial(save_results, results), load_results),
        *(
            FileCase(f"published.load: {name}", policy.publish, _act, own)
            for name, policy in policies.items()
        ),
        FileCase("published.load: JSON", _write_policy, _act, own, suffix=".json"),
    )


def _write_policy(path: Path) -> None:
    """The JSON form, without the hash, which a forger would leave out."""
    policy = tacit.Policy.deterministic([[0, 1], [1, 0]], 2).labelled(["a", "b"], ["x", "y"])
    policy.publish(path)
    held = json.loads(path.read_text())
    del held["arrays"]["hash"]
    path.write_text(json.dumps(held))


def _act(path: Path) -> None:
    """What a device does with a file: it acts in some state."""
    policy: Any = published.load(path)
    rng = np.random.default_rng(0)
    if hasattr(policy, "n_actions"):
        policy.act(0, 0, rng)
    elif hasattr(policy, "gains"):
        policy.act(0, np.zeros(policy.gains.shape[2]), rng)
    else:
        first = policy.stored["sizes"][0] if policy.weights is None else None
        corner = policy.stored.get("scales", policy.stored.get("lows"))
        policy.act(0, np.zeros(len(corner) if first is None else int(first)), rng)


# Damage.

_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 7, 2**31, 10**9, 2**63, 10**400, 0.5, -0.0, 1e308, 5e-324, -1e300),
    *("", "nan", "\x00", "x" * 20_000, "[" * 100, [], [[]], [1, [2]], ["x" * 5000, *[""] * 2000]),
    *([0.1] * 3000, [10**9] * 3, [2**70], {}, {"a": 1}, {"x" * 3000: 0}, [None], [10**400]),
)


def damaged(case: FileCase, seed: int) -> bytes:
    """A file of a kind after something was done to it."""
    rng, data = np.random.default_rng(seed), written(case)
    how = int(rng.integers(8))
    if how == 7:
        return _bombs()[int(rng.integers(3))]
    if how < 3:
        others = [written(other) for other in file_cases() if other is not case]
        changed = _BLIND[how](data, others[int(rng.integers(len(others)))], rng)
        return _sealed(changed) if rng.random() < 0.5 else changed
    value = _VALUES[int(rng.integers(len(_VALUES)))]
    with contextlib.suppress(ValueError, OverflowError):
        if data.startswith(b"PK"):
            return _other_archive(data, value, rng)
        if data.startswith(b"{"):
            return _sealed(json.dumps(_forged(json.loads(data), value, rng)).encode())
    return data[: int(rng.integers(len(data)))]


def _flip(data: bytes, other: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    for place in rng.integers(len(data), size=int(rng.integers(1, 9))).tolist():
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def _cut(data: bytes, other: bytes, rng: Rng) -> bytes:
    return data[: int(rng.integers(len(data)))]


def _splice(data: bytes, other: bytes, rng: Rng) -> bytes:
    """A piece of another file, or of this one, anywhere."""
    other = data if rng.random() < 0.5 else other
    start, stop = sorted(rng.integers(len(other) + 1, size=2).tolist())
    here, there = sorted(rng.integers(len(data) + 1, size=2).tolist())
    return data[:here] + other[start : min(stop, start + 5000)] + data[there:]


_BLIND = (_flip, _cut, _splice)


def _sealed(data: bytes) -> bytes:
    """With the checksum that belongs to it, if it had one."""
    with contextlib.suppress(ValueError, RecursionError):
        content = json.loads(data)
        if isinstance(content, dict) and content.pop("sha256", None):
            return json.dumps(content | {"sha256": digest(content)}).encode()
    return data


def _forged(value: Any, new: Any, rng: Rng) -> Any:
    """A JSON value with one of its entries, at any depth, replaced or left out."""
    changed, spots = copy.deepcopy(value), list[tuple[Any, Any]]()

    def look(at: Any) -> None:
        for key in at if isinstance(at, dict) else range(len(at)):
            spots.append((at, key))
            if isinstance(at[key], (dict, list)):
                look(at[key])

    look(changed)
    holder, key = spots[int(rng.integers(len(spots)))]
    if rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = new
    return changed


def _other_archive(data: bytes, value: Any, rng: Rng) -> bytes:
    """A published policy with arrays that are not its own."""
    stored = dict(np.load(io.BytesIO(data)))
    stored.pop("hash", None)  # a forger would leave it out
    name, how = sorted(stored)[int(rng.integers(len(stored)))], int(rng.integers(5))
    shape = rng.choice([0, 1, 2, 3, 10], size=int(rng.integers(4)))
    if how == 0:
        del stored[name]
    elif how == 1:  # it inflates a thousandfold
        stored[name] = np.zeros(int(rng.choice([10**6, 3 * 10**7])), dtype=np.int8)
    elif how == 2:
        stored[name] = np.full(shape, rng.choice([-1.0, 0.0, 1.0, 60.0, 1e9, np.nan]))
    elif how == 3:
        stored[name] = np.array(int(rng.choice([-1, 0, 2, 60, 10**6, 2**62])))
    else:
        stored[name] = np.array(np.nan if value is None else value)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez_compressed(buffer, **stored)
    return buffer.getvalue()


class _Bomb:
    """A pickle that leaves a trace when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("executed", "w"))


@cache
def _bombs() -> tuple[bytes, ...]:
    """Pickles, plain and in the clothes of NumPy."""
    array = np.empty(1, dtype=object)
    array[0] = _Bomb()
    npy, npz = io.BytesIO(), io.BytesIO()
    np.save(npy, array, allow_pickle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.savez(npz, format=np.int64(1), version=np.int64(0), actions=array, allow_pickle=True)
    return pickle.dumps(_Bomb()), npy.getvalue(), npz.getvalue()


# Files made by hand.


def hand_made(loader: str, suffix: str) -> dict[str, Put]:
    """All hostile contents for a loader, by name: deep, long, or what explodes."""
    contents: dict[str, bytes] = dict(_TEXTS)
    if loader.startswith("published"):
        contents |= _archives()
    name = f"file{suffix}"
    return {key: partial(_put, name, data) for key, data in contents.items()}


def _put(name: str, data: bytes, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


_TEXTS = {
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


def _packed(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in ({"format": 1, "version": 0} | arrays).items():
            entry = io.BytesIO()
            np.save(entry, np.asarray(array))
            archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else entry.getvalue())
    return buffer.getvalue()


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@cache
def _archives() -> dict[str, bytes]:
    """Policies that nobody publishes; tests/test_published.py has more."""
    ones, table = np.ones(12), {"n_actions": 2, "actions": np.zeros((2, 2), np.int64)}
    grid: dict[str, Any] = {"kind": "q", "epsilon": 0.0, "preference": [0, 1], "features": "grid"}
    grid |= {"weights": np.zeros((2, 1)), "lows": -ones, "highs": ones, "shape": [1] * 12}
    gains = {"kind": "gains", "gains": np.ones((1, 1, 1)), "noise": 0.0}
    million = {"lows": np.zeros(10**6), "highs": np.ones(10**6), "shape": [1]}
    made: dict[str, dict[str, Any]] = {
        "a grid of 10^12": grid | {"shape": [10] * 12},
        "a grid of 2^62": grid | {"shape": [2**62] * 12},
        "a grid of less": grid | {"shape": [-1] * 12},
        "a million coordinates": grid | million,
        "a point for a box": grid | {"lows": ones},
        "gains of nothing": gains | {"gains": np.zeros((2, 0, 3))},
        "gains with no number": gains | {"gains": np.full((1, 1, 1), np.nan)},
        "noise that is none": gains | {"noise": np.nan},
        "many arrays": table | {f"a{i}": 0 for i in range(2000)},
        "a deep header": table | {"actions": _header("(" * 9000)},
        "a header that is none": table | {"actions": b"\x93NUMPY\x09\x09"},
        "fields": table | {"actions": np.zeros(2, [("a", "i8"), ("b", "f8")])},
        "text for a number": table | {"version": "one"},
    }
    for shape in ("(1000000000000,)", "(-1,)", "(1,) * 9", "(((((((((1,),),),),),),),),)"):
        header = _header(f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}}}")
        made[f"the shape {shape}"] = table | {"actions": header}
    return {name: _packed(**arrays) for name, arrays in made.items()}
