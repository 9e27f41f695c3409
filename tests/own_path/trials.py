"""Trials of the real path for the tests of its checks, and a way to plant a defect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import tacit
from tacit.testing.check_agent import Outcome
from tacit.testing.recording import Trial
from tests.own_path.recorded import RealTrial

JOINT = tacit.JointDP(1.0, 1e-6)
MODELS = {
    "joint": JOINT,
    "pure": tacit.JointDP(1.0, 0.0),
    "three": tacit.JointDP(1.0, 1e-6, episodes_per_user=3),
    "local": tacit.LocalDP(1.0, 1e-6),
    "laplace": tacit.LocalDP(1.0, 0.0),
}


def trial_of(folder: Path, privacy: Any = JOINT, runs: int = 20) -> RealTrial:
    """UCBVI in a small world, with few runs."""
    world = tacit.tabular.riverswim(states=3, horizon=3)
    make = partial(tacit.UCBVI, privacy=privacy, schedule="fixed:size=20")
    return RealTrial(Trial(make, world, folder, users=60), quick=True, runs=runs)


def failures(outcomes: list[Outcome]) -> dict[str, str]:
    """What failed, and why."""
    return {o.name: str(o.failure) for o in outcomes if o.failure is not None}


@contextlib.contextmanager
def planted(owner: Any, name: str, change: Callable[..., Any]) -> Iterator[None]:
    """A method or function whose result is changed: change(original, *arguments)."""
    original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    if isinstance(original, property):
        new: Any = property(lambda self: change(original.fget, self))
    else:

        def new(*arguments: Any, **options: Any) -> Any:
            return change(original, *arguments, **options)

    with mock.patch.object(owner, name, new):
        yield
