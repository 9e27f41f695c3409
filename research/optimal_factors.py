"""Computes the shipped tables of factors anew: optimal ones for few releases, and an endless one.

**Optimal factors.** Let A be the matrix of n prefix sums. The smallest error of any factorisation
A = B C, the largest row norm of B times the largest column norm of C, is the gamma_2 norm of A. For
all weights p and q that add up to 1, M = diag(sqrt p) A diag(sqrt q) has a nuclear norm ||M||_* of
at most gamma_2(A): for the Frobenius norm, ||M||_* <= ||diag(sqrt p) B|| ||C diag(sqrt q)||, and
these are means of squared row and column norms. So every p and q give a **certificate**. If
M = U S V', then B = diag(p)^(-1/2) U S^(1/2) and C = S^(1/2) V' diag(q)^(-1/2) factorise A, and
their squared norms are diag(U S U') / p and diag(V S V') / q. Where these are constant both bounds
are equal, and the factors are optimal. The iteration sets p and q to diag(U S U') and diag(V S V'),
in parts of their sum, until the bounds are within one in a million. A rotation makes C triangular,
columns are scaled to length 1 and entries rounded to whole numbers over a power of two.

**The endless factor.** See :class:`tacit.privacy.counters.Endless`: a BLT whose columns have a
finite length for ever. Its parameters minimise the largest ratio, over 1, 2, 4, .., 2^24 releases,
of its error to that of a square root that knows when the stream ends.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import compress

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from tacit.privacy.counters import dense
from tacit.privacy.counters.blt import BLT, ENDLESS_NAME
from tacit.privacy.counters.dense import square_root_error

Floats = NDArray[np.float64]

ENDLESS_BUFFERS = 8
ENDLESS_LENGTHS = tuple(2**k for k in range(25))


class Optimum(NamedTuple):
    """A factor C of the prefix sums, its error, and a number that no error is below."""

    factor: Floats
    error: float
    bound: float


def optimum(releases: int, within: float = 1e-6, steps: int = 10_000) -> Optimum:
    """The optimal factor, with a certificate.

    >>> best = optimum(2)
    >>> round(best.bound, 5), round(best.error, 5)
    (1.1547, 1.1547)
    """
    prefix = np.tri(releases)
    p = q = np.full(releases, 1.0 / releases)
    for _ in range(steps):
        u, s, v = np.linalg.svd(np.sqrt(p)[:, np.newaxis] * prefix * np.sqrt(q))
        rows, columns, bound = (u * u) @ s, s @ (v * v), float(s.sum())
        error = math.sqrt((rows / p).max() * (columns / q).max())
        if error <= (1.0 + within) * bound:
            break
        p, q = rows / bound, columns / bound
    factor = _lower(np.sqrt(s)[:, np.newaxis] * v / np.sqrt(q))
    return Optimum(factor / np.linalg.norm(factor, axis=0), error, bound)


def _lower(factor: Floats) -> Floats:
    """A rotation of a square matrix that is lower triangular, with a positive diagonal."""
    turned = np.linalg.qr(factor[:, ::-1]).R[::-1, ::-1]
    return np.asarray(np.tril(turned * np.sign(np.diag(turned))[:, np.newaxis]))


def write_optimal(path: Path) -> None:
    """Writes all factors: column by column, each number less the one above it, compressed."""
    scale = 1 << dense.OPTIMAL_PLACES
    differences: list[int] = []
    for n in range(1, dense.MOST_OPTIMAL + 1):
        whole = np.rint(scale * optimum(n).factor).astype(int)
        for j in range(n):
            differences += np.diff(whole[j:, j], prepend=0).tolist()
    packed = compress(np.array(differences, dtype="<i2").tobytes(), 9)
    path.write_text(json.dumps({"factors": b64encode(packed).decode()}) + "\n", encoding="utf-8")


def fit_endless() -> BLT:
    """The endless BLT, by descent on ever sharper soft maxima."""
    lengths = np.array(ENDLESS_LENGTHS, dtype=float)
    roots = np.array([square_root_error(n) for n in ENDLESS_LENGTHS])

    def loss(p: Floats, sharpness: float) -> float:
        with np.errstate(all="ignore"):
            x = np.exp(-np.cumsum(np.exp(p)[::-1])[::-1])
            if x[0] < 1e-12 or not (np.diff(x) > 0.0).all():
                return 50.0
            logs = np.log(_errors(x, lengths) / roots)
            value = float(np.log(np.mean(np.exp(sharpness * logs))) / sharpness)
        return value if math.isfinite(value) else 50.0

    start = np.geomspace(0.5 / ENDLESS_LENGTHS[-1], 0.7, 2 * ENDLESS_BUFFERS)
    p = np.log(np.diff(np.log(start), append=0.0))
    for sharpness in (4.0, 16.0, 64.0, 200.0):
        p = minimize(loss, p, args=(sharpness,), method="L-BFGS-B", options={"maxiter": 400}).x
    x = np.exp(-np.cumsum(np.exp(p)[::-1])[::-1])
    return BLT(ENDLESS_LENGTHS[-1], tuple(x[::2]), tuple(x[1::2]))


def _errors(x: Floats, lengths: Floats) -> Floats:
    """The error at each length, if columns go on for ever."""
    u, v = x[::2], x[1::2]
    w, nodes = _residues(u, v), np.concatenate([[0.0], v])
    column = 1.0 + w @ (1.0 / (np.add.outer(u, u) - np.multiply.outer(u, u))) @ w
    g, rates = _residues(nodes, u), np.log1p(-nodes)
    gaps = np.add.outer(nodes, nodes) - np.multiply.outer(nodes, nodes)
    gaps[0, 0] = 1.0
    sums = -np.expm1(lengths[:, np.newaxis, np.newaxis] * np.add.outer(rates, rates)) / gaps
    sums[:, 0, 0] = lengths
    return np.asarray(np.sqrt(column * np.einsum("i,tij,j->t", g, sums, g)))


def _residues(nodes: Floats, zeros: Floats) -> Floats:
    between = np.abs(np.subtract.outer(nodes, nodes))
    np.fill_diagonal(between, 1.0)
    return np.asarray(np.abs(np.subtract.outer(nodes, zeros)).prod(1) / between.prod(1))


def write_endless(path: Path) -> None:
    """Writes the endless factor."""
    fit = fit_endless()
    path.write_text(json.dumps({"u": fit.u, "v": fit.v}) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes both tables into the package."""
    folder = Path(dense.__file__).parent
    write_optimal(folder / dense.OPTIMAL_NAME)
    write_endless(folder / ENDLESS_NAME)
    return 0


if __name__ == "__main__":
    main()
