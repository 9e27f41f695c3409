"""How rewards and values are measured where values have functional noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tacit.continuous.spec import BoxSpec


class Units(NamedTuple):
    """What rewards are measured from and in, the value of an end, if any, and values' range."""

    centre: float
    unit: float
    ending: float | None
    value_range: tuple[float, float]

    @classmethod
    def of(cls, spec: BoxSpec, discount: float, ends: bool) -> Units:
        """Where nothing ends only differences of values count, so rewards are centred.

        Where episodes may end, values are measured from the best that can be, so that an end,
        which is worth 0, is one unit below it if rewards are positive.
        """
        low, high = spec.reward_range
        if not ends:
            most = 1.0 / (1.0 - discount)
            return cls(0.5 * (low + high), high - low, None, (-most, most))
        unit = max(high - low, abs(high)) / (1.0 - discount)
        ending = -high / (1.0 - discount) / unit
        return cls(high, unit, ending, (min(-1.0, ending), max(0.0, ending)))
