"""The state file of a joint curator, and how a run goes on from it.

The file is the curator's secret: raw blocks, exact sums, drawn noise. The order in which it and the
ledger are written, and what a crash in between leaves, is in :mod:`tacit.privacy.ledger`.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import MOST_USERS, FilePath, file_name, instance_of
from tacit.privacy.budget import Relation
from tacit.privacy.curator import Release
from tacit.privacy.curators.id_files import IdFile, read_ids
from tacit.privacy.errors import CorruptFile, DoubleSpend, InvalidArgument
from tacit.privacy.files import MALFORMED
from tacit.privacy.ledger.ledger import Ledger, open_again
from tacit.privacy.models import JointDP
from tacit.privacy.noise import Noise, NoiseSource, saved_source
from tacit.privacy.statistic import Block
from tacit.privacy.storage import is_state, read_state, write_state

if TYPE_CHECKING:
    from tacit.privacy.curator import JointCurator

LAYOUT = 2
"""Of what a curator's state holds; the form of the file is that of :mod:`tacit.privacy.storage`."""

Arrays: TypeAlias = dict[str, NDArray[Any]]

Extra: TypeAlias = Callable[[], tuple[dict[str, Any], Arrays]]
"""What an agent adds to its curator's save."""


@dataclass(frozen=True)
class SaveMark:
    """Where a state file stands in its ledger: its token, and after which entry of which run.

    ``head`` is the hash of that entry: a ledger with another one there is not the same any more.
    """

    ledger: str | None
    token: str
    after: int | None
    run: str
    head: str = ""


# Writing.


def check_autosave(path: FilePath, *, simulation: bool) -> None:
    """Refuses a place where no autosave can be, or that of another run, before a run begins.

    Later would be too late: the ledger would have the start of a run that never was.
    """
    name = os.path.abspath(file_name("autosave", path))
    folder, why = os.path.dirname(name), 0
    if not os.path.isdir(folder):
        why = errno.ENOENT
    elif os.path.isdir(name):
        why = errno.EISDIR
    elif not os.access(folder, os.W_OK):
        why = errno.EACCES
    if why:
        raise OSError(why, os.strerror(why), name)
    if not simulation and is_state(name):
        raise InvalidArgument(
            f"autosave={os.fspath(path)!r} is the save of a run, which would be lost: go on with "
            "it by load, or choose another name"
        )


def save_curator(curator: JointCurator, path: FilePath) -> None:
    """Writes the state and records it; with a ledger it can be resumed once."""
    token = secrets.token_hex(16)
    if curator.accounts.ledger is None:
        _write(curator, path, SaveMark(None, token, None, ""))
        return

    def record(ledger: Ledger) -> None:
        def write(sequence: int) -> None:
            mark = SaveMark(ledger.id, token, sequence, ledger.run, ledger.head)
            _write(curator, path, mark)

        # The ledger is asked first: a process whose run another one took over would write over
        # the state of that run. What is recorded is on disk by then all the same.
        ledger.record_save(token, write)

    curator.accounts.ask(record)


def refresh(curator: JointCurator) -> None:
    """Writes the autosave once more if a block was forgotten since, whose raw data is in it.

    Not if the last release could not be saved: that is for ``save``.
    """
    if curator.autosave is None or curator._unsaved:
        return
    if any(block not in curator._blocks for block in curator._autosaved):
        curator.save(curator.autosave)


def _write(curator: JointCurator, path: FilePath, mark: SaveMark) -> None:
    privacy, source, blocks = curator.privacy, curator.source, curator._blocks
    meta: dict[str, Any] = {
        **asdict(mark),
        "privacy": asdict(privacy) | {"relation": privacy.relation.value},
        "declared_users": curator.declared_users,
        "protects": curator.protects,
        "layout": LAYOUT,
        "entered": [curator.entered, curator.users],
        "releases": curator.releases,
        "plain": curator._plain,
        "block_users": {str(b): curator._block_users[b] for b in blocks},
        "blocks": {str(b): [raw.users, raw.aggregate] for b, raw in blocks.items()},
        "noise": saved_source(source),
        "own_source": type(source) is not Noise,
        "streams": {},
    }
    curator.accounts.dump(meta, blocks, curator.entered)
    people, ids = curator._participants, curator.id_file
    beside = ids is not None and ids.beside == os.fspath(path)
    arrays: Arrays = ids.dump(meta, people) if ids is not None and beside else people.dump(meta)
    for number, raw in blocks.items():
        arrays |= {f"block/{number}/{name}": array for name, array in raw.arrays.items()}
    for name, (stream_meta, stream_arrays) in curator._streams.dump().items():
        meta["streams"][name] = stream_meta
        arrays |= {f"stream/{name}/{key}": array for key, array in stream_arrays.items()}
    _dump_release(curator.last_release, meta, arrays)
    meta["extra"], more = curator.extra if curator._extra is None else curator._extra()
    arrays |= {f"extra/{name}": array for name, array in more.items()}
    write_state(path, "curator", meta, arrays)
    if ids is not None and beside:
        ids.done(people)


# Reading.


