"""Policies of trials: chances of actions by a posterior, and by each person's own history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .policies import draw

Floats = NDArray[np.float64]
_PRIOR = 5.0  # decisions that the guess of a reward counts for
_LEAST = 5  # decisions before a person's own history counts


class TrialHistory:
    """Evidence of people's own decisions, on their devices: no other person's data is in it.

    Of each person the score V = sum (1{a} - p) (r - b) f, its information, and rewards.
    """

    def __init__(self, people: int, size: int, usual: float) -> None:
        self.score = np.zeros((people, size))
        self.information = np.zeros((people, size, size))
        self.total, self.squares, self.count = np.zeros((3, people))
        self.usual = usual

    def add(
        self, features: ArrayLike, actions: ArrayLike, chances: ArrayLike, rewards: ArrayLike
    ) -> None:
        """Adds a decision of each person; one whose reward is NaN made none.

        Args:
            features: (n, d).
            actions: (n,).
            chances: as the policy gave them, (n,) of action 1, or (n, A).
            rewards: (n,).
        """
        f, taken = np.asarray(features, dtype=float), np.asarray(actions)
        p, r = np.asarray(chances, dtype=float), np.asarray(rewards, dtype=float)
        made = np.isfinite(r) & np.isfinite(f).all(axis=1)
        r, f = np.where(made, r, 0.0), np.where(made[:, None], f, 0.0)
        gain = r - (_PRIOR * self.usual + self.total) / (_PRIOR + self.count)
        if p.ndim == 1:
            moved, spread = (taken - p)[:, None], (p * (1.0 - p))[:, None, None]
        else:
            moved = (taken[:, None] == np.arange(p.shape[1])) - p
            spread = np.eye(p.shape[1]) * p[:, None] - p[:, :, None] * p[:, None, :]
        outer = f[:, :, None] * f[:, None, :]
        n, c = moved.shape
        self.score += np.einsum("nc,nd->ncd", moved * gain[:, None], f).reshape(n, -1)
        wide = np.einsum("nab,nij->naibj", spread, outer).reshape(n, c * f.shape[1], -1)
        self.information += wide
        self.total += r
        self.squares += np.where(made, gain, 0.0) ** 2
        self.count += made

    @property
    def spread(self) -> Floats:
        """Standard deviation of each person's rewards; infinite before she has made some."""
        known = (self.count >= _LEAST) & (self.squares > 0.0)
        found = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        return np.where(known, found, np.inf)


@dataclass(frozen=True, eq=False)
class PublishedTrial:
    """A published policy of a trial: the posterior of effects, in units of rewards' deviations.

    The chance of an action is that of its being the best, moved into the range that was declared.
    """

    mean: Floats  # of effects, (d,); of more than two actions, (A d,)
    covariance: Floats
    n_actions: int  # how many actions there are
    low: float  # least chance of an action
    own: float = 0.0  # deviation of people from each other; 0 where own histories are not used
    usual: float = 0.5  # guess of a reward
    greedy: bool = False  # whether the best action is certain
    version: int = 0  # which policy of its agent it is

    @property
    def dimension(self) -> int:
        """Numbers that describe a decision, d."""
        return len(self.mean) // (1 if self.n_actions == 2 else self.n_actions)

    def history(self, people: int = 1) -> TrialHistory:
        """Empty histories; they stay with their people whichever policy comes next."""
        return TrialHistory(people, len(self.mean), self.usual)

    def chances(self, features: ArrayLike, history: TrialHistory | None = None) -> Floats:
        """Chances of action 1, (n,), or of more than two actions of all, (n, A).

        Args:
            features: (n, d), of a decision of each person.
            history: of the same people, where their own decisions are to count.
        """
        f = np.asarray(features, dtype=float)
        if f.ndim != 2 or f.shape[1] != self.dimension:
            raise ValueError(f"features must have shape (n, {self.dimension}), got {f.shape}")
        f = np.where(np.isfinite(f), f, 0.0)
        columns = 1 if self.n_actions == 2 else self.n_actions
        # Effects of several actions are against their mean.
        against = np.eye(columns) - (0.0 if columns == 1 else 1.0 / columns)
        rows = (against[:, :, None] * f[:, None, None]).reshape(len(f), columns, -1)
        if history is None or not self.own:
            means = rows @ self.mean
            widths = np.einsum("nci,ij,ncj->nc", rows, self.covariance, rows)
        else:
            means, widths = self._with_own(rows, history)
        z = means / np.sqrt(np.maximum(widths, 1e-300))
        return self._moved(z[:, 0] if columns == 1 else z)

    def _with_own(self, rows: Floats, history: TrialHistory) -> tuple[Floats, Floats]:
        """Means and variances of effects by the release as a prior, and own scores as evidence."""
        prior = np.linalg.inv(self.covariance + self.own**2 * np.eye(len(self.mean)))
        spread = history.spread
        known = np.isfinite(spread)
        evidence = history.information * known[:, None, None]
        towards = np.where(known, 1.0 / spread, 0.0)[:, None] * history.score + prior @ self.mean
        inverse = np.linalg.inv(evidence + prior)
        means = np.einsum("nci,nij,nj->nc", rows, inverse, towards)
        return means, np.einsum("nci,nij,ncj->nc", rows, inverse, rows)

    def _moved(self, z: Floats) -> Floats:
        """Chances of being the best, in the range."""
        low, high = self.low, 1.0 - (self.n_actions - 1) * self.low
        if z.ndim == 1:
            if self.greedy:
                return np.where(z > 0.0, 1.0, 0.0)
            of_all = np.array([0.5 * math.erfc(-x / math.sqrt(2.0)) for x in z.tolist()])
            return np.asarray(np.clip(of_all, low, high))
        if self.greedy:
            return np.asarray(np.eye(self.n_actions)[z.argmax(axis=1)])
        shares = np.exp(1.7 * (z - z.max(axis=1, keepdims=True)))
        shares /= shares.sum(axis=1, keepdims=True)
        return np.asarray(low + (1.0 - self.n_actions * low) * shares)

    def act(
        self, features: ArrayLike, rng: Any, history: TrialHistory | None = None
    ) -> tuple[int, float]:
        """The action of one person's decision, and its chance, which her episode must say.

        Args:
            features: (d,).
            rng: a generator, ``numpy.random.default_rng()``.
            history: her own, of one person.
        """
        chances = self.chances(np.asarray(features, dtype=float)[None], history)[0]
        if self.n_actions == 2:
            chances = np.array([1.0 - chances, chances])
        action = draw(chances, rng)
        return action, float(chances[action])
