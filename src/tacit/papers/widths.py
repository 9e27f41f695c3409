"""How far noise goes: what it exceeds with a small probability only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]


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
