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
        self.signatures = arrays.get("signatures", {}).get("data", [])
        self.state_labels = arrays.get("state_labels", {}).get("data")
        self.action_labels = arrays.get("action_labels", {}).get("data")
        self.weights = arrays.get("weights", {}).get("data")

    def signer(self, keys: list[str]) -> str:
        """The public key (hex), one of those that are trusted, by which it is signed; "" if none.

        The hash was compared when it was read.
        """
        text = b"tacit policy " + str(self.hash).encode()
        for mark in self.signatures if self.hash else []:
            key, _, signature = mark.partition(":")
            if key in keys and _ed25519(bytes.fromhex(key), bytes.fromhex(signature), text):
                return key
        return ""

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
    """The SHA-256 of all arrays but the hash and signatures, as ``tacit/published`` defines it."""
    found = hashlib.sha256()
    for name in sorted(set(arrays) - {"hash", "signatures"}):
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


# Ed25519 (RFC 8032): signatures are verified by public numbers alone, so time may depend on them.

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # of -1
Point = tuple[int, int, int, int]  # x, y, z and x y / z


def _ed25519(key: bytes, signature: bytes, text: bytes) -> bool:
    """Whether a signature of a text is by the owner of a public key."""
    if len(key) != 32 or len(signature) != 64:
        return False
    a, r, s = _point(key), _point(signature[:32]), int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + key + text).digest()
    k = int.from_bytes(digest, "little") % _ORDER
    left, right = _times(s, _BASE), _plus(r, _times(k, a))
    return all((left[i] * right[2] - right[i] * left[2]) % _P == 0 for i in (0, 1))


def _point(data: bytes) -> Point | None:
    """A point of the curve from 32 bytes."""
    whole = int.from_bytes(data, "little")
    y, sign = whole & (1 << 255) - 1, whole >> 255
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P or (x == 0 and sign):
        return None
    x = _P - x if x & 1 != sign else x
    return x, y, 1, x * y % _P


def _plus(p: Point, q: Point) -> Point:
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % _P, (p[1] + p[0]) * (q[1] + q[0]) % _P
    c, d = 2 * p[3] * q[3] * _D % _P, 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(n: int, point: Point) -> Point:
    found: Point = (0, 1, 1, 0)
    while n:
        if n & 1:
            found = _plus(found, point)
        point, n = _plus(point, point), n >> 1
    return found


_BASE: Point = _point((4 * pow(5, -1, _P) % _P).to_bytes(32, "little"))  # type: ignore[assignment]
