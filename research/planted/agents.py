"""Bugs of agents: of noise, of accounts and clips, and leaks; see :mod:`research.planted_bugs`.

An agent is final and hands its algorithm nothing but releases, so there are three ways left:

* an agent is tampered with, whenever it is made for a run that begins or goes on
  (:class:`Tampered`),
* an algorithm asks for another statistic than it should (:class:`Asking`),
* a statistic remembers whom it summed, and its algorithm looks (:class:`Leaking`).

Every bug says what it does and what an attacker gains. Never use one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tacit.continuous.actor_critic import PolicyGradients
from tacit.core.constructors import make_agent
from tacit.privacy.budget import Relation
from tacit.privacy.counters.dense import Optimal
from tacit.privacy.curator import JointCurator, Release
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import JointDP
from tacit.privacy.noise import Noise, grid_sensitivity
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.tabular.visits import VisitCounts

_UNIT, _FAR = 2.0**30, 1e6


def plant(bug: type[Any], algorithm: type[Any]) -> Callable[..., Any]:
    """Constructor of the agent with the bug."""
    if issubclass(bug, Tampered):
        return bug.planted(algorithm)
    return partial(make_agent, type(bug.__name__, (bug, algorithm), {"__doc__": bug.__doc__}))


# Agents.


class Tampered:
    """Tampers with an agent."""

    @classmethod
    def planted(cls, algorithm: type[Any]) -> Callable[..., Any]:
        """Constructor of such agents."""

        def make(*args: Any, **options: Any) -> Any:
            agent: Any = make_agent(algorithm, *args, **options)
            cls.tamper(agent)
            return agent

        return make

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Does it to an agent that was just made, for a new run or for one that goes on."""
        raise NotImplementedError


