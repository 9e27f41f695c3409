"""Conversions, sums and the ledger, by an accountant that shares no code with the package's.

Deltas are computed from the normal integral in sixty digits (:mod:`tests.own_path.own_rules`),
and by Google's dp-accounting where it is installed. What a release really cost is its sensitivity
over the scale that was asked of the source of noise.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np

from tacit.privacy.budget import Budget
from tacit.privacy.errors import BudgetExceeded
from tacit.privacy.gaussian_dp import compose, delta_from_mu, epsilon_from_mu
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block
from tacit.store import ledger
from tacit.testing.check_agent import Outcome
from tests.own_path import own_rules as own
from tests.own_path import recorded as real

_BUDGETS = ((1.0, 1e-6), (0.1, 1e-3), (0.3, 1e-9), (4.0, 1e-5), (12.0, 1e-12))


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """Budgets to mu and back, groups, several asks, and this agent's ledger."""
    wrong = _conversions(trial)
    if trial.privacy.joint:
        wrong += _several(trial) + _ledger(trial)
    return [real.judged("accounts", wrong)]


def _conversions(trial: real.RealTrial) -> list[str]:
    found, privacy, mine = [], trial.privacy, own.episode_limit(trial.privacy)
    for epsilon, delta in dict.fromkeys(((privacy.epsilon, privacy.delta), *_BUDGETS)):
        if delta == 0.0:
            continue
        mu, wanted, name = Budget(epsilon, delta).mu, Decimal(delta), f"({epsilon:g}, {delta:g})"
        if own.hockey_stick(mu, epsilon) > wanted * Decimal("1.0000000001"):
            found.append(f"the mu of {name} is too large: {mu!r}")
        if own.hockey_stick(mu * (1.0 + 1e-7), epsilon) <= wanted:
            found.append(f"the mu of {name} wastes budget: {mu!r}")
        for m in (mu, 0.4 * mu, 3.0 * mu):
            exact, theirs = float(own.hockey_stick(m, epsilon)), delta_from_mu(m, epsilon)
            if not exact * (1.0 - 1e-13) <= theirs <= exact * (1.0 + 1e-8) + 1e-300:
                found.append(f"delta of mu {m:g} at {epsilon:g} is {theirs!r}")
        back = epsilon_from_mu(mu, delta)
        if not epsilon * (1.0 - 1e-7) <= back <= epsilon * (1.0 + 1e-9):
            found.append(f"epsilon of mu {mu:g} at {delta:g} is {back!r}, not {epsilon:g}")
        if importlib.util.find_spec("dp_accounting") is not None:
            from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

            google = GaussianPrivacyLoss(1.0 / mu).get_delta_for_epsilon(epsilon)
            if not math.isclose(google, delta, rel_tol=1e-4, abs_tol=1e-15):
                found.append(f"by dp-accounting mu {mu:g} is ({epsilon:g}, {google:g}), not {name}")
    if abs(compose(0.3, 0.4, 1.2) - 1.3) > 1e-14:
        found.append("0.3, 0.4 and 1.2 do not compose to 1.3")
    limit = privacy.episode_limit if privacy.joint else privacy.report_cost**trial.power
    if not mine * (1.0 - 1e-7) <= limit <= mine * (1.0 + 1e-10):
        found.append(f"an episode may cost {limit!r}, by our own account {mine!r}")
    return found


def _several(trial: real.RealTrial) -> list[str]:
    """Asks of one block add up, tiny ones count, and more than there is is refused."""
    privacy, limit, statistic = trial.privacy, own.episode_limit(trial.privacy), ClippedSum(1)
    data, curator, found = Block(3, {"values": np.full((3, 1), 0.5)}), privacy.curator(), []
    block, before, whole = curator.add(data), Fraction(0), math.sqrt(limit)
    # Less than 1e-10 would need more noise than fits; without a delta all goes at once.
    mus = [0.5, 1e-7, 0.25, max(1e-9, 1e-10 / whole), 0.125]
    costs = [None] if privacy.pure else [mu * whole for mu in mus]
    for mu in costs:
        curator.release(statistic, block=block, mu=mu)
        if curator._spent[block] <= before:
            found.append(f"a release of mu {mu} cost nothing")
        before = curator._spent[block]
    due = Fraction(limit) if privacy.pure else own.exact_sum(costs, 2)  # type: ignore[arg-type]
    # Each cost is a float: half a unit in the last place.
    if not due * (1 - Fraction(1, 2**50)) <= before <= due * (1 + Fraction(1, 2**50)):
        found.append(f"asks that cost {float(due)!r} together are {float(before)!r} on the account")
    if curator.spent(block) < before:
        found.append("what is said to be spent is rounded down")
    left = math.sqrt(max(float(limit - before), 0.0))
    more = [None] if privacy.pure else [left * (1 + 1e-6), whole * (1 + 1e-6)]
    for mu in more:
        with contextlib.suppress(BudgetExceeded):
            curator.release(statistic, block=block, mu=mu)
            found.append(f"a release was made that costs more than is left: {mu}")
    return found


def _ledger(trial: real.RealTrial) -> list[str]:
    """Every release of a run is on the ledger, for what it really cost."""
    run = trial.play()
    limit, found, agent = own.episode_limit(trial.privacy), list[str](), run.agents[0]
    due, paid = dict[int, float](), dict[int, Fraction]()
    for a in run.answers:
        for b, cost in a.costs.items():
            due[b] = due.get(b, 0.0) + cost**trial.power
    with agent.store.read() as db:
        for entry in ledger.read(db, agent.run_name):
            if entry.event == "release":
                block = entry.body["block"]
                paid[block] = paid.get(block, Fraction(0)) + Fraction(entry.body["cost"])
    for b, cost in due.items():
        on_file = paid.get(b, Fraction(0))
        if on_file < cost * (1.0 - 1e-9):
            found.append(f"block {b} is charged {float(on_file):.9g}, its releases cost {cost:.9g}")
        if max(on_file, Fraction(cost)) > limit * (1.0 + 1e-9):
            found.append(f"block {b} spent {max(cost, float(on_file)):.9g}, it has {limit:.9g}")
    return found + ledger.verify(agent.store)
