"""Mixtures of models that are given as simulators: spec, statistic and plans on what they drew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from tacit.data.reading import read_steps
from tacit.data.sizes import ArraySpec, Floats, check_bytes, check_seed, check_size, read_only
from tacit.mixture.spec import check_weight_set
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import GramCross
from tacit.privacy.statistic import Block, Layout, Statistic
from tacit.privacy.validation import positive
from tacit.tabular.feature_spec import check_mean_rewards, fingerprint
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec

Sampler: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64], np.random.Generator], Any]
"""A base model: next states (n,) of states (n,) and actions (n,), drawn one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class SampledSpec(ArraySpec, FiniteSpec):
    """Public description of a mixture whose base models are simulators, not tables.

    P(s' | s, a) = sum_i theta_i P_i(s' | s, a) with d public simulators P_i and unknown theta,
    the same at every step; its center, directions and radius are public. Nothing here has
    S A d S numbers: of every model, state and action, ``samples`` next states are drawn once, from
    ``sampling_seed``, which is public. Plans and statistics know the models by these alone, and
    users' data never meet a simulator.

    Attributes:
        models: d simulators, ``model(states, actions, rng) -> next states``.
        known_rewards: mean rewards, (1, S, A).
        samples: next states drawn of every model, state and action.
        sampling_seed: of these draws.
        center, directions, radius: see :class:`~tacit.mixture.spec.MixtureSpec`.

    >>> stays = lambda states, actions, rng: states
    >>> leaps = lambda states, actions, rng: rng.integers(0, 3, len(states))
    >>> spec = SampledSpec(3, 2, 4, True, models=(stays, leaps), known_rewards=np.zeros((1, 3, 2)))
    >>> spec.dimension, spec.expected(np.arange(3.0))[:, 0, 0].tolist()
    (2, [0.0, 1.0, 2.0])
    """

    models: tuple[Sampler, ...] = field(kw_only=True)
    known_rewards: Floats = field(kw_only=True)
    samples: int = field(default=32, kw_only=True)
    sampling_seed: int = field(default=0, kw_only=True)
    center: Floats = field(default=None, kw_only=True)  # type: ignore[arg-type]
    directions: Floats = field(default=None, kw_only=True)  # type: ignore[arg-type]
    radius: float = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        models = tuple(self.models)
        if not models or not all(callable(model) for model in models):
            raise InvalidArgument(f"models must be functions, one or more, got {self.models!r}")
        if not self.stationary:
            raise InvalidArgument("stationary must be True: models and weights know no step")
        samples, (S, A) = check_size("samples", self.samples), (self.states, self.actions)
        check_seed("sampling_seed", self.sampling_seed)
        check_bytes("draws (states, actions, models, samples)", (S, A, len(models), samples), 4)
        rewards = check_mean_rewards("known_rewards", self.known_rewards, 1, (S, A))
        if not ((rewards >= 0.0) & (rewards <= 1.0)).all():
            raise InvalidArgument("known_rewards must be in [0, 1]")
        weights = check_weight_set(len(models), self.center, self.directions, self.radius)
        names = ("models", "samples", "known_rewards", "center", "directions", "radius")
        for name, value in zip(names, (models, samples, rewards, *weights), strict=True):
            object.__setattr__(self, name, value)

    def targets(self) -> StateTargets:
        """Plans and queries of :class:`tacit.LinOptSampled`."""
        return StateTargets(self)

    @property
    def dimension(self) -> int:
        """Number of models and weights, d."""
        return len(self.models)

    @property
    def free(self) -> int:
        """Number of unknown coordinates of theta, k."""
        return int(self.directions.shape[1])

    @cached_property
    def draws(self) -> csr_matrix:
        """Shares of next states among the models' draws: sparse rows (S A d, S), public.

        As many entries as there are different next states, at most S A d ``samples``.
        """
        S, A, d, m = self.states, self.actions, self.dimension, self.samples
        states, rows, targets, counts = np.repeat(np.arange(S), m), [], [], []
        for a in range(A):
            for i in range(d):
                rng = np.random.default_rng(np.random.SeedSequence([self.sampling_seed, a, i]))
                drawn = np.asarray(self.models[i](states, np.full(S * m, a), rng))
                if drawn.shape != (S * m,) or drawn.dtype.kind not in "iu":
                    raise InvalidArgument(
                        f"models[{i}] must return {S * m} whole numbers, got {drawn.dtype} of "
                        f"shape {drawn.shape}"
                    )
                if drawn.min() < 0 or drawn.max() >= S:
                    raise InvalidArgument(f"models[{i}] must return states in 0..{S - 1}")
                keys, times = np.unique(states * S + drawn, return_counts=True)
                rows.append((keys // S * A + a) * d + i)
                targets.append(keys % S)
                counts.append(times / m)
        entries = tuple(np.concatenate(some) for some in (counts, rows, targets))
        return csr_matrix((entries[0], entries[1:]), shape=(S * A * d, S))

    def expected(self, values: Floats) -> Floats:
        """E_i of values (S,) of the next state under every model, by its draws: (S, A, d)."""
        found: Floats = (self.draws @ values).reshape(self.states, self.actions, self.dimension)
        return found

    @cached_property
    def digest(self) -> str:
        """A fingerprint; models are told apart by their draws."""
        weights = self.center, self.directions, self.radius
        drawn = self.draws.data, self.draws.indices, self.draws.indptr
        return fingerprint(*drawn, self.known_rewards, self.start, *weights)

    def __repr__(self) -> str:
        sizes = ("states", "actions", "horizon", "dimension", "free", "samples")
        shown = ", ".join(f"{name}={getattr(self, name)}" for name in sizes)
        return f"SampledSpec({shown}, digest={self.digest!r})"


@dataclass(frozen=True, eq=False)
class TargetedSums(Statistic):
    """Sums over a user's steps of p p' and p q: the paper's value-targeted regression, pooled.

    At step h in state s with action a, p = ``inputs`` (k numbers) and q = ``values`` of the next
    state less ``means``, all public tables. The last step has no next value and does not count, nor
    does a step whose state, action or next state is invalid. Reads ``states`` (users, H + 1) and
    ``actions`` (users, H); parts are ``gram`` (k, k) and ``cross`` (k, 1), with weight
    w = sqrt(2) / ``most``.

    Both sums of a user are multiplied by min(1, tau / sum_h (|p_h|^2 + q_h^2 / most^2)), tau =
    ``clip``: a common factor, by which q = p' eta + noise stays as it is.

    Formal guarantees:
        Sensitivity: that of :class:`~tacit.GramCross` with a trajectory clip, sqrt(2) tau, and tau
        against zero. With y = (p, q / most) a user's sums are part of Y = sum y y', which is
        positive semi-definite with trace at most tau; two such matrices have a non-negative inner
        product, so |Y - Y'|^2 <= |Y|^2 + |Y'|^2 <= 2 tau^2. It holds for every V and any data,
        since the clip comes after everything was looked up. Attained by users who stay in two
        cells whose p are long and orthogonal, with q = 0; against zero by one of them.
    """

    inputs: Floats  # p, (H - 1, S, A, k)
    means: Floats  # p0 V / scale, (H - 1, S, A)
    values: Floats  # V / scale of the next step, (H - 1, S)
    most: float  # of |q|
    clip: float  # tau

    def __post_init__(self) -> None:
        shape = np.shape(self.inputs)
        if len(shape) != 4 or 0 in shape:
            raise InvalidArgument(f"inputs must have shape (H - 1, S, A, k), got {shape}")
        sizes = {"inputs": shape, "means": shape[:3], "values": shape[:2]}
        for name, size in sizes.items():
            # A copy only of what the caller can still change: these are large.
            table = read_only(getattr(self, name))
            if table.shape != size or not np.isfinite(table).all():
                raise InvalidArgument(f"{name} must be finite, of shape {size}, got {table.shape}")
            object.__setattr__(self, name, table)
        for name in ("most", "clip"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "name", "targeted sums")

    @cached_property
    def moments(self) -> GramCross:
        """Statistic of p and q that clips and sums."""
        steps, _, _, k = self.inputs.shape
        return GramCross(k, 1, steps, math.sqrt(2.0) / self.most, self.clip)

    @property
    def layout(self) -> Layout:
        """``gram`` and ``cross``."""
        return self.moments.layout

    def l2(self, relation: Relation) -> float:
        """Sensitivity of the clipped sums, tau or sqrt(2) tau."""
        return self.moments.l2(relation)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        users, (T, S, A) = block.users, self.means.shape
        # Rewards are known: those of a block are of the right shape, and no more.
        states, taken, _ = read_steps(block, T + 1)
        now, after, taken = states[:, :T], states[:, 1 : T + 1], taken[:, :T]
        valid = (now >= 0) & (now < S) & (after >= 0) & (after < S) & (taken >= 0) & (taken < A)
        now, after, taken = (np.where(valid, array, 0) for array in (now, after, taken))
        steps = np.arange(T)
        p = self.inputs[steps, now, taken] * valid[..., np.newaxis]
        q = (self.values[steps, after] - self.means[steps, now, taken]) * valid
        return self.moments.vectors(Block(users, {"p": p, "q": q[..., np.newaxis]}))


class StateTargets:
    """Value iteration on the draws of the models of a :class:`SampledSpec`."""

    statistic = TargetedSums

    def __init__(self, spec: SampledSpec) -> None:
        if spec.horizon < 2:
            raise InvalidArgument("an episode of one step has no transitions to learn from")
        self.spec, self.free, self.radius = spec, spec.free, spec.radius

    def plan(
        self,
        eta: Floats,
        width: Callable[[Floats], Floats],
        clip: float,
        rng: np.random.Generator,
    ) -> tuple[Policy, Policy, dict[str, Any]]:
        """Optimistic and greedy policies, and the arguments of the next statistic.

        Q = r + p0 V + phi' eta + width, cut to the range of the next values, and V = max_a Q, step
        by step from the last; the statistic is about V of the next step.

        Args:
            eta: Estimated coordinates of the weights.
            width: Bonus of optimism, (S, A), of inputs (S, A, k).
            clip: Of users, as a share.
            rng: Breaks ties.
        """
        spec, rewards = self.spec, self.spec.known_rewards[0]
        H, S, A = spec.horizon, spec.states, spec.actions
        inputs, means = np.empty((H - 1, S, A, spec.free)), np.empty((H - 1, S, A))
        asked, best = np.empty((H - 1, S)), np.empty((2, H, S), dtype=np.int64)
        V = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            Q = np.array([rewards, rewards])
            if h < H - 1:
                asked[h] = V[0]
                for j in range(2):
                    phi = spec.expected(V[j])
                    x, base = phi @ spec.directions, phi @ spec.center
                    mean = base + x @ eta
                    if j == 0:
                        inputs[h], means[h] = x, base
                        mean = mean + width(x)
                    Q[j] += np.clip(mean, float(V[j].min()), float(V[j].max()))
            for j in range(2):
                V[j] = Q[j].max(axis=1)
                ties = np.where(Q[j] == V[j][:, np.newaxis], rng.random((S, A)), -1.0)
                best[j, h] = ties.argmax(axis=1)
        optimistic, greedy = (Policy.deterministic(actions, A) for actions in best)
        return optimistic, greedy, self._asked(inputs, means, asked, clip)

    def _asked(self, inputs: Floats, means: Floats, values: Floats, share: float) -> dict[str, Any]:
        """Arguments of the statistic of the next block; scales and clip are public numbers.

        A user who is everywhere alike has inputs of length 1 and targets as long as ``most``, both
        in the mean square over steps.
        """
        size = max(math.sqrt(float(np.einsum("hsak,hsak->", inputs, inputs)) / means.size), 1e-9)
        squares = []  # of V(s') - p0 V, at some steps, over all cells and models
        for V, base in zip(values[::4], means[::4, ..., np.newaxis], strict=True):
            own = self.spec.expected(V**2) - 2.0 * base * self.spec.expected(V)
            squares.append(max(float((own + base**2).mean()), 0.0))
        most = max(math.sqrt(float(np.mean(squares))) / size, 1e-9)
        for table in (inputs, means, values):
            table /= size
            table.setflags(write=False)
        clip = share * 2.0 * (self.spec.horizon - 1)
        return {"inputs": inputs, "means": means, "values": values, "most": most, "clip": clip}
