"""What a guarantee says, against the model, what was recorded, and our own account."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from tacit.privacy.statistic import WHOLE_EPISODE
from tacit.testing.check_agent import Outcome
from tests.own_path import own_rules as own
from tests.own_path import recorded as real

_NAME = "words"


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """Of a fresh agent, of one that ran, and of other numbers of episodes."""
    wrong = []
    for name, options in trial.models:
        agent = trial.make(**options)
        wrong += [f"{name}: {w}" for w in _said(agent.guarantee, agent.privacy)]
    if trial.privacy.joint:
        run = trial.played[0]
        agent, answers = run.agents[0], run.by_agent()[0]
        wrong += [f"after a run: {w}" for w in _said(agent.guarantee, trial.privacy)]
        wrong += _recorded(agent.guarantee, answers)
    simulated = trial.trial.make().guarantee
    if not simulated.simulation_only or not str(simulated).startswith("Simulation only"):
        wrong.append("a simulation does not say that it is one")
    return [real.judged(_NAME, wrong)]


def _said(guarantee: Any, privacy: Any) -> list[str]:
    found, g = [], privacy.episodes_per_user
    bits = bool(privacy.reports_bits)
    delta = 0.0 if privacy.local and privacy.needs_l1 else privacy.delta
    unit = WHOLE_EPISODE if g == 1 else f"one user with at most {g} episodes"
    expected = {
        "model": "joint" if privacy.joint else "local",
        "epsilon": privacy.epsilon,
        "delta": delta,
        "relation": privacy.relation,
        "sampler": "bits" if bits else "exact",
        "episodes_per_user": g,
        "simulation_only": False,
        "releases": None if privacy.joint else g,
    }
    for name, value in expected.items():
        if getattr(guarantee, name) != value:
            found.append(f"the guarantee's {name} is {getattr(guarantee, name)!r}, not {value!r}")
    if (guarantee.mu is None) != bool(privacy.needs_l1):
        found.append(f"the guarantee's mu is {guarantee.mu!r}")
    elif guarantee.mu is not None:
        implied = own.hockey_stick(guarantee.mu, guarantee.epsilon)
        if implied > Decimal(guarantee.delta) * Decimal("1.000000001"):
            found.append(f"mu {guarantee.mu:.9g} implies a delta of {implied:.9g}")
        if guarantee.mu < own.largest_mu(privacy.epsilon, privacy.delta) * (1.0 - 1e-7):
            found.append("the guarantee's mu is smaller than what its noise is for")
    if unit not in guarantee.unit and (g > 1 or privacy.local):
        found.append(f"the unit is {guarantee.unit!r}")
    return found + _text(guarantee, privacy, g)


def _text(guarantee: Any, privacy: Any, g: int) -> list[str]:
    found, text = [], str(guarantee)
    numbers = re.search(r"\(([0-9.e+-]+), ([0-9.e+-]+)\)-", text)
    printed = tuple(float(n) for n in numbers.groups()) if numbers else (0.0, 0.0)
    if printed[0] < guarantee.epsilon or printed[1] < guarantee.delta:
        found.append(f"it prints {printed} for {guarantee.epsilon!r}, {guarantee.delta!r}")
    factor = re.search(r"factor e\^[0-9.e+-]+ = ([0-9.e+-]+)", text)
    if factor and Decimal(factor[1].rstrip(".")) < Decimal(guarantee.epsilon).exp():
        found.append(f"it prints a factor of {factor[1]}")
    needed = {
        f"{guarantee.model} differential privacy": True,
        guarantee.unit: True,
        guarantee.relation.value: True,
        "took part, when and how often, is not hidden": True,
        "by an exact sampler": guarantee.sampler == "exact",
        "pure ": guarantee.delta == 0,
        f"up to {g:,} times": g > 1,
        "Simulation only": False,
    }
    found += [
        f"it {'does not say' if wanted else 'says'} {words!r}"
        for words, wanted in needed.items()
        if (words in text) != wanted
    ]
    noise = "Laplace" if privacy.needs_l1 else "Gaussian"
    if not privacy.reports_bits and noise.lower() not in guarantee.mechanism.lower():
        found.append(f"the mechanism is {guarantee.mechanism!r}, its noise is {noise}")
    return found


def _recorded(guarantee: Any, answers: list[Any]) -> list[str]:
    """What it says of unit and mechanism is what was recorded of a run."""
    found = []
    for a in answers:
        statistic = a.record.statistic
        whole = statistic.private_columns is None and statistic.group_size == 1
        if statistic.protects not in guarantee.unit and guarantee.episodes_per_user == 1:
            found.append(
                f"{statistic.name} protects {statistic.protects!r}, not {guarantee.unit!r}"
            )
        if not whole and guarantee.unit == WHOLE_EPISODE:
            found.append(f"{statistic.name} is calibrated for less than a whole episode")
        kind = "counter" if a.record.stream is not None else "budget filter"
        if kind not in guarantee.mechanism:
            found.append(f"the mechanism is {guarantee.mechanism!r}, and there was a {kind}")
    return list(dict.fromkeys(found))
