"""Environments of Gymnasium with finitely many states and actions, as worlds.

An episode that ends early stays where it ended, with reward 0, until the horizon.

**A way to an end.** Where every step costs something, and all ends pay alike (CliffWalking, Taxi),
a range that has room for the largest cost would hide the single steps. So agents see one thing:
after an end 1 for each step that is saved, and 0 before. A cost beyond that of the cheapest step is
shown as the end of all that there was to gain, with probability cost / (cheapest step * horizon).
Values are still of what the environment pays.
"""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from tacit.core.world import Form
from tacit.data.episodes import Episodes
from tacit.gym.rules import Env, numbered, returns_of, rewards_of, transparent
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Floats, Ints, StreamedBlock
from tacit.privacy.validation import check_bytes, check_users, instance_of, whole_number
from tacit.tabular.model import FiniteModel, check_policy
from tacit.tabular.policy import AnyPolicy, MixedPolicy, Policy
from tacit.tabular.spec import FiniteSpec
from tacit.tabular.world import FORMS, FiniteWorld, TabularWorld

_EVALUATED = 1000  # simulated users that a value is the mean of
_PART = 1 << 14  # and of which a streamed block has parts

Rescaled = tuple[FiniteModel, float, float]
"""A model with rewards in [0, 1], and the offset and scale by which they are the environment's."""


class Row(NamedTuple):
    """One outcome of a state and an action."""

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
    """Least cost of a step, if this is a way to an end; else ``None``."""
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


class ImportedWorld(TabularWorld):
    """An environment whose table is known, as a world: all values are exact.

    States and actions keep the environment's numbers. For agents rewards are rescaled to [0, 1]:

        environment's reward = reward_offset + reward_scale * agent's reward

    unless it is a way to an end, or clipped: see this module. Values are in the
    environment's own units: expected sums of what it pays. Since they may be negative, losses are
    relative to the baseline. ``assumed`` says in words what was taken by rule.
    """

    def __init__(
        self,
        model: FiniteModel,
        name: str,
        reward_offset: float,
        reward_scale: float,
        assumed: Sequence[str] = (),
        paid: Rescaled | None = None,
    ) -> None:
        FiniteWorld.__init__(self, model, name)
        self.reward_offset, self.reward_scale = reward_offset, reward_scale
        self._valued, offset, scale = paid or (model, reward_offset, reward_scale)
        self.units, self.assumed = (model.horizon * offset, scale), tuple(assumed)

    @property
    def reference_value(self) -> float:
        """The value of acting uniformly at random."""
        return self.baseline_value


