"""The first line of a ledger: what is counted, and what may be spent of it."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass
from typing import Any, Self

from tacit.privacy.arguments import FilePath, file_name
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.ledger.chain import seal
from tacit.privacy.ledger.records import UNITS, Terms, Unit, checked_terms, number_of, text_of
from tacit.privacy.models import JointDP
from tacit.privacy.storage import write_atomic

FORMAT_VERSION = 1
"""Of a ledger of one run."""
PEOPLE_VERSION = 2
"""Of a ledger of people."""

_FORMAT = "tacit-ledger"


@dataclass(frozen=True)
class Header:
    """What a ledger declares; ``terms`` and ``key`` (of the hashes of ids) in one of people only.

    ``limit`` is what each key, or each person over all runs, may spend.
    """

    id: str
    limit: float
    unit: Unit
    note: str
    terms: Terms | None = None
    key: bytes = b""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """The header that a line holds; any exception means that it is malformed."""
        if record["format"] != _FORMAT:
            raise ValueError("another format")
        if record["version"] not in (FORMAT_VERSION, PEOPLE_VERSION):
            raise ValueError("another version")
        limit, unit = number_of("limit", record["limit"]), record["unit"]
        if unit not in UNITS or not limit > 0:
            raise ValueError("malformed")
        text_of("id", record["id"])
        record["note"].encode()
        if (record["version"] == PEOPLE_VERSION) != ("people" in record):
            raise ValueError("malformed")
        declared = cls(record["id"], limit, unit, record["note"])
        if "people" not in record:
            return declared
        terms = checked_terms(record["people"]["terms"])
        key = bytes.fromhex(record["people"]["key"])
        if len(key) < 16 or (terms.user_limit, terms.unit) != (record["limit"], unit):
            raise ValueError("malformed")
        return cls(declared.id, limit, unit, declared.note, terms, key)

    def check_declared(self, path: FilePath, limit: float, unit: Unit) -> None:
        """Refuses to be the ledger of a run that declares another limit or unit."""
        where = os.fspath(path)
        if self.terms is not None:
            raise InvalidArgument(f"{where!r} is a ledger of people, not of one run")
        if (self.limit, self.unit) != (limit, unit):
            raise InvalidArgument(
                f"limit={limit!r} {unit} was declared, but {where!r} has "
                f"limit={self.limit!r} {self.unit}"
            )


def write_header(path: FilePath, limit: float, unit: Unit, note: str) -> None:
    """Makes the file of a ledger of one run, without entries."""
    limit = number_of("limit", limit)
    if limit == 0:
        raise InvalidArgument("limit=0.0 must be positive")
    if not isinstance(unit, str) or unit not in UNITS:
        raise InvalidArgument(f"unit={unit!r} must be one of {UNITS}")
    _write(path, FORMAT_VERSION, limit, unit, note)


def write_people_header(path: FilePath, privacy: JointDP, protects: str, note: str) -> None:
    """Makes the file of a ledger of people, without entries."""
    if not isinstance(privacy, JointDP):
        raise InvalidArgument(f"privacy must be a JointDP, got {privacy!r}")
    if privacy.episodes_per_user != 1:
        raise InvalidArgument(
            f"episodes_per_user={privacy.episodes_per_user} is for each run to say; a "
            "population's budget is one person's"
        )
    terms = Terms.of(privacy, text_of("protects", protects))
    people = {"key": secrets.token_hex(16), "terms": asdict(terms)}
    _write(path, PEOPLE_VERSION, terms.user_limit, terms.unit, note, people=people)


def _write(path: FilePath, version: int, limit: float, unit: Unit, note: str, **more: Any) -> None:
    """Never over another file, and for nobody else to read."""
    header = {
        "format": _FORMAT,
        "version": version,
        "id": secrets.token_hex(16),
        "limit": limit,
        "unit": unit,
        "note": note if note == "" else text_of("note", note),
    }
    write_atomic(file_name("path", path), seal(header | more, previous=""), 0o600, replace=False)
