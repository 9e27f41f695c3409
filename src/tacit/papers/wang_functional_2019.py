r"""Wang and Hegde: Q-learning with functional noise.

Baoxiang Wang and Nidhi Hegde, Privacy-preserving Q-Learning with Functional Noise in Continuous
Spaces, NeurIPS 2019 (arXiv:1901.10634). Algorithm 1, with sigma from the formula of Theorem 5.

States in [0, 1], m actions. The relation is the paper's: two reward functions r and r' with
|r - r'| <= 1 everywhere are to look alike; transitions are public.

``printed=True`` is Algorithm 1: a network whose every look is noisy and which itself is not. It has
no guarantee at any sigma. ``printed=False`` is what the same idea needs to be private: the state
*is* the released function F_a, of which nothing is known but its noisy values on a public grid,

    F_(j+1),a = F_j,a - (alpha / B) sum_t 1{a_t = a} (F_j,a_t(s_t) - y_t) K(s_t, .) + g_j,a

with a fresh path g_j,a of the Gaussian process of kernel sigma^2 K for every batch and action. Two
reward functions move a batch's update by at most alpha in the norm of K's space, so T/B batches
cost mu = alpha sqrt(T/B) / sigma. With ``protect="episode"`` a batch is some whole episodes,
the unit is one user's rewards, and each user is in one batch: mu = alpha R / (U sigma), R the range
of rewards and U the users of a batch.

A simulation, whose loop sees raw rewards. ``docs/papers/wang_functional_2019.md`` has the paper's
lines beside the code's.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from tacit.continuous.custom_features import Custom
from tacit.continuous.policy import QPolicy
from tacit.papers.result import PaperResult, Proof, proven
from tacit.privacy.budget import Budget
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import checked_number, flag, one_of, positive, whole_number

if TYPE_CHECKING:
    from tacit.continuous.worlds import BoxWorld

ERRATA = (
    "(2): weights of s- and s+ are swapped, d is printed negative; it is a variance (line 16)",
    "line 11 prints t = jT/B + b for jB + b",
    "lines 12 and 19: the noise is within the maximum; line 20: it is that of a_t",
    "line 22 prints a step up, and B + 1 terms",
    "the path is drawn at s_t too, not only at s_(t+1)",
)
"""Misprints without whose correction there is nothing to run."""

WHY = (
    "theta is carried and returned without noise, only looks at it are noisy: given the visited "
    "states it discloses sums of rewards exactly"
)
"""Why Algorithm 1 has no guarantee, at any sigma."""


def bridge(a: float, b: float) -> tuple[float, float, float]:
    """The unit Ornstein-Uhlenbeck process at x given its values at neighbours left and right.

    With a = beta (x - left) and b = beta (right - x) the value is Gaussian with mean
    (e^-a (1 - e^-2b) g(left) + e^-b (1 - e^-2a) g(right)) / (1 - e^-2(a+b)) and variance
    (1 - e^-2a) (1 - e^-2b) / (1 - e^-2(a+b)); a neighbour that does not exist is infinitely far.
    Points farther away do not matter: the process is Markov. No exponent is positive, so nothing
    overflows, and expm1 keeps all digits of tiny gaps.

    Returns:
        The weights of g(left) and g(right), and the variance.

    >>> bridge(math.inf, math.inf), bridge(math.log(2.0), math.inf)
    ((0.0, 0.0, 1.0), (0.5, 0.0, 0.75))
    """
    here, there, across = -math.expm1(-2.0 * a), -math.expm1(-2.0 * b), -math.expm1(-2.0 * (a + b))
    if across == 0.0:
        # Both gaps vanish in floating point; the process is constant there.
        return 1.0, 0.0, 0.0
    return math.exp(-a) * (there / across), math.exp(-b) * (here / across), here * (there / across)


class Setting(NamedTuple):
    """Parameters of Algorithm 1 (line 2), with the paper's values (Appendix E.3)."""

    T: int = 5000
    B: int = 64
    alpha: float = 3e-4
    k: float = 2.3
    L: float = 4.0
    J: int | None = None  # T / B by default: new paths for every batch
    discount: float = 0.9  # not stated
    hidden: tuple[int, ...] = (16, 16)  # not stated

    @property
    def batches(self) -> int:
        """T / B, whole."""
        return self.T // self.B

    @property
    def v(self) -> float:
        """4 alpha (k + 1) / B."""
        return 4.0 * self.alpha * (self.k + 1.0) / self.B

    @property
    def beta(self) -> float:
        """Of the kernel exp(-beta |x - y|): 1 / v."""
        return 1.0 / self.v


