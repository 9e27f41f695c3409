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
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.continuous.base import auto_or
from tacit.continuous.estimate import Basis, Belief, Posterior, SweepAnswer
from tacit.continuous.functional_base import (
    NO_CLIP,
    WAYS,
    FunctionalAlgorithm,
    FunctionalOptions,
    Units,
)
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.clipped_sums import VisitSums
from tacit.continuous.statistics.reaches import Reaches
from tacit.core.algorithm import Algorithm
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.core.ways import way
from tacit.privacy.arguments import one_of, positive, whole_number
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.statistic import WHOLE_EPISODE, Floats, Statistic

if TYPE_CHECKING:
    from tacit.continuous.public_transitions import PublicTransitions
    from tacit.core.setting import Setting

REWARDS_ALONE = dict.fromkeys(
    ("rewards", "reward_function"), "tacit.continuous.public_transitions:PublicTransitions"
)
"""How users are asked where states and actions are public."""

# A histogram is believed to be off from even by this part, and nowhere below that part of even.
_UNEVEN = 0.5
_RAREST = 0.2
# Without noise, points where nobody was count this part of even.
_UNSEEN = 0.02
# Eigenvalues of a Gram matrix below this many standard deviations of its noise are zero.
_SEEN = 2.0
# More often nobody can be asked: each time has its share of the budget.
_MOST_SWEEPS = 10**6


@dataclass(frozen=True, kw_only=True)
class FittedFunctionalQOptions(FunctionalOptions):
    """Options of :class:`FittedFunctionalQ`, and those of its kin.

    Attributes:
        releases: sweeps per block; by default from public numbers.
        clip: the longest function of a user, in units of reward; by default from public numbers.
        scales: of the default features beyond two coordinates, and of rewards: as far as the
            ``"box"`` of states and the range of rewards reach, or ``"asked"`` of the first block's
            users, with a part of their budget, for boxes and ranges that are much wider than where
            users are.
    """

    releases: int | Literal["auto"] = "auto"
    clip: float | Literal["auto"] = "auto"
    scales: Literal["box", "asked"] = "box"

    def __post_init__(self) -> None:
        one_of("scales", self.scales, ("box", "asked"))
        whole = partial(whole_number, most=_MOST_SWEEPS), f"an integer in 1..{_MOST_SWEEPS}"
        object.__setattr__(self, "releases", auto_or("releases", self.releases, *whole))
        object.__setattr__(self, "clip", auto_or("clip", self.clip, positive, "> 0 and finite"))
        super().__post_init__()


