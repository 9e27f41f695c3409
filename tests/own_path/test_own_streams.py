"""Real running sums: counters over blocks by rules of our own, healthy and with defects."""

from functools import partial

import numpy as np
import pytest

import tacit
from tacit.core.constructors import make_agent
from tacit.privacy.counters.base import Counter
from tacit.privacy.counters.dense import _Dense
from tacit.privacy.noise import Noise
from tacit.testing.recording import Trial
from tests.own_path.check_noise import noise_outcomes
from tests.own_path.check_store import accounts_outcomes, store_outcomes
from tests.own_path.runs import JOINT, RealTrial, failures, planted
from tests.own_path.suite import CHECKS, real_outcomes

WORLD = tacit.tabular.riverswim(states=3, horizon=3)
MAKE = partial(tacit.UCBVI, privacy=JOINT, schedule="fixed:size=20")


def test_a_check_that_breaks_is_a_failure():
    def broken(*arguments, **options):
        if options["noise_seed"] is None:
            raise RuntimeError("no real runs")
        return MAKE(*arguments, **options)

    found = [o for group in real_outcomes(broken, WORLD, users=60, quick=True) for o in group]
    assert len(found) == len(CHECKS)
    assert all("no real runs" in str(o.failure) for o in found)


def streamed(counter):
    """Agents all of whose blocks go through one counter."""

    class Streamed(tacit.UCBVI.algorithm):
        def _choose_counter(self):
            return counter

        def on_policy(self, plan):
            return False

        def cap(self, at):
            return None

        def update(self, state, plan, release, block, rng):
            """The sums so far take the place of those before."""
            return super().update(self.init(), plan, release, block, rng)

    return partial(make_agent, Streamed)


def trial_of_stream(folder, counter):
    make = partial(streamed(counter), privacy=JOINT, schedule="fixed:size=20")
    return RealTrial(Trial(make, WORLD, folder, users=60), quick=True, runs=16)


@pytest.mark.slow
@pytest.mark.parametrize("counter", ["normalised square root", "smooth tree"])
def test_healthy_streams_pass(counter, tmp_path):
    trial = trial_of_stream(tmp_path, counter)
    for check in (noise_outcomes, store_outcomes, accounts_outcomes):
        assert failures(check(trial)) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda f, self: f(self) * (self.released != 1),
        lambda f, self: f(self) // 2 * 2 + 0 * np.resize(f(self), self.size) - 2**20,
        lambda f, self: Noise().steps(False, 0.9 * self.scale * 2.0 ** self._places(), self.size),
    ],
    ids=["a release without noise", "moved", "smaller"],
)
def test_streams_with_other_noise_are_found(change, tmp_path):
    trial = trial_of_stream(tmp_path, "optimal")
    with planted(Counter, "_draw", change):
        assert "real noise: law" in failures(noise_outcomes(trial))


def test_a_counter_that_forgets_its_column_norm_is_found(tmp_path):
    with planted(_Dense, "column_norm", lambda f, self: 0.5):
        trial = trial_of_stream(tmp_path, "normalised square root")
        assert "real noise: law" in failures(noise_outcomes(trial))
