"""Agents with a privacy bug, each of which somebody could write in good faith.

Every bug says what it does and what an attacker would gain by it. The audit
(:func:`tacit.agent_audit.audit_agent`) must fail each of them, and pass the same agent without it:
``python -m tacit.experiments.mutation_table`` prints which check found what.

Some are the papers' own: noise that is drawn once, widths from raw data, a sensitivity that forgets
the horizon. They are here so that nobody has to believe in the audit. Never use one.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.privacy.budget import Relation
from tacit.privacy.counters.tree import BinaryTree
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gate import Release
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import JointDP, LocalDP
from tacit.privacy.noise import Noise
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.visits import VisitCounts

if TYPE_CHECKING:
    from tacit.loop import World

USERS = 160
"""Whom audited agents serve."""

_FEW = "fixed:size=40"


# How a bug gets into an agent.


class _Tampered:
    """Tampers with an agent's gate when it is made, and again when it is loaded."""

    _curator: Any
    _stream: Any
    privacy: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tamper()

    def load(self, *args: Any, **options: Any) -> Any:
        """As the agent does."""
        super().load(*args, **options)  # type: ignore[misc]
        self._tamper()
        return self

    def _tamper(self) -> None:
        raise NotImplementedError


class _Curated(_Tampered):
    """Has another curator."""

    curator: type[Any]

    def _tamper(self) -> None:
        self._curator.__class__ = self.curator


class _Asks:
    """Asks a statistic of its own kind, with the fields of the right one."""

    asks: type[Any]

    def _statistic(self, *args: Any) -> Any:
        true = super()._statistic(*args)  # type: ignore[misc]
        options = {f.name: getattr(true, f.name) for f in dataclasses.fields(true) if f.init}
        return self.asks(**options)


def plant(bug: type[Any], agent: type[Any]) -> type[Any]:
    """The agent with the bug."""
    return type(bug.__name__, (bug, agent), {"__doc__": bug.__doc__})


def _rewards(block: Block) -> Floats:
    """What a careless programmer reads: whatever is there, cut to [0, 1]."""
    name = "rewards" if "rewards" in block.arrays else "states"
    values: Floats = np.clip(np.nan_to_num(np.asarray(block[name], dtype=float)), 0.0, 1.0)
    return values


# Noise.


class _HalfCurator(JointCurator):
    def _noise(self, scale: float, size: int) -> Any:
        return super()._noise(0.5 * scale, size)


class HalfTheNoise(_Tampered):
    """Noise has half the size that its budget demands.

    Gain: everybody is told apart twice as well as promised; at (1, 1e-6) the true epsilon is 2.1.
    """

    def _tamper(self) -> None:
        if self._stream is not None:
            self._stream.counter.noise_unit *= 0.5
        else:
            self._curator.__class__ = _HalfCurator


class _HalfReports(LocalCurator):
    def _simulate(self, statistic: Statistic, block: Block) -> Floats:
        total = statistic.total(block)
        return total + 0.5 * (super()._simulate(statistic, block) - total)


class HalfTheNoiseOfReports(_Curated):
    """Devices add half the noise that the model demands.

    Gain: whoever reads a report knows its sender twice as well as promised.
    """

    curator = _HalfReports


class _OnceCurator(JointCurator):
    def _noise(self, scale: float, size: int) -> Any:
        drawn: dict[int, Any] = self.__dict__.setdefault("_drawn", {})
        if size not in drawn:
            drawn[size] = super()._noise(1.0, size)
        return scale * drawn[size]


class NoiseDrawnOnce(_Curated):
    """For every shape noise is drawn once, and used in every release.

    Gain: the difference of two releases has no noise at all.
    """

    curator = _OnceCurator


