"""Deep Q-learning by private gradients: the network itself is what is published, step by step.

Idea:
    DP-SGD (Abadi et al., 2016) for users in place of examples: at each step, the gradient of the
    loss over a user's whole episode is clipped, the users' gradients are added up, and noise is
    added to the sum. The next network is computed from what was released, so any number of looks
    at it are free: what the paper of Wang and Hegde (2019) wanted of functional noise.
Private statistics:
    The sum of users' clipped gradients, at the current public network.
Guarantee:
    (epsilon, delta)-joint DP in one user's whole episode. All users are asked at each of J steps,
    and mu^2 adds up: each step has mu / sqrt(J).
Deviations from the paper:
    It uses DP-SGD for single transitions, with a gain from sampling that does not exist where all
    rewards may change, and without an account of users. This is a baseline of our own.
Cost:
    J gradients for each user. It needs jax and optax: ``pip install 'tacit[deep]'``.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.arguments import check_question, discount_of
from tacit.continuous.baseline import clipped, transitions
from tacit.continuous.network_policy import NetworkPolicy, first_network, hidden_layers, parameters
from tacit.continuous.policy import QPolicy
from tacit.continuous.spec import BoxSpec
from tacit.core.learner import Arrays, Learner
from tacit.core.schedule import Schedule
from tacit.finite.spec import check_bytes
from tacit.privacy.arguments import MOST_USERS, positive, whole_number
from tacit.privacy.budget import Relation, checked_relation
from tacit.privacy.curators.gate import Release
from tacit.privacy.errors import BudgetExceeded, InvalidArgument, MissingExtra
from tacit.privacy.models import JointDP, NonPrivate, Privacy
from tacit.privacy.statistic import Block, Layout, Part, Statistic

Floats = NDArray[np.float64]

Gradients = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class EpisodeGradients(Statistic):
    """The gradient of the loss over a user's episode, clipped to norm ``radius``.

    Reads ``states``, ``actions``, ``rewards`` and ``lengths``. The loss is the mean over valid
    steps of the Huber loss of q(s, a) against r + discount max q'(s'), where q' is the network
    ``target``. Rewards are counted from the middle of their range, in units of the range. Both
    networks are public.

    Sensitivity. Two points of a ball are at most 2 radius apart, and opposite points are.

    Attributes:
        spec: of the world.
        sizes: units by layer.
        theta: the network.
        target: the network that makes the targets.
        discount: of future rewards.
        radius: the largest norm of a user's gradient.
    """

    spec: BoxSpec
    sizes: tuple[int, ...]
    theta: Floats
    target: Floats
    discount: float
    radius: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise InvalidArgument(f"radius must be > 0, got {self.radius!r}")
        object.__setattr__(self, "name", "users' gradients")

    @property
    def layout(self) -> Layout:
        """``gradient``, flat."""
        return Layout((Part("gradient", (parameters(self.sizes),)),))

    def l2(self, relation: Relation) -> float:
        """2 radius, or radius."""
        return self.radius * (2.0 if checked_relation(relation) is Relation.REPLACE_ONE else 1.0)

    def vectors(self, block: Block) -> Floats:
        """One gradient for each user."""
        states, actions, rewards, valid, over = transitions(block, self.spec)
        low, high = self.spec.reward_range
        middle = 0.5 * (low + high)
        paid = np.where(valid, (rewards - middle) / (high - low), 0.0)
        # After an end nothing is earned: less than the middle, for ever.
        lost = -middle / (1.0 - self.discount) / (high - low)
        # Few different shapes, since each is compiled.
        room = max(1, 1 << (block.users - 1).bit_length()) if block.users else 1

        def padded(array: NDArray[Any], dtype: type) -> NDArray[Any]:
            larger = np.zeros((room, *array.shape[1:]), dtype=dtype)
            larger[: block.users] = array
            return larger

        gradients = _compiled(self.sizes, self.discount)(
            self.theta.astype(np.float32),
            self.target.astype(np.float32),
            padded(states, np.float32),
            padded(actions, np.int32),
            padded(paid, np.float32),
            padded(valid, np.bool_),
            padded(np.where(over, lost, 0.0), np.float32),
            padded(over, np.bool_),
        )
        vectors = np.asarray(gradients, dtype=np.float64)[: block.users]
        vectors = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
        return clipped(vectors, self.radius)


class DeepQ(Learner[EpisodeGradients, QPolicy]):
    """A small network, trained by private gradients over all users; see the module.

    Args:
        spec: of the world.
        users: how many users are declared; all are served before the first step.
        privacy: JointDP with delta > 0, or NonPrivate. Users are asked more than once, which local
            reports do not allow.
        steps: J, how many gradient steps there are.
        radius: the largest norm of a user's gradient.
        rate: learning rate of Adam.
        hidden: units of the hidden layers.
        target_every: steps between two copies to the network that makes the targets.
        discount: of future rewards; the spec's by default.
        seed: of the first network and of ties.
        noise_seed: reproducible noise, for simulations only.
        ledger: file that records what was spent, or an opened :class:`tacit.Ledger`.
        autosave: file that is written before each publication.

    Raises:
        MissingExtra: jax or optax is not installed.
    """

    name: ClassVar[str] = "deep_q"
    batch: ClassVar[bool] = True
    spec: BoxSpec

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: Privacy,
        *,
        steps: int = 60,
        radius: float = 0.03,
        rate: float = 0.03,
        hidden: tuple[int, ...] = (16, 16),
        target_every: int = 5,
        discount: float | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        self._jax, optax = deep_modules()
        if not isinstance(spec, BoxSpec):
            raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
        if not isinstance(privacy, (JointDP, NonPrivate)) or (
            isinstance(privacy, JointDP) and privacy.pure
        ):
            raise InvalidArgument(
                f"privacy must be JointDP with delta > 0, or NonPrivate, got {privacy!r}: users "
                "are asked at every step, with Gaussian noise"
            )
        users = whole_number("users", users, most=MOST_USERS)
        seed = whole_number("seed", seed, least=0)
        self.steps, self.target_every = (
            whole_number(name, value)
            for name, value in (("steps", steps), ("target_every", target_every))
        )
        self.radius, self.rate = positive("radius", radius), positive("rate", rate)
        self.discount = discount_of(discount, spec)
        self.sizes = (spec.dimension, *hidden_layers(hidden), spec.actions)
        check_bytes("theta", (parameters(self.sizes),))
        rng = np.random.default_rng(np.random.SeedSequence([seed, 9]))
        self.theta = first_network(rng, self.sizes)
        self._target = self.theta
        self._answered = 0
        self._optimiser = optax.adam(self.rate)
        start = self._jax.numpy.asarray(self.theta, dtype=np.float32)
        self._moments = self._optimiser.init(start)
        super().__init__(
            spec,
            users,
            privacy,
            seed=seed,
            noise_seed=noise_seed,
            ledger=ledger,
            autosave=autosave,
        )

    @property
    def form(self) -> Literal["episodes"]:
        """Users one by one."""
        return "episodes"

    @property
    def step_mu(self) -> float | None:
        """What one step costs every user; all steps together cost the budget."""
        if not isinstance(self.privacy, JointDP):
            return None
        return math.sqrt(self.privacy.episode_limit / self.steps)

    def _statistic(self) -> EpisodeGradients:
        return EpisodeGradients(
            self.spec, self.sizes, self.theta, self._target, self.discount, self.radius
        )

    def _check_options(self, schedule: str | Schedule) -> None:
        super()._check_options(schedule)
        check_question(self._statistic(), self.privacy, "radius")

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        return Schedule.parse(f"fixed:size={self.users}", self.users)

    def _first_policy(self) -> QPolicy:
        return QPolicy.uniform(self.spec.dimension, self.spec.actions)

    def _plan(self) -> tuple[QPolicy, QPolicy]:
        order = tuple(self._rng.permutation(self.spec.actions).tolist())
        policy = NetworkPolicy.of(self.theta, self.sizes, 0.0, self.releases, order)
        return policy, policy

    # All users, again and again.

    def _release(self, block: Block, user_ids: Sequence[int | str] | None) -> None:
        self._curator.add(block, user_ids)
        self._go_on(block.users)

    def _go_on(self, users: int, resumed: bool = False) -> None:
        """The steps that are left, on the block that is here.

        A crash can make users pay for a step that nobody saw. Then they cannot pay for all, and
        what was learnt in the steps before is what there is.
        """
        with self._at_the_gate(users):
            while self._answered < self.steps:
                statistic = self._statistic()
                try:
                    release = self._curator.release(statistic, mu=self.step_mu)
                except BudgetExceeded:
                    if resumed:
                        break
                    raise
                self._absorb(release, statistic, users)
        self._advance(users)

    def _absorb(self, release: Release, statistic: EpisodeGradients, users: int) -> None:
        """One step of Adam along the noisy mean."""
        gradient = self._jax.numpy.asarray(release["gradient"] / users, dtype=np.float32)
        change, self._moments = self._optimiser.update(gradient, self._moments)
        self.theta = self.theta + np.asarray(change, dtype=np.float64)
        self._answered += 1
        if self._answered % self.target_every == 0:
            self._target = self.theta

    def _catch_up(self) -> None:
        last = self._curator.last_release
        if last is None or self.releases:
            return
        if last.index >= self._answered:
            # Saved before it was published.
            self._absorb(last, self._statistic(), last.users)
        if self._curator.blocks:
            self._go_on(self.block_users, resumed=True)
        else:
            # It was saved after a step that failed, which ended them all; its users count already.
            self._advance(0)

    # Save and resume.

    def _policy_arrays(self, policy: QPolicy) -> Arrays:
        return policy.arrays()

    def _policy_of(self, arrays: Arrays, version: int) -> QPolicy:
        kind = NetworkPolicy if "theta" in arrays else QPolicy
        return kind.from_arrays(arrays, version)

    def _identity(self) -> dict[str, Any]:
        names = ("steps", "radius", "rate", "target_every", "discount")
        own = {name: getattr(self, name) for name in names}
        return super()._identity() | own | {"sizes": list(self.sizes)}

    def _state(self) -> tuple[dict[str, Any], Arrays]:
        leaves = self._jax.tree_util.tree_leaves(self._moments)
        arrays: Arrays = {"theta": self.theta, "target": self._target}
        arrays |= {f"moments/{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        return {"answered": self._answered}, arrays

    def _set_state(self, meta: dict[str, Any], arrays: Arrays) -> None:
        self._answered = meta["answered"]
        self.theta, self._target = arrays["theta"], arrays["target"]
        leaves, shape = self._jax.tree_util.tree_flatten(self._moments)
        saved = [self._jax.numpy.asarray(arrays[f"moments/{i}"]) for i in range(len(leaves))]
        self._moments = self._jax.tree_util.tree_unflatten(shape, saved)


def deep_modules() -> tuple[Any, Any]:
    """The modules jax and optax.

    Raises:
        MissingExtra: one of them is not installed; with how to install them.
    """
    try:
        return importlib.import_module("jax"), importlib.import_module("optax")
    except ImportError as error:
        raise MissingExtra(
            f"deep Q-learning needs jax and optax ({error}): pip install 'tacit[deep]'"
        ) from error


@lru_cache(maxsize=16)
def _compiled(sizes: tuple[int, ...], discount: float) -> Gradients:
    """Gradients of many episodes at once, (users, parameters)."""
    jax, _ = deep_modules()
    jnp = jax.numpy

    def outputs(theta: Any, inputs: Any) -> Any:
        start = 0
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            biases = start + fan_in * fan_out
            matrix = theta[start:biases].reshape(fan_out, fan_in)
            start = biases + fan_out
            inputs = inputs @ matrix.T + theta[biases:start]
            if layer < len(sizes) - 2:
                inputs = jax.nn.relu(inputs)
        return inputs

    def loss(
        theta: Any,
        target: Any,
        states: Any,
        actions: Any,
        rewards: Any,
        valid: Any,
        lost: Any,
        over: Any,
    ) -> Any:
        later = jnp.where(over, lost, outputs(target, states[1:]).max(axis=-1))
        chosen = jnp.take_along_axis(outputs(theta, states[:-1]), actions[:, None], axis=-1)
        errors = jnp.where(valid, chosen[:, 0] - rewards - discount * later, 0.0)
        size = jnp.abs(errors)
        each = jnp.where(size < 1.0, 0.5 * errors**2, size - 0.5)
        return each.sum() / jnp.maximum(valid.sum(), 1)

    def gradients(theta: Any, target: Any, *users: Any) -> Any:
        # One by one, not as a batch: the order in which a batch is added up depends on its size,
        # and nobody's gradient may depend on anybody else, not even in its last digit.
        return jax.lax.map(lambda user: jax.grad(loss)(theta, target, *user), users)

    return cast(Gradients, jax.jit(gradients))
