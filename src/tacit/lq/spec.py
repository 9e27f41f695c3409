"""Specs of linear-quadratic worlds, which say all but (A, B); their policies, a gain per step."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import ArraySpec, checked_number, numbers, positive, whole_number

# What a symmetric or semidefinite matrix may lack by rounding, relative to its size.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class LQSpec(ArraySpec):
    """Public knowledge of a linear-quadratic world.

    The state moves by x' = A x + B u + w with unknown A and B, and a step costs x'Qx + u'Ru.
    Specs are equal if all they say is equal, and their text says all of it exactly. The arrays
    are read-only copies.

    >>> spec = LQSpec(states=1, controls=1, horizon=5, state_cost=[[1.0]], control_cost=[[0.1]],
    ...               noise_bound=0.1, noise_covariance=[[0.003]], start_moment=[[1.0]],
    ...               norm_bound=2.0, gain_bound=1.0)
    >>> spec.state_cost
    array([[1.]])
    """

    states: int  # coordinates of the state, n
    controls: int  # coordinates of the control, d
    horizon: int  # steps of an episode, H
    state_cost: Floats  # Q, (n, n), symmetric and positive semidefinite
    control_cost: Floats  # R, (d, d), symmetric and positive definite
    noise_bound: float  # no noise is longer
    noise_covariance: Floats  # of the noise, (n, n)
    start_moment: Floats  # the mean of x x' of first states x, (n, n)
    norm_bound: float  # the Frobenius norm of (A, B) is at most this
    gain_bound: float  # the spectral norm of every gain worth using is at most this

    def __post_init__(self) -> None:
        for name in ("states", "controls", "horizon"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        n, d = self.states, self.controls
        checked: dict[str, Any] = {
            "state_cost": check_semidefinite("state_cost", self.state_cost, n),
            "control_cost": check_semidefinite("control_cost", self.control_cost, d, definite=True),
            "noise_bound": check_number("noise_bound", self.noise_bound),
            "noise_covariance": check_semidefinite("noise_covariance", self.noise_covariance, n),
            "start_moment": check_semidefinite("start_moment", self.start_moment, n),
            "norm_bound": positive("norm_bound", self.norm_bound),
            "gain_bound": positive("gain_bound", self.gain_bound),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        values = (f"{f.name}={_text(getattr(self, f.name))}" for f in fields(self))
        return f"LQSpec({', '.join(values)})"


def _text(value: int | float | Floats) -> str:
    """Exact, and the same for equal values: minus zero is zero."""
    if isinstance(value, np.ndarray):
        return repr((value + 0.0).tolist())
    return repr(value if isinstance(value, int) else value + 0.0)


def check_array(name: str, values: ArrayLike, *shape: int | None) -> Floats:
    """A read-only copy of finite numbers of a shape, in which ``None`` stands for any size."""
    array = np.array(numbers(name, values), dtype=np.float64, order="C")
    if array.ndim != len(shape) or not all(
        size >= 1 and wanted in (None, size)
        for size, wanted in zip(array.shape, shape, strict=True)
    ):
        wanted_shape = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidArgument(f"{name} must have shape ({wanted_shape}), got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidArgument(f"{name} must be finite")
    array.setflags(write=False)
    return array


def check_semidefinite(
    name: str, values: ArrayLike, size: int, *, definite: bool = False
) -> Floats:
    """A read-only copy of a symmetric, positive semidefinite matrix.

    Args:
        name: Of the argument, for errors.
        values: Of the matrix.
        size: Its rows.
        definite: Whether zero eigenvalues are refused, too.
    """
    array = check_array(name, values, size, size)
    rounding = _ROUNDING * np.abs(array).max()
    if (np.abs(array - array.T) > rounding).any():
        raise InvalidArgument(f"{name} must be symmetric")
    least, kind = float(np.linalg.eigvalsh(array)[0]), "definite" if definite else "semidefinite"
    if least < -rounding or (definite and least <= rounding):
        raise InvalidArgument(f"{name} must be positive {kind}, got the eigenvalue {least:.6g}")
    return array


def check_number(name: str, value: float) -> float:
    """A finite number of at least zero."""
    return checked_number(name, value, "a finite number >= 0", lambda x: 0.0 <= x < math.inf)


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
    def zero(cls, horizon: int, controls: int, states: int) -> GainPolicy:
        """No control at all, for H steps, d controls and n states."""
        return cls(np.zeros((horizon, controls, states)))

    @property
    def horizon(self) -> int:
        """How many steps it prescribes, H."""
        return int(self.gains.shape[0])

    def act(self, step: int, state: ArrayLike, rng: np.random.Generator | None = None) -> Floats:
        """The control at a step (from 0) in a state; ``rng`` is used where there is noise."""
        # A negative index would silently mean another step.
        step = whole_number("step", step, least=0, most=self.horizon - 1)
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
