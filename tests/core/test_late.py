"""Late rewards: decisions and outcomes that come apart teach what whole episodes would."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

import tacit
from tacit.core import release_loop
from tacit.core.late import LateStep, joined, take
from tacit.privacy.errors import InvalidArgument
from tacit.store import ledger, runs, schema
from tacit.tabular.spec import FiniteSpec

SPEC = FiniteSpec(states=3, actions=2, horizon=2, stationary=True)
PRIVACY = tacit.JointDP(epsilon=1.0, delta=1e-6)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_loop, "GRACE", 0.0)


def make(path: Path, size: int = 4, name: str = "run", **more: Any) -> tacit.Agent:
    given = {"schedule": f"fixed:size={size}", "store": path / "app.db", "name": name} | more
    return tacit.UCBVI(SPEC, 1000, PRIVACY, **given)


def packets(agent: tacit.Agent) -> list[Any]:
    with agent.store.read() as db:
        return db.execute(sa.select(schema.packets)).all()


def read(agent: tacit.Agent) -> tacit.privacy.statistic.Block:
    """The block that fills, as its release would read it."""
    view = agent._run.look()
    with agent.store.read() as db:
        held = runs.data_of(db, view.row, view.blocks[0].block)
    return agent._loop.read_block(view.row, view.checkpoint, held)


def comes(agent: tacit.Agent, user: str, ticket: str, steps: int = 2, ends: int = 2) -> None:
    for step in range(steps):
        assert agent.decide(user, "e", ticket, step=step, state=step, action=1).accepted
    for step in range(ends):
        assert agent.outcome(user, "e", step=step, reward=0.5 + step, next_state=step + 1).accepted


def test_what_comes_apart_is_what_came_together(tmp_path: Path) -> None:
    """In any order, twice, and odd values are nobody's mistake."""
    agent = make(tmp_path)
    tickets = [agent.intake.ticket() for _ in range(4)]
    assert agent.decide("ann", "e", tickets[0], step=1, state=2, action=0).status == "waiting"
    assert agent.outcome("ann", "e", step=0, reward=1.0, next_state=2).status == "waiting"
    assert agent.outcome("ann", "e", step=1, reward=0.25, next_state=1).status == "waiting"
    for _ in range(2):
        assert agent.decide("ann", "e", tickets[0], step=0, state=0, action=1).status == "waiting"
    # The second word about a step changes nothing.
    assert agent.outcome("ann", "e", step=0, reward=7.0, next_state=0).status == "waiting"
    comes(agent, "bob", tickets[1], ends=1)
    odd: Any = agent.decide(
        "eve", "e", tickets[2], step=0, state="x" * 9, action=10**40, probability=None
    )
    assert odd.status == "waiting"
    assert agent.outcome("eve", "e", step=0, reward="much", next_state=[]).status == "waiting"
    block = read(agent)
    assert block["states"].tolist() == [[0, 2, 1], [0, 1, -1], [-1, -1, -1]]
    assert block["actions"].tolist() == [[1, 0], [1, 1], [-1, -1]]
    np.testing.assert_array_equal(block["rewards"], [[1.0, 0.25], [0.5, np.nan], [np.nan] * 2])
    agent.intake.default_reward = 0.125
    np.testing.assert_array_equal(read(agent)["rewards"][1], [0.5, 0.125])
    assert [row.missing for row in packets(agent)] == [0, 1, 1]


