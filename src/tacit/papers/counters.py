"""The binary tree of Chan, Shi and Song, which four papers count with; quantiles of its noise."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from tacit.numerics.compiled import Floats, compiled, inner
from tacit.papers.result import NO_NOISE, Proof, Sizes


def tree_nodes(releases: int) -> int:
    """In how many nodes a user is at most: floor(log2 n) + 1 of n released prefixes.

    >>> [tree_nodes(n) for n in (1, 2, 3, 4, 127, 128)]
    [1, 2, 2, 3, 7, 8]
    """
    return releases.bit_length()


@inner
def grow_tree(t: int, fresh: Floats, above: Floats) -> int:
    """Draws the one new node of prefix t = 1, 2, ...; returns the level of its total noise.

    ``above`` (levels, cells) has, at the level of each bit of t that is set, the sum of the noise
    of the nodes at that level and higher. The new node of prefix t is at the level of its lowest
    bit: it takes the place of all nodes below, and the prefix's noise is its own plus what is at
    the next higher bit. Every node's noise is drawn once.
    """
    level = 0
    while (t >> level) & 1 == 0:
        level += 1
    higher = level + 1
    while higher < above.shape[0] and (t >> higher) & 1 == 0:
        higher += 1
    above[level] = fresh
    if higher < len(above):
        above[level] += above[higher]
    return level


@compiled
def prefixes(first: int, units: Floats, above: Floats, local: bool, out: Floats) -> None:
    """Writes the unit noise in the sums of ``first`` users, ``first`` + 1, ...; none of no user.

    Args:
        first: how many users are in the first sum.
        units: fresh noise, a row for each sum that has users.
        above: noise of the tree's nodes so far, or of all reports.
        local: whether sums have the noise of all reports, not that of a tree.
        out: a row for each sum.
    """
    row = 0
    for i in range(len(out)):
        if first + i == 0:
            continue
        level = 0
        if local:
            above[0] += units[row]
        else:
            level = grow_tree(first + i, units[row], above)
        row += 1
        out[i] = above[level]


class Level(NamedTuple):
    """Assumption 2 of two papers on noise Z and z: lambda_min <= Z <= lambda_max, |z| <= nu.

    The norm of z is that in Z^-1.
    """

    lambda_min: float
    lambda_max: float
    nu: float


class NoisySums(NamedTuple):
    """Noise of one regression's sums: a Gram matrix (rows, rows), cross terms (rows, columns)."""

    rows: int
    columns: int
    gram: float  # standard deviation of a node's noise, on the diagonal
    cross: float
    level: Level

    @staticmethod
    def shifted(shape: tuple[int, int], scales: tuple[float, float], *bounds: float) -> NoisySums:
        """The level of a sum of some noises, shifted by twice its bound.

        ``bounds`` are the number of noises, and bounds for unit noise of a Gram matrix and of
        cross terms.
        """
        (gram, cross), (terms, size, length) = scales, bounds
        root = math.sqrt(terms)
        shift = gram * root * size
        level = Level(shift, 3.0 * shift, cross * root * length / math.sqrt(shift))
        return NoisySums(*shape, gram, cross, level)

    @property
    def cells(self) -> int:
        """Entries of the upper triangle and of the cross terms."""
        return self.rows * (self.rows + 1) // 2 + self.rows * self.columns


class Regularizer(Protocol):
    """Regularizers Z and z of the sums of each episode: bring your own, made from :class:`Sizes`.

    Attributes:
        levels: constants of Assumption 2, of each regression.
        proof: what is proven about its privacy.
    """

    levels: tuple[Level, ...]
    proof: Proof

    def regularize(self, first: int, n: int) -> list[Floats]:
        """Z (n, steps, rows, rows) and z (n, steps, rows columns) of each regression.

        Of episodes first + 1 to first + n: the sums of ``first`` users and more.
        """


