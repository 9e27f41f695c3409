"""The private histogram of energies, and the clip level that is chosen from it."""

import math

import numpy as np
import pytest

from tacit import (
    Agent,
    Block,
    CertaintyEquivalence,
    InvalidArgument,
    JointDP,
    check_statistic,
)
from tacit.audit.watched_gate import WatchedGate
from tacit.lq import EnergyHistogram, TrajectorySums, dosing, random_system

HISTOGRAM = EnergyHistogram(2, 1, 3, least=0.1, ratio=2.0, bins=6)
JOINT = JointDP(1.0, 1e-6)


def users(rng: np.random.Generator, count: int) -> Block:
    scale = 10.0 ** rng.uniform(-2, 2, (count, 1, 1))
    return Block(
        count,
        {
            "states": scale * rng.normal(size=(count, 4, 2)),
            "actions": scale * rng.normal(size=(count, 3, 1)),
            "lengths": rng.integers(0, 5, count),
        },
    )


def one(states: list[list[float]], actions: list[list[float]], length: int = 4) -> Block:
    return Block(
        1,
        {
            "states": np.array([states], dtype=float),
            "actions": np.array([actions], dtype=float),
            "lengths": np.array([length]),
        },
    )


def bin_of(block: Block) -> int | None:
    (row,) = HISTOGRAM.vectors(block)
    assert set(row) <= {0.0, 1.0}
    return int(row.argmax()) if row.any() else None


def test_bins_by_hand() -> None:
    still = [[0.0, 0.0]] * 4
    assert bin_of(one(still, [[0.0]] * 3)) == 0
    # The last state is where no control follows: it does not count.
    assert bin_of(one([*still[:3], [9.0, 9.0]], [[0.0]] * 3)) == 0
    # 0.1 * 2^k <= energy < 0.1 * 2^(k + 1), for 0.15, 0.25 and 1.61.
    assert bin_of(one([[math.sqrt(0.15), 0.0], *still[1:]], [[0.0]] * 3)) == 0
    assert bin_of(one([[0.5, 0.0], *still[1:]], [[0.0]] * 3)) == 1
    assert bin_of(one([[0.5, 0.6], [1.0, 0.0], *still[2:]], [[0.0]] * 3)) == 4
    assert bin_of(one([[1e200, 0.0], *still[1:]], [[0.0]] * 3)) == 5


def test_invalid_steps_do_not_count_and_nobody_else_notices() -> None:
    states = [[1.0, 0.0], [np.nan, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert bin_of(one(states, [[0.0]] * 3)) == 3
    assert bin_of(one([[np.inf, 0.0]] * 4, [[0.0]] * 3)) is None
    assert bin_of(one(states, [[0.0]] * 3, length=0)) is None


def test_the_declared_sensitivity_is_attained() -> None:
    report = check_statistic(HISTOGRAM, users, attained=0.999)
    assert report.declared["replace-one l2"] == pytest.approx(math.sqrt(2.0))


def test_the_level_is_the_upper_end_of_the_bin_that_completes_the_share() -> None:
    counts = np.array([10.0, 50.0, 25.0, 10.0, 5.0, 0.0])
    assert HISTOGRAM.level(counts, 0.0, 0.5) == pytest.approx(0.1 * 2.0**2)
    assert HISTOGRAM.level(counts, 0.0, 0.9) == pytest.approx(0.1 * 2.0**4)
    # What does not stand out of the noise is nobody.
    noisy = np.array([-9.0, 30.0, -9.0, 0.0, 7.0, 5.0])
    assert HISTOGRAM.level(noisy, 4.0, 0.9) == pytest.approx(0.4)


@pytest.mark.parametrize("wrong", [{"least": 0.0}, {"ratio": 1.0}, {"bins": 1}, {"steps": 0}])
def test_wrong_arguments_are_refused(wrong: dict[str, float]) -> None:
    arguments = {"states": 2, "controls": 1, "steps": 3, "least": 0.1} | wrong
    with pytest.raises(InvalidArgument):
        EnergyHistogram(**arguments)


def served(agent: Agent, world, blocks: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(blocks):
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, "episodes"))


@pytest.mark.parametrize("clip", ["predictable", "trajectory"])
def test_warm_up_users_are_asked_for_the_histogram_and_nothing_else(clip: str) -> None:
    world = random_system(n=2, d=1, horizon=10, seed=500)
    agent = CertaintyEquivalence(
        world.spec, 1000, JOINT, clip=clip, level="private", schedule="fixed:size=200", noise_seed=1
    )
    with WatchedGate().open() as gate:
        served(agent, world, 3)
    asked = [(type(p.statistic), p.blocks) for p in gate.passages]
    assert asked == [(EnergyHistogram, (0,)), (TrajectorySums, (1,)), (TrajectorySums, (2,))]
    for number in range(3):
        assert agent._curator.spent(number) == pytest.approx(JOINT.episode_limit)
    # The level that was chosen is what most users have: the first clip leaves them whole.
    first = gate.passages[1].statistic
    block = gate.blocks[gate.passages[1].gate, 1]
    z = np.concatenate([block["states"][:, :-1], block["actions"]], axis=-1)
    energies = (z**2).sum(axis=(1, 2))
    assert np.quantile(energies, 0.6) < agent.energy < 3.0 * np.quantile(energies, 0.97)
    assert first.tau > 0.0


def test_a_public_level_asks_everybody_the_same_thing() -> None:
    world = random_system(n=2, d=1, horizon=10, seed=500)
    agent = CertaintyEquivalence(world.spec, 400, JOINT, schedule="fixed:size=200", noise_seed=1)
    with WatchedGate().open() as gate:
        served(agent, world, 2)
    assert {type(p.statistic) for p in gate.passages} == {TrajectorySums}


def test_the_level_survives_a_save(tmp_path) -> None:
    world = dosing()
    make = lambda seed: CertaintyEquivalence(  # noqa: E731
        world.spec, 600, JOINT, level="private", schedule="fixed:size=200", seed=seed, noise_seed=2
    )
    first, again = make(0), make(1)
    served(first, world, 1)
    first.save(tmp_path / "state")
    again.load(tmp_path / "state")
    assert again.energy == first.energy
    assert again.statistic.fingerprint == first.statistic.fingerprint


def test_refusals() -> None:
    spec = dosing().spec
    with pytest.raises(InvalidArgument, match="level must be public or private"):
        CertaintyEquivalence(spec, 100, JOINT, level="raw")
