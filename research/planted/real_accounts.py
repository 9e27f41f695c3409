"""Bugs of real runs beside their noise: who is who, stores, accounts and words.

See :mod:`research.planted.of_real_path`. Never use one.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from research.planted.in_tacit import InTacit, Patch
from tacit.core.intake import EpisodeIntake
from tacit.privacy import budget as gaussian_dp
from tacit.privacy import budget as guarantee
from tacit.privacy.budget import Guarantee
from tacit.privacy.curator import Curator, JointCurator, Release
from tacit.privacy.models import JointDP
from tacit.privacy.statistic import Block
from tacit.store import runs
from tacit.store.store import Store

# b. When a store is opened again.


class _OtherNames(InTacit):
    """People have other names in a store."""

    def patches(self) -> Iterator[Patch]:
        """How a name is made."""
        right = Store.pseudonyms

        def pseudonyms(where: Store, names: Sequence[Any]) -> list[str]:
            return right(where, [self.named(where, name) for name in names])

        yield Store, "pseudonyms", pseudonyms

    def named(self, where: Store, name: Any) -> str:
        """What is hashed."""
        raise NotImplementedError


class IdsForgotten(_OtherNames):
    """The key of users' names is a new one whenever a store is opened.

    Gain: who took part before takes part again, and pays once.
    """

    def named(self, where: Store, name: Any) -> str:
        """With something that is not kept."""
        return f"{where.__dict__.setdefault('_salt', np.random.default_rng().random())} {name}"


class WaitingSavedTwice(InTacit):
    """Of those who come together the first is in the store twice, and the last not at all.

    Gain: she is in the sums twice.
    """

    def patches(self) -> Iterator[Patch]:
        """What is put into a store."""
        right = EpisodeIntake._write

        def write(intake: Any, db: Any, run: Any, block: int, rows: Block, *more: Any) -> None:
            kept = np.maximum(np.arange(rows.users) - 1, 0)
            arrays = {name: array[kept] for name, array in rows.arrays.items()}
            twice = rows if rows.aggregate else Block(rows.users, arrays)
            right(intake, db, run, block, twice, *more)

        yield EpisodeIntake, "_write", write


# d. Who is who.


class IdsByType(_OtherNames):
    """The type of an id is part of a user's name.

    Gain: 7 from a list and 7 from a NumPy array are two people, each with a budget.
    """

    def named(self, where: Store, name: Any) -> str:
        """With its type."""
        return f"{type(name).__name__} {name}"


class IdsByHash(_OtherNames):
    """A user's name is made of Python's own hash of her id, which for texts is of the process.

    Gain: after a restart everybody whose id is a text is somebody else, and takes part again.
    """

    def named(self, where: Store, name: Any) -> str:
        """As another process would have it."""
        return f"{hash((id(where), str(name)))}"


class GroupCostLinear(InTacit):
    """The budget of a user with g episodes is split by g, also where they are in one release.

    Gain: her episodes add up there, so her mu is sqrt(g) times what was promised.
    """

    def patches(self) -> Iterator[Patch]:
        """What an episode may cost."""

        def limit(privacy: JointDP) -> float:
            g = float(privacy.episodes_per_user)
            return privacy.epsilon / g if privacy.pure else privacy.budget.mu**2 / g

        yield JointDP, "episode_limit", property(limit)


class TwiceInOneBlock(InTacit):
    """Who comes is compared with those of earlier calls, not with those of her own.

    Gain: who comes ten times at once is counted ten times, and pays once.
    """

    def patches(self) -> Iterator[Patch]:
        """Who is admitted."""
        right = runs.admit

        def admit(db: Any, run: Any, block: int, names: Sequence[str]) -> list[int]:
            first = dict(reversed([*zip(names, right(db, run, block, names), strict=True)]))
            return [first[name] for name in names]

        yield runs, "admit", admit


class SeenIsACache(InTacit):
    """Only the last ten people are looked up, as databases are slow.

    Gain: who comes back after ten others is counted again.
    """

    def patches(self) -> Iterator[Patch]:
        """Who is admitted."""
        right, last = runs.admit, list[str]()

        def admit(db: Any, run: Any, block: int, names: Sequence[str]) -> list[int]:
            found = right(db, run, block, names)
            known, last[:] = set(last), [*last, *names][-10:]
            pairs = zip(names, found, strict=True)
            return [max(cost, 0) if name not in known else cost for name, cost in pairs]

        yield runs, "admit", admit


# h. Files.


class StoreReadable(InTacit):
    """A store's file gets the mode of the public ones.

    Gain: everybody with an account on the machine reads raw data out of it.
    """

    def patches(self) -> Iterator[Patch]:
        """How its file is made."""
        right = Path.touch
        yield Path, "touch", lambda path, mode=0o666: right(path, mode=0o644)


class BlocksSpilled(InTacit):
    """Blocks are kept on disk as well, for machines with little memory, and never removed.

    Gain: whoever reads the folder for temporary files has everybody's episodes.
    """

    def __enter__(self) -> Any:
        self._made: list[str] = []
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for folder in self._made:
            shutil.rmtree(folder, ignore_errors=True)

    def patches(self) -> Iterator[Patch]:
        """How a real curator sums a block."""
        right = Curator.release_block

        def release_block(curator: Any, statistic: Any, block: Block, **more: Any) -> Release:
            if not curator.source.simulation:
                self._made.append(tempfile.mkdtemp(prefix="tacit-block-"))
                for name, array in block.arrays.items():
                    np.save(Path(self._made[-1], f"{name}.npy"), array, allow_pickle=False)
            return right(curator, statistic, block, **more)

        yield Curator, "release_block", release_block


class ReleasedEpisodesKept(InTacit):
    """Episodes of blocks that were released stay in the store.

    Gain: whoever steals it has the raw data of everybody who ever took part.
    """

    def patches(self) -> Iterator[Patch]:
        """How they are erased."""
        yield runs, "erase", lambda *_: None


# i. Conversions and accounts.


class LimitGenerous(InTacit):
    """What an episode may cost is rounded up to two digits.

    Gain: a mu that is up to a few per cent larger than that of the guarantee.
    """

    def patches(self) -> Iterator[Patch]:
        """What an episode may cost."""
        right = JointDP.episode_limit.fget  # type: ignore[attr-defined]

        def limit(privacy: JointDP) -> float:
            found: float = right(privacy)
            unit = 10.0 ** (math.floor(math.log10(found)) - 1)
            return math.ceil(found / unit * (1.0 - 1e-12)) * unit

        yield JointDP, "episode_limit", property(limit)


class DeltaOfOneTail(InTacit):
    """The exact conversion gives half of its delta to each of two tails, and counts one.

    Gain: twice the delta, in everything that is computed from it, the guarantee included.
    """

    def __enter__(self) -> Any:
        gaussian_dp._largest_mu.cache_clear()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        gaussian_dp._largest_mu.cache_clear()

    def patches(self) -> Iterator[Patch]:
        """The one formula."""
        right = gaussian_dp._delta

        def delta(mu: float, epsilon: float) -> float:
            return max(right(mu, epsilon) / 2.0, gaussian_dp.TINY)

        yield gaussian_dp, "_delta", delta


class _OtherPrices(InTacit):
    """A release costs something else."""

    def patches(self) -> Iterator[Patch]:
        """What it costs each user."""
        right = JointCurator.price

        def price(curator: JointCurator, release: Release) -> Fraction:
            return self.priced(curator, right(curator, release))

        yield JointCurator, "price", price

    def priced(self, curator: JointCurator, true: Fraction) -> Fraction:
        """In place of what is true."""
        raise NotImplementedError


class CostsRounded(_OtherPrices):
    """Costs are rounded to three places, as a ledger shows them.

    Gain: under a small budget every release is free.
    """

    def priced(self, curator: JointCurator, true: Fraction) -> Fraction:
        """Rounded."""
        return Fraction(round(float(true), 3))


class PaidOnce(_OtherPrices):
    """A curator that was paid for a release is not paid again.

    Gain: every further question is free.
    """

    def priced(self, curator: JointCurator, true: Fraction) -> Fraction:
        """Nothing, after the first."""
        paid = curator.__dict__.setdefault("_paid", [])
        paid.append(true)
        return true if len(paid) == 1 else Fraction(0)


class PureSpentInSquares(_OtherPrices):
    """Costs under pure privacy are squared, as those of Gaussian noise are.

    Gain: a block that is asked for half of 0.25 has paid a sixteenth.
    """

    def priced(self, curator: JointCurator, true: Fraction) -> Fraction:
        """Squared."""
        return true**2 if curator.privacy.pure else true


# j. Words.


class _OtherGuarantee(InTacit):
    """A joint curator states another guarantee than it gives."""

    def patches(self) -> Iterator[Patch]:
        """What it states."""
        right = JointCurator.guarantee.fget  # type: ignore[attr-defined]

        def stated(curator: JointCurator) -> Guarantee:
            return self.stated(right(curator))

        yield JointCurator, "guarantee", property(stated)

    def stated(self, true: Guarantee) -> Guarantee:
        """What it states."""
        raise NotImplementedError


class GuaranteeOfAnEpisode(_OtherGuarantee):
    """A user with g episodes is told the epsilon of one of them.

    Gain: it says less than a g-th of what it costs her.
    """

    def stated(self, true: Guarantee) -> Guarantee:
        """A part of it."""
        g = true.episodes_per_user
        mu = None if true.mu is None else true.mu / g
        return dataclasses.replace(true, epsilon=true.epsilon / g, mu=mu)


class SimulationUnsaid(_OtherGuarantee):
    """A guarantee does not say that its run was a simulation.

    Gain: a run whose noise everybody can subtract passes for a real one.
    """

    def stated(self, true: Guarantee) -> Guarantee:
        """As if it were real."""
        return dataclasses.replace(true, simulation_only=False)


class WordsRoundedDown(InTacit):
    """A guarantee prints its numbers to six digits, rounded to the nearest.

    Gain: what is printed is a stronger claim than was proven.
    """

    def patches(self) -> Iterator[Patch]:
        """How numbers are printed."""

        def nearest(value: float) -> str:
            return f"{value:.6g}"

        yield guarantee, "_up", nearest
