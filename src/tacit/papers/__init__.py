"""Five papers, one file each: their algorithms literally, beside the text.

Every file has its paper's algorithms as plain functions, with the paper's line numbers as comments,
the printed constants (``printed=True``) or corrected ones (``printed=False``), and the guarantee
that is proven for what was run, or none and the reason. :mod:`~tacit.papers.baselines` has two
systems that are compared with, reconstructed.

These are *simulations*. They take a world, not users; raw data passes through their loops, and
only the mechanism within is private. Agents that serve people are elsewhere, behind a curator.
"""

import importlib
from types import ModuleType

__all__ = [
    "chowdhury_lq_2021",
    "chowdhury_tabular_2021",
    "sahu_linear_2025",
    "wang_functional_2019",
    "zhou_mixture_2022",
]

ALGORITHMS = {
    "ucb-vi": ("chowdhury_tabular_2021:ucb_vi", "riverswim"),
    "ucb-po": ("chowdhury_tabular_2021:ucb_po", "riverswim"),
    "dp-lsvi-ucb++": ("sahu_linear_2025:dp_lsvi_ucb_plus_plus", "two_state"),
    "linopt-vi": ("zhou_mixture_2022:lin_opt_vi", "hard_mixture"),
    "linopt-po": ("zhou_mixture_2022:lin_opt_po", "hard_mixture"),
    "ofu-rl": ("chowdhury_lq_2021:private_ofu_rl", "dosing"),
    "functional-q": ("wang_functional_2019:functional_q", "line"),
}
"""Names of ``tacit paper``: the function, and a world that it runs in."""


def __getattr__(name: str) -> ModuleType:
    # Compiled loops load numba: a paper is loaded by those who ask for it.
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
