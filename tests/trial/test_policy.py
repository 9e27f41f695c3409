"""Policies of trials: ranges, own histories, labels, and what a device reads."""

from dataclasses import replace

import numpy as np
import pytest

from tacit import published
from tacit.trial import TrialPolicy
from tests.node import node

TWO = TrialPolicy(np.array([0.1, -0.3]), np.diag([0.04, 0.01]), 2, low=0.2, own=0.2)
SIZE = np.random.default_rng(0).standard_normal((6, 6))
THREE = TrialPolicy(np.arange(6) / 9.0, SIZE @ SIZE.T + np.eye(6), 3, low=0.1, own=0.1)


def history_of(policy, people=4, decisions=30, seed=1):
    """Decisions at random, whose reward is the action in the second half of the people."""
    rng, found = np.random.default_rng(seed), policy.history(people)
    for _ in range(decisions):
        f = rng.standard_normal((people, policy.dimension))
        p = policy.chances(f, found)
        a = rng.integers(policy.n_actions, size=people)
        found.add(f, a, p, np.where(np.arange(people) < people // 2, rng.random(people), a))
    return found


def test_chances_are_of_being_the_best_within_the_range():
    assert TWO.chances([[1.0, 0.0], [0.0, 1.0]]).round(4).tolist() == [0.6915, 0.2]
    many = THREE.chances(np.random.default_rng(0).standard_normal((50, 2)))
    assert np.allclose(many.sum(axis=1), 1.0)
    assert many.min() >= 0.1


@pytest.mark.parametrize("policy", [TWO, THREE], ids=["two", "three"])
def test_her_own_history_counts_for_her_alone(policy):
    history, rng = history_of(policy), np.random.default_rng(2)
    f = rng.standard_normal((4, 2))
    own = policy.chances(f, history)
    assert np.abs(own - policy.chances(f)).max() > 0.01
    for person in range(4):
        alone = policy.history(1)
        for name in ("score", "information", "total", "squares", "count"):
            setattr(alone, name, getattr(history, name)[person : person + 1])
        assert np.allclose(policy.chances(f[person : person + 1], alone), own[person])


def test_own_evidence_is_the_posterior_of_a_regression():
    rng, history = np.random.default_rng(3), TWO.history(1)
    rows = []
    for _ in range(60):
        f, p = rng.standard_normal((1, 2)), np.array([0.5])
        a = rng.integers(2, size=1)
        r = rng.standard_normal(1)
        gain = r - (5.0 * TWO.usual + history.total) / (5.0 + history.count)
        history.add(f, a, p, r)
        rows.append((f[0], float(a[0] - 0.5), float(gain[0])))
    s2 = np.mean([gain**2 for _, _, gain in rows])
    prior = np.linalg.inv(TWO.covariance + 0.04 * np.eye(2))
    precision = prior + sum(0.25 * np.outer(f, f) for f, _, _ in rows)
    towards = prior @ TWO.mean + sum(a * gain * f for f, a, gain in rows) / np.sqrt(s2)
    f = np.array([1.0, 0.5])
    z = f @ np.linalg.solve(precision, towards) / np.sqrt(f @ np.linalg.solve(precision, f))
    from scipy.stats import norm

    assert TWO.chances([f], history)[0] == pytest.approx(np.clip(norm.cdf(z), 0.2, 0.8))


def test_decisions_that_were_not_made_leave_no_trace():
    history = history_of(TWO)
    before = history.score.copy(), history.count.copy()
    history.add(np.ones((4, 2)), np.ones(4), np.full(4, 0.5), np.full(4, np.nan))
    assert (history.score == before[0]).all()
    assert (history.count == before[1]).all()


@pytest.mark.parametrize(("policy", "order"), [(TWO, (1, 0)), (THREE, (2, 0, 1))])
def test_other_labels_are_the_same_policy(policy, order):
    f = np.random.default_rng(4).standard_normal((5, 2))
    mine, theirs = policy.chances(f), policy.relabelled(order).chances(f)
    if policy.n_actions == 2:
        mine, theirs = (np.stack([1.0 - p, p], axis=1) for p in (mine, theirs))
    assert np.allclose(theirs[:, order], mine)


@pytest.mark.parametrize("policy", [TWO, THREE], ids=["two", "three"])
@pytest.mark.parametrize("name", ["p.npz", "p.json"])
def test_a_device_reads_the_same_policy(tmp_path, policy, name):
    policy.as_version(3).publish(tmp_path / name)
    read = published.load(tmp_path / name)
    f, history = np.random.default_rng(5).standard_normal((4, 2)), history_of(policy)
    assert read.version == 3
    assert (read.chances(f, history) == policy.chances(f, history)).all()
    action, chance = read.act(f[0], np.random.default_rng(0))
    assert 0 <= action < policy.n_actions
    assert policy.low <= chance <= 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": np.array([np.nan, 0.0])},
        {"covariance": np.diag([1.0, -1.0])},
        {"covariance": np.eye(3)},
        {"low": np.array(0.7)},
        {"n_actions": np.array(3)},
        {"usual": np.array(np.inf)},
    ],
)
def test_damaged_files_are_refused(tmp_path, wrong):
    from tacit.core.public_file import write_published

    arrays = {"mean": np.zeros(2), "covariance": np.eye(2), "low": np.array(0.2)}
    arrays |= {"own": np.array(0.0), "usual": np.array(0.5)}
    arrays |= {"n_actions": np.array(2), "greedy": np.array(0)}
    write_published(tmp_path / "p.npz", 0, arrays, kind="trial")
    assert published.load(tmp_path / "p.npz").chances([[1.0, 0.0]]).tolist() == [0.5]
    write_published(tmp_path / "p.npz", 0, arrays | wrong, kind="trial")
    with pytest.raises(ValueError, match="no published policy"):
        published.load(tmp_path / "p.npz")


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("policy", [TWO, THREE], ids=["two", "three"])
def test_a_browser_computes_the_same_chances(tmp_path, policy, greedy):
    policy = replace(policy, greedy=greedy)
    policy.publish(tmp_path / "p.json")
    rng, history = np.random.default_rng(6), policy.history(1)
    decisions, expected = [], []
    for _ in range(40):
        f, a, r = 2.0 * rng.standard_normal((1, 2)), rng.integers(policy.n_actions), rng.random()
        own, everybody = policy.chances(f, history), policy.chances(f)
        history.add(f, np.array([a]), own, np.array([r]))
        decisions.append([f[0].tolist(), int(a), float(r)])
        both = [p[0].tolist() if p.ndim == 2 else [1.0 - p[0], p[0]] for p in (own, everybody)]
        expected.append(both)
    told = {"policy": (tmp_path / "p.json").read_text(), "decisions": decisions}
    read = node("check_trial.mjs", given=told)
    assert read["right"]
    np.testing.assert_allclose(read["found"], expected, rtol=1e-9, atol=1e-11)
