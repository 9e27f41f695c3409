"""Mixtures of simulators: simulated users in worlds with many states, of which no table is made."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.sizes import Floats, check_bytes, check_seed, check_size
from tacit.finite.simulate import simulate_episodes, simulate_streamed
from tacit.finite.sparse import SparseModel
from tacit.finite.world import FiniteWorld
from tacit.mixture.sampled_spec import SampledSpec
from tacit.numerics.simplex import halved, helmert
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.episodes import Episodes
    from tacit.core.world import Form
    from tacit.finite.mixed_policy import AnyPolicy
    from tacit.privacy.statistic import Block

Ints = NDArray[np.int64]

FORMS = ("episodes", "streamed")
"""What such a world hands over: sums of a block would have S A S entries."""


class SampledWorld(FiniteWorld):
    """A world of possible transitions, and base models that agents have as simulators only.

    Args:
        model: what users do.
        spec: what agents know.
        weights: theta, (d,), which they do not.
        name: what it is called.
    """

    exchangeable_actions = False
    model: Any

    def __init__(self, model: SparseModel, spec: SampledSpec, weights: Floats, name: str) -> None:
        dense: Any = model
        super().__init__(dense, name)
        self._spec, self.weights = spec, weights

    @property
    def spec(self) -> SampledSpec:
        """What an agent may know."""
        return self._spec

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """See :class:`~tacit.core.world.World`."""
        if form not in FORMS:
            raise InvalidArgument(f"form must be one of {FORMS} in such a world, got {form!r}")
        make = simulate_episodes if form == "episodes" else simulate_streamed
        return make(self.model, policy, users, rng)

    @cached_property
    def uninformed_value(self) -> float:
        """The value of the best policy for the centre of the weights: of learning nothing."""
        from tacit.core.setting import Setting
        from tacit.mixture.linopt_sampled import LinOptSampled, LinOptSampledOptions
        from tacit.privacy.models import NonPrivate

        setting = Setting(self.spec, 1, NonPrivate())
        return self.value(LinOptSampled(setting, LinOptSampledOptions()).greedy_policy)


class Forecast:
    """One forecast of the currents: where a heading leads, by zone. A base model, as a simulator.

    It has a heading for each zone and action, and no table of states.
    """

    def __init__(self, sea: Sea, headings: Ints) -> None:
        self._sea, self._headings = sea, headings

    def __call__(self, states: Ints, actions: Ints, rng: np.random.Generator) -> Ints:
        """Next states, drawn."""
        strides = np.searchsorted(np.cumsum(_STRIDES[:-1]), rng.random(len(states)), side="right")
        return self._sea.moved(states, self.heading(states, actions), strides)

    def heading(self, states: Ints, actions: Ints) -> Ints:
        """Which way an action leads: 0 north, 1 east, 2 south, 3 west."""
        found: Ints = self._headings[self._sea.zones(states), actions]
        return found


# How probable strides of 0, 1, 2 cells are.
_STRIDES = (0.2, 0.2, 0.6)
_HEADINGS = 4


class Sea:
    """A map of rows and columns of cells that wraps around, in square zones."""

    def __init__(self, rows: int, columns: int, zone: int) -> None:
        self.rows, self.columns, self.zone = rows, columns, zone
        self.across = math.ceil(columns / zone)

    @property
    def count(self) -> int:
        """Zones."""
        return math.ceil(self.rows / self.zone) * self.across

    def zones(self, states: Ints) -> Ints:
        """The zone of every cell."""
        y, x = states // self.columns, states % self.columns
        return y // self.zone * self.across + x // self.zone

    def moved(self, states: Ints, headings: Ints, strides: Ints) -> Ints:
        """So many cells in a direction."""
        dy, dx = np.array([-1, 0, 1, 0]), np.array([0, 1, 0, -1])
        y = (states // self.columns + dy[headings] * strides) % self.rows
        x = (states % self.columns + dx[headings] * strides) % self.columns
        moved: Ints = (y * self.columns + x).astype(np.int64)
        return moved

    def distance(self, states: Ints, to: Ints) -> Floats:
        """To the nearest of some cells."""
        y, x = states // self.columns, states % self.columns
        dy = np.abs(y[:, np.newaxis] - to // self.columns)
        dx = np.abs(x[:, np.newaxis] - to % self.columns)
        dy, dx = np.minimum(dy, self.rows - dy), np.minimum(dx, self.columns - dx)
        return np.asarray(np.hypot(dy, dx).min(axis=1), dtype=np.float64)


def currents(
    rows: int = 100,
    columns: int = 200,
    dimension: int = 10,
    horizon: int = 20,
    seed: int = 0,
    samples: int = 32,
) -> SampledWorld:
    """Boats on a sea of 20,000 cells, forecasts of its currents, and weather that mixes them.

    State:
        A cell of a map of ``rows`` times ``columns`` that wraps around; the start is any of them,
        evenly.
    Actions:
        Four headings. Each of ``dimension`` forecasts has, for every zone of 10 by 10 cells, an
        order of the four directions into which the headings lead there, drawn by the seed. A boat
        goes 0, 1 or 2 cells that way with probabilities .2, .2, .6. Every step the weather follows
        one of the forecasts, drawn with weights of which each is half of the next larger one, in an
        order drawn by the seed. Agents have the forecasts as simulators, of which ``samples``
        next states of every cell and heading are drawn, and know that the weights add up to 1.
    Reward:
        In every cell 1 less a tenth of the distance to the nearest of 12 harbours, rounded to
        tenths, but not less than 0; known.
    Optimum:
        Depends on the seed.
    Source:
        Invented for this library.

    >>> world = currents(rows=10, columns=20, dimension=3, horizon=5)
    >>> world.spec.states, world.spec.dimension, world.baseline_value < world.optimal_value
    (200, 3, True)
    """
    sizes = {"rows": rows, "columns": columns, "dimension": dimension, "horizon": horizon}
    R, C, d, H = (check_size(name, size) for name, size in sizes.items())
    if d < 2 or H < 2 or min(R, C) < 5:
        raise InvalidArgument(f"dimension and horizon must be >= 2, rows and columns >= 5: {sizes}")
    S, A, seed = R * C, _HEADINGS, check_seed("seed", seed)
    check_bytes("possible transitions", (S, A, A, 3), 40)
    rng, sea = np.random.default_rng(seed), Sea(R, C, 10)
    orders = rng.permuted(np.tile(np.arange(A), (d, sea.count, 1)), axis=2)
    forecasts = tuple(Forecast(sea, headings) for headings in orders)
    weights = halved(d, rng)
    harbours = rng.choice(S, max(1, round(12 * S / 20_000)), replace=False)
    near = np.clip(1.0 - sea.distance(np.arange(S), harbours) / 10.0, 0.0, 1.0).round(1)
    model = _mixed(sea, forecasts, weights, near, H)
    spec = SampledSpec(
        S,
        A,
        H,
        True,
        tuple(np.unique(near).tolist()),
        model.start.tolist(),
        models=forecasts,
        known_rewards=np.repeat(near[np.newaxis, :, np.newaxis], A, axis=2),
        samples=samples,
        center=np.full(d, 1.0 / d),
        directions=helmert(d),
        radius=1.0,
    )
    given = f"rows={R},columns={C},dimension={d},horizon={H},seed={seed},samples={spec.samples}"
    return SampledWorld(model, spec, weights, f"currents:{given}")


def _mixed(
    sea: Sea, forecasts: tuple[Forecast, ...], weights: Floats, near: Floats, horizon: int
) -> SparseModel:
    """What the weather does: all possible transitions, exactly."""
    S, A = sea.rows * sea.columns, _HEADINGS
    cells = np.arange(S * A)
    source, action = cells // A, cells % A
    chances = np.zeros((S * A, A))
    for weight, forecast in zip(weights, forecasts, strict=True):
        chances[cells, forecast.heading(source, action)] += weight
    rows: list[tuple[Ints, Ints, Floats]] = [(cells, source, np.full(S * A, _STRIDES[0]))]
    for heading in range(A):
        for stride in (1, 2):
            after = sea.moved(source, np.full(S * A, heading), np.full(S * A, stride))
            rows.append((cells, after, chances[:, heading] * _STRIDES[stride]))
    at, target, chance = (np.concatenate(column) for column in zip(*rows, strict=True))
    # On a small map two ways may lead to one cell.
    keys, inverse = np.unique(at * S + target, return_inverse=True)
    sums: Floats = np.bincount(inverse, chance).astype(np.float64)
    keys, chance = keys[sums > 0.0], sums[sums > 0.0]
    at, target = keys // S, keys % S
    return SparseModel(
        S,
        A,
        horizon,
        source=at // A,
        action=at % A,
        target=target,
        probability=chance,
        reward=near[at // A],
        start=np.full(S, 1.0 / S),
    )
