"""A world in which no time passes, and the generators of the process begin anew.

Noise that protects comes from the operating system. What else a program may take for random is the
same here in every run: the clocks of :mod:`time` and the generators that a process shares, those
of NumPy, of :mod:`random` and of PyTorch, where it is loaded. What is read otherwise, such as
``datetime.now()`` or a function of :mod:`time` that was imported by its name, is not.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np

from tacit.testing.recording import frozen_clock


@contextlib.contextmanager
def frozen_world() -> Iterator[None]:
    """Clocks stand still, and shared generators have a known seed; afterwards all is as before."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    torch = sys.modules.get("torch")
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        if torch is not None:
            torch.manual_seed(0)
        with frozen_clock():
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        if torch is not None:
            torch.set_rng_state(torch_state)
