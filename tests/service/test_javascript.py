"""Devices in JavaScript, under Node, against a running service."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.service.running import running
from tests.service.world import make_app

JS = Path(__file__).parents[2] / "clients" / "js"
LOCAL = 'model = "local"'


@pytest.mark.parametrize(
    ("agent", "privacy"), [("ucbvi", ""), ("ucbvi", LOCAL), ("concurrent_psrl", "")]
)
def test_a_device_under_node_is_counted_once(tmp_path: Path, agent: str, privacy: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node: the client in JavaScript was NOT tested")
    with running(make_app(tmp_path, agent=agent, size=3, privacy=privacy)) as run:
        done = subprocess.run(
            [node, JS / "check_client.mjs", run.address, run.tokens["device"], "3"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        receipts = json.loads(done.stdout)
        state = run.wait(lambda state: state["served"] >= 3)
    # Each was sent twice under one event id, and accepted once.
    assert all(first["accepted"] for first, _ in receipts)
    assert state["served"] == 3
    assert state["version"] == 1
