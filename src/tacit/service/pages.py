"""Pages for curators and officers, made by the server from ``templates``.

Who logs in gives her token once; the browser then holds the cookie of a session, which ends when
she logs out. A proxy that knows people may send their tokens instead. Whatever changes something
is a form with a hash of that cookie, so no other site can send it. Templates escape whatever is
not theirs. Pages have a title, a heading, landmarks and labels; there is one style sheet and no
script.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from sqlalchemy import func, select

from tacit import published
from tacit.service import http
from tacit.service.facts import public_state
from tacit.service.schema import DESCRIBED
from tacit.service.tokens import begin_session, end_session
from tacit.store import ledger
from tacit.store.schema import blocks, entries, events, versions

_COOKIE, _SECONDS = "tacit", 8 * 3600
_BOTH = ("curator", "officer")
_LINKS = (
    ("/", "Overview", _BOTH),
    ("/policies", "Policies", _BOTH),
    ("/people", "Forget a user", ("curator",)),
    ("/officer", "Officer", ("officer",)),
)
_TEMPLATES = Path(__file__).with_name("templates")
_made = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined)
_made.filters["numbers"] = lambda rows, i: (
    bool(rows) and all(re.fullmatch(r"[-\d.,+ ±e%]+", str(row[i])) for row in rows)
)
_made.filters["time"] = lambda at: time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
_made.filters["json"] = json.loads
_made.globals |= {"app": "", "now": time.time}


def rendered(template: str, title: str, who: Visitor | None = None, **values: Any) -> str:
    """A page; ``said`` is what went wrong before it."""
    given = {"title": title, "who": who, "links": _LINKS, "here": "", "said": ""} | values
    return _made.get_template(f"{template}.html").render(given)


def text(template: str, values: Mapping[str, Any]) -> str:
    """A text from a template."""
    return _made.get_template(f"{template}.txt").render(values)


def _missing(*given: Any) -> Any:
    raise HTTPException(404, "this installation has no such page")


@dataclass(frozen=True)
class Tools:
    """Texts of pages about the ledger and policies, shared with the command line."""

    report: Callable[..., str] = _missing  # of a store, with policies, and its app
    differences: Callable[[Any, Any], dict[str, Any]] = _missing


@dataclass(frozen=True)
class Visitor:
    """A visitor of a page."""

    name: str
    role: str
    csrf: str
    session: str = ""


class Pages:
    """Dependencies of the pages."""

    def __init__(self, service: http.Service, tools: Tools) -> None:
        self.service, self.tools = service, tools
        _made.globals["app"] = service.app.about.get("app", service.app.name)

    @property
    def _run(self) -> str:
        return self.service.agent.run_name

    async def visitor(self, request: Request, *roles: str) -> Visitor:
        """The visitor; without a session or a token she is redirected to the sign-in page."""
        service, held = self.service, request.cookies.get(_COOKIE, "")
        session = service.seen.keys.session_of(held)
        caller = service.seen.keys.caller_in(session)
        if session and caller is None:  # perhaps another process let her in just now
            await asyncio.to_thread(service.watch)
            caller = service.seen.keys.caller_in(session)
        if caller is None and (said := request.headers.get("authorization", "")):
            held, caller = said, service.entitled(request, *_BOTH)  # from a proxy that knows her
        if caller is None:
            raise HTTPException(303, "log in", {"Location": "/login"})
        service.slow_down(caller, request)
        if caller.role not in roles:
            raise HTTPException(403, f"this is for {' and '.join(roles)}")
        return Visitor(caller.name, caller.role, service.seen.keys.mark("csrf", held), session)

    async def form(self, request: Request) -> dict[str, str]:
        """Fields of a form."""
        sent = await self.service.sent(request)
        try:
            held = parse_qs(sent.decode("ascii"), max_num_fields=20)
        except ValueError:
            raise HTTPException(422, "this is no form") from None
        return {name: values[0] for name, values in held.items()}

    async def sent(self, request: Request, *roles: str) -> tuple[Visitor, dict[str, str]]:
        """The visitor who sent a form, and its fields."""
        who = await self.visitor(request, *roles)
        held = await self.form(request)
        if not hmac.compare_digest(held.get("csrf", "").encode(), who.csrf.encode()):
            raise HTTPException(403, "this form is not from here: load the page again")
        return who, held

    def overview(self, who: Visitor) -> str:
        """Budget, users and values."""
        state = public_state(self.service.agent)
        state["problem"] = state["problem"] or self.service.problem().removeprefix("stopped")
        columns = (
            state["monitoring"].get(name, []) for name in ("version", "return", "return_error")
        )
        pays = {v: (x, 2.0 * e) for v, x, e in zip(*columns, strict=True) if x is not None}
        query = select(events.c.fate, events.c.version, func.count())
        query = query.where(events.c.run == self._run).group_by(events.c.fate, events.c.version)
        history = select(versions.c.version, versions.c.at, versions.c.users).order_by(
            versions.c.version.desc()
        )
        with self.service.store.read() as db:
            fates = db.execute(query).all()
            shown = db.execute(history.where(versions.c.run == self._run).limit(400)).all()
        counted, came = Counter[int](), Counter[str]()
        for fate, version, count in fates:
            came[fate] += int(count)
            counted[version] += int(count) if fate == "counted" else 0
        points = [(row.version, row.at, *pays[row.version]) for row in shown if row.version in pays]
        given = {"state": state, "came": came, "counted": counted, "points": points[::-1]}
        given |= {"told": self.service.told, "shown": shown, "pays": pays, "run": self.service.app}
        return rendered("overview", "Overview", who, here="/", **given)

    def policies(self, who: Visitor) -> str:
        """All versions, what can be done with them, and what was."""
        names = ("version", "users", "at", "seq")
        shown = select(*(versions.c[name] for name in names)).where(versions.c.run == self._run)
        done = select(entries).where(entries.c.run == self._run, entries.c.event != "release")
        with self.service.store.read() as db:
            found = db.execute(shown.order_by(versions.c.version.desc()).limit(200)).all()
            rows = db.execute(done.order_by(entries.c.seq.desc()).limit(20)).all()
        state = public_state(self.service.agent)
        now = self.service.seen.run.version
        policy = before = published.load(self.service.policy_body(now)[0])
        with suppress(HTTPException):  # of the first, and of one that nobody asked for in time
            before = published.load(self.service.policy_body(now - 1)[0])
        given = {"state": state, "versions": found, "entries": rows, "policy": policy}
        return rendered("policies", "Policies", who, here="/policies", before=before, **given)

    def compare(self, who: Visitor, first: int, second: int) -> str:
        """Where two versions act differently."""
        loaded = [published.load(self.service.policy_body(v)[0]) for v in (first, second)]
        said = public_state(self.service.agent)["monitoring"]
        given = {"found": self.tools.differences(*loaded), "first": first, "second": second}
        given |= {"monitored": said, "policy": loaded[0], "horizon": self.service.spec.horizon}
        return rendered("compare", f"Versions {first} and {second}", who, **given)

    def people(self, who: Visitor, told: Mapping[str, Any] | None = None) -> str:
        """A user who asks to be forgotten."""
        given = {"told": told, "remains": DESCRIBED["forgetting"]["released"]}
        return rendered("people", "Forget a user", who, here="/people", **given)

    def officer(self, who: Visitor) -> str:
        """Verification of every entry and account, and the way to the report."""
        store, state = self.service.store, public_state(self.service.agent)
        wrong = ledger.verify(store, expect=state["ledger_head"])
        done = (blocks.c.run == self._run, blocks.c.stage.in_(("released", "done")))
        with store.read() as db:
            count, users = db.execute(
                select(func.count(), func.coalesce(func.sum(blocks.c.users), 0)).where(*done)
            ).one()
            counted = select(func.count().label("paid"))
            paid = db.scalar(counted.where(events.c.run == self._run, events.c.fate == "counted"))
        given = {"wrong": wrong, "state": state, "blocks": count, "users": users, "paid": paid}
        return rendered("officer", "Officer", who, here="/officer", **given)

    def report(self) -> str:
        """The ledger's report with the policy that serves."""
        seen, service = self.service.seen, self.service
        return self.tools.report(service.store, [seen.policies[seen.run.version][0]], service.app)


