"""What all tabular agents share: counts of visits, and how they add up.

Subclasses say how to plan on them. The gate, the users and the files are those of
:class:`~tacit.core.learner.Learner`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.core.learner import Arrays, Bonus, Calibration, Floats
from tacit.core.schedule import Schedule, growing, users_above_noise
from tacit.finite.evidence import Evidence
from tacit.finite.finite_learner import FiniteLearner
from tacit.finite.flow import conserve
from tacit.finite.spec import FiniteSpec, check_bytes
from tacit.finite.visits import VisitCounts
from tacit.privacy.arguments import flag, instance_of
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy

Form = Literal["episodes", "counts", "pooled"]

# Counts have a cap, which needs users one by one, while blocks are at most so many times as large
# as the smallest that knows anything. By then the cap has done its work.
_CAPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 20
# Above this many (step, state) pairs the equations of flow conservation are too many to solve.
_LARGEST_FLOW = 1500
# What a save keeps of the evidence.
_KEPT = ("transitions", "rewards", "visits", "variance", "reached")


@dataclass(frozen=True)
class Constants:
    """The practical agent's constants, chosen on riverswim(6, 20) and four small random worlds.

    Attributes:
        sampling: scale of the whole bonus.
        privacy: scale of the part of it that is due to privacy noise.
        range_term: scale of the term in (steps left) / n.
        lowering: counts are lowered by this many standard deviations of their noise.
        known: a cell is known once its count exceeds this many standard deviations.
        known_unmasked: the same where counts are not masked by the policy.
        growth: the number of users served grows by at most this factor from block to block,
        blocks_per_cell: and by at most 1 + this / (states actions), but for 1.02.
        first: users of the first block, in standard deviations of a count's noise.
        reward_weight: squared weight of rewards against transitions at the gate.
        cap: how many of a user's steps in a cell count, when pooled over steps.
    """

    sampling: float = 0.25
    privacy: float = 1.0
    range_term: float = 0.1
    lowering: float = 1.0
    known: float = 0.5
    known_unmasked: float = 2.0
    growth: float = 1.15
    blocks_per_cell: float = 1.8
    first: float = 40.0
    reward_weight: float = 0.2
    cap: int = 2


class TabularAgent(FiniteLearner[VisitCounts]):
    """A learner for finite worlds; see :class:`tacit.tabular.ucbvi.UCBVI` for the arguments."""

    spec: FiniteSpec

    def __init__(
        self,
        spec: FiniteSpec,
        users: int,
        privacy: Privacy,
        *,
        stationary: bool | None = None,
        bonus: Bonus = "practical",
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        counter: str = "auto",
        constants: Constants | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        instance_of("spec", spec, FiniteSpec)
        self.stationary = spec.stationary if stationary is None else flag("stationary", stationary)
        self.constants = Constants() if constants is None else constants
        instance_of("constants", self.constants, Constants)
        shape = (1 if self.stationary else spec.horizon, spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*shape, spec.states))
        self.evidence = Evidence(shape, plain=not isinstance(privacy, JointDP))
        self._expected: Floats | None = None
        super().__init__(
            spec,
            users,
            privacy,
            bonus=bonus,
            scale=scale,
            failure=failure,
            calibration=calibration,
            schedule=schedule,
            counter=counter,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    # What subclasses define, besides ``_plan`` on ``evidence.counts()``.

    def _expected_visits(self) -> Floats | None:
        """(L, S, A), visits that one user of the next block is expected to make, if known."""
        return None

    # The billboard.

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one count of the last release."""
        return self.evidence.noise

    @property
    def form(self) -> Form:
        """Episodes where users are counted one by one, or rewards rounded to bits; else sums."""
        fractions = not set(self.spec.reward_values) <= {0.0, 1.0}
        if self._cap is not None or (reports_bits(self.privacy) and fractions):
            return "episodes"
        return "pooled" if self.stationary else "counts"

    @property
    def why(self) -> str:
        """What was chosen for this budget and length, in words."""
        how = (
            "each block is released once, with its whole budget, and only for what its policy "
            "can reach"
            if self.counter == "blocks"
            else f"all blocks go through one {self.counter} counter"
        )
        return f"{self.schedule.releases} releases ({self.schedule.name}); {how}"

    # What is asked.

    @property
    def _cap(self) -> int | None:
        """How many of a user's steps in a cell count in the current block."""
        if not self.stationary or isinstance(self.privacy, NonPrivate):
            return None
        if self.counter != "blocks":
            # One statistic for the whole stream.
            largest = self.users / 10
        else:
            largest = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        if largest > min(_CAPPED_UP_TO * self._smallest_block, _ONE_BY_ONE):
            return None
        return min(self.constants.cap, self.spec.horizon)

    @property
    def _masked(self) -> bool:
        """Whether only what the block's policy can reach is counted."""
        return self.counter == "blocks" and self._policy.is_deterministic and not self._papers

    def _statistic(self, cap: int | None = None) -> VisitCounts:
        """What is asked of the current block."""
        if self._papers:
            sizes = (self.spec.states, self.spec.actions, self.spec.horizon)
            return VisitCounts(*sizes, visits=True)
        return VisitCounts(
            self.spec.states,
            self.spec.actions,
            self.spec.horizon,
            pooled=self.stationary,
            cap=cap or self._cap,
            # Bits cost the same whatever they weigh.
            weight=1.0 if reports_bits(self.privacy) else math.sqrt(self.constants.reward_weight),
            policy=self._policy.actions if self._masked else None,
            version=self._policy.version,
        )

    @property
    def _papers(self) -> bool:
        """Whether the counts are those of the papers: per step, all three, nothing masked."""
        return self.bonus == "theory" or self.calibration == "as_printed"

    # What is known.

    def _absorb(self, release: Release, statistic: VisitCounts, users: int) -> None:
        if self.counter == "blocks":
            conserved = self._conserved(release, statistic)
            self.evidence.add(conserved, statistic, users, self._expected)
        else:
            self.evidence.replace(release, statistic, users)

    def _advance(self, users: int) -> None:
        super()._advance(users)
        self._expected = self._expected_visits()

    def _conserved(self, release: Release, statistic: VisitCounts) -> Release:
        """The release with flow conserved, where its counts are per step and noisy."""
        H, S = self.spec.horizon, self.spec.states
        if not self._masked or self.stationary or H * S > _LARGEST_FLOW:
            return release
        if float(np.max(release.std["transitions"])) == 0.0:
            return release
        start = None if self.spec.start is None else np.array(self.spec.start)
        counts = release["transitions"].reshape(H, S, S)
        better = conserve(counts, float(release.users), start).reshape(H * S, S)
        return replace(release, parts={**release.parts, "transitions": better})

    # Choices made before the first user comes.

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if self._papers and self.stationary:
            raise InvalidArgument(
                "the papers count every step of its own: give stationary=False with "
                "bonus='theory' or calibration='as_printed'"
            )
        if self.calibration == "as_printed" and schedule not in ("auto", "every"):
            raise InvalidArgument("as printed, a policy is published after every episode")

    def _choose_counter(self, counter: str) -> str:
        joint = isinstance(self.privacy, JointDP)
        if self.calibration == "as_printed":
            if counter not in ("auto", "binary tree"):
                raise InvalidArgument("as printed, the counter is the binary tree")
            return "binary tree" if joint else "blocks"
        if joint and self.bonus == "theory":
            # Its widths are for running sums.
            return "auto"
        if joint and counter == "auto" and not self.deterministic:
            # Blocks that no policy masks forget: later ones add noise to what they do not visit.
            return "auto"
        return super()._choose_counter(counter)

    def _as_printed(self) -> Privacy:
        return as_printed(self.privacy, self.users)

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if self.calibration == "as_printed":
            return Schedule.of("every", self.users)
        if not isinstance(schedule, str) or schedule != "auto":
            return Schedule.of(schedule, self.users)
        # What one block shows decides where the next one looks, so more cells need more blocks.
        cells = self.spec.states * self.spec.actions
        growth = min(self.constants.growth, max(1.02, 1.0 + self.constants.blocks_per_cell / cells))
        return Schedule("auto", growing(self.users, self._smallest_block, growth))

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise, by the noise of one count."""
        cap = min(self.constants.cap, self.spec.horizon) if self.stationary else None
        return users_above_noise(self._statistic(cap), self.privacy, self.constants.first)

    # Save and resume.

    def _identity(self) -> dict[str, Any]:
        own = {"stationary": self.stationary, "constants": repr(self.constants)}
        return super()._identity() | own

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        evidence = self.evidence
        arrays: Arrays = {name: getattr(evidence, name) for name in _KEPT}
        if self._expected is not None:
            arrays["expected"] = self._expected
        return {"noise": evidence.noise, "reward_noise": evidence.reward_noise}, arrays

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self.evidence.noise, self.evidence.reward_noise = meta["noise"], meta["reward_noise"]
        for name in _KEPT:
            setattr(self.evidence, name, arrays[name])
        self._expected = arrays.get("expected")


def as_printed(privacy: Privacy, users: int) -> Privacy:
    """What the papers' calibration really guarantees, as a model that adds exactly their noise.

    With the inverted scale put right, the joint mechanism draws Laplace noise of scale
    b = 3 H log2(K) / epsilon per node of a binary tree over K episodes. A user is in
    m = floor(log2 K) + 1 nodes and all three counts of an episode change by 6 H under replace-one,
    so the proven cost is 6 H m / b = epsilon * 2 m / log2(K): about twice the claim. The local
    mechanism's Laplace noise of scale 3 H / epsilon costs 2 epsilon. A budget with delta is read as
    the paper reads it, by its epsilon.
    """
    if not isinstance(privacy, NonPrivate) and privacy.episodes_per_user > 1:
        raise InvalidArgument("as printed, a user has one episode")
    if isinstance(privacy, JointDP):
        if users < 2:
            raise InvalidArgument("as printed, the noise grows with log K: give users >= 2")
        cost = privacy.epsilon * 2.0 * users.bit_length() / math.log2(users)
        return JointDP(cost, 0.0)
    if isinstance(privacy, LocalDP):
        return LocalDP(2.0 * privacy.epsilon, 0.0, mechanism="laplace")
    return privacy


def reports_bits(privacy: Privacy) -> bool:
    """Whether devices report by randomised response."""
    return isinstance(privacy, LocalDP) and privacy.mechanism == "randomised response"
