"""An agent for linear mixtures with a regulariser of your own.

A released Gram matrix carries noise, and small eigenvalues drown in it. The built-in regularisers
add something to all of them. This one lifts those that drown and leaves the others alone.

    python examples/own_regulariser.py

The runs are simulations with noise seeds, so that they can be compared; they protect nobody.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import tacit
from tacit.mixture import keyboard
from tacit.mixture.regularisers import (
    FixedRidge,
    NoiseRidge,
    NoiseShift,
    Regularised,
    Regulariser,
)


@dataclass(frozen=True)
class Floor:
    """Lifts eigenvalues that drown in the noise to its level; its three numbers are a guess."""

    times: float = 2.0

    def __call__(
        self, gram: NDArray[np.float64], gram_noise: float, cross_noise: float, failure: float
    ) -> Regularised:
        """Regularises one released Gram matrix."""
        k = len(gram)
        level = 1e-3 + gram_noise * math.sqrt(k)
        eigenvalues, vectors = np.linalg.eigh(gram)
        matrix = (vectors * np.maximum(eigenvalues, self.times * level)) @ vectors.T
        return Regularised(matrix, level, 3.0 * level, cross_noise * math.sqrt(k / level))


def lost(regulariser: Regulariser, users: int, seed: int) -> float:
    """The share of the optimum that a user loses on average, in one run."""
    world = keyboard(seed=seed)
    agent = tacit.LinOptVI(
        world.spec,
        users,
        tacit.JointDP(epsilon=1.0, delta=1e-6),
        regulariser=regulariser,
        seed=seed,
        noise_seed=seed,
    )
    result = tacit.run(agent, world, seed, progress=False)
    return float(result.regret[-1] / result.users / result.optimal_value)


def main() -> int:
    """Compares it with the built-in ones."""
    parser = argparse.ArgumentParser(description="Compares regularisers of a private agent.")
    parser.add_argument("--users", type=int, default=20_000, help="how many come in each run")
    parser.add_argument("--runs", type=int, default=5, help="how many, each in a world of its own")
    given = parser.parse_args()
    print(f"What a user loses of the optimum, median of {given.runs} runs:")
    for regulariser in (FixedRidge(), NoiseRidge(), NoiseShift(), Floor()):
        runs = [lost(regulariser, given.users, seed) for seed in range(given.runs)]
        print(f"  {regulariser!s:34}{np.median(runs):6.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
