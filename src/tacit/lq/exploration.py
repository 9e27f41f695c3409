"""How much noise users' controls have, without which nobody would learn what other controls do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.algorithm import Floats
from tacit.lq.safeguard import expected_costs, optimal_cost

if TYPE_CHECKING:
    from tacit.lq.base import LQConstants
    from tacit.lq.spec import LQSpec


def first_noise(spec: LQSpec, constants: LQConstants) -> float:
    """Of each coordinate of the first users' controls, in the energy of first states."""
    energy = float(np.trace(spec.start_moment)) or spec.noise_bound**2 or 1.0
    share = constants.control_noise / (spec.horizon * math.sqrt(spec.controls))
    return math.sqrt(share * energy)


def most_noise(first: float, models: Floats, spec: LQSpec, constants: LQConstants) -> float:
    """More than the first users had, where it is known to cost little in comparison."""
    still = np.zeros((2, spec.horizon, spec.controls, spec.states))
    costs = expected_costs(spec, still, models, np.array([0.0, 1.0]))
    ratios = costs[1] / np.maximum(costs[0], 1e-300)
    price = float(np.median(ratios)) - 1.0
    if not (math.isfinite(price) and price > 0.0):
        return first
    largest = constants.largest_noise * first * math.sqrt(spec.horizon)
    return max(first, min(largest, math.sqrt(constants.noise_price / price)))


def later_noise(gains: Floats, mean: Floats, models: Floats, spec: LQSpec, explore: float) -> float:
    """For users of these gains, less and less as the model becomes known.

    Noise costs its variance times a constant. What gains lack of the optimum decreases as more
    is known, which is the sooner the more noise there is. Spending about as much on noise as
    is lacking has the right rates: with N users the lack is as 1 / (N variance) where data are
    scarce, and as its square where the noise of privacy is what counts, so the variance
    decreases as N^(-1/2) and N^(-2/3), as the least sum of both does. Noise may cost ``explore``
    times what the gains are expected to lack, and is infinite where nothing can be said.
    """
    twice, noises = gains[np.newaxis].repeat(2, 0), np.array([0.0, 1.0])
    one = expected_costs(spec, twice, mean[np.newaxis], noises)
    costs = expected_costs(spec, gains[np.newaxis], models, 0.0)[0]
    best = [optimal_cost(spec, model) for model in models]
    lack, price = float(np.mean(costs) - np.mean(best)), float(one[1, 0] - one[0, 0])
    if not (math.isfinite(lack) and math.isfinite(price)):
        return math.inf
    return math.sqrt(explore * max(lack, 0.0) / price)
