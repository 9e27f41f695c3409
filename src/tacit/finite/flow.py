"""Flow conservation: who arrives in a state at one step leaves it at the next.

Per-step counts of episodes of fixed length obey linear equations that noise breaks: the users in
a state at step h + 1 are those who went there at step h, and all of them start somewhere. The
nearest counts that obey them are better counts, at no cost in privacy. Nearest is in the Euclidean
norm, since every entry has the same noise. Users with dropped steps break the equations a little,
and the result is no longer unbiased noise, so this is for practical use, not for proven bounds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.data.sizes import Floats

if TYPE_CHECKING:
    from tacit.privacy.curator import Release


# Above this many (step, state) pairs the equations are too many to solve.
_LARGEST_FLOW = 1500


def conserved(release: Release, spec: Any) -> Release:
    """A release of counts (H S, S) with flow conserved, where they are noisy and not too many."""
    H, S = spec.horizon, spec.states
    if H * S > _LARGEST_FLOW or float(np.max(release.std["transitions"])) == 0.0:
        return release
    start = None if spec.start is None else np.array(spec.start)
    counts = release["transitions"].reshape(H, S, S)
    better = conserve(counts, float(release.users), start).reshape(H * S, S)
    return replace(release, parts={**release.parts, "transitions": better})


def conserve(counts: Floats, users: float, start: Floats | None) -> Floats:
    """The nearest counts (H, S, S) with conserved flow and the known number of users.

    The equations are, for h >= 1 and every s, sum_t N_{h-1}(t, s) = sum_t N_h(s, t), and at h = 0
    either sum_t N_0(s, t) = users start(s) or, when ``start`` is unknown or random, only the total.
    With A the matrix of the equations and b their right side the answer is
    N - A' (A A')^-1 (A N - b). Equations of one step share no entries; those of steps h and h + 1
    share the entry N_h(s, t) with opposite signs. So A A' is block tridiagonal with 2 S I on the
    diagonal and -1 everywhere beside it, and its inverse acts on the sums over states only.

    >>> noisy = np.array([[[8.0, 3.0], [0.0, 0.0]], [[5.0, 4.0], [1.0, 2.0]]])
    >>> flat = conserve(noisy, 10.0, np.array([1.0, 0.0]))
    >>> bool(np.allclose(flat[0].sum(axis=0), flat[1].sum(axis=1)))
    True
    """
    H, S, _ = counts.shape
    gram = np.zeros((H, S, H, S))
    everywhere = np.arange(S)
    for h in range(H):
        gram[h, everywhere, h, everywhere] = S if h == 0 else 2.0 * S
        if h > 0:
            gram[h, :, h - 1, :] = gram[h - 1, :, h, :] = -1.0
    equations = gram.reshape(H * S, H * S)
    missing = counts[1:].sum(axis=2) - counts[:-1].sum(axis=1)
    if start is not None and (start == 1.0).any():
        residual = np.append(counts[0].sum(axis=1) - users * start, missing)
        multipliers = np.linalg.solve(equations, residual)
    else:
        # One equation for the total in place of S: the multipliers of step 0 are all the same.
        keep = np.eye(H * S)[S - 1 :]
        keep[0, :S] = 1.0
        residual = np.append(counts[0].sum() - users, missing)
        multipliers = keep.T @ np.linalg.solve(keep @ equations @ keep.T, residual)
    multipliers = multipliers.reshape(H, S)
    corrected = counts - multipliers[:, :, np.newaxis]
    corrected[:-1] += multipliers[1:, np.newaxis, :]
    return corrected
