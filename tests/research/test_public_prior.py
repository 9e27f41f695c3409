"""A public model as a start: the page shows what is stored, and trust is learnt from releases."""

from __future__ import annotations

import numpy as np

import tacit
from research.public_prior import believed


def test_releases_confirm_a_model_or_disown_it() -> None:
    world = tacit.tabular.grid(side=3, horizon=6)
    shape, cells = (1, 9, 4), (1, 9, 4, 1)
    noise = {"transitions": np.ones(1), "first_paid": np.ones(1)}
    for wrong, least, most in ((0.0, 0.95, 1.0), (1.0, 0.0, 0.3)):
        evidence = believed(world, wrong, seed=0).empty(shape)
        assert np.allclose(evidence.trust, 0.9, atol=0.02)  # before anything was released
        seen = {"transitions": 20.0 * world.model.transitions}
        seen |= {name: np.zeros(shape) for name in ("rewards", "first_paid")}
        evidence = evidence.added(seen, noise, (np.ones(shape),) * 3)
        # Two actions of a corner do the same, so that some wrong rows are right.
        differ = (np.abs(evidence.rows - world.model.transitions).sum(axis=-1) > 0) | (wrong == 0.0)
        assert least <= evidence.trust[differ].mean() <= most
        assert evidence.entries.shape == (*cells[:3], 9)
