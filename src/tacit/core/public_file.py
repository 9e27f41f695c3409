"""The public file of a policy, which anybody can read with :mod:`tacit.published`."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.storage import write_atomic

FORMAT = 1
"""That of the files; :mod:`tacit.published`, which imports nothing of ours, has the same number."""


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
    stored |= arrays
    buffer = io.BytesIO()
    np.savez(buffer, **stored)
    write_atomic(path, buffer.getvalue(), 0o644)
