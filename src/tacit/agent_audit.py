"""Audits of whole agents: what one user's data really changes in what is published.

:func:`audit_agent` looks at an agent from outside and does not believe what it says of itself.

1. **Sensitivity.** Every statistic that passed the gate is attacked; the two users whose vectors
   are farthest apart are found by search.
2. **Accounts.** With those two as neighbours, the exact cost of the whole transcript is added up
   from what the gate was asked for: sum of |shift|^2 / s^2, with the noise s that was claimed.
3. **Noise.** The agent runs again and again, with one or with the other of the two. The noise of
   every release is measured against the claimed one, by part, release and coordinate: its size,
   and that no two releases, parts or entries share it; see :mod:`tacit.gate_noise`.
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
from tacit.gate_noise import Law, Measured, NoiseRecord, Totals, measured
from tacit.loop import Progress, World, progress_bar
from tacit.made_up_users import Sample, mixed, raw_block, sampler_of
from tacit.privacy.audit import EmpiricalAudit, audit_samples
from tacit.privacy.budget import Relation, epsilon_from_mu
from tacit.privacy.check_statistics import check_statistic
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.gate import Stream
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.local import noise_scale, report
from tacit.privacy.models import JointDP, LocalDP
from tacit.privacy.statistic import Block, Layout, Part, Statistic
from tacit.watched_gate import WatchedGate
from tacit.worst_users import worst_users

Floats: TypeAlias = NDArray[np.float64]

# Statistics that are attacked at most, one by one.
_ATTACKED = 6
# A threshold is chosen on one half of the runs and judged on the other.
_FEWEST_RUNS = 20
_NOISE_SEEDS = 1 << 24
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
        overlap: the largest correlation of signs of two releases' noise, in standard deviations.
        noise_failures: what is wrong with the noise, in words, by name of the test.
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
    noise_failures: tuple[tuple[str, str], ...] = ()

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
        unit, here = "epsilon" if self.pure else "mu", f"block {self.block}: "
        if self.accounted > self.claimed * (1.0 + 1e-9):
            words = f"the releases cost {unit} {self.accounted:.4g}, claimed is {self.claimed:.4g}"
            found.append(("accounts", here + words))
        found += [(name, here + words) for name, words in self.noise_failures]
        if not self.pure and self.outside.mu > self.claimed:
            words = f"a threshold tells the two users apart with {self.outside}, claimed is "
            found.append(("outside view", f"{here}{words}{self.claimed:.4g}"))
        if self.pure and self._rates_beyond(self.claimed):
            words = f"a threshold tells the two users apart better than epsilon {self.claimed:.4g}"
            found.append(("outside view", f"{here}{words} allows"))
        return tuple(found)

    @property
    def failures(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        return tuple(words for _, words in self.findings)

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
        broken: what ended runs of the transcript before they were through, in words.
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
    broken: tuple[str, ...] = ()

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """Everything that is wrong: which check found it, and what in words.

        Names are those of :func:`tacit.check_agent`, and of the module: ``"attack"``,
        ``"accounts"``, ``"transcript noise"``, ``"transcript overlap"``, ``"outside view"`` and
        ``"transcript"`` for runs that did not end as they should.
        """
        found = [
            ("attack", f"sensitivity of {s.name}: {s.failure}")
            for s in self.statistics
            if s.failure
        ]
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
            "failed": list(self.failed),
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
    rounds: int = 80,
    seeds: int = 60,
    sample: Sample | None = None,
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
        rounds: of the search for the farthest pair.
        seeds: how many runs the checks on ties and labels compare.
        sample: makes users for the attack, beside those made from the world's own; those of
            :mod:`tacit.worst_users` by default.
        progress: whether to show a progress bar, on standard error.

    Raises:
        InvalidArgument: the agent has no privacy to audit.
    """
    if runs < _FEWEST_RUNS:
        raise InvalidArgument(f"runs must be at least {_FEWEST_RUNS}, got {runs!r}")
    auditor = _Auditor(make_agent, world, users, seed, rounds, sample)
    blocks = auditor.audited_blocks()
    units = len(blocks) * 2 * runs + (12 * runs // 10 if behaviour else 0)
    transcripts: list[Transcript] = []
    outcomes: list[Outcome] = []
    broken: list[str] = []
    with progress_bar(f"auditing {auditor.name}", units, progress) as advance:
        statistics, pairs = auditor.attack(blocks)
        for block in blocks:
            if block not in pairs:
                continue
            try:
                transcripts.append(
                    auditor.transcript(block, pairs[block], runs, confidence, advance)
                )
            except Exception as error:
                broken.append(f"block {block}: {type(error).__name__}: {error}")
        if behaviour:
            for outcome in agent_outcomes(
                make_agent, world, users=users, seeds=seeds, seed=seed, sample=sample
            ):
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
        broken=tuple(broken),
    )


