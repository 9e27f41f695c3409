"""Q-learning with functional noise as it was printed: to compare with, never to rely on.

Algorithm 1 of Wang and Hegde (2019, "Privacy-preserving Q-learning with functional noise in
continuous spaces"), with its typographical errors corrected and its calibration as it is.

Idea:
    A network learns Q by gradient steps. Wherever Q is looked at (actions, targets, losses) a path
    of a Gaussian process is added to it, one for each action, which is drawn anew from time to
    time. The claim is that this hides the reward function.
Private statistics:
    None.
Guarantee:
    None; :data:`WHY` says why. Nothing here passes a curator, because a curator could not account
    for it.
Deviations from the paper:
    Corrected: the gradient step goes down and not up; a batch has B terms and not B + 1; the noise
    is added inside the maximum, and for the action that was taken; the bridge between two known
    points weighs each of them by the distance to the other, and its d is a variance; the path is
    also drawn at the current state. In several dimensions each coordinate has a path of its own,
    of variance sigma^2 / D: the paper's kernel exp(-beta |x - y|) costs O(n^2) for a new point.
    Not stated in the paper and taken from the authors' public code (``settings="code"``): the
    network, the discount, replay, RMSprop, exploration and the target network. With what the paper
    states (``settings="paper"``) there are 78 gradient steps of size 3e-4, and nothing is learnt.
Cost:
    About 0.2 ms for each step of an episode, and memory for the replay and the path.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from tacit.continuous.arguments import real
from tacit.continuous.baseline import transitions
from tacit.continuous.network_policy import (
    NetworkPolicy,
    first_network,
    hidden_layers,
    parameters,
)
from tacit.continuous.spec import BoxSpec
from tacit.continuous.world import BoxWorld, VectorWorld
from tacit.core.permuted import PermutedWorld
from tacit.core.schedule import every_episode
from tacit.core.vector_episodes import VectorEpisodes
from tacit.core.world import ServedPart, World
from tacit.finite.spec import check_bytes
from tacit.privacy.arguments import (
    MOST_USERS,
    flag,
    instance_of,
    one_of,
    positive,
    row_ids,
    whole_number,
)
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument, TacitError
from tacit.privacy.models import NonPrivate
from tacit.privacy.statistic import Block
from tacit.privacy.storage import JSON, read_state, write_state

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WHY = (
    "no guarantee: the algorithm returns its network without noise, and carries it without noise "
    "from step to step; only looks at it are noisy. No sigma makes that private"
)
"""Why there is no guarantee, wherever it is asked for."""


def _part_of_one(name: str, value: Any) -> float:
    number = real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InvalidArgument(f"{name} must be in [0, 1], got {value!r}")
    return number


def _exploration(value: Any) -> tuple[float, float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise InvalidArgument(f"exploration must be three numbers or None, got {value!r}")
    first, last = (_part_of_one("exploration", chance) for chance in value[:2])
    return first, last, positive("steps of exploration", value[2])


@dataclass(frozen=True)
class Settings:
    """What the algorithm leaves open, as the authors' public code has it.

    Attributes:
        hidden: units of the hidden layers.
        discount: of future rewards.
        beta: of the noise's kernel, exp(-beta |x - y|).
        replay: how many transitions are remembered.
        batch: how many of them, drawn without replacement, a gradient step is about.
        every: steps of users between two gradient steps.
        optimiser: ``"rmsprop"`` (PyTorch's, decay .99) or ``"sgd"``.
        rate: learning rate.
        loss: ``"huber"`` or ``"square"``.
        clamp: the largest entry of a gradient, or ``None``.
        exploration: the probability of a uniform action at first, in the end, and the number of
            steps in which what is between them falls by the factor e; or ``None`` for none.
        target_every: episodes between two copies to the network that makes the targets, which has
            paths of its own; or ``None`` if the trained network and its own paths make them.
        worth_nothing: whether the state after the last step of an episode counts as worth nothing.
    """

    hidden: tuple[int, ...] = (16, 16)
    discount: float = 0.999
    beta: float = 1.0
    replay: int = 10_000
    batch: int = 128
    every: int = 1
    optimiser: Literal["rmsprop", "sgd"] = "rmsprop"
    rate: float = 1e-2
    loss: Literal["huber", "square"] = "huber"
    clamp: float | None = 1.0
    exploration: tuple[float, float, float] | None = (0.9, 0.05, 200.0)
    target_every: int | None = 10
    worth_nothing: bool = True

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"hidden": hidden_layers(self.hidden)}
        for name in ("batch", "every", "replay"):
            checked[name] = whole_number(name, getattr(self, name))
        if self.target_every is not None:
            checked["target_every"] = whole_number("target_every", self.target_every)
        if checked["replay"] < checked["batch"]:
            raise InvalidArgument(
                f"replay must be at least batch, {self.batch!r}, got {self.replay!r}"
            )
        one_of("optimiser", self.optimiser, ("rmsprop", "sgd"))
        one_of("loss", self.loss, ("huber", "square"))
        for name in ("beta", "rate", "clamp"):
            if name != "clamp" or self.clamp is not None:
                checked[name] = positive(name, getattr(self, name))
        checked["discount"] = _part_of_one("discount", self.discount)
        if self.exploration is not None:
            checked["exploration"] = _exploration(self.exploration)
        checked["worth_nothing"] = flag("worth_nothing", self.worth_nothing)
        for name, value in checked.items():
            object.__setattr__(self, name, value)


SETTINGS: dict[str, Settings] = {
    "code": Settings(),
    # beta is B / (4 rate (k + 1)) for the paper's k = 2.3.
    "paper": Settings(
        beta=64 / (4 * 3e-4 * 3.3),
        replay=64,
        batch=64,
        every=64,
        optimiser="sgd",
        rate=3e-4,
        loss="square",
        clamp=None,
        exploration=None,
        target_every=None,
        worth_nothing=False,
    ),
}
"""Those of the authors' public code, and those that the paper states."""

_RMSPROP = (0.99, 1e-8)  # PyTorch's decay and floor.
_PATH = 1024  # Points that a path has room for at first.
# What a save changes.
_CHANGED = (
    *("served", "_steps", "_rng", "_noise", "_theta", "_target", "_squares", "_replay", "_paths"),
    *("_policy", "_greedy"),
)
# What a save can raise whose checksum is right, but which no agent wrote.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


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

    def __init__(
        self,
        spec: BoxSpec,
        users: int,
        privacy: NonPrivate | None = None,
        *,
        sigma: float = 0.32,
        resets: int | None = None,
        settings: Literal["code", "paper"] | Settings = "code",
        seed: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        if not isinstance(spec, BoxSpec):
            raise InvalidArgument(f"spec must be a BoxSpec, got {type(spec).__name__}")
        users = whole_number("users", users, most=MOST_USERS)
        if privacy is not None and not isinstance(privacy, NonPrivate):
            raise InvalidArgument(f"privacy must be NonPrivate(), got {privacy!r}: {WHY}")
        self.sigma = real("sigma", sigma)
        if self.sigma < 0.0:
            raise InvalidArgument(f"sigma must be >= 0, got {sigma!r}")
        if resets is not None:
            resets = whole_number("resets", resets, most=users * spec.horizon)
        seed = whole_number("seed", seed, least=0)
        if noise_seed is not None:
            noise_seed = whole_number("noise_seed", noise_seed, least=0)
        instance_of("settings", settings, (str, Settings))
        if isinstance(settings, str):
            if settings not in SETTINGS:
                raise InvalidArgument(
                    f"settings must be one of {list(SETTINGS)} or Settings, got {settings!r}"
                )
            settings = SETTINGS[settings]
        layers = (spec.dimension, *settings.hidden, spec.actions)
        check_bytes("network of settings.hidden", (parameters(layers),))
        check_bytes("units of settings.batch", (sum(layers), settings.batch))
        check_bytes("settings.replay", (settings.replay, spec.dimension))
        check_bytes("paths of the noise", (spec.dimension, _PATH, spec.actions))
        self.spec, self.users, self.privacy = spec, users, NonPrivate()
        self.resets, self.settings = resets, settings
        self.schedule = every_episode(self.users)
        self.served = 0
        self._steps = 0
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 4]))
        self._noise = np.random.default_rng(noise_seed)
        self._sizes = np.array(layers, dtype=np.int64)
        self._theta = first_network(self._rng, self._sizes.tolist())
        self._target = self._theta.copy()
        self._squares = np.zeros_like(self._theta)
        self._gradient = np.zeros_like(self._theta)
        self._replay = _Replay(settings.replay, spec.dimension)
        self._paths = [_new_path(spec.dimension, spec.actions) for _ in range(2)]
        units, batch = int(self._sizes.sum()), settings.batch
        self._work = (np.zeros((units, batch)), np.zeros((units, batch)), np.zeros(spec.actions))
        self._look = (np.zeros((units, 1)), np.zeros(spec.actions))
        self._chosen = np.zeros(batch, dtype=np.int64)
        self._taken = np.zeros(settings.replay, dtype=np.bool_)
        self._publish_next()

    # The billboard.

    @property
    def why(self) -> str:
        """Why there is no guarantee, in words."""
        return WHY

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
        return last + (first - last) * math.exp(-self._steps / steps)

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the network. It is public by nobody's guarantee."""
        self._policy.publish(path)

    def __repr__(self) -> str:
        return f"<PrintedFunctionalQ: sigma {self.sigma:g}, {self.users} users; {WHY}>"

    # Learning.

    def learn(
        self,
        data: VectorEpisodes | Block,
        user_ids: Sequence[int | str] | None = None,
    ) -> None:
        """Takes users whom ``policy`` served and runs the algorithm along their episodes.

        Args:
            data: any number of users; each is a block.
            user_ids: ignored; nothing is promised to anybody.
        """
        instance_of("data", data, (VectorEpisodes, Block))
        block = data.block() if isinstance(data, VectorEpisodes) else data
        if user_ids is not None:
            row_ids(user_ids, block.users)
        if block.aggregate:
            raise InvalidArgument("data must be episodes one by one, not sums")
        if block.users > self.users - self.served:
            raise HorizonExceeded(
                f"this agent was declared for {self.users} users; {self.users - self.served} are "
                f"left, {block.users} came"
            )
        states, actions, rewards, valid, over = transitions(block, self.spec)
        if self.settings.worth_nothing:
            over[:, -1] |= valid[:, -1]
        for user in range(block.users):
            self._begin_episode()
            for step in np.flatnonzero(valid[user]).tolist():
                here, there = states[user, step], states[user, step + 1]
                action, reward = int(actions[user, step]), float(rewards[user, step])
                self._observe(here, action, reward, there, bool(over[user, step]))
            self._end_episode()

    def closed_loop(self, world: World, rng: np.random.Generator) -> Iterator[ServedPart] | None:
        """The algorithm as it is, for simulated users in a box; ``None`` for any other world.

        A part is one user. Her policy changes at every step, so her return stands for its value.

        Args:
            world: the users.
            rng: their randomness.
        """
        inner: object = world
        labels = np.arange(self.spec.actions)
        if isinstance(world, PermutedWorld):
            labels, inner = np.array(world.permutation), world.world
        plain = (
            type(inner).simulate is VectorWorld.simulate if isinstance(inner, BoxWorld) else False
        )
        if not plain or type(self) is not PrintedFunctionalQ:
            return None
        return self._serve(world, cast(BoxWorld, inner), labels, rng)

    def _serve(
        self, world: World, box: BoxWorld, labels: Ints, rng: np.random.Generator
    ) -> Iterator[ServedPart]:
        from tacit.continuous import world_loops

        H, D = self.spec.horizon, self.spec.dimension
        while self.block_users:
            greedy = float(world.value(self._greedy))
            self._begin_episode()
            here, returned = rng.random((1, D)), 0.0
            for step in range(H):
                action = self._act(here[0])
                there = here.copy()
                world_loops.move(there, labels[[action]], rng.random(1))
                reward = float(box.rewards(there)[0])
                over = step == H - 1 and self.settings.worth_nothing
                self._observe(here[0], action, reward, there[0], over)
                here, returned = there, returned + reward
            self._end_episode()
            yield _Served(returned, greedy)

    def _act(self, state: Floats) -> int:
        """Line 12: the best action of Q + g, or any."""
        from tacit.continuous import network

        if self._rng.random() < self.exploration:
            return int(self._rng.integers(self.spec.actions))
        units, noise = self._look
        units[: self.spec.dimension, 0] = state
        network.forward(self._theta, self._sizes, units)
        noise[:] = 0.0
        if self.sigma > 0.0:
            self._make_room(1)
            network.path_at(
                self._noise, self._paths[0], self.settings.beta, self.sigma, state, noise
            )
        return int(np.argmax(units[-self.spec.actions :, 0] + noise))

    def _observe(
        self, state: Floats, action: int, reward: float, next_state: Floats, over: bool
    ) -> None:
        """Lines 13 to 22: remembers a transition and, when it is time, makes a gradient step."""
        from tacit.continuous import network

        settings, replay = self.settings, self._replay
        replay.add(state, action, reward, next_state, over)
        self._steps += 1
        if self._steps % settings.every == 0 and replay.size >= settings.batch:
            own = settings.target_every is None
            self._make_room(2 * settings.batch)
            network.draw_batch(self._rng, replay.size, self._chosen, self._taken)
            network.q_gradient(
                self._noise,
                self._theta,
                self._theta if own else self._target,
                self._sizes,
                replay.arrays,
                self._chosen,
                settings.discount,
                (settings.beta, self.sigma),
                self._paths[0],
                self._paths[0] if own else self._paths[1],
                settings.loss == "huber",
                self._work,
                self._gradient,
            )
            if settings.clamp is not None:
                np.clip(self._gradient, -settings.clamp, settings.clamp, out=self._gradient)
            if settings.optimiser == "sgd":
                network.sgd(self._theta, self._gradient, settings.rate)
            else:
                network.rmsprop(
                    self._theta, self._gradient, self._squares, settings.rate, *_RMSPROP
                )
        if self.resets is not None:
            interval = math.ceil(self.users * self.spec.horizon / self.resets)
            if self._steps % interval == 0:
                self._new_paths()

    def _begin_episode(self) -> None:
        if self.resets is None:
            self._new_paths()

    def _end_episode(self) -> None:
        every = self.settings.target_every
        if every is not None and self.served % every == 0:
            self._target[:] = self._theta
        self.served += 1
        self._publish_next()

    def _publish_next(self) -> None:
        order = tuple(self._rng.permutation(self.spec.actions).tolist())
        sizes, version = self._sizes.tolist(), self.served
        self._policy = NetworkPolicy.of(self._theta, sizes, self.exploration, version, order)
        self._greedy = NetworkPolicy.of(self._theta, sizes, 0.0, version, order)

    def _new_paths(self) -> None:
        """Lines 7 to 9: what is known of the paths is forgotten."""
        for path in self._paths:
            path[3][:] = 0

    def _make_room(self, points: int) -> None:
        """For so many more points on each path."""
        for i, path in enumerate(self._paths):
            known, capacity = int(path[3].max()), path[0].shape[1]
            if known + points > capacity:
                larger = _new_path(self.spec.dimension, self.spec.actions, 2 * (known + points))
                for old, new in zip(path[:3], larger[:3], strict=True):
                    new[:, :capacity] = old
                larger[3][:] = path[3]
                self._paths[i] = larger

    # Save and resume.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, raw transitions included (mode 0600), for going on later."""
        arrays: dict[str, NDArray[Any]] = {
            "theta": self._theta,
            "target": self._target,
            "squares": self._squares,
            "preference": np.array(self._policy.preference, dtype=np.int64),
            "published": self._policy.theta,
        }
        arrays |= {f"replay/{i}": array for i, array in enumerate(self._replay.arrays)}
        for which, parts in enumerate(self._paths):
            arrays |= {f"path/{which}/{i}": array for i, array in enumerate(parts)}
        meta: dict[str, JSON] = {
            "identity": self._identity(),
            "served": self.served,
            "steps": self._steps,
            "remembered": self._replay.added,
            "exploration": self._policy.epsilon,
            "rng": dict(self._rng.bit_generator.state),
            "noise": dict(self._noise.bit_generator.state),
        }
        write_state(path, "printed agent", meta, arrays)

    def load(self, path: str | os.PathLike[str]) -> Self:
        """Resumes a save into this freshly made agent, which must have the same arguments."""
        state = read_state(path, "printed agent")
        before = {name: copy.deepcopy(getattr(self, name)) for name in _CHANGED}
        try:
            self._restore(state.meta, state.arrays)
        except BaseException as error:
            vars(self).update(before)
            if isinstance(error, _MALFORMED) and not isinstance(error, TacitError):
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
        for own, name in (
            *((self._theta, "theta"), (self._target, "target"), (self._squares, "squares")),
            *((array, f"replay/{i}") for i, array in enumerate(self._replay.arrays)),
        ):
            own[:] = _alike(name, arrays[name], own.shape, own.dtype)
        if not ((self._replay.arrays[1] >= 0) & (self._replay.arrays[1] < self.spec.actions)).all():
            raise ValueError("actions that there are not")
        self._paths = [self._saved_path(arrays, which) for which in range(2)]
        self._replay.added = whole_number("remembered", meta["remembered"], least=0)
        self._steps = whole_number("steps", meta["steps"], least=0)
        self.served = whole_number("served", meta["served"], least=0, most=self.users)
        self._rng.bit_generator.state = meta["rng"]
        self._noise.bit_generator.state = meta["noise"]
        order, sizes = tuple(arrays["preference"].tolist()), self._sizes.tolist()
        for name, epsilon in (("_policy", meta["exploration"]), ("_greedy", 0.0)):
            policy = NetworkPolicy.of(arrays["published"], sizes, epsilon, self.served, order)
            setattr(self, name, policy)

    def _saved_path(
        self, arrays: dict[str, NDArray[Any]], which: int
    ) -> tuple[Floats, Ints, Floats, Ints]:
        """A path of a save; compiled code follows its places without a look."""
        saved = [arrays[f"path/{which}/{i}"] for i in range(4)]
        capacity = saved[0].shape[1]
        own = (self.spec.dimension, self.spec.actions)
        for i, empty in enumerate(_new_path(*own, 0)):
            shape = tuple(capacity if size == 0 else size for size in empty.shape)
            saved[i] = _alike("path", saved[i], shape, empty.dtype).copy()
        points, places, values, counts = saved
        if (
            ((places < 0) | (places >= capacity)).any()
            or (counts < 0).any()
            or (counts > capacity).any()
        ):
            raise ValueError("places that there are not")
        return points, places, values, counts

    def _identity(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "spec": repr(self.spec),
            "users": self.users,
            "sigma": self.sigma,
            "resets": self.resets,
            "settings": repr(asdict(self.settings)),
        }


def _alike(
    name: str, array: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"{name} must be {dtype} of shape {shape}")
    return array


class _Replay:
    """The last transitions, raw."""

    def __init__(self, capacity: int, dimension: int) -> None:
        self.added = 0
        self.arrays = (
            np.zeros((capacity, dimension)),
            np.zeros(capacity, dtype=np.int64),
            np.zeros(capacity),
            np.zeros((capacity, dimension)),
            np.zeros(capacity, dtype=np.bool_),
        )

    @property
    def size(self) -> int:
        """How many are remembered."""
        return min(self.added, len(self.arrays[1]))

    def add(self, *transition: Any) -> None:
        """In place of the oldest, if there is no room."""
        for array, value in zip(self.arrays, transition, strict=True):
            array[self.added % len(array)] = value
        self.added += 1


def _new_path(
    dimension: int, actions: int, capacity: int = _PATH
) -> tuple[Floats, Ints, Floats, Ints]:
    """Room for what is known of a path; see :func:`tacit.continuous.network.path_at`."""
    return (
        np.zeros((dimension, capacity)),
        np.zeros((dimension, capacity), dtype=np.int64),
        np.zeros((dimension, capacity, actions)),
        np.zeros(dimension, dtype=np.int64),
    )
