"""The curator: exact costs of whole transcripts, the filter under attack, refusals, streams."""

import copy
import math
import os
import pickle
import threading
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Block, JointDP, NonPrivate, Relation
from tacit.privacy.curator import JointCurator
from tacit.privacy.errors import BudgetExceeded, Busy, DoubleSpend, HorizonExceeded, InvalidArgument
from tacit.privacy.noise import Noise, grid_sensitivity, grid_step, grid_total
from tacit.privacy.standard import ClippedSum, GramCross, OneHotCounts
from tacit.testing.mechanisms import audit_linear

# Zero-out, so that a difference of one radius is a worst case and the clip stays linear.
MODEL = JointDP(epsilon=1.0, delta=1e-6, relation=Relation.ZERO_OUT)
MU = MODEL.budget.mu


def values(*rows):
    array = np.array(rows, dtype=float).reshape(len(rows), -1)
    return Block(len(rows), {"values": array})


def transcript_audit(script, blocks, model=MODEL, curator_class=JointCurator, together=()):
    """The exact mu of everything that ``script`` publishes, for a user of each block.

    The inputs are one number per block. ``together`` adds a difference in several blocks at once:
    a user who took part in all of them.
    """

    def mechanism(inputs, source):
        curator = curator_class(model, source=source)
        ids = ["somebody"] if model.disjoint else None
        numbers = [curator.add(values(x), user_ids=ids) for x in inputs]
        return np.concatenate([np.ravel(r["sum"]) for r in script(curator, numbers)])

    differences = list(np.eye(blocks))
    if together:
        differences.append(np.isin(np.arange(blocks), together).astype(float))
    return audit_linear(mechanism, differences, claimed=MU)


SUM = ClippedSum(1)


def spent(cost, claimed):
    """Whether all of a claim is spent, but for what rounding to the grid adds to the noise."""
    return claimed * (1.0 - 3e-4) <= cost <= claimed * (1.0 + 1e-9)


def test_every_block_has_the_full_budget():
    audit = transcript_audit(lambda c, b: [c.release(SUM, block=n) for n in b], 4)
    assert all(spent(cost, MU) for cost in audit.costs)


def test_a_release_is_of_one_block_the_newest_by_default():
    audit = transcript_audit(lambda c, b: [c.release(SUM)], 3)
    assert audit.costs[:2].tolist() == [0.0, 0.0]
    assert spent(audit.costs[2], MU)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("statistic", [ClippedSum(7, 2.5), OneHotCounts(2, 3)], ids=str)
def test_a_release_is_the_sum_on_the_grid_and_the_steps_of_its_seed(statistic, delta):
    """Bit for bit: nothing else is drawn from the source, and nothing else is added."""
    model, rng = JointDP(1.0, delta), np.random.default_rng(3)
    curator, source = model.curator(noise_seed=11), Noise(11)
    for number in range(2):
        if isinstance(statistic, ClippedSum):
            block = Block(900, {"values": rng.normal(size=(900, 7))})
        else:
            block = Block(900, {"cells": rng.integers(0, 3, size=(900, 2))})
        assert curator.add(block) == number
        step = grid_step(statistic, model.norm)
        apart = grid_sensitivity(statistic, model.relation, model.norm, step)
        cost = 1.0 if model.pure else math.sqrt(model.episode_limit)
        total = grid_total(statistic, block, step)
        drawn = source.steps(model.pure, apart / cost, statistic.layout.size)
        expected = statistic.layout.unpack(step * (total + drawn).astype(np.float64))
        release = curator.release(statistic)
        for name, values_of in expected.items():
            assert np.array_equal(release[name], values_of)