class _Auditor:
    """One audit of one kind of agent."""

    def __init__(
        self,
        make_agent: Callable[..., Any],
        world: World,
        users: int,
        seed: int,
        rounds: int = 80,
        sample: Sample | None = None,
    ) -> None:
        self.make_agent = make_agent
        self.world = world
        self.users = users
        self.seed = seed
        self.rounds = rounds
        self.sample = sample
        self._differences: dict[str, Floats] = {}
        self._totals = Totals()
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
        self.gate = gate
        self.passages = gate.passages
        self.releases = len(self.blocks)

    def make(self, noise_seed: int) -> Any:
        # Audits with different seeds share no noise.
        own = noise_seed + _NOISE_SEEDS * self.seed
        return self.make_agent(self.world.spec, users=self.users, seed=self.seed, noise_seed=own)

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
        """Statistics that the audited blocks were asked, and the farthest pair of each block.

        A block that is asked several times has the pair that all of its questions together tell
        apart best.
        """
        attacked: dict[str, Attacked] = {}
        pairs: dict[int, Block] = {}
        questions: dict[str, tuple[Statistic, int]] = {}
        for passage in self.passages:
            for b in passage.blocks:
                if b in blocks:
                    questions.setdefault(passage.statistic.fingerprint, (passage.statistic, b))
        chosen = np.linspace(0, len(questions) - 1, min(len(questions), _ATTACKED)).astype(int)
        for k in chosen:
            fingerprint = list(questions)[k]
            statistic, block = questions[fingerprint]
            attacked[fingerprint], pair = self._attack(statistic, block)
            pairs.setdefault(block, pair)
        for b in blocks:
            asked = self._asked(b)
            if b not in pairs and asked:
                pairs[b] = self._attack(asked[0][0], b)[1]
            if len(asked) > 1:
                pairs[b] = self._attack(_Together.of(asked), b)[1]
        return list(attacked.values()), pairs

    def _attack(self, statistic: Statistic, block: int) -> tuple[Attacked, Block]:
        norm, relation = self.norm, self.privacy.relation
        sample = mixed(self._worst(block), sampler_of(self.blocks[block], self.policies[block]))
        name, declared = statistic.name, statistic.sensitivity(relation, norm)
        try:
            found = check_statistic(
                statistic, sample, users=200, rounds=self.rounds, seed=self.seed
            )
        except CheckFailed as error:
            pair = sample(np.random.default_rng(self.seed), 2)
            return Attacked(name, declared, math.nan, str(error)), pair
        return Attacked(name, declared, found.seen[f"{relation.value} {norm}"]), found.pair

    def _worst(self, block: int) -> Sample | None:
        """The caller's users, or those that are known to be far apart in worlds like this."""
        if self.sample is not None:
            return self.sample
        try:
            return worst_users(self.world.spec, self.policies[block])
        except InvalidArgument:
            return None

    def _asked(self, block: int) -> list[tuple[Statistic, float]]:
        """What a block was asked in the first run, and how loud its answers are."""
        if isinstance(self.privacy, LocalDP):
            return [(p.statistic, 1.0) for p in self.passages if block in p.blocks][:1]
        return [
            (one.passage.statistic, one.gains[block])
            for one in measured(self.gate) or ()
            if block in one.passage.blocks
        ]

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
        record = NoiseRecord()
        for which in (0, 1):
            some = []
            for i in range(runs):
                # Runs of the two kinds are independent: none shares its noise with another.
                some.append(measure(block, pair, which, 1 + 2 * i + which, record))
                advance(1)
            seen.append(some)
        everything = [*seen[0], *seen[1]]
        values = sum(s.values for s in everything)
        scores = [np.array([s.score for s in some]) for some in seen]
        failures = [("transcript noise", words) for words in record.sizes()[:3]]
        failures += [("transcript overlap", words) for words in record.shared()[:3]]
        return Transcript(
            block=block,
            claimed=self.claimed,
            pure=self.pure,
            accounted=max(s.cost for s in everything),
            noise_ratio=sum(s.squares for s in everything) / max(values, 1),
            noise_values=values,
            overlap=record.overlap,
            losses=np.array([s.loss for s in seen[0]]),
            other_losses=np.array([s.loss for s in seen[1]]),
            outside=audit_samples(scores[1], scores[0], confidence=confidence),
            noise_failures=tuple(failures),
        )

    def _run(
        self, block: int, pair: Block, which: int, noise_seed: int, record: NoiseRecord
    ) -> _Seen:
        """A run of the agent with one of the two users in the first row of a block."""
        agent = self.make(noise_seed)
        data = list(self.blocks)
        data[block] = _with_user(data[block], pair, which)
        with WatchedGate().open() as gate:
            for raw in data:
                if agent.block_users == 0:
                    raise CheckFailed("it stopped before all declared users came")
                agent.learn(raw)
        seen = _Seen(self.pure)
        run = measured(gate, self._totals) or []
        record.add(run)
        for one in run:
            noise = one.noise[one.kept]
            shift = np.zeros_like(noise)
            if one.gains.get(block):
                statistic = one.passage.statistic
                if one.passage.stream is not None:
                    # A stream may have asked her something else than its newest users.
                    statistic = self._entered_with(run, one.passage.stream, block)
                shift = (one.gains[block] * self._difference(statistic, pair))[one.kept]
            seen.add(noise, shift, which)
        return seen

    @staticmethod
    def _entered_with(run: Sequence[Measured], stream: Stream, block: int) -> Statistic:
        return next(
            one.passage.statistic
            for one in run
            if one.passage.stream is stream and one.passage.blocks[0] == block
        )

    def _difference(self, statistic: Statistic, pair: Block) -> Floats:
        """How far the two are apart; most runs ask the same again."""
        key = f"{statistic.fingerprint} {id(pair)}"
        if key not in self._differences:
            if len(self._differences) > 1000:
                self._differences.clear()
            first, second = statistic.contributions(pair)
            self._differences[key] = first - second
        return self._differences[key]

    def _device(
        self, block: int, pair: Block, which: int, noise_seed: int, record: NoiseRecord
    ) -> _Seen:
        """One report of one of the two, from her device."""
        passage = next(p for p in self.passages if block in p.blocks)
        statistic, privacy = passage.statistic, self.privacy
        assert isinstance(privacy, LocalDP)  # noqa: S101
        user = pair.take(slice(which, which + 1))
        sent = report(statistic, user, privacy, noise_seed=noise_seed)
        seen = _Seen(self.pure)
        if privacy.mechanism == "randomised response":
            seen.score = float(sent @ self._difference(statistic, pair))
            return seen
        scale = noise_scale(statistic, privacy)
        noise = (sent - statistic.contributions(user)[0]) / scale
        law: Law = "laplace" if self.pure else "normal"
        everything = np.ones(noise.size, dtype=bool)
        record.add([Measured(passage, 0, noise, everything, {}, law)])
        seen.add(noise, self._difference(statistic, pair) / scale, which)
        return seen


