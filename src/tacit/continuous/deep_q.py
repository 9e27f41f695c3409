"""DeepQ: double Q-learning with a network, from private sums of gradients or, without, by replay.

Without privacy it is what the field calls a deep Q-network: episodes are kept and every block is
followed by many small steps on a random part of them. With privacy no episode is looked at twice:
each user tells the gradient of her own episode, once, and what all of them add up to is released
with noise that is correlated over the steps.

It needs jax: ``pip install 'tacit[deep]'``.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import BoxAlgorithm, box_spec, discount_of
from tacit.continuous.deep_replay import Replay
from tacit.continuous.deep_training import Units, deep_modules
from tacit.continuous.network_policy import NetworkPolicy, first_network, hidden_layers, parameters
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.gradients import NOTHING, EpisodeGradients, OpenEpisodes
from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.core.sizes import check_bytes
from tacit.privacy.arguments import instance_of, positive, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import check_question, users_above_noise
from tacit.privacy.statistic import WHOLE_EPISODE, Statistic

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.privacy.curators.gate import Release

OPEN = ("states", "actions", "rewards", "lengths")
"""What is kept of episodes without privacy."""


@dataclass(frozen=True)
class DeepQConstants:
    """Practical constants."""

    reach: float = 10.0  # the discount looks this many times less far than an episode is long
    exploring: float = 0.3  # the part of users while exploration falls
    explored: float = 0.05  # and to what it falls
    # Without privacy.
    blocks: int = 60  # between which the policy is republished
    wide: tuple[int, ...] = (64, 64)
    rate: float = 6e-4
    last_rate: float = 1e-4
    kept: int = 1 << 18  # steps that are kept
    batch: int = 128  # steps that a gradient is of
    every: int = 4  # steps of users for one of these, or fewer, for so many in all
    least: int = 20_000
    follow: float = 0.005  # part of the way to the network that its target goes at each step
    keep: float = 0.999  # of the average of networks, at each step
    # With privacy.
    narrow: tuple[int, ...] = (16, 16)
    moved: float = 0.2  # how far noise may move a parameter
    most_rate: float = (
        0.5  # of a step, in units of clipped gradients, however little noise there is
    )
    momentum: float = 0.9
    private_explored: float = 0.6  # to what exploration falls until the last user comes
    above: float = 0.1  # users of a block, in deviations of a sum's noise times sqrt(parameters)
    most: int = 100  # blocks
    fewest: int = 60  # blocks, however loud the noise is
    short: float = 0.5  # the part of users who should be within the clip
    private_keep: float = 0.8  # of the average of networks, from block to block


@dataclass(frozen=True, kw_only=True)
class DeepQOptions:
    """Options of :class:`DeepQ`.

    Attributes:
        steps: after how many blocks of users there is a new network; by default of the budget, so
            that a block stands out of its noise. With privacy each is one gradient step.
        hidden: units of the hidden layers; by default 64 and 64, or 16 and 16 with privacy.
        ahead: over how many steps rewards are counted as they came.
        target_every: with privacy, steps between two copies to the network that makes the targets.
        radius: the first clip of a user's gradient; later ones follow from released shares.
        discount: of future rewards; by default one that looks as far as a tenth of an episode, or
            the spec's where that looks farther.
        start: a public network to begin with, as one that was learnt on a simulator: the ``policy``
            of another run. Nobody who is in it is protected, and the guarantee says so.
        constants: the practical constants.
    """

    steps: int | None = None
    hidden: tuple[int, ...] | None = None
    ahead: int = 3
    target_every: int = 5
    radius: float = 1.0
    discount: float | None = None
    start: NetworkPolicy | None = None
    constants: DeepQConstants = DeepQConstants()

    def __post_init__(self) -> None:
        for name in ("ahead", "target_every", "steps"):
            value = getattr(self, name)
            if value is not None or name != "steps":
                object.__setattr__(self, name, whole_number(name, value))
        object.__setattr__(self, "radius", positive("radius", self.radius))
        if self.hidden is not None:
            object.__setattr__(self, "hidden", hidden_layers(self.hidden))
        if self.start is not None:
            instance_of("start", self.start, NetworkPolicy)
        instance_of("constants", self.constants, DeepQConstants)


class DeepQ(BoxAlgorithm):
    """A network of values that users teach: by gradients with privacy, by replay without.

    Idea: users are served by the network's best action, or at random while it is young. Targets are
    those of double Q-learning over a few steps.

    Private statistics: :class:`~tacit.continuous.statistics.gradients.EpisodeGradients` of every
    block, once, with the whole budget, through a counter over blocks: the noise of what all
    gradients add up to, which is where the network is, grows with the logarithm of the steps and
    not with their root. No gain from sampling is claimed: blocks are of who comes.

    Guarantee: that of its curator; see ``guarantee``. Networks, clip and momentum are functions
    of what was released. Without privacy episodes are public, and kept.

    Deviations from papers: Abadi et al. (2016) clip and sum examples, here it is users; the noise
    is that of Kairouz et al. (2021), with the counters of :mod:`tacit.privacy.counters`. Nothing is
    proven about returns.

    Cost: a gradient of every user's episode; without privacy a gradient step for every four steps.
    """

    name: ClassVar[str] = "deep_q"
    ends_greedy: ClassVar[bool] = True
    Options: ClassVar[type[Any]] = DeepQOptions
    options: DeepQOptions

    def __init__(self, setting: Setting, options: DeepQOptions) -> None:
        deep_modules()
        self.spec = spec = box_spec(setting)
        if setting.privacy.local or setting.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {setting.privacy!r}: "
                "gradients are many numbers, and have no sensitivity in the 1-norm"
            )
        constants = options.constants
        self._private = setting.privacy.private
        usual = constants.narrow if self._private else constants.wide
        self.sizes = (spec.dimension, *(options.hidden or usual), spec.actions)  # units by layer
        far = max(spec.discount, 1.0 - constants.reach / spec.horizon)
        self.discount = far if options.discount is None else discount_of(options.discount, spec)
        self.units = Units.of_spec(spec, self.discount)
        rng = np.random.default_rng(np.random.SeedSequence([setting.seed, 9]))
        check_bytes("theta", (parameters(self.sizes),))
        self.theta = self._first(rng, options.start)  # the network, flat
        self.average = self._target = self.theta
        self._means = np.zeros_like(self.theta), np.zeros_like(self.theta)  # Adam's
        self.steps_made = 0
        self._clip = options.radius
        self._sum: Arrays = {}  # what a counter released last
        few = constants.least / (setting.users * spec.horizon)
        pace = min(max(1.0 / constants.every, few), float(constants.every))
        self._replay = Replay(spec, self.sizes, options.ahead, constants, pace)
        super().__init__(setting, options)

    def _first(self, rng: np.random.Generator, start: NetworkPolicy | None) -> Any:
        if start is None:
            return first_network(rng, self.sizes)
        if (start.sizes[0], start.sizes[-1]) != (self.sizes[0], self.sizes[-1]):
            raise InvalidArgument(
                f"start must be a network from {self.sizes[0]} coordinates to {self.sizes[-1]} "
                f"actions, got one of layers {start.sizes}"
            )
        self.sizes = start.sizes
        return self.units.inside(start.theta, self.sizes)

    # What is asked.

    def statistic(self) -> Statistic:
        """Users' gradients at the current network, or nothing but their episodes."""
        if not self._private:
            return OpenEpisodes(self.spec)
        known = self.spec, self.sizes, self.theta, self._target, self.discount
        return EpisodeGradients(*known, self.options.ahead, self._clip)

    def asks(self) -> Asks:
        """The block's gradients, once; or its episodes, where nobody protects them."""
        if self._private:
            release = yield Ask(self.statistic())
            self._take_step(release)
        else:
            release = yield Ask(self.statistic(), public=OPEN)
            self._practise(release)

    @property
    def protects(self) -> str:
        """A user's whole episode, or nothing."""
        return WHOLE_EPISODE if self._private else NOTHING

    # What is made of the answers.

    def _take_step(self, release: Release) -> None:
        """One step along the noisy mean of the newest block, with momentum, and a clip that fits.

        The noise of all steps together moves a parameter by the rate times the deviation of the
        running sum, so that is what the rate is made of.
        """
        constants, n = self.options.constants, self.block_users
        newest = {name: np.asarray(release[name]) for name in ("gradient", "short")}
        if self.counter != "blocks":
            before = self._sum or {name: np.zeros_like(part) for name, part in newest.items()}
            self._sum = newest
            newest = {name: part - before[name] for name, part in newest.items()}
        self.steps_made += 1
        noise = float(np.max(release.std["gradient"])) / n
        rate = min(constants.most_rate, constants.moved / noise)
        keep = constants.momentum
        first = keep * self._means[0] + (1.0 - keep) * newest["gradient"] / n
        self._means = first, self._means[1]
        self.theta = self.theta - rate * first
        keep = min(constants.private_keep, 1.0 - 1.0 / self.steps_made)
        self.average = keep * self.average + (1.0 - keep) * self.theta
        if self.steps_made % self.options.target_every == 0:
            self._target = self.theta
        within = float(np.clip(0.5 * (newest["short"] / n + 1.0), 0.0, 1.0))
        self._clip *= math.exp(constants.short - within)

    def _practise(self, release: Release) -> None:
        """Many steps on the steps that are kept."""
        constants, replay = self.options.constants, self._replay
        done = min(self.served / max(self.users, 1), 1.0)
        rate = (1.0 - done) * constants.rate + done * constants.last_rate
        if not replay.size:
            theta = self.units.outside(self.theta, self.sizes)
            self.units = replay.add(release.public, None, self.discount)
            if self.options.start is not None:
                self.theta = self.units.inside(theta, self.sizes)
                self.average = self._target = self.theta
        else:
            replay.add(release.public, self.units, self.discount)
        known = self.theta, *self._means, self._target, self.average, float(self.steps_made)
        found = replay.practise(known, rate, self.rng)
        self.theta, *means, self._target, self.average, count = found
        self._means, self.steps_made = (means[0], means[1]), int(count)

    # What users follow.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """The network's best action, or any while it is young; and the average network's best."""
        order = tuple(self.rng.permutation(self.spec.actions).tolist())
        known = self.sizes, self._exploration(), self.releases, order
        served = NetworkPolicy.of(self.units.outside(self.theta, self.sizes), *known)
        best = self.units.outside(self.average, self.sizes)
        greedy = NetworkPolicy.of(best, self.sizes, 0.0, self.releases, order)
        return (served if self.block_users else greedy), greedy

    def _exploration(self) -> float:
        """How many actions are drawn at random, by public numbers."""
        constants = self.options.constants
        part, least = constants.exploring, constants.explored
        if self._private:
            # Nobody is asked twice, so what users no longer do is forgotten.
            part, least = 1.0, constants.private_explored
        fallen = min(1.0, self.served / max(part * self.users, 1.0))
        return float(1.0 - fallen * (1.0 - least))

    def _first_policies(self) -> tuple[QPolicy, QPolicy]:
        if self.options.start is None:
            return super()._first_policies()
        start = self.options.start
        policy = NetworkPolicy.of(start.theta, start.sizes, self.options.constants.explored)
        return policy, NetworkPolicy.of(start.theta, start.sizes)

    # Choices made before the first user comes.

    def _check(self) -> None:
        check_question(self.statistic(), self.privacy, "radius")

    def _choose_counter(self) -> str:
        return "auto" if self._private and not self.privacy.separate_blocks else "blocks"

    def _pace(self) -> Pace:
        """Blocks of one size: with privacy, large enough for their noise."""
        constants, steps = self.options.constants, self.options.steps
        if steps is None and self._private:
            above = constants.above * math.sqrt(parameters(self.sizes))
            least = users_above_noise(self.statistic(), self.privacy, above)
            most = math.ceil(self.users / constants.fewest)
            size = min(max(least, math.ceil(self.users / constants.most)), most)
        else:
            size = math.ceil(self.users / (steps or constants.blocks))
        size = min(size, self.users)
        return Pace(f"fixed:size={size}", size=size)

    @property
    def premise(self) -> str:
        """Who is not protected: whoever is in a network that was given."""
        return "" if self.options.start is None else "it began with a network taken for public"

    # Save and resume.

    def begin_anew(self, other: Any) -> None:
        """A counter of its own begins at zero."""
        self._sum = {}

    def policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        """The inverse of :meth:`policy_arrays`, to the bit."""
        kind = NetworkPolicy if "theta" in arrays else QPolicy
        return kind.from_arrays(arrays, version)

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        start = self.options.start
        told = None if start is None else hashlib.sha256(start.theta.tobytes()).hexdigest()
        return super().identity() | {"discount": self.discount, "start": told}

    def state(self) -> State:
        """Networks, the optimiser's means, the clip, what a counter told last; and what is kept."""
        arrays: Arrays = {
            "theta": self.theta,
            "target": self._target,
            "average": self.average,
            "first": self._means[0],
            "second": self._means[1],
            "centre": self.units.centre,
            "width": self.units.width,
        }
        arrays |= {f"sum/{name}": part for name, part in self._sum.items()}
        arrays |= {f"replay/{name}": part for name, part in self._replay.arrays().items()}
        numbers = {"clip": self._clip, "middle": self.units.middle, "unit": self.units.unit}
        return {"steps": self.steps_made, "due": self._replay.due} | numbers, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.steps_made, self._clip = meta["steps"], meta["clip"]
        self.theta, self._target = arrays["theta"], arrays["target"]
        self.average, self._means = arrays["average"], (arrays["first"], arrays["second"])
        known = arrays["centre"], arrays["width"], meta["middle"], meta["unit"]
        self.units = Units(*known, self.discount)
        self._sum = below(arrays, "sum/")
        self._replay.restore(below(arrays, "replay/"), meta["due"])
