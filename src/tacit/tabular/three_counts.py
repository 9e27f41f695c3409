"""What the tabular baselines share: running sums of all three counts, and planning on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.core.algorithm import Floats
from tacit.finite.policy import Policy
from tacit.finite.visits import VisitCounts, counts_of, row_of
from tacit.privacy.arguments import positive
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.base import TabularOptions
from tacit.tabular.ucbvi import UCBVI


@dataclass(frozen=True, kw_only=True)
class ThreeCountsOptions(TabularOptions):
    """Those of tabular algorithms.

    Attributes:
        failure: with which probability the bonus may be too small.
    """

    failure: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < positive("failure", self.failure) < 1.0:
            raise InvalidArgument(f"failure must be in (0, 1), got {self.failure!r}")


class ThreeCounts(UCBVI):
    """Visits n(s, a) are counted on their own, besides rewards and transitions, as papers do.

    Of all cells and steps, perhaps pooled: nothing is masked or capped.
    """

    Options = ThreeCountsOptions
    options: ThreeCountsOptions
    refuses: ClassVar = {
        "constants": "they are for the practical bonus",
        "counter": "its widths are for running sums through the best counter",
    }
    masked = False
    cap = None

    def statistic(self, cap: int | None = None) -> VisitCounts:
        """All three counts."""
        sizes = (self.spec.states, self.spec.actions, self.spec.horizon)
        return counts_of(self.spec)(*sizes, pooled=self.stationary, visits=True)

    def _choose_counter(self) -> str:
        return "auto" if self.privacy.joint else "blocks"

    def optimise(
        self, rewards: Floats, transitions: Floats, bonus: Floats, known: NDArray[np.bool_]
    ) -> tuple[Policy, Policy]:
        """Backward induction with values cut to what the steps left can pay.

        A cell that is not known is worth all of that to the optimist and nothing to the greedy
        policy. ``bonus`` is (H, S, A), the others have one row, or one per step.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        q_values, plain = np.empty((H, S, A)), np.empty((H, S, A))
        value, plain_value = np.zeros(S), np.zeros(S)
        for h in range(H - 1, -1, -1):
            at, left = row_of(h, H, len(rewards)), float(H - h)
            q = rewards[at] + transitions[at] @ value + bonus[h]
            q_values[h] = np.where(known[at], np.clip(q, 0.0, left), left)
            exact = np.clip(rewards[at] + transitions[at] @ plain_value, 0.0, left)
            plain[h] = np.where(known[at], exact, 0.0)
            value, plain_value = q_values[h].max(axis=1), plain[h].max(axis=1)
        self.q_values = q_values
        return self.best(q_values), self.best(plain)

    def count_width(self, noise: float) -> float:
        """E: a bound on the noise of every count at every release, but for a third of ``failure``.

        Gaussian: the normal quantile at failure / (3 cells releases). Laplace: a sum of independent
        Laplace variables of scales b_i has variance 2 B^2 with B^2 = sum b_i^2, and for c < 1 / B
        P(|sum| > t) <= 2 exp(-c t) / prod (1 - c^2 b_i^2) <= 2 exp(-c t) / (1 - c^2 B^2). With
        c^2 B^2 = 1 - 1 / l and l = ln(2 / p) this is p at t = B (l + ln l) / sqrt(1 - 1 / l).
        Discrete noise on a fine grid has the tails of the continuous one.
        """
        if noise == 0.0:
            return 0.0
        cells = self.evidence.transitions.size + 2 * self.evidence.rewards.size
        p = self.options.failure / (3.0 * cells * self.schedule.releases)
        if self.privacy.needs_l1:
            log_term = math.log(2.0 / p)
            width = (log_term + math.log(log_term)) / math.sqrt(1.0 - 1.0 / log_term)
            return noise / math.sqrt(2.0) * width
        return noise * -float(ndtri(p / 2.0))
