"""Algorithms: four functions over a state, which is a value. Public from end to end.

An algorithm is configuration: nothing about it changes after it is made. What it knows is a state,
a frozen dataclass of arrays, numbers and other such dataclasses, which an
:class:`~tacit.core.agent.Agent` keeps in its store. No argument could carry an episode, a user's
name or a curator to it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Statistic
from tacit.privacy.validation import checked_number, steady_repr, whole_number

if TYPE_CHECKING:
    from tacit.core.problem import Problem
    from tacit.core.public_file import ReleasedModel
    from tacit.privacy.curator import Release

Floats = NDArray[np.float64]
S = TypeVar("S")


@dataclass(frozen=True)
class BlockSizes:
    """Block sizes that an algorithm would choose, unless the caller says otherwise."""

    name: str = "auto"  # of the schedule
    first: int = 1  # users of the smallest block
    growth: float = 1.5  # and by how much at most the users served grow from block to block; or
    size: int | None = None  # users of every block; or
    blocks: tuple[int, ...] | None = None  # of each

    def __post_init__(self) -> None:
        whole_number("first", self.first)
        whole_number("size", 1 if self.size is None else self.size)
        checked_number("growth", self.growth, "at least 1", lambda growth: growth >= 1.0)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of an algorithm that has none."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands. Public."""

    releases: int = 0  # blocks that were learnt from
    served: int = 0  # users of these blocks
    inherited: int = 0  # users of the runs that it goes on from
    offset: int = 0  # releases of these runs

    @property
    def all_served(self) -> int:
        """Users who were served, by predecessors too."""
        return self.inherited + self.served


@dataclass(frozen=True)
class BlockInfo(Progress):
    """A block whose users are asked, and where the run stood before it. Public."""

    users: int = 0
    versions: Mapping[int, int] = field(default_factory=dict)  # users by the version they followed


@dataclass(frozen=True, eq=False)
class Query:
    """One query to the users of a block.

    Args:
        statistic: Summed over the users, and released with noise.
        mu: Cost to the users of this block; by default all that they have left.
        share: The same as a share of an episode's whole budget (of mu^2).
    """

    statistic: Statistic
    mu: float | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        if self.mu is not None and self.share is not None:
            raise InvalidArgument("give mu or share, not both")

    def price(self, privacy: Any) -> float | None:
        """Cost in mu; None for all that is left."""
        mu = self.mu if self.share is None else math.sqrt(self.share) * privacy.episode_mu
        # Without privacy nothing costs anything.
        return mu if mu is not None and math.isfinite(mu) else None


@dataclass(frozen=True, eq=False)
class Plan:
    """Policies of a version: the one that serves users, and the greedy one beside it."""

    policy: Any
    greedy: Any
    memory: Any = None  # what later queries, updates and plans need to know of this one


Queries: TypeAlias = Generator[Query, "Release", S]
"""Queries about a block, each sent its release; returns the state that has learnt from them."""


