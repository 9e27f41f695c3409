"""Results as tables and files: medians for people, a row per release for frames, JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tacit.privacy.errors import CorruptFile, InvalidArgument, MissingExtra
from tacit.privacy.files import MALFORMED, parse_json, read_file, write_atomic
from tacit.privacy.models import Privacy
from tacit.simulation.result import Result, median, users_words
from tacit.simulation.verdict import verdict

Labelled: TypeAlias = Mapping[str, Sequence[Result]]

_FORMAT, _VERSION = "tacit-runs", 2
_EVERYWHERE = ("agent", "privacy", "code")  # the same for a line on every world
_MEDIANS = ("users_to_90", "greedy_users_to_90", "score", "greedy_score")


def rows(results: Labelled) -> list[tuple[str, ...]]:
    """A table of medians: a row per label, below a row of titles.

    First of the policies that served users: how many came before 90 %, the score of the last,
    regret. Then the same of the greedy policy. Where no optimum is known, returns.
    """
    columns: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
        "users\nto 90 %": ("users_to_90", users_words),
        "score": ("score", number_words),
        "regret\n/user": ("regret", number_words),
        "greedy\nto 90 %": ("greedy_users_to_90", users_words),
        "greedy\nscore": ("greedy_score", number_words),
    }
    if all(math.isnan(run.optimal_value) for runs in results.values() for run in runs):
        columns = {
            "return\nof all": ("served_value", number_words),
            "return\nof the last": ("final_value", number_words),
            "greedy\nreturn": ("greedy_value", number_words),
        }
    table: list[tuple[str, ...]] = [("", *columns, "guarantee", "runs")]
    for label, runs in results.items():
        cells = [words(_median(runs, name)) for name, words in columns.values()]
        promised = runs[0].guarantee
        short = "none" if promised is None else promised.short.partition(" per ")[0]
        table.append((label, *cells, short, str(len(runs))))
    return table


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """Runs of one agent and their medians, as plain values."""
    guarantee = results[0].guarantee
    return {
        "algorithm": results[0].agent,
        "users": results[0].users,
        "seconds_median": median(run.seconds.get("total", 0.0) for run in results),
        "guarantee": None if guarantee is None else guarantee.to_dict(),
        "runs": [{"seed": run.seed} | run.summary for run in results],
        **{f"{name}_median": _median(results, name) for name in _MEDIANS},
        "verdict": verdict(results),
        "control": next((dict(run.control) for run in results if run.control), None),
    }


def _median(results: Sequence[Result], name: str) -> float | None:
    """Of what runs say of themselves; of regret, by user."""
    if name == "regret":
        return median(float(result.regret[-1]) / max(1, result.users) for result in results)
    return median(result.summary[name] for result in results)


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


def number_words(number: float | None) -> str:
    """A number for people.

    >>> number_words(0.98765), number_words(1234.5), number_words(None)
    ('0.988', '1,234', '-')
    """
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def frame(results: Labelled) -> Any:
    """A row per release of every run, as a data frame of pandas; each column means one thing.

    ``serving_value`` is of the policy that the release serves users with, ``regret`` of all users
    so far; values of ``random``, ``first`` and ``noise`` stand beside them, and the optimum.
    """
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtra("a frame needs pandas: pip install 'tacit[frames]'") from error
    open_: dict[str, Any] = {"model": "none", "epsilon": math.inf, "delta": 0.0, "unit": None}
    parts = [
        {
            "label": label,
            "agent": run.agent,
            "options": run.identity.get("options"),
            **{name: getattr(run.guarantee, name, usual) for name, usual in open_.items()},
            "world": run.world,
            **{f"{name}_digest": run.identity.get(name) for name in ("world", "agent", "code")},
            "seed": run.seed,
            "release": range(len(run.served)),
            "users": run.served,
            "regret": run.regret,
            "serving_value": run.values,
            "greedy_value": run.greedy_values,
            "score": run.scores,
            "random_value": run.baseline_value,
            "first_value": run.first_value,
            "noise_value": run.control.get("served_value", math.nan),
            "optimal_value": run.optimal_value,
            "verdict": run.verdict,
        }
        for label, several in results.items()
        for run in several
    ]
    return pandas.concat([pandas.DataFrame(part) for part in parts], ignore_index=True)


def save_results(results: Labelled, path: str | os.PathLike[str]) -> None:
    """Writes all of the results as JSON, which :func:`load_results` reads again.

    It is written atomically, readable by all: it has nothing of any user's data.
    """
    if os.path.splitext(os.fspath(path))[1].lower() not in ("", ".json"):
        raise InvalidArgument(f"{os.fspath(path)!r} must end in .json; tables: Result.to_frame()")
    runs = {label: [run.to_dict() for run in several] for label, several in results.items()}
    content = {"format": _FORMAT, "version": _VERSION, "results": runs}
    content["sha256"] = digest(content)
    whole = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_atomic(path, whole.encode(), 0o644)


def digest(content: Mapping[str, Any]) -> str:
    """Checksum of a file of runs."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def load_results(path: str | os.PathLike[str]) -> dict[str, list[Result]]:
    """The results of each label in a JSON file; a CorruptFile is foreign, damaged, or newer."""
    name = os.fspath(path)
    data = read_file(path, "result")
    try:
        content = parse_json(data)
        if (content["format"], content["version"]) != (_FORMAT, _VERSION):
            raise CorruptFile(f"it must be {_FORMAT!r}, version {_VERSION}")
        if content.pop("sha256") != digest(content):
            raise CorruptFile("the checksum does not match: it is damaged")
        return {
            label: [Result.from_dict(result) for result in several]
            for label, several in content["results"].items()
        }
    except (CorruptFile, *MALFORMED) as error:
        raise CorruptFile(f"{name!r}: not a file of runs ({error})") from error


