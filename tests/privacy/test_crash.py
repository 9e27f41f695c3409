"""A learning process is killed again and again; nothing is spent, counted or told twice.

The work is done by ``python -m benchmarks.crash``, in a process of its own: it forks, which a test
process with threads must not. Here it is run, and run again with broken code, which it must notice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def crash(kills: int, broken: str = "", seed: int = 0, cases: str = "c.CASES") -> dict[str, Any]:
    """The tally of so many kills, with ``broken`` run before anything else."""
    code = (
        "import json, dataclasses, benchmarks.crash as c\n"
        f"{broken}\n"
        f"tally = c.kill_many({kills}, seed={seed}, cases={cases})\n"
        "print(json.dumps(dataclasses.asdict(tally)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check(tally: dict[str, Any], kills: int) -> None:
    assert tally["problems"] == []
    assert tally["kills"] == kills == tally["resumed"] + tally["restarted"]
    # A kill costs the block in hand at most.
    assert tally["lost_blocks"] <= kills


def test_killed_agents_go_on() -> None:
    check(crash(15), 15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_agents_go_on_many_times(seed: int) -> None:
    tally = crash(160, seed=seed)
    check(tally, 160)
    # It must not only kill processes that have done nothing yet.
    assert tally["releases"] > 40
    assert tally["resumed"] > 40
    assert tally["refused_copies"] > 30


BROKEN = {
    "publishes before it saves": """
def publish(self, release, real=c.tacit.JointCurator._publish):
    autosave, self._autosave = self._autosave, None
    try:
        return real(self, release)
    finally:
        self._autosave = autosave
c.tacit.JointCurator._publish = publish
""",
    "resumes twice": """
def resume(self, token, after=None, real=c.tacit.Ledger.record_resume, **options):
    try:
        real(self, token, after, **options)
    except c.DoubleSpend:
        self._run = options["run"]
c.tacit.Ledger.record_resume = resume
""",
    "forgets who took part": """
from tacit.privacy.participants import Participants
def restore(self, meta, arrays, real=Participants.restore):
    real(self, meta, arrays)
    self._seen = {}
Participants.restore = restore
""",
    "draws the noise of a release again": """
import tacit.privacy.curator as m
def revive(meta, arrays, real=m._revive_release):
    last = real(meta, arrays)
    if last is not None:
        for part in last.parts.values():
            part += 1e-9
    return last
m._revive_release = revive
""",
    "writes states in place": """
def write(path, data, mode, *, replace=True):
    import os
    with c.storage.open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
c.storage.write_atomic = write
""",
    "leaves torn lines": """
import tacit.privacy.ledger as m
class Os:
    def __getattr__(self, name):
        return (lambda *a: None) if name == "ftruncate" else getattr(c.os, name)
m.os = Os()
""",
    "does not pay": """
c.tacit.JointCurator._charge = lambda self, costs, label: None
""",
    "lets everybody read": """
import functools
import tacit.privacy.curator as m
m.write_state = functools.partial(m.write_state, secret=False)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN)
def test_broken_code_is_noticed(broken: str) -> None:
    """Most are noticed at the first kill or the second; the rest where a kill falls right."""
    cases = "[case for case in c.CASES if case.again]" if "took part" in broken else "c.CASES"
    tally = crash(120, BROKEN[broken], cases=cases)
    assert tally["problems"], f"{broken}: {tally}"
