"""What the algorithms with functional noise share: options, units, and the questions they ask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tacit.continuous.base import BoxAlgorithm, box_spec, discount_of
from tacit.continuous.constants import GRID, GRID_ENDS, MAP, FunctionalConstants
from tacit.continuous.estimate import Basis
from tacit.continuous.features import is_grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.clipped_sums import ResidualSums
from tacit.core.ways import way
from tacit.privacy.arguments import flag, instance_of, one_of, positive, steady_repr
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.kernels import Kernel
from tacit.privacy.sizing import check_question
from tacit.privacy.statistic import Floats, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.setting import Setting


class Units(NamedTuple):
    """What rewards are measured from and in, the value of an end, if any, and values' range."""

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


Protect = Literal["trajectory", "rewards", "reward_function"]

WAYS = {
    "grid": "tacit.continuous.features:Grid",
    "polynomial": "tacit.continuous.features:default_polynomial",
}
"""Maps that values are linear on, where the spec has none."""

# Points of a grid along each coordinate, by the number of coordinates.
_POINTS = (21, 9)
NO_CLIP = 1e9
"""A clip that clips nobody."""


@dataclass(frozen=True, kw_only=True)
class FunctionalOptions:
    """Options of the algorithms with functional noise.

    Attributes:
        protect: ``"trajectory"`` for a user's whole episode, ``"rewards"`` for a user's rewards
            where states and actions are public, ``"reward_function"`` for a reward function that
            all users share, within ``radius``.
        radius: how far two reward functions are apart at most, in sup norm.
        kernel: of users' functions and of the noise on a grid, on the unit cube; ``"auto"`` is
            smooth.
        discount: of future rewards, at most; the spec's by default.
        ends: whether episodes may end early, which is then worth 0; by default if the spec says
            so, or has features that are no grid.
        constants: tuned numbers; ``GRID`` or ``MAP`` of :mod:`tacit.continuous.constants` by
            default.
    """

    protect: Protect = "trajectory"
    radius: float | None = None
    kernel: Kernel | Literal["auto"] = "auto"
    discount: float | None = None
    ends: bool | None = None
    constants: FunctionalConstants | None = None

    def __post_init__(self) -> None:
        one_of("protect", self.protect, ("trajectory", "rewards", "reward_function"))
        if (self.protect == "reward_function") != (self.radius is not None):
            raise InvalidArgument(
                "radius belongs to protect='reward_function', and is needed there"
            )
        if self.radius is not None:
            object.__setattr__(self, "radius", positive("radius", self.radius))
        if self.own_kernel is not None and not isinstance(self.own_kernel, Kernel):
            raise InvalidArgument(f"kernel must be 'auto' or a kernel, got {self.kernel!r}")
        if self.ends is not None:
            flag("ends", self.ends)
        if self.constants is not None:
            instance_of("constants", self.constants, FunctionalConstants)

    @property
    def own_kernel(self) -> Kernel | None:
        """The kernel, if one was given."""
        return None if isinstance(self.kernel, str) and self.kernel == "auto" else self.kernel


