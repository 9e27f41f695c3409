"""A day with type 1 diabetes: virtual patients that others made, with insulin by the hour."""

from __future__ import annotations

import csv
import math
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tacit.continuous.features import Polynomial
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.continuous.stochastic_policy import ActionBox
from tacit.continuous.worlds import VectorWorld, roll_out
from tacit.data.episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument, MissingExtra
from tacit.privacy.statistic import Bools, Floats, Ints
from tacit.privacy.validation import flag, instance_of, whole_number

DOSES = (0.0, 1.0, 2.0, 5.0)
"""What an action gives in an hour, in hours of the patient's own basal dose."""
LOW, HIGH = 70.0, 180.0
"""The range that glucose should be in, mg/dl."""
MIDDLE = math.sqrt(LOW * HIGH)
"""The middle of the range, on the scale of logarithms."""

_STEP = 60  # minutes
_KEPT = 0.7  # of insulin on board, after an hour
# Days by which a policy is valued.
_EVALUATED = 300
# Six meals of a day that begins at five, as in the package: their chances; the first, the last and
# the likeliest minute, and how far it strays; grams, and how far they stray.
_MEALS = np.array(
    [
        [0.95, 0, 240, 120, 60, 45, 10],
        [0.3, 240, 300, 270, 30, 10, 5],
        [0.95, 300, 540, 420, 60, 70, 10],
        [0.3, 540, 660, 600, 30, 10, 5],
        [0.95, 660, 900, 780, 60, 80, 10],
        [0.3, 900, 1080, 990, 30, 10, 5],
    ]
)


class GlucoseWorld(VectorWorld):
    """See :func:`glucose`; values are means over 300 days that are the same for all policies."""

    exact = False  # values are estimates
    exchangeable_actions = False

    def __init__(
        self, patients: str, horizon: int, discount: float, continuous: bool = False
    ) -> None:
        # Before the table is looked for: what is wrong is wrong without it, too.
        instance_of("patients", patients, str)
        box = ActionBox((0.0,), (max(DOSES),)) if flag("continuous", continuous) else None
        self.doses = np.array(DOSES) if box is None else box.actions(np.arange(box.size))[:, 0]
        spec = BoxSpec(
            # Nobody is on the edge of the box: where states are cut, nothing is learnt of moves.
            lows=(math.log(30.0 / MIDDLE), -1.0, -0.1, -0.1),
            highs=(math.log(420.0 / MIDDLE), 1.0, 1.5, 5.0),
            actions=len(self.doses),
            horizon=whole_number("horizon", horizon),
            discount=discount,
            features=Polynomial(scales=(0.5, 0.5, 0.5, 1.5), clip=2.5, degree=2),
            action_box=box,
        )
        rows = {name: row for name, row in _table().items() if name.startswith(patients)}
        if not rows:
            raise InvalidArgument(
                f"patients must be the beginning of a name such as {next(iter(_table()))!r}, "
                f"got {patients!r}"
            )
        self.names = tuple(rows)  # of the patients whom users are drawn from
        self._numbers = np.array([numbers for numbers, _ in rows.values()])
        self._starts = np.array([start for _, start in rows.values()])
        more = "" if box is None else ",continuous=true"
        known = f"patients={patients},horizon={spec.horizon},discount={spec.discount}{more}"
        super().__init__(spec, f"research.worlds.glucose:{known}")

    @property
    def optimal_value(self) -> float:
        """All hours in range: nobody has more, and nobody is known to have that much."""
        return float(self.spec.horizon)

    @cached_property
    def people_value(self) -> float:
        """The value of the basal dose all day, whatever happens."""
        weights = np.zeros((self.spec.actions, 1))
        weights[np.abs(self.doses - 1.0).argmin()] = 1.0
        return self.value(QPolicy(Polynomial((1.0,) * 4, 1.0, 0), weights))

    def _users(self, policy: QPolicy, users: int, rng: np.random.Generator) -> VectorEpisodes:
        states, actions, rewards, lengths = self._days(policy, users, rng)
        return VectorEpisodes(states, actions, rewards, lengths, np.full(users, policy.version))

    def _value(self, policy: QPolicy) -> float:
        rewards = self._days(policy, _EVALUATED, np.random.default_rng(0))[2]
        return float(rewards.sum(axis=1).mean())

    def _days(
        self, policy: QPolicy, users: int, rng: np.random.Generator
    ) -> tuple[Floats, Ints, Floats, Ints]:
        from research.worlds import glucose_loops as loops

        H, spec = self.spec.horizon, self.spec
        which = rng.integers(len(self.names), size=users)
        patients, x = self._numbers[which], self._starts[which]
        x[:, [3, 4, 12]] *= rng.uniform(0.6, 1.4, users)[:, np.newaxis]
        times, grams = meals(rng, users, H)
        coins = rng.random((H, users))
        memory, room = np.zeros((users, loops.MEMORY)), np.empty((5, loops.STATES))
        rewards, board = np.empty((users, H)), np.ones(users)
        basal = patients[:, -1] * patients[:, 0] / 6000.0
        nobody, within = np.zeros(users, dtype=np.bool_), np.empty(users)

        def seen(step: int, before: Floats) -> Floats:
            now = glucose_of(x, patients)
            soon = (times >= step * _STEP) & (times < (step + 1) * _STEP)
            carbs = np.where(soon, grams, 0.0).sum(axis=1) / 100.0
            columns = now, now - before, carbs, board
            clipped: Floats = np.clip(np.stack(columns, axis=1), spec.lows, spec.highs)
            return clipped

        def advance(step: int, who: Ints, here: Floats, taken: Ints) -> tuple[Floats, Bools]:
            dose, before = self.doses[taken], glucose_of(x, patients)
            known = x, memory, patients, times, grams, dose * basal
            loops.hours(*known, step * _STEP, _STEP, LOW, HIGH, room, within)
            rewards[:, step] = within
            board[:] = _KEPT * board + (1.0 - _KEPT) * dose
            return seen(step + 1, before), nobody

        starts = seen(0, glucose_of(x, patients))
        states, actions, lengths = roll_out(policy, starts, coins, advance)
        return states, actions, rewards, lengths


