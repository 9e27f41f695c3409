"""The noise of real releases and real reports: its law, its grid, and that nothing shares it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tacit.audit.gate_noise import Measured
from tacit.audit.noise_tests import Flips, NoiseRecord
from tacit.audit.watched_gate import WatchedGate
from tacit.privacy.budget import Relation
from tacit.privacy.curators.local import report
from tacit.privacy.statistic import Floats, Statistic
from tests.own_path import own_rules as own
from tests.own_path import recorded as real
from tests.own_path import statistics as tests
from tests.own_path.answers import Ints, misfit, not_drawn

_NAME = "real noise"


def outcomes(trial: real.RealTrial) -> list[real.RealOutcome]:
    """Real runs on the same users, again and again; or reports of devices."""
    return _reports(trial) if trial.privacy.local else _releases(trial)


def _releases(trial: real.RealTrial) -> list[real.RealOutcome]:
    record, wrong, runs = NoiseRecord(), list[str](), list[Floats]()
    whole: dict[float, list[Ints]] = {}
    for answers in (some for run in trial.played for some in run.by_agent()):
        record.add([a.measured for a in answers])
        runs.append(real.stacked(answers))
        for a in answers:
            wrong += a.wrong
            if a.draw is not None and a.passage.stream is None:
                whole.setdefault(a.scale, []).append(a.noise[a.kept].astype(np.int64))
    wrong += record.sizes() + [w for w in record.shapes() if "repeat" not in w]
    return _judged(trial, wrong, record.shared(), runs, whole)


def _judged(
    trial: real.RealTrial,
    wrong: list[str],
    shared: list[str],
    runs: Sequence[Floats],
    whole: dict[float, list[Ints]],
) -> list[real.RealOutcome]:
    """Law, grid and sharing of noise, run by run, and of whole numbers by their scale."""
    values, law = np.concatenate(runs), trial.law
    n = values.size
    wrong = wrong + tests.law_wrong(values, law, 1e-4, "all of it")
    shared = shared + tests.shared_wrong(runs, law)
    seen = f"{n:,} values: a scale off by {tests.seen_scale(n, law):.1%}, tails cut at "
    seen += f"{tests.seen_cut(n, law):.1f}{'; by our own rules 1e-9' if trial.exact else ''}"
    made = [real.judged(f"{_NAME}: law", wrong, seen)]
    if whole:
        bits: list[str] = []
        for scale, some in whole.items():
            bits += tests.bits_wrong(np.concatenate(some), scale, f"noise of {scale:.4g} steps")
            shared += tests.repeats_wrong(some, scale, law)
        most = max(sum(some.size for some in rows) for rows in whole.values())
        words = f"one entry off the grid; a bit with {tests.seen_bit(most):.1%} ones"
        made.append(real.judged(f"{_NAME}: grid", bits, words))
    words = f"a correlation of {tests.seen_share(n):.1%} at any distance; 3 repeated pairs"
    return [*made, real.judged(f"{_NAME}: sharing", shared, words)]


def _reports(trial: real.RealTrial) -> list[real.RealOutcome]:
    """Each report by itself, and their sum in the release."""
    privacy, agent, pool = trial.privacy, trial.make(), trial.pool
    with WatchedGate().open() as gate:
        real.serve(agent, pool)
    wrong, statistic = _sums(gate, trial), gate.passages[0].statistic
    rows = [i % pool.users for i in range(160 if trial.quick else 800)]
    users = [pool.take(slice(i, i + 1)) for i in rows]
    if privacy.reports_bits:
        flips = Flips.of(statistic, privacy)
        for user in users:
            flips.add(report(statistic, user, privacy), statistic.contributions(user)[0])
        off = tests.seen_bit(min(flips.seen)) - 0.5
        return [real.judged(_NAME, wrong + flips.wrong(), f"chances of a bit off by {off:.1%}")]
    step, scale = report_scale(trial, statistic)
    record, runs, whole = NoiseRecord(), [], []
    for place, user in enumerate(users):
        with real.drawing() as draws:
            sent = report(statistic, user, privacy)
        truth = statistic.contributions(user)[0] / step
        noise = sent / step - (np.rint(truth) if trial.exact else truth)
        kept, is_open = np.ones(sent.size, dtype=bool), np.abs(truth % 1.0 - 0.5) < 1e-6
        if trial.exact and len(draws) == 1:
            wrong += misfit("a report", draws[0], scale, privacy.needs_l1)
            wrong += not_drawn("a report", noise, draws[0], kept, is_open)
        elif trial.exact:
            wrong.append(f"a report drew {len(draws)} times")
        z = noise / scale
        record.add([Measured(gate.passages[0], place, z, kept, {}, trial.law, 1.0 / scale)])
        runs.append(z)
        whole.append(np.rint(noise).astype(np.int64))
    wrong += [w for w in record.sizes() if "release" not in w]
    return _judged(trial, wrong, [], runs, {scale: whole} if trial.exact else {})


def report_scale(trial: real.RealTrial, statistic: Statistic) -> tuple[float, float]:
    """The grid of a report, and the scale of its noise in steps, by our own rules."""
    relation, norm, privacy = Relation.REPLACE_ONE, trial.privacy.norm, trial.privacy
    cost = own.episode_limit(privacy) ** (1.0 / trial.power)
    if not trial.exact:
        return 1.0, own.declared(statistic, relation, norm) / cost
    step = own.step_of(statistic, norm)
    return step, own.apart(statistic, relation, norm, step) / cost


def _sums(gate: WatchedGate, trial: real.RealTrial) -> list[str]:
    """A release is the sum of the reports that came, unbiased."""
    found = []
    for place, passage in enumerate(p for p in gate.passages if p.stream is None):
        total, users = np.zeros(passage.statistic.layout.size), 0.0
        for b, share in zip(passage.blocks, passage.shares, strict=True):
            rows = gate.blocks[passage.gate, b]["reports"].astype(np.float64)
            total, users = total + share * rows.sum(axis=0), users + share * len(rows)
        if trial.privacy.reports_bits:
            flip = Flips.of(passage.statistic, trial.privacy).flip
            total = (total - users * flip) / (0.5 - flip)
        off = np.abs(passage.statistic.layout.pack(passage.release.parts) - total).max()
        if off > 1e-9 * max(1.0, float(np.abs(total).max())):
            found.append(f"release {place} is not the sum of the reports that came")
    return found
