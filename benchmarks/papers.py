"""The papers' algorithms, a release after every episode: a million episodes, in processor time.

Time is linear in the episodes, so a tenth of them is run and counted ten times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.row import Row, at_most
from tacit.linear.worlds import two_state
from tacit.mixture.worlds import hard_mixture
from tacit.papers.chowdhury_tabular_2021 import ucb_po, ucb_vi
from tacit.papers.sahu_linear_2025 import dp_lsvi_ucb_plus_plus
from tacit.papers.zhou_mixture_2022 import lin_opt_po, lin_opt_vi
from tacit.tabular.worlds import riverswim

EPISODES, PARTS = 10**6, 10
LIMIT = 60.0


def algorithms() -> Mapping[str, Callable[..., Any]]:
    """What is run, with where."""
    known, mixed = two_state(known_rewards=True), hard_mixture()
    return {
        "PRIVATE-UCB-VI, riverswim": partial(ucb_vi, riverswim(6)),
        "PRIVATE-UCB-PO, riverswim": partial(ucb_po, riverswim(6)),
        "DP-LSVI-UCB++, two_state": partial(dp_lsvi_ucb_plus_plus, known),
        "LinOpt-VI-Reg, hard_mixture": partial(lin_opt_vi, mixed),
        "LinOpt-PO-Reg, hard_mixture": partial(lin_opt_po, mixed),
    }


def rows() -> Iterator[Row]:
    """One for every algorithm, printed and corrected."""
    for name, learn in algorithms().items():
        for printed in (True, False):
            delta = 0.0 if "UCB-VI" in name or "UCB-PO" in name else 1e-6
            given = {"epsilon": 1.0, "delta": delta, "printed": printed}
            learn(episodes=200, **given)  # compiles
            start = time.process_time()
            learn(episodes=EPISODES // PARTS, **given)
            took = PARTS * (time.process_time() - start)
            what = f"10^6 episodes, {'as printed' if printed else 'corrected'}"
            yield at_most(name, what, took, LIMIT, " s")
