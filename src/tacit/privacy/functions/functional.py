"""Functional noise: publishing a whole function of people's data, to be asked anywhere.

A user's function is h = sum_t e_t K(x_t, .), with a kernel K, points x_t and coefficients e_t. Its
norm in the kernel's space is sqrt(e' K_xx e). Each user's function is scaled back to norm c, the
functions are added up, and a path g of the Gaussian process with covariance sigma^2 K is added.

**Guarantee.** The published function is exactly (2 c / sigma)-Gaussian-DP when one user is
replaced, and c / sigma when one is zeroed out: as a function, at all points at once, for any
number of questions, each of which may depend on the answers before it.

*Finitely many points.* Let f be the difference of two neighbours' sums, |f| <= 2 c by the triangle
inequality. At points X the answers are Gaussian with covariance sigma^2 K_XX and means that differ
by f_X, so their log-likelihood ratio is N(+-mu^2 / 2, mu^2) with
mu^2 = f_X' K_XX^-1 f_X / sigma^2. Among all functions with the values f_X the shortest is
sum_i a_i K(X_i, .) with a = K_XX^-1 f_X, because its difference to any other vanishes on X and is
therefore orthogonal to every K(X_i, .). Its squared norm is f_X' K_XX^-1 f_X, so that is at most
|f|^2, and mu <= 2 c / sigma. (Where K_XX is singular, f_X lies in its range, and the
pseudo-inverse takes the inverse's place.) Equality holds for X = the points of f.

*All points.* The kernel's space is the Cameron-Martin space of the path: shifting it by f changes
its law to one with the density exp(<f, g> / sigma^2 - |f|^2 / (2 sigma^2)), whose logarithm is
Gaussian with variance |f|^2 / sigma^2. It is also the limit of the finite case over ever more
points.

*Adaptive questions.* A path whose values are drawn when somebody asks has the law of one that was
drawn beforehand (:mod:`tacit.privacy.functions.ou_path`). So a dialogue is post-processing of
the published function, whatever it asks.

**What fails.**

* One path for two releases: their difference is the difference of the sums, without any noise.
* One path for two users (or two functions) likewise: the difference shows them.
* Removing the clip: h has no largest norm.
* Publishing anything of the sum beside the published function.
* Floating-point low-order bits, as for all of Tacit's noise: see ``docs/sharp-edges.md``.

On a grid (:class:`GridFunctions`) the same mechanism is the ordinary Gaussian one in well-chosen
coordinates, so it goes through a curator like every other statistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation, ways
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.kernels import OU as OU
from tacit.privacy.functions.kernels import RBF as RBF
from tacit.privacy.functions.kernels import BandLimited as BandLimited
from tacit.privacy.functions.kernels import GridFunctions as GridFunctions
from tacit.privacy.functions.kernels import Kernel as Kernel
from tacit.privacy.functions.kernels import Matern32 as Matern32
from tacit.privacy.functions.kernels import Matern52 as Matern52
from tacit.privacy.functions.kernels import ProductOU as ProductOU
from tacit.privacy.functions.ou_path import GPPath as GPPath
from tacit.privacy.functions.ou_path import OUPath as OUPath
from tacit.privacy.functions.ou_path import bridge as bridge
from tacit.privacy.noise import NoiseSource
from tacit.privacy.statistic import Floats

# Entries of a kernel matrix in memory at a time.
_CHUNK = 1 << 22


def function_norm(kernel: Kernel, points: ArrayLike, coefficients: ArrayLike) -> float:
    """The norm of sum_t e_t K(x_t, .), from above: rounding never makes it shorter than it is.

    What e' K e loses to cancellation is at most (T + 16) 2^-50 (sum_t |e_t| sqrt(K(x_t, x_t)))^2,
    which is added. Points are (T, D), coefficients (T,); steps that are not finite count zero.

    >>> round(function_norm(OU(1.0), [0.0, 1.0], [1.0, -1.0]) ** 2, 6) == round(2 - 2 / math.e, 6)
    True
    """
    _, _, size, norm = _measured(kernel, points, coefficients)
    return size * norm


def clip_function(
    kernel: Kernel, points: ArrayLike, coefficients: ArrayLike, clip: float
) -> Floats:
    """The coefficients of a user's function, scaled back so that its norm is at most ``clip``.

    Steps with a point or a coefficient that is not finite get the coefficient zero, whatever the
    others are. Huge coefficients do not overflow.
    """
    e, unit, size, norm = _measured(kernel, points, coefficients)
    return e if size * norm <= clip else unit * (clip / norm)


def through(kernel: Kernel, points: ArrayLike, values: ArrayLike) -> Floats:
    """Coefficients at points (m, D) of the shortest function with values (m,) there.

    So any function, the output of a network for one, can be published: what is looked at are its
    values at public points, and :meth:`FunctionMechanism.release` takes the coefficients as those
    of one user. The shortest function is K_X a with a = K_XX^-1 f_X, and its squared norm
    f_X' K_XX^-1 f_X is at most that of every function with these values (see the module).

    >>> a = through(OU(2.0), [0.0, 0.5, 1.0], [1.0, -1.0, 0.5])
    >>> (a @ OU(2.0)([0.0, 0.5, 1.0], [0.0, 0.5, 1.0])).round(9).tolist()
    [1.0, -1.0, 0.5]
    """
    x = kernel.checked(points)
    y = np.asarray(values, dtype=np.float64)
    if y.shape != x.shape[:1]:
        raise InvalidArgument(f"values must have shape {x.shape[:1]}, got {y.shape}")
    known = np.where(np.isfinite(y), y, 0.0)
    return np.asarray(np.linalg.solve(kernel(x, x), known), dtype=np.float64)


def longest_function(kernel: OU, height: float, slope: float, width: float = 1.0) -> float:
    """The largest norm of functions within +-height, with slopes within +-slope, on an interval.

    By the norm of :class:`OU` it is sqrt(h^2 (1 + rate width / 2) + s^2 width / (2 rate)): the ends
    count h^2 at most, f^2 under the integral h^2, f'^2 s^2. In the limit it is attained, by a fine
    zigzag of slope s just below the height. A network of one input whose activations have slopes in
    [-1, 1] has a slope of at most the product of its matrices' norms.

    >>> round(longest_function(OU(2.0), height=1.0, slope=3.0), 6) == round(math.sqrt(4.25), 6)
    True
    """
    h, s, w = positive("height", height), float(slope), positive("width", width)
    if not (0.0 <= s < math.inf):
        raise InvalidArgument(f"slope must be >= 0 and finite, got {slope!r}")
    return math.sqrt(h * h * (1.0 + 0.5 * kernel.rate * w) + 0.5 * s * s * w / kernel.rate)


def _measured(
    kernel: Kernel, points: ArrayLike, coefficients: ArrayLike
) -> tuple[Floats, Floats, float, float]:
    """Valid coefficients, the same in units of the longest step, that unit, the norm in units.

    Units are lengths |e_t| sqrt(K(x_t, x_t)), not coefficients: a huge coefficient of a short
    section must not drown the others. Sections shorter than 1e-60 of the kernel's bound count zero.
    """
    x, e = kernel.checked(points), np.asarray(coefficients, dtype=np.float64)
    if e.shape != x.shape[:1]:
        raise InvalidArgument(f"coefficients must have shape {x.shape[:1]}, got {e.shape}")
    lengths = np.sqrt(kernel.diagonal(x))
    e = np.where(np.isfinite(e) & (lengths > 1e-60 * kernel.bound), e, 0.0)
    if not e.any():
        return e, e, 0.0, 0.0
    with np.errstate(divide="ignore"):
        longest = int((np.log(np.abs(e)) + np.log(lengths)).argmax())
    largest, length = abs(float(e[longest])), float(lengths[longest])
    unit = e / largest / length
    margin = (len(e) + 16) * 2.0**-50 * float(np.abs(unit) @ lengths) ** 2
    square = float(unit @ kernel(x, x) @ unit)
    return e, unit, largest * length, math.sqrt(max(square, 0.0) + margin)


@dataclass(frozen=True)
class FunctionMechanism:
    """Users' functions, clipped and added up, under a path of the kernel's Gaussian process.

    The module says what it guarantees and why. This is the form without a grid, for few users and
    few questions, and for audits; agents publish coordinates on a grid through a curator, which
    keeps the accounts. No user's function is longer than ``clip``; the path has scale ``sigma``.
    """

    kernel: Kernel
    clip: float
    sigma: float

    def __post_init__(self) -> None:
        positive("clip", self.clip), positive("sigma", self.sigma)

    @classmethod
    def for_mu(
        cls, kernel: Kernel, clip: float, mu: float, relation: Relation | str
    ) -> FunctionMechanism:
        """The mechanism whose release costs mu.

        >>> FunctionMechanism.for_mu(OU(5.0), clip=1.0, mu=0.5, relation="replace-one").sigma
        4.0
        """
        return cls(kernel, clip, clip * ways(relation) / positive("mu", mu))

    def mu(self, relation: Relation | str) -> float:
        """What one release costs: 2 clip / sigma, or clip / sigma."""
        return self.clip * ways(relation) / self.sigma

    def release(
        self, points: ArrayLike, coefficients: ArrayLike, source: NoiseSource
    ) -> ReleasedFunction:
        """Publishes the sum of the users' functions, under a path of its own.

        Points are (users, T, D), or (users, T) on a line; coefficients (users, T).
        """
        e = np.asarray(coefficients, dtype=np.float64)
        x = np.asarray(points, dtype=np.float64)
        if x.ndim == 2 and self.kernel.dimension == 1:
            x = x[:, :, np.newaxis]
        if e.ndim != 2 or x.shape != (*e.shape, self.kernel.dimension):
            raise InvalidArgument(
                f"points must have shape (users, T, {self.kernel.dimension}) and coefficients "
                f"(users, T), got {x.shape} and {e.shape}"
            )
        clipped = np.zeros(e.shape)
        with np.errstate(all="ignore"):
            for user in range(len(e)):
                clipped[user] = clip_function(self.kernel, x[user], e[user], self.clip)
        flat = x.reshape(-1, self.kernel.dimension)
        return ReleasedFunction(self.kernel, flat, clipped.ravel(), self._path(source))

    def _path(self, source: NoiseSource) -> OUPath | GPPath:
        """A new path."""
        if isinstance(self.kernel, OU):
            return OUPath(self.kernel.rate, self.sigma, source)
        return GPPath(self.kernel, self.sigma, source)


class ReleasedFunction:
    """A published function: answers are public, the object is not.

    It holds the users' raw sum, so it stays with the curator like the raw data itself; what may
    leave are its answers, any number of them.
    """

    def __init__(
        self, kernel: Kernel, points: Floats, coefficients: Floats, path: OUPath | GPPath
    ) -> None:
        used = coefficients != 0.0
        self._kernel, self._path = kernel, path
        self._points, self._coefficients = points[used], coefficients[used]

    def __call__(self, x: ArrayLike) -> Floats:
        """The published function at points (n, D), as (n,); NaN where a point is not finite."""
        asked = self._kernel.checked(x)
        total = np.zeros(len(asked))
        step = max(1, _CHUNK // max(1, len(asked)))
        for start in range(0, len(self._points), step):
            part = slice(start, start + step)
            total += self._coefficients[part] @ self._kernel(self._points[part], asked)
        line = isinstance(self._path, OUPath)
        return total + self._path.values(asked[:, 0] if line else asked)

    def __repr__(self) -> str:
        return f"<ReleasedFunction of {self._kernel!r}>"
