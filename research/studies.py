"""Every table of users, scores and returns on docs/results.md and in the notes, by name.

``python -m research.studies NAME`` runs the rows that are not stored yet. Constants of agents were
chosen on other seeds, and on other worlds where a page says so. A world with ``SEED`` in its text
is drawn anew for every run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from research.study import (
    DELTA,
    PLAIN,
    Case,
    Columns,
    Runs,
    Study,
    amount,
    joint,
    seeded,
    spread,
    study_main,
    world_of,
)
from tacit.privacy.models import DistributedDP, LocalDP, NonPrivate, Privacy
from tacit.registry import choose_agent
from tacit.simulation.plan import fewest_users
from tacit.simulation.result import Result

Cell = Callable[[Case, Runs], str]
DECILES, RANGE = (0.1, 0.9), (0.0, 1.0)


def local(epsilon: float) -> LocalDP:
    """Local DP at the usual delta."""
    return LocalDP(epsilon, DELTA)


def budget(privacy: Privacy) -> str:
    """A budget in a cell.

    >>> budget(joint(1.0)), budget(joint(1.0, 0.0)), budget(PLAIN)
    ('1, 1e-6', '1, pure', 'none')
    """
    if isinstance(privacy, NonPrivate):
        return "none"
    delta = f"{privacy.delta:.0e}".replace("e-0", "e-") if privacy.delta else "pure"
    return f"{privacy.epsilon:g}, {delta}"


def epsilon_of(privacy: Privacy) -> str:
    """Epsilon in a cell."""
    return "not private" if isinstance(privacy, NonPrivate) else f"{privacy.epsilon:g}"


# Columns.


def of(
    what: Callable[[Result], float | None],
    ends: tuple[float, float] | None = (0.25, 0.75),
    name: str = "",
    words: Callable[[float], str] = amount,
) -> Cell:
    """A median, with two quantiles unless they are ``None``; a dash where there is no such run."""

    def cell(case: Case, runs: Runs) -> str:
        return spread([what(run) for run in runs[name]], ends, words) if name in runs else "-"

    return cell


def serving(run: Result) -> float | None:
    """Users to 90 % of the policy that serves."""
    return run.users_to_90


def greedy(run: Result) -> float | None:
    """Users to 90 % of the greedy policy."""
    return run.greedy_users_to_90


def middle(values: Sequence[float | None]) -> float:
    """The median; ``None`` counts as infinite."""
    return float(median(math.inf if value is None else value for value in values))


def ratio(case: Case, runs: Runs) -> str:
    """How many times the users it takes with privacy."""
    private, plain = (middle(list(map(serving, runs[name]))) for name in ("", "not private"))
    return "-" if math.isinf(private) or math.isinf(plain) else f"{private / plain:,.0f}"


def ninth(what: Callable[[Result], float | None], name: str = "") -> Cell:
    """The median, and the ninth of ten runs in brackets."""

    def cell(case: Case, runs: Runs) -> str:
        users = sorted(math.inf if n is None else n for n in map(what, runs[name]))
        late = users[math.ceil(0.9 * len(users)) - 1]
        return f"{amount(middle(users))} ({amount(late)})"

    return cell


def to_places(places: int) -> Callable[[float], str]:
    """A number with so many decimals."""
    return lambda value: f"{value:.{places}f}"


def returned(value: float) -> str:
    """A return.

    >>> returned(19.234), returned(246.5)
    ('19.2', '246')
    """
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def count(case: Case, runs: Runs) -> str:
    """How many runs."""
    return str(len(runs[""]))


def declared(case: Case, runs: Runs) -> str:
    """How many users."""
    return f"{case.users:,}"


def mean_score(run: Result) -> float:
    """Of all users, explorers included."""
    return float(np.average(run.scores[:-1], weights=np.diff(run.served)))


USERS: Columns = {"users to 90 %": of(serving), "greedy": of(greedy)}
WITH_TWIN: Columns = {**USERS, "not private": of(serving, name="not private"), "ratio": ratio}


# The agent that is taken by itself.


def _ends(runs: Sequence[Result]) -> str:
    users = amount(middle(list(map(serving, runs))))
    return f"{runs[0].agent}: {users}, ends at {np.median([run.score for run in runs]):.2f}"


def _choice(world: str, privacy: Privacy, users: int, *others: str) -> Case:
    name = world.replace(",seed=SEED", "").replace(":seed=SEED", "")
    one = Case((name, budget(privacy), f"{users:,}"), world, "auto", privacy, users)
    return replace(one, beside={agent: replace(one, agent=agent) for agent in others})


_RANDOM = "random_mdp:actions=3,horizon=20,states={},seed=SEED"
CHOICE = Study(
    "which agent",
    ("world", "ε, δ", "users"),
    (
        _choice("riverswim", joint(1.0, 0.0), 60_000, "ucbvi"),
        _choice("grid", joint(1.0, 0.0), 100_000, "ucbvi"),
        _choice("riverswim", PLAIN, 2_000, "concurrent_psrl"),
        _choice("grid", PLAIN, 20_000, "concurrent_psrl"),
        _choice("riverswim", joint(30.0), 5_000, "ucbvi"),
        _choice(_RANDOM.format(30), joint(1.0), 100_000, "policy_improvement", "ucbvi"),
        _choice(_RANDOM.format(80), joint(1.0), 100_000, "policy_improvement", "ucbvi"),
        _choice("grid:side=8,horizon=32", joint(1.0), 100_000, "policy_improvement"),
        _choice("two_state:seed=SEED", joint(1.0), 5_000, "concurrent_psrl"),
        _choice("simplex:seed=SEED", joint(10.0), 400, "lsvi_ucb"),
        _choice("simplex:seed=SEED", PLAIN, 200, "linear_posterior"),
        _choice(_RANDOM.format(200), joint(1.0), 100_000, "concurrent_psrl"),
        _choice("habit", joint(1.0), 300, "concurrent_psrl"),
        _choice(_RANDOM.format(8), joint(1.0), 300, "concurrent_psrl"),
        _choice(_RANDOM.format(8), joint(1.0), 2_500, "centred_improvement"),
    ),
    {
        "taken": lambda case, runs: _ends(runs[""]),
        "others": lambda case, runs: "; ".join(_ends(r) for name, r in runs.items() if name),
    },
)


# Finite worlds.


def _few(name: str, world: str, users: int, options: str = "") -> Case:
    def at(privacy: Privacy) -> Case:
        epsilon = 1.0 if isinstance(privacy, NonPrivate) else max(privacy.epsilon, 0.1)
        number = users if isinstance(privacy, NonPrivate) else int(users / epsilon**0.9)
        agent = f"concurrent_psrl{options}"
        return Case((name,), world, agent, privacy, max(10_000, number))

    others: Mapping[str, Privacy] = {
        "epsilon 10": joint(10.0),
        "epsilon 0.1": joint(0.1),
        "not private": PLAIN,
    }
    return replace(at(joint(1.0)), beside={words: at(model) for words, model in others.items()})


_SIZES = ((0, 10), (1, 10), (2, 10), (3, 12), (4, 12))
_SEEDED = {
    f"random_mdp, seed {seed}": f"random_mdp:states={n},actions=3,horizon={n},seed={seed}"
    for seed, n in _SIZES
}
FEW = Study(
    "few users",
    ("world",),
    (
        _few("riverswim, 6 states", "riverswim:states=6,horizon=20", 20_000),
        _few("riverswim, 8 states", "riverswim:states=8,horizon=20", 40_000),
        _few("riverswim, 12 states, 40 steps", "riverswim:states=12,horizon=40", 100_000),
        _few("grid, 5 by 5", "grid:side=5,horizon=20", 130_000),
        _few("grid, 6 by 6", "grid:side=6,horizon=24", 200_000),
        _few("deep_sea, 10 deep", "deep_sea:depth=10", 40_000),
        _few("FrozenLake", "gymnasium:id=FrozenLake-v1,horizon=100", 300_000),
        _few("health_coach", "health_coach", 500_000),
        *(_few(name, world, 40_000) for name, world in _SEEDED.items()),
        _few(
            "riverswim, 6 states, per step",
            "riverswim:states=6,horizon=20",
            150_000,
            ":stationary=false",
        ),
    ),
    {
        "epsilon 1": ninth(serving),
        "greedy policy": ninth(greedy),
        **{name: ninth(serving, name) for name in ("epsilon 10", "epsilon 0.1", "not private")},
    },
)


OPTIMISERS = Study(
    "policy optimisation",
    ("world", "agent"),
    tuple(
        Case((world, name), world, agent, joint(1.0), 1_000_000)
        for world, agents in (
            ("riverswim", {"UCBPO": "ucbpo", "UCBVI": "ucbvi"}),
            ("keyboard", {"UCBPO": "ucbpo", "UCBVI": "ucbvi"}),
            ("keyboard", {"LinOptPO": "linopt_po", "LinOptVI": "linopt_vi"}),
            ("mixture_of_models:seed=700", {"LinOptPO": "linopt_po", "LinOptVI": "linopt_vi"}),
        )
        for name, agent in agents.items()
    ),
    {
        "users to 90 %": of(serving, RANGE),
        "greedy score": of(lambda run: run.greedy_score, None, words=to_places(3)),
    },
)
_ICU: tuple[tuple[str, Privacy, int, int], ...] = (
    ("users 1e5", joint(1.0), 10**5, 10),
    ("users 1e6", joint(1.0), 10**6, 10),
    ("users 1e7", joint(1.0), 10**7, 3),
    ("epsilon 10, users 1e5", joint(10.0), 10**5, 10),
    ("not private, users 1e5", PLAIN, 10**5, 5),
)
MANY = Study(
    "many states",
    ("users",),
    tuple(
        Case((name,), "icu_sepsis", "policy_improvement", privacy, users, runs)
        for name, privacy, users, runs in _ICU
    ),
    {
        "runs": count,
        "score at the end": of(lambda run: run.scores[-1], RANGE, words=to_places(2)),
        "mean score of all users": of(mean_score, None, words=to_places(2)),
    },
)


def _trusted(world: str) -> Case:
    one = Case((world,), world, "auto", joint(1.0), 60_000)
    others: Mapping[str, tuple[Privacy, int]] = {
        "distributed, 95 % honest": (DistributedDP(1.0, DELTA), 60_000),
        "distributed, half honest": (DistributedDP(1.0, DELTA, honest=0.5), 60_000),
        "local": (local(1.0), 10**9),
    }
    made = {name: replace(one, privacy=model, users=n) for name, (model, n) in others.items()}
    return replace(one, beside=made)


def _median(name: str = "") -> Cell:
    return lambda case, runs: amount(middle(list(map(serving, runs[name]))))


DISTRIBUTED = Study(
    "distributed",
    ("world",),
    (_trusted("riverswim"), _trusted("riverswim:states=8,horizon=20")),
    {
        "joint": _median(),
        **{
            name: _median(name)
            for name in ("distributed, 95 % honest", "distributed, half honest", "local")
        },
    },
)


# Linear MDPs and mixtures.

_POOLED, _STEPS = "simplex:seed=SEED", "linear_posterior:stationary=false"
_POSTERIOR: tuple[tuple[str, str, str, Mapping[float, int]], ...] = (
    (
        "simplex, pooled",
        _POOLED,
        "linear_posterior",
        {1.0: 2_000, 10.0: 400, 0.1: 15_000, 0.0: 200},
    ),
    ("simplex, per step", _POOLED, _STEPS, {1.0: 5_000, 10.0: 1_000, 0.1: 40_000, 0.0: 300}),
    (
        "simplex, not stationary",
        "simplex:stationary=False,seed=SEED",
        "linear_posterior",
        {1.0: 5_000, 10.0: 1_000, 0.1: 40_000, 0.0: 300},
    ),
    (
        "simplex, 100 states, per step",
        "simplex:states=100,seed=SEED",
        _STEPS,
        {1.0: 5_000, 10.0: 1_500, 0.1: 50_000},
    ),
    (
        "two_state, by LSVIUCB",
        "two_state:seed=SEED",
        "lsvi_ucb",
        {1.0: 5_000, 10.0: 1_000, 0.1: 50_000, 0.0: 200},
    ),
)
"""By name: the world, the agent, and how many users are declared by epsilon; 0 is no privacy."""


def _model(epsilon: float) -> Privacy:
    return joint(epsilon) if epsilon else PLAIN


def _twin(one: Case, users: int) -> Case:
    return replace(one, beside={"not private": replace(one, privacy=PLAIN, users=users)})


LINEAR = Study(
    "linear few users",
    ("world", "ε"),
    tuple(
        Case((words, epsilon_of(_model(e))), world, agent, _model(e), users)
        for words, world, agent, budgets in _POSTERIOR
        for e, users in budgets.items()
    ),
    {
        "limit": lambda case, runs: str(fewest_users(case.privacy)),
        "users to 90 %": of(serving, DECILES),
        "greedy": of(greedy, DECILES),
    },
)


def _regret(run: Result) -> float:
    """Of all users, in optimal returns."""
    return float(run.regret[-1] / (run.optimal_value - run.reference_value))


def _asked(case: Case, runs: Runs) -> str:
    """Which statistic the agent of a case asks for."""
    spec = world_of(seeded(case.world, 0)).spec
    agent: Any = choose_agent(case.agent).build(spec, case.users, case.privacy, 0)
    return str(agent.algorithm.statistic_kind)


def _times(case: Case, runs: Runs) -> str:
    """How many times the regret of its twin without privacy."""
    if "not private" not in runs:
        return "-"
    private, plain = (np.median([*map(_regret, runs[name])]) for name in ("", "not private"))
    return f"{private / plain:.1f}" if private < 10 * plain else f"{private / plain:,.0f}"


def _budgets(world: str, users: int) -> Iterator[Case]:
    def at(agent: str, text: str, privacy: Privacy) -> Case:
        cells = world, agent, epsilon_of(privacy)
        return Case(cells, f"{world}:seed=SEED", text, privacy, users)

    twin = at("LSVI-UCB++", "lsvi_ucb_plus_plus", PLAIN)
    for epsilon in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0):
        private = at("LSVI-UCB++", "lsvi_ucb_plus_plus", joint(epsilon))
        yield replace(private, beside={"not private": twin})
    yield twin
    yield at("LSVI-UCB", "lsvi_ucb", PLAIN)


BUDGETS = Study(
    "linear budgets",
    ("world", "agent", "ε"),
    (*_budgets("two_state", 100_000), *_budgets("simplex", 1_000_000)),
    {
        "asks for": _asked,
        "regret": of(_regret),
        "times its twin's": _times,
        "users to 90 %": of(serving),
    },
)
_MIXTURES = {
    "mixture_of_models": "mixture_of_models:seed=SEED",
    "hard_mixture": "hard_mixture:seed=SEED",
    "hard_mixture, per step": "hard_mixture:per_step=True,seed=SEED",
    "keyboard": "keyboard:seed=SEED",
}
MIXTURE_AGENTS = Study(
    "mixture agents",
    ("world", "agent", "rewards", "ε"),
    tuple(
        _twin(
            Case((place, "LinOptVI", kind, f"{e:g}"), world + option, "linopt_vi", joint(e), 10**6),
            20_000,
        )
        for kind, option in (("known", ""), ("learnt", ",known_rewards=False"))
        for place, world in _MIXTURES.items()
        for e in (1.0, 10.0)
    ),
    WITH_TWIN,
)


def _large(cells: tuple[str, str], world: str, agent: str, users: int) -> Case:
    return Case((*cells, f"{users:,}"), world, agent, joint(1.0), users)


_LARGE: Columns = {
    "score at first": of(lambda run: run.scores[0], DECILES, words=to_places(2)),
    "in the end": of(lambda run: run.score, DECILES, words=to_places(2)),
    "users to 90 %": of(serving, DECILES),
}
SIMULATORS = Study(
    "simulators",
    ("world", "map", "users"),
    (_large(("currents", "none"), "currents:seed=SEED", "linopt_sampled", 100_000),),
    _LARGE,
)


# Control.


def _worst(values: str, first: bool = False) -> Cell:
    """The largest cost over all releases and runs, in units of zero control."""

    def cell(case: Case, runs: Runs) -> str:
        kept = slice(0, 1) if first else slice(1, None)
        costs = [(getattr(run, values)[kept] / run.baseline_value).max() for run in runs[""]]
        return f"{max(costs):.2f}"

    return cell


def _last(case: Case, runs: Runs) -> str:
    """Losses after the last release."""
    kinds = "greedy_losses", "losses"
    return ", ".join(f"{np.median([getattr(r, k)[-1] for r in runs['']]):.2g}" for k in kinds)


_COSTS: Columns = {
    "users to 90 %, greedy": of(greedy),
    "serving": of(serving),
    "worst greedy": _worst("greedy_values"),
    "worst serving": _worst("values"),
    "at first": _worst("values", first=True),
    "last losses, greedy and serving": _last,
}
_SYSTEMS = {
    **{
        f"random_system {n}, {d}, {H}": f"random_system:n={n},d={d},horizon={H},seed=SEED"
        for n, d, H in ((2, 1, 10), (3, 2, 15), (4, 2, 20), (6, 3, 30))
    },
    "dosing": "dosing",
}
_BUDGETS: tuple[tuple[Privacy, int], ...] = (
    (joint(1.0), 100_000),
    (joint(10.0), 10_000),
    (PLAIN, 10_000),
)
CONTROL = Study(
    "control",
    ("world", "ε"),
    tuple(
        Case((place, epsilon_of(privacy)), world, "certainty_equivalence", privacy, users)
        for place, world in _SYSTEMS.items()
        for privacy, users in _BUDGETS
    ),
    _COSTS,
)


# Continuous states.

_SMOOTH = {
    "Pendulum": "pendulum",
    "MountainCar": "mountain_car",
    "CartPole": "cartpole:steps=500,horizon=500,discount=0.99",
}


def _smooth(world: str, epsilon: float | None, users: int, runs: int = 40) -> Case:
    privacy = PLAIN if epsilon is None else joint(epsilon)
    words = "none" if epsilon is None else f"ε = {epsilon:g}"
    given = privacy, users, runs
    return Case((world, words, f"{users:,}"), _SMOOTH[world], "model_posterior", *given)


def _value(what: Callable[[Result], float], q: float = 0.5) -> Cell:
    return lambda case, runs: f"{np.quantile([what(run) for run in runs['']], q):.0f}"


SMOOTH = Study(
    "smooth known",
    ("world", "privacy", "users"),
    (
        _smooth("Pendulum", None, 128, 5),
        _smooth("MountainCar", None, 256, 5),
        _smooth("CartPole", None, 128, 5),
        _smooth("Pendulum", 10.0, 1_100),
        _smooth("Pendulum", 1.0, 10_000),
        _smooth("MountainCar", 10.0, 10_000),
        _smooth("CartPole", 10.0, 1_100),
        _smooth("CartPole", 1.0, 10_000),
        _smooth("MountainCar", 1.0, 100_000),
    ),
    {
        "runs": count,
        "median": _value(lambda run: run.greedy_value),
        "10 %": _value(lambda run: run.greedy_value, 0.1),
        "a block before": _value(lambda run: run.greedy_values[-2]),
        "served": _value(lambda run: run.values[-1]),
    },
)
PAPER = joint(0.9, 1e-4)
"""The budget of Wang and Hegde."""
_PLANNED: tuple[tuple[str, int, Privacy], ...] = (
    ("line", 45, PAPER),
    ("line", 45, joint(1.0)),
    ("line", 6, joint(10.0)),
    ("plane", 256, PAPER),
    ("plane", 256, joint(1.0)),
    ("plane", 32, joint(10.0)),
    ("trap", 300, PAPER),
    ("cartpole", 600, joint(1.0)),
)


def _fitted(world: str, users: int, privacy: Privacy, serve: str = "") -> Case:
    agent = f"fitted_functional_q{serve and f':serve={serve}'}"
    return Case((world, f"{users:,}", budget(privacy)), world, agent, privacy, users)


def _score(name: str = "") -> Cell:
    return of(lambda run: run.greedy_score, name=name, words=to_places(3))


_PLACED = ("world", "users", "ε, δ")
FUNCTIONAL = Study(
    "functional",
    _PLACED,
    tuple(_twin(_fitted(*place), place[1]) for place in _PLANNED),
    {"score": _score(), "not private": _score("not private")},
)


STUDIES: Mapping[str, Study] = {
    value.file: value for value in list(globals().values()) if isinstance(value, Study)
}
"""By the names of their files."""
main: Callable[..., int] = study_main("research.studies", __doc__, STUDIES)

if __name__ == "__main__":
    sys.exit(main())
