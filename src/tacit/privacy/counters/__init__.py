"""Continual sums: a private running sum of vectors, published many times.

All counters have one interface (:class:`~tacit.privacy.counters.base.Counter`), and
:func:`~tacit.privacy.counters.choose.counter` picks the best one.
"""

from tacit.privacy.counters.base import Counter
from tacit.privacy.counters.choose import KINDS, counter, make_counter
from tacit.privacy.counters.dense import NormalisedSquareRoot, Optimal
from tacit.privacy.counters.tree import Blocks, SmoothTree

__all__ = [
    "KINDS",
    "Blocks",
    "Counter",
    "NormalisedSquareRoot",
    "Optimal",
    "SmoothTree",
    "counter",
    "make_counter",
]