def test_one_path_for_whole_episodes_and_late_ones(tmp_path: Path) -> None:
    """Each once, whichever way its event comes; then the block is released and all is erased."""
    agent = make(tmp_path)
    tickets = [agent.intake.ticket() for _ in range(4)]
    comes(agent, "ann", tickets[0])
    whole = tacit.Episodes([[0, 1, 2]], [[1, 1]], [[0.5, 1.5]]).block()
    told = [*agent.intake.receive(whole, ["bob"], ["e"], [tickets[1]])]
    told += agent.intake.receive(whole, ["ann"], ["e"], [tickets[2]])
    told += [
        agent.decide("bob", "e", tickets[1], step=0, state=2, action=1),
        agent.outcome("bob", "e", step=0, reward=1.0),
    ]
    assert [answer.status for answer in told] == ["waiting"] * 4
    assert read(agent)["states"].tolist() == [[0, 1, 2], [0, 1, 2]]
    assert agent.decide("cid", "e", tickets[0], step=0, state=0, action=0).status == "used"
    assert agent.decide("cid", "e", "0.0.x", step=0, state=0, action=0).status == "unknown"
    assert agent.decide("ann", "f", tickets[2], step=0, state=0, action=0).status == "refused", (
        "one episode each"
    )
    assert agent.outcome("cid", "e", step=0, reward=1.0).status == "undecided"
    comes(agent, "cid", tickets[2], ends=1)
    comes(agent, "dan", tickets[3])
    assert not agent.step(), "an outcome may still come"
    agent.outcome("cid", "e", step=1, reward=1.0, next_state=0)
    assert agent.step()
    assert (agent.served, agent.policy.version, packets(agent)) == (4, 1, [])
    assert agent.outcome("cid", "e", step=1, reward=1.0).status == "closed"
    assert agent.decide("ann", "e", tickets[0], step=0, state=0, action=0).status == "closed"
    assert agent.decide("fay", "e", tickets[0], step=0, state=0, action=0).status == "late"
    with agent.store.read() as db:
        fates = db.execute(sa.select(schema.people.c.fate)).scalars().all()
    assert fates == ["released"] * 4
    assert ledger.verify(agent.store) == []


def test_a_window_closes_what_is_not_complete(tmp_path: Path) -> None:
    """By public times: whether an outcome came moves nobody to another block."""
    agent = make(tmp_path)
    tickets = [agent.intake.ticket() for _ in range(4)]
    comes(agent, "ann", tickets[0], ends=1)
    comes(agent, "bob", tickets[1], steps=1, ends=0)
    agent.intake.flush()
    agent.step()
    assert agent.served == 0
    agent.intake.window = 0.0
    assert agent.step()
    assert (agent.served, agent.policy.version) == (4, 1)
    assert agent.outcome("ann", "e", step=1, reward=1.0).status == "closed"
    assert ledger.verify(agent.store) == []


@pytest.mark.parametrize("other", ["nothing", "odd values", "earlier"])
def test_outcomes_decide_nothing_but_her_own_episode(tmp_path: Path, other: str) -> None:
    """Whatever of her comes, and when: the same people pay, in the same blocks."""
    found = []
    for name in ("usual", other):
        (folder := tmp_path / name).mkdir()
        agent = make(folder, size=3)
        tickets = [agent.intake.ticket() for _ in range(3)]
        agent.decide("eve", "e", tickets[0], step=0, state=0, action=1)
        if name == "earlier":
            agent.outcome("eve", "e", step=0, reward=1.0, next_state=1)
        for user, ticket in zip(("ann", "bob"), tickets[1:], strict=True):
            comes(agent, user, ticket)
        more = {"usual": (1.0, 1), "odd values": (np.inf, 10**30)}.get(name)
        if more is not None:
            agent.outcome("eve", "e", step=0, reward=more[0], next_state=more[1])
        agent.intake.window = 0.0
        while agent.step():
            pass
        later = agent.intake.ticket()
        comes(agent, "cid", later)
        with agent.store.read() as db:
            rows = db.execute(sa.select(schema.people).order_by(schema.people.c.id)).all()
        found.append([(row.block, row.pays, row.fate) for row in rows])
    assert found[0] == found[1]


def test_what_comes_while_a_block_is_summed_is_late(tmp_path: Path) -> None:
    agent = make(tmp_path, size=1)
    comes(agent, "ann", agent.intake.ticket(), ends=1)
    agent._loop._seal(agent._run.look(fresh=True))
    before = packets(agent)
    assert agent.outcome("ann", "e", step=0, reward=1.0).status == "waiting", "it came before"
    assert agent.outcome("ann", "e", step=1, reward=1.0).status == "late"
    assert packets(agent) == before
    while agent.step():
        pass
    assert agent.served == 1


def test_forgetting_takes_decisions_and_outcomes_away(tmp_path: Path) -> None:
    agent = make(tmp_path)
    ticket = agent.intake.ticket()
    comes(agent, "ann", ticket, ends=1)
    assert agent.forget("ann") == {"removed": 1, "released": 0}
    assert packets(agent) == []
    assert agent.outcome("ann", "e", step=1, reward=1.0).status == "forgotten"
    assert agent.decide("ann", "e", ticket, step=0, state=0, action=0).status == "forgotten"
    assert ledger.verify(agent.store) == []


