"""A learning process is killed again and again; nothing is spent, counted or told twice.

The work is done by ``python -m benchmarks.crash``, in a process of its own: it forks, which a test
process with threads must not. Here it is run, and run again with broken code, which it must notice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.continuous import line
from tacit.continuous.constants import FunctionalConstants
from tacit.privacy.curator import JointCurator
from tacit.privacy.ledger import Ledger

ROOT = Path(__file__).parents[2]


def crash(kills: int, broken: str = "", seed: int = 0, cases: str = "c.CASES") -> dict[str, Any]:
    """The tally of so many kills, with ``broken`` run before anything else."""
    return harness(f"c.kill_many({kills}, seed={seed}, cases={cases})", broken)


def harness(call: str, broken: str = "") -> dict[str, Any]:
    """What a call of the harness returns, in a process of its own."""
    code = (
        "import json, dataclasses, benchmarks.crash as c\n"
        f"{broken}\n"
        f"tally = {call}\n"
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


# Deaths at the steps of a release, one list per run: (how many, of what) for each life. A block of
# agents that ask again has four releases, so the third and the sixth are in the middle of one.
POINTS = {
    "between charge and save": [[(3, "charge")], [(6, "charge")]],
    "between state and record": [[(4, "state")]],
    "between save and publication": [[(7, "record")]],
    "twice in one round": [[(3, "charge"), (1, "charge")]],
    "again and again": [[(6, "charge"), *[(1, "charge")] * 6]],
}
RUNS = [run for runs in POINTS.values() for run in runs]
KINDS = [
    "concurrent_psrl",
    "policy_improvement",
    "linopt_vi",
    "certainty_equivalence",
    "fitted_functional_q",
]


def exactly(kind: str, runs: list[Any], broken: str = "") -> dict[str, Any]:
    """The tally of runs that are killed at these steps and then left alone."""
    return harness(
        f"c.kill_exactly([[c.Life(*life) for life in run] for run in {runs!r}], "
        f"c.Case(False, False, {kind!r}))",
        broken,
    )


def check_exactly(tally: dict[str, Any], runs: list[Any]) -> None:
    assert tally["problems"] == []
    assert tally["kills"] == tally["resumed"] + tally["restarted"] == sum(map(len, runs))
    assert (tally["finished"], tally["stranded"]) == (len(runs), 0)


@pytest.mark.parametrize("kind", ["policy_improvement", "fitted_functional_q"])
def test_every_step_of_a_release_may_be_the_last(kind: str) -> None:
    check_exactly(exactly(kind, RUNS), RUNS)


@pytest.mark.parametrize(
    "kind",
    [
        "certainty_equivalence",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ucbvi", "linopt_vi")),
    ],
)
def test_every_step_of_a_release_may_be_the_last_of_agents_that_ask_once(kind: str) -> None:
    check_exactly(exactly(kind, RUNS[1:]), RUNS[1:])


GIVES_NOTHING_UP = """
import tacit.continuous.fitted_functional_q as fitted
import tacit.core.desk as desk
for module in (fitted, desk):
    module.BudgetExceeded = type("Another", (Exception,), {})