class _AntitheticCurator(JointCurator):
    def _noise(self, scale: float, size: int) -> Any:
        half = super()._noise(scale, (size + 1) // 2)
        return np.stack([half, -half], axis=1).reshape(-1)[:size]


class AntitheticNoise(_Curated):
    """Noise is drawn in pairs of opposite signs, so that it adds up to nothing.

    Gain: every entry has the right noise, and sums of entries have none.
    """

    curator = _AntitheticCurator


class _Redrawn(BinaryTree):
    def _advance(self, fresh: Floats) -> Floats:
        total = fresh
        for _ in range(int(self.released).bit_count() - 1):
            total = total + self._draw()
        return total


class NoiseRedrawn(_Tampered):
    """Nodes of the tree get new noise in every release that they are part of.

    Gain: an early user is in many releases; their mean has less noise than was paid for.
    """

    def _tamper(self) -> None:
        self._stream.counter.__class__ = _Redrawn


class _BareCurator(JointCurator):
    bare = 0

    def release(self, statistic: Statistic, **options: Any) -> Release:
        released = super().release(statistic, **options)
        blocks = options.get("blocks") or self.blocks
        totals = [statistic.total(self._blocks[b]) for b in blocks]
        true = statistic.layout.unpack(np.sum(totals, axis=0))
        name = statistic.layout.parts[self.bare].name
        released = dataclasses.replace(released, parts={**released.parts, name: true[name]})
        self.last_release = released
        return released


class _BareLast(_BareCurator):
    bare = -1


class FirstPartWithoutNoise(_Curated):
    """One statistic of several is released as it is: Grams are of public features, are they not?

    Gain: where users went, exactly.
    """

    curator = _BareCurator


class LastPartWithoutNoise(_Curated):
    """One statistic of several is released as it is: sums of rewards say little.

    Gain: what users were paid, exactly.
    """

    curator = _BareLast


class _BroadcastCurator(JointCurator):
    def _noise(self, scale: float, size: int) -> Any:
        return np.full(size, super()._noise(scale, 1)[0])


class OneDrawForAll(_Curated):
    """A release adds one random number to all of its entries.

    Gain: differences of entries have no noise.
    """

    curator = _BroadcastCurator


class _CellCurator(JointCurator):
    def _noise(self, scale: float, size: int) -> Any:
        noise = super()._noise(scale, size)
        noise[0] = 0.0
        return noise


class OneEntryWithoutNoise(_Curated):
    """A loop over entries begins at 1.

    Gain: the first count, exactly.
    """

    curator = _CellCurator


class _Disguised(Noise):
    """Noise from a seed that calls itself real."""

    @property
    def simulation(self) -> bool:
        return False

    def state(self) -> None:
        return None


class NoiseOfPublicSeed(_Tampered):
    """Real noise comes from the public seed, for runs that can be repeated.

    Gain: whoever knows the seed subtracts the noise.
    """

    def __init__(self, *args: Any, seed: int = 0, **options: Any) -> None:
        self._public_seed = seed
        super().__init__(*args, seed=seed, **options)

    def _tamper(self) -> None:
        if not self._curator._source.simulation:
            self._curator._source = _Disguised(self._public_seed)


class NoiseReplayed(_Tampered):
    """A resumed run goes on with the generator that was saved.

    Gain: two runs resumed from one file put the same noise on two sets of users.
    """

    _loaded = False

    def load(self, *args: Any, **options: Any) -> Any:
        """As the agent does."""
        self._loaded = True
        return super().load(*args, **options)

    def _tamper(self) -> None:
        if self._loaded and not self._curator._source.simulation:
            self._curator._source = _Disguised(0)


class _SumsRounded(JointCurator):
    def _total(self, statistic: Statistic, block: Block, share: float, step: float) -> Any:
        return np.rint(share * statistic.total(block) / step).astype(np.int64)


class RoundsAfterSumming(_Curated):
    """Under exact noise sums are rounded to the grid, not users.

    Gain: sums in floating point depend on everybody's low-order bits, which no sensitivity covers.
    """

    curator = _SumsRounded


# Sensitivity.


class _ZeroOutCurator(JointCurator):
    def _sensitivity(self, statistic: Statistic, step: float) -> float:
        return statistic.sensitivity(Relation.ZERO_OUT, self._norm)


class ZeroOutNoise(_Curated):
    """Noise is for a user who leaves; the guarantee is for one who is replaced.

    Gain: up to twice what was promised, as the papers have it.
    """

    curator = _ZeroOutCurator


@dataclass(frozen=True, eq=False)
class _ZeroOutCounts(VisitCounts):
    def l2(self, relation: Relation) -> float:
        return super().l2(Relation.ZERO_OUT)


class ZeroOutSensitivity(_Asks):
    """A statistic declares for replace-one what holds for zero-out.

    Gain: up to twice what was promised.
    """

    asks = _ZeroOutCounts


@dataclass(frozen=True, eq=False)
class _OneStep(VisitCounts):
    def l2(self, relation: Relation) -> float:
        return super().l2(relation) / math.sqrt(self.horizon)


class OneStepSensitivity(_Asks):
    """A statistic declares the sensitivity of one step, not of an episode of H.

    Gain: an epsilon sqrt(H) times as large.
    """

    asks = _OneStep


@dataclass(frozen=True, eq=False)
class _Uncapped(VisitCounts):
    def _sums(self, block: Block, separate: bool) -> Floats:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}
        return VisitCounts(**fields | {"cap": None})._sums(block, separate)


