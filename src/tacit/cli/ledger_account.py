"""What a ledger says of its runs and its people, as JSON values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.ledger import Entry, Ledger

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
    from tacit.privacy.zcdp import epsilon_from_rho

    if unit == "epsilon":
        return spent
    if unit == "2 rho":
        return epsilon_from_rho(spent / 2.0, delta)
    return epsilon_from_mu(spent**0.5, delta)
