"""Who tries what in the next block, and what is asked of it: decided from what is public.

Most users follow the greedy policy, the best one for what is known. The others explore in parallel,
each by one of many policies: half of them cover what is unknown, one after the other planned for
what those before leave uncovered; half are the best of worlds that may be true. How many explore
depends on what the greedy policy may be missing, and once most users are served what could improve
it is covered first. Until releases show that the greedy policy gains something, those who would
follow it are served what they are served today.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Floats
from tacit.tabular.posterior import SpikeSlabPosterior

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_DETECT = 6.0  # visits, in noise, that a cell needs to become known


@dataclass(frozen=True)
class ExplorationConstants:
    """Chosen as those of :class:`~tacit.tabular.posterior.SparseConstants`."""

    explorers: int = 32  # policies that explore in parallel
    least: float = 0.03  # of the value range that exploring costs,
    late: float = 20.0  # up to so many times the users before greedy last changed; then less
    certain: float = 0.7  # who serves is replaced only by what is better in so many worlds
    covering: float = 0.8  # of the explorers, at least, are for what is unknown
    cheapest: float = 0.2  # an explorer is taken to lose so much at least
    most: tuple[int, ...] = (2, 4, 8)  # how many cells may count of a user
    # Cells with more visits, in noise, are not asked.
    thresholds: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, np.inf)
    apart: bool = True  # explorers are asked about other cells than those whom greedy serves
    paths: int = 2000  # on which expectations are taken
    whole_worlds: int = 32  # drawn for what greedy may lose
    even: float = 1.0  # exploring costs so many times what two plans in a row expect greedy to lose
    focused: bool = True  # once most users are served, what matters is covered first
    doubting: int = 4  # of so many covering policies one is planned in a world that may be true
    # Greedy gains something if it is better than today's policy in so many worlds; where users are
    # too few to learn from, in all of them.
    shown: float = 0.95


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a block: up to ``most`` first visits of a user to ``wanted`` cells."""

    most: int
    wanted: Bools  # (2, L, S, A), of those who follow the greedy policy and of those who explore
    expected: Floats  # (L, S, A), how many of them a user is expected to have


@dataclass(frozen=True, eq=False)
class Greedy:
    """A greedy policy, and what may be missing from it."""

    actions: Ints  # (H, S)
    earned: float  # where what is unknown pays nothing
    # In worlds that may be true: the value of the best policy, and its own, (2, worlds).
    values: Floats
    # How much the best policies of these worlds come to a cell, (L, S, A), by what they gain.
    worth: Floats
    shown: float  # in how many of these worlds it is better than today's policy


def gains(values: Floats) -> Floats:
    """How much better the best is than what serves, of rows of both in some worlds."""
    better: Floats = np.maximum(values[0] - values[1], 0.0)
    return better


def shares(values: Floats) -> Floats:
    """The same as parts of 1, and equal ones where nothing is gained."""
    better = gains(values)
    total = better.sum()
    return better / total if total > 0 else np.full(len(better), 1.0 / len(better))


