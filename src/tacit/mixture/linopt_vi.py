"""LinOptVI: optimistic value iteration for linear mixtures (Private-LinOpt-VI of Zhou, 2022).

Lines are those of the paper's Algorithm 1; its regressions are in :mod:`~tacit.mixture.estimate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, Floats, Plan, Progress
from tacit.mixture.estimate import MixtureModel, PathEstimator, SumEstimator
from tacit.numerics.regression import BlockSums
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import one_of
from tacit.tabular.sum_algorithm import SumAlgorithm, SumOptions

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.mixture.spec import MixtureSpec
    from tacit.privacy.curator import Release
    from tacit.privacy.models import Privacy

# A policy's transitions count as sparse below this many next states that inform on weights.
_SPARSE = 3.0


@dataclass(frozen=True, kw_only=True)
class MixtureOptions(SumOptions):
    """Options of mixture algorithms.

    Attributes:
        statistic: sums for a regression on next states, ``"model"``; ``"counts"`` along the block's
            own policy; or ``"auto"``, by the spec and the privacy model: ``why`` names it.
    """

    statistic: Literal["auto", "model", "counts"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("statistic", self.statistic, ("auto", "model", "counts"))


class LinOptVI(SumAlgorithm[BlockSums]):
    """Optimistic value iteration on a regularised regression.

    Idea: transitions are known features times unknown weights, so a regression on the sums of all
    users estimates the weights. Add a bonus for what is uncertain, by sampling or by privacy
    noise, and follow the best policy. The paper itself: :mod:`tacit.papers.zhou_mixture_2022`.

    Private statistics: by ``statistic``, :class:`~tacit.mixture.statistics.ModelSums`
    or :class:`~tacit.mixture.statistics.PathCounts`.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: a user's sums are released once with the whole budget and policies
    are replanned at the releases of a schedule; next states are regressed, not their values, so
    that sums serve every value function; noise is calibrated jointly over all steps and sums;
    public knowledge of the weights (that they add up to 1, say) is used; constants are practical.

    Cost: one release and H products of the features with a value function per block.
    """

    name = "linopt_vi"
    spec: MixtureSpec
    options: MixtureOptions
    Options = MixtureOptions

    def __init__(self, problem: Problem, options: MixtureOptions) -> None:
        spec: MixtureSpec = problem.spec
        if not hasattr(spec, "transition_features"):
            raise InvalidArgument(f"spec must be a MixtureSpec, got {type(spec).__name__}")
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.statistic_kind, self._reason = choose_statistic(spec, problem.privacy, options)
        kind = PathEstimator if self.statistic_kind == "counts" else SumEstimator
        self.estimator: Any = kind(spec, self.stationary, options.scale)
        super().__init__(problem, options)

    def init(self) -> BlockSums:
        """No sums."""
        return BlockSums()

    # Query: G and g of Section 6.1, or counts.

    def statistic(self, plan: Plan, one_by_one: bool) -> Any:
        """Sums for a regression, or counts along the block's policy."""
        return self.estimator.statistic(plan.policy, one_by_one)

    @property
    def _multiple(self) -> float:
        return 8.0 if self.statistic_kind == "counts" else 4.0

    def data_format(self, at: Progress) -> str:
        """Episodes where a clip must see users one by one; else counts."""
        if self.statistic_kind == "counts":
            return "counts"
        return "episodes" if self.estimator.statistic(None, self.one_by_one(at)).clips else "counts"

    # Update.

    def update(
        self, state: BlockSums, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> BlockSums:
        """Sums over all blocks, with those of one more. Args: see Algorithm.update."""
        sums: BlockSums = self.estimator.added(state, release, self.query(state, plan, block))
        return sums

    # Plan.

    def plan(self, state: BlockSums, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Best actions by optimistic and estimated values (line 12). Args: see Algorithm.plan."""
        if not state.parts:
            first = self.first_policy(rng)
            return Plan(first, first)
        optimistic, greedy = self.optimistic_values(self.estimator.model(state))
        return Plan(self.best(optimistic, rng), self.best(greedy, rng))

    def optimistic_values(self, model: MixtureModel) -> tuple[Floats, Floats]:
        """Optimistic and greedy action values (H, S, A) of the best policy.

        Lines 3 to 11, from V = 0 after the last step: Q = r + P V + both widths, cut to
        [0, H - h], and V = max_a Q. What adds to r and to P V keeps to their ranges.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        q_values, greedy = np.empty((H, S, A)), np.empty((H, S, A))
        V = likely = np.zeros(S)
        for h in range(H - 1, -1, -1):
            rewards, widths = model.rewards(h)
            rewards, widths = np.clip(rewards, 0.0, 1.0), np.minimum(widths, 1.0)
            above = after = np.zeros((S, A))
            if h < H - 1:
                above = np.minimum(model.next_value(h, V) + model.width(h, V), V.max())
                after = model.next_value(h, likely)
            q_values[h] = np.clip(rewards + widths + above, 0.0, H - h)
            greedy[h] = np.clip(rewards + after, 0.0, H - h)
            V, likely = q_values[h].max(axis=1), greedy[h].max(axis=1)
        return q_values, greedy


def choose_statistic(
    spec: MixtureSpec, privacy: Privacy, options: MixtureOptions
) -> tuple[str, str]:
    """Kind of statistic, and why."""
    if options.statistic != "auto":
        return options.statistic, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    informs = spec.informs.sum(axis=-1)
    sparse = float(informs[informs > 0].mean()) <= _SPARSE if informs.any() else True
    many = spec.free > 2 * spec.states
    if privacy.joint and (sparse or many):
        reason = "few next states inform on the weights" if sparse else "there are many weights"
        return "counts", f"{reason}, and a policy reaches one action in each state"
    return "model", "every transition informs on all weights, for every value function"
