"""A story of an app that the library does not know: delays, people who return, an outage, a roll
back, a deletion; over HTTP with rewards that come late, and by nightly files.

Its clock is the test's: time passes where the store says when a block closed.
"""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

import tacit
from tacit.store import ledger, schema
from tacit.store.store import Store
from tacit.store.values import load
from tests.cli.calls import call, content
from tests.service.running import running
from tests.service.world import make_app, reads

# An app that may ask a person to do her exercise: asking who is busy sends her away.
STATES, ACTIONS, H = ["new", "idle", "busy"], ["wait", "ask"], 3
PAYS = np.array([[0.3, 0.4], [0.2, 0.9], [0.5, 0.05]])  # by state and action
IDLE = np.array([[0.5, 0.6], [0.3, 0.7], [0.5, 0.1]])  # chance to be idle next, else busy
NEVER, LOST = 0.01, 0.03  # outcomes that never come, and people who never act
BLOCK = 40
LATE = '[late]\ndefault_reward = 0.0\n[schedule]\nevery = "1 day"'


class People:
    """People and what became of each of their sessions."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.sessions = Counter[str]()  # by person
        self.told = dict[tuple[str, str], str]()
        self.owed = list[tuple[int, dict[str, Any]]]()  # outcomes, by the session when they are due
        self.decided = dict[tuple[str, str], dict[str, Any]]()

    def who(self):
        """Somebody new, or one who was here before."""
        old = self.sessions and self.rng.random() < 0.2
        name = str(self.rng.choice([*self.sessions])) if old else f"p{len(self.sessions)}"
        self.sessions[name] += 1
        return name, f"{self.sessions[name]}"

    def after(self, state, action):
        reward = float(self.rng.random() < PAYS[state, action])
        return reward, 1 if self.rng.random() < IDLE[state, action] else 2

    def visits(self, device, now):
        """One session: decisions now, outcomes up to two blocks later."""
        user, event = self.who()
        policy, state = reads(device), 0
        if self.rng.random() < LOST or not device._ticket:
            self.told[user, event] = "lost" if device._ticket else "unasked"
            return
        for step in range(H):
            label = policy.act(step, STATES[state], self.rng)
            did = {"state": STATES[state], "action": label, "user": user, "probability": 1.0}
            told = device.decide(event, step=step, **did)["status"]
            self.told[user, event] = told
            if told != "waiting":
                return
            self.decided.setdefault((user, event), did | {"ticket": device._ticket})
            reward, state = self.after(state, ACTIONS.index(label))
            said = {"event": event, "step": step, "user": user, "reward": reward}
            if self.rng.random() >= NEVER:
                due = now + int(self.rng.integers(0, 2 * BLOCK))
                self.owed.append((due, said | {"next_state": STATES[state]}))

    def report(self, device, now):
        """Outcomes that are known by now, some of them twice."""
        due = [said for at, said in self.owed if at <= now]
        self.owed = [(at, said) for at, said in self.owed if at > now]
        for said in due:
            for _ in range(1 + int(self.rng.random() < 0.1)):
                told = device.outcome(**said)["status"]
                assert told in ("waiting", "forgotten"), told


def changed(run, every, first, last):
    """Blocks of a stage are as old as they come."""
    of = schema.blocks.c
    with run.service.store.write() as db:
        which = (of.stage == every, of.block >= first, of.block <= last)
        db.execute(sa.update(schema.blocks).where(*which).values(at=1.0))


def steps_that_count(store):
    """Of all releases; with so much budget there is next to no noise."""
    with store.read() as db:
        values = db.scalars(sa.select(schema.releases.c.value)).all()
    return float(sum(np.clip(load(value)["transitions"], 0.0, None).sum() for value in values))


def tell(app, people, sessions):
    """The story over HTTP, with an outage, a roll back and a deletion at thirds of it."""
    parts = np.array_split(np.arange(sessions), 3)
    for part, some in enumerate(parts):
        with running(app) as run:  # an outage of the service lies between
            device, curator = run.client(), run.client("curator")
            for now in map(int, some):
                people.visits(device, now)
                people.report(device, now)
                if now % BLOCK == BLOCK - 1:
                    run.service.watch()
                    ended = run.service.seen.run.block - 3
                    changed(run, "closed", 0, ended)
                    run.wait(lambda s, ended=ended: s["blocks"] > ended)
            if part == 1:
                curator.post("/v1/commands", {"what": "serve", "version": 0})
                waits = [key for key, told in people.told.items() if told == "waiting"]
                gone = waits[-1][0]
                assert curator.post("/v1/forget", {"user": gone})["removed"] >= 1
                for key in people.told:
                    if key[0] == gone and key in people.decided:
                        told = decides_again(device, people, key)
                        people.told[key] = told if told == "forgotten" else people.told[key]
            if part == 2:
                people.report(device, sessions + 2 * BLOCK)
                run.wait(lambda s: s["places"] >= 0)
                changed(run, "open", 0, 10**6)  # the clock closes the last block
                run.wait(lambda s: s["places"] == 0)
                changed(run, "closed", 0, 10**6)
                run.wait(lambda s: s["served"] == s["taken"])
                for key, told in people.told.items():
                    if told == "waiting":
                        people.told[key] = decides_again(device, people, key)


def decides_again(device, people, key):
    """An app that sends its first decision again is told what became of the session."""
    said = people.decided[key] | {"event": key[1], "step": 0}
    return str(device.post("/v1/decisions", said)["status"])


def story_over_http(folder, sessions, seed, **options):
    more = {"size": BLOCK, "window": 86400, "serve": LATE, "privacy": "episodes_per_user = 2"}
    app = make_app(folder, horizon=H, **more | options)
    people = People(seed)
    tell(app, people, sessions)
    classes = Counter(people.told.values())
    assert sum(classes.values()) == sum(people.sessions.values()) == sessions
    assert set(classes) <= {"closed", "refused", "forgotten", "lost"}, classes
    # Third sessions, and those within one block, are refused.
    assert classes["refused"] > 0
    assert classes["forgotten"] > 0
    with app.open() as store:
        assert ledger.verify(store) == []
        with store.read() as db:
            fates = Counter(db.scalars(sa.select(schema.events.c.fate)))
            assert db.execute(sa.select(schema.packets)).all() == []
            taken = db.scalar(sa.select(schema.runs.c.taken))
        assert fates == {"counted": classes["closed"], "forgotten": classes["forgotten"]}
        assert taken == sessions, "everybody who read a policy took one place"
        if options.get("epsilon") is None:
            teach = steps_that_count(store) / (H * classes["closed"])
            assert 0.97 <= teach <= 1.03, teach


@pytest.fixture(autouse=True)
def plenty(monkeypatch):
    """So much budget that a release shows what it was made of."""
    from tests.service import world

    monkeypatch.setattr(world, "APP", world.APP.replace("epsilon = 1.0", "epsilon = 100000.0"))


@pytest.mark.filterwarnings("ignore::tacit.TacitWarning")
def test_nobody_is_in_vain_over_http(tmp_path):
    story_over_http(tmp_path, 5 * BLOCK, seed=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.TacitWarning")
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_is_in_vain_over_http_for_long(tmp_path, seed):
    story_over_http(tmp_path, 30 * BLOCK, seed=seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.TacitWarning")
def test_nobody_is_in_vain_on_postgresql(tmp_path, database):
    story_over_http(tmp_path, 12 * BLOCK, seed=3, store=database, name="story")


NIGHTS = """
[world]
states = ["new", "idle", "busy"]
actions = ["wait", "ask"]
horizon = 3

