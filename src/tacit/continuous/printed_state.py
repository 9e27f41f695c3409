"""What the printed algorithm leaves open, and what it carries from step to step, without noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.base import real
from tacit.continuous.network_policy import first_network, hidden_layers
from tacit.privacy.arguments import flag, one_of, positive, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Floats, Ints


def _part_of_one(name: str, value: Any) -> float:
    number = real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgument(f"{name} must be in [0, 1], got {value!r}")
    return number


def _exploration(value: Any) -> tuple[float, float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise InvalidArgument(f"exploration must be three numbers or None, got {value!r}")
    first, last = (_part_of_one("exploration", chance) for chance in value[:2])
    return first, last, positive("steps of exploration", value[2])


@dataclass(frozen=True)
class PrintedSettings:
    """What the algorithm leaves open, as the authors' public code has it."""

    hidden: tuple[int, ...] = (16, 16)  # units of the hidden layers
    discount: float = 0.999  # of future rewards
    beta: float = 1.0  # of the noise's kernel, exp(-beta |x - y|)
    replay: int = 10_000  # how many transitions are remembered
    batch: int = 128  # how many of them, drawn without replacement, a gradient step is about
    every: int = 1  # steps of users between two gradient steps
    # ``"rmsprop"`` (PyTorch's, decay .99) or ``"sgd"``.
    optimiser: Literal["rmsprop", "sgd"] = "rmsprop"
    rate: float = 1e-2  # learning rate
    loss: Literal["huber", "square"] = "huber"  # ``"huber"`` or ``"square"``
    clamp: float | None = 1.0  # the largest entry of a gradient, or ``None``
    # The probability of a uniform action at first, in the end, and the number of steps in which
    # what is between them falls by the factor e; or ``None`` for none.
    exploration: tuple[float, float, float] | None = (0.9, 0.05, 200.0)
    # Episodes between two copies to the network that makes the targets, which has paths of its own;
    # or ``None`` if the trained network and its own paths make them.
    target_every: int | None = 10
    # Whether the state after the last step of an episode counts as worth nothing.
    worth_nothing: bool = True

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"hidden": hidden_layers(self.hidden)}
        for name in ("batch", "every", "replay"):
            checked[name] = whole_number(name, getattr(self, name))
        if self.target_every is not None:
            checked["target_every"] = whole_number("target_every", self.target_every)
        if checked["replay"] < checked["batch"]:
            raise InvalidArgument(
                f"replay must be at least batch, {self.batch!r}, got {self.replay!r}"
            )
        one_of("optimiser", self.optimiser, ("rmsprop", "sgd"))
        one_of("loss", self.loss, ("huber", "square"))
        for name in ("beta", "rate", "clamp"):
            if name != "clamp" or self.clamp is not None:
                checked[name] = positive(name, getattr(self, name))
        checked["discount"] = _part_of_one("discount", self.discount)
        if self.exploration is not None:
            checked["exploration"] = _exploration(self.exploration)
        checked["worth_nothing"] = flag("worth_nothing", self.worth_nothing)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


SETTINGS: dict[str, PrintedSettings] = {
    "code": PrintedSettings(),
    # beta is B / (4 rate (k + 1)) for the paper's k = 2.3.
    "paper": PrintedSettings(
        beta=64 / (4 * 3e-4 * 3.3),
        replay=64,
        batch=64,
        every=64,
        optimiser="sgd",
        rate=3e-4,
        loss="square",
        clamp=None,
        exploration=None,
        target_every=None,
        worth_nothing=False,
    ),
}
"""Those of the authors' public code, and those that the paper states."""


Path: TypeAlias = tuple[Floats, Ints, Floats, Ints]
"""What is known of a noise path; see :func:`tacit.continuous.network_loops.path_at`."""

_NETWORKS = ("theta", "target", "squares")

PATH = 1024
"""Points that a path has room for at first."""


class Replay:
    """The last transitions, raw."""

    def __init__(self, capacity: int, dimension: int) -> None:
        self.added = 0
        self.arrays = (
            np.zeros((capacity, dimension)),
            np.zeros(capacity, dtype=np.int64),
            np.zeros(capacity),
            np.zeros((capacity, dimension)),
            np.zeros(capacity, dtype=np.bool_),
        )

    @property
    def size(self) -> int:
        """How many are remembered."""
        return min(self.added, len(self.arrays[1]))

    def add(self, *transition: Any) -> None:
        """In place of the oldest, if there is no room."""
        for array, value in zip(self.arrays, transition, strict=True):
            array[self.added % len(array)] = value
        self.added += 1


