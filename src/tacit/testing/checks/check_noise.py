"""The noise of releases, simulated and real, and the counters that it goes through."""

from __future__ import annotations

import math

import numpy as np

from tacit.privacy.curators.gate import Stream
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.curators.local import report
from tacit.privacy.errors import require
from tacit.privacy.exact import grid_sensitivity, grid_step
from tacit.testing.checks.check_frozen import frozen_world
from tacit.testing.gate_noise import measured
from tacit.testing.mechanisms import audit_counter
from tacit.testing.noise_tests import Flips, NoiseRecord
from tacit.testing.trial import Trial
from tacit.testing.watched_gate import Passage

# Numbers of noise that are looked at, and runs that they come from.
_NOISE_VALUES = 2000
_NOISE_RUNS = 20
_FEWEST_NOISE_RUNS = 6
_REAL_RUNS = 4
_REPORTS = 300
# The exact audit of a counter runs its code once per release, on matrices.
_AUDITED_RELEASES = 130


def check_noise(trial: Trial) -> None:
    """It is what sensitivity and cost demand, in simulations and in real runs."""
    gate = trial.first.gate
    audited: set[Stream] = set()
    for passage in gate.passages:
        if isinstance(passage.stream, JointStream) and passage.stream not in audited:
            audited.add(passage.stream)
            _audit_stream(passage.stream, passage)
        elif trial.privacy.joint:
            _check_drawn(passage)
    record = NoiseRecord()
    while record.runs < _NOISE_RUNS and (
        record.runs < _FEWEST_NOISE_RUNS or record.values < _NOISE_VALUES
    ):
        n = record.runs
        found = measured(gate if n == 0 else trial.play(trial.make(n), stream=n).gate)
        if found is None:
            break
        record.add(found)
    wrong = record.wrong() + _wrong_bits(trial)
    require(not wrong, "; ".join(wrong[:3]))
    if trial.privacy.joint:
        _check_real_noise(trial)


def _check_drawn(passage: Passage) -> None:
    """One draw per release, at the scale that sensitivity and cost demand, to the last digit."""
    statistic, privacy = passage.statistic, passage.gate.privacy  # type: ignore[attr-defined]
    step = grid_step(statistic, privacy.norm)
    apart = grid_sensitivity(statistic, privacy.relation, privacy.norm, step)
    needed = apart / float(passage.release.cost or math.nan)
    right = [
        pure == privacy.pure and count == statistic.layout.size and scale >= needed * (1.0 - 1e-9)
        for pure, scale, count in passage.drawn
    ]
    require(
        right == [True],
        f"a release of {statistic.name} needs one draw of {statistic.layout.size} numbers at a "
        f"scale of {needed:.6g} steps; drawn was (pure, scale, how many) {passage.drawn}",
    )


def _wrong_bits(trial: Trial) -> list[str]:
    """What is wrong with reports of randomised response, which have no noise that is added."""
    privacy = trial.privacy
    if not privacy.reports_bits:
        return []
    passage = trial.first.gate.passages[0]
    users = trial.first.gate.blocks[passage.gate, passage.blocks[0]]
    flips = Flips.of(passage.statistic, privacy)
    for i in range(_REPORTS):
        user = users.take(slice(i % users.users, i % users.users + 1))
        bits = report(passage.statistic, user, privacy, noise_seed=i)
        flips.add(bits, passage.statistic.contributions(user)[0])
    return flips.wrong()


def _check_real_noise(trial: Trial) -> None:
    """Real noise is as large as the simulated, and nobody can compute it.

    All runs have the same public seed, clock and shared generators.
    """
    record, released = NoiseRecord(), []
    for _ in range(_REAL_RUNS):
        with frozen_world():
            gate = trial.play(trial.make(real=True)).gate
        released.append(gate.passages[0].release)
        record.add(measured(gate) or [])
    parts = released[0].parts
    same = [name for name in parts if np.array_equal(parts[name], released[1][name])]
    require(
        not same,
        f"two real runs with the same public seed, clock and shared generators release the "
        f"same {', '.join(same)}: their noise can be computed",
    )
    wrong = record.wrong()
    require(not wrong, f"in real runs, {'; '.join(wrong[:3])}")


def _audit_stream(stream: JointStream, passage: Passage) -> None:
    counter, privacy = stream.counter, stream._curator.privacy
    needed = stream.statistic.sensitivity(privacy.relation, privacy.norm)
    covered = stream.step * counter.sensitivity
    require(
        covered >= needed * (1.0 - 1e-12),
        f"the counter's sensitivity is {covered:.6g}, the statistic's is {needed:.6g}",
    )
    if counter.releases is None or counter.releases > _AUDITED_RELEASES:
        return
    audit, cost = audit_counter(counter), passage.release.cost
    paid = cost is not None and audit.cost <= cost * (1.0 + 1e-9)
    require(paid, f"the stream charges {cost}, but {audit}")
