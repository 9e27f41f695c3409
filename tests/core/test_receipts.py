"""Receipts, versions and successors: everybody is somewhere, and what they teach is counted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.core.receipt import Receipt
from tacit.finite.spec import FiniteSpec
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitWarning

STATES, ACTIONS, H = ["new", "idle", "busy", "away"], ["wait", "ask"], 4
SPEC = FiniteSpec.named(STATES, ACTIONS, horizon=H, stationary=True)
PRIVACY = tacit.JointDP(epsilon=1e6, delta=1e-6)


def make(users: int = 5000, size: int = 100, kind: str = "UCBVI", **more: Any) -> tacit.Agent:
    options = {"privacy": PRIVACY, "noise_seed": 0, "schedule": f"fixed:size={size}"} | more
    return getattr(tacit, kind)(SPEC, users, **options)


def night(
    policy: Any, names: list[str], rng: np.random.Generator, version: int | None = None
) -> dict[str, list[Any]]:
    """One session each of some people, as an app logs them: text, times, gaps, no next state."""
    log: dict[str, list[Any]] = {
        name: [] for name in ("user", "when", "state", "action", "reward", "version", "session")
    }
    for name in names:
        state, start = "new", rng.uniform(0, 1e5)
        for step in range(H):
            action = policy.act(step, state)
            entry = (name, start + step, state, action, float(rng.random() < 0.5))
            shown = policy.version if version is None else version
            for column, value in zip(log, (*entry, shown, int(start)), strict=True):
                log[column].append(value)
            state = str(rng.choice(STATES))
    return log


def episodes(log: Any) -> tacit.Episodes:
    frame = pd.DataFrame(log).astype({"state": "category"})
    return tacit.Episodes.from_frame(
        frame, spec=SPEC, time="when", next_state=None, version="version", episode="session"
    )


def classes(receipt: Receipt) -> int:
    return receipt.counted + receipt.waiting + receipt.retired + receipt.refused


def watched(agent: Any) -> Any:
    """Counts the visits of its releases; the noise is far below one."""
    right, agent.algorithm.visits = agent._curator._publish, 0.0

    def publish(release: Any) -> Any:
        agent.algorithm.visits += float(release["transitions"].sum())
        return right(release)

    agent._curator._publish = publish
    return agent


def visits(agent: Any) -> float:
    return float(agent.algorithm.visits)


def steps(data: tacit.Episodes, statistic: Any) -> int:
    """What users teach if all of them are counted, by what is asked of their block."""
    return int(statistic.layout.unpack(statistic.total(data.block()))["transitions"].sum())


def test_from_a_frame_to_policies_nobody_is_lost_silently(tmp_path: Path) -> None:
    """Text states, categories, returning users, gaps, and versions across publications."""
    agent, rng = watched(make(3000)), np.random.default_rng(0)
    expected = 0
    totals = dict.fromkeys(("counted", "waiting", "retired", "refused"), 0)
    given, waited, stale = 0, 0, None
    for day in range(8):
        names = [f"{day}-{i}" for i in range(int(rng.integers(60, 260)))]
        log = night(agent.policy, names, rng)
        back = [] if day == 0 else ["0-1", "0-2", "0-3"]
        late = [] if stale is None else [f"late {day}-{i}" for i in range(17)]
        for more in (night(agent.policy, back, rng), night(stale or agent.policy, late, rng)):
            for column, values in more.items():
                log[column] += values
        # Rows in any order, and a gap: the second entry of the first user is missing.
        order = rng.permutation(len(log["user"]))
        order = order[order != 1]
        log = {column: [values[i] for i in order] for column, values in log.items()}
        data = episodes(log)
        before, stale, asked = agent.policy, agent.policy, agent.statistic
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            receipt = agent.learn(data)
        assert receipt.users == data.users == classes(receipt)
        assert receipt.version == agent.policy.version
        old = int((data.versions != before.version).sum())
        assert receipt.retired == old
        assert [str(old) in str(warning.message) for warning in said] == ([True] if old else [])
        assert receipt.published == ((agent.policy.version,) if receipt.counted else ())
        if receipt.counted:
            assert receipt.refused + receipt.refused_before <= 3 * (day > 0) + 3
        for name in totals:
            totals[name] += getattr(receipt, name)
        given += data.users
        waited = receipt.waiting if receipt.counted else waited + receipt.waiting
        # The same people, given to an agent that is told of nobody twice and of nobody late.
        mine = [
            i
            for i, user in enumerate(data.user_ids or ())
            if data.versions[i] == before.version and (day == 0 or user not in back)
        ]
        expected += steps(data.take(np.array(mine, dtype=np.int64)), asked)
    assert sum(totals.values()) == given
    assert totals["retired"] == 0 or totals["retired"] % 17 == 0
    assert agent.block_users + waited >= 1
    # Everybody who followed the version that served is counted, to the last visit, but for those
    # who wait: the aligned run counts the same.
    waiting = agent._session.waiting.everybody()[0]
    if waiting.users:
        held = tacit.Episodes.of_block(waiting)
        expected -= steps(held, agent.statistic)
    assert visits(agent) == pytest.approx(expected, abs=2)


def test_a_batch_that_spans_a_publication_is_one_block() -> None:
    agent, rng = watched(make(size=50)), np.random.default_rng(1)
    data = episodes(night(agent.policy, [f"user {i}" for i in range(230)], rng))
    asked = agent.statistic
    receipt = agent.learn(data)
    assert receipt == Receipt(230, counted=230, version=1, published=(1,))
    assert visits(agent) == pytest.approx(steps(data, asked), abs=1)
    assert (agent.served, agent.releases, agent.taken) == (230, 1, 230)


def test_where_all_users_teach_something_those_of_older_versions_are_kept() -> None:
    agent, rng = make(size=50, kind="PolicyImprovement"), np.random.default_rng(1)
    assert not agent.masked
    data = tacit.Episodes(
        rng.integers(0, 4, (120, H + 1)), rng.integers(0, 2, (120, H)), np.ones((120, H))
    )
    receipt = agent.learn(data)
    assert (receipt.counted, receipt.waiting, receipt.published) == (100, 20, (1, 2))


def test_people_beyond_their_episodes_are_refused_and_said_so() -> None:
    agent, rng = make(size=10), np.random.default_rng(2)
    first = episodes(night(agent.policy, [f"user {i}" for i in range(10)], rng))
    assert agent.learn(first).counted == 10
    again = episodes(night(agent.policy, ["user 1", "user 2", "new"], rng))
    assert agent.learn(again) == Receipt(3, waiting=3, version=1)
    rest = episodes(night(agent.policy, ["user 3", *(f"more {i}" for i in range(6))], rng))
    receipt = agent.learn(rest)
    assert (receipt.counted, receipt.refused, receipt.refused_before) == (6, 1, 2)


def test_an_error_says_that_all_of_a_version_were_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, rng = make(size=10), np.random.default_rng(3)
    agent.learn(episodes(night(agent.policy, [f"user {i}" for i in range(10)], rng)))
    log = night(agent.policy, [f"more {i}" for i in range(30)], rng)
    late = night(agent.policy, ["late"], rng, version=0)
    data = episodes({column: late[column] + log[column] for column in log})

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(agent._curator, "_publish", fail)
    with pytest.warns(TacitWarning, match="1 of these users"), pytest.raises(MemoryError) as error:
        agent.learn(data)
    assert error.value.users_taken == 31  # type: ignore[attr-defined]


def test_where_warnings_are_errors_nobody_was_taken() -> None:
    agent, rng = make(size=10), np.random.default_rng(3)
    agent.learn(episodes(night(agent.policy, [f"user {i}" for i in range(10)], rng)))
    data = episodes(night(agent.policy, ["late"], rng, version=0))
    with pytest.raises(TacitWarning) as error:
        agent.learn(data)
    assert error.value.users_taken == 0  # type: ignore[attr-defined]
    assert agent.taken == 10
    nobody = tacit.Episodes(data.states, data.actions, data.rewards)
    with pytest.raises(InvalidArgument, match="versions must say"):
        agent.learn(nobody, ["x"])


@pytest.mark.parametrize("killed", [False, True])
def test_a_block_larger_than_planned_is_resumed_as_it_was(killed: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    files = {"ledger": tmp_path / "ledger", "autosave": tmp_path / "state"}
    options = {"size": 10, "noise_seed": None}
    agent = make(**options, **files)
    data = episodes(night(agent.policy, [f"user {i}" for i in range(35)], rng))
    asked = agent.statistic
    if killed:
        agent._algorithm.advance = lambda users: (_ for _ in ()).throw(SystemExit)  # type: ignore[method-assign]
        with pytest.raises(SystemExit):
            agent.learn(data)
    else:
        agent.learn(data)
    again = make(**options).load(tmp_path / "state", **files)
    assert (again.served, again.releases, again.taken) == (35, 1, 35)
    seen = again._curator.last_release
    assert float(seen["transitions"].sum()) == pytest.approx(steps(data, asked), abs=1)
    assert seen.users == 35
    assert again.block_users == 10


# Versions.


def test_rolled_back_users_are_counted_under_the_old_version(tmp_path: Path) -> None:
    agent, rng = watched(make(size=20)), np.random.default_rng(5)
    agent.publish(tmp_path / "old.npz", force=True)
    people = iter(f"user {i}" for i in range(1000))

    def serve(users: int) -> Receipt:
        return agent.learn(episodes(night(agent.policy, [next(people) for _ in range(users)], rng)))

    serve(20)
    serve(7)  # wait under version 1
    before = visits(agent)
    agent.roll_back(tacit.Policy.load(tmp_path / "old.npz"), pin=True)
    assert (agent.policy.version, agent.releases, agent.served) == (0, 2, 27)
    assert visits(agent) > before, "those who waited were counted"
    before = visits(agent)
    receipt = serve(20)
    assert (receipt.counted, receipt.version, receipt.published) == (20, 0, ())
    assert visits(agent) > before
    agent.save(tmp_path / "state")
    again = make(size=20).load(tmp_path / "state")
    assert (again.policy.version, again.releases) == (0, 3)
    for one in (agent, again):
        one.unpin()
        data = night(one.policy, [next(people) for _ in range(20)], rng)
        assert one.learn(episodes(data)).published == (4,)
        assert one.policy.version == 4


def test_only_what_was_published_is_rolled_back_to() -> None:
    agent = make()
    with pytest.raises(InvalidArgument, match="one that was published, of version 0 to 0"):
        agent.roll_back(tacit.Policy.uniform(H, 4, 2, version=3))
    with pytest.raises(InvalidArgument, match="as this agent's are"):
        agent.roll_back(tacit.Policy.uniform(H, 4, 2))
    with pytest.raises(InvalidArgument, match="one of this agent"):
        agent.roll_back(tacit.Policy.deterministic(np.zeros((H, 3), dtype=int), 2))
    linear = tacit.linear.simplex()
    other = tacit.LSVIUCB(linear.spec, 100, PRIVACY, noise_seed=0)
    with pytest.raises(InvalidArgument, match="does not roll back"):
        other.roll_back(other.policy)


# Successors.


def test_a_successor_goes_on_with_what_was_released() -> None:
    agent, rng = make(users=40, size=20), np.random.default_rng(6)
    for start in (0, 20):
        names = [f"user {i}" for i in range(start, start + 20)]
        agent.learn(episodes(night(agent.policy, names, rng)))
    with pytest.raises(HorizonExceeded, match=r"agent\.successor"):
        agent.learn(episodes(night(agent.policy, ["one more"], rng)))
    known = float(agent.evidence.transitions.sum())
    heir = agent.successor(1000, noise_seed=1, schedule="fixed:size=10")
    assert (heir.served, heir.users) == (0, 1000)
    assert float(heir.evidence.transitions.sum()) == known > 0
    assert (heir.policy.version, heir.greedy_policy.version) == (2, 2)
    assert heir.policy.act(0, "idle") in ACTIONS
    # Who took part before has no episode left; a straggler of the old agent is told apart.
    data = episodes(night(heir.policy, ["user 1", *(f"new {i}" for i in range(9))], rng))
    assert heir.learn(data) == Receipt(10, 9, 0, 0, 1, 3, (3,), 0)
    assert float(heir.evidence.transitions.sum()) > known
    with pytest.warns(TacitWarning, match="1 of these users did not follow policy 3"):
        assert heir.learn(episodes(night(agent.policy, ["x"], rng, version=2))).retired == 1
    assert agent.evidence.transitions.sum() == known, "the old one is as it was"


def test_a_successor_shares_a_ledger_of_people(tmp_path: Path) -> None:
    path = tmp_path / "people.ledger"
    privacy = tacit.JointDP(epsilon=1.0, delta=1e-6)
    tacit.Ledger.create_for_people(path, privacy)
    options: dict[str, Any] = {"privacy": privacy, "noise_seed": None, "ledger": path}
    agent, rng = make(users=20, size=20, **options), np.random.default_rng(7)
    agent.learn(episodes(night(agent.policy, [f"user {i}" for i in range(20)], rng)))
    heir = agent.successor(40, ledger=path, schedule="fixed:size=20")
    names = ["user 1", *(f"new {i}" for i in range(19))]
    receipt = heir.learn(episodes(night(heir.policy, names, rng)))
    assert (receipt.counted, receipt.refused) == (19, 1)
