"""Agents meet simulated users: the loop that runs them.

The loop plays the users. For each block it serves what the agent has published and hands over what
happened; it evaluates the same policies exactly for the :class:`~tacit.simulation.result.Result`,
and nothing of that reaches the agent. Labels of actions are permuted by the seed, so that no agent
gains from a world whose best action happens to be the first one.

While it goes on, a run tells public facts of each release, to a callback and to the logger
``tacit``, a line per release at the level INFO. Nothing of any user is among them.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tacit.core.algorithm import Algorithm
from tacit.core.stored_run import warn_of_budget
from tacit.core.world import Data, Form, PolicyMixture, SamePeople, World, simulate
from tacit.data.episodes import Episodes, VectorEpisodes
from tacit.privacy.errors import InvalidArgument, TacitWarning
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block, StreamedBlock
from tacit.privacy.validation import flag, seed_of, whole_number
from tacit.simulation.identity import identity
from tacit.simulation.result import WORLD_VALUES, Digests, Result
from tacit.simulation.verdict import complaints, noise_alone, stronger, users_needed

LOGGER = logging.getLogger("tacit")
LOGGER.addHandler(logging.NullHandler())

# Independent streams of randomness from one seed.
_LABELS, _WORLD, _NOISE, _CONTROL = 1, 2, 3, 4
# Users where nobody says how many; of worlds that are stepped one by one, so many steps.
_USERS = 10**6
_LOOKS = 8  # at values, at least, of worlds where they are estimates
HEARTBEAT = 30.0  # seconds between lines on standard error, where no bar is shown
# Arrays of aggregate blocks: (.., S, A, S) and (.., S, A).
_ACTION_AXES = {"transitions": -2, "rewards": -1}


@dataclass(frozen=True)
class Event:
    """A release of a run."""

    agent: str  # its name
    world: str  # its name
    seed: int  # of the run
    release: int  # 0 is there before the first user
    users: int  # served before it
    policy: Any = field(repr=False)  # serves users from now on
    greedy_policy: Any = field(repr=False)  # published beside it
    value: float  # of the policy, in the simulated world
    greedy_value: float  # of the greedy one


Callback: TypeAlias = Callable[[Event], object]
"""Is called at every release, in the process of the run; what it raises ends the run."""
_silent: Callback = id  # of a second run, of which the log says nothing


def run(
    agent: Any,
    world: World | str,
    seed: int | None = 0,
    progress: bool = True,
    *,
    users: int | None = None,
    privacy: Privacy | None = None,
    callback: Callback | None = None,
    control: bool | None = None,
) -> Result:
    """Lets an agent serve and learn from all users it is declared for.

    An agent that has learnt before goes on; the result is about the users it serves here. One for
    another world, or that has served all its users, is refused unchanged. Where a world has a
    ``cohort``, the same people come to every block, and users are whole histories: of 80 people, 20
    are served at a quarter of them.

    Args:
        agent: any agent for this world's spec; or a text, as ``"ucbvi:scale=0.5"`` or ``"auto"``,
            of which an agent is made with this seed: the same as by ``tacit run --seed``.
        world: the simulated users; or a text, or an environment of Gymnasium.
        seed: of the users and of the labels of the actions; ``None`` draws one. An agent has seeds
            of its own.
        progress: whether to show a progress bar, on standard error.
        users: how many, for an agent of a text; by default 1,000,000, or as many as take so many
            steps in a world that is stepped one by one.
        privacy: the budget, for an agent of a text.
        callback: is given the :class:`~tacit.simulation.run.Event` of every release.
        control: whether a private agent of ours has a control beside it that learns from noise
            alone, see :mod:`tacit.simulation.verdict`; by default for an agent of a text.

    >>> from tacit import NonPrivate
    >>> result = run("auto", "gym:CliffWalking-v1", users=500, privacy=NonPrivate(), progress=False)
    >>> round(result.optimal_value, 6), result.agent
    (-13.0, 'ucbvi')
    """
    seed, world, make = seed_of(seed), _the_world(world), None
    control = isinstance(agent, str) if control is None else bool(control)
    if isinstance(agent, str):
        agent, make = _made(agent, world, seed, users, privacy)
    elif users is not None or privacy is not None:
        raise InvalidArgument("users and privacy are for an agent of a text; this one has its own")
    _check(agent, world)
    if hasattr(agent.privacy, "private"):
        warn_of_budget(agent.privacy, agent.users)
    begun, name = time.perf_counter(), str(getattr(agent, "name", type(agent).__name__))
    known_as = partial(identity, world, agent, make)
    kinds = type(world), type(getattr(agent, "algorithm", agent))
    plain = all(kind.__module__.startswith("tacit.") for kind in kinds)
    # Code of yours may change meanwhile, and so may what it holds.
    told = Digests(known_as) if plain and getattr(world, "exact", True) else known_as()
    labels = np.random.default_rng(np.random.SeedSequence([_LABELS, seed]))
    rng = np.random.default_rng(np.random.SeedSequence([_WORLD, seed]))
    # A spec that says something about single actions, or a policy that is given, names them.
    options = getattr(getattr(agent, "algorithm", agent), "options", None)
    arms = getattr(getattr(getattr(agent, "algorithm", None), "problem", None), "arms", None)
    given = getattr(options, "today", None) if arms is None else arms.baseline
    free = given is None and getattr(world, "exchangeable_actions", True)
    permuted = free and isinstance(getattr(world.spec, "actions", None), int)
    users_world = PermutedWorld.draw(world, labels) if permuted else None
    # In a trial the same people are moved on from look to look.
    cohort: SamePeople | None = world.cohort(rng) if hasattr(world, "cohort") else None
    looks, apart = [0.0], 0.0
    if getattr(world, "evaluation_budgeted", False):
        # Estimates of values take no more episodes than learning, or few: in between, the last.
        each = 2 * getattr(world, "evaluation_users")  # noqa: B009
        apart = agent.users ** (1.0 / max(_LOOKS, agent.users // each))
    known: dict[bytes | None, float] = {}  # late releases often repeat a policy
    served, values, greedy_values = [0], list[float](), list[float]()
    spent = dict.fromkeys(("evaluate", "simulate", "learn", "control"), 0.0)

    def valued(*policies: Any) -> tuple[list[float], list[Any]]:
        """Values of policies, and these in the world's labels."""
        keys, found = [_fingerprint(each) for each in policies], list[float]()
        own = [*policies] if users_world is None else users_world.translated(*policies)
        for key, each in zip(keys, own, strict=True):
            if key is None or key not in known:
                parts = each.components if isinstance(each, PolicyMixture) else (each,)
                own_values = [float(world.value(part)) for part in parts]
                known[key] = own_values[0] if len(parts) == 1 else float(each.weights @ own_values)
            found.append(known[key])
        return found, own

    def published(policy: Any, greedy: Any, last: bool) -> list[Any]:
        """The policy that serves users now and the greedy one, in the world's labels."""
        if last or served[-1] >= looks[-1]:
            looks.append(max(served[-1], 1) * apart)
            both, own = valued(policy, greedy)
        else:
            both = [values[-1], greedy_values[-1]]
            own = [policy] if users_world is None else users_world.translated(policy)
        for kept, one in zip((values, greedy_values), both, strict=True):
            kept.append(one)
        facts = name, world.name, seed, len(values) - 1, served[-1]
        words = "%s on %s, seed %d: release %d after %d users, value %.4g, greedy %.4g"
        if callback is not _silent:
            LOGGER.info(words, *facts, *both)
        if callback is not None:
            callback(Event(*facts, policy, greedy, *both))
        return own

    algorithm: Any = getattr(agent, "algorithm", None)
    # One that goes on with what others learnt has none.
    asked = control and agent.privacy.private and isinstance(algorithm, Algorithm)
    beside = dict[str, float]()
    if asked and not agent.progress.all_served:
        own_seed = noise_seed(seed, _CONTROL)
        beside = noise_alone(algorithm, own_seed, lambda policy: valued(policy)[0][0])
        spent["control"] = time.perf_counter() - begun
    with progress_bar(f"{name} on {world.name}", agent.users, progress) as advance:
        while (block := agent.block_users) > 0:
            times = [time.perf_counter()]
            policies, form = (agent.policy, agent.greedy_policy), agent.data_format
            policy = published(*policies, served[-1] + block >= agent.users)[0]
            times.append(time.perf_counter())
            of, asked = cohort or world, (policy, block, rng, form)
            arms = isinstance(policy, PolicyMixture)
            data = simulate(of, *asked) if arms else of.simulate(*asked)
            data = data if users_world is None else users_world.relabelled(data)
            times.append(time.perf_counter())
            agent.learn(data)
            times.append(time.perf_counter())
            for what, seconds in zip(spent, np.diff(times).tolist(), strict=False):
                spent[what] += seconds
            served.append(served[-1] + block if cohort is None else cohort.served)
            if cohort is not None:  # also what each got for her own history
                values[-1] = cohort.served_value
            advance(block)
    last = published(agent.policy, agent.greedy_policy, True)[1]
    result = Result(
        agent=name,
        world=world.name,
        privacy=repr(agent.privacy),
        seed=seed,
        served=np.array(served),
        values=np.array(values),
        greedy_values=np.array(greedy_values),
        **{name: getattr(world, name) for name in WORLD_VALUES},
        guarantee=agent.guarantee,
        seconds={"total": time.perf_counter() - begun} | spent,
        identity=told,
        control=beside,
        policy=last,
    )
    if beside and complaints([result]):
        second, factor = stronger(algorithm, noise_seed(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TacitWarning)
            other = run(second, world, seed, progress, callback=_silent)
        result = replace(result, control=beside | users_needed(result, other, factor))
    return result


def noise_seed(seed: int, stream: int = _NOISE) -> int:
    """A seed for an agent's privacy noise in a simulation, independent of the run's own.

    >>> noise_seed(0) == noise_seed(0) != noise_seed(1)
    True
    """
    state = np.random.SeedSequence([stream, seed]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def usual_users(world: World) -> int:
    """Default number of users: a million; where they are stepped one by one, a million steps.

    An episode counts as the geometric mean of the horizon and of what it has at random.
    """
    if getattr(world, "exact", True):
        return _USERS
    return max(1, int(_USERS / math.sqrt(getattr(world, "random_steps") * world.spec.horizon)))  # noqa: B009


def check_optimum(world: World) -> None:
    """Refuses an optimum that is known to be wrong: below the value of not having learnt."""
    best, baseline = world.optimal_value, world.baseline_value
    if best < baseline - 1e-9 * max(1.0, abs(baseline)):
        raise InvalidArgument(
            f"world {world.name} has an optimal_value of {best:g}, but acting at random has "
            f"{baseline:g} already: give the right one, or none"
        )


def _the_world(what: Any) -> World:
    from tacit.registry import world

    if isinstance(what, str) or hasattr(what, "unwrapped"):
        return world(what)
    require("world", what, "a world", "spec", "simulate", "value")
    found: World = what
    return found


def _check(agent: Any, world: World) -> None:
    require("agent", agent, "an agent", "spec", "policy", "block_users", "learn")
    _check_match(agent, world)
    if agent.block_users < 1:
        raise InvalidArgument(
            f"agent has served all {agent.users} users it was declared for; make a new one"
        )
    check_optimum(world)


def _made(text: str, world: World, seed: int, users: int | None, privacy: Privacy | None) -> Any:
    """The agent of a text, as the command line makes it, and its constructor."""
    from tacit.registry import choose_agent

    if privacy is None:
        raise InvalidArgument("privacy must be given for an agent of a text, as JointDP(1.0, 1e-6)")
    declared = usual_users(world) if users is None else whole_number("users", users)
    choice = choose_agent(text)
    if choice.budget:
        raise InvalidArgument(f"{text!r} has a budget, and so has privacy={privacy!r}")
    choice = choice.settled(world.spec, privacy, declared)
    return choice.build(world.spec, declared, privacy, seed), choice.make


def require(name: str, value: object, what: str, *needed: str) -> None:
    """Refuses a value that lacks an attribute that is needed."""
    if isinstance(value, type) or not all(hasattr(value, key) for key in needed):
        raise InvalidArgument(f"{name} must be {what}, got {value!r}")


def _check_match(agent: Any, world: World) -> None:
    """Refuses an agent for another world: specs must agree in whatever both of them state."""
    mine, theirs = agent.spec, world.spec
    if mine is theirs:
        return
    if not is_dataclass(mine) or not isinstance(theirs, type(mine)):
        if mine != theirs:
            raise InvalidArgument(f"agent is for {mine!r}, but the world has {theirs!r}")
        return
    for name in (one.name for one in fields(mine)):
        known, true = getattr(mine, name), getattr(theirs, name)
        # An agent may know less: an unknown is None, and what is stationary is also step-dependent.
        flags = name.startswith("stationary") or name == "last_state"
        if known is None or (flags and not known):
            continue
        # NumPy compares no lists of different lengths.
        differ = known != true if isinstance(known, tuple) else not np.array_equal(known, true)
        if differ:
            raise InvalidArgument(
                f"agent is for a world with {name} = {known!r}, but {world.name} has {true!r}"
            )


def _fingerprint(policy: Any) -> bytes | None:
    """Hash of a policy's tables, whatever its version; ``None`` for policies that have none."""
    digest, known = hashlib.blake2b(digest_size=16), False
    for kind in ("tables", "weights", "actions", "probabilities"):
        table = getattr(policy, kind, None)
        if isinstance(table, np.ndarray):
            known = known or kind != "weights"
            digest.update(f"{kind} {table.dtype} {table.shape}".encode())
            digest.update(np.ascontiguousarray(table).data)
    return digest.digest() if known else None


class PermutedWorld:
    """A world whose actions have other labels: what this one calls ``a``, it ``permutation[a]``."""

    def __init__(self, world: World, permutation: tuple[int, ...]) -> None:
        self.world, self.permutation = world, permutation

    @classmethod
    def draw(cls, world: World, rng: np.random.Generator) -> PermutedWorld:
        """Labels in random order."""
        return cls(world, tuple(rng.permutation(world.spec.actions).tolist()))

    def __getattr__(self, name: str) -> Any:
        if name not in ("name", "spec", *WORLD_VALUES):
            raise AttributeError(f"a world with other labels has no attribute {name!r}")
        return getattr(self.world, name)

    def translated(self, *policies: Any) -> list[Any]:
        """Policies in these labels as ones in the world's own."""
        return [policy.relabelled(self.permutation) for policy in policies]

    def value(self, policy: Any) -> float:
        """The value of a policy in these labels."""
        return self.world.value(self.translated(policy)[0])

    def simulate(self, policy: Any, users: int, rng: np.random.Generator, form: Form) -> Data:
        """Simulates users, in these labels. Args: see World.simulate."""
        return self.relabelled(self.world.simulate(self.translated(policy)[0], users, rng, form))

    def relabelled(self, data: Data) -> Data:
        """The world's users, in these labels."""
        if isinstance(data, StreamedBlock):
            parts = data.parts
            return StreamedBlock(data.users, lambda: map(self._rows, parts()))
        if isinstance(data, (Episodes, VectorEpisodes)):
            return data.with_actions(self._relabel(data.actions))
        if not data.aggregate:
            return self._rows(data)
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in data.arrays.items():
            arrays[name] = np.take(array, self.permutation, axis=_ACTION_AXES[name])
        return Block(data.users, arrays, data.aggregate)

    def _rows(self, block: Block) -> Block:
        """Users one by one, in these labels."""
        relabelled = {"actions": self._relabel(block["actions"])}
        return Block(block.users, dict(block.arrays) | relabelled)

    def _relabel(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The world's labels as these; what is no action stays as it is."""
        inverse = np.argsort(self.permutation)
        if actions.size and actions.min() >= 0 and actions.max() < len(inverse):
            return np.take(inverse, actions)
        valid = (actions >= 0) & (actions < len(inverse))
        return np.where(valid, inverse[np.where(valid, actions, 0)], actions)


@contextlib.contextmanager
def progress_bar(title: str, total: int, progress: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, or lines now and then where that is no terminal.

    Yields a function that moves it on.
    """
    if not flag("progress", progress):
        yield lambda _: None
        return
    if not sys.stderr.isatty():
        done, over, begun = [0], threading.Event(), time.monotonic()

        def beat() -> None:
            while not over.wait(HEARTBEAT):
                share, spent = sum(done) / max(1, total), time.monotonic() - begun
                left = f", about {spent / share - spent:.0f} s left" if 0.0 < share < 1.0 else ""
                print(f"tacit: {title}: {share:.0%} after {spent:.0f} s{left}", file=sys.stderr)  # noqa: T201

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield done.append
        finally:
            over.set()
        return
    from rich import progress as parts
    from rich.console import Console

    shown = parts.TextColumn("{task.description}"), parts.BarColumn(), parts.TaskProgressColumn()
    times = parts.TimeElapsedColumn(), parts.TextColumn("left"), parts.TimeRemainingColumn()
    with parts.Progress(*shown, *times, console=Console(stderr=True), transient=True) as bar:
        yield partial(bar.advance, bar.add_task(title, total=total))
