"""Policy improvement from sums of what followed a state or an action.

R is the largest return. Steps fall into F phases. A state's value in a phase is normal; so is each
action's advantage over the others there. Sums of n visits with noise of standard deviation s and a
variance v per visit are n times what they measure, with variance s^2 + n v, so they weigh
n^2 / (s^2 + n v). Constants of the prior, and of how fast it is forgotten, were chosen on
sparse_mdp with 100 to 700 states, seeds 300 to 314.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from scipy.special import softmax

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress, Queries, Query
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import release_noise
from tacit.privacy.statistic import Bools, Ints
from tacit.privacy.validation import checked_number, instance_of
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.policy import Policy, uniform_policy
from tacit.tabular.return_statistics import ReturnSums
from tacit.tabular.spec import FiniteSpec

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.privacy.models import Privacy


FIRST = 10  # a user's first states that tell about values
SHARE = 0.25  # of the budget that goes to values; the rest goes to advantages
TRACE = 0.5  # how much of later residuals an advantage has
LENGTH = 0.35  # of all of a user's residuals, at most, in units of the largest return
BLOCK = 60.0  # size of the first block, in units of noise over visits per user and cell
PHASES = 8  # of a horizon, at most
PHASED = 8.0  # smallest blocks, times the square of the phases, that a block needs


@dataclass(frozen=True, eq=False)
class ReturnPosterior:
    """Normal posterior of values and advantages."""

    allowed: Bools  # (S, A), which actions states allow
    largest: float  # R
    values: Floats  # V(s), (F, S)
    value_precision: Floats  # one over their variance; 0 before any release
    visits: Floats  # (F, S), of the last block's users
    advantages: Floats  # A(s, a), (F, S, A), up to a constant of the state
    precision: Floats  # one over their variance

    @classmethod
    def prior(cls, allowed: Bools, largest: float) -> ReturnPosterior:
        """Before any release, of one phase."""
        of_states, of_actions = (1, len(allowed)), (1, *allowed.shape)
        values, precision = np.full(of_states, largest / 2.0), (0.03 * largest) ** -2.0
        of_action = np.zeros(of_actions), np.full(of_actions, precision)
        return cls(allowed, largest, values, np.zeros(of_states), np.ones(of_states), *of_action)

    @property
    def informed(self) -> bool:
        """Whether there was a release."""
        return bool(self.value_precision.any())

    def with_values(self, returns: Floats, visits: Floats, noise: float) -> ReturnPosterior:
        """With sums of returns less R / 2, and of visits, by phase and state, (F, S)."""
        R, n = self.largest, np.maximum(visits, 1.0)
        values, precision = self.values, self.value_precision
        if not self.informed:
            mean = np.clip(R / 2.0 + returns.sum() / n.sum(), 0.0, R)
            values = np.full(values.shape, mean)
            precision = np.full(precision.shape, (0.2 * R) ** -2.0)
        variance = noise**2 + n * (0.45 * R) ** 2
        precision = precision + n**2 / variance
        missing = n * (returns - n * (values - R / 2.0)) / variance
        values = np.clip(values + missing / precision, 0.0, R)
        return replace(self, values=values, value_precision=precision, visits=n)

    def with_advantages(self, sums: Floats, behaviour: Floats, noise: float) -> ReturnPosterior:
        """With sums of what followed each action, (F, S, A), under a behaviour's probabilities.

        A state's own offset, by which all its actions are off alike, is unknown. Its best estimate
        weighs each action by how much is known of it, before and now, and is taken off.
        """
        n = self.visits[..., np.newaxis] * behaviour
        variance = noise**2 + n * (0.15 * self.largest) ** 2
        new = np.divide(n**2, variance, out=np.zeros(n.shape), where=self.allowed & (n > 0))
        means = np.divide(sums, n, out=np.zeros(n.shape), where=new > 0)
        gap = means - self.advantages
        weights = new * self.precision / (new + self.precision)
        total = weights.sum(axis=-1, keepdims=True)
        offset = (weights * gap).sum(axis=-1, keepdims=True) / np.where(total > 0, total, 1.0)
        precision = self.precision + new
        advantages = self.advantages + new * (gap - offset) / precision
        return replace(self, advantages=advantages, precision=precision)

    def greedy(self, ties: Floats) -> Ints:
        """The best actions, (F, S); random numbers ``ties`` (F, S, A) decide between equals."""
        scores = np.where(self.allowed, self.advantages, -np.inf)
        top = scores == scores.max(axis=-1, keepdims=True)
        best: Ints = np.where(top, ties, -1.0).argmax(axis=-1)
        return best

    def exploring(self) -> Floats:
        """Actions with probabilities that fall with how surely they are worse than the best."""
        at = self.greedy(np.zeros(self.advantages.shape))[..., np.newaxis]
        lead = self.advantages - np.take_along_axis(self.advantages, at, axis=-1)
        variance: Floats = 1.0 / self.precision
        deviation = np.sqrt(variance + np.take_along_axis(variance, at, axis=-1))
        logits = np.where(self.allowed, lead / deviation, -np.inf)
        return np.asarray(softmax(logits, axis=-1))

    def under(self, old: Floats, new: Floats) -> ReturnPosterior:
        """When users follow another behaviour, (F, S, A): values change, and are less sure.

        The new one may have several times as many phases: each knows what the whole did.
        """
        R, times = self.largest, len(new) // len(old)
        gained = ((new[::times] - old) * self.advantages).sum(axis=-1)
        arrays = {
            "values": np.clip(self.values + gained, 0.0, R),
            "value_precision": _drifted(self.value_precision, 0.05 * R),
            "visits": self.visits,
            "advantages": self.advantages,
            "precision": _drifted(self.precision, 0.003 * R),
        }
        if times > 1:
            arrays = {name: np.repeat(array, times, axis=0) for name, array in arrays.items()}
            for name, drift in (("value_precision", 0.05), ("precision", 0.005)):
                arrays[name] = _drifted(arrays[name], drift * R)
        return replace(self, **arrays)


def _drifted(precision: Floats, deviation: float) -> Floats:
    """The precision after a change of that standard deviation; nothing known stays so."""
    drifted: Floats = precision / (1.0 + precision * deviation**2)
    return drifted


class ReturnEstimator:
    """One number per state and one per decision, whatever may follow them.

    A block is asked twice. First by state: the return from a user's first visit on, and a visit,
    for her first states. Then by state and action, where a state allows several: residuals against
    the values just released, whose squares add up to about the variance of one return however
    long an episode is. A behaviour has probabilities (F, S, A), the same at all steps of a phase.
    """

    def __init__(self, spec: FiniteSpec, allowed: Bools, privacy: Privacy) -> None:
        self.spec, self.allowed, self.privacy = spec, allowed, privacy
        self.largest = spec.most_return
        self.smallest_block = self._smallest_block()

    def prior(self) -> ReturnPosterior:
        """Prior, before any release."""
        return ReturnPosterior.prior(self.allowed, self.largest)

    def phase(self, phases: int) -> Ints:
        """The phase of every step, (H,), if there are so many."""
        return np.arange(self.spec.horizon) * phases // self.spec.horizon

    def value_sums(self, phases: int) -> ReturnSums:
        """Returns less half of the largest one, and visits, by phase and state.

        A visit costs nothing: two users are farthest apart where they visit the same states.
        """
        R, H, S = self.largest, self.spec.horizon, self.spec.states
        cells = np.arange(phases * S).reshape(phases, S, 1)[self.phase(phases)]
        cells, centre = np.where(self.allowed, cells, -1), np.full((H, S), R / 2.0)
        ends: Any = {"first": min(FIRST, H), "most": R / 2.0, "weight": R / 2.0}
        return ReturnSums(cells=cells, centre=centre, **ends)

    def advantage_sums(self, values: Floats) -> ReturnSums:
        """Returns after an action less ``values`` (F, S), where there is something to decide."""
        longest, phase = LENGTH * self.largest, self.phase(len(values))
        known: Any = {"cells": self._decisions(len(values))[phase], "centre": values[phase]}
        known |= {"first": self.spec.horizon, "most": longest, "length": longest}
        return ReturnSums(trace=TRACE, **known)

    def _decisions(self, phases: int) -> Ints:
        """The number of a cell, (F, S, A), where a state allows several actions, else -1."""
        several = self.allowed & (self.allowed.sum(axis=1, keepdims=True) > 1)
        if not several.any():
            # Nothing is to be decided anywhere: the query has a cell all the same.
            several = self.allowed & (np.cumsum(self.allowed).reshape(self.allowed.shape) == 1)
        shape = (phases, *several.shape)
        numbers = np.cumsum(np.broadcast_to(several, shape)).reshape(shape) - 1
        found: Ints = np.where(several, numbers, -1)
        return found

    def learn(self, known: ReturnPosterior, behaviour: Floats) -> Queries[ReturnPosterior]:
        """Queries for the values of a block's behaviour, then for advantages over them."""
        share, phases = SHARE, len(behaviour)
        release = yield Query(self.value_sums(phases), share=share)
        returns, visits = (
            release.parts[name].reshape(behaviour.shape[:2]) for name in ("returns", "visits")
        )
        known = known.with_values(returns, visits, float(np.max(release.std["returns"])))
        release = yield Query(self.advantage_sums(known.values), share=1.0 - share)
        cells = self._decisions(phases)
        sums = np.where(cells >= 0, release.parts["returns"][np.maximum(cells, 0)], 0.0)
        return known.with_advantages(sums, behaviour, float(np.max(release.std["returns"])))

    def exploring(self, known: ReturnPosterior, users: int) -> Floats:
        """Actions that may be the best: the behaviour of the next block, of so many users."""
        new = known.exploring()
        # Twice as many phases need more than twice as many users.
        many = math.sqrt(users / (PHASED * self.smallest_block))
        finest = min(PHASES, max(1, self.spec.horizon // 2))
        times = min(1 << max(0, int(math.log2(max(many, 1.0)))), finest) // len(new)
        return np.repeat(new, max(times, 1), axis=0)

    def _smallest_block(self) -> int:
        """How many users it takes for decisions to stand out of their noise."""
        R = self.largest
        statistic = self.advantage_sums(np.full((1, self.spec.states), R / 2.0))
        noise = release_noise(statistic, self.privacy, 1) / math.sqrt(1.0 - SHARE) / R
        return math.ceil(BLOCK * max(noise, 0.1) * statistic.size / self.spec.horizon)


# Larger blocks are made part by part, where users are simulated.
_IN_MEMORY = 1 << 17


@dataclass(frozen=True, kw_only=True)
class ImprovementOptions:
    """Options of policy improvement.

    Attributes:
        growth: by how much the users served grow from block to block.
    """

    growth: float = 4.0

    def __post_init__(self) -> None:
        checked_number("growth", self.growth, "above 1", lambda growth: growth > 1.0)


@dataclass(frozen=True, eq=False)
class ImprovementState:
    """Posterior of values and advantages, and the behaviour (F, S, A) that it is about."""

    known: ReturnPosterior
    behaviour: Floats


class PolicyImprovement(FiniteAlgorithm[ImprovementState]):
    """Serves what may be the best, block by block, and gives up what is surely worse.

    Idea: with many states there are far too many transitions to count, but few decisions. Learn
    what a state is worth under the policy that serves a block, then by how much each of its actions
    is better than the others, and give up actions as they are surely worse. One number per state
    and one per decision carry all of the budget; most users are served by what is best so far.

    Private statistics: :class:`~tacit.tabular.return_statistics.ReturnSums` of every block, twice
    (values, then advantages).

    Guarantee: that of its curator; see ``guarantee``.

    Cost: O(S A) per release and O(H) per user.
    """

    name = "policy_improvement"
    ends_greedy: ClassVar[bool] = True
    knows_admissible: ClassVar[bool] = True
    Options = ImprovementOptions
    options: ImprovementOptions
    spec: FiniteSpec

    def __init__(self, problem: Problem, options: ImprovementOptions) -> None:
        instance_of("spec", problem.spec, FiniteSpec)
        spec: FiniteSpec = problem.spec
        if problem.privacy.local or problem.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {problem.privacy!r}"
            )
        self.allowed = spec.allowed
        self.estimator = ReturnEstimator(spec, self.allowed, problem.privacy)
        super().__init__(problem, options)

    def init(self) -> ImprovementState:
        """Nothing is known; users do what states allow, all alike."""
        behaviour = (self.allowed / self.allowed.sum(axis=1, keepdims=True))[np.newaxis]
        return ImprovementState(self.estimator.prior(), behaviour)

    def learn(
        self, state: ImprovementState, plan: Plan, block: BlockInfo, rng: np.random.Generator
    ) -> Queries[ImprovementState]:
        """Queries for values of the block's policy, then advantages. Args: see Algorithm.learn."""
        known, behaviour = state.known, plan.memory
        # An older policy's phases may be wider.
        behaviour = np.repeat(behaviour, max(1, len(state.behaviour) // len(behaviour)), axis=0)
        if known.informed:
            known = known.under(state.behaviour, behaviour)
        return ImprovementState((yield from self.estimator.learn(known, behaviour)), behaviour)

    def plan(
        self, state: ImprovementState, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Actions that may be best; and the best, which serve at last. Args: see Algorithm.plan."""
        known, behaviour, phase = state.known, state.behaviour, self.estimator.phase
        if not known.informed:
            first = self.named(uniform_policy(self.spec))
            return Plan(first, first, behaviour)
        best = known.greedy(rng.random(behaviour.shape))
        greedy = self.named(Policy.deterministic(best[phase(len(best))], self.spec.actions))
        if at.releases >= self.schedule.releases:
            return Plan(greedy, greedy, behaviour)
        behaviour = self.estimator.exploring(known, self.block_users(at))
        serving = Policy.stochastic(behaviour[phase(len(behaviour))])
        return Plan(self.named(serving), greedy, behaviour)

    def _block_sizes(self) -> BlockSizes:
        """Blocks that grow alike up to the last one, which is not to be a small rest."""
        first, growth = self.estimator.smallest_block, self.options.growth
        blocks = round(math.log(max(self.users / first, 1.0)) / math.log(growth))
        if blocks == 0:
            return BlockSizes(first=self.users)
        return BlockSizes(first=first, growth=(self.users / first) ** (1.0 / blocks))

    def data_format(self, at: Progress) -> Literal["episodes", "streamed"]:
        """Users one by one; large blocks part by part."""
        return "streamed" if self.block_users(at) > _IN_MEMORY else "episodes"
