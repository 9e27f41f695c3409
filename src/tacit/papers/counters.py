"""The binary tree of Chan, Shi and Song, which four papers count with; how far noise goes."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from tacit.numerics.compiled import Floats, compiled, inner
from tacit.privacy.noise import Noise


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
    """Unit noise in the sums of ``first`` users, ``first`` + 1, ...; there is none of no user."""
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


def noise_of_sums(noise: Noise, first: int, n: int, above: Floats, local: bool = False) -> Floats:
    """Unit normal noise in the sums of ``first`` users to ``first + n - 1``, (n, cells)."""
    total = np.zeros((n, above.shape[1]))
    prefixes(first, noise.normal((n - (first == 0), above.shape[1])), above, local, total)
    return total


class Level(NamedTuple):
    """What two of the papers assume of noise Z and z: lambda_min <= Z <= lambda_max, |z| <= nu.

    The norm of z is that in Z^-1.
    """

    lambda_min: float
    lambda_max: float
    nu: float


def level_of(gram: float, vector: float, terms: int, size: float, length: float) -> Level:
    """That of a sum of ``terms`` noises, shifted by twice its bound.

    Standard deviations are ``gram`` and ``vector``, bounds for unit noise ``size`` and ``length``.
    """
    root = math.sqrt(terms)
    shift = gram * root * size
    return Level(shift, 3.0 * shift, vector * root * length / math.sqrt(shift))


def symmetric_noise(upper: Floats, scale: float, off: float, shift: float) -> Floats:
    """Symmetric matrices (..., d, d) of noise, and ``shift`` times the identity.

    ``upper`` (..., d (d + 1) / 2) has unit noise of the upper triangle, row by row; off the
    diagonal it is multiplied by ``off``: 1 as the papers print it, sqrt(1/2) for noise that is
    isotropic in the Frobenius norm.
    """
    d = int(np.sqrt(2 * upper.shape[-1]))
    rows, columns = np.triu_indices(d)
    matrices = np.zeros((*upper.shape[:-1], d, d))
    matrices[..., rows, columns] = scale * upper * np.where(rows == columns, 1.0, off)
    matrices[..., columns, rows] = matrices[..., rows, columns]
    matrices[..., range(d), range(d)] += shift
    return matrices


# What noise exceeds with a small probability only.


def laplace_width(terms: Floats | float, p: float) -> Floats:
    """What a sum of m unit Laplace variables exceeds with probability p at most, either side.

    E exp(c X) = 1 / (1 - c^2), so P(|sum| > t) <= 2 exp(-c t) / (1 - c^2)^m for 0 < c < 1. With
    l = ln(2 / p) and c^2 = l / (l + m) this is p at t = (l + m ln(1 + l / m)) / c.

    >>> [round(float(laplace_width(m, 1e-7)), 1) for m in (1.0, 14.0)]
    [20.3, 37.7]
    """
    m, log_term = np.asarray(terms, dtype=np.float64), math.log(2.0 / p)
    total: Floats = (log_term + m * np.log1p(log_term / m)) * np.sqrt((log_term + m) / log_term)
    return total


def normal_width(p: float) -> float:
    """What a standard normal exceeds with probability p, either side.

    >>> round(normal_width(0.05), 3)
    1.96
    """
    return -float(ndtri(p / 2.0))


def vector_width(d: int, p: float) -> float:
    """What the norm of d standard normals exceeds with probability p at most.

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
