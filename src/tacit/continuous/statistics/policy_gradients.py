"""Policy gradients of users: of who acts, of who judges, and of where they were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tacit.continuous.statistics.steps import steps_of, vectors_by_part
from tacit.privacy.arguments import positive
from tacit.privacy.bounds.balls import scaled_back
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.policy import SoftmaxPolicy
    from tacit.continuous.spec import BoxSpec

ACTOR, CRITIC, SHORT, MOMENTS = 0.7, 0.45, 0.1, 0.45
"""Weights of the parts: how the sensitivity is shared out among them."""


@dataclass(frozen=True, eq=False)
class PolicyGradients(Statistic):
    """A user's gradients of actor and critic, each scaled back, and the moments of her features.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. With z the features of a state, w of
    the public ``critic``, and rewards in units of the largest, a step's error is
    r + discount w z' - w z, without w z' where the episode ended; its advantage A is the sum of
    this error and all later ones of the episode, each step further weighing discount x trace less.
    Parts, each divided by its clip:

    * ``actor``, the sum of A times score times z over steps, the score being the public policy's;
    * ``critic``, the sum of A z over steps;
    * ``short``, for both of them 1 if it is within its clip, -1 if it was scaled back, and 0 for a
      user without a step; and
    * ``moments``, the mean of z z' / |z|^2 over her steps, which needs no clip.

    Sensitivity. Actor and critic are in unit balls, and signs are 1 or -1, so with the parts'
    weights a, c and s two users are at most 2 sqrt(a^2 + c^2 + 2 s^2) apart in them. Moments are
    positive semi-definite with trace one (or zero), so that two of them are at most sqrt 2 apart,
    and at most one from zero. Replace-one: sqrt(4 (a^2 + c^2 + 2 s^2) + 2 g^2). It is attained in
    the limit: by users in states whose features are at right angles, with opposite gradients, of
    which one's are just within the clips and the other's just beyond.
    """

    spec: BoxSpec
    policy: SoftmaxPolicy  # that the users follow; public
    values: Floats  # w, the weights of the critic; public
    discount: float
    trace: float
    clips: tuple[float, float]  # the largest lengths of both gradients
    name = "policy gradients"

    def __post_init__(self) -> None:
        for clip in self.clips:
            positive("clip", clip)

    @cached_property
    def layout(self) -> Layout:
        """``actor``, ``critic``, ``short`` and ``moments``."""
        rows, m = self.policy.weights.shape
        return Layout(
            (
                Part("actor", (rows, m), weight=ACTOR),
                Part("critic", (m,), weight=CRITIC),
                Part("short", (2,), weight=SHORT),
                Part("moments", (m, m), symmetric=True, weight=MOMENTS),
            )
        )

    def l2(self, relation: Relation) -> float:
        """See the class."""
        within = ACTOR**2 + CRITIC**2 + 2.0 * SHORT**2
        if checked_relation(relation) is Relation.REPLACE_ONE:
            return math.sqrt(4.0 * within + 2.0 * MOMENTS**2)
        return math.sqrt(within + MOMENTS**2)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        m = self.policy.weights.shape[1]
        numbers = self.spec.horizon * 2 * m + m * m
        return vectors_by_part(block, self.layout.size, numbers, self._of)

    def _of(self, block: Block) -> Floats:
        from tacit.continuous.sum_loops import policy_gradients

        steps = steps_of(block, self.spec)
        rows, m = self.policy.weights.shape
        n = block.users
        actor, critic, moments = np.zeros((n, rows, m)), np.zeros((n, m)), np.zeros((n, m, m))
        paid = steps.rewards / max(map(abs, self.spec.reward_range))
        with np.errstate(all="ignore"):
            scores = self.policy.scores(steps.states[:, :-1], steps.actions)
            policy_gradients(
                self.policy.features(steps.states),
                np.ascontiguousarray(scores),
                paid,
                steps.valid,
                steps.ended,
                self.values,
                self.discount,
                self.trace,
                actor,
                critic,
                moments,
            )
        came = steps.valid.any(axis=1)
        inside, signs = [], np.zeros((n, 2))
        for i, found in enumerate((actor.reshape(n, rows * m), critic)):
            scaled = scaled_back(found, self.clips[i]) / self.clips[i]
            long = np.linalg.norm(found, axis=1) > self.clips[i]
            signs[:, i] = np.where(came, np.where(long, -1.0, 1.0), 0.0)
            inside.append(scaled)
        good = np.asarray(np.isfinite(moments).all(axis=(1, 2)))[:, np.newaxis, np.newaxis]
        parts = {
            "actor": inside[0].reshape(n, rows, m),
            "critic": inside[1],
            "short": signs,
            "moments": np.where(good, moments, 0.0),
        }
        return self.layout.pack(parts, users=n)
