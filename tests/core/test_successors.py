"""Successors: every family's agents go on after the last declared user, from all that was released.

A successor's first greedy policy is as good as its predecessor's, what its own users say is added
to that and not put in its place, and a save of it is resumed like any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.core.receipt import Receipt
from tacit.privacy.errors import DoubleSpend, HorizonExceeded, InvalidArgument
from tacit.registry import agent_entry

PRIVACY = tacit.JointDP(epsilon=1.0, delta=1e-6)

RIVER = tacit.tabular.riverswim(4, 6)
SIMPLEX = tacit.linear.simplex(dimension=3, states=10, actions=4, horizon=5)
MODELS = tacit.mixture.mixture_of_models(states=6, actions=3, horizon=5)
HARD = tacit.mixture.hard_mixture(dimension=3, horizon=4)
SYSTEM = tacit.lq.double_integrator(5)
LINE = tacit.continuous.line()

ROWS = [
    ("ucbvi", RIVER, 20_000, {}),
    ("ucbpo", RIVER, 20_000, {}),
    ("concurrent_psrl", RIVER, 2_000, {}),
    ("concurrent_psrl", RIVER, 2_000, {"running": 0}),
    ("policy_improvement", RIVER, 20_000, {}),
    ("lsvi_ucb", SIMPLEX, 4_000, {"statistic": "features"}),
    ("lsvi_ucb", SIMPLEX, 4_000, {"statistic": "counts"}),
    ("lsvi_ucb_plus_plus", SIMPLEX, 4_000, {}),
    ("linear_posterior", SIMPLEX, 500, {}),
    ("linopt_vi", MODELS, 4_000, {}),
    ("certainty_equivalence", SYSTEM, 2_000, {}),
    ("fitted_functional_q", LINE, 300, {}),
    ("fitted_functional_q", LINE, 2_000, {"serve": "all"}),
    pytest.param("kernel_lsvi", LINE, 1_000, {}, marks=pytest.mark.slow),
]


def make(name: str, world: Any, users: int, **options: Any) -> Any:
    privacy = tacit.JointDP(options.pop("epsilon", 1.0), 1e-6)
    given = {"noise_seed": 0} | options
    return agent_entry(name).make(world.spec, users=users, privacy=privacy, **given)


def score(world: Any, policy: Any) -> float:
    """0 for acting at random, 1 for the optimum."""
    least = world.baseline_value
    return float((world.value(policy) - least) / (world.optimal_value - least))


def serve(agent: Any, world: Any, blocks: int, seed: int = 0) -> None:
    """Some blocks of simulated users."""
    rng = np.random.default_rng(seed)
    for _ in range(blocks):
        if not agent.block_users:
            return
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))


@pytest.mark.parametrize(("name", "world", "users", "options"), ROWS)
def test_a_successor_knows_what_its_predecessor_knew(
    name: str, world: Any, users: int, options: dict[str, Any], tmp_path: Path
) -> None:
    agent = make(name, world, users, **options)
    serve(agent, world, 10**6)
    heir = agent.successor(2 * users, noise_seed=1)
    assert (heir.served, heir.users, heir.before) == (0, 2 * users, users)
    first_version = agent.policy.version + int(agent.ends_greedy)
    assert heir.policy.version == heir.greedy_policy.version == first_version
    known = score(world, agent.greedy_policy)
    first = score(world, heir.greedy_policy)
    assert first == pytest.approx(known, abs=0.02), "it plans from the same releases"
    # Its own users add to that: one small block does not put it in question.
    serve(heir, world, 1, seed=1)
    assert heir.policy.version == first_version + 1
    assert score(world, heir.greedy_policy) > known - 0.2
    # Saved and resumed by an agent that is made with its arguments.
    heir.save(tmp_path / "state")
    again = make(name, world, 2 * users, **options, noise_seed=1).load(tmp_path / "state")
    assert (again.before, again.served, again.policy.version) == (
        users,
        heir.served,
        heir.policy.version,
    )
    for one in (heir, again):
        serve(one, world, 1, seed=2)
    assert world.value(heir.greedy_policy) == world.value(again.greedy_policy)


def test_answers_are_read_in_the_units_of_the_successor() -> None:
    """Where discounts differ, a predecessor's targets d P V are d' P W of the successor's."""
    agent = make("fitted_functional_q", LINE, 30)
    serve(agent, LINE, 1)
    heir = agent.successor(10**6, noise_seed=1)
    assert heir.discount > agent.discount
    ratio = agent.discount / heir.discount
    for mine, other in zip(heir.belief.answers, agent.belief.answers, strict=True):
        np.testing.assert_allclose(mine.value, ratio * other.value)
        np.testing.assert_array_equal(mine.sums, other.sums)


