"""Algorithms: what is asked of people, and what is made of the answers. Public from end to end.

An algorithm lives behind the gate. No episode, no user's name and no curator is ever passed to it:
an :class:`~tacit.core.agent.Agent` has those, and it is final.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tacit.core.asks import Arrays, Asks, State
from tacit.privacy.arguments import steady_repr
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import WHOLE_EPISODE

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.privacy.curators.gate import Release
    from tacit.privacy.statistic import Statistic

Floats = NDArray[np.float64]


class PublicPolicy(Protocol):
    """What is posted on the billboard."""

    @property
    def version(self) -> int:
        """Which policy of its agent it is."""
        ...

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public file."""
        ...


Plan = TypeVar("Plan", bound=PublicPolicy)


@dataclass(frozen=True)
class Pace:
    """When an algorithm would republish its policy, unless the caller says otherwise."""

    name: str = "auto"  # of the schedule
    first: int = 1  # users of the smallest block
    growth: float = 1.5  # and by how much at most the users served grow from block to block; or
    size: int | None = None  # users of every block


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of an algorithm that has none."""


class Algorithm(ABC, Generic[Plan]):
    """What learns from releases.

    A subclass has a ``name``, which is that of its module, and ``Options``, a frozen dataclass. Its
    constructor first sets what the hooks below read, then calls this one.

    Attributes:
        policy: what serves users now.
        greedy_policy: the best policy for what is known now, without exploring.
        served: how many users were served; a block counts when it was asked.
        releases: how many blocks were learnt from.
        asked: users of the block that is being asked, which may be more than was scheduled; else 0.
        pinned: the policy that goes on serving whatever is learnt, if one does.
        first_version: that of the first policy: 0, or what comes after a predecessor's last one.
        before: how many users its predecessors served, of whom it knows what they knew.
        rng: of ties and of first policies; not of the noise.
    """

    name: ClassVar[str] = ""
    Options: ClassVar[type[Any]] = NoOptions
    batch: bool = False
    """Whether those it learns from are served by a fixed behaviour, and gain nothing."""
    ends_greedy: ClassVar[bool] = False
    """Whether the policy after the last block explores no more; a successor's first one does."""
    distributed: ClassVar[bool] = False
    """Whether it may learn from secure sums: one statistic of each block, and blocks apart."""
    refuses: ClassVar[Mapping[str, str]] = {}
    """Options of its kin, or of serving, that mean nothing to it, each with the reason."""

    def __init__(self, setting: Setting, options: Any) -> None:
        self.setting, self.options = setting, options
        self.spec, self.users, self.privacy = setting.spec, setting.users, setting.privacy
        self._check()
        self.served = 0
        self.releases = 0
        self.asked = self.first_version = self.before = 0
        self.pinned: Plan | None = None
        self.rng = np.random.default_rng(np.random.SeedSequence([setting.seed, 4]))
        self.policy, self.greedy_policy = map(self.named, self._first_policies())
        self.counter = self._choose_counter()
        self.schedule = setting.scheduled(self._pace)

    # The algorithm.

    @abstractmethod
    def asks(self) -> Asks:
        """The questions about the current block, one after the other.

        Each ``release = yield Ask(statistic)`` is one. Nothing of what is known may change before
        the first of them. After the last answer what is known has taken them all in.
        """

    @abstractmethod
    def plan(self) -> tuple[Plan, Plan]:
        """The next policy, and the greedy one beside it; their version is ``releases``."""

    @abstractmethod
    def state(self) -> State:
        """What is known, for a save: JSON values and arrays."""

    @abstractmethod
    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """Puts back what :meth:`state` returned; it is among what the save holds."""

    # What a family defines.

    @abstractmethod
    def _first_policies(self) -> tuple[Plan, Plan]:
        """What serves the first users, before anything is known, and the greedy policy then."""

    @abstractmethod
    def policy_arrays(self, policy: Plan) -> Arrays:
        """A policy for a save, all but its version."""

    @abstractmethod
    def policy_of(self, arrays: Arrays, version: int) -> Plan:
        """The inverse of :meth:`policy_arrays`, to the bit."""

    @abstractmethod
    def _pace(self) -> Pace:
        """When policies are republished, where the caller leaves it to the algorithm."""

    # What an algorithm may define.

    def reinstate(self, policy: Plan) -> None:
        """Gets ready for the users of an older policy; refused where it cannot."""
        raise InvalidArgument(
            f"{self.name} asks what it planned for its last policy: it does not roll back"
        )

    def begin_anew(self, other: Algorithm[Plan]) -> None:
        """What was restored is another one's: a start, behind which an own counter begins.

        Refused where what is known is no start for anybody else.
        """

    def named(self, policy: Plan) -> Plan:
        """The policy with its number, and the names of states and actions where there are any."""
        if not self.first_version:
            return policy
        return cast(Plan, replace(cast(Any, policy), version=self.newest))

    def _check(self) -> None:
        """Refuses options that do not go together; nothing is made yet."""

    def _choose_counter(self) -> str:
        """``"blocks"`` for single releases, or the kind of counter that all blocks go through."""
        return "blocks"

    @property
    def form(self) -> str:
        """In which form simulated users come: one by one, unless sums will do."""
        return "episodes"

    @property
    def masked(self) -> bool:
        """Whether only those count who followed the block's own policy, whose version they name."""
        return False

    @property
    def protects(self) -> str:
        """What its statistics protect, in words."""
        return WHOLE_EPISODE

    @property
    def premise(self) -> str:
        """What was taken for public before the first user came, in words, if anything was."""
        return ""

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return f"{self.schedule.releases} releases ({self.schedule.name})"

    def identity(self) -> dict[str, Any]:
        """What must be the same for a save to be resumed, as JSON values."""
        named = ("state_labels", "action_labels")
        labels = {name: getattr(self.spec, name, None) for name in named}
        return {
            "class": type(self).__name__,
            "spec": steady_repr(self.spec),
            **{name: list(texts) for name, texts in labels.items() if texts is not None},
            **({} if getattr(self.spec, "last_state", True) else {"last_state": False}),
            "users": self.users,
            "privacy": steady_repr(self.privacy),
            **{name: steady_repr(value) for name, value in vars(self.options).items()},
            "counter": self.counter,
            "schedule": steady_repr(self.schedule),
        }

    def monitored(self, statistic: Statistic, release: Release) -> dict[str, tuple[Any, Any]]:
        """What a release tells of its users as a whole; what the spec knows may come to it."""
        return statistic.monitored(release)

    # After the last user.

    def inherit(self, other: Algorithm[Plan]) -> None:
        """Starts from all that another one of its kind was told, under the policy that it serves.

        Releases are public, with how noisy they are, so this costs nobody anything. Nobody's data
        was asked for under the last policy yet, so its users are this one's.
        """
        meta, arrays = other.state()
        self.restore(copy.deepcopy(meta), {name: np.array(array) for name, array in arrays.items()})
        self.begin_anew(other)
        self.first_version, self.before = other.newest, other.all_served
        if other.policy.version == other.newest:
            self.policy, self.greedy_policy = other.policy, other.greedy_policy
        if self.ends_greedy or other.policy.version != other.newest:
            self.first_version += 1
            self.policy, self.greedy_policy = map(self.named, self.plan())

    # What the agent tells.

    @property
    def all_served(self) -> int:
        """How many users were served, by predecessors too."""
        return self.before + self.served

    @property
    def newest(self) -> int:
        """The last version that was planned."""
        return self.first_version + self.releases

    @property
    def block_users(self) -> int:
        """How many users the current policy serves in all; 0 at the end."""
        if self.asked:
            return self.asked
        if self.releases >= self.schedule.releases:
            return 0
        return min(self.schedule.blocks[self.releases], self.users - self.served)

    def advance(self, users: int) -> None:
        """A block was asked everything: it counts, and the next policy is planned."""
        self.served += users
        self.releases += 1
        self.asked = 0
        self.policy, self.greedy_policy = map(self.named, self.plan())
        if self.pinned is not None:
            self.policy = self.pinned
