"""A conformance check that anyone can run on their own agents.

``check_agent`` is what every agent of Tacit passes. It plays short simulations and looks at them
from both sides of the gate: while they run, everything that enters a curator or a stream, and
everything that comes out, is written down, or is played back in place of what would come out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tacit.core.world import World
from tacit.privacy.budget import Budget
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.testing.checks import (
    check_budget,
    check_chunks,
    check_data_flow,
    check_hostile,
    check_noise,
    check_protocol,
    check_real,
    check_refusals,
    check_resume,
    check_sensitivity,
)
from tacit.testing.made_up_users import Sample
from tacit.testing.trial import Run, Trial


@dataclass(frozen=True)
class AgentReport:
    """What ``check_agent`` saw.

    Checks that were made, and those that were not and why; publications of the run that was looked
    at; the largest found over the declared sensitivity, by statistic attacked.
    """

    agent: str
    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    releases: int
    tightness: tuple[float, ...]

    def __str__(self) -> str:
        lines = [f"{self.agent}: {len(self.passed)} checks passed, {self.releases} releases"]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  skipped  {name}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    """What came of one check: why it was not made, or what it found, or neither."""

    name: str
    skipped: str | None
    failure: CheckFailed | None

    @property
    def verdict(self) -> str:
        """In a word."""
        return "skipped" if self.skipped else "passed" if self.failure is None else "failed"

    @property
    def reason(self) -> str | None:
        """Why it was skipped, or what it found."""
        return self.skipped or (None if self.failure is None else str(self.failure))


def check_agent(
    make_agent: Callable[..., Any],
    world: World,
    *,
    users: int = 1000,
    seed: int = 0,
    budget: Budget | None = None,
    sample: Sample | None = None,
) -> AgentReport:
    """Checks everything an agent promises.

    * protocol: attributes and their types; all declared users are served, releases and versions
      count up, and the agent runs on the form of data it asks for.
    * chunks: users may come in any portions; what is published is the same.
    * refusals: more users than declared, wrong shapes, ids for some only: a typed error, and
      nothing has changed.
    * sensitivity: statistics are attacked by :func:`tacit.check_statistic`; sums of very many users
      do not wrap.
    * budget: everybody enters the gate once, no block spends more than an episode may, the
      guarantee is the declared budget; of users who return no more episodes count than it is for.
    * noise: what is released is the sum of the users' vectors plus one fresh draw of Tacit's
      sampler, to the last step of the grid, of the claimed law and at the scale that sensitivity
      and cost demand; in simulations and in real runs, of which no two are alike.
    * data flow: with all releases forced to be the same, other users lead to the same policies,
      questions, attributes, texts, files, return values and messages, bit for bit; a user changes
      nobody's contribution but hers, and hers in one block.
    * hostile users: no values raise, warn or touch anybody else; counts that are masked by a policy
      count only those who followed this very one.
    * resume: a simulation saved in the middle of a block goes on identically in a fresh agent.
    * real resume: a real run goes on with fresh noise; once, and with every cost on record, where
      there is a ledger; from a file that is there in time, where there is an autosave.

    Random checks have fixed seeds, but for real noise, which has none; that a correct agent fails
    one by chance has a probability below 1e-9.

    Args:
        make_agent: makes an agent: ``make_agent(spec, users=, seed=, noise_seed=)``, with
            ``ledger=`` (and ``autosave=``, where it is offered) as well under joint DP; such as
            ``functools.partial(UCBVI, privacy=JointDP(1.0, 1e-6), schedule="fixed:size=100")``.
            Agents have ``load(path)`` (and ``ledger=``) beside what
            :class:`tacit.core.world.AnyAgent` asks.
        world: a small world. The check makes a few hundred short runs.
        users: how many users the agents are declared for; three releases are needed at least.
        seed: of the simulated users.
        budget: what the guarantee must state, where it is not the budget that was given.
        sample: makes hostile users for the attack on statistics; see
            :func:`tacit.check_statistic`. Made from the world's own users by default.

    Raises:
        CheckFailed: the message begins with the check's name.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(make_agent, world, Path(folder), users, seed, budget, sample)
        outcomes = []
        for outcome in _outcomes(trial):
            if outcome.failure is not None:
                raise outcome.failure
            outcomes.append(outcome)
        return AgentReport(
            str(getattr(trial.make(), "name", "agent")),
            tuple(o.name for o in outcomes if o.skipped is None),
            {o.name: o.skipped for o in outcomes if o.skipped is not None},
            len(trial.first.policies) - 1,
            tuple(trial.tightness),
        )


def agent_outcomes(
    make_agent: Callable[..., Any], world: World, **options: Any
) -> Iterator[Outcome]:
    """The checks of :func:`check_agent` one by one, whatever they find; for reports."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _outcomes(Trial(make_agent, world, Path(folder), **options))


def require_releases(agent: Any, releases: int) -> None:
    """Refuses agents that publish too seldom to be checked, but for those that ask all at once."""
    if releases < 3 and not getattr(agent, "batch", False):
        raise InvalidArgument(
            f"users is {agent.users}, for which this agent publishes {releases} times; the check "
            "needs 3: give more users, or another schedule"
        )


def _outcomes(trial: Trial) -> Iterator[Outcome]:
    """All checks, one after the other; a failed one does not end it."""
    noiseless = None if trial.privacy.private else "there is no noise"
    checks: list[tuple[str, Callable[[Trial], None], str | None]] = [
        ("protocol", check_protocol, None),
        ("chunks", check_chunks, None),
        ("refusals", check_refusals, None),
        ("sensitivity", check_sensitivity, None),
        ("budget", check_budget, None if trial.privacy.private else "there is no budget"),
        ("noise", check_noise, noiseless),
        ("data flow", check_data_flow, None),
        ("hostile users", check_hostile, None),
        ("resume", check_resume, None),
        ("real resume", check_real, noiseless),
    ]
    try:
        first: Run = _guarded("protocol", lambda: trial.first)
    except CheckFailed as error:
        # Without a run there is nothing to look at.
        yield Outcome("protocol", None, error)
        return
    require_releases(trial.make(), len(first.blocks))
    for name, check, reason in checks:
        failure = None
        if reason is None:
            try:
                _guarded(name, partial(check, trial))
            except CheckFailed as error:
                failure = error
        yield Outcome(name, reason, failure)


def _guarded(name: str, check: Callable[[], Any]) -> Any:
    """Whatever a check raises is a failure of this name."""
    try:
        return check()
    except CheckFailed as error:
        message = str(error)
        prefixed = message.startswith(f"{name}: ")
        raise CheckFailed(message if prefixed else f"{name}: {message}") from error
    except Exception as error:
        raise CheckFailed(f"{name}: it raised {type(error).__name__}: {error}") from error
