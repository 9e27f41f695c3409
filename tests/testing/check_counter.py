"""Conformance of a counter: what it costs by its own code, its noise, and what it promises."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.privacy.counters import Counter
from tacit.privacy.counters.base import revive_counter
from tacit.privacy.errors import CheckFailed, HorizonExceeded, require
from tacit.privacy.noise import Noise
from tacit.store.values import dump, load
from tacit.testing.mechanisms import audit_counter, counter_matrices

SENSITIVITY = 2.0
LENGTHS = (1, 2, 3, 4, 7, 8, 9, 31, 64, 65, 130)


def check_counter(make, *, laplace=False, releases=33, lengths=LENGTHS):
    """Fails where a counter does not keep its promises; returns exact audits by length.

    The exact audit of the code does not exceed the claim, at several lengths, sensitivities and
    costs; for items of several shapes the noise of each number is linear in its own draws, and as
    large as is stated; it does not depend on the items; a simulation resumes identically and a
    real run with fresh noise; there are no more releases than declared.
    """
    build = Builder(make, "epsilon" if laplace else "mu", 0.9 if laplace else 0.7, releases)
    audits = {n: audited(build, n) for n in (*lengths, releases)}
    reference = audited(build, 3).tightness
    for sensitivity in (0.3, 2.0):
        for cost in (0.05, 0.7, 3.0):
            tightness = audited(build, 3, sensitivity, cost).tightness
            where = f"at sensitivity {sensitivity:g}, {build.unit} {cost:g}"
            require(tightness >= 0.5 * reference, f"{where}: {tightness:.3f} of the claim is spent")
    for shape in ((), (2, 2), (48,), (5000,)):
        check_noise(build, shape)
    check_horizon(build)
    for shape in ((4,), (), (2, 4)):
        for size in (1.0, -1.0, 1e-6, 1e6, -1e6):
            check_adaptive(build, shape, size)
    check_resume(build)
    return audits


@dataclass(frozen=True)
class Builder:
    make: Callable[..., Counter]
    unit: str
    cost: float
    releases: int

    def __call__(self, shape, source=None, **options):
        arguments = {"sensitivity": SENSITIVITY, "releases": self.releases}
        arguments |= {self.unit: self.cost} | options
        counter = self.make(shape=shape, source=Noise(7) if source is None else source, **arguments)
        for name, value in arguments.items():
            claim = getattr(counter, name)
            require(claim == value, f"built with {name}={value!r}, it claims {claim!r}")
        return counter


def audited(build, releases, sensitivity=SENSITIVITY, cost=None):
    """A whole stream of vectors, whose coordinates are taken to be alike."""
    claimed = build.cost if cost is None else cost

    def make(dimension, source):
        options = {"releases": releases, "sensitivity": sensitivity, build.unit: claimed}
        return build((dimension,), source, **options)

    audit = audit_counter(make, releases, sensitivity=sensitivity, claimed=claimed)
    where = f"at {releases} releases, sensitivity {sensitivity:g}, {build.unit} {claimed:g}"
    require(audit.unit == build.unit, f"{where}: the noise is of another law")
    require(audit.passed, f"{where}: {audit}")
    return audit


class Recorded(Noise):
    """A simulation that remembers what it drew, in units of what was asked for."""

    def __init__(self, seed):
        super().__init__(seed)
        self.drawn = []

    def steps(self, pure, scale, count):
        values = super().steps(pure, scale, count)
        self.drawn.append(values / scale)
        return values


def check_noise(build, shape):
    """In every coordinate it is the combination B z of its own draws z that was audited.

    No draw is cut off, rounded, folded or shared.
    """
    source, n = Recorded(11), build.releases
    counter = build(shape, source)
    stated, matrix = counter.std, counter_matrices(counter, n)[1]
    released = np.stack([np.ravel(counter.release(np.zeros(shape))) for _ in range(n)])
    drawn = np.concatenate(source.drawn).reshape(-1, counter.size)
    require(len(drawn) == matrix.shape[1], f"{len(drawn)} vectors of noise are drawn")
    stds = np.linalg.norm(matrix, axis=1) * (math.sqrt(2.0) if build.unit == "epsilon" else 1.0)
    # The grid, by which noise is a little larger, depends on how many numbers there are.
    expected = (stated / stds)[:, np.newaxis] * (matrix @ drawn)
    gaps = np.abs(released - expected).max(axis=1) / stated
    for t in range(n):
        near = math.isclose(stds[t], stated[t], rel_tol=1e-3)
        require(
            near, f"release {t + 1}: the standard deviation is {stds[t]:.6g}, not {stated[t]:g}"
        )
        words = f"release {t + 1}: the noise of shape {shape} is not linear in its own draws"
        require(float(gaps[t]) <= 1e-9, words)
        same = math.isclose(counter.std_at(t + 1), stated[t], rel_tol=1e-12)
        require(same, f"std_at({t + 1}) differs from std")


def check_horizon(build):
    """No more releases than the noise is for."""
    counter = build((2,))
    for _ in range(build.releases):
        counter.release(np.ones(2))
    try:
        counter.release(np.ones(2))
    except HorizonExceeded:
        return
    raise CheckFailed("a release beyond the horizon must raise HorizonExceeded")


def check_adaptive(build, shape, size):
    """A release is the sum of the items plus the noise that a stream of zeros has."""
    plain, adaptive = (build(shape, Noise(5)) for _ in range(2))
    zero, total = np.zeros(shape), np.zeros(shape)
    factors = size * np.arange(1.0, 1.0 + zero.size).reshape(shape)
    item = np.full(shape, size)
    for t in range(build.releases):
        noise, total = plain.release(zero), total + item
        published = adaptive.release(item)
        gap = float(np.abs(published - total - noise).max())
        # Items are rounded to a grid.
        allowed = 1e-4 * SENSITIVITY * (t + 1) + 1e-13 * float(np.abs(total).max())
        require(gap < allowed, f"release {t + 1}: the noise depends on the items ({gap:.3g})")
        item = np.sign(published) * factors


def check_resume(build):
    """Read again, a counter goes on where it was: with its noise, or with fresh real noise."""
    half, items = build.releases // 2, np.random.default_rng(3).normal(size=(build.releases, 3))
    source = Noise(9)
    simulated, real = build((3,), source), build((3,), Noise())
    for item in items[:half]:
        simulated.release(item)
        real.release(item)
    resumed = read_again(simulated, Noise.from_state(source.state()))
    for item in items[half:]:
        same = np.array_equal(simulated.release(item), resumed.release(item))
        require(same, "a resumed simulation must go on bit for bit")
    readers = [real, read_again(real, Noise()), read_again(real, Noise())]
    fresh = len({counter.release(items[half]).tobytes() for counter in readers}) == 3
    require(fresh, "a resumed real counter must draw fresh noise")


def read_again(counter, source):
    """The counter as a store gives it back: from its bytes."""
    meta, arrays = load(dump(counter.dump()))
    return revive_counter(meta, arrays, source, type(counter))
