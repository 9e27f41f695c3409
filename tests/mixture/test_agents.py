"""Mixture agents: what they promise, choose, refuse and learn."""

import re
from functools import partial

import numpy as np
import pytest

from tacit import JointDP, LinOptPO, LinOptVI, LocalDP, NonPrivate, Relation
from tacit.mixture import hard_mixture, mixture_of_models
from tacit.mixture.statistics import ModelSums, PathCounts
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import noise_seed, run
from tacit.tabular import riverswim
from tacit.testing.check_agent import check_agent
from tests.tabular import agent_checks as shared

KNOWN = mixture_of_models(3, 4, 4, 4, seed=700)
UNKNOWN = mixture_of_models(3, 4, 4, 4, seed=700, known_rewards=False)
HARD = hard_mixture(3, 3)
HARD_UNKNOWN = hard_mixture(3, 3, known_rewards=False)
JOINT = JointDP(10.0, 1e-6)
PURE = JointDP(10.0, 0.0)
LOCAL = LocalDP(20.0, 1e-6)
LAPLACE = LocalDP(20.0, 0.0)
BITS = LocalDP(20.0, 0.0, mechanism="randomised response")
FEW = "fixed:size=60"

AGENTS = {"vi": LinOptVI, "po": LinOptPO}


CASES = {
    "po, known, local": ("po", KNOWN, {"statistic": "model", "privacy": LOCAL}),
    "vi, unknown, joint": ("vi", UNKNOWN, {"statistic": "model", "privacy": JOINT}),
    "vi, no privacy": ("vi", UNKNOWN, {"statistic": "model", "privacy": NonPrivate()}),
    "counts, pure": ("vi", HARD_UNKNOWN, {"statistic": "counts", "privacy": PURE}),
    "counts, laplace": ("vi", HARD, {"statistic": "counts", "privacy": LAPLACE}),
    "counts, bits": ("vi", HARD_UNKNOWN, {"statistic": "counts", "privacy": BITS}),
    "po, per step": ("po", UNKNOWN, {"statistic": "model", "privacy": JOINT, "stationary": False}),
    "zero-out": ("vi", UNKNOWN, {"privacy": JointDP(5.0, 1e-6, Relation.ZERO_OUT)}),
}
QUICK = "counts, pure"


def _named(value):
    """An id without addresses, which differ between processes."""
    return re.sub(r"<function (\w+) at \w+>", r"\1", str(value))


@pytest.mark.parametrize(
    "name",
    [QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in CASES if name != QUICK)],
)
def test_agents_pass_the_check(name):
    agent, world, own = CASES[name]
    few = {"schedule": FEW} | ({"steps": 2} if agent == "po" else {})
    report = check_agent(partial(AGENTS[agent], **few | own), world, users=240)
    shared.assert_report(report, own["privacy"])
    assert max(report.tightness) <= 1.0 + 1e-9


def made(world=UNKNOWN, users=240, cls=LinOptVI, **options):
    spec = getattr(world, "spec", world)
    return cls(spec, users, **{"privacy": JOINT, "noise_seed": 0} | options)


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({}, "model", "every transition informs on all weights"),
        ({"privacy": NonPrivate()}, "model", "every transition"),
        ({"privacy": PURE}, "counts", "1-norm"),
        ({"privacy": BITS}, "counts", "1-norm"),
        ({"world": HARD}, "counts", "few next states inform"),
        ({"world": HARD, "privacy": LOCAL}, "model", "every transition"),
        ({"world": HARD, "cls": LinOptPO}, "counts", "few next states inform"),
        ({"statistic": "counts"}, "counts", "as asked"),
    ],
    ids=_named,
)
def test_it_says_what_it_chose(options, kind, reason):
    agent = made(schedule="fixed:size=80", **options)
    assert agent.algorithm.statistic_kind == kind
    kinds = {"model": ModelSums, "counts": PathCounts}
    assert isinstance(agent.statistic, kinds[kind])
    assert f"statistic {kind!r}: " in agent.why
    assert reason in agent.why
    assert "3 releases (fixed:size=80)" in agent.why


