"""What all mixture agents share: what they ask of users, and models from the answers.

Three ways to ask, of which ``statistic="auto"`` chooses one (see :attr:`MixtureAgent.why`):

* ``"model"``: a regression on next states themselves, which serves every value function,
* ``"values"``: the papers' value-targeted regression, with the value function of the user's block,
* ``"counts"``: counts along the block's own policy (sparse worlds, deterministic policies).

All ask every user once, with the whole budget; sums over blocks are post-processing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.core.learner import Arrays, Bonus, Calibration, Floats, below
from tacit.core.schedule import Schedule, growing
from tacit.core.sizes import check_bytes
from tacit.finite.finite_learner import FiniteLearner
from tacit.mixture.models import (
    CountModel,
    CountRewards,
    KnownRewards,
    LearntRewards,
    RegressionModel,
    Rewards,
    Rows,
    Widths,
    World,
    input_scale,
)
from tacit.mixture.path_counts import PathCounts
from tacit.mixture.regularisers import FixedRidge, NoiseRidge, NoiseShift, Regulariser
from tacit.mixture.spec import MixtureSpec
from tacit.mixture.statistics import ModelSums, ValueSums
from tacit.numerics.block_sums import BlockSums
from tacit.privacy.arguments import flag, instance_of, positive, whole_number
from tacit.privacy.budget import epsilon_from_mu
from tacit.privacy.curators.gate import Release
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP, NonPrivate, Privacy, needs_l1
from tacit.privacy.sizing import release_noise, users_above_noise
from tacit.privacy.statistic import Block, Statistic

Kind = Literal["model", "values", "counts"]
Model = RegressionModel | CountModel

# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18
# A policy's transitions count as sparse below this many next states that inform on weights.
_SPARSE = 3.0


@dataclass(frozen=True)
class Constants:
    """The practical agents' constants, chosen on other seeds of the worlds than are reported.

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


