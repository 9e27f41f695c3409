"""Files: corrupted ones that are read back, and writes that fail halfway.

A corrupted file must be refused with nothing executed and nothing changed. A write that fails must
leave the old file or none, and a secret file must never be readable by others.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
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
    forged_ledger,
    forged_result,
    forged_state,
    forged_text,
    not_forged,
)
from research.hostile.fuzzing import Broken, EntryPoint, Strategy
from research.hostile.small import (
    JOINT,
    Small,
    small_agents,
    small_curator,
    small_result,
    small_ucbvi,
)
from tacit import published
from tacit.privacy.counters import Counter
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import TacitError
from tacit.simulation.tables import load_results
from tacit.tabular.world import load_world
from tacit.testing.watched_gate import difference, snapshot


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
        exact: whether every byte of it counts, so that none may change.
        suffix: how the file's name ends.
    """

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    forge: Forger
    typed: tuple[type[Exception], ...] = (TacitError, OSError)
    exact: bool = False
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
        # Bytes that mean nothing may change; a different file may not pass for the whole one.
        if self.exact and done[0] in ("cut", "flip", "insert", "zero") and data != whole:
            raise Broken("a corrupted file was read")


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
        LEDGER,
        FileCase("Result.load", small_result().save, tacit.Result.load, forged_result),
        FileCase("Guarantee.from_json", _write_guarantee, _read_guarantee, forged_text),
        FileCase("load_world: .json", _write_json, load_world, forged_text, suffix=".json"),
        FileCase("load_world: .toml", _write_toml, load_world, not_forged, suffix=".toml"),
        FileCase("load_results", _write_results, load_results, forged_text),
        FileCase("Counter.load", _write_counter, Counter.load, forged_state, exact=True),
        FileCase("curator: load", small_curator().save, _read_curator, forged_state, exact=True),
        FileCase(
            "Policy.load",
            tacit.Policy.deterministic([[0, 1], [1, 0]], 2).publish,
            tacit.Policy.load,
            forged_archive,
        ),
        *_policy_cases(),
        *_agent_cases(),
    )


def write_ledger(path: Path) -> None:
    """A ledger with a few charges."""
    ledger = tacit.Ledger.create(path, 1.0, unit="mu^2")
    for place in range(3):
        ledger.charge({f"block {place}": 0.5}, label="release")


LEDGER = FileCase("Ledger.open", write_ledger, tacit.Ledger.open, forged_ledger)
"""The ledger, which the command line reads too."""


def _write_guarantee(path: Path) -> None:
    path.write_text(JOINT.curator(noise_seed=0).guarantee.to_json())


def _read_guarantee(path: Path) -> None:
    tacit.Guarantee.from_json(path.read_text(errors="surrogateescape"))


def _write_json(path: Path) -> None:
    table = {"transitions": [[[1.0], [1.0]]], "rewards": [[0.1, 0.9]], "horizon": 2, "name": "w"}
    path.write_text(json.dumps(table))


def _write_toml(path: Path) -> None:
    path.write_text(
        'transitions = [[[1.0], [1.0]]]\nrewards = [[0.1, 0.9]]\nhorizon = 2\nname = "w"\n'
    )


def _write_results(path: Path) -> None:
    result = small_result().to_dict()
    content = {"format": "tacit-runs", "version": 1, "results": {"a": [result], "b": [result]}}
    path.write_text(json.dumps(content))


def _write_counter(path: Path) -> None:
    counter = tacit.counter(tacit.Budget(1.0, 1e-6), 1.0, 8, (2,), noise_seed=0)
    counter.release(np.ones(2))
    counter.save(path)


def _read_curator(path: Path) -> None:
    JointCurator.load(path)


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


def _agent_cases() -> list[FileCase]:
    """One agent of every family and every privacy model that the small agents have."""
    kinds: dict[tuple[str, str], Small] = {}
    for small in small_agents():
        if hasattr(small(), "save"):
            kinds.setdefault((small.family, type(small.privacy).__name__), small)
    return [_agent_case(small) for small in kinds.values()]


def _agent_case(small: Small) -> FileCase:
    def write(path: Path) -> None:
        agent = small()
        agent.learn(small.episodes(agent, agent.block_users))
        agent.save(path)
        if _mode(path) != 0o600:
            raise Broken("a save can be read by others")

    def read(path: Path) -> None:
        agent = small()
        before, curator = snapshot(agent), getattr(agent, "_curator", None)
        try:
            agent.load(path)
        except TacitError as refusal:
            differing = difference(before, snapshot(agent))
            if differing or getattr(agent, "_curator", None) is not curator:
                raise Broken(f"was refused, and yet {differing} changed ({refusal})") from refusal
            raise

    return FileCase(f"{small.name}: load", write, read, forged_state, exact=True)


# Writes that fail.


def _failures() -> Strategy:
    """Who writes, at the how many-th call of what the system fails, and whether a file is there."""
    writers = st.integers(0, len(_writers()) - 1)
    calls = st.sampled_from(["os.replace", "os.fsync", "os.link", "os.open", "none", "folder"])
    return st.tuples(writers, calls, st.integers(1, 2), st.booleans())


@cache
def _writers() -> tuple[tuple[str, Callable[[Path], Any], int | None], ...]:
    """What writes a file, and the mode that this must have, if it holds a secret."""
    agent = small_ucbvi()
    return (
        ("agent.save", agent.save, 0o600),
        ("agent.publish", agent.publish, None),
        ("curator.save", small_curator().save, 0o600),
        ("result.save", small_result().save, None),
        ("Ledger.create", lambda path: tacit.Ledger.create(path, 1.0, unit="mu^2"), 0o600),
    )


def _attempt_write(value: tuple[int, str, int, bool], folder: Path) -> None:
    """A write during which the system fails: the old file is there, or none, and nothing else."""
    which, call, when, old = value
    name, write, mode = _writers()[which]
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
    if mode is not None and _mode(path) != mode:
        raise Broken(f"{name} made a file with mode {_mode(path):o}")


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


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
