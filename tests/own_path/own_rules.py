"""What a release must be, by code that shares nothing with the curators': grid, sum, scale, cost.

``docs/noise.md`` has the rules. A statistic's declared sensitivity is believed here (the attack on
it is elsewhere), and so is the vector that it makes of one user.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Relation
from tacit.privacy.statistic import Block, Bools, Statistic

Ints: TypeAlias = NDArray[np.int64]
Norm: TypeAlias = Literal["l1", "l2"]

_CHUNK, _ADDITIONS = 512, 2**17
# Adding up a chunk in floats, in parts of a user's length.
_SUMMING = 2.0**-18


def declared(statistic: Statistic, relation: Relation, norm: Norm) -> float:
    """A declared sensitivity."""
    bound = statistic.l2(relation) if norm == "l2" else statistic.l1(relation)
    return math.nan if bound is None else float(bound)


def spread(size: int, norm: Norm) -> float:
    """How far rounding moves a vector, in steps."""
    return math.sqrt(size) if norm == "l2" else float(size)


def step_of(statistic: Statistic, norm: Norm) -> float:
    """The largest power of two g with g sqrt(n) <= 0.0001 D."""
    most = 1e-4 * declared(statistic, Relation.ZERO_OUT, norm)
    most /= spread(statistic.layout.size, norm)
    return math.ldexp(1.0, math.frexp(most)[1] - 1)


def apart(statistic: Statistic, relation: Relation, norm: Norm, step: float) -> float:
    """How far two neighbours' sums are apart at most, in steps."""
    zero, moved = declared(statistic, Relation.ZERO_OUT, norm), declared(statistic, relation, norm)
    return (moved + _SUMMING * zero) / step + spread(statistic.layout.size, norm)


def total_of(statistic: Statistic, raw: Block, step: float) -> tuple[Ints, Bools]:
    """The sum in whole steps, and where floats leave its rounding open."""
    size, vectors = statistic.layout.size, statistic.contributions(raw)
    total, is_open = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
    numbers = sum(array[0].size for array in raw.arrays.values()) if raw.users else 1
    chunk = min(_CHUNK, _ADDITIONS // numbers)
    for at in range(0, raw.users, chunk):
        steps = vectors[at : at + chunk].sum(axis=0) / step
        whole = np.rint(steps)
        total += whole.astype(np.int64)
        is_open |= np.abs(steps - whole) > 0.5 - 1e-6
    return total, is_open


def counted(
    ids: Sequence[Sequence[Hashable]], most: int, once_per_block: bool
) -> list[NDArray[np.bool_]]:
    """Which rows of which block count: the first ``most`` episodes of everybody."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for block in ids:
        here: set[Hashable] = set()
        rows = []
        for who in block:
            # 7 and "7" are one person.
            name = str(who)
            rows.append(seen[name] < most and not (once_per_block and name in here))
            seen[name] += rows[-1]
            here.add(name)
        kept.append(np.array(rows, dtype=bool))
    return kept


# An accountant of our own: the Gaussian hockey-stick in sixty digits.


def _upper(t: Decimal) -> Decimal:
    """P(Z > t), by the series of the error function or, far out, a continued fraction."""
    if t < 0:
        return 1 - _upper(-t)
    with localcontext() as context:
        context.prec = 90
        density = (-t * t / 2).exp() / (2 * _PI).sqrt()
        if t < 7:
            term = total = t
            n = 1
            while term > total * Decimal(10) ** -85:
                term = term * t * t / (2 * n + 1)
                total += term
                n += 1
            return Decimal(1) / 2 - density * total
        fraction = Decimal(0)
        for n in range(400, 0, -1):
            fraction = n / (t + fraction)
        return density / (t + fraction)


_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def hockey_stick(mu: float, epsilon: float) -> Decimal:
    """The smallest delta of a mu-Gaussian-DP mechanism at an epsilon, to about forty digits."""
    with localcontext() as context:
        context.prec = 70
        m, e = Decimal(mu), Decimal(epsilon)
        return _upper(e / m - m / 2) - e.exp() * _upper(e / m + m / 2)


@functools.lru_cache(maxsize=64)
def largest_mu(epsilon: float, delta: float) -> float:
    """The largest mu whose delta is not above this one, to twelve digits."""
    low, high, wanted = 0.0, 20.0 + 2.0 * math.sqrt(epsilon), Decimal(delta)
    while high - low > 1e-13 * high:
        middle = (low + high) / 2.0
        if hockey_stick(middle, epsilon) <= wanted:
            low = middle
        else:
            high = middle
    return low


def episode_limit(privacy: Any) -> float:
    """What the releases about one episode may cost together: mu^2, or epsilon if pure.

    A user has g episodes. If they may meet in one release, their moves add up there, which is g^2
    in mu^2 (Cauchy and Schwarz); in different releases squares add up, which is g. Epsilons add.
    """
    g = int(privacy.episodes_per_user)
    if privacy.needs_l1:
        return float(privacy.epsilon) / g
    alone = privacy.local or privacy.disjoint
    return largest_mu(privacy.epsilon, privacy.delta) ** 2 / (g if alone else g * g)


def exact_sum(costs: Iterable[float], power: int) -> Fraction:
    """Sum of costs to a power, without rounding."""
    return sum((Fraction(cost) ** power for cost in costs), Fraction(0))