class Algorithm(ABC, Generic[S]):
    """Learns from releases.

    A subclass has a ``name``, which is that of its module, and ``Options``, a frozen dataclass. Its
    constructor first sets what the hooks below read, then calls this one.
    """

    name: ClassVar[str] = ""
    Options: ClassVar[type[Any]] = NoOptions
    offline: bool = False
    """Whether its users are served by a fixed behaviour policy."""
    ends_greedy: ClassVar[bool] = False
    """Whether the policy after the last block explores no more; a successor's first one does."""
    judges: ClassVar[bool] = False
    """Whether its own posterior compares its policies with the baseline before they serve."""
    distributed: ClassVar[bool] = False
    """Whether it may learn from secure sums: one statistic of each block, and blocks apart."""
    max_age: ClassVar[int] = 0
    """Versions that an episode may be behind the one that serves, if it is ``on_policy``: 0 where
    the users of a block must all have followed one plan."""

    def __init__(self, problem: Problem, options: Any) -> None:
        self.problem, self.options = problem, options
        self.spec, self.users, self.privacy = problem.spec, problem.users, problem.privacy
        self._check()
        self.schedule = problem.scheduled(self._block_sizes)
        self.counter = self._choose_counter()

    @classmethod
    def declared(cls, problem: Problem, options: Any) -> Problem:
        """The problem of a caller, in places of blocks where a person has several."""
        return problem

    # The algorithm.

    @abstractmethod
    def init(self) -> S:
        """State before any data."""

    def begin(self) -> Any:
        """State of a new run: :meth:`init`, and what is kept beside it."""
        return self.init()

    @abstractmethod
    def plan(self, state: S, last: Plan | None, at: Progress, rng: np.random.Generator) -> Plan:
        """Policies of a state.

        Args:
            state: After the newest block.
            last: Plan of the version before; ``None`` at the start.
            at: Blocks released and users served.
            rng: Of ties and of sampled policies; its state is part of the checkpoint.
        """

    def query(self, state: S, plan: Plan, block: BlockInfo) -> Statistic:
        """Statistic that a block is asked, given the plan that its users followed."""
        raise NotImplementedError

    def update(
        self, state: S, plan: Plan, release: Release, block: BlockInfo, rng: np.random.Generator
    ) -> S:
        """State that has learnt from one more block.

        Args:
            state: Before the block.
            plan: Followed by its users.
            release: The noisy answer to :meth:`query`.
            block: Its size and versions, and where the run stood.
            rng: As in :meth:`plan`.
        """
        raise NotImplementedError

    def learn(self, state: S, plan: Plan, block: BlockInfo, rng: np.random.Generator) -> Queries[S]:
        """Queries about a block; overridden where there are several. Args: see Algorithm.update."""
        release = yield Query(self.query(state, plan, block))
        return self.update(state, plan, release, block, rng)

    def numbered(self, plan: Any, version: int) -> Plan:
        """Plan of :meth:`plan`, with the number of its version on both policies."""
        if not isinstance(plan, Plan):
            raise InvalidArgument(f"{type(self).__name__}.plan must return a Plan, got {plan!r}")
        return Plan(plan.policy.as_version(version), plan.greedy.as_version(version), plan.memory)

    # Hooks of a family or an algorithm.

    @property
    def code(self) -> tuple[Any, ...]:
        """Objects in its states and plans that are code: checkpoints have their places here."""
        return ()

    @abstractmethod
    def _block_sizes(self) -> BlockSizes:
        """When policies are republished, where the caller leaves it to the algorithm."""

    def _check(self) -> None:
        """Refuses options that do not go together; nothing is made yet."""

    def _choose_counter(self) -> str:
        """``"blocks"`` for single releases, or the kind of counter that all blocks go through."""
        return "blocks"

    def successor_state(self, state: S) -> S:
        """State with which a successor begins; refused where others cannot start from it."""
        return state

    def data_format(self, at: Progress) -> str:
        """In which form simulated users of the next block come: one by one, unless sums will do."""
        return "episodes"

    def on_policy(self, plan: Plan) -> bool:
        """Whether only episodes of users who followed a published plan count."""
        return False

    def mixed(self, plans: Mapping[int, Plan], users: Mapping[int, int]) -> Plan:
        """One plan, of all components, for the plans (the oldest first) that so many followed."""
        raise InvalidArgument(f"{self.name} knows one policy of a block alone")

    def simulator(self, state: S, draws: int, rng: np.random.Generator) -> ReleasedModel:
        """So many draws from the posterior of how episodes go."""
        raise InvalidArgument(f"{self.name} has no model of how episodes go to simulate")

    def uniform(self) -> Any:
        """The policy that takes all actions alike."""
        raise InvalidArgument(f"{self.name} needs a baseline: it knows no uniform policy")

    def held(self, policy: Any, least: float, most: float) -> Any:
        """The policy with chances of actions within a range."""
        raise InvalidArgument(f"{self.name} holds no probabilities: agents of finite worlds do")

    def mixture(self, policies: Sequence[Any], chances: Floats) -> Any:
        """The policy whose users follow one of several, drawn for their whole episode."""
        from tacit.core.world import mixture

        return mixture(policies, chances)

    @property
    def unit(self) -> str:
        """Data of a person that are hidden together, in words; empty for what the model says."""
        return ""

    @property
    def assumption(self) -> str:
        """Facts taken for public before the first user came, in words; empty if none."""
        return ""

    @property
    def why(self) -> str:
        """Choices made for this world, budget and number of users, in words."""
        return f"{self.schedule.releases} releases ({self.schedule.name})"

    def monitored(self, statistic: Statistic, release: Release) -> dict[str, tuple[Any, Any]]:
        """Public numbers of a release for :func:`tacit.monitor`, with what the spec knows."""
        return statistic.monitored(release)

    def block_users(self, at: Progress) -> int:
        """How many users the next block has; 0 at the end."""
        last = self.schedule.releases - 1
        if at.releases > last and self.counter != "blocks":
            return 0
        # Blocks that a clock closes are smaller than planned: the last one is repeated.
        size = self.schedule.blocks[min(at.releases, last)]
        return max(0, min(size, min(self.users, self.schedule.users) - at.served))

    @property
    def fingerprint(self) -> str:
        """Text of all arguments, which must be the same for a run to be gone on with."""
        named = ("state_labels", "action_labels", "last_state")
        labels = {name: getattr(self.spec, name, None) for name in named}
        parts = (self.name, self.spec, labels, self.users, self.privacy, vars(self.options))
        arms = () if self.problem.arms is None else (self.problem.arms.text,)
        return steady_repr((*parts, self.counter, self.schedule, *arms))
