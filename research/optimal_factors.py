"""Computes the shipped table of optimal factors anew.

Let A be the matrix of n prefix sums. The smallest error of any factorisation
A = B C, the largest row norm of B times the largest column norm of C, is the gamma_2 norm of A. For
all weights p and q that add up to 1, M = diag(sqrt p) A diag(sqrt q) has a nuclear norm ||M||_* of
at most gamma_2(A): for the Frobenius norm, ||M||_* <= ||diag(sqrt p) B|| ||C diag(sqrt q)||, and
these are means of squared row and column norms. So every p and q give a **certificate**. If
M = U S V', then B = diag(p)^(-1/2) U S^(1/2) and C = S^(1/2) V' diag(q)^(-1/2) factorise A, and
their squared norms are diag(U S U') / p and diag(V S V') / q. Where these are constant both bounds
are equal, and the factors are optimal. The iteration sets p and q to diag(U S U') and diag(V S V'),
in parts of their sum, until the bounds are within one in a million. A rotation makes C triangular,
columns are scaled to length 1 and entries rounded to whole numbers over a power of two.
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

from tacit.privacy.counters import dense

Floats = NDArray[np.float64]


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the table into the package."""
    write_optimal(Path(dense.__file__).parent / dense.OPTIMAL_NAME)
    return 0


if __name__ == "__main__":
    main()
