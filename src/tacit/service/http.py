"""What answers requests: devices, curators and officers, over HTTP with an OpenAPI description.

Policies are read from memory. Each process looks at the database a few times a second, and at once
after what it did itself, so a new version serves everywhere within that time; a device that read
the old one meanwhile is told that it is retired.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from tacit.service.app_file import App
from tacit.service.curator import Curator, Loop, form_of, rules_of
from tacit.service.intake import Answer, Intake, arrival, clock, forget
from tacit.service.schema import COMMAND, EPISODE, FORGET, REPORT, answers
from tacit.service.store import Store, StoreGone, hashed, ticket

if TYPE_CHECKING:
    from tacit.service import pages

_CODES = {
    "waiting": 202,
    "counted": 200,
    "retired": 409,
    "refused": 409,
    "late": 409,
    "ended": 410,
    "forgotten": 410,
    "unknown": 422,
    "stopped": 503,
}
_WORDS = {
    "waiting": "taken: it counts with the rest of its block",
    "counted": "taken: its block was released",
    "retired": "not taken: another version serves, or its block is being released; read the policy",
    "refused": "not taken: this user has as many episodes as were declared, or one in this block",
    "late": "not taken: its reward window has closed",
    "ended": "not taken: all users who were declared have come",
    "forgotten": "not taken: this event was forgotten, as its user asked",
    "unknown": "not taken: no such version was published here, or the ticket is of another one",
    "stopped": "not taken: the service was stopped by its curator",
}
_MOST_CALLERS = 10_000


@dataclass(frozen=True)
class Seen:
    """What a process last saw of the database."""

    serving: Mapping[str, Any]
    body: bytes
    etag: str
    tokens: Mapping[str, tuple[str, str]]  # by name: role, digest
    facts: Mapping[str, Any]


class Service:
    """One process: its intake, its watch, its turn at leading."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.store = Store(app.database, patience=60.0)
        plain = app.agent(files=False)
        self.form, self.spec = form_of(plain), plain.spec
        self.curator = Curator(app, self.store)
        self.requests: Counter[int] = Counter()
        self.rules = rules_of(plain)
        self.intake = Intake(self.store, self.rules, self._came)
        self._rates: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        self._ended, self._watching = threading.Event(), threading.Lock()
        self.reachable = True
        self.seen = self._look()
        self.loop = Loop(self.curator, self.watch)
        self._watcher = threading.Thread(target=self._watch, name="tacit-watch", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """Answers those who are here, and lets another process lead."""
        self._ended.set()
        self.intake.close()
        self.loop.close()
        self._watcher.join(timeout=10.0)
        self.store.close_all()

    # What serves.

    def _came(self) -> None:
        self.loop.wake()

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self.watch()
        self.store.close()

    def watch(self) -> None:
        """Looks at the database."""
        # One at a time: a thread that was slow must not bring back what it saw before others.
        with self._watching:
            try:
                serving = self.store.serving()
                self.reachable = True
                if serving["revision"] != self.seen.serving["revision"]:
                    self.seen = self._look()
            except StoreGone:
                self.reachable = False

    def _look(self) -> Seen:
        serving = self.store.serving()
        rows = self.store.ask(
            "SELECT body, etag FROM policies WHERE version = ?", (serving["version"],)
        )
        body, etag = (bytes(rows[0][0]), rows[0][1]) if rows else (b"", "")
        tokens = self.store.ask("SELECT name, role, digest FROM tokens WHERE revoked = 0")
        by_name = {name: (role, digest) for name, role, digest in tokens}
        return Seen(serving, body, f'"{etag}"', by_name, json.loads(serving["facts"]))

    # Who asks.

    def entitled(self, request: Request, *roles: str) -> str:
        """The name of a caller's token, which must have one of these roles."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        role = self.role_of(token) if kind.lower() == "bearer" else None
        if role is None:
            raise HTTPException(401, "a token is needed", {"WWW-Authenticate": "Bearer"})
        name = token.split("-", 3)[2]
        self.slow_down(name, request)
        if role not in roles:
            raise HTTPException(403, f"this is for {' and '.join(roles)}")
        return name

    def role_of(self, token: str) -> str | None:
        """The role of a token; the same work whether there is such a token or not."""
        parts = token.split("-", 3)
        name, secret = (parts[2], parts[3]) if len(parts) == 4 else ("", token)
        role, digest = self.seen.tokens.get(name, ("", "0" * 32))
        mine = hashed(self.seen.serving["secret"], "token", secret)
        return role or None if hmac.compare_digest(mine.encode(), digest.encode()) else None

    def slow_down(self, name: str, request: Request) -> None:
        """So many requests a second, of a token from one address."""
        rate = self.app.serving.rate
        key = (name, request.client.host if request.client else "")
        now = time.monotonic()
        left, at = self._rates.pop(key, (2.0 * rate, now))
        left = min(2.0 * rate, left + rate * (now - at))
        self._rates[key] = (max(left - 1.0, 0.0), now)
        if len(self._rates) > _MOST_CALLERS:
            self._rates.popitem(last=False)
        if left < 1.0:
            raise HTTPException(429, "slower, please", {"Retry-After": "1"})

    async def body(self, request: Request) -> dict[str, Any]:
        """What was sent, as an object."""
        sent = await self.sent(request)
        try:
            found = json.loads(sent)
        except (ValueError, RecursionError):
            raise HTTPException(422, "this is no JSON") from None
        if not isinstance(found, dict):
            raise HTTPException(422, "this is no JSON object")
        return found

    async def sent(self, request: Request) -> bytes:
        """What was sent, if it is not too long, and came in time."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.app.serving.seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.app.serving.body:
                        raise HTTPException(413, f"at most {self.app.serving.body} bytes")
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, "it took too long to come", {"Connection": "close"}) from None
        return b"".join(parts)

    async def take(self, request: Request, kind: str) -> Response:
        """A device's episode or report."""
        self.entitled(request, "device")
        body = await self.body(request)
        # What devices report is of the version that serves; who followed an older one is told so.
        size = self.seen.facts["local"].get("size", 0) if self.seen.facts else self.form.size
        old, report = body.get("version"), body.get("report")
        if type(old) is int and 0 <= old < self.seen.serving["version"] and self.rules.masked:
            size = len(report) if isinstance(report, list) else size
        wrong = (
            self.form.fits(body, size)
            if (kind == "report") == bool(self.form.size)
            else f"this service takes {'reports' if self.form.size else 'episodes'}"
        )
        wrong = wrong or _mistake(body)
        if wrong:
            raise HTTPException(422, wrong)
        window = self.app.serving.window
        coming = arrival(self.seen.serving, self.form, body, window, clock())
        if isinstance(coming, str):
            return told(Answer(coming, version=self.seen.serving["version"]))
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Answer | None] = loop.create_future()

        def answered(answer: Answer | None) -> None:
            loop.call_soon_threadsafe(_set, found, answer)

        if not self.intake.put(coming, answered):
            raise HTTPException(503, "too many at once: send it again", {"Retry-After": "1"})
        answer = await found
        if answer is None:
            raise HTTPException(
                503, "it is not known whether it was taken: send it again", {"Retry-After": "1"}
            )
        return told(answer)