class SampledWorld:
    """An environment without a table: users are simulated one by one, values are estimated.

    Observations are numbered in row-major order where there are several. The last state is added:
    an episode that ends early stays there, with the environment's reward 0, until the horizon.
    For agents rewards are clipped to ``reward_range``, rescaled to [0, 1] as in
    :class:`ImportedWorld`, and rounded at random to 0 or 1, which keeps their means. If it is
    ``paid_once`` they are 0 but for the last step before the end, which pays the whole return,
    clipped and rescaled in the same way. Values are in the environment's own units: means of what
    it paid ``evaluation_users`` simulated users, without any clip. They are the same users in every
    call, so equal policies have equal values. ``optimal_value`` is as given by the caller, or NaN.
    """

    exact = False  # values are estimates

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        horizon: int,
        name: str,
        reward_range: tuple[float, float],
        optimal_value: float | None = None,
        evaluation_users: int | None = None,
        assumed: Sequence[str] = (),
        paid_once: bool = False,
    ) -> None:
        low, high = reward_range
        if not paid_once:  # padded steps have the reward 0
            low, high = min(low, 0.0), max(high, 0.0)
        self.paid_once, self._env, self.assumed, self.name = paid_once, env, tuple(assumed), name
        space: Any = env.observation_space
        # How many values each part of an observation has, and the smallest of them.
        if isinstance(space, spaces.MultiDiscrete):
            self._sizes, self._starts = space.nvec.ravel(), space.start.ravel()
        else:
            parts = space if isinstance(space, spaces.Tuple) else (space,)
            self._sizes, self._starts = np.array([(part.n, part.start) for part in parts]).T
        self._first_action = int(env.action_space.start)  # type: ignore[attr-defined]  # numbered
        self.reward_offset, self.reward_scale = low, high - low
        evaluated = _EVALUATED if evaluation_users is None else evaluation_users
        self.evaluation_users = whole_number("evaluation_users", evaluated)
        self.evaluation_budgeted = evaluation_users is None
        self.optimal_value = math.nan if optimal_value is None else float(optimal_value)
        self.spec = FiniteSpec(
            states=math.prod(self._sizes.tolist()) + 1,
            actions=int(env.action_space.n),  # type: ignore[attr-defined]  # as above
            horizon=horizon,
            stationary=True,
            largest_return=1.0 if self.paid_once else None,
        )

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """A block of users: episodes of the environment, in any form. Args: see World.simulate."""
        if form not in FORMS:
            raise InvalidArgument(f"form must be one of {FORMS}, got {form!r}")
        users = check_users(users)
        check_policy(self.spec, policy)
        if form != "streamed":
            return self._episodes(policy, users, rng)
        # The same users whenever they are asked for: stepped once.
        sizes = [min(_PART, users - first) for first in range(0, users, _PART)]
        parts = [self._episodes(policy, size, rng).block() for size in sizes]
        return StreamedBlock(users, lambda: iter(parts))

    def _episodes(self, policy: AnyPolicy, users: int, rng: np.random.Generator) -> Episodes:
        states, actions, paid, components = self._roll_out(policy, users, rng)
        scaled = np.clip((paid - self.reward_offset) / self.reward_scale, 0.0, 1.0)
        if self.paid_once:
            last = np.maximum((states[:, :-1] != self.spec.states - 1).sum(axis=1) - 1, 0)
            shown = (paid.sum(axis=1) - self.reward_offset) / self.reward_scale
            scaled = np.zeros(paid.shape)
            scaled[np.arange(users), last] = np.clip(shown, 0.0, 1.0)
        rewards = (rng.random(scaled.shape) < scaled).astype(np.float64)
        versions = np.full(users, policy.version, dtype=np.int64)
        return Episodes(states, actions, rewards, versions, components=components)

    def value(self, policy: AnyPolicy) -> float:
        """An estimate: the mean return of ``evaluation_users`` simulated users."""
        return self.estimate(policy, self.evaluation_users)[0]

    def estimate(self, policy: AnyPolicy, users: int) -> tuple[float, float]:
        """The mean return of some users, the same for all policies, and its standard error."""
        check_policy(self.spec, policy)
        returns = self._evaluated(policy, users)[1].sum(axis=1)
        return float(returns.mean()), float(returns.std() / math.sqrt(users))

    @cached_property
    def _at_random(self) -> tuple[float, float]:
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        states, paid = self._evaluated(Policy.uniform(H, S, A), self.evaluation_users)
        steps = (states[:, :-1] != S - 1).sum(axis=1)
        return float(paid.sum(axis=1).mean()), float(steps.mean())

    @property
    def baseline_value(self) -> float:
        """An estimate of the value of acting uniformly at random."""
        return self._at_random[0]

    reference_value = baseline_value

    @property
    def random_steps(self) -> float:
        """An estimate of how many steps an episode has at random."""
        return self._at_random[1]

    def _evaluated(self, policy: AnyPolicy, users: int) -> tuple[Ints, Floats]:
        """States and rewards of the users that values are means of: the same in every call."""
        rng = np.random.default_rng(0)
        states, _, paid, _ = self._roll_out(policy, users, rng)
        return states, paid

    def _roll_out(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator
    ) -> tuple[Ints, Ints, Floats, Ints | None]:
        H, end = self.spec.horizon, self.spec.states - 1
        check_bytes("episodes of a block", (users, 3 * H + 2))
        states = np.full((users, H + 1), end, dtype=np.int64)
        actions = np.zeros((users, H), dtype=np.int64)
        rewards = np.zeros((users, H))
        seed: int | None = int(rng.integers(2**31))
        components = policy.drawn(users, rng) if isinstance(policy, MixedPolicy) else None
        several = policy.components if isinstance(policy, MixedPolicy) else (policy,)
        choosers = [_chooser(one, rng) for one in several]
        for user in range(users):
            choose, rest = choosers[0 if components is None else components[user]]
            # Seeded once: later episodes continue the environment's own stream.
            observation, _ = self._env.reset(seed=seed)
            seed = None
            state = self._encode(observation)
            for step in range(H + 1):
                states[user, step] = state
                if step == H or state == end:
                    actions[user, step:] = rest(step)
                    break
                actions[user, step] = action = choose(step, state)
                observation, paid, *over, _ = self._env.step(action + self._first_action)
                rewards[user, step] = float(paid)
                state = end if any(over) else self._encode(observation)
        return states, actions, rewards, components

    def _encode(self, observation: Any) -> int:
        if len(self._sizes) == 1:
            return int(observation) - int(self._starts[0])
        shifted = np.ravel(np.asarray(observation)).astype(np.int64) - self._starts
        return int(np.ravel_multi_index(tuple(shifted), tuple(self._sizes)))


