"""What every counter is: a running sum, published at every release, with calibrated noise.

A counter publishes y_t = x_1 + ... + x_t + noise_t for t = 1..n. Every counter here is a
factorisation of the prefix-sum matrix A (lower-triangular ones) into A = B C with B and C square
and lower triangular: it draws one fresh vector z_t per release, once, and
noise = scale * B z. Since B is invertible, publishing A x + scale B z tells exactly as much as
publishing C x + scale z.

Formal guarantee. Let neighbouring streams differ in one item x_k, by v with ||v|| <= sensitivity
(the 2-norm for Gaussian noise, the 1-norm for Laplace noise); items may be chosen adaptively from
earlier releases. Given the past, release t moves by C_tk v in units where its noise is
scale * z_t, so

* Gaussian: the log-likelihood ratio of the whole transcript is N(+-m^2/2, m^2) with
  m = ||C_:k||_2 ||v||_2 / scale, hence the counter is exactly mu-Gaussian-DP with
  mu = max_k ||C_:k||_2 * sensitivity / scale;
* Laplace: the log-likelihood ratio is at most ||C_:k||_1 ||v||_1 / scale, hence pure epsilon-DP
  with epsilon = max_k ||C_:k||_1 * sensitivity / scale (here C has entries 0 and 1 only).

``column_norm`` is max_k ||C_:k||, ``row_norms`` are the norms of B's rows.

Everything is in whole numbers: :mod:`tacit.privacy.counters.grid` has the proof that the noise
which is drawn is exactly as private.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.budget import Budget, Guarantee, Relation
from tacit.privacy.counters.grid import LARGEST, LARGEST_NOISE, Ints, ItemGrid
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument
from tacit.privacy.noise import (
    Noise,
    NoiseSource,
    Owner,
    Uncopyable,
    check_scale,
    exact_words,
    safe_scale,
)
from tacit.privacy.validation import MOST_USERS, flag, positive, whole_number

Floats = NDArray[np.float64]
Distribution = Literal["gaussian", "laplace"]

_ARGUMENTS = ("sensitivity", "releases", "shape", "mu", "epsilon", "whole")


class Counter(Uncopyable, ABC):
    """A private running sum of vectors.

    Args:
        sensitivity: the most that one user can change the item she is in: 2-norm for Gaussian
            noise, 1-norm for Laplace noise. The caller enforces it by clipping; the curator does.
        releases: how many releases are paid for; ``None`` for any number, which blocks have.
        shape: the shape of one item.
        mu: calibrate Gaussian noise to mu-Gaussian-DP.
        epsilon: calibrate Laplace noise to pure epsilon-DP. Exactly one of ``mu`` and ``epsilon``.
        source: where the noise comes from; the operating system's entropy by default.
        whole: items are whole numbers already, and ``sensitivity`` and all that is published are
            in such whole steps.

    A non-finite item is a public mistake here (it was not clipped) and is refused. Whoever takes
    values from users passes them through a curator, which turns such values into zeros instead.
    """

    kind: ClassVar[str]
    distributions: ClassVar[tuple[Distribution, ...]] = ("gaussian",)
    kept: ClassVar[tuple[str, ...]] = ()
    """The arrays of drawn noise that the kind keeps between releases."""

    why_single = "a counter cannot be copied: two copies would go on from the same noise"

    def __init__(
        self,
        sensitivity: float = 1.0,
        releases: int | None = None,
        shape: tuple[int, ...] = (),
        *,
        mu: float | None = None,
        epsilon: float | None = None,
        source: NoiseSource | None = None,
        whole: bool = False,
    ) -> None:
        self.sensitivity = positive("sensitivity", sensitivity)
        self.releases = self._check_releases(releases)
        if not isinstance(shape, (tuple, list)):
            raise InvalidArgument(f"shape must be a tuple of sizes, got {shape!r}")
        self.shape = tuple(whole_number("every entry of shape", n) for n in shape)
        self.size = math.prod(self.shape)
        self.distribution: Distribution = self._check_cost(mu, epsilon)
        self.mu = mu
        self.epsilon = epsilon
        self.budget: Budget | None = None
        self.relation = Relation.REPLACE_ONE
        self.source: NoiseSource = Noise() if source is None else source
        self.released = 0
        self.whole = flag("whole", whole)
        norm: Literal["l1", "l2"] = "l1" if self.distribution == "laplace" else "l2"
        self._grid = ItemGrid.of(self.sensitivity, self.size, norm, whole)
        self._sum: Ints = np.zeros(self.size, np.int64)
        self._reach = 0
        self._owner = Owner(self.source.simulation)
        self._interrupted = False
        self._start()
        cost = float(mu if mu is not None else epsilon or 0.0)
        self.scale = self._grid.step * safe_scale(self.column_norm * self._grid.apart, cost)
        check_scale(self.scale / self._grid.step, LARGEST_NOISE)
        check_scale(self._grid.units(self.scale, self._places()))

    # What a kind defines.

    @property
    @abstractmethod
    def column_norm(self) -> float:
        """The largest column norm of C, rounded up; 1-norm for Laplace noise, else the 2-norm."""

    @abstractmethod
    def row_norms(self, upto: int) -> Floats:
        """The 2-norms of the first ``upto`` rows of B."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """How many vectors of an item's size are held at most, the running sum included."""

    def _start(self) -> None:
        """Sets up the state before the first release."""

    def _places(self) -> int:
        """The binary places p of C's entries at the next release."""
        return 0

    def _advance(self, fresh: Ints) -> Ints:
        """The next row of B z, given the fresh vector z_t; called once per release."""
        return fresh

    def _released(self, steps: Ints, fresh: Ints) -> NDArray[Any]:
        """The published value in steps: a function of w. Here B is of whole numbers.

        Args:
            steps: the new item.
            fresh: the noise of (C x)_t, in units of 2^-p steps.
        """
        return self._sum + self._advance(fresh)

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State of the kind between releases: JSON values and arrays."""
        return {}, {name: getattr(self, f"_{name}") for name in self.kept}

    def _restore(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Takes back what :meth:`_state` gave."""
        for name in self.kept:
            setattr(self, f"_{name}", arrays[name])

    # What every counter offers.

    @property
    def std(self) -> Floats:
        """Noise standard deviation of the running sum at every declared release, per coordinate."""
        if self.releases is None:
            raise InvalidArgument(f"{self.kind} was declared without releases; use std_at(t)")
        return self._unit_std * self.row_norms(self.releases)

    def std_at(self, release: int) -> float:
        """Noise standard deviation at one release (the first is 1)."""
        if release < 1 or (self.releases is not None and release > self.releases):
            raise InvalidArgument(f"release must be in 1..{self.releases}, got {release!r}")
        return self._unit_std * self._row_norm(release)

    @property
    def largest_sum(self) -> float:
        """How many steps the sizes of all items may add up to, at the next release.

        The size of an item is that of its largest coordinate. It depends on no user's values, so
        that whoever knows how many users there are can refuse in time.
        """
        return LARGEST >> self._places()

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of everything this counter ever publishes."""
        if self.budget is None:
            raise InvalidArgument("no budget was declared; build the counter with tacit.counter")
        words = exact_words(self.distribution == "laplace")
        return Guarantee(
            model="joint",
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            mu=self.mu,
            relation=self.relation,
            unit="one user's contribution to one item",
            releases=self.releases,
            mechanism=f"{self.kind} counter, {words}",
            simulation_only=self.source.simulation,
        )

    def release(self, item: ArrayLike) -> Floats:
        """Adds one item (the sum of a block's users) and publishes the private running sum.

        A counter of whole items publishes whole steps, as floats.

        Raises:
            HorizonExceeded: all declared releases were made. Nothing changes.
            InvalidArgument: wrong shape, or not finite. Nothing changes.
        """
        vector = self._grid.steps(item, self.shape)
        self._owner.check("counter")
        if self.releases is not None and self.released >= self.releases:
            raise HorizonExceeded(
                f"this counter was declared for {self.releases} releases and has made them all"
            )
        if self._interrupted:
            raise HorizonExceeded(
                "an earlier release was interrupted half-way: a retry could count its item twice, "
                "so this counter has ended"
            )
        reach = self._reach + int(np.abs(vector).max())
        if reach > self.largest_sum:
            raise InvalidArgument(
                f"exact sums must stay below {self.largest_sum:.3g} steps, and this item might "
                f"lead beyond: it was refused, which is not private; use fewer users"
            )
        # Drawing may fail, and then nothing has changed. From there on there is no way back.
        fresh = self._draw()
        self._interrupted = True
        self._sum += vector
        self._reach = reach
        self.released += 1
        published = self._grid.step * self._released(vector, fresh)
        self._interrupted = False
        return published.reshape(self.shape)

    def rebuild(self, shape: tuple[int, ...], source: NoiseSource) -> Self:
        """A new counter of the same calibration for other items, with another noise source."""
        return type(self)(**self._arguments() | {"shape": shape}, **self._options(), source=source)

    def _arguments(self) -> dict[str, Any]:
        """Constructor arguments of every kind, but for the noise source."""
        return {name: getattr(self, name) for name in _ARGUMENTS}

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The secret state as JSON values and arrays, without the noise source."""
        if self._interrupted:
            raise HorizonExceeded("a release was interrupted half-way: there is nothing to save")
        values, arrays = self._state()
        meta = {
            "counter": self.kind,
            **self._arguments(),
            "calibration": [self._grid.step, self.scale],
            "options": self._options(),
            "released": self.released,
            "sizes": self._reach,
            "values": values,
        }
        return meta, {"sum": self._sum, **arrays}

    # Shared work.

    @property
    def _unit_std(self) -> float:
        """The standard deviation of one number of noise."""
        std = self.scale * (math.sqrt(2.0) if self.distribution == "laplace" else 1.0)
        # Rounding adds the variance of a uniform variable.
        unit = math.ldexp(self._grid.step, -self._places())
        return math.hypot(std, unit / math.sqrt(12.0))

    def _row_norm(self, release: int) -> float:
        return float(self.row_norms(release)[-1])

    def _options(self) -> dict[str, Any]:
        """Constructor arguments that only this kind has."""
        return {}

    def _draw(self) -> Ints:
        """The fresh vector z_t of a release."""
        scale = self._grid.units(self.scale, self._places())
        return self.source.steps(self.distribution == "laplace", scale, self.size)

    def _check_releases(self, releases: int | None) -> int | None:
        if releases is None:
            raise InvalidArgument(f"{self.kind} needs the number of releases in advance")
        return whole_number("releases", releases, most=MOST_USERS)

    def _check_cost(self, mu: float | None, epsilon: float | None) -> Distribution:
        """Which noise a cost is for; refuses costs that the kind does not have."""
        if (mu is None) == (epsilon is None):
            raise InvalidArgument("give exactly one of mu (Gaussian noise) and epsilon (Laplace)")
        if mu is not None:
            positive("mu", mu)
            return "gaussian"
        if "laplace" not in self.distributions:
            raise InvalidArgument(f"{self.kind} has Gaussian noise only; pure DP needs a tree")
        positive("epsilon", epsilon)
        return "laplace"


def revive_counter(
    meta: dict[str, Any], arrays: dict[str, NDArray[Any]], source: NoiseSource, kind: Any = None
) -> Counter:
    """The counter that :meth:`Counter.dump` described.

    Args:
        meta: Its description.
        arrays: Its state.
        source: Noise to go on with.
        kind: Class of a counter that is not among the built-in kinds.
    """
    from tacit.privacy.counters.choose import KINDS

    arguments = {name: meta[name] for name in _ARGUMENTS} | meta["options"]
    counter: Counter = (kind or KINDS[meta["counter"]])(**arguments, source=source)
    step, scale = meta["calibration"]
    if counter._grid.step != step or not math.isclose(counter.scale, scale, rel_tol=1e-9):
        raise CorruptFile("a saved counter goes on with the grid that it had")
    counter.scale = max(scale, counter.scale)
    counter.released = meta["released"]
    counter._reach = meta["sizes"]
    if arrays["sum"].shape != counter._sum.shape:
        raise ValueError("the sum does not have the shape of an item")
    counter._sum = arrays["sum"].astype(np.int64)
    counter._restore(meta["values"], {k: a.copy() for k, a in arrays.items() if k != "sum"})
    return counter
