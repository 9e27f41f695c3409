"""Optimism in the face of uncertainty, for linear-quadratic control (Private-OFU-RL)."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.learner import Arrays
from tacit.core.schedule import Schedule
from tacit.lq.agent import LQAgent, best_weight, bounded_gains
from tacit.lq.estimate import Posterior
from tacit.lq.optimism import optimistic_model
from tacit.lq.policy import GainPolicy
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.privacy.statistic import Statistic

Floats = NDArray[np.float64]

# Of the practical ellipsoid, in root mean square distances of the posterior; chosen like all of
# the constants in tacit.lq.agent.
_OPTIMISM = 0.3


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """Models Theta with tr((Theta - centre)' V (Theta - centre)) <= beta^2.

    Attributes:
        centre: (n + d, n).
        V: (n + d, n + d).
        beta: the radius.
    """

    centre: Floats
    V: Floats
    beta: float

    def holds(self, theta: Floats) -> bool:
        """Whether a model is in it."""
        error = theta - self.centre
        return float((error * (self.V @ error)).sum()) <= self.beta**2


class OFU(LQAgent):
    """Users are served by the most favourable model that the data allow.

    In practice the set is an ellipsoid of the posterior, of ``scale`` times a constant; optimistic
    gains serve users where they pass the gate, else the greedy ones do.

    Under ``bonus="theory"`` the set is proven to hold the truth at all releases, with probability
    1 - ``failure``, if the public bounds are true (and ``scale`` is 1). All users are asked the
    same, with inputs z, centre zero, and caps C_w + S |z|, S the bound on the norm of Theta. Those
    never cut, as |x'| <= C_w + |Theta| |z|. Let G and C = G Theta + W be the sums over all users up
    to the j-th of m releases, N_G and N_C their noise, and a = failure / (3 m).

    1. W = sum s z w', where s and z are known before w, and w has mean zero given them and
       |w| <= C_w, so that E exp(tr(L'W_k)) <= exp(C_w^2/2 |L'z|^2 s^2) at every step (Hoeffding,
       s <= 1). Mixed over normal L this bounds, for any fixed l > 0 with probability 1 - a,
       tr(W'(G + l I)^{-1}W) <= C_w^2 (2 ln(1/a) + n ln det(I + G / l)).
    2. N_G is symmetric, its diagonal of standard deviation t, the rest of t / sqrt 2. Its norm is
       at most l := t (sqrt(2 p) + sqrt(2 ln(2/a))), p = n + d, with probability 1 - a: the mean of
       its largest eigenvalue is at most t sqrt(2 p), and that is t-Lipschitz in the noise.
    3. |N_C| <= t_C (sqrt(n p) + sqrt(2 ln(1/a))) with probability 1 - a.

    Let V = G + N_G + 2 l I =: G + D, so that l I <= D <= 3 l I and V >= G + l I, and let the centre
    be V^{-1}(C + N_C). Its error is V^{-1}(W + N_C - D Theta), which in the norm of V is at most
    sqrt of 1, plus |N_C| / sqrt(l), plus sqrt(tr(Theta' D V^{-1} D Theta)) <= sqrt(3 l) S. In 1,
    ln det(I + G / l) is at most p ln(1 + k tau / (p l)) for k users, whose traces are at most tau,
    and at most ln det(V / l): beta is the less of both, and reads nothing that was not released.
    Without privacy D = l I with a fixed l, which costs sqrt(l) S.

    ``calibration="as_printed"`` runs the paper's noise: a binary tree over the releases, nodes with
    sqrt(8 m ln(2/delta)) H (1 + g)^2 / epsilon on the Gram and H (1 + g) in place of H (1 + g)^2 on
    the cross sums, m = ceil(log2 K), g the bound on gains, of steps clipped to |x| <= 1. Its radius
    takes the data-independent logarithm: the printed one reads raw data. The guarantee is what is
    proven for this noise.
    """

    name: ClassVar[str] = "ofu"

    _total: tuple[Floats, Floats] | None = None
    _variances: tuple[float, float] = (0.0, 0.0)

    @property
    def _papers(self) -> bool:
        """Whether the set is a paper's, not the posterior's."""
        return self.bonus == "theory" or self.calibration == "as_printed"

    @property
    def uncertainty(self) -> Posterior | None:
        """See :class:`~tacit.lq.agent.LQAgent`; ``None`` as printed, which has no posterior."""
        return None if self.calibration == "as_printed" else super().uncertainty

    @property
    def confidence_set(self) -> ConfidenceSet | None:
        """The set that optimism is over; ``None`` before the first release."""
        if not self.releases:
            return None
        if not self._papers:
            known = self._known
            beta = self.scale * _OPTIMISM * math.sqrt(known.mean.size)
            return ConfidenceSet(known.mean, _floats(np.linalg.inv(known.covariance)), beta)
        return self._papers_set()

    # What is asked.

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if self._papers and (self.clip != "predictable" or self.level != "public"):
            raise InvalidArgument("clip and level are for the practical agent: leave them out")
        if self.calibration == "as_printed" and self.bonus == "theory":
            raise InvalidArgument("as printed, the radius is the paper's: leave bonus out")

    @property
    def _first_noise(self) -> float:
        return 0.0 if self._papers else self._practical_noise

    def _make_statistic(self) -> TrajectorySums:
        if not self._papers:
            return super()._make_statistic()
        spec = self.spec
        sizes = spec.states, spec.controls, spec.horizon
        if self.calibration == "as_printed":
            g = spec.gain_bound
            return TrajectorySums(
                *sizes, clip="step", weight=1.0 + g, p_bound=math.hypot(1.0, g), r_bound=1.0
            )
        length = math.sqrt(float(np.trace(spec.start_moment))) or spec.noise_bound or 1.0
        cap = spec.noise_bound + spec.norm_bound * length
        weight = best_weight(length**2, cap**2, 0.5 * spec.norm_bound**2)
        steps = min(float(spec.horizon), self.constants.steps)
        return TrajectorySums(
            *sizes,
            tau=steps * (length**2 + 0.5 * weight**2 * cap**2),
            weight=weight,
            floor=spec.noise_bound,
            spread=spec.norm_bound * np.eye(spec.states + spec.controls),
        )

    # What is known.

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        if self.calibration != "as_printed":
            super()._absorb(release, statistic, users)
        if not self._papers:
            return
        stds = (float(np.max(release.std[name])) for name in ("gram", "cross"))
        gram, cross, variances = release["gram"], release["cross"], tuple(s * s for s in stds)
        if self._stream is None and self._total is not None:
            gram, cross = gram + self._total[0], cross + self._total[1]
            variances = tuple(a + b for a, b in zip(variances, self._variances, strict=True))
        self._total, self._variances = (gram, cross), (variances[0], variances[1])

    def _papers_set(self) -> ConfidenceSet:
        """The set of the class's proof, or the paper's."""
        spec = self.spec
        n, p = spec.states, spec.states + spec.controls
        assert self._total is not None  # noqa: S101
        gram, cross = self._total
        if self.calibration == "as_printed":
            shift, low, high, noise = self._printed_shifts()
            log = 2.0 * math.log(2.0 / self.failure)
            energy = spec.horizon * self.users * (1.0 + spec.gain_bound**2)
        else:
            share = self.failure / (3.0 * self.schedule.releases)
            log = 2.0 * math.log(1.0 / share)
            energy = self.served * float(self._make_statistic().tau or 0.0)
            if isinstance(self.privacy, NonPrivate):
                low = high = shift = (spec.noise_bound / spec.norm_bound) ** 2 or 1e-6
                noise = 0.0
            else:
                t, t_cross = (math.sqrt(v) for v in self._variances)
                low = t * (math.sqrt(2.0 * p) + math.sqrt(2.0 * math.log(2.0 / share)))
                shift, high = 2.0 * low, 3.0 * low
                noise = t_cross * (math.sqrt(n * p) + math.sqrt(log)) / math.sqrt(low)
        V = 0.5 * (gram + gram.T) + shift * np.eye(p)
        values = np.linalg.eigvalsh(V)
        logdet = p * math.log1p(energy / (p * low))
        if self.calibration != "as_printed":
            # Below low only where the noise exceeds its bound.
            logdet = min(logdet, float(np.log(np.maximum(values / low, 1.0)).sum()))
        if values[0] <= 0.0:
            V += (low - float(values[0])) * np.eye(p)
        width = spec.noise_bound * math.sqrt(log + n * logdet)
        beta = width + math.sqrt(high) * spec.norm_bound + noise
        return ConfidenceSet(_floats(np.linalg.solve(V, cross)), V, self.scale * beta)

    def _printed_shifts(self) -> tuple[float, float, float, float]:
        """The paper's 2 Lambda, its least and largest shift, and nu, for noise as printed."""
        n, p = self.spec.states, self.spec.states + self.spec.controls
        first, second, m = self._printed_noise()
        K, a = self.users, self.failure
        root = math.sqrt(m)
        low = first * root * (4.0 * math.sqrt(p) + math.sqrt(8.0 * math.log(4.0 * K / a)))
        ahead = math.sqrt(2.0 * n * p) + math.sqrt(4.0 * math.log(2.0 * K / a))
        return 2.0 * low, low, 3.0 * low, second * root / math.sqrt(low) * ahead

    def _printed_noise(self) -> tuple[float, float, int]:
        """The paper's standard deviations of a node, Gram and cross, and its m."""
        privacy = self.privacy
        if not isinstance(privacy, JointDP) or privacy.pure or privacy.episodes_per_user > 1:
            raise InvalidArgument("as printed, the model is joint DP with delta > 0, one episode")
        if self.users < 2:
            raise InvalidArgument("as printed, the noise grows with log K: give users >= 2")
        m = math.ceil(math.log2(self.users))
        unit = math.sqrt(8.0 * m * math.log(2.0 / privacy.delta)) / privacy.epsilon
        second = unit * self.spec.horizon * (1.0 + self.spec.gain_bound)
        return second * (1.0 + self.spec.gain_bound), second, m

    # Choices made before the first user comes.

    def _choose_counter(self, counter: str) -> str:
        if self.calibration == "as_printed":
            return "binary tree"
        return super()._choose_counter(counter)

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if self.calibration == "as_printed" and schedule == "auto":
            return Schedule.of("every", self.users)
        return super()._make_schedule(schedule)

    def _as_printed(self) -> Privacy:
        """What is proven for the paper's noise: a user is in floor(log2 releases) + 1 nodes."""
        first, _, _ = self._printed_noise()
        privacy = self.privacy
        assert isinstance(privacy, JointDP)  # noqa: S101
        levels = self.schedule.releases.bit_length()
        mu = self._make_statistic().l2(privacy.relation) * math.sqrt(levels) / first
        return JointDP(epsilon_from_mu(mu, privacy.delta), privacy.delta, relation=privacy.relation)

    # Gains.

    def _plan(self) -> tuple[GainPolicy, GainPolicy]:
        spec = self.spec
        models = self.confidence_set
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
        serving = bounded_gains(best.gains, spec.gain_bound)
        if self.calibration == "as_printed":
            greedy = self._gains(models.centre, np.zeros_like(models.V))
            return self._policies(serving, greedy)
        costs, gains = self._safe([*self._greedy_candidates(), serving])
        greedy = gains[int(np.argmin(costs[:-1]))]
        # The theory is about optimistic gains, whatever they cost.
        safe = self._papers or math.isfinite(costs[-1])
        return self._policies(serving if safe else greedy, greedy)

    # Save and resume.

    def save(self, path: str | os.PathLike[str]) -> None:
        """See :meth:`tacit.core.learner.Learner.save`; runs as printed are for comparison only."""
        if self.calibration == "as_printed":
            raise InvalidArgument("as printed is for comparisons: such a run is not saved")
        super().save(path)

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        meta, arrays = super()._state()
        if self._total is not None:
            arrays |= {"gram": self._total[0], "cross": self._total[1]}
        return meta | {"variances": list(self._variances)}, arrays

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        super()._set_state(meta, arrays)
        self._variances = (meta["variances"][0], meta["variances"][1])
        self._total = (arrays["gram"], arrays["cross"]) if "gram" in arrays else None


def _floats(array: NDArray[np.floating[Any]]) -> Floats:
    """What linear algebra returns, in the type that it has."""
    return np.asarray(array, dtype=np.float64)