[agent]
name = "ucbvi"
users = {users}
successor = true
schedule = "fixed:size={size}"

[privacy]
epsilon = {epsilon}
delta = 1e-7

[log]
path = "logs"
episode = "session"
version = "version"

[files]
policy = "out.json"
store = "{store}"
"""


def night(people, policy, users, day):
    """Rows of a day's sessions, by the night whose file has them: up to two later."""
    rows = dict[int, list[str]]()
    for _ in range(users):
        user, session = people.who()
        state, later = 0, int(people.rng.integers(0, 3))
        for step in range(H):
            label = policy.act(step, STATES[state], people.rng)
            reward, after = people.after(state, ACTIONS.index(label))
            row = (user, step, STATES[state], label, reward, STATES[after], session)
            rows.setdefault(day + later, []).append(",".join(map(str, (*row, policy.version))))
            state = after
    return rows


def values(policy):
    """Value of a policy of the story's app, exactly."""
    value = np.zeros(3)
    for step in reversed(range(H)):
        chosen = [ACTIONS.index(policy.act(step, s, np.random.default_rng(0))) for s in STATES]
        stay = np.array([IDLE[s, a] for s, a in enumerate(chosen)])
        pays = np.array([PAYS[s, a] for s, a in enumerate(chosen)])
        value = pays + stay * value[1] + (1 - stay) * value[2]
    return float(value[0])


