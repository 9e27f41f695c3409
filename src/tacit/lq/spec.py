"""What an agent may know of a linear-quadratic world: costs, noise and bounds, but not (A, B)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.core.sizes import check_size, numbers
from tacit.core.spec import ArraySpec
from tacit.privacy.errors import InvalidArgument

Floats = NDArray[np.float64]

# What a symmetric or semidefinite matrix may lack by rounding, relative to its size.
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class LQSpec(ArraySpec):
    """What an agent may know of a linear-quadratic world.

    The state moves by x' = A x + B u + w with unknown A and B, and a step costs x'Qx + u'Ru.
    Specs are equal if all they say is equal, and their text says all of it exactly. The arrays
    are read-only copies.

    Attributes:
        states: coordinates of the state, n.
        controls: coordinates of the control, d.
        horizon: steps of an episode, H.
        state_cost: Q, (n, n), symmetric and positive semidefinite.
        control_cost: R, (d, d), symmetric and positive definite.
        noise_bound: no noise is longer.
        noise_covariance: of the noise, (n, n).
        start_moment: the mean of x x' of first states x, (n, n).
        norm_bound: the Frobenius norm of (A, B) is at most this.
        gain_bound: the spectral norm of every gain worth using is at most this.

    >>> spec = LQSpec(states=1, controls=1, horizon=5, state_cost=[[1.0]], control_cost=[[0.1]],
    ...               noise_bound=0.1, noise_covariance=[[0.003]], start_moment=[[1.0]],
    ...               norm_bound=2.0, gain_bound=1.0)
    >>> spec.state_cost
    array([[1.]])
    """

    states: int
    controls: int
    horizon: int
    state_cost: Floats
    control_cost: Floats
    noise_bound: float
    noise_covariance: Floats
    start_moment: Floats
    norm_bound: float
    gain_bound: float

    def __post_init__(self) -> None:
        for name in ("states", "controls", "horizon"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        n, d = self.states, self.controls
        checked: dict[str, Any] = {
            "state_cost": check_semidefinite("state_cost", self.state_cost, n),
            "control_cost": check_definite("control_cost", self.control_cost, d),
            "noise_bound": check_number("noise_bound", self.noise_bound, 0.0),
            "noise_covariance": check_semidefinite("noise_covariance", self.noise_covariance, n),
            "start_moment": check_semidefinite("start_moment", self.start_moment, n),
            "norm_bound": check_positive("norm_bound", self.norm_bound),
            "gain_bound": check_positive("gain_bound", self.gain_bound),
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


# Arguments.


def check_array(name: str, values: ArrayLike, *shape: int | None) -> Floats:
    """A read-only copy of finite numbers of a shape, in which ``None`` stands for any size."""
    array = np.array(numbers(name, values), dtype=np.float64, order="C")
    fits = array.ndim == len(shape) and all(
        size >= 1 and wanted in (None, size)
        for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted_shape = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidArgument(f"{name} must have shape ({wanted_shape}), got {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        at = bad[0].tolist()
        raise InvalidArgument(f"{name}{at} must be finite, got {array[tuple(at)]}")
    array.setflags(write=False)
    return array


def check_semidefinite(name: str, values: ArrayLike, size: int) -> Floats:
    """A read-only copy of a symmetric, positive semidefinite matrix."""
    array = check_array(name, values, size, size)
    least = _least_eigenvalue(name, array)
    if least < -_ROUNDING * np.abs(array).max():
        raise InvalidArgument(
            f"{name} must be positive semidefinite, got the eigenvalue {least:.6g}"
        )
    return array


def check_definite(name: str, values: ArrayLike, size: int) -> Floats:
    """A read-only copy of a symmetric, positive definite matrix."""
    array = check_array(name, values, size, size)
    least = _least_eigenvalue(name, array)
    if least <= _ROUNDING * np.abs(array).max():
        raise InvalidArgument(f"{name} must be positive definite, got the eigenvalue {least:.6g}")
    return array


def _least_eigenvalue(name: str, array: Floats) -> float:
    if (np.abs(array - array.T) > _ROUNDING * np.abs(array).max()).any():
        i, j = np.argwhere(array != array.T)[0].tolist()
        raise InvalidArgument(
            f"{name} must be symmetric, got {array[i, j]} at [{i}, {j}] and {array[j, i]} "
            f"at [{j}, {i}]"
        )
    return float(np.linalg.eigvalsh(array)[0])


def check_number(name: str, value: float, least: float) -> float:
    """A finite number of at least something."""
    if not _is_number(value) or not least <= value < math.inf:
        raise InvalidArgument(f"{name} must be a finite number >= {least:g}, got {value!r}")
    return float(value)


def check_positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if not _is_number(value) or not 0.0 < value < math.inf:
        raise InvalidArgument(f"{name} must be a finite number > 0, got {value!r}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
