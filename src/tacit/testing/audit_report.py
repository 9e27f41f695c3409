"""What an audit of an agent found: numbers, findings and the verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tacit.privacy.gaussian_dp import epsilon_from_mu
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.statistic import Floats
from tacit.testing.check_agent import Outcome
from tacit.testing.mechanisms import EmpiricalAudit

Unit: TypeAlias = Literal["mu", "epsilon"]

FALSE_ALARM = 1e-3
"""The chance that all tests of one audit together alarm although nothing is wrong, at most.

Two views from outside have 1e-4 each, at the usual confidence, the checks of behaviour 1e-5, and
some hundreds of tests of noise 1e-11 each; see :mod:`tacit.testing.noise_tests`.
"""


@dataclass(frozen=True)
class Attacked:
    """One statistic under attack.

    Its declared sensitivity is in the norm and relation of the accounts, beside the largest
    distance of two users that was found; ``failure`` says why it does not keep its contract.
    """

    name: str
    declared: float
    found: float
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing beyond the declared bound was found."""
        return self.failure is None

    @property
    def tightness(self) -> float:
        """Found over declared."""
        return self.found / self.declared


@dataclass(frozen=True, eq=False)
class Transcript:
    """Runs of an agent with one or the other of two users in one block.

    Attributes:
        block: which block they are in.
        unit: what costs are in: mu, or epsilon for pure models.
        claimed: what one episode may cost.
        bound: what any two users within the declared sensitivities can cost, from all releases
            that the block is in and their claimed noise.
        accounted: the exact cost of telling these two apart, with the claimed noise.
        noise_ratio: measured over claimed variance of the noise, from so many values.
        overlap: the largest correlation of signs of two releases' noise, in standard deviations.
        noise_failures: what is wrong with the noise, by name of the test.
        along: measured over claimed variance of the noise in the direction that tells them apart,
            which is that of their losses; ``nan`` where it is not Gaussian.
        losses: log-likelihood ratios of the runs with the first user, by the claimed noise.
        other_losses: those of the runs with the second one.
        outside: the bound from a threshold.
    """

    block: int
    unit: Unit
    claimed: float
    bound: float
    accounted: float
    noise_ratio: float
    noise_values: int
    overlap: float
    losses: Floats
    other_losses: Floats
    outside: EmpiricalAudit
    along: float = math.nan
    noise_failures: tuple[tuple[str, str], ...] = ()

    @property
    def pure(self) -> bool:
        """Whether costs are epsilons."""
        return self.unit == "epsilon"

    @property
    def runs(self) -> int:
        """Of each kind."""
        return int(self.losses.size)

    @property
    def estimate(self) -> float:
        """The cost of telling them apart by the measured noise and the exact shift."""
        return self.accounted / math.sqrt(max(self.noise_ratio, 1e-12))

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """What is wrong: which test found it, and what in words."""
        found = []
        here, cost = f"block {self.block}: ", max(self.accounted, self.bound)
        if cost > self.claimed * (1.0 + 1e-9):
            words = f"the releases cost {self.unit} {cost:.4g}, claimed is {self.claimed:.4g}"
            found.append(("accounts", here + words))
        found += [(name, here + words) for name, words in self.noise_failures]
        if not self.pure and self.outside.mu > self.claimed:
            words = f"a threshold tells the two users apart with {self.outside}, claimed is "
            found.append(("outside view", f"{here}{words}{self.claimed:.4g}"))
        # Confident rates that break e^epsilon, in one direction or the other.
        false, true = self.outside.false_positives, self.outside.true_positives
        factor = math.exp(min(self.claimed, 700.0))
        if self.pure and (true > factor * false or 1.0 - false > factor * (1.0 - true)):
            words = f"a threshold tells the two users apart better than epsilon {self.claimed:.4g}"
            found.append(("outside view", f"{here}{words} allows"))
        return tuple(found)

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        return tuple(words for _, words in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, without the single losses."""
        names = ["block", "runs", "unit", "claimed", "bound", "accounted", "estimate"]
        names += ["noise_ratio", "noise_values"]
        return {name: getattr(self, name) for name in names} | {
            "noise_overlap": self.overlap,
            "loss_mean": float(self.losses.mean()),
            "loss_variance": float(self.losses.var()),
            "loss_ratio": None if math.isnan(self.along) else self.along,
            "lower_bound_mu": self.outside.mu,
            "confidence": self.outside.confidence,
        }


@dataclass(frozen=True, eq=False)
class AgentAudit:
    """What an audit found.

    Attributes:
        guarantee: what the agent claims.
        releases: publications in a run.
        passages: releases through the gate in a run.
        transcripts: by audited block.
        outcomes: the checks of behaviour.
        delta: at which lower bounds on mu are also given as an epsilon.
        broken: what ended runs of the transcript before they were through, in words.
    """

    agent: str
    world: str
    privacy: str
    guarantee: Guarantee
    releases: int
    passages: int
    statistics: tuple[Attacked, ...]
    transcripts: tuple[Transcript, ...]
    outcomes: tuple[Outcome, ...] = ()
    delta: float = 1e-6
    broken: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """Everything that is wrong: which check found it, and what in words.

        Names are those of :func:`tacit.check_agent`, ``"attack"``, those of transcripts, and
        ``"transcript"`` for runs that did not end as they should.
        """
        attacked = [s for s in self.statistics if s.failure]
        found = [("attack", f"sensitivity of {s.name}: {s.failure}") for s in attacked]
        found += [finding for t in self.transcripts for finding in t.findings]
        found += [("transcript", words) for words in self.broken]
        found += [(o.name, str(o.failure)) for o in self.outcomes if o.failure is not None]
        return tuple(found)

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that is wrong, in words."""
        return tuple(words for _, words in self.findings)

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the checks that found something, each once."""
        return tuple(dict.fromkeys(name for name, _ in self.findings))

    @property
    def passed(self) -> bool:
        """The verdict."""
        return not self.failures

    @property
    def estimate(self) -> float:
        """The largest cost that was measured."""
        return max((t.estimate for t in self.transcripts), default=math.nan)

    @property
    def lower_bound(self) -> float:
        """The largest mu that was shown from outside, with the stated confidence."""
        return max((t.outside.mu for t in self.transcripts), default=0.0)

    @property
    def epsilon_bound(self) -> float:
        """The same as an epsilon, at ``delta``."""
        bound = self.lower_bound
        return epsilon_from_mu(bound, self.delta) if bound > 0.0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "verdict": "pass" if self.passed else "fail",
            **{name: getattr(self, name) for name in ("agent", "world", "privacy")},
            "guarantee": self.guarantee.to_dict(),
            "releases": self.releases,
            "passages": self.passages,
            "statistics": [
                {n: getattr(s, n) for n in ("name", "declared", "found", "tightness", "passed")}
                for s in self.statistics
            ],
            "transcripts": [t.to_dict() for t in self.transcripts],
            "mu_estimate": None if math.isnan(self.estimate) else self.estimate,
            "mu_lower_bound": self.lower_bound,
            "epsilon_lower_bound": self.epsilon_bound,
            "checks": [
                {"name": o.name, "outcome": o.verdict, "reason": o.reason} for o in self.outcomes
            ],
            "failures": list(self.failures),
            "failed": list(self.failed),
            "false_alarm": FALSE_ALARM,
        }


def audit_words(audit: AgentAudit) -> Mapping[str, str]:
    """The verdict and the main numbers as labelled texts, for a terminal."""
    worst = max(audit.transcripts, key=lambda t: t.estimate, default=None)
    guarantee = audit.guarantee
    words = {
        "verdict": "pass" if audit.passed else "FAIL",
        "claim": guarantee.short,
        "unit": guarantee.unit,
        "relation": guarantee.relation.value,
        "mechanism": guarantee.mechanism,
        "releases": f"{audit.passages:,} through the gate, {audit.releases:,} policies published",
    }
    # Several statistics may have one name: the worst of them is shown.
    for s in sorted(audit.statistics, key=lambda s: (s.failure is not None, s.tightness)):
        found = f"declared {s.declared:.4g}, found {s.found:.4g} ({s.tightness:.1%})"
        words[f"sensitivity of {s.name}"] = found if s.failure is None else s.failure
    if worst is not None:
        unit = worst.unit
        words["exact audit"] = (
            f"{unit} {worst.bound:.4g} at most for any two users, {worst.claimed:.4g} claimed; "
            f"{worst.accounted:.4g} for the worst two found"
        )
        words["transcript"] = (
            f"{unit} {worst.estimate:.4g} measured for these two ({2 * worst.runs:,} runs)"
        )
        words["noise"] = (
            f"{worst.noise_ratio:.4f} of the claimed variance ({worst.noise_values:,} values)"
        )
        if not worst.pure and not math.isnan(worst.along):
            words["privacy loss"] = (
                f"variance {worst.losses.var():.4f}, claimed is {worst.claimed**2:.4f} at most; "
                f"{worst.along:.3f} of the claimed noise in the direction of these two"
            )
        epsilon = f"epsilon >= {audit.epsilon_bound:.3g} at {audit.delta:g}"
        words["from outside"] = f"{worst.outside}, so {epsilon}"
    return words
