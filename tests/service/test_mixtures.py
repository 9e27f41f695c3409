"""Mixed policies over HTTP: devices draw with their own randomness, and say what they drew."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.service.running import running
from tests.service.world import make_app


def test_devices_draw_and_what_they_drew_counts(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    with running(make_app(tmp_path, agent="concurrent_psrl", size=12)) as run:
        device = run.client()
        policy = device.policy()
        drawn = set()
        for user in range(12):
            component = policy.draw(rng)
            drawn.add(component)
            states, actions = ["new"], []
            for step in range(3):
                actions.append(policy.act(step, states[-1], rng, component))
                states.append(str(rng.choice(["idle", "busy"])))
            sent = device.send(f"user {user}", states, actions, [0, 1, 0], component=component)
            assert sent["accepted"], sent
        state = run.wait(lambda state: state["served"] >= 12)
        after = device.policy()
    assert len(drawn) > 1
    assert state["served"] == 12
    assert after.version == policy.version + 1
