"""LinOptSampled: optimistic value iteration for mixtures of models that are given as simulators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.mixture.estimate import NoisyRegression
from tacit.numerics.regression import BlockSums, helmert, positive_part
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import users_above_noise
from tacit.privacy.reading import StepColumns
from tacit.privacy.standard import GramCross
from tacit.privacy.statistic import Block
from tacit.tabular.algorithm import FiniteAlgorithm, OptimismOptions
from tacit.tabular.policy import Policy

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.mixture.spec import SampledSpec
    from tacit.privacy.curator import Release

# Scale of widths.
_BONUS = 0.1


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetedSums(GramCross):
    """Sums over a user's steps of p p' and p q: the paper's value-targeted regression, pooled.

    At step h in state s with action a, p = ``inputs`` (k numbers) and q = ``values`` of the next
    state less ``means``, all public tables. The last step and invalid ones do not count.

    Formal guarantees:
        Sensitivity sqrt(2) tau, and tau against zero, by the clip of
        :class:`~tacit.GramCross`, for every V and any data: it clips after everything was looked
        up. Attained by users who stay in two cells whose p are long and orthogonal, with q = 0.
    """

    inputs: Floats  # p, (H - 1, S, A, k)
    means: Floats  # p0 V / scale, (H - 1, S, A)
    values: Floats  # V / scale of the next step, (H - 1, S)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        users, (T, S, A) = block.users, self.means.shape
        states, taken, *_ = StepColumns(T + 1).read(block)  # rewards are known
        now, after, taken = states[:, :T], states[:, 1 : T + 1], taken[:, :T]
        valid = (now >= 0) & (now < S) & (after >= 0) & (after < S) & (taken >= 0) & (taken < A)
        now, after, taken = (np.where(valid, array, 0) for array in (now, after, taken))
        steps = np.arange(T)
        p = self.inputs[steps, now, taken] * valid[..., np.newaxis]
        q = (self.values[steps, after] - self.means[steps, now, taken]) * valid
        return super().vectors(Block(users, {"p": p, "q": q[..., np.newaxis]}))


class StateTargets:
    """Value iteration on the draws of the models of a :class:`SampledSpec`."""

    statistic = TargetedSums

    def __init__(self, spec: SampledSpec) -> None:
        self.spec, self.free, d = spec, spec.dimension - 1, spec.dimension
        self.center, self.directions = np.full(d, 1.0 / d), helmert(d)

    def plan(
        self, eta: Floats, width: Callable[[Floats], Floats], clip: float, rng: Generator
    ) -> tuple[Policy, Policy, dict[str, Any]]:
        """Optimistic and greedy policies, and the arguments of the next statistic.

        Q = r + p0 V + phi' eta + width, cut to the range of the next values, and V = max_a Q, step
        by step from the last; the statistic is about V of the next step.

        Args:
            eta: Estimated coordinates of the weights.
            width: Bonus of optimism, (S, A), of inputs (S, A, k).
            clip: Of users, as a share.
            rng: Breaks ties.
        """
        spec, rewards = self.spec, self.spec.known_rewards[0]
        H, S, A = spec.horizon, spec.states, spec.actions
        inputs, means = np.empty((H - 1, S, A, self.free)), np.empty((H - 1, S, A))
        asked, best = np.empty((H - 1, S)), np.empty((2, H, S), dtype=np.int64)
        V = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            for j in range(2):
                Q = rewards
                if h < H - 1:
                    phi = spec.expected(V[j])
                    x, base = phi @ self.directions, phi @ self.center
                    mean = base + x @ eta
                    if j == 0:
                        inputs[h], means[h], asked[h] = x, base, V[0]
                        mean = mean + width(x)
                    Q = rewards + np.clip(mean, float(V[j].min()), float(V[j].max()))
                V[j] = Q.max(axis=1)
                ties = np.where(V[j][:, np.newaxis] == Q, rng.random((S, A)), -1.0)
                best[j, h] = ties.argmax(axis=1)
        optimistic, greedy = (Policy.deterministic(actions, A) for actions in best)
        return optimistic, greedy, self._asked(inputs, means, asked, clip)

    def _asked(self, inputs: Floats, means: Floats, values: Floats, share: float) -> dict[str, Any]:
        """Arguments of the statistic of the next block; scales and clip are public numbers.

        A user who is everywhere alike has inputs of length 1 and targets that count as much.
        """
        size = max(math.sqrt(float(np.einsum("hsak,hsak->", inputs, inputs)) / means.size), 1e-9)
        squares = []  # of V(s') - p0 V, at some steps, over all cells and models
        for V, base in zip(values[::4], means[::4, ..., np.newaxis], strict=True):
            own = self.spec.expected(V**2) - 2.0 * base * self.spec.expected(V)
            squares.append(max(float((own + base**2).mean()), 0.0))
        most = max(math.sqrt(float(np.mean(squares))) / size, 1e-9)
        for table in (inputs, means, values):
            table /= size
            table.setflags(write=False)
        sizes = {"rows": self.free, "columns": 1, "steps": len(means)}
        scales = {"weight": math.sqrt(2.0) / most, "tau": 2.0 * share * len(means)}
        tables = {"inputs": inputs, "means": means, "values": values}
        return {**sizes, **scales, **tables}


class LinOptSampled(FiniteAlgorithm[BlockSums]):
    """Value-targeted regression without a table of the models.

    Idea: the paper's regression needs of the features only phi(s, a) = (E_i V(s'))_i, the expected
    next value under each base model. Next states that the models drew once, publicly, are enough
    for that and for optimistic plans, so S may be tens of thousands.

    Private statistics: value-targeted sums of every block, once, with the whole budget and the
    values of the plan that was public when the block began.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: Monte Carlo means over public draws in place of integrals; one
    release per block of a schedule; sums of all steps are pooled; rewards must be known; constants
    are practical.

    Cost: H sweeps per block over what the models drew, at most S A d ``samples`` numbers.
    """

    name = "linopt_sampled"
    Options = OptimismOptions
    options: OptimismOptions
    statistic_kind = "values"

    def __init__(self, problem: Problem, options: OptimismOptions) -> None:
        if not hasattr(problem.spec, "targets"):
            raise InvalidArgument(f"spec must be a SampledSpec, got {type(problem.spec).__name__}")
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
        self, state: BlockSums, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> BlockSums:
        """Sums over all blocks, with those of one more. Args: see Algorithm.update."""
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, std, std["cross"], release.users)

    # Plan.

    def fit(self, state: BlockSums) -> tuple[Floats, NoisyRegression]:
        """Estimated coordinates of the weights, and their regression."""
        k = self.targets.free
        gram, cross, noise, scale = np.zeros((k, k)), np.zeros(k), (0.0, 0.0), 0.0
        if state.parts:
            gram, cross = state.scaled("gram"), state.scaled("cross")[:, 0]
            noise = float(state.noise("gram")), float(state.noise("cross"))
            scale = self.options.scale * _BONUS
        matrix = positive_part(gram) + (1e-3 + noise[0] * math.sqrt(k)) * np.eye(k)
        # Weights with sum 1 are at most 1 from their centre.
        fit = NoisyRegression(matrix, cross, scale, noise, 1.0 / math.sqrt(k))
        length = float(np.linalg.norm(fit.weights))
        return fit.weights * min(1.0, 1.0 / max(length, 1e-12)), fit

    def plan(self, state: BlockSums, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """The best policies by optimistic and by estimated values, and what is asked next.

        The first are best for the public centre of the weights. Args: see Algorithm.plan.
        """
        eta, fit = self.fit(state)
        # Of targets, in units of the inputs; the last block's.
        variance = 1.0 if last is None else 2.0 / last.memory["weight"] ** 2
        width = partial(fit.width, variance=variance)
        # Without privacy no user is scaled back, which would bias.
        clip = 1.0 if self.privacy.private else 1e9
        policy, greedy, asked = self.targets.plan(eta, width, clip, rng)
        return Plan(self.named(policy), self.named(greedy), asked)

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument("targeted sums need Gaussian noise: they have no 1-norm")

    def _block_sizes(self) -> BlockSizes:
        plan = self.plan(self.init(), None, Progress(), self.problem.rng())
        asked = self.targets.statistic(**plan.memory)
        return BlockSizes(first=users_above_noise(asked, self.privacy, 2.0), growth=1.5)
