"""The example app survives its own death: what was published stays, what was spent is known."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import published

APP = Path(__file__).parent.parent / "examples" / "app.py"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """One run of the example: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("app")
    command = [sys.executable, str(APP), f"--folder={folder}", "--users=3000", "--killed-at=1500"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return folder, done.stdout


def test_it_is_killed_and_goes_on_where_it_was(app):
    _, printed = app
    before, after = printed.split("The app was killed, and starts again.")
    assert "all users are through" not in before
    version, served = re.findall(r"policy (\d+) after ([\d,]+) users", before)[-1]
    assert f"opens with {served} users learnt from, {version} releases" in after
    later = [int(number) for number, _ in re.findall(r"policy (\d+) after ([\d,]+)", after)]
    assert later == list(range(int(version) + 1, int(version) + 1 + len(later)))
    assert "policy 1 after" not in after
    assert "after 3,000 users" in after
    assert "all users are through. (1, 1e-06)-joint differential privacy" in after


def test_the_ledger_knows_of_the_one_resume(app):
    events = [entry.event for entry in tacit.Ledger.open(app[0] / "budget.ledger").entries]
    assert events.count("start") == events.count("resume") == 1


def test_the_state_is_secret_and_the_policies_are_public(app):
    folder, _ = app
    assert stat.S_IMODE((folder / "agent.state").stat().st_mode) == 0o600
    for name in ("policy.npz", "final.npz"):
        policy = published.load(folder / name)
        assert policy.version >= 2
        assert policy.actions is not None
        assert policy.actions.shape == (5, 4)
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o644


def test_a_week_follows_the_policy_and_says_which(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(APP.parent)
    import app as example  # the file that is run above

    table = np.tile([0, 1, 0, 1], (5, 1))
    tacit.Policy.deterministic(table, 2, version=7).publish(tmp_path / "policy.npz")
    week = example.week_of(3, published.load(tmp_path / "policy.npz"))
    assert week.versions.tolist() == [7]
    assert week.actions[0].tolist() == [s % 2 for s in week.states[0, :-1].tolist()]
    assert np.abs(np.diff(week.states[0])).max() <= 1
