"""Hostile input: the campaign's own generators, a few inputs per entry point, and known mistakes.

The campaign is ``python -m research.hostile_campaign``; here its seeds are fixed, so a
test fails always or never.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tacit
from research.hostile.arguments import Call, argument_entries, junk, small_agents
from research.hostile.fuzzing import HEADING, EntryPoint, fuzz
from research.hostile_campaign import entry_points, main
from tacit import InvalidArgument, LocalDP, registry
from tacit.privacy.errors import TacitError
from tacit.testing.recording import difference, snapshot
from tests.cli.calls import call, one_line

EXAMPLES = 6
# Agents that are attacked in the slow part.
SLOW = ("lq", "continuous")
ENTRIES = argument_entries()
# Read at once: other tests register agents of their own.
AGENTS = [*registry.BUILT_IN]


def _fast():
    slow = {small.name for small in small_agents() if small.family in SLOW}
    return [entry for entry in ENTRIES if entry.name.split(":")[0] not in slow]


@pytest.mark.parametrize("entry", _fast(), ids=lambda entry: entry.name)
def test_nothing_breaks(entry):
    assert fuzz(entry, EXAMPLES).broken == []


@pytest.mark.slow
@pytest.mark.parametrize("entry", entry_points(), ids=lambda entry: entry.name)
def test_many_inputs_break_nothing(entry):
    assert fuzz(entry, 300, seed=1).broken == []


def test_the_command_counts_nothing_broken(capsys):
    assert main(["--examples", "20", "--only", "Budget"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == HEADING
    assert lines[1].split()[-1] == "0"


# The campaign itself: what it must attack, and what it must see.


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_is_attacked(name):
    """An agent that the small worlds do not fit would be left out without a word."""
    attacked = {entry.name for entry in ENTRIES}
    assert {f"{name}: made", f"{name}: learn"} <= attacked
    small = next(small for small in small_agents() if small.name == name)
    try:
        small(privacy=LocalDP(1.0, 1e-6))
        local = True
    except InvalidArgument:
        local = False
    assert (f"{name}: learn_reports" in attacked) == local


@pytest.mark.parametrize(
    ("attempt", "found"),
    [
        (lambda value, folder: int("x"), "raises ValueError"),
        (lambda value, folder: (folder / ".tacit-1.tmp").write_text(""), "temporary files"),
        (lambda value, folder: bytes(3 << 30), "raises MemoryError"),
        (lambda value, folder: np.float64(1e308) * 10, "raises RuntimeWarning"),
        (lambda value, folder: (_ for _ in ()).throw(TacitError()), "without a word"),
    ],
    ids=["untyped", "left over", "memory", "warning", "silent"],
)
def test_the_campaign_sees_what_breaks(attempt, found):
    entry = EntryPoint("planted", junk, attempt)
    tally = fuzz(entry, 2)
    assert tally.tried == len(tally.broken) >= 1
    assert all(found in line for line in tally.broken)


def test_the_campaign_sees_changes_and_names():
    state = {"spent": 0}

    def changes(cost):
        state["spent"] += 1
        raise InvalidArgument("cost is wrong")

    def silent(cost):
        raise InvalidArgument("no")

    def takes_all(cost):
        pass

    watched = Call(changes, lambda: {"cost": 1}, watched=lambda _: dict(state))
    for attacked, found in (
        (watched, "something changed"),
        (Call(silent, lambda: {"cost": 1}), "does not name"),
        (Call(takes_all, lambda: {"cost": 1}), "was accepted"),
    ):
        entry = EntryPoint("planted", attacked.inputs, attacked.attempt)
        assert any(found in line for line in fuzz(entry, 40).broken)


# Mistakes that were once accepted, or answered with a traceback.


def test_one_huge_report_does_not_lose_the_others():
    """It was enough for a device to send 1e308: no regression could be solved any more."""
    local = LocalDP(1.0, 1e-6)
    world = registry.build_world("two_state:horizon=3")

    def agent():
        return tacit.LSVIUCB(world.spec, users=50, privacy=local, noise_seed=1)

    first, second = agent(), agent()
    reports = np.random.default_rng(0).normal(size=(first.block_users, first.statistic.layout.size))
    reports[0] = 0.0
    first.learn_reports(reports)
    reports[0] = 1e308
    second.learn_reports(reports)
    assert difference(snapshot(first), snapshot(second)) == []


def test_honest_reports_are_plausible():
    """The largest noise that a sampler can draw is far below what counts as no report."""
    statistic = tacit.ClippedSum(2)
    for model in (LocalDP(0.01, 1e-9), LocalDP(0.01, 0.0), LocalDP(50.0, 0.0)):
        curator = model.curator()
        scale = tacit.local.noise_scale(statistic, model)
        largest = np.full((1, 2), statistic.radius + 745.0 * scale)
        assert curator._plausible(statistic, largest).all()
        assert not curator._plausible(statistic, 1e6 * largest).any()


@pytest.mark.parametrize(
    "line",
    [
        ["run", "--world", "os.getcwd", "--privacy", "none"],
        ["run", "--world", "riverswim", "--agent", "os.getcwd", "--privacy", "none"],
        ["run", "--world", "riverswim", "--agent", "tacit.Budget", "--privacy", "none"],
        ["audit", "ucbvi", "--world", "riverswim", "--quick", "--runs", "1e999"],
        ["audit", "ucbvi", "--world", "riverswim", "--quick", "--epsilon", "-1", "--delta", "0"],
        ["audit", "nothing", "--world", "riverswim", "--quick"],
    ],
    ids=" ".join,
)
def test_mistakes_on_the_command_line_are_one_line(line):
    one_line(call(*line))


# Absurd sizes, in a process that has little memory.

_ABSURD = """
    import resource
    import sys

    import tacit
    from tacit import registry
    from tacit.tabular.spec import FiniteSpec
    from tacit.core.problem import Schedule

    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
    joint, none = tacit.JointDP(1.0, 1e-6), tacit.NonPrivate()
    spec = FiniteSpec(states=3, actions=2, horizon=3, stationary=True)
    tries = {
        "users": lambda: tacit.UCBVI(spec, users=10**18, privacy=none, schedule="every"),
        "more users": lambda: tacit.UCBVI(spec, users=10**400, privacy=joint),
        "states": lambda: registry.build_world("riverswim:states=1000000000"),
        "horizon": lambda: registry.build_world("riverswim:horizon=1000000000"),
        "grid": lambda: registry.build_world("grid:side=100000"),
        "two_state": lambda: registry.build_world("two_state:horizon=1000000000"),
        "mixture": lambda: registry.build_world("mixture_of_models:horizon=1000000000"),
        "spec": lambda: tacit.UCBVI(
            FiniteSpec(states=10**9, actions=2, horizon=10**9, stationary=False),
            users=10, privacy=joint,
        ),
        "curator": lambda: joint.curator(users=10**18),
        "releases": lambda: tacit.counter(tacit.Budget(1.0, 1e-6), 1.0, 10**18, kind="blocks"),
        "schedule": lambda: Schedule.parse("geometric:growth=1.0000000001", 10**18),
        "every": lambda: Schedule.parse("every", 10**18),
        "log": lambda: tacit.Episodes.from_frame(
            dict.fromkeys(("user", "step", "state", "action", "reward", "next_state"), [0]),
            horizon=10**12,
        ),
        "policy": lambda: tacit.Policy.uniform(10**6, 10**6, 10**6),
        "block": lambda: joint.curator(noise_seed=0).release(tacit.ClippedSum(2), block=10**400),
    }
    for name, attempt in tries.items():
        try:
            attempt()
            print(name, "accepted")
        except tacit.TacitError as error:
            print(name, "refused")
        except BaseException as error:
            print(name, "broke:", repr(error)[:200])
"""


def test_absurd_sizes_take_no_memory():
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_ABSURD)],
        capture_output=True,
        text=True,
        # The package that is tested here, wherever another one may be installed.
        env={
            "OPENBLAS_NUM_THREADS": "1",
            "PATH": "",
            "PYTHONPATH": str(Path(tacit.__file__).parents[1]),
        },
        check=False,
    )
    outcomes = dict(line.rsplit(" ", 1) for line in ran.stdout.splitlines())
    assert ran.returncode == 0, ran.stderr[-500:]
    assert len(outcomes) == 15
    assert set(outcomes.values()) <= {"accepted", "refused"}, outcomes


def test_a_real_process_says_one_line():
    line = [sys.executable, "-m", "tacit.cli.app", "run", "--world", "\udcff"]
    line += ["--epsilon", "1e-400"]
    ran = subprocess.run(line, capture_output=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr.startswith(b"tacit:")
    assert ran.stderr.count(b"\n") == 1
