"""Theory: the confidence set holds the truth, and reads nothing that was not released."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import OFU, Agent, Block, Budget, JointDP, LocalDP, NonPrivate
from tacit.lq import LQWorld, random_system
from tacit.lq.optimism import ConfidenceSet
from tacit.privacy.curators.gate import Release
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.statistic import StreamedBlock

Floats = NDArray[np.float64]

WORLD = random_system(2, 1, 5, seed=500)
JOINT = JointDP(1.0, 1e-6)


def sets_of(agent: Agent, world: LQWorld, seed: int = 0) -> list[ConfidenceSet]:
    """The confidence set after each release of a run."""
    rng, sets = np.random.default_rng(seed), []
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
        models = agent.confidence_set
        assert models is not None
        sets.append(models)
    return sets


@pytest.mark.parametrize(
    "privacy", [JOINT, JointDP(100.0, 1e-6), LocalDP(10.0, 1e-6), NonPrivate()]
)
def test_the_truth_is_in_the_set(privacy: Any) -> None:
    """At every release of 15 runs; each may fail with 10 %, though really with much less."""
    for seed in range(15):
        agent = OFU(
            WORLD.spec,
            2000,
            privacy,
            bonus="theory",
            schedule="geometric:growth=2,first=100",
            noise_seed=seed,
        )
        assert all(models.holds(WORLD.theta) for models in sets_of(agent, WORLD, seed))


def test_without_privacy_the_set_shrinks_and_optimism_finds_the_optimum() -> None:
    world = random_system(2, 1, 10, seed=500)
    agent = OFU(world.spec, 20_000, NonPrivate(), bonus="theory", noise_seed=0)
    sets = sets_of(agent, world)
    width = [models.beta / math.sqrt(np.linalg.eigvalsh(models.V)[0]) for models in sets]
    assert width[-1] < 0.1 * width[0]
    lost = world.optimal_value - world.value(agent.policy)
    assert lost < 0.05 * (world.optimal_value - world.baseline_value)


def test_the_radius_by_hand() -> None:
    agent = OFU(WORLD.spec, 400, JOINT, bonus="theory", schedule="fixed:size=100", noise_seed=0)
    sets = sets_of(agent, WORLD)
    spec, statistic = WORLD.spec, agent.statistic
    n, p = 2, 3
    assert statistic.tau is not None
    t = math.sqrt(2.0) * statistic.tau / JOINT.budget.mu
    share = agent.failure / 12.0
    for number, models in enumerate(sets, start=1):
        std = t * math.sqrt(number)
        low = std * (math.sqrt(2 * p) + math.sqrt(2.0 * math.log(2.0 / share)))
        noise = std / statistic.weight * (math.sqrt(n * p) + math.sqrt(2 * math.log(1 / share)))
        most = p * math.log1p(100 * number * statistic.tau / (p * low))
        seen = np.log(np.maximum(np.linalg.eigvalsh(models.V) / low, 1.0)).sum()
        width = spec.noise_bound * math.sqrt(2 * math.log(1 / share) + n * min(most, seen))
        beta = width + noise / math.sqrt(low) + math.sqrt(3.0 * low) * spec.norm_bound
        assert models.beta == pytest.approx(beta, rel=1e-12)


def test_caps_of_the_theory_never_cut() -> None:
    agent = OFU(WORLD.spec, 400, JOINT, bonus="theory", noise_seed=0)
    asked = agent.statistic
    block = WORLD.simulate(agent.policy, 500, np.random.default_rng(0)).block()  # type: ignore[union-attr]
    states, actions = np.asarray(block["states"]), np.asarray(block["actions"])
    z = np.concatenate([states[:, :-1], actions], axis=-1)
    caps = asked.floor + np.linalg.norm(z @ asked.spread, axis=-1)
    assert (np.linalg.norm(states[:, 1:], axis=-1) <= caps).all()


def test_the_radius_reads_no_raw_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """With releases forced to be the same, other users lead to the same sets and policies."""
    options: dict[str, Any] = {"bonus": "theory", "schedule": "fixed:size=50", "noise_seed": 0}
    first = OFU(WORLD.spec, 200, JOINT, **options)
    made: list[Release] = []
    genuine = JointCurator.release

    def recorded(self: JointCurator, *args: Any, **kwargs: Any) -> Release:
        made.append(genuine(self, *args, **kwargs))
        return made[-1]

    monkeypatch.setattr(JointCurator, "release", recorded)
    before = sets_of(first, WORLD, seed=1)
    script = iter(list(made))
    monkeypatch.setattr(JointCurator, "release", lambda *args, **kwargs: next(script))
    other = LQWorld(
        0.1 * WORLD.A,
        WORLD.B,
        WORLD.Q,
        WORLD.R,
        WORLD.horizon,
        WORLD.noise,
        WORLD.start,
    )
    second = OFU(WORLD.spec, 200, JOINT, **options)
    after = sets_of(second, other, seed=2)
    assert [models.beta for models in before] == [models.beta for models in after]
    assert first.policy.gains.tobytes() == second.policy.gains.tobytes()


# As printed.


def test_as_printed_states_what_is_proven_for_its_noise() -> None:
    users = 200
    agent = OFU(WORLD.spec, users, JOINT, calibration="as_printed", noise_seed=0)
    spec, m = WORLD.spec, 8
    g = spec.gain_bound
    node = math.sqrt(8 * m * math.log(2e6)) * spec.horizon * (1 + g) ** 2
    # B = sqrt(1 + g^2), X = 1, w = 1 + g: see the step clip of GramCross, H steps.
    a = (1 + g) ** 2 / (1 + g**2)
    sensitivity = spec.horizon * math.sqrt(2.0) * (1 + g**2) * (1 + a / 2)
    guarantee = agent.guarantee
    assert guarantee is not None
    assert a <= 2.0
    expected = sensitivity * math.sqrt(users.bit_length()) / node
    assert Budget(guarantee.epsilon, 1e-6).mu == pytest.approx(expected, rel=1e-6)
    assert guarantee.epsilon < 1.0


def test_as_printed_learns_nothing() -> None:
    world = random_system(2, 1, 10, seed=500)
    agent = OFU(
        world.spec,
        50_000,
        JOINT,
        calibration="as_printed",
        schedule="fixed:size=10000",
        noise_seed=0,
    )
    sets = sets_of(agent, world)
    assert all(models.holds(world.theta) for models in sets)
    # No control is optimal where states vanish by themselves, which the set allows.
    assert all(models.holds(np.zeros_like(world.theta)) for models in sets)
    assert np.abs(agent.policy.gains).max() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"privacy": LocalDP(1.0, 1e-6)}, "joint"),
        ({"privacy": JointDP(1.0, 1e-6, episodes_per_user=2)}, "one episode"),
        ({"users": 1}, "users"),
        ({"bonus": "theory"}, "bonus"),
        ({"clip": "trajectory"}, "clip"),
    ],
)
def test_what_was_not_printed_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"users": 100, "privacy": JOINT, "calibration": "as_printed"}
    with pytest.raises(InvalidArgument, match=message):
        OFU(WORLD.spec, **given | options)


def test_as_printed_is_not_saved(tmp_path: Any) -> None:
    agent = OFU(WORLD.spec, 100, JOINT, calibration="as_printed", noise_seed=0)
    with pytest.raises(InvalidArgument, match="comparisons"):
        agent.save(tmp_path / "agent")


def test_streamed_blocks_lead_to_the_same_sets() -> None:
    options: dict[str, Any] = {"bonus": "theory", "schedule": "fixed:size=9000", "noise_seed": 0}
    whole, parts = (OFU(WORLD.spec, 18_000, JOINT, **options) for _ in range(2))
    rng = np.random.default_rng(0), np.random.default_rng(0)
    whole.learn(WORLD.simulate(whole.policy, 9000, rng[0]))
    block = WORLD.simulate(parts.policy, 9000, rng[1], "streamed")
    assert isinstance(block, (StreamedBlock, Block))
    parts.learn(block)
    assert whole.confidence_set is not None
    assert parts.confidence_set is not None
    np.testing.assert_allclose(whole.confidence_set.V, parts.confidence_set.V, rtol=1e-9)
