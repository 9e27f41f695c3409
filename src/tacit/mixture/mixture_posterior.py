"""Plans by a posterior of a mixture's weights: policies by slot, few large blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.mixed_policy import MixedPolicy
from tacit.finite.policy import Policy
from tacit.mixture.estimate import PublicFeatures
from tacit.mixture.slot_sums import SLOT_EPISODE, SlotSums
from tacit.mixture.weights_posterior import SlotBlock, Weights, WeightsPosterior
from tacit.privacy.arguments import flag, instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.mixture.spec import MixtureSpec

Ints = NDArray[np.int64]

# Explorers of a block, and weights that are drawn; slots until explorers begin again.
_EXPLORERS, _SLOTS = 64, 2048


@dataclass(frozen=True)
class MixturePosteriorConstants:
    """Practical constants, chosen on other seeds of the worlds than are reported."""

    first: float = 2.4  # what the first block's sums are beside their noise,
    first_per_step: float = 1.8  # and the same where steps have sums of their own
    growth: float = 1.6  # the users served grow by at most this factor from block to block
    ready: float = 0.08  # expected loss of greedy from which on most users are served by it
    # explorers may cost users so often what greedy loses, at most what makes so much in all, and
    # are never fewer
    explore: float = 2.0
    most_lost: float = 0.06
    fewest: float = 0.03


@dataclass(frozen=True, kw_only=True)
class MixturePosteriorOptions:
    """Options of :class:`MixturePosterior`.

    Attributes:
        stationary: one vector of weights for all steps (the world's own by default), or one each.
        constants: the practical constants.
    """

    stationary: bool | None = None
    constants: MixturePosteriorConstants = MixturePosteriorConstants()

    def __post_init__(self) -> None:
        if self.stationary is not None:
            object.__setattr__(self, "stationary", flag("stationary", self.stationary))
        instance_of("constants", self.constants, MixturePosteriorConstants)


class MixturePosterior(FiniteAlgorithm):
    """Plans by a posterior of a mixture's weights, in few and large blocks.

    Idea: many explorers at once, each best for weights that may be the true ones; which one a
    user follows belongs to her slot, by public coins. Then two users who could be in one slot
    differ by what happened to them and not by what they did, which halves the noise where few
    transitions tell anything. Once the best policy for what is expected is good, it serves all
    but a few.

    Private statistics: :class:`~tacit.mixture.slot_sums.SlotSums` of every block, once, with the
    whole budget: features of transitions that are not the usual ones. No Gram is asked for: what
    to expect of the sums follows from the weights, since all policies are public.

    Guarantee: that of its curator, for a user's whole episode; the policy of her slot is public.

    Deviations from papers: it follows none. Rewards must be known. It is for worlds in which few
    transitions inform on the weights, so that a policy has few different sums; LinOptVI is better
    where all of them do.

    Cost: a forward pass per explorer and weight, three times per release.
    """

    name = "mixture_posterior"
    Options: ClassVar[type[Any]] = MixturePosteriorOptions
    options: MixturePosteriorOptions
    spec: MixtureSpec
    statistic_kind = "slots"

    def __init__(self, setting: Setting, options: MixturePosteriorOptions) -> None:
        spec: MixtureSpec = setting.spec
        _check_spec(spec)
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.public = PublicFeatures.of(spec)
        # The most probable next state at the centre is the usual one.
        usual = self.public.mean.argmax(axis=-1)[..., np.newaxis, np.newaxis]
        x = np.swapaxes(self.public.features, 2, 3)
        self.table = x - np.take_along_axis(x, usual, axis=2)
        self.start = np.full(spec.states, 1.0 / spec.states)
        if spec.start is not None:
            self.start = np.asarray(spec.start, dtype=np.float64)
        known = np.asarray(spec.known_rewards)
        self.posterior = WeightsPosterior(
            self.public, self.table, self.start, known, self.stationary
        )
        self.weights = self.posterior.first
        self.blocks: list[SlotBlock] = []
        self.expected_loss = 1.0  # of the greedy policy, by the posterior
        self.exploring = 1.0  # the share of users who explore
        super().__init__(setting, options)

    # What is asked.

    def statistic(self) -> SlotSums:
        """Sums of the current block."""
        return self._sums(self.policy.tables, self.policy.version)

    def _sums(self, policies: Ints, version: int) -> SlotSums:
        tables = self.table, self.public.support, self.start > 0.0
        return SlotSums(*tables, self.spec.horizon, policies, version, self.stationary)

    @property
    def protects(self) -> str:
        """What its statistics protect, in words."""
        return SLOT_EPISODE

    def asks(self) -> Asks:
        """The sums of the block, once, with its whole budget."""
        release = yield Ask(self.statistic())
        users = self.policy.split(release.users, self.rng)
        noise = float(np.max(release.std["sums"]))
        sums = release["sums"].reshape(-1)
        self.blocks.append(SlotBlock.of(sums, noise, self.policy.tables, users))

    # What is estimated, and how it plans.

    def plan(self) -> tuple[MixedPolicy, Policy]:
        """The best policy for what is expected, and explorers beside it."""
        self.weights = self.posterior.given(self.blocks)
        drawn = self.weights.drawn(_EXPLORERS, self.rng)
        greedy = self.posterior.values(self.weights.mean[np.newaxis])[0][0]
        # Explorers are best for weights that the releases allow: what is known they do right, and
        # where it is not known they differ.
        explorers, values = self.posterior.values(drawn)
        self.expected_loss = self._loss(drawn, values, greedy)
        lost = np.mean([self._loss(drawn, values, policy) for policy in explorers[::4]])
        self.exploring = self._share(float(lost))
        if self.expected_loss > self.options.constants.ready:
            half = _EXPLORERS // 2
            explorers = np.concatenate([explorers[:half], self._explorers(half)])
        return self._mixed(greedy, explorers), self._table_of(greedy)

    def _loss(self, drawn: Any, values: Any, policy: Ints) -> float:
        """What a policy loses, as a share of the optimum, on average over weights."""
        own = self.posterior.values(drawn, policy)[1]
        return float(((values - own) / np.maximum(values, 1e-9)).mean())

    def _share(self, lost: float) -> float:
        """How many explore: all while greedy is not good, then as few as cost little."""
        constants, expected = self.options.constants, self.expected_loss
        if expected > constants.ready:
            return 1.0
        spent = min(constants.explore * expected, max(constants.most_lost - expected, 0.01))
        return min(1.0, max(constants.fewest, spent / max(lost - expected, 0.02)))

    def _explorers(self, count: int) -> Ints:
        """Policies that are best for weights of the prior."""
        return self.posterior.values(self.posterior.drawn_before(count, self.rng))[0]

    def _mixed(self, greedy: Ints, explorers: Ints) -> MixedPolicy:
        """Component 0 is greedy; slots are shuffled by public coins."""
        length = _SLOTS if self.exploring < 1.0 else len(explorers)
        exploring = round(self.exploring * length)
        slots = np.zeros(length, dtype=np.int64)
        slots[:exploring] = 1 + np.arange(exploring) % len(explorers)
        components = [self._table_of(actions) for actions in (greedy, *explorers)]
        shuffled = self.rng.permutation(slots)
        mixed = MixedPolicy(components, version=self.releases, slots=shuffled)
        # Whoever looks at the policy, first or not, finds the same.
        assert len(mixed.tables) == len(components)  # noqa: S101
        return mixed

    def _table_of(self, actions: Ints) -> Policy:
        return Policy.deterministic(actions, self.spec.actions, version=self.releases)

    def _first_policies(self) -> tuple[MixedPolicy, Policy]:
        greedy = self._explorers(1)[0]
        return self._mixed(greedy, self._explorers(_EXPLORERS)), self._table_of(greedy)

    # How large blocks are.

    def _pace(self) -> Pace:
        """A first block that stands out of its noise and its sampling, and then growing ones.

        By each of n users, weights as large as the prior's move the sums by n times a slope, on
        average, beside noise of variance s^2 and what n users vary by.
        """
        constants, size = self.options.constants, self.posterior.size
        policies = self.policy.tables[1:]
        users = np.full(len(policies), 1.0 / len(policies))
        _, spread, slopes = self.posterior.expected(policies, users, np.zeros(size))
        level = float(np.trace(slopes)) / size * math.sqrt(self.weights.covariance[0, 0])
        varies = float(np.trace(spread)) / size
        noise = release_noise(self._sums(policies, 0), self.privacy, 1)
        # n level = c sqrt(s^2 + n varies), solved for n.
        c = constants.first if self.stationary else constants.first_per_step
        ratio = (c / max(level, 1e-12)) ** 2
        half = ratio * varies / 2.0
        first = half + math.sqrt(half * half + ratio * noise**2)
        return Pace(first=max(1, math.ceil(min(first, self.users))), growth=constants.growth)

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.privacy.local or self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {self.privacy!r}: "
                "slot sums have no sensitivity in the 1-norm, and devices do not know slots"
            )

    # Save and resume.

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"stationary": self.stationary}

    def state(self) -> State:
        """The sums of all blocks, and the policies that served them."""
        arrays: Arrays = {"mean": self.weights.mean, "covariance": self.weights.covariance}
        for i, block in enumerate(self.blocks):
            named = {"sums": block.sums, "policies": block.policies, "users": block.users}
            arrays |= {f"blocks/{i}/{name}": array for name, array in named.items()}
        noises = [block.noise for block in self.blocks]
        return {"noises": noises, "expected": [self.expected_loss, self.exploring]}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.weights = Weights(arrays["mean"], arrays["covariance"])
        self.blocks = []
        for i, noise in enumerate(meta["noises"]):
            own = below(arrays, f"blocks/{i}/")
            self.blocks.append(SlotBlock(own["sums"], noise, own["policies"], own["users"]))
        self.expected_loss, self.exploring = meta["expected"]


def _check_spec(spec: Any) -> None:
    if not hasattr(spec, "transition_features"):
        raise InvalidArgument(
            "this agent needs features of transitions: spec must be a MixtureSpec, as of "
            f"hard_mixture; got {type(spec).__name__}"
        )
    if spec.known_rewards is None:
        raise InvalidArgument("rewards must be known: use LinOptVI where they are not")
