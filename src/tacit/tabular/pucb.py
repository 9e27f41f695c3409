"""PUCB: the optimistic learner of Vietri, Balle, Krishnamurthy and Wu (2020), as a baseline."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.learner import Calibration
from tacit.core.schedule import Schedule
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.tabular.ucbvi import UCBVI, count_width

Floats = NDArray[np.float64]


class ThreeCounts(UCBVI):
    """What the baselines share: running sums of all three counts, and the planning on them.

    Visits n(s, a) are counted on their own, besides rewards and transitions, as the papers do.
    """

    def __init__(
        self, spec: FiniteSpec, users: int, privacy: Privacy, *, stationary: bool, **options: Any
    ) -> None:
        super().__init__(spec, users, privacy, stationary=stationary, bonus="theory", **options)

    def _optimise(
        self, rewards: Floats, transitions: Floats, bonus: Floats, known: NDArray[np.bool_]
    ) -> tuple[Policy, Policy]:
        """Backward induction with values cut to what the steps left can pay.

        A cell that is not known is worth all of that to the optimist and nothing to the greedy
        policy. ``bonus`` is (H, S, A), the others have one row, or one per step.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        last = len(rewards) - 1
        q_values, plain = np.empty((H, S, A)), np.empty((H, S, A))
        value, plain_value = np.zeros(S), np.zeros(S)
        for h in range(H - 1, -1, -1):
            at, left = min(h, last), float(H - h)
            q = rewards[at] + transitions[at] @ value + bonus[h]
            q_values[h] = np.where(known[at], np.clip(q, 0.0, left), left)
            exact = np.clip(rewards[at] + transitions[at] @ plain_value, 0.0, left)
            plain[h] = np.where(known[at], exact, 0.0)
            value, plain_value = q_values[h].max(axis=1), plain[h].max(axis=1)
        self.q_values = q_values
        return self._best(q_values), self._best(plain)


class PUCB(ThreeCounts):
    """The first optimistic learner under joint DP: Hoeffding bonuses on three private counters.

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
    really drawn (:func:`~tacit.tabular.ucbvi.count_width`), where the paper has a bound in
    log(T)^(5/2). Values are cut at the steps left, the paper cuts at H. With
    ``calibration="tight"`` the noise is exact for the budget, Gaussian where delta > 0, through the
    best counter, and policies are republished at geometric times. ``"as_printed"`` has Laplace
    noise of scale 3 H log2(K) / epsilon in a binary tree and a new policy after every episode;
    since a user moves the three counts by 6 H and not 3 H, it is proven for about twice the
    epsilon, and says so. The greedy policy is ours.

    Cost: O(H S^2 A) per release, and memory for H S^2 A counts.

    Args:
        spec: sizes and horizon.
        users: how many users are declared.
        privacy: JointDP or NonPrivate.
        scale: multiplies conf; 1 is the theory's.
        failure: with which probability the confidence bounds may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for the paper's own noise.
        schedule: when a policy is republished; see :mod:`tacit.core.schedule`.
        seed: of ties and of the first, random policy; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.

    >>> from tacit.privacy.models import JointDP
    >>> spec = FiniteSpec(states=2, actions=2, horizon=3, stationary=False)
    >>> agent = PUCB(spec, users=1000, privacy=JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.guarantee.short
    '(1, 1e-06)-JDP per user, replace-one, any number of releases, simulation only'
    """

    name = "pucb"

    def __init__(
        self,
        spec: FiniteSpec,
        users: int,
        privacy: Privacy,
        *,
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(privacy, (JointDP, NonPrivate)):
            raise InvalidArgument(
                f"privacy of PUCB must be JointDP or NonPrivate, got {privacy!r}; UCBVI and LDPOB "
                "take LocalDP"
            )
        super().__init__(
            spec,
            users,
            privacy,
            stationary=False,
            scale=scale,
            failure=failure,
            calibration=calibration,
            schedule=schedule,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    def _plan(self) -> tuple[Policy, Policy]:
        counts = self.evidence.counts()
        E = count_width(self, float(counts.noise.max()))
        known = counts.visits >= 2.0 * E
        n = np.where(known, np.maximum(counts.visits, 1.0), 1.0)
        conf = self.scale * self._confidence(n, E)
        return self._optimise(
            counts.rewards / n, counts.transitions / n[..., np.newaxis], conf, known
        )

    def _confidence(self, n: Floats, E: float) -> Floats:
        """``conf`` of the class, for counts n >= max(2 E, 1)."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        L = math.log(4.0 * S * A * H * self.users / self.failure)
        of_sampling: Floats = (H + 1) * np.sqrt(2.0 * L / np.maximum(n - E, 1.0))
        return of_sampling + (1.0 + S * H) * (3.0 * E / n + 2.0 * (E / n) ** 2)
