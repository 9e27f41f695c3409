"""Warnings that a privacy engineer would expect: what is allowed, and hardly ever meant."""

from __future__ import annotations

import warnings

from tacit.privacy.errors import TacitWarning
from tacit.privacy.models import Privacy

MOST_EPSILON = 10.0
"""Above it a factor of e^epsilon, more than 22,000, hides little."""
DELTA_TIMES_USERS = 0.1
"""A delta of 1 / users would allow to publish everything of a user drawn at random."""


def warn(message: str, stacklevel: int = 3) -> None:
    """Says it where whoever called sees it."""
    warnings.warn(message, TacitWarning, stacklevel=stacklevel)


def warn_of_budget(privacy: Privacy, users: int) -> None:
    """Of a budget for real people that protects them less than it seems to."""
    if not privacy.private:
        return
    if privacy.epsilon > MOST_EPSILON:
        warn(f"epsilon is {privacy.epsilon:g}: above {MOST_EPSILON:g} it promises little", 5)
    if privacy.delta * users > DELTA_TIMES_USERS:
        warn(
            f"delta is {privacy.delta:g} for {users:,} users: it should be far below 1 / users, at "
            f"most {DELTA_TIMES_USERS / users:.1g}, as it allows that one user in 1 / delta is "
            "revealed",
            5,
        )
