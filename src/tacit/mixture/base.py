"""What all mixture algorithms share: their options, and how the sums of all blocks add up.

Plumbing: an algorithm's own file says what it estimates, how it is optimistic and how it plans.
There are two kinds of statistics, of which ``statistic="auto"`` chooses one:

* ``"model"``: a regression on next states themselves, which serves every value function,
* ``"counts"``: counts along the block's own policy (sparse worlds).

All ask every user once, with the whole budget; sums over blocks are post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.core.options import OptimismOptions
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.mixture.count_model import count_sums, path_counts
from tacit.mixture.estimate import PublicFeatures, Rows
from tacit.mixture.model_sums import ModelSums
from tacit.mixture.path_counts import PathCounts
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import positive_part
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.finite.policy import Policy
    from tacit.mixture.spec import MixtureSpec
    from tacit.privacy.curator import Release

# A policy's transitions count as sparse below this many next states that inform on weights.
_SPARSE = 3.0
# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18


@dataclass(frozen=True)
class MixtureConstants:
    """Practical constants, chosen on other seeds of the worlds than are reported."""

    bonus: float = 0.3  # scale of widths
    counts_bonus: float = 1.0  # the same for ``"counts"``, whose errors are mostly sampling
    ridge: float = 1.0  # ridge in standard deviations of the Gram's noise, times sqrt(k)
    # the number of users served grows by at most this factor from block to block
    growth: float = 1.3
    first: float = 4.0  # users of the first block, in standard deviations of a sum's noise
    counts_first: float = 8.0  # the same for ``"counts"``
    clip: float = 1.0  # the longest vector of a user, in typical lengths
    known: float = 1.0  # a cell is known once its count exceeds this many standard deviations


@dataclass(frozen=True, kw_only=True)
class MixtureOptions(OptimismOptions):
    """Options of mixture algorithms.

    Attributes:
        statistic: what is asked of users: ``"model"``, ``"counts"`` or ``"auto"``, which says
            in ``why`` what it chose.
        stationary: one vector of weights for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
        constants: the practical constants.
    """

    statistic: Literal["auto", "model", "counts"] = "auto"
    stationary: bool | None = None
    growth: float | None = None
    constants: MixtureConstants = MixtureConstants()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistic not in ("auto", "model", "counts"):
            raise InvalidArgument(
                f"statistic must be auto, model or counts, got {self.statistic!r}"
            )
        self._settle(MixtureConstants, self.growth)


class MixtureAlgorithm(FiniteAlgorithm[BlockSums]):
    """An algorithm on private sums of a linear mixture, which are its state."""

    spec: MixtureSpec
    options: MixtureOptions
    Options = MixtureOptions

    def __init__(self, problem: Problem, options: MixtureOptions) -> None:
        spec: MixtureSpec = problem.spec
        if not hasattr(spec, "transition_features"):
            raise InvalidArgument(
                "this agent needs features of transitions: spec must be a MixtureSpec, as of "
                "mixture_of_models or hard_mixture, or of "
                "tacit.mixture.mixture_from_tabular(world) for a small finite world; got "
                f"{type(spec).__name__}"
            )
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.public = PublicFeatures.of(spec)  # along directions in which weights are unknown
        self.statistic_kind, self._reason = choose_kind(options, problem.privacy, self.public)
        per_step = self.statistic_kind != "model" or not self.stationary
        self.pooled = not per_step and spec.stationary_rewards
        super().__init__(problem, options)

    def init(self) -> BlockSums:
        """No sums."""
        return BlockSums()

    # What is public.

    def data_format(self, at: Progress) -> Literal["episodes", "counts", "occupancy"]:
        """Episodes where a clip must see users one by one, else sums."""
        if self.statistic_kind == "counts":
            return "occupancy"
        return "episodes" if self._model_sums[self._one_by_one(at)].clips else "counts"

    def on_policy(self, plan: Plan) -> bool:
        """Counts are of those who followed the block's own policy."""
        return self.statistic_kind == "counts"

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return f"statistic {self.statistic_kind!r}: {self._reason}; {super().why}"

    # What is asked, of every user once.

    def query(self, state: BlockSums, plan: Plan, block: BlockInfo) -> ModelSums | PathCounts:
        """Sums for a regression, or counts along the block's policy."""
        return self._statistic(plan.policy, self._one_by_one(block))

    def _statistic(self, policy: Policy, one_by_one: bool) -> ModelSums | PathCounts:
        if self.statistic_kind == "counts":
            return path_counts(self.spec, self.public, policy)
        return self._model_sums[one_by_one]

    @cached_property
    def _model_sums(self) -> tuple[ModelSums, ModelSums]:
        """As they are, and clipped, in typical lengths, where users are summed one by one."""
        public = self.public
        tables = public.features, public.mean, public.support
        known = *tables, public.horizon, public.reward_features, self.pooled
        whole = ModelSums(*known)
        clip = self.options.constants.clip * whole.typical
        return whole, ModelSums(*known, clip=clip * (1.0 if self.pooled else math.sqrt(2.0)))

    def _one_by_one(self, at: Progress) -> bool:
        """Whether the users of the next block are summed one by one."""
        users = self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]
        few = _CLIPPED_UP_TO * self._smallest_block
        return self.privacy.private and users <= min(few, _ONE_BY_ONE)

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        constants, counts = self.options.constants, self.statistic_kind == "counts"
        statistic = self._statistic(self.first_policy(self.problem.rng()), one_by_one=True)
        multiple = constants.counts_first if counts else constants.first
        return users_above_noise(statistic, self.privacy, multiple)

    # What is known.

    def update(
        self,
        state: BlockSums,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> BlockSums:
        """The sums with those of one more block."""
        asked = self.query(state, plan, block)
        if isinstance(asked, PathCounts):
            sums = count_sums(self.spec, self.public, release, asked)
        else:
            std = {name: float(np.max(value)) for name, value in release.std.items()}
            rows = np.ones(len(release["cross"]))
            noise = {name: value * rows for name, value in std.items()}
            sums = release.parts, noise, std["cross"]
        return state.added(*sums, release.users)

    def rows(self, state: BlockSums, gram: str, cross: str) -> Rows:
        """The sums of a regression, all blocks together."""
        rows = np.ones(len(state.parts[cross]))
        noise = (state.noise(name) * rows for name in (gram, cross))
        return Rows(state.scaled(gram), state.scaled(cross), *noise)

    def regularised(self, gram: Floats, noise: float, rows: int) -> Floats:
        """max(G, 0) + (prior + ridge s sqrt(k)) I, with s the noise of G, of which there are rows.

        The prior is small beside what one user shows.
        """
        k = len(gram)
        prior = 1e-3 / (self.public.radius * self.public.scale) ** 2
        level = prior + self.options.constants.ridge * noise * math.sqrt(k)
        return positive_part(gram) + level * np.eye(k)

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.statistic_kind != "counts" and self.privacy.needs_l1:
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0, and the "
                "Gaussian mechanism under LocalDP"
            )

    def _block_sizes(self) -> BlockSizes:
        growth = self.options.growth or self.options.constants.growth
        return BlockSizes(first=self._smallest_block, growth=growth)


def choose_kind(
    options: MixtureOptions, privacy: Privacy, public: PublicFeatures
) -> tuple[str, str]:
    """What is asked, and why."""
    asked = options.statistic
    if asked != "auto":
        return asked, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    informs = public.informs.sum(axis=-1)
    sparse = float(informs[informs > 0].mean()) <= _SPARSE if informs.any() else True
    many = public.free > 2 * public.features.shape[0]
    if privacy.joint and (sparse or many):
        reason = "few next states inform on the weights" if sparse else "there are many weights"
        return "counts", f"{reason}, and a policy reaches one action in each state"
    return "model", "every transition informs on all weights, for every value function"
