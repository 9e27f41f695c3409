"""How many users a budget needs, before any real user is touched.

If the world is not known, take a random one of its sizes, as
``random_mdp:states=10,actions=4,horizon=14,seed=0``; one in which reward is hard to find takes more
users.

What is declared for more users has more releases and a little more noise, and "90 % for good" means
little at the end of a run. So, unless a number of users is given, it is multiplied by ten until the
runs are ten times as long as the median run took.

Beside it stands how few users could suffice: :mod:`tacit.simulation.limits`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tacit.core.world import AnyAgent, World
from tacit.privacy.arguments import instance_of, whole_number
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import NonPrivate, Privacy, PrivacyModel
from tacit.privacy.sizing import release_noise
from tacit.registry import AgentChoice, build_world
from tacit.simulation.limits import fewest_users
from tacit.simulation.progress import Progress
from tacit.simulation.result import Result, median
from tacit.simulation.run import require, run
from tacit.simulation.seeds import WorldMaker, run_seeds, seed_list
from tacit.simulation.tables import privacy_dict

FIRST_USERS = 10**4
"""The smallest number of users that is tried."""

BATCH_USERS = (10, 20, 50)
"""The first sizes of a batch that are tried; then ten times these, and so on."""

MOST_USERS = 10**10
"""The largest number of users that is tried, unless told otherwise."""


@dataclass(frozen=True)
class Plan:
    """What to expect."""

    world: str
    agent: str
    privacy: Privacy
    users: int  # how many users the simulated agents were declared for
    results: tuple[Result, ...]  # one per seed
    baseline: tuple[Result, ...]  # the same without privacy, one per seed
    noise_std: float | None  # of one sum in a single release; ``None`` if the agent does not say
    why: str  # what the agent chose, in its own words
    seconds: float
    # whether the agent learns from one batch of users, whom a fixed behaviour serves. Then the
    # users needed are those of the smallest batch tried whose policy is good
    batch: bool = False
    given: bool = False  # whether that many users were asked about
    chosen: str = ""  # why it is this agent, where none was named

    @property
    def users_to_90(self) -> float | None:
        """Median of the users until those who are served have 90 %; ``None`` if not reached."""
        return _needed(self.results, self.batch)

    @property
    def greedy_users_to_90(self) -> float | None:
        """Median of the users until the greedy policy has 90 %."""
        return median(result.greedy_users_to_90 for result in self.results)

    @property
    def spread(self) -> tuple[int | None, int | None]:
        """The fewest and the most users that a run took; ``None`` is more than there were."""
        needed = [r.greedy_users_to_90 if self.batch else r.users_to_90 for r in self.results]
        reached = [users for users in needed if users is not None]
        return min(reached, default=None), None if None in needed else max(reached)

    @property
    def settled(self) -> bool:
        """Whether the runs were ten times as long as the median took."""
        return _settled(self.results, self.users, self.batch)

    @property
    def price(self) -> float | None:
        """How many times the users of an agent without privacy are needed."""
        private = self.users_to_90
        plain = _needed(self.baseline, self.batch)
        # An agent that is good from the start has nothing to pay.
        return None if private is None or not plain else private / plain

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values."""
        guarantee = self.results[0].guarantee
        return {
            "world": self.world,
            "agent": self.agent,
            "chosen": self.chosen or None,
            "privacy": privacy_dict(self.privacy),
            "users": self.users,
            "guarantee": None if guarantee is None else guarantee.to_dict(),
            "releases": self.results[0].releases,
            "noise_std": self.noise_std,
            "users_to_90_median": self.users_to_90,
            "users_to_90_range": list(self.spread),
            "greedy_users_to_90_median": self.greedy_users_to_90,
            "settled": self.settled,
            "non_private_users_to_90_median": _needed(self.baseline, self.batch),
            "batch": self.batch,
            "score_median": median(r.score for r in self.results),
            "greedy_score_median": median(r.greedy_score for r in self.results),
            "price": self.price,
            "least_users": fewest_users(self.privacy),
            "runs": len(self.results),
            "why": self.why,
            "seconds": self.seconds,
        }


