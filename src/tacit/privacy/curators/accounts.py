"""What the users of each block have spent, and what they may still spend."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

from tacit.privacy.arguments import FilePath, positive, whole_number
from tacit.privacy.curators.participants import Participants
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.ledger.ledger import open_for, opened_again
from tacit.privacy.ledger.records import above
from tacit.privacy.models import JointDP

# Rounding of sums of squares, not a loophole: a budget split into ten parts must be spendable.
_SLACK = 1e-12

R = TypeVar("R")


class BlockAccounts:
    """The accounts of a joint curator, one per block: a user is in one block.

    Costs of releases are in mu, or in epsilon under pure DP; what is spent is in mu^2, or in
    epsilon. Sums are exact: every positive cost moves an account, however small it is.

    Attributes:
        limit: what one episode may spend.
        power: what a cost is raised to before it is added: 2, or 1 under pure DP.
        exact, keys: what each block has spent, and under which key it is on the ledger.
        credit: what was paid for a block by a run that died before it had an answer.
        ledger: where charges are recorded before anything is drawn, if there is one.
    """

    def __init__(self, privacy: JointDP) -> None:
        self.limit = privacy.episode_limit
        if self.limit < 1e-290:
            raise InvalidArgument(f"a budget of {privacy.budget} cannot be accounted for in floats")
        self.power = 1 if privacy.pure else 2
        self.exact: dict[int, Fraction] = {}
        self.keys: dict[int, str] = {}
        self.credit: dict[int, Fraction] = {}
        self.ledger: Ledger | None = None
        self._asking = False
        # The next block and its key, once a save holds them.
        self._next: tuple[int, str] | None = None

    def open(self, block: int) -> None:
        """Opens the account of a new block."""
        self.exact[block] = Fraction(0)
        self.keys[block] = self._key_of(block)

    def _key_of(self, block: int) -> str:
        """Under which key a block pays: known to the save before it, so that it is paid for once.

        The only save that can be resumed is the newest. If it does not have this block, whatever
        the block's key was charged paid for what was never saved, so nobody saw it and nobody will:
        the run that drew it has ended. Whoever is in the block now has that to her credit.
        """
        if self._next is None or self._next[0] != block:
            # Unique for ever: a block lost in a crash shares its account with no later one.
            self._next = block, f"{block}-{secrets.token_hex(6)}"
        return self._next[1]

    def spent(self, block: int) -> float:
        """What each user of a block has spent."""
        if whole_number("block", block, least=0) not in self.exact:
            raise InvalidArgument(f"block {block!r} was never added, or forgotten before a save")
        return above(self.exact[block])

    def remaining(self, block: int) -> float:
        """What each user of a block may still spend."""
        return max(0.0, self.limit - self.spent(block))

    # What a release costs.

    def cost(self, mu: float | None, block: int | None = None) -> float:
        """The cost of a release in mu or epsilon: as asked for, or all that a block has left."""
        if mu is not None:
            if self.power == 1:
                raise InvalidArgument("this budget is spent in epsilon, all of it at once: no mu")
            return positive("mu, the cost,", mu)
        left = self.limit if block is None else self.remaining(block)
        if left <= self.limit * _SLACK:
            raise BudgetExceeded(f"the users of block {block} have spent all their budget")
        return float(left ** (1.0 / self.power))

    def check_stream(self, cost: float) -> None:
        """Refuses a counter that no block could ever pay for."""
        if cost**self.power > self.limit * (1.0 + _SLACK):
            raise BudgetExceeded(f"a stream of cost {cost:.6g} exceeds an episode's whole budget")

    # Paying.

    def check(self, costs: Mapping[int, float]) -> None:
        """Refuses what some block cannot pay."""
        unit = "epsilon" if self.power == 1 else "mu^2"
        for block, cost in costs.items():
            # Exactly: a cost that a float would lose beside what was spent is not free.
            if self.exact[block] + Fraction(cost) > self.limit * (1.0 + _SLACK):
                raise BudgetExceeded(
                    f"block {block} has spent {self.spent(block):.6g} of {self.limit:.6g} "
                    f"{unit}; {cost:.6g} more is too much"
                )

    def charge(self, costs: Mapping[int, float], label: str, *, pending: bool) -> None:
        """Puts the cost on disk, then into memory."""
        self.check(costs)
        after = {block: self.exact[block] + Fraction(cost) for block, cost in costs.items()}
        if self.ledger is not None:
            by_key = {self.keys[b]: self._due(b, cost) for b, cost in costs.items()}
            self.ask(lambda ledger: ledger.charge(by_key, label, pending=pending))
            for block, cost in costs.items():
                if block in self.credit:
                    self.credit[block] = max(self.credit[block] - Fraction(cost), Fraction(0))
        self.exact.update(after)

    def _due(self, block: int, cost: float) -> float:
        """What is still to be paid of a cost."""
        credit = self.credit.get(block)
        return above(max(Fraction(cost) - credit, Fraction(0))) if credit else cost

    def ask(self, call: Callable[[Ledger], R]) -> R:
        """What a call of the ledger returns.

        If an exception came into the call before, the object may have stopped half-way. The file
        has not: it is opened again, and what it says was spent is taken over.
        """
        assert self.ledger is not None  # noqa: S101
        if self._asking:
            self._take_over(opened_again(self.ledger))
        self._asking = True
        result = call(self.ledger)
        self._asking = False
        return result

    def start(self, ledger: FilePath, terms: Terms, participants: Participants) -> None:
        """Begins a run on a ledger, which is made if there is none."""
        opened = open_for(ledger, terms)
        opened.record_start(secrets.token_hex(16), terms)
        self.follow(opened, participants)

    def follow(self, ledger: Ledger, participants: Participants) -> None:
        """Spends from this ledger from now on, and takes over what it knows was spent."""
        self._take_over(ledger)
        if self._next is not None:
            block, key = self._next
            self.credit = {block: ledger.spent_exactly(key)}
        if ledger.people:
            participants.join_by(lambda people: self.ask(lambda it: it.join(people)), ledger.key)

    def _take_over(self, ledger: Ledger) -> None:
        self.ledger, self._asking, self.credit = ledger, False, {}
        for block, key in self.keys.items():
            # A charge whose release a crash cut off stays charged.
            self.exact[block] = max(self.exact[block], ledger.spent_exactly(key))

    # Save and resume.

    def dump(self, meta: dict[str, Any], blocks: Iterable[int], entered: int) -> None:
        """Into a save: of blocks that can be asked again, or else it would grow with every one.

        And the key of the block that comes after those that ``entered``.
        """
        meta["next_key"] = self._key_of(entered)
        meta["open"] = [*blocks]
        meta["spent"] = [[*self.exact[b].as_integer_ratio()] for b in meta["open"]]
        meta["keys"] = [self.keys[b] for b in meta["open"]]

    def restore(self, meta: dict[str, Any]) -> None:
        """Out of a save."""
        blocks = meta["open"]
        self.exact = {b: Fraction(*spent) for b, spent in zip(blocks, meta["spent"], strict=False)}
        self.keys = dict(zip(blocks, meta["keys"], strict=True))
        if "next_key" in meta:
            self._next = meta["entered"][0], str(meta["next_key"])
