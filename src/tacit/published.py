"""Reads published policies. Needs NumPy alone: copy this one file to a device and use it there.

A published file is public: an npz archive of plain arrays, never pickled, or a JSON text of them
(``{"tacit": "policy", "arrays": {name: {"dtype", "shape", "data"}}}``, data in C order). All have
``format`` (this layout's version), ``version`` (which policy it is) and, but for tables, ``kind``:

* tables for finite worlds: ``n_actions``, and either ``actions`` of shape (horizon, states) or
  ``probabilities`` of shape (horizon, states, actions), and perhaps ``state_labels`` and
  ``action_labels``;
* ``"mixed"`` for several tables, of which a user follows one: the same with an axis of components
  in front, and either ``weights`` to draw one by, or ``slots``, that of every place in a block;
* ``"gains"`` for control: ``gains``, (horizon, controls, states), and ``noise``;
* ``"q"`` for states that are vectors: ``weights`` (actions, features), ``epsilon``,
  ``preference``, and ``features`` with its parameters (see :func:`features`);
* ``"network"``: ``sizes``, ``theta``, ``epsilon`` and ``preference``;
* ``"softmax"``: ``weights`` and ``features`` as for ``"q"``; actions are drawn in proportion to the
  exponentials of their values;
* ``"gaussian"`` for actions that are vectors: the same with a row of weights for each coordinate,
  ``sigma``, and the box ``action_lows`` to ``action_highs``, whose corners are -1 and 1 for both.

    policy = published.load("policy.npz")
    action = policy.act(step, state)  # a label where the state is given by one, "idle"

Those that draw need a generator as well, ``numpy.random.default_rng()``. A mixed one is drawn from
once per episode, ``component = policy.draw(rng)``, and the episode says what was drawn.

Facts that acting does not need are read by :func:`about`: ``about``, a JSON object with guarantee,
spec, date and maker; ``ledger_line`` and ``ledger_head``, the number and hash of the last line that
its agent's ledger had; and ``hash``, that of all the rest (:func:`digest`), refused if it is wrong.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import os
import re
import stat
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FORMAT = 1

MOST_BYTES = 1 << 27
"""What the arrays of a file, and acting by it, may take in memory, by default: 128 MiB each."""

_TOLERANCE = 1e-8
# What names and shapes may add to the arrays themselves.
_HEADERS = 1 << 16
_TOO_LARGE = "too large: its arrays take more than {} bytes (see most_bytes)"
# More than any published policy has: arrays, coordinates of a state, layers of a network.
_MOST_ARRAYS, _MOST_COORDINATES, _MOST_LAYERS = 64, 4096, 100
_MOST_COMPONENTS = 4096


Rng = np.random.Generator | None
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PublishedPolicy:
    """A policy as it was published: one of the two arrays, the other is ``None``."""

    probabilities: NDArray[np.float64] | None  # (horizon, states, actions), for a stochastic policy
    actions: NDArray[np.int64] | None  # (horizon, states), for a deterministic one
    n_actions: int  # how many actions there are
    version: int  # which policy of its agent it is
    state_labels: tuple[str, ...] | None = None  # the names of states, where they have any
    action_labels: tuple[str, ...] | None = None

    def act(self, step: int, state: int | str, rng: Rng = None) -> int | str:
        """The action at a step (from 0) in a state, by its label where the state is given so."""
        if not isinstance(state, str):
            return choose(self.probabilities, self.actions, step, state, rng)
        if self.state_labels is None or state not in self.state_labels:
            raise ValueError(f"state must be one of {self.state_labels}, got {state!r}")
        code = self.state_labels.index(state)
        action = choose(self.probabilities, self.actions, step, code, rng)
        return action if self.action_labels is None else self.action_labels[action]


@dataclass(frozen=True, eq=False)
class PublishedMixed:
    """Policies as they were published, of which each user follows one."""

    components: tuple[PublishedPolicy, ...]
    weights: NDArray[np.float64]  # with which chance each is drawn
    slots: NDArray[np.int64] | None  # the component of every place in a block, if not drawn
    version: int  # which policy of its agent it is

    def draw(self, rng: Rng) -> int:
        """The component to follow, drawn once per episode; the episode must say which it is."""
        return draw(self.weights, rng)

    def component_of(self, slot: int) -> int:
        """The component that belongs to a place in the block, from 0."""
        if self.slots is None:
            raise ValueError("users draw their components: this policy has no slots")
        return int(self.slots[slot % len(self.slots)])

    def act(
        self, step: int, state: int | str, rng: Rng = None, component: int | None = None
    ) -> int | str:
        """The action of a component at a step (from 0) in a state."""
        if component is None or not 0 <= component < len(self.components):
            raise ValueError(
                f"component must be in 0..{len(self.components) - 1}, got {component!r}"
            )
        return self.components[component].act(step, state, rng)


@dataclass(frozen=True, eq=False)
class PublishedGains:
    """A published controller: u = gains[step] x, and random signs times ``noise`` for exploring."""

    gains: NDArray[np.float64]  # (horizon, controls, states)
    noise: float  # how far every coordinate of the control is moved up or down
    version: int  # which policy of its agent it is

    def act(self, step: int, state: ArrayLike, rng: Rng = None) -> NDArray[np.float64]:
        """The control at a step (from 0) in a state; ``rng`` is used where there is noise."""
        x = np.asarray(state, dtype=np.float64)
        horizon, controls, states = self.gains.shape
        if not 0 <= step < horizon or x.shape != (states,):
            raise ValueError(
                f"step must be in 0..{horizon - 1} and state have shape ({states},), got step "
                f"{step!r} and shape {x.shape}"
            )
        control: NDArray[np.float64] = self.gains[step] @ x
        if self.noise > 0.0:
            signs = 2.0 * drawing(rng).integers(2, size=controls) - 1.0
            control = control + self.noise * signs
        return control


@dataclass(frozen=True, eq=False)
class PublishedValues:
    """A published value function; its policy takes the best action, or now and then any."""

    weights: NDArray[np.float64] | None  # (actions, features), or ``None`` for a network
    epsilon: float  # the probability of a uniform action
    preference: tuple[int, ...]  # all actions, the one that wins ties first
    stored: Arrays  # what the features are made of
    version: int  # which policy of its agent it is

    def values(self, state: ArrayLike) -> NDArray[np.float64]:
        """The values of all actions in a state."""
        x = np.asarray(state, dtype=np.float64)
        stored = self.stored
        size = int(stored["sizes"][0]) if self.weights is None else len(_corner(stored))
        if x.shape != (size,):
            raise ValueError(f"state must be a vector of {size} numbers, got shape {x.shape}")
        if self.weights is None:
            return network(x, self.stored["sizes"].tolist(), self.stored["theta"])
        # Not a matrix product, which may round equal sums differently.
        sums: NDArray[np.float64] = (self.weights * features(x, self.stored)).sum(axis=1)
        return sums

    def act(self, step: int, state: ArrayLike, rng: Rng = None) -> int:
        """The action in a state; ``rng`` is used if ``epsilon`` > 0. The step does not matter."""
        if self.epsilon > 0.0 and drawing(rng).random() < self.epsilon:
            return int(drawing(rng).integers(len(self.preference)))
        values = self.values(state)
        return max(self.preference, key=lambda action: float(values[action]))


@dataclass(frozen=True, eq=False)
class PublishedDraws:
    """A published policy that draws: numbered actions, or vectors in a box."""

    weights: NDArray[np.float64]  # (actions or coordinates of one, features)
    stored: Arrays  # what the features are made of, and for vectors sigma and the box
    version: int  # which policy of its agent it is

    def outputs(self, state: ArrayLike) -> NDArray[np.float64]:
        """Logits of actions, or what a vector aims at, in a state."""
        values = PublishedValues(self.weights, 0.0, (), self.stored, self.version)
        return values.values(state)

    def act(self, step: int, state: ArrayLike, rng: Rng = None) -> int | NDArray[np.float64]:
        """The action in a state. The step does not matter; no ``rng`` is needed if sigma is 0."""
        outputs = self.outputs(state)
        if "sigma" not in self.stored:
            chances = np.exp(outputs - outputs.max())
            return draw(chances / chances.sum(), rng)
        low, high = self.stored["action_lows"], self.stored["action_highs"]
        aim, sigma = np.clip(outputs, -1.0, 1.0), float(self.stored["sigma"])
        if sigma > 0.0:
            aim = np.clip(aim + sigma * drawing(rng).standard_normal(len(aim)), -1.0, 1.0)
        action: NDArray[np.float64] = low + (aim + 1.0) / 2.0 * (high - low)
        return action


Published = PublishedPolicy | PublishedMixed | PublishedGains | PublishedValues | PublishedDraws


def features(state: NDArray[np.float64], stored: Arrays) -> NDArray[np.float64]:
    """The features of a state by one of five maps; zeros where the state is not finite.

    ``"grid"``: weights of multilinear interpolation on a regular grid from ``lows`` to ``highs``
    with ``shape`` points. ``"polynomial"``: all monomials up to ``degree`` of coordinates over
    ``scales``, clipped at ``clip``. ``"fourier"``: products of cosines up to ``degree``.
    ``"quadrature"`` and ``"nystroem"``: those of a kernel of ``lengthscale``, see
    :func:`kernel_features`.
    """
    kind = str(stored["features"])
    if kind in ("quadrature", "nystroem"):
        lows, highs = stored["lows"], stored["highs"]
        x = (np.clip(np.nan_to_num(state), lows, highs) - lows) / (highs - lows)
        values = kernel_features(x, stored)
        return values if np.isfinite(state).all() else np.zeros_like(values)
    if kind == "polynomial":
        degree, dimension = int(stored["degree"]), len(state)
        clip = float(stored["clip"])
        z = np.clip(state / stored["scales"], -clip, clip)
        monomials = [
            factors
            for k in range(degree + 1)
            for factors in itertools.combinations_with_replacement(range(dimension), k)
        ]
        values = np.array([np.prod(z[list(factors)]) for factors in monomials])
    else:
        lows, highs = stored["lows"], stored["highs"]
        x = (np.clip(state, lows, highs) - lows) / (highs - lows)
        values = np.ones(1)
        for i, position in enumerate(x.tolist()):
            if kind == "fourier":
                along = np.cos(np.pi * np.arange(int(stored["degree"]) + 1) * position)
            else:
                points = int(stored["shape"][i])
                along = np.maximum(0.0, 1.0 - np.abs(position * (points - 1) - np.arange(points)))
            values = (values[:, np.newaxis] * along).ravel()
    return values if np.isfinite(state).all() else np.zeros_like(values)


def kernel_features(x: NDArray[np.float64], stored: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """A kernel's features of a point of the unit cube.

    Quadrature: waves whose frequencies are the ``nodes`` of a Gauss-Hermite rule along each
    coordinate, cosines of one of each pair w, -w and then their sines. Nystroem: K^(-1/2) k(x),
    with the kernel's values at the ``centres``; of a Matern kernel of some ``smoothness``.
    """
    scale = float(stored["lengthscale"])
    if str(stored["features"]) == "quadrature":
        roots, weights = np.polynomial.hermite.hermgauss(int(stored["nodes"]))
        along = list(zip(roots * math.sqrt(2.0) / scale, weights / math.sqrt(math.pi), strict=True))
        cosines, sines = [], []
        for nodes in itertools.product(along, repeat=len(x)):
            w = [0.0 if abs(node) < 1e-12 else node for node, _ in nodes]
            first = next((node for node in w if node), 0.0)
            size = math.sqrt((2.0 if first else 1.0) * math.prod(weight for _, weight in nodes))
            phase = float(np.dot(w, x))
            if first >= 0.0:
                cosines.append(size * math.cos(phase))
                sines += [size * math.sin(phase)] if first else []
        return np.array(cosines + sines)
    lows, highs, smoothness = stored["lows"], stored["highs"], float(stored["smoothness"])
    at = (np.clip(stored["centres"], lows, highs) - lows) / (highs - lows)

    def kernel(here: NDArray[np.float64]) -> NDArray[np.float64]:
        distance = np.sqrt(((here[:, np.newaxis] - at) ** 2).sum(axis=-1)) / scale
        if math.isinf(smoothness):
            return np.asarray(np.exp(-0.5 * distance**2))
        r = math.sqrt(2.0 * smoothness) * distance
        factor = {0.5: 1.0, 1.5: 1.0 + r, 2.5: 1.0 + r + r**2 / 3.0}[smoothness]
        return np.asarray(factor * np.exp(-r))

    values, vectors = np.linalg.eigh(kernel(at))
    root = (vectors / np.sqrt(np.maximum(values, 0.0) + 1e-9 * len(at))) @ vectors.T
    features: NDArray[np.float64] = kernel(x[np.newaxis])[0] @ root
    return features


def network(
    state: NDArray[np.float64], sizes: list[int], theta: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The outputs of a network: layers of ``sizes`` units, rectified but for the last."""
    values, start = state, 0
    for layer, (below, above) in enumerate(itertools.pairwise(sizes)):
        weights = theta[start : start + below * above].reshape(above, below)
        start += below * above
        values = weights @ values + theta[start : start + above]
        start += above
        if layer < len(sizes) - 2:
            values = np.maximum(values, 0.0)
    return values


