"""The agents with functional noise: what they promise, spend, refuse and learn."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from research.worlds import cartpole, plane, trap
from tacit import FittedFunctionalQ, JointDP, LocalDP, NonPrivate, check_statistic
from tacit.continuous import BoxSpec, fitted_functional_q, line
from tacit.continuous.estimate import GRID, Posterior
from tacit.continuous.fitted_functional_q import _turns
from tacit.continuous.statistics import MeanRewards, ResidualSums
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.simulation.run import run
from tacit.testing.check_agent import check_agent
from tacit.testing.recording import RecordingCurator
from tests.continuous.blocks import block

JOINT = JointDP(0.9, 1e-4)
SHORT = line(horizon=8)
LINE = line()
SERVED = partial(FittedFunctionalQ, serve="most")


@pytest.fixture
def three(monkeypatch):
    """Three sweeps."""
    monkeypatch.setattr(fitted_functional_q, "GRID", replace(GRID, depth=0.0, fewest=3))


def played(agent, world, seed=0):
    rng = np.random.default_rng(seed)
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))
    return agent


def score(world, agent):
    base = world.baseline_value
    return float((world.value(agent.greedy_policy) - base) / (world.optimal_value - base))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        partial(FittedFunctionalQ, privacy=JOINT, schedule="fixed:size=40"),
        partial(FittedFunctionalQ, privacy=JOINT, serve="all", schedule="fixed:size=30"),
        partial(
            FittedFunctionalQ, privacy=LocalDP(2.0, 1e-4), serve="all", schedule="fixed:size=30"
        ),
        partial(FittedFunctionalQ, privacy=JointDP(10.0, 1e-6), serve="most"),
    ],
)
def test_keeps_all_promises(make, three):
    check_agent(make, SHORT, users=3000 if make.keywords.get("serve") == "most" else 120)


def test_spends_the_budget_to_the_last_bit():
    agent = FittedFunctionalQ(LINE.spec, 20, JOINT, noise_seed=0)
    with RecordingCurator().open() as recorder:
        played(agent, LINE)
    costs = [float(record.release.cost or 0.0) for record in recorder.records]
    assert len(costs) == agent.state.ahead.sweeps + 1
    # Users are served at random.
    assert (agent.policy.epsilon, agent.greedy_policy.epsilon) == (1.0, 0.0)
    assert math.fsum(cost**2 for cost in costs) == pytest.approx(JOINT.episode_limit, rel=1e-12)


def test_residuals_are_of_what_was_published():
    """Every question is a function of the answers before it."""
    agent = FittedFunctionalQ(LINE.spec, 20, JOINT, noise_seed=0)
    with RecordingCurator().open() as recorder:
        played(agent, LINE)
    script = [record.release for record in recorder.records]
    other = FittedFunctionalQ(LINE.spec, 20, JOINT, noise_seed=1)
    with RecordingCurator(script=script).open() as replay:
        played(other, LINE, seed=1)
    for one, two in zip(recorder.records, replay.records, strict=True):
        assert one.statistic.fingerprint == two.statistic.fingerprint
    np.testing.assert_array_equal(agent.state.weights, other.state.weights)


def test_transcript_has_exactly_the_declared_mu(monkeypatch):
    """The log-likelihood ratio of a whole run on the worst pair has variance mu^2.

    Up to the grid: noise is a little larger, for what rounding to it can add.

    User 0 stays where she is, with the largest rewards or with none. Her functions are opposite
    and at the clip in every release, given the same releases before, because the prior hardly lets
    predictions move. She is the same in the histogram of visits, which costs 5 % of mu^2.
    """
    spec = BoxSpec((0.0,), (1.0,), actions=2, horizon=50, reward_range=(0.0, 0.5), discount=0.95)
    still = replace(GRID, prior_reward=1e-3, prior_moves=1e-3, prior_drift=0.0)
    monkeypatch.setattr(fitted_functional_q, "GRID", still)
    agent = FittedFunctionalQ(spec, 10, JOINT, noise_seed=3)
    rest = LINE.simulate(agent.policy, 10, np.random.default_rng(0), "episodes").block()
    pair = [_paid(rest, reward) for reward in (0.0, 0.5)]
    with RecordingCurator().open() as recorder:
        agent.learn(pair[0])
    square = 0.0
    for record in recorder.records:
        one, other = (record.statistic.total(block) for block in pair)
        std = float(np.max(next(iter(record.release.std.values()))))
        square += float(((one - other) ** 2).sum()) / std**2
    asked = [p.release for p in recorder.records if isinstance(p.statistic, ResidualSums)]
    residual = math.fsum(float(release.cost or 0.0) ** 2 for release in asked)
    assert residual * (1.0 - 2e-4) < square <= residual
    assert 0.95 < math.sqrt(square / JOINT.episode_limit) <= 1.0


def _paid(block, reward):
    arrays = {name: np.array(array) for name, array in block.arrays.items()}
    arrays["states"][0], arrays["rewards"][0], arrays["actions"][0] = 0.5, reward, 0
    return Block(block.users, arrays)


@pytest.mark.parametrize("serve", ["later", "all"])
def test_learns_without_noise(serve):
    agent = FittedFunctionalQ(LINE.spec, 100, NonPrivate(), seed=1, serve=serve)
    assert score(LINE, played(agent, LINE)) > 0.97
    assert agent.algorithm.offline == (serve == "later")


@pytest.mark.parametrize(
    ("make", "users"), [(lambda: LINE, 200), pytest.param(trap, 600, marks=pytest.mark.slow)]
)
def test_learns_with_noise_and_looks_ahead(make, users):
    world = make()
    scores = [
        score(world, played(FittedFunctionalQ(world.spec, users, JOINT, noise_seed=s), world, s))
        for s in range(3)
    ]
    assert np.median(scores) > 0.95


def test_several_blocks_carry_on_what_is_known(three):
    options = {"schedule": "fixed:size=20", "noise_seed": 5}
    agent = played(FittedFunctionalQ(SHORT.spec, 40, JOINT, **options), SHORT)
    assert (len(agent.state.evidence.answers), agent.state.evidence.users) == (6, 40)


def test_posterior_is_that_of_a_plain_gaussian_regression(three):
    """Mode by mode is the same as one joint regression over all releases."""
    agent = played(FittedFunctionalQ(LINE.spec, 30, JOINT, noise_seed=1), LINE)
    algorithm, known = agent.algorithm, agent.state.evidence
    basis, constants, discount = algorithm.basis, algorithm.constants, agent.state.ahead.discount
    fit = Posterior(basis, constants, discount, known, agent.state.ahead.sweeps)
    gram = known.gram / 2
    across = basis.root.T @ gram @ basis.prior
    values = np.array([answer.value for answer in known.answers])
    index = np.arange(3)
    prior = constants.prior_reward**2 + (discount * constants.prior_moves) ** 2 * (
        values @ basis.metric @ values.T
    )
    prior = prior + constants.prior_drift**2 * np.minimum.outer(index, index)
    stds = np.array([answer.std for answer in known.answers])
    typical = np.mean(stds**2)
    k = basis.root.shape[1]
    noise = constants.noise**2 * basis.root.T @ gram @ basis.root + typical * np.eye(k)
    whole = np.kron(prior, across @ across.T) + np.kron(np.diag(stds**2 / typical), noise)
    seen = np.concatenate(
        [a.sums[0] + basis.root.T @ gram @ a.predictions[0] for a in known.answers]
    )
    value = values[-1]
    ahead = constants.prior_reward**2 + (discount * constants.prior_moves) ** 2 * (
        value @ basis.metric @ values.T
    )
    ahead = ahead + constants.prior_drift**2 * index
    wanted = basis.prior @ (np.kron(ahead, across.T) @ np.linalg.solve(whole, seen))
    np.testing.assert_allclose(fit.targets(value)[0], wanted, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"privacy": LocalDP(1.0, 1e-6)}, "a device reports once"),
        ({"privacy": JointDP(1.0, 0.0)}, "delta"),
        ({"serve": "some"}, "serve"),
        ({"serve": "all", "spec": cartpole().spec}, "grid"),
        ({"serve": "most", "schedule": "every"}, "schedule means nothing"),
        ({"protect": "rewards"}, "no option 'protect'"),
    ],
)
def test_refuses_what_does_not_go_together(options, match):
    given = {"spec": LINE.spec, "users": 20, "privacy": JOINT} | options
    with pytest.raises(InvalidArgument, match=match):
        FittedFunctionalQ(given.pop("spec"), given.pop("users"), given.pop("privacy"), **given)


@pytest.mark.parametrize(("users", "first"), [(1, 20), (10, 20), (2000, 20), (10**6, 84)])
def test_few_explore(users, first):
    turns = _turns(users, first)
    assert sum(turns) == users
    assert min(turns) >= 1
    served = 0
    for turn, size in enumerate(turns):
        if turn and turn % 2 == 0:
            assert size <= 0.03 * served + 1
        served += size


@pytest.mark.parametrize(
    ("world", "privacy", "batch"),
    [
        (line(), JointDP(10.0, 1e-6), 6),
        pytest.param(line(), JOINT, 45, marks=pytest.mark.slow),
        pytest.param(plane(), JOINT, 256, marks=pytest.mark.slow),
    ],
)
def test_serves_well_with_at_most_four_times_the_users_of_the_batch_agent(world, privacy, batch):
    needed = []
    for seed in range(3):
        agent = SERVED(world.spec, 40 * batch, privacy, seed=seed, noise_seed=seed)
        result = run(agent, world, seed=seed, progress=False)
        needed.append(result.users_to_90)
    assert sorted(n or 10**9 for n in needed)[1] <= 4 * batch
    # How well users are served is public.
    earned, std = agent.state.earned
    value = result.values[-2] / world.spec.horizon
    assert earned == pytest.approx(value, abs=6.0 * std + 0.02)


def test_asks_those_who_are_served_once():
    agent = SERVED(SHORT.spec, 400, JointDP(10.0, 1e-6), noise_seed=0)
    rng = np.random.default_rng(0)
    assert agent.policy.epsilon == 1.0
    agent.learn(SHORT.simulate(agent.policy, agent.block_users, rng, "episodes"))
    assert agent.policy.epsilon == 0.0
    before = agent.state.weights.copy()
    agent.learn(SHORT.simulate(agent.policy, agent.block_users, rng, "episodes"))
    np.testing.assert_array_equal(agent.state.weights, before)


def test_mean_rewards_withstand_attacks():
    def sample(rng, users):
        rewards = rng.choice([0.0, 0.5], (users, 1)) * np.ones((users, 8))
        return block(rng.random((users, 9, 1)), rewards=rewards)

    check_statistic(MeanRewards(SHORT.spec), sample, attained=0.99, users=60, rounds=12)
