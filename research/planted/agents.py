"""Bugs of agents: of noise, of sensitivities, of who is counted and what is written down.

Every bug says what it does and what an attacker gains; above it stand the checks that must find it,
and the agents of :mod:`research.planted_bugs` in which it is planted. Never use one.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from research.planted.ways import Asking, admits, drawn, instead, patched, sums, tampers
from tacit.privacy.budget import Relation
from tacit.privacy.counters.dense import Optimal
from tacit.privacy.curator import Curator, JointCurator, Release
from tacit.privacy.local import LocalCurator
from tacit.privacy.models import JointDP
from tacit.privacy.noise import Noise, grid_sensitivity
from tacit.privacy.statistic import Block, Floats, Statistic
from tacit.tabular.visits import VisitCounts

_UNIT, _FAR = 2.0**30, 1e6
RUNNING, BITS = "ConcurrentPSRL, running sums", "UCBVI, randomised response"
UCBVI, LSVI, MIXTURE, CONTROL = "UCBVI", "LSVI-UCB", "LinOpt-VI", "certainty equivalence"
FUNCTIONAL, LOCAL = "functional noise", "UCBVI, local"
NOISE, REAL, TAILS = ("noise", "transcript noise"), ("noise",), ("transcript noise",)
BOUND, FLOW, BUDGET = ("attack", "sensitivity"), ("data flow",), ("budget",)


@dataclasses.dataclass(frozen=True)
class Planted:
    """A bug in an agent.

    Attributes:
        bug: what is planted.
        host: the name of the agent.
        caught: checks that must find it.
        runs: of the audit. What is rare in the noise of small statistics needs more of them.
    """

    bug: type[Any]
    host: str
    caught: tuple[str, ...]
    runs: int = 25

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


FOUND: list[Planted] = []
"""All that are planted, as they are written down."""


def found(caught: tuple[str, ...], *hosts: str, runs: int = 25) -> Callable[[type[Any]], type[Any]]:
    """Plants a bug in some agents."""

    def add(bug: type[Any]) -> type[Any]:
        FOUND.extend(Planted(bug, host, caught, runs) for host in hosts)
        return bug

    return add


# Noise.


@found(NOISE, UCBVI, RUNNING, LSVI, MIXTURE, CONTROL, FUNCTIONAL)
@patched(drawn)
def half_the_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise has half the size that its budget demands.

    Gain: everybody is told apart twice as well as promised; at (1, 1e-6) the true epsilon is 2.1.
    """
    return draw(scale, size) // 2


@found(REAL, LOCAL)
@patched(instead(LocalCurator, "_simulate"))
def half_the_noise_of_reports(right: Any, curator: Any, statistic: Statistic, block: Block) -> Any:
    """Devices add half the noise that the model demands.

    Gain: whoever reads a report knows its sender twice as well as promised.
    """
    total = statistic.total(block)
    return total + 0.5 * (right(curator, statistic, block) - total)


