"""Balancing aids learn to hold a rod upright, from users whose falls stay their own.

Every user has a rod on a hinge with a motor, Gymnasium's ``Pendulum-v1``, and sets it almost
upright. Left alone it falls within a second. Near its equilibrium it is almost linear: the next
angle and speed are a matrix times angle, speed and torque. Nobody knows the matrix. It is learnt
from episodes of 25 steps, under joint differential privacy, and what is published is a gain for
every step.

    python examples/pendulum.py

The noise is real, and every run is different, unless a seed is given: then it is a simulation.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import tacit
from tacit import published
from tacit.lq import GainPolicy, LQSpec
from tacit.lq.riccati import optimal_gains

Floats = NDArray[np.float64]

STEPS = 25  # of a twentieth of a second
SECONDS = 0.05
# Users start uniformly in an ellipse of these half axes, in radians and radians per second. They
# are also the units of the state, and 1 N m is that of the torque, so that all numbers are about 1.
UNITS = np.array([0.05, 0.2])
STRONGEST = 2.0  # the motor's limit, in N m
FALLEN = 0.5  # beyond this angle an episode is over

STILL = GainPolicy.zero(STEPS, controls=1, states=2)


def linearised(length: float, mass: float) -> tuple[Floats, Floats]:
    """A and B of a rod near its upright position, in our units: mechanics, no data."""
    falling = 3.0 * 10.0 / (2.0 * length) * SECONDS  # speed by angle
    pushing = 3.0 / (mass * length**2) * SECONDS  # speed by torque
    speed = np.array([falling, 1.0, pushing])
    angle = np.array([1.0, 0.0, 0.0]) + SECONDS * speed
    both = np.stack([angle, speed]) * [*UNITS, 1.0] / UNITS[:, np.newaxis]
    return both[:, :2], both[:, 2:]


def what_is_known() -> LQSpec:
    """All that the agent is told. None of it is fitted to users.

    The costs are those of the environment: angle^2 + .1 speed^2 + .001 torque^2. A rod that is at
    least 80 cm long and weighs at least 800 g bounds the norm of (A, B). What a line misses of the
    sine counts as noise: for such a rod it is .1 units a step at half a radian, and we say .2.
    """
    A, B = linearised(length=0.8, mass=0.8)
    bound = 0.2
    return LQSpec(
        states=2,
        controls=1,
        horizon=STEPS,
        state_cost=np.diag([1.0, 0.1] * UNITS**2),
        control_cost=np.array([[0.001]]),
        noise_bound=bound,
        noise_covariance=bound**2 / 4.0 * np.eye(2),  # uniform in a disc of this radius
        start_moment=np.eye(2) / 4.0,  # uniform in the unit disc
        norm_bound=float(np.hypot(np.linalg.norm(A), np.linalg.norm(B))),
        gain_bound=3.0,  # more would ask too much of the motor within the unit disc
    )


def episodes(
    env: gymnasium.Env[Any, Any],
    policy: GainPolicy | published.PublishedGains,
    users: int,
    rng: np.random.Generator,
) -> tuple[tacit.VectorEpisodes, Floats]:
    """Some users' episodes, and what each of them cost by the environment's own rewards."""
    states, torques = np.empty((users, STEPS + 1, 2)), np.empty((users, STEPS, 1))
    lengths, costs = np.full(users, STEPS + 1), np.zeros(users)
    rod: Any = env.unwrapped
    for user in range(users):
        env.reset(seed=0)
        turn = rng.uniform(0.0, 2.0 * np.pi)
        rod.state = np.sqrt(rng.random()) * np.array([np.cos(turn), np.sin(turn)]) * UNITS
        for step in range(STEPS):
            states[user, step] = rod.state / UNITS
            control = policy.act(step, states[user, step], rng)
            # What counts is what the motor did, not what it was asked to do.
            torques[user, step] = np.clip(control, -STRONGEST, STRONGEST)
            costs[user] -= float(env.step(torques[user, step])[1])
            # A linear model has no business with a rod that hangs.
            if abs(rod.state[0]) > FALLEN:
                lengths[user] = min(lengths[user], step + 1)
        states[user, STEPS] = rod.state / UNITS
    versions = np.full(users, policy.version)
    return tacit.VectorEpisodes(states, torques, lengths=lengths, versions=versions), costs


def learn(agent: tacit.Agent, env: gymnasium.Env[Any, Any], seed: int | None) -> None:
    """Serves block after block, until all users are through.

    What it prints is raw and for the story only: with real people it would be a leak.
    """
    rng = np.random.default_rng(seed)
    while agent.block_users > 0:
        policy, users = agent.policy, agent.block_users
        data, costs = episodes(env, policy, users, rng)
        agent.learn(data)
        fell = float(np.mean(data.lengths <= STEPS))
        gains = " ".join(f"{gain:6.2f}" for gain in policy.gains[0, 0])
        print(
            f"  policy {policy.version:2}: gains {gains}, noise {policy.noise:4.2f} N m; of "
            f"{users:4,} rods {fell:4.0%} fell, cost {costs.mean():7.3f}"
        )


def main() -> int:
    """Tells the story."""
    parser = argparse.ArgumentParser(description="A rod is balanced privately.")
    parser.add_argument("--folder", type=Path, default=None, help="for its file; a new one if not")
    parser.add_argument("--users", type=int, default=3000, help="how many come")
    parser.add_argument("--epsilon", type=float, default=1.0, help="their budget")
    parser.add_argument("--seed", type=int, default=None, help="of everything; voids the guarantee")
    given = parser.parse_args()
    env = gymnasium.make("Pendulum-v1")
    spec = what_is_known()
    agent = tacit.CertaintyEquivalence(
        spec,
        given.users,
        tacit.JointDP(epsilon=given.epsilon, delta=1e-6),
        noise_seed=given.seed,
    )
    print("Users are served, a block at a time:")
    learn(agent, env, given.seed)
    print("\n" + textwrap.fill(f"What they are promised: {agent.guarantee}", 100))

    path = (given.folder or Path(tempfile.mkdtemp())) / "gains.npz"
    agent.publish(path, greedy=True, force=True)  # by force: a seed makes it a simulation
    gains = published.load(path)
    assert isinstance(gains, published.PublishedGains)  # noqa: S101
    print(f"\nThe public gains are in {path}. What 200 new users see of them:")
    A, B = linearised(length=1.0, mass=1.0)
    _, best = optimal_gains(A, B, spec.state_cost, spec.control_cost, STEPS)
    for name, policy in (
        ("no control", STILL),
        (f"learnt, epsilon {given.epsilon:g}", gains),
        ("true linearisation", GainPolicy(best)),
    ):
        # The same users for all three.
        data, costs = episodes(env, policy, 200, np.random.default_rng(7))
        fell = float(np.mean(data.lengths <= STEPS))
        print(f"  {name:20} {fell:5.0%} fell, cost {costs.mean():8.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
