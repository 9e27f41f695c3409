"""Learns how states move, as a posterior from private moments, and plans with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import BoxAlgorithm, box_spec, discount_of
from tacit.continuous.end_estimate import EndModel
from tacit.continuous.model_estimate import MODEL, ModelConstants, MoveModel
from tacit.continuous.model_planner import MOST_COORDINATES, GridPlanner
from tacit.continuous.monomials import Monomials
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.end_places import EndPlaces
from tacit.continuous.statistics.move_moments import (
    FIRST_POWER,
    EndMoments,
    MoveMoments,
    MoveScales,
    angles_of,
)
from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import check_question
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.setting import Setting

# Blocks above this size are simulated part by part.
_IN_MEMORY = 4096
# States at which it is looked how far the box of states before an end reaches.
_LOOKED_AT = 1 << 16
# A grid reaches so much of the box beyond where episodes go on.
_MARGIN = 0.02


@dataclass(frozen=True, kw_only=True)
class ModelPosteriorOptions:
    """Options of :class:`ModelPosterior`.

    Attributes:
        discount: of future rewards; the spec's by default.
        constants: tuned numbers.
    """

    discount: float | None = None
    constants: ModelConstants = MODEL

    def __post_init__(self) -> None:
        instance_of("constants", self.constants, ModelConstants)


class ModelPosterior(BoxAlgorithm):
    """Learns how states move, as a posterior from private moments, and plans with it.

    Idea: moves of smooth worlds are almost linear in a few dozen features of state and action, and
    one model of them serves every plan. So users are asked about moves, not about values, and what
    is known of rewards and ends need not be asked at all. Half of the users try actions, held for
    a while; the others follow the plan, but for bursts.

    Private statistics: of the first block :class:`~.statistics.move_moments.MoveScales`, how far
    states move, with a fifth of its budget; of every block, once, the
    :class:`~.statistics.move_moments.MoveMoments` of steps, in a metric in which a step is as long
    as what it could tell. Each step has length one, so that no user is clipped and none is farther
    than sqrt(2) from another, however long episodes are. Where ends have to be learnt, a part of
    every block's budget asks for them: :class:`~.statistics.end_places.EndPlaces`, histograms along
    coordinates, as long as a box explains where episodes end, or else
    :class:`~.statistics.move_moments.EndMoments`, for a regression.

    Plans: value iteration on a grid, of at most four coordinates and numbered actions.

    Guarantee: that of the curator for a user's whole episode, under joint DP. Local DP is refused:
    a device's own noise on a thousand numbers would drown what it says.

    Deviations from the paper: it follows none.

    Cost: a sum of outer products per block, and value iteration on a grid of at most 194,481
    points.

    >>> from tacit import JointDP, ModelPosterior
    >>> from tacit.continuous import line
    >>> agent = ModelPosterior(line().spec, 1100, JointDP(10.0, 1e-6), noise_seed=0)
    >>> agent.why
    'learnt rewards, known ends; 5 blocks (auto)'
    """

    name: ClassVar[str] = "model_posterior"
    Options = ModelPosteriorOptions
    options: ModelPosteriorOptions

    def __init__(self, setting: Setting, options: ModelPosteriorOptions) -> None:
        self.spec = box_spec(setting)
        self.constants = options.constants
        self.discount = discount_of(options.discount, self.spec)
        self.learns_rewards = getattr(self.spec, "reward", None) is None
        self.learns_ends = self.spec.may_end and getattr(self.spec, "ends", None) is None
        self.ends: EndModel | None = None
        self.believed: MoveModel | None = None
        self.planner: GridPlanner | None = None
        self.weights: Floats | None = None
        self._scales: Arrays = {}
        super().__init__(setting, options)

    # What is asked.

    def asks(self) -> Asks:
        """Moments of steps; and of the first block before that how far states move."""
        believed, left = self.believed, 1.0
        if believed is None:
            release = yield Ask(self._how_far(), share=self.constants.scales)
            self._scales = {name: part.copy() for name, part in release.parts.items()}
            believed, left = self._believe(self._scales), 1.0 - self.constants.scales
        if self.ends is None:
            moments = yield Ask(self._moments(believed))
        else:
            part, ends = self.constants.ends * left, self.ends
            if ends.boxed:
                places = yield Ask(ends.box.asked, share=part)
                moments = yield Ask(self._moments(believed))
                ends.box.update(places.parts, float(np.max(places.std["ends"])))
            else:
                signs = yield Ask(EndMoments(self.spec, ends.signs.features), share=part)
                moments = yield Ask(self._moments(believed))
                ends.signs.update(signs["moments"], float(np.max(signs.std["moments"])))
            self._move_grid()
        self.believed = believed
        std = float(np.max(moments.std["moments"]))
        believed.update(moments["moments"], std, self.block_users)

    def _how_far(self) -> MoveScales:
        return MoveScales(self.spec, self.learns_rewards)

    def _moments(self, believed: MoveModel) -> MoveMoments:
        metric, scales, _ = believed.metric()
        tables = metric, believed.model, scales
        return MoveMoments(self.spec, believed.features, *tables, self.learns_rewards)

    # What is estimated.

    def _believe(self, scales: Arrays) -> MoveModel:
        """A first model, of scales that were released."""
        lows, highs = _open_box(self.spec, scales.get("sizes"))
        features = Monomials.of(self.spec, lows, highs)
        half = 0.5 * (highs - lows)
        if self.learns_rewards:
            low, high = self.spec.reward_range
            half = np.append(half, 0.5 * (high - low))
        far = self.constants.widest * 2.0 ** (scales["moves"].argmax(axis=1) + FIRST_POWER)
        if self.learns_ends:
            alone = replace(features, pushes=np.zeros((self.spec.actions, 0)))
            self.ends = EndModel(EndPlaces(self.spec, lows, highs), alone)
        lows, highs = _before_ends(self.spec, lows, highs)
        self.planner = GridPlanner(self.spec, lows, highs, self.discount)
        # Without noise, what features miss of rewards is the largest error.
        misfit = self.learns_rewards and not self.privacy.private
        return MoveModel(features, np.minimum(far, half), self.constants, misfit)

    def _move_grid(self) -> None:
        """A grid is laid where episodes go on, as far as is known."""
        if self.ends is None or not self.ends.boxed or self.planner is None:
            return
        box, grid = self.ends.box, self.planner.grid
        lows, highs = self._with_margin(box.lows, box.highs)
        if (*lows.tolist(), *highs.tolist()) != (*grid.lows, *grid.highs):
            self.planner = GridPlanner(self.spec, lows, highs, self.discount)

    def _with_margin(self, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
        assert self.ends is not None  # noqa: S101
        asked = self.ends.box.asked
        margin = _MARGIN * (asked.highs - asked.lows)
        return np.maximum(asked.lows, lows - margin), np.minimum(asked.highs, highs + margin)

    def step(self, states: Floats, actions: Ints) -> tuple[Floats, Floats, Bools]:
        """What the model says: next states, rewards, and which episodes are over then."""
        assert self.believed is not None  # noqa: S101
        spec: Any = self.spec
        features = self.believed.features
        said = features(states, actions) @ self.believed.model
        D, half = spec.dimension, 0.5 * (features.highs - features.lows)
        nexts = states + np.clip(said[:, :D], -half, half)
        turns = angles_of(spec)
        nexts[:, turns] = (nexts[:, turns] + math.pi) % (2.0 * math.pi) - math.pi
        nexts = np.clip(nexts, spec.lows, spec.highs)
        if self.learns_rewards:
            rewards = np.clip(said[:, D] + 0.5 * sum(spec.reward_range), *spec.reward_range)
        else:
            rewards = spec.rewards(states, actions, nexts)
        if self.ends is not None:
            return nexts, rewards, self.ends(nexts)
        over = spec.ended(nexts) if hasattr(spec, "ended") else np.zeros(len(nexts), np.bool_)
        return nexts, rewards, over

    # How it plans.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """The best actions by values in the model, which most follow, and explorers beside them."""
        assert self.planner is not None  # noqa: S101
        assert self.believed is not None  # noqa: S101
        exploring, hoping = self.believed.exploration(), self._hoping()
        features, self.weights = self.planner.plan(self.step, self.rng)
        greedy = QPolicy.draw(features, self.weights, self.rng, version=self.releases)
        known = hoping or (greedy.features, greedy.weights)
        served = QPolicy(*known, 0.0, self.releases, greedy.preference, *exploring)
        return served, greedy

    def _hoping(self) -> tuple[FeatureMap, Floats] | None:
        """The plan of who hopes for ends that nobody has seen yet, if there is hope."""
        if self.ends is None or not self.ends.boxed or (hope := self.ends.box.hope) is None:
            return None
        lows, highs = hope

        def step(states: Floats, actions: Ints) -> tuple[Floats, Floats, Bools]:
            nexts, rewards, over = self.step(states, actions)
            return nexts, rewards, over | ((nexts < lows) | (nexts > highs)).any(axis=1)

        planner = GridPlanner(self.spec, *self._with_margin(lows, highs), self.discount)
        return planner.plan(step, self.rng)

    def behaviour(self) -> QPolicy:
        """Random actions that are held for a while."""
        return replace(super().behaviour(), explorers=1.0)

    # What is public.

    @property
    def form(self) -> str:
        """One by one, unless memory is short."""
        return "streamed" if self.block_users > _IN_MEMORY else "episodes"

    @property
    def why(self) -> str:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        said = [
            "learnt" if learns else "known" for learns in (self.learns_rewards, self.learns_ends)
        ]
        known = f"{said[0]} rewards, {said[1]} ends"
        if said == ["known", "known"]:
            known = "known rewards and ends"
        return f"{known}; {self.schedule.releases} blocks ({self.schedule.name})"

    def _check(self) -> None:
        if self.spec.dimension > MOST_COORDINATES or self.spec.action_box is not None:
            raise InvalidArgument(
                f"ModelPosterior plans on a grid of at most {MOST_COORDINATES} coordinates with "
                "numbered actions: take actor_critic"
            )
        if self.privacy.local:
            raise InvalidArgument(
                "ModelPosterior sums moments of a thousand numbers, and a device's own noise would "
                "be a thousand times theirs: take fitted_functional_q:serve=all, or JointDP"
            )
        check_question(self._how_far(), self.privacy, "scales")

    def _pace(self) -> Pace:
        constants, mu = self.constants, self.privacy.episode_mu
        first = max(constants.least_first, math.ceil(constants.first / mu))
        return Pace(first=first, growth=constants.growth)

    # Save and resume.

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"discount": self.discount}

    def state(self) -> State:
        """The model, what it was made of, and where plans begin."""
        if self.believed is None or self.planner is None:
            return {}, {}
        arrays: Arrays = {f"scales/{name}": part for name, part in self._scales.items()}
        arrays |= {"model": self.believed.model, "spread": self.believed.spread}
        if self.believed.chance:
            arrays["rest"] = self.believed.rest
        if self.ends is not None:
            arrays |= {f"ends/{name}": part for name, part in self.ends.arrays().items()}
            arrays["grid"] = np.array([self.planner.grid.lows, self.planner.grid.highs])
        if self.weights is not None:
            arrays["weights"] = self.weights
        return {}, arrays | {"values": self.planner.values}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        if "model" not in arrays:
            return
        self._scales = below(arrays, "scales/")
        self.believed = self._believe(self._scales)
        self.believed.model, self.believed.spread = arrays["model"], arrays["spread"]
        self.believed.rest = arrays.get("rest", self.believed.rest)
        if self.ends is not None:
            self.ends.restore(below(arrays, "ends/"))
            self._move_grid()
        # Where a box was given up, the grid is still the one of that box.
        if "grid" in arrays:
            lows, highs = arrays["grid"]
            self.planner = GridPlanner(self.spec, lows, highs, self.discount)
        assert self.planner is not None  # noqa: S101
        self.planner.values = np.array(arrays["values"], dtype=np.float32)
        self.weights = arrays.get("weights")


def _open_box(spec: BoxSpec, sizes: Floats | None) -> tuple[Floats, Floats]:
    """The box of states, closed where the spec leaves it open by released sizes."""
    lows, highs = np.array(spec.lows), np.array(spec.highs)
    if sizes is None:
        return lows, highs
    opened = ~np.isfinite(np.array([lows, highs])).all(axis=0)
    size = 1.5 * 2.0 ** (sizes.argmax(axis=1) + FIRST_POWER)
    lows[opened] = np.maximum(lows[opened], -size)
    highs[opened] = np.minimum(highs[opened], size)
    return lows, highs


def _before_ends(spec: Any, lows: Floats, highs: Floats) -> tuple[Floats, Floats]:
    """The part of the box in which episodes are not over, and a little more; public."""
    if getattr(spec, "ends", None) is None:
        return lows, highs
    rng = np.random.default_rng(0)
    states = rng.uniform(lows, highs, (_LOOKED_AT, len(lows)))
    going = states[~spec.ended(states)]
    if not len(going):
        return lows, highs
    margin = _MARGIN * (highs - lows)
    least, most = going.min(axis=0) - margin, going.max(axis=0) + margin
    return np.maximum(lows, least), np.minimum(highs, most)
