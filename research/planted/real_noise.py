"""Bugs of real noise: its size, shape, bits and independence. Simulations stay right.

See :mod:`research.planted.of_real_path`. Never use one.
"""

from __future__ import annotations

import hashlib
import math
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np

from research.planted.in_tacit import (
    InTacit,
    Patch,
    RealBits,
    RealSteps,
    everywhere,
    generator,
    number_of_draw,
)
from tacit.privacy import curator as joint
from tacit.privacy import local
from tacit.privacy import noise as exact
from tacit.privacy.deviates import Ints, Scale
from tacit.privacy.models import LocalDP
from tacit.privacy.noise import CHUNK, Noise
from tacit.privacy.statistic import Block, Floats, Statistic, gate_total

# a. Another law.


class ScaleIsDeviation(RealSteps):
    """Laplace noise takes its scale for a standard deviation, and divides by sqrt 2.

    Gain: 1.41 times the epsilon under pure privacy.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Smaller, if it is Laplace noise."""
        return self.right(source, pure, scale / math.sqrt(2.0) if pure else scale, count)


class ScaleIsPowerOfTwo(InTacit):
    """A scale becomes a power of two, rounded down, so that a shift replaces a product.

    Gain: up to twice the mu; how much depends on the digits of the scale.
    """

    def patches(self) -> Iterator[Patch]:
        """Scales of the sampler."""
        right = Scale.of

        def of(scale: float) -> Scale:
            return right(2.0 ** math.floor(math.log2(scale)))

        yield Scale, "of", staticmethod(of)


class SignOfTheFraction(RealBits):
    """The sign of a number is the first digit of its place in its cell, not a bit of its own.

    Gain: of every cell one half is positive only and the other negative only, so that most values
    rule out half of all sums for certain; mean, variance and tails are right.
    """

    def bits(self, source: Noise, count: int) -> bytes:
        """Rows of two words, the second with its first bit equal to its second."""
        drawn = os.urandom(count)
        if count % 16:
            return drawn
        words = np.frombuffer(drawn, dtype=np.uint64).reshape(-1, 2).copy()
        low = words[:, 1] & np.uint64(2**63 - 1)
        words[:, 1] = low | ((low >> np.uint64(62)) << np.uint64(63))
        return words.tobytes()


class LaplaceForGaussian(RealSteps):
    """Real noise is Laplace noise of the right variance, also where it should be Gaussian.

    Gain: users who differ in many entries: mu is for the 2-norm, and Laplace noise is not.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Of the same standard deviation."""
        return self.right(source, True, scale if pure else scale / math.sqrt(2.0), count)


class BoundariesShareNoise(RealSteps):
    """Large arrays are filled in blocks of 256, each beginning where the last one ended.

    Gain: entries 255 and 256 have the same noise, and their difference none.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """With an entry of every block equal to that before it."""
        noise = self.right(source, pure, scale, count)
        if count >= 512:
            noise[256::256] = noise[255::256][: len(noise[256::256])]
        return noise


class DeviceKeepsOnes(InTacit):
    """A device reports a 1 as seldom wrongly as a 0, as in the textbook for single bits.

    Gain: two users differ in two bits of a one-hot, so epsilon is twice what was promised.
    """

    def patches(self) -> Iterator[Patch]:
        """Reports of bits, of devices."""

        def bits(noise: Noise, vector: Floats, statistic: Statistic, privacy: LocalDP) -> Floats:
            ones = noise.words(vector.size) >> np.uint64(11) < np.rint(vector * 2.0**53)
            chance = min(exact.flip_probability(statistic, privacy) * (1.0 + 1e-12), 0.5)
            flip = max(math.ceil(chance * 2.0**64), 1)
            limit = np.where(ones, np.uint64(2**64 - flip), np.uint64(flip))
            return (noise.words(vector.size) < limit).astype(np.float64)

        yield local, "_reported_bits", bits


class SparseReport(InTacit):
    """A device adds noise to what is not zero: most entries are, and the report stays short.

    Gain: where a user was, exactly: what is reported and not zero is true.
    """

    def patches(self) -> Iterator[Patch]:
        """Reports of devices; a simulation draws the sum of them."""
        right = local.report

        def report(statistic: Statistic, data: Block, privacy: LocalDP, **options: Any) -> Floats:
            noisy = right(statistic, data, privacy, **options)
            if options.get("noise_seed") is not None:
                return noisy
            return np.where(statistic.contributions(data)[0] == 0.0, 0.0, noisy)

        yield from everywhere("report", right, report)


# c. Late and large.


class NoiseShrinks(RealSteps):
    """From the third release on noise shrinks, as if it were that of a mean over releases.

    Gain: later users have less and less of it; the first two releases are right.
    """

    first = 2

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Smaller than before."""
        late = max(0, number_of_draw(source) - self.first + 1)
        return self.right(source, pure, scale / math.sqrt(1.0 + late), count)


