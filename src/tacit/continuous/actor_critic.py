"""ActorCritic: natural policy gradients within a trust region, from private sums of gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.features import default_polynomial
from tacit.continuous.kernel_features import kernel_features
from tacit.continuous.policy import NO_CLIP, BoxAlgorithm, QPolicy, box_spec
from tacit.continuous.statistics import steps_of, vectors_by_part
from tacit.continuous.stochastic_policy import GaussianPolicy, SoftmaxPolicy
from tacit.core.algorithm import BlockInfo, BlockSizes, NoOptions, Plan, Progress
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.noise import users_above_noise
from tacit.privacy.sensitivity import scaled_back
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.continuous.spec import BoxSpec
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release


# Users of a block, at least, and in deviations of noise times sqrt(parameters); the most blocks.
_LEAST, _ABOVE, _BLOCKS = 150, 7.0, 40.0
_SHORT = 0.5  # the part of users who should be within the clips
_MOMENTUM = 0.7  # of gradients, from block to block
_RIDGE = 0.05  # of the moments, in units of even ones
# Radius of the trust region: root mean square change of logits, or of means over deviations.
_REGION = 0.3
_TRACE = 0.95  # lambda: how much of later errors of the critic an advantage has
_WIDE, _NARROW = 0.6, 0.2  # the first and the last sigma of actions that are vectors

ACTOR, CRITIC, SHORT, MOMENTS = 0.7, 0.45, 0.1, 0.45
"""Weights of the parts: how the sensitivity is shared out among them."""


@dataclass(frozen=True, eq=False)
class PolicyGradients(Statistic):
    """Gradients of actor and critic of each user, each scaled back, and moments of features.

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

    Formal guarantees:
        Sensitivity sqrt(4 (a^2 + c^2 + 2 s^2) + 2 g^2), with weights a, c, s and g of the parts.
        Actor and critic are in unit balls, and signs are 1 or -1, so two users are at most
        2 sqrt(a^2 + c^2 + 2 s^2) apart in them. Moments are positive semi-definite with trace one
        (or zero), so that two of them are at most sqrt 2 apart, and at most one from zero. It is
        attained in the limit: by users in states whose features are at right angles, with opposite
        gradients, of which one's are just within the clips and the other's just beyond.
    """

    spec: BoxSpec
    policy: SoftmaxPolicy  # that the users follow; public
    values: Floats  # w, the weights of the critic; public
    discount: float
    trace: float
    clips: tuple[float, float]  # the largest lengths of both gradients
    name = "policy gradients"

    @cached_property
    def layout(self) -> Layout:
        """``actor``, ``critic``, ``short`` and ``moments``."""
        rows, m = self.policy.weights.shape
        gradients = Part("actor", (rows, m), weight=ACTOR), Part("critic", (m,), weight=CRITIC)
        moments = Part("moments", (m, m), symmetric=True, weight=MOMENTS)
        return Layout((*gradients, Part("short", (2,), weight=SHORT), moments))

    def l2(self, relation: Relation) -> float:
        """Sensitivity, as the class derives it."""
        within = ACTOR**2 + CRITIC**2 + 2.0 * SHORT**2
        if checked_relation(relation) is Relation.REPLACE_ONE:
            return math.sqrt(4.0 * within + 2.0 * MOMENTS**2)
        return math.sqrt(within + MOMENTS**2)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        m = self.policy.weights.shape[1]
        numbers = self.spec.horizon * 2 * m + m * m
        return vectors_by_part(block, numbers, self._of)

    def _of(self, block: Block) -> Floats:
        from tacit.continuous.agent_loops import policy_gradients

        steps = steps_of(block, self.spec)
        rows, m = self.policy.weights.shape
        n = block.users
        actor, critic, moments = np.zeros((n, rows, m)), np.zeros((n, m)), np.zeros((n, m, m))
        paid = steps.rewards / max(map(abs, self.spec.reward_range))
        with np.errstate(all="ignore"):
            scores = self.policy.scores(steps.states[:, :-1], steps.actions)
            made = self.policy.features(steps.states), np.ascontiguousarray(scores)
            told = paid, steps.valid, steps.ended, self.values, self.discount, self.trace
            given: Any = *made, *told, actor, critic, moments
            policy_gradients(*given)
        came = steps.valid.any(axis=1)
        inside, signs = [], np.zeros((n, 2))
        for i, found in enumerate((actor.reshape(n, rows * m), critic)):
            inside.append(scaled_back(found, self.clips[i]) / self.clips[i])
            long = np.linalg.norm(found, axis=1) > self.clips[i]
            signs[:, i] = np.where(came, np.where(long, -1.0, 1.0), 0.0)
        good = np.isfinite(moments).all(axis=(1, 2), keepdims=True)
        parts = {"actor": inside[0].reshape(n, rows, m), "critic": inside[1], "short": signs}
        return self.layout.pack(parts | {"moments": np.where(good, moments, 0.0)}, users=n)


@dataclass(frozen=True, eq=False)
class ActorCriticState:
    """Actor, critic, and sums of gradients and moments, of R outputs and m features."""

    theta: Floats  # (R, m), of the actor
    values: Floats  # (m,), of the critic
    gradient: Floats  # (R, m), released ones, with momentum
    moments: Floats  # (m, m), sums of all blocks
    clips: Floats  # of actor and critic
    explained: float = 0.0  # how long noise and chance alone would make the gradient, squared
    noise: float = 0.0  # standard deviation of the noise of moments


class ActorCritic(BoxAlgorithm[ActorCriticState]):
    """A policy that is drawn from, and a critic: both move by users' clipped gradients.

    Idea: users are served by a policy that draws actions, softmax over numbered ones or Gaussian in
    a box, linear in public features. The gradients of a block's users, with advantages made of
    their own data and of earlier releases, are summed; the next policy is a natural step from
    there, of a length that depends on how much of the gradient noise explains.

    Private statistics: :class:`PolicyGradients` of every block, once, with the whole budget.

    Guarantee: that of its curator; see ``guarantee``. Clips follow from released shares of users
    who were clipped.

    Deviations from papers: Wang and Hegde (2019) only remark that it can be done.

    Cost: (R + 1) m + m (m + 1) / 2 numbers per release for R outputs and m features.
    """

    name: ClassVar[str] = "actor_critic"
    features: FeatureMap

    def __init__(self, problem: Problem, options: NoOptions) -> None:
        self.spec = spec = box_spec(problem)
        self.features = default_features(spec)
        spec.check_weights(self.features.size)
        super().__init__(problem, options)

    def init(self) -> ActorCriticState:
        """Weights of zero: every action with the same chance, or around the middle of the box."""
        box, m = self.spec.action_box, self.features.size
        zeros = np.zeros((self.spec.actions if box is None else box.dimension, m))
        clip = math.sqrt(self.spec.horizon) if self.privacy.private else NO_CLIP
        return ActorCriticState(zeros, np.zeros(m), zeros, np.zeros((m, m)), np.array([clip, clip]))

    def query(self, state: ActorCriticState, plan: Plan, block: BlockInfo) -> PolicyGradients:
        """Users' gradients at the policy that serves them."""
        clips = float(state.clips[0]), float(state.clips[1])
        known = self.spec, plan.policy, state.values.copy(), self.spec.discount
        return PolicyGradients(*known, _TRACE, clips)

    def update(
        self,
        state: ActorCriticState,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> ActorCriticState:
        """ActorCriticState after a step of the critic, and one of the actor.

        Args:
            state: What is known.
            plan: That the users followed.
            release: Of the query, with noise.
            block: How many they are.
            rng: Not used.
        """
        # Of devices none may have reported.
        n, m = max(release.users, 1), self.features.size
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        moments = state.moments + release["moments"]
        hidden = math.hypot(state.noise, std["moments"])
        metric, inverse = self._metric(moments, hidden, block.served + n)
        # The critic, by a Newton step on its squared errors.
        chance = 0.5 * n if self.privacy.private else 0.0
        noise = m * std["critic"] ** 2 * (1.0 + math.sqrt(2.0 / m)) + chance
        told = _told(release["critic"], noise)
        size = n * self.spec.horizon * _square(self.features, self.spec)
        values = state.values + told * float(state.clips[1]) / size * (inverse @ release["critic"])
        # The actor, by a natural step to the edge of the trust region, or less far.
        gradient = release["actor"]
        if self.spec.action_box is None:
            # Chances add up to one: what all actions share means nothing.
            gradient = gradient - gradient.mean(axis=0)
        explained = _MOMENTUM**2 * state.explained + float((gradient**2).sum())
        gradient = _MOMENTUM * state.gradient + gradient
        step = gradient @ inverse
        change = math.sqrt(max(float(np.einsum("rm,mk,rk->", step, metric, step)) / len(step), 0.0))
        gain, theta, clips = (1.0 + _MOMENTUM) / (2.0 * _MOMENTUM), state.theta, state.clips
        if change > 0.0:
            far = _REGION * gain * _told(gradient, explained)
            scale = 1.0 if self.spec.action_box is None else self._sigma(block)
            theta = theta + far * scale / change * step
        if self.privacy.private:
            within = np.clip(0.5 * (release["short"] / n + 1.0), 0.0, 1.0)
            clips = clips * np.exp(_SHORT - within)
        return ActorCriticState(theta, values, gradient, moments, clips, explained, hidden)

    def _metric(self, moments: Floats, noise: float, users: int) -> tuple[Floats, Floats]:
        """The mean of moments, with eigenvalues at least those that noise may hide, and inverse."""
        eigenvalues, vectors = np.linalg.eigh(moments / users)
        hidden = 2.0 * math.sqrt(len(moments)) * noise / users
        kept = np.maximum(eigenvalues, max(hidden, _RIDGE / len(moments)))
        return (vectors * kept) @ vectors.T, (vectors / kept) @ vectors.T

    def _sigma(self, at: Progress) -> float:
        """Standard deviation of actions that are vectors; it falls, by public numbers."""
        done = min(at.served / max(self.users, 1), 1.0)
        return float(_WIDE * (_NARROW / _WIDE) ** done)

    def _drawing(self, state: ActorCriticState, at: Progress) -> SoftmaxPolicy:
        box = self.spec.action_box
        if box is not None:
            return GaussianPolicy(self.features, state.theta, box=box, sigma=self._sigma(at))
        return SoftmaxPolicy(self.features, state.theta)

    def plan(
        self, state: ActorCriticState, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """The policy that draws, and the one that takes its likeliest action.

        Args:
            state: What is known.
            last: The plan before, if any.
            at: Blocks so far.
            rng: Draws preferences among equal values.
        """
        served, box = self._drawing(state, at), self.spec.action_box
        if last is None:
            return Plan(served, served)
        if box is not None:
            return Plan(served, GaussianPolicy(self.features, state.theta, box=box))
        return Plan(served, QPolicy.draw(self.features, state.theta, rng))

    def _check(self) -> None:
        self.check_gaussian("gradients")

    def _block_sizes(self) -> BlockSizes:
        """Blocks of one size, in which a gradient is as long as its noise, or a bit longer."""
        first, policy = self.init(), self._drawing(self.init(), Progress())
        asked = self.query(first, Plan(policy, policy), BlockInfo())
        least = users_above_noise(asked, self.privacy, _ABOVE * math.sqrt(first.theta.size))
        size = min(max(_LEAST, least, math.ceil(self.users / _BLOCKS)), self.users)
        return BlockSizes(f"fixed:size={size}", size=size)


def default_features(spec: BoxSpec) -> FeatureMap:
    """The spec's own, waves up to three coordinates, or monomials up to degree two."""
    few = spec.features is not None or spec.dimension <= 3
    return kernel_features(spec) if few else default_polynomial(spec)


def _told(released: Floats, noise: float) -> float:
    """The part of a squared length that noise and chance do not explain."""
    square = float((released**2).sum())
    return max(0.0, 1.0 - noise / square) if square > 0.0 else 0.0


def _square(features: FeatureMap, spec: BoxSpec) -> float:
    """Squared length of features, between that in the middle of the box and the longest."""
    with np.errstate(invalid="ignore"):
        middle = np.mean([spec.lows, spec.highs], axis=0)
    middle = np.where(np.isfinite(middle), middle, 0.0)
    # Maps that are no code clip states, and are longest far out; of others the middle is known.
    far = middle if features.published_as is None else np.full(len(middle), 1e9)
    here, longest = (float(np.linalg.norm(features(at))) for at in (middle, far))
    return max(here * math.sqrt(here * longest), 1e-12)