def _chooser(
    policy: Policy, rng: np.random.Generator
) -> tuple[Callable[[int, int], int], Callable[[int], Ints]]:
    """A policy's action at a step and state; and all at the end, the last state, from a step on."""
    if (table := policy.actions) is not None:
        return lambda step, state: int(table[step, state]), lambda step: table[step:, -1]
    sums = np.cumsum(np.asarray(policy.probabilities), axis=-1)[..., :-1]

    def rest(step: int) -> Ints:
        drawn: Ints = (rng.random((len(sums) - step, 1)) >= sums[step:, -1]).sum(axis=1)
        return drawn

    return lambda step, state: int(sums[step, state].searchsorted(rng.random(), "right")), rest


def finite_world(
    env: Env, name: str, assumed: list[str], **given: Any
) -> ImportedWorld | SampledWorld:
    """The world of an environment and of options of :func:`~tacit.gym.from_gymnasium`."""
    env, ends = numbered(env, given["action_levels"], assumed), given["reward_range"]
    if _has_table(env):
        if given["optimal_value"] is not None:
            raise InvalidArgument(f"optimal_value is given, but {name} has a table: it is computed")
        seen = None if ends is None else rewards_of(env, ends, assumed)
        table = Table(env.unwrapped, given["horizon"], seen, assumed)
        return ImportedWorld(table.seen[0], name, *table.seen[1:], assumed, paid=table.paid)
    returns = returns_of(env, assumed) if ends is None else None
    rewards = returns or rewards_of(env, ends, assumed)
    known = rewards, given["optimal_value"], given["evaluation_users"], assumed, bool(returns)
    return SampledWorld(env, given["horizon"], name, *known)


def _has_table(env: Env) -> bool:
    inner: Any = env.unwrapped
    # A fickle passenger of Taxi changes her mind outside the table.
    return (
        transparent(env)
        and isinstance(env.observation_space, spaces.Discrete)
        and env.observation_space.start == 0
        and env.action_space.start == 0  # type: ignore[attr-defined]  # Discrete, numbered
        and isinstance(getattr(inner, "P", None), Mapping)
        and hasattr(inner, "initial_state_distrib")
        and not getattr(inner, "fickle_passenger", False)
    )


class FiniteEnv(gymnasium.Env[np.int64, np.int64]):
    """The users of a finite world, one after the other; an episode is truncated at the horizon."""

    def __init__(self, world: FiniteWorld) -> None:
        instance_of("world", world, FiniteWorld)
        self.metadata = {"render_modes": []}
        self.world, self._step, self._state = world, 0, 0
        self.observation_space = spaces.Discrete(world.spec.states)
        self.action_space = spaces.Discrete(world.spec.actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """A new user."""
        super().reset(seed=seed)
        model: Any = self.world.model
        self._step, self._state = 0, int(self.np_random.choice(model.states, p=model.start))
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """One step of the user."""
        model: Any = self.world.model
        if not self.action_space.contains(action):
            raise InvalidArgument(f"action must be in {self.action_space}, got {action!r}")
        if self._step >= (H := self.world.spec.horizon):
            raise InvalidArgument(f"the episode is over after {H} steps: reset first")
        s, a = self._state, int(action)
        row = model.transitions_at(self._step)[s, a]
        self._state = int(self.np_random.choice(model.states, p=row))
        if model.transition_rewards is not None:
            reward = float(model.transition_rewards[s, a, self._state])
        else:
            level = min(self._step, len(model.reward_probabilities) - 1)
            chances = model.reward_probabilities[level, s, a]
            reward = float(self.np_random.choice(model.reward_values, p=chances))
        self._step += 1
        return np.int64(self._state), reward, False, self._step >= H, {}


def make_env(world: str, **parameters: Any) -> FiniteEnv:
    """The environment of what makes a world, by its module; ``gymnasium.make`` calls it."""
    module, _, name = world.partition(":")
    return FiniteEnv(getattr(importlib.import_module(module), name)(**parameters))
