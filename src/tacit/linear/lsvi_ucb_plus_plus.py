"""LSVI-UCB++ and DP-LSVI-UCB++: variance weights, bounds from both sides, rare switching."""

from __future__ import annotations

import numpy as np

from tacit.core.algorithm import Floats, Plan, Progress
from tacit.linear.lsvi_ucb import LSVIUCB, LinearMemory, State


class LSVIUCBPlusPlus(LSVIUCB):
    """LSVI-UCB++ (He et al. 2023) and its private form, DP-LSVI-UCB++ (Sahu).

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`, and besides: steps are weighted by the
    variance of the value that follows them; values are bounded from above and from below; and a
    policy is replaced only when enough was learnt.

    Private statistics and guarantee: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`. A weight
    depends on the user's own state and action and on releases before her block, so a user changes
    later weights through releases only.

    Deviations from the paper: noise is fresh in every release and never accumulates (lines 1 and
    26); the lower bound is max(r + w phi - beta |phi|, .) cut at 0 (line 11); all steps switch
    together (lines 9 to 12); second moments are cut to [0, H^2]; the number of releases is fixed in
    advance, so a switching test that fires by noise costs nothing. Bounds do not tighten for good:
    practical ones are too low at times, and would stay so.
    """

    name = "lsvi_ucb_plus_plus"
    signs = (1.0, 0.0, -1.0)  # also a lower bound (lines 5 to 12)
    weighted = True

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """New policies once a direction's precision has doubled. Args: see Algorithm.plan."""
        if last is None:
            return super().plan(state, last, at, rng)
        model = self.estimator.model(state, last.memory.variances)
        precision = model.precision()
        if not enough_was_learnt(last.memory.precision, precision):
            return last
        Q, variances = self.backward_induction(model)
        # Steps of later blocks are weighted by them (line 25).
        if self.estimator.pooled or (self.stationary and self.statistic_kind == "counts"):
            variances = variances.mean(axis=0, keepdims=True)
        memory = LinearMemory(last.memory.switches + 1, variances, precision)
        return Plan(self.best(Q[0], rng), self.best(Q[1], rng), memory)


def enough_was_learnt(old: Floats | None, new: Floats) -> bool:
    """Whether at any step the precision of some direction of features doubled.

    The paper's test, line 9 of DP-LSVI-UCB++, is by determinants; it is in :mod:`tacit.papers`.
    """
    if old is None:
        return True
    # The largest ratio x'Nx / x'Ox over directions x.
    lower = np.linalg.inv(np.linalg.cholesky(old))
    ratios = np.linalg.eigvalsh(lower @ new @ np.swapaxes(lower, -1, -2))
    return bool((ratios[..., -1] >= 2.0).any())
