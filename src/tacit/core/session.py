"""Where a run stands: who waits, which questions were answered, what a save holds of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tacit.core.algorithm import Algorithm
from tacit.core.asks import Arrays, State, below
from tacit.core.rounds import Round, dump_answers, restore, revive_answers, state_of
from tacit.privacy.arguments import MOST_USERS
from tacit.privacy.curators.gate import Release
from tacit.privacy.curators.participants import Participants
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.pseudonyms import Name
from tacit.privacy.statistic import Block

Ids: TypeAlias = Sequence[int | str] | None


class Waiting:
    """Users who wait for the rest of their block. Raw and sensitive."""

    def __init__(self) -> None:
        self._parts: list[tuple[Block, Ids]] = []
        self.users = 0

    def add(self, part: Block, user_ids: Ids) -> None:
        """Takes some more users, as they are now.

        A copy: a buffer that is used again must not put the next users in the sums twice.
        """
        self._parts.append((part.sealed(), None if user_ids is None else [*user_ids]))
        self.users += part.users

    def joined(self, part: Block, user_ids: Ids) -> tuple[Block, Ids]:
        """All of them and the last ones, as one block; ids were given for all or for none."""
        if not self._parts:
            return part, user_ids
        parts = [*self._parts, (part, user_ids)]
        blocks, ids = [block for block, _ in parts], [some for _, some in parts]
        arrays = {
            name: np.concatenate([block[name] for block in blocks]) for name in blocks[0].arrays
        }
        block = Block(sum(b.users for b in blocks), arrays)
        if any(some is None for some in ids):
            return block, None
        return block, [user for some in ids if some is not None for user in some]

    def clear(self) -> None:
        """They are in a block now."""
        self._parts, self.users = [], 0

    # Save and resume.

    def dump(self, participants: Participants) -> tuple[dict[str, Any], Arrays]:
        """For a save: raw data, and names that are no names any more."""
        if not self._parts:
            return {"pending": 0, "pending_names": None}, {}
        (first, ids), rest = self._parts[-1], Waiting()
        rest._parts = self._parts[:-1]
        block, names = rest.joined(first, ids)
        meta = {
            "pending": block.users,
            "pending_names": None if names is None else participants.names(names),
        }
        return meta, {f"pending/{name}": array for name, array in block.arrays.items()}

    def restore(self, users: int, names: list[str] | None, arrays: Arrays) -> None:
        """The inverse of :meth:`dump`."""
        self.clear()
        if users:
            ids = None if names is None else [Name(name) for name in names]
            self._parts, self.users = [(Block(users, below(arrays, "pending/")), ids)], users


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

    def placed(self, part: Block) -> Block:
        """Users with the components that they followed, as a mixed policy needs them.

        By slot they are the places in the block, in the order in which users are given. Otherwise
        each user says what she drew: -1, a component that no policy has, where she does not.
        """
        policy = self.algorithm.policy
        mixed = hasattr(policy, "components")
        right = mixed == ("components" in part.arrays) and getattr(policy, "slots", None) is None
        if right or part.aggregate:
            return part
        arrays = {name: array for name, array in part.arrays.items() if name != "components"}
        if mixed:
            arrays["components"] = policy.placed(self.waiting.users, part.users)
        return Block(part.users, arrays)

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
