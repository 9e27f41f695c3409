"""Processes of a service and databases under it, and all the harm that comes to them."""

from __future__ import annotations

import contextlib
import json
import logging
import mmap
import multiprocessing
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import uvicorn
import uvicorn.protocols.http.auto

import tacit
from tacit.cli.serve import worker
from tacit.service.entrance import Door

BLOCK, H, WINDOW = 24, 3, 4
DAY = 86400.0
APP = f"""
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = {H}
stationary = POOLED
[agent]
name = "AGENT"
users = USERS
schedule = "fixed:size={BLOCK}"
[privacy]
epsilon = 1e6
delta = 1e-7
model = "MODEL"
[files]
store = "STORE"
[serve]
rate = 1000000
window = {WINDOW}
jwks = "people.json"
audience = "campaign"
person_rate = 1000000
"""
_KEY = b"whoever has this is anybody, here"
KINDS = {
    "on-policy": ("ucbvi", "joint", 10**6),
    "any policy": ("policy_improvement", "joint", 10**6),
    "mixed": ("concurrent_psrl", "joint", 10**6),
    "counter": ("concurrent_psrl:running=0", "joint", 500 * BLOCK),
    "local": ("ucbvi", "local", 10**6),
}
"""Agents of the campaign: name, model, declared users."""

# What every process needs is loaded here, before it is begun: most of a start.
_world = tacit.tabular.riverswim(3, 3)
_agent = tacit.UCBVI(_world.spec, 100_000, tacit.JointDP(1.0, 1e-7), schedule="fixed:size=20")


def app_text(agent: str, model: str, users: int, store: str) -> str:
    """The file of an app; its noise is negligible, so that sums can be compared."""
    given = {"AGENT": agent, "MODEL": model, "USERS": str(users), "STORE": store}
    given["POOLED"] = "true" if model == "local" else "false"  # then sizes of reports differ
    text = APP
    for word, value in given.items():
        text = text.replace(word, value)
    return text


def write_app(file: Path, text: str) -> None:
    """An app beside the key that signs its people's tokens."""
    key = jwt.algorithms.HMACAlgorithm.to_jwk(_KEY, as_dict=True) | {"kid": "campaign"}
    (file.parent / "people.json").write_text(json.dumps({"keys": [key]}))
    file.write_text(text)


def token_of(user: str) -> str:
    """A person's own token."""
    said = {"sub": user, "aud": "campaign", "exp": int(time.time()) + 10 * 365 * 86400}
    return jwt.encode(said, _KEY, "HS256", headers={"kid": "campaign"})


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        return int(made.getsockname()[1])


def until(what: Callable[[], bool], seconds: float) -> bool:
    """Waits until something is so; whether it is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.03)
    return False


# A process, as it begins.


class Clock:
    """A clock that others may set: a file with the seconds by which it is off."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("d", 0.0))
        with path.open("r+b") as file:
            self._held = mmap.mmap(file.fileno(), 8)

    def set(self, offset: float) -> None:
        """Moves it."""
        self._held[:8] = struct.pack("d", offset)

    def offset(self) -> float:
        """By how much it is off."""
        return float(struct.unpack("d", self._held[:8])[0])


def begin(clock: Path, twist: str, log: str) -> None:
    """Makes this process one of a machine with its own clock, and a twisted plan."""
    own, real = Clock(clock), time.time
    time.time = lambda: real() + own.offset()
    logging.basicConfig(filename=log, level=logging.INFO, format="%(message)s")
    warnings.simplefilter("ignore")
    if twist:
        from tacit.tabular.ucbvi import UCBVI

        UCBVI.plan = _twisted(UCBVI.plan, twist)  # type: ignore[method-assign]


def _twisted(plan: Any, twist: str) -> Any:
    calls = [0]

    def twisted(self: Any, state: Any, last: Any, *args: Any) -> Any:
        calls[0] += last is not None
        if twist == "raises" and last is not None and calls[0] % 2:
            raise ZeroDivisionError
        if twist == "long":
            time.sleep(0.5)
        if twist == "killed" and last is not None and random.random() < 0.3:  # noqa: S311
            os.kill(os.getpid(), signal.SIGKILL)  # between the two commits
        return plan(self, state, last, *args)

    return twisted


def serve(file: str, where: tuple[str, int], clock: Path, twist: str, log: str) -> None:
    """A process of the service."""
    begin(clock, twist, log)
    os.environ["TACIT_SERVE_FILE"] = file
    none: dict[str, Any] = {"proxy_headers": False, "server_header": False, "log_config": None}
    uvicorn.run(worker(), host=where[0], port=where[1], http=Door, access_log=False, **none)


