"""Optimism in the face of uncertainty, for linear-quadratic control (Private-OFU-RL).

The paper is that of Chowdhury, Zhou and Shroff; numbers of lines and equations are its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import EVERY, Pace
from tacit.core.asks import Arrays, State
from tacit.core.options import TheoryOptions
from tacit.core.ways import way
from tacit.lq.base import LQAlgorithm, LQOptions
from tacit.lq.estimate import ModelPosterior
from tacit.lq.optimism import ConfidenceSet, optimistic_model
from tacit.lq.policy import GainPolicy
from tacit.lq.safeguard import bounded_gains, candidates, optimal_gains
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.lq.proven_sets import ProvenSets

# Of the practical ellipsoid, in root mean square distances of the posterior; chosen like all of
# the constants in tacit.lq.base.
_OPTIMISM = 0.3

WAYS = {
    "theory": "tacit.lq.proven_sets:ProvenSets",
    "as_printed": "tacit.lq.proven_sets:PrintedSets",
}
"""Sets of models that are not the posterior's."""


@dataclass(frozen=True, kw_only=True)
class OFUOptions(TheoryOptions, LQOptions):
    """Options of :class:`OFU`: a bonus is a set of models, ``scale`` multiplies its radius."""

    def __post_init__(self) -> None:
        LQOptions.__post_init__(self)
        super().__post_init__()


class OFU(LQAlgorithm):
    """Users are served by the most favourable model that the data allow.

    In practice the set is an ellipsoid of the posterior, of ``scale`` times a constant; optimistic
    gains serve users where they pass the safeguard, else the greedy ones do. Under
    ``bonus="theory"`` the set is proven to hold the truth at all releases, with probability 1 -
    ``failure``, if the public bounds are true (and ``scale`` is 1); ``calibration="as_printed"``
    runs the paper's noise and radius. Both are in :mod:`tacit.lq.proven_sets`.
    """

    name = "ofu"
    Options = OFUOptions
    options: OFUOptions

    def __init__(self, setting: Setting, options: OFUOptions) -> None:
        self.printed = options.calibration == "as_printed"
        mode = "as_printed" if self.printed else options.bonus
        self._sets: ProvenSets | None = None
        if mode in WAYS:
            self._sets = way(WAYS[mode])(setting, options)
        super().__init__(setting, options)

    # What is asked (lines 3 and 9): sums of z z' and z x' over the steps of a block.

    def statistic(self) -> TrajectorySums:
        """In practice around the posterior mean, else around zero, all users alike."""
        return super().statistic() if self._sets is None else self._sets.statistic()

    @property
    def first_noise(self) -> float:
        """Optimism explores; in practice controls have noise besides."""
        return super().first_noise if self._sets is None else 0.0

    # What is estimated: a posterior, or the paper's running sums T_1 and T_2.

    def take_in(self, release: Release, statistic: TrajectorySums) -> None:
        """Adds a block."""
        if not self.printed:
            super().take_in(release, statistic)
        if self._sets is not None:
            self._sets.take_in(release, running=self.counter != "blocks")

    @property
    def uncertainty(self) -> ModelPosterior | None:
        """See :class:`~tacit.lq.base.LQAlgorithm`; ``None`` as printed, which has no posterior."""
        return None if self.printed else super().uncertainty

    # The confidence set (line 4).

    @property
    def confidence_set(self) -> ConfidenceSet | None:
        """The set that optimism is over; ``None`` before the first release."""
        if not self.releases:
            return None
        if self._sets is not None:
            return self._sets.models(self.served, self.schedule.releases)
        known = self._known
        beta = self.options.scale * _OPTIMISM * math.sqrt(known.mean.size)
        V = np.asarray(np.linalg.inv(known.covariance), dtype=np.float64)
        return ConfidenceSet(known.mean, V, beta)

    # The optimistic model (line 5, equation 9) and its gains (line 7, equation 10).

    def plan(self) -> tuple[GainPolicy, GainPolicy]:
        """Gains of the most favourable model; the greedy ones are certainty equivalence's."""
        spec, models = self.spec, self.confidence_set
        assert models is not None  # noqa: S101
        best = optimistic_model(
            models.centre,
            models.V,
            models.beta,
            spec.norm_bound,
            Q=spec.state_cost,
            R=spec.control_cost,
            H=spec.horizon,
            start_moment=spec.start_moment,
            noise_covariance=spec.noise_covariance,
            seed=self.releases,
        )
        optimistic = bounded_gains(best.gains, spec.gain_bound)
        if self.printed:
            greedy = optimal_gains(spec, models.centre, np.zeros_like(models.V))
            return self.policies(optimistic, greedy)
        others = candidates(spec, self._known, self.greedy_policy.gains)
        costs, gains = self.safeguard.try_out([*others, optimistic], self.possible_models())
        greedy = gains[int(np.argmin(costs[:-1]))]
        # The theory is about optimistic gains, whatever they cost.
        passes = self._sets is not None or math.isfinite(costs[-1])
        return self.policies(optimistic if passes else greedy, greedy)

    # Choices made before the first user comes.

    @property
    def gate_privacy(self) -> Privacy:
        """What adds the paper's noise, as printed."""
        if self._sets is None:
            return self.privacy
        return self._sets.gate_privacy(self.schedule.releases)

    @property
    def resumable(self) -> bool:
        """Runs as printed are for comparison only."""
        return not self.printed

    def _check(self) -> None:
        super()._check()
        if self._sets is None:
            return
        if (self.options.clip, self.options.level) != ("predictable", "public"):
            raise InvalidArgument("clip and level are for the practical agent: leave them out")
        self._sets.check()

    def _choose_counter(self) -> str:
        return "binary tree" if self.printed else super()._choose_counter()

    def _pace(self) -> Pace:
        return EVERY if self.printed else super()._pace()

    # Save and resume.

    def state(self) -> State:
        """The posterior's, and the running sums."""
        meta, arrays = super().state()
        none: State = {"variances": [0.0, 0.0]}, {}
        more, sums = none if self._sets is None else self._sets.state()
        return meta | more, arrays | sums

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        super().restore(meta, arrays)
        if self._sets is not None:
            self._sets.restore(meta, arrays)
