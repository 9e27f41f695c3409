"""Q-learning with functional noise as it was printed: to compare with, never to rely on.

Algorithm 1 of Wang and Hegde (2019, "Privacy-preserving Q-learning with functional noise in
continuous spaces"), with its typographical errors corrected and its calibration as it is.

Idea:
    A network learns Q by gradient steps. Wherever Q is looked at (actions, targets, losses) a path
    of a Gaussian process is added to it, one for each action, which is drawn anew from time to
    time. The claim is that this hides the reward function.
Guarantee:
    None; :data:`WHY` says why. Nothing here passes a curator, which could not account for it.
Deviations from the paper:
    Corrected: the gradient step goes down and not up; a batch has B terms and not B + 1; the noise
    is added inside the maximum, and for the action that was taken; the bridge between two known
    points weighs each of them by the distance to the other, and its d is a variance; the path is
    also drawn at the current state. In several dimensions each coordinate has a path of its own,
    of variance sigma^2 / D: the paper's kernel exp(-beta |x - y|) costs O(n^2) for a new point.
    Not stated in the paper and taken from the authors' public code (``settings="code"``): the
    network, the discount, replay, RMSprop, exploration and the target network. With what the paper
    states (``settings="paper"``) there are 78 gradient steps of size 3e-4, and nothing is learnt.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.base import real
from tacit.continuous.network_policy import NetworkPolicy, parameters
from tacit.continuous.printed_state import PATH, SETTINGS, PrintedSettings, PrintedState
from tacit.continuous.spec import BoxSpec
from tacit.continuous.statistics.steps import steps_of
from tacit.continuous.world import BoxWorld, VectorWorld
from tacit.core.permuted import PermutedWorld
from tacit.core.schedule import every_episode
from tacit.core.sizes import check_bytes
from tacit.core.vector_episodes import VectorEpisodes
from tacit.core.world import ServedPart, World
from tacit.privacy.arguments import MOST_USERS, instance_of, row_ids, whole_number
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument, TacitError
from tacit.privacy.files import MALFORMED
from tacit.privacy.models import NonPrivate
from tacit.privacy.statistic import Block, Floats, Ints
from tacit.privacy.storage import read_state, write_state

WHY = (
    "no guarantee: the algorithm returns its network without noise, and carries it without noise "
    "from step to step; only looks at it are noisy. No sigma makes that private"
)
"""Why there is no guarantee, wherever it is asked for."""


_RMSPROP = (0.99, 1e-8)  # PyTorch's decay and floor.
# What a save changes.
_CHANGED = ("served", "_state", "_policy", "_greedy")


@dataclass(frozen=True, eq=False)
class _Served:
    """One user of the closed loop. Her policy changed as she went: her return is its value."""

    returned: float
    greedy: float
    users: int = 1

    def values(self) -> tuple[Floats, Floats]:
        """Her return, and the value of the greedy policy when she came."""
        return np.array([self.returned]), np.array([self.greedy])


class PrintedFunctionalQ:
    """Q-learning with functional noise as printed, without any guarantee; see the module.

    It is for simulations only, and it is no :class:`~tacit.core.algorithm.Algorithm`: an algorithm
    is sent releases, and this one looks at people's raw steps, one after the other, and keeps them.
    So it stands alone and has what a simulation asks of an agent
    (:class:`~tacit.core.world.AnyAgent`).

    It learns within episodes, which only a simulation can let it do: :func:`tacit.run` on a
    :class:`~tacit.continuous.world.BoxWorld` uses :meth:`closed_loop`, which is the algorithm as it
    is. What :meth:`learn` does is different in two ways: during an episode its user follows one
    policy, with the exploration of its first step, and that policy is the network without noise.

    Args:
        spec: of the world.
        users: how many users are declared; T is this times the horizon.
        privacy: NonPrivate; a budget cannot be asked for.
        sigma: standard deviation of the noise wherever Q is looked at. The paper has .32 for
            (0.9, 1e-4) and .74 for (0.45, 1e-4).
        resets: how often new paths begin, J; with each episode by default.
        settings: ``"code"`` for those of the authors' public code, ``"paper"`` for what the paper
            states, or your own.
        seed: of the network's start, exploration and replay.
        noise_seed: of the noise; fresh entropy by default.

    >>> spec = BoxSpec((0.0,), (1.0,), actions=2, horizon=50, reward_range=(0.0, 0.5))
    >>> print(PrintedFunctionalQ(spec, users=100, sigma=0.4).guarantee)
    None
    """

    name: ClassVar[str] = "printed_functional_q"
    guarantee: ClassVar[None] = None
    form: ClassVar[Literal["episodes"]] = "episodes"
    why: ClassVar[str] = WHY

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: NonPrivate | None = None,
        *,
        sigma: float = 0.32,
        resets: int | None = None,
        settings: Literal["code", "paper"] | PrintedSettings = "code",
        seed: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        if not isinstance(spec, BoxSpec):
            raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
        users = whole_number("users", users, most=MOST_USERS)
        if privacy is not None and getattr(privacy, "private", True):
            raise InvalidArgument(f"privacy must be NonPrivate(), got {privacy!r}: {WHY}")
        self.sigma = real("sigma", sigma)
        if self.sigma < 0.0:
            raise InvalidArgument(f"sigma must be >= 0, got {sigma!r}")
        if resets is not None:
            resets = whole_number("resets", resets, most=users * spec.horizon)
        seed = whole_number("seed", seed, least=0)
        if noise_seed is not None:
            noise_seed = whole_number("noise_seed", noise_seed, least=0)
        settings = _settings(settings, spec)
        layers = (spec.dimension, *settings.hidden, spec.actions)
        self.spec, self.users, self.privacy = spec, users, NonPrivate()
        self.resets, self.settings = resets, settings
        self.schedule = every_episode(self.users)
        self.served = 0
        self._state = PrintedState(layers, settings.replay, seed, noise_seed)
        self._gradient = np.zeros_like(self._state.theta)
        units, batch = sum(layers), settings.batch
        self._work = (np.zeros((units, batch)), np.zeros((units, batch)), np.zeros(spec.actions))
        self._look = (np.zeros((units, 1)), np.zeros(spec.actions))
        self._chosen = np.zeros(batch, dtype=np.int64)
        self._taken = np.zeros(settings.replay, dtype=np.bool_)
        self._publish_next()

    # The billboard.

    @property
    def policy(self) -> NetworkPolicy:
        """What serves the next user: the network, without noise, with the exploration of now."""
        return self._policy

    @property
    def greedy_policy(self) -> NetworkPolicy:
        """What the algorithm returns: the network, without noise."""
        return self._greedy

    @property
    def block_users(self) -> int:
        """One user, as long as there are any left."""
        return min(1, self.users - self.served)

    @property
    def releases(self) -> int:
        """How often it has published: once for each user."""
        return self.served

    @property
    def exploration(self) -> float:
        """The probability of a uniform action at the next step."""
        if self.settings.exploration is None:
            return 0.0
        first, last, steps = self.settings.exploration
        return last + (first - last) * math.exp(-self._state.steps / steps)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the network. It is public by nobody's guarantee."""
        self._policy.publish(path)

    def __repr__(self) -> str:
        return f"<PrintedFunctionalQ: sigma {self.sigma:g}, {self.users} users; {WHY}>"

    # Learning.

    def learn(
        self, data: VectorEpisodes | Block, user_ids: Sequence[int | str] | None = None
    ) -> None:
        """Takes users whom ``policy`` served and runs the algorithm along their episodes.

        Ids are ignored: nothing is promised to anybody.
        """
        instance_of("data", data, (VectorEpisodes, Block))
        block = data.block() if isinstance(data, VectorEpisodes) else data
        if user_ids is not None:
            row_ids(user_ids, block.users)
        if block.aggregate:
            raise InvalidArgument("data must be episodes one by one, not sums")
        if block.users > (left := self.users - self.served):
            raise HorizonExceeded(
                f"this agent was declared for {self.users} users; {left} are left, "
                f"{block.users} came"
            )
        states, actions, rewards, valid, over = steps_of(block, self.spec, inside=True)
        if self.settings.worth_nothing:
            over[:, -1] |= valid[:, -1]
        for user in range(block.users):
            if self.resets is None:
                self._new_paths()
            for step in np.flatnonzero(valid[user]).tolist():
                here, there = states[user, step], states[user, step + 1]
                action, reward = int(actions[user, step]), float(rewards[user, step])
                self._observe(here, action, reward, there, bool(over[user, step]))
            self._end_episode()

    def closed_loop(self, world: World, rng: np.random.Generator) -> Iterator[ServedPart] | None:
        """The algorithm as it is, for simulated users in a box; ``None`` for any other world.

        A part is one user. Her policy changes at every step, so her return stands for its value.
        """
        inner: object = world
        labels = np.arange(self.spec.actions)
        if isinstance(world, PermutedWorld):
            labels, inner = np.array(world.permutation), world.world
        if type(self) is not PrintedFunctionalQ or not isinstance(inner, BoxWorld):
            return None
        if type(inner).simulate is not VectorWorld.simulate:
            return None
        return _serve(self, world, inner, labels, rng)

    def _act(self, state: Floats) -> int:
        """Line 12: the best action of Q + g, or any."""
        from tacit.continuous import network_loops

        known, (units, noise) = self._state, self._look
        if known.rng.random() < self.exploration:
            return int(known.rng.integers(self.spec.actions))
        units[: self.spec.dimension, 0] = state
        network_loops.forward(known.theta, known.sizes, units)
        noise[:] = 0.0
        if self.sigma > 0.0:
            known.make_room(1)
            beta = self.settings.beta
            network_loops.path_at(known.noise, known.paths[0], beta, self.sigma, state, noise)
        return int(np.argmax(units[-self.spec.actions :, 0] + noise))

    def _observe(
        self, state: Floats, action: int, reward: float, next_state: Floats, over: bool
    ) -> None:
        """Lines 13 to 22: remembers a transition and, when it is time, makes a gradient step."""
        settings, known = self.settings, self._state
        known.replay.add(state, action, reward, next_state, over)
        known.steps += 1
        if known.steps % settings.every == 0 and known.replay.size >= settings.batch:
            self._take_step()
        if self.resets is not None:
            interval = math.ceil(self.users * self.spec.horizon / self.resets)
            if known.steps % interval == 0:
                self._new_paths()

    def _take_step(self) -> None:
        """Lines 18 to 22: the gradient of a batch's noisy losses, and a step down."""
        from tacit.continuous import network_loops

        settings, known = self.settings, self._state
        own = settings.target_every is None
        known.make_room(2 * settings.batch)
        network_loops.draw_batch(known.rng, known.replay.size, self._chosen, self._taken)
        network_loops.q_gradient(
            known.noise,
            known.theta,
            known.theta if own else known.target,
            known.sizes,
            known.replay.arrays,
            self._chosen,
            settings.discount,
            (settings.beta, self.sigma),
            known.paths[0],
            known.paths[0] if own else known.paths[1],
            settings.loss == "huber",
            self._work,
            self._gradient,
        )
        if settings.clamp is not None:
            np.clip(self._gradient, -settings.clamp, settings.clamp, out=self._gradient)
        if settings.optimiser == "sgd":
            network_loops.sgd(known.theta, self._gradient, settings.rate)
        else:
            network_loops.rmsprop(
                known.theta, self._gradient, known.squares, settings.rate, *_RMSPROP
            )

    def _end_episode(self) -> None:
        every = self.settings.target_every
        if every is not None and self.served % every == 0:
            self._state.target[:] = self._state.theta
        self.served += 1
        self._publish_next()

    def _publish_next(self) -> None:
        order = self._state.rng.permutation(self.spec.actions).tolist()
        self._post(self._state.theta, self.exploration, order)

    def _post(self, theta: Floats, epsilon: float, order: list[int]) -> None:
        sizes, version, first = self._state.sizes.tolist(), self.served, tuple(order)
        self._policy = NetworkPolicy.of(theta, sizes, epsilon, version, first)
        self._greedy = NetworkPolicy.of(theta, sizes, 0.0, version, first)

    def _new_paths(self) -> None:
        """Lines 7 to 9: what is known of the paths is forgotten."""
        self._state.new_paths()

    # Save and resume.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, raw transitions included (mode 0600), for going on later."""
        meta, arrays = self._state.dump()
        order = np.array(self._policy.preference, dtype=np.int64)
        arrays |= {"preference": order, "published": self._policy.theta}
        meta |= {"identity": self._identity(), "served": self.served}
        meta["exploration"] = self._policy.epsilon
        write_state(path, "printed agent", meta, arrays)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Resumes a save into this freshly made agent, which must have the same arguments."""
        state = read_state(path, "printed agent")
        before = {name: copy.deepcopy(getattr(self, name)) for name in _CHANGED}
        try:
            self._restore(state.meta, state.arrays)
        except BaseException as error:
            vars(self).update(before)
            if isinstance(error, MALFORMED) and not isinstance(error, TacitError):
                raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from None
            raise
        return self

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """What :meth:`save` wrote; whatever it raises, some of it may have been taken."""
        mine, saved = self._identity(), meta["identity"]
        differing = [key for key in mine if mine[key] != saved.get(key)]
        if differing:
            raise InvalidArgument(
                f"the save is of another agent: {', '.join(differing)} differ "
                f"(saved {saved.get(differing[0])}, this one {mine[differing[0]]})"
            )
        self._state.restore(meta, arrays)
        self.served = whole_number("served", meta["served"], least=0, most=self.users)
        self._post(arrays["published"], meta["exploration"], arrays["preference"].tolist())

    def _identity(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "spec": repr(self.spec),
            "users": self.users,
            "sigma": self.sigma,
            "resets": self.resets,
            "settings": repr(asdict(self.settings)),
        }


def _serve(
    agent: PrintedFunctionalQ, world: World, box: BoxWorld, labels: Ints, rng: np.random.Generator
) -> Iterator[ServedPart]:
    """All users that are left, step by step."""
    from tacit.continuous import world_loops

    H, D = agent.spec.horizon, agent.spec.dimension
    while agent.block_users:
        greedy = float(world.value(agent.greedy_policy))
        if agent.resets is None:
            agent._new_paths()
        here, returned = rng.random((1, D)), 0.0
        for step in range(H):
            action = agent._act(here[0])
            there = here.copy()
            world_loops.move(there, labels[[action]], rng.random(1))
            reward = float(box.rewards(there)[0])
            over = step == H - 1 and agent.settings.worth_nothing
            agent._observe(here[0], action, reward, there[0], over)
            here, returned = there, returned + reward
        agent._end_episode()
        yield _Served(returned, greedy)


def _settings(settings: Any, spec: BoxSpec) -> PrintedSettings:
    """Settings by name or as they are, if what they need fits in memory."""
    instance_of("settings", settings, (str, PrintedSettings))
    if isinstance(settings, str):
        if settings not in SETTINGS:
            raise InvalidArgument(
                f"settings must be one of {list(SETTINGS)} or PrintedSettings, got {settings!r}"
            )
        settings = SETTINGS[settings]
    chosen: PrintedSettings = settings
    layers = (spec.dimension, *chosen.hidden, spec.actions)
    check_bytes("network of settings.hidden", (parameters(layers),))
    check_bytes("units of settings.batch", (sum(layers), chosen.batch))
    check_bytes("settings.replay", (chosen.replay, spec.dimension))
    check_bytes("paths of the noise", (spec.dimension, PATH, spec.actions))
    return chosen
