"""What is asked of users on vectors for a value-targeted regression on known models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.statistics.steps import parts_of, steps_of
from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import GramCross
from tacit.privacy.statistic import Block, Floats, Layout, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.simulated_spec import SimulatedSpec


@dataclass(frozen=True, eq=False)
class TargetedMoves(Statistic):
    """Sums over a user's steps of p p' and p q, for a public function U of the next state.

    With z the features of a state, p = z(s) @ inputs[a] (k numbers) is what the models say of U
    along the directions in which weights are unknown, and q = U(s') - z(s) @ means[a] the target,
    U(s') = (r(s') + discount z(s') @ values) / unit. Parts are ``gram`` (k, k) and ``cross``
    (k, 1), with weight sqrt(2) / ``most``. Where it is known which states are ends, U is the reward
    alone there; elsewhere a step into an end does not count.

    Both sums of a user are multiplied by min(1, clip / sum_t (|p_t|^2 + q_t^2 / most^2)).

    Sensitivity: sqrt(2) clip, and clip against zero, by the trajectory clip of
    :class:`~tacit.GramCross`: sums of y y' with y = (p, q / most) are positive semi-definite with
    trace at most clip, so that two of them are at most sqrt(2) clip apart. Attained by users whose
    p are orthogonal, with q = 0.
    """

    spec: SimulatedSpec
    features: FeatureMap
    inputs: Floats  # (A, m, k)
    means: Floats  # (A, m)
    values: Floats  # (m,)
    discount: float
    unit: float
    most: float
    clip: float

    def __post_init__(self) -> None:
        A, m = self.spec.actions, self.features.size
        shape = np.shape(self.inputs)
        wanted = {"inputs": (A, m, shape[-1]), "means": (A, m), "values": (m,)}
        for name, size in wanted.items():
            # In one order: how products are rounded depends on it, and a save keeps one only.
            array = np.array(getattr(self, name), dtype=np.float64, order="C")
            if array.shape != size or not np.isfinite(array).all():
                raise InvalidArgument(f"{name} must be finite, of shape {size}, got {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in ("unit", "most", "clip"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "name", "targeted moves")

    @cached_property
    def moments(self) -> GramCross:
        """What p and q are summed by."""
        k, weight = self.inputs.shape[2], math.sqrt(2.0) / self.most
        how = {"weight": weight, "tau": self.clip}
        return GramCross(k, 1, self.spec.horizon, pooled=True, clip="trajectory", **how)

    @property
    def layout(self) -> Layout:
        """``gram`` and ``cross``."""
        return self.moments.layout

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return self.moments.l2(relation)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        vectors = np.zeros((block.users, self.layout.size))
        for rows, part in parts_of(block, (self.spec.horizon + 1) * 3 * self.features.size):
            steps = steps_of(part, self.spec)
            z = self.features(steps.states)
            here, there = z[:, :-1], z[:, 1:]
            over = steps.ended[..., np.newaxis]
            if self.spec.ends is None:
                counts = steps.valid[..., np.newaxis] & ~over
            else:
                counts, there = steps.valid[..., np.newaxis], np.where(over, 0.0, there)
            p = np.zeros((*counts.shape[:2], self.inputs.shape[2]))
            expected = np.zeros(counts.shape[:2])
            for action in range(self.spec.actions):
                taken = steps.actions == action
                p[taken] = here[taken] @ self.inputs[action]
                expected[taken] = here[taken] @ self.means[action]
            ahead = self.spec.rewards(steps.states[:, 1:]) + self.discount * (there @ self.values)
            q = (ahead / self.unit - expected)[..., np.newaxis]
            arrays = {"p": np.where(counts, p, 0.0), "q": np.where(counts, q, 0.0)}
            vectors[rows] = self.moments.vectors(Block(part.users, arrays))
        return vectors
