"""What an agent may know of a mixture of models that are given as simulators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix

from tacit.core.sizes import Floats, check_bytes, check_seed, check_size
from tacit.core.spec import ArraySpec
from tacit.finite.feature_spec import check_mean_rewards, fingerprint
from tacit.finite.spec import FiniteSpec
from tacit.mixture.spec import check_weight_set
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.mixture.targeted_sums import StateTargets

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
        from tacit.mixture.targeted_sums import StateTargets

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
