"""LDPOB: the optimistic learner of Garcelon, Perchet, Pike-Burke and Pirotta (2021), a baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.core.schedule import Schedule
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.finite.visits import VisitCounts
from tacit.privacy.arguments import flag, instance_of
from tacit.privacy.curators.local import flip_probability, noise_scale
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import LocalDP, NonPrivate, Privacy
from tacit.tabular.agent import reports_bits
from tacit.tabular.pucb import ThreeCounts

Floats = NDArray[np.float64]

# Denominators are raised by this multiple of their noise's bound; the theory asks for more than 1.
_ALPHA = 2.0


class LDPOB(ThreeCounts):
    """The first optimistic learner under local DP: every device reports noisy counts of its own.

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
    inequality for Laplace noise and bits. Gaussian noise is exact for its budget. There is nothing
    to print as it was printed: with delta = 0 the noise is the paper's own. Policies are
    republished at geometric times, not after every episode. ``stationary=False`` counts each step
    on its own, which is the variant that bounds for changing transitions speak of. The greedy
    policy is ours.

    Cost: O(H S^2 A) per release. A device sends S^2 A + 2 S A numbers, H times as many per step.

    Args:
        spec: sizes and horizon.
        users: how many users are declared.
        privacy: LocalDP or NonPrivate.
        stationary: one model for all steps (the world's own by default), or one per step.
        scale: multiplies the bonus; 1 is the theory's.
        failure: with which probability the confidence bounds may fail.
        schedule: when a policy is republished; see :mod:`tacit.core.schedule`.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.

    >>> spec = FiniteSpec(states=2, actions=2, horizon=3, stationary=True)
    >>> agent = LDPOB(spec, users=1000, privacy=LocalDP(1.0, 0.0), noise_seed=0)
    >>> agent.guarantee.epsilon, agent.guarantee.delta, agent.guarantee.model
    (1.0, 0.0, 'local')
    """

    name = "ldpob"

    def __init__(
        self,
        spec: FiniteSpec,
        users: int,
        privacy: Privacy,
        *,
        stationary: bool | None = None,
        scale: float = 1.0,
        failure: float = 0.1,
        schedule: str | Schedule = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        if not isinstance(privacy, (LocalDP, NonPrivate)):
            raise InvalidArgument(
                f"privacy of LDPOB must be LocalDP or NonPrivate, got {privacy!r}; UCBVI and PUCB "
                "take JointDP"
            )
        instance_of("spec", spec, FiniteSpec)
        pooled = spec.stationary if stationary is None else flag("stationary", stationary)
        if pooled and reports_bits(privacy):
            raise InvalidArgument(
                "randomised response is for counts of single steps: give stationary=False, or "
                "another mechanism"
            )
        super().__init__(
            spec,
            users,
            privacy,
            stationary=pooled,
            scale=scale,
            failure=failure,
            schedule=schedule,
            seed=seed,
            noise_seed=noise_seed,
        )

    # All three counts of all cells and steps, pooled or not: nothing is masked or capped.

    @property
    def _papers(self) -> bool:
        return False

    @property
    def _masked(self) -> bool:
        return False

    @property
    def _cap(self) -> int | None:
        return None

    def _statistic(self, cap: int | None = None) -> VisitCounts:
        sizes = (self.spec.states, self.spec.actions, self.spec.horizon)
        return VisitCounts(*sizes, pooled=self.stationary, visits=True)

    def _plan(self) -> tuple[Policy, Policy]:
        counts = self.evidence.counts()
        c = self._widths(self.served)
        n_r = np.maximum(1.0, counts.visits + _ALPHA * c.visits)
        n_p = np.maximum(1.0, counts.transitions.sum(axis=-1) + _ALPHA * c.row)
        bonus = self.scale * self._bonus(n_r, n_p, c)
        known = np.ones(n_r.shape, dtype=bool)
        return self._optimise(
            counts.rewards / n_r, counts.transitions / n_p[..., np.newaxis], bonus, known
        )

    def _bonus(self, n_r: Floats, n_p: Floats, c: Widths) -> Floats:
        """beta_r + left beta_p of the class, (H, S, A)."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        L = math.log(6.0 * S * A * self.users * H / self.failure)
        beta_r = np.sqrt(2.0 * L / n_r) + (c.reward + (_ALPHA + 1.0) * c.visits) / n_r
        beta_p = np.sqrt(14.0 * S * L / n_p) + (S * c.entry + (_ALPHA + 1.0) * c.row) / n_p
        left = np.arange(H, 0, -1.0).reshape(H, 1, 1)
        bonus: Floats = beta_r + left * beta_p
        return bonus

    def _widths(self, reports: int) -> Widths:
        """Bounds on the noise in the sum of so many reports.

        All of them hold at all releases together but for half of ``failure``. Gaussian: normal
        quantiles. Otherwise, for a sum with standard deviation s of independent terms with heavy
        part b, Bernstein: s sqrt(2 l) + b l with l = ln(2 / p). A Laplace term of scale b has
        log E exp(t X) <= b^2 t^2 / (1 - b t). A report's bit, made unbiased, differs from its mean
        by at most 1 / (1/2 - q), of which Bernstein takes a third, and has at most the variance
        1/4 / (1/2 - q)^2, and 1/4 more if it was rounded.
        """
        if not isinstance(self.privacy, LocalDP):
            return Widths(0.0, 0.0, 0.0, 0.0)
        cells, S = self.evidence.rewards.size, self.spec.states
        p = self.failure / (2.0 * cells * (S + 3.0) * self.schedule.releases)
        statistic, log_term = self._statistic(), math.log(2.0 / p)
        if self.privacy.mechanism == "gaussian":
            z = -float(ndtri(p / 2.0)) * noise_scale(statistic, self.privacy) * math.sqrt(reports)
            return Widths(z, z, math.sqrt(S) * z, z)
        if self.privacy.mechanism == "laplace":
            b = noise_scale(statistic, self.privacy)
            variance, rounding = 2.0 * b * b, 0.0
        else:
            b = 1.0 / (0.5 - flip_probability(statistic, self.privacy))
            variance, rounding, b = 0.25 * b * b, 0.25, b / 3.0
        of_row, of_entry, of_reward = (
            math.sqrt(2.0 * reports * v * log_term) + b * log_term
            for v in (S * variance, variance, variance + rounding)
        )
        return Widths(of_reward, of_entry, of_row, of_entry)


@dataclass(frozen=True)
class Widths:
    """Bounds on noise.

    Attributes:
        reward: in a reward sum, c_r.
        visits: in the visits of a cell, c_n.
        row: in the sum of a cell's transitions, c_p.
        entry: in a single transition count, c_1.
    """

    reward: float
    visits: float
    row: float
    entry: float
