"""What is on disk while a real run goes on: for nobody else to read, in time, and nothing more.

The directory is fresh and the umask 0. All modes are looked at after every call that can make or
rename a file.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tacit.privacy.curator import Release
from tacit.privacy.curator import JointCurator
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block
from tacit.testing.check_agent import Outcome
from tacit.testing.watched_gate import overheard
from tests.own_path import recorded as real

_CALLS = ("open", "replace", "rename", "link", "symlink", "chmod", "fsync", "write", "mkdir")


class _Disk:
    """Looks at a directory after every call, and remembers what was made elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wrong, self._synced = folder, list[str](), dict[int, bool]()

    def _look(self) -> None:
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                mode = path.lstat().st_mode & 0o777
                if mode & 0o077:
                    self.wrong.append(f"a file named {path.name[:7]}... has mode {mode:04o}")

    def _call(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            result = original(*arguments, **options)
            if name in ("write", "fsync"):
                self._synced[os.fstat(arguments[0]).st_ino] = name == "fsync"
            elif name == "open" and arguments[1:] and arguments[1] & (os.O_CREAT | os.O_TRUNC):
                self._outside(arguments[0])
            self._look()
            return result

        return call

    def _opened(self, file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        result = _open(file, mode, *more, **options)
        if not isinstance(file, int) and set(mode) & set("wax+"):
            self._outside(file)
        self._look()
        return result

    def _outside(self, path: Any) -> None:
        where = Path(os.fsdecode(path)).resolve()
        if where.parent != self.folder.resolve() and str(where) != os.devnull:
            self.wrong.append(f"it writes to {where}")

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Looks while this lasts."""
        with contextlib.ExitStack() as stack:
            for name in _CALLS:
                patched = self._call(name, getattr(os, name))
                stack.enter_context(mock.patch.object(os, name, patched))
            for module in (builtins, io):
                stack.enter_context(mock.patch.object(module, "open", self._opened))
            yield

    def flushed(self, path: Path) -> bool:
        """Whether a file was flushed after the last write that we saw."""
        return self._synced.get(path.stat().st_ino, False)


_open = open


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """A run with ledger and autosave, or a save of a local one."""
    folder, before = trial.folder("files"), os.umask(0)
    try:
        wrong = _saved(trial, folder) if trial.privacy.local else _run(trial, folder)
    finally:
        os.umask(before)
    return [real.judged("files", wrong)]


def _marked(pool: Block) -> tuple[Block, list[str], list[bytes]]:
    """Users whose fractions and ids nobody else has, and how they would look in a file."""
    rng, arrays = np.random.default_rng(77), dict(pool.arrays)
    ids = [f"person-{i}-{'x' * 9}" for i in range(pool.users)]
    traces = [name.encode() for name in ids]
    for name, array in arrays.items():
        if array.dtype.kind == "f" and np.isfinite(array).all() and array.size:
            low, high = float(array.min()), float(array.max())
            made = rng.uniform(low, high if high > low else low + 1.0, array.shape)
            arrays[name] = made.astype(array.dtype)
            for value in np.ravel(arrays[name])[:: max(1, array.size // 200)].tolist():
                traces += [struct.pack("<d", value), repr(value)[:12].encode()]
    return Block(pool.users, arrays), ids, [t for t in traces if len(t) > 7]


def _run(trial: real.RealTrial, folder: Path) -> list[str]:
    ledger, state, disk = folder / "ledger", folder / "state", _Disk(folder)
    pool, ids, traces = _marked(trial.pool)
    found, charges, original = list[str](), [0], JointCurator._publish

    def drawn(draw: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            lines = ledger.read_text().splitlines()
            seen = sum('"costs": {}' not in line for line in lines[1:])
            if seen <= charges[0] or not disk.flushed(ledger):
                found.append("noise was drawn before its charge was on the disk")
            charges[0] = seen
            return draw(*arguments, **options)

        return call

    def publish(self: JointCurator, release: Release) -> Release:
        result, data = original(self, release), state.read_bytes()
        held = [np.asarray(part, dtype="<f8").tobytes() in data for part in result.parts.values()]
        if not all(held) or not disk.flushed(state):
            found.append("a release was returned before the state that holds it was on the disk")
        return result

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Noise, "steps", drawn(Noise.steps)))
        stack.enter_context(mock.patch.object(JointCurator, "_publish", publish))
        said = stack.enter_context(overheard())
        stack.enter_context(disk.watched())
        agent = trial.make(ledger=ledger, autosave=state)
        real.serve(agent, pool, ids)
        agent.save(folder / "saved")
    found += disk.wrong + [f"a real run says {words[:60]!r}" for words in said]
    left = sorted(p.name for p in folder.iterdir())
    # Many people lie in a file of their own beside the state, one at most.
    beside = [folder / name for name in left if name.startswith("state.") and name.endswith(".ids")]
    expected = sorted(["ledger", "saved", "state", *(path.name for path in beside[:1])])
    if left != expected or not charges[0]:
        found.append(f"after {charges[0]} charges the files are {left}")
    agent.publish(trial.trial.folder / "files-policy")
    for path in (ledger, trial.trial.folder / "files-policy"):
        if any(trace in path.read_bytes() for trace in traces):
            found.append(f"a user's own number, or id, is in {path.name}")
    rows = [*_rows(pool, agent.served, agent.statistic.private_columns)]
    for path in (state, folder / "saved", *beside):
        data = path.read_bytes()
        if any(who.encode() in data for who in ids):
            found.append("a user's id is in the state")
        if any(row in data for row in rows):
            found.append("raw data of a block that was released and forgotten is in the state")
    return found


def _rows(pool: Block, users: int, private: frozenset[str] | None) -> Iterator[bytes]:
    """How the private fractions of the first users lie in a file, of some of them.

    All of a user's at once: a sum of one cell, which a state may hold, can be that of one number.
    """
    for name, array in pool.arrays.items():
        hidden = private is None or name in private
        if hidden and array.dtype.kind == "f" and array[:1].nbytes > 8:
            for row in array[: users : max(1, users // 200)]:
                yield np.ascontiguousarray(row).tobytes()


def _saved(trial: real.RealTrial, folder: Path) -> list[str]:
    """A local agent has one file, and no user's number in it."""
    agent, disk = trial.make(), _Disk(folder)
    pool, ids, traces = _marked(trial.pool)
    with disk.watched():
        real.serve(agent, pool, ids, 0, agent.block_users)
        agent.save(folder / "saved")
    data, found = (folder / "saved").read_bytes(), disk.wrong
    if any(trace in data for trace in traces):
        found.append("a user's own number, or id, is in the save of a local agent")
    if [p.name for p in folder.iterdir()] != ["saved"]:
        found.append("files are left")
    return found
