"""The loop: exact metrics, permuted labels, runs that repeat, results that survive a file."""

import contextlib
import io
import json
import math
import os
import stat
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tacit
from tacit.core.problem import Schedule
from tacit.data.episodes import Episodes
from tacit.privacy.budget import Relation
from tacit.privacy.errors import CorruptFile, InvalidArgument
from tacit.simulation.result import Result, greedy_users_to_90, users_to_90
from tacit.simulation.run import PermutedWorld, run
from tacit.tabular.policy import Policy
from tacit.tabular.spec import FiniteSpec
from tacit.tabular.world import TabularWorld

MEANS = (0.1, 0.5, 0.9)
GUARANTEE = tacit.Guarantee(
    model="joint",
    epsilon=1.0,
    delta=1e-6,
    mu=0.2367,
    relation=Relation.REPLACE_ONE,
    releases=75,
    mechanism="square-root counter, Gaussian noise",
)


class Coins:
    """One state, one step, three coins. Action 2 is the best."""

    name = "coins:heads=0.9"
    optimal_value = max(MEANS)
    baseline_value = sum(MEANS) / 3
    reference_value = 0.0

    def __init__(self):
        self.spec = FiniteSpec(states=1, actions=3, horizon=1, stationary=True)
        self.evaluated = 0

    def value(self, policy):
        self.evaluated += 1
        return float(policy.table()[0, 0] @ MEANS)

    def simulate(self, policy, users, rng, form):
        pulls = rng.multinomial(users, policy.table()[0, 0])
        heads = rng.binomial(pulls, MEANS).astype(np.float64)
        if form == "counts":
            arrays = {"transitions": pulls.reshape(1, 1, 3, 1), "rewards": heads.reshape(1, 1, 3)}
            return tacit.Block(users, arrays, aggregate=True)
        actions = np.repeat(np.arange(3), pulls)
        won = np.concatenate([np.arange(n) < k for n, k in zip(pulls, heads, strict=True)])
        versions = np.full(users, policy.version)
        return Episodes(np.zeros((users, 2)), actions[:, None], won[:, None], versions)


class Learner:
    """Tries everything in the first block, then follows the largest mean, with some exploring."""

    def __init__(self, spec, seed=0, noise_seed=None, users=1000, form="counts"):
        self.spec, self.users, self.data_format = spec, users, form
        self.privacy = tacit.NonPrivate()
        self.guarantee = None
        self.blocks = Schedule.parse("geometric:growth=1.5,first=30", users).blocks
        self.counts, self.sums = np.zeros(spec.actions), np.zeros(spec.actions)
        self.releases = 0
        self.rng = np.random.default_rng(seed)
        self.policy = self.greedy_policy = Policy.uniform(1, 1, spec.actions)
        self.followed = []

    @property
    def block_users(self):
        return self.blocks[self.releases] if self.releases < len(self.blocks) else 0

    def learn(self, data):
        if isinstance(data, Episodes):
            self.followed += data.versions.tolist()
            actions, rewards = data.actions[:, 0], data.rewards[:, 0]
            self.counts += np.bincount(actions, minlength=3)
            self.sums += np.bincount(actions, rewards, minlength=3)
        else:
            self.counts += data["transitions"].sum(axis=(0, 1, 3))
            self.sums += data["rewards"].sum(axis=(0, 1))
        self.releases += 1
        best = int((self.sums / np.maximum(self.counts, 1)).argmax())
        tried = best if self.releases % 2 else int(self.rng.integers(3))
        self.greedy_policy = Policy.deterministic([[best]], 3, self.releases)
        self.policy = Policy.deterministic([[tried]], 3, self.releases)


def slow_users_to_90(served, losses):
    """The definition, word by word."""
    for r in range(len(losses)):
        means = []
        for later in range(r + 1, len(served)):
            lost = sum((served[k + 1] - served[k]) * losses[k] for k in range(r, later))
            means.append(lost / (served[later] - served[r]))
        if all(mean < 0.1 for mean in means):
            return served[r]
    return None


