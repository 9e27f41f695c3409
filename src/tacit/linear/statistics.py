"""Statistic of LSVI-UCB: sums over users' steps of features, and of what followed them.

phi(s, a) is cut to length 1 when a statistic is made: a few long ones would set the noise for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.numerics.regression import always_one
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import StepColumns, UserSteps
from tacit.privacy.sensitivity import SHORTEST, BoundedSteps
from tacit.privacy.statistic import Block, Floats, Layout, LoopSums, Part
from tacit.privacy.validation import check_bytes, numbers, read_only, whole_number

ROUNDING = 1e-9
"""Of the running length, a billionth of the budget."""


def check_features(values: ArrayLike) -> Floats:
    """A read-only copy of features, (S, A, d)."""
    from tacit.tabular.spec import finite

    array = numbers("features", values)
    if array.ndim != 3 or 0 in array.shape:
        raise InvalidArgument(f"features must have shape (S, A, d), got {array.shape}")
    check_bytes("features", array.shape)
    return finite("features", array, "state", "action")


def unit_features(features: ArrayLike) -> Floats:
    """Features (S, A, d), read-only, each cut to length 1."""
    table = check_features(features)
    largest = np.abs(table).max(axis=-1, keepdims=True)
    # Squares of the longest features would be infinite.
    scaled = table / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(scaled, axis=-1, keepdims=True)
    long = length > 1.0 / np.maximum(largest, SHORTEST)
    table = np.where(long, scaled / np.maximum(length, 1.0), table)
    table.setflags(write=False)
    return table


def told_of_features(features: Floats, release: Any, weights: Floats) -> dict[str, tuple[Any, Any]]:
    """Monitored totals of sums of w phi e_{s'}' (L, d, S) and of r phi (M, d).

    The weights w > 0 of rows are public; a row without one tells nothing.
    """
    one, found = always_one(features), dict[str, tuple[Any, Any]]()
    if one is None:
        return found
    length = float(np.linalg.norm(one))
    noise = {name: float(np.max(std)) for name, std in release.std.items()}
    heard = weights > 0.0
    rows = np.einsum("d,lds->ls", one, release["next"])[heard] / weights[heard, np.newaxis]
    spread = noise["next"] * length * math.sqrt(float((1.0 / weights[heard] ** 2).sum()))
    found["visits"] = rows.sum(axis=0), np.full(rows.shape[1], spread)
    if "rewards" in release.parts:
        paid = release["rewards"]
        spread = noise["rewards"] * length * math.sqrt(len(paid))
        found["rewards"] = float((paid @ one).sum()), spread
    return found


def weighted_grams(features: Floats, weights: Floats) -> Floats:
    """Sums over states and actions of w(s, a) phi phi', for weights (..., S, A)."""
    table = features.reshape(-1, features.shape[2])
    flat = weights.reshape(*weights.shape[:-2], len(table))
    return np.asarray((table.T * flat[..., np.newaxis, :]) @ table)


def unit_weights(weights: ArrayLike, *shapes: tuple[int, ...]) -> Floats:
    """Weights of one of some shapes, read-only, cut to [0, 1]."""
    table = numbers("weights", weights)
    if table.shape not in shapes or not np.isfinite(table).all():
        raise InvalidArgument(f"weights must be finite, of a shape in {shapes}, got {table.shape}")
    return read_only(np.clip(table, 0.0, 1.0))


def need_features(spec: Any) -> None:
    """Refuses specs without features."""
    if not hasattr(spec, "weight_bound"):
        raise InvalidArgument(
            "spec must be a LinearSpec, as of tacit.linear.linear_from_tabular(world) for any "
            f"finite world, got {type(spec).__name__}"
        )


@dataclass(frozen=True, eq=False)
class FeatureSums(LoopSums, BoundedSteps):
    """Sums over a user's steps of w phi phi', w phi e_{s'}' and w r phi, bounded.

    Everything that linear value iteration needs of a finite world, for every value function at
    once: with U = sum w phi e_{s'}', the regression target of a value V is U V.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A step counts if its
    state, action, next state and reward are valid; rewards are cut to [0, 1]. Parts: ``gram``
    (L, d, d), ``next`` (L, d, S) and ``rewards`` (L, d), where L is the horizon, or 1 if
    ``pooled``. Gram and rewards have squared weights a and b against ``next``.

    The weight w of a step is at most its public ``weights`` entry, and is lowered where the user's
    vector could become longer than ``clip`` *whatever the next state and reward turn out to be*.
    So w depends on the past and the present state and action only, and what follows a weighted
    step is still an unbiased sample: a clip that biases nothing.

    Sensitivity, and what the arguments are: :class:`~tacit.privacy.sensitivity.BoundedSteps`.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", unit_features(self.features))
        object.__setattr__(self, "horizon", whole_number("horizon", self.horizon))
        object.__setattr__(self, "pooled", bool(self.pooled))
        if not (1e-12 <= self.gram <= 1e12 and 0.0 <= self.reward <= 1e12):
            raise InvalidArgument("gram must be in [1e-12, 1e12], and reward in [0, 1e12]")
        if self.clip is not None and not SHORTEST < self.clip < math.inf:
            raise InvalidArgument(f"clip must be > 0, got {self.clip!r}")
        shape = self.features.shape[:2]
        weights = np.ones((1, *shape)) if self.weights is None else self.weights
        steps = 1 if self.pooled else self.horizon
        weights = unit_weights(weights, (1, *shape), (steps, *shape))
        object.__setattr__(self, "weights", weights)
        if not self._longest > SHORTEST:
            raise InvalidArgument("all features or weights are zero: there is nothing to learn")
        object.__setattr__(self, "name", "feature sums")

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``next`` and ``rewards``."""
        L, d, S = self.rows, self.dimension, self.states
        gram = Part("gram", (L, d, d), symmetric=True, weight=math.sqrt(self.gram))
        parts = [gram, Part("next", (L, d, S))]
        if self.reward > 0.0:
            parts.append(Part("rewards", (L, d), weight=math.sqrt(self.reward)))
        return Layout(tuple(parts))

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards, and visits of next states, where some combination of features is always 1."""
        found = told_of_features(self.features, release, np.ones(self.rows))
        whole = not self.clips and bool((self._weights == 1.0).all())
        return found if whole or not found else found | {"partial": (1.0, 0.0)}

    def aggregate(self, block: Block) -> Floats:
        """From transitions (H, S, A, S) and rewards (H, S, A) of a simulated block."""
        shape = (self.horizon, *self.features.shape[:2])
        counts, paid = (np.asarray(block[x], np.float64) for x in ("transitions", "rewards"))
        if self.clips or counts.shape != (*shape, self.states) or paid.shape != shape:
            raise InvalidArgument(
                "clipped sums need users one by one, and an aggregate block transitions of shape "
                f"{(*shape, self.states)} and rewards of shape {shape}"
            )
        counts, paid = counts * self._weights[..., np.newaxis], paid * self._weights
        if self.pooled:
            counts, paid = (array.sum(axis=0, keepdims=True) for array in (counts, paid))
        gram = weighted_grams(self.features, counts.sum(axis=-1))
        following = np.einsum("lsat,sad->ldt", counts, self.features, optimize=True)
        rewards = np.einsum("lsa,sad->ld", paid, self.features, optimize=True)
        return self.layout.pack({"gram": gram, "next": following, "rewards": rewards})

    @cached_property
    def columns(self) -> StepColumns:
        """Steps of all users."""
        free, cells = self.rows > 1 or self.horizon == 1, self.features.shape[:2]
        return StepColumns(self.horizon, np.zeros(cells, dtype=np.int64) if free else None)

    def _sums(self, steps: UserSteps, separate: bool) -> Floats:
        from tacit.linear.sum_loops import sum_features

        rows, L, d = len(steps.states) if separate else 1, self.rows, self.dimension
        visits = np.zeros((rows, L, *self.features.shape[:2]))
        following = np.zeros((rows, L, d, self.states))
        paid = np.zeros((rows, L, d))
        limit = self.bound**2 * (1.0 - ROUNDING) if self.clips else math.inf
        tables = self.features, self._weights, self._lengths
        how = limit, self.gram, self.reward, self.pooled, separate
        given: Any = (*steps[:3], *tables, *how, visits, following, paid)
        sum_features(*given)
        gram = weighted_grams(self.features, visits)
        return self.layout.pack({"gram": gram, "next": following, "rewards": paid}, users=rows)
