"""``tacit doctor``: what is installed, what works, and what is slow on this machine."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import typer

from tacit.cli import options
from tacit.cli.options import flag
from tacit.cli.output import print_json, print_table, say

HELP = (
    "What is installed, what works, and what is slow. Exit code 1 if something is broken.\n\n"
    "\b\nExamples:\n  tacit doctor --json\n  tacit doctor --compile"
)

State = Literal["ok", "slow", "missing", "failed"]

REQUIRED = ("numpy", "scipy", "numba", "gymnasium", "matplotlib", "typer", "rich")
OPTIONAL = {
    "dp-accounting": ("dp_accounting", "only for checking our accounting against another"),
    "opendp": ("opendp", "only for checking our noise against another"),
}


@dataclass(frozen=True)
class Check:
    """What was found out about one thing: only ``"failed"`` needs to be mended."""

    name: str
    state: State
    detail: str
    seconds: float | None = None


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
    well = healthy(checks)
    if as_json:
        print_json({"healthy": well, "checks": [asdict(check) for check in checks]})
    else:
        print_table(("", "", ""), [(check.name, check.state, check.detail) for check in checks])
        broken, slow = (
            ", ".join(c.name for c in checks if c.state == state) for state in ("failed", "slow")
        )
        say((f"Broken: {broken}." if broken else "All is well.") + f" Slow: {slow}." * bool(slow))
    raise typer.Exit(0 if well else 1)


def examine() -> list[Check]:
    """All checks, in the order in which they depend on each other."""
    checks = [Check("python", "ok", f"{platform.python_version()} ({sys.executable})"), _system()]
    checks += [_installed(name, name, "") for name in REQUIRED]
    for title, check in _CHECKS.items():
        try:
            checks.append(check(title))
        except Exception as error:  # whatever it is, the others still have to be looked at
            checks.append(Check(title, "failed", f"{type(error).__name__}: {error}"))
    return checks + [_installed(name, *about) for name, about in OPTIONAL.items()]


def healthy(checks: list[Check]) -> bool:
    """Whether everything that is needed works."""
    return all(check.state != "failed" for check in checks)


def _system() -> Check:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    limits = "".join(f", {name}={os.environ[name]}" for name in names if name in os.environ)
    return Check("system", "ok", f"{platform.platform()}, {os.cpu_count()} processors{limits}")


def _installed(name: str, module: str, purpose: str) -> Check:
    """A package that must be there, or may be: then it has a purpose."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if purpose:
            return Check(name, "missing", f"optional; {purpose}")
        return Check(name, "failed", f"not installed: pip install {name}")
    try:
        seconds = _seconds(lambda: importlib.import_module(module))
    except Exception as error:  # a broken installation may raise anything
        return Check(name, "failed", f"{version} does not import: {error}")
    return Check(name, "ok", version, seconds)


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


def _simulated(form: Literal["episodes", "counts"], users: int) -> tuple[float, float]:
    """How long one user takes, who comes first, and then many."""
    import numpy as np

    from tacit.finite.policy import Policy
    from tacit.tabular import riverswim

    world, rng = riverswim(), np.random.default_rng(0)
    policy = Policy.uniform(world.spec.horizon, world.spec.states, world.spec.actions)
    first = _seconds(lambda: world.simulate(policy, 1, rng, form))
    return first, _seconds(lambda: world.simulate(policy, users, rng, form))


def _episodes(title: str) -> Check:
    users, horizon = 20_000, 20
    first, second = _simulated("episodes", users)
    rate = users * horizon / second
    detail = f"{rate / 1e6:.3g} million steps a second, after {first:.2g} s for the first user"
    return Check(title, "slow" if rate < 3e6 else "ok", detail, second)


def _counts(title: str) -> Check:
    _, seconds = _simulated("counts", 10**9)
    return Check(title, "slow" if seconds > 0.1 else "ok", f"{1e3 * seconds:.3g} ms", seconds)


def _agent(title: str) -> Check:
    from tacit.privacy.models import JointDP
    from tacit.registry import build_world, choose_agent
    from tacit.simulation.run import run

    world, users = build_world("riverswim"), 100_000
    privacy = JointDP(1.0, 1e-6)

    def once() -> None:
        run(choose_agent("ucbvi").build(world.spec, users, privacy), world, progress=False)

    first, seconds = _seconds(once), _seconds(once)
    detail = f"{seconds:.2g} s for {users:,} users, {first:.2g} s the first time"
    return Check(title, "slow" if seconds > 3 else "ok", detail, seconds)


def _plotting(title: str) -> Check:
    import io

    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1], [0, 1])
    figure.savefig(io.BytesIO(), format="png")
    return Check(title, "ok", f"PNG files, no display needed (backend {mpl.get_backend()})")


def _environments(title: str) -> Check:
    from tacit.registry import build_world

    world = build_world("gym:FrozenLake-v1,horizon=20")
    return Check(title, "ok", f"{world.name}, optimal value {world.optimal_value:.4g}")


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


_CHECKS: dict[str, Callable[[str], Check]] = {
    "compiler cache": _cache,
    "users one by one": _episodes,
    "a billion users at once": _counts,
    "a private agent": _agent,
    "plots": _plotting,
    "environments": _environments,
}
