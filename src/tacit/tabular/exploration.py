"""Who tries what in the next block, and what is asked of it: decided from what is public.

Most users follow the greedy policy, the best one for what is known. The others explore in parallel,
each by one of many policies: half of them cover what is unknown, one after the other planned for
what those before leave uncovered; half are the best of worlds that may be true. How many explore
depends on what the greedy policy may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Floats
from tacit.tabular.sparse_posterior import SparsePosterior

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ExplorationConstants:
    """Chosen as those of :class:`~tacit.tabular.sparse_posterior.SparseConstants`."""

    explorers: int = 32  # policies that explore in parallel
    detect: float = 6.0  # visits, in noise, that a cell needs to become known
    least: float = 0.03  # of what is earned that exploring costs, for ever
    urgent: float = 0.7  # it may cost all where so much of what is earned may be gained,
    steepness: float = 3.0  # and little where much less may be
    most_unknown: float = 10.0  # times what is earned that the unknown may promise at most,
    most_known: float = 2.0  # and a world by what is known of it
    cheapest: float = 0.2  # an explorer is taken to lose so much at least
    settled: float = (
        2.5  # explorers become few once so many times the users that taught it are served
    )
    doubt: float = 0.1  # rows that are less unknown than this hide nothing
    moved: float = 0.15  # by which the greedy value must change to count as learnt
    most: tuple[int, ...] = (2, 4, 8)  # how many cells may count of a user
    thresholds: tuple[float, ...] = (
        4.0,
        8.0,
        16.0,
        32.0,
        np.inf,
    )  # cells that are known are not asked
    paths: int = 2000  # on which expectations are taken
    running: int = 40  # cells above which sums run over all users instead of block by block
    unknown_worlds: int = 16  # drawn for what the unknown may be worth


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a block: up to ``most`` first visits of a user to ``wanted`` cells."""

    most: int
    wanted: Bools  # (L, S, A)
    expected: Floats  # (L, S, A), how many of them a user is expected to have


class Explorer:
    """Plans for one world's sizes; keeps nothing."""

    def __init__(
        self,
        posterior: SparsePosterior,
        start: Floats,
        horizon: int,
        constants: ExplorationConstants,
        rng: np.random.Generator,
    ) -> None:
        self.posterior, self.start, self.horizon = posterior, start, horizon
        self.constants, self.rng = constants, rng
        self._nothing = np.zeros(posterior.visits.shape)

    # Policies.

    def best(self, P: Floats, r: Floats, left: Floats | None = None) -> tuple[Ints, float]:
        """The best actions (H, S) in a world, and their value; ties are broken at random."""
        from tacit.tabular.first_visit_loops import best_actions

        _, S, A = r.shape
        actions = np.zeros((self.horizon, S), dtype=np.int64)
        extra = self._nothing if left is None else left
        values = best_actions(P, r, extra, self.rng.random((S, A)), actions)
        return actions, float(self.start @ values)

    def value(self, world: tuple[Floats, Floats, Floats], actions: Ints) -> float:
        """What a policy earns in a world."""
        from tacit.tabular.first_visit_loops import value_of

        return float(self.start @ value_of(*world, actions))

    def greedy(self) -> tuple[Ints, float]:
        """The best actions where what is unknown pays nothing, and what they earn there."""
        return self.best(self.posterior.transitions, self.posterior.rewards)

    def sampled(self, greedy: Ints, count: int) -> tuple[list[Ints], Floats]:
        """The best actions of worlds that may be true, and how much better than greedy they are."""
        found, gains = [], np.zeros(count)
        for i in range(count):
            P, r, _ = self.posterior.sample(self.rng)
            actions, value = self.best(P, r)
            found.append(actions)
            gains[i] = max(0.0, value - self.value((P, r, self._nothing), greedy))
        return found, gains

    def unknown_gains(self, greedy: Ints) -> Floats:
        """What the unknown may add to the greedy policy, in worlds that may be true.

        A row of which nothing is known may lead anywhere; it pays for ever what a cell pays.
        """
        gains = []
        for _ in range(self.constants.unknown_worlds):
            P, r, unknown = self.posterior.sample(self.rng)
            paying = self.rng.random(unknown.shape) < self.posterior.paying_rate
            left = np.where(unknown > self.constants.doubt, unknown, 0.0) * paying
            _, value = self.best(P, r, left)
            gains.append(max(0.0, value - self.value((P, r, left), greedy)))
        return np.array(gains)

    def covering(self, count: int, users: float, noise: float) -> list[Ints]:
        """Policies for what is unknown, each for what those before it leave uncovered.

        ``users`` is how many follow each of them, and ``noise`` that of a count.
        """
        P, unknown = self.posterior.transitions, 1.0 - self.posterior.known
        covered, found = np.zeros(unknown.shape), []
        for _ in range(count):
            missing = unknown / (1.0 + (covered / (noise * self.constants.detect)) ** 2)
            actions, _ = self.best(P, missing)
            found.append(actions)
            covered += users * np.minimum(self._occupancy(P, actions), 1.0)
        return found

    def _occupancy(self, P: Floats, actions: Ints) -> Floats:
        """Expected visits (L, S, A) as far as rows are known."""
        found, here, everywhere = np.zeros(P.shape[:3]), self.start, np.arange(P.shape[1])
        for step, taken in enumerate(actions):
            at = min(step, len(P) - 1)
            found[at, everywhere, taken] += here
            here = here @ P[at, everywhere, taken]
        return found

    # Questions.

    def paths(self, policies: Ints, weights: Floats) -> Ints:
        """Cells (paths, H) on the way of users of a mixed policy, as far as is known."""
        from tacit.tabular.first_visit_loops import walk

        count = self.constants.paths
        drawn = self.rng.choice(len(weights), size=count, p=weights)
        path = np.zeros((count, self.horizon), dtype=np.int64)
        moves = np.cumsum(self.posterior.whole_rows(), axis=-1)
        walk(self.rng, np.cumsum(self.start), moves, policies, drawn, path)
        return path

    def question(self, path: Ints, users: int, noise_of: Callable[[int], float]) -> Question:
        """The cells, and how many of a user, that make most known: the sum of log (1 + gain)."""
        visits, c = self.posterior.visits, self.constants
        best, best_score = None, -1.0
        for most in sorted({min(most, self.horizon) for most in c.most}):
            for threshold in c.thresholds:
                wanted = visits <= threshold
                if not wanted.any():
                    continue
                expected = self.expected(path, wanted, most)
                signal = users * expected / noise_of(most)
                score = float(np.log1p(signal**2 / (c.detect**2 + visits**2)).sum())
                if best is None or score > 1.02 * best_score:
                    best, best_score = Question(most, wanted, expected), score
        assert best is not None  # noqa: S101  (the last threshold is infinite)
        return best

    def expected(self, path: Ints, wanted: Bools, most: int) -> Floats:
        """How many first visits to wanted cells count of a user, (L, S, A), on average."""
        from tacit.tabular.first_visit_loops import count_paths

        visits = np.zeros(wanted.size)
        count_paths(path, np.ascontiguousarray(wanted).reshape(-1), most, visits)
        return visits.reshape(wanted.shape) / len(path)

    def all_visits(self, path: Ints) -> Floats:
        """How often a user comes to each cell, in the mean of paths."""
        shape = self.posterior.visits.shape
        counts = np.bincount(path.reshape(-1), minlength=self.posterior.visits.size)
        return counts.reshape(shape) / len(path)
