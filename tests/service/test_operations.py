"""What an operator rehearses: backup and restore, latencies, and a server without a laboratory."""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

from tests.cli.calls import call
from tests.service.running import running
from tests.service.world import come, make_app, reads

ROOT = Path(__file__).parents[2]


def back_up(source, target):
    """What ``sqlite3 app.db ".backup copy.db"`` does, while the service runs."""
    with (
        contextlib.closing(sqlite3.connect(source)) as one,
        contextlib.closing(sqlite3.connect(target)) as two,
    ):
        one.backup(two)
    target.chmod(0o600)


def policy_of(run, path):
    device = run.client()
    path.write_bytes(device.request("GET", "/v1/policy")[2])
    return path


def test_a_backup_is_restored_when_nothing_was_published_since(tmp_path):
    (tmp_path / "new").mkdir()
    with running(make_app(tmp_path)) as run:
        come(run.client(), 8)
        run.wait(lambda s: s["version"] == 1)
        assert come(run.client(), 3) == ["waiting"] * 3
        back_up(tmp_path / "app.db", tmp_path / "new" / "app.db")
        published = policy_of(run, tmp_path / "policy.json")
    restored = tmp_path / "new" / "app.db"
    assert call("ledger", "verify", restored, "--expect", published).exit_code == 0
    with running(make_app(tmp_path / "new")) as run:
        assert run.wait(lambda s: True)["waiting"] == 3  # whoever was told so is there
        come(run.client(), 5)
        assert run.wait(lambda s: s["version"] == 2)["served"] == 16


def test_an_older_backup_is_found_and_ends_the_run(tmp_path):
    """Noise would be drawn again for what was published since."""
    (tmp_path / "new").mkdir()
    with running(make_app(tmp_path)) as run:
        come(run.client(), 3)
        back_up(tmp_path / "app.db", tmp_path / "new" / "app.db")
        come(run.client(), 5)
        run.wait(lambda s: s["version"] == 1)
        published = policy_of(run, tmp_path / "policy.json")
    restored = tmp_path / "new" / "app.db"
    verdict = call("ledger", "verify", restored, "--expect", published)
    assert verdict.exit_code == 1
    assert "older copy" in verdict.output
    report = call("report", restored, "--policy", published)
    assert report.exit_code == 1
    call("ledger", "repair", restored, "--expect", published)
    with running(make_app(tmp_path / "new")) as run:
        device = run.client()
        reads(device)
        assert not device._ticket  # nobody is queried again


def test_latencies_are_measured(tmp_path):
    with running(make_app(tmp_path)) as run:
        device = run.client()
        for _ in range(20):
            device.request("GET", "/v1/policy")
        text = device.request("GET", "/metrics")[2].decode()
    buckets = [
        float(n) for n in re.findall(r'^tacit_answer_seconds_bucket\{le=".*"\} (\S+)$', text, re.M)
    ]
    assert buckets == sorted(buckets)
    assert len(buckets) == 11
    count = float(re.findall(r"^tacit_answer_seconds_count (\S+)$", text, re.M)[0])
    assert count == buckets[-1] >= 20
    assert float(re.findall(r"^tacit_answer_seconds_sum (\S+)$", text, re.M)[0]) > 0


BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("matplotlib", "gymnasium"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import json, pathlib
import tacit.cli.serve
from tests.service.running import running
from tests.service.world import come, make_app

with running(make_app(pathlib.Path(sys.argv[1])), tacit.cli.serve.tools()) as run:
    come(run.client(), 8)
    print(json.dumps(run.wait(lambda s: s["version"] == 1)["served"]))
"""


def test_a_server_needs_no_laboratory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", BARE, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == 8
    locked = (ROOT / "deploy" / "requirements.txt").read_text()
    assert not re.search("^(matplotlib|gymnasium|pillow|contourpy|fonttools)==", locked, re.M)
    assert re.search("^pyjwt==", locked, re.M)