def test_users_are_summed_one_by_one_only_where_a_clip_needs_it():
    assert made(privacy=NonPrivate()).data_format == "counts"
    assert made(statistic="counts").data_format == "counts"
    assert made(statistic="model").data_format == "episodes"
    large = made(users=10**9, statistic="model", schedule="fixed:size=1000000")
    assert large.data_format == "counts"
    small = made(users=10**9, statistic="model", schedule="fixed:size=10")
    assert small.statistic.l2(Relation.REPLACE_ONE) < large.statistic.l2(Relation.REPLACE_ONE)


def test_growth_decides_how_many_releases_there_are():
    shared.growth_decides(made, "model", "counts")


def test_smaller_budgets_begin_with_larger_blocks():
    shared.smaller_budgets_begin_larger(made, "model", "counts")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *shared.MISTAKES,
        ({"world": riverswim(3, 4).spec}, "MixtureSpec"),
        ({"statistic": "sums"}, "auto or model or counts"),
        # What does not go together.
        ({"statistic": "model", "privacy": PURE}, "needs Gaussian noise: delta > 0"),
        ({"statistic": "model", "privacy": BITS}, "Gaussian mechanism under LocalDP"),
        ({"regulariser": None}, "tacit.papers has what a paper prints and proves"),
        ({"cls": LinOptPO, "eta": 0.0}, "eta must be > 0"),
        ({"cls": LinOptPO, "steps": 2.5}, "steps must be an integer >= 1"),
    ],
    ids=_named,
)
def test_arguments_are_checked(options, message):
    with pytest.raises(InvalidArgument, match=message):
        made(**options)


def test_a_ridge_grows_with_the_noise():
    agent = made().algorithm
    prior = 1e-3 / (agent.spec.radius * agent.spec.along[1]) ** 2
    gram = np.diag([-5.0, 0.0, 2.0, 7.0])
    for noise in (0.0, 3.0):
        expected = np.diag([0.0, 0.0, 2.0, 7.0]) + (prior + 2.0 * noise) * np.eye(4)
        found = agent.estimator.regularised(gram, noise)
        np.testing.assert_allclose(found, expected, atol=1e-12)


def learnt(world, cls, users, privacy, **options):
    """Value of the last policy over the optimum."""
    agent = cls(world.spec, users, privacy, seed=0, noise_seed=noise_seed(0), **options)
    run(agent, world, 0, progress=False)
    return float(world.value(agent.policy) / world.optimal_value)


@pytest.mark.parametrize(
    ("cls", "statistic", "users"),
    [
        (LinOptVI, "model", 5_000),
        (LinOptVI, "counts", 100_000),
        (LinOptPO, "model", 5_000),
        (LinOptPO, "counts", 100_000),
    ],
)
def test_private_agents_learn(cls, statistic, users):
    world = mixture_of_models(seed=500)
    assert world.baseline_value < 0.5 * world.optimal_value
    assert learnt(world, cls, users, JointDP(10.0, 1e-6), statistic=statistic) > 0.9


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_rewards_are_learnt_too(cls):
    world = mixture_of_models(seed=500, known_rewards=False)
    assert learnt(world, cls, 20_000, JointDP(10.0, 1e-6)) > 0.9


def test_local_agents_learn():
    world = mixture_of_models(seed=500)
    assert learnt(world, LinOptVI, 10**6, LocalDP(10.0, 1e-6)) > 0.9


@pytest.mark.parametrize("cls", [LinOptVI, LinOptPO])
def test_chance_alone_explains_no_learning(cls):
    """The same run at a budget that drowns everything in noise."""
    world = mixture_of_models(seed=500)
    assert learnt(world, cls, 5_000, JointDP(1e-4, 1e-6)) < 0.9
