"""Audits: what a mechanism really costs, computed from its code or measured on its output.

Exact audits are for linear mechanisms: whatever is published is A x + B z with inputs x,
independent noise z and matrices that the code determines. Run with basis vectors in place of its
random numbers it gives B, in place of its inputs A. For normal noise the privacy loss of a pair of
inputs with difference v is Gaussian with

    mu^2 = (A v)' (B B')^+ (A v) = ||B^+ A v||^2      (infinite if A v is outside the range of B),

and for Laplace noise with an invertible B the exact cost is epsilon = ||B^-1 A v||_1.

The empirical audit needs no structure: it compares samples of two neighbouring inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, ndtri

from tacit.privacy.budget import epsilon_from_mu
from tacit.privacy.counters.base import Counter
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import NoiseSource
from tacit.privacy.statistic import Floats

Mechanism: TypeAlias = Callable[[Floats, NoiseSource], ArrayLike]


class Releasing(Protocol):
    """Anything that adds an item and publishes a vector."""

    def release(self, item: Floats, /) -> Floats:
        """Adds one item and publishes."""
        ...


@dataclass(frozen=True)
class ExactAudit:
    """The exact cost of a linear mechanism, from its code.

    Attributes:
        unit: ``"mu"`` for Gaussian noise, ``"epsilon"`` for Laplace noise.
        claimed: what the mechanism says of itself, if it says anything.
        costs: the true cost of every item or difference; infinite where it can be read off the
            output without noise.
        draws: how much noise the code drew: vectors (:func:`audit_counter`) or numbers.
    """

    unit: str
    claimed: float | None
    costs: Floats
    draws: int

    @property
    def cost(self) -> float:
        """The exact cost."""
        return float(self.costs.max())

    @property
    def mu(self) -> float:
        """The exact mu of a Gaussian mechanism."""
        if self.unit != "mu":
            raise InvalidArgument("this mechanism has Laplace noise: its cost is an epsilon")
        return self.cost

    @property
    def tightness(self) -> float:
        """Exact over claimed cost."""
        return self.cost / self.claimed if self.claimed else math.inf

    @property
    def passed(self) -> bool:
        """Whether the claim covers the truth (up to rounding, 1e-9 relative)."""
        return self.claimed is None or self.cost <= self.claimed * (1.0 + 1e-9)

    def __str__(self) -> str:
        claim = "no claim" if self.claimed is None else f"claimed {self.claimed:.6g}"
        claim += ": covered" if self.passed else ": NOT COVERED"
        worst = int(np.argmax(self.costs >= self.cost * (1.0 - 1e-9)))  # the first, up to rounding
        return f"exact {self.unit} {self.cost:.6g} (item {worst}), {claim}"


class BasisNoise:
    """A source that knows what it draws, and writes down of which laws noise was asked for.

    It puts basis vectors where a mechanism expects noise, along the last axis: so one that treats
    all coordinates alike shows, in coordinate j of its output, the coefficient of its j-th draw.
    With ``single`` all that is drawn is zero but for that number, and numbers are counted; with
    neither it only counts, and returns zeros.

    Attributes:
        units: by draw, what stands for one standard deviation (or Laplace scale): a large number,
            where draws are whole, so that rounding it does not count.
    """

    simulation = True

    def __init__(self, dimension: int | None = None, *, single: int | None = None) -> None:
        self.dimension, self._single = dimension, single
        self.draws = 0
        self.units: list[float] = []
        self.asked: set[str] = set()

    def steps(self, pure: bool, scale: float, count: int) -> NDArray[np.int64]:
        """In place of whole noise."""
        unit = 2.0 ** (55 - math.ceil(math.log2(scale)))
        values = self._draw("laplace" if pure else "gaussian", (count,), unit)
        return np.rint(unit * scale * values).astype(np.int64)

    def normal(self, shape: tuple[int, ...]) -> Floats:
        """In place of normals."""
        return self._draw("gaussian", shape)

    def laplace(self, shape: tuple[int, ...]) -> Floats:
        """In place of Laplace variables."""
        return self._draw("laplace", shape)

    def _draw(self, law: str, shape: tuple[int, ...], unit: float = 1.0) -> Floats:
        self.asked.add(law)
        values = np.zeros(shape)
        rows = values.reshape(-1, 1 if self._single is not None or not shape else shape[-1])
        for row in rows:
            if self.dimension is not None:
                row[self.draws] = 1.0
            row[:] += self.draws == self._single
            self.draws += 1
        self.units += [unit] * len(rows)
        return values


def audit_counter(
    mechanism: Counter | Callable[[int, NoiseSource], Releasing],
    releases: int | None = None,
    *,
    sensitivity: float = 1.0,
    claimed: float | None = None,
) -> ExactAudit:
    """The exact cost of a counter, or of anyone's continual release, from its code.

    Args:
        mechanism: a counter (its sensitivity and cost are the claim to check), or a function
            ``make(dimension, source)`` that builds a fresh mechanism for vectors of that
            dimension which draws all its noise from ``source`` (of one law) and treats all
            coordinates alike.
        releases: how many releases to audit; a counter's own number by default.
        sensitivity: the largest change of one item, for a function.
        claimed: the claimed mu (or epsilon), for a function.

    >>> from tacit.privacy.counters import Blocks
    >>> print(audit_counter(Blocks(releases=8, mu=0.5)))
    exact mu 0.499957 (item 0), claimed 0.5: covered
    """
    make: Callable[[int, NoiseSource], Releasing]
    if isinstance(mechanism, Counter):
        counter = mechanism
        sensitivity = counter.sensitivity
        claimed = counter.epsilon if counter.mu is None else counter.mu
        releases = counter.releases if releases is None else releases
        make = lambda size, source: counter.rebuild((size,), source)  # noqa: E731
    else:
        make = mechanism
    if releases is None or releases < 1:
        raise InvalidArgument(f"releases must be an integer >= 1, got {releases!r}")

    inputs, noise, source = _matrices(make, releases)
    return _exact(sensitivity * inputs, noise, source, claimed)


def counter_matrices(counter: Counter, releases: int) -> tuple[Floats, Floats]:
    """Matrices A and B, from a counter's code, with a row for each of so many releases.

    It publishes A x + B z, with items x and unit noise z. The counter is not touched.
    """
    return _matrices(lambda size, source: counter.rebuild((size,), source), releases)[:2]


def _matrices(
    make: Callable[[int, NoiseSource], Releasing], releases: int
) -> tuple[Floats, Floats, BasisNoise]:
    """Both matrices, and the source that knows what was drawn."""
    counting = BasisNoise()
    _stream(make(1, counting), np.zeros((releases, 1)))
    draws = counting.draws
    basis = BasisNoise(draws)
    noise = _stream(make(max(draws, 1), basis), np.zeros((releases, max(draws, 1))))
    noise = noise / np.array(basis.units or [1.0])
    inputs = _stream(make(releases, BasisNoise()), np.eye(releases))
    return inputs, noise, counting


def audit_linear(
    mechanism: Mechanism, differences: Sequence[ArrayLike], *, claimed: float | None = None
) -> ExactAudit:
    """The exact cost of any linear mechanism, one scalar draw at a time.

    Slower than :func:`audit_counter`, and free of its assumption that coordinates are alike.

    Args:
        mechanism: ``mechanism(inputs, source)`` runs the code once on an array of inputs and
            returns all that it publishes. It must be linear in inputs and noise together (up to
            a constant), draw noise of one law, from ``source`` only (of Laplace noise as many
            numbers as it publishes), and choose nothing by the outcome.
        differences: arrays of the inputs' shape: each the difference of a pair of neighbours.
        claimed: the claimed mu, or epsilon.

    >>> def noisy_sum(x, source):
    ...     return x.sum(axis=0) + 2.0 * source.normal((3,))
    >>> audit_linear(noisy_sum, [np.eye(3)]).mu.__round__(3)
    0.866
    """

    def output(inputs: Floats, source: BasisNoise) -> Floats:
        return np.ravel(np.asarray(mechanism(inputs, source), dtype=np.float64))

    pairs = [np.asarray(v, dtype=np.float64) for v in differences]
    zero, counting = np.zeros_like(pairs[0]), BasisNoise(single=-1)
    origin = output(zero, counting)
    noise = np.empty((origin.size, counting.draws))
    for k in range(counting.draws):
        one = BasisNoise(single=k)
        noise[:, k] = (output(zero, one) - origin) / one.units[k]
    shifts = np.stack([output(v, BasisNoise(single=-1)) - origin for v in pairs], axis=1)
    return _exact(shifts, noise, counting, claimed)


def _exact(shifts: Floats, noise: Floats, source: BasisNoise, claimed: float | None) -> ExactAudit:
    """The cost of shifts, by the law of the noise that hides them."""
    laplace = "laplace" in source.asked
    if laplace and "gaussian" in source.asked:
        raise InvalidArgument("an exact audit is for noise of one law; some is gaussian")
    costs = _taxicab(shifts, noise) if laplace else _distances(shifts, noise)
    return ExactAudit("epsilon" if laplace else "mu", claimed, costs, source.draws)


def _stream(mechanism: Releasing, items: Floats) -> Floats:
    return np.stack([np.ravel(mechanism.release(item)) for item in items])


def _distances(shifts: Floats, noise: Floats) -> Floats:
    """||B^+ s|| for every column s of ``shifts``; infinite where s is outside the range of B."""
    if noise.shape[1] == 0:
        return np.where(np.abs(shifts).max(axis=0) > 0, np.inf, 0.0)
    # A mechanism may scale its noise as it likes; singular values are judged relative to it.
    left, values, _ = np.linalg.svd(noise, full_matrices=False)
    kept = values > values[0] * 1e-12
    coordinates = left.T @ shifts
    missed = shifts - left[:, kept] @ coordinates[kept]
    distances: Floats = np.linalg.norm(coordinates[kept] / values[kept, np.newaxis], axis=0)
    outside = np.linalg.norm(missed, axis=0) > 1e-7 * np.linalg.norm(shifts, axis=0)
    return np.where(outside, np.inf, distances)


def _taxicab(shifts: Floats, noise: Floats) -> Floats:
    """||B^-1 s||_1 for every column s of ``shifts``; infinite where B has no inverse."""
    if noise.shape[0] != noise.shape[1]:
        raise InvalidArgument(
            f"a Laplace mechanism is audited exactly if it draws one vector per release; this one "
            f"drew {noise.shape[1]} in {noise.shape[0]} releases"
        )
    if np.linalg.matrix_rank(noise) < len(noise):
        return np.full(shifts.shape[1], np.inf)
    return np.asarray(np.abs(np.linalg.solve(noise, shifts)).sum(axis=0))


@dataclass(frozen=True)
class EmpiricalAudit:
    """A lower bound on mu, from samples.

    Attributes:
        mu: the lower bound (0 if the samples show nothing), which holds with this confidence.
        false_positives: upper confidence bound on the test's false positive rate.
        true_positives: lower confidence bound on its true positive rate.
    """

    mu: float
    confidence: float
    false_positives: float
    true_positives: float

    def epsilon(self, delta: float) -> float:
        """The bound as an epsilon at ``delta``, through the exact Gaussian curve.

        Right for mechanisms that claim mu-Gaussian-DP. A raw epsilon from rates at tiny delta
        would say nothing.
        """
        return 0.0 if self.mu == 0.0 else epsilon_from_mu(self.mu, delta)

    def __str__(self) -> str:
        return f"mu >= {self.mu:.4g} with probability {self.confidence:g}"


def audit_samples(
    null: ArrayLike, alternative: ArrayLike, *, confidence: float = 0.95
) -> EmpiricalAudit:
    """A lower bound on mu from a test statistic sampled under two neighbouring inputs.

    mu-Gaussian-DP bounds every test: Phi^-1(true positive rate) - Phi^-1(false positive rate)
    <= mu. The first half of each sample chooses the direction and the threshold, the second half
    bounds the two rates by Clopper-Pearson, each with error (1 - confidence) / 2. The bound is
    therefore above the true mu with probability at most 1 - confidence, whatever the mechanism.

    Args:
        null: independent values of the statistic under one input.
        alternative: independent values under its neighbour.
        confidence: probability that the bound holds.

    >>> rng = np.random.default_rng(0)
    >>> audit = audit_samples(rng.normal(0, 1, 20_000), rng.normal(1, 1, 20_000))
    >>> 0.9 < audit.mu < 1.0
    True
    """
    if not 0.5 <= confidence < 1.0:
        raise InvalidArgument(f"confidence must be in [0.5, 1), got {confidence!r}")
    samples = [np.ravel(np.asarray(s, dtype=np.float64)) for s in (null, alternative)]
    if min(s.size for s in samples) < 20:
        raise InvalidArgument("an empirical audit needs at least 20 samples of each input")
    if any(np.isnan(s).any() for s in samples):
        raise InvalidArgument("the test statistic must not be NaN")
    choose = [s[: s.size // 2] for s in samples]
    judge = [s[s.size // 2 :] for s in samples]
    sign = -1.0 if np.median(choose[1]) < np.median(choose[0]) else 1.0
    error = (1.0 - confidence) / 2.0
    threshold = _best_threshold(sign * choose[0], sign * choose[1], error)
    called = sign * judge[0] > threshold, sign * judge[1] <= threshold
    false_positives, misses = (
        float(_upper_rates(wrong.sum(keepdims=True), wrong.size, error)[0]) for wrong in called
    )
    mu = max(0.0, float(-ndtri(misses) - ndtri(false_positives)))
    return EmpiricalAudit(mu, confidence, false_positives, 1.0 - misses)


def _best_threshold(null: Floats, alternative: Floats, error: float) -> float:
    """The threshold with the largest bound on this half of the sample.

    The bounds are simultaneous over all candidates (a far smaller error each), or a lucky one in
    the tails would win and disappoint on the other half.
    """
    error /= 499
    null, alternative = np.sort(null), np.sort(alternative)
    candidates = np.quantile(np.concatenate([null, alternative]), np.linspace(0.002, 0.998, 499))
    above = null.size - np.searchsorted(null, candidates, side="right")
    below = np.searchsorted(alternative, candidates, side="right")
    bounds = -ndtri(_upper_rates(below, alternative.size, error)) - ndtri(
        _upper_rates(above, null.size, error)
    )
    return float(candidates[int(bounds.argmax())])


def _upper_rates(successes: NDArray[np.int64], trials: int, error: float) -> Floats:
    """Clopper-Pearson upper confidence bounds on success probabilities."""
    inside = np.minimum(successes, trials - 1)
    rates: Floats = betaincinv(inside + 1.0, trials - inside, 1.0 - error)
    return np.where(successes >= trials, 1.0, rates)