"""


@pytest.mark.parametrize("kind", ["policy_improvement", "fitted_functional_q"])
def test_agents_that_do_not_give_up_a_block_lose_the_run(kind: str) -> None:
    tally = exactly(kind, POINTS["again and again"], GIVES_NOTHING_UP)
    assert "BudgetExceeded" in "".join(tally["problems"])


def batch(folder: Path) -> tuple[Any, Any, dict[str, Path]]:
    """What makes an agent that asks its only block several times, its world, and its files."""
    world = line(horizon=4)
    privacy = tacit.JointDP(1.0, 1e-6)
    constants = FunctionalConstants(depth=0.0, fewest=4)
    make = partial(tacit.FittedFunctionalQ, world.spec, 8, privacy, constants=constants)
    return make, world, {"ledger": folder / "ledger", "autosave": folder / "state"}


def test_a_batch_ends_with_the_sweeps_that_it_has(tmp_path: Path, monkeypatch: Any) -> None:
    """Its only block has paid for a sweep that nobody saw; the others are learnt from."""
    make, world, files = batch(tmp_path)

    class Killed(BaseException):
        pass

    def dying(self: Any, *args: Any, real: Any = tacit.Ledger.charge, **options: Any) -> None:
        real(self, *args, **options)
        if sum(entry.event == "pending" for entry in self.entries) == 3:
            raise Killed

    agent = make(**files)
    with monkeypatch.context() as patch:
        patch.setattr(tacit.Ledger, "charge", dying)
        with pytest.raises(Killed):
            agent.learn(world.simulate(agent.policy, 8, np.random.default_rng(0), "episodes"))
    resumed = make().load(tmp_path / "state", **files)
    assert (resumed.served, resumed.releases, resumed.block_users) == (8, 1, 0)
    # Two releases before the kill and some after it: what was paid and lost is missing at the end.
    assert 2 <= resumed._curator.releases < resumed.sweeps + 1
    ledger = tacit.Ledger.open(tmp_path / "ledger")
    assert 0.5 * ledger.limit < ledger.max_spent <= ledger.limit * (1.0 + 1e-9)
    assert resumed.policy.version == 1
    # Killed again before anybody saw it, it publishes the same.
    again = make().load(tmp_path / "state", **files)
    np.testing.assert_array_equal(again.policy.weights, resumed.policy.weights)
    assert again.policy.preference == resumed.policy.preference


def test_a_batch_whose_disk_was_full_ends_with_the_sweeps_that_it_has(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """The block is given up at once, so a save made then has nothing more to ask."""
    from tacit.privacy.curators import saves as module

    make, world, files = batch(tmp_path)
    agent, written = make(**files), []

    def full(*args: Any, real: Any = module.write_state, **options: Any) -> None:
        written.append(1)
        if len(written) == 3:
            raise OSError("disk full")
        real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_state", full)
        with pytest.raises(OSError, match="disk full"):
            agent.learn(world.simulate(agent.policy, 8, np.random.default_rng(0), "episodes"))
    agent.save(tmp_path / "state")
    resumed = make().load(tmp_path / "state", **files)
    assert (resumed.served, resumed.releases, resumed._curator.releases) == (8, 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_other_agents_go_on_many_times(kind: str) -> None:
    tally = crash(60, cases=f"c.cases_of({kind!r})")
    check(tally, 60)
    assert tally["releases"] > 20
    assert tally["resumed"] > 15


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
    autosave, self.autosave = self.autosave, None
    try:
        return real(self, release)
    finally:
        self.autosave = autosave
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
from tacit.privacy.curators.participants import Participants
def restore(self, meta, arrays, real=Participants.restore):
    real(self, meta, arrays)
    self._seen = {}
Participants.restore = restore
""",
    "draws the noise of a release again": """
import tacit.privacy.curators.saves as m
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
import tacit.privacy.ledger.chain as m
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
import tacit.privacy.curators.saves as m
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


def test_the_credit_of_a_block_that_a_crash_cut_off(tmp_path: Path) -> None:
    """Paid for, and never saved: the same block again pays nothing more; another cost, the rest."""
    world = tacit.tabular.riverswim(3, 4)

    def make(**files: Any) -> Any:
        privacy = tacit.JointDP(1.0, 1e-7)
        return tacit.UCBVI(world.spec, 400, privacy, schedule="fixed:size=50", **files)

    files = {"ledger": tmp_path / "l", "autosave": tmp_path / "s"}
    agent = make(**files)
    users = world.simulate(agent.policy, 50, np.random.default_rng(0), "episodes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JointCurator, "_publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            agent.learn(users)
    del agent
    agent = make().load(tmp_path / "s", **files)
    assert agent.served == 0
    assert agent.learn(users).counted == 50
    ledger = Ledger.open(tmp_path / "l", every_line=True)
    costs = [entry.costs for entry in ledger.entries if entry.costs]
    assert len({key for cost in costs for key in cost}) == 1
    assert [*map(dict, costs)][1].popitem()[1] == 0.0
    assert ledger.max_spent == pytest.approx(ledger.limit)
    # The next block pays for itself.
    agent.learn(world.simulate(agent.policy, 50, np.random.default_rng(1), "episodes"))
    assert len(Ledger.open(tmp_path / "l").accounts) == 1
    assert sum(Ledger.open(tmp_path / "l").accounts.values()) == 2
