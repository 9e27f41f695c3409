"""How many users stand out of the noise: before anybody was asked, from public numbers."""

from __future__ import annotations

import math

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.local import flip_probability
from tacit.privacy.models import LocalDP, Privacy
from tacit.privacy.noise import grid_step, safe_scale
from tacit.privacy.statistic import Statistic


def users_above_noise(statistic: Statistic, privacy: Privacy, multiple: float) -> int:
    """How many users a block needs to be so many times the noise of one sum; 1 without noise.

    The multiple is in standard deviations of a sum with weight 1.
    """
    if not privacy.private:
        return 1
    if privacy.local:
        # n reports have noise sqrt(n) s together, so n must exceed a multiple of s^2.
        return math.ceil((multiple * _report_scale(statistic, privacy)) ** 2)
    return math.ceil(multiple * release_noise(statistic, privacy, 1))


def release_noise(statistic: Statistic, privacy: Privacy, users: int) -> float:
    """Standard deviation of the noise in one sum of weight 1 over a block of ``users`` users."""
    if not privacy.private:
        return 0.0
    if privacy.local:
        laplace = math.sqrt(1.0 if privacy.mechanism == "gaussian" else 2.0)
        if privacy.mechanism == "randomised response":
            # About a quarter of variance per report, over the share of reports that tell.
            tells = 0.5 - flip_probability(statistic, privacy)
            return math.sqrt(users) * 0.5 / tells
        return laplace * _report_scale(statistic, privacy) * math.sqrt(users)
    if privacy.pure:
        sensitivity = statistic.sensitivity(privacy.relation, "l1")
        return math.sqrt(2.0) * sensitivity / privacy.episode_limit
    return statistic.sensitivity(privacy.relation, "l2") / math.sqrt(privacy.episode_limit)


def _report_scale(statistic: Statistic, privacy: LocalDP) -> float:
    return safe_scale(
        statistic.sensitivity(Relation.REPLACE_ONE, privacy.norm), privacy.report_cost
    )


def check_question(statistic: Statistic, privacy: Privacy, size: str) -> None:
    """Refuses what no noise of a model hides, before anything is made and anybody comes.

    The sensitivity of what will be asked is made of the argument that ``size`` names.
    """
    if not privacy.private:
        return
    try:
        statistic.sensitivity(Relation.REPLACE_ONE, privacy.norm)
        grid_step(statistic, privacy.norm)
    except InvalidArgument as error:
        raise InvalidArgument(f"privacy and {size} do not go together: {error}") from None
