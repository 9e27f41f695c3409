"""Secret state has one owner: it is not copied, and not gone on with in a forked process."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

from tacit.privacy.errors import DoubleSpend


class Uncopyable:
    """Refuses to be copied or pickled, in the words of ``why_single``."""

    why_single: ClassVar[str]

    def __copy__(self) -> Self:
        raise TypeError(self.why_single)

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.__copy__(),)


class Owner:
    """Refuses to go on in a forked process, where parent and child would share a state."""

    def __init__(self, simulation: bool) -> None:
        self._pid = None if simulation else os.getpid()

    def check(self, what: str) -> None:
        """Raises in any process but the one that made the state."""
        if self._pid is not None and self._pid != os.getpid():
            raise DoubleSpend(
                f"this {what} belongs to another process: after a fork both would publish from one "
                f"state, and pay once"
            )
