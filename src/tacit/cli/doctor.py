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
from tacit.cli.options import command, flag
from tacit.cli.output import print_json, print_table, say
from tacit.privacy.errors import TacitError

REQUIRED = ("numpy", "scipy", "numba", "sqlalchemy", "gymnasium", "matplotlib", "typer", "rich")
OPTIONAL = {
    "pyarrow": "logs and results as Parquet: pip install 'tacit[logs]'",
    "pandas": "results as frames: pip install 'tacit[frames]'",
    "fastapi": "tacit serve: pip install 'tacit[serve]'",
    "psycopg": "stores on PostgreSQL: pip install 'tacit[serve]'",
    "cryptography": "encrypted stores: pip install 'tacit[encrypt]'",
}


@dataclass(frozen=True)
class Check:
    """Finding about one thing; only ``"failed"`` needs to be mended."""

    name: str
    state: Literal["ok", "slow", "missing", "failed"]
    detail: str


@command()
def _doctor(
    as_json: options.Json = False,
    compile_ahead: Annotated[
        bool, flag("Compile the loops of common runs now, and nothing else.", "--compile")
    ] = False,
) -> None:
    if compile_ahead:
        compile_loops()
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
        importlib.import_module(name)
        return Check(name, "ok", version)
    except importlib.metadata.PackageNotFoundError:
        if purpose:
            return Check(name, "missing", f"optional, for {purpose}")
        return Check(name, "failed", f"not installed: pip install {name}")
    except Exception as error:  # a broken installation may raise anything
        return Check(name, "failed", f"does not import: {error}")


def _cache(title: str) -> Check:
    """Compiled code is kept on disk; without that every process compiles anew."""
    from tacit.tabular import simulate_loops

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


# Ahead of time, in several processes.

# Small runs by kind: world, agent, users, model. The first kind comes before the others, which use
# some of its loops.
_RUNS = {
    "finite worlds": """
        riverswim auto 3000 joint, riverswim ucbvi 3000 joint, riverswim ucbvi 3000 none,
        riverswim ucbvi 1000 local, riverswim ucbpo 1000 joint, gym:Blackjack-v1 auto 1000 joint""",
    "linear MDPs": "simplex auto 400 joint, simplex lsvi_ucb 400 joint, simplex lsvi_ucb 400 none",
    "mixtures": """
        hard_mixture auto 1000 joint, hard_mixture linopt_vi 1000 joint,
        mixture_of_models linopt_po 400 none""",
    "control": "dosing auto 2000 joint, dosing auto 2000 local",
    "continuous states": """
        line auto 20 joint, line fitted_functional_q:serve=all 20 joint,
        gym:CartPole-v1 auto 60 joint, gym:Acrobot-v1 auto 10 joint""",
}


def compile_loops() -> None:
    """Runs a little of everything, so that what it compiles is on disk; says how much that was."""
    import time

    from tacit.simulation.run import progress_bar
    from tacit.simulation.sweep import outcomes

    start, (first, *others) = time.perf_counter(), _RUNS
    with progress_bar("compiling loops", len(_RUNS), True) as advance:
        loops = _run_all(first)
        advance(1)
        for _, found in outcomes(_run_all, dict(enumerate(others)), os.cpu_count() or 1):
            if isinstance(found, str):
                raise TacitError(f"the loops of common runs were not all compiled: {found}")
            loops += found
            advance(1)
    seconds = time.perf_counter() - start
    say(f"{loops} loops were compiled in {seconds:.0f} s; the others were on disk.")


def _run_all(kind: str) -> int:
    """Runs all of a kind; how many loops that compiled."""
    from tacit.numerics.compiled import NOTICE
    from tacit.privacy.deviates import prepare
    from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy
    from tacit.simulation.run import run

    prepare()
    models: dict[str, Privacy] = {
        "joint": JointDP(1.0, 1e-4),
        "local": LocalDP(5.0, 1e-4),
        "none": NonPrivate(),
    }
    for line in _RUNS[kind].split(","):
        world, agent, users, model = line.split()
        run(agent, world, users=int(users), privacy=models[model], progress=False)
    return NOTICE.compiled
