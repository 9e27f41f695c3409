"""Labels: the public names of states and actions, in the order of their numbers.

They are given, or taken from what a schema declares. They are never learnt from data: who occurs in
a log is private, and a state that nobody visited is a state all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from tacit.privacy.errors import InvalidArgument

Labels: TypeAlias = tuple[str, ...] | None
"""Different texts, as many as there are states or actions; or none."""


def checked_labels(name: str, values: Any, size: int | None = None) -> Labels:
    """Different texts, as many as there are; ``None`` stays ``None``.

    >>> checked_labels("state_labels", ["idle", "busy"], 2)
    ('idle', 'busy')
    """
    if values is None:
        return None
    listed = isinstance(values, Iterable) and not isinstance(values, (str, bytes))
    labels = tuple(str(v) if isinstance(v, str) else v for v in values) if listed else ()
    if not labels or not all(isinstance(label, str) for label in labels):
        raise InvalidArgument(f"{name} must be a list of texts, got {_short(values)}")
    if len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise InvalidArgument(f"{name} must be different, but {twice!r} is there twice")
    if size is not None and len(labels) != size:
        raise InvalidArgument(f"{name} must be {size} texts, got {len(labels)}")
    return labels


def code_of(kind: str, label: str, labels: Labels) -> int:
    """The number of a label; ``kind`` is "state" or "action"."""
    if labels is None:
        raise InvalidArgument(f"{kind} is {label!r}, but this policy has no labels: give a number")
    if label not in labels:
        known = ", ".join(map(repr, labels[:20])) + (", ..." if len(labels) > 20 else "")
        raise InvalidArgument(f"{kind} is {label!r}, but must be one of {known}")
    return labels.index(label)


def _short(values: Any) -> str:
    text = repr(list(values) if isinstance(values, Sequence) else values)
    return text if len(text) <= 80 else f"{text[:77]}..."
