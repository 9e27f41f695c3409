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
    least: float = 0.03  # of what is at stake that exploring costs,
    late: float = 20.0  # up to so many times the users before greedy last changed; then less
    urgent: float = 0.2  # it may cost all where greedy is expected to lose so much,
    steepness: float = 3.0  # and little where much less
    patience: float = 2.0  # and so many times as much is urgent once greedy serves most users,
    certain: float = 0.7  # which only what is better in so many worlds may replace
    covering: float = 0.8  # of the explorers, at least, are for what is unknown
    cheapest: float = 0.2  # an explorer is taken to lose so much at least
    settled: float = 2.5  # few explore once so many times the users that taught it are served
    moved: float = 0.15  # by which the greedy value must change to count as learnt
    most: tuple[int, ...] = (2, 4, 8)  # how many cells may count of a user
    # Cells with more visits, in noise, are not asked.
    thresholds: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, np.inf)
    paths: int = 2000  # on which expectations are taken
    whole_worlds: int = 32  # drawn for what greedy may lose


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

    # Policies.

    def best(self, P: Floats, r: Floats) -> tuple[Ints, float]:
        """The best actions (H, S) in a world, and their value; ties are broken at random."""
        from tacit.tabular.first_visit_loops import best_actions

        _, S, A = r.shape
        actions = np.zeros((self.horizon, S), dtype=np.int64)
        values = best_actions(P, r, self.rng.random((S, A)), actions)
        return actions, float(self.start @ values)

    def value(self, P: Floats, r: Floats, actions: Ints) -> float:
        """What a policy earns in a world."""
        from tacit.tabular.first_visit_loops import value_of

        fixed = actions.view()
        fixed.flags.writeable = False  # the same kind always: loops are compiled for each
        return float(self.start @ value_of(P, r, fixed))

    def known_value(self, actions: Ints) -> float:
        """What a policy earns where what is unknown pays nothing."""
        return self.value(self.posterior.transitions, self.posterior.rewards, actions)

    def random_value(self) -> float:
        """What actions at random earn there."""
        P, r = (x.mean(axis=2, keepdims=True) for x in self._known)
        return self.value(P, r, np.zeros((self.horizon, P.shape[1]), dtype=np.int64))

    @property
    def _known(self) -> tuple[Floats, Floats]:
        return self.posterior.transitions, self.posterior.rewards

    def greedy(self, before: Ints | None) -> tuple[Ints, float, Floats]:
        """The greedy actions, what they earn, and what they lose in worlds that may be true.

        They are the best where what is unknown pays nothing, unless those ``before`` are better in
        too many of the worlds. What they lose is a part of what is at stake in each.
        """
        found = self.best(*self._known)[0]
        tried = [found] if before is None else [found, before]
        values = np.zeros((1 + len(tried), self.constants.whole_worlds))
        for column in values.T:
            P, r = self.posterior.sample_whole(self.rng)
            column[0] = self.best(P, r)[1]
            column[1:] = [self.value(P, r, actions) for actions in tried]
        chosen = 0
        if before is not None and self.known_value(before) > 1e-6:
            better = np.sign(np.round(values[1] - values[2], 9))
            chosen = int((1.0 + better.mean()) / 2.0 < self.constants.certain)
        return tried[chosen], self.known_value(tried[chosen]), values[[0, 1 + chosen]]

    def sampled(self, greedy: Ints, count: int) -> tuple[list[Ints], Floats]:
        """The best actions of worlds that may be true, and their values beside greedy's there."""
        found, values = [], np.zeros((2, count))
        for i in range(count):
            P, r, _ = self.posterior.sample(self.rng)
            actions, values[0, i] = self.best(P, r)
            values[1, i] = self.value(P, r, greedy)
            found.append(actions)
        return found, values

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
        from tacit.tabular.first_visit_loops import occupancy

        visits = np.zeros(P.shape[:3])
        occupancy(P, self.start, actions, visits)
        return visits

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
