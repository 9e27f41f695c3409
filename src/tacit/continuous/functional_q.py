"""Q with functional noise, online: one update per batch of users, each of whom is asked once."""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.agent import Constants, FunctionalAgent, Protect
from tacit.continuous.arguments import auto_or_whole, real
from tacit.continuous.features import Grid
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics import ResidualSums
from tacit.core.learner import Arrays
from tacit.core.schedule import Schedule
from tacit.privacy.arguments import instance_of
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.functions.functional import Kernel
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Statistic

Floats = NDArray[np.float64]

# Variance that stands for no noise at all.
_NO_NOISE = 1e-6


class FunctionalQ(FunctionalAgent):
    """Q-learning whose state is the published Q: each batch of users corrects it once.

    The users of a batch follow the published Q, and with probability ``epsilon`` a random action.
    They are asked once, with their whole budget, for the sum of their functions: residuals of that
    Q, clipped, with functional noise. A Kalman filter takes the answer in, with a drift of the
    targets from batch to batch; users are taken to be everywhere equally often, as nothing is asked
    about where they were. What is carried from batch to batch is what was published, so that the
    noise of a batch protects its users and nothing else is ever seen of them.

    A batch learns from its own users only. :class:`FittedFunctionalQ` asks everybody about every
    sweep and needs far fewer users for the same policy, but its users gain nothing.

    Args:
        spec: of the world; its features must be a grid, or left out.
        users: how many users are declared.
        privacy: JointDP, LocalDP or NonPrivate.
        batch: users of a batch; by default from public numbers.
        epsilon: of the policy that serves users.
        protect: ``"trajectory"``; residuals depend on next states, so nothing less can be asked.
        radius: must be left out.
        kernel: of users' functions.
        discount: of future rewards, at most; the spec's by default.
        constants: tuned numbers.
        schedule: when something is released, in place of ``batch``.
        seed: of ties; not of the noise.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.

    >>> from tacit import JointDP
    >>> from tacit.continuous import line
    >>> agent = FunctionalQ(line().spec, 5000, JointDP(0.9, 1e-4), noise_seed=0)
    >>> agent.schedule.releases, agent.policy.epsilon
    (20, 1.0)
    """

    name: ClassVar[str] = "functional_q"

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        batch: int | Literal["auto"] = "auto",
        epsilon: float = 0.3,
        protect: Protect = "trajectory",
        radius: float | None = None,
        kernel: Kernel | Literal["auto"] = "auto",
        discount: float | None = None,
        constants: Constants | None = None,
        schedule: str | Schedule = "auto",
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        self._batch = auto_or_whole("batch", batch)
        instance_of("schedule", schedule, (str, Schedule))
        if self._batch != "auto" and schedule != "auto":
            raise InvalidArgument("batch and schedule both say when to release: give one")
        self.epsilon = real("epsilon", epsilon)
        if not 0.0 < self.epsilon <= 1.0:
            raise InvalidArgument(f"epsilon must be in (0, 1], got {epsilon!r}")
        if not isinstance(protect, str) or protect != "trajectory":
            raise InvalidArgument(
                f"protect must be trajectory here, got {protect!r}: take fitted_functional_q"
            )
        super().__init__(
            spec,
            users,
            privacy,
            protect=protect,
            radius=radius,
            kernel=kernel,
            discount=discount,
            constants=constants,
            schedule=schedule,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    def _begin(self) -> None:
        actions, modes = len(self.weights), self.basis.prior.shape[1]
        self._mean: Floats = np.zeros((actions, modes))
        start = self.constants.prior_reward**2 * np.eye(modes)
        self._covariance: Floats = np.tile(start, (actions, 1, 1))

    @property
    def why(self) -> str:
        """What was chosen and why, in words."""
        return (
            f"{self.schedule.releases} batches, whose users follow the published values and try a "
            f"random action with probability {self.epsilon:g}"
        )

    @property
    def q_std(self) -> Floats:
        """The posterior standard deviation of a sweep of Q, in rewards: (actions, m)."""
        prior = self.basis.prior
        variances = np.einsum("mq,aqr,mr->am", prior, self._covariance, prior)
        spread: Floats = np.sqrt(np.maximum(variances, 0.0)) * self.units.unit
        return spread

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if not self.basis.on_grid:
            raise InvalidArgument(
                "FunctionalQ needs a grid, on which it knows how often an action is tried: leave "
                "features out of the spec, or take fitted_functional_q"
            )

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if schedule != "auto":
            return Schedule.of(schedule, self.users)
        size = math.ceil(self.users / self._depth) if self._batch == "auto" else int(self._batch)
        return Schedule.parse(f"fixed:size={min(size, self.users)}", self.users)

    # One release per batch.

    def _value(self) -> Floats:
        return self.basis.value(self.weights)[0]

    def _statistic(self) -> ResidualSums:
        expected = self._mean @ self.basis.prior.T
        clip = self._clip(self.releases / max(1, self.schedule.releases - 1))
        return self._residuals(self.weights, self._carried(self._value()) + expected, clip)

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        """A step of a Kalman filter for every action."""
        basis, constants = self.basis, self.constants
        std = float(np.max(release.std["residuals"]))
        grid = basis.features
        assert isinstance(grid, Grid)  # noqa: S101
        tried = self._policy.probabilities(grid.points)
        even = users * self.spec.horizon / grid.size
        mean, covariance = self._mean.copy(), self._covariance.copy()
        for action in range(self.spec.actions):
            if self.releases:
                covariance[action] += constants.prior_drift**2 * np.eye(mean.shape[1])
            visits = even * tried[:, action, np.newaxis]
            across = basis.root.T @ (visits * basis.prior)
            noise = constants.noise**2 * basis.root.T @ (visits * basis.root)
            noise += (std**2 + _NO_NOISE) * np.eye(len(noise))
            gain = np.linalg.solve(
                noise + across @ covariance[action] @ across.T, across @ covariance[action]
            ).T
            mean[action] += gain @ release["residuals"][action]
            covariance[action] -= gain @ across @ covariance[action]
        self._mean, self._covariance = mean, covariance
        self.weights = self._carried(self._value()) + mean @ basis.prior.T

    def _plan(self) -> tuple[QPolicy, QPolicy]:
        return self._greedy_policy(self.epsilon), self._greedy_policy()

    # Save and resume.

    def _identity(self) -> dict[str, Any]:
        return super()._identity() | {"epsilon": self.epsilon}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {"weights": self.weights, "mean": self._mean, "covariance": self._covariance}
        return {}, arrays

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self.weights, self._mean = arrays["weights"], arrays["mean"]
        self._covariance = arrays["covariance"]
