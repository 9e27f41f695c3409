"""How many users a budget needs, before any real user is touched.

Unless a number of users is given, it is multiplied by ten until the runs are ten times as long as
the median run took: "90 % for good" means little at the end of a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

from tacit.core.world import World
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import NonPrivate, Privacy, PrivacyModel
from tacit.privacy.noise import release_noise
from tacit.privacy.validation import instance_of, whole_number
from tacit.registry import AgentChoice
from tacit.registry import world as build
from tacit.simulation.result import Result, median
from tacit.simulation.sweep import Job, run_jobs, seed_list
from tacit.simulation.tables import privacy_dict

BATCH_USERS = (10, 20, 50)  # first sizes of a batch that are tried; then ten times these


def fewest_users(privacy: Privacy) -> int | None:
    """The fewest users with which any private method can learn; 1 without privacy.

    Take two worlds that an agent cannot tell apart beforehand, in which no policy is near-optimal
    twice. Data sets of n users are n mu-GDP apart at most (group privacy), whatever the users do.
    So whoever is right nine times of ten in both worlds needs n mu >= 2 z, z = 1.2816; under pure
    DP n epsilon >= ln 9. Users who come to where the worlds differ with probability t at most count
    as t users each: where that is rare, more are needed than this.

    ``None`` for local DP, of which the argument says nothing sharp.

    >>> from tacit import JointDP
    >>> fewest_users(JointDP(1.0, 1e-6)), fewest_users(JointDP(1.0, 0.0))
    (11, 3)
    """
    if not privacy.private:
        return 1
    if privacy.local:
        return None
    if privacy.pure:
        return math.ceil(math.log(9.0) / privacy.epsilon)
    return math.ceil(-2.0 * NormalDist().inv_cdf(0.1) / privacy.budget.mu)


@dataclass(frozen=True)
class Forecast:
    """Users that an agent is expected to need, by simulation."""

    world: str
    agent: str
    privacy: Privacy
    users: int  # how many users the simulated agents were declared for
    results: tuple[Result, ...]  # one per seed
    baseline: tuple[Result, ...]  # the same without privacy, one per seed
    noise_std: float | None  # of one sum in a single release; ``None`` if the agent does not say
    why: str  # what the agent chose, in its own words
    offline: bool = False  # then the users needed are the smallest batch whose policy is good
    chosen: str = ""  # why it is this agent, where none was named
    seconds: float = 0.0

    @property
    def users_to_90(self) -> float | None:
        """Median of the users until those who are served have 90 %; ``None`` if not reached."""
        return _needed(self.results, self.offline)

    @property
    def greedy_users_to_90(self) -> float | None:
        """Median of the users until the greedy policy has 90 %."""
        return median(result.greedy_users_to_90 for result in self.results)

    @property
    def spread(self) -> tuple[int | None, int | None]:
        """The fewest and the most users that a run took; ``None`` is more than there were."""
        needed = [r.greedy_users_to_90 if self.offline else r.users_to_90 for r in self.results]
        reached = [users for users in needed if users is not None]
        return min(reached, default=None), None if None in needed else max(reached)

    @property
    def settled(self) -> bool:
        """Whether the runs were ten times as long as the median took."""
        needed = self.users_to_90
        # A batch has no later releases, which could relapse.
        return needed is not None and (self.offline or self.users >= 10 * needed)

    @property
    def price(self) -> float | None:
        """How many times the users of an agent without privacy are needed."""
        private = self.users_to_90
        plain = _needed(self.baseline, self.offline)
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
            "non_private_users_to_90_median": _needed(self.baseline, self.offline),
            "offline": self.offline,
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
    most: int = 10**10,
    progress: bool = True,
) -> Forecast:
    """Simulates what an agent will need.

    An agent that was not named is chosen without privacy on its own.

    Args:
        world: The simulated users; a text is made anew in every process.
        agent: With its options.
        privacy: The trust model with its budget.
        users: How many there will be; without it as many as it takes are tried, up to ``most``.
        seeds: One run each.
        workers: Processes.
        most: The largest number of users to try.
        progress: Whether to show a progress bar, on standard error.
    """
    instance_of("agent", agent, AgentChoice)
    instance_of("privacy", privacy, PrivacyModel)
    users = None if users is None else whole_number("users", users)
    workers, most = whole_number("workers", workers), whole_number("most", most)
    seeds = seed_list(seeds)
    if not seeds:
        raise InvalidArgument("seeds must not be empty")
    start = time.perf_counter()
    first = build(world)
    if not math.isfinite(first.optimal_value):
        raise InvalidArgument(
            f"world {first.name} has no known optimum, so there is nothing to compare with: give "
            "it an optimal_value"
        )
    place = world if workers > 1 else first  # a text is made anew in every process

    def simulate(model: Privacy, declared: int) -> Forecast:
        choice = agent.settled(first.spec, model, declared)
        made = choice.build(first.spec, declared, model, seeds[0])
        jobs = [Job(place, choice, model, declared, seed) for seed in seeds]
        return Forecast(
            world=first.name,
            agent=choice.text,
            privacy=model,
            users=declared,
            results=tuple(run_jobs(jobs, workers=workers, progress=progress).results.values()),
            baseline=(),
            noise_std=None
            if (asked := getattr(made, "statistic", None)) is None
            else release_noise(asked, made.privacy, made.block_users),
            why=str(getattr(made, "why", "")),
            offline=choice.offline,
            chosen=choice.why,
        )

    def search(model: Privacy) -> Forecast:
        offline = agent.settled(first.spec, model).offline
        for declared in [users] if users is not None else _tries(most, offline):
            tried = simulate(model, declared)
            if tried.settled:
                break
        return tried

    found = plain = search(privacy)
    if privacy.private:
        model = NonPrivate()
        plain = search(model) if found.offline else simulate(model, found.users)
    return replace(found, baseline=plain.results, seconds=time.perf_counter() - start)


def _tries(most: int, offline: bool) -> list[int]:
    """Numbers of users: multiplied by ten from 10,000 on, or sizes of a batch."""
    sizes = [10**power for power in range(4, 18)]
    if offline:
        sizes = [size * 10**power for power in range(10) for size in BATCH_USERS]
    return [size for size in sizes if size < most] + [most]


def _needed(results: Sequence[Result], offline: bool) -> float | None:
    """Median of the users needed; of an offline agent the whole batch, if its policy is good."""
    return median(r.greedy_users_to_90 if offline else r.users_to_90 for r in results)
