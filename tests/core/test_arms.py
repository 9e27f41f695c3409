"""Arms: returns by arm, what they prove, and policies that serve only by evidence."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tacit
from tacit import Block, InvalidArgument, JointDP, Policy, Relation, check_statistic
from tacit.continuous import line
from tacit.core.agent import open_run
from tacit.core.arms import (
    BASELINE,
    CHALLENGER,
    EXPLORING,
    SERVING,
    ArmLook,
    ArmReturns,
    Arms,
    Evidence,
    OfComponents,
)
from tacit.core.world import simulate
from tacit.published import load
from tacit.store import ledger
from tacit.tabular import riverswim
from tacit.tabular.holdout import look_levels
from tacit.tabular.visits import VisitCounts
from tacit.trial.plan import power

JOINT = JointDP(1.0, 1e-6)
RETURNS = ArmReturns((0, 2, -1, 1), 1.0, 2.0, 3, 3)
ALWAYS = [Policy.deterministic(np.full((20, 6), a), 2) for a in (0, 1)]  # in riverswim


def users_of(rng: np.random.Generator, users: int) -> Block:
    """Users of four components, who earn from nothing to more than counts."""
    rewards = rng.choice([-5.0, 0.0, 1.0, 5.0], (users, 4))
    rewards[rng.random((users, 4)) < 0.1] = np.nan
    arrays = {"components": rng.integers(-1, 5, users), "lengths": rng.integers(0, 5, users)}
    return Block(users, {**arrays, "rewards": rewards, "versions": np.full(users, 3)})


def test_returns_by_hand_attacked_and_attained() -> None:
    rewards = np.array([[1.0, 1.0], [9.0, 9.0], [-9.0, np.nan], [1.0, np.inf], [1.0, 1.0], [4, 1]])
    told = {"components": [0, 1, 3, 3, 2, 0], "versions": [3, 3, 3, 3, 3, 2], "rewards": rewards}
    block = Block(6, {name: np.array(column) for name, column in told.items()})
    total = RETURNS.layout.unpack(RETURNS.total(block))
    # g is 1/2, 1, -1 and 1; the last two have no arm, and another version.
    assert total["sums"].tolist() == [0.5, 0.0, 1.0]
    assert total["squares"].tolist() == [0.25, 2.0, 1.0]
    assert RETURNS.vectors(block).sum(axis=0).tolist() == RETURNS.total(block).tolist()
    report = check_statistic(RETURNS, users_of, attained=0.999)
    assert report.declared["replace-one l2"] == pytest.approx(2.0)
    assert RETURNS.l1(Relation.REPLACE_ONE) == 4.0


def test_a_statistic_of_some_components() -> None:
    """Their users count as by themselves, and the others as zero."""
    rng, counts = np.random.default_rng(0), VisitCounts(4, 2, 3, pooled=True)
    columns = {"states": rng.integers(0, 4, (50, 4)), "actions": rng.integers(0, 2, (50, 3))}
    columns |= {"rewards": rng.random((50, 3)), "components": rng.integers(-1, 3, 50)}
    block, some = Block(50, columns), OfComponents(counts, (-1, 0, -1))
    assert (some.total(block) == counts.total(block.take(columns["components"] == 1))).all()
    assert (some.contributions(block).sum(axis=0) == some.total(block)).all()
    assert not some.contributions(block)[columns["components"] != 1].any()


def looks_of(rng, runs, means, users=4000, blocks=4, noise=20.0):
    """Evidence of runs whose users earn 1 rarely, in two arms, by simulation of all of them."""
    found = []
    for _ in range(runs):
        looks, centre = [], 0.5
        for _ in range(blocks):
            chances = np.array([0.3, 0.0, 0.5, 0.2])
            n = rng.multinomial(users, chances)
            good = rng.binomial(n, means)
            high, low, radius = 1.0 - centre, -centre, max(centre, 1.0 - centre)
            sums = (good * high + (n - good) * low) / radius
            squares = (good * high**2 + (n - good) * low**2) / radius**2
            sums, squares = (x + rng.normal(0.0, noise, 4) for x in (sums, squares))
            looks.append(ArmLook(users, chances, sums, squares, noise, centre, radius))
            mean, *_ = looks[-1].moments((BASELINE, CHALLENGER, EXPLORING))
            centre = float(np.clip(mean, 0.0, 1.0))
        found.append(looks)
    return found


@pytest.mark.parametrize("noise", [0.0, 20.0])
def test_intervals_cover(noise: float) -> None:
    """2,000 runs: six standard deviations are .029."""
    means = np.array([0.05, 0.0, 0.08, 0.02])
    found = looks_of(np.random.default_rng(1), 2000, means, noise=noise)
    ends = [Evidence.of_returns(looks, (CHALLENGER,)).interval(0.95) for looks in found]
    covered = np.mean([low <= 0.03 <= high for low, high in ends])
    assert 0.921 <= covered <= 0.979
    others = [Evidence.of_returns(looks, (CHALLENGER, EXPLORING)).gain for looks in found]
    truth = (0.5 * 0.03 - 0.2 * 0.03) / 0.7
    assert np.mean(others) == pytest.approx(truth, abs=6.0 * np.std(others) / math.sqrt(2000))


def test_nothing_takes_over_by_chance() -> None:
    """Twelve looks at policies that gain nothing: wrong once in at most alpha of 2,000 runs."""
    means, arms = np.full(4, 0.05), Arms(alpha=0.05)
    found = looks_of(np.random.default_rng(2), 2000, means, users=1500, blocks=12)
    wrong = np.mean(
        [
            any(
                Evidence.of_returns(looks[: j + 1], (CHALLENGER,)).lower(arms.level(j + 1)) > 0.0
                for j in range(12)
            )
            for looks in found
        ]
    )
    assert wrong <= 0.05 + 6.0 * math.sqrt(0.05 * 0.95 / 2000)
    assert sum(arms.level(j) for j in range(1, 10**4)) <= arms.alpha
    assert Evidence(1.0, 0.3).lower(arms.level(2)) > 0.0
    assert Evidence(1.0, 0.3, reach=1.0).lower(arms.level(2)) < 0.0
    assert Evidence.of_returns((), (CHALLENGER,)).lower(0.05) < 0.0


def test_a_good_baseline_stays_and_a_bad_one_is_replaced() -> None:
    """Always right is nearly optimal in riverswim, always left earns nothing."""
    world = riverswim()
    for good, baseline in enumerate(ALWAYS):
        agent = tacit.UCBVI(world.spec, 60_000, JOINT, baseline=baseline, holdout=0.1, noise_seed=1)
        result = tacit.run(agent, world, seed=1, progress=False)
        least = 0.8 * world.value(baseline)
        assert (result.values >= least).all()
        memory = agent.plan.memory
        assert memory.chances.sum() == pytest.approx(1.0)
        assert memory.chances[BASELINE] >= 0.1
        replaced = memory.serving is not None
        assert replaced == (not good)
        low, _ = Evidence.of_returns(
            agent.state.looks, (CHALLENGER,) if replaced else (EXPLORING,)
        ).interval(0.99)
        if replaced:
            assert world.value(memory.serving) > 2.0
            assert low > 0.0
        else:
            assert low < 0.0
    with pytest.raises(InvalidArgument, match="devices report once"):
        tacit.UCBVI(world.spec, 100, tacit.LocalDP(1.0, 1e-6), holdout=0.1, noise_seed=0)


def test_a_run_with_arms_goes_on_from_its_store(tmp_path) -> None:
    """Users who followed an older version count in the arm that it had for them."""
    world, rng = riverswim(), np.random.default_rng(0)
    file = tmp_path / "run.db"
    agent = tacit.UCBVI(
        world.spec, 4000, JOINT, baseline=ALWAYS[0], holdout=0.2, noise_seed=1, store=str(file)
    )
    policy, size = agent.policy, agent.block_users
    agent.learn(world.simulate(policy, size, rng, "episodes"))
    again = open_run(str(file))
    assert again.state.looks[0].users == size
    late = world.simulate(policy, again.block_users // 2, rng, "episodes")
    again.learn(late)
    again.learn(world.simulate(again.policy, again.block_users, rng, "episodes"))
    first, mixed = again.state.looks[-2:]
    assert mixed.chances[BASELINE] == pytest.approx(0.84, abs=0.05), first.chances
    assert again.guarantee.epsilon == pytest.approx(1.0)
    with pytest.raises(InvalidArgument, match="other arguments"):
        tacit.UCBVI(world.spec, 4000, JOINT, baseline=ALWAYS[1], holdout=0.2, store=str(file))


def test_arms_of_any_policy(tmp_path) -> None:
    """Users on a line are split over arms by simulation, and a device reads all of them."""
    world, rng = line(), np.random.default_rng(0)
    privacy = JointDP(10.0, 1e-6)
    agent = tacit.ModelPosterior(world.spec, 1500, privacy, holdout=0.1, noise_seed=1)
    result = tacit.run(agent, world, progress=False)
    best, random = result.greedy_value, world.baseline_value
    assert result.values[-1] == pytest.approx(0.9 * best + 0.1 * random, rel=0.03)
    low, high = Evidence.of_returns(agent.state.looks, (CHALLENGER,)).interval(0.999)
    assert 0.0 < low < best - random < 1.2 * high
    agent.publish(tmp_path / "arms.json", force=True)
    read = load(tmp_path / "arms.json")
    assert read.weights == pytest.approx(agent.policy.weights)
    same = [read.components[m].act(0, [x]) for m in (1,) for x in (0.1, 0.9)]
    assert same == [agent.policy.act(0, [x], None, 1) for x in (0.1, 0.9)]
    for form in ("episodes", "streamed"):
        block = simulate(world, agent.policy, 200, rng, form)
        parts = list(block.parts()) if form == "streamed" else [block]
        drawn = np.concatenate([part["components"] for part in parts])
        assert block.users == len(drawn) == 200
        assert 2 < (drawn == 0).sum() < 60


def served(agent, world, rng, blocks=10**6):
    """The agent after so many more blocks of users of its own policies."""
    while agent.block_users and blocks:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
        blocks -= 1
    return agent


def test_a_trial_is_answered_at_looks_that_are_fixed() -> None:
    """One policy, adopted and gone live, is tried by all who are not held out."""
    world, rng = riverswim(), np.random.default_rng(3)
    arms = Arms(ALWAYS[0], holdout=0.5, looks=(0.4, 1.0), returns=(0.0, 20.0), explore=1e-9)
    fixed = {"baseline": arms, "schedule": "fixed:size=4000"}
    agent = tacit.UCBVI(world.spec, 20_000, JOINT, noise_seed=1, **fixed)
    agent.adopt(ALWAYS[1])
    assert math.isnan(served(agent, world, rng, 1).trial().gain)
    assert agent.trial().next_look == 8000
    agent.go_live()
    first = served(agent, world, rng, 1).trial()
    assert (first.users, first.next_look, first.live) == (8000, 20_000, 1)
    assert served(agent, world, rng, 1).trial().gain == first.gain, "nothing between looks"
    last, truth = served(agent, world, rng).trial(), world.value(ALWAYS[1]) - world.value(ALWAYS[0])
    assert last.low < truth < last.high
    assert last.high - last.low < first.high - first.low
    assert (last.users, last.next_look) == (20_000, 0)
    assert sum(look_levels(arms)) == pytest.approx(0.05)
    after = agent.successor(20_000, noise_seed=2, schedule="fixed:size=4000")
    assert math.isnan(after.trial().gain)
    assert served(after, world, rng, 2).trial().users == 8000
    scaled = Arms(holdout=0.5, looks=(0.4, 1.0), returns=(-0.5, 4.5))
    assert power(scaled, 0.0, 20_000, JOINT) < 0.03
    assert power(scaled, truth / 4.0, 20_000, JOINT) > 0.95


def test_what_was_tried_goes_live_and_not_what_is_newer(tmp_path) -> None:
    """Users may have followed an older version than the one that serves when they are counted."""
    world, rng = riverswim(), np.random.default_rng(0)
    arms = Arms(ALWAYS[0], holdout=0.2, rule=False, probabilities=(0.1, 0.9))
    given = {"baseline": arms, "noise_seed": 1, "store": str(tmp_path / "run.db")}
    agent = tacit.UCBVI(world.spec, 50_000, JOINT, schedule="fixed:size=5000", **given)
    with pytest.raises(InvalidArgument, match="no policy was tried"):
        agent.go_live()
    old, followed = served(agent, world, rng, 2).plan, agent.policy
    served(agent, world, rng, 1)
    agent.learn(world.simulate(followed, 5000, rng, "episodes"))
    assert agent.state.version == followed.version == agent.policy.version - 2
    tried = followed.components[old.memory.arm_of.index(CHALLENGER)]
    agent.go_live()
    assert agent.trial().live == followed.version
    held = agent.policy.components[agent.plan.memory.arm_of.index(SERVING)].table()
    assert (held == tried.table()).all()
    assert held.min() == pytest.approx(0.1)
    assert held.max() == pytest.approx(0.9)
    assert agent.plan.memory.chances[BASELINE] == pytest.approx(0.2)
    with agent.store.read() as db:
        assert [e.body["to"] for e in ledger.read(db) if e.event == "go live"] == [4]
    assert open_run(str(tmp_path / "run.db")).trial() == agent.trial()
    with pytest.raises(InvalidArgument, match="its own probabilities"):
        tacit.ConcurrentPSRL(world.spec, 50_000, JOINT, baseline=arms, noise_seed=1)
    for wrong in ({"looks": (1.0, 0.5)}, {"probabilities": (0.6, 0.8)}, {"looks": (0.5, 2.0)}):
        with pytest.raises(InvalidArgument):
            Arms(**wrong)
