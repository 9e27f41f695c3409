"""The examples do what they say.

The app survives its own death: what was published stays, what was spent is known. The recommender
learns from logs, with real noise, what no reader's log gives away. A regulariser of one's own
keeps to what a paper assumes. A rod that nobody has a model of is held upright.
"""

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tacit import published
from tacit.store import ledger
from tacit.store.store import Store

APP = Path(__file__).parent.parent / "examples" / "app.py"
RECOMMENDER = APP.parent / "recommender.py"
REGULARISER = APP.parent / "own_regulariser.py"
PENDULUM = APP.parent / "pendulum.py"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """One run of the example: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("app")
    command = [sys.executable, str(APP), f"--folder={folder}", "--users=1500", "--killed-at=900"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
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
    assert "after 1,500 users" in after
    assert "all users are through. (1, 1e-06)-joint differential privacy" in after


def test_nobody_is_lost_or_asked_twice(app):
    _, printed = app
    waiting = int(re.findall(r"releases; (\d+) wait", printed)[-1])
    served = int(re.findall(r"opens with ([\d,]+)", printed)[-1].replace(",", ""))
    assert served + waiting == 900
    with Store(app[0] / "app.db") as store:
        assert not ledger.verify(store)


def test_the_store_is_secret_and_the_policies_are_public(app):
    folder, _ = app
    assert stat.S_IMODE((folder / "app.db").stat().st_mode) == 0o600
    for name in ("policy.npz", "final.npz"):
        policy = published.load(folder / name)
        assert policy.version >= 2
        assert policy.actions is not None
        assert policy.actions.shape == (5, 4)
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o644


@pytest.fixture(scope="module")
def recommender(tmp_path_factory):
    """One run of the example: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("recommender")
    command = [sys.executable, str(RECOMMENDER), f"--folder={folder}", "--users=15000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return folder, done.stdout


def test_the_recommender_learns_from_logs_under_real_noise(recommender):
    _, printed = recommender
    served = [int(n.replace(",", "")) for n in re.findall(r"([\d,]+) readers,", printed)]
    assert served == sorted(served)
    assert served[-1] == 15_000
    assert "statistic 'features'" in printed
    assert "(1, 1e-06)-joint differential privacy" in printed
    assert "Simulation only" not in printed
    enjoyed = dict(re.findall(r"^  (\D+|learnt, epsilon 1) +(\d\.\d\d)$", printed, re.MULTILINE))
    enjoyed = {name.strip(): float(value) for name, value in enjoyed.items()}
    assert len(enjoyed) == 5
    # Of 600 runs with other noise the worst had 3.32.
    assert enjoyed["offers at random"] < 1.5 < 2.5 < enjoyed["what is best at once"] < 2.6
    assert enjoyed["learnt, epsilon 1"] > 2.6
    assert enjoyed["learnt, epsilon 1"] <= enjoyed["best in the long run"]


def test_a_regulariser_of_ones_own_makes_a_papers_algorithm_private():
    command = [sys.executable, str(REGULARISER), "--episodes=200"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rows = re.findall(r"^  (\w+) +lambda +([\d,]+), .*; (.*)$", done.stdout, re.MULTILINE)
    assert [name for name, *_ in rows] == ["ridge", "private", "Fresh"]
    ridge, tree, fresh = (int(shift.replace(",", "")) for _, shift, _ in rows)
    assert ridge < tree < fresh
    assert rows[0][2] == "not private"
    assert rows[1][2] == rows[2][2]
    assert rows[2][2].startswith("(1, 1e-06)-JDP per user, replace-one, 199 releases")


def test_the_pendulum_is_balanced_under_real_noise(tmp_path):
    command = [sys.executable, str(PENDULUM), f"--folder={tmp_path}"]
    command += ["--users=1000", "--epsilon=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert "(10, 1e-06)-joint differential privacy" in done.stdout
    assert "Simulation only" not in done.stdout
    rows = re.findall(
        r"^  (\D+|learnt, epsilon 10) +(\d+)% fell, cost +([\d.]+)$", done.stdout, re.M
    )
    results = {name.strip(): (int(fell), float(cost)) for name, fell, cost in rows}
    assert list(results) == ["no control", "learnt, epsilon 10", "true linearisation"]
    assert results["no control"][0] > 70
    # Of 100 runs with other noise, of a faster copy of the rod, the worst cost .0062.
    assert results["learnt, epsilon 10"][0] == 0
    assert results["learnt, epsilon 10"][1] < 0.02
    assert results["true linearisation"][1] < 0.01
    gains = published.load(tmp_path / "gains.npz")
    assert isinstance(gains, published.PublishedGains)
    assert (gains.gains.shape, gains.noise) == ((25, 1, 2), 0.0)
