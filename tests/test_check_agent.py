"""``check_agent``: every agent passes it, and agents with a slip do not.

Each mutant is an agent that someone could write in good faith. What it does wrong is in its
docstring; the check must find it, and say so under the right name.
"""

import contextlib
import re
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sqlalchemy.exc import DatabaseError

from research.planted.agents import half_the_noise, ids_dropped
from research.planted.ways import Leaking, admits, drawn, instead, patched, planted
from tacit import UCBPO, UCBVI, ConcurrentPSRL, JointDP, LocalDP, NonPrivate
from tacit.core.agent import Agent
from tacit.core.intake import EpisodeIntake
from tacit.core.stored_run import StoredRun
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.statistic import Block
from tacit.store.store import Store
from tacit.tabular import riverswim
from tacit.testing.check_agent import agent_outcomes, check_agent
from tacit.testing.sample_users import raw_block

WORLD = riverswim(3, 4)
JOINT = JointDP(1.0, 1e-6)
FEW = "fixed:size=60"

NAMES = {"protocol", "sensitivity", "budget", "noise", "data flow", "hostile users", "resume"}
NAMES |= {"store"}

AGENTS = {
    "ucbvi, stationary": partial(UCBVI, privacy=JOINT, schedule=FEW),
    "ucbvi, per step": partial(UCBVI, privacy=JOINT, schedule=FEW, stationary=False),
    "ucbvi, pure": partial(UCBVI, privacy=JointDP(1.0, 0.0), schedule=FEW),
    "running sums": partial(ConcurrentPSRL, privacy=JOINT, schedule=FEW, running=0),
    "ucbvi, local": partial(UCBVI, privacy=LocalDP(4.0, 1e-6), schedule=FEW),
    "ucbvi, local, pure": partial(UCBVI, privacy=LocalDP(4.0, 0.0), schedule=FEW),
    "ucbvi, no privacy": partial(UCBVI, privacy=NonPrivate(), schedule=FEW),
    "ucbpo": partial(UCBPO, privacy=JOINT, schedule=FEW),
}


def check(make, **options):
    return check_agent(make, WORLD, **{"users": 300} | options)


SLOW = {"ucbvi, per step", "ucbvi, pure", "ucbvi, local, pure", "ucbvi, no privacy", "ucbpo"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in AGENTS]
)
def test_agents_pass(name):
    report = check(AGENTS[name], users=180)
    assert set(report.passed) | set(report.skipped) == NAMES
    assert set(report.skipped) == ({"budget", "noise", "store"} if "no p" in name else set())
    assert report.releases == 3
    assert max(report.tightness) > 0.8
    assert str(report).count("passed  ") == len(report.passed)


def test_users_who_may_return_count_as_often_as_they_may():
    privacy = JointDP(1.0, 1e-6, episodes_per_user=2)
    report = check(partial(UCBVI, privacy=privacy, schedule=FEW), users=240)
    assert "budget" in report.passed


def test_the_check_asks_for_enough_releases():
    with pytest.raises(InvalidArgument, match="publishes 2 times"):
        check(AGENTS["ucbvi, stationary"], users=120)


@patched(drawn)
def half_the_scale(curator, draw, scale, size):
    """Its noise is half of what its budget demands, as it asks the sampler for no more."""
    return draw(0.5 * scale, size)


@patched(admits)
def counts_the_latest(block, user_ids):
    """Of users who come twice in a block the later episode counts."""
    if user_ids is None:
        return block, None
    arrays = {name: array[::-1] for name, array in block.arrays.items()}
    return Block(block.users, arrays), [*user_ids][::-1]


class RawBlocks(Leaking):
    """A block ends early if its users fared badly."""

    _well = True

    def block_users(self, at):
        size = int(super().block_users(at))
        return size if self._well else min(size, 59)

    def plan(self, *known):
        self._well = self._seen is None or bool((self._seen["states"] >= 0).all())
        return super().plan(*known)


# Protocol and hostile users, of agents that nobody makes with Tacit any more.


def learns(wrong):
    """An agent with a ``learn`` of its own."""
    return patched(instead(Agent, "learn"))(wrong)


@learns
def raises_on_values(right, agent, data, *ids):
    """Refuses a block in which somebody's reward is not finite."""
    if not np.isfinite(raw_block(data)["rewards"]).all():
        raise InvalidArgument("rewards must be finite")
    return right(agent, data, *ids)