def night(agent: Any, names: list[str], seed: int) -> tacit.Episodes:
    """Sessions of people who follow what an agent serves."""
    rng, (H, S) = np.random.default_rng(seed), (RIVER.spec.horizon, RIVER.spec.states)
    states = rng.integers(0, S, (len(names), H + 1))
    actions = agent.policy.actions[np.arange(H), states[:, :H]]
    versions = np.full(len(names), agent.policy.version)
    return tacit.Episodes(states, actions, rng.integers(0, 2, (len(names), H)), versions, names)


def test_users_of_the_last_policy_are_the_successors() -> None:
    """A night too many for the old agent is learnt from by the new one, and nobody is lost."""
    agent = make("ucbvi", RIVER, 60, schedule="fixed:size=50")
    agent.learn(night(agent, [f"user {i}" for i in range(50)], 0))
    late = night(agent, [f"late {i}" for i in range(30)], 1)
    with pytest.raises(HorizonExceeded, match=r"agent\.successor"):
        agent.learn(late)
    heir = agent.successor(100, noise_seed=1, schedule="fixed:size=30")
    assert heir.policy is agent.policy
    assert heir.learn(late).counted == 30
    assert heir.policy.version == 2


def test_a_successor_of_a_pinned_policy_plans_anew(tmp_path: Path) -> None:
    agent = make("ucbvi", RIVER, 200, schedule="fixed:size=50")
    first = agent.policy
    agent.learn(night(agent, [f"user {i}" for i in range(50)], 0))
    agent.roll_back(first, pin=True)
    heir = agent.successor(100, noise_seed=1)
    assert (agent.policy.version, heir.policy.version) == (0, 2)


def test_nobody_is_in_two_agents_at_once() -> None:
    """Who waits is released first, and counts in the successor; the old agent takes nobody."""
    agent = make("ucbvi", RIVER, 100, schedule="fixed:size=50")
    agent.learn(night(agent, [f"user {i}" for i in range(60)], 0))
    agent.learn(night(agent, ["late 1", "late 2"], 1))
    assert (agent.served, agent.taken) == (60, 62)
    heir = agent.successor(100, noise_seed=1, schedule="fixed:size=4")
    assert (agent.served, agent.taken, heir.before) == (62, 62, 62)
    with pytest.raises(HorizonExceeded, match="has a successor"):
        agent.learn(night(agent, ["new 0"], 2))
    names = ["late 1", "user 3", "new 1", "new 2"]
    assert heir.learn(night(heir, names, 3)) == Receipt(4, 2, 0, 0, 2, 3, (3,), 0)
    third = heir.successor(100, noise_seed=2, schedule="fixed:size=2")
    assert (third.before, third.policy.version) == (66, 3)
    assert third.learn(night(third, ["late 1", "new 1"], 4)).refused == 2


def test_the_accounts_of_both_add_up(tmp_path: Path) -> None:
    """Two episodes each are declared: whoever had one with the first agent has one left."""
    privacy = tacit.JointDP(1.0, 1e-6, episodes_per_user=2)
    options: dict[str, Any] = {"ledger": tmp_path / "one", "schedule": "fixed:size=3"}
    agent = tacit.UCBVI(RIVER.spec, 3, privacy, **options)
    agent.learn(night(agent, ["a", "a", "b"], 0))
    heir = agent.successor(6, ledger=tmp_path / "two", schedule="fixed:size=3")
    receipt = heir.learn(night(heir, ["a", "b", "b"], 1))
    assert (receipt.counted, receipt.refused) == (1, 2), "b has one left, a has none"
    for path in ("one", "two"):
        assert tacit.Ledger(tmp_path / path).max_spent == pytest.approx(privacy.episode_limit)


