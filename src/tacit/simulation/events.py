"""What a run tells while it goes on: public facts of each release, to callbacks and to a log.

A policy and how many users it was learnt from are public; its value is known because the world is
simulated. Nothing of any user is among them. The logger is ``tacit``, with a line per release at
the level INFO: ``logging.basicConfig(level=logging.INFO)`` shows it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tacit.privacy.errors import MissingExtra

if TYPE_CHECKING:
    from tacit.simulation.result import Result

LOGGER = logging.getLogger("tacit")
LOGGER.addHandler(logging.NullHandler())


@dataclass(frozen=True)
class Event:
    """A release of a run."""

    agent: str  # its name
    world: str  # its name
    seed: int  # of the run
    release: int  # 0 is there before the first user
    users: int  # served before it
    policy: Any = field(repr=False)  # serves users from now on
    greedy_policy: Any = field(repr=False)  # published beside it
    value: float  # of the policy, in the simulated world
    greedy_value: float  # of the greedy one


Callback: TypeAlias = Callable[[Event], object]
"""Is called at every release, in the process of the run; what it raises ends the run."""


def announce(event: Event, callback: Callback | None) -> None:
    """Logs a release and calls back."""
    LOGGER.info(
        "%s on %s, seed %d: release %d after %d users, value %.4g, greedy %.4g",
        *(event.agent, event.world, event.seed, event.release, event.users),
        *(event.value, event.greedy_value),
    )
    if callback is not None:
        callback(event)


class TensorBoard:
    """A callback that writes values for TensorBoard, by its own writer: a folder per run.

    Steps are users served. Close it, or use it in a ``with``, so that all is written.

    Args:
        folder: made if there is none; ``tensorboard --logdir FOLDER`` shows it.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboard.summary.writer import event_file_writer
        except ImportError as error:
            raise MissingExtra("this needs TensorBoard: pip install tensorboard") from error
        self.folder = Path(folder)
        self._kind = event_file_writer.EventFileWriter
        self._writers: dict[str, Any] = {}

    def __call__(self, event: Event) -> None:
        """Writes the values of a release."""
        values = {"value": event.value, "greedy_value": event.greedy_value}
        self._write(f"{event.agent} {event.world} {event.seed}", event.users, values)

    def write(self, result: Result, label: str | None = None) -> None:
        """Writes all of a run that is over."""
        columns = {"value": result.values, "greedy_value": result.greedy_values}
        for release, users in enumerate(result.served.tolist()):
            values = {name: float(column[release]) for name, column in columns.items()}
            self._write(f"{label or result.agent} {result.world} {result.seed}", users, values)

    def _write(self, run: str, step: int, values: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Entry
        from tensorboard.compat.proto.summary_pb2 import Summary

        name = "".join(c if c.isalnum() or c in "-=." else "_" for c in run)
        if name not in self._writers:
            self._writers[name] = self._kind(str(self.folder / name))
        scalars = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        entry = Entry(wall_time=time.time(), step=step, summary=Summary(value=scalars))
        self._writers[name].add_event(entry)

    def close(self) -> None:
        """Writes what is left, and closes the files."""
        while self._writers:
            self._writers.popitem()[1].close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
