"""Several agents or budgets on one world: the same seeds for all, one table, one plot with bands.

A run of one agent is the comparison with one entry, and is summarised by the same functions.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tacit.core.world import World
from tacit.finite.world import FiniteWorld
from tacit.privacy.arguments import instance_of, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.registry import AgentChoice, build_world
from tacit.simulation.progress import Progress
from tacit.simulation.result import WORLD_VALUES, Result, median, or_none
from tacit.simulation.run import check_optimum, require, run
from tacit.simulation.seeds import WorldMaker, run_seeds, seed_list
from tacit.simulation.tables import save_results


@dataclass(frozen=True)
class Contender:
    """One of those that are compared, under a label."""

    label: str
    agent: AgentChoice
    privacy: Privacy

    def settled(self, spec: Any, users: int) -> Contender:
        """With the agent for this spec and budget, where none was named."""
        return replace(self, agent=self.agent.settled(spec, users, self.privacy))


@dataclass(frozen=True)
class Comparison:
    """Runs of several entries on one world: one result per seed for each, in their order."""

    world: str
    users: int
    entries: tuple[Contender, ...]
    results: tuple[tuple[Result, ...], ...]
    seconds: float
    assumed: tuple[str, ...] = ()  # what is known of the world by rule alone, in words

    def labelled(self) -> dict[str, tuple[Result, ...]]:
        """The results by label."""
        labels = [entry.label for entry in self.entries]
        return dict(zip(labels, self.results, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The summary of all entries, as plain values."""
        first = self.results[0][0]
        return {
            "world": self.world,
            "users": self.users,
            **{name: or_none(getattr(first, name)) for name in WORLD_VALUES},
            "assumed": list(self.assumed),
            "entries": [
                {
                    "label": entry.label,
                    "agent": entry.agent.text,
                    "chosen": entry.agent.why or None,
                    "privacy": privacy_dict(entry.privacy),
                    **summary(results),
                }
                for entry, results in zip(self.entries, self.results, strict=True)
            ],
            "seconds": self.seconds,
        }

    def run_dict(self) -> dict[str, Any]:
        """The summary of the first entry alone, as plain values."""
        whole = self.to_dict()
        entry = whole["entries"][0]
        return {
            "world": self.world,
            "agent": entry["agent"],
            "chosen": entry["chosen"],
            **{key: whole[key] for key in ("users", *WORLD_VALUES, "assumed")},
            **{key: entry[key] for key in ("guarantee", "runs")},
            **{f"{name}_median": entry[f"{name}_median"] for name in _MEDIANS},
            "seconds": self.seconds,
        }

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws regret and values against users, with bands over the seeds."""
        from tacit.simulation.plots import plot_result, plot_results

        if len(self.entries) == 1 and len(self.results[0]) == 1:
            plot_result(self.results[0][0], path)
        else:
            plot_results(self.labelled(), path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes every single result, by the name's end: CSV, Parquet, or JSON with the summary.

        See :func:`tacit.simulation.tables.save_results`.
        """
        save_results(self.labelled(), path, self.to_dict())


_MEDIANS = ("users_to_90", "greedy_users_to_90", "score", "greedy_score")


def compare(
    world: World,
    entries: Iterable[Contender],
    users: int,
    seeds: Sequence[int],
    workers: int = 1,
    progress: Progress = True,
    text: str | None = None,
) -> Comparison:
    """Runs every entry with every seed; results do not depend on the number of workers.

    All agents are made once before the first run, so that a mistake in the last of them does not
    cost the time of the others. In other processes the world is made from ``text``, by
    :func:`tacit.registry.build_world`; its name by default.
    """
    if not isinstance(entries, Iterable):
        raise InvalidArgument(f"entries must be a list of entries, got {entries!r}")
    entries, seeds = tuple(entries), seed_list(seeds)
    for entry in entries:
        instance_of("every one of entries", entry, Contender)
    users, workers = whole_number("users", users), whole_number("workers", workers)
    require("world", world, "a world", ("optimal_value",))
    check_optimum(world)
    if not entries or not seeds:
        raise InvalidArgument("entries and seeds must not be empty")
    labels = [entry.label for entry in entries]
    if twice := sorted({label for label in labels if labels.count(label) > 1}):
        raise InvalidArgument(f"{twice[0]!r} is there twice")
    entries = tuple(entry.settled(world.spec, users) for entry in entries)
    for entry in entries:
        entry.agent.build(world.spec, users, entry.privacy, seeds[0])
    start = time.perf_counter()
    results = tuple(
        tuple(_run(world, text, entry, users, seeds, workers, progress)) for entry in entries
    )
    assumed, seconds = getattr(world, "assumed", ()), time.perf_counter() - start
    return Comparison(world.name, users, entries, results, seconds, assumed)


