"""Bugs in the real path of Tacit: what runs on real users, and no simulation shows.

Each is planted by replacing Tacit's own code while a context is entered, so that every agent made
within it has the bug: ``with row.plant(): audit``. ``python -m research.real_path_table`` audits
all of them. Never use one.

The letters say where a bug is: (a) the law of real noise, (b) when a store is opened again, (c)
late or large releases, (d) who is who, (e) keys and entropy, (f) noise that depends on other
noise, (g) tails and support, (h) files, (i) conversions and accounts, (j) words.
"""

from __future__ import annotations

from typing import NamedTuple

from research.planted import real_accounts as of
from research.planted import real_noise as noise
from research.planted.in_tacit import InTacit
from tacit.privacy.models import JointDP, LocalDP

SMALL = "riverswim:states=3,horizon=4"
LARGE = "riverswim:states=20,horizon=5"
"""A release has some 800 entries; from 512 on noise is drawn by a compiled loop."""

_TWICE = "policy_improvement"
"""Asks a block twice."""

JOINT = JointDP(1.0, 1e-6)
PURE = JointDP(1.0, 0.0)
TWICE = JointDP(1.0, 1e-6, episodes_per_user=2)
BITS = LocalDP(4.0, 0.0, mechanism="randomised response")
REPORTS = LocalDP(4.0, 0.0)

_BITS_AGENT = "ucbvi:stationary=false"


class RealPathBug(NamedTuple):
    """A bug, and the agent in whose audit it is looked for.

    Attributes:
        name: of the bug.
        kind: its letter.
        agent: as a command line has it.
        world: as a command line has it.
        privacy: the model.
        plant: makes the context in which Tacit has the bug.
        users: of a run; as ``tacit audit`` chooses them by default.
    """

    name: str
    kind: str
    agent: str
    world: str
    privacy: JointDP | LocalDP
    plant: type[InTacit]
    users: int | None = None

    @property
    def what(self) -> str:
        """What it does, in a sentence."""
        return (self.plant.__doc__ or "").split("\n")[0]

    @property
    def gain(self) -> str:
        """What an attacker gains."""
        return " ".join((self.plant.__doc__ or "").split("Gain: ")[1].split())


def _row(
    kind: str,
    plant: type[InTacit],
    privacy: JointDP | LocalDP = JOINT,
    world: str = SMALL,
    agent: str = "ucbvi",
    users: int | None = None,
) -> RealPathBug:
    return RealPathBug(plant.__name__, kind, agent, world, privacy, plant, users)


REAL_PATH: tuple[RealPathBug, ...] = (
    _row("a", noise.ScaleIsDeviation, PURE),
    _row("a", noise.ScaleIsPowerOfTwo),
    _row("a", noise.SignOfTheFraction),
    _row("a", noise.LaplaceForGaussian),
    _row("a", noise.BoundariesShareNoise, world=LARGE),
    _row("a", noise.DeviceKeepsOnes, BITS, agent=_BITS_AGENT),
    _row("a", noise.SparseReport, BITS, agent=_BITS_AGENT),
    _row("a", noise.SparseReport, REPORTS)._replace(name="SparseReportOfNumbers"),
    _row("b", of.IdsForgotten),
    _row("b", of.WaitingSavedTwice),
    _row("c", noise.NoiseShrinks),
    _row("c", noise.NoiseShrinksLate, agent="ucbvi:schedule=fixed:size=4"),
    _row("c", noise.LastRowsWithoutNoise, world=LARGE),
    _row("c", noise.ChunksOverlap, agent="ucbvi:schedule=fixed:size=600", users=1800),
    _row("c", noise.SparseNoise, world=LARGE),
    _row("d", of.IdsByType),
    _row("d", of.IdsByHash),
    _row("d", of.GroupCostLinear, TWICE),
    _row("d", of.TwiceInOneBlock),
    _row("d", of.SeenIsACache),
    _row("e", noise.SixteenBits),
    _row("e", noise.OneKeyPerProcess),
    _row("e", noise.KeyKeptOverFork),
    _row("e", noise.SeededByPid),
    _row("e", noise.SeededByMachine),
    _row("e", noise.RetryableReport, BITS, agent=_BITS_AGENT),
    _row("f", noise.HalvesOpposite),
    _row("f", noise.PartsShareNoise),
    _row("f", noise.NoiseCentred),
    _row("f", noise.FewDirections, world=LARGE),
    _row("f", noise.TwoBuffers),
    _row("f", noise.ReleasesOpposite),
    _row("g", noise.TruncatedAtFour),
    _row("g", noise.NeverZero),
    _row("g", noise.EvenNoise),
    _row("g", noise.NegativeRedrawn),
    _row("h", of.StoreReadable),
    _row("h", of.BlocksSpilled),
    _row("h", of.ReleasedEpisodesKept),
    _row("i", of.LimitGenerous),
    _row("i", of.DeltaOfOneTail),
    _row("i", of.CostsRounded, JointDP(0.05, 1e-6)),
    _row("i", of.PaidOnce, agent=_TWICE),
    _row("i", of.PureSpentInSquares, JointDP(0.25, 0.0)),
    _row("j", of.GuaranteeOfAnEpisode, TWICE),
    _row("j", of.SimulationUnsaid),
    _row("j", of.WordsRoundedDown, JointDP(1.0000004, 1e-6)),
)
"""All of them."""
