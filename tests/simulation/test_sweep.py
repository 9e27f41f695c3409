"""Sweeps: the same results whoever runs them, none of them twice."""

import json
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import pytest

import tacit
from tacit.privacy.errors import InvalidArgument
from tacit.registry import choose_agent
from tacit.simulation.sweep import SweepFailed, _done, kept_at, sweep
from tests.cli.calls import call, one_line

WORLD = "riverswim:states=3,horizon=4"
BUDGETS = [tacit.JointDP(1.0, 1e-6), tacit.NonPrivate()]


def small(**changes):
    given = {"worlds": [WORLD], "agents": ["ucbvi"], "budgets": BUDGETS, "users": 500}
    return sweep(**given | {"seeds": [0, 1], "progress": False} | changes)


def test_a_sweep_is_its_runs():
    made = small()
    assert [(job.privacy, job.seed) for job in made.jobs] == [
        (budget, seed) for budget in BUDGETS for seed in (0, 1)
    ]
    for place, job in enumerate(made.jobs):
        world = tacit.registry.build_world(WORLD)
        agent = choose_agent("ucbvi").build(world.spec, 500, job.privacy, job.seed)
        alone = tacit.run(agent, world, job.seed, progress=False)
        assert made.results[place].values.tolist() == alone.values.tolist()
    assert list(made.labelled()) == ["ucbvi, epsilon 1", "ucbvi, no privacy"]
    assert [row[0] for row in made.table(WORLD)] == ["", *made.labelled()]


def test_worlds_are_texts_environments_and_functions_that_make_them():
    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    found = small(worlds=[lake, lambda: lake, WORLD], budgets=BUDGETS[:1], seeds=[0])
    first, second, other = (found.results[place].identity["world"] for place in range(3))
    assert first == second != other
    text = tacit.world("gym:FrozenLake-v1", horizon=9, is_slippery=False)
    assert tacit.world(lake, horizon=9).spec == text.spec
    assert tacit.world("riverswim:states=3", horizon=7).spec.horizon == 7


def test_a_seed_of_none_is_drawn_and_kept_and_a_large_delta_warns():
    given = {"users": 100, "privacy": tacit.JointDP(1.0, 0.01), "progress": False}
    with pytest.warns(tacit.TacitWarning, match="delta is 0.01 for 100 users"):
        first = tacit.run("ucbvi", WORLD, None, **given)
    assert tacit.run("ucbvi", WORLD, first.seed, **given).values.tolist() == first.values.tolist()
    assert tacit.run("ucbvi", WORLD, None, **given).seed != first.seed


def test_what_cannot_be_sent_is_refused_and_what_cannot_be_loaded_is_said():
    lock = threading.Lock()
    with pytest.raises(InvalidArgument, match=r"cannot be sent to other processes.*lock"):
        small(agents=[lambda spec, **given: tacit.UCBVI(spec, **given) if lock else 0], workers=2)
    foreign = b"cno_such_module\nthing\n."  # a pickle of something that is not here
    words = "another process cannot load it: ModuleNotFoundError: No module named 'no_such"
    assert _done(foreign).startswith(words)
    assert _done(pickle.dumps((abs, -3))) == 3


def test_who_runs_it_does_not_matter():
    def local(spec, **given):  # neither importable nor picklable as it is
        return tacit.UCBVI(spec, scale=2.0, **given)

    world = lambda: tacit.tabular.riverswim(4, 5)  # noqa: E731
    several = {"agents": [local], "worlds": [world], "budgets": BUDGETS[:1], "users": 100}
    here = small(**several)
    with ThreadPoolExecutor(2) as executor:
        threads = small(**several, executor=executor)
    processes = small(**several, workers=2)
    for other in (threads, processes):
        assert [other.table(w) for w in other.worlds] == [here.table(w) for w in here.worlds]
        assert [r.values.tolist() for r in other.results.values()] == [
            r.values.tolist() for r in here.results.values()
        ]


def test_what_is_stored_does_not_run_again(tmp_path):
    ran = []

    def noted(job, result):
        ran.append(job)

    folder = tmp_path / "runs"
    first = small(folder=folder, callback=noted, seeds=[0])
    assert len(ran) == 2
    whole = small(folder=folder, callback=noted)
    assert [job.seed for job in ran[2:]] == [1, 1]
    assert whole.results[0] == first.results[0]
    small(folder=folder, callback=noted, users=501, seeds=[0])  # another run altogether
    assert len(ran) == 6
    damaged = kept_at(folder, whole.jobs[0])
    damaged.write_text(damaged.read_text()[:-40])
    small(folder=folder, callback=noted)
    assert len(ran) == 7


def test_an_interrupted_sweep_keeps_what_it_has(tmp_path):
    def stop(job, result):
        if job.seed == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(folder=tmp_path, callback=stop)
    assert len(list(tmp_path.rglob("*.json"))) == 2


