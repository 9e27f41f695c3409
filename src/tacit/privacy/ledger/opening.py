"""Which ledger a run accounts to: that of a population, one of its own, or the one it had."""

from __future__ import annotations

import contextlib
import os

from tacit.privacy.arguments import FilePath
from tacit.privacy.errors import CorruptFile
from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.records import Terms


def open_for(path: FilePath | Ledger, terms: Terms) -> Ledger:
    """The ledger for a run with these terms: one of people if it is there, else one of its own.

    Without a file at ``path`` one of one run is made. An opened ledger must still be there, and is
    opened anew, as an object speaks for one run.
    """
    if isinstance(path, Ledger):
        ledger = open_again(path)
        if not ledger.people:
            ledger.header.check_declared(path, terms.episode_limit, terms.unit)
        return ledger
    with contextlib.suppress(FileNotFoundError):
        ledger = Ledger.open(path)
        if ledger.people:
            return ledger
    return Ledger.open_or_create(path, terms.episode_limit, unit=terms.unit)


def open_again(ledger: FilePath | Ledger) -> Ledger:
    """Another object for the same ledger, which must be there; by its path, or by one object."""
    found = Ledger.open(ledger)
    if isinstance(ledger, Ledger) and found.id != ledger.id:
        raise CorruptFile(f"{os.fspath(ledger)!r}: another ledger took its place meanwhile")
    return found
