"""LSVI-UCB++ and DP-LSVI-UCB++: variance weights, bounds from both sides, rare switching."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.core.learner import Arrays, Floats
from tacit.core.schedule import Schedule
from tacit.linear.agent import LinearAgent
from tacit.privacy.budget import Relation, compose, epsilon_from_mu
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import JointDP, Privacy


class LSVIUCBPlusPlus(LinearAgent):
    """LSVI-UCB++ (He et al. 2023) and its private form, DP-LSVI-UCB++ (Sahu).

    Idea: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`, and besides: steps are weighted by the
    variance of what follows them; values are bounded from above and from below, and the bounds only
    ever tighten; and a policy is replaced only when enough was learnt.

    Private statistics and guarantee: those of :class:`~tacit.linear.lsvi_ucb.LSVIUCB`. A weight
    depends on the user's own state and action and on releases before her block, so a user changes
    later weights through releases only.

    Deviations from the paper: noise is fresh in every release and never accumulates; the lower
    bound is max(r + w phi - beta |phi|, .) cut at 0; all steps switch together; second moments are
    cut to [0, H^2]; the number of releases is fixed in advance, so a switching test that fires by
    noise costs nothing. Bounds only tighten under ``bonus="theory"``: practical ones are too low at
    times, and would stay so.

    Attributes:
        lower_values: pessimistic action values (H, S, A) of the last plan; ``q_values`` are the
            optimistic ones.

    Args: as :class:`~tacit.linear.lsvi_ucb.LSVIUCB`. ``calibration="as_printed"`` draws the paper's
    noise, calibrated for a release per user and step (in units of exact sensitivities, so no more
    than the paper's); the guarantee is what is proven for it.
    """

    name = "lsvi_ucb_plus_plus"
    default_weights = "variance"
    default_switching = "rayleigh"

    @property
    def _value_functions(self) -> tuple[str, ...]:
        return (*super()._value_functions, "pessimistic")

    @property
    def _tightening(self) -> bool:
        return self.bonus == "theory"

    def _first_bounds(self) -> dict[str, Floats]:
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        left = np.arange(H, 0, -1.0)[:, np.newaxis, np.newaxis]
        return {
            "optimistic": np.broadcast_to(left, (H, S, A)).copy(),
            "pessimistic": np.zeros((H, S, A)),
        }

    def _bounded(self, name: str, step: int, q_values: Floats) -> Floats:
        if not hasattr(self, "_bounds"):
            self._bounds = self._first_bounds()
        if name not in self._bounds:
            return q_values
        if self._tightening:
            tighter = np.minimum if name == "optimistic" else np.maximum
            q_values = tighter(q_values, self._bounds[name][step])
        self._bounds[name][step] = q_values
        return q_values

    @property
    def lower_values(self) -> Floats:
        """See the class."""
        bounds = getattr(self, "_bounds", None) or self._first_bounds()
        return np.array(bounds["pessimistic"])

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        if self.calibration == "tight":
            return
        if not isinstance(self.privacy, JointDP) or self.privacy.pure:
            raise InvalidArgument("as printed, the model is joint DP with delta > 0")
        if self.privacy.relation is not Relation.REPLACE_ONE:
            raise InvalidArgument("as printed, the relation is replace-one")
        if self.privacy.episodes_per_user > 1:
            raise InvalidArgument("as printed, a user has one episode")
        if self.spec.known_rewards is None:
            raise InvalidArgument("as printed, rewards are known: give them in the spec")

    def _as_printed(self) -> Privacy:
        """What is proven for the paper's noise.

        The paper draws fresh noise for all K users and H steps with rho_0 = rho / (4 H K) each,
        rho from (epsilon, delta) by rho + 2 sqrt(rho ln(1/delta)) = epsilon: standard deviation
        1 / sqrt(2 rho_0) on Grams whose steps weigh 1 / H at most, and 2 H / sqrt(2 rho_0) on sums
        of values in [0, H] with the same weights. Here there are m releases instead of K. Under
        replace-one one of them costs 2 H (1/H)^2 2 rho_0 = 4 rho_0 / H for the Grams of all steps
        and, at each step that has a next one, 2 rho_0 / (4 H^2) for values around their middle.
        """
        assert isinstance(self.privacy, JointDP)  # noqa: S101
        releases = self.schedule.releases
        one = [self._gram_mu, *[self._target_mu] * (self.spec.horizon - 1)]
        total = compose(*one) * math.sqrt(releases)
        delta = self.privacy.delta
        return JointDP(epsilon_from_mu(total * (1.0 + 1e-9), delta), delta)

    @property
    def _printed_rho(self) -> float:
        assert isinstance(self.privacy, JointDP)  # noqa: S101
        log_term = math.log(1.0 / self.privacy.delta)
        rho = (math.sqrt(log_term + self.privacy.epsilon) - math.sqrt(log_term)) ** 2
        return float(rho / (4.0 * self.spec.horizon * self.users))

    @property
    def _gram_mu(self) -> float:
        if self.calibration == "tight":
            return super()._gram_mu
        return 2.0 * math.sqrt(self._printed_rho / self.spec.horizon)

    @property
    def _target_mu(self) -> float:
        if self.calibration == "tight":
            return super()._target_mu
        return math.sqrt(self._printed_rho / 2.0) / self.spec.horizon

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        meta, arrays = super()._state()
        bounds = getattr(self, "_bounds", None) or self._first_bounds()
        return meta, arrays | {f"bounds/{name}": bound for name, bound in bounds.items()}

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        super()._set_state(meta, arrays)
        self._bounds = {name: arrays[f"bounds/{name}"] for name in self._first_bounds()}