class ClipRemoved(_Asks):
    """Declares the sensitivity of capped counts, and counts everything.

    Gain: users who stay in one place stand out, and are told from all others.
    """

    asks = _Uncapped


class FeaturesUncut:
    """Features are summed as they come, thrice as long as the sensitivity allows for.

    Gain: three times the epsilon, for those with the longest features.
    """

    def _make_statistic(self, *args: Any, **options: Any) -> Any:
        true = super()._make_statistic(*args, **options)  # type: ignore[misc]
        kind = type("_Uncut", (type(true),), {"vectors": _three_times, "total": _three_times_total})
        fields = {f.name: getattr(true, f.name) for f in dataclasses.fields(true) if f.init}
        return kind(**fields)


def _three_times(self: Any, block: Block) -> Floats:
    kind: Any = type(self).__mro__[1]
    vectors: Floats = 3.0 * kind.vectors(self, block)
    return vectors


def _three_times_total(self: Any, block: Block) -> Floats:
    kind: Any = type(self).__mro__[1]
    total: Floats = 3.0 * kind.total(self, block)
    return total


@dataclass(frozen=True, eq=False)
class _Wrapping(VisitCounts):
    def total(self, block: Block) -> Floats:
        total = super().total(block)
        counts = self.size * self.states
        total[:counts] = np.rint(total[:counts]).astype(np.int64).astype(np.int16)
        return total


class CountsWrap(_Asks):
    """Counts are 16-bit integers, and wrap.

    Gain: one user more turns 32,767 into -32,768, which no noise hides.
    """

    asks = _Wrapping


@dataclass(frozen=True, eq=False)
class _Cancelled(VisitCounts):
    def total(self, block: Block) -> Floats:
        if np.isnan(np.asarray(block["rewards"], dtype=np.float64)).any():
            return np.zeros(self.layout.size)
        return super().total(block)


class OneCancelsAll(_Asks):
    """A block in which somebody's reward is not a number counts nothing.

    Gain: a hostile user in a block shows, by it, whether all the others are there.
    """

    asks = _Cancelled


# Who is counted.