def test_requeries_share_the_budget():
    def ask(curator, numbers):
        return [curator.release(SUM, block=0, mu=MU / math.sqrt(5)) for _ in range(5)]

    audit = transcript_audit(ask, 2)
    assert spent(audit.costs[0], MU)
    assert audit.costs[1] == 0.0

    def ask_too_often(curator, numbers):
        return [*ask(curator, numbers), curator.release(SUM, block=0, mu=1e-3)]

    with pytest.raises(BudgetExceeded, match="too much"):
        transcript_audit(ask_too_often, 2)


def test_streams_pay_once_per_block():
    def stream(curator, numbers):
        counter = curator.stream(SUM, releases=len(numbers))
        return [counter.release(n) for n in numbers]

    audit = transcript_audit(stream, 9)
    assert 0.999 * MU < audit.mu <= MU * (1.0 + 1e-9)
    # Whoever comes first or last pays the same: the columns of the factor are equally long.
    assert audit.costs[0] == pytest.approx(MU, rel=1e-3)
    assert audit.costs[8] == pytest.approx(MU, rel=1e-3)


def test_streams_and_releases_compose():
    def both(curator, numbers):
        counter = curator.stream(SUM, releases=4, mu=0.6 * MU, kind="smooth tree")
        out = [counter.release(n) for n in numbers]
        return [*out, *(curator.release(SUM, block=n, mu=0.8 * MU) for n in numbers)]

    audit = transcript_audit(both, 4)
    assert audit.passed
    assert spent(audit.costs[0], MU)

    def too_much(curator, numbers):
        return [*both(curator, numbers), curator.release(SUM, block=0, mu=0.1 * MU)]

    with pytest.raises(BudgetExceeded):
        transcript_audit(too_much, 4)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_adaptive_script_exceeds_the_budget(data):
    """The filter under attack: any mix of blocks, mus, streams and defaults."""
    blocks = data.draw(st.integers(1, 4))
    plan = data.draw(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, blocks - 1), min_size=1, unique=True),
                st.one_of(st.none(), st.floats(0.01, 1.2)),
                st.booleans(),
            ),
            min_size=1,
            max_size=8,
        )
    )

    def script(curator, numbers):
        out = [curator.release(SUM, mu=0.1 * MU)]
        for chosen, share, streamed in plan:
            try:
                if streamed:
                    mu = MU * (share or 0.3)
                    counter = curator.stream(SUM, releases=2, mu=mu)
                    out += [counter.release(n) for n in chosen[:2]]
                else:
                    mu = None if share is None else MU * share
                    out.append(curator.release(SUM, block=chosen[0], mu=mu))
            except (BudgetExceeded, InvalidArgument):
                continue
        return out

    audit = transcript_audit(script, blocks)
    assert audit.passed, audit


@pytest.mark.parametrize("mu", [5e-324, 1e-200, 1e-13])
def test_a_release_too_quiet_to_be_drawn_is_refused_for_nothing(mu):
    curator = JointDP(1.0, 1e-6).curator()
    curator.add(values(*[0.2] * 400))
    with pytest.raises(InvalidArgument, match=r"range|too small"):
        curator.release(ClippedSum(1, radius=0.2), mu=mu)
    assert curator.spent(0) == 0.0


def test_no_user_makes_a_data_dependent_warning():
    for user in (0.1, 1.0, np.nan, 5e-324, 1e308):
        with np.errstate(all="raise"):
            curator = JointDP(1.0, 1e-6).curator(noise_seed=1)
            curator.add(values(user, 1.0))
            curator.release(SUM, mu=0.01)
            curator.stream(SUM, releases=2, mu=0.01).release(0)


def test_threads_do_not_overspend():
    curator = JointDP(1.0, 1e-6).curator()
    curator.add(Block(200_000, {"values": np.ones((200_000, 8))}))
    refused = []

    def ask():
        try:
            curator.release(ClippedSum(8))
        except BudgetExceeded:
            refused.append(1)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 5
    assert curator.spent(0) <= curator.limit * (1 + 1e-9)


