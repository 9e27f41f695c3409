"""The command line, called from a test, and what may be said of its output."""

import json

from typer.testing import CliRunner

from tacit.cli import app as cli

BUDGET = ("--epsilon", "1", "--delta", "1e-6")


def call(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def run(*arguments, world="two_coins", agent="scripted", users="1e4", workers=1):
    options = ("--world", world, "--agent", agent, "--users", users, "--workers", workers)
    return call("run", *options, *arguments)


def content(outcome):
    assert (outcome.exit_code, outcome.stderr) == (0, "")
    return json.loads(outcome.stdout)


def entry(outcome):
    """What ``tacit run --json`` says of its only agent, and of the world."""
    made = content(outcome)
    (one,) = made.pop("entries")
    return made | one


def one_line(outcome, code=2):
    """The complaint: one line on standard error, nothing on standard output."""
    assert (outcome.exit_code, outcome.stdout) == (code, "")
    line, rest = outcome.stderr.split("\n")
    assert rest == ""
    assert line.startswith("tacit: ")
    assert "Traceback" not in line
    return line
