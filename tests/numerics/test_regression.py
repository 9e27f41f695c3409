"""Regression on noisy sums: Gram matrices without negative eigenvalues, and sums over blocks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.numerics.regression import BlockSums, positive_part, ridge_inverse


def symmetric(rng, *shape, std=1.0):
    """Noise of equal size in all directions of the Frobenius norm."""
    entries = rng.normal(0.0, std, (*shape, shape[-1]))
    return (entries + np.swapaxes(entries, -1, -2)) / 2.0


def gram_of(rng, d, rows):
    table = rng.normal(size=(rows, d))
    return table.T @ table


@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 6),
    rows=st.integers(0, 8),
    noise=st.sampled_from([0.0, 0.1, 3.0, 100.0]),
    ridge=st.floats(1e-3, 1e3),
)
@settings(max_examples=60, deadline=None)
def test_negative_eigenvalues_are_cut_before_the_ridge(seed, d, rows, noise, ridge):
    rng = np.random.default_rng(seed)
    matrices = np.stack([gram_of(rng, d, rows) + noise * symmetric(rng, d) for _ in range(3)])
    inverses, parts = ridge_inverse(matrices, ridge), positive_part(matrices)
    for matrix, inverse, part in zip(matrices, inverses, parts, strict=True):
        # One eigenvector after the other, the slow way.
        values, vectors = np.linalg.eigh(matrix)
        kept = np.zeros((d, d))
        for value, vector in zip(values, vectors.T, strict=True):
            kept += max(value, 0.0) * np.outer(vector, vector)
        size = 1.0 + np.abs(matrix).max()
        np.testing.assert_allclose(part, kept, atol=1e-12 * size)
        np.testing.assert_allclose(
            inverse @ (kept + ridge * np.eye(d)), np.eye(d), atol=1e-10 * size / ridge
        )
        assert np.linalg.eigvalsh(inverse).max() <= (1.0 + 1e-9) / ridge


@given(seed=st.integers(0, 10**6), d=st.integers(1, 6), rows=st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_cutting_brings_no_gram_farther_from_the_truth(seed, d, rows):
    rng = np.random.default_rng(seed)
    truth, noise = gram_of(rng, d, rows), 2.0 * symmetric(rng, d)
    cut = positive_part(truth + noise)
    assert np.linalg.norm(cut - truth) <= np.linalg.norm(noise) * (1.0 + 1e-12)
    # In the operator norm it may, by twice at most: what the proof of the widths allows for.
    largest = np.linalg.norm(noise, 2)
    assert np.linalg.norm(cut - truth, 2) <= 2.0 * largest * (1.0 + 1e-12)
    assert np.linalg.eigvalsh(cut - truth).min() >= -largest * (1.0 + 1e-12)


def test_matrices_without_negative_eigenvalues_stay_as_they_are():
    matrix = gram_of(np.random.default_rng(0), 4, 9)[np.newaxis]
    assert positive_part(matrix) is matrix


Blocks = list[tuple[int, float]]
BLOCKS = st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.1, 1e3)), min_size=1, max_size=6)


def added(blocks, signal=2.0):
    """Blocks of so many users with such noise, which all say ``signal`` per user."""
    sums = BlockSums()
    for users, std in blocks:
        parts = {"one": signal * users * np.ones(3), "two": users * np.ones((2, 3))}
        sums = sums.added(parts, {"one": std, "two": np.array([std, 3.0 * std])}, std, users)
    return sums


@given(BLOCKS)
@settings(max_examples=60, deadline=None)
def test_blocks_weigh_what_they_know(blocks):
    """By hand: n / s^2, in units of the largest."""
    sums = added(blocks)
    weights = [users / std**2 for users, std in blocks]
    top = max(weights)
    total = sum(w / top * users for w, (users, _) in zip(weights, blocks, strict=True))
    spread = sum((w / top * std) ** 2 for w, (_, std) in zip(weights, blocks, strict=True)) ** 0.5
    np.testing.assert_allclose(sums.scaled("one"), 2.0 * total * np.ones(3))
    np.testing.assert_allclose(sums.scaled("two"), total * np.ones((2, 3)))
    np.testing.assert_allclose(sums.noise("one"), spread)
    np.testing.assert_allclose(sums.noise("two"), [spread, 3.0 * spread])
    # The block that weighs most counts in full: never more than all users, nor less than its own.
    largest = blocks[int(np.argmax(weights))][0]
    assert largest * (1 - 1e-9) <= total <= sum(users for users, _ in blocks) * (1 + 1e-9)


@given(BLOCKS, st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_no_other_weights_tell_more(blocks, seed):
    sums = added(blocks, signal=1.0)
    best = float(sums.noise("one") / sums.scaled("one")[0])
    users, noise = np.array(blocks, dtype=float).T
    rng = np.random.default_rng(seed)
    for weights in (np.ones(len(blocks)), users, *rng.random((5, len(blocks)))):
        other = np.sqrt(((weights * noise) ** 2).sum()) / (weights @ users)
        assert best <= other * (1.0 + 1e-9)


def test_exact_sums_add_up():
    sums = added([(10, 0.0), (100, 0.0), (7, 0.0)])
    np.testing.assert_allclose(sums.scaled("one"), 2.0 * 117.0)
    assert (sums.noise("one"), sums.top) == (0.0, 1.0)


def test_noise_is_as_stated():
    rng, blocks = np.random.default_rng(0), [(10, 4.0), (30, 2.0), (200, 50.0)]
    found = []
    for _ in range(4000):
        sums = BlockSums()
        for users, std in blocks:
            sums = sums.added({"part": rng.normal(0.0, std, 2)}, {"part": std}, std, users)
        found.append(sums.scaled("part") / sums.noise("part"))
    assert np.std(found) == pytest.approx(1.0, abs=6.0 / np.sqrt(2.0 * np.size(found)))


def test_what_is_given_stays_as_it_is():
    sums, part = BlockSums(), np.ones(2)
    for _ in range(3):
        sums = sums.added({"part": part}, {"part": 1.0}, 1.0, 5)
    assert (part == 1.0).all()
    np.testing.assert_allclose(sums.scaled("part"), 3.0)
