"""The way in: connections that send too little or too slowly end, and every answer is counted."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tacit.service.facts import trouble
from tacit.service.identity import client_of, networks
from tacit.store.store import StoreGone

# Whether an outcome came is a person's data, and so is how many decisions there were.
_UNCOUNTED = ("/v1/decisions", "/v1/outcomes")
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds, for the histogram of how long answers took."""
_MOST_WAITING = 512
"""Connections that may be silent at once; the oldest of more than these ends."""
_HEAD, _ANSWER = 1 << 16, 120  # bytes before a request is whole, and seconds to take an answer
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n"


class Door(HttpToolsProtocol):
    """A connection: a time for the head of a request, for all of it, and for its answer."""

    seconds: ClassVar[float] = 10.0
    waiting: ClassVar[OrderedDict[int, Door]] = OrderedDict()
    _timer: Any = None
    _head: int | None = 0  # bytes of a head that is not whole

    def _phase(self, seconds: float, *, silent: bool = True) -> None:
        """Ends this connection unless the next thing happens in time."""
        self._stop()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end)
        if silent:
            self.waiting[id(self)] = self
        if len(self.waiting) > _MOST_WAITING:
            next(iter(self.waiting.values()))._end()

    def _stop(self) -> None:
        self.waiting.pop(id(self), None)
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        self._stop()
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self._phase(self.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """And is gone."""
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Part of a request; a head that is too long is not kept."""
        if self._head is not None:
            if self._head > _HEAD:
                self.transport.write(_TOO_LONG)
                self.transport.close()
                return
            self._head += len(data)
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The head of a request is here."""
        self._head = None
        # A body that does not come is told so before this.
        self._phase(2.0 * self.seconds)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """A request is here."""
        super().on_message_complete()
        if self.cycle is not None and not self.cycle.response_complete:
            self._phase(_ANSWER, silent=False)

    def on_response_complete(self) -> None:
        """An answer is sent, and the next request may come."""
        self._head = 0
        self._phase(self.seconds)
        super().on_response_complete()


class Counted:
    """Counts answers and how long they took, and says what a browser must not do with a page.

    Functions of a request alone, by method and path, are called at once, others by the framework.
    """

    def __init__(self, app: Any, service: Any, direct: Mapping[tuple[str, str], Any]) -> None:
        self._app, self._counts, self._seconds = app, service.requests, service.seconds
        self._direct, proxies = direct, networks(service.app.serving.proxies)
        self._client = lru_cache(_MOST_WAITING)(lambda *hops: client_of(hops, proxies))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, started = time.perf_counter(), False
        self._see(scope)
        headers = [*_HEADERS, *([_ONLY_TLS] if scope["scheme"] == "https" else [])]

        async def counting(message: Any) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start" and scope["path"] in _UNCOUNTED:
                message["headers"] = [*message["headers"], *headers]
            elif message["type"] == "http.response.start":
                took = time.perf_counter() - begun
                self._counts[message["status"]] += 1
                self._seconds[bisect.bisect_left(BOUNDS, took)] += 1
                self._seconds[-1] += took
                held = {name for name, _ in message["headers"]}
                more = [header for header in headers if header[0] not in held]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        try:
            answer = self._app
            if (direct := self._direct.get((scope["method"], scope["path"]))) is not None:
                answer = await direct(Request(scope, receive))
            await answer(scope, receive, counting)
        except Exception as error:
            if not isinstance(error, (HTTPException, StoreGone)):
                # Whoever catches it next would write its message, which may hold values.
                trouble(scope["path"].partition("/v1/policies")[0] or "policies", error)
            if not started:
                await refused(None, error)(scope, receive, counting)

    def _see(self, scope: Any) -> None:
        """Puts the address and the scheme of whoever asks in place of a proxy's."""
        said: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            if name.startswith(b"x-forwarded-"):
                said.setdefault(name, []).append(value.decode("latin-1"))
        peer, port = scope["client"] or ("", 0)
        hops = [*",".join(said.get(b"x-forwarded-for", [])).split(","), peer]
        if self._client("0.0.0.0", peer) == "0.0.0.0":  # noqa: S104
            # Whoever declares proxies has TLS in front of them, unless they say otherwise.
            plain = said.get(b"x-forwarded-proto", ["https"])[-1].strip().lower() == "http"
            scope["scheme"] = "http" if plain else "https"
        scope["client"] = (self._client(*hops), port)


def refused(_: object, error: Exception) -> Response:
    """Answer to a request that raised this."""
    if isinstance(error, HTTPException):
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
    if isinstance(error, StoreGone):
        return JSONResponse({"detail": "the database does not answer"}, 503, {"Retry-After": "1"})
    return JSONResponse({"detail": "this failed"}, 500)


_ONLY_TLS = (b"strict-transport-security", b"max-age=31536000")
_CSP = b"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", _CSP),
)
