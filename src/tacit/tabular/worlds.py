"""Built-in tabular worlds. Rewards are Bernoulli, so they all lie in {0, 1}."""

from __future__ import annotations

import numpy as np

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import check_bytes, whole_number
from tacit.tabular.world import TabularWorld


def riverswim(states: int = 6, horizon: int = 20) -> TabularWorld:
    """A swimmer in a river: the current is easy, the reward is upstream.

    State:
        0 (downstream, the start) to ``states - 1`` (upstream).
    Actions:
        0 left, 1 right. Left moves one down for sure. Right in the middle stays with .6, moves up
        with .35 and down with .05; in state 0 stays with .6 and moves up with .4; in the last
        state stays with .6 and moves down with .4.
    Reward:
        Bernoulli with mean .005 for left in state 0, 1 for right in the last state, else 0.
    Optimum:
        3.0645 at the defaults, by going right while there is time; uniform has .0451.
    Source:
        Strehl and Littman, 2008 (An analysis of model-based interval estimation for Markov
        decision processes), with the probabilities of the later literature.

    >>> world = riverswim()
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (3.0645, 0.0451)
    """
    S, H = whole_number("states", states), whole_number("horizon", horizon)
    if S < 3:
        raise InvalidArgument(f"states must be >= 3, got {states!r}")
    check_bytes("transitions", (1, S, 2, S))
    P = np.zeros((S, 2, S))
    for s in range(S):
        P[s, 0, max(s - 1, 0)] = 1.0
    for s in range(1, S - 1):
        P[s, 1, s - 1 : s + 2] = 0.05, 0.6, 0.35
    P[0, 1, :2] = 0.6, 0.4
    P[-1, 1, -2:] = 0.4, 0.6
    R = np.zeros((S, 2))
    R[0, 0], R[-1, 1] = 0.005, 1.0
    return TabularWorld(P, R, H, name=f"riverswim:states={S},horizon={H}")


def grid(side: int = 5, horizon: int = 20) -> TabularWorld:
    """A walk across a square board to a corner that pays.

    State:
        row * ``side`` + column. The start is 0, a corner; the goal is the last state, the
        opposite corner.
    Actions:
        0 up, 1 down, 2 left, 3 right. A move succeeds with .9 and else stays; moves into the
        wall stay.
    Reward:
        1 per step spent in the goal, whatever the action, else 0.
    Optimum:
        11.1111 at the defaults, by any shortest way to the goal; uniform has .0981.
    Source:
        The textbook's grid world (Sutton and Barto, 2018, Reinforcement learning) with slips.

    >>> world = grid()
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (11.1111, 0.0981)
    """
    N, H = whole_number("side", side), whole_number("horizon", horizon)
    if N < 2:
        raise InvalidArgument(f"side must be >= 2, got {side!r}")
    S = N * N
    check_bytes("transitions", (1, S, 4, S))
    P = np.zeros((S, 4, S))
    for s in range(S):
        row, column = divmod(s, N)
        for a, (down, right) in enumerate([(-1, 0), (1, 0), (0, -1), (0, 1)]):
            to_row = min(max(row + down, 0), N - 1)
            to_column = min(max(column + right, 0), N - 1)
            P[s, a, s] += 0.1
            P[s, a, to_row * N + to_column] += 0.9
    R = np.zeros((S, 4))
    R[-1] = 1.0
    return TabularWorld(P, R, H, name=f"grid:side={N},horizon={H}")


def deep_sea(depth: int = 10, slip: bool = False) -> TabularWorld:
    """A diver who must go right at every step to find the treasure, past pebbles on the left.

    State:
        The column, 0 (the start) to ``depth - 1``. The row is the step, since every step goes
        one row down.
    Actions:
        0 left, 1 right, one column each; at the edges the column stays. With ``slip`` a move
        right stays in its column with probability 1/depth.
    Reward:
        Bernoulli with mean .01/depth for left, 1 for right in the last column, else 0. The last
        column is reached at the last step at the earliest. The horizon is the depth.
    Optimum:
        1 without slips, by going right always; always left has .01, uniform 2^-depth + .005.
        With slips .3909 at depth 10.
    Source:
        Osband et al., 2020 (Behaviour suite for reinforcement learning), with the price of going
        right turned into a reward for going left, so that rewards lie in [0, 1].

    >>> world = deep_sea()
    >>> world.optimal_value, round(world.baseline_value, 6) == round(2**-10 + 0.005, 6)
    (1.0, True)
    """
    N = whole_number("depth", depth)
    if N < 2:
        raise InvalidArgument(f"depth must be >= 2, got {depth!r}")
    if not isinstance(slip, (bool, np.bool_)):
        raise InvalidArgument(f"slip must be True or False, got {slip!r}")
    check_bytes("transitions", (1, N, 2, N))
    P = np.zeros((N, 2, N))
    for s in range(N):
        P[s, 0, max(s - 1, 0)] = 1.0
        P[s, 1, min(s + 1, N - 1)] = 1.0 - slip / N
        P[s, 1, s] += slip / N
    R = np.zeros((N, 2))
    R[:, 0] = 0.01 / N
    R[-1, 1] = 1.0
    return TabularWorld(P, R, N, name=f"deep_sea:depth={N},slip={bool(slip)}")


