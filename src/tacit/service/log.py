"""What the service writes to its log: a line of JSON for each event, and nothing of anybody.

Messages of other libraries' exceptions may hold values: of those the log has the class and the
places in the code alone. Messages of our own are public.
"""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

from tacit.privacy.errors import TacitError

_log = logging.getLogger("tacit.service")


def note(event: str, **facts: Any) -> None:
    """Writes that something happened."""
    _log.info(json.dumps({"event": event} | facts))


def trouble(where: str, error: BaseException) -> str:
    """Writes what went wrong, and returns it in public words."""
    words = type(error).__name__
    if isinstance(error, TacitError):
        words = f"{words}: {' '.join(str(error).split())}"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "tacit" in frame.filename or frame is frames[-1]]
    at = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in ours]
    _log.error(json.dumps({"event": "failed", "where": where, "error": words, "at": at}))
    return words
