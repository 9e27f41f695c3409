"""What two processes on one store do to each other, step by step, on both databases."""

import json
import os
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy import select, update

import tacit
from tacit.core import release_loop
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.store import ledger
from tacit.store.schema import accounts, blocks, releases, runs, stores, versions
from tacit.store.store import Store
from tacit.store.values import load
from tacit.tabular.spec import FiniteSpec

pytestmark = [
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR"),
    pytest.mark.filterwarnings("ignore::tacit.privacy.errors.TacitWarning"),
]
SIZE, H = 4, 2
PAID = (0.12, 0.24, 0.48, 0.96)  # to users of a block: any two sums of them are far apart
SPEC = FiniteSpec(3, 2, H, stationary=False)
LITTLE = tacit.JointDP(4e6, 1e-7)  # so little noise that sums can be compared


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path, monkeypatch):
    monkeypatch.setattr(release_loop, "GRACE", 0.0)  # all places are written here
    if request.param == "sqlite":
        yield os.fspath(tmp_path / "app.db")
        return
    url = sa.make_url(request.getfixturevalue("database")).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    with engine.connect() as db:
        db.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    yield url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)


@pytest.fixture
def both(where):
    """The same run by two handles, as two processes have it."""
    opened = [Store(where), Store(where)]

    def made(kind=tacit.UCBVI, privacy=LITTLE, spec=SPEC, **options):
        given = {"schedule": f"fixed:size={SIZE}"} | options
        one, two = (kind(spec, 1000, privacy, store=store, **given) for store in opened)
        return one, two

    yield made
    for store in opened:
        store.close()


def send(agent, user, reward=0.5, ticket=None, policy=None):
    """One user who reads the policy and sends an episode; what she is told."""
    policy, ticket = policy or agent.policy, agent.intake.ticket() if ticket is None else ticket
    agent.intake.flush()
    parts = getattr(policy, "components", (policy,))
    states = np.zeros((1, H + 1), dtype=np.int64)
    rng = np.random.default_rng(0)
    actions = np.array([[parts[0].act(step, 0, rng) for step in range(H)]])
    columns = {"states": states, "actions": actions, "rewards": np.full((1, H), reward)}
    if len(parts) > 1:
        columns["components"] = np.zeros(1, dtype=np.int64)
    return agent.intake.receive(Block(1, columns), [user], [user], [ticket])[0].status


def fill(agent, name, users=SIZE):
    """So many users, each with a reward of her own."""
    names = [f"{name}{k}" for k in range(users)]
    told = [send(agent, user, PAID[k % 4]) for k, user in enumerate(names)]
    assert told == ["waiting"] * users
    return names


def sums(agent):
    """Rewards of a step in the releases, by block."""
    with agent.store.read() as db:
        rows = db.execute(select(releases)).all()
    return {row.block: float(load(row.value)["rewards"].sum()) / H for row in rows}


def near(paid):
    """Far less than one user off, and far more than noise."""
    return pytest.approx(paid, abs=0.05)


def well(agent):
    assert ledger.verify(agent.store) == []


def finish(agent):
    while agent.step():
        pass


def during(agent, what):
    """Does something whenever the agent has summed a block, before it commits."""
    answer = agent._run.curator.release_block

    def meanwhile(*args, **more):
        what()
        return answer(*args, **more)

    agent._run.curator.release_block = meanwhile


def test_who_is_forgotten_while_her_block_is_summed_is_in_no_release(both):
    one, two = both()
    fill(one, "u")
    told = list[Any]()
    during(one, lambda: told or told.append(two.forget("u3")))
    finish(one)
    assert told == [{"removed": 1, "released": 0}]
    with one.store.read() as db:
        (name,) = one.store.pseudonyms(["u3"])
        assert name not in ledger.released(db, "run", 0)
        assert len(ledger.released(db, "run", 0)) == SIZE - 1
        assert db.execute(select(accounts).where(accounts.c.person == name)).one().reserved == 0
    assert sums(two)[0] == near(sum(PAID[:3]))
    assert send(two, "u3") == "forgotten"
    well(one)


def test_a_stream_of_forgetting_does_not_keep_a_block_from_its_release(both):
    """Also during a long plan, which has nothing to do with who waits for the next block."""
    one, two = both()
    fill(one, "u")
    fill(one, "next", 3)
    plan, left = type(one.algorithm).plan, ["u0", "u1", "u2"]

    def long(self, *args):
        assert two.forget("next0")["removed"] + two.forget("next1")["removed"] == 2
        return plan(self, *args)

    during(one, lambda: left and two.forget(left.pop()))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(one.algorithm), "plan", long)
        finish(one)
    assert one.run_row().latest == 1
    assert sums(two)[0] == near(PAID[3])
    assert send(two, "last") == "waiting"
    one._loop.close()
    assert sums(two)[1] == near(PAID[2] + 0.5)
    well(one)


