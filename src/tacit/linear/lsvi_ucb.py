"""LSVI-UCB: optimistic least-squares value iteration on private sums (Jin et al. 2020).

The page says how values are planned backwards from what is known
(:meth:`LSVIUCB.backward_induction`), which is a ridge regression with a bonus for what is
uncertain, one for each statistic: :mod:`~tacit.linear.features` and :mod:`~tacit.linear.counts`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats, Plan, Progress
from tacit.linear.base import LinearAlgorithm, Memory

if TYPE_CHECKING:
    from tacit.linear.estimate import LinearModel

# What is added to the mean, in widths.
_SIGNS = {"optimistic": 1.0, "greedy": 0.0, "pessimistic": -1.0}


class LSVIUCB(LinearAlgorithm):
    """Optimistic least-squares value iteration (Jin et al. 2020), also private.

    Idea: rewards and next values are linear in known features, so ridge regression on the sums of
    features predicts them for states and actions that nobody visited. Add a bonus for what is
    uncertain, by sampling or by privacy noise, and follow the best policy.

    Private statistics: by ``statistic``, :class:`~tacit.linear.statistics.FeatureSums`,
    or :class:`~tacit.finite.visits.VisitCounts` along the block's policy.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: policies are replanned at the releases of a schedule; the bonus uses
    the noise's real size and practical constants; rewards are learnt where they are unknown.

    Cost: one release and H small regressions per block, whatever its number of users.
    """

    name = "lsvi_ucb"

    # How it plans; queries and updates are those of the statistic.

    def plan(self, state: Any, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """The best actions by optimistic values and by expected ones, or those of before."""
        if last is None:
            first = self.first_policy(rng)
            return Plan(first, first, Memory())
        model = self.estimator.model(state, last.memory.variances)
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
