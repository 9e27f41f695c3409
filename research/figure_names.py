"""The figures by name. Each is a module whose ``main(["--output=FILE"])`` draws it into a PNG."""

from __future__ import annotations

from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "counter-errors": "research.counter_errors",
    "dosing-trajectories": "research.dosing_trajectories",
    "epsilon-cost": "research.epsilon_cost",
    "first-agent": "research.first_agent",
    "functional-baselines": "research.functional_baselines",
    "functional-curves": "research.functional_curves",
    "functional-noise": "research.functional_noise",
    "functional-q": "research.functional_q_pictures",
    "linear-budgets": "research.linear_budgets",
    "linear-comparison": "research.linear_comparison",
    "lq-budget": "research.lq_budget",
    "lq-orders": "research.lq_orders",
    "mixture-orders": "research.mixture_orders",
    "running-count": "research.running_count",
    "tabular-orders": "research.tabular_orders",
}
