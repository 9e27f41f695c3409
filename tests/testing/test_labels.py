"""Actions have no order: agents break ties at random, and names of actions do not matter.

What an agent earns, or prefers, by the names of its actions is an artefact of an experiment.
"""

import math
from functools import partial

import numpy as np
import pytest
from scipy.special import stdtr

from research.planted_bugs import HOSTS
from tacit import UCBPO, UCBVI, JointDP, NonPrivate
from tacit.privacy.errors import require
from tacit.privacy.statistic import Block
from tacit.simulation.run import PermutedWorld
from tacit.tabular import riverswim
from tacit.testing.recording import SEED, Trial
from tacit.testing.sample_users import raw_block

# Eight standard deviations: a false alarm in 1e9 tests, also with the tails of few seeds.
_SIGMAS = 8.0
# Chance of a false alarm of the check on ties, per release looked at; seeds are fixed.
_ALARM = 1e-6

FEW = {"privacy": JointDP(1.0, 1e-6), "schedule": "fixed:size=60"}
AGENTS = {
    name: (host.make(), host.world)
    for name, host in HOSTS.items()
    if getattr(host.world(), "exchangeable_actions", True)
    and isinstance(getattr(host.world().spec, "actions", None), int)
}
AGENTS["ucbpo"] = partial(UCBPO, **FEW), partial(riverswim, 3, 4)
AGENTS["per step"] = partial(UCBVI, **FEW, stationary=False), partial(riverswim, 3, 4)
AGENTS["no privacy"] = partial(UCBVI, **FEW | {"privacy": NonPrivate()}), partial(riverswim, 3, 4)


SLOW = {"UCBVI, local", "UCBVI, randomised response", "per step", "no privacy", "ucbpo"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in AGENTS]
)
def test_names_of_actions_do_not_matter(name, tmp_path):
    make, world = AGENTS[name]
    trial = Trial(make, world(), tmp_path, users=160)
    check_ties(trial, 16)
    check_labels(trial, 16)


def check_ties(trial, seeds):
    """Where nothing speaks for an action, each is chosen as often as any other."""
    actions = trial.world.spec.actions
    shares = {}
    for seed in range(seeds):
        rng = np.random.default_rng(np.random.SeedSequence([SEED, trial.seed, 5, seed]))
        world = _Unpaid.draw(trial.world, rng)
        for r, (policy, _) in enumerate(serve(trial, seed, world, 1000 + seed, blocks=2)):
            shares.setdefault(r, []).append(_shares(trial, policy, rng))
    for r, seen in shares.items():
        chance = _chance_of_means(np.array(seen), 1.0 / actions)
        mean = np.mean(seen, axis=0).round(3).tolist()
        require(
            chance >= _ALARM,
            f"at release {r}, with all rewards equal and labels in random order, actions are "
            f"chosen in shares {mean}: ties are not broken at random (chance {chance:.1e})",
        )


def _shares(trial, policy, rng):
    """How often each action is chosen, over all states, or over those that users come to."""
    if hasattr(policy, "table"):
        table = np.asarray(policy.table(), dtype=np.float64)
        return np.array(table.mean(axis=(0, 1)))
    states = np.asarray(trial.first.blocks[0]["states"])[:, 0]
    chosen = np.asarray(policy.act_many(0, states, rng), dtype=np.int64)
    return np.bincount(chosen, minlength=trial.world.spec.actions) / len(states)


def check_labels(trial, seeds):
    """With actions named the other way round as much is earned."""
    actions = trial.world.spec.actions
    orders = (tuple(range(actions)), tuple(reversed(range(actions))))
    means = []
    for k, order in enumerate(orders):
        world = PermutedWorld(trial.world, order)
        earned = []
        for seed in range(max(2, seeds // 2)):
            number = 2 * seed + k
            played = serve(trial, number, world, 2000 + number)
            earned.append(sum(world.value(p) * n for p, n in played) / trial.users)
        means.append(np.array(earned))
    gap = abs(float(means[0].mean() - means[1].mean()))
    error = math.sqrt(sum(float(m.var(ddof=1)) / m.size for m in means))
    require(
        gap <= _SIGMAS * error + 1e-9,
        f"with actions named the other way round a user earns {means[1].mean():.4g} instead of "
        f"{means[0].mean():.4g} on average ({gap / max(error, 1e-300):.1f} standard deviations)",
    )


class _Unpaid(PermutedWorld):
    """A world in which every reward is 0."""

    def simulate(self, policy, users, rng, form):
        block = raw_block(super().simulate(policy, users, rng, form))
        nothing = np.zeros_like(block["rewards"])
        return Block(block.users, dict(block.arrays) | {"rewards": nothing})


def _chance_of_means(samples, expected):
    """The chance of means so far from what is expected, by Student's t, over all columns."""
    runs, columns = samples.shape
    gap = np.abs(samples.mean(axis=0) - expected)
    error = samples.std(axis=0, ddof=1) / math.sqrt(runs)
    off = gap > 1e-12
    if not off.any():
        return 1.0
    t = np.where(off, gap / np.maximum(error, 1e-300), 0.0)
    return float(min(1.0, 2.0 * columns * stdtr(runs - 1, -t.max())))


def serve(trial, seed, world, stream, blocks=None):
    """Policies and how many users each of them served; nobody watches."""
    agent, rng = trial.make(seed), trial.rng(stream)
    served = []
    while (size := agent.block_users) > 0 and (blocks is None or len(served) < blocks):
        policy = agent.policy
        agent.learn(world.simulate(policy, size, rng, "episodes"))
        served.append((policy, size))
    return [*served, (agent.policy, 0)]
