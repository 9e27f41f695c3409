"""Reads published policies of finite worlds in their JSON form. Needs Python alone, not NumPy.

    policy = load("policy.json")
    policy.act(step, "idle")                      # or the number of a state
    policy.act(step, state, random.random)        # where actions are drawn

Of a mixed policy every episode follows one component, which is drawn first. Log it with the
episode, or send it: what does not say which component it followed is not counted.

    policy = load("policy.json").drawn(random.random)  # once per episode, of any policy
    policy.act(step, "idle", random.random)
    policy.component

For other kinds of policies (values of vectors, gains) take the package
``tacit-policies`` (``pyproject.toml`` here), which needs NumPy, or ``clients/js/policy.js``.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import struct
from collections.abc import Callable
from typing import Any

Random = Callable[[], float]


class Policy:
    """What to do at each step in each state, of one component or several."""

    def __init__(self, arrays: dict[str, dict[str, Any]]) -> None:
        self._actions, self._chances = arrays.get("actions"), arrays.get("probabilities")
        stored = self._actions or self._chances
        if stored is None or _first(arrays, "format") != 1:
            raise ValueError("this reader reads tables of format 1")
        if _first(arrays, "kind", "table") not in ("table", "mixed"):
            raise ValueError(f"its kind is {_first(arrays, 'kind')!r}; this reader reads tables")
        self.mixed = _first(arrays, "kind", "table") == "mixed"
        shape = stored["shape"][1:] if self.mixed else stored["shape"]
        self.horizon, self.states = shape[0], shape[1]
        self.n_actions = _first(arrays, "n_actions")
        self.components = stored["shape"][0] if self.mixed else 1
        self.component: int | None = None if self.mixed else 0
        self.version = _first(arrays, "version")
        self.about = json.loads(_first(arrays, "about", "{}"))
        self.hash = _first(arrays, "hash", None)
        self.state_labels = arrays.get("state_labels", {}).get("data")
        self.action_labels = arrays.get("action_labels", {}).get("data")
        self.weights = arrays.get("weights", {}).get("data")

    def draw(self, random: Random) -> int:
        """The component to follow, drawn once per episode; the episode must say which it is."""
        return _draw(self.weights or [1.0], random)

    def drawn(self, random: Random) -> Policy:
        """The same for one episode: ``component`` is drawn, and ``act`` needs none."""
        found = copy.copy(self)
        found.component = self.draw(random)
        return found

    def act(
        self,
        step: int,
        state: int | str,
        random: Random | None = None,
        component: int | None = None,
    ) -> int | str:
        """The action at a step (from 0) in a state: its label where the state is given by one."""
        code = _code(state, self.state_labels) if isinstance(state, str) else state
        part = self.component if component is None or not self.mixed else component
        limits = (("step", step, self.horizon), ("state", code, self.states))
        for name, value, size in (*limits, ("component", part, self.components)):
            if value is None or not 0 <= value < size:
                raise ValueError(f"{name} must be in 0..{size - 1}, got {value!r}")
        at = (part * self.horizon + step) * self.states + code  # type: ignore[operator]
        if self._actions is not None:
            action = self._actions["data"][at]
        elif random is None or self._chances is None:
            raise ValueError("this policy draws its actions: give random, random.random")
        else:
            count = self.n_actions
            action = _draw(self._chances["data"][at * count : (at + 1) * count], random)
        named = isinstance(state, str) and self.action_labels
        return self.action_labels[action] if named else action


def load(path: str) -> Policy:
    """Reads a file; a ValueError if it is no policy, or was changed."""
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


def parse(text: str) -> Policy:
    """The same of a file's text."""
    held = json.loads(text)
    if not isinstance(held, dict) or held.get("tacit") != "policy":
        raise ValueError("this is no published policy")
    arrays = held["arrays"]
    for name, entry in arrays.items():
        if math.prod(entry["shape"]) != len(entry["data"]):
            raise ValueError(f"{name} does not fit its shape")
    if "hash" in arrays and digest(arrays) != _first(arrays, "hash"):
        raise ValueError("its hash is not that of what it holds: it was changed")
    return Policy(arrays)


def digest(arrays: dict[str, dict[str, Any]]) -> str:
    """The SHA-256 of all arrays but the hash itself, as ``tacit/published`` defines it."""
    found = hashlib.sha256()
    for name in sorted(set(arrays) - {"hash"}):
        entry = arrays[name]
        kind = {"int": "i", "float": "f", "text": "u"}[entry["dtype"]]
        found.update(f"{name}\0{kind}\0{','.join(map(str, entry['shape']))}\0".encode())
        if kind == "u":
            found.update("\0".join(entry["data"]).encode())
        else:
            letter = "d" if kind == "f" else "q"
            found.update(struct.pack(f"<{len(entry['data'])}{letter}", *entry["data"]))
    return found.hexdigest()


def _first(arrays: dict[str, dict[str, Any]], name: str, default: Any = 0) -> Any:
    return arrays[name]["data"][0] if name in arrays else default


def _code(label: str, labels: list[str] | None) -> int:
    if not labels or label not in labels:
        raise ValueError(f"state must be one of {labels}, got {label!r}")
    return labels.index(label)


def _draw(row: list[float], random: Random) -> int:
    """An index with the probabilities of a row; what has probability zero is never drawn."""
    u, total, last = random(), 0.0, 0
    for i, chance in enumerate(row):
        if chance:
            last, total = i, total + chance
            if u < total:
                return i
    return last
