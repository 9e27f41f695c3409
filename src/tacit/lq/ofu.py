"""Optimism in the face of uncertainty, for linear-quadratic control (Private-OFU-RL).

The paper is that of Chowdhury, Zhou and Shroff; numbers of lines, equations and lemmas are its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tacit.core.algorithm import EVERY, Floats, Pace
from tacit.core.asks import Arrays, State
from tacit.lq.base import LQAlgorithm, LQOptions
from tacit.lq.certainty_equivalence import candidates
from tacit.lq.estimate import ModelPosterior
from tacit.lq.optimism import optimistic_model
from tacit.lq.policy import GainPolicy
from tacit.lq.questions import best_weight
from tacit.lq.safeguard import bounded_gains, optimal_gains
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.arguments import one_of, positive
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.models import JointDP, Privacy

# Of the practical ellipsoid, in root mean square distances of the posterior; chosen like all of
# the constants in tacit.lq.base.
_OPTIMISM = 0.3


@dataclass(frozen=True, kw_only=True)
class OFUOptions(LQOptions):
    """Options of :class:`OFU`, besides those of all of linear-quadratic control.

    Attributes:
        bonus: ``"practical"``, an ellipsoid of the posterior, or ``"theory"``, a set that is proven
            to hold the truth.
        scale: multiplies the radius of the set.
        failure: with which probability the theory's set may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for the paper's own noise and radius.
    """

    bonus: Literal["practical", "theory"] = "practical"
    scale: float = 1.0
    failure: float = 0.1
    calibration: Literal["tight", "as_printed"] = "tight"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("bonus", self.bonus, ("practical", "theory"))
        one_of("calibration", self.calibration, ("tight", "as_printed"))
        positive("scale", self.scale)
        if not 0.0 < positive("failure", self.failure) < 1.0:
            raise InvalidArgument(f"failure must be in (0, 1), got {self.failure!r}")


@dataclass(frozen=True, eq=False)
class ConfidenceSet:
    """Models Theta with tr((Theta - centre)' V (Theta - centre)) <= beta^2, equation (8).

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


class NoiseBounds(NamedTuple):
    """Of the regression on noisy sums: H = V - Z'Z and L = U - Z'X (Assumption 2).

    Attributes:
        eta: V is the noisy Gram plus eta I.
        least: H >= least I.
        largest: H <= largest I.
        nu: |L| <= nu, in the norm of the inverse of H.
    """

    eta: float
    least: float
    largest: float
    nu: float


class OFU(LQAlgorithm):
    """Users are served by the most favourable model that the data allow.

    In practice the set is an ellipsoid of the posterior, of ``scale`` times a constant; optimistic
    gains serve users where they pass the safeguard, else the greedy ones do.

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

    name = "ofu"
    Options = OFUOptions
    options: OFUOptions

    _total: tuple[Floats, Floats] | None = None
    _variances: tuple[float, float] = (0.0, 0.0)

    @property
    def printed(self) -> bool:
        """Whether noise and radius are as printed."""
        return self.options.calibration == "as_printed"

    @property
    def papers(self) -> bool:
        """Whether the set is a paper's, not the posterior's."""
        return self.options.bonus == "theory" or self.printed

    # What is asked (lines 3 and 9): sums of z z' and z x' over the steps of a block.

    def statistic(self) -> TrajectorySums:
        """In practice around the posterior mean, else around zero, all users alike."""
        if not self.papers:
            return super().statistic()
        spec = self.spec
        sizes = spec.states, spec.controls, spec.horizon
        if self.printed:
            g = spec.gain_bound
            return TrajectorySums(
                *sizes, clip="step", weight=1.0 + g, p_bound=math.hypot(1.0, g), r_bound=1.0
            )
        length = math.sqrt(float(np.trace(spec.start_moment))) or spec.noise_bound or 1.0
        cap = spec.noise_bound + spec.norm_bound * length
        weight = best_weight(length**2, cap**2, 0.5 * spec.norm_bound**2)
        steps = min(float(spec.horizon), self.options.constants.steps)
        return TrajectorySums(
            *sizes,
            tau=steps * (length**2 + 0.5 * weight**2 * cap**2),
            weight=weight,
            floor=spec.noise_bound,
            spread=spec.norm_bound * np.eye(spec.states + spec.controls),
        )

    @property
    def first_noise(self) -> float:
        """Optimism explores; in practice controls have noise besides."""
        return 0.0 if self.papers else super().first_noise

    # What is estimated: a posterior, or the papers' running sums T_1 and T_2.

    def take_in(self, release: Release, statistic: TrajectorySums) -> None:
        """Adds a block."""
        if not self.printed:
            super().take_in(release, statistic)
        if not self.papers:
            return
        stds = (float(np.max(release.std[name])) for name in ("gram", "cross"))
        gram, cross, variances = release["gram"], release["cross"], tuple(s * s for s in stds)
        if self.counter == "blocks" and self._total is not None:
            gram, cross = gram + self._total[0], cross + self._total[1]
            variances = tuple(a + b for a, b in zip(variances, self._variances, strict=True))
        self._total, self._variances = (gram, cross), (variances[0], variances[1])

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
        if self.printed:
            return self._printed_set()
        if self.papers:
            return self._proven_set()
        known = self._known
        beta = self.options.scale * _OPTIMISM * math.sqrt(known.mean.size)
        return ConfidenceSet(known.mean, _floats(np.linalg.inv(known.covariance)), beta)

    def _proven_set(self) -> ConfidenceSet:
        """The set of the class's proof."""
        spec = self.spec
        n, p = spec.states, spec.states + spec.controls
        share = self.options.failure / (3.0 * self.schedule.releases)
        log = 2.0 * math.log(1.0 / share)
        if self.privacy.private:
            t, t_cross = (math.sqrt(v) for v in self._variances)
            low = t * (math.sqrt(2.0 * p) + math.sqrt(2.0 * math.log(2.0 / share)))
            nu = t_cross * (math.sqrt(n * p) + math.sqrt(log)) / math.sqrt(low)
            of_noise = NoiseBounds(2.0 * low, low, 3.0 * low, nu)
        else:
            low = (spec.noise_bound / spec.norm_bound) ** 2 or 1e-6
            of_noise = NoiseBounds(low, low, low, 0.0)
        energy = self.served * float(self.statistic().tau or 0.0)
        return self._set(of_noise, log, energy)

    def _set(self, of_noise: NoiseBounds, log: float, energy: float) -> ConfidenceSet:
        """Estimate (7) and radius of Lemma 1, whose determinant is of nobody's raw data.

        Args:
            of_noise: what noise and eta may do.
            log: twice the logarithm of 1 / probability.
            energy: a bound on the trace of Z'Z.
        """
        assert self._total is not None  # noqa: S101
        T1, T2 = self._total
        p, n = T2.shape
        V = 0.5 * (T1 + T1.T) + of_noise.eta * np.eye(p)
        values = np.linalg.eigvalsh(V)
        logdet = p * math.log1p(energy / (p * of_noise.least))
        if not self.printed:
            # Below least only where the noise exceeds its bound.
            seen = np.log(np.maximum(values / of_noise.least, 1.0)).sum()
            logdet = min(logdet, float(seen))
        if values[0] <= 0.0:
            V += (of_noise.least - float(values[0])) * np.eye(p)
        width = self.spec.noise_bound * math.sqrt(log + n * logdet)
        beta = width + math.sqrt(of_noise.largest) * self.spec.norm_bound + of_noise.nu
        return ConfidenceSet(_floats(np.linalg.solve(V, T2)), V, self.options.scale * beta)

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
        passes = self.papers or math.isfinite(costs[-1])
        return self.policies(optimistic if passes else greedy, greedy)

    # As printed.

    def _printed_noise(self) -> tuple[float, float, int]:
        """Sigma_1 and sigma_2 of a node, Gram and cross, and m (Theorem 2)."""
        privacy = self.privacy
        if not privacy.joint or privacy.pure or privacy.episodes_per_user > 1:
            raise InvalidArgument("as printed, the model is joint DP with delta > 0, one episode")
        if self.users < 2:
            raise InvalidArgument("as printed, the noise grows with log K: give users >= 2")
        m = math.ceil(math.log2(self.users))
        unit = math.sqrt(8.0 * m * math.log(2.0 / privacy.delta)) / privacy.epsilon
        second = unit * self.spec.horizon * (1.0 + self.spec.gain_bound)
        return second * (1.0 + self.spec.gain_bound), second, m

    def _printed_set(self) -> ConfidenceSet:
        """The paper's eta = 2 Lambda, and its bounds (proof of Theorem 3)."""
        n, p = self.spec.states, self.spec.states + self.spec.controls
        K, a = self.users, self.options.failure
        first, second, m = self._printed_noise()
        root = math.sqrt(m)
        low = first * root * (4.0 * math.sqrt(p) + math.sqrt(8.0 * math.log(4.0 * K / a)))
        ahead = math.sqrt(2.0 * n * p) + math.sqrt(4.0 * math.log(2.0 * K / a))
        nu = second * root / math.sqrt(low) * ahead
        energy = self.spec.horizon * K * (1.0 + self.spec.gain_bound**2)
        of_noise = NoiseBounds(2.0 * low, low, 3.0 * low, nu)
        return self._set(of_noise, 2.0 * math.log(2.0 / a), energy)

    @property
    def gate_privacy(self) -> Privacy:
        """What is proven for the paper's noise: a user is in floor(log2 releases) + 1 nodes."""
        privacy = self.privacy
        if not self.printed or not privacy.joint:
            return privacy
        first, _, _ = self._printed_noise()
        levels = self.schedule.releases.bit_length()
        mu = self.statistic().l2(privacy.relation) * math.sqrt(levels) / first
        return JointDP(epsilon_from_mu(mu, privacy.delta), privacy.delta, relation=privacy.relation)

    @property
    def resumable(self) -> bool:
        """Runs as printed are for comparison only."""
        return not self.printed

    def _check(self) -> None:
        super()._check()
        if self.papers and (self.options.clip, self.options.level) != ("predictable", "public"):
            raise InvalidArgument("clip and level are for the practical agent: leave them out")
        if not self.printed:
            return
        if self.options.bonus == "theory":
            raise InvalidArgument("as printed, the radius is the paper's: leave bonus out")
        if self.privacy.exact:
            raise InvalidArgument("as printed, noise is continuous: take sampler='floating-point'")
        self._printed_noise()

    def _choose_counter(self) -> str:
        return "binary tree" if self.printed else super()._choose_counter()

    def _pace(self) -> Pace:
        return EVERY if self.printed else super()._pace()

    # Save and resume.

    def state(self) -> State:
        """The posterior's, and the running sums."""
        meta, arrays = super().state()
        if self._total is not None:
            arrays |= {"gram": self._total[0], "cross": self._total[1]}
        return meta | {"variances": list(self._variances)}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        super().restore(meta, arrays)
        self._variances = (meta["variances"][0], meta["variances"][1])
        self._total = (arrays["gram"], arrays["cross"]) if "gram" in arrays else None


def _floats(array: Any) -> Floats:
    """What linear algebra returns, in the type that it has."""
    return np.asarray(array, dtype=np.float64)
