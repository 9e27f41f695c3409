"""The joint curator: the one gate between raw data and everything that is published.

A curator holds raw blocks, sums bounded statistics over them, adds noise and keeps the accounts.
What comes out (:class:`Release`) is public; everything computed from it is post-processing.

Formal guarantee (joint model). A user is in one block. A release of T_b + N(0, s^2 I), T_b the
sum of a statistic of sensitivity D over block b, moves, given all earlier releases, by at most D
when a user of block b changes, which costs her (D / s)^2 in mu^2. Statistics, blocks and mu may all
be chosen from earlier releases. The curator refuses a release that would bring any
block above its limit L = mu^2. Then everything it ever publishes is mu-Gaussian-DP in each user:
pad the transcript with independent dummy releases up to exactly L; the log-likelihood ratio is
then a sum of conditionally Gaussian increments whose variances are known one step ahead and add
up to L, that is, Brownian motion observed at L, so it is N(+-L/2, L) exactly. Under pure DP the
noise is Laplace, costs are epsilons, D / s, and they add.

A *stream* feeds blocks into a counter; a block pays the counter's whole mu^2 when it enters, once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.arguments import FilePath, file_name, instance_of
from tacit.privacy.budget import Relation
from tacit.privacy.curators.accounts import BlockAccounts
from tacit.privacy.curator import Curator, Release, WantedStream
from tacit.privacy.curators.id_files import IdFile
from tacit.privacy.curator import JointStream, JointStreams
from tacit.privacy.curators.participants import UserIds
from tacit.privacy.curators.saves import (
    Extra,
    SaveMark,
    check_autosave,
    read_curator,
    reopen,
    save_curator,
)
from tacit.privacy.errors import BudgetExceeded, InvalidArgument
from tacit.privacy.exact import (
    check_reach,
    exact_words,
    grid_sensitivity,
    grid_step,
    grid_total,
    reach,
)
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Terms
from tacit.privacy.models import JointDP
from tacit.privacy.noise import NoiseSource, check_scale, safe_scale
from tacit.privacy.owner import alone
from tacit.privacy.statistic import (
    WHOLE_EPISODE,
    Block,
    FiledBlock,
    Statistic,
)


class JointCurator(Curator):
    """The trusted curator of the joint model.

    Args:
        privacy: the model, with its budget.
        users: as for every :class:`Curator`.
        noise_seed: as for every curator.
        ledger: path of a ledger file, made if there is none, or an opened :class:`Ledger`, in
            whose place none is ever made; every release is on it before it is published. If it is
            a ledger of people (:meth:`Ledger.create_for_people`), other runs may spend from it
            too: then every block needs user ids, everybody pays this model's whole budget when she
            first takes part, and those who cannot contribute nothing.
        autosave: path of a state file, written before anything is published (write-ahead), so
            that a killed process resumes where it was.

    >>> from tacit.privacy.standard import ClippedSum
    >>> curator = JointDP(epsilon=1.0, delta=1e-6).curator(noise_seed=0)
    >>> block = curator.add(Block(1000, {"values": np.ones((1000, 1))}))
    >>> release = curator.release(ClippedSum(1))
    >>> release.users, round(release.std["sum"], 2)
    (1000, 8.45)
    """

    def __init__(
        self,
        privacy: JointDP,
        *,
        users: int | None = None,
        noise_seed: int | None = None,
        source: NoiseSource | None = None,
        ledger: FilePath | None = None,
        autosave: FilePath | None = None,
        protects: str = WHOLE_EPISODE,
    ) -> None:
        for name, path in (("ledger", ledger), ("autosave", autosave)):
            if path is not None:
                file_name(name, path)
        simulation = noise_seed is not None if source is None else source.simulation
        if autosave is not None:
            check_autosave(autosave, simulation=simulation)
        if privacy.relation is Relation.ZERO_OUT and protects != WHOLE_EPISODE:
            raise InvalidArgument(
                f"protects={protects!r} and relation='zero-out' do not go together: the rest of an "
                f"episode is used all the same. Take relation='replace-one'"
            )
        super().__init__(
            users=users,
            noise_seed=noise_seed,
            source=source,
            episodes_per_user=privacy.episodes_per_user,
            once_per_block=privacy.disjoint,
            protects=protects,
        )
        self.privacy = privacy
        self.accounts = BlockAccounts(privacy)
        self._streams = JointStreams()
        self._plain = False
        self._unsaved = False
        self._autosaved: tuple[int, ...] = ()
        self.autosave: FilePath | None = None
        self.id_file: IdFile | None = None
        self._extra: Extra | None = None
        self.extra: tuple[dict[str, Any], dict[str, NDArray[Any]]] = ({}, {})
        if ledger is not None:
            terms = Terms.of(privacy, protects, simulation=self._source.simulation)
            self.accounts.start(ledger, terms, self._participants)
        if autosave is not None:
            # So that a process killed before its first release can be resumed too.
            self.autosave_to(autosave)

    def _add(self, block: Block, user_ids: UserIds) -> int:
        instance_of("block", block, Block)
        if isinstance(block, FiledBlock):
            _check_filed(block, self.privacy.episodes_per_user)
        elif block.aggregate and not self._source.simulation:
            raise InvalidArgument(
                "nothing clips an aggregate block: it is for simulations (give noise_seed), "
                "real users come one by one"
            )
        if user_ids is None and self.needs_ids:
            raise InvalidArgument("the ledger counts people: give user_ids")
        if user_ids is None and self.privacy.separate_blocks:
            raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
        return super()._add(block, user_ids)

    def _prepare(self, number: int, users: int, admitted: int) -> None:
        """Makes room for a block which is not in yet, and opens its account."""
        super()._prepare(number, users, admitted)
        self.accounts.open(number)

    def _settle(self) -> None:
        super()._settle()
        self._streams.settle()

    @property
    def needs_ids(self) -> bool:
        """Whether every block needs user ids, because the ledger is one of people."""
        return self.accounts.ledger is not None and self.accounts.ledger.people

    def spent(self, block: int) -> float:
        """What each user of a block has spent: mu^2, or epsilon under pure DP."""
        return self.accounts.spent(block)

    def remaining(self, block: int) -> float:
        """What each user of a block may still spend."""
        return self.accounts.remaining(block)

    def _release(self, statistic: Statistic, block: int, mu: float | None) -> Release:
        self.check_ready()
        self._check_unit(statistic)
        raw = self._raw(block)
        step = grid_step(statistic, self.privacy.norm)
        cost = self.accounts.cost(mu, block)
        scale = safe_scale(self._sensitivity(statistic, step), cost)
        costs = {block: cost**self.accounts.power}
        self.accounts.check(costs)
        check_scale(scale)
        check_reach(reach(statistic, step, raw.users))
        with np.errstate(all="ignore"):
            total = grid_total(statistic, raw, step)
        self._charge(costs, f"release {statistic.name}")
        self._plain = True
        vector = step * (total + self._noise(scale, total.size)).astype(np.float64)
        unit = scale * step * (math.sqrt(2.0) if self.privacy.pure else 1.0)
        std, users = statistic.layout.stds(unit), self._block_users[block]
        return self._publish_sum(statistic, vector, std, users, cost)

    @alone
    def stream(
        self,
        statistic: Statistic,
        *,
        releases: int,
        name: str = "stream",
        kind: str = "auto",
        mu: float | None = None,
    ) -> JointStream:
        """A counter over blocks: each block enters once and pays ``mu`` (all, by default)."""
        return self._stream(statistic, WantedStream(releases, name, kind, mu))

    def _stream(self, statistic: Statistic, wanted: WantedStream) -> JointStream:
        return self._streams.start(self, statistic, wanted)

    def resume_stream(self, name: str, statistic: Statistic, *, asked: bool = True) -> JointStream:
        """Continues a stream of a loaded curator, with the statistic it had.

        Or, if not ``asked``, with one that it might have asked: see :meth:`JointStream.ask`.
        """
        return self._streams.resume(self, name, statistic, asked)

    @property
    def guarantee(self) -> Guarantee:
        """What is proven of everything this curator ever publishes."""
        privacy = self.privacy
        return Guarantee(
            model="joint",
            epsilon=privacy.epsilon,
            delta=privacy.delta,
            mu=None if privacy.pure else privacy.budget.mu,
            relation=privacy.relation,
            unit=self._unit(privacy.episodes_per_user),
            releases=None,
            mechanism=_mechanism(privacy.pure, self._streams.kinds, self._plain),
            simulation_only=self._source.simulation,
            episodes_per_user=privacy.episodes_per_user,
        )

    # The gate: how far a user moves what is summed, and what she pays.

    def _sensitivity(self, statistic: Statistic, step: float) -> float:
        """How far two users are apart, in steps."""
        self._check_unit(statistic)
        return grid_sensitivity(statistic, self.privacy.relation, self.privacy.norm, step)

    def _noise(self, scale: float, size: int) -> NDArray[np.int64]:
        """Fresh noise of a release, in steps."""
        return self._source.steps(self.privacy.pure, scale, size)

    def _charge(self, costs: Mapping[int, float], label: str) -> None:
        """Lets users pay; nothing was drawn yet."""
        self.accounts.charge(costs, label, pending=self.autosave is not None)

    def check_ready(self) -> None:
        """Refuses in a forked process, and after a result that could not be saved."""
        self._owner.check("curator")
        if self._unsaved:
            raise BudgetExceeded(
                "the last release was paid for but could not be saved, so it was not published; "
                "save first, or resume from the last save"
            )

    def _publish(self, release: Release) -> Release:
        if self.autosave is None:
            return super()._publish(release)
        before = self._told
        # Until the result is on disk nobody may see it: a crash would forget it.
        self._unsaved = True
        try:
            super()._publish(release)
            self._save(self.autosave)
        except BaseException:
            self._told = before
            raise
        return release

    # Save and resume.

    def attach(self, extra: Extra) -> None:
        """Saves, from now on, also what ``extra()`` returns; loaded again it is in ``extra``."""
        self._extra = extra

    def autosave_to(self, path: FilePath) -> None:
        """Writes the state to ``path`` now, and again before anything is published."""
        path = os.path.abspath(file_name("autosave", path))  # whatever folder is entered later
        if self.id_file is None or self.id_file.beside != path:
            self.id_file = IdFile(path)
            self._participants.news = None
        self.save(path)
        self.autosave = path
        self.id_file.remove_others()

    @alone
    def save(self, path: FilePath) -> None:
        """Writes the curator's secret state (raw blocks, exact sums, drawn noise), mode 0600.

        Real noise is never saved as a generator. With a ledger the save can be resumed once, and
        only while nothing was published since.
        """
        self._settle()
        self._save(path)

    def _save(self, path: FilePath) -> None:
        self._owner.check("curator")
        path = os.path.abspath(file_name("path", path))
        save_curator(self, path)
        self._unsaved = False
        if path == self.autosave:
            self._autosaved = self.blocks

    @staticmethod
    def load(
        path: FilePath,
        *,
        ledger: FilePath | None = None,
        autosave: FilePath | None = None,
        source: NoiseSource | None = None,
    ) -> JointCurator:
        """Resumes a saved curator; streams continue through :meth:`resume_stream`.

        Args:
            path: of the save.
            ledger: the one that it was made with, as a path or opened.
            autosave: path of a state file, from now on.
            source: where noise comes from. It is never saved: who brought one brings it again.

        Raises:
            DoubleSpend: by the ledger, this save was resumed before or is out of date; or it was
                made with a ledger and none (or another) is given.
        """
        curator, mark = read_curator(path, source, JointCurator)
        curator._reopen(ledger, mark, autosave)
        return curator

    def _reopen(self, ledger: FilePath | None, mark: SaveMark, autosave: FilePath | None) -> None:
        reopen(self, ledger, mark, autosave)


def _check_filed(block: FiledBlock, most: int) -> None:
    """Its users come without ids: it has seen to it itself that nobody comes too often."""
    if block.episodes_per_user > most:
        raise InvalidArgument(
            f"a block of files has up to {block.episodes_per_user} episodes of a user, but "
            f"{most} were declared"
        )


def _mechanism(pure: bool, counters: Iterable[str], plain: bool) -> str:
    """What is released and with which noise, in words."""
    kinds = [f"{kind} counter" for kind in sorted(counters)]
    if plain or not kinds:
        kinds.append("releases under a budget filter")
    return f"{' and '.join(kinds)}, {exact_words(pure)}"
