"""Mistakes are one line and an exit code, before anything runs."""

from __future__ import annotations

import os

import pytest

from tests.cli.calls import BUDGET, call, one_line, run
from tests.cli.fakes import Scripted

MISTAKES = {
    "unknown world": (("--world", "riverswin"), "did you mean 'riverswim'"),
    "unknown world option": (("--world", "riverswim:x=1"), "has no option 'x'; it takes states=6"),
    "unknown environment": (("--world", "gym:NoSuch-v1"), "no environment 'NoSuch-v1'"),
    "missing file": (("--world", "no/such.toml"), "'no/such.toml': No such file"),
    "no known optimum": (("--world", "unknown"), "has no known optimum"),
    "unknown agent": (("--agent", "script"), "did you mean 'scripted'"),
    "unknown agent option": (("--agent", "scripted:x=1"), "has no option 'x'; it takes never=1000"),
    "wrong agent option": (("--agent", "scripted:never=x"), "must be a whole number"),
    "zero epsilon": (("--epsilon", "0"), "epsilon is 0.0, but must be a positive"),
    "negative epsilon": (("--epsilon", "-1"), "epsilon is -1.0, but must be a positive"),
    "no number": (("--epsilon", "one"), "epsilon is 'one', but must be a number"),
    "wrong delta": (("--delta", "1"), "delta is 1.0, but must be 0, or from"),
    "no users": (("--users", "0"), "users is '0', but must be a whole number from 1"),
    "negative users": (("--users", "-5"), "users is '-5', but must be a whole number from 1"),
    "half a user": (("--users", "1.5"), "users is '1.5', but must be a whole number"),
    "users in words": (("--users", "many"), "users is 'many', but must be a whole number"),
    "too many users": (("--users", "1e30"), "users is '1e30', but must be a whole number"),
    "no seeds": (("--seeds", "0"), "seeds is '0', but must be"),
    "wrong seed": (("--seed", "-1"), "seed is '-1', but must be a whole number from 0"),
    "no workers": (("--workers", "0"), "workers is '0', but must be"),
    "wrong privacy": (("--privacy", "total"), "--privacy is 'total', but must be one of joint"),
    "unknown option": (("--colour", "red"), "No such option: --colour"),
    "no value": (("--plot",), "--plot"),
    "too much": (("more",), "more"),
    "no folder for a plot": (("--plot", "no/such/x.png"), "there is no folder no/such"),
    "another format": (("--plot", "x.gif"), "--plot is 'x.gif', but must end in .png, .pdf, .svg"),
    "no folder for a save": (("--save", "no/such/x"), "--save is 'no/such/x', but there is no fo"),
    "a folder as a save": (("--save", "."), "--save is '.', which is a folder"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake):
    arguments, words = MISTAKES[mistake]
    assert words in one_line(run(*BUDGET, *arguments))


def test_a_budget_has_no_default():
    for given, missing in ((("--delta", "1e-6"), "epsilon"), (("--epsilon", "1"), "delta")):
        for model in ("joint", "local"):
            line = one_line(run(*given, "--privacy", model))
            assert f"--{missing} is missing: {model} privacy needs a budget" in line
    assert "--world" in one_line(call("run", "--agent", "scripted"))


def test_unreadable_and_unwritable_files(tmp_path):
    broken = tmp_path / "broken.json"
    broken.write_text('{"horizon": 3}')
    assert "describes no world: it must have" in one_line(run(*BUDGET, world=broken))
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    assert "folder.toml': Is a directory" in one_line(run(*BUDGET, world=folder))
    if os.path.isdir("/proc/self"):
        for option in (("--save", "/proc/x"), ("--plot", "/proc/x.png")):
            assert "which cannot be written" in one_line(run(*BUDGET, *option))


def test_files_are_checked_before_anything_is_run():
    line = one_line(run(*BUDGET, "--save", "no/such/x", agent="scripted:fail=true", users="1e12"))
    assert "no folder" in line


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_run_that_fails_is_one_line_too(seeds):
    arguments = (*BUDGET, "--seed", 1, "--seeds", seeds)
    line = one_line(run(*arguments, agent="scripted:fail=true"), code=1)
    assert "ZeroDivisionError: made to fail" in line
    assert "--traceback" in line
    line = one_line(run(*arguments, agent="scripted:refuse=true"))
    assert "made to refuse" in line


def test_a_traceback_can_be_asked_for(capsys):
    options = ("--world", "two_coins", "--agent", "scripted:fail=true", "--privacy", "none")
    outcome = call("--traceback", "run", *options, "--seed", 1)
    assert outcome.exit_code == 1
    assert "Traceback" in outcome.stderr
    assert "in learn" in outcome.stderr


def test_an_interruption(monkeypatch):
    def interrupted(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(Scripted, "learn", interrupted)
    outcome = run(*BUDGET)
    assert outcome.exit_code == 130
    assert "Traceback" not in outcome.stderr