def choose(
    probabilities: NDArray[np.float64] | None,
    actions: NDArray[np.int64] | None,
    step: int,
    state: int,
    rng: Rng,
) -> int:
    """The action that the tables prescribe, drawn where they are probabilities."""
    table = probabilities if actions is None else actions
    if table is None:
        raise ValueError("a policy needs actions or probabilities")
    horizon, states = table.shape[:2]
    # A negative index would silently mean another step or state.
    if not (0 <= step < horizon and 0 <= state < states):
        raise ValueError(
            f"step must be in 0..{horizon - 1} and state in 0..{states - 1}, "
            f"got step {step!r} and state {state!r}"
        )
    if actions is not None:
        return int(actions[step, state])
    return draw(table[step, state], rng)


def drawing(rng: Rng) -> np.random.Generator:
    """A generator where one is needed."""
    if rng is None:
        raise ValueError("this policy draws its actions: give rng, numpy.random.default_rng()")
    return rng


def draw(row: NDArray[np.float64], rng: Rng) -> int:
    """An index with the probabilities of a row."""
    rng = drawing(rng)
    possible = np.flatnonzero(row)
    # Rounding can leave the sum below 1; what has probability zero is never drawn.
    index = np.searchsorted(np.cumsum(row[possible]), rng.random(), side="right")
    return int(possible[min(int(index), len(possible) - 1)])


