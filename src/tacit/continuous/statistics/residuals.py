"""How far users' rewards and next states are from what public values predict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.continuous.feature_map import FeatureMap
from tacit.continuous.grid import Grid
from tacit.continuous.map_tools import loop_parameters
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.clipped_sums import ClippedSums, check_clip, raw_steps
from tacit.continuous.statistics.steps import Bools, Steps
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Floats, Layout, Part


@dataclass(frozen=True, eq=False)
class ResidualSums(ClippedSums):
    """How far users' rewards and next states are from what public values predict.

    A step has the residual e = (r - centre) / unit + discount V(s') - predictions[a] @ features(s)
    with V(s) = max_b values[b] @ features(s) - offset, cut to ``value_range``; where the episode
    ended, ``ending`` takes the place of V(s'), and the step is dropped if that is ``None``. A
    user's function is the sum over steps of e times K(s, .) for the action that was taken. One
    part, ``residuals``, of shape (actions, root.shape[1]): its coordinates. A user is scaled back
    to norm ``clip``.

    Sensitivity. The clipped user lies in a ball of radius clip, so two are at most 2 clip apart.
    Where only rewards may change, states and actions of two neighbours are the same. With rewards
    within a range of R, residuals differ by at most R / unit, and functions by H (R / unit) times
    the longest K(s, .). Scaling back to a ball brings no two points farther apart, so that bound
    holds after it, too. If the rewards of all n users move by at most ``radius`` together, the sum
    moves by at most n times as much as one of them can, that is n H (radius / unit) times the
    longest K(s, .), and never by more than 2 n clip.

    Attributes:
        spec: of the world.
        features: the map.
        root: (m, k), from features to the coordinates that are released.
        values: (actions, m).
        predictions: (actions, m).
        clip: c.
        discount: of the next value.
        centre: what rewards are measured from.
        unit: what rewards are measured in.
        offset: what values are measured from.
        value_range: of values.
        ending: the value of an end, or ``None``.
        unit_of_privacy: what may change between neighbours; rewards alone are asked for without
            values and predictions.
        radius: of the reward function, where that is what may change.
        group_size: how many users change together, where all do.
    """

    spec: BoxSpec
    features: FeatureMap
    root: Floats
    values: Floats
    predictions: Floats
    clip: float
    discount: float
    centre: float
    unit: float
    offset: float = 0.0
    value_range: tuple[float, float] = (-math.inf, math.inf)
    ending: float | None = None
    unit_of_privacy: str = WHOLE_EPISODE
    radius: float | None = None
    group_size: int = 1

    def __post_init__(self) -> None:
        check_clip(self.clip)
        m, A = self.features.size, self.spec.actions
        for name, lead in (("root", m), ("values", A), ("predictions", A)):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.ndim != 2 or len(array) != lead or not np.isfinite(array).all():
                raise InvalidArgument(f"{name} must be finite, with {lead} rows, got {array.shape}")
            if name != "root" and array.shape[1] != m:
                raise InvalidArgument(f"{name} must have {m} columns, got {array.shape}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.unit_of_privacy != WHOLE_EPISODE and (self.values.any() or self.predictions.any()):
            # A reward that is not a number drops its step, and with it what was predicted.
            raise InvalidArgument("values and predictions must be zero where rewards are protected")
        object.__setattr__(self, "name", "residuals")

    @property
    def protects(self) -> str:
        """What may change between neighbours."""
        return self.unit_of_privacy

    @property
    def private_columns(self) -> frozenset[str] | None:
        """Rewards, unless it is the whole episode."""
        return None if self.unit_of_privacy == WHOLE_EPISODE else frozenset({"rewards"})

    @property
    def layout(self) -> Layout:
        """One part, ``residuals``."""
        return Layout((Part("residuals", (self.spec.actions, self.root.shape[1])),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        if self.unit_of_privacy == WHOLE_EPISODE:
            return self.clip * (2.0 if relation is Relation.REPLACE_ONE else 1.0)
        low, high = self.spec.reward_range
        moved = high - low if self.radius is None else min(self.radius, high - low)
        most = self.spec.horizon * moved / self.unit * self._longest
        if self.radius is None and relation is Relation.ZERO_OUT:
            # Who is left out altogether counts as zero, which is at most clip away.
            return self.clip
        bound = min(2.0 * self.clip, most)
        if self.radius is None:
            # Zero is a neighbour at the gate: nothing is ever declared shorter than that.
            return max(bound, self.clip)
        return self.group_size * bound

    @property
    def _longest(self) -> float:
        """The longest K(s, .)."""
        if isinstance(self.features, Grid):
            # Weights of grid points are convex, so a point of the grid is longest.
            return float(np.linalg.norm(self.root, axis=1).max())
        return float(np.linalg.norm(self.root, 2)) * self.features.bound

    @property
    def _in_memory(self) -> int:
        return (self.spec.horizon + 1) * (self.features.size + int(self.root.shape[1]))

    def _sums(self, steps: Steps) -> Floats:
        A = self.spec.actions
        features = self.features(steps.states)
        residuals, valid = self._residuals(steps, features)
        taken = (steps.actions[..., np.newaxis] == np.arange(A)) & valid[..., np.newaxis]
        shares = np.where(taken, residuals[..., np.newaxis], 0.0)
        sums = (shares.swapaxes(1, 2) @ features[:, :-1]) @ self.root
        return sums.reshape(len(sums), A * self.root.shape[1])

    def _add(self, block: Block, separate: bool, out: Floats) -> None:
        from tacit.continuous.sum_loops import add_residuals

        grid = loop_parameters(self.features)
        assert grid is not None  # noqa: S101
        states, labels, rewards, lengths = raw_steps(block, self.spec)
        low, high = self.value_range
        ending = math.nan if self.ending is None else self.ending
        numbers = [self.clip, self.discount, self.centre, self.unit, self.offset, low, high]
        numbers += [ending, *self.spec.reward_range]
        add_residuals(
            states,
            labels,
            rewards,
            lengths,
            grid.numbers,
            grid.table,
            self.values,
            self.predictions,
            self.root,
            np.array(numbers),
            separate,
            out,
        )

    def _residuals(self, steps: Steps, features: Floats) -> tuple[Floats, Bools]:
        here, there = features[:, :-1], features[:, 1:]
        ahead = np.clip((there @ self.values.T).max(axis=-1) - self.offset, *self.value_range)
        valid = steps.valid
        if self.ending is None:
            valid = valid & ~steps.ended
        else:
            ahead = np.where(steps.ended, self.ending, ahead)
        predicted = np.take_along_axis(
            here @ self.predictions.T, steps.actions[..., np.newaxis], axis=-1
        )[..., 0]
        rewards = (steps.rewards - self.centre) / self.unit
        return rewards + self.discount * ahead - predicted, valid
