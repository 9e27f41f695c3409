"""Worlds that are a stated distance from what their features say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tacit.privacy.validation import checked_number
from tacit.registry import build_world
from tacit.tabular.model import FiniteModel
from tacit.tabular.world import FiniteWorld


def misspecified(model: FiniteModel, distance: float, seed: int) -> FiniteModel:
    """The model with every row of transitions moved by ``distance`` in total variation.

    P + w (e_t - P), with a next state t drawn for every state and action, and step where they
    differ: no features of a few dimensions explain that. e_t is 1 - P(t) from P, so
    w = distance / (1 - P(t)) moves a row by exactly the distance, which is therefore the largest
    one too, and no linear model's error is larger; a row with P(t) near 1 goes elsewhere.

    >>> from tacit.tabular import riverswim
    >>> world, moved = riverswim(3, 4).model, misspecified(riverswim(3, 4).model, 0.1, seed=0)
    >>> (np.abs(moved.transitions - world.transitions).sum(axis=-1) / 2.0).round(12).max()
    np.float64(0.1)
    """
    checked_number("distance", distance, "in [0, 0.5]", lambda d: 0.0 <= d <= 0.5)
    if distance == 0.0:
        return model
    P = model.transitions
    rng = np.random.default_rng(np.random.SeedSequence([seed, 18]))
    # Among the states that are not too probable already; one of two is.
    drawn = np.where(P <= 0.5, rng.random(P.shape), -1.0).argmax(axis=-1)[..., np.newaxis]
    chance = np.take_along_axis(P, drawn, axis=-1)
    weight = distance / (1.0 - chance)
    moved = (1.0 - weight) * P
    np.put_along_axis(moved, drawn, chance + weight * (1.0 - chance), axis=-1)
    return replace(model, transitions=moved / moved.sum(axis=-1, keepdims=True))


def far(of: str = "simplex", distance: float = 0.0, seed: int = 0) -> FiniteWorld:
    """The world of a name, with every row of transitions so far from what its features explain.

    Agents are told nothing of it: the spec is that of the world.

    >>> far("mixture_of_models", 0.1, seed=3).name
    'research.worlds.far:of=mixture_of_models,distance=0.1,seed=3'
    """
    world: Any = build_world(f"{of}:seed={seed}")
    world._become(misspecified(world.model, distance, seed))
    world.name = f"research.worlds.far:of={of},distance={distance},seed={seed}"
    made: FiniteWorld = world
    return made
