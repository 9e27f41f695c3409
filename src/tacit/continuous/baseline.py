"""What the baselines of the continuous family share: features, behaviour, saves, fitted Q.

All of them serve users with one public behaviour and publish a greedy policy in the end. They are
here to be compared with at the same budget, under the same accountant.
"""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.arguments import check_features, check_question, check_weights, discount_of
from tacit.continuous.features import FeatureMap, Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics import steps_of
from tacit.core.learner import Arrays, Learner
from tacit.core.schedule import Schedule
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block, Statistic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Asked = TypeVar("Asked", bound=Statistic)

# Points of a grid along each coordinate, by the number of coordinates; beyond, as for the last.
_POINTS = (11, 6, 4)
# Fitted Q stops when what further sweeps could change is this part of the values' range.
_PRECISION = 1e-3
_SWEEPS = 300


class Baseline(Learner[Asked, QPolicy]):
    """A learner of linear values on public features.

    Args:
        spec: of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        features: a public map on which values are linear; the spec's or a grid by default.
        discount: of future rewards; the spec's by default.
        schedule: when something is released; each baseline has its own.
        seed: of ties; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    spec: BoxSpec
    # The argument that users' sensitivity is made of.
    _size: ClassVar[str] = "radius"

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        features: FeatureMap | None = None,
        discount: float | None = None,
        schedule: str | Schedule = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(spec, BoxSpec):
            raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
        if features is None:
            features = spec.features or default_features(spec)
        check_features(features, spec)
        check_weights(spec, features.size)
        self.features = features
        self.discount = discount_of(discount, spec)
        self.weights: Floats = np.zeros((spec.actions, self.features.size))
        super().__init__(
            spec,
            users,
            privacy,
            schedule=schedule,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    @property
    def form(self) -> Literal["episodes"]:
        """Users one by one: all of these clip or perturb each of them."""
        return "episodes"

    @property
    def finished(self) -> bool:
        """Whether all users are served; then nobody is left to explore for."""
        return self.releases >= self.schedule.releases or self.served >= self.users

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        check_question(self._statistic(), self.privacy, self._size)

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        """All users in one block."""
        if schedule == "auto":
            return Schedule.parse(f"fixed:size={self.users}", self.users)
        return Schedule.of(schedule, self.users)

    def _first_policy(self) -> QPolicy:
        return QPolicy.uniform(self.spec.dimension, self.spec.actions)

    def _behaviour(self) -> QPolicy:
        """What serves the users of the next block: every action with the same chance."""
        return QPolicy.uniform(self.spec.dimension, self.spec.actions, version=self.releases)

    def _plan(self) -> tuple[QPolicy, QPolicy]:
        greedy = QPolicy.draw(self.features, self.weights, self._rng, version=self.releases)
        return (greedy if self.finished else self._behaviour()), greedy

    def _policy_arrays(self, policy: QPolicy) -> Arrays:
        return policy.arrays()

    def _policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        return QPolicy.from_arrays(arrays, version, self.features)

    def _identity(self) -> dict[str, Any]:
        own = {"features": repr(self.features), "discount": self.discount}
        return super()._identity() | own

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"weights": self.weights}

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self.weights = arrays["weights"]


def default_features(spec: BoxSpec) -> Grid:
    """A coarse grid: every number that is learnt about users costs noise."""
    points = _POINTS[min(spec.dimension, len(_POINTS)) - 1]
    return Grid(spec.lows, spec.highs, (points,) * spec.dimension)


def transitions(block: Block, spec: BoxSpec) -> tuple[Floats, Ints, Floats, Bools, Bools]:
    """A block's arrays as (users, H, ..), made safe: whatever the values are, nothing raises.

    Returns:
        States (users, H + 1, D), clipped to the box; actions, 0 where there is none; rewards,
        clipped to their range; which steps are valid; and which are the last before an end.
    """
    steps = steps_of(block, spec)
    states: Floats = np.clip(steps.states, spec.lows, spec.highs)
    return states, steps.actions, steps.rewards, steps.valid, steps.ended


def clipped(vectors: Floats, radius: float) -> Floats:
    """Rows of moderate size, scaled back to length ``radius`` where they are longer."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Floats = vectors * (radius / np.maximum(lengths, radius))
    return scaled


def middle(spec: BoxSpec, discount: float) -> float:
    """The middle of what values can be."""
    return 0.5 * sum(spec.reward_range) / (1.0 - discount)


def sweeps(discount: float) -> int:
    """How many sweeps fitted Q needs."""
    if discount <= 0.0:
        return 1
    return min(_SWEEPS, math.ceil(math.log(_PRECISION) / math.log(discount)))


def fitted_q(
    here: Floats,
    there: Floats,
    actions: Ints,
    rewards: Floats,
    valid: Bools,
    over: Bools,
    spec: BoxSpec,
    discount: float,
    ridge: float,
) -> Floats:
    """Fitted Q-iteration of linear values, for many sets of transitions at once.

    Values are regressed as their distance to the middle of their range, which is where a ridge
    leads to and where nobody was; in targets they are clipped to that range.

    Args:
        here: features of states, (sets, n, m).
        there: features of next states.
        actions: (sets, n).
        rewards: (sets, n).
        valid: which of them count.
        over: after which of them nothing is earned any more.
        spec: of the world.
        discount: of future rewards.
        ridge: is added to the Grams' diagonals.

    Returns:
        Weights (sets, actions, m), whose values lack the middle.
    """
    low, high = (end / (1.0 - discount) for end in spec.reward_range)
    centre = middle(spec, discount)
    m, A = here.shape[-1], spec.actions
    taken = ((actions[..., np.newaxis] == np.arange(A)) & valid[..., np.newaxis]).astype(float)
    grams = np.stack(
        [(here * taken[..., a, np.newaxis]).swapaxes(-1, -2) @ here for a in range(A)], axis=1
    )
    inverses = np.linalg.inv(grams + ridge * np.eye(m))
    weights = np.zeros((len(here), A, m))
    for _ in range(sweeps(discount)):
        next_values = (there @ weights.swapaxes(-1, -2)).max(axis=-1) + centre
        next_values = np.where(over, 0.0, np.clip(next_values, low, high))
        errors = rewards + discount * next_values - centre
        cross = (errors[..., np.newaxis] * taken).swapaxes(-1, -2) @ here
        weights = np.einsum("uaij,uaj->uai", inverses, cross)
    return weights
