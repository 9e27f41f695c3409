"""The agent with functional noise beside baselines: what so many users teach at one budget.

After Figure 2 of Wang and Hegde (2019), at its budgets, with all that is private under the same
accountant. Every point is a run of its own with so many users; the return is that of the greedy
policy in the end. The algorithm as printed is beside them, with the noise that the paper claims the
budget for: it has no guarantee.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import tacit
from research.figures import EndLabel, Pen, band, drawing, figure_main, label_ends, levels
from research.functional_noise import printed_run
from research.study import joint, markdown, run_all, spread
from research.wang_baselines import baseline
from tacit.continuous import line
from tacit.simulation.plots import short_ticks

SIZES = (10, 30, 100, 300, 1000)
CLAIMS = {0.9: 0.32, 0.45: 0.74}
"""The noise for which the paper claims an epsilon."""
DELTA, PRINTED = 1e-4, "public_code"
AGENTS = {
    "fitted_functional_q": ("FittedFunctionalQ", Pen("#0072B2", "o")),
    "fitted_functional_q:serve=all": ("the same, all served", Pen("#56B4E9", "P")),
}
GROUPS: Mapping[str, Mapping[str, tuple[str, Pen]]] = {
    "functional noise, averages": {
        **AGENTS,
        "output_perturbation": ("output perturbation", Pen("#009E73", "D")),
    },
    "all others": {
        "network_q": ("network, rewards only", Pen("#E69F00", "v")),
        "policy_evaluation": ("policy evaluation", Pen("#D55E00", "s")),
        "input_perturbation": ("input, rewards only", Pen("#222222", "X", "--")),
        PRINTED: ("printed, no guarantee", Pen("#CC79A7", "^", ":")),
    },
}
"""Names and pens by agent or baseline; two panels for each budget, so that bands stay apart."""
NAMED = {kind: named for group in GROUPS.values() for kind, named in group.items()}


def greedy_return(job: tuple[str, float, int], seed: int) -> float:
    """The value of the greedy policy after so many users."""
    kind, epsilon, users = job
    if kind in AGENTS:
        privacy = joint(epsilon, DELTA)
        run = tacit.run(kind, line(), seed, progress=False, users=users, privacy=privacy)
        return run.greedy_value
    if kind == PRINTED:
        return float(printed_run(users, seed, sigma=CLAIMS[epsilon]).more["greedy"][-1])
    found = baseline(kind, users=users, epsilon=epsilon, delta=DELTA, seed=seed)
    return float(line().value(found.policy.greedy() if kind == "network_q" else found.policy))


Measured = Mapping[tuple[str, float, int], Sequence[float]]
"""Returns of all runs, by kind, epsilon and users."""


def measure(runs: int, workers: int, quick: bool) -> Measured:
    """Runs everything; what is slow has fewer users."""
    sizes = (10, 20) if quick else SIZES
    jobs = [
        (kind, epsilon, users)
        for epsilon in CLAIMS
        for kind in NAMED
        for users in sizes
        if kind != PRINTED or users <= 300
    ]
    return run_all(jobs, greedy_return, runs, workers)


def paint(path: Path, measured: Measured) -> None:
    """Two panels for each budget."""
    world, sizes = line(), sorted({users for _, _, users in measured})
    panels = [(epsilon, title) for epsilon in CLAIMS for title in GROUPS]
    with drawing(
        path,
        "Continuous states: what so many users teach at one budget",
        "Return of the greedy policy in the end, on line. Lines: medians of "
        f"{len(next(iter(measured.values())))} runs; bands: 10th to 90th percentile. Budgets, with "
        "δ = 1e-4, are for whole episodes unless it is said otherwise.",
        panels=len(panels),
        size=(18, 5.8),
        footnote="Baselines are reconstructions. FittedFunctionalQ, output and input perturbation "
        "serve all of these users at random. Input perturbation and the network protect rewards "
        "alone: states and actions are public.\nAs printed: the algorithm of Wang and Hegde "
        f"with σ = {CLAIMS[0.9]:g} and {CLAIMS[0.45]:g}, for which these budgets are claimed. "
        "It returns its network without noise: no guarantee at all.",
    ) as sheet:
        ends: list[list[EndLabel]] = []
        for axes, (epsilon, title) in zip(sheet, panels, strict=True):
            axes.set(xscale="log", xlabel="users", title=f"ε = {epsilon:g}: {title}")
            axes.set(xlim=(0.9 * sizes[0], 1.1 * sizes[-1]), ylim=(0.0, world.optimal_value * 1.08))
            short_ticks(axes.xaxis)
            levels(axes, sizes[0], optimum=world.optimal_value, uniform=world.baseline_value)
            ends.append([])
            # What the figure is about is drawn last, on top of the others.
            for kind, (words, pen) in reversed(list(GROUPS[title].items())):
                x = [n for n in sizes if (kind, epsilon, n) in measured]
                rows = np.array([measured[kind, epsilon, n] for n in x])
                ends[-1].append(band(axes, x, rows, pen, words))
        sheet[0].set(ylabel="return of the greedy policy")
        for axes, labels in zip(sheet, ends, strict=True):
            label_ends(axes, labels)


def table(measured: Measured) -> str:
    """Returns, medians with deciles, in Markdown."""
    sizes, rows = sorted({users for _, _, users in measured}), []
    for epsilon in CLAIMS:
        for kind, (words, _) in NAMED.items():
            found = [measured.get((kind, epsilon, n)) for n in sizes]
            cells = [spread(f, (0.1, 0.9), lambda x: f"{x:.1f}") if f else "-" for f in found]
            rows.append([words, f"{epsilon:g}", *cells])
    return markdown(["agent", "ε", *(f"{size:,} users" for size in sizes)], rows, 2)


main = figure_main("research.functional_baselines", __doc__, measure, paint, table)


if __name__ == "__main__":
    sys.exit(main())
