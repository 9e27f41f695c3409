"""Whom the users trust: the privacy model that a caller chooses, as a value.

Each model knows its budget, answers what an agent needs to know of it (:class:`PrivacyModel`), and
builds its curator. Epsilon and delta have no defaults: forgetting one must not silently cost a
factor of ten.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tacit.privacy.budget import Budget, Relation, checked_relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.validation import flag, one_of, whole_number

if TYPE_CHECKING:
    from tacit.privacy.curator import JointCurator, NonPrivateCurator
    from tacit.privacy.distributed import DistributedCurator
    from tacit.privacy.local import LocalCurator

SLACK = 1e-3
"""The part of delta that is set aside for what distributed noise differs from a Gaussian."""

LocalMechanism = Literal["gaussian", "laplace", "randomised response"]


class PrivacyModel(ABC):
    """Interface of all privacy models.

    ``private``, ``joint`` and ``local`` are typed by their values in the models: after
    ``if privacy.private:`` a type checker knows that there is an epsilon.

    Attributes:
        private: whether there is a guarantee at all.
        joint: whether a trusted curator sees raw data and adds the noise.
        local: whether each user's device adds all of its noise, once, to what it reports.
        devices_add: whether devices add the noise, all of it or shares: no agent sees raw data.
    """

    private: ClassVar[bool]
    joint: ClassVar[bool]
    local: ClassVar[bool]
    devices_add: ClassVar[bool] = False

    @property
    def pure(self) -> bool:
        """Whether it is private with delta = 0."""
        return False

    @property
    def needs_l1(self) -> bool:
        """Whether its noise is by the 1-norm: pure joint DP, all local DP but the Gaussian."""
        return False

    @property
    def separate_blocks(self) -> bool:
        """Whether users who return are promised to be in one block of every release."""
        return False

    @cached_property
    def norm(self) -> Literal["l1", "l2"]:
        """In which norm its noise hides a user: the sensitivity to ask a statistic for."""
        return "l1" if self.needs_l1 else "l2"

    @property
    def reports_bits(self) -> bool:
        """Whether devices report bits (randomised response) and not noisy numbers."""
        return False

    @property
    def asks_again(self) -> bool:
        """Whether one user may be asked more than once: a device reports once, a curator can."""
        return not self.devices_add

    @property
    @abstractmethod
    def episode_mu(self) -> float:
        """Budget of one episode in mu, if noise is Gaussian; infinite without privacy."""


class _Budgeted(PrivacyModel):
    """A model with a budget for each user."""

    private: ClassVar[Literal[True]] = True

    epsilon: float
    delta: float
    episodes_per_user: int

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)
        g = whole_number("episodes_per_user", self.episodes_per_user, most=10**9)
        object.__setattr__(self, "episodes_per_user", g)

    @cached_property
    def budget(self) -> Budget:
        """The budget of one user."""
        return Budget(self.epsilon, self.delta)

    @cached_property
    def pure(self) -> bool:
        """Whether delta is 0."""
        return self.budget.pure

    def _check_gaussian(self) -> None:
        if self.needs_l1:
            raise InvalidArgument("functional noise is Gaussian: it needs delta > 0")


@dataclass(frozen=True)
class JointDP(_Budgeted):
    """Joint differential privacy: a trusted curator sees raw data and publishes with noise.

    Everything published, and so everything that all *other* users ever see, is differentially
    private in each user's data. ``delta = 0`` asks for pure DP, by Laplace noise, where the
    statistic has a sensitivity in the 1-norm.

    Attributes:
        epsilon, delta: budget of one user.
        relation: replace-one, or zero-out.
        episodes_per_user: the guarantee is for users with at most this many episodes (g). In
            general the noise grows g-fold: episodes in one release may add up.
        disjoint: no user is in one block twice, and a release is over one block. Then the g
            episodes of a user are in different releases and the noise grows sqrt(g)-fold only
            (g-fold under pure DP). The curator enforces it, and so needs user ids.

    >>> JointDP(epsilon=1.0, delta=1e-6).budget
    Budget(epsilon=1.0, delta=1e-06)
    """

    joint: ClassVar[Literal[True]] = True
    local: ClassVar[Literal[False]] = False

    epsilon: float
    delta: float
    relation: Relation = Relation.REPLACE_ONE
    episodes_per_user: int = 1
    disjoint: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # A name in place of the member would compare unequal to both, and halve the noise.
        object.__setattr__(self, "relation", checked_relation(self.relation))
        object.__setattr__(self, "disjoint", flag("disjoint", self.disjoint))

    @property
    def needs_l1(self) -> bool:
        """Whether the noise is Laplace: of pure DP."""
        return self.pure

    @property
    def separate_blocks(self) -> bool:
        """Whether ``disjoint`` was declared, and there is more than one episode to keep apart."""
        return self.disjoint and self.episodes_per_user > 1

    @property
    def episode_limit(self) -> float:
        """Budget of one episode: mu^2 under Gaussian noise, epsilon under pure DP.

        A user with g episodes moves a release by at most the sum of her episodes' moves. By
        Cauchy-Schwarz her total mu^2 is at most g times the sum of theirs, so at most g^2 times
        the largest; with every release over one block, in which she is once, it is the plain
        sum, at most g times the largest. Epsilons add up either way.
        """
        g = float(self.episodes_per_user)
        if self.pure:
            return self.epsilon / g
        return self.budget.mu**2 / (g if self.disjoint else g * g)

    @property
    def episode_mu(self) -> float:
        """Budget of one episode in mu, over all releases: sqrt(:attr:`episode_limit`)."""
        self._check_gaussian()
        return math.sqrt(self.episode_limit)

    def curator(self, **options: Any) -> JointCurator:
        """A curator for this model; see :class:`tacit.privacy.curator.JointCurator`."""
        from tacit.privacy.curator import JointCurator

        return JointCurator(self, **options)


@dataclass(frozen=True)
class LocalDP(_Budgeted):
    """Local differential privacy: each user's device adds the noise; raw data stays there.

    Local DP is replace-one by definition. A user sends one report per episode.

    Attributes:
        epsilon, delta: budget of one user.
        mechanism: ``"gaussian"`` (needs delta > 0, and then the default), ``"laplace"`` (pure;
            the default at delta = 0), or ``"randomised response"`` for one-hot statistics (pure).
        episodes_per_user: the guarantee is for users with at most this many reports (g). Reports
            have independent noise, so it grows sqrt(g)-fold (g-fold for the pure mechanisms).
    """

    joint: ClassVar[Literal[False]] = False
    local: ClassVar[Literal[True]] = True
    devices_add: ClassVar[bool] = True
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    # Reports have noise of their own, so there is nothing to declare.
    disjoint: ClassVar[bool] = False

    epsilon: float
    delta: float
    mechanism: LocalMechanism | None = None
    episodes_per_user: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mechanism is None:
            object.__setattr__(self, "mechanism", "laplace" if self.delta == 0 else "gaussian")
        one_of("mechanism", self.mechanism, ("gaussian", "laplace", "randomised response"))
        if self.mechanism == "gaussian" and self.delta == 0:
            raise InvalidArgument("Gaussian noise has no pure guarantee: use laplace, or delta > 0")

    @property
    def needs_l1(self) -> bool:
        """Whether the mechanism is another than the Gaussian."""
        return self.mechanism != "gaussian"

    @property
    def reports_bits(self) -> bool:
        """Whether the mechanism is randomised response."""
        return self.mechanism == "randomised response"

    @property
    def report_cost(self) -> float:
        """Cost of one report: mu under Gaussian noise, epsilon for the pure mechanisms."""
        g = self.episodes_per_user
        if self.mechanism == "gaussian":
            return math.sqrt(self.budget.mu**2 / g)
        return self.epsilon / g

    @property
    def episode_mu(self) -> float:
        """Budget of one episode in mu: the user's, shared by her g reports."""
        self._check_gaussian()
        return self.budget.mu / math.sqrt(self.episodes_per_user)

    def curator(self, **options: Any) -> LocalCurator:
        """A curator for this model; see :class:`tacit.privacy.local.LocalCurator`."""
        from tacit.privacy.local import LocalCurator

        return LocalCurator(self, **options)


