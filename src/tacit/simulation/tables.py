"""Results as tables and files: a row per release, for frames, spreadsheets and other programs.

JSON and Parquet hold all of a result and can be read again; CSV is for other programs. Parquet and
frames need their packages (``pip install 'tacit[frames]'``).
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.errors import CorruptFile, InvalidArgument, MissingExtra
from tacit.privacy.files import MALFORMED, parse_json, read_file
from tacit.privacy.storage import write_atomic
from tacit.simulation.result import Result

Labelled: TypeAlias = Mapping[str, Sequence[Result]]

ENDINGS = (".json", ".csv", ".parquet")
"""How the names of files of results end."""

_FORMAT, _VERSION = "tacit-runs", 1
# Where a Parquet file keeps the results themselves.
_KEY = b"tacit-runs"


def columns(results: Labelled) -> dict[str, NDArray[Any]]:
    """A row per release of every run, by column.

    The value is that of the policy that the release serves users with; regret is of all users so
    far; loss and score are of the value.
    """
    runs = [(label, run) for label, several in results.items() for run in several]
    lengths = [len(run.served) for _, run in runs]

    def repeated(values: Sequence[Any]) -> NDArray[Any]:
        return np.repeat(np.array(values), lengths)

    def joined(take: Callable[[Result], NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([take(run) for _, run in runs])

    return {
        "label": repeated([label for label, _ in runs]),
        **{
            name: repeated([getattr(run, name) for _, run in runs])
            for name in ("agent", "world", "privacy", "seed")
        },
        "release": np.concatenate([np.arange(n) for n in lengths]),
        "users": joined(lambda run: run.served),
        "value": joined(lambda run: run.values),
        "greedy_value": joined(lambda run: run.greedy_values),
        "regret": joined(lambda run: run.regret),
        "loss": joined(lambda run: run.losses),
        "score": joined(_scores),
    }


def _scores(run: Result) -> NDArray[Any]:
    gap = run.optimal_value - run.baseline_value
    return (run.values - run.baseline_value) / gap if gap > 0 else np.full(run.values.shape, np.nan)


def frame(results: Labelled) -> Any:
    """The columns as a data frame of pandas."""
    return _needed("pandas", "a frame").DataFrame(columns(results))


def save_results(
    results: Labelled, path: str | os.PathLike[str], more: Mapping[str, Any] | None = None
) -> None:
    """Writes results by the name's end: a table (``.csv``, ``.parquet``), or JSON (``.json``).

    ``more`` stands beside them in JSON. :func:`load_results` reads JSON and Parquet again.
    """
    ending = suffix(path)
    runs = {label: [run.to_dict() for run in several] for label, several in results.items()}
    content = {"format": _FORMAT, "version": _VERSION, **(more or {}), "results": runs}
    if ending == ".csv":
        data = _csv(columns(results))
    elif ending == ".parquet":
        data = _parquet(columns(results), content)
    else:
        data = (json.dumps(content, indent=1, allow_nan=False) + "\n").encode()
    write_atomic(path, data, 0o644)


def suffix(path: str | os.PathLike[str]) -> str:
    """How a name ends, of those that a file of results may have; JSON where it has no end."""
    ending = os.path.splitext(os.fspath(path))[1].lower() or ".json"
    if ending not in ENDINGS:
        raise InvalidArgument(f"{os.fspath(path)!r} must end in {', '.join(ENDINGS)}")
    return ending


def load_results(path: str | os.PathLike[str]) -> dict[str, list[Result]]:
    """The results of each label in a file of runs, or of one run, as JSON or Parquet."""
    name = os.fspath(path)
    if name.lower().endswith(".csv"):
        raise InvalidArgument(f"{name!r} is for other programs: load the .json or .parquet of it")
    data = read_file(path, "result")
    if data[:4] == b"PAR1":
        data = _inside(name, data)
    try:
        content = parse_json(data)
    except ValueError as error:
        raise InvalidArgument(f"{name!r} is not JSON: {error}") from error
    if isinstance(content, dict) and content.get("format") == "tacit-result":
        run = Result.load(path)
        return {run.agent: [run]}
    known = isinstance(content, dict) and content.get("format") == _FORMAT
    if not known or content.get("version") != _VERSION:
        raise InvalidArgument(f"{name!r} must be a file of runs, version {_VERSION}, and is not")
    try:
        return {
            label: [Result.from_dict(result) for result in several]
            for label, several in content["results"].items()
        }
    except (CorruptFile, *MALFORMED) as error:
        raise CorruptFile(f"{name!r}: not a file of runs ({error})") from error


def merged(parts: Sequence[Labelled]) -> dict[str, list[Result]]:
    """Several files' results together, by label; a run that is there twice counts once.

    Runs of other agents or budgets are never one line: where files have them under one label, what
    tells them apart stands behind it.
    """
    whole: dict[str, dict[tuple[str, str], list[Result]]] = {}
    for part in parts:
        for label, several in part.items():
            for run in several:
                runs = whole.setdefault(label, {}).setdefault((run.agent, run.privacy), [])
                runs += [run] if run not in runs else []
    return {
        name: runs
        for label, kinds in whole.items()
        for name, runs in zip(_told_apart(label, kinds), kinds.values(), strict=True)
    }


def _told_apart(label: str, kinds: Mapping[tuple[str, str], Sequence[Result]]) -> list[str]:
    """Names of runs under one label, of several agents and budgets: in as few words as suffice."""
    promised = [runs[0].guarantee for runs in kinds.values()]
    short = ["not private" if one is None else one.short.partition(" per ")[0] for one in promised]
    agents = [agent for agent, _ in kinds]
    ways = [
        [label for _ in kinds],
        [f"{label}, {words}" for words in short],
        [f"{label}, {agent}" for agent in agents],
        [f"{label}, {agent}, {words}" for agent, words in zip(agents, short, strict=True)],
        [", ".join((label, *kind)) for kind in kinds],
    ]
    return next(names for names in ways if len(set(names)) == len(names))


# Summaries of several runs.


def interquartile_mean(values: ArrayLike) -> float:
    """The mean of the middle half: a quarter of the weight is cut at each end.

    >>> interquartile_mean([0.0, 1.0, 2.0, 9.0])
    1.5
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    # Value k has the weight of the part of [k/n, (k+1)/n] that lies in [1/4, 3/4].
    ends = np.clip(np.arange(n + 1) / n, 0.25, 0.75)
    return float(2.0 * np.diff(ends) @ ordered)


