"""Where users were: sums over their steps of features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.continuous.feature_map import is_grid, loop_parameters
from tacit.continuous.statistics.clipped_sums import ClippedSums, raw_steps
from tacit.continuous.statistics.steps import Steps
from tacit.privacy.bounds.balls import ACUTE
from tacit.privacy.statistic import Block, Floats, Part
from tacit.privacy.symmetric import pack

if TYPE_CHECKING:
    from tacit.continuous.feature_map import FeatureMap
    from tacit.continuous.spec import BoxSpec


@dataclass(frozen=True, eq=False)
class VisitSums(ClippedSums):
    """Where users were: sums over steps of features, or of their outer products.

    On a grid the part ``visits`` (m,) holds the sums of the weights of grid points, a
    histogram. On any other map it is a Gram matrix (m, m). A user is scaled back to length
    ``clip``.

    Sensitivity. Histograms have no negative entry and Gram matrices no negative eigenvalue, so two
    users are never at an obtuse angle: of length at most clip, they are at most sqrt(2) clip apart.
    Two users at different points of the grid attain it.
    """

    spec: BoxSpec
    features: FeatureMap
    clip: float
    apart: ClassVar[float] = ACUTE

    def __post_init__(self) -> None:
        m, on_grid = self.features.size, is_grid(self.features)
        self._sums_to(Part("visits", (m,) if on_grid else (m, m), symmetric=not on_grid))

    @property
    def _in_memory(self) -> int:
        return self.spec.horizon * self.features.size

    def _sums(self, steps: Steps) -> Floats:
        here = self.features(steps.states[:, :-1]) * steps.valid[..., np.newaxis]
        return pack(here.swapaxes(1, 2) @ here)

    def _add(self, block: Block, separate: bool, out: Floats) -> None:
        from tacit.continuous.sum_loops import add_visits

        grid = loop_parameters(self.features)
        assert grid is not None  # noqa: S101
        given = *raw_steps(block, self.spec), self.spec.actions, grid.numbers, grid.table
        add_visits(*given, self.clip, separate, out)
