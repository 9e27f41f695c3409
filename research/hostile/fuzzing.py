"""Throwing inputs at an entry point: what counts as accepted, as refused and as broken.

Every input gets a folder of its own, little memory and little time, and warnings are errors. What
is raised besides the errors that an entry point may raise, or is left behind, is collected.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias
from unittest import mock

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from tacit.privacy.errors import TacitError

Strategy: TypeAlias = "st.SearchStrategy[Any]"
Attempt: TypeAlias = Callable[[Any, Path], None]

# Where Linux says how much is there.
_USED = Path("/proc/self/statm")


class Broken(Exception):
    """Something that must not happen; not an error of Tacit's own, so never mistaken for one."""


class Stranger:
    """What no argument of anything is."""

    def __repr__(self) -> str:
        return "<a stranger>"


@dataclass(frozen=True)
class EntryPoint:
    """One public entry point and what it is fuzzed with.

    Attributes:
        name: how it is called in the report.
        inputs: makes the strategy; called when it is needed.
        attempt: gives one input to it, in a folder of its own. It returns if the input was
            accepted, and raises one of ``typed`` if it was refused.
        typed: with which errors it may refuse. Users' values may not be refused at all.
        memory: what it may take on top of what is there, in bytes.
        seconds: what it may take.
    """

    name: str
    inputs: Callable[[], Strategy]
    attempt: Attempt
    typed: tuple[type[Exception], ...] = (TacitError,)
    memory: int = 2 << 30
    seconds: int = 30


@dataclass
class Tally:
    """What came of the inputs of one entry point."""

    name: str
    tried: int = 0
    refused: int = 0
    accepted: int = 0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.name:<44}{self.tried:>7}{self.refused:>9}{self.accepted:>10}"
            f"{len(self.broken):>8}"
        )


HEADING = f"{'entry point':<44}{'tried':>7}{'refused':>9}{'accepted':>10}{'broken':>8}"
"""What stands above the lines of tallies."""


def fuzz(entry: EntryPoint, examples: int, seed: int = 0) -> Tally:
    """Throws so many inputs at an entry point; collects what broke in place of stopping."""
    tally = Tally(entry.name)

    @hypothesis_seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(entry.inputs())
    def one(value: Any) -> None:
        tally.tried += 1
        try:
            accepted = outcome(entry, value)
        except Broken as found:
            tally.broken.append(str(found))
            return
        tally.accepted += accepted
        tally.refused += not accepted

    one()
    return tally


def outcome(entry: EntryPoint, value: Any) -> bool:
    """Whether an input was accepted; raises :class:`Broken` if it did anything but that."""
    shown = _shown(value)
    with (
        _own_folder() as folder,
        _little_memory(entry.memory),
        _little_time(entry.seconds),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error")
        try:
            entry.attempt(value, folder)
            accepted = True
        except entry.typed as refusal:
            accepted = False
            if _for_memory(refusal):
                raise Broken(f"{shown} takes more memory than it may") from refusal
            if not str(refusal).strip():
                raise Broken(f"{shown} is refused without a word") from refusal
        except Broken as found:
            raise Broken(f"{shown}: {found}") from found
        except Exception as error:
            raise Broken(f"{shown} raises {type(error).__name__}: {_short(error)}") from error
        left = [file.name for file in folder.rglob("*") if file.name.endswith(".tmp")]
        if left:
            raise Broken(f"{shown} leaves temporary files: {left}")
    return accepted


def _for_memory(error: BaseException | None) -> bool:
    """Whether a refusal hides that there was no memory left."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _own_folder() -> Iterator[Path]:
    """An empty folder that is the current one, so that names of files drawn stay in there."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(here)


@contextlib.contextmanager
def _little_memory(most: int) -> Iterator[None]:
    """Little memory, where the system can say so: absurd sizes must show."""
    with mock.patch("tacit.privacy.validation.MOST_BYTES", most // 4):
        if not _USED.exists():  # not Linux
            yield
            return
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = int(_USED.read_text().split()[0]) * resource.getpagesize() + most
        resource.setrlimit(resource.RLIMIT_AS, (min(wanted, hard) if hard > 0 else wanted, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _little_time(seconds: int) -> Iterator[None]:
    """Little time, where an alarm can be set."""
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer"):
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise Broken(f"takes more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 300 else f"{text[:300]}..."


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
