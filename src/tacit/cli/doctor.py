"""``tacit doctor``: what is installed, and whether it works."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from tacit.cli import options
from tacit.cli.options import flag
from tacit.cli.output import print_json, print_table, say

REQUIRED = ("numpy", "scipy", "numba", "gymnasium", "matplotlib", "typer", "rich")
OPTIONAL = {
    "pyarrow": "logs and results as Parquet: pip install 'tacit[logs]'",
    "pandas": "results as frames: pip install 'tacit[frames]'",
    "fastapi": "tacit serve: pip install 'tacit[serve]'",
    "cryptography": "encrypted files: pip install 'tacit[encrypt]'",
}


@dataclass(frozen=True)
class Check:
    """What was found out about one thing: only ``"failed"`` needs to be mended."""

    name: str
    state: Literal["ok", "slow", "missing", "failed"]
    detail: str


def doctor_command(
    as_json: options.Json = False,
    compile_ahead: Annotated[
        bool, flag("Compile the loops of common runs now, and nothing else.", "--compile")
    ] = False,
) -> None:
    """Examines the installation."""
    if compile_ahead:
        from tacit.cli.compile_loops import compile_ahead as compile_now

        compile_now()
        return
    checks = examine()
    broken = ", ".join(check.name for check in checks if check.state == "failed")
    if as_json:
        print_json({"healthy": not broken, "checks": [asdict(check) for check in checks]})
    else:
        print_table(("", "", ""), [(check.name, check.state, check.detail) for check in checks])
        say(f"Broken: {broken}." if broken else "All is well.")
    raise typer.Exit(1 if broken else 0)


def examine() -> list[Check]:
    """All checks, in the order in which they depend on each other."""
    system = f"{platform.platform()}, {os.cpu_count()} processors"
    checks = [Check("python", "ok", f"{platform.python_version()} ({sys.executable})")]
    checks += [Check("system", "ok", system), *(_installed(name) for name in REQUIRED)]
    for title, check in _CHECKS.items():
        try:
            checks.append(check(title))
        except Exception as error:  # whatever it is, the others still have to be looked at
            checks.append(Check(title, "failed", f"{type(error).__name__}: {error}"))
    return checks + [_installed(name, purpose) for name, purpose in OPTIONAL.items()]


def _installed(name: str, purpose: str = "") -> Check:
    """A package that must be there, or may be: then it has a purpose."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if purpose:
            return Check(name, "missing", f"optional, for {purpose}")
        return Check(name, "failed", f"not installed: pip install {name}")
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken installation may raise anything
        return Check(name, "failed", f"{version} does not import: {error}")
    return Check(name, "ok", version)


def _cache(title: str) -> Check:
    """Compiled code is kept on disk; without that every process compiles anew."""
    from tacit.finite import simulate_loops

    kernel: Any = simulate_loops.roll_out
    path = above = kernel.stats.cache_path
    while above and not os.path.isdir(above):
        above = os.path.dirname(above)
    if path is None or not os.access(above, os.W_OK):
        return Check(title, "slow", "cannot be written: set NUMBA_CACHE_DIR to a folder that can")
    return Check(title, "ok", path)


def _agent(title: str) -> Check:
    from tacit.privacy.models import JointDP
    from tacit.simulation.run import run

    made = run("ucbvi", "riverswim", users=1000, privacy=JointDP(1.0, 1e-6), progress=False)
    return Check(title, "ok", f"served {made.users:,} simulated users")


_CHECKS: dict[str, Callable[[str], Check]] = {"compiler cache": _cache, "a private agent": _agent}
