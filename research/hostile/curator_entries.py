"""Curators: blocks that come in, releases and streams, with arguments of which some are junk.

What a curator refuses must cost nothing: its accounts stay what they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tacit
from research.hostile.calls import Call
from research.hostile.fuzzing import EntryPoint
from research.hostile.small import JOINT, LOCAL, PAIRS, small_curator
from tacit.privacy.statistic import Block


def curator_entries() -> list[EntryPoint]:
    """What each model's curator is asked for."""
    entries = []
    for name, model in (("joint", JOINT), ("local", LOCAL), ("no", tacit.NonPrivate())):
        entries += [
            _add_call(model).entry(f"{name} curator: add"),
            _release_call(model).entry(f"{name} curator: release"),
        ]
    return [*entries, _stream_call().entry("joint curator: stream")]


def _state(arguments: dict[str, Any]) -> tuple[Any, ...]:
    """What a refused call must leave alone."""
    curator = arguments["curator"]
    return [*curator._spent], curator._count, curator._users, len(curator._blocks)


def _costs(privacy: Any) -> dict[str, Any]:
    """The arguments that say what a release costs; without privacy there are none."""
    return {} if isinstance(privacy, tacit.NonPrivate) else {"mu": None}


def _add_call(privacy: Any) -> Call:
    def add(curator: Any, **options: Any) -> None:
        curator.add(**options)

    def good() -> dict[str, Any]:
        block = Block(3, {"values": np.ones((3, 2))})
        return {"curator": privacy.curator(users=5, noise_seed=0), "block": block, "user_ids": None}

    return Call(add, good, fixed=("curator",), watched=_state)


def _release_call(privacy: Any) -> Call:
    def release(curator: Any, **options: Any) -> None:
        curator.release(**options)

    def good() -> dict[str, Any]:
        return {
            "curator": small_curator(privacy),
            "statistic": PAIRS,
            "block": 0,
            **_costs(privacy),
        }

    return Call(release, good, fixed=("curator",), watched=_state)


def _stream_call() -> Call:
    def stream(curator: Any, block: Any, **options: Any) -> None:
        curator.stream(**options).release(block)

    def good() -> dict[str, Any]:
        return {
            "curator": small_curator(JOINT),
            "statistic": PAIRS,
            "releases": 5,
            "block": 0,
            "kind": "auto",
            "mu": None,
        }

    return Call(stream, good, fixed=("curator",), watched=_state)
