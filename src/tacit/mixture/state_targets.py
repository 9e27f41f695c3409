"""Plans and questions of value-targeted regression where states are numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.finite.policy import Policy
from tacit.mixture.targeted_sums import TargetedSums
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.mixture.sampled_spec import SampledSpec


class StateTargets:
    """Value iteration on what the models of a :class:`~.sampled_spec.SampledSpec` drew."""

    statistic = TargetedSums

    def __init__(self, spec: SampledSpec) -> None:
        if spec.horizon < 2:
            raise InvalidArgument("an episode of one step has no transitions to learn from")
        self.spec, self.free, self.radius = spec, spec.free, spec.radius

    def plan(
        self,
        eta: Floats,
        width: Callable[[Floats], Floats],
        clip: float,
        rng: np.random.Generator,
    ) -> tuple[Policy, Policy, dict[str, Any]]:
        """Optimistic values step by step from the last; V of the next step is what is asked about.

        Q = r + p0 V + phi' eta + width, cut to what the next values are, and V = max_a Q.
        """
        spec = self.spec
        H, S, A = spec.horizon, spec.states, spec.actions
        inputs, means = np.empty((H - 1, S, A, spec.free)), np.empty((H - 1, S, A))
        asked = np.empty((H - 1, S))
        best = np.empty((2, H, S), dtype=np.int64)
        rewards = spec.known_rewards[0]
        values = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            Q = np.array([rewards, rewards])
            if h < H - 1:
                asked[h] = values[0]
                for j in range(2):
                    phi = spec.expected(values[j])
                    x, base = phi @ spec.directions, phi @ spec.center
                    mean = base + x @ eta
                    if j == 0:
                        inputs[h], means[h] = x, base
                        mean = mean + width(x)
                    Q[j] += np.clip(mean, float(values[j].min()), float(values[j].max()))
            for j in range(2):
                best[j, h], values[j] = _best(Q[j], rng)
        made = (Policy.deterministic(acts, A) for acts in best)
        return next(made), next(made), self._asked(inputs, means, asked, clip)

    def _asked(self, inputs: Floats, means: Floats, values: Floats, share: float) -> dict[str, Any]:
        """Arguments of the statistic of the next block; scales and clip are public numbers.

        A user who is everywhere alike has inputs of length 1 and targets as long as ``most``, both
        in the mean square over steps.
        """
        size = max(math.sqrt(float(np.einsum("hsak,hsak->", inputs, inputs)) / means.size), 1e-9)
        most = max(self._target_size(means, values) / size, 1e-9)
        for table in (inputs, means, values):
            table /= size
            table.setflags(write=False)
        clip = share * 2.0 * (self.spec.horizon - 1)
        return {"inputs": inputs, "means": means, "values": values, "most": most, "clip": clip}

    def _target_size(self, means: Floats, values: Floats) -> float:
        """Of V(s') - p0 V, in the mean square over some steps, all cells and models."""
        spec, squares = self.spec, []
        for V, base in zip(values[::4], means[::4], strict=True):
            own = spec.expected(V**2) - 2.0 * base[..., np.newaxis] * spec.expected(V)
            squares.append(max(float((own + base[..., np.newaxis] ** 2).mean()), 0.0))
        return math.sqrt(float(np.mean(squares)))


def _best(q_values: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
    """The best actions of (S, A) values, ties broken at random, and their values."""
    top = q_values.max(axis=-1)
    ties = np.where(q_values == top[:, np.newaxis], rng.random(q_values.shape), -1.0)
    return ties.argmax(axis=-1), top
