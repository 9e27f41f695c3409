"""Exploration planner: which policies explore in the next block, and which visits it is asked for.

Most users follow the greedy policy, the best one for what is known. The others explore in parallel,
each by one of many policies: half of them cover what is unknown, each planned for what those before
it leave uncovered; half are optimal in worlds drawn from the posterior. All of it is decided from
releases alone. Constants were chosen as those of the posterior were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.tabular.policy import occupancy

if TYPE_CHECKING:
    from tacit.tabular.posterior import SpikeSlabPosterior

WORLDS = 32  # sampled ones, in which the greedy policy is compared
CERTAIN = 0.7  # the serving policy is replaced by one better in this fraction of sampled worlds
PATHS = 2000  # rollouts in the known model, for expected visits
LEAST_COST = 0.2  # fraction of the value range that an explorer loses, at least
VISITS_PER_USER = (2, 4, 8)  # how many cells may count of a user
THRESHOLDS = (4.0, 8.0, 16.0, 32.0, np.inf)  # cells with more visits, in noise, are not asked for
_DETECT = 6.0  # visits, in noise, that a cell needs to become known


@dataclass(frozen=True, eq=False)
class VisitQuery:
    """First visits that a block is asked for: up to ``most`` of a user, to ``wanted`` cells."""

    most: int
    wanted: Bools  # (2, L, S, A), of those who follow the greedy policy and of those who explore
    expected: Floats  # (L, S, A), how many of them a user is expected to have


@dataclass(frozen=True, eq=False)
class GreedyPolicy:
    """The greedy policy, compared with others in sampled worlds."""

    actions: Ints  # (H, S)
    value: float  # where what is unknown pays nothing
    values: Floats  # (2, worlds): of the optimal policy of each world, and its own there
    worth: Floats  # (L, S, A), visits of these optimal policies, by what they gain; at most 1
    shown: float  # fraction of the worlds in which it is better than uniform actions


def advantage(values: Floats) -> Floats:
    """How much better the optimal policy is than the one that serves, by rows of both values."""
    better: Floats = np.maximum(values[0] - values[1], 0.0)
    return better


def normalised(values: Floats) -> Floats:
    """Advantages as fractions of their sum; equal ones where there is none."""
    better = advantage(values)
    total = better.sum()
    return better / total if total > 0 else np.full(len(better), 1.0 / len(better))


class ExplorationPlanner:
    """Plans in the known model and in worlds drawn from the posterior; keeps nothing.

    Args:
        posterior: of transitions and rewards.
        start: distribution of the first state, (S,).
        horizon: steps of an episode.
        rng: of samples and ties.
    """

    def __init__(
        self, posterior: SpikeSlabPosterior, start: Floats, horizon: int, rng: np.random.Generator
    ) -> None:
        self.posterior, self.start, self.horizon, self.rng = posterior, start, horizon, rng
        self._known = posterior.transitions, posterior.rewards

    # Values.

    def best(self, P: Floats, r: Floats) -> tuple[Ints, float]:
        """The optimal actions (H, S) of a world, ties broken at random, and their value."""
        actions = np.zeros((self.horizon, r.shape[1]), dtype=np.int64)
        return actions, self._planned(P, r, self.rng.random(r.shape[1:]), False, actions)

    def value(self, P: Floats, r: Floats, actions: Ints) -> float:
        """The value of a policy in a world."""
        return self._planned(P, r, np.zeros(r.shape[1:]), True, np.array(actions))

    def _planned(self, *given: Any) -> float:
        from tacit.tabular.exploration_loops import best_actions

        return float(self.start @ best_actions(*given))

    def known_value(self, actions: Ints) -> float:
        """The value of a policy where what is unknown pays nothing."""
        return self.value(*self._known, actions)

    def random_value(self, P: Floats, r: Floats) -> float:
        """The value of uniform actions in a world."""
        P, r = (x.mean(axis=2, keepdims=True) for x in (P, r))
        return self.value(P, r, np.zeros((self.horizon, P.shape[1]), dtype=np.int64))

    # Policies.

    def greedy(self, before: Ints | None) -> GreedyPolicy:
        """The best policy where what is unknown pays nothing, judged in sampled worlds.

        Actions ``before`` that serve already stay, unless the new ones are better in enough worlds.
        """
        found = self.best(*self._known)[0]
        tried = [found] if before is None else [found, before]
        values = np.zeros((2 + len(tried), WORLDS))
        used = np.zeros((WORLDS, *self.posterior.known.shape))
        for column, visits in zip(values.T, used, strict=True):
            P, r = self.posterior.sample_whole(self.rng)
            actions, column[0] = self.best(P, r)
            column[1:-1] = [self.value(P, r, others) for others in tried]
            column[-1] = self.random_value(P, r)
            visits += np.minimum(self.occupancy(P, actions), 1.0)
        chosen = 0
        if before is not None and self.known_value(before) > 1e-6:
            better = np.sign(np.round(values[1] - values[2], 9))
            chosen = int((1.0 + better.mean()) / 2.0 < CERTAIN)
        both = values[[0, 1 + chosen]]
        worth = np.tensordot(normalised(both), used, 1)
        worth /= max(float(worth.max()), 1e-9)
        shown = float((np.round(both[1] - values[-1], 9) > 0).mean())
        return GreedyPolicy(tried[chosen], self.known_value(tried[chosen]), both, worth, shown)

    def sampled(self, greedy: Ints, count: int) -> tuple[list[Ints], Floats]:
        """Optimal actions of sampled worlds, and their values beside greedy's, (2, count)."""
        found, values = [], np.zeros((2, count))
        for i in range(count):
            P, r, _ = self.posterior.sample(self.rng)
            actions, values[0, i] = self.best(P, r)
            values[1, i] = self.value(P, r, greedy)
            found.append(actions)
        return found, values

    def covering(
        self, count: int, users: float, noise: float, serving: GreedyPolicy | None
    ) -> list[Ints]:
        """Policies that visit what is unknown, each what those before it leave uncovered.

        One in four is planned in a sampled world: a way that is taken not to exist would never be
        tried again.

        Args:
            count: how many.
            users: who follow each of them.
            noise: standard deviation of a count.
            serving: the greedy policy, if it serves most users: then cells that may improve it come
                first, by policies that earn something.
        """
        P, unknown = self.posterior.transitions, 1.0 - self.posterior.known
        covered, found, earning = np.zeros(unknown.shape), [], np.zeros(unknown.shape)
        if serving is not None:
            # Cells that matter in no sampled world count .3 beside others.
            rough = 1.0 / (1.0 + (self.posterior.visits / 12.0) ** 2)
            unknown = serving.worth * rough + 0.3 * unknown
            scale = self.best(P, unknown)[1] / max(serving.value, 1e-9)
            earning = 0.5 * scale * self.posterior.rewards
        for i in range(count):
            missing = unknown / (1.0 + (covered / (noise * _DETECT)) ** 2)
            there = self.posterior.sample(self.rng)[0] if i % 4 == 3 else P
            actions, _ = self.best(there, missing + earning)
            found.append(actions)
            covered += users * np.minimum(self.occupancy(P, actions), 1.0)
        return found

    def cost(self, greedy: GreedyPolicy, explorers: list[Ints], weights: Floats) -> float:
        """Loss of explorers beside the greedy policy, as a fraction of the value range."""
        if greedy.value <= 1e-6:
            return 1.0
        explored = float(weights @ [self.known_value(actions) for actions in explorers])
        value_range = max(greedy.value - self.random_value(*self._known), 0.1 * greedy.value)
        return min(1.0, max(LEAST_COST, (greedy.value - explored) / value_range))

    def uniform(self, count: int) -> list[Ints]:
        """Actions (H, S) drawn uniformly at every step: who follows them acts at random."""
        _, S, A = self.posterior.visits.shape
        drawn = self.rng.random((count, self.horizon, S, 1))
        return list((drawn > np.cumsum(np.full((1, S, A), 1.0 / A), axis=-1)[..., :-1]).sum(-1))

    def occupancy(self, P: Floats, actions: Ints) -> Floats:
        """Expected visits (L, S, A) as far as rows are known."""
        return occupancy(P, self.start, actions)

    # Queries.

    def rollouts(self, policies: Ints, weights: Floats) -> Rollouts:
        """Paths of users of a mixed policy in the known model; unknown rows lead anywhere."""
        from tacit.tabular.exploration_loops import walk

        explore, components = 1.0 - float(weights[0]), np.arange(len(weights))
        moves, found = np.cumsum(self.posterior.whole_rows(), axis=-1), []
        # Explorers are few, and what they see counts as much: half of the paths are theirs.
        for share, whose in ((1.0 - explore, components[:1]), (explore, components[1:])):
            count = 0 if share <= 0.0 else PATHS // (2 if share < 1.0 else 1)
            drawn = components[:0]
            if count:
                drawn = self.rng.choice(whose, size=count, p=weights[whose] / weights[whose].sum())
            path = np.zeros((count, self.horizon), dtype=np.int64)
            walk(self.rng, np.cumsum(self.start), moves, policies, drawn, path)
            found.append((share, path))
        return Rollouts(tuple(found), self.posterior.visits.shape)

    def query(self, paths: Rollouts, users: int, noise_of: Callable[[int], float]) -> VisitQuery:
        """The most informative cells: those with the largest sum of log (1 + signal^2).

        Args:
            paths: of users in the next block.
            users: of the block.
            noise_of: standard deviation of the noise if so many visits of a user count.
        """
        visits, best_score = self.posterior.visits, -1.0
        sets = [visits <= threshold for threshold in THRESHOLDS]
        sets = [wanted for wanted in sets if wanted.any()]
        best = VisitQuery(0, sets[0], visits)  # the last threshold is infinite: there is a set
        for most in sorted({min(most, self.horizon) for most in VISITS_PER_USER}):
            parts = [paths.first_visits(wanted, most) for wanted in sets]
            for i, j in np.ndindex(len(sets), len(sets)):
                expected = parts[i][0] + parts[j][1]
                signal = users * expected / noise_of(most)
                score = float(np.log1p(signal**2 / (_DETECT**2 + visits**2)).sum())
                if best_score < 0.0 or score > 1.02 * best_score:
                    best_score = score
                    best = VisitQuery(most, np.stack([sets[i], sets[j]]), expected)
        return best


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Paths of users: of those who follow the greedy policy, and of those who explore."""

    kinds: tuple[tuple[float, Ints], ...]  # fraction of the users, and cells (paths, H)
    shape: tuple[int, ...]  # of cells, (L, S, A)

    def first_visits(self, wanted: Bools, most: int) -> list[Floats]:
        """First visits to wanted cells that count, per user: of both kinds of users."""
        from tacit.tabular.exploration_loops import count_paths

        found, flat = [], np.ascontiguousarray(wanted).reshape(-1)
        for share, path in self.kinds:
            visits = np.zeros(flat.size)
            count_paths(path, flat, most, visits)
            found.append(visits.reshape(self.shape) * (share / max(len(path), 1)))
        return found

    @property
    def came(self) -> Floats:
        """The fraction of users who come to each cell."""
        everywhere = np.ones(self.shape, dtype=bool)
        followed, explored = self.first_visits(everywhere, everywhere.size)
        return followed + explored

    @property
    def visits(self) -> Floats:
        """Expected visits of a user to each cell."""
        found = np.zeros(np.prod(self.shape, dtype=np.int64))
        for share, path in self.kinds:
            found += np.bincount(path.ravel(), minlength=found.size) * (share / max(len(path), 1))
        return found.reshape(self.shape)
