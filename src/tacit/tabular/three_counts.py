"""What the tabular baselines share: running sums of all three counts, and planning on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Floats
from tacit.core.options import Bonus
from tacit.finite.policy import Policy
from tacit.tabular.base import TabularOptions
from tacit.tabular.ucbvi import UCBVI


@dataclass(frozen=True, kw_only=True)
class ThreeCountsOptions(TabularOptions):
    """Those of tabular algorithms; the bonus is always the paper's."""

    bonus: Bonus = "theory"


class ThreeCounts(UCBVI):
    """Visits n(s, a) are counted on their own, besides rewards and transitions, as papers do."""

    Options = ThreeCountsOptions
    refuses: ClassVar = {
        "bonus": "its bonus is the paper's",
        "constants": "they are for the practical bonus",
        "counter": "its widths are for running sums through the best counter",
    }

    def optimise(
        self, rewards: Floats, transitions: Floats, bonus: Floats, known: NDArray[np.bool_]
    ) -> tuple[Policy, Policy]:
        """Backward induction with values cut to what the steps left can pay.

        A cell that is not known is worth all of that to the optimist and nothing to the greedy
        policy. ``bonus`` is (H, S, A), the others have one row, or one per step.
        """
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        last = len(rewards) - 1
        q_values, plain = np.empty((H, S, A)), np.empty((H, S, A))
        value, plain_value = np.zeros(S), np.zeros(S)
        for h in range(H - 1, -1, -1):
            at, left = min(h, last), float(H - h)
            q = rewards[at] + transitions[at] @ value + bonus[h]
            q_values[h] = np.where(known[at], np.clip(q, 0.0, left), left)
            exact = np.clip(rewards[at] + transitions[at] @ plain_value, 0.0, left)
            plain[h] = np.where(known[at], exact, 0.0)
            value, plain_value = q_values[h].max(axis=1), plain[h].max(axis=1)
        self.q_values = q_values
        return self.best(q_values), self.best(plain)
