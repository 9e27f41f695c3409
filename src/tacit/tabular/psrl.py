"""PSRL: posterior sampling on private counts, after Osband, Russo and Van Roy (2013)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.core.asks import Ask, Asks
from tacit.finite.visits import row_of
from tacit.tabular.base import TabularAlgorithm

if TYPE_CHECKING:
    from tacit.core.algorithm import Floats
    from tacit.finite.policy import Policy

# Of the Dirichlet prior: how many visits to all next states together nothing known is worth.
_PRIOR = 1.0


class PSRL(TabularAlgorithm):
    """Posterior sampling: every block follows the best policy of a world that may be the true one.

    Idea: what the counts leave open is a distribution over worlds. Draw one, follow its best
    policy for a block, and count again: what is uncertain is tried as often as it may be best.

    Private statistics: :class:`~tacit.finite.visits.VisitCounts` of every block, as for UCBVI.

    Guarantee: that of its curator; see ``guarantee``. Worlds are drawn from releases.

    Deviations from the paper: a world is drawn per block, not per episode. Noise is not part of
    the posterior's model; it makes counts worth less: n visits whose row of S counts has noise of
    standard deviation s in each entry count as n^2 / (n + S s^2), as many as would leave the
    same error without noise. Rewards are normal around their mean and cut to [0, 1].

    Cost: O(H S^2 A) per release.
    """

    name = "psrl"
    refuses: ClassVar = dict.fromkeys(("scale",), "it draws a world in place of a bonus")

    # What is asked: the counts of each block, once, with its whole budget.

    def asks(self) -> Asks:
        """Counts along the block's policy; see :meth:`TabularAlgorithm.statistic`."""
        statistic = self.statistic()
        release = yield Ask(statistic)
        self.take_in(release, statistic)

    # What is estimated: a distribution over worlds.

    def posterior(self) -> tuple[Floats, Floats, Floats]:
        """Next states (L, S, A, S) and rewards (L, S, A) on average, and what visits are worth."""
        counts, S = self.evidence.counts(), self.spec.states
        rows = np.maximum(counts.transitions, 0.0)
        visits = np.where(counts.reached, rows.sum(axis=-1), 0.0)
        worth = visits**2 / np.maximum(visits + S * counts.noise**2, 1e-12)
        shares = rows / np.maximum(visits, 1e-12)[..., np.newaxis]
        mean = (worth[..., np.newaxis] * shares + _PRIOR / S) / (worth + _PRIOR)[..., np.newaxis]
        paid = np.clip(counts.rewards / np.maximum(visits, 1e-12), 0.0, 1.0)
        return mean, (worth * paid + _PRIOR * 0.5) / (worth + _PRIOR), worth

    # How it plans: the best policy of one world, and of the average one.

    def plan(self) -> tuple[Policy, Policy]:
        """The best policy of a world that was drawn, and the best for what is expected."""
        mean, paid, worth = self.posterior()
        weights = self.rng.gamma(mean * (worth + _PRIOR)[..., np.newaxis])
        drawn = weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-300)
        spread = 0.5 / np.sqrt(worth + _PRIOR)
        rewards = np.clip(self.rng.normal(paid, spread), 0.0, 1.0)
        return self.best(self._values(drawn, rewards)), self.best(self._values(mean, paid))

    def _values(self, P: Floats, r: Floats) -> Floats:
        """Optimal action values (H, S, A) of a world, by backward induction."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        q_values, value = np.empty((H, S, A)), np.zeros(S)
        for h in range(H - 1, -1, -1):
            at = row_of(h, H, len(r))
            q_values[h] = r[at] + P[at] @ value
            value = q_values[h].max(axis=1)
        return q_values
