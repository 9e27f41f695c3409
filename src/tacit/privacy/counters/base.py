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
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import MOST_USERS, FilePath, positive, whole_number
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.counters.items import Items
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.noise import Noise, NoiseSource, safe_scale, saved_source
from tacit.privacy.owner import Owner, Uncopyable
from tacit.privacy.storage import read_state, write_state

Floats = NDArray[np.float64]
Distribution = Literal["gaussian", "laplace", "none"]

# What a file may choose from; filled by Counter.__init_subclass__.
_KINDS: dict[str, type[Counter]] = {}


class Counter(Uncopyable, ABC):
    """A private running sum of vectors or of symmetric matrices.

    Args:
        sensitivity: the most that one user can change the item she is in: 2-norm (Frobenius norm
            for symmetric matrices) for Gaussian noise, 1-norm for Laplace noise. The caller
            enforces it by clipping; the curator does.
        releases: how many releases are paid for; ``None`` where the kind is horizon-free.
        shape: the shape of one item; ``(..., d, d)`` when ``symmetric``.
        symmetric: items are (stacks of) symmetric matrices, with noise isotropic in the Frobenius
            norm.
        mu: calibrate Gaussian noise to mu-Gaussian-DP.
        epsilon: calibrate Laplace noise to pure epsilon-DP. Exactly one of ``mu`` and ``epsilon``.
        source: where the noise comes from; fresh entropy of the operating system by default.

    A non-finite item is a public mistake here (it was not clipped) and is refused. Whoever takes
    values from users passes them through a curator, which turns such values into zeros instead.
    """

    kind: ClassVar[str]
    distributions: ClassVar[tuple[Distribution, ...]] = ("gaussian",)
    horizon_free: ClassVar[bool] = False
    kept: ClassVar[tuple[str, ...]] = ()
    """The arrays of drawn noise that the kind keeps between releases."""

    why_single = "a counter cannot be copied: two copies would go on from the same noise"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A subclass that keeps its parent's kind (a variant under test) does not take its place.
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    def __init__(
        self,
        sensitivity: float = 1.0,
        releases: int | None = None,
        shape: tuple[int, ...] = (),
        *,
        symmetric: bool = False,
        mu: float | None = None,
        epsilon: float | None = None,
        source: NoiseSource | None = None,
    ) -> None:
        self.sensitivity = positive("sensitivity", sensitivity)
        self.releases = self._check_releases(releases)
        self._items = Items(shape, symmetric)
        self.shape, self.symmetric = self._items.shape, self._items.symmetric
        self.distribution: Distribution = self._check_cost(mu, epsilon)
        self.mu = mu
        self.epsilon = epsilon
        self.why = f"{self.kind}: asked for by name"
        self.budget: Budget | None = None
        self.relation = Relation.REPLACE_ONE
        self.source: NoiseSource = Noise() if source is None else source
        self.size = self._items.size
        self.released = 0
        self._sum = np.zeros(self.size)
        cost = mu if mu is not None else epsilon
        self.scale = 0.0 if cost is None else safe_scale(self.column_norm * self.sensitivity, cost)
        self._noise_unit: float | None = None
        self._owner = Owner(self.source.simulation)
        self._interrupted = False
        self._start()

    # What a kind defines.

    @property
    @abstractmethod
    def column_norm(self) -> float:
        """The largest column norm of C: 2-norm for Gaussian noise, 1-norm for Laplace noise."""

    @abstractmethod
    def row_norms(self, upto: int) -> Floats:
        """The 2-norms of the first ``upto`` rows of B."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """How many vectors of an item's size are held at most, the running sum included."""

    def _start(self) -> None:
        """Sets up the state before the first release."""

    def _advance(self, fresh: Floats) -> Floats:
        """The next row of B z, given the fresh vector z_t; called once per release."""
        return fresh

    def _state(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """What the kind keeps between releases: JSON values and arrays of drawn noise."""
        return {}, {name: getattr(self, f"_{name}") for name in self.kept}

    def _restore(self, values: dict[str, Any], arrays: dict[str, Floats]) -> None:
        """Takes back what :meth:`_state` gave."""
        for name in self.kept:
            setattr(self, f"_{name}", arrays[name])

    # What every counter offers.

    @property
    def std(self) -> Floats:
        """Noise standard deviation of the running sum at every declared release, per coordinate.

        For symmetric matrices this is the diagonal's; off the diagonal it is smaller by sqrt 2.
        """
        if self.releases is None:
            raise InvalidArgument(f"{self.kind} was declared without releases; use std_at(t)")
        return self._unit_std * self.row_norms(self.releases)

    def std_at(self, release: int) -> float:
        """Noise standard deviation at one release (the first is 1)."""
        if release < 1 or (self.releases is not None and release > self.releases):
            raise InvalidArgument(f"release must be in 1..{self.releases}, got {release!r}")
        return float(self._unit_std * self.row_norms(release)[-1])

    @property
    def noise_unit(self) -> float:
        """What drawn noise is multiplied by: the scale, or 1 if the source draws at its scale.

        It follows the scale until it is set, so that what is claimed and drawn cannot differ.
        """
        return self.scale if self._noise_unit is None else self._noise_unit

    @noise_unit.setter
    def noise_unit(self, unit: float) -> None:
        self._noise_unit = unit

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven of everything this counter ever publishes; ``None`` without noise."""
        if self.distribution == "none":
            return None
        if self.budget is None:
            raise InvalidArgument("no budget was declared; build the counter with tacit.counter")
        return Guarantee(
            model="joint",
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            mu=self.mu,
            relation=self.relation,
            unit="one user's contribution to one item",
            releases=self.releases,
            mechanism=f"{self.kind} counter, {self.distribution.capitalize()} noise",
            simulation_only=self.source.simulation,
        )

    def release(self, item: ArrayLike) -> Floats:
        """Adds one item (the sum of a block's users) and publishes the private running sum.

        Raises:
            HorizonExceeded: all declared releases were made. Nothing changes.
            InvalidArgument: wrong shape, or not finite. Nothing changes.
        """
        vector = self._items.packed(item)
        self._owner.check("counter")
        if self.releases is not None and self.released >= self.releases:
            raise HorizonExceeded(
                f"this counter was declared for {self.releases} releases and has made them all"
            )
        if self._interrupted:
            raise HorizonExceeded(
                "an earlier release was interrupted half-way: a retry could count its item twice, "
                "so this counter has ended; resume from a save"
            )
        # Drawing may fail, and then nothing has changed. From there on there is no way back.
        fresh = self._draw()
        self._interrupted = True
        self._sum += vector
        self.released += 1
        published: Floats = self._sum + self.noise_unit * self._advance(fresh)
        self._interrupted = False
        return self._items.shaped(published)

    def rebuild(self, shape: tuple[int, ...], source: NoiseSource) -> Self:
        """A new counter of the same calibration for plain vectors, with another noise source."""
        return type(self)(
            sensitivity=self.sensitivity,
            releases=self.releases,
            shape=shape,
            mu=self.mu,
            epsilon=self.epsilon,
            source=source,
            **self._options(),
        )

    def save(self, path: FilePath) -> None:
        """Writes the counter's secret state: the exact sum and the noise already drawn.

        Real noise is saved as values only; a resumed counter draws fresh noise from then on.
        Resume a file once: two runs resumed from one file share the noise drawn before.
        """
        meta, arrays = self.dump()
        write_state(path, "counter", meta | {"noise": saved_source(self.source)}, arrays)

    @staticmethod
    def load(path: FilePath) -> Counter:
        """Reads a saved counter of any kind. A simulation goes on bit for bit."""
        state = read_state(path, "counter")
        try:
            source = Noise.from_state(state.meta["noise"])
            return revive_counter(state.meta, state.arrays, source)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile(f"{os.fspath(path)!r}: not a saved counter ({error})") from None

    def dump(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        """The secret state as JSON values and arrays, without the noise source."""
        if self._interrupted:
            raise HorizonExceeded("a release was interrupted half-way: there is nothing to save")
        values, arrays = self._state()
        meta = {
            "counter": self.kind,
            "sensitivity": self.sensitivity,
            "releases": self.releases,
            "shape": list(self.shape),
            "symmetric": self.symmetric,
            "mu": self.mu,
            "epsilon": self.epsilon,
            "options": self._options(),
            "budget": None if self.budget is None else [self.budget.epsilon, self.budget.delta],
            "relation": self.relation.value,
            "why": self.why,
            "released": self.released,
            "values": values,
        }
        return meta, {"sum": self._sum, **arrays}

    def __repr__(self) -> str:
        cost = f"mu={self.mu:.4g}" if self.mu is not None else f"epsilon={self.epsilon}"
        return (
            f"<{self.kind} counter: {self.released} of {self.releases or 'any number of'} "
            f"releases, {cost}, sensitivity {self.sensitivity:g}, shape {self.shape}>"
        )

    # Shared work.

    def _options(self) -> dict[str, Any]:
        """Constructor arguments that only this kind has."""
        return {}

    @property
    def _unit_std(self) -> float:
        return self.scale * (math.sqrt(2.0) if self.distribution == "laplace" else 1.0)

    def _draw(self) -> Floats:
        """The fresh vector z_t of a release."""
        draw = self.source.laplace if self.distribution == "laplace" else self.source.normal
        return draw((self.size,))

    def _check_releases(self, releases: int | None) -> int | None:
        if releases is None:
            if self.horizon_free:
                return None
            raise InvalidArgument(f"{self.kind} needs the number of releases in advance")
        return whole_number("releases", releases, most=MOST_USERS)

    def _check_cost(self, mu: float | None, epsilon: float | None) -> Distribution:
        if self.distributions == ("none",):
            if mu is not None or epsilon is not None:
                raise InvalidArgument(f"{self.kind} adds no noise: give neither mu nor epsilon")
            return "none"
        if (mu is None) == (epsilon is None):
            raise InvalidArgument("give exactly one of mu (Gaussian noise) and epsilon (Laplace)")
        if mu is not None:
            positive("mu", mu)
            return "gaussian"
        if "laplace" not in self.distributions:
            raise InvalidArgument(f"{self.kind} has Gaussian noise only; pure DP needs a tree")
        if self.symmetric:
            raise InvalidArgument("Laplace noise is for vectors; symmetric matrices are Gaussian")
        positive("epsilon", epsilon)
        return "laplace"


def revive_counter(meta: dict[str, Any], arrays: dict[str, Floats], source: NoiseSource) -> Counter:
    """The counter that :meth:`Counter.dump` described."""
    counter = _KINDS[meta["counter"]](
        sensitivity=meta["sensitivity"],
        releases=meta["releases"],
        shape=tuple(meta["shape"]),
        symmetric=meta["symmetric"],
        mu=meta["mu"],
        epsilon=meta["epsilon"],
        source=source,
        **meta["options"],
    )
    counter.budget = None if meta["budget"] is None else Budget(*meta["budget"])
    counter.relation = Relation(meta["relation"])
    counter.why = meta["why"]
    counter.released = meta["released"]
    counter._sum = arrays["sum"].copy()
    counter._restore(meta["values"], {k: a.copy() for k, a in arrays.items() if k != "sum"})
    return counter