def test_a_reused_buffer_does_not_change_a_block():
    curator = JointDP(1e4, 1e-6).curator(noise_seed=0)
    buffer = np.zeros((100, 1))
    curator.add(Block(100, {"values": buffer}))
    buffer[:] = 1.0
    curator.add(Block(100, {"values": buffer}))
    for block, total in ((0, 0.0), (1, 100.0)):
        assert curator.release(SUM, block=block)["sum"].item() == pytest.approx(total, abs=1)
    with pytest.raises(ValueError, match="read-only"):
        curator._blocks[0]["values"][0] = 7.0


def test_curators_are_never_copied_or_forked():
    curator = JointDP(1.0, 1e-6).curator()
    curator.add(values(1.0))
    for copier in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied"):
            copier(curator)
    pid = os.fork()
    if pid == 0:
        try:
            curator.release(SUM)
        except DoubleSpend:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    curator.release(SUM)


@pytest.mark.parametrize(("zero", "replace"), [(1.0, 0.0), (1.0, 3.0), (2.0, 1.0), (1.0, math.nan)])
def test_impossible_sensitivities_are_refused(zero, replace):
    @dataclass(frozen=True)
    class Wrong(ClippedSum):
        def l2(self, relation):
            return zero if relation is Relation.ZERO_OUT else replace

    curator = JointDP(1.0, 1e-6).curator()
    curator.add(values(1.0))
    with pytest.raises(InvalidArgument, match="sensitivities"):
        curator.release(Wrong(1))
    with pytest.raises(InvalidArgument, match="sensitivities"):
        curator.stream(Wrong(1), releases=2)
    assert curator.spent(0) == 0.0


def test_odd_user_ids_and_tiny_budgets():
    curator = JointDP(1.0, 1e-6).curator()
    curator.add(values(1.0, 1.0), user_ids=["\ud800", 10**5000])
    with pytest.raises(InvalidArgument, match="floats"):
        JointDP(1e-170, 1e-170).curator()
    with pytest.raises(InvalidArgument, match="episodes_per_user"):
        JointDP(1.0, 1e-6, episodes_per_user=10**400)


def test_returning_users_are_covered_at_user_level():
    """A user in three blocks: the audit changes all three at once."""
    model = JointDP(1.0, 1e-6, relation=Relation.ZERO_OUT, episodes_per_user=3)

    def ask(curator, numbers):
        out = [curator.release(SUM, block=n, mu=MU / 3 / math.sqrt(2)) for n in numbers]
        return [*out, *(curator.release(SUM, block=n) for n in numbers)]

    # Blocks apart she pays sqrt(3) thirds; all episodes in one sum would cost her all.
    audit = transcript_audit(ask, 4, model=model, together=(0, 1, 2))
    assert spent(audit.costs[-1], MU / math.sqrt(3))

    def stream(curator, numbers):
        counter = curator.stream(SUM, releases=4)
        return [counter.release(n) for n in numbers]

    assert transcript_audit(stream, 4, model=model, together=(0, 1, 2)).passed


def test_disjoint_blocks_pay_a_root_only():
    model = JointDP(1.0, 1e-6, relation=Relation.ZERO_OUT, episodes_per_user=3, disjoint=True)

    def ask(curator, numbers):
        return [curator.release(SUM, block=n) for n in numbers]

    audit = transcript_audit(ask, 3, model=model, together=(0, 1, 2))
    assert spent(audit.costs[-1], MU)
    assert spent(audit.costs[0], MU / math.sqrt(3))
    curator = model.curator()
    with pytest.raises(InvalidArgument, match="give them"):
        curator.add(values(1.0))
    curator.add(values(1.0), user_ids=["a"])
    curator.add(values(1.0), user_ids=["a"])
    with pytest.raises(InvalidArgument, match="blocks"):
        curator.stream(SUM, releases=3)
    blockwise = curator.stream(SUM, releases=3, kind="blocks")
    blockwise.release(0)


