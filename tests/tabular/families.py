"""What the tests of linear worlds and of mixtures share: worlds of both, by one name."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tacit
from tacit.linear import LinearWorld
from tacit.mixture import MixtureWorld
from tacit.tabular.policy import Policy


def factors(seed=0, states=3, actions=2, dimension=4, horizon=3, steps=(1, 1)):
    """Features on the simplex, measures that are distributions, and rewards in [0, 1]."""
    rng = np.random.default_rng(seed)
    return {
        "features": rng.dirichlet(np.ones(dimension), (states, actions)),
        "measures": rng.dirichlet(np.ones(states), (steps[0], dimension)),
        "rewards": rng.random((steps[1], dimension)),
        "horizon": horizon,
    }


def parts(seed=0, states=3, actions=2, dimension=4, horizon=3, steps=(1, 1)):
    """Base models, weights on the simplex, and rewards in [0, 1]."""
    rng = np.random.default_rng(seed)
    return {
        "transition_features": rng.dirichlet(np.ones(states), (states, actions, dimension)),
        "weights": rng.dirichlet(np.ones(dimension), steps[0]),
        "rewards": rng.random((steps[1], states, actions)),
        "horizon": horizon,
    }


@dataclass(frozen=True)
class Family:
    """How worlds of a family are made and what they are made of."""

    name: str
    world: type
    features: str
    made_of: Callable[..., dict[str, Any]]

    def random(self, *args, **options):
        return self.world(**self.made_of(*args, **options))

    def reward(self, world, h, s, a):
        """From features and factors alone."""
        rewards = world.rewards[min(h, len(world.rewards) - 1)]
        return rewards[s, a] if self is MIXTURE else world.features[s, a] @ rewards

    def probability(self, world, h, s, a, then):
        """From features and factors, or weights, alone."""
        if self is MIXTURE:
            theta = world.weights[min(h, len(world.weights) - 1)]
            return world.transition_features[s, a, :, then] @ theta
        return world.features[s, a] @ world.measures[min(h, len(world.measures) - 1), :, then]

    def model(self, given):
        """Transitions and rewards of a world."""
        if self is MIXTURE:
            P = np.einsum("sait,hi->hsat", given["transition_features"], given["weights"])
            return P, given["rewards"]
        P = np.einsum("sad,hdt->hsat", given["features"], given["measures"])
        return P, np.einsum("sad,hd->hsa", given["features"], given["rewards"])

    def turned(self, given, basis):
        """The same world in another basis."""
        if self is MIXTURE:
            features = np.einsum("ji,sait->sajt", basis, given["transition_features"])
            changed = {"transition_features": features, "weights": given["weights"] @ basis.T}
        else:
            changed = {
                "features": given["features"] @ basis.T,
                "measures": basis @ given["measures"],
                "rewards": given["rewards"] @ basis.T,
            }
        return self.world(**given | changed)

    def others(self, spec):
        """Specs that differ from one and from one another."""
        found = [
            self.random(15).spec,
            replace(spec, stationary_rewards=False),
            replace(spec, start=None),
            replace(spec, known_rewards=np.zeros((1, 3, 2))),
            replace(spec, reward_values=(0.0, 0.5, 1.0)),
        ]
        if self is MIXTURE:
            found += [
                replace(spec, reward_features=np.ones((3, 2, 1))),
                replace(spec, center=np.ones(4)),
                replace(spec, directions=np.eye(4)[:, :3]),
                replace(spec, radius=1.0),
            ]
        return found


LINEAR = Family("linear", LinearWorld, "features", factors)
MIXTURE = Family("mixture", MixtureWorld, "transition_features", parts)
FAMILIES = [pytest.param(family, id=family.name) for family in (LINEAR, MIXTURE)]


def taught(world, users=300_000):
    """A tabular agent for what it knows of a world."""
    privacy = tacit.JointDP(epsilon=1.0, delta=1e-6)
    return tacit.UCBVI(world, users=users, privacy=privacy, seed=0, noise_seed=1)


def uniform(world):
    """Acts at random."""
    return Policy.uniform(world.spec.horizon, world.spec.states, world.spec.actions)


def drawn_worlds(make, sizes, usual, most):
    """Worlds of several seeds, fewer where there are many states: none is easy or seen before."""
    seeds = range(20) if sizes.get("states", usual) <= most else range(3)
    seen = set()
    for seed in seeds:
        world = make(**sizes, seed=seed)
        assert world.baseline_value < 0.5 * world.optimal_value
        yield world
        seen.add(world.spec)
    assert len(seen) == len(seeds)


def returns_have_the_exact_mean(world):
    rng = np.random.default_rng(0)
    n = 10**9
    block = world.simulate(world.optimal_policy, n, rng, "counts")
    assert block["transitions"].sum() == world.spec.horizon * n
    # Five standard errors, of returns that lie in [0, H]: a false alarm in a million.
    error = 5 * world.spec.horizon / 2 / np.sqrt(n)
    assert abs(block["rewards"].sum() / n - world.optimal_value) < error
