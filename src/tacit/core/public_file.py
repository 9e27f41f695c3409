"""The public file of a policy, which anybody can read with :mod:`tacit.published`."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.storage import write_atomic

if TYPE_CHECKING:
    from tacit.core.algorithm import PublicPolicy

FORMAT = 1
"""That of the files; :mod:`tacit.published`, which imports nothing of ours, has the same number."""

_FACTS: ContextVar[Mapping[str, int | str]] = ContextVar("facts", default={})  # noqa: B039


def publish_with(
    policy: PublicPolicy, path: str | os.PathLike[str], facts: Mapping[str, int | str]
) -> None:
    """Publishes a policy, of whatever kind, with facts that :func:`tacit.published.about` reads.

    They are set in a context of their own: whatever is raised, no other file gets them.
    """

    def publish() -> None:
        _FACTS.set(facts)
        policy.publish(path)

    copy_context().run(publish)


def write_published(
    path: str | os.PathLike[str],
    version: int,
    arrays: Mapping[str, NDArray[Any]],
    kind: str | None = None,
) -> None:
    """Writes a public file of any kind that :mod:`tacit.published` reads, atomically, mode 0644."""
    stored: dict[str, Any] = {"format": np.int64(FORMAT), "version": np.int64(version)}
    if kind is not None:
        stored["kind"] = np.str_(kind)
    stored |= {name: np.array(fact) for name, fact in _FACTS.get().items()} | dict(arrays)
    buffer = io.BytesIO()
    np.savez(buffer, **stored)
    write_atomic(path, buffer.getvalue(), 0o644)
