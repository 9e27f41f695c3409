"""Mixtures: a keyboard for people who mix styles of writing, and boats on a sea with forecasts."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Progress
from tacit.core.problem import Problem
from tacit.mixture import MixtureWorld, SampledSpec
from tacit.mixture.linopt_sampled import LinOptSampled
from tacit.mixture.worlds import _ATTEMPTS, _named, _simplex, _values
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import NonPrivate
from tacit.privacy.validation import Floats, check_bytes, flag, whole_number
from tacit.tabular.algorithm import OptimismOptions
from tacit.tabular.model import SparseModel
from tacit.tabular.world import FiniteWorld

Ints = NDArray[np.int64]

# The keyboard: which class of word each style likes best after each class, how often, how often
# people take what they did not want, how often they bear with a wrong suggestion, and how often
# they look, by attention.
_CLASSES, _LEVELS = 4, 3
_LIKED = ((1, 3, 0, 2), (3, 0, 1, 2), (2, 3, 0, 0), (1, 2, 3, 0), (3, 2, 0, 1))
_HABIT = 0.85
_SWAYED = (0.1, 0.05, 0.05, 0.3, 0.15)
_PATIENT = (0.5, 0.9, 0.8, 0.3, 0.6)
_LOOKS = (0.35, 0.7, 0.95)
_KEYBOARD_START = 3 * _LEVELS + 1


def keyboard(horizon: int = 8, seed: int = 0, known_rewards: bool = True) -> MixtureWorld:
    """A keyboard suggests the next word to people who mix five styles of writing.

    Before each word the keyboard suggests one of some class. Which class is wanted depends on the
    word before and on the style: notes, letters, stories, chat or questions. The styles are known
    from books. In which proportions people mix them, word by word, is not.

    State:
        3 * class + attention, 12 states. Classes of the last word: 0 noun, 1 verb, 2 describing
        word, 3 small word. Attention: 0 annoyed, 1 willing, 2 has just taken a suggestion. The
        start is 10: after a small word, willing.
    Actions:
        The class of the suggested word, 0 to 3. Each style likes one class best after each of the
        four and wants it with .85, the others with .05: after 0, 1, 2, 3 notes like 1, 3, 0, 2,
        letters 3, 0, 1, 2, stories 2, 3, 0, 0, chat 1, 2, 3, 0, and questions 3, 2, 0, 1. With
        attention 0, 1, 2 people look at the suggestion with .35, .7, .95. If they look and it is
        of the wanted class, they take it, and attention is 2. If it is not, they still take it
        with .1, .05, .05, .3, .15 by style; else they write what they want, and attention falls
        by one, but only from 2 to 1 with .5, .9, .8, .3, .6 by style. Who does not look writes
        what she wants, with attention 1 after it, or 0 with .5 if it was 0.
    Reward:
        1 in the states of attention 2: a suggestion was taken. Known, or linear in two features,
        (taken, not taken), unless ``known_rewards``.
    Optimum:
        Depends on the seed, which draws the weights of the styles from Dirichlet(.5) until uniform
        has less than .6 of the optimum and the policy that were optimal if all weights were the
        same less than .8. Agents know the styles, and that the weights add up to 1.
    Source:
        Invented for this library.

    >>> world = keyboard()
    >>> world.spec.states, world.spec.actions, world.spec.horizon, world.spec.dimension
    (12, 4, 8, 5)
    >>> round(world.optimal_value, 4), round(world.baseline_value, 4)
    (3.3808, 1.645)
    """
    H = whole_number("horizon", horizon, least=2)
    seed, known = whole_number("seed", seed, least=0), flag("known_rewards", known_rewards)
    models = _styles()
    models.setflags(write=False)
    S, A, d, _ = models.shape
    check_bytes("values of all steps (horizon)", (H + 1, S))
    taken = np.zeros((S, A))
    taken[_LEVELS - 1 :: _LEVELS] = 1.0
    rng = np.random.default_rng(seed)
    for _ in range(_ATTEMPTS):
        weights = rng.dirichlet(np.full(d, 0.5))
        best, unknowing, uniform = _values(models, weights, taken[:, 0], H)[:, _KEYBOARD_START]
        if unknowing < 0.8 * best and uniform < 0.6 * best:
            break
    else:
        raise InvalidArgument(f"no weights were found with horizon={H}: take a shorter one")
    return MixtureWorld(
        models,
        weights[np.newaxis],
        taken[np.newaxis],
        H,
        reward_features=np.stack([taken, 1.0 - taken], axis=-1),
        start=_KEYBOARD_START,
        known_rewards=known,
        name=f"research.worlds.keyboard:horizon={H},seed={seed}{_named(known)}",
        **_simplex(d),
    )


def _styles() -> Floats:
    """Next states of each style of writing, (S, A, d, S)."""
    C, L, d = _CLASSES, _LEVELS, len(_LIKED)
    P = np.zeros((C, L, C, d, C, L))
    for c, level, a, style, wanted in np.ndindex(C, L, C, d, C):
        wants = _HABIT if _LIKED[style][c] == wanted else (1.0 - _HABIT) / (C - 1)
        looks = wants * _LOOKS[level]
        takes = looks if wanted == a else looks * _SWAYED[style]
        P[c, level, a, style, a, 2] += takes
        to = P[c, level, a, style, wanted]
        to[min(level, 1)] += (looks - takes) * _PATIENT[style]
        to[max(level - 1, 0)] += (looks - takes) * (1.0 - _PATIENT[style])
        recovers = 1.0 if level else 0.5
        to[1] += (wants - looks) * recovers
        to[0] += (wants - looks) * (1.0 - recovers)
    return P.reshape(C * L, C, d, C * L)


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

    @cached_property
    def uninformed_value(self) -> float:
        """The value of the best policy for the centre of the weights: of learning nothing."""
        problem = Problem(self.spec, 1, NonPrivate())
        algorithm = LinOptSampled(problem, OptimismOptions())
        first = algorithm.plan(algorithm.init(), None, Progress(), problem.rng())
        return self.value(first.greedy)


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
    R, C, d, H = (whole_number(name, size) for name, size in sizes.items())
    if d < 2 or H < 2 or min(R, C) < 5:
        raise InvalidArgument(f"dimension and horizon must be >= 2, rows and columns >= 5: {sizes}")
    S, A, seed = R * C, _HEADINGS, whole_number("seed", seed, least=0)
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
    )
    given = f"rows={R},columns={C},dimension={d},horizon={H},seed={seed},samples={spec.samples}"
    return SampledWorld(model, spec, weights, f"research.worlds.currents:{given}")


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


def halved(d: int, rng: np.random.Generator) -> Floats:
    """D weights of which each is half of the next larger one, in random order."""
    weights: Floats = np.exp2(-np.arange(d, dtype=np.float64))
    drawn: Floats = rng.permutation(weights / weights.sum())
    return drawn