class Explorer:
    """Plans for one world's sizes; keeps nothing."""

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

    # Policies.

    def best(self, P: Floats, r: Floats) -> tuple[Ints, float]:
        """The best actions (H, S) in a world, and their value; ties are broken at random."""
        from tacit.tabular.exploration_loops import best_actions

        _, S, A = r.shape
        actions = np.zeros((self.horizon, S), dtype=np.int64)
        values = best_actions(P, r, self.rng.random((S, A)), actions)
        return actions, float(self.start @ values)

    def value(self, P: Floats, r: Floats, actions: Ints) -> float:
        """What a policy earns in a world."""
        from tacit.tabular.exploration_loops import value_of

        fixed = actions.view()
        fixed.flags.writeable = False  # the same kind always: loops are compiled for each
        return float(self.start @ value_of(P, r, fixed))

    def known_value(self, actions: Ints) -> float:
        """What a policy earns where what is unknown pays nothing."""
        return self.value(self.posterior.transitions, self.posterior.rewards, actions)

    def random_value(self) -> float:
        """What actions at random earn there."""
        return self._stochastic_value(*self._known, None)

    def _stochastic_value(self, P: Floats, r: Floats, table: Floats | None) -> float:
        """What probabilities of actions, (H, S, A), earn in a world, or all alike."""
        if table is None:
            P, r = (x.mean(axis=2, keepdims=True) for x in (P, r))
        else:
            P = np.einsum("...at,...a->...t", P, table)[:, :, np.newaxis]
            r = (r * table).sum(axis=2, keepdims=True)
        return self.value(P, r, np.zeros((self.horizon, P.shape[1]), dtype=np.int64))

    def todays(self, count: int) -> list[Ints]:
        """Actions (H, S), drawn for every step: whoever follows them does as today's policy."""
        _, S, A = self.posterior.visits.shape
        table = np.full((1, S, A), 1.0 / A) if self.today is None else self.today
        drawn = self.rng.random((count, self.horizon, S, 1))
        return list((drawn > np.cumsum(table, axis=-1)[..., :-1]).sum(axis=-1))

    @property
    def _known(self) -> tuple[Floats, Floats]:
        return self.posterior.transitions, self.posterior.rewards

    def greedy(self, before: Ints | None) -> Greedy:
        """The greedy actions, and what they lose in worlds that may be true.

        They are the best where what is unknown pays nothing, unless those ``before`` are better in
        too many of the worlds.
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
        worth = np.tensordot(shares(both), used, 1)
        earned = self.known_value(tried[chosen])
        shown = float((np.round(both[1] - values[-1], 9) > 0).mean())
        worth /= max(float(worth.max()), 1e-9)
        return Greedy(tried[chosen], earned, both, worth, shown)

    def sampled(self, greedy: Ints, count: int) -> tuple[list[Ints], Floats]:
        """The best actions of worlds that may be true, and their values beside greedy's there."""
        found, values = [], np.zeros((2, count))
        for i in range(count):
            P, r, _ = self.posterior.sample(self.rng)
            actions, values[0, i] = self.best(P, r)
            values[1, i] = self.value(P, r, greedy)
            found.append(actions)
        return found, values

    def covering(
        self, count: int, users: float, noise: float, serving: Greedy | None
    ) -> list[Ints]:
        """Policies for what is unknown, each for what those before it leave uncovered.

        ``users`` is how many follow each of them, and ``noise`` that of a count. Beside a greedy
        policy that is ``serving`` most users, what may improve it is covered first, by ways that
        earn something. Some are planned in a world that may be true: a way that is taken not to
        exist would never be tried again.
        """
        c, P, unknown = self.constants, self.posterior.transitions, 1.0 - self.posterior.known
        covered, found, earning = np.zeros(unknown.shape), [], np.zeros(unknown.shape)
        if c.focused and serving is not None:
            # Cells that matter to no world that may be true count .3 beside others.
            rough = 1.0 / (1.0 + (self.posterior.visits / 12.0) ** 2)
            unknown = serving.worth * rough + 0.3 * unknown
            scale = self.best(P, unknown)[1] / max(serving.earned, 1e-9)
            earning = 0.5 * scale * self.posterior.rewards
        for i in range(count):
            missing = unknown / (1.0 + (covered / (noise * _DETECT)) ** 2)
            doubted = c.doubting > 0 and i % c.doubting == c.doubting - 1
            there = self.posterior.sample(self.rng)[0] if doubted else P
            actions, _ = self.best(there, missing + earning)
            found.append(actions)
            covered += users * np.minimum(self._occupancy(P, actions), 1.0)
        return found

    def _occupancy(self, P: Floats, actions: Ints) -> Floats:
        """Expected visits (L, S, A) as far as rows are known."""
        from tacit.tabular.exploration_loops import occupancy

        visits = np.zeros(P.shape[:3])
        occupancy(P, self.start, actions, visits)
        return visits

    # Questions.

    def walks(self, policies: Ints, weights: Floats) -> Walks:
        """Ways of users of a mixed policy, as far as is known."""
        from tacit.tabular.exploration_loops import walk

        share, everybody = 1.0 - float(weights[0]), np.arange(len(weights))
        moves, found = np.cumsum(self.posterior.whole_rows(), axis=-1), []
        # Explorers are few, and what they see counts as much: half of the paths are theirs.
        for part, whose in ((1.0 - share, everybody[:1]), (share, everybody[1:])):
            count = 0 if part <= 0.0 else self.constants.paths // (2 if part < 1.0 else 1)
            drawn = everybody[:0]
            if count:
                drawn = self.rng.choice(whose, size=count, p=weights[whose] / weights[whose].sum())
            path = np.zeros((count, self.horizon), dtype=np.int64)
            walk(self.rng, np.cumsum(self.start), moves, policies, drawn, path)
            found.append((part, path))
        return Walks(tuple(found), self.posterior.visits.shape)

    def question(self, walks: Walks, users: int, noise_of: Callable[[int], float]) -> Question:
        """The cells, and how many of a user, that make most known: the sum of log (1 + gain)."""
        visits, c = self.posterior.visits, self.constants
        best, best_score = None, -1.0
        sets = [visits <= threshold for threshold in c.thresholds]
        sets = [wanted for wanted in sets if wanted.any()]
        pairs = [(i, j) for i in range(len(sets)) for j in range(len(sets)) if c.apart or i == j]
        for most in sorted({min(most, self.horizon) for most in c.most}):
            parts = [walks.parts(wanted, most) for wanted in sets]
            for i, j in pairs:
                expected = parts[i][0] + parts[j][1]
                signal = users * expected / noise_of(most)
                score = float(np.log1p(signal**2 / (_DETECT**2 + visits**2)).sum())
                if best is None or score > 1.02 * best_score:
                    best_score = score
                    best = Question(most, np.stack([sets[i], sets[j]]), expected)
        assert best is not None  # noqa: S101  (the last threshold is infinite)
        return best


@dataclass(frozen=True, eq=False)
class Walks:
    """Ways of users: of those who follow the greedy policy, and of those who explore."""

    kinds: tuple[tuple[float, Ints], ...]  # their share, and cells (paths, H) on their way
    shape: tuple[int, ...]  # of cells, (L, S, A)

    def parts(self, wanted: Bools, most: int) -> list[Floats]:
        """First visits to wanted cells that count, of one of all users: of both kinds of them."""
        from tacit.tabular.exploration_loops import count_paths

        found, flat = [], np.ascontiguousarray(wanted).reshape(-1)
        for share, path in self.kinds:
            visits = np.zeros(flat.size)
            count_paths(path, flat, most, visits)
            found.append(visits.reshape(self.shape) * (share / max(len(path), 1)))
        return found

    @property
    def came(self) -> Floats:
        """The share of users who come to each cell."""
        everywhere = np.ones(self.shape, dtype=bool)
        followed, explored = self.parts(everywhere, everywhere.size)
        return followed + explored

    @property
    def visits(self) -> Floats:
        """How often a user comes to each cell, in the mean."""
        found = np.zeros(np.prod(self.shape, dtype=np.int64))
        for share, path in self.kinds:
            found += np.bincount(path.ravel(), minlength=found.size) * (share / max(len(path), 1))
        return found.reshape(self.shape)