class Servers:
    """Two processes that serve, and a nightly job; whoever ends is begun again.

    Args:
        files: Of the app, one for each server; in the folder of the first are logs and clocks.
        counts: Of what happened.
        twist: What a plan does; see :func:`begin`.
    """

    def __init__(self, files: list[Path], counts: Counter[str], twist: str = "") -> None:
        self._files, self._counts, self._twist = files, counts, twist
        self._folder = files[0].parent
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["research.campaign.clients"])
        self.log = self._folder / "log"
        self.places = [("127.0.0.1", free_port()) for _ in files]
        self.clocks = [Clock(self._folder / f"clock{k}") for k in range(3)]
        self.processes: list[Any] = [self._server(0), self._server(1)]
        self._nightly: tuple[Any, ...] = ()

    @property
    def addresses(self) -> list[str]:
        """Of the two."""
        return [f"http://{host}:{port}" for host, port in self.places]

    def _server(self, place: int) -> Any:
        clock = self._folder / f"clock{place}"
        given = os.fspath(self._files[place]), self.places[place], clock, self._twist
        return self._process(serve, (*given, os.fspath(self.log)))

    def _process(self, target: Any, args: tuple[Any, ...]) -> Any:
        made = self._context.Process(target=target, args=args, daemon=True)
        made.start()
        return made

    def add(self, target: Any, *args: Any) -> None:
        """The nightly job: a third process, that is begun again, too."""
        self._nightly = target, args
        self.processes.append(self._process(target, args))

    def again(self, place: int) -> None:
        """Begins a process that has ended."""
        process = self.processes[place]
        process.kill()
        process.join()
        process.close()
        new = self._server(place) if place < 2 else self._process(*self._nightly)
        self.processes[place] = new

    def revive(self) -> bool:
        """Begins all that ended by themselves."""
        for place, process in enumerate(self.processes):
            if not process.is_alive():
                self._counts["kills"] += process.exitcode == -signal.SIGKILL
                self._counts["own ends"] += process.exitcode != -signal.SIGKILL
                self.again(place)
        return True

    def end(self, place: int, how: int = signal.SIGKILL) -> None:
        """Ends a process, and begins it again."""
        process = self.processes[place]
        self._counts["kills" if how == signal.SIGKILL else "ended"] += 1
        self._counts["leaders"] += how == signal.SIGKILL and place < 2 and self.leads(place)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, how)
        process.join(30.0)
        self.again(place)

    def stop(self, place: int, seconds: float) -> None:
        """Stops a process for a while: it does not know, and wakes up in another world."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.processes[place].pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(self.processes[place].pid, signal.SIGCONT)

    def leads(self, place: int) -> bool:
        """Whether a process computes."""
        return "tacit_leader 1" in self.asked(place, "/metrics")

    def asked(self, place: int, path: str) -> str:
        """What a process answers without a token; "" if it does not."""
        with contextlib.suppress(OSError, ValueError):
            address = self.addresses[place] + path
            with urllib.request.urlopen(address, timeout=1.0) as answer:  # noqa: S310
                return str(answer.read().decode())
        return ""

    def ready(self, place: int, seconds: float = 120.0) -> bool:
        """Waits until a process serves."""

        def well() -> bool:
            self.revive()
            return bool(self.asked(place, "/healthz"))

        return place > 1 or until(well, seconds)

    def close(self) -> None:
        """Ends all."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        for process in self.processes:
            process.join(30.0)
            process.kill()
            process.join()
            process.close()
        self.processes = []


# Databases, and their disks.


class Disk:
    """A small disk, that can be full; None can be made where only an owner may mount one."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        command = f"mount -t tmpfs -o size={size},mode=755 tmpfs".split()
        command.append(os.fspath(folder))
        self.small = subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603

    def fill(self, seconds: float) -> None:
        """Lets nothing be written for a while."""
        balloon = self.folder / "balloon"
        with contextlib.suppress(OSError), balloon.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))
        time.sleep(seconds)
        balloon.unlink()

    def close(self) -> None:
        """Takes it away."""
        if self.small:
            subprocess.run(["umount", "-l", self.folder], check=False)  # noqa: S603, S607


class Postgres:
    """A server of our own."""

    def __init__(self, folder: Path) -> None:
        from pgserver import postgres_server

        self._server: Any = postgres_server.get_server(folder, cleanup_mode="delete")
        self.address = str(self._server.get_uri())

    def crash(self, rng: random.Random) -> None:
        """It is gone at once, without a word, and comes back; or one of its own processes is."""
        with contextlib.suppress(Exception):
            parent = self._server.get_postmaster_info().process
            if rng.random() < 0.5:
                rng.choice(parent.children()).kill()
                time.sleep(0.2)
            else:
                parent.send_signal(signal.SIGQUIT)  # as after a crash, its log is replayed
                parent.wait(10.0)
                time.sleep(rng.uniform(0.1, 1.0))
        self.ensure()

    def ensure(self) -> None:
        """Begins it, if it ended."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        """Ends it."""
        with contextlib.suppress(Exception):
            self._server.cleanup()


@contextlib.contextmanager
def place(database: str) -> Iterator[tuple[Path, str, Postgres | None, Disk]]:
    """A folder, a store in it, the database that can be killed, and a disk that can be full."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "disk").mkdir()
        disk = Disk(folder / "disk", "32m" if database == "sqlite" else "512m")
        stack.callback(disk.close)
        if database == "sqlite":
            yield folder, os.fspath(folder / "disk" / "app.db"), None, disk
            return
        postgres = Postgres(folder / "disk" / "pg")
        stack.callback(postgres.close)
        yield folder, postgres.address, postgres, disk
