"""Where privacy noise comes from: one door for every random number that protects somebody.

A :class:`Noise` is either *real* or a *simulation*.

* Real (no seed): the generator is keyed by the operating system, keyed anew after 65,536 values
  (before each larger draw) and after a fork, and can be neither copied, pickled nor saved, so that
  it is never put on two data sets, whose difference would be free of noise.
* Simulation (``seed=``): bit-for-bit reproducible, and worthless as protection, because whoever
  knows the seed subtracts the noise. Everything built on it says "simulation only".

The samplers are NumPy's floating-point ones. They are fast; their low-order bits are not exactly
Gaussian or Laplace and the generator is not a cryptographic one. ``docs/sharp-edges.md`` says
what that means.
"""

from __future__ import annotations

import math
import os
import secrets
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]

# Recovering a generator's state from one release must not give away the noise of later ones.
_REKEY_AFTER = 1 << 16


class NoiseSource(Protocol):
    """What a mechanism needs of its noise. Audits put basis vectors in its place."""

    @property
    def simulation(self) -> bool:
        """Whether the noise is reproducible and hence protects nobody."""

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """Independent standard normals."""

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """Independent Laplace variables of scale 1 (standard deviation sqrt 2)."""


class Noise:
    """A source of floating-point noise: real, or with a seed a reproducible simulation.

    >>> Noise(seed=1).normal((2,)) == Noise(seed=1).normal((2,))
    array([ True,  True])
    >>> Noise().simulation
    False
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise InvalidArgument(f"noise_seed must be None or an integer >= 0, got {seed!r}")
        self._simulation = seed is not None
        self._rng = _generator(seed)
        self._left = _REKEY_AFTER
        self._pid = os.getpid()

    @property
    def simulation(self) -> bool:
        """Whether the noise is reproducible and hence protects nobody."""
        return self._simulation

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """Independent standard normals."""
        return self._ready(math.prod(shape)).standard_normal(shape)

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """Independent Laplace variables of scale 1 (standard deviation sqrt 2)."""
        return self._ready(math.prod(shape)).laplace(0.0, 1.0, shape)

    def laplace_sum(self, count: int, shape: tuple[int, ...]) -> Floats:
        """The sum of ``count`` independent unit Laplace variables, in one exact draw per entry.

        A Laplace variable is the difference of two unit exponentials, so the sum is the
        difference of two Gamma(count, 1) variables.
        """
        rng = self._ready(2 * math.prod(shape))
        return rng.standard_gamma(count, shape) - rng.standard_gamma(count, shape)

    def binomial(self, trials: NDArray[np.int64], probability: float) -> NDArray[np.int64]:
        """Independent binomials, one per entry of ``trials``."""
        draws: NDArray[np.int64] = self._ready(trials.size).binomial(trials, probability)
        return draws

    def uniform(self, shape: tuple[int, ...]) -> Floats:
        """Independent uniforms on [0, 1)."""
        return self._ready(math.prod(shape)).random(shape)

    def _ready(self, values: int) -> np.random.Generator:
        """The generator, keyed anew where real noise needs it."""
        if not self._simulation:
            self._left -= values
            if self._left < 0 or self._pid != os.getpid():
                self._rng = _generator(None)
                self._left = _REKEY_AFTER - values
                self._pid = os.getpid()
        return self._rng

    def state(self) -> dict[str, Any] | None:
        """The generator's state as JSON values; ``None`` for real noise, which is never saved."""
        return dict(self._rng.bit_generator.state) if self._simulation else None

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> Noise:
        """Continues a simulation where it was; real noise starts afresh."""
        if state is None:
            return cls()
        noise = cls(seed=0)
        try:
            noise._rng.bit_generator.state = state
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"not a saved noise state: {error}") from None
        return noise

    def __reduce__(self) -> tuple[Any, ...]:
        if not self._simulation:
            raise TypeError("real noise cannot be copied or pickled: a copy would repeat it")
        return (Noise.from_state, (self.state(),))


def saved_source(source: NoiseSource) -> dict[str, Any] | None:
    """What a save keeps of a source: a simulation's state, nothing of real noise.

    A simulated source whose state cannot be saved is refused: resumed, it would look real.
    """
    state = source.state() if isinstance(source, Noise) else None
    if state is None and source.simulation:
        raise InvalidArgument("a run with a simulated noise source of your own cannot be saved")
    return state


def _generator(seed: int | None) -> np.random.Generator:
    entropy = secrets.randbits(256) if seed is None else seed
    return np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(entropy)))


def safe_scale(sensitivity: float, cost: float) -> float:
    """Sensitivity / cost, within the range in which sums and noise are ordinary numbers."""
    scale = sensitivity / cost
    if not 1e-150 < scale < 1e150:
        raise InvalidArgument(
            f"a sensitivity of {sensitivity!r} at a cost of {cost!r} needs noise of scale "
            f"{scale!r}, which is out of range"
        )
    return scale
