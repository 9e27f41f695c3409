"""LinOptSampled: optimistic value iteration for mixtures of models that are given as simulators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.policy import Policy
from tacit.mixture.targeted_sums import TargetedSums
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import ridge_inverse
from tacit.privacy.arguments import instance_of, positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.mixture.sampled_spec import SampledSpec


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
    """Value-targeted regression without a table of the models.

    Idea: the paper's regression needs of the features only phi(s, a) = (E_i V(s'))_i, the expected
    next value under each base model. Next states that the models drew once, publicly, are enough
    for that, so S may be tens of thousands and no S A d S numbers exist. Plan optimistically on
    the same draws.

    Private statistics: :class:`~tacit.mixture.targeted_sums.TargetedSums` of every block, once,
    with the whole budget and the values of the plan that was public when the block began. The
    first block has the plan for the centre of the weights.

    Guarantee: that of its curator; see ``guarantee``.

    Deviations from the paper: Monte Carlo means over ``samples`` public draws in place of
    integrals; one release per block of a schedule; sums of all steps are pooled, since weights are
    the same at every step; rewards must be known; constants are practical.

    Cost: H sweeps per block over what the models drew, at most S A d ``samples`` numbers.
    """

    name = "linopt_sampled"
    Options: ClassVar[type[Any]] = LinOptSampledOptions
    options: LinOptSampledOptions
    spec: SampledSpec
    statistic_kind = "values"

    def __init__(self, setting: Setting, options: LinOptSampledOptions) -> None:
        spec: SampledSpec = setting.spec
        if not hasattr(spec, "draws"):
            raise InvalidArgument(
                "this agent needs simulators: spec must be a SampledSpec, as of currents; got "
                f"{type(spec).__name__}"
            )
        if spec.horizon < 2:
            raise InvalidArgument("an episode of one step has no transitions to learn from")
        self._sums = BlockSums()
        self.coordinates: Floats = np.zeros(spec.free)  # estimated eta
        self._statistic: TargetedSums | None = None
        self._variance = 1.0
        super().__init__(setting, options)

    # What is asked.

    def statistic(self) -> TargetedSums:
        """Sums for the values that were planned when the block began."""
        assert self._statistic is not None  # noqa: S101
        return self._statistic

    def asks(self) -> Asks:
        """The sums of the block, once, with its whole budget."""
        statistic = self.statistic()
        release = yield Ask(statistic)
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        self._sums.add(release.parts, std, std["cross"], release.users)

    # What is estimated.

    def _fit(self) -> tuple[Floats, Floats, Floats]:
        """Weights, the inverse of the regularised Gram, and the noise of Gram and cross."""
        k, constants = self.spec.free, self.options.constants
        prior = 1e-3 / self.spec.radius**2
        if not self._sums.parts:
            return np.zeros(k), np.eye(k) / prior, np.zeros(2)
        noise = np.array([float(self._sums.noise(name)) for name in ("gram", "cross")])
        ridge = prior + constants.ridge * noise[0] * math.sqrt(k)
        inverse = ridge_inverse(self._sums.scaled("gram"), ridge)
        eta = inverse @ self._sums.scaled("cross")[:, 0]
        length = float(np.linalg.norm(eta))
        return eta * min(1.0, self.spec.radius / max(length, 1e-12)), inverse, noise

    # How it is optimistic, and how it plans.

    def plan(self) -> tuple[Policy, Policy]:
        """The best policies by optimistic and by estimated values, and what is asked next."""
        return self._planned()

    def _planned(self) -> tuple[Policy, Policy]:
        """Optimistic values step by step from the last; V of the next step is what is asked about.

        Q = r + p0 V + phi' eta + width, cut to what the next values are, and V = max_a Q. The
        width is a multiple of the standard deviation that sampling and noise give.
        """
        spec = self.spec
        H, S, A, k = spec.horizon, spec.states, spec.actions, spec.free
        eta, inverse, noise = self._fit()
        # Of targets, in units of the inputs; the last block's.
        self._variance = 1.0 if self._statistic is None else self._statistic.most**2
        self.coordinates = eta
        inputs, means = np.empty((H - 1, S, A, k)), np.empty((H - 1, S, A))
        asked = np.empty((H - 1, S))
        best = np.empty((2, H, S), dtype=np.int64)
        rewards = spec.known_rewards[0]
        values = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            Q = np.array([rewards, rewards])
            if h < H - 1:
                asked[h] = values[0]
                for j in range(2):
                    phi = spec.expected(values[j])
                    x, base = phi @ spec.directions, phi @ spec.center
                    low, high = float(values[j].min()), float(values[j].max())
                    mean = base + x @ eta
                    if j == 0:
                        inputs[h], means[h] = x, base
                        mean = mean + self._width(x, inverse, noise, eta)
                    Q[j] += np.clip(mean, low, high)
            for j in range(2):
                best[j, h], values[j] = self._best(Q[j])
        self._ask_about(inputs, means, asked)
        made = (Policy.deterministic(acts, A, version=self.releases) for acts in best)
        return next(made), next(made)

    def _width(self, x: Floats, inverse: Floats, noise: Floats, eta: Floats) -> Floats:
        """How far off <x, eta> may be; inputs and targets were asked in units of the scale."""
        options, k = self.options, x.shape[-1]
        if not self._sums.parts:
            return np.zeros(x.shape[:-1])
        turned = x @ inverse
        leverage = np.maximum((turned * x).sum(axis=-1), 0.0)
        length = min(float(eta @ eta), k * self.spec.radius**2)
        from_noise = noise[1] ** 2 + noise[0] ** 2 * length
        squares = self._variance * leverage + from_noise * (turned**2).sum(axis=-1)
        width: Floats = options.scale * options.constants.bonus * np.sqrt(squares)
        return width

    def _ask_about(self, inputs: Floats, means: Floats, values: Floats) -> None:
        """Makes the statistic of the next block; scales and clip are public numbers.

        A user who is everywhere alike has inputs of length 1 and targets as long as ``most``, both
        in the mean square over steps.
        """
        self._statistic = None  # two of them at a time are too many
        size = max(math.sqrt(float(np.einsum("hsak,hsak->", inputs, inputs)) / means.size), 1e-9)
        most = max(self._target_size(means, values) / size, 1e-9)
        for table in (inputs, means, values):
            table /= size
            table.setflags(write=False)
        share = self.options.constants.clip if self.privacy.private else _NO_CLIP
        clip = share * 2.0 * (self.spec.horizon - 1)
        self._statistic = TargetedSums(inputs, means, values, most=most, clip=clip)

    def _target_size(self, means: Floats, values: Floats) -> float:
        """Of V(s') - p0 V, in the mean square over some steps, all cells and models."""
        spec, squares = self.spec, []
        for V, base in zip(values[::4], means[::4], strict=True):
            own = spec.expected(V**2) - 2.0 * base[..., np.newaxis] * spec.expected(V)
            squares.append(max(float((own + base[..., np.newaxis] ** 2).mean()), 0.0))
        return math.sqrt(float(np.mean(squares)))

    def _best(self, q_values: Floats) -> tuple[Any, Floats]:
        """The best actions of (S, A) values, ties broken at random, and their values."""
        top = q_values.max(axis=-1)
        ties = np.where(q_values == top[:, np.newaxis], self.rng.random(q_values.shape), -1.0)
        return ties.argmax(axis=-1), top

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must have delta > 0 and the Gaussian mechanism, got {self.privacy!r}: "
                "targeted sums have no sensitivity in the 1-norm"
            )

    def _first_policies(self) -> tuple[Policy, Policy]:
        """The best for the centre of the weights, which is public."""
        self.releases = 0
        return self._planned()

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
        for name in ("inputs", "means", "values"):
            kept[f"asked/{name}"] = getattr(asked, name)
        own = {"sums": meta, "most": asked.most, "clip": asked.clip}
        return own, kept | {"coordinates": self.coordinates}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self._sums.restore(meta["sums"], below(arrays, "sums/"))
        self.coordinates = arrays["coordinates"]
        tables = below(arrays, "asked/")
        self._statistic = TargetedSums(**tables, most=meta["most"], clip=meta["clip"])
