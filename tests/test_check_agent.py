"""``check_agent``: every agent passes it, and agents with a slip do not.

Each mutant is an agent that someone could write in good faith. What it does wrong is in its
docstring; the check must find it, and say so under the right name.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from sqlalchemy.exc import DatabaseError

from research.planted.agents import (
    Admitting,
    Curated,
    Drawing,
    IdsDropped,
    Leaking,
    Tampered,
    half_the_noise,
    plant,
)
from tacit import UCBPO, UCBVI, ConcurrentPSRL, JointDP, LocalDP, NonPrivate
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.statistic import Block
from tacit.tabular import riverswim
from tacit.testing.check_agent import AgentReport, agent_outcomes, check_agent
from tacit.testing.sample_users import raw_block

WORLD = riverswim(3, 4)
JOINT = JointDP(1.0, 1e-6)
FEW = "fixed:size=60"

NAMES = {"protocol", "sensitivity", "budget", "noise", "data flow", "hostile users", "resume"}
NAMES |= {"store"}

AGENTS: dict[str, Callable[..., Any]] = {
    "ucbvi, stationary": partial(UCBVI, privacy=JOINT, schedule=FEW),
    "ucbvi, per step": partial(UCBVI, privacy=JOINT, schedule=FEW, stationary=False),
    "ucbvi, pure": partial(UCBVI, privacy=JointDP(1.0, 0.0), schedule=FEW),
    "running sums": partial(ConcurrentPSRL, privacy=JOINT, schedule=FEW, running=0),
    "ucbvi, local": partial(UCBVI, privacy=LocalDP(4.0, 1e-6), schedule=FEW),
    "ucbvi, local, pure": partial(UCBVI, privacy=LocalDP(4.0, 0.0), schedule=FEW),
    "ucbvi, no privacy": partial(UCBVI, privacy=NonPrivate(), schedule=FEW),
    "ucbpo": partial(UCBPO, privacy=JOINT, schedule=FEW),
}


def check(make: Callable[..., Any], **options: Any) -> AgentReport:
    return check_agent(make, WORLD, **{"users": 300} | options)


SLOW = {"ucbvi, per step", "ucbvi, pure", "ucbvi, local, pure", "ucbvi, no privacy", "ucbpo"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in AGENTS]
)
def test_agents_pass(name: str) -> None:
    report = check(AGENTS[name], users=180)
    assert set(report.passed) | set(report.skipped) == NAMES
    assert set(report.skipped) == ({"budget", "noise", "store"} if "no p" in name else set())
    assert report.releases == 3
    assert max(report.tightness) > 0.8
    assert str(report).count("passed  ") == len(report.passed)


def test_users_who_may_return_count_as_often_as_they_may() -> None:
    privacy = JointDP(1.0, 1e-6, episodes_per_user=2)
    report = check(partial(UCBVI, privacy=privacy, schedule=FEW), users=240)
    assert "budget" in report.passed


def test_the_check_asks_for_enough_releases() -> None:
    with pytest.raises(InvalidArgument, match="publishes 2 times"):
        check(AGENTS["ucbvi, stationary"], users=120)


# Noise and budget.


class HalvedScale(Drawing):
    """Asks for half of the scale."""

    def drawn(self, scale: float, size: int) -> np.ndarray:
        return super().drawn(0.5 * scale, size)


class HalfTheScale(Curated):
    """Its noise is half of what its budget demands, as it asks the sampler for no more."""

    curator = HalvedScale


class CountsTheLatest(Admitting):
    """Of users who come twice in a block the later episode counts."""

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        if user_ids is None:
            return block, None
        arrays = {name: array[::-1] for name, array in block.arrays.items()}
        return Block(block.users, arrays), [*user_ids][::-1]


# Data flow.


class RawBlocks(Leaking):
    """A block ends early if its users fared badly."""

    _well = True

    def block_users(self, at: Any) -> int:
        size = int(super().block_users(at))  # type: ignore[misc]
        return size if self._well else min(size, 59)

    def plan(self, *known: Any) -> Any:
        self._well = self._seen is None or bool((self._seen["states"] >= 0).all())
        return super().plan(*known)  # type: ignore[misc]


# Protocol and hostile users, of agents that nobody makes with Tacit any more.


class Learning(Tampered):
    """An agent with a ``learn`` of its own."""

    @classmethod
    def tamper(cls, agent: Any) -> None:
        agent.learn = partial(cls.learn, agent, agent.learn)

    @staticmethod
    def learn(agent: Any, true: Callable[..., None], data: Any, user_ids: Any = None) -> None:
        raise NotImplementedError


class RaisesOnValues(Learning):
    """Refuses a block in which somebody's reward is not finite."""

    @staticmethod
    def learn(agent: Any, true: Callable[..., Any], data: Any, user_ids: Any = None) -> Any:
        if not np.isfinite(raw_block(data)["rewards"]).all():
            raise InvalidArgument("rewards must be finite")
        return true(data, user_ids)


