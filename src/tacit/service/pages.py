"""Pages for curators and officers, made by the server.

Who logs in gives her token once; the browser then holds a cookie that says which token that was,
until when, and a keyed hash of both. Whatever changes something is a form with a hash of that
cookie, so no other site can send it.
"""

from __future__ import annotations

import asyncio
import hmac
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.ledger import Ledger
from tacit.service import http, views
from tacit.service.sandbox import MOST, Sandbox
from tacit.service.store import hashed
from tacit.service.views import button, field, form, note, text

_COOKIE, _SECONDS = "tacit", 8 * 3600


@dataclass(frozen=True)
class Tools:
    """What a page says of a ledger and of policies; the command line has the words."""

    report: Callable[..., dict[str, Any]]
    html: Callable[[dict[str, Any]], str]
    differences: Callable[[Any, Any], dict[str, Any]]


@dataclass(frozen=True)
class Visitor:
    """Who looks at a page."""

    name: str
    role: str
    csrf: str


class Pages:
    """What the pages need."""

    def __init__(self, service: http.Service, tools: Tools | None) -> None:
        self.service, self.tools = service, tools
        self.sandbox = Sandbox(service.store, service.spec, service.watch)

    # Who looks.

    def cookie(self, name: str) -> str:
        """What a browser holds."""
        said = f"{name}.{int(time.time()) + _SECONDS}"
        return f"{said}.{hashed(self._secret, 'cookie', said)}"

    @property
    def _secret(self) -> str:
        return str(self.service.seen.serving["secret"])

    def visitor(self, request: Request, *roles: str) -> Visitor:
        """Who looks; without a cookie she is sent to the door."""
        held = request.cookies.get(_COOKIE, "")
        said, _, mark = held.rpartition(".")
        name, _, until = said.partition(".")
        right = hmac.compare_digest(mark.encode(), hashed(self._secret, "cookie", said).encode())
        role, _ = self.service.seen.tokens.get(name, ("", ""))
        if not right or not role or int(until) < time.time():
            raise HTTPException(303, "log in", {"Location": "/login"})
        if role not in roles:
            raise HTTPException(403, f"this is for {' and '.join(roles)}")
        return Visitor(name, role, hashed(self._secret, "csrf", held))

    async def form(self, request: Request) -> dict[str, str]:
        """What a form sent."""
        sent = await self.service.sent(request)
        try:
            held = parse_qs(sent.decode("ascii"), max_num_fields=20)
        except ValueError:
            raise HTTPException(422, "this is no form") from None
        return {name: values[0] for name, values in held.items()}

    async def sent(self, request: Request, *roles: str) -> tuple[Visitor, dict[str, str]]:
        """Who sent a form of ours, and what it says."""
        who = self.visitor(request, *roles)
        held = await self.form(request)
        if not hmac.compare_digest(held.get("csrf", "").encode(), who.csrf.encode()):
            raise HTTPException(403, "this form is not from here: load the page again")
        return who, held

    # What is there.

    def overview(self, who: Visitor) -> str:
        """Budget, users and values."""
        store = self.service.store
        state = http.public_state(self.service)
        facts = self.service.seen.facts
        body = self._notices(state)
        # Rounded down: what is left is never shown as more than it is.
        left = max(facts.get("limit", 0.0) - facts.get("spent", 0.0), 0.0) // 1e-4 * 1e-4
        body += "<h2>Budget</h2>" + views.facts(
            {
                "epsilon that one user may spend": f"{facts.get('limit', 0):.4g}",
                "spent by who spent most": f"{facts.get('spent', 0):.4g}",
                "left to that user": f"{left:.4g}",
                "users served": f"{state['served']:,}",
                "users who may still come": f"{(facts.get('users') or 0) - state['served']:,}",
            }
        )
        body += f"<p>{text(facts.get('words', ''))}</p>"
        body += "<h2>Now</h2>" + views.facts(
            {
                "version that serves": state["version"],
                "waiting for their block": f"{state['waiting']:,} of {state['room']:,}",
                "blocks released": facts.get("blocks", 0),
                "line of the ledger": state["ledger_line"],
            }
        )
        monitoring = facts.get("monitoring") or {}
        versions = monitoring.get("version", [])
        means, errors = monitoring.get("return", []), monitoring.get("return_error", [])
        title = "Private value of each version, with two standard errors"
        body += f"<h2>{title}</h2>" + views.chart(title, versions, means, errors)
        told = {v: (x, e) for v, x, e in zip(versions, means, errors, strict=True)}
        rows = store.ask("SELECT version, SUM(users) FROM blocks GROUP BY version ORDER BY version")
        cells = []
        for version, users in rows:
            mean, error = told.get(version, (None, None))
            value = "not known" if mean is None else f"{mean:.4g} ± {2 * error:.2g}"
            cells.append((str(version), f"{int(users):,}", value))
        heads = ("version", "users", "value")
        body += views.table("Users and value of each version", heads, cells[::-1])
        return views.page("Overview", body, role=who.role, here="/", csrf=who.csrf)

    def _notices(self, state: Mapping[str, Any]) -> str:
        found = ""
        if state["stopped"]:
            found += note(
                "The service is stopped: no policy is served, nobody is taken.", wrong=True
            )
        if state["problem"]:
            found += note(f"Nothing is released: {state['problem']}", wrong=True)
        if state["pinned"]:
            found += note(f"Version {state['version']} is pinned: releases go on, it serves.")
        return found

    def policies(self, who: Visitor) -> str:
        """All versions, and what can be done with them."""
        store = self.service.store
        state, acts = http.public_state(self.service), who.role == "curator"
        body = self._notices(state)
        if acts:
            what, words = ("start", "Serve again") if state["stopped"] else ("stop", "Stop serving")
            inside = button(words, kind="danger", name="what", value=what)
            body += "<h2>Kill switch</h2><p>Devices get no policy and nobody is taken, at once.</p>"
            body += form("/do", who.csrf, inside)
            if state["pinned"]:
                body += form("/do", who.csrf, button("Unpin", name="what", value="unpin"))
        rows = []
        found = store.ask(
            "SELECT version, users, at, etag, ledger_line FROM policies ORDER BY version DESC "
            "LIMIT 200"
        )
        for version, users, at, etag, line in found:
            serves = version == state["version"]
            doing = "serves now" if serves else ""
            if acts:
                hidden = f'<input type="hidden" name="version" value="{version}">'
                serve = button(f"Serve {version}", name="what", value="serve")
                pin = button(f"Pin {version}", name="what", value="pin")
                inside = hidden + ("" if serves else serve) + pin
                doing += " " + form("/do", who.csrf, inside, inline=True)
            day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at))
            cells = (str(version), doing, f"{users:,}", day, str(line), f"<code>{etag[:12]}</code>")
            rows.append(cells)
        heads = (
            "version",
            "what to do",
            "users before it",
            "published (UTC)",
            "ledger line",
            "hash",
        )
        body += "<h2>Versions</h2>" + views.table("Published versions", heads, rows)
        first = max(state["version"] - 1, 0)
        body += (
            '<h2>Compare two versions</h2><form method="get" action="/policies/compare">'
            + field("first", "First", kind="number", value=str(first), more="min=0")
            + field("second", "Second", kind="number", value=str(state["version"]), more="min=0")
            + button("Compare")
            + "</form>"
        )
        asked = store.ask(
            "SELECT at, what, version, by_whom, state, answer FROM commands ORDER BY id DESC "
            "LIMIT 20"
        )
        said = [
            (
                time.strftime("%Y-%m-%d %H:%M", time.gmtime(at)),
                text(what if version < 0 else f"{what} {version}"),
                text(by),
                text(f"{told}: {answer}" if answer else told),
            )
            for at, what, version, by, told, answer in asked
        ]
        body += "<h2>What was asked for</h2>"
        body += views.table("Commands", ("when (UTC)", "what", "token", "outcome"), said)
        return views.page("Policies", body, role=who.role, here="/policies", csrf=who.csrf)

    def compare(self, who: Visitor, first: int, second: int) -> str:
        """Where two versions act differently."""
        loaded = []
        for version in (first, second):
            rows = self.service.store.ask(
                "SELECT body FROM policies WHERE version = ?", (min(max(version, -1), 2**62),)
            )
            if not rows:
                raise HTTPException(404, f"version {version} was never published")
            loaded.append(_loaded(bytes(rows[0][0])))
        if self.tools is None:
            raise HTTPException(404, "this installation compares nothing")
        found = self.tools.differences(*loaded)
        if found["same"]:
            body = note(f"Versions {first} and {second} act alike.")
        elif "cells" not in found:
            body = note(f"They differ: {found['words']}")
        else:
            names = ("step", "state", "first", "second")
            cells = [tuple(text(cell[name]) for name in names) for cell in found["cells"][:500]]
            heads = ("step", "state", f"version {first}", f"version {second}")
            body = f"<p>They differ in {len(found['cells'])} of {found['of']} steps and states.</p>"
            body += views.table("Differences", heads, cells)
        title = f"Versions {first} and {second}"
        return views.page(title, body, role=who.role, csrf=who.csrf)

    def people(self, who: Visitor, told: Mapping[str, Any] | None = None) -> str:
        """A user who asks to be forgotten."""
        body = ""
        if told is not None:
            body += note(
                f"Erased: {told['removed']}. In released blocks: {told['released']}. In a block "
                f"that is being released: {told['in_release']}. {told['remains']}"
            )
        body += (
            "<p>What waits of a user is erased at once. What was released cannot be taken back, "
            "and need not be:</p>" + f"<p>{text(http.REMAINS)}</p>"
        )
        inside = field("user", "The user's id, as the app sends it", more='autocomplete="off"')
        body += form("/people", who.csrf, inside + "<p>" + button("Forget", kind="danger") + "</p>")
        return views.page("Forget a user", body, role=who.role, here="/people", csrf=who.csrf)

    # The officer.

    def verified(self) -> tuple[str, Ledger | None]:
        """Reads every line of the ledger; what is wrong, if anything is."""
        app, head = self.service.app, self.service.seen.serving["ledger_head"]
        if app.privacy.local:
            return "devices add the noise: there is no ledger", None
        try:
            ledger = Ledger.open(app.files["ledger"], expect=head, every_line=True)
        except (TacitError, OSError) as error:
            return str(error), None
        return "", ledger

    def officer(self, who: Visitor) -> str:
        """Verification, and the way to the report."""
        serving = self.service.store.serving()
        wrong, ledger = self.verified()
        body = self._notices(http.public_state(self.service))
        if ledger is None:
            body += note(f"The ledger was not verified: {wrong}", wrong=True)
        else:
            body += note(
                f"Every one of {ledger.sequence} lines of the ledger was checked just now, and it "
                "has the line of the last publication."
            )
            body += views.facts({"entries": ledger.sequence})
            body += f"<p>Its head is <code>{ledger.head}</code>. Keep it elsewhere.</p>"
            if self.tools is not None:
                body += '<p><a href="/officer/report">The report, to be read and signed</a></p>'
        body += f"<h2>What is promised</h2><p>{text(self.service.seen.facts.get('words', ''))}</p>"
        blocks = self.service.store.ask(
            "SELECT COUNT(*), COALESCE(SUM(users), 0) FROM blocks WHERE state = 'released'"
        )[0]
        agree = blocks[1] == serving["served"]
        body += "<h2>Do the books agree?</h2>" + views.facts(
            {
                "blocks released": blocks[0],
                "their users": blocks[1],
                "users served, by the agent": serving["served"],
            }
        )
        body += note("They agree." if agree else "They differ.", wrong=not agree)
        return views.page("Officer", body, role=who.role, here="/officer", csrf=who.csrf)

    def report(self) -> str:
        """The ledger's report with the policy that serves."""
        wrong, ledger = self.verified()
        if ledger is None or self.tools is None:
            raise HTTPException(409, wrong or "this installation writes no reports")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"policy-{self.service.seen.serving['version']}.json"
            path.write_bytes(self.service.seen.body)
            file = str(self.service.app.files["ledger"])
            return self.tools.html(self.tools.report(file, ledger, [str(path)]))

    # The sandbox.

    def playground(self, who: Visitor, said: str = "") -> str:
        """Simulated users."""
        body = note(said, wrong=True) if said else ""
        if not self.service.app.serving.sandbox:
            body += note("It is off. Set sandbox = true under [serve] of a service for trying out.")
            return views.page("Sandbox", body, role=who.role, here="/sandbox", csrf=who.csrf)
        body += (
            "<p>Simulated users read the policy, act and send their episodes over HTTP, as devices "
            "do. <strong>They take places of declared users, and the policy learns from "
            "them.</strong></p>"
        )
        if self.sandbox.wanted:
            done = sum(self.sandbox.told.values())
            how = "Playing" if self.sandbox.playing else "Played"
            words = ", ".join(f"{count} {status}" for status, count in self.sandbox.told.items())
            body += note(f"{how}: {done} of {self.sandbox.wanted} users. {words}")
            body += '<p><a href="/sandbox">Look again</a></p>'
        inside = field("users", "Users", kind="number", value="100", more=f"min=1 max={MOST}")
        inside += field("seed", "Seed of their world", kind="number", value="0", more="min=0")
        inside += "<p>" + button("Play", kind="main") + "</p>"
        body += form("/sandbox", who.csrf, inside)
        return views.page("Sandbox", body, role=who.role, here="/sandbox", csrf=who.csrf)


