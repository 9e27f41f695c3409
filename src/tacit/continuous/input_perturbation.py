"""Input perturbation: every user's own rewards get noise, then anybody may learn from them.

Idea:
    After Venkitasubramaniam (2013), as Wang and Hegde (2019) compare with it: each reward is
    published with Gaussian noise, and Q is fitted to what was published.
Guarantee:
    ``protect="rewards"`` protects one user's rewards; states, actions and lengths are public, so
    somebody has to be trusted with them, and there is no local DP.
    ``protect="episode"`` protects the whole episode, which leaves nothing to learn from: it is
    local DP of all that a user did.
Deviations from the paper:
    The unit is one user's rewards in place of the reward function, and the noise is exact for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.continuous.baseline import BaselineAlgorithm, BaselineOptions
from tacit.continuous.fitted_q import fitted_q
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.reports import RewardVectors, Trajectories
from tacit.continuous.statistics.steps import REWARDS_ONLY, steps_of
from tacit.core.algorithm import EVERY, Pace
from tacit.core.asks import Arrays, Ask, Asks, State, below
from tacit.privacy.arguments import one_of, positive
from tacit.privacy.curators.gate import Release
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Floats

if TYPE_CHECKING:
    from tacit.core.setting import Setting

_PUBLIC = ("states", "actions", "lengths")


@dataclass(frozen=True, kw_only=True)
class InputPerturbationOptions(BaselineOptions):
    """Options of :class:`InputPerturbation`, and those of its kin.

    Attributes:
        protect: ``"rewards"``, with states and actions public, or the whole ``"episode"``.
        ridge: of the regression.
    """

    protect: Literal["rewards", "episode"] = "rewards"
    ridge: float = 1.0

    def __post_init__(self) -> None:
        one_of("protect", self.protect, ("rewards", "episode"))
        object.__setattr__(self, "ridge", positive("ridge", self.ridge))


class InputPerturbation(BaselineAlgorithm):
    """Fitted Q on rewards, or whole trajectories, that were published with noise; see the module.

    For whole episodes JointDP and LocalDP come to the same noise.

    >>> import tacit
    >>> from tacit.continuous import BoxSpec, InputPerturbation
    >>> spec = BoxSpec((0.0,), (1.0,), actions=2, horizon=50, reward_range=(0.0, 0.5))
    >>> agent = InputPerturbation(spec, users=100, privacy=tacit.JointDP(0.9, 1e-4))
    >>> agent.guarantee.unit
    "one user's rewards; states and actions are public"
    """

    name: ClassVar[str] = "input_perturbation"
    batch: ClassVar[bool] = True
    Options = InputPerturbationOptions
    options: InputPerturbationOptions
    sized_by: ClassVar[str] = "protect"
    refuses: ClassVar = {"schedule": "every user is a release of her own"}

    def __init__(self, setting: Setting, options: InputPerturbationOptions) -> None:
        # What is known of all users, by name, a row for each.
        self.published: dict[str, list[Any]] = {}
        super().__init__(setting, options)

    # What is asked: every user's own rewards, or all that she did.

    def asks(self) -> Asks:
        """One user; what her guarantee does not name is public and comes along."""
        if self.options.protect == "rewards":
            release = yield Ask(self.statistic(), public=_PUBLIC)
            # Whoever has had her episodes is not counted: nothing of her comes along.
            if len(release.public["states"]):
                self._remember(dict(release.public) | {"rewards": self._rewards(release)})
        else:
            release = yield Ask(self.statistic())
            self._remember(self._trajectory(release))

    def statistic(self) -> RewardVectors | Trajectories:
        """About one user."""
        spec = self.spec
        return RewardVectors(spec) if self.options.protect == "rewards" else Trajectories(spec)

    @property
    def protects(self) -> str:
        """Rewards, or the whole episode."""
        return REWARDS_ONLY if self.options.protect == "rewards" else WHOLE_EPISODE

    # What was published of one user, in the world's units.

    def _rewards(self, release: Release) -> Floats:
        low, high = self.spec.reward_range
        rewards: Floats = ((release["rewards"] + 0.5) * (high - low) + low)[np.newaxis]
        return rewards

    def _trajectory(self, release: Release) -> Arrays:
        lows, highs = np.array(self.spec.lows), np.array(self.spec.highs)
        states = np.clip((release["states"] + 0.5) * (highs - lows) + lows, lows, highs)
        return {
            "rewards": self._rewards(release),
            "states": states[np.newaxis],
            "actions": release["actions"].argmax(axis=-1)[np.newaxis],
            "lengths": np.full(1, self.spec.horizon + 1, dtype=np.int64),
        }

    def _remember(self, arrays: Arrays) -> None:
        for name, array in sorted(arrays.items()):
            self.published.setdefault(name, []).append(np.array(array))

    # How it plans.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """Q is fitted once, when everybody has been served."""
        if self.finished:
            self.weights = self._fit()
        return super().plan()

    def _fit(self) -> Floats:
        """Fitted Q on all that was published."""
        arrays = {name: np.concatenate(parts) for name, parts in self.published.items()}
        noisy = arrays["rewards"]
        block = Block(len(noisy), arrays | {"rewards": np.zeros_like(noisy)})
        states, actions, _, valid, over = steps_of(block, self.spec, inside=True)
        features = self.features(states)
        m = features.shape[-1]
        here, there = features[:, :-1].reshape(1, -1, m), features[:, 1:].reshape(1, -1, m)
        steps: list[Any] = [array.reshape(1, -1) for array in (actions, noisy, valid, over)]
        steps += [self.spec, self.discount, self.options.ridge]
        return np.array(fitted_q(here, there, *steps)[0])

    def _pace(self) -> Pace:
        return EVERY

    def state(self) -> State:
        """Q and all that was published."""
        meta, arrays = super().state()
        joined = {name: np.concatenate(parts) for name, parts in self.published.items()}
        return meta, arrays | {f"published/{name}": array for name, array in joined.items()}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        super().restore(meta, arrays)
        self.published = {
            name: [array[user : user + 1] for user in range(len(array))]
            for name, array in sorted(below(arrays, "published/").items())
        }
