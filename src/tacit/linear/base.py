"""What all linear algorithms share: which statistic they ask, what it costs, when blocks end.

Plumbing: an algorithm's own file says how it is optimistic and how it plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.core.sizes import check_bytes
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.linear.counts import CellEstimator
from tacit.linear.estimate import LinearWidths
from tacit.linear.features import FeatureEstimator
from tacit.linear.options import LinearOptions, choose_statistic
from tacit.linear.tables import unit_features
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.linear.spec import LinearSpec
    from tacit.privacy.curator import Release

# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18


@dataclass(frozen=True, eq=False)
class Memory:
    """What a plan leaves to the query about its users, and to the next plan."""

    switches: int = 0  # policies that were planned; other releases keep the last one
    variances: Floats | None = None  # of next values, (1 or H, S, A), where they weigh steps
    precision: Floats | None = None  # (L, d, d), when the policy was planned


class LinearAlgorithm(FiniteAlgorithm[Any]):
    """An algorithm for linear MDPs on private sums, whose state is what all blocks add up to."""

    spec: LinearSpec
    options: LinearOptions
    Options = LinearOptions
    default_weights: ClassVar[Literal["variance", "none"]] = "none"

    def __init__(self, problem: Problem, options: LinearOptions) -> None:
        spec: LinearSpec = problem.spec
        if not hasattr(spec, "weight_bound"):
            raise InvalidArgument(
                "this agent needs features: spec must be a LinearSpec, as of simplex or two_state, "
                "or of tacit.linear.linear_from_tabular(world) for any finite world; got "
                f"{type(spec).__name__}"
            )
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.weights = self.default_weights if options.weights == "auto" else options.weights
        self.statistic_kind, self._reason = choose_statistic(spec, problem.privacy, options)
        # One factor for all keeps them linear; statistics cut to length 1 whatever comes.
        longest = max(1.0, float(np.sqrt((spec.features**2).sum(axis=-1).max())))
        self.features = unit_features(spec.features / longest)
        self.pooled = self.stationary and spec.stationary_rewards
        counts = self.statistic_kind == "counts"
        self.estimator = CellEstimator(self) if counts else FeatureEstimator(self)
        super().__init__(problem, options)

    def init(self) -> Any:
        """No sums."""
        return self.estimator.empty()

    # What is public.

    def data_format(self, at: Progress) -> Literal["episodes", "occupancy"]:
        """Episodes where users are summed one by one, else what followed the policy."""
        clips = self.estimator.statistic(self._one_by_one(at)).clips
        return "episodes" if clips else "occupancy"

    def on_policy(self, plan: Plan) -> bool:
        """Whether counts are of those who followed the block's own policy."""
        return self.statistic_kind == "counts"

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return f"statistic {self.statistic_kind!r}: {self._reason}; {super().why}"

    # What is asked: the sums of each block, once, with its whole budget.

    def query(self, state: Any, plan: Plan, block: BlockInfo) -> Any:
        """Sums of features weighted as the plan has it, or counts along its policy."""
        return self.estimator.statistic(self._one_by_one(block), plan)

    def update(
        self,
        state: Any,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> Any:
        """All sums with those of one more block."""
        return self.estimator.added(state, release, self.query(state, plan, block), block.users)

    def _one_by_one(self, at: Progress) -> bool:
        """Whether the users of the next block are summed one by one."""
        users = self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]
        few = users <= min(_CLIPPED_UP_TO * self._smallest_block, _ONE_BY_ONE)
        return self.privacy.private and few

    @property
    def clip(self) -> float | None:
        """What typical users' vectors are shorter than; features are public."""
        q = (self.features**2).sum(axis=-1)
        rewards = 0.0 if self.spec.known_rewards is not None else 0.25
        typical = math.sqrt(self.spec.horizon * float((q * q + (1.0 + rewards) * q).mean()))
        if not self.pooled:
            return self.options.constants.clip * typical
        # Pooled sums of signed features are protected by the triangle inequality, at a price that
        # a clip must first earn back.
        return self.options.constants.pooled_clip * typical if self.spec.nonnegative else None

    @property
    def widths(self) -> LinearWidths:
        """How widths are made."""
        options, constants = self.options, self.options.constants
        return LinearWidths(
            scale=options.scale * constants.bonus,
            bias=options.scale * constants.bias,
            ridge=constants.ridge,
        )

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
        if isinstance(self.estimator, CellEstimator):
            shape = self.estimator.shape
            check_bytes("counts of a linear agent", (*shape, self.spec.states))

    def _block_sizes(self) -> BlockSizes:
        growth = self.options.growth or self.options.constants.growth
        return BlockSizes(first=self._smallest_block, growth=growth)

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        first = Plan(self.first_policy(self.problem.rng()), None, Memory())
        statistic = self.estimator.statistic(True, first)
        return users_above_noise(statistic, self.privacy, self.options.constants.first)
