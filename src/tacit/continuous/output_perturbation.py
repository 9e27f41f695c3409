"""Output perturbation: learn without noise, then publish the result with noise, once.

Idea:
    Noise on the output needs the output's sensitivity. Fitted Q on all users has none worth
    having: all that is known of it is its range. With rewards in [0, 1/2] and discount .95, two
    values differ by up to M = 10 and the mechanism of functional noise needs a scale of at least
    sqrt(actions) M / mu, about 50 at (0.9, 1e-4), however many users there are, for differences
    between actions of some tenths. So the output is an average (subsample and aggregate, Nissim,
    Raskhodnikova and Smith, 2007): Q is fitted to each user's episode alone, clipped, and averaged,
    and one user moves the average by 2 c / users.
Private statistics:
    The sum over users of their own fitted values, less the mean over actions, clipped to norm c.
Guarantee:
    (epsilon, delta)-joint DP in one user's whole episode, by one Gaussian release.
Deviations from the paper:
    It names output perturbation without an algorithm; this is a reconstruction.
Cost:
    One fitted Q for each user. One episode is little to fit a Q to, so the average is biased.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.continuous.baseline import Baseline, Floats, clipped, fitted_q, transitions
from tacit.continuous.features import FeatureMap
from tacit.continuous.spec import BoxSpec
from tacit.core.schedule import Schedule
from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block, Layout, Part, Statistic


@dataclass(frozen=True)
class OwnValues(Statistic):
    """The weights of a Q that is fitted to a user's episode alone, clipped to norm ``radius``.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. Steps with invalid values are
    dropped; a user without any other has zero weights. The mean over actions, which no policy
    depends on, is subtracted before the clip.

    Sensitivity. Two points of a ball are at most 2 radius apart, and opposite points are.
    """

    spec: BoxSpec
    features: FeatureMap
    discount: float
    ridge: float
    radius: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0 and self.ridge > 0):
            raise InvalidArgument(
                f"radius and ridge must be > 0, got {self.radius!r} and {self.ridge!r}"
            )
        object.__setattr__(self, "name", "users' own values")

    @property
    def layout(self) -> Layout:
        """``weights``, one row for each action."""
        return Layout((Part("weights", (self.spec.actions, self.features.size)),))

    def l2(self, relation: Relation) -> float:
        """2 radius, or radius."""
        return self.radius * (2.0 if checked_relation(relation) is Relation.REPLACE_ONE else 1.0)

    def vectors(self, block: Block) -> Floats:
        """One fit for each user."""
        states, actions, rewards, valid, over = transitions(block, self.spec)
        features = self.features(states)
        weights = fitted_q(
            features[:, :-1],
            features[:, 1:],
            actions,
            rewards,
            valid,
            over,
            self.spec,
            self.discount,
            self.ridge,
        )
        weights -= weights.mean(axis=1, keepdims=True)
        return clipped(weights.reshape(block.users, self.layout.size), self.radius)


class OutputPerturbation(Baseline[OwnValues]):
    """The noisy average of Qs that are fitted to one user each; see the module.

    Args:
        spec: of the world.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        radius: c, the largest norm of a user's weights; in proportion to the range of rewards by
            default.
        ridge: of each user's regression.
        schedule: all users before one release by default; means of several add up their noise.
        features: see :class:`tacit.continuous.baseline.Baseline`, as for the following.
        discount: of future rewards.
        seed: of ties.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.
    """

    name: ClassVar[str] = "output_perturbation"
    batch: ClassVar[bool] = True

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        radius: float | None = None,
        ridge: float = 1.0,
        schedule: str | Schedule = "auto",
        features: FeatureMap | None = None,
        discount: float | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        self.radius = None if radius is None else positive("radius", radius)
        self.ridge = positive("ridge", ridge)
        super().__init__(
            spec,
            users,
            privacy,
            features=features,
            discount=discount,
            schedule=schedule,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    def _statistic(self) -> OwnValues:
        low, high = self.spec.reward_range
        radius = self.radius
        if radius is None:
            radius = _RADIUS * (high - low) * math.sqrt(self.weights.size)
        return OwnValues(self.spec, self.features, self.discount, self.ridge, radius)

    def _absorb(self, release: Release, statistic: OwnValues, users: int) -> None:
        # The mean over all blocks; ``served`` does not count this one yet.
        total = self.weights * self.served + release["weights"]
        self.weights = total / (self.served + users)

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"radius": self.radius, "ridge": self.ridge}


# A user's typical length, in ranges of the rewards and the root of the number of weights.
_RADIUS = 0.1
