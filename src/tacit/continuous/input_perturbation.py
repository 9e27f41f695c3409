"""Input perturbation: every user's own rewards get noise, then anybody may learn from them.

Idea:
    After Venkitasubramaniam (2013), as Wang and Hegde (2019) compare with it: each reward is
    published with Gaussian noise, and Q is fitted to what was published.
Private statistics:
    Each user's vector of rewards, alone (``protect="rewards"``), or her whole trajectory
    (``protect="episode"``).
Guarantee:
    ``protect="rewards"`` protects one user's rewards; states, actions and lengths are public.
    ``protect="episode"`` protects the whole episode, which leaves nothing to learn from: it is
    local DP of all that a user did.
Deviations from the paper:
    The unit is one user's rewards in place of the reward function, and the noise is exact for it.
Cost:
    One release for each user.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tacit.continuous.baseline import Baseline, Floats, fitted_q, transitions
from tacit.continuous.features import FeatureMap
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics import REWARDS_ONLY, check_shapes
from tacit.core.learner import Arrays
from tacit.privacy.arguments import one_of, positive
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Layout, Part, Statistic


@dataclass(frozen=True)
class RewardVectors(Statistic):
    """A user's rewards, in order; about one user at a time.

    Reads ``rewards`` (users, H), and refuses the others if their shapes are wrong: they are kept
    as they come. Each is clipped to its range and counted from the middle, in units
    of the range; one that is not finite is the middle.

    Sensitivity, when one user's rewards change and nothing else. Each of H coordinates is in
    [-1/2, 1/2]: two users are at most sqrt(H) apart, and zero is at most sqrt(H) / 2 away. Both are
    attained, and in the 1-norm they are H and H / 2.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", "one user's rewards")

    @property
    def protects(self) -> str:
        """Rewards only."""
        return REWARDS_ONLY

    @property
    def private_columns(self) -> frozenset[str]:
        """Rewards only."""
        return frozenset({"rewards"})

    @property
    def layout(self) -> Layout:
        """``rewards``."""
        return Layout((Part("rewards", (self.spec.horizon,)),))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return math.sqrt(self.spec.horizon) * _half(relation)

    def l1(self, relation: Relation) -> float:
        """See the class."""
        return self.spec.horizon * _half(relation)

    def vectors(self, block: Block) -> Floats:
        """From -1/2 to 1/2."""
        check_shapes(block, self.spec)
        return _unit(np.asarray(block["rewards"], dtype=np.float64), *self.spec.reward_range)


@dataclass(frozen=True)
class Trajectories(Statistic):
    """A user's whole trajectory; about one user at a time.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. Coordinates of states and rewards
    are clipped and counted from the middle, in units of their ranges; actions are one-hot vectors
    less their mean. A step that is not valid is zero, and so is a state that is not finite.

    Sensitivity. (H + 1) D + H coordinates are in [-1/2, 1/2] and move by at most 1 each, and H
    one-hots move by at most sqrt(2) each: sqrt((H + 1) D + 3 H). Against zero the squares are 1/4
    for the former and 1 - 1 / A for the latter.
    """

    spec: BoxSpec

    def __post_init__(self) -> None:
        if not self.spec.bounded:
            raise InvalidArgument(
                f"states must be in a finite box to be perturbed, got {self.spec.lows} to "
                f"{self.spec.highs}"
            )
        object.__setattr__(self, "name", "one user's trajectory")

    @property
    def layout(self) -> Layout:
        """``states``, ``actions`` and ``rewards``."""
        H, D, A = self.spec.horizon, self.spec.dimension, self.spec.actions
        return Layout((Part("states", (H + 1, D)), Part("actions", (H, A)), Part("rewards", (H,))))

    def l2(self, relation: Relation) -> float:
        """See the class."""
        H, D, A = self.spec.horizon, self.spec.dimension, self.spec.actions
        if checked_relation(relation) is Relation.REPLACE_ONE:
            return math.sqrt((H + 1) * D + H + (2 * H if A > 1 else 0))
        return math.sqrt(((H + 1) * D + H) / 4.0 + H * (1.0 - 1.0 / A))

    def vectors(self, block: Block) -> Floats:
        """All parts, from -1/2 to 1/2."""
        spec = self.spec
        states, actions, rewards, valid, _ = transitions(block, spec)
        finite = np.isfinite(np.asarray(block["states"], dtype=np.float64))
        places = _unit(states, np.array(spec.lows), np.array(spec.highs))
        taken = (actions[..., np.newaxis] == np.arange(spec.actions)) - 1.0 / spec.actions
        parts = {
            "states": np.where(finite.all(axis=-1, keepdims=True), places, 0.0),
            "actions": np.where(valid[..., np.newaxis], taken, 0.0),
            "rewards": np.where(valid, _unit(rewards, *spec.reward_range), 0.0),
        }
        return self.layout.pack(parts, users=block.users)