def test_what_users_of_both_are_promised_must_be_known(tmp_path: Path) -> None:
    agent = make("ucbvi", RIVER, 100)
    for other in (
        tacit.JointDP(1.0, 1e-6, episodes_per_user=2),
        tacit.JointDP(1.0, 0.0),
        tacit.JointDP(1.0, 1e-6, relation=tacit.Relation.ZERO_OUT),
        tacit.LocalDP(1.0, 1e-6),
        tacit.NonPrivate(),
    ):
        with pytest.raises(InvalidArgument, match="another epsilon or delta at most"):
            agent.successor(100, other, noise_seed=1)
    assert agent.successor(100, tacit.JointDP(0.5, 1e-7), noise_seed=1).guarantee.epsilon == 0.5


def test_a_ledger_of_people_must_know_the_predecessors_people(tmp_path: Path) -> None:
    agent = tacit.UCBVI(RIVER.spec, 10, PRIVACY, schedule="fixed:size=2")
    agent.learn(night(agent, ["a", "b"], 0))
    tacit.Ledger.create_for_people(tmp_path / "people", PRIVACY)
    with pytest.raises(InvalidArgument, match="does not know whom the predecessor counted"):
        agent.successor(10, ledger=tmp_path / "people")
    agent.learn(night(agent, ["c", "d"], 1))  # it was not succeeded


def test_what_cannot_start_another_says_what_to_do() -> None:
    agent = make("pessimistic_vi", RIVER, 100)
    with pytest.raises(InvalidArgument, match="serve what it recommends"):
        agent.successor(100)
    with pytest.raises(InvalidArgument, match="no option colour"):
        make("ucbvi", RIVER, 100).successor(100, colour="red")


@pytest.mark.parametrize("privacy", [tacit.LocalDP(20.0, 1e-6), tacit.NonPrivate()], ids=repr)
def test_other_models_go_on_too(privacy: Any) -> None:
    agent = tacit.agent(RIVER.spec, 20_000, privacy, noise_seed=0)
    serve(agent, RIVER, 10**6)
    heir = agent.successor(20_000, noise_seed=1)
    assert score(RIVER, heir.greedy_policy) == score(RIVER, agent.greedy_policy) > 0.5


# Succession ends a run: nobody goes on from a save that was made before.


def ledgered(folder: Path, **options: Any) -> Any:
    return tacit.UCBVI(
        RIVER.spec, 10, PRIVACY, schedule="fixed:size=2", **{"ledger": folder / "one"} | options
    )


@pytest.mark.parametrize("saved", ["by hand", "autosave", "with people"])
def test_no_save_of_a_predecessor_goes_on(saved: str, tmp_path: Path) -> None:
    """One episode each: x would be in the sums of both runs, at the whole budget of each."""
    state, autosave = tmp_path / "state", tmp_path / "autosave"
    more = {"autosave": autosave} if saved == "autosave" else {}
    if saved == "with people":
        tacit.Ledger.create_for_people(tmp_path / "one", tacit.JointDP(2.0, 1e-6))
    agent = ledgered(tmp_path, **more)
    agent.learn(night(agent, ["a", "b"], 0))
    if saved != "autosave":
        agent.save(state)
    two = tmp_path / ("one" if saved == "with people" else "two")
    heir = agent.successor(10, ledger=two, schedule="fixed:size=2")
    assert heir.learn(night(heir, ["x", "y"], 1)).counted == 2
    path = autosave if saved == "autosave" else state
    before = (tmp_path / "one").read_bytes()
    fresh = tacit.UCBVI(RIVER.spec, 10, PRIVACY, schedule="fixed:size=2")
    with pytest.raises(DoubleSpend, match="has a successor") as said:
        fresh.load(path, ledger=tmp_path / "one")
    assert "\n" not in str(said.value)
    assert (tmp_path / "one").read_bytes() == before
    with pytest.raises(DoubleSpend, match="has a successor"):
        tacit.JointCurator.load(path, ledger=tmp_path / "one")