# Theorem 5.


def theorem_5_sigma(epsilon: float, delta: float, setting: Setting = Setting()) -> float:  # noqa: B008
    """Line 5 and Theorem 5: sqrt(2 (T/B) ln(e + eps / delta)) C / eps, C = (v^2 + v) L^2.

    >>> [round(theorem_5_sigma(e, 5e-5, Setting(k=k)), 3) for e in (0.9, 0.45) for k in (2.3, 23)]
    [0.043, 0.313, 0.083, 0.604]
    """
    C = (setting.v**2 + setting.v) * setting.L**2
    ratio = setting.T / setting.B
    return math.sqrt(2.0 * ratio * math.log(math.e + epsilon / delta)) * C / epsilon


def proof_sigma(epsilon: float, delta: float, setting: Setting = Setting()) -> float:  # noqa: B008
    """The sigma at the end of the proof of Theorem 5: C within the root.

    >>> [round(proof_sigma(0.9, 5e-5, Setting(k=k)), 2) for k in (2.3, 23)]
    [1.37, 3.69]
    """
    C = (setting.v**2 + setting.v) * setting.L**2
    return theorem_5_sigma(epsilon, delta, setting) / math.sqrt(C)


def theorem_5_delta(sigma: float, delta: float, setting: Setting = Setting()) -> float:  # noqa: B008
    """Theorem 5's delta + J exp(-(2k - 8.68 sqrt(beta) sigma)^2 / 2).

    Nan where its side condition 2k > 8.68 sqrt(beta) sigma fails, as for the paper's parameters.

    >>> theorem_5_delta(0.32, 5e-5, Setting(k=2.3)), theorem_5_delta(0.32, 5e-5, Setting(k=23))
    (nan, nan)
    """
    room = 2.0 * setting.k - 8.68 * math.sqrt(setting.beta) * sigma
    if room <= 0.0:
        return math.nan
    return delta + (setting.J or setting.batches) * math.exp(-(room**2) / 2.0)


# The sample paths of all actions (Appendix A).


class Paths:
    """One path for each action, known where somebody looked: the lists g_a of Algorithm 1."""

    def __init__(self, beta: float, sigma: float, actions: int, noise: Noise) -> None:
        self.beta, self.sigma, self.noise, self.actions = beta, sigma, noise, actions
        # Alg. 1, line 4.
        self.states: list[float] = []
        self.values: list[Floats] = []

    def forget(self) -> None:
        """Begins new paths."""
        # Alg. 1, line 8.
        self.states, self.values = [], []

    def at(self, s: float) -> Floats:
        """The values at s, (m,), drawn from their law given all that were drawn before."""
        place = bisect_left(self.states, s)
        if place < len(self.states) and self.states[place] == s:
            return self.values[place]
        # Alg. 1, line 14: all actions have the same points, so that one search is enough.
        a = self.beta * (s - self.states[place - 1]) if place > 0 else math.inf
        b = self.beta * (self.states[place] - s) if place < len(self.states) else math.inf
        # Alg. 1, line 16: (2), corrected.
        from_left, from_right, variance = bridge(a, b)
        value = self.sigma * math.sqrt(variance) * self.noise.normal((self.actions,))
        if a < math.inf:
            value = value + from_left * self.values[place - 1]
        if b < math.inf:
            value = value + from_right * self.values[place]
        # Alg. 1, line 15; Alg. 1, line 17.
        self.states.insert(place, s)
        self.values.insert(place, value)
        # Alg. 1, line 18.
        return value


