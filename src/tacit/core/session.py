"""Where a run stands: who waits, which questions were answered, what a save holds of it."""

from __future__ import annotations

from typing import Any

from tacit.core.algorithm import Algorithm
from tacit.core.asks import Arrays, State, below
from tacit.core.rounds import Round, dump_answers, restore, revive_answers, state_of
from tacit.core.waiting import Waiting
from tacit.privacy.arguments import MOST_USERS
from tacit.privacy.curators.gate import Release
from tacit.privacy.curators.participants import Participants
from tacit.privacy.errors import InvalidArgument


class Session:
    """An agent's place in its run.

    Attributes:
        waiting: users whose block is not full yet.
        with_ids: whether users come with ids.
        answers: those of the round in progress.
        seen: how many releases were taken in, or lost, before this round.
    """

    def __init__(self, algorithm: Algorithm[Any]) -> None:
        self.algorithm = algorithm
        self.waiting = Waiting()
        self.with_ids = False
        self.answers: list[Release] = []
        self.seen = 0
        self._round: Round | None = None

    @property
    def round(self) -> Round:
        """The questions about the current block."""
        if self._round is None:
            self._round = Round(self.algorithm)
        return self._round

    def end_round(self, releases: int) -> None:
        """No later round begins with the answers of this one."""
        self._round, self.answers, self.seen = None, [], releases

    def saw(self, last: Release | None) -> bool:
        """Adds a release that was saved before it was published; whether there are answers."""
        if last is not None and last.index >= self.seen + len(self.answers):
            self.answers.append(last)
        return bool(self.answers)

    @property
    def taken(self) -> int:
        """How many users came."""
        return self.algorithm.served + self.waiting.users

    # Save and resume.

    def check_same(self, meta: dict[str, Any]) -> None:
        """Refuses a save of another agent."""
        mine, saved = self.algorithm.identity(), meta["identity"]
        differing = [key for key in mine if mine[key] != saved.get(key)]
        if differing:
            raise InvalidArgument(
                f"the save is of another agent: {', '.join(differing)} differ "
                f"(saved {saved.get(differing[0])}, this one {mine[differing[0]]})"
            )

    def dump(self, participants: Participants) -> State:
        """For a save."""
        algorithm, current = self.algorithm, self._round
        within = None if current is None else current.before
        meta, arrays = state_of(algorithm) if within is None else within
        policies = {"policy/": algorithm.policy, "greedy/": algorithm.greedy_policy}
        for prefix, policy in policies.items():
            named = algorithm.policy_arrays(policy).items()
            arrays = arrays | {prefix + name: array for name, array in named}
        for more in (dump_answers(self.answers), self.waiting.dump(participants)):
            meta, arrays = meta | more[0], arrays | more[1]
        facts = {
            "identity": algorithm.identity(),
            "served": algorithm.served,
            "releases": algorithm.releases,
            "version": algorithm.policy.version,
            "with_ids": self.with_ids,
            "seen": self.seen,
        }
        return meta | facts, arrays

    def restore(self, meta: dict[str, Any], arrays: Arrays) -> None:
        """The inverse of :meth:`dump`."""
        algorithm = self.algorithm
        served, waiting = (_count(meta[name], algorithm.users) for name in ("served", "pending"))
        releases = _count(meta["releases"], algorithm.schedule.releases)
        answers = revive_answers(meta, arrays)
        restore(algorithm, meta, arrays)
        algorithm.served, algorithm.releases = served, releases
        algorithm.policy = algorithm.policy_of(below(arrays, "policy/"), meta["version"])
        algorithm.greedy_policy = algorithm.policy_of(below(arrays, "greedy/"), meta["version"])
        self.end_round(_count(meta["seen"], MOST_USERS))
        self.answers, self.with_ids = answers, bool(meta["with_ids"])
        self.waiting.restore(waiting, meta["pending_names"], arrays)


def _count(value: object, most: int) -> int:
    """A number of a save; a forged file may hold anything."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} is no number from 0 to {most}")
    return value
