"""The protocol of agents: attributes, portions of users, and what is refused."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from tacit.core.world import Form
from tacit.privacy.errors import HorizonExceeded, InvalidArgument, require
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.statistic import Block
from tacit.simulation.run import run
from tacit.testing.made_up_users import joined, some_rows, with_ids
from tacit.testing.trial import Trial, publish
from tacit.testing.watched_gate import require_same, snapshot


def check_protocol(trial: Trial) -> None:
    """Attributes, types, order; the loop serves everybody."""
    agent = trial.make()
    kinds: dict[str, Any] = {
        "users": int,
        "block_users": int,
        "releases": int,
        "guarantee": Guarantee if trial.privacy.private else type(None),
    }
    for name, kind in kinds.items():
        value = getattr(agent, name)
        fits = isinstance(value, kind) and not isinstance(value, bool)
        require(fits, f"{name} is {value!r}, but must be of type {kind.__name__}")
    forms, spec = get_args(Form), trial.world.spec
    require(agent.form in forms, f"form is {agent.form!r}, but must be one of {forms}")
    require(
        agent.users == trial.users and agent.releases == 0 and agent.block_users >= 1,
        f"made for {trial.users} users, a fresh agent states users = {agent.users}, "
        f"releases = {agent.releases} and block_users = {agent.block_users}",
    )
    require(agent.spec == spec, f"spec is {agent.spec!r}, but the world's is {spec!r}")
    served = sum(block.users for block in trial.first.blocks)
    require(served == trial.users, f"{served} users were served, {trial.users} were declared")
    versions = [policy.version for policy in trial.first.policies]
    increase = all(a < b for a, b in pairwise(versions))
    require(increase, f"versions of published policies must increase, got {versions}")
    trial.same("the same seeds again", trial.play())
    agent = trial.make()
    served = int(run(agent, trial.world, trial.seed, progress=False).served[-1])
    everybody = served == trial.users and agent.block_users == 0
    require(everybody, f"tacit.run served {served} of {trial.users} users")
    publish(agent, trial.folder / "policy")
    require((trial.folder / "policy").stat().st_size > 0, "publish wrote an empty file")


def check_chunks(trial: Trial) -> None:
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
        require_same(after, snapshot(agent), where, f"differ at release {r + 1}")
    if len(trial.first.blocks) == 1:
        return
    # Some come late, after the next policy was published.
    block = trial.first.blocks[0]
    late = block.take(slice(0, max(1, trial.first.blocks[1].users // 2)))
    apart, together = trial.make(), trial.make()
    apart.learn(block)
    if getattr(apart, "masked", False):
        # They teach it nothing: they are not taken, and it says so.
        before = snapshot(apart)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            apart.learn(late)
        require(bool(said), f"{late.users} users of a retired version are lost without a word")
        require_same(before, snapshot(apart), "users of a retired version:")
        return
    apart.learn(late)
    together.learn(joined([block, late]))
    require_same(snapshot(apart), snapshot(together), "users of two blocks at once:")


def check_refusals(trial: Trial) -> None:
    """What cannot be taken is refused, and changes nothing."""
    agent, block = trial.make(), trial.first.blocks[0]
    half = max(1, block.users // 2)
    rest = block.take(slice(half, block.users))
    _refuse_all(trial, agent, block, trial.users)
    one = trial.world.simulate(agent.policy, 1, trial.rng(2), "episodes")
    ids = not isinstance(one, Block)
    if ids and half < block.users:
        agent.learn(with_ids(block.take(slice(0, half)), range(half)))
        trial.refuse(agent, rest, InvalidArgument, "users without ids after users with ids")
        _refuse_all(trial, agent, rest, trial.users - half)
        agent.learn(with_ids(rest, range(half, block.users)))
        later = enumerate(trial.first.blocks[1:], start=1)
        users = [with_ids(other, range(10**6 * r, 10**6 * r + other.users)) for r, other in later]
        rest_of_run = trial.play(agent, users=users)
    else:
        rest_of_run = trial.play(agent, users=trial.first.blocks)
    both = reversed(trial.first.snapshots), reversed(rest_of_run.snapshots)
    for mine, theirs in zip(*both, strict=False):
        require_same(mine, theirs, "after refusals")
    trial.refuse(agent, block.take(slice(0, 1)), HorizonExceeded)


def _refuse_all(trial: Trial, agent: Any, block: Block, most: int) -> None:
    """One user too many; each array a column short or left out, or with an axis too many."""
    first = trial.first.blocks[0]
    too_many = some_rows(first, np.arange(most + 1) % first.users)
    trial.refuse(agent, too_many, HorizonExceeded)
    for name, array in block.arrays.items():
        others = {k: a for k, a in block.arrays.items() if k != name}
        # A statistic may do without some of them.
        if array.ndim > 1:
            for wrong in ({name: array[:, :-1]}, {name: array[..., np.newaxis]}, {}):
                trial.refuse(agent, Block(block.users, others | wrong), InvalidArgument)
