"""Posterior of a linear model, from private sums, which counts the noise of privacy, too.

Block j released, in units of inputs p = M z, noisy sums G~ = G + N_G and C~ = C + N_C over its
users, with G = sum s p p' and

    C = sum s p r' = G M'^{-1} (Theta - T) + sum s p w',

where T is the centre of the block and M its inputs (:class:`~tacit.lq.statistics.TrajectorySums`).
So C~ is a regression on G, of which two things are known: G~, and what the model itself predicts
users to do, ``expected_gram``. The estimate of G weighs both by how certain they are; what is left
uncertain of G adds to the noise of C~. From it follows the query of the next block, in the units
and around the centre that serve best. All of it is a function of releases: post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.lq.spec import GainPolicy
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.lq.spec import LQSpec
    from tacit.privacy.curator import Release

# Second moments of predicted states are believed up to so many times what enters from outside.
_MOST = 50.0
# Below this share of the average, no direction of a Gram counts as visited.
_LEAST = 1e-6
# A tau that cuts no steps.
_WHOLE = 1e300

# Relative standard deviation of predicted Grams. Predictions take all users to be average, so they
# are a few per cent off where clips are at work.
MODEL_ERROR = 0.1
CAP, FIRST_CAP = 0.8, 1.2  # where residuals are cut, in standard deviations of what is known
SHAPE = 0.3  # inputs are scaled by this negative power of the Gram
GRAM_SHARE = 0.3  # how much the noise of the Gram counts in the choice of the weight


@dataclass(frozen=True, eq=False)
class SystemPosterior:
    """Posterior of a linear system, Theta = [A, B]', (n + d, n).

    The columns are independent and normal around those of ``mean``, all with one covariance.
    """

    mean: Floats  # (n + d, n)
    covariance: Floats  # of every column, (n + d, n + d)

    def draw(self, rng: np.random.Generator, count: int, caution: float = 1.0) -> Floats:
        """Models at random, (count, n + d, n), ``caution`` times as far from the mean."""
        root = np.linalg.cholesky(self.covariance)
        steps = rng.standard_normal((count, *self.mean.shape))
        models: Floats = self.mean + caution * np.einsum("ij,ljk->lik", root, steps)
        return models


@dataclass(frozen=True, eq=False)
class BlockEvidence:
    """Release of one block, with its query and policy. All of it is public."""

    release: Release  # G~, (p, p), and C~, (p, n), as ``gram`` and ``cross``
    asked: TrajectorySums
    users: int  # how many
    policy: GainPolicy  # that users followed

    def std(self, part: str) -> float:
        """Of N_C, and of the diagonal of N_G, whose other entries have half of its variance."""
        return float(np.max(self.release.std[part]))


@dataclass(frozen=True)
class ModelRegression:
    """From evidence to a posterior."""

    spec: LQSpec  # what is public of the world
    prior_std: float  # of every entry of Theta, before anything is known

    @property
    def prior(self) -> SystemPosterior:
        """Before anything is known."""
        n, p = self.spec.states, self.spec.states + self.spec.controls
        return SystemPosterior(np.zeros((p, n)), self.prior_std**2 * np.eye(p))

    def expected(
        self, known: SystemPosterior, policy: GainPolicy, asked: TrajectorySums
    ) -> tuple[Floats, Floats]:
        """The Gram of inputs that one user adds, (p, p), and energies by step, (H, 2).

        Second moments move by the mean model, no further than ``most`` in trace. Steps are weighted
        as if every user had average energies: of inputs, and of squared caps.
        """
        spec, theta, M = self.spec, known.mean, asked.inputs
        n, p = spec.states, spec.states + spec.controls
        added = float(np.trace(spec.noise_covariance)) + spec.controls * policy.noise**2
        most = _MOST * (float(np.trace(spec.start_moment)) + spec.horizon * added)
        caps, moment, left = asked.spread @ asked.spread.T, spec.start_moment, asked.tau
        gram, energies = np.zeros((p, p)), np.empty((spec.horizon, 2))
        explored = np.diag(np.r_[np.zeros(n), np.full(p - n, policy.noise**2)])
        for h, gain in enumerate(policy.gains):
            both = np.concatenate([np.eye(n), gain])
            step = both @ moment @ both.T + explored
            if not (size := float(step.trace())) <= most:
                step = step * (most / size) if math.isfinite(size) else most / p * np.eye(p)
            moved, reach = M @ step @ M.T, math.sqrt(max(float((step @ caps).trace()), 0.0))
            energies[h] = moved.trace(), (asked.floor + reach) ** 2
            cost = energies[h, 0] + 0.5 * asked.weight**2 * energies[h, 1]
            share = min(1.0, left / max(cost, 1e-300))
            left -= share * cost
            gram += share * moved
            moment = theta.T @ step @ theta + spec.noise_covariance
        return gram, energies

    def posterior(
        self, evidence: Sequence[BlockEvidence], trust: Sequence[float], known: SystemPosterior
    ) -> SystemPosterior:
        """Posterior of all blocks, each with weight ``trust``, from a first guess."""
        n, p = self.spec.states, self.spec.states + self.spec.controls
        # Grams are predicted anew from what they led to.
        for _ in range(4):
            precision = np.eye(p) / self.prior_std**2
            moved = np.zeros((p, n))
            for block, weight in zip(evidence, trust, strict=True):
                design, noise = self._regression(block, known)
                pulled = np.linalg.solve(noise, design)
                precision += weight * (design.T @ pulled)
                seen = block.release["cross"] + design @ block.asked.centre
                moved += weight * (pulled.T @ seen)
            covariance = np.linalg.inv(0.5 * (precision + precision.T))
            mean = covariance @ moved
            # No longer than the public bound on its norm.
            mean = mean * min(1.0, self.spec.norm_bound / max(float(np.linalg.norm(mean)), 1e-300))
            symmetric = 0.5 * (covariance + covariance.T)
            known = SystemPosterior(np.ascontiguousarray(mean), symmetric)
        return known

    def next_query(
        self, known: SystemPosterior, policy: GainPolicy, first_steps: float | None
    ) -> TrajectorySums:
        """The query of the next block, which follows a policy.

        Residuals are those of the posterior mean, cut where the posterior and the bound of the
        noise end. Directions that are seldom visited weigh more. The weight of residuals is that
        which leaves least noise. ``first_steps`` of a user count while nothing is known.
        """
        spec, cap = self.spec, CAP if first_steps is None else FIRST_CAP
        root = np.asarray(np.linalg.cholesky(known.covariance), dtype=np.float64)
        spread, sizes = (
            cap * math.sqrt(spec.states) * root,
            (spec.states, spec.controls, spec.horizon),
        )
        floor, centre = spec.noise_bound, known.mean
        whole = TrajectorySums(*sizes, tau=_WHOLE, centre=centre, floor=floor, spread=spread)
        if first_steps is None:
            steps = float(spec.horizon)
            gram, _ = self.expected(known, policy, whole)
            inputs = scaled_inputs(gram / spec.horizon, SHAPE)
            _, energies = self.expected(known, policy, replace(whole, inputs=inputs))
            of_inputs, of_caps = (float(energy) for energy in energies.mean(axis=0))
        else:
            # Only of first states is it known where they are.
            n, steps = spec.states, first_steps
            gram = np.zeros((n + spec.controls, n + spec.controls))
            gram[:n, :n] = spec.start_moment
            gram[n:, n:] = policy.noise**2 * np.eye(spec.controls)
            inputs = scaled_inputs(gram, SHAPE)
            reach = float(np.trace(spread.T @ gram @ spread))
            of_inputs = float(np.trace(inputs @ gram @ inputs.T))
            of_caps = (spec.noise_bound + math.sqrt(reach)) ** 2
        back = np.linalg.inv(inputs)
        share = GRAM_SHARE * 0.5 * float(np.trace(back @ known.covariance @ back.T))
        weight = best_weight(of_inputs, of_caps, share)
        tau = max(steps * (of_inputs + 0.5 * weight**2 * of_caps), 1e-9)
        return replace(whole, tau=tau, weight=weight, inputs=inputs)

    def surprise(self, block: BlockEvidence, before: SystemPosterior) -> float:
        """Squared distance of C~ from its expectation before: 1 on average if that was right."""
        asked, gram = block.asked, block.users * self.expected(before, block.policy, block.asked)[0]
        design = gram @ np.linalg.inv(asked.inputs.T)
        spread = design @ before.covariance @ design.T + self._noise(block, gram)
        ahead = block.release["cross"] - design @ (before.mean - asked.centre)
        return float((ahead * np.linalg.solve(spread, ahead)).sum()) / ahead.size

    def _noise(self, block: BlockEvidence, gram: Floats) -> Floats:
        """Covariance of a column of N_C and of the sum of s p w', given the Gram."""
        per_state = float(np.trace(self.spec.noise_covariance)) / self.spec.states
        tiny = max(1e-12 * float(np.trace(gram)) / len(gram), 1e-18)
        floor = (block.std("cross") ** 2 + tiny) * np.eye(len(gram))
        noise: Floats = per_state * gram + floor
        return noise

    def _regression(self, block: BlockEvidence, known: SystemPosterior) -> tuple[Floats, Floats]:
        """The matrix that Theta - T is multiplied by to give C~, and the covariance around it."""
        (p, n), asked = block.asked.centre.shape, block.asked
        gram, unsure, std = block.release["gram"], np.zeros((p, p)), block.std("gram")
        predicted = block.users * self.expected(known, block.policy, asked)[0]
        if std > 0:
            diagonal = np.diag(predicted)
            off = MODEL_ERROR**2 + float(np.trace(known.covariance)) / p
            of_model = off * (np.outer(diagonal, diagonal) + predicted**2)
            of_noise = std**2 * (0.5 + 0.5 * np.eye(p))
            gram = (of_model * gram + of_noise * predicted) / (of_model + of_noise)
            unsure = of_model * of_noise / (of_model + of_noise)
        values, basis = np.linalg.eigh(0.5 * (gram + gram.T))
        least = _LEAST * float(np.trace(predicted)) / p
        gram = (basis * np.maximum(values, least)) @ basis.T
        back = np.linalg.inv(asked.inputs.T)
        error = known.mean - asked.centre
        spread = back @ (error @ error.T / n + known.covariance) @ back.T
        noise = self._noise(block, gram) + np.diag(unsure @ np.diag(spread))
        return gram @ back, noise


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
