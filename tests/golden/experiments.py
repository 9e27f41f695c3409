"""What is recorded of experiments: the data of every figure and table, at very small sizes."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import tacit
from tacit.registry import build_world, choose_agent

_HOMES = ("research", "tacit.simulation")
_RESULT = (
    *("served", "values", "greedy_values", "regret", "losses", "greedy_losses", "users_to_90"),
    *("greedy_users_to_90", "final_value", "optimal_value", "baseline_value", "reference_value"),
    *("score", "releases"),
)
# What the recordings call so is of the greedy policy.
_NAMED = {"final_value": "greedy_value", "score": "greedy_score"}


def experiment(name: str) -> ModuleType:
    """A module of experiments, wherever it is."""
    for home in _HOMES:
        try:
            return importlib.import_module(f"{home}.{name}")
        except ModuleNotFoundError as error:
            if error.name not in (home, f"{home}.{name}"):
                raise
    raise ModuleNotFoundError(f"no experiment {name}")


def result_data(result: Any) -> dict[str, Any]:
    """What is reproducible of a result."""
    return {name: getattr(result, _NAMED.get(name, name)) for name in _RESULT}


def _run_data(run: Any) -> list[Any]:
    distance = getattr(run, "distance", None)
    return [result_data(run.result), run.switches, run.releases, run.statistic, distance]


# Figures.


def _epsilon_cost() -> Any:
    module = experiment("epsilon_cost")
    world = build_world("riverswim:states=4,horizon=8")
    found: dict[str, Any] = {}
    costs: dict[str, dict[Any, Any]] = {}
    for line in module.LINES:
        costs[line.label] = {}
        for epsilon in (0.1, 10.0, None):
            privacy = line.privacy(epsilon)
            cost = module.measure(line.agent, line.options, privacy, world, 20_000, [0, 1])
            costs[line.label][epsilon] = cost
            found[f"{line.label}, {epsilon}"] = [cost.users, cost.settled, line.users(epsilon)]
    return [found, module.table(costs)]


def _running_count() -> Any:
    module = experiment("running_count")
    rms = module.rms
    stream = module.make_stream(10_000, 60, 0)
    budgets = tacit.Budget(1.0, 1e-6), tacit.Budget(1.0, 0.0)
    curves = module.make_curves(stream, *budgets, 2, 0)
    return [
        [stream.served, stream.items],
        [[c.kind, c.std, c.errors, c.memory, rms(c.std), rms(c.errors)] for c in curves],
    ]


def _counter_errors() -> Any:
    module = experiment("counter_errors")
    return {
        f"{budget}, {kind}, {n}": module.worst_std(budget, kind, n)
        for budget, kinds in (module.GAUSSIAN, module.LAPLACE)
        for kind in kinds
        for n in module.lengths(256)
    }


def _tabular_orders() -> Any:
    module = experiment("tabular_orders")
    lines = (*module.PRACTICAL, *module.OPTIMISERS)
    return [[line.label, line.regrets(2_000, 1)] for line in lines]


def _tabular_orders_quick() -> Any:
    module = experiment("tabular_orders")
    measured = module.measure(quick=True)
    rows = [[line.label, found] for line, found in measured.regrets.items()]
    return [measured.users, rows, measured.budgets, module.table(measured)]


def _comparison(name: str) -> Any:
    module = experiment(name)
    measured = module.measure(runs=2, users=400, workers=1)
    rows = [
        [world, getattr(key, "label", key), [result_data(result) for result in results]]
        for world, found in measured.results.items()
        for key, results in found.items()
    ]
    return [rows, module.table(measured), module.what_holds(measured)]


def _mixture_orders() -> Any:
    module = experiment("mixture_orders")
    found = []
    for name, panel in module.panels(quick=True).items():
        for line in panel.lines:
            for points in panel.points:
                run = replace(line.job(points[0]), users=300).run(0)
                found.append([name, line.label, points[0].random, _run_data(run)])
    return found


def _mixture_orders_quick() -> Any:
    module = experiment("mixture_orders")
    measured = module.measure(quick=True, runs=1, workers=1)
    rows = [
        [name, line.label, regrets]
        for name, found in measured.regrets.items()
        for line, regrets in found.items()
    ]
    return [rows, module.table(measured)]


def _by_job(name: str, users: int) -> Any:
    module = experiment(name)
    measured = module.measure(runs=1, users=users, workers=1)
    rows = [[result_data(result) for result in found] for found in measured.results.values()]
    return [rows, module.table(measured)]


def _dosing_trajectories() -> Any:
    module = experiment("dosing_trajectories")
    measured = module.measure(users=200, shown=3)
    courses = [[c.title, c.cost, c.effects, c.doses] for c in measured.courses]
    return [courses, result_data(measured.result), measured.loss, module.table(measured)]


def _functional_baselines() -> Any:
    module = experiment("functional_baselines")
    measured = module.measure(runs=1, users=12, workers=1)
    rows = [
        [epsilon, line.kind, *several]
        for epsilon, found in measured.returns.items()
        for line, several in found.items()
    ]
    return [measured.sizes, rows, measured.optimal, measured.uniform, module.table(measured)]


def _functional_q_pictures() -> Any:
    module = experiment("functional_q_pictures")
    measured = module.measure(10, 20)
    names = ("states", "q", "std", "truth", "axis", "values", "arrows", "best")
    scores = [measured.line.score, measured.plane.score]
    return [{name: getattr(measured, name) for name in names}, scores, module.table(measured)]


def _first_agent() -> Any:
    module = experiment("first_agent")
    private, why = module.learn(tacit.JointDP(1.0, 1e-6), 50_000, 1)
    plain, _ = module.learn(tacit.NonPrivate(), 2_000, 1)
    return [result_data(private), result_data(plain), module.words(private, plain), why]


# Commands.


def _compare() -> Any:
    module = experiment("compare")
    entries = [
        module.Contender("private", choose_agent("ucbvi"), tacit.JointDP(1.0, 1e-6)),
        module.Contender("local", choose_agent("ucbpo"), tacit.LocalDP(5.0, 1e-6)),
        module.Contender("plain", choose_agent("ucbvi"), tacit.NonPrivate()),
    ]
    world = build_world("riverswim:states=4,horizon=8")
    made = module.compare(world, entries, 3_000, [0, 1], progress=False)
    whole = made.to_dict()
    del whole["seconds"]
    rows = [[result_data(result) for result in results] for results in made.results]
    return [whole, rows, module.rows(made.labelled())]


def _plan() -> Any:
    module = experiment("plan")
    joint = tacit.JointDP(2.0, 1e-6)
    box = tacit.JointDP(10.0, 1e-6)
    chosen = (
        ("riverswim:states=3,horizon=6", "ucbvi", joint, None),
        ("simplex:dimension=3,states=8,actions=3,horizon=4", "lsvi_ucb", joint, 2_000),
        ("line:horizon=8", "fitted_functional_q", box, None),
    )
    plans = [
        module.plan(
            build_world(world),
            choose_agent(agent),
            privacy,
            users,
            seeds=range(2),
            most=100_000 if agent == "ucbvi" else 100,
            progress=False,
        )
        for world, agent, privacy, users in chosen
    ]
    sizes, agent = module.Sizes(3, 2, 4), choose_agent("ucbvi")
    plans.append(module.plan(sizes, agent, joint, 3_000, seeds=range(2), progress=False))
    return [{k: v for k, v in made.to_dict().items() if k != "seconds"} for made in plans]


def _plots() -> Any:
    module = experiment("plots")
    world = build_world("riverswim:states=3,horizon=4")
    agents = [
        choose_agent("ucbvi").build(world.spec, 2_000, privacy, 0)
        for privacy in (tacit.JointDP(1.0, 1e-6), tacit.NonPrivate())
    ]
    one, two = (tacit.run(agent, world, progress=False) for agent in agents)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.png"
        module.plot_result(one, path)
        alone = path.read_bytes()
        module.plot_results({"private": [one], "not private": [two]}, path)
        return [np.frombuffer(data, dtype=np.uint8) for data in (alone, path.read_bytes())]


# Tables.


def _held_out() -> Any:
    module = experiment("held_out")
    rows = list(module.measure_worlds(["riverswim, 8 states"], [0], {}))
    costs = [[cost.users, cost.settled] for r in rows for cost in (r.private, r.plain, r.greedy)]
    return [costs, [row.score for row in rows], module.table(rows)]


def _held_out_baselines() -> Any:
    return list(experiment("held_out").measure_baselines(["riverswim, 8 states"], [0]))


def _jobs_of(case: Any) -> Iterable[Any]:
    jobs = case.jobs
    return jobs.values() if isinstance(jobs, dict) else jobs


def _table(name: str, table: str, users: int) -> Any:
    """Every job of a table, for few users."""
    made = experiment(name).TABLES[table]()
    jobs = dict.fromkeys(
        replace(job, users=min(users, job.users))
        for case in made.cases
        for job in _jobs_of(case)
        if not job.world.startswith("cartpole")  # whose values are slow
    )
    cells = [case.cells for case in made.cases]
    declared = [[job.users for job in _jobs_of(case)] for case in made.cases]
    return [made.title, cells, declared, [_run_data(job.run(0)) for job in jobs]]


def _small_tables() -> Any:
    """Texts of tables, and what is stored of them."""
    module = experiment("lq_held_out")
    found: list[Any] = []
    for _, table, rows in module.measure(["agents", "local"], 1, 1, quick=True):
        found.append([module.markdown(table, rows), [row.to_dict() for row in rows]])
    module = experiment("continuous_held_out")
    for _, table, rows in module.measure(["agents", "protections"], 1, 1, quick=True):
        found.append([module.markdown(table, rows), [row.to_dict() for row in rows]])
    shared, module = experiment("tables"), experiment("linear_held_out")
    tables = {"agents": module.TABLES["agents"]}
    for table, rows in shared.measure(tables, 1, 1, quick=True).values():
        found.append([shared.markdown(table, rows), [row.to_dict() for row in rows]])
    return found


def _audit(agent: str, model: str) -> Any:
    row = experiment("audit_table").audited(agent, model, runs=20)
    return [row.agent, row.model, row.refused is None, row.passed, row.ratio, row.failures]


EXPERIMENTS: dict[str, Callable[[], Any]] = {
    "epsilon_cost": _epsilon_cost,
    "running_count": _running_count,
    "counter_errors": _counter_errors,
    "tabular_orders": _tabular_orders,
    "tabular_orders, quick": _tabular_orders_quick,
    "linear_comparison": partial(_comparison, "linear_comparison"),
    "linear_budgets": partial(_comparison, "linear_budgets"),
    "mixture_orders": _mixture_orders,
    "mixture_orders, quick": _mixture_orders_quick,
    "lq_budget": partial(_by_job, "lq_budget", 500),
    "dosing_trajectories": _dosing_trajectories,
    "functional_noise": partial(_by_job, "functional_noise", 3),
    "functional_baselines": _functional_baselines,
    "functional_q_pictures": _functional_q_pictures,
    "first_agent": _first_agent,
    "compare": _compare,
    "plan": _plan,
    "plots": _plots,
    "held_out": _held_out,
    "held_out, baselines": _held_out_baselines,
    "tables, written out": _small_tables,
    "audit, ucbvi": partial(_audit, "ucbvi", "joint"),
    "audit, lsvi_ucb": partial(_audit, "lsvi_ucb", "local"),
    **{
        f"{name}, {table}": partial(_table, name, table, users)
        for name, users, tables in (
            (
                *("linear_held_out", 200),
                ("agents", "local", "weights", "noise", "switching", "statistics"),
            ),
            ("mixture_held_out", 200, ("agents", "local", "statistics")),
            ("lq_held_out", 200, ("agents", "local", "honesty")),
            (
                *("continuous_held_out", 12),
                ("agents", "paper", "online", "protections"),
            ),
        )
        for table in tables
    },
}
"""By name."""

SLOW = (
    *("tabular_orders, quick", "linear_comparison", "linear_budgets", "mixture_orders, quick"),
    *("functional_baselines", "plots", "held_out, baselines", "tables, written out"),
    *("audit, ucbvi", "audit, lsvi_ucb", "linear_held_out, agents", "linear_held_out, switching"),
    *("mixture_held_out, agents", "mixture_held_out, statistics"),
    *("lq_held_out, agents", "lq_held_out, honesty"),
    "linear_held_out, weights",
    *("continuous_held_out, paper", "continuous_held_out, online"),
)
"""What takes long."""
