"""Audits of whole agents: what one user's data really changes in what is published.

:func:`audit_agent` looks at an agent from outside and does not believe what it says of itself.

1. **Sensitivity.** Every statistic that passed the gate is attacked; the two users whose vectors
   are farthest apart are found by search.
2. **Accounts.** With those two as neighbours, the exact cost of the whole transcript is added up
   from what the gate was asked for: sum of |shift|^2 / s^2, with the noise s that was claimed.
3. **Noise.** The agent runs again and again, with one or with the other of the two. The noise of
   every release is measured against the claimed one: its size, and that no two releases share it.
4. **Transcript.** From the exact shift and the measured noise follows the true mu of telling the
   two apart. The privacy loss of neighbouring runs must be N(+-mu^2 / 2, mu^2), or less.
5. **Outside view.** A threshold on one number of the output, chosen on one half of the runs and
   judged on the other, gives a lower bound on mu that holds with a stated probability, whatever
   the agent does. It is compared with the claimed mu, never as an epsilon at a tiny delta.
6. **Behaviour.** The checks of :func:`tacit.check_agent`.

A pass is no proof: the proof is in the docstrings. A fail is one, but for the stated chance of a
false alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.checks import Outcome, agent_outcomes
from tacit.loop import Progress, World, progress_bar
from tacit.made_up_users import raw_block, sampler_of
from tacit.privacy.audit import EmpiricalAudit, audit_samples, counter_matrices
from tacit.privacy.budget import epsilon_from_mu
from tacit.privacy.check_statistics import check_statistic
from tacit.privacy.curator import JointStream
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.gate import Stream
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.local import noise_scale, report
from tacit.privacy.models import JointDP, LocalDP
from tacit.privacy.statistic import Block, Statistic
from tacit.watched_gate import Passage, WatchedGate

Floats: TypeAlias = NDArray[np.float64]

# Each statistical test alarms falsely with this probability at most, two-sided normal.
_SIGMAS = 6.0
FALSE_ALARM = 1e-3
"""The chance that all tests of one audit together alarm although nothing is wrong, at most."""


@dataclass(frozen=True)
class Attacked:
    """One statistic under attack.

    Attributes:
        name: of the statistic.
        declared: its sensitivity, in the norm and relation of the accounts.
        found: the largest distance of two users that was found.
        failure: why the statistic does not keep its contract, or ``None``.
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
        claimed: the mu (or, for pure models, the epsilon) that one episode may cost.
        pure: whether it is an epsilon.
        accounted: the exact cost of telling them apart, with the claimed noise.
        noise_ratio: measured over claimed variance of the noise.
        noise_values: how many values that is from.
        overlap: the largest correlation of the noise of two releases, in standard deviations.
        losses: log-likelihood ratios of the runs with the first user, by the claimed noise.
        other_losses: those of the runs with the second one.
        outside: the bound from a threshold.
    """

    block: int
    claimed: float
    pure: bool
    accounted: float
    noise_ratio: float
    noise_values: int
    overlap: float
    losses: Floats
    other_losses: Floats
    outside: EmpiricalAudit

    @property
    def runs(self) -> int:
        """Of each kind."""
        return int(self.losses.size)

    @property
    def estimate(self) -> float:
        """The cost of telling them apart by the measured noise and the exact shift."""
        return self.accounted / math.sqrt(max(self.noise_ratio, 1e-12))

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        found = []
        unit = "epsilon" if self.pure else "mu"
        if self.accounted > self.claimed * (1.0 + 1e-9):
            found.append(
                f"block {self.block}: the releases cost {unit} {self.accounted:.4g}, claimed is "
                f"{self.claimed:.4g}"
            )
        spread = math.sqrt((5.0 if self.pure else 2.0) / max(self.noise_values, 1))
        if self.noise_ratio < 1.0 - _SIGMAS * spread:
            found.append(
                f"block {self.block}: the noise has {self.noise_ratio:.3f} of the variance that "
                f"was claimed ({self.noise_values:,} values)"
            )
        if self.overlap > _SIGMAS + 1.0:
            found.append(
                f"block {self.block}: two releases share noise ({self.overlap:.1f} standard "
                "deviations)"
            )
        if not self.pure and self.outside.mu > self.claimed:
            found.append(
                f"block {self.block}: a threshold tells the two users apart with {self.outside}, "
                f"claimed is {self.claimed:.4g}"
            )
        if self.pure and self._rates_beyond(self.claimed):
            found.append(
                f"block {self.block}: a threshold tells the two users apart better than epsilon "
                f"{self.claimed:.4g} allows"
            )
        return tuple(found)

    def _rates_beyond(self, epsilon: float) -> bool:
        """Whether confident rates break e^epsilon, in one direction or the other."""
        false, true = self.outside.false_positives, self.outside.true_positives
        factor = math.exp(min(epsilon, 700.0))
        return true > factor * false or 1.0 - false > factor * (1.0 - true)

    def to_dict(self) -> dict[str, Any]:
        """The numbers, without the single losses."""
        return {
            "block": self.block,
            "runs": self.runs,
            "unit": "epsilon" if self.pure else "mu",
            "claimed": self.claimed,
            "accounted": self.accounted,
            "estimate": self.estimate,
            "noise_ratio": self.noise_ratio,
            "noise_values": self.noise_values,
            "noise_overlap": self.overlap,
            "loss_mean": float(self.losses.mean()),
            "loss_variance": float(self.losses.var()),
            "lower_bound_mu": self.outside.mu,
            "confidence": self.outside.confidence,
        }


@dataclass(frozen=True, eq=False)
class AgentAudit:
    """What an audit found.

    Attributes:
        agent: the agent's name.
        world: the world's name.
        privacy: the model, in words.
        guarantee: what the agent claims.
        releases: publications in a run.
        statistics: those that were attacked.
        transcripts: by audited block.
        outcomes: the checks of behaviour.
        delta: at which lower bounds on mu are also given as an epsilon.
    """

    agent: str
    world: str
    privacy: str
    guarantee: Guarantee
    releases: int
    statistics: tuple[Attacked, ...]
    transcripts: tuple[Transcript, ...]
    outcomes: tuple[Outcome, ...] = ()
    delta: float = 1e-6
    notes: tuple[str, ...] = field(default=())

    @property
    def failures(self) -> tuple[str, ...]:
        """Everything that is wrong, in words."""
        found = [f"sensitivity of {s.name}: {s.failure}" for s in self.statistics if s.failure]
        found += [failure for t in self.transcripts for failure in t.failures]
        found += [str(o.failure) for o in self.outcomes if o.failure is not None]
        return tuple(found)

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

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        bound = self.lower_bound
        return {
            "verdict": "pass" if self.passed else "fail",
            "agent": self.agent,
            "world": self.world,
            "privacy": self.privacy,
            "guarantee": self.guarantee.to_dict(),
            "releases": self.releases,
            "statistics": [
                {
                    "name": s.name,
                    "declared": s.declared,
                    "found": s.found,
                    "tightness": s.tightness,
                    "passed": s.passed,
                }
                for s in self.statistics
            ],
            "transcripts": [t.to_dict() for t in self.transcripts],
            "mu_estimate": None if math.isnan(self.estimate) else self.estimate,
            "mu_lower_bound": bound,
            "epsilon_lower_bound": epsilon_from_mu(bound, self.delta) if bound > 0.0 else 0.0,
            "checks": [
                {
                    "name": o.name,
                    "outcome": "skipped"
                    if o.skipped
                    else ("failed" if o.failure is not None else "passed"),
                    "reason": o.skipped or (str(o.failure) if o.failure is not None else None),
                }
                for o in self.outcomes
            ],
            "failures": list(self.failures),
            "false_alarm": FALSE_ALARM,
            "notes": list(self.notes),
        }


def audit_agent(
    make_agent: Callable[..., Any],
    world: World,
    *,
    users: int = 400,
    runs: int = 1000,
    confidence: float = 0.9999,
    seed: int = 0,
    behaviour: bool = True,
    progress: Progress = True,
) -> AgentAudit:
    """Audits an agent on simulated users; see the module.

    Args:
        make_agent: ``make_agent(spec, users=, seed=, noise_seed=)``, with ``ledger=`` as well
            under joint DP, as for :func:`tacit.check_agent`.
        world: a small world.
        users: how many users the audited agents serve; three releases are needed at least.
        runs: how often the agent runs with each of the two users, per audited block.
        confidence: of the lower bound from outside.
        seed: of the users and the attack.
        behaviour: whether to make the checks of :func:`tacit.check_agent` as well.
        progress: whether to show a progress bar, on standard error.

    Raises:
        InvalidArgument: the agent has no privacy to audit.
    """
    auditor = _Auditor(make_agent, world, users, seed)
    blocks = auditor.audited_blocks()
    units = len(blocks) * 2 * runs + (12 * runs // 10 if behaviour else 0)
    with progress_bar(f"auditing {auditor.name}", units, progress) as advance:
        statistics, pairs = auditor.attack(blocks)
        transcripts = [
            auditor.transcript(b, pairs[b], runs, confidence, advance) for b in blocks if b in pairs
        ]
        outcomes: list[Outcome] = []
        if behaviour:
            for outcome in agent_outcomes(make_agent, world, users=users, seed=seed):
                outcomes.append(outcome)
                advance(runs // 10)
    privacy = auditor.privacy
    return AgentAudit(
        agent=auditor.name,
        world=world.name,
        privacy=repr(privacy),
        guarantee=auditor.guarantee,
        releases=auditor.releases,
        statistics=tuple(statistics),
        transcripts=tuple(transcripts),
        outcomes=tuple(outcomes),
        delta=privacy.delta if privacy.delta > 0.0 else 1e-6,
    )


class _Auditor:
    """One audit of one kind of agent."""

    def __init__(self, make_agent: Callable[..., Any], world: World, users: int, seed: int) -> None:
        self.make_agent = make_agent
        self.world = world
        self.users = users
        self.seed = seed
        agent = self.make(0)
        self.privacy = agent.privacy
        if not isinstance(self.privacy, (JointDP, LocalDP)):
            raise InvalidArgument(f"privacy is {self.privacy!r}: there is nothing to audit")
        self.name = str(getattr(agent, "name", type(agent).__name__))
        self.guarantee: Guarantee = agent.guarantee
        rng = np.random.default_rng(np.random.SeedSequence([11, seed]))
        self.blocks: list[Block] = []
        self.policies: list[Any] = []
        with WatchedGate().open() as gate:
            while agent.block_users > 0:
                policy = agent.policy
                served = world.simulate(policy, agent.block_users, rng, "episodes")
                agent.learn(served)
                self.blocks.append(raw_block(served))
                self.policies.append(policy)
        self.passages = gate.passages
        self.releases = len(self.blocks)

    def make(self, noise_seed: int) -> Any:
        return self.make_agent(
            self.world.spec, users=self.users, seed=self.seed, noise_seed=noise_seed
        )

    @property
    def pure(self) -> bool:
        return self.privacy.delta == 0.0 or (
            isinstance(self.privacy, LocalDP) and self.privacy.mechanism != "gaussian"
        )

    @property
    def norm(self) -> Literal["l1", "l2"]:
        return "l1" if self.pure else "l2"

    @property
    def claimed(self) -> float:
        """What one episode may cost, in mu or epsilon."""
        if isinstance(self.privacy, LocalDP):
            return self.privacy.report_cost
        limit = self.privacy.episode_limit
        return limit if self.pure else math.sqrt(limit)

    def audited_blocks(self) -> list[int]:
        """The first block, whose users are in most releases of a counter, and a later one."""
        return sorted({0, self.releases // 2} & set(range(self.releases)))

    # The attack.

    def attack(self, blocks: Sequence[int]) -> tuple[list[Attacked], dict[int, Block]]:
        """All statistics that the audited blocks were asked, and the farthest pair of each block.

        A block that is asked several times has the pair of its first question.
        """
        attacked: dict[str, Attacked] = {}
        pairs: dict[int, Block] = {}
        norm, relation = self.norm, self.privacy.relation
        for passage in self.passages:
            asked = [b for b in passage.blocks if b in blocks]
            statistic = passage.statistic
            new = [b for b in asked if b not in pairs]
            if not asked or (statistic.fingerprint in attacked and not new):
                continue
            block = asked[-1]
            sample = sampler_of(self.blocks[block], self.policies[block])
            declared = statistic.sensitivity(relation, norm)
            name = f"{relation.value} {norm}"
            try:
                found = check_statistic(statistic, sample, users=200, rounds=80, seed=self.seed)
                attacked[statistic.fingerprint] = Attacked(
                    statistic.name, declared, found.seen[name]
                )
                pair = found.pair
            except CheckFailed as error:
                attacked[statistic.fingerprint] = Attacked(
                    statistic.name, declared, math.nan, str(error)
                )
                pair = sample(np.random.default_rng(self.seed), 2)
            for b in new:
                pairs[b] = pair
        return list(attacked.values()), pairs

    # Runs.

    def transcript(
        self,
        block: int,
        pair: Block,
        runs: int,
        confidence: float,
        advance: Callable[[int], None],
    ) -> Transcript:
        measure = self._device if isinstance(self.privacy, LocalDP) else self._run
        seen: list[list[_Seen]] = []
        for which in (0, 1):
            some = []
            for i in range(runs):
                # Runs of the two kinds are independent: none shares its noise with another.
                some.append(measure(block, pair, which, 1 + 2 * i + which))
                advance(1)
            seen.append(some)
        everything = [*seen[0], *seen[1]]
        values = sum(s.values for s in everything)
        overlaps = np.array([s.overlap for s in everything if not math.isnan(s.overlap)])
        overlap = 0.0
        if overlaps.size:
            # Products of independent unit noise, each with variance 1.
            overlap = abs(float(overlaps.sum())) / math.sqrt(overlaps.size)
        scores = [np.array([s.score for s in some]) for some in seen]
        return Transcript(
            block=block,
            claimed=self.claimed,
            pure=self.pure,
            accounted=max(s.cost for s in everything),
            noise_ratio=sum(s.squares for s in everything) / max(values, 1),
            noise_values=values,
            overlap=overlap,
            losses=np.array([s.loss for s in seen[0]]),
            other_losses=np.array([s.loss for s in seen[1]]),
            outside=audit_samples(scores[1], scores[0], confidence=confidence),
        )

    def _run(self, block: int, pair: Block, which: int, noise_seed: int) -> _Seen:
        """A run of the agent with one of the two users in the first row of a block."""
        agent = self.make(noise_seed)
        data = list(self.blocks)
        data[block] = _with_user(data[block], pair, which)
        with WatchedGate().open() as gate:
            for raw in data:
                agent.learn(raw)
        seen = _Seen(self.pure)
        streams: dict[Stream, list[Passage]] = {}
        for passage in gate.passages:
            if passage.stream is not None:
                streams.setdefault(passage.stream, []).append(passage)
            else:
                self._add_release(seen, gate, passage, block, pair, which)
        for stream, passages in streams.items():
            if isinstance(stream, JointStream):
                self._add_stream(seen, gate, stream, passages, block, pair, which)
        return seen

    def _add_release(
        self,
        seen: _Seen,
        gate: WatchedGate,
        passage: Passage,
        block: int,
        pair: Block,
        which: int,
    ) -> None:
        statistic, release = passage.statistic, passage.release
        shares = passage.shares
        totals = [
            share * statistic.total(gate.blocks[passage.gate, b])
            for b, share in zip(passage.blocks, shares, strict=True)
        ]
        largest = max(abs(share) for share in shares)
        vector = statistic.layout.pack(release.parts)
        scale = largest * statistic.sensitivity(self.privacy.relation, self.norm)
        scale /= float(release.cost or math.nan)
        noise = (vector - sum(totals)) / scale
        shift = np.zeros_like(noise)
        if block in passage.blocks:
            shift = shares[passage.blocks.index(block)] * _difference(statistic, pair) / scale
        if passage.mask is not None:
            kept = statistic.layout.pack_mask(passage.mask)
            noise, shift = noise[kept], shift[kept]
        seen.add(noise, shift, which)

    def _add_stream(
        self,
        seen: _Seen,
        gate: WatchedGate,
        stream: JointStream,
        passages: Sequence[Passage],
        block: int,
        pair: Block,
        which: int,
    ) -> None:
        entered = [passage.blocks[0] for passage in passages]
        if block not in entered:
            return
        k = entered.index(block)
        inputs, noise = counter_matrices(stream.counter, len(passages))
        statistic = passages[k].statistic
        prefix: Floats = np.zeros(statistic.layout.size)
        rows = []
        for passage in passages:
            raw = gate.blocks[passage.gate, passage.blocks[0]]
            prefix = prefix + passage.statistic.total(raw)
            rows.append(passage.statistic.layout.pack(passage.release.parts) - prefix)
        unit = np.linalg.pinv(noise)
        whitened = unit @ (np.stack(rows) / stream.step)
        column = unit @ inputs[:, k]
        shift = _difference(statistic, pair) / stream.step
        for t in range(len(passages)):
            seen.add(whitened[t], column[t] * shift, which)

    def _device(self, block: int, pair: Block, which: int, noise_seed: int) -> _Seen:
        """One report of one of the two, from her device."""
        passage = next(p for p in self.passages if block in p.blocks)
        statistic, privacy = passage.statistic, self.privacy
        assert isinstance(privacy, LocalDP)  # noqa: S101
        user = pair.take(slice(which, which + 1))
        sent = report(statistic, user, privacy, noise_seed=noise_seed)
        seen = _Seen(self.pure)
        if privacy.mechanism == "randomised response":
            seen.score = float(sent @ _difference(statistic, pair))
            return seen
        scale = noise_scale(statistic, privacy)
        noise = (sent - statistic.contributions(user)[0]) / scale
        seen.add(noise, _difference(statistic, pair) / scale, which)
        return seen


@dataclass(eq=False)
class _Seen:
    """What one run showed: noise in units of what was claimed, and the loss by it."""

    pure: bool
    squares: float = 0.0
    values: int = 0
    loss: float = 0.0
    score: float = 0.0
    overlap: float = math.nan
    _cost: float = 0.0
    _last: Floats | None = None

    @property
    def cost(self) -> float:
        return self._cost if self.pure else math.sqrt(self._cost)

    def add(self, noise: Floats, shift: Floats, which: int) -> None:
        """One release: y = T + noise, with T = the first user's or, minus the shift, the other's.

        The score is the log-likelihood ratio as a function of the output; under the first user it
        is the loss, under the second minus the loss.
        """
        sign = 1.0 if which == 0 else -1.0
        if self.pure:
            # Unit Laplace noise; sums of absolute values.
            score = float((np.abs(noise + sign * shift) - np.abs(noise)).sum()) * sign
            self._cost += float(np.abs(shift).sum())
            self.squares += float((noise**2).sum()) / 2.0
        else:
            score = float(noise @ shift) + sign * 0.5 * float(shift @ shift)
            self._cost += float(shift @ shift)
            self.squares += float((noise**2).sum())
        self.score += score
        self.loss += sign * score
        self.values += noise.size
        if self._last is not None and self._last.shape == noise.shape:
            length = float(np.linalg.norm(noise) * np.linalg.norm(self._last))
            if length > 0.0:
                cosine = float(noise @ self._last) / length
                product = cosine * math.sqrt(noise.size)
                self.overlap = product if math.isnan(self.overlap) else self.overlap
        self._last = noise


def _difference(statistic: Statistic, pair: Block) -> Floats:
    first, second = statistic.contributions(pair)
    difference: Floats = first - second
    return difference


def _with_user(block: Block, pair: Block, which: int) -> Block:
    """The block with one of the two in its first row; her version is that of the block."""
    arrays: dict[str, NDArray[Any]] = {name: np.array(a) for name, a in block.arrays.items()}
    for name, array in arrays.items():
        array[0] = pair[name][which]
    return Block(block.users, arrays)


def audit_words(audit: AgentAudit) -> Mapping[str, str]:
    """The verdict and the main numbers as labelled texts, for a terminal."""
    worst = max(audit.transcripts, key=lambda t: t.estimate, default=None)
    words = {
        "verdict": "pass" if audit.passed else "FAIL",
        "claim": audit.guarantee.short,
        "unit": audit.guarantee.unit,
    }
    for s in audit.statistics:
        words[f"sensitivity of {s.name}"] = (
            s.failure
            if s.failure is not None
            else f"declared {s.declared:.4g}, found {s.found:.4g} ({s.tightness:.1%})"
        )
    if worst is not None:
        unit = "epsilon" if worst.pure else "mu"
        words["transcript"] = (
            f"{unit} {worst.estimate:.4g} measured, {worst.accounted:.4g} accounted, "
            f"{worst.claimed:.4g} claimed ({2 * worst.runs:,} runs, worst pair found)"
        )
        words["noise"] = (
            f"{worst.noise_ratio:.4f} of the claimed variance ({worst.noise_values:,} values)"
        )
        words["from outside"] = str(worst.outside)
    return words
