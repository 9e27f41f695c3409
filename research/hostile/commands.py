"""The command line: any words in any place.

A mistake is one line that begins with ``tacit:`` and exit code 2, never a traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from typer.testing import CliRunner

import tacit
from research.hostile.fuzzing import Broken, EntryPoint, Strategy
from tacit.cli import app as cli
from tacit.store.store import Store

_TEXTS = (
    *("", " ", "0", "-1", "1", "20", "1e3", "1e999999999", "nan", "inf", "-inf", "1e-400", "0x10"),
    *("none", "true", "abc", "ä\n\nö", "\x00", "--", "-h-", "=", ":", ",", "a=b", "a:b=c", "1_0"),
    *("١", "riverswim:states=3,horizon=3", "riverswim:states=1e9", "riverswim:states=-1"),
    *("riverswim:", "riverswim:horizon=1e17", "grid:side=1e5", "missing.toml", "missing.json"),
    *(".toml", "/", "~"),
    *("math.sqrt:x=3", "os.getcwd", "json.loads:s=1", "tacit.Budget:epsilon=1,delta=0", "a.b.c"),
    *("gym:", "gym:Nothing-v0,horizon=3", "gym:id=,horizon=3", "ucbvi:schedule=fixed:size=0"),
    *("ucbvi:privacy=none", "ucbvi:scale=-1", "ucbvi:scale=nan", "ucbvi:users=3", "ucbpo"),
    *("ucbvi:schedule=geometric:growth=1.0000000001", "joint", "local", "exact", "x" * 300),
    *("/nowhere/x.png", "x.png", "x.json", "folder", "/dev/full", "/dev/null"),
)
_SMALL_RUN = {
    "--world": "riverswim:states=3,horizon=3",
    "--agent": "ucbvi",
    "--epsilon": "1",
    "--delta": "1e-6",
    "--users": "30",
    "--seeds": "1",
    "--workers": "1",
}
# Commands, with options that are good, and others that may be given.
_COMMANDS: tuple[tuple[tuple[str, ...], dict[str, str], tuple[str, ...]], ...] = (
    (("run",), _SMALL_RUN, ("--privacy", "--seed", "--save", "--plot", "--nothing")),
    (
        ("plan",),
        {"--users": "20", "--seeds": "1", "--epsilon": "1", "--delta": "1e-6"},
        ("--world", "--most", "--privacy"),
    ),
    (("show",), {}, ("--json=", "--kind")),
    (("paper", "sahu_linear_2025"), {}, ("--world", "--users", "--epsilon", "--delta")),
    (("show", "world", "riverswim"), {}, ()),
    (("show", "agent", "ucbvi"), {}, ()),
    (("ledger", "verify", "ledger"), {}, ("--json=",)),
    (("ledger", "show", "ledger"), {}, ("--expect", "--timeout")),
    (("ledger", "repair", "ledger"), {}, ("--expect", "--json=")),
    (("report", "ledger"), {}, ("--delta", "--output", "--expect")),
    (("ledger", "create", "new"), {"--epsilon": "1", "--delta": "1e-6"}, ("--relation", "--note")),
)


def command_entries() -> list[EntryPoint]:
    """The command line, in this process."""
    return [EntryPoint("command line", _command_lines, _attempt_command)]


def command(line: Sequence[str]) -> tuple[int, str, str]:
    """The exit code, what is on standard error, and what was raised, of a command in here."""
    ran = CliRunner().invoke(cli.app, list(line))
    raised = ran.exception
    fine = raised is None or isinstance(raised, SystemExit)
    return ran.exit_code, ran.stderr, "" if fine else repr(raised)


def _texts() -> Strategy:
    return st.sampled_from(_TEXTS) | st.text(max_size=12)


@st.composite
def _command_lines(draw: Any) -> list[str]:
    words, good, more = draw(st.sampled_from(_COMMANDS))
    changed = list(words)
    if len(words) > 1 and draw(st.integers(0, 2)) > 0:
        changed[-1] = draw(_texts())
    options = dict(good)
    names = [*good, *more]
    if names:
        for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
            if draw(st.integers(0, 5)) == 0:
                options.pop(name, None)
            else:
                options[name] = draw(_texts())
    line = [*changed, *(part for item in options.items() for part in item)]
    if draw(st.integers(0, 8)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(_texts()))
    return line


def _attempt_command(line: list[str], folder: Path) -> None:
    """Runs it here; a store lies about."""
    (folder / "folder").mkdir()
    Store(folder / "ledger")
    code, error, raised = command(line)
    if raised:
        raise Broken(f"raises {raised}")
    if "Traceback" in error:
        raise Broken(f"shows a traceback: {error[-200:]}")
    if code not in (0, 2):
        raise Broken(f"exits with {code}: {error[-300:]}")
    if code == 2:
        if len(error.splitlines()) != 1 or not error.startswith("tacit:"):
            raise Broken(f"says more or less than a line: {error[:300]!r}")
        raise tacit.InvalidArgument(error)