def check_world(world: World) -> None:
    """Refuses a world without a known optimum: nobody can say when 90 % of it are reached."""
    require("world", world, "a world", ("optimal_value",))
    if not math.isfinite(world.optimal_value):
        raise InvalidArgument(
            f"world {world.name} has no known optimum, so there is nothing to compare with: give "
            "it an optimal_value"
        )


def recipe(world: World, text: str | None, workers: int) -> WorldMaker:
    """What processes make the world from: an environment may hold anything, so it is made anew."""
    if workers == 1 or isinstance(world, FiniteWorld):
        return world
    return partial(_rebuild, text or world.name)


def _rebuild(name: str, seed: int) -> World:
    return build_world(name)


def _run(
    world: World,
    text: str | None,
    entry: Contender,
    users: int,
    seeds: list[int],
    workers: int,
    progress: Progress,
) -> list[Result]:
    if len(seeds) == 1:
        agent = entry.agent.build(world.spec, users, entry.privacy, seeds[0])
        return [run(agent, world, seeds[0], progress)]
    description, maker = entry.agent.describe(users, entry.privacy), recipe(world, text, workers)
    return run_seeds(description, maker, seeds, workers=workers, progress=progress)


# Summaries.


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """The runs of one entry and their medians, as plain values."""
    guarantee = results[0].guarantee
    return {
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "runs": [run_summary(result) for result in results],
        **{f"{name}_median": _median(results, name) for name in _MEDIANS},
    }


def run_summary(result: Result) -> dict[str, Any]:
    """One run, as plain values."""
    return {"seed": result.seed} | {name: result.summary[name] for name in _RUN}


_RUN = (
    *("regret", "users_to_90", "greedy_users_to_90", "served_value", "final_value", "score"),
    *("greedy_value", "greedy_score"),
)


def rows(summaries: Mapping[str, Sequence[Result]]) -> list[tuple[str, ...]]:
    """A table of medians for people: a row per label, below a row of titles.

    First what served users got: how many came before 90 %, the score of the last, regret. Then
    the same of the greedy policy, which served nobody. Where no optimum is known, returns.
    """
    runs = [run for results in summaries.values() for run in results]
    columns: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
        "users\nto 90 %": ("users_to_90", users_words),
        "score": ("score", number_words),
        "regret\n/user": ("regret", number_words),
        "greedy\nto 90 %": ("greedy_users_to_90", users_words),
        "greedy\nscore": ("greedy_score", number_words),
    }
    if runs and all(math.isnan(run.optimal_value) for run in runs):
        columns = {
            "return\nof all": ("served_value", number_words),
            "return\nof the last": ("final_value", number_words),
            "greedy\nreturn": ("greedy_value", number_words),
        }
    table: list[tuple[str, ...]] = [("", *columns, "guarantee")]
    for label, results in summaries.items():
        cells = [words(_median(results, name)) for name, words in columns.values()]
        table.append((label, *cells, _promised(results[0])))
    return table


def _median(results: Sequence[Result], name: str) -> float | None:
    """Of what runs say of themselves; of regret, by user."""
    if name == "regret":
        return median(float(result.regret[-1]) / max(1, result.users) for result in results)
    return median(result.summary[name] for result in results)


def _promised(result: Result) -> str:
    guarantee = result.guarantee
    return "none" if guarantee is None else guarantee.short.partition(" per ")[0]


def privacy_dict(privacy: Privacy) -> dict[str, Any]:
    """A model and its budget as plain values.

    >>> from tacit import NonPrivate
    >>> privacy_dict(NonPrivate())
    {'model': 'none', 'epsilon': None, 'delta': None}
    """
    if not privacy.private:
        return {"model": "none", "epsilon": None, "delta": None}
    model = "joint" if privacy.joint else "local"
    return {"model": model, "epsilon": privacy.epsilon, "delta": privacy.delta}


def privacy_words(privacy: Privacy) -> str:
    """A model and its budget in a few words.

    >>> from tacit import JointDP, NonPrivate
    >>> privacy_words(JointDP(1.0, 1e-6)), privacy_words(NonPrivate())
    ('joint privacy, epsilon 1, delta 1e-06', 'no privacy')
    """
    values = privacy_dict(privacy)
    if values["epsilon"] is None:
        return "no privacy"
    return f"{values['model']} privacy, epsilon {values['epsilon']:g}, delta {values['delta']:g}"


def users_words(users: float | None) -> str:
    """A number of users for people.

    >>> users_words(12345), users_words(None)
    ('12,345', 'not reached')
    """
    return "not reached" if users is None else f"{math.ceil(users):,}"


def number_words(number: float | None) -> str:
    """A number for people.

    >>> number_words(0.98765), number_words(1234.5), number_words(None)
    ('0.988', '1,234', '-')
    """
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
