"""The figures by name. Each is a module whose ``main(["--output=FILE"])`` draws it into a PNG."""

from __future__ import annotations

from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "counter-errors": "tacit.experiments.counter_errors",
    "dosing-trajectories": "tacit.experiments.dosing_trajectories",
    "epsilon-cost": "tacit.experiments.epsilon_cost",
    "first-agent": "tacit.experiments.first_agent",
    "functional-baselines": "tacit.experiments.functional_baselines",
    "functional-noise": "tacit.experiments.functional_noise",
    "functional-q": "tacit.experiments.functional_q_pictures",
    "linear-budgets": "tacit.experiments.linear_budgets",
    "linear-comparison": "tacit.experiments.linear_comparison",
    "lq-budget": "tacit.experiments.lq_budget",
    "mixture-orders": "tacit.experiments.mixture_orders",
    "running-count": "tacit.experiments.running_count",
    "tabular-orders": "tacit.experiments.tabular_orders",
}
