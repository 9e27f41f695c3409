"""LinOptVI: optimistic value iteration for linear mixtures (Private-LinOpt-VI of Zhou).

The paper's Algorithm 1 over its Section 3: what is asked of a user (lines 13 and 14), the
regressions over a changing regulariser (equations 1 and 2, lines 5 and 6, with how far off they may
be: :mod:`~tacit.mixture.estimate`), optimistic values (lines 3 to 11) and the policy (line 12).

There are two kinds of statistics, of which ``statistic="auto"`` chooses one:

* ``"model"``: a regression on next states themselves, which serves every value function,
* ``"counts"``: counts along the block's own policy (sparse worlds).

Both ask every user once, with the whole budget; sums over blocks are post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from tacit.core.algorithm import BlockInfo, Floats, Plan, Progress
from tacit.mixture.count_model import CountModel, count_rewards, count_sums, path_counts
from tacit.mixture.estimate import (
    REWARD_VARIANCE,
    Fit,
    MixtureModel,
    PublicFeatures,
    Regression,
    RegressionModel,
    Rows,
)
from tacit.mixture.model_sums import ModelSums
from tacit.mixture.path_counts import PathCounts
from tacit.numerics.regression import BlockSums, positive_part
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.tabular.sum_algorithm import SumAlgorithm, SumOptions

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.mixture.spec import MixtureSpec
    from tacit.privacy.curator import Release

# Scale of widths. Those of counts are taken as they are: their errors are mostly sampling.
_BONUS = 0.3
# A policy's transitions count as sparse below this many next states that inform on weights.
_SPARSE = 3.0


@dataclass(frozen=True, kw_only=True)
class MixtureOptions(SumOptions):
    """Options of mixture algorithms.

    Attributes:
        statistic: what is asked of users: ``"model"``, ``"counts"`` or ``"auto"``, which says
            in ``why`` what it chose.
    """

    statistic: Literal["auto", "model", "counts"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistic not in ("auto", "model", "counts"):
            raise InvalidArgument(
                f"statistic must be auto, model or counts, got {self.statistic!r}"
            )


class LinOptVI(SumAlgorithm[BlockSums]):
    """Optimistic value iteration on a regularised regression.

    Idea: transitions are known features times unknown weights, so a regression on the sums of all
    users estimates the weights. Add a bonus for what is uncertain, by sampling or by privacy
    noise, and follow the best policy. For the paper's framework, regularisers of one's own
    included, see :mod:`tacit.papers.zhou_mixture_2022`.

    Private statistics: by ``statistic``, :class:`~tacit.mixture.model_sums.ModelSums`
    or :class:`~tacit.mixture.path_counts.PathCounts`.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: a user's sums are released once with the whole budget and policies
    are replanned at the releases of a schedule; next states are regressed, not their values, so
    that sums serve every value function; noise is calibrated jointly over all steps and sums;
    public knowledge of the weights (that they add up to 1, say) is used; constants are practical.

    Cost: one release and H products of the features with a value function per block, whatever its
    number of users.
    """

    name = "linopt_vi"
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

    # What is asked, of every user once: G and g of Section 6.1, or counts.

    @property
    def _multiple(self) -> float:
        return 8.0 if self.statistic_kind == "counts" else 4.0

    def data_format(self, at: Progress) -> Literal["episodes", "counts", "occupancy"]:
        """Episodes where a clip must see users one by one, else sums."""
        if self.statistic_kind == "counts":
            return "occupancy"
        return "episodes" if self._model_sums[self.one_by_one(at)].clips else "counts"

    def statistic(self, plan: Plan, one_by_one: bool) -> ModelSums | PathCounts:
        """Sums for a regression, or counts along the block's policy."""
        if self.statistic_kind == "counts":
            return path_counts(self.spec, self.public, plan.policy)
        return self._model_sums[one_by_one]

    @cached_property
    def _model_sums(self) -> tuple[ModelSums, ModelSums]:
        """As they are, and clipped to a typical length, where users are summed one by one."""
        public = self.public
        tables = public.features, public.mean, public.support
        known = *tables, public.horizon, public.reward_features, self.pooled
        whole = ModelSums(*known)
        clip = whole.typical * (1.0 if self.pooled else math.sqrt(2.0))
        return whole, ModelSums(*known, clip=clip)

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
            return state.added(*sums, release.users)
        noise = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, noise, noise["cross"], release.users)

    # What is estimated.

    def model(self, state: BlockSums) -> MixtureModel:
        """Estimated transitions and rewards: a regression on sums, or on counts."""
        if self.statistic_kind == "counts":
            how = self.options.scale, self._rewards(state), self.stationary
            return CountModel(self.public, state.scaled("counts"), state.noise("counts"), *how)
        rows = Rows.of(state, "gram", "cross")
        if self.stationary and len(rows.cross) > 1:
            # No transition of the last step was counted: its row is noise.
            rows = rows.first(self.spec.horizon - 1)
        bound = self.public.radius * self.public.scale
        fits = self._fits(rows.pooled() if self.stationary else rows, bound)
        return RegressionModel(self.public, fits, self._rewards(state))

    def _rewards(self, state: BlockSums) -> list[Fit]:
        """Rewards as they are known, or regressed on their features."""
        known, features = self.spec.known_rewards, self.public.reward_features
        if known is not None:
            return [(means, np.zeros(means.shape)) for means in known]
        assert features is not None  # noqa: S101
        pooled = self.spec.stationary_rewards
        if self.statistic_kind == "counts":
            return count_rewards(features, state, self.options.scale, pooled)
        rows = Rows.of(state, "reward_gram", "rewards")
        fits = self._fits(rows.pooled() if pooled else rows, math.sqrt(features.shape[2]))
        return [(features @ fit.weights, fit.width(features, REWARD_VARIANCE)) for fit in fits]

    def _fits(self, rows: Rows, bound: float) -> list[Regression]:
        """A regression for each row of sums."""
        how = self.options.scale * _BONUS, bound
        return [
            Regression(self.regularised(gram, spread), cross, (spread, of_cross), *how)
            for gram, cross, spread, of_cross in zip(*rows, strict=True)
        ]

    def regularised(self, gram: Floats, noise: float) -> Floats:
        """max(G, 0) + (prior + s sqrt(k)) I, with s the noise of G.

        The prior is small beside what one user shows.
        """
        k = len(gram)
        prior = 1e-3 / (self.public.radius * self.public.scale) ** 2
        return positive_part(gram) + (prior + noise * math.sqrt(k)) * np.eye(k)

    # How it is optimistic, and how it plans.

    def plan(
        self, state: BlockSums, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """The best policies by optimistic values and by estimated ones (line 12)."""
        if not state.parts:
            first = self.first_policy(rng)
            return Plan(first, first)
        optimistic, greedy = self.optimistic_values(self.model(state))
        return Plan(self.best(optimistic, rng), self.best(greedy, rng))

    def optimistic_values(self, model: MixtureModel) -> tuple[Floats, Floats]:
        """Optimistic and greedy action values (H, S, A) of the best policy.

        Lines 3 to 11, from V = 0 after the last step: Q = r + P V + both widths, cut to
        [0, H - h], and V = max_a Q. What adds to r and to P V keeps to their ranges.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        q_values, greedy = np.empty((H, S, A)), np.empty((H, S, A))
        values = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            rewards, widths = model.rewards(h)
            rewards, widths = np.clip(rewards, 0.0, 1.0), np.minimum(widths, 1.0)
            means = spread = np.zeros((2, S, A))
            if h < H - 1:
                means, spread = model.next_values(h, values, wide=1)
            above = np.minimum(means[0] + spread[0], values[0].max())
            q_values[h] = np.clip(rewards + widths + above, 0.0, H - h)
            greedy[h] = np.clip(rewards + means[1], 0.0, H - h)
            values = np.array([q_values[h].max(axis=1), greedy[h].max(axis=1)])
        return q_values, greedy


def choose_kind(
    options: MixtureOptions, privacy: Privacy, public: PublicFeatures
) -> tuple[str, str]:
    """Kind of statistic, and why."""
    if options.statistic != "auto":
        return options.statistic, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    informs = public.informs.sum(axis=-1)
    sparse = float(informs[informs > 0].mean()) <= _SPARSE if informs.any() else True
    many = public.free > 2 * public.features.shape[0]
    if privacy.joint and (sparse or many):
        reason = "few next states inform on the weights" if sparse else "there are many weights"
        return "counts", f"{reason}, and a policy reaches one action in each state"
    return "model", "every transition informs on all weights, for every value function"
