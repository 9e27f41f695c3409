"""Sets of models that a paper proves, or prints: see :class:`ProvenSets`, :class:`PrintedSets`.

Both regress on running sums of all users, and read nothing that was not released.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tacit.core.algorithm import Floats
from tacit.core.asks import Arrays, State
from tacit.lq.estimate import best_weight
from tacit.lq.optimism import ConfidenceSet
from tacit.lq.statistics import TrajectorySums
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.models import JointDP, Privacy

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.lq.ofu import OFUOptions
    from tacit.lq.spec import LQSpec


class NoiseBounds(NamedTuple):
    """Of the regression on noisy sums: H = V - Z'Z and L = U - Z'X (Assumption 2)."""

    eta: float  # V is the noisy Gram plus eta I
    least: float  # H >= least I
    largest: float  # H <= largest I
    nu: float  # |L| <= nu, in the norm of the inverse of H


class ProvenSets:
    """Sets that hold the truth at all releases, with probability 1 - failure.

    All users are asked the same, with inputs z, centre zero, and caps C_w + S |z|, S the bound on
    the norm of Theta. Those never cut, as |x'| <= C_w + |Theta| |z|. Let G and C = G Theta + W be
    the sums over all users up to the j-th of m releases, N_G and N_C their noise, and
    a = failure / (3 m).

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
    and at most ln det(V / l): beta is the less of both. Without privacy D = l I with a fixed l,
    which costs sqrt(l) S.
    """

    printed = False

    def __init__(self, setting: Setting, options: OFUOptions) -> None:
        self.spec: LQSpec = setting.spec
        self.users, self.privacy, self.options = setting.users, setting.privacy, options
        self._total: tuple[Floats, Floats] | None = None
        self._variances = (0.0, 0.0)

    def check(self) -> None:
        """Refuses options that do not go together."""

    def gate_privacy(self, releases: int) -> Privacy:
        """What the noise of so many releases is drawn by."""
        return self.privacy

    def statistic(self) -> TrajectorySums:
        """Around zero, with caps that never cut."""
        spec = self.spec
        length = math.sqrt(float(np.trace(spec.start_moment))) or spec.noise_bound or 1.0
        cap = spec.noise_bound + spec.norm_bound * length
        weight = best_weight(length**2, cap**2, 0.5 * spec.norm_bound**2)
        steps = min(float(spec.horizon), self.options.constants.steps)
        return TrajectorySums(
            spec.states,
            spec.controls,
            spec.horizon,
            tau=steps * (length**2 + 0.5 * weight**2 * cap**2),
            weight=weight,
            floor=spec.noise_bound,
            spread=spec.norm_bound * np.eye(spec.states + spec.controls),
        )

    def take_in(self, release: Release, running: bool) -> None:
        """Adds a block, or puts a running sum in the place of all before."""
        gram, cross = release["gram"], release["cross"]
        stds = (float(np.max(release.std[name])) for name in ("gram", "cross"))
        first, second = (std * std for std in stds)
        if not running and self._total is not None:
            gram, cross = gram + self._total[0], cross + self._total[1]
            first, second = first + self._variances[0], second + self._variances[1]
        self._total, self._variances = (gram, cross), (first, second)

    def models(self, served: int, releases: int) -> ConfidenceSet:
        """The set after so many users, one of so many releases."""
        spec = self.spec
        n, p = spec.states, spec.states + spec.controls
        share = self.options.failure / (3.0 * releases)
        log = 2.0 * math.log(1.0 / share)
        if self.privacy.private:
            t, t_cross = (math.sqrt(v) for v in self._variances)
            low = t * (math.sqrt(2.0 * p) + math.sqrt(2.0 * math.log(2.0 / share)))
            nu = t_cross * (math.sqrt(n * p) + math.sqrt(log)) / math.sqrt(low)
            of_noise = NoiseBounds(2.0 * low, low, 3.0 * low, nu)
        else:
            low = (spec.noise_bound / spec.norm_bound) ** 2 or 1e-6
            of_noise = NoiseBounds(low, low, low, 0.0)
        energy = served * float(self.statistic().tau or 0.0)
        return self._set(of_noise, log, energy)

    def _set(self, of_noise: NoiseBounds, log: float, energy: float) -> ConfidenceSet:
        """Estimate (7) and radius of Lemma 1, whose determinant is of nobody's raw data.

        ``log`` is 2 ln(1 / probability), ``energy`` a bound on the trace of Z'Z.
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
        centre = np.asarray(np.linalg.solve(V, T2), dtype=np.float64)
        return ConfidenceSet(centre, V, self.options.scale * beta)

    def state(self) -> State:
        """The running sums."""
        total = self._total
        arrays: Arrays = {} if total is None else {"gram": total[0], "cross": total[1]}
        return {"variances": list(self._variances)}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self._variances = (meta["variances"][0], meta["variances"][1])
        self._total = (arrays["gram"], arrays["cross"]) if "gram" in arrays else None


class PrintedSets(ProvenSets):
    """The paper's noise: a binary tree over the releases, and its radius.

    Nodes have sqrt(8 m ln(2/delta)) H (1 + g)^2 / epsilon on the Gram and H (1 + g) in place of
    H (1 + g)^2 on the cross sums, m = ceil(log2 K), g the bound on gains, of steps clipped to
    |x| <= 1. The radius takes the data-independent logarithm: the printed one reads raw data. The
    guarantee is what is proven for this noise.
    """

    printed = True

    def check(self) -> None:
        """Refuses what was not printed."""
        if self.options.bonus == "theory":
            raise InvalidArgument("as printed, the radius is the paper's: leave bonus out")
        self._node_noise()

    def gate_privacy(self, releases: int) -> Privacy:
        """What is proven for the paper's noise: a user is in floor(log2 releases) + 1 nodes."""
        privacy = self.privacy
        if not privacy.joint:
            return privacy
        first, _, _ = self._node_noise()
        mu = self.statistic().l2(privacy.relation) * math.sqrt(releases.bit_length()) / first
        return JointDP(epsilon_from_mu(mu, privacy.delta), privacy.delta, relation=privacy.relation)

    def statistic(self) -> TrajectorySums:
        """Steps that are clipped one by one."""
        spec, g = self.spec, self.spec.gain_bound
        sizes = spec.states, spec.controls, spec.horizon
        return TrajectorySums(*sizes, clip="step", weight=1.0 + g, p_bound=math.hypot(1.0, g))

    def models(self, served: int, releases: int) -> ConfidenceSet:
        """The paper's eta = 2 Lambda, and its bounds (proof of Theorem 3)."""
        n, p = self.spec.states, self.spec.states + self.spec.controls
        K, a = self.users, self.options.failure
        first, second, m = self._node_noise()
        root = math.sqrt(m)
        low = first * root * (4.0 * math.sqrt(p) + math.sqrt(8.0 * math.log(4.0 * K / a)))
        ahead = math.sqrt(2.0 * n * p) + math.sqrt(4.0 * math.log(2.0 * K / a))
        nu = second * root / math.sqrt(low) * ahead
        energy = self.spec.horizon * K * (1.0 + self.spec.gain_bound**2)
        of_noise = NoiseBounds(2.0 * low, low, 3.0 * low, nu)
        return self._set(of_noise, 2.0 * math.log(2.0 / a), energy)

    def _node_noise(self) -> tuple[float, float, int]:
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
