"""Scores of a person's own history: how her rewards went with the actions that chance gave her."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.reading import Ints, as_codes, as_numbers, require_shape
from tacit.privacy.sensitivity import ball
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic


@dataclass(frozen=True, eq=False)
class CentredScores(Statistic):
    """A person's action-centred score, divided by its length.

    Her score is V = sum_h (1{a_h} - p_h) (G_h - b_h) f(s_h) over her decisions h: p_h are the
    chances by which her action was drawn, G_h is the reward, or the sum of the rewards of
    ``window`` decisions, and b_h is what her own past lets expect of it. With two actions it has
    the coordinates of f, those of action 1; with A > 2 it has as many for each action.

    What she adds is u = (V / |V| - m) / (1 + |m|), where m is the mean of V' / |V'| over V' of
    actions that are drawn again by the same chances, with the same rewards. Without an effect V is
    a random walk, and u has mean zero whatever p is and however rewards are distributed; V / |V|
    would not, unless p = 1/2, where m = 0. Draws are a fixed function of her data.

    Reads ``states``, ``actions``, ``rewards``, ``propensities``, and ``lengths`` where there are
    any. A decision counts if all that is read of it is finite; chances are moved into the declared
    range. Of a finite world states are numbers, and f is one-hot.

    Formal guarantees:
        Sensitivity 2, and 1 against zero: |u| <= (1 + |m|) / (1 + |m|) = 1 for any history, as
        |V / |V|| = 1; a history without a score is zero. No bound on features, rewards or
        decisions is used, and none on how she behaves. Opposite histories attain it.
    """

    name = "centred scores"

    horizon: int  # decisions at most, H
    dimension: int  # of f, or the number of states
    actions: int
    low: float  # least chance of an action
    window: int = 1
    usual: float = 0.5  # guess of a reward
    linear: bool = True  # whether states are vectors f, or else numbers
    table: Floats | None = None  # public chances (S, A), where none are logged

    @property
    def columns(self) -> int:
        """Sets of coordinates: one for two actions, else one for each."""
        return 1 if self.actions == 2 else self.actions

    @cached_property
    def layout(self) -> Layout:
        """``scores``, (columns, d)."""
        return Layout((Part("scores", (self.columns, self.dimension)),))

    def l2(self, relation: Relation) -> float:
        """The distance of two people, or one's length."""
        return ball(1.0, relation)

    def vectors(self, block: Block) -> Floats:
        """One score per person."""
        from tacit.trial.score_loops import centred_scores

        out = np.zeros((block.users, self.layout.size))
        features, cells, actions, rewards, chances, lengths = read_decisions(self, block)
        with np.errstate(all="ignore"):
            given = rewards, chances, lengths, self.window, self.usual
            centred_scores(features, cells, actions, *given, out)
        return out


def read_decisions(asked: Any, block: Block) -> tuple[Any, ...]:
    """Features, cells, actions, rewards, chances of all actions, and lengths; shapes may raise.

    What is not finite leaves its decision out: the chances of that are zero.
    """
    users, H, d = block.users, asked.horizon, asked.dimension
    for name, shape in {"actions": (users, H), "rewards": (users, H)}.items():
        require_shape(name, block[name], shape)
    actions = np.ascontiguousarray(as_codes("actions", block["actions"]))
    rewards = np.ascontiguousarray(as_numbers("rewards", block["rewards"]))
    lengths = np.full(users, H)
    if "lengths" in block.arrays:
        require_shape("lengths", block["lengths"], (users,))
        lengths = as_codes("lengths", block["lengths"])
    if asked.linear:
        require_shape("states", block["states"], (users, H + 1, d))
        features = np.ascontiguousarray(as_numbers("states", block["states"])[:, :-1])
        cells = np.where(np.isfinite(features).all(axis=2), 0, -1)
    else:
        require_shape("states", block["states"], (users, H + 1))
        features = np.zeros((users, 0, d))
        cells = np.ascontiguousarray(as_codes("states", block["states"])[:, :-1])
    return features, cells, actions, rewards, _chances(asked, block, cells, actions), lengths


def _chances(asked: Any, block: Block, cells: Ints, actions: Ints) -> Floats:
    """Chances (users, H, A) of all actions at each decision, in the declared range."""
    A, shape = asked.actions, (*actions.shape, asked.actions)
    if asked.table is not None:
        inside = (cells >= 0) & (cells < asked.dimension)
        found = np.where(inside[..., np.newaxis], asked.table[np.where(inside, cells, 0)], np.nan)
    else:
        if "propensities" not in block.arrays:
            raise InvalidArgument("each decision needs its chance: give propensities=...")
        logged = as_numbers("propensities", block["propensities"])
        if A == 2 and logged.ndim == 2:
            require_shape("propensities", logged, actions.shape)
            one = np.where(actions == 1, logged, 1.0 - logged)
            logged = np.stack([1.0 - one, one], axis=2)
        require_shape("propensities", logged, shape)
        found = logged
    known = np.isfinite(found).all(axis=2, keepdims=True)
    found = np.clip(np.where(known, found, 0.5), asked.low, 1.0 - (A - 1) * asked.low)
    return np.where(known, found / found.sum(axis=2, keepdims=True), 0.0)
