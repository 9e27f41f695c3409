"""Small worlds, agents, curators and logs: good enough to be attacked, and quickly made."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tacit
from research.worlds import build
from tacit import registry
from tacit.privacy.errors import TacitError
from tacit.privacy.statistic import Block
from tacit.testing.sample_users import raw_block

JOINT = tacit.JointDP(epsilon=1.0, delta=1e-6)
"""Joint privacy of what is attacked, where it has that."""

LOCAL = tacit.LocalDP(epsilon=1.0, delta=1e-6)
"""Local privacy of what is attacked, where it has that."""

_WORLDS = {
    "tabular": "riverswim:states=3,horizon=3",
    "linear": "two_state:horizon=3",
    "mixture": "mixture_of_models:dimension=2,states=3,actions=2,horizon=3",
    "lq": "double_integrator:horizon=3",
    "continuous": "line:horizon=4",
    # Its features must be shares.
    "linear_posterior": "simplex:dimension=3,states=6,actions=2,horizon=3",
    # Their models must be simulators.
    "linopt_sampled": "currents:rows=10,columns=10,dimension=2,horizon=3,samples=4",
}
_USERS = 400


@cache
def small_world(name: str) -> Any:
    """One small world of each family, or of an agent that needs another."""
    return build(_WORLDS[name])


@dataclass(frozen=True)
class Small:
    """A small agent that can be made again and again."""

    name: str
    make: Callable[..., Any]
    family: str
    privacy: Any

    def arguments(self) -> dict[str, Any]:
        """What it is made with."""
        return {
            "spec": self.world.spec,
            "users": _USERS,
            "privacy": self.privacy,
            "seed": 0,
            "noise_seed": 1,
        }

    @property
    def world(self) -> Any:
        """What it is for."""
        return small_world(self.name if self.name in _WORLDS else self.family)

    def __call__(self, **changed: Any) -> Any:
        """A fresh one, with some arguments changed."""
        return self.make(**self.arguments() | changed)

    @property
    def options(self) -> dict[str, Any]:
        """All parameters of its constructor, with defaults that are the same as not given."""
        parameters = inspect.signature(registry.agent_entry(self.name).make).parameters
        found = {name: parameter.default for name, parameter in parameters.items()}
        return {k: v for k, v in found.items() if v is not inspect.Parameter.empty}

    def all_arguments(self) -> dict[str, Any]:
        """What it is made with, and everything else it takes."""
        return self.options | self.arguments()

    def episodes(self, agent: Any, users: int) -> Block:
        """Raw episodes of users whom its policy served."""
        rng = np.random.default_rng(0)
        return raw_block(self.world.simulate(agent.policy, users, rng, "episodes"))


@cache
def small_agents() -> tuple[Small, ...]:
    """One of every agent of the registry that is there and can be made."""
    found = []
    for name in registry.BUILT_IN:
        try:
            make = registry.agent_entry(name).make
        except TacitError:
            continue  # one of its dependencies is not installed
        family = vars(make)["algorithm"].__module__.split(".")[1]
        for privacy in (JOINT, LOCAL, tacit.NonPrivate()):
            small = Small(name, make, family, privacy)
            with contextlib.suppress(TacitError):
                small()
                found.append(small)
                break
    return tuple(found)


@cache
def local_agents() -> tuple[Small, ...]:
    """Those that take reports of devices, with local privacy."""
    found = []
    for small in small_agents():
        local = dataclasses.replace(small, privacy=LOCAL)
        with contextlib.suppress(TacitError):
            agent = local()
            if hasattr(agent, "learn_reports") and agent.statistic is not None:
                found.append(local)
    return tuple(found)


def small_ucbvi(**changed: Any) -> Any:
    """A fresh agent, where any agent will do."""
    small = next(small for small in small_agents() if small.name == "ucbvi")
    return small(**changed)


@cache
def small_result() -> tacit.Result:
    """What comes of a few users."""
    agent = small_ucbvi(users=5, privacy=tacit.NonPrivate())
    return tacit.run(agent, small_world("tabular"), progress=False)


def small_curator(privacy: Any = JOINT) -> Any:
    """A fresh curator that holds two blocks of pairs of numbers."""
    curator = privacy.curator(users=100, noise_seed=0)
    curator.add(Block(10, {"values": np.ones((10, 2))}))
    curator.add(Block(10, {"values": np.ones((10, 2))}))
    return curator


PAIRS = tacit.ClippedSum(2)
"""A statistic of what the small curator holds."""


def small_log() -> dict[str, list[Any]]:
    """A log of two users, a row per step."""
    return {
        "user": ["a", "b", "a"],
        "step": [0, 0, 1],
        "state": [0, 0, 1],
        "action": [1, 0, 1],
        "reward": [0.0, 1.0, 1.0],
        "next_state": [1, 2, 2],
    }