class Network:
    """Q_theta(s, a) of ReLU units; theta has each layer's weights, row by row, then its biases."""

    def __init__(self, layers: tuple[int, ...], rng: np.random.Generator) -> None:
        self.layers = layers
        # PyTorch's default start: uniform, within one by the root of the inputs.
        sizes = pairwise(layers)
        parts = [rng.uniform(-1.0, 1.0, (a + 1) * b) / math.sqrt(a) for a, b in sizes]
        self.theta = np.concatenate(parts)

    def __call__(self, states: Floats) -> Floats:
        """Q at states (n,), as (n, m)."""
        return self._units(states)[-1]

    def gradients(self, states: Floats, actions: list[int]) -> Floats:
        """The gradient of each Q_theta(s_t, a_t) by theta, (n, len(theta))."""
        units, deltas = self._units(states), np.eye(self.layers[-1])[actions]
        parts: list[Floats] = []
        for (W, _), below in zip(self._matrices()[::-1], units[-2::-1], strict=True):
            outer = deltas[:, :, np.newaxis] * below[:, np.newaxis]
            parts[:0] = [outer.reshape(len(states), -1), deltas]
            deltas = (deltas @ W) * (below > 0.0)
        return np.concatenate(parts, axis=1)

    def greedy(self) -> QPolicy:
        """The policy of the best action by the network as it is now."""
        kept = copy(self)
        kept.theta = self.theta.copy()
        W, biases = kept._matrices()[-1]

        def hidden(states: Floats) -> Floats:
            return np.column_stack([kept._units(states)[-2], np.ones(len(states))])

        return QPolicy(Custom(hidden, W.shape[1] + 1), np.column_stack([W, biases]))

    def _matrices(self) -> list[tuple[Floats, Floats]]:
        """Weights (outputs, inputs) and biases by layer."""
        found, at = [], 0
        for a, b in pairwise(self.layers):
            middle, end = at + a * b, at + (a + 1) * b
            found.append((self.theta[at:middle].reshape(b, a), self.theta[middle:end]))
            at = end
        return found

    def _units(self, states: Floats) -> list[Floats]:
        """By layer, (n, units)."""
        units = [states.reshape(len(states), -1)]
        for W, biases in self._matrices():
            units[1:] = [np.maximum(unit, 0.0) for unit in units[1:]]
            units.append(units[-1] @ W.T + biases)
        return units


class StepBatch(NamedTuple):
    """A batch of steps of users."""

    states: Floats
    actions: list[int]
    rewards: Floats
    nexts: Floats


class Walk:
    """Users of a world, one step at a time; an episode follows on another."""

    def __init__(self, world: BoxWorld, rng: np.random.Generator) -> None:
        if world.spec.dimension != 1:
            raise InvalidArgument("world must have states in [0, 1]")
        self.world, self.rng = world, rng
        self.horizon, self.t, self.total = world.spec.horizon, 0, 0.0
        self.returns: list[float] = []
        self.estimates: list[float] = []
        self.state = float(rng.random())

    def step(self, action: int, believed: Floats) -> tuple[float, float]:
        """The reward and the next state, where actions are believed to be worth ``believed``.

        A new user begins after the last step.
        """
        from tacit.continuous.world_loops import move

        if self.t % self.horizon == 0:
            self.estimates.append(float(believed.max()))
        there = np.array([[self.state]])
        move(there, np.array([action]), self.rng.random(1))
        reward, after = float(self.world.rewards(there)[0]), float(there[0, 0])
        self.t, self.total, self.state = self.t + 1, self.total + reward, after
        if self.t % self.horizon == 0:
            self.returns.append(self.total)
            self.total, self.state = 0.0, float(self.rng.random())
        return reward, after

    def result(
        self, name: str, policy: Network | GridFunction, proof: Proof, named: dict[str, float]
    ) -> PaperResult:
        """The episodes that came to an end.

        Args:
            name: Of the algorithm.
            policy: The last one.
            proof: Of its privacy.
            named: Constants of the run.
        """
        values = np.array(self.returns)
        first = np.array(self.estimates[: len(values)])
        printed, best = proof.guarantee is None, self.world.optimal_value
        run = name, printed, best, values, first, policy, proof, named, ERRATA
        return PaperResult(*run, baseline_value=self.world.baseline_value)

    def batch(self, size: int, act: Callable[[float], tuple[int, Floats]]) -> StepBatch:
        """So many steps; ``act`` gives the action in a state and what actions are worth there.

        Rewards are clipped to their range, and nan is its lower end: the bound holds for any input.
        """
        low, high = self.world.spec.reward_range
        states, actions, rewards, nexts = (
            np.empty(size),
            list[int](),
            np.empty(size),
            np.empty(size),
        )
        for t in range(size):
            states[t] = self.state
            action, known = act(self.state)
            rewards[t], nexts[t] = self.step(action, known)
            actions.append(action)
        rewards = np.clip(np.nan_to_num(rewards, nan=low), low, high)
        return StepBatch(states, actions, rewards, nexts)


