"""The figures by name. Each is a module whose ``main(["--output=FILE"])`` draws it into a PNG."""

from __future__ import annotations

from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "counter-errors": "tacit.experiments.counter_errors",
    "epsilon-cost": "tacit.experiments.epsilon_cost",
    "first-agent": "tacit.experiments.first_agent",
    "linear-budgets": "tacit.experiments.linear_budgets",
    "linear-comparison": "tacit.experiments.linear_comparison",
    "mixture-orders": "tacit.experiments.mixture_orders",
    "running-count": "tacit.experiments.running_count",
    "tabular-orders": "tacit.experiments.tabular_orders",
}