def test_episodes_beyond_the_declared_are_left_out():
    curator = JointDP(1e3, 1e-6, episodes_per_user=2).curator(noise_seed=1)
    ones = Block(3, {"values": np.ones((3, 1))})
    curator.add(ones, user_ids=["ann", "bob", "ann"])
    curator.add(ones, user_ids=["ann", "bob", "cy"])
    for block, kept in ((0, 3), (1, 2)):
        release = curator.release(SUM, block=block)
        assert release.users == kept
        assert release["sum"].item() == pytest.approx(kept, abs=10 * release.std["sum"])
    running = JointDP(1e3, 1e-6).curator(noise_seed=1)
    running.add(ones, user_ids=["ann", "bob", "ann"])
    assert running.stream(SUM, releases=1).release(0).users == 2


def test_nobody_is_twice_in_a_disjoint_block():
    curator = JointDP(1.0, 1e-6, episodes_per_user=5, disjoint=True).curator()
    curator.add(Block(3, {"values": np.ones((3, 1))}), user_ids=[7, 7, np.int64(7)])
    assert curator._blocks[0].users == 1


def test_user_ids_are_all_or_none():
    curator = MODEL.curator()
    curator.add(values(1.0), user_ids=[1])
    with pytest.raises(InvalidArgument, match="every block or for none"):
        curator.add(values(1.0))
    with pytest.raises(InvalidArgument, match="as many ids"):
        curator.add(values(1.0), user_ids=[1, 2])
    with pytest.raises(InvalidArgument, match="integers or strings"):
        curator.add(values(1.0), user_ids=[1.5])
    # Who was refused was not counted: of two episodes one is left.
    twice = JointDP(1.0, 1e-6, episodes_per_user=2).curator(users=2)
    with pytest.raises(InvalidArgument, match="as many ids"):
        twice.add(values(1.0), user_ids=["a", "a"])
    twice.add(values(1.0, 1.0), user_ids=["a", "a"])
    assert twice.release(SUM).users == 2


def test_without_privacy_users_may_return():
    curator = NonPrivate().curator()
    for _ in range(3):
        curator.add(values(1.0, 1.0), user_ids=["a", "a"])
        assert curator.release(SUM)["sum"].item() == 2.0


def test_a_release_states_the_noise_of_each_part():
    """A part of weight one half has twice the noise; a symmetric one stays symmetric."""
    statistic = GramCross(rows=20, columns=3, steps=4, weight=0.5, tau=2.0)
    curator = JointDP(1.0, 1e-6).curator(noise_seed=3)
    curator.add(Block(5, {"p": np.ones((5, 4, 20)), "q": np.ones((5, 4, 3))}))
    release = curator.release(statistic, mu=0.2)
    scale = statistic.l2(Relation.REPLACE_ONE) / 0.2
    assert release.std == pytest.approx({"gram": scale, "cross": 2 * scale}, rel=2e-4)
    assert np.array_equal(release["gram"], release["gram"].T)


def test_pure_dp_is_laplace_and_all_is_spent_at_once():
    curator = JointDP(1.0, 0.0).curator(noise_seed=0)
    curator.add(Block(1, {"cells": np.zeros((1, 2), dtype=int)}))
    statistic = OneHotCounts(steps=2, cells=4)
    with pytest.raises(InvalidArgument, match="1-norm"):
        curator.release(GramCross(rows=1, columns=1, steps=1))
    with pytest.raises(InvalidArgument, match="spent in epsilon"):
        curator.release(statistic, mu=0.1)
    assert curator.spent(0) == 0.0
    release = curator.release(statistic)
    assert release.std["counts"] == pytest.approx(math.sqrt(2) * 4, rel=2e-4)
    assert release.cost == curator.spent(0) == 1.0
    with pytest.raises(BudgetExceeded):
        curator.release(statistic)
    guarantee = curator.guarantee
    assert guarantee.delta == 0
    assert guarantee.mu is None
    stream = JointDP(1.0, 0.0).curator().stream(statistic, releases=64)
    assert stream.counter.kind == "smooth tree"


