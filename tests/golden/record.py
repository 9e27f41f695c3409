"""Hashes of what every agent publishes, saves and earns, to compare with those of another version.

``python -m tests.golden.record`` says what differs from ``golden.json``; with ``--write`` it
records the file anew, which is right only where a difference is meant. Names of rows, or parts of
them, after the options restrict both to these rows.

Agents are made through the public names alone, but for ``Curator._publish``, which every release
passes on its way out.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tacit
import tacit.privacy.deviate_loops  # noise from known bytes is the same in every process
from tacit.registry import build_world, choose_agent
from tests.golden.experiments import EXPERIMENTS, result_data
from tests.golden.rows import ROWS, Row

_PACKAGES = ("numpy", "scipy", "numba", "jax", "jaxlib", "optax", "opendp", "matplotlib")
FILE = Path(__file__).with_name("golden.json")


# Hashes.


class Digest:
    """A hash of numbers, texts and arrays, each with its type."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, value: Any) -> Digest:
        """Takes a value in; dictionaries by sorted keys."""
        if isinstance(value, np.integer | np.bool_):
            value = value.item()
        if isinstance(value, dict):
            self._hash.update(b"{%d" % len(value))
            for key in sorted(value, key=str):
                self.add(str(key)).add(value[key])
        elif isinstance(value, (list, tuple)):
            self._hash.update(b"[%d" % len(value))
            for item in value:
                self.add(item)
        elif value is None or isinstance(value, (bool, int, str)):
            self._hash.update(f"{type(value).__name__} {value!r};".encode())
        else:
            self._hash.update(_bytes(np.asarray(value)))
        return self

    @property
    def text(self) -> str:
        """In short."""
        return self._hash.hexdigest()[:16]


def digest(value: Any) -> str:
    """The hash of one value."""
    return Digest().add(value).text


def _bytes(array: np.ndarray) -> bytes:
    """An array with its type and shape; all NaNs are one."""
    array = np.array(array, order="C")
    if array.dtype.kind == "O":
        raise TypeError(f"no numbers: {array!r}")
    if array.dtype.kind in "fc":
        array[np.isnan(array)] = np.nan
    return f"{array.dtype.str} {array.shape};".encode() + array.tobytes()


# Machines.


def machine() -> dict[str, Any]:
    """What the last bits of numbers depend on."""
    import llvmlite.binding

    found = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": llvmlite.binding.get_host_cpu_name(),
        "simd": sorted({*found.get("baseline", ()), *found.get("found", ())}),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        **{package: _version(package) for package in _PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# Agents.


@contextmanager
def releases_seen() -> Iterator[list[dict[str, Any]]]:
    """All releases that leave any curator, as they are then."""
    seen: list[dict[str, Any]] = []
    publish = tacit.Curator._publish

    def watched(self: Any, release: Any) -> Any:
        seen.append(_release(release))
        return publish(self, release)

    tacit.Curator._publish = watched  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        tacit.Curator._publish = publish  # type: ignore[method-assign]


def privacy_of(row: Row) -> Any:
    """The model of a row."""
    given = dict(row.privacy)
    kind = given.pop("kind")
    given.pop("real", None)
    if "relation" in given:
        given["relation"] = tacit.Relation(given["relation"])
    models = {"joint": tacit.JointDP, "local": tacit.LocalDP, "none": tacit.NonPrivate}
    return models[kind](**given)


def saved(path: Path) -> dict[str, str]:
    """What a save holds, whatever it is called there: arrays, floats, generators.

    Left out are names, texts, and integers below 2^64. So are arrays of bytes with 16 columns: the
    names of users, hashed with a key that is drawn anew in every run.
    """
    data = path.read_bytes()
    prefix = struct.Struct("<8sIQ")
    _, _, length = prefix.unpack_from(data)
    start = prefix.size + length
    header = json.loads(data[prefix.size : start])
    arrays = []
    for entry in header["arrays"]:
        shape = tuple(entry["shape"])
        dtype = np.dtype(entry["dtype"]).newbyteorder("<")
        if entry["dtype"] == "uint8" and shape[1:] == (16,):
            continue
        count = int(np.prod(shape, dtype=np.int64))
        found = np.frombuffer(data, dtype, count, start + entry["offset"])
        arrays.append(_bytes(found.reshape(shape).astype(dtype.newbyteorder("="))))
    leaves = list(_leaves(_without_identity(header["meta"])))
    floats = sorted(leaf.hex() for leaf in leaves if isinstance(leaf, float))
    large = sorted(leaf for leaf in leaves if type(leaf) is int and abs(leaf) >= 1 << 64)
    return {
        "arrays": digest(sorted(hashlib.sha256(array).hexdigest() for array in arrays)),
        "floats": digest(floats),
        "generators": digest(large),
    }


def _without_identity(meta: Any) -> Any:
    """A save without what says whose it is: options, which are no contents."""
    if isinstance(meta, dict):
        return {k: _without_identity(v) for k, v in meta.items() if k != "identity"}
    return meta


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def policy_arrays(policy: Any, path: Path) -> dict[str, np.ndarray]:
    """A policy as it is published."""
    policy.publish(path)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files if name != "format"}


