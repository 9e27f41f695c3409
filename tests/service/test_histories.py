"""A trial over HTTP: people send their histories at each look, and get chances that follow."""

import json
from pathlib import Path

import numpy as np
import pytest

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.service.app_file import read_app
from tacit.service.client import Refused
from tacit.store import ledger
from tacit.trial import CentredScores
from tests.service.people import ISSUER, public
from tests.service.running import running
from tests.service.world import come, make_app, reads

APP = """
[world]
horizon = 10
dimension = 2
looks = [0.4, 1.0]

[agent]
name = "action_centred"
users = 12

[privacy]
epsilon = 100000.0
delta = 1e-7

[serve]
rate = 1000000
"""
APP += ISSUER + "\n"


def made(folder: Path, text: str = APP):
    (folder / "people.json").write_text(json.dumps({"keys": [public()]}))
    (folder / "app.toml").write_text(text)
    return read_app(str(folder / "app.toml"), logs=False)


class Person:
    """Somebody who is helped in one context and bothered in the other."""

    def __init__(self, number: int) -> None:
        self.user, self.rng = f"person {number}", np.random.default_rng(number)
        self.states, self.propensities = np.full((11, 2), np.nan), np.full(10, np.nan)
        self.actions, self.rewards, self.history = (
            np.zeros(10, dtype=int),
            np.full(10, np.nan),
            None,
        )
        self.leaves = 5 if number == 3 else 10

    def decides(self, policy, start: int, until: int) -> None:
        self.history = self.history or policy.history()
        for h in range(start, min(until, self.leaves)):
            f = np.eye(2)[self.rng.integers(2)]
            a, p = policy.act(f, self.rng, self.history)
            r = float(self.rng.random() < 0.5 + 0.4 * (f[1] - f[0]) * (a - 0.5))
            self.history.add([f], [a], [p if a else 1.0 - p], [r])
            self.states[h], self.actions[h], self.rewards[h], self.propensities[h] = f, a, r, p

    def told(self, look: int, late: int = 10) -> dict[str, object]:
        """Her history so far; outcomes of decisions from ``late`` on are not known yet."""
        rewards = np.where(np.arange(10) < late, self.rewards, np.nan)
        arrays = {"states": self.states, "rewards": rewards, "propensities": self.propensities}
        lists = {n: np.where(np.isnan(a), None, a).tolist() for n, a in arrays.items()}
        return {"actions": self.actions.tolist(), "event": f"{self.user}, {look}"} | lists


def scores(bodies) -> np.ndarray:
    names = ("states", "actions", "rewards", "propensities")
    arrays = {n: np.array([b[n] for b in bodies], dtype=float) for n in names}
    arrays["actions"] = arrays["actions"].astype(int)
    return CentredScores(10, 2, 2, 0.2).vectors(Block(len(bodies), arrays)).sum(axis=0)


def test_histories_come_at_every_look(tmp_path: Path) -> None:
    app, people, released = made(tmp_path), [Person(i) for i in range(13)], []
    with running(app) as run:
        device = run.client()
        for look, (start, until) in enumerate([(0, 4), (4, 10)]):
            # One joins in the second wave, in the place of one who takes no part in it.
            here, bodies = people[1:] if look else people[:12], []
            for number, person in enumerate(here):
                policy = reads(device)
                assert policy.version == look
                person.decides(policy, 0 if person.history is None else start, until)
                bodies.append(person.told(look, 3 if number % 2 and not look else 10))
                said = bodies[-1] | {"user": person.user, "ticket": device._ticket}
                if number == 11:
                    again = said | {"user": here[0].user, "event": "again"}
                    assert device.post("/v1/episodes", again)["status"] == "refused"
                    with pytest.raises(Refused, match="propensities must be a list of 10"):
                        device.post("/v1/episodes", said | {"propensities": [0.5]})
                assert device.post("/v1/episodes", said)["status"] == "waiting"
            run.wait(lambda s, n=look: s["version"] > n)
            released.append(scores(bodies))
        assert run.client("curator").request("GET", "/")[0] == 200
        with pytest.raises(Refused, match="whole histories"):
            device.post("/v1/decisions", {"user": "a", "event": "e", "ticket": "0.0"})
    with app.open() as store:
        assert ledger.verify(store) == []
        agent = app.agent(store)
        for look, expected in zip(agent.state.evidence, released, strict=True):
            assert np.abs(look.scores.ravel() - expected).max() < 8.0 * look.noise < 1.0
        assert agent.greedy_policy.chances(np.eye(2)).tolist() == [0.0, 1.0]


def test_an_app_of_a_trial_says_what_a_trial_needs(tmp_path: Path) -> None:
    for wrong, words in (("looks = [0.4, 1.0]", "states = 3"), ("dimension = 2", "memory = 0")):
        with pytest.raises(InvalidArgument, match=r"\[world\]"):
            made(tmp_path, APP.replace(wrong, words))
    with pytest.raises(InvalidArgument, match="send their histories to tacit serve"):
        made(tmp_path, APP + '[log]\npath = "logs"\n')


def test_improvement_of_a_finite_world_comes_over_http(tmp_path: Path) -> None:
    app = make_app(tmp_path, agent="centred_improvement", users=16)
    with running(app) as run:
        for version in (1, 2):
            assert come(run.client(), 8) == 8 * ["waiting"]
            state = run.wait(lambda s, n=version: s["version"] >= n)
        assert state["served"] == 16
    with app.open() as store:
        assert ledger.verify(store) == []
        assert app.agent(store).state.evidence[1].people == 8
