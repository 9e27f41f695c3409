"""Monitoring for free: what releases that were paid for say of each version of a policy.

Nothing here asks anybody anything. A :class:`Record` keeps, of every release, the few public
numbers that its statistic reads off it (:meth:`tacit.Statistic.monitored`), and :func:`monitor`
makes returns, occupancies and drifts of them, with standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import instance_of
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.privacy.curator import Release
    from tacit.privacy.statistic import Statistic

# More versions than these are not kept: the oldest go.
_MOST = 1000
_NUMBERS = {
    "version": np.int64,
    "users": np.int64,
    "horizon": np.float64,
    "rewards": np.float64,
    "rewards_noise": np.float64,
    "partial": np.bool_,
    "running": np.bool_,
    # Of a user: what one visit adds to sums, the least and the largest return, the most visits.
    "unit": np.float64,
    "least": np.float64,
    "most": np.float64,
    "reach": np.float64,
}
_BY_STATE = ("visits", "visits_noise")

Told: TypeAlias = dict[str, tuple[Any, Any]]
Reader: TypeAlias = "Callable[[Statistic, Release], Told]"
"""What a release tells of its users as a whole; see :meth:`tacit.Statistic.monitored`."""


@dataclass(frozen=True, eq=False)
class Record:
    """Public sums of each version's users; of the last thousand versions.

    Attributes:
        rows: Columns by name, with a row per version, oldest first; none before the first release.
    """

    rows: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def heard(
        self,
        version: int,
        users: int,
        asked: Sequence[Statistic],
        answers: Sequence[Release],
        running: bool,
        read: Reader = lambda statistic, answer: statistic.monitored(answer),
    ) -> Record:
        """The record with a version's releases; ``running`` sums have all users before."""
        told: Told = {}
        horizon = math.nan
        for statistic, answer in zip(asked, answers, strict=False):
            horizon = getattr(statistic, "horizon", horizon)
            try:
                told |= read(statistic, answer)
            except MemoryError:
                raise  # it is not the statistic's: the block goes through later, and is heard then
            except Exception:  # noqa: S112 - a statistic of somebody else's costs no block
                continue
        if not told:
            return self
        none = (math.nan, math.nan)
        rewards, visits = told.get("rewards", none), told.get("visits", (np.zeros(0), np.zeros(0)))
        unit, reach = told.get("unit", (1.0,))[0], told.get("reach", (horizon,))[0]
        ends = told.get("range", (0.0, horizon))
        flags = "partial" in told, running
        numbers = (version, users, horizon, *rewards, *flags, unit, *ends, reach, *visits)
        kinds = _NUMBERS | dict.fromkeys(_BY_STATE, np.float64)
        try:
            new: dict[str, NDArray[Any]] = {
                name: np.asarray(value, dtype=kind)[np.newaxis]
                for (name, kind), value in zip(kinds.items(), numbers, strict=True)
            }
        except (TypeError, ValueError):
            return self
        if len({new[name].shape for name in _BY_STATE}) > 1:
            return self
        # Where other things are told than before, a record begins anew.
        if all(
            n in self.rows and self.rows[n].shape[1:] == row.shape[1:] for n, row in new.items()
        ):
            new = {n: np.concatenate([self.rows[n][1 - _MOST :], row]) for n, row in new.items()}
        return Record(new)


