"""Receipts and versions: everybody is somewhere, and what they teach is counted."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa

import tacit
from tacit.core.intake import Receipt
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, TacitWarning
from tacit.store import ledger, runs, schema
from tacit.store.values import load
from tacit.tabular.spec import FiniteSpec

STATES, ACTIONS, H = ["new", "idle", "busy", "away"], ["wait", "ask"], 4
SPEC = FiniteSpec.named(STATES, ACTIONS, horizon=H, stationary=True)
PRIVACY = tacit.JointDP(epsilon=1e6, delta=1e-6)
WORLD = tacit.tabular.random_mdp(states=4, actions=2, horizon=H, seed=1)


def make(users=5000, size=100, kind="UCBVI", **more):
    options = {"privacy": PRIVACY, "noise_seed": 0, "schedule": f"fixed:size={size}"} | more
    return getattr(tacit, kind)(SPEC, users, **options)


def night(policy, names, rng, version=None):
    """One session each of some people, as an app logs them: text, times, gaps, no next state."""
    log = {name: [] for name in ("user", "when", "state", "action", "reward", "version", "session")}
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


def episodes(log):
    frame = pd.DataFrame(log).astype({"state": "category"})
    return tacit.Episodes.from_frame(
        frame, spec=SPEC, time="when", next_state=None, version="version", episode="session"
    )


def test_who_is_refused_uses_up_no_place(tmp_path):
    """The last places are for those who may come, however many come who may not."""
    agent = make(users=20, size=20, store=tmp_path / "app.db")
    rng = np.random.default_rng(0)
    first = [f"user {i}" for i in range(15)]
    assert agent.learn(episodes(night(agent.policy, first, rng))).waiting == 15
    both = [*first, *(f"new {i}" for i in range(5))]
    receipt = agent.learn(episodes(night(agent.policy, both, rng)))
    assert (receipt.refused, receipt.counted, agent.served) == (15, 5, 20)
    with pytest.raises(HorizonExceeded, match="0 are left, 1 came"):
        agent.learn(episodes(night(agent.policy, ["late"], rng, version=0)))


def classes(receipt):
    parts = (receipt.counted, receipt.waiting, receipt.retired, receipt.refused, receipt.known)
    return sum(parts)


def visits(agent):
    """Visits in all releases; the noise is far below one."""
    with agent.store.read() as db:
        rows = [*db.execute(sa.select(schema.releases))]
    return float(sum(load(row.value)["transitions"].sum() for row in rows))


def steps(data, statistic):
    """What users teach if all of them are counted, by what is asked of their block."""
    return int(statistic.layout.unpack(statistic.total(data.block()))["transitions"].sum())


def test_from_a_frame_to_policies_nobody_is_lost_silently():
    """Text states, categories, returning users, gaps, and versions across publications."""
    agent, rng = make(3000), np.random.default_rng(0)
    totals, given = dict.fromkeys(("counted", "waiting", "retired", "refused"), 0), 0
    stale = None
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
        data = episodes({column: [values[i] for i in order] for column, values in log.items()})
        stale = agent.policy
        receipt = agent.learn(data)
        assert receipt.users == data.users == classes(receipt)
        assert receipt.version == agent.policy.version
        assert receipt.refused == len(back), "who came on the first day has no episode left"
        assert receipt.retired == 0, "who followed the policy before teaches as much"
        assert receipt.published == ((agent.policy.version,) if receipt.counted else ())
        for name in totals:
            totals[name] += getattr(receipt, name)
        given += data.users
    assert sum(totals.values()) == given
    assert agent.taken == given - totals["refused"]
    assert ledger.verify(agent.store) == []


def test_people_beyond_their_episodes_are_refused_and_said_so():
    agent, rng = make(size=10), np.random.default_rng(2)
    first = episodes(night(agent.policy, [f"user {i}" for i in range(10)], rng))
    assert agent.learn(first).counted == 10
    again = episodes(night(agent.policy, ["user 1", "user 2", "new"], rng))
    assert agent.learn(again) == Receipt(3, waiting=1, refused=2, version=1)
    rest = episodes(night(agent.policy, ["user 3", *(f"more {i}" for i in range(9))], rng))
    assert agent.learn(rest) == Receipt(10, 9, 0, 0, 1, 2, (2,))


def test_versions_that_were_never_published_teach_nothing():
    agent, rng = make(size=10), np.random.default_rng(3)
    agent.learn(episodes(night(agent.policy, [f"user {i}" for i in range(10)], rng)))
    data = episodes(night(agent.policy, ["a", "b"], rng))
    for versions in (None, [7, 7]):
        other = tacit.Episodes(data.states, data.actions, data.rewards, versions)
        with pytest.raises(InvalidArgument, match="versions must say"):
            agent.learn(other, ["x", "y"])
        assert agent.taken == 10
    one = tacit.Episodes(data.states, data.actions, data.rewards, [-1, 1])
    with pytest.warns(TacitWarning, match="1 of these users followed none"):
        assert agent.learn(one, ["x", "y"]).retired == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(TacitWarning):
            agent.learn(one, ["v", "w"])
    assert agent.taken == 11


@pytest.mark.parametrize("kind", ["UCBVI", "UCBPO", "ConcurrentPSRL"])
def test_each_user_of_a_block_is_asked_by_the_version_that_she_followed(kind):
    agent, rng = make(size=40, kind=kind), np.random.default_rng(4)

    def served(policy, users, at):
        data = WORLD.simulate(policy, users, rng, "episodes")
        names = [f"{at}-{i}" for i in range(users)]
        columns = (data.states, data.actions, data.rewards, data.versions)
        components = data.block().arrays.get("components")
        return tacit.Episodes(*columns, user_ids=names, components=components)

    first = agent.policy
    agent.learn(served(first, 40, 0))
    second, asked = agent.policy, agent.statistic
    old, new = served(first, 25, 1), served(second, 15, 2)
    before = visits(agent)
    receipt = agent.learn(old)
    assert ((receipt.waiting, receipt.retired), agent.learn(new).counted) == ((25, 0), 15)
    with agent.store.read() as db:
        block = runs.block_of(db, "run", 1)
    assert json.loads(block.versions) == {"0": 25, "1": 15}
    alone = steps(new, asked)
    assert visits(agent) - before > 1.5 * alone, "those of the first version count, too"
    assert (agent.policy.version, ledger.verify(agent.store)) == (2, [])


def test_rolled_back_users_are_counted_and_numbers_only_grow(tmp_path):
    agent, rng = make(size=20, store=tmp_path / "runs.db"), np.random.default_rng(5)
    people = iter(f"user {i}" for i in range(1000))

    def serve(users):
        return agent.learn(episodes(night(agent.policy, [next(people) for _ in range(users)], rng)))

    first = agent.policy
    serve(20)
    serve(7)  # wait under version 1
    agent.roll_back(0, pin=True)
    assert (agent.policy.version, agent.releases, agent.served, agent.taken) == (2, 1, 20, 27)
    np.testing.assert_array_equal(agent.policy.actions, first.actions)
    receipt = serve(13)
    assert (receipt.counted, receipt.version, receipt.published) == (13, 2, (3,))
    assert agent.served == 40, "who waited under the version before is in the block"
    again = make(size=20, store=tmp_path / "runs.db")
    assert (again.policy.version, again.releases) == (2, 2)
    agent.unpin()
    assert serve(20).version == agent.policy.version == 4
    with pytest.raises(InvalidArgument, match="version 9 of 'run' is not kept"):
        agent.roll_back(9)
    assert ledger.verify(agent.store) == []


def test_a_counter_only_goes_forward_whatever_is_rolled_back():
    agents = [make(size=20, kind="ConcurrentPSRL", running=0) for _ in range(2)]
    assert agents[0].algorithm.counter != "blocks"
    rng = np.random.default_rng(7)
    for step in range(3):
        data = WORLD.simulate(agents[0].policy, 20, rng, "episodes")
        for agent in agents:
            agent.learn(data)
        if step == 1:
            for agent in agents:
                agent.roll_back(1)
    with agents[0].store.read() as db:
        found = [load(row.value).users for row in db.execute(sa.select(schema.releases))]
    assert found == [20, 40, 60]


def read(agent, devices, at_once=10):
    """Tickets and policies of devices that read one after the other."""
    found = []
    for i in range(devices):
        found.append((agent.intake.ticket(), agent.policy))
        if i % at_once == at_once - 1:
            agent.intake.flush()
    agent.intake.flush()
    return found


def send(agent, devices, first, seed=0):
    rng = np.random.default_rng(first)
    blocks = [WORLD.simulate(policy, 1, rng, "episodes").block() for _, policy in devices]
    columns = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0].arrays}
    names = [f"p{first + i}" for i in range(len(devices))]
    events = [f"e{first + i}" for i in range(len(devices))]
    rows = tacit.Block(len(devices), columns)
    told = agent.intake.receive(rows, names, events, [ticket for ticket, _ in devices])
    return [answer.status for answer in told]


def wait(agent, seconds):
    """As if so much time had gone by since blocks were closed."""
    with agent.store.write() as db:
        db.execute(sa.update(schema.blocks).values(at=schema.blocks.c.at - seconds))
    agent._run.look(fresh=True)


@pytest.mark.parametrize("kind", ["UCBVI", "ConcurrentPSRL"])
def test_nobody_is_thrown_away_who_read_a_policy_before_others_sent(kind):
    agent = make(size=20, kind=kind)
    devices = read(agent, 100)
    assert all(ticket for ticket, _ in devices)
    assert send(agent, devices, 0) == ["waiting"] * 100
    wait(agent, 2.0)
    while agent.step():
        pass
    assert (agent.served, agent.policy.version) == (100, 5)
    assert send(agent, devices[:3], 0) == ["counted"] * 3, "sent again, told the same"
    assert ledger.verify(agent.store) == []


def test_a_place_is_in_the_block_of_its_ticket_and_the_rest_is_empty():
    agent = make(size=20)
    devices = read(agent, 60)
    # The devices of the second block send first: that changes nothing.
    assert send(agent, devices[20:40], 20) == ["waiting"] * 20
    assert not agent.step()
    assert send(agent, devices[:15], 0) == ["waiting"] * 15
    wait(agent, 2.0)
    assert not agent.step(), "five may still come"
    assert send(agent, devices[14:15], 99) == ["used"]
    wait(agent, agent.intake.window)
    while agent.step():
        pass
    assert (agent.served, agent.policy.version) == (60, 3), "places count, and are empty"
    assert send(agent, devices[15:20], 15) == ["late"] * 5
    assert send(agent, [("0.9.abc.def", agent.policy), ("", agent.policy)], 50) == ["unknown"] * 2
    with agent.store.read() as db:
        rows = [*db.execute(sa.select(schema.blocks).order_by(schema.blocks.c.block))]
    assert [(row.places, row.users) for row in rows][:3] == [(20, 15), (20, 20), (20, 0)]
    assert ledger.verify(agent.store) == []


def test_a_person_s_last_budget_is_reserved_by_the_run_that_accepts_her(tmp_path):
    store = tacit.Store(tmp_path / "runs.db")
    both = [make(size=20, store=store, name=name, noise_seed=None) for name in ("a", "b")]
    with store.write() as db:
        db.execute(sa.update(schema.stores).values(most=runs.find(db, "a").cost))
    told = [send(agent, read(agent, 1), 7) for agent in both]
    assert told == [["waiting"], ["refused"]]
    assert both[0].forget("p7") == {"removed": 1, "released": 0}
    assert (send(both[1], read(both[1], 1), 7), ledger.verify(store)) == (["waiting"], [])


def test_devices_of_a_local_block_are_all_asked_the_same():
    privacy = tacit.LocalDP(epsilon=1e5, delta=1e-6)
    agent = make(size=20, privacy=privacy, noise_seed=None)
    rng, sent = np.random.default_rng(0), 0
    for version in range(4):
        statistic, devices = agent.statistic, read(agent, 30)
        places = [ticket for ticket, _ in devices if ticket]
        assert len(places) == 20, "the others follow the policy, and are not asked"
        with pytest.raises(InvalidArgument, match="no way back"):
            agent.roll_back(0)
        data = [WORLD.simulate(policy, 1, rng, "episodes").block() for _, policy in devices]
        with pytest.raises(InvalidArgument, match="devices made"):
            agent.learn(data[0])
        made = [tacit.local.report(statistic, one, privacy) for one in data[: len(places)]]
        names = [f"{version}-{i}" for i in range(len(places))]
        told = agent.intake.receive(agent.report_block(np.stack(made)), names, names, places)
        assert [answer.status for answer in told] == ["waiting"] * len(places)
        wait(agent, 2.0)
        assert agent.step()
        sent += len(places)
        assert (agent.served, agent.policy.version) == (sent, version + 1)
    with pytest.raises(InvalidArgument, match="for LocalDP"):
        make(size=20).learn_reports(np.zeros((20, 1)))


def test_people_who_come_back_have_names_where_blocks_must_be_apart():
    """The guarantee counts one row of a person for each block: without names nothing says so."""
    world = tacit.tabular.riverswim(3, 4)
    twice = tacit.JointDP(1.0, 1e-6, episodes_per_user=2, disjoint=True)
    real = tacit.UCBVI(world.spec, 40, twice, schedule="fixed:size=20")
    data = world.simulate(real.policy, 20, np.random.default_rng(0))
    with pytest.raises(tacit.InvalidArgument, match="user_ids"):
        real.learn(data)
    assert (real.taken, real.learn(data, [f"p{i}" for i in range(20)]).counted) == (0, 20)
    simulated = tacit.UCBVI(world.spec, 40, twice, schedule="fixed:size=20", noise_seed=0)
    assert simulated.learn(data).counted == 20
