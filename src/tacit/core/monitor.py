"""Monitoring: returns, occupancies and drifts of each version, from releases alone.

It costs no privacy. A :class:`~tacit.core.stored_run.Record` keeps, of every release, the few
public numbers that its statistic reads off it (:meth:`tacit.Statistic.monitored`), and
:func:`monitor` makes returns, occupancies and drifts of them, with standard errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.stored_run import NO_ROWS
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats
from tacit.privacy.validation import instance_of


@dataclass(frozen=True)
class Monitoring:
    """Returns and occupancies of each version, from releases: public, and free.

    Attributes:
        versions: numbers of the versions, oldest first.
        users: how many followed each.
        returns: pay of a user's steps that count, the return if all do; NaN where no release tells.
        return_errors: their standard errors: noise, and at most so much by sampling.
        steps: of a user that counted: fewer than the horizon where sessions ended early, steps were
            not valid, or only some were asked; NaN where no release tells.
        partial: whether only some steps are asked for (a cap), in returns and occupancies.
        occupancy: visits of each state by a user, (versions, S); or energies, see :func:`monitor`.
        occupancy_errors: their standard errors, by noise and by sampling.
        return_drift: change of the return since the version before, in standard errors.
        occupancy_drift: how far occupancies moved since then: about standard normal if they did
            not. A new policy moves them too.
    """

    versions: tuple[int, ...]
    users: tuple[int, ...]
    returns: Floats
    return_errors: Floats
    steps: Floats
    partial: tuple[bool, ...]
    occupancy: Floats
    occupancy_errors: Floats
    return_drift: Floats
    occupancy_drift: Floats

    def columns(self) -> dict[str, list[Any]]:
        """A row per version, as lists by name; occupancies are ``state 0``, ``state 1``, ..."""
        names = {"version": self.versions, "users": self.users, "return": self.returns}
        names |= {"return_error": self.return_errors, "steps": self.steps, "partial": self.partial}
        names |= {"return_drift": self.return_drift, "occupancy_drift": self.occupancy_drift}
        found = {name: np.asarray(values).tolist() for name, values in names.items()}
        return found | {f"state {s}": row.tolist() for s, row in enumerate(self.occupancy.T)}

    def __str__(self) -> str:
        lines = ["version    users     return +- error   steps   drift   moved"]
        for i, version in enumerate(self.versions):
            lines.append(
                f"{version:7} {self.users[i]:8,} {self.returns[i]:10.4g} +- "
                f"{self.return_errors[i]:<7.3g} {self.steps[i]:6.2f}  {self.return_drift[i]:6.1f}  "
                f"{self.occupancy_drift[i]:6.1f}"
            )
        if len(self.versions) and np.isnan(self.returns).all():
            lines.append("No release tells returns; where people are is all that is known.")
        elif len(self.versions):
            lines.append("Returns are of the steps that count: so many of a user, by the releases.")
        return "\n".join(lines)


def monitor(agent: Any) -> Monitoring:
    """Returns and occupancies of every version that an agent published so far; it costs nothing.

    Returns and occupancies are there for agents that count visits, and that sum features of which
    some combination is always 1, as shares are; occupancies alone where returns are summed by
    state, and where vectors are counted on a grid; of control, what users cost, and the energy of
    each coordinate of state and control in place of visits. Where sums have states' visits by what
    follows a step, these are visits of next states.

    Raises:
        InvalidArgument: What this agent asks for tells none of this: gradients and residuals
            do not.

    >>> import tacit
    >>> world = tacit.tabular.riverswim(4, 6)
    >>> agent = tacit.UCBVI(world.spec, 20_000, tacit.JointDP(1.0, 1e-6), noise_seed=0)
    >>> _ = tacit.run(agent, world, progress=False)
    >>> found = tacit.monitor(agent)
    >>> found.versions[:3], len(found.returns) == agent.releases
    ((0, 1, 2), True)
    """
    from tacit.core.agent import Agent

    instance_of("agent", agent, Agent)
    columns = agent.record.rows
    if agent.releases and not columns:
        raise InvalidArgument(
            f"{agent.algorithm.name} asks for {agent.statistic.name}, which tell neither returns "
            "nor where people are: give an agent some of them to count visits (ucbvi), or judge a "
            "policy by tacit.learn_offline"
        )
    return _monitoring(columns or NO_ROWS)


def _per_version(rows: Mapping[str, NDArray[Any]], name: str) -> tuple[Floats, Floats]:
    """Sums of single versions and their noise; of running sums, the increments."""
    parts = []
    for column, sign in ((rows[name], -1.0), (rows[f"{name}_noise"], 1.0)):
        axes = (-1, *[1] * (column.ndim - 1))
        before = np.where(rows["running"][1:].reshape(axes), column[:-1], 0.0)
        # An increment has the unit of its own block; noises of two sums may add up.
        whole = column + sign * np.concatenate([np.zeros_like(column[:1]), before])
        parts.append(whole / rows["unit"].reshape(axes))
    return parts[0], parts[1]


def _monitoring(rows: Mapping[str, NDArray[Any]]) -> Monitoring:
    n, least, most = np.maximum(rows["users"], 1.0), rows["least"], rows["most"]
    rewards, reward_noise = _per_version(rows, "rewards")
    visits, visit_noise = _per_version(rows, "visits")
    returns = rewards / n
    # A return in [a, b] with mean m varies by at most (m - a) (b - m).
    inside = np.clip(returns, least, most)
    errors = np.sqrt((reward_noise / n) ** 2 + (inside - least) * (most - inside) / n)
    per_user, limits = n[:, np.newaxis], rows["reach"][:, np.newaxis]
    occupancy = visits / per_user
    # Negative rewards are costs, beside energies in place of visits.
    steps = np.where((least >= 0.0) & (visits.shape[1] > 0), occupancy.sum(axis=1), np.nan)
    within = np.clip(occupancy, 0.0, limits)
    wide = np.sqrt((visit_noise / per_user) ** 2 + within * (limits - within) / per_user)
    drift, moved = np.full(len(n), np.nan), np.full(len(n), np.nan)
    with np.errstate(all="ignore"):
        gap = np.hypot(errors[1:], errors[:-1])
        drift[1:] = np.where(gap > 0, np.diff(returns) / gap, np.nan)
        both = wide[1:] ** 2 + wide[:-1] ** 2
        squares = np.where(both > 0, np.diff(occupancy, axis=0) ** 2 / both, 0.0)
        count = (both > 0).sum(axis=1)
        moved[1:] = np.where(count, (squares.sum(axis=1) - count) / np.sqrt(2.0 * count), np.nan)
    versions, users, partial = (tuple(rows[k].tolist()) for k in ("version", "users", "partial"))
    told = (returns, errors, steps, partial, occupancy, wide, drift, moved)
    return Monitoring(versions, users, *told)
