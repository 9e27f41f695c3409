"""Certainty equivalence: control as if the posterior were true, where that is safe.

Every user is in one block, which is asked once with the whole budget. Users' controls have noise of
known size, without which the effects of other controls could not be learnt. From a posterior of the
model follows the query of the next block (:mod:`tacit.lq.estimate`). Published gains pass a
safeguard: they must beat zero control in nine of ten models that the posterior holds possible,
widened by a margin, and must not be much worse in any of them. Until some do, nothing but noise is
applied.
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
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import users_above_noise
from tacit.privacy.validation import instance_of

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.lq.spec import LQSpec
    from tacit.privacy.statistic import Statistic

# Blocks of more users are simulated part by part.
_IN_MEMORY = 1 << 15


@dataclass(frozen=True)
class LQConstants:
    """Constants of the agent, chosen on other seeds of the worlds than are reported."""

    first: float = 7.0  # users of the first block, times (n + d) / mu
    # The number of users served grows by at most this factor from block to block.
    growth: float = 1.3
    # Energy of the first users' controls, over the whole episode and divided by sqrt(d), in that of
    # first states. Noise adds up over an episode, so with a fixed size per step it would cost the
    # more the longer episodes are.
    control_noise: float = 3.0
    noise_price: float = 0.5  # largest cost of the noise of later users, in costs of zero control
    largest_noise: float = 0.3  # and its largest size, in first noises, per root of the horizon
    # It may cost so many times what the gains are expected to lack of the optimum.
    explore: float = 1.0
    prior: float = 0.6  # standard deviation of all entries of (A, B) together, in norm bounds
    model_error: float = 0.1  # see :class:`~tacit.lq.estimate.ModelRegression`
    cap: float = 0.8  # where residuals are cut, in standard deviations of the posterior
    first_cap: float = 1.2  # the same for the first block, in those of the prior
    steps: float = 4.0  # how many steps of the first users count
    shape: float = 0.3  # inputs are scaled by this negative power of the Gram
    gram_share: float = 0.3  # how much the noise of the Gram counts in the choice of the weight
    # Earlier blocks are doubted when a new one is so many standard deviations off.
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
class CertaintyEquivalenceState:
    """Posterior of the model, and the releases that it follows from."""

    posterior: SystemPosterior
    evidence: tuple[BlockEvidence, ...] = ()
    trust: tuple[float, ...] = ()  # how much each block counts


class CertaintyEquivalence(Algorithm[CertaintyEquivalenceState]):
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

    def init(self) -> CertaintyEquivalenceState:
        """The prior: independent normal entries.

        A posterior is measured, not proven: with true public bounds the squared distance of the
        truth is on average within a factor of 2 of what it should be, from the first thousand users
        to a million.
        """
        return CertaintyEquivalenceState(self.regression.prior)

    # Query, and update of the posterior.

    def query(
        self, state: CertaintyEquivalenceState, plan: Plan, block: BlockInfo
    ) -> TrajectorySums:
        """Second moments of users' steps; see :mod:`tacit.lq.estimate`."""
        constants = self.options.constants
        # While nothing is known of the model, a few steps of a user are to count.
        steps = None if state.evidence else min(float(self.spec.horizon), constants.steps)
        asked = next_sums(self.regression, state.posterior, plan.policy, steps, constants)
        # Without privacy a clip would only lose data.
        return asked if self.privacy.private else replace(asked, tau=asked.tau * 1e3)

    def update(
        self,
        state: CertaintyEquivalenceState,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> CertaintyEquivalenceState:
        """The posterior with one more block; one that surprises makes earlier ones count less.

        Args:
            state: What is known.
            plan: That the users followed.
            release: Of the query, with noise.
            block: How many they are.
            rng: Not used.
        """
        before, trust = state.posterior, state.trust
        found = BlockEvidence(release, self.query(state, plan, block), block.users, plan.policy)
        if state.evidence:
            surprise = self.regression.surprise(found, before)
            usual = 1.0 + self.options.constants.surprise * math.sqrt(2.0 / before.mean.size)
            if surprise > usual:
                trust = tuple(share / surprise for share in trust)
        evidence, trust = (*state.evidence, found), (*trust, 1.0)
        posterior = self.regression.posterior(evidence, trust, before)
        return CertaintyEquivalenceState(posterior, evidence, trust)

    def monitored(self, statistic: Statistic, release: Release) -> dict[str, tuple[Any, Any]]:
        """Cost of the steps that count, and the energy of every coordinate of z = (x, u).

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

    # Plans: gains that pass the safeguard, and noise to explore.

    def plan(
        self,
        state: CertaintyEquivalenceState,
        last: Plan | None,
        at: Progress,
        rng: np.random.Generator,
    ) -> Plan:
        """Of the gains that pass, those of least average cost over possible models.

        Costs are in units of what zero control costs there, and zero control always passes. The
        first gains are zero. Noise is for those who are served; none is better off with it.

        Args:
            state: What is known.
            last: The plan before, if any, whose gains are tried again.
            at: Blocks so far.
            rng: Draws possible models.
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
        noise = self._largest_noise(self.models(known, rng))
        if best.any():
            noise = min(noise, self._worthwhile_noise(best, known.mean, self.models(known, rng)))
        return Plan(GainPolicy(best, noise), GainPolicy(best))

    def _optimal_gains(self, theta: Floats, covariance: Floats) -> Floats:
        """Gains of least average cost, within the bound; see :func:`~.riccati.cautious_gains`."""
        spec = self.spec
        gains = cautious_gains(theta, covariance, spec.state_cost, spec.control_cost, spec.horizon)
        return bounded_gains(gains, spec.gain_bound)

    def models(self, known: SystemPosterior, rng: np.random.Generator) -> Floats:
        """Models that are possible by the posterior, and a margin, within the public bound."""
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

    @property
    def first_noise(self) -> float:
        """Size of the noise in each coordinate of the first users' controls.

        In the energy of first states.
        """
        spec = self.spec
        energy = float(np.trace(spec.start_moment)) or spec.noise_bound**2 or 1.0
        share = self.options.constants.control_noise / (spec.horizon * math.sqrt(spec.controls))
        return math.sqrt(share * energy)

    def _largest_noise(self, models: Floats) -> float:
        """The first noise, or more where that is known to cost little in comparison."""
        spec, chosen, first = self.spec, self.options.constants, self.first_noise
        still = np.zeros((2, spec.horizon, spec.controls, spec.states))
        costs = expected_costs(spec, still, models, np.array([0.0, 1.0]))
        price = float(np.median(costs[1] / np.maximum(costs[0], 1e-300))) - 1.0
        if not (math.isfinite(price) and price > 0.0):
            return first
        largest = chosen.largest_noise * first * math.sqrt(spec.horizon)
        return max(first, min(largest, math.sqrt(chosen.noise_price / price)))

    def _worthwhile_noise(self, gains: Floats, mean: Floats, models: Floats) -> float:
        """Noise for users of these gains, less and less as the model becomes known.

        Noise costs its variance times a constant. What gains lack of the optimum decreases as more
        is known, which is the sooner the more noise there is. Spending about as much on noise as
        is lacking has the right rates: with N users the lack is as 1 / (N variance) where data are
        scarce, and as its square where the noise of privacy is what counts, so the variance
        decreases as N^(-1/2) and N^(-2/3), as the least sum of both does. Noise may cost
        ``explore`` times what the gains are expected to lack; it is infinite where nothing can be
        said.
        """
        spec = self.spec
        twice, noises = gains[np.newaxis].repeat(2, 0), np.array([0.0, 1.0])
        one = expected_costs(spec, twice, mean[np.newaxis], noises)
        costs = expected_costs(spec, gains[np.newaxis], models, 0.0)[0]
        best = [optimal_cost(spec, model) for model in models]
        lack, price = float(np.mean(costs) - np.mean(best)), float(one[1, 0] - one[0, 0])
        if not (math.isfinite(lack) and math.isfinite(price)):
            return math.inf
        return math.sqrt(self.options.constants.explore * max(lack, 0.0) / price)

    # Choices made before the first user comes.

    @property
    def why(self) -> str:
        """Releases, and the first noise, in words."""
        return f"{super().why}; control noise {self.first_noise:.3g} at first"

    def data_format(self, at: Progress) -> str:
        """Part by part, where blocks are large."""
        users = self.schedule.blocks[min(at.releases, self.schedule.releases - 1)]
        return "streamed" if users > _IN_MEMORY else "episodes"

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
