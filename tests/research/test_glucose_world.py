"""A day with diabetes: the package's own solver, minute by minute, and what the world promises."""

import csv
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from research.worlds import glucose
from tacit import MissingExtra
from tacit.continuous import (
    QPolicy,
)
from tacit.privacy.errors import InvalidArgument
from tacit.registry import build_world

SOURCE = find_spec("simglucose")
needs_table = pytest.mark.skipif(SOURCE is None, reason="needs pip install --no-deps simglucose")


def solved(name, minutes, meals, insulin):
    """States (minutes + 1, 13) by the package's equations and scipy's dopri5, as it calls it."""
    folder = Path(SOURCE.origin).parent
    with (folder / "params" / "vpatient_params.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["Name"] == name)
    numbers = {key: float(value) for key, value in row.items() if key != "Name"}
    # The class itself, without the package around it, which asks for an old Gym.
    code = (folder / "patient" / "t1dpatient.py").read_text().split("if __name__ ==")[0]
    code = code.replace("from .base import Patient", "Patient = object")
    code = code.replace("import pkg_resources", "").replace("import pandas as pd", "")
    start, stop = code.index("PATIENT_PARA_FILE"), code.index("class T1DPatient")
    space = {"__name__": "patient"}
    exec(code[:start] + code[stop:], space)  # noqa: S102
    first = np.array([numbers[f"x0_{i:2d}"] for i in range(1, 14)])
    params = types.SimpleNamespace(Name=name, **{k: v for k, v in numbers.items() if " " not in k})
    patient = space["T1DPatient"](params, init_state=first)
    states = [np.array(patient.state)]
    for t in range(minutes):
        patient.step(space["Action"](CHO=meals.get(t, 0), insulin=insulin[t]))
        states.append(np.array(patient.state))
    return np.array(states)


@needs_table
@pytest.mark.parametrize("name", ["adult#002", "adolescent#010", "child#001"])
def test_minutes_are_those_of_the_package(name):
    from research.worlds import glucose_loops as loops

    rng = np.random.default_rng(3)
    meals = {20: 45, 200: 12, 203: 30, 320: 70}  # one is served while another is eaten
    world = glucose(name)
    p, x = world._numbers[0], world._starts[0].copy()
    basal = p[-1] * p[0] / 6000.0
    insulin = np.repeat(rng.choice([0.0, 1.0, 2.0, 5.0], 12), 60) * basal
    expected = solved(name, 720, meals, insulin)
    memory, room = np.zeros(loops.MEMORY), np.empty((5, loops.STATES))
    found = [x.copy()]
    for t in range(720):
        loops.minute(x, memory, p, float(meals.get(t, 0)), insulin[t], room)
        found.append(x.copy())
    scale = np.abs(expected).max(axis=0)
    assert np.abs(np.array(found) - expected).max() > 0
    np.testing.assert_array_less(np.abs(np.array(found) - expected) / scale, 2e-4)
    assert expected[:, 3].std() > 10  # something happened


@needs_table
def test_states_rewards_and_bounds():
    world = glucose()
    episodes = world.simulate(QPolicy.uniform(4, 4), 40, np.random.default_rng(0))
    spec = world.spec
    assert (spec.horizon, spec.actions, spec.reward_range) == (24, 4, (0.0, 1.0))
    assert episodes.states.shape == (40, 25, 4)
    assert (episodes.states >= spec.lows).all()
    assert (episodes.states <= spec.highs).all()
    assert (episodes.lengths == 25).all()
    # An hour that begins and ends well inside the range is a good one, far outside it is not.
    level = episodes.states[..., 0]
    inside = np.maximum(np.abs(level[:, 1:]), np.abs(level[:, :-1])) < 0.3
    outside = np.minimum(level[:, 1:], level[:, :-1]) > 0.65
    assert inside.sum() > 50
    assert outside.sum() > 50
    assert (episodes.rewards[inside] > 0.8).all()
    assert (episodes.rewards[outside] == 0.0).all()
    # Insulin on board follows from the doses alone.
    board = np.ones(40)
    for step in range(24):
        dose = np.array(module_doses())[episodes.actions[:, step]]
        board = 0.7 * board + 0.3 * dose
        np.testing.assert_allclose(episodes.states[:, step + 1, 3], np.minimum(board, 5.0))


def module_doses():
    return sys.modules["research.worlds.glucose"].DOSES


def test_meals_are_those_of_the_packages_scenario():
    from research.worlds.glucose import meals

    times, grams = meals(np.random.default_rng(0), 4000, 30)
    assert times.shape == grams.shape == (4000, 12)
    had = times >= 0
    # Six standard deviations of a share of 4,000, and of a mean.
    np.testing.assert_allclose(had.mean(axis=0), [0.95, 0.3] * 6, atol=6 * 0.5 / 63)
    np.testing.assert_allclose(grams.mean(axis=0), [45, 10, 70, 10, 80, 10] * 2, atol=1.0)
    first, last = np.array([[0, 4, 5, 9, 11, 15], [4, 5, 9, 11, 15, 18]]) * 60
    day = np.where(had, times, np.nan)[:, 6:] - 1440
    assert (np.nanmin(day, axis=0) >= first).all()
    assert (np.nanmax(day, axis=0) <= last).all()


@needs_table
def test_names_rebuild_worlds_and_patients_differ():
    world = build_world("research.worlds.glucose:patients=child#00,horizon=3")
    assert len(world.names) == 9
    assert build_world(world.name).spec == world.spec
    assert world.people_value != glucose("adult", horizon=3).people_value
    with pytest.raises(InvalidArgument, match="adolescent#001"):
        glucose("nobody")


def test_without_the_table_it_says_how_to_install_it(monkeypatch):
    module = sys.modules["research.worlds.glucose"]
    module._table.cache_clear()
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="pip install --no-deps simglucose"):
        glucose()
    module._table.cache_clear()
