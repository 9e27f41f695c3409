"""Refusals that agents on vectors share, in words; see :mod:`tacit.privacy.arguments`."""

from __future__ import annotations

import contextlib
import math
import numbers
from typing import Any, Literal

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.spec import BoxSpec
from tacit.core.sizes import check_bytes
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.exact import grid_step
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Statistic


def real(name: str, value: Any) -> float:
    """A finite number.

    >>> real("discount", "much")
    Traceback (most recent call last):
    ...
    tacit.privacy.errors.InvalidArgument: discount must be a finite number, got 'much'
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
            if math.isfinite(number):
                return number
    raise InvalidArgument(f"{name} must be a finite number, got {value!r}")


def discount_of(discount: Any, spec: BoxSpec) -> float:
    """A discount in [0, 1), the spec's if none is given."""
    number = spec.discount if discount is None else real("discount", discount)
    if not 0.0 <= number < 1.0:
        raise InvalidArgument(f"discount must be in [0, 1), got {discount!r}")
    return number


def check_features(features: Any, spec: BoxSpec) -> None:
    """Refuses what is no feature map, or one of other states; a class is no map either."""
    if isinstance(features, type) or not isinstance(features, FeatureMap):
        raise InvalidArgument(f"features must be a feature map, got {features!r}")
    if features.dimension not in (None, spec.dimension):
        raise InvalidArgument(
            f"features must take states with {spec.dimension} coordinates, got {features!r}"
        )


def check_weights(spec: BoxSpec, size: int) -> None:
    """Refuses more weights of features, or more entries of their Gram matrix, than fit."""
    check_bytes("weights", (spec.actions, size))
    check_bytes("the Gram matrix of features", (size, size))


def check_question(statistic: Statistic, privacy: Privacy, size: str) -> None:
    """Refuses what no noise of a model hides, before anything is made and anybody comes.

    Args:
        statistic: what will be asked.
        privacy: the model.
        size: the argument that its sensitivity is made of.
    """
    if not privacy.private:
        return
    norm: Literal["l1", "l2"] = "l1" if privacy.needs_l1 else "l2"
    try:
        statistic.sensitivity(Relation.REPLACE_ONE, norm)
        if privacy.exact:
            grid_step(statistic, norm)
    except InvalidArgument as error:
        raise InvalidArgument(f"privacy and {size} do not go together: {error}") from None
