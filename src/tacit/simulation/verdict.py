"""Verdicts: what users got, beside random actions, the first policy, and learning from noise alone.

The last is a control: the same algorithm with the same schedule, whose users tell nothing. Every
statistic is zero, its noise is drawn as ever, and no user is simulated. Where a run is not better
than one of the three, a second run has ten times the epsilon, and says how many users are needed:
noise that is f times smaller is as noise beside f times the users (f^2 under local DP, where every
user brings noise).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.core.agent import Agent
from tacit.core.algorithm import Algorithm
from tacit.privacy.statistic import Numbers, StreamedBlock
from tacit.simulation.result import Result, median

_LOOKS = 6  # releases of a control whose policies are evaluated
_STRONGER = 10.0  # epsilon of the second run, in that of the first
_LEAST = 0.01  # of what there is to gain: less is no difference


class SilentUsers(StreamedBlock):
    """A block of users who tell nothing: every statistic of it is zero."""

    def __init__(self, users: int) -> None:
        super().__init__(users, lambda: iter(()))

    def sums(self, of: Any, zero: Numbers) -> Numbers:
        """Zero."""
        return zero


def noise_alone(
    algorithm: Algorithm[Any], noise_seed: int, value: Callable[[Any], float]
) -> dict[str, float]:
    """Values of a control: of its last policies, and the best of some of its releases.

    Args:
        algorithm: Of the agent that it is beside.
        noise_seed: Of its noise.
        value: Of a policy, in the world of that agent.
    """
    agent, found = Agent(algorithm, noise_seed=noise_seed), list[float]()
    looks = {round(one) for one in np.geomspace(1, algorithm.schedule.releases, _LOOKS)}
    while (block := agent.block_users) > 0:
        serving = agent.policy
        agent.learn(SilentUsers(block))
        if agent.releases in looks or not agent.block_users:
            found.append(value(agent.greedy_policy))
    served = value(serving)
    return {"served_value": served, "greedy_value": found[-1], "best_value": max(served, *found)}


def stronger(algorithm: Algorithm[Any], noise_seed: int) -> tuple[Agent, float]:
    """An agent with ten times the epsilon, and beside how many times the users noise is as small.

    Args:
        algorithm: Of the agent that it is like.
        noise_seed: Of its noise.
    """
    told: Any = algorithm.privacy
    much = replace(told, epsilon=_STRONGER * told.epsilon)
    ratio = _STRONGER if told.needs_l1 else much.episode_mu / told.episode_mu
    made = type(algorithm)(replace(algorithm.problem, privacy=much), algorithm.options)
    return Agent(made, noise_seed=noise_seed), ratio**2 if told.local else ratio


def users_needed(result: Result, other: Result, factor: float) -> dict[str, float]:
    """Users after which a run has 90 % for good, or those that are still too few for that.

    Where the optimum is not known, users after which it is better than its rivals for good.

    Args:
        result: The run.
        other: A run with as little noise as there is beside ``factor`` times its users.
        factor: See there.
    """
    values, enough = other.values[:-1], other.users_to_90
    if _kept(result):
        values, enough = other.greedy_values, other.greedy_users_to_90
    if math.isnan(result.optimal_value):
        bar = max(rivals([result]).values()) + _margin([result, other])
        worse = [-1, *np.flatnonzero(values <= bar).tolist()][-1]
        enough = None if worse + 1 == len(values) else int(other.served[worse + 1])
    if enough is None:
        return {"users_too_few": math.floor(factor * result.users)}
    found = math.ceil(factor * max(1, enough))
    return {"users_needed": found} if found > 1.2 * result.users else {}


def verdict(results: Sequence[Result]) -> str:
    """Words on runs of one agent in one world, by medians; the control is that of any of them.

    They are about the policy that served the last users, or about the greedy one where all users
    had the first policy. Less than 1 % of what there is to gain makes no difference.
    """
    worse, told = complaints(results), _control(results)
    words = f"not better than {_listed(worse, 'or')}"
    if not worse:
        words = f"better than {_listed([*rivals(results)], 'and')}"
    elif enough := told.get("users_needed"):
        words += f"; too few users: about {float(f'{enough:.2g}'):,.0f} are needed"
    elif short := told.get("users_too_few"):
        words += f"; too few users: more than {short:,.0f} are needed"
    if all(map(_kept, results)):
        words = f"the first policy served everybody, and the greedy one is {words}"
    return words


def complaints(results: Sequence[Result]) -> list[str]:
    """Rivals that runs are not better than; near the optimum none is."""
    name, least = "final_value", _margin(results)
    if all(map(_kept, results)):
        name = "greedy_value"
    got = median(getattr(result, name) for result in results)
    goal, random = results[0].optimal_value, results[0].baseline_value
    if got is None or got >= goal - 0.1 * (goal - random):
        return []
    return [name for name, value in rivals(results).items() if got <= value + least]


def rivals(results: Sequence[Result]) -> dict[str, float]:
    """Values that a run should be better than, by name."""
    first = median(result.first_value for result in results)
    found = {"random": results[0].baseline_value, "the first policy": first or 0.0}
    told = _control(results)
    return found | ({"noise": told["best_value"]} if told else {})


def _control(results: Sequence[Result]) -> Any:
    return next((result.control for result in results if result.control), {})


def _kept(result: Result) -> bool:
    """Whether the first policy served all users."""
    return bool((result.values[:-1] == result.first_value).all())


def _margin(results: Sequence[Result]) -> float:
    """Difference of values that makes none."""
    best = max(np.nanmax([run.optimal_value, *run.greedy_values]) for run in results)
    return _LEAST * max(0.0, float(best) - results[0].baseline_value)


def _listed(names: Sequence[str], word: str) -> str:
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
