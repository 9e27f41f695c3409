"""The framework of a paper with a REGULARIZER of your own.

LinOpt-VI-Reg adds matrices Z and vectors z to its sums, and asks for no more than bounds on them
(Assumption 2 of Zhou, 2022). Its own private ones are noise through a binary tree. This one draws
fresh noise for every episode, which costs the budget once per episode, and so is larger.

    python examples/own_regulariser.py

The runs are simulations with noise seeds, so that they can be compared; they protect nobody.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import math
import sys

from tacit import Budget
from tacit.mixture import hard_mixture
from tacit.papers.counters import level_of, operator_width, symmetric_noise, vector_width
from tacit.papers.result import gaussian_proof
from tacit.papers.zhou_mixture_2022 import Regularizers, Sizes, lin_opt_vi


class Fresh:
    """Noise of its own for the sums of every episode, with what is proven of it.

    A user is in the sums of all later episodes: K - 1 releases of squared sensitivity 9 H.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        K, H, mu = sizes.episodes, sizes.horizon, Budget(sizes.epsilon, sizes.delta).mu
        t, share = math.sqrt(9.0 * H * (K - 1)) / mu, sizes.failure / (12.0 * K * H)
        # Standard deviations of the noise on Gram matrices and vectors, of transitions and rewards.
        self.scales = (t * sizes.norm**2, t * sizes.norm * H), (t, t)
        self.p, self.r = (
            level_of(*scales, 1, operator_width(d, share), vector_width(d, share))
            for scales, d in zip(self.scales, (sizes.d1, sizes.d2), strict=True)
        )
        words = {"mechanism": "fresh Gaussian noise", "reason": "every release is paid for"}
        claim = "nothing: it is not in the paper"
        self.proof = gaussian_proof(mu, sizes.delta, K - 1, claim, epsilon=sizes.epsilon, **words)

    def regularize(self, first: int, n: int) -> Regularizers:
        """Z and z of episodes first + 1 to first + n."""
        made = []
        for d, (gram, vector), level in zip(
            (self.sizes.d1, self.sizes.d2), self.scales, (self.p, self.r), strict=True
        ):
            shape, draw = (n, self.sizes.horizon), self.sizes.noise.normal
            units = draw((*shape, d * (d + 1) // 2))
            made += [symmetric_noise(units, gram, math.sqrt(0.5), 2.0 * level.lambda_min)]
            made += [vector * draw((*shape, d))]
        return Regularizers(*made)


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
