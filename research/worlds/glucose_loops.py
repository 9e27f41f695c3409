"""Compiled loops of a day with diabetes. Imported only where they run: numba is slow to load."""

from __future__ import annotations

import math

from tacit.numerics.compiled import Floats, compiled, inner

# fmt: off
COLUMNS = (
    "BW", "kabs", "kmax", "kmin", "b", "d", "Vg", "Vi", "Ib", "k1", "k2", "ke1", "ke2", "Fsnc", "f",
    "kp1", "kp2", "kp3", "Vm0", "Vmx", "Km0", "m1", "m2", "m4", "m30", "ka1", "ka2", "kd", "ki",
    "p2u", "ksc", "u2ss",
)
# fmt: on
"""The columns of the table of patients that the loops read, in their order."""

STATES, MEMORY = 13, 4
"""Numbers of a patient's state; and of what she remembers of meals: what was in the stomach when
the last one began (mg), what was eaten since (g), what is still to be eaten (g), and what was
eaten in the last minute (g)."""

EAT_RATE = 5.0
"""Grams that are eaten in a minute."""


@inner
def _changes(x: Floats, p: Floats, eaten: float, insulin: float, meal: float, dx: Floats) -> None:
    """Derivatives by minutes: ``eaten`` mg and ``insulin`` pmol/kg in a minute, ``meal`` mg."""
    kmax, kmin, k1, k2 = p[2], p[3], p[9], p[10]
    dx[0] = -kmax * x[0] + eaten
    empties = kmax
    if meal > 0.0:
        stomach, b, d = x[0] + x[1], p[4], p[5]
        rises = math.tanh(5.0 / (2.0 * meal * (1.0 - b)) * (stomach - b * meal))
        falls = math.tanh(5.0 / (2.0 * meal * d) * (stomach - d * meal))
        empties = kmin + (kmax - kmin) / 2.0 * (rises - falls + 2.0)
    dx[1] = kmax * x[0] - x[1] * empties
    dx[2] = empties * x[1] - p[1] * x[2]
    appears = p[14] * p[1] * x[2] / p[0]
    made = max(p[15] - p[16] * x[3] - p[17] * x[8], 0.0)
    lost = p[11] * (x[3] - p[12]) if x[3] > p[12] else 0.0
    dx[3] = made + appears - p[13] - lost - k1 * x[3] + k2 * x[4]
    used = (p[18] + p[19] * x[6]) * x[4] / (p[20] + x[4])
    dx[4] = -used + k1 * x[3] - k2 * x[4]
    dx[5] = -(p[22] + p[23]) * x[5] + p[21] * x[9] + p[25] * x[10] + p[26] * x[11]
    level = x[5] / p[7]
    dx[6] = p[29] * (level - p[8] - x[6])
    dx[7] = -p[28] * (x[7] - level)
    dx[8] = -p[28] * (x[8] - x[7])
    dx[9] = -(p[21] + p[24]) * x[9] + p[22] * x[5]
    dx[10] = insulin - (p[25] + p[27]) * x[10]
    dx[11] = p[27] * x[10] - p[26] * x[11]
    dx[12] = p[30] * (x[3] - x[12])
    # As in the package: what has fallen below nothing stays where it is.
    for i in (3, 4, 5, 9, 10, 11, 12):
        if x[i] < 0.0:
            dx[i] = 0.0


@compiled
def minute(x: Floats, memory: Floats, p: Floats, served: float, insulin: float, k: Floats) -> None:
    """One minute of a patient, in place: ``served`` g of a meal, ``insulin`` U in this minute.

    Meals are remembered as in the package. Steps of the classical Runge-Kutta method: one, or four
    while she eats, when a stomach fills fast; ``k`` is room of shape (5, 13).
    """
    memory[2] += served
    eaten = min(EAT_RATE, memory[2])
    memory[2] -= eaten
    if eaten > 0.0 and memory[3] <= 0.0:
        memory[0], memory[1] = x[0] + x[1], 0.0
    memory[1] += eaten
    memory[3] = eaten
    meal, rate, mg = memory[0] + 1000.0 * memory[1], insulin * 6000.0 / p[0], 1000.0 * eaten
    steps = 4 if eaten > 0.0 else 1
    for _ in range(steps):
        _changes(x, p, mg, rate, meal, k[0])
        for i in range(1, 4):
            part = (1.0 if i == 3 else 0.5) / steps
            for j in range(STATES):
                k[4, j] = x[j] + part * k[i - 1, j]
            _changes(k[4], p, mg, rate, meal, k[i])
        for j in range(STATES):
            x[j] += (k[0, j] + 2.0 * k[1, j] + 2.0 * k[2, j] + k[3, j]) / (6.0 * steps)


@compiled
def hours(
    x: Floats,
    memory: Floats,
    patients: Floats,
    times: Floats,
    grams: Floats,
    insulin: Floats,
    start: int,
    minutes: int,
    low: float,
    high: float,
    k: Floats,
    within: Floats,
) -> None:
    """Some minutes of many patients, in place, at ``insulin`` U a minute, one number for each.

    Meals are at minutes ``times`` of so many ``grams``, (n, meals). ``within`` gets the share of
    minutes after which glucose is in [low, high] mg/dl.
    """
    for n in range(len(x)):
        good = 0
        for t in range(start, start + minutes):
            served = 0.0
            for meal in range(times.shape[1]):
                if times[n, meal] == t:
                    served += grams[n, meal]
            minute(x[n], memory[n], patients[n], served, insulin[n], k)
            good += low <= x[n, 12] / patients[n, 6] <= high
        within[n] = good / minutes
