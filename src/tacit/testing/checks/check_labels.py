"""Actions have no order: ties are broken at random, and names do not matter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import stdtr

from tacit.core.permuted import PermutedWorld
from tacit.core.world import Form
from tacit.privacy.errors import require
from tacit.privacy.statistic import Block, Floats
from tacit.testing.made_up_users import raw_block
from tacit.testing.trial import SEED, Trial

# Six standard deviations: a false alarm in 1e9 tests.
_SIGMAS = 6.0
# Chance of a false alarm of the check on ties, per release looked at.
_ALARM = 1e-6


def check_ties(trial: Trial) -> None:
    """Where nothing speaks for an action, each is chosen as often as any other."""
    actions = trial.world.spec.actions
    shares: dict[int, list[Floats]] = {}
    for seed in range(trial.seeds):
        rng = np.random.default_rng(np.random.SeedSequence([SEED, trial.seed, 5, seed]))
        world = _Unpaid.draw(trial.world, rng)
        for r, (policy, _) in enumerate(trial.serve(seed, world, 1000 + seed, blocks=2)):
            shares.setdefault(r, []).append(_shares(trial, policy, rng))
    for r, seen in shares.items():
        chance = _chance_of_means(np.array(seen), 1.0 / actions)
        mean = np.mean(seen, axis=0).round(3).tolist()
        require(
            chance >= _ALARM,
            f"at release {r}, with all rewards equal and labels in random order, actions are "
            f"chosen in shares {mean}: ties are not broken at random (chance {chance:.1e})",
        )


def _shares(trial: Trial, policy: Any, rng: np.random.Generator) -> Floats:
    """How often each action is chosen, over all states, or over those that users come to."""
    if hasattr(policy, "table"):
        table: Floats = np.asarray(policy.table(), dtype=np.float64)
        return np.array(table.mean(axis=(0, 1)))
    states = np.asarray(trial.first.blocks[0]["states"])[:, 0]
    chosen = np.asarray(policy.act_many(0, states, rng), dtype=np.int64)
    return np.bincount(chosen, minlength=trial.world.spec.actions) / len(states)


def check_labels(trial: Trial) -> None:
    """With actions named the other way round as much is earned."""
    actions = trial.world.spec.actions
    orders = (tuple(range(actions)), tuple(reversed(range(actions))))
    means: list[Floats] = []
    for k, order in enumerate(orders):
        world = PermutedWorld(trial.world, order)
        earned = []
        for seed in range(max(2, trial.seeds // 2)):
            number = 2 * seed + k
            played = trial.serve(number, world, 2000 + number)
            earned.append(sum(world.value(p) * n for p, n in played) / trial.users)
        means.append(np.array(earned))
    gap = abs(float(means[0].mean() - means[1].mean()))
    error = math.sqrt(sum(float(m.var(ddof=1)) / m.size for m in means))
    # Few seeds have heavier tails than normal ones: two more standard deviations.
    require(
        gap <= (_SIGMAS + 2.0) * error + 1e-9,
        f"with actions named the other way round a user earns {means[1].mean():.4g} instead of "
        f"{means[0].mean():.4g} on average ({gap / max(error, 1e-300):.1f} standard deviations)",
    )


class _Unpaid(PermutedWorld):
    """A world in which every reward is 0."""

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Block:
        block = raw_block(super().simulate(policy, users, rng, form))
        nothing = np.zeros_like(block["rewards"])
        return Block(block.users, dict(block.arrays) | {"rewards": nothing})


def _chance_of_means(samples: Floats, expected: float) -> float:
    """The chance of means so far from what is expected, by Student's t, over all columns."""
    runs, columns = samples.shape
    gap = np.abs(samples.mean(axis=0) - expected)
    error = samples.std(axis=0, ddof=1) / math.sqrt(runs)
    off = gap > 1e-12
    if not off.any():
        return 1.0
    t = np.where(off, gap / np.maximum(error, 1e-300), 0.0)
    return float(min(1.0, 2.0 * columns * stdtr(runs - 1, -t.max())))