def test_a_failure_does_not_cost_the_others():
    def broken(spec, seed, **given):
        if seed == 1:
            raise ArithmeticError("one and one is two")
        return tacit.UCBVI(spec, seed=seed, **given)

    with pytest.raises(SweepFailed, match="broken, epsilon 1, seed 1: ArithmeticError: one") as was:
        small(agents=[broken])
    assert sorted(was.value.sweep.results) == [0, 2]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents": []}, "must not be empty"),
        ({"seeds": [-1]}, "seeds must be an integer >= 0"),
        ({"users": 0}, "users"),
        ({"agents": ["ucbvi", "ucbvi:no=1"]}, "has no option 'no'"),
        ({"agents": ["ucbvi:epsilon=2"]}, "has a budget"),
        ({"agents": ["nobody"]}, "agent is 'nobody'"),
    ],
)
def test_mistakes_are_found_before_anything_runs(changes, words):
    def never(job, result):
        raise AssertionError

    with pytest.raises(InvalidArgument, match=words):
        small(**changes, callback=never)


def test_a_process_that_dies_is_replaced(tmp_path):
    flag, home = tmp_path / "died", os.getpid()

    def dying(spec, **given):
        # The check before the first run is made in this process.
        if given["seed"] == 1 and os.getpid() != home and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return tacit.UCBVI(spec, **given)

    made = small(agents=[dying], workers=2, budgets=BUDGETS[:1], users=50)
    assert sorted(made.results) == [0, 1]
    assert flag.exists()


def test_a_run_that_kills_its_process_does_not_cost_the_others():
    home = os.getpid()

    def deadly(spec, **given):
        if given["seed"] == 0 and os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)
        return tacit.UCBVI(spec, **given)

    with pytest.raises(SweepFailed, match="seed 0: its process died") as was:
        small(agents=[deadly], workers=2, budgets=BUDGETS[:1], seeds=range(8), users=50)
    # One that is suspected with it, and one that is at work beside it again.
    assert len(was.value.sweep.results) >= 5


SWEEP = """
worlds = ["riverswim:states=3,horizon=4"]
agents = ["ucbvi:scale=0.5", "ucbvi:scale=1.0"]
epsilons = [1, "none"]
delta = 1e-6
users = 500
seeds = 2
"""


def test_the_command(tmp_path):
    file, store = tmp_path / "s.toml", tmp_path / "runs"
    file.write_text(SWEEP)
    given = ("sweep", str(file), "--folder", str(store), "--workers", "1")
    out = call(*given, "--save", str(tmp_path / "s.json"), "--plot", str(tmp_path / "s.pdf"))
    assert out.exit_code == 0
    assert "8 of 8 runs" in out.stdout
    [lines] = json.loads(call(*given, "--json").stdout).values()
    assert list(lines)[:2] == ["ucbvi:scale=0.5, epsilon 1", "ucbvi:scale=0.5, no privacy"]
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")
    picture = str(tmp_path / "again.svg")
    drawn = call("show", str(tmp_path / "s.json"), str(tmp_path / "s.json"), "--plot", picture)
    assert drawn.exit_code == 0
    assert "<!-- ucbvi (scale=0.5) -->" in Path(picture).read_text()


def test_a_suite_leaves_out_what_does_not_fit_and_says_so(tmp_path, monkeypatch):
    names = f'worlds = ["{WORLD}", "no_such.world", "two_state:horizon=3"]\nusers = [60, 70, 80]'
    kept = [line for line in SWEEP.splitlines() if not line.startswith(("worlds", "users"))]
    (tmp_path / "suite.toml").write_text("\n".join([names, *kept]))
    monkeypatch.setattr("tacit.cli.run.SUITE", tmp_path / "suite.toml")
    given = ("sweep", "suite", "--workers", "1", "--json", "--folder", str(tmp_path / "runs"))
    out = call(*given, "--agent", "lsvi_ucb", "--agent", "ucbvi")
    made, left_out = json.loads(out.stdout), out.stderr.splitlines()
    assert len([line for line in left_out if "left out: no_such.world: " in line]) == 4
    assert any(f"left out: {WORLD}: lsvi_ucb, epsilon 1: " in line for line in left_out)
    assert list(made[WORLD]) == ["ucbvi, epsilon 1", "ucbvi, no privacy"]
    assert "lsvi_ucb, epsilon 1" in made["two_state:horizon=3"]
    assert {line["users"] for line in made["two_state:horizon=3"].values()} == {80}
    with pytest.raises(InvalidArgument, match="users must be one number, or 1, got 2"):
        small(users=[60, 70])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("world = 1", "has 'world'; it may have worlds"),
        ("worlds = 3", "worlds in"),
        (SWEEP.replace("[1,", '["many",'), "epsilon"),
        (SWEEP.replace("delta = 1e-6", ""), "joint privacy needs a budget"),
        (SWEEP.replace("seeds = 2", "seeds = -2"), "seeds must be an integer"),
        (SWEEP.replace("scale", "scales"), "has no option 'scales'"),
        ("worlds = [", "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, words):
    file = tmp_path / "s.toml"
    file.write_text(text)
    assert words in one_line(call("sweep", str(file), "--folder", str(tmp_path / "runs")))


def test_wrong_arguments_are_one_line(tmp_path):
    file = tmp_path / "s.toml"
    file.write_text(SWEEP)
    given = ("sweep", str(file))
    assert "No such file" in one_line(call("sweep", "no.toml"))
    assert "is no folder" in one_line(call(*given, "--folder", str(file)))
    assert "must end in .png" in one_line(call(*given, "--plot", "x.bmp"))
    assert "No such file" in one_line(call("show", "no.json", "--plot", str(tmp_path / "x.png")))
