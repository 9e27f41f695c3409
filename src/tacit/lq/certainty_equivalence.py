"""Certainty equivalence: control as if what is believed were true, where that is safe."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit.lq.base import LQAlgorithm, LQOptions
from tacit.lq.policy import GainPolicy
from tacit.lq.safeguard import Safeguard, candidates
from tacit.privacy.arguments import positive


@dataclass(frozen=True, kw_only=True)
class CertaintyEquivalenceOptions(LQOptions):
    """Options of :class:`CertaintyEquivalence`, besides those of all of linear-quadratic control.

    Attributes:
        scale: multiplies the caution of the safeguard.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("scale", self.scale)


class CertaintyEquivalence(LQAlgorithm):
    """Gains that are best for the posterior, among those that pass the safeguard.

    What is asked: :class:`~tacit.lq.statistics.TrajectorySums` of every block, around the mean of a
    posterior of the model from all blocks (:mod:`tacit.lq.estimate`). There is no optimism: users
    explore by noise in their controls; ``greedy_policy`` has the gains alone.

    >>> from tacit import CertaintyEquivalence, JointDP
    >>> from tacit.lq import random_system
    >>> world = random_system(n=2, d=1, horizon=10, seed=500)
    >>> agent = CertaintyEquivalence(world.spec, 1000, JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.policy.noise > 0, float(abs(agent.policy.gains).max())
    (True, 0.0)
    """

    name = "certainty_equivalence"
    Options = CertaintyEquivalenceOptions
    options: CertaintyEquivalenceOptions

    @property
    def safeguard(self) -> Safeguard:
        """What published gains must pass, as cautious as was asked for."""
        plain = super().safeguard
        return replace(plain, caution=self.options.scale * plain.caution)

    def plan(self) -> tuple[GainPolicy, GainPolicy]:
        """Of the gains that pass, those of least average cost over possible models.

        Costs are in units of what zero control costs there, and zero control always passes.
        """
        gains = candidates(self.spec, self._known, self.greedy_policy.gains)
        costs, tried = self.safeguard.try_out(gains, self.possible_models())
        best = tried[int(np.argmin(costs))]
        return self.policies(best, best)
