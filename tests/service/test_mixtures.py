"""Mixed policies over HTTP: devices draw with their own randomness, and say what they drew."""

import re
from pathlib import Path

import numpy as np
import pytest

from tacit.service.client import Refused
from tests.service.people import signed
from tests.service.running import running
from tests.service.world import episode, make_app, reads

ROOT = Path(__file__).parents[2]


def test_devices_draw_and_what_they_drew_counts(tmp_path):
    rng = np.random.default_rng(4)
    with running(make_app(tmp_path, agent="concurrent_psrl", size=12)) as run:
        device, other = run.client(), run.client()
        whole, drawn = other.policy(), set()
        for user in range(12):
            policy = device.policy()
            drawn.add(policy.component)
            states, actions = ["new"], []
            for step in range(3):
                actions.append(policy.act(step, states[-1], rng))
                assert actions[-1] == whole.components[policy.component].act(step, states[-1])
                states.append(str(rng.choice(["idle", "busy"])))
            sent = device.send(f"user {user}", states, actions, [0, 1, 0])
            assert sent["accepted"], sent
        state = run.closes(lambda state: state["served"] >= 12)
        after = device.policy()
        page = run.client("officer").request("GET", "/policies")[2].decode()
        assert "most often, and how often" in page
    assert (len(drawn) > 1, state["served"]) == (True, 12)
    assert after.version == policy.version + 1


def test_an_episode_without_its_component_is_refused(tmp_path):
    """A whole number must be there: which one it is decides nothing."""
    with running(make_app(tmp_path, agent="concurrent_psrl", size=12)) as run:
        device = run.client()
        policy = device.policy()
        good = episode(policy, device._ticket)
        for more in ({}, {"component": "0"}, {"component": True}):
            with pytest.raises(Refused, match="component must be a whole number") as raised:
                device.post("/v1/episodes", good | more)
            assert raised.value.code == 422
        assert run.wait(lambda state: True)["waiting"] == 0
        for user, odd in enumerate((-1, 10**30, policy.component)):
            reads(device)
            sent = good | {"user": str(user), "event": "1", "component": odd}
            sent |= {"ticket": device._ticket}
            assert device.post("/v1/episodes", sent)["status"] == "waiting"
        assert run.wait(lambda state: True)["waiting"] == 3


def test_the_example_of_the_page_is_counted(tmp_path):
    page = (ROOT / "docs" / "service.md").read_text()
    (code,) = re.findall(r"^```\n(from numpy.random.*?)^```$", page, re.M | re.S)
    rng = np.random.default_rng(0)
    for agent in ("ucbvi", "concurrent_psrl"):
        (folder := tmp_path / agent).mkdir()
        with running(make_app(folder, agent=agent, size=12)) as run:
            names = {"token": signed("ann"), "horizon": 3}
            names["serve"] = lambda action: (str(rng.choice(["idle", "busy"])), 1.0)
            exec(code.replace("https://learn.example.org", run.address), names)  # noqa: S102
            assert names["receipt"]["status"] == "waiting"
            names["device"].close()
