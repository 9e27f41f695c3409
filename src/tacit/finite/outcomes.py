"""Probabilities in the form that samplers need."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tacit.core.sizes import Floats, check_bytes


class Outcomes:
    """Sparse rows of probabilities in the form that samplers need.

    ``successors`` (..., K) are the K most probable outcomes of every row, all that are possible
    among them, in falling order: a draw then seldom looks at more than a few. No sampler ever
    returns an outcome of probability zero, whatever the rounding: it would be an impossible
    transition, and a billion users find every gap.
    """

    def __init__(self, probabilities: Floats, name: str) -> None:
        self._probabilities = probabilities
        K = int(np.count_nonzero(probabilities, axis=-1).max())
        self._shape = (*probabilities.shape[:-1], K)
        check_bytes(name, self._shape, 20)
        self.successors = np.empty(self._shape, dtype=np.int32)
        self._sorted = np.empty(self._shape)
        # Row by row of the first axes: the sort's temporary arrays are as large as their input.
        for index in np.ndindex(probabilities.shape[:-2]):
            rows = probabilities[index]
            order = np.argsort(-rows, axis=-1, kind="stable")[..., :K]
            self.successors[index] = order
            self._sorted[index] = np.take_along_axis(rows, order, axis=-1)

    @cached_property
    def cumulative(self) -> Floats:
        """P(this or an earlier outcome)."""
        return cumulative_chances(self._sorted)

    @cached_property
    def conditional(self) -> Floats:
        """P(this outcome | none of the earlier ones)."""
        return conditional_chances(self._sorted)


def conditional_chances(probabilities: Floats) -> Floats:
    """P(this outcome | none of the earlier ones), along the last axis."""
    # Tails are summed from the end, so that the last possible outcome has exactly 1.
    tails = np.cumsum(probabilities[..., ::-1], axis=-1)[..., ::-1]
    conditional: Floats = np.divide(
        probabilities, tails, out=np.zeros(probabilities.shape), where=tails > 0
    )
    return conditional


def cumulative_chances(probabilities: Floats) -> Floats:
    """P(this or an earlier outcome), along the last axis; 1 from the last possible one on."""
    cumulative = np.minimum(np.cumsum(probabilities, axis=-1), 1.0)
    possible = probabilities > 0
    last = probabilities.shape[-1] - 1 - np.argmax(possible[..., ::-1], axis=-1)
    cumulative[np.arange(probabilities.shape[-1]) >= last[..., np.newaxis]] = 1.0
    return cumulative