def extremes():
    """Value of the best policy, and of random actions."""
    best, chance = np.zeros(3), np.zeros(3)
    for _ in range(H):
        best = (PAYS + IDLE * best[1] + (1 - IDLE) * best[2]).max(axis=1)
        chance = (PAYS + IDLE * chance[1] + (1 - IDLE) * chance[2]).mean(axis=1)
    return float(best[0]), float(chance[0])


def story_of_nights(folder, nights, users, epsilon, store="app.db"):
    """Values of the policies that served, night after night; everybody is in one class."""
    app, people, served = folder / "app.toml", People(nights), list[float]()
    sizes = {"users": nights * users // 2, "size": users, "epsilon": epsilon, "store": store}
    store = store if "://" in store else str(folder / store)
    app.write_text(NIGHTS.format(**sizes))
    (folder / "logs").mkdir()
    names = "user,step,state,action,reward,next_state,session,version"
    rows, totals, seen = dict[int, list[str]](), Counter[str](), set[str]()
    for day in range(nights + 2):
        if day == 0:
            (folder / "logs" / "empty.csv").write_text(names + "\n")
            assert call("learn", app).exit_code == 0, "nobody came, and nobody is lost"
        policy = tacit.published.load(folder / "out.json")
        served.append(values(policy))
        for at, more in (night(people, policy, users, day) if day < nights else {}).items():
            rows.setdefault(at, []).extend(more)
        file = folder / "logs" / f"day {day:03}.csv"
        file.write_text("\n".join([names, *rows.pop(day, [])]) + "\n")
        told = json.loads(call("learn", app, "--json").stdout)["files"]
        if day == nights // 2:  # an outage, and a file that was written on meanwhile
            again = file.read_text().splitlines()
            file.write_text("\n".join([*again, *again[-H:]]) + "\n")
        if day == nights // 3:
            content(call("learn", app, "--roll-back", policy.version, "--json"))
        for each in told:
            if each["file"] in seen:  # it was written on: everybody is known, or refused again
                assert each["known"] + each["refused"] == each["users"] > 0
                continue
            seen.add(each["file"])
            totals.update({k: n for k, n in each.items() if k != "file"})
    classes = ("counted", "waiting", "retired", "refused", "known")
    assert totals["users"] == sum(totals[each] for each in classes)
    assert sum(people.sessions.values()) == nights * users
    assert totals["users"] == nights * users
    assert (totals["retired"], totals["known"], len(seen)) == (0, 0, nights + 2)
    assert content(call("ledger", "verify", store, "--json"))["well"]
    taken = totals["counted"] + totals["waiting"]
    # One session of each person, the first that came.
    assert taken == len(people.sessions)
    if epsilon > 1e3:  # in runs that went on from one another, too
        with Store(store) as opened:
            teach = steps_that_count(opened) / (H * totals_in_releases(opened))
        assert 0.97 <= teach <= 1.03, teach
    return served


def totals_in_releases(store):
    with store.read() as db:
        return int(db.scalar(sa.select(sa.func.sum(schema.runs.c.served))) or 0)


@pytest.mark.filterwarnings("ignore::tacit.TacitWarning")
def test_nobody_is_in_vain_by_nightly_files(tmp_path):
    served = story_of_nights(tmp_path, nights=6, users=60, epsilon=1e5)
    assert len(served) == 8


@pytest.mark.slow
def test_people_who_are_served_reach_the_optimum(tmp_path):
    """90 % of what can be gained over random actions, at epsilon 1."""
    served = story_of_nights(tmp_path, nights=30, users=2000, epsilon=1.0)
    best, chance = extremes()
    reached = [(value - chance) / (best - chance) for value in served]
    assert min(reached[15:]) >= 0.9, reached
