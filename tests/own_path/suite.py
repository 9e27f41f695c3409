"""All checks of the real path, one after the other."""

import tempfile
from pathlib import Path

from tacit.testing.recording import Trial
from tests.own_path.check_entropy import entropy_outcomes
from tests.own_path.check_noise import noise_outcomes, release_outcomes
from tests.own_path.check_store import accounts_outcomes, store_outcomes
from tests.own_path.runs import RealTrial, judged

CHECKS = {
    "real noise": noise_outcomes,
    "entropy": entropy_outcomes,
    "store": store_outcomes,
    "accounts": accounts_outcomes,
    "release": release_outcomes,
}


def real_outcomes(make_agent, world, *, quick=False, **options):
    """The checks of the real path one by one, whatever they find; options are those of a trial."""
    with tempfile.TemporaryDirectory() as folder:
        trial = None
        for name, check in CHECKS.items():
            try:
                if trial is None:
                    trial = RealTrial(Trial(make_agent, world, Path(folder), **options), quick)
                yield check(trial)
            except Exception as error:
                yield [judged(name, [f"{type(error).__name__}: {error}"])]
