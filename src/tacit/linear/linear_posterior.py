"""LinearPosterior: few large blocks, no Gram matrix, designed exploration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from tacit.core.algorithm import BlockInfo, BlockSizes, Floats, Plan, Progress
from tacit.linear.outcome_sums import OutcomeSums
from tacit.linear.posterior import OutcomePosterior, Prior, ReleasedOutcomes, Worlds, d_optimal
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import release_noise
from tacit.privacy.validation import flag, instance_of
from tacit.tabular.algorithm import FiniteAlgorithm
from tacit.tabular.policy import MixedPolicy, Policy

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.linear.spec import LinearSpec
    from tacit.privacy.curator import Release

# Features are shares if they add up to 1 but for rounding.
_ROUNDING = 1e-6
# Worlds whose best policies some users try, and the most users who do.
_LIKELY, _MOST_TRY = 8, 0.4
# The longest a user's sum of r phi may be, and how long it is, once weighted, beside the other.
_REWARD_CLIP, _REWARD_SHARE = 1.5, 0.67


@dataclass(frozen=True)
class LinearPosteriorConstants:
    """Practical constants, chosen on other seeds than those reported."""

    prior: Prior = Prior()  # noqa: RUF009  (frozen)
    first: float = 3.5  # ratio of signal to noise in the first block's sums,
    first_per_step: float = 1.9  # and the same where steps have sums of their own
    ready: float = 0.25  # suboptimality of greedy below which it serves most users
    growth: float = 1.6  # the users served grow by at most this factor from block to block
    explore: float = 0.4  # value spent on exploration, as a share of greedy's suboptimality
    fewest: float = 0.02  # smallest share of users who explore


@dataclass(frozen=True, kw_only=True)
class LinearPosteriorOptions:
    """Options of LinearPosterior.

    Attributes:
        stationary: one transition model for all steps (the world's own by default), or one each.
        constants: the practical constants.
    """

    stationary: bool | None = None
    constants: LinearPosteriorConstants = LinearPosteriorConstants()

    def __post_init__(self) -> None:
        if self.stationary is not None:
            object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        instance_of("constants", self.constants, LinearPosteriorConstants)


State: TypeAlias = tuple[ReleasedOutcomes, ...]
"""Releases of all blocks; samples of the posterior are a plan's memory."""


class LinearPosterior(FiniteAlgorithm[State]):
    """Plans by a posterior of the linear MDP, in few and large blocks.

    Idea: noise is added once per block, so the fewer the better. The first users explore, by a
    D-optimal design on the public features; how many they are follows from noise and features.
    Then the policy that is best for the posterior mean serves all but a few. The posterior knows
    the size of the noise, that measures are distributions, and that rewards are in [0, 1].

    Private statistics: :class:`~tacit.linear.outcome_sums.OutcomeSums` of every block, once, with
    the whole budget. Their Gram matrix is not released but estimated, by users who are simulated in
    the current model: the block's policy is public.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from papers: it follows none. It is for features that are shares (not negative, and
    adding up to 1), as those of latent factors are, and takes it that each factor has a
    distribution of next states; LSVI-UCB takes any features.

    Cost: about 100 sweeps over d S (or H d S) numbers for each of three turns, per release.
    """

    name = "linear_posterior"
    distributed = True
    Options: ClassVar[type[Any]] = LinearPosteriorOptions
    options: LinearPosteriorOptions
    spec: LinearSpec

    def __init__(self, problem: Problem, options: LinearPosteriorOptions) -> None:
        spec: LinearSpec = problem.spec
        _check_features(spec)
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.design: Floats = 0.5 * d_optimal(spec.features) + 0.5 / spec.actions
        self.statistic = self._statistic(spec)
        known = None if spec.known_rewards is None else np.asarray(spec.known_rewards)
        start = np.asarray(spec.start, dtype=np.float64)
        self.posterior = OutcomePosterior(self.statistic, start, options.constants.prior, known)
        super().__init__(problem, options)

    def init(self) -> State:
        """No blocks."""
        return ()

    # Query.

    def _statistic(self, spec: LinearSpec) -> OutcomeSums:
        """Sums over all steps, clipped to a typical length; per step, by the steps left.

        Typical is a user who goes to every state twice.
        """
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
        self,
        state: State,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> State:
        """Blocks with one more, and the policy that served it.

        Args:
            state: Blocks before it.
            plan: That its users followed.
            release: Of the query.
            block: Its size, and where the run stands.
            rng: Not used.
        """
        paid = np.zeros((self.statistic.reward_rows, self.spec.dimension))
        added = ReleasedOutcomes(
            following=release["next"],
            paid=release.parts.get("rewards", paid),
            noise=float(np.max(release.std["next"])),
            paid_noise=float(np.max(release.std.get("rewards", 0.0))),
            users=block.users,
            policy=plan.policy,
        )
        return (*state, added)

    # Plan.

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """Best policy for the expected world, and explorers beside it.

        Args:
            state: All blocks.
            last: Plan of the version before; ``None`` at the start.
            at: Where the run stands.
            rng: Of ties, and of the posterior's chain.
        """
        explorer, constants = self._explorer, self.options.constants
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
        spent = min(constants.explore * expected_loss, 0.02)
        exploring, trying = 1.0, 0.0
        if expected_loss <= constants.ready:
            of_design = max(self._loss(worlds, explorer), 0.02)
            lost = float(np.mean([self._loss(worlds, policy) for policy in others]))
            exploring = min(0.5, max(constants.fewest, spent / of_design))
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
        return Policy.stochastic(
            np.broadcast_to(self.design, (self.spec.horizon, *self.design.shape))
        )

    # Block sizes.

    def _block_sizes(self) -> BlockSizes:
        """A first block that stands out of its noise and its sampling, and then growing ones.

        n users have the mean eigenvalue n lambda in their Gram, by which a measure, as long as the
        prior expects it to be, enters the sums, beside noise of variance s^2 and what n users vary
        by: the more states there are, the shorter measures are.
        """
        constants, posterior = self.options.constants, self.posterior
        rng, S = np.random.default_rng(0), self.spec.states
        gram, _ = posterior.grams(posterior.first, self._explorer, 1, rng)
        level = float(np.trace(gram.mean(axis=0))) / self.spec.dimension
        noise = release_noise(self.statistic, self.privacy, 1)
        c = constants.first if self.stationary else constants.first_per_step
        c /= constants.prior.length(S)
        # n level = c sqrt(s^2 + n level / S), solved for n.
        half = c * c / (2.0 * S)
        first = (half + math.sqrt(half * half + (c * noise) ** 2)) / level
        return BlockSizes(first=min(math.ceil(first), self.users), growth=constants.growth)

    def _check(self) -> None:
        if self.privacy.local or self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {self.privacy!r}: "
                "outcome sums have no sensitivity in the 1-norm, and local noise drowns them"
            )


def _check_features(spec: Any) -> None:
    if not hasattr(spec, "weight_bound"):
        raise InvalidArgument(
            "this agent needs features: spec must be a LinearSpec, as of simplex, or of "
            "tacit.linear.linear_from_tabular(world) for any finite world; got "
            f"{type(spec).__name__}"
        )
    sums = spec.features.sum(axis=-1)
    if not spec.nonnegative or np.abs(sums - 1.0).max() > _ROUNDING:
        raise InvalidArgument(
            "features must be shares, not negative and adding up to 1 in every state and action: "
            "use LSVIUCB for others"
        )
