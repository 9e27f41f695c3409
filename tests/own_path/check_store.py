"""Real runs and their stores: who counts how often, and that nothing is drawn, paid or kept twice.

In silence, a run whose store is opened again in the middle of a block must release what an
uninterrupted one does, bit for bit.
"""

import contextlib
import importlib.util
import math
import os
import shutil
import stat
import tempfile
from decimal import Decimal
from fractions import Fraction
from unittest import mock

import numpy as np

from tacit.privacy.budget import Budget, delta_from_mu, epsilon_from_mu
from tacit.privacy.errors import BudgetExceeded, CheckFailed
from tacit.privacy.standard import ClippedSum
from tacit.privacy.statistic import Block
from tacit.store import ledger
from tacit.testing.check_agent import check_ledger
from tacit.testing.recording import RecordingCurator
from tests.own_path import noise_statistics as tests
from tests.own_path import rules as own
from tests.own_path import runs as real
from tests.own_path.check_entropy import in_child
from tests.own_path.rules import answers_of


def store_outcomes(trial):
    """People, and stores that are opened again."""
    wrong = [w for name, options in trial.models for w in _people(trial, name, options)]
    opened = _opened(trial) if trial.privacy.joint else []
    return [real.judged("people", wrong), real.judged("store", opened)]


def _people(trial, name, options):
    """In silence: the rows are summed that the declared rule counts, after an opening too."""
    pool, path = trial.pool, trial.folder("people") / "run.db"
    ids, at = real.mixed_ids(pool.users, pool.users, 1), 0
    with RecordingCurator().open() as recorder, real.drawing(quiet=True):
        while at < pool.users:
            agent = trial.make(store=path, **options)
            privacy, end = agent.privacy, min(pool.users, at + max(1, agent.block_users // 2))
            at = real.serve(agent, pool, ids, at, end)
            agent.store.close()
    if privacy.separate_blocks and privacy.episodes_per_user > 1:
        return []  # which block somebody is in depends on who came before
    kept = np.flatnonzero(own.counted([ids], privacy.episodes_per_user, False)[0])
    blocks = [*recorder.blocks.values()]
    count = sum(block.users for block in blocks)
    wrong = not 0 < count <= len(kept)
    for column in [] if privacy.local else ("states", "rewards"):
        if column in pool.arrays and blocks:
            seen = np.concatenate([block[column] for block in blocks])
            wrong |= seen.tobytes() != pool[column][kept[:count]].tobytes()
    return [f"{name}: other rows count than the first of everybody"] if wrong else []


def _opened(trial):
    """A store that is opened again, copied, forked and read by others."""
    path, pool, found = trial.folder("store") / "run.db", trial.pool, list[str]()
    agent = trial.make(store=path)
    cut = agent.block_users + agent.block_users // 3
    elsewhere = trial.folder("temporary")
    with mock.patch.object(tempfile, "tempdir", os.fspath(elsewhere)):
        at = real.serve(agent, pool, [f"u{i}" for i in range(pool.users)], 0, min(cut, pool.users))
    if any(elsewhere.iterdir()):
        found.append("a run leaves files beside its store")
    try:
        check_ledger(agent)
    except CheckFailed as error:
        found.append(str(error))
    for file in path.parent.iterdir():
        if stat.S_IMODE(file.stat().st_mode) & 0o077 and file.stat().st_size:
            found.append(f"{file.suffix} of a store can be read by others")
    agent.store.close()
    left = pool["states"][0].tobytes() if "states" in pool.arrays else b"nobody"
    if len(left) > 24 and left in path.read_bytes() and at > cut:
        found.append("episodes that were released are still in the file")
    draws = []
    for name in ("one", "two"):
        copied = path.with_name(name)
        shutil.copyfile(path, copied)
        again = trial.make(store=copied)
        with RecordingCurator().open() as recorder, real.drawing() as drawn:
            real.serve(again, pool, [f"v{i}" for i in range(pool.users)], at)
        if again._run.stream is None:
            found += [f"opened, {w}" for a in answers_of(recorder, drawn) for w in a.wrong]
        draws += [d.values for d in drawn]
        if again.guarantee.simulation_only:
            found.append("opened again, a real run says that it is a simulation")
        again.store.close()
    if draws and min(d.size for d in draws) > 3:
        scale = 2.0**20
        found += tests.repeats_wrong(draws, scale, trial.law)
    if hasattr(os, "fork"):
        found += _forked(trial)
    return found


def _forked(trial):
    """A child refuses to go on with its parent's agent."""
    agent = trial.make()

    def learn():
        try:
            real.serve(agent, trial.pool, stop=agent.block_users)
        except Exception as error:
            return type(error).__name__.encode()
        return b"went on"

    said = in_child(learn)
    return [] if said != b"went on" else ["a forked process goes on with its parent's agent"]


_BUDGETS = ((1.0, 1e-6), (0.1, 1e-3), (0.3, 1e-9), (4.0, 1e-5), (12.0, 1e-12))


def accounts_outcomes(trial):
    """Budgets to mu and back, groups, several asks, and this agent's ledger."""
    wrong = _conversions(trial)
    if trial.privacy.joint:
        wrong += _several(trial) + _ledger(trial)
    return [real.judged("accounts", wrong)]


def _conversions(trial):
    found, privacy, mine = [], trial.privacy, own.episode_limit(trial.privacy)
    for epsilon, delta in dict.fromkeys(((privacy.epsilon, privacy.delta), *_BUDGETS)):
        if delta == 0.0:
            continue
        mu, wanted, name = Budget(epsilon, delta).mu, Decimal(delta), f"({epsilon:g}, {delta:g})"
        if own.hockey_stick(mu, epsilon) > wanted * Decimal("1.0000000001"):
            found.append(f"the mu of {name} is too large: {mu!r}")
        if own.hockey_stick(mu * (1.0 + 1e-7), epsilon) <= wanted:
            found.append(f"the mu of {name} wastes budget: {mu!r}")
        for m in (mu, 0.4 * mu, 3.0 * mu):
            exact, theirs = float(own.hockey_stick(m, epsilon)), delta_from_mu(m, epsilon)
            if not exact * (1.0 - 1e-13) <= theirs <= exact * (1.0 + 1e-8) + 1e-300:
                found.append(f"delta of mu {m:g} at {epsilon:g} is {theirs!r}")
        back = epsilon_from_mu(mu, delta)
        if not epsilon * (1.0 - 1e-7) <= back <= epsilon * (1.0 + 1e-9):
            found.append(f"epsilon of mu {mu:g} at {delta:g} is {back!r}, not {epsilon:g}")
        if importlib.util.find_spec("dp_accounting") is not None:
            from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss

            google = GaussianPrivacyLoss(1.0 / mu).get_delta_for_epsilon(epsilon)
            if not math.isclose(google, delta, rel_tol=1e-4, abs_tol=1e-15):
                found.append(f"by dp-accounting mu {mu:g} is ({epsilon:g}, {google:g}), not {name}")
    limit = privacy.episode_limit if privacy.joint else privacy.report_cost**trial.power
    if not mine * (1.0 - 1e-7) <= limit <= mine * (1.0 + 1e-10):
        found.append(f"an episode may cost {limit!r}, by our own account {mine!r}")
    return found


def _several(trial):
    """Asks of one block add up, tiny ones count, and more than there is is refused."""
    privacy, limit, statistic = trial.privacy, own.episode_limit(trial.privacy), ClippedSum(1)
    data, curator, found = Block(3, {"values": np.full((3, 1), 0.5)}), privacy.curator(), []
    block, before, whole = curator.add(data), Fraction(0), math.sqrt(limit)
    # Less than 1e-10 would need more noise than fits; without a delta all goes at once.
    mus = [0.5, 1e-7, 0.25, max(1e-9, 1e-10 / whole), 0.125]
    costs = [None] if privacy.pure else [mu * whole for mu in mus]
    for mu in costs:
        curator.release(statistic, block=block, mu=mu)
        if curator._spent[block] <= before:
            found.append(f"a release of mu {mu} cost nothing")
        before = curator._spent[block]
    due = Fraction(limit) if privacy.pure else own.exact_sum(costs, 2)
    # Each cost is a float: half a unit in the last place.
    if not due * (1 - Fraction(1, 2**50)) <= before <= due * (1 + Fraction(1, 2**50)):
        found.append(f"asks that cost {float(due)!r} together are {float(before)!r} on the account")
    if curator.spent(block) < before:
        found.append("what is said to be spent is rounded down")
    left = math.sqrt(max(float(limit - before), 0.0))
    more = [None] if privacy.pure else [left * (1 + 1e-6), whole * (1 + 1e-6)]
    for mu in more:
        with contextlib.suppress(BudgetExceeded):
            curator.release(statistic, block=block, mu=mu)
            found.append(f"a release was made that costs more than is left: {mu}")
    return found


def _ledger(trial):
    """Every release of a run is on the ledger, for what it really cost."""
    run = trial.play()
    limit, found, agent = own.episode_limit(trial.privacy), list[str](), run.agents[0]
    due, paid = dict[int, float](), dict[int, Fraction]()
    for a in run.answers:
        for b, cost in a.costs.items():
            due[b] = due.get(b, 0.0) + cost**trial.power
    with agent.store.read() as db:
        for entry in ledger.read(db, agent.run_name):
            if entry.event == "release":
                block = entry.body["block"]
                paid[block] = paid.get(block, Fraction(0)) + Fraction(entry.body["cost"])
    for b, cost in due.items():
        on_file = paid.get(b, Fraction(0))
        if on_file < cost * (1.0 - 1e-9):
            found.append(f"block {b} is charged {float(on_file):.9g}, its releases cost {cost:.9g}")
        if max(on_file, Fraction(cost)) > limit * (1.0 + 1e-9):
            found.append(f"block {b} spent {max(cost, float(on_file)):.9g}, it has {limit:.9g}")
    return found + ledger.verify(agent.store)
