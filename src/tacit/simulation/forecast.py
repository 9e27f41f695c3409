"""Users that agents on vectors take, by a rule of thumb: before there is a world to simulate.

Noise shrinks as one over users, whatever the world is, so users times mu is what a world costs. The
rules are scaled from stored tables, of runs whose median reached 90 % of what there is to gain:

* ``model_posterior``: 16 first blocks, of 120 / mu users each; ``research/smooth_control.json`` has
  pendulum and CartPole at 1,100 users with epsilon 10 and 10,000 with epsilon 1. Without privacy
  the first block has 16.
* ``fitted_functional_q``: users times mu of 10 with one coordinate, 57 with two and 134 with four,
  and in between or beyond by powers; ``research/continuous_held_out.json`` has line, plane and
  CartPole. Without privacy mu counts as 3.

A world that is hard to explore takes more: simulate one like yours with ``tacit plan --world``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy.arguments import instance_of, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy, PrivacyModel

# Of model_posterior: first blocks, users of one times mu, and at least.
_BLOCKS, _FIRST, _LEAST = 16, 120.0, 16
# Of fitted_functional_q: coordinates, and users times mu.
_COORDINATES, _COSTS = (1.0, 2.0, 4.0), (10.0, 57.0, 134.0)
_PLAIN_MU = 3.0
AGENTS = ("model_posterior", "fitted_functional_q")
"""Those that there is a rule for."""


@dataclass(frozen=True)
class Forecast:
    """How many users, and why; ``None`` where there is no rule."""

    users: int | None
    why: str

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {"users": self.users, "why": self.why}


def forecast(coordinates: int, agent: str, privacy: Privacy) -> Forecast:
    """Users until the greedy policy has 90 %, for an agent on so many coordinates.

    >>> from tacit import JointDP
    >>> forecast(2, "model_posterior", JointDP(10.0, 1e-6)).users
    1040
    """
    D = whole_number("coordinates", coordinates)
    instance_of("privacy", privacy, PrivacyModel)
    if agent not in AGENTS:
        return Forecast(None, f"there is no rule of thumb for {agent}, only for {AGENTS}")
    if privacy.local:
        return Forecast(None, "no rule of thumb is known of local DP")
    if privacy.private and privacy.pure:
        raise InvalidArgument("delta must be > 0: rules of thumb are of Gaussian noise")
    mu = privacy.budget.mu if privacy.private else math.inf
    if agent == "model_posterior":
        first = max(_LEAST, math.ceil(_FIRST / mu)) if math.isfinite(mu) else _LEAST
        return Forecast(_BLOCKS * first, f"{_BLOCKS} first blocks of {first:,} users")
    cost = _cost(D)
    strength = mu if math.isfinite(mu) else _PLAIN_MU
    return Forecast(math.ceil(cost / strength), f"users times mu of {cost:.0f}")


def _cost(coordinates: int) -> float:
    """Users times mu by powers of the number of coordinates, as in the last part beyond it."""
    x, y = np.log(_COORDINATES), np.log(_COSTS)
    at = math.log(coordinates)
    if at > x[-1]:
        return float(np.exp(y[-1] + (at - x[-1]) * (y[-1] - y[-2]) / (x[-1] - x[-2])))
    return float(np.exp(np.interp(at, x, y)))
