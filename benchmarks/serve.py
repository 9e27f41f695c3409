"""A service under load, on this machine alone: what it adds to its framework and its database.

    python -m benchmarks serve

Server and devices are processes of this machine and share its cores; what is compared is measured
in turns, so that both sides have the same neighbours.

* Policy reads, against an application of the bare framework that answers with as many bytes.
* Accepted episodes, against the same rows inserted directly, a transaction each, as durably.
* Memory of the server when a hundred thousand users came in one go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import secrets
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.row import Row, at_least, at_most, noted
from research.campaign.servers import app_text, free_port, serve, token_of, write_app
from tacit.service.app_file import read_app
from tacit.service.client import Client
from tacit.service.tokens import new_token
from tacit.store.store import Store

USERS, BLOCK, CONNECTIONS, SECONDS, TURNS = 100_000, 1000, 64, 2.0, 5
_TABLE = "CREATE TABLE episodes (event TEXT PRIMARY KEY, person TEXT, block INTEGER, body BLOB)"
_INSERT = "INSERT INTO episodes VALUES (?, ?, 0, ?)"


def bare(port: int, body: bytes) -> None:
    """The framework alone, with a static body."""
    import uvicorn
    from fastapi import FastAPI, Response

    app = FastAPI()

    @app.get("/v1/policy")
    async def policy() -> Response:
        return Response(body, media_type="application/json")

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False)


@contextlib.contextmanager
def process(target: Callable[..., None], *args: Any) -> Iterator[Any]:
    """A server in a process of its own."""
    made = multiprocessing.get_context("spawn").Process(target=target, args=args, daemon=True)
    made.start()
    try:
        yield made
    finally:
        made.terminate()
        made.join()


# A device that is as cheap as one can be: what is measured is the server.


async def _ask(
    port: int, texts: Iterable[bytes], codes: dict[int, int], tickets: list[str]
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for text in texts:
        writer.write(text)
        head = await reader.readuntil(b"\r\n\r\n")
        code = int(head[9:12])
        codes[code] = codes.get(code, 0) + 1
        _, found, rest = head.partition(b"tacit-ticket: ")
        if found:
            tickets.append(rest.partition(b"\r\n")[0].decode())
        if code == 304:
            continue
        start = head.lower().index(b"content-length:") + 15
        await reader.readexactly(int(head[start : head.index(b"\r\n", start)]))
    writer.close()


def asked(port: int, sources: list[Iterable[bytes]]) -> tuple[dict[int, int], list[str]]:
    """Sends requests over several connections; how often each code was answered, and tickets."""
    codes: dict[int, int] = {}
    tickets: list[str] = []

    async def everybody() -> None:
        await asyncio.gather(*(_ask(port, texts, codes, tickets) for texts in sources))

    asyncio.run(everybody())
    return codes, tickets


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """A request as bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _only(codes: dict[int, int], code: int) -> None:
    """Refuses to measure anything else."""
    if set(codes) != {code}:
        raise ValueError(f"answers were {codes}, not {code}")


def reads(port: int, token: str) -> float:
    """Reads of the policy in a second."""
    text, end = request("GET", "/v1/policy", token), time.monotonic() + SECONDS

    def texts() -> Iterator[bytes]:
        while time.monotonic() < end:
            yield text

    start = time.monotonic()
    codes, _ = asked(port, [texts() for _ in range(CONNECTIONS)])
    _only(codes, 200)
    return codes[200] / (time.monotonic() - start)


