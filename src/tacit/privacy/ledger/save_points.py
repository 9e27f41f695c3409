"""Which saved state of a run may be resumed; the rules are in :mod:`tacit.privacy.ledger`."""

from __future__ import annotations

from tacit.privacy.errors import CorruptFile, DoubleSpend, InvalidArgument


class SavePoints:
    """The saves of all runs of a ledger, and what was recorded since."""

    def __init__(self) -> None:
        self._saves: dict[str, tuple[str, int]] = {}  # token -> its run and its place
        self._successors: set[str] = set()  # saves that only the resume before them recorded
        self._resumed: set[str] = set()
        self._published: dict[str, int] = {}  # run -> its last entry that may be seen outside

    def enter_save(self, run: str, token: str, sequence: int, where: str) -> None:
        """A line that records a save."""
        if token in self._saves and token not in self._successors:
            raise CorruptFile(f"{where} records a save that was recorded before")
        self._successors.discard(token)
        self._saves[token] = (run, sequence)

    def enter_resume(self, token: str, where: str) -> None:
        """A line that records a resume."""
        if token in self._resumed:
            raise CorruptFile(f"{where} resumes a save that was resumed before")
        self._resumed.add(token)

    def enter_successor(self, run: str, token: str, sequence: int, where: str) -> None:
        """A line that records, with a resume, the save that follows it."""
        self.enter_save(run, token, sequence, where)
        self._successors.add(token)

    def enter_published(self, run: str, sequence: int) -> None:
        """A line after which something may be seen outside: older saves are void."""
        self._published[run] = sequence

    def check_new(self, token: str) -> None:
        """Refuses a save under a token that was used before."""
        known = token in self._saves and token not in self._successors
        if known or token in self._resumed:
            raise InvalidArgument(f"token={token!r} was used before; each save needs its own")

    def check_not_resumed(self, token: str) -> None:
        """Refuses a save that was resumed before."""
        if token in self._resumed:
            raise DoubleSpend(f"save {token!r} was already resumed; a save is resumed once")

    def place(self, token: str, run: str, after: int | None) -> tuple[str, int | None]:
        """The run and the place of a save; as its file says, if a crash kept it from the ledger."""
        return self._saves.get(token, (run, after))

    def check_newest(self, token: str, run: str, moment: int) -> None:
        """Refuses a save that is older than what its run has published."""
        if self._published.get(run, 0) > moment:
            raise DoubleSpend(
                f"save {token!r} is older than what was published or resumed since; "
                "only the newest save can be resumed"
            )

    def check_successor(self, successor: str | None, token: str) -> None:
        """Refuses a successor under a token that was used before."""
        if successor is not None and (
            successor == token or successor in self._saves or successor in self._resumed
        ):
            raise InvalidArgument(f"successor={successor!r} was used before")
