"""An account of a ledger in words: Markdown for an auditor, sentences for whoever keeps it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any


def summary_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A summary in sentences, a line per run."""
    spent, limit = found["spent"], found["limit"]
    yield f"{found['file']}: a ledger of {found['kind']}, {found['entries']:,} entries"
    if found["note"]:
        yield f"note: {found['note']}"
    whose = "person, over all runs" if found["kind"] == "people" else "block of users"
    yield f"limit: {limit:.6g} {found['unit']} for each {whose}"
    yield (
        f"spent: {spent['count']:,} {spent['of']}, most {at_most(spent['max'], 6)}, "
        f"median {spent['median']:.6g} ({100.0 * spent['max'] / limit:.4g} % of the limit)"
    )
    for number, run in enumerate(found["runs"], 1):
        yield (
            f"run {number}: {counted(run['releases'], 'release')} about "
            f"{counted(run['blocks'], 'block')}"
            + (f", {run['people']:,} people" if run["people"] is not None else "")
            + f", {counted(run['saves'], 'save')}, {counted(run['resumes'], 'resume')}"
            + (f", {run['unsettled']} not settled" if run["unsettled"] else "")
            + (", simulation only" if run["simulation"] else "")
        )


def markdown(found: Mapping[str, Any]) -> Iterator[str]:
    """An account as a page: what was declared, what one user spent, and a part per run."""
    at = "" if found["unit"] == "epsilon" else f" at delta = {found['delta']:g}"
    yield from _declared(found)
    yield from ("", *_one_user(found, at))
    yield from ("", *_runs(found, at))
    for number, run in enumerate(found["runs"], 1):
        yield from ("", *_run(number, run))


def _declared(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Privacy account of {os.path.basename(found['file'])}"
    yield ""
    if found["note"]:
        yield from (found["note"], "")
    what = "several runs on one population" if found["kind"] == "people" else "one run"
    yield f"A ledger of {what}, `{found['id']}`, with {counted(found['entries'], 'entry')}."
    promised = found["promised"]
    if promised is not None:
        yield (
            f"Protected is {promised['protects']} ({promised['relation']}); declared was "
            f"epsilon = {promised['epsilon']:g}, delta = {promised['delta']:g}."
        )
    if any(run["simulation"] for run in found["runs"]):
        yield "**A run is a simulation: its noise has a known seed and protects nobody.**"


def _one_user(found: Mapping[str, Any], at: str) -> Iterator[str]:
    user, unit, spent = found["user"], found["unit"], found["spent"]
    yield f"| one user | {unit} | epsilon{at} |"
    yield "|---|---:|---:|"
    yield f"| may spend | {user['limit']:.6g} | {at_most(user['limit_epsilon'])} |"
    most = at_most(user["spent"], 6), at_most(user["spent_epsilon"])
    yield f"| has spent at most | {' | '.join(most)} |"
    yield ""
    yield (
        f"{spent['count']:,} {spent['of']} have an account; the median is {spent['median']:.6g} "
        f"of {found['limit']:.6g} {unit}."
    )


def _runs(found: Mapping[str, Any], at: str) -> Iterator[str]:
    unit = found["unit"]
    yield f"| run | from | to | people | releases | cost of a user, {unit} | epsilon{at} |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for number, run in enumerate(found["runs"], 1):
        people = "not known" if run["people"] is None else f"{run['people']:,}"
        yield (
            f"| {number} | {run['first'] or 'not known'} | {run['last'] or 'not known'} | "
            f"{people} | {run['releases']:,} | {at_most(run['user_cost'], 6)} | "
            f"{at_most(run['user_epsilon'])} |"
        )


def _run(number: int, run: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Run {number}"
    yield ""
    yield (
        f"`{run['name']}`: {counted(run['saves'], 'save')}, "
        f"{counted(run['resumes'], 'resume')}; the block that paid most paid "
        f"{at_most(run['block_max'], 6)} {run['unit']}."
    )
    if run["unsettled"]:
        yield (
            f"{counted(run['unsettled'], 'charge')} at the end had no result on disk: paid "
            "for, not published."
        )
    if run["labels"]:
        yield ""
        yield "| what was released | times | first | last | largest cost |"
        yield "|---|---:|---|---|---:|"
    for label, times in run["labels"].items():
        lines = [charge for charge in run["charges"] if charge["label"] == label]
        first, last = lines[0]["time"] or "not known", lines[-1]["time"] or "not known"
        most = max(line["cost"] for line in lines)
        yield f"| {label} | {times:,} | {first} | {last} | {at_most(most, 6)} |"


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "entry"), counted(2, "entry")
    ('1 entry', '2 entries')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def at_most(number: float, digits: int = 4) -> str:
    """A few digits, rounded up: a shorter number must not be a stronger claim.

    >>> at_most(1.00049), at_most(1.0000000000001), at_most(0.0), at_most(0.1234561, 6)
    ('1.001', '1', '0', '0.123457')
    """
    shown = f"{number:.{digits}g}"
    # What conversions are off by is no reason for another digit.
    if float(shown) < number * (1.0 - 1e-9):
        place = math.floor(math.log10(number)) - digits + 1
        shown = f"{number + 0.5 * 10.0**place:.{digits}g}"
    return shown
