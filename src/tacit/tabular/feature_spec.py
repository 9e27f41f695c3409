"""Base of the specs of finite worlds with known features."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import ArraySpec, Floats, flag, numbers, read_only
from tacit.tabular.spec import FiniteSpec, settle


class FeatureSpec(ArraySpec, FiniteSpec):
    """A finite spec whose transitions and rewards may depend on the step each on its own.

    The fields themselves belong to the families; what they mean is the same in all of them.
    """

    stationary_transitions: bool
    stationary_rewards: bool
    known_rewards: Floats | None

    def __post_init__(self) -> None:
        for name in ("stationary_transitions", "stationary_rewards"):
            settle(self, **{name: flag(name, getattr(self, name))})
        settle(self, stationary=self.stationary_transitions and self.stationary_rewards)
        super().__post_init__()

    def _check_known_rewards(self) -> None:
        if self.known_rewards is None:
            return
        sizes = (self.states, self.actions)
        table = check_mean_rewards("known_rewards", self.known_rewards, self.horizon, sizes)
        if not ((table >= 0) & (table <= 1)).all():
            raise InvalidArgument("known_rewards must be in [0, 1]")
        settle(self, known_rewards=table)

    def _text(self, digest: str, **sizes: int) -> str:
        """The short form: sizes, what is known, and a fingerprint of the rest."""
        shown = {name: getattr(self, name) for name in ("states", "actions", "horizon")} | sizes
        for name in ("stationary_transitions", "stationary_rewards"):
            shown[name] = getattr(self, name)
        given = ", ".join(f"{name}={value}" for name, value in shown.items())
        rewards = "unknown" if self.known_rewards is None else "known"
        return f"{type(self).__name__}({given}, rewards={rewards}, digest={digest!r})"


def fingerprint(*values: Any) -> str:
    """The same for values that are equal, and for no others."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        array = np.zeros(0) if value is None else np.ascontiguousarray(value)
        # Minus zero equals zero.
        digest.update(repr(array.shape).encode() + (array + 0.0).tobytes())
    return digest.hexdigest()


def check_mean_rewards(
    name: str, values: ArrayLike, horizon: int, sizes: tuple[int, int]
) -> Floats:
    """Read-only mean rewards, (1 or H, S, A); of any size.

    Args:
        name: of the argument, for errors.
        values: the rewards.
        horizon: H.
        sizes: S and A.
    """
    table = numbers(name, values)
    if table.ndim != 3 or len(table) not in (1, horizon) or table.shape[1:] != sizes:
        raise InvalidArgument(
            f"{name} must have shape (1 or {horizon}, {sizes[0]}, {sizes[1]}), got {table.shape}"
        )
    return read_only(table)


def finite(name: str, array: NDArray[np.generic], *axes: str) -> Floats:
    """Read-only finite numbers; where they are not, the first axes are named."""
    good = np.isfinite(array)
    if not good.all():
        bad = np.argwhere(~good)[0].tolist()
        where = ", ".join(f"{axis} {at}" for axis, at in zip(axes, bad, strict=False))
        entry = ", ".join(map(str, bad[len(axes) :]))
        raise InvalidArgument(
            f"{name} at {where} must be finite, but entry {entry} is {array[tuple(bad)]}"
        )
    return read_only(array)
