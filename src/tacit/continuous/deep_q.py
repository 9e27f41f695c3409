"""Deep Q-learning by private gradients: the network itself is what is published, step by step.

Idea:
    DP-SGD (Abadi et al., 2016) for users in place of examples: at each step, the gradient of the
    loss over a user's whole episode is clipped, the users' gradients are added up, and noise is
    added to the sum. The next network is computed from what was released, so any number of looks
    at it are free: what the paper of Wang and Hegde (2019) wanted of functional noise.
Guarantee:
    (epsilon, delta)-joint DP in one user's whole episode. All users are asked at each of J steps,
    and mu^2 adds up: each step has mu / sqrt(J).
Deviations from the paper:
    It uses DP-SGD for single transitions, with a gain from sampling that does not exist where all
    rewards may change, and without an account of users. This is a baseline of our own.

It needs jax and optax: ``pip install 'tacit[deep]'``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.continuous.base import BoxAlgorithm, box_spec, discount_of
from tacit.continuous.network_policy import NetworkPolicy, first_network, hidden_layers, parameters
from tacit.continuous.policy import QPolicy
from tacit.continuous.statistics.gradients import EpisodeGradients, deep_modules
from tacit.core.asks import Arrays, Ask, Asks, State
from tacit.core.sizes import check_bytes
from tacit.privacy.arguments import positive, whole_number
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.sizing import check_question

if TYPE_CHECKING:
    from tacit.core.setting import Setting


@dataclass(frozen=True, kw_only=True)
class DeepQOptions:
    """Options of :class:`DeepQ`.

    Attributes:
        steps: J, how many gradient steps there are.
        radius: the largest norm of a user's gradient.
        rate: learning rate of Adam.
        hidden: units of the hidden layers.
        target_every: steps between two copies to the network that makes the targets.
        discount: of future rewards; the spec's by default.
    """

    steps: int = 60
    radius: float = 0.03
    rate: float = 0.03
    hidden: tuple[int, ...] = (16, 16)
    target_every: int = 5
    discount: float | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "target_every"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        for name in ("radius", "rate"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "hidden", hidden_layers(self.hidden))


class DeepQ(BoxAlgorithm):
    """A small network, trained by private gradients over all users; see the module.

    All users are served before the first step. Privacy is JointDP with delta > 0, or NonPrivate:
    users are asked more than once, which local reports do not allow.
    """

    name: ClassVar[str] = "deep_q"
    batch: ClassVar[bool] = True
    ends_greedy: ClassVar[bool] = True
    Options = DeepQOptions
    options: DeepQOptions
    refuses: ClassVar = {"schedule": "all users are asked at every step"}

    def __init__(self, setting: Setting, options: DeepQOptions) -> None:
        self._jax, optax = deep_modules()
        spec = box_spec(setting)
        if setting.privacy.local or setting.privacy.pure:
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {setting.privacy!r}: "
                "users are asked at every step, with Gaussian noise"
            )
        self.discount = discount_of(options.discount, spec)
        self.sizes = (spec.dimension, *options.hidden, spec.actions)  # units by layer
        check_bytes("theta", (parameters(self.sizes),))
        rng = np.random.default_rng(np.random.SeedSequence([setting.seed, 9]))
        self.theta = first_network(rng, self.sizes)  # the network, flat
        self._target = self.theta
        self.answered = 0  # how many steps were made
        self._optimiser = optax.adam(options.rate)
        start = self._jax.numpy.asarray(self.theta, dtype=np.float32)
        self._moments = self._optimiser.init(start)
        super().__init__(setting, options)

    # All users, again and again.

    def asks(self) -> Asks:
        """A gradient over all users at each step, at the network that the last one led to.

        A crash can make users pay for a step that nobody saw. Then they cannot pay for all, and
        what was learnt in the steps before is what there is.
        """
        for _ in range(self.options.steps):
            try:
                release = yield Ask(self.statistic(), mu=self.step_mu)
            except BudgetExceeded:
                break
            self._take_step(release)

    def statistic(self) -> EpisodeGradients:
        """Users' gradients at the current network."""
        return EpisodeGradients(
            self.spec, self.sizes, self.theta, self._target, self.discount, self.options.radius
        )

    @property
    def step_mu(self) -> float | None:
        """What one step costs every user; all steps together cost the budget."""
        if not self.privacy.joint:
            return None
        return math.sqrt(self.privacy.episode_limit / self.options.steps)

    def _take_step(self, release: Release) -> None:
        """One step of Adam along the noisy mean."""
        mean = release["gradient"] / self.block_users
        gradient = self._jax.numpy.asarray(mean, dtype=np.float32)
        change, self._moments = self._optimiser.update(gradient, self._moments)
        self.theta = self.theta + np.asarray(change, dtype=np.float64)
        self.answered += 1
        if self.answered % self.options.target_every == 0:
            self._target = self.theta

    def plan(self) -> tuple[QPolicy, QPolicy]:
        """The best action of the network's outputs; while users are to come, they try all."""
        order = tuple(self.rng.permutation(self.spec.actions).tolist())
        policy = NetworkPolicy.of(self.theta, self.sizes, 0.0, self.releases, order)
        return (policy if self.releases else self.behaviour()), policy

    def _check(self) -> None:
        check_question(self.statistic(), self.privacy, "radius")

    def policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        """The inverse of :meth:`policy_arrays`, to the bit."""
        kind = NetworkPolicy if "theta" in arrays else QPolicy
        return kind.from_arrays(arrays, version)

    def identity(self) -> dict[str, Any]:
        """See :class:`~tacit.core.algorithm.Algorithm`."""
        return super().identity() | {"discount": self.discount}

    def state(self) -> State:
        """The networks and Adam's moments."""
        leaves = self._jax.tree_util.tree_leaves(self._moments)
        arrays: Arrays = {"theta": self.theta, "target": self._target}
        arrays |= {f"moments/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return {"answered": self.answered}, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """See :meth:`state`."""
        self.answered = meta["answered"]
        self.theta, self._target = arrays["theta"], arrays["target"]
        leaves, shape = self._jax.tree_util.tree_flatten(self._moments)
        saved = [self._jax.numpy.asarray(arrays[f"moments/{i}"]) for i in range(len(leaves))]
        self._moments = self._jax.tree_util.tree_unflatten(shape, saved)
