"""What low-order bits of published numbers show: nothing.

Noise in floats shows whose count it is: with a true 1 no result in (-1/2, 1/2) has a digit beyond
2^-53, with a true 0 some have. Here such events are searched for on what is published.
Tests of frequencies have an error probability below 1e-9.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tacit import JointDP, LocalDP
from tacit.privacy.local import noise_scale, report
from tacit.privacy.noise import Noise, grid_step
from tacit.privacy.standard import OneHotCounts
from tacit.privacy.statistic import Block

Floats = NDArray[np.float64]

COUNTS = OneHotCounts(steps=1, cells=2)
ONE, ZERO = (Block(1, {"cells": np.array([[cell]])}) for cell in (0, 1))
MODELS = [LocalDP(4.0, 1e-6), LocalDP(4.0, 0.0), LocalDP(0.5, 1e-6), LocalDP(12.0, 0.0)]


def whole_multiples(values: Floats, unit: float) -> NDArray[np.bool_]:
    return np.asarray(values / unit == np.rint(values / unit))


def events(values: Floats) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Multiples of powers of two, exponents, last bits, and the region that shows floats."""
    inside = np.abs(values) < 0.5
    yield "inside and finer than 2^-53", inside & ~whole_multiples(values, 2.0**-53)
    for power in range(0, 60, 3):
        yield f"multiple of 2^-{power}", whole_multiples(values, 2.0**-power)
        yield f"inside and multiple of 2^-{power}", inside & whole_multiples(values, 2.0**-power)
    mantissas, exponents = np.frexp(values)
    for exponent in range(-24, 8, 2):
        yield f"exponent {exponent}", exponents == exponent
    digits = (np.abs(mantissas) * 2.0**53).astype(np.int64)
    for bit in range(0, 53, 4):
        yield f"bit {bit} of the mantissa", (digits >> bit) & 1 == 1
    yield "zero", values == 0.0
    yield "negative zero", (values == 0.0) & np.signbit(values)


def shifted(zero: Floats, one: Floats, epsilon: float, delta: float) -> list[str]:
    """Events that (epsilon, delta) does not allow, with room for chance."""
    found = []
    for (name, at_zero), (_, at_one) in zip(events(zero), events(one), strict=True):
        for left, right in ((at_zero, at_one), (at_one, at_zero)):
            a, b = int(left.sum()), int(right.sum())
            # Clopper and Pearson, one side each, at 1e-12.
            least = stats.beta.ppf(1e-12, a, len(left) - a + 1) if a else 0.0
            most = stats.beta.ppf(1 - 1e-12, b + 1, len(right) - b) if b < len(right) else 1.0
            if least > math.exp(epsilon) * most + delta:
                found.append(f"{name}: {a} against {b}")
    return found


def drawn_reports(privacy: LocalDP, true: float, seed: int, draws: int) -> Floats:
    """A coordinate of many reports, as :func:`report` makes it, from seeded bits."""
    step = grid_step(COUNTS, privacy.norm)
    scale = noise_scale(COUNTS, privacy) / step
    noise = Noise(seed).steps(privacy.needs_l1, scale, draws)
    return step * (round(true / step) + noise).astype(np.float64)


