"""What requests and answers look like: bodies as JSON, and the OpenAPI description."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DESCRIBED: dict[str, Any] = json.loads(
    Path(__file__).with_name("templates").joinpath("openapi.json").read_text()
)
"""Parts of the OpenAPI description, by name. Values decide nothing, so any are of its form."""
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


def answers(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Codes that an address may answer with."""
    return {code: {"description": DESCRIBED["answers"][str(code)]} for code in codes}
