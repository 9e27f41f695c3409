"""A search over an agent's options: tuned on worlds and seeds set aside for it, reported on others.

Optuna proposes options, and a trial is a small sweep. Its sampler is seeded and results are stored,
so that an interrupted search that is run again takes the same way and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tacit.privacy.arguments import whole_number
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.models import Privacy
from tacit.simulation.progress import Progress, progress_bar
from tacit.simulation.result import Result
from tacit.simulation.seeds import seed_list
from tacit.simulation.store import Store
from tacit.simulation.sweep import Sweep, sweep

Range: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""A list to choose from, or ``{"low": 0.1, "high": 2.0, "log": True}``; of integers, integers."""


@dataclass(frozen=True)
class Search:
    """What a search found."""

    agent: str  # as it was given
    trials: tuple[
        tuple[dict[str, Any], float], ...
    ]  # options, and their score on what was tuned on
    report: Sweep  # the agent as given, and tuned, on other worlds or seeds

    @property
    def best(self) -> dict[str, Any]:
        """The options with the largest score, the first of equals."""
        return max(self.trials, key=lambda trial: trial[1])[0]

    @property
    def tuned(self) -> str:
        """The agent with these options, as a text."""
        return with_options(self.agent, self.best)


def search(
    agent: str,
    options: Mapping[str, Range],
    *,
    tune_on: Iterable[str],
    report_on: Iterable[str],
    privacy: Privacy,
    users: int,
    tune_seeds: Iterable[int] = range(1000, 1003),
    report_seeds: Iterable[int] = range(10),
    trials: int = 30,
    seed: int = 0,
    store: Store | None = None,
    workers: int = 1,
    progress: Progress = True,
) -> Search:
    """Looks for options with which users are served best, and reports them on other runs.

    A trial's score is the mean over its runs of the share of what there is to gain that served
    users got. The largest of many noisy scores is too large, so it is not what is reported: agents
    with and without the options run again on ``report_on`` and ``report_seeds``.

    Args:
        agent: a text, as ``ucbvi`` or ``ucbvi:stationary=true``.
        options: ranges by name.
        tune_on: worlds, as texts, whose optimum is known.
        report_on: worlds; no pair of world and seed may be tuned and reported on.
        privacy: of all runs.
        users: of every run.
        tune_seeds: of the runs of a trial.
        report_seeds: of the report.
        trials: how many options are tried.
        seed: of the sampler.
        store: where results are kept; a search that is run again goes on.
        workers: processes.
        progress: whether to show a progress bar, on standard error.
    """
    worlds, others = list(tune_on), list(report_on)
    seeds, other_seeds = seed_list(tune_seeds), seed_list(report_seeds)
    if not options or not worlds or not others or not seeds or not other_seeds:
        raise InvalidArgument("options, worlds and seeds must not be empty")
    if {*worlds} & {*others} and {*seeds} & {*other_seeds}:
        raise InvalidArgument("a world and a seed are both tuned and reported on: set some aside")
    study = _study(seed)
    given: dict[str, Any] = {
        "budgets": [privacy],
        "users": users,
        "store": store,
        "workers": workers,
        "progress": False,
    }
    found = []
    with progress_bar("trials", whole_number("trials", trials) + 1, progress) as advance:
        for _ in range(trials):
            trial = study.ask()
            chosen = {name: _suggested(trial, name, options[name]) for name in options}
            made = sweep(worlds, [with_options(agent, chosen)], seeds=seeds, **given)
            score = float(np.mean([_served_score(result) for result in made.results.values()]))
            study.tell(trial, score)
            found.append((chosen, score))
            advance(1)
        best = max(found, key=lambda trial: trial[1])[0]
        report = sweep(others, [agent, with_options(agent, best)], seeds=other_seeds, **given)
        advance(1)
    return Search(agent, tuple(found), report)


def with_options(agent: str, options: Mapping[str, Any]) -> str:
    """An agent's text with more options.

    >>> with_options("ucbvi", {"scale": 0.5}), with_options("ucbvi:scale=1", {"stationary": True})
    ('ucbvi:scale=0.5', 'ucbvi:scale=1,stationary=true')
    """
    words = ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in options.items()
    )
    return agent + ("," if ":" in agent else ":") * bool(words) + words


def _served_score(result: Result) -> float:
    gain = result.optimal_value - result.reference_value
    share = (result.served_value - result.reference_value) / gain
    if not np.isfinite(share):
        raise InvalidArgument(f"the optimum of {result.world} is not known: it cannot be tuned on")
    return float(share)


def _study(seed: int) -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("a search needs Optuna: pip install 'tacit[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))


def _suggested(trial: Any, name: str, among: Range) -> Any:
    """A value of a range; four digits say enough, and make a text that can be read."""
    if not isinstance(among, Mapping):
        if isinstance(among, str) or not list(among):
            raise InvalidArgument(f"{name} is {among!r}, but must be a list or have low and high")
        return trial.suggest_categorical(name, list(among))
    if not {"low", "high"} <= among.keys() <= {"low", "high", "log"}:
        raise InvalidArgument(f"{name} is {dict(among)!r}, but must have low, high and perhaps log")
    low, high, log = among["low"], among["high"], bool(among.get("log", False))
    if not (low < high) or (log and low <= 0):
        raise InvalidArgument(f"{name} must have low < high, and low > 0 with log")
    if isinstance(low, int) and isinstance(high, int):
        return trial.suggest_int(name, low, high, log=log)
    return float(f"{trial.suggest_float(name, low, high, log=log):.4g}")
