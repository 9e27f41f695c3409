"""Exact noise: against OpenDP's sampler, NumPy's floats, and the sum that it goes on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.row import Row, at_least, at_most, noted
from benchmarks.timing import ratio, seconds
from tacit.privacy.deviates import Deviates
from tacit.privacy.models import JointDP
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block

COUNT = 100_000
SCALE = 2.0**20
# OpenDP draws so slowly that fewer numbers have to do.
FEW = 2_000


def rows() -> Iterator[Row]:
    """Every row of this benchmark."""
    draws = Deviates()
    floats = np.random.Generator(np.random.PCG64DXSM(0))
    pairs = (
        ("normal", draws.normal, lambda n: floats.standard_normal(n)),
        ("laplace", draws.laplace, lambda n: floats.laplace(0.0, 1.0, n)),
    )
    for name, exact, peer in pairs:
        per_second = COUNT / seconds(lambda draw=exact: draw(SCALE, COUNT), repetitions=10)
        yield noted("noise", f"exact {name} numbers per second", per_second)
        slower = ratio(
            lambda draw=exact: draw(SCALE, COUNT),
            lambda draw=peer: draw(COUNT),
            calls=1,
            repetitions=20,
        )
        yield at_most("noise", f"exact {name}, times NumPy's in floats", slower, 10.0)
        other = _opendp(name)
        if other is not None:
            theirs = FEW / seconds(other, repetitions=5)
            yield at_least(
                "noise", f"exact {name}, times OpenDP's speed", per_second / theirs, 100.0
            )
    for users in (1, 1000):
        what = f"release of 100,000 sums, {users} users, times the sum and NumPy's noise"
        yield at_most("noise", what, _release(users), 10.0)


def _opendp(name: str):
    """A call that draws ``FEW`` discrete variables at the same scale, where OpenDP is installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if name == "laplace":
        drawn = dp.m.make_laplace(domain, dp.l1_distance(T="f64"), SCALE)
    else:
        drawn = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), SCALE)
    zeros = [0] * FEW
    return lambda: drawn(zeros)


def _release(users: int) -> float:
    """A real release of many numbers, against the clipped sum with noise from NumPy."""
    statistic = ClippedSum(COUNT)
    block = Block(users, {"values": np.ones((users, COUNT), dtype=np.float32)})
    rng = np.random.default_rng()

    def release() -> None:
        curator = JointDP(1.0, 1e-6).curator()
        curator.add(block)
        curator.release(statistic)

    def floats() -> None:
        _ = statistic.total(block) + rng.standard_normal(COUNT)

    return ratio(release, floats, calls=1, repetitions=3)
