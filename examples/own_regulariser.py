"""The framework of a paper with a REGULARIZER of your own.

LinOpt-VI-Reg adds matrices Z and vectors z to its sums, and asks for no more than bounds on them
(Assumption 2 of Zhou, 2022). Its own private ones are noise through a binary tree. This one draws
fresh noise for every episode, which costs the budget once per episode, and so is larger.

    python examples/own_regulariser.py

The runs are simulations with noise seeds, so that they can be compared.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import math
import sys

import numpy as np
from numpy.typing import NDArray

from tacit import Budget
from tacit.mixture import hard_mixture
from tacit.papers.counters import NoisySums, operator_width, symmetric_noise, vector_width
from tacit.papers.result import Sizes, proven
from tacit.papers.zhou_mixture_2022 import lin_opt_vi


class Fresh:
    """Noise of its own for the sums of every episode, with what is proven of it.

    A user is in the sums of all later episodes: K - 1 releases of squared sensitivity 9 H.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        K, H, mu = sizes.episodes, sizes.horizon, Budget(sizes.epsilon, sizes.delta).mu
        t, share = math.sqrt(9.0 * H * (K - 1)) / mu, sizes.failure / (12.0 * K * H)
        norm = math.sqrt(sizes.shape[0]) * H  # of the features of transitions
        # Standard deviations of the noise on Gram matrices and vectors, of transitions and rewards.
        scales = (t * norm**2, t * norm * H), (t, t)
        self.sums = [
            NoisySums.shifted((d, 1), two, 1, operator_width(d, share), vector_width(d, share))
            for two, d in zip(scales, sizes.shape, strict=True)
        ]
        self.levels = tuple(one.level for one in self.sums)
        claim, reason = "nothing: it is not in the paper", "every release is paid for"
        words = {"mechanism": "fresh Gaussian noise", "model": "joint", "releases": K - 1}
        self.proof = proven(claim, reason, mu=mu, delta=sizes.delta, **words)

    def regularize(self, first: int, n: int) -> list[NDArray[np.float64]]:
        """Z and z of episodes first + 1 to first + n."""
        shape, draw, made = (n, self.sizes.horizon), self.sizes.noise.normal, []
        for one in self.sums:
            grams = one.gram * symmetric_noise(draw((*shape, one.cells - one.rows)))
            made += [grams + 2.0 * one.level.lambda_min * np.eye(one.rows)]
            made += [one.cross * draw((*shape, one.rows))]
        return made


def main() -> int:
    """Compares it with those of the paper."""
    parser = argparse.ArgumentParser(description="Compares regularisers of a paper's algorithm.")
    parser.add_argument("--episodes", type=int, default=2_000, help="how many, K")
    given, world = parser.parse_args(), hard_mixture()
    print(f"Of {given.episodes} episodes, at (1, 1e-6):")
    for regularizer in ("ridge", "private", Fresh):
        result = lin_opt_vi(
            world,
            episodes=given.episodes,
            epsilon=1.0,
            delta=1e-6,
            regularizer=regularizer,
            printed=False,
        )
        name = regularizer if isinstance(regularizer, str) else regularizer.__name__
        proven = "not private" if result.guarantee is None else result.guarantee.short
        shift, radius = result.constants["lambda_p"], result.constants["beta_p"]
        print(f"  {name:8} lambda {shift:11,.0f}, beta {radius:9,.1f}; {proven}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
