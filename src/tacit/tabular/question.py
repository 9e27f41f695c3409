"""Queries to devices that report under local DP, as JSON for clients in other languages.

Everything in a question is public: what is counted, and how much noise is added. A device adds the
noise itself; ``clients/js/report.js`` does it in a browser, and refuses a question whose noise does
not keep what its budget promises.
"""

from __future__ import annotations

import json
from typing import Any

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.local import noise_scale
from tacit.privacy.models import LocalDP
from tacit.privacy.noise import grid_step
from tacit.privacy.statistic import Statistic
from tacit.privacy.validation import instance_of
from tacit.tabular.visits import VisitCounts


def question(statistic: Statistic, privacy: LocalDP) -> str:
    """The query of ``agent.statistic`` to the devices of a local agent, as JSON.

    >>> from tacit import LocalDP
    >>> asked = question(VisitCounts(2, 2, 3), LocalDP(1.0, 1e-6))
    >>> json.loads(asked)["statistic"], json.loads(asked)["mechanism"]
    ('visit counts', 'gaussian')
    """
    instance_of("privacy", privacy, LocalDP)
    if type(statistic) is not VisitCounts or statistic.apart:
        raise InvalidArgument(
            f"questions for other languages are about visit counts, not {statistic.name}: UCBVI "
            "and its kin ask for them"
        )
    if privacy.reports_bits:
        raise InvalidArgument(
            f"questions for other languages have exact Gaussian or Laplace noise, not {privacy!r}"
        )
    step = grid_step(statistic, privacy.norm)
    policy: Any = statistic.policy
    return json.dumps(
        {
            "tacit": "question",
            "format": 1,
            "statistic": statistic.name,
            "states": statistic.states,
            "actions": statistic.actions,
            "horizon": statistic.horizon,
            "pooled": statistic.pooled,
            "cap": statistic.cap,
            "weight": statistic.weight,
            "policy": None if policy is None else policy.tolist(),
            "version": statistic.version,
            "mechanism": privacy.mechanism,
            "epsilon": privacy.epsilon,
            "delta": 0.0 if privacy.needs_l1 else privacy.delta,
            "episodes_per_user": privacy.episodes_per_user,
            "step": step,
            "scale": noise_scale(statistic, privacy) / step,
        }
    )
