"""The command line as a program: its start, its end, and that runs do not depend on how."""

import json
import subprocess
import sys

import typer

import tacit
from tacit.cli import app as cli
from tacit.cli import doctor
from tests.cli.calls import BUDGET, call, content, one_line, run
from tests.cli.fakes import Scripted


def program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "tacit.cli.app", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        **options,
    )


def test_version_and_help():
    assert call("--version").stdout == f"tacit {tacit.__version__}\n"
    assert "Commands" in call().stdout
    for command in typer.main.get_command(cli.app).commands:
        inner = typer.main.get_command(cli.app).commands[command]
        for words in ([command, name] for name in getattr(inner, "commands", [""])):
            outcome = call(*filter(None, words), "--help")
            assert outcome.exit_code == 0
            assert "Example" in outcome.stdout
            assert f"tacit {' '.join(words).strip()}" in outcome.stdout
    assert "Did you mean 'run'" in one_line(call("runn"))
    # Brackets are not taken for markup.
    assert '"none"]' in call("sweep", "--help").stdout
    assert len(typer.main.get_command(cli.app).commands) == 14


def test_the_doctor_finds_this_machine_well_and_says_what_is_broken(monkeypatch):
    made = content(call("doctor", "--json"))
    assert made["healthy"] and {"numpy", "a private agent", "pyarrow"} <= set(made["checks"])  # noqa: PT018

    def broken(kind):
        raise RuntimeError("no paper left")

    monkeypatch.setattr(doctor, "_run_all", broken)
    monkeypatch.setattr(doctor, "PACKAGES", {"no_such": "", "no_such_either": "extra"})
    outcome = call("doctor")
    assert outcome.exit_code == 1
    assert "no paper left" in outcome.stdout
    assert "optional: pip install 'tacit[extra]'" in outcome.stdout
    assert "Broken: no_such, a private agent." in " ".join(outcome.stdout.split())


def test_the_program_prints_json():
    options = ("--world", "riverswim:horizon=4,states=3", "--agent", "ucbvi", "--users", "200")
    arguments = ("run", *options, *BUDGET, "--json")
    made = program(*arguments)
    assert (made.returncode, made.stderr) == (0, "")
    one, two = json.loads(made.stdout), content(call(*arguments))
    for printed in (one, two):  # all but times
        del printed["seconds"], printed["entries"][0]["seconds_median"]
    assert one == two


def test_a_reader_may_leave_early():
    command = f"{sys.executable} -m tacit.cli.app show | true"
    made = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)  # noqa: S602
    assert made.stderr == ""


def test_an_interruption_is_130(monkeypatch):
    def interrupted(self, data):
        raise KeyboardInterrupt

    monkeypatch.setattr(Scripted, "learn", interrupted)
    outcome = run(*BUDGET)
    assert (outcome.exit_code, "Traceback" in outcome.stderr) == (130, False)


def test_help_loads_nothing_slow():
    heavy = ("numba", "matplotlib", "gymnasium", "scipy.stats", "scipy.optimize", "pandas")
    code = (
        "import sys\nfrom tacit.cli.app import app\n"
        "app(['--help'], standalone_mode=False)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.splitlines()[-1] == "[]"