@dataclass(eq=False)
class _Seen:
    """What one run showed: noise in units of what was claimed, and the loss by it."""

    pure: bool
    squares: float = 0.0
    values: int = 0
    loss: float = 0.0
    score: float = 0.0
    _cost: float = 0.0

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


@dataclass(frozen=True, eq=False)
class _Together(Statistic):
    """All questions that a block was asked, as one, in units of their noise."""

    questions: tuple[Statistic, ...] = ()
    gains: tuple[float, ...] = ()

    @classmethod
    def of(cls, asked: Sequence[tuple[Statistic, float]]) -> _Together:
        """Of statistics and how loud their answers are."""
        return cls(tuple(s for s, _ in asked), tuple(abs(gain) for _, gain in asked))

    @property
    def layout(self) -> Layout:
        """One part."""
        return Layout((Part("all", (sum(s.layout.size for s in self.questions),)),))

    def l2(self, relation: Relation) -> float:
        """Squares add up, for each is covered."""
        pairs = zip(self.questions, self.gains, strict=True)
        return math.sqrt(sum((gain * s.l2(relation)) ** 2 for s, gain in pairs))

    def l1(self, relation: Relation) -> float | None:
        """They add up."""
        bounds = [s.l1(relation) for s in self.questions]
        if any(bound is None for bound in bounds):
            return None
        pairs = zip(bounds, self.gains, strict=True)
        return sum(gain * (bound or 0.0) for bound, gain in pairs)

    def vectors(self, block: Block) -> Floats:
        """Side by side."""
        pairs = zip(self.questions, self.gains, strict=True)
        return np.concatenate([gain * s.vectors(block) for s, gain in pairs], axis=1)


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