def read_curator(
    path: FilePath, source: NoiseSource | None, make: type[JointCurator]
) -> tuple[JointCurator, SaveMark]:
    """The curator that a file holds, without its ledger, and where it stands in that."""
    state = read_state(path, "curator")
    meta, arrays = state.meta, state.arrays
    _check_source(meta, source)
    if meta.get("layout") != LAYOUT:
        raise CorruptFile(
            f"{os.fspath(path)!r}: not a saved curator that this release reads: its layout is "
            f"{meta.get('layout')!r}, not {LAYOUT}"
        )
    try:
        options = dict(meta["privacy"])
        options["relation"] = Relation(options["relation"])
        curator = make(
            JointDP(**options),
            users=meta["declared_users"],
            protects=meta["protects"],
            noise_seed=None if meta["noise"] is None else 0,
        )
        if "file" in meta["ids"]:
            text, named = read_ids(path, meta["ids"])
            curator.id_file = IdFile(os.path.abspath(path))
            curator.id_file.go_on(meta["ids"], text, curator._participants)
            arrays = arrays | named
        _fill(curator, meta, arrays)
        where = (meta["ledger"], meta["token"], meta["after"], meta.get("run", ""))
        mark = SaveMark(*where, head=meta.get("head", ""))
    except MALFORMED as error:
        raise CorruptFile(f"{os.fspath(path)!r}: not a saved curator ({error})") from None
    if source is not None:
        instance_of("source", source, NoiseSource)
        curator._source = source
    return curator, mark


def _fill(curator: JointCurator, meta: dict[str, Any], arrays: Arrays) -> None:
    entered, users = meta["entered"]
    if type(entered) is not int or not 0 <= entered <= MOST_USERS:
        raise ValueError(f"{entered!r} is no number of blocks")
    curator.restart(users, Noise.from_state(meta["noise"]))
    curator._extent = (entered, users)
    curator._plain = meta["plain"]
    # Of those that are forgotten nobody asks any more.
    curator._block_users = {int(number): n for number, n in meta["block_users"].items()}
    curator.accounts.restore(meta)
    for number, (users, aggregate) in meta["blocks"].items():
        raw = _with_prefix(arrays, f"block/{number}/")
        curator._blocks[int(number)] = Block(users, raw, aggregate)
    for name, stream_meta in meta["streams"].items():
        curator._streams.waiting[name] = (stream_meta, _with_prefix(arrays, f"stream/{name}/"))
    curator._participants.restore(meta, arrays)
    curator.extra = (meta["extra"], _with_prefix(arrays, "extra/"))
    curator._told = (meta["releases"], _revive_release(meta, arrays))


def reopen(
    curator: JointCurator, ledger: FilePath | None, mark: SaveMark, autosave: FilePath | None
) -> None:
    """Asks the ledger whether this save may go on, and takes over what it knows was spent."""
    autosave = None if autosave is None else os.path.abspath(file_name("autosave", autosave))
    opened = None if ledger is None else open_again(ledger)
    if (None if opened is None else opened.id) != mark.ledger:
        raise DoubleSpend(
            "this save belongs to a ledger: give ledger=, the same file"
            if mark.ledger is not None
            else "this save was made without a ledger: it cannot join one"
        )
    if autosave is None or curator.id_file is None or curator.id_file.beside != os.fspath(autosave):
        # Elsewhere it begins another file of names, with all of them.
        curator.id_file = None if autosave is None else IdFile(autosave)
        curator._participants.news = None
    if opened is None:
        if autosave is not None:
            curator.autosave_to(autosave)
        return
    if autosave is None:
        opened.record_resume(mark.token, after=mark.after, run=mark.run, head=mark.head)
        curator.accounts.follow(opened, curator._participants)
        return
    # The ledger voids the save that is resumed, and the next one must be on disk by then: a
    # crash in between would end the run.
    target, successor = autosave, secrets.token_hex(16)

    def write(sequence: int) -> None:
        curator.accounts.follow(opened, curator._participants)
        _write(curator, target, SaveMark(opened.id, successor, sequence, mark.run, opened.head))

    opened.record_resume(
        *(mark.token, mark.after),
        run=mark.run,
        head=mark.head,
        successor=successor,
        write=write,
    )
    curator.accounts.follow(opened, curator._participants)
    opened.record_save(successor)
    curator.autosave, curator._autosaved = autosave, curator.blocks


def _check_source(meta: dict[str, Any], source: NoiseSource | None) -> None:
    """Whether a save can go on with this source, or without one."""
    if source is None and meta.get("own_source"):
        raise InvalidArgument(
            "this save was made with a source of noise of its own, which no file holds: give "
            "source="
        )
    if source is not None and (meta.get("noise") is not None or source.simulation):
        # What was or will be drawn from a seed protects nobody; half of a run would hide that.
        raise InvalidArgument(
            "source is for real runs, and neither it nor the save may be a simulation"
        )


def _with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _dump_release(release: Release | None, meta: dict[str, Any], arrays: Arrays) -> None:
    if release is None:
        meta["last"] = None
        return
    meta["last"] = {
        "index": release.index,
        "statistic": release.statistic,
        "std": {name: float(np.asarray(value)) for name, value in release.std.items()},
        "users": release.users,
        "cost": release.cost,
    }
    arrays |= {f"last/{name}": value for name, value in release.parts.items()}


def _revive_release(meta: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Release | None:
    if meta["last"] is None:
        return None
    return Release(parts=_with_prefix(arrays, "last/"), **meta["last"])