def glucose_of(x: Floats, patients: Floats) -> Floats:
    """Glucose under the skin as a logarithm, 0 in the middle of the range."""
    level: Floats = np.log(np.maximum(x[:, 12] / patients[:, 6], 1.0) / MIDDLE)
    return level


def meals(rng: np.random.Generator, users: int, horizon: int) -> tuple[Floats, Floats]:
    """Minutes and grams, (users, meals each), of every meal of so many hours; -1 for no meal."""
    from scipy.special import ndtr, ndtri

    times, grams = [], []
    for day in range(-(-horizon // 24)):
        chance, first, last, mean, strays, size, differs = _MEALS.T
        lowest, highest = ndtr((first - mean) / strays), ndtr((last - mean) / strays)
        drawn = rng.random((3, users, len(_MEALS)))
        when = mean + strays * ndtri(lowest + drawn[0] * (highest - lowest))
        times.append(np.where(drawn[1] < chance, np.round(when) + 1440.0 * day, -1.0))
        grams.append(np.maximum(np.round(size + differs * ndtri(drawn[2])), 0.0))
    return np.concatenate(times, axis=1), np.concatenate(grams, axis=1)


@lru_cache
def _table() -> dict[str, tuple[list[float], list[float]]]:
    """By patient, the numbers of her equations and the state in which she rests."""
    from research.worlds.glucose_loops import COLUMNS

    found = find_spec("simglucose")
    if found is None or found.origin is None:
        # Its own dependencies are of years ago, and exclude current Gymnasium.
        raise MissingExtra(
            "glucose needs the table of patients in the package simglucose: "
            "pip install --no-deps simglucose"
        )
    # Read as it is: to import it imports a Gym that nobody maintains.
    path = Path(found.origin).parent / "params" / "vpatient_params.csv"
    with path.open(newline="") as file:
        return {
            row["Name"]: (
                [float(row[column]) for column in COLUMNS],
                [float(row[f"x0_{i:2d}"]) for i in range(1, 14)],
            )
            for row in csv.DictReader(file)
        }


def glucose(
    patients: str = "adult", horizon: int = 24, discount: float = 0.9, continuous: bool = False
) -> GlucoseWorld:
    """A day with type 1 diabetes, from five in the morning, with insulin by the hour.

    State:
        Glucose under the skin as ln(g / 112 mg/dl), so that the range from 70 to 180 is within .47
        of 0, and its change in the last hour; carbohydrates that will be eaten in the next hour, in
        100 g; and insulin on board, 1 after a long time of the basal dose. A user is one of the
        virtual patients whose names begin with ``patients``: ten adults, ten adolescents and ten
        children, or one of them as ``adult#003``. She wakes up with .6 to 1.4 times the glucose at
        which she would rest, and has up to three meals and three snacks at times of her own.
    Actions:
        Insulin of the next hour: 0, 1, 2 or 5 times the patient's own basal dose; with
        ``continuous`` anything from 0 to 5 times, as numbers of a mesh.
    Reward:
        The share of the hour's minutes with glucose in the range, which is how clinicians count.
    Optimum:
        Not known; ``horizon``, which is more than anybody reaches, stands for it. Uniform has about
        12 of 24 hours with adults, and the basal dose alone (``people_value``), which covers no
        meal, about 4. Values are estimates from 300 days.
    Source:
        The equations of UVA/Padova (Dalla Man et al., 2014), the patients and the meals of the
        package simglucose (Xie, 2018), without a sensor's noise; to install with
        ``pip install --no-deps simglucose``, as it excludes current Gymnasium.
    """
    return GlucoseWorld(patients, horizon, discount, continuous)
