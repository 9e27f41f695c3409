"""Docstrings as Markdown: examples become code blocks, roles become names."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|meth|func|mod|attr|data|exc):`(~?)([\w.]+)`")
EXAMPLE = re.compile(r"^>>> .*?(?=\n\s*\n|\Z)", re.MULTILINE | re.DOTALL)


class Docstrings(Extension):
    """Rewrites the text of every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Converts the docstring of one object."""
        if obj.docstring is not None:
            text = ROLE.sub(_name, obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(lambda m: f"```pycon\n{m[0]}\n```", text)


def _name(role: re.Match[str]) -> str:
    return f"`{role[2].rsplit('.', 1)[-1] if role[1] else role[2]}`"
