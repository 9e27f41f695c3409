"""Plans by a posterior of the linear MDP: few large blocks, no Gram, designed explorers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.mixed_policy import MixedPolicy
from tacit.finite.policy import Policy
from tacit.linear.outcome_sums import OutcomeSums
from tacit.linear.posterior import OutcomePosterior, Outcomes, Prior, Worlds, d_optimal
from tacit.privacy.arguments import flag, instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.linear.spec import LinearSpec

# Features are shares if they add up to 1 but for rounding.
_ROUNDING = 1e-6
# Worlds whose best policies some users try, and the most users who do.
_LIKELY, _MOST_TRY = 8, 0.4


@dataclass(frozen=True)
class LinearPosteriorConstants:
    """Practical constants, chosen on other seeds of the worlds than are reported."""

    prior: Prior = Prior()  # noqa: RUF009  (frozen)
    clip: float = 1.0  # of sums over all steps, in lengths of a user who goes to every state twice
    reward_clip: float = 1.5  # of a user's sum of r phi
    reward_share: float = 0.67  # how long that sum may be, once weighted, beside the other
    later: float = 0.5  # the weight of a step falls like the steps left to this power
    first: float = 3.5  # what the first block's sums are beside their noise,
    first_per_step: float = 1.9  # and the same where steps have sums of their own
    ready: float = 0.25  # expected loss of greedy from which on most users are served by it
    growth: float = 1.6  # the users served grow by at most this factor from block to block
    # explorers may lose users this share of what greedy loses, at most so much, and are never fewer
    explore: float = 0.4
    most_lost: float = 0.02
    fewest: float = 0.02


@dataclass(frozen=True, kw_only=True)
class LinearPosteriorOptions:
    """Options of :class:`LinearPosterior`.

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


