"""The noise of real releases and real reports: its law, its grid, and that nothing shares it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.local import report
from tacit.privacy.statistic import Floats, Statistic
from tacit.testing.check_agent import Outcome
from tacit.testing.recording import RecordingCurator
from tacit.testing.release_noise import Flips
from tests.own_path import own_rules as own
from tests.own_path import recorded as real
from tests.own_path import statistics as tests
from tests.own_path.answers import Ints, misfit, not_drawn
from tests.own_path.noise_tests import Measured, NoiseRecord

_NAME = "real noise"


def outcomes(trial: real.RealTrial) -> list[Outcome]:
    """Real runs on the same users, again and again; or reports of devices."""
    return _reports(trial) if trial.privacy.local else _releases(trial)


def _releases(trial: real.RealTrial) -> list[Outcome]:
    record, wrong, runs = NoiseRecord(), list[str](), list[Floats]()
    whole: dict[float, list[Ints]] = {}
    for answers in (some for run in trial.played for some in run.by_agent()):
        record.add([a.measured for a in answers])
        runs.append(real.stacked(answers))
        for a in answers:
            wrong += a.wrong
            if a.record.stream is None:
                whole.setdefault(a.scale, []).append(a.noise.astype(np.int64))
    wrong += record.sizes() + [w for w in record.shapes() if "repeat" not in w]
    return _judged(trial, wrong, record.shared(), runs, whole)


def _judged(
    trial: real.RealTrial,
    wrong: list[str],
    shared: list[str],
    runs: Sequence[Floats],
    whole: dict[float, list[Ints]],
) -> list[Outcome]:
    """Law, grid and sharing of noise, run by run, and of whole numbers by their scale."""
    law = trial.law
    wrong = wrong + tests.law_wrong(np.concatenate(runs), law, 1e-4, "all of it")
    shared = shared + tests.shared_wrong(runs, law)
    bits: list[str] = []
    for scale, some in whole.items():
        bits += tests.bits_wrong(np.concatenate(some), scale, f"noise of {scale:.4g} steps")
        shared += tests.repeats_wrong(some, scale, law)
    found = {"law": wrong, "grid": bits, "sharing": shared}
    return [real.judged(f"{_NAME}: {name}", words) for name, words in found.items()]


def _reports(trial: real.RealTrial) -> list[Outcome]:
    """Each report by itself, and their sum in the release."""
    privacy, agent, pool = trial.privacy, trial.make(), trial.pool
    with RecordingCurator().open() as recorder:
        real.serve(agent, pool)
    wrong, statistic = _sums(recorder, trial), recorder.records[0].statistic
    rows = [i % pool.users for i in range(160 if trial.quick else 800)]
    users = [pool.take(slice(i, i + 1)) for i in rows]
    if privacy.reports_bits:
        flips = Flips.of(statistic, privacy)
        for user in users:
            flips.add(report(statistic, user, privacy), statistic.contributions(user)[0])
        return [real.judged(_NAME, wrong + flips.wrong)]
    step, scale = report_scale(trial, statistic)
    record, runs, whole = NoiseRecord(), [], []
    for place, user in enumerate(users):
        with real.drawing() as draws:
            sent = report(statistic, user, privacy)
        truth = statistic.contributions(user)[0] / step
        noise, is_open = sent / step - np.rint(truth), np.abs(truth % 1.0 - 0.5) < 1e-6
        if len(draws) == 1:
            wrong += misfit("a report", draws[0], scale, privacy.needs_l1)
            wrong += not_drawn("a report", noise, draws[0], is_open)
        else:
            wrong.append(f"a report drew {len(draws)} times")
        z = noise / scale
        record.add([Measured(recorder.records[0], place, z, {}, trial.law, 1.0 / scale)])
        runs.append(z)
        whole.append(np.rint(noise).astype(np.int64))
    wrong += [w for w in record.sizes() if "release" not in w]
    return _judged(trial, wrong, [], runs, {scale: whole})


def report_scale(trial: real.RealTrial, statistic: Statistic) -> tuple[float, float]:
    """The grid of a report, and the scale of its noise in steps, by our own rules."""
    relation, norm, privacy = Relation.REPLACE_ONE, trial.privacy.norm, trial.privacy
    cost = own.episode_limit(privacy) ** (1.0 / trial.power)
    step = own.step_of(statistic, norm)
    return step, own.apart(statistic, relation, norm, step) / cost


def _sums(recorder: RecordingCurator, trial: real.RealTrial) -> list[str]:
    """A release is the sum of the reports that came, unbiased."""
    found = []
    for place, record in enumerate(p for p in recorder.records if p.stream is None):
        rows = recorder.blocks[record.curator, record.block]["reports"].astype(np.float64)
        total = rows.sum(axis=0)
        if trial.privacy.reports_bits:
            flip = Flips.of(record.statistic, trial.privacy).flip
            total = (total - len(rows) * flip) / (0.5 - flip)
        off = np.abs(record.statistic.layout.pack(record.release.parts) - total).max()
        if off > 1e-9 * max(1.0, float(np.abs(total).max())):
            found.append(f"release {place} is not the sum of the reports that came")
    return found