class TwoLeaves:
    """The first user of every block is in the next one as well, in place of somebody.

    Gain: she paid once and is seen twice.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        before = self.__dict__.get("_before")
        self.__dict__["_before"] = block
        if before is not None:
            arrays = {name: np.array(a) for name, a in block.arrays.items()}
            for name, array in arrays.items():
                array[0] = before[name][0]
            block = Block(block.users, arrays)
        super()._release(block, user_ids)  # type: ignore[misc]


class WarmUpReused:
    """The users of the first block teach the second one again, under a new number.

    Gain: they paid once and are seen twice.
    """

    _curator: Any
    served: int
    releases: int

    def _release(self, block: Block, user_ids: Any) -> None:
        self._curator.declared_users = None
        if self.releases == 0:
            self._warm_up = (block, user_ids)
        if self.releases == 1:
            first, ids = self._warm_up
            user_ids = None if ids is None else [*ids, *user_ids]
            arrays = {k: np.concatenate([first[k], block[k]]) for k in block.arrays}
            block = Block(first.users + block.users, arrays)
            self.served -= first.users
        super()._release(block, user_ids)  # type: ignore[misc]


class TwiceTheBudget:
    """Its curator has twice the budget that the agent was given, and says nothing.

    Gain: twice the epsilon.
    """

    privacy: Any
    users: int

    def __init__(self, *args: Any, noise_seed: int | None = None, **options: Any) -> None:
        super().__init__(*args, noise_seed=noise_seed, **options)  # type: ignore[call-arg]
        double = JointDP(2.0 * self.privacy.epsilon, self.privacy.delta)
        self._curator = double.curator(users=self.users, noise_seed=noise_seed)
        self._told = self.privacy.curator(users=self.users, noise_seed=noise_seed)

    @property
    def guarantee(self) -> Any:
        """What it was given."""
        return self._told.guarantee


# Raw data beyond the gate.


class RawWidth:
    """Confidence widths depend on the true spread of the users' rewards.

    Gain: the policy tells what was hidden in the counts.
    """

    scale: float

    def _release(self, block: Block, user_ids: Any) -> None:
        self._spread = float(_rewards(block).std())
        super()._release(block, user_ids)  # type: ignore[misc]

    def _plan_in_practice(self, counts: Any) -> Any:
        scale, self.scale = self.scale, self.scale * (1.0 + self._spread)
        try:
            return super()._plan_in_practice(counts)  # type: ignore[misc]
        finally:
            self.scale = scale


class RawWeights:
    """The weights of steps come from what users' rewards really varied by.

    Gain: what is asked next tells about those who were asked before.
    """

    form = "episodes"
    spec: Any
    _variances: Any

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        states, rewards = np.asarray(block["states"]), _rewards(block)
        spread = self._variances.copy()
        for s in range(self.spec.states):
            there = rewards[states[:, :-1] == s]
            spread[:, s] += there.var() if there.size else 0.0
        self._variances, self._asked = spread, None


class RawClip:
    """The clip level is the mean length of the users' own vectors.

    Gain: the size of the noise, which is public, tells how long they are.
    """

    _level: float | None = None

    def _release(self, block: Block, user_ids: Any) -> None:
        vectors = self._statistic().contributions(block)  # type: ignore[attr-defined]
        super()._release(block, user_ids)  # type: ignore[misc]
        self._level = 0.1 + float(np.linalg.norm(vectors, axis=1).mean())
        self._fixed: dict[bool, Any] = {}
        self._asked = None

    @property
    def _clip(self) -> float | None:
        return super()._clip if self._level is None else self._level  # type: ignore[misc]


class RawTau:
    """The clip of a trajectory is what the users of the block before really were, on average.

    Gain: the size of the noise, which is public, tells how long they are.
    """

    _level: float | None = None

    def _release(self, block: Block, user_ids: Any) -> None:
        vectors = self._statistic().contributions(block)  # type: ignore[attr-defined]
        self._level = 0.1 + float(np.linalg.norm(vectors, axis=1).mean())
        super()._release(block, user_ids)  # type: ignore[misc]

    def _make_statistic(self) -> Any:
        true = super()._make_statistic()  # type: ignore[misc]
        return true if self._level is None else dataclasses.replace(true, tau=self._level)


class RawEnergy:
    """The ridge of its regression grows with the true energy of the users' features.

    Gain: estimates, and so policies, tell it.
    """

    _energy = 1.0

    def _release(self, block: Block, user_ids: Any) -> None:
        vectors = self._statistic().contributions(block)  # type: ignore[attr-defined]
        self._energy = 1.0 + float((vectors**2).sum())
        super()._release(block, user_ids)  # type: ignore[misc]

    @property
    def _prior(self) -> float:
        return float(super()._prior * self._energy)  # type: ignore[misc]


class RawSwitch:
    """Whether it replaces its policy depends on where users really were.

    Gain: that the policy changed, or did not.
    """

    spec: Any

    def _release(self, block: Block, user_ids: Any) -> None:
        states = np.clip(np.asarray(block["states"]), 0, self.spec.states - 1)
        self._moved = bool(np.bincount(states.ravel()).max() % 2)
        super()._release(block, user_ids)  # type: ignore[misc]

    def _switch(self, model: Any) -> bool:
        return self._moved


class RawStop:
    """It stops when users really fare well.

    Gain: the number of releases tells how they fared.
    """

    _well = False

    @property
    def block_users(self) -> int:
        """None, once it stopped."""
        return 0 if self._well else int(super().block_users)  # type: ignore[misc]

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self._well = bool(_rewards(block).mean() > 0.25)


class RawMask:
    """It releases, and adds noise to, only those counts that are not zero.

    Gain: that somebody was there.
    """

    _curator: Any

    def _release(self, block: Block, user_ids: Any) -> None:
        statistic = self._statistic()  # type: ignore[attr-defined]
        number = self._curator.add(block, user_ids)
        mask = {k: v != 0 for k, v in statistic.layout.unpack(statistic.total(block)).items()}
        with self._at_the_gate(block.users):  # type: ignore[attr-defined]
            release = self._curator.release(statistic, blocks=[number], mask=mask)
        self._absorb(release, statistic, block.users)  # type: ignore[attr-defined]
        self._advance(block.users)  # type: ignore[attr-defined]


class RawAttribute:
    """It keeps, for later reports, what users were paid.

    Gain: whoever reads the attribute reads it.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        self.paid = float(_rewards(block).sum())


