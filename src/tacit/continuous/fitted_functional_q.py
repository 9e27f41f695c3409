"""Fitted Q with functional noise: all users are asked again and again about better values."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.agent import (
    Answer,
    Belief,
    Constants,
    FunctionalAgent,
    Protect,
)
from tacit.continuous.arguments import auto_or_positive, auto_or_whole
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics import ResidualSums, parts_of, steps_of
from tacit.core.learner import Arrays, below
from tacit.core.schedule import Schedule
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.functions.functional import Kernel
from tacit.privacy.models import LocalDP, Privacy
from tacit.privacy.statistic import Block, Statistic

Floats = NDArray[np.float64]

# A histogram is believed to be off from even by this part, and nowhere below that part of even.
_UNEVEN = 0.5
_RAREST = 0.2
# Without noise, points where nobody was count this part of even.
_UNSEEN = 0.02
# Eigenvalues of a Gram matrix below this many standard deviations of its noise are zero.
_SEEN = 2.0
# Sweeps of values where transitions are public, at most, and when they stop.
_SWEEPS = 500
_STILL = 1e-6
# More often nobody can be asked: each time has its share of the budget.
_MOST_SWEEPS = 10**6


class FittedFunctionalQ(FunctionalAgent):
    """Fitted Q-iteration in which each sweep is one private release about all users of a block.

    **The users it learns from gain nothing.** They are served by the behaviour policy, every
    action with the same chance, to the last of them; ``policy`` is that behaviour for ever. What
    is learnt is ``greedy_policy``, for everybody who comes later.

    With ``protect="trajectory"`` a block's users are first asked where they were, then ``depth``
    times for the sum of their functions: residuals of the Q that was published last, clipped, with
    functional noise of its own in every release. From all releases so far the posterior mean of the
    next Q is computed (:class:`tacit.continuous.agent.Belief`), which is post-processing. Users'
    budget is split over these releases. How many there are, how far plans look ahead and how long
    a user's function may be follow from public numbers: users, budget, actions and dimension.

    With ``protect="rewards"`` and ``"reward_function"`` states and actions are public, so users are
    asked once, for their rewards, and plans are made on what everybody can see. The latter is the
    relation of Wang and Hegde, 2019: all users' rewards change together, so that the sum over all
    users has to be hidden. It does not learn.

    Args:
        spec: of the world.
        users: how many users are declared.
        privacy: JointDP or NonPrivate; users are asked many times, which LocalDP cannot do.
        protect: what is protected, see :class:`FunctionalAgent`.
        radius: of ``"reward_function"``.
        kernel: of users' functions on a grid.
        releases: sweeps per block; by default from public numbers.
        clip: the longest function of a user, in units of reward; by default from public numbers.
        discount: of future rewards, at most; the spec's by default.
        ends: whether episodes may end early.
        constants: tuned numbers.
        schedule: one block of all users by default; several blocks carry on what is known.
        seed: of ties; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.

    >>> from tacit import JointDP
    >>> from tacit.continuous import line
    >>> agent = FittedFunctionalQ(line().spec, 100, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.sweeps, round(agent.discount, 3)
    (11, 0.909)
    """

    name: ClassVar[str] = "fitted_functional_q"
    batch: ClassVar[bool] = True

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        protect: Protect = "trajectory",
        radius: float | None = None,
        kernel: Kernel | Literal["auto"] = "auto",
        releases: int | Literal["auto"] = "auto",
        clip: float | Literal["auto"] = "auto",
        discount: float | None = None,
        ends: bool | None = None,
        constants: Constants | None = None,
        schedule: str | Schedule = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        self._given_releases = auto_or_whole("releases", releases, most=_MOST_SWEEPS)
        self._given_clip = auto_or_positive("clip", clip)
        self._answers: list[Release] = []
        self._answered = self._seen = 0
        self._public: Arrays = {}
        super().__init__(
            spec,
            users,
            privacy,
            protect=protect,
            radius=radius,
            kernel=kernel,
            discount=discount,
            ends=ends,
            constants=constants,
            schedule=schedule,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    def _begin(self) -> None:
        actions = len(self.weights)
        self._belief = Belief(self.basis, self.constants, actions, self.discount)
        # The Q of the last sweep; ``weights`` may be an average.
        self._last = self.weights

    @property
    def sweeps(self) -> int:
        """How many times the users of a block are asked about values."""
        return self._depth if self.protect == "trajectory" else 1

    @property
    def why(self) -> str:
        """What was chosen and why, in words."""
        served = "users are served at random and gain nothing; the greedy policy is for later ones"
        if self.protect != "trajectory":
            return f"states and actions are public, so users are asked once; {served}"
        return (
            f"{self.sweeps} sweeps and a discount of {self.discount:.3g}, which is how far plans "
            f"can look ahead of the noise; {served}"
        )

    @property
    def q_std(self) -> Floats:
        """The posterior standard deviation of a sweep of Q, in rewards: (actions, m).

        It is that of the last sweep given the values before it, not of all sweeps together: do not
        publish it as a confidence set.
        """
        if self._public:
            return self._reward_belief()[1] * self.units.unit
        if not self._belief.answers:
            return np.full_like(self.weights, np.nan)
        value, _ = self.basis.value(self._last)
        spread = self._belief.fit(self.sweeps).spread(value) * self.units.unit
        return np.broadcast_to(spread, self.weights.shape).copy()

    # Choices made before the first user comes.

    def _choose_depth(self, spec: BoxSpec, users: int) -> int:
        if self._given_releases != "auto":
            return int(self._given_releases)
        return super()._choose_depth(spec, users)

    def _clip(self, fall: float) -> float:
        if self._given_clip == "auto":
            return super()._clip(fall)
        return float(self._given_clip * self.constants.clip_fall ** (fall - 0.5))

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if isinstance(self.privacy, LocalDP):
            raise InvalidArgument(
                "FittedFunctionalQ asks users again and again, and a device reports once: "
                "take functional_q, or JointDP"
            )
        if self.protect != "trajectory" and not self.basis.on_grid:
            raise InvalidArgument(
                f"protect={self.protect!r} plans on public transitions between points of a grid: "
                "leave features out of the spec"
            )

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if schedule == "auto":
            return Schedule.parse(f"fixed:size={self.users}", self.users)
        return Schedule.of(schedule, self.users)

    # Asking.

    def _questions(self) -> list[Statistic]:
        if self.protect != "trajectory":
            return [self._rewards()]
        return [self._visits(), *super()._questions()]

    def _statistic(self) -> Statistic:
        """The first question of a block."""
        return self._visits() if self.protect == "trajectory" else self._rewards()

    def _rewards(self) -> ResidualSums:
        """Users' rewards alone."""
        H, longest = self.spec.horizon, float(np.linalg.norm(self.basis.root, axis=1).max())
        clip = self.constants.reward_clip * math.sqrt(H)
        if self.protect == "reward_function" or not math.isfinite(self._mu):
            # Nobody is longer than that.
            clip = H * longest
        if self._given_clip != "auto":
            clip = self._given_clip
        zeros = np.zeros_like(self.weights)
        return ResidualSums(
            self.spec,
            self.features,
            self.basis.root,
            zeros,
            zeros,
            clip=clip,
            discount=0.0,
            centre=self.units.centre,
            unit=self.units.unit,
            unit_of_privacy=self._protects,
            radius=self.radius,
            group_size=self.users if self.protect == "reward_function" else 1,
        )

    def _release(self, block: Block, user_ids: Sequence[int | str] | None) -> None:
        before = public = self._public
        if self.protect != "trajectory":
            # Public, so they need no gate; they are saved with the release.
            public = _added(public, self._moments(block))
        self._curator.add(block, user_ids)
        self._public = public
        try:
            self._ask_about_values(block.users)
        except BaseException:
            # Where users were counts with what they were paid, or not at all.
            self._public = before
            raise

    def _ask_about_values(self, users: int, resumed: bool = False) -> None:
        """All releases about a block; after a crash, as many as its users can still pay."""
        with self._at_the_gate(users), self._round():
            self._answered = 0
            if self.protect == "trajectory":
                self._sweep(users, resumed)
            else:
                self._take_rewards()
        self._advance(users)

    def _sweep(self, users: int, resumed: bool) -> None:
        """Where users were, then one release per sweep. Nothing changes until all are there.

        A crash can make users pay for a sweep that nobody saw. Then the last ones are left out:
        any number of sweeps is an estimate. The noise of those that were asked is as it was.
        """
        J, constants = self.sweeps, self.constants
        parts = constants.growth ** np.arange(J)
        costs = np.sqrt((1.0 - constants.visits) * parts / parts.sum()) * self._mu
        belief, weights = self._belief.copy(), self._last
        visits = self._ask(self._visits(), math.sqrt(constants.visits) * self._mu)
        belief.gram = belief.gram + self._gram(visits, users)
        belief.gram_users += users
        found: list[Floats] = []
        for j in range(J):
            value, _ = self.basis.value(weights)
            expected = np.zeros_like(weights)
            if belief.answers:
                expected = belief.fit(J).targets(value)
            clip = self._clip(j / max(1, J - 1))
            statistic = self._residuals(weights, self._carried(value) + expected, clip)
            try:
                release = self._ask(statistic, float(costs[j]))
            except BudgetExceeded:
                if resumed and found:
                    break
                raise
            std = float(np.max(release.std["residuals"]))
            belief.answers.append(Answer(release["residuals"], std, users, expected, value))
            weights = self._carried(value) + belief.fit(J).targets(value)
            found.append(weights)
        self._belief, self._last = belief, weights
        self.weights = np.mean(found[-constants.averaged :], axis=0)

    def _gram(self, release: Release, users: int) -> Floats:
        """The Gram matrix of features, as far as its noise lets it be seen."""
        noise = float(np.max(release.std["visits"]))
        if not self.basis.on_grid:
            values, vectors = np.linalg.eigh(release["visits"])
            kept = np.where(values < _SEEN * noise + 1e-6, 0.0, values)
            gram: Floats = (vectors * kept) @ vectors.T
            return gram
        visits = release["visits"]
        if noise == 0.0:
            return np.diag(np.maximum(visits, _UNSEEN * max(visits.mean(), 1e-9)))
        even = users * self.spec.horizon / len(visits)
        shrunk = (_UNEVEN * even) ** 2 / ((_UNEVEN * even) ** 2 + noise**2)
        centre = max(float(visits.mean()), 0.3 * even)
        return np.diag(np.maximum(even + (visits - centre) * shrunk, _RAREST * even))

    # Where states and actions are public.

    def _moments(self, block: Block) -> Arrays:
        """Sums over steps of features times features, and times the next ones, by action."""
        A, m = self.spec.actions, self.features.size
        counts, moves = np.zeros((A, m, m)), np.zeros((A, m, m))
        for _, part in parts_of(block, self.spec.horizon * m):
            # Rewards are private here: not even whether they are numbers may be seen.
            blind = {"rewards": np.full(part["rewards"].shape, self.spec.reward_range[0])}
            steps = steps_of(Block(part.users, dict(part.arrays) | blind), self.spec)
            features = self.features(steps.states)
            for action in range(A):
                chosen = steps.valid & ~steps.ended & (steps.actions == action)
                here, there = features[:, :-1][chosen], features[:, 1:][chosen]
                counts[action] += here.T @ here
                moves[action] += here.T @ there
        return {"counts": counts, "moves": moves}

    def _take_rewards(self) -> None:
        release = self._ask(self._rewards(), self._mu)
        variance = np.array(float(np.max(release.std["residuals"])) ** 2)
        self._public = _added(
            self._public, {"rewards": np.array(release["residuals"]), "variance": variance}
        )
        self._last = self.weights = self._planned_on_public()

    def _reward_belief(self) -> tuple[Floats, Floats]:
        """The posterior mean and standard deviation of expected rewards, each (actions, m)."""
        root, prior, constants = self.basis.root, self.basis.prior, self.constants
        means, stds = np.zeros_like(self.weights), np.zeros_like(self.weights)
        for action, counts in enumerate(self._public["counts"]):
            across = constants.prior_reward * root.T @ counts @ prior
            noise = constants.noise**2 * root.T @ counts @ root
            noise += (float(self._public["variance"]) + 1e-6) * np.eye(root.shape[1])
            gain = np.linalg.solve(noise + across @ across.T, across).T
            scaled = constants.prior_reward * prior
            means[action] = scaled @ (gain @ self._public["rewards"][action])
            left = np.eye(prior.shape[1]) - gain @ across
            stds[action] = np.sqrt(np.maximum(((scaled @ left) * scaled).sum(axis=1), 0.0))
        return means, stds

    def _planned_on_public(self) -> Floats:
        """Q for the rewards that are believed and the transitions that everybody can see."""
        prior, rewards = self.basis.prior, self._reward_belief()[0]
        changes = np.array(
            [
                prior
                @ np.linalg.solve(
                    prior.T @ counts @ prior + np.eye(prior.shape[1]), prior.T @ (moves - counts)
                )
                for counts, moves in zip(self._public["counts"], self._public["moves"], strict=True)
            ]
        )
        value, weights = np.zeros(self.features.size), np.zeros_like(self.weights)
        for _ in range(_SWEEPS):
            weights = rewards + self.discount * (value + changes @ value)
            new = np.clip(self.basis.value(weights)[0], *self.units.value_range)
            moved, value = float(np.abs(new - value).max()), new
            if moved < _STILL:
                break
        return weights

    # The gate, many times for one block.

    @contextlib.contextmanager
    def _round(self) -> Iterator[None]:
        """Answers are of one round: whatever ends it, no later one begins with them."""
        try:
            yield
        finally:
            self._answers, self._seen = [], self._curator.releases

    def _ask(self, statistic: Statistic, mu: float) -> Release:
        """An answer that is there from before an interruption, or a new release."""
        self._answered += 1
        if self._answered <= len(self._answers):
            return self._answers[self._answered - 1]
        newest = max(self._curator.blocks)
        private = math.isfinite(mu)
        release = self._curator.release(statistic, blocks=[newest], mu=mu if private else None)
        self._answers.append(release)
        self._seen = release.index + 1
        return release

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        """Nothing: a block's releases are taken in together."""

    def _plan(self) -> tuple[QPolicy, QPolicy]:
        behaviour = QPolicy.uniform(self.spec.dimension, self.spec.actions, version=self.releases)
        return behaviour, self._greedy_policy()

    # Save and resume.

    def _catch_up(self) -> None:
        last = self._curator.last_release
        if last is not None and last.index >= self._seen:
            # Saved before it was published.
            self._answers.append(last)
            self._seen = last.index + 1
        if self._answers:
            # Without a single sweep the block in hand is lost, and the run goes on.
            with contextlib.suppress(BudgetExceeded):
                self._ask_about_values(self.block_users, resumed=True)

    def _identity(self) -> dict[str, Any]:
        own = {"sweeps": self.sweeps, "clip": self._given_clip}
        return super()._identity() | own

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        belief = self._belief
        meta: dict[str, Any] = {
            "seen": self._seen,
            "gram_users": belief.gram_users,
            "told": [[answer.std, answer.users] for answer in belief.answers],
            "answers": [_release_meta(answer) for answer in self._answers],
        }
        arrays: Arrays = {"weights": self.weights, "last": self._last, "gram": belief.gram}
        for i, told in enumerate(belief.answers):
            for name in ("sums", "predictions", "value"):
                arrays[f"told/{i}/{name}"] = getattr(told, name)
        for i, answer in enumerate(self._answers):
            arrays |= {f"answers/{i}/{name}": part for name, part in answer.parts.items()}
        return meta, arrays | {f"public/{name}": a for name, a in self._public.items()}

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        belief = self._belief
        self._seen, belief.gram_users = meta["seen"], meta["gram_users"]
        self.weights, self._last, belief.gram = arrays["weights"], arrays["last"], arrays["gram"]
        belief.answers = [
            Answer(std=std, users=users, **below(arrays, f"told/{i}/"))
            for i, (std, users) in enumerate(meta["told"])
        ]
        self._answers = [
            Release(parts=below(arrays, f"answers/{i}/"), **entry)
            for i, entry in enumerate(meta["answers"])
        ]
        self._public = below(arrays, "public/")


def _added(old: Arrays, new: Arrays) -> Arrays:
    """Sums by name; a name that is new begins at zero."""
    # A sum of arrays without axes is no array.
    return old | {name: np.asarray(old.get(name, 0.0) + array) for name, array in new.items()}


def _release_meta(release: Release) -> dict[str, Any]:
    return {
        "index": release.index,
        "statistic": release.statistic,
        "std": {name: float(np.max(value)) for name, value in release.std.items()},
        "users": release.users,
        "cost": release.cost,
    }
