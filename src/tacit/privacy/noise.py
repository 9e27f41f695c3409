"""Where privacy noise comes from: one sampler for everybody, people and simulations alike.

Noise is drawn in whole numbers, exactly (:mod:`tacit.privacy.deviates`). A :class:`Noise` is either
*real* or a *simulation*, and the two differ in where the sampler's random bits come from alone.

* Real (no seed): every bit comes from the operating system's generator when it is needed. There is
  no key and no state, so there is nothing that could be copied, saved, forked or recovered from
  what was published. A real source cannot be copied or pickled all the same.
* Simulation (``seed=``): bit-for-bit reproducible, and worthless as protection, because whoever
  knows the seed subtracts the noise. Everything built on it says "simulation only".

**Exact noise: sums and noise in whole steps of a grid, at no cost in privacy or accuracy.**

Floating-point noise has low-order bits that its theory knows nothing of. Here sums are whole
numbers of grid steps, the noise is a whole number of them, and what is published is their sum.

**Why nothing is lost.** Let q be a sum in steps, a vector of whole numbers, and s the scale of the
noise in steps. What is published is q + round(s Z), with Z standard normal in every coordinate.
Because q is whole, that is round(q + s Z): a function of q + s Z alone. So it is post-processing of
the Gaussian mechanism on real numbers, and exactly (D / s)-Gaussian-DP where D is the largest
distance of two neighbours' q, every bit of it. The same with a Laplace variable in place of Z and
the 1-norm: exactly (D / s)-DP. No other accounting is needed, and rounding to a step far below s
adds next to nothing to the noise. :mod:`tacit.privacy.deviates` draws round(s Z) exactly.

**Sums on the grid.** The grid has the step g, a power of two; it is public, for it depends on the
statistic and on nobody's values. Users are summed in chunks, by position; each chunk's
sum is rounded to the grid, and the chunks are added as whole numbers. Neighbours differ in one
chunk. There a coordinate moves by at most its part of the sensitivity,
over g, plus 1, which is what rounding can add. So q moves by at most D / g + sqrt(n) steps for n
coordinates (D / g + n in the 1-norm).

*The chunk's sum is in floating point*, and its errors are in the bound too. Adding up m numbers in
any order is off by at most m 2^-53 of the sum of their sizes. A user's vector is a sum of terms, no
more of them than she has numbers and none longer than the largest length L of a user; and a chunk
is so small that its users have M = ``ADDITIONS`` numbers together at most. So its sum is off by at
most M 2^-53 M L, and two neighbours by twice that: 2^-18 L, in the norm of the sensitivity.

g is so small that all of it costs 0.01 % of noise or less.

**Range.** A single release adds 64-bit integers: sums are at most 2^61 (refused by the number of
users, which is public, before anybody is charged) and the noise has a scale of at most 2^51, so
that it leaves 2^62 with a probability below exp(-2000). What is made a float is their sum, and
rounding it is post-processing. Counters have ranges of their own
(:mod:`tacit.privacy.counters.grid`).
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.deviates import LARGEST_SCALE, Deviates
from tacit.privacy.errors import Busy, DoubleSpend, InvalidArgument
from tacit.privacy.models import LocalDP, Privacy
from tacit.privacy.statistic import Block, Statistic, StreamedBlock, gate_total

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
        if self._rng is None:
            return os.urandom(count)
        words = self._rng.bit_generator.random_raw(-(-count // 8))  # faster than rng.bytes
        return np.asarray(words, dtype="<u8").tobytes()[:count]

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


ROUNDING = 1e-4
"""By how much rounding may increase a sensitivity, and so the noise, at most."""

CHUNK = 512
"""How many users are added up in floating point at most, before the sum is rounded to the grid."""

ADDITIONS = 1 << 17
"""How many numbers the users of a chunk have together at most."""

_SUMMING = 2.0 * ADDITIONS**2 * 2.0**-53
LARGEST_SUM = 2.0**61


def step_below(sensitivity: float, size: int, norm: Literal["l1", "l2"]) -> float:
    """The power of two that keeps rounding below ``ROUNDING`` of a sensitivity."""
    step = ROUNDING * sensitivity / _spread(size, norm)
    if not 1e-150 < step < 1e150:
        raise InvalidArgument(
            f"a sensitivity of {sensitivity:.6g} has no grid in floats: a step of {step:.6g} is "
            f"out of range"
        )
    return 2.0 ** math.floor(math.log2(step))


def steps_apart(sensitivity: float, size: int, norm: Literal["l1", "l2"], step: float) -> float:
    """Largest distance of two neighbours' rounded vectors, in steps.

    Args:
        sensitivity: Before rounding.
        size: Number of coordinates.
        norm: Of the sensitivity.
        step: Of the grid.
    """
    # A few units in the last place, upwards.
    return (sensitivity / step + _spread(size, norm)) * (1.0 + 1e-12)


def grid_step(statistic: Statistic, norm: Literal["l1", "l2"]) -> float:
    """The step g of a statistic's grid."""
    smallest = statistic.sensitivity(Relation.ZERO_OUT, norm)
    return step_below(smallest, statistic.layout.size, norm)


