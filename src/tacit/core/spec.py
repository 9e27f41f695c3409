"""What the specs of all families share: arrays in them are compared by what they hold."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import numpy as np


class ArraySpec:
    """Equality of frozen dataclasses with arrays: equal if all they say is equal.

    Their text must say all of it, or have a fingerprint: it is hashed, and what a save compares.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, field.name), getattr(other, field.name))
            for field in fields(cast(Any, self))
        )

    def __hash__(self) -> int:
        return hash(repr(self))