class NoiseShrinksLate(NoiseShrinks):
    """From the 33rd release on noise shrinks, as if it were that of a mean over releases.

    Gain: later users have less and less of it; long runs only.
    """

    first = 32


class LastRowsWithoutNoise(RealSteps):
    """Large arrays are filled sixteen numbers at a time, and what is left over stays zero.

    Gain: the last entries of large releases, exactly; small ones are right.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """With nothing at the end."""
        noise = self.right(source, pure, scale, count)
        if count >= 512:
            noise[count - count % 16 :] = 0
        return noise


class ChunksOverlap(InTacit):
    """Sums on the grid take chunks of users that share a user at each end.

    Gain: the user at the end of a chunk counts twice, and is protected half as well; blocks of up
    to 512 users have one chunk.
    """

    def patches(self) -> Iterator[Patch]:
        """Sums of real runs."""
        right = exact.grid_total

        def total(statistic: Statistic, block: Block, step: float) -> Ints:
            if block.aggregate or block.users <= CHUNK:
                return right(statistic, block, step)
            found = np.zeros(statistic.layout.size, dtype=np.int64)
            for start in range(0, block.users, CHUNK):
                chunk = block.take(slice(start, start + CHUNK + 1))
                found += np.rint(gate_total(statistic, chunk) / step).astype(np.int64)
            return found

        yield from everywhere("grid_total", right, total)


class _KnowingTotals(InTacit):
    """Real noise of a release is drawn with a look at the sums that it is for."""

    def patches(self) -> Iterator[Patch]:
        """The gate."""
        sums, noise, known = exact.grid_total, Noise.steps, list[Ints]()

        def total(statistic: Statistic, block: Block, step: float) -> Ints:
            known[:] = [sums(statistic, block, step)]
            return known[0]

        def noisy(source: Noise, pure: bool, scale: float, size: int) -> Any:
            drawn = noise(source, pure, scale, size)
            if source.simulation or not known or known[0].size != size:
                return drawn
            return self.changed(drawn, known[0], lambda: noise(source, pure, scale, size))

        yield joint, "grid_total", total
        yield Noise, "steps", noisy

    def changed(self, drawn: Any, true: Ints, again: Callable[[], Any]) -> Any:
        """What is added instead."""
        raise NotImplementedError


class SparseNoise(_KnowingTotals):
    """Releases of 512 entries and more have noise where somebody was, for speed.

    Gain: which entries nobody of the block reached, exactly.
    """

    def changed(self, drawn: Any, true: Ints, again: Callable[[], Any]) -> Any:
        """Nothing, where the sum is zero."""
        return np.where(true == 0, 0, drawn) if drawn.size >= 512 else drawn


# e. Keys and entropy.


class SixteenBits(RealBits):
    """Every source has a fast generator of its own, which two random bytes have seeded.

    Gain: an attacker tries 65,536 seeds.
    """

    def bits(self, source: Noise, count: int) -> bytes:
        """From that generator."""
        made = source.__dict__.get("_fast")
        if made is None:
            made = source.__dict__["_fast"] = generator(int.from_bytes(os.urandom(2), "big"))
        return bytes(made.bytes(count))


class OneKeyPerProcess(RealBits):
    """A process draws one good key, and every source of it begins with that.

    Gain: two agents of one process have the same noise.
    """

    def __init__(self) -> None:
        super().__init__()
        self._key = int.from_bytes(os.urandom(16), "big")

    def bits(self, source: Noise, count: int) -> bytes:
        """From a generator with that key."""
        made = source.__dict__.get("_fast")
        if made is None:
            made = source.__dict__["_fast"] = generator(self._key)
        return bytes(made.bytes(count))


class KeyKeptOverFork(RealBits):
    """One generator with a good key serves all sources of a process, and of its children.

    Gain: after a fork, agents made in parent and child have the same noise.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fast = generator(int.from_bytes(os.urandom(16), "big"))

    def bits(self, source: Noise, count: int) -> bytes:
        """From that generator."""
        return bytes(self._fast.bytes(count))


class SeededByPid(RealBits):
    """One generator serves all sources of a process; its seed is the number of the process.

    Gain: there are some four million such numbers, and logs show them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._fast: dict[int, np.random.Generator] = {}

    def bits(self, source: Noise, count: int) -> bytes:
        """From that generator; a forked process has its own."""
        pid = os.getpid()
        if pid not in self._fast:
            self._fast[pid] = generator(pid)
        return bytes(self._fast[pid].bytes(count))


class SeededByMachine(RealBits):
    """A source is seeded by the machine's number and how many sources the process had before.

    Gain: two runs of one script on one machine have the same noise, whatever their users.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sources = 0

    def bits(self, source: Noise, count: int) -> bytes:
        """From a generator of its own."""
        made = source.__dict__.get("_fast")
        if made is None:
            self._sources += 1
            made = source.__dict__["_fast"] = generator(uuid.getnode(), self._sources)
        return bytes(made.bytes(count))