def random_mdp(states: int, actions: int, horizon: int, seed: int) -> TabularWorld:
    """A world drawn at random, in which acting well pays at least twice as much as acting at all.

    State:
        0 (the start) to ``states - 1``, without meaning.
    Actions:
        0 to ``actions - 1``. Next states are drawn from rows that are Dirichlet(.1).
    Reward:
        Bernoulli with means that are Beta(.2, 1).
    Optimum:
        Depends on the seed. Worlds are drawn until the uniform policy has less than half of it.
    Source:
        Dirichlet rows are as in Osband, Russo and Van Roy, 2013 ((More) efficient reinforcement
        learning via posterior sampling).

    Args:
        states: how many.
        actions: how many.
        horizon: steps of an episode.
        seed: of the draw.

    >>> world = random_mdp(states=10, actions=3, horizon=5, seed=0)
    >>> world.baseline_value < world.optimal_value / 2
    True
    """
    S, A, H = (
        whole_number("states", states),
        whole_number("actions", actions),
        whole_number("horizon", horizon),
    )
    seed = whole_number("seed", seed, least=0)
    check_bytes("transitions", (1, S, A, S))
    check_bytes("values of all steps (horizon)", (H + 1, S))
    rng = np.random.default_rng(seed)
    name = f"random_mdp:states={S},actions={A},horizon={H},seed={seed}"
    for _ in range(_ATTEMPTS):
        P = rng.dirichlet(np.full(S, 0.1), size=(S, A))
        R = rng.beta(0.2, 1.0, size=(S, A))
        world = TabularWorld(P, R, H, name=name)
        if world.baseline_value < world.optimal_value / 2:
            return world
    raise InvalidArgument(
        f"none of {_ATTEMPTS} worlds with states={S}, actions={A}, horizon={H} has a uniform "
        f"policy below half of the optimum: more actions or a longer horizon make them common"
    )


def health_coach() -> TabularWorld:
    """A coach in the pocket: two weeks of daily messages that help, or wear people out.

    A person wants to move more. Each morning the coach may write. Habits grow by being pushed at
    the right moment and fade otherwise; every message is also a burden, and a burdened person
    gives up what was gained. Busy days come by chance and make pushing useless.

    State:
        8 * habit + 2 * burden + busy, 40 states: habit 0 to 4, burden 0 to 3, busy 0 or 1. The
        start is 0: no habit, no burden, an ordinary day.
    Actions:
        0 quiet: burden falls with .7; habit falls with .05.
        1 reminder: burden rises with .3; habit rises with .15, falls with .05.
        2 plan: burden rises with .5; habit rises with .35 (.1 on a busy day), falls with .05.
        3 challenge: burden rises with .9; on an ordinary day, without burden and with a habit of
        at least 1, habit rises with .75 and falls with .05; else it rises with .05 and falls
        with .3.
        Burden b scales every rise of reminder and plan by 1 - b/3, and at burden 3 habit falls
        with .4 whatever is sent. Tomorrow is busy with .4 if today is, else with .2.
    Reward:
        1 if the person was active that day: Bernoulli with mean .02, .06, .15, .4, .85 by habit,
        times 1 - .2 b, times .7 on a busy day, times 1.1 after a reminder.
    Optimum:
        2.4736, by a plan to begin with, then challenges on ordinary days while there is no
        burden, reminders on busy ones, and quiet under any burden. Uniform has .4127, the best
        constant action (reminder) .4688.
    Source:
        Invented for this library, after the trade-off of treatment burden and benefit in mobile
        health (Nahum-Shani et al., 2018, Just-in-time adaptive interventions in mobile health).

    >>> world = health_coach()
    >>> world.spec.states, world.spec.actions, world.spec.horizon
    (40, 4, 14)
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (2.4736, 0.4127)
    """
    active = (0.02, 0.06, 0.15, 0.4, 0.85)
    P, R = np.zeros((5, 4, 2, 4, 5, 4, 2)), np.zeros((5, 4, 2, 4))
    for habit, burden, busy, action in np.ndindex(5, 4, 2, 4):
        R[habit, burden, busy, action] = (
            active[habit]
            * (1.0 - 0.2 * burden)
            * (0.7 if busy else 1.0)
            * (1.1 if action == 1 else 1.0)
        )
        up, down = _habit_change(habit, burden, busy, action)
        heavier, lighter = ((0.0, 0.7), (0.3, 0.0), (0.5, 0.0), (0.9, 0.0))[action]
        tomorrow_busy = 0.4 if busy else 0.2
        for to_habit, p in _move(habit, 4, up, down):
            for to_burden, q in _move(burden, 3, heavier, lighter):
                P[habit, burden, busy, action, to_habit, to_burden] += (
                    p * q * np.array([1.0 - tomorrow_busy, tomorrow_busy])
                )
    return TabularWorld(P.reshape(40, 4, 40), R.reshape(40, 4), 14, name="health_coach")


_ATTEMPTS = 1000


def _habit_change(habit: int, burden: int, busy: int, action: int) -> tuple[float, float]:
    """With what probabilities a habit rises and falls."""
    rested = 1.0 - burden / 3
    up, down = (
        (0.0, 0.05),
        (0.15 * rested, 0.05),
        ((0.1 if busy else 0.35) * rested, 0.05),
        (0.75, 0.05) if habit and not (burden or busy) else (0.05, 0.3),
    )[action]
    return up, 0.4 if burden == 3 else down


def _move(level: int, top: int, up: float, down: float) -> list[tuple[int, float]]:
    """One level up or down, within 0..top."""
    return [(min(level + 1, top), up), (max(level - 1, 0), down), (level, 1.0 - up - down)]


WORLDS = ("deep_sea", "grid", "health_coach", "random_mdp", "riverswim")
"""The names of worlds that a command line knows."""
