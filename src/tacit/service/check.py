"""``tacit serve --check``: whether all is well, without a change to anything that is there."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from tacit import published
from tacit.privacy.errors import TacitError, require
from tacit.service.identity import ROLES, Identity
from tacit.service.sealing import public_keys, signing_keys
from tacit.store import ledger, runs
from tacit.store.schema import VERSION, packets, problems, tokens, versions
from tacit.store.store import Store

if TYPE_CHECKING:
    from tacit.service.app_file import App


def checked(app: App) -> list[tuple[str, bool, str]]:
    """Findings of all checks: subject, whether it is well, and in words."""
    found: list[tuple[str, bool, str]] = []

    def look(name: str, view: Callable[..., str], *given: Any) -> None:
        try:
            found.append((name, True, view(*given)))
        except (TacitError, OSError, ValueError) as error:
            found.append((name, False, " ".join(str(error).split())))

    def look_into_the_store() -> str:
        if not app.stored:
            return "is not there yet: the first start makes it"
        with app.open(readonly=True) as store:
            if not store.postgres:
                look("mode", _mode, app)
            look("tokens", _tokens, app, store)
            with store.read() as db:
                run = runs.find(db, runs.chain(db, app.name)[0] if app.successor else app.name)
            if run is not None:
                look("arguments", _arguments, app, run)
                look("ledger", _ledger, store)
                look("policy", _policy, store, run)
                look("episodes", _episodes, store, run)
                look("problems", _problems, store, run)
        return f"answers, schema {VERSION}"

    look("agent", lambda: f"{app.agent(files=False)!r}")
    look("disk", _disk, app)
    look("TLS", _tls, app)
    look("people", _people, app)
    look("signing", _signing, app)
    look("store", look_into_the_store)
    return found


def _disk(app: App) -> str:
    free = shutil.disk_usage(app.folder).free
    require(free >= 2**28, f"only {free // 2**20} MiB are free: see docs/operations.md, disk full")
    return f"{free // 2**20} MiB are free"


def _tls(app: App) -> str:
    serving = app.serving
    if not serving.certificate:
        local = serving.host in ("127.0.0.1", "::1", "localhost")
        require(local, "it listens beyond this machine without TLS: set certificate, or a proxy")
        return "none: it listens on this machine alone"
    names = [app.folder / serving.certificate, app.folder / serving.certificate_key]
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*map(str, names))
    return "certificate and key fit"


def _people(app: App) -> str:
    serving = app.serving
    if serving.identifies:
        Identity(app.folder, serving)
        return f"have tokens for {serving.audience!r}"
    return "nobody has a token of her own: whoever has the app's may name anybody (set jwks)"


def _signing(app: App) -> str:
    if not app.signing:
        return "policies are not signed (set signing)"
    return f"public keys: {' '.join(public_keys(signing_keys(app.signing, app.folder)))}"


def _mode(app: App) -> str:
    mode = stat.S_IMODE(os.stat(app.store).st_mode)
    require(mode & 0o077 == 0, f"others can read the store: its mode is {mode:o}, not 600")
    return f"{mode:o}"


def _tokens(app: App, store: Store) -> str:
    with store.read() as db:
        query = select(tokens.c.role, func.count()).where(tokens.c.revoked == 0)
        counts = {role: int(n) for role, n in db.execute(query.group_by(tokens.c.role))}
    # People may have all roles by their own.
    missing = [role for role in ROLES if role not in counts and not app.serving.identifies]
    require(not missing, f"nobody has one as {' or '.join(missing)}: tacit serve --new-token")
    return ", ".join(f"{counts.get(role, 0)} {role}" for role in ROLES)


def _arguments(app: App, run: Any) -> str:
    mine = ledger.digest(app.agent(files=False).algorithm.fingerprint)
    require(mine == run.fingerprint, f"the run {run.run!r} in this store has other arguments")
    return f"those of the run {run.run!r} in the store"


def _ledger(store: Store) -> str:
    wrong = ledger.verify(store)
    require(not wrong, "; ".join(wrong[:5]))
    with store.read() as db:
        return f"{ledger.head(db)[0]} entries and all accounts are well"


def _policy(store: Store, run: Any) -> str:
    serving = (versions.c.run == run.run, versions.c.version == run.version)
    with store.read() as db:
        body = db.scalar(select(versions.c.policy).where(*serving))
    said = int(published.about(body)["version"]) if body else run.version  # not asked for yet
    require(said == run.version, f"version {run.version} says it is version {said}")
    return f"version {run.version} was read, and its hash is right"


def _episodes(store: Store, run: Any) -> str:
    with store.read() as db:
        query = select(packets.c.block, func.sum(packets.c.users)).where(packets.c.run == run.run)
        raw = {block: int(n) for block, n in db.execute(query.group_by(packets.c.block))}
        waits = {row.block: row.users for row in runs.undone(db, run)}
    for block, users in raw.items():
        require(block in waits, f"block {block} is released and has raw data")
        require(users == waits[block], f"block {block} has {users} episodes, not {waits[block]}")
    return f"raw data is of the {sum(raw.values())} who wait alone"


def _problems(store: Store, run: Any) -> str:
    with store.read() as db:
        query = select(problems.c.problem).where(problems.c.run == run.run)
        said = [*db.scalars(query)]
    require(not said, "; ".join(said))
    return "none"