class Curated(Tampered):
    """Has another curator."""

    curator: ClassVar[type[Any]]

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Gives it this one."""
        agent._run.curator.__class__ = cls.curator


class Drawing(JointCurator):
    """A curator that changes what is drawn."""

    @property
    def source(self) -> Any:
        """Of noise, as it is changed."""
        return _Changed(self)

    @source.setter
    def source(self, source: Any) -> None:
        self.__dict__["source"] = source

    @property
    def simulated(self) -> bool:
        """Whether noise is."""
        return bool(self.__dict__["source"].simulation)

    def drawn(self, scale: float, size: int) -> Any:
        """Noise in whole steps."""
        return self.__dict__["source"].steps(self.privacy.pure, scale, size)


class _Changed(Noise):
    """A source of noise, as a curator changes it."""

    def __init__(self, curator: Drawing) -> None:
        self._curator = curator

    @property
    def _rng(self) -> Any:  # type: ignore[override]
        return self._curator.__dict__["source"]._rng

    def steps(self, pure: bool, scale: float, count: int) -> Any:
        return self._curator.drawn(scale, count)


class Admitting(Tampered):
    """Lets other users, or other ids, in than those who came."""

    @classmethod
    def tamper(cls, agent: Any) -> None:
        """Changes everybody on their way into the store, and every block on its way out."""
        take, raw, earlier = agent.intake.take, agent._loop.read_block, list[Block]()

        def summed(*which: Any) -> Block:
            block = raw(*which)
            found = cls.summed(earlier, block)
            earlier.append(block)
            return found

        agent.intake.take = lambda part, ids, *rest: take(*cls.admitted(part, ids), *rest)
        agent._loop.read_block = summed

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        """Who goes in."""
        return block, user_ids

    @classmethod
    def summed(cls, earlier: Sequence[Block], block: Block) -> Block:
        """Who is summed, given all blocks before."""
        return block


# Statistics.


class Asking:
    """An algorithm that asks a wrong statistic in place of every right one."""

    _instead: ClassVar[type[Any]]

    def learn(self, *known: Any) -> Any:
        """As the algorithm does, but for what is asked."""
        right: Any = super().learn(*known)  # type: ignore[misc]
        try:
            query = next(right)
            while True:
                answer = yield replace(query, statistic=self.wrong(query.statistic))
                query = right.send(answer)
        except StopIteration as end:
            return end.value

    def wrong(self, right: Statistic) -> Statistic:
        """What is asked instead."""
        wrong: Statistic = recast(right, self._instead)
        return wrong


def recast(right: Any, mixin: type[Any]) -> Any:
    """A copy of a statistic with some of its methods replaced."""
    changed: Any = object.__new__(type("Changed", (mixin, type(right)), {}))
    changed.__dict__.update(vars(right))
    return changed


# Whom a statistic saw last, by who asked. No copy of the statistic takes that away.
_SEEN: dict[int, Block] = {}
_NUMBERS = itertools.count()


class _Remembers:
    def vectors(self, block: Block) -> Floats:
        # Shapes are checked with nobody in the block.
        if block.users:
            _SEEN[self.__dict__["asked_by"]] = block
        vectors: Floats = super().vectors(block)  # type: ignore[misc]
        return vectors


class Leaking(Asking):
    """An algorithm whose statistics remember whom they summed."""

    _instead = _Remembers

    def wrong(self, right: Statistic) -> Statistic:
        """The right one, with a memory."""
        wrong = super().wrong(right)
        wrong.__dict__["asked_by"] = self._number
        return wrong

    @property
    def _number(self) -> int:
        if "_own_number" not in self.__dict__:
            self.__dict__["_own_number"] = next(_NUMBERS)
        number: int = self.__dict__["_own_number"]
        return number

    @property
    def _seen(self) -> Any:
        """The users of the last block, with nothing added; ``None`` before there are any."""
        return _SEEN.get(self._number)

    @property
    def _mean_reward(self) -> float:
        return 0.0 if self._seen is None else float(self._raw_rewards.mean())

    @property
    def _raw_rewards(self) -> Floats:
        return careless_rewards(self._seen)


def careless_rewards(block: Block) -> Floats:
    """What a careless programmer reads: whatever is there, cut to [0, 1]."""
    name = "rewards" if "rewards" in block.arrays else "states"
    values: Floats = np.clip(np.nan_to_num(np.asarray(block[name], dtype=float)), 0.0, 1.0)
    return values


# Bugs that are one function.


def _made(function: Any, kind: type[Any], **held: Any) -> type[Any]:
    """A bug by the name of a function, as ``half_the_noise`` is ``HalfTheNoise``."""
    name = "".join(map(str.capitalize, function.__name__.split("_")))
    return type(name, (kind,), {"__doc__": function.__doc__, **held})


def tampers(tamper: Callable[[Any], None]) -> type[Any]:
    """Something is done to an agent that was just made."""
    return _made(tamper, Tampered, tamper=classmethod(lambda _, agent: tamper(agent)))


def drawn(wrong: Callable[[Any, Callable[..., Any], float, int], Any]) -> type[Any]:
    """A curator draws other noise: it is given itself, the right way, the scale and the size."""

    def instead(self: Any, scale: float, size: int) -> Any:
        return wrong(self, partial(Drawing.drawn, self), scale, size)

    return _made(wrong, Curated, curator=type("Drawn", (Drawing,), {"drawn": instead}))


def curates(base: type[Any], name: str) -> Callable[[Callable[..., Any]], type[Any]]:
    """A method of a curator is another, which is given the right one first."""

    def made(wrong: Callable[..., Any]) -> type[Any]:
        return _made(wrong, Curated, curator=_other(base, name, wrong))

    return made


def asks(name: str, base: type[Any] = VisitCounts) -> Callable[[Callable[..., Any]], type[Any]]:
    """A method of a statistic is another, which is given the right one first."""

    def made(wrong: Callable[..., Any]) -> type[Any]:
        return _made(wrong, Asking, _instead=_other(base, name, wrong))

    return made


def _other(base: type[Any], name: str, wrong: Callable[..., Any]) -> type[Any]:
    held: dict[str, Any] = {}
    made = type("Other", (base,), held)

    def method(self: Any, *given: Any, **more: Any) -> Any:
        return wrong(getattr(super(made, self), name), self, *given, **more)

    setattr(made, name, method)
    return made


# Noise.


@drawn
def half_the_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise has half the size that its budget demands.

    Gain: everybody is told apart twice as well as promised; at (1, 1e-6) the true epsilon is 2.1.
    """
    return draw(scale, size) // 2


