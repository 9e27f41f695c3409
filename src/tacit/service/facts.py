"""Public facts of a run: for pages, devices, monitoring, and the log.

The log has a line of JSON for each event, and nothing of a person. Messages of other libraries'
exceptions may hold values: of those it has the class and the places in the code alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import traceback
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import func, select

from tacit.core.monitor import monitor
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.store import ledger, runs
from tacit.store.schema import accounts, stores

if TYPE_CHECKING:
    from tacit.core.agent import Agent

_log = logging.getLogger("tacit.service")


def public_state(agent: Agent) -> dict[str, Any]:
    """Public numbers of a run, as the store has them now."""
    run, privacy = agent.run_row(), agent.privacy
    guarantee = agent.guarantee
    assert guarantee is not None  # noqa: S101
    with agent.store.read() as db:
        line, head = ledger.head(db)
        blocks = [row for row in runs.undone(db, run) if row.stage != "released"]
        most = db.scalar(select(stores.c.most)) or run.cost
        spent = db.scalar(select(func.max(accounts.c.spent))) or 0
    room = next((row for row in blocks if row.block == run.block), None)
    names = ("version", "latest", "block", "taken", "served", "users", "episodes")
    found: dict[str, Any] = {name: getattr(run, name) for name in names}
    found |= {"pinned": bool(run.pinned), "stopped": bool(run.stopped)}
    found |= {"waiting": sum(row.users for row in blocks), "room": room.size if room else 0}
    found |= {"places": room.places if room else 0, "ledger_line": line, "ledger_head": head}
    found |= {"guarantee": guarantee.short, "words": str(guarantee), "blocks": agent.releases}
    found |= {"limit": _epsilon(most, privacy), "spent": _epsilon(spent, privacy)}
    if privacy.local:
        found |= {"limit": float(privacy.epsilon)}
        found |= {"spent": float(privacy.epsilon) if run.served else 0.0}
    found["trial"] = agent.trial().plain() if agent.algorithm.problem.arms else None
    columns: dict[str, Any] = {}
    with contextlib.suppress(InvalidArgument):  # releases of some agents tell nothing
        columns = monitor(agent).columns()
    safe = {name: [_json_number(x) for x in column] for name, column in columns.items()}
    return found | {"monitoring": safe, "problem": "; ".join(agent.problems())}


def _epsilon(parts: int, privacy: Any) -> float:
    """Parts of an account as an epsilon."""
    from tacit.privacy.budget import epsilon_from_mu

    spent = parts / runs.UNIT
    found = spent if privacy.pure else epsilon_from_mu(spent**0.5, privacy.delta)
    # Accounts round up by less than a part of each run.
    close = abs(found - privacy.epsilon) < 1e-6 * privacy.epsilon
    return float(privacy.epsilon) if close else float(found)


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def asked_of_devices(statistic: Any, privacy: Any) -> dict[str, Any]:
    """The statistic that devices report, and the noise that they add, as JSON values."""
    from tacit.privacy.local import noise_scale
    from tacit.privacy.noise import grid_step
    from tacit.tabular.visits import question

    held = {field.name: getattr(statistic, field.name) for field in fields(statistic) if field.init}
    found: dict[str, Any] = {
        "statistic": type(statistic).__name__,
        "fields": {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in held.items()},
        "size": statistic.layout.size,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "mechanism": privacy.mechanism,
        "episodes_per_user": privacy.episodes_per_user,
    }
    if not privacy.reports_bits:
        found["scale"] = noise_scale(statistic, privacy)
        found["step"] = grid_step(statistic, privacy.norm)
    with contextlib.suppress(InvalidArgument):
        # For clients in JavaScript, where they can answer it.
        found["question"] = question(statistic, privacy)
    return found


def note(event: str, **facts: Any) -> None:
    """Logs an event with public facts."""
    _log.info(json.dumps({"event": event} | facts))


def trouble(where: str, error: BaseException) -> str:
    """Logs an error; returns it in public words."""
    words = type(error).__name__
    if isinstance(error, TacitError):
        words = f"{words}: {' '.join(str(error).split())}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tacit" in frame.filename or frame is frames[-1]]
    at = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in ours]
    _log.error(json.dumps({"event": "failed", "where": where, "error": words, "at": at}))
    return words