def grid_sensitivity(
    statistic: Statistic, relation: Relation, norm: Literal["l1", "l2"], step: float
) -> float:
    """Largest distance of two neighbours' sums, in steps.

    Args:
        statistic: Bounded map that is summed.
        relation: Which inputs are neighbours.
        norm: Of the sensitivity.
        step: Of the grid.
    """
    apart = statistic.sensitivity(relation, norm)
    apart += _SUMMING * statistic.sensitivity(Relation.ZERO_OUT, norm)
    return steps_apart(apart, statistic.layout.size, norm, step)


def _spread(size: int, norm: Literal["l1", "l2"]) -> float:
    """How far two users can be apart by rounding alone, in steps."""
    return float(size) if norm == "l1" else math.sqrt(size)


def reach(statistic: Statistic, step: float, users: int) -> float:
    """How many steps a sum over so many users can have at most, whatever their values are."""
    length = statistic.sensitivity(Relation.ZERO_OUT, "l2") / step
    return users * (length + 1.0)


def check_reach(steps: float, limit: float = LARGEST_SUM) -> None:
    """Refuses sums that might not fit: into integers, or into what a counter keeps."""
    if steps > limit:
        raise InvalidArgument(
            f"exact sums of so many users can reach {steps:.3g} steps, but must stay below "
            f"{limit:.3g}: use fewer users"
        )


def grid_total(statistic: Statistic, block: Block, step: float) -> Ints:
    """The sum over a block's users of their vectors, in whole steps.

    An aggregate block, which only simulations have, is rounded as a whole.
    """
    total = np.zeros(statistic.layout.size, dtype=np.int64)
    if isinstance(block, StreamedBlock):
        of = partial(_grid_part, statistic, step)
        return np.asarray(block.sums(of, total), dtype=np.int64)
    if block.aggregate:
        return _rounded(gate_total(statistic, block) / step)
    size = chunk_users(block)
    parts = [slice(start, start + size) for start in range(0, block.users, size)]
    for chunk in block.once("chunks", lambda users: [users.take(part) for part in parts]):
        total += _rounded(gate_total(statistic, chunk) / step)
    return total


def _grid_part(statistic: Statistic, step: float, part: Block) -> Ints:
    return grid_total(statistic, part, step)


