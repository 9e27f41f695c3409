"""bonus="theory": confidence sets hold the true weights, and would not if they were smaller."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tacit import LDPUCRLVTR, JointDP, LinOptPO, LinOptVI, LocalDP, NonPrivate
from tacit.core.agent import Agent
from tacit.finite.model import optimal
from tacit.mixture import MixtureWorld, mixture_of_models
from tacit.mixture.linopt_vi import RegressedRewards, Regression, RegressionModel
from tacit.mixture.regularisers import FixedRidge, NoiseShift, Regularised
from tests.finite.families import in_quarters

Floats = NDArray[np.float64]

PRIVACY = {"none": NonPrivate(), "joint": JointDP(1.0, 1e-6), "local": LocalDP(20.0, 1e-6)}
# Few users, summed one by one and clipped, and many, in sums: chance, then noise, then neither.
FEW, MANY, MOST = 400, 10**6, 10**10


def models(seed: int, known: bool, fixed: bool = True) -> MixtureWorld:
    """Three base models, and weights of them that change from step to step unless ``fixed``."""
    world = mixture_of_models(3, 4, 4, 3, seed=700 + seed, known_rewards=known)
    if fixed:
        return world
    spec, rng = world.spec, np.random.default_rng(seed)
    return MixtureWorld(
        spec.transition_features,
        rng.dirichlet(np.ones(3), 3),
        np.concatenate([world.rewards, 0.5 * world.rewards, world.rewards]),
        3,
        reward_features=spec.reward_features,
        known_rewards=known,
        center=spec.center,
        directions=spec.directions,
        radius=spec.radius,
    )


def made(
    world: MixtureWorld, users: int, privacy: Any, seed: int, cls: Any = LinOptVI, **options: Any
) -> Agent:
    agent: Agent = cls(
        world.spec,
        users,
        privacy,
        bonus="theory",
        failure=0.1,
        schedule=f"fixed:size={users // 4}",
        seed=seed,
        noise_seed=seed,
        **options,
    )
    return agent


def distances(world: MixtureWorld, agent: Agent) -> dict[str, float]:
    """|w_hat - w| in the norm of Lambda over beta, the largest of all rows."""
    model = agent.algorithm.model()
    assert isinstance(model, RegressionModel)
    units = agent.algorithm.public.scale if agent.statistic_kind == "model" else 1.0
    found = {"transitions": ratio(model.fits, units * world.coordinates)}
    if isinstance(model._rewards, RegressedRewards):
        assert world.reward_weights is not None
        found["rewards"] = ratio(model._rewards.fits, world.reward_weights)
    return found


def ratio(fits: list[Regression], truth: Floats) -> float:
    ratios = []
    for row, fit in enumerate(fits):
        away = fit.weights - truth[min(row, len(truth) - 1)]
        square = away @ fit.matrix @ away
        # A matrix that is not positive definite has no norm.
        positive = np.linalg.eigvalsh(fit.matrix).min() > 0.0
        ratios.append(math.sqrt(max(square, 0.0)) / fit.beta if positive else math.inf)
    return max(ratios)


def optimal_q(world: MixtureWorld) -> Floats:
    """Q of the best policy, (H, S, A)."""
    model = world.model
    values, _ = optimal(model)
    R, P = model.mean_rewards, model.transitions
    steps = range(model.horizon)
    return np.stack([R[min(h, len(R) - 1)] + P[min(h, len(P) - 1)] @ values[h + 1] for h in steps])


def worst(world: MixtureWorld, agent: Agent, seed: int) -> tuple[dict[str, float], bool, float]:
    """The largest distances of a run; whether Q was ever too small; how much of it says anything.

    With values below what all steps left could bring, Q says something.
    """
    rng, Q = np.random.default_rng(seed), optimal_q(world)
    largest, below = {"transitions": 0.0, "rewards": 0.0}, False
    while agent.block_users:
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
        for name, value in distances(world, agent).items():
            largest[name] = max(largest[name], value)
        assert agent.q_values is not None
        below |= bool((agent.q_values < Q - 1e-9).any())
    left = np.arange(len(Q), 0, -1.0)[:, np.newaxis, np.newaxis]
    assert agent.q_values is not None
    return largest, below, float((agent.q_values < left - 1e-9).mean())


def failures(
    privacy: str, users: int, seeds: range, known: bool, fixed: bool = True, **options: Any
) -> tuple[int, int, float]:
    """Runs in which a confidence set misses the truth; in which Q is too small; what Q says."""
    missed = below = 0
    says = 1.0
    for seed in seeds:
        world = models(seed % 4, known, fixed)
        agent = made(world, users, PRIVACY[privacy], seed, **options)
        largest, low, informative = worst(world, agent, seed)
        missed += max(largest.values()) > 1.0
        below += low
        says = min(says, informative)
    return missed, below, says


CASES = [
    (privacy, statistic, known, fixed)
    for privacy in ("none", "joint")
    for statistic in ("model", "values")
    for known in (True, False)
    for fixed in (True, False)
] + [("local", "model", False, True), ("local", "values", True, True)]


@pytest.mark.parametrize(("privacy", "statistic", "known", "fixed"), CASES)
def test_confidence_sets_hold_the_truth(
    privacy: str, statistic: str, known: bool, fixed: bool
) -> None:
    """Ten percent of runs may fail. Of these none does: the constants are not sharp."""
    for users, seeds in ((FEW, range(24)), (MANY, range(4)), (MOST, range(2))):
        missed, below, says = failures(privacy, users, seeds, known, fixed, statistic=statistic)
        assert (missed, below) == (0, 0)
    # Bounds hold not only because they are cut at what is possible.
    assert says > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("privacy", "statistic", "known", "fixed"), CASES)
def test_confidence_sets_hold_in_hundreds_of_runs(
    privacy: str, statistic: str, known: bool, fixed: bool
) -> None:
    for users in (40, FEW, MANY):
        missed, below, _ = failures(privacy, users, range(300), known, fixed, statistic=statistic)
        # Ten percent are allowed; 300 runs of such a coin show more than 56 once in 1e6.
        assert max(missed, below) <= 56


def test_the_local_baseline_is_covered_too() -> None:
    for seed in range(6):
        world = models(seed % 4, known=seed % 2 == 0)
        agent = made(world, MANY, PRIVACY["local"], seed, LDPUCRLVTR)
        largest, below, _ = worst(world, agent, seed)
        assert max(largest.values()) <= 1.0
        assert not below


def test_policies_that_are_optimised_are_valued_optimistically() -> None:
    """What LinOptPO says of its policy is at least what the policy has."""
    for seed in range(6):
        world = models(seed % 4, known=seed % 2 == 0)
        agent = made(world, MANY, PRIVACY["joint"], seed, LinOptPO)
        rng = np.random.default_rng(seed)
        while agent.block_users:
            policy = agent.policy
            agent.learn(world.simulate(policy, agent.block_users, rng, agent.form))
            assert max(distances(world, agent).values()) <= 1.0
            assert agent.q_values is not None
            first = (agent.q_values[0] * policy.table()[0]).sum(axis=1)
            assert first @ world.model.start >= world.value(policy) - 1e-9


# Slips.


@pytest.mark.parametrize(
    ("privacy", "statistic", "users"),
    [
        ("none", "model", MANY),
        ("none", "values", MANY),
        ("joint", "model", FEW),
        ("joint", "values", FEW),
        ("local", "values", MANY),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_sets_that_are_too_small_are_found_out(
    privacy: str, statistic: str, users: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Regression.__init__

    def shrunk(self: Regression, *args: Any) -> None:
        make(self, *args)
        self.beta *= 0.05

    monkeypatch.setattr(Regression, "__init__", shrunk)
    missed, _, _ = failures(privacy, users, range(8), known, statistic=statistic)
    assert missed >= 6


@dataclass(frozen=True)
class NoBias:
    """A slip: what the regulariser does to the weights is overlooked."""

    ridge: float

    def __call__(self, *args: Any) -> Regularised:
        return replace(FixedRidge(self.ridge)(*args), largest=0.0)


@pytest.mark.parametrize("statistic", ["model", "values"])
def test_the_bias_of_the_ridge_counts(statistic: str) -> None:
    failed = {}
    for regulariser in (FixedRidge(3000.0), NoBias(3000.0)):
        missed, _, _ = failures(
            "none", FEW, range(8), False, statistic=statistic, regulariser=regulariser
        )
        failed[type(regulariser)] = missed
    assert failed[FixedRidge] == 0
    assert failed[NoBias] >= 6


@dataclass(frozen=True)
class NoShift:
    """A slip: the noisy Gram matrix as it is, with what is proven of the shifted one."""

    def __call__(self, gram: Floats, *args: Any) -> Regularised:
        return replace(NoiseShift()(gram, *args), matrix=gram)


@dataclass(frozen=True)
class OnlyCut(NoShift):
    """Another: made positive definite, but by next to nothing."""

    def __call__(self, gram: Floats, *args: Any) -> Regularised:
        values, vectors = np.linalg.eigh(gram)
        cut = (vectors * np.maximum(values, 1e-3)) @ vectors.T
        return replace(NoiseShift()(gram, *args), matrix=cut)


@pytest.mark.parametrize("statistic", ["model", "values"])
@pytest.mark.parametrize("privacy", ["joint", "local"])
def test_noise_without_a_shift_is_found_out(privacy: str, statistic: str) -> None:
    failed, indefinite = {}, 0
    for cls in (NoiseShift, NoShift, OnlyCut):
        failed[cls], _, _ = failures(
            privacy, 40, range(8), False, statistic=statistic, regulariser=cls()
        )
    for seed in range(8):
        world = models(seed % 4, known=False)
        options = {"statistic": statistic, "regulariser": NoShift()}
        agent = made(world, 40, PRIVACY[privacy], seed, **options)
        agent.learn(world.simulate(agent.policy, 10, np.random.default_rng(0), agent.form))
        model: Any = agent.algorithm.model()
        fits = model.fits + model._rewards.fits
        indefinite += any(np.linalg.eigvalsh(fit.matrix).min() <= 0.0 for fit in fits)
    assert failed[NoiseShift] == 0
    assert failed[NoShift] >= 6
    assert failed[OnlyCut] >= 6
    assert indefinite >= 6


# What the bounds are made of.


def test_every_term_is_as_derived() -> None:
    """beta by hand, from the numbers of the regulariser."""
    world = models(0, known=False, fixed=False)
    agent = made(world, FEW, PRIVACY["joint"], 0, statistic="model")
    agent.learn(world.simulate(agent.policy, FEW // 4, np.random.default_rng(0), agent.form))
    model: Any = agent.algorithm.model()
    # Halves for transitions and rewards, for sampling and noise, and one to spare.
    p = 0.1 / (2 * 2 * 3 * 4)
    W = world.spec.radius * agent.algorithm.public.scale
    for fits, variance, bound in (
        (model.fits, 0.5, W),
        (model._rewards.fits, 0.25, math.sqrt(world.spec.reward_features.shape[2])),
    ):
        assert len(fits) == 3
        for fit in fits:
            k, r = len(fit.weights), fit.regularised
            log = 2 * math.log(2 / p) + k * math.log(1 + FEW / (k * r.smallest))
            expected = math.sqrt(variance * log) + bound * math.sqrt(r.largest) + r.shift
            assert fit.beta == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_targets_is_sub_gaussian_as_assumed(seed: int) -> None:
    """E exp(l' x n) <= exp(sigma^2 |x' l|^2 / 2) in random directions; sigma^2 .25 is too small."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(4, 0.3))
    short = False
    for size in (0.1, 1.0, 4.0, 10.0):
        v = size * rng.normal(size=(200, 4))
        v[0] = size * np.array([1.0, -1.0, 0.0, 0.0])
        even = np.array([0.5, 0.5, 0.0, 0.0])
        for p in (P, even):
            log_mean = np.log((p * np.exp(v - (v @ p)[:, np.newaxis])).sum(axis=1))
            assert (log_mean <= 0.5 * (v**2).sum(axis=1) / 2 + 1e-12).all()
            half = (v.max(axis=1) - v.min(axis=1)) / 2
            assert (log_mean <= half**2 / 2 + 1e-12).all()
            short |= bool((log_mean > 0.25 * (v**2).sum(axis=1) / 2).any())
    assert short


