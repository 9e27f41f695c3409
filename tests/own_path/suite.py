"""All checks of the real path, one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tacit.core.world import World
from tacit.testing.check_agent import Outcome
from tacit.testing.recording import Trial
from tests.own_path import (
    check_accounts,
    check_entropy,
    check_gate,
    check_noise,
    check_sampler,
    check_store,
    check_words,
)
from tests.own_path.recorded import RealTrial, judged

CHECKS = {
    "real noise": check_noise,
    "sampler": check_sampler,
    "entropy": check_entropy,
    "store": check_store,
    "accounts": check_accounts,
    "release": check_gate,
    "words": check_words,
}


def real_outcomes(
    make_agent: Callable[..., Any], world: World, *, quick: bool = False, **options: Any
) -> Iterator[list[Outcome]]:
    """The checks of the real path one by one, whatever they find; options are those of a trial."""
    with tempfile.TemporaryDirectory() as folder:
        trial: RealTrial | None = None
        for name, check in CHECKS.items():
            try:
                if trial is None:
                    trial = RealTrial(Trial(make_agent, world, Path(folder), **options), quick)
                yield check.outcomes(trial)
            except Exception as error:
                yield [judged(name, [f"{type(error).__name__}: {error}"])]
