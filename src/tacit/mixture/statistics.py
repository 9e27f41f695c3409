"""What is asked of users for a regression: the parts that all such sums have, and their checks.

Transitions are P(. | s, a) = p0(s, a) + x(s, a)' eta, with x(s, a) in R^{k x S} and p0 public
(features along the public directions, and at the public centre) and eta unknown. A transition
that the features give no probability under any weights is impossible, so it is dropped.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.core.sizes import check_size
from tacit.numerics.ridge import always_one
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Layout, Part, Statistic


class RegressionSums(Statistic):
    """Sums of a regression of transitions, and of one of rewards where they are unknown."""

    horizon: int
    pooled: bool
    gram: float
    reward: float
    reward_features: Floats | None
    support: Bools

    @property
    @abstractmethod
    def free(self) -> int:
        """How many numbers are unknown, k."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self, S: int, A: int) -> None:
        """What both regressions check, and cut reward features to length 1."""
        self._set(horizon=check_size("horizon", self.horizon), pooled=bool(self.pooled))
        for name in ("gram", "reward"):
            value = getattr(self, name)
            if not 1e-12 <= value <= 1e12:
                raise InvalidArgument(f"{name} must be in [1e-12, 1e12], got {value!r}")
            self._set(**{name: float(value)})
        support = np.array(self.support, dtype=bool)
        if support.shape != (S, A, S):
            raise InvalidArgument(f"support must have shape {(S, A, S)}, got {support.shape}")
        if not support.any():
            raise InvalidArgument("support must allow some transition")
        support.setflags(write=False)
        self._set(support=support)
        if self.reward_features is not None:
            shape, sizes = np.shape(self.reward_features), (S, A)
            if len(shape) != 3 or shape[:2] != sizes or 0 in shape:
                raise InvalidArgument(
                    f"reward_features must have shape {sizes} + (m,), got {shape}"
                )
            table = checked_table("reward_features", self.reward_features, shape)
            self._set(reward_features=cut(table, (2,)))

    @property
    def rows(self) -> int:
        """L: one row per step, or one for all."""
        return 1 if self.pooled else self.horizon

    @property
    def last(self) -> int:
        """The first step whose transition does not count, unless other steps share its weights."""
        return self.horizon if self.pooled else self.horizon - 1

    @property
    def follows(self) -> Any:
        """A possible next state (S, A) for the last step, if its transition does not count."""
        return None if self.last == self.horizon else self.support.argmax(axis=2)

    @property
    def _paying(self) -> int:
        return 0 if self.reward_features is None else int(self.reward_features.shape[2])

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``cross``, and ``reward_gram``, ``rewards`` where rewards are unknown."""
        L, k, m = self.rows, self.free, self._paying
        parts = [
            Part("gram", (L, k, k), symmetric=True, weight=math.sqrt(self.gram)),
            Part("cross", (L, k)),
        ]
        if m:
            weight = math.sqrt(self.reward)
            parts.append(Part("reward_gram", (L, m, m), symmetric=True, weight=weight))
            parts.append(Part("rewards", (L, m), weight=weight))
        return Layout(tuple(parts))

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards, where they are unknown and some combination of their features is always 1."""
        one = None if self.reward_features is None else always_one(self.reward_features)
        if one is None:
            return {}
        paid, noise = release["rewards"], float(np.max(release.std["rewards"]))
        spread = noise * float(np.linalg.norm(one)) * math.sqrt(len(paid))
        found: dict[str, tuple[Any, Any]] = {"rewards": (float((paid @ one).sum()), spread)}
        clips = getattr(self, "clip", None) is not None
        return found | {"partial": (1.0, 0.0)} if clips else found


def checked_table(name: str, values: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """A read-only copy of a public table."""
    array = np.array(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {array.shape}")
    array.setflags(write=False)
    return array


def cut(vectors: Floats, axes: tuple[int, ...]) -> Floats:
    """Each cut to length 1, read-only."""
    largest = np.abs(vectors).max(axis=axes, keepdims=True)
    # Squares of the longest would be infinite.
    scaled = vectors / np.maximum(largest, 1.0)
    length = np.sqrt((scaled**2).sum(axis=axes, keepdims=True))
    cut: Floats = scaled / np.maximum(length, 1.0 / np.maximum(largest, 1.0))
    cut.setflags(write=False)
    return cut


def possible_counts(block: Block, horizon: int, support: Bools) -> tuple[Floats, Floats]:
    """A simulated block's possible transitions, and what they paid, dropped ones the average."""
    S, A, _ = support.shape
    counts = np.asarray(block["transitions"], dtype=np.float64)
    rewards = np.asarray(block["rewards"], dtype=np.float64)
    if counts.shape != (horizon, S, A, S) or rewards.shape != (horizon, S, A):
        raise InvalidArgument(
            f"an aggregate block must have transitions of shape {(horizon, S, A, S)} and rewards "
            f"of shape {(horizon, S, A)}, got {counts.shape} and {rewards.shape}"
        )
    possible = counts * support
    kept, all_of_them = possible.sum(axis=-1), counts.sum(axis=-1)
    share = np.divide(kept, all_of_them, out=np.ones_like(kept), where=all_of_them > 0)
    return possible, rewards * share