@dataclass(frozen=True)
class DistributedDP(_Budgeted):
    """Distributed differential privacy: devices add shares of the noise, a secure sum adds up.

    Raw data stays on devices, and the noise is that of joint DP; see
    :mod:`tacit.privacy.distributed` for the proof. What is assumed is that the secure sum
    shows its sum and nothing else, and that enough devices are honest. It is replace-one.

    Attributes:
        epsilon, delta: budget of one user; delta > 0.
        honest: which part of the devices of every sum is honest at least: adds its noise, keeps
            it secret, and stays until the sum is opened. Their noise alone is enough, so there is
            1 / sqrt(honest) times more of it than joint DP has.
        bits: sums are modulo 2^bits, at most 62; what the secure sum offers.
        episodes_per_user: in how many sums a device takes part at most (g). Sums have noise of
            their own, so it grows sqrt(g)-fold.
    """

    joint: ClassVar[Literal[False]] = False
    local: ClassVar[Literal[False]] = False
    devices_add: ClassVar[bool] = True
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    disjoint: ClassVar[bool] = False

    epsilon: float
    delta: float
    honest: float = 0.95
    bits: int = 32
    episodes_per_user: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pure:
            raise InvalidArgument(
                "shares of noise are Gaussian and have no pure guarantee: delta > 0"
            )
        if not (isinstance(self.honest, (int, float)) and 0.0 < self.honest <= 1.0):
            raise InvalidArgument(f"honest must be above 0 and at most 1, got {self.honest!r}")
        object.__setattr__(self, "bits", whole_number("bits", self.bits, 8, 62))

    @property
    def report_cost(self) -> float:
        """Cost of one sum in mu, but for the part of delta that is set aside."""
        budget = Budget(self.epsilon, (1.0 - SLACK) * self.delta)
        return budget.mu / math.sqrt(self.episodes_per_user)

    @property
    def episode_limit(self) -> float:
        """The squared mu that all devices' noise would have: what a sum's noise is like."""
        return self.honest * self.report_cost**2

    @property
    def episode_mu(self) -> float:
        """The mu that all devices' noise would have."""
        return math.sqrt(self.episode_limit)

    def curator(self, **options: Any) -> DistributedCurator:
        """A curator of opened sums."""
        from tacit.privacy.distributed import DistributedCurator

        return DistributedCurator(self, **options)


