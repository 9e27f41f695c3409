"""Options that optimistic algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.privacy.arguments import flag, instance_of, positive


@dataclass(frozen=True, kw_only=True)
class OptimismOptions:
    """How optimistic an algorithm is.

    Attributes:
        scale: multiplies the bonus.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    def _settle(self, constants: type[Any]) -> None:
        """What options of families have in common: ``stationary`` and constants."""
        given: Any = vars(self)
        if given["stationary"] is not None:
            object.__setattr__(self, "stationary", flag("stationary", given["stationary"]))
        if given["constants"] is None:
            object.__setattr__(self, "constants", constants())
        instance_of("constants", vars(self)["constants"], constants)