def bootstrap_interval(
    values: ArrayLike,
    of: Callable[[NDArray[np.float64]], float] = interquartile_mean,
    level: float = 0.95,
    draws: int = 2000,
) -> tuple[float, float]:
    """Percentile bootstrap of a summary of independent runs; the draws are always the same.

    >>> low, high = bootstrap_interval([0.8, 0.9, 0.85, 0.95, 0.9])
    >>> 0.8 <= low < high <= 0.95
    True
    """
    sample = np.asarray(values, dtype=np.float64)
    if not 0.0 < level < 1.0:
        raise InvalidArgument(f"level is {level!r}, but must be between 0 and 1")
    rng = np.random.default_rng(0)
    drawn = [of(rng.choice(sample, len(sample))) for _ in range(draws)]
    low, high = np.quantile(drawn, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(low), float(high)


# Files.


def _csv(table: Mapping[str, NDArray[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
    return text.getvalue().encode()


def _parquet(table: Mapping[str, NDArray[Any]], content: Mapping[str, Any]) -> bytes:
    arrow = _needed("pyarrow", "Parquet")
    made = arrow.table({name: arrow.array(column.tolist()) for name, column in table.items()})
    made = made.replace_schema_metadata({_KEY: json.dumps(content, allow_nan=False)})
    sink = io.BytesIO()
    _needed("pyarrow.parquet", "Parquet").write_table(made, sink)
    return sink.getvalue()


def _inside(name: str, data: bytes) -> bytes:
    parquet = _needed("pyarrow.parquet", "Parquet")
    try:
        found: bytes = (parquet.read_schema(io.BytesIO(data)).metadata or {})[_KEY]
    except (OSError, *MALFORMED) as error:
        raise CorruptFile(f"{name!r}: not a file of runs ({error})") from error
    return found


def _needed(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{what} needs {module.partition('.')[0]}: pip install 'tacit[frames]'"
        ) from error
