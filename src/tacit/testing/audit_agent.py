"""Audits of whole agents: what one user's data really changes in what is published.

:func:`audit_agent` looks at an agent from outside and does not believe what it says of itself.

1. **Sensitivity.** Every statistic that passed the curator is attacked, in search of the two users
   whose vectors are farthest apart.
2. **Accounts.** What telling two users apart costs by what the curator was asked for: the sum of
   |shift|^2 / s^2 with the claimed noise s; for any two users, and for the two that were found.
3. **Noise.** The agent learns again and again, with one or with the other of the two; the noise of
   every release must be what was drawn, and as large as it should (:mod:`~.release_noise`). These
   runs leave out the store, by way of which the first one has released the same, bit for bit.
4. **Transcript.** From the exact shift and the measured noise follows the true mu of telling the
   two apart.
5. **Outside view.** A lower bound on mu, from outputs alone (:func:`tacit.audit_samples`). It is
   compared with the claimed mu, never as an epsilon at a tiny delta.
6. **Behaviour.** The checks of :func:`tacit.check_agent`.

A pass is no proof: the proof is in the docstrings. A fail is one, but for the stated chance of a
false alarm.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np

from tacit.core.algorithm import BlockInfo
from tacit.core.stored_run import Checkpoint
from tacit.core.world import World
from tacit.privacy.budget import Guarantee, Relation
from tacit.privacy.distributed import SumPlan
from tacit.privacy.errors import CheckFailed, InvalidArgument
from tacit.privacy.local import noise_scale, report
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Layout, Part, Statistic
from tacit.simulation.run import progress_bar
from tacit.testing.check_agent import Outcome, agent_outcomes, require_releases
from tacit.testing.check_statistic import check_statistic
from tacit.testing.mechanisms import EmpiricalAudit, audit_samples
from tacit.testing.recording import RecordingCurator, digest_of
from tacit.testing.release_noise import (
    Flips,
    Measured,
    Tally,
    demanded_shares,
    measured,
    noise_failures,
    secure_sum,
)
from tacit.testing.sample_users import Sample, raw_block, sampler_of, with_row

Unit: TypeAlias = Literal["mu", "epsilon"]

FALSE_ALARM = 1e-3
"""The chance that all tests of one audit together alarm although nothing is wrong, at most.