class SameVersion(Tampered):
    """All its policies have one version."""

    @classmethod
    def tamper(cls, agent: Any) -> None:
        look = agent._run.look

        def same(fresh: bool = False) -> Any:
            view = look(fresh)
            now = view.checkpoint
            plan = replace(now.plan, policy=now.plan.policy.as_version(0))
            return view._replace(checkpoint=replace(now, plan=plan))

        agent._run.look = same


class WarnsOnValues(Leaking):
    """Says aloud that somebody's state is out of range."""

    spec: Any

    def plan(self, *known: Any) -> Any:
        if self._seen is not None and (self._seen["states"] >= self.spec.states).any():
            warnings.warn("a state is out of range", stacklevel=2)
        return super().plan(*known)  # type: ignore[misc]


class WarnsOfLowRewards(Leaking):
    """Says aloud that users fare badly, whoever is there to hear it."""

    def plan(self, *known: Any) -> Any:
        if self._mean_reward < 0.1:
            warnings.warn("users fare badly", stacklevel=2)
        return super().plan(*known)  # type: ignore[misc]


# Save and resume.


class ForgetsTies:
    """Ties are broken by a generator of its own, of which no store knows."""

    def plan(self, state: Any, last: Any, at: Any, rng: Any) -> Any:
        own = self.__dict__.setdefault("_own", np.random.default_rng(0))
        return super().plan(state, last, at, own)  # type: ignore[misc]


class ForgetsWaiting(Tampered):
    """Users whose block is not full are left in memory."""

    @classmethod
    def tamper(cls, agent: Any) -> None:
        put = agent.intake.put

        def kept(coming: Any, seen: Any) -> Any:
            users = coming.rows.users
            if coming.names:
                return put(coming, seen)
            agent.intake.buffer.add(coming.rows, seen.block, [""] * users)
            return users

        agent.intake.put = kept


class KeepsEpisodes(Tampered):
    """Episodes stay where they were when they were released."""

    @classmethod
    def tamper(cls, agent: Any) -> None:
        put = agent.store.put_secrets

        def kept(db: Any, run: str, secrets: Any) -> None:
            with contextlib.suppress(DatabaseError):
                db.exec_driver_sql(
                    "CREATE TRIGGER kept BEFORE DELETE ON packets BEGIN SELECT RAISE(IGNORE); END"
                )
            put(db, run, secrets)

        agent.store.put_secrets = kept


MUTANTS: list[tuple[type[Any], dict[str, Any], str]] = [
    (half_the_noise, {"privacy": JointDP(1.0, 0.0)}, r"^noise: .*entries are not the sum"),
    (HalfTheScale, {}, r"^noise: release 0 of visit counts needs one draw of \d+ numbers"),
    (IdsDropped, {"privacy": LocalDP(4.0, 1e-6)}, r"^budget: .*receipts say that 0 do not"),
    (CountsTheLatest, {}, r"^budget: .*other episodes are counted than the first"),
    (KeepsEpisodes, {}, r"^budget: \d packets of episodes are left"),
    (RawBlocks, {}, r"^hostile users: .*(block_users differ|it raised HorizonExceeded)"),
    (SameVersion, {}, r"^protocol: versions of published policies must increase"),
    (RaisesOnValues, {}, r"^hostile users: .*rewards must be finite"),
    (WarnsOnValues, {}, r"^hostile users: .*a state is out of range"),
    (ForgetsTies, {}, r"^resume: "),
    (ForgetsWaiting, {}, r"^resume: right after opening, block_users"),
]


@pytest.mark.parametrize(("mutant", "options", "message"), MUTANTS)
def test_mutants_are_caught(mutant: type[Any], options: dict[str, Any], message: str) -> None:
    make = partial(plant(mutant, UCBVI.algorithm), **{"privacy": JOINT, "schedule": FEW} | options)
    name = message[1:].partition(":")[0]
    (outcome,) = agent_outcomes(make, WORLD, users=300, only=[name])
    assert re.search(message, str(outcome.failure)), outcome.reason


def test_warnings_that_depend_on_users_are_caught() -> None:
    """Also where whoever runs the check has switched warnings off."""
    make = partial(plant(WarnsOfLowRewards, UCBVI.algorithm), privacy=JOINT, schedule=FEW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CheckFailed, match=r"^data flow: .*what was logged or printed differs"):
            check(make)


class NeverLearns(Learning):
    """Breaks down at the first users."""

    @staticmethod
    def learn(agent: Any, true: Callable[..., None], data: Any, user_ids: Any = None) -> None:
        raise ZeroDivisionError("nobody came")


def test_a_crash_is_a_finding() -> None:
    make = partial(plant(NeverLearns, UCBVI.algorithm), privacy=JOINT, schedule=FEW)
    (outcome,) = agent_outcomes(make, WORLD, users=300)
    assert (outcome.name, outcome.verdict) == ("protocol", "failed")
    assert outcome.reason == "protocol: it raised ZeroDivisionError: nobody came"
    with pytest.raises(CheckFailed, match=r"^protocol: it raised ZeroDivisionError: nobody came$"):
        check(make)