losses_of_policies = st.sampled_from([0.0, 0.05, 0.09, 0.11, 0.2, 1.0]) | st.floats(-0.1, 1.1)
curves = st.lists(st.tuples(st.integers(1, 40), losses_of_policies), min_size=1, max_size=12)


@given(curves)
def test_users_to_90_is_its_definition(curve):
    served = [0, *np.cumsum([users for users, _ in curve]).tolist()]
    losses = [loss for _, loss in curve]
    for a in range(len(curve)):
        for b in range(a + 1, len(curve) + 1):
            # A mean of exactly 0.1, but for rounding, is anybody's.
            assume(abs(sum(n * (loss - 0.1) for n, loss in curve[a:b])) > 1e-9)
    assert users_to_90(served, losses) == slow_users_to_90(served, losses)


@given(st.lists(st.floats(-0.1, 0.3), min_size=1, max_size=12))
def test_greedy_users_to_90_is_its_definition(losses):
    served = [10 * r for r in range(len(losses))]
    good = [r for r in range(len(losses)) if all(loss < 0.1 for loss in losses[r:])]
    assert greedy_users_to_90(served, losses) == (served[good[0]] if good else None)


def test_headlines_are_about_the_policies_that_served():
    """The last release, and the greedy policy beside it, served nobody."""
    result = make_result()
    assert result.served_value == pytest.approx((10 * 0.5 + 90 * 0.75) / 100)
    assert ((result.final_value, result.score), result.greedy_value) == ((0.75, 0.5), 0.9)
    assert result.greedy_score == pytest.approx(0.8)
    assert result.regret[-1] == pytest.approx(100 * (1.0 - result.served_value))
    head, *rest = str(result).splitlines()
    assert head.startswith("UCBVI on coins: 100 users got 0.725 each, the last of them 0.75")
    assert not any("0.9" in line for line in [head, *rest] if "greedy" not in line)
    assert "served 0.725, greedy 0.9" in repr(result)
    summary = result.to_dict()["summary"]
    assert [summary[name] for name in ("served_value", "final_value", "greedy_value")] == [
        *(pytest.approx(0.725), 0.75, 0.9)
    ]
    # One block, as of a batch agent: users had what they would have had anyway.
    batch = make_result(served=[0, 100], values=[0.5, 1.0], greedy_values=[0.5, 1.0])
    assert (batch.final_value, batch.score, batch.greedy_score) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize("unknown", [math.nan, None])
def test_an_optimum_that_nobody_knows(unknown, tmp_path):
    result = make_result(optimal_value=unknown)
    assert math.isnan(result.optimal_value)
    assert math.isnan(result.score)
    assert np.isnan(result.losses).all()
    assert np.isnan(result.regret[1:]).all()
    assert (result.users_to_90, result.greedy_users_to_90) == (None, None)
    assert (result.final_value, result.greedy_value) == (0.75, 0.9)
    assert "the optimum is not known" in str(result)
    assert "nan" not in str(result)
    result.save(tmp_path / "result.json")
    assert "NaN" not in (tmp_path / "result.json").read_text()
    assert Result.load(tmp_path / "result.json") == result
    result.plot(tmp_path / "result.png")
    with pytest.raises(InvalidArgument, match="optimal_value must hold finite numbers"):
        make_result(optimal_value=math.inf)


def test_a_run_that_ends_too_early_says_so():
    early = make_result(served=[0, 50, 400], values=[0.5, 1.0, 1.0])
    late = make_result(served=[0, 50, 500], values=[0.5, 1.0, 1.0])
    assert early.users_to_90 == late.users_to_90 == 50
    assert (early.settled, late.settled) == (False, True)
    assert "shorter than 10 times" in str(early)
    assert "shorter" not in str(late)
    assert not make_result().settled


