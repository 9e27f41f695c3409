"""``/v1/decisions`` and ``/v1/outcomes``: rewards that are known hours or days after an action.

Both are answered as episodes are. When an outcome comes decides nothing but its episode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from tacit.core.late import LateStep
from tacit.service.intake import Form, code, number
from tacit.service.schema import DESCRIBED, answers

if TYPE_CHECKING:
    from tacit.service.http import Service

_CODES = (200, 202, 401, 403, 408, 409, 410, 413, 422, 429, 503)


def add(app: FastAPI, service: Service) -> None:
    """Adds the routes."""
    told: dict[str, Any] = {"responses": answers(*_CODES), "tags": ["device"]}

    @app.post("/v1/decisions", openapi_extra=DESCRIBED["decision"], **told)
    async def decision(request: Request) -> Response:
        """An action that was taken; the first of an event takes the place of its ticket."""
        return await service.take(request, "decision")

    @app.post("/v1/outcomes", openapi_extra=DESCRIBED["outcome"], **told)
    async def outcome(request: Request) -> Response:
        """The reward of a step, whenever it is known. Idempotent by event and step."""
        return await service.take(request, "outcome")


def mistake(form: Form, body: Mapping[str, Any], kind: str) -> str:
    """Mistake in the public form of a request, in words; empty if there is none."""
    if form.features:
        return "a trial takes whole histories: POST /v1/episodes"
    needed = ("state", "action") if kind == "decision" else ("reward",)
    if missing := [name for name in needed if name not in body]:
        return f"{missing[0]} is missing"
    step = body.get("step")
    if type(step) is not int or not 0 <= step < form.horizon:
        return f"step must be a whole number from 0 to {form.horizon - 1}"
    said = body.get("ticket", "").partition(".")[0]
    if kind == "decision" and str(body.get("version", said)) != said:
        return "version must be that of the ticket, or be left out"
    return form.undrawn(body) if kind == "decision" else ""


def message(form: Form, body: Mapping[str, Any], ticket: str | None) -> LateStep:
    """A request as the agent takes it; with a ticket a decision. Values never raise."""
    states, actions = form.codes
    after = code(states, body.get("next_state"))
    values: dict[str, Any] = {"reward": number(body.get("reward")), "next_state": after}
    if ticket is not None:
        values = {"state": code(states, body["state"]), "action": code(actions, body["action"])}
        values["probability"] = number(body.get("probability"))
        values["component"] = form.component(body)
    return LateStep(body["user"], body["event"], values | {"step": body["step"]}, ticket)