class MixtureAgent(FiniteLearner[Statistic]):
    """A learner for linear mixtures; see :class:`tacit.mixture.linopt_vi.LinOptVI`."""

    spec: MixtureSpec

    def __init__(
        self,
        spec: MixtureSpec,
        users: int,
        privacy: Privacy,
        *,
        statistic: Literal["auto", "model", "values", "counts"] = "auto",
        stationary: bool | None = None,
        growth: float | None = None,
        regulariser: Regulariser | None = None,
        bonus: Bonus = "practical",
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        constants: Constants | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(spec, MixtureSpec):
            raise InvalidArgument(
                "this agent needs features of transitions: spec must be a MixtureSpec, as of "
                "mixture_of_models or hard_mixture, or of "
                "tacit.mixture.mixture_from_tabular(world) for a small finite world; got "
                f"{type(spec).__name__}"
            )
        if stationary is None:
            stationary = spec.stationary_transitions
        self.stationary = flag("stationary", stationary)
        self.constants = Constants() if constants is None else constants
        instance_of("constants", self.constants, Constants)
        seed = whole_number("seed", seed, least=0)
        self.growth = None if growth is None else positive("growth", growth)
        self._public = _public(spec)
        self._support = np.abs(spec.transition_features).sum(axis=2) > 0
        self.regulariser = regulariser
        self.statistic_kind, self._reason = self._choose_statistic(
            privacy, statistic, bonus, calibration
        )
        self.q_values: Floats | None = None
        self._sums = BlockSums(plain=bonus == "theory")
        self._asked: Statistic | None = None
        self._fixed: dict[bool, Statistic] = {}
        # Values that the current block's users are asked about; zero tells nothing, ramps do.
        H, S = spec.horizon, spec.states
        ramp = np.random.default_rng(np.random.SeedSequence([seed, 9])).random((H, S))
        self._values_asked: Floats = ramp * np.arange(H - 1, -1, -1.0)[:, np.newaxis]
        super().__init__(
            spec,
            users,
            privacy,
            bonus=bonus,
            scale=scale,
            failure=failure,
            calibration=calibration,
            schedule=schedule,
            counter="auto",
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    # What subclasses define: ``_plan``, on ``_model()``.

    # The choice of what is asked.

    def _choose_statistic(
        self, privacy: Privacy, asked: str, bonus: str, calibration: str
    ) -> tuple[Kind, str]:
        kinds: dict[str, Kind] = {"model": "model", "values": "values", "counts": "counts"}
        if asked not in ("auto", *kinds):
            raise InvalidArgument(f"statistic must be auto, model, values or counts, got {asked!r}")
        if asked == "counts" and not self.deterministic:
            raise InvalidArgument("statistic='counts' needs a deterministic policy: see LinOptVI")
        if asked == "counts" and bonus == "theory":
            raise InvalidArgument("bonus='theory' is derived for statistic 'model' and 'values'")
        if calibration == "as_printed":
            if asked not in ("auto", "values"):
                raise InvalidArgument("as printed, regressions are value-targeted: 'values'")
            return "values", "as printed"
        if asked in kinds:
            return kinds[asked], "as asked"
        l1 = needs_l1(privacy)
        if l1 and self.deterministic and bonus != "theory":
            return "counts", "of these only counts have a sensitivity in the 1-norm"
        if self.regulariser is not None:
            return "model", "a regulariser was given, which counts have no use for"
        informs = (np.abs(self._public.features).sum(axis=2) > 0).sum(axis=-1)
        sparse = float(informs[informs > 0].mean()) <= _SPARSE if informs.any() else True
        many = self._public.free > 2 * self._public.features.shape[0]
        counts = isinstance(privacy, JointDP) and self.deterministic and bonus != "theory"
        if counts and (sparse or many):
            reason = "few next states inform on the weights" if sparse else "there are many weights"
            return "counts", f"{reason}, and a policy reaches one action in each state"
        return "model", "every transition informs on all weights, for every value function"

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
        size = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        return release_noise(self._statistic(), self.privacy, size)

    @property
    def form(self) -> Literal["episodes", "counts", "occupancy"]:
        """Episodes where users are summed one by one, else sums."""
        statistic = self._statistic()
        if isinstance(statistic, PathCounts):
            return "occupancy"
        return "episodes" if isinstance(statistic, ModelSums) and statistic.clips else "counts"

    @property
    def _pooled(self) -> bool:
        """Whether steps are summed before the gate."""
        return self.statistic_kind == "model" and self.stationary and self.spec.stationary_rewards

    @property
    def _masked(self) -> bool:
        return self.statistic_kind == "counts"

    # What is asked.

    def _statistic(self) -> Statistic:
        if self._asked is None:
            self._asked = self._make_statistic(self._one_by_one)
        return self._asked

    @property
    def _one_by_one(self) -> bool:
        """Whether the current block is small enough to sum its users one by one."""
        if isinstance(self.privacy, NonPrivate):
            return False
        size = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        return bool(size <= min(_CLIPPED_UP_TO * self._smallest_block, _ONE_BY_ONE))

    @cached_property
    def _reward_features(self) -> Floats | None:
        """Features of unknown rewards, in units of their largest norm."""
        features = self.spec.reward_features
        if self.spec.known_rewards is not None or features is None:
            return None
        scaled: Floats = features / max(float(np.sqrt((features**2).sum(axis=2).max())), 1e-12)
        return scaled

    def _make_statistic(self, one_by_one: bool) -> Statistic:
        spec, public = self.spec, self._public
        if self.statistic_kind == "counts":
            start = np.ones(spec.states) if spec.start is None else np.array(spec.start)
            actions = self._policy.actions
            assert actions is not None  # noqa: S101
            return PathCounts(
                self._support,
                np.abs(public.features).sum(axis=2) > 0,
                start > 0,
                spec.horizon,
                actions,
                version=self._policy.version,
                reward=0.0 if self._reward_features is None else 1.0,
            )
        if self.statistic_kind == "values":
            return self._value_sums()
        if one_by_one not in self._fixed:
            whole = ModelSums(
                public.features,
                public.mean,
                self._support,
                spec.horizon,
                self._reward_features,
                pooled=self._pooled,
            )
            clip = self.constants.clip * whole.typical
            if not self._pooled:
                clip *= math.sqrt(2.0)
            self._fixed[one_by_one] = (
                whole
                if not one_by_one
                else ModelSums(
                    public.features,
                    public.mean,
                    self._support,
                    spec.horizon,
                    self._reward_features,
                    pooled=self._pooled,
                    clip=clip,
                )
            )
        return self._fixed[one_by_one]

    def _value_sums(self) -> ValueSums:
        """Inputs and targets of the values that the block's users are asked about."""
        public, values = self._public, self._values_asked
        middles = (values.max(axis=1) + values.min(axis=1)) / 2.0
        centred = values - middles[:, np.newaxis]
        halves = np.maximum(np.abs(centred).max(axis=1), 1e-9)
        base, inputs = public.apply(centred)
        inputs *= public.scale
        scales = np.array(
            [input_scale(x, half, self._reach) for x, half in zip(inputs, halves, strict=True)]
        )
        if self.calibration == "as_printed":
            # One scale for all blocks, whose sums go through one counter.
            scales[:] = self.spec.horizon * self._reach
        # The largest target there can be, in units of the inputs' scale.
        possible = np.where(self._support, 1.0, 0.0)
        farthest = np.abs(centred[:, np.newaxis, np.newaxis] - base[..., np.newaxis]) * possible
        reaches = np.maximum(farthest.reshape(len(values), -1).max(axis=1) / scales, 1e-9)
        if self.calibration == "as_printed":
            reaches[:] = 1.0 / self._reach
        elif self.bonus == "theory":
            # One scale for all: noise whose size depends on earlier noise is not normal.
            reaches[:] = (1.0 + np.abs(public.mean).sum(axis=-1).max()) / max(self._reach, 1e-9)
        self._target_scales = reaches
        both = scales * reaches
        return ValueSums(
            inputs / scales[:, np.newaxis, np.newaxis, np.newaxis],
            base / both[:, np.newaxis, np.newaxis],
            centred / both[:, np.newaxis],
            self._support,
            self.spec.horizon,
            self._reward_features,
            # One counter over all blocks needs one sensitivity, whatever the values.
            own_values=not self._papers and self.counter == "blocks",
        )

    @property
    def _papers(self) -> bool:
        """Whether scales are the papers': fixed, whatever the values."""
        return self.bonus == "theory" or self.calibration == "as_printed"

    @cached_property
    def _reach(self) -> float:
        """The largest |x V| for |V| <= 1, for the theory; 0 in practice, where it is not used."""
        if not self._papers:
            return 0.0
        sums = np.abs(self._public.features).sum(axis=-1) * self._public.scale
        return float(np.sqrt((sums**2).sum(axis=-1).max()))

    # What is known.

    def _absorb(self, release: Release, statistic: Statistic, users: int) -> None:
        if isinstance(statistic, PathCounts):
            self._absorb_counts(release, statistic, users)
            return
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        unit, rows = std["cross"], np.ones(len(release["cross"]))
        parts, noise = dict(release.parts), {name: value * rows for name, value in std.items()}
        if isinstance(statistic, ValueSums):
            parts["cross"] = parts["cross"] * self._target_scales[:, np.newaxis]
            noise["cross"] = noise["cross"] * self._target_scales
        if self._stream is not None:
            # A running sum takes the place of all before.
            self._sums = BlockSums(plain=True)
        self._sums.add(parts, noise, unit, users)

    def _release(self, block: Block, user_ids: Sequence[int | str] | None) -> None:
        if isinstance(self._stream, JointStream):
            self._stream.ask(self._statistic())
        super()._release(block, user_ids)

    def _absorb_counts(self, release: Release, statistic: PathCounts, users: int) -> None:
        """Counts by step, state and the action that the policy took there."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        check_bytes("counts of a mixture agent", (H, S, A, S))
        rewards = release.parts.get("rewards")
        counts, sums = statistic.dense(release["transitions"], rewards)
        std = float(np.max(release.std["transitions"]))
        reward_std = float(np.max(release.std["rewards"])) if rewards is not None else 0.0
        at = np.arange(H)[:, np.newaxis], np.arange(S), statistic.policy
        tables = {name: np.zeros((H, S, A)) for name in ("rewards", "visits")}
        visits, entering = self._flow(statistic, counts, float(users))
        of_cells = np.zeros((H, S, A, S))
        of_cells[at], tables["rewards"][at], tables["visits"][at] = counts, sums, visits
        reached, spread = np.zeros((H, S, A)), np.zeros((H, S, A))
        reached[at] = statistic.counted.any(axis=2)
        spread[at] = np.sqrt(entering)
        paying = np.where((tables["visits"] > 0) | (spread > 0), 1.0, 0.0)
        noise: dict[str, float | Floats] = {
            "counts": std * reached,
            "rewards": reward_std * paying,
            "visits": std * spread,
        }
        self._sums.add(tables | {"counts": of_cells}, noise, std, users)

    def _flow(self, statistic: PathCounts, counts: Floats, users: float) -> tuple[Floats, Floats]:
        """Visits (H, S) of a block, and how many noisy counts each is the sum of.

        Users start where it is known (else it is told by where they went) and go on as counted;
        where transitions do not depend on the weights, as is known.
        """
        H, S = self.spec.horizon, self.spec.states
        visits, entering = np.zeros((H, S)), np.zeros((H, S))
        if self.spec.start is not None:
            visits[0] = users * np.array(self.spec.start)
        else:
            # Those who left by a counted transition, and their share of all who left.
            chances = self._public.mean[np.arange(S), statistic.policy[0]]
            share = np.where(statistic.counted[0], chances, 0.0).sum(axis=1)
            visits[0] = counts[0].sum(axis=1) / np.where(share > 0, share, np.inf)
            entering[0] = statistic.counted[0].sum(axis=1)
        for h in range(H - 1):
            chances = self._public.mean[np.arange(S), statistic.policy[h]]
            known = np.where(statistic.counted[h], 0.0, chances)
            visits[h + 1] = counts[h].sum(axis=0) + visits[h] @ known
            entering[h + 1] = statistic.counted[h].sum(axis=0) + entering[h] @ known**2
        return visits, entering

    def _model(self) -> Model:
        """What is known now, as planning asks for it."""
        if self.statistic_kind == "counts":
            return self._count_model()
        rows = self._rows("gram", "cross")
        if self.stationary and len(rows.cross) > 1:
            # No transition of the last step was counted: its row is noise.
            rows = rows.first(self.spec.horizon - 1)
        return RegressionModel(
            self._public,
            rows.pooled() if self.stationary else rows,
            self._rewards(),
            self._regulariser,
            self._widths(1 if self.stationary else self.spec.horizon),
            targeted=self.statistic_kind == "values",
            reach=self._reach,
        )

    def _count_model(self) -> CountModel:
        noise = self._sums.noise("counts")
        # Cells of policies that were seldom played have less noise, on the common scale.
        return CountModel(
            self._public,
            self._sums.scaled("counts"),
            noise,
            self.constants.known,
            self.scale * self.constants.counts_bonus,
            self._rewards(),
            self.stationary,
        )

    def _rows(self, gram: str, cross: str) -> Rows:
        rows = np.ones(len(self._sums.parts[cross]))
        return Rows(
            self._sums.scaled(gram),
            self._sums.scaled(cross),
            self._sums.noise(gram) * rows,
            self._sums.noise(cross) * rows,
        )

    def _rewards(self) -> Rewards:
        known, features = self.spec.known_rewards, self._reward_features
        if known is not None:
            return KnownRewards(known)
        assert features is not None  # noqa: S101
        pooled = self.spec.stationary_rewards
        if self.statistic_kind == "counts":
            return CountRewards(
                features,
                (self._sums.scaled("visits"), self._sums.noise("visits")),
                (self._sums.scaled("rewards"), self._sums.noise("rewards")),
                self.constants.known,
                self.scale * self.constants.counts_bonus,
                pooled,
            )
        rows = self._rows("reward_gram", "rewards")
        widths = self._widths(1 if pooled else self.spec.horizon)
        return LearntRewards(features, rows.pooled() if pooled else rows, self._regulariser, widths)

    @property
    def _regulariser(self) -> Regulariser:
        """The caller's, or the one for this bonus and model of privacy."""
        if self.regulariser is not None:
            return self.regulariser
        if self.bonus == "theory":
            return FixedRidge() if isinstance(self.privacy, NonPrivate) else NoiseShift()
        return NoiseRidge(ridge=self._prior, scale=self.constants.ridge)

    @property
    def _prior(self) -> float:
        """A ridge that is small beside what one user shows."""
        return 1e-3 / (self._public.radius * self._public.scale) ** 2

    def _widths(self, rows: int) -> Widths:
        steps = self.users * self.spec.horizon
        return Widths(
            scale=self.scale * self.constants.bonus,
            theory=self.bonus == "theory",
            failure=self.failure,
            samples=steps // rows,
            releases=self.schedule.releases,
        )

    # Choices made before the first user comes.

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if self.growth is not None and positive("growth", self.growth) <= 1.0:
            raise InvalidArgument(f"growth must be > 1, got {self.growth!r}")
        if self.regulariser is not None and not callable(self.regulariser):
            raise InvalidArgument(f"regulariser must be callable, got {self.regulariser!r}")
        if self.statistic_kind == "counts" and self.regulariser is not None:
            raise InvalidArgument("counts have no use for a regulariser: leave one of them out")
        if self.statistic_kind != "counts" and needs_l1(self.privacy):
            raise InvalidArgument(
                f"statistic={self.statistic_kind!r} needs Gaussian noise: delta > 0, and the "
                "Gaussian mechanism under LocalDP"
            )

    def _choose_counter(self, counter: str) -> str:
        if self.calibration == "as_printed":
            return "binary tree"
        return super()._choose_counter(counter)

    def _as_printed(self) -> Privacy:
        """What is proven for the paper's noise.

        Each node of a binary tree over K episodes has noise H D sqrt(32 m ln(4 H / delta)) /
        epsilon, m = ceil(log2 K), on sums of sensitivity D as the paper counts it. In units of
        D = 1 that is a noise multiplier t; all steps and sums together have the sensitivity of
        :class:`~tacit.mixture.statistics.ValueSums`, and a user is in floor(log2 K) + 1 nodes.
        """
        privacy = self.privacy
        if not isinstance(privacy, JointDP) or privacy.pure or privacy.episodes_per_user > 1:
            raise InvalidArgument("as printed, the model is joint DP with delta > 0, one episode")
        if self.users < 2:
            raise InvalidArgument("as printed, the noise grows with log K: give users >= 2")
        H, levels = self.spec.horizon, self.users.bit_length()
        rounds = math.ceil(math.log2(self.users))
        multiplier = (
            H / privacy.epsilon * math.sqrt(32.0 * rounds * math.log(4 * H / privacy.delta))
        )
        sensitivity = self._make_statistic(one_by_one=False).l2(privacy.relation)
        mu = sensitivity * math.sqrt(levels) / multiplier
        return JointDP(epsilon_from_mu(mu, privacy.delta), privacy.delta, relation=privacy.relation)

    def save(self, path: str | os.PathLike[str]) -> None:
        """See :meth:`tacit.core.learner.Learner.save`; runs as printed are for comparison only."""
        if self.calibration == "as_printed":
            raise InvalidArgument("as printed is for comparisons: such a run is not saved")
        super().save(path)

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if self.calibration == "as_printed":
            if schedule not in ("auto", "every"):
                raise InvalidArgument("as printed, a policy is published after every episode")
            return Schedule.of("every", self.users)
        if not isinstance(schedule, str) or schedule != "auto":
            return Schedule.of(schedule, self.users)
        growth = self.constants.growth if self.growth is None else self.growth
        return Schedule("auto", growing(self.users, self._smallest_block, growth))

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise."""
        counts = self.statistic_kind == "counts"
        first = self.constants.counts_first if counts else self.constants.first
        return users_above_noise(self._make_statistic(one_by_one=True), self.privacy, first)

    def _advance(self, users: int) -> None:
        super()._advance(users)
        self._asked = None

    # Save and resume.

    def _identity(self) -> dict[str, Any]:
        own = {
            "statistic_kind": self.statistic_kind,
            "stationary": self.stationary,
            "growth": self.growth,
            "regulariser": repr(self.regulariser),
            "constants": repr(self.constants),
        }
        return super()._identity() | own

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        meta, arrays = self._sums.dump()
        kept: Arrays = {f"sums/{name}": array for name, array in arrays.items()}
        kept["values_asked"] = self._values_asked
        if self.q_values is not None:
            kept["q_values"] = self.q_values
        return {"sums": meta}, kept

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self._sums.restore(meta["sums"], below(arrays, "sums/"))
        self._values_asked = arrays["values_asked"]
        self.q_values = arrays.get("q_values")
        self._asked = None

    # Planning, which subclasses share.

    def _optimistic(self, model: Model, policy: Floats | None) -> tuple[Floats, Floats]:
        """Optimistic and greedy action values (H, S, A): of the best policy, or of ``policy``."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        q_values, greedy = np.empty((H, S, A)), np.empty((H, S, A))
        values, asked = np.zeros((2, S)), np.zeros((H, S))
        for h in range(H - 1, -1, -1):
            asked[h] = values[0]
            rewards, widths = model.rewards(h)
            rewards, widths = np.clip(rewards, 0.0, 1.0), np.minimum(widths, 1.0)
            means = spread = np.zeros((2, S, A))
            if h < H - 1:
                means, spread = model.next_values(h, values, wide=1)
            above = np.minimum(means[0] + spread[0], values[0].max())
            q_values[h] = np.clip(rewards + widths + above, 0.0, H - h)
            greedy[h] = np.clip(rewards + means[1], 0.0, H - h)
            best = q_values[h].max(axis=1)
            values = np.array(
                [
                    best if policy is None else (policy[h] * q_values[h]).sum(axis=1),
                    greedy[h].max(axis=1),
                ]
            )
        self.q_values, self._values_asked = q_values, asked
        return q_values, greedy


def _public(spec: MixtureSpec) -> World:
    """Features along the directions, in units of their largest norm, and p0 at the centre."""
    S, A = spec.states, spec.actions
    check_bytes("features along the directions", (S, A, spec.free, S))
    along = np.ascontiguousarray(
        np.einsum("sadt,dk->sakt", spec.transition_features, spec.directions, optimize=True)
    )
    mean = np.einsum("sadt,d->sat", spec.transition_features, spec.center, optimize=True)
    scale = max(float(np.sqrt((along**2).sum(axis=(2, 3)).max())), 1e-12)
    along /= scale
    return World(along, mean, scale, spec.radius, spec.horizon)
