"""Micro-randomised trials that learn while they run: effects of actions on a person's next reward.

Each person makes many decisions, with actions that are drawn by known chances. At each look her
whole history becomes one vector of length at most 1 (:class:`.statistics.CentredScores`), so that
sensitivity does not grow with decisions, features or rewards; people are few and noise is for the
sum of as many unit vectors. A posterior of effects follows from all looks (:mod:`.posterior`), and
actions are drawn by their chance of being the best, within the declared range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Algorithm, BlockInfo, BlockSizes, Plan, Progress, Queries, Query
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import checked_number, flag
from tacit.trial.effects import Effect, Effects, effect_queries
from tacit.trial.policy import TrialPolicy
from tacit.trial.posterior import STAYED, EffectPosterior, LookEvidence, posterior, shape_of
from tacit.trial.spec import TrialSpec
from tacit.trial.statistics import CentredScores

if TYPE_CHECKING:
    from tacit.core.problem import Problem

PEOPLE = 0.2  # how far people's effects are apart, in deviations of rewards


@dataclass(frozen=True, kw_only=True)
class ActionCentredOptions:
    """Options of :class:`ActionCentred`.

    Attributes:
        own: whether a person's own history counts for her chances, on her device. What others see
            does not depend on it; her messages may tell of her history whoever reads her device.
        report: share of the last look's budget for the average effect with its interval, which
            ``agent.effects()`` tells at the end; 1 for a trial that estimates and does not learn
            from its last look.
        by_feature: whether it is for the effects of all features instead: a message's effect is
            their sum, each times its feature. The mean of f f' is the spec's.
    """

    own: bool = True
    report: float = 0.0
    by_feature: bool = False

    def __post_init__(self) -> None:
        share = checked_number("report", self.report, "in [0, 1]", lambda x: 0.0 <= x <= 1.0)
        object.__setattr__(self, "report", share)
        for name in ("own", "by_feature"):
            object.__setattr__(self, name, flag(name, getattr(self, name)))


@dataclass(frozen=True, eq=False)
class TrialState:
    """Posterior of effects, and the looks that it follows from."""

    posterior: EffectPosterior
    evidence: tuple[LookEvidence, ...] = ()
    effects: Effects = ()


class ActionCentred(Algorithm[TrialState]):
    """Chances of actions by a posterior of their effects; for a hundred people at epsilon 1.

    Idea: within a person, actions were drawn by known chances, so her centred score tells of
    effects whatever else moves her rewards. ``users`` are people: each has a place in every look,
    and sends her whole history so far. ``greedy_policy`` takes the better action.

    Private statistics: :class:`~tacit.trial.statistics.CentredScores` of every look.

    Guarantee: that of its curator, for a person's whole history over all looks together; see
    ``guarantee``.

    >>> from tacit import ActionCentred, JointDP
    >>> from tacit.trial import TrialSpec
    >>> agent = ActionCentred(TrialSpec(140, 8), 80, JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.block_users, agent.users, agent.guarantee.unit
    (80, 160, "one person's whole history, over all 2 looks")
    """

    name = "action_centred"
    spec: TrialSpec
    options: ActionCentredOptions
    Options = ActionCentredOptions

    def __init__(self, problem: Problem, options: ActionCentredOptions) -> None:
        if not isinstance(problem.spec, TrialSpec):
            raise InvalidArgument(
                f"this agent is for trials: spec must be a TrialSpec, got {problem.spec!r}"
            )
        self.people = problem.users // len(problem.spec.looks)
        self.shape = shape_of(problem.spec.design, problem.spec.actions)
        super().__init__(problem, options)

    @classmethod
    def declared(cls, problem: Problem, options: ActionCentredOptions) -> Problem:
        """The problem with a place for each person at each look, and a budget over all of them."""
        looks = len(getattr(problem.spec, "looks", (1.0,)))
        privacy: Any = problem.privacy
        if privacy.private and looks > 1 and privacy.episodes_per_user == 1 and privacy.joint:
            privacy = replace(privacy, episodes_per_user=looks, disjoint=True)
        return replace(problem, users=problem.users * looks, privacy=privacy)

    def init(self) -> TrialState:
        """The prior: no action is better."""
        return TrialState(posterior((), self.shape))

    # Query, and update of the posterior.

    def query(self, state: TrialState, plan: Plan, block: BlockInfo) -> CentredScores:
        """Scores of people's histories so far."""
        spec = self.spec
        sizes = spec.horizon, spec.dimension, spec.actions, spec.probabilities[0]
        return CentredScores(*sizes, spec.memory, spec.usual_reward)

    def learn(
        self, state: TrialState, plan: Plan, block: BlockInfo, rng: np.random.Generator
    ) -> Queries[TrialState]:
        """Scores; of the last look perhaps two balls around effects. Args: see Algorithm.learn."""
        look = min(block.releases, len(self.spec.looks) - 1)
        report = self.options.report if look == len(self.spec.looks) - 1 else 0.0
        if report < 1.0:
            share = None if report == 0.0 else 1.0 - report
            release = yield Query(self.query(state, plan, block), share=share)
            before = state.evidence[-1].information if look and state.evidence else 0.0
            edges = (0, *self.spec.edges)
            more = STAYED * (edges[look + 1] - edges[look]) * self._variance(plan.policy)
            evidence = (*state.evidence, LookEvidence.of(release, before + more))
            state = TrialState(posterior(evidence, self.shape), evidence)
        if report > 0.0:
            effects = yield from effect_queries(self.spec, report, self.options.by_feature)
            state = replace(state, effects=effects)
        return state

    def effects(self, state: TrialState) -> Effect | Effects:
        """Effects with intervals, once the last look was released: the average, or of features."""
        if not state.effects:
            raise InvalidArgument("effects come with the last look, of agents with report=...")
        return state.effects if self.options.by_feature else state.effects[0]

    def _variance(self, policy: TrialPolicy) -> float:
        """Variance of an action, in the mean over the design, by a policy without own history."""
        weights, features = np.linalg.eigh(self.spec.design)
        chances = policy.chances(features.T)
        found = chances * (1.0 - chances) if chances.ndim == 1 else 1.0 - (chances**2).sum(axis=1)
        return float(np.maximum(weights, 0.0) @ found)

    # Plans.

    def plan(
        self, state: TrialState, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Chances of being the best, and the best action. Args: see Algorithm.plan."""
        spec, known = self.spec, state.posterior
        size = float(np.trace(np.array(spec.gram))) if spec.gram is not None else 1.0
        mean, covariance = known.mean / np.sqrt(size), known.covariance / size
        own = PEOPLE / np.sqrt(size) if self.options.own and spec.memory == 1 else 0.0
        low, usual = spec.probabilities[0], spec.usual_reward
        policy = TrialPolicy(mean, covariance, spec.actions, low, float(own), usual)
        return Plan(policy, replace(policy, greedy=True, own=0.0))

    # Choices made before the first person comes.

    @property
    def unit(self) -> str:
        """Data that are hidden together: all that a person ever sends."""
        looks = len(self.spec.looks)
        return f"one person's whole history, over all {looks} looks" if looks > 1 else ""

    @property
    def assumption(self) -> str:
        """Words on own histories."""
        if not self.options.own or not self.privacy.private:
            return ""
        return (
            "a person's own messages follow her own history, which they may tell to who sees them"
        )

    @property
    def why(self) -> str:
        """Looks, in words."""
        edges = ", ".join(map(str, self.spec.edges))
        return f"{self.people} people, looks after {edges} decisions"

    def _check(self) -> None:
        privacy: Any = self.privacy
        check_gaussian(privacy)
        if self.options.report and (self.spec.actions > 2 or self.spec.memory > 1):
            raise InvalidArgument("report is for two actions, and effects on the next reward")
        looks = len(self.spec.looks)
        if (
            privacy.private
            and looks > 1
            and not (privacy.disjoint and privacy.episodes_per_user == looks)
        ):
            raise InvalidArgument(
                f"a person's budget is for all {looks} looks: leave episodes_per_user out"
            )
        if not self.problem.own_schedule:
            raise InvalidArgument("looks are the spec's: leave schedule out")

    def _block_sizes(self) -> BlockSizes:
        return BlockSizes("looks", blocks=(self.people,) * len(self.spec.looks))


def check_gaussian(privacy: Any) -> None:
    """Refuses models but joint DP with Gaussian noise."""
    if privacy.private and (not privacy.joint or privacy.needs_l1):
        raise InvalidArgument(
            f"unit scores need Gaussian noise: JointDP with delta > 0, not {privacy!r}"
        )
