"""What an algorithm gets from its agent: blocks, the gate, saves, errors that say who was taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tacit
from tacit import Block, JointDP, NonPrivate
from tacit.core.algorithm import Pace
from tacit.core.asks import Ask, Asks, State
from tacit.core.kinds import AgentKind
from tacit.core.schedule import Schedule
from tacit.core.setting import Setting
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.finite.policy import Policy
from tacit.finite.spec import FiniteSpec
from tacit.finite.visits import VisitCounts
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument
from tacit.privacy.storage import read_state, write_state

SPEC = FiniteSpec(states=3, actions=2, horizon=4, stationary=False)
PRIVATE = JointDP(1.0, 1e-6)


@dataclass(frozen=True, kw_only=True)
class AddsOptions:
    counter: str = "blocks"


class AddsRewards(FiniteAlgorithm):
    """Adds up rewards and follows the largest sums."""

    name = "adds"
    Options = AddsOptions

    def __init__(self, setting: Setting, options: AddsOptions) -> None:
        self.sums = np.zeros((SPEC.horizon, SPEC.states, SPEC.actions))
        super().__init__(setting, options)

    def asks(self) -> Asks:
        statistic = VisitCounts(SPEC.states, SPEC.actions, SPEC.horizon)
        release = yield Ask(statistic)
        self.take_in(release, statistic)

    def take_in(self, release: Any, statistic: VisitCounts) -> None:
        self.sums[statistic.where] += release["rewards"]

    def plan(self) -> tuple[Policy, Policy]:
        return self.best(self.sums), self.best(self.sums)

    def _choose_counter(self) -> str:
        return self.options.counter

    def _pace(self) -> Pace:
        return Pace("fixed:size=10", size=10)

    def state(self) -> State:
        return {}, {"sums": self.sums}

    def restore(self, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
        self.sums = arrays["sums"]


Adds = AgentKind(AddsRewards)


def block_of(users: int, seed: int = 0) -> Block:
    rng = np.random.default_rng(seed)
    H = SPEC.horizon
    return Block(
        users,
        {
            "states": rng.integers(0, SPEC.states, (users, H + 1)),
            "actions": rng.integers(0, SPEC.actions, (users, H)),
            "rewards": rng.random((users, H)),
        },
    )


def test_blocks_become_policies() -> None:
    agent = Adds(SPEC, 30, NonPrivate())
    agent.learn(block_of(25))
    assert (agent.served, agent.releases, agent.block_users) == (20, 2, 5)
    assert agent.policy.version == 2
    np.testing.assert_array_equal(agent.policy.actions, agent.sums.argmax(axis=-1))


@pytest.mark.parametrize("options", [{}, {"counter": "smooth tree"}])
def test_a_save_in_the_middle_of_a_block_goes_on_identically(options: Any, tmp_path: Any) -> None:
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1, **options)
    agent.learn(block_of(15))
    agent.save(tmp_path / "save")
    resumed = Adds(SPEC, 30, PRIVATE, noise_seed=1, **options).load(tmp_path / "save")
    for one in (agent, resumed):
        one.learn(block_of(15, seed=1))
    np.testing.assert_array_equal(agent.sums, resumed.sums)
    np.testing.assert_array_equal(agent.policy.table(), resumed.policy.table())


def test_users_of_a_failed_release_are_lost_and_not_asked_again(monkeypatch: Any) -> None:
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(type(agent._curator), "release", fails)
        with pytest.raises(OSError, match="disk full"):
            agent.learn(block_of(10))
    assert (agent.served, agent.releases, agent._curator.blocks) == (10, 0, ())
    agent.learn(block_of(20, seed=1))
    assert (agent.served, agent.releases) == (30, 2)


def test_what_an_algorithm_does_not_offer_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="AddsRewards has no option 'calibration'"):
        Adds(SPEC, 30, PRIVATE, calibration="as_printed")


# What an error says of those who were taken.


def disk_full(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def ids_of(first: int, users: int) -> list[int]:
    return [*range(first, first + users)]


def test_an_error_says_who_was_taken(monkeypatch: Any, tmp_path: Any) -> None:
    """Two blocks in one call, and the second one's state cannot be written: both are taken."""
    files = {"ledger": tmp_path / "ledger", "autosave": tmp_path / "state"}
    agent = Adds(SPEC, 60, PRIVATE, **files)
    agent.learn(block_of(5), ids_of(0, 5))
    real, written = tacit.privacy.curators.saves.write_state, []

    def fails_at_the_second(*args: Any, **options: Any) -> None:
        written.append(1)
        (disk_full if len(written) == 2 else real)(*args, **options)

    data = block_of(25, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(tacit.privacy.curators.saves, "write_state", fails_at_the_second)
        with pytest.raises(OSError, match="No space") as caught:
            agent.learn(data, ids_of(5, 25))
    # 5 complete the first block, 10 are lost with the second, and 10 were never looked at.
    assert caught.value.users_taken == 15  # type: ignore[attr-defined]
    assert "15 of these 25 users were taken" in caught.value.__notes__[0]
    assert "data.take(slice(15, None))" in caught.value.__notes__[0]
    assert (agent.served, agent.releases, agent.block_users) == (20, 1, 10)
    agent.save(tmp_path / "state")
    agent.learn(data.take(slice(15, None)), ids_of(20, 10))
    assert (agent.served, agent.releases, agent._curator.users) == (30, 2, 30)


def test_users_who_wait_for_their_block_are_taken_too() -> None:
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1, schedule="fixed:size=10")
    agent.algorithm.schedule = Schedule("short", (10, 10))
    with pytest.raises(HorizonExceeded, match="no block is left for 5 more") as caught:
        agent.learn(block_of(25))
    assert caught.value.users_taken == 20  # type: ignore[attr-defined]


