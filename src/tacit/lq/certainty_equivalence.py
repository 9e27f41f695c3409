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
from numpy.random import Generator

from tacit.core.algorithm import Algorithm, BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.lq.estimate import BlockEvidence, ModelRegression, SystemPosterior
from tacit.lq.riccati import bounded_gains, cautious_gains, expected_costs, optimal_cost
from tacit.lq.spec import GainPolicy
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import users_above_noise
from tacit.privacy.validation import positive

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.lq.spec import LQSpec
    from tacit.privacy.statistic import Statistic

# Blocks of more users are simulated part by part.
_IN_MEMORY = 1 << 15


# Constants, chosen on other seeds of the worlds than are reported.
FIRST = 7.0  # users of the first block, times (n + d) / mu
GROWTH = 1.3  # largest factor by which the number of users served grows from block to block
PRIOR = 0.6  # standard deviation of all entries of (A, B) together, in norm bounds
STEPS = 4.0  # how many steps of the first users count
SURPRISE = 1.5  # earlier blocks are doubted when a new one is so many standard deviations off
NOISE_PRICE = 0.5  # largest cost of the noise of later users, in costs of zero control
LARGEST_NOISE = 0.3  # and its largest size, in first noises, per root of the horizon
SAMPLES = 128  # models that gains are tried on
CAUTION = 1.4  # how much wider than the posterior they are
CONFIDENCE = 0.9  # in which share of them gains must beat zero control
WORST = 2.0  # and how much more than it they may cost in any of them


@dataclass(frozen=True, kw_only=True)
class CertaintyEquivalenceOptions:
    """Options of :class:`CertaintyEquivalence`.

    Attributes:
        control_noise: energy of the first users' controls, over the whole episode and divided by
            sqrt(d), in that of first states. Noise adds up over an episode, so with a fixed size
            per step it would cost the more the longer episodes are.
        explore: the noise of later users may cost so many times what the gains are expected to
            lack of the optimum.
    """

    control_noise: float = 3.0
    explore: float = 1.0

    def __post_init__(self) -> None:
        for name in ("control_noise", "explore"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))


@dataclass(frozen=True, eq=False)
class ControlState:
    """Posterior of the model, and the releases that it follows from."""

    posterior: SystemPosterior
    evidence: tuple[BlockEvidence, ...] = ()
    trust: tuple[float, ...] = ()  # how much each block counts


class CertaintyEquivalence(Algorithm[ControlState]):
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
        entries = spec.states * (spec.states + spec.controls)
        prior_std = PRIOR * spec.norm_bound / math.sqrt(entries)
        self.regression = ModelRegression(spec, prior_std)
        super().__init__(problem, options)

    def init(self) -> ControlState:
        """The prior: independent normal entries; posteriors were measured, not proven."""
        return ControlState(self.regression.prior)

    # Query, and update of the posterior.

    def query(self, state: ControlState, plan: Plan, block: BlockInfo) -> TrajectorySums:
        """Second moments of users' steps; see :mod:`tacit.lq.estimate`."""
        # While nothing is known of the model, a few steps of a user are to count.
        steps = None if state.evidence else min(float(self.spec.horizon), STEPS)
        asked = self.regression.next_query(state.posterior, plan.policy, steps)
        # Without privacy a clip would only lose data.
        return asked if self.privacy.private else replace(asked, tau=asked.tau * 1e3)

    def update(
        self, state: ControlState, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> ControlState:
        """One more block; if it surprises, earlier ones count less. Args: see Algorithm.update."""
        before, trust = state.posterior, state.trust
        found = BlockEvidence(release, self.query(state, plan, block), block.users, plan.policy)
        if state.evidence:
            surprise = self.regression.surprise(found, before)
            usual = 1.0 + SURPRISE * math.sqrt(2.0 / before.mean.size)
            if surprise > usual:
                trust = tuple(share / surprise for share in trust)
        evidence, trust = (*state.evidence, found), (*trust, 1.0)
        posterior = self.regression.posterior(evidence, trust, before)
        return ControlState(posterior, evidence, trust)

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

    def plan(self, state: ControlState, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Of the gains that pass, those of least average cost over possible models.

        Costs are in units of what zero control costs there, and zero control always passes. The
        first gains are zero. Noise is for those who are served. Args: see Algorithm.plan.
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
        return bounded_gains(cautious_gains(self.spec, theta, covariance), self.spec.gain_bound)

    def models(self, known: SystemPosterior, rng: Generator) -> Floats:
        """Models that are possible by the posterior, and a margin, within the public bound."""
        models = known.draw(rng, SAMPLES, CAUTION)
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
        fails = np.quantile(ratios, CONFIDENCE, axis=1) > 1.0
        fails |= ratios.max(axis=1) > WORST
        fails[0] = False
        return np.where(fails, np.inf, ratios.mean(axis=1))

    @property
    def first_noise(self) -> float:
        """Size of the noise in each coordinate of first controls; less where users are few."""
        spec, few = self.spec, 20 * self._block_sizes().first if self.privacy.private else 1
        energy = float(np.trace(spec.start_moment)) or spec.noise_bound**2 or 1.0
        share = self.options.control_noise / (spec.horizon * math.sqrt(spec.controls))
        return math.sqrt(share * energy * min(1.0, self.users / few))

    def _largest_noise(self, models: Floats) -> float:
        """The first noise, or more where that is known to cost little in comparison."""
        spec, first = self.spec, self.first_noise
        still = np.zeros((2, spec.horizon, spec.controls, spec.states))
        costs = expected_costs(spec, still, models, np.array([0.0, 1.0]))
        price = float(np.median(costs[1] / np.maximum(costs[0], 1e-300))) - 1.0
        if not (math.isfinite(price) and price > 0.0):
            return first
        largest = LARGEST_NOISE * first * math.sqrt(spec.horizon)
        return max(first, min(largest, math.sqrt(NOISE_PRICE / price)))

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
        return math.sqrt(self.options.explore * max(lack, 0.0) / price)

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
        first = max(8, n + d)
        if self.privacy.private:
            one = TrajectorySums(n, d, H, tau=math.sqrt(0.5))
            first = users_above_noise(one, self.privacy, FIRST * (n + d))
        return BlockSizes(first=first, growth=GROWTH)
