"""What algorithms for finite worlds share: policies that are tables of states and actions."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.core.algorithm import Algorithm, Floats
from tacit.core.asks import Arrays, below
from tacit.finite.mixed_policy import AnyPolicy, MixedPolicy
from tacit.finite.policy import Policy
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.sizing import release_noise

if TYPE_CHECKING:
    from tacit.core.setting import Setting

# Users are summed one by one, which a clip needs, while blocks are at most so many times as large
# as the smallest that knows anything. By then the clip has done its work.
_CLIPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 18


class FiniteAlgorithm(Algorithm[Any]):
    """An algorithm whose policies are tables."""

    deterministic: ClassVar[bool] = True
    knows_admissible: ClassVar[bool] = False
    """Whether it chooses only what states allow; others are for specs that allow everything."""

    def __init__(self, setting: Setting, options: Any) -> None:
        if getattr(setting.spec, "admissible", None) is not None and not self.knows_admissible:
            raise InvalidArgument(
                f"{self.name} counts and plans with all actions, but the spec has admissible ones: "
                "policy_improvement knows of them"
            )
        super().__init__(setting, options)

    def _first_policies(self) -> tuple[AnyPolicy, Policy]:
        """Before anything is known: random actions, drawn once, or all with the same chance."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        first = Policy.uniform(H, S, A)
        if self.deterministic:
            first = Policy.deterministic(self.rng.integers(0, A, (H, S)), A, version=0)
        return first, first

    def best(self, q_values: Floats) -> Policy:
        """The best actions by (H, S, A) values, ties broken at random, once."""
        ties = np.where(
            q_values == q_values.max(axis=-1, keepdims=True), self.rng.random(q_values.shape), -1.0
        )
        return Policy.deterministic(ties.argmax(axis=-1), self.spec.actions, version=self.releases)

    # Save and resume.

    def policy_arrays(self, policy: AnyPolicy) -> Arrays:
        """The table, or the actions where there is one for each state; all of a mixed policy."""
        if isinstance(policy, MixedPolicy):
            return {f"mixed/{name}": array for name, array in policy.arrays().items()}
        return {"table": np.array(policy.table() if policy.actions is None else policy.actions)}

    def named(self, policy: AnyPolicy) -> AnyPolicy:
        """The policy with its number, and with the spec's labels, if it has any."""
        if self.first_version:
            policy = policy.as_version(self.newest)
        return self._labelled(policy)

    def _labelled(self, policy: AnyPolicy) -> AnyPolicy:
        spec = self.spec
        labels = getattr(spec, "state_labels", None), getattr(spec, "action_labels", None)
        return policy if labels == (None, None) else policy.labelled(*labels)

    def policy_of(self, arrays: Arrays, version: int) -> Any:
        """The inverse, to the bit."""
        return self._labelled(self._unnamed(arrays, version))

    def _unnamed(self, arrays: Arrays, version: int) -> AnyPolicy:
        if mixed := below(arrays, "mixed/"):
            return MixedPolicy.of_arrays(mixed, self.spec.actions, version)
        table = arrays["table"]
        if table.ndim == 2:
            return Policy.deterministic(table, self.spec.actions, version=version)
        # Not Policy.stochastic, which divides by the sums again: it must be the same to the bit.
        return Policy(table, None, version)


class WayAlgorithm(FiniteAlgorithm):
    """One with several ways to ask, of which ``statistic="auto"`` chooses one."""

    statistic_kind: Any
    _reason: str

    @abstractmethod
    def statistic(self) -> Any:
        """What is asked first of the current block."""

    @property
    def why(self) -> str:
        """What was chosen for this world, budget and length, in words."""
        return f"statistic {self.statistic_kind!r}: {self._reason}; {super().why}"

    @property
    def _scheduled(self) -> int:
        """The size of the current block, or at the end of the last one."""
        return self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]

    def _few(self, smallest: int) -> bool:
        """Whether the users of the current block are summed one by one."""
        return self._scheduled <= min(_CLIPPED_UP_TO * smallest, _ONE_BY_ONE)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one sum with weight 1 of the current block."""
        return release_noise(self.statistic(), self.privacy, self._scheduled)

    @cached_property
    def masked(self) -> bool:
        """Counts are of those who followed the block's own policy."""
        return bool(self.statistic_kind == "counts")
