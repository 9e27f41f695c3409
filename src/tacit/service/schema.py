"""What requests and answers look like: bodies as JSON, and the OpenAPI description."""

from __future__ import annotations

import json
import re
from typing import Any

_DEEP = 16  # nothing that counts is nested deeper
_TOKEN = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|\Z)|[\[\]{}]', re.DOTALL)


def parsed(sent: bytes) -> Any:
    """A body as JSON. A value that is too large or nested too deeply is no mistake of its form.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(sent)
    except (ValueError, RecursionError):
        text = sent.decode(json.detect_encoding(sent), "surrogatepass")
        return json.loads(_shallow(text), parse_int=_whole)


def _whole(digits: str) -> float:
    return int(digits) if len(digits) < 400 else float(digits)


def _shallow(text: str) -> str:
    """The same with ``null`` for what is nested deeply."""
    parts, depth, start = list[str](), 0, 0
    for found in _TOKEN.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth == _DEEP:
                parts.append(text[start : found.start()] + "null")
        elif found[0] in "]}":
            if depth == _DEEP:
                start = found.end()
            depth -= 1
    return "".join([*parts, text[start:]]) if depth < _DEEP else ""


_ANSWERS = {
    200: "done, or counted before",
    202: "taken; it waits for its block",
    304: "as it was",
    401: "no token",
    403: "a token of another role, or of another person",
    404: "no such version",
    408: "the request did not come in time",
    409: "not taken: retired, refused, late, or its place is filled",
    410: "not taken: all declared users have come, or the event was forgotten",
    413: "the request is too long",
    422: "the request is malformed, or its ticket is not ours",
    429: "too many requests",
    503: "stopped, or the database does not answer: try again",
}


def answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Which codes an address may answer with."""
    return {code: {"description": _ANSWERS[code]} for code in codes}


def _body(required: list[str], **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "required": required, "properties": properties}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "security": [{"bearer": []}],
    }


_TEXT = {"type": "string", "minLength": 1, "maxLength": 200}
# What is no state, action or reward counts as nothing, and is no mistake of the request.
_VALUES: dict[str, Any] = {"type": "array", "items": {}}
_PERSON = {
    "user": _TEXT | {"description": "who, or nobody: the token says it; a keyed hash is kept"},
    "event": _TEXT | {"description": "of this episode; sent again, it counts once"},
    "ticket": _TEXT | {"description": "the header Tacit-Ticket of the policy that was followed"},
}
EPISODE = _body(
    ["event", "ticket", "states", "actions", "rewards"],
    **_PERSON,
    states=_VALUES | {"description": "horizon + 1 numbers or labels"},
    actions=_VALUES | {"description": "horizon numbers or labels"},
    rewards=_VALUES | {"description": "horizon numbers"},
    component={"description": "which policy of a mixed one was drawn; needed where one is"},
)
REPORT = _body(
    ["event", "ticket", "report"],
    **_PERSON,
    report=_VALUES | {"description": "the noisy vector, as /v1/task says"},
)
PLACE = {"parameters": [{"name": "place", "in": "query", "schema": {"enum": [0, 1]}}]}
FORGET = _body(["user"], user=_TEXT)
COMMAND = _body(
    ["what"],
    what={"type": "string", "enum": ["serve", "pin", "unpin", "stop", "start"]},
    version={"type": "integer"},
)
