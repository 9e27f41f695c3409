r"""The distributed model: each device adds a share of the noise, and a secure sum adds up the rest.

Nobody is trusted with raw data, and the noise is that of joint DP. A device rounds its statistic to
a public grid, adds a small share of rounded Gaussian noise, and gives the result, modulo 2^bits, to
a secure sum: a protocol between the devices and a server which shows the server the sum over all
devices and nothing else. :func:`share` runs on the device; the curator takes sums that a secure sum
opened. There is no cryptography here. That the sum is all that anybody sees is assumed, and so is
that enough devices are *honest*: they add their share, tell nobody, and stay until the sum is
opened. The guarantee says how many.

**What is proven.** Let q be the sum of what devices hold, in whole steps, and n of the devices be
honest. What is opened is q + N with N = round(s Z_1) + ... + round(s Z_n), modulo 2^bits, plus
whatever the others add, which is post-processing. Sums of rounded Gaussians are not rounded
Gaussians, but they are nearly so:

    TV(N, round(sqrt(w) Z)) <= T per coordinate,    w = n s^2 + (n - 1) / 12,

with T of :func:`distance_to_rounded`, which is 1e-13 where the noise of a sum is a few hundred
steps. With rounded Gaussian noise of that w the opened sum is post-processing of the Gaussian
mechanism, (D / sqrt(w))-Gaussian-DP (:mod:`tacit.privacy.noise`). So if that implies
(epsilon, delta'), then for neighbours and every event E

    P(E) <= Q(E) + d T <= e^epsilon Q'(E) + delta' + d T
         <= e^epsilon P'(E) + delta' + (1 + e^epsilon) d T

over d coordinates. The curator plans with delta' = (1 - 1/1000) delta and a grid on which the last
term is at most delta / 1000. A user who takes part in g sums pays g times the mu^2 and g times T:
all other sums have the same law for both neighbours, given what was opened before.

**Proof of the distance.** The characteristic function of round(s Z) on [-pi, pi] is, by Poisson
summation, e^(-s^2 t^2 / 2) S(t) plus aliases of at most a = 2.01 e^(-pi^2 s^2 / 2) together, where
S(t) = sin(t/2) / (t/2) (for s >= 1; an alias j is at least (2|j| - 1) pi away). Write S = e^-L with
L = t^2/24 + t^4/2880 + ..., all of whose terms are positive; so (L - t^2/24) / t^4 grows with |t|,
to 4.15e-4 at pi. Without aliases N has A = e^(-n s^2 t^2 / 2 - n L), and round(sqrt(w) Z) has
B = e^(-w t^2 / 2 - L). Then A / B = e^(-(n-1)(L - t^2/24)), so |A - B| <= 4.15e-4 (n-1) t^4
e^(-w t^2 / 2). Aliases add at most (n + 1) a, as all factors are at most 1. By Fourier inversion
the two probabilities of any whole number differ by at most

    (1 / 2 pi) integral |difference| <= 4.97e-4 (n-1) w^(-5/2) + (n + 1) a,

since the integral of t^4 e^(-w t^2 / 2) is 3 sqrt(2 pi) w^(-5/2). Sum that over the 2K + 1 numbers
up to K = 12 sqrt(w); what N has beyond is at most what round(sqrt(w) Z) has there plus that sum. So
TV <= (2K + 1)(4.97e-4 (n-1) w^(-5/2) + (n+1) a) + P(|round(sqrt(w) Z)| > K).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.budget import Guarantee, Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.local import DeviceCurator
from tacit.privacy.models import SLACK, DistributedDP
from tacit.privacy.noise import Noise, grid_sensitivity, grid_step, grid_total
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.privacy.validation import instance_of, whole_number

Ints: TypeAlias = NDArray[np.int64]

# Below that many steps the aliases of the proof are no longer negligible.
_SMALLEST_SHARE = 4.0
# By how much a coarse grid may increase the noise, at most.
_COARSEST = 0.02
# How many standard deviations of noise fit into the modulus beside all users.
_TAIL = 40.0


def distance_to_rounded(shares: int, scale: float) -> float:
    """How far the sum of so many round(scale Z) is from one round(sqrt(w) Z), in total variation.

    See the module for w and the proof.

    >>> distance_to_rounded(1, 2.0)
    0.0
    >>> f"{distance_to_rounded(10_000, 64.0):.0e}"
    '7e-14'
    """
    if shares == 1:
        return 0.0
    w = _variance(shares, scale)
    within = 2.0 * math.ceil(12.0 * math.sqrt(w)) + 1.0
    aliases = (shares + 1.0) * 2.01 * math.exp(-0.5 * (math.pi * scale) ** 2)
    # Beyond K: 2 (1 - Phi(12)) < 1e-32.
    return within * (4.97e-4 * (shares - 1.0) * math.pow(w, -2.5) + aliases) + 1e-32


def _variance(shares: int, scale: float) -> float:
    return shares * scale**2 + (shares - 1.0) / 12.0


@dataclass(frozen=True)
class SumPlan:
    """The public numbers of one secure sum; server and devices compute the same.

    Attributes:
        devices: how many devices take part.
        least: how many honest ones have to be in the sum, and how many have to stay at least.
        step: of the grid.
        scale: of each device's share of the noise, in steps.
        bits: sums are modulo 2^bits.
        size: how many numbers a device sends.
    """

    devices: int
    least: int
    step: float
    scale: float
    bits: int
    size: int

    @classmethod
    def of(cls, statistic: Statistic, privacy: DistributedDP, devices: int) -> SumPlan:
        """A grid is taken that fits into the modulus, and costs next to nothing.

        >>> from tacit.privacy.standard import OneHotCounts
        >>> plan = SumPlan.of(OneHotCounts(steps=2, cells=3), DistributedDP(1.0, 1e-6), 10_000)
        >>> plan.least, plan.bits, plan.size
        (9500, 32, 6)
        """
        instance_of("statistic", statistic, Statistic)
        instance_of("privacy", privacy, DistributedDP)
        devices, step = whole_number("devices", devices), grid_step(statistic, "l2")
        length = statistic.sensitivity(Relation.ZERO_OUT, "l2")
        plan = cls._on(step, statistic, privacy, devices)
        while not plan._fits(length) and plan.step < length:
            plan = cls._on(2.0 * plan.step, statistic, privacy, devices)
        while not plan._near(privacy):
            finer = cls._on(0.5 * plan.step, statistic, privacy, devices)
            if not finer._fits(length):
                break
            plan = finer
        exact = statistic.sensitivity(Relation.REPLACE_ONE, "l2") / privacy.report_cost
        if not (plan._near(privacy) and plan._fits(length)) or (
            plan.std(plan.least) > (1.0 + _COARSEST) * exact
        ):
            raise InvalidArgument(
                f"bits={privacy.bits} is too few for a sum of {plan.size} numbers over {devices} "
                f"devices: rounding to what fits would cost too much. Take more bits, up to 62, or "
                f"fewer devices in a sum"
            )
        return plan

    @classmethod
    def _on(
        cls, step: float, statistic: Statistic, privacy: DistributedDP, devices: int
    ) -> SumPlan:
        """The calibration on a grid: enough noise from the honest devices alone."""
        least = max(1, math.ceil(privacy.honest * devices))
        apart = grid_sensitivity(statistic, Relation.REPLACE_ONE, "l2", step)
        variance = (apart / privacy.report_cost) ** 2 - (least - 1.0) / 12.0
        scale = math.sqrt(max(variance, 0.0) / least) * (1.0 + 1e-12)
        return cls(devices, least, step, scale, privacy.bits, statistic.layout.size)

    def _fits(self, length: float) -> bool:
        """Whether all users and the noise are within the modulus, each of such a length."""
        noise = _TAIL * math.sqrt(_variance(self.devices, self.scale))
        return self.devices * (length / self.step + 1.0) + noise < 2.0 ** (self.bits - 1)

    def _near(self, privacy: DistributedDP) -> bool:
        """Whether the last term of the proof is within what was set aside for it."""
        if self.scale < _SMALLEST_SHARE:
            return False
        apart = privacy.episodes_per_user * self.size * distance_to_rounded(self.least, self.scale)
        return apart * (1.0 + math.exp(min(privacy.epsilon, 700.0))) <= SLACK * privacy.delta

    @property
    def modulus(self) -> int:
        """Modulus of the sums."""
        return 1 << self.bits

    def std(self, devices: int) -> float:
        """Standard deviation of the noise of so many devices, in the statistic's units."""
        return self.step * math.sqrt(_variance(devices, self.scale) + 1.0 / 12.0)

    def opened(self, total: ArrayLike) -> Floats:
        """An opened sum in the statistic's units: whole numbers modulo 2^bits, as they came."""
        array = np.asarray(total)
        if array.dtype.kind not in "iu" or array.shape != (self.size,):
            raise InvalidArgument(
                f"a sum must be {self.size} whole numbers, got {array.dtype} of shape {array.shape}"
            )
        mask = np.uint64(self.modulus - 1)
        half = np.int64(self.modulus // 2)
        lifted = ((array.astype(np.uint64) + np.uint64(half)) & mask).astype(np.int64) - half
        return self.step * lifted.astype(np.float64)


def share(statistic: Statistic, data: Block, privacy: DistributedDP, *, devices: int) -> Ints:
    """Share of one device in a secure sum over ``devices`` devices: whole numbers, 0 to 2^bits.

    Give it to the secure sum once, and nowhere else: it has far too little noise to be shown. A
    device takes part in no more than ``privacy.episodes_per_user`` sums, and counts them itself.

    Args:
        statistic: Query of the policy's version that she followed.
        data: A block of exactly one user.
        privacy: Model with the user's budget.
        devices: How many devices the sum is planned for.

    >>> from tacit.privacy.standard import OneHotCounts
    >>> counts, model = OneHotCounts(steps=1, cells=3), DistributedDP(1.0, 1e-6)
    >>> users = [Block(1, {"cells": np.array([[cell]])}) for cell in [0, 0, 2] * 100]
    >>> sent = [share(counts, user, model, devices=300) for user in users]
    >>> total = SumPlan.of(counts, model, 300).opened(added(sent, model.bits))
    >>> bool(np.abs(total - [200, 0, 100]).max() < 50)
    True
    """
    instance_of("data", data, Block)
    if data.users != 1 or data.aggregate:
        raise InvalidArgument(f"data must be one user's raw data, got {data!r}")
    plan = SumPlan.of(statistic, privacy, devices)
    noise = Noise().steps(False, plan.scale, plan.size)
    steps = grid_total(statistic, data, plan.step) + noise
    sent: Ints = steps & np.int64(plan.modulus - 1)
    return sent


def added(shares: ArrayLike, bits: int) -> Ints:
    """The sum of shares modulo 2^bits: what a secure sum computes, without its security."""
    rows = np.asarray(shares, dtype=np.int64).astype(np.uint64)
    total: Ints = (rows.sum(axis=0, dtype=np.uint64) & np.uint64((1 << bits) - 1)).astype(np.int64)
    return total


class DistributedCurator(DeviceCurator[DistributedDP]):
    """Takes opened sums, one per block, and never a single share: those hide far too little."""

    made = "opened"

    def checked_sum(
        self, statistic: Statistic, total: ArrayLike, *, devices: int, stayed: int
    ) -> Block:
        """An opened secure sum, as a block.

        Args:
            statistic: Query that the devices were asked.
            total: The sum of their shares, whole numbers modulo 2^bits.
            devices: How many devices the sum was planned for.
            stayed: How many of them are in it.
        """
        plan = SumPlan.of(statistic, self.privacy, devices)
        stayed = whole_number("stayed", stayed)
        if not plan.least <= stayed <= devices:
            raise InvalidArgument(
                f"{stayed} of {devices} devices are in this sum, but it must not be opened with "
                f"fewer than {plan.least}: the others' shares are the noise that was promised"
            )
        arrays = {self.made: plan.opened(total), "devices": np.array([devices])}
        return Block(stayed, arrays, aggregate=True)

    def _estimate(self, statistic: Statistic, block: Block) -> tuple[Floats, Floats]:
        devices, users = block.users, block.users
        if self.made in block.arrays:
            total = np.asarray(block[self.made], dtype=np.float64)
            devices = int(np.asarray(block["devices"])[0])
        plan = SumPlan.of(statistic, self.privacy, devices)
        if self.made not in block.arrays:
            # All devices honest and there, in one draw.
            scale = math.sqrt(_variance(users, plan.scale))
            noise = self.source.steps(False, scale, statistic.layout.size)
            total = plan.step * (grid_total(statistic, block, plan.step) + noise).astype(np.float64)
        return total, np.full(total.shape, plan.std(users) ** 2)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all sums together, if enough devices are honest."""
        return self._proven(
            model="distributed",
            delta=self.privacy.delta,
            mu=None,
            releases=None,
            mechanism=(
                f"secure sums, in each of which at least {100 * self.privacy.honest:.4g} % of its "
                f"devices are honest and add their share of rounded Gaussian noise"
            ),
        )
