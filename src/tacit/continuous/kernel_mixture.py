"""KernelMixture: value-targeted regression on vectors whose moves mix known simulators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import BoxAlgorithm, discount_of
from tacit.continuous.kernel_lsvi import NO_CLIP, KernelLSVIOptions, public_states
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.targeted_moves import TargetedMoves
from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import ridge_inverse
from tacit.numerics.simplex import helmert
from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.simulated_spec import SimulatedSpec
    from tacit.core.setting import Setting


@dataclass(frozen=True)
class KernelMixtureConstants:
    """Practical constants, chosen on other seeds of the worlds than are reported."""

    bonus: float = 0.1  # scale of widths
    ridge: float = 1.0  # ridge in standard deviations of the Gram's noise, times sqrt(k)
    growth: float = 1.5  # the users served grow by at most this factor from block to block
    first: float = 2.0  # users of the first block, in standard deviations of a sum's noise
    clip: float = 1.0  # the longest user, in lengths of one who is everywhere alike


@dataclass(frozen=True, kw_only=True)
class KernelMixtureOptions(KernelLSVIOptions):
    """Options of :class:`KernelMixture`: those of a kernel, with constants of its own."""

    epsilon: float = 0.0
    constants: Any = KernelMixtureConstants()

    def __post_init__(self) -> None:
        self._check_kernel()
        instance_of("constants", self.constants, KernelMixtureConstants)


class KernelMixture(BoxAlgorithm):
    """Optimistic fitted value iteration on a mixture of simulators, with a kernel's features.

    Idea: as :class:`tacit.LinOptSampled`, on vectors. Value functions are linear in a kernel's
    features z. What each base model expects of the next reward and value is a mean over public
    draws at public states, fitted to z, so that it is known at every user's state without asking a
    simulator. Only the weights of the models are unknown: d - 1 numbers.

    Private statistics: :class:`~tacit.continuous.statistics.targeted_moves.TargetedMoves` of every
    block, once, with the whole budget and the values of the plan that was public when the block
    began.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: discounted plans, one for all steps; known rewards; Monte Carlo means
    over public draws; practical constants.

    Cost: A d m numbers per public state, once; a plan is some hundred products with them.
    """

    name: ClassVar[str] = "kernel_mixture"
    Options: ClassVar[type[Any]] = KernelMixtureOptions
    options: KernelMixtureOptions
    features: FeatureMap
    spec: SimulatedSpec
    statistic_kind = "values"

    def __init__(self, setting: Setting, options: KernelMixtureOptions) -> None:
        spec: SimulatedSpec = setting.spec
        if not hasattr(spec, "models") or not hasattr(spec, "bounded"):
            raise InvalidArgument(
                "this agent needs simulators: spec must be a SimulatedSpec, as of gusts; got "
                f"{type(spec).__name__}"
            )
        self.features = options.map_for(spec)
        self.discount = discount_of(options.discount, spec)
        self.points = public_states(spec, most=_POINTS)
        self._at = self.features(self.points)
        n, m = self._at.shape
        gram = self._at.T @ self._at / n + 1e-6 * np.eye(m)
        self._fit = np.linalg.solve(gram, self._at.T / n)
        self._draw(spec)
        self.coordinates: Floats = np.zeros(spec.mixed - 1)
        self._sums = BlockSums()
        self._statistic: TargetedMoves | None = None
        super().__init__(setting, options)

    def _draw(self, spec: SimulatedSpec) -> None:
        """Expected rewards (n, A, d) and features (n, A, d, m), by the models' draws."""
        n, m = self._at.shape
        self._paid = np.empty((n, spec.actions, spec.mixed))
        self._next = np.empty((n, spec.actions, spec.mixed, m))
        for a in range(spec.actions):
            for i in range(spec.mixed):
                drawn = spec.drawn(self.points, a, i)
                self._paid[:, a, i] = spec.rewards(drawn).mean(axis=1)
                over = spec.ended(drawn)[..., np.newaxis]
                self._next[:, a, i] = np.where(over, 0.0, self.features(drawn)).mean(axis=1)

    # What is asked.

    def statistic(self) -> TargetedMoves:
        """Sums for the values that were planned when the block began."""
        assert self._statistic is not None  # noqa: S101
        return self._statistic

    def asks(self) -> Asks:
        """The sums of the block, once, with its whole budget."""
        release = yield Ask(self.statistic())
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        self._sums.add(release.parts, std, std["cross"], release.users)

    # What is estimated, and how it plans.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """Optimistic and estimated values; the former are what is asked about next."""
        eta, widths = np.zeros(self.spec.mixed - 1), None
        if self._sums.parts:
            eta, widths = self._estimate()
        self.coordinates = eta
        policies = []
        for bonus in (self.options.scale * self.options.constants.bonus, 0.0):
            Q, v = self._iterated(eta, widths, bonus)
            if bonus:
                self._ask_about(v)
            weights = (self._fit @ Q).T
            drawn = self.options.epsilon if bonus else 0.0
            policies.append(QPolicy.draw(self.features, weights, self.rng, drawn, self.releases))
        return policies[0], policies[1]

    def _estimate(self) -> tuple[Floats, Floats]:
        """eta, and a matrix whose quadratic form is the variance of <x, eta>."""
        k, statistic = self.spec.mixed - 1, self.statistic()
        noise = [float(self._sums.noise(name)) for name in ("gram", "cross")]
        ridge = 1e-3 + self.options.constants.ridge * noise[0] * math.sqrt(k)
        inverse = ridge_inverse(self._sums.scaled("gram"), ridge)
        eta = inverse @ self._sums.scaled("cross")[:, 0]
        eta *= min(1.0, 1.0 / max(float(np.linalg.norm(eta)), 1e-12))
        from_noise = noise[1] ** 2 + noise[0] ** 2 * float(eta @ eta)
        return eta, statistic.most**2 * inverse + from_noise * inverse @ inverse

    def _iterated(self, eta: Floats, widths: Floats | None, bonus: float) -> tuple[Floats, Floats]:
        """Q at the public states, (n, A), and the weights of V."""
        low, high = (end / (1.0 - self.discount) for end in self.spec.reward_range)
        if self.spec.may_end:
            low, high = min(low, 0.0), max(high, 0.0)
        V = np.full(len(self.points), (low + high) / 2.0)
        Q = np.zeros(self._paid.shape[:2])
        v = self._fit @ V
        for _ in range(math.ceil(math.log(1e-3) / math.log(max(self.discount, 0.1)))):
            v = self._fit @ V
            x, base = self._directed(self._paid + self.discount * (self._next @ v))
            Q = base + x @ eta
            if widths is not None and bonus:
                squares = np.einsum("nak,kl,nal->na", x, widths, x, optimize=True)
                Q = Q + bonus * np.sqrt(np.maximum(squares, 0.0))
            Q = np.clip(Q, low, high)
            V = Q.max(axis=1)
        return Q, v

    def _directed(self, expected: Floats) -> tuple[Floats, Floats]:
        """What models expect, (..., d), along directions of the weights, and at their centre."""
        return expected @ helmert(self.spec.mixed), expected.mean(axis=-1)

    def _ask_about(self, v: Floats) -> None:
        """The statistic of the next block: U = r + discount V; scales and clip are public."""
        x, base = self._directed(self._paid + self.discount * (self._next @ v))
        unit = max(float(np.sqrt((x**2).sum(axis=-1).mean())), 1e-9)
        inputs = np.einsum("mn,nak->amk", self._fit, x) / unit
        means = np.einsum("mn,na->am", self._fit, base) / unit
        # How far a draw is from what was expected of it, at some states.
        drawn = self.spec.drawn(self.points[:: max(1, len(self.points) // 50)], 0, 0)
        later = np.where(self.spec.ended(drawn), 0.0, self.features(drawn) @ v)
        ahead = self.spec.rewards(drawn) + self.discount * later
        most = max(float(ahead.std(axis=1).mean()), float(base.std(axis=1).mean()), unit) / unit
        share = self.options.constants.clip if self.privacy.private else NO_CLIP
        clip = share * 2.0 * self.spec.horizon
        tables = inputs, means, v
        scales = self.discount, unit, most, clip
        self._statistic = TargetedMoves(self.spec, self.features, *tables, *scales)

    # Choices made before the first user comes.

    def _first_policies(self) -> tuple[QPolicy, QPolicy]:
        """The best for the centre of the weights, which is public."""
        self.releases = 0
        return self.plan()

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must have delta > 0 and the Gaussian mechanism, got {self.privacy!r}: "
                "targeted moves have no sensitivity in the 1-norm"
            )

    def _pace(self) -> Pace:
        constants = self.options.constants
        first = users_above_noise(self.statistic(), self.privacy, constants.first)
        return Pace(first=first, growth=constants.growth)

    # Save and resume.

    def state(self) -> State:
        """The sums, and what the current users are asked about."""
        meta, arrays = self._sums.dump()
        kept: Arrays = {f"sums/{name}": array for name, array in arrays.items()}
        asked = self.statistic()
        kept |= {f"asked/{name}": getattr(asked, name) for name in ("inputs", "means", "values")}
        kept["coordinates"] = self.coordinates
        scales = {name: getattr(asked, name) for name in ("discount", "unit", "most", "clip")}
        return {"sums": meta, "scales": scales}, kept

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self._sums.restore(meta["sums"], below(arrays, "sums/"))
        self.coordinates = arrays["coordinates"]
        tables: dict[str, Any] = below(arrays, "asked/")
        self._statistic = TargetedMoves(self.spec, self.features, **tables, **meta["scales"])


# Public states on which models are drawn.
_POINTS = 441