Two views from outside have 1e-4 each, the checks of behaviour 1e-5, and a few tests of noise 1e-11
each.
"""
_CONFIDENCE = 0.9999

# Statistics that are attacked at most, one by one.
_ATTACKED = 6
# Users of a world of many steps who are attacked.
_LONG_USERS = 60
# Devices of an audited secure sum: so many that some need not be honest.
_DEVICES = 20
# A threshold is chosen on one half of the runs and judged on the other.
_FEWEST_RUNS = 20
_NOISE_SEEDS = 1 << 24


def audit_agent(
    make_agent: Callable[..., Any],
    world: World,
    *,
    users: int = 400,
    runs: int = 1000,
    seed: int = 0,
    behaviour: bool = True,
    rounds: int = 80,
    long: World | None = None,
    progress: bool = True,
) -> AgentAudit:
    """Audits an agent on simulated users; see the module.

    Args:
        make_agent: ``make_agent(spec, users=, seed=, noise_seed=)``, with ``store=`` as well, as
            for :func:`tacit.check_agent`.
        world: a small world.
        users: how many users the audited agents serve; three releases are needed at least.
        runs: how often the agent runs with each of the two users, per audited block.
        seed: of the users and the attack.
        behaviour: whether to make the checks of :func:`tacit.check_agent` as well.
        rounds: of the search for the farthest pair.
        long: the same kind of world with many steps, where statistics are attacked once more.
        progress: whether to show a progress bar, on standard error.

    Raises:
        InvalidArgument: the agent has no privacy to audit.
    """
    if runs < _FEWEST_RUNS:
        raise InvalidArgument(f"runs must be at least {_FEWEST_RUNS}, got {runs!r}")
    auditor = _AgentAuditor(make_agent, world, users, seed, rounds)
    if behaviour:
        require_releases(auditor.make(), auditor.releases)
    # The first block, whose users are in most releases of a counter, and a later one.
    blocks = sorted({0, auditor.releases // 2} & set(range(auditor.releases)))
    units = len(blocks) * 2 * runs + 12 * behaviour * (runs // 10)
    transcripts, outcomes, broken = list[Transcript](), list[Outcome](), list[str]()
    with progress_bar(f"auditing {auditor.name}", units, progress) as advance:
        statistics, pairs = auditor.attack(blocks)
        statistics += auditor.attack_long(long) if long else []
        if auditor.elsewhere():
            broken.append("what is released by way of the store is not what is released without")
        for block, pair in sorted(pairs.items()):
            try:
                transcripts.append(auditor.transcript(block, pair, runs, advance))
            except Exception as error:
                broken.append(f"block {block}: {type(error).__name__}: {error}")
        for outcome in (
            agent_outcomes(make_agent, world, users=users, seed=seed) if behaviour else ()
        ):
            outcomes.append(outcome)
            advance(runs // 10)
    return AgentAudit(
        agent=auditor.name,
        world=world.name,
        privacy=repr(auditor.privacy),
        guarantee=auditor.guarantee,
        releases=auditor.releases,
        records=len(auditor.records),
        statistics=tuple(statistics),
        transcripts=tuple(transcripts),
        outcomes=tuple(outcomes),
        broken=tuple(broken),
    )


@dataclass(eq=False)
class _AgentAuditor:
    """One audit of one kind of agent."""

    make_agent: Callable[..., Any]
    world: World
    users: int
    seed: int
    rounds: int = 80

    def __post_init__(self) -> None:
        self._flips: Flips | None = None
        self._drawn: dict[bytes, object] = {}
        agent = self.make()
        self.privacy: Any = agent.privacy
        if not self.privacy.private:
            raise InvalidArgument(f"privacy is {self.privacy!r}: there is nothing to audit")
        self.pure, self.norm = self.privacy.needs_l1, self.privacy.norm
        self.name: str = agent.name
        self.guarantee: Guarantee = agent.guarantee
        rng = np.random.default_rng(np.random.SeedSequence([11, self.seed]))
        self.blocks: list[Block] = []
        self.policies: list[Any] = []
        self.starts: list[Checkpoint] = []
        with RecordingCurator().open() as self.recorder:
            while agent.block_users > 0:
                policy = agent.policy
                self.starts.append(agent._run.look().checkpoint)
                served = self.world.simulate(policy, agent.block_users, rng, "episodes")
                agent.learn(served)
                self.blocks.append(raw_block(served))
                self.policies.append(policy)
        self.records = self.recorder.records
        self.agent = self.make()
        self.releases = len(self.blocks)

    def make(self, world: World | None = None) -> Any:
        known = {"users": self.users, "seed": self.seed, "noise_seed": self._noise(0)}
        return self.make_agent((world or self.world).spec, **known)

    def _noise(self, seed: int) -> int:
        # Audits with different seeds share no noise.
        return seed + _NOISE_SEEDS * self.seed

    @property
    def claimed(self) -> float:
        """The claimed cost of one episode, in mu or epsilon."""
        if self.privacy.devices_add:
            return float(self.privacy.report_cost)
        limit = float(self.privacy.episode_limit)
        return limit if self.pure else math.sqrt(limit)

    def bound(self, block: int) -> float:
        """The largest cost of any two users of a block, by declared sensitivities and noise."""
        relation, norm = self.privacy.relation, self.norm
        if self.privacy.reports_bits:
            return self.claimed
        if self.privacy.devices_add:
            asked = next(p.statistic for p in self.records if block == p.block)
            return asked.sensitivity(relation, norm) / self._claimed_scale(asked)
        run = measured(self.recorder)
        costs = [
            abs(one.gains[block]) * self._of(one, run, block).sensitivity(relation, norm)
            for one in run
            if one.gains.get(block)
        ]
        return math.fsum(costs) if self.pure else math.hypot(*costs)

    def _claimed_scale(self, statistic: Statistic) -> float:
        """Of the noise in a report, or in a secure sum from its honest devices alone."""
        if self.privacy.local:
            return noise_scale(statistic, self.privacy)
        step = SumPlan.of(statistic, self.privacy, _DEVICES).step
        return step * demanded_shares(statistic, self.privacy, _DEVICES, step)[2]

    def elsewhere(self) -> bool:
        """Whether the first run, by way of a store, is another one without."""
        again = replayed(self.agent, self.blocks, self._noise(0), self.starts[0]).records
        released = [digest_of([p.release for p in run]) for run in (self.records, again)]
        return released[0] != released[1]

    # The attack.

    def attack(self, blocks: Sequence[int]) -> tuple[list[Attacked], dict[int, Block]]:
        """Statistics that the audited blocks were asked, and the farthest pair of each block.

        A block that is asked several times has the pair that all of its questions together tell
        apart best.
        """
        attacked: list[Attacked] = []
        pairs: dict[int, Block] = {}
        distinct: dict[str, tuple[Statistic, int]] = {}
        for record in self.records:
            if record.block in blocks:
                asked = (record.statistic, record.block)
                distinct.setdefault(record.statistic.fingerprint, asked)
        questions = list(distinct.values())
        for k in np.linspace(0, len(questions) - 1, min(len(questions), _ATTACKED)).astype(int):
            found, pair = self._attack(questions[k][0], self._sampler(questions[k][1]))
            attacked.append(found)
            pairs.setdefault(questions[k][1], pair)
        for b in blocks:
            all_asked = self._asked(b)
            if b not in pairs and all_asked:
                pairs[b] = self._attack(all_asked[0][0], self._sampler(b))[1]
            if len(all_asked) > 1:
                together = _Together(tuple((s, abs(gain)) for s, gain in all_asked))
                pairs[b] = self._attack(together, self._sampler(b))[1]
        return attacked, pairs

    def _sampler(self, block: int) -> Sample:
        return sampler_of(self.blocks[block], self.policies[block])

    def attack_long(self, world: World) -> list[Attacked]:
        """The attack on the first query of a world with more steps, if the agent takes it."""
        try:
            agent = self.make(world)
        except InvalidArgument:
            return []
        rng, users = np.random.default_rng(self.seed), min(agent.block_users, _LONG_USERS)
        block = raw_block(world.simulate(agent.policy, users, rng, "episodes"))
        return [self._attack(agent.statistic, sampler_of(block, agent.policy))[0]]

    def _attack(self, statistic: Statistic, sample: Sample) -> tuple[Attacked, Block]:
        norm, relation = self.norm, self.privacy.relation
        name, declared = statistic.name, statistic.sensitivity(relation, norm)
        try:
            found = check_statistic(
                statistic, sample, users=200, rounds=self.rounds, seed=self.seed
            )
        except CheckFailed as error:
            pair = sample(np.random.default_rng(self.seed), 2)
            return Attacked(name, declared, math.nan, str(error)), pair
        return Attacked(name, declared, found.seen[f"{relation.value} {norm}"]), found.pair

    def _asked(self, block: int) -> list[tuple[Statistic, float]]:
        """The queries of a block in the first run, and how loud their releases are."""
        if self.privacy.devices_add:
            return [(p.statistic, 1.0) for p in self.records if block == p.block][:1]
        return [
            (one.record.statistic, one.gains[block])
            for one in measured(self.recorder)
            if block == one.record.block
        ]

    # Runs.

    def transcript(
        self, block: int, pair: Block, runs: int, advance: Callable[[int], None]
    ) -> Transcript:
        """Runs with one or the other of two users in a block, compared.

        Args:
            block: the block.
            pair: the two users.
            runs: with each of them.
            advance: is told how many runs are done.
        """
        measure = self._device if self.privacy.devices_add else self._run
        seen: tuple[list[_Seen], list[_Seen]] = [], []
        bits = self.privacy.reports_bits
        noise, wrong = Tally("laplace" if self.pure and not bits else "normal"), list[str]()
        self._flips, self._drawn = None, {}
        for which in (0, 1):
            for i in range(runs):
                # Runs of the two kinds are independent: none shares its noise with another.
                seen[which].append(measure(block, pair, which, 1 + 2 * i + which, noise, wrong))
                advance(1)
        everything = [*seen[0], *seen[1]]
        scores = [np.array([s.score for s in some]) for some in seen]
        if self._flips is not None:
            wrong += self._flips.wrong
        elif noise.values and noise.wrong:
            words = f"the variance of {noise.values} noise values is {noise.ratio:.3f} of what "
            wrong.insert(0, f"{words}sensitivity and cost demand")
        failures = [("transcript noise", words) for words in dict.fromkeys(wrong)][:3]
        return Transcript(
            block=block,
            runs=runs,
            unit="epsilon" if self.pure else "mu",
            claimed=self.claimed,
            bound=self.bound(block),
            accounted=max(s.cost for s in everything),
            noise_ratio=noise.ratio,
            noise_values=noise.values,
            outside=audit_samples(scores[1], scores[0], confidence=_CONFIDENCE),
            noise_findings=tuple(failures),
        )

    def _run(
        self, block: int, pair: Block, which: int, noise_seed: int, noise: Tally, wrong: list[str]
    ) -> _Seen:
        """A run of the agent with one of the two users in the first row of a block."""
        data = list(self.blocks)
        # Her version is that of the block.
        data[block] = with_row(data[block], 0, pair.take(slice(which, which + 1)))
        start = self.starts[0]
        if self.agent.algorithm.counter == "blocks" and noise_seed > 2:
            # Noise is fresh for every block: others are learnt from once with each user.
            data, start, block = [data[block]], self.starts[block], 0
        recorder = replayed(self.agent, data, self._noise(noise_seed), start)
        seen, run = _Seen(self.pure), measured(recorder)
        wrong += noise_failures(run, self._drawn)
        for one in run:
            shift = np.zeros_like(one.noise)
            if one.gains.get(block):
                statistic = self._of(one, run, block)
                first, second = statistic.contributions(pair)
                shift = one.gains[block] * (first - second)
            noise.add(one.noise)
            seen.add(one.noise, shift, which)
        return seen

    @staticmethod
    def _of(one: Measured, run: Sequence[Measured], block: int) -> Statistic:
        """The statistic that the users of a block were asked for a release."""
        if one.record.stream is None:
            return one.record.statistic
        # A stream may have asked them something else than its newest users.
        return next(
            other.record.statistic
            for other in run
            if other.record.stream is not None and other.record.block == block
        )

    def _device(
        self, block: int, pair: Block, which: int, noise_seed: int, noise: Tally, wrong: list[str]
    ) -> _Seen:
        """One report of one of the two, from her device, or a sum that her share is in."""
        statistic = next(p.statistic for p in self.records if block == p.block)
        user, privacy, seen = pair.take(slice(which, which + 1)), self.privacy, _Seen(self.pure)
        if not privacy.local:
            honest = max(1, math.ceil(privacy.honest * _DEVICES))
            others = with_row(self.blocks[block].take(slice(0, honest)), 0, user)
            _, added, words = secure_sum(statistic, others, privacy, _DEVICES)
            wrong += words
            first, second = statistic.contributions(pair)
            noise.add(added)
            seen.add(added, (first - second) / self._claimed_scale(statistic), which)
            return seen
        sent = report(statistic, user, privacy, noise_seed=noise_seed)
        truth = statistic.contributions(pair)
        if privacy.reports_bits:
            self._flips = self._flips or Flips.of(statistic, privacy)
            self._flips.add(sent, truth[which])
            chances = self._flips.chances(truth)
            noise.add((sent - chances[which]) / np.sqrt(chances[which] * (1.0 - chances[which])))
            seen.add_bits(sent, chances)
            return seen
        scale = self._claimed_scale(statistic)
        noise.add((sent - truth[which]) / scale)
        seen.add((sent - truth[which]) / scale, (truth[0] - truth[1]) / scale, which)
        return seen


def replayed(
    agent: Any, blocks: Sequence[Block], noise_seed: int, now: Checkpoint
) -> RecordingCurator:
    """The releases of blocks with other noise, from a checkpoint on, without a store.

    Of an agent that learns by its store the releases are the same, bit for bit.

    Args:
        agent: One that has learnt nothing yet.
        blocks: Raw, in their order.
        noise_seed: Of the noise.
        now: The checkpoint.
    """
    algorithm, curator, stream = agent.algorithm, agent._run.curator, None
    state, plan, at, curator.source = now.state, now.plan, now.at, Noise(noise_seed)
    if algorithm.counter != "blocks" and algorithm.privacy.joint:
        releases = algorithm.schedule.releases
        stream = curator.stream(agent.statistic, releases=releases, kind=algorithm.counter)
    rng = np.random.default_rng(0)
    rng.bit_generator.state = now.rng
    with RecordingCurator().open() as recorder:
        for raw in blocks:
            if algorithm.block_users(at) == 0:
                raise CheckFailed("it stopped before all declared users came")
            info = BlockInfo(**vars(at), users=raw.users, versions={plan.policy.version: raw.users})
            queries, spent = algorithm.learn(state, plan, info, rng), Fraction(0)
            query = next(queries)
            try:
                while True:
                    if stream is None:
                        mu = query.price(algorithm.privacy)
                        release = curator.release_block(query.statistic, raw, mu=mu, spent=spent)
                    else:
                        stream.ask(query.statistic)
                        release = stream.release_block(raw)
                    spent += curator.price(release)
                    query = queries.send(release)
            except StopIteration as end:
                state = end.value
            served = at.served + raw.users
            at = dataclasses.replace(at, releases=at.releases + 1, served=served)
            if raw is blocks[-1]:
                break
            plan = algorithm.numbered(algorithm.plan(state, plan, at, rng), at.offset + at.releases)
    return recorder


@dataclass(eq=False)
class _Seen:
    """The score of one run, for the view from outside, and its cost."""

    pure: bool
    score: float = 0.0
    _cost: float = 0.0

    @property
    def cost(self) -> float:
        return self._cost if self.pure else math.sqrt(self._cost)

    def add_bits(self, bits: Floats, chances: Floats) -> None:
        """Bits of randomised response, and the chances that they are 1 for each of the two."""
        one, zero = np.log(chances), np.log1p(-chances)
        apart = np.stack([one[0] - one[1], zero[0] - zero[1]])
        # The most that any bits tell, in one direction or the other.
        most = max(float(apart.max(axis=0).sum()), float((-apart).max(axis=0).sum()))
        self._told(float(np.where(bits > 0.0, *apart).sum()), most)

    def add(self, noise: Floats, shift: Floats, which: int) -> None:
        """One release: y = T + noise, with T = the first user's or, minus the shift, the other's.

        The score is the log-likelihood ratio as a function of the output.
        """
        sign = 1.0 if which == 0 else -1.0
        if self.pure:
            # Unit Laplace noise; sums of absolute values.
            score = float((np.abs(noise + sign * shift) - np.abs(noise)).sum()) * sign
            self._told(score, float(np.abs(shift).sum()))
        else:
            square = float(shift @ shift)
            self._told(float(noise @ shift) + sign * 0.5 * square, square)

    def _told(self, score: float, cost: float) -> None:
        self.score += score
        self._cost += cost


@dataclass(frozen=True, eq=False)
class _Together(Statistic):
    """All questions that a block was asked, as one, in units of their noise.

    ``asked`` are statistics, and how loud their answers are.
    """

    asked: tuple[tuple[Statistic, float], ...] = ()

    @property
    def layout(self) -> Layout:
        return Layout((Part("all", (sum(s.layout.size for s, _ in self.asked),)),))

    def l2(self, relation: Relation) -> float:
        """Squares add up, for each is covered."""
        return math.sqrt(sum((gain * s.l2(relation)) ** 2 for s, gain in self.asked))

    def l1(self, relation: Relation) -> float | None:
        bounds = [(s.l1(relation), gain) for s, gain in self.asked]
        if any(bound is None for bound, _ in bounds):
            return None
        return sum(gain * (bound or 0.0) for bound, gain in bounds)

    def vectors(self, block: Block) -> Floats:
        return np.concatenate([gain * s.vectors(block) for s, gain in self.asked], axis=1)


# What was found.


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
    def tightness(self) -> float:
        """Found over declared."""
        return self.found / self.declared


@dataclass(frozen=True)
class Transcript:
    """Runs of an agent with one or the other of two users in one block.

    Attributes:
        block: which block they are in.
        runs: with each of them.
        unit: what costs are in: mu, or epsilon for pure models.
        claimed: what one episode may cost.
        bound: what any two users within the declared sensitivities can cost, from all releases
            that the block is in and their claimed noise.
        accounted: the exact cost of telling these two apart, with the claimed noise.
        noise_ratio: measured over claimed variance of the noise, from so many values.
        outside: the bound from a threshold.
        noise_findings: what is wrong with the noise, by name of the test.
    """

    block: int
    runs: int
    unit: Unit
    claimed: float
    bound: float
    accounted: float
    noise_ratio: float
    noise_values: int
    outside: EmpiricalAudit
    noise_findings: tuple[tuple[str, str], ...] = ()

    @property
    def estimate(self) -> float:
        """The cost of telling them apart by the measured noise and the exact shift."""
        return self.accounted / math.sqrt(max(self.noise_ratio, 1e-12))

    @property
    def findings(self) -> tuple[tuple[str, str], ...]:
        """All failures: which test found it, and what in words."""
        found, claimed = list[tuple[str, str]](), f"claimed is {self.claimed:.4g}"
        cost, pure = max(self.accounted, self.bound), self.unit == "epsilon"
        if cost > self.claimed * (1.0 + 1e-9):
            found.append(("accounts", f"the releases cost {self.unit} {cost:.4g}, {claimed}"))
        found += self.noise_findings
        # Confident rates that break e^epsilon, in one direction or the other.
        false, true = self.outside.false_positives, self.outside.true_positives
        factor = math.exp(min(self.claimed, 700.0))
        broken = true > factor * false or 1.0 - false > factor * (1.0 - true)
        if broken if pure else self.outside.mu > self.claimed:
            words = f"a threshold tells the two users apart with {self.outside}"
            found.append(("outside view", f"{words}, {claimed} in {self.unit}"))
        return tuple((name, f"block {self.block}: {words}") for name, words in found)

    def to_dict(self) -> dict[str, Any]:
        """The numbers."""
        names = ["block", "runs", "unit", "claimed", "bound", "accounted", "estimate"]
        names += ["noise_ratio", "noise_values"]
        outside = {"lower_bound_mu": self.outside.mu, "confidence": self.outside.confidence}
        return {name: getattr(self, name) for name in names} | outside


@dataclass(frozen=True, eq=False)
class AgentAudit:
    """Findings of an audit.

    Attributes:
        guarantee: what the agent claims.
        releases: publications in a run.
        records: releases through the curator in a run.
        transcripts: by audited block.
        outcomes: the checks of behaviour.
        broken: what ended runs of the transcript before they were through, in words.
    """

    agent: str
    world: str
    privacy: str
    guarantee: Guarantee
    releases: int
    records: int
    statistics: tuple[Attacked, ...]
    transcripts: tuple[Transcript, ...]
    outcomes: tuple[Outcome, ...] = ()
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
        return not self.findings

    @property
    def delta(self) -> float:
        """At which lower bounds on mu are also given as an epsilon."""
        return self.guarantee.delta or 1e-6

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        outside = [t.outside for t in self.transcripts]
        names = ("agent", "world", "privacy", "releases", "records")
        return {
            "verdict": "pass" if self.passed else "fail",
            **{name: getattr(self, name) for name in names},
            "guarantee": self.guarantee.to_dict(),
            "statistics": [
                {n: getattr(s, n) for n in ("name", "declared", "found", "tightness")}
                | {"passed": s.failure is None}
                for s in self.statistics
            ],
            "transcripts": [t.to_dict() for t in self.transcripts],
            "mu_estimate": max((t.estimate for t in self.transcripts), default=None),
            "mu_lower_bound": max((o.mu for o in outside), default=0.0),
            "epsilon_lower_bound": max((o.epsilon(self.delta) for o in outside), default=0.0),
            "checks": [
                {"name": o.name, "outcome": o.verdict, "reason": o.reason} for o in self.outcomes
            ],
            "failures": list(self.failures),
            "failed": list(self.failed),
            "false_alarm": FALSE_ALARM,
        }

    def words(self) -> Mapping[str, str]:
        """The claim and the main numbers as labelled texts, for a terminal."""
        g = self.guarantee
        published = f"{self.records:,} by curators, {self.releases:,} policies published"
        words = {"claim": g.short, "unit": g.unit, "relation": g.relation.value}
        words |= {"mechanism": g.mechanism, "releases": published}
        # Several statistics may have one name: the worst of them is shown.
        for s in sorted(self.statistics, key=lambda s: (s.failure is not None, s.tightness)):
            found = f"declared {s.declared:.4g}, found {s.found:.4g} ({s.tightness:.1%})"
            words[f"sensitivity of {s.name}"] = s.failure or found
        t = max(self.transcripts, key=lambda t: t.estimate, default=None)
        if t is None:
            return words
        words["exact audit"] = (
            f"{t.unit} {t.bound:.4g} at most for any two users, {t.claimed:.4g} claimed; "
            f"{t.accounted:.4g} for the worst two found"
        )
        words["transcript"] = (
            f"{t.unit} {t.estimate:.4g} measured for these two ({2 * t.runs:,} runs)"
        )
        words["noise"] = f"{t.noise_ratio:.4f} of the claimed variance ({t.noise_values:,} values)"
        epsilon = f"epsilon >= {t.outside.epsilon(self.delta):.3g} at {self.delta:g}"
        words["from outside"] = f"{t.outside}, so {epsilon}"
        return words
