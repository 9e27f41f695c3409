"""Private policy evaluation by Monte Carlo, and greedy improvement between evaluations.

Idea:
    After Balle, Gomrokchi and Precup (2016, "Differentially private policy evaluation"): the values
    of a policy are regressed on the returns of those who followed it, counted at first visits, and
    the regression is published with noise. They evaluate one policy. Here a few are evaluated in
    turn, each the greedy one of the evaluation before, with some uniform actions: a reconstruction,
    as Wang and Hegde (2019) compare with it.
Private statistics:
    For each user, action and point of a grid: whether she took the action near the point, and the
    mean discounted reward that followed when she first did; clipped to norm c.
Guarantee:
    (epsilon, delta)-joint DP in one user's whole episode. The rounds are over different users,
    since returns are about the policy that was followed: each has the whole budget.
Deviations from the paper:
    Noise is on the regression's sums in place of its solution (its smooth sensitivity has no
    Gaussian form), so one accountant serves for all. Cells of a grid are its features, for which
    the regression is a ratio. Returns are means in place of sums, so that late visits are not
    counted as bad ones.
Cost:
    Linear in steps. Returns are noisy, and need many users.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.continuous.arguments import real
from tacit.continuous.baseline import Baseline, Floats, clipped, default_features, transitions
from tacit.continuous.features import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.core.schedule import Schedule, fixed
from tacit.privacy.arguments import positive, whole_number
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block, Layout, Part, Statistic


@dataclass(frozen=True)
class FirstVisits(Statistic):
    """First visits to pairs of an action and a point of a grid, and the returns from there on.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. A step belongs to its action and to
    the point whose weight is largest. The return from a step on is the discounted mean of all
    rewards until the horizon, zero after an end; from the middle of the rewards' range, in units of
    half of it, clipped to [-1, 1]. A step with a value that is not valid is no visit.

    Sensitivity. The vector is clipped to norm ``radius``. Visits are not negative, so of two
    users' vectors (v, r) and (v', r') only r and r' can be opposite. With |v|^2 + |r|^2 <= c^2 and
    |r| <= |v|, because every entry of r belongs to a visit and is at most 1,
    |v - v'|^2 + |r - r'|^2 <= 2 c^2 - 2 <v, v'> - 2 <r, r'>, and - <r, r'> <= <v, v'> entry by
    entry: so at most 2 c^2, c sqrt(2), attained by users who visit nothing in common. The zero
    vector is at most c away. (A common factor of the clip keeps |r| <= |v| entry by entry.)
    """

    spec: BoxSpec
    grid: Grid
    discount: float
    radius: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InvalidArgument(f"radius must be > 0, got {self.radius!r}")
        object.__setattr__(self, "name", "first visits and returns")

    @property
    def layout(self) -> Layout:
        """``visits`` and ``returns``, a row for each action."""
        shape = (self.spec.actions, self.grid.size)
        return Layout((Part("visits", shape), Part("returns", shape)))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        several = self.spec.actions * self.grid.size > 1
        if checked_relation(relation) is Relation.REPLACE_ONE and several:
            return math.sqrt(2.0) * self.radius
        return self.radius

    def vectors(self, block: Block) -> Floats:
        """Clipped visits and returns."""
        spec = self.spec
        states, actions, rewards, valid, _ = transitions(block, spec)
        users, H = actions.shape
        cells = actions * self.grid.size + self.grid(states[:, :-1]).argmax(axis=-1)
        size = spec.actions * self.grid.size
        means, later, weight = np.zeros((users, H)), np.zeros(users), 0.0
        for step in range(H - 1, -1, -1):
            later = rewards[:, step] + self.discount * later
            weight = 1.0 + self.discount * weight
            means[:, step] = later / weight
        low, high = spec.reward_range
        returns = np.clip((2.0 * means - low - high) / (high - low), -1.0, 1.0)
        keys = np.where(valid, np.arange(users)[:, np.newaxis] * size + cells, users * size)
        # The first of equal keys is the earliest step.
        visited, first = np.unique(keys.ravel(), return_index=True)
        there = visited < users * size
        dense = np.zeros((2, users * size + 1))
        dense[0, visited[there]] = 1.0
        dense[1, visited[there]] = returns.ravel()[first[there]]
        by_user = dense[:, :-1].reshape(2, users, size).swapaxes(0, 1)
        return clipped(by_user.reshape(users, 2 * size), self.radius)


class PolicyEvaluation(Baseline[FirstVisits]):
    """Evaluates a policy privately, improves it, and begins again; see the module.

    Args:
        spec: of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        rounds: how many evaluations there are, each over as many users.
        epsilon: the share of uniform actions while a policy is evaluated, after the first round,
            in which all are.
        radius: c, the largest norm of a user's vector; in proportion to the visits that a user can
            make by default.
        features: a grid; states must be in a finite box for the default one.
        discount: of future rewards.
        seed: of ties.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    name: ClassVar[str] = "private_policy_evaluation"

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        rounds: int = 3,
        epsilon: float = 0.5,
        radius: float | None = None,
        features: Grid | None = None,
        discount: float | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        self.rounds, self.epsilon = whole_number("rounds", rounds), real("epsilon", epsilon)
        self.radius = None if radius is None else positive("radius", radius)
        if not 0.0 <= self.epsilon <= 1.0:
            raise InvalidArgument(f"epsilon must be in [0, 1], got {epsilon!r}")
        if features is not None and not isinstance(features, Grid):
            raise InvalidArgument(f"features must be a Grid, got {features!r}")
        if features is None and isinstance(spec, BoxSpec):
            features = spec.features if isinstance(spec.features, Grid) else default_features(spec)
        super().__init__(
            spec,
            users,
            privacy,
            features=features,
            discount=discount,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        size = math.ceil(self.users / self.rounds)
        return Schedule(f"fixed:size={size}", fixed(self.users, size))

    def _behaviour(self) -> QPolicy:
        return QPolicy.draw(self.features, self.weights, self._rng, self.epsilon, self.releases)

    def _statistic(self) -> FirstVisits:
        assert isinstance(self.features, Grid)  # noqa: S101
        radius = self.radius
        if radius is None:
            radius = _RADIUS * math.sqrt(min(self.spec.horizon, self.weights.size))
        return FirstVisits(self.spec, self.features, self.discount, radius)

    def _absorb(self, release: Release, statistic: FirstVisits, users: int) -> None:
        """Ratios, drawn to the middle by two standard deviations of the noise."""
        ridge = 1.0 + 2.0 * float(np.max(release.std["visits"]))
        self.weights = release["returns"] / (np.maximum(release["visits"], 0.0) + ridge)

    def _identity(self) -> dict[str, Any]:
        own = {"rounds": self.rounds, "epsilon": self.epsilon, "radius": self.radius}
        return super()._identity() | own


# Of the largest norm that a user's visits can have.
_RADIUS = 0.7
