"""What all mixture algorithms share: their options, and how the sums of all blocks add up.

Plumbing: an algorithm's own file says what it estimates, how it is optimistic and how it plans.
There are two ways to ask, of which ``statistic="auto"`` chooses one:

* ``"model"``: a regression on next states themselves, which serves every value function,
* ``"counts"``: counts along the block's own policy (sparse worlds).

All ask every user once, with the whole budget; sums over blocks are post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, State, below
from tacit.core.options import OptimismOptions
from tacit.core.ways import way
from tacit.finite.algorithm import WayAlgorithm
from tacit.mixture.estimate import MixtureModel, PublicFeatures, Rows
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import positive_part
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.sizing import users_above_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.mixture.spec import MixtureSpec
    from tacit.privacy.curator import Release
    from tacit.privacy.statistic import Statistic

# A policy's transitions count as sparse below this many next states that inform on weights.
_SPARSE = 3.0

WAYS = {
    "model": "tacit.mixture.regression_ways:ModelWay",
    "counts": "tacit.mixture.count_way:CountWay",
}

Sums = tuple[dict[str, Floats], dict[str, Floats], float]
"""Sums of a block by name, the standard deviations of their noise, and that of weight 1."""


class Way(Protocol):
    """One way to ask; made of an algorithm, whose public knowledge it reads."""

    @property
    def form(self) -> Literal["episodes", "counts", "occupancy"]:
        """In which form simulated users may come."""

    def statistic(self, one_by_one: bool) -> Statistic:
        """What is asked of a block, whose users are summed one by one or all at once."""

    def sums(self, release: Release, statistic: Any) -> Sums:
        """What an answer adds to what is known."""

    def model(self) -> MixtureModel:
        """The model that all answers make."""


@dataclass(frozen=True)
class MixtureConstants:
    """Practical constants, chosen on other seeds of the worlds than are reported."""

    bonus: float = 0.3  # scale of widths
    counts_bonus: float = 1.0  # the same for ``"counts"``, whose errors are mostly sampling
    ridge: float = 1.0  # ridge in standard deviations of the Gram's noise, times sqrt(k)
    # the number of users served grows by at most this factor from block to block
    growth: float = 1.3
    first: float = 4.0  # users of the first block, in standard deviations of a sum's noise
    counts_first: float = 8.0  # the same for ``"counts"``
    clip: float = 1.0  # the longest vector of a user, in typical lengths
    known: float = 1.0  # a cell is known once its count exceeds this many standard deviations


@dataclass(frozen=True, kw_only=True)
class MixtureOptions(OptimismOptions):
    """Options of mixture algorithms.

    Attributes:
        statistic: what is asked of users: ``"model"``, ``"counts"`` or ``"auto"``, which says
            in ``why`` what it chose.
        stationary: one vector of weights for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
        constants: the practical constants.
    """

    statistic: Literal["auto", "model", "counts"] = "auto"
    stationary: bool | None = None
    growth: float | None = None
    constants: MixtureConstants = MixtureConstants()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.statistic not in ("auto", *WAYS):
            raise InvalidArgument(
                f"statistic must be auto, model or counts, got {self.statistic!r}"
            )
        self._settle(MixtureConstants, self.growth)


class MixtureAlgorithm(WayAlgorithm):
    """An algorithm on private sums of a linear mixture."""

    spec: MixtureSpec
    options: MixtureOptions
    Options = MixtureOptions

    def __init__(self, setting: Setting, options: MixtureOptions) -> None:
        spec: MixtureSpec = setting.spec
        if not hasattr(spec, "transition_features"):
            raise InvalidArgument(
                "this agent needs features of transitions: spec must be a MixtureSpec, as of "
                "mixture_of_models or hard_mixture, or of "
                "tacit.mixture.mixture_from_tabular(world) for a small finite world; got "
                f"{type(spec).__name__}"
            )
        given = options.stationary
        self.stationary = spec.stationary_transitions if given is None else given
        self.public = PublicFeatures.of(spec)  # along directions in which weights are unknown
        self.statistic_kind, self._reason = choose_kind(options, setting.privacy, self.public)
        per_step = self.statistic_kind != "model" or not self.stationary
        self.pooled = not per_step and spec.stationary_rewards
        self.way: Way = way(WAYS[self.statistic_kind])(self)
        self.q_values: Floats | None = None  # optimistic, (H, S, A), of the last plan
        self._sums = BlockSums()
        self._asked: Statistic | None = None
        super().__init__(setting, options)

    # What is public.

    @property
    def form(self) -> Literal["episodes", "counts", "occupancy"]:
        """Episodes where users are summed one by one, else sums."""
        return self.way.form

    # What is asked.

    def statistic(self) -> Statistic:
        """What is asked of the current block."""
        if self._asked is None:
            one_by_one = self.privacy.private and self._few(self._smallest_block)
            self._asked = self.way.statistic(one_by_one)
        return self._asked

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        constants = self.options.constants
        first = constants.counts_first if self.masked else constants.first
        return users_above_noise(self.way.statistic(one_by_one=True), self.privacy, first)

    # What is known.

    def take_in(self, release: Release, statistic: Statistic) -> None:
        """Adds the sums of a block."""
        self._sums.add(*self.way.sums(release, statistic), release.users)

    def known(self, name: str) -> tuple[Floats, Floats]:
        """A sum over all blocks, and its noise."""
        return self._sums.scaled(name), self._sums.noise(name)

    def rows(self, gram: str, cross: str) -> Rows:
        """The sums of a regression, all blocks together."""
        (G, G_noise), (g, g_noise) = self.known(gram), self.known(cross)
        rows = np.ones(len(g))
        return Rows(G, g, G_noise * rows, g_noise * rows)

    def regularised(self, gram: Floats, noise: float, rows: int) -> Floats:
        """max(G, 0) + (prior + ridge s sqrt(k)) I, with s the noise of G, of which there are rows.

        The prior is small beside what one user shows.
        """
        k = len(gram)
        prior = 1e-3 / (self.public.radius * self.public.scale) ** 2
        level = prior + self.options.constants.ridge * noise * math.sqrt(k)
        return positive_part(gram) + level * np.eye(k)

    @property
    def width_scale(self) -> float:
        """What multiplies the standard deviations of a regression."""
        return self.options.scale * self.options.constants.bonus

    # Choices made before the first user comes.

    def _check(self) -> None:
        if not self.masked and self.privacy.needs_l1:
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0, and the "
                "Gaussian mechanism under LocalDP"
            )

    def _pace(self) -> Pace:
        growth = self.options.growth or self.options.constants.growth
        return Pace(first=self._smallest_block, growth=growth)

    def advance(self, users: int) -> None:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        self._asked = None
        super().advance(users)

    # Save and resume.

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        own = {"statistic_kind": self.statistic_kind, "stationary": self.stationary}
        return super().identity() | own

    def state(self) -> State:
        """The sums."""
        meta, arrays = self._sums.dump()
        kept: Arrays = {f"sums/{name}": array for name, array in arrays.items()}
        if self.q_values is not None:
            kept["q_values"] = self.q_values
        return {"sums": meta}, kept

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self._sums.restore(meta["sums"], below(arrays, "sums/"))
        self.q_values = arrays.get("q_values")
        self._asked = None


def choose_kind(
    options: MixtureOptions, privacy: Privacy, public: PublicFeatures
) -> tuple[str, str]:
    """What is asked, and why."""
    asked = options.statistic
    if asked != "auto":
        return asked, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    informs = public.informs.sum(axis=-1)
    sparse = float(informs[informs > 0].mean()) <= _SPARSE if informs.any() else True
    many = public.free > 2 * public.features.shape[0]
    if privacy.joint and (sparse or many):
        reason = "few next states inform on the weights" if sparse else "there are many weights"
        return "counts", f"{reason}, and a policy reaches one action in each state"
    return "model", "every transition informs on all weights, for every value function"
