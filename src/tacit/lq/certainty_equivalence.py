"""Certainty equivalence: control as if what is believed were true, where that is safe.

Every user is in one block, which is asked once with the whole budget. Users' controls have noise of
known size, without which nobody would learn what other controls do. From a posterior of the model
follows what the next block is asked (:mod:`tacit.lq.estimate`). Published gains pass a safeguard:
they must beat zero control in nine of ten models that the posterior holds possible, widened by a
margin, and must not be much worse in any of them. Until some do, nothing but noise is applied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Algorithm, BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.lq.estimate import BlockEvidence, ModelRegression, SystemPosterior, next_sums
from tacit.lq.policy import GainPolicy
from tacit.lq.riccati import bounded_gains, cautious_gains, expected_costs, optimal_cost
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.arguments import instance_of
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.lq.spec import LQSpec
    from tacit.privacy.statistic import Statistic

# Blocks of more users are simulated part by part.
_IN_MEMORY = 1 << 15


@dataclass(frozen=True)
class LQConstants:
    """The practical agents' constants, chosen on other seeds of the worlds than are reported."""

    first: float = 7.0  # users of the first block, times (n + d) / mu
    # The number of users served grows by at most this factor from block to block.
    growth: float = 1.3
    # Energy of the first users' controls, over the whole episode and divided by sqrt(d), in that of
    # first states. Noise adds up over an episode, so with a fixed size per step it would cost the
    # more the longer episodes are.
    control_noise: float = 3.0
    noise_price: float = 0.5  # what the noise of later users may cost, in costs of zero control
    largest_noise: float = 0.3  # and how large it may be, in first noises, per root of the horizon
    # It may cost so many times what the gains are expected to lack of the optimum.
    explore: float = 1.0
    prior: float = 0.6  # standard deviation of all entries of (A, B) together, in norm bounds
    model_error: float = 0.1  # see :class:`~tacit.lq.estimate.ModelRegression`
    cap: float = 0.8  # where residuals are cut, in standard deviations of the posterior
    first_cap: float = 1.2  # the same for the first block, in those of the prior
    steps: float = 4.0  # how many steps of the first users count
    shape: float = 0.3  # inputs are scaled by this negative power of the Gram
    gram_share: float = 0.3  # how much the noise of the Gram counts in the choice of the weight
    # What was known is doubted when a block is so many standard deviations off.
    surprise: float = 1.5
    samples: int = 128  # models that gains are tried on
    caution: float = 1.4  # how much wider than the posterior they are
    confidence: float = 0.9  # in which share of them gains must beat zero control
    worst: float = 2.0  # and how much more than it they may cost in any of them


@dataclass(frozen=True, kw_only=True)
class CertaintyEquivalenceOptions:
    """Options of :class:`CertaintyEquivalence`.

    Attributes:
        constants: of the practical recipe.
    """

    constants: LQConstants = LQConstants()

    def __post_init__(self) -> None:
        instance_of("constants", self.constants, LQConstants)


@dataclass(frozen=True, eq=False)
class State:
    """What releases told of the model."""

    posterior: SystemPosterior
    evidence: tuple[BlockEvidence, ...] = ()
    trust: tuple[float, ...] = ()  # how much each block counts


