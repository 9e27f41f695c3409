"""Agents of trials: what they promise, what they learn, and what they publish."""

from functools import partial
from itertools import product

import numpy as np
import pytest

import tacit
from tacit import ActionCentred, JointDP, NonPrivate
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import Block
from tacit.testing.check_agent import check_agent
from tacit.trial import TrialPolicy, TrialSpec
from tests.trial.cohorts import Contexts, play

JOINT = JointDP(1.0, 1e-6)
SMALL = Contexts(20, 0.4, 3)


@pytest.mark.slow
@pytest.mark.parametrize("model", [JOINT, NonPrivate()], ids=["joint", "none"])
def test_it_passes_the_check(model):
    report = check_agent(partial(ActionCentred, privacy=model), SMALL, users=12)
    assert bool(report.skipped) == (model != JOINT)


def test_a_person_pays_once_for_all_looks():
    agent = ActionCentred(TrialSpec(20, 2), 12, JOINT, noise_seed=0)
    guarantee = agent.guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.episodes_per_user) == (1.0, 1e-6, 2)
    assert guarantee.unit == "one person's whole history, over all 2 looks"
    assert "own history" in guarantee.mechanism
    assert agent.privacy.disjoint
    assert agent.schedule.blocks == (12,) * 2
    world = Contexts(20, 0.4, 2)
    cohort = world.cohort(np.random.default_rng(0))
    first = cohort.simulate(agent.policy, 12, None)
    assert (agent.learn(first).counted, agent.learn(first).waiting) == (12, 0)
    noise = agent.state.evidence[0].noise
    assert noise == pytest.approx(2.0 * np.sqrt(2.0) / JOINT.budget.mu, rel=1e-3)


def test_somebody_is_in_a_look_once():
    agent = ActionCentred(SMALL.spec, 12, JOINT, noise_seed=0)
    history = SMALL.cohort(np.random.default_rng(0)).simulate(agent.policy, 12, None)
    some = history.take(slice(0, 6))
    assert (agent.learn(some).waiting, agent.learn(some).refused) == (6, 6)


def test_one_look_is_one_release_of_the_whole_budget():
    agent = ActionCentred(TrialSpec(20, 2, looks=(1.0,)), 12, JOINT, noise_seed=0)
    assert agent.users == agent.block_users == 12
    assert agent.privacy == JOINT
    assert agent.guarantee.unit == "one user's whole episode"


@pytest.mark.parametrize(
    "wrong",
    [
        {"privacy": tacit.LocalDP(1.0, 1e-6)},
        {"privacy": JointDP(1.0, 0.0)},
        {"privacy": JointDP(1.0, 1e-6, episodes_per_user=2)},
        {"privacy": JOINT, "schedule": "every"},
        {"privacy": JOINT, "own": 1},
        {"privacy": JOINT, "spec": tacit.tabular.riverswim().spec},
    ],
)
def test_other_terms_are_refused(wrong):
    with pytest.raises(InvalidArgument):
        ActionCentred(**{"spec": TrialSpec(20, 2), "users": 12} | wrong)


def test_a_run_goes_on_from_its_store(tmp_path):
    agent = ActionCentred(SMALL.spec, 12, JOINT, noise_seed=0, store=tmp_path / "a.db")
    cohort = SMALL.cohort(np.random.default_rng(0))
    agent.learn(cohort.simulate(agent.policy, 12, None))
    mean = agent.policy.mean
    agent.store.close()
    again = tacit.open(tmp_path / "a.db")
    assert again.users == 24
    assert (again.policy.mean == mean).all()
    again.learn(cohort.simulate(again.policy, 12, None))
    heir = again.successor(30, noise_seed=1)
    assert heir.users == 60
    assert heir.block_users == 30
    assert (heir.policy.mean == again.policy.mean).all()


def hostile(agent, look: int, towards: float, before: dict | None, own) -> dict:
    """A person who picks action and reward, whatever they are, by where her score then points."""
    spec, statistic = agent.spec, agent.statistic
    H, start = spec.horizon, 0 if before is None else spec.edges[look - 1]
    arrays = before or {"states": np.ones((1, H + 1, 1)), "actions": np.zeros((1, H), dtype=int)}
    arrays = {"rewards": np.full((1, H), np.nan), "propensities": np.full((1, H), 0.5)} | arrays
    for h in range(start, spec.edges[look]):
        p = float(agent.policy.chances(arrays["states"][:, h], own)[0])
        best = -np.inf
        for action, reward in product((0, 1), (-1e9, -1.0, 0.0, 0.5, 1e9)):
            said = {name: array.copy() for name, array in arrays.items()}
            said["actions"][0, h], said["rewards"][0, h] = action, reward
            said["propensities"][0, h] = p if action else 1.0 - p
            score = statistic.vectors(Block(1, said))[0, 0]
            assert abs(score) <= 1.0 + 1e-12
            if towards * score > best:
                best, kept = towards * score, said
        arrays = kept
        own.add(arrays["states"][:, h], arrays["actions"][:, h], [p], arrays["rewards"][:, h])
    return arrays


