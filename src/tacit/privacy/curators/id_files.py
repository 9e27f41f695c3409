"""Who took part, beside an autosave: a file that is only ever appended to.

An autosave is written at every block. Were everybody in it who ever took part, a user would cost
the more the later she comes. So beyond :data:`INLINE` people the names are in a file of their own,
``<autosave>.<token>.ids``: each autosave appends those who are new, flushes them to disk, and then
replaces the state, which says how many bytes of that file count and what their SHA-256 is.

A crash in between leaves bytes behind those that count. They are never read, and the next autosave
writes over them. Nothing that counts is ever cut off or changed: an autosave that is tried again
writes the same bytes to the same place. A plain file and not a database: all of it is in memory
anyway, it is read once, when a run is resumed, and it needs one flush per block.

The file holds keyed hashes of ids, and counts; the key is in the state. It is as private as the
state (mode 0600), belongs to it, and is copied or moved with it. What is saved by ``save`` under
another name is whole by itself.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from typing import Any

from numpy.typing import NDArray

from tacit.privacy.arguments import FilePath
from tacit.privacy.curators.participants import Participants, arrays_of
from tacit.privacy.errors import CorruptFile
from tacit.privacy.files import check_size, open_regular
from tacit.privacy.storage import sync_directory

INLINE = 4096
"""Up to so many people are in the autosave itself."""


class IdFile:
    """The file of names beside one autosave, as far as a state on disk refers to it."""

    def __init__(self, beside: FilePath) -> None:
        self.beside = os.fspath(beside)
        self._name = f"{os.path.basename(self.beside)}.{secrets.token_hex(8)}.ids"
        # How many bytes of it count, and their hash: of the last state that is surely on disk.
        self._counted = (0, hashlib.sha256())
        self._used = False
        self._next: tuple[int, Any, int] | None = None

    def dump(self, meta: dict[str, Any], participants: Participants) -> dict[str, NDArray[Any]]:
        """Into an autosave: the new ones to the file, where it ends to the state."""
        news = participants.news
        if news is None or not self._used:
            if participants.people <= INLINE:
                self._next = None
                return participants.dump(meta)
            news = participants.news = [participants.everybody()]
        end, digest = self._counted[0], self._counted[1].copy()
        text = b"".join(news)
        digest.update(text)
        _write_at(os.path.join(os.path.dirname(self.beside), self._name), end, text)
        self._next = (end + len(text), digest, len(news))
        where = {"file": self._name, "bytes": end + len(text), "sha256": digest.hexdigest()}
        meta["ids"] = participants.facts() | where
        return {}

    def done(self, participants: Participants) -> None:
        """The state is on disk that refers to what was written."""
        if self._next is not None and participants.news is not None:
            end, digest, written = self._next
            counted, rest = (end, digest), participants.news[written:]
            # One line: an exception before it leaves all as it was, and the same is written again.
            self._counted, participants.news, self._used, self._next = counted, rest, True, None

    def go_on(self, ids: dict[str, Any], text: bytes, participants: Participants) -> None:
        """Goes on with the file of a run that is resumed under the same name."""
        if "file" in ids:
            self._name, self._used, participants.news = ids["file"], True, []
            self._counted = (len(text), hashlib.sha256(text))

    def remove_others(self) -> None:
        """Removes the files of runs whose autosave had this name before."""
        folder, name = os.path.split(self.beside)
        ours = re.compile(re.escape(name) + r"\.[0-9a-f]{16}\.ids")
        with contextlib.suppress(OSError):
            for found in os.listdir(folder or "."):
                if ours.fullmatch(found) and found != self._name:
                    os.unlink(os.path.join(folder, found))


def read_ids(beside: FilePath, ids: dict[str, Any]) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """What a state says that its file of names holds: the bytes, and the same as arrays."""
    name, size = ids["file"], ids["bytes"]
    if type(name) is not str or name != os.path.basename(name) or type(size) is not int:
        raise ValueError("malformed ids")
    path = os.path.join(os.path.dirname(os.fspath(beside)), name)
    try:
        with open(open_regular(path), "rb") as file:
            text = file.read(check_size(path, size, "state"))
    except FileNotFoundError:
        raise CorruptFile(f"{path!r} is missing: who took part is in it; copy both files") from None
    if len(text) != size or hashlib.sha256(text).hexdigest() != ids["sha256"]:
        raise CorruptFile(f"{path!r}: damaged, or not the file that the state was saved with")
    return text, arrays_of(text)


def _write_at(path: str, place: int, text: bytes) -> None:
    """Puts bytes on disk at a place of a file, which is made if there is none."""
    made = not os.path.exists(path)
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        os.lseek(descriptor, place, os.SEEK_SET)
        if os.write(descriptor, text) != len(text):
            raise OSError(errno.ENOSPC, "names were written in part", path)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if made:
        sync_directory(os.path.dirname(path) or ".")
