"""Agents meet simulated users: the protocols of both sides, and the loop that runs them.

The loop plays the users. For each block it serves what the agent has published and hands over what
happened; it evaluates the same policies exactly for the :class:`~tacit.simulation.result.Result`,
and nothing of that reaches the agent. Labels of actions are permuted by the seed, so that no agent
gains from a world whose best action happens to be the first one.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tacit.core.episodes import Episodes, Form
from tacit.core.vector_episodes import VectorEpisodes
from tacit.privacy.errors import InvalidArgument, TacitError
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.statistic import Block, StreamedBlock
from tacit.simulation.result import Result

Data: TypeAlias = Episodes | VectorEpisodes | Block
"""What happened to users: one by one, or as the sums of a simulation."""

Progress: TypeAlias = bool | Literal["always"]
"""Whether there is a progress bar: where a terminal is watched (True), nowhere, or always."""

# Independent streams of randomness from one seed.
_LABELS, _WORLD, _NOISE = 1, 2, 3


class World(Protocol):
    """Simulated users with a known optimum."""

    @property
    def name(self) -> str:
        """A text that rebuilds the world, such as "riverswim:states=6,horizon=20"."""
        ...

    @property
    def spec(self) -> Any:
        """What an agent may know: sizes, horizon, bounds."""
        ...

    @property
    def optimal_value(self) -> float:
        """The best that any policy reaches."""
        ...

    @property
    def baseline_value(self) -> float:
        """The value of not having learnt anything."""
        ...

    @property
    def reference_value(self) -> float:
        """The zero point of losses."""
        ...

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """What happens to so many new users who follow the policy.

        Args:
            policy: what they all follow.
            users: how many.
            rng: the randomness of users and world.
            form: ``"episodes"`` for an :class:`~tacit.core.episodes.Episodes` (a
                :class:`~tacit.core.vector_episodes.VectorEpisodes` where states are vectors);
                ``"streamed"`` for a :class:`~tacit.privacy.statistic.StreamedBlock` of the same;
                or one of three aggregate blocks, whose ``transitions`` count users and whose
                ``rewards`` add up what they got: ``"counts"``, (H, S, A, S) and (H, S, A);
                ``"pooled"``, the same summed over steps, with a first axis of 1; ``"occupancy"``,
                (H, S, S) and (H, S), under a policy that must be deterministic and whose
                ``actions``, (H, S), come with them. A world may refuse forms that it has no use
                for.
        """
        ...

    def value(self, policy: Any) -> float:
        """The exact expected return of a user who follows the policy."""
        ...


class Agent(Protocol):
    """What learns from users, private or not."""

    @property
    def spec(self) -> Any:
        """What it knows of the world."""
        ...

    @property
    def users(self) -> int:
        """How many users it is declared for."""
        ...

    @property
    def privacy(self) -> Any:
        """The privacy model it was given."""
        ...

    @property
    def policy(self) -> Any:
        """The policy that serves users now: the billboard."""
        ...

    @property
    def greedy_policy(self) -> Any:
        """The best policy for what is known now, without any bonus for exploring."""
        ...

    @property
    def block_users(self) -> int:
        """How many users the current policy serves until the next release; 0 at the end."""
        ...

    @property
    def form(self) -> Form:
        """Which form of data it wants of the current block."""
        ...

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for its users."""
        ...

    @property
    def releases(self) -> int:
        """How often it has published so far."""
        ...

    def learn(self, data: Data) -> None:
        """Takes the block of users that the current policy served, and publishes the next one."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, secrets included, for going on later."""
        ...

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public policy."""
        ...


class ServedPart(Protocol):
    """Users whom an agent's own loop served in one go, each by a policy of her own."""

    @property
    def users(self) -> int:
        """How many."""
        ...

    def values(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """By user, the exact values of her policy and of the greedy one published beside it."""
        ...


class ClosedLoop(Protocol):
    """What an agent may have besides: a loop of its own for users of whom everything is known.

    Only simulations have such users, and only an agent without privacy may look at them outside of
    its gate. Its loop has to serve and learn as :func:`run` would, with a release per user.
    """

    def closed_loop(self, world: World, rng: np.random.Generator) -> Iterator[ServedPart] | None:
        """Serves and learns from all users that are left, part by part as it is asked for them.

        Returns ``None``, with nothing done, where it is not for this agent or this world.
        """
        ...


@dataclass(frozen=True)
class PermutedWorld:
    """A world whose actions have other labels.

    Attributes:
        world: the world.
        permutation: ``permutation[a]`` is the world's own label of the action that this one
            calls ``a``.
    """

    world: World
    permutation: tuple[int, ...]

    def __post_init__(self) -> None:
        actions = self.world.spec.actions
        if sorted(self.permutation) != list(range(actions)):
            raise InvalidArgument(
                f"permutation is {self.permutation!r}, but must hold each of the {actions} "
                "actions once"
            )

    @classmethod
    def draw(cls, world: World, rng: np.random.Generator) -> PermutedWorld:
        """Labels in random order."""
        return cls(world, tuple(rng.permutation(world.spec.actions).tolist()))

    @property
    def name(self) -> str:
        """The world's name; the labels are not part of it."""
        return self.world.name

    @property
    def spec(self) -> Any:
        """The world's; it says nothing about single actions."""
        return self.world.spec

    @property
    def optimal_value(self) -> float:
        """The world's."""
        return self.world.optimal_value

    @property
    def baseline_value(self) -> float:
        """The world's."""
        return self.world.baseline_value

    @property
    def reference_value(self) -> float:
        """The world's."""
        return self.world.reference_value

    def translate(self, policy: Any) -> Any:
        """A policy in these labels as one in the world's own."""
        return policy.relabelled(self.permutation)

    def value(self, policy: Any) -> float:
        """The value of a policy in these labels."""
        return self.world.value(self.translate(policy))

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """What happens to users, in these labels."""
        data = self.world.simulate(self.translate(policy), users, rng, form)
        if isinstance(data, StreamedBlock):
            parts = data.parts
            return StreamedBlock(data.users, lambda: map(self._rows, parts()))
        if isinstance(data, VectorEpisodes):
            return VectorEpisodes.of_block(self._rows(data.block()), data.user_ids)
        if isinstance(data, Episodes):
            return Episodes.of_block(self._rows(data.block()), data.user_ids)
        if not data.aggregate:
            return self._rows(data)
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in data.arrays.items():
            if name == "actions":
                arrays[name] = self._relabel(array)
            elif form == "occupancy":
                arrays[name] = array
            elif name in _ACTION_AXES:
                arrays[name] = np.take(array, self.permutation, axis=_ACTION_AXES[name])
            else:
                raise InvalidArgument(
                    f"the block has an array {name!r}, but only {list(_ACTION_AXES)} have a known "
                    "axis of actions"
                )
        return Block(data.users, arrays, data.aggregate)

    def _rows(self, block: Block) -> Block:
        """Users one by one, in these labels."""
        relabelled = {"actions": self._relabel(block["actions"])}
        return Block(block.users, dict(block.arrays) | relabelled)

    def _relabel(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The world's labels as these; what is no action stays as it is."""
        inverse = np.argsort(self.permutation)
        valid = (actions >= 0) & (actions < len(inverse))
        return np.where(valid, inverse[np.where(valid, actions, 0)], actions)


# Arrays of aggregate blocks: (.., S, A, S) and (.., S, A).
_ACTION_AXES = {"transitions": -2, "rewards": -1}


def run(agent: Agent, world: World, seed: int = 0, progress: Progress = True) -> Result:
    """Lets an agent serve and learn from all users it is declared for.

    An agent that has learnt from users before goes on where it is; the result is about the users
    it serves here. An agent with a :class:`ClosedLoop` uses it where it can.

    Args:
        agent: any agent for this world's spec.
        world: the simulated users.
        seed: of the users and of the labels of the actions. The agent has seeds of its own.
        progress: whether to show a progress bar, on standard error.

    Raises:
        InvalidArgument: The agent is for another world, or has served its users already. Nothing
            was changed.
    """
    _require("agent", agent, "an agent", ("spec", "policy", "block_users", "learn"))
    _require("world", world, "a world", ("spec", "simulate", "value"))
    _check_match(agent, world)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InvalidArgument(f"seed is {seed!r}, but must be an integer of at least 0")
    if agent.block_users < 1:
        raise InvalidArgument(
            f"agent has served all {agent.users} users it was declared for; make a new one"
        )
    clock = _Clock()
    labels = np.random.default_rng(np.random.SeedSequence([_LABELS, seed]))
    rng = np.random.default_rng(np.random.SeedSequence([_WORLD, seed]))
    users_world = PermutedWorld.draw(world, labels) if _exchangeable(world) else world
    value = _Values(users_world)
    served, values, greedy_values = [0], [], []
    with progress_bar(f"{_name(agent)} on {world.name}", agent.users, progress) as advance:
        parts = _closed_loop(agent, users_world, rng)
        while parts is not None:
            with clock("simulate and learn"):
                part = next(parts, None)
            if part is None:
                break
            with clock("evaluate"):
                of_policies, of_greedy = part.values()
            values.extend(of_policies.tolist())
            greedy_values.extend(of_greedy.tolist())
            served.extend(range(served[-1] + 1, served[-1] + part.users + 1))
            advance(part.users)
        while (block := agent.block_users) > 0:
            with clock("evaluate"):
                values.append(value(agent.policy))
                greedy_values.append(value(agent.greedy_policy))
            with clock("simulate"):
                data = users_world.simulate(agent.policy, block, rng, agent.form)
            with clock("learn"):
                agent.learn(data)
            served.append(served[-1] + block)
            advance(block)
    with clock("evaluate"):
        values.append(value(agent.policy))
        greedy_values.append(value(agent.greedy_policy))
    return Result(
        agent=_name(agent),
        world=world.name,
        privacy=repr(agent.privacy),
        seed=seed,
        served=served,
        values=values,
        greedy_values=greedy_values,
        optimal_value=world.optimal_value,
        baseline_value=world.baseline_value,
        reference_value=world.reference_value,
        guarantee=agent.guarantee,
        seconds=clock.seconds(),
    )


def _closed_loop(
    agent: Agent, world: World, rng: np.random.Generator
) -> Iterator[ServedPart] | None:
    """The parts that the agent's own loop serves, where it has one for this world."""
    if not hasattr(agent, "closed_loop"):
        return None
    return cast(ClosedLoop, agent).closed_loop(world, rng)


AgentMaker: TypeAlias = Callable[[Any, int], Agent] | Mapping[str, Any]
"""``make(spec, seed)``, or a description: the name of a class or function and its options."""

WorldMaker: TypeAlias = World | Callable[[int], World] | Mapping[str, Any]
"""A world, ``make(seed)``, or a description."""


# More runs than this are a slip.
_MOST_RUNS = 10**6


class SeedFailed(TacitError):
    """One of several runs failed.

    Attributes:
        seed: which one.
    """

    def __init__(self, seed: int, reason: str) -> None:
        super().__init__(seed, reason)  # both, so that it can be pickled
        self.seed = seed
        self.reason = reason

    def __str__(self) -> str:
        return f"the run with seed {self.seed} failed: {self.reason}"


def noise_seed(seed: int) -> int:
    """A seed for an agent's privacy noise in a simulation, independent of the run's own.

    >>> noise_seed(0) == noise_seed(0) != noise_seed(1)
    True
    """
    state = np.random.SeedSequence([_NOISE, seed]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def run_seeds(
    make_agent: AgentMaker,
    make_world: WorldMaker,
    seeds: Sequence[int],
    workers: int = 2,
    progress: Progress = True,
) -> list[Result]:
    """Runs one agent per seed, several at a time, each in a process of its own.

    The results do not depend on the number of workers. With more than one, scripts need the usual
    ``if __name__ == "__main__":`` around their own code, and what makes agents and worlds is a
    function or class of a module (or a ``functools.partial`` of one), not a lambda.

    A description is a dictionary whose ``"make"`` is "module:name" and whose other entries are
    arguments. An agent's is called with the spec, ``seed`` and ``noise_seed`` as well.

    Args:
        make_agent: ``make_agent(spec, seed)``, or a description such as
            ``{"make": "tacit:UCBVI", "users": 10_000, "privacy": tacit.NonPrivate()}``.
        make_world: a world, ``make_world(seed)``, or a description.
        seeds: one run each.
        workers: processes; 1 runs them in this one, one after another.
        progress: whether to show a progress bar, on standard error.

    Returns:
        One result per seed, in the order of the seeds.

    Raises:
        SeedFailed: A run failed; the message says which seed and why. No further runs are started.
    """
    if not (callable(make_agent) or isinstance(make_agent, Mapping)):
        raise InvalidArgument(f"make_agent must be a function or a description, got {make_agent!r}")
    worlds = callable(make_world) or isinstance(make_world, Mapping)
    if not (worlds or hasattr(make_world, "simulate")):
        raise InvalidArgument(
            f"make_world must be a world, a function or a description, got {make_world!r}"
        )
    seeds = seed_list(seeds)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidArgument(f"workers is {workers!r}, but must be an integer of at least 1")
    with progress_bar("seeds", len(seeds), progress) as advance:
        if workers == 1 or len(seeds) < 2:
            results = []
            for seed in seeds:
                results.append(_run_seed(make_agent, make_world, seed))
                advance(1)
            return results
        return _run_parallel(make_agent, make_world, seeds, min(workers, len(seeds)), advance)


def _run_parallel(
    make_agent: AgentMaker,
    make_world: WorldMaker,
    seeds: Sequence[int],
    workers: int,
    advance: Callable[[int], None],
) -> list[Result]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    try:
        recipe = pickle.dumps((make_agent, make_world))
    except Exception as error:
        raise InvalidArgument(
            "make_agent and make_world must be importable from a module to run in other "
            f"processes; use workers=1, or functions that are not local: {error}"
        ) from error
    # Spawned, not forked: a fork copies locks that other threads may hold, and cannot do it safely.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_remember, initargs=(recipe,)
    ) as pool:
        futures = {pool.submit(_run_remembered, seed): i for i, seed in enumerate(seeds)}
        results: dict[int, Result] = {}
        for future in as_completed(futures):
            place = futures[future]
            try:
                results[place] = future.result()
            except BrokenProcessPool as error:
                raise SeedFailed(
                    seeds[place], "its process died (out of memory, or stopped from outside)"
                ) from error
            except SeedFailed:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
            advance(1)
    return [results[place] for place in range(len(seeds))]


_recipe: tuple[AgentMaker, WorldMaker] | None = None


def _remember(recipe: bytes) -> None:
    """Once per process: worlds may be large."""
    global _recipe
    _recipe = pickle.loads(recipe)  # noqa: S301  # made by the parent process a moment ago


def _run_remembered(seed: int) -> Result:
    if _recipe is None:
        raise InvalidArgument("this process was not prepared")
    return _run_seed(*_recipe, seed)


def _run_seed(make_agent: AgentMaker, make_world: WorldMaker, seed: int) -> Result:
    try:
        world = _build_world(make_world, seed)
    except Exception as error:
        raise SeedFailed(seed, f"make_world: {type(error).__name__}: {error}") from error
    try:
        return run(_build_agent(make_agent, world.spec, seed), world, seed, progress=False)
    except Exception as error:
        raise SeedFailed(seed, f"{type(error).__name__}: {error}") from error


def _build_agent(make_agent: AgentMaker, spec: Any, seed: int) -> Agent:
    if isinstance(make_agent, Mapping):
        make, options = _described(make_agent)
        made: Agent = make(spec, **{"seed": seed, "noise_seed": noise_seed(seed)} | options)
        return made
    return make_agent(spec, seed)


def _build_world(make_world: WorldMaker, seed: int) -> World:
    if isinstance(make_world, Mapping):
        make, options = _described(make_world)
        made: World = make(**options)
        return made
    # A world may be callable too; what simulates users is a world.
    if hasattr(make_world, "simulate"):
        return cast(World, make_world)
    built = make_world(seed)
    _require("make_world(seed)", built, "a world", ("simulate", "spec"))
    return built


def _described(description: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    options = dict(description)
    name = options.pop("make", None)
    module, colon, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not colon:
        raise InvalidArgument(f"make is {name!r}, but must be 'module:name', as in 'tacit:UCBVI'")
    try:
        return getattr(importlib.import_module(module), attribute), options
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"make is {name!r}, which cannot be imported: {error}") from error


def seed_list(seeds: Iterable[int]) -> list[int]:
    """Seeds as a list; they are a list, not a number of runs."""
    single = isinstance(seeds, np.ndarray) and seeds.ndim == 0
    if not isinstance(seeds, Iterable) or isinstance(seeds, (str, bytes)) or single:
        raise InvalidArgument(f"seeds must be a list of integers, got {seeds!r}")
    found = list(itertools.islice(seeds, _MOST_RUNS + 1))
    if len(found) > _MOST_RUNS:
        raise InvalidArgument(f"seeds must be at most {_MOST_RUNS:,}, got more")
    for seed in found:
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise InvalidArgument(f"seeds holds {seed!r}, but must hold integers of at least 0")
    return found


def _require(name: str, value: object, what: str, needed: Sequence[str]) -> None:
    """Refuses what lacks what is needed."""
    if isinstance(value, type) or not all(hasattr(value, key) for key in needed):
        raise InvalidArgument(f"{name} must be {what}, got {value!r}")


def _check_match(agent: Agent, world: World) -> None:
    """Refuses an agent for another world: specs must agree in whatever both of them state."""
    mine, theirs = agent.spec, world.spec
    if mine is theirs:
        return
    if not is_dataclass(mine) or not isinstance(theirs, type(mine)):
        if mine != theirs:
            raise InvalidArgument(f"agent is for {mine!r}, but the world has {theirs!r}")
        return
    for field in fields(mine):
        known, true = getattr(mine, field.name), getattr(theirs, field.name)
        # An agent may know less: an unknown is None, and what is stationary is also step-dependent.
        if known is None or (field.name.startswith("stationary") and not known):
            continue
        if not np.array_equal(known, true):
            raise InvalidArgument(
                f"agent is for a world with {field.name} = {known!r}, but {world.name} has {true!r}"
            )


def _exchangeable(world: World) -> bool:
    """Whether the spec says nothing about single actions, so that their labels mean nothing."""
    actions = getattr(world.spec, "actions", None)
    return isinstance(actions, int) and getattr(world, "exchangeable_actions", True)


def _name(agent: Agent) -> str:
    return str(getattr(agent, "name", type(agent).__name__))


class _Values:
    """Exact values of policies. Late releases often repeat a policy, so values are kept."""

    _LIMIT = 100_000

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[bytes, float] = {}

    def __call__(self, policy: Any) -> float:
        key = _fingerprint(policy)
        if key is None:
            return float(self._world.value(policy))
        value = self._known.get(key)
        if value is None:
            if len(self._known) >= self._LIMIT:
                self._known.clear()
            value = self._known[key] = float(self._world.value(policy))
        return value


def _fingerprint(policy: Any) -> bytes | None:
    """What a policy does, whatever its version; ``None`` for policies that are not tables."""
    for kind in (b"actions", b"probabilities"):
        table = getattr(policy, kind.decode(), None)
        if isinstance(table, np.ndarray):
            digest = hashlib.blake2b(kind + repr(table.shape).encode(), digest_size=16)
            digest.update(np.ascontiguousarray(table).data)
            return digest.digest()
    return None


class _Clock:
    """Where the time of a run goes."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._spent: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._spent[what] = self._spent.get(what, 0.0) + time.perf_counter() - start

    def seconds(self) -> dict[str, float]:
        """By what was done, and in total."""
        return {"total": time.perf_counter() - self._start} | self._spent


@contextlib.contextmanager
def progress_bar(title: str, total: int, progress: Progress) -> Iterator[Callable[[int], None]]:
    """A progress bar where somebody is watching; yields what moves it on."""
    if not isinstance(progress, (bool, str)) or progress not in (True, False, "always"):
        raise InvalidArgument(f"progress is {progress!r}, but must be True, False or 'always'")
    if progress is False or not (progress == "always" or sys.stderr.isatty()):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    console = Console(stderr=True, force_terminal=True if progress == "always" else None)
    with Bar(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)

        def advance(units: int) -> None:
            bar.advance(task, units)

        yield advance
