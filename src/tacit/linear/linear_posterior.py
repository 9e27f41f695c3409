"""LinearPosterior: few large blocks, no Gram matrix, designed exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.linear.posterior import (
    OutcomePosterior,
    OutcomeSums,
    ReleasedOutcomes,
    Worlds,
    d_optimal,
    prior_length,
)
from tacit.linear.statistics import need_features
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import release_noise
from tacit.privacy.validation import flag
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.policy import MixedPolicy, Policy

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.linear.worlds import LinearSpec
    from tacit.privacy.curator import Release

# Worlds whose best policies some users try, and the most users who do.
_LIKELY, _MOST_TRY = 8, 0.4
# Practical constants, chosen on other seeds than those reported: the ratio of signal to noise in
# the first block's sums, pooled and where steps have their own; and by how much blocks grow.
FIRST, _FIRST_PER_STEP, _GROWTH = 3.5, 1.9, 1.6
# Greedy serves most users once it loses less than this share of what the explorer loses; value
# spent on exploration, as a share of its suboptimality; and the smallest share who explore.
_READY, _EXPLORE, _FEWEST = 0.8, 0.4, 0.02
# The longest a user's sum of r phi may be, and how long it is, once weighted, beside the other.
_REWARD_CLIP, _REWARD_SHARE = 1.5, 0.67


@dataclass(frozen=True, kw_only=True)
class LinearPosteriorOptions:
    """Options of LinearPosterior.

    Attributes:
        stationary: one transition model for all steps (the world's own by default), or one each.
    """

    stationary: bool | None = None

    def __post_init__(self) -> None:
        if self.stationary is not None:
            flag("stationary", self.stationary)


State: TypeAlias = tuple[ReleasedOutcomes, ...]


class LinearPosterior(FiniteAlgorithm[State]):
    """Plans by a posterior of the linear MDP, in few and large blocks.

    Idea: noise is added once per block, so the fewer the better. The first users explore, by a
    D-optimal design on the public features; how many they are follows from noise and features.
    Then the policy that is best for the posterior mean serves all but a few. The posterior knows
    the size of the noise, that measures are distributions, and that rewards are in [0, 1].

    Private statistics: :class:`~tacit.linear.posterior.OutcomeSums` of every block, once, with
    the whole budget. Their Gram matrix is not released but estimated, by users who are simulated in
    the current model: the block's policy is public.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from papers: it follows none. Features must be shares (not negative, and adding up
    to 1), as those of latent factors are.

    Cost: about 100 sweeps over d S (or H d S) numbers for each of three turns, per release.
    """

    name = "linear_posterior"
    distributed = True
    Options: ClassVar[type[Any]] = LinearPosteriorOptions
    options: LinearPosteriorOptions
    spec: LinearSpec

    def __init__(self, problem: Problem, options: LinearPosteriorOptions) -> None:
        spec: LinearSpec = problem.spec
        need_features(spec)
        if problem.privacy.local or problem.privacy.needs_l1:
            raise InvalidArgument("privacy must be JointDP with delta > 0, or NonPrivate")
        if not spec.nonnegative or np.abs(spec.features.sum(axis=-1) - 1.0).max() > 1e-6:
            raise InvalidArgument("features must be shares that add up to 1: use LSVIUCB")
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.design: Floats = 0.5 * d_optimal(spec.features) + 0.5 / spec.actions
        self.statistic = self._statistic(spec)
        known = None if spec.known_rewards is None else np.asarray(spec.known_rewards)
        start = np.asarray(spec.start, dtype=np.float64)
        self.posterior = OutcomePosterior(self.statistic, start, known)
        super().__init__(problem, options)

    def init(self) -> State:
        """No blocks."""
        return ()

    def _statistic(self, spec: LinearSpec) -> OutcomeSums:
        """Sums over all steps, clipped to the length of a user who goes to every state twice."""
        H, squares = spec.horizon, (spec.features**2).sum(axis=-1)
        if self.stationary:
            weights = np.ones(1)
            longest = math.sqrt(2.0 * H * float((self.design * squares).sum(axis=1).mean()))
            clip: float | None = longest
        else:
            # After the last step comes nothing, and after the last but one hardly anything.
            weights = (np.arange(H - 1, -1, -1.0) / max(1, H - 1)) ** 0.25
            weights = weights if H > 1 else np.ones(1)
            clip, longest = None, math.sqrt(float((weights**2).sum() * squares.max()))
        return OutcomeSums(
            spec.features,
            H,
            weights,
            clip=clip,
            reward_clip=_REWARD_CLIP,
            reward=_REWARD_SHARE * longest / _REWARD_CLIP if spec.known_rewards is None else 0.0,
            reward_rows=1 if spec.stationary_rewards else H,
        )

    def query(self, state: State, plan: Plan, block: BlockInfo) -> OutcomeSums:
        """The outcomes of the block, once, with its whole budget."""
        return self.statistic

    def update(
        self, state: State, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> State:
        """Blocks with one more, and the policy that served it. Args: see Algorithm.update."""
        nothing = np.zeros((self.statistic.reward_rows, self.spec.dimension))
        sums = release["next"], release.parts.get("rewards", nothing)
        noise, paid_noise = (float(np.max(release.std.get(x, 0.0))) for x in ("next", "rewards"))
        return (*state, ReleasedOutcomes(*sums, noise, paid_noise, block.users, plan.policy))

    def plan(self, state: State, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Best policy for the expected world, and explorers beside it. Args: see Algorithm.plan."""
        explorer = self._explorer
        if last is None:
            mixed = MixedPolicy([explorer, explorer], [0.0, 1.0])
            return Plan(self.named(mixed), self.named(explorer), self.posterior.first)
        worlds = self.posterior.worlds(state, last.memory, rng)
        greedy = self.best(self.posterior.values(worlds.average)[0][0], rng)
        expected_loss = self._loss(worlds, greedy)
        # The best policies of other samples of the posterior explore at a low price.
        likely = self.posterior.values(worlds.some(_LIKELY))[0]
        others = [self.best(values, rng) for values in likely]
        # Value that either kind of exploration may cost, averaged over all users.
        spent = min(_EXPLORE * expected_loss, 0.02)
        exploring, trying = 1.0, 0.0
        of_design = max(self._loss(worlds, explorer), 0.02)
        if expected_loss <= _READY * of_design:
            lost = float(np.mean([self._loss(worlds, policy) for policy in others]))
            exploring = min(0.5, max(_FEWEST, spent / of_design))
            trying = min(_MOST_TRY, spent / max(lost, 0.02))
        # Each user draws whether she explores, and how.
        of_others = [trying / len(others)] * len(others)
        shares = [1.0 - exploring - sum(of_others), exploring, *of_others]
        mixed = MixedPolicy([greedy, explorer, *others], shares)
        return Plan(self.named(mixed), greedy, worlds)

    def _loss(self, worlds: Worlds, policy: Policy) -> float:
        """Suboptimality of a policy, as a share of the optimum, averaged over worlds."""
        best = self.posterior.values(worlds)[1]
        own = self.posterior.values(worlds, policy.table())[1]
        return float(((best - own) / np.maximum(best, 1e-9)).mean())

    @property
    def _explorer(self) -> Policy:
        """Half uniform, half D-optimal, in every state."""
        shape = (self.spec.horizon, *self.design.shape)
        return Policy.stochastic(np.broadcast_to(self.design, shape))

    def _block_sizes(self) -> BlockSizes:
        """A first block that stands out of its noise and its sampling, and then growing ones."""
        # A measure, as long as the prior expects it to be, enters the sums n level times.
        posterior = self.posterior
        rng, S = np.random.default_rng(0), self.spec.states
        gram, _ = posterior.grams(posterior.first, self._explorer, 1, rng)
        level = float(np.trace(gram.mean(axis=0))) / self.spec.dimension
        noise = release_noise(self.statistic, self.privacy, 1)
        c = (FIRST if self.stationary else _FIRST_PER_STEP) / prior_length(S)
        # n level = c sqrt(s^2 + n level / S), solved for n.
        half = c * c / (2.0 * S)
        first = (half + math.sqrt(half * half + (c * noise) ** 2)) / level
        return BlockSizes(first=min(math.ceil(first), self.users), growth=_GROWTH)
