"""Policies of linear-quadratic control: a gain per step, and noise for exploring."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from tacit.lq.spec import check_array, check_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import whole_number


@dataclass(frozen=True, eq=False, repr=False)
class GainPolicy:
    """The control u = K_h x + noise * e at step h, where e has independent random signs.

    It is public and the same for all users: it does not depend on first states. The array is a
    read-only copy.

    >>> policy = GainPolicy([[[-0.5, 0.0]], [[-0.25, 0.0]]])
    >>> policy.act(1, [2.0, 1.0]).tolist()
    [-0.5]
    """

    gains: Floats  # K, (H, d, n)
    noise: float = 0.0  # how far every coordinate of the control is moved up or down, for exploring
    version: int = 0  # which policy of its agent it is; episodes name the version they followed

    def __post_init__(self) -> None:
        gains: ArrayLike = self.gains
        object.__setattr__(self, "gains", check_array("gains", gains, None, None, None))
        object.__setattr__(self, "noise", check_number("noise", self.noise))
        object.__setattr__(self, "version", whole_number("version", self.version, least=0))

    @classmethod
    def zero(cls, horizon: int, controls: int, states: int, version: int = 0) -> GainPolicy:
        """No control at all.

        Args:
            horizon: Steps, H.
            controls: Coordinates of a control, d.
            states: Coordinates of a state, n.
            version: Of the policy.

        >>> GainPolicy.zero(horizon=1, controls=1, states=2).gains.tolist()
        [[[0.0, 0.0]]]
        """
        return cls(np.zeros((horizon, controls, states)), version=version)

    @property
    def horizon(self) -> int:
        """How many steps it prescribes, H."""
        return int(self.gains.shape[0])

    def act(self, step: int, state: ArrayLike, rng: np.random.Generator | None = None) -> Floats:
        """The control at a step (from 0) in a state; ``rng`` is used where there is noise."""
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)):
            raise InvalidArgument(f"step must be an integer, got {step!r}")
        # A negative index would silently mean another step.
        if not 0 <= step < self.horizon:
            raise InvalidArgument(f"step must be in 0..{self.horizon - 1}, got {step}")
        x, (_, controls, states) = np.asarray(state, dtype=np.float64), self.gains.shape
        if x.shape != (states,):
            raise InvalidArgument(f"state must have shape ({states},), got {x.shape}")
        control: Floats = self.gains[step] @ x
        if self.noise > 0.0:
            if rng is None:
                raise InvalidArgument(
                    "this policy draws its actions: give rng, np.random.default_rng()"
                )
            signs = 2.0 * rng.integers(2, size=controls) - 1.0
            control = control + self.noise * signs
        return control

    def as_version(self, version: int) -> GainPolicy:
        """The same policy by another number."""
        return replace(self, version=version)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file, atomically (mode 0644); :mod:`tacit.published` reads it."""
        from tacit.core.public_file import write_published

        arrays = {"gains": self.gains, "noise": np.array(self.noise)}
        write_published(path, self.version, arrays, kind="gains")

    def __repr__(self) -> str:
        H, d, n = self.gains.shape
        return (
            f"<GainPolicy version {self.version}: {H} steps, {n} states, {d} controls, "
            f"noise {self.noise:g}>"
        )
