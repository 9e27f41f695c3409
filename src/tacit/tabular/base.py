"""What all tabular algorithms share: which counts are asked for, and how they add up.

Plumbing: an algorithm's own file says what it estimates, how it is optimistic and how it plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, State
from tacit.core.options import OptimismOptions
from tacit.core.sizes import check_bytes
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.evidence import Evidence
from tacit.finite.flow import conserved
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.finite.visits import VisitCounts, counts_of
from tacit.privacy.arguments import instance_of
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Counts have a cap, which needs users one by one, while blocks are at most so many times as large
# as the smallest that knows anything. By then the cap has done its work.
_CAPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 20


@dataclass(frozen=True)
class TabularConstants:
    """The practical agent's constants, chosen on riverswim(6, 20) and four small random worlds."""

    sampling: float = 0.25  # scale of the whole bonus
    privacy: float = 1.0  # scale of the part of it that is due to privacy noise
    range_term: float = 0.1  # scale of the term in (steps left) / n
    lowering: float = 1.0  # counts are lowered by this many standard deviations of their noise
    known: float = 0.5  # a cell is known once its count exceeds this many standard deviations
    known_unmasked: float = 2.0  # the same where counts are not masked by the policy
    # the number of users served grows by at most this factor from block to block
    growth: float = 1.15
    blocks_per_cell: float = 1.8  # and by at most 1 + this / (states actions), but for 1.02
    first: float = 40.0  # users of the first block, in standard deviations of a count's noise
    reward_weight: float = 0.2  # squared weight of rewards against transitions at the gate
    cap: int = 2  # how many of a user's steps in a cell count, when pooled over steps


@dataclass(frozen=True, kw_only=True)
class TabularOptions(OptimismOptions):
    """Options of tabular algorithms.

    Attributes:
        stationary: one model for all steps (the world's own by default), or one per step.
        constants: the practical bonus's constants.
    """

    stationary: bool | None = None
    constants: TabularConstants = TabularConstants()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle(TabularConstants)


class TabularAlgorithm(FiniteAlgorithm):
    """An algorithm on private counts; ``evidence`` has all of them."""

    spec: FiniteSpec
    options: TabularOptions
    Options = TabularOptions

    def __init__(self, setting: Setting, options: TabularOptions) -> None:
        instance_of("spec", setting.spec, FiniteSpec)
        spec: FiniteSpec = setting.spec
        self.stationary = spec.stationary if options.stationary is None else options.stationary
        shape = (spec.rows(self.stationary), spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*shape, spec.states))
        self.evidence = Evidence(shape, plain=not setting.privacy.joint)
        self._expected: Floats | None = None
        super().__init__(setting, options)

    # What is public.

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one count of the last release."""
        return self.evidence.noise

    @property
    def form(self) -> Literal["episodes", "counts", "pooled"]:
        """Episodes where users are counted one by one, or rewards rounded to bits; else sums."""
        fractions = not set(self.spec.reward_values) <= {0.0, 1.0}
        if self.cap is not None or (self.privacy.reports_bits and fractions):
            return "episodes"
        return "pooled" if self.stationary and self.spec.last_state else "counts"

    @property
    def why(self) -> str:
        """What was chosen for this budget and length, in words."""
        how = "each block is released once, with its whole budget, and only for what its policy "
        return f"{super().why}; {how}can reach"

    # What is asked.

    @property
    def cap(self) -> int | None:
        """How many of a user's steps in a cell count in the current block."""
        if not self.stationary or not self.privacy.private:
            return None
        largest = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        if largest > min(_CAPPED_UP_TO * self._smallest_block, _ONE_BY_ONE):
            return None
        return min(self.options.constants.cap, self.spec.horizon)

    @property
    def masked(self) -> bool:
        """Whether only what the block's policy can reach is counted."""
        return self.policy.actions is not None

    def statistic(self, cap: int | None = None) -> VisitCounts:
        """What is asked of the current block."""
        weight = math.sqrt(self.options.constants.reward_weight)
        return counts_of(self.spec)(
            self.spec.states,
            self.spec.actions,
            self.spec.horizon,
            pooled=self.stationary,
            cap=cap or self.cap,
            # Bits cost the same whatever they weigh.
            weight=1.0 if self.privacy.reports_bits else weight,
            policy=self.policy.actions if self.masked else None,
            version=self.policy.version if self.masked else 0,
        )

    # What is known.

    def take_in(self, release: Release, statistic: VisitCounts) -> None:
        """Adds the counts of a block to the evidence."""
        if self.masked and not self.stationary:
            release = conserved(release, self.spec)
        self.evidence.add(release, statistic, self.block_users, self._expected)

    # Versions.

    def reinstate(self, policy: Policy) -> None:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        spec, kind = self.spec, isinstance(policy, Policy)
        sizes = (policy.horizon, policy.states, policy.n_actions) if kind else ()
        if sizes != (spec.horizon, spec.states, spec.actions):
            raise InvalidArgument(f"policy must be one of this agent, got {policy!r}")
        if (policy.actions is not None) != self.deterministic:
            raise InvalidArgument(f"policy must be as this agent's are, got {policy!r}")
        # What it was expected to show belongs to another policy.
        self._expected = None

    # Choices made before the first user comes.

    def _pace(self) -> Pace:
        # What one block shows decides where the next one looks, so more cells need more blocks.
        cells, constants = self.spec.states * self.spec.actions, self.options.constants
        growth = min(constants.growth, max(1.02, 1.0 + constants.blocks_per_cell / cells))
        return Pace(first=self._smallest_block, growth=growth)

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise, by the noise of one count."""
        constants = self.options.constants
        cap = min(constants.cap, self.spec.horizon) if self.stationary else None
        return users_above_noise(self.statistic(cap), self.privacy, constants.first)

    # Save and resume.

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"stationary": self.stationary}

    def state(self) -> State:
        """The evidence."""
        meta, arrays = self.evidence.dump()
        if self._expected is not None:
            arrays["expected"] = self._expected
        return meta, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.evidence.restore(meta, arrays)
        self._expected = arrays.get("expected")
