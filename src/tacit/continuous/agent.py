"""What the agents with functional noise share: kernels, units of reward, and what is known of Q."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.arguments import check_question, check_weights, discount_of, real
from tacit.continuous.features import FeatureMap, Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics import (
    REWARDS_ONLY,
    ResidualSums,
    VisitSums,
    reward_function_unit,
)
from tacit.core.learner import Arrays, Learner
from tacit.privacy.arguments import (
    MOST_USERS,
    flag,
    instance_of,
    one_of,
    positive,
    whole_number,
)
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.functional import RBF, GridFunctions, Kernel
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy
from tacit.privacy.statistic import WHOLE_EPISODE, Statistic

Floats = NDArray[np.float64]
Protect = Literal["trajectory", "rewards", "reward_function"]

# Points of a grid along each coordinate, by the number of coordinates; beyond, as for the last.
_POINTS = (21, 9, 5, 4)
_MOST_POINTS = 1500
# Eigenvalues of a kernel below this part of the largest are left out of a prior.
_SMALLEST = 1e-4
# A clip that clips nobody.
_NO_CLIP = 1e9
# Variance that stands for no noise at all.
_NO_NOISE = 1e-6


@dataclass(frozen=True)
class Constants:
    """Tuned numbers of the agents; lengths are parts of the box, rewards in units of their range.

    ``signal`` is users x mu / (actions x modes): how far the sum of all users stands out of the
    noise, per number that has to be learnt.

    Attributes:
        kernel_length: of the kernel that users' functions and the noise are made of.
        prior_length: of what Q is believed to look like.
        prior_reward: standard deviation of expected rewards, a priori.
        prior_moves: how far a step leads, a priori: what is believed of transitions.
        prior_drift: by how much targets may change between releases beside that.
        noise: standard deviation of a step's residual around its expectation.
        modes: numbers that have to be learnt per coordinate and action; on a feature map it is
            one in so many.
        depth: releases where ``signal`` is 1.
        depth_power: of ``signal`` that releases grow with.
        fewest: the smallest number of releases.
        clip: of users' functions, per root of ``signal`` and of the number of steps.
        largest_clip: the largest it gets, per root of the number of steps.
        clip_fall: the last clip over the first.
        growth: of mu^2 from release to release.
        visits: part of mu^2 that is spent on where users were.
        visits_clip: of users' visits: per root of the number of steps on a grid, per step on a map.
        averaged: over how many last value functions the greedy policy's is averaged.
        reward_clip: of users' rewards where only these are protected, per root of the steps.
    """

    kernel_length: float = 0.2
    prior_length: float = 0.35
    prior_reward: float = 0.4
    prior_moves: float = 0.03
    prior_drift: float = 0.05
    noise: float = 0.3
    modes: float = 3.0
    depth: float = 4.2
    depth_power: float = 0.6
    fewest: int = 4
    clip: float = 0.13
    largest_clip: float = 0.6
    clip_fall: float = 0.5
    growth: float = 1.05
    visits: float = 0.05
    visits_clip: float = 1.0
    averaged: int = 1
    reward_clip: float = 0.3

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("averaged", "fewest"):
                object.__setattr__(self, item.name, whole_number(item.name, value))
            elif real(item.name, value) < 0.0:
                raise InvalidArgument(f"{item.name} must be finite and >= 0, got {value!r}")
        if not 0.0 < self.visits < 1.0:
            raise InvalidArgument(f"visits must be in (0, 1), got {self.visits!r}")


GRID = Constants()
"""For grids."""

MAP = Constants(
    prior_reward=0.25,
    prior_moves=0.2,
    prior_drift=0.0,
    noise=0.1,
    clip=0.018,
    largest_clip=0.065,
    visits=0.2,
    visits_clip=0.2,
    averaged=5,
)
"""For other feature maps, whose features are of order one; what ends is worth one unit."""


@dataclass(frozen=True)
class Units:
    """How rewards and values are measured.

    Attributes:
        centre: what rewards are measured from.
        unit: what they are measured in.
        ending: the value of an end, or ``None`` where nothing ends.
        value_range: of values.
    """

    centre: float
    unit: float
    ending: float | None
    value_range: tuple[float, float]

    @classmethod
    def of(cls, spec: BoxSpec, discount: float, ends: bool) -> Units:
        """Where nothing ends only differences of values count, so rewards are centred.

        Where episodes may end, values are measured from the best that can be, so that an end,
        which is worth 0, is one unit below it if rewards are positive.
        """
        low, high = spec.reward_range
        if not ends:
            most = 1.0 / (1.0 - discount)
            return cls(0.5 * (low + high), high - low, None, (-most, most))
        unit = max(high - low, abs(high)) / (1.0 - discount)
        ending = -high / (1.0 - discount) / unit
        return cls(high, unit, ending, (min(-1.0, ending), max(0.0, ending)))


class Basis:
    """Features, the coordinates that are released, and what is believed a priori.

    On a grid users' functions belong to a kernel, and Q to a smoother Gaussian process; on any
    other map both are the features themselves.

    Attributes:
        features: the map.
        root: (m, k), from features to released coordinates.
        prior: (m, q): weights of a believed function are prior @ theta with standard normal theta.
        metric: (m, m) on a grid, such that v' metric v is the mean squared slope of a function
            with values v; ``None`` on other maps, where the weights' own length counts.
    """

    def __init__(self, features: FeatureMap, kernel: Kernel | None, constants: Constants) -> None:
        self.features = features
        self.metric: Floats | None = None
        if not isinstance(features, Grid):
            self.root = np.eye(features.size)
            self.prior = np.eye(features.size)
            return
        D = features.dimension
        points = (features.points - np.array(features.lows)) / (
            np.array(features.highs) - np.array(features.lows)
        )
        self.root = GridFunctions(kernel or RBF(constants.kernel_length, D), points).root
        values, vectors = np.linalg.eigh(RBF(constants.prior_length, D)(points, points))
        kept = values > _SMALLEST * values[-1]
        self.prior = vectors[:, kept] * np.sqrt(values[kept])
        table = np.eye(features.size).reshape(*features.shape, features.size)
        self.metric = np.zeros((features.size, features.size))
        for axis, n in enumerate(features.shape):
            slopes = np.gradient(table, 1.0 / (n - 1), axis=axis).reshape(features.size, -1)
            self.metric += slopes.T @ slopes / features.size

    @property
    def on_grid(self) -> bool:
        """Whether the map is a grid."""
        return self.metric is not None

    def value(self, weights: Floats) -> tuple[Floats, float]:
        """What stands for max_a weights[a] in the prior, and the offset of these values.

        On a grid values are centred: where nothing ends a constant means nothing.
        """
        if self.metric is None:
            return weights.ravel() / math.sqrt(len(weights)), 0.0
        best = weights.max(axis=0)
        return best - best.mean(), float(best.mean())

    def alike(self, one: Floats, other: Floats) -> Floats:
        """How alike rows of values are: what steps along them have in common, a priori."""
        likeness: Floats = one @ (other.T if self.metric is None else self.metric @ other.T)
        return likeness


@dataclass(frozen=True)
class Answer:
    """One release of residuals, and what was public when it was asked for.

    Attributes:
        sums: (actions, k), noisy.
        std: of the noise.
        users: how many were asked.
        predictions: (actions, m), of the part that was not carried over from the values.
        value: what stands for the values in the prior.
    """

    sums: Floats
    std: float
    users: int
    predictions: Floats
    value: Floats


class Belief:
    """What all releases say of targets f_a(V) = E[r + discount (V(s') - V(s)) | s, a].

    A priori, targets of two values V and W are jointly Gaussian, with the covariance

        prior prior' (reward^2 + discount^2 moves^2 <V, W> + drift^2 min(i, j))

    where <V, W> is how alike the values are: linear in both, it is a Gaussian prior over reward
    *and* transition operator. So what users said about earlier values counts for the present ones,
    as far as these are alike. On maps that are no grid V(s) is not subtracted.

    All of it is post-processing of releases.

    Args:
        basis: features and prior.
        constants: of the prior.
        actions: how many.
        discount: of the next value.
    """

    def __init__(self, basis: Basis, constants: Constants, actions: int, discount: float) -> None:
        self.basis, self.constants = basis, constants
        self.actions, self.discount = actions, discount
        self.answers: list[Answer] = []
        self.gram: Floats = np.zeros((basis.features.size, basis.features.size))
        self.gram_users = 0

    def copy(self) -> Belief:
        """A belief of its own that begins with the same releases."""
        new = Belief(self.basis, self.constants, self.actions, self.discount)
        new.answers, new.gram, new.gram_users = [*self.answers], self.gram, self.gram_users
        return new

    def fit(self, per_pass: int) -> Fit:
        """The posterior from all releases.

        Args:
            per_pass: how many releases ask the same users: without noise, their errors are one.
        """
        return Fit(self, per_pass)


class Fit:
    """The posterior of a :class:`Belief`, mode by mode.

    Releases have the same Gram matrix up to the number of users, so one singular value
    decomposition turns all of them into independent problems with one number per release.
    """

    def __init__(self, belief: Belief, per_pass: int) -> None:
        self._belief = belief
        basis, constants, answers = belief.basis, belief.constants, belief.answers
        gram = belief.gram / belief.actions
        shares = np.array([answer.users / belief.gram_users for answer in answers])
        stds = np.array([answer.std for answer in answers]) / shares
        exact = not stds.any()
        typical = math.sqrt(_NO_NOISE) if exact else float(np.sqrt(np.mean(stds**2)))
        ratios = np.ones(len(answers)) if exact else (stds / typical) ** 2
        root = basis.root
        residual = constants.noise**2 * (root.T @ gram @ root) * (per_pass if exact else 1)
        whiten = np.linalg.inv(np.linalg.cholesky(residual + typical**2 * np.eye(root.shape[1])))
        left, self._gains, self._modes = np.linalg.svd(
            whiten @ root.T @ gram @ basis.prior, full_matrices=False
        )
        self._values = np.array([answer.value for answer in answers])
        seen = np.array(
            [
                answer.sums / share + answer.predictions @ gram @ root
                for answer, share in zip(answers, shares, strict=True)
            ]
        )
        # (actions, modes, answers)
        seen = np.einsum("jak,kq->aqj", seen @ whiten.T, left)
        squares = (self._gains**2)[:, np.newaxis, np.newaxis]
        self._inverse = np.linalg.inv(squares * self._covariance() + np.diag(ratios))
        self._weights = np.einsum("qij,aqj->aqi", self._inverse, seen) * self._gains[:, np.newaxis]

    def targets(self, value: Floats) -> Floats:
        """The posterior mean of targets for values, as weights (actions, m)."""
        modes = self._weights @ self._with(value)
        targets: Floats = modes @ self._modes @ self._belief.basis.prior.T
        return targets

    def spread(self, value: Floats) -> Floats:
        """The posterior standard deviation of those weights, (m,); of all actions the same."""
        covariance = self._with(value)
        constants, n = self._belief.constants, len(self._values)
        alone = self._reward_and_moves(value[np.newaxis], value[np.newaxis])[0, 0]
        alone += constants.prior_drift**2 * n
        told = np.einsum("i,qij,j->q", covariance, self._inverse, covariance) * self._gains**2
        shapes = self._belief.basis.prior @ self._modes.T
        whole = (self._belief.basis.prior**2).sum(axis=1) * alone
        spread: Floats = np.sqrt(np.maximum(whole - shapes**2 @ told, 0.0))
        return spread

    def _reward_and_moves(self, one: Floats, other: Floats) -> Floats:
        constants, discount = self._belief.constants, self._belief.discount
        moves = (discount * constants.prior_moves) ** 2
        return constants.prior_reward**2 + moves * self._belief.basis.alike(one, other)

    def _covariance(self) -> Floats:
        index = np.arange(len(self._values))
        drift = self._belief.constants.prior_drift**2 * np.minimum.outer(index, index)
        covariance: Floats = self._reward_and_moves(self._values, self._values) + drift
        return covariance

    def _with(self, value: Floats) -> Floats:
        """The covariance of a target now with those that were asked about."""
        drift = self._belief.constants.prior_drift**2 * np.arange(len(self._values))
        covariance: Floats = self._reward_and_moves(value[np.newaxis], self._values)[0] + drift
        return covariance


class FunctionalAgent(Learner[Statistic, QPolicy]):
    """A learner of Q that hides each user's function by functional noise; without its algorithm.

    Args:
        spec: of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        protect: ``"trajectory"`` for a user's whole episode, ``"rewards"`` for a user's rewards
            where states and actions are public, ``"reward_function"`` for a reward function that
            all users share, within ``radius``.
        radius: how far two reward functions are apart at most, in sup norm.
        kernel: of users' functions and of the noise on a grid, on the unit cube; ``"auto"`` is
            smooth.
        discount: of future rewards, at most; the spec's by default.
        ends: whether episodes may end early, which is then worth 0; by default if the spec has
            features that are no grid.
        constants: tuned numbers.
        schedule: when something is released.
        seed: of ties; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    spec: BoxSpec

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        protect: Protect = "trajectory",
        radius: float | None = None,
        kernel: Kernel | Literal["auto"] = "auto",
        discount: float | None = None,
        ends: bool | None = None,
        constants: Constants | None = None,
        schedule: Any = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(spec, BoxSpec):
            raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
        users = whole_number("users", users, most=MOST_USERS)
        self.protect, self.radius = protect, radius
        self._kernel = None if isinstance(kernel, str) and kernel == "auto" else kernel
        _check_protection(self)
        features = spec.features or _default_grid(spec)
        on_grid = isinstance(features, Grid)
        self.ends = (not on_grid) if ends is None else flag("ends", ends)
        if self.ends and on_grid:
            raise InvalidArgument("ends needs features that are no grid: values there are centred")
        if constants is None:
            constants = GRID if on_grid else MAP
        instance_of("constants", constants, Constants)
        self.constants = constants
        check_weights(spec, features.size)
        self.basis = Basis(features, self._kernel, self.constants)
        most = discount_of(discount, spec)
        self._mu = _mu(privacy)
        self._most_discount = most
        self._depth = self._choose_depth(spec, users)
        self.discount = min(most, 1.0 - 1.0 / self._depth)
        self.units = Units.of(spec, self.discount, self.ends)
        self.weights: Floats = np.zeros((spec.actions, features.size))
        self._begin()
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

    def _begin(self) -> None:
        """Sets what is known before the first user comes."""

    @property
    def form(self) -> Literal["episodes"]:
        """Users one by one: each is clipped."""
        return "episodes"

    @property
    def features(self) -> FeatureMap:
        """The map that values are linear on."""
        return self.basis.features

    @property
    def q_mean(self) -> Floats:
        """The posterior mean of Q, in rewards: (actions, m), values at the points of a grid.

        Where nothing ends it is up to a constant.
        """
        return self.weights * self.units.unit

    @property
    def _protects(self) -> str:
        if self.protect == "rewards":
            return REWARDS_ONLY
        if self.protect == "reward_function":
            assert self.radius is not None  # noqa: S101
            return reward_function_unit(self.radius)
        return WHOLE_EPISODE

    def _check_options(self, schedule: Any) -> None:
        super()._check_options(schedule)
        for statistic in self._questions():
            check_question(statistic, self.privacy, "clip")

    # What is asked.

    def _questions(self) -> list[Statistic]:
        """What will be asked, with the largest and the smallest clips."""
        zeros = np.zeros_like(self.weights)
        return [self._residuals(zeros, zeros, self._clip(fall)) for fall in (0.0, 1.0)]

    def _signal(self, spec: BoxSpec, users: int) -> float:
        """How far users stand out of the noise, per number that has to be learnt."""
        modes = self.constants.modes
        learnt = modes**spec.dimension if self.basis.on_grid else self.features.size / modes
        return users * self._mu / (spec.actions * learnt)

    def _choose_depth(self, spec: BoxSpec, users: int) -> int:
        """How many sweeps of values there are: the noise in each is carried on to the next."""
        most = max(1, round(1.0 / (1.0 - self._most_discount)))
        if not math.isfinite(self._mu):
            return most
        constants = self.constants
        wanted: int = round(constants.depth * self._signal(spec, users) ** constants.depth_power)
        return min(most, max(constants.fewest, wanted))

    def _clip(self, fall: float) -> float:
        """The longest user, after a part ``fall`` in [0, 1] of all releases."""
        if not math.isfinite(self._mu):
            return _NO_CLIP
        constants = self.constants
        clip = constants.clip * math.sqrt(self._signal(self.spec, self.users))
        clip = min(constants.largest_clip, clip) * math.sqrt(self.spec.horizon)
        return float(clip * constants.clip_fall ** (fall - 0.5))

    def _visits(self) -> VisitSums:
        T = self.spec.horizon
        clip = self.constants.visits_clip * (math.sqrt(T) if self.basis.on_grid else T)
        return VisitSums(self.spec, self.features, clip if math.isfinite(self._mu) else _NO_CLIP)

    def _residuals(self, values: Floats, predictions: Floats, clip: float) -> ResidualSums:
        units = self.units
        return ResidualSums(
            self.spec,
            self.features,
            self.basis.root,
            values,
            predictions,
            clip=clip,
            discount=self.discount,
            centre=units.centre,
            unit=units.unit,
            offset=self.basis.value(values)[1],
            value_range=units.value_range,
            ending=units.ending,
        )

    def _carried(self, value: Floats) -> Floats:
        """What of values is carried over to all actions, as weights (m,)."""
        return self.discount * value if self.basis.on_grid else np.zeros(self.features.size)

    # What is published.

    def _first_policy(self) -> QPolicy:
        return QPolicy.uniform(self.spec.dimension, self.spec.actions)

    def _greedy_policy(self, epsilon: float = 0.0) -> QPolicy:
        return QPolicy.draw(
            self.features, self.weights, self._rng, epsilon=epsilon, version=self.releases
        )

    # Save and resume.

    def _policy_arrays(self, policy: QPolicy) -> Arrays:
        return policy.arrays()

    def _policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        return QPolicy.from_arrays(arrays, version, self.features)

    def _identity(self) -> dict[str, Any]:
        own = {
            "protects": self._protects,
            "kernel": repr(self._kernel),
            "discount": self.discount,
            "ends": self.ends,
            "constants": repr(self.constants),
        }
        return super()._identity() | own


def _default_grid(spec: BoxSpec) -> Grid:
    points = _POINTS[min(spec.dimension, len(_POINTS)) - 1]
    if points**spec.dimension > _MOST_POINTS:
        raise InvalidArgument(
            f"the spec must have features: states have {spec.dimension} coordinates, and a grid of "
            f"{points} points along each has {points**spec.dimension:,}, of which noise would "
            "leave little; take a map as tacit.continuous.Polynomial, or a Grid of your own"
        )
    return Grid(spec.lows, spec.highs, (points,) * spec.dimension)


def _mu(privacy: Privacy) -> float:
    """What one episode may cost; infinite without privacy."""
    if isinstance(privacy, NonPrivate):
        return math.inf
    if not isinstance(privacy, (JointDP, LocalDP)):
        raise InvalidArgument(f"privacy must be JointDP, LocalDP or NonPrivate, got {privacy!r}")
    if privacy.delta == 0 or (isinstance(privacy, LocalDP) and privacy.mechanism != "gaussian"):
        raise InvalidArgument("functional noise is Gaussian: it needs delta > 0")
    if isinstance(privacy, JointDP):
        return math.sqrt(privacy.episode_limit)
    return float(privacy.budget.mu) / math.sqrt(privacy.episodes_per_user)


def _check_protection(agent: FunctionalAgent) -> None:
    one_of("protect", agent.protect, ("trajectory", "rewards", "reward_function"))
    radius = agent.radius
    if (agent.protect == "reward_function") != (radius is not None):
        raise InvalidArgument("radius belongs to protect='reward_function', and is needed there")
    if radius is not None:
        agent.radius = positive("radius", radius)
    if agent._kernel is not None and not isinstance(agent._kernel, Kernel):
        raise InvalidArgument(f"kernel must be 'auto' or a kernel, got {agent._kernel!r}")
