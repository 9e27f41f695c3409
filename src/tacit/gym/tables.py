"""Environments that have a table: the model that values are of, and the one that agents see.

Both have the environment's states, numbered as there. An episode that ends early stays where it
ended, with reward 0, until the horizon.

**A way to an end.** Where every step costs something, and all ends pay alike (CliffWalking, Taxi),
rewards say how long the way was, and what else happened on it. A range that has room for the
largest cost would hide the single steps. So agents see one thing: after an end 1 for each step that
is saved, and 0 before. A cost beyond that of the cheapest step is shown as the end of all that
there was to gain, with probability cost / (cheapest step * horizon): that is what it is worth to
somebody who has a whole horizon before her. Values are still of what the environment pays.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

from tacit.core.sizes import Floats, check_bytes
from tacit.finite.model import FiniteModel

Rescaled = tuple[FiniteModel, float, float]
"""A model with rewards in [0, 1], and the offset and scale by which they are the environment's."""


class Row(NamedTuple):
    """What may follow a state and an action."""

    state: int
    action: int
    probability: float
    after: int
    reward: float
    ends: bool


class Table:
    """The table of an environment, ``env.P``, in episodes of so many steps.

    ``paid`` is what the environment pays, and ``seen`` what agents see of it: clipped to
    ``reward_range`` if it is given, else by the rule.
    """

    def __init__(
        self, env: Any, horizon: int, reward_range: tuple[float, float] | None, assumed: list[str]
    ) -> None:
        S, self.actions, self.horizon = env.observation_space.n, int(env.action_space.n), horizon
        start = np.asarray(env.initial_state_distrib, dtype=np.float64)
        rows = [
            Row(s, a, float(p), int(to), float(r), bool(done))
            for s in range(S)
            for a in range(self.actions)
            for p, to, r, done in env.P[s][a]
            if p > 0
        ]
        ends, copies = _ends(rows, start)
        rows = [
            row._replace(after=copies.get(row.after, row.after)) if row.ends else row
            for row in rows
            if row.state not in ends
        ]
        self.start = np.append(start, np.zeros(len(copies)))
        seen, low, high = rows, *_range(rows)
        if reward_range is not None:
            low, high = min(reward_range[0], 0.0), max(reward_range[1], 0.0)
        elif (cost := _cheapest(rows)) is not None:
            seen, low, high = self._saved(rows, cost, assumed), -cost, 0.0
        check_bytes("transitions", (1, len(self.start), self.actions, len(self.start)))
        self.paid = self.seen = self._model(rows, *_range(rows))
        if seen is not rows or (low, high) != _range(rows):
            self.seen = self._model(seen, low, high)

    def _saved(self, rows: list[Row], cost: float, assumed: list[str]) -> list[Row]:
        """A way to an end: see the module. Adds the state of those for whom all is lost."""
        words = f"a way to an end, of which agents see the steps of {-cost:g} that it saves"
        seen, lost = list[Row](), len(self.start)
        for row in rows:
            if row.ends:
                seen.append(row._replace(reward=0.0))
                continue
            over = min(1.0, (-row.reward / cost - 1.0) / self.horizon)
            if over < 1.0:
                chance = row.probability * (1.0 - over)
                seen.append(row._replace(probability=chance, reward=-cost))
            if over > 0.0:
                chance = row.probability * over
                seen.append(row._replace(probability=chance, after=lost, reward=-cost))
        if any(row.after == lost for row in seen):
            # Nothing is saved any more: every step costs.
            seen += [Row(lost, a, 1.0, lost, -cost, False) for a in range(self.actions)]
            self.start = np.append(self.start, 0.0)
            words += f", and rewards down to {_range(rows)[0]:g} as the loss of them"
        assumed.append(words)
        return seen

    def _model(self, rows: list[Row], low: float, high: float) -> Rescaled:
        rewards = [min(max(row.reward, low), high) for row in rows]
        levels, scale = np.unique([0.0, *rewards]), high - low or 1.0
        shape, zero = (len(self.start), self.actions), int(np.searchsorted(levels, 0.0))
        P, probabilities = np.zeros((*shape, shape[0])), np.zeros((*shape, len(levels)))
        index, decided = np.full(P.shape, zero, dtype=np.int64), True
        for row, reward in zip(rows, rewards, strict=True):
            cell, level = (row.state, row.action), int(np.searchsorted(levels, reward))
            to = (*cell, row.after)
            decided = decided and (P[to] == 0 or bool(index[to] == level))
            P[to] += row.probability
            index[to] = level
            probabilities[(*cell, level)] += row.probability
        for s in set(range(shape[0])) - {row.state for row in rows}:
            P[s, :, s] = probabilities[s, :, zero] = 1.0
        values = np.clip((levels - low) / scale, 0.0, 1.0)
        model = FiniteModel(
            transitions=P[np.newaxis],
            reward_probabilities=probabilities[np.newaxis],
            reward_values=values,
            start=self.start,
            horizon=self.horizon,
            transition_rewards=values[index] if decided else None,
        )
        return model, low, scale


def _range(rows: list[Row]) -> tuple[float, float]:
    """The least and the most that is paid, nothing included."""
    rewards = [0.0, *(row.reward for row in rows)]
    return min(rewards), max(rewards)


def _cheapest(rows: list[Row]) -> float | None:
    """What a step costs at least, if this is a way to an end; else ``None``."""
    on_the_way = {row.reward for row in rows if not row.ends}
    at_the_end = {row.reward for row in rows if row.ends}
    if len(at_the_end) != 1 or not on_the_way or max(on_the_way) >= 0.0:
        return None
    return -max(on_the_way)


def _ends(rows: list[Row], start: Floats) -> tuple[set[int], dict[int, int]]:
    """Where episodes end: states that become absorbing, and copies of those that cannot.

    A state that users also pass through on their way gets a copy, in which nothing happens.
    """
    onward = defaultdict[int, set[int]](set)
    for row in rows:
        if not row.ends:
            onward[row.state].add(row.after)
    passed = set(np.flatnonzero(start).tolist())
    frontier = list(passed)
    while frontier:
        new = onward[frontier.pop()] - passed
        passed |= new
        frontier.extend(new)
    entered = {row.after for row in rows if row.ends and row.state in passed}
    copies = {s: len(start) + i for i, s in enumerate(sorted(entered & passed))}
    return entered - passed, copies