def test_a_block_that_did_not_get_in_is_not_taken(monkeypatch: Any, tmp_path: Any) -> None:
    """A ledger that cannot be written refuses a block before anybody pays.

    All of it may come again, and who waited for it goes on waiting.
    """
    ledger = tacit.Ledger.create_for_people(tmp_path / "people", PRIVATE)
    agent = Adds(SPEC, 30, PRIVATE, ledger=ledger)
    agent.learn(block_of(4), ids_of(0, 4))
    data, ids = block_of(9, seed=1), ids_of(4, 9)
    with monkeypatch.context() as patch:
        patch.setattr(tacit.privacy.ledger.journal.Journal, "append", disk_full)
        with pytest.raises(OSError, match="No space") as caught:
            agent.learn(data, ids)
    assert caught.value.users_taken == 0  # type: ignore[attr-defined]
    assert not hasattr(caught.value, "__notes__")
    assert (agent.served, agent.releases, agent.block_users) == (0, 0, 6)
    agent.learn(data, ids)
    assert (agent.served, agent.releases, agent.block_users) == (10, 1, 7)
    assert sum(tacit.Ledger.open(ledger).accounts.values()) == 10


# Ids of users whose block is not full.


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(700, 705),
        np.arange(200, 205).astype(np.uint8),
        [f"patient-{i}" for i in range(5)],
        np.array([f"patient-{i}" for i in range(5)]),
        range(700, 705),
    ],
    ids=["int64", "uint8", "texts", "array of texts", "range"],
)
@pytest.mark.parametrize("people", [False, True])
def test_ids_of_those_who_wait_are_saved_as_hashes(ids: Any, people: bool, tmp_path: Any) -> None:
    files: dict[str, Any] = {}
    if people:
        tacit.Ledger.create_for_people(tmp_path / "ledger", PRIVATE)
        files = {"ledger": tmp_path / "ledger"}
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1, **files)
    agent.learn(block_of(5), ids)
    agent.save(tmp_path / "save")
    assert b"patient-" not in (tmp_path / "save").read_bytes()
    names = read_state(tmp_path / "save", "curator").meta["extra"]["pending_names"]
    assert [len(bytes.fromhex(name)) for name in names] == [16] * 5
    resumed = Adds(SPEC, 30, PRIVATE, noise_seed=1).load(tmp_path / "save", **files)
    # A second save of what was resumed, and then the same people again: each counts once.
    resumed.save(tmp_path / "save")
    resumed = Adds(SPEC, 30, PRIVATE, noise_seed=1).load(tmp_path / "save", **files)
    resumed.learn(block_of(5, seed=1), ids)
    assert resumed.releases == 1
    assert sorted(resumed._curator._participants._seen.values()) == [1] * 5