class FunctionalAlgorithm(BoxAlgorithm):
    """An algorithm on private sums of users' functions.

    Attributes:
        discount: of future rewards, as far as plans can look ahead of the noise.
        ends: whether episodes may end early.
        weights: Q, in these units: (actions, m).
        depth: how many sweeps of values there are.
        paid: the spec with the range that rewards are cut to, which may be narrower.
    """

    options: FunctionalOptions
    features: FeatureMap

    def __init__(self, setting: Setting, options: FunctionalOptions) -> None:
        self.spec = self.paid = spec = box_spec(setting)
        self.users, self.options = setting.users, options
        self.features = spec.features or _default_features(spec)
        on_grid = is_grid(self.features)
        self.ends = (spec.may_end or not on_grid) if options.ends is None else options.ends
        usual = (GRID_ENDS if self.ends else GRID) if on_grid else MAP
        self.constants = options.constants or usual
        spec.check_weights(self.features.size)
        self._set_basis()
        self.mu = setting.privacy.episode_mu
        farthest = discount_of(options.discount, spec)
        self.depth = self._choose_depth(options, max(1, round(1.0 / (1.0 - farthest))))
        self.discount = min(farthest, 1.0 - 1.0 / self.depth)
        self.units = Units.of(
            self.paid, self.discount, self.ends
        )  # how rewards and values are measured
        self.weights: Floats = np.zeros((spec.actions, self.features.size))
        super().__init__(setting, options)

    def _set_basis(self) -> None:
        """What follows from features."""
        own = self.options.own_kernel
        self.basis = Basis(self.features, own, self.constants, not self.ends)

    @property
    def q_mean(self) -> Floats:
        """The posterior mean of Q, in rewards: (actions, m), values at the points of a grid.

        Where nothing ends it is up to a constant; elsewhere it is measured from the best there is.
        """
        return self.weights * self.units.unit

    def greedy(self, epsilon: float = 0.0) -> QPolicy:
        """The best actions by Q, and a uniform one with probability ``epsilon``."""
        return QPolicy.draw(self.features, self.weights, self.rng, epsilon, self.releases)

    # What is asked.

    def residuals(self, values: Floats, predictions: Floats, clip: float) -> ResidualSums:
        """How far users are from predictions of r + discount V(s'), with V = max_a values."""
        units, offset = self.units, self.basis.value(values)[1]
        tables = self.basis.root, values, predictions
        rewards = clip, self.discount, units.centre, units.unit
        ends = offset, units.value_range, units.ending
        return ResidualSums(self.paid, self.features, *tables, *rewards, *ends)

    def carried(self, value: Floats) -> Floats:
        """What of values is carried over to all actions, as weights (m,)."""
        return self.discount * value if self.basis.on_grid else np.zeros(self.features.size)

    def clip_at(self, fall: float) -> float:
        """The longest user, after a part ``fall`` in [0, 1] of all releases."""
        if not math.isfinite(self.mu):
            return NO_CLIP
        constants = self.constants
        clip = constants.clip * math.sqrt(self.signal)
        clip = min(constants.largest_clip, clip) * math.sqrt(self.spec.horizon)
        return float(clip * constants.clip_fall ** (fall - 0.5))

    @property
    def signal(self) -> float:
        """How far users stand out of the noise, per number that has to be learnt."""
        modes, spec = self.constants.modes, self.spec
        learnt = modes**spec.dimension if self.basis.on_grid else self.features.size / modes
        return self.users * self.mu / (spec.actions * learnt)

    # Choices made before the first user comes.

    def _choose_depth(self, options: Any, most: int) -> int:
        """How many sweeps of values there are: the noise in each is carried on to the next."""
        if not math.isfinite(self.mu):
            return most
        constants = self.constants
        wanted: int = round(constants.depth * self.signal**constants.depth_power)
        return min(most, max(constants.fewest, wanted))

    def _check(self) -> None:
        for statistic in self._questions():
            check_question(statistic, self.privacy, "clip")

    def _questions(self) -> list[Statistic]:
        """What will be asked, with the largest and the smallest clips."""
        zeros = np.zeros_like(self.weights)
        return [self.residuals(zeros, zeros, self.clip_at(fall)) for fall in (0.0, 1.0)]

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        own = {
            "discount": self.discount,
            "ends": self.ends,
            "constants": steady_repr(self.constants),
        }
        return super().identity() | own


def _default_features(spec: BoxSpec) -> FeatureMap:
    """A grid of up to two coordinates; of more its points would be too many for the noise."""
    found: FeatureMap
    if spec.dimension > len(_POINTS):
        found = way(WAYS["polynomial"])(spec.lows, spec.highs)
    else:
        shape = (_POINTS[spec.dimension - 1],) * spec.dimension
        found = way(WAYS["grid"])(spec.lows, spec.highs, shape)
    return found