def _set(found: asyncio.Future[Answer | None], answer: Answer | None) -> None:
    if not found.done():
        found.set_result(answer)


def told(answer: Answer) -> Response:
    """An answer as a response."""
    content: dict[str, Any] = {"status": answer.status, "accepted": answer.accepted}
    content["words"] = _WORDS[answer.status]
    if answer.block >= 0:
        content["block"] = answer.block
    if answer.version >= 0:
        content["version"] = answer.version
    return JSONResponse(content, _CODES[answer.status])


def _mistake(body: Mapping[str, Any]) -> str:
    for name in ("user", "event"):
        text = body.get(name)
        if not isinstance(text, str) or not 0 < len(text) <= 200:
            return f"{name} must be a text of at most 200 letters"
    if type(body.get("version")) is not int:
        return "version must be a whole number"
    if not isinstance(body.get("ticket"), (str, type(None))):
        return "ticket must be a text"
    return ""


class Counted:
    """Counts answers by their codes, and says what a browser must not do with a page."""

    def __init__(self, app: Any, counts: Counter[int]) -> None:
        self._app, self._counts = app, counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request."""

        async def counting(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._counts[message["status"]] += 1
                held = {name for name, _ in message["headers"]}
                more = [header for header in _HEADERS if header[0] not in held]
                message["headers"] = [*message["headers"], *more]
            await send(message)

        await self._app(scope, receive, counting if scope["type"] == "http" else send)


_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'",
    ),
)


def create(service: Service, tools: pages.Tools | None = None) -> FastAPI:
    """The application: devices, curators, officers, pages, and what watches the service."""
    from tacit.service import pages

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    app = FastAPI(
        title="Tacit",
        version="1",
        description="Policies out, episodes or reports in. See docs/service.md.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=life,
    )

    @app.exception_handler(StoreGone)
    async def gone(request: Request, error: StoreGone) -> Response:
        return JSONResponse({"detail": "the database does not answer"}, 503, {"Retry-After": "1"})

    app.add_middleware(Counted, counts=service.requests)
    if service.app.serving.origins:
        # Tokens come in a header, never by a cookie: no origin gets more than it was given.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=service.app.serving.origins.split(),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "If-None-Match"],
            expose_headers=["ETag", "Tacit-Version", "Tacit-Ticket"],
        )
    _devices(app, service)
    _curators(app, service)
    _watchers(app, service)
    pages.add(app, service, tools)
    described = app.openapi()
    described["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return app


def _devices(app: FastAPI, service: Service) -> None:
    @app.get("/v1/policy", responses=answers(200, 304, 401, 403, 429, 503), tags=["device"])
    async def policy(request: Request) -> Response:
        """The policy that serves, with a ticket; 304 if the ETag is the same."""
        service.entitled(request, "device", "curator")
        seen = service.seen
        if seen.serving["stopped"] or not seen.body:
            raise HTTPException(503, "stopped", {"Retry-After": "30"})
        version = seen.serving["version"]
        headers = {
            "ETag": seen.etag,
            "Tacit-Version": str(version),
            "Tacit-Ticket": ticket(seen.serving["secret"], version, clock()),
            "Cache-Control": "no-cache",
        }
        if request.headers.get("if-none-match") == seen.etag:
            return Response(status_code=304, headers=headers)
        return Response(seen.body, headers=headers, media_type="application/json")

    @app.get("/v1/policies/{version}", responses=answers(200, 401, 403, 404, 429, 503))
    async def one_policy(request: Request, version: int) -> Response:
        """A version, which never changes."""
        service.entitled(request, "device", "curator", "officer")
        rows = await asyncio.to_thread(
            service.store.ask,
            "SELECT body, etag FROM policies WHERE version = ?",
            (min(max(version, -1), 2**62),),
        )
        if not rows:
            raise HTTPException(404, "no such version was published")
        headers = {
            "ETag": f'"{rows[0][1]}"',
            "Cache-Control": "private, immutable, max-age=31536000",
        }
        return Response(bytes(rows[0][0]), headers=headers, media_type="application/json")

    @app.get("/v1/task", responses=answers(200, 401, 403, 429), tags=["device"])
    async def task(request: Request) -> dict[str, Any]:
        """What a device needs to know besides: sizes, labels, the guarantee, what to report."""
        service.entitled(request, "device", "curator", "officer")
        spec, facts = service.spec, service.seen.facts
        return {
            "horizon": spec.horizon,
            "states": spec.state_labels or spec.states,
            "actions": spec.action_labels or spec.actions,
            "model": "local" if service.form.size else "joint",
            "window": service.app.serving.window,
            "guarantee": facts.get("guarantee", ""),
            "report": facts.get("local") or None,
            "question": (facts.get("local") or {}).get("question"),
        }

    codes = (200, 202, 401, 403, 408, 409, 410, 413, 422, 429, 503)

    @app.post("/v1/episodes", responses=answers(*codes), openapi_extra=EPISODE, tags=["device"])
    async def episode(request: Request) -> Response:
        """One user's episode. Idempotent by event id: send it again if no answer came."""
        return await service.take(request, "episode")

    @app.post("/v1/reports", responses=answers(*codes), openapi_extra=REPORT, tags=["device"])
    async def report(request: Request) -> Response:
        """One user's noisy report, under local DP."""
        return await service.take(request, "report")