class Recording:
    """One row: its agents meet the same users."""

    def __init__(self, row: Row, folder: Path) -> None:
        self.row, self.folder = row, folder
        self.world = build_world(row.world)
        self.privacy = privacy_of(row)
        self.real = bool(row.privacy.get("real"))

    def agent(self) -> Any:
        """A new agent; its noise is simulated, or real but for the operating system's bytes."""
        choice = choose_agent(self.row.agent)
        seeds = mock.patch("tacit.registry.noise_seed", return_value=None)
        with seeds if self.real else nullcontext():
            return choice.build(self.world.spec, self.row.users, self.privacy, 0)

    def record(self) -> dict[str, Any]:
        """All hashes and numbers of the row; ``refused`` where the agent does not want it."""
        try:
            agent = self.agent()
        except tacit.InvalidArgument:
            return {"refused": True}
        hashes: dict[str, str] = {}
        numbers: dict[str, float] = {}
        self.serve(agent, hashes, numbers)
        if not self.row.ids and not self.real:
            self.run(hashes, numbers)
        self.resume(hashes)
        if self.row.reports:
            self.report(hashes)
        return {"hashes": hashes, "numbers": numbers}

    def serve(self, agent: Any, hashes: dict[str, str], numbers: dict[str, float]) -> None:
        """Serves all users, in the form that the agent asks for."""
        rng = np.random.default_rng(1)
        served, greedy = Digest(), Digest()
        with releases_seen() as seen:
            self._look(agent, served, greedy)
            while agent.block_users > 0:
                users = agent.block_users
                form = "episodes" if self.row.ids or self.real else agent.form
                data = self.world.simulate(agent.policy, users, rng, form)
                self._learn(agent, data, agent.served)
                last = self._look(agent, served, greedy)
        hashes["releases"] = digest(seen)
        hashes["policies"] = served.text
        hashes["greedy policies"] = greedy.text
        hashes["guarantee"] = digest(str(agent.guarantee))
        try:
            agent.save(self.folder / "end")
            hashes |= {f"save, {kind}": text for kind, text in saved(self.folder / "end").items()}
        except tacit.InvalidArgument:
            hashes["save"] = "refused"
        numbers["releases of curators"] = len(seen)
        numbers["releases"] = agent.releases
        numbers["served"] = agent.served
        numbers["last policy"] = _sum(last)
        if seen:
            numbers["last release"] = _sum(seen[-1]["parts"])
            numbers["last noise"] = _sum(seen[-1]["std"])

    def run(self, hashes: dict[str, str], numbers: dict[str, float]) -> None:
        """What ``tacit.run`` reports of another agent."""
        result = tacit.run(self.agent(), self.world, seed=0, progress=False)
        hashes["result"] = digest(result_data(result))
        numbers["final value"] = result.greedy_value
        numbers["value"] = float(result.values[-1])
        numbers["users to 90 %"] = -1 if result.users_to_90 is None else result.users_to_90

    def resume(self, hashes: dict[str, str]) -> None:
        """Gives episodes to another agent, which is saved in the middle of a block and resumed."""
        rng = np.random.default_rng(2)
        agent = self.agent()
        served, greedy = Digest(), Digest()
        middle = self.folder / "middle"
        came, resumed = 0, hashes.get("save") == "refused"
        with releases_seen() as seen:
            while (users := agent.block_users) > 0:
                data = self.world.simulate(agent.policy, users, rng, "episodes")
                late = agent.releases >= 1 or users == self.row.users
                if late and users >= 2 and not resumed:
                    half = users // 2
                    self._learn(agent, data.take(slice(0, half)), came)
                    agent.save(middle)
                    agent = self.agent().load(middle)
                    self._learn(agent, data.take(slice(half, None)), came + half)
                    resumed = True
                else:
                    self._learn(agent, data, came)
                came += users
                self._look(agent, served, greedy)
        hashes["resumed releases"] = digest(seen)
        hashes["resumed policies"] = served.text
        hashes["resumed greedy policies"] = greedy.text
        if middle.exists():
            inside = saved(middle)
            hashes |= {f"save in the middle, {kind}": text for kind, text in inside.items()}

    def report(self, hashes: dict[str, str]) -> None:
        """Lets devices report to another agent."""
        rng = np.random.default_rng(3)
        agent = self.agent()
        served, greedy = Digest(), Digest()
        sent = Digest()
        with releases_seen() as seen:
            while (users := agent.block_users) > 0:
                data = self.world.simulate(agent.policy, users, rng, "episodes")
                statistic, came = agent.statistic, agent.served
                rows = [
                    tacit.local.report(
                        statistic,
                        data.take(slice(user, user + 1)).block(),
                        self.privacy,
                        noise_seed=came + user,
                    )
                    for user in range(users)
                ]
                sent.add(rows)
                agent.learn_reports(np.array(rows))
                self._look(agent, served, greedy)
        hashes["reports"] = sent.text
        hashes["releases of reports"] = digest(seen)
        hashes["policies of reports"] = served.text

    def _learn(self, agent: Any, data: Any, came: int) -> None:
        if self.row.ids:
            people = self.row.users // 2
            agent.learn(data, user_ids=[(came + i) % people for i in range(data.users)])
        else:
            agent.learn(data)

    def _look(self, agent: Any, served: Digest, greedy: Digest) -> dict[str, np.ndarray]:
        path = self.folder / "policy"
        arrays = policy_arrays(agent.policy, path)
        served.add(arrays)
        greedy.add(policy_arrays(agent.greedy_policy, path))
        return arrays