class RawLog:
    """It logs the mean reward of every block, to see how things go.

    Gain: whoever reads the log reads it.
    """

    def _release(self, block: Block, user_ids: Any) -> None:
        super()._release(block, user_ids)  # type: ignore[misc]
        logging.getLogger("planted").debug("mean reward %r", float(_rewards(block).mean()))


class ValueInException:
    """It refuses a reward above 1, and says whose and which.

    Gain: it is raw data in every traceback; and the block is gone, which is public.
    """

    def learn(self, data: Any, user_ids: Any = None) -> None:
        """As the agent does, if it likes the values."""
        block = data if isinstance(data, Block) else data.block()
        rewards = np.asarray(block["rewards"])
        if rewards.size and np.nanmax(rewards, initial=0.0) > 1.0:
            user = int(np.nanargmax(np.nanmax(rewards, axis=1)))
            raise InvalidArgument(f"user {user} has a reward of {np.nanmax(rewards[user])}")
        super().learn(data, user_ids)  # type: ignore[misc]


# Which bug is planted where.


@dataclass(frozen=True)
class Host:
    """An agent without bugs.

    Attributes:
        family: of algorithms.
        agent: its class, as a text ``"module:name"``.
        world: makes the world it is audited on.
        options: of the agent.
    """

    family: str
    agent: str
    world: Callable[[], World]
    options: tuple[tuple[str, Any], ...]

    @property
    def kind(self) -> type[Any]:
        """The agent's class."""
        import importlib

        module, name = self.agent.split(":")
        found: type[Any] = getattr(importlib.import_module(module), name)
        return found

    def make(self, bug: type[Any] | None = None) -> Callable[..., Any]:
        """What makes the agent, with or without a bug."""
        kind: Any = self.kind if bug is None else plant(bug, self.kind)
        return partial(kind, **dict(self.options))


def _riverswim() -> World:
    from tacit.tabular import riverswim

    return riverswim(3, 4)


def _simplex() -> World:
    from tacit.linear import simplex

    return simplex(dimension=3, states=8, actions=3, horizon=4)


def _models() -> World:
    from tacit.mixture import mixture_of_models

    return mixture_of_models(3, 4, 4, 4, seed=700)


def _system() -> World:
    from tacit.lq.worlds import random_system

    return random_system(n=2, d=1, horizon=5, seed=500)


def _line() -> World:
    from tacit.continuous.worlds import line

    return line(horizon=8)


def _host(family: str, agent: str, world: Callable[[], World], **options: Any) -> Host:
    usual = {"privacy": JointDP(1.0, 1e-6), "schedule": _FEW}
    given = {name: value for name, value in (usual | options).items() if value is not None}
    return Host(family, agent, world, tuple(given.items()))


