"""Refusals that agents on vectors share, in words; see :mod:`tacit.privacy.arguments`."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec

Number = TypeVar("Number", int, float)


def real(name: str, value: Any) -> float:
    """A finite number."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise InvalidArgument(f"{name} must be a finite number, got {value!r}")


def auto_or(
    name: str, value: Any, check: Callable[[str, Any], Number], allowed: str
) -> Number | Literal["auto"]:
    """``"auto"``, or what a check allows."""
    if isinstance(value, str) and value == "auto":
        return "auto"
    with contextlib.suppress(InvalidArgument):
        return check(name, value)
    raise InvalidArgument(f"{name} must be 'auto' or {allowed}, got {value!r}")


def discount_of(discount: Any, spec: BoxSpec) -> float:
    """A discount in [0, 1), the spec's if none is given."""
    number = spec.discount if discount is None else real("discount", discount)
    if not 0.0 <= number < 1.0:
        raise InvalidArgument(f"discount must be in [0, 1), got {discount!r}")
    return number