class InputPerturbation(Baseline[Statistic]):
    """Fitted Q on rewards, or whole trajectories, that were published with noise; see the module.

    Args:
        spec: of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate; it comes to the same noise.
        protect: ``"rewards"``, with states and actions public, or the whole ``"episode"``.
        ridge: of the regression.
        features: see :class:`tacit.continuous.baseline.Baseline`, as for the following.
        discount: of future rewards.
        seed: of ties.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.

    >>> import tacit
    >>> spec = BoxSpec((0.0,), (1.0,), actions=2, horizon=50, reward_range=(0.0, 0.5))
    >>> agent = InputPerturbation(spec, users=100, privacy=tacit.JointDP(0.9, 1e-4))
    >>> agent.guarantee.unit
    "one user's rewards; states and actions are public"
    """

    name: ClassVar[str] = "input_perturbation"
    batch: ClassVar[bool] = True
    _size: ClassVar[str] = "protect"

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        protect: Literal["rewards", "episode"] = "rewards",
        ridge: float = 1.0,
        features: FeatureMap | None = None,
        discount: float | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        self.protect = one_of("protect", protect, ("rewards", "episode"))
        self.ridge = positive("ridge", ridge)
        self._published: dict[str, list[Any]] = {}
        super().__init__(
            spec,
            users,
            privacy,
            features=features,
            discount=discount,
            schedule="every",
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    @property
    def _protects(self) -> str:
        return REWARDS_ONLY if self.protect == "rewards" else WHOLE_EPISODE

    def _statistic(self) -> Statistic:
        if self.protect == "rewards":
            return RewardVectors(self.spec)
        return Trajectories(self.spec)

    def _release(self, block: Block, user_ids: Any) -> None:
        known = {name: len(parts) for name, parts in self._published.items()}
        if self.protect == "rewards":
            # Public, like all that the guarantee does not name.
            self._remember({name: block[name] for name in ("states", "actions", "lengths")})
        try:
            super()._release(block, user_ids)
        except BaseException:
            # States without rewards would give everybody later somebody else's.
            for name, parts in self._published.items():
                del parts[known.get(name, 0) :]
            raise

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        """What was published of one user, in the world's units."""
        spec = self.spec
        low, high = spec.reward_range
        rewards = (release["rewards"] + 0.5) * (high - low) + low
        self._remember({"rewards": rewards[np.newaxis]})
        if self.protect == "episode":
            lows, highs = np.array(spec.lows), np.array(spec.highs)
            states = np.clip((release["states"] + 0.5) * (highs - lows) + lows, lows, highs)
            actions = release["actions"].argmax(axis=-1)
            lengths = np.full(1, spec.horizon + 1, dtype=np.int64)
            self._remember(
                {
                    "states": states[np.newaxis],
                    "actions": actions[np.newaxis],
                    "lengths": lengths,
                }
            )

    def _remember(self, arrays: Arrays) -> None:
        for name, array in arrays.items():
            self._published.setdefault(name, []).append(np.array(array))

    def _plan(self) -> Any:
        if self.finished:
            self.weights = self._fit()
        return super()._plan()

    def _fit(self) -> Floats:
        """Fitted Q on all that was published."""
        arrays = {name: np.concatenate(parts) for name, parts in self._published.items()}
        noisy = arrays["rewards"]
        block = Block(len(noisy), arrays | {"rewards": np.zeros_like(noisy)})
        states, actions, _, valid, over = transitions(block, self.spec)
        features = self.features(states)
        m = features.shape[-1]
        fitted = fitted_q(
            features[:, :-1].reshape(1, -1, m),
            features[:, 1:].reshape(1, -1, m),
            actions.reshape(1, -1),
            noisy.reshape(1, -1),
            valid.reshape(1, -1),
            over.reshape(1, -1),
            self.spec,
            self.discount,
            self.ridge,
        )
        return np.array(fitted[0])

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"protect": self.protect, "ridge": self.ridge}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        meta, arrays = super()._state()
        joined = {name: np.concatenate(parts) for name, parts in self._published.items()}
        return meta, arrays | {f"published/{name}": array for name, array in joined.items()}

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        super()._set_state(meta, arrays)
        prefix = "published/"
        self._published = {
            name.removeprefix(prefix): [array]
            for name, array in arrays.items()
            if name.startswith(prefix)
        }


def _half(relation: Relation) -> float:
    return {Relation.REPLACE_ONE: 1.0, Relation.ZERO_OUT: 0.5}[checked_relation(relation)]


def _unit(values: Floats, low: float | Floats, high: float | Floats) -> Floats:
    """From the range to [-1/2, 1/2]; the middle where a value is not finite."""
    scaled: Floats = (np.clip(values, low, high) - low) / (high - low) - 0.5
    return np.where(np.isfinite(values), scaled, 0.0)