def functional_q(
    world: BoxWorld,
    *,
    epsilon: float,
    delta: float,
    setting: Setting = Setting(),  # noqa: B008
    sigma: float | None = None,
    protect: Literal["reward function", "episode"] = "reward function",
    printed: bool = True,
    seed: int = 0,
) -> PaperResult:
    """Algorithm 1, or what makes its idea private.

    ``values`` of the result are the returns of the episodes, as in the paper's figures: what users
    got, not expectations.

    Args:
        world: on [0, 1]: ``tacit.continuous.line()`` is the paper's.
        epsilon: with ``delta``, the privacy target.
        delta: see ``epsilon``.
        setting: the parameters of line 2.
        sigma: another noise than Theorem 5's (printed only); the paper reports 0.32 and 0.74.
        protect: the reward function, or one user's rewards (corrected only).
        printed: Algorithm 1, which has no guarantee, or the function itself as the state.
        seed: of the users, the network and the noise (that of a simulation).

    >>> from tacit.continuous import line
    >>> result = functional_q(line(), epsilon=0.9, delta=1e-4, setting=Setting(T=500))
    >>> print(result.guarantee, round(result.constants["sigma"], 4))
    None 0.0136
    """
    budget = Budget(epsilon, delta)
    T, B = whole_number("setting.T", setting.T), whole_number("setting.B", setting.B)
    if B > T:
        raise InvalidArgument(f"setting.B must be at most T = {T}, got {B}")
    if flag("printed", printed):
        return _algorithm_1(world, budget, setting, sigma, seed)
    if sigma is not None:
        raise InvalidArgument("sigma must be None where printed is False: the budget says it")
    one_of("protect", protect, ("reward function", "episode"))
    m, H, alpha = world.spec.actions, world.spec.horizon, setting.alpha
    low, high = world.spec.reward_range
    if protect == "episode":
        users, batches = whole_episodes(setting, H)
        size, distance, unit = users * H, alpha * (high - low) / users, REWARDS
    else:
        size, batches = setting.B, setting.batches
        distance, unit = alpha * math.sqrt(batches), _FUNCTION
    sigma = distance / budget.mu
    rng, noise = np.random.default_rng([seed, 1]), Noise(seed)
    F, walk = GridFunction(50, m, 1.0), Walk(world, rng)

    def act(s: float) -> tuple[int, Floats]:
        known = F(s)
        return int(rng.choice(np.flatnonzero(known == known.max()))), known

    for _ in range(batches):
        change = functional_update(F, walk.batch(size, act), setting)
        F.values = F.values + change + sigma * F.path(noise.normal(F.values.shape))
    claim = f"{budget} for two reward functions at most 1 apart"
    reason = "only the noised function is carried, looked at and returned"
    words = {"mu": distance / sigma, "delta": budget.delta, "releases": batches, "unit": unit}
    proof = proven(claim, reason, mechanism="functional Gaussian noise on the state", **words)
    named = {"sigma": sigma, "beta": F.beta, "batches": float(batches)}
    return walk.result("functional state", F, proof, named)


