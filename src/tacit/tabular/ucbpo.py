"""UCBPO: optimistic policy optimisation on private counts (Private-UCB-PO of Chowdhury, Zhou).

Between two releases the private model does not change, so mirror steps on it cost nothing. In a
fixed world with values cut to [0, steps left], M steps pi <- pi exp(eta Q_pi), with
Q_pi evaluated anew each time and eta at least as large as in the step before, leave the policy at
most

    (H ln A / eta + H^2) / M

below the best one from uniform probabilities: values never fall from step to step, because
expectations of larger values are larger and so are cuts of them; <pi* - pi, Q_pi> is at most
(KL(pi*, pi) - KL(pi*, next)) / eta + (value of next - value of pi), and both telescope (eta in the
bound is the first one). The steps end when this optimisation error is below a share of the
release's statistical width: how much the best policy expects of its bonuses. So regret is that of
the widths, but for a constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from tacit.core.algorithm import Floats, Plan, Progress
from tacit.privacy.validation import positive, whole_number
from tacit.tabular.algorithm import OptimismOptions
from tacit.tabular.count_estimate import CountEstimate
from tacit.tabular.policy import Policy, row_of, uniform_policy
from tacit.tabular.spec import FiniteSpec
from tacit.tabular.ucbvi import UCBVI, ServedPolicy, UCBVIOptions

# No action is less likely than this before the steps of a release: nothing that was learnt from
# less is held against it for ever.
_FLOOR = 1e-3


class Optimistic(NamedTuple):
    """An optimistic world: what is estimated, and what is added for not knowing."""

    transitions: Floats  # P(s' | s, a), (L, S, A, S), with one row for all steps or one per step
    rewards: Floats  # r(s, a), (L, S, A), with its own L
    bonus: Floats  # b_h(s, a), (H, S, A)

    def best(self, horizon: int) -> tuple[Floats, Floats]:
        """Values (S,) of the best policy at the first step, and what it expects of bonuses."""
        value, width = np.zeros((2, self.rewards.shape[1]))
        for h in range(horizon - 1, -1, -1):
            P, r = (array[row_of(h, horizon, len(array))] for array in self[:2])
            left = horizon - h
            q = np.clip(r + P @ value + self.bonus[h], 0.0, left)
            chosen = q.argmax(axis=1)[:, np.newaxis]
            widths = np.clip(np.maximum(self.bonus[h], 0.0) + P @ width, 0.0, left)
            value, width = (np.take_along_axis(x, chosen, 1)[:, 0] for x in (q, widths))
        return value, width


@dataclass(frozen=True, kw_only=True)
class MirrorOptions(OptimismOptions):
    """Options of policy optimisation.

    Attributes:
        eta: size of the first mirror step of a release; each next one is a tenth larger.
        error: steps end when the optimisation error is below this share of the statistical width;
        steps: or after so many of them per release.
    """

    eta: float = 1.0
    error: float = 0.05
    steps: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("eta", self.eta)
        positive("error", self.error)
        whole_number("steps", self.steps)


def improved(table: Floats, world: Optimistic, spec: FiniteSpec, options: MirrorOptions) -> Floats:
    """A stochastic policy after mirror steps, which multiply probabilities by exp(eta Q).

    Args:
        table: the policy before, (H, S, A).
        world: the optimistic world that Q is of.
        spec: of the world.
        options: of mirror steps.
    """
    from tacit.tabular.mirror_loops import mirror_steps

    H, start = spec.horizon, spec.first_states
    value, width = world.best(H)
    # A little more than rounding errors, where there is nothing left to learn.
    allowed = options.error * float(start @ width) + 1e-9 * H
    table = np.maximum(table, _FLOOR)
    table = table / table.sum(axis=-1, keepdims=True)
    paid = world.rewards[row_of(np.arange(H), H, len(world.rewards))] + world.bonus
    given = np.ascontiguousarray(world.transitions), paid, start, float(start @ value) - allowed
    # Each step is a tenth larger than the one before: what is nearly a tie is soon decided.
    mirror_steps(*given, options.eta, 1.1, options.steps, table, np.empty(table.shape))
    return table


def drawn(table: Floats, rng: Generator) -> Policy:
    """A deterministic draw of a stochastic policy, action by action.

    To a user, who is at each step in one state and acts once, that is all the same. With privacy
    actions are drawn once per release, so that users are asked about what these reach alone.
    """
    H, S, A = table.shape
    reached, coins = table.cumsum(axis=-1), rng.random((H, S, 1))
    return Policy.deterministic((coins >= reached[..., :-1]).sum(axis=-1), A)


@dataclass(frozen=True, kw_only=True)
class UCBPOOptions(MirrorOptions, UCBVIOptions):
    """Options of :class:`UCBPO`: those of UCBVI, and of mirror steps."""


class UCBPO(UCBVI):
    """Optimistic policy optimisation: mirror steps towards better actions.

    Idea: evaluate the current stochastic policy in the optimistic world of :class:`UCBVI`, then
    multiply each action's probability by exp(eta Q), until the policy is worth what the best one
    is in that world, but for a share of the release's statistical width. The paper makes one step
    per episode; steps after a release are post-processing and cost nothing.

    Private statistics: those of UCBVI, along a draw of the policy that serves the block; see
    :func:`drawn`.

    Guarantee: that of its curator; see ``guarantee``.
    """

    name = "ucbpo"
    Options = UCBPOOptions
    options: UCBPOOptions

    # State, query and update are those of UCBVI.

    def first_policy(self, rng: Generator) -> Policy:
        """Random actions, drawn once; uniform ones without privacy, where that saves nothing."""
        if self.privacy.private:
            return super().first_policy(rng)
        return self.named(uniform_policy(self.spec))

    def plan(self, state: CountEstimate, last: Plan | None, at: Progress, rng: Generator) -> Plan:
        """Mirror steps in the optimistic world, beside greedy UCBVI. Args: see Algorithm.plan."""
        if not state.reached.any():
            return super().plan(state, last, at, rng)
        along = last is not None and self.on_policy(last)
        model = self.model(state, along)
        _, bonuses, _, greedy = self.value_iteration(model, rng)
        known = None if last is None else last.memory
        before = uniform_policy(self.spec).table() if known is None else known.table
        table = improved(before, Optimistic(model.P, model.r, bonuses), self.spec, self.options)
        serving = drawn(table, rng) if self.privacy.private else Policy.stochastic(table)
        memory = ServedPolicy(self.expected_visits(model, serving), table)
        return Plan(self.named(serving), greedy, memory)