def test_a_plan_that_raises_draws_nothing_again(both):
    one, two = both()
    plan, calls, seen = type(one.algorithm).plan, [0], dict[int, bytes]()

    def sometimes(self, *args):
        calls[0] += 1
        if calls[0] % 2:
            raise ZeroDivisionError
        return plan(self, *args)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(one.algorithm), "plan", sometimes)
        for block in range(3):
            fill(one, f"{block}-")
            with pytest.raises(ZeroDivisionError):
                one.step()
            with one.store.read() as db:
                seen[block] = db.scalar(select(releases.c.value).where(releases.c.block == block))
            assert two.step()  # whoever goes on, by the record
    with one.store.read() as db:
        rows = db.execute(select(releases)).all()
    assert {row.block: row.value for row in rows} == seen
    assert len(rows) == one.run_row().latest == 3
    well(one)


def test_rolling_back_between_the_commits_loses_nobody(both):
    one, two = both()
    fill(one, "u")
    early = [one.intake.ticket() for _ in range(2)]  # of the next block, and of version 0
    one.intake.flush()

    def cut_off(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(one.algorithm), "plan", cut_off)
        with pytest.raises(KeyboardInterrupt):
            one.step()
    before = sums(two)
    assert send(two, "early0", ticket=early[0]) == "waiting"
    two.roll_back(0, pin=True)
    assert send(two, "early1", ticket=early[1]) == "waiting"
    row = two.run_row()
    assert (row.version, row.latest, row.pinned) == (1, 1, 1)
    assert not two.step()  # what was released stands, and teaches nothing
    assert sums(one) == before
    for k in range(2):
        assert send(one, f"late{k}") == "waiting"  # they follow version 1, in the same block
    finish(one)
    assert sums(two)[1] == near(4 * 0.5)
    assert (two.run_row().version, two.run_row().latest) == (1, 2)
    two.unpin()
    fill(two, "v")
    finish(two)
    assert two.run_row().version == two.run_row().latest
    well(one)


def test_counters_go_forward_when_a_version_is_rolled_back(both):
    one, two = both(tacit.ConcurrentPSRL, running=0)
    assert one.algorithm.counter != "blocks"
    size = one.block_users
    for turn, agent in enumerate((one, two, one, two)):
        fill(agent, f"{turn}-", size)
        assert agent.step()
        if turn == 1:
            two.roll_back(0)
    with one.store.read() as db:
        found = [load(v) for v in db.scalars(select(releases.c.value).order_by(releases.c.block))]
    assert [release.users for release in found] == [size, 2 * size, 3 * size, 4 * size]
    assert one.run_row().latest == 5
    well(one)


def test_a_counter_does_not_tell_how_many_sent(both):
    one, two = both(tacit.ConcurrentPSRL, running=0)
    size, one.intake.window = one.block_users, 0.0
    for turn in range(2):
        fill(one, f"{turn}-", size - 2)
        assert one.intake.ticket()
        assert one.intake.ticket()  # and nobody sends
        one.intake.flush()
        assert one.step()
    with two.store.read() as db:
        found = [load(v) for v in db.scalars(select(releases.c.value).order_by(releases.c.block))]
    assert [release.users for release in found] == [size, 2 * size]
    well(two)


def test_two_runs_do_not_both_take_a_last_budget(where):
    with Store(where) as store:
        given = {"schedule": f"fixed:size={SIZE}", "store": store}
        one, two = (tacit.UCBVI(SPEC, 1000, LITTLE, name=name, **given) for name in "ab")
        with store.write() as db:
            db.execute(update(stores).values(most=db.scalar(select(runs.c.cost).limit(1))))
        assert send(one, "ann") == "waiting"
        assert send(two, "ann") == "refused"
        assert one.forget("ann")["removed"] == 1
        fill(two, "v", SIZE - 1)  # and her refused episode has left its place empty
        fill(one, "u", SIZE - 1)
        one._loop.close()
        assert ledger.verify(store) == []


def reported(agent, user, odd=None):
    """One device's report, or one that no device makes."""
    statistic, policy = agent.statistic, agent.policy
    h = agent.spec.horizon
    data = {"states": np.zeros((1, h + 1), int), "rewards": np.full((1, h), 0.5)}
    data["actions"] = np.array([[policy.act(step, 0) for step in range(h)]])
    data["versions"] = np.full(1, policy.version)
    rows = tacit.local.report(statistic, Block(1, data), agent.privacy)[np.newaxis]
    if odd is not None:
        rows = np.full_like(rows, odd)
    ticket = agent.intake.ticket()
    (told,) = agent.intake.receive(Block(1, {"reports": rows}), [user], ["e"], [ticket])
    assert told.accepted


def test_a_report_that_no_device_makes_costs_nobody_else_theirs(both):
    one, two = both(privacy=tacit.LocalDP(4e6, 1e-7))
    for k, odd in enumerate((None, np.nan, 1e300, -np.inf)):
        reported(one, f"{k}", odd)
    finish(two)
    assert two.run_row().latest == 1
    assert sums(two) == {0: near(0.5)}


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_ticket_that_was_lost_with_its_process_counts_by_its_version(both, forgotten):
    """Others of another version never send: her place is not one of theirs."""
    one, two = both()
    fill(one, "u")
    policy, lost = one.policy, one.intake.ticket()  # in the next block; its process is killed
    finish(two)
    assert [two.intake.ticket() for _ in range(SIZE - 1)]  # of version 1, and nobody sends
    two.intake.flush()
    two.intake.window = 0.0
    assert send(two, "ann", 0.96, lost, policy) == "waiting"
    if forgotten:
        two.forget("ann")
    finish(two)
    with two.store.read() as db:
        versions_ = db.scalar(select(blocks.c.versions).where(blocks.c.block == 1))
    assert json.loads(versions_) == {"0": 1, "1": SIZE - 1}
    assert sums(two)[1] == near(0.0 if forgotten else 0.96)
    well(two)