@pytest.mark.parametrize("form", ["counts", "episodes"])
def test_a_run_serves_everybody_and_reports_what_was_served(form):
    agent, world = Learner(Coins().spec, form=form), Coins()
    result = run(agent, world, seed=3)
    assert result.served.tolist() == [0, *np.cumsum(agent.blocks)]
    assert result.users == agent.users == 1000
    assert agent.counts.sum() == 1000
    assert result.values[0] == pytest.approx(0.5)
    assert result.greedy_value == 0.9
    assert result.greedy_users_to_90 is not None
    assert set(result.values[1:].tolist()) <= set(MEANS)
    by_hand = sum(
        users * (0.9 - value) for users, value in zip(agent.blocks, result.values, strict=False)
    )
    assert result.regret[-1] == pytest.approx(by_hand)
    assert (result.agent, result.world) == ("Learner", "coins:heads=0.9")
    assert world.evaluated <= 4, "three coins and the uniform policy, each once"
    assert result.seconds["total"] >= result.seconds["learn"] >= 0
    if form == "episodes":
        assert agent.followed == np.repeat(np.arange(len(agent.blocks)), agent.blocks).tolist()


def test_labels_are_permuted_by_the_seed():
    labels = set()
    for seed in range(20):
        agent = Learner(Coins().spec, users=3000)
        run(agent, Coins(), seed)
        labels.add(int((agent.sums / agent.counts).argmax()))
    assert labels == {0, 1, 2}, "the best coin has every label"


class Named(Coins):
    exchangeable_actions = False


def test_a_world_can_keep_its_labels():
    for seed in range(8):
        agent = Learner(Coins().spec, users=3000)
        run(agent, Named(), seed)
        assert (agent.sums / agent.counts).argmax() == 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (FiniteSpec(2, 3, 1, True), "states = 2, but coins:heads=0.9 has 1"),
        (FiniteSpec(1, 2, 1, True), "actions = 2"),
        (FiniteSpec(1, 3, 2, True), "horizon = 2"),
        (FiniteSpec(1, 3, 1, True, reward_values=(0.0, 0.5)), "reward_values"),
        ("another world", "agent is for 'another world'"),
    ],
)
def test_an_agent_for_another_world_is_refused_before_anything_starts(spec, words):
    agent, world = Learner(Coins().spec), Coins()
    agent.spec = spec
    with pytest.raises(InvalidArgument, match=words):
        run(agent, world)
    assert agent.releases == world.evaluated == 0


def test_an_agent_may_know_less_than_the_spec():
    world = Coins()
    world.spec = replace(world.spec, start=(1.0,))
    agent = Learner(FiniteSpec(1, 3, 1, stationary=False))
    assert run(agent, world).users == 1000
    world.spec = replace(world.spec, stationary=False)
    with pytest.raises(InvalidArgument, match="stationary"):
        run(Learner(FiniteSpec(1, 3, 1, stationary=True)), world)

    @dataclass(frozen=True)
    class Richer(FiniteSpec):
        colour: str = "red"

    world.spec = Richer(1, 3, 1, stationary=True)
    assert run(Learner(FiniteSpec(1, 3, 1, stationary=True)), world).users == 1000
    with pytest.raises(InvalidArgument, match="horizon = 2"):
        run(Learner(FiniteSpec(1, 3, 2, stationary=True)), world)
    with pytest.raises(InvalidArgument, match="Richer"):
        run(Learner(Richer(1, 3, 1, stationary=True)), Coins())


def test_public_mistakes_are_refused():
    agent = Learner(Coins().spec)
    with pytest.raises(InvalidArgument, match="seed"):
        run(agent, Coins(), -1)
    with pytest.raises(InvalidArgument, match="progress"):
        run(agent, Coins(), progress="sometimes")
    assert agent.releases == 0
    run(agent, Coins())
    with pytest.raises(InvalidArgument, match="has served all 1000 users"):
        run(agent, Coins())


def test_progress_is_shown_on_a_terminal_and_not_otherwise(capfd, monkeypatch):
    run(Learner(Coins().spec), Coins())
    assert capfd.readouterr() == ("", "")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    run(Learner(Coins().spec), Coins(), progress=False)
    assert screen.getvalue() == ""
    run(Learner(Coins().spec), Coins())
    assert "coins" in screen.getvalue()
    assert capfd.readouterr().out == ""


