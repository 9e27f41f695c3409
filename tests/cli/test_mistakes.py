"""Mistakes are one line and an exit code, before anything runs."""

import pytest

from tests.cli.calls import BUDGET, call, one_line, run

MISTAKES = {
    "unknown agent option": (("--agent", "scripted:x=1"), "no option 'x'; it takes never"),
    "no number": (("--epsilon", "one"), "'--epsilon': 'one' must be a number"),
    "wrong delta": (("--delta", "1"), "delta is 1.0, but must be 0, or from"),
    "a budget of none": (("--privacy", "none"), "--privacy none has no budget"),
    "no users": (("--users", "0"), "'--users': it must be an integer in 1..1"),
    "wrong seed": (("--seed", "-1"), "'--seed': it must be an integer in 0..1"),
    "wrong privacy": (("--privacy", "total"), "privacy must be joint or local"),
    "unknown option": (("--colour", "red"), "No such option: --colour"),
    "no folder for a save": (("--save", "no/such/x.json"), "x.json', which cannot be written"),
    "a folder as a save": (("--save", "folder.json"), "folder.json', which cannot be written"),
    "twice": (("--agent", "scripted", "--agent", "scripted"), "'scripted' is there twice"),
}
OTHERS = {
    "a table to plot": (("show", "runs.csv", "--plot", "x.png"), "not a file of runs"),
    "no runs": (("show", "file", "--plot", "x.png"), "'file': not a file of runs"),
    "no kind": (("show", "thing", "x"), "what to show must be"),
    "no optimum": (("plan", "--world", "unknown", *BUDGET), "no known optimum"),
    "a plan of none": (("plan", "--world", "two_coins", "--privacy", "none", *BUDGET), "no budget"),
    "no sweep": (("sweep", "file"), "'file' is not TOML"),
    "a sweep's key": (("sweep", "keys.toml"), "has 'colour'; it may have worlds"),
    "a sweep's seeds": (("sweep", "seeds.toml"), "seeds must be an integer >= 0"),
}


@pytest.mark.parametrize("mistake", [*MISTAKES, *OTHERS])
def test_a_mistake_is_one_line(mistake):
    arguments, words = (MISTAKES | OTHERS)[mistake]
    assert words in one_line(run(*BUDGET, *arguments) if mistake in MISTAKES else call(*arguments))


@pytest.fixture(autouse=True)
def files(tmp_path_factory, monkeypatch):
    """What the mistakes are about, in the current folder."""
    folder = tmp_path_factory.mktemp("mistakes")
    monkeypatch.chdir(folder)
    (folder / "folder.json").mkdir()
    (folder / "file").write_text("[")
    (folder / "runs.csv").write_text("label\n")
    (folder / "keys.toml").write_text("colour = 1\n")
    lines = 'worlds = ["two_coins"]\nagents = ["scripted"]\nprivacy = "none"\nseeds = [-1]\n'
    (folder / "seeds.toml").write_text(lines)


def test_returns_are_reported_where_no_optimum_is_known():
    outcome = run(*BUDGET, world="unknown")
    assert outcome.exit_code == 0
    words = " ".join(outcome.stdout.split())
    assert "got 0.995 each, the last of them 1; the optimum is not known" in words
    assert "returns are reported, regret is not" in words
    assert "90 %" not in words


def test_a_budget_has_no_default():
    for given in (("--delta", "1e-6"), ("--epsilon", "1")):
        assert "local privacy needs a budget" in one_line(run(*given, "--privacy", "local"))
    assert "--world" in one_line(call("run", "--agent", "scripted"))


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_run_that_fails_is_one_line_too(seeds):
    arguments = (*BUDGET, "--seed", 1, "--seeds", seeds)
    line = one_line(run(*arguments, agent="scripted:fail=true"), code=1)
    assert "ZeroDivisionError: made to fail" in line
    assert "--traceback" in line
    line = one_line(run(*arguments, agent="scripted:refuse=true"))
    assert "made to refuse" in line


def test_a_traceback_can_be_asked_for():
    options = ("--world", "two_coins", "--agent", "scripted:fail=true", "--privacy", "none")
    outcome = call("--traceback", "run", *options, "--seed", 1)
    assert (outcome.exit_code, "in learn" in outcome.stderr) == (1, True)
