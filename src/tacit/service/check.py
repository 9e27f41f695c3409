"""``tacit serve --check``: whether all is well, without a change to anything that is there."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.service.tokens import ROLES
from tacit.store import ledger, runs
from tacit.store.schema import VERSION, packets, problems, tokens, versions
from tacit.store.store import Store

if TYPE_CHECKING:
    from tacit.service.app_file import App

_LEAST = 256 * 2**20
"""Bytes that should be free where the store is."""


def checked(app: App) -> list[tuple[str, bool, str]]:
    """Findings of all checks: subject, whether it is well, and in words."""
    found: list[tuple[str, bool, str]] = []
    store: Store | None = None

    def look(name: str, view: Callable[[], str]) -> None:
        try:
            found.append((name, True, view()))
        except (TacitError, OSError, ValueError) as error:
            found.append((name, False, " ".join(str(error).split())))

    def opened() -> str:
        nonlocal store
        if "://" not in app.store and not os.path.exists(app.store):
            return "is not there yet: the first start makes it"
        store = Store(app.store)
        return f"answers, schema {VERSION}"

    look("agent", lambda: f"{app.agent(files=False)!r}")
    look("store", opened)
    look("disk", lambda: _disk(app))
    look("TLS", lambda: _tls(app))
    if store is not None:
        kept: Store = store
        for name, view in _of_store(app, kept):
            look(name, view)
        kept.close()
    return found


def _of_store(app: App, store: Store) -> Iterator[tuple[str, Callable[[], str]]]:
    if not store.postgres:
        yield "mode", lambda: _mode(app)
    yield "tokens", lambda: _tokens(store)
    with store.read() as db:
        run = runs.find(db, app.name)
    if run is None:
        return
    yield "arguments", lambda: _arguments(app, run)
    yield "ledger", lambda: _ledger(store)
    yield "policies", lambda: _policies(store, run)
    yield "episodes", lambda: _episodes(store, run)
    yield "problems", lambda: _problems(store, run)
    yield "clock", lambda: _clock(store)


def _disk(app: App) -> str:
    free = shutil.disk_usage(app.folder).free
    _require(free >= _LEAST, f"only {free // 2**20} MiB are free: see docs/service.md, disk full")
    return f"{free // 2**20} MiB are free"


def _tls(app: App) -> str:
    serving = app.serving
    if not serving.certificate:
        local = serving.host in ("127.0.0.1", "::1", "localhost")
        _require(local, "it listens beyond this machine without TLS: set certificate, or a proxy")
        return "none: it listens on this machine alone"
    import ssl

    names = [app.folder / serving.certificate, app.folder / serving.certificate_key]
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*map(str, names))
    return "certificate and key fit"


def _mode(app: App) -> str:
    mode = stat.S_IMODE(os.stat(app.store).st_mode)
    _require(mode & 0o077 == 0, f"others can read the store: its mode is {mode:o}, not 600")
    return f"{mode:o}"


def _tokens(store: Store) -> str:
    with store.read() as db:
        query = select(tokens.c.role, func.count()).where(tokens.c.revoked == 0)
        counts = {role: int(n) for role, n in db.execute(query.group_by(tokens.c.role))}
    missing = [role for role in ROLES if role not in counts]
    _require(not missing, f"nobody has one as {' or '.join(missing)}: tacit serve --new-token")
    return ", ".join(f"{counts[role]} {role}" for role in ROLES)


def _arguments(app: App, run: Any) -> str:
    mine = ledger.digest(app.agent(files=False).algorithm.fingerprint)
    _require(
        mine == run.fingerprint, f"the run {run.run!r} in this store has other arguments than app"
    )
    return f"those of the run {run.run!r} in the store"


def _ledger(store: Store) -> str:
    wrong = ledger.verify(store)
    _require(not wrong, "; ".join(wrong[:5]))
    with store.read() as db:
        return f"{ledger.head(db)[0]} entries and all accounts are well"


def _policies(store: Store, run: Any) -> str:
    from tacit import published

    query = select(versions.c.version, versions.c.policy).where(versions.c.run == run.run)
    with store.read() as db:
        rows = db.execute(query.order_by(versions.c.version.desc()).limit(100)).all()
    with tempfile.TemporaryDirectory() as folder:
        for version, body in filter(lambda row: row[1], rows):
            path = Path(folder) / "policy.json"
            path.write_bytes(body)
            said = published.about(path)
            _require(int(said["version"]) == version, f"version {version} says it is another")
    _require(any(v == run.version for v, _ in rows), "what serves is not among them")
    return f"{len(rows)} of the last were read, and their hashes are right"


def _episodes(store: Store, run: Any) -> str:
    with store.read() as db:
        query = select(packets.c.block, func.sum(packets.c.users)).where(packets.c.run == run.run)
        raw = {block: int(n) for block, n in db.execute(query.group_by(packets.c.block))}
        waits = {row.block: row.users for row in runs.undone(db, run)}
    for block, users in raw.items():
        _require(block in waits, f"block {block} is released and has raw data")
        _require(users == waits[block], f"block {block} has {users} episodes, not {waits[block]}")
    return f"raw data is of the {sum(raw.values())} who wait alone"


def _problems(store: Store, run: Any) -> str:
    with store.read() as db:
        query = select(problems.c.problem).where(problems.c.run == run.run)
        said = [*db.scalars(query)]
    _require(not said, "; ".join(said))
    return "none"


def _clock(store: Store) -> str:
    with store.read() as db:
        last = db.scalar(select(func.max(versions.c.at)))
    ahead = (last or 0.0) - time.time()
    _require(ahead < 60.0, f"it is {ahead:.0f} seconds before the last publication")
    return "is after the last publication"


def _require(well: bool, words: str) -> None:
    if not well:
        raise InvalidArgument(words)
