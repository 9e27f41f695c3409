"""Everything that takes arguments: the library's functions and classes, curators, worlds, agents.

The first of these are listed in here; the others have modules of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import tacit
from research.hostile.agent_entries import agent_entries
from research.hostile.calls import Call, constant
from research.hostile.curator_entries import curator_entries
from research.hostile.fuzzing import EntryPoint
from research.hostile.small import (
    JOINT,
    LOCAL,
    PAIRS,
    small_log,
    small_ucbvi,
    small_world,
)
from research.hostile.world_entries import world_entries
from tacit import registry
from tacit.core.problem import Schedule
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.statistic import Block
from tacit.simulation.plan import plan
from tacit.tabular.spec import FiniteSpec

_BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def argument_entries() -> list[EntryPoint]:
    """Functions and classes, called with arguments of which some are junk."""
    calls = _privacy_calls() | _data_calls() | _guarantee_calls() | _run_calls()
    entries = [call.entry(name) for name, call in calls.items()]
    return entries + curator_entries() + world_entries() + agent_entries()


def _filled(make: Any, **needed: Any) -> Callable[[], dict[str, Any]]:
    """Good arguments: those needed, and every default."""
    parameters = inspect.signature(make).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return constant(**defaults | needed)


def _privacy_calls() -> dict[str, Call]:
    """Budgets, models, counters and statistics."""
    joint = _BUDGET | {
        "relation": "replace-one",
        "episodes_per_user": 1,
        "disjoint": False,
    }
    local = _BUDGET | {"mechanism": None, "episodes_per_user": 1}
    counter = {
        "budget": tacit.Budget(1.0, 1e-6),
        "sensitivity": 1.0,
        "releases": 5,
        "shape": (2,),
        "kind": "auto",
        "relation": "replace-one",
        "noise_seed": 1,
    }
    return {
        "Budget": Call(tacit.Budget, constant(**_BUDGET)),
        "JointDP": Call(tacit.JointDP, constant(**joint)),
        "LocalDP": Call(tacit.LocalDP, constant(**local)),
        "counter": Call(tacit.counter, constant(**counter)),
        "Block": Call(Block, constant(users=2, arrays={"a": np.zeros(2)}, aggregate=False)),
        "Part": Call(tacit.Part, constant(name="a", shape=(2, 2), symmetric=True, weight=1.0)),
        "ClippedSum": Call(tacit.ClippedSum, _filled(tacit.ClippedSum, dimension=2)),
        "GramCross": Call(tacit.GramCross, _filled(tacit.GramCross, rows=2, columns=2, steps=2)),
        "OneHotCounts": Call(tacit.OneHotCounts, _filled(tacit.OneHotCounts, steps=2, cells=3)),
    }


def _data_calls() -> dict[str, Call]:
    """Schedules, finite sizes, episodes and policies."""
    finite = {
        "states": 2,
        "actions": 2,
        "horizon": 2,
        "stationary": True,
        "reward_values": (0.0, 1.0),
        "start": None,
    }
    episodes = {
        "states": [[0, 1, 2]] * 2,
        "actions": [[1, 0]] * 2,
        "rewards": [[0.0, 1.0]] * 2,
        "versions": [0, 0],
        "user_ids": ["a", 7],
    }
    vectors = episodes | {"states": np.zeros((2, 3, 1)), "lengths": [2, 2]}
    return {
        "Schedule.parse": Call(Schedule.parse, constant(text="geometric", users=100), free=()),
        "FiniteSpec": Call(FiniteSpec, constant(**finite)),
        "Episodes": Call(Episodes, constant(**episodes)),
        "VectorEpisodes": Call(VectorEpisodes, constant(**vectors)),
        "Episodes.from_frame": Call(
            Episodes.from_frame, lambda: {"frame": small_log(), "horizon": 2, "user": "user"}
        ),
        "Policy.deterministic": Call(
            tacit.Policy.deterministic, constant(actions=[[0, 1]], n_actions=2, version=0)
        ),
        "Policy.stochastic": Call(
            tacit.Policy.stochastic, constant(probabilities=[[[0.5, 0.5]]], version=0)
        ),
        "Policy.uniform": Call(
            tacit.Policy.uniform, constant(horizon=2, states=2, actions=2, version=0)
        ),
    }


def _guarantee_calls() -> dict[str, Call]:
    """Guarantees, and who keeps them: curators and devices."""
    guarantee = _BUDGET | {
        "model": "joint",
        "mu": 0.2,
        "relation": tacit.Relation.REPLACE_ONE,
        "releases": 3,
        "mechanism": "blocks",
        "unit": "a user",
        "sampler": "exact",
        "simulation_only": False,
        "episodes_per_user": 1,
    }
    curator = {"users": 10, "noise_seed": 1}
    report = {
        "statistic": PAIRS,
        "data": Block(1, {"values": np.ones((1, 2))}),
        "privacy": LOCAL,
        "noise_seed": 1,
    }
    return {
        "Guarantee": Call(tacit.Guarantee, constant(**guarantee)),
        "JointDP.curator": Call(JOINT.curator, constant(**curator)),
        "LocalDP.curator": Call(LOCAL.curator, constant(users=10, noise_seed=1)),
        "local.report": Call(tacit.local.report, constant(**report)),
    }


def _run_calls() -> dict[str, Call]:
    """Runs and plans."""
    choice, none = registry.choose_agent("ucbvi"), tacit.NonPrivate()
    world = small_world("tabular")
    seeds = {"seeds": [0], "workers": 1, "progress": False}
    return {
        "run": Call(
            tacit.run,
            lambda: {
                "agent": small_ucbvi(users=5, privacy=none),
                "world": world,
                "seed": 0,
                "progress": False,
            },
            free=(),
        ),
        "run_seeds": Call(
            tacit.run_seeds,
            lambda: {
                "make_agent": lambda spec, seed: tacit.UCBVI(spec, 5, none, seed=seed),
                "make_world": world,
                **seeds,
            },
            free=(),
        ),
        "plan": Call(
            plan,
            lambda: {
                "world": world,
                "agent": choice,
                "privacy": none,
                "users": 5,
                **seeds,
            },
        ),
        # Every input has a folder of its own.
    }
