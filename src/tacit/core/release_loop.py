"""The release loop: the way of one block of users, from its seal to the policy that it teaches.

A block is two commits. The first charges its users, records the release and erases their episodes;
the second is the state that has learnt from the record, and its policy. Before the first nothing
was spent and nothing seen; between the two, everything is computed from the record. An algorithm
with several queries has a commit for each, and episodes are erased with the checkpoint.

    seal -> sum and noise -> commit 1: release -> update -> plan -> commit 2: checkpoint, policy

So there is one way to recover from anything: read the store, and go on.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias, cast

import numpy as np

from tacit.core.algorithm import Algorithm, BlockInfo, Plan
from tacit.core.intake import EpisodeIntake, with_component
from tacit.core.late import joined
from tacit.core.stored_run import Checkpoint, RunView, StoredRun
from tacit.privacy.curator import Release
from tacit.privacy.errors import BudgetExceeded, CorruptFile, InvalidArgument
from tacit.privacy.local import LocalCurator
from tacit.privacy.statistic import Block, Statistic, frozen
from tacit.store import ledger, runs
from tacit.store.store import Conflict
from tacit.store.values import dump, load

# Seconds after which a closed block has all places that were taken in it, by whatever process.
GRACE = 1.0
# After so many conflicts over one block, forgetting waits for it; for so many seconds at most.
_MOST_CONFLICTS, _HOLD = 3, 30.0
_CLOCKS = 60.0  # seconds by which clocks of processes may differ
_CHECKPOINTS = 32  # versions that can be rolled back to
_Learnt: TypeAlias = tuple[list[Statistic], list[Release], Any]  # queries, releases, new state


class ReleaseLoop:
    """Moves the blocks of a run on, the oldest first."""

    def __init__(self, run: StoredRun, intake: EpisodeIntake) -> None:
        self.run, self.intake = run, intake
        self._conflicts = 0  # over the oldest block, in a row

    def step(self) -> bool:
        """Moves the oldest block on by its two commits; whether to call it again."""
        run = self.run
        view = run.look()
        block = view.blocks[0]
        if block.stage in ("open", "closed") and block.at > time.time() + _CLOCKS:
            # The clock was set back: its time begins anew, or it would wait for that long.
            with run.store.write() as db:
                runs.set_block(db, block, at=time.time())
            view = run.look(fresh=True)
        if self.intake.close_by_clock(view.blocks[-1]):
            view = run.look(fresh=True)
        if not self._ready(view):
            return False
        try:
            self._move(view)
            self._conflicts = 0
        except Conflict:  # another process was faster, or a user was forgotten: look again
            run.view, self._conflicts = None, self._conflicts + 1
            if self._conflicts >= _MOST_CONFLICTS:
                with run.store.write() as db:
                    runs.set_run(db, run.name, hold=time.time() + _HOLD)
        return True

    def _ready(self, view: RunView) -> bool:
        """Whether a block can be moved on: all its users have come, or had time to."""
        block = view.blocks[0]
        if block.stage == "open":
            return bool(0 < block.size <= block.places + self.intake.buffer.users(block.block))
        since = time.time() - block.at
        if block.stage != "closed" or since >= self.intake.window:
            return True
        if block.users < block.places or since < GRACE:
            return False
        with self.run.store.read() as db:
            return not runs.incomplete(db, view.row, block.block)

    # Seal: from here on the block's users are known.

    def _seal(self, view: RunView) -> RunView:
        """The run once its oldest block is sealed; the next one opens if it may."""
        run = self.run
        with run.store.write() as db:
            runs.fence(db, view.row)
            row, rest = runs.find(db, run.name), runs.undone(db, view.row)
            view, block = view._replace(row=row, blocks=rest), rest[0]
            if block is view.blocks[-1]:
                self.intake.spill(db, view)
            if empty := not block.users and run.algorithm.privacy.devices_add:
                # Without reports there is no noise either: others may come in their place.
                runs.set_block(db, block, stage="open", size=block.size + block.places)
            else:
                runs.set_block(db, block, stage="sealed")
                if block is view.blocks[-1] and run.fills_ahead(view):
                    run.open_next(db, view)
        if empty:
            raise Conflict("nobody came")
        return view

    def _move(self, view: RunView) -> None:
        """Takes a block through both commits, once it is sealed."""
        run, now = self.run, view.checkpoint
        block = view.blocks[0]
        if block.stage in ("open", "closed") or (block.stage == "sealed" and not block.users):
            view = self._seal(view)
            block = view.blocks[0]
        shares = {int(version): n for version, n in json.loads(block.versions).items()}
        users = block.places
        if run.algorithm.privacy.devices_add:  # reports are of the version that serves
            users, shares = block.users, {view.row.version: block.users}
        plans = {now.plan.policy.version: now.plan} if view.on_policy else {}
        with run.store.read() as db:
            done, held = runs.recorded(db, view.row, block.block), []
            if block.stage == "sealed":
                held = runs.data_of(db, view.row, block.block)
            if plans and plans.keys() != shares.keys():
                plans = self._plans(db, now, shares)
            if run.releases_drawn != view.row.releases:
                # Another process was here, or something was raised.
                run.revive(db, view.row, now)
        plan, raw = now.plan if len(plans) != 1 else next(iter(plans.values())), None
        if block.stage != "released":
            asked = now if plan is now.plan else replace(now, plan=plan)
            raw = self.read_block(view.row, asked, held)
        if len(plans) > 1:
            plan, raw = self._mixed(plans, shares, raw)
        info = BlockInfo(**vars(now.at), users=users, versions=shares)
        rest, first, rng = run.queries(now, plan, info)
        try:
            learnt = self._release(view.row, block, raw, (rest, first), done)
        finally:
            rest.close()
        self._publish(view, learnt, info, rng)

    # Read: the episodes of the block, and the plans that its users followed.

    def read_block(
        self, row: Any, now: Checkpoint, held: Sequence[tuple[int, int, bytes]]
    ) -> Block:
        """The episodes of a sealed block; they are held here alone, and read-only.

        Raises:
            Conflict: Some of them are none of the run's schema; they are set aside by now.
        """
        found, bad = list[Block](), list[int]()
        curator, made = self.run.curator, getattr(self.run.curator, "made", "")
        for number, users, data in held:
            try:
                part = self.intake.packets.get(number)
                if part is None:
                    aggregate, arrays = load(data)
                    part = Block(users, arrays, aggregate)
                    if "came" in arrays:
                        part = joined(part, self.intake.default_reward)
                        part = with_component(part, now.plan.policy, False)
                if isinstance(curator, LocalCurator) and made in part.arrays:
                    # One that no device makes counts as zero: sums with it would be lost.
                    checked = curator.checked_reports(self.run.statistic(now), part[made])
                    part = Block(users, {**part.arrays, **checked.arrays})
                self.intake.check_schema(now, part)
                found.append(part)
            except (CorruptFile, InvalidArgument, ValueError, TypeError):
                bad.append(number)
        if bad:
            with self.run.store.write() as db:
                for number in bad:
                    runs.set_aside(db, row, number)
            raise Conflict("rows were set aside")
        if len(found) == 1:
            return found[0]
        # Columns that all of them have.
        names = [n for n in (found[0].arrays if found else ()) if all(n in b.arrays for b in found)]
        users = sum(block.users for block in found)
        whole = {name: np.concatenate([block[name] for block in found]) for name in names}
        return frozen(Block(users, whole))

    def _plans(self, db: Any, now: Checkpoint, shares: Mapping[int, int]) -> dict[int, Plan]:
        """Plans that the users of a block followed."""
        found = dict[int, Plan]()
        for version in sorted(shares):
            if version == now.plan.policy.version:
                found[version] = now.plan
            else:  # users of a version that is not kept count as zero
                with contextlib.suppress(InvalidArgument):
                    found[version] = self.run.load_checkpoint(db, version, True).plan
        return found

    def _mixed(
        self, plans: dict[int, Plan], shares: Mapping[int, int], raw: Block | None
    ) -> tuple[Plan, Block | None]:
        """The plan of a block, and its users as it needs them: versions are components of one."""
        plan = self.run.algorithm.mixed(plans, {version: shares[version] for version in plans})
        if raw is None or raw.aggregate or not raw.users:
            return plan, raw
        versions, first = np.asarray(raw["versions"]), 0
        drawn = np.asarray(raw.arrays.get("components", np.zeros(raw.users, dtype=np.int64)))
        components = np.full(raw.users, -1, dtype=np.int64)
        for version, one in plans.items():
            count = len(getattr(one.policy, "components", (one.policy,)))
            mine = (versions == version) & (drawn >= 0) & (drawn < count)
            components[mine] = first + drawn[mine]
            first += count
        known = np.full(raw.users, plan.policy.version, dtype=np.int64)
        arrays = {**raw.arrays, "components": components, "versions": known}
        return plan, frozen(Block(raw.users, arrays))

    # Commit 1: the release.

    def _release(
        self, row: Any, block: Any, raw: Block | None, queries: Any, done: list[Any]
    ) -> _Learnt:
        """Takes queries to the curator and commits each release; those on record are replayed.

        Nothing that could fail on a value stands between drawing and the commit.
        """
        run, privacy = self.run, self.run.algorithm.privacy
        releases = [load(each.value) for each in done]
        spent = sum((Fraction(each.cost) for each in done), Fraction(0))
        asked, (rest, query) = list[Statistic](), queries
        limit = Fraction(getattr(run.curator, "limit", 1))  # of devices, one report
        single_query = type(run.algorithm).learn is Algorithm.learn
        while True:
            if len(asked) == len(releases):
                if raw is None:
                    raise BudgetExceeded("a block is asked more than is on record of it")
                mu = query.price(privacy)
                run.releases_drawn = -1  # until the commit counter and noise are ahead of it
                if run.stream is not None:
                    run.stream.ask(query.statistic)
                    release = run.stream.release_block(raw)
                else:
                    release = run.curator.release_block(query.statistic, raw, mu=mu, spent=spent)
                if not raw.aggregate and not privacy.devices_add:
                    # Who has a place is public; who of them sent is not told.
                    before = row.served if run.stream is not None else 0
                    release = replace(release, users=before + block.places)
                cost, secrets = run.curator.price(release), run.curator.secrets(run.stream)
                drawn = runs.Draw(len(asked), dump(release), cost, spent, limit, single_query)
                secrets = {name: dump(secret) for name, secret in secrets.items()}
                with run.store.write() as db:
                    runs.release(db, row, block, drawn)
                    run.store.put_secrets(db, run.name, secrets)
                    row = runs.find(db, run.name)
                run.releases_drawn = row.releases
                releases.append(release)
                spent += cost
            asked.append(query.statistic)
            try:
                query = rest.send(releases[len(asked) - 1])
            except StopIteration as end:
                return asked, releases, end.value

    # Commit 2: the checkpoint and its policy.

    def _publish(
        self, view: RunView, learnt: _Learnt, info: BlockInfo, rng: np.random.Generator
    ) -> None:
        """Plans from the state that the record taught, and commits it as the next version."""
        run, algorithm, now = self.run, self.run.algorithm, view.checkpoint
        at = replace(now.at, releases=now.at.releases + 1, served=now.at.served + info.users)
        asked, releases, state = learnt
        told = (asked, releases, run.stream is not None, algorithm.monitored)
        record = now.record.extended(view.row.version, info.users, *told)
        plan = algorithm.plan(state, now.plan, at, rng)
        plan = algorithm.numbered(plan, view.row.latest + 1)
        after = Checkpoint(state, plan, at, rng.bit_generator.state, record)
        on_policy, packed = algorithm.on_policy(plan), dump(after, run.code)
        with run.store.write() as db:
            row, rest = runs.find(db, run.name), runs.undone(db, view.row)
            if row.latest != view.row.latest:
                raise Conflict("the run has moved on")
            needed = [int(v) for each in rest for v in json.loads(each.versions) if int(v) >= 0]
            keep = min([row.latest + 2 - max(_CHECKPOINTS, algorithm.max_age), *needed])
            runs.publish(db, row, packed, at.served, keep)
            view = RunView(runs.find(db, run.name), rest, after, on_policy)
            self._finish(db, view)
        self.intake.packets.clear()
        run.view = view
        run.store.erase_traces()

    def _finish(self, db: Any, view: RunView) -> None:
        """Ends the oldest block; where users did not come ahead, the next one opens."""
        block = view.blocks[0]
        runs.erase(db, view.row, block.block)
        runs.set_block(db, block, stage="done")
        if block is view.blocks[-1]:
            self.run.open_next(db, view)
        view.blocks.remove(block)

    def close(self) -> None:
        """Ends the block that fills early: users who have come are released."""
        run = self.run
        with run.store.write() as db:
            row = runs.find(db, run.name)
            for block in runs.undone(db, row):
                waiting = self.intake.buffer.users(block.block)
                if block.stage == "closed":
                    runs.set_block(db, block, at=0.0)
                elif block.stage == "open" and block.places + waiting:
                    runs.set_block(db, block, size=block.places + waiting)
        run.view = None
        while self.step():
            pass

    def roll_back(self, version: int, pin: bool = False, arms: Any = ("", None)) -> None:
        """Serves and learns on from an older version, under a new number; or changes its arms."""
        run, devices_add = self.run, self.run.algorithm.privacy.devices_add
        view = run.look()
        row, block, at = view.row, view.blocks[0], view.checkpoint.at
        # A block that is released and not learnt from is left out; other reports wait for theirs.
        if devices_add and view.blocks[-1].places and view.blocks[-1].stage != "released":
            raise InvalidArgument("devices report for the version that serves: no way back now")
        with run.store.read() as db:
            old, done = run.load_checkpoint(db, version), runs.recorded(db, row, block.block)
        # Users served and releases only go forward, and so do counters.
        if done:
            users = block.users if devices_add else block.places
            at = replace(at, releases=at.releases + 1, served=at.served + users)
        plan, (what, policy), made = old.plan, arms, cast(Any, run.algorithm)
        plan = made.adopted(plan, policy) if what == "adopt" else plan
        plan = made.gone_live(old.state, plan.memory, at) if what == "go live" else plan
        new = replace(old, plan=run.algorithm.numbered(plan, row.latest + 1), at=at)
        packed, number = dump(new, run.code), row.latest + 1
        with run.store.write() as db:
            ledger.append(db, run.name, what or "roll back", to=version, version=number)
            runs.publish(db, row, packed, at.served, 0, pinned=0)
            if done:
                now = runs.find(db, run.name), runs.undone(db, row)
                self._finish(db, RunView(*now, new, on_policy=False))
            if pin:
                runs.set_run(db, run.name, pinned=1)
        run.view = None