class CertaintyEquivalence(Algorithm[State]):
    """Gains that are best for the posterior, among those that pass the safeguard.

    Idea: a posterior of the model from all blocks (:mod:`tacit.lq.estimate`) says which gains are
    best. There is no optimism: users explore by noise in their controls; ``greedy_policy`` has the
    gains alone.

    Private statistics: :class:`~tacit.lq.statistics.TrajectorySums` of every block, around the
    mean of the posterior.

    Guarantee: that of its curator; see ``guarantee``.

    >>> from tacit import CertaintyEquivalence, JointDP
    >>> from tacit.lq import dosing
    >>> world = dosing()
    >>> agent = CertaintyEquivalence(world.spec, 1000, JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.policy.noise > 0, float(abs(agent.policy.gains).max())
    (True, 0.0)
    """

    name = "certainty_equivalence"
    spec: LQSpec
    options: CertaintyEquivalenceOptions
    Options = CertaintyEquivalenceOptions

    def __init__(self, problem: Problem, options: CertaintyEquivalenceOptions) -> None:
        spec = problem.spec
        if not hasattr(spec, "control_cost"):
            raise InvalidArgument(
                "this agent is for linear-quadratic control: spec must be an LQSpec, as of "
                f"dosing, got {type(spec).__name__}"
            )
        chosen, p, n = options.constants, spec.states + spec.controls, spec.states
        prior_std = chosen.prior * spec.norm_bound / math.sqrt(n * p)
        self.regression = ModelRegression(spec, prior_std, chosen.model_error)
        super().__init__(problem, options)

    def init(self) -> State:
        """The prior: independent normal entries.

        A posterior is measured, not proven: with true public bounds the squared distance of the
        truth is on average within a factor of 2 of what it should be, from the first thousand users
        to a million (docs/lq.md has the table).
        """
        return State(self.regression.prior)

    # What is public.

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return f"{super().why}; control noise {self.first_noise:.3g} at first"

    def data_format(self, at: Progress) -> str:
        """Part by part, where blocks are large."""
        users = self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]
        return "streamed" if users > _IN_MEMORY else "episodes"

    # Queries, and the posterior.

    def query(self, state: State, plan: Plan, block: BlockInfo) -> TrajectorySums:
        """Second moments of users' steps; see :mod:`tacit.lq.estimate`."""
        constants = self.options.constants
        # While nothing is known of the model, a few steps of a user are to count.
        steps = None if state.evidence else min(float(self.spec.horizon), constants.steps)
        known, private = state.posterior, self.privacy.private
        return next_sums(self.regression, known, plan.policy, steps, constants, private)

    def update(
        self,
        state: State,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> State:
        """Adds a block to the posterior; a block that surprises makes earlier ones count less."""
        before, trust = state.posterior, state.trust
        asked = self.query(state, plan, block)
        found = BlockEvidence(release, asked, block.users, plan.policy)
        if state.evidence:
            surprise = self.regression.surprise(found, before)
            usual = 1.0 + self.options.constants.surprise * math.sqrt(2.0 / before.mean.size)
            if surprise > usual:
                trust = tuple(share / surprise for share in trust)
        evidence, trust = (*state.evidence, found), (*trust, 1.0)
        return State(self.regression.posterior(evidence, trust, before), evidence, trust)

    def monitored(self, statistic: Statistic, release: Release) -> dict[str, tuple[Any, Any]]:
        """What the steps that count cost, and the energy of every coordinate of z = (x, u).

        With G the sum of p p', p = M z, both are <A, G> for some A, with noise |A|_F times that of
        G. Of a user G is positive semidefinite with a trace of at most tau, so that
        0 <= <A, G> <= tau times the largest eigenvalue of A.
        """
        assert isinstance(statistic, TrajectorySums)  # noqa: S101
        spec, back, G = self.spec, np.linalg.inv(statistic.inputs), release["gram"]
        n, noise = spec.states, float(np.max(release.std["gram"]))
        cost = np.zeros(G.shape)
        cost[:n, :n], cost[n:, n:] = spec.state_cost, spec.control_cost
        turned, squares = back.T @ cost @ back, (back**2).sum(axis=1)
        dearest = float(np.linalg.eigvalsh(turned)[-1]) * statistic.tau
        return {
            "partial": (1.0, 0.0),
            "rewards": (-float((turned * G).sum()), noise * float(np.linalg.norm(turned))),
            "range": (-dearest, 0.0),
            "visits": (np.einsum("ij,jk,ik->i", back, G, back), noise * squares),
            "reach": (float(squares.max()) * statistic.tau, 0.0),
        }

    # How users explore.

    @property
    def first_noise(self) -> float:
        """Of each coordinate of the first users' controls; without it there is none later.

        In the energy of first states.
        """
        spec = self.spec
        energy = float(np.trace(spec.start_moment)) or spec.noise_bound**2 or 1.0
        share = self.options.constants.control_noise / (spec.horizon * math.sqrt(spec.controls))
        return math.sqrt(share * energy)

    def noise(self, known: SystemPosterior, gains: Floats, rng: np.random.Generator) -> float:
        """Of the controls of users who are served by gains, given what is known of the model."""
        spec, chosen, noise = self.spec, self.options.constants, self.first_noise
        if noise:
            noise = most_noise(noise, self.models(known, rng), spec, chosen)
        if noise and gains.any():
            models = self.models(known, rng)
            noise = min(noise, later_noise(gains, known.mean, models, spec, chosen.explore))
        return noise

    # How it plans.

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """Of the gains that pass, those of least average cost over possible models.

        Costs are in units of what zero control costs there, and zero control always passes. The
        first gains are zero. Noise is for those who are served; nobody is better off with it.
        """
        if last is None:
            still = GainPolicy.zero(self.spec.horizon, self.spec.controls, self.spec.states)
            return Plan(replace(still, noise=self.first_noise), still)
        known = state.posterior
        certain = self._optimal_gains(known.mean, np.zeros_like(known.covariance))
        cautious = self._optimal_gains(known.mean, known.covariance)
        shares = [share * certain for share in (0.125, 0.25, 0.5, 0.75, 1.0)]
        others = cautious, 0.5 * cautious, last.greedy.gains
        tried = np.array([np.zeros_like(certain), *shares, *others])
        best = tried[int(np.argmin(self._costs(tried, self.models(known, rng))))]
        return Plan(GainPolicy(best, self.noise(known, best, rng)), GainPolicy(best))

    def _optimal_gains(self, theta: Floats, covariance: Floats) -> Floats:
        """Gains of least average cost, within the bound; see :func:`~.riccati.cautious_gains`."""
        spec = self.spec
        gains = cautious_gains(theta, covariance, spec.state_cost, spec.control_cost, spec.horizon)
        return bounded_gains(gains, spec.gain_bound)

    def models(self, known: SystemPosterior, rng: np.random.Generator) -> Floats:
        """Models that are possible by what is known, and a margin, within the public bound."""
        chosen = self.options.constants
        models = known.draw(rng, chosen.samples, chosen.caution)
        norms = np.linalg.norm(models, axis=(1, 2))
        models *= np.minimum(1.0, self.spec.norm_bound / norms)[:, np.newaxis, np.newaxis]
        return models

    def _costs(self, gains: Floats, models: Floats) -> Floats:
        """Average costs of gains over models, in units of the first, which are zero control.

        Infinite where gains do not pass the safeguard; zero control always does.
        """
        costs = expected_costs(self.spec, gains, models, 0.0)
        # Where zero control exceeds all numbers, nothing is known of what is better.
        ratios = np.where(np.isfinite(costs), costs, np.inf) / np.maximum(costs[0], 1e-300)
        ratios[np.isnan(ratios)] = np.inf
        fails = np.quantile(ratios, self.options.constants.confidence, axis=1) > 1.0
        fails |= ratios.max(axis=1) > self.options.constants.worst
        fails[0] = False
        return np.where(fails, np.inf, ratios.mean(axis=1))

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument(
                "second moments need Gaussian noise: delta > 0, and the Gaussian mechanism under "
                f"LocalDP; privacy is {self.privacy!r}"
            )

    def _block_sizes(self) -> BlockSizes:
        # Blocks that are large enough for residuals to become shorter by them.
        n, d, H = self.spec.states, self.spec.controls, self.spec.horizon
        chosen, first = self.options.constants, max(8, n + d)
        if self.privacy.private:
            one = TrajectorySums(n, d, H, tau=math.sqrt(0.5))
            first = users_above_noise(one, self.privacy, chosen.first * (n + d))
        return BlockSizes(first=first, growth=chosen.growth)


def most_noise(first: float, models: Floats, spec: LQSpec, constants: LQConstants) -> float:
    """More than the first users had, where it is known to cost little in comparison."""
    still = np.zeros((2, spec.horizon, spec.controls, spec.states))
    costs = expected_costs(spec, still, models, np.array([0.0, 1.0]))
    ratios = costs[1] / np.maximum(costs[0], 1e-300)
    price = float(np.median(ratios)) - 1.0
    if not (math.isfinite(price) and price > 0.0):
        return first
    largest = constants.largest_noise * first * math.sqrt(spec.horizon)
    return max(first, min(largest, math.sqrt(constants.noise_price / price)))


def later_noise(gains: Floats, mean: Floats, models: Floats, spec: LQSpec, explore: float) -> float:
    """For users of these gains, less and less as the model becomes known.

    Noise costs its variance times a constant. What gains lack of the optimum decreases as more
    is known, which is the sooner the more noise there is. Spending about as much on noise as
    is lacking has the right rates: with N users the lack is as 1 / (N variance) where data are
    scarce, and as its square where the noise of privacy is what counts, so the variance
    decreases as N^(-1/2) and N^(-2/3), as the least sum of both does. Noise may cost ``explore``
    times what the gains are expected to lack, and is infinite where nothing can be said.
    """
    twice, noises = gains[np.newaxis].repeat(2, 0), np.array([0.0, 1.0])
    one = expected_costs(spec, twice, mean[np.newaxis], noises)
    costs = expected_costs(spec, gains[np.newaxis], models, 0.0)[0]
    best = [optimal_cost(spec, model) for model in models]
    lack, price = float(np.mean(costs) - np.mean(best)), float(one[1, 0] - one[0, 0])
    if not (math.isfinite(lack) and math.isfinite(price)):
        return math.inf
    return math.sqrt(explore * max(lack, 0.0) / price)
