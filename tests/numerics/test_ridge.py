"""Noisy Gram matrices: their inverse, their positive part, and how large their noise can be."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from tacit.numerics.regression import positive_part, ridge_inverse

Floats = NDArray[np.float64]


def symmetric(rng: np.random.Generator, *shape: int, std: float = 1.0) -> Floats:
    """Noise of equal size in all directions of the Frobenius norm."""
    entries = rng.normal(0.0, std, (*shape, shape[-1]))
    return (entries + np.swapaxes(entries, -1, -2)) / 2.0


def gram_of(rng: np.random.Generator, d: int, rows: int) -> Floats:
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
def test_negative_eigenvalues_are_cut_before_the_ridge(
    seed: int, d: int, rows: int, noise: float, ridge: float
) -> None:
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
def test_cutting_brings_no_gram_farther_from_the_truth(seed: int, d: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    truth, noise = gram_of(rng, d, rows), 2.0 * symmetric(rng, d)
    cut = positive_part(truth + noise)
    assert np.linalg.norm(cut - truth) <= np.linalg.norm(noise) * (1.0 + 1e-12)
    # In the operator norm it may, by twice at most: what the proof of the widths allows for.
    largest = np.linalg.norm(noise, 2)
    assert np.linalg.norm(cut - truth, 2) <= 2.0 * largest * (1.0 + 1e-12)
    assert np.linalg.eigvalsh(cut - truth).min() >= -largest * (1.0 + 1e-12)


def test_matrices_without_negative_eigenvalues_stay_as_they_are() -> None:
    matrix = gram_of(np.random.default_rng(0), 4, 9)[np.newaxis]
    assert positive_part(matrix) is matrix


def exceeded(norms: Floats, bound: float, failure: float) -> bool:
    """Whether so many exceed the bound that it cannot be chance (one in a million)."""
    return bool((norms > bound).sum() > binom.ppf(1.0 - 1e-6, len(norms), failure))
