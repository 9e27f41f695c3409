"""LDPOB: a baseline after Garcelon, Perchet, Pike-Burke and Pirotta (2021), from memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from tacit.core.algorithm import Floats
from tacit.finite.policy import Policy
from tacit.privacy.curators.local import flip_probability, noise_scale
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.three_counts import ThreeCounts

# Denominators are raised by this multiple of their noise's bound; the proof asks for more than 1.
_ALPHA = 2.0


class LDPOB(ThreeCounts):
    """After Garcelon et al. 2021, from memory: every device reports noisy counts of its own.

    Idea: add up the reports. With c_r, c_n, c_p, c_1 bounds on the noise in a reward sum, in the
    visits of a cell, in all its transitions together and in a single one, divide by counts that
    are raised enough to be positive, and add a bonus for all that may be off:

        n_r = max(1, visits + 2 c_n),                 n_p = max(1, sum_s' transitions + 2 c_p),
        beta_r = sqrt(2 L / n_r)    + (c_r + 3 c_n) / n_r,
        beta_p = sqrt(14 S L / n_p) + (S c_1 + 3 c_p) / n_p,
        Q = rewards / n_r + sum_s' transitions V(s') / n_p + beta_r + left beta_p,

    cut to [0, left], where left is the number of steps left and L = ln(6 S A K H / failure).
    beta_p bounds the distance of the estimated next-state distribution in the 1-norm, so the bonus
    is right for any V, whatever the signs of the estimates.

    Private statistics: n(s, a), r(s, a) and n(s, a, s') of one episode, pooled over steps when
    stationary: :class:`~tacit.finite.visits.VisitCounts` with visits, all zeros included. The
    device adds Laplace noise of scale 6 H / epsilon, or Gaussian noise (squared L2 sensitivity 6 H
    per step, at most 6 H^2 pooled), or randomises the bits of its one-hots (per step only). The
    noise of k reports grows like sqrt(k).

    Guarantee: that of every device's report, whoever reads it; see ``guarantee``. Local DP only.

    Deviations from the paper: the algorithm is written down from memory, not from the text. The
    two bonuses, the raised denominators (any alpha > 1; 2 here), pooled counts and the Laplace
    scale are as remembered; 2 and 14 and the argument of the logarithm could not be checked against
    the paper, and are valid as they stand (Hoeffding, and Weissman's bound for the 1-norm). The
    noise bounds c are for the noise that is really drawn: normal quantiles, or Bernstein's
    inequality for Laplace noise and bits. Gaussian noise is exact for its budget; with
    delta = 0 the noise is the paper's own. Policies are
    republished at geometric times, not after every episode. ``stationary=False`` counts each step
    on its own, which is the variant that bounds for changing transitions speak of. The greedy
    policy is ours.

    Cost: O(H S^2 A) per release. A device sends S^2 A + 2 S A numbers, H times as many per step.

    >>> from tacit import LDPOB, LocalDP
    >>> from tacit.finite.spec import FiniteSpec
    >>> spec = FiniteSpec(states=2, actions=2, horizon=3, stationary=True)
    >>> agent = LDPOB(spec, users=1000, privacy=LocalDP(1.0, 0.0), noise_seed=0)
    >>> agent.guarantee.epsilon, agent.guarantee.delta, agent.guarantee.model
    (1.0, 0.0, 'local')
    """

    name = "ldpob"
    after = "Garcelon et al."
    refuses: ClassVar = {
        **ThreeCounts.refuses,
        "ledger": "only JointDP has secrets",
        "autosave": "only JointDP has secrets",
    }

    def _check(self) -> None:
        if self.privacy.joint:
            raise InvalidArgument(
                f"privacy of LDPOB must be LocalDP or NonPrivate, got {self.privacy!r}; UCBVI and "
                "PUCB take JointDP"
            )
        if self.stationary and self.privacy.reports_bits:
            raise InvalidArgument(
                "randomised response is for counts of single steps: give stationary=False, or "
                "another mechanism"
            )

    def plan(self) -> tuple[Policy, Policy]:
        """Backward induction with both bonuses."""
        counts = self.evidence.counts()
        c = self._noise_widths(self.all_served)
        n_r = np.maximum(1.0, counts.visits + _ALPHA * c.visits)
        n_p = np.maximum(1.0, counts.transitions.sum(axis=-1) + _ALPHA * c.row)
        bonus = self.options.scale * self._bonus(n_r, n_p, c)
        known = np.ones(n_r.shape, dtype=bool)
        return self.optimise(
            counts.rewards / n_r, counts.transitions / n_p[..., np.newaxis], bonus, known
        )

    def _bonus(self, n_r: Floats, n_p: Floats, c: ReportWidths) -> Floats:
        """beta_r + left beta_p of the class, (H, S, A)."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        L = math.log(6.0 * S * A * self.users * H / self.options.failure)
        beta_r = np.sqrt(2.0 * L / n_r) + (c.reward + (_ALPHA + 1.0) * c.visits) / n_r
        beta_p = np.sqrt(14.0 * S * L / n_p) + (S * c.entry + (_ALPHA + 1.0) * c.row) / n_p
        left = np.arange(H, 0, -1.0).reshape(H, 1, 1)
        bonus: Floats = beta_r + left * beta_p
        return bonus

    def _noise_widths(self, reports: int) -> ReportWidths:
        """Bounds on the noise in the sum of so many reports.

        All of them hold at all releases together but for half of ``failure``. Gaussian: normal
        quantiles. Otherwise, for a sum with standard deviation s of independent terms with heavy
        part b, Bernstein: s sqrt(2 l) + b l with l = ln(2 / p). A Laplace term of scale b has
        log E exp(t X) <= b^2 t^2 / (1 - b t). A report's bit, made unbiased, differs from its mean
        by at most 1 / (1/2 - q), of which Bernstein takes a third, and has at most the variance
        1/4 / (1/2 - q)^2, and 1/4 more if it was rounded.
        """
        if not self.privacy.local:
            return ReportWidths(0.0, 0.0, 0.0, 0.0)
        cells, S = self.evidence.rewards.size, self.spec.states
        p = self.options.failure / (2.0 * cells * (S + 3.0) * self.schedule.releases)
        statistic, log_term = self.statistic(), math.log(2.0 / p)
        if self.privacy.mechanism == "gaussian":
            z = (
                -float(ndtri(p / 2.0))
                * noise_scale(statistic, self.privacy, False)
                * math.sqrt(reports)
            )
            return ReportWidths(z, z, math.sqrt(S) * z, z)
        if self.privacy.mechanism == "laplace":
            b = noise_scale(statistic, self.privacy, False)
            variance, rounding = 2.0 * b * b, 0.0
        else:
            b = 1.0 / (0.5 - flip_probability(statistic, self.privacy))
            variance, rounding, b = 0.25 * b * b, 0.25, b / 3.0
        of_row, of_entry, of_reward = (
            math.sqrt(2.0 * reports * v * log_term) + b * log_term
            for v in (S * variance, variance, variance + rounding)
        )
        return ReportWidths(of_reward, of_entry, of_row, of_entry)


@dataclass(frozen=True)
class ReportWidths:
    """Bounds on noise."""

    reward: float  # in a reward sum, c_r
    visits: float  # in the visits of a cell, c_n
    row: float  # in the sum of a cell's transitions, c_p
    entry: float  # in a single transition count, c_1
