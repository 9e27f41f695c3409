"""Linear agents: what they promise, choose, refuse and learn."""

from functools import partial

import numpy as np
import pytest
from scipy.linalg import eigh

from tacit import LSVIUCB, JointDP, LocalDP, LSVIUCBPlusPlus, NonPrivate, Relation
from tacit.linear import LinearSpec, simplex, two_state
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import noise_seed, run
from tacit.tabular import riverswim
from tacit.testing.check_agent import check_agent
from tests.tabular import agent_checks as shared

SIMPLEX = simplex(dimension=3, states=8, actions=3, horizon=4)
KNOWN = simplex(dimension=3, states=8, actions=3, horizon=4, known_rewards=True)
TWO = two_state(horizon=4)
JOINT = JointDP(10.0, 1e-6)
PURE = JointDP(10.0, 0.0)
LOCAL = LocalDP(20.0, 1e-6)
BITS = LocalDP(20.0, 0.0, mechanism="randomised response")
FEW = "fixed:size=60"

AGENTS = {"lsvi": LSVIUCB, "plus plus": LSVIUCBPlusPlus}


SOME = {
    "features, joint": ("lsvi", SIMPLEX, {"statistic": "features", "privacy": JOINT}),
    "features, signed": ("lsvi", TWO, {"statistic": "features", "privacy": JOINT}),
    "features, weighted": ("plus plus", SIMPLEX, {"statistic": "features", "privacy": JOINT}),
    "features, local": ("plus plus", SIMPLEX, {"statistic": "features", "privacy": LOCAL}),
    "features, no privacy": ("plus plus", TWO, {"statistic": "features", "privacy": NonPrivate()}),
    "counts, joint": ("lsvi", SIMPLEX, {"statistic": "counts", "privacy": JOINT}),
    "counts, pure": ("plus plus", TWO, {"statistic": "counts", "privacy": PURE}),
    "counts, laplace": ("lsvi", SIMPLEX, {"statistic": "counts", "privacy": LocalDP(20.0, 0.0)}),
    "counts, bits": (
        "lsvi",
        SIMPLEX,
        {"statistic": "counts", "privacy": BITS, "stationary": False},
    ),
    "features, known": ("lsvi", KNOWN, {"statistic": "features", "privacy": JOINT}),
}


def check(case, **options):
    name, world, own = case
    # With a large bonus values would all be cut at the steps left, and nobody asked about them.
    make = partial(AGENTS[name], **{"schedule": FEW, "scale": 0.1} | own)
    return check_agent(make, world, users=240, **options)


QUICK = "features, local"


@pytest.mark.parametrize(
    "name", [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SOME if name != QUICK)]
)
def test_agents_pass_the_check(name):
    report = check(SOME[name])
    shared.assert_report(report, SOME[name][2]["privacy"])
    assert max(report.tightness) > 0.8


def made(world=SIMPLEX, users=240, cls=LSVIUCB, **options):
    spec = getattr(world, "spec", world)
    return cls(spec, users, **{"privacy": JOINT, "noise_seed": 0} | options)


def spec_of(states, dimension, stationary=True, **options):
    features = np.random.default_rng(0).dirichlet(np.ones(dimension), (states, 2))
    return LinearSpec(
        states=states,
        actions=2,
        horizon=3,
        features=features,
        stationary_transitions=stationary,
        stationary_rewards=True,
        **options,
    )


@pytest.mark.parametrize(
    ("spec", "options", "kind", "reason"),
    [
        (spec_of(6, 3), {}, "counts", "6 states are few beside 3 features"),
        (spec_of(7, 3), {}, "features", "every value function"),
        (spec_of(6, 3), {"privacy": NonPrivate()}, "features", "every value function"),
        (spec_of(7, 3), {"privacy": PURE}, "counts", "1-norm"),
        (spec_of(7, 3), {"privacy": LocalDP(1.0, 0.0)}, "counts", "1-norm"),
        (spec_of(6, 3), {"statistic": "features"}, "features", "as asked"),
    ],
    ids=str,
)
def test_it_says_what_it_chose(spec, options, kind, reason):
    agent = made(spec, schedule="fixed:size=80", **options)
    assert agent.algorithm.statistic_kind == kind
    assert f"statistic {kind!r}: " in agent.why
    assert reason in agent.why
    assert "3 releases (fixed:size=80)" in agent.why