def episodes(port: int, token: str, users: int) -> list[bytes]:
    """Requests of so many users, each of whom has read the policy."""
    text = request("GET", "/v1/policy?place=1", token)
    _, tickets = asked(port, [[text] * -(-users // CONNECTIONS)] * CONNECTIONS)
    raw = {"states": [0, 1, 2, 0], "actions": [0, 1, 0]}
    return [
        request(
            "POST",
            "/v1/episodes",
            token_of(u),
            json.dumps(raw | {"user": u, "event": u, "rewards": [0, 1, 0], "ticket": t}).encode(),
        )
        for u, t in ((secrets.token_hex(8), ticket) for ticket in tickets[:users])
    ]


def direct(path: Path, users: int) -> float:
    """The same rows, a transaction each, by whoever holds the database: per second."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_TABLE)
    body = b"0" * 56
    names = [(secrets.token_hex(16), secrets.token_hex(16), body) for _ in range(users)]
    start = time.monotonic()
    for row in names:
        connection.execute(_INSERT, row)
    rate = users / (time.monotonic() - start)
    connection.close()
    return rate


def memory(pid: int) -> float:
    """What a process holds, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"no process {pid}")


@contextlib.contextmanager
def service(folder: Path, block: int, users: int) -> Iterator[tuple[int, str, int]]:
    """A service with SQLite: its port, a device's token, and its process."""
    text = app_text("ucbvi", "joint", users, "app.db").replace("size=24", f"size={block}")
    file, port = folder / "app.toml", free_port()
    write_app(file, text)
    with Store(read_app(os.fspath(file), logs=False).store) as store:
        token = new_token(store, "device")
    where, quiet = ("127.0.0.1", port), (folder / "clock", "", os.devnull)
    with process(serve, os.fspath(file), where, *quiet) as made:
        Client(f"http://127.0.0.1:{port}", token, tries=200).policy()
        yield port, token, made.pid


def rows() -> Iterator[Row]:
    """All rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with service(folder, 10**6, 10**7) as (port, token, _):
            client = Client(f"http://127.0.0.1:{port}", token)
            yield from _reading(port, token, client)
            yield from _taking(port, token, folder)
            client.close()
    yield from _many()


def _reading(port: int, token: str, client: Client) -> Iterator[Row]:
    body, other = client.request("GET", "/v1/policy")[2], free_port()
    with process(bare, other, body):
        Client(f"http://127.0.0.1:{other}", token, tries=200).request("GET", "/v1/policy")
        pairs = [(reads(port, token), reads(other, token)) for _ in range(TURNS)]
    ours = statistics.median(a for a, _ in pairs)
    ratio = statistics.median(a / b for a, b in pairs)
    yield noted("serve", f"policy reads, {len(body)} bytes", ours, " / s")
    yield at_least("serve", "policy reads over the bare framework's", ratio, 0.7)


def _taking(port: int, token: str, folder: Path) -> Iterator[Row]:
    users, pairs = 2000, []
    for turn in range(TURNS):
        texts = episodes(port, token, users)
        start = time.monotonic()
        codes, _ = asked(port, [texts[k::CONNECTIONS] for k in range(CONNECTIONS)])
        _only(codes, 202)
        mine = users / (time.monotonic() - start)
        pairs.append((mine, direct(folder / f"direct-{turn}.db", users)))
    yield noted("serve", "accepted episodes", statistics.median(a for a, _ in pairs), " / s")
    ratio = statistics.median(a / b for a, b in pairs)
    yield at_least("serve", "accepted episodes over direct inserts", ratio, 0.4)


def _many() -> Iterator[Row]:
    """A hundred thousand users: memory when a fifth came, by when all is loaded, and at the end."""
    with (
        tempfile.TemporaryDirectory() as name,
        service(Path(name), BLOCK, 2 * USERS) as (port, token, pid),
    ):
        taken, early = 0, 0.0
        start = time.monotonic()
        while taken < USERS:
            texts = episodes(port, token, BLOCK)
            codes, _ = asked(port, [texts[k::CONNECTIONS] for k in range(CONNECTIONS)])
            taken += codes.get(202, 0)
            if not early and taken >= USERS / 5:
                early = memory(pid)
        rate, late = taken / (time.monotonic() - start), memory(pid)
    yield noted("serve", f"{taken:,} users in one go, blocks included", rate, " / s")
    yield at_most("serve", "memory then over that at a fifth of them", late / early, 1.25)
