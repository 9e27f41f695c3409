"""LSVI-UCB: optimistic least-squares value iteration on private sums (Jin et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import BlockInfo, Floats, Plan, Progress
from tacit.linear.estimate import CellEstimator, FeatureEstimator, LinearModel
from tacit.linear.statistics import need_features, unit_features
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import check_bytes, one_of
from tacit.tabular.sum_algorithm import SumAlgorithm, SumOptions

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.linear.worlds import LinearSpec
    from tacit.privacy.curator import Release
    from tacit.privacy.models import Privacy

# Scale of widths by sampling and noise; those by what the ridge hides are taken as they are.
_BONUS = 0.3

State: TypeAlias = Any  # weighted sums of all blocks: BlockSums, or a CountEstimate of cells


@dataclass(frozen=True, kw_only=True)
class LinearOptions(SumOptions):
    """Options of LSVI-UCB and LSVI-UCB++.

    Attributes:
        statistic: sums of ``"features"``, ``"counts"`` of cells, or ``"auto"``: the one that suits
            the spec and the privacy model; ``why`` names it.
    """

    statistic: Literal["auto", "features", "counts"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("statistic", self.statistic, ("auto", "features", "counts"))


@dataclass(frozen=True, eq=False)
class LinearMemory:
    """Part of a plan that later queries and plans read."""

    switches: int = 0  # policies that were planned; other releases keep the last one
    variances: Floats | None = None  # of next values, (1 or H, S, A), where they weigh steps
    precision: Floats | None = None  # (L, d, d), when the policy was planned


class LSVIUCB(SumAlgorithm[State]):
    """Optimistic least-squares value iteration (Jin et al. 2020), also private.

    Idea: rewards and next values are linear in known features, so ridge regression on the sums of
    features predicts them for states and actions without visits. Add a bonus for what is
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
    signs: ClassVar[tuple[float, ...]] = (1.0, 0.0)
    """Widths added to each value function: the optimistic one, then the greedy one."""
    weighted: ClassVar[bool] = False
    """Whether steps are weighted by the variance of their next value."""

    def __init__(self, problem: Problem, options: LinearOptions) -> None:
        spec: LinearSpec = problem.spec
        need_features(spec)
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        # One factor for all keeps them linear; statistics cut to length 1 whatever comes.
        longest = max(1.0, float(np.sqrt((spec.features**2).sum(axis=-1).max())))
        self.features = unit_features(spec.features / longest)
        widths = (options.scale * _BONUS, options.scale)
        self.statistic_kind, self._reason = choose_statistic(spec, problem.privacy, options)
        kind = CellEstimator if self.statistic_kind == "counts" else FeatureEstimator
        plain = not problem.privacy.joint
        self.estimator: Any = kind(spec, self.features, self.stationary, widths, plain)
        super().__init__(problem, options)

    def _check(self) -> None:
        super()._check()
        if self.privacy.reports_bits and self.estimator.pooled:
            raise InvalidArgument(
                "randomised response is for counts per step: give stationary=False"
            )
        if isinstance(self.estimator, CellEstimator):
            check_bytes("counts of a linear agent", (*self.estimator.cells, self.spec.states))

    def init(self) -> State:
        """No sums."""
        return self.estimator.empty()

    def statistic(self, plan: Plan, one_by_one: bool) -> Any:
        """Sums of features, weighted by the plan's variances, or counts along its policy."""
        return self.estimator.statistic(plan.policy, plan.memory.variances, one_by_one)

    def data_format(self, at: Progress) -> Literal["episodes", "counts"]:
        """Episodes where a clip or a cap must see users one by one, else sums."""
        return "episodes" if self.estimator.clips(self.one_by_one(at)) else "counts"

    def update(
        self, state: State, plan: Plan, release: Release, block: BlockInfo, rng: Generator
    ) -> State:
        """Sums over all blocks, with those of one more. Args: see Algorithm.update."""
        return self.estimator.added(state, release, self.query(state, plan, block))

    def plan(self, state: State, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Best actions by optimistic and by expected values. Args: see Algorithm.plan."""
        if last is None:
            first = self.first_policy(rng)
            return Plan(first, first, LinearMemory())
        Q, _ = self.backward_induction(self.estimator.model(state, None))
        memory = LinearMemory(last.memory.switches + 1)
        return Plan(self.best(Q[0], rng), self.best(Q[1], rng), memory)

    def backward_induction(self, model: LinearModel) -> tuple[Floats, Floats]:
        """Action values by least squares, from the last step to the first, and variances.

        Q_h = [r_h + P_h V_{h+1} + sign width] cut to [0, H - h] and V_h = max_a Q_h, where the
        model predicts r and P V with a width each: P V = w'phi and w = Lambda^-1 sum phi V(s'), as
        in lines 4 to 20 of DP-LSVI-UCB++ (Sahu), which LSVI-UCB++ completes.

        Returns:
            Values (k, H, S, A), one for each of ``signs``, and variances (H, S, A) of the next
            optimistic value, where they weigh steps.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        signs = np.array(self.signs)[:, np.newaxis, np.newaxis]
        k = len(signs)
        Q, V, variances = np.zeros((k, H, S, A)), np.zeros((k, S)), np.zeros((H, S, A))
        for h in range(H - 1, -1, -1):
            r, r_width = self._rewards(model, h)
            PV = width = np.zeros((k, S, A))
            if h < H - 1:
                PV, width = model.next_values(h, np.vstack([V, V[:1] ** 2]) if self.weighted else V)
                if self.weighted:
                    # On the safe side: the difference of both bounds counts as spread.
                    variances[h] = np.maximum(PV[k] - PV[0] ** 2, 0.0)
                    variances[h] += np.maximum(PV[0] - PV[2], 0.0) ** 2
            Q[:, h] = np.clip(r + PV[:k] + signs * (r_width + width[:k]), 0.0, float(H - h))
            V = Q[:, h].max(axis=2)
        return Q, variances

    def _rewards(self, model: LinearModel, h: int) -> tuple[Floats, Floats]:
        """Mean rewards in [0, 1] and widths, known or regressed, (S, A)."""
        known = self.spec.known_rewards
        if known is not None:
            return known[min(h, len(known) - 1)], np.zeros(known.shape[1:])
        means, widths = model.rewards(h)
        return np.clip(means, 0.0, 1.0), np.minimum(widths, 1.0)


def choose_statistic(spec: LinearSpec, privacy: Privacy, options: LinearOptions) -> tuple[str, str]:
    """Kind of statistic, and why."""
    n, d = spec.states, spec.dimension
    if options.statistic != "auto":
        return options.statistic, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    if privacy.private and n <= 2 * d:
        return "counts", f"{n} states are few beside {d} features"
    return "features", "one release serves every value function"