class PrintedState:
    """All that a step changes, but for what is published.

    Attributes:
        sizes: units by layer: inputs, hidden layers, actions.
        paths: what is known of the noise on both networks.
        rng: of the network's start, exploration and replay.
    """

    def __init__(
        self, sizes: Sequence[int], replay: int, seed: int, noise_seed: int | None
    ) -> None:
        self.sizes: Ints = np.array(sizes, dtype=np.int64)
        self.steps = 0  # how many there were
        self.rng = np.random.default_rng(np.random.SeedSequence([seed, 4]))
        self.noise = np.random.default_rng(noise_seed)  # of the paths
        self.theta = first_network(self.rng, self.sizes.tolist())  # the network that is trained
        self.target = self.theta.copy()  # the network that makes the targets
        self.squares = np.zeros_like(self.theta)  # running mean of squared gradients
        self.replay = Replay(replay, sizes[0])  # the last transitions
        self.paths = [new_path(sizes[0], sizes[-1]) for _ in range(2)]

    def new_paths(self) -> None:
        """What is known of the paths is forgotten."""
        for path in self.paths:
            path[3][:] = 0

    def make_room(self, points: int) -> None:
        """For so many more points on each path."""
        for i, path in enumerate(self.paths):
            known, capacity = int(path[3].max()), path[0].shape[1]
            if known + points > capacity:
                dimension, actions = int(self.sizes[0]), int(self.sizes[-1])
                larger = new_path(dimension, actions, 2 * (known + points))
                for old, new in zip(path[:3], larger[:3], strict=True):
                    new[:, :capacity] = old
                larger[3][:] = path[3]
                self.paths[i] = larger

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything, raw transitions included."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _NETWORKS}
        arrays |= {f"replay/{i}": array for i, array in enumerate(self.replay.arrays)}
        for which, parts in enumerate(self.paths):
            arrays |= {f"path/{which}/{i}": array for i, array in enumerate(parts)}
        meta: dict[str, Any] = {
            "steps": self.steps,
            "remembered": self.replay.added,
            "rng": dict(self.rng.bit_generator.state),
            "noise": dict(self.noise.bit_generator.state),
        }
        return meta, arrays

    def restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """What :meth:`dump` returned; whatever it raises, some of it may have been taken."""
        for own, name in (
            *((getattr(self, name), name) for name in _NETWORKS),
            *((array, f"replay/{i}") for i, array in enumerate(self.replay.arrays)),
        ):
            own[:] = _alike(name, arrays[name], own.shape, own.dtype)
        actions = self.replay.arrays[1]
        if not ((actions >= 0) & (actions < self.sizes[-1])).all():
            raise ValueError("actions that there are not")
        self.paths = [self._saved_path(arrays, which) for which in range(2)]
        self.replay.added = whole_number("remembered", meta["remembered"], least=0)
        self.steps = whole_number("steps", meta["steps"], least=0)
        self.rng.bit_generator.state = meta["rng"]
        self.noise.bit_generator.state = meta["noise"]

    def _saved_path(self, arrays: dict[str, NDArray[Any]], which: int) -> Path:
        """A path of a save; compiled code follows its places without a look."""
        saved = [arrays[f"path/{which}/{i}"] for i in range(4)]
        capacity = saved[0].shape[1]
        for i, empty in enumerate(new_path(int(self.sizes[0]), int(self.sizes[-1]), 0)):
            shape = tuple(capacity if size == 0 else size for size in empty.shape)
            saved[i] = _alike("path", saved[i], shape, empty.dtype).copy()
        points, places, values, counts = saved
        wrong = ((places < 0) | (places >= capacity)).any()
        if wrong or ((counts < 0) | (counts > capacity)).any():
            raise ValueError("places that there are not")
        return points, places, values, counts


def _alike(
    name: str, array: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} must be {dtype} of shape {shape}")
    return array


def new_path(dimension: int, actions: int, capacity: int = PATH) -> Path:
    """Room for what is known of a path."""
    return (
        np.zeros((dimension, capacity)),
        np.zeros((dimension, capacity), dtype=np.int64),
        np.zeros((dimension, capacity, actions)),
        np.zeros(dimension, dtype=np.int64),
    )