def test_smaller_budgets_begin_with_larger_blocks():
    shared.smaller_budgets_begin_larger(made, "features", "counts")


def test_users_are_summed_one_by_one_only_where_a_clip_needs_it():
    assert made(privacy=NonPrivate()).data_format == "counts"
    assert made(statistic="features").data_format == "episodes"
    assert made(statistic="counts").data_format == "episodes"
    assert made(statistic="counts", stationary=False).data_format == "counts"
    for statistic in ("features", "counts"):
        large = made(users=10**9, statistic=statistic, schedule="fixed:size=1000000")
        assert large.data_format == "counts"
        # Larger blocks need no clip, and do not pay for one.
        small = made(users=10**9, statistic=statistic, schedule="fixed:size=10")
        assert small.statistic.l2(Relation.REPLACE_ONE) < large.statistic.l2(Relation.REPLACE_ONE)


def test_known_rewards_are_not_asked_for():
    known, unknown = (made(world, statistic="features").statistic for world in (KNOWN, SIMPLEX))
    more = {part.name for part in unknown.layout.parts} - {part.name for part in known.layout.parts}
    assert more == {"rewards"}
    assert known.l2(Relation.REPLACE_ONE) < unknown.l2(Relation.REPLACE_ONE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *shared.MISTAKES,
        ({"world": riverswim(3, 4).spec}, "LinearSpec"),
        ({"statistic": "sums"}, "auto or features or counts"),
        ({"bonus": "theory"}, "tacit.papers has what a paper prints and proves"),
        ({"statistic": "features", "privacy": PURE}, "Gaussian noise: delta > 0"),
        ({"privacy": BITS}, "stationary=False"),
    ],
    ids=str,
)
def test_arguments_are_checked(options, message):
    with pytest.raises(InvalidArgument, match=message):
        made(**options)


@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_users_may_come_one_by_one(statistic):
    together, alone = (made(statistic=statistic, schedule=FEW, users=120) for _ in range(2))
    blocks = shared.serve(together, SIMPLEX)
    left = 120
    for block in blocks:
        for user in range(block.users):
            assert alone.block_users == (left - 1) % 60 + 1
            alone.learn(block.take(slice(user, user + 1)))
            left -= 1
    assert shared.known(together) == shared.known(alone)


@pytest.mark.parametrize("privacy", [NonPrivate(), JointDP(100.0, 1e-6)], ids=["none", "joint"])
@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_policies_are_replaced_when_enough_was_learnt(statistic, privacy):
    agent = made(
        cls=LSVIUCBPlusPlus,
        users=500,
        statistic=statistic,
        privacy=privacy,
        schedule="fixed:size=20",
        stationary=False,
    )
    rng, old, expected = np.random.default_rng(0), None, 0
    while agent.block_users:
        before, last = (agent.policy, agent.greedy_policy), agent.plan.memory
        agent.learn(SIMPLEX.simulate(agent.policy, 20, rng, "episodes"))
        new = agent.algorithm.estimator.model(agent.state, last.variances).precision()
        switch = old is None or any(
            eigh(n, o, eigvals_only=True)[-1] >= 2.0 for n, o in zip(new, old, strict=True)
        )
        expected += switch
        assert agent.plan.memory.switches == expected
        assert agent.policy.version == agent.greedy_policy.version == agent.releases
        if switch:
            old = new
        else:
            assert (agent.policy.actions == before[0].actions).all()
            assert (agent.greedy_policy.actions == before[1].actions).all()
    assert 3 <= agent.plan.memory.switches < 0.7 * agent.releases


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_private_agents_learn(name, statistic):
    world = simplex(3, 12, 4, 5, seed=600)
    options = {"statistic": statistic, "seed": 0, "noise_seed": noise_seed(0)}
    agent = AGENTS[name](world.spec, 20_000, JointDP(10.0, 1e-6), **options)
    result = run(agent, world, 0, progress=False)
    assert result.guarantee.epsilon == pytest.approx(10.0)
    assert world.baseline_value < 0.5 * world.optimal_value
    assert world.value(agent.greedy_policy) > 0.95 * world.optimal_value
