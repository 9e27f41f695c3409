"""A folder of results, each under the hash of all that it depends on: nothing runs twice."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.simulation.result import Result


class Store:
    """Results by what they depend on, in files that a ``Result`` reads.

    A result belongs to a description: world, agent, options, budget, users, seed and the version
    of this package. Code that is named and not passed is known by its name alone, so after a change
    of it take another folder, or run again.

    Args:
        folder: made if there is none.
        again: whether what is there is not used, and replaced.
    """

    def __init__(self, folder: str | os.PathLike[str], *, again: bool = False) -> None:
        self.folder, self.again = Path(folder), again
        if self.folder.exists() and not self.folder.is_dir():
            raise InvalidArgument(f"store is {str(folder)!r}, which is no folder")

    def path(self, description: Mapping[str, Any]) -> Path:
        """Where the result of a description is, or would be."""
        text = json.dumps(description, sort_keys=True, allow_nan=False)
        key = hashlib.sha256(text.encode()).hexdigest()
        return self.folder / key[:2] / f"{key}.json"

    def get(self, description: Mapping[str, Any]) -> Result | None:
        """The stored result; ``None`` if there is none, or a damaged one."""
        if self.again:
            return None
        try:
            return Result.load(self.path(description))
        except (FileNotFoundError, CorruptFile):
            return None

    def put(self, description: Mapping[str, Any], result: Result) -> None:
        """Stores a result, as a whole or not at all."""
        path = self.path(description)
        path.parent.mkdir(parents=True, exist_ok=True)
        result.save(path)