def load(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> Published:
    """Reads a published file and checks it.

    Args:
        path: of the file.
        most_bytes: how much its arrays may take in memory. Archives can be compressed a
            thousandfold: without a limit a small file of a stranger fills a device. A policy
            that takes more to act by is refused as well.

    Raises:
        ValueError: the file is damaged, foreign, too large, no regular file, or of a format that
            this loader cannot read.
        OSError: it cannot be opened; a missing one is a FileNotFoundError.
    """
    return _loaded(path, most_bytes)[0]


def about(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """What a published file says besides its policy; it is checked, and refused, as by load."""
    return _loaded(path, most_bytes)[1]


def _loaded(path: str | os.PathLike[str], most_bytes: int) -> tuple[Published, dict[str, Any]]:
    data = _read(path, most_bytes)
    try:
        text = data.lstrip()[:1] == b"{"
        stored = _from_json(data, most_bytes) if text else _arrays(data, most_bytes)
        if "hash" in stored and str(stored["hash"]) != digest(stored):
            raise ValueError("its hash is not that of what it holds: it was changed")
        return _decode(stored, most_bytes), _facts(stored)
    except Exception as error:  # NumPy and zipfile may raise anything; the file is to blame
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        short = (reason or type(error).__name__)[:500]
        raise ValueError(f"{os.fspath(path)!r} is no published policy: {short}") from error


def _read(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """All of a regular file; a FIFO is not waited for, and a device not read."""
    name, more = os.fspath(path), getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    with open(path, "rb", opener=lambda file, flags: os.open(file, flags | more)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{name!r} is no regular file")
        if status.st_size > most_bytes + _HEADERS:
            raise ValueError(f"{name!r} is {_TOO_LARGE.format(most_bytes)}")
        return file.read(status.st_size) or b""


def _arrays(data: bytes, most_bytes: int) -> Arrays:
    """The arrays of an archive, all of whose sizes are checked before anything is inflated."""
    if not data.startswith(b"PK"):
        raise ValueError("it is no npz archive")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        # Nothing is inflated beyond what its entry says. Other methods may take any memory.
        if sum(entry.file_size for entry in entries) > most_bytes + _HEADERS:
            raise ValueError(_TOO_LARGE.format(most_bytes))
        methods = {entry.compress_type for entry in entries}
        if len(entries) > _MOST_ARRAYS or methods - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("it has entries that no published policy has")
        return {e.filename.removesuffix(".npy"): _array(archive.read(e)) for e in entries}


def _array(data: bytes) -> NDArray[Any]:
    """One array, if its shape is that of its bytes: else memory is taken for what is not there."""
    file = io.BytesIO(data)
    major = np.lib.format.read_magic(file)[0]
    read = (
        np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read(file)
    if dtype.kind not in "biufU" or math.prod(shape) * dtype.itemsize != len(data) - file.tell():
        raise ValueError(f"an array of {dtype} and shape {shape} does not fit its bytes")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(
        shape, order="F" if fortran else "C"
    )


def check(
    probabilities: NDArray[np.float64] | None, actions: NDArray[np.int64] | None, n_actions: int
) -> None:
    """Raises a ValueError that names what is wrong with a policy's tables."""
    if (probabilities is None) == (actions is None):
        raise ValueError("give actions or probabilities, and not both")
    if actions is not None:
        if actions.ndim != 2 or actions.dtype.kind not in "iu" or 0 in actions.shape:
            raise ValueError(
                f"actions must be integers of shape (horizon, states), "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        bad = (actions < 0) | (actions >= n_actions)
        if bad.any():
            step, state = map(int, np.unravel_index(int(bad.argmax()), bad.shape))
            raise ValueError(
                f"actions[{step}, {state}] must be in 0..{n_actions - 1}, "
                f"got {int(actions[step, state])}"
            )
    if probabilities is not None:
        _check_probabilities(probabilities, n_actions)


def _check_probabilities(table: NDArray[np.float64], n_actions: int) -> None:
    if table.ndim != 3 or table.dtype.kind != "f" or 0 in table.shape:
        raise ValueError(
            f"probabilities must be floats of shape (horizon, states, actions), "
            f"got {table.dtype} of shape {table.shape}"
        )
    if table.shape[2] != n_actions:
        raise ValueError(f"n_actions must be {table.shape[2]} as in the table, got {n_actions}")
    # A row with a NaN fails the comparison of its sum.
    good = (table >= 0).all(axis=2) & (np.abs(table.sum(axis=2) - 1.0) <= _TOLERANCE)
    if not good.all():
        step, state = map(int, np.unravel_index(int(good.argmin()), good.shape))
        raise ValueError(
            f"probabilities[{step}, {state}] must be non-negative and sum to 1, "
            f"got {table[step, state].tolist()}"
        )


def check_mixed(
    size: int, weights: NDArray[Any] | None, slots: NDArray[Any] | None
) -> tuple[NDArray[np.float64], NDArray[np.int64] | None]:
    """Weights and slots of so many components, read-only; a ValueError says what is wrong."""
    if (weights is None) == (slots is None):
        raise ValueError("give weights or slots, and not both")
    if slots is not None:
        good = slots.ndim == 1 and slots.size > 0 and slots.dtype.kind in "iu"
        if not good or slots.min() < 0 or slots.max() >= size:
            raise ValueError(f"slots must be a list of components, 0..{size - 1}")
        slots = slots.astype(np.int64)
        slots.setflags(write=False)
        weights = np.bincount(slots, minlength=size) / len(slots)
    assert weights is not None  # noqa: S101
    good = weights.shape == (size,) and weights.dtype.kind in "iuf" and bool((weights >= 0).all())
    if not good or not abs(weights.sum() - 1.0) <= _TOLERANCE:
        raise ValueError(f"weights must be {size} non-negative numbers that sum to 1")
    weights = weights.astype(np.float64)
    weights.setflags(write=False)
    return weights, slots


def _mixed(stored: Arrays, version: int) -> PublishedMixed:
    probabilities, actions = stored.get("probabilities"), stored.get("actions")
    tables = probabilities if actions is None else actions
    if (probabilities is None) == (actions is None) or tables is None or tables.ndim < 1:
        raise ValueError("give actions or probabilities, and not both")
    if not 0 < len(tables) <= _MOST_COMPONENTS:
        raise ValueError(f"there must be 1 to {_MOST_COMPONENTS} components, got {len(tables)}")
    parts = []
    for table in tables:
        chances, taken = (table, None) if actions is None else (None, table)
        parts.append(_table(stored, chances, taken, version))
    weights, slots = check_mixed(len(parts), stored.get("weights"), stored.get("slots"))
    return PublishedMixed(tuple(parts), weights, slots, version)


def _decode(stored: Arrays, most_bytes: int) -> Published:
    form = _whole(stored, "format")
    if form != FORMAT:
        raise ValueError(f"its format is {form}; this loader reads {FORMAT}")
    kind, version = str(stored.get("kind", "table")), _whole(stored, "version")
    if kind == "table":
        return _table(stored, stored.get("probabilities"), stored.get("actions"), version)
    if kind == "mixed":
        return _mixed(stored, version)
    if kind == "gains":
        _check_numbers("gains", stored["gains"], 3)
        return PublishedGains(stored["gains"], _number(stored, "noise"), version)
    if kind in ("softmax", "gaussian"):
        return _draws(stored, kind, version, most_bytes)
    if kind not in ("q", "network"):
        raise ValueError(f"its kind is {kind!r}; this loader does not know it")
    order = stored["preference"]
    if order.ndim != 1 or order.dtype.kind not in "iu" or not len(order):
        raise ValueError("preference must be a list of actions")
    numbers = stored["weights" if kind == "q" else "theta"]
    _check_numbers("weights" if kind == "q" else "theta", numbers, 2 if kind == "q" else 1)
    if kind == "q":
        _check_features(stored, len(order), most_bytes)
    else:
        _check_network(stored, len(order))
    if not np.array_equal(np.sort(order), np.arange(len(order))):
        raise ValueError("preference must hold every action once")
    epsilon, first = _number(stored, "epsilon", 1.0), tuple(order.tolist())
    return PublishedValues(numbers if kind == "q" else None, epsilon, first, stored, version)


def _draws(stored: Arrays, kind: str, version: int, most_bytes: int) -> PublishedDraws:
    weights = stored["weights"]
    _check_numbers("weights", weights, 2)
    _check_features(stored, len(weights), most_bytes)
    if kind == "gaussian":
        _number(stored, "sigma")
        for name in ("action_lows", "action_highs"):
            _check_numbers(name, stored[name], 1)
            if len(stored[name]) != len(weights):
                raise ValueError(f"{name} must have {len(weights)} numbers")
    return PublishedDraws(weights, stored, version)


def _table(stored: Arrays, chances: Any, actions: Any, version: int) -> PublishedPolicy:
    """One table, with the labels of the file."""
    n_actions = _whole(stored, "n_actions")
    check(chances, actions, n_actions)
    states = (actions if chances is None else chances).shape[1]
    labels: list[tuple[str, ...] | None] = []
    for name, size in (("state_labels", states), ("action_labels", n_actions)):
        found = stored.get(name)
        labels.append(None if found is None else tuple(map(str, found.ravel().tolist())))
        right = found is None or (found.dtype.kind == "U" and found.shape == (size,))
        if not right or len({*(labels[-1] or range(size))}) < size:
            raise ValueError(f"{name} must be {size} different texts")
    return PublishedPolicy(chances, actions, n_actions, version, *labels)


def digest(stored: Arrays) -> str:
    """The SHA-256 of all arrays but ``hash``, in the order of their names, in UTF-8.

    Of each: name, kind (i, f or u) and sizes (with commas), a zero byte behind each of them, and
    the entries in C order: 64 bits, little-endian, or texts with zero bytes between.
    """
    found = hashlib.sha256()
    for name in sorted(set(stored) - {"hash"}):
        array = np.asarray(stored[name])
        kind = {"f": "f", "U": "u"}.get(array.dtype.kind, "i")
        found.update(f"{name}\0{kind}\0{','.join(map(str, array.shape))}\0".encode())
        if kind == "u":
            found.update("\0".join(map(str, array.ravel().tolist())).encode())
        else:
            found.update(array.astype("<f8" if kind == "f" else "<i8").tobytes())
    return found.hexdigest()


def _from_json(data: bytes, most_bytes: int) -> Arrays:
    """The arrays of a JSON text."""
    # In memory a number of two letters takes a few dozen bytes.
    if len(data) > most_bytes // 16:
        raise ValueError(_TOO_LARGE.format(most_bytes))
    held = json.loads(data)
    if held.get("tacit") != "policy" or len(held["arrays"]) > _MOST_ARRAYS:
        raise ValueError("it has other entries than a published policy")
    stored = {}
    for name, entry in held["arrays"].items():
        kind, shape, values = entry["dtype"], entry["shape"], entry["data"]
        types = {"int": (int,), "float": (int, float), "text": (str,)}[kind]
        right = all(type(value) in types for value in values)
        if not right or math.prod(map(int, shape)) != len(values):
            raise ValueError(f"{name!r} does not fit its shape or type")
        dtype = {"int": np.int64, "float": np.float64, "text": np.str_}[kind]
        stored[str(name)] = np.array(values, dtype=dtype).reshape(shape)
    return stored


def _facts(stored: Arrays) -> dict[str, Any]:
    """The version, and what the file says of its agent and of its ledger, if anything."""
    said = json.loads(str(stored["about"])) if "about" in stored else {}
    if not isinstance(said, dict):
        raise ValueError("about must be a JSON object")
    found: dict[str, Any] = {**said, "version": _whole(stored, "version")}
    for name in {"state_labels", "action_labels", "hash"} & set(stored):
        found[name] = stored[name].tolist()
    if "ledger_head" in stored:
        head = str(stored["ledger_head"])
        if not re.fullmatch("[0-9a-f]{64}", head):
            raise ValueError("ledger_head must be 64 hexadecimal digits")
        found |= {"ledger_line": _whole(stored, "ledger_line"), "ledger_head": head}
    return found


def _check_features(stored: Arrays, actions: int, most_bytes: int) -> None:
    """Whether the map has as many features as there are weights, and can be evaluated."""
    kind, count = str(stored["features"]), stored["weights"].shape[1]
    names = ("scales",) if kind == "polynomial" else ("lows", "highs")
    for name in names:
        _check_numbers(name, stored[name], 1)
    dimension, degree = len(_corner(stored)), 0
    if {len(stored[name]) for name in names} != {dimension} or dimension > _MOST_COORDINATES:
        raise ValueError(
            f"{' and '.join(names)} must have as many numbers as a state, at most "
            f"{_MOST_COORDINATES}"
        )
    if kind == "grid":
        points = stored["shape"]
        if points.shape != (dimension,) or points.dtype.kind not in "iu" or (points < 1).any():
            raise ValueError("shape must be a number of points along each coordinate")
        size = math.prod(points.tolist())
    elif kind in ("polynomial", "fourier"):
        # There are more features than the degree, so a number beyond them need not be counted.
        degree = min(_whole(stored, "degree"), count)
        size = (
            (degree + 1) ** dimension if kind == "fourier" else _monomials(dimension, degree, count)
        )
    elif kind in ("quadrature", "nystroem"):
        size = _check_kernel(stored, kind, dimension, count)
    else:
        raise ValueError(f"its features are {kind!r}; this loader does not know them")
    if kind == "polynomial":
        if not (stored["scales"] > 0).all():
            raise ValueError("scales must be positive")
        _number(stored, "clip")
    elif not (stored["lows"] < stored["highs"]).all():
        raise ValueError("lows must be less than highs")
    if (actions, size) != stored["weights"].shape:
        raise ValueError(f"weights of shape {stored['weights'].shape} do not fit the features")
    # Products along each coordinate, and one for each weight; a monomial lists its factors.
    needed = 8 * size * (actions + 4) + (size * (8 * degree + 200) if kind == "polynomial" else 0)
    if needed > most_bytes:
        raise ValueError(
            f"acting would take {needed} bytes, more than {most_bytes} (see most_bytes)"
        )


def _check_kernel(stored: dict[str, NDArray[Any]], kind: str, dimension: int, most: int) -> int:
    """How many features a kernel's map has, or some number above ``most``."""
    if not _number(stored, "lengthscale") > 0.0:
        raise ValueError("lengthscale must be positive")
    if kind == "quadrature":
        nodes = _whole(stored, "nodes")
        if not 1 <= nodes <= min(most, 100):
            raise ValueError("nodes must be in 1..100, and no more than there are weights")
        return int(nodes**dimension)
    _check_numbers("centres", stored["centres"], 2)
    if stored["centres"].shape[1] != dimension or len(stored["centres"]) > 1024:
        raise ValueError("centres must be at most 1024 points with as many numbers as a state")
    if stored["smoothness"].shape or float(stored["smoothness"]) not in (0.5, 1.5, 2.5, math.inf):
        raise ValueError("smoothness must be 0.5, 1.5, 2.5 or infinite")
    return len(stored["centres"])


def _monomials(dimension: int, degree: int, most: int) -> int:
    """How many there are up to a degree, or some number above ``most``."""
    small, large, found = *sorted((dimension, degree)), 1
    for i in range(1, small + 1):
        found = found * (large + i) // i
        if found > most:
            break
    return found


def _check_network(stored: Arrays, actions: int) -> None:
    array = stored["sizes"]
    if array.ndim != 1 or array.dtype.kind not in "iu" or not 2 <= len(array) <= _MOST_LAYERS:
        raise ValueError(f"sizes must be those of at most {_MOST_LAYERS} layers")
    sizes = array.tolist()
    needed = sum((below + 1) * above for below, above in itertools.pairwise(sizes))
    if min(sizes) < 1 or sizes[-1] != actions or stored["theta"].shape != (needed,):
        raise ValueError("theta, sizes and preference do not fit each other")


def _corner(stored: Arrays) -> NDArray[Any]:
    """An array with a number for each coordinate of a state."""
    return stored["scales" if str(stored["features"]) == "polynomial" else "lows"]


def _whole(stored: Arrays, name: str) -> int:
    array = stored[name]
    if array.shape != () or array.dtype.kind not in "iu" or array < 0:
        raise ValueError(f"{name} must be a whole number of at least 0")
    return int(array)


def _number(stored: Arrays, name: str, most: float = math.inf) -> float:
    array = stored[name]
    if array.shape != () or array.dtype.kind not in "iuf" or not 0 <= array <= most:
        raise ValueError(f"{name} must be a number from 0 to {most}")
    return float(array)


def _check_numbers(name: str, array: NDArray[Any], axes: int) -> None:
    right = array.ndim == axes and array.dtype.kind == "f" and 0 not in array.shape
    if not right or not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite floats with {axes} axes, got {array.dtype} of shape "
            f"{array.shape}"
        )
