"""What all linear algorithms share: which way they ask, what it costs, when blocks end.

Plumbing: an algorithm's own file says how it is optimistic and how it plans.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, State, below
from tacit.core.ways import way
from tacit.finite.algorithm import WayAlgorithm
from tacit.linear.estimate import LinearModel, LinearWidths
from tacit.linear.options import LinearOptions, choose_statistic
from tacit.linear.tables import unit_features
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.linear.spec import LinearSpec
    from tacit.privacy.curator import Release

WAYS = {
    "features": "tacit.linear.features:FeatureWay",
    "counts": "tacit.linear.counts:CellWay",
}
"""Ways to ask, of which ``statistic="auto"`` chooses one (see :attr:`LinearAlgorithm.why`).

Sums of features know every value function at once, in any finite world. Counts along the block's
own policy are for few states.
"""

# What a save keeps.
_KEPT = ("q_values", "_variances")


class LinearWay(ABC):
    """How a block is asked, and what its answers say; ``known`` is what all so far add up to."""

    known: Any
    _algorithm: LinearAlgorithm

    @abstractmethod
    def statistic(self, one_by_one: bool) -> Any:
        """What is asked of a block whose users are summed one by one, or all at once."""

    @abstractmethod
    def take_in(self, release: Release, statistic: Any) -> None:
        """Learns from its answer."""

    @abstractmethod
    def model(self) -> LinearModel:
        """What is known now."""


class LinearAlgorithm(WayAlgorithm):
    """An algorithm for linear MDPs on private sums."""

    spec: LinearSpec
    options: LinearOptions
    Options = LinearOptions
    default_weights: ClassVar[Literal["variance", "none"]] = "none"

    def __init__(self, setting: Setting, options: LinearOptions) -> None:
        spec: LinearSpec = setting.spec
        if not hasattr(spec, "weight_bound"):
            raise InvalidArgument(
                "this agent needs features: spec must be a LinearSpec, as of simplex or two_state, "
                "or of tacit.linear.linear_from_tabular(world) for any finite world; got "
                f"{type(spec).__name__}"
            )
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.growth = options.growth
        self.weights = self.default_weights if options.weights == "auto" else options.weights
        self.statistic_kind, self._reason = choose_statistic(spec, setting.privacy, options)
        # One factor for all keeps them linear; statistics cut to length 1 whatever comes.
        longest = max(1.0, float(np.sqrt((spec.features**2).sum(axis=-1).max())))
        self.features = unit_features(spec.features / longest)
        self.pooled = self.stationary and spec.stationary_rewards
        # What the way reads from the start.
        self.spec, self.options, self.privacy = spec, options, setting.privacy
        self.way: LinearWay = way(WAYS[self.statistic_kind])(self)
        self._asked: Any = None
        self._fixed: dict[bool, Any] = {}
        self._variances: Floats | None = None
        self._planned: tuple[Floats, Floats] | None = None
        self.q_values: Floats | None = None  # optimistic, (H, S, A), of the last plan
        self.switches = 0  # policies that were planned; other releases keep the last one
        super().__init__(setting, options)

    # What is public.

    @property
    def form(self) -> Literal["episodes", "occupancy"]:
        """Episodes where users are summed one by one, else what followed the policy."""
        return "episodes" if self.statistic().clips else "occupancy"

    # What is asked.

    def statistic(self) -> Any:
        """What is asked first of the current block."""
        if self._asked is None:
            one_by_one = self.privacy.private and self._few(self._smallest_block)
            # Kept where it does not depend on what was learnt: bounds by all pairs take time.
            made = {} if self.masked or self._variances is not None else self._fixed
            if one_by_one not in made:
                made[one_by_one] = self.way.statistic(one_by_one)
            self._asked = made[one_by_one]
        return self._asked

    @property
    def _clip(self) -> float | None:
        """What typical users' vectors are shorter than; features are public."""
        q = (self.features**2).sum(axis=-1)
        rewards = 0.0 if self.spec.known_rewards is not None else 0.25
        typical = math.sqrt(self.spec.horizon * float((q * q + (1.0 + rewards) * q).mean()))
        if not self.pooled:
            return self.options.constants.clip * typical
        # Pooled sums of signed features are protected by the triangle inequality, at a price that
        # a clip must first earn back.
        return self.options.constants.pooled_clip * typical if self.spec.nonnegative else None

    # What is known.

    @property
    def widths(self) -> LinearWidths:
        """How widths are made."""
        options, constants = self.options, self.options.constants
        return LinearWidths(
            scale=options.scale * constants.bonus,
            bias=options.scale * constants.bias,
            ridge=constants.ridge,
        )

    def weigh_by(self, variances: Floats) -> None:
        """Later blocks weigh their steps by these variances (H, S, A) of next values."""
        pooled = self.pooled or (self.masked and self.stationary)
        self._variances = variances.mean(axis=0, keepdims=True) if pooled else variances

    @property
    def step_weights(self) -> Floats | None:
        """Public weights in (0, 1] of steps: less where the next value varies more than usually."""
        if self._variances is None or self.masked:
            return None
        flat = self._variances.reshape(len(self._variances), -1)
        typical = np.median(flat, axis=1)[:, np.newaxis, np.newaxis]
        safe = np.where(self._variances > 0.0, self._variances, 1.0)
        return np.where(self._variances > typical, typical / safe, 1.0).clip(0.05, 1.0)

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.statistic_kind != "counts" and self.privacy.needs_l1:
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0"
            )
        if self.privacy.reports_bits and self.pooled:
            raise InvalidArgument(
                "randomised response is for counts per step: give stationary=False"
            )

    def _pace(self) -> Pace:
        growth = self.growth or self.options.constants.growth
        return Pace(first=self._smallest_block, growth=growth)

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        first = self.options.constants.first
        return users_above_noise(self.way.statistic(one_by_one=True), self.privacy, first)

    # Save and resume, and what comes after the last user.

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        names = ("stationary", "growth", "weights")
        chosen = {name: getattr(self, name) for name in names}
        return super().identity() | chosen | {"statistic": self.statistic_kind}

    def state(self) -> State:
        """What is known, values and weights."""
        known, parts = self.way.known.dump()
        meta: dict[str, Any] = {"switches": self.switches, "known": known}
        arrays: Arrays = {f"known/{name}": array for name, array in parts.items()}
        for name in _KEPT:
            if getattr(self, name) is not None:
                arrays[name.lstrip("_")] = getattr(self, name)
        return meta, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.switches, self._asked, self._planned = meta["switches"], None, None
        self.way.known.restore(meta["known"], below(arrays, "known/"))
        for name in _KEPT:
            setattr(self, name, arrays.get(name.lstrip("_")))
