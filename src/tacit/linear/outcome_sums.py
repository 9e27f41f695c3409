"""Statistic of LinearPosterior: sums of outcomes by features, without their Gram matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.linear.statistics import ROUNDING, told_of_features, unit_features
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import read_steps
from tacit.privacy.sensitivity import SHORTEST
from tacit.privacy.statistic import Block, Floats, Layout, LoopSums, Part
from tacit.privacy.validation import numbers, read_only, whole_number


@dataclass(frozen=True, eq=False)
class OutcomeSums(LoopSums):
    """Sums over a user's steps of w phi e_{s'}' and v r phi, for features that are not negative.

    No Gram matrix: it follows from the policy and an estimate of where that leads, so the whole
    budget goes to the outcomes. :meth:`visits` are the weights that steps of simulated users have,
    from which an expected Gram is made.

    Reads ``states`` (users, H + 1), ``actions`` and ``rewards`` (users, H). A step counts if its
    state, action, next state and reward are valid; rewards are cut to [0, 1]. Parts: ``next``
    (L, d, S), where L is the number of ``weights``, 1 or H, and ``rewards`` (M, d), M =
    ``reward_rows``, with weight b; with b = 0 they are left out.

    The weights w_h >= 0 of steps are public; w and v are lowered, to w_h at most and to 1, where
    the sum of phi e_{s'}' could become longer than ``clip`` *whatever the next state turns out to
    be*, and that of r phi longer than ``reward_clip`` whatever the reward. So they depend on the
    past and the present state and action only, and what follows is an unbiased sample.

    Sensitivity. Let U and z be a user's two sums. |U| <= C_U, the clip, or what the longest steps
    add up to if that is less: sqrt(sum w_h^2) max |phi| per step and sum w_h max |phi| where all
    steps share a row, here H w max |phi|; |z| <= C_R likewise. Features, weights and rewards are
    not negative, so neither is any entry of Y = (U, b z), and

        |Y - Y'|^2 = |Y|^2 + |Y'|^2 - 2 <Y, Y'> <= |Y|^2 + |Y'|^2 <= 2 (C_U^2 + b^2 C_R^2).

    Against zero it is half of that, squared. Attained where two users can go to different states
    with features as long as any that are orthogonal, and are paid for all steps.
    """

    features: Floats  # phi, (S, A, d), cut to length 1
    horizon: int  # steps of an episode
    weights: Floats  # w, (1,) where steps share a row of ``next``, else (H,)
    clip: float | None = None  # the longest U, or ``None`` for what steps can add up to
    reward_clip: float | None = None  # the same for z
    reward: float = 1.0  # b
    reward_rows: int = 1  # 1 where steps share a row of ``rewards``, else H
    nonnegative = True

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "features", unit_features(self.features))
        set_(self, "horizon", whole_number("horizon", self.horizon))
        if (self.features < 0.0).any():
            raise InvalidArgument("features must not be negative: distances would be larger")
        set_(self, "weights", _weights(self.weights, self.horizon))
        for name in ("clip", "reward_clip"):
            value = getattr(self, name)
            if value is not None:
                if not (math.isfinite(value) and value > SHORTEST):
                    raise InvalidArgument(f"{name} must be > 0, got {value!r}")
                set_(self, name, float(value))
        if not 0.0 <= self.reward <= 1e12:
            raise InvalidArgument(f"reward must be in [0, 1e12], got {self.reward!r}")
        set_(self, "reward", float(self.reward))
        if self.reward_rows not in (1, self.horizon):
            raise InvalidArgument(
                f"reward_rows must be 1 or {self.horizon}, got {self.reward_rows!r}"
            )
        if not self._longest > SHORTEST:
            raise InvalidArgument("all features or weights are zero: there is nothing to learn")
        set_(self, "name", "outcome sums")

    @cached_property
    def layout(self) -> Layout:
        """``next`` and perhaps ``rewards``."""
        S, _, d = self.features.shape
        parts = [Part("next", (len(self.weights), d, S))]
        if self.reward > 0.0:
            parts.append(Part("rewards", (self.reward_rows, d), weight=self.reward))
        return Layout(tuple(parts))

    def monitored(self, release: Any) -> dict[str, tuple[Any, Any]]:
        """Rewards, and visits of next states, where some combination of features is always 1."""
        found = told_of_features(self.features, release, self.weights)
        clips = self.clip is not None or self.reward_clip is not None
        whole = not clips and bool((self.weights > 0.0).all())
        return found if whole or not found else found | {"partial": (1.0, 0.0)}

    # Sensitivity.

    @cached_property
    def _lengths(self) -> Floats:
        """|phi|^2, (S, A)."""
        squares: Floats = (self.features**2).sum(axis=-1)
        return squares

    @cached_property
    def _longest(self) -> float:
        """Norm of the longest steps' sum in ``next``."""
        longest = math.sqrt(float(self._lengths.max()))
        if len(self.weights) == 1:
            return self.horizon * float(self.weights[0]) * longest
        return longest * math.sqrt(float((self.weights**2).sum()))

    @property
    def bound(self) -> float:
        """C_U."""
        return self._longest if self.clip is None else min(self.clip, self._longest)

    @property
    def reward_bound(self) -> float:
        """C_R."""
        times = self.horizon if self.reward_rows == 1 else math.sqrt(self.horizon)
        most = times * math.sqrt(float(self._lengths.max()))
        return most if self.reward_clip is None else min(self.reward_clip, most)

    def l2(self, relation: Relation) -> float:
        """C = |(C_U, b C_R)| against zero, else sqrt(2) C."""
        most = math.hypot(self.bound, self.reward * self.reward_bound)
        return most if checked_relation(relation) is Relation.ZERO_OUT else math.sqrt(2.0) * most

    # Sums.

    def visits(self, block: Block) -> tuple[Floats, Floats]:
        """The weights of all steps by cell, of ``next`` (L, S, A) and of ``rewards`` (M, S, A).

        Raw where users are: for simulated ones only.
        """
        _, visits, paying = self._loop(block, separate=False)
        return visits, paying

    def _loop(self, block: Block, separate: bool) -> tuple[Floats, Floats, Floats]:
        from tacit.linear.posterior_loops import sum_outcomes

        S, A, d = self.features.shape
        rows = block.users if separate else 1
        following = np.zeros((rows, len(self.weights), d, S))
        paid = np.zeros((rows, self.reward_rows, d))
        visits = np.zeros((len(self.weights), S, A))
        paying = np.zeros((self.reward_rows, S, A))
        limit, reward_limit = ((C * (1.0 - ROUNDING)) ** 2 for C in (self.bound, self.reward_bound))
        tables = self.features, self.weights, self._lengths
        sums = following, paid, visits, paying
        free = len(self.weights) == self.horizon
        steps = read_steps(block, self.horizon, np.zeros((S, A), dtype=np.int64) if free else None)
        sum_outcomes(*steps, *tables, limit, reward_limit, separate, *sums)
        values = {"next": following, "rewards": paid}
        return self.layout.pack(values, users=rows), visits, paying

    def _sums(self, block: Block, separate: bool) -> Floats:
        return self._loop(block, separate)[0]


def _weights(values: ArrayLike, horizon: int) -> Floats:
    weights = numbers("weights", values)
    if weights.shape not in ((1,), (horizon,)) or not np.isfinite(weights).all():
        raise InvalidArgument(
            f"weights must be finite, of shape (1,) or ({horizon},), got {weights.shape}"
        )
    if (weights < 0.0).any():
        raise InvalidArgument("weights must not be negative")
    return read_only(np.minimum(weights, 1.0))
