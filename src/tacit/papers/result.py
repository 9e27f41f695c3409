"""Results of the papers' algorithms, episode by episode, and proofs of their privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.budget import Budget, Guarantee, Relation, epsilon_from_mu
from tacit.privacy.noise import Noise
from tacit.privacy.validation import checked_number, flag, positive, whole_number

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Proof:
    """The claim of a paper, and the guarantee that is proven for a run.

    Attributes:
        claim: what the paper says.
        guarantee: what the accountant proves for the noise that was drawn, or ``None``.
        reason: why it differs from the claim.
    """

    claim: str
    guarantee: Guarantee | None
    reason: str


@dataclass(frozen=True, eq=False)
class PaperResult:
    """A run of a paper's algorithm in a simulated world.

    Attributes:
        algorithm: its name in the paper.
        printed: whether constants and noise are the printed ones, or corrected.
        optimal_value: the largest value of any policy, in rewards; one number, or one for every
            episode where users differ in what is known of them, (K,).
        values: of the policies of episodes 1 to K, exactly, (K,).
        estimates: the algorithm's own optimistic value of each episode, in rewards, (K,).
        policy: that of the last episode.
        proof: the claim of the paper, and what is proven.
        constants: what the run was set by, under the paper's names.
        errata: which misprints were corrected to have something that can be run.
        more: other curves of the algorithm, by name, (K,).
        baseline_value: the value of random actions, of no control in LQ control; from the world.
    """

    algorithm: str
    printed: bool
    optimal_value: float | Floats
    values: Floats = field(repr=False)
    estimates: Floats = field(repr=False)
    policy: Any = field(repr=False)
    proof: Proof
    constants: Mapping[str, float]
    errata: tuple[str, ...] = field(repr=False)
    more: Mapping[str, Floats] = field(default_factory=dict, repr=False)
    baseline_value: float = field(default=math.nan, kw_only=True)

    @property
    def episodes(self) -> int:
        """K."""
        return len(self.values)

    @property
    def regret(self) -> Floats:
        """The sum of V* - V^{pi^k} over the first k episodes, (K,)."""
        losses: Floats = np.cumsum(self.optimal_value - self.values)
        return losses

    @property
    def guarantee(self) -> Guarantee | None:
        """The proven guarantee, or ``None``; ``reason`` says why."""
        return self.proof.guarantee

    @property
    def reason(self) -> str:
        """Why what is proven is not what the paper claims."""
        return self.proof.reason

    def __str__(self) -> str:
        proven = "none" if self.guarantee is None else self.guarantee.short
        last, best = max(1, self.episodes // 10), np.broadcast_to(self.optimal_value, self.episodes)
        idle = np.sum(best - self.baseline_value)
        who = "no control       loses" if "OFU" in self.algorithm else "random actions   lose"
        lines = [
            f"{self.algorithm}, {'as printed' if self.printed else 'corrected'}",
            f"episodes         {self.episodes:,}",
            f"regret           {self.regret[-1]:,.6g}",
            f"{who} {idle:,.6g}",
            f"value at the end {self.values[-last:].mean():.6g} of {best[-last:].mean():.6g}",
            f"claimed          {self.proof.claim}",
            f"proven           {proven}",
            f"because          {self.reason}",
        ]
        return "\n".join(lines)


NO_NOISE = Proof("none", None, "no noise was added")
"""That of an algorithm without privacy."""


def proven(claim: str, reason: str, **words: Any) -> Proof:
    """The proof of noise that was drawn, under replace-one; ``words`` are those of a guarantee.

    Gaussian noise has ``mu`` and ``delta``, from which epsilon follows; pure noise has ``epsilon``.
    """
    if "mu" in words:
        words["epsilon"] = epsilon_from_mu(words["mu"], words["delta"])
    words = {"model": "joint", "mu": None, "delta": 0.0} | words
    guarantee = Guarantee(relation=Relation.REPLACE_ONE, simulation_only=True, **words)
    return Proof(claim, guarantee, reason)


@dataclass(frozen=True)
class Sizes:
    """Sizes, privacy level and noise of a run: all that a source of private sums is made from.

    Attributes:
        episodes: K.
        horizon: H.
        shape: (S, A) of finite worlds, (n, d) of LQ control, (d1, d2) of linear mixtures, (S, d)
            of linear MDPs.
        epsilon: the level that is asked for, with ``delta``.
        failure: the probability with which confidence bounds may fail.
        printed: whether constants are the paper's, or corrected.
        noise: the source of noise.
    """

    episodes: int
    horizon: int
    shape: tuple[int, int]
    epsilon: float
    delta: float
    failure: float
    printed: bool
    noise: Noise = field(repr=False)

    def __post_init__(self) -> None:
        whole_number("episodes", self.episodes, most=10**12)
        positive("epsilon", self.epsilon)
        checked_number("delta", self.delta, "from 0 to below 1", lambda d: 0 <= d < 1)
        checked_number("failure", self.failure, "above 0 and at most 1", lambda f: 0 < f <= 1)
        flag("printed", self.printed)

    @property
    def budget(self) -> Budget:
        """The budget of a level with delta > 0."""
        return Budget(self.epsilon, self.delta)
