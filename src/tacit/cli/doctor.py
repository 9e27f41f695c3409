"""``tacit doctor``: what is installed, and whether it works."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import platform
import time
from typing import Annotated, Any

import typer

from tacit.cli import terminal
from tacit.cli.show import SIZES
from tacit.cli.terminal import command, flag, given, print_facts, print_json, print_table, say
from tacit.privacy.errors import TacitError

PACKAGES = {
    **dict.fromkeys(("numpy", "scipy", "numba", "sqlalchemy", "gymnasium", "jinja2"), ""),
    **{"pyarrow": "logs", "pandas": "frames", "fastapi": "serve", "cryptography": "encrypt"},
}
"""What must be there, and what may be: then the extra that brings it."""


@command()
def _doctor(
    world: Annotated[str, given("WORLD", "Of a world, gym:ID: what would happen in it.")] = "",
    as_json: terminal.Json = False,
    compile_ahead: Annotated[
        bool, flag("Compile the loops of common runs now, and nothing else.", "--compile")
    ] = False,
) -> None:
    if compile_ahead:
        compile_loops()
        return
    if world:
        found = prospects(world)
        words = {name.replace("_", " "): value for name, value in found.items()}
        print_facts(found if as_json else words, as_json)
        raise typer.Exit(1 if "refused" in found else 0)
    checks = examine()
    broken = ", ".join(name for name, (state, _) in checks.items() if state == "failed")
    if as_json:
        print_json({"healthy": not broken, "checks": checks})
    else:
        print_table(("", "", ""), [(name, *found) for name, found in checks.items()])
        say(f"Broken: {broken}." if broken else "All is well.")
    raise typer.Exit(1 if broken else 0)


def examine() -> dict[str, tuple[str, str]]:
    """Checks of packages and of an agent: a state and a detail each."""
    checks = {"python": ("ok", f"{platform.python_version()} on {platform.platform()}")}
    checks |= {name: _installed(name, extra) for name, extra in PACKAGES.items()}
    try:
        checks["a private agent"] = "ok", f"{_run_all('an agent')} loops were compiled for it"
    except Exception as error:  # whatever it is, the others still have to be shown
        checks["a private agent"] = "failed", f"{type(error).__name__}: {error}"
    return checks


def prospects(world: str) -> dict[str, Any]:
    """Facts of a run in a world, with its sizes and time, before any of it runs."""
    from tacit.auto import choose
    from tacit.privacy.models import JointDP, NonPrivate
    from tacit.registry import build_world
    from tacit.simulation.run import usual_users

    try:
        built: Any = build_world(world)
        spec, exact = built.spec, getattr(built, "exact", True)
        found: dict[str, Any] = {"world": built.name}
        sizes = {name: getattr(spec, name, None) for name in SIZES}
        found |= {name: value for name, value in sizes.items() if value is not None}
        budgets: dict[str, Any] = {"at_epsilon_1": JointDP(1.0, 1e-9), "not_private": NonPrivate()}
        found |= {f"agent_{name}": choose(spec, model).agent for name, model in budgets.items()}
        found["values"] = "exact" if exact else "estimates, of users who are stepped one by one"
        begun = time.perf_counter()
        found["users"] = usual_users(built)
    except TacitError as error:
        return {"world": world, "refused": str(error)}
    if not exact:
        each = (time.perf_counter() - begun) / (built.evaluation_users * built.random_steps)
        steps = found["users"] * math.sqrt(built.random_steps * spec.horizon)
        found |= {"steps_of_learning": int(steps), "microseconds_per_step": round(1e6 * each, 1)}
        found["time"] = f"about {2.0 * steps * each:,.0f} seconds of stepping, and planning"
    found["by_rule"] = "; ".join(getattr(built, "assumed", ())) or "nothing"
    return found


def _installed(name: str, extra: str) -> tuple[str, str]:
    try:
        importlib.import_module(name)
        return "ok", importlib.metadata.version(name)
    except Exception as error:  # a broken installation may raise anything
        if extra and isinstance(error, ModuleNotFoundError):
            return "missing", f"optional: pip install 'tacit[{extra}]'"
        return "failed", f"{type(error).__name__}: {error}"


# Ahead of time, in several processes.

# Small runs by kind: world, agent, users, model. The first kind comes before the others, which use
# some of its loops.
_RUNS = {
    "finite worlds": """
        riverswim auto 3000 joint, riverswim ucbvi 3000 joint, riverswim ucbvi 3000 none,
        riverswim ucbvi 1000 local, riverswim ucbpo 1000 joint, gym:Blackjack-v1 auto 1000 joint""",
    "an agent": "riverswim ucbvi 1000 joint",
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
    from tacit.simulation.run import progress_bar
    from tacit.simulation.sweep import outcomes

    first, *others = _RUNS
    with progress_bar("compiling loops", len(_RUNS), True) as advance:
        loops = _run_all(first)
        advance(1)
        for _, found in outcomes(_run_all, dict(enumerate(others)), os.cpu_count() or 1):
            if isinstance(found, str):
                raise TacitError(f"the loops of common runs were not all compiled: {found}")
            loops += found
            advance(1)
    say(f"{loops} loops were compiled; the others were on disk.")


def _run_all(kind: str) -> int:
    """Runs all of a kind; how many loops that compiled."""
    from tacit.numerics.compiled import NOTICE
    from tacit.privacy.deviates import prepare
    from tacit.simulation.run import run

    prepare()
    for line in _RUNS[kind].split(","):
        world, agent, users, model = line.split()
        privacy = terminal.privacy_model(model, 5.0 if model == "local" else 1.0, 1e-4)
        run(agent, world, users=int(users), privacy=privacy, progress=False)
    return NOTICE.compiled
