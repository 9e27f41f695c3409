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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tacit.continuous.base import NO_CLIP, BoxAlgorithm, box_spec, discount_of
from tacit.continuous.estimate import (
    GRID,
    GRID_ENDS,
    MAP,
    Basis,
    Evidence,
    Filter,
    FunctionalConstants,
    Posterior,
    SweepAnswer,
    Units,
)
from tacit.continuous.features import Grid, default_polynomial, is_grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.clipped_sums import MeanRewards, ResidualSums, VisitSums
from tacit.core.algorithm import BlockInfo, BlockSizes, Plan, Progress, Queries, Query
from tacit.core.problem import Schedule
from tacit.privacy.arguments import flag, instance_of, one_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import check_question
from tacit.privacy.statistic import Floats, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release

# Points of a grid along each coordinate, by the number of coordinates.
_POINTS = (21, 9)
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
        constants: tuned numbers; ``GRID`` or ``MAP`` of :mod:`tacit.continuous.estimate` by
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


@dataclass(frozen=True)
class Lookahead:
    """How far plans look ahead of the noise, by how many users are asked; public."""

    signal: float  # how far they stand out of the noise, per number that is to be learnt
    sweeps: int  # of values: the noise in each is carried on to the next
    discount: float  # of future rewards
    units: Units  # of rewards and values


@dataclass(frozen=True, eq=False)
class State:
    """Q, the releases it follows from, and what users earned who were served by it."""

    ahead: Lookahead  # of the block that was asked last about values
    weights: Floats  # Q, in its units: (actions, m)
    last: Floats  # Q of the last sweep, of which ``weights`` may be an average
    evidence: Evidence
    filter: Filter | None = None  # where all are served
    earned: tuple[float, float] | None = None  # by a user in a step, and the noise's deviation


