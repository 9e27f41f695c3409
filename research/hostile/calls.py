"""Calls with good arguments of which some become junk, and what may be made of it.

A refusal must name the argument and change nothing; what makes no sense anywhere must be refused.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tacit
from research.hostile.fuzzing import Broken, EntryPoint, Stranger, Strategy
from tacit.privacy.errors import TacitError

# What every argument of every function refuses.
_NOTHING_SENSIBLE: tuple[Any, ...] = (Stranger(), 1j, {"a": 1}, object)

# Stands for a file in the folder of the input, where an argument is one.
_A_FILE = "abc"
_ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 7, 0.5, 1.0, 1.5, -0.0, math.nan, math.inf, -math.inf),
    *(5e-324, 1e-300, 1e300, 1.7e308, 2**31, 2**53 + 1, 2**63, 2**64, 10**18, -(10**18), 10**400),
    *(10**9, "", _A_FILE, "no", "1", "nan", "auto", "every", "\x00", "\ud800", "é" * 50),
    *("geometric", "fixed:size=0", "geometric:growth=1", "geometric:growth=1.0000000001"),
    *("geometric:first=-1", "fixed:size=1e9", "geometric:growth=nan", "geometric:growth=inf"),
    "fixed:size=" + "9" * 5000,
    *(b"\xff", [], (), [1], [[]], [1, "a"], [None], [math.nan], ["x"], (0,), (10**9,), (-1,)),
    *(np.int64(3), np.float32(0.5), np.bool_(True), np.array(3), np.array([1.0, math.nan])),
    *(np.zeros((2, 0)), np.zeros((2, 2, 2)), np.array(["a"]), np.array([1j]), np.array([None])),
    *(np.array([10**6] * 3), np.datetime64("2020-01-01"), tacit.NonPrivate(), tacit.Budget(1, 0)),
    *(*_NOTHING_SENSIBLE, {1, 2}, {}, range(3), range(10**12), Ellipsis, len),
)


def junk() -> Strategy:
    """Values of any type, most of them wrong anywhere."""
    return st.one_of(
        st.sampled_from(_ODD),
        st.sampled_from(_NOTHING_SENSIBLE),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.lists(st.integers() | st.floats() | st.none() | st.text(max_size=3), max_size=4),
    )


@dataclass(frozen=True)
class Call:
    """A call with good arguments, some of which become junk.

    Attributes:
        function: what is called.
        good: makes the arguments, afresh.
        fixed: arguments that stay good: whom the others go to.
        free: arguments that take anything, such as a name that is only shown.
        watched: gives what must not change if the call is refused.
        paths: arguments that are files; they may be refused with an ``OSError``.
        strange: what some arguments become besides.
        absurd: sizes that are large and yet possible become absurd ones.
    """

    function: Callable[..., Any]
    good: Callable[[], dict[str, Any]]
    fixed: tuple[str, ...] = ()
    free: tuple[str, ...] = ("name", "progress", "text", "note")
    watched: Callable[[dict[str, Any]], Any] = lambda arguments: None
    paths: tuple[str, ...] = ("ledger", "autosave", "path")
    strange: Mapping[str, Strategy] = field(default_factory=dict)
    absurd: bool = False

    def entry(self, name: str) -> EntryPoint:
        """The entry point at which such junk goes."""
        return EntryPoint(name, self.inputs, self.attempt)

    def inputs(self) -> Strategy:
        """Which arguments become what."""
        names = sorted(set(self.good()).union(self.strange).difference(self.fixed))

        @st.composite
        def changed(draw: Any) -> dict[str, Any]:
            most = 2 if draw(st.integers(0, 4)) == 0 else 1
            several = st.lists(st.sampled_from(names), min_size=1, max_size=most, unique=True)
            chosen = draw(several)
            return {name: draw(self.strange.get(name, st.nothing()) | junk()) for name in chosen}

        return changed()

    def attempt(self, changed: dict[str, Any], folder: Path) -> None:
        """Calls it, and checks what it makes of the junk."""
        arguments = self.good()
        changed = {name: self._given(name, value, folder) for name, value in changed.items()}
        before = self.watched(arguments)
        try:
            self.function(**arguments | changed)
        except OSError as error:
            if not set(changed) & set(self.paths):
                raise Broken(f"raises {error!r}") from error
            raise tacit.InvalidArgument(str(error)) from error
        except TacitError as refusal:
            if self.watched(arguments) != before:
                raise Broken(f"was refused, and yet something changed ({refusal})") from refusal
            if len(changed) == 1 and not _names(next(iter(changed)), str(refusal)):
                raise Broken(f"the refusal does not name the argument: {refusal}") from refusal
            raise
        for name, value in changed.items():
            if name not in self.free and self._senseless(name, value):
                raise Broken(f"{name} was accepted")

    def _given(self, name: str, value: Any, folder: Path) -> Any:
        """What an argument becomes: what was drawn, but for files and sizes."""
        if name in self.paths and value is _A_FILE:
            return str(folder / "file")
        size = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if self.absurd and size and 50 < value < 10**9:
            return 10**9  # sizes in between are no mistakes, they only take their time
        return value

    def _senseless(self, name: str, value: Any) -> bool:
        if any(value is wrong for wrong in _NOTHING_SENSIBLE):
            return True
        if name not in self._flags:
            return False
        return not isinstance(value, (bool, np.bool_, type(None)))

    @property
    def _flags(self) -> set[str]:
        """The arguments that are true or false, by their annotations."""
        functions = [self.function]
        if inspect.isclass(self.function):
            constructors = [vars(base).get("__init__") for base in self.function.__mro__[:-1]]
            functions = [function for function in constructors if function is not None]
        found = set()
        for function in functions:
            with contextlib.suppress(TypeError, ValueError):
                for parameter in inspect.signature(function).parameters.values():
                    if str(parameter.annotation) in ("bool", "bool | None", "<class 'bool'>"):
                        found.add(parameter.name)
        return found


def constant(**arguments: Any) -> Callable[[], dict[str, Any]]:
    """Good arguments that no call changes."""
    return lambda: dict(arguments)


# Words by which a message may name an argument.
_WORDS = {
    "spec": ("this agent needs", "is for"),
    "user_ids": ("ids",),
    "noise_seed": ("seed",),
    "path": ("file", "name"),
    "data": ("episodes", "block", "array", "versions", "must have shape", "must be numbers"),
    "mu": ("cost", "budget"),
    "epsilon": ("cost", "budget"),
    "make_agent": ("make is", "failed"),
    "seeds": ("seed",),
    "n_actions": ("actions",),
    "counter": ("kind",),
    "arrays": ("array",),
    "shape": ("stack of matrices",),
    "make_world": ("make is", "world"),
    "ledger": ("accounts",),
    "actions": ("states",),
    "states": ("actions",),
    "users": ("user", "releases"),
    "text": ("schedule", "growth", "first", "size"),
    "frame": ("table", "horizon"),
    "user": ("column",),
}


def _names(argument: str, message: str) -> bool:
    if "would need" in message:  # so much memory: which sizes make it is in the shape
        return True
    words = (argument, argument.replace("_", " "), *_WORDS.get(argument, ()))
    return any(word.lower() in message.lower() for word in words)
