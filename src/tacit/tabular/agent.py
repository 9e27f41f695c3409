"""What all tabular agents share: the gate, the schedule, real episodes, save and resume.

An agent serves users with ``policy``. When the users of a block are through, it asks its curator
for one release about them, adds it to what is known, and publishes the next policy. Everything
after the release is post-processing; subclasses only say how to plan.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.episodes import Episodes
from tacit.finite import FiniteSpec, check_bytes
from tacit.policy import Policy
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import CorruptFile, HorizonExceeded, InvalidArgument
from tacit.privacy.gate import Curator, Release, Stream
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.local import LocalCurator, noise_scale
from tacit.privacy.models import JointDP, LocalDP, NonPrivate, Privacy
from tacit.privacy.noise import Noise, saved_source
from tacit.privacy.statistic import Block
from tacit.privacy.storage import read_state, write_state
from tacit.schedule import Schedule
from tacit.tabular.evidence import Counts, Evidence
from tacit.tabular.flow import conserve
from tacit.tabular.statistics import VisitCounts

Floats = NDArray[np.float64]
Form = Literal["episodes", "counts", "pooled"]
Bonus = Literal["practical", "theory"]
Calibration = Literal["tight", "as_printed"]

# Counts have a cap, which needs users one by one, while blocks are at most so many times as large
# as the smallest that knows anything. By then the cap has done its work.
_CAPPED_UP_TO = 8
_ONE_BY_ONE = 1 << 20
# Above this many (step, state) pairs the equations of flow conservation are too many to solve.
_LARGEST_FLOW = 1500


@dataclass(frozen=True)
class Constants:
    """The practical agent's constants, chosen on riverswim(6, 20) and four small random worlds.

    Attributes:
        sampling: scale of the whole bonus.
        privacy: scale of the part of it that is due to privacy noise.
        range_term: scale of the term in (steps left) / n.
        lowering: counts are lowered by this many standard deviations of their noise.
        known: a cell is known once its count exceeds this many standard deviations.
        known_unmasked: the same where counts are not masked by the policy.
        growth: the number of users served grows by at most this factor from block to block,
        blocks_per_cell: and by at most 1 + this / (states actions), but for 1.02.
        first: users of the first block, in standard deviations of a count's noise.
        reward_weight: squared weight of rewards against transitions at the gate.
        cap: how many of a user's steps in a cell count, when pooled over steps.
    """

    sampling: float = 0.25
    privacy: float = 1.0
    range_term: float = 0.1
    lowering: float = 1.0
    known: float = 0.5
    known_unmasked: float = 2.0
    growth: float = 1.15
    blocks_per_cell: float = 1.8
    first: float = 40.0
    reward_weight: float = 0.2
    cap: int = 2


class TabularAgent(ABC):
    """A learner for finite worlds; see :class:`tacit.tabular.ucbvi.UCBVI` for the arguments."""

    name: ClassVar[str]
    deterministic: ClassVar[bool] = True

    def __init__(
        self,
        spec: FiniteSpec,
        users: int,
        privacy: Privacy,
        *,
        stationary: bool | None = None,
        bonus: Bonus = "practical",
        scale: float = 1.0,
        failure: float = 0.1,
        calibration: Calibration = "tight",
        schedule: str | Schedule = "auto",
        counter: str = "auto",
        constants: Constants | None = None,
        seed: int = 0,
        noise_seed: int | None = None,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(privacy, (JointDP, LocalDP, NonPrivate)):
            raise InvalidArgument(
                f"privacy must be JointDP, LocalDP or NonPrivate, got {privacy!r}"
            )
        if isinstance(users, bool) or int(users) != users or users < 1:
            raise InvalidArgument(f"users must be an integer >= 1, got {users!r}")
        if not (math.isfinite(scale) and scale > 0):
            raise InvalidArgument(f"scale must be > 0, got {scale!r}")
        self.spec = spec
        self.users = int(users)
        self.privacy = privacy
        self.stationary = spec.stationary if stationary is None else bool(stationary)
        self.scale = float(scale)
        self.bonus, self.calibration, self.failure = bonus, calibration, float(failure)
        self._check_options(schedule)
        self.constants = Constants() if constants is None else constants
        self.served = 0
        self.releases = 0
        rows = 1 if self.stationary else spec.horizon
        shape = (rows, spec.states, spec.actions)
        check_bytes("counts of a tabular agent", (*shape, spec.states))
        self.evidence = Evidence(shape, plain=not isinstance(privacy, JointDP))
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 4]))
        self._pending: list[tuple[Block, Sequence[int | str] | None]] = []
        self._waiting = 0
        self._with_ids = False
        self._expected: Floats | None = None
        self._first_policy()
        self.counter = self._choose_counter(counter)
        self._gate = privacy if calibration == "tight" else as_printed(privacy, self.users)
        self.schedule = self._make_schedule(schedule)
        options: dict[str, Any] = {"users": self.users, "noise_seed": noise_seed}
        if isinstance(privacy, JointDP):
            options |= {"ledger": ledger}
        elif ledger is not None or autosave is not None:
            raise InvalidArgument("ledger and autosave belong to JointDP: only it has secrets")
        self._curator: Curator = self._gate.curator(**options)
        self._stream: Stream | None = None
        if self.counter != "blocks" and isinstance(privacy, JointDP):
            self._stream = self._curator.stream(
                self._statistic(), releases=self.schedule.releases, kind=self.counter
            )
        if isinstance(self._curator, JointCurator):
            self._curator.attach(self._dump)
            if autosave is not None:
                self._curator.autosave_to(autosave)

    # What subclasses define.

    @abstractmethod
    def _plan(self, counts: Counts) -> tuple[Policy, Policy]:
        """The next policy to serve users with, and the greedy one beside it."""

    def _expected_visits(self) -> Floats | None:
        """(L, S, A), visits that one user of the next block is expected to make, if known."""
        return None

    # The billboard.

    @property
    def policy(self) -> Policy:
        """The policy that serves users now."""
        return self._policy

    @property
    def greedy_policy(self) -> Policy:
        """The best policy for what is known now, without exploring; from the same release."""
        return self._greedy

    @property
    def guarantee(self) -> Guarantee | None:
        """What is proven for every user; ``None`` without privacy."""
        return self._curator.guarantee

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in one count of the last release."""
        return self.evidence.noise

    @property
    def block_users(self) -> int:
        """How many more users the current policy serves until the next release."""
        if self.releases >= self.schedule.releases:
            return 0
        size = min(self.schedule.blocks[self.releases], self.users - self.served)
        return size - self._waiting

    @property
    def form(self) -> Form:
        """Episodes where users are counted one by one, else sums."""
        if self._cap is not None:
            return "episodes"
        return "pooled" if self.stationary else "counts"

    @property
    def why(self) -> str:
        """What was chosen for this budget and length, in words."""
        how = (
            "each block is released once, with its whole budget, and only for what its policy "
            "can reach"
            if self.counter == "blocks"
            else f"all blocks go through one {self.counter} counter"
        )
        return f"{self.schedule.releases} releases ({self.schedule.name}); {how}"

    # Learning.

    def learn(self, data: Episodes | Block, user_ids: Sequence[int | str] | None = None) -> None:
        """Takes users that ``policy`` served; publishes the next policy when a block is full.

        Args:
            data: episodes of any number of users, or the sums of exactly one block (simulations).
            user_ids: who they are; see :meth:`tacit.Curator.add`.
        """
        if isinstance(data, Episodes):
            user_ids = data.user_ids if user_ids is None else user_ids
            data = data.block()
        self._curator.check_ready()
        left = self.users - self.served - self._waiting
        if data.users > left:
            raise HorizonExceeded(
                f"this agent was declared for {self.users} users; {left} are left, "
                f"{data.users} came"
            )
        self._statistic().check(data)
        self._check_ids(data, user_ids)
        if self._masked and not data.aggregate:
            self._check_versions(data)
        if data.aggregate:
            if self._pending or data.users != self.block_users:
                raise InvalidArgument(
                    f"sums must be of one whole block: {self.block_users} users, got {data.users}"
                )
            self._release(data, None)
            return
        start = 0
        while start < data.users:
            stop = min(data.users, start + self.block_users)
            part = data.take(slice(start, stop))
            self._pending.append((part, None if user_ids is None else user_ids[start:stop]))
            self._waiting += part.users
            start = stop
            if self.block_users == 0:
                block, ids = _joined(self._pending)
                self._pending, self._waiting = [], 0
                self._release(block, ids)

    def _check_ids(self, data: Block, user_ids: Sequence[int | str] | None) -> None:
        """Refuses what the curator would refuse when the block is full, before anything changes."""
        privacy, given = self.privacy, user_ids is not None
        if isinstance(privacy, LocalDP) and not self._curator.source.simulation:
            raise InvalidArgument("raw data is for simulations (give noise_seed): devices report")
        if given != self._with_ids and (self.served or self._pending):
            raise InvalidArgument("user_ids must be given for all users or for none")
        many = isinstance(privacy, JointDP) and privacy.disjoint and privacy.episodes_per_user > 1
        if many and not given:
            raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
        if user_ids is not None:
            if data.aggregate:
                raise InvalidArgument("an aggregate block has no user_ids")
            if len(user_ids) != data.users:
                raise InvalidArgument(f"{data.users} users need as many ids, got {len(user_ids)}")
            kinds = {type(user) for user in user_ids}
            if not all(issubclass(k, (int, str, np.integer)) and k is not bool for k in kinds):
                raise InvalidArgument(f"user ids must be integers or strings, got {kinds}")
        if data.users:
            self._with_ids = given

    @property
    def statistic(self) -> VisitCounts:
        """What is asked of the users of the current block; devices need it for their reports."""
        return self._statistic()

    def learn_reports(
        self, reports: ArrayLike, user_ids: Sequence[int | str] | None = None
    ) -> None:
        """Takes the local reports of all users of the current block; see :mod:`tacit.local`.

        Args:
            reports: one row per user, made on her device by ``tacit.local.report`` from
                ``statistic`` and ``privacy``.
            user_ids: who sent them.
        """
        if not isinstance(self._curator, LocalCurator):
            raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
        if self.calibration == "as_printed":
            # Devices that report by ``privacy`` would add another noise than is accounted for.
            raise InvalidArgument("as printed is for simulations: devices report by privacy itself")
        rows = np.asarray(reports, dtype=np.float64)
        if len(rows) != self.block_users:
            raise InvalidArgument(
                f"the current block has {self.block_users} users, got {len(rows)} reports"
            )
        statistic = self._statistic()
        number = self._curator.collect(statistic, rows, user_ids)
        self._incorporate(self._curator.release(statistic, blocks=[number]), statistic, len(rows))

    def _check_versions(self, data: Block) -> None:
        """Which policy a user followed is public: one that was never published is a mistake."""
        versions = np.asarray(data["versions"])
        if versions.size and not (
            versions.dtype.kind in "iu"
            and (versions >= 0).all()
            and (versions <= self._policy.version).all()
        ):
            raise InvalidArgument(
                f"versions must say which published policy each user followed, 0 to "
                f"{self._policy.version}; others were never published"
            )

    def publish(self, path: str | os.PathLike[str]) -> None:
        """Writes the public policy; any device with NumPy can load it."""
        self._policy.publish(path)

    def _release(self, block: Block, user_ids: Sequence[int | str] | None) -> None:
        """One block through the gate, and the next policy."""
        statistic = self._statistic()
        number = self._curator.add(block, user_ids)
        try:
            if self._stream is None:
                release = self._curator.release(statistic, blocks=[number])
            else:
                release = self._stream.release(number)
        except BaseException:
            # They may have paid for a release that nobody will see: they are lost, not asked again.
            self.served += block.users
            raise
        finally:
            if number in self._curator.blocks:
                self._curator.forget(number)
        self._incorporate(release, statistic, block.users)

    def _incorporate(self, release: Release, statistic: VisitCounts, users: int) -> None:
        if self.counter == "blocks":
            conserved = self._conserved(release, statistic)
            self.evidence.add(conserved, statistic, users, self._expected)
        else:
            self.evidence.replace(release, statistic, users)
        self.served += users
        self.releases += 1
        self._policy, self._greedy = self._plan(self.evidence.counts())
        self._expected = self._expected_visits()

    def _conserved(self, release: Release, statistic: VisitCounts) -> Release:
        """The release with flow conserved, where its counts are per step and noisy."""
        H, S = self.spec.horizon, self.spec.states
        if not self._masked or self.stationary or H * S > _LARGEST_FLOW:
            return release
        if float(np.max(release.std["transitions"])) == 0.0:
            return release
        start = None if self.spec.start is None else np.array(self.spec.start)
        counts = release["transitions"].reshape(H, S, S)
        better = conserve(counts, float(release.users), start).reshape(H * S, S)
        return replace(release, parts={**release.parts, "transitions": better})

    # Choices made before the first user comes.

    @property
    def _cap(self) -> int | None:
        """How many of a user's steps in a cell count in the current block."""
        if not self.stationary or isinstance(self.privacy, NonPrivate):
            return None
        if self.counter != "blocks":
            # One statistic for the whole stream.
            largest = self.users / 10
        else:
            largest = self.schedule.blocks[min(self.releases, self.schedule.releases - 1)]
        if largest > min(_CAPPED_UP_TO * self._smallest_block, _ONE_BY_ONE):
            return None
        return min(self.constants.cap, self.spec.horizon)

    @property
    def _masked(self) -> bool:
        """Whether only what the block's policy can reach is counted."""
        return self.counter == "blocks" and self._policy.is_deterministic and not self._papers

    def _statistic(self, cap: int | None = None) -> VisitCounts:
        """What is asked of the current block."""
        if self._papers:
            sizes = (self.spec.states, self.spec.actions, self.spec.horizon)
            return VisitCounts(*sizes, visits=True)
        return VisitCounts(
            self.spec.states,
            self.spec.actions,
            self.spec.horizon,
            pooled=self.stationary,
            cap=cap or self._cap,
            weight=math.sqrt(self.constants.reward_weight),
            policy=self._policy.actions if self._masked else None,
            version=self._policy.version,
        )

    @property
    def _papers(self) -> bool:
        """Whether the counts are those of the papers: per step, all three, nothing masked."""
        return self.bonus == "theory" or self.calibration == "as_printed"

    def _check_options(self, schedule: str | Schedule) -> None:
        if self.bonus not in ("practical", "theory"):
            raise InvalidArgument(f"bonus must be practical or theory, got {self.bonus!r}")
        if self.calibration not in ("tight", "as_printed"):
            raise InvalidArgument(
                f"calibration must be tight or as_printed, got {self.calibration!r}"
            )
        if not 0.0 < self.failure < 1.0:
            raise InvalidArgument(f"failure must be in (0, 1), got {self.failure!r}")
        if self._papers and self.stationary:
            raise InvalidArgument(
                "the papers count every step of its own: give stationary=False with "
                "bonus='theory' or calibration='as_printed'"
            )
        if self.calibration == "as_printed" and schedule not in ("auto", "every"):
            raise InvalidArgument("as printed, a policy is published after every episode")

    def _choose_counter(self, counter: str) -> str:
        if self.calibration == "as_printed":
            if counter not in ("auto", "binary tree"):
                raise InvalidArgument("as printed, the counter is the binary tree")
            return "binary tree" if isinstance(self.privacy, JointDP) else "blocks"
        if not isinstance(self.privacy, JointDP):
            # Reports and exact counts add up as they are: nothing is gained by a counter.
            return "blocks"
        if self.bonus == "theory":
            # Its widths are for running sums.
            return "auto"
        if counter == "auto" and not self.deterministic:
            # Blocks that no policy masks forget: later ones add noise to what they do not visit.
            return "auto"
        return "blocks" if counter == "auto" else counter

    def _make_schedule(self, schedule: str | Schedule) -> Schedule:
        if self.calibration == "as_printed":
            return Schedule.of("every", self.users)
        if not isinstance(schedule, str) or schedule != "auto":
            return Schedule.of(schedule, self.users)
        ends, end, first = [], 0, self._smallest_block
        # What one block shows decides where the next one looks, so more cells need more blocks.
        cells = self.spec.states * self.spec.actions
        growth = min(self.constants.growth, max(1.02, 1.0 + self.constants.blocks_per_cell / cells))
        while end < self.users:
            size = max(first, math.floor((growth - 1.0) * end))
            if self.users - end - size < size / 2:
                size = self.users - end
            ends.append(size)
            end += size
        return Schedule("auto", tuple(ends))

    @cached_property
    def _smallest_block(self) -> int:
        """How many users a block needs to stand out of its noise, by the noise of one count."""
        if isinstance(self.privacy, NonPrivate):
            return 1
        cap = min(self.constants.cap, self.spec.horizon) if self.stationary else None
        statistic = self._statistic(cap)
        if isinstance(self.privacy, LocalDP):
            # n reports have noise sqrt(n) s together, so n must exceed a multiple of s^2.
            return math.ceil((self.constants.first * noise_scale(statistic, self.privacy)) ** 2)
        if self.privacy.pure:
            noise = math.sqrt(2.0) * statistic.sensitivity(self.privacy.relation, "l1")
            return math.ceil(self.constants.first * noise / self.privacy.episode_limit)
        noise = statistic.sensitivity(self.privacy.relation, "l2")
        return math.ceil(self.constants.first * noise / math.sqrt(self.privacy.episode_limit))

    def _first_policy(self) -> None:
        """Before anything is known: random actions, drawn once."""
        H, S, A = self.spec.horizon, self.spec.states, self.spec.actions
        if self.deterministic:
            actions = self._rng.integers(0, A, (H, S))
            self._policy = Policy.deterministic(actions, A, version=0)
        else:
            self._policy = Policy.uniform(H, S, A)
        self._greedy = self._policy

    # Save and resume.

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything, secrets included (mode 0600), for going on later."""
        if isinstance(self._curator, JointCurator):
            self._curator.save(path)
            return
        meta, arrays = self._dump()
        state: dict[str, Any] = {"agent": meta, "noise": saved_source(self._curator.source)}
        arrays |= self._curator._participants.dump(state)
        write_state(path, "agent", state, arrays)

    def load(
        self,
        path: str | os.PathLike[str],
        *,
        ledger: str | os.PathLike[str] | None = None,
        autosave: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Resumes a save into this freshly made agent, which must have the same arguments."""
        try:
            if isinstance(self.privacy, JointDP):
                # First of all: a ledger lets a save be loaded once.
                self._check_same(read_state(path, "curator").meta["extra"])
                curator = JointCurator.load(path, ledger=ledger)
                meta, arrays = curator.extra
                if self._stream is not None:
                    self._stream = curator.resume_stream("stream", self._statistic())
                self._curator = curator
                curator.attach(self._dump)
            else:
                state = read_state(path, "agent")
                meta, arrays = state.meta["agent"], state.arrays
                self._check_same(meta)
                source = Noise.from_state(state.meta["noise"])
                self._curator.restart(meta["served"], source)
                self._curator._participants.restore(state.meta, arrays)
            self._restore(meta, arrays)
            last = self._curator.last_release
            if isinstance(self._curator, JointCurator) and last and last.index >= self.releases:
                # Saved before it was published: the release is on disk, its policy is not.
                self._incorporate(last, self._statistic(), self.block_users)
                for number in self._curator.blocks:
                    self._curator.forget(number)
        except (KeyError, TypeError) as error:
            raise CorruptFile(f"{os.fspath(path)!r}: not a saved agent ({error})") from None
        if autosave is not None and isinstance(self._curator, JointCurator):
            self._curator.autosave_to(autosave)
        return self

    def _identity(self) -> dict[str, Any]:
        return {
            "class": type(self).__name__,
            "spec": repr(self.spec),
            "users": self.users,
            "privacy": repr(self.privacy),
            "stationary": self.stationary,
            "bonus": self.bonus,
            "calibration": self.calibration,
            "scale": self.scale,
            "failure": self.failure,
            "counter": self.counter,
            "schedule": repr(self.schedule),
            "constants": repr(self.constants),
        }

    def _check_same(self, meta: dict[str, Any]) -> None:
        mine, saved = self._identity(), meta["identity"]
        differing = [key for key in mine if mine[key] != saved.get(key)]
        if differing:
            raise InvalidArgument(
                f"the save is of another agent: {', '.join(differing)} differ "
                f"(saved {saved.get(differing[0])}, this one {mine[differing[0]]})"
            )

    def _dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        pending = _joined(self._pending) if self._pending else None
        meta: dict[str, Any] = {
            "identity": self._identity(),
            "served": self.served,
            "releases": self.releases,
            "version": self._policy.version,
            "noise": self.evidence.noise,
            "reward_noise": self.evidence.reward_noise,
            "rng": self._rng.bit_generator.state,
            "with_ids": self._with_ids,
            "pending": 0 if pending is None else pending[0].users,
            "pending_ids": None if pending is None or pending[1] is None else list(pending[1]),
        }
        arrays: dict[str, NDArray[Any]] = {
            "transitions": self.evidence.transitions,
            "rewards": self.evidence.rewards,
            "visits": self.evidence.visits,
            "variance": self.evidence.variance,
            "reached": self.evidence.reached,
            "policy": _table(self._policy),
            "greedy": _table(self._greedy),
        }
        if self._expected is not None:
            arrays["expected"] = self._expected
        if pending is not None:
            arrays |= {f"pending/{name}": array for name, array in pending[0].arrays.items()}
        return meta, arrays

    def _restore(self, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.served, self.releases = meta["served"], meta["releases"]
        self.evidence.noise, self.evidence.reward_noise = meta["noise"], meta["reward_noise"]
        self.evidence.transitions = arrays["transitions"]
        self.evidence.rewards = arrays["rewards"]
        self.evidence.visits = arrays["visits"]
        self.evidence.variance = arrays["variance"]
        self.evidence.reached = arrays["reached"]
        self._rng.bit_generator.state = meta["rng"]
        self._with_ids = meta["with_ids"]
        self._expected = arrays.get("expected")
        self._policy = self._policy_of(arrays["policy"], meta["version"])
        self._greedy = self._policy_of(arrays["greedy"], meta["version"])
        self._pending, self._waiting = [], meta["pending"]
        if meta["pending"]:
            raw = _below(arrays, "pending/")
            self._pending = [(Block(meta["pending"], raw), meta["pending_ids"])]

    def _policy_of(self, table: NDArray[Any], version: int) -> Policy:
        if table.ndim == 2:
            return Policy.deterministic(table, self.spec.actions, version=version)
        # Not Policy.stochastic, which divides by the sums again: it must be the same to the bit.
        return Policy(table, None, version)


def as_printed(privacy: Privacy, users: int) -> Privacy:
    """What the papers' calibration really guarantees, as a model that adds exactly their noise.

    With the inverted scale put right, the joint mechanism draws Laplace noise of scale
    b = 3 H log2(K) / epsilon per node of a binary tree over K episodes. A user is in
    m = floor(log2 K) + 1 nodes and all three counts of an episode change by 6 H under replace-one,
    so the proven cost is 6 H m / b = epsilon * 2 m / log2(K): about twice the claim. The local
    mechanism's Laplace noise of scale 3 H / epsilon costs 2 epsilon. A budget with delta is read as
    the paper reads it, by its epsilon.
    """
    if not isinstance(privacy, NonPrivate) and privacy.episodes_per_user > 1:
        raise InvalidArgument("as printed, a user has one episode")
    if isinstance(privacy, JointDP):
        if users < 2:
            raise InvalidArgument("as printed, the noise grows with log K: give users >= 2")
        cost = privacy.epsilon * 2.0 * users.bit_length() / math.log2(users)
        return JointDP(cost, 0.0)
    if isinstance(privacy, LocalDP):
        return LocalDP(2.0 * privacy.epsilon, 0.0, mechanism="laplace")
    return privacy


def _table(policy: Policy) -> NDArray[Any]:
    return np.array(policy.table() if policy.actions is None else policy.actions)


def _below(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin with a prefix, without it."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _joined(
    pending: list[tuple[Block, Sequence[int | str] | None]],
) -> tuple[Block, Sequence[int | str] | None]:
    """Parts of a block as one; ids were given for all parts or for none."""
    blocks = [block for block, _ in pending]
    names = blocks[0].arrays
    arrays = {name: np.concatenate([block[name] for block in blocks]) for name in names}
    ids = [user_ids for _, user_ids in pending]
    if any(user_ids is None for user_ids in ids):
        return Block(sum(b.users for b in blocks), arrays), None
    joined = [user for user_ids in ids if user_ids is not None for user in user_ids]
    return Block(sum(b.users for b in blocks), arrays), joined
