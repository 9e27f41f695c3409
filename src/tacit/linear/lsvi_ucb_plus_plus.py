"""LSVI-UCB++ and DP-LSVI-UCB++: variance weights, bounds from both sides, rare switching."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.core.algorithm import Floats, Pace
from tacit.core.asks import Arrays, State
from tacit.linear.base import TargetRound
from tacit.linear.lsvi_ucb import LSVIUCB
from tacit.linear.options import LinearOptions
from tacit.privacy.budget import Relation
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.gaussian_dp import compose, epsilon_from_mu
from tacit.privacy.models import JointDP, Privacy

if TYPE_CHECKING:
    from tacit.core.setting import Setting


class LSVIUCBPlusPlus(LSVIUCB):
    """LSVI-UCB++ (He et al. 2023) and its private form, DP-LSVI-UCB++ (Sahu).

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`, and besides: steps are weighted by the
    variance of what follows them; values are bounded from above and from below, and the bounds only
    ever tighten; and a policy is replaced only when enough was learnt.

    Private statistics and guarantee: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`. A weight
    depends on the user's own state and action and on releases before her block, so a user changes
    later weights through releases only.

    Deviations from the paper: noise is fresh in every release and never accumulates (lines 1 and
    26); the lower bound is max(r + w phi - beta |phi|, .) cut at 0 (line 11); all steps switch
    together (lines 9 to 12); second moments are cut to [0, H^2]; the number of releases is fixed in
    advance, so a switching test that fires by noise costs nothing. Bounds only tighten under
    ``bonus="theory"``: practical ones are too low at times, and would stay so.

    ``calibration="as_printed"`` draws the paper's noise, calibrated for a release per user and step
    (in units of exact sensitivities, so no more than the paper's); the guarantee is what is proven
    for it.
    """

    name = "lsvi_ucb_plus_plus"
    default_weights = "variance"
    default_switching = "rayleigh"
    has_printed_noise = True

    def __init__(self, setting: Setting, options: LinearOptions) -> None:
        super().__init__(setting, options)
        self._bounds = self._first_bounds()

    # Values from above and from below (lines 5 to 12).

    @property
    def value_functions(self) -> tuple[str, ...]:
        """Also a lower bound."""
        return (*super().value_functions, "pessimistic")

    def _first_bounds(self) -> dict[str, Floats]:
        """Nothing is known (line 2)."""
        shape = self.spec.horizon, self.spec.states, self.spec.actions
        left = np.arange(self.spec.horizon, 0, -1.0)[:, np.newaxis, np.newaxis]
        return {"optimistic": np.zeros(shape) + left, "pessimistic": np.zeros(shape)}

    def bounded(self, name: str, step: int, q_values: Floats) -> Floats:
        """In theory bounds only ever tighten."""
        if name not in self._bounds:
            return q_values
        if self.options.bonus == "theory":
            tighter = np.minimum if name == "optimistic" else np.maximum
            q_values = tighter(q_values, self._bounds[name][step])
        self._bounds[name][step] = q_values
        return q_values

    @property
    def lower_values(self) -> Floats:
        """Pessimistic action values (H, S, A) of the last plan."""
        return np.array(self._bounds["pessimistic"])

    # The paper's own noise.

    @cached_property
    def round(self) -> TargetRound:
        """What the questions of a round cost; as printed, with the paper's noise.

        The paper draws fresh noise for all K users and H steps with rho_0 = rho / (4 H K) each
        (line 1), rho from (epsilon, delta) by rho + 2 sqrt(rho ln(1/delta)) = epsilon (Lemma 2.1):
        standard deviation 1 / sqrt(2 rho_0) on Grams whose steps weigh 1 / H at most, and
        2 H / sqrt(2 rho_0) on sums of values in [0, H] with the same weights. Under replace-one a
        release costs 2 H (1/H)^2 2 rho_0 = 4 rho_0 / H for the Grams of all steps and, at each step
        that has a next one, 2 rho_0 / (4 H^2) for values around their middle.
        """
        if self.options.calibration == "tight":
            return super().round
        assert self.privacy.joint  # noqa: S101
        H = self.spec.horizon
        log_term = math.log(1.0 / self.privacy.delta)
        rho = (math.sqrt(log_term + self.privacy.epsilon) - math.sqrt(log_term)) ** 2
        rho_0 = float(rho / (4.0 * H * self.users))
        # All users weigh the same in every round.
        return TargetRound(2.0 * math.sqrt(rho_0 / H), math.sqrt(rho_0 / 2.0) / H, H - 1, 1.0)

    @property
    def gate_privacy(self) -> Privacy:
        """The caller's, or what is proven for the paper's noise in m releases instead of K."""
        if self.options.calibration == "tight":
            return self.privacy
        assert self.privacy.joint  # noqa: S101
        one = [self.round.gram_mu, *[self.round.target_mu] * (self.spec.horizon - 1)]
        total = compose(*one) * math.sqrt(self.schedule.releases)
        delta = self.privacy.delta
        return JointDP(epsilon_from_mu(total * (1.0 + 1e-9), delta), delta)

    def _check(self) -> None:
        super()._check()
        if self.options.calibration == "tight":
            return
        if not self.privacy.joint or self.privacy.pure:
            raise InvalidArgument("as printed, the model is joint DP with delta > 0")
        if self.privacy.relation is not Relation.REPLACE_ONE:
            raise InvalidArgument("as printed, the relation is replace-one")
        if self.privacy.episodes_per_user > 1:
            raise InvalidArgument("as printed, a user has one episode")
        if self.spec.known_rewards is None:
            raise InvalidArgument("as printed, rewards are known: give them in the spec")

    def _pace(self) -> Pace:
        if self.options.calibration == "tight":
            return super()._pace()
        # Blocks that stand out of the paper's noise would be larger than the population.
        growth = self.options.constants.target_growth if self.growth is None else self.growth
        return Pace(first=min(100, self.users), growth=growth)

    # Save and resume.

    def state(self) -> State:
        """The bounds too."""
        meta, arrays = super().state()
        return meta, arrays | {f"bounds/{name}": bound for name, bound in self._bounds.items()}

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        super().restore(meta, arrays)
        self._bounds = {name: arrays[f"bounds/{name}"] for name in self._bounds}
