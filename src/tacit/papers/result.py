"""What an algorithm of a paper did, episode by episode, and what is proven about its privacy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import checked_number
from tacit.privacy.budget import Relation
from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.guarantee import Guarantee

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Proof:
    """What is proven about the mechanism of a run.

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
        """What is proven, or ``None``; ``reason`` says why."""
        return self.proof.guarantee

    @property
    def reason(self) -> str:
        """Why what is proven is not what the paper claims."""
        return self.proof.reason

    def __str__(self) -> str:
        proven = "none" if self.guarantee is None else self.guarantee.short
        last, best = max(1, self.episodes // 10), np.broadcast_to(self.optimal_value, self.episodes)
        lines = [
            f"{self.algorithm}, {'as printed' if self.printed else 'corrected'}",
            f"episodes         {self.episodes:,}",
            f"regret           {self.regret[-1]:,.6g}",
            f"value at the end {self.values[-last:].mean():.6g} of {best[-last:].mean():.6g}",
            f"claimed          {self.proof.claim}",
            f"proven           {proven}",
            f"because          {self.reason}",
        ]
        return "\n".join(lines)


NO_NOISE = Proof("none", None, "no noise was added")
"""Of what is not private."""


def failure_of(failure: float) -> float:
    """A probability of failure, checked."""
    return checked_number("failure", failure, "above 0 and at most 1", lambda f: 0 < f <= 1)


def gaussian_proof(
    mu: float | None,
    delta: float,
    releases: int,
    claim: str,
    mechanism: str,
    reason: str,
    **words: Any,
) -> Proof:
    """The proof of a mechanism of Gaussian noise that is mu-GDP under replace-one.

    ``epsilon`` is what it was made for, if anything, else what mu implies; of noise that is not
    Gaussian it is all there is, and mu is ``None``.
    """
    if mu is not None and words.get("epsilon") is None:
        words["epsilon"] = epsilon_from_mu(mu, delta)
    words |= {"delta": delta, "mu": mu, "releases": releases, "mechanism": mechanism}
    words |= {"relation": Relation.REPLACE_ONE, "simulation_only": True}
    words.setdefault("model", "joint")
    return Proof(claim, Guarantee(**words), reason)
