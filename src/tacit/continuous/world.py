"""Worlds whose states are vectors: simulated users, and the values of policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias, get_args

import numpy as np

from tacit.continuous.features import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.stochastic_policy import SoftmaxPolicy
from tacit.core.world import Form
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block, Bools, Floats, Ints, StreamedBlock
from tacit.privacy.validation import check_bytes, check_users

Advance: TypeAlias = Callable[[int, Ints, Floats, Ints], tuple[Floats, Bools]]
"""One step of some users: (step, indices, states, actions) to next states and which ended."""

FORMS: tuple[Form, ...] = ("episodes", "streamed")
"""Forms of blocks: all episodes at once, or part by part."""

# Users that are simulated at a time.
_PART = 4096
# Values that are kept: a release asks for two, and late ones repeat.
_KEPT = 256
# An action is held for about 2^0 to 2^5 steps, by the user.
_HOLDS = 6


class VectorWorld(ABC):
    """Simulated users whose states are vectors; the base of all worlds of this family.

    Users are made in parts, each with a random stream of its own, so that a block can be made
    again part by part (``form="streamed"``) and is the same as when it is made at once.
    """

    exchangeable_actions = True  # the labels of actions mean nothing to an agent

    def __init__(self, spec: BoxSpec, name: str) -> None:
        self.spec = spec  # what an agent may know
        self.name = name  # a text that rebuilds the world, for those that are built in
        self._values: dict[Any, float] = {}

    @property
    @abstractmethod
    def optimal_value(self) -> float:
        """The largest value that any policy has."""

    @cached_property
    def baseline_value(self) -> float:
        """The value of acting uniformly at random."""
        return self.value(QPolicy.uniform(self.spec.dimension, self.spec.actions))

    @property
    def reference_value(self) -> float:
        """The zero point of losses: the baseline."""
        return self.baseline_value

    def simulate(
        self, policy: QPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> VectorEpisodes | Block:
        """A block of users who follow a policy, the same in both forms.

        Args:
            policy: That they follow.
            users: How many.
            rng: Draws them.
            form: ``"episodes"``, or ``"streamed"``: some thousand are in memory at a time.
        """
        if form not in FORMS:
            known = "" if form in get_args(Form) else ", which no world has"
            raise InvalidArgument(f"form must be one of {FORMS}, got {form!r}{known}")
        self.check_policy(policy)
        users = check_users(users)
        entropy = rng.integers(2**63, size=2).tolist()

        def parts() -> Iterator[VectorEpisodes]:
            for part, first in enumerate(range(0, max(users, 1), _PART)):
                own = np.random.default_rng(np.random.SeedSequence([*entropy, part]))
                yield self._users(policy, min(_PART, users - first), own)

        if form == "streamed":
            return StreamedBlock(users, lambda: (part.block() for part in parts()))
        H, D = self.spec.horizon, self.spec.dimension
        check_bytes("episodes of a block", (users, (H + 1) * D + 2 * H + 2))
        blocks = [part.block() for part in parts()]
        names = blocks[0].arrays
        arrays = {name: np.concatenate([block[name] for block in blocks]) for name in names}
        return VectorEpisodes.of_block(Block(users, arrays))

    def value(self, policy: QPolicy) -> float:
        """The expected sum of rewards of an episode under a policy; see the world for how exact."""
        self.check_policy(policy)
        key: Any = "uniform"
        if policy.epsilon < 1.0:
            known = policy.kind, policy.features, policy.weights.tobytes(), policy.preference
            drawn = policy.epsilon, policy.explorers, policy.bursts, getattr(policy, "sigma", None)
            key = *known, *drawn
        if key not in self._values:
            if len(self._values) >= _KEPT:
                self._values.clear()
            self._values[key] = self._value(policy)
        return self._values[key]

    def check_policy(self, policy: QPolicy) -> None:
        """Refuses a policy for another world."""
        D, A = self.spec.dimension, self.spec.actions
        if not isinstance(policy, QPolicy):
            raise InvalidArgument(f"policy must be a QPolicy, got {type(policy).__name__}")
        if policy.n_actions != A or policy.features.dimension not in (None, D):
            raise InvalidArgument(
                f"policy must be for {D} coordinates and {A} actions as {self.name} has, got "
                f"{policy!r}"
            )

    @abstractmethod
    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        """So many users, one by one."""

    @abstractmethod
    def _value(self, policy: QPolicy) -> float:
        """The value, when it is not known yet."""

    def __repr__(self) -> str:
        spec = self.spec
        return (
            f"<{type(self).__name__} {self.name!r}: {spec.dimension} coordinates, "
            f"{spec.actions} actions, {spec.horizon} steps>"
        )


def roll_out(
    policy: QPolicy, starts: Floats, coins: Floats, advance: Advance
) -> tuple[Floats, Ints, Ints]:
    """Simulates users step by step, all at once.

    Args:
        policy: That they follow.
        starts: Their first states, (n, D).
        coins: Uniform numbers, (H, n), by which the policy draws. They are spent whether it draws
            or not, so that users are the same under every policy.
        advance: One step of the world; it may overwrite the states that it gets.

    Returns:
        States (n, H + 1, D), actions (n, H) and lengths (n,), H + 1 where there was no end; after
        an end, states are NaN and actions -1.
    """
    horizon, users = coins.shape
    # By step first, so that what is written at a time lies together.
    states = np.full((horizon + 1, users, starts.shape[1]), np.nan)
    actions = np.full((horizon, users), -1, dtype=np.int64)
    lengths = np.full(users, horizon + 1, dtype=np.int64)
    states[0] = here = np.array(starts)
    going, greedy = np.arange(users), chooser(policy)
    drawn = exploration(policy, coins)
    for step in range(horizon):
        if not len(going):
            break
        at = (step,) if len(going) == users else (step, going)
        if isinstance(policy, SoftmaxPolicy):
            taken = policy.by_coins(here, coins[at])
        else:
            taken = greedy(here)
        if drawn is not None:
            taken = np.where(drawn[at] < 0, taken, drawn[at])
        actions[at] = taken
        here, over = advance(step, going, here, taken)
        states[(step + 1, *at[1:])] = here
        if over.any():
            lengths[going[over]] = step + 1
            going, here = going[~over], here[~over]
    by_user = np.ascontiguousarray(states.swapaxes(0, 1)), np.ascontiguousarray(actions.T)
    return *by_user, lengths


def exploration(policy: QPolicy, coins: Floats) -> Ints | None:
    """Actions that users try whatever their states, (H, n), by uniform numbers of [0, 1), (H, n).

    They are -1 where users act greedily; ``None`` if all always do. A part ``explorers`` of users
    try one random action after the other. Each other user is greedy, but for bursts of a random
    action, which begin with the chance ``bursts`` over how long she holds one. How long that is, is
    geometric, with a mean of 2^0 to 2^5 steps that is drawn once for each user. All of it is drawn
    before the first step, so that who serves a real user draws a column of it once per episode.
    """
    if policy.epsilon == 0.0 or not coins.size:
        return None
    if not (policy.explorers or policy.bursts):
        return policy.random_actions(coins)
    from tacit.continuous.world_loops import hold

    tries = np.full(coins.shape, -1, dtype=np.int64)
    known = policy.n_actions, policy.explorers, policy.bursts, _HOLDS
    hold(np.ascontiguousarray(coins), *known, tries)
    return tries


def chooser(policy: QPolicy) -> Callable[[Floats], Ints]:
    """The policy's greedy actions as a function of states, (n, D), compiled on grids."""
    if type(policy.features) is not Grid:
        return policy.greedy
    from tacit.continuous.world_loops import best_on_grid

    box, table = policy.features.for_loops()
    weights = np.ascontiguousarray(policy.weights.T)
    preference = np.array(policy.preference, dtype=np.int64)

    def choose(states: Floats) -> Ints:
        actions = np.empty(len(states), dtype=np.int64)
        rows = np.ascontiguousarray(states)
        best_on_grid(box, table, weights, preference, rows, actions)
        return actions

    return choose
