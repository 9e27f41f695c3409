"""A conformance check that anyone can run on their own agents.

``check_agent`` is what every agent of Tacit passes. It plays short simulations and looks at them
from both sides of the gate: while they run, everything that enters a curator or a stream, and
everything that comes out, is written down, or is played back in place of what would come out.

It finds slips, not sabotage: an agent that recognises the check, or goes wrong only at a size that
is not tried, passes. It does not replace the proof.
"""

from __future__ import annotations

import dataclasses
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tacit.episodes import Episodes, Form
from tacit.gate_noise import NoiseRecord, measured, off_by, silence
from tacit.loop import Data, PermutedWorld, World, run
from tacit.made_up_users import (
    Sample,
    block_of_strangers,
    hostile_blocks,
    joined,
    mixed,
    of_version,
    raw_block,
    sampler_of,
    some_rows,
    with_public,
    with_row,
)
from tacit.privacy.audit import audit_counter
from tacit.privacy.budget import Budget, Relation
from tacit.privacy.check_statistics import check_statistic
from tacit.privacy.curator import JointCurator, JointStream
from tacit.privacy.errors import (
    CheckFailed,
    DoubleSpend,
    HorizonExceeded,
    InvalidArgument,
    TacitError,
)
from tacit.privacy.gate import Curator, Release, Stream
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.models import JointDP, LocalDP, NonPrivate
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.vector_episodes import VectorEpisodes
from tacit.watched_gate import Passage, WatchedGate, difference, overheard, snapshot

# Six standard deviations: a false alarm in 1e9 tests.
_SIGMAS = 6.0
# More users than 16 bits can count.
_CROWD = (1 << 15) + 7
# Chance of a false alarm of the check on labels, per release looked at.
_ALARM = 1e-6
# Statistics that are attacked, and numbers of noise that are looked at.
_STATISTICS = 3
_NOISE_VALUES = 2000
_NOISE_RUNS = 20
_FEWEST_NOISE_RUNS = 6
# The exact audit of a counter runs its code once per release, on matrices.
_AUDITED_RELEASES = 130
_SEED = 7


@dataclass(frozen=True)
class AgentReport:
    """What ``check_agent`` saw.

    Attributes:
        agent: the agent's name.
        passed: the checks that were made.
        skipped: those that were not, and why.
        releases: publications of the run that was looked at.
        tightness: the largest found over the declared sensitivity, by statistic attacked.
    """

    agent: str
    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    releases: int
    tightness: tuple[float, ...]

    def __str__(self) -> str:
        lines = [f"{self.agent}: {len(self.passed)} checks passed, {self.releases} releases"]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  skipped  {name}: {why}" for name, why in self.skipped.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Outcome:
    """What came of one check.

    Attributes:
        name: which.
        skipped: why it was not made, or ``None``.
        failure: what it found, or ``None``.
    """

    name: str
    skipped: str | None
    failure: CheckFailed | None


