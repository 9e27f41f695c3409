"""Runs of an agent, seen from both sides of the gate; what all checks of an agent start from."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.core.agent import Agent
from tacit.core.world import Data, World
from tacit.privacy.curator import Release
from tacit.privacy.errors import CheckFailed, TacitError, require
from tacit.privacy.files import read_file
from tacit.privacy.statistic import Block, Statistic
from tacit.store import ledger
from tacit.testing.made_up_users import Sample, raw_block
from tacit.testing.watched_gate import (
    WatchedGate,
    digest_of,
    frozen_clock,
    on_show,
    overheard,
    require_same,
    snapshot,
)

SEED = 7
"""Of everything random in a check, beside the caller's own."""


@dataclass(frozen=True, eq=False)
class Run:
    """A whole run, from both sides.

    Attributes:
        blocks: the users' data, by release.
        policies: those that served them, and the last one.
        snapshots: what is public of the agent, before anything and after every release.
        said: what was logged or printed.
        agent: as it is after the last release.
        shown: what else whoever holds the agent can see, after every release; where it was asked.
    """

    blocks: list[Block]
    policies: list[Any]
    snapshots: list[dict[str, str]]
    gate: WatchedGate
    said: list[str]
    agent: Any
    shown: list[dict[str, str]] = field(default_factory=list)

    @property
    def script(self) -> list[Release]:
        """What was released."""
        return [passage.release for passage in self.gate.passages]


@dataclass(eq=False)
class Trial:
    """One trial of one kind of agent; see :func:`tacit.check_agent` for the arguments."""

    make_agent: Callable[..., Any]
    world: World
    folder: Path
    users: int = 1000
    seed: int = 0
    sample: Sample | None = None
    tightness: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        agent = self.make()
        if not isinstance(agent, Agent):
            raise CheckFailed(f"protocol: {agent!r} is not a tacit agent")
        self.privacy: Any = agent.privacy

    def make(self, seed: int = 0, real: bool = False, **options: Any) -> Any:
        """A fresh agent, of a simulation or with real noise."""
        noise_seed = None if real else SEED + seed
        return self.make_agent(
            self.world.spec, users=self.users, seed=seed, noise_seed=noise_seed, **options
        )

    def rng(self, stream: int) -> np.random.Generator:
        """Of simulated users; another number, other users."""
        return np.random.default_rng(np.random.SeedSequence([SEED, self.seed, stream]))

    @cached_property
    def first(self) -> Run:
        """A simulation of the world's own users, which others are compared with."""
        return self.play()

    @cached_property
    def again(self) -> Run:
        """The same users and the same releases; what is said once in a process was said before."""
        return self.play(users=self.first.blocks, script=self.first.script, show=True)

    @property
    def private_columns(self) -> frozenset[str] | None:
        """The arrays that are protected, where others are public."""
        statistic: Statistic = self.first.gate.passages[0].statistic
        return statistic.private_columns

    def play(
        self,
        agent: Any = None,
        users: Sequence[Data] | None = None,
        script: Sequence[Release] = (),
        stream: int = 0,
        *,
        show: bool = False,
        warn: Literal["always", "error"] = "always",
    ) -> Run:
        """A fresh agent, or this one, serves a stream of the world's users, or others, by blocks.

        What is released is the ``script``, if there is one; ``show`` looks at everything that can
        be seen of the agent, ``warn`` says what becomes of warnings.
        """
        rng, seen, shown = self.rng(stream), list[Block](), list[dict[str, str]]()
        with contextlib.ExitStack() as stack:
            gate = stack.enter_context(WatchedGate(script).open())
            said = stack.enter_context(overheard())
            stack.enter_context(warnings.catch_warnings())
            if show:  # files and ledgers say when something happened
                stack.enter_context(frozen_clock())
            agent = self.make() if agent is None else agent
            policies, snapshots = [agent.policy], [snapshot(agent)]
            warnings.simplefilter(warn)
            # It depends on when memory is collected.
            warnings.simplefilter("ignore", ResourceWarning)
            while agent.block_users > 0:
                releases = agent.releases
                if users is None:
                    served = self.world.simulate(agent.policy, agent.block_users, rng, "episodes")
                else:
                    served = users[len(seen)]
                returned = agent.learn(served)
                seen.append(raw_block(served))
                require(
                    agent.releases == releases + 1,
                    f"a whole block of {seen[-1].users} users must lead to one release, but "
                    f"releases went from {releases} to {agent.releases}",
                )
                policies.append(agent.policy)
                snapshots.append(snapshot(agent))
                if show:
                    shown.append(on_show(agent) | {"what learn returned": digest_of(returned)})
            if show and shown:
                shown[-1]["the published file"] = self._published(agent)
                with agent.store.read() as db:
                    shown[-1]["the ledger"] = digest_of([*ledger.read(db)])
        return Run(seen, policies, snapshots, gate, said, agent, shown)

    def _published(self, agent: Any) -> str:
        """All bytes of the public policy, or why there is none."""
        path = self.folder / "published"
        try:
            agent.publish(path, force=True)
            return digest_of(read_file(path, "result"))
        except (TacitError, OSError) as error:
            return repr(error)

    def same(self, what: str, other: Run, expected: Run | None = None) -> None:
        """Everything public at every release is that of the first run."""
        expected = self.first if expected is None else expected
        for r, (mine, theirs) in enumerate(zip(expected.snapshots, other.snapshots, strict=False)):
            require_same(mine, theirs, f"{what}:", f"differ at release {r}")
        releases = len(other.snapshots) - 1, len(expected.snapshots) - 1
        require(releases[0] == releases[1], f"{what}: {releases[0]} releases, not {releases[1]}")