@pytest.mark.parametrize("privacy", MODELS, ids=str)
@pytest.mark.parametrize("draws", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_reports_show_nothing_in_their_low_order_bits(privacy: LocalDP, draws: int) -> None:
    zero, one = drawn_reports(privacy, 0.0, 1, draws), drawn_reports(privacy, 1.0, 2, draws)
    delta = privacy.delta if privacy.mechanism == "gaussian" else 0.0
    assert shifted(zero, one, privacy.epsilon, delta) == []


def test_the_search_finds_noise_in_floats() -> None:
    """The event has probability 0 and .04, or .15 for Laplace noise."""
    for privacy, share in ((LocalDP(4.0, 1e-6), 0.03), (LocalDP(4.0, 0.0), 0.1)):
        scale = noise_scale(COUNTS, privacy)
        rng = np.random.default_rng(1)
        draw = rng.laplace if privacy.needs_l1 else rng.normal
        zero = 0.0 + draw(0.0, scale, 100_000)
        one = 1.0 + draw(0.0, scale, 100_000)
        found = shifted(zero, one, privacy.epsilon, privacy.delta)
        assert any(name.startswith("inside and finer") for name in found)
        (_, seen), *_ = events(zero)
        assert seen.mean() > share
        assert not next(events(one))[1].any()


CELLS = 500
RUNS = [40, pytest.param(2_000, marks=pytest.mark.slow, id="a million")]
"""How many releases of so many cells are made; a million draws in the slow suite."""


def counted(true: int) -> Block:
    """A user in every cell, or nobody but one user in the first."""
    found = np.arange(CELLS) if true else np.zeros(1, dtype=np.int64)
    return Block(len(found), {"cells": found[:, np.newaxis]})


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_joint_release_shows_nothing_of_a_count(delta: float, runs: int) -> None:
    """Counts of one user or none, in one release of many cells each, under real noise."""
    statistic, privacy = OneHotCounts(steps=1, cells=CELLS), JointDP(4.0, delta)

    def released(true: int) -> Floats:
        curator = privacy.curator()
        curator.add(counted(true))
        return curator.release(statistic)["counts"].ravel()[1:]

    zeros, ones = (np.concatenate([released(true) for _ in range(runs)]) for true in (0, 1))
    assert shifted(zeros, ones, privacy.epsilon, privacy.delta) == []


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(
    ("kind", "delta"),
    [
        ("blocks", 1e-6),
        ("blocks", 0.0),
        ("smooth tree", 1e-6),
        ("smooth tree", 0.0),
        ("normalised square root", 1e-6),
        ("optimal", 1e-6),
    ],
)
def test_a_running_sum_shows_nothing_of_a_count(kind: str, delta: float, runs: int) -> None:
    """A user who came in the first block, the second, or never, in the running sums after her."""
    statistic, privacy = OneHotCounts(steps=1, cells=CELLS), JointDP(4.0, delta)

    def streamed(enters: int | None) -> Floats:
        curator = privacy.curator()
        stream = curator.stream(statistic, releases=3, kind=kind)
        blocks = (curator.add(counted(int(number == enters))) for number in range(3))
        return np.stack([stream.release(block)["counts"].ravel()[1:] for block in blocks])

    nobody, first, second = (
        np.concatenate([streamed(enters) for _ in range(runs)], axis=1) for enters in (None, 0, 1)
    )
    for time in range(3):
        for came in (first, second)[: time + 1]:
            found = shifted(nobody[time], came[time], privacy.epsilon, privacy.delta)
            assert found == [], (time, found)


# Bits.


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 20.0, 100.0])
def test_randomised_response_keeps_its_factor_in_whole_numbers(
    epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two thresholds of 64-bit words, found by asking with words on both sides."""
    privacy = LocalDP(epsilon, 0.0, mechanism="randomised response")

    def sends(word: int, data: Block) -> bool:
        words = iter([0, word])

        def given(self: Noise, count: int) -> NDArray[np.uint64]:
            return np.full(count, next(words), dtype=np.uint64)

        monkeypatch.setattr(Noise, "words", given)
        return bool(report(COUNTS, data, privacy)[0])

    def threshold(send: Callable[[int], bool]) -> int:
        """How many words make a 1."""
        low, high = 0, 2**64
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if send(middle) else (low, middle)
        return low

    of_one, of_zero = (threshold(lambda word, d=data: sends(word, d)) for data in (ONE, ZERO))
    share = math.exp(min(epsilon, 700.0)) if COUNTS.one_hots == 1 else None
    assert share is not None
    assert of_one == 2**63
    assert of_one <= share * of_zero
    assert 2**64 - of_zero <= share * (2**64 - of_one)
    if epsilon < 40:
        assert of_zero == pytest.approx(2**64 / (1 + share), rel=1e-9)