class FittedFunctionalQ(BoxAlgorithm[State]):
    """Fitted Q-iteration in which each sweep is one private release about all users of a block.

    **With** ``serve="nobody"`` **the users it learns from gain nothing.** They are served by the
    behaviour policy, every action with the same chance, to the last of them; ``policy`` is that
    behaviour for ever. What is learnt is ``greedy_policy``, for everybody who comes later.

    A block's users are first asked where they were, then in every sweep for the sum of their
    functions, clipped, which JointDP and NonPrivate allow and LocalDP does not. From all releases
    so far follows the posterior mean of the next Q (:class:`~.estimate.Posterior`). How many there
    are, how far plans look ahead and how long a user's function may be follow from
    public numbers: users, budget, actions and dimension. Several blocks carry on what is known.

    With ``serve="most"`` the first block is such a batch, as large as public numbers say it takes.
    Those after it follow what was learnt, without any exploring, and are asked once what they
    earned: ``state.earned`` is how well users are served, in public. As soon as that is no more
    than 3 % of all so far, twice as many explore, as a batch of their own, whose plans look farther
    ahead.

    With ``serve="all"`` each batch, one for every sweep, follows the published Q, but for 30 %
    uniform actions, and is asked once, with its whole budget, for the residuals of that Q, which a
    Kalman filter takes in (:class:`tacit.continuous.estimate.Filter`). That suits LocalDP, and
    needs far more users for the same policy; it needs a grid.

    >>> from tacit import FittedFunctionalQ, JointDP
    >>> from tacit.continuous import line
    >>> agent = FittedFunctionalQ(line().spec, 100, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.state.ahead.sweeps, round(agent.state.ahead.discount, 3)
    (11, 0.909)
    >>> agent = FittedFunctionalQ(line().spec, 5000, JointDP(0.9, 1e-4), noise_seed=0, serve="most")
    >>> agent.schedule.blocks
    (84, 4916)

    Attributes:
        ends: whether episodes may end early.
        ahead: how far the first plan looks ahead.
    """

    name: ClassVar[str] = "fitted_functional_q"
    offline: bool = True
    Options = FittedFunctionalQOptions
    options: FittedFunctionalQOptions
    features: FeatureMap

    def __init__(self, problem: Problem, options: FittedFunctionalQOptions) -> None:
        self.spec = spec = box_spec(problem)
        self.users, self.mu, self.options = problem.users, problem.privacy.episode_mu, options
        self.offline = options.serve == "nobody"
        self.features = spec.features or _default_features(spec)
        on_grid = is_grid(self.features)
        self.ends = (spec.may_end or not on_grid) if options.ends is None else options.ends
        usual = (GRID_ENDS if self.ends else GRID) if on_grid else MAP
        self.constants = options.constants or usual
        spec.check_weights(self.features.size)
        self.basis = Basis(self.features, self.constants, not self.ends)
        self.ahead = self._look_ahead(self._first() if options.serve == "most" else self.users)
        super().__init__(problem, options)
        if options.serve == "most":
            self.schedule = Schedule("explore and serve", _turns(self.users, self._first()))

    def init(self) -> State:
        """Q is zero."""
        actions, m = self.spec.actions, self.features.size
        zeros, evidence = np.zeros((actions, m)), Evidence(np.zeros((m, m)))
        known = None
        if self.options.serve == "all":
            known = Filter.prior(self.basis, self.constants, actions)
        return State(self.ahead, zeros, zeros, evidence, known)

    # What is asked, and what is made of the answers.

    def learn(
        self, state: State, plan: Plan, block: BlockInfo, rng: np.random.Generator
    ) -> Queries[State]:
        """Where users were and then one query per sweep; or one, where they are served."""
        if state.filter is not None:
            return self._filter(state, state.filter, plan, block)
        return self._sweep(state, block) if self.exploring(block) else self._earned(state, block)

    def _sweep(self, state: State, block: BlockInfo) -> Queries[State]:
        """Where users were, then one release per sweep."""
        if self.options.serve == "most":
            # A batch of its own.
            begun = replace(self.init(), ahead=self._look_ahead(block.users))
            state = replace(begun, weights=state.weights, earned=state.earned)
        ahead, evidence, Q, users = state.ahead, state.evidence, state.last, block.users
        J = ahead.sweeps
        mu_visits, mu_sweeps = self._split_of_budget(J)
        visits = yield Query(self._visits(), mu=mu_visits)
        gram = evidence.gram + visible_gram(visits, self.basis, users * self.spec.horizon)
        evidence = Evidence(gram, evidence.users + users, evidence.answers)
        found: list[Floats] = []
        known = self._posterior(ahead, evidence) if evidence.answers else None
        for j in range(J):
            # V = max_a Q_a, and what all answers so far say of its targets.
            V, _ = self.basis.value(Q)
            expected = np.zeros_like(Q) if known is None else known.targets(V)
            carried, clip = self._carried(ahead, V), self.clip_at(ahead, j / max(1, J - 1))
            residuals = self.residuals(ahead, Q, carried + expected, clip)
            release = yield Query(residuals, mu=float(mu_sweeps[j]))
            std = float(np.max(release.std["residuals"]))
            answer = SweepAnswer(release.parts["residuals"], std, users, expected, V)
            evidence = replace(evidence, answers=(*evidence.answers, answer))
            known = self._posterior(ahead, evidence)
            Q = carried + known.targets(V)
            found.append(Q)
        weights = np.mean(found[-self.constants.averaged :], axis=0)
        return replace(state, weights=weights, last=Q, evidence=evidence)

    def _earned(self, state: State, block: BlockInfo) -> Queries[State]:
        """What those who are served earned."""
        release = yield Query(MeanRewards(self.spec))
        low, high = self.spec.reward_range
        mean = float(release["earned"][0]) / block.users
        std = float(np.max(release.std["earned"])) / block.users
        return replace(state, earned=(mean * (high - low) + 0.5 * (low + high), std * (high - low)))

    def _filter(self, state: State, known: Filter, plan: Plan, block: BlockInfo) -> Queries[State]:
        """How far the users of the batch are from what Q and the filter predict."""
        value = self._carried(state.ahead, self.basis.value(state.weights)[0])
        clip = self.clip_at(state.ahead, block.releases / max(1, self.schedule.releases - 1))
        predictions = value + known.targets(self.basis)
        release = yield Query(self.residuals(state.ahead, state.weights, predictions, clip))
        grid = self.features
        assert is_grid(grid)  # noqa: S101
        even = block.users * self.spec.horizon / grid.size
        visits = even * plan.policy.probabilities(grid.points)
        drifts = bool(block.all_served)
        known = known.after(release, visits, self.basis, self.constants, drifts=drifts)
        return replace(state, weights=value + known.targets(self.basis), filter=known)

    # How it plans.

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """What users follow, and the best actions by Q."""
        if last is None:
            first = self.behaviour()
            return Plan(first, first)
        if self.options.serve == "all":
            served = QPolicy.draw(self.features, state.weights, rng, EPSILON)
            return Plan(served, QPolicy.draw(self.features, state.weights, rng))
        greedy = QPolicy.draw(self.features, state.weights, rng)
        ended = at.releases >= self.schedule.releases
        serves = self.options.serve == "most" and (not self.exploring(at) or ended)
        return Plan(greedy if serves else self.behaviour(), greedy)

    # What is public.

    def exploring(self, at: Progress) -> bool:
        """Whether the users of the next block are served at random, and asked about values."""
        return self.options.serve == "nobody" or at.releases % 2 == 0

    @property
    def why(self) -> str:
        """What was chosen, in words."""
        if self.options.serve == "all":
            return (
                f"{self.schedule.releases} batches, whose users follow the published values and "
                f"try a random action with probability {EPSILON:g}"
            )
        sweeps = f"{self.ahead.sweeps} sweeps and a discount of {self.ahead.discount:.3g}"
        if self.options.serve == "most":
            blocks = self.schedule.blocks
            return (
                f"{sum(blocks[::2]):,} of {self.users:,} users explore, {blocks[0]:,} of them "
                f"first; {sweeps}"
            )
        return (
            f"{sweeps}, which is how far plans can look ahead of the noise; users are served at "
            "random and gain nothing; the greedy policy is for later ones"
        )

    def q_mean(self, state: State) -> Floats:
        """The posterior mean of Q, in rewards: (actions, m), values at the points of a grid.

        Where nothing ends it is up to a constant; elsewhere it is measured from the best there is.
        """
        return state.weights * state.ahead.units.unit

    def q_std(self, state: State) -> Floats:
        """The posterior standard deviation of a sweep of Q, in rewards: (actions, m).

        It is that of the last sweep given the values before it, not of all sweeps together: do not
        publish it as a confidence set.
        """
        unit = state.ahead.units.unit
        if state.filter is not None:
            return state.filter.spread(self.basis) * unit
        if not state.evidence.answers:
            return np.full_like(state.weights, np.nan)
        value, _ = self.basis.value(state.last)
        known = self._posterior(state.ahead, state.evidence)
        return np.broadcast_to(known.spread(value) * unit, state.weights.shape).copy()

    # The questions.

    def residuals(
        self, ahead: Lookahead, values: Floats, predictions: Floats, clip: float
    ) -> ResidualSums:
        """How far users are from predictions of r + discount V(s'), with V = max_a values."""
        units, offset = ahead.units, self.basis.value(values)[1]
        tables = self.basis.root, values, predictions
        rewards = clip, ahead.discount, units.centre, units.unit
        ends = offset, units.value_range, units.ending
        return ResidualSums(self.spec, self.features, *tables, *rewards, *ends)

    def _carried(self, ahead: Lookahead, value: Floats) -> Floats:
        """What of values is carried over to all actions, as weights (m,)."""
        return ahead.discount * value if self.basis.on_grid else np.zeros(self.features.size)

    def clip_at(self, ahead: Lookahead, fall: float) -> float:
        """The longest user, after a part ``fall`` in [0, 1] of all releases."""
        if not math.isfinite(self.mu):
            return NO_CLIP
        constants = self.constants
        clip = constants.clip * math.sqrt(ahead.signal)
        clip = min(constants.largest_clip, clip) * math.sqrt(self.spec.horizon)
        return float(clip * constants.clip_fall ** (fall - 0.5))

    def _visits(self) -> VisitSums:
        """Where users were."""
        T = self.spec.horizon
        clip = self.constants.visits_clip * (math.sqrt(T) if self.basis.on_grid else T)
        return VisitSums(self.spec, self.features, clip if math.isfinite(self.mu) else NO_CLIP)

    def _split_of_budget(self, sweeps: int) -> tuple[float, Floats]:
        """mu^2, split: a part for visits, and sweeps that may cost ever more."""
        constants = self.constants
        parts = constants.growth ** np.arange(sweeps)
        costs = np.sqrt((1.0 - constants.visits) * parts / parts.sum()) * self.mu
        return math.sqrt(constants.visits) * self.mu, costs

    # Choices made before the first user comes.

    def _look_ahead(self, asked: int) -> Lookahead:
        """How far plans look, if so many users are asked about values."""
        farthest, constants = discount_of(self.options.discount, self.spec), self.constants
        signal = self._signal * min(1.0, asked / self.users)
        sweeps = max(1, round(1.0 / (1.0 - farthest)))
        if math.isfinite(self.mu):
            wanted: int = round(constants.depth * signal**constants.depth_power)
            sweeps = min(sweeps, max(constants.fewest, wanted))
        discount = min(farthest, 1.0 - 1.0 / sweeps)
        return Lookahead(signal, sweeps, discount, Units.of(self.spec, discount, self.ends))

    def _posterior(self, ahead: Lookahead, evidence: Evidence) -> Posterior:
        return Posterior(self.basis, self.constants, ahead.discount, evidence, ahead.sweeps)

    @property
    def _signal(self) -> float:
        """How far all users stand out of the noise, per number that is to be learnt."""
        modes, spec = self.constants.modes, self.spec
        learnt = modes**spec.dimension if self.basis.on_grid else self.features.size / modes
        return self.users * self.mu / (spec.actions * learnt)

    def _first(self) -> int:
        """Explorers of the first block, where most are served."""
        if not math.isfinite(self.mu):
            return min(self.users, _LEAST)
        per_user = self._signal / self.users
        return min(self.users, max(_LEAST, math.ceil(_SIGNAL / per_user)))

    def _check(self) -> None:
        zeros, online = self.init().weights, self.options.serve == "all"
        asked: list[Statistic] = [] if online else [self._visits()]
        clips = [self.clip_at(self.ahead, fall) for fall in (0.0, 1.0)]
        asked += [self.residuals(self.ahead, zeros, zeros, clip) for clip in clips]
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
        if self.options.serve == "most" and not self.problem.own_schedule:
            raise InvalidArgument(
                "schedule means nothing with serve='most': who explores, and when, follows from "
                "public numbers; leave it out"
            )

    def _block_sizes(self) -> BlockSizes:
        if self.options.serve != "all":
            return super()._block_sizes()
        size = min(math.ceil(self.users / self.ahead.sweeps), self.users)
        return BlockSizes(f"fixed:size={size}", size=size)

    def successor_state(self, state: State) -> State:
        """Answers r / u + d P V of another unit u and discount d, in those of here.

        (u / u') (r / u + d P V) = r / u' + d' P W, with W = (u d / (u' d')) V.
        """
        before, ahead = state.ahead, self.ahead
        units = before.units.unit / ahead.units.unit
        values = units * (before.discount / ahead.discount if ahead.discount else 1.0)
        answers = tuple(
            SweepAnswer(
                units * a.sums, units * a.std, a.users, units * a.predictions, values * a.value
            )
            for a in state.evidence.answers
        )
        return replace(state, ahead=ahead, evidence=replace(state.evidence, answers=answers))


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