def _release(release: Any) -> dict[str, Any]:
    return {
        "index": release.index,
        "parts": {name: np.array(part) for name, part in release.parts.items()},
        "std": {name: np.array(std) for name, std in release.std.items()},
        "users": release.users,
        "cost": release.cost,
    }


def _sum(arrays: Any) -> float:
    """The sum of what is a number in it, each weighted by its place."""
    total = 0.0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        if array.dtype.kind in "iuf":
            places = 1.0 + np.arange(array.size) % 7
            total += float(np.nansum(array.ravel() * places))
    return total


def record(row: Row) -> dict[str, Any]:
    """Hashes and numbers of a row."""
    known = np.random.default_rng(4)
    # Nothing here has to survive a power failure, and nobody is to be protected.
    patches = mock.patch("os.fsync"), mock.patch("os.urandom", known.bytes)
    with tempfile.TemporaryDirectory() as folder, patches[0], patches[1]:
        return Recording(row, Path(folder)).record()


def record_experiment(name: str) -> dict[str, Any]:
    """Hash and numbers of an experiment."""
    data = EXPERIMENTS[name]()
    return {"hashes": {"data": digest(data)}, "numbers": _numbers(data)}


def _numbers(data: Any) -> dict[str, float]:
    """How many numbers there are, and their sum."""
    arrays = [
        np.asarray(leaf) for leaf in _leaves(data) if not (leaf is None or isinstance(leaf, str))
    ]
    plain = [array.astype(np.float64).ravel() for array in arrays if array.dtype.kind in "biuf"]
    joined = np.concatenate([*plain, np.zeros(0)])
    return {"count": joined.size, "sum": float(joined[np.isfinite(joined)].sum())}


# The command.


def load() -> dict[str, Any]:
    """What was recorded."""
    content: dict[str, Any] = json.loads(FILE.read_text())
    return content


def differences(name: str, old: Any, new: Any) -> Iterator[str]:
    """What differs, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from differences(f"{name}: {key}", old.get(key), new.get(key))
    elif old != new and not (old != old and new != new):
        yield f"{name}: was {old}, is {new}"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns how many rows differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="record anew")
    parser.add_argument("--times", action="store_true", help="say how long rows take")
    parser.add_argument("rows", nargs="*", help="parts of names of rows; all by default")
    chosen = parser.parse_args(arguments)
    stored = load() if FILE.exists() else {"machines": [], "rows": {}}
    made: dict[str, Any] = {}
    say = sys.stdout.write
    say(f"{tacit.__file__}\n")
    work: dict[str, Callable[[], dict[str, Any]]] = {row.name: partial(record, row) for row in ROWS}
    work |= {f"experiment {name}": partial(record_experiment, name) for name in EXPERIMENTS}
    for name, make in work.items():
        if chosen.rows and not any(part in name for part in chosen.rows):
            continue
        start = time.perf_counter()
        made[name] = make()
        if chosen.times:
            refused = "  refused" * ("refused" in made[name])
            say(f"{time.perf_counter() - start:7.2f} s  {name}{refused}\n")
            sys.stdout.flush()
    differ = 0
    for name, new in made.items():
        found = list(differences(name, stored["rows"].get(name), new))
        differ += bool(found)
        if name in stored["rows"] or not chosen.write:
            say("".join(f"{line}\n" for line in found))
    say(f"{differ} of {len(made)} rows differ\n")
    if chosen.write:
        here, machines = machine(), list(stored["machines"])
        machines += [here] if here not in machines else []
        changed = {
            n: new for n, new in made.items() if list(differences(n, stored["rows"].get(n), new))
        }
        changed = {n: new | {"machine": machines.index(here)} for n, new in changed.items()}
        rows = {name: found for name, found in (stored["rows"] | changed).items() if name in work}
        content = {"machines": machines, "rows": dict(sorted(rows.items()))}
        FILE.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    return differ


if __name__ == "__main__":
    sys.exit(min(main(), 1))
