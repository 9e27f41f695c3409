"""What the next block is asked: second moments, in the units and around the centre that serve best.

All that the question is made of was released before, or is public.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tacit.core.algorithm import Floats
from tacit.lq.estimate import ModelPosterior, ModelRegression
from tacit.lq.policy import GainPolicy
from tacit.lq.statistics import TrajectorySums

if TYPE_CHECKING:
    from tacit.lq.base import LQOptions

LEAST_ENERGY = 1e-9
"""Where nothing moves."""

# Without privacy a clip would only lose data.
_UNCLIPPED = 1e3


def next_sums(
    regression: ModelRegression,
    known: ModelPosterior,
    policy: GainPolicy,
    first_steps: float | None,
    options: LQOptions,
    private: bool,
) -> TrajectorySums:
    """The sums over a block that follows ``policy``.

    Residuals are those of the posterior mean, cut where the posterior and the bound of the noise
    end. Directions that are seldom visited weigh more. The weight of residuals is that which leaves
    least noise.

    While nothing is known, ``first_steps`` of a user are to count; then it is ``None``.
    """
    spec, constants = regression.spec, options.constants
    root = np.asarray(np.linalg.cholesky(known.covariance), dtype=np.float64)
    cap = constants.cap if first_steps is None else constants.first_cap
    spread = cap * math.sqrt(spec.states) * root
    following = known, policy.gains, policy.noise
    if first_steps is None:
        plain, steps = np.eye(len(root)), float(spec.horizon)
        gram, _ = regression.expected(*following, plain, spread, 1.0, math.inf)
        gram = gram / spec.horizon
        inputs = scaled_inputs(gram, constants.shape)
        _, energies = regression.expected(*following, inputs, spread, 1.0, math.inf)
        of_inputs, of_caps = (float(energy) for energy in energies.mean(axis=0))
    else:
        # Only of first states is it known where they are.
        n, steps = spec.states, first_steps
        gram = np.zeros((n + spec.controls, n + spec.controls))
        gram[:n, :n] = spec.start_moment
        gram[n:, n:] = policy.noise**2 * np.eye(spec.controls)
        inputs = scaled_inputs(gram, constants.shape)
        reach = float(np.trace(spread.T @ gram @ spread))
        of_inputs = float(np.trace(inputs @ gram @ inputs.T))
        of_caps = (spec.noise_bound + math.sqrt(reach)) ** 2
    back = np.linalg.inv(inputs)
    share = constants.gram_share * 0.5 * float(np.trace(back @ known.covariance @ back.T))
    weight = best_weight(of_inputs, of_caps, share)
    tau = max(steps * (of_inputs + 0.5 * weight**2 * of_caps), LEAST_ENERGY)
    return TrajectorySums(
        spec.states,
        spec.controls,
        spec.horizon,
        clip=options.clip,
        tau=tau if private else tau * _UNCLIPPED,
        weight=weight,
        centre=known.mean,
        inputs=inputs,
        floor=spec.noise_bound,
        spread=spread,
    )


def scaled_inputs(gram: Floats, shape: float) -> Floats:
    """Gram^-shape, scaled so that inputs have the same energy as before.

    The error of a direction with Gram g, in units m of inputs, is as noise / (m g), while the noise
    is as the energy, the sum of m^2 g. Were all directions equally important m = g^(-3/4) would be
    best. Those that are seldom visited matter less for costs.
    """
    values, basis = np.linalg.eigh(0.5 * (gram + gram.T))
    if values.max() <= 0.0:
        return np.eye(len(gram))
    values = np.maximum(values, 1e-3 * values.max())
    units = values**-shape
    units *= math.sqrt(float(np.trace(gram)) / float((units**2 * values).sum()))
    return np.ascontiguousarray((basis * units) @ basis.T)


def best_weight(of_inputs: float, of_caps: float, share: float) -> float:
    """The weight of residuals that leaves the least noise in the regression.

    Noise is as tau, the energy of inputs and weighted caps; that of the cross sums is divided by
    the weight, that of the Gram counts by its share.
    """
    weights = np.exp(np.linspace(-3.0, 5.0, 81))
    noise = (of_inputs + 0.5 * weights**2 * of_caps) * np.sqrt(weights**-2.0 + share)
    return float(weights[int(np.argmin(noise))])
