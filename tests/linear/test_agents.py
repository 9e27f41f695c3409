"""Linear agents: what they promise, choose, refuse and learn."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh

from tacit import (
    LSVIUCB,
    JointDP,
    LocalDP,
    LSVIUCBPlusPlus,
    NonPrivate,
    Relation,
)
from tacit.core.agent import Agent
from tacit.linear import LinearSpec, LinearWorld, simplex, two_state
from tacit.linear.options import LinearConstants
from tacit.privacy.errors import InvalidArgument
from tacit.simulation.run import run
from tacit.simulation.seeds import noise_seed
from tacit.tabular import riverswim
from tacit.testing.check_agent import check_agent
from tacit.testing.watched_gate import WatchedGate, difference, snapshot
from tests.finite import agent_checks as shared

Floats = NDArray[np.float64]

SIMPLEX = simplex(dimension=3, states=8, actions=3, horizon=4)
KNOWN = simplex(dimension=3, states=8, actions=3, horizon=4, known_rewards=True)
TWO = two_state(horizon=4)
JOINT = JointDP(10.0, 1e-6)
PURE = JointDP(10.0, 0.0)
LOCAL = LocalDP(20.0, 1e-6)
BITS = LocalDP(20.0, 0.0, mechanism="randomised response")
FEW = "fixed:size=60"

AGENTS: dict[str, Any] = {
    "lsvi": LSVIUCB,
    "plus plus": LSVIUCBPlusPlus,
}


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


# The conformance check.

Case = tuple[str, LinearWorld, dict[str, Any]]

SOME: dict[str, Case] = {
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


def check(case: Case, **options: Any) -> Any:
    name, world, own = case
    # With a large bonus values would all be cut at the steps left, and nobody asked about them.
    make = partial(AGENTS[name], **{"schedule": FEW, "scale": 0.1} | own)
    return check_agent(make, world, users=240, **options)


def assert_checked(case: Case) -> None:
    report = check(case)
    shared.assert_report(report, case[2]["privacy"])
    assert max(report.tightness) > 0.8


@pytest.mark.parametrize("name", SOME)
def test_agents_pass_the_check(name: str) -> None:
    assert_checked(SOME[name])


def every_case() -> dict[str, Case]:
    """Every agent with everything that can be asked under every privacy, and options of each."""
    privacies = {
        "features": [NonPrivate(), JOINT, LOCAL],
        "counts": [NonPrivate(), JOINT, PURE, LOCAL, LocalDP(20.0, 0.0), BITS],
    }
    cases: dict[str, Case] = {}
    for agent in AGENTS:
        for world in (SIMPLEX, TWO):
            for statistic, allowed in privacies.items():
                for privacy in allowed:
                    options: dict[str, Any] = {"statistic": statistic, "privacy": privacy}
                    if privacy is BITS:
                        options["stationary"] = False
                    cases[f"{agent}, {world.name[:7]}, {statistic}, {privacy}"] = (
                        agent,
                        world,
                        options,
                    )
    for statistic in ("features", "counts"):
        base: dict[str, Any] = {"statistic": statistic, "privacy": JOINT}
        more: list[tuple[str, LinearWorld, dict[str, Any]]] = [
            ("lsvi", SIMPLEX, {"weights": "variance"}),
            ("plus plus", SIMPLEX, {"weights": "none"}),
            ("lsvi", KNOWN, {}),
            ("plus plus", KNOWN, {"weights": "variance"}),
            ("lsvi", SIMPLEX, {"stationary": False}),
        ]
        for name, world, options in more:
            cases[f"{name}, {world.name[-19:]}, {statistic}, {options}"] = (
                name,
                world,
                base | options,
            )
    return cases


@pytest.mark.slow
@pytest.mark.parametrize("name", every_case())
def test_every_agent_passes_the_check(name: str) -> None:
    assert_checked(every_case()[name])


# What is chosen.


def made(world: Any = SIMPLEX, users: int = 240, cls: Any = LSVIUCB, **options: Any) -> Agent:
    spec = getattr(world, "spec", world)
    agent: Agent = cls(spec, users, **{"privacy": JOINT, "noise_seed": 0} | options)
    return agent


def spec_of(states: int, dimension: int, stationary: bool = True, **options: Any) -> LinearSpec:
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
        (spec_of(7, 3), {}, "features", "3 features are few beside 7 states"),
        (spec_of(60, 3), {}, "features", "few beside"),
        (spec_of(5000, 3), {}, "features", "3 features are few beside 5000 states"),
        (spec_of(5000, 3), {"privacy": NonPrivate()}, "features", "answer every question"),
        (spec_of(5000, 3), {"privacy": LOCAL}, "features", "few beside"),
        (spec_of(5000, 3), {"privacy": PURE}, "counts", "1-norm"),
        (spec_of(7, 3), {"privacy": PURE}, "counts", "1-norm"),
        (spec_of(7, 3), {"privacy": LocalDP(1.0, 0.0)}, "counts", "1-norm"),
        (spec_of(6, 3), {"statistic": "features"}, "features", "as asked"),
    ],
    ids=str,
)
def test_it_says_what_it_chose(spec: Any, options: Any, kind: str, reason: str) -> None:
    agent = made(spec, schedule="fixed:size=80", **options)
    assert agent.statistic_kind == kind
    assert f"statistic {kind!r}: " in agent.why
    assert reason in agent.why
    assert "3 releases (fixed:size=80)" in agent.why


def test_defaults_of_the_agents() -> None:
    assert made().weights == "none"
    assert made(cls=LSVIUCBPlusPlus).weights == "variance"


def test_growth_decides_how_many_releases_there_are() -> None:
    shared.growth_decides(made, "features", "counts")


def test_smaller_budgets_begin_with_larger_blocks() -> None:
    shared.smaller_budgets_begin_larger(made, "features", "counts")


def test_users_are_summed_one_by_one_only_where_a_clip_needs_it() -> None:
    assert made(privacy=NonPrivate()).form == "occupancy"
    assert made(statistic="features").form == "episodes"
    assert made(statistic="counts").form == "episodes"
    assert made(statistic="counts", stationary=False).form == "occupancy"
    for statistic in ("features", "counts"):
        large = made(users=10**9, statistic=statistic, schedule="fixed:size=1000000")
        assert large.form == "occupancy"
        # Larger blocks need no clip, and do not pay for one.
        small = made(users=10**9, statistic=statistic, schedule="fixed:size=10")
        assert small.statistic.l2(Relation.REPLACE_ONE) < large.statistic.l2(Relation.REPLACE_ONE)


def test_known_rewards_are_not_asked_for() -> None:
    known, unknown = (made(world, statistic="features").statistic for world in (KNOWN, SIMPLEX))
    more = {part.name for part in unknown.layout.parts} - {part.name for part in known.layout.parts}
    assert more == {"rewards"}
    assert known.l2(Relation.REPLACE_ONE) < unknown.l2(Relation.REPLACE_ONE)


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *shared.MISTAKES,
        ({"world": riverswim(3, 4).spec}, "LinearSpec"),
        ({"statistic": "sums"}, "auto, features or counts"),
        ({"weights": "some"}, "weights must be auto, variance or none"),
        # What went.
        ({"statistic": "targets"}, "auto, features or counts"),
        ({"switching": "determinant"}, "switching"),
        ({"gram_noise": "triangle"}, "gram_noise"),
        ({"misspecification": 0.1}, "misspecification"),
        ({"bonus": "theory"}, "tacit.papers has what a paper prints and proves"),
        ({"calibration": "as_printed"}, "tacit.papers"),
        ({"privacy": LOCAL, "autosave": "somewhere"}, "belong to JointDP"),
        # What does not go together.
        ({"statistic": "features", "privacy": PURE}, "Gaussian noise: delta > 0"),
        ({"statistic": "features", "privacy": PURE, "schedule": FEW}, "delta > 0"),
        ({"statistic": "features", "privacy": LocalDP(1.0, 0.0), "schedule": FEW}, "delta > 0"),
        ({"privacy": BITS}, "stationary=False"),
    ],
    ids=str,
)
def test_arguments_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        made(**options)


# Users.


@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_users_may_come_one_by_one(statistic: str) -> None:
    together, alone = (made(statistic=statistic, schedule=FEW, users=120) for _ in range(2))
    blocks = shared.serve(together, SIMPLEX)
    left = 120
    for block in blocks:
        for user in range(block.users):
            assert alone.block_users == (left - 1) % 60 + 1
            alone.learn(block.take(slice(user, user + 1)))
            left -= 1
    assert not difference(snapshot(together), snapshot(alone))


def test_wrong_data_changes_nothing() -> None:
    shared.wrong_data_changes_nothing(made(schedule=FEW), SIMPLEX, "occupancy")


@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_somebody_who_comes_again_counts_as_nobody(statistic: str) -> None:
    shared.who_comes_again_counts_as_nobody(made, SIMPLEX, statistic)


def test_ids_are_given_for_all_or_none() -> None:
    agent = made(schedule=FEW)
    block = SIMPLEX.simulate(agent.policy, 60, np.random.default_rng(0), "episodes").block()
    with pytest.raises(InvalidArgument, match="as many ids"):
        agent.learn(block, user_ids=[1, 2])
    agent.learn(block.take(slice(0, 30)), user_ids=range(30))
    with pytest.raises(InvalidArgument, match="for all users or for none"):
        agent.learn(block.take(slice(30, 60)))


def test_users_of_several_episodes_pay_in_each() -> None:
    single, double = JointDP(5.0, 1e-6), JointDP(5.0, 1e-6, episodes_per_user=2)
    apart = JointDP(5.0, 1e-6, episodes_per_user=2, disjoint=True)
    noises = []
    for privacy in (single, apart, double):
        agent = made(statistic="features", privacy=privacy, schedule=FEW)
        with WatchedGate().open() as gate:
            block = SIMPLEX.simulate(agent.policy, 60, np.random.default_rng(0), "episodes")
            agent.learn(block, user_ids=range(60))
        noises.append(float(np.max(gate.passages[0].release.std["gram"])))
    assert noises[1] == pytest.approx(math.sqrt(2.0) * noises[0])
    assert noises[2] == pytest.approx(2.0 * noises[0])


@pytest.mark.parametrize(
    ("statistic", "privacy", "options"),
    [
        ("features", LOCAL, {}),
        ("counts", LOCAL, {}),
        ("counts", LocalDP(20.0, 0.0), {}),
        ("counts", BITS, {"stationary": False}),
    ],
    ids=str,
)
def test_devices_report_what_agents_ask(statistic: str, privacy: Any, options: Any) -> None:
    agent = LSVIUCB(
        SIMPLEX.spec, 60, privacy, statistic=statistic, schedule="fixed:size=20", **options
    )
    shared.devices_report_what_is_asked(agent, SIMPLEX, privacy)
    with pytest.raises(InvalidArgument, match="for LocalDP"):
        made().learn_reports(np.zeros((60, 1)))


# When policies are replaced.


@pytest.mark.parametrize("privacy", [NonPrivate(), JointDP(100.0, 1e-6)], ids=["none", "joint"])
@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_policies_are_replaced_when_enough_was_learnt(statistic: str, privacy: Any) -> None:
    agent = made(
        cls=LSVIUCBPlusPlus,
        users=1000,
        statistic=statistic,
        privacy=privacy,
        schedule="fixed:size=20",
        stationary=False,
    )
    rng, old, expected = np.random.default_rng(0), None, 0
    while agent.block_users:
        before = (agent.policy, agent.greedy_policy, agent.q_values, agent.switches)
        agent.learn(SIMPLEX.simulate(agent.policy, 20, rng, "episodes"))
        new = agent.algorithm.way.model().precision()
        switch = old is None or any(
            eigh(n, o, eigvals_only=True)[-1] >= 2.0 for n, o in zip(new, old, strict=True)
        )
        expected += switch
        assert agent.switches == expected
        assert agent.policy.version == agent.greedy_policy.version == agent.releases
        if switch:
            old = new
        else:
            assert (agent.policy.actions == before[0].actions).all()
            assert (agent.greedy_policy.actions == before[1].actions).all()
            assert agent.q_values is before[2]
    assert 3 <= agent.switches < 0.7 * agent.releases


def test_by_schedule_every_release_replaces_the_policy() -> None:
    for statistic in ("features", "counts"):
        agent = made(statistic=statistic, schedule=FEW)
        shared.serve(agent, SIMPLEX)
        assert agent.switches == agent.releases == 4


# Save and resume.


@pytest.mark.parametrize(
    "other",
    [
        *shared.OTHERS,
        {"weights": "variance"},
        {"constants": LinearConstants(bonus=0.5)},
        {"schedule": "fixed:size=30"},
        {"cls": LSVIUCBPlusPlus, "weights": "none"},
        {"world": TWO},
    ],
    ids=str,
)
def test_a_save_of_another_agent_is_refused_and_stays_loadable(other: Any, tmp_path: Any) -> None:
    base = {"schedule": FEW, "statistic": "features", "noise_seed": None}
    shared.save_of_another_is_refused(made, SIMPLEX, base, other, tmp_path)


@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_a_killed_process_resumes_from_its_autosave(statistic: str, tmp_path: Any) -> None:
    path = tmp_path / "state"
    options: dict[str, Any] = {"statistic": statistic, "schedule": FEW, "cls": LSVIUCBPlusPlus}
    agent = made(**options, autosave=path)
    shared.serve(agent, SIMPLEX)
    resumed = made(**options, seed=5, noise_seed=7).load(path)
    assert not difference(snapshot(agent), snapshot(resumed))
    assert (resumed.lower_values == agent.lower_values).all()
    assert resumed._curator.blocks == ()


# That it learns.


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("statistic", ["features", "counts"])
def test_private_agents_learn(name: str, statistic: str) -> None:
    world = simplex(3, 12, 4, 5, seed=600)
    found = []
    for seed in range(3):
        options = {"statistic": statistic, "seed": seed, "noise_seed": noise_seed(seed)}
        agent = AGENTS[name](world.spec, 20_000, JointDP(10.0, 1e-6), **options)
        result = run(agent, world, seed, progress=False)
        assert result.guarantee.epsilon == pytest.approx(10.0)
        found.append(world.value(agent.greedy_policy))
    assert world.baseline_value < 0.5 * world.optimal_value
    assert np.median(found) > 0.95 * world.optimal_value


def test_chance_alone_explains_no_learning() -> None:
    """The same run at a budget that drowns everything in noise."""
    world = simplex(3, 12, 4, 5, seed=600)
    values = []
    for seed in range(3):
        agent = LSVIUCB(world.spec, 20_000, JointDP(1e-4, 1e-6), seed=seed, noise_seed=seed)
        run(agent, world, seed, progress=False)
        values.append(world.value(agent.greedy_policy))
    assert np.median(values) < 0.9 * world.optimal_value