@patched(instead(StoredRun, "look"))
def same_version(right, run, fresh=False):
    """All its policies have one version."""
    view = right(run, fresh)
    now = view.checkpoint
    plan = replace(now.plan, policy=now.plan.policy.as_version(0))
    return view._replace(checkpoint=replace(now, plan=plan))


class WarnsOnValues(Leaking):
    """Says aloud that somebody's state is out of range."""

    spec: Any

    def plan(self, *known):
        if self._seen is not None and (self._seen["states"] >= self.spec.states).any():
            warnings.warn("a state is out of range", stacklevel=2)
        return super().plan(*known)


class WarnsOfLowRewards(Leaking):
    """Says aloud that users fare badly, whoever is there to hear it."""

    def plan(self, *known):
        if self._mean_reward < 0.1:
            warnings.warn("users fare badly", stacklevel=2)
        return super().plan(*known)


class ForgetsTies:
    """Ties are broken by a generator of its own, of which no store knows."""

    def plan(self, state, last, at, rng):
        own = self.__dict__.setdefault("_own", np.random.default_rng(0))
        return super().plan(state, last, at, own)


@patched(instead(EpisodeIntake, "put"))
def forgets_waiting(right, intake, coming, seen):
    """Users whose block is not full are left in memory."""
    users = coming.rows.users
    if coming.names:
        return right(intake, coming, seen)
    intake.buffer.add(coming.rows, seen.block, [""] * users)
    return users


@patched(instead(Store, "put_secrets"))
def keeps_episodes(right, store, db, run, secrets):
    """Episodes stay where they were when they were released."""
    with contextlib.suppress(DatabaseError):
        db.exec_driver_sql(
            "CREATE TRIGGER kept BEFORE DELETE ON packets BEGIN SELECT RAISE(IGNORE); END"
        )
    right(store, db, run, secrets)


MUTANTS = [
    (half_the_noise, {"privacy": JointDP(1.0, 0.0)}, r"^noise: .*entries are not the sum"),
    (half_the_scale, {}, r"^noise: release 0 of visit counts needs one draw of \d+ numbers"),
    (ids_dropped, {"privacy": LocalDP(4.0, 1e-6)}, r"^budget: .*receipts say that 0 do not"),
    (counts_the_latest, {}, r"^budget: .*other episodes are counted than the first"),
    (keeps_episodes, {}, r"^budget: \d packets of episodes are left"),
    (RawBlocks, {}, r"^hostile users: .*(block_users differ|it raised HorizonExceeded)"),
    (same_version, {}, r"^protocol: versions of published policies must increase"),
    (raises_on_values, {}, r"^hostile users: .*rewards must be finite"),
    (WarnsOnValues, {}, r"^hostile users: .*a state is out of range"),
    (ForgetsTies, {}, r"^resume: "),
    (forgets_waiting, {}, r"^resume: right after opening, block_users"),
]


@pytest.mark.parametrize(("mutant", "options", "message"), MUTANTS)
def test_mutants_are_caught(mutant, options, message):
    name, given = message[1:].partition(":")[0], {"privacy": JOINT, "schedule": FEW} | options
    with planted(mutant, UCBVI.algorithm) as make:
        (outcome,) = agent_outcomes(partial(make, **given), WORLD, users=300, only=[name])
    assert re.search(message, str(outcome.failure)), outcome.reason


def test_warnings_that_depend_on_users_are_caught():
    """Also where whoever runs the check has switched warnings off."""
    with warnings.catch_warnings(), planted(WarnsOfLowRewards, UCBVI.algorithm) as make:
        warnings.simplefilter("ignore")
        with pytest.raises(CheckFailed, match=r"^data flow: .*what was logged or printed differs"):
            check(partial(make, privacy=JOINT, schedule=FEW))


@learns
def never_learns(right, agent, data, *ids):
    """Breaks down at the first users."""
    raise ZeroDivisionError("nobody came")


def test_a_crash_is_a_finding():
    with planted(never_learns, UCBVI.algorithm) as made:
        make = partial(made, privacy=JOINT, schedule=FEW)
        (outcome,) = agent_outcomes(make, WORLD, users=300)
        with pytest.raises(CheckFailed, match=r"^protocol: it raised ZeroDivisionError: nobody ca"):
            check(make)
    assert (outcome.name, outcome.verdict) == ("protocol", "failed")
    assert outcome.reason == "protocol: it raised ZeroDivisionError: nobody came"
