"""Agents and worlds of your own, by file, by module and as files of tables."""

import sys
from pathlib import Path

import pytest

import tacit
from tacit import InvalidArgument, registry
from tests.cli.calls import BUDGET, call, content, entry, one_line

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLLOWS, CORRIDOR = f"{EXAMPLES}/follows.py:Follows", f"{EXAMPLES}/corridor.py"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty current folder; what is put on the path is taken away."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_an_agent_and_a_world_of_files(here):
    world = f"{CORRIDOR}:corridor:length=3"
    options = ("--agent", f"{FOLLOWS}:first=50", *BUDGET, "--users", "2000", "--json")
    made = entry(call("run", "--world", world, *options))
    assert (made["world"], made["agent"]) == ("corridor of 3", f"{FOLLOWS}:first=50")
    assert made["optimal_value"] == pytest.approx(tacit.world(world).optimal_value)


def test_an_environment_of_a_file_is_a_world(here):
    made = entry(
        call("run", "--world", f"{CORRIDOR}:Corridor", "--privacy", "none", "--users", 9, "--json")
    )
    assert made["optimal_value"] is None
    assert made["assumed"] == ["horizon 100 (no time limit)", "rewards in -1:10 (declared)"]
    assert made["runs"][0]["regret"] is None
    # Two steps that cost 1, and the end.
    assert made["runs"][0]["greedy_value"] == 8.0
    shown = content(call("show", "world", f"{CORRIDOR}:corridor", "--json"))
    assert shown["summary"].startswith("A corridor: action 1 goes on")

    world = tacit.world(f"{CORRIDOR}:Corridor:length=3,horizon=20")
    assert (world.spec.states, world.spec.horizon) == (4, 20)
    assert world.assumed == ("rewards in -1:10 (declared)",)
    with pytest.raises(InvalidArgument, match="horizon is for environments, and corridor of 4"):
        tacit.world(f"{CORRIDOR}:corridor:horizon=3")


def test_the_current_folder_is_on_the_path(here):
    (here / "beside_it.py").write_text("HORIZON = 1\n")
    (here / "mine_of_this_test.py").write_text(
        "import tacit\nimport beside_it\n"
        "def coins(best: float = 1.0):\n"
        "    '''Two coins.'''\n"
        "    tables = [[[1.0], [1.0]]], [[0.0, best]], beside_it.HORIZON\n"
        "    return tacit.tabular.TabularWorld(*tables, name='coins')\n"
    )
    for name in ("mine_of_this_test.coins", "mine_of_this_test.py:coins"):
        shown = content(call("show", "world", f"{name}:best=0.5", "--json"))
        assert shown["optimal_value"] == 0.5


# Files name what is registered; nothing else is imported, and nothing of it is run.

SWEEP = 'worlds = ["{world}"]\nagents = ["{agent}"]\nepsilons = [1]\ndelta = 1e-6\nusers = 100\n'
APP = """
[world]
states = 3
actions = 2
horizon = 3
[agent]
name = "{agent}"
users = 1000
schedule = "fixed:size=50"
[privacy]
epsilon = 1
delta = 1e-6
[log]
path = "logs"
"""
MARKER = """
import pathlib
pathlib.Path({flag!r}).write_text("imported")
import tacit
Mine = tacit.UCBVI
Other = tacit.UCBPO
def make(states: int = 3):
    pathlib.Path({flag!r}).write_text("called")
    return tacit.tabular.riverswim(states, 4)
def run(command: str = "") -> int:
    pathlib.Path({flag!r}).write_text("called")
    return 0
"""


@pytest.fixture
def marked(here):
    """A module that writes a file when it is imported, and another when it is called."""
    flag = here / "flag"
    (here / "marker_of_this_test.py").write_text(MARKER.format(flag=str(flag)))
    (here / "victim").mkdir()
    yield flag
    sys.modules.pop("marker_of_this_test", None)


CODE = [
    ("os.system:command=touch flag", "os"),
    ("shutil.rmtree:path=victim", "shutil"),
    ("marker_of_this_test.make", "marker_of_this_test"),
    ("marker_of_this_test.py:make:states=3", "marker_of_this_test.py"),
]


@pytest.mark.parametrize("place", ["worlds", "agents"])
@pytest.mark.parametrize(("text", "module"), CODE)
def test_a_sweep_file_has_no_code_imported(here, marked, text, module, place):
    names = {"world": "riverswim:states=3", "agent": "ucbvi"} | {place[:-1]: text}
    (here / "s.toml").write_text(SWEEP.format(**names))
    line = one_line(call("sweep", "s.toml", "--workers", 1))
    assert "'s.toml' names" in line
    assert f"would import {module!r}" in line
    assert "--allow-code" in line
    assert not marked.exists()
    assert (here / "victim").is_dir()