def merged(parts: Sequence[Labelled]) -> dict[str, list[Result]]:
    """Several files' results together, by label; a run that is there twice counts once.

    Runs of another agent, code, budget or number of users, or of a world with the same name and
    other content, are never one line: what tells them apart stands behind their label.
    """
    kinds: dict[str, list[tuple[dict[str, Any], list[Result]]]] = {}
    for part in parts:
        for label, several in part.items():
            for run in several:
                kind = _kind(run)
                known = kinds.setdefault(label, [])
                runs = next((runs for other, runs in known if other == kind), None)
                if runs is None:
                    known.append((kind, runs := []))
                twice = [other for other in runs if other.seed == run.seed]
                if any(not np.array_equal(run.values, other.values) for other in twice):
                    raise InvalidArgument(f"{run!r} is there twice, with different values")
                runs += [] if twice else [run]
    found: dict[str, list[Result]] = {}
    for label, known in kinds.items():
        for kind, runs in known:
            told = _told_apart(kind, [other for other, _ in known])
            found.setdefault(", ".join((label, *told)), []).extend(runs)
    return found


def _told_apart(kind: Mapping[str, Any], kinds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Words for facts in which one kind of runs differs from others of its label."""
    words = list[str]()
    # On another world digests always differ, and users and options may.
    alike = [other for other in kinds if other["on"] == kind["on"]]
    for name, value in kind.items():
        others = {other[name] for other in (kinds if name in _EVERYWHERE else alike)} - {value}
        if name.endswith("digest"):
            words += [f"{name.split()[0]} {value[:6]}"] if others and not words else []
        elif others and name != "on":
            words.append(str(value) if name in _EVERYWHERE else f"{name} {value or 'as usual'}")
    return words


def _kind(run: Result) -> dict[str, Any]:
    """Facts that runs of one line share on one world."""
    known = {name: run.identity.get(name, "") for name in ("options", "code")}
    known |= {f"{name} digest": run.identity.get(name, "") for name in ("world", "agent")}
    agent = {"agent": run.agent, "privacy": run.privacy, "users": run.users}
    return {"on": run.world, **agent, **known}