def test_reports_of_one_version_are_summed_though_places_are_of_two(both):
    """A process that looks while another publishes may give a place by the version before."""
    one, two = both(privacy=tacit.LocalDP(4e6, 1e-7), spec=FiniteSpec(3, 2, 3, stationary=True))
    before, size = one._run.look(), one.statistic.layout.size
    for k in range(SIZE):
        reported(two, f"{k}")
    finish(two)
    one._run.view = one._run.look(fresh=True)._replace(row=before.row)
    early = one.intake.ticket()
    one.intake.flush()
    (told,) = two.intake.receive(Block(1, {"reports": np.zeros((1, size))}), ["x"], ["e"], [early])
    assert told.status == "late"
    for k in range(SIZE - 1):
        reported(two, f"next{k}")
    two.intake.window = 0.0
    assert two.statistic.layout.size != size
    assert two.step()
    assert (two.run_row().latest, two.run_row().releases) == (2, 2)
    well(two)


def test_a_sealed_block_whose_reports_are_all_forgotten_is_filled_again(both):
    one, two = both(privacy=tacit.LocalDP(4e6, 1e-7))
    for k in range(SIZE):
        reported(one, f"{k}")
    left = [f"{k}" for k in range(SIZE)]
    during(one, lambda: [two.forget(left.pop()) for _ in [*left]])
    finish(one)
    for k in range(SIZE):
        reported(two, f"next{k}")
    two.intake.window = 0.0  # places of who is forgotten stay empty
    finish(two)
    assert (two.run_row().latest, two.run_row().releases) == (1, 1)
    assert sums(two)[0] == near(0.5 * SIZE)
    well(two)


def test_a_first_plan_does_not_hold_the_lock_of_a_store(where):
    plan, wrote = tacit.tabular.ucbvi.UCBVI.plan, list[int]()

    def slow(self, *args):
        with Store(where) as other, other.write() as db:
            wrote.append(db.execute(update(stores).values(witness="")).rowcount)
        return plan(self, *args)

    with pytest.MonkeyPatch.context() as patched, Store(where) as store:
        patched.setattr(tacit.tabular.ucbvi.UCBVI, "plan", slow)
        agent = tacit.UCBVI(SPEC, 1000, LITTLE, store=store, schedule=f"fixed:size={SIZE}")
        assert wrote == [1]
        assert agent.run_row().latest == 0


def test_a_stopped_process_loses_the_lock_of_a_database(where):
    """What an idle transaction has time for is far less than what a device waits."""
    if not where.startswith("postgresql"):
        pytest.skip("a file's lock goes with its process alone")
    with Store(where) as store, store.read() as db:
        seconds = db.scalar(sa.text("SHOW idle_in_transaction_session_timeout"))
        assert seconds == "5s"
        assert db.scalar(sa.text("SHOW lock_timeout")) == "10s"


def test_a_clock_that_was_set_back_holds_nothing_up(both, monkeypatch):
    one, two = both()
    now = release_loop.time.time()
    monkeypatch.setattr(release_loop.time, "time", lambda: now + 86400.0)
    assert one.lead("one")
    one.intake.window = two.intake.window = 10.0
    fill(one, "u", SIZE - 1)
    assert one.intake.ticket()
    one.intake.flush()
    monkeypatch.setattr(release_loop.time, "time", lambda: now)
    assert two.lead("two")
    assert not two.step()
    monkeypatch.setattr(release_loop.time, "time", lambda: now + 10.0)
    assert two.step()
    with two.store.read() as db:
        assert len(db.execute(select(versions)).all()) == 2
    assert len(sums(two)) == 1


def test_reports_on_which_every_plan_fails_are_left_out_by_rolling_back(both):
    one, two = both(privacy=tacit.LocalDP(4e6, 1e-7))
    with pytest.MonkeyPatch.context() as patched:

        def fails(*_):
            raise ZeroDivisionError

        patched.setattr(type(one.algorithm), "plan", fails)
        for k in range(SIZE):
            reported(one, f"{k}")
        for agent in (one, two):
            with pytest.raises(ZeroDivisionError):
                agent.step()
    two.roll_back(0)
    assert not one.step()
    reported(one, "next")
    with pytest.raises(InvalidArgument, match="no way back"):
        two.roll_back(0)  # she reports for the version that serves
    for k in range(1, SIZE):
        reported(two, f"next{k}")
    assert one.step()
    row = two.run_row()
    assert (row.version, row.latest, row.releases) == (2, 2, 2)
    well(two)
