"""Certainty equivalence: control as if what is believed were true, where that is safe."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit.core.schedule import Schedule
from tacit.lq.agent import LQAgent
from tacit.lq.policy import GainPolicy
from tacit.privacy.errors import InvalidArgument


class CertaintyEquivalence(LQAgent):
    """Gains that are best for the posterior, among those that pass the gate.

    Candidates are the optimal gains of the posterior mean, shares of them, gains that count the
    posterior's spread, and those that were published last. The one with the least cost on average
    over possible models is published, in units of what zero control costs there. Users are served
    with these gains and with noise in their controls; ``greedy_policy`` has the gains alone.
    ``scale`` multiplies the caution of the gate.

    >>> from tacit import JointDP
    >>> from tacit.lq import random_system
    >>> world = random_system(n=2, d=1, horizon=10, seed=500)
    >>> agent = CertaintyEquivalence(world.spec, 1000, JointDP(1.0, 1e-6), noise_seed=0)
    >>> agent.policy.noise > 0, float(abs(agent.policy.gains).max())
    (True, 0.0)
    """

    name: ClassVar[str] = "certainty_equivalence"

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if self.bonus != "practical" or self.calibration != "tight":
            raise InvalidArgument(
                "certainty equivalence has no bonus and no paper's noise: bonus must be practical "
                f"and calibration tight, got {self.bonus!r} and {self.calibration!r}; see OFU"
            )

    @property
    def _caution(self) -> float:
        return self.scale * super()._caution

    def _plan(self) -> tuple[GainPolicy, GainPolicy]:
        costs, gains = self._safe(self._greedy_candidates())
        best = gains[int(np.argmin(costs))]
        return self._policies(best, best)
