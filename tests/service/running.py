"""A service that listens on this machine, in a thread of the test."""

import contextlib
import socket
import threading
import time

import uvicorn

from tacit.service.client import Client
from tacit.service.entrance import Door
from tacit.service.http import Service, create
from tacit.service.tokens import new_token
from tests.service.people import Device


class Running:
    def __init__(self, app, tools=None):
        self.service = Service(app)
        self.tokens = {
            r: new_token(self.service.store, r) for r in ("device", "curator", "officer")
        }
        self.service.watch()
        self._clients = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        made = uvicorn.Config(
            create(self.service, tools),
            log_level="critical",
            access_log=False,
            ws="none",
            http=Door,
            proxy_headers=False,
            limit_concurrency=2000,
        )
        self.server = uvicorn.Server(made)
        self._thread = threading.Thread(target=self.server.run, args=([self._socket],))
        self._thread.start()

    def client(self, role="device", token=None):
        kind = Device if token is None and role == "device" else Client
        self._clients.append(kind(self.address, self.tokens[role] if token is None else token))
        return self._clients[-1]

    def wait(self, what, seconds=600.0):
        """Until the state is as wanted: a bound against hanging, and nothing that is measured."""
        client, end = self.client("curator"), time.monotonic() + seconds
        while time.monotonic() < end:
            state = client.get("/v1/state")
            if what(state):
                client.close()
                self.service.watch()  # so that what is asked for next is from then
                return state
            time.sleep(0.02)
        raise AssertionError(f"it did not happen: {state}")

    def closes(self, what):
        """As ``wait``, while nobody is waited for who has a place: no test hangs on a clock."""
        intake = self.service.loop._agent.intake  # of the thread that closes blocks
        window, intake.window = intake.window, 0.0
        try:
            return self.wait(what)
        finally:
            intake.window = window

    def close(self):
        for client in self._clients:
            client.close()
        self.server.should_exit = True
        self._thread.join()


@contextlib.contextmanager
def running(app, tools=None):
    made = Running(app, tools)
    try:
        yield made
    finally:
        made.close()