def _loaded(body: bytes) -> Any:
    from tacit import published

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.json"
        path.write_bytes(body)
        return published.load(path)


def _login(said: str = "") -> str:
    inside = field("token", "Your token", kind="password", more='autocomplete="current-password"')
    inside += "<p>" + button("Log in", kind="main") + "</p>"
    body = (
        note(said, wrong=True) if said else ""
    ) + f'<form method="post" action="/login">{inside}'
    return views.page("Log in", body + "</form>")


def add(app: FastAPI, service: http.Service, tools: Tools | None) -> None:
    """Adds the pages."""
    pages = Pages(service, tools)
    both = ("curator", "officer")
    get, post = (
        partial(app.get, include_in_schema=False),
        partial(app.post, include_in_schema=False),
    )

    @get("/style.css")
    async def style() -> Response:
        return Response(views.STYLE, media_type="text/css")

    @get("/login")
    async def door() -> Response:
        return HTMLResponse(_login())

    @post("/login")
    async def enter(request: Request) -> Response:
        token = (await pages.form(request)).get("token", "").strip()
        service.slow_down("login", request)
        role = service.role_of(token)
        if role not in both:
            return HTMLResponse(_login("This token opens no pages."), 403)
        response = RedirectResponse("/", 303)
        name = token.split("-", 3)[2]
        response.set_cookie(
            _COOKIE,
            pages.cookie(name),
            max_age=_SECONDS,
            httponly=True,
            samesite="strict",
            secure=bool(service.app.serving.certificate),
        )
        return response

    @post("/logout")
    async def leave(request: Request) -> Response:
        await pages.sent(request, *both)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(_COOKIE)
        return response

    def shown(path: str, view: Callable[[Visitor], str], *roles: str) -> None:
        @get(path)
        async def show(request: Request) -> Response:
            who = pages.visitor(request, *roles)
            return HTMLResponse(await asyncio.to_thread(view, who))

    shown("/", pages.overview, *both)
    shown("/policies", pages.policies, *both)
    shown("/people", pages.people, "curator")
    shown("/officer", pages.officer, "officer")
    shown("/sandbox", pages.playground, "curator")

    @get("/policies/compare")
    async def compare(request: Request, first: int, second: int) -> Response:
        who = pages.visitor(request, *both)
        return HTMLResponse(await asyncio.to_thread(pages.compare, who, first, second))

    @get("/officer/report")
    async def report(request: Request) -> Response:
        pages.visitor(request, "officer")
        # A document of its own, with its style inside.
        policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'"
        headers = {"Content-Security-Policy": policy}
        return HTMLResponse(await asyncio.to_thread(pages.report), headers=headers)

    _changes(app, pages)