def test_the_first_autosave_holds_the_first_policies(tmp_path: Any) -> None:
    """It is written by the constructor: what a subclass would set later were not in it."""
    world = tacit.lq.double_integrator(4)
    files = {"ledger": tmp_path / "ledger", "autosave": tmp_path / "state"}
    agent = tacit.CertaintyEquivalence(world.spec, 30, PRIVATE, **files)
    resumed = tacit.CertaintyEquivalence(world.spec, 30, PRIVATE).load(tmp_path / "state", **files)
    assert agent.policy.noise == resumed.policy.noise > 0.0
    assert agent.greedy_policy.noise == resumed.greedy_policy.noise == 0.0


# Buffers, interruptions, reports.


@pytest.mark.parametrize("with_ids", [False, True])
def test_a_buffer_that_is_used_again_changes_nobody_who_waits(with_ids: bool) -> None:
    apart = Adds(SPEC, 20, PRIVATE, noise_seed=1)
    whole, buffer, ids = block_of(10), block_of(5), np.zeros(5, dtype=np.int64)
    for start in (0, 5):
        for name, array in buffer.arrays.items():
            array[:] = whole[name][start : start + 5]
        ids[:] = np.arange(start, start + 5)
        apart.learn(buffer, ids if with_ids else None)  # type: ignore[arg-type]
    together = Adds(SPEC, 20, PRIVATE, noise_seed=1)
    together.learn(whole, ids_of(0, 10) if with_ids else None)
    np.testing.assert_array_equal(apart.sums, together.sums)
    if with_ids:
        # All ten came, and none of them counts again.
        apart.learn(block_of(10, seed=1), ids_of(0, 10))
        assert len(apart._curator._participants._seen) == 10


def test_an_interrupted_release_is_not_taken_in_again_later(tmp_path: Any) -> None:
    agent = Adds(SPEC, 40, PRIVATE, noise_seed=1)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    agent.algorithm.take_in = interrupted
    with pytest.raises(KeyboardInterrupt) as caught:
        agent.learn(block_of(10))
    assert caught.value.users_taken == 10  # type: ignore[attr-defined]
    del agent.algorithm.take_in
    agent.learn(block_of(10, seed=1))
    agent.save(tmp_path / "save")
    resumed = Adds(SPEC, 40, PRIVATE, noise_seed=1).load(tmp_path / "save")
    assert (resumed.served, resumed.releases) == (agent.served, agent.releases) == (20, 1)
    np.testing.assert_array_equal(resumed.sums, agent.sums)


def test_reports_that_were_taken_are_said_to_be() -> None:
    agent = Adds(SPEC, 20, tacit.LocalDP(1.0, 1e-6))
    reports = np.zeros((10, agent.statistic.layout.size))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    agent.algorithm.take_in = interrupted
    with pytest.raises(KeyboardInterrupt) as caught:
        agent.learn_reports(reports)
    assert caught.value.users_taken == 10  # type: ignore[attr-defined]
    assert (agent.served, agent._curator.users) == (10, 10)


def test_lists_of_ids_within_ids_are_refused() -> None:
    agent = Adds(SPEC, 20, PRIVATE, noise_seed=1)
    with pytest.raises(InvalidArgument, match="user_ids must be a list of ids"):
        agent.learn(block_of(2), [1, [2, 3]])  # type: ignore[list-item]


def test_a_refused_save_leaves_the_curator_alone(tmp_path: Any) -> None:
    agent = Adds(SPEC, 30, NonPrivate())
    agent.learn(block_of(15))
    agent.save(tmp_path / "save")
    state = read_state(tmp_path / "save", "agent")
    meta = {**state.meta, "agent": {**state.meta["agent"], "served": 10**9}}
    write_state(tmp_path / "forged", "agent", meta, state.arrays)
    other = Adds(SPEC, 30, NonPrivate())
    with pytest.raises(CorruptFile, match="1000000000 is no number from 0 to 30"):
        other.load(tmp_path / "forged")
    other.learn(block_of(15))
    assert other.served == 10


def test_one_file_cannot_be_ledger_and_autosave(tmp_path: Any) -> None:
    path = tmp_path / "file"
    with pytest.raises(InvalidArgument, match="ledger and autosave must be two files"):
        Adds(SPEC, 20, PRIVATE, ledger=path, autosave=tmp_path / "." / "file")
    assert not path.exists()