def test_whoever_adapts_to_move_the_releases_most_moves_them_by_the_bound() -> None:
    """Of two people who chase opposite ends, over both looks: the claimed mu, and no more."""
    world = Contexts(10, 0.4, 1)
    agent = ActionCentred(world.spec, 12, JOINT, noise_seed=0)
    cohort, cost = world.cohort(np.random.default_rng(0)), 0.0
    ends = [(towards, agent.policy.history(1)) for towards in (1.0, -1.0)]
    before = [None, None]
    for look in range(2):
        before = [hostile(agent, look, t, b, own) for (t, own), b in zip(ends, before, strict=True)]
        one, other = (agent.statistic.vectors(Block(1, arrays)) for arrays in before)
        agent.learn(cohort.simulate(agent.policy, 12, None))
        cost += float(np.sum((one - other) ** 2)) / agent.state.evidence[look].noise ** 2
    mu = JOINT.budget.mu
    assert 0.9 * mu < np.sqrt(cost) <= mu * (1.0 + 1e-9)


@pytest.mark.slow
def test_a_hundred_people_are_enough_at_epsilon_1():
    # Means of 40 seeds are .94 (60 decisions, 122 people); one seed deviates by .1.
    once = {"looks": (1.0,), "probabilities": (0.5, 0.5)}
    world = Contexts(60, 0.2, **once)
    agents = [ActionCentred(world.spec, 122, JOINT, noise_seed=seed) for seed in range(20)]
    assert np.mean([play(agent, world, seed)[0] for seed, agent in enumerate(agents)]) > 0.7
    world = Contexts(140, 0.2)
    found = [play(ActionCentred(world.spec, 80, JOINT, noise_seed=s), world, s) for s in range(10)]
    final, served = np.mean(found, axis=0)
    assert final > 0.4
    assert served > 0.15


def test_without_privacy_it_finds_all_effects():
    world = Contexts(100, 0.3, 4)
    agent = ActionCentred(world.spec, 150, NonPrivate())
    final, served = play(agent, world)
    assert final == 1.0
    assert served > 0.4
    assert (np.sign(agent.policy.mean) == world.signs).all()


def test_several_actions_and_linear_features_are_learnt():
    rng = np.random.default_rng(0)
    spec = TrialSpec(
        100, 2, actions=3, probabilities=(0.2, 0.6), looks=(0.5, 1.0), gram=((1, 0), (0, 1))
    )
    effects = np.array([[0.5, -0.3], [0.0, 0.6], [-0.5, -0.3]])
    agent, n = ActionCentred(spec, 200, NonPrivate()), 200
    f = np.stack([np.ones((n, 101)), rng.choice([-1.0, 1.0], (n, 101))], axis=2)
    actions, rewards = np.zeros((n, 100), dtype=int), np.zeros((n, 100))
    logged, history, at = np.full((n, 100, 3), np.nan), agent.policy.history(n), 0
    for until in spec.edges:
        for h in range(at, until):
            p = agent.policy.chances(f[:, h], history)
            a = (rng.random(n)[:, None] > p.cumsum(axis=1)).sum(axis=1)
            r = (f[:, h] * effects[a]).sum(axis=1) + rng.standard_normal(n)
            history.add(f[:, h], a, p, r)
            actions[:, h], rewards[:, h], logged[:, h] = a, r, p
        at, lengths = until, np.full(n, until)
        ids = [*range(n)]
        agent.learn(tacit.VectorEpisodes(f, actions, rewards, lengths, None, ids, logged))
    centred = effects - effects.mean(axis=0)
    found = agent.policy.effects
    assert np.corrcoef(found.ravel(), centred.ravel())[0, 1] > 0.95
    best = agent.greedy_policy.chances([[1.0, 1.0], [1.0, -1.0]])
    assert best.argmax(axis=1).tolist() == [1, 0]
    assert isinstance(agent.policy, TrialPolicy)
    assert agent.policy.chances(f[:, 0]).min() >= 0.2
