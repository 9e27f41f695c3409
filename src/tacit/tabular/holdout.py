"""Trials with a holdout: how much better than the baseline people were served.

The answer follows from released returns (:mod:`tacit.core.arms`). It is given at looks that are
fixed in advance, as shares of the declared users, with levels by O'Brien and Fleming (Lan and
DeMets, 1983): all intervals hold together, and the last is hardly wider than if it were alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.core.arms import BASELINE, Arms, ArmState, Evidence
from tacit.privacy.errors import InvalidArgument


@dataclass(frozen=True)
class TrialAnswer:
    """How much better people were served than by the baseline. Public."""

    gain: float = math.nan  # mean return less that of the baseline's users; of blocks, weighted
    low: float = -math.inf  # its interval, which holds at all looks together
    high: float = math.inf
    users: int = 0  # served until this look
    next_look: int = 0  # users until the next one; 0 after the last
    live: int = -1  # version whose policy replaced the baseline
    over: float = math.nan  # gain of the newest policy that was tried over who served beside it
    surely_over: float = -math.inf  # lower bound of it, for all versions together

    def plain(self) -> dict[str, Any]:
        """Its numbers as JSON values; None of what is not known."""
        return {name: x if math.isfinite(x) else None for name, x in vars(self).items()}


def look_levels(arms: Arms, confidence: float = 0.95) -> list[float]:
    """Two-sided levels of the looks, which add up to 1 - confidence at most."""
    ends = 2.0 * ndtr(ndtri((1.0 - confidence) / 2.0) / np.sqrt(arms.looks))
    return [float(level) for level in np.diff(ends, prepend=0.0)]


def answer(agent: Any, confidence: float = 0.95) -> TrialAnswer:
    """The answer of an agent at the last look that was passed."""
    state, arms, served = agent.state, agent.algorithm.problem.arms, agent.served
    if not isinstance(state, ArmState):
        raise InvalidArgument("this agent tries nothing: give it a baseline or a holdout")
    looks = [math.ceil(look * agent.users - 1e-9) for look in arms.looks]
    past, found = sum(look <= served for look in looks), TrialAnswer(live=agent.plan.memory.since)
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