def plan(
    world: World | str,
    agent: AgentChoice,
    privacy: Privacy,
    users: int | None = None,
    *,
    seeds: Sequence[int] = range(5),
    workers: int = 1,
    most: int = MOST_USERS,
    progress: Progress = True,
) -> Plan:
    """Simulates what an agent will need.

    Without ``users``, as many as it takes are tried, up to ``most``. An agent that was not named is
    chosen for every number that is tried, and without privacy on its own. A world of a text is made
    anew in every process.
    """
    instance_of("agent", agent, AgentChoice)
    instance_of("privacy", privacy, PrivacyModel)
    users = None if users is None else whole_number("users", users)
    workers, most = whole_number("workers", workers), whole_number("most", most)
    seeds = seed_list(seeds)
    if not seeds:
        raise InvalidArgument("seeds must not be empty")
    start = time.perf_counter()
    first, maker = _made(world, workers)

    def simulate(model: Privacy, declared: int) -> _Tried:
        choice = agent.settled(first.spec, declared, model)
        made = choice.build(first.spec, declared, model, seeds[0])
        said = _noise(made), str(getattr(made, "why", ""))
        alone = run(made, first, seeds[0], progress)
        make = partial(_agent, choice, declared, model)
        others = run_seeds(make, maker, seeds[1:], workers=workers, progress=progress)
        return _Tried(choice, (alone, *others), *said, declared)

    def search(model: Privacy) -> _Tried:
        batch = agent.settled(first.spec, users or most, model).batch
        for declared in [users] if users is not None else _tries(most, batch):
            tried = simulate(model, declared)
            if tried.settled:
                break
        return tried

    found = search(privacy)
    baseline = found.results
    if privacy.private:
        plain = NonPrivate()
        baseline = (search(plain) if found.choice.batch else simulate(plain, found.users)).results
    return Plan(
        world=first.name,
        agent=found.choice.text,
        privacy=privacy,
        users=found.users,
        results=found.results,
        baseline=baseline,
        noise_std=found.noise_std,
        why=found.why,
        seconds=time.perf_counter() - start,
        batch=found.choice.batch,
        given=users is not None,
        chosen=found.choice.why,
    )


@dataclass(frozen=True)
class _Tried:
    """Runs with one number of users: of which agent, and what it said before the first one."""

    choice: AgentChoice
    results: tuple[Result, ...]
    noise_std: float | None
    why: str
    users: int

    @property
    def settled(self) -> bool:
        return _settled(self.results, self.users, self.choice.batch)


def _made(world: World | str, workers: int) -> tuple[World, WorldMaker]:
    """The world of the first run, and what makes that of the others."""
    first = build_world(world) if isinstance(world, str) else world
    require("world", first, "a world", ("optimal_value",))
    if not math.isfinite(first.optimal_value):
        raise InvalidArgument(
            f"world {first.name} has no known optimum, so there is nothing to compare with: give "
            "it an optimal_value"
        )
    return first, partial(_anew, world) if isinstance(world, str) and workers > 1 else first


def _noise(agent: Any) -> float | None:
    statistic = getattr(agent, "statistic", None)
    if statistic is None:
        return None
    return release_noise(statistic, agent.privacy, agent.block_users)


def _anew(text: str, seed: int) -> World:
    return build_world(text)


def _agent(choice: AgentChoice, users: int, privacy: Privacy, spec: Any, seed: int) -> AnyAgent:
    return choice.build(spec, users, privacy, seed)


def _tries(most: int, batch: bool) -> list[int]:
    if batch:
        sizes = [size * 10**power for power in range(10) for size in BATCH_USERS]
        return [size for size in sizes if size < most] + [most]
    tries = [min(FIRST_USERS, most)]
    while tries[-1] < most:
        tries.append(min(10 * tries[-1], most))
    return tries


def _needed(results: Sequence[Result], batch: bool) -> float | None:
    """The median of the users needed; of a batch agent the whole batch, if its policy is good."""
    return median(r.greedy_users_to_90 if batch else r.users_to_90 for r in results)


def _settled(results: Sequence[Result], users: int, batch: bool) -> bool:
    needed = _needed(results, batch)
    # A batch has no later releases, which could relapse.
    return needed is not None and (batch or users >= 10 * needed)
