"""Weighted sums of released counts, each block weighed by how much it can know of a cell.

If m visits of a cell are expected of a block with noise of standard deviation s, by what was public
before it, the best linear combination of blocks weights each by w = m / s^2. A model can be wrong,
so every block counts as if it had a few visits more: five standard deviations of a cell's noise.
Under local DP, and without privacy, all weights are the same, and the sums are plain.

Per-step counts obey linear equations that noise breaks: the users in a state at step h + 1 are
those who went there at step h. The nearest counts that obey them are better, at no cost in privacy,
but no longer unbiased: this is for practical use, not for proven bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.validation import Floats

if TYPE_CHECKING:
    from tacit.privacy.curator import Release
    from tacit.tabular.visits import VisitCounts

# Standard deviations of a cell's noise that every block is taken to have as visits.
_FLOOR = 5.0


@dataclass(frozen=True)
class Counts:
    """Noisy counts and the standard deviations of their noise, with L = 1 or H."""

    transitions: Floats  # (L, S, A, S)
    rewards: Floats  # (L, S, A)
    reached: NDArray[np.bool_]  # (L, S, A), whether any policy so far could reach the cell
    noise: Floats  # (L, S, A), standard deviation of the noise in each entry of ``transitions``
    reward_noise: Floats  # the same for ``rewards``


@dataclass(frozen=True, eq=False)
class CountEstimate:
    """Weighted sums of all counts released so far; see the module."""

    plain: bool  # whether all blocks weigh the same
    transitions: Floats  # weighted sums, (L, S, A, S)
    rewards: Floats  # weighted sums, (L, S, A)
    variance: Floats  # (L, S, A), of the noise in each entry of a cell
    reached: NDArray[np.bool_]  # (L, S, A), whether any policy so far could reach the cell
    noise: float = 0.0  # standard deviation of the last release's
    reward_noise: float = 0.0  # the same of rewards

    @classmethod
    def empty(cls, shape: tuple[int, ...], plain: bool) -> CountEstimate:
        """Before any release, for ``shape`` = (L, S, A)."""
        sums = np.zeros((*shape, shape[1])), np.zeros(shape), np.zeros(shape)
        return cls(plain, *sums, np.zeros(shape, dtype=bool))

    def added(
        self, release: Release, statistic: VisitCounts, users: int, expected: Floats | None = None
    ) -> CountEstimate:
        """The estimate with one more block.

        Args:
            release: its noisy counts.
            statistic: what was counted.
            users: of the block.
            expected: visits of one user to each cell, (L, S, A); all the same if ``None``.
        """
        at = statistic.where
        noise = float(np.max(release.std["transitions"]))
        weight = np.ones(statistic.size)
        if not self.plain:
            visits = users * (weight if expected is None else expected[at])
            # Visits that every block is taken to have in a cell.
            few = float(_FLOOR * noise * np.sqrt(self.transitions.shape[-1]))
            weight = (visits + few) / noise**2
        transitions, rewards = self.transitions.copy(), self.rewards.copy()
        variance, reached = self.variance.copy(), self.reached.copy()
        transitions[at] += weight[:, np.newaxis] * release.parts["transitions"]
        rewards[at] += weight * release.parts["rewards"]
        variance[at] += (weight * noise) ** 2
        reached[at] = True
        reward_noise = float(np.max(release.std["rewards"]))
        sums = transitions, rewards, variance, reached
        return CountEstimate(self.plain, *sums, noise, reward_noise)

    def counts(self) -> Counts:
        """Plain sums, or sums on the scale on which each entry has the last block's noise."""
        std = np.sqrt(self.variance)
        if self.plain:
            factor = np.ones(std.shape)
        else:
            factor = self.noise / np.where(self.reached, std, np.inf)
        noise = std * factor
        ratio = self.reward_noise / self.noise if self.noise > 0.0 else 0.0
        transitions = self.transitions * factor[..., np.newaxis]
        return Counts(transitions, self.rewards * factor, self.reached, noise, noise * ratio)


# Above this many (step, state) pairs the equations are too many to solve.
_LARGEST_FLOW = 1500


def conserved(release: Release, spec: Any) -> Release:
    """A release of counts (H S, S) with flow conserved, where they are noisy and not too many."""
    H, S = spec.horizon, spec.states
    if H * S > _LARGEST_FLOW or float(np.max(release.std["transitions"])) == 0.0:
        return release
    start = None if spec.start is None else np.array(spec.start)
    counts = release.parts["transitions"].reshape(H, S, S)
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