def add(app: FastAPI, service: http.Service, tools: Tools | None) -> None:
    """Adds the pages."""
    pages = Pages(service, tools or Tools())
    get = partial(app.get, include_in_schema=False)
    post = partial(app.post, include_in_schema=False)

    @get("/style.css")
    async def style() -> Response:
        return Response((_TEMPLATES / "style.css").read_bytes(), media_type="text/css")

    @get("/login")
    async def door() -> Response:
        return HTMLResponse(rendered("login", "Log in"))

    @post("/login")
    async def enter(request: Request) -> Response:
        service.slow_down("login", request)
        caller = service.caller((await pages.form(request)).get("token", "").strip())
        if caller is None or caller.role not in _BOTH:
            said = "This token opens no pages."
            return HTMLResponse(rendered("login", "Log in", said=said), 403)
        cookie = await asyncio.to_thread(begin_session, service.store, caller, _SECONDS)
        await asyncio.to_thread(service.record, caller.name, "log in", role=caller.role)
        await asyncio.to_thread(service.watch)
        response = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        response.set_cookie(
            _COOKIE, cookie, _SECONDS, httponly=True, samesite="strict", secure=secure
        )
        return response

    @post("/logout")
    async def leave(request: Request) -> Response:
        who, _ = await pages.sent(request, *_BOTH)
        await asyncio.to_thread(end_session, service.store, who.session)
        await asyncio.to_thread(service.record, who.name, "log out")
        await asyncio.to_thread(service.watch)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_COOKIE)
        return response

    def shown(path: str, view: Callable[[Visitor], str], *roles: str) -> None:
        @get(path)
        async def show(request: Request) -> Response:
            who = await pages.visitor(request, *roles)
            return HTMLResponse(await asyncio.to_thread(view, who))

    shown("/", pages.overview, *_BOTH)
    shown("/policies", pages.policies, *_BOTH)
    shown("/people", pages.people, "curator")
    shown("/officer", pages.officer, "officer")

    @get("/policies/compare")
    async def compare(request: Request, first: int, second: int) -> Response:
        who = await pages.visitor(request, *_BOTH)
        return HTMLResponse(await asyncio.to_thread(pages.compare, who, first, second))

    @get("/officer/report")
    async def report(request: Request) -> Response:
        who = await pages.visitor(request, "officer")
        await asyncio.to_thread(service.record, who.name, "read the report")
        # A document of its own, with its style inside.
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
        headers = {"Content-Security-Policy": policy}
        return HTMLResponse(await asyncio.to_thread(pages.report), headers=headers)

    @post("/do")
    async def act(request: Request) -> Response:
        who, held = await pages.sent(request, "curator")
        what, version = held.get("what", ""), held.get("version", "-1")
        if what not in http.COMMANDS or not re.fullmatch(r"-1|\d{1,18}", version):
            raise HTTPException(422, "there is no such command")
        await asyncio.to_thread(http.obey, service, what, int(version), who.name)
        return RedirectResponse("/policies", 303)

    @post("/people")
    async def people(request: Request) -> Response:
        who, held = await pages.sent(request, "curator")
        user = held.get("user", "")
        if not 0 < len(user) <= 200:
            raise HTTPException(422, "user must be a text of at most 200 letters")
        told = await asyncio.to_thread(http.forgotten, service, user, who.name)
        return HTMLResponse(await asyncio.to_thread(pages.people, who, told))