def small_world(rng):
    start = [0.3, 0.3, 0.4]
    return TabularWorld(rng.dirichlet(np.ones(3), (3, 4)), rng.random((3, 4)), 2, start)


def some_policies(rng):
    return [
        Policy.deterministic(rng.integers(0, 4, (2, 3)), 4, version=7),
        Policy.stochastic(rng.dirichlet(np.ones(4), (2, 3)), version=8),
    ]


@pytest.mark.parametrize("order", [(2, 0, 3, 1), (0, 1, 2, 3), (3, 2, 1, 0)])
def test_a_permuted_world_is_the_world_with_permuted_tables(order):
    rng = np.random.default_rng(0)
    world = small_world(rng)
    permuted = PermutedWorld(world, order)
    # Not by translating policies: the tables themselves are in the new order.
    probabilities = world.model.transitions[0][:, order]
    means = world.model.reward_probabilities[0][:, order, 1]
    direct = TabularWorld(probabilities, means, 2, world.model.start)
    for policy in some_policies(rng):
        assert permuted.value(policy) == pytest.approx(direct.value(policy), abs=1e-12)
        assert permuted.translated(policy)[0].version == policy.version
    assert permuted.optimal_value == pytest.approx(direct.optimal_value)
    assert (permuted.spec, permuted.name) == (world.spec, world.name)


@pytest.mark.parametrize("form", ["episodes", "counts", "pooled"])
def test_simulated_labels_are_those_the_policy_chose(form):
    rng = np.random.default_rng(1)
    world, order = small_world(rng), (2, 0, 3, 1)
    permuted = PermutedWorld(world, order)
    actions = np.array([[0, 1, 2], [3, 0, 1]])
    policy = Policy.deterministic(actions, 4, version=7)
    users = 20_000
    data = permuted.simulate(policy, users, np.random.default_rng(2), form)
    if form == "episodes":
        assert np.array_equal(data.actions, actions[np.arange(2), data.states[:, :2]])
        assert (data.versions == 7).all()
        return
    counts, rewards = data["transitions"], data["rewards"]
    assert counts.sum() == 2 * users
    for s in range(3):
        chosen = set(actions[:, s].tolist())
        for a in range(4):
            n, total = counts[:, s, a].sum(), rewards[:, s, a].sum()
            assert (n > 0) == (a in chosen)
            if n > 0:
                # At least six standard deviations: the seed is fixed, and most others pass too.
                near = 3.0 / math.sqrt(n)
                row = world.model.transitions[0][s, order[a]]
                assert np.abs(counts[:, s, a].sum(axis=0) / n - row).max() < near
                mean = world.model.reward_probabilities[0][s, order[a], 1]
                assert abs(total / n - mean) < near


def test_hostile_actions_keep_their_values_under_other_labels():
    class Hostile(Coins):
        def simulate(self, policy, users, rng, form):
            actions = np.array([[0], [1], [2], [-1], [3], [2**62]])
            arrays = {"actions": actions, "rewards": np.zeros((6, 1))}
            if form == "counts":
                return tacit.Block(6, arrays)
            return Episodes(np.zeros((6, 2)), actions, np.zeros((6, 1)))

    permuted = PermutedWorld(Hostile(), (1, 2, 0))
    uniform = Policy.uniform(1, 1, 3)
    for form in ("counts", "episodes"):
        data = permuted.simulate(uniform, 6, np.random.default_rng(0), form)
        actions = data.actions if form == "episodes" else data["actions"]
        assert actions[:, 0].tolist() == [2, 0, 1, -1, 3, 2**62]


def make_result(**changes):
    fields = {
        "agent": "UCBVI",
        "world": "coins",
        "privacy": "JointDP()",
        "seed": 1,
        "served": [0, 10, 100],
        "values": [0.5, 0.75, 1.0],
        "greedy_values": [0.5, 0.8, 0.9],
        "optimal_value": 1.0,
        "baseline_value": 0.5,
        "reference_value": 0.0,
        "guarantee": GUARANTEE,
        "seconds": {"total": 0.125},
    }
    return Result(**(fields | changes))


