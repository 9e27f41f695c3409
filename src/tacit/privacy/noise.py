"""Where privacy noise comes from: one sampler for everybody, people and simulations alike.

Noise is drawn in whole numbers, exactly (:mod:`tacit.privacy.deviates`). A :class:`Noise` is either
*real* or a *simulation*, and the two differ in where the sampler's random bits come from alone.

* Real (no seed): every bit comes from the operating system's generator when it is needed. There is
  no key and no state, so there is nothing that could be copied, saved, forked or recovered from
  what was published. A real source cannot be copied or pickled all the same.
* Simulation (``seed=``): bit-for-bit reproducible, and worthless as protection, because whoever
  knows the seed subtracts the noise. Everything built on it says "simulation only".
"""

from __future__ import annotations

import math
import os
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.deviates import LARGEST_SCALE, Deviates
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_UNIT = 2.0**50


@runtime_checkable
class NoiseSource(Protocol):
    """Interface of a source of noise. Audits put basis vectors in its place."""

    @property
    def simulation(self) -> bool:
        """Whether the noise is reproducible and hence gives no protection."""

    def steps(self, pure: bool, scale: float, count: int) -> Ints:
        """Independent round(scale Z), or round(scale L) with Laplace variables L if ``pure``."""


class Noise:
    """A source of noise in whole numbers: real, or with a seed a reproducible simulation.

    >>> Noise(seed=1).steps(False, 1000.0, 2) == Noise(seed=1).steps(False, 1000.0, 2)
    array([ True,  True])
    >>> Noise().simulation
    False
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise InvalidArgument(f"noise_seed must be None or an integer >= 0, got {seed!r}")
        self._rng = None if seed is None else _generator(seed)

    @property
    def simulation(self) -> bool:
        """Whether the noise is reproducible and hence gives no protection."""
        return self._rng is not None

    def steps(self, pure: bool, scale: float, count: int) -> Ints:
        """Independent round(scale Z), or round(scale L) with Laplace variables L if ``pure``."""
        check_scale(scale)
        draws = Deviates(self._bytes)
        return draws.laplace(scale, count) if pure else draws.normal(scale, count)

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """Independent standard normals, to 2^-50; for simulated mechanisms without a grid."""
        return (self.steps(False, _UNIT, math.prod(shape)) / _UNIT).reshape(shape)

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """Independent Laplace variables of scale 1, to 2^-50; as :meth:`normal`."""
        return (self.steps(True, _UNIT, math.prod(shape)) / _UNIT).reshape(shape)

    def laplace_sum(self, count: int, shape: tuple[int, ...]) -> Floats:
        """The sum of ``count`` independent unit Laplace variables in one draw, in a simulation.

        A Laplace variable is the difference of two unit exponentials, so the sum is the
        difference of two Gamma(count, 1) variables.
        """
        rng = self._simulated()
        return rng.standard_gamma(count, shape) - rng.standard_gamma(count, shape)

    def binomial(self, trials: NDArray[np.int64], probability: float) -> NDArray[np.int64]:
        """Independent binomials, one per entry of ``trials``, in a simulation."""
        draws: NDArray[np.int64] = self._simulated().binomial(trials, probability)
        return draws

    def uniform(self, shape: tuple[int, ...]) -> Floats:
        """Independent uniforms on [0, 1), multiples of 2^-53."""
        digits = (self.words(math.prod(shape)) >> np.uint64(11)).astype(np.float64)
        return (digits * 2.0**-53).reshape(shape)

    def words(self, count: int) -> NDArray[np.uint64]:
        """Independent uniform whole numbers below 2^64."""
        return np.frombuffer(self._bytes(8 * count), dtype=np.uint64)

    def _simulated(self) -> np.random.Generator:
        if self._rng is None:
            raise InvalidArgument("real noise is drawn user by user, on her device")
        return self._rng

    def _bytes(self, count: int) -> bytes:
        return os.urandom(count) if self._rng is None else self._rng.bytes(count)

    def state(self) -> dict[str, Any] | None:
        """The generator's state as JSON values; ``None`` for real noise, which is never saved."""
        return None if self._rng is None else dict(self._rng.bit_generator.state)

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> Noise:
        """Continues a simulation where it was; real noise starts afresh."""
        if state is None:
            return cls()
        noise = cls(seed=0)
        try:
            noise._simulated().bit_generator.state = state
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"not a saved noise state: {error}") from None
        return noise

    def __reduce__(self) -> tuple[Any, ...]:
        if self._rng is None:
            raise TypeError("real noise cannot be copied or pickled: a copy would repeat it")
        return (Noise.from_state, (self.state(),))


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(seed)))


def check_scale(scale: float, largest: float = LARGEST_SCALE) -> None:
    """Refuses noise that would not fit, before anybody is charged for it."""
    if not 0.0 < scale <= largest:
        raise InvalidArgument(
            f"exact noise must have a scale of at most {largest:.3g} steps, got {scale:.3g}: this "
            f"budget is too small for this statistic"
        )


def safe_scale(sensitivity: float, cost: float) -> float:
    """Sensitivity / cost, within the range in which sums and noise are ordinary numbers."""
    scale = sensitivity / cost
    if not 1e-150 < scale < 1e150:
        raise InvalidArgument(
            f"a sensitivity of {sensitivity!r} at a cost of {cost!r} needs noise of scale "
            f"{scale!r}, which is out of range"
        )
    return scale
