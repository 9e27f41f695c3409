"""Options of linear algorithms, and which statistic they are best served by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tacit.core.options import OptimismOptions
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.linear.spec import LinearSpec
    from tacit.privacy.models import Privacy

Kind = Literal["features", "counts"]


@dataclass(frozen=True)
class LinearConstants:
    """The practical agents' constants, chosen on other seeds of the worlds than are reported."""

    bonus: float = 0.3  # scale of widths by sampling and noise
    bias: float = 1.0  # and of those by what the ridge hides where nobody was yet
    ridge: float = 1.0  # ridge in standard deviations of the Gram's noise, times sqrt(d)
    # the number of users served grows by at most this factor from block to block
    growth: float = 1.3
    first: float = 4.0  # users of the first block, in standard deviations of a sum's noise
    clip: float = 1.1  # the longest vector of a user, in typical lengths of one with steps apart
    pooled_clip: float = 2.0  # the same for sums over all steps
    known: float = 1.0  # a cell is known once its count exceeds this many standard deviations
    cap: int = 2  # how many of a user's steps in a cell count, when counts are pooled over steps


@dataclass(frozen=True, kw_only=True)
class LinearOptions(OptimismOptions):
    """Options of linear algorithms.

    Attributes:
        statistic: what is asked of users: ``"features"``, ``"counts"``, or ``"auto"``, which says
            in ``why`` what it chose.
        stationary: one transition model for all steps (the world's own by default), or one each.
        growth: the number of users served grows by at most this factor from block to block.
        weights: ``"variance"`` weights steps by the variance of their next value, as LSVI-UCB++
            does; ``"none"`` does not; ``"auto"`` is the algorithm's own.
        constants: the practical constants.
    """

    statistic: Literal["auto", "features", "counts"] = "auto"
    stationary: bool | None = None
    growth: float | None = None
    weights: Literal["auto", "variance", "none"] = "auto"
    constants: LinearConstants = LinearConstants()

    def __post_init__(self) -> None:
        if self.statistic not in ("auto", "features", "counts"):
            raise InvalidArgument(
                f"statistic must be auto, features or counts, got {self.statistic!r}"
            )
        if self.weights not in ("auto", "variance", "none"):
            raise InvalidArgument(f"weights must be auto, variance or none, got {self.weights!r}")
        super().__post_init__()
        self._settle(LinearConstants, self.growth)


def choose_statistic(
    spec: LinearSpec, privacy: Privacy, options: LinearOptions
) -> tuple[Kind, str]:
    """What is asked of users, and why."""
    asked, n, d = options.statistic, spec.states, spec.dimension
    if asked != "auto":
        return asked, "as asked"
    if privacy.needs_l1:
        return "counts", "of these only counts have a sensitivity in the 1-norm"
    if not privacy.private:
        return "features", "sums of features answer every question, and cost nothing extra"
    if n <= 2 * d:
        few = f"{n} states are few beside {d} features"
        return "counts", f"{few}, and a policy reaches one action in each"
    few = f"{d} features are few beside {n} states"
    return "features", f"{few}, and one release serves every value function"
