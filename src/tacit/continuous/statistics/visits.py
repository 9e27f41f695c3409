"""Where users were: sums over their steps of features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.grid import Grid
from tacit.continuous.map_tools import loop_parameters
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.clipped_sums import ClippedSums, check_clip, raw_steps
from tacit.continuous.statistics.steps import Steps
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Floats, Layout, Part
from tacit.privacy.symmetric import pack


@dataclass(frozen=True, eq=False)
class VisitSums(ClippedSums):
    """Where users were: sums over steps of features, or of their outer products.

    On a :class:`Grid` the part ``visits`` (m,) holds the sums of the weights of grid points, a
    histogram. On any other map it is a Gram matrix (m, m). A user is scaled back to length
    ``clip``.

    Sensitivity. Histograms have no negative entry and Gram matrices no negative eigenvalue, so two
    users are never at an obtuse angle: of length at most clip, they are at most sqrt(2) clip apart.
    Two users at different points of the grid attain it.

    Attributes:
        spec: of the world.
        features: the map.
        clip: the longest that a user may be.
    """

    spec: BoxSpec
    features: FeatureMap
    clip: float

    def __post_init__(self) -> None:
        check_clip(self.clip)
        object.__setattr__(self, "name", "visits")

    @property
    def layout(self) -> Layout:
        """One part, ``visits``."""
        m = self.features.size
        if isinstance(self.features, Grid):
            return Layout((Part("visits", (m,)),))
        return Layout((Part("visits", (m, m), symmetric=True),))

    def l2(self, relation: Relation) -> float:
        """Sqrt(2) clip, or clip."""
        return self.clip * (math.sqrt(2.0) if relation is Relation.REPLACE_ONE else 1.0)

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
        states, labels, rewards, lengths = raw_steps(block, self.spec)
        add_visits(
            states,
            labels,
            rewards,
            lengths,
            self.spec.actions,
            grid.numbers,
            grid.table,
            self.clip,
            separate,
            out,
        )
