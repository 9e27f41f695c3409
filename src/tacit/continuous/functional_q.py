"""Q with functional noise, online: one update per batch of users, each of whom is asked once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tacit.continuous.base import auto_or, real
from tacit.continuous.estimate import NO_NOISE
from tacit.continuous.features import is_grid
from tacit.continuous.functional_base import FunctionalAlgorithm, FunctionalOptions
from tacit.continuous.policy import QPolicy
from tacit.core.algorithm import Pace
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.privacy.arguments import MOST_USERS, whole_number
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.core.setting import Setting


@dataclass(frozen=True, kw_only=True)
class FunctionalQOptions(FunctionalOptions):
    """Options of :class:`FunctionalQ`, and those of its kin.

    Attributes:
        batch: users of a batch, in place of a schedule; by default from public numbers.
        epsilon: the probability of a uniform action while users are served.
    """

    batch: int | Literal["auto"] = "auto"
    epsilon: float = 0.3

    def __post_init__(self) -> None:
        allowed = partial(whole_number, most=MOST_USERS), f"an integer in 1..{MOST_USERS}"
        object.__setattr__(self, "batch", auto_or("batch", self.batch, *allowed))
        object.__setattr__(self, "epsilon", real("epsilon", self.epsilon))
        if not 0.0 < self.epsilon <= 1.0:
            raise InvalidArgument(f"epsilon must be in (0, 1], got {self.epsilon!r}")
        super().__post_init__()


class FunctionalQ(FunctionalAlgorithm):
    """Q-learning whose state is the published Q: each batch of users corrects it once.

    The users of a batch follow the published Q, and with probability ``epsilon`` a random action.
    They are asked once, with their whole budget, for the sum of their functions: residuals of that
    Q, clipped, with functional noise. A Kalman filter takes the answer in, with a drift of the
    targets from batch to batch; users are taken to be everywhere equally often, as nothing is asked
    about where they were. What is carried from batch to batch is what was published, so that the
    noise of a batch protects its users and nothing else is ever seen of them.

    A batch learns from its own users only. :class:`tacit.FittedFunctionalQ` asks everybody about
    every sweep and needs far fewer users for the same policy, but its users gain nothing.

    >>> from tacit import FunctionalQ, JointDP
    >>> from tacit.continuous import line
    >>> agent = FunctionalQ(line().spec, 5000, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.schedule.releases, agent.policy.epsilon
    (20, 1.0)
    """

    name: ClassVar[str] = "functional_q"
    Options = FunctionalQOptions
    options: FunctionalQOptions
    refuses: ClassVar = {
        "protect": "residuals depend on next states, so it is always a whole trajectory; take "
        "fitted_functional_q for less",
        "radius": "it is of a reward function; take fitted_functional_q",
    }

    def __init__(self, setting: Setting, options: FunctionalQOptions) -> None:
        super().__init__(setting, options)
        actions, modes = len(self.weights), self.basis.prior.shape[1]
        # What is believed of a sweep's targets, in modes of the prior.
        self._mean: Floats = np.zeros((actions, modes))
        start = self.constants.prior_reward**2 * np.eye(modes)
        self._covariance: Floats = np.tile(start, (actions, 1, 1))

    # What is asked: one release per batch, of the residuals of the published Q.

    def asks(self) -> Asks:
        """How far the users of the batch are from what Q and the filter predict."""
        expected = self._mean @ self.basis.prior.T
        clip = self.clip_at(self.releases / max(1, self.schedule.releases - 1))
        predictions = self.carried(self._value()) + expected
        release = yield Ask(self.residuals(self.weights, predictions, clip))
        self._take_in(release)

    # What is estimated.

    def _take_in(self, release: Release) -> None:
        """A step of a Kalman filter for every action, and the next Q."""
        basis, constants = self.basis, self.constants
        std = float(np.max(release.std["residuals"]))
        grid = basis.features
        assert is_grid(grid)  # noqa: S101
        tried = self.policy.probabilities(grid.points)
        even = self.block_users * self.spec.horizon / grid.size
        mean, covariance = self._mean.copy(), self._covariance.copy()
        for action in range(self.spec.actions):
            if self.all_served:
                covariance[action] += constants.prior_drift**2 * np.eye(mean.shape[1])
            visits = even * tried[:, action, np.newaxis]
            across = basis.root.T @ (visits * basis.prior)
            noise = constants.noise**2 * basis.root.T @ (visits * basis.root)
            noise += (std**2 + NO_NOISE) * np.eye(len(noise))
            gain = np.linalg.solve(
                noise + across @ covariance[action] @ across.T, across @ covariance[action]
            ).T
            mean[action] += gain @ release["residuals"][action]
            covariance[action] -= gain @ across @ covariance[action]
        self._mean, self._covariance = mean, covariance
        self.weights = self.carried(self._value()) + mean @ basis.prior.T

    def _value(self) -> Floats:
        """V = max_a Q_a."""
        return self.basis.value(self.weights)[0]

    # How it plans.

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """The best actions by Q, with and without exploring."""
        return self.greedy(self.options.epsilon), self.greedy()

    # What is public.

    @property
    def why(self) -> str:
        """What was chosen and why, in words."""
        return (
            f"{self.schedule.releases} batches, whose users follow the published values and try a "
            f"random action with probability {self.options.epsilon:g}"
        )

    @property
    def q_std(self) -> Floats:
        """The posterior standard deviation of a sweep of Q, in rewards: (actions, m)."""
        prior = self.basis.prior
        variances = np.einsum("mq,aqr,mr->am", prior, self._covariance, prior)
        spread: Floats = np.sqrt(np.maximum(variances, 0.0)) * self.units.unit
        return spread

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.options.batch != "auto" and not self.setting.own_schedule:
            raise InvalidArgument("batch and schedule both say when to release: give one")
        super()._check()
        if not self.basis.on_grid:
            raise InvalidArgument(
                "FunctionalQ needs a grid, on which it knows how often an action is tried: leave "
                "features out of the spec of two coordinates at most, or take fitted_functional_q"
            )

    def _pace(self) -> Pace:
        batch = self.options.batch
        size = math.ceil(self.users / self.depth) if batch == "auto" else batch
        size = min(size, self.users)
        return Pace(f"fixed:size={size}", size=size)

    # Save and resume.

    def state(self) -> State:
        """Q and the filter."""
        arrays = {"weights": self.weights, "mean": self._mean, "covariance": self._covariance}
        return {}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.weights, self._mean = arrays["weights"], arrays["mean"]
        self._covariance = arrays["covariance"]
