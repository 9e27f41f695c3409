"""KernelLSVI: optimistic least-squares value iteration for kernel MDPs, on vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import NO_CLIP, BoxAlgorithm, box_spec
from tacit.continuous.features import kernel_features, public_states
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.embedding_sums import EmbeddingSums
from tacit.core.algorithm import BlockInfo, BlockSizes, Plan, Progress
from tacit.numerics.block_sums import BlockSums
from tacit.numerics.ridge import ridge_inverse
from tacit.privacy.arguments import positive
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import users_above_noise
from tacit.privacy.statistic import Floats

if TYPE_CHECKING:
    from tacit.continuous.features import FeatureMap
    from tacit.core.problem import Problem
    from tacit.privacy.curator import Release


# Chosen on other worlds than are reported.
_BONUS = 0.1  # scale of widths
_CLIP = 0.8  # the longest user, in steps
_SMOOTH = 3.0  # ridge of value functions, in units of the regression's own
_UNIFORM = 0.1  # chance of a uniform action, over the number of releases
_FIRST = 24.0  # users of the first block, in standard deviations of a sum's noise


@dataclass(frozen=True, kw_only=True)
class KernelLSVIOptions:
    """Options of :class:`KernelLSVI`.

    Attributes:
        scale: multiplies the bonus.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)


