"""The campaign: a small history, and wrongs that its checker must find."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import select, update

import tacit
from research.campaign import __main__ as command
from research.campaign.books import audit
from research.campaign.clients import Journal, Sent, Told
from research.campaign.histories import CASES, history
from research.campaign.servers import H, app_text, write_app
from tacit.data.episodes import Episodes
from tacit.service.app_file import read_app
from tacit.service.intake import form_of
from tacit.store import schema
from tacit.store.store import Store
from tacit.store.values import dump, load

pytestmark = [
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR"),
    pytest.mark.filterwarnings("ignore::tacit.privacy.errors.TacitWarning"),
]


def test_a_small_history():
    told = history("sqlite", "on-policy", "back", 2, seed=7)
    assert told.wrong == []
    assert told.counts["releases"] == told.counts["sums"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("case", CASES)
def test_some_of_each_case(database, case):
    for kind in CASES[case].kinds:
        assert history(database, kind, case, 6, seed=7).wrong == []


def test_the_stored_campaign_found_nothing():
    if command.STORED.exists():
        assert command.table(command.json.loads(command.STORED.read_text()))[-1].endswith(
            " 0 wrong"
        )


def honest(folder):
    """A run of 30 users, the last of whom wait, and its journal."""
    write_app(folder / "app.toml", app_text("ucbvi", "joint", 10**6, "app.db"))
    app = read_app(str(folder / "app.toml"), logs=False)
    store = Store(app.store)
    agent, journal = app.agent(store), Journal(folder / "journal")
    rng = np.random.default_rng(0)
    for k in range(30):
        policy = agent.policy
        states = np.concatenate([[0], rng.integers(3, size=H)])
        actions = [policy.act(h, int(states[h]), rng) for h in range(H)]
        rewards = rng.random(H).round(6)
        journal.sent(Sent(f"u{k}", f"e{k}", "run", f"t{k}", float(rewards.sum()), H, 0))
        data = Episodes([states], [actions], [rewards], [policy.version])
        agent.learn(data, [f"u{k}"], events=[f"e{k}"])
        journal.add("told", f"e{k}", "waiting")
    with store.read() as db:
        journal.add("head", db.scalar(select(schema.stores.c.head)))
    return store, folder / "journal"


def found(store, journal):
    return audit(store, Told(journal), journal.with_name("log"), Counter())


def lose_an_event(db):
    db.execute(schema.events.delete().where(schema.events.c.fate == "waiting"))


def lose_a_person(db):
    db.execute(schema.people.delete().where(schema.people.c.fate == "waiting"))


def count_twice(db):
    columns = [column for column in schema.people.c if column.key != "id"]
    waiting = select(10**6, *columns).where(schema.people.c.fate == "waiting").limit(1)
    db.execute(schema.people.insert().from_select(["id", *(c.key for c in columns)], waiting))


def sum_somebody_twice(db):
    row = db.execute(select(schema.releases)).first()
    release = load(row.value)
    more = {**release.parts, "transitions": release["transitions"] + 1.0}
    db.execute(update(schema.releases).values(value=dump(replace(release, parts=more))))


def pay_twice(db):
    db.execute(update(schema.accounts).values(spent=schema.accounts.c.spent * 2))


def pay_less(db):
    db.execute(update(schema.people).values(pays=schema.people.c.pays // 2))


def keep_raw_data(db):
    db.execute(update(schema.packets).values(block=0))


def forget_unasked(db):
    db.execute(update(schema.events).values(fate="forgotten"))


WRONGS = {
    lose_an_event: "lost",
    lose_a_person: "lost",
    count_twice: "twice",
    sum_somebody_twice: "twice or lost",
    pay_twice: "overspent",
    pay_less: "overspent",
    keep_raw_data: "raw data",
    forget_unasked: "lost",
}


@pytest.mark.parametrize("plant", WRONGS, ids=lambda plant: plant.__name__)
def test_planted_wrongs_are_found(tmp_path, plant):
    store, journal = honest(tmp_path)
    assert found(store, journal) == []
    with store.write() as db:
        plant(db)
    assert any(WRONGS[plant] in words for words in found(store, journal))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["told", "e1", "forgotten"], "was told that it was forgotten"),
        (["head", "0" * 64], "lacks an entry"),
        (["policy", 0, "another"], "policies of version 0"),
        (["forgot", "u1", 1, 0], "lost"),
        (["wrong", "an export lacks entries"], "export"),
    ],
)
def test_a_journal_that_disagrees_is_found(tmp_path, line, words):
    store, journal = honest(tmp_path)
    Journal(journal).add(*line)
    assert any(words in text for text in found(store, journal))


def test_somebody_who_was_accepted_and_is_not_there_is_lost(tmp_path):
    store, journal = honest(tmp_path)
    Journal(journal).sent(Sent("ann", "e", "run", "t", 1.0, H, 0))
    assert found(store, journal) == []  # she has no answer yet
    Journal(journal).add("told", "e", "waiting")
    assert any("lost" in words for words in found(store, journal))
    assert tacit.open(store).forget("ann") == {"removed": 0, "released": 0}


@pytest.mark.parametrize("lost", [False, True], ids=["honest", "lost"])
def test_somebody_forgotten_before_her_first_answer_may_come_again(tmp_path, lost):
    """Her event is taken, its answer is lost, she is forgotten, and then it is sent again."""
    store, path = honest(tmp_path)
    journal, agent = Journal(path), tacit.open(store)
    form = form_of(agent)

    def send(event, ticket, rewards):
        body = {"states": ["new"] * (H + 1), "actions": [0] * H, "rewards": [rewards / H] * H}
        rows = form.block([form.pack(body)])
        return agent.intake.receive(rows, ["ann"], [event], [ticket])[0].status

    first, second = agent.intake.ticket(), agent.intake.ticket()
    journal.sent(Sent("ann", "first", "run", first, 1.0, H, 1))
    assert send("first", first, 1.0) == "waiting"  # and its process is killed
    gone = agent.forget("ann")
    journal.add("forgot", "ann", gone["removed"], gone["released"])
    journal.add("told", "first", send("first", first, 1.0))
    journal.sent(Sent("ann", "second", "run", second, 2.0, H, 1))
    journal.add("told", "second", send("second", second, 2.0))
    told = Told(path)
    assert [told.sent[e].told for e in ("first", "second")] == [["forgotten"], ["waiting"]]
    assert gone == {"removed": 1, "released": 0}
    if lost:
        with store.write() as db:
            mine = schema.people.c.person == store.pseudonyms(["ann"])[0]
            db.execute(schema.people.delete().where(mine))
    assert any("lost" in words for words in found(store, path)) == lost
