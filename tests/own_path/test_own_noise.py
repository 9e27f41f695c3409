"""The checks of real noise, sampler, entropy and gate: healthy, and with defects."""

import itertools
import random

import numpy as np
import pytest

from tacit.core.release_loop import ReleaseLoop
from tacit.privacy import curator as joint
from tacit.privacy import local
from tacit.privacy.curator import Curator
from tacit.privacy.deviates import Deviates
from tacit.privacy.noise import Noise
from tests.own_path import noise_statistics as tests
from tests.own_path.check_noise import noise_outcomes, release_outcomes
from tests.own_path.check_sampler import entropy_outcomes, sampler_outcomes
from tests.own_path.runs import MODELS, failures, planted, trial_of


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=[pytest.mark.slow] * (m == "three")) for m in MODELS]
)
def test_healthy_noise_passes(model, tmp_path):
    trial = trial_of(tmp_path, MODELS[model])
    for check in (noise_outcomes, entropy_outcomes, release_outcomes):
        assert failures(check(trial)) == {}


@pytest.mark.parametrize("model", ["joint", "pure"])
def test_a_healthy_sampler_passes(model, tmp_path):
    assert failures(sampler_outcomes(trial_of(tmp_path, MODELS[model]))) == {}


# Defects of what is asked for and released.


def scaled(by):
    return lambda f, self, pure, scale, count: f(self, pure, by * scale, count)


def in_curator(change):
    """Noise that a curator changes after its source drew it, and nobody wrote down what."""

    def release_block(f, self, statistic, block, **options):
        source = self.source

        class Changed(Noise):
            simulation = source.simulation

            def steps(self, pure, scale, count):
                return change(lambda _, by, size: source.steps(pure, by, size), self, scale, count)

        self.source = Changed()
        try:
            return f(self, statistic, block, **options)
        finally:
            self.source = source

    return Curator, "release_block", release_block


@pytest.mark.parametrize(
    "change",
    [
        lambda f, self, scale, size: np.concatenate([f(self, scale, size - 1), [0]]),
        lambda f, self, scale, size: f(self, scale, size) & ~1,
        lambda f, self, scale, size: np.resize(f(self, scale, 8), size),
        lambda f, self, scale, size: np.clip(f(self, scale, size), -2 * scale, 2 * scale),
        lambda f, self, scale, size: 0.999 * f(self, scale, size),
    ],
    ids=["last entry", "even numbers", "tiled", "clipped", "fractions"],
)
def test_noise_that_is_changed_on_its_way_is_found(change, tmp_path):
    with planted(*in_curator(change)):
        assert failures(noise_outcomes(trial_of(tmp_path, runs=8)))


def test_late_releases_without_noise_are_found(tmp_path):
    count = itertools.count()

    def late(f, self, scale, size):
        return f(self, scale, size) * (next(count) < 40)

    with planted(*in_curator(late)):
        assert "release" in failures(release_outcomes(trial_of(tmp_path, runs=2)))


def test_users_beyond_a_chunk_that_are_not_rounded_are_found(tmp_path):
    def one_chunk(f, statistic, block, step):
        return np.rint(statistic.total(block.take(slice(0, 1024))) / step).astype(np.int64)

    with planted(joint, "grid_total", one_chunk):
        assert "release" in failures(release_outcomes(trial_of(tmp_path, runs=2)))


def test_a_report_of_a_wrong_scale_is_found(tmp_path):
    with planted(local, "noise_scale", lambda f, *a: f(*a) * 0.98):
        made = noise_outcomes(trial_of(tmp_path, MODELS["local"]))
    assert "real noise: law" in failures(made)


@pytest.mark.parametrize(
    "change",
    [
        scaled(0.98),
        lambda f, self, pure, scale, count: f(self, pure, scale, count) // 4 * 4,
        lambda f, self, pure, scale, count: np.resize(
            f(self, pure, scale, min(count, 65_536)), count
        ),
        pytest.param(
            lambda f, self, pure, scale, count: np.abs(f(self, pure, scale, count)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda f, self, pure, scale, count: np.append(f(self, pure, scale, count)[:-1], 0),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["scale", "low bits", "repeats beyond 65,536", "sign", "last"],
)
def test_a_sampler_off_its_law_is_found(change, tmp_path):
    with planted(Noise, "steps", change):
        assert "sampler: law" in failures(sampler_outcomes(trial_of(tmp_path, runs=2)))


def test_tails_that_are_drawn_again_are_found_where_nobody_draws(tmp_path):
    """Beyond 6 scales lies one number in a thousand million."""

    def cut(f, self, cells, scale, first, second):
        drawn = f(self, cells, scale, first, second)
        far = drawn is not None and abs(drawn) > 6 * float(scale.fraction)
        return None if far else drawn

    with planted(Deviates, "_settled", cut):
        made = sampler_outcomes(trial_of(tmp_path, runs=2))
    assert set(failures(made)) == {"sampler: words"}


def test_other_sources_of_randomness_are_found(tmp_path):
    trial = trial_of(tmp_path)
    shared = random.Random(5)
    for source in (
        lambda f, self, n: random.randbytes(n),
        lambda f, self, n: shared.randbytes(n),
        lambda f, self, n: (f(self, 16) * n)[:n],
        lambda f, self, n: random.Random(f(self, 32)).randbytes(n),
    ):
        with planted(Noise, "_bytes", source):
            assert "entropy: bytes" in failures(entropy_outcomes(trial))


def test_a_pool_of_bytes_is_found(tmp_path):
    pool = bytearray()

    def pooled(f, self, n):
        while len(pool) < n:
            pool.extend(f(self, max(n, 4096)))
        taken = bytes(pool[:n])
        del pool[:n]
        return taken

    with planted(Noise, "_bytes", pooled):
        made = failures(entropy_outcomes(trial_of(tmp_path)))
    # What is kept is shared with a forked child as well.
    assert set(made) == {"entropy: bytes", "entropy: processes"}


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
