"""Fitted Q with functional noise, after Wang and Hegde (2019).

All users are asked again and again about better values. As in the only variant of the paper's
Algorithm 1 that is private, the state from sweep to sweep is the published Q:

    F_{j+1,a} = posterior mean, by all releases, of E[r + gamma max_a' F_{j,a'}(s') | s, a],

and users' data enters by one released function per sweep and action, which is the sum of

    e_t K(s_t, .),  e_t = r_t + gamma max_a' F_{j,a'}(s_{t+1}) - (what was predicted),

over users and their steps with action a, plus a fresh path of a Gaussian process with kernel K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.random import Generator

from tacit.continuous.estimate import (
    GRID,
    GRID_ENDS,
    MAP,
    Basis,
    Filter,
    Posterior,
    SweepAnswer,
    SweepEvidence,
    visible_gram,
)
from tacit.continuous.features import Grid, default_polynomial
from tacit.continuous.policy import NO_CLIP, BoxAlgorithm, QPolicy, box_spec
from tacit.continuous.statistics import MeanRewards, ResidualSums, Units, VisitSums
from tacit.core.algorithm import BlockInfo, BlockSizes, Plan, Progress, Queries, Query
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import check_question
from tacit.privacy.statistic import Floats, Statistic
from tacit.privacy.validation import flag, one_of

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem

_POINTS = (21, 9)  # points of a grid along each coordinate, by the number of coordinates
EPSILON = 0.3  # uniform actions where all users are served
# Where most are served: how far the first explorers stand out of the noise, at least so many, and
# which part of all users before them later ones are at most.
_SIGNAL, _LEAST, _EXPLORE = 4.0, 16, 0.03


@dataclass(frozen=True, kw_only=True)
class FittedFunctionalQOptions:
    """Options of :class:`FittedFunctionalQ`.

    Attributes:
        serve: which users follow what was learnt: ``"later"``, those after the last block;
            ``"most"``, but for a few who explore before; or ``"all"``, who are asked once.
        ends: whether episodes may end early, which is then worth 0; by default if the spec says
            so, or has features that are no grid.
    """

    serve: Literal["later", "most", "all"] = "later"
    ends: bool | None = None

    def __post_init__(self) -> None:
        one_of("serve", self.serve, ("later", "most", "all"))
        if self.ends is not None:
            flag("ends", self.ends)


@dataclass(frozen=True)
class Lookahead:
    """Horizon of plans, by the number of users who are asked; public."""

    signal: float  # how far they stand out of the noise, per number that is to be learnt
    sweeps: int  # of values, J: the noise in each is carried on to the next
    discount: float  # of future rewards, gamma
    units: Units  # of rewards and values


@dataclass(frozen=True, eq=False)
class SweepState:
    """Q, the releases it follows from, and the mean reward of users who were served by it."""

    ahead: Lookahead  # of the block that was asked last about values
    weights: Floats  # Q, in its units: (actions, m)
    last: Floats  # Q of the last sweep, of which ``weights`` may be an average
    evidence: SweepEvidence
    filter: Filter | None = None  # where all are served
    earned: tuple[float, float] | None = None  # by a user in a step, and the noise's deviation


class FittedFunctionalQ(BoxAlgorithm[SweepState]):
    """Fitted Q-iteration in which each sweep is one private release about all users of a block.

    A block's users are first asked where they were, then in every sweep for the sum of their
    functions, clipped. From all releases so far follows the posterior mean of the next Q
    (:class:`~.estimate.Posterior`). Sweeps, discount and clips follow from public numbers: users,
    budget, actions and dimension.

    * ``serve="later"``: **the users it learns from gain nothing.** They are served at random;
      ``greedy_policy`` is for users who come later.
    * ``serve="most"``: the first block is such a batch. Those after it follow what was learnt and
      are asked once for their mean reward, ``state.earned``. As soon as that is no more than 3 % of
      all so far, twice as many explore, as a batch of their own, whose plans look farther ahead.
    * ``serve="all"``: each batch, one for every sweep, follows the published Q, but for 30 %
      uniform actions, and is asked once for the residuals of that Q, which a Kalman filter takes in
      (:class:`~.estimate.Filter`). That suits LocalDP, and needs a grid and far more users.

    >>> from tacit import FittedFunctionalQ, JointDP
    >>> from tacit.continuous import line
    >>> agent = FittedFunctionalQ(line().spec, 100, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.state.ahead.sweeps, round(agent.state.ahead.discount, 3)
    (11, 0.909)
    """

    name: ClassVar[str] = "fitted_functional_q"
    offline: bool = True
    Options = FittedFunctionalQOptions
    options: FittedFunctionalQOptions
    features: FeatureMap

    def __init__(self, problem: Problem, options: FittedFunctionalQOptions) -> None:
        self.spec = spec = box_spec(problem)
        self.users, self.mu, self.options = problem.users, problem.privacy.episode_mu, options
        self.offline = options.serve == "later"
        self.features = spec.features or _default_features(spec)
        on_grid = isinstance(self.features, Grid)
        self.ends = (spec.may_end or not on_grid) if options.ends is None else options.ends
        self.constants = (GRID_ENDS if self.ends else GRID) if on_grid else MAP
        spec.check_weights(self.features.size)
        self.basis = Basis(self.features, self.constants, not self.ends)
        self.ahead = self._look_ahead(self._first() if options.serve == "most" else self.users)
        super().__init__(problem, options)

    def init(self) -> SweepState:
        """Q is zero."""
        actions, m = self.spec.actions, self.features.size
        zeros, evidence = np.zeros((actions, m)), SweepEvidence(np.zeros((m, m)))
        online = self.options.serve == "all"
        known = Filter.prior(self.basis, self.constants, actions) if online else None
        return SweepState(self.ahead, zeros, zeros, evidence, known)

    def visits(self) -> VisitSums:
        """Query of where users were."""
        T = self.spec.horizon
        clip = self.constants.visits_clip * (math.sqrt(T) if self.basis.on_grid else T)
        return VisitSums(self.spec, self.features, clip if math.isfinite(self.mu) else NO_CLIP)

    def residuals(
        self, ahead: Lookahead, values: Floats, predictions: Floats, progress: float
    ) -> ResidualSums:
        """Query of how far users are from predictions of r + discount V(s'), V = max_a values.

        Args:
            ahead: Discount, and units of rewards and values.
            values: Q, (actions, m).
            predictions: The same shape.
            progress: Part of all releases so far: the clip falls with it.
        """
        clip, constants = NO_CLIP, self.constants
        if math.isfinite(self.mu):
            clip = min(constants.largest_clip, constants.clip * math.sqrt(ahead.signal))
            clip *= math.sqrt(self.spec.horizon)
            clip = float(clip * constants.clip_fall ** (progress - 0.5))
        known, tables = (self.spec, self.features), (self.basis.root, values, predictions)
        offset = self.basis.value(values)[1]
        return ResidualSums(*known, *tables, clip, ahead.discount, ahead.units, offset)

    def learn(
        self, state: SweepState, plan: Plan, block: BlockInfo, rng: Generator
    ) -> Queries[SweepState]:
        """Where users were, then a query per sweep; or one query. Args: see Algorithm.learn."""
        if state.filter is not None:
            return self._correct(state, state.filter, plan, block)
        return self._sweep(state, block) if self.exploring(block) else self._serve(state, block)

    def _sweep(self, state: SweepState, block: BlockInfo) -> Queries[SweepState]:
        """Where users were, then one release per sweep."""
        if self.options.serve == "most":
            # A batch of its own.
            begun = replace(self.init(), ahead=self._look_ahead(block.users))
            state = replace(begun, weights=state.weights, earned=state.earned)
        ahead, known, Q, users = state.ahead, state.evidence, state.last, block.users
        J, constants, gamma = ahead.sweeps, self.constants, ahead.discount
        # mu^2 is split: a part for visits, and sweeps that cost ever more.
        parts = constants.growth ** np.arange(J)
        mu_sweeps = np.sqrt((1.0 - constants.visits) * parts / parts.sum()) * self.mu
        release = yield Query(self.visits(), mu=math.sqrt(constants.visits) * self.mu)
        gram = known.gram + visible_gram(release, self.basis, users * self.spec.horizon)
        known = SweepEvidence(gram, known.users + users, known.answers)
        posterior = Posterior(self.basis, constants, gamma, known, J) if known.answers else None
        found: list[Floats] = []
        for j in range(J):
            # V = max_a Q_a, and what all answers so far say of its targets.
            V, _ = self.basis.value(Q)
            expected = np.zeros_like(Q) if posterior is None else posterior.targets(V)
            carried = self.basis.carried(V, gamma)
            asked = self.residuals(ahead, Q, carried + expected, j / max(1, J - 1))
            release = yield Query(asked, mu=float(mu_sweeps[j]))
            std = float(np.max(release.std["residuals"]))
            answer = SweepAnswer(release.parts["residuals"], std, users, expected, V)
            known = replace(known, answers=(*known.answers, answer))
            posterior = Posterior(self.basis, constants, gamma, known, J)
            Q = carried + posterior.targets(V)
            found.append(Q)
        weights = np.mean(found[-constants.averaged :], axis=0)
        return replace(state, weights=weights, last=Q, evidence=known)

    def _serve(self, state: SweepState, block: BlockInfo) -> Queries[SweepState]:
        """Mean rewards of those who are served."""
        release = yield Query(MeanRewards(self.spec))
        low, high = self.spec.reward_range
        mean = float(release["earned"][0]) / block.users
        std = float(np.max(release.std["earned"])) / block.users
        return replace(state, earned=(mean * (high - low) + 0.5 * (low + high), std * (high - low)))

    def _correct(
        self, state: SweepState, known: Filter, plan: Plan, block: BlockInfo
    ) -> Queries[SweepState]:
        """Residuals of the batch's users from Q and the filter, which they correct once."""
        grid, ahead, Q = self.features, state.ahead, state.weights
        assert isinstance(grid, Grid)  # noqa: S101
        carried = self.basis.carried(self.basis.value(Q)[0], ahead.discount)
        progress = block.releases / max(1, self.schedule.releases - 1)
        predictions = carried + known.targets(self.basis)
        release = yield Query(self.residuals(ahead, Q, predictions, progress))
        even = block.users * self.spec.horizon / grid.size
        visits = even * plan.policy.probabilities(grid.points)
        known = known.drifted(self.constants) if block.all_served else known
        known = known.after(release, visits, self.basis, self.constants)
        return replace(state, weights=carried + known.targets(self.basis), filter=known)

    def plan(self, state: SweepState, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """The policy that users follow, and the best actions by Q. Args: see Algorithm.plan."""
        if last is None:
            first = self.uniform()
            return Plan(first, first)
        if self.options.serve == "all":
            served = QPolicy.draw(self.features, state.weights, rng, EPSILON)
            return Plan(served, QPolicy.draw(self.features, state.weights, rng))
        greedy, ended = QPolicy.draw(self.features, state.weights, rng), self.block_users(at) == 0
        serves = self.options.serve == "most" and (not self.exploring(at) or ended)
        return Plan(greedy if serves else self.uniform(), greedy)

    def exploring(self, at: Progress) -> bool:
        """Whether the users of the next block are served at random, and asked about values."""
        return self.options.serve == "later" or at.releases % 2 == 0

    def q_mean(self, state: SweepState) -> Floats:
        """Posterior mean of Q in rewards, (actions, m); up to a constant, or below the best."""
        return state.weights * state.ahead.units.unit

    @property
    def why(self) -> str:
        """Sweeps, discount, and which users explore, in words."""
        blocks, serve, ahead = self.schedule.blocks, self.options.serve, self.ahead
        sweeps = f"{ahead.sweeps} sweeps and a discount of {ahead.discount:.3g}"
        if serve == "all":
            return f"{len(blocks)} batches, which follow the published values but for {EPSILON:g}"
        if serve == "most":
            explore = f"{sum(blocks[::2]):,} of {self.users:,} users explore"
            return f"{explore}, {blocks[0]:,} of them first; {sweeps}"
        return f"{sweeps}; users are served at random and gain nothing"

    def _look_ahead(self, asked: int) -> Lookahead:
        """Sweeps and discount, if so many users are asked about values."""
        farthest, constants = self.spec.discount, self.constants
        signal = self._signal * min(1.0, asked / self.users)
        sweeps = max(1, round(1.0 / (1.0 - farthest)))
        if math.isfinite(self.mu):
            wanted: int = round(constants.depth * signal**constants.depth_power)
            sweeps = min(sweeps, max(constants.fewest, wanted))
        discount = min(farthest, 1.0 - 1.0 / sweeps)
        return Lookahead(signal, sweeps, discount, Units.of(self.spec, discount, self.ends))

    @property
    def _signal(self) -> float:
        """How far all users stand out of the noise, per number that is to be learnt."""
        modes, spec = self.constants.modes, self.spec
        learnt = modes**spec.dimension if self.basis.on_grid else self.features.size / modes
        return self.users * self.mu / (spec.actions * learnt)

    def _first(self) -> int:
        """Explorers of the first block, where most are served."""
        wanted = math.ceil(_SIGNAL / (self._signal / self.users)) if math.isfinite(self.mu) else 0
        return min(self.users, max(_LEAST, wanted))

    def _check(self) -> None:
        zeros, online = self.init().weights, self.options.serve == "all"
        asked: list[Statistic] = [] if online else [self.visits()]
        asked += [self.residuals(self.ahead, zeros, zeros, progress) for progress in (0.0, 1.0)]
        for statistic in asked:
            check_question(statistic, self.privacy, "clip")
        if online and not self.basis.on_grid:
            raise InvalidArgument("serve='all' needs a grid, of two coordinates at most")
        if not online and not self.privacy.asks_again:
            raise InvalidArgument("a device reports once: take serve='all', or JointDP")
        if self.options.serve == "most" and not self.problem.own_schedule:
            raise InvalidArgument("schedule means nothing with serve='most': leave it out")

    def _block_sizes(self) -> BlockSizes:
        if self.options.serve == "most":
            return BlockSizes("explore and serve", blocks=_turns(self.users, self._first()))
        if self.options.serve == "later":
            return super()._block_sizes()
        size = min(math.ceil(self.users / self.ahead.sweeps), self.users)
        return BlockSizes(f"fixed:size={size}", size=size)

    def successor_state(self, state: SweepState) -> SweepState:
        """Answers in other units: (u / u') (r / u + d P V) = r / u' + d' P (u d / (u' d')) V."""
        before, ahead = state.ahead, self.ahead
        units = before.units.unit / ahead.units.unit
        values = units * (before.discount / ahead.discount if ahead.discount else 1.0)
        answers = tuple(answer.scaled(units, values) for answer in state.evidence.answers)
        return replace(state, ahead=ahead, evidence=replace(state.evidence, answers=answers))


def _default_features(spec: BoxSpec) -> FeatureMap:
    """A grid of up to two coordinates; of more its points would be too many for the noise."""
    if spec.dimension > len(_POINTS):
        return default_polynomial(spec)
    return Grid(spec.lows, spec.highs, (_POINTS[spec.dimension - 1],) * spec.dimension)


def _turns(users: int, first: int) -> tuple[int, ...]:
    """Explorers, those who are served then, twice as many explorers, and so on.

    >>> _turns(2000, 20)
    (20, 1314, 40, 626)
    """
    blocks, served, explore = [], 0, first
    while served < users:
        # Until the next explorers are no more than that part of all before them.
        until = min(users, math.ceil(2 * explore / _EXPLORE))
        size = min(explore, users - served)
        blocks += [size, until - served - size] if until > served + size else [size]
        served, explore = max(until, served + size), 2 * explore
    return tuple(blocks)
