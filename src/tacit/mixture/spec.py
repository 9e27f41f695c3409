"""Public descriptions of linear mixture MDPs, by tables of features or by simulators."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats
from tacit.privacy.validation import (
    ArraySpec,
    check_bytes,
    numbers,
    positive,
    read_only,
    whole_number,
)
from tacit.tabular.policy import settle
from tacit.tabular.spec import FeatureSpec, FiniteSpec, check_mean_rewards, fingerprint

if TYPE_CHECKING:
    from tacit.mixture.linopt_sampled import StateTargets


Sampler: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64], np.random.Generator], Any]
"""A base model: next states (n,) of states (n,) and actions (n,), drawn one by one."""


@dataclass(frozen=True, eq=False, repr=False)
class MixtureSpec(FeatureSpec):
    """Public description of a finite linear mixture MDP.

    Probabilities are linear in d known features psi(s' | s, a) of the next state too:
    P_h(s' | s, a) = <psi(s' | s, a), theta_h>. The d weights theta_h are unknown. Public is
    only that they are center + directions @ eta_h, with unknown eta_h in R^k, and that
    |eta_h| <= radius. Mean rewards are known, or <varphi(s, a), omega_h> with m known features
    varphi and unknown omega_h, or both. Arrays are read-only copies. Beside what a
    :class:`~tacit.tabular.spec.FiniteSpec` has:

    Attributes:
        transition_features: psi, (S, A, d, S), indexed [s, a, i, s'].
        stationary_transitions: whether theta is the same at every step.
        stationary_rewards: whether mean rewards are the same at every step.
        reward_features: varphi, (S, A, m), or ``None`` where rewards are known.
        known_rewards: mean rewards, (1 or H, S, A), where they are known, else ``None``.
        center: (d,); zero if not given.
        directions: (d, k); the identity if not given.
        radius: > 0; sqrt(d) if not given.

    >>> spec = MixtureSpec(states=1, actions=2, horizon=3, known_rewards=[[[0.0, 1.0]]],
    ...                    transition_features=[[[[1.0], [1.0]]] * 2],
    ...                    stationary_transitions=True, stationary_rewards=True,
    ...                    center=[0.5, 0.5], directions=[[1.0], [-1.0]])
    >>> spec.dimension, spec.free, round(spec.radius, 4)
    (2, 1, 1.4142)
    """

    stationary: bool = field(init=False)
    transition_features: Floats = field(kw_only=True)
    stationary_transitions: bool = field(kw_only=True)
    stationary_rewards: bool = field(kw_only=True)
    reward_features: Floats | None = field(default=None, kw_only=True)
    known_rewards: Floats | None = field(default=None, kw_only=True)
    # Never None once made; None stands for the defaults, which depend on d.
    center: Floats = field(default=None, kw_only=True)  # type: ignore[arg-type]
    directions: Floats = field(default=None, kw_only=True)  # type: ignore[arg-type]
    radius: float = field(default=None, kw_only=True)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        super().__post_init__()
        S, A, varphi = self.states, self.actions, self.reward_features
        features = check_table("transition_features", self.transition_features, S, A, None, S)
        if varphi is None and self.known_rewards is None:
            raise InvalidArgument("reward_features and known_rewards must not both be None")
        varphi = None if varphi is None else check_table("reward_features", varphi, S, A, None)
        settle(self, transition_features=features, reward_features=varphi)
        self._check_known_rewards()
        settle(self, **check_weight_set(self.dimension, self.center, self.directions, self.radius))
        check_bytes("features along the directions", (S, A, self.free, S))

    @property
    def dimension(self) -> int:
        """Number of features and weights of transitions, d."""
        return int(self.transition_features.shape[2])

    @property
    def free(self) -> int:
        """Number of unknown coordinates of theta_h, k."""
        return int(self.directions.shape[1])

    # P V = p0 V + phi' w with phi = x V, for w = unit eta.

    @cached_property
    def along(self) -> tuple[Floats, float]:
        """Features x along the directions, (S, A, k, S), of norm at most 1, and their unit."""
        table = np.einsum("sadt,dk->sakt", self.transition_features, self.directions, optimize=True)
        along = np.ascontiguousarray(table)
        unit = max(float(np.sqrt((along**2).sum(axis=(2, 3)).max())), 1e-12)
        return along / unit, unit

    @cached_property
    def mean(self) -> Floats:
        """The known part p0 of transitions, at the centre of the weights, (S, A, S)."""
        mean = np.einsum("sadt,d->sat", self.transition_features, self.center, optimize=True)
        return np.asarray(mean)

    @cached_property
    def support(self) -> Bools:
        """Transitions that are possible under some weights, (S, A, S)."""
        return np.asarray(np.abs(self.transition_features).sum(axis=2) > 0)

    @cached_property
    def informs(self) -> Bools:
        """Transitions that depend on the weights, (S, A, S)."""
        return np.asarray(np.abs(self.along[0]).sum(axis=2) > 0)

    @cached_property
    def paying(self) -> Floats | None:
        """Reward features in units of their largest norm, where rewards are unknown."""
        v = self.reward_features if self.known_rewards is None else None
        return None if v is None else v / max(float(np.sqrt((v**2).sum(axis=2).max())), 1e-12)

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all that the short form does not show."""
        rewards = self.start, self.reward_values, self.known_rewards
        weights = self.center, self.directions, self.radius
        return fingerprint(self.transition_features, self.reward_features, *rewards, *weights)

    def __repr__(self) -> str:
        return self._text(self.digest, dimension=self.dimension, free=self.free)


@dataclass(frozen=True, eq=False, repr=False)
class SampledSpec(ArraySpec, FiniteSpec):
    """Public description of a mixture whose base models are simulators, not tables.

    P(s' | s, a) = sum_i theta_i P_i(s' | s, a) with d public simulators P_i and unknown theta, at
    least 0 and with sum 1, the same at every step. Of every model, state and action, ``samples``
    next states are drawn once, from ``sampling_seed``, which is public. Plans and statistics know
    the models by these alone, and users' data never meet a simulator.

    Attributes:
        models: d simulators, ``model(states, actions, rng) -> next states``.
        known_rewards: mean rewards, (1, S, A).
        samples: next states drawn of every model, state and action.
        sampling_seed: of these draws.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        models, (S, A) = tuple(self.models), (self.states, self.actions)
        if len(models) < 2 or not all(callable(model) for model in models):
            raise InvalidArgument(f"models must be two functions or more, got {self.models!r}")
        if not self.stationary:
            raise InvalidArgument("stationary must be True: models and weights know no step")
        settle(self, models=models, samples=whole_number("samples", self.samples))
        whole_number("horizon", self.horizon, least=2)  # one step has no transition to learn from
        whole_number("sampling_seed", self.sampling_seed, least=0)
        check_bytes("draws of all models", (S, A, len(models), self.samples), 4)
        rewards = check_mean_rewards("known_rewards", self.known_rewards, 1, (S, A))
        if not ((rewards >= 0.0) & (rewards <= 1.0)).all():
            raise InvalidArgument("known_rewards must be in [0, 1]")
        settle(self, known_rewards=rewards)

    def targets(self) -> StateTargets:
        """Plans and queries of :class:`tacit.LinOptSampled`."""
        from tacit.mixture.linopt_sampled import StateTargets

        return StateTargets(self)

    @property
    def dimension(self) -> int:
        """Number of models and weights, d."""
        return len(self.models)

    @cached_property
    def draws(self) -> csr_matrix:
        """Shares of next states among the models' draws: sparse rows (S A d, S), public."""
        S, A, d, m = self.states, self.actions, self.dimension, self.samples
        states, rows, targets, counts = np.repeat(np.arange(S), m), [], [], []
        for a in range(A):
            for i in range(d):
                rng = np.random.default_rng(np.random.SeedSequence([self.sampling_seed, a, i]))
                drawn = np.asarray(self.models[i](states, np.full(S * m, a), rng))
                whole = drawn.shape == (S * m,) and drawn.dtype.kind in "iu"
                if not whole or drawn.min() < 0 or drawn.max() >= S:
                    raise InvalidArgument(f"models[{i}] must return {S * m} states of 0..{S - 1}")
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
        drawn = self.draws.data, self.draws.indices, self.draws.indptr
        return fingerprint(*drawn, self.known_rewards, self.start)

    def __repr__(self) -> str:
        sizes = f"states={self.states}, actions={self.actions}, horizon={self.horizon}"
        models = f"dimension={self.dimension}, samples={self.samples}"
        return f"SampledSpec({sizes}, {models}, digest={self.digest!r})"


def check_table(name: str, values: ArrayLike, *sizes: int | None) -> Floats:
    """Read-only finite numbers of a shape, in which ``None`` stands for any size."""
    array = numbers(name, values)
    alike = zip(sizes, array.shape, strict=False)
    good = array.ndim == len(sizes) and array.size and all(n in (None, m) for n, m in alike)
    if not good or not np.isfinite(array).all():
        shape = ", ".join("?" if n is None else str(n) for n in sizes)
        raise InvalidArgument(f"{name} must be finite, of shape ({shape}), got {array.shape}")
    check_bytes(name, array.shape)
    return read_only(array)


def check_weight_set(
    d: int, center: ArrayLike | None, directions: ArrayLike | None, radius: float | None
) -> dict[str, Any]:
    """Public knowledge of d weights; the defaults say only that |theta| <= sqrt(d).

    Args:
        d: Number of weights.
        center: (d,); zero if not given.
        directions: (d, k); the identity if not given.
        radius: Bound on |eta|; sqrt(d) if not given.
    """
    check_bytes("directions", (d, d if directions is None else 1))
    directions = np.eye(d) if directions is None else directions
    return {
        "center": check_table("center", np.zeros(d) if center is None else center, d),
        "directions": check_table("directions", directions, d, None),
        "radius": positive("radius", math.sqrt(d) if radius is None else radius),
    }