class KernelLSVI(BoxAlgorithm[BlockSums]):
    """Least squares on a kernel's features, for every value function at once.

    Idea: in a kernel MDP what follows a state and an action is linear in z, a kernel's features of
    the state (:func:`~.features.kernel_features`), and so is the value of an action. A
    regression of how features move finds it for all value functions at once; fitted value iteration
    on public states plans, with a bonus for what is uncertain by sampling or by noise. Moves are
    from where the user is, so that what is not known yet stays where it is.

    Private statistics: :class:`~tacit.continuous.statistics.embedding_sums.EmbeddingSums` of every
    block, once, with the whole budget, pooled over steps.

    Guarantee: that of its curator; see ``guarantee``. Frequencies and centres are public numbers.

    Deviations from papers: one model for all steps and discounted plans, which are for worlds that
    look the same at every step; the bonus is practical and is itself fitted to the features.

    Cost: A (m (m + 1) / 2 + m^2 + m) numbers per release, and a plan on some thousand states.
    """

    name: ClassVar[str] = "kernel_lsvi"
    Options: ClassVar[type[Any]] = KernelLSVIOptions
    options: KernelLSVIOptions
    features: FeatureMap
    statistic_kind = "features"

    def __init__(self, problem: Problem, options: KernelLSVIOptions) -> None:
        self.spec = spec = box_spec(problem)
        if not spec.bounded:
            raise InvalidArgument("lows and highs must be finite: plans are made on their box")
        self.features = kernel_features(spec)
        spec.check_weights(self.features.size)
        self.points = public_states(spec)
        self._at = self.features(self.points)
        self._fit = self._fitting(1e-6)
        super().__init__(problem, options)

    def init(self) -> BlockSums:
        """No sums. All will weigh alike: first blocks, small as they are, were elsewhere."""
        return BlockSums(plain=True)

    # What is asked.

    def query(self, state: BlockSums, plan: Plan, block: BlockInfo) -> EmbeddingSums:
        """How users move among features, and what they are paid."""
        return self._embedding_sums()

    def _embedding_sums(self) -> EmbeddingSums:
        share = _CLIP if self.privacy.private else NO_CLIP
        return EmbeddingSums(self.spec, self.features, share * self.spec.horizon)

    def update(
        self,
        state: BlockSums,
        plan: Plan,
        release: Release,
        block: BlockInfo,
        rng: np.random.Generator,
    ) -> BlockSums:
        """The sums of one more block."""
        std = {name: float(np.max(value)) for name, value in release.std.items()}
        return state.added(release.parts, std, std["gram"], release.users)

    # What is estimated, and how it plans.

    def plan(
        self, state: BlockSums, last: Plan | None, at: Progress, rng: np.random.Generator
    ) -> Plan:
        """Optimistic and estimated values, by fitted value iteration on public states."""
        if not state.parts:
            first = self.behaviour()
            return Plan(first, first)
        noise = {name: float(state.noise(name)) for name in ("gram", "moves", "rewards")}
        ridge = 1.0 + noise["gram"] * math.sqrt(self.features.size)
        inverse = ridge_inverse(state.scaled("gram"), ridge)
        turned = np.einsum("nm,amk->nak", self._at, inverse)
        moves = np.einsum("nam,amk->nak", turned, state.scaled("moves"))
        half = (self.spec.reward_range[1] - self.spec.reward_range[0]) / 2.0
        rewards = np.einsum("nam,am->na", turned, state.scaled("rewards"))
        rewards = half * np.clip(rewards, -1.0, 1.0)
        leverage = np.maximum(np.einsum("nam,nm->na", turned, self._at), 0.0)
        length = (turned**2).sum(axis=-1)
        scale = self.options.scale * _BONUS
        steps = max(float(np.trace(state.scaled("gram"), axis1=1, axis2=2).mean()), 1.0)
        # Values are as smooth as moves can be told: features that drown in the noise have no part.
        smooth = self._fitting(max(1e-6, _SMOOTH * ridge / steps))
        policies = []
        for bonus in (scale, 0.0):
            Q = self._iterated(rewards, moves, leverage, length, noise, half, bonus, smooth)
            drawn = _UNIFORM / at.releases if bonus else 0.0
            policies.append(QPolicy.draw(self.features, (self._fit @ Q).T, rng, drawn))
        return Plan(*policies)

    def _fitting(self, ridge: float) -> Floats:
        """From values at the points to weights, by ridge regression, (m, points)."""
        at, n = self._at, len(self._at)
        matrix = at.T @ at / n + ridge * np.eye(at.shape[1])
        return np.asarray(np.linalg.solve(matrix, at.T / n), dtype=np.float64)

    def _iterated(
        self,
        rewards: Floats,
        moves: Floats,
        leverage: Floats,
        length: Floats,
        noise: dict[str, float],
        half: float,
        bonus: float,
        smooth: Floats,
    ) -> Floats:
        """Q (points, A), as far from the middle of what values can be.

        Q_a = r_a + discount (V + moves_a v) + width, cut to the range of values, with v the weights
        that V has on the features, and the value of an end, which is known: nothing is earned.
        """
        top = half / (1.0 - self.spec.discount)
        middle = float(np.mean(self.spec.reward_range)) / (1.0 - self.spec.discount)
        end = [-middle] if self.spec.may_end else []
        Q: Floats = np.zeros(rewards.shape)
        for _ in range(math.ceil(math.log(1e-3) / math.log(max(self.spec.discount, 0.1)))):
            V: Floats = Q.max(axis=1)
            v: Floats = np.append(smooth @ V, end)
            ahead = np.clip(
                V[:, np.newaxis] + moves @ v, min([V.min(), *end]), max([V.max(), *end])
            )
            squares = noise["moves"] ** 2 * float(v @ v) + (half * noise["rewards"]) ** 2
            spread = float(V.var()) + half**2
            width = bonus * np.sqrt(squares * length + spread * leverage)
            Q = np.clip(
                rewards + self.spec.discount * ahead + width, min([-top, *end]), max([top, *end])
            )
        return Q

    # Choices made before the first user comes.

    def _check(self) -> None:
        if self.privacy.needs_l1:
            raise InvalidArgument(
                f"privacy must have delta > 0 and the Gaussian mechanism, got {self.privacy!r}: "
                "embedding sums have no sensitivity in the 1-norm"
            )

    def _block_sizes(self) -> BlockSizes:
        # In users whose steps all are in one direction.
        first = _FIRST / self.spec.horizon
        users = users_above_noise(self._embedding_sums(), self.privacy, first * self.features.size)
        return BlockSizes(first=users, growth=2.0)
