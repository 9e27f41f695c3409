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

from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.ledger import Ledger
from tacit.service.store import ROLES, Store

if TYPE_CHECKING:
    from tacit.service.app_file import App

_LEAST = 256 * 2**20
"""Bytes that should be free where the files are."""


def checked(app: App, expect: str = "") -> list[tuple[str, bool, str]]:
    """What was looked at, whether it is well, and in words."""
    found: list[tuple[str, bool, str]] = []
    store: Store | None = None

    def look(name: str, view: Callable[[], str]) -> None:
        try:
            found.append((name, True, view()))
        except (TacitError, OSError, ValueError) as error:
            found.append((name, False, " ".join(str(error).split())))

    def database() -> str:
        nonlocal store
        if "://" not in app.database and not os.path.exists(app.database):
            return "is not there yet: the first start makes it"
        store = Store(app.database)
        return f"answers, schema {store.serving()['schema_version']}"

    look("agent", lambda: f"{app.agent(files=False)!r}")
    look("database", database)
    look("disk", lambda: _disk(app))
    look("TLS", lambda: _tls(app))
    if store is not None:
        kept: Store = store
        for name, view in _of_database(app, kept, expect):
            look(name, view)
        kept.close_all()
    elif app.files["state"].exists():
        found.append(("state", False, "is there without a database: one of them is another's"))
    return found


def _of_database(app: App, store: Store, expect: str) -> Iterator[tuple[str, Callable[[], str]]]:
    serving = store.serving()
    yield "tokens", lambda: _tokens(store)
    if serving["version"] < 0:
        return
    yield "state", lambda: _state(app)
    if not app.privacy.local:
        yield "ledger", lambda: _ledger(app, serving, expect)
    yield "policies", lambda: _policies(store, serving)
    yield "blocks", lambda: _blocks(store, serving)
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


def _tokens(store: Store) -> str:
    rows = store.ask("SELECT role, COUNT(*) FROM tokens WHERE revoked = 0 GROUP BY role")
    counts = {role: int(count) for role, count in rows}
    missing = [role for role in ROLES if role not in counts]
    _require(not missing, f"nobody has one as {' or '.join(missing)}: tacit serve --new-token")
    return ", ".join(f"{counts[role]} {role}" for role in ROLES)


def _state(app: App) -> str:
    path = app.files["state"]
    _require(path.exists(), f"{path.name} is not here: see docs/service.md, restore")
    mode = stat.S_IMODE(path.stat().st_mode)
    _require(mode & 0o077 == 0, f"others can read {path.name}: its mode is {mode:o}, not 600")
    return f"{path.name}, mode {mode:o}"


def _ledger(app: App, serving: dict[str, Any], expect: str) -> str:
    path = app.files["ledger"]
    ledger = Ledger.open(path, expect=serving["ledger_head"], every_line=True)
    _require(ledger.id == serving["ledger"], "it is another one than the database has seen")
    if expect:
        Ledger.open(path, expect=_head_of(expect))
    return f"{ledger.sequence} entries, all well, and it has the database's line"


def _head_of(expect: str) -> str:
    """A hash, or that of a published policy."""
    if not os.path.exists(expect):
        return expect
    from tacit import published

    return str(published.about(expect)["ledger_head"])


def _policies(store: Store, serving: dict[str, Any]) -> str:
    from tacit import published

    rows = store.ask("SELECT version, body FROM policies ORDER BY version DESC LIMIT 100")
    with tempfile.TemporaryDirectory() as folder:
        for version, body in rows:
            path = Path(folder) / "policy.json"
            path.write_bytes(bytes(body))
            said = published.about(path)
            _require(int(said["version"]) == version, f"version {version} says it is another")
    _require(any(v == serving["version"] for v, _ in rows), "what serves is not among them")
    return f"{len(rows)} of the last were read, and their hashes are right"


def _blocks(store: Store, serving: dict[str, Any]) -> str:
    rows = store.ask(
        "SELECT b.number, b.users, b.state, COUNT(e.id), COUNT(e.body) FROM blocks b "
        "LEFT JOIN episodes e ON e.block = b.number GROUP BY b.number, b.users, b.state"
    )
    for number, users, state, there, raw in rows:
        _require(users == there, f"block {number} has {there} rows, not {users}")
        _require(state == "sealed" or not raw, f"block {number} is released and has raw data")
    served = sum(users for _, users, state, _, _ in rows if state == "released")
    _require(served == serving["served"], f"they have {served} users, not {serving['served']}")
    return f"{len(rows)}, with {served} users; raw data is of those who wait alone"


def _clock(store: Store) -> str:
    last = store.ask("SELECT MAX(at) FROM policies")[0][0]
    ahead = last - time.time()
    _require(ahead < 60.0, f"it is {ahead:.0f} seconds before the last publication")
    return "is after the last publication"


def _require(well: bool, words: str) -> None:
    if not well:
        raise InvalidArgument(words)
