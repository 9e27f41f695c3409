"""LinOptSampled: optimistic value iteration for mixtures of models that are given as simulators."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.mixture.estimate import NoisyRegression
from tacit.numerics.regression import BlockSums, positive_part
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise
from tacit.tabular.algorithm import FiniteAlgorithm, OptimismOptions

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release

# Scale of widths.
_BONUS = 0.1


class LinOptSampled(FiniteAlgorithm[BlockSums]):
    """Value-targeted regression without a table of the models; states are numbers or vectors.

    Idea: the paper's regression needs of the features only phi(s, a) = (E_i V(s'))_i, the expected
    next value under each base model. Next states that the models drew once, publicly, are enough
    for that, so S may be tens of thousands and no S A d S numbers exist. Plan optimistically on
    the same draws. On vectors, value functions are linear in a kernel's features, and what models
    expect is fitted to draws at public states; only the weights of the models are unknown.

    Private statistics: value-targeted sums of every block, once, with the whole budget and the
    values of the plan that was public when the block began. The first block has the plan for the
    centre of the weights. ``spec.targets()`` makes plans and sums, by the kind of states:
    :class:`~tacit.mixture.sampled_spec.StateTargets`, or that of a
    :class:`~tacit.continuous.spec.SimulatedSpec`.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: Monte Carlo means over ``samples`` public draws in place of
    integrals; one release per block of a schedule; sums of all steps are pooled, since weights are
    the same at every step; rewards must be known; plans on vectors are discounted, one for all
    steps; constants are practical.

    Cost: H sweeps per block over what the models drew, at most S A d ``samples`` numbers; on
    vectors, some hundred products with A d m numbers per public state.
    """

    name = "linopt_sampled"
    Options = OptimismOptions
    options: OptimismOptions
    statistic_kind = "values"

    def __init__(self, problem: Problem, options: OptimismOptions) -> None:
        if not hasattr(problem.spec, "targets"):
            raise InvalidArgument(
                "this agent needs simulators: spec must be a SampledSpec or a SimulatedSpec; got "
                f"{type(problem.spec).__name__}"
            )
        self.targets: Any = problem.spec.targets()
        super().__init__(problem, options)

    def init(self) -> BlockSums:
        """No sums."""
        return BlockSums()

    # Query: the sums of each block, once, with its whole budget.

    def query(self, state: BlockSums, plan: Plan, block: BlockInfo) -> Any:
        """Sums for the values that were planned when the block began."""
        return self.targets.statistic(**plan.memory)

    def update(
        self,
        state: BlockSums,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> BlockSums:
        """Sums over all blocks, with those of one more.

        Args:
            state: Sums before it.
            plan: That its users followed.
            release: Of the query.
            block: Its size, and where the run stands.
            rng: Not used.
        """
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, std, std["cross"], release.users)

    # Plan.

    def fit(self, state: BlockSums) -> tuple[Floats, NoisyRegression]:
        """Estimated coordinates of the weights, and their regression."""
        k, radius = self.targets.free, self.targets.radius
        gram, cross, noise, scale = np.zeros((k, k)), np.zeros(k), (0.0, 0.0), 0.0
        if state.parts:
            gram, cross = state.scaled("gram"), state.scaled("cross")[:, 0]
            noise = float(state.noise("gram")), float(state.noise("cross"))
            scale = self.options.scale * _BONUS
        ridge = 1e-3 / radius**2 + noise[0] * math.sqrt(k)
        matrix = positive_part(gram) + ridge * np.eye(k)
        fit = NoisyRegression(matrix, cross, scale, noise, radius / math.sqrt(k))
        length = float(np.linalg.norm(fit.weights))
        return fit.weights * min(1.0, radius / max(length, 1e-12)), fit

    def plan(
        self, state: BlockSums, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """The best policies by optimistic and by estimated values, and what is asked next.

        The first are the best for the centre of the weights, which is public.

        Args:
            state: Sums over all blocks.
            last: Plan of the version before; ``None`` at the start.
            at: Where the run stands.
            rng: Of ties.
        """
        eta, fit = self.fit(state)
        # Of targets, in units of the inputs; the last block's.
        width = partial(fit.width, variance=1.0 if last is None else last.memory["most"] ** 2)
        # Without privacy no user is scaled back, which would bias.
        clip = 1.0 if self.privacy.private else 1e9
        policy, greedy, asked = self.targets.plan(eta, width, clip, rng)
        return Plan(self.named(policy), self.named(greedy), asked)

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must have delta > 0 and the Gaussian mechanism, got {self.privacy!r}: "
                "targeted sums have no sensitivity in the 1-norm"
            )

    def _block_sizes(self) -> BlockSizes:
        plan = self.plan(self.init(), None, Progress(), self.problem.rng())
        asked = self.targets.statistic(**plan.memory)
        return BlockSizes(first=users_above_noise(asked, self.privacy, 2.0), growth=1.5)