# Algorithm 1 as printed.


def _algorithm_1(
    world: BoxWorld, budget: Budget, setting: Setting, sigma: float | None, seed: int
) -> PaperResult:
    # Alg. 1, line 1; Alg. 1, line 2.
    m, B, alpha = world.spec.actions, setting.B, setting.alpha
    rng = np.random.default_rng([seed, 1])
    Q = Network((1, *setting.hidden, m), rng)
    # Alg. 1, line 5; half of delta is for the paths, as in Appendix E.3.
    if sigma is None:
        sigma = theorem_5_sigma(budget.epsilon, budget.delta / 2.0, setting)
    sigma = checked_number("sigma", sigma, "at least 0", lambda s: s >= 0)
    g, walk = Paths(setting.beta, sigma, m, Noise(seed)), Walk(world, rng)
    every = max(1, round(setting.batches / (setting.J or setting.batches)))
    # Alg. 1, line 6.
    for j in range(setting.batches):
        # Alg. 1, line 7; Alg. 1, line 9.
        if j % every == 0:
            g.forget()
        states, actions, errors = np.empty(B), [], np.empty(B)
        # Alg. 1, line 10; Alg. 1, line 11: t is j B + b.
        for b in range(B):
            s = walk.state
            # Alg. 1, line 12.
            noisy = Q(np.array([s]))[0] + g.at(s)
            a = int(np.argmax(noisy))
            # Alg. 1, line 13.
            r, after = walk.step(a, noisy)
            # Alg. 1, line 19.
            y = r + setting.discount * float((Q(np.array([after]))[0] + g.at(after)).max())
            # Alg. 1, line 20: the derivative of l_t by Q_theta(s_t, a_t).
            states[b], errors[b] = s, noisy[a] - y
            actions.append(a)
        # Alg. 1, line 21; Alg. 1, line 22.
        Q.theta -= alpha / B * (errors @ Q.gradients(states, actions))
    named = {"sigma": sigma, "beta": setting.beta, "batches": float(setting.batches)}
    claim = f"{budget} for two reward functions at most 1 apart"
    # Alg. 1, line 23; Alg. 1, line 24; Alg. 1, line 3: what is returned has no noise.
    return walk.result("Algorithm 1", Q, Proof(claim, None, WHY), named)


# What makes the idea private.


class GridFunction:
    """F_a on a public grid over [0, 1], linear in between: all that is ever released."""

    def __init__(self, cells: int, actions: int, beta: float) -> None:
        self.points = np.linspace(0.0, 1.0, cells + 1)
        self.beta, self.values = beta, np.zeros((actions, cells + 1))
        gaps = np.exp(-beta * np.diff(self.points))
        self._keep, self._add = gaps, np.sqrt(-np.expm1(2.0 * np.log(gaps)))

    def __call__(self, s: float) -> Floats:
        """F at s, (m,)."""
        return np.array([np.interp(s, self.points, row) for row in self.values])

    def kernel(self, s: float) -> Floats:
        """K(s, .) on the grid."""
        values: Floats = np.exp(-self.beta * np.abs(self.points - s))
        return values

    def path(self, units: Floats) -> Floats:
        """A path of the process on the grid, (m, cells + 1), from unit normals."""
        path = units.copy()
        for i in range(1, path.shape[1]):
            path[:, i] = self._keep[i - 1] * path[:, i - 1] + self._add[i - 1] * units[:, i]
        return path


def functional_update(F: GridFunction, steps: StepBatch, setting: Setting) -> Floats:
    """The update of F by a batch, before its noise, (m, cells + 1)."""
    change, rate = np.zeros_like(F.values), setting.alpha / len(steps.states)
    for s, a, r, after in zip(*steps, strict=True):
        y = r + setting.discount * float(F(after).max())
        change[a] -= rate * (float(F(s)[a]) - y) * F.kernel(s)
    return change