class Counters:
    """Noise of binary counters of every step's sums, or of all reports, and a shift.

    Off the diagonal of Gram matrices noise is as large as on it where ``printed``, else
    sqrt(1/2) of that: isotropic in the Frobenius norm.
    """

    def __init__(
        self, sizes: Sizes, of: list[NoisySums], proof: Proof, steps: int = 1, local: bool = False
    ) -> None:
        self.sizes, self.of, self.proof, self.local = sizes, of, proof, local
        self.levels, self.steps = tuple(one.level for one in of), steps
        self.off = 1.0 if sizes.printed else math.sqrt(0.5)
        levels = 1 if local else tree_nodes(sizes.episodes)
        self.above = np.zeros((levels, steps * sum(one.cells for one in of)))

    def regularize(self, first: int, n: int) -> list[Floats]:
        """Noise of the nodes that cover [1, k - 1], with the shift 2 lambda_min I."""
        units = self.sizes.noise.normal((n - (first == 0), self.above.shape[1]))
        total = np.zeros((n, self.above.shape[1]))
        prefixes(first, units, self.above, self.local, total)
        cells, given, at = total.reshape(n, self.steps, -1), [], 0
        for one in self.of:
            middle, end = at + one.cells - one.rows * one.columns, at + one.cells
            grams = one.gram * symmetric_noise(cells[..., at:middle], self.off)
            given += [grams + 2.0 * one.level.lambda_min * np.eye(one.rows)]
            given += [one.cross * cells[..., middle:end]]
            at = end
        return given


class Ridge:
    """Z = lambda I and z = 0: without privacy."""

    proof = NO_NOISE

    def __init__(self, shapes: list[tuple[int, int]], steps: int = 1, ridge: float = 1.0) -> None:
        self.shapes, self.steps, self.ridge = shapes, steps, ridge
        self.levels = (Level(ridge, ridge, 0.0),) * len(shapes)

    def regularize(self, first: int, n: int) -> list[Floats]:
        """The same for every episode."""
        given = []
        for d, m in self.shapes:
            given += [np.tile(self.ridge * np.eye(d), (n, self.steps, 1, 1))]
            given += [np.zeros((n, self.steps, d * m))]
        return given


def symmetric_noise(upper: Floats, off: float = math.sqrt(0.5)) -> Floats:
    """Symmetric matrices (..., d, d) of noise; ``off`` multiplies it off the diagonal.

    ``upper`` (..., d (d + 1) / 2) has unit noise of the upper triangle, row by row.
    """
    d = int(np.sqrt(2 * upper.shape[-1]))
    rows, columns = np.triu_indices(d)
    matrices = np.zeros((*upper.shape[:-1], d, d))
    matrices[..., rows, columns] = upper * np.where(rows == columns, 1.0, off)
    matrices[..., columns, rows] = matrices[..., rows, columns]
    return matrices


# Quantiles of noise.


def laplace_width(terms: Floats | float, p: float) -> Floats:
    """Bound that a sum of m unit Laplace variables exceeds with probability p, either side.

    E exp(c X) = 1 / (1 - c^2), so P(|sum| > t) <= 2 exp(-c t) / (1 - c^2)^m for 0 < c < 1. With
    l = ln(2 / p) and c^2 = l / (l + m) this is p at t = (l + m ln(1 + l / m)) / c.

    >>> [round(float(laplace_width(m, 1e-7)), 1) for m in (1.0, 14.0)]
    [20.3, 37.7]
    """
    m, log_term = np.asarray(terms, dtype=np.float64), math.log(2.0 / p)
    total: Floats = (log_term + m * np.log1p(log_term / m)) * np.sqrt((log_term + m) / log_term)
    return total


def normal_width(p: float) -> float:
    """Quantile that a standard normal exceeds with probability p, either side.

    >>> round(normal_width(0.05), 3)
    1.96
    """
    return -float(ndtri(p / 2.0))


def vector_width(d: int, p: float) -> float:
    """Bound that the norm of d standard normals exceeds with probability p at most.

    Its mean is at most sqrt(d), and it is 1-Lipschitz: sqrt(d) + sqrt(2 ln(1 / p)).

    >>> round(vector_width(4, math.exp(-2.0)), 6)
    4.0
    """
    return math.sqrt(d) + math.sqrt(2.0 * math.log(1.0 / p))


def operator_width(d: int, p: float) -> float:
    """The same for the operator norm of symmetric d x d noise, isotropic in Frobenius norm.

    Diagonal entries have variance 1, the others 1/2. The mean of the largest eigenvalue is at most
    sqrt(2 d) (Sudakov, Fernique), both ends are 1-Lipschitz: sqrt(2 d) + sqrt(2 ln(2 / p)).

    >>> round(operator_width(8, 2.0 * math.exp(-2.0)), 6)
    6.0
    """
    return math.sqrt(2.0 * d) + math.sqrt(2.0 * math.log(2.0 / p))