def _changes(app: FastAPI, pages: Pages) -> None:
    service, post = pages.service, partial(app.post, include_in_schema=False)

    @post("/do")
    async def act(request: Request) -> Response:
        who, held = await pages.sent(request, "curator")
        what, version = held.get("what", ""), held.get("version", "-1")
        if what not in http.COMMANDS or not version.lstrip("-").isdecimal():
            raise HTTPException(422, "there is no such command")
        number = min(max(int(version), -1), 2**62)
        await asyncio.to_thread(http.ask_for, service, what, number, who.name)
        return RedirectResponse("/policies", 303)

    @post("/people")
    async def people(request: Request) -> Response:
        who, held = await pages.sent(request, "curator")
        user = held.get("user", "")
        if not 0 < len(user) <= 200:
            raise HTTPException(422, "user must be a text of at most 200 letters")
        told = await asyncio.to_thread(http.forgotten, service, user)
        return HTMLResponse(await asyncio.to_thread(pages.people, who, told))

    @post("/sandbox")
    async def sandbox(request: Request) -> Response:
        who, held = await pages.sent(request, "curator")
        if not service.app.serving.sandbox:
            raise HTTPException(403, "the sandbox is off")
        host, port = request.scope["server"]
        scheme = "https" if service.app.serving.certificate else "http"
        try:
            users, seed = int(held.get("users", "")), int(held.get("seed", ""))
            pages.sandbox.play(f"{scheme}://{host}:{port}", users, abs(seed))
        except (ValueError, InvalidArgument) as error:
            return HTMLResponse(await asyncio.to_thread(pages.playground, who, str(error)), 422)
        return RedirectResponse("/sandbox", 303)
