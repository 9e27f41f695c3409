"""What is asked of users of a log whose behaviour is unknown: what they did in each state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from tacit.data.reading import read_rewards, read_steps
from tacit.finite.spec import settle
from tacit.privacy.arguments import whole_number
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Layout, LoopSums, Part


@dataclass(frozen=True, eq=False)
class ActionCounts(LoopSums):
    """How many users took which action at their first visit of a state.

    Reads ``states`` (users, H + 1), ``actions`` and the shape of ``rewards`` (users, H).
    ``allowed`` (S, A) says which pairs are counted; an episode ends at its first step that is none
    of them. Of a user only her first ``first`` different states count. Whether a visit counts is
    decided before its action, so given how many counted in a state, actions there are independent
    draws of what people do in it. With ``logged`` there must be ``propensities`` (users, H) too,
    for later questions.

    Sensitivity. A user has at most k = min(first, H, S) ones, in different states. Two users differ
    in at most 2 k entries, by 1 each, and have k each in different cells: L2^2 = 2 k for
    replace-one, attained by other actions in the same states or by other states (if there is only
    one cell, they cannot: 1), and k against zero. L1 = 2 k, and k.
    """

    allowed: NDArray[np.bool_]
    horizon: int
    first: int = 8
    logged: bool = False
    nonnegative = True

    def __post_init__(self) -> None:
        allowed = np.array(self.allowed, dtype=bool)
        if allowed.ndim != 2 or not allowed.any():
            raise InvalidArgument(f"allowed must be a table (S, A), got shape {allowed.shape}")
        whole_number("horizon", self.horizon)
        whole_number("first", self.first)
        settle(self, name="action counts", allowed=allowed)

    @cached_property
    def layout(self) -> Layout:
        """``counts``, of the pairs that are allowed, row by row."""
        return Layout((Part("counts", (int(self.allowed.sum()),)),))

    @cached_property
    def _kept(self) -> int:
        return min(self.first, self.horizon, int(self.allowed.any(axis=1).sum()))

    def _apart(self, relation: Relation) -> int:
        zero_out = checked_relation(relation) is Relation.ZERO_OUT
        return self._kept if zero_out else min(2 * self._kept, int(self.allowed.sum()))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return math.sqrt(self._apart(relation))

    def l1(self, relation: Relation) -> float:
        """See the class."""
        return float(self._apart(relation))

    def _sums(self, block: Block, separate: bool) -> Floats:
        from tacit.finite.sum_loops import count_first_actions

        rows = block.users if separate else 1
        # Rewards are looked at for their shape alone: later questions need it.
        states, actions, _ = read_steps(block, self.horizon)
        if self.logged:
            read_rewards(block, "propensities", actions.shape)
        cells = np.where(self.allowed, np.cumsum(self.allowed).reshape(self.allowed.shape) - 1, -1)
        counts = np.zeros((rows, self.layout.size))
        count_first_actions(states, actions, cells, self._kept, separate, counts)
        return counts


def propensities(
    counts: Floats, noise: float, allowed: NDArray[np.bool_], failure: float
) -> tuple[Floats, Floats]:
    """Estimates of what people do, (S, A), and upper bounds of it.

    The bounds hold all at once with probability 1 - ``failure``, if actions depend on the state
    alone: of a binomial's probability (Clopper and Pearson), for the largest count and the fewest
    visits that the noise leaves possible. Each cell may fail by its share: half of it by sampling,
    a quarter by the noise of its count, a quarter by that of its state's.
    """
    x = np.zeros(allowed.shape)
    x[allowed] = counts
    share = failure / int(allowed.sum())
    reach = -float(ndtri(share / 4.0)) * noise if noise > 0 else 0.0
    several = allowed.sum(axis=1, keepdims=True)
    visits = np.maximum(x.sum(axis=1, keepdims=True) - reach * np.sqrt(several), 0.0)
    most = np.clip(x + reach, 0.0, visits)
    sure = most >= visits - 0.5
    bounds = np.where(
        sure, 1.0, betaincinv(most + 1.0, np.maximum(visits - most, 0.5), 1 - share / 2)
    )
    # Drawn to the uniform by as many users as the noise is worth.
    prior = (1.0 + noise) * allowed / several
    raw = np.where(allowed, np.maximum(x, 0.0), 0.0) + prior
    estimates = raw / raw.sum(axis=1, keepdims=True)
    return estimates, np.where(allowed, np.maximum(bounds, 1e-12), 0.0)