def _curators(app: FastAPI, service: Service) -> None:
    codes = (200, 401, 403, 408, 413, 422, 429, 503)

    @app.post("/v1/forget", responses=answers(*codes), openapi_extra=FORGET, tags=["curator"])
    async def forget_user(request: Request) -> dict[str, Any]:
        """Erases what waits of a user, and says what remains, and why."""
        service.entitled(request, "curator")
        body = await service.body(request)
        user = body.get("user")
        if not isinstance(user, str) or not 0 < len(user) <= 200:
            raise HTTPException(422, "user must be a text of at most 200 letters")
        return await asyncio.to_thread(forgotten, service, user)

    @app.post("/v1/commands", responses=answers(*codes), openapi_extra=COMMAND, tags=["curator"])
    async def command(request: Request) -> dict[str, Any]:
        """Serve or pin a version, unpin, stop, start."""
        name = service.entitled(request, "curator")
        body = await service.body(request)
        what, version = body.get("what"), body.get("version", -1)
        if what not in COMMANDS or type(version) is not int or not -1 <= version < 2**62:
            raise HTTPException(422, f"what must be one of {', '.join(COMMANDS)}")
        return await asyncio.to_thread(ask_for, service, what, version, name)

    @app.get("/v1/state", responses=answers(200, 401, 403, 429, 503), tags=["curator"])
    async def state(request: Request) -> dict[str, Any]:
        """Public numbers: who serves, how many came, what was spent."""
        service.entitled(request, "curator", "officer")
        return await asyncio.to_thread(public_state, service)


COMMANDS = ("serve", "pin", "unpin", "stop", "start")


