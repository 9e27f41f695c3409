"""The way to ask for a regression of next states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.mixture.base import Sums
from tacit.mixture.estimate import MixtureModel
from tacit.mixture.model_sums import ModelSums

if TYPE_CHECKING:
    from tacit.mixture.linopt_vi import LinOptVI
    from tacit.privacy.curator import Release


class ModelWay:
    """``"model"``: :class:`~tacit.mixture.model_sums.ModelSums`, for every value function."""

    def __init__(self, algorithm: LinOptVI) -> None:
        self._algorithm = algorithm
        self._made: dict[bool, ModelSums] = {}

    @property
    def form(self) -> Literal["episodes", "counts"]:
        """Episodes where a clip must see users one by one, else sums."""
        statistic: Any = self._algorithm.statistic()
        return "episodes" if statistic.clips else "counts"

    def statistic(self, one_by_one: bool) -> ModelSums:
        """Clipped, in typical lengths, if users come one by one."""
        if one_by_one not in self._made:
            clip = None
            if one_by_one:
                clip = self._algorithm.options.constants.clip * self._sums(None).typical
                clip *= 1.0 if self._algorithm.pooled else math.sqrt(2.0)
            self._made[one_by_one] = self._sums(clip)
        return self._made[one_by_one]

    def _sums(self, clip: float | None) -> ModelSums:
        public, pooled = self._algorithm.public, self._algorithm.pooled
        tables = public.features, public.mean, public.support
        return ModelSums(*tables, public.horizon, public.reward_features, pooled=pooled, clip=clip)

    def sums(self, release: Release, statistic: ModelSums) -> Sums:
        """All parts, and the noise of their rows."""
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        rows = np.ones(len(release.parts["cross"]))
        noise = {name: value * rows for name, value in std.items()}
        return dict(release.parts), noise, std["cross"]

    def model(self) -> MixtureModel:
        """The regression of next states."""
        return self._algorithm.regression()
