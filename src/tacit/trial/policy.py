"""The policy of a trial: chances by a posterior of effects, which devices compute by themselves."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np

from tacit.privacy.statistic import Floats
from tacit.published.trials import PublishedTrial


@dataclass(frozen=True, eq=False, repr=False)
class TrialPolicy(PublishedTrial):
    """Chances of actions, for everybody alike, or with a person's own history as evidence.

    >>> policy = TrialPolicy(np.array([0.1]), np.array([[0.01]]), 2, low=0.2)
    >>> policy.chances([[1.0], [-1.0]]).round(3).tolist()
    [0.8, 0.2]
    """

    def as_version(self, version: int) -> TrialPolicy:
        """The same policy by another number."""
        return replace(self, version=version)

    @property
    def effects(self) -> Floats:
        """Means of effects (d,), or (A, d) of more than two actions, against their mean."""
        if self.n_actions == 2:
            return self.mean
        found = self.mean.reshape(self.n_actions, -1)
        return np.asarray(found - found.mean(axis=0))

    def relabelled(self, permutation: tuple[int, ...]) -> TrialPolicy:
        """The same where what was action ``a`` is ``permutation[a]``."""
        if self.n_actions == 2:
            sign = 1.0 if permutation[1] == 1 else -1.0
            return replace(self, mean=sign * self.mean)
        back, d = np.argsort(permutation), self.dimension
        order = (back[:, np.newaxis] * d + np.arange(d)).ravel()
        moved = self.covariance[np.ix_(order, order)]
        return replace(self, mean=self.mean[order], covariance=moved)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically (mode 0644); :mod:`tacit.published` reads it."""
        from tacit.core.public_file import write_published

        arrays = {n: np.array(float(getattr(self, n))) for n in ("low", "own", "usual")}
        arrays |= {n: np.array(int(getattr(self, n))) for n in ("n_actions", "greedy")}
        arrays |= {"mean": self.mean, "covariance": self.covariance}
        write_published(path, self.version, arrays, kind="trial")
