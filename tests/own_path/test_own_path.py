"""The checks of the real path: healthy runs pass, and defects are found."""

import random
from functools import partial

import numpy as np
import pytest

import tacit
from tacit.core.constructors import make_agent
from tacit.core.release_loop import ReleaseLoop
from tacit.privacy import local
from tacit.privacy.noise import Noise
from tacit.testing.recording import Trial
from tests.own_path import noise_statistics as tests
from tests.own_path.check_entropy import entropy_outcomes
from tests.own_path.check_noise import noise_outcomes, release_outcomes
from tests.own_path.check_store import accounts_outcomes, store_outcomes
from tests.own_path.runs import JOINT, MODELS, RealTrial, failures, planted, trial_of
from tests.own_path.suite import CHECKS, real_outcomes


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.slow] * (m == "three")) for m in MODELS]
)
def test_healthy_noise_passes(model, tmp_path):
    trial = trial_of(tmp_path, MODELS[model])
    for check in (noise_outcomes, entropy_outcomes, release_outcomes):
        assert failures(check(trial)) == {}


# Defects; research/planted/real_path.py has others, which python -m research.real_path_table tries.


def test_a_report_of_a_wrong_scale_is_found(tmp_path):
    with planted(local, "noise_scale", lambda f, *a: f(*a) * 0.98):
        made = noise_outcomes(trial_of(tmp_path, MODELS["local"]))
    assert "real noise: law" in failures(made)


def test_a_fallback_for_a_broken_operating_system_is_found(tmp_path):
    def fallback(f, self, n):
        try:
            return f(self, n)
        except OSError:
            return random.randbytes(n)

    with planted(Noise, "_bytes", fallback):
        assert "entropy: bytes" in failures(entropy_outcomes(trial_of(tmp_path)))


def test_a_leak_of_real_runs_only_is_found(tmp_path):
    """What is public of a simulation does not depend on users; of a real run it does."""

    def raw(f, self, *which):
        block = f(self, *which)
        if not self.run.curator.source.simulation:
            algorithm = self.run.algorithm
            algorithm.mean_reward = float(np.mean(block["rewards"]))
        return block

    with planted(ReleaseLoop, "read_block", raw):
        assert "real flow" in failures(release_outcomes(trial_of(tmp_path, runs=2)))


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_false_alarms_are_as_rare_as_stated(law, monkeypatch):
    """At a level of 0.02, of 400 samples each, for the distance and for the tails together.

    Means are 8 and 64 at most: more than 36 and more than 130 have chances below 1e-11.
    """
    monkeypatch.setattr(tests, "ALARM", 0.02)
    rng = np.random.default_rng(5)
    far = beyond = 0
    for _ in range(400):
        values = rng.standard_normal(700) if law == "normal" else rng.laplace(size=700)
        far += bool(tests.distance_wrong(values, law, 0.0))
        beyond += bool(tests.tails_wrong(values, law, 0.0))
    assert 0 < far <= 36
    assert 0 < beyond <= 130


@pytest.mark.parametrize(
    "model",
    ["local", *(pytest.param(m, marks=pytest.mark.slow) for m in ("joint", "pure", "three"))],
)
def test_healthy_stores_pass(model, tmp_path):
    trial = trial_of(tmp_path, MODELS[model], runs=4)
    for check in (store_outcomes, accounts_outcomes):
        assert failures(check(trial)) == {}


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
