"""What all linear agents share: what they ask of users, and optimistic values from the answers.

Three ways to ask, of which ``statistic="auto"`` chooses one (see :meth:`LinearAgent.why`):

* ``"features"``: sums of features for every value function at once (any finite world),
* ``"counts"``: counts along the block's own policy (few states),
* ``"targets"``: the values themselves, of all recent users again after every block, older ones
  with less weight (many states).

The first two ask every user once, with the whole budget; sums over blocks are post-processing.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.core.learner import Arrays, Bonus, Calibration, Floats, below
from tacit.core.schedule import Schedule, growing
from tacit.finite.evidence import Evidence
from tacit.finite.finite_learner import FiniteLearner
from tacit.finite.flow import conserve
from tacit.finite.policy import Policy
from tacit.finite.spec import check_bytes
from tacit.finite.visits import VisitCounts
from tacit.linear.models import (
    AnswerModel,
    CellModel,
    KnownRewards,
    Model,
    SumModel,
    Widths,
)
from tacit.linear.spec import LinearSpec
from tacit.linear.statistics import FeatureSums, TargetSums, unit_features
from tacit.linear.sums import add_features, feature_sums
from tacit.numerics.block_sums import BlockSums
from tacit.privacy.arguments import flag, instance_of, positive, whole_number
from tacit.privacy.curators.gate import Release
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy, needs_l1
from tacit.privacy.sizing import release_noise, users_above_noise
from tacit.privacy.statistic import Block, Statistic

Kind = Literal["features", "counts", "targets"]
Switching = Literal["schedule", "determinant", "rayleigh"]

# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18
# Blocks whose weight is below this are no longer asked.
_FORGOTTEN = 1e-3
# Above this many (step, state) pairs the equations of flow conservation are too many to solve.
_LARGEST_FLOW = 1500
# Above this many states it pays to ask for values instead of for all next states; where sums are
# pooled over steps, which values cannot be, later.
_MANY_STATES = 60
_MANY_STATES_POOLED = 400


@dataclass(frozen=True)
class Constants:
    """The practical agents' constants, chosen on other seeds of the worlds than are reported.

    Attributes:
        bonus: scale of widths by sampling and noise,
        bias: and of those by what the ridge hides where nobody was yet.
        ridge: ridge in standard deviations of the Gram's noise, times sqrt(d).
        growth: the number of users served grows by at most this factor from block to block;
        target_growth: the same for ``"targets"``, whose old blocks decay by it.
        first: users of the first block, in standard deviations of a sum's noise.
        clip: the longest vector of a user, in typical lengths of one with steps apart;
        pooled_clip: the same for sums over all steps.
        known: a cell is known once its count exceeds this many standard deviations.
        cap: how many of a user's steps in a cell count, when counts are pooled over steps.
        split: the share of the budget for Grams and rewards of ``"targets"``.
    """

    bonus: float = 0.3
    bias: float = 1.0
    ridge: float = 1.0
    growth: float = 1.3
    target_growth: float = 1.5
    first: float = 4.0
    clip: float = 1.1
    pooled_clip: float = 2.0
    known: float = 1.0
    cap: int = 2
    split: float = 0.5


class LinearAgent(FiniteLearner[Statistic]):
    """A learner for linear MDPs; see :class:`tacit.linear.lsvi_ucb.LSVIUCB` for the arguments."""

    spec: LinearSpec
    default_weights: Literal["variance", "none"] = "none"
    default_switching: Switching = "schedule"
    default_growth: float | None = None
    asks_again: ClassVar[bool] = True

    def __init__(
        self,
        spec: LinearSpec,
        users: int,
        privacy: Privacy,
        *,
        statistic: Literal["auto", "features", "counts", "targets"] = "auto",
        stationary: bool | None = None,
        growth: float | None = None,
        weights: Literal["auto", "variance", "none"] = "auto",
        switching: Literal["auto", "schedule", "determinant", "rayleigh"] = "auto",
        gram_noise: Literal["frobenius", "triangle"] = "frobenius",
        weight_bound: float | None = None,
        bonus: Bonus = "practical",
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        constants: Constants | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(spec, LinearSpec):
            raise InvalidArgument(
                "this agent needs features: spec must be a LinearSpec, as of simplex or two_state, "
                "or of tacit.linear.linear_from_tabular(world) for any finite world; got "
                f"{type(spec).__name__}"
            )
        if stationary is None:
            stationary = spec.stationary_transitions
        self.stationary = flag("stationary", stationary)
        self.constants = Constants() if constants is None else constants
        instance_of("constants", self.constants, Constants)
        seed = whole_number("seed", seed, least=0)
        self.growth = self.default_growth if growth is None else positive("growth", growth)
        # Under privacy weights would make the noise, and so the theory's ridge, depend on data.
        fixed = bonus == "theory" and not isinstance(privacy, NonPrivate)
        own_weights = "none" if fixed else self.default_weights
        self.weights = own_weights if weights == "auto" else weights
        self.gram_noise = gram_noise
        # One factor for all keeps them linear; statistics cut to length 1 whatever comes.
        longest = float(np.sqrt((spec.features**2).sum(axis=-1).max()))
        bound = (
            spec.weight_bound if weight_bound is None else positive("weight_bound", weight_bound)
        )
        self.weight_bound = math.sqrt(spec.dimension) if bound is None else bound
        self._factor = max(1.0, longest)
        self._features = unit_features(spec.features / self._factor)
        self._asked: Statistic | None = None
        self._fixed: dict[bool, Statistic] = {}
        self._variances: Floats | None = None
        self._last_precision: Floats | None = None
        self._answers: list[Release] = []
        self._answered = 0
        self._seen = 0
        self._planned: tuple[Floats, Floats] | None = None
        self.q_values: Floats | None = None
        self.switches = 0
        self.statistic_kind, self._reason = self._choose_statistic(
            spec, privacy, statistic, bonus, calibration
        )
        # What is asked at every release anyway is used at every release.
        own = "schedule" if self.statistic_kind == "targets" else self.default_switching
        self.switching = own if switching == "auto" else switching
        self._sums = BlockSums(plain=bonus == "theory")
        self._counts: Evidence | None = None
        if self.statistic_kind == "counts":
            shape = (1 if self._pooled_for(spec) else spec.horizon, spec.states, spec.actions)
            check_bytes("counts of a linear agent", (*shape, spec.states))
            self._counts = Evidence(shape, plain=not isinstance(privacy, JointDP))
        super().__init__(
            spec,
            users,
            privacy,
            bonus=bonus,
            scale=scale,
            failure=failure,
            calibration=calibration,
            schedule=schedule,
            counter="auto",
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    # The choice of what is asked.

    def _choose_statistic(
        self, spec: LinearSpec, privacy: Privacy, asked: str, bonus: str, calibration: str
    ) -> tuple[Kind, str]:
        if asked not in ("auto", "features", "counts", "targets"):
            raise InvalidArgument(
                f"statistic must be auto, features, counts or targets, got {asked!r}"
            )
        if asked == "targets" and isinstance(privacy, NonPrivate):
            return "features", "without privacy they know the same as 'targets', and cost nothing"
        if asked == "targets" and not isinstance(privacy, JointDP):
            raise InvalidArgument(
                "statistic='targets' asks the same users again, which only a trusted curator can: "
                "use JointDP, or statistic='features'"
            )
        if bonus == "theory" and asked not in ("auto", "features"):
            raise InvalidArgument("bonus='theory' is derived for statistic='features'")
        if bonus == "theory" and (calibration == "as_printed" or needs_l1(privacy)):
            raise InvalidArgument(
                "bonus='theory' is derived for statistic='features', which has Gaussian noise "
                "(delta > 0) and tight calibration"
            )
        if calibration == "as_printed" and asked not in ("auto", "targets"):
            raise InvalidArgument("as printed, values are asked for: statistic='targets'")
        kinds: dict[str, Kind] = {k: k for k in ("features", "counts", "targets")}
        if asked in kinds:
            return kinds[asked], "as asked"
        if calibration == "as_printed":
            return "targets", "as printed"
        if needs_l1(privacy):
            return "counts", "of these only counts have a sensitivity in the 1-norm"
        if isinstance(privacy, NonPrivate):
            return "features", "sums of features answer every question, and cost nothing extra"
        if bonus == "theory":
            return "features", "the theory is for them"
        if spec.states <= 2 * spec.dimension:
            return "counts", (
                f"{spec.states} states are few beside {spec.dimension} features, and a policy "
                "reaches one action in each"
            )
        pooled = self.stationary and spec.stationary_rewards
        many = spec.states > (_MANY_STATES_POOLED if pooled else _MANY_STATES)
        if many and self.asks_again and isinstance(privacy, JointDP):
            return "targets", (
                f"{spec.states} states are many: only values of them are asked for, again after "
                "every block"
            )
        return "features", (
            f"{spec.dimension} features are few beside {spec.states} states, and one release "
            "serves every value function"
        )

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return (
            f"statistic {self.statistic_kind!r}: {self._reason}; {self.schedule.releases} releases "
            f"({self.schedule.name})"
        )

    @property
    def form(self) -> Literal["episodes", "occupancy"]:
        """Episodes where users are summed one by one, else what followed the policy."""
        statistic = self._statistic()
        capped = isinstance(statistic, VisitCounts) and statistic.cap is not None
        clipped = isinstance(statistic, FeatureSums) and statistic.clips
        return "episodes" if capped or clipped else "occupancy"

    @property
    def _pooled(self) -> bool:
        """Whether steps are summed before the gate."""
        return self._pooled_for(self.spec)

    def _pooled_for(self, spec: LinearSpec) -> bool:
        return self.stationary and spec.stationary_rewards and self.statistic_kind != "targets"

    @property
    def _masked(self) -> bool:
        return self.statistic_kind == "counts"

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one sum with weight 1 of the current block."""
        if self.statistic_kind == "targets":
            return 2.0 / self._target_mu
        size = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        return release_noise(self._statistic(), self.privacy, size)

    # What is asked.

    def _statistic(self) -> Statistic:
        if self._asked is None:
            self._asked = self._current_statistic()
        return self._asked

    def _current_statistic(self) -> Statistic:
        one_by_one = self._one_by_one
        if self.statistic_kind == "counts" or self._variances is not None:
            return self._make_statistic(one_by_one)
        # It does not depend on what was learnt, and bounds by all pairs of a table take time.
        if one_by_one not in self._fixed:
            self._fixed[one_by_one] = self._make_statistic(one_by_one)
        return self._fixed[one_by_one]

    @property
    def _one_by_one(self) -> bool:
        """Whether the current block is small enough to sum its users one by one."""
        if isinstance(self.privacy, NonPrivate):
            return False
        size = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        return bool(size <= min(_CLIPPED_UP_TO * self._smallest_block, _ONE_BY_ONE))

    def _make_statistic(self, one_by_one: bool) -> Statistic:
        spec = self.spec
        if self.statistic_kind == "counts":
            cap = min(self.constants.cap, spec.horizon) if self._pooled and one_by_one else None
            return VisitCounts(
                spec.states,
                spec.actions,
                spec.horizon,
                pooled=self._pooled,
                cap=cap,
                policy=self._policy.actions,
                version=self._policy.version,
            )
        return FeatureSums(
            self._features,
            spec.horizon,
            pooled=self._pooled,
            clip=self._clip if one_by_one else None,
            reward=0.0 if spec.known_rewards is not None else 1.0,
            weights=self._step_weights,
            following=self.statistic_kind == "features",
            triangle=self.gram_noise == "triangle",
        )

    @property
    def _clip(self) -> float | None:
        """What typical users' vectors are shorter than; features are public."""
        if self.statistic_kind == "targets":
            return None
        q = (self._features**2).sum(axis=-1)
        rewards = 0.0 if self.spec.known_rewards is not None else 0.25
        typical = math.sqrt(self.spec.horizon * float((q * q + (1.0 + rewards) * q).mean()))
        if not self._pooled:
            return self.constants.clip * typical
        # Pooled sums of signed features are protected by the triangle inequality, at a price that
        # a clip must first earn back.
        return self.constants.pooled_clip * typical if self.spec.nonnegative else None

    # What is known.

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        if isinstance(statistic, VisitCounts) and self._counts is not None:
            self._counts.add(self._conserved(release), statistic, users)
        elif isinstance(statistic, FeatureSums):
            add_features(self._sums, release, statistic, users)

    def _conserved(self, release: Release) -> Release:
        """The release with flow conserved, where its counts are per step and noisy."""
        H, S = self.spec.horizon, self.spec.states
        if self._pooled or H * S > _LARGEST_FLOW or np.max(release.std["transitions"]) == 0.0:
            return release
        start = None if self.spec.start is None else np.array(self.spec.start)
        counts = release["transitions"].reshape(H, S, S)
        better = conserve(counts, float(release.users), start).reshape(H * S, S)
        return replace(release, parts={**release.parts, "transitions": better})

    def _model(self) -> Model:
        """What is known now, as planning asks for it."""
        pooled = (self.stationary, self.spec.stationary_rewards)
        model: Model
        if self._counts is not None:
            model = CellModel(
                self._features,
                self._counts.counts(),
                self.constants.known,
                self._widths,
                pooled,
                self._variances,
            )
        else:
            sums = feature_sums(self._sums)
            of_next = sums.pooled() if pooled[0] else sums
            of_rewards = sums.pooled() if pooled[1] else sums
            model = SumModel(self._features, of_next, of_rewards, self._widths, self.spec.horizon)
        return self._with_rewards(model)

    def _with_rewards(self, model: Model) -> Model:
        known = self.spec.known_rewards
        return model if known is None else KnownRewards(model, known)

    @property
    def _widths(self) -> Widths:
        return Widths(
            scale=self.scale * self.constants.bonus,
            bias=self.scale * self.constants.bias,
            ridge=self.constants.ridge,
            theory=self.bonus == "theory",
            failure=self.failure,
            samples=self.users,
            releases=self.schedule.releases,
            weight_bound=self.weight_bound * self._factor,
        )

    # Planning.

    def _plan(self) -> tuple[Policy, Policy]:
        self._asked = None
        if self._planned is not None:
            (optimistic, greedy), self._planned = self._planned, None
        else:
            model = self._model()
            if not self._switch(model):
                # The same actions, under the version that the next block will follow.
                return self._renamed(self._policy), self._renamed(self._greedy)
            optimistic, greedy = self._values(model)
        self.switches += 1
        return self._best(optimistic), self._best(greedy)

    def _renamed(self, policy: Policy) -> Policy:
        actions = policy.actions
        assert actions is not None  # noqa: S101
        return Policy.deterministic(actions, self.spec.actions, version=self.releases)

    def _switch(self, model: Model) -> bool:
        """Whether enough was learnt since the last switch; reads public matrices only."""
        if self.switching == "schedule":
            return True
        new = model.precision()
        old, self._last_precision = self._last_precision, new
        if old is None:
            return True
        if self.switching == "determinant":
            grown = np.linalg.slogdet(new)[1] - np.linalg.slogdet(old)[1] >= math.log(2.0)
        else:
            # The largest ratio x'Nx / x'Ox over directions x.
            lower = np.linalg.inv(np.linalg.cholesky(old))
            ratios = np.linalg.eigvalsh(lower @ new @ np.swapaxes(lower, -1, -2))
            grown = ratios[..., -1] >= 2.0
        if not grown.any():
            self._last_precision = old
        return bool(grown.any())

    def _values(self, model: Model) -> tuple[Floats, Floats]:
        """Optimistic and greedy action values (H, S, A)."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        names = self._value_functions
        q_values = {name: np.zeros((H, S, A)) for name in (*names, "greedy")}
        values = {name: np.zeros(S) for name in names}
        variances = np.zeros((H, S, A))
        for h in range(H - 1, -1, -1):
            left = float(H - h)
            rewards, reward_widths = model.rewards(h)
            rewards, reward_widths = np.clip(rewards, 0.0, 1.0), np.minimum(reward_widths, 1.0)
            means = widths = np.zeros((len(names), S, A))
            if h < H - 1:
                asked = [values[name] for name in names]
                if self.weights == "variance":
                    asked.append(values["optimistic"] ** 2)
                means, widths = model.next_values(h, np.array(asked))
                variances[h] = self._variance(dict(zip(names, means, strict=False)), means[-1])
            for name, mean, width in zip(names, means, widths, strict=False):
                sign = {"optimistic": 1.0, "greedy": 0.0, "pessimistic": -1.0}[name]
                sums = rewards + mean + sign * (reward_widths + width)
                q_values[name][h] = self._bounded(name, h, np.clip(sums, 0.0, left))
                values[name] = q_values[name][h].max(axis=1)
            if "greedy" not in names:
                q_values["greedy"][h] = np.clip(rewards + means[0], 0.0, left)
        if self.weights == "variance":
            pooled = self._pooled or (self._counts is not None and self.stationary)
            self._variances = variances.mean(axis=0, keepdims=True) if pooled else variances
        self.q_values = q_values["optimistic"]
        return q_values["optimistic"], q_values["greedy"]

    def _variance(self, means: dict[str, Floats], square: Floats) -> Floats:
        """An estimate of the variance of the next optimistic value (S, A), on the safe side.

        What the value functions themselves may be off by counts as spread.
        """
        mean = means["optimistic"]
        variance = np.maximum(square - mean**2, 0.0)
        if "pessimistic" in means:
            variance = variance + np.maximum(mean - means["pessimistic"], 0.0) ** 2
        return variance

    @property
    def _step_weights(self) -> Floats | None:
        """Public weights in (0, 1] of the steps of the current block, where they have any.

        A step's weight falls with the variance of its next value, from where that is above its
        median.
        """
        if self._variances is None or self._counts is not None:
            return None
        flat = self._variances.reshape(len(self._variances), -1)
        typical = np.median(flat, axis=1)[:, np.newaxis, np.newaxis]
        safe = np.where(self._variances > 0.0, self._variances, 1.0)
        return np.where(self._variances > typical, typical / safe, 1.0).clip(0.05, 1.0)

    @property
    def _value_functions(self) -> tuple[str, ...]:
        """Which value functions planning follows."""
        # What is asked of users again costs, so greedy values are not.
        return ("optimistic",) if self.statistic_kind == "targets" else ("optimistic", "greedy")

    def _bounded(self, name: str, step: int, q_values: Floats) -> Floats:
        """A last bound on action values, for agents that have one."""
        return q_values

    # Asking again: statistic="targets".

    def _release(self, block: Block, user_ids: Sequence[int | str] | None) -> None:
        if self.statistic_kind != "targets":
            super()._release(block, user_ids)
            return
        self._curator.add(block, user_ids)
        self._forget_the_poor()
        self._ask_about_values(block.users)

    def _forget_the_poor(self) -> None:
        """Drops blocks that cannot pay for another round: a crash made them pay for nothing."""
        curator = self._curator
        assert isinstance(curator, JointCurator)  # noqa: S101
        price = self._gram_mu**2 + (self.spec.horizon - 1) * self._target_mu**2
        newest = max(curator.blocks)
        for number in curator.blocks:
            share = 1.0 if self.calibration == "as_printed" else self._decay ** (number - newest)
            if curator.remaining(number) < price * share**2 * (1.0 - 1e-9):
                curator.forget(number)

    def _ask_about_values(self, users: int) -> None:
        """One release of Grams and rewards, then one of values per step, last step first."""
        with self._at_the_gate(users), self._round():
            self._answered = 0
            statistic = self._statistic()
            assert isinstance(statistic, FeatureSums)  # noqa: S101
            sums = BlockSums()
            add_features(sums, self._ask(statistic, self._gram_mu), statistic, users)
            model = AnswerModel(
                self._features,
                feature_sums(sums),
                self._ask_targets,
                self._widths,
                self.spec.stationary_rewards,
            )
            self._planned = self._values(self._with_rewards(model))
        self._advance(users)

    @contextlib.contextmanager
    def _round(self) -> Iterator[None]:
        """Answers are of one round: whatever ends it, no later one begins with them."""
        try:
            yield
        finally:
            self._answers, self._seen = [], self._curator.releases

    def _ask_targets(self, step: int, targets: Floats) -> tuple[Floats, float]:
        weights = self._step_weights
        statistic = TargetSums(
            self._features,
            self.spec.horizon,
            step,
            targets,
            None if weights is None else weights[min(step, len(weights) - 1)],
        )
        answer = self._ask(statistic, self._target_mu)
        return answer["targets"], float(np.max(answer.std["targets"]))

    def _ask(self, statistic: Statistic, mu: float) -> Release:
        """An answer that is there from before an interruption, or a new release."""
        self._answered += 1
        if self._answered <= len(self._answers):
            return self._answers[self._answered - 1]
        decay = None if self.calibration == "as_printed" else self._decay
        assert isinstance(self._curator, JointCurator)  # noqa: S101
        self._answers.append(self._curator.release(statistic, mu=mu, decay=decay))
        self._seen = self._answers[-1].index + 1
        return self._answers[-1]

    @property
    def _decay(self) -> float:
        """By which the weight of a block falls from release to release."""
        return self.constants.target_growth if self.growth is None else self.growth

    @property
    def _gram_mu(self) -> float:
        """What Grams and rewards cost the newest users."""
        shares = self.constants.split if self.spec.horizon > 1 else 1.0
        return math.sqrt(shares * self._epoch_limit)

    @property
    def _target_mu(self) -> float:
        """What one step's values cost the newest users."""
        share = (1.0 - self.constants.split) / max(1, self.spec.horizon - 1)
        return math.sqrt(share * self._epoch_limit)

    @cached_property
    def _epoch_limit(self) -> float:
        """mu^2 of the newest users for one round: with decaying weights all rounds add up to 1."""
        assert isinstance(self.privacy, JointDP)  # noqa: S101
        return float(self.privacy.episode_limit * (1.0 - self._decay**-2.0))

    def _forget_blocks(self) -> None:
        kept = 0
        if self.statistic_kind == "targets":
            kept = self.schedule.releases
            if self.calibration == "tight":
                # The oldest of these will weigh decay^-kept in the next round.
                kept = math.floor(math.log(1.0 / _FORGOTTEN) / math.log(self._decay))
        for number in sorted(self._curator.blocks)[: -kept or None]:
            self._curator.forget(number)

    def _catch_up(self) -> None:
        if self.statistic_kind != "targets":
            super()._catch_up()
            return
        last = self._curator.last_release
        if last is not None and last.index >= self._seen:
            # Saved before it was published.
            self._answers.append(last)
            self._seen = last.index + 1
        if self._answers:
            # A crash can make users pay for an answer that nobody saw. If anybody cannot pay for
            # the rest of the round, it is given up: those who can are asked in the next one.
            with contextlib.suppress(BudgetExceeded):
                self._ask_about_values(self.block_users)

    # Choices made before the first user comes.

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        choices = {
            "weights": ("variance", "none"),
            "switching": ("schedule", "determinant", "rayleigh"),
            "gram_noise": ("frobenius", "triangle"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InvalidArgument(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if self.growth is not None and positive("growth", self.growth) <= 1.0:
            raise InvalidArgument(f"growth must be > 1, got {self.growth!r}")
        if not (math.isfinite(self.weight_bound) and self.weight_bound > 0):
            raise InvalidArgument(f"weight_bound must be > 0, got {self.weight_bound!r}")
        if self.statistic_kind == "targets":
            if self.switching != "schedule":
                raise InvalidArgument(
                    "statistic='targets' asks at every release, so it switches by schedule"
                )
            if isinstance(self.privacy, JointDP) and self.privacy.disjoint:
                raise InvalidArgument(
                    "statistic='targets' asks the users of several blocks at once: leave "
                    "disjoint=True out"
                )
        if self.statistic_kind != "counts" and needs_l1(self.privacy):
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0"
            )
        if self.statistic_kind == "counts" and self.gram_noise != "frobenius":
            raise InvalidArgument(
                "statistic='counts', which was asked for or chosen, has no Gram matrix: leave "
                "gram_noise out, or give statistic='features'"
            )
        private = not isinstance(self.privacy, NonPrivate)
        if self.bonus == "theory" and private and self.weights != "none":
            raise InvalidArgument("bonus='theory' under privacy is derived for weights='none'")
        if self.bonus == "theory" and self.gram_noise != "frobenius":
            raise InvalidArgument("bonus='theory' is derived for gram_noise='frobenius'")
        bits = isinstance(self.privacy, LocalDP) and self.privacy.mechanism == "randomised response"
        if bits and self._pooled:
            raise InvalidArgument(
                "randomised response is for counts per step: give stationary=False"
            )

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if not isinstance(schedule, str) or schedule != "auto":
            return Schedule.of(schedule, self.users)
        growth = self.constants.growth if self.growth is None else self.growth
        if self.statistic_kind == "targets":
            growth = self._decay
        if self.calibration == "as_printed":
            # Blocks that stand out of the paper's noise would be larger than the population.
            return Schedule("auto", growing(self.users, min(100, self.users), growth))
        return Schedule("auto", growing(self.users, self._smallest_block, growth))

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        first = self.constants.first
        if self.statistic_kind == "targets":
            return math.ceil(first * 2.0 / self._target_mu)
        return users_above_noise(self._make_statistic(one_by_one=True), self.privacy, first)

    # Save and resume.

    def _identity(self) -> dict[str, Any]:
        names = ("statistic_kind", "stationary", "growth", "weights", "switching", "gram_noise")
        own = {name: getattr(self, name) for name in (*names, "weight_bound")}
        return super()._identity() | own | {"constants": repr(self.constants)}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        meta: dict[str, Any] = {"switches": self.switches}
        arrays: Arrays = {}
        if self._counts is not None:
            meta |= {"noise": self._counts.noise, "reward_noise": self._counts.reward_noise}
            arrays |= {f"counts/{name}": getattr(self._counts, name) for name in _COUNTS}
        else:
            meta["sums"], parts = self._sums.dump()
            arrays |= {f"sums/{name}": array for name, array in parts.items()}
        for name in _KEPT:
            if getattr(self, name) is not None:
                arrays[name.lstrip("_")] = getattr(self, name)
        if self.statistic_kind == "targets":
            meta["seen"] = self._seen
            meta["answers"] = [_release_meta(answer) for answer in self._answers]
            for i, answer in enumerate(self._answers):
                arrays |= {f"answers/{i}/{name}": part for name, part in answer.parts.items()}
        return meta, arrays

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self.switches, self._asked = meta["switches"], None
        if self._counts is not None:
            self._counts.noise, self._counts.reward_noise = meta["noise"], meta["reward_noise"]
            for name in _COUNTS:
                setattr(self._counts, name, arrays[f"counts/{name}"])
        else:
            self._sums.restore(meta["sums"], below(arrays, "sums/"))
        for name in _KEPT:
            setattr(self, name, arrays.get(name.lstrip("_")))
        if self.statistic_kind == "targets":
            self._seen = meta["seen"]
            self._answers = [
                Release(parts=below(arrays, f"answers/{i}/"), **fields)
                for i, fields in enumerate(meta["answers"])
            ]


_KEPT = ("q_values", "_variances", "_last_precision")
_COUNTS = ("transitions", "rewards", "visits", "variance", "reached")


def _release_meta(release: Release) -> dict[str, Any]:
    return {
        "index": release.index,
        "statistic": release.statistic,
        "std": {name: float(np.max(value)) for name, value in release.std.items()},
        "users": release.users,
        "cost": release.cost,
    }
