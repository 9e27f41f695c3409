"""What answers requests: devices, curators and officers, over HTTP with an OpenAPI description.

Policies are read from memory. Each process looks at the store a few times a second, and at once
after what it did itself, so a new version serves everywhere within that time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import secrets
import threading
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute
from sqlalchemy import update
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from tacit.privacy.errors import InvalidArgument, TacitError, TacitWarning
from tacit.service.app_file import App
from tacit.service.entrance import BOUNDS, Counted, Door, refused
from tacit.service.facts import asked_of_devices, note, public_state, trouble
from tacit.service.identity import Caller, Identity
from tacit.service.intake import Arrival, Coming, Intake, form_of
from tacit.service.leader import Loop
from tacit.service.schema import DESCRIBED, answers, parsed
from tacit.service.sealing import public_keys, signed, signing_keys
from tacit.service.tokens import Keys
from tacit.store import ledger
from tacit.store.runs import Answer
from tacit.store.schema import stores
from tacit.store.store import Conflict, StoreGone

if TYPE_CHECKING:
    from tacit.service import pages

_PACE = 0.1  # seconds: answers to shared tokens, which say nothing of anybody, are held so long
_MOST_CALLERS = 100_000
_PLACES = 4  # that a person takes in a window for each of her episodes; some are lost
_POLICIES = 4
_AGAIN = {"Retry-After": "1"}
_TICKET = re.compile(r"[\w.]+", re.ASCII)


@dataclass(frozen=True)
class Seen:
    """View of the store that a process caches."""

    run: Any
    policies: Mapping[int, tuple[bytes, str]]  # files and ETags of the last versions that served
    keys: Keys
    line: int  # of the ledger
    problems: tuple[str, ...]
    report: Mapping[str, Any] | None  # what devices report, under local DP


class Service:
    """One process: its intake, its watch, its turn at leading."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.store = app.open(patience=60.0)
        self.keys = signing_keys(app.signing, app.folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)
            # One takes users in and serves; one computes, which may take long.
            self.agent, computes = app.agent(self.store), app.agent(self.store)
        old = (replace(app, name=each, successor=False) for each in app.chain(self.store)[1:])
        self.agents = [self.agent, *(each.agent(self.store) for each in old)]  # the newest first
        self.form, self.spec = form_of(self.agent), self.agent.spec
        self.requests, self.told = Counter[int](), Counter[str]()  # answers by code and by fate
        self.answers = Counter[str]()  # by fate, to people's own tokens
        self.seconds = [0.0] * (len(BOUNDS) + 2)
        known = app.serving.identifies
        self.identity = Identity(app.folder, app.serving) if known else None
        Door.seconds = float(app.serving.seconds)
        self._rates: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._ended, self._watching = threading.Event(), threading.Lock()
        self._written = (-math.inf, "")
        self.reachable = True
        self.seen = self._look(None)
        self.loop = Loop(computes, self.watch, app.heir if app.successor else None)
        self.intake = Intake(self.agents, self.form)
        self._watcher = threading.Thread(target=self._watch, name="tacit-watch", daemon=True)
        self._watcher.start()
        note("started", version=self.seen.run.version)

    def close(self) -> None:
        """Answers those who are here, and lets another process lead."""
        self._ended.set()
        self.intake.close()
        self.loop.close()
        self._watcher.join(timeout=10.0)
        with contextlib.suppress(TacitError):
            self.agent.intake.flush()
        self.store.close()
        note("ended")

    # What serves.

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self.watch()
            if self.identity is not None:
                try:
                    self.identity.refresh()
                except Exception as error:  # whatever an issuer answers; the keys that we have stay
                    trouble("keys", error)

    def watch(self) -> None:
        """Looks at the store, and tells it which places were taken."""
        # One at a time: a thread that was slow must not bring back what it saw before others.
        with self._watching:
            try:
                self.agent.intake.flush()
                self.seen = self._look(self.seen)
                self.reachable = True
            except StoreGone:
                self.reachable = False
            except Exception as error:
                trouble("watch", error)
                self.reachable = False

    def _look(self, last: Seen | None) -> Seen:
        run, problems = self.agent.run_row(), tuple(self.agent.problems())
        if last is not None and run.succeeded and self.app.successor:
            self.agent = self.app.agent(self.store)
            run = self.agent.run_row()
            self.agents.insert(0, self.agent)
        kept, report = (dict(last.policies), last.report) if last is not None else ({}, None)
        if run.version not in kept:
            kept[run.version] = self.policy_body(run.version)
        if self.form.local and (last is None or last.run.epoch != run.epoch):
            report = asked_of_devices(self.agent.statistic, self.agent.privacy)
        with self.store.read() as db:
            keys, line = Keys(self.store, db), ledger.head(db)[0]
        newest = dict(sorted(kept.items())[-_POLICIES:]) | {run.version: kept[run.version]}
        return Seen(run, newest, keys, line, problems, report)

    def policy_body(self, version: int) -> tuple[bytes, str]:
        """The file of a version, and its ETag."""
        asked = self.agents if -1 < version < 2**62 else ()
        found = next(filter(None, (agent.policy_body(version) for agent in asked)), None)
        if found is None:
            raise HTTPException(404, f"version {version} was never published")
        if not self.keys:
            return found[0], f'"{found[1]}"'
        tail = "".join(key[:8] for key in public_keys(self.keys))
        return signed(found[0], self.keys), f'"{found[1]}.{tail}"'

    async def ticket(self) -> str:
        """A place in the block that fills; where that is full, in the next one, if there is one."""
        ticket = self.agent.intake.ticket()
        if not ticket and self.agent.intake.unwritten:
            await asyncio.to_thread(self.watch)
            ticket = self.agent.intake.ticket()
        return ticket

    def problem(self) -> str:
        """Why it cannot serve or take users, in public words; a write is tried."""
        if not self.reachable:
            return "the database does not answer"
        if self.seen.run.stopped:
            return "stopped"
        at, said = self._written
        if time.monotonic() - at > 1.0:
            said = "the database does not answer"
            with contextlib.suppress(StoreGone):
                with self.store.write() as db:
                    db.execute(update(stores).values(witness=stores.c.witness))
                said = ""  # it is on disk
            self._written = time.monotonic(), said
        return "; ".join(filter(None, (said, self.intake.problem, *self.seen.problems)))

    # Who asks.

    def entitled(self, request: Request, *roles: str) -> Caller:
        """Caller, who must have one of these roles."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        caller = self.caller(token) if kind.lower() == "bearer" else None
        if caller is None:
            self.slow_down("", request)
            raise HTTPException(401, "a token is needed", {"WWW-Authenticate": "Bearer"})
        self.slow_down(caller, request)
        if caller.role not in roles:
            raise HTTPException(403, f"this is for {' and '.join(roles)}")
        return caller

    def caller(self, token: str) -> Caller | None:
        """Bearer of a token, if it is somebody's."""
        role = self.seen.keys.role_of(token)
        if role is not None:
            return Caller(token.split("-", 3)[2], role)
        return self.identity.caller(token) if self.identity is not None else None

    def slow_down(self, who: Caller | str, request: Request) -> None:
        """So many requests a second: of a person, or of a shared token from one address."""
        rate, key = float(self.app.serving.rate), who if isinstance(who, str) else who.name
        key = f"{key} {request.client.host if request.client else ''}"
        if isinstance(who, Caller) and who.person:
            rate, key = float(self.app.serving.person_rate), f"person {who.name}"
        if not self._takes(key, rate, 2.0 * rate):
            raise HTTPException(429, "slower, please", {"Retry-After": "1"})

    def may_take_a_place(self, caller: Caller) -> bool:
        """Whether a person takes another place; whoever takes many leaves others without one."""
        most = float(_PLACES * self.seen.run.episodes)
        rate = most / self.app.serving.window
        return not (caller.person and most) or self._takes(f"place {caller.name}", rate, most)

    def _takes(self, key: str, rate: float, most: float) -> bool:
        """Takes one from what is left of so many, which come back at a rate, if one is left."""
        now = time.monotonic()
        left, at = self._rates.pop(key, (most, now))
        left = min(most, left + rate * (now - at))
        self._rates[key] = (left - 1.0 if left >= 1.0 else left, now)
        if len(self._rates) > _MOST_CALLERS:
            self._rates.popitem(last=False)
        return left >= 1.0

    def record(self, by: str, what: str, **facts: Any) -> None:
        """Adds what a curator or an officer did to the ledger; nothing of a user."""
        with self.store.write() as db:
            ledger.append(db, self.app.name, "staff", by=by, what=what, **facts)

    async def body(self, request: Request) -> dict[str, Any]:
        """Body of a request, as an object."""
        sent = await self.sent(request)
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(found := parsed(sent), dict):
                return found
        raise HTTPException(422, "this is no JSON object")

    async def sent(self, request: Request) -> bytes:
        """Body of a request, if it is not too long and came in time."""
        parts, size = [], 0
        try:
            async with asyncio.timeout(self.app.serving.seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > self.app.serving.body:
                        raise HTTPException(413, f"at most {self.app.serving.body} bytes")
                    parts.append(part)
        except (TimeoutError, ClientDisconnect):
            raise HTTPException(408, "it took too long to come", {"Connection": "close"}) from None
        return b"".join(parts)

    async def caught_up(self, version: int) -> None:
        """Looks again, if a device has seen a newer version than this process."""
        if version > self.seen.run.version:
            await asyncio.to_thread(self.watch)

    async def _size(self, body: Mapping[str, Any]) -> int:
        """How many numbers a report must have; of an older version, any: it comes too late."""
        version, report = _version_of(body["ticket"]), body.get("report")
        await self.caught_up(version)
        if version == self.seen.run.version and self.seen.report is not None:
            return int(self.seen.report["size"])
        return max(1, len(report)) if isinstance(report, list) else 1

    async def take(self, request: Request, kind: str) -> Response:
        """A device's episode or report."""
        caller = self.entitled(request, "device")
        body, begun = await self.body(request), time.monotonic()
        named = body.setdefault("user", caller.name) if caller.person else None
        if isinstance(named, str) and named != caller.name:
            raise HTTPException(403, "user must be who this token is of, or be left out")
        wanted = "reports" if self.form.local else "episodes"
        if (kind == "report") != self.form.local:
            raise HTTPException(422, f"this service takes {wanted}")
        apart = kind in ("decision", "outcome")
        if not (wrong := _mistake({"ticket": ""} | body if apart else body)):
            size = await self._size(body) if self.form.local else 0
            wrong = self.form.apart(body, kind) if apart else self.form.fits(body, size)
        if wrong:
            raise HTTPException(422, wrong)
        if not caller.person and (self.identity is not None or self.seen.run.stopped):
            return told(Answer("stopped")) if self.seen.run.stopped else _received(True)
        # A database may refuse letters that no ticket has.
        ticket = body["ticket"] if _TICKET.fullmatch(body.get("ticket", "")) else ""
        coming: Coming
        if apart:
            coming = self.form.late(body, ticket if kind == "decision" else None)
        else:
            coming = Arrival(body["user"], body["event"], ticket, self.form.pack(body))
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Answer | None] = loop.create_future()

        def answered(answer: Answer | None) -> None:
            loop.call_soon_threadsafe(_set, found, answer)

        if not self.intake.put(coming, answered):
            raise HTTPException(503, "too many at once: send it again", _AGAIN)
        answer = await found
        if answer is None:
            raise HTTPException(503, "it is not known whether it was taken: send it again", _AGAIN)
        if kind != "outcome":  # whether one came is a person's data
            self.told[answer.status] += 1
        if caller.person:
            # Not of shared tokens: who has one must not learn by metrics who took part.
            self.answers[answer.status] += kind != "outcome"
            return told(answer)
        # At random, too: whole tenths alone still told who took part.
        pause = _PACE * (1.0 + secrets.randbelow(1 << 20) / (1 << 21))
        await asyncio.sleep(pause - (time.monotonic() - begun) % _PACE)
        return _received(False)