class FittedFunctionalQ(FunctionalAlgorithm):
    """Fitted Q-iteration in which each sweep is one private release about all users of a block.

    **The users it learns from gain nothing.** They are served by the behaviour policy, every
    action with the same chance, to the last of them; ``policy`` is that behaviour for ever. What
    is learnt is ``greedy_policy``, for everybody who comes later.

    With ``protect="trajectory"`` a block's users are first asked where they were, then ``depth``
    times for the sum of their functions, clipped, which JointDP and NonPrivate allow and LocalDP
    does not. From all releases so far follows the posterior mean of the next Q
    (:class:`tacit.continuous.estimate.Belief`). How many there are, how far plans look ahead and
    how long a user's function may be follow from public numbers: users, budget, actions and
    dimension. Several blocks carry on what is known.

    With ``protect="rewards"`` and ``"reward_function"`` states and actions are public, so users are
    asked once, for their rewards, and plans are made on what everybody can see. The latter is the
    relation of Wang and Hegde: all users' rewards change together, so that the sum over all users
    has to be hidden. It does not learn.

    >>> from tacit import FittedFunctionalQ, JointDP
    >>> from tacit.continuous import line
    >>> agent = FittedFunctionalQ(line().spec, 100, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.sweeps, round(agent.discount, 3)
    (11, 0.909)
    """

    name: ClassVar[str] = "fitted_functional_q"
    batch: ClassVar[bool] = True
    Options = FittedFunctionalQOptions
    options: FittedFunctionalQOptions

    def __init__(self, setting: Setting, options: FittedFunctionalQOptions) -> None:
        super().__init__(setting, options)
        # All releases about whole trajectories.
        self.belief = Belief(self.basis, self.constants, len(self.weights), self.discount)
        # The Q of the last sweep; ``weights`` may be an average.
        self._last = self.weights
        # What coordinates are divided by in default features, once that is known.
        self._scales: tuple[float, ...] | None = None

    # What is asked, and what is made of the answers.

    def asks(self) -> Asks:
        """Where users were and then one question per sweep; or, once, for their rewards."""
        return self._sweep() if self._rewards is None else self._ask_for_rewards(self._rewards)

    def _sweep(self) -> Asks:
        """Where users were, then one release per sweep. Nothing changes until all are there.

        A crash can make users pay for a sweep that nobody saw. Then the last ones are left out:
        any number of sweeps is an estimate. The noise of those that were asked is as it was.
        """
        J, users, left = self.sweeps, self.block_users, 1.0
        if self.asks_scales and self._scales is None:
            reaches, left = Reaches(self.spec), 1.0 - self.constants.reaches
            release = yield Ask(reaches, mu=math.sqrt(self.constants.reaches) * self.mu)
            self._standardise(reaches.scales(release), reaches.reward_range(release))
        mu_visits, mu_sweeps = self._split_of_budget(left)
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

    def _ask_for_rewards(self, rewards: PublicTransitions) -> Asks:
        """Rewards with noise; where users were, and what they did, is public and comes along."""
        release = yield Ask(rewards.statistic(), mu=self.mu, public=rewards.columns)
        self._last = self.weights = rewards.take_in(release)

    # How it plans.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """Users go on being served at random; the best actions by Q are for later ones."""
        return self.behaviour(), self.greedy()

    # What is public.

    @property
    def sweeps(self) -> int:
        """How many times the users of a block are asked about values."""
        return self.depth if self._rewards is None else 1

    @property
    def protects(self) -> str:
        """A whole episode, a user's rewards, or a reward function."""
        return WHOLE_EPISODE if self._rewards is None else self._rewards.protects

    @property
    def public(self) -> Arrays:
        """Sums where only rewards are protected."""
        return {} if self._rewards is None else self._rewards.known

    @property
    def why(self) -> str:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        served = "users are served at random and gain nothing; the greedy policy is for later ones"
        if self._rewards is not None:
            return f"states and actions are public, so users are asked once; {served}"
        return (
            f"{self.sweeps} sweeps and a discount of {self.discount:.3g}, which is how far plans "
            f"can look ahead of the noise{self._price_of_scales}; {served}"
        )

    @property
    def _price_of_scales(self) -> str:
        """What was spent on how far users get."""
        part = f"{self.constants.reaches:.0%}"
        return f", {part} of mu^2 for how far states and rewards reach" if self.asks_scales else ""

    @property
    def q_std(self) -> Floats:
        """The posterior standard deviation of a sweep of Q, in rewards: (actions, m).

        It is that of the last sweep given the values before it, not of all sweeps together: do not
        publish it as a confidence set.
        """
        if self._rewards is not None and self._rewards.known:
            return self._rewards.belief()[1] * self.units.unit
        if not self.belief.answers:
            return np.full_like(self.weights, np.nan)
        value, _ = self.basis.value(self._last)
        spread = Posterior(self.belief, self.sweeps).spread(value) * self.units.unit
        return np.broadcast_to(spread, self.weights.shape).copy()

    # The questions.

    @cached_property
    def _rewards(self) -> PublicTransitions | None:
        """How users are asked for their rewards alone."""
        target = REWARDS_ALONE.get(self.options.protect)
        return None if target is None else way(target)(self)

    @property
    def asks_scales(self) -> bool:
        """Whether the first users are asked how far their coordinates reach."""
        asked = self.spec.features is None and not self.basis.on_grid
        return asked and self.options.scales == "asked"

    def _standardise(self, scales: tuple[float, ...] | None, rewards: tuple[float, float]) -> None:
        """Features whose coordinates, and units of rewards, are divided by what was released.

        Or again by what the box says, for ``None``: whoever goes on from before the first block
        was told is told again.
        """
        self._scales, self.paid = scales, replace(self.spec, reward_range=rewards)
        self.units = Units.of(self.paid, self.discount, self.ends)
        lows, highs = self.spec.lows, self.spec.highs
        if scales is not None:
            lows, highs = tuple(-s for s in scales), scales
        self.features = way(WAYS["polynomial"])(lows, highs)
        self._set_basis()
        self.belief = Belief(self.basis, self.constants, len(self.weights), self.discount)

    def _split_of_budget(self, left: float) -> tuple[float, Floats]:
        """What is left of mu^2, split: a part for visits, and sweeps that may cost ever more."""
        constants, mu = self.constants, math.sqrt(left) * self.mu
        parts = constants.growth ** np.arange(self.sweeps)
        sweeps = np.sqrt((1.0 - constants.visits) * parts / parts.sum()) * mu
        return math.sqrt(constants.visits) * mu, sweeps

    def _visits(self) -> VisitSums:
        """Where users were."""
        T = self.spec.horizon
        clip = self.constants.visits_clip * (math.sqrt(T) if self.basis.on_grid else T)
        return VisitSums(self.spec, self.features, clip if math.isfinite(self.mu) else NO_CLIP)

    def clip_at(self, fall: float) -> float:
        """The longest user, after a part ``fall`` in [0, 1] of all releases."""
        if self.options.clip == "auto":
            return super().clip_at(fall)
        return float(self.options.clip * self.constants.clip_fall ** (fall - 0.5))

    # Choices made before the first user comes.

    def _choose_depth(self, options: FittedFunctionalQOptions, most: int) -> int:
        if options.releases != "auto":
            return options.releases
        return super()._choose_depth(options, most)

    def _questions(self) -> list[Statistic]:
        if self._rewards is not None:
            return [self._rewards.statistic()]
        first: list[Statistic] = [Reaches(self.spec)] if self.asks_scales else []
        return [*first, self._visits(), *super()._questions()]

    def _check(self) -> None:
        super()._check()
        if not self.privacy.asks_again:
            raise InvalidArgument(
                "FittedFunctionalQ asks users again and again, and a device reports once: "
                "take functional_q, or JointDP"
            )
        if self._rewards is not None and not self.basis.on_grid:
            raise InvalidArgument(
                f"protect={self.options.protect!r} plans on public transitions between points of "
                "a grid: leave features out"
            )

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
        return super().identity() | {"sweeps": self.sweeps}

    def state(self) -> State:
        """Q, all answers, and the public sums."""
        belief = self.belief
        meta: dict[str, Any] = {
            "gram_users": belief.gram_users,
            "told": [[answer.std, answer.users] for answer in belief.answers],
        }
        if self._scales is not None:
            meta["scales"], meta["paid"] = list(self._scales), list(self.paid.reward_range)
        arrays: Arrays = {"weights": self.weights, "last": self._last, "gram": belief.gram}
        for i, told in enumerate(belief.answers):
            for name in ("sums", "predictions", "value"):
                arrays[f"told/{i}/{name}"] = getattr(told, name)
        return meta, arrays | {f"public/{name}": a for name, a in self.public.items()}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        if self.asks_scales:
            scales, (low, high) = meta.get("scales"), meta.get("paid", self.spec.reward_range)
            self._standardise(None if scales is None else tuple(scales), (low, high))
        belief = self.belief = self.belief.copy()
        belief.gram_users = meta["gram_users"]
        self.weights, self._last, belief.gram = arrays["weights"], arrays["last"], arrays["gram"]
        belief.answers = [
            SweepAnswer(std=std, users=users, **below(arrays, f"told/{i}/"))
            for i, (std, users) in enumerate(meta["told"])
        ]
        if self._rewards is not None:
            self._rewards.known = below(arrays, "public/")


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
