"""``tacit offline``: from a log to a policy that is surely better; people pay once."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit import published
from tests.cli.calls import call, content, one_line
from tests.cli.test_learn import ACTIONS, APP, SPEC, STATES


def logged(folder, users, chance, seed=0):
    """Writes sessions of people who ask with that chance; asking pays, and busy people most."""
    rng = np.random.default_rng(seed)
    states, asks = rng.integers(0, 3, (users, 3)), rng.random((users, 3)) < chance
    rewards = (rng.random((users, 3)) < np.where(asks, 0.3 + 0.3 * states, 0.2)).astype(int)
    likely = np.where(asks, chance, 1 - chance)
    (folder / "logs").mkdir()
    for part in range(2):
        rows = ["user,step,state,action,reward,version,chance"]
        for u in range(part, users, 2):
            rows += [
                f"u{u},{h},{STATES[states[u, h]]},{ACTIONS[int(asks[u, h])]},{rewards[u, h]},0,"
                f"{likely[u, h]}"
                for h in range(3)
            ]
        (folder / "logs" / f"{part}.csv").write_text("\n".join(rows) + "\n")
    text = APP.replace("epsilon = 1.0", "epsilon = 3.0").replace(
        'version = "version"', 'version = "version"\npropensity = "chance"'
    )
    (folder / "app.toml").write_text(text)
    return states, asks, rewards


def test_a_log_becomes_a_better_policy_and_people_pay_once(tmp_path):
    logged(tmp_path, 12_000, 0.3)
    app, today, trial = tmp_path / "app.toml", tmp_path / "today.npz", tmp_path / "trial.npz"
    table = np.broadcast_to([0.7, 0.3], (3, 3, 2))
    tacit.Policy.stochastic(table).publish(today)
    found = content(call("offline", app, "--behaviour", today, "--trial", trial, "--json"))
    assert found["better"], found
    assert found["fit"] > 1e-6
    assert 0.0 < found["gain"]["low"] < found["gain"]["high"]
    assert found["learnt"] + found["judged"] == 12_000
    for path in (tmp_path / "out.npz", trial):
        policy = published.load(path)
        assert [policy.act(1, s, np.random.default_rng(0)) for s in STATES[1:]] == ["ask", "ask"]
        assert published.about(path)["guarantee"]["epsilon"] == 3.0
    # Again: the same words, and nobody pays again.
    assert content(call("offline", app, "--behaviour", today, "--json"))["gain"] == found["gain"]
    assert "Better than today" in call("offline", app, "--behaviour", today).stdout
    report = content(call("report", tmp_path / "app.db", "--policy", trial, "--json"))
    assert report["well"], report
    (run,) = report["runs"]
    assert (run["people"], run["episodes"]) == (12_000, 1)
    assert run["epsilon_cost"] <= 3.0


def test_behaviour_that_is_not_the_logs_is_noticed(tmp_path):
    logged(tmp_path, 6_000, 0.3)
    first = tacit.UCBVI(SPEC, 1000, tacit.JointDP(1.0, 1e-7)).policy
    first.publish(tmp_path / "served.npz")
    found = content(call("offline", tmp_path / "app.toml", "--behaviour", "uniform", "--json"))
    assert not found["better"]
    assert found["fit"] < 1e-6
    assert "did not behave as it was said" in found["verdict"]
    assert not (tmp_path / "out.npz").exists()
    wrong = call("offline", tmp_path / "app.toml", "--behaviour", tmp_path / "app.toml")
    assert "--behaviour" in one_line(wrong)


def test_logged_propensities_are_read(tmp_path):
    states, asks, _ = logged(tmp_path, 6_000, 0.4)
    found = content(call("offline", tmp_path / "app.toml", "--behaviour", "logged", "--json"))
    assert found["better"], found
    rules = {"horizon": 3, "next_state": None, "states": STATES, "actions": ACTIONS}
    table = {"user": [1, 1, 2], "step": [0, 1, 0], "state": ["new"] * 3, "action": ["ask"] * 3}
    table |= {"reward": [0, 1, 1], "p": [0.25, None, 0.5]}
    made = tacit.Episodes.from_frame(table, propensity="p", **rules)
    np.testing.assert_array_equal(made.propensities, [[0.25, np.nan, np.nan], [0.5] + [np.nan] * 2])
    privacy = tacit.JointDP(1.0, 1e-6)
    plain = tacit.Episodes(states[:, [0, 1, 2, 0]], asks.astype(int), np.zeros(asks.shape))
    with pytest.raises(tacit.InvalidArgument, match="have no propensities"):
        tacit.learn_offline(plain, SPEC, privacy, "logged", noise_seed=0)
