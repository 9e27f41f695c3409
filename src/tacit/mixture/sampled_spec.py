"""What an agent may know of a mixture of models given as simulators, and how it plans with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from tacit.data.reading import read_steps
from tacit.data.sizes import ArraySpec, Floats, check_bytes, check_seed, check_size, read_only
from tacit.mixture.spec import check_weight_set
from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import GramCross
from tacit.privacy.statistic import Block, Layout, Statistic
from tacit.tabular.feature_spec import check_mean_rewards, fingerprint
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec

Sampler: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64], np.random.Generator], Any]
"""A base model: next states (n,) of states (n,) and actions (n,), drawn one by one."""

RewardTable: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], ArrayLike]
"""Mean rewards (n,) of states (n,) and actions (n,)."""


@dataclass(frozen=True, eq=False, repr=False)
class SampledSpec(ArraySpec, FiniteSpec):
    """A mixture of base models that nobody has as a table.

    P(s' | s, a) = sum_i theta_i P_i(s' | s, a) with d public simulators P_i and unknown theta,
    the same at every step, of which is public what a :class:`~tacit.mixture.spec.MixtureSpec`
    says. Nothing here has S A d S numbers: of every model, state and action, ``samples`` next
    states are drawn once, from ``sampling_seed``, which is public. Plans and statistics know the
    models by these alone, and users' data never meet a simulator.

    Attributes:
        models: d simulators, ``model(states, actions, rng) -> next states``.
        known_rewards: mean rewards, (1, S, A), or a function of states and actions.
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
        samples, seed = check_size("samples", self.samples), self.sampling_seed
        shape = self.states, self.actions, len(models), samples
        check_bytes("draws (states, actions, models, samples)", shape, 4)
        weights = check_weight_set(len(models), self.center, self.directions, self.radius)
        names = ("models", "samples", "sampling_seed", "center", "directions", "radius")
        values = (models, samples, check_seed("sampling_seed", seed), *weights)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "known_rewards", self._rewards())

    def _rewards(self) -> Floats:
        given: Any = self.known_rewards
        S, A = self.states, self.actions
        if callable(given):
            cells = np.arange(S * A)
            given = np.reshape(given(cells // A, cells % A), (1, S, A))
        table = check_mean_rewards("known_rewards", given, 1, (S, A))
        if not ((table >= 0.0) & (table <= 1.0)).all():
            raise InvalidArgument("known_rewards must be in [0, 1]")
        return table

    def targets(self) -> StateTargets:
        """What :class:`tacit.LinOptSampled` plans with, and asks by."""
        return StateTargets(self)

    @property
    def dimension(self) -> int:
        """How many models and weights, d."""
        return len(self.models)

    @property
    def free(self) -> int:
        """How many numbers of theta are unknown, k."""
        return int(self.directions.shape[1])

    @cached_property
    def draws(self) -> csr_matrix:
        """How often the models drew what, as shares: sparse rows (S A d, S), public.

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
        """A fingerprint; models are told apart by what they drew."""
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

    Sensitivity: that of :class:`~tacit.GramCross` with a trajectory clip, sqrt(2) tau, and tau
    against zero. With y = (p, q / most) a user's sums are part of Y = sum y y', which is positive
    semi-definite with trace at most tau; two such matrices have a non-negative inner product, so
    |Y - Y'|^2 <= |Y|^2 + |Y'|^2 <= 2 tau^2. It holds for every V and any data, since the clip comes
    after everything was looked up. Attained by users who stay in two cells whose p are long and
    orthogonal, with q = 0; against zero by one of them.
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
            object.__setattr__(self, name, _table(name, getattr(self, name), size))
        for name in ("most", "clip"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "name", "targeted sums")

    @cached_property
    def moments(self) -> GramCross:
        """What p and q are summed by."""
        steps, _, _, k = self.inputs.shape
        how = {"weight": math.sqrt(2.0) / self.most, "tau": self.clip}
        return GramCross(k, 1, steps, pooled=True, clip="trajectory", **how)

    @property
    def layout(self) -> Layout:
        """``gram`` and ``cross``."""
        return self.moments.layout

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return self.moments.l2(relation)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        users, (T, S, A) = block.users, self.means.shape
        # Rewards are known: those of a block are of the right shape, and no more.
        states, taken, _ = read_steps(block, T + 1)
        actions = taken[:, :T]
        now, after = states[:, :T], states[:, 1 : T + 1]
        valid = (now >= 0) & (now < S) & (after >= 0) & (after < S)
        valid &= (actions >= 0) & (actions < A)
        now, after, taken = (np.where(valid, array, 0) for array in (now, after, actions))
        steps = np.arange(T)
        p = self.inputs[steps, now, taken] * valid[..., np.newaxis]
        q = (self.values[steps, after] - self.means[steps, now, taken]) * valid
        return self.moments.vectors(Block(users, {"p": p, "q": q[..., np.newaxis]}))


class StateTargets:
    """Value iteration on what the models of a :class:`SampledSpec` drew."""

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
        """Optimistic values step by step from the last; V of the next step is what is asked about.

        Q = r + p0 V + phi' eta + width, cut to what the next values are, and V = max_a Q.
        """
        spec = self.spec
        H, S, A = spec.horizon, spec.states, spec.actions
        inputs, means = np.empty((H - 1, S, A, spec.free)), np.empty((H - 1, S, A))
        asked = np.empty((H - 1, S))
        best = np.empty((2, H, S), dtype=np.int64)
        rewards = spec.known_rewards[0]
        values = np.zeros((2, S))
        for h in range(H - 1, -1, -1):
            Q = np.array([rewards, rewards])
            if h < H - 1:
                asked[h] = values[0]
                for j in range(2):
                    phi = spec.expected(values[j])
                    x, base = phi @ spec.directions, phi @ spec.center
                    mean = base + x @ eta
                    if j == 0:
                        inputs[h], means[h] = x, base
                        mean = mean + width(x)
                    Q[j] += np.clip(mean, float(values[j].min()), float(values[j].max()))
            for j in range(2):
                best[j, h], values[j] = _best(Q[j], rng)
        made = (Policy.deterministic(acts, A) for acts in best)
        return next(made), next(made), self._asked(inputs, means, asked, clip)

    def _asked(self, inputs: Floats, means: Floats, values: Floats, share: float) -> dict[str, Any]:
        """Arguments of the statistic of the next block; scales and clip are public numbers.

        A user who is everywhere alike has inputs of length 1 and targets as long as ``most``, both
        in the mean square over steps.
        """
        size = max(math.sqrt(float(np.einsum("hsak,hsak->", inputs, inputs)) / means.size), 1e-9)
        most = max(self._target_size(means, values) / size, 1e-9)
        for table in (inputs, means, values):
            table /= size
            table.setflags(write=False)
        clip = share * 2.0 * (self.spec.horizon - 1)
        return {"inputs": inputs, "means": means, "values": values, "most": most, "clip": clip}

    def _target_size(self, means: Floats, values: Floats) -> float:
        """Of V(s') - p0 V, in the mean square over some steps, all cells and models."""
        spec, squares = self.spec, []
        for V, base in zip(values[::4], means[::4], strict=True):
            own = spec.expected(V**2) - 2.0 * base[..., np.newaxis] * spec.expected(V)
            squares.append(max(float((own + base[..., np.newaxis] ** 2).mean()), 0.0))
        return math.sqrt(float(np.mean(squares)))


def _best(q_values: Floats, rng: np.random.Generator) -> tuple[Any, Floats]:
    """The best actions of (S, A) values, ties broken at random, and their values."""
    top = q_values.max(axis=-1)
    ties = np.where(q_values == top[:, np.newaxis], rng.random(q_values.shape), -1.0)
    return ties.argmax(axis=-1), top


def _table(name: str, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Read-only and finite; a copy, unless it is so already: these are large."""
    table = read_only(values)
    if table.shape != shape or not np.isfinite(table).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {table.shape}")
    return table
