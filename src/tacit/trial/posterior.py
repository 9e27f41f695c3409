"""Posterior of effects, from noisy scores of looks that overlap.

Look j released y_j = sum of unit scores of N people, plus noise of deviation s_j. With S_j the sum
of the variances of a person's actions up to then, and M the shape of the design (of trace 1),

    E y_j = N sqrt(S_j) M theta,    Cov(y_j, y_k) = N sqrt(S_j / S_k) M + 1{j = k} s_j^2 I,  j <= k,

for effects theta that are small, in units of a person's own deviation of rewards: those of a
decision whose features have their usual length. Larger effects make scores shorter than this, so
the posterior mean errs towards zero. Looks overlap, as each has the whole history, hence the
covariance. In M's eigenbasis coordinates are apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from tacit.privacy.curator import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.tabular.spec import FiniteSpec

PRIOR = 0.5  # standard deviation of an effect, in deviations of rewards
STAYED = 0.85  # decisions that people make, of those planned


@dataclass(frozen=True, eq=False)
class LookEvidence:
    """One released look."""

    scores: Floats  # noisy sum, (columns, d)
    noise: float  # standard deviation of each entry
    people: int
    information: float  # S_j, by the policies that served

    @classmethod
    def of(cls, release: Release, information: float) -> Self:
        """That of a release of scores."""
        scores, noise = release["scores"], float(np.max(release.std["scores"]))
        return cls(scores, noise, release.users, information)


@dataclass(frozen=True, eq=False)
class EffectPosterior:
    """A normal posterior of effects."""

    mean: Floats
    covariance: Floats


def people_needed(dimension: int, actions: int, mu: float) -> int:
    """People until usual effects are found, by rule of thumb: within a factor of three.

    Three times those whose unit scores, were they all alike, would equal the noise everywhere.
    """
    return math.ceil(6.0 / mu * math.sqrt(dimension * (1 if actions == 2 else actions)))


def few_people(spec: FiniteSpec, privacy: Privacy, users: int | None) -> bool:
    """Whether users of a small finite world are few: below 20 S A / mu; measured from 17 to 40."""
    mu = float(privacy.budget.mu) if privacy.private else math.inf
    cells = spec.states * spec.actions
    if users is None or cells > 50 or users * mu >= 20.0 * cells:
        return False
    if 3 * users < (needed := people_needed(spec.states, spec.actions, mu)):
        words = f"about {needed} are needed at this budget; or name an agent"
        raise InvalidArgument(f"{users} users teach nothing: {words}")
    return True


def shape_of(design: Floats, actions: int) -> Floats:
    """M: the design, for each pair of actions where there are more than two, of trace 1."""
    if actions == 2:
        return design
    apart = (np.eye(actions) - 1.0 / actions) / (actions - 1)
    return np.asarray(np.kron(apart, design), dtype=np.float64)


def overlap_of(reach: Floats, people: Floats) -> Floats:
    """Covariance of looks by what their histories share, in units of M; ``reach`` is sqrt(S_j)."""
    shared = np.minimum.outer(reach, reach) / np.maximum.outer(reach, reach)
    return np.asarray(np.minimum.outer(people, people) * shared, dtype=np.float64)


def posterior(
    evidence: tuple[LookEvidence, ...],
    shape: Floats,
    prior: float = PRIOR,
    *,
    apart: bool = False,
) -> EffectPosterior:
    """Posterior of theta given looks, by generalised least squares and a normal prior.

    Args:
        evidence: The looks.
        shape: M.
        prior: Standard deviation of an effect.
        apart: Whether looks are of different people.
    """
    values, basis = np.linalg.eigh(shape)
    values = np.maximum(values, 0.0)
    mean, variance = np.zeros(len(shape)), np.full(len(shape), prior**2)
    if evidence:
        seen = np.array([each.scores.ravel() for each in evidence]) @ basis  # (looks, size)
        reach = np.array([np.sqrt(max(each.information, 1e-12)) for each in evidence])
        people = np.array([float(each.people) for each in evidence])
        overlap = overlap_of(reach, people)
        overlap = np.diag(np.diag(overlap)) if apart else overlap
        noise = np.diag([each.noise**2 for each in evidence])
        for i, value in enumerate(values):
            slope = people * reach * value
            weights = np.linalg.solve(overlap * value + noise + 1e-9 * np.eye(len(slope)), slope)
            precision = float(weights @ slope) + 1.0 / prior**2
            mean[i], variance[i] = float(weights @ seen[:, i]) / precision, 1.0 / precision
    return EffectPosterior(basis @ mean, (basis * variance) @ basis.T)
