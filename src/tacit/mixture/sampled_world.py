"""Mixtures of simulators: simulated users in worlds with many states, of which no table is made."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.core.sizes import Floats
from tacit.finite.simulate import simulate_episodes, simulate_streamed
from tacit.finite.sparse import SparseModel
from tacit.finite.world import FiniteWorld
from tacit.mixture.sampled_spec import SampledSpec
from tacit.privacy.errors import InvalidArgument

if TYPE_CHECKING:
    from tacit.core.episodes import Episodes
    from tacit.core.world import Form
    from tacit.finite.mixed_policy import AnyPolicy
    from tacit.privacy.statistic import Block

Ints = NDArray[np.int64]

FORMS = ("episodes", "streamed")
"""What such a world hands over: sums of a block would have S A S entries."""


class SampledWorld(FiniteWorld):
    """A world of possible transitions, and base models that agents have as simulators only.

    Args:
        model: what users do.
        spec: what agents know.
        weights: theta, (d,), which they do not.
        name: what it is called.
    """

    exchangeable_actions = False
    model: Any

    def __init__(self, model: SparseModel, spec: SampledSpec, weights: Floats, name: str) -> None:
        dense: Any = model
        super().__init__(dense, name)
        self._spec, self.weights = spec, weights

    @property
    def spec(self) -> SampledSpec:
        """What an agent may know."""
        return self._spec

    def simulate(
        self, policy: AnyPolicy, users: int, rng: np.random.Generator, form: Form = "episodes"
    ) -> Episodes | Block:
        """See :class:`~tacit.core.world.World`."""
        if form not in FORMS:
            raise InvalidArgument(f"form must be one of {FORMS} in such a world, got {form!r}")
        make = simulate_episodes if form == "episodes" else simulate_streamed
        return make(self.model, policy, users, rng)

    @cached_property
    def uninformed_value(self) -> float:
        """The value of the best policy for the centre of the weights: of learning nothing."""
        from tacit.core.setting import Setting
        from tacit.mixture.linopt_sampled import LinOptSampled, LinOptSampledOptions
        from tacit.privacy.models import NonPrivate

        setting = Setting(self.spec, 1, NonPrivate())
        return self.value(LinOptSampled(setting, LinOptSampledOptions()).greedy_policy)