def test_many_messages_are_one_transaction(tmp_path: Path) -> None:
    agent = make(tmp_path, size=50)
    tickets = [agent.intake.ticket() for _ in range(50)]
    sent, did, ended = list[LateStep](), {"state": 0, "action": 1}, {"reward": 1, "next_state": 1}
    for user, ticket in enumerate(tickets):
        sent += [LateStep(str(user), "e", ended | {"step": step}) for step in (1, 0)]
        sent += [LateStep(str(user), "e", did | {"step": step}, ticket) for step in (1, 0)]
    answers = take(agent.intake, [*sent, *sent])
    assert {answer.status for answer in answers} == {"waiting"}
    assert [row.missing for row in packets(agent)] == [0] * 50
    with pytest.raises(InvalidArgument, match="rewards is none of reward, next_state"):
        agent.outcome("0", "e", step=1, rewards=1.0)
    with pytest.raises(InvalidArgument, match="from 0 to 1"):
        agent.outcome("0", "e", step=2, reward=1.0)
    assert agent.step()
    assert agent.served == 50


def test_mixed_policies_need_one_component() -> None:
    block = {"came": [[1, 1]], "state": [[0, 1]], "action": [[0, 1]], "next_state": [[1, 2]]}
    held = {name: np.array(rows) for name, rows in block.items()}
    held |= {"versions": np.array([0]), "probability": np.full((1, 2), 0.5)}
    held |= {"reward": np.full((1, 2), np.nan), "component": np.array([[3, 3]])}
    made = joined(tacit.privacy.statistic.Block(1, held), math.nan)
    assert (made["states"].tolist(), made["components"].tolist()) == ([[0, 1, 2]], [3])
    given = {"schedule": "fixed:size=1", "noise_seed": 0}
    agent = tacit.ConcurrentPSRL(SPEC, 100, PRIVACY, **given)
    for component in (0, 1):
        user, ticket = f"u{component}", agent.intake.ticket()
        agent.decide(user, "e", ticket, step=0, state=0, action=0, component=0)
        agent.decide(user, "e", ticket, step=1, state=0, action=0, component=component)
        assert read(agent)["components"].tolist() == [[0], [-1]][component]
        for step in (0, 1):
            agent.outcome(user, "e", step=step, reward=1.0, next_state=0)
        assert agent.step()
    assert agent.served == 2


def test_a_clock_closes_blocks_that_have_places(tmp_path: Path) -> None:
    """By the time since they opened, which is public; by count as before; never empty ones."""
    agent = make(tmp_path, size=100)
    agent.intake.every = 3600.0

    def passes() -> None:
        with agent.store.write() as db:
            block = runs.find(db, agent.run_name).block
            runs.set_block(db, runs.block_of(db, agent.run_name, block), at=1.0)

    passes()
    assert not agent.step(), "nobody came"
    whole = tacit.Episodes([[0, 1, 2]] * 3, [[1, 1]] * 3, [[0.5, 1.5]] * 3, versions=[0] * 3)
    assert agent.learn(whole, ["a", "b", "c"]).counted == 3
    assert (agent.policy.version, agent.served) == (1, 3)
    ticket, lost = agent.intake.ticket(), agent.intake.ticket()
    agent.intake.flush()
    assert agent.decide("d", "e", ticket, step=0, state=0, action=1).accepted
    assert lost
    assert not agent.step(), "it is not yet time"
    passes()
    agent.step()
    assert agent.run_row().block == 2, "the next one fills"
    assert agent.outcome("d", "e", step=0, reward=1.0, next_state=1).status == "waiting", (
        "she has her window"
    )
    agent.intake.window = 0.0
    assert agent.step()
    assert (agent.served, agent.policy.version) == (5, 2)
    assert ledger.verify(agent.store) == []


def test_a_clock_uses_up_no_block_of_a_schedule(tmp_path: Path) -> None:
    agent = make(tmp_path, size=500)
    agent.intake.every = 1e-9
    for night in range(5):
        more = tacit.Episodes([[0, 1, 2]], [[1, 1]], [[0.5, 1.5]], versions=[night])
        assert agent.learn(more, [f"user {night}"]).counted == 1
    assert (agent.policy.version, agent.block_users) == (5, 500)