def check_agent(
    make_agent: Callable[..., Any],
    world: World,
    *,
    users: int = 1000,
    seeds: int = 60,
    seed: int = 0,
    budget: Budget | None = None,
    sample: Sample | None = None,
) -> AgentReport:
    """Checks everything an agent promises.

    * protocol: attributes and their types; somebody is to be served until all declared users are;
      releases count up, versions increase, and the agent runs on the form of data it asks for.
    * chunks: users may come in any portions; what is published is the same.
    * refusals: more users than declared, wrong shapes, ids for some only: a typed error, and
      nothing has changed.
    * sensitivity: the statistics that went through the gate are attacked by
      :func:`tacit.check_statistic`; sums of very many users do not wrap; with the noise switched
      off, what is released is the sum of the users' bounded vectors (rounded one by one, where
      noise is exact).
    * budget: everybody enters the gate once, no block spends more than an episode may, the
      guarantee is the declared budget.
    * noise: what was released minus the true sums is as large as sensitivity and cost demand, in
      every part, release and coordinate, neither smaller nor larger, and as releases state it; no
      two releases, parts or entries share it; two real runs with one seed differ.
    * data flow: with all releases forced to be the same, other users lead to the same policies,
      blocks, statistics, public attributes and messages (logged or printed), bit for bit; if one
      user changes, nobody's contribution but hers does, and hers in one block only; if all users
      of one block change, no other block's contributions do.
    * hostile users: values that are not finite, out of range or of another policy neither raise
      nor warn nor touch anybody else; counts that are masked by a policy count only those who
      followed this very one.
    * resume: a simulation saved in the middle of a block goes on identically in a fresh agent.
    * real resume: a real run goes on with fresh noise; with a ledger, once.
    * ties: on rewards that are all equal and with labels in random order, every action is chosen
      equally often.
    * labels: with actions named the other way round the agent earns as much.

    Random checks have fixed seeds; a correct agent fails one with a probability below 1e-5.

    Args:
        make_agent: makes an agent: ``make_agent(spec, users=, seed=, noise_seed=)``, with
            ``ledger=`` as well under joint DP; such as
            ``functools.partial(UCBVI, privacy=JointDP(1.0, 1e-6), schedule="fixed:size=100")``.
            Agents have ``load(path)`` (and ``ledger=``) beside what :class:`tacit.loop.Agent` asks.
        world: a small world. The check makes a few hundred short runs.
        users: how many users the agents are declared for; three releases are needed at least.
        seeds: how many runs the checks on ties and labels compare, half of them for labels.
        seed: of the simulated users.
        budget: what the guarantee must state, where it is not the budget that was given.
        sample: makes hostile users for the attack on statistics; see
            :func:`tacit.check_statistic`. Made from the world's own users by default.

    Raises:
        CheckFailed: the message begins with the check's name.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = _Trial(make_agent, world, users, seeds, seed, budget, sample, Path(folder))
        return trial.report()


def agent_outcomes(
    make_agent: Callable[..., Any],
    world: World,
    *,
    users: int = 1000,
    seeds: int = 60,
    seed: int = 0,
    budget: Budget | None = None,
    sample: Sample | None = None,
) -> Iterator[Outcome]:
    """The checks of :func:`check_agent` one by one, whatever they find; for reports."""
    with tempfile.TemporaryDirectory() as folder:
        trial = _Trial(make_agent, world, users, seeds, seed, budget, sample, Path(folder))
        yield from trial.outcomes()


def require_releases(agent: Any, releases: int) -> None:
    """Refuses agents that publish too seldom to be checked, but for those that ask all at once.

    Raises:
        InvalidArgument: with what to do.
    """
    if releases < 3 and not getattr(agent, "batch", False):
        raise InvalidArgument(
            f"users is {agent.users}, for which this agent publishes {releases} times; the check "
            "needs 3: give more users, or another schedule"
        )


# What passes the gate.


@dataclass(frozen=True, eq=False)
class _Run:
    """A whole run, from both sides."""

    blocks: list[Block]
    policies: list[Any]
    snapshots: list[dict[str, str]]
    gate: WatchedGate
    guarantee: str
    said: list[str]

    @property
    def script(self) -> list[Release]:
        return [passage.release for passage in self.gate.passages]


class _Trial:
    """One check of one kind of agent."""

    def __init__(
        self,
        make: Callable[..., Any],
        world: World,
        users: int,
        seeds: int,
        seed: int,
        budget: Budget | None,
        sample: Sample | None,
        folder: Path,
    ) -> None:
        self.make_agent = make
        self.world = world
        self.users = users
        self.seeds = seeds
        self.seed = seed
        self.budget = budget
        self.sample = sample
        self.folder = folder
        self.tightness: list[float] = []
        self.privacy: Any = getattr(self.make(), "privacy", None)
        if not isinstance(self.privacy, (JointDP, LocalDP, NonPrivate)):
            raise CheckFailed(f"protocol: privacy is {self.privacy!r}, not a privacy model")

    def make(self, seed: int = 0, real: bool = False, **options: Any) -> Any:
        noise_seed = None if real else _SEED + seed
        return self.make_agent(
            self.world.spec, users=self.users, seed=seed, noise_seed=noise_seed, **options
        )

    @property
    def varies(self) -> frozenset[str] | None:
        """The arrays that are protected, where others are public."""
        statistic: Statistic = self.first.gate.passages[0].statistic
        return statistic.varies

    def rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence([_SEED, self.seed, stream]))

    def outcomes(self) -> Iterator[Outcome]:
        """All checks, one after another; a failed one does not end it."""
        private = not isinstance(self.privacy, NonPrivate)
        exchangeable = isinstance(getattr(self.world.spec, "actions", None), int) and getattr(
            self.world, "exchangeable_actions", True
        )
        unnamed = None if exchangeable else "the labels of these actions mean something"
        checks: list[tuple[str, Callable[[], None], str | None]] = [
            ("protocol", self.check_protocol, None),
            ("chunks", self.check_chunks, None),
            ("refusals", self.check_refusals, None),
            ("sensitivity", self.check_sensitivity, None),
            ("budget", self.check_budget, None if private else "there is no budget"),
            ("noise", self.check_noise, None if private else "there is no noise"),
            ("data flow", self.check_data_flow, None),
            ("hostile users", self.check_hostile, None),
            ("resume", self.check_resume, None),
            ("real resume", self.check_real, None if private else "there is no noise"),
            ("ties", self.check_ties, unnamed),
            ("labels", self.check_labels, unnamed),
        ]
        self.first = self._guarded("protocol", self.play)
        require_releases(self.make(), len(self.first.blocks))
        for name, check, reason in checks:
            failure = None
            if reason is None:
                try:
                    self._guarded(name, check)
                except CheckFailed as error:
                    failure = error
            yield Outcome(name, reason, failure)

    def report(self) -> AgentReport:
        outcomes = []
        for outcome in self.outcomes():
            if outcome.failure is not None:
                raise outcome.failure
            outcomes.append(outcome)
        return AgentReport(
            str(getattr(self.make(), "name", "agent")),
            tuple(o.name for o in outcomes if o.skipped is None),
            {o.name: o.skipped for o in outcomes if o.skipped is not None},
            len(self.first.policies) - 1,
            tuple(self.tightness),
        )

    def _guarded(self, name: str, check: Callable[[], Any]) -> Any:
        try:
            return check()
        except CheckFailed as error:
            message = str(error)
            prefixed = message.startswith(f"{name}: ")
            raise CheckFailed(message if prefixed else f"{name}: {message}") from error
        except Exception as error:
            raise CheckFailed(f"{name}: {type(error).__name__}: {error}") from error

    # Runs.

    def play(
        self,
        agent: Any = None,
        users: Sequence[Data] | None = None,
        script: Sequence[Release] = (),
        stream: int = 0,
    ) -> _Run:
        """Serves all users: those of the world, or some that are given."""
        agent = self.make() if agent is None else agent
        rng = self.rng(stream)
        seen: list[Block] = []
        policies, snapshots = [agent.policy], [snapshot(agent)]
        with WatchedGate(script).open() as gate, overheard() as said:
            while agent.block_users > 0:
                releases = agent.releases
                if users is None:
                    served = self.world.simulate(agent.policy, agent.block_users, rng, "episodes")
                else:
                    served = users[len(seen)]
                agent.learn(served)
                seen.append(raw_block(served))
                if agent.releases != releases + 1:
                    raise CheckFailed(
                        f"a whole block of {seen[-1].users} users must lead to one release, but "
                        f"releases went from {releases} to {agent.releases}"
                    )
                policies.append(agent.policy)
                snapshots.append(snapshot(agent))
        return _Run(seen, policies, snapshots, gate, repr(agent.guarantee), said)

    def serve(
        self, seed: int, world: World, stream: int, blocks: int | None = None
    ) -> list[tuple[Any, int]]:
        """Policies and how many users each of them served; nobody watches."""
        agent, rng = self.make(seed), self.rng(stream)
        served: list[tuple[Any, int]] = []
        while (size := agent.block_users) > 0 and (blocks is None or len(served) < blocks):
            policy = agent.policy
            agent.learn(world.simulate(policy, size, rng, "episodes"))
            served.append((policy, size))
        return [*served, (agent.policy, 0)]

    def same(self, what: str, other: _Run, expected: _Run | None = None) -> None:
        """Everything public at every release is that of the first run."""
        expected = self.first if expected is None else expected
        for r, (mine, theirs) in enumerate(zip(expected.snapshots, other.snapshots, strict=False)):
            differing = difference(mine, theirs)
            if differing:
                raise CheckFailed(f"{what}: {', '.join(differing)} differ at release {r}")
        if expected.guarantee != other.guarantee:
            raise CheckFailed(f"{what}: the guarantee differs, {other.guarantee}")
        if len(expected.snapshots) != len(other.snapshots):
            raise CheckFailed(
                f"{what}: {len(other.snapshots) - 1} releases, not {len(expected.snapshots) - 1}"
            )

    # The checks.

    def check_protocol(self) -> None:
        agent = self.make()
        kinds: dict[str, Any] = {
            "users": int,
            "block_users": int,
            "releases": int,
            "guarantee": type(None) if isinstance(self.privacy, NonPrivate) else Guarantee,
        }
        for name, kind in kinds.items():
            value = getattr(agent, name)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise CheckFailed(f"{name} is {value!r}, but must be of type {kind.__name__}")
        if agent.form not in get_args(Form):
            raise CheckFailed(f"form is {agent.form!r}, but must be one of {get_args(Form)}")
        if agent.users != self.users or agent.releases != 0 or agent.block_users < 1:
            raise CheckFailed(
                f"made for {self.users} users, a fresh agent states users = {agent.users}, "
                f"releases = {agent.releases} and block_users = {agent.block_users}"
            )
        if agent.spec != self.world.spec:
            raise CheckFailed(f"spec is {agent.spec!r}, but the world's is {self.world.spec!r}")
        served = sum(block.users for block in self.first.blocks)
        if served != self.users:
            raise CheckFailed(f"{served} users were served, {self.users} were declared")
        versions = [policy.version for policy in self.first.policies]
        if any(b <= a for a, b in pairwise(versions)):
            raise CheckFailed(f"versions of published policies must increase, got {versions}")
        self.same("the same seeds again", self.play())
        agent = self.make()
        result = run(agent, self.world, self.seed, progress=False)
        if int(result.served[-1]) != self.users or agent.block_users != 0:
            raise CheckFailed(f"tacit.run served {int(result.served[-1])} of {self.users} users")
        agent.publish(self.folder / "policy")
        if not (self.folder / "policy").stat().st_size:
            raise CheckFailed("publish wrote an empty file")

    def check_chunks(self) -> None:
        rng = self.rng(1)
        agent = self.make()
        for r, block in enumerate(self.first.blocks):
            pieces = min(block.users, 4)
            cuts = np.sort(rng.choice(np.arange(1, block.users), pieces - 1, replace=False))
            edges = [0, *(int(cut) for cut in cuts), block.users]
            for start, stop in pairwise(edges):
                if agent.block_users != block.users - start:
                    raise CheckFailed(
                        f"{start} of {block.users} users came, and block_users is "
                        f"{agent.block_users}"
                    )
                agent.learn(block.take(slice(start, stop)))
            differing = difference(self.first.snapshots[r + 1], snapshot(agent))
            if differing:
                raise CheckFailed(
                    f"users in {pieces} portions instead of one: {', '.join(differing)} differ at "
                    f"release {r + 1}"
                )
        if len(self.first.blocks) == 1:
            return
        # Some come late, after the next policy was published.
        block = self.first.blocks[0]
        late = block.take(slice(0, max(1, self.first.blocks[1].users // 2)))
        apart, together = self.make(), self.make()
        apart.learn(block)
        apart.learn(late)
        together.learn(joined([block, late]))
        differing = difference(snapshot(apart), snapshot(together))
        if differing:
            raise CheckFailed(f"users of two blocks at once: {', '.join(differing)} differ")

    def check_refusals(self) -> None:
        block = self.first.blocks[0]
        half = max(1, block.users // 2)
        rest = block.take(slice(half, block.users))
        agent = self.make()
        self._refuse(agent, self._too_many(self.users + 1), HorizonExceeded)
        for wrong in self._wrong_shapes(block):
            self._refuse(agent, wrong, InvalidArgument)
        one = self.world.simulate(agent.policy, 1, self.rng(2), "episodes")
        ids = not isinstance(one, Block)
        if ids and half < block.users:
            agent.learn(_named(block.take(slice(0, half)), 0))
            self._refuse(agent, rest, InvalidArgument, "users without ids after users with ids")
            self._refuse(agent, self._too_many(self.users - half + 1), HorizonExceeded)
            for wrong in self._wrong_shapes(rest):
                self._refuse(agent, wrong, InvalidArgument)
            agent.learn(_named(rest, half))
            users = [_named(other, 10**6 * (1 + r)) for r, other in enumerate(self.first.blocks)]
            rest_of_run = self.play(agent, users=users[1:])
        else:
            rest_of_run = self.play(agent, users=self.first.blocks)
        for mine, theirs in zip(
            reversed(self.first.snapshots), reversed(rest_of_run.snapshots), strict=False
        ):
            differing = difference(mine, theirs)
            if differing:
                raise CheckFailed(f"after refusals {', '.join(differing)} differ")
        self._refuse(agent, block.take(slice(0, 1)), HorizonExceeded)

    def _too_many(self, users: int) -> Block:
        block = self.first.blocks[0]
        return some_rows(block, np.arange(users) % block.users)

    def _wrong_shapes(self, block: Block) -> Iterator[Block]:
        """Each array a column short or left out, or with an axis too many."""
        for name, array in block.arrays.items():
            # A statistic may do without some of them.
            if array.ndim > 1:
                yield Block(block.users, dict(block.arrays) | {name: array[:, :-1]})
                yield Block(block.users, dict(block.arrays) | {name: array[..., np.newaxis]})
                yield Block(block.users, {k: a for k, a in block.arrays.items() if k != name})

    def _refuse(self, agent: Any, data: Data, error: type[TacitError], what: str = "") -> None:
        before = snapshot(agent)
        shapes = {name: array.shape for name, array in raw_block(data).arrays.items()}
        what = what or f"{raw_block(data).users} users with arrays {shapes}"
        try:
            agent.learn(data)
        except error:
            pass
        except Exception as other:
            raise CheckFailed(f"{what}: {other!r}, not {error.__name__}") from other
        else:
            raise CheckFailed(f"{what}: must raise {error.__name__}, but was accepted")
        differing = difference(before, snapshot(agent))
        if differing:
            raise CheckFailed(f"{what}: refused, and yet {', '.join(differing)} changed")

    def check_sensitivity(self) -> None:
        passages = self.first.gate.passages
        distinct: dict[str, int] = {}
        for place, passage in enumerate(passages):
            distinct.setdefault(passage.statistic.fingerprint, place)
        places = list(distinct.values())
        some = {places[0], places[len(places) // 2], places[-1]}
        for place in sorted(some)[:_STATISTICS]:
            passage = passages[place]
            raw = self.first.gate.blocks[passage.gate, passage.blocks[-1]]
            own = sampler_of(raw, self.first.policies[passage.blocks[-1]])
            report = check_statistic(
                passage.statistic, mixed(self.sample, own), users=100, rounds=15, seed=self.seed
            )
            self.tightness.append(max(report.tightness.values()))
            # What adds up vectors in floats does not wrap; a fast sum of its own may.
            if place == places[0] and type(passage.statistic).total is not Statistic.total:
                self._check_crowd(passage.statistic, report.pair)
        with silence():
            quiet = self.play()
        wrong = off_by(quiet.gate)
        if wrong is not None:
            raise CheckFailed(wrong)

    def _check_crowd(self, statistic: Statistic, pair: Block) -> None:
        """The sum over more users than 16 bits can count is still what they add up to."""
        vectors = statistic.contributions(pair)
        longest = int(np.linalg.norm(vectors, axis=1).argmax())
        crowd = some_rows(pair, np.full(_CROWD, longest))
        gap = np.abs(statistic.total(crowd) - _CROWD * vectors[longest]).max()
        if gap > 1e-9 * _CROWD * statistic.l2(Relation.ZERO_OUT):
            raise CheckFailed(
                f"{statistic.name}: the total of {_CROWD} equal users is off by {gap:.4g}"
            )

    def check_budget(self) -> None:
        guarantee = self.make().guarantee
        declared = self._budget()
        stated = Budget(guarantee.epsilon, guarantee.delta)
        if abs(stated.epsilon - declared.epsilon) > 1e-9 * declared.epsilon or (
            stated.delta != declared.delta
        ):
            raise CheckFailed(f"the guarantee states {stated}, but the budget is {declared}")
        for name in ("relation", "episodes_per_user"):
            stands, asked = getattr(guarantee, name), getattr(self.privacy, name)
            if stands != asked:
                raise CheckFailed(f"the guarantee is for {name} {stands}, not {asked}")
        gate, limit = self.first.gate, self._limit()
        entered = sum(block.users for block in gate.blocks.values())
        if entered > self.users:
            raise CheckFailed(
                f"{self.users} users came, and {entered} entered the gate: somebody entered twice"
            )
        spent: dict[tuple[Curator, int], float] = {}
        streams: set[tuple[Stream, int]] = set()
        for passage in gate.passages:
            if not isinstance(passage.gate, JointCurator):
                continue
            for number in passage.blocks:
                if passage.stream is not None and (passage.stream, number) in streams:
                    raise CheckFailed(f"block {number} entered stream {passage.stream.name} twice")
                if passage.stream is not None:
                    streams.add((passage.stream, number))
                spent[passage.gate, number] = passage.gate.spent(number)
        for (_, number), cost in spent.items():
            if limit is None or cost > limit * (1.0 + 1e-9):
                raise CheckFailed(f"block {number} has spent {cost:.6g}, an episode has {limit}")

    def _budget(self) -> Budget:
        if self.budget is not None:
            return self.budget
        return Budget(self.privacy.epsilon, self.privacy.delta)

    def _limit(self) -> float | None:
        """What an episode may cost under the declared budget."""
        if not isinstance(self.privacy, JointDP):
            return None
        budget = self._budget()
        return dataclasses.replace(
            self.privacy, epsilon=budget.epsilon, delta=budget.delta
        ).episode_limit

    def check_noise(self) -> None:
        gate = self.first.gate
        audited: set[Stream] = set()
        for passage in gate.passages:
            if isinstance(passage.stream, JointStream) and passage.stream not in audited:
                audited.add(passage.stream)
                self._audit_stream(passage.stream, passage)
        record = NoiseRecord()
        while record.runs < _NOISE_RUNS and (
            record.runs < _FEWEST_NOISE_RUNS or record.values < _NOISE_VALUES
        ):
            n = record.runs
            found = measured(self.first.gate if n == 0 else self.play(self.make(n), stream=n).gate)
            if found is None:
                break
            record.add(found)
        wrong = record.sizes() + record.shared()
        if wrong:
            raise CheckFailed("; ".join(wrong[:3]))
        if isinstance(self.privacy, JointDP):
            self._check_real_noise()

    def _check_real_noise(self) -> None:
        """Real noise has nothing to do with the public seed."""
        released = []
        for _ in range(2):
            agent = self.make(real=True)
            with WatchedGate().open() as gate:
                agent.learn(self.first.blocks[0])
            released.append(gate.passages[0].release)
        parts = released[0].parts
        same = [name for name in parts if np.array_equal(parts[name], released[1][name])]
        if same:
            raise CheckFailed(
                f"two real runs with the same public seed release the same {', '.join(same)}: "
                "their noise can be computed from the seed"
            )

    def _audit_stream(self, stream: JointStream, passage: Passage) -> None:
        counter = stream.counter
        privacy = stream._curator.privacy
        needed = stream.statistic.sensitivity(privacy.relation, "l1" if privacy.pure else "l2")
        covered = stream.step * counter.sensitivity
        if covered < needed * (1.0 - 1e-12):
            raise CheckFailed(
                f"the counter's sensitivity is {covered:.6g}, the statistic's is {needed:.6g}"
            )
        if counter.releases is None or counter.releases > _AUDITED_RELEASES:
            return
        audit = audit_counter(counter)
        cost = passage.release.cost
        if cost is None or audit.cost > cost * (1.0 + 1e-9):
            raise CheckFailed(f"the stream charges {cost}, but {audit}")

    def check_data_flow(self) -> None:
        rng = self.rng(3)
        strangers = [
            with_public(block, block_of_strangers(block, rng), self.varies)
            for block in self.first.blocks
        ]
        self._replay("with everybody replaced", strangers)
        last = len(self.first.blocks) - 1
        for where in sorted({0, last // 2, last}):
            row = int(rng.integers(0, self.first.blocks[where].users))
            changed = list(self.first.blocks)
            changed[where] = with_row(changed[where], row, strangers[where])
            self._one_changed("one user replaced", changed)
        for where in sorted({0, last // 2, max(0, last - 1), last}):
            changed = list(self.first.blocks)
            changed[where] = strangers[where]
            self._block_changed(where, changed)

    def _replay(self, what: str, users: Sequence[Block]) -> _Run:
        """The same releases with other users: everything public must be the same."""
        other = self.play(users=users, script=self.first.script)
        self.same(f"the releases were the same {what}", other)
        mine, theirs = self.first.gate.passages, other.gate.passages
        for place, (one, two) in enumerate(zip(mine, theirs, strict=False)):
            if one.request != two.request:
                raise CheckFailed(
                    f"the releases were the same {what}, and yet another statistic, block, weight "
                    f"or cost was asked for at release {place}"
                )
        if len(mine) != len(theirs):
            raise CheckFailed(f"{what}: {len(theirs)} releases instead of {len(mine)}")
        if self.first.said != other.said:
            raise CheckFailed(
                f"the releases were the same {what}, and yet what was logged or printed differs"
            )
        return other

    def _block_changed(self, where: int, users: Sequence[Block]) -> None:
        """Whoever came in one block is in no other."""
        what = f"all users of block {where} replaced"
        other = self._replay(f"with {what}", users)
        for one, two in zip(self.first.gate.passages, other.gate.passages, strict=True):
            before = self.first.gate.contributions(one)
            after = other.gate.contributions(two)
            for number, vectors in before.items():
                rows = np.flatnonzero((vectors != after[number]).any(axis=1))
                if rows.size and number != where:
                    raise CheckFailed(
                        f"{what}: the contributions of {rows.size} users of block {number} "
                        "changed: they are in both"
                    )

    def _one_changed(self, what: str, users: Sequence[Block]) -> None:
        other = self._replay(f"with {what}", users)
        touched: set[int] = set()
        for one, two in zip(self.first.gate.passages, other.gate.passages, strict=True):
            before = self.first.gate.contributions(one)
            after = other.gate.contributions(two)
            for number, vectors in before.items():
                rows = np.flatnonzero((vectors != after[number]).any(axis=1))
                if rows.size > 1:
                    raise CheckFailed(f"{what}: the contributions of {rows.size} users changed")
                if rows.size:
                    touched.add(number)
        if len(touched) > 1:
            raise CheckFailed(f"{what}: she is in several blocks, {sorted(touched)}")

    def check_hostile(self) -> None:
        rng = self.rng(4)
        last = len(self.first.blocks) - 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            hostile = [
                {
                    kind: with_public(block, changed, self.varies)
                    for kind, changed in hostile_blocks(block, rng).items()
                }
                for block in self.first.blocks
            ]
            for kind in hostile[0]:
                where = int(rng.integers(0, last + 1))
                row = int(rng.integers(0, self.first.blocks[where].users))
                changed = list(self.first.blocks)
                changed[where] = with_row(changed[where], row, hostile[where][kind])
                self._one_changed(f"one user's values {kind}", changed)
                self._replay(f"with everybody's values {kind}", [b[kind] for b in hostile])
            if "versions" in self.first.blocks[0].arrays and self.varies is None:
                first = self.first.policies[0].version
                changed = list(self.first.blocks)
                changed[last] = with_row(changed[last], 0, of_version(changed[last], first))
                self._one_changed("one user of an old policy", changed)
                old = [of_version(block, first) for block in self.first.blocks]
                self._replay("with everybody of an old policy", old)
        self._check_masks()

    def _check_masks(self) -> None:
        """A statistic that knows its policy counts those who followed it, in both senses."""
        gate = self.first.gate
        for place, passage in enumerate(gate.passages):
            raw = gate.blocks[passage.gate, passage.blocks[-1]]
            policy = self.first.policies[passage.blocks[-1]]
            table = getattr(policy, "actions", None)
            if table is None or policy.n_actions < 2 or "versions" not in raw.arrays:
                continue
            version = of_version(raw, policy.version + 1)
            actions = np.asarray(raw["actions"])
            other = Block(
                raw.users, dict(raw.arrays) | {"actions": (actions + 1) % policy.n_actions}
            )
            checks_version = not passage.statistic.contributions(version).any()
            checks_actions = not passage.statistic.contributions(other).any()
            if checks_version and not checks_actions:
                raise CheckFailed(
                    f"release {place}: counts are of one policy's version, but count actions that "
                    "it never takes"
                )
            if checks_actions and not checks_version:
                raise CheckFailed(
                    f"release {place}: counts are masked by the policy, but count users who "
                    "followed another version"
                )

    def check_resume(self) -> None:
        path = self.folder / "state"
        # In the middle of a block, and not of the first one where there are several.
        middle = len(self.first.blocks) // 2
        block = self.first.blocks[middle]
        half = block.users // 2
        agent = self.make()
        for earlier in self.first.blocks[:middle]:
            agent.learn(earlier)
        if half:
            agent.learn(block.take(slice(0, half)))
        agent.save(path)
        before = snapshot(agent)
        # Another seed: everything that matters must be in the file.
        fresh = self.make(1)
        fresh.load(path)
        after = snapshot(fresh)
        # What is made by planning need not be in the file.
        differing = [name for name in difference(before, after) if name in after]
        if differing:
            raise CheckFailed(f"right after loading, {', '.join(differing)} differ")
        fresh.learn(block.take(slice(half, block.users)))
        differing = difference(self.first.snapshots[middle + 1], snapshot(fresh))
        if differing:
            raise CheckFailed(f"one release after loading, {', '.join(differing)} differ")
        rest = self.play(fresh, users=self.first.blocks[middle + 1 :])
        expected = dataclasses.replace(self.first, snapshots=self.first.snapshots[middle + 1 :])
        self.same("going on after loading", rest, expected)
        self._refuse(fresh, block.take(slice(0, 1)), HorizonExceeded)

    def check_real(self) -> None:
        block = self.first.blocks[0]
        agent = self.make(real=True)
        if isinstance(self.privacy, LocalDP):
            self._refuse(agent, block, InvalidArgument, "raw data for a real local curator")
            return
        path, ledger = self.folder / "real", self.folder / "ledger"
        if agent.guarantee.simulation_only:
            raise CheckFailed("without noise_seed the guarantee says that it is a simulation")
        half = block.users // 2
        before, after = block.take(slice(0, half)), block.take(slice(half, block.users))
        if len(self.first.blocks) > 1:
            before, after = self.first.blocks[:2]
        agent.learn(before)
        agent.save(path)
        released = []
        for _ in range(2):
            fresh = self.make(real=True)
            fresh.load(path)
            with WatchedGate().open() as gate:
                fresh.learn(after)
            released.append(gate.passages[0].release)
        parts = released[0].parts
        if all(np.array_equal(parts[name], released[1][name]) for name in parts):
            raise CheckFailed("a real run that is resumed twice draws the same noise twice")
        agent = self.make(real=True, ledger=ledger)
        agent.learn(before)
        agent.save(path)
        self.make(real=True).load(path, ledger=ledger)
        for what, options in (("again", {"ledger": ledger}), ("without its ledger", {})):
            try:
                self.make(real=True).load(path, **options)
            except DoubleSpend:
                continue
            raise CheckFailed(f"a save with a ledger was resumed {what}")

    def check_ties(self) -> None:
        actions = self.world.spec.actions
        shares: dict[int, list[Floats]] = {}
        for seed in range(self.seeds):
            rng = np.random.default_rng(np.random.SeedSequence([_SEED, self.seed, 5, seed]))
            world = _Constant(PermutedWorld.draw(self.world, rng))
            for r, (policy, _) in enumerate(self.serve(seed, world, 1000 + seed, blocks=2)):
                shares.setdefault(r, []).append(self._shares(policy, rng))
        for r, seen in shares.items():
            chance = _chance_of_means(np.array(seen), 1.0 / actions)
            if chance < _ALARM:
                mean = np.mean(seen, axis=0).round(3).tolist()
                raise CheckFailed(
                    f"at release {r}, with all rewards equal and labels in random order, actions "
                    f"are chosen in shares {mean}: ties are not broken at random "
                    f"(chance {chance:.1e})"
                )

    def _shares(self, policy: Any, rng: np.random.Generator) -> Floats:
        """How often each action is chosen, over all states, or over those that users come to."""
        if hasattr(policy, "table"):
            table: Floats = np.asarray(policy.table(), dtype=np.float64)
            return np.array(table.mean(axis=(0, 1)))
        states = np.asarray(self.first.blocks[0]["states"])[:, 0]
        chosen = np.asarray(policy.act_many(0, states, rng), dtype=np.int64)
        return np.bincount(chosen, minlength=self.world.spec.actions) / len(states)

    def check_labels(self) -> None:
        actions = self.world.spec.actions
        orders = (tuple(range(actions)), tuple(reversed(range(actions))))
        means: list[Floats] = []
        for k, order in enumerate(orders):
            world = PermutedWorld(self.world, order)
            earned = []
            for seed in range(max(2, self.seeds // 2)):
                number = 2 * seed + k
                played = self.serve(number, world, 2000 + number)
                earned.append(sum(world.value(p) * n for p, n in played) / self.users)
            means.append(np.array(earned))
        gap = abs(float(means[0].mean() - means[1].mean()))
        error = math.sqrt(sum(float(m.var(ddof=1)) / m.size for m in means))
        # Few seeds have heavier tails than normal ones: two more standard deviations.
        if gap > (_SIGMAS + 2.0) * error + 1e-9:
            raise CheckFailed(
                f"with actions named the other way round a user earns {means[1].mean():.4g} "
                f"instead of {means[0].mean():.4g} on average ({gap / max(error, 1e-300):.1f} "
                "standard deviations)"
            )


@dataclass(frozen=True)
class _Constant:
    """A world in which every reward is 0."""

    world: PermutedWorld

    @property
    def name(self) -> str:
        return self.world.name

    @property
    def spec(self) -> Any:
        return self.world.spec

    @property
    def optimal_value(self) -> float:
        return 0.0

    @property
    def baseline_value(self) -> float:
        return 0.0

    @property
    def reference_value(self) -> float:
        return 0.0

    def value(self, policy: Any) -> float:
        return 0.0

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Block:
        block = raw_block(self.world.simulate(policy, users, rng, form))
        nothing = np.zeros_like(block["rewards"])
        return Block(block.users, dict(block.arrays) | {"rewards": nothing})


def _chance_of_means(samples: Floats, expected: float) -> float:
    """The chance of means so far from what is expected, by Student's t, over all columns."""
    from scipy.special import stdtr

    runs, columns = samples.shape
    gap = np.abs(samples.mean(axis=0) - expected)
    error = samples.std(axis=0, ddof=1) / math.sqrt(runs)
    off = gap > 1e-12
    if not off.any():
        return 1.0
    t = np.where(off, gap / np.maximum(error, 1e-300), 0.0)
    return float(min(1.0, 2.0 * columns * stdtr(runs - 1, -t.max())))


def _named(block: Block, first: int) -> Data:
    """The users of a block as episodes, with ids."""
    kind = VectorEpisodes if "lengths" in block.arrays else Episodes
    return kind.of_block(block, range(first, first + block.users))
