"""Options that optimistic algorithms share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tacit.privacy.arguments import flag, instance_of, one_of, positive
from tacit.privacy.errors import InvalidArgument

Bonus = Literal["practical", "theory"]
Calibration = Literal["tight", "as_printed"]


@dataclass(frozen=True, kw_only=True)
class OptimismOptions:
    """How optimistic an algorithm is.

    Attributes:
        scale: multiplies the bonus.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        positive("scale", self.scale)

    def _settle(self, constants: type[Any], growth: float | None = None) -> None:
        """What options of families have in common: ``stationary``, growth and constants."""
        given: Any = vars(self)
        if given["stationary"] is not None:
            object.__setattr__(self, "stationary", flag("stationary", given["stationary"]))
        if growth is not None and positive("growth", growth) <= 1.0:
            raise InvalidArgument(f"growth must be > 1, got {growth!r}")
        if given["constants"] is None:
            object.__setattr__(self, "constants", constants())
        instance_of("constants", vars(self)["constants"], constants)


@dataclass(frozen=True, kw_only=True)
class TheoryOptions(OptimismOptions):
    """In practice, in theory, or as a paper printed it.

    Attributes:
        bonus: ``"practical"``, with the noise's real size and practical constants, or
            ``"theory"``, with constants for which a bound is proven.
        failure: with which probability the theory's confidence bounds may fail.
        calibration: ``"tight"``, or ``"as_printed"`` for the paper's own noise, where there is one.
    """

    bonus: Bonus = "practical"
    failure: float = 0.1
    calibration: Calibration = "tight"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("bonus", self.bonus, ("practical", "theory"))
        one_of("calibration", self.calibration, ("tight", "as_printed"))
        if not 0.0 < positive("failure", self.failure) < 1.0:
            raise InvalidArgument(f"failure must be in (0, 1), got {self.failure!r}")