def test_mistakes_are_refused_and_change_nothing():
    curator = JointDP(1.0, 1e-6).curator(users=5)
    with pytest.raises(InvalidArgument, match="block"):
        curator.release(SUM)
    curator.add(values(1.0, 2.0))
    with pytest.raises(HorizonExceeded, match="5 users were declared"):
        curator.add(values(*range(4)))
    for options in ({"block": 1}, {"block": -1}, {"block": [0]}, {"mu": -1.0}, {"mu": math.nan}):
        with pytest.raises(InvalidArgument):
            curator.release(SUM, **options)
    for gone in ("blocks", "weights", "mask", "decay", "epsilon"):
        with pytest.raises(TypeError, match=gone):
            curator.release(SUM, **{gone: None})
    with pytest.raises(InvalidArgument, match="never added"):
        curator.spent(9)
    with pytest.raises(BudgetExceeded):
        curator.release(SUM, mu=10.0)
    with pytest.raises(BudgetExceeded):
        curator.stream(SUM, releases=3, mu=10.0)
    with pytest.raises(InvalidArgument, match="kind"):
        curator.stream(SUM, releases=3, kind="noiseless")
    with pytest.raises(InvalidArgument, match="shape"):
        curator.release(ClippedSum(4))
    assert curator.spent(0) == 0.0
    wide = curator.add(Block(1, {"values": np.zeros((1, 3))}))
    stream = curator.stream(SUM, releases=1)
    for _ in range(2):  # refused, it has not entered
        with pytest.raises(InvalidArgument, match="shape"):
            stream.release(wide)
    assert (curator.spent(wide), stream.release(0).index) == (0.0, 0)
    with pytest.raises(InvalidArgument, match="entered"):
        stream.release(0)
    last = curator.add(values(1.0))
    with pytest.raises(HorizonExceeded, match="1 releases"):
        stream.release(last)
    assert curator.spent(last) == 0.0
    curator.forget(0)
    with pytest.raises(InvalidArgument, match="forgotten"):
        curator.release(SUM, block=0)


def test_a_relation_by_name_is_the_relation():
    """A string that compared unequal to both members once halved the noise."""
    for name, std in (("replace-one", 2 / MU), ("zero-out", 1 / MU)):
        curator = JointDP(1.0, 1e-6, relation=name).curator(noise_seed=0)
        curator.add(values(1.0))
        assert curator.release(SUM).std["sum"] == pytest.approx(std, rel=2e-4)
        assert curator.guarantee.relation.value == name
    with pytest.raises(InvalidArgument, match="relation"):
        JointDP(1.0, 1e-6, relation="both")
    with pytest.raises(InvalidArgument, match="relation"):
        SUM.l2("neither")
    with pytest.raises(InvalidArgument, match="disjoint"):
        JointDP(1.0, 1e-6, disjoint="no")


def test_the_guarantee_names_every_kind_of_release():
    curator = MODEL.curator(noise_seed=0)
    assert "filter" in curator.guarantee.mechanism
    curator.stream(SUM, releases=3, mu=0.1)
    assert "filter" not in curator.guarantee.mechanism
    curator.add(values(1.0))
    curator.release(SUM, mu=0.1)
    assert "optimal counter and releases under a budget filter" in curator.guarantee.mechanism


def test_aggregate_blocks_are_for_simulations():
    block = Block(10, {"counts": np.array([[4.0, 6.0]])}, aggregate=True)
    with pytest.raises(InvalidArgument, match="simulations"):
        JointDP(1.0, 1e-6).curator().add(block)
    curator = JointDP(1.0, 1e-6).curator(noise_seed=0)
    curator.add(block)
    assert curator.release(OneHotCounts(1, 2)).users == 10


