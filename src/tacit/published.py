"""Reads published policies. Needs NumPy alone: copy this one file to a device and use it there.

A published file is an npz archive of plain arrays, never pickled: ``format`` (this layout's
version), ``version`` (which policy it is), ``n_actions``, and either ``actions`` of shape
(horizon, states) or ``probabilities`` of shape (horizon, states, actions). It is public.

    policy = published.load("policy.npz")
    action = policy.act(step, state, numpy.random.default_rng())
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 1

_TOLERANCE = 1e-8
# What reading a damaged archive from memory can raise.
_DAMAGE = (
    *(ValueError, TypeError, KeyError, EOFError, OSError, RuntimeError, OverflowError),
    *(MemoryError, struct.error, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True, eq=False)
class PublishedPolicy:
    """A policy as it was published: one of the two arrays, the other is ``None``.

    Attributes:
        probabilities: (horizon, states, actions), for a stochastic policy.
        actions: (horizon, states), for a deterministic one.
        n_actions: how many actions there are.
        version: which policy of its agent it is.
    """

    probabilities: NDArray[np.float64] | None
    actions: NDArray[np.int64] | None
    n_actions: int
    version: int

    def act(self, step: int, state: int, rng: np.random.Generator) -> int:
        """The action at a step (from 0) in a state; ``rng`` is used by stochastic policies."""
        return choose(self.probabilities, self.actions, step, state, rng)


def choose(
    probabilities: NDArray[np.float64] | None,
    actions: NDArray[np.int64] | None,
    step: int,
    state: int,
    rng: np.random.Generator,
) -> int:
    """The action that the tables prescribe, drawn where they are probabilities."""
    table = probabilities if actions is None else actions
    if table is None:
        raise ValueError("a policy needs actions or probabilities")
    horizon, states = table.shape[:2]
    # A negative index would silently mean another step or state.
    if not (0 <= step < horizon and 0 <= state < states):
        raise ValueError(
            f"step must be in 0..{horizon - 1} and state in 0..{states - 1}, "
            f"got step {step!r} and state {state!r}"
        )
    if actions is not None:
        return int(actions[step, state])
    row = table[step, state]
    possible = np.flatnonzero(row)
    # Rounding can leave the sum below 1; an action of probability zero is never taken.
    index = np.searchsorted(np.cumsum(row[possible]), rng.random(), side="right")
    return int(possible[min(int(index), len(possible) - 1)])


def load(path: str | os.PathLike[str]) -> PublishedPolicy:
    """Reads a published file and checks it.

    Raises:
        ValueError: the file is damaged, foreign, or of a format that this loader cannot read.
        OSError: it cannot be opened; a missing one is a FileNotFoundError.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        archive = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is no npz archive")
        with archive:
            return _decode({name: archive[name] for name in archive.files})
    except _DAMAGE as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{os.fspath(path)!r} is no published policy: {reason}") from error


def check(
    probabilities: NDArray[np.float64] | None, actions: NDArray[np.int64] | None, n_actions: int
) -> None:
    """Raises a ValueError that names what is wrong with a policy's tables."""
    if (probabilities is None) == (actions is None):
        raise ValueError("give actions or probabilities, and not both")
    if actions is not None:
        if actions.ndim != 2 or actions.dtype.kind not in "iu" or 0 in actions.shape:
            raise ValueError(
                f"actions must be integers of shape (horizon, states), "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        bad = np.argwhere((actions < 0) | (actions >= n_actions))
        if len(bad):
            step, state = bad[0].tolist()
            raise ValueError(
                f"actions[{step}, {state}] must be in 0..{n_actions - 1}, "
                f"got {int(actions[step, state])}"
            )
    if probabilities is not None:
        _check_probabilities(probabilities, n_actions)


def _check_probabilities(table: NDArray[np.float64], n_actions: int) -> None:
    if table.ndim != 3 or table.dtype.kind != "f" or 0 in table.shape:
        raise ValueError(
            f"probabilities must be floats of shape (horizon, states, actions), "
            f"got {table.dtype} of shape {table.shape}"
        )
    if table.shape[2] != n_actions:
        raise ValueError(f"n_actions must be {table.shape[2]} as in the table, got {n_actions}")
    # A row with a NaN fails the comparison of its sum.
    good = (table >= 0).all(axis=2) & (np.abs(table.sum(axis=2) - 1.0) <= _TOLERANCE)
    if not good.all():
        step, state = np.argwhere(~good)[0].tolist()
        raise ValueError(
            f"probabilities[{step}, {state}] must be non-negative and sum to 1, "
            f"got {table[step, state].tolist()}"
        )


def _decode(stored: dict[str, NDArray[Any]]) -> PublishedPolicy:
    form = int(stored["format"])
    if form != FORMAT:
        raise ValueError(f"its format is {form}; this loader reads {FORMAT}")
    probabilities, actions = stored.get("probabilities"), stored.get("actions")
    n_actions, version = int(stored["n_actions"]), int(stored["version"])
    check(probabilities, actions, n_actions)
    for table in (probabilities, actions):
        if table is not None:
            table.setflags(write=False)
    return PublishedPolicy(probabilities, actions, n_actions, version)