def test_noise_of_targets_has_one_size_in_theory() -> None:
    """Whatever users are asked about: else its size would depend on noise released before."""
    world = models(0, known=True)
    agent = made(world, FEW, PRIVACY["joint"], 0, statistic="values")
    rng, scales = np.random.default_rng(0), []
    while agent.block_users:
        statistic: Any = agent.statistic
        scales.append(agent.algorithm.way._target_scales.copy())
        # Nothing is cut by it.
        q = statistic.values[:, None, None] - statistic.means[..., None]
        assert (np.abs(q) * statistic.support <= 1.0 + 1e-12).all()
        agent.learn(world.simulate(agent.policy, agent.block_users, rng, agent.form))
    assert len({float(x) for x in np.ravel(scales)}) == 1


def test_widths_shrink_with_users_and_grow_with_privacy_and_certainty() -> None:
    world = models(1, known=False)

    def excess(users: int, privacy: Any, failure: float) -> float:
        agent = in_quarters(LinOptVI, world, users, privacy, failure)
        worst(world, agent, 0)
        assert agent.q_values is not None
        return float((agent.q_values - optimal_q(world)).mean())

    base = excess(10**7, JointDP(1.0, 1e-6), 0.1)
    assert excess(10**9, JointDP(1.0, 1e-6), 0.1) < base / 3
    assert excess(10**7, JointDP(10.0, 1e-6), 0.1) < base
    assert excess(10**7, NonPrivate(), 0.1) < base
    assert excess(10**7, JointDP(1.0, 1e-6), 1e-9) > base
