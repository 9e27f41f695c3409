"""The joint curator: the one gate between raw data and everything that is published.

A curator holds raw blocks, sums bounded statistics over them, adds noise and keeps the accounts.
What comes out (:class:`Release`) is public; everything computed from it is post-processing.

Formal guarantee (joint model). A user is in one block. A release of sum_b w_b T_b + N(0, s^2 I)
with a statistic of sensitivity D moves, given all earlier releases, by at most |w_b| D when a user
of block b changes, which costs her (|w_b| D / s)^2 in mu^2. Weights, masks, statistics, blocks and
mu may all be chosen from earlier releases. The curator refuses a release that would bring any
block above its limit L = mu^2. Then everything it ever publishes is mu-Gaussian-DP in each user:
pad the transcript with independent dummy releases up to exactly L; the log-likelihood ratio is
then a sum of conditionally Gaussian increments whose variances are known one step ahead and add
up to L, that is, Brownian motion observed at L, so it is N(+-L/2, L) exactly. Under pure DP the
noise is Laplace, costs are epsilons, |w_b| D / s, and they add.

A *stream* feeds blocks into a counter; a block pays the counter's whole mu^2 when it enters, once.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.privacy.arguments import FilePath, file_name, instance_of, positive, whole_number
from tacit.privacy.budget import Relation
from tacit.privacy.counters import Counter, Noiseless, make_counter
from tacit.privacy.counters.base import Owner, noise_scale
from tacit.privacy.curators.gate import Curator, Release
from tacit.privacy.curators.joint_stream import JointStream
from tacit.privacy.errors import (
    BudgetExceeded,
    CorruptFile,
    DoubleSpend,
    InvalidArgument,
)
from tacit.privacy.exact import (
    ExactNoise,
    check_reach,
    check_scale,
    exact_words,
    grid_sensitivity,
    grid_step,
    grid_total,
    heard_shares,
    reach,
    uneven_rounding,
    whole_kind,
)
from tacit.privacy.guarantee import Guarantee
from tacit.privacy.ledger import Ledger
from tacit.privacy.ledger.opening import open_again, open_for
from tacit.privacy.ledger.records import Terms, above
from tacit.privacy.models import JointDP
from tacit.privacy.noise import Noise, NoiseSource, saved_source
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Floats, Statistic
from tacit.privacy.storage import read_state, write_state

Extra: TypeAlias = Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]]
"""What an agent adds to its curator's save."""

Numbers: TypeAlias = Floats | NDArray[np.int64]

# Rounding of sums of squares, not a loophole: a budget split into ten parts must be spendable.
_SLACK = 1e-12


