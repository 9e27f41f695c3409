"""Worlds and the policies of their families, made with arguments of which some are junk."""

from __future__ import annotations

from typing import Any

import numpy as np

from research.hostile.calls import Call, constant
from research.hostile.fuzzing import EntryPoint
from research.hostile.small import small_world
from tacit import registry
from tacit.continuous import BoxWorld, QPolicy
from tacit.continuous.features import Grid
from tacit.linear.worlds import LinearWorld
from tacit.lq import GainPolicy, LQWorld
from tacit.mixture import MixtureWorld
from tacit.tabular import TabularWorld

# What worlds of the registry are made with where they have no default.
_NEEDED = {"states": 3, "actions": 2, "horizon": 3, "seed": 0}


def world_entries() -> list[EntryPoint]:
    """Every world of the registry that has options, and the classes behind them."""
    return _named_entries() + [call.entry(name) for name, call in _class_calls().items()]


def _named_entries() -> list[EntryPoint]:
    entries = []
    for name in registry.worlds():
        entry = registry.world_entry(name)
        good = {
            name: _NEEDED.get(name) if option.default is option.empty else option.default
            for name, option in entry.options.items()
        }
        if good:
            call = Call(entry.make, constant(**good), absurd=True)
            entries.append(call.entry(f"world {name}"))
    return entries


def _of(world: Any, names: str) -> dict[str, Any]:
    """What a world was made with."""
    return {name: getattr(world, name) for name in names.split()}


def _class_calls() -> dict[str, Call]:
    line, lq = small_world("continuous"), small_world("lq")
    mixture, linear = small_world("mixture"), small_world("linear")
    stay = np.eye(2)[:, np.newaxis].repeat(2, axis=1)
    return {
        "TabularWorld": Call(
            TabularWorld,
            constant(transitions=stay, rewards=[[0.1, 0.2]] * 2, horizon=2, start=0, name="w"),
        ),
        "LinearWorld": Call(
            LinearWorld,
            constant(
                **_of(linear, "features measures rewards"), horizon=3, start=0, known_rewards=False
            ),
        ),
        "MixtureWorld": Call(
            MixtureWorld,
            constant(
                **_of(mixture, "transition_features weights rewards"),
                horizon=3,
                start=0,
                known_rewards=True,
                center=None,
                radius=None,
            ),
        ),
        "LQWorld": Call(
            LQWorld,
            constant(**_of(lq, "A B Q R noise start"), horizon=3, norm_bound=None, gain_bound=None),
        ),
        "BoxWorld": Call(
            BoxWorld,
            constant(
                reward=line._reward,
                name="w",
                horizon=4,
                reward_range=(0.0, 0.5),
                discount=0.95,
                features=None,
            ),
            free=("name", "reward"),  # any function may be a reward
        ),
        "GainPolicy": Call(GainPolicy, constant(gains=np.zeros((2, 1, 2)), noise=0.0, version=0)),
        "QPolicy": Call(
            QPolicy,
            constant(
                features=Grid((0.0,), (1.0,), (2,)),
                weights=np.eye(2),
                epsilon=0.0,
                version=0,
                preference=(0, 1),
            ),
        ),
    }
