"""Exploration planner: which policies explore in the next block, and which visits it is asked for.

Most users follow the greedy policy, the best one for what is known. The others explore in parallel,
each by one of many policies: half of them cover what is unknown, each planned for what those before
it leave uncovered; half are optimal in worlds drawn from the posterior. All of it is decided from
releases alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.tabular.posterior import SpikeSlabPosterior

_DETECT = 6.0  # visits, in noise, that a cell needs to become known


@dataclass(frozen=True)
class ExplorationConstants:
    """Constants of exploration, chosen as those of the posterior were."""

    explorers: int = 32  # policies that explore in parallel
    min_exploration: float = 0.03  # fraction of the value range spent on exploration, at least,
    late: float = 20.0  # until so many times the users before the greedy value last changed
    certain: float = 0.7  # the serving policy is replaced by one better in so many sampled worlds
    covering: float = 0.8  # fraction of the explorers, at least, that cover what is unknown
    min_cost: float = 0.2  # fraction of the value range that an explorer loses, at least
    visits_per_user: tuple[int, ...] = (2, 4, 8)  # how many cells may count of a user
    # Cells with more visits, in noise, are not asked for.
    thresholds: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, np.inf)
    apart: bool = True  # explorers are asked for other cells than those who follow greedy
    paths: int = 2000  # rollouts in the known model, for expected visits
    whole_worlds: int = 32  # sampled worlds in which the greedy policy is compared
    even: float = 1.0  # exploration budget per suboptimality that two plans in a row expect
    focused: bool = True  # once most users are served, cells that may improve greedy come first
    doubting: int = 4  # of so many covering policies one is planned in a sampled world
    shown: float = 0.95  # greedy serves once it is better than today's policy in so many worlds


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
    shown: float  # fraction of the worlds in which it is better than today's policy


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
        constants: of exploration.
        rng: of samples and ties.
        today: probabilities (H, S, A) of the policy that serves today; uniform if ``None``.
    """

    def __init__(
        self,
        posterior: SpikeSlabPosterior,
        start: Floats,
        horizon: int,
        constants: ExplorationConstants,
        rng: np.random.Generator,
        today: Floats | None = None,
    ) -> None:
        self.posterior, self.start, self.horizon = posterior, start, horizon
        self.constants, self.rng, self.today = constants, rng, today

    # Values.

    def best(self, P: Floats, r: Floats) -> tuple[Ints, float]:
        """The optimal actions (H, S) of a world, ties broken at random, and their value."""
        from tacit.tabular.exploration_loops import best_actions

        _, S, A = r.shape
        actions = np.zeros((self.horizon, S), dtype=np.int64)
        values = best_actions(P, r, self.rng.random((S, A)), actions)
        return actions, float(self.start @ values)

    def value(self, P: Floats, r: Floats, actions: Ints) -> float:
        """The value of a policy in a world."""
        from tacit.tabular.exploration_loops import value_of

        fixed = actions.view()
        fixed.flags.writeable = False  # the same kind always: loops are compiled for each
        return float(self.start @ value_of(P, r, fixed))

    def known_value(self, actions: Ints) -> float:
        """The value of a policy where what is unknown pays nothing."""
        return self.value(*self._known, actions)

    def random_value(self) -> float:
        """The value of uniform actions there."""
        return self._stochastic_value(*self._known, None)

    def _stochastic_value(self, P: Floats, r: Floats, table: Floats | None) -> float:
        """The value of probabilities of actions, (H, S, A), in a world; of uniform ones if none."""
        if table is None:
            P, r = (x.mean(axis=2, keepdims=True) for x in (P, r))
        else:
            P = np.einsum("...at,...a->...t", P, table)[:, :, np.newaxis]
            r = (r * table).sum(axis=2, keepdims=True)
        return self.value(P, r, np.zeros((self.horizon, P.shape[1]), dtype=np.int64))

    @property
    def _known(self) -> tuple[Floats, Floats]:
        return self.posterior.transitions, self.posterior.rewards

    # Policies.

    def greedy(self, before: Ints | None) -> GreedyPolicy:
        """The best policy where what is unknown pays nothing, judged in sampled worlds.

        Actions ``before`` that serve already stay, unless the new ones are better in enough worlds.
        """
        found = self.best(*self._known)[0]
        tried = [found] if before is None else [found, before]
        values = np.zeros((2 + len(tried), self.constants.whole_worlds))
        used = np.zeros((self.constants.whole_worlds, *self.posterior.known.shape))
        for column, visits in zip(values.T, used, strict=True):
            P, r = self.posterior.sample_whole(self.rng)
            actions, column[0] = self.best(P, r)
            column[1:-1] = [self.value(P, r, others) for others in tried]
            column[-1] = self._stochastic_value(P, r, self.today)
            visits += np.minimum(self._occupancy(P, actions), 1.0)
        chosen = 0
        if before is not None and self.known_value(before) > 1e-6:
            better = np.sign(np.round(values[1] - values[2], 9))
            chosen = int((1.0 + better.mean()) / 2.0 < self.constants.certain)
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

        Some are planned in a sampled world: a way that is taken not to exist would never be tried
        again.

        Args:
            count: how many.
            users: who follow each of them.
            noise: standard deviation of a count.
            serving: the greedy policy, if it serves most users: then cells that may improve it come
                first, by policies that earn something.
        """
        c, P, unknown = self.constants, self.posterior.transitions, 1.0 - self.posterior.known
        covered, found, earning = np.zeros(unknown.shape), [], np.zeros(unknown.shape)
        if c.focused and serving is not None:
            # Cells that matter in no sampled world count .3 beside others.
            rough = 1.0 / (1.0 + (self.posterior.visits / 12.0) ** 2)
            unknown = serving.worth * rough + 0.3 * unknown
            scale = self.best(P, unknown)[1] / max(serving.value, 1e-9)
            earning = 0.5 * scale * self.posterior.rewards
        for i in range(count):
            missing = unknown / (1.0 + (covered / (noise * _DETECT)) ** 2)
            doubted = c.doubting > 0 and i % c.doubting == c.doubting - 1
            there = self.posterior.sample(self.rng)[0] if doubted else P
            actions, _ = self.best(there, missing + earning)
            found.append(actions)
            covered += users * np.minimum(self._occupancy(P, actions), 1.0)
        return found

    def cost(self, greedy: GreedyPolicy, explorers: list[Ints], weights: Floats) -> float:
        """Loss of explorers beside the greedy policy, as a fraction of the value range."""
        if greedy.value <= 1e-6:
            return 1.0
        explored = float(weights @ [self.known_value(actions) for actions in explorers])
        value_range = max(greedy.value - self.random_value(), 0.1 * greedy.value)
        return min(1.0, max(self.constants.min_cost, (greedy.value - explored) / value_range))

    def todays(self, count: int) -> list[Ints]:
        """Actions (H, S) drawn at every step from today's policy: who follows them follows it."""
        _, S, A = self.posterior.visits.shape
        table = np.full((1, S, A), 1.0 / A) if self.today is None else self.today
        drawn = self.rng.random((count, self.horizon, S, 1))
        return list((drawn > np.cumsum(table, axis=-1)[..., :-1]).sum(axis=-1))

    def _occupancy(self, P: Floats, actions: Ints) -> Floats:
        """Expected visits (L, S, A) as far as rows are known."""
        from tacit.tabular.exploration_loops import occupancy

        visits = np.zeros(P.shape[:3])
        occupancy(P, self.start, actions, visits)
        return visits

    # Queries.

    def rollouts(self, policies: Ints, weights: Floats) -> Rollouts:
        """Paths of users of a mixed policy in the known model; unknown rows lead anywhere."""
        from tacit.tabular.exploration_loops import walk

        explore, components = 1.0 - float(weights[0]), np.arange(len(weights))
        moves, found = np.cumsum(self.posterior.whole_rows(), axis=-1), []
        # Explorers are few, and what they see counts as much: half of the paths are theirs.
        for share, whose in ((1.0 - explore, components[:1]), (explore, components[1:])):
            count = 0 if share <= 0.0 else self.constants.paths // (2 if share < 1.0 else 1)
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
        visits, c = self.posterior.visits, self.constants
        best, best_score = None, -1.0
        sets = [visits <= threshold for threshold in c.thresholds]
        sets = [wanted for wanted in sets if wanted.any()]
        pairs = [(i, j) for i in range(len(sets)) for j in range(len(sets)) if c.apart or i == j]
        for most in sorted({min(most, self.horizon) for most in c.visits_per_user}):
            parts = [paths.first_visits(wanted, most) for wanted in sets]
            for i, j in pairs:
                expected = parts[i][0] + parts[j][1]
                signal = users * expected / noise_of(most)
                score = float(np.log1p(signal**2 / (_DETECT**2 + visits**2)).sum())
                if best is None or score > 1.02 * best_score:
                    best_score = score
                    best = VisitQuery(most, np.stack([sets[i], sets[j]]), expected)
        assert best is not None  # noqa: S101  (the last threshold is infinite)
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
