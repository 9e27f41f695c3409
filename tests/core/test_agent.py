"""Agents: blocks become policies, and whatever happens, the store is gone on with."""

import threading
import warnings

import numpy as np
import pytest
import sqlalchemy as sa

import tacit
from tacit import JointDP, NonPrivate
from tacit.core.algorithm import BlockSizes
from tacit.core.problem import Schedule
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitWarning
from tacit.store import ledger, runs, schema
from tests.core.algorithms import SPEC, Adds, AddsRewards, block_of

PRIVATE = JointDP(1.0, 1e-6)


@pytest.fixture(autouse=True)
def plans_work():
    yield
    AddsRewards.fails = None


def people(first, users):
    return [*range(first, first + users)]


def count(agent, table):
    with agent.store.read() as db:
        return int(db.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def test_blocks_become_policies():
    agent = Adds(SPEC, 30, NonPrivate())
    agent.learn(block_of(25))
    assert (agent.served, agent.releases, agent.block_users) == (20, 2, 5)
    assert agent.policy.version == 2
    np.testing.assert_array_equal(agent.policy.actions, agent.state.rewards.argmax(axis=-1))


@pytest.mark.parametrize("counter", ["blocks", "smooth tree"])
def test_a_store_that_is_opened_in_the_middle_of_a_block_goes_on_identically(counter, tmp_path):
    whole = Adds(SPEC, 30, PRIVATE, noise_seed=1, counter=counter)
    kept = Adds(SPEC, 30, PRIVATE, noise_seed=1, counter=counter, store=tmp_path / "runs.db")
    for one in (whole, kept):
        one.learn(block_of(15))
    kept.store.close()
    again = Adds(SPEC, 30, PRIVATE, noise_seed=1, counter=counter, store=tmp_path / "runs.db")
    assert (again.served, again.taken, again.block_users) == (10, 15, 5)
    for one in (whole, again):
        one.learn(block_of(15, seed=1))
    np.testing.assert_array_equal(whole.state.rewards, again.state.rewards)
    assert whole.guarantee == again.guarantee


def test_a_run_is_opened_by_its_name(tmp_path):
    world = tacit.tabular.riverswim(4, 6)
    agent = tacit.UCBVI(world.spec, 100, PRIVATE, store=tmp_path / "app.db", name="nudges")
    again = tacit.open(tmp_path / "app.db", "nudges")
    assert (again.name, again.run_name, again.users, again.privacy) == (
        ("ucbvi", "nudges", 100, agent.privacy)
    )
    assert again.spec == world.spec
    with pytest.raises(InvalidArgument, match="no run 'doses'; it has nudges"):
        tacit.open(tmp_path / "app.db", "doses")
    with pytest.raises(InvalidArgument, match="no store"):
        tacit.open(tmp_path / "none.db")


def test_other_arguments_are_refused_by_name(tmp_path):
    Adds(SPEC, 30, PRIVATE, store=tmp_path / "app.db", name="nudges")
    with pytest.raises(InvalidArgument, match="the run 'nudges' in this store has other arguments"):
        Adds(SPEC, 40, PRIVATE, store=tmp_path / "app.db", name="nudges")


# The two commits.


@pytest.mark.parametrize("where", ["", "runs.db"])
def test_a_plan_that_fails_leaves_the_release_and_nothing_is_drawn_again(where, tmp_path):
    agent = Adds(SPEC, 30, PRIVATE, store=tmp_path / where if where else "")
    AddsRewards.fails = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError) as caught:
        agent.learn(block_of(10), people(0, 10))
    assert caught.value.users_taken == 10
    with agent.store.read() as db:
        (first,) = runs.recorded(db, runs.find(db, "run"), 0)
    assert count(agent, schema.packets) == 0, "episodes are erased with the release"
    with pytest.raises(ZeroDivisionError):
        agent.step()
    AddsRewards.fails = None
    assert agent.step()
    assert not agent.step()
    with agent.store.read() as db:
        (again,) = runs.recorded(db, runs.find(db, "run"), 0)
    assert first.value == again.value
    assert ((agent.served, agent.policy.version), ledger.verify(agent.store)) == ((10, 1), [])


def test_a_release_that_no_plan_survives_is_left_out_by_rolling_back():
    agent = Adds(SPEC, 30, PRIVATE)
    agent.learn(block_of(10), people(0, 10))
    AddsRewards.fails = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        agent.learn(block_of(10, seed=1), people(10, 10))
    agent.roll_back(1)
    AddsRewards.fails = None
    assert not agent.step()
    assert (agent.served, agent.releases, agent.policy.version) == (20, 2, 2)
    assert agent.learn(block_of(10, seed=2), people(20, 10)).counted == 10
    assert ledger.verify(agent.store) == []