finite_floats = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    blocks=st.lists(st.integers(1, 2**40), min_size=1, max_size=6),
    numbers=st.lists(finite_floats, min_size=17, max_size=17),
    seed=st.integers(0, 2**128),
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_a_file_gives_back_an_equal_result(tmp_path_factory, blocks, numbers, seed, text):
    releases = len(blocks) + 1
    result = make_result(
        agent=text,
        seed=seed,
        served=np.cumsum([0, *blocks]),
        values=numbers[:releases],
        greedy_values=numbers[releases : 2 * releases],
        optimal_value=numbers[14],
        baseline_value=numbers[15],
        reference_value=numbers[16],
    )
    path = tmp_path_factory.getbasetemp() / "result.json"
    result.save(path)
    again = Result.load(path)
    assert again == result
    assert again.values.tobytes() == result.values.tobytes()
    assert again.guarantee == GUARANTEE
    assert again != make_result(agent=text + ".")


def test_a_file_is_readable_by_others_and_by_people(tmp_path):
    path = tmp_path / "result.json"
    make_result().save(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644 & ~current_umask()
    [content] = json.loads(path.read_text())["results"]["UCBVI"]
    assert content["summary"]["regret"] == 27.5
    assert content["summary"]["users_to_90"] is None
    assert sorted(os.listdir(tmp_path)) == ["result.json"]


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "result.json"
    result = make_result()
    result.save(path)
    data = path.read_bytes()
    for place in range(0, len(data), 7):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        # White space may change, and nothing else.
        with contextlib.suppress(CorruptFile):
            assert Result.load(path) == result
        if data[:place].strip() == data.strip():
            continue
        path.write_bytes(data[:place])
        with pytest.raises(CorruptFile, match=r"result\.json"):
            Result.load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a file of runs"),
        (b"\x89PNG\r\n", "not a file of runs"),
        (b"[1, 2]", "not a file of runs"),
        (b'{"format": "tacit-guarantee", "version": 1}', "it must be 'tacit-runs'"),
        (b'{"format": "tacit-runs", "version": 1}', "version 2"),
        (b'{"format": "tacit-runs", "version": 2, "sha256": ""}', "checksum"),
        (b"[" * 100_000, "not a file of runs"),
    ],
)
def test_foreign_and_newer_files_are_refused(tmp_path, content, words):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=words):
        Result.load(path)


@pytest.mark.parametrize(
    "change",
    [
        *({"served": [0, 10]}, {"served": [10, 20, 30]}, {"served": [0, 20, 10]}),
        *({"values": [1.0, None, 2.0]}, {"values": "abc"}, {"values": [1.0, math.inf, 1.0]}),
        *({"seed": -1}, {"agent": 3}, {"guarantee": {"format": "?"}}, {"extra": 1}),
        *({"seconds": {"total": "x"}}, {"seconds": 3}, {"baseline_value": None}),
    ],
)
def test_a_file_with_impossible_values_is_refused(change):
    with pytest.raises(CorruptFile):
        Result.from_dict(make_result().to_dict() | change)


def test_every_kind_of_result_can_be_drawn(tmp_path):
    path = tmp_path / "figure.png"
    learnt = run(Learner(Coins().spec, users=10_000), Coins(), seed=1)
    one_block = make_result(served=[0, 5], values=[0.5, 0.5], greedy_values=[0.5, 0.5])
    perfect = make_result(values=[1.0, 1.0, 1.0], greedy_values=[1.0, 1.0, 1.0])
    nothing = make_result(optimal_value=0.5, values=[0.5] * 3, greedy_values=[0.5] * 3)
    pictures = []
    for result in (learnt, learnt, one_block, perfect, nothing):
        path.unlink(missing_ok=True)
        result.plot(path)
        pictures.append(path.read_bytes())
        assert pictures[-1].startswith(b"\x89PNG")
    assert pictures[0] == pictures[1], "equal results are equal pictures"
    assert len(set(pictures)) == 4
