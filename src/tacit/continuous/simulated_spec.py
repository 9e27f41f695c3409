"""What an agent may know of vectors whose moves mix simulators."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from tacit.continuous.spec import BoxSpec
from tacit.core.sizes import check_seed, check_size
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Bools, Floats, Ints

if TYPE_CHECKING:
    from tacit.continuous.vector_targets import VectorTargets

VectorSampler: TypeAlias = Callable[[Floats, Ints, np.random.Generator], ArrayLike]
"""A base model: next states (n, D) of states (n, D) and actions (n,), drawn one by one."""

# States and actions at which models are looked at, for a fingerprint.
_LOOKED_AT = 64


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedSpec(BoxSpec):
    """A mixture of base models on vectors: P(. | s, a) = sum_i theta_i P_i(. | s, a).

    The d simulators P_i and the reward of a new state are public. The weights theta are not; they
    are at least 0 and add up to 1, the same at every step. Of each model, ``samples`` next states
    are drawn at public states, from ``sampling_seed``; users' data never meet a simulator.

    Attributes:
        models: d simulators, ``model(states, actions, rng) -> next states``.
        reward: the known mean rewards, (n,), of new states, (n, D).
        samples: next states drawn of every model, public state and action.
        sampling_seed: of these draws.
        ends: at which new states, (n, D), an episode is over, if any; of rows, (n,).

    >>> ahead = lambda states, actions, rng: states + 0.1
    >>> stays = lambda states, actions, rng: states
    >>> spec = SimulatedSpec((0.0,), (1.0,), actions=1, horizon=5, models=(ahead, stays),
    ...                      reward=lambda states: states[:, 0])
    >>> spec.drawn(np.array([[0.5], [0.95]]), 0, 0)[:, 0].round(2).tolist()
    [[0.6], [1.0]]
    """

    models: tuple[VectorSampler, ...] = field(kw_only=True)
    reward: Callable[[Floats], ArrayLike] = field(kw_only=True)
    samples: int = field(default=64, kw_only=True)
    sampling_seed: int = field(default=0, kw_only=True)
    ends: Callable[[Floats], ArrayLike] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        models = tuple(self.models)
        if len(models) < 2 or not all(callable(model) for model in (*models, self.reward)):
            raise InvalidArgument("models must be two functions or more, and reward a function")
        object.__setattr__(self, "models", models)
        object.__setattr__(self, "samples", check_size("samples", self.samples))
        check_seed("sampling_seed", self.sampling_seed)
        if self.ends is not None:
            if not callable(self.ends):
                raise InvalidArgument(f"ends must be a function, got {self.ends!r}")
            object.__setattr__(self, "may_end", True)

    def targets(self) -> VectorTargets:
        """What :class:`tacit.LinOptSampled` plans with, and asks by."""
        from tacit.continuous.vector_targets import VectorTargets

        return VectorTargets(self)

    @property
    def mixed(self) -> int:
        """How many models and weights, d."""
        return len(self.models)

    def drawn(self, states: Floats, action: int, model: int) -> Floats:
        """What a model drew at public states, (n, samples, D), within the box."""
        n, D, m = len(states), self.dimension, self.samples
        seed = np.random.SeedSequence([self.sampling_seed, action, model])
        here, actions = np.repeat(states, m, axis=0), np.full(n * m, action)
        found = self.models[model](here, actions, np.random.default_rng(seed))
        array = np.asarray(found, dtype=np.float64)
        if array.shape != (n * m, D) or not np.isfinite(array).all():
            raise InvalidArgument(
                f"models[{model}] must return finite states of shape {(n * m, D)}, got "
                f"{array.shape}"
            )
        return np.clip(array, self.lows, self.highs).reshape(n, m, D)

    def rewards(self, states: Floats) -> Floats:
        """Known rewards, (...,), of new states (..., D), cut to their range; never raises."""
        rows = states.reshape(-1, self.dimension)
        with np.errstate(all="ignore"):
            found = np.asarray(self.reward(np.clip(rows, self.lows, self.highs)), np.float64)
        if found.shape != (len(rows),):
            raise InvalidArgument(f"reward must return an array of shape ({len(rows)},)")
        low, high = self.reward_range
        return np.clip(np.nan_to_num(found, nan=low), low, high).reshape(states.shape[:-1])

    def ended(self, states: Floats) -> Bools:
        """At which new states, (..., D), an episode is over; nowhere, if there are no ends."""
        over = np.zeros(states.shape[:-1], dtype=np.bool_)
        if self.ends is None:
            return over
        rows = np.clip(states.reshape(-1, self.dimension), self.lows, self.highs)
        found = np.asarray(self.ends(rows), dtype=np.bool_)
        if found.shape != (len(rows),):
            raise InvalidArgument(f"ends must return an array of shape ({len(rows)},)")
        return found.reshape(over.shape)

    @cached_property
    def digest(self) -> str:
        """A fingerprint; models and rewards are told apart by what they do at some states."""
        rng = np.random.default_rng(0)
        at = rng.uniform(self.lows, self.highs, (_LOOKED_AT, self.dimension))
        digest = hashlib.blake2b(self.rewards(at).tobytes(), digest_size=8)
        if self.ends is not None:
            digest.update(self.ended(at).tobytes())
        for action in range(self.actions):
            for model in range(self.mixed):
                digest.update(self.drawn(at, action, model).tobytes())
        return digest.hexdigest()

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        names = ["lows", "highs", "actions", "horizon", "reward_range", "discount", "features"]
        names += ["mixed", "samples", "sampling_seed", "digest"]
        return f"SimulatedSpec({', '.join(f'{n}={getattr(self, n)!r}' for n in names)})"
