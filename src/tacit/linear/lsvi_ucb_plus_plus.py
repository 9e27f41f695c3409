"""LSVI-UCB++ and DP-LSVI-UCB++: variance weights, bounds from both sides, rare switching."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays, State
from tacit.linear.lsvi_ucb import LSVIUCB
from tacit.linear.options import LinearOptions

if TYPE_CHECKING:
    from tacit.core.setting import Setting
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

    def __init__(self, setting: Setting, options: LinearOptions) -> None:
        super().__init__(setting, options)
        self._bounds = self._first_bounds()
        self._last_precision: Floats | None = None

    # Values from above and from below (lines 5 to 12).

    @property
    def value_functions(self) -> tuple[str, ...]:
        """Also a lower bound."""
        return (*super().value_functions, "pessimistic")

    def _first_bounds(self) -> dict[str, Floats]:
        """Nothing is known (line 2)."""
        shape = self.spec.horizon, self.spec.states, self.spec.actions
        left = np.arange(self.spec.horizon, 0, -1.0)[:, np.newaxis, np.newaxis]
        return {"optimistic": np.zeros(shape) + left, "pessimistic": np.zeros(shape)}

    def bounded(self, name: str, step: int, q_values: Floats) -> Floats:
        """As they are, and noted."""
        if name in self._bounds:
            self._bounds[name][step] = q_values
        return q_values

    @property
    def lower_values(self) -> Floats:
        """Pessimistic action values (H, S, A) of the last plan."""
        return np.array(self._bounds["pessimistic"])

    # When it switches.

    def switch(self, model: LinearModel) -> bool:
        """Whether some direction's precision doubled since; reads public matrices only."""
        new, old = model.precision(), self._last_precision
        if old is not None and not enough_was_learnt(old, new):
            return False
        self._last_precision = new
        return True

    # Save and resume.

    def state(self) -> State:
        """The bounds and the last precision too."""
        meta, arrays = super().state()
        if self._last_precision is not None:
            arrays = arrays | {"last_precision": self._last_precision}
        return meta, arrays | {f"bounds/{name}": bound for name, bound in self._bounds.items()}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        super().restore(meta, arrays)
        self._last_precision = arrays.get("last_precision")
        self._bounds = {name: arrays[f"bounds/{name}"] for name in self._bounds}


def enough_was_learnt(old: Floats, new: Floats) -> bool:
    """Whether at any step the precision of some direction of features doubled.

    The paper's test, line 9 of DP-LSVI-UCB++, is by determinants; it is in :mod:`tacit.papers`.
    """
    # The largest ratio x'Nx / x'Ox over directions x.
    lower = np.linalg.inv(np.linalg.cholesky(old))
    ratios = np.linalg.eigvalsh(lower @ new @ np.swapaxes(lower, -1, -2))
    return bool((ratios[..., -1] >= 2.0).any())
