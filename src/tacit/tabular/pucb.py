"""PUCB: a baseline after Vietri, Balle, Krishnamurthy and Wu (2020), rebuilt from memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.core.algorithm import Floats
from tacit.finite.policy import Policy
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.three_counts import ThreeCounts, ThreeCountsOptions


@dataclass(frozen=True, kw_only=True)
class PUCBOptions(ThreeCountsOptions):
    """Those of three counts, per step."""

    stationary: bool | None = False


class PUCB(ThreeCounts):
    """After Vietri et al. 2020, from memory: Hoeffding bonuses on three private counters.

    Idea: count visits, rewards and transitions of every step with private counters. With E a bound
    on all their noise, a cell is unknown, and worth all it could be, until its noisy count n
    reaches 2 E. From then on, with r and m the noisy sums of rewards and of next states,

        Q = (r + sum_s' m(s') V(s')) / n + conf,      cut to [0, steps left],
        conf = (H + 1) sqrt(2 L / max(n - E, 1)) + (1 + S H) (3 E / n + 2 E^2 / n^2),
        L = ln(4 S A H K / failure).

    It is optimistic whenever the noise stays within E and the sampling within Hoeffding's bound.
    By the noise alone (r + m V*) / n is off by at most (2 + H + S H) E / n, and since V >= V* but
    m may be negative, by at least -E, planning with V instead loses at most another S H E / n.
    Together that is below (1 + S H) 3 E / n.

    Private statistics: per step, n(s, a), r(s, a) and n(s, a, s'):
    :class:`~tacit.finite.visits.VisitCounts` with visits, through one counter over all
    releases. L1 sensitivity 6 H, squared L2 sensitivity 6 H under replace-one.

    Guarantee: that of its curator; see ``guarantee``. Joint DP only.

    Deviations from the paper: the algorithm is written down from memory, not from the text. The
    form of conf, its 2 E threshold, and three counters of epsilon / (3 H) each are as remembered;
    the constants 3 and 2 in conf and the arguments of the logarithms could not be checked against
    the paper. L is a union bound over cells and counts. E is the quantile of the noise that is
    really drawn (:meth:`~tacit.tabular.three_counts.ThreeCounts.count_width`), where the paper has
    a bound in log(T)^(5/2). Values are cut at the steps left, the paper cuts at H. The noise is
    exact for the budget, Gaussian where delta > 0, through the best counter, and policies are
    republished at geometric times. The greedy policy is ours.

    Cost: O(H S^2 A) per release, and memory for H S^2 A counts.

    >>> from tacit import PUCB, JointDP
    >>> from tacit.finite.spec import FiniteSpec
    >>> spec = FiniteSpec(states=2, actions=2, horizon=3, stationary=False)
    >>> agent = PUCB(spec, users=1000, privacy=JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.guarantee.short
    '(1, 1e-06)-JDP per user, replace-one, any number of releases, simulation only'
    """

    name = "pucb"
    after = "Vietri et al."
    Options = PUCBOptions
    refuses: ClassVar = {**ThreeCounts.refuses, "stationary": "it counts every step of its own"}

    def _check(self) -> None:
        if self.privacy.local:
            raise InvalidArgument(
                f"privacy of PUCB must be JointDP or NonPrivate, got {self.privacy!r}; UCBVI and "
                "LDPOB take LocalDP"
            )
        super()._check()

    def plan(self) -> tuple[Policy, Policy]:
        """Hoeffding bonuses on what is known, all that could be on what is not."""
        counts = self.evidence.counts()
        E = self.count_width(float(counts.noise.max()))
        known = counts.visits >= 2.0 * E
        n = np.where(known, np.maximum(counts.visits, 1.0), 1.0)
        conf = self.options.scale * self._confidence(n, E)
        return self.optimise(
            counts.rewards / n, counts.transitions / n[..., np.newaxis], conf, known
        )

    def _confidence(self, n: Floats, E: float) -> Floats:
        """``conf`` of the class, for counts n >= max(2 E, 1)."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        L = math.log(4.0 * S * A * H * self.users / self.options.failure)
        of_sampling: Floats = (H + 1) * np.sqrt(2.0 * L / np.maximum(n - E, 1.0))
        return of_sampling + (1.0 + S * H) * (3.0 * E / n + 2.0 * (E / n) ** 2)
