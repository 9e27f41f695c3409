"""The local model: noise on the user's device, and a curator that only adds reports.

:func:`report` runs on the device. It needs the statistic and the privacy model (both public) and
the user's own data; what it returns is all that ever leaves the device. Whole vectors are
reported, zeros included, so that nothing shows where the user was.

* Gaussian: vector + N(0, s^2), s = l2 / mu: exactly mu-Gaussian-DP.
* Laplace: vector + Laplace(s), s = l1 / epsilon: pure.
* Randomised response, for statistics of one-hots: the budget is split evenly over the G one-hots
  of a user, e = epsilon / G each. A value in [0, 1] is first rounded to a bit, 1 with that
  probability. Then a 1 stays 1 with probability 1/2 and a 0 becomes 1 with probability
  q = 1 / (1 + exp(e)), independently. Two users' one-hots differ in at most one 1 and one other
  1, and the likelihood ratio is at most (1/2)/q * (1 - q)/(1/2) = exp(e); against an empty one-hot
  it is smaller. G one-hots: exp(epsilon). Unbiased estimate of a sum over n users:
  (ones - n q) / (1/2 - q).

In a simulation the reports of n users need not be drawn one by one: the sum of n Gaussians is one
Gaussian of variance n s^2, the sum of n Laplace variables a difference of two gammas, and the
number of reported ones is Binomial(c, 1/2) + Binomial(n - c, q) with c the true count. That is the
law of the reports' sum, but for rounding once and not n times to steps far below the noise, at a
cost that does not grow with n.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.budget import Guarantee, Relation
from tacit.privacy.curator import Curator, Release
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.models import DistributedDP, LocalDP
from tacit.privacy.noise import (
    Noise,
    check_scale,
    exact_words,
    flip_probability,
    grid_sensitivity,
    grid_step,
    grid_total,
    safe_scale,
)
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.privacy.validation import instance_of

# Laplace noise beyond so many scales has a probability below 1e-300, Gaussian noise far below.
_TAIL = 800.0


def report(
    statistic: Statistic, data: Block, privacy: LocalDP, *, noise_seed: int | None = None
) -> Floats:
    """One user's report, made on her device: a noisy vector, or bits for randomised response.

    Send it once, and nothing else.

    Args:
        statistic: Query of the policy's version that she followed.
        data: A block of exactly one user.
        privacy: Model with the user's budget.
        noise_seed: A reproducible simulation, without protection.

    Formal guarantees:
        * The report is (epsilon, delta)-DP in all of ``data``, for any two values of it; Laplace
          noise and randomised response with delta = 0.

    >>> from tacit.privacy.standard import OneHotCounts
    >>> data = Block(1, {"cells": np.array([[2, 0]])})
    >>> model = LocalDP(epsilon=2.0, delta=0.0, mechanism="randomised response")
    >>> report(OneHotCounts(steps=2, cells=3), data, model, noise_seed=1).shape
    (6,)
    """
    instance_of("statistic", statistic, Statistic)
    instance_of("data", data, Block)
    instance_of("privacy", privacy, LocalDP)
    if data.users != 1 or data.aggregate:
        raise InvalidArgument(f"data must be one user's raw data, got {data!r}")
    noise = Noise(noise_seed)
    if privacy.reports_bits:
        return _reported_bits(noise, statistic.contributions(data)[0], statistic, privacy)
    step = grid_step(statistic, privacy.norm)
    scale = noise_scale(statistic, privacy) / step
    total = grid_total(statistic, data, step)
    steps = total + noise.steps(privacy.needs_l1, scale, total.size)
    return step * steps.astype(np.float64)


def _reported_bits(noise: Noise, vector: Floats, statistic: Statistic, privacy: LocalDP) -> Floats:
    """Randomised response: a 1 is sent with probability 1/2, a 0 becomes a 1 with flip / 2^64.

    flip is a whole number at least as large as 2^64 over 1 + e^x, x being what a one-hot may
    cost. So the chances of a 1 differ by at most 2^63 / flip <= (1 + e^x) / 2 <= e^x, and those of
    a 0 by at most 2 (1 - flip / 2^64) <= 2 / (1 + e^-x) <= e^x: exactly, in whole numbers.
    """
    bits = noise.words(vector.size) >> np.uint64(11) < np.rint(vector * 2.0**53)
    # Upwards by more than floats can be off.
    flip = math.ceil(min(flip_probability(statistic, privacy) * (1.0 + 1e-12), 0.5) * 2.0**64)
    limit = np.where(bits, np.uint64(1 << 63), np.uint64(min(max(flip, 1), 1 << 63)))
    return (noise.words(vector.size) < limit).astype(np.float64)


def noise_scale(statistic: Statistic, privacy: LocalDP) -> float:
    """Standard deviation (Gaussian) or scale (Laplace) of the noise in one report."""
    step = grid_step(statistic, privacy.norm)
    apart = step * grid_sensitivity(statistic, Relation.REPLACE_ONE, privacy.norm, step)
    return safe_scale(apart, privacy.report_cost)


Model = TypeVar("Model", bound=LocalDP | DistributedDP)


class DeviceCurator(Curator[Model]):
    """Adds up what devices made; it sees raw data in simulations only.

    Each user reports once: a block is asked one statistic.
    """

    made: ClassVar[str]
    """Column of a block that devices made."""

    @property
    def _noise(self) -> Noise:
        assert isinstance(self.source, Noise)  # noqa: S101
        return self.source

    def check_block(self, block: Block) -> None:
        """Refuses raw data, but in a simulation: a real local curator never sees any."""
        if self.made not in block.arrays and not self.source.simulation:
            raise InvalidArgument(
                "this curator collects what devices made, not raw data; give noise_seed to simulate"
            )

    def _noisy_sum(
        self, statistic: Statistic, block: Block, mu: float | None, spent: Fraction
    ) -> Release:
        """The sum of a block's reports, unbiased, with the standard deviation of its noise.

        For randomised response that differs between entries and is estimated from the reports
        themselves; for fractional values it is an upper bound, since how much their rounding adds
        is not known.
        """
        if mu is not None:
            raise InvalidArgument("a local report carries a user's whole budget: no mu")
        if spent:
            raise BudgetExceeded("the users of this block have sent their one report")
        instance_of("statistic", statistic, Statistic)
        value, variance = self._estimate(statistic, block)
        std, layout = np.sqrt(variance), statistic.layout
        # Per part; one number where all entries agree.
        same = bool((std == std[0]).all())
        stds = layout.stds(float(std[0])) if same else layout.unpack(std)
        return Release.of(statistic, value, stds, block.users, self.privacy.report_cost)

    def price(self, release: Release) -> Fraction:
        """All that a user has: she reports once."""
        return Fraction(1)

    @abstractmethod
    def _estimate(self, statistic: Statistic, block: Block) -> tuple[Floats, Floats]:
        """An unbiased sum over a block, and the variance of its noise, per coordinate."""


class LocalCurator(DeviceCurator[LocalDP]):
    """Adds up reports, each of which has a user's whole noise."""

    made = "reports"

    def checked_reports(self, statistic: Statistic, reports: ArrayLike) -> Block:
        """Reports of users, a row each, as a block.

        One that no honest device sends counts as zero: it is not finite, not made of bits where
        bits are asked for, or so large that its noise would have a probability below 1e-300. Sums
        with it could not be computed with, and all other reports would be lost. It is what
        the device sent, not raw data.
        """
        instance_of("statistic", statistic, Statistic)
        try:
            array = np.asarray(reports, dtype=np.float64)
        except (ValueError, TypeError, OverflowError):
            raise InvalidArgument("reports must be numbers, a row per user") from None
        if array.ndim != 2 or array.shape[1] != statistic.layout.size:
            raise InvalidArgument(
                f"reports must have shape (users, {statistic.layout.size}), got {array.shape}"
            )
        good = self._plausible(statistic, array)[:, np.newaxis]
        return Block(len(array), {self.made: np.where(good, array, 0.0)})

    def collect(
        self, statistic: Statistic, reports: ArrayLike, user_ids: Sequence[int | str] | None = None
    ) -> int:
        """Takes real reports, one row per user; returns the number of their block."""
        return self.add(self.checked_reports(statistic, reports), user_ids)

    def _plausible(self, statistic: Statistic, reports: Floats) -> NDArray[np.bool_]:
        """Which rows may be reports."""
        if self.privacy.reports_bits:
            return np.asarray(((reports == 0.0) | (reports == 1.0)).all(axis=1))
        longest = statistic.l2(Relation.ZERO_OUT) + _TAIL * noise_scale(statistic, self.privacy)
        # NaN fails the comparison.
        return np.asarray((np.abs(reports) <= longest).all(axis=1))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of each user's device, whoever reads the reports."""
        privacy = self.privacy
        gaussian = privacy.mechanism == "gaussian"
        mechanism = f"{privacy.mechanism} report from the device"
        if not privacy.reports_bits:
            mechanism = f"report from the device with {exact_words(not gaussian)}"
        return self._proven(
            model="local",
            delta=privacy.delta if gaussian else 0.0,
            mu=privacy.budget.mu if gaussian else None,
            releases=privacy.episodes_per_user,
            mechanism=mechanism,
            sampler="bits" if privacy.reports_bits else "exact",
        )

    def _simulate(self, statistic: Statistic, block: Block) -> Floats:
        """The sum of the reports of a block's users, in one draw."""
        if self.privacy.reports_bits:
            return self._simulate_bits(statistic, block)
        users, size = block.users, statistic.layout.size
        step = grid_step(statistic, self.privacy.norm)
        total = grid_total(statistic, block, step)
        scale = noise_scale(statistic, self.privacy) / step
        check_scale(scale)
        if self.privacy.mechanism == "gaussian":
            noise = self.source.steps(False, math.sqrt(users) * scale, size)
        else:
            noise = np.rint(scale * self._noise.laplace_sum(users, (size,))).astype(np.int64)
        return step * (total + noise).astype(np.float64)

    def _simulate_bits(self, statistic: Statistic, block: Block) -> Floats:
        flip = flip_probability(statistic, self.privacy)
        if block.aggregate:
            true = statistic.total(block)
            if not np.array_equal(true, np.rint(true)):
                raise InvalidArgument("randomised response needs bits; simulate user by user")
        else:
            true = np.zeros(statistic.layout.size)
            step = max(1, (1 << 22) // statistic.layout.size)
            for start in range(0, block.users, step):
                rows = statistic.contributions(block.take(slice(start, start + step)))
                true += (self._noise.uniform(rows.shape) < rows).sum(axis=0)
        ones = np.rint(true).astype(np.int64)
        reported = self._noise.binomial(ones, 0.5) + self._noise.binomial(block.users - ones, flip)
        return reported.astype(np.float64)

    def _estimate(self, statistic: Statistic, block: Block) -> tuple[Floats, Floats]:
        users = block.users
        if self.made in block.arrays:
            total = np.asarray(block[self.made], dtype=np.float64).sum(axis=0)
        else:
            total = self._simulate(statistic, block)
        if self.privacy.reports_bits:
            flip = flip_probability(statistic, self.privacy)
            estimate = (total - users * flip) / (0.5 - flip)
            ones = np.clip(estimate, 0.0, users)
            variance = (ones * 0.25 + (users - ones) * flip * (1.0 - flip)) / (0.5 - flip) ** 2
            # Rounding a value v to a bit adds v (1 - v) <= v.
            return estimate, variance + np.where(statistic.fractional, ones, 0.0)
        unit = noise_scale(statistic, self.privacy) ** 2
        if self.privacy.mechanism == "laplace":
            unit *= 2.0
        return total, np.full(total.shape, users * unit)