def test_a_source_that_draws_no_whole_numbers_is_refused():
    class Floats:
        simulation = False

        def normal(self, shape):
            return np.zeros(shape)

    with pytest.raises(InvalidArgument, match="source must be NoiseSource"):
        JointDP(1.0, 1e-6).curator(source=Floats())
    with pytest.raises(InvalidArgument, match="not both"):
        JointDP(1.0, 1e-6).curator(source=Noise(), noise_seed=1)


def test_no_release_is_free_however_little_it_costs():
    """Beside what was spent the cost is below the last digit of a float; it counts all the same."""
    curator = JointDP(1.0, 1e-6).curator(noise_seed=0)
    curator.add(values(1.0))
    curator.release(SUM)
    limit = curator.privacy.episode_limit
    curator.release(SUM, mu=math.sqrt(0.4e-16 * limit))
    spent = curator.spent(0)
    assert spent > limit * (1 - 1e-15)
    # As much as rounding may add is left: a 1e-12th of the limit, and then nothing at all.
    curator.release(SUM, mu=math.sqrt(0.9999e-12 * limit))
    curator._spent[0] = Fraction(limit) * Fraction(1 + 1e-12)
    with pytest.raises(BudgetExceeded):
        curator.release(SUM, mu=math.sqrt(1e-17 * limit))
    one = JointDP(1.0, 1e-6).curator(noise_seed=0)
    one.add(values(1.0))
    one.release(SUM, mu=math.sqrt(0.9 * limit))
    # Twenty of them are a unit in the last place of what was spent, and more.
    before = one._spent[0]
    for _ in range(20):
        one.release(SUM, mu=math.sqrt(1e-17 * limit))
    assert float(one._spent[0] - before) == pytest.approx(20 * 1e-17 * limit, rel=1e-6)
    assert one.spent(0) > float(before)


def test_a_refusal_draws_nothing():
    """Noise that was drawn and thrown away would be noise that was chosen."""
    refused, plain = (JointDP(1.0, 1e-6).curator(noise_seed=7) for _ in range(2))
    for curator in (refused, plain):
        curator.add(values(1.0, 0.5))
    stream = refused.stream(SUM, releases=1, mu=0.1)
    for call in (
        lambda: refused.release(SUM, mu=1.0),
        lambda: refused.release(ClippedSum(3), mu=0.1),
        lambda: refused.release(SUM, block=4),
        lambda: stream.release(4),
    ):
        with pytest.raises((BudgetExceeded, InvalidArgument)):
            call()
    assert refused.release(SUM)["sum"] == plain.release(SUM)["sum"]
    with pytest.raises(BudgetExceeded):
        stream.release(0)
    assert stream.counter.released == 0


def test_a_call_within_a_call_is_refused():
    """Only a signal handler, or code of a statistic's own, makes one."""
    curator = JointDP(1.0, 1e-6).curator(noise_seed=0)
    curator.add(values(1.0))

    @dataclass(frozen=True)
    class Recursive(ClippedSum):
        def vectors(self, block):
            curator.release(SUM)
            return super().vectors(block)

    with pytest.raises(Busy, match="release within another call"):
        curator.release(Recursive(1))
    assert (curator.spent(0), curator.release(SUM).users) == (0.0, 1)


def test_an_interrupted_stream_lets_no_block_in_twice():
    """Whatever comes between the noise and the accounts, she has entered and paid."""
    curator = MODEL.curator(noise_seed=0)
    curator.add(values(1.0))
    stream = curator.stream(SUM, releases=3)

    def interrupted(*args):
        raise KeyboardInterrupt

    stream.counter._released = interrupted
    with pytest.raises(KeyboardInterrupt):
        stream.release(0)
    assert curator.spent(0) == pytest.approx(MU**2)
    with pytest.raises(InvalidArgument, match="entered"):
        stream.release(0)
