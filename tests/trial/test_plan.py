"""Sizes of trials before they begin."""

import pytest
from typer.testing import CliRunner

from tacit import JointDP, NonPrivate
from tacit.cli.app import app
from tacit.privacy.errors import InvalidArgument
from tacit.trial import TrialSpec, plan_trial

JOINT = JointDP(1.0, 1e-6)
ONCE = {"looks": (1.0,), "probabilities": (0.5, 0.5)}


def test_more_of_anything_is_better():
    spec = TrialSpec(140, 8)
    score = plan_trial(spec, 80, 0.1, JOINT).score
    assert plan_trial(spec, 160, 0.1, JOINT).score > score + 0.1
    assert plan_trial(spec, 80, 0.2, JOINT).score > score + 0.1
    assert plan_trial(TrialSpec(450, 8), 80, 0.1, JOINT).score > score + 0.1
    assert plan_trial(spec, 80, 0.1, JointDP(2.0, 1e-6)).score > score + 0.1
    assert plan_trial(TrialSpec(140, 8, **ONCE), 80, 0.1, JOINT).score > score + 0.05
    assert plan_trial(spec, 80, 0.1, JOINT).without_privacy == pytest.approx(
        plan_trial(spec, 80, 0.1, NonPrivate()).score
    )


def test_the_people_needed_reach_the_score():
    spec = TrialSpec(60, 4)
    needed = plan_trial(spec, 10, 0.1, JOINT).needed
    assert plan_trial(spec, needed, 0.1, JOINT).score >= 0.8
    assert plan_trial(spec, needed - 1, 0.1, JOINT).score < 0.8
    assert plan_trial(TrialSpec(4, 8), 10, 1e-7, JOINT).needed is None


def test_a_command_says_it():
    runner = CliRunner()
    given = ["plan", "--trial", "--people", "120", "--epsilon", "1", "--delta", "1e-6"]
    told = runner.invoke(app, [*given, "--decisions", "60", "--effect", "0.2"])
    assert told.exit_code == 0, told.output
    assert "people are needed for .80" in " ".join(told.output.split())
    json = runner.invoke(app, [*given, "--looks", "1", "--json"])
    assert json.exit_code == 0
    assert '"score"' in json.output


def test_nonsense_is_refused():
    with pytest.raises(InvalidArgument):
        plan_trial(TrialSpec(60, 4), 0, 0.1, JOINT)
    with pytest.raises(InvalidArgument):
        plan_trial(TrialSpec(60, 4), 10, -0.1, JOINT)
    with pytest.raises(InvalidArgument):
        plan_trial(TrialSpec(60, 2, actions=3, probabilities=(0.2, 0.6)), 10, 0.1, JOINT)
