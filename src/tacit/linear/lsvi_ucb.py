"""LSVI-UCB: optimistic least-squares value iteration on private sums (Jin et al. 2020).

The page says what is asked, of every user once with the whole budget, and how values are planned
backwards from what is known (:meth:`LSVIUCB.backward_induction`), which is a ridge regression with
a bonus for what is uncertain, one for each statistic: :mod:`~tacit.linear.estimate`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tacit.core.algorithm import BlockInfo, Floats, Plan, Progress
from tacit.data.sizes import check_bytes
from tacit.linear.estimate import CellModel, LinearModel, LinearWidths, SumModel, Sums
from tacit.linear.statistics import FeatureSums, unit_features
from tacit.numerics.regression import BlockSums
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.count_estimate import CountEstimate, conserved
from tacit.tabular.sum_algorithm import SumAlgorithm, SumOptions
from tacit.tabular.visits import VisitCounts

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.linear.spec import LinearSpec
    from tacit.privacy.curator import Release
    from tacit.privacy.models import Privacy

# Scale of widths by sampling and noise; those by what the ridge hides are taken as they are.
_BONUS = 0.3
# The longest vector of a user, in typical lengths of one with steps apart; and for pooled sums.
_CLIP, _POOLED_CLIP = 1.1, 2.0
# How many of a user's steps in a cell count, when counts are pooled over steps.
_CAP = 2
# What is added to the mean, in widths.
_SIGNS = {"optimistic": 1.0, "greedy": 0.0, "pessimistic": -1.0}

State = BlockSums | CountEstimate
"""What the sums, or the counts, of all blocks add up to."""


@dataclass(frozen=True, kw_only=True)
class LinearOptions(SumOptions):
    """Options of linear algorithms.

    Attributes:
        statistic: what is asked of users: ``"features"``, ``"counts"``, or ``"auto"``, which says
            in ``why`` what it chose.
        weights: ``"variance"`` weights steps by the variance of their next value, as LSVI-UCB++
            does; ``"none"`` does not; ``"auto"`` is the algorithm's own.
    """

    statistic: Literal["auto", "features", "counts"] = "auto"
    weights: Literal["auto", "variance", "none"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistic not in ("auto", "features", "counts"):
            raise InvalidArgument(
                f"statistic must be auto, features or counts, got {self.statistic!r}"
            )
        if self.weights not in ("auto", "variance", "none"):
            raise InvalidArgument(f"weights must be auto, variance or none, got {self.weights!r}")


@dataclass(frozen=True, eq=False)
class Memory:
    """What a plan leaves to the query about its users, and to the next plan."""

    switches: int = 0  # policies that were planned; other releases keep the last one
    variances: Floats | None = None  # of next values, (1 or H, S, A), where they weigh steps
    precision: Floats | None = None  # (L, d, d), when the policy was planned


class LSVIUCB(SumAlgorithm[State]):
    """Optimistic least-squares value iteration (Jin et al. 2020), also private.

    Idea: rewards and next values are linear in known features, so ridge regression on the sums of
    features predicts them for states and actions that nobody visited. Add a bonus for what is
    uncertain, by sampling or by privacy noise, and follow the best policy.

    Private statistics: by ``statistic``, :class:`~tacit.linear.statistics.FeatureSums`,
    or :class:`~tacit.tabular.visits.VisitCounts` along the block's policy.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: policies are replanned at the releases of a schedule; the bonus uses
    the noise's real size and practical constants; rewards are learnt where they are unknown.

    Cost: one release and H small regressions per block, whatever its number of users.
    """

    name = "lsvi_ucb"

    spec: LinearSpec
    options: LinearOptions
    Options = LinearOptions
    default_weights: ClassVar[Literal["variance", "none"]] = "none"

    def __init__(self, problem: Problem, options: LinearOptions) -> None:
        spec: LinearSpec = problem.spec
        if not hasattr(spec, "weight_bound"):
            raise InvalidArgument(
                "this agent needs features: spec must be a LinearSpec, as of simplex or two_state, "
                "or of tacit.linear.linear_from_tabular(world) for any finite world; got "
                f"{type(spec).__name__}"
            )
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.weights = self.default_weights if options.weights == "auto" else options.weights
        self.statistic_kind, self._reason = choose_statistic(spec, problem.privacy, options)
        # One factor for all keeps them linear; statistics cut to length 1 whatever comes.
        longest = max(1.0, float(np.sqrt((spec.features**2).sum(axis=-1).max())))
        self.features = unit_features(spec.features / longest)
        self.pooled = self.stationary and spec.stationary_rewards
        super().__init__(problem, options)

    def _check(self) -> None:
        super()._check()
        if self.privacy.reports_bits and self.pooled:
            raise InvalidArgument(
                "randomised response is for counts per step: give stationary=False"
            )
        if self.statistic_kind == "counts":
            check_bytes("counts of a linear agent", (*self._cells, self.spec.states))

    @property
    def _cells(self) -> tuple[int, int, int]:
        """Shape of a table of counts, (L, S, A)."""
        return 1 if self.pooled else self.spec.horizon, self.spec.states, self.spec.actions

    def init(self) -> State:
        """No sums."""
        if self.statistic_kind == "counts":
            return CountEstimate.empty(self._cells, plain=not self.privacy.joint)
        return BlockSums()

    # What is asked.

    def data_format(self, at: Progress) -> Literal["episodes", "occupancy"]:
        """Episodes where users are summed one by one, else what followed the policy."""
        one_by_one = self.one_by_one(at)
        if self.statistic_kind == "counts":
            return "episodes" if one_by_one and self.pooled else "occupancy"
        return "episodes" if self._unweighted[one_by_one].clips else "occupancy"

    def statistic(self, plan: Plan, one_by_one: bool) -> FeatureSums | VisitCounts:
        """Sums of features weighted as the plan has it, or counts along its policy.

        Counts that are pooled over steps have a cap.
        """
        spec = self.spec
        if self.statistic_kind == "counts":
            return VisitCounts(
                spec.states,
                spec.actions,
                spec.horizon,
                pooled=self.pooled,
                cap=min(_CAP, spec.horizon) if self.pooled and one_by_one else None,
                policy=plan.policy.actions,
                version=plan.policy.version,
            )
        if plan.memory.variances is None:
            return self._unweighted[one_by_one]
        return self._feature_sums(one_by_one, step_weights(plan.memory.variances))

    @cached_property
    def _unweighted(self) -> tuple[FeatureSums, FeatureSums]:
        """Kept, as they do not depend on what was learnt: bounds by all pairs take time."""
        return self._feature_sums(False, None), self._feature_sums(True, None)

    def _feature_sums(self, one_by_one: bool, weights: Floats | None) -> FeatureSums:
        return FeatureSums(
            self.features,
            self.spec.horizon,
            pooled=self.pooled,
            clip=self._clip if one_by_one else None,
            reward=0.0 if self.spec.known_rewards is not None else 1.0,
            weights=weights,
        )

    @property
    def _clip(self) -> float | None:
        """What typical users' vectors are shorter than; features are public."""
        q = (self.features**2).sum(axis=-1)
        rewards = 0.0 if self.spec.known_rewards is not None else 0.25
        typical = math.sqrt(self.spec.horizon * float((q * q + (1.0 + rewards) * q).mean()))
        if not self.pooled:
            return _CLIP * typical
        # Pooled sums of signed features are protected by the triangle inequality, at a price that
        # a clip must first earn back.
        return _POOLED_CLIP * typical if self.spec.nonnegative else None

    # What is estimated.

    def update(
        self,
        state: State,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> State:
        """All sums with those of one more block; rewards not asked for are zero."""
        if isinstance(state, CountEstimate):
            counts = release if self.pooled else conserved(release, self.spec)
            return state.added(counts, self.query(state, plan, block), block.users)
        unit = float(np.max(release.std["gram"]))
        parts = {"rewards": np.zeros(release["next"].shape[:2]), **release.parts}
        noise = {name: unit * (name in release.parts) for name in parts}
        return state.added(parts, noise, unit, block.users)

    def model(self, state: State, variances: Floats | None) -> LinearModel:
        """Regressions on all blocks; those on counts are weighted by variances of next values."""
        spec, widths = self.spec, LinearWidths(self.options.scale * _BONUS, self.options.scale)
        if isinstance(state, CountEstimate):
            pooled = self.stationary, spec.stationary_rewards
            return CellModel(self.features, state.counts(), widths, pooled, variances)
        gram, following, rewards = (state.scaled(name) for name in ("gram", "next", "rewards"))
        noises = (float(state.noise(name)) for name in ("next", "gram", "rewards"))
        sums = Sums(gram, following, rewards, *noises)
        return SumModel(
            self.features,
            sums.pooled() if self.stationary else sums,
            sums.pooled() if spec.stationary_rewards else sums,
            widths,
        )

    # How it is optimistic, and how it plans.

    def plan(self, state: State, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """The best actions by optimistic values and by expected ones, or those of before."""
        if last is None:
            first = self.first_policy(rng)
            return Plan(first, first, Memory())
        model = self.model(state, last.memory.variances)
        memory = self.switch(model, last.memory)
        if memory is None:
            return last
        Q, variances = self.backward_induction(model)
        if self.weights == "variance":
            # Later blocks weigh their steps by them.
            pooled = self.pooled or (self.statistic_kind == "counts" and self.stationary)
            variances = variances.mean(axis=0, keepdims=True) if pooled else variances
            memory = replace(memory, variances=variances)
        return Plan(self.best(Q["optimistic"], rng), self.best(Q["greedy"], rng), memory)

    def backward_induction(self, model: LinearModel) -> tuple[dict[str, Floats], Floats]:
        """Action values by least squares, from the last step to the first, and their variances.

        Q_h = [r_h + P_h V_{h+1} + width] cut to [0, H - h] and V_h = max_a Q_h, where the model
        predicts r and P V with a width each: P V = w'phi and w = Lambda^-1 sum phi V(s'), as in
        lines 4 to 20 of DP-LSVI-UCB++ (Sahu), which LSVI-UCB++ completes.

        Returns:
            Values (H, S, A) by the names of ``value_functions``, and variances (H, S, A) of the
            next optimistic value, where they weigh steps.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        names, known = self.value_functions, self.spec.known_rewards
        Q = {name: np.zeros((H, S, A)) for name in names}
        V = {name: np.zeros(S) for name in names}
        variances = np.zeros((H, S, A))
        for h in range(H - 1, -1, -1):
            left = float(H - h)
            if known is None:
                rewards, reward_widths = model.rewards(h)
            else:
                rewards, reward_widths = known[min(h, len(known) - 1)], np.zeros((S, A))
            rewards, reward_widths = np.clip(rewards, 0.0, 1.0), np.minimum(reward_widths, 1.0)
            means = widths = np.zeros((len(names), S, A))
            if h < H - 1:
                values = [V[name] for name in names]
                if self.weights == "variance":
                    values.append(V["optimistic"] ** 2)
                asked = np.array(values)
                means, widths = model.next_values(h, asked)
                variances[h] = next_variance(dict(zip(names, means, strict=False)), means[-1])
            for name, mean, width in zip(names, means, widths, strict=False):
                sums = rewards + mean + _SIGNS[name] * (reward_widths + width)
                Q[name][h] = np.clip(sums, 0.0, left)
                V[name] = Q[name][h].max(axis=1)
        return Q, variances

    @property
    def value_functions(self) -> tuple[str, ...]:
        """Which value functions planning follows."""
        return ("optimistic", "greedy")

    def switch(self, model: LinearModel, memory: Memory) -> Memory | None:
        """Memory of a new plan, or ``None`` to keep the last; by the schedule, always a new one."""
        return replace(memory, switches=memory.switches + 1)


def step_weights(variances: Floats) -> Floats:
    """Public weights in (0, 1] of steps: less where the next value varies more than usually."""
    flat = variances.reshape(len(variances), -1)
    typical = np.median(flat, axis=1)[:, np.newaxis, np.newaxis]
    safe = np.where(variances > 0.0, variances, 1.0)
    return np.where(variances > typical, typical / safe, 1.0).clip(0.05, 1.0)


def next_variance(means: dict[str, Floats], square: Floats) -> Floats:
    """An estimate of the variance of the next optimistic value (S, A), on the safe side.

    What the value functions themselves may be off by counts as spread; ``square`` is the expected
    square of the next optimistic value.
    """
    mean = means["optimistic"]
    variance = np.maximum(square - mean**2, 0.0)
    if "pessimistic" in means:
        variance = variance + np.maximum(mean - means["pessimistic"], 0.0) ** 2
    return variance


def choose_statistic(spec: LinearSpec, privacy: Privacy, options: LinearOptions) -> tuple[str, str]:
    """Kind of statistic, and why."""
    n, d = spec.states, spec.dimension
    if options.statistic != "auto":
        return options.statistic, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    if not privacy.private:
        return "features", "sums of features answer every question, and cost nothing extra"
    if n <= 2 * d:
        few = f"{n} states are few beside {d} features"
        return "counts", f"{few}, and a policy reaches one action in each"
    few = f"{d} features are few beside {n} states"
    return "features", f"{few}, and one release serves every value function"