def whole_episodes(setting: Setting, horizon: int) -> tuple[int, int]:
    """Users of a batch whose steps are about B, and how many batches T has room for."""
    users = max(1, round(setting.B / horizon))
    if users * horizon > setting.T:
        raise InvalidArgument(f"setting.T must be at least {users * horizon}, got {setting.T}")
    return users, setting.T // (users * horizon)


def network_q(
    world: BoxWorld,
    *,
    epsilon: float,
    delta: float,
    setting: Setting = Setting(T=5000, B=500, alpha=0.3),  # noqa: B008
    clip: float = 1.0,
    exploration: float = 0.3,
    sigma: float | None = None,
    seed: int = 0,
) -> PaperResult:
    """Q-learning of a private network: theta itself is noised, so any look at Q_theta is free.

    The paper names the wish, a network that may be queried without limit; this is what meets it,
    without functional noise. With whole episodes in a batch, of B steps of U users,

        theta <- theta - alpha [(1/B) sum_t (Q_theta(s_t, a_t) - y_t) h_t + N(0, sigma^2 I)]

    where h_t is the gradient of Q_theta(s_t, a_t), scaled back to length G. Only r_t is private in
    it: theta is released, and states and actions are public. So if one user's H rewards change,
    each by at most their range R, the sum moves by at most R H G, the mean by R G / U, and TD
    errors need no bound. Each user is in one batch: the mechanism is (R G / (U sigma))-GDP in all.

    Args:
        world: on [0, 1].
        epsilon: with ``delta``, the privacy target, from which sigma follows.
        delta: see ``epsilon``.
        setting: T, B, alpha, the discount and the hidden layers; k, L and J mean nothing here.
        clip: G.
        exploration: how often an action is uniform.
        sigma: another noise; the guarantee is that of the noise drawn.
        seed: of the users, the network and the noise (that of a simulation).

    >>> from tacit.continuous import line
    >>> result = network_q(line(), epsilon=3.0, delta=1e-4, setting=Setting(T=1000, B=500))
    >>> round(result.guarantee.epsilon, 6), result.guarantee.unit
    (3.0, "one user's rewards; states and actions are public")
    """
    budget, H = Budget(epsilon, delta), world.spec.horizon
    (low, high), clip = world.spec.reward_range, positive("clip", clip)
    chance = checked_number("exploration", exploration, "in [0, 1]", lambda x: 0.0 <= x <= 1.0)
    users, batches = whole_episodes(setting, H)
    distance, B = (high - low) * clip / users, users * H
    std = distance / budget.mu if sigma is None else positive("sigma", sigma)
    rng, noise = np.random.default_rng([seed, 1]), Noise(seed)
    Q, walk = Network((1, *setting.hidden, world.spec.actions), rng), Walk(world, rng)

    def act(s: float) -> tuple[int, Floats]:
        known, uniform = Q(np.array([s]))[0], rng.random() < chance
        return int(rng.integers(len(known)) if uniform else np.argmax(known)), known

    for _ in range(batches):
        gradient = _td_gradient(Q, walk.batch(B, act), setting.discount, clip)
        Q.theta = Q.theta - setting.alpha * (gradient + std * noise.normal(gradient.shape))
    claim = "nothing: the paper compares with private gradients"
    reason = "only noised parameters are carried, looked at and returned"
    words = {"mu": distance / std, "delta": budget.delta, "releases": batches, "unit": REWARDS}
    proof = proven(claim, reason, mechanism="Gaussian noise on mean gradients", **words)
    named = {"sigma": std, "clip": clip, "batches": float(batches)}
    return walk.result("network state", Q, proof, named)


def _td_gradient(Q: Network, steps: StepBatch, discount: float, clip: float) -> Floats:
    """The mean of TD errors times gradients, which are scaled back to length ``clip``."""
    h = Q.gradients(steps.states, steps.actions)
    h *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), 1e-300))
    y = steps.rewards + discount * Q(steps.nexts).max(axis=1)
    errors = Q(steps.states)[np.arange(len(y)), steps.actions] - y
    gradient: Floats = errors @ h / len(y)
    return gradient


REWARDS = "one user's rewards; states and actions are public"
_FUNCTION = "the reward function; two are at most 1 apart"
