"""What is asked of users for a value-targeted regression, where nobody has a table of models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.data.reading import read_steps
from tacit.data.sizes import read_only
from tacit.privacy.arguments import positive
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.standard import GramCross
from tacit.privacy.statistic import Block, Floats, Layout, Statistic


@dataclass(frozen=True, eq=False)
class TargetedSums(Statistic):
    """Sums over a user's steps of p p' and p q: the paper's value-targeted regression, pooled.

    At step h in state s with action a, p = ``inputs`` (k numbers) and q = ``values`` of the next
    state less ``means``, all public tables. The last step has no next value and does not count, nor
    does a step whose state, action or next state is invalid. Reads ``states`` (users, H + 1) and
    ``actions`` (users, H); parts are ``gram`` (k, k) and ``cross`` (k, 1), with weight
    w = sqrt(2) / ``most``.

    Both sums of a user are multiplied by min(1, tau / sum_h (|p_h|^2 + q_h^2 / most^2)), tau =
    ``clip``: a common factor, by which q = p' eta + noise stays as it is.

    Sensitivity: that of :class:`~tacit.GramCross` with a trajectory clip, sqrt(2) tau, and tau
    against zero. With y = (p, q / most) a user's sums are part of Y = sum y y', which is positive
    semi-definite with trace at most tau; two such matrices have a non-negative inner product, so
    |Y - Y'|^2 <= |Y|^2 + |Y'|^2 <= 2 tau^2. It holds for every V and any data, since the clip comes
    after everything was looked up. Attained by users who stay in two cells whose p are long and
    orthogonal, with q = 0; against zero by one of them.
    """

    inputs: Floats  # p, (H - 1, S, A, k)
    means: Floats  # p0 V / scale, (H - 1, S, A)
    values: Floats  # V / scale of the next step, (H - 1, S)
    most: float  # of |q|
    clip: float  # tau

    def __post_init__(self) -> None:
        shape = np.shape(self.inputs)
        if len(shape) != 4 or 0 in shape:
            raise InvalidArgument(f"inputs must have shape (H - 1, S, A, k), got {shape}")
        sizes = {"inputs": shape, "means": shape[:3], "values": shape[:2]}
        for name, size in sizes.items():
            object.__setattr__(self, name, _table(name, getattr(self, name), size))
        for name in ("most", "clip"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "name", "targeted sums")

    @cached_property
    def moments(self) -> GramCross:
        """What p and q are summed by."""
        steps, _, _, k = self.inputs.shape
        how = {"weight": math.sqrt(2.0) / self.most, "tau": self.clip}
        return GramCross(k, 1, steps, pooled=True, clip="trajectory", **how)

    @property
    def layout(self) -> Layout:
        """``gram`` and ``cross``."""
        return self.moments.layout

    def l2(self, relation: Relation) -> float:
        """See the class."""
        return self.moments.l2(relation)

    def vectors(self, block: Block) -> Floats:
        """One dense vector per user."""
        users, (T, S, A) = block.users, self.means.shape
        # Rewards are known: those of a block are of the right shape, and no more.
        states, taken, _ = read_steps(block, T + 1)
        actions = taken[:, :T]
        now, after = states[:, :T], states[:, 1 : T + 1]
        valid = (now >= 0) & (now < S) & (after >= 0) & (after < S)
        valid &= (actions >= 0) & (actions < A)
        now, after, taken = (np.where(valid, array, 0) for array in (now, after, actions))
        steps = np.arange(T)
        p = self.inputs[steps, now, taken] * valid[..., np.newaxis]
        q = (self.values[steps, after] - self.means[steps, now, taken]) * valid
        return self.moments.vectors(Block(users, {"p": p, "q": q[..., np.newaxis]}))


def _table(name: str, values: Floats, shape: tuple[int, ...]) -> Floats:
    """Read-only and finite; a copy, unless it is so already: these are large."""
    table = read_only(values)
    if table.shape != shape or not np.isfinite(table).all():
        raise InvalidArgument(f"{name} must be finite, of shape {shape}, got {table.shape}")
    return table
