"""What a run tells while it goes on, and that a text and a seed mean one thing everywhere."""

import json
import logging

import numpy as np
import pytest

import tacit
from tacit import InvalidArgument, JointDP
from tacit.simulation.sweep import sweep
from tests.cli.calls import BUDGET, call

WORLD, PRIVACY = "riverswim:states=3,horizon=5", JointDP(1.0, 1e-6)


def told(agent="ucbvi", users=2000, privacy=PRIVACY, seed=0):
    events = []
    result = tacit.run(
        agent, WORLD, seed, False, users=users, privacy=privacy, callback=events.append
    )
    return events, result


def test_a_callback_is_told_of_every_release():
    events, result = told()
    assert [event.release for event in events] == list(range(result.releases + 1))
    assert [event.users for event in events] == result.served.tolist()
    assert [event.value for event in events] == result.values.tolist()
    assert [event.greedy_value for event in events] == result.greedy_values.tolist()
    world = tacit.world(WORLD)
    assert {(e.agent, e.world, e.seed) for e in events} == {("ucbvi", world.name, 0)}
    # The policy is the released one: in the run's own labels, so up to their order.
    uniform = world.value(events[0].policy)
    assert uniform == pytest.approx(events[0].value)
    assert [event.policy.version for event in events] == list(range(len(events)))


def test_the_log_is_quiet_until_somebody_listens(caplog):
    with caplog.at_level(logging.WARNING, "tacit"):
        told(users=200)
    assert caplog.records == []
    with caplog.at_level(logging.INFO, "tacit"):
        _, result = told(users=200)
    lines = [record.getMessage() for record in caplog.records if record.name == "tacit"]
    assert len(lines) == result.releases + 1
    assert lines[-1].startswith("ucbvi on riverswim:states=3,horizon=5, seed 0: release ")
    assert lines[-1].endswith(f"greedy {result.greedy_value:.4g}")


def test_a_seed_means_one_thing(tmp_path):
    """On the command line, in Python, in several processes' runs and in a sweep."""
    _, mine = told("auto", 1000, seed=3)
    file = tmp_path / "r.json"
    given = ("run", "--world", WORLD, *BUDGET, "--users", 1000, "--seed", 3, "--save", file)
    assert call(*given).exit_code == 0
    theirs = tacit.Result.load(file)
    swept = sweep([WORLD], [mine.agent], [PRIVACY], users=1000, seeds=[3], progress=False)
    for other in (theirs, swept.results[0]):
        assert other.values.tobytes() == mine.values.tobytes()
        assert other.served.tolist() == mine.served.tolist()
        assert other.guarantee == mine.guarantee
    several = tmp_path / "s.json"
    given = ("run", "--world", WORLD, *BUDGET, "--users", 1000, "--seed", 2, "--seeds", 2)
    assert call(*given, "--workers", 1, "--save", several).exit_code == 0
    (runs,) = tacit.simulation.tables.load_results(several).values()
    assert runs[1].values.tobytes() == mine.values.tobytes()
    with pytest.raises(tacit.CorruptFile, match="has 2 runs"):
        tacit.Result.load(several)


def test_texts_need_a_budget_and_agents_have_one():
    with pytest.raises(InvalidArgument, match="privacy must be given"):
        tacit.run("ucbvi", WORLD)
    with pytest.raises(InvalidArgument, match="has a budget"):
        tacit.run("ucbvi:epsilon=2", WORLD, privacy=PRIVACY)
    world = tacit.world(WORLD)
    agent = tacit.UCBVI(world.spec, 100, PRIVACY, noise_seed=0)
    with pytest.raises(InvalidArgument, match="this one has its own"):
        tacit.run(agent, world, users=100)


def _named(agent):
    values = {"served": [0, 1], "values": [0.0, 1.0], "greedy_values": [0.0, 1.0]}
    ends = {"optimal_value": 1.0, "baseline_value": 0.0, "reference_value": 0.0}
    return {"agent": agent, "world": "w", "privacy": "p", "seed": 0, **values, **ends}


def test_an_unknown_optimum_is_null_and_drawn_as_such(tmp_path):
    result = tacit.Result(**_named("a") | {"optimal_value": None})
    result.save(tmp_path / "r.json")
    [saved] = json.loads((tmp_path / "r.json").read_text())["results"]["a"]
    assert saved["summary"]["regret"] is None
    assert result.plot()._repr_png_().startswith(b"\x89PNG"), "as notebooks ask for it"
    figure = tacit.simulation.plots.plot_results({"a": [result], "b": [result]})
    left, right = figure.axes
    assert "none, or not known" in [text.get_text() for text in left.texts]
    assert np.isfinite(right.lines[0].get_ydata()).all()
    drawn = tmp_path / "r.svg"
    assert call("show", tmp_path / "r.json", "--plot", drawn).exit_code == 0
    assert drawn.read_text().startswith("<?xml")
