"""Fitted Q with functional noise: all users are asked again and again about better values.

After Wang and Hegde (2019, "Privacy-preserving Q-learning with functional noise in continuous
spaces"), whose Algorithm 1 adds noise to looks at a network that is itself never noisy. Here, as in
the only variant of it that is private, the state from sweep to sweep is the published Q:

    F_{j+1,a} = what all releases say of E[r + gamma max_a' F_{j,a'}(s') | s, a],

and users' data enters by one released function per sweep and action, which is the sum of

    e_t K(s_t, .),  e_t = r_t + gamma max_a' F_{j,a'}(s_{t+1}) - (what was predicted),

over users and their steps with action a, plus a fresh path of a Gaussian process with kernel K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.continuous.base import BoxAlgorithm, box_spec, discount_of
from tacit.continuous.constants import GRID, GRID_ENDS, MAP, FunctionalConstants
from tacit.continuous.estimate import Basis, Belief, Filter, Posterior, SweepAnswer, Units
from tacit.continuous.features import Grid, default_polynomial, is_grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.clipped_sums import ResidualSums, VisitSums
from tacit.continuous.statistics.mean_rewards import MeanRewards
from tacit.core.algorithm import Algorithm, Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.core.schedule import Schedule
from tacit.privacy.arguments import flag, instance_of, one_of, steady_repr
from tacit.privacy.curator import Release
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.sizing import check_question
from tacit.privacy.statistic import Floats, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.setting import Setting

# Points of a grid along each coordinate, by the number of coordinates.
_POINTS = (21, 9)
NO_CLIP = 1e9
"""A clip that clips nobody."""
# A histogram is believed to be off from even by this part, and nowhere below that part of even.
_UNEVEN = 0.5
_RAREST = 0.2
# Without noise, points where nobody was count this part of even.
_UNSEEN = 0.02
# Eigenvalues of a Gram matrix below this many standard deviations of its noise are zero.
_SEEN = 2.0
# Uniform actions where all users are served.
EPSILON = 0.3
# Where most are served: how far the first explorers stand out of the noise, and at least so many;
# later ones are at most this part of all users before them.
_SIGNAL, _LEAST, _EXPLORE = 4.0, 16, 0.03


@dataclass(frozen=True, kw_only=True)
class FittedFunctionalQOptions:
    """Options of :class:`FittedFunctionalQ`.

    Attributes:
        serve: who is served by what was learnt meanwhile: ``"nobody"``; ``"most"``, of whom a few
            explore before; or ``"all"``, who are asked once, as local DP needs.
        discount: of future rewards, at most; the spec's by default.
        ends: whether episodes may end early, which is then worth 0; by default if the spec says
            so, or has features that are no grid.
        constants: tuned numbers; ``GRID`` or ``MAP`` of :mod:`tacit.continuous.constants` by
            default.
    """

    serve: Literal["nobody", "most", "all"] = "nobody"
    discount: float | None = None
    ends: bool | None = None
    constants: FunctionalConstants | None = None

    def __post_init__(self) -> None:
        one_of("serve", self.serve, ("nobody", "most", "all"))
        if self.ends is not None:
            flag("ends", self.ends)
        if self.constants is not None:
            instance_of("constants", self.constants, FunctionalConstants)


class FittedFunctionalQ(BoxAlgorithm):
    """Fitted Q-iteration in which each sweep is one private release about all users of a block.

    **With** ``serve="nobody"`` **the users it learns from gain nothing.** They are served by the
    behaviour policy, every action with the same chance, to the last of them; ``policy`` is that
    behaviour for ever. What is learnt is ``greedy_policy``, for everybody who comes later.

    A block's users are first asked where they were, then ``depth`` times for the sum of their
    functions, clipped, which JointDP and NonPrivate allow and LocalDP does not. From all releases
    so far follows the posterior mean of the next Q (:class:`tacit.continuous.estimate.Belief`). How
    many there are, how far plans look ahead and how long a user's function may be follow from
    public numbers: users, budget, actions and dimension. Several blocks carry on what is known.

    With ``serve="most"`` the first block is such a batch, as large as public numbers say it takes.
    Those after it follow what was learnt, without any exploring, and are asked once what they
    earned: ``earned`` is how well users are served, in public. As soon as that is no more than 3 %
    of all so far, twice as many explore, as a batch of their own, whose plans look farther ahead.

    With ``serve="all"`` each of ``depth`` batches follows the published Q, but for 30 % uniform
    actions, and is asked once, with its whole budget, for the residuals of that Q, which a Kalman
    filter takes in (:class:`tacit.continuous.estimate.Filter`). That suits LocalDP, and needs far
    more users for the same policy; it needs a grid.

    >>> from tacit import FittedFunctionalQ, JointDP
    >>> from tacit.continuous import line
    >>> agent = FittedFunctionalQ(line().spec, 100, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.sweeps, round(agent.discount, 3)
    (11, 0.909)
    >>> agent = FittedFunctionalQ(line().spec, 5000, JointDP(0.9, 1e-4), noise_seed=0, serve="most")
    >>> agent.schedule.blocks, agent.exploring
    ((84, 4916), True)

    Attributes:
        depth: how many sweeps of values there are: the noise in each is carried on to the next.
        discount: of future rewards, as far as plans can look ahead of the noise.
        ends: whether episodes may end early.
        weights: Q, in its units: (actions, m).
        earned: what the users who were served last earned in a step, and the noise's deviation.
    """

    name: ClassVar[str] = "fitted_functional_q"
    batch: bool = True
    Options = FittedFunctionalQOptions
    options: FittedFunctionalQOptions
    features: FeatureMap

    def __init__(self, setting: Setting, options: FittedFunctionalQOptions) -> None:
        self.spec = spec = box_spec(setting)
        self.users, self.mu, self.options = setting.users, setting.privacy.episode_mu, options
        self.batch = options.serve == "nobody"
        self.features = spec.features or _default_features(spec)
        on_grid = is_grid(self.features)
        self.ends = (spec.may_end or not on_grid) if options.ends is None else options.ends
        usual = (GRID_ENDS if self.ends else GRID) if on_grid else MAP
        self.constants = options.constants or usual
        spec.check_weights(self.features.size)
        self.basis = Basis(self.features, self.constants, not self.ends)
        self.weights: Floats = np.zeros((spec.actions, self.features.size))
        self.earned: tuple[float, float] | None = None
        self._explorers: int | None = None  # of this turn; before there are any, the first
        self._look_ahead()
        self.filter = Filter(self.basis, self.constants, spec.actions)
        super().__init__(setting, options)
        if options.serve == "most":
            self.schedule = Schedule("explore and serve", _turns(self.users, self._first()))

    def _look_ahead(self) -> None:
        """How deep plans look, which follows from how many are asked; nothing is known yet."""
        farthest = discount_of(self.options.discount, self.spec)
        self.depth = self._choose_depth(max(1, round(1.0 / (1.0 - farthest))))
        self.discount = min(farthest, 1.0 - 1.0 / self.depth)
        self.units = Units.of(self.spec, self.discount, self.ends)
        self.belief = Belief(self.basis, self.constants, self.spec.actions, self.discount)
        # The Q of the last sweep; ``weights`` may be an average.
        self._last = np.zeros_like(self.weights)

    # What is asked, and what is made of the answers.

    def asks(self) -> Asks:
        """Where users were and then one question per sweep; or one, where they are served."""
        if self.options.serve == "all":
            return self._ask_once()
        return self._sweep() if self.exploring else self._ask_earned()

    def _sweep(self) -> Asks:
        """Where users were, then one release per sweep. Nothing changes until all are there.

        A crash can make users pay for a sweep that nobody saw. Then the last ones are left out:
        any number of sweeps is an estimate. The noise of those that were asked is as it was.
        """
        if self.options.serve == "most":
            self._begin(self.block_users)
        J, users = self.sweeps, self.block_users
        mu_visits, mu_sweeps = self._split_of_budget()
        belief, Q = self.belief.copy(), self._last
        visits = yield Ask(self._visits(), mu=mu_visits)
        belief.gram = belief.gram + visible_gram(visits, self.basis, users * self.spec.horizon)
        belief.gram_users += users
        found: list[Floats] = []
        known = Posterior(belief, J) if belief.answers else None
        for j in range(J):
            # V = max_a Q_a, and what all answers so far say of its targets.
            V, _ = self.basis.value(Q)
            expected = np.zeros_like(Q) if known is None else known.targets(V)
            clip = self.clip_at(j / max(1, J - 1))
            residuals = self.residuals(Q, self.carried(V) + expected, clip)
            try:
                release = yield Ask(residuals, mu=float(mu_sweeps[j]))
            except BudgetExceeded:
                if not found:
                    raise
                break
            std = float(np.max(release.std["residuals"]))
            belief.answers.append(SweepAnswer(release.parts["residuals"], std, users, expected, V))
            known = Posterior(belief, J)
            Q = self.carried(V) + known.targets(V)
            found.append(Q)
        self.belief, self._last = belief, Q
        self.weights = np.mean(found[-self.constants.averaged :], axis=0)

    def _begin(self, explorers: int) -> None:
        """A batch of its own."""
        self._explorers = explorers
        self._look_ahead()

    def _ask_earned(self) -> Asks:
        """What those who are served earned."""
        release = yield Ask(MeanRewards(self.spec))
        low, high = self.spec.reward_range
        mean = float(release["earned"][0]) / self.block_users
        std = float(np.max(release.std["earned"])) / self.block_users
        self.earned = (mean * (high - low) + 0.5 * (low + high), std * (high - low))

    def _ask_once(self) -> Asks:
        """How far the users of the batch are from what Q and the filter predict."""
        value = self.carried(self.basis.value(self.weights)[0])
        clip = self.clip_at(self.releases / max(1, self.schedule.releases - 1))
        predictions = value + self.filter.targets
        release = yield Ask(self.residuals(self.weights, predictions, clip))
        grid = self.features
        assert is_grid(grid)  # noqa: S101
        even = self.block_users * self.spec.horizon / grid.size
        visits = even * self.policy.probabilities(grid.points)
        self.filter.take_in(release, visits, drifts=bool(self.all_served))
        self.weights = value + self.filter.targets

    # How it plans.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """What users follow, and the best actions by Q."""
        if self.options.serve == "all":
            return self.greedy(EPSILON), self.greedy()
        greedy = self.greedy()
        last = self.releases >= self.schedule.releases
        serves = self.options.serve == "most" and (not self.exploring or last)
        return (greedy if serves else self.behaviour()), greedy

    def greedy(self, epsilon: float = 0.0) -> QPolicy:
        """The best actions by Q, and a uniform one with probability ``epsilon``."""
        return QPolicy.draw(self.features, self.weights, self.rng, epsilon, self.releases)

    # What is public.

    @property
    def exploring(self) -> bool:
        """Whether the users of the current block are served at random, and asked about values."""
        return self.options.serve == "nobody" or self.releases % 2 == 0

    @property
    def sweeps(self) -> int:
        """How many times the users of a block are asked about values."""
        return self.depth

    @property
    def why(self) -> str:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        if self.options.serve == "all":
            return (
                f"{self.schedule.releases} batches, whose users follow the published values and "
                f"try a random action with probability {EPSILON:g}"
            )
        if self.options.serve == "most":
            blocks = self.schedule.blocks
            return (
                f"{sum(blocks[::2]):,} of {self.users:,} users explore, {blocks[0]:,} of them "
                f"first; {self.sweeps} sweeps and a discount of {self.discount:.3g}"
            )
        return (
            f"{self.sweeps} sweeps and a discount of {self.discount:.3g}, which is how far plans "
            "can look ahead of the noise; users are served at random and gain nothing; the greedy "
            "policy is for later ones"
        )

    @property
    def q_mean(self) -> Floats:
        """The posterior mean of Q, in rewards: (actions, m), values at the points of a grid.

        Where nothing ends it is up to a constant; elsewhere it is measured from the best there is.
        """
        return self.weights * self.units.unit

    @property
    def q_std(self) -> Floats:
        """The posterior standard deviation of a sweep of Q, in rewards: (actions, m).

        It is that of the last sweep given the values before it, not of all sweeps together: do not
        publish it as a confidence set.
        """
        if self.options.serve == "all":
            return self.filter.spread * self.units.unit
        if not self.belief.answers:
            return np.full_like(self.weights, np.nan)
        value, _ = self.basis.value(self._last)
        spread = Posterior(self.belief, self.sweeps).spread(value) * self.units.unit
        return np.broadcast_to(spread, self.weights.shape).copy()

    # The questions.

    def residuals(self, values: Floats, predictions: Floats, clip: float) -> ResidualSums:
        """How far users are from predictions of r + discount V(s'), with V = max_a values."""
        units, offset = self.units, self.basis.value(values)[1]
        tables = self.basis.root, values, predictions
        rewards = clip, self.discount, units.centre, units.unit
        ends = offset, units.value_range, units.ending
        return ResidualSums(self.spec, self.features, *tables, *rewards, *ends)

    def carried(self, value: Floats) -> Floats:
        """What of values is carried over to all actions, as weights (m,)."""
        return self.discount * value if self.basis.on_grid else np.zeros(self.features.size)

    def clip_at(self, fall: float) -> float:
        """The longest user, after a part ``fall`` in [0, 1] of all releases."""
        if not math.isfinite(self.mu):
            return NO_CLIP
        constants = self.constants
        clip = constants.clip * math.sqrt(self.signal)
        clip = min(constants.largest_clip, clip) * math.sqrt(self.spec.horizon)
        return float(clip * constants.clip_fall ** (fall - 0.5))

    def _visits(self) -> VisitSums:
        """Where users were."""
        T = self.spec.horizon
        clip = self.constants.visits_clip * (math.sqrt(T) if self.basis.on_grid else T)
        return VisitSums(self.spec, self.features, clip if math.isfinite(self.mu) else NO_CLIP)

    def _split_of_budget(self) -> tuple[float, Floats]:
        """mu^2, split: a part for visits, and sweeps that may cost ever more."""
        constants = self.constants
        parts = constants.growth ** np.arange(self.sweeps)
        sweeps = np.sqrt((1.0 - constants.visits) * parts / parts.sum()) * self.mu
        return math.sqrt(constants.visits) * self.mu, sweeps

    # Choices made before the first user comes.

    @property
    def signal(self) -> float:
        """How far those who are asked stand out of the noise, per number that is to be learnt."""
        if self.options.serve != "most":
            return self._signal
        explorers = self._first() if self._explorers is None else self._explorers
        return self._signal * min(1.0, explorers / self.users)

    @property
    def _signal(self) -> float:
        """The same of all users."""
        modes, spec = self.constants.modes, self.spec
        learnt = modes**spec.dimension if self.basis.on_grid else self.features.size / modes
        return self.users * self.mu / (spec.actions * learnt)

    def _choose_depth(self, most: int) -> int:
        if not math.isfinite(self.mu):
            return most
        constants = self.constants
        wanted: int = round(constants.depth * self.signal**constants.depth_power)
        return min(most, max(constants.fewest, wanted))

    def _first(self) -> int:
        """Explorers of the first block, where most are served."""
        if not math.isfinite(self.mu):
            return min(self.users, _LEAST)
        per_user = self._signal / self.users
        return min(self.users, max(_LEAST, math.ceil(_SIGNAL / per_user)))

    def _check(self) -> None:
        zeros, online = np.zeros_like(self.weights), self.options.serve == "all"
        asked: list[Statistic] = [] if online else [self._visits()]
        asked += [self.residuals(zeros, zeros, self.clip_at(fall)) for fall in (0.0, 1.0)]
        for statistic in asked:
            check_question(statistic, self.privacy, "clip")
        if online and not self.basis.on_grid:
            raise InvalidArgument(
                "serve='all' needs a grid, on which it is known how often an action is tried: "
                "leave features out of the spec of two coordinates at most, or leave serve out"
            )
        if not online and not self.privacy.asks_again:
            raise InvalidArgument(
                "FittedFunctionalQ asks users again and again, and a device reports once: "
                "take serve='all', or JointDP"
            )
        if self.options.serve == "most" and not self.setting.own_schedule:
            raise InvalidArgument(
                "schedule means nothing with serve='most': who explores, and when, follows from "
                "public numbers; leave it out"
            )

    def _pace(self) -> Pace:
        if self.options.serve != "all":
            return super()._pace()
        size = min(math.ceil(self.users / self.depth), self.users)
        return Pace(f"fixed:size={size}", size=size)

    # Save and resume, and what comes after the last user.

    def begin_anew(self, other: Algorithm[Any]) -> None:
        """Answers r / u + d P V of another unit u and discount d, in those of here.

        (u / u') (r / u + d P V) = r / u' + d' P W, with W = (u d / (u' d')) V.
        """
        assert isinstance(other, FittedFunctionalQ)  # noqa: S101
        units = other.units.unit / self.units.unit
        values = units * (other.discount / self.discount if self.discount else 1.0)
        self.belief.answers = [
            SweepAnswer(
                units * a.sums, units * a.std, a.users, units * a.predictions, values * a.value
            )
            for a in self.belief.answers
        ]

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        # How deep plans look may change from turn to turn; what it is chosen from does not.
        farthest = discount_of(self.options.discount, self.spec)
        own = {"discount": farthest, "ends": self.ends, "constants": steady_repr(self.constants)}
        return super().identity() | own

    def state(self) -> State:
        """Q, all answers, the filter, how many explored last, and what served users earned."""
        belief = self.belief
        meta: dict[str, Any] = {
            "gram_users": belief.gram_users,
            "told": [[answer.std, answer.users] for answer in belief.answers],
            "earned": None if self.earned is None else list(self.earned),
            "explorers": self._explorers,
        }
        arrays: Arrays = {"weights": self.weights, "last": self._last, "gram": belief.gram}
        arrays |= {"mean": self.filter.mean, "covariance": self.filter.covariance}
        for i, told in enumerate(belief.answers):
            for name in ("sums", "predictions", "value"):
                arrays[f"told/{i}/{name}"] = getattr(told, name)
        return meta, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        if meta["explorers"] is not None:
            self._begin(int(meta["explorers"]))
        belief = self.belief = self.belief.copy()
        belief.gram_users = meta["gram_users"]
        self.weights, self._last, belief.gram = arrays["weights"], arrays["last"], arrays["gram"]
        self.filter.mean, self.filter.covariance = arrays["mean"], arrays["covariance"]
        belief.answers = [
            SweepAnswer(std=std, users=users, **below(arrays, f"told/{i}/"))
            for i, (std, users) in enumerate(meta["told"])
        ]
        self.earned = None if meta["earned"] is None else (meta["earned"][0], meta["earned"][1])


def visible_gram(release: Release, basis: Basis, steps: int) -> Floats:
    """The Gram matrix of features of so many steps, as far as their noise lets it be seen."""
    visits, noise = release.parts["visits"], float(np.max(release.std["visits"]))
    if not basis.on_grid:
        values, vectors = np.linalg.eigh(visits)
        kept = np.where(values < _SEEN * noise + 1e-6, 0.0, values)
        gram: Floats = (vectors * kept) @ vectors.T
        return gram
    if noise == 0.0:
        return np.diag(np.maximum(visits, _UNSEEN * max(visits.mean(), 1e-9)))
    even = steps / len(visits)
    shrunk = (_UNEVEN * even) ** 2 / ((_UNEVEN * even) ** 2 + noise**2)
    centre = max(float(visits.mean()), 0.3 * even)
    return np.diag(np.maximum(even + (visits - centre) * shrunk, _RAREST * even))


def _default_features(spec: BoxSpec) -> FeatureMap:
    """A grid of up to two coordinates; of more its points would be too many for the noise."""
    if spec.dimension > len(_POINTS):
        return default_polynomial(spec.lows, spec.highs)
    return Grid(spec.lows, spec.highs, (_POINTS[spec.dimension - 1],) * spec.dimension)


def _turns(users: int, first: int) -> tuple[int, ...]:
    """Explorers, those who are served then, twice as many explorers, and so on.

    >>> _turns(2000, 20)
    (20, 1314, 40, 626)
    """
    blocks, served, explore = [], 0, first
    while served < users:
        # Until the next explorers are no more than that part of all before them.
        following = 2 * explore
        until = min(users, math.ceil(following / _EXPLORE))
        size = min(explore, users - served)
        blocks.append(size)
        if until > served + size:
            blocks.append(until - served - size)
        served, explore = max(until, served + size), following
    return tuple(blocks)
