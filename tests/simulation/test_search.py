"""Searches over options: tuned on some runs, reported on others."""

from __future__ import annotations

import pytest
from tacit.simulation.search import search

import tacit
from tacit.simulation import search as module
from tacit.simulation.store import Store
from tests.cli.calls import call, one_line

TUNED, OTHER = "riverswim:states=3,horizon=4", "riverswim:states=4,horizon=5"
RANGES = {"scale": {"low": 0.01, "high": 100.0, "log": True}, "stationary": [False, True]}


def small(**changes):
    given = {"tune_on": [TUNED], "report_on": [OTHER], "privacy": tacit.NonPrivate(), "users": 300}
    given |= {"tune_seeds": [7], "report_seeds": [0, 1], "trials": 6, "progress": False}
    return search("ucbvi", RANGES, **given | changes)


def test_the_best_trial_is_reported_on_other_runs(tmp_path):
    store = Store(tmp_path / "runs")
    found = small(store=store)
    assert len(found.trials) == 6
    scores = [score for _, score in found.trials]
    assert found.best == found.trials[scores.index(max(scores))][0]
    assert max(scores) > min(scores)  # options matter here
    assert {(job.world, job.seed) for job in found.report.jobs} == {(OTHER, 0), (OTHER, 1)}
    assert {job.agent for job in found.report.jobs} == {"ucbvi", found.tuned}
    # Cut off after any trial and run again it takes the same way, and runs nothing twice.
    ran = []
    real = module.sweep

    def counted(*args, **given):
        return real(*args, **given, callback=lambda job, _: ran.append(job))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sweep", counted)
        assert small(store=store).trials == found.trials
        assert ran == []
        assert small(store=store, trials=7).trials[:6] == found.trials
        assert 1 <= len(ran) <= 1 + 2


def test_what_is_tuned_on_is_not_reported_on():
    with pytest.raises(tacit.InvalidArgument, match="set some aside"):
        small(report_on=[TUNED], report_seeds=[6, 7])
    assert small(report_on=[TUNED], trials=1).report.worlds == [TUNED]


@pytest.mark.parametrize(
    "wrong", ["no", [], {"low": 1.0}, {"low": 2.0, "high": 1.0}, {"low": 0, "high": 1, "log": True}]
)
def test_wrong_ranges_are_refused(wrong):
    with pytest.raises(tacit.InvalidArgument, match="scale"):
        search(
            *("ucbvi", {"scale": wrong}),
            tune_on=[TUNED],
            report_on=[OTHER],
            privacy=tacit.NonPrivate(),
            users=300,
            progress=False,
        )


FILE = f"""
worlds = ["{OTHER}"]
agents = ["ucbvi"]
epsilons = ["none"]
users = 300
seeds = 2
[search]
worlds = ["{TUNED}"]
seeds = [7]
trials = 2
[search.options]
scale = {{ low = 0.1, high = 10.0, log = true }}
"""


def test_a_file_asks_for_a_search(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(FILE)
    made = call("sweep", "mine.toml", "--workers", "1")
    assert made.exit_code == 0, made.output
    assert "Best of 2 trials: scale=" in " ".join(made.stdout.split())
    assert made.stdout.count("ucbvi:scale=") >= 1
    (tmp_path / "mine.toml").write_text(FILE.replace('["none"]', '["none", 1]\ndelta = 1e-6'))
    assert "one agent and one budget" in one_line(call("sweep", "mine.toml"))
    (tmp_path / "mine.toml").write_text(FILE.replace("trials = 2", "tries = 2"))
    assert "'tries'" in one_line(call("sweep", "mine.toml"))
