"""Output perturbation: learn without noise, then publish the result with noise, once.

Idea:
    Noise on the output needs the output's sensitivity. Fitted Q on all users has none worth
    having: all that is known of it is its range. With rewards in [0, 1/2] and discount .95, two
    values differ by up to M = 10 and the mechanism of functional noise needs a scale of at least
    sqrt(actions) M / mu, about 50 at (0.9, 1e-4), however many users there are, for differences
    between actions of some tenths. So the output is an average (subsample and aggregate, Nissim,
    Raskhodnikova and Smith, 2007): Q is fitted to each user's episode alone, clipped, and averaged,
    and one user moves the average by 2 c / users.
Guarantee:
    (epsilon, delta)-joint DP in one user's whole episode, by one Gaussian release.
Deviations from the paper:
    It names output perturbation without an algorithm; this is a reconstruction.
    One episode is little to fit a Q to, so the average is biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit.continuous.baseline import BaselineAlgorithm, BaselineOptions
from tacit.continuous.statistics.reports import OwnValues
from tacit.core.asks import Ask, Asks
from tacit.privacy.arguments import positive

# A user's typical length, in ranges of the rewards and the root of the number of weights.
_RADIUS = 0.1


@dataclass(frozen=True, kw_only=True)
class OutputPerturbationOptions(BaselineOptions):
    """Options of :class:`OutputPerturbation`, and those of its kin.

    Attributes:
        radius: c, the largest norm of a user's weights; in proportion to the range of rewards by
            default.
        ridge: of each user's regression.
    """

    radius: float | None = None
    ridge: float = 1.0

    def __post_init__(self) -> None:
        if self.radius is not None:
            object.__setattr__(self, "radius", positive("radius", self.radius))
        object.__setattr__(self, "ridge", positive("ridge", self.ridge))


class OutputPerturbation(BaselineAlgorithm):
    """The noisy average of Qs that are fitted to one user each; see the module.

    All users come before one release by default; means of several add up their noise.
    """

    name: ClassVar[str] = "output_perturbation"
    batch: ClassVar[bool] = True
    Options = OutputPerturbationOptions
    options: OutputPerturbationOptions

    def asks(self) -> Asks:
        """For the sum of users' own fits; Q is their mean over all blocks."""
        release = yield Ask(self.statistic())
        # ``all_served`` does not count this block yet.
        total = self.weights * self.all_served + release["weights"]
        self.weights = total / (self.all_served + self.block_users)

    def statistic(self) -> OwnValues:
        """Users' own fits, clipped."""
        low, high = self.spec.reward_range
        radius = self.options.radius
        if radius is None:
            radius = _RADIUS * (high - low) * math.sqrt(self.weights.size)
        return OwnValues(self.spec, self.features, self.discount, self.options.ridge, radius)
