"""KernelLSVI: optimistic least-squares value iteration for kernel MDPs, on vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.kernel_features import kernel_features, public_states, ridge_fit
from tacit.continuous.policy import NO_CLIP, BoxAlgorithm, QPolicy, box_spec
from tacit.continuous.statistics import steps_of, vectors_by_part
from tacit.core.algorithm import BlockInfo, BlockSizes, NoOptions, Plan, Progress
from tacit.numerics.regression import BlockSums, ridge_inverse
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import users_above_noise
from tacit.privacy.sensitivity import ACUTE, ball, scaled_back
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release


_BONUS = 0.1  # scale of widths; chosen, as the others, on worlds that are not reported
_CLIP = 0.8  # the longest user, in steps
_SMOOTH = 3.0  # ridge of value functions, in units of the regression's own
_UNIFORM = 0.1  # chance of a uniform action, over the number of releases
_FIRST = 24.0  # users of the first block, in standard deviations of a sum's noise
MOVING, PAYING = 2.0, 1.0
"""Weights of the parts ``moves`` and ``rewards``, a and b."""


@dataclass(frozen=True, eq=False)
class EmbeddingSums(Statistic):
    """Sums over a user's steps, by action, of z z', z d' and z r, with z the features of the state.

    d = z(s') - z(s) is how far the step goes among features, and r the reward in [-1, 1], from its
    middle in halves of its range. Where episodes may end, d has one coordinate more: z is 0 at an
    end, and that coordinate 1; elsewhere a step into an end does not count. Parts: ``gram``
    (A, m, m), ``moves`` (A, m, m or m + 1) with weight a, and ``rewards`` (A, m) with weight b.

    Clip. With y = (z, a d / sqrt 2, b r / sqrt 2), there is a sum of y y' over the steps with each
    action, and Y is all of them. A user's Y is scaled back to Frobenius norm ``clip``; what is
    released is part of it, with every product that is not on the diagonal counted twice, as in Y.

    Formal guarantees:
        Sensitivity sqrt(2) clip, and clip against zero. Y stays positive semi-definite when it is
        scaled back, so two users' are at no obtuse angle: |Y - Y'|^2 <= |Y|^2 + |Y'|^2 <= 2 clip^2.
        The released part is no longer than Y, and no farther apart. Users who stay where they are,
        each for an action of her own, with rewards at the middle, attain it: d = 0 and r = 0.
    """

    spec: BoxSpec
    features: FeatureMap
    clip: float
    name = "embedding sums"

    @cached_property
    def layout(self) -> Layout:
        """``gram``, ``moves`` and ``rewards``."""
        A, m = self.spec.actions, self.features.size
        gram = Part("gram", (A, m, m), symmetric=True)
        moves = Part("moves", (A, m, m + int(self.spec.may_end)), weight=MOVING)
        return Layout((gram, moves, Part("rewards", (A, m), weight=PAYING)))

    def l2(self, relation: Relation) -> float:
        """Sensitivity, as the class derives it."""
        return ball(self.clip, relation, ACUTE)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        m = self.features.size
        numbers = self.spec.actions * (2 * m + 1) ** 2 + self.spec.horizon * 4 * m
        return vectors_by_part(block, numbers, self._sums)

    def _sums(self, block: Block) -> Floats:
        steps, A, m = steps_of(block, self.spec), self.spec.actions, self.features.size
        at = self.features(steps.states)
        low, high = self.spec.reward_range
        r = (2.0 * steps.rewards - low - high) / (high - low)
        a, b = MOVING / math.sqrt(2.0), PAYING / math.sqrt(2.0)
        here, there, valid, over = at[:, :-1], at[:, 1:], steps.valid, steps.ended[..., np.newaxis]
        if self.spec.may_end:
            moves = np.concatenate([np.where(over, 0.0, there) - here, over], axis=-1)
        else:
            moves, valid = there - here, valid & ~steps.ended
        y = np.concatenate([here, a * moves, b * r[..., np.newaxis]], axis=-1)
        Y = np.empty((len(y), A, y.shape[-1], y.shape[-1]))
        for action in range(A):
            own = y * ((steps.actions == action) & valid)[..., np.newaxis]
            Y[:, action] = own.swapaxes(1, 2) @ own
        Y = scaled_back(Y.reshape(len(Y), A * y.shape[-1] ** 2), self.clip).reshape(Y.shape)
        sums = {"gram": Y[:, :, :m, :m], "moves": Y[:, :, :m, m:-1] / a}
        return self.layout.pack(sums | {"rewards": Y[:, :, :m, -1] / b}, users=len(Y))


class KernelLSVI(BoxAlgorithm[BlockSums]):
    """Least squares on a kernel's features, for every value function at once.

    Idea: in a kernel MDP transitions, and values of actions, are linear in z, a kernel's features
    of the state. A regression of how features move finds them for all value functions at once;
    fitted value iteration on public states plans, with a bonus for what is uncertain by sampling or
    by noise. What is not known yet stays where it is.

    Private statistics: :class:`EmbeddingSums` of every block, once, with the whole budget.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from papers: one model for all steps and discounted plans, which are for worlds that
    look the same at every step; the bonus is practical and is itself fitted to the features.

    Cost: A (m (m + 1) / 2 + m^2 + m) numbers per release, and a plan on some thousand states.
    """

    name: ClassVar[str] = "kernel_lsvi"
    features: FeatureMap
    statistic_kind = "features"

    def __init__(self, problem: Problem, options: NoOptions) -> None:
        self.spec = spec = box_spec(problem)
        if not spec.bounded:
            raise InvalidArgument("lows and highs must be finite: plans are made on their box")
        self.features = kernel_features(spec)
        spec.check_weights(self.features.size)
        self._at = self.features(public_states(spec))
        self._half = (spec.reward_range[1] - spec.reward_range[0]) / 2.0
        self._fit = ridge_fit(self._at, 1e-6)
        super().__init__(problem, options)

    def init(self) -> BlockSums:
        """No sums; all will weigh alike."""
        return BlockSums(plain=True)

    def query(self, state: BlockSums, plan: Plan, block: BlockInfo) -> EmbeddingSums:
        """Sums of users' transitions among features, and of their rewards."""
        return self._sums()

    def _sums(self) -> EmbeddingSums:
        share = _CLIP if self.privacy.private else NO_CLIP
        return EmbeddingSums(self.spec, self.features, share * self.spec.horizon)

    def update(
        self,
        state: BlockSums,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> BlockSums:
        """The sums of one more block."""
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, std, std["gram"], release.users)

    def plan(
        self, state: BlockSums, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Optimistic and estimated values, by fitted value iteration on public states."""
        if not state.parts:
            first = self.behaviour()
            return Plan(first, first)
        noise = {name: float(state.noise(name)) for name in ("gram", "moves", "rewards")}
        gram, m = state.scaled("gram"), self.features.size
        ridge = 1.0 + noise["gram"] * math.sqrt(m)
        turned = np.einsum("nm,amk->nak", self._at, ridge_inverse(gram, ridge))
        rewards = np.einsum("nam,am->na", turned, state.scaled("rewards"))
        rewards = self._half * np.clip(rewards, -1.0, 1.0)
        moves = np.einsum("nam,amk->nak", turned, state.scaled("moves"))
        leverage = np.maximum(np.einsum("nam,nm->na", turned, self._at), 0.0)
        known = rewards, moves, leverage, (turned**2).sum(axis=-1), noise
        steps = max(float(np.trace(gram, axis1=1, axis2=2).mean()), 1.0)
        # Values are as smooth as moves can be told: features that drown in the noise have no part.
        smooth = ridge_fit(self._at, max(1e-6, _SMOOTH * ridge / steps))
        policies = []
        for bonus, uniform in ((_BONUS, _UNIFORM / at.releases), (0.0, 0.0)):
            Q = self._iterated(known, bonus, smooth)
            policies.append(QPolicy.draw(self.features, (self._fit @ Q).T, rng, uniform))
        return Plan(*policies)

    def _iterated(self, known: tuple[Any, ...], bonus: float, smooth: Floats) -> Floats:
        """Q (points, A), as far from the middle of what values can be.

        Q_a = r_a + discount (V + moves_a v) + width, cut to the range of values, with v the weights
        that V has on the features, and the value of an end, which is known: nothing is earned.
        """
        # At the public states: z' G^-1 z and |G^-1 z|^2 are leverage and length.
        rewards, moves, leverage, length, noise = known
        discount, half = self.spec.discount, self._half
        top = half / (1.0 - discount)
        middle = float(np.mean(self.spec.reward_range)) / (1.0 - discount)
        end = [-middle] if self.spec.may_end else []
        Q: Floats = np.zeros(rewards.shape)
        for _ in range(math.ceil(math.log(1e-3) / math.log(max(discount, 0.1)))):
            V: Floats = Q.max(axis=1)
            v: Floats = np.append(smooth @ V, end)
            least, most = min([V.min(), *end]), max([V.max(), *end])
            ahead = np.clip(V[:, np.newaxis] + moves @ v, least, most)
            squares = noise["moves"] ** 2 * float(v @ v) + (half * noise["rewards"]) ** 2
            spread = float(V.var()) + half**2
            width = bonus * np.sqrt(squares * length + spread * leverage)
            Q = rewards + discount * ahead + width
            Q = np.clip(Q, min([-top, *end]), max([top, *end]))
        return Q

    def _check(self) -> None:
        self.check_gaussian("embedding sums")

    def _block_sizes(self) -> BlockSizes:
        # In users whose steps all are in one direction.
        first = _FIRST / self.spec.horizon
        users = users_above_noise(self._sums(), self.privacy, first * self.features.size)
        return BlockSizes(first=users, growth=2.0)
