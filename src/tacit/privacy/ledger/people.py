"""The accounts of people who take part in several runs; see :mod:`tacit.privacy.ledger`.

A person who joins a run pays all of its budget, once. So what she has spent depends on which runs
she joined and on nothing else, and many people have few different accounts.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from tacit.privacy.errors import CorruptFile
from tacit.privacy.ledger.records import TOLERANCE, Terms, above
from tacit.privacy.pseudonyms import NAME_BYTES


class People:
    """Who joined which runs, and who can pay for one more, up to a ``limit`` over all runs."""

    def __init__(self, limit: float) -> None:
        self.runs: dict[str, Terms] = {}
        self._limit = limit
        self._joined: dict[bytes, int] = {}  # person -> the runs she joined, one bit each
        self._totals = {0: Fraction(0)}  # such bits -> what these runs cost

    @property
    def accounts(self) -> Counter[float]:
        """How many have spent how much."""
        accounts: Counter[float] = Counter()
        for joined, people in Counter(self._joined.values()).items():
            accounts[above(self._total(joined))] += people
        return accounts

    def spent(self, name: bytes) -> float:
        """What a person has spent over all runs."""
        return above(self._total(self._joined.get(name, 0)))

    def who_joined(self, names: Iterable[bytes], run: str) -> list[bool]:
        """Who of these is in a run."""
        bit = self._bit(run)
        return [bool(self._joined.get(name, 0) & bit) for name in names]

    def able(self, names: Iterable[bytes], run: str) -> list[bytes]:
        """Who of these is not in the run and can pay for it, sorted."""
        bit, can = self._bit(run), self.who_can(self.runs[run].user_limit)
        new = {name for name in names if not self._joined.get(name, 0) & bit}
        return sorted(name for name in new if can[self._joined.get(name, 0)])

    def enter(self, run: str, text: str, where: str) -> int:
        """Charges people for a run, by the names in a line of the ledger; how many they are.

        A line that charges somebody twice, or above the limit, is a CorruptFile.
        """
        names = base64.b64decode(text, validate=True)
        if len(names) % NAME_BYTES:
            raise ValueError("malformed")
        bit, can = self._bit(run), self.who_can(self.runs[run].user_limit)
        for start in range(0, len(names), NAME_BYTES):
            name = names[start : start + NAME_BYTES]
            joined = self._joined.get(name, 0)
            if joined & bit:
                raise CorruptFile(f"{where} charges somebody twice for one run")
            if not can[joined]:
                raise CorruptFile(f"{where} brings somebody above the limit of {self._limit}")
            self._joined[name] = joined | bit
        return len(names) // NAME_BYTES

    def _bit(self, run: str) -> int:
        return 1 << [*self.runs].index(run)

    def _total(self, joined: int) -> Fraction:
        """What the runs of these bits cost a person, together."""
        if joined not in self._totals:
            costs = (terms.user_limit for terms in self.runs.values())
            paid = (Fraction(cost) for place, cost in enumerate(costs) if joined >> place & 1)
            self._totals[joined] = sum(paid, Fraction(0))
        return self._totals[joined]

    def who_can(self, cost: float) -> Mapping[int, bool]:
        """Whether one more run can be paid for, by the runs that a person joined; 0 for nobody's.

        These are few, for many people.
        """
        most = self._limit * (1 + TOLERANCE)
        joined = {0, *self._joined.values()}
        return {runs: self._total(runs) + Fraction(cost) <= most for runs in joined}