@found(NOISE, UCBVI, LSVI, MIXTURE, CONTROL, FUNCTIONAL)
@patched(drawn)
def noise_drawn_once(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """For every shape noise is drawn once, and used in every release.

    Gain: the difference of two releases has no noise at all.
    """
    known: dict[int, Any] = curator.__dict__.setdefault("_drawn", {})
    if size not in known:
        known[size] = draw(_UNIT, size) / _UNIT
    return np.rint(scale * known[size]).astype(np.int64)


@found(NOISE, UCBVI, CONTROL)
@patched(drawn)
def antithetic_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is drawn in pairs of opposite signs, so that it adds up to nothing.

    Gain: every entry has the right noise, and sums of entries have none.
    """
    half = draw(scale, (size + 1) // 2)
    return np.stack([half, -half], axis=1).reshape(-1)[:size]


@found(("noise", "accounts"), RUNNING)
@patched(instead(Optimal, "_released"))
def noise_redrawn(right: Any, counter: Any, steps: Any, fresh: Any) -> Floats:
    """All noise of a running sum is drawn anew in every release that it is part of.

    Gain: an early user is in many releases; their mean has less noise than was paid for.
    """
    rows = [*(counter._draw() for _ in range(counter.released - 1)), fresh]
    noise = np.ldexp(np.array(rows, dtype=np.float64), -counter._places())
    row = counter.factor.inverse[counter.released - 1, : counter.released]
    published: Floats = counter._sum + row @ noise
    return published


def _bare(place: int, right: Any, curator: Any, *asked: Any, **options: Any) -> Release:
    """A release of which one part is as it is."""
    released: Release = right(curator, *asked, **options)
    statistic, block = asked[:2]
    true = statistic.layout.unpack(statistic.total(block))
    name = statistic.layout.parts[place].name
    return dataclasses.replace(released, parts={**released.parts, name: true[name]})


@found(NOISE, LSVI, CONTROL, FUNCTIONAL)
@patched(instead(Curator, "release_block"))
def first_part_without_noise(right: Any, curator: Any, *asked: Any, **options: Any) -> Any:
    """One statistic of several is released as it is: Grams are of public features, are they not?

    Gain: where users went, exactly.
    """
    return _bare(0, right, curator, *asked, **options)


@found(NOISE, UCBVI, MIXTURE)
@patched(instead(Curator, "release_block"))
def last_part_without_noise(right: Any, curator: Any, *asked: Any, **options: Any) -> Any:
    """One statistic of several is released as it is: sums of rewards say little.

    Gain: what users were paid, exactly.
    """
    return _bare(-1, right, curator, *asked, **options)


@found(NOISE, MIXTURE, FUNCTIONAL)
@patched(drawn)
def one_draw_for_all(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """A release adds one random number to all of its entries.

    Gain: differences of entries have no noise.
    """
    return np.full(size, draw(scale, 1)[0])


@found(NOISE, LSVI)
@patched(drawn)
def one_entry_without_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """A loop over entries begins at 1.

    Gain: the first count, exactly.
    """
    noise = draw(scale, size)
    noise[0] = 0.0
    return noise


def simulated(curator: Any) -> bool:
    """Whether its noise is."""
    return bool(curator.source.simulation)


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


@found(REAL, UCBVI, MIXTURE)
@patched(tampers)
def noise_of_public_seed(agent: Any) -> None:
    """Real noise comes from the public seed, for runs that can be repeated.

    Gain: whoever knows the seed subtracts the noise.
    """
    _seed_real(agent, agent.algorithm.problem.seed)


@found(("store",), UCBVI, LSVI)
@patched(tampers)
def noise_replayed(agent: Any) -> None:
    """A run that is opened again goes on with the generator that was kept.

    Gain: two copies of one store put the same noise on two sets of users.
    """
    if agent.taken:
        _seed_real(agent, 0)


@found(REAL, UCBVI, MIXTURE, LSVI)
@patched(tampers)
def noise_of_the_clock(agent: Any) -> None:
    """Real noise comes from a generator that the clock has seeded.

    Gain: whoever knows about when a run began tries all seeds.
    """
    _seed_real(agent, time.time_ns())


@found(TAILS, CONTROL)
@found(NOISE, UCBVI, LSVI)
@patched(drawn)
def uniform_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is uniform, of the right variance.

    Gain: what is too far from a release to be its noise is ruled out for certain.
    """
    from scipy.special import ndtr

    evenly = ndtr(draw(_UNIT, size) / _UNIT) - 0.5
    return np.rint(scale * math.sqrt(12.0) * evenly).astype(np.int64)


@found(TAILS, MIXTURE, runs=120)
@found(TAILS, UCBVI, runs=90)
@found(TAILS, LSVI)
@patched(drawn)
def cut_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is cut at three standard deviations, for no count to look absurd.

    Gain: delta is a thousand times what was promised, for it is in the tails.
    """
    most = int(3.0 * scale)
    return np.clip(draw(scale, size), -most, most)


@found(NOISE, UCBVI, MIXTURE, FUNCTIONAL)
@patched(drawn)
def coarse_noise(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Noise is on a coarser grid than what it is added to, for whole numbers to look neat.

    Gain: what is left of a sum when multiples of that grid are taken away, exactly.
    """
    coarse = max(1, int(scale / 4.0))
    return coarse * np.rint(draw(scale, size) / coarse).astype(np.int64)


@found(REAL, UCBVI, MIXTURE, FUNCTIONAL)
@patched(drawn)
def real_noise_unscaled(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Simulations have the right noise; real runs forget its scale.

    Gain: nobody tests with real users, and they have almost no protection.
    """
    return draw(scale if simulated(curator) else 1.0, size)


@found(REAL, UCBVI, LSVI, CONTROL)
@patched(drawn)
def noise_of_shared_generator(curator: Any, draw: Any, scale: float, size: int) -> Any:
    """Real noise comes from the generator that NumPy shares with everybody.

    Gain: where a script begins with a seed, as most do, the noise is known.
    """
    if simulated(curator):
        return draw(scale, size)
    return np.rint(scale * np.random.normal(size=size)).astype(np.int64)  # noqa: NPY002


# Sensitivity.


@found(NOISE, LSVI, MIXTURE, CONTROL)
@patched(instead(JointCurator, "apart"))
def zero_out_noise(right: Any, curator: Any, statistic: Statistic, step: float) -> float:
    """Noise is for a user who leaves; the guarantee is for one who is replaced.

    Gain: up to twice what was promised, as the papers have it.
    """
    return grid_sensitivity(statistic, Relation.ZERO_OUT, curator.privacy.norm, step)


@found(BOUND, UCBVI)
@patched(instead(VisitCounts, "l2"))
def zero_out_sensitivity(right: Any, statistic: Any, relation: Relation) -> Any:
    """A statistic declares for replace-one what holds for zero-out.

    Gain: up to twice what was promised.
    """
    return right(statistic, Relation.ZERO_OUT)


@found(BOUND, UCBVI)
@patched(instead(VisitCounts, "l2"))
def one_step_sensitivity(right: Any, statistic: Any, relation: Relation) -> Any:
    """A statistic declares the sensitivity of one step, not of an episode of H.

    Gain: an epsilon sqrt(H) times as large.
    """
    return right(statistic, relation) / math.sqrt(statistic.horizon)


@found(BOUND, BITS)
@patched(instead(VisitCounts, "one_hots"))
def budget_of_one_bit(right: Any, statistic: Any) -> int:
    """Randomised response of every step has the whole budget of the episode.

    Gain: an epsilon three times as long as the episode.
    """
    return 1


@found(BOUND, UCBVI)
@patched(instead(VisitCounts, "_sums"))
def clip_removed(right: Any, statistic: Any, steps: Any, separate: bool) -> Any:
    """Declares the sensitivity of capped counts, and counts everything.

    Gain: users who stay in one place stand out, and are told from all others.
    """
    fields = {f.name: getattr(statistic, f.name) for f in dataclasses.fields(statistic) if f.init}
    return right(VisitCounts(**fields | {"cap": None}), steps, separate)


class _Uncut:
    def vectors(self, block: Block) -> Any:
        return 3.0 * super().vectors(block)  # type: ignore[misc]

    def total(self, block: Block) -> Any:
        return 3.0 * super().total(block)  # type: ignore[misc]


@found(BOUND, LSVI, MIXTURE, CONTROL)
class FeaturesUncut(Asking):
    """Features are summed as they come, thrice as long as the sensitivity allows for.

    Gain: three times the epsilon, for those with the longest features.
    """

    _instead = _Uncut


@found(("sensitivity",), UCBVI)
@patched(instead(VisitCounts, "total"))
def counts_wrap(right: Any, statistic: Any, block: Block) -> Any:
    """Counts are 16-bit integers, and wrap.

    Gain: one user more turns 32,767 into -32,768, which no noise hides.
    """
    total, counts = right(statistic, block), statistic.size * statistic.states
    total[:counts] = np.rint(total[:counts]).astype(np.int64).astype(np.int16)
    return total


@found(BOUND, UCBVI)
@patched(instead(VisitCounts, "total"))
def one_cancels_all(right: Any, statistic: Any, block: Block) -> Any:
    """A block in which somebody's reward is not a number counts nothing.

    Gain: a hostile user in a block shows, by it, whether all the others are there.
    """
    if np.isnan(np.asarray(block["rewards"], dtype=np.float64)).any():
        return np.zeros(statistic.layout.size)
    return right(statistic, block)


# Who is counted, and what is written down.


@found(FLOW, LSVI, CONTROL, FUNCTIONAL)
@patched(sums)
def two_leaves(earlier: Sequence[Block], block: Block) -> Block:
    """The first user of every block is in the next one as well, in place of somebody.

    Gain: she paid once and is seen twice.
    """
    arrays = {name: np.array(a) for name, a in block.arrays.items()}
    for name, array in arrays.items():
        array[0] = earlier[-1][name][0] if earlier else array[0]
    return Block(block.users, arrays)


@found(BUDGET, UCBVI, MIXTURE)
@patched(sums)
def warm_up_reused(earlier: Sequence[Block], block: Block) -> Block:
    """The users of the first block teach the second one again.

    Gain: they paid once and are seen twice.
    """
    if len(earlier) != 1:
        return block
    arrays = {k: np.concatenate([earlier[0][k], block[k]]) for k in block.arrays}
    return Block(earlier[0].users + block.users, arrays)


@found(BUDGET, UCBVI, LSVI, LOCAL, FUNCTIONAL)
@patched(admits)
def ids_dropped(block: Block, user_ids: Any) -> tuple[Block, Any]:
    """Ids are checked, and then left at the door.

    Gain: who comes ten times is counted ten times, and pays once.
    """
    return block, None


@found(BUDGET, UCBVI, MIXTURE, CONTROL)
@patched(admits)
def ids_sorted(block: Block, user_ids: Any) -> tuple[Block, Any]:
    """Ids are put in order, the rows that they belong to are not.

    Gain: who comes again is counted again, and others are left out instead.
    """
    return block, None if user_ids is None else sorted(user_ids)


class _Lying(JointCurator):
    told: JointCurator

    @property
    def guarantee(self) -> Any:
        return self.told.guarantee


@found(("budget", "accounts"), UCBVI)
@patched(tampers)
def twice_the_budget(agent: Any) -> None:
    """Its curator has twice the budget that the agent was given, and says nothing.

    Gain: twice the epsilon.
    """
    told, privacy = agent._run.curator, agent.privacy
    double = JointDP(2.0 * privacy.epsilon, privacy.delta)
    agent._run.curator = double.curator(users=agent.users, source=told.source)
    agent._run.curator.__class__, agent._run.curator.told = _Lying, told


@found(BUDGET, UCBVI, RUNNING, LSVI)
@patched(instead(JointCurator, "price"))
def ledger_charged_nothing(right: Any, curator: Any, release: Release) -> Fraction:
    """The ledger has an entry for every release, and a cost of nothing in it.

    Gain: the same users are asked again, and again.
    """
    return Fraction(0)
