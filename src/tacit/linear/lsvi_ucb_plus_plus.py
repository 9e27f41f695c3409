"""LSVI-UCB++ and DP-LSVI-UCB++: variance weights, bounds from both sides, rare switching."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.algorithm import Floats
from tacit.linear.lsvi_ucb import LSVIUCB, Memory

if TYPE_CHECKING:
    from tacit.linear.estimate import LinearModel


class LSVIUCBPlusPlus(LSVIUCB):
    """LSVI-UCB++ (He et al. 2023) and its private form, DP-LSVI-UCB++ (Sahu).

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`, and besides: steps are weighted by the
    variance of what follows them; values are bounded from above and from below; and a policy is
    replaced only when enough was learnt.

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
    default_weights = "variance"

    @property
    def value_functions(self) -> tuple[str, ...]:
        """Also a lower bound (lines 5 to 12)."""
        return (*super().value_functions, "pessimistic")

    def switch(self, model: LinearModel, memory: Memory) -> Memory | None:
        """A new plan if some direction's precision doubled since; reads public matrices only."""
        new, old = model.precision(), memory.precision
        if old is not None and not enough_was_learnt(old, new):
            return None
        return replace(memory, switches=memory.switches + 1, precision=new)


def enough_was_learnt(old: Floats, new: Floats) -> bool:
    """Whether at any step the precision of some direction of features doubled.

    The paper's test, line 9 of DP-LSVI-UCB++, is by determinants; it is in :mod:`tacit.papers`.
    """
    # The largest ratio x'Nx / x'Ox over directions x.
    lower = np.linalg.inv(np.linalg.cholesky(old))
    ratios = np.linalg.eigvalsh(lower @ new @ np.swapaxes(lower, -1, -2))
    return bool((ratios[..., -1] >= 2.0).any())
