"""Public files of policies, which :mod:`tacit.published` reads."""

from __future__ import annotations

import importlib
import io
import json
import os
import time
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.files import write_atomic

if TYPE_CHECKING:
    from tacit.privacy.budget import Guarantee

FORMAT = 1
"""That of the files; :mod:`tacit.published`, which imports nothing of ours, has the same number."""

_SINK: ContextVar[list[bytes] | None] = ContextVar("sink", default=None)
_FACTS: ContextVar[Mapping[str, int | str]] = ContextVar("facts", default={})  # noqa: B039


def publish_with(policy: Any, path: str | os.PathLike[str], facts: Mapping[str, int | str]) -> None:
    """Publishes a policy, of whatever kind, with facts that :func:`tacit.published.about` reads."""
    write_atomic(path, published_bytes(policy, facts, os.fspath(path)), 0o644)


def published_bytes(
    policy: Any, facts: Mapping[str, int | str], name: str = "policy.json"
) -> bytes:
    """The contents of a policy's file, by default in JSON, without the file."""

    def publish() -> bytes:  # in a context of its own: whatever is raised, no other file has facts
        _FACTS.set(facts)
        _SINK.set(found := list[bytes]())
        policy.publish(name)
        return found[0]

    return copy_context().run(publish)


@dataclass(frozen=True, eq=False)
class ReleasedModel:
    """Draws of how episodes may go, which follow from releases; a simulator's file has them."""

    model: str  # kind, one of :data:`tacit.published.simulators.MODELS`
    arrays: Mapping[str, Any]
    horizon: int
    n_actions: int  # 0 where actions are vectors
    version: int = 0

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file."""
        sizes = {"horizon": np.int64(self.horizon), "n_actions": np.int64(self.n_actions)}
        known = {"model": np.array(self.model), **sizes, **self.arrays}
        write_published(path, self.version, known, kind="simulator")


def write_published(
    path: str | os.PathLike[str],
    version: int,
    arrays: Mapping[str, NDArray[Any]],
    kind: str | None = None,
) -> None:
    """Writes a public file that :mod:`tacit.published` reads, atomically, mode 0644.

    Args:
        path: Of the file; a store is never written over.
        version: Of the policy.
        arrays: Its tables by name.
        kind: Of the policy, where the readers know several.
    """
    stored: dict[str, Any] = {"format": np.int64(FORMAT), "version": np.int64(version)}
    if kind is not None:
        stored["kind"] = np.str_(kind)
    stored |= {name: np.array(fact) for name, fact in _FACTS.get().items()} | dict(arrays)
    held = {name: np.asarray(array) for name, array in stored.items()}
    stored["hash"] = held["hash"] = np.array(published().digest(held))
    buffer = io.BytesIO()
    np.savez(buffer, **stored)
    text = os.fspath(path).lower().endswith(".json")
    data = _json(held) if text else buffer.getvalue()
    if (sink := _SINK.get()) is not None:
        sink.append(data)
    else:
        write_atomic(path, data, 0o644)


def _json(held: dict[str, NDArray[Any]]) -> bytes:
    """The same arrays as a text, which any language can read."""
    kinds = {"f": "float", "U": "text"}
    arrays = {
        name: {
            "dtype": kinds.get(array.dtype.kind, "int"),
            "shape": list(array.shape),
            "data": (array.astype(np.int64) if array.dtype.kind == "b" else array).ravel().tolist(),
        }
        for name, array in held.items()
    }
    return json.dumps({"tacit": "policy", "arrays": arrays}, allow_nan=False).encode()


def published() -> Any:
    """The readers of published policies, of every kind."""
    return importlib.import_module("tacit.published")


def drawing(rng: np.random.Generator | None) -> np.random.Generator:
    """A generator, where a policy needs one."""
    if rng is None:
        raise InvalidArgument("this policy draws its actions: give rng, np.random.default_rng()")
    return rng


def facts_of(agent: Any, guarantee: Guarantee | None, at: Any) -> dict[str, int | str]:
    """Provenance that a published file states, apart from the head of the ledger."""
    said = {
        "agent": agent.name,
        "spec": repr(agent.spec),
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "simulated": guarantee is not None and guarantee.simulation_only,
        "users": at.served,
        "releases": at.releases,
        "library": f"tacit {importlib.import_module('tacit').__version__}",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time())),
    }
    if at.inherited:
        said |= {"first_version": at.offset, "users_before": at.inherited}
    return {"about": json.dumps(said, sort_keys=True, allow_nan=False)}