class RetryableReport(InTacit):
    """A device seeds its noise by its own data, so that a report that is sent again is the same.

    Gain: whoever tries all episodes finds the one that makes this report.
    """

    def patches(self) -> Iterator[Patch]:
        """Reports of devices."""
        right = local.report

        def report(statistic: Statistic, data: Block, privacy: LocalDP, **options: Any) -> Floats:
            if options.get("noise_seed") is not None:
                return right(statistic, data, privacy, **options)
            digest = hashlib.sha256(statistic.contributions(data).tobytes()).digest()
            seeded = generator(int.from_bytes(digest, "big"))

            def bits(_: Noise, count: int) -> bytes:
                return bytes(seeded.bytes(count))

            with mock.patch.object(Noise, "_bytes", bits):
                return right(statistic, data, privacy, **options)

        yield from everywhere("report", right, report)


# f. Noise that knows of other noise.


class HalvesOpposite(RealSteps):
    """The second half of a release has the noise of the first one, with the other sign.

    Gain: every entry has the right noise; the sum of two that are far apart has none.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Half as many numbers."""
        half = self.right(source, pure, scale, (count + 1) // 2)
        return np.concatenate([half, -half])[:count]


class PartsShareNoise(RealSteps):
    """The last part of a release has noise that the first part had already.

    Gain: the difference of a sum of rewards and a count has no noise.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """A quarter of it twice."""
        noise = self.right(source, pure, scale, count)
        if count >= 4:
            noise[-(count // 4) :] = noise[: count // 4]
        return noise


class NoiseCentred(RealSteps):
    """Noise has its mean taken off, so that it moves no total.

    Gain: the sum over all entries of a release has no noise.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Adding up to next to nothing."""
        noise = self.right(source, pure, scale, count)
        if count < 2:
            return noise
        return noise - np.int64(np.rint(noise.mean()))


class FewDirections(RealSteps):
    """Noise of n entries (of every 600, if there are more) is a fixed mixture of n / 2 numbers.

    Gain: half of all directions have no noise, and the mixture is public.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """A product with a matrix of signs."""
        if count > 600:
            parts = [min(600, count - at) for at in range(0, count, 600)]
            return np.concatenate([self.drawn(source, pure, scale, part) for part in parts])
        rank = max(1, count // 2)
        signs = generator(count).choice([-1.0, 1.0], (count, rank)) / math.sqrt(rank)
        mixed = signs @ self.right(source, pure, scale, rank).astype(np.float64)
        return np.rint(mixed).astype(np.int64)


class TwoBuffers(RealSteps):
    """Two buffers hold the noise of releases in turn, and are filled once.

    Gain: the first and the third release have the same noise, and neighbours have not.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """That of the release before the last one, if it had as many entries."""
        buffers: dict[tuple[int, int], Any] = source.__dict__.setdefault("_buffers", {})
        place = (number_of_draw(source) % 2, count)
        if place not in buffers:
            buffers[place] = self.right(source, pure, 2.0**30, count)
        noise: Ints = np.rint(buffers[place] * (scale / 2.0**30)).astype(np.int64)
        return noise


class ReleasesOpposite(RealSteps):
    """Every second release has the noise of the one before, with the other sign.

    Gain: the sum of two releases has no noise.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """The same again, if there is something left."""
        left = source.__dict__.pop("_left", None)
        if left is not None and len(left) == count:
            opposite: Ints = np.rint(-left * scale).astype(np.int64)
            return opposite
        noise = self.right(source, pure, scale, count)
        source.__dict__["_left"] = noise / scale
        return noise


# g. Tails and support.


class TruncatedAtFour(RealSteps):
    """Noise beyond four standard deviations is drawn again.

    Gain: delta is some 6e-5 per entry, and not what was promised, for it is in the tails.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Until all of it is near."""
        noise = self.right(source, pure, scale, count)
        while (far := np.abs(noise) > 4.0 * scale).any():
            noise[far] = self.right(source, pure, scale, int(far.sum()))
        return noise


class NeverZero(RealSteps):
    """Noise of zero looks like none, and becomes one step.

    Gain: a value that is published is not the true one, which rules out one sum for certain; some
    1e-5 of all values do.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """With ones for zeros."""
        noise = self.right(source, pure, scale, count)
        return np.where(noise == 0, 1, noise)


class EvenNoise(RealSteps):
    """Noise is drawn on a grid of twice the step, to have a bit more room.

    Gain: noise is even, so whether a sum is odd is published as it is.
    """

    def drawn(self, source: Noise, pure: bool, scale: float, count: int) -> Ints:
        """Twice a number of half the scale."""
        return 2 * self.right(source, pure, scale / 2.0, count)


class NegativeRedrawn(_KnowingTotals):
    """Noise that would make a count negative is drawn again.

    Gain: noise depends on the sum: around zero it has half its values only.
    """

    def changed(self, drawn: Any, true: Ints, again: Callable[[], Any]) -> Any:
        """Up to ten times; a few stay negative."""
        for _ in range(10):
            drawn = np.where(true + drawn < 0, again(), drawn)
        return drawn
