"""Plans and queries of value-targeted regression on known models, where states are vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.continuous.kernel_features import kernel_features, public_states, ridge_fit
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics import steps_of, vectors_by_part
from tacit.numerics.regression import helmert
from tacit.privacy.standard import GramCross
from tacit.privacy.statistic import Block, Floats

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import SimulatedSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetedMoves(GramCross):
    """Sums over a user's steps of p p' and p q, for a public function U of the next state.

    With z the features of a state, p = z(s) @ inputs[a] (k numbers) is what the models say of U
    along the directions in which weights are unknown, and q = U(s') - z(s) @ means[a] the target,
    U(s') = (r(s') + discount z(s') @ values) / unit. Where it is known which states are ends, U is
    the reward alone there; elsewhere a step into an end does not count.

    Formal guarantees:
        Sensitivity sqrt(2) tau, and tau against zero, by the trajectory clip of
        :class:`~tacit.GramCross`. Attained by users whose p are orthogonal, with q = 0.
    """

    spec: SimulatedSpec
    features: FeatureMap
    inputs: Floats  # (A, m, k)
    means: Floats  # (A, m)
    values: Floats  # (m,)
    discount: float
    unit: float

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        numbers = (self.spec.horizon + 1) * 3 * self.features.size
        return vectors_by_part(block, numbers, self._sums)

    def _sums(self, block: Block) -> Floats:
        steps = steps_of(block, self.spec)
        z = self.features(steps.states)
        here, there = z[:, :-1], z[:, 1:]
        over = steps.ended[..., np.newaxis]
        if self.spec.ends is None:
            counts = steps.valid[..., np.newaxis] & ~over
        else:
            counts, there = steps.valid[..., np.newaxis], np.where(over, 0.0, there)
        p = np.zeros((*counts.shape[:2], self.inputs.shape[2]))
        expected = np.zeros(counts.shape[:2])
        for action in range(self.spec.actions):
            taken = steps.actions == action
            p[taken] = here[taken] @ self.inputs[action]
            expected[taken] = here[taken] @ self.means[action]
        ahead = self.spec.rewards(steps.states[:, 1:]) + self.discount * (there @ self.values)
        q = (ahead / self.unit - expected)[..., np.newaxis]
        arrays = {"p": np.where(counts, p, 0.0), "q": np.where(counts, q, 0.0)}
        return super().vectors(Block(block.users, arrays))


class VectorTargets:
    """Fitted value iteration on what the models of a :class:`~.spec.SimulatedSpec` drew.

    Value functions are linear in a kernel's features z, and so is what each base model expects of
    the next reward and value: means over public draws at public states, fitted to z.
    """

    def __init__(self, spec: SimulatedSpec) -> None:
        self.spec, self.free = spec, spec.mixed - 1
        self.features = kernel_features(spec)
        self.points = public_states(spec, most=441)
        at = self.features(self.points)
        n, m = at.shape
        self._fit = ridge_fit(at, 1e-6)
        # Expected rewards (n, A, d) and features (n, A, d, m), by the models' draws.
        self._paid = np.empty((n, spec.actions, spec.mixed))
        self._next = np.empty((n, spec.actions, spec.mixed, m))
        for a in range(spec.actions):
            for i in range(spec.mixed):
                drawn = spec.drawn(self.points, a, i)
                self._paid[:, a, i] = spec.rewards(drawn).mean(axis=1)
                over = spec.ended(drawn)[..., np.newaxis]
                self._next[:, a, i] = np.where(over, 0.0, self.features(drawn)).mean(axis=1)
        self.statistic = partial(TargetedMoves, spec=spec, features=self.features)

    def plan(
        self,
        eta: Floats,
        width: Callable[[Floats], Floats],
        clip: float,
        rng: np.random.Generator,
    ) -> tuple[QPolicy, QPolicy, dict[str, Any]]:
        """Optimistic and greedy policies, and the arguments of the next statistic.

        Args:
            eta: Estimated weights, in the directions in which they are unknown.
            width: Bonus of optimism, (n, A), of what models expect along them.
            clip: Of users, as a share.
            rng: Draws preferences among equal values.
        """
        Q, v = self._iterated(eta, width)
        hoping = QPolicy.draw(self.features, (self._fit @ Q).T, rng)
        likely = self._iterated(eta, None)[0]
        greedy = QPolicy.draw(self.features, (self._fit @ likely).T, rng)
        return hoping, greedy, self._asked(v, clip)

    def _iterated(
        self, eta: Floats, width: Callable[[Floats], Floats] | None
    ) -> tuple[Floats, Floats]:
        """Q at the public states, (n, A), and the weights of V."""
        discount = self.spec.discount
        low, high = (end / (1.0 - discount) for end in self.spec.reward_range)
        if self.spec.may_end:
            low, high = min(low, 0.0), max(high, 0.0)
        V = np.full(len(self.points), (low + high) / 2.0)
        for _ in range(math.ceil(math.log(1e-3) / math.log(max(discount, 0.1)))):
            v = self._fit @ V
            x, base = self._directed(v)
            Q = np.clip(base + x @ eta + (0.0 if width is None else width(x)), low, high)
            V = Q.max(axis=1)
        return Q, v

    def _directed(self, v: Floats) -> tuple[Floats, Floats]:
        """Models' expectations along directions of the weights, (n, A, k), and at their centre."""
        expected = self._paid + self.spec.discount * (self._next @ v)
        return expected @ helmert(self.spec.mixed), expected.mean(axis=-1)

    def _asked(self, v: Floats, share: float) -> dict[str, Any]:
        """Arguments of the statistic of the next block, of U = r + discount V. Public."""
        spec = self.spec
        x, base = self._directed(v)
        unit = max(float(np.sqrt((x**2).sum(axis=-1).mean())), 1e-9)
        # In one order: how products are rounded depends on it, and a save keeps one only.
        inputs = np.ascontiguousarray(np.einsum("mn,nak->amk", self._fit, x) / unit)
        means = np.ascontiguousarray(np.einsum("mn,na->am", self._fit, base) / unit)
        # How far a draw is from what was expected of it, at some states.
        drawn = spec.drawn(self.points[:: max(1, len(self.points) // 50)], 0, 0)
        later = np.where(spec.ended(drawn), 0.0, self.features(drawn) @ v)
        ahead = spec.rewards(drawn) + spec.discount * later
        most = max(float(ahead.std(axis=1).mean()), float(base.std(axis=1).mean()), unit) / unit
        sizes = {"rows": self.free, "columns": 1, "steps": spec.horizon}
        scales = {"weight": math.sqrt(2.0) / most, "tau": 2.0 * share * spec.horizon}
        scales |= {"discount": spec.discount, "unit": unit}
        return {**sizes, **scales, "inputs": inputs, "means": means, "values": v}
