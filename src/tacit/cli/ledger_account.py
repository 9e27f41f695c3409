"""What a ledger says of its runs and its people: as JSON values, and in words."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.ledger import Entry, Ledger
    from tacit.privacy.ledger.repair import Repair

# A charge is pending until its result is on disk; it is paid for all the same.
_CHARGES = ("charge", "pending")


def summary(file: str, ledger: Ledger) -> dict[str, Any]:
    """What ``tacit ledger show`` prints."""
    accounts = ledger.accounts
    return {
        "file": file,
        "id": ledger.id,
        "kind": "people" if ledger.people else "one run",
        "unit": ledger.unit,
        "limit": ledger.limit,
        "note": ledger.note,
        "entries": ledger.sequence,
        "head": ledger.head,
        "repairs": sum(entry.event == "repair" for entry in ledger.entries),
        "spent": {
            "of": "people" if ledger.people else "blocks",
            "count": sum(accounts.values()),
            "max": max(accounts, default=0.0),
            "median": _median(accounts),
        },
        "runs": [_run(ledger, name, entries) for name, entries in _by_run(ledger).items()],
    }


def account(file: str, ledger: Ledger, delta: float | None) -> dict[str, Any]:
    """What ``tacit ledger report`` prints."""
    found = summary(file, ledger)
    promised = ledger.terms
    entries = _by_run(ledger)
    if promised is None:  # of one run: what that run promised, if its start says so
        promised = next((e.terms for e in ledger.entries if e.terms is not None), None)
    if ledger.unit == "epsilon":
        delta = 0.0
    elif delta is None and promised is not None:
        delta = promised.delta
    if delta is None:
        raise InvalidArgument("--delta is missing: this ledger does not say which was declared")
    # A block's cost is one episode's; a user with several may pay more.
    factor = 1.0
    if not ledger.people and promised is not None:
        factor = promised.user_limit / promised.episode_limit
    found["delta"] = delta
    found["promised"] = None if promised is None else asdict(promised)
    found["user"] = {
        "limit": ledger.limit * factor,
        "limit_epsilon": _epsilon(ledger.unit, ledger.limit * factor, delta),
        "spent": found["spent"]["max"] * factor,
        "spent_epsilon": _epsilon(ledger.unit, found["spent"]["max"] * factor, delta),
    }
    for run, lines in zip(found["runs"], entries.values(), strict=True):
        run["user_epsilon"] = _epsilon(run["unit"], run["user_cost"], delta)
        run["charges"] = [
            _dated(line)
            | {
                "label": line.label,
                "blocks": len(line.costs),
                "cost": max(line.costs.values(), default=0.0),
            }
            for line in lines
            if line.event in _CHARGES
        ]
        run["joins"] = [
            _dated(line) | {"people": line.people} for line in lines if line.event == "join"
        ]
    return found


def _dated(entry: Entry) -> dict[str, Any]:
    return {"entry": entry.sequence, "time": entry.time or None}


def _by_run(ledger: Ledger) -> dict[str, list[Entry]]:
    """The entries of each run, in the order of their starts."""
    runs: dict[str, list[Entry]] = {name: [] for name in ledger.runs}
    for entry in ledger.entries:
        if entry.event == "repair":
            continue
        runs.setdefault(entry.run, []).append(entry)
    return runs


def _run(ledger: Ledger, name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    terms = ledger.runs.get(name) or next((e.terms for e in entries if e.terms), None)
    charges = [entry for entry in entries if entry.event in _CHARGES]
    blocks: dict[str, float] = {}
    for entry in charges:
        for key, cost in entry.costs.items():
            blocks[key] = blocks.get(key, 0.0) + cost
    settled = max((e.sequence for e in entries if e.event in ("save", "charge")), default=0)
    unsettled = sum(e.event == "pending" and e.sequence > settled for e in entries)
    most = max(blocks.values(), default=0.0)
    times = [entry.time for entry in entries if entry.time]
    factor = 1.0 if terms is None else terms.user_limit / terms.episode_limit
    people = sum(entry.people for entry in entries) if ledger.people else None
    cost = most * factor
    if ledger.people and terms is not None:
        cost = terms.user_limit if people else 0.0
    return {
        "name": name or next((e.label for e in entries if e.event == "start"), ""),
        "unit": ledger.unit if terms is None else terms.unit,
        "promised": None if terms is None else asdict(terms),
        "simulation": terms is not None and terms.simulation,
        "first": min(times, default=None),
        "last": max(times, default=None),
        "people": people,
        "blocks": len(blocks),
        "block_max": most,
        "user_cost": cost,
        "releases": len(charges),
        "labels": dict(Counter(entry.label for entry in charges)),
        "unsettled": unsettled,
        "saves": sum(entry.event == "save" for entry in entries),
        "resumes": sum(entry.event == "resume" for entry in entries),
        "succeeded": any(entry.event == "succession" for entry in entries),
    }


def simulated_runs(ledger: Ledger) -> list[int]:
    """Which runs have noise of a known seed, counted from 1."""
    runs = enumerate(_by_run(ledger).items(), 1)
    return [n for n, (name, entries) in runs if _run(ledger, name, entries)["simulation"]]


def _median(accounts: Counter[float]) -> float:
    """The lower median of values with their frequencies."""
    left = (sum(accounts.values()) + 1) // 2
    for value in sorted(accounts):
        left -= accounts[value]
        if left <= 0:
            return value
    return 0.0


def _epsilon(unit: str, spent: float, delta: float) -> float:
    """What was spent, as an epsilon at this delta."""
    from tacit.privacy.gaussian_dp import epsilon_from_mu

    if unit == "epsilon":
        return spent
    return epsilon_from_mu(spent**0.5, delta)


def repair_lines(file: str, done: Repair, unit: str) -> Iterator[str]:
    """What a repair did, in sentences."""
    if not done.problem:
        yield f"{file} is well: nothing was changed"
        return
    yield f"was: {done.problem}"
    yield f"kept: {counted(done.kept, 'entry')}; the damaged file is {done.original}"
    if done.people:
        yield f"known from elsewhere: payments of {done.people:,} people whose lines are not kept"
    if done.lost_lines:
        yield f"lost: {'one line' if done.lost_lines == 1 else 'more than one line'}"
    if done.everybody:
        yield f"charged: {at_most(done.everybody, 6)} {unit} to everybody, known or not"
    if done.ended:
        yield "ended: all runs from before; none of their saves can be resumed"
    else:
        yield "Nothing was lost: all runs go on."


# In words: Markdown for an auditor, sentences for whoever keeps the file.


def summary_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """A summary in sentences, a line per run."""
    spent, limit = found["spent"], found["limit"]
    yield f"{found['file']}: a ledger of {found['kind']}, {found['entries']:,} entries"
    if found["note"]:
        yield f"note: {found['note']}"
    yield f"head: {found['head']}"
    if found["repairs"]:
        yield f"repaired {counted(found['repairs'], 'time')}: see its lines"
    whose = "person, over all runs" if found["kind"] == "people" else "block of users"
    yield f"limit: {at_most(limit, 6)} {found['unit']} for each {whose}"
    yield (
        f"spent: {spent['count']:,} {spent['of']}, most {at_most(spent['max'], 6)}, "
        f"median {at_most(spent['median'], 6)} ({min(100.0 * spent['max'] / limit, 100.0):.4g} % "
        "of the limit)"
    )
    for number, run in enumerate(found["runs"], 1):
        yield (
            f"run {number}: {counted(run['releases'], 'release')} about "
            f"{counted(run['blocks'], 'block')}"
            + (f", {run['people']:,} people" if run["people"] is not None else "")
            + f", {counted(run['saves'], 'save')}, {counted(run['resumes'], 'resume')}"
            + (f", {run['unsettled']} not settled" if run["unsettled"] else "")
            + (", has a successor" if run["succeeded"] else "")
            + (", simulation only" if run["simulation"] else "")
        )


def markdown(found: Mapping[str, Any]) -> Iterator[str]:
    """An account as a page: what was declared, what one user spent, and a part per run."""
    at = "" if found["unit"] == "epsilon" else f" at delta = {found['delta']:g}"
    yield from _declared(found)
    yield from ("", *_one_user(found, at))
    yield from ("", *_runs(found, at))
    for number, run in enumerate(found["runs"], 1):
        yield from ("", *_run_words(number, run))


def _declared(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Privacy account of {os.path.basename(found['file'])}"
    yield ""
    if found["note"]:
        yield from (found["note"], "")
    what = "several runs on one population" if found["kind"] == "people" else "one run"
    yield f"A ledger of {what}, `{found['id']}`, with {counted(found['entries'], 'entry')}."
    yield f"The hash of its last line is `{found['head']}`."
    if found["repairs"]:
        yield (
            f"It was repaired, {counted(found['repairs'], 'time')}: lines of it say what was lost, "
            "and what everybody was charged for that."
        )
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
    yield f"| may spend | {at_most(user['limit'], 6)} | {at_most(user['limit_epsilon'])} |"
    most = at_most(user["spent"], 6), at_most(user["spent_epsilon"])
    yield f"| has spent at most | {' | '.join(most)} |"
    yield ""
    yield (
        f"{spent['count']:,} {spent['of']} have an account; the median is "
        f"{at_most(spent['median'], 6)} of {at_most(found['limit'], 6)} {unit}."
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


def _run_words(number: int, run: Mapping[str, Any]) -> Iterator[str]:
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


def at_least(number: float, digits: int = 4) -> str:
    """A few digits, rounded down: what is left must not be shown as more.

    >>> at_least(0.99999), at_least(0.0), at_least(1.5)
    ('0.9999', '0', '1.5')
    """
    shown = f"{number:.{digits}g}"
    if float(shown) > number * (1.0 + 1e-9):
        place = math.floor(math.log10(number)) - digits + 1
        shown = f"{number - 0.5 * 10.0**place:.{digits}g}"
    return shown
