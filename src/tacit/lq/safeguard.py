"""The safeguard: gains are published only if they would not cost people more than doing nothing.

Gains must beat zero control in nine of ten models that the posterior holds possible, widened by a
margin, and must not be much worse in any of them. Until some do, nothing but noise is applied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.sizes import read_only
from tacit.lq.estimate import SystemPosterior

if TYPE_CHECKING:
    from tacit.lq.certainty_equivalence import LQConstants
    from tacit.lq.spec import LQSpec


@dataclass(frozen=True)
class Safeguard:
    """Tries gains on possible models."""

    spec: LQSpec  # what is public of the world
    constants: LQConstants  # how many models, and what gains must pass there
    caution: float  # how much wider than the posterior models are

    def models(self, known: SystemPosterior, rng: np.random.Generator) -> Floats:
        """Models that are possible by what is known, and a margin, within the public bound."""
        models = known.draw(rng, self.constants.samples, self.caution)
        norms = np.linalg.norm(models, axis=(1, 2))
        models *= np.minimum(1.0, self.spec.norm_bound / norms)[:, np.newaxis, np.newaxis]
        return models

    def try_out(self, candidates: list[Floats], models: Floats) -> tuple[Floats, Floats]:
        """Average costs of gains over possible models, in units of zero control, and the gains.

        Infinite where they do not pass. The first of the gains is zero control, which always does.
        """
        gains = np.array([np.zeros_like(candidates[0]), *candidates])
        costs = expected_costs(self.spec, gains, models, 0.0)
        # Where zero control exceeds all numbers, nothing is known of what is better.
        ratios = np.where(np.isfinite(costs), costs, np.inf) / np.maximum(costs[0], 1e-300)
        ratios[np.isnan(ratios)] = np.inf
        fails = np.quantile(ratios, self.constants.confidence, axis=1) > 1.0
        fails |= ratios.max(axis=1) > self.constants.worst
        fails[0] = False
        return np.where(fails, np.inf, ratios.mean(axis=1)), gains


def candidates(spec: LQSpec, known: SystemPosterior, last: Floats) -> list[Floats]:
    """Gains for the posterior mean, less of them, cautious ones, and those of the last time."""
    certain = optimal_gains(spec, known.mean, np.zeros_like(known.covariance))
    cautious = optimal_gains(spec, known.mean, known.covariance)
    shares = (0.125, 0.25, 0.5, 0.75, 1.0)
    return [*(share * certain for share in shares), cautious, 0.5 * cautious, last]


def expected_costs(
    spec: LQSpec, gains: Floats, models: Floats, control_noise: float | Floats
) -> Floats:
    """What episodes cost on average with finite gains (M, H, d, n) in models (L, n + d, n): (M, L).

    The noise of controls has one standard deviation for all gains, or one for each.
    """
    from tacit.lq.riccati_loops import expected_costs as fill

    costs = np.empty((len(gains), len(models)))
    variances = np.square(np.broadcast_to(control_noise, len(gains)))
    fill(read_only(gains), read_only(models), variances, *_known(spec), costs)
    # Infinities of both signs meet where an unstable loop exceeds all numbers.
    costs[np.isnan(costs)] = math.inf
    return costs


def optimal_cost(spec: LQSpec, model: Floats) -> float:
    """What an episode costs on average with the best gains of a model."""
    from tacit.lq.riccati_loops import riccati

    H, n, d = spec.horizon, spec.states, spec.controls
    P = np.empty((H + 1, n, n))
    riccati(read_only(model), spec.state_cost, spec.control_cost, P, np.empty((H, d, n)))
    parts = spec.start_moment[np.newaxis] * P[:1], spec.noise_covariance * P[1:H]
    # One after the other, as compiled loops add them.
    return float(np.cumsum(np.concatenate(parts))[-1])


def _known(spec: LQSpec) -> tuple[Floats, Floats, Floats, Floats]:
    """Moments and costs, as compiled loops take them."""
    return spec.start_moment, spec.noise_covariance, spec.state_cost, spec.control_cost


def optimal_gains(spec: LQSpec, theta: Floats, covariance: Floats) -> Floats:
    """Gains of least average cost, within the bound, if the model were drawn anew at every step.

    Its columns have a covariance; without it they are Riccati's.
    """
    gains = cautious_gains(theta, covariance, spec.state_cost, spec.control_cost, spec.horizon)
    return bounded_gains(gains, spec.gain_bound)


def cautious_gains(theta: Floats, covariance: Floats, Q: Floats, R: Floats, horizon: int) -> Floats:
    """The gains of least average cost where the model is drawn anew at every step.

    Its columns are independent around those of theta, all with the same covariance C, so that
    the mean of [A, B]' P [A, B] is theta P theta' + tr(P) C. Without covariance: Riccati's.
    """
    n = theta.shape[1]
    gains = np.empty((horizon, len(theta) - n, n))
    P = np.zeros((n, n))
    transposed = np.ascontiguousarray(theta.T)
    for h in range(horizon - 1, -1, -1):
        M = theta @ P @ transposed + np.trace(P) * covariance
        gains[h] = -np.linalg.solve(R + M[n:, n:], M[n:, :n])
        P = Q + M[:n, :n] + np.ascontiguousarray(M[:n, n:]) @ gains[h]
        P = 0.5 * (P + P.T)
    return gains


def bounded_gains(gains: Floats, bound: float) -> Floats:
    """Gains whose spectral norm is at most a bound, step by step; zero where they are no numbers.

    >>> bounded_gains(np.array([[[3.0, 4.0]]]), bound=1.0).round(12).tolist()
    [[[0.6, 0.8]]]
    """
    finite = np.where(np.isfinite(gains).all(axis=(1, 2), keepdims=True), gains, 0.0)
    norms = np.linalg.norm(finite, 2, axis=(1, 2))[:, np.newaxis, np.newaxis]
    bounded: Floats = finite * np.minimum(1.0, bound / np.maximum(norms, 1e-300))
    return bounded
