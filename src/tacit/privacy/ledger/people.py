"""The accounts of people who take part in several runs; see :mod:`tacit.privacy.ledger`.

A person who joins a run pays all of its budget, once. So what she has spent depends on which runs
she joined and on nothing else, and many people have few different accounts.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit.privacy.errors import CorruptFile
from tacit.privacy.ledger.index import Rows
from tacit.privacy.ledger.records import TOLERANCE, Terms, above
from tacit.privacy.pseudonyms import NAME_BYTES

_NAME, _ACCOUNT = b"n", b"a"  # how the keys of rows begin: of people, of equal accounts


@dataclass
class Run:
    """A run as the ledger knows it.

    Attributes:
        place: its number among all runs, from 0.
        terms: what it promised; none is needed in a ledger of one run.
        published: its last entry that may be seen outside.
        resumed: its last entry that resumed a save.
        used: whether it has any entry but its start.
        ended: whether a repair ended it.
        succeeded: whether another run takes users in its place.
    """

    place: int
    terms: Terms | None
    published: int = 0
    resumed: int = 0
    used: bool = False
    ended: bool = False
    succeeded: bool = False


class People:
    """Who joined which runs, and who can pay for one more, up to a ``limit`` over all runs.

    Which runs a person joined is a number with one bit for each. ``everybody`` is what each has
    spent besides, known or not: what repairs of the ledger could not tell.
    """

    def __init__(self, limit: float, rows: Rows, runs: Mapping[str, Run]) -> None:
        self.everybody = Fraction(0)
        self._runs = runs
        self._limit = limit
        self._rows = rows
        self._totals = {0: Fraction(0)}  # bits of runs -> what these runs cost

    @property
    def accounts(self) -> Counter[float]:
        """How many have spent how much."""
        accounts: Counter[float] = Counter()
        for key, people in self._rows.scan(_ACCOUNT):
            if int(people):
                accounts[self._spent(int.from_bytes(key[1:]))] += int(people)
        return accounts

    def spent(self, name: bytes) -> float:
        """What a person has spent over all runs."""
        return self._spent(self.joined([name])[name])

    def joined(self, names: Iterable[bytes]) -> dict[bytes, int]:
        """The runs that these people joined, one bit each."""
        found = self._rows.get_many([_NAME + name for name in names])
        return {key[1:]: int.from_bytes(value or b"") for key, value in found.items()}

    def admitted(self, names: Sequence[bytes], run: str) -> tuple[list[bytes], list[bool]]:
        """Who of these is not in the run and can pay for it; and who is in it then, in order."""
        place, joined, cost = self._runs[run].place, self.joined(names), self._cost(run)
        can = {runs: self.can(runs, cost) for runs in {*joined.values()}}
        within = {name for name, runs in joined.items() if runs >> place & 1}
        able = {name for name, runs in joined.items() if name not in within and can[runs]}
        return [*able], [name in within or name in able for name in names]

    def enter(self, run: str, text: str, where: str) -> int:
        """Charges people for a run, by the names in a line of the ledger; how many they are.

        A line that charges somebody twice, or above the limit, is a CorruptFile.
        """
        names, place, cost = names_of(text), self._runs[run].place, self._cost(run)
        joined = self.joined(names)
        if len(joined) != len(names) or any(runs >> place & 1 for runs in joined.values()):
            raise CorruptFile(f"{where} charges somebody twice for one run")
        if not all(self.can(runs, cost) for runs in {*joined.values()}):
            raise CorruptFile(f"{where} brings somebody above the limit of {self._limit}")
        self._move(joined, place)
        return len(names)

    def enter_again(self, run: str, text: str) -> None:
        """Charges people who had joined by lines that a repair could not keep."""
        self._move(self.joined(names_of(text)), self._runs[run].place)

    def can(self, joined: int, cost: float) -> bool:
        """Whether somebody who joined these runs can pay for one more."""
        total = self._total(joined) + self.everybody
        return total + Fraction(cost) <= self._limit * (1 + TOLERANCE)

    def members(self) -> Iterable[tuple[bytes, int]]:
        """Everybody who is known, and the runs that she joined."""
        return ((key[1:], int.from_bytes(value)) for key, value in self._rows.scan(_NAME))

    def _move(self, joined: Mapping[bytes, int], place: int) -> None:
        """People who joined these runs have joined one more."""
        changes: Counter[int] = Counter()
        for name, before in joined.items():
            after = before | 1 << place
            self._rows.put(_NAME + name, _bytes_of(after))
            changes[before] -= 1
            changes[after] += 1
        for runs, change in changes.items():
            if runs and change:
                key = _ACCOUNT + _bytes_of(runs)
                self._rows.put(key, b"%d" % (int(self._rows.get(key) or 0) + change))

    def _cost(self, run: str) -> float:
        terms = self._runs[run].terms
        if terms is None:
            raise ValueError("malformed")
        return terms.user_limit

    def _spent(self, joined: int) -> float:
        # What nobody knows was counted at most: nobody can have spent more than all.
        known = self._total(joined)
        return above(max(known, min(known + self.everybody, Fraction(self._limit))))

    def _total(self, joined: int) -> Fraction:
        """What the runs of these bits cost a person, together."""
        if joined not in self._totals:
            paid = (
                self._cost(run) for run, known in self._runs.items() if joined >> known.place & 1
            )
            self._totals[joined] = sum(map(Fraction, paid), Fraction(0))
        return self._totals[joined]


def names_of(text: str) -> list[bytes]:
    """The names in a line of the ledger; a ValueError where they are none."""
    names = base64.b64decode(text, validate=True)
    if len(names) % NAME_BYTES:
        raise ValueError("malformed")
    return [names[start : start + NAME_BYTES] for start in range(0, len(names), NAME_BYTES)]


def text_of_names(names: Iterable[bytes]) -> str:
    """Names as a line of the ledger has them: sorted, so that it does not say who came first."""
    return base64.b64encode(b"".join(sorted(names))).decode()


def _bytes_of(joined: int) -> bytes:
    return joined.to_bytes((joined.bit_length() + 7) // 8)
