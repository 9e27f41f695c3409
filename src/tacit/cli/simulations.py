"""The runs behind ``tacit run`` and ``tacit compare``: refused early, interrupted cleanly."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from tacit.cli import options
from tacit.cli.output import say

if TYPE_CHECKING:
    from tacit.privacy.models import Privacy
    from tacit.registry import AgentChoice
    from tacit.simulation.compare import Comparison


def simulate(
    world: str,
    lines: Sequence[tuple[str, AgentChoice, Privacy]],
    users: str | None,
    seeds: tuple[str, str],
    workers: str | None,
    plot: str | None,
    save: str | None,
    tensorboard: str | None = None,
) -> Comparison:
    """Runs lines of label, agent and privacy, and writes the files; refuses before it runs."""
    from tacit.registry import build_world
    from tacit.simulation.compare import Contender, compare
    from tacit.simulation.events import TensorBoard
    from tacit.simulation.run import usual_users

    declared, runs = options.optional_whole_number("users", users), options.seeds_from(*seeds)
    processes = options.worker_count(workers)
    options.check_writable("--plot", plot, endings=options.PICTURES)
    options.check_writable("--save", save, endings=options.RESULTS)
    board = None if tensorboard is None else TensorBoard(options.folder(tensorboard))
    entries = [Contender(*line) for line in lines]
    built = build_world(world)
    with interruptible():
        users_of = usual_users(built) if declared is None else declared
        made = compare(built, entries, users_of, runs, processes, text=world)
    if board is not None:
        with board:
            for label, results in made.labelled().items():
                for result in results:
                    board.write(result, label)
    if save is not None:
        made.save(save)
    if plot is not None:
        made.plot(plot)
    return made


def say_chosen(made: Comparison) -> None:
    """Says which agents were chosen by rule, and why."""
    chosen = {entry.agent.text: entry.agent.why for entry in made.entries if entry.agent.why}
    for name, why in chosen.items():
        say(f"Chosen: {name}; {why}.")


def say_assumed(made: Comparison) -> None:
    """Says what was taken by rule because the environment does not say it."""
    if made.assumed:
        say(f"By rule: {'; '.join(made.assumed)}. Options of the world override it.")


def say_files(plot: str | None, save: str | None, tensorboard: str | None = None) -> None:
    """Says which files were written."""
    files = {"The picture is": plot, "The results are in": save, "For TensorBoard:": tensorboard}
    for what, path in files.items():
        if path is not None:
            typer.echo(f"{what} {path}")


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