@dataclass(frozen=True)
class NonPrivate(PrivacyModel):
    """No noise and no guarantee: the baseline that every private agent is measured against."""

    private: ClassVar[Literal[False]] = False
    joint: ClassVar[Literal[False]] = False
    local: ClassVar[Literal[False]] = False
    # The sensitivity a statistic is asked for; nothing is hidden, drawn, paid for or declared.
    relation: ClassVar[Relation] = Relation.REPLACE_ONE
    episodes_per_user: ClassVar[int] = 1
    disjoint: ClassVar[bool] = False

    @property
    def episode_mu(self) -> float:
        """Infinite."""
        return math.inf

    def curator(self, **options: Any) -> NonPrivateCurator:
        """A curator that adds nothing."""
        from tacit.privacy.curator import NonPrivateCurator

        return NonPrivateCurator(self, **options)


Privacy = JointDP | LocalDP | DistributedDP | NonPrivate


def check_alike(old: Privacy, new: Privacy) -> None:
    """Refuses a model whose budget does not compare with another's, episode by episode."""
    kind = type(new) is type(old) and new.needs_l1 == old.needs_l1
    if kind and isinstance(new, (JointDP, LocalDP)) and isinstance(old, (JointDP, LocalDP)):
        kind = replace(new, epsilon=old.epsilon, delta=old.delta) == old
    if not kind:
        raise InvalidArgument(
            f"privacy must be {old!r} with another epsilon or delta at most, got {new!r}: what "
            "users of both are promised would not be known"
        )