def test_nothing_is_spent_where_the_first_commit_fails(monkeypatch):
    agent = Adds(SPEC, 30, PRIVATE)
    with monkeypatch.context() as patch:
        patch.setattr(runs, "erase", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agent.learn(block_of(10), people(0, 10))
    assert count(agent, schema.releases) == 0
    with agent.store.read() as db:
        assert {row.spent for row in db.execute(sa.select(schema.accounts))} == {0}
    assert agent.step()
    assert (agent.served, ledger.verify(agent.store)) == (10, [])


def test_a_counter_that_was_drawn_from_in_vain_is_as_it_was(monkeypatch):
    agents = [Adds(SPEC, 30, PRIVATE, noise_seed=1, counter="smooth tree") for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(runs, "erase", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agents[0].learn(block_of(10))
    agents[0].step()
    agents[1].learn(block_of(10))
    for agent in agents:
        agent.learn(block_of(20, seed=2))
    np.testing.assert_array_equal(agents[0].state.rewards, agents[1].state.rewards)


def test_another_process_may_have_moved_the_block_on(tmp_path):
    one = Adds(SPEC, 40, PRIVATE, store=tmp_path / "runs.db")
    two = Adds(SPEC, 40, PRIVATE, store=tmp_path / "runs.db")
    one.learn(block_of(6), people(0, 6))
    two.learn(block_of(6, seed=1), people(6, 6))
    assert (one.served, one.taken, one.policy.version) == (10, 12, 1)
    one.learn(block_of(8, seed=2), people(12, 8))
    assert ((two.served, two.policy.version), ledger.verify(one.store)) == ((20, 2), [])


def test_rows_that_are_no_episodes_are_set_aside(tmp_path):
    agent = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    agent.learn(block_of(5), people(0, 5))
    with agent.store.write() as db:
        run = runs.find(db, "run")
        who = [(name, run.cost) for name in agent.store.pseudonyms(["bad"])]
        runs.put(db, run, runs.block_of(db, "run", 0), runs.Packet(1, b"poison", {0: 1}, who))
    agent.learn(block_of(4, seed=1), people(5, 4))
    assert (agent.served, agent.policy.version) == (10, 1)
    assert agent.problems() == ["set aside: rows that are no episodes of this run"]
    assert ledger.verify(agent.store) == []
    with agent.store.read() as db:
        fates = db.execute(
            sa.select(schema.people.c.fate, sa.func.count()).group_by(schema.people.c.fate)
        )
        assert dict(map(tuple, fates)) == {"released": 9, "unreadable": 1}
    agent.resolve_problem()
    assert agent.problems() == []


# What an error says of those who were taken.


def test_users_who_wait_for_their_block_are_taken_too():
    agent = Adds(SPEC, 30, PRIVATE, noise_seed=1, schedule="fixed:size=10")
    agent.algorithm.schedule = Schedule("short", (10, 10))
    with pytest.raises(HorizonExceeded, match="no block is left for 5 more") as caught:
        agent.learn(block_of(25))
    assert caught.value.users_taken == 20
    assert "data.take(slice(20, None))" in caught.value.__notes__[0]


def test_a_disk_that_is_full_takes_nobody(tmp_path, monkeypatch):
    agent = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    agent.learn(block_of(4), people(0, 4))

    def full(*_):
        raise sa.exc.OperationalError("insert", {}, OSError(28, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr(runs, "put", full)
        with pytest.raises(tacit.StoreGone, match="does not answer") as caught:
            agent.learn(block_of(3), people(4, 3))
    assert (caught.value.users_taken, agent.learn(block_of(3), people(4, 3)).waiting) == (0, 3)


@pytest.mark.parametrize(
    "ids", [np.arange(700, 705), [f"patient-{i}" for i in range(5)], range(700, 705)]
)
def test_names_are_kept_as_keyed_hashes(ids, tmp_path):
    agent = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    agent.learn(block_of(5), ids)
    agent.store.erase_traces()
    assert b"patient-" not in (tmp_path / "runs.db").read_bytes()
    assert agent.learn(block_of(5, seed=1), ids).refused == 5


def test_an_event_counts_once(tmp_path):
    agent = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    night = block_of(12), people(0, 12), [f"session {i}" for i in range(12)]
    first = agent.learn(night[0], night[1], events=night[2])
    assert (first.counted, first.waiting, first.known) == (10, 2, 0)
    again = agent.learn(night[0], night[1], events=night[2])
    assert (again.counted, again.waiting, again.known) == (0, 0, 12)
    with pytest.raises(InvalidArgument, match="no two the same"):
        agent.learn(block_of(2), ["a", "a"], events=["x", "x"])


def test_a_stopped_run_takes_nobody():
    agent = Adds(SPEC, 30, PRIVATE)
    agent.stop()
    with pytest.raises(InvalidArgument, match=r"agent\.start"):
        agent.learn(block_of(2), people(0, 2))
    agent.start()
    assert agent.learn(block_of(2), people(0, 2)).waiting == 2


def test_one_process_leads_and_another_follows(tmp_path):
    one = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    two = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    assert one.lead("one", 60.0)
    assert one.lead("one", 60.0)
    assert not two.lead("two", 60.0)
    with one.store.write() as db:
        runs.set_run(db, "run", lease=0.0)
    assert two.lead("two", 60.0)
    assert not one.lead("one", 60.0)


def test_a_public_file_is_made_once_and_never_changes(tmp_path):
    agent = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    body = agent.policy_body(0)
    assert body is not None
    agent.learn(block_of(10), people(0, 10))
    other = Adds(SPEC, 30, PRIVATE, store=tmp_path / "runs.db")
    assert other.policy_body(0) == body
    assert other.policy_body(7) is None
    (tmp_path / "policy.json").write_bytes(body[0])
    about = tacit.published.about(tmp_path / "policy.json")
    assert (about["agent"], ledger.verify(agent.store, str(about["ledger_head"]))) == ("adds", [])


@pytest.mark.parametrize("where", ["", "runs.db"])
def test_the_place_of_somebody_who_was_forgotten_stays_and_is_empty(where, tmp_path):
    agent = Adds(SPEC, 20, PRIVATE, store=tmp_path / where if where else "")
    agent.learn(block_of(6), people(0, 6))
    assert agent.forget(5) == {"removed": 1, "released": 0}
    assert (agent.taken, agent.block_users) == (6, 4)
    assert agent.learn(block_of(4), people(6, 4)).counted == 4
    assert (agent.served, agent.policy.version) == (10, 1)
    assert agent.learn(block_of(10), [5, *people(10, 9)]).counted == 10, "she may come again"
    assert ledger.verify(agent.store) == []


def test_two_agents_of_one_run_fill_blocks_together(tmp_path):
    """Whoever finds a block full goes on with the next one, and none has too many."""
    agents = [Adds(SPEC, 120, PRIVATE, store=tmp_path / "runs.db") for _ in range(3)]
    errors = list[BaseException]()

    def serve(which):
        try:
            for i in range(10):
                first = 40 * which + 4 * i
                agents[which].learn(block_of(4, seed=first), people(first, 4))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [agent.served for agent in agents] == [120] * 3
    with agents[0].store.read() as db:
        rows = db.execute(sa.select(schema.blocks).order_by(schema.blocks.c.block)).all()
    assert [row.users for row in rows] == [10] * 12 + [0]
    assert ledger.verify(agents[0].store) == []


# Warnings, before anything has happened.

RIVER = tacit.tabular.riverswim(states=3, horizon=4).spec


def said(*arguments, **options):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        tacit.UCBVI(RIVER, *arguments, **options)
    return [str(one.message) for one in found if one.category is TacitWarning]


def test_budgets_that_promise_little_are_named():
    (words,) = said(1000, tacit.JointDP(11.0, 1e-6))
    assert words.startswith("epsilon is 11: above 10")
    (words,) = said(1_000_000, tacit.JointDP(1.0, 1e-6))
    assert words.startswith("delta is 1e-06 for 1,000,000 users")
    assert "at most 1e-07" in words
    assert said(100_000, tacit.JointDP(10.0, 1e-6)) == []
    assert (said(1_000_000, tacit.JointDP(1.0, 0.0)), said(10**9, tacit.NonPrivate())) == ([], [])
    # Nobody is promised anything in a simulation.
    assert said(1_000_000, tacit.JointDP(99.0, 1e-3), noise_seed=0) == []


def test_nothing_is_made_where_warnings_are_errors(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TacitWarning):
            tacit.UCBVI(RIVER, 10**6, tacit.JointDP(1.0, 1e-6), store=tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_what_is_given_twice_is_named():
    agent = tacit.UCBVI(RIVER, 1000, tacit.JointDP(1.0, 1e-6))
    data = tacit.Episodes(np.zeros((1, 5)), np.zeros((1, 4)), np.zeros((1, 4)), [0], ["ann"])
    with pytest.raises(InvalidArgument, match="user_ids are given twice"):
        agent.learn(data, ["bob"])
    assert agent.learn(data, ["ann"]).waiting == 1


@pytest.mark.parametrize("sizes", [{"first": 0}, {"first": -5}, {"size": 0}, {"growth": 0.5}])
def test_blocks_of_no_size_are_refused(sizes):
    with pytest.raises(InvalidArgument, match=next(iter(sizes))):
        BlockSizes(**sizes)
