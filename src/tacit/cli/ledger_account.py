"""What a ledger says of its runs and its people, as JSON values; and numbers in words."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
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
    """A summary in epsilons at a delta, with every charge: what ``tacit report`` is made of."""
    found, promised = summary(file, ledger), ledger.terms
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
    limit, spent = ledger.limit * factor, found["spent"]["max"] * factor
    found["delta"] = delta
    found["promised"] = None if promised is None else asdict(promised)
    found["user"] = {
        "limit": limit,
        "limit_epsilon": _epsilon(ledger.unit, limit, delta),
        "spent": spent,
        "spent_epsilon": _epsilon(ledger.unit, spent, delta),
    }
    for run, lines in zip(found["runs"], _by_run(ledger).values(), strict=True):
        run["user_epsilon"] = _epsilon(run["unit"], run["user_cost"], delta)
        run["charges"] = [
            _dated(line)
            | {"label": line.label, "blocks": len(line.costs)}
            | {"cost": max(line.costs.values(), default=0.0)}
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
        if entry.event != "repair":
            runs.setdefault(entry.run, []).append(entry)
    return runs


def _run(ledger: Ledger, name: str, entries: Sequence[Entry]) -> dict[str, Any]:
    terms = ledger.runs.get(name) or next((e.terms for e in entries if e.terms), None)
    events = Counter(entry.event for entry in entries)
    charges = [entry for entry in entries if entry.event in _CHARGES]
    blocks: defaultdict[str, float] = defaultdict(float)
    for key, paid in (item for entry in charges for item in entry.costs.items()):
        blocks[key] += paid
    settled = max((e.sequence for e in entries if e.event in ("save", "charge")), default=0)
    most = max(blocks.values(), default=0.0)
    times = [entry.time for entry in entries if entry.time]
    people = sum(entry.people for entry in entries) if ledger.people else None
    cost = most if terms is None else most * (terms.user_limit / terms.episode_limit)
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
        "unsettled": sum(e.event == "pending" and e.sequence > settled for e in entries),
        "saves": events["save"],
        "resumes": events["resume"],
        "succeeded": bool(events["succession"]),
    }


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

    return spent if unit == "epsilon" else epsilon_from_mu(spent**0.5, delta)


# Words.


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "entry"), counted(2, "entry")
    ('1 entry', '2 entries')
    """
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else many}"


def at_most(number: float, digits: int = 4, sign: float = 1.0) -> str:
    """A few digits, rounded up: a shorter number must not be a stronger claim.

    >>> at_most(1.00049), at_most(1.0000000000001), at_most(0.0), at_most(0.1234561, 6)
    ('1.001', '1', '0', '0.123457')
    """
    shown = f"{number:.{digits}g}"
    # What conversions are off by is no reason for another digit.
    if sign * float(shown) < sign * number * (1.0 - sign * 1e-9):
        place = math.floor(math.log10(number)) - digits + 1
        shown = f"{number + sign * 0.5 * 10.0**place:.{digits}g}"
    return shown


def at_least(number: float, digits: int = 4) -> str:
    """A few digits, rounded down: what is left must not be shown as more.

    >>> at_least(0.99999), at_least(0.0), at_least(1.5)
    ('0.9999', '0', '1.5')
    """
    return at_most(number, digits, -1.0)
