"""Scores of a person's own history: how her rewards went with the actions that chance gave her."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
    the coordinates of f, those of action 1; with A > 2 it has as many for each action. In a finite
    world G_h - b_h is r_h + ``discount`` V(s_h+1) - V(s_h), with V by her own visits and rewards.

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
    discount: float = 0.0  # of a value after each decision, by her own model of a finite world
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
        with np.errstate(all="ignore"):
            centred_scores(*self.decisions(block), out)
        return out

    def decisions(self, block: Block) -> tuple[Floats, Ints, Ints, Floats, Floats]:
        """Features, cells, actions, chances of all actions, and gains; shapes may raise.

        A gain is NaN where something of the decision is not known.
        """
        from tacit.trial.score_loops import model_gains, window_gains

        users, H, d = block.users, self.horizon, self.dimension
        for name, shape in {"actions": (users, H), "rewards": (users, H)}.items():
            require_shape(name, block[name], shape)
        actions = np.ascontiguousarray(as_codes("actions", block["actions"]))
        rewards = np.ascontiguousarray(as_numbers("rewards", block["rewards"]))
        used = np.isfinite(rewards) & (actions >= 0) & (actions < self.actions)
        if "lengths" in block.arrays:
            require_shape("lengths", block["lengths"], (users,))
            used &= np.arange(H) < as_codes("lengths", block["lengths"])[:, np.newaxis]
        require_shape("states", block["states"], (users, H + 1, d)[: 3 if self.linear else 2])
        if self.linear:
            features = np.ascontiguousarray(as_numbers("states", block["states"])[:, :-1])
            cells = np.where(np.isfinite(features).all(axis=2), 0, -1)
            used &= cells == 0
        else:
            features, cells = np.zeros((users, H, 0)), as_codes("states", block["states"])
            inside = (cells >= 0) & (cells < d)
            used, cells = used & inside[:, :-1] & inside[:, 1:], np.where(inside, cells, 0)
        chances, gains = self._chances(block, cells[:, :H], actions), np.empty((users, H))
        used &= chances[..., 0] > 0.0
        with np.errstate(all="ignore"):
            if self.linear:
                window_gains(rewards, used, self.window, self.usual, gains)
            else:
                model_gains(cells, rewards, used, self.discount, d, gains)
        return features, cells, actions, chances, gains

    def _chances(self, block: Block, cells: Ints, actions: Ints) -> Floats:
        """Chances (users, H, A) of all actions at each decision, in the declared range."""
        A = self.actions
        if self.table is not None:
            found = self.table[cells]
        elif "propensities" not in block.arrays:
            raise InvalidArgument("each decision needs its chance: give propensities=...")
        else:
            found = as_numbers("propensities", block["propensities"])
            if A == 2 and found.ndim == 2:
                require_shape("propensities", found, actions.shape)
                one = np.where(actions == 1, found, 1.0 - found)
                found = np.stack([1.0 - one, one], axis=2)
            require_shape("propensities", found, (*actions.shape, A))
        known = np.isfinite(found).all(axis=2, keepdims=True)
        found = np.clip(np.where(known, found, 0.5), self.low, 1.0 - (A - 1) * self.low)
        return np.where(known, found / found.sum(axis=2, keepdims=True), 0.0)
