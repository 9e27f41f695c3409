"""Files: corrupted ones that are read back, and writes that fail halfway.

A corrupted file must be refused with nothing executed. A write that fails must leave the old file
or none.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import strategies as st

import tacit
from research.hostile.corruption import (
    Forger,
    corrupted,
    corruption,
    forged_archive,
    forged_result,
    forged_text,
    not_forged,
)
from research.hostile.fuzzing import Broken, EntryPoint, Strategy
from research.hostile.small import small_agents, small_result, small_ucbvi
from tacit import published
from tacit.privacy.errors import TacitError
from tacit.simulation.tables import load_results, save_results
from tacit.tabular.world import load_world


def file_entries() -> list[EntryPoint]:
    """Files that are read back, corrupted, forged or swapped, and writes that fail."""
    return [
        *(case.entry for case in file_cases()),
        EntryPoint("writes that fail", _failures, _attempt_write, (OSError, TacitError)),
    ]


# Files that are read.


@dataclass(frozen=True)
class FileCase:
    """A file that is read, with what is written into it.

    Attributes:
        name: how reading it is called in the report.
        write: writes a whole one.
        read: reads it.
        forge: how one is forged.
        typed: with which errors it may be refused.
        suffix: how the file's name ends.
    """

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    forge: Forger
    typed: tuple[type[Exception], ...] = (TacitError, OSError)
    suffix: str = ""

    @property
    def entry(self) -> EntryPoint:
        """Damaged copies of the file, read again."""
        return EntryPoint(self.name, corruption, self.attempt, self.typed)

    def attempt(self, done: tuple[Any, ...], folder: Path) -> None:
        """Writes, corrupts and reads."""
        whole = written(self)
        others = [written(case) for case in file_cases() if case.name != self.name]
        data = corrupted(whole, done, others, self.forge)
        path = folder / f"file{self.suffix}"
        path.write_bytes(data)
        try:
            self.read(path)
        finally:
            if (folder / "executed").exists():
                raise Broken("a pickle was executed")


@cache
def written(case: FileCase) -> bytes:
    """What a whole file of this kind holds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{case.suffix}"
        case.write(path)
        return path.read_bytes()


@cache
def file_cases() -> tuple[FileCase, ...]:
    """Every kind of file that the package reads."""
    return (
        FileCase("Result.load", small_result().save, tacit.Result.load, forged_result),
        FileCase("load_world: .json", _write_json, load_world, forged_text, suffix=".json"),
        FileCase("load_world: .toml", _write_toml, load_world, not_forged, suffix=".toml"),
        FileCase("load_results", _write_results, load_results, forged_result),
        *_policy_cases(),
    )


def _write_json(path: Path) -> None:
    table = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2, "name": "w"}
    path.write_text(json.dumps(table))


def _write_toml(path: Path) -> None:
    path.write_text(
        'transitions = [[[1.0], [1.0]]]\nrewards = [[0.1, 0.9]]\nhorizon = 2\nname = "w"\n'
    )


def _write_results(path: Path) -> None:
    save_results({"a": [small_result()], "b": [small_result()]}, path)


def _policy_cases() -> list[FileCase]:
    """A published policy of each kind, read by a device."""
    policies: dict[str, Any] = {"table": tacit.Policy.deterministic([[0, 1], [1, 0]], 2)}
    for family in ("lq", "continuous"):
        small = next((small for small in small_agents() if small.family == family), None)
        if small is not None:
            policies[family] = small().policy
    # The loader needs NumPy alone, and so has no errors of ours.
    typed = (ValueError, OSError)
    text = FileCase("published.load: JSON", _write_policy, _act, forged_text, typed, suffix=".json")
    return [
        *(
            FileCase(f"published.load: {name}", policy.publish, _act, forged_archive, typed)
            for name, policy in policies.items()
        ),
        text,
    ]


def _write_policy(path: Path) -> None:
    """The JSON form, without the hash, which a forger would leave out."""
    policy = tacit.Policy.deterministic([[0, 1], [1, 0]], 2).labelled(["a", "b"], ["x", "y"])
    whole = path.with_name("whole.json")
    policy.publish(whole)
    held = json.loads(whole.read_text())
    del held["arrays"]["hash"]
    path.write_text(json.dumps(held))
    whole.unlink()


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


# Writes that fail.


def _failures() -> Strategy:
    """Who writes, at the how many-th call of what the system fails, and whether a file is there."""
    writers = st.integers(0, len(_writers()) - 1)
    calls = st.sampled_from(["os.replace", "os.fsync", "os.open", "none", "folder"])
    return st.tuples(writers, calls, st.integers(1, 2), st.booleans())


@cache
def _writers() -> tuple[tuple[str, Callable[[Path], Any]], ...]:
    """What writes a file."""
    return ("agent.publish", small_ucbvi().publish), ("result.save", small_result().save)


def _attempt_write(value: tuple[int, str, int, bool], folder: Path) -> None:
    """A write during which the system fails: the old file is there, or none, and nothing else."""
    which, call, when, old = value
    name, write = _writers()[which]
    path = folder / "file"
    if old:
        path.write_bytes(b"old")
    if call == "folder":
        write(folder / "missing" / "file")
        return
    try:
        with _failing(call, when, path):
            write(path)
    except OSError:
        held = path.read_bytes() if path.exists() else None
        late = call in ("os.fsync", "os.open") and when == 2  # making the folder durable
        if held != (b"old" if old else None) and not late:
            raise Broken(f"{name} failed and left {held!r:.60}") from None
        raise


@contextlib.contextmanager
def _failing(call: str, when: int, path: Path) -> Iterator[None]:
    """The disk is full at the so many-th call of a function of the system; of none, never."""
    if call == "none":
        yield
        return
    original = getattr(os, call.removeprefix("os."))
    count = 0

    def fails(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == when:
            raise OSError(28, "No space left on device", str(path))
        return original(*arguments, **options)

    with mock.patch(call, fails):
        yield
