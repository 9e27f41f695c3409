"""Trials with a holdout: how much better than the baseline people were served.

The answer follows from released returns (:mod:`tacit.core.arms`). It is given at looks that are
fixed in advance, as shares of the declared users, with levels by O'Brien and Fleming (Lan and
DeMets, 1983): all intervals hold together, and the last is hardly wider than if it were alone.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit import published
from tacit.core.agent import open_run
from tacit.core.arms import BASELINE, RAISED, Arms, ArmState, Evidence
from tacit.privacy.errors import InvalidArgument
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec


@dataclass(frozen=True)
class Trial:
    """How much better people were served than by the baseline. Public.

    Attributes:
        gain: mean return of the others, less that of the baseline's users; over blocks, weighted by
            how much each can tell. Not a number before the first look.
        low, high: its interval, which holds at all looks together.
        users: served until this look.
        next_look: users until the next one; 0 after the last.
        live: the version whose policy replaced the baseline, or -1.
        over: gain of the newest policy that was tried over the one that served beside it.
        surely_over: lower bound of that, which holds for all versions together.
    """

    gain: float = math.nan
    low: float = -math.inf
    high: float = math.inf
    users: int = 0
    next_look: int = 0
    live: int = -1
    over: float = math.nan
    surely_over: float = -math.inf

    def plain(self) -> dict[str, Any]:
        """Its numbers as JSON values; None of what is not known."""
        return {name: x if math.isfinite(x) else None for name, x in vars(self).items()}


def look_levels(arms: Arms, confidence: float = 0.95) -> list[float]:
    """Two-sided levels of the looks, which add up to 1 - confidence at most."""
    ends = 2.0 * ndtr(ndtri((1.0 - confidence) / 2.0) / np.sqrt(arms.looks))
    return [float(level) for level in np.diff(ends, prepend=0.0)]


def answer(agent: Any, confidence: float = 0.95) -> Trial:
    """The answer of an agent at the last look that was passed."""
    state, arms, served = agent.state, agent.algorithm.problem.arms, agent.served
    if not isinstance(state, ArmState):
        raise InvalidArgument("this agent tries nothing: give it a baseline or a holdout")
    looks = [math.ceil(look * agent.users - 1e-9) for look in arms.looks]
    past, found = sum(look <= served for look in looks), Trial(live=agent.plan.memory.since)
    found = replace(found, next_look=[*looks, 0][past])
    if state.looks:
        over, level = state.evidence(), arms.level(len(state.looks))
        found = replace(found, over=over.gain, surely_over=over.lower(level))
    if not past:
        return found
    ends = served - np.cumsum([0, *[look.users for look in state.looks[:0:-1]]])[::-1]
    last = int(np.searchsorted(ends, looks[past - 1]))
    mine = [state.looks[i] for i in range(last + 1) if ends[i] > 0]  # of this run
    gain = Evidence.of_returns(mine, [*range(BASELINE + 1, len(mine[0].chances))])
    low, high = gain.interval(1.0 - look_levels(arms, confidence)[past - 1])
    return replace(found, gain=gain.gain, low=low, high=high, users=int(ends[last]))


def power(arms: Arms, difference: float, users: int, privacy: Any, blocks: int = 8) -> float:
    """Chance that the trial of one policy finds it better than the baseline at some look.

    Args:
        arms: Its options. ``returns``, and the difference, are in standard deviations of returns
            from their mean: noise is in proportion to the longer side.
        difference: Of the two policies.
        users: How many take part: those who are not held out follow the policy.
        privacy: Their budget.
        blocks: Releases, of equally many users: each adds noise.
    """
    low, high = np.array(arms.ends(None)) - (1.0 - arms.holdout) * difference  # from all people's
    mu = math.sqrt(arms.share) * float(privacy.budget.mu) if privacy.private else math.inf
    noise, part = 2.0 / mu, users / blocks * np.array([arms.holdout, 1.0 - arms.holdout])
    centre = np.where(np.arange(blocks), 0.0, (low + high) / 2.0)  # the first block knows no better
    radius = np.maximum(high - centre, centre - low)
    each = (1.0 + centre**2) * (1.0 / part).sum() + (radius * noise) ** 2 * (part**-2.0).sum()
    told = each + RAISED * noise * radius**2 * (part**-2.0).sum()  # as looks estimate it
    weights, sums = radius**-2.0, np.cumsum(radius**-2.0)
    errors = np.random.default_rng(0).standard_normal((20_000, blocks)) * np.sqrt(each)
    path, spread = np.cumsum(errors * weights, axis=1), np.sqrt(np.cumsum(told * weights**2))
    at = np.ceil(np.array(arms.looks) * blocks - 1e-9).astype(int) - 1
    bounds = -ndtri(np.array(look_levels(arms)) / 2.0) * spread[at]
    return float((difference * sums[at] + path[:, at] > bounds).any(axis=1).mean())


def trial_of(store: Any, run: str) -> dict[str, Any] | None:
    """The answer of a run that a store has, if it has a trial, and no code that is not ours."""
    with contextlib.suppress(InvalidArgument), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return answer(open_run(store, run)).plain()
    return None


def policy_of(name: str, given: str | Mapping[str, str], spec: FiniteSpec) -> Policy:
    """A published file's policy, or a rule's, an action for each state; errors say the name."""
    states, actions = spec.state_labels or (), spec.action_labels or ()
    if not isinstance(given, str):
        if {*given} != {*states} or not {*given.values()} <= {*actions}:
            raise InvalidArgument(f"{name} must name an action of the world for each of its states")
        row = [actions.index(given[state]) for state in states]
        return Policy.deterministic([row] * spec.horizon, spec.actions)
    try:
        held: Any = published.load(given)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{name}: {error}") from None
    if not isinstance(held, published.PublishedPolicy):
        raise InvalidArgument(f"{name}: policies of one table are known; others are logged")
    found = Policy(held.probabilities, held.actions, 0, held.n_actions)
    if found.sizes != (spec.horizon, spec.states, spec.actions):
        raise InvalidArgument(f"{name} is of another world: it has sizes {found.sizes}")
    return found
