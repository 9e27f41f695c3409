"""Bugs of real runs beside their noise: resumes, ids, files, accounts and words.

See :mod:`research.planted.of_real_path`. Never use one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from research.planted.in_tacit import InTacit, Patch, everywhere
from tacit.core.session import Waiting
from tacit.privacy import gaussian_dp, guarantee, pseudonyms, storage
from tacit.privacy.curators import saves
from tacit.privacy.curators.accounts import BlockAccounts
from tacit.privacy.curator import Curator, Release
from tacit.privacy.curator import JointCurator
from tacit.privacy.curators.participants import Participants
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.models import JointDP
from tacit.privacy.noise import NoiseSource
from tacit.privacy.owner import Owner
from tacit.privacy.pseudonyms import NAME_BYTES, Name
from tacit.privacy.statistic import Block

# b. After a resume.


class SpendingForgotten(InTacit):
    """A resumed run opens every block's account anew.

    Gain: blocks that are kept, or whose round a crash came into, pay again from nothing.
    """

    def patches(self) -> Iterator[Patch]:
        """What is read out of a save."""
        right = BlockAccounts.restore

        def restore(accounts: BlockAccounts, meta: dict[str, Any]) -> None:
            right(accounts, meta)
            accounts.exact = dict.fromkeys(accounts.exact, Fraction(0))

        yield BlockAccounts, "restore", restore


class IdsForgotten(InTacit):
    """A resumed run knows the key of its users' names, and none of the names.

    Gain: who took part before the resume takes part again, and pays once.
    """

    def patches(self) -> Iterator[Patch]:
        """What is read out of a save."""
        right = Participants.restore

        def restore(people: Participants, meta: dict[str, Any], arrays: dict[str, Any]) -> None:
            right(people, meta, arrays)
            people._seen = {}

        yield Participants, "restore", restore


class WaitingSavedTwice(InTacit):
    """A save in mid-block has the first of those who wait twice, and the last of them not at all.

    Gain: after a resume the first are in the sums twice.
    """

    def patches(self) -> Iterator[Patch]:
        """What is put into a save."""
        right = Waiting.dump

        def dump(waiting: Waiting, participants: Participants) -> Any:
            meta, arrays = right(waiting, participants)
            if (names := meta["pending_names"]) is not None:
                meta["pending_names"] = [*names[:1], *names[:-1]]
            return meta, {k: np.concatenate([a[:1], a[:-1]]) for k, a in arrays.items()}

        yield Waiting, "dump", dump


class WaitingNamesHashedAgain(InTacit):
    """Names of those who waited while a run was saved are taken for ids, and hashed again.

    Gain: they have two names from then on, and may come back.
    """

    def patches(self) -> Iterator[Patch]:
        """How a name is made."""
        right = pseudonyms.name_of

        def name_of(user: int | str, key: bytes) -> bytes:
            return right(str(user) if isinstance(user, Name) else user, key)

        yield from everywhere("name_of", right, name_of)


class OwnerForgotten(InTacit):
    """A resumed curator belongs to no process.

    Gain: forked, it goes on in both processes, and its users pay once.
    """

    def patches(self) -> Iterator[Patch]:
        """How a curator goes on."""
        right = Curator.restart

        def restart(curator: Curator, users: int, source: NoiseSource) -> None:
            right(curator, users, source)
            curator._owner = Owner(simulation=True)

        yield Curator, "restart", restart


# d. Who is who.


class IdsByType(InTacit):
    """The type of an id is part of a user's name.

    Gain: 7 from a list and 7 from a NumPy array are two people, each with a budget.
    """

    def patches(self) -> Iterator[Patch]:
        """How a name is made."""
        right = pseudonyms.name_of

        def name_of(user: int | str, key: bytes) -> bytes:
            if isinstance(user, (Name, bool, float)) or not isinstance(
                user, (int, str, np.integer)
            ):
                return right(user, key)
            text = f"{type(user).__name__} {user}".encode("utf-8", "surrogatepass")
            return hashlib.blake2b(text, key=key, digest_size=NAME_BYTES).digest()

        yield from everywhere("name_of", right, name_of)


class IdsByHash(InTacit):
    """A user's name is made of Python's own hash of her id, which for texts is of the process.

    Gain: after a restart everybody whose id is a text is somebody else, and takes part again.
    """

    def patches(self) -> Iterator[Patch]:
        """How a name is made."""
        right = pseudonyms.name_of

        def name_of(user: int | str, key: bytes) -> bytes:
            plain = isinstance(user, str) and not isinstance(user, Name)
            return right(hash(user) if plain else user, key)

        yield from everywhere("name_of", right, name_of)


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
    """Who comes is compared with those of earlier blocks, not with those of her own.

    Gain: who comes ten times within a block is counted ten times, and pays once.
    """

    def patches(self) -> Iterator[Patch]:
        """Who is admitted."""
        right = Participants.admit

        def admit(people: Participants, block: Block, user_ids: Sequence[Any] | None) -> Block:
            if user_ids is None or people._limit is None or people._join is not None:
                return right(people, block, user_ids)
            before, names = dict(people._seen), people.names(user_ids)
            right(people, block, user_ids)
            seen = [before.get(bytes.fromhex(name), 0) for name in names]
            keep = np.array(seen, dtype=np.int64) < people._limit
            return block if keep.all() else block.take(keep)

        yield Participants, "admit", admit


class SeenIsACache(InTacit):
    """Only the last hundred names are kept, as memory is short.

    Gain: who comes back after a hundred others is counted again.
    """

    def patches(self) -> Iterator[Patch]:
        """Who is admitted."""
        right = Participants.admit

        def admit(people: Participants, block: Block, user_ids: Sequence[Any] | None) -> Block:
            admitted = right(people, block, user_ids)
            people._seen = dict([*people._seen.items()][-100:])
            return admitted

        yield Participants, "admit", admit


# h. Files.


class SaveReadable(InTacit):
    """Secret files get the mode of the public ones.

    Gain: everybody with an account on the machine reads raw data out of saves.
    """

    def patches(self) -> Iterator[Patch]:
        """How states are written."""
        right = storage.write_state

        def write(path: Any, kind: str, meta: Any, arrays: Any, **_: Any) -> None:
            right(path, kind, meta, arrays, secret=False)

        yield from everywhere("write_state", right, write)


class TemporaryKept(InTacit):
    """A save is linked to its name, and its temporary file stays.

    Gain: what a later save no longer holds, blocks that were forgotten, stays on disk.
    """

    def patches(self) -> Iterator[Patch]:
        """How files are written."""
        right = storage.write_atomic

        def write(path: Any, data: bytes, mode: int, *, replace: bool = True) -> None:
            right(path, data, mode, replace=replace)
            if replace:
                folder = os.path.dirname(os.fspath(path)) or "."
                os.link(path, os.path.join(folder, f".tacit-{secrets.token_hex(8)}.tmp"))

        yield from everywhere("write_atomic", right, write)


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
        """How a real curator takes a block."""
        right = JointCurator.add

        def add(curator: JointCurator, block: Block, user_ids: Any = None) -> int:
            if not curator.source.simulation:
                self._made.append(tempfile.mkdtemp(prefix="tacit-block-"))
                for name, array in block.arrays.items():
                    np.save(Path(self._made[-1], f"{name}.npy"), array, allow_pickle=False)
            return right(curator, block, user_ids)

        yield JointCurator, "add", add


class ForgottenBlocksSaved(InTacit):
    """Blocks that are forgotten are out of reach, and still in every save.

    Gain: whoever steals a save has the raw data of everybody who ever took part.
    """

    def patches(self) -> Iterator[Patch]:
        """How a block is forgotten, and how a save is written."""
        right, write = Curator.forget, saves._write

        def forget(curator: Curator, block: int) -> None:
            raw = curator._raw(block)
            right(curator, block)
            curator.__dict__.setdefault("_old", {})[block] = raw

        def written(curator: JointCurator, path: Any, mark: Any) -> None:
            here = curator._blocks
            curator._blocks = curator.__dict__.get("_old", {}) | here
            try:
                write(curator, path, mark)
            finally:
                curator._blocks = here

        yield Curator, "forget", forget
        yield saves, "_write", written


class LedgerLinesBuffered(InTacit):
    """A charge is written to the ledger together with the next one, or with a save.

    Gain: after a crash the last release was published, and nobody has paid for it.
    """

    def patches(self) -> Iterator[Patch]:
        """How charges and saves are recorded."""
        right, save = Ledger.charge, Ledger.record_save

        def flush(ledger: Ledger) -> None:
            if later := ledger.__dict__.pop("_later", None):
                right(ledger, later[0], later[1], pending=later[2])

        def charge(
            ledger: Ledger, costs: Mapping[str, float], label: str, *, pending: bool = False
        ) -> int:
            flush(ledger)
            ledger.__dict__["_later"] = (dict(costs), label, pending)
            return ledger.sequence + 1

        def record_save(ledger: Ledger, *given: Any, **options: Any) -> Any:
            flush(ledger)
            return save(ledger, *given, **options)

        yield Ledger, "charge", charge
        yield Ledger, "record_save", record_save


class AutosaveLate(InTacit):
    """The state is saved when the next release begins, so that nobody waits for a disk.

    Gain: after a crash the last release is forgotten, and without a ledger its users pay again.
    """

    def patches(self) -> Iterator[Patch]:
        """How a curator publishes."""
        release = JointCurator._release

        def publish(curator: JointCurator, released: Release) -> Release:
            return Curator._publish(curator, released)

        def begin(curator: JointCurator, *which: Any) -> Release:
            if curator.autosave is not None and curator.releases:
                curator.save(curator.autosave)
            return release(curator, *which)

        yield JointCurator, "_publish", publish
        yield JointCurator, "_release", begin


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


class CostsRounded(InTacit):
    """Costs are rounded to three places, as a ledger shows them.

    Gain: under a small budget every release is free.
    """

    def patches(self) -> Iterator[Patch]:
        """What a release takes from each account."""
        right = BlockAccounts.charge

        def charge(
            accounts: BlockAccounts, costs: Mapping[int, float], label: str, *, pending: bool
        ) -> None:
            rounded = {b: round(c, 3) for b, c in costs.items()}
            right(accounts, rounded, label, pending=pending)

        yield BlockAccounts, "charge", charge
        yield BlockAccounts, "check", lambda accounts, costs: None


class PaidOnce(InTacit):
    """A block that has paid for a release is not charged again.

    Gain: every further question about it is free.
    """

    def patches(self) -> Iterator[Patch]:
        """How a block pays, and what it could."""
        right = BlockAccounts.charge

        def charge(
            accounts: BlockAccounts, costs: Mapping[int, float], label: str, *, pending: bool
        ) -> None:
            new = {b: c for b, c in costs.items() if not accounts.exact[b]}
            if new:
                right(accounts, new, label, pending=pending)

        yield BlockAccounts, "charge", charge


class PureSpentInSquares(InTacit):
    """Costs under pure privacy are squared, as those of Gaussian noise are.

    Gain: a release may cost the root of epsilon: at 0.25 that is twice as much. At 1 it is right.
    """

    def patches(self) -> Iterator[Patch]:
        """How accounts are opened."""
        right = BlockAccounts.__init__

        def init(accounts: BlockAccounts, privacy: JointDP) -> None:
            right(accounts, privacy)
            accounts.power = 2

        yield BlockAccounts, "__init__", init


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
