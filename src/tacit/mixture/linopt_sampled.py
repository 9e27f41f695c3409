"""LinOptSampled: optimistic value iteration for mixtures of models that are given as simulators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.core.algorithm import Algorithm, Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import ridge_inverse
from tacit.privacy.arguments import instance_of, positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Without privacy nobody is scaled back, which would bias.
_NO_CLIP = 1e9


@dataclass(frozen=True)
class LinOptSampledConstants:
    """Practical constants, chosen on other seeds of the worlds than are reported."""

    bonus: float = 0.1  # scale of widths
    ridge: float = 1.0  # ridge in standard deviations of the Gram's noise, times sqrt(k)
    growth: float = 1.5  # the users served grow by at most this factor from block to block
    first: float = 2.0  # users of the first block, in standard deviations of a sum's noise
    clip: float = 1.0  # the longest user, in lengths of one who is everywhere alike


@dataclass(frozen=True, kw_only=True)
class LinOptSampledOptions:
    """Options of :class:`LinOptSampled`.

    Attributes:
        scale: multiplies the bonus.
        constants: the practical constants.
    """

    scale: float = 1.0
    constants: LinOptSampledConstants = LinOptSampledConstants()

    def __post_init__(self) -> None:
        positive("scale", self.scale)
        instance_of("constants", self.constants, LinOptSampledConstants)


class LinOptSampled(FiniteAlgorithm):
    """Value-targeted regression without a table of the models; states are numbers or vectors.

    Idea: the paper's regression needs of the features only phi(s, a) = (E_i V(s'))_i, the expected
    next value under each base model. Next states that the models drew once, publicly, are enough
    for that, so S may be tens of thousands and no S A d S numbers exist. Plan optimistically on
    the same draws. On vectors, value functions are linear in a kernel's features, and what models
    expect is fitted to draws at public states; only the weights of the models are unknown.

    Private statistics: value-targeted sums of every block, once, with the whole budget and the
    values of the plan that was public when the block began. The first block has the plan for the
    centre of the weights. ``spec.targets()`` makes plans and sums, by the kind of states:
    :class:`~tacit.mixture.state_targets.StateTargets`, or that of a
    :class:`~tacit.continuous.simulated_spec.SimulatedSpec`.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: Monte Carlo means over ``samples`` public draws in place of
    integrals; one release per block of a schedule; sums of all steps are pooled, since weights are
    the same at every step; rewards must be known; plans on vectors are discounted, one for all
    steps; constants are practical.

    Cost: H sweeps per block over what the models drew, at most S A d ``samples`` numbers; on
    vectors, some hundred products with A d m numbers per public state.
    """

    name = "linopt_sampled"
    Options: ClassVar[type[Any]] = LinOptSampledOptions
    options: LinOptSampledOptions
    statistic_kind = "values"

    def __init__(self, setting: Setting, options: LinOptSampledOptions) -> None:
        if not hasattr(setting.spec, "targets"):
            raise InvalidArgument(
                "this agent needs simulators: spec must be a SampledSpec or a SimulatedSpec; got "
                f"{type(setting.spec).__name__}"
            )
        self.targets: Any = setting.spec.targets()
        self._sums = BlockSums()
        self.coordinates: Floats = np.zeros(self.targets.free)  # estimated eta
        self._statistic: Any = None
        super().__init__(setting, options)

    # What is asked.

    def statistic(self) -> Any:
        """Sums for the values that were planned when the block began."""
        assert self._statistic is not None  # noqa: S101
        return self._statistic

    def asks(self) -> Asks:
        """The sums of the block, once, with its whole budget."""
        release = yield Ask(self.statistic())
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        self._sums.add(release.parts, std, std["cross"], release.users)

    # What is estimated.

    def _fit(self) -> tuple[Floats, Floats, Floats]:
        """Weights, the inverse of the regularised Gram, and the noise of Gram and cross."""
        k, constants = self.targets.free, self.options.constants
        prior = 1e-3 / self.targets.radius**2
        if not self._sums.parts:
            return np.zeros(k), np.eye(k) / prior, np.zeros(2)
        noise = np.array([float(self._sums.noise(name)) for name in ("gram", "cross")])
        ridge = prior + constants.ridge * noise[0] * math.sqrt(k)
        inverse = ridge_inverse(self._sums.scaled("gram"), ridge)
        eta = inverse @ self._sums.scaled("cross")[:, 0]
        length = float(np.linalg.norm(eta))
        return eta * min(1.0, self.targets.radius / max(length, 1e-12)), inverse, noise

    # How it is optimistic, and how it plans.

    def plan(self) -> tuple[Any, Any]:
        """The best policies by optimistic and by estimated values, and what is asked next."""
        eta, inverse, noise = self._fit()
        # Of targets, in units of the inputs; the last block's.
        variance = 1.0 if self._statistic is None else self._statistic.most**2
        self._statistic = None  # two of them at a time are too many
        self.coordinates = eta
        from_noise = noise[1] ** 2 + noise[0] ** 2 * float(eta @ eta)
        width = partial(self._width, inverse, variance, from_noise)
        clip = self.options.constants.clip if self.privacy.private else _NO_CLIP
        *policies, self._statistic = self.targets.plan(eta, width, clip, self.rng, self.releases)
        return policies[0], policies[1]

    def _width(self, inverse: Floats, variance: float, from_noise: float, x: Floats) -> Floats:
        """How far off <x, eta> may be; inputs and targets were asked in units of the scale."""
        if not self._sums.parts:
            return np.zeros(x.shape[:-1])
        turned = x @ inverse
        leverage = np.maximum((turned * x).sum(axis=-1), 0.0)
        squares = variance * leverage + from_noise * (turned**2).sum(axis=-1)
        width: Floats = self.options.scale * self.options.constants.bonus * np.sqrt(squares)
        return width

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must have delta > 0 and the Gaussian mechanism, got {self.privacy!r}: "
                "targeted sums have no sensitivity in the 1-norm"
            )

    def _first_policies(self) -> tuple[Any, Any]:
        """The best for the centre of the weights, which is public."""
        self.releases = 0
        return self.plan()

    def _pace(self) -> Pace:
        constants = self.options.constants
        first = users_above_noise(self.statistic(), self.privacy, constants.first)
        return Pace(first=first, growth=constants.growth)

    # Save and resume.

    def named(self, policy: Any) -> Any:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().named(policy) if self.targets.finite else Algorithm.named(self, policy)

    def policy_arrays(self, policy: Any) -> Arrays:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        arrays: Arrays = super().policy_arrays(policy) if self.targets.finite else policy.arrays()
        return arrays

    def policy_of(self, arrays: Arrays, version: int) -> Any:
        """The inverse, to the bit."""
        if self.targets.finite:
            return super().policy_of(arrays, version)
        return self.targets.policy_of(arrays, version)

    def state(self) -> State:
        """The sums, and what the current users are asked about."""
        meta, arrays = self._sums.dump()
        kept: Arrays = {f"sums/{name}": array for name, array in arrays.items()}
        asked = self.statistic()
        kept |= {f"asked/{name}": getattr(asked, name) for name in ("inputs", "means", "values")}
        scales = {name: getattr(asked, name) for name in self.targets.scales}
        return {"sums": meta, "scales": scales}, kept | {"coordinates": self.coordinates}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self._sums.restore(meta["sums"], below(arrays, "sums/"))
        self.coordinates = arrays["coordinates"]
        tables = below(arrays, "asked/")
        self._statistic = self.targets.statistic(**tables, **meta["scales"])
