"""Noisy Gram matrices: their inverse, their positive part, and how large their noise can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binom

from tacit.numerics.ridge import operator_bound, positive_part, ridge_inverse

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


DRAWS = 4000


@pytest.mark.parametrize("d", [1, 2, 5, 20])
@pytest.mark.parametrize("failure", [0.2, 0.1, 0.01])
def test_noise_stays_within_its_bounds(d: int, failure: float) -> None:
    rng = np.random.default_rng(d)
    norms = np.abs(np.linalg.eigvalsh(symmetric(rng, DRAWS, d, std=3.0))).max(axis=1)
    bound = operator_bound(3.0, d, failure)
    assert not exceeded(norms, bound, failure)
    # Not so large that it says nothing: a fifth of it would not do.
    assert bound < 5.0 * np.quantile(norms, 1.0 - failure)
    assert exceeded(norms, bound / 5.0, failure)


def test_the_bound_is_for_noise_that_is_the_same_in_all_directions() -> None:
    """Noise of one size on the whole triangle is larger, by sqrt(2) in high dimension."""
    rng, d = np.random.default_rng(0), 120
    upper = np.triu(rng.normal(size=(20, d, d)))
    triangle = upper + np.swapaxes(np.triu(upper, 1), -1, -2)
    norms = np.abs(np.linalg.eigvalsh(triangle)).max(axis=1)
    assert (norms > operator_bound(1.0, d, 0.1)).all()
    assert (norms < operator_bound(math.sqrt(2.0), d, 0.1)).all()


def test_bounds_grow_with_certainty_and_vanish_without_noise() -> None:
    sure, rather, hardly = (operator_bound(1.0, 4, p) for p in (1e-6, 1e-3, 0.1))
    assert sure > rather > hardly > 0.0
    assert operator_bound(2.0, 4, 0.1) == pytest.approx(2.0 * hardly)
    assert operator_bound(0.0, 4, 1e-9) == 0.0