@dataclass(frozen=True)
class Monitoring:
    """What is known of each version from releases: public, and free.

    Attributes:
        versions: numbers of the versions, oldest first.
        users: how many followed each.
        returns: what the steps that count paid, over all users; NaN where no release tells. That is
            the mean return if all steps count.
        return_errors: their standard errors: noise, and at most so much by sampling.
        steps: how many steps of a user counted, by the releases; NaN where none tells. Fewer than
            the horizon, where sessions ended early, steps were not valid, or only some were asked.
        partial: whether only some of a user's steps are asked for (a cap), so that this is no
            more than a part of the return, and occupancies are of those steps.
        occupancy: visits of each state by a user, (versions, S); or energies, see :func:`monitor`.
        occupancy_errors: their standard errors, by noise and by sampling.
        return_drift: by how many standard errors the return changed since the version before.
        occupancy_drift: how far occupancies moved since the version before: about standard normal
            if they did not. A new policy moves them too.
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
        found: dict[str, list[Any]] = {
            "version": list(self.versions),
            "users": list(self.users),
            "return": self.returns.tolist(),
            "return_error": self.return_errors.tolist(),
            "steps": self.steps.tolist(),
            "partial": list(self.partial),
            "return_drift": self.return_drift.tolist(),
            "occupancy_drift": self.occupancy_drift.tolist(),
        }
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
    """What releases say of every version that an agent published so far; it costs nothing.

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
    count = len(columns.get("version", ()))
    rows = [{name: column[i] for name, column in columns.items()} for i in range(count)]
    return _monitoring(_separate(rows))


def _separate(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sums of single versions: of running ones, what was added. Their noises may add up."""
    found: list[dict[str, Any]] = []
    for before, row in zip([None, *rows], rows, strict=False):
        mine = dict(row)
        if row["running"] and before is not None:
            for name in ("rewards", "visits"):
                mine[name] = row[name] - before[name]
                mine[f"{name}_noise"] = row[f"{name}_noise"] + before[f"{name}_noise"]
        # What is added has the unit of its own block, and a running sum those of many.
        for name in ("rewards", "visits", "rewards_noise", "visits_noise"):
            mine[name] = mine[name] / row["unit"]
        found.append(mine)
    return found


def _monitoring(rows: Sequence[Mapping[str, Any]]) -> Monitoring:
    users = np.array([row["users"] for row in rows], dtype=np.float64)
    n = np.maximum(users, 1.0)
    least, most, reach = (
        np.array([row[name] for row in rows], dtype=np.float64)
        for name in ("least", "most", "reach")
    )
    returns = np.array([row["rewards"] for row in rows], dtype=np.float64) / n
    noise = np.array([row["rewards_noise"] for row in rows], dtype=np.float64) / n
    # What lies in [a, b] with mean m varies by at most (m - a) (b - m).
    inside = np.clip(returns, least, most)
    errors = np.sqrt(noise**2 + (inside - least) * (most - inside) / n)
    size = max((len(row["visits"]) for row in rows), default=0)
    shape = (len(rows), size)
    visits = np.array([row["visits"] for row in rows], dtype=np.float64).reshape(shape)
    spread = np.array([row["visits_noise"] for row in rows], dtype=np.float64).reshape(shape)
    occupancy, limits = visits / n[:, np.newaxis], reach[:, np.newaxis]
    # What can be negative are costs, beside energies.
    steps = np.where((least >= 0.0) & (size > 0), occupancy.sum(axis=1), np.nan)
    within = np.clip(occupancy, 0.0, limits)
    wide = np.sqrt((spread / n[:, np.newaxis]) ** 2 + within * (limits - within) / n[:, np.newaxis])
    drift, moved = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for i in range(1, len(rows)):
        gap = math.hypot(errors[i], errors[i - 1])
        drift[i] = (returns[i] - returns[i - 1]) / gap if gap > 0 else np.nan
        both = wide[i] ** 2 + wide[i - 1] ** 2
        known = both > 0
        if known.any():
            squares = (occupancy[i] - occupancy[i - 1])[known] ** 2 / both[known]
            count = int(known.sum())
            moved[i] = (float(squares.sum()) - count) / math.sqrt(2.0 * count)
    versions = tuple(int(row["version"]) for row in rows)
    people = tuple(int(u) for u in users)
    some = tuple(bool(row["partial"]) for row in rows)
    told = (returns, errors, steps, some, occupancy, wide, drift, moved)
    return Monitoring(versions, people, *told)