def chunk_users(block: Block) -> int:
    """How many users are added up in floating point, by how many numbers each of them has."""
    numbers = sum(array.size for array in block.arrays.values()) // max(block.users, 1)
    if numbers > ADDITIONS:
        raise InvalidArgument(
            f"users have {numbers:,} numbers each, and exact sums take {ADDITIONS:,} at most"
        )
    return min(CHUNK, ADDITIONS // max(numbers, 1))


def _rounded(steps: NDArray[np.float64]) -> Ints:
    # Users are finite and bounded before; a sum that is not would become any whole number.
    if not (steps.min() > -2.0 * LARGEST_SUM and steps.max() < 2.0 * LARGEST_SUM):
        raise InvalidArgument("a sum that is not finite or too large has no whole number of steps")
    return np.rint(steps).astype(np.int64)


def exact_words(pure: bool) -> str:
    """Words for the noise in a guarantee."""
    return f"rounded {'Laplace' if pure else 'Gaussian'} noise on a grid"


# How large noise will be: before anybody was asked, from public numbers.


def flip_probability(statistic: Statistic, privacy: LocalDP) -> float:
    """With which probability a 0 is reported as a 1; a 1 is reported as itself half the time."""
    if statistic.one_hots is None:
        raise InvalidArgument(f"{statistic.name} is not made of one-hots: no randomised response")
    return 1.0 / (1.0 + math.exp(min(privacy.report_cost / statistic.one_hots, 700.0)))


def users_above_noise(statistic: Statistic, privacy: Privacy, multiple: float) -> int:
    """How many users a block needs to be so many times the noise of one sum; 1 without noise.

    The multiple is in standard deviations of a sum with weight 1.
    """
    if not privacy.private:
        return 1
    if privacy.local:
        # n reports have noise sqrt(n) s together, so n must exceed a multiple of s^2.
        return math.ceil((multiple * _report_scale(statistic, privacy)) ** 2)
    return math.ceil(multiple * release_noise(statistic, privacy, 1))


def release_noise(statistic: Statistic, privacy: Privacy, users: int) -> float:
    """Standard deviation of the noise in one sum of weight 1 over a block of ``users`` users."""
    if not privacy.private:
        return 0.0
    if privacy.local:
        laplace = math.sqrt(1.0 if privacy.mechanism == "gaussian" else 2.0)
        if privacy.mechanism == "randomised response":
            # About a quarter of variance per report, over the share of reports that tell.
            tells = 0.5 - flip_probability(statistic, privacy)
            return math.sqrt(users) * 0.5 / tells
        return laplace * _report_scale(statistic, privacy) * math.sqrt(users)
    if privacy.pure:
        sensitivity = statistic.sensitivity(privacy.relation, "l1")
        return math.sqrt(2.0) * sensitivity / privacy.episode_limit
    return statistic.sensitivity(privacy.relation, "l2") / math.sqrt(privacy.episode_limit)


def _report_scale(statistic: Statistic, privacy: LocalDP) -> float:
    return safe_scale(
        statistic.sensitivity(Relation.REPLACE_ONE, privacy.norm), privacy.report_cost
    )


def check_question(statistic: Statistic, privacy: Privacy, size: str) -> None:
    """Refuses what no noise of a model hides, before anything is made and anybody comes.

    The sensitivity of what will be asked is made of the argument that ``size`` names.
    """
    if not privacy.private:
        return
    try:
        statistic.sensitivity(Relation.REPLACE_ONE, privacy.norm)
        grid_step(statistic, privacy.norm)
    except InvalidArgument as error:
        raise InvalidArgument(f"privacy and {size} do not go together: {error}") from None


# Secret state has one owner: not copied, not gone on with after a fork, one call at a time.


class Uncopyable:
    """Refuses to be copied or pickled, in the words of ``why_single``."""

    why_single: ClassVar[str]

    def __copy__(self) -> Self:
        raise TypeError(self.why_single)

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.__copy__(),)


class Owner:
    """Refuses to go on in a forked process, where parent and child would share a state."""

    def __init__(self, simulation: bool) -> None:
        self._pid = None if simulation else os.getpid()

    def check(self, what: str) -> None:
        """Raises in any process but the one that made the state."""
        if self._pid is not None and self._pid != os.getpid():
            raise DoubleSpend(
                f"this {what} belongs to another process: after a fork both would publish from one "
                f"state, and pay once"
            )


_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> threading.RLock:
    """A lock that is free in a forked process, whoever held it.

    The thread that did is not there, and whoever waited for it would never be told that a state
    belongs to another process.
    """
    lock = threading.RLock()
    _LOCKS.add(lock)
    return lock


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [lock._at_fork_reinit() for lock in _LOCKS])


def refuse_within(lock: threading.RLock, what: str) -> threading.RLock:
    """The lock, for a ``with`` statement; refuses a call within a call of the same thread.

    That would find the object half-way. It can only come from a signal handler, or from somebody's
    own code that the call runs. Another thread waits. The lock is one of C: CPython runs no signal
    handler between it and the statement, so it is never left behind.
    """
    if lock._is_owned():  # type: ignore[attr-defined]
        raise Busy(
            f"{what} within another call of the same thread, as from a signal handler: let the "
            f"handler raise, or note it and {what} when that call has returned"
        )
    return lock