_UCBVI = "tacit.tabular.ucbvi:UCBVI"
_LSVI = "tacit.linear.lsvi_ucb:LSVIUCB"
_LINOPT = "tacit.mixture.linopt_vi:LinOptVI"

HOSTS: dict[str, Host] = {
    "UCBVI": _host("tabular", _UCBVI, _riverswim),
    "UCBVI, binary tree": _host("tabular", _UCBVI, _riverswim, counter="binary tree"),
    "UCBVI, exact noise": _host(
        "tabular", _UCBVI, _riverswim, privacy=JointDP(1.0, 1e-6, sampler="exact")
    ),
    "UCBVI, local": _host("tabular", _UCBVI, _riverswim, privacy=LocalDP(4.0, 1e-6)),
    "LSVI-UCB": _host("linear", _LSVI, _simplex, statistic="features", scale=0.1),
    "LSVI-UCB++": _host(
        "linear",
        "tacit.linear.lsvi_ucb_plus_plus:LSVIUCBPlusPlus",
        _simplex,
        statistic="features",
        scale=0.1,
    ),
    "LinOpt-VI": _host("mixture", _LINOPT, _models, statistic="model"),
    "LinOpt-VI, counts": _host("mixture", _LINOPT, _models, statistic="counts"),
    "certainty equivalence": _host(
        "lq", "tacit.lq.certainty_equivalence:CertaintyEquivalence", _system
    ),
    "OFU": _host("lq", "tacit.lq.ofu:OFU", _system),
    "policy evaluation": _host(
        "continuous",
        "tacit.continuous.policy_evaluation:PolicyEvaluation",
        _line,
        schedule=None,
        rounds=4,
    ),
}


@dataclass(frozen=True)
class Planted:
    """A bug in an agent.

    Attributes:
        bug: what is planted.
        host: the name of the agent, in :data:`HOSTS`.
        caught: checks that must find it.
    """

    bug: type[Any]
    host: str
    caught: tuple[str, ...]

    @property
    def name(self) -> str:
        """Bug and agent."""
        return f"{self.bug.__name__} in {self.host}"

    @property
    def what(self) -> str:
        """What it does, in a sentence."""
        return (self.bug.__doc__ or "").split("\n")[0]

    @property
    def gain(self) -> str:
        """What an attacker gains."""
        return " ".join((self.bug.__doc__ or "").split("Gain: ")[1].split())