def test_a_succession_is_on_record_and_ends_the_run(tmp_path: Path) -> None:
    agent = ledgered(tmp_path)
    agent.learn(night(agent, ["a", "b"], 0))
    heir = agent.successor(10, ledger=tmp_path / "two", schedule="fixed:size=2")
    last = tacit.Ledger.open(tmp_path / "one", every_line=True).entries[-1]
    assert (last.event, last.label) == ("succession", tacit.Ledger.open(tmp_path / "two").id)
    # Whatever still speaks for it is refused, and the file stays as it was.
    for call in (
        lambda: agent.save(tmp_path / "late"),
        lambda: agent._curator.accounts.ledger.charge({"0": 0.0}, "one more"),
    ):
        with pytest.raises(DoubleSpend, match="has a successor"):
            call()
    assert not (tmp_path / "late").exists()
    with pytest.raises(HorizonExceeded, match="has a successor"):
        agent.learn(night(agent, ["c"], 1))
    assert heir.learn(night(heir, ["c", "a"], 1)).counted == 1


@pytest.mark.parametrize("ledger", [True, False])
def test_there_is_one_successor(ledger: bool, tmp_path: Path) -> None:
    """Two of them would not know of each other whom they counted."""
    agent = ledgered(tmp_path, ledger=tmp_path / "one" if ledger else None)
    agent.learn(night(agent, ["a", "b"], 0))
    agent.successor(10, ledger=tmp_path / "two" if ledger else None)
    with pytest.raises(HorizonExceeded, match="has a successor"):
        agent.successor(10, ledger=tmp_path / "three" if ledger else None)
    assert not (tmp_path / "three").exists()


def test_a_run_that_another_process_took_over_has_no_successor(tmp_path: Path) -> None:
    agent = ledgered(tmp_path)
    agent.learn(night(agent, ["a", "b"], 0))
    agent.save(tmp_path / "state")
    other = tacit.UCBVI(RIVER.spec, 10, PRIVACY, schedule="fixed:size=2")
    other.load(tmp_path / "state", ledger=tmp_path / "one", autosave=tmp_path / "autosave")
    with pytest.raises(DoubleSpend, match="another process resumed"):
        agent.successor(10, ledger=tmp_path / "two", autosave=tmp_path / "new")
    assert not (tmp_path / "new").exists(), "nobody can go on from it"
    other.learn(night(other, ["x", "y"], 1))


def test_a_successor_that_is_refused_ends_nothing(tmp_path: Path) -> None:
    agent = ledgered(tmp_path)
    agent.learn(night(agent, ["a", "b"], 0))
    for wrong in ({"autosave": tmp_path / "no" / "folder"}, {"ledger": tmp_path / "one"}):
        with pytest.raises((OSError, DoubleSpend)):
            agent.successor(10, **wrong)
    agent.learn(night(agent, ["c", "d"], 1))
    agent.save(tmp_path / "state")
    other = tacit.UCBVI(RIVER.spec, 10, PRIVACY, schedule="fixed:size=2")
    assert other.load(tmp_path / "state", ledger=tmp_path / "one").served == 4


def test_killed_before_it_has_written_anything_a_successor_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On record first: whatever is on disk afterwards, one run at most can go on."""
    agent = ledgered(tmp_path, autosave=tmp_path / "autosave")
    agent.learn(night(agent, ["a", "b"], 0))
    seen: list[str] = []

    def killed(self: Any, path: Any) -> None:
        seen.append(tacit.Ledger.open(tmp_path / "one", every_line=True).entries[-1].event)
        raise KeyboardInterrupt

    monkeypatch.setattr(tacit.JointCurator, "autosave_to", killed)
    with pytest.raises(KeyboardInterrupt):
        agent.successor(10, ledger=tmp_path / "two", autosave=tmp_path / "new")
    assert seen == ["succession"]


def test_without_a_ledger_the_autosave_alone_knows(tmp_path: Path) -> None:
    """As the documentation says: nothing else can be told that a successor goes on."""
    agent = ledgered(tmp_path, ledger=None, autosave=tmp_path / "autosave")
    agent.learn(night(agent, ["a", "b"], 0))
    agent.successor(10)
    again = tacit.UCBVI(RIVER.spec, 10, PRIVACY, schedule="fixed:size=2")
    again.load(tmp_path / "autosave")
    with pytest.raises(HorizonExceeded, match="has a successor"):
        again.learn(night(again, ["x"], 1))
    with pytest.raises(HorizonExceeded, match="has a successor"):
        again.successor(10)
