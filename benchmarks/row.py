"""One line of the table: what was measured, what it must meet, whether it does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A measured value and its verdict.

    Attributes:
        name: what is benchmarked.
        what: what is measured, with its peer where the value is a ratio.
        measured: the value, ready to print with its unit.
        limit: what it must meet; empty for rows that only inform.
        ok: whether it does; ``None`` for rows that only inform.
    """

    name: str
    what: str
    measured: str
    limit: str = ""
    ok: bool | None = None

    @property
    def verdict(self) -> str:
        """The last column."""
        return {None: "", True: "ok", False: "MISSED"}[self.ok]


def at_most(
    name: str, what: str, value: float, limit: float, unit: str = "", digits: str = ".3g"
) -> Row:
    """A row that must stay at or below its limit. A value that is not a number misses it."""
    shown = f"{value:{digits}}{unit}"
    return Row(name, what, shown, f"at most {limit:g}{unit}", bool(value <= limit))


def at_least(
    name: str, what: str, value: float, limit: float, unit: str = "", digits: str = ".3g"
) -> Row:
    """A row that must reach its limit. A value that is not a number misses it."""
    shown = f"{value:{digits}}{unit}"
    return Row(name, what, shown, f"at least {limit:g}{unit}", bool(value >= limit))


def noted(name: str, what: str, value: float, unit: str = "", digits: str = ".3g") -> Row:
    """A row that only informs."""
    return Row(name, what, f"{value:{digits}}{unit}")