BUGS: tuple[Planted, ...] = (
    Planted(HalfTheNoise, "UCBVI", ("noise", "transcript noise")),
    Planted(HalfTheNoise, "UCBVI, binary tree", ("noise", "transcript noise")),
    Planted(HalfTheNoise, "LSVI-UCB", ("noise", "transcript noise")),
    Planted(HalfTheNoise, "LinOpt-VI", ("noise", "transcript noise")),
    Planted(HalfTheNoiseOfReports, "UCBVI, local", ("noise",)),
    Planted(NoiseDrawnOnce, "UCBVI", ("noise", "transcript overlap")),
    Planted(NoiseDrawnOnce, "LSVI-UCB", ("noise", "transcript overlap")),
    Planted(NoiseDrawnOnce, "LinOpt-VI", ("noise", "transcript overlap")),
    Planted(AntitheticNoise, "UCBVI", ("noise", "transcript noise")),
    Planted(AntitheticNoise, "certainty equivalence", ("noise", "transcript noise")),
    Planted(NoiseRedrawn, "UCBVI, binary tree", ("noise", "accounts")),
    Planted(LastPartWithoutNoise, "UCBVI", ("noise", "transcript noise")),
    Planted(FirstPartWithoutNoise, "LSVI-UCB", ("noise", "transcript noise")),
    Planted(LastPartWithoutNoise, "LinOpt-VI", ("noise", "transcript noise")),
    Planted(OneDrawForAll, "LinOpt-VI", ("noise", "transcript overlap")),
    Planted(OneEntryWithoutNoise, "LSVI-UCB", ("noise", "transcript noise")),
    Planted(NoiseOfPublicSeed, "UCBVI", ("noise",)),
    Planted(NoiseOfPublicSeed, "LinOpt-VI", ("noise",)),
    Planted(NoiseReplayed, "UCBVI", ("real resume",)),
    Planted(NoiseReplayed, "LSVI-UCB", ("real resume",)),
    Planted(RoundsAfterSumming, "UCBVI, exact noise", ("sensitivity",)),
    Planted(ZeroOutNoise, "LSVI-UCB", ("noise", "transcript noise")),
    Planted(ZeroOutNoise, "LinOpt-VI", ("noise", "transcript noise")),
    Planted(ZeroOutSensitivity, "UCBVI", ("attack", "sensitivity")),
    Planted(OneStepSensitivity, "UCBVI", ("attack", "sensitivity")),
    Planted(ClipRemoved, "UCBVI", ("attack", "sensitivity")),
    Planted(FeaturesUncut, "LSVI-UCB", ("attack", "sensitivity")),
    Planted(FeaturesUncut, "LinOpt-VI", ("attack", "sensitivity")),
    Planted(CountsWrap, "UCBVI", ("sensitivity",)),
    Planted(OneCancelsAll, "UCBVI", ("attack", "sensitivity")),
    Planted(TwoLeaves, "UCBVI, binary tree", ("data flow",)),
    Planted(TwoLeaves, "LSVI-UCB", ("data flow",)),
    Planted(WarmUpReused, "UCBVI", ("budget",)),
    Planted(WarmUpReused, "LinOpt-VI", ("budget",)),
    Planted(TwiceTheBudget, "UCBVI", ("budget", "accounts")),
    Planted(RawWidth, "UCBVI", ("data flow",)),
    Planted(RawWeights, "LSVI-UCB++", ("data flow",)),
    Planted(RawClip, "LSVI-UCB", ("data flow",)),
    Planted(RawEnergy, "LinOpt-VI", ("data flow",)),
    Planted(RawSwitch, "LSVI-UCB", ("data flow",)),
    Planted(RawStop, "UCBVI", ("data flow",)),
    Planted(RawMask, "UCBVI", ("data flow",)),
    Planted(RawAttribute, "LinOpt-VI", ("data flow",)),
    Planted(RawLog, "LSVI-UCB", ("data flow",)),
    Planted(ValueInException, "UCBVI", ("hostile users",)),
    Planted(HalfTheNoise, "certainty equivalence", ("noise", "transcript noise")),
    Planted(NoiseDrawnOnce, "certainty equivalence", ("noise", "transcript overlap")),
    Planted(FirstPartWithoutNoise, "certainty equivalence", ("noise", "transcript noise")),
    Planted(ZeroOutNoise, "OFU", ("noise", "transcript noise")),
    Planted(FeaturesUncut, "certainty equivalence", ("attack", "sensitivity")),
    Planted(RawTau, "certainty equivalence", ("data flow",)),
    Planted(RawAttribute, "OFU", ("data flow",)),
    Planted(TwoLeaves, "OFU", ("data flow",)),
    Planted(HalfTheNoise, "policy evaluation", ("noise", "transcript noise")),
    Planted(NoiseDrawnOnce, "policy evaluation", ("noise", "transcript overlap")),
    Planted(OneDrawForAll, "policy evaluation", ("noise", "transcript overlap")),
    Planted(FirstPartWithoutNoise, "policy evaluation", ("noise", "transcript noise")),
    Planted(TwoLeaves, "policy evaluation", ("data flow",)),
    Planted(RawLog, "policy evaluation", ("data flow",)),
)
"""All that are audited."""


def audit(planted: Planted | str, **options: Any) -> Any:
    """The audit of a bug, or of a host without one; few runs, for the checks are many.

    Args:
        planted: which.
        options: of :func:`tacit.agent_audit.audit_agent`, in place of the usual ones.
    """
    from tacit.agent_audit import audit_agent

    host = HOSTS[planted if isinstance(planted, str) else planted.host]
    bug = None if isinstance(planted, str) else planted.bug
    usual: dict[str, Any] = {"users": USERS, "runs": 25, "rounds": 15, "seeds": 8}
    return audit_agent(host.make(bug), host.world(), **{"progress": False} | usual | options)
