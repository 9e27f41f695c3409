"""Agents take users in any portions, and what they refuse changes nothing."""

import warnings
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from research.planted_bugs import BITS, HOSTS, USERS
from tacit import UCBVI, JointDP, NonPrivate
from tacit.privacy.errors import CheckFailed, HorizonExceeded, InvalidArgument, require
from tacit.privacy.statistic import Block
from tacit.tabular import riverswim
from tacit.testing.recording import Trial, require_same, snapshot
from tacit.testing.sample_users import joined, raw_block, some_rows, with_ids

FEW = {"privacy": JointDP(1.0, 1e-6), "schedule": "fixed:size=60"}
AGENTS = {name: (host.make(), host.world) for name, host in HOSTS.items() if name != BITS}
AGENTS["no privacy"] = partial(UCBVI, **FEW | {"privacy": NonPrivate()}), partial(riverswim, 3, 4)


@pytest.mark.parametrize("name", AGENTS)
def test_users_come_in_any_portions(name, tmp_path):
    make, world = AGENTS[name]
    check_chunks(Trial(make, world(), tmp_path, users=USERS))


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_refused_changes_nothing(name, tmp_path):
    make, world = AGENTS[name]
    check_refusals(Trial(make, world(), tmp_path, users=USERS))


def check_chunks(trial):
    """Users come in any portions."""
    rng = trial.rng(1)
    agent = trial.make()
    for r, block in enumerate(trial.first.blocks):
        pieces = min(block.users, 4)
        cuts = np.sort(rng.choice(np.arange(1, block.users), pieces - 1, replace=False))
        edges = [0, *(int(cut) for cut in cuts), block.users]
        for start, stop in pairwise(edges):
            require(
                agent.block_users == block.users - start,
                f"{start} of {block.users} users came, and block_users is {agent.block_users}",
            )
            # Whoever fills a buffer again changes nobody who waits for her block.
            part = block.take(slice(start, stop)).sealed()
            agent.learn(part)
            for array in part.arrays.values():
                array.setflags(write=True)
                array.fill(0)
        where = f"users in {pieces} portions instead of one:"
        after = trial.first.snapshots[r + 1]
        require_same((after, snapshot(agent)), where, f"differ at release {r + 1}")
    if len(trial.first.blocks) == 1:
        return
    # Some come late, after the next policy was published.
    block = trial.first.blocks[0]
    late = block.take(slice(0, max(1, trial.first.blocks[1].users // 2)))
    apart, together = trial.make(), trial.make()
    apart.learn(block)
    if apart.algorithm.on_policy(apart.plan):
        if apart.algorithm.max_age:
            return  # it knows them apart, and learns from them
        # They teach it nothing: they are not taken, and it says so.
        before = snapshot(apart)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            apart.learn(late)
        require(bool(said), f"{late.users} users of a retired version are lost without a word")
        require_same((before, snapshot(apart)), "users of a retired version:")
        return
    apart.learn(late)
    together.learn(joined([block, late]))
    require_same((snapshot(apart), snapshot(together)), "users of two blocks at once:")


def check_refusals(trial):
    """What cannot be taken is refused, and changes nothing."""
    agent, block = trial.make(), trial.first.blocks[0]
    half = max(1, block.users // 2)
    rest = block.take(slice(half, block.users))
    refuse_all(trial, agent, block, trial.users)
    one = trial.world.simulate(agent.policy, 1, trial.rng(2), "episodes")
    ids = not isinstance(one, Block)
    if ids and half < block.users:
        agent.learn(with_ids(block.take(slice(0, half)), range(half)))
        refuse_all(trial, agent, rest, trial.users - half)
        agent.learn(with_ids(rest, range(half, block.users)))
        later = enumerate(trial.first.blocks[1:], start=1)
        users = [with_ids(other, range(10**6 * r, 10**6 * r + other.users)) for r, other in later]
        rest_of_run = trial.play(agent, users=users)
    else:
        rest_of_run = trial.play(agent, users=trial.first.blocks)
    both = reversed(trial.first.snapshots), reversed(rest_of_run.snapshots)
    for mine, theirs in zip(*both, strict=False):
        require_same((mine, theirs), "after refusals")
    refuse(agent, block.take(slice(0, 1)), HorizonExceeded)


def refuse_all(trial, agent, block, most):
    """One user too many; each array a column short or left out, or with an axis too many."""
    first = trial.first.blocks[0]
    too_many = some_rows(first, np.arange(most + 1) % first.users)
    refuse(agent, too_many, HorizonExceeded)
    for name, array in block.arrays.items():
        others = {k: a for k, a in block.arrays.items() if k != name}
        # A statistic may do without some of them.
        if array.ndim > 1:
            for wrong in ({name: array[:, :-1]}, {name: array[..., np.newaxis]}, {}):
                refuse(agent, Block(block.users, others | wrong), InvalidArgument)


def refuse(agent, data, error, what=""):
    """The agent refuses the data with this error, and nothing has changed."""
    before = snapshot(agent)
    shapes = {name: array.shape for name, array in raw_block(data).arrays.items()}
    what = what or f"{raw_block(data).users} users with arrays {shapes}"
    try:
        agent.learn(data)
    except error:
        pass
    except Exception as other:
        raise CheckFailed(f"{what}: {other!r}, not {error.__name__}") from other
    else:
        raise CheckFailed(f"{what}: must raise {error.__name__}, but was accepted")
    require_same((before, snapshot(agent)), f"{what}: refused, and yet", "changed")