class JointCurator(Curator):
    """The trusted curator of the joint model.

    Args:
        privacy: the model, with its budget.
        users: declared number of users.
        noise_seed: a reproducible simulation.
        source: another source of noise.
        ledger: path of a ledger file, made if there is none, or an opened :class:`Ledger`, in
            whose place none is ever made; every release is on it before it is published. If it is
            a ledger of people (:meth:`Ledger.create_for_people`), other runs may spend from it
            too: then every block needs user ids, everybody pays this model's whole budget when she
            first takes part, and those who cannot contribute nothing.
        autosave: path of a state file, written before anything is published (write-ahead), so
            that a killed process resumes where it was.
        protects: what is protected; see :attr:`tacit.Statistic.protects`.

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
        self._exact = privacy.sampler == "exact"
        if self._exact:
            if source is not None:
                raise InvalidArgument("sampler='exact' brings its own source of noise")
            source, noise_seed = ExactNoise(noise_seed), None
        super().__init__(
            users=users,
            noise_seed=noise_seed,
            source=source,
            episodes_per_user=privacy.episodes_per_user,
            once_per_block=privacy.disjoint,
            protects=protects,
        )
        self.privacy = privacy
        self._limit = privacy.episode_limit
        if self._limit < 1e-290:
            raise InvalidArgument(f"a budget of {privacy.budget} cannot be accounted for in floats")
        self._spent: dict[int, Fraction] = {}
        self._keys: dict[int, str] = {}
        self._streams: dict[str, JointStream] = {}
        self._saved_streams: dict[str, tuple[dict[str, Any], dict[str, Floats]]] = {}
        self._plain = False
        self._unsaved = False
        self._autosave: FilePath | None = None
        self._extra: Extra | None = None
        self.extra: tuple[dict[str, Any], dict[str, NDArray[Any]]] = ({}, {})
        self._ledger: Ledger | None = None
        if ledger is not None:
            terms = Terms.of(privacy, protects, simulation=self._source.simulation)
            opened = open_for(ledger, terms)
            opened.record_start(secrets.token_hex(16), terms)
            self._account_to(opened)
        if autosave is not None:
            # So that a process killed before its first release can be resumed too.
            self.autosave_to(autosave)

    def add(self, block: Block, user_ids: Sequence[int | str] | None = None) -> int:
        """See :meth:`Curator.add`."""
        instance_of("block", block, Block)
        if block.aggregate and not self._source.simulation:
            raise InvalidArgument(
                "nothing clips an aggregate block: it is for simulations (give noise_seed), "
                "real users come one by one"
            )
        if user_ids is None and self.needs_ids:
            raise InvalidArgument("the ledger counts people: give user_ids")
        if user_ids is None and self.privacy.disjoint and self.privacy.episodes_per_user > 1:
            raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
        with self._lock:
            number = super().add(block, user_ids)
            self._spent[number] = Fraction(0)
            # Unique for ever: a block lost in a crash must not share its account with a later one.
            self._keys[number] = f"{number}-{secrets.token_hex(6)}"
            return number

    @property
    def needs_ids(self) -> bool:
        """Whether every block needs user ids, because the ledger is one of people."""
        return self._ledger is not None and self._ledger.people

    @property
    def turned_away(self) -> int:
        """How many episodes counted as zero, as their users' budget was spent in other runs."""
        return self._participants.turned_away

    def spent(self, block: int) -> float:
        """What each user of a block has spent: mu^2, or epsilon under pure DP."""
        if whole_number("block", block, least=0) not in self._spent:
            raise InvalidArgument(f"block {block!r} was never added")
        return above(self._spent[block])

    def remaining(self, block: int) -> float:
        """What each user of a block may still spend."""
        return max(0.0, self._limit - self.spent(block))

    def release(
        self,
        statistic: Statistic,
        *,
        blocks: Iterable[int] | None = None,
        weights: ArrayLike | None = None,
        mask: Mapping[str, ArrayLike] | None = None,
        mu: float | None = None,
        epsilon: float | None = None,
        decay: float | None = None,
    ) -> Release:
        """Publishes sum over blocks of weight * statistic, with noise, and charges the users.

        Args:
            statistic: what to sum.
            blocks: which blocks; all that are here by default.
            weights: one number per block (1 by default). Users of a block with weight w pay
                (w / the largest)^2 of the cost.
            mask: per part, which entries to release. The others are dropped before the gate and
                get no noise: use it where they are zero for every user, as for counts of actions
                that a block's public policy never takes.
            mu: what the release costs users with the largest weight. By default all that is left.
            epsilon: the same under pure DP.
            decay: weights decay^-age, the newest block having age 0, and by default a cost such
                that releasing again after every block, for ever, stays within budget:
                mu^2 (1 - decay^-2), since the squares of the weights add up to 1 / (1 - decay^-2).

        Raises:
            BudgetExceeded: some block cannot afford it. Nothing is published or changed.
        """
        with self._lock:
            self.check_ready()
            self._check_unit(statistic)
            selection = self._selection(blocks, weights, self._blocks, decay)
            if self.privacy.disjoint and self.privacy.episodes_per_user > 1 and len(selection) > 1:
                raise InvalidArgument("disjoint=True was declared: release one block at a time")
            kept = None if mask is None else statistic.layout.pack_mask(mask)
            # At the gate the largest weight is 1: how large the caller's are is post-processing,
            # and must not decide how noise, sums and costs round.
            largest = max(abs(w) for w in selection.values())
            shares = {b: w / largest for b, w in selection.items()}
            smallest = 1.0
            if self._exact:
                shares, smallest = heard_shares(shares)
            step = self._step(statistic, smallest)
            sensitivity = self._sensitivity(statistic, step)
            sensitivity += uneven_rounding(statistic, self._norm, smallest)
            cost = self._cost(mu, epsilon, decay, shares)
            scale = noise_scale(sensitivity, cost)
            power = 1 if self.privacy.pure else 2
            costs = {b: (cost * abs(share)) ** power for b, share in shares.items()}
            self._afford(costs)
            if self._exact:
                check_scale(scale)
                users = {b: self._blocks[b].users for b in shares}
                check_reach(sum(reach(statistic, step, users[b], w) for b, w in shares.items()))
            with np.errstate(all="ignore"):
                totals = [
                    self._total(statistic, self._blocks[b], share, step)
                    for b, share in shares.items()
                ]
            self._charge(costs, f"release {statistic.name}")
            self._plain = True
            vector = step * (sum(totals) + self._noise(scale, statistic.layout.size))
            scale *= step
            if kept is not None:
                vector = np.where(kept, vector, 0.0)
            unit = scale * (math.sqrt(2.0) if self.privacy.pure else 1.0)
            with np.errstate(all="ignore"):
                weighted: Floats = np.asarray(largest * vector, dtype=np.float64)
            return self._publish(
                Release(
                    index=self.releases,
                    statistic=statistic.name,
                    parts=statistic.layout.unpack(weighted),
                    std=statistic.layout.stds(largest * unit),
                    users=sum(self._block_users[b] for b in selection),
                    cost=cost,
                )
            )

    def stream(
        self,
        statistic: Statistic,
        *,
        releases: int,
        name: str = "stream",
        kind: str = "auto",
        mu: float | None = None,
        epsilon: float | None = None,
    ) -> JointStream:
        """A counter over blocks: each block enters once and pays ``mu`` (all, by default).

        Args:
            statistic: what to sum.
            releases: how many blocks will enter, at most.
            name: under which it is saved and resumed.
            kind: a counter's kind, or ``"auto"``; see :func:`tacit.counter`.
            mu: what a block pays; all of an episode's budget by default.
            epsilon: the same under pure DP.
        """
        instance_of("name", name, str)
        instance_of("kind", kind, str)
        if name in self._streams or name in self._saved_streams:
            raise InvalidArgument(
                f"there is a stream {name!r}; resume_stream continues a saved one"
            )
        if self.privacy.disjoint and self.privacy.episodes_per_user > 1 and kind != "blocks":
            raise InvalidArgument("disjoint=True was declared: only kind='blocks' keeps to it")
        self._check_unit(statistic)
        cost = self._cost(mu, epsilon, None, None)
        if kind == Noiseless.kind:
            raise InvalidArgument("a joint curator adds noise; without it use tacit.NonPrivate()")
        if self._exact:
            kind = whole_kind(kind)
        if (cost if self.privacy.pure else cost**2) > self._limit * (1.0 + _SLACK):
            raise BudgetExceeded(f"a stream of cost {cost:.6g} exceeds an episode's whole budget")
        step = self._step(statistic)
        made = make_counter(
            kind,
            sensitivity=self._sensitivity(statistic, step),
            releases=releases,
            shape=(statistic.layout.size,),
            mu=None if self.privacy.pure else cost,
            epsilon=cost if self.privacy.pure else None,
            source=self._source,
        )
        stream = JointStream(self, name, statistic, made, cost, step)
        self._streams[name] = stream
        return stream

    def resume_stream(self, name: str, statistic: Statistic) -> JointStream:
        """Continues a stream of a loaded curator, with the statistic it had."""
        if name not in self._saved_streams:
            raise InvalidArgument(f"no saved stream {name!r}; there are {[*self._saved_streams]}")
        meta, arrays = self._saved_streams[name]
        if meta["statistic"] != statistic.fingerprint:
            raise InvalidArgument(f"stream {name!r} was of another statistic")
        made = Counter.revive(meta, arrays, self._source)
        stream = JointStream(self, name, statistic, made, meta["cost"], meta["step"])
        stream.entered = set(meta["entered"])
        stream.users, stream.reach = meta["users"], meta.get("reach", 0.0)
        del self._saved_streams[name]
        self._streams[name] = stream
        return stream

    @property
    def guarantee(self) -> Guarantee:
        """What is proven of everything this curator ever publishes."""
        streams = {s.counter.kind for s in self._streams.values()}
        streams |= {meta["counter"] for meta, _ in self._saved_streams.values()}
        kinds = [f"{kind} counter" for kind in sorted(streams)]
        if self._plain or not kinds:
            kinds.append("releases under a budget filter")
        noise = "Laplace noise" if self.privacy.pure else "Gaussian noise"
        if self._exact:
            noise = exact_words(self.privacy.pure, self.privacy.epsilon, self.privacy.delta)
        g = self.privacy.episodes_per_user
        return Guarantee(
            model="joint",
            epsilon=self.privacy.epsilon,
            delta=self.privacy.delta,
            mu=None if self.privacy.pure or self._exact else self.privacy.budget.mu,
            relation=self.privacy.relation,
            unit=self._unit(g),
            releases=None,
            mechanism=f"{' and '.join(kinds)}, {noise}",
            sampler=self.privacy.sampler,
            simulation_only=self._source.simulation,
            episodes_per_user=g,
        )

    # Accounts.

    def check_ready(self) -> None:
        """Refuses in a forked process, and after a result that could not be saved."""
        self._owner.check("curator")
        if self._unsaved:
            raise BudgetExceeded(
                "the last release was paid for but could not be saved, so it was not published; "
                "save first, or resume from the last save"
            )

    @property
    def _norm(self) -> Literal["l1", "l2"]:
        return "l1" if self.privacy.pure else "l2"

    def _step(self, statistic: Statistic, share: float = 1.0) -> float:
        """What sums are whole numbers of, under exact noise; 1 otherwise."""
        return grid_step(statistic, self._norm, share) if self._exact else 1.0

    def _sensitivity(self, statistic: Statistic, step: float) -> float:
        """How far two users are apart, in steps."""
        self._check_unit(statistic)
        if self._exact:
            return grid_sensitivity(statistic, self.privacy.relation, self._norm, step)
        return statistic.sensitivity(self.privacy.relation, self._norm)

    def _total(self, statistic: Statistic, block: Block, share: float, step: float) -> Numbers:
        """The sum over a block's users, in steps: integers, under exact noise."""
        if self._exact:
            return grid_total(statistic, block, share, step)
        return share * statistic.total(block)

    def _noise(self, scale: float, size: int) -> Numbers:
        """Fresh noise of a release, in steps."""
        if isinstance(self._source, ExactNoise):
            return self._source.steps(self.privacy.pure, scale, size)
        draw = self._source.laplace if self.privacy.pure else self._source.normal
        return scale * draw((size,))

    def _cost(
        self,
        mu: float | None,
        epsilon: float | None,
        decay: float | None,
        shares: Mapping[int, float] | None,
    ) -> float:
        """The cost of a release in mu or epsilon: as asked for, or all that is left."""
        given, refused = (epsilon, mu) if self.privacy.pure else (mu, epsilon)
        if refused is not None:
            unit = "epsilon" if self.privacy.pure else "mu"
            raise InvalidArgument(f"this budget is spent in {unit}; give that")
        if given is not None:
            return positive(f"{'epsilon' if self.privacy.pure else 'mu'}, the cost,", given)
        power = 1 if self.privacy.pure else 2
        if decay is not None:
            return float((self._limit * (1.0 - decay**-power)) ** (1.0 / power))
        if shares is None:
            return float(self._limit ** (1.0 / power))
        # A share so small that its square is no float costs nothing that a float could count.
        parts = {b: abs(share) ** power for b, share in shares.items()}
        left = min(self.remaining(b) / part for b, part in parts.items() if part > 0.0)
        if left <= self._limit * _SLACK:
            poorest = min(shares, key=self.remaining)
            raise BudgetExceeded(f"the users of block {poorest} have spent all their budget")
        return float(left ** (1.0 / power))

    def _afford(self, costs: Mapping[int, float]) -> None:
        unit = "epsilon" if self.privacy.pure else "mu^2"
        for block, cost in costs.items():
            # Exactly: a cost that a float would lose beside what was spent is not free.
            if self._spent[block] + Fraction(cost) > self._limit * (1.0 + _SLACK):
                raise BudgetExceeded(
                    f"block {block} has spent {self.spent(block):.6g} of {self._limit:.6g} "
                    f"{unit}; {cost:.6g} more is too much"
                )

    def _charge(self, costs: Mapping[int, float], label: str) -> None:
        """Puts the cost on disk, then into memory; nothing was drawn yet."""
        self._afford(costs)
        if self._ledger is not None:
            by_key = {self._keys[block]: cost for block, cost in costs.items()}
            self._ledger.charge(by_key, label, pending=self._autosave is not None)
        for block, cost in costs.items():
            self._spent[block] += Fraction(cost)

    def _publish(self, release: Release) -> Release:
        before = self.last_release
        super()._publish(release)
        if self._autosave is not None:
            # Until the result is on disk nobody may see it: a crash would forget it.
            self._unsaved = True
            try:
                self.save(self._autosave)
            except BaseException:
                self.last_release = before
                self.releases -= 1
                raise
        return release

    # Save and resume.

    def attach(self, extra: Extra) -> None:
        """Saves, from now on, also what ``extra()`` returns: JSON values and arrays of an agent.

        Loaded again they are in ``extra``.
        """
        self._extra = extra

    def autosave_to(self, path: FilePath) -> None:
        """Writes the state to ``path`` now, and again before anything is published."""
        self.save(file_name("autosave", path))
        self._autosave = path

    def save(self, path: FilePath) -> None:
        """Writes the curator's secret state (raw blocks, exact sums, drawn noise), mode 0600.

        Real noise is never saved as a generator. With a ledger the save can be resumed once, and
        only while nothing was published since.
        """
        with self._lock:
            self._owner.check("curator")
            self._save(path)
            self._unsaved = False

    def _save(self, path: FilePath) -> None:
        token, ledger = secrets.token_hex(16), self._ledger
        if ledger is None:
            self._write(path, token, None, "")
            return
        run = ledger.run
        # The ledger is asked first: a process whose run another one took over would write over
        # the state of that run. What is recorded is on disk by then all the same.
        ledger.record_save(token, lambda sequence: self._write(path, token, sequence, run))

    def _write(self, path: FilePath, token: str, after: int | None, run: str) -> None:
        """Writes the state file; ``after`` is the ledger's last entry that it knows of."""
        meta: dict[str, Any] = {
            "token": token,
            "ledger": None if self._ledger is None else self._ledger.id,
            "run": run,
            "after": after,
            "privacy": {
                "epsilon": self.privacy.epsilon,
                "delta": self.privacy.delta,
                "relation": self.privacy.relation.value,
                "episodes_per_user": self.privacy.episodes_per_user,
                "disjoint": self.privacy.disjoint,
                "sampler": self.privacy.sampler,
            },
            "declared_users": self.declared_users,
            "protects": self.protects,
            "releases": self.releases,
            "plain": self._plain,
            "block_users": self._block_users,
            "spent": [[*self._spent[b].as_integer_ratio()] for b in range(len(self._block_users))],
            "keys": [self._keys[b] for b in range(len(self._block_users))],
            "blocks": {str(b): [raw.users, raw.aggregate] for b, raw in self._blocks.items()},
            "noise": saved_source(self._source),
            "own_source": type(self._source) not in (Noise, ExactNoise),
            "streams": {},
        }
        arrays: dict[str, NDArray[Any]] = self._participants.dump(meta)
        for number, raw in self._blocks.items():
            arrays |= {f"block/{number}/{name}": array for name, array in raw.arrays.items()}
        saved = dict(self._saved_streams)
        saved |= {name: stream.dump() for name, stream in self._streams.items()}
        for name, (stream_meta, stream_arrays) in saved.items():
            meta["streams"][name] = stream_meta
            arrays |= {f"stream/{name}/{key}": array for key, array in stream_arrays.items()}
        _dump_release(self.last_release, meta, arrays)
        meta["extra"], more = self.extra if self._extra is None else self._extra()
        arrays |= {f"extra/{name}": array for name, array in more.items()}
        write_state(path, "curator", meta, arrays)

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
            InvalidArgument: the save was made with a source of its own and none is given; or one
                is given for a simulation.
        """
        state = read_state(path, "curator")
        meta, arrays = state.meta, state.arrays
        _check_source(meta, source)
        try:
            options = dict(meta["privacy"])
            options["relation"] = Relation(options["relation"])
            privacy = JointDP(**options)
            curator = JointCurator(
                privacy,
                users=meta["declared_users"],
                protects=meta["protects"],
                noise_seed=None if meta["noise"] is None else 0,
            )
            kind = ExactNoise if curator._exact else Noise
            curator._source = kind.from_state(meta["noise"])
            curator._owner = Owner(curator._source.simulation)
            curator.releases = meta["releases"]
            curator._plain = meta["plain"]
            curator._block_users = list(meta["block_users"])
            curator.users = sum(curator._block_users)
            curator._spent = dict(enumerate(Fraction(*spent) for spent in meta["spent"]))
            curator._keys = dict(enumerate(meta["keys"]))
            for number, (users, aggregate) in meta["blocks"].items():
                raw = _with_prefix(arrays, f"block/{number}/")
                curator._blocks[int(number)] = Block(users, raw, aggregate)
            for name, stream_meta in meta["streams"].items():
                curator._saved_streams[name] = (
                    stream_meta,
                    _with_prefix(arrays, f"stream/{name}/"),
                )
            curator._participants.restore(meta, arrays)
            curator.extra = (meta["extra"], _with_prefix(arrays, "extra/"))
            curator.last_release = _revive_release(meta, arrays)
            identity, token, after = meta["ledger"], meta["token"], meta["after"]
            run = meta.get("run", "")
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise CorruptFile(f"{os.fspath(path)!r}: not a saved curator ({error})") from None
        if source is not None:
            if curator._exact:
                raise InvalidArgument("sampler='exact' brings its own source of noise")
            curator._source = source
        curator._reopen(ledger, identity, token, after, run, autosave)
        return curator

    def _reopen(
        self,
        ledger: FilePath | None,
        identity: str | None,
        token: str,
        after: int | None,
        run: str,
        autosave: FilePath | None,
    ) -> None:
        """Asks the ledger whether this save may go on, and takes over what it knows was spent."""
        opened = None if ledger is None else open_again(ledger)
        if (None if opened is None else opened.id) != identity:
            raise DoubleSpend(
                "this save belongs to a ledger: give ledger=, the same file"
                if identity is not None
                else "this save was made without a ledger: it cannot join one"
            )
        if opened is None:
            if autosave is not None:
                self.autosave_to(autosave)
            return
        if autosave is None:
            opened.record_resume(token, after=after, run=run)
            self._account_to(opened)
            return
        # The ledger voids the save that is resumed, and the next one must be on disk by then: a
        # crash in between would end the run.
        target, successor = autosave, secrets.token_hex(16)

        def write(sequence: int) -> None:
            self._account_to(opened)
            self._write(target, successor, sequence, run)

        opened.record_resume(token, after=after, run=run, successor=successor, write=write)
        self._account_to(opened)
        opened.record_save(successor)
        self._autosave = autosave

    def _account_to(self, ledger: Ledger) -> None:
        """Spends from this ledger from now on, and takes over what it knows was spent."""
        self._ledger = ledger
        if ledger.people:
            self._participants.join_by(ledger.join, ledger.key)
        for block, key in self._keys.items():
            # A charge whose release a crash cut off stays charged.
            self._spent[block] = max(self._spent[block], ledger.spent_exactly(key))


def _check_source(meta: dict[str, Any], source: NoiseSource | None) -> None:
    """Whether a save can go on with this source, or without one."""
    if source is None:
        if meta.get("own_source"):
            raise InvalidArgument(
                "this save was made with a source of noise of its own, which no file holds: give "
                "source="
            )
    elif meta.get("noise") is not None or source.simulation:
        # What was or will be drawn from a seed protects nobody; half of a run would hide that.
        raise InvalidArgument(
            "source is for real runs, and neither it nor the save may be a simulation"
        )


def _with_prefix(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _dump_release(
    release: Release | None, meta: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> None:
    if release is None:
        meta["last"] = None
        return
    meta["last"] = {
        "index": release.index,
        "statistic": release.statistic,
        "std": {name: float(np.asarray(value)) for name, value in release.std.items()},
        "users": release.users,
        "cost": release.cost,
    }
    arrays |= {f"last/{name}": value for name, value in release.parts.items()}


def _revive_release(meta: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Release | None:
    if meta["last"] is None:
        return None
    return Release(parts=_with_prefix(arrays, "last/"), **meta["last"])