@pytest.mark.parametrize(
    "text",
    [
        "gym:marker_of_this_test:FrozenLake-v1",
        " gym:marker_of_this_test:FrozenLake-v1",
        "gym:FrozenLake-v1,env_id=marker_of_this_test:X-v0",
    ],
)
def test_the_module_of_an_environment_is_code_too(here, marked, text):
    (here / "s.toml").write_text(SWEEP.format(world=text, agent="ucbvi"))
    line = one_line(call("sweep", "s.toml", "--workers", 1))
    assert "would import 'marker_of_this_test'" in line
    assert not marked.exists()


def test_options_make_no_code_of_a_name(here, marked):
    """``ucbvi:scale=x.py:Mine`` is, as a whole, the name of a file's own."""
    (here / "ucbvi:scale=x.py").write_text((here / "marker_of_this_test.py").read_text())
    (here / "s.toml").write_text(SWEEP.format(world="riverswim", agent="ucbvi:scale=x.py:Mine"))
    assert "would import" in one_line(call("sweep", "s.toml", "--workers", 1))
    assert not marked.exists()


def test_code_that_is_allowed_is_imported(here, marked):
    names = {"world": "marker_of_this_test.make:states=3", "agent": "marker_of_this_test.Mine"}
    (here / "s.toml").write_text("seeds = 1\n" + SWEEP.format(**names))
    assert "1 of 1 runs" in call("sweep", "s.toml", "--allow-code", "--workers", 1).stdout
    assert marked.read_text() == "called"


@pytest.mark.parametrize(
    ("text", "module"), [*CODE, ("marker_of_this_test.Mine", "marker_of_this")]
)
def test_the_file_of_an_app_has_no_code_imported(here, marked, text, module):
    (here / "app.toml").write_text(APP.format(agent=text))
    (here / "ucbvi.toml").write_text(APP.format(agent="ucbvi"))
    (here / "logs").mkdir()
    for command in (
        ("learn", "app.toml", "--dry-run"),
        ("learn", "app.toml"),
        ("learn", "ucbvi.toml", "--after", "app.toml"),
        ("serve", "app.toml", "--check"),
        ("serve", "app.toml", "--new-token", "curator"),
        ("serve", "app.toml"),
    ):
        line = one_line(call(*command))
        assert "'app.toml' names" in line
        assert f"would import {module!r}"[:-1] in line
    assert not marked.exists()
    assert (here / "victim").is_dir()


def test_saved_runs_have_no_code_imported(here, marked):
    """Their names are words."""
    made = tacit.run("ucbvi", "riverswim:states=3", users=100, privacy=tacit.NonPrivate())
    named = tacit.Result.from_dict(
        made.to_dict() | {"world": "marker_of_this_test.make", "agent": "marker_of_this_test.Mine"}
    )
    named.save(here / "one.json")
    drawn = call("show", "one.json", "--plot", "one.svg", "--width", "page")
    assert drawn.exit_code == 0
    assert not marked.exists()


@pytest.mark.parametrize("text", ["os.system:command=touch flag", "shutil.rmtree:path=victim"])
@pytest.mark.parametrize("place", ["--world", "--agent"])
def test_what_is_of_pythons_own_library_is_not_called(here, marked, text, place):
    given = {"--world": "riverswim:states=3", "--agent": "ucbvi"} | {place: text}
    line = one_line(call("run", *(w for pair in given.items() for w in pair), *BUDGET))
    assert "is of Python's own library" in line
    assert not marked.exists()
    assert (here / "victim").is_dir()


@pytest.mark.parametrize(
    ("old", "new"), [("compare", "run"), ("list", "show"), ("bounds", "paper")]
)
def test_old_names_of_commands_answer_with_the_new_ones(old, new):
    assert f"{old} is called {new}: tacit {new}" in one_line(call(old))


def test_other_packages_name_agents_and_worlds(monkeypatch):
    brought = {"tacit.agents": {"mine": "tacit.tabular.ucbvi:UCBVI"}}
    brought |= {"tacit.worlds": {"pond": "tacit.tabular.worlds:riverswim"}}
    monkeypatch.setattr(registry, "plugged", brought.__getitem__)
    assert registry.choose_agent("mine:scale=0.5").make is tacit.UCBVI
    assert registry.build_world("pond:states=4").spec.states == 4