class LinearPosterior(FiniteAlgorithm):
    """Plans by a posterior of the linear MDP, in few and large blocks.

    Idea: noise is added once per block, so the fewer the better. The first users explore, by a
    design that is made of the public features; how many they are follows from noise and features,
    which are public. Then a policy that is best for what is expected serves all but a few. What is
    expected comes from a posterior that knows the noise and what must hold: measures are
    distributions, rewards are in [0, 1].

    Private statistics: :class:`~tacit.linear.outcome_sums.OutcomeSums` of every block, once, with
    the whole budget. Their Gram is not asked for: users who are simulated in the current model
    say what to expect of it, since the block's policy is public.

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
    deterministic = False
    statistic_kind = "outcomes"
    statistic: OutcomeSums

    def __init__(self, setting: Setting, options: LinearPosteriorOptions) -> None:
        spec: LinearSpec = setting.spec
        _check_features(spec)
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.design: Floats = 0.5 * d_optimal(spec.features) + 0.5 / spec.actions
        self.statistic = self._statistic(spec, options.constants)
        known = None if spec.known_rewards is None else np.asarray(spec.known_rewards)
        start = np.asarray(spec.start, dtype=np.float64)
        self.posterior = OutcomePosterior(self.statistic, start, options.constants.prior, known)
        self.blocks: list[Outcomes] = []
        self.worlds = self.posterior.first  # that may be the true one
        self.expected_loss = 1.0  # of the greedy policy, by the posterior
        self.exploring = 1.0  # the share of users who explore by the design,
        self.trying = 0.0  # and of those who try what may be best
        super().__init__(setting, options)

    # What is asked.

    def _statistic(self, spec: LinearSpec, constants: LinearPosteriorConstants) -> OutcomeSums:
        """Sums over all steps, clipped to a typical length; per step, by the steps left."""
        H, squares = spec.horizon, (spec.features**2).sum(axis=-1)
        if self.stationary:
            weights = np.ones(1)
            typical = math.sqrt(2.0 * H * float((self.design * squares).sum(axis=1).mean()))
            clip = longest = constants.clip * typical
        else:
            # After the last step comes nothing, and after the last but one hardly anything.
            weights = (np.arange(H - 1, -1, -1.0) / max(1, H - 1)) ** (constants.later / 2.0)
            weights = weights if H > 1 else np.ones(1)
            clip, longest = None, math.sqrt(float((weights**2).sum() * squares.max()))
        share = constants.reward_share * longest / constants.reward_clip
        return OutcomeSums(
            spec.features,
            H,
            weights,
            clip=clip,
            reward_clip=constants.reward_clip,
            reward=share if spec.known_rewards is None else 0.0,
            reward_rows=1 if spec.stationary_rewards else H,
        )

    def asks(self) -> Asks:
        """The outcomes of the block, once, with its whole budget."""
        release = yield Ask(self.statistic)
        paid = np.zeros((self.statistic.reward_rows, self.spec.dimension))
        block = Outcomes(
            following=release["next"],
            paid=release.parts.get("rewards", paid),
            noise=float(np.max(release.std["next"])),
            paid_noise=float(np.max(release.std.get("rewards", 0.0))),
            users=release.users,
            policy=self.policy,
        )
        self.blocks.append(block)

    # What is estimated, and how it plans.

    def plan(self) -> tuple[MixedPolicy, Policy]:
        """The best policy for what is expected, and explorers beside it."""
        worlds = self.worlds = self.posterior.worlds(self.blocks, self.worlds, self.rng)
        greedy = self.best(self.posterior.values(worlds.average)[0][0])
        self.expected_loss = self._loss(worlds, greedy.table())
        # The best policies of worlds that may be the true one explore at a low price.
        likely = worlds.some(_LIKELY)
        others = [self.best(values) for values in self.posterior.values(likely)[0]]
        lost = float(np.mean([self._loss(worlds, policy.table()) for policy in others]))
        self.exploring = self._share(self._loss(worlds, self._explorer.table()))
        self.trying = (
            0.0 if self.exploring == 1.0 else min(_MOST_TRY, self._spent / max(lost, 0.02))
        )
        return self._mixed(greedy, others), greedy

    def _mixed(self, greedy: Policy, others: Sequence[Policy] = ()) -> MixedPolicy:
        """What serves users: each draws whether she explores, and how."""
        of_others = [self.trying / max(1, len(others))] * len(others)
        shares = [1.0 - self.exploring - sum(of_others), self.exploring, *of_others]
        components = [greedy, self._explorer, *others]
        return MixedPolicy(components, shares, version=self.releases)

    def _loss(self, worlds: Worlds, policy: Floats) -> float:
        """What a policy (H, S, A) loses, as a share of the optimum, on average over worlds."""
        best, own = self.posterior.values(worlds)[1], self.posterior.values(worlds, policy)[1]
        return float(((best - own) / np.maximum(best, 1e-9)).mean())

    def _share(self, of_design: float) -> float:
        """How many explore: all while greedy is not good, then as few as cost little."""
        constants = self.options.constants
        if self.expected_loss > constants.ready:
            return 1.0
        return min(0.5, max(constants.fewest, self._spent / max(of_design, 0.02)))

    @property
    def _spent(self) -> float:
        """What either kind of explorers may lose all users, on average."""
        constants = self.options.constants
        return min(constants.explore * self.expected_loss, constants.most_lost)

    @property
    def _explorer(self) -> Policy:
        """Half uniform, half D-optimal, in every state."""
        return Policy.stochastic(
            np.broadcast_to(self.design, (self.spec.horizon, *self.design.shape))
        )

    def _first_policies(self) -> tuple[MixedPolicy, Policy]:
        return self._mixed(self._explorer), self._explorer

    # How large blocks are.

    def _pace(self) -> Pace:
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
        return Pace(first=min(math.ceil(first), self.users), growth=constants.growth)

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.privacy.local or self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {self.privacy!r}: "
                "outcome sums have no sensitivity in the 1-norm, and local noise drowns them"
            )

    # Save and resume.

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"stationary": self.stationary}

    def state(self) -> State:
        """The sums of all blocks, and the policies that served them."""
        arrays: Arrays = {"measures": self.worlds.measures, "rewards": self.worlds.rewards}
        facts = []
        for i, block in enumerate(self.blocks):
            policy = self.policy_arrays(block.policy)
            sums = {"following": block.following, "paid": block.paid}
            arrays |= {f"blocks/{i}/{name}": array for name, array in (policy | sums).items()}
            facts.append([block.noise, block.paid_noise, block.users, block.policy.version])
        return {
            "blocks": facts,
            "expected": [self.expected_loss, self.exploring, self.trying],
        }, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.worlds = Worlds(arrays["measures"], arrays["rewards"])
        self.blocks = []
        for i, (noise, paid_noise, users, version) in enumerate(meta["blocks"]):
            own = below(arrays, f"blocks/{i}/")
            sums, policy = (own.pop("following"), own.pop("paid")), self.policy_of(own, version)
            self.blocks.append(Outcomes(*sums, noise, paid_noise, users, policy))
        self.expected_loss, self.exploring, self.trying = meta["expected"]


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
