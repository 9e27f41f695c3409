"""Where users were: sums over their steps of features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.continuous.feature_map import FeatureMap, loop_parameters
from tacit.continuous.grid import Grid
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import (
    check_clip,
    parts_of,
    raw_steps,
    scaled_back,
    steps_of,
)
from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic
from tacit.privacy.symmetric import pack


@dataclass(frozen=True, eq=False)
class VisitSums(Statistic):
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

    def vectors(self, block: Block) -> Floats:
        """Each user's visits, scaled back."""
        vectors = np.zeros((block.users, self.layout.size))
        if isinstance(self.features, Grid):
            self._add(block, separate=True, out=vectors)
            return vectors
        for rows, part in parts_of(block, self.spec.horizon * self.features.size):
            steps = steps_of(part, self.spec)
            here = self.features(steps.states[:, :-1]) * steps.valid[..., np.newaxis]
            vectors[rows] = pack(here.swapaxes(1, 2) @ here)
        return scaled_back(vectors, self.clip)

    def total(self, block: Block) -> Floats:
        """The sum over users, compiled on grids."""
        if block.aggregate or not isinstance(self.features, Grid):
            return super().total(block)
        out: Floats = np.zeros((1, self.layout.size))
        self._add(block, separate=False, out=out)
        return out.reshape(-1)

    def _add(self, block: Block, separate: bool, out: Floats) -> None:
        """Compiled, for grids: histograms of single users, or their sum."""
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
