"""Plans and questions of value-targeted regression where states are vectors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.continuous.kernel_maps import kernel_features, public_states
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.targeted_moves import TargetedMoves
from tacit.numerics.simplex import helmert
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.simulated_spec import SimulatedSpec

# Public states on which models are drawn.
_POINTS = 441


class VectorTargets:
    """Fitted value iteration on what the models of a :class:`~.simulated_spec.SimulatedSpec` drew.

    Value functions are linear in a kernel's features z. What each base model expects of the next
    reward and value is a mean over public draws at public states, fitted to z, so that it is known
    at every user's state without asking a simulator.
    """

    radius = 1.0

    def __init__(self, spec: SimulatedSpec) -> None:
        self.spec, self.free = spec, spec.mixed - 1
        self.features = kernel_features(spec)
        self.points = public_states(spec, most=_POINTS)
        at = self.features(self.points)
        n, m = at.shape
        self._fit = np.linalg.solve(at.T @ at / n + 1e-6 * np.eye(m), at.T / n)
        # Expected rewards (n, A, d) and features (n, A, d, m), by the models' draws.
        self._paid = np.empty((n, spec.actions, spec.mixed))
        self._next = np.empty((n, spec.actions, spec.mixed, m))
        for a in range(spec.actions):
            for i in range(spec.mixed):
                drawn = spec.drawn(self.points, a, i)
                self._paid[:, a, i] = spec.rewards(drawn).mean(axis=1)
                over = spec.ended(drawn)[..., np.newaxis]
                self._next[:, a, i] = np.where(over, 0.0, self.features(drawn)).mean(axis=1)
        self.statistic = partial(TargetedMoves, spec, self.features)

    def plan(
        self,
        eta: Floats,
        width: Callable[[Floats], Floats],
        clip: float,
        rng: np.random.Generator,
    ) -> tuple[QPolicy, QPolicy, dict[str, Any]]:
        """Optimistic and estimated values; the former are what is asked about next."""
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
        V, Q = np.full(len(self.points), (low + high) / 2.0), np.zeros(self._paid.shape[:2])
        v = self._fit @ V
        for _ in range(math.ceil(math.log(1e-3) / math.log(max(discount, 0.1)))):
            v = self._fit @ V
            x, base = self._directed(v)
            Q = base + x @ eta
            if width is not None:
                Q = Q + width(x)
            Q = np.clip(Q, low, high)
            V = Q.max(axis=1)
        return Q, v

    def _directed(self, v: Floats) -> tuple[Floats, Floats]:
        """What models expect along directions of the weights, (n, A, k), and at their centre."""
        expected = self._paid + self.spec.discount * (self._next @ v)
        return expected @ helmert(self.spec.mixed), expected.mean(axis=-1)

    def _asked(self, v: Floats, share: float) -> dict[str, Any]:
        """Arguments of the statistic of the next block, of U = r + discount V. Public."""
        spec = self.spec
        x, base = self._directed(v)
        unit = max(float(np.sqrt((x**2).sum(axis=-1).mean())), 1e-9)
        inputs = np.einsum("mn,nak->amk", self._fit, x) / unit
        means = np.einsum("mn,na->am", self._fit, base) / unit
        # How far a draw is from what was expected of it, at some states.
        drawn = spec.drawn(self.points[:: max(1, len(self.points) // 50)], 0, 0)
        later = np.where(spec.ended(drawn), 0.0, self.features(drawn) @ v)
        ahead = spec.rewards(drawn) + spec.discount * later
        most = max(float(ahead.std(axis=1).mean()), float(base.std(axis=1).mean()), unit) / unit
        clip = share * 2.0 * spec.horizon
        scales = {"discount": spec.discount, "unit": unit, "most": most, "clip": clip}
        return {"inputs": inputs, "means": means, "values": v, **scales}