def ask_for(service: Service, what: str, version: int, by: str) -> dict[str, Any]:
    """Notes a command; the leader obeys. To stop needs no leader."""
    state = "asked" if what in ("serve", "pin", "unpin") else "done"
    with service.store.change() as change:
        change.ask(
            "INSERT INTO commands (what, version, by_whom, at, state, answer) "
            "VALUES (?, ?, ?, ?, ?, '')",
            (what, version, by, clock(), state),
        )
        change.put(**({"stopped": int(what == "stop")} if state == "done" else {}))
    service.watch()
    service.loop.wake()
    return {"what": what, "version": version, "state": state}


REMAINS = (
    "What was released stays: sums over whole blocks with noise, and the policies made of them. "
    "They are covered by the guarantee: whoever reads them learns almost nothing of any one user, "
    "whether she took part with these data or with others. Her raw data was erased when her block "
    "was released. A keyed hash of her id stays, so that she is not counted too often."
)
_SEALED = (
    "An episode of hers is in a block that is being released, which cannot be undone. Her raw data "
    "is still here, until the block is released: ask again then."
)
_ERASED = (
    "What waited of her was erased. A keyed hash of each event stays without her name, so that the "
    "same event is not taken when it is sent again."
)
_NOBODY = "No episode of hers is here, or one that was forgotten: a keyed hash of its event alone."
_LOG = (
    "What was erased is overwritten in the database, and still in its write-ahead log, as somebody "
    "reads the database: ask again."
)
_POSTGRES = (
    "PostgreSQL keeps what was erased in its files, its write-ahead log and its replicas until it "
    "overwrites it."
)


def forgotten(service: Service, user: str) -> dict[str, Any]:
    """Erases what waits of a user, and says what is true of the rest."""
    found: dict[str, Any] = dict(forget(service.store, user))
    found["erased"] = service.store.tidy()
    service.watch()
    words = [
        _ERASED if found["removed"] else "",
        _SEALED if found["in_release"] else "",
        REMAINS if found["released"] else "",
    ]
    words = [*filter(None, words)] or [_NOBODY]
    if not found["erased"]:
        words.append(_POSTGRES if service.store.postgres else _LOG)
    return found | {"remains": " ".join(words)}


def public_state(service: Service) -> dict[str, Any]:
    """Public numbers of the service."""
    serving = service.store.serving()
    names = ("version", "newest", "block", "room", "waiting", "served", "ledger_line")
    found = {name: serving[name] for name in names}
    found |= {name: bool(serving[name]) for name in ("pinned", "stopped")}
    facts = json.loads(serving["facts"])
    told = ("guarantee", "spent", "limit", "users", "monitoring")
    rest = {name: facts.get(name) for name in told}
    return (
        found | rest | {"ledger_head": serving["ledger_head"], "problem": service.curator.problem}
    )


def _watchers(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["watch"])
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @app.get("/readyz", responses=answers(200, 503), tags=["watch"])
    async def ready() -> Response:
        """Whether it can serve, and take users."""
        seen = service.seen
        problem = service.curator.problem or ("" if seen.body else "no policy was published yet")
        problem = problem if service.reachable else "the database does not answer"
        if seen.serving["stopped"]:
            problem = "stopped"
        content = {"status": "ready" if not problem else "not ready", "problem": problem}
        return JSONResponse(content, 503 if problem else 200)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["watch"])
    async def metrics() -> Response:
        """For Prometheus; public facts alone."""
        return Response(measured(service), media_type="text/plain; version=0.0.4")


def measured(service: Service) -> str:
    """Public facts in the form that Prometheus reads."""
    serving, facts = service.seen.serving, service.seen.facts
    gauges = {
        "version": ("policy that serves", serving["version"]),
        "users_served": ("users in released blocks", serving["served"]),
        "users_declared": ("users who may come in all", facts.get("users", 0)),
        "blocks_released": ("blocks through the gate", facts.get("blocks", 0)),
        "epsilon_spent": ("of the user who spent most", facts.get("spent", 0.0)),
        "epsilon_limit": ("of any user", facts.get("limit", 0.0)),
        "ledger_line": ("last line that was published after", serving["ledger_line"]),
        "pinned": ("whether a version is pinned", serving["pinned"]),
        "stopped": ("whether the service is stopped", serving["stopped"]),
        "leader": ("whether this process leads", int(service.curator.leads)),
        "problem": ("whether the curator's loop is in trouble", int(bool(service.curator.problem))),
    }
    lines = []
    for name, (words, value) in gauges.items():
        lines += [f"# HELP tacit_{name} {words}", f"# TYPE tacit_{name} gauge"]
        lines.append(f"tacit_{name} {value}")
    lines += ["# HELP tacit_requests_total answers", "# TYPE tacit_requests_total counter"]
    counts = sorted(service.requests.items())
    lines += [f'tacit_requests_total{{code="{code}"}} {count}' for code, count in counts]
    return "\n".join(lines) + "\n"
