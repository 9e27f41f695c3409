"""Compiles the loops of common runs ahead, in several processes: ``tacit doctor --compile``."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

from tacit.cli.output import say

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


def compile_ahead(progress: bool = True) -> None:
    """Runs a little of everything, so that what it compiles is on disk; says how much that was."""
    from tacit.simulation.progress import progress_bar

    start, (first, *others) = time.perf_counter(), _RUNS
    loops = 0
    with (
        progress_bar("compiling loops", len(_RUNS), progress) as advance,
        ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool,
    ):
        for kinds in ([first], others):
            for found in pool.map(_run_all, kinds):
                loops += found
                advance(1)
    seconds = time.perf_counter() - start
    say(f"{loops} loops were compiled in {seconds:.0f} s; the others were on disk.")


def _run_all(kind: str) -> int:
    """Runs all of a kind; how many loops that compiled."""
    from tacit.numerics.compiled import NOTICE
    from tacit.privacy.deviates import prepare
    from tacit.privacy.models import JointDP, LocalDP, NonPrivate
    from tacit.simulation.run import run

    prepare()
    models = {"joint": JointDP(1.0, 1e-4), "local": LocalDP(5.0, 1e-4), "none": NonPrivate()}
    for line in _RUNS[kind].split(","):
        world, agent, users, model = line.split()
        run(agent, world, users=int(users), privacy=models[model], progress=False)
    return NOTICE.compiled