def _version_of(ticket: str) -> int:
    """Version that a ticket says; -1 of what is none."""
    said = ticket.partition(".")[0]
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 18 else -1


def _set(found: asyncio.Future[Answer | None], answer: Answer | None) -> None:
    if not found.done():
        found.set_result(answer)


def _received(in_vain: bool) -> Response:
    """Answer to whoever has a shared token, always the same."""
    words = {"status": "received", "accepted": None, "words": DESCRIBED["received"][in_vain]}
    return JSONResponse(words, 202)


def told(answer: Answer) -> Response:
    """An answer as a response."""
    code, words = DESCRIBED["told"][answer.status]
    content = {"status": answer.status, "accepted": answer.accepted, "words": words}
    places = {"block": answer.block, "version": answer.version}
    return JSONResponse(content | {name: n for name, n in places.items() if n >= 0}, code)


def _mistake(body: Mapping[str, Any]) -> str:
    for name in ("user", "event"):
        text = body.get(name)
        if not isinstance(text, str) or not 0 < len(text) <= 200:
            return f"{name} must be a text of at most 200 letters"
    if not isinstance(body.get("ticket"), str) or len(body["ticket"]) > 300:
        return "ticket must be a text: the header Tacit-Ticket of the policy that was read"
    return ""


def create(service: Service, tools: pages.Tools | None = None) -> ASGIApp:
    """The application: devices, curators, officers, pages, and what watches the service."""
    from tacit.service import pages

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    about: Any = {"title": "Tacit", "version": "1", "docs_url": None, "redoc_url": None}
    about["description"] = "Policies out, episodes or reports in. See docs/service.md."
    about["redirect_slashes"] = False  # they would go to whatever host a request names
    app = FastAPI(openapi_url="/v1/openapi.json", lifespan=life, **about)

    app.add_exception_handler(StoreGone, refused)
    app.add_exception_handler(Exception, refused)
    _devices(app, service)
    _curators(app, service)
    _watchers(app, service)
    pages.add(app, service, tools)
    described = app.openapi()
    described["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    alone, direct = {"request": "Request", "return": "Response"}, dict[tuple[str, str], Any]()
    for route in app.routes:
        if isinstance(route, APIRoute) and route.endpoint.__annotations__ == alone:
            direct |= {(method, route.path): route.endpoint for method in route.methods or ()}
    counted: ASGIApp = Counted(app, service, direct)
    if not service.app.serving.origins:
        return counted
    # Tokens come in a header, never by a cookie: no origin gets more than it was given.
    headers = ["Authorization", "Content-Type", "If-None-Match"]
    told, origins = ["ETag", "Tacit-Version", "Tacit-Ticket"], service.app.serving.origins.split()
    return CORSMiddleware(counted, origins, ["GET", "POST"], headers, expose_headers=told)


def _devices(app: FastAPI, service: Service) -> None:
    codes: tuple[int, ...] = (200, 304, 401, 403, 422, 429, 503)

    @app.get(
        "/v1/policy", responses=answers(*codes), openapi_extra=DESCRIBED["place"], tags=["device"]
    )
    async def policy(request: Request) -> Response:
        """The policy that serves, with a ticket if there is a place for an episode in a block.

        304 if the ETag is the same; a new ticket comes with it only if ``place=1`` asks for one.
        """
        caller = service.entitled(request, "device")
        seen, place = service.seen, request.query_params.get("place", "0")
        if place not in ("0", "1"):
            raise HTTPException(422, "place must be 0 or 1")
        if seen.run.stopped:
            raise HTTPException(503, "stopped", {"Retry-After": "30"})
        version, asked = seen.run.version, request.headers.get("if-none-match")
        body, etag = seen.policies[version]
        headers = {"Tacit-Window": str(service.app.serving.window), "Cache-Control": "no-cache"}
        wanted = (place == "1" or asked != etag) and service.may_take_a_place(caller)
        if wanted and (ticket := await service.ticket()):
            headers["Tacit-Ticket"] = ticket
            if (version := _version_of(ticket)) != seen.run.version:
                body, etag = await asyncio.to_thread(service.policy_body, version)
        headers |= {"ETag": etag, "Tacit-Version": str(version)}
        if asked == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")

    @app.get("/v1/policies/{version}", responses=answers(200, 401, 403, 404, 429, 503))
    async def one_policy(request: Request, version: int) -> Response:
        """A version, which never changes."""
        service.entitled(request, "device", "curator", "officer")
        body, etag = await asyncio.to_thread(service.policy_body, version)
        headers = {"ETag": etag, "Cache-Control": "private, immutable, max-age=31536000"}
        return Response(body, headers=headers, media_type="application/json")

    @app.get("/v1/task", responses=answers(200, 401, 403, 429), tags=["device"])
    async def task(request: Request, version: int = -1) -> dict[str, Any]:
        """Schema for devices: sizes, labels, the guarantee, the statistic to report.

        With the version of the policy that was read, what is said is no older.
        """
        service.entitled(request, "device", "curator", "officer")
        await service.caught_up(version)
        spec, report, guarantee = service.spec, service.seen.report, service.agent.guarantee
        return {
            "horizon": spec.horizon,
            "states": service.form.features or spec.state_labels or spec.states,
            "actions": getattr(spec, "action_labels", None) or spec.actions,
            "model": "local" if service.form.local else "joint",
            "window": service.app.serving.window,
            "guarantee": guarantee.short if guarantee else "",
            "report": report,
            "question": (report or {}).get("question"),
        }

    codes = (200, 202, 401, 403, 408, 409, 410, 413, 422, 429, 503)
    for kind in ("episode", "report", "decision", "outcome"):
        given: dict[str, Any] = {"responses": answers(*codes), "openapi_extra": DESCRIBED[kind]}
        app.post(f"/v1/{kind}s", tags=["device"], **given)(_taking(service, kind))


def _taking(service: Service, kind: str) -> Any:
    async def taken(request: Request) -> Response:
        return await service.take(request, kind)

    return taken


def _curators(app: FastAPI, service: Service) -> None:
    codes = (200, 401, 403, 408, 413, 422, 429, 503)

    @app.post(
        "/v1/forget", responses=answers(*codes), openapi_extra=DESCRIBED["forget"], tags=["curator"]
    )
    async def forget_user(request: Request) -> dict[str, Any]:
        """Erases what waits of a user, and says what remains, and why."""
        caller = service.entitled(request, "curator")
        body = await service.body(request)
        user = body.get("user")
        if not isinstance(user, str) or not 0 < len(user) <= 200:
            raise HTTPException(422, "user must be a text of at most 200 letters")
        return await asyncio.to_thread(forgotten, service, user, caller.name)

    @app.post(
        "/v1/commands",
        responses=answers(*codes),
        openapi_extra=DESCRIBED["command"],
        tags=["curator"],
    )
    async def command(request: Request) -> dict[str, Any]:
        """Serve or pin a version, unpin, stop, start, or let what was tried go live."""
        name = service.entitled(request, "curator").name
        body = await service.body(request)
        what, version = body.get("what"), body.get("version", -1)
        if what not in COMMANDS or type(version) is not int or not -2 < version < 2**62:
            raise HTTPException(422, f"what must be one of {', '.join(COMMANDS)}")
        return await asyncio.to_thread(obey, service, what, version, name)

    @app.get("/v1/state", responses=answers(200, 401, 403, 429, 503), tags=["curator"])
    async def state(request: Request) -> dict[str, Any]:
        """Public numbers: who serves, how many came, what was spent."""
        service.entitled(request, "curator", "officer")
        return await asyncio.to_thread(public_state, service.agent)


COMMANDS = ("serve", "pin", "unpin", "stop", "start", "live")


def obey(service: Service, what: str, version: int, by: str) -> dict[str, Any]:
    """Carries out a curator's command; one that cannot be done is a 422, and changes nothing.

    Args:
        service: Whose agent it is for.
        what: One of :data:`COMMANDS`.
        version: Of the policy to serve or pin.
        by: Who it is, for the ledger.
    """
    agent = service.agent
    try:
        if what in ("serve", "pin"):
            agent.roll_back(version, pin=what == "pin")
        else:
            getattr(agent, {"live": "go_live"}.get(what, what))()
    except InvalidArgument as error:
        raise HTTPException(422, str(error)) from None
    except Conflict:
        raise HTTPException(503, "something else changed: again", {"Retry-After": "1"}) from None
    note("command", what=what, version=version, by=by)
    service.record(by, what, version=version)
    service.watch()
    return {"what": what, "version": service.seen.run.version}


def forgotten(service: Service, user: str, by: str) -> dict[str, Any]:
    """Erases what waits of a user, and says what is true of the rest."""
    service.record(by, "forget")
    found: dict[str, Any] = dict(service.agent.forget(user))
    found["erased"] = service.store.erase_traces()
    service.watch()
    said = DESCRIBED["forgetting"]
    words = [said[name] for name in ("removed", "released") if found[name]] or [said["nobody"]]
    if not found["erased"]:
        words.append(said["postgres" if service.store.postgres else "log"])
    return found | {"remains": " ".join(words)}


def _watchers(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["watch"])
    async def health() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @app.get("/readyz", responses=answers(200, 503), tags=["watch"])
    async def ready() -> Response:
        """Whether it can serve, and take users."""
        problem = await asyncio.to_thread(service.problem)
        # Whoever has no token is not told more: /v1/state has the words, which may name parts.
        known = problem in ("", "stopped") or problem.startswith("the database does not")
        content = {"status": "ready" if not problem else "not ready"}
        content["problem"] = problem.partition(";")[0] if known else "see /v1/state"
        return JSONResponse(content, 503 if problem else 200)

    @app.get("/metrics", response_class=PlainTextResponse, tags=["watch"])
    async def metrics() -> Response:
        """For Prometheus; public facts alone."""
        return Response(measured(service), media_type="text/plain; version=0.0.4")


def measured(service: Service) -> str:
    """Public facts in the form that Prometheus reads."""
    from tacit.service import pages

    run, limit = service.seen.run, float(service.agent.privacy.epsilon)
    so_far, buckets = 0.0, []
    for bound, count in zip((*BOUNDS, "+Inf"), service.seconds, strict=False):
        so_far += count
        buckets.append((bound, so_far))
    given = {"service": service, "run": run, "limit": limit, "buckets": buckets}
    return pages.text("metrics", given | {"requests": sorted(service.requests.items())})
