"""The house stays small: rooms within their limits, few agents, one kind of noise."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

from tacit.registry import BUILT_IN

ROOT = Path(__file__).parents[1] / "src" / "tacit"
FILES = {path.relative_to(ROOT): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
HOUSE = tomllib.loads(Path(__file__).with_name("house.toml").read_text())


def sizes() -> Counter[str]:
    """Lines by room; modules beside the rooms are one room."""
    found: Counter[str] = Counter()
    for path, text in FILES.items():
        found[path.parts[0] if len(path.parts) > 1 else "hallway"] += len(text.splitlines())
    return found


def test_no_room_exceeds_its_limit():
    limits, found = HOUSE["rooms"], sizes()
    assert found.keys() == limits.keys()
    assert {room: (n, limits[room]) for room, n in found.items() if n > limits[room]} == {}


def test_the_house_does_not_exceed_its_limit():
    assert sum(sizes().values()) <= HOUSE["total"]


def test_there_are_few_agents():
    assert len(BUILT_IN) <= HOUSE["agents"]


def asking(text: str) -> list[str]:
    """Where a text asks which kind of noise there is; what it only makes sure of is fine.

    >>> asking("if isinstance(x, (Noise, int)): pass"), asking("assert isinstance(x, Noise)")
    (['isinstance(x, (Noise, int))'], [])
    """
    tree = ast.parse(text)
    asserted = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    sure = {id(node) for found in asserted for node in ast.walk(found)}
    return [
        ast.unparse(call)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("isinstance", "issubclass")
        and id(call) not in sure
        and {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(call.args[-1])}
        & set(HOUSE["noise"]["kinds"])
    ]


def test_nothing_asks_which_noise_there_is():
    may = HOUSE["noise"]["may_ask"]
    found = {str(path): asking(text) for path, text in FILES.items() if path.as_posix() not in may}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_no_word_is_about_noise_in_floating_point():
    pattern = re.compile(HOUSE["noise"]["words"], re.IGNORECASE)
    found = {str(path): pattern.findall(" ".join(text.split())) for path, text in FILES.items()}
    assert {path: words for path, words in found.items() if words} == {}
    assert pattern.search("Simulations draw in floating-point") is not None
    assert pattern.search('sampler: Literal["auto", "exact"] = "auto"') is not None
