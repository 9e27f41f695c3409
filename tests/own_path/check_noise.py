"""The noise of real releases and real reports: its law, its grid, and that nothing shares it."""

import dataclasses
import math

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.errors import CheckFailed
from tacit.privacy.local import report
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block, Floats
from tacit.testing.recording import RecordingCurator, require_same
from tacit.testing.release_noise import Flips
from tacit.testing.sample_users import block_of_strangers, some_rows
from tests.own_path import noise_statistics as tests
from tests.own_path import rules as own
from tests.own_path import runs as real
from tests.own_path.rules import answers_of, misfit, not_drawn

_NAME = "real noise"


def noise_outcomes(trial):
    """Real runs on the same users, again and again; or reports of devices."""
    return _reports(trial) if trial.privacy.local else _releases(trial)


def _releases(trial):
    wrong, runs = list[str](), list[Floats]()
    whole = {}
    for answers in (some for run in trial.played for some in run.by_agent()):
        runs.append(real.stacked(answers))
        for a in answers:
            wrong += a.wrong
            if a.record.stream is None:
                whole.setdefault(a.scale, []).append(a.noise.astype(np.int64))
    return _judged(trial, wrong, runs, whole)


def _judged(trial, wrong, runs, whole):
    """Law, grid and sharing of noise, run by run, and of whole numbers by their scale."""
    law = trial.law
    wrong = wrong + tests.law_wrong(np.concatenate(runs), law, 1e-4, "all of it")
    shared, bits = tests.shared_wrong(runs, law), list[str]()
    for scale, some in whole.items():
        bits += tests.bits_wrong(np.concatenate(some), scale, f"noise of {scale:.4g} steps")
        shared += tests.repeats_wrong(some, scale, law)
    found = {"law": wrong, "grid": bits, "sharing": shared}
    return [real.judged(f"{_NAME}: {name}", words) for name, words in found.items()]


def _reports(trial):
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
    runs, whole = [], []
    for user in users:
        with real.drawing() as draws:
            sent = report(statistic, user, privacy)
        truth = statistic.contributions(user)[0] / step
        noise, is_open = sent / step - np.rint(truth), np.abs(truth % 1.0 - 0.5) < 1e-6
        if len(draws) == 1:
            wrong += misfit("a report", draws[0], scale, privacy.needs_l1)
            wrong += not_drawn("a report", noise, draws[0], is_open)
        else:
            wrong.append(f"a report drew {len(draws)} times")
        runs.append(noise / scale)
        whole.append(np.rint(noise).astype(np.int64))
    return _judged(trial, wrong, runs, {scale: whole})


def report_scale(trial, statistic):
    """The grid of a report, and the scale of its noise in steps, by our own rules."""
    relation, norm, privacy = Relation.REPLACE_ONE, trial.privacy.norm, trial.privacy
    cost = own.episode_limit(privacy) ** (1.0 / trial.power)
    step = own.step_of(statistic, norm)
    return step, own.apart(statistic, relation, norm, step) / cost


def _sums(recorder, trial):
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


# A curator asked directly, with real noise: more users than one chunk, both relations, releases of
# 70,000 numbers, and a hundred releases, the late ones by themselves.

_CHUNKS, _MANY = 1100, 120


def release_outcomes(trial):
    """Sums, scales and accounts by our own rules; and what can be seen of real agents."""
    if trial.privacy.local:
        return []
    wrong = [w for relation in Relation for w in _chunks(trial, relation)]
    for size in (3, 600, 70_000):
        wrong += _sized(trial, size)
    return [real.judged("release", wrong), real.judged("real flow", _flow(trial))]


def _asked(privacy, blocks, ask):
    """What a fresh curator answers, and what our own rules say against it."""
    with RecordingCurator().open() as recorder, real.drawing() as draws:
        curator = privacy.curator()
        numbers = [curator.add(block) for block in blocks]
        ask(curator, numbers)
    answers = answers_of(recorder, draws)
    found = [w for a in answers for w in a.wrong]
    power, limit = 1 if privacy.pure else 2, own.episode_limit(privacy)
    for number in numbers:
        cost = sum(a.costs.get(number, 0.0) ** power for a in answers)
        paid = float(curator._spent[number])
        if paid < cost * (1.0 - 1e-9) or max(paid, cost) > limit * (1.0 + 1e-9):
            found.append(f"block {number} paid {paid:.9g} of {limit:.9g} for {cost:.9g}")
    return answers, found


def _alone(trial, **changes):
    """The model for users who come once."""
    return dataclasses.replace(trial.privacy, episodes_per_user=1, disjoint=False, **changes)


def _chunks(trial, relation):
    """Blocks of several chunks and of few users, asked for a part of their budget and the rest."""
    privacy, pool = _alone(trial, relation=relation), trial.pool
    statistic = trial.played[0].answers[0].record.statistic
    rows = [np.arange(n) % pool.users for n in (_CHUNKS, 40, 3)]

    def ask(curator, numbers):
        for block in numbers:
            if not privacy.pure:
                curator.release(statistic, block=block, mu=0.6 * privacy.budget.mu)
            curator.release(statistic, block=block)

    wrong = _asked(privacy, [some_rows(pool, r) for r in rows], ask)[1]
    return [f"{relation.value}: {w}" for w in wrong]


def _sized(trial, size):
    """Small releases, again and again, or large ones, twice; without a delta of new blocks."""
    privacy, law = _alone(trial), trial.law
    times = _MANY if size < 10 else 2
    block = Block(2, {"values": np.random.default_rng(2).uniform(-0.01, 0.01, (2, size))})
    mu = None if privacy.pure else math.sqrt(own.episode_limit(privacy) * 0.9 / times)

    def ask(curator, numbers):
        for number in numbers * (1 if privacy.pure else times):
            curator.release(ClippedSum(size), block=number, mu=mu)

    answers, wrong = _asked(privacy, [block] * (times if privacy.pure else 1), ask)
    runs = [real.stacked([a]) for a in answers]
    half = len(runs) // 2
    for name, some in (("early", runs[:half]), ("late", runs[half:])):
        wrong += tests.law_wrong(np.concatenate(some), law, 1e-3, f"{name} releases of {size}")
    if size > 10:
        wrong += tests.shared_wrong(runs, law)
    return wrong


def _flow(trial):
    """The same releases and other users: everything that can be seen is the same."""
    plain, first = trial.trial, trial.trial.first
    rng, seen = plain.rng(31), []
    strangers = [block_of_strangers(b, rng) for b in first.blocks]
    try:
        for users in (first.blocks, first.blocks, strangers):
            agent = trial.make()
            seen.append(plain.play(agent, users=users, script=first.script, show=True))
        _, one, two = seen
        plain.same("real runs with the same releases and other users", two, one)
        for shown in (*one.shown, *two.shown):  # whose hashes have a key and a clock of their own
            for name in ("the published file", "the ledger"):
                shown.pop(name, None)
        for a, b in zip(one.shown, two.shown, strict=True):
            require_same((a, b), "real runs with the same releases and other users:")
        if one.said != two.said:
            raise CheckFailed("what real runs say differs with their users")
    except CheckFailed as error:
        return [str(error)]
    return []
