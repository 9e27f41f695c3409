"""The runs behind ``tacit run`` and ``tacit compare``: refused early, interrupted cleanly."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from tacit.cli import options
from tacit.cli.output import say
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice
    from tacit.simulation.compare import Comparison


def simulate(
    world: str,
    lines: Sequence[tuple[str, AgentChoice, Privacy]],
    users: str,
    seeds: tuple[str, str],
    workers: str | None,
    plot: str | None,
    save: str | None,
) -> Comparison:
    """Runs lines of label, agent and privacy, and writes the files; refuses before it runs."""
    from tacit.core.texts import whole_number
    from tacit.registry import build_world
    from tacit.simulation.compare import Contender, compare
    from tacit.simulation.plots import PALETTE

    declared, runs = whole_number("users", users), options.seeds_from(*seeds)
    processes = options.worker_count(workers)
    options.check_writable("--plot", plot, picture=True)
    options.check_writable("--save", save)
    if plot is not None and len(lines) > (most := len(PALETTE)):
        raise InvalidArgument(f"--plot shows at most {most} lines, but {len(lines)} are compared")
    entries = [Contender(*line) for line in lines]
    built = build_world(world)
    with interruptible():
        made = compare(built, entries, declared, runs, processes, text=world)
    if save is not None:
        made.save(save)
    if plot is not None:
        made.plot(plot)
    return made


def say_files(plot: str | None, save: str | None) -> None:
    """Says which files were written."""
    for what, path in (("The picture is", plot), ("The results are in", save)):
        if path is not None:
            typer.echo(f"{what} {path}")


def say_rebuilt(agents: Iterable[AgentChoice]) -> None:
    """Says of whom nothing can be said by these runs."""
    if after := sorted({agent.after for agent in agents if agent.after}):
        say(
            f"After {' and '.join(after)}: rebuilt from memory, without the paper's text at hand. "
            "It is no measurement of the paper."
        )


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C end the options.processes of a run, which would else finish all seeds first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    from multiprocessing import active_children

    def stop(number: int, frame: object) -> None:
        for child in active_children():
            child.terminate()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
