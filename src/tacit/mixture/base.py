"""What all mixture algorithms share: their options, and how the sums of all blocks add up.

Plumbing: an algorithm's own file says what it estimates, how it is optimistic and how it plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.core.algorithm import EVERY, Floats, Pace
from tacit.core.asks import Arrays, State, below
from tacit.finite.algorithm import FiniteAlgorithm
from tacit.mixture.count_estimate import CountModel, CountRewards, cell_sums
from tacit.mixture.estimate import PublicFeatures, RewardEstimate, Rows, WidthRule
from tacit.mixture.model_sums import ModelSums
from tacit.mixture.path_counts import PathCounts
from tacit.mixture.questions import Questions, choose_kind
from tacit.mixture.regularisers import FixedRidge, NoiseRidge, NoiseShift, Regulariser
from tacit.mixture.value_sums import ValueSums
from tacit.numerics.block_sums import BlockSums
from tacit.privacy.arguments import flag, instance_of, one_of, positive
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.models import JointDP, Privacy
from tacit.privacy.sizing import release_noise, users_above_noise
from tacit.privacy.statistic import Statistic

if TYPE_CHECKING:
    from tacit.core.setting import Setting
    from tacit.mixture.spec import MixtureSpec

# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18


@dataclass(frozen=True)
class MixtureConstants:
    """The practical algorithms' constants, chosen on other seeds of the worlds than are reported.

    Attributes:
        bonus: scale of widths.
        counts_bonus: the same for ``"counts"``, whose errors are mostly sampling.
        ridge: ridge in standard deviations of the Gram's noise, times sqrt(k).
        growth: the number of users served grows by at most this factor from block to block.
        first: users of the first block, in standard deviations of a sum's noise;
        counts_first: the same for ``"counts"``.
        clip: the longest vector of a user, in typical lengths.
        known: a cell is known once its count exceeds this many standard deviations.
    """

    bonus: float = 0.3
    counts_bonus: float = 1.0
    ridge: float = 1.0
    growth: float = 1.3
    first: float = 4.0
    counts_first: float = 8.0
    clip: float = 1.0
    known: float = 1.0


@dataclass(frozen=True, kw_only=True)
class MixtureOptions:
    """Options of mixture algorithms.

    Attributes:
        statistic: what is asked of users: ``"model"``, ``"values"``, ``"counts"`` (deterministic
            policies), or ``"auto"``, which says in ``why`` what it chose.
        stationary: one vector of weights for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
        regulariser: see :mod:`tacit.mixture.regularisers`; chosen by bonus and privacy if ``None``.
        bonus: ``"practical"`` or ``"theory"``, for which the confidence sets are proven.
        scale: multiplies the practical bonus.
        failure: with which probability the theory's confidence sets may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for the paper's own noise.
        constants: the practical constants.
    """

    statistic: Literal["auto", "model", "values", "counts"] = "auto"
    stationary: bool | None = None
    growth: float | None = None
    regulariser: Regulariser | None = None
    bonus: Literal["practical", "theory"] = "practical"
    scale: float = 1.0
    failure: float = 0.1
    calibration: Literal["tight", "as_printed"] = "tight"
    constants: MixtureConstants = MixtureConstants()

    def __post_init__(self) -> None:
        if self.statistic not in ("auto", "model", "values", "counts"):
            raise InvalidArgument(
                f"statistic must be auto, model, values or counts, got {self.statistic!r}"
            )
        one_of("bonus", self.bonus, ("practical", "theory"))
        one_of("calibration", self.calibration, ("tight", "as_printed"))
        if self.stationary is not None:
            flag("stationary", self.stationary)
        if self.growth is not None and positive("growth", self.growth) <= 1.0:
            raise InvalidArgument(f"growth must be > 1, got {self.growth!r}")
        if self.regulariser is not None and not callable(self.regulariser):
            raise InvalidArgument(f"regulariser must be callable, got {self.regulariser!r}")
        positive("scale", self.scale)
        if not 0.0 < positive("failure", self.failure) < 1.0:
            raise InvalidArgument(f"failure must be in (0, 1), got {self.failure!r}")
        if self.constants is None:
            object.__setattr__(self, "constants", MixtureConstants())
        instance_of("constants", self.constants, MixtureConstants)


class MixtureAlgorithm(FiniteAlgorithm):
    """An algorithm on private sums of a linear mixture.

    Attributes:
        stationary: whether one vector of weights is for all steps.
        public: features along the directions in which weights are unknown.
        statistic_kind: what is asked: ``"model"``, ``"values"`` or ``"counts"``.
        values_asked: (H, S), the next values that the current block's users are asked about.
        q_values: optimistic action values (H, S, A) of the last plan; ``None`` before the first.
    """

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
        self.public = PublicFeatures.of(spec)
        self.statistic_kind, self._reason = choose_kind(
            options, setting.privacy, self.public, self.deterministic
        )
        printed, theory = options.calibration == "as_printed", options.bonus == "theory"
        self.papers = printed or theory
        # Whether steps are summed before the gate.
        per_step = self.statistic_kind != "model" or not self.stationary
        self.pooled = not per_step and spec.stationary_rewards
        self._questions = Questions(
            spec, self.public, pooled=self.pooled, papers=self.papers, printed=printed
        )
        self.q_values: Floats | None = None
        self._sums = BlockSums(plain=theory)
        self._asked: Statistic | None = None
        # Zero tells nothing, ramps do.
        H, S = spec.horizon, spec.states
        ramp = np.random.default_rng(np.random.SeedSequence([setting.seed, 9])).random((H, S))
        self.values_asked: Floats = ramp * np.arange(H - 1, -1, -1.0)[:, np.newaxis]
        super().__init__(setting, options)

    # What is public.

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return (
            f"statistic {self.statistic_kind!r}: {self._reason}; {self.schedule.releases} releases "
            f"({self.schedule.name})"
        )

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one sum with weight 1 of the current block."""
        return release_noise(self.statistic(), self.privacy, self._block_size)

    @property
    def form(self) -> Literal["episodes", "counts", "occupancy"]:
        """Episodes where users are summed one by one, else sums."""
        statistic = self.statistic()
        if isinstance(statistic, PathCounts):
            return "occupancy"
        return "episodes" if isinstance(statistic, ModelSums) and statistic.clips else "counts"

    @property
    def masked(self) -> bool:
        """Counts are of those who followed the block's own policy."""
        return self.statistic_kind == "counts"

    # What is asked.

    def statistic(self) -> Statistic:
        """What is asked of the current block."""
        if self._asked is None:
            small = self._block_size <= min(_CLIPPED_UP_TO * self._smallest_block, _ONE_BY_ONE)
            self._asked = self._make_statistic(self.privacy.private and small)
        return self._asked

    def _make_statistic(self, one_by_one: bool) -> Statistic:
        if self.statistic_kind == "counts":
            return self._questions.counts(self.policy)
        if self.statistic_kind == "values":
            # Targets come divided by these.
            statistic, self._target_scales = self._questions.values(self.values_asked)
            return statistic
        return self._questions.model(one_by_one, self.options.constants.clip)

    @property
    def _block_size(self) -> int:
        return self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        constants = self.options.constants
        first = constants.counts_first if self.statistic_kind == "counts" else constants.first
        return users_above_noise(self._make_statistic(one_by_one=True), self.privacy, first)

    # What is known.

    def take_in(self, release: Release, statistic: Statistic) -> None:
        """Adds the sums of a block, or puts a running sum in the place of all before."""
        users = self.block_users
        if isinstance(statistic, PathCounts):
            start = self.spec.start
            self._sums.add(*cell_sums(release, statistic, self.public, start, users), users)
            return
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        unit, rows = std["cross"], np.ones(len(release["cross"]))
        parts, noise = dict(release.parts), {name: value * rows for name, value in std.items()}
        if isinstance(statistic, ValueSums):
            parts["cross"] = parts["cross"] * self._target_scales[:, np.newaxis]
            noise["cross"] = noise["cross"] * self._target_scales
        if self.counter != "blocks":
            self._sums = BlockSums(plain=True)
        self._sums.add(parts, noise, unit, users)

    def rows(self, gram: str, cross: str) -> Rows:
        """The sums of a regression, all blocks together."""
        rows, sums = np.ones(len(self._sums.parts[cross])), self._sums
        return Rows(
            sums.scaled(gram),
            sums.scaled(cross),
            sums.noise(gram) * rows,
            sums.noise(cross) * rows,
        )

    def count_model(self, rewards: RewardEstimate) -> CountModel:
        """The model of counts; cells of policies that were seldom played have less noise in it."""
        known, scale = self.options.constants.known, self._counts_scale
        counts, noise = self._sums.scaled("counts"), self._sums.noise("counts")
        return CountModel(self.public, counts, noise, known, scale, rewards, self.stationary)

    def count_rewards(self, features: Floats) -> CountRewards:
        """The same for rewards."""
        sums, known = self._sums, self.options.constants.known
        visits = sums.scaled("visits"), sums.noise("visits")
        paid = sums.scaled("rewards"), sums.noise("rewards")
        pooled = self.spec.stationary_rewards
        return CountRewards(features, visits, paid, known, self._counts_scale, pooled)

    @property
    def _counts_scale(self) -> float:
        return self.options.scale * self.options.constants.counts_bonus

    @property
    def chosen_regulariser(self) -> Regulariser:
        """The caller's, or the one for this bonus and model of privacy."""
        options = self.options
        if options.regulariser is not None:
            return options.regulariser
        if options.bonus == "theory":
            return NoiseShift() if self.privacy.private else FixedRidge()
        # A ridge that is small beside what one user shows.
        prior = 1e-3 / (self.public.radius * self.public.scale) ** 2
        return NoiseRidge(ridge=prior, scale=options.constants.ridge)

    def width_rule(self, rows: int) -> WidthRule:
        """How widths are made of sums in so many rows."""
        options, steps = self.options, self.users * self.spec.horizon
        return WidthRule(
            scale=options.scale * options.constants.bonus,
            theory=options.bonus == "theory",
            failure=options.failure,
            samples=steps // rows,
            releases=self.schedule.releases,
        )

    # Choices made before the first user comes.

    def _check(self) -> None:
        options, privacy = self.options, self.privacy
        if self.statistic_kind == "counts" and options.regulariser is not None:
            raise InvalidArgument("counts have no use for a regulariser: leave one of them out")
        if self.statistic_kind != "counts" and privacy.needs_l1:
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0, and the "
                "Gaussian mechanism under LocalDP"
            )
        if options.calibration == "as_printed":
            if self.setting.schedule not in ("auto", "every"):
                raise InvalidArgument("as printed, a policy is published after every episode")
            if privacy.exact:
                raise InvalidArgument(
                    "as printed, noise is continuous: take sampler='floating-point'"
                )

    def _choose_counter(self) -> str:
        return "binary tree" if self.options.calibration == "as_printed" else "blocks"

    @property
    def gate_privacy(self) -> Privacy:
        """The caller's, or what adds exactly the paper's noise."""
        if self.options.calibration == "tight":
            return self.privacy
        return printed_privacy(
            self.privacy, self.users, self.spec.horizon, self._make_statistic(one_by_one=False)
        )

    @property
    def resumable(self) -> bool:
        """Runs as printed are for comparisons only."""
        return self.options.calibration == "tight"

    def _pace(self) -> Pace:
        if self.options.calibration == "as_printed":
            return EVERY
        growth = self.options.growth
        growth = self.options.constants.growth if growth is None else growth
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
        """The sums, and what the current users are asked about."""
        meta, arrays = self._sums.dump()
        kept: Arrays = {f"sums/{name}": array for name, array in arrays.items()}
        kept["values_asked"] = self.values_asked
        if self.q_values is not None:
            kept["q_values"] = self.q_values
        return {"sums": meta}, kept

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self._sums.restore(meta["sums"], below(arrays, "sums/"))
        self.values_asked = arrays["values_asked"]
        self.q_values = arrays.get("q_values")
        self._asked = None


def printed_privacy(privacy: Privacy, users: int, horizon: int, statistic: Statistic) -> Privacy:
    """What is proven for the paper's noise, as a model that adds exactly that.

    Each node of a binary tree over K episodes has noise H D sqrt(32 m ln(4 H / delta)) /
    epsilon, m = ceil(log2 K), on sums of sensitivity D as the paper counts it. In units of
    D = 1 that is a noise multiplier t; all steps and sums together have the sensitivity of
    :class:`~tacit.mixture.value_sums.ValueSums`, and a user is in floor(log2 K) + 1 nodes.
    """
    if not privacy.joint or privacy.pure or privacy.episodes_per_user > 1:
        raise InvalidArgument("as printed, the model is joint DP with delta > 0, one episode")
    if users < 2:
        raise InvalidArgument("as printed, the noise grows with log K: give users >= 2")
    levels, rounds = users.bit_length(), math.ceil(math.log2(users))
    multiplier = (
        horizon / privacy.epsilon * math.sqrt(32.0 * rounds * math.log(4 * horizon / privacy.delta))
    )
    mu = statistic.l2(privacy.relation) * math.sqrt(levels) / multiplier
    return JointDP(epsilon_from_mu(mu, privacy.delta), privacy.delta, relation=privacy.relation)
