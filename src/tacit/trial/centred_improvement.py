"""One step of improvement over drawn actions, for few people with long stays in a finite world.

The score of :mod:`.action_centred`, with states for contexts and the rewards of some decisions for
the reward: it says which action is better in each state, if people go on as they did. Nothing is
counted, so neither states nor steps cost sensitivity. It finds what pays within a few decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import checked_number, whole_number
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.policy import Policy
from tacit.trial.action_centred import TrialState, check_gaussian
from tacit.trial.policy import TrialPolicy
from tacit.trial.posterior import LookEvidence, people_needed, posterior, shape_of
from tacit.trial.statistics import CentredScores

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.tabular.spec import FiniteSpec

FLOOR = 0.4  # share of actions that are drawn uniformly while it learns
_WIDE = 1e3  # a prior that says nothing: its states differ too much for one


@dataclass(frozen=True, kw_only=True)
class CentredImprovementOptions:
    """Options of :class:`CentredImprovement`.

    Attributes:
        discount: of the value that follows a decision, in [0, 1); larger looks further ahead.
        rounds: blocks of as many people each; those after the first are served by what is known.
    """

    discount: float = 0.95
    rounds: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", whole_number("rounds", self.rounds))
        ahead = checked_number("discount", self.discount, "in [0, 1)", lambda x: 0.0 <= x < 1.0)
        object.__setattr__(self, "discount", ahead)


class CentredImprovement(FiniteAlgorithm[TrialState]):
    """Better actions by people's own centred scores; where people are few and horizons long.

    Idea: actions are drawn, so within a person the returns of the next decisions tell which
    action is better in a state, whatever else they depend on. Nobody counts for more than a unit
    vector. ``greedy_policy`` draws actions by how surely they are better.

    Private statistics: :class:`~tacit.trial.statistics.CentredScores` of every block.

    Guarantee: that of its curator; see ``guarantee``.

    >>> from tacit import CentredImprovement, JointDP, tabular
    >>> world = tabular.riverswim(states=6, horizon=100)
    >>> agent = CentredImprovement(world.spec, 300, JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.schedule.blocks, agent.policy.probabilities[0, 0].tolist()
    ((150, 150), [0.5, 0.5])
    """

    name = "centred_improvement"
    spec: FiniteSpec
    options: CentredImprovementOptions
    Options = CentredImprovementOptions

    def __init__(self, problem: Problem, options: CentredImprovementOptions) -> None:
        spec = problem.spec
        if not hasattr(spec, "last_state"):
            raise InvalidArgument(f"spec must be FiniteSpec, got {spec!r}")
        self.shape = shape_of(np.eye(spec.states) / spec.states, spec.actions)
        super().__init__(problem, options)

    def init(self) -> TrialState:
        """No action is better."""
        return TrialState(posterior((), self.shape, _WIDE))

    def query(self, state: TrialState, plan: Plan, block: BlockInfo) -> CentredScores:
        """Scores by the chances of the policy that its people followed."""
        spec = self.spec
        sizes = spec.horizon, spec.states, spec.actions, FLOOR / spec.actions
        discount, table = self.options.discount, plan.policy.table()[0]
        return CentredScores(*sizes, discount=discount, linear=False, table=table)

    def update(
        self, state: TrialState, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> TrialState:
        """The posterior with one more block, of other people. Args: see Algorithm.update."""
        chances = plan.policy.table()[0]
        spread = 1.0 - (chances**2).sum(axis=1).mean()
        information = self.spec.horizon * float(spread / (2.0 if self.spec.actions == 2 else 1.0))
        evidence = (*state.evidence, LookEvidence.of(release, information))
        return TrialState(posterior(evidence, self.shape, _WIDE, apart=True), evidence)

    def plan(self, state: TrialState, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Chances of being better, with a floor and without. Args: see Algorithm.plan."""
        return Plan(self._drawing(state, FLOOR), self._drawing(state, 0.0))

    def _drawing(self, state: TrialState, floor: float) -> Policy:
        spec, known = self.spec, state.posterior
        low = floor / spec.actions
        belief = TrialPolicy(known.mean, known.covariance, spec.actions, low)
        chances: Floats = belief.chances(np.eye(spec.states))
        if spec.actions == 2:
            chances = np.stack([1.0 - chances, chances], axis=1)
        table = np.repeat(chances[np.newaxis], spec.horizon, axis=0)
        return self.named(Policy.stochastic(table))

    def on_policy(self, plan: Plan) -> bool:
        """Yes: chances are those of the policy that was followed."""
        return True

    @property
    def why(self) -> str:
        """Rounds, in words, and the people who are missing."""
        mu = float(self.privacy.budget.mu) if self.privacy.private else math.inf
        needed = people_needed(self.spec.states, self.spec.actions, mu)
        return super().why + f"; about {needed} people are needed" * (self.users < needed)

    def _check(self) -> None:
        check_gaussian(self.privacy)

    def _block_sizes(self) -> BlockSizes:
        rounds: Any = min(self.options.rounds, self.users)
        even, more = divmod(self.users, rounds)
        return BlockSizes("rounds", blocks=tuple(even + (i < more) for i in range(rounds)))