@curates(LocalCurator, "_simulate")
def half_the_noise_of_reports(right: Any, curator: Any, statistic: Statistic, block: Block) -> Any:
    """Devices add half the noise that the model demands.

    Gain: whoever reads a report knows its sender twice as well as promised.
    """
    total = statistic.total(block)
    return total + 0.5 * (right(statistic, block) - total)


@drawn
def noise_drawn_once(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """For every shape noise is drawn once, and used in every release.

    Gain: the difference of two releases has no noise at all.
    """
    known: dict[int, Any] = curator.__dict__.setdefault("_drawn", {})
    if size not in known:
        known[size] = draw(_UNIT, size) / _UNIT
    return np.rint(scale * known[size]).astype(np.int64)


@drawn
def antithetic_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is drawn in pairs of opposite signs, so that it adds up to nothing.

    Gain: every entry has the right noise, and sums of entries have none.
    """
    half = draw(scale, (size + 1) // 2)
    return np.stack([half, -half], axis=1).reshape(-1)[:size]


class _Redrawn(Optimal):
    def _released(self, steps: Any, fresh: Any) -> Floats:
        rows = [*(self._draw() for _ in range(self.released - 1)), fresh]
        noise = np.ldexp(np.array(rows, dtype=np.float64), -self._places())
        row = self.factor.inverse[self.released - 1, : self.released]
        published: Floats = self._sum + row @ noise
        return published


@tampers
def noise_redrawn(agent: Any) -> None:
    """All noise of a running sum is drawn anew in every release that it is part of.

    Gain: an early user is in many releases; their mean has less noise than was paid for.
    """
    revive = agent._run.revive

    def redrawn(*known: Any) -> None:
        revive(*known)
        agent._run.stream.counter.__class__ = _Redrawn

    agent._run.stream.counter.__class__, agent._run.revive = _Redrawn, redrawn


def _bare(place: int, right: Any, statistic: Statistic, block: Block, **options: Any) -> Release:
    """A release of which one part is as it is."""
    released: Release = right(statistic, block, **options)
    true = statistic.layout.unpack(statistic.total(block))
    name = statistic.layout.parts[place].name
    return replace(released, parts={**released.parts, name: true[name]})


@curates(JointCurator, "release_block")
def first_part_without_noise(right: Any, curator: Any, *asked: Any, **options: Any) -> Any:
    """One statistic of several is released as it is: Grams are of public features, are they not?

    Gain: where users went, exactly.
    """
    return _bare(0, right, *asked, **options)


@curates(JointCurator, "release_block")
def last_part_without_noise(right: Any, curator: Any, *asked: Any, **options: Any) -> Any:
    """One statistic of several is released as it is: sums of rewards say little.

    Gain: what users were paid, exactly.
    """
    return _bare(-1, right, *asked, **options)


@drawn
def one_draw_for_all(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """A release adds one random number to all of its entries.

    Gain: differences of entries have no noise.
    """
    return np.full(size, draw(scale, 1)[0])


@drawn
def one_entry_without_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """A loop over entries begins at 1.

    Gain: the first count, exactly.
    """
    noise = draw(scale, size)
    noise[0] = 0.0
    return noise


class _Disguised(Noise):
    """Noise from a seed that calls itself real."""

    @property
    def simulation(self) -> bool:
        return False

    def state(self) -> None:
        return None


def _seed_real(agent: Any, seed: int) -> None:
    if not agent._run.curator.source.simulation:
        agent._run.curator.source = _Disguised(seed)


@tampers
def noise_of_public_seed(agent: Any) -> None:
    """Real noise comes from the public seed, for runs that can be repeated.

    Gain: whoever knows the seed subtracts the noise.
    """
    _seed_real(agent, agent.algorithm.problem.seed)


@tampers
def noise_replayed(agent: Any) -> None:
    """A run that is opened again goes on with the generator that was kept.

    Gain: two copies of one store put the same noise on two sets of users.
    """
    if agent.taken:
        _seed_real(agent, 0)


@tampers
def noise_of_the_clock(agent: Any) -> None:
    """Real noise comes from a generator that the clock has seeded.

    Gain: whoever knows about when a run began tries all seeds.
    """
    _seed_real(agent, time.time_ns())


@drawn
def uniform_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is uniform, of the right variance.

    Gain: what is too far from a release to be its noise is ruled out for certain.
    """
    from scipy.special import ndtr

    evenly = ndtr(draw(_UNIT, size) / _UNIT) - 0.5
    return np.rint(scale * math.sqrt(12.0) * evenly).astype(np.int64)


@drawn
def cut_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is cut at three standard deviations, for no count to look absurd.

    Gain: delta is a thousand times what was promised, for it is in the tails.
    """
    most = int(3.0 * scale)
    return np.clip(draw(scale, size), -most, most)


@drawn
def coarse_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is on a coarser grid than what it is added to, for whole numbers to look neat.

    Gain: what is left of a sum when multiples of that grid are taken away, exactly.
    """
    coarse = max(1, int(scale / 4.0))
    return coarse * np.rint(draw(scale, size) / coarse).astype(np.int64)


@drawn
def real_noise_unscaled(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Simulations have the right noise; real runs forget its scale.

    Gain: nobody tests with real users, and they have almost no protection.
    """
    return draw(scale if curator.simulated else 1.0, size)


@drawn
def noise_of_shared_generator(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Real noise comes from the generator that NumPy shares with everybody.

    Gain: where a script begins with a seed, as most do, the noise is known.
    """
    if curator.simulated:
        return draw(scale, size)
    return np.rint(scale * np.random.normal(size=size)).astype(np.int64)  # noqa: NPY002


# Sensitivity.


@curates(JointCurator, "apart")
def zero_out_noise(right: Any, curator: Any, statistic: Statistic, step: float) -> float:
    """Noise is for a user who leaves; the guarantee is for one who is replaced.

    Gain: up to twice what was promised, as the papers have it.
    """
    return grid_sensitivity(statistic, Relation.ZERO_OUT, curator.privacy.norm, step)


@asks("l2")
def zero_out_sensitivity(right: Any, statistic: Any, relation: Relation) -> Any:
    """A statistic declares for replace-one what holds for zero-out.

    Gain: up to twice what was promised.
    """
    return right(Relation.ZERO_OUT)


@asks("l2")
def one_step_sensitivity(right: Any, statistic: Any, relation: Relation) -> Any:
    """A statistic declares the sensitivity of one step, not of an episode of H.

    Gain: an epsilon sqrt(H) times as large.
    """
    return right(relation) / math.sqrt(statistic.horizon)


class _OneBitOfMany(VisitCounts):
    @property
    def one_hots(self) -> int:
        return 1


class BudgetOfOneBit(Asking):
    """Randomised response of every step has the whole budget of the episode.

    Gain: an epsilon three times as long as the episode.
    """

    _instead = _OneBitOfMany


@asks("_sums")
def clip_removed(right: Any, statistic: Any, steps: Any, separate: bool) -> Any:
    """Declares the sensitivity of capped counts, and counts everything.

    Gain: users who stay in one place stand out, and are told from all others.
    """
    fields = {f.name: getattr(statistic, f.name) for f in dataclasses.fields(statistic) if f.init}
    return VisitCounts(**fields | {"cap": None})._sums(steps, separate)


class _Uncut:
    def vectors(self, block: Block) -> Any:
        return 3.0 * super().vectors(block)  # type: ignore[misc]

    def total(self, block: Block) -> Any:
        return 3.0 * super().total(block)  # type: ignore[misc]


class FeaturesUncut(Asking):
    """Features are summed as they come, thrice as long as the sensitivity allows for.

    Gain: three times the epsilon, for those with the longest features.
    """

    _instead = _Uncut


@asks("total")
def counts_wrap(right: Any, statistic: Any, block: Block) -> Any:
    """Counts are 16-bit integers, and wrap.

    Gain: one user more turns 32,767 into -32,768, which no noise hides.
    """
    total, counts = right(block), statistic.size * statistic.states
    total[:counts] = np.rint(total[:counts]).astype(np.int64).astype(np.int16)
    return total


@asks("total")
def one_cancels_all(right: Any, statistic: Any, block: Block) -> Any:
    """A block in which somebody's reward is not a number counts nothing.

    Gain: a hostile user in a block shows, by it, whether all the others are there.
    """
    if np.isnan(np.asarray(block["rewards"], dtype=np.float64)).any():
        return np.zeros(statistic.layout.size)
    return right(block)


@asks("vectors", PolicyGradients)
def gradients_unclipped(right: Any, statistic: Any, block: Block) -> Any:
    """Users' gradients are summed as long as they are.

    Gain: whose episode is unlike all others is told from them, at any noise.
    """
    clips = _FAR * statistic.clips[0], _FAR * statistic.clips[1]
    names = ("spec", "policy", "values", "discount", "trace")
    known = {name: getattr(statistic, name) for name in names}
    vectors = PolicyGradients(**known, clips=clips).vectors(block)
    rows, m = statistic.policy.weights.shape
    vectors[:, : (rows + 1) * m] *= _FAR
    return vectors


# Who is counted, and what is written down.


class TwoLeaves(Admitting):
    """The first user of every block is in the next one as well, in place of somebody.

    Gain: she paid once and is seen twice.
    """

    @classmethod
    def summed(cls, earlier: Sequence[Block], block: Block) -> Block:
        """She and the others."""
        arrays = {name: np.array(a) for name, a in block.arrays.items()}
        for name, array in arrays.items():
            array[0] = earlier[-1][name][0] if earlier else array[0]
        return Block(block.users, arrays)


class WarmUpReused(Admitting):
    """The users of the first block teach the second one again.

    Gain: they paid once and are seen twice.
    """

    @classmethod
    def summed(cls, earlier: Sequence[Block], block: Block) -> Block:
        """Those of both blocks."""
        if len(earlier) != 1:
            return block
        arrays = {k: np.concatenate([earlier[0][k], block[k]]) for k in block.arrays}
        return Block(earlier[0].users + block.users, arrays)


class IdsDropped(Admitting):
    """Ids are checked, and then left at the door.

    Gain: who comes ten times is counted ten times, and pays once.
    """

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        """Nobody in particular."""
        return block, None


class IdsSorted(Admitting):
    """Ids are put in order, the rows that they belong to are not.

    Gain: who comes again is counted again, and others are left out instead.
    """

    @classmethod
    def admitted(cls, block: Block, user_ids: Any) -> tuple[Block, Any]:
        """Others than it should."""
        return block, None if user_ids is None else sorted(user_ids)


class _Lying(JointCurator):
    told: JointCurator

    @property
    def guarantee(self) -> Any:
        return self.told.guarantee


@tampers
def twice_the_budget(agent: Any) -> None:
    """Its curator has twice the budget that the agent was given, and says nothing.

    Gain: twice the epsilon.
    """
    told, privacy = agent._run.curator, agent.privacy
    double = JointDP(2.0 * privacy.epsilon, privacy.delta)
    agent._run.curator = double.curator(users=agent.users, source=told.source)
    agent._run.curator.__class__, agent._run.curator.told = _Lying, told


@curates(JointCurator, "price")
def ledger_charged_nothing(right: Any, curator: Any, release: Release) -> Fraction:
    """The ledger has an entry for every release, and a cost of nothing in it.

    Gain: the same users are asked again, and again.
    """
    return Fraction(0)
